//! Early writeback: makes the system write a file's dirty pages long before a sync.
//!
//! A system that keeps written pages in memory leaves the medium idle until a sync asks for all of
//! them, and the caller idle from then on. Who knows that a range is complete can let the two work
//! at the same time.

use std::fs::File;

/// Asks the system to begin to write a range of a file, and does not wait for the medium. Promises
/// nothing about what survives. Whatever goes wrong on the medium is told by the next sync of the
/// same handle. Without effect where the system has no such call.
pub(super) fn begin(file: &File, offset: u64, len: u64) {
    #[cfg(all(target_os = "linux", target_env = "gnu", not(miri)))]
    {
        use std::ffi::{c_int, c_uint};
        use std::os::fd::AsRawFd;

        unsafe extern "C" {
            fn sync_file_range(file: c_int, offset: i64, len: i64, flags: c_uint) -> c_int;
        }
        /// `SYNC_FILE_RANGE_WRITE` of `linux/fs.h`: begin to write the dirty pages of the range.
        const WRITE: c_uint = 2;

        let (Ok(offset), Ok(len)) = (i64::try_from(offset), i64::try_from(len)) else {
            return;
        };
        // SAFETY: the call takes numbers only, touches no memory of this process, and the file is
        // open as long as it is borrowed.
        let begun = unsafe { sync_file_range(file.as_raw_fd(), offset, len, WRITE) };
        // Only a matter of speed.
        let _ = begun;
    }
    #[cfg(not(all(target_os = "linux", target_env = "gnu", not(miri))))]
    let _ = (file, offset, len);
}
