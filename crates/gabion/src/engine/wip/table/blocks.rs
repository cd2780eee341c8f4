//! Blocks in memory: in the cache, or where the system keeps the file.
//!
//! # Idea
//! A table that is mapped needs no cache. A block is read by a call and checked when it is first
//! asked for since the table was opened, which lets a failing medium answer with an error and
//! brings the pages into memory; from then on it is read in place: no frame, no count of
//! references, no copy. What a reader must not do is trust the bytes further than "these are
//! bytes" (see [`super::block`], I1): the system may have dropped a page and read it again.
//!
//! # Invariants
//! - I1: a bit of [`MappedBlocks`] is set only after the checks of the block were passed. It is
//!   never cleared, because a table never changes. Where blocks are checked always, there are no
//!   bits.
#![deny(clippy::indexing_slicing, clippy::unwrap_used)]

use std::ops::{Deref, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use gabion_media::FileMap;

use crate::slice::Slice;

/// A mapped table, and which of its blocks were checked.
#[derive(Debug)]
pub(super) struct MappedBlocks {
    map: FileMap,
    checked: Box<[AtomicU64]>,
}

impl MappedBlocks {
    /// A table of which so many blocks are checked once, and none was; others are checked always.
    pub(super) fn new(map: FileMap, blocks: usize) -> MappedBlocks {
        let words = blocks.div_ceil(64);
        MappedBlocks {
            map,
            checked: (0..words).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// Whether block `at` was checked.
    #[inline]
    pub(super) fn is_checked(&self, at: usize) -> bool {
        // ORDER: Relaxed; partner is `set_checked`. The bit speaks of bytes that never change.
        self.checked
            .get(at / 64)
            .is_some_and(|word| word.load(Ordering::Relaxed) >> (at % 64) & 1 != 0)
    }

    /// Says that block `at` passed its checks.
    pub(super) fn set_checked(&self, at: usize) {
        if let Some(word) = self.checked.get(at / 64) {
            // ORDER: Relaxed; partner is `is_checked`.
            word.fetch_or(1 << (at % 64), Ordering::Relaxed);
        }
    }

    /// The bytes at `place` of the file.
    #[inline]
    pub(super) fn bytes(&self, place: Range<u64>) -> &[u8] {
        self.map.bytes().get(within(&place)).unwrap_or_default()
    }

    /// Lets the system enter the pages of `place` of the file into the mapping.
    pub(super) fn enter(&self, place: Range<u64>) {
        self.map.enter_pages(within(&place));
    }

    /// The block at `place` of the file.
    pub(super) fn block(place: &Range<u64>) -> CursorBlock {
        CursorBlock::Mapped(within(place))
    }

    /// The bytes of a block.
    #[inline]
    fn part(&self, place: &Range<usize>) -> &[u8] {
        self.map.bytes().get(place.clone()).unwrap_or_default()
    }

    /// Bytes in memory, the mapped ones aside.
    pub(super) fn memory_bytes(&self) -> usize {
        size_of_val(&*self.checked)
    }
}

#[inline]
fn within(place: &Range<u64>) -> Range<usize> {
    let position = |offset: u64| usize::try_from(offset).unwrap_or(usize::MAX);
    position(place.start)..position(place.end)
}

/// A block for as long as its table is borrowed.
#[derive(Debug)]
pub(super) enum LentBlock<'t> {
    /// From the cache, or read just now.
    Shared(Arc<[u8]>),
    /// In place.
    Mapped(&'t [u8]),
}

impl LentBlock<'_> {
    /// A part of the block, to keep: shared with the cache, or copied out of the mapping, so that
    /// what users keep can neither fail nor hold on to a file.
    #[inline]
    pub(super) fn slice(&self, start: usize, len: usize) -> Slice {
        match self {
            LentBlock::Shared(buffer) => Slice::shared(buffer, start, len),
            LentBlock::Mapped(bytes) => copied(bytes, start, len),
        }
    }
}

impl Deref for LentBlock<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            LentBlock::Shared(buffer) => buffer,
            LentBlock::Mapped(bytes) => bytes,
        }
    }
}

/// A block for as long as somebody has its table: a cursor, which counts no reference to the
/// mapping.
#[derive(Debug, Default)]
pub(super) enum CursorBlock {
    /// None.
    #[default]
    Empty,
    /// From the cache, or read just now.
    Shared(Arc<[u8]>),
    /// In place, at these offsets of the file.
    Mapped(Range<usize>),
}

impl CursorBlock {
    /// The bytes; `mapped` are the blocks of the table.
    #[inline]
    pub(super) fn bytes<'b>(&'b self, mapped: Option<&'b MappedBlocks>) -> &'b [u8] {
        match (self, mapped) {
            (CursorBlock::Shared(buffer), _) => buffer,
            (CursorBlock::Mapped(place), Some(mapped)) => mapped.part(place),
            (CursorBlock::Mapped(_), None) | (CursorBlock::Empty, _) => &[],
        }
    }

    /// The block, held.
    pub(super) fn held(&self, mapped: Option<&MappedBlocks>) -> HeldBlock {
        match (self, mapped) {
            (CursorBlock::Shared(buffer), _) => HeldBlock::Shared(Arc::clone(buffer)),
            (CursorBlock::Mapped(place), Some(mapped)) => HeldBlock::Mapped {
                map: mapped.map.clone(),
                place: place.clone(),
            },
            (CursorBlock::Mapped(_), None) | (CursorBlock::Empty, _) => HeldBlock::Empty,
        }
    }

    /// A part of the block, to keep, as [`LentBlock::slice`] gives it.
    #[inline]
    pub(super) fn slice(&self, mapped: Option<&MappedBlocks>, start: usize, len: usize) -> Slice {
        match self {
            CursorBlock::Shared(buffer) => Slice::shared(buffer, start, len),
            CursorBlock::Mapped(_) | CursorBlock::Empty => copied(self.bytes(mapped), start, len),
        }
    }
}

/// A block that stays whatever becomes of its table.
#[derive(Debug, Default)]
pub(super) enum HeldBlock {
    /// None.
    #[default]
    Empty,
    /// From the cache, or read just now.
    Shared(Arc<[u8]>),
    /// In place.
    Mapped {
        /// The file.
        map: FileMap,
        /// Where in it the block lies.
        place: Range<usize>,
    },
}

impl Deref for HeldBlock {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            HeldBlock::Empty => &[],
            HeldBlock::Shared(buffer) => buffer,
            HeldBlock::Mapped { map, place } => map.bytes().get(place.clone()).unwrap_or_default(),
        }
    }
}

#[inline]
fn copied(bytes: &[u8], start: usize, len: usize) -> Slice {
    Slice::new(bytes.get(start..start + len).unwrap_or_default())
}
