//! The layout on the medium.
//!
//! **State**, behind the root
//!
//! | offset | bytes | meaning |
//! |---|---|---|
//! | 0 | 8 | how far the last level was moved: its bits from bit 48 on, then a number of buckets |
//! | 8 | 56 | 0 |
//! | 64 | 320 | for each number of bits the offset of the level with 2^bits buckets, or 0 |
//!
//! A **level** is an array of **buckets**, lines of eight slots. The word of a slot:
//!
//! | bits | meaning |
//! |---|---|
//! | 0..48 | offset of the item; 0 if there is none |
//! | 48..50 | 0 an entry, 1 announced, 2 leaving, 3 closed |
//! | 50..64 | tag of the key: 14 bits of its hash |
//!
//! A slot that was never used is 0, and so is one whose entry was deleted. A closed one has neither
//! item nor tag.
//!
//! **Item**
//!
//! | offset | bytes | meaning |
//! |---|---|---|
//! | 0 | 8 | the key if that is a word, else the number of its bytes |
//! | 8 | 8 | value |
//! | 16 | | the bytes of the key |

use gabion_media::media_struct;
use gabion_media::pmem::PAtomicU64;

/// Words for levels by their bits. None has 0 bits, or more than `places::BITS_MAX`.
pub(super) const LEVELS: usize = 40;

/// Slots of a bucket.
pub(super) const SLOTS: usize = 8;

/// Bytes of a bucket, and its alignment.
pub(super) const BUCKET_BYTES: u64 = 64;

/// Bytes of an item before the bytes of its key.
pub(super) const ITEM_BYTES: u64 = 16;

media_struct! {
    /// What changes behind the root.
    pub(super) struct TableState {
        pub(super) moved: PAtomicU64,
        unused: [PAtomicU64; 7],
        pub(super) levels: [PAtomicU64; LEVELS],
    }

    /// A bucket.
    pub(super) struct Bucket {
        pub(super) slots: [PAtomicU64; SLOTS],
    }

    /// The beginning of an item.
    pub(super) struct ItemHead {
        pub(super) key: PAtomicU64,
        pub(super) value: PAtomicU64,
    }
}

const _: () = {
    use std::mem::offset_of;
    assert!(offset_of!(TableState, moved) == 0);
    assert!(offset_of!(TableState, levels) == 64);
    assert!(size_of::<TableState>() == 384);
    assert!(size_of::<Bucket>() as u64 == BUCKET_BYTES);
    assert!(size_of::<ItemHead>() as u64 == ITEM_BYTES);
    assert!(offset_of!(ItemHead, value) == 8);
};

/// The word of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SlotWord(pub(super) u64);

const STATE_SHIFT: u32 = 48;
const TAG_SHIFT: u32 = 50;
const OFFSET: u64 = (1 << STATE_SHIFT) - 1;
const STATE: u64 = 3 << STATE_SHIFT;
const ANNOUNCED: u64 = 1 << STATE_SHIFT;
const LEAVING: u64 = 2 << STATE_SHIFT;

impl SlotWord {
    /// That of a slot which anybody may take.
    pub(super) const FREE: SlotWord = SlotWord(0);
    /// That of a slot which nobody may take any more.
    pub(super) const CLOSED: SlotWord = SlotWord(STATE);

    /// The tag of a hash, in its place: bits that choose no bucket as long as a level has less than
    /// 2^25 of them.
    #[inline]
    pub(super) fn tag_of(hash: u64) -> u64 {
        ((hash >> 32 & 0x7f) << 7 | hash & 0x7f) << TAG_SHIFT
    }

    /// That of an entry.
    #[inline]
    pub(super) fn entry(hash: u64, item: u64) -> SlotWord {
        SlotWord(SlotWord::tag_of(hash) | item)
    }

    /// That of an item which is to become an entry.
    #[inline]
    pub(super) fn announced(hash: u64, item: u64) -> SlotWord {
        SlotWord(SlotWord::tag_of(hash) | ANNOUNCED | item)
    }

    /// The same as an entry.
    pub(super) fn as_entry(self) -> SlotWord {
        SlotWord(self.0 & !STATE)
    }

    /// The same as an entry that is on its way to another level.
    pub(super) fn as_leaving(self) -> SlotWord {
        SlotWord(self.0 & !STATE | LEAVING)
    }

    /// The offset of the item, or 0.
    #[inline]
    pub(super) fn item(self) -> u64 {
        self.0 & OFFSET
    }

    /// Whether there is an item with this tag.
    #[inline]
    pub(super) fn has_tag(self, tag: u64) -> bool {
        (self.0 ^ tag) >> TAG_SHIFT == 0 && self.item() != 0
    }

    /// Whether there is an entry, leaving or not.
    #[inline]
    pub(super) fn is_entry(self) -> bool {
        self.0 & ANNOUNCED == 0 && self.item() != 0
    }

    /// Whether there is an item that is to become an entry.
    pub(super) fn is_announced(self) -> bool {
        self.0 & STATE == ANNOUNCED
    }

    /// Whether there is an entry on its way to another level.
    #[inline]
    pub(super) fn is_leaving(self) -> bool {
        self.0 & STATE == LEAVING
    }
}

/// The word that says how far the level with so many bits was moved.
pub(super) fn moved_word(bits: u32, buckets: u64) -> u64 {
    u64::from(bits) << STATE_SHIFT | buckets
}

/// Buckets of the level with so many bits that were moved, if the word is about that.
pub(super) fn moved_of(word: u64, bits: u32) -> u64 {
    if word >> STATE_SHIFT == u64::from(bits) {
        word & OFFSET
    } else {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::essay;

    #[test]
    fn the_table_tells_the_layout() {
        let rows = essay::table(include_str!("layout.rs"), "State");
        assert_eq!(rows, [(0, 8), (8, 56), (64, 8 * LEVELS as u64)]);
    }

    #[test]
    fn a_word_is_one_of_five_things() {
        let hash = 0x0123_4567_89ab_cdef;
        let tag = SlotWord::tag_of(hash);
        assert_eq!(tag >> TAG_SHIFT, 0x67 << 7 | 0x6f);
        let entry = SlotWord::entry(hash, 4096);
        let announced = SlotWord::announced(hash, 4096);
        let leaving = entry.as_leaving();
        for word in [entry, announced, leaving] {
            assert!(word.has_tag(tag) && !word.has_tag(tag ^ 1 << 63));
            assert_eq!((word.item(), word.as_entry()), (4096, entry));
        }
        let facts = |word: SlotWord| [word.is_entry(), word.is_announced(), word.is_leaving()];
        assert_eq!(facts(entry), [true, false, false]);
        assert_eq!(facts(announced), [false, true, false]);
        assert_eq!(facts(leaving), [true, false, true]);
        for word in [SlotWord::FREE, SlotWord::CLOSED] {
            assert_eq!(facts(word), [false; 3]);
            assert!(!word.has_tag(0) && !word.has_tag(tag));
        }
    }

    #[test]
    fn what_was_moved_is_of_one_level() {
        assert_eq!(moved_of(moved_word(5, 31), 5), 31);
        assert_eq!(moved_of(moved_word(5, 32), 6), 0);
        assert_eq!(moved_of(0, 1), 0);
    }
}
