//! Reading a checkpoint file when its pool is opened.

use std::collections::BTreeMap;
use std::path::Path;

use super::layout::{
    ENTRY_BYTES, FileHeader, HEAD_BYTES, HEADER_BYTES, HeaderError, PIECE_MAGIC, PieceHead,
    VERSION, is_intact, u32_at, u64_at,
};
use super::{Checkpoint, Page, Place};
use crate::crc32c;
use crate::disk::{Disk, ReadFile};
use crate::{Error, PoolFault, Purpose, Result};

/// Bytes that are searched at a time.
const WINDOW: usize = 1 << 20;

/// What a file holds.
struct Found {
    header: FileHeader,
    index: BTreeMap<u64, Place>,
    sequence: u64,
    /// End of the last finished checkpoint.
    end: u64,
}

impl Checkpoint {
    /// Opens the checkpoints of a pool to read them; none if there is no such file, which stays as
    /// it is until the pool [takes](Checkpoint::take) it.
    pub(in super::super) fn look(disk: Disk, name: &str) -> Result<Option<Checkpoint>> {
        let file = match disk.open_read(name) {
            Err(error) if error.is_not_found() => return Ok(None),
            opened => opened?,
        };
        let found = read_file(&file, &disk.path_of(name))?;
        Ok(Some(Checkpoint {
            disk,
            name: name.to_owned(),
            header: found.header,
            file: None,
            end: found.end,
            index: found.index,
            sequence: found.sequence,
            pending: None,
            failure: None,
        }))
    }

    /// Makes what was read the file that further checkpoints go to, and cuts off what an unfinished
    /// one left behind. For who has the lock of the pool, and knows that the file is the pool's.
    ///
    /// If a sync failed since the system was started, what was read may be lost to the medium all
    /// the same; the next checkpoint must then be an image.
    pub(in super::super) fn take(&mut self) -> Result<()> {
        let Checkpoint { disk, name, .. } = self;
        if self.end < disk.open_read(name)?.len() {
            disk.truncate(name, self.end)?;
        }
        // What was read may be in the system's memory only, and so may the name.
        disk.sync_file(name)?;
        disk.sync_dir()?;
        self.file = Some(disk.reopen_append(name, Purpose::Checkpoint)?);
        Ok(())
    }
}

fn damaged(path: &Path, what: &'static str, offset: u64) -> Error {
    Error::Pool {
        path: path.into(),
        fault: PoolFault::Damaged { what, offset },
    }
}

/// Reads a page and checks it.
pub(super) fn read_page(file: &ReadFile, path: &Path, place: Place, page: &mut Page) -> Result<()> {
    file.read_exact_at(page, place.offset)?;
    if crc32c::crc32c(page) == place.crc {
        Ok(())
    } else {
        Err(damaged(path, "checkpoint's page", place.offset))
    }
}

fn read_header(file: &ReadFile, path: &Path) -> Result<FileHeader> {
    let mut bytes = [0; HEADER_BYTES];
    if file.len() < bytes.len() as u64 {
        let fault = PoolFault::Truncated {
            len: file.len(),
            size: bytes.len() as u64,
        };
        return Err(Error::Pool {
            path: path.into(),
            fault,
        });
    }
    file.read_exact_at(&mut bytes, 0)?;
    FileHeader::decode(&bytes).map_err(|bad| {
        let fault = match bad {
            HeaderError::Foreign => PoolFault::ForeignCheckpoint,
            HeaderError::Version(found) => PoolFault::Version {
                found,
                known: VERSION,
            },
            HeaderError::Damaged => return damaged(path, "checkpoint's header", 0),
        };
        Error::Pool {
            path: path.into(),
            fault,
        }
    })
}

fn read_file(file: &ReadFile, path: &Path) -> Result<Found> {
    let header = read_header(file, path)?;
    let start = HEADER_BYTES as u64;
    let mut found = Found {
        header,
        index: BTreeMap::new(),
        sequence: 0,
        end: start,
    };
    // Pages of the checkpoint that is being read, and where it began.
    let mut places: Vec<(u64, Place)> = Vec::new();
    let mut last: Vec<(u64, Place)> = Vec::new();
    let mut last_start = start;
    // What the last checkpoint's pages were before it.
    let mut before_last: Vec<(u64, Option<Place>)> = Vec::new();
    let mut piece = 0;
    let mut offset = start;
    let mut next = None;
    while let Some((head, front)) = read_piece(file, &header, offset)? {
        let expected = next.unwrap_or(head.sequence);
        if head.sequence != expected || head.piece != piece {
            break;
        }
        next = Some(expected);
        let pages_at = offset + front.len() as u64;
        for (entry, at) in front[HEAD_BYTES..].chunks_exact(ENTRY_BYTES).zip(0_u64..) {
            let place = Place {
                offset: pages_at + at * 4096,
                crc: u32_at(entry, 8),
            };
            if u64_at(entry, 0) >= header.size / 4096 {
                return Err(damaged(path, "checkpoint's entry", offset));
            }
            places.push((u64_at(entry, 0), place));
        }
        offset += head.piece_bytes();
        piece += 1;
        if head.is_last {
            last_start = found.end;
            last = std::mem::take(&mut places);
            let replaced = last
                .iter()
                .map(|(page, place)| (*page, found.index.insert(*page, *place)));
            before_last = replaced.collect();
            found.sequence = head.sequence;
            found.end = offset;
            next = Some(head.sequence + 1);
            piece = 0;
        }
    }
    // Earlier checkpoints were durable before the last one began; of the last one only the pages
    // themselves can tell.
    let mut page = [0; super::PAGE_BYTES];
    let is_whole = last
        .iter()
        .all(|(_, place)| read_page(file, path, *place, &mut page).is_ok());
    if !is_whole {
        for (page, before) in before_last.into_iter().rev() {
            match before {
                Some(place) => found.index.insert(page, place),
                None => found.index.remove(&page),
            };
        }
        found.end = last_start;
        found.sequence -= 1;
    }
    if found.end == start {
        return Err(damaged(path, "checkpoint's image", start));
    }
    if let Some(lost) = find_later(file, &header, found.end, found.sequence + 1)? {
        return Err(damaged(path, "checkpoint", lost));
    }
    Ok(found)
}

/// Head and entries of the piece at an offset; none if there is no intact one.
fn read_piece(
    file: &ReadFile,
    header: &FileHeader,
    offset: u64,
) -> Result<Option<(PieceHead, Vec<u8>)>> {
    let rest = file.len().saturating_sub(offset);
    if rest < HEAD_BYTES as u64 {
        return Ok(None);
    }
    let mut head_bytes = [0; HEAD_BYTES];
    file.read_exact_at(&mut head_bytes, offset)?;
    let Some(head) = PieceHead::decode(&head_bytes).filter(|head| head.piece_bytes() <= rest)
    else {
        return Ok(None);
    };
    let mut front = vec![0; head.front_bytes()];
    file.read_exact_at(&mut front, offset)?;
    Ok(is_intact(&header.uuid, offset, &front).then_some((head, front)))
}

/// The end of the finished part, if behind it is a piece of a checkpoint later than `unfinished`:
/// that one began only after `unfinished` was durable, so its pieces were there once.
fn find_later(
    file: &ReadFile,
    header: &FileHeader,
    end: u64,
    unfinished: u64,
) -> Result<Option<u64>> {
    let mut at = end.next_multiple_of(16);
    let mut window = vec![0; WINDOW];
    while at < file.len() {
        let size = usize::try_from(file.len() - at)
            .unwrap_or(usize::MAX)
            .min(WINDOW);
        let window = &mut window[..size];
        file.read_exact_at(window, at)?;
        for (bytes, offset) in window.chunks_exact(16).zip((at..).step_by(16)) {
            if bytes[..4] == PIECE_MAGIC
                && let Some((head, _)) = read_piece(file, header, offset)?
                && head.sequence > unfinished
            {
                return Ok(Some(end));
            }
        }
        at += size as u64;
    }
    Ok(None)
}
