//! Page witnesses, which tell whether the system still has in memory what was stored to a pool's
//! file.
//!
//! # The question
//! A pool on an ordinary file that was not closed is to be trusted if its process ended and the
//! system kept the pages of the file, and not if those were lost: then any of them may be of an
//! older time. The file cannot tell one from the other, for it says whatever the pages say that are
//! left. So three things outside of it are asked ([decision 040]).
//!
//! # The witnesses
//! - W1. The id of the boot, in the header: another one means that the system's memory is gone.
//! - W2. Which file it is, in the header: its device, the number of the device among all that were
//!   attached since the boot, its inode and when that was made. So it is another file if it was
//!   copied, or lies on a snapshot, or on a drive that was pulled and put in again.
//! - W3. Pages behind the pool's end, outside of the mapping. All of them are given the number of
//!   the next checkpoint before that checkpoint becomes durable. So as long as the system has the
//!   file in memory, they are not behind the checkpoint file. If its pages are lost, these are too,
//!   unless the system has written all of them since: and it writes a file from its beginning to
//!   its end, so that by then it has written what came before the checkpoint.
//!
//! # What no witness notices
//! Stores since the last checkpoint that are lost where W1 to W3 say nothing: on a file system that
//! was taken away without being written and mounted again, with the drive still attached, after the
//! system had written the pages of W3; and where a drive lies about what it has written. Structures
//! then find what they check, and no more.

#[cfg(test)]
use std::cell::Cell;
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use super::file::{self, PoolFile};
use crate::seeded::mix;
use crate::{Error, Result};

/// Pages behind the pool: one that is lost tells of the loss, and each is lost by itself.
const PAGES: usize = 8;

const PAGE_BYTES: usize = 4096;

const BYTES: usize = PAGES * PAGE_BYTES;

/// First bytes of a page behind the pool; the number of a checkpoint follows.
const MAGIC: [u8; 8] = *b"GABWITNS";

/// The word of a header that names no file: the pool is closed.
pub(super) const NONE: u64 = 0;

/// What a header says of how a pool was opened last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OpenRecord {
    /// The id of the boot.
    pub(super) boot: [u64; 2],
    /// The file, or [`NONE`].
    pub(super) file: u64,
}

/// The pages behind a pool.
#[derive(Debug)]
pub(super) struct PageWitness {
    file: Arc<PoolFile>,
    /// Bytes of the pool.
    size: u64,
}

impl PageWitness {
    /// The pages behind a pool of `size` bytes, which say from here on that it goes on from a
    /// checkpoint; none if there is no space for them.
    pub(super) fn begin(
        file: &Arc<PoolFile>,
        size: u64,
        sequence: u64,
    ) -> Result<Option<PageWitness>> {
        let file = Arc::clone(file);
        let witness = PageWitness { file, size };
        match witness.mark(sequence) {
            Err(error) if error.is_no_space() => Ok(None),
            marked => marked.map(|()| Some(witness)),
        }
    }

    /// Says that there may be a checkpoint of this number from here on.
    pub(super) fn mark(&self, sequence: u64) -> Result<()> {
        let mut bytes = vec![0; BYTES];
        for page in bytes.chunks_exact_mut(PAGE_BYTES) {
            page[..8].copy_from_slice(&MAGIC);
            page[8..16].copy_from_slice(&sequence.to_le_bytes());
        }
        let written = self.file.file().write_all_at(&bytes, self.size);
        written.map_err(|source| Error::io("write to", self.file.path(), Some(self.size), source))
    }
}

/// Whether the system has all that was stored to an open pool of `size` bytes, as far as that can
/// be known. `sequence` is the number of the last checkpoint, if there is one.
pub(super) fn is_held(
    file: &PoolFile,
    opened: OpenRecord,
    size: u64,
    sequence: Option<u64>,
) -> bool {
    if opened.boot != file::boot_id() || opened.boot == [0, 0] {
        return false;
    }
    if opened.file == NONE {
        return true;
    }
    let is_marked = |sequence| lowest_mark(file.file(), size).is_some_and(|mark| mark >= sequence);
    name_of(file.file()) == opened.file && sequence.is_none_or(is_marked)
}

/// The lowest number in the pages behind a pool, if all of them are there.
fn lowest_mark(file: &File, size: u64) -> Option<u64> {
    let mut bytes = vec![0; BYTES];
    file.read_exact_at(&mut bytes, size).ok()?;
    let mark = |page: &[u8]| match page.split_first_chunk() {
        Some((&MAGIC, rest)) => rest.first_chunk().map(|word| u64::from_le_bytes(*word)),
        _ => None,
    };
    let marks: Option<Vec<u64>> = bytes.chunks(PAGE_BYTES).map(mark).collect();
    marks?.into_iter().min()
}

/// A number for which file this is, as long as the system runs: not [`NONE`], but where the system
/// does not tell.
pub(super) fn name_of(file: &File) -> u64 {
    let Ok(metadata) = file.metadata() else {
        return NONE;
    };
    let made = metadata.created().ok();
    let made = made.and_then(|made| made.duration_since(UNIX_EPOCH).ok());
    let made = made.map_or(0, |made| {
        made.as_secs() << 30 ^ u64::from(made.subsec_nanos())
    });
    let device = metadata.dev();
    let words = [device, attachment_of(device), metadata.ino(), made];
    words
        .into_iter()
        .fold(1, |name, word| mix(name ^ word))
        .max(1)
}

/// The number that the system gave the drive of a device when it was attached; it gives none twice.
/// Zero where there is no drive, or it does not tell.
fn attachment_of(device: u64) -> u64 {
    #[cfg(test)]
    if let Some(attachment) = ATTACHMENT.get() {
        return attachment;
    }
    #[cfg(target_os = "linux")]
    let link = {
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        format!("/sys/dev/block/{major}:{minor}")
    };
    #[cfg(not(target_os = "linux"))]
    let link = format!("/no device {device} is told of");
    let read = |name: &str| std::fs::read_to_string(Path::new(&link).join(name));
    // A part of a drive lies in the folder of the drive.
    let number = read("diskseq").or_else(|_| read("../diskseq"));
    number
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
thread_local! {
    /// The number of the drive of all files, where a test says so.
    pub(super) static ATTACHMENT: Cell<Option<u64>> = const { Cell::new(None) };
}
