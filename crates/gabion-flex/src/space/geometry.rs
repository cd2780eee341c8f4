//! The geometry of the data file: segments, their blocks, and the footers of full segments.

use super::layout::DATA_HEADER_BYTES;

/// Bytes of a footer before its checksums.
pub(super) const FOOTER_HEAD_BYTES: usize = 16;

/// The bit of an extent's address that says that the extent is marked. No segment reaches it.
pub(crate) const MARK: u64 = 1 << 47;

/// Sizes of a space, and what follows from them.
///
/// A segment is blocks of data, then a footer with the checksum of each block. An address is the
/// segment's number times its size, plus the offset in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Geometry {
    segment_bytes: u32,
    block_bytes: u32,
    blocks: u32,
}

impl Geometry {
    /// The geometry of segments and blocks of these sizes, which the options' check has passed.
    pub(crate) fn new(segment_bytes: u32, block_bytes: u32) -> Geometry {
        let fits = |blocks: u32| {
            let footer = (blocks * 4 + 16).next_multiple_of(block_bytes);
            blocks * block_bytes + footer <= segment_bytes
        };
        let most = segment_bytes / block_bytes - 1;
        let blocks = (1..=most).rev().find(|blocks| fits(*blocks)).unwrap_or(1);
        Geometry {
            segment_bytes,
            block_bytes,
            blocks,
        }
    }

    pub(crate) fn segment_bytes(&self) -> u64 {
        u64::from(self.segment_bytes)
    }

    pub(crate) fn block_bytes(&self) -> u32 {
        self.block_bytes
    }

    /// Blocks of data in a segment.
    pub(crate) fn blocks(&self) -> u32 {
        self.blocks
    }

    /// Bytes of data in a segment.
    pub(crate) fn room(&self) -> u32 {
        self.blocks * self.block_bytes
    }

    /// Longest extent: a thirty-second part of a segment.
    pub(crate) fn extent_max(&self) -> u32 {
        self.segment_bytes / 32
    }

    /// Segments whose addresses are below the mark.
    pub(crate) fn segments_max(&self) -> u32 {
        u32::try_from(MARK / self.segment_bytes() - 1).unwrap_or(u32::MAX - 1)
    }

    /// The segment of an address, marked or not, and the offset in it.
    #[inline]
    pub(crate) fn split(&self, address: u64) -> (u32, u32) {
        let address = address & !MARK;
        let shift = self.segment_bytes.trailing_zeros();
        let segment = u32::try_from(address >> shift).unwrap_or(u32::MAX);
        let within = u32::try_from(address & (self.segment_bytes() - 1)).unwrap_or(u32::MAX);
        (segment, within)
    }

    #[inline]
    pub(crate) fn address(&self, segment: u32, within: u32) -> u64 {
        u64::from(segment) * self.segment_bytes() + u64::from(within)
    }

    /// Place in the data file.
    #[inline]
    pub(crate) fn file_offset(&self, segment: u32, within: u32) -> u64 {
        DATA_HEADER_BYTES + self.address(segment, within)
    }

    /// Blocks that `bytes` of data take.
    pub(crate) fn blocks_of(&self, bytes: u32) -> u32 {
        bytes.div_ceil(self.block_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_and_footer_fill_a_segment_and_never_overlap() {
        for segment_shift in 12..=30 {
            for block_shift in 8..=segment_shift - 3 {
                let geometry = Geometry::new(1 << segment_shift, 1 << block_shift);
                let footer = u64::from(geometry.blocks()) * 4 + FOOTER_HEAD_BYTES as u64;
                let used = u64::from(geometry.room()) + footer;
                assert!(used <= geometry.segment_bytes());
                let waste = geometry.segment_bytes() - used;
                assert!(waste < 3 << block_shift, "{geometry:?} wastes {waste}");
                let last = geometry.address(7, geometry.room() - 1);
                assert_eq!(geometry.split(last), (7, geometry.room() - 1));
            }
        }
    }

    #[test]
    fn the_default_geometry() {
        let geometry = Geometry::new(4 << 20, 4096);
        assert_eq!(
            (geometry.blocks(), geometry.extent_max()),
            (1022, 128 << 10)
        );
    }
}
