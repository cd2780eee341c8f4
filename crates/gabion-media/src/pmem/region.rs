//! The memory of a pool: anonymous memory of the process, or a mapped file.
//!
//! # Invariants
//! - I1. `start` is the address of `len` readable and writable bytes until the region is dropped,
//!   aligned to [`ALIGNMENT`].
//! - I2. The bytes are accessed by atomic operations only, and by instructions that act like them.
//!   So a region may be shared by threads and by processes without a data race, and whatever it
//!   holds is a valid value.
//! - I3. A mapped file keeps its length while it is mapped, and the space of each page is reserved
//!   before the page is touched: otherwise touching it would end the process by a signal.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags};

/// Alignment of a region's start in bytes: a page of the system.
pub(super) const ALIGNMENT: usize = 4096;

/// Mappings begin at a multiple of this where they can, so that the system can back them with
/// large pages.
const HUGE_PAGE: usize = 2 << 20;

/// Memory of fixed size for a pool.
#[derive(Debug)]
pub struct Region {
    start: NonNull<u8>,
    len: usize,
    origin: Origin,
}

#[derive(Debug)]
enum Origin {
    /// The allocator of the process.
    Allocated,
    /// A mapping of its own.
    Mapped,
}

// SAFETY: the memory belongs to the process, not to a thread.
unsafe impl Send for Region {}
// SAFETY: all access is atomic (I2).
unsafe impl Sync for Region {}

impl Region {
    /// Zeroed memory of the process; `len` is rounded up to pages of 4096 bytes. For pools that a
    /// test opens many times: it can change the bytes between the openings.
    ///
    /// # Panics
    /// If `len` is larger than the address space.
    pub fn new(len: usize) -> Arc<Region> {
        let len = len.max(1).next_multiple_of(ALIGNMENT);
        let layout = Region::layout(len);
        // SAFETY: the size is not zero.
        let start = unsafe { alloc_zeroed(layout) };
        let Some(start) = NonNull::new(start) else {
            handle_alloc_error(layout);
        };
        Arc::new(Region {
            start,
            len,
            origin: Origin::Allocated,
        })
    }

    fn layout(len: usize) -> Layout {
        Layout::from_size_align(len, ALIGNMENT).expect("a region fits into memory")
    }

    /// Zeroed memory that the system gives page by page when it is touched, in large pages where
    /// it can.
    pub(super) fn anonymous(len: usize) -> io::Result<Region> {
        let len = len.max(1).next_multiple_of(ALIGNMENT);
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let wish = Region::aligned_address(len)?;
        // SAFETY: the system chooses an address that is free, so no existing memory changes.
        let mapped = unsafe { rustix::mm::mmap_anonymous(wish, len, protection, flags) }?;
        let region = Region::mapped(mapped, len)?;
        region.advise(Advice::LinuxHugepage);
        Ok(region)
    }

    /// Maps the first `len` bytes of a file. With `is_direct` the mapping is to the medium itself,
    /// without the page cache, or fails.
    pub(super) fn of_file(file: &File, len: usize, is_direct: bool) -> io::Result<Region> {
        let kind = if is_direct {
            MapFlags::SHARED_VALIDATE | MapFlags::SYNC
        } else {
            MapFlags::SHARED
        };
        Region::map_file(file, len, kind)
    }

    /// Maps the first `len` bytes of a file as they are now. What is stored there stays in this
    /// process.
    pub(super) fn copy_of_file(file: &File, len: usize) -> io::Result<Region> {
        Region::map_file(file, len, MapFlags::PRIVATE | MapFlags::NORESERVE)
    }

    fn map_file(file: &File, len: usize, flags: MapFlags) -> io::Result<Region> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let wish = Region::aligned_address(len)?;
        // SAFETY: the system chooses an address that is free, so no existing memory changes.
        let mapped = unsafe { rustix::mm::mmap(wish, len, protection, flags, file, 0) }?;
        Region::mapped(mapped, len)
    }

    /// An aligned address behind which `len` bytes were free a moment ago: a wish, never a demand.
    /// A demanded address (`MAP_FIXED`) within a range that is kept free for it would not do: a
    /// mapping that fails there leaves a hole, into which the system may put memory of another
    /// thread, and who gives the range back then takes that away.
    fn aligned_address(len: usize) -> io::Result<*mut c_void> {
        let too_large = || io::Error::from(io::ErrorKind::OutOfMemory);
        let outer_len = len.checked_add(HUGE_PAGE).ok_or_else(too_large)?;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: the system chooses an address that is free, so no existing memory changes.
        let outer = unsafe {
            rustix::mm::mmap_anonymous(ptr::null_mut(), outer_len, ProtFlags::empty(), flags)
        }?;
        unmap(outer, outer_len);
        let aligned = outer.addr().next_multiple_of(HUGE_PAGE);
        Ok(ptr::without_provenance_mut(aligned))
    }

    fn mapped(start: *mut c_void, len: usize) -> io::Result<Region> {
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Region {
            start,
            len,
            origin: Origin::Mapped,
        })
    }

    /// Tells the system how the memory will be used.
    pub(super) fn advise(&self, advice: Advice) {
        // SAFETY: the range is mapped (I1), and the advices of this module change no content.
        let advised = unsafe { rustix::mm::madvise(self.start.as_ptr().cast(), self.len, advice) };
        // Only a matter of speed.
        let _ = advised;
    }

    /// Size in bytes.
    #[expect(clippy::len_without_is_empty, reason = "a region is never empty")]
    pub fn len(&self) -> usize {
        self.len
    }

    pub(super) fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// All bytes as words.
    pub fn words(&self) -> &[AtomicU64] {
        let start: *const AtomicU64 = self.start.as_ptr().cast();
        // SAFETY: the region is mapped, aligned to more than a word (I1), and accessed atomically
        // only (I2); any value is valid.
        unsafe { slice::from_raw_parts(start, self.len / size_of::<u64>()) }
    }

    fn bytes(&self) -> &[AtomicU8] {
        let start: *const AtomicU8 = self.start.as_ptr().cast();
        // SAFETY: as for `words`.
        unsafe { slice::from_raw_parts(start, self.len) }
    }

    /// Copies bytes out, from `offset` on. Each aligned word within them is read at once.
    ///
    /// # Panics
    /// If they do not lie within the region.
    // ORDER: Relaxed throughout: a copy orders nothing; whoever copies bytes that another thread
    // writes has synchronized with it by a word of their structure.
    #[inline]
    pub fn read(&self, offset: usize, target: &mut [u8]) {
        let (head, words, tail) = self.split(offset, target.len());
        let (first, rest) = target.split_at_mut(head.len());
        for (byte, cell) in first.iter_mut().zip(head) {
            *byte = cell.load(Ordering::Relaxed);
        }
        let (middle, last) = rest.split_at_mut(size_of_val(words));
        for (chunk, cell) in middle.chunks_exact_mut(size_of::<u64>()).zip(words) {
            chunk.copy_from_slice(&cell.load(Ordering::Relaxed).to_le_bytes());
        }
        for (byte, cell) in last.iter_mut().zip(tail) {
            *byte = cell.load(Ordering::Relaxed);
        }
    }

    /// Copies bytes in, from `offset` on. Each aligned word within them is written at once.
    ///
    /// # Panics
    /// If they do not lie within the region.
    // ORDER: Relaxed throughout: as for `read`.
    #[inline]
    pub fn write(&self, offset: usize, bytes: &[u8]) {
        let (head, words, tail) = self.split(offset, bytes.len());
        let (first, rest) = bytes.split_at(head.len());
        for (byte, cell) in first.iter().zip(head) {
            cell.store(*byte, Ordering::Relaxed);
        }
        let (middle, last) = rest.split_at(size_of_val(words));
        for (word, cell) in words_of(middle).zip(words) {
            cell.store(word, Ordering::Relaxed);
        }
        for (byte, cell) in last.iter().zip(tail) {
            cell.store(*byte, Ordering::Relaxed);
        }
    }

    /// Whether the bytes from `offset` on are these.
    ///
    /// # Panics
    /// If so many bytes do not lie within the region.
    // ORDER: Relaxed throughout: as for `read`.
    #[inline]
    pub fn equals(&self, offset: usize, bytes: &[u8]) -> bool {
        let (head, words, tail) = self.split(offset, bytes.len());
        let (first, rest) = bytes.split_at(head.len());
        let (middle, last) = rest.split_at(size_of_val(words));
        let same = |bytes: &[u8], cells: &[AtomicU8]| {
            let mut pairs = bytes.iter().zip(cells);
            pairs.all(|(byte, cell)| cell.load(Ordering::Relaxed) == *byte)
        };
        same(first, head)
            && words_of(middle)
                .zip(words)
                .all(|(word, cell)| cell.load(Ordering::Relaxed) == word)
            && same(last, tail)
    }

    /// The bytes before the first whole word of a range, its whole words, and the bytes behind.
    #[inline]
    pub(super) fn split(
        &self,
        offset: usize,
        len: usize,
    ) -> (&[AtomicU8], &[AtomicU64], &[AtomicU8]) {
        let word = size_of::<u64>();
        let fits = offset <= self.len && len <= self.len - offset;
        assert!(
            fits,
            "{len} bytes at offset {offset} leave the region of {} bytes",
            self.len
        );
        let first = offset.next_multiple_of(word).min(offset + len);
        let count = (offset + len - first) / word;
        let behind = first + count * word;
        let words = if count == 0 {
            &[]
        } else {
            &self.words()[first / word..][..count]
        };
        let bytes = self.bytes();
        (&bytes[offset..first], words, &bytes[behind..offset + len])
    }

    /// A copy of all bytes.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len];
        self.read(0, &mut bytes);
        bytes
    }
}

/// The words of bytes whose number is a multiple of a word's.
pub(super) fn words_of(bytes: &[u8]) -> impl Iterator<Item = u64> {
    let (words, rest) = bytes.as_chunks::<{ size_of::<u64>() }>();
    debug_assert!(rest.is_empty());
    words.iter().map(|word| u64::from_le_bytes(*word))
}

fn unmap(start: *mut c_void, len: usize) {
    // SAFETY: the range is a whole mapping of this module, and nobody uses it any more.
    let unmapped = unsafe { rustix::mm::munmap(start, len) };
    debug_assert!(
        unmapped.is_ok(),
        "unmapping a mapped range failed: {unmapped:?}"
    );
}

impl Drop for Region {
    fn drop(&mut self) {
        match self.origin {
            // SAFETY: allocated with this layout, and nobody can use it once it is dropped.
            Origin::Allocated => unsafe {
                dealloc(self.start.as_ptr(), Region::layout(self.len));
            },
            Origin::Mapped => unmap(self.start.as_ptr().cast(), self.len),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    #[test]
    fn copies_keep_to_their_range_at_every_alignment() {
        let region = Region::new(64);
        assert_eq!(region.len(), ALIGNMENT);
        for offset in 0..24 {
            for len in 0..40 {
                region.write(0, &[0xee; 80]);
                let bytes: Vec<u8> = (1..).take(len).collect();
                region.write(offset, &bytes);
                let mut expected = [0xee; 80];
                expected[offset..offset + len].copy_from_slice(&bytes);
                let mut whole = [0; 80];
                region.read(0, &mut whole);
                assert_eq!(whole, expected, "offset {offset}, len {len}");
                let mut back = vec![0; len];
                region.read(offset, &mut back);
                assert_eq!(back, bytes);
                assert!(region.equals(offset, &bytes));
                for at in [0, len.saturating_sub(1)].into_iter().take(len) {
                    back[at] ^= 1;
                    assert!(!region.equals(offset, &back));
                    back[at] ^= 1;
                }
            }
        }
    }

    #[test]
    fn copies_over_the_end_are_refused() {
        let region = Region::new(ALIGNMENT);
        for (offset, len) in [
            (ALIGNMENT, 1),
            (ALIGNMENT - 7, 8),
            (usize::MAX, 2),
            (0, ALIGNMENT + 1),
        ] {
            let bytes = vec![0; len];
            let caught = std::panic::catch_unwind(|| region.write(offset, &bytes));
            assert!(caught.is_err(), "{offset} {len}");
        }
        region.write(ALIGNMENT, &[]);
    }

    #[test]
    fn anonymous_memory_is_zero_aligned_and_writable() {
        let region = Region::anonymous(3 * ALIGNMENT + 1).unwrap();
        assert_eq!(region.len(), 4 * ALIGNMENT);
        assert_eq!(region.start().as_ptr() as usize % ALIGNMENT, 0);
        region.write(3 * ALIGNMENT, b"end");
        assert!(region.equals(3 * ALIGNMENT, b"end\0"));
        // Another thread may be faster and get the place that was found.
        let begins_at_large_page = |()| {
            let region = Region::anonymous(ALIGNMENT).unwrap();
            region.start().addr().get().is_multiple_of(HUGE_PAGE)
        };
        assert!(std::iter::repeat_n((), 100).any(begins_at_large_page));
    }

    /// A mapping that the system refuses takes no memory away that another thread maps meanwhile.
    #[test]
    fn a_mapping_that_fails_leaves_the_memory_of_others_alone() {
        const BYTES: usize = 4 << 20;
        let file = tempfile::tempfile().unwrap();
        file.set_len(BYTES as u64).unwrap();
        let is_done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..5000 {
                    // Most files cannot be mapped so; where one can, there is nothing to see.
                    drop(Region::of_file(&file, BYTES, true));
                }
                is_done.store(true, Ordering::Relaxed);
            });
            while !is_done.load(Ordering::Relaxed) {
                let region = Region::anonymous(BYTES).unwrap();
                let mut places = (0..BYTES).step_by(1 << 20);
                places.clone().for_each(|at| region.write(at, &[7]));
                assert!(places.all(|at| region.equals(at, &[7])));
            }
        });
    }
}
