//! The layout of a checkpoint file.
//!
//! # Layout of the file
//! | offset | size | meaning |
//! |---|---|---|
//! | 0 | 8 | magic `GABIONCP` |
//! | 8 | 4 | format version |
//! | 12 | 4 | CRC-32C of the header without these four bytes |
//! | 16 | 16 | UUID of the pool |
//! | 32 | 8 | size of the pool in bytes |
//! | 40 | 24 | zero |
//! | 64 | .. | pieces, one behind the other |
//!
//! # Layout of a piece
//! | offset | size | meaning |
//! |---|---|---|
//! | 0 | 4 | magic `PIEC` |
//! | 4 | 4 | CRC-32C of UUID, file offset, and the rest of head and entries |
//! | 8 | 8 | sequence number of the checkpoint |
//! | 16 | 4 | number of the piece in its checkpoint, from 0 |
//! | 20 | 4 | number of pages |
//! | 24 | 4 | 1 if it is the checkpoint's last piece, else 0 |
//! | 28 | 4 | zero |
//! | 32 | pages * 16 | entries: page number (8), CRC-32C of the page (4), zero (4) |
//! | .. | pages * 4096 | the pages |
//!
//! All numbers are little-endian. The first checkpoint in a file is a whole one: pages that are
//! not in it are zero. Each later one has the pages that changed.

use crate::crc32c;

use super::super::dirty::PAGE;

/// First bytes of a checkpoint file.
pub(super) const MAGIC: [u8; 8] = *b"GABIONCP";

/// The version that this program writes, and the newest that it reads.
pub(super) const VERSION: u32 = 1;

/// Size of the file's header in bytes.
pub(super) const HEADER_BYTES: usize = 64;

/// First bytes of a piece.
pub(super) const PIECE_MAGIC: [u8; 4] = *b"PIEC";

/// Size of a piece's head, and of an entry, in bytes.
pub(super) const HEAD_BYTES: usize = 32;
pub(super) const ENTRY_BYTES: usize = 16;

/// Most pages of a piece: what is kept in memory while a checkpoint is written is half a MiB.
pub(super) const PIECE_PAGES: usize = 128;

/// Size of a page in bytes.
pub(in super::super) const PAGE_BYTES: usize = 4096;

const _: () = assert!(PAGE_BYTES as u64 == PAGE);
const _: () = assert!(MAGIC.len() + 4 + 4 + 16 + 8 + 24 == HEADER_BYTES);
const _: () = assert!(PIECE_MAGIC.len() + 4 + 8 + 4 + 4 + 4 + 4 == HEAD_BYTES);
const _: () = assert!(8 + 4 + 4 == ENTRY_BYTES);
// Pieces begin at multiples of 16, where a search for lost ones looks.
const _: () = assert!(HEADER_BYTES.is_multiple_of(16) && HEAD_BYTES.is_multiple_of(16));

/// What the file's header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileHeader {
    pub(super) uuid: [u8; 16],
    pub(super) size: u64,
}

/// Why a header is not one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeaderError {
    Foreign,
    Version(u32),
    Damaged,
}

impl FileHeader {
    pub(super) fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[16..32].copy_from_slice(&self.uuid);
        bytes[32..40].copy_from_slice(&self.size.to_le_bytes());
        let crc = header_crc(&bytes);
        bytes[12..16].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<FileHeader, HeaderError> {
        if bytes[..8] != MAGIC {
            return Err(HeaderError::Foreign);
        }
        if u32_at(bytes, 12) != header_crc(bytes) {
            return Err(HeaderError::Damaged);
        }
        if u32_at(bytes, 8) != VERSION {
            return Err(HeaderError::Version(u32_at(bytes, 8)));
        }
        let mut uuid = [0; 16];
        uuid.copy_from_slice(&bytes[16..32]);
        Ok(FileHeader {
            uuid,
            size: u64_at(bytes, 32),
        })
    }
}

fn header_crc(bytes: &[u8; HEADER_BYTES]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&bytes[..12]), &bytes[16..])
}

/// The head of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PieceHead {
    pub(super) sequence: u64,
    pub(super) piece: u32,
    pub(super) pages: u32,
    pub(super) is_last: bool,
}

impl PieceHead {
    /// Writes head and entries for a piece at `offset` to the front of `bytes`.
    pub(super) fn encode(&self, uuid: &[u8; 16], offset: u64, entries: &[u8], bytes: &mut Vec<u8>) {
        bytes.extend(PIECE_MAGIC);
        bytes.extend([0; 4]);
        bytes.extend(self.sequence.to_le_bytes());
        bytes.extend(self.piece.to_le_bytes());
        bytes.extend(self.pages.to_le_bytes());
        bytes.extend(u32::from(self.is_last).to_le_bytes());
        bytes.extend([0; 4]);
        bytes.extend(entries);
        let crc = piece_crc(uuid, offset, bytes);
        bytes[4..8].copy_from_slice(&crc.to_le_bytes());
    }

    /// Reads a head without its check; none if it cannot be one.
    pub(super) fn decode(bytes: &[u8; HEAD_BYTES]) -> Option<PieceHead> {
        let pages = u32_at(bytes, 20);
        let is_plausible = bytes[..4] == PIECE_MAGIC
            && pages as usize <= PIECE_PAGES
            && u32_at(bytes, 24) <= 1
            && u32_at(bytes, 28) == 0;
        is_plausible.then(|| PieceHead {
            sequence: u64_at(bytes, 8),
            piece: u32_at(bytes, 16),
            pages,
            is_last: u32_at(bytes, 24) == 1,
        })
    }

    /// Size of head and entries in bytes.
    pub(super) fn front_bytes(&self) -> usize {
        HEAD_BYTES + self.pages as usize * ENTRY_BYTES
    }

    /// Size of the whole piece in bytes.
    pub(super) fn piece_bytes(&self) -> u64 {
        self.front_bytes() as u64 + u64::from(self.pages) * PAGE
    }
}

/// Whether head and entries are intact and belong at `offset` of the pool's file.
pub(super) fn is_intact(uuid: &[u8; 16], offset: u64, front: &[u8]) -> bool {
    front.len() >= HEAD_BYTES && u32_at(front, 4) == piece_crc(uuid, offset, front)
}

fn piece_crc(uuid: &[u8; 16], offset: u64, front: &[u8]) -> u32 {
    let place = crc32c::crc32c_append(crc32c::crc32c(uuid), &offset.to_le_bytes());
    let magic = crc32c::crc32c_append(place, front.get(..4).unwrap_or_default());
    crc32c::crc32c_append(magic, front.get(8..).unwrap_or_default())
}

pub(super) fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    let field = bytes.get(offset..).and_then(|rest| rest.first_chunk());
    u32::from_le_bytes(field.copied().unwrap_or_default())
}

pub(super) fn u64_at(bytes: &[u8], offset: usize) -> u64 {
    let field = bytes.get(offset..).and_then(|rest| rest.first_chunk());
    u64::from_le_bytes(field.copied().unwrap_or_default())
}
