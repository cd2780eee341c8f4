//! Whole files mapped into memory for reading.
//!
//! # Idea
//! A file that never changes can be read where the system keeps it: no call, no copy, no second
//! cache. [`FileMap`] is such a file's bytes. The simulated disk has nothing to map; there the
//! bytes are copied when the map is made, so that the code above is the same.
//!
//! # Invariants
//! - I1. `start` is the address of `len` mapped, readable bytes until the mapping is dropped.
//! - I2. Nobody changes or cuts the file while it is mapped. Within a store this holds, because
//!   only files that are complete are mapped, and the lock of the directory keeps other stores out.
//!   A mapping may outlive the lock; no store changes a complete file even then, it removes it,
//!   which leaves the bytes to the mapping.
//!   A foreign program that writes into the file breaks it, as it breaks every program that maps
//!   files: bytes change under the reader, who must not rely on more than their being bytes, and
//!   behind the new end of a file that was cut, touching them ends the process by a signal.
//!
//! # What a failing medium does
//! The system cannot report a page that it failed to read, so it ends the process by `SIGBUS`.
//! Whoever wants an error instead reads the bytes by [`super::ReadFile::read_exact_at`] before
//! touching them for the first time: that brings the pages into memory or says why not. What is
//! left is a page that was dropped from memory and cannot be read again.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use rustix::mm::{Advice, MapFlags, ProtFlags};

/// The bytes of a file that does not change, mapped for reading. Clones share the mapping, which
/// outlives the name and the handle of the file.
#[derive(Clone, Debug)]
pub struct FileMap(Arc<Bytes>);

#[derive(Debug)]
enum Bytes {
    Mapped(ReadMapping),
    Copied(Box<[u8]>),
}

impl FileMap {
    /// Maps the first `len` bytes of a file, which has so many.
    pub(super) fn new(file: &File, len: u64) -> io::Result<FileMap> {
        let len = usize::try_from(len).map_err(|_| io::ErrorKind::FileTooLarge)?;
        Ok(FileMap(Arc::new(match len {
            // The system maps no empty range.
            0 => Bytes::Copied(Box::default()),
            _ => Bytes::Mapped(ReadMapping::new(file, len)?),
        })))
    }

    pub(super) fn copied(bytes: Vec<u8>) -> FileMap {
        FileMap(Arc::new(Bytes::Copied(bytes.into())))
    }

    /// All bytes of the file. Touching one that is not in memory waits for the medium.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        match &*self.0 {
            Bytes::Mapped(mapping) => mapping.bytes(),
            Bytes::Copied(bytes) => bytes,
        }
    }

    /// Lets the system enter the pages of `place` into the mapping now, so that who touches them
    /// first meets no page fault. Reads what is not in memory. A hint; without effect where the
    /// system cannot do it.
    pub fn enter_pages(&self, place: Range<usize>) {
        if let Bytes::Mapped(mapping) = &*self.0 {
            mapping.enter_pages(place);
        }
    }
}

/// A file mapped for reading.
#[derive(Debug)]
struct ReadMapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapped bytes belong to the process, not to a thread.
unsafe impl Send for ReadMapping {}
// SAFETY: the bytes are only read, and do not change (I2).
unsafe impl Sync for ReadMapping {}

impl ReadMapping {
    fn new(file: &File, len: usize) -> io::Result<ReadMapping> {
        let (protection, flags) = (ProtFlags::READ, MapFlags::SHARED);
        // SAFETY: the system chooses an address that is free, so no existing memory changes.
        let start = unsafe { rustix::mm::mmap(ptr::null_mut(), len, protection, flags, file, 0) }?;
        // Reads are of single blocks: what the system would read around them is rarely wanted.
        // SAFETY: the range was just mapped, and advice on access changes no content.
        let advised = unsafe { rustix::mm::madvise(start, len, Advice::Random) };
        // Only a matter of speed.
        let _ = advised;
        let start = NonNull::new(start.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(ReadMapping { start, len })
    }

    fn enter_pages(&self, place: Range<usize>) {
        let page = rustix::param::page_size();
        let from = place.start / page * page;
        let to = place.end.min(self.len);
        #[cfg(all(target_os = "linux", not(miri)))]
        if from < to {
            let start = self.start.as_ptr().wrapping_add(from);
            // SAFETY: the pages lie in the mapping (I1), and this advice changes no content.
            let advised =
                unsafe { rustix::mm::madvise(start.cast(), to - from, Advice::LinuxPopulateRead) };
            // Only a matter of time; systems before Linux 5.14 do not know it.
            let _ = advised;
        }
        #[cfg(not(all(target_os = "linux", not(miri))))]
        let _ = (from, to);
    }

    #[inline]
    fn bytes(&self) -> &[u8] {
        // SAFETY: the range is mapped and readable (I1) for as long as `self` is borrowed, does
        // not change (I2), and is at most `isize::MAX` bytes, as every mapping is.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl Drop for ReadMapping {
    fn drop(&mut self) {
        // SAFETY: the range is mapped (I1), and no reference to its bytes outlives the mapping.
        let unmapped = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.len) };
        debug_assert!(
            unmapped.is_ok(),
            "unmapping a mapped range failed: {unmapped:?}"
        );
    }
}
