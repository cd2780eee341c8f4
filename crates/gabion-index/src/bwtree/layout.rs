//! The layout of a P-BwTree on its medium.
//!
//! All numbers are little-endian, all offsets count bytes from the start of the pool or, where that
//! is said, of the page. The root is that of `root.rs`, with the magic `GbBwtrW1` for keys that are
//! words and `GbBwtrS1` for strings; behind it lies the cell of the topmost page.
//!
//! **Cell**, aligned to 16: the word of a page, see below, and a word that is not used.
//!
//! **Page**, aligned to 64, what is called the base of a page in the paper:
//!
//! | offset | bytes | meaning |
//! |---|---|---|
//! | 0 | 8 | state: level, lines for deltas, kind of keys, entries, see below |
//! | 8 | 8 | cell of the right neighbour, 0 if there is none |
//! | 16 | 8 | low: the least key that may be here, its word, see `stored_key.rs` |
//! | 24 | 8 | its place, see below |
//! | 32 | 8 | bound: the low of the right neighbour, its word |
//! | 40 | 8 | its place |
//! | 48 | 8 | where the lines for deltas begin in the page |
//! | 56 | 8 | bytes of the page with these lines |
//! | 64 | 8 n | words of the keys, rising |
//! | 64 + 8 n | 8 n | values, or cells of the pages below |
//! | 64 + 16 n | 8 n | places of the keys, if they are strings |
//! | | | bytes of keys behind their words |
//! | multiple of 64 | 64 d | d lines for deltas |
//!
//! The lines for deltas begin where the head says. Pages whose keys are words have them behind the
//! place of the most entries that there can be.
//!
//! Bits 0 to 7 of the **state** of a page are its level, from 0; 8 to 15 the number d of its lines
//! for deltas; bit 16 is set if keys are strings; bits 32 to 63 are the number n of its entries.
//!
//! A **place** says where the bytes of a string behind its word begin in the page, in bits 0 to 31,
//! and in the others how many bytes the string has. It is 0 where keys are words.
//!
//! **Delta**, one line or more:
//!
//! | offset | bytes | meaning |
//! |---|---|---|
//! | 0 | 8 | state: the delta below, depth, whether it deletes, bytes of the key, see below |
//! | 8 | 8 | the word of the key |
//! | 16 | 8 | value, or cell of a page below |
//! | 24 | | bytes of the key behind its word |
//!
//! Bits 0 to 7 of the **state** of a delta are the line of the delta below, from 1, or 0; 8 to 15
//! how many deltas there are up to this one; bit 16 is set if it deletes; bits 32 to 63 are the
//! bytes of the key if it is a string.
//!
//! **Word** of a page:
//!
//! | bits | meaning |
//! |---|---|
//! | 0 | the page is frozen |
//! | 1 | the page is given up |
//! | 6 to 47 | offset of the page, 0 for an empty leaf that was never written to |
//! | 48 to 55 | line of the topmost delta, from 1; 0 if there is none |
//! | 56 to 63 | lines that are taken |

use std::mem::offset_of;

use gabion_media::media_struct;
use gabion_media::pmem::PAtomicU64;

/// Bytes of a line.
pub(super) const LINE_BYTES: u64 = 64;

/// Bytes of a page before its entries.
pub(super) const HEAD_BYTES: u64 = 64;

/// Bytes of a delta before those of its key.
pub(super) const DELTA_BYTES: u64 = 24;

/// Bytes of a cell, and its alignment.
pub(super) const CELL_BYTES: u64 = 16;

/// Bytes of a key, at most: a delta with it fits into the lines of a page.
pub(super) const KEY_BYTES_MAX: u64 = 8192;

/// Bytes of keys behind their words in a page that is not split, unless it has but few entries.
pub(super) const RESTS_MAX: u64 = 1024;

/// Lines for deltas that a page has, unless the key that is to come needs more.
pub(super) const LINES_MAX: u64 = 64;

/// Hints of blocks: a page.
pub(super) const HINT_PAGE: u64 = 1;
/// A cell.
pub(super) const HINT_CELL: u64 = 2;

/// Bit of the state of a page: keys are strings.
pub(super) const OF_STRINGS: u64 = 1 << 16;
/// Bit of the state of a delta: it deletes.
pub(super) const DELETES: u64 = 1 << 16;

media_struct! {
    /// What a page has before its entries.
    pub(super) struct PageHead {
        pub(super) state: PAtomicU64,
        pub(super) right: PAtomicU64,
        pub(super) low: PAtomicU64,
        pub(super) low_place: PAtomicU64,
        pub(super) bound: PAtomicU64,
        pub(super) bound_place: PAtomicU64,
        pub(super) deltas_at: PAtomicU64,
        pub(super) bytes: PAtomicU64,
    }

    /// What a delta has before the bytes of its key.
    pub(super) struct DeltaFace {
        pub(super) state: PAtomicU64,
        pub(super) word: PAtomicU64,
        pub(super) value: PAtomicU64,
    }
}

const _: () = {
    assert!(size_of::<PageHead>() as u64 == HEAD_BYTES);
    assert!(offset_of!(PageHead, right) == 8 && offset_of!(PageHead, low) == 16);
    assert!(offset_of!(PageHead, bound) == 32 && offset_of!(PageHead, deltas_at) == 48);
    assert!(offset_of!(PageHead, bytes) == 56);
    assert!(size_of::<DeltaFace>() as u64 == DELTA_BYTES);
    assert!(offset_of!(DeltaFace, word) == 8 && offset_of!(DeltaFace, value) == 16);
    assert!(DELTA_BYTES + KEY_BYTES_MAX <= PageWord::FIELD * LINE_BYTES);
};

/// The word of a page, as its cell holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PageWord(pub(super) u64);

impl PageWord {
    const FROZEN: u64 = 1;
    const DEAD: u64 = 2;
    const OFFSET: u64 = (1 << 48) - LINE_BYTES;
    const TOP_SHIFT: u32 = 48;
    const TAKEN_SHIFT: u32 = 56;
    /// The greatest number of a line.
    const FIELD: u64 = 0xff;

    /// The word of a page without deltas.
    pub(super) fn of_page(at: u64) -> PageWord {
        debug_assert!(at & !Self::OFFSET == 0, "pages are aligned");
        PageWord(at)
    }

    /// Offset of the page, or 0.
    #[inline]
    pub(super) fn base(self) -> u64 {
        self.0 & Self::OFFSET
    }

    /// Line of the topmost delta, or 0.
    #[inline]
    pub(super) fn top(self) -> u64 {
        self.0 >> Self::TOP_SHIFT & Self::FIELD
    }

    /// Lines that are taken.
    #[inline]
    pub(super) fn taken(self) -> u64 {
        self.0 >> Self::TAKEN_SHIFT
    }

    /// Whether the content stays as it is until the page is replaced, given up, or thawed.
    #[inline]
    pub(super) fn is_frozen(self) -> bool {
        self.0 & Self::FROZEN != 0
    }

    /// Whether nothing leads to the page any more.
    #[inline]
    pub(super) fn is_dead(self) -> bool {
        self.0 & Self::DEAD != 0
    }

    /// The same page, frozen.
    pub(super) fn frozen(self) -> PageWord {
        PageWord(self.0 | Self::FROZEN)
    }

    /// The same page, not frozen.
    pub(super) fn thawed(self) -> PageWord {
        PageWord(self.0 & !Self::FROZEN)
    }

    /// The same page, given up.
    pub(super) fn dead(self) -> PageWord {
        PageWord(self.0 | Self::FROZEN | Self::DEAD)
    }

    /// The same page with so many more lines taken.
    pub(super) fn take(self, lines: u64) -> PageWord {
        debug_assert!(self.taken() + lines <= Self::FIELD, "lines of a page");
        PageWord(self.0 + (lines << Self::TAKEN_SHIFT))
    }

    /// The same page with another topmost delta.
    pub(super) fn with_top(self, line: u64) -> PageWord {
        PageWord(self.0 & !(Self::FIELD << Self::TOP_SHIFT) | line << Self::TOP_SHIFT)
    }
}
