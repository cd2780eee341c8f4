//! The hash table of a MemTable: a directory of lines, each a small log of eight slots.
//!
//! # Idea (paper, section 2.3.3)
//! A line is one cache line of eight slots; a slot is a 16-bit tag of the key's hash and the 48-bit
//! address of a record. A lookup reads one line, from its end backwards, and then, but for one tag
//! in 65,536 that agrees by chance, only the record it wants. A new key is appended to its line.
//!
//! # Layout
//! | word | bits | meaning |
//! |---|---|---|
//! | slot | 0 | free |
//! | slot | 48..64, 0..48 | tag, address of the newest record of a key (a multiple of eight) |
//! | slot 0 | 0..48, lowest bit set | a link: address + 1 of an overflow line in the arena |
//! | head | 48..64 | number of lines, as an 11-bit factor and a 5-bit shift |
//! | head | 0..48 | address of the first line |
//!
//! The head's word holds the number of lines too, so that a lookup costs no visit of a header.
//! Line of a hash: the lower 32 bits times the number of lines, shifted down by 32. When the number
//! is multiplied by four, line `i` becomes the lines `4 i .. 4 i + 4`, so growing walks both
//! directories from one end to the other.
//!
//! # Invariants
//! - D1: there is one writer at a time, the holder of [`WriterSide::writer`]'s lock. Readers take
//!   no lock and never wait.
//! - D2: in a line of the directory the slots in use come before the free ones; an overflow line is
//!   full, and so is every line in front of a link when it is made.
//! - D3: a key has one slot, in its line or in an overflow line behind it, but for the moment of a
//!   spill. A new version replaces the slot's address and links to the version before, which it
//!   marks, so a key that is updated for ever takes one slot, a reader of an old snapshot follows
//!   the links, and who wants the newest versions alone sees at a record whether it is one.
//! - D4: a reader that looks for a key that was inserted before it began finds it, whatever the
//!   writer does meanwhile:
//!   - append and replace store one word;
//!   - a spill copies the eight slots to an overflow line, makes slot 0 the link to it, then frees
//!     slots 1 to 7, then appends the new key at slot 1. A reader looks at slot 0 last. While it
//!     reads old words it sees the keys themselves; once it has read a slot that was freed or used
//!     again, it will read the link in slot 0, and behind the link are all eight;
//!   - growing fills a new directory that nobody sees and then stores the head. A reader that has
//!     the old head reads lines that are not written any more; what it cannot find there was
//!     inserted after it began. Old directories are freed with the arena.
//! - D5: records and overflow lines are written before the word that leads to them is stored, with
//!   Release; readers load words with Acquire.
//!
//! # Linearization point
//! The store of the slot's word. An insert that grows the directory does so first.
//!
//! # Deviations from the paper
//! The paper freezes the table when one line overflows. Here a line spills, and the table is frozen
//! by the bytes it uses, so neither hot keys nor unlucky hashes make tables small.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};

use parking_lot::{Mutex, MutexGuard};

use super::arena::{
    Arena, ArenaListing, ArenaMark, ArenaRecord, ArenaWriter, BLOCK_ALIGN, ChunkPool, HeapBlock,
    NewRecord,
};
use super::gaps::TombstoneGaps;
use super::key_tree::{KeyTree, OrderCursor};
use super::line_count::{COUNT_BITS, LineCount};
use super::totals::MemTableTotals;
use crate::types::{Kind, Seq};
use gabion_media::prefetch_line;

/// Slots of a line.
const SLOTS: usize = 8;

/// Lines of the first directory, when nothing is known about the number of keys.
const LINES_MIN: usize = 16;

/// Keys per line that the first directory is made for: with 4 on average, 2 % of the lines spill.
const KEYS_PER_LINE_AT_START: usize = 4;

/// The directory grows when it has more than this number of tenths of a key per line. With 4.8 on
/// average, 6 % of the lines have spilt.
const KEYS_PER_TEN_LINES_MAX: usize = 48;

/// Lines that growing looks ahead, so that the records of a line are near when it is moved.
const GROWTH_PREFETCH_LINES: usize = 4;

const TAG_SHIFT: u32 = 48;
const ADDRESS_MASK: usize = (1 << TAG_SHIFT) - 1;

/// Set in slot 0 when it is a link.
const LINK: usize = 1;

const _: () = assert!(size_of::<Line>() == 64 && align_of::<Line>() == 64);
const _: () = assert!(BLOCK_ALIGN == size_of::<Line>());
const _: () = assert!(COUNT_BITS + TAG_SHIFT == usize::BITS);

/// One cache line of the directory.
#[repr(C, align(64))]
struct Line {
    slots: [AtomicPtr<u8>; SLOTS],
}

/// The place of a key's hash: its tag, and the bits that choose the line.
#[derive(Clone, Copy)]
struct Place {
    tag: usize,
    bits: u32,
}

impl Place {
    #[inline]
    fn of(hash: u64) -> Place {
        #[expect(clippy::cast_possible_truncation, reason = "the lower half is wanted")]
        let (tag, bits) = ((hash >> TAG_SHIFT) as usize, hash as u32);
        Place { tag, bits }
    }
}

#[inline]
fn tag_of(slot: *mut u8) -> usize {
    slot.addr() >> TAG_SHIFT
}

#[inline]
fn untagged(slot: *mut u8) -> *mut u8 {
    slot.map_addr(|address| address & ADDRESS_MASK)
}

#[inline]
fn tagged(record: *mut u8, tag: usize) -> *mut u8 {
    record.map_addr(|address| address | tag << TAG_SHIFT)
}

#[inline]
fn is_link(slot: *mut u8) -> bool {
    slot.addr() & LINK != 0
}

/// A directory as its head describes it.
#[derive(Clone, Copy)]
struct Lines<'a> {
    first: NonNull<Line>,
    count: LineCount,
    arena: std::marker::PhantomData<&'a Arena>,
}

impl<'a> Lines<'a> {
    #[inline]
    fn position(&self, bits: u32) -> usize {
        (bits as usize * self.count.get()) >> u32::BITS
    }

    #[inline]
    fn at(&self, position: usize) -> &'a Line {
        debug_assert!(position < self.count.get());
        // SAFETY: the callers' positions are below the number of lines.
        let line = unsafe { self.first.add(position) };
        // SAFETY: the directory is initialised, has that line and lives as long as the arena.
        unsafe { line.as_ref() }
    }

    #[inline]
    fn of(&self, place: Place) -> &'a Line {
        self.at(self.position(place.bits))
    }
}

/// What inserts write, apart from what lookups read.
#[repr(align(64))]
struct WriterSide {
    writer: Mutex<DirectoryWriter>,
    totals: MemTableTotals,
}

pub(super) struct DirectoryWriter {
    pub(super) arena: ArenaWriter,
    keys: usize,
    /// The directory grows before it takes more keys than this.
    keys_max: usize,
    /// Keys that the first directory is made for.
    keys_expected: usize,
    /// Whether all keys are in the order.
    keeps_order: bool,
    /// Whether the gaps are told of puts.
    tells_gaps: bool,
}

/// What the writer finds when it looks for a key.
enum Found<'a> {
    /// The key's slot and its newest version.
    Key(&'a AtomicPtr<u8>, ArenaRecord<'a>),
    /// No such key; the first free slot of its line, [`SLOTS`] when there is none.
    Free(usize),
}

/// The right to insert, which one thread has at a time (D1).
pub(crate) struct InsertGuard<'d> {
    directory: &'d HashDirectory,
    writer: MutexGuard<'d, DirectoryWriter>,
}

impl InsertGuard<'_> {
    /// As [`MemTable::insert`](super::MemTable::insert).
    #[inline]
    pub(crate) fn insert(
        &mut self,
        key: &[u8],
        hash: u64,
        seq: Seq,
        kind: Kind,
        value: &[u8],
    ) -> bool {
        let InsertGuard { directory, writer } = self;
        directory.insert_locked(writer, (key, value), hash, seq, kind)
    }
}

/// The hash table and all that it holds.
pub(super) struct HashDirectory {
    /// The current directory; null before the first insert.
    head: AtomicPtr<u8>,
    /// All keys in order, or none.
    order: KeyTree,
    /// Ranges in which readers find nothing.
    pub(super) gaps: TombstoneGaps,
    arena: Arc<Arena>,
    side: WriterSide,
}

impl HashDirectory {
    /// An empty table that takes `keys_expected` keys without growing. It holds no memory yet. All
    /// keys share their first `common` bytes; whether they are kept in order from the start is
    /// `keeps_order`.
    pub(super) fn new(
        pool: &Arc<ChunkPool>,
        keys_expected: usize,
        common: usize,
        keeps_order: bool,
    ) -> HashDirectory {
        let (arena, writer) = ArenaWriter::new(pool);
        let writer = DirectoryWriter {
            arena: writer,
            keys: 0,
            keys_max: 0,
            keys_expected,
            keeps_order,
            tells_gaps: false,
        };
        HashDirectory {
            head: AtomicPtr::new(std::ptr::null_mut()),
            order: KeyTree::new(common),
            gaps: TombstoneGaps::default(),
            arena,
            side: WriterSide {
                writer: Mutex::new(writer),
                totals: MemTableTotals::default(),
            },
        }
    }

    #[inline]
    fn lines(&self) -> Option<Lines<'_>> {
        // ORDER: Acquire pairs with the Release in `grow`: the lines' content is there.
        let head = self.head.load(Ordering::Acquire);
        Some(Lines {
            first: NonNull::new(untagged(head))?.cast(),
            count: LineCount::from_bits(tag_of(head)),
            arena: std::marker::PhantomData,
        })
    }

    /// Asks for the cache lines that an insert or a lookup of `hash` begins with.
    #[inline]
    pub(super) fn prefetch(&self, hash: u64) {
        prefetch_line((&raw const self.side).cast());
        if let Some(lines) = self.lines() {
            prefetch_line((&raw const *lines.of(Place::of(hash))).cast());
        }
    }

    /// The newest version of `key`, if there is one, whatever its sequence number.
    #[inline]
    pub(super) fn newest(&self, key: &[u8], hash: u64) -> Option<ArenaRecord<'_>> {
        let place = Place::of(hash);
        let mut line = self.lines()?.of(place);
        loop {
            for slot in line.slots[1..].iter().rev() {
                // ORDER: Acquire pairs with the Release stores of the slot in `append`, `replace`
                // and `spill`: the record is there, and from a freed or reused slot on the link is.
                let slot = slot.load(Ordering::Acquire);
                if tag_of(slot) == place.tag
                    && let Some(record) = self.record_with_key(slot, key)
                {
                    return Some(record);
                }
            }
            // ORDER: Acquire as above; behind a link, the overflow line is there.
            let last = line.slots[0].load(Ordering::Acquire);
            if is_link(last) {
                line = self.linked(last);
            } else if tag_of(last) == place.tag {
                return self.record_with_key(last, key);
            } else {
                return None;
            }
        }
    }

    /// The record that a slot leads to, if it has that key. The slot is no link.
    #[inline]
    fn record_with_key(&self, slot: *mut u8, key: &[u8]) -> Option<ArenaRecord<'_>> {
        let record = self.record(slot)?;
        (record.key() == key).then_some(record)
    }

    /// The record that a slot leads to; `None` when it is free. The slot is no link.
    #[inline]
    pub(super) fn record(&self, slot: *mut u8) -> Option<ArenaRecord<'_>> {
        // SAFETY: a slot that is neither free nor a link leads to a record of this arena, which
        // was written before the slot was stored (D5); whoever loaded it did so with Acquire or is
        // the writer.
        NonNull::new(untagged(slot)).map(|at| unsafe { ArenaRecord::from_raw(at) })
    }

    /// The overflow line that a link leads to.
    #[inline]
    fn linked(&self, link: *mut u8) -> &Line {
        #[expect(clippy::cast_ptr_alignment, reason = "links lead to lines")]
        let line = link.map_addr(|address| address & !LINK).cast::<Line>();
        // SAFETY: a link leads to an initialised line in this arena, which was written before the
        // link was stored (D5).
        unsafe { &*line }
    }

    /// Inserts a version of a key. False, and nothing done, if the table has one of the same or a
    /// higher sequence number, unless that is a merge which needs it.
    #[inline]
    pub(super) fn insert(&self, key: &[u8], hash: u64, seq: Seq, kind: Kind, value: &[u8]) -> bool {
        self.inserts().insert(key, hash, seq, kind, value)
    }

    /// Keeps other writers out for several inserts.
    #[inline]
    pub(super) fn inserts(&self) -> InsertGuard<'_> {
        InsertGuard {
            directory: self,
            writer: self.side.writer.lock(),
        }
    }

    fn insert_locked(
        &self,
        writer: &mut DirectoryWriter,
        (key, value): (&[u8], &[u8]),
        hash: u64,
        seq: Seq,
        kind: Kind,
    ) -> bool {
        if writer.tells_gaps && !kind.is_tombstone() {
            self.gaps.put(seq, key);
        }
        if writer.keys >= writer.keys_max {
            self.grow(writer);
        }
        let place = Place::of(hash);
        let line = self.lines().expect("growing makes a directory").of(place);
        let new = NewRecord {
            key,
            value,
            seq,
            kind,
            hash_bits: place.bits,
            older: None,
        };
        let at = match self.find_for_insert(line, place.tag, key) {
            Found::Key(slot, newest) if newest.seq() >= seq => {
                let Some(at) = self.insert_below(writer, newest, new) else {
                    return false;
                };
                // ORDER: as below.
                slot.store(tagged(at.as_ptr(), place.tag), Ordering::Release);
                at
            }
            Found::Key(slot, newest) => {
                let at = writer.arena.push(&NewRecord {
                    older: Some(newest),
                    ..new
                });
                // ORDER: Release pairs with the Acquire in `newest`: the record is there.
                slot.store(tagged(at.as_ptr(), place.tag), Ordering::Release);
                newest.supersede();
                at
            }
            Found::Free(slot) => {
                let at = writer.arena.push(&new);
                append(
                    &mut writer.arena,
                    line,
                    slot,
                    tagged(at.as_ptr(), place.tag),
                );
                writer.keys += 1;
                at
            }
        };
        if writer.keeps_order
            && let Some(record) = self.record(at.as_ptr())
        {
            self.order.insert(&mut writer.arena, record);
        }
        let counts = (writer.arena.records(), writer.keys);
        let bytes = key.len() + value.len();
        self.side.totals.add(counts, bytes, seq, kind);
        true
    }

    /// Looks for a key in its line and what is behind it. For the writer.
    #[inline]
    fn find_for_insert<'a>(&'a self, first: &'a Line, tag: usize, key: &[u8]) -> Found<'a> {
        let mut free = SLOTS;
        let mut line = first;
        loop {
            let mut link = None;
            for (position, slot) in line.slots.iter().enumerate() {
                // ORDER: Relaxed; the only stores are the writer's own (D1).
                let word = slot.load(Ordering::Relaxed);
                if word.is_null() {
                    free = position;
                    break;
                }
                if is_link(word) {
                    link = Some(word);
                } else if tag_of(word) == tag
                    && let Some(record) = self.record_with_key(word, key)
                {
                    return Found::Key(slot, record);
                }
            }
            match link {
                Some(link) => line = self.linked(link),
                None => return Found::Free(free),
            }
        }
    }

    /// Makes the first directory or replaces the current one by a larger one.
    #[cold]
    fn grow(&self, writer: &mut DirectoryWriter) {
        let old = self.lines();
        let count = match &old {
            None => {
                let lines = writer
                    .keys_expected
                    .div_ceil(KEYS_PER_LINE_AT_START)
                    .max(LINES_MIN);
                LineCount::at_least(lines.min(u32::MAX as usize / 2))
            }
            Some(old) => match old.count.grown() {
                Some(count) => count,
                None => {
                    writer.keys_max = usize::MAX;
                    return;
                }
            },
        };
        let first = self
            .arena
            .keep(HeapBlock::zeroed(count.get() * size_of::<Line>()));
        let new = Lines {
            first: first.cast(),
            count,
            arena: std::marker::PhantomData,
        };
        if let Some(old) = old {
            self.rehash(&mut writer.arena, old, new);
        }
        writer.keys_max = count.get() * KEYS_PER_TEN_LINES_MAX / 10;
        // ORDER: Release pairs with the Acquire in `lines`: the new lines' content is there.
        self.head
            .store(tagged(first.as_ptr(), count.to_bits()), Ordering::Release);
    }

    /// Puts all keys of `old` into `new`, which nobody sees yet.
    fn rehash(&self, arena: &mut ArenaWriter, old: Lines<'_>, new: Lines<'_>) {
        let mut chain = Vec::new();
        for position in 0..old.count.get() {
            let ahead = position + GROWTH_PREFETCH_LINES;
            if ahead < old.count.get() {
                for slot in &old.at(ahead).slots {
                    // ORDER: Relaxed; the only stores are the writer's own (D1).
                    prefetch_line(untagged(slot.load(Ordering::Relaxed)));
                }
            }
            chain.push(old.at(position));
            while let Some(line) = chain.pop() {
                for slot in &line.slots {
                    // ORDER: Relaxed; the only stores are the writer's own (D1).
                    let word = slot.load(Ordering::Relaxed);
                    if is_link(word) {
                        chain.push(self.linked(word));
                    } else if let Some(record) = self.record(word) {
                        let line = new.at(new.position(record.hash_bits()));
                        append(arena, line, first_free(line), word);
                    }
                }
            }
        }
    }

    /// Keeps the keys in order from here on. `each` calls what it is given for the newest version
    /// of each key among the records up to `mark`; those behind it follow, in any order.
    pub(super) fn keep_order(
        &self,
        mark: &mut ArenaMark,
        each: impl FnOnce(&mut dyn FnMut(ArenaRecord<'_>)),
    ) {
        let mut writer = self.side.writer.lock();
        if writer.keeps_order {
            return;
        }
        let order = KeyTree::new(self.order.common());
        each(&mut |record| order.insert(&mut writer.arena, record));
        let rest = writer.arena.list_since(mark);
        for record in rest.iter() {
            order.insert(&mut writer.arena, record);
        }
        self.order.adopt(&order);
        writer.keeps_order = true;
    }

    /// Whether there are keys, and they are kept in order.
    #[inline]
    pub(super) fn is_in_order(&self) -> bool {
        self.order.has_keys()
    }

    /// A cursor over all records in their order, where that is kept.
    #[inline]
    pub(super) fn order_cursor(&self) -> Option<OrderCursor> {
        self.is_in_order().then(|| self.order.cursor(&self.arena))
    }

    /// The records that were inserted since `mark`, which is moved to the end of them.
    pub(super) fn list_since(&self, mark: &mut ArenaMark) -> ArenaListing {
        self.side.writer.lock().arena.list_since(mark)
    }

    /// What the table holds. Everything that the number of records counts is seen by a later
    /// [`HashDirectory::list_since`].
    #[inline]
    pub(super) fn totals(&self) -> &MemTableTotals {
        &self.side.totals
    }

    /// A reader at `seq` has found no key in a range.
    pub(super) fn note_gap(&self, range: (&[u8], Option<&[u8]>), seq: Seq) {
        // Nobody inserts meanwhile.
        let mut writer = self.side.writer.lock();
        writer.tells_gaps = true;
        self.gaps.note(range, seq, self.totals().max_seq());
    }

    /// Takes over what another table, into which nobody inserts any more, knows of gaps.
    pub(super) fn take_over_gaps(&self, before: &HashDirectory) {
        let mut writer = self.side.writer.lock();
        self.gaps.take_over(&before.gaps, before.totals().max_seq());
        writer.tells_gaps = self.gaps.is_watched();
    }

    /// Bytes of memory held by records and directories.
    pub(super) fn memory_bytes(&self) -> u64 {
        self.arena.bytes()
    }
}

/// Appends a slot's word to a line whose first free slot is known, spilling the line if it is full.
#[inline]
fn append(arena: &mut ArenaWriter, line: &Line, free: usize, word: *mut u8) {
    if let Some(slot) = line.slots.get(free) {
        // ORDER: Release pairs with the Acquire in `newest`: the record is there.
        slot.store(word, Ordering::Release);
    } else {
        spill(arena, line, word);
    }
}

/// Moves the slots of a full line to an overflow line and appends a word (D4).
#[cold]
fn spill(arena: &mut ArenaWriter, line: &Line, word: *mut u8) {
    let overflow = arena.reserve_lines(size_of::<Line>()).cast::<Line>();
    // ORDER: Relaxed; the only stores are the writer's own (D1).
    let copy = line
        .slots
        .each_ref()
        .map(|slot| AtomicPtr::new(slot.load(Ordering::Relaxed)));
    // SAFETY: the line was reserved for us, aligned and large enough; nobody else knows it yet.
    unsafe { overflow.write(Line { slots: copy }) };
    let link = overflow
        .as_ptr()
        .cast::<u8>()
        .map_addr(|address| address | LINK);
    // ORDER: Release pairs with the Acquire in `newest`: the overflow line is there. The stores
    // that follow are Release so that whoever sees one of them sees the link.
    line.slots[0].store(link, Ordering::Release);
    for slot in &line.slots[1..] {
        slot.store(std::ptr::null_mut(), Ordering::Release);
    }
    line.slots[1].store(word, Ordering::Release);
}

/// The first free slot of a line, [`SLOTS`] when there is none. For the writer.
#[inline]
fn first_free(line: &Line) -> usize {
    // ORDER: Relaxed; the only stores are the writer's own (D1).
    let free = |slot: &AtomicPtr<u8>| slot.load(Ordering::Relaxed).is_null();
    line.slots.iter().position(free).unwrap_or(SLOTS)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    fn insert(directory: &HashDirectory, key: u32, hash: u64, seq: Seq) -> bool {
        directory.insert(&key.to_le_bytes(), hash, seq, Kind::Put, &seq.to_le_bytes())
    }

    fn newest(directory: &HashDirectory, key: u32, hash: u64) -> Option<Seq> {
        let record = directory.newest(&key.to_le_bytes(), hash)?;
        assert_eq!(record.key(), key.to_le_bytes());
        assert_eq!(record.value(), record.seq().to_le_bytes());
        Some(record.seq())
    }

    #[test]
    fn keys_of_one_hash_spill_and_are_found() {
        let keys = if cfg!(miri) { 20 } else { 100 };
        let directory = HashDirectory::new(&ChunkPool::new(0), 0, 0, false);
        for hash in [0, u64::MAX, 1 << 48] {
            for key in 0..keys {
                assert_eq!(newest(&directory, key, hash), None);
                assert!(insert(&directory, key, hash, 1));
                for key in 0..=key {
                    assert_eq!(newest(&directory, key, hash), Some(1));
                }
            }
            // Slots in overflow lines are replaced where they are.
            for key in 0..keys {
                assert!(insert(&directory, key, hash, 2));
                assert!(!insert(&directory, key, hash, 2));
                assert!(!insert(&directory, key, hash, 1));
            }
            for key in 0..keys {
                assert_eq!(newest(&directory, key, hash), Some(2));
            }
            assert_eq!(newest(&directory, keys, hash), None);
        }
    }

    /// A record with a block of its own is listed behind all others. So a large value that a small
    /// one had replaced while a search put the table in order came last, and the order led to it:
    /// the flush wrote it, and the small one was lost.
    #[test]
    fn the_order_leads_to_the_newest_version_wherever_it_lies() {
        let directory = HashDirectory::new(&ChunkPool::new(0), 0, 0, false);
        let key = b"key";
        let hash = crate::types::hash_key(key);
        let insert =
            |seq, value: &[u8]| assert!(directory.insert(key, hash, seq, Kind::Put, value));
        let mut mark = ArenaMark::default();
        insert(1, b"small");
        let listing = directory.list_since(&mut mark);
        insert(2, &[0; 100_000]);
        insert(3, b"small again");
        directory.keep_order(&mut mark, |each| listing.iter().for_each(each));
        let mut cursor = directory.order_cursor().expect("kept in order");
        cursor.seek(key);
        let mut found = Vec::new();
        while cursor.valid() {
            found.push(cursor.seq());
            cursor.next();
        }
        assert_eq!(found, [3, 2, 1]);
    }

    #[test]
    fn grows_from_nothing_and_keeps_every_key() {
        let keys = if cfg!(miri) { 500 } else { 100_000 };
        let directory = HashDirectory::new(&ChunkPool::new(0), 0, 0, false);
        assert_eq!(newest(&directory, 0, 0), None);
        let hash = |key: u32| crate::types::hash_key(&key.to_le_bytes());
        for key in 0..keys {
            assert!(insert(&directory, key, hash(key), u64::from(key) + 1));
        }
        for key in 0..keys {
            assert_eq!(newest(&directory, key, hash(key)), Some(u64::from(key) + 1));
        }
        assert_eq!(newest(&directory, keys, hash(keys)), None);
        let lines = directory.lines().unwrap().count.get();
        assert!(lines * KEYS_PER_TEN_LINES_MAX / 10 >= keys as usize);
        assert!(lines <= keys as usize);
    }

    #[test]
    fn does_not_grow_when_it_was_told_the_number_of_keys() {
        let keys = if cfg!(miri) { 300 } else { 3000 };
        let directory = HashDirectory::new(&ChunkPool::new(0), keys as usize, 0, false);
        assert_eq!(directory.memory_bytes(), 0);
        let hash = |key: u32| crate::types::hash_key(&key.to_le_bytes());
        assert!(insert(&directory, 0, hash(0), 1));
        let lines = directory.lines().unwrap().count;
        for key in 1..keys {
            assert!(insert(&directory, key, hash(key), 1));
        }
        assert_eq!(directory.lines().unwrap().count, lines);
        assert_eq!(directory.totals().keys(), keys as usize);
    }

    /// Hammers the line that is being written: the window in which a wrong order of the stores of a
    /// spill would show is a few nanoseconds long.
    #[test]
    fn readers_find_every_key_of_a_line_that_spills() {
        let (lines, keys_per_line) = if cfg!(miri) { (2, 20) } else { (30_000, 40) };
        let keys = lines * keys_per_line;
        let directory = HashDirectory::new(&ChunkPool::new(0), keys as usize, 0, false);
        let published = AtomicUsize::new(0);
        let hash = |key: u32| {
            let line = crate::types::hash_key(&(key / keys_per_line).to_le_bytes());
            line & u64::from(u32::MAX) | u64::from(key) << TAG_SHIFT
        };
        std::thread::scope(|scope| {
            for seed in 1..3u32 {
                let (directory, published) = (&directory, &published);
                scope.spawn(move || {
                    let mut random = seed;
                    loop {
                        // ORDER: Acquire pairs with the Release after each insert.
                        let count = published.load(Ordering::Acquire);
                        let Some(last) = u32::try_from(count).unwrap().checked_sub(1) else {
                            std::thread::yield_now();
                            continue;
                        };
                        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                        let key = last - (random >> 16) % (last % keys_per_line + 1);
                        assert_eq!(
                            newest(directory, key, hash(key)),
                            Some(1),
                            "{key} of {count}"
                        );
                        if last + 1 == keys {
                            return;
                        }
                    }
                });
            }
            for key in 0..keys {
                assert!(insert(&directory, key, hash(key), 1));
                // ORDER: Release pairs with the Acquire in the readers.
                published.store(key as usize + 1, Ordering::Release);
            }
        });
    }
}
