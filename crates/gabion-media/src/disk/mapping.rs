//! Files mapped into memory for writing: the only module of the disk with `unsafe` code.
//!
//! # Idea
//! A store into a mapping costs some ten nanoseconds, a write call more than a microsecond. The
//! kernel owns the mapped pages, so what was stored survives the end of the process, and a sync
//! of the file writes it to the medium.
//!
//! # Invariants
//! - I1. `start` is the address of `len` mapped, writable bytes until the mapping is dropped.
//! - I2. No Rust reference to the mapped bytes is ever made; they are only written, through a raw
//!   pointer, each byte by one thread at a time. So other processes may read the file.
//! - I3. The file keeps at least `len` bytes while it is mapped, and their space is reserved:
//!   touching a page behind the end, or one without space, would end the process by a signal.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::ptr::{self, NonNull};

use rustix::mm::{Advice, MapFlags, ProtFlags};

/// A multiple of the sizes that systems have for plain pages.
const PAGES_BYTES: usize = 64 << 10;

/// The first bytes of a file, mapped for writing.
#[derive(Debug)]
pub(super) struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapped bytes belong to the process, not to a thread.
unsafe impl Send for Mapping {}
// SAFETY: of a shared mapping bytes can only be written, and whoever does it sees to it that nobody
// else writes the same ones.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `len` bytes of a file; they must be there, with space reserved (I3).
    ///
    /// Nothing is brought into memory: a store into a page that was never mapped maps the whole
    /// unit of the page cache that holds it, which costs much less than a fault for each page.
    pub(super) fn new(file: &File, len: usize) -> io::Result<Mapping> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the system chooses an address that is free, so no existing memory changes.
        let start = unsafe {
            rustix::mm::mmap(ptr::null_mut(), len, protection, MapFlags::SHARED, file, 0)
        }?;
        let start = NonNull::new(start.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Mapping { start, len })
    }

    /// Lets the process forget the pages; the file keeps their content.
    pub(super) fn rest(&mut self) {
        self.forget(0..self.len);
    }

    /// Lets the process forget the pages of some bytes; the file keeps their content. Who stores
    /// into one of them meanwhile or later maps it again.
    pub(super) fn forget(&self, bytes: Range<usize>) {
        let from = bytes.start.next_multiple_of(PAGES_BYTES);
        let to = bytes.end.min(self.len);
        if from >= to {
            return;
        }
        let start = self.start.as_ptr().wrapping_add(from).cast();
        // SAFETY: the range is a shared mapping of a file (I1): the next access finds in the file
        // what was stored, and nobody holds a reference (I2).
        let forgotten = unsafe { rustix::mm::madvise(start, to - from, Advice::LinuxDontNeed) };
        // Only a matter of memory and speed.
        let _ = forgotten;
    }

    /// Copies bytes to `offset`.
    ///
    /// # Safety
    /// Nobody else writes to that place of the mapping meanwhile.
    ///
    /// # Panics
    /// If they do not lie within the mapping.
    #[inline]
    pub(super) unsafe fn write(&self, offset: usize, bytes: &[u8]) {
        let fits = offset <= self.len && bytes.len() <= self.len - offset;
        assert!(
            fits,
            "a write of {} bytes at {offset} leaves the mapping",
            bytes.len()
        );
        // SAFETY: `offset` is at most `len`, so the address stays within the mapping (I1).
        let target = unsafe { self.start.add(offset) };
        // SAFETY: the range was checked above to lie within the mapping (I1). Its bytes are
        // behind no reference (I2), so `bytes` cannot overlap them; and the caller sees to it that
        // no other thread writes them.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), target.as_ptr(), bytes.len()) };
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is mapped (I1), and nobody can use it once the mapping is dropped.
        let unmapped = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.len) };
        debug_assert!(
            unmapped.is_ok(),
            "unmapping a mapped range failed: {unmapped:?}"
        );
    }
}
