//! The layout of an SCMKV on its medium.
//!
//! All numbers are little-endian, all offsets and addresses count bytes from the start of the pool.
//!
//! **Header**, 128 bytes at the pool's root (the paper's superblock and checkpoint):
//!
//! | offset | bytes | meaning |
//! |---|---|---|
//! | 0 | 8 | magic, `GbScmkv1` |
//! | 8 | 8 | bytes of a page, a power of two |
//! | 16 | 8 | seed of the hash function |
//! | 24 | 8 | number of descriptors in the page table |
//! | 32 | 8 | entries that the store was planned for |
//! | 40 | 8 | hash of the bytes before under the seed 0 |
//! | 48 | 16 | zero |
//! | 64 | 8 | the hash table: bits 0 to 47 offset, 48 to 55 logarithm of its size, 56 to 63 check |
//! | 72 | 8 | the table that it moves to, likewise; 0 if it moves to none |
//! | 80 | 8 | `GbClosed` if the page table tells ends and usage of all pages; else 0 |
//! | 88 | 40 | zero |
//!
//! The check of a place is bit 63 and, in bits 56 to 62, all groups of seven bits below, exclusive
//! or: a table's that is a bit wrong would lead to zeros, which are an empty store.
//!
//! **Descriptor** of a page, 32 bytes each behind the header (the paper's page information table):
//!
//! | offset | bytes | meaning |
//! |---|---|---|
//! | 0 | 8 | 0 if there is none; bits 0 to 47 offset of the page, 48 to 55 its state, 56 on check |
//! | 8 | 8 | generation: no two pages ever have the same one |
//! | 16 | 8 | bits 0 to 31 bytes in use from its start on, once the page is full; 32 to 62 check |
//! | 24 | 8 | bits 0 to 31 live bytes among them when it was written, 32 to 62 check, 63 at most |
//!
//! The check of a number of bytes is bit 62 and, below, bits of a hash of the number, of which of
//! the two it is, and of the generation: the next put would go over live records if the end were
//! wrong, and the page would be given back with all that lies in it if none seemed live. Bit 63
//! says that the number is a bound.
//!
//! States: 1 log that grows, 2 full log, 3 chains that grow, 4 full chains, 5 kept for cleaning.
//!
//! **Page**: a head of 64 bytes, then records or chains.
//!
//! | offset | bytes | meaning |
//! |---|---|---|
//! | 0 | 8 | magic, `GbScmPg1` |
//! | 8 | 8 | number of its descriptor |
//! | 16 | 8 | generation |
//! | 24 | 8 | hash of the bytes before under the seed 0 |
//! | 32 | 8 | bytes of the page that were made durable on purpose: damage before is no torn tail |
//! | 40 | 24 | zero |
//!
//! **Record**, a multiple of 32 bytes, aligned to 32: this, then key, value, zeros.
//!
//! | offset | bytes | meaning |
//! |---|---|---|
//! | 0 | 8 | address of the record that it replaces, or 0 |
//! | 8 | 8 | hash of the key |
//! | 16 | 4 | bytes of the key |
//! | 20 | 4 | bytes of the value |
//! | 24 | 4 | check of the value, bound to hash and address |
//! | 28 | 4 | check of the bytes before, bound to address and generation |
//!
//! **Chain**, a multiple of 64 bytes, aligned to 64: a word with the upper 48 bits of any hash of
//! its bucket and, in the low 16, its size in lines of 64 bytes; then entries. In a page of chains
//! the first zero word in the place of such a word is the end.
//!
//! **Bucket and entry**, 8 bytes. 0 is empty. Bit 63 clear: a record; bits 5 to 47 those of its
//! address, 48 to 62 the low bits of its key's hash. Bit 63 set, only in buckets: a chain; bits 5
//! to 47 those of its address, 48 to 62 its lines. Bits 0 to 4, which are zero in every address,
//! are a check: all groups of five bits above them, exclusive or. So a wrong bit is told, which
//! would else lead a lookup astray and lose keys in silence. All bits set: the bucket has moved to
//! the next table.

use std::mem::offset_of;

use gabion_media::media_struct;
use gabion_media::pmem::PAtomicU64;
use xxhash_rust::xxh3::xxh3_64;

/// `GbScmkv1`, as the first word of a header.
pub(super) const MAGIC: u64 = u64::from_le_bytes(*b"GbScmkv1");
/// What kind of structure the pool is told that it holds.
pub(super) const LAYOUT: u64 = MAGIC;
/// `GbClosed`: the store was closed.
pub(super) const CLOSED: u64 = u64::from_le_bytes(*b"GbClosed");
/// `GbScmPg1`, as the first word of a page.
pub(super) const PAGE_MAGIC: u64 = u64::from_le_bytes(*b"GbScmPg1");

/// Smallest and largest pages, in bytes.
pub(super) const PAGE_BYTES_MIN: u64 = 4096;
pub(super) const PAGE_BYTES_MAX: u64 = 1 << 30;

/// Bytes of a cache line.
pub(super) const LINE_BYTES: u64 = 64;
/// Bytes of a page's head.
pub(super) const PAGE_HEAD_BYTES: u64 = size_of::<PageHead>() as u64;
/// Bytes of a record's head, and the alignment of records.
pub(super) const RECORD_HEAD_BYTES: u64 = size_of::<RecordHead>() as u64;
/// Words of a line.
pub(super) const LINE_WORDS: u64 = 8;

/// Bit of a descriptor's live bytes: the number is an upper bound.
pub(super) const AT_MOST: u64 = 1 << 63;

const ADDRESS_BITS: u32 = 48;
const ADDRESS_MASK: u64 = (1 << ADDRESS_BITS) - 1;
const TAG_MASK: u64 = 0x7fff;
/// Bits of an entry that check the others.
const CHECK_MASK: u64 = RECORD_HEAD_BYTES - 1;
const CHECK_BITS: u32 = CHECK_MASK.count_ones();
const CHAIN_BIT: u64 = 1 << 63;
/// Where the check of a place begins.
const PLACE_CHECK_SHIFT: u32 = 56;
/// The bits of a number of bytes that are no check, and where the check begins.
const NOTED_MASK: u64 = AT_MOST | 0xffff_ffff;
const NOTED_CHECK_SHIFT: u32 = 32;

/// Most lines of a chain; all bits of the field would look like a bucket that has moved.
pub(super) const LINES_MAX: u64 = TAG_MASK - 1;

media_struct! {
    /// The header of a store.
    pub(super) struct Header {
        pub(super) magic: PAtomicU64,
        pub(super) page_bytes: PAtomicU64,
        pub(super) seed: PAtomicU64,
        pub(super) pages: PAtomicU64,
        pub(super) capacity: PAtomicU64,
        pub(super) check: PAtomicU64,
        pub(super) unused: [PAtomicU64; 2],
        pub(super) table: PAtomicU64,
        pub(super) next: PAtomicU64,
        pub(super) closed: PAtomicU64,
        pub(super) unused_too: [PAtomicU64; 5],
    }

    /// What the page table says of a page.
    pub(super) struct PageDescriptor {
        pub(super) place: PAtomicU64,
        pub(super) generation: PAtomicU64,
        pub(super) end: PAtomicU64,
        pub(super) live: PAtomicU64,
    }

    /// The head of a page.
    pub(super) struct PageHead {
        pub(super) magic: PAtomicU64,
        pub(super) number: PAtomicU64,
        pub(super) generation: PAtomicU64,
        pub(super) check: PAtomicU64,
        pub(super) mark: PAtomicU64,
        pub(super) unused: [PAtomicU64; 3],
    }

    /// The head of a record.
    pub(super) struct RecordHead {
        pub(super) old: PAtomicU64,
        pub(super) hash: PAtomicU64,
        /// Bytes of the key in the low half, of the value in the high one.
        pub(super) lengths: PAtomicU64,
        /// Check of the value in the low half, of the head in the high one.
        pub(super) checks: PAtomicU64,
    }
}

/// What a page is used for. The numbers are on media: never reuse one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum PageState {
    /// Not there.
    Free = 0,
    /// Records, and more will follow.
    LogOpen = 1,
    /// Records.
    LogFull = 2,
    /// Chains, and more will follow.
    ChainsOpen = 3,
    /// Chains.
    ChainsFull = 4,
    /// Nothing: a page that only the cleaner may use.
    Reserve = 5,
}

impl PageState {
    /// Decodes a number read from a medium; `None` for one that this version does not know.
    pub(super) fn from_u8(number: u8) -> Option<PageState> {
        [
            PageState::Free,
            PageState::LogOpen,
            PageState::LogFull,
            PageState::ChainsOpen,
            PageState::ChainsFull,
            PageState::Reserve,
        ]
        .into_iter()
        .find(|state| *state as u8 == number)
    }

    /// The state of a page of this kind that takes no more.
    pub(super) fn full(self) -> PageState {
        match self {
            PageState::LogOpen => PageState::LogFull,
            PageState::ChainsOpen => PageState::ChainsFull,
            other => other,
        }
    }

    /// Whether it holds records, full or not.
    pub(super) fn is_log(self) -> bool {
        matches!(self, PageState::LogOpen | PageState::LogFull)
    }

    /// Whether it is full of records or chains.
    pub(super) fn is_full(self) -> bool {
        matches!(self, PageState::LogFull | PageState::ChainsFull)
    }
}

/// Where a page is, and in which state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PagePlace(pub(super) u64);

/// A place of this offset and of what stands above it, with their check.
fn checked_place(offset: u64, above: u64) -> u64 {
    let place = offset | above << ADDRESS_BITS;
    place | check_of_place(place) << PLACE_CHECK_SHIFT
}

/// The check of what is below it in a place.
fn check_of_place(place: u64) -> u64 {
    let groups = (0..8).map(|group| place >> (7 * group) & 0x7f);
    0x80 | groups.fold(0, |check, group| check ^ group)
}

/// Whether it is 0, which is nowhere, or the check is that of the rest. What is not sound is
/// damaged.
fn is_sound_place(place: u64) -> bool {
    place == 0 || place >> PLACE_CHECK_SHIFT == check_of_place(place)
}

impl PagePlace {
    pub(super) fn new(offset: u64, state: PageState) -> PagePlace {
        PagePlace(checked_place(offset, u64::from(state as u8)))
    }

    pub(super) fn offset(self) -> u64 {
        self.0 & ADDRESS_MASK
    }

    /// The state; `None` if the place is damaged.
    pub(super) fn state(self) -> Option<PageState> {
        let number = u8::try_from(self.0 >> ADDRESS_BITS & 0xff).ok()?;
        let state = PageState::from_u8(number).filter(|_| is_sound_place(self.0))?;
        ((state == PageState::Free) == (self.0 == 0)).then_some(state)
    }
}

/// Which of the two numbers of bytes in a descriptor it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum NotedBytes {
    /// Bytes in use.
    End = 2,
    /// Live bytes, maybe [`AT_MOST`] so many.
    Live = 3,
}

impl NotedBytes {
    /// The word of a descriptor for a number of bytes of a page of this generation.
    pub(super) fn word(self, bytes: u64, generation: u64) -> u64 {
        let bytes = bytes & NOTED_MASK;
        bytes | self.check_of(bytes, generation) << NOTED_CHECK_SHIFT
    }

    /// The number in a word, if its check is right.
    pub(super) fn bytes_of(self, word: u64, generation: u64) -> Option<u64> {
        let bytes = word & NOTED_MASK;
        (word == self.word(bytes, generation)).then_some(bytes)
    }

    fn check_of(self, bytes: u64, generation: u64) -> u64 {
        let words = [bytes, u64::from(self as u8), generation];
        let bytes: Vec<u8> = words.into_iter().flat_map(u64::to_le_bytes).collect();
        1 << 30 | xxh3_64(&bytes) >> 34
    }
}

/// Where a hash table is, and how large.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TablePlace(pub(super) u64);

impl TablePlace {
    pub(super) const NONE: TablePlace = TablePlace(0);

    pub(super) fn new(offset: u64, log2: u32) -> TablePlace {
        TablePlace(checked_place(offset, u64::from(log2)))
    }

    /// As [`is_sound_place`].
    pub(super) fn is_sound(self) -> bool {
        is_sound_place(self.0)
    }

    pub(super) fn is_none(self) -> bool {
        self.0 == 0
    }

    #[inline]
    pub(super) fn offset(self) -> u64 {
        self.0 & ADDRESS_MASK
    }

    /// Binary logarithm of the number of buckets.
    #[inline]
    pub(super) fn log2(self) -> u32 {
        (self.0 >> ADDRESS_BITS & 0xff) as u32
    }

    pub(super) fn buckets(self) -> u64 {
        1 << self.log2()
    }

    pub(super) fn bytes(self) -> u64 {
        self.buckets() * 8
    }

    /// The offset of the bucket of a hash.
    #[inline]
    pub(super) fn bucket_of(self, hash: u64) -> u64 {
        self.offset() + (hash >> (64 - self.log2())) * 8
    }
}

/// A bucket of the table, or a word of a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry(pub(super) u64);

impl Entry {
    pub(super) const EMPTY: Entry = Entry(0);
    pub(super) const MOVED: Entry = Entry(u64::MAX);

    /// A record whose key has this hash.
    #[inline]
    pub(super) fn record(address: u64, hash: u64) -> Entry {
        Entry::checked(address | (hash & TAG_MASK) << ADDRESS_BITS)
    }

    /// The entry of these bits, with their check in place of the lowest ones.
    #[inline]
    fn checked(bits: u64) -> Entry {
        let bits = bits & !CHECK_MASK;
        Entry(bits | check_of(bits))
    }

    /// Whether the check is that of the other bits. What is not sound is damaged.
    #[inline]
    pub(super) fn is_sound(self) -> bool {
        self.0 & CHECK_MASK == check_of(self.0) || self.is_moved()
    }

    /// A chain of so many lines.
    pub(super) fn chain(address: u64, lines: u64) -> Entry {
        Entry::checked(CHAIN_BIT | lines << ADDRESS_BITS | address)
    }

    #[inline]
    pub(super) fn is_empty(self) -> bool {
        self.0 == 0
    }

    #[inline]
    pub(super) fn is_moved(self) -> bool {
        self == Entry::MOVED
    }

    #[inline]
    pub(super) fn is_chain(self) -> bool {
        self.0 & CHAIN_BIT != 0
    }

    #[inline]
    pub(super) fn address(self) -> u64 {
        self.0 & ADDRESS_MASK & !CHECK_MASK
    }

    /// Lines of the chain.
    #[inline]
    pub(super) fn lines(self) -> u64 {
        self.0 >> ADDRESS_BITS & TAG_MASK
    }

    /// Whether it may be the record of a key with this hash; not for a chain, nor an empty one.
    #[inline]
    pub(super) fn has_tag_of(self, hash: u64) -> bool {
        self.0 >> ADDRESS_BITS == hash & TAG_MASK && !self.is_empty()
    }

    /// The same entry for a record that was moved.
    pub(super) fn at(self, address: u64) -> Entry {
        Entry::checked(self.0 & !ADDRESS_MASK | address)
    }
}

/// The check of an entry's other bits.
#[inline]
fn check_of(bits: u64) -> u64 {
    let groups = bits >> CHECK_BITS;
    let half = groups ^ groups >> (6 * CHECK_BITS);
    let quarter = half ^ half >> (3 * CHECK_BITS);
    (quarter ^ quarter >> CHECK_BITS ^ quarter >> (2 * CHECK_BITS)) & CHECK_MASK
}

/// The first word of a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ChainHead(pub(super) u64);

impl ChainHead {
    pub(super) fn new(hash: u64, lines: u64) -> ChainHead {
        ChainHead(hash & !0xffff | lines)
    }

    /// A hash that leads to the chain's bucket.
    pub(super) fn hash(self) -> u64 {
        self.0 & !0xffff
    }

    pub(super) fn lines(self) -> u64 {
        self.0 & 0xffff
    }

    pub(super) fn bytes(self) -> u64 {
        self.lines() * LINE_BYTES
    }
}

/// Bytes of a record.
#[inline]
pub(super) fn record_bytes(key_bytes: u64, value_bytes: u64) -> u64 {
    (RECORD_HEAD_BYTES + key_bytes + value_bytes).next_multiple_of(RECORD_HEAD_BYTES)
}

const _: () = {
    assert!(size_of::<Header>() == 128 && offset_of!(Header, table) == 64);
    assert!(size_of::<PageDescriptor>() == 32 && offset_of!(PageDescriptor, live) == 24);
    assert!(size_of::<PageHead>() == 64 && offset_of!(PageHead, mark) == 32);
    // A head never straddles two lines.
    assert!(size_of::<RecordHead>() == 32 && offset_of!(RecordHead, checks) == 24);
    assert!(LINE_BYTES.is_multiple_of(RECORD_HEAD_BYTES));
    assert!(size_of::<PagePlace>() == 8 && size_of::<TablePlace>() == 8);
    assert!(size_of::<Entry>() == 8 && size_of::<ChainHead>() == 8);
    assert!(LINES_MAX <= 0xffff);
};

#[cfg(test)]
mod tests {
    use super::*;

    fn table(name: &str) -> Vec<(u64, u64)> {
        crate::suite::essay::table(include_str!("layout.rs"), name)
    }

    #[test]
    fn the_tables_say_what_the_types_are() {
        let sizes = [
            ("Header", size_of::<Header>()),
            ("Descriptor", size_of::<PageDescriptor>()),
            ("Page", size_of::<PageHead>()),
            ("Record", size_of::<RecordHead>()),
        ];
        for (name, bytes) in sizes {
            let mut end = 0;
            for (offset, size) in table(name) {
                assert_eq!(offset, end, "{name}");
                end = offset + size;
            }
            assert_eq!(end, bytes as u64, "{name}");
        }
        let offsets = |name| -> Vec<u64> { table(name).into_iter().map(|(at, _)| at).collect() };
        let header = [
            offset_of!(Header, magic),
            offset_of!(Header, page_bytes),
            offset_of!(Header, seed),
            offset_of!(Header, pages),
            offset_of!(Header, capacity),
            offset_of!(Header, check),
            offset_of!(Header, unused),
            offset_of!(Header, table),
            offset_of!(Header, next),
            offset_of!(Header, closed),
            offset_of!(Header, unused_too),
        ];
        assert_eq!(offsets("Header"), header.map(|at| at as u64));
        let record = [
            offset_of!(RecordHead, old),
            offset_of!(RecordHead, hash),
            offset_of!(RecordHead, lengths),
            offset_of!(RecordHead, lengths) + 4,
            offset_of!(RecordHead, checks),
            offset_of!(RecordHead, checks) + 4,
        ];
        assert_eq!(offsets("Record"), record.map(|at| at as u64));
    }

    #[test]
    fn words_give_back_what_they_were_made_of() {
        let far = ADDRESS_MASK & !63;
        let entry = Entry::record(far, u64::MAX);
        assert!(!entry.is_chain() && !entry.is_empty() && !entry.is_moved());
        assert!(entry.has_tag_of(0x7fff) && !entry.has_tag_of(0x7ffe));
        assert_eq!((entry.address(), entry.at(64).address()), (far, 64));
        assert!(entry.at(64).has_tag_of(0x7fff));
        let chain = Entry::chain(far, LINES_MAX);
        assert!(chain.is_chain() && !chain.is_moved() && !chain.has_tag_of(LINES_MAX));
        assert_eq!((chain.address(), chain.lines()), (far, LINES_MAX));
        assert!(!Entry::EMPTY.has_tag_of(0));
        for sound in [entry, entry.at(64), chain, Entry::EMPTY, Entry::MOVED] {
            assert!(sound.is_sound());
            assert!((0..64).all(|bit| !Entry(sound.0 ^ 1 << bit).is_sound()));
        }
        let head = ChainHead::new(0xabcd_ef01_2345_6789, 3);
        assert_eq!(
            (head.hash(), head.lines(), head.bytes()),
            (0xabcd_ef01_2345_0000, 3, 192)
        );
        let place = PagePlace::new(far, PageState::Reserve);
        assert_eq!(
            (place.offset(), place.state()),
            (far, Some(PageState::Reserve))
        );
        assert_eq!(PagePlace(0).state(), Some(PageState::Free));
        assert_eq!(PagePlace(64).state(), None);
        assert_eq!(PagePlace(checked_place(64, 6)).state(), None);
        assert_eq!(PagePlace(1 << 48 | 64).state(), None);
        assert!((0..64).all(|bit| PagePlace(place.0 ^ 1 << bit).state().is_none()));
        for bytes in [0, 64, PAGE_BYTES_MAX, AT_MOST, AT_MOST | PAGE_BYTES_MAX] {
            let word = NotedBytes::Live.word(bytes, 7);
            assert_eq!(NotedBytes::Live.bytes_of(word, 7), Some(bytes));
            assert_eq!(NotedBytes::Live.bytes_of(bytes, 7), None);
            assert_eq!(NotedBytes::Live.bytes_of(word, 8), None);
            assert_eq!(NotedBytes::End.bytes_of(word, 7), None);
            let is_told = |bit: u32| NotedBytes::Live.bytes_of(word ^ 1_u64 << bit, 7).is_none();
            assert!((0..64).all(is_told), "{bytes}");
        }
        let table = TablePlace::new(4096, 10);
        assert_eq!(
            (table.offset(), table.buckets(), table.bytes()),
            (4096, 1024, 8192)
        );
        assert_eq!(table.bucket_of(u64::MAX), 4096 + 1023 * 8);
        assert!(!TablePlace(4096 | 10 << 48).is_sound());
        for place in [table, TablePlace::new(far, 40)] {
            assert!(place.is_sound());
            assert!((0..64).all(|bit| !TablePlace(place.0 ^ 1 << bit).is_sound()));
        }
    }

    #[test]
    fn records_are_whole_heads_long() {
        assert_eq!(record_bytes(0, 0), 32);
        assert_eq!(record_bytes(1, 0), 64);
        assert_eq!(record_bytes(16, 100), 160);
    }
}
