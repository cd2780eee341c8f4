//! Checkpoints: states of a pool on an ordinary file to which it can be brought back after the
//! loss of power.
//!
//! # Idea
//! The system writes mapped pages back whenever it likes, so after the loss of power the pool's
//! own file is a mixture of old and new pages, and no sync of it can prevent that. So the pool's
//! file is for the running system only, and a second file, the checkpoint, holds what survives: a
//! whole image of the pool, and behind it for each sync the pages that changed. Only what a sync
//! appended and synced counts, and it counts as a whole: its last piece says that it is complete.
//! When the changes outweigh the image, a new file with a new image takes the place of the old one
//! by renaming.
//!
//! Which pages changed is known from the stores to the pool (`dirty`). An image is taken while
//! nobody changes the pool (`checkpoint_gate`); so it is the pool as the end of the process would
//! have left it at that moment, and the structures' own recovery does the rest. It does not matter
//! which stores were flushed: on persistent memory a structure may leave some for later, and a
//! checkpoint has them.
//!
//! # Invariants
//! - I1. All bytes up to the end of the last finished checkpoint are durable, and they are the ones
//!   that `index` tells of.
//! - I2. Checkpoints are numbered without gaps. A piece that is damaged with a later checkpoint
//!   behind it is damage; without one it is the end of a checkpoint that was not finished.
//! - I3. After a sync that failed nothing is appended any more.
//!
//! # Durability
//! [`Checkpoint::commit`] returns when the checkpoint is durable. Costs one sync and the pages that
//! changed; a new image costs all pages in use, written again when as much has been appended, so
//! each changed page is written about twice at most.

mod layout;
mod recovery;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

pub(super) use self::layout::PAGE_BYTES;
use self::layout::{ENTRY_BYTES, FileHeader, HEADER_BYTES, PIECE_PAGES, PieceHead};
use crate::crc32c;
use crate::disk::{Appender, Disk, TEMPORARY_SUFFIX};
use crate::{Error, Purpose, Result};

/// Bytes that may be appended before a new image is worth its cost, however small the pool is.
const SLACK_BYTES: u64 = 1 << 20;

/// A page of a pool.
pub(super) type Page = [u8; PAGE_BYTES];

/// The checkpoints of a pool.
#[derive(Debug)]
pub(super) struct Checkpoint {
    disk: Disk,
    name: String,
    header: FileHeader,
    /// The file with its finished checkpoints; none before the first one, and while they are only
    /// read.
    file: Option<Appender>,
    /// Where the finished checkpoints ended when the file was read.
    end: u64,
    /// Where the newest version of each page lies, and its checksum.
    index: BTreeMap<u64, Place>,
    /// Number of the last finished checkpoint.
    sequence: u64,
    /// What was written and is not committed yet.
    pending: Option<Pending>,
    /// Why nothing can be appended any more.
    failure: Option<String>,
}

/// Where a page lies in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    offset: u64,
    crc: u32,
}

#[derive(Debug)]
struct Pending {
    /// The file of a new image.
    image: Option<Appender>,
    places: Vec<(u64, Place)>,
}

impl Checkpoint {
    /// The checkpoints of a new pool: none yet.
    pub(super) fn new(disk: Disk, name: &str, uuid: [u8; 16], size: u64) -> Checkpoint {
        Checkpoint {
            disk,
            name: name.to_owned(),
            header: FileHeader { uuid, size },
            file: None,
            end: 0,
            index: BTreeMap::new(),
            sequence: 0,
            pending: None,
            failure: None,
        }
    }

    /// UUID of the pool.
    pub(super) fn uuid(&self) -> [u8; 16] {
        self.header.uuid
    }

    /// Size of the pool in bytes.
    pub(super) fn size(&self) -> u64 {
        self.header.size
    }

    /// Whether another file lies on the same file system.
    pub(super) fn shares_file_system(&self, file: &std::fs::File) -> Result<bool> {
        self.disk.shares_file_system(&self.name, file)
    }

    /// Number of the last finished checkpoint.
    pub(super) fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Bytes of the file, as far as it is finished.
    pub(super) fn len(&self) -> u64 {
        self.file.as_ref().map_or(0, Appender::len)
    }

    /// Bytes that were written to files of checkpoints since the pool was opened, and syncs of
    /// them.
    pub(super) fn costs(&self) -> (u64, u64) {
        let counts = self.disk.counts();
        (counts.bytes_of(Purpose::Checkpoint), counts.syncs())
    }

    /// Refuses to go on after a failed sync.
    pub(super) fn check(&self) -> Result<()> {
        Error::check_poisoned(self.failure.as_ref(), || self.disk.path_of(&self.name))
    }

    /// Writes a checkpoint of these pages: all pages that are not zero if `is_image`, else those
    /// that changed. It counts after [`Checkpoint::commit`]. If this fails, nothing has changed.
    pub(super) fn write(
        &mut self,
        pages: impl Iterator<Item = u64>,
        is_image: bool,
        read: impl FnMut(u64, &mut Page) -> Result<()>,
    ) -> Result<()> {
        self.check()?;
        debug_assert!(self.pending.is_none(), "one checkpoint at a time");
        if is_image || self.file.is_none() {
            let temporary = self.temporary();
            match self.disk.remove(&temporary) {
                Err(error) if !error.is_not_found() => return Err(error),
                _ => {}
            }
            let mut image = self.disk.create_append(&temporary, Purpose::Checkpoint)?;
            let written = image.append(&self.header.encode()).and_then(|()| {
                write_pieces(&mut image, &self.header, self.sequence + 1, pages, read)
            });
            let places = written.inspect_err(|_| self.remove_temporary())?;
            self.pending = Some(Pending {
                image: Some(image),
                places,
            });
            return Ok(());
        }
        let Some(file) = &mut self.file else {
            return Ok(());
        };
        let start = file.len();
        match write_pieces(file, &self.header, self.sequence + 1, pages, read) {
            Ok(places) => {
                self.pending = Some(Pending {
                    image: None,
                    places,
                });
                Ok(())
            }
            Err(error) => {
                self.cut(start);
                Err(error)
            }
        }
    }

    /// Takes back what was appended from `start` on.
    fn cut(&mut self, start: u64) {
        let reopened = self
            .disk
            .truncate(&self.name, start)
            .and_then(|()| self.disk.reopen_append(&self.name, Purpose::Checkpoint));
        match reopened {
            Ok(file) => self.file = Some(file),
            Err(error) => self.failure = Some(error.to_string()),
        }
    }

    /// Makes the checkpoint that was written durable.
    pub(super) fn commit(&mut self) -> Result<()> {
        self.check()?;
        let Some(Pending { image, places, .. }) = self.pending.take() else {
            return Ok(());
        };
        match image {
            Some(mut image) => {
                let installed = image.sync().and_then(|()| {
                    drop(image);
                    self.disk.rename(&self.temporary(), &self.name)
                });
                // The old file is untouched until it is replaced, so this may be tried again.
                installed.inspect_err(|_| self.remove_temporary())?;
                // DURABLE: the image was synced; the name means the old file or this one, and
                // only this one once the directory is synced.
                let synced = self.disk.sync_dir();
                let opened =
                    synced.and_then(|()| self.disk.reopen_append(&self.name, Purpose::Checkpoint));
                self.file =
                    Some(opened.inspect_err(|error| self.failure = Some(error.to_string()))?);
                self.index.clear();
            }
            None => {
                if let Some(file) = &mut self.file {
                    // DURABLE: the last piece is, with all before it: the checkpoint counts.
                    file.sync()
                        .inspect_err(|error| self.failure = Some(error.to_string()))?;
                }
            }
        }
        self.sequence += 1;
        self.index.extend(places);
        Ok(())
    }

    /// Whether the changes outweigh the image, so that [`Checkpoint::compact`] is worth its cost.
    pub(super) fn wants_image(&self) -> bool {
        let live = self.index.len() as u64 * PAGE_BYTES as u64;
        self.len() > 2 * live + SLACK_BYTES
    }

    /// Replaces the file by a new one with an image of the same state, made from the old file. If
    /// this fails, the old one stays.
    pub(super) fn compact(&mut self) -> Result<()> {
        let old = self.disk.open_read(&self.name)?;
        let index = self.index.clone();
        let path = self.disk.path_of(&self.name);
        self.write(index.keys().copied(), true, |page, bytes| {
            let place = index.get(&page).copied();
            place.map_or(Ok(()), |place| {
                recovery::read_page(&old, &path, place, bytes)
            })
        })?;
        self.commit()
    }

    /// Hands out all pages of the last finished checkpoint that are not zero, page 0 last.
    pub(super) fn restore(&self, mut write: impl FnMut(u64, &Page) -> Result<()>) -> Result<()> {
        let file = self.disk.open_read(&self.name)?;
        let path = self.disk.path_of(&self.name);
        let mut bytes = [0; PAGE_BYTES];
        let first = self.index.range(..1);
        for (page, place) in self.index.range(1..).chain(first) {
            recovery::read_page(&file, &path, *place, &mut bytes)?;
            write(*page, &bytes)?;
        }
        Ok(())
    }

    fn temporary(&self) -> String {
        format!("{}{TEMPORARY_SUFFIX}", self.name)
    }

    fn remove_temporary(&self) {
        // The first error is the one to tell; the next image removes the rest.
        let _ = self.disk.remove(&self.temporary());
    }
}

/// Appends the pages in pieces and tells where they lie.
fn write_pieces(
    file: &mut Appender,
    header: &FileHeader,
    sequence: u64,
    pages: impl Iterator<Item = u64>,
    mut read: impl FnMut(u64, &mut Page) -> Result<()>,
) -> Result<Vec<(u64, Place)>> {
    let mut places = Vec::new();
    let mut pages = pages.peekable();
    let mut piece = 0;
    loop {
        let mut entries = Vec::with_capacity(PIECE_PAGES * ENTRY_BYTES);
        let mut content: Vec<u8> = Vec::with_capacity(PIECE_PAGES * PAGE_BYTES);
        let first = places.len();
        let mut count = 0;
        while let Some(page) = pages.next_if(|_| (count as usize) < PIECE_PAGES) {
            let mut bytes = [0; PAGE_BYTES];
            read(page, &mut bytes)?;
            let crc = crc32c::crc32c(&bytes);
            entries.extend(page.to_le_bytes());
            entries.extend(crc.to_le_bytes());
            entries.extend([0; 4]);
            content.extend(bytes);
            places.push((page, Place { offset: 0, crc }));
            count += 1;
        }
        let is_last = pages.peek().is_none();
        let head = PieceHead {
            sequence,
            piece,
            pages: count,
            is_last,
        };
        let mut bytes = Vec::with_capacity(head.front_bytes() + content.len());
        head.encode(&header.uuid, file.len(), &entries, &mut bytes);
        let mut offset = file.len() + bytes.len() as u64;
        for (_, place) in places.iter_mut().skip(first) {
            place.offset = offset;
            offset += PAGE_BYTES as u64;
        }
        bytes.extend(content);
        file.append(&bytes)?;
        if is_last {
            return Ok(places);
        }
        piece += 1;
    }
}

const _: () = assert!(HEADER_BYTES == 64);
