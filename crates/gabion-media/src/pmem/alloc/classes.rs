//! The sizes of blocks.
//!
//! Blocks of up to half a chunk have one of a few sizes, their *class*, and share chunks with
//! blocks of the same class. The classes are multiples of 16 bytes up to 128, then eight to each
//! doubling up to an eighth of a chunk, so that at most an eighth of a block is lost; the last ones
//! are what a chunk can be cut into, from seven parts to two.

use super::super::layout::GRANULE;

/// The class sizes of one chunk size, and which class serves a size.
#[derive(Debug)]
pub(crate) struct SizeClasses {
    sizes: Vec<u32>,
    /// The class for a number of granules.
    class_of: Vec<u8>,
}

impl SizeClasses {
    /// The classes for chunks of `chunk_bytes`, a power of two of at least 4096.
    pub(crate) fn new(chunk_bytes: u64) -> SizeClasses {
        let chunk = u32::try_from(chunk_bytes).expect("a chunk has less than 4 GiB");
        let mut sizes: Vec<u32> = (16..=128).step_by(16).collect();
        let mut base = 128;
        while base < chunk / 8 {
            sizes.extend((1..=8).map(|eighth| base + base / 8 * eighth));
            base *= 2;
        }
        let unit = (chunk / 256).clamp(16, 256);
        for parts in (2..=7).rev() {
            let size = chunk / parts / unit * unit;
            if sizes.last().is_some_and(|last| *last < size) {
                sizes.push(size);
            }
        }
        let granule = u32::try_from(GRANULE).expect("a granule is small");
        let granules = sizes.last().map_or(0, |last| last / granule);
        let mut class = 0;
        let mut class_of = Vec::with_capacity(granules as usize + 1);
        for count in 0..=granules {
            if sizes[class] < count * granule {
                class += 1;
            }
            class_of.push(u8::try_from(class).expect("there are fewer than 256 classes"));
        }
        SizeClasses { sizes, class_of }
    }

    /// Number of classes.
    pub(crate) fn count(&self) -> usize {
        self.sizes.len()
    }

    /// Size of the blocks of a class in bytes.
    pub(crate) fn size(&self, class: usize) -> u64 {
        self.sizes.get(class).map_or(0, |size| u64::from(*size))
    }

    /// The smallest class that holds `size` bytes at multiples of `align`; none if the size is for
    /// whole chunks.
    pub(crate) fn class_for(&self, size: u64, align: u64) -> Option<usize> {
        let granules = usize::try_from(size.max(1).div_ceil(GRANULE)).ok()?;
        let first = usize::from(*self.class_of.get(granules)?);
        if align <= GRANULE {
            return Some(first);
        }
        (first..self.sizes.len()).find(|class| self.size(*class).is_multiple_of(align))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_has_the_smallest_class_that_holds_it() {
        for chunk in [4096, 65536, 1 << 20] {
            let classes = SizeClasses::new(chunk);
            let largest = classes.size(classes.count() - 1);
            assert_eq!(largest, chunk / 2);
            for size in 0..=largest {
                let class = classes.class_for(size, 1).unwrap();
                assert!(classes.size(class) >= size);
                assert!(
                    class == 0 || classes.size(class - 1) < size.max(1),
                    "{size}"
                );
            }
            assert_eq!(classes.class_for(largest + 1, 1), None);
            assert!(classes.count() < 256);
        }
    }

    #[test]
    fn little_is_lost_within_blocks() {
        let classes = SizeClasses::new(65536);
        for size in 129..=8192 {
            let block = classes.size(classes.class_for(size, 1).unwrap());
            assert!(
                block - size < 16 || (block - size) * 8 <= size,
                "{size} in {block}"
            );
        }
    }

    #[test]
    fn aligned_sizes_get_aligned_classes() {
        let classes = SizeClasses::new(65536);
        for align in [16, 64, 256, 4096] {
            for size in (1..=32768).step_by(61) {
                let class = classes.class_for(size, align).unwrap();
                assert!(classes.size(class) >= size && classes.size(class).is_multiple_of(align));
            }
        }
        assert_eq!(classes.size(classes.class_for(17, 64).unwrap()), 64);
    }
}
