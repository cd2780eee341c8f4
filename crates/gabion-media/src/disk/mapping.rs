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
//!   pointer, by whoever holds the mapping mutably. So other processes may read the file.
//! - I3. The file keeps at least `len` bytes while it is mapped, and their space is reserved:
//!   touching a page behind the end, or one without space, would end the process by a signal.

use std::fs::File;
use std::io;
use std::ptr::{self, NonNull};

use rustix::mm::{Advice, MapFlags, ProtFlags};

/// The first bytes of a file, mapped for writing.
#[derive(Debug)]
pub(super) struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapped bytes belong to the process, not to a thread.
unsafe impl Send for Mapping {}
// SAFETY: a shared mapping offers no access to the bytes (I2), so sharing it races with nothing.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `len` bytes of a file; they must be there, with space reserved (I3).
    ///
    /// The pages are brought into memory at once, so that the first store into each does not wait
    /// for the medium. A kernel that cannot do that does it at the first store.
    pub(super) fn new(file: &File, len: usize) -> io::Result<Mapping> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the system chooses an address that is free, so no existing memory changes.
        let start = unsafe {
            rustix::mm::mmap(ptr::null_mut(), len, protection, MapFlags::SHARED, file, 0)
        }?;
        // Single pages: in a larger unit of the page cache, each store would make all of it dirty,
        // and every sync would write all of it again.
        // SAFETY: the range was just mapped, and advice on access changes no content.
        let advised = unsafe { rustix::mm::madvise(start, len, Advice::Random) };
        // Only a matter of speed.
        let _ = advised;
        // SAFETY: the range was just mapped, and populating it changes no content.
        let populated = unsafe { rustix::mm::madvise(start, len, Advice::LinuxPopulateRead) };
        // Only a matter of speed, and of kernels older than 5.14.
        let _ = populated;
        let start = NonNull::new(start.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Mapping { start, len })
    }

    /// Copies bytes to `offset`.
    ///
    /// # Panics
    /// If they do not lie within the mapping.
    #[inline]
    pub(super) fn write(&mut self, offset: usize, bytes: &[u8]) {
        let fits = offset <= self.len && bytes.len() <= self.len - offset;
        assert!(
            fits,
            "a write of {} bytes at {offset} leaves the mapping",
            bytes.len()
        );
        // SAFETY: `offset` is at most `len`, so the address stays within the mapping (I1).
        let target = unsafe { self.start.add(offset) };
        // SAFETY: the range was checked above to lie within the mapping (I1). Its bytes are
        // behind no reference (I2), so `bytes` cannot overlap them.
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
