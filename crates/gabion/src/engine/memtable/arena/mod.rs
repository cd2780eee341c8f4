//! The arena: where the records of one MemTable lie, in the order in which they were inserted.
//!
//! # Idea
//! Memory comes in chunks. Records grow from a chunk's start upwards, overflow lines of the
//! directory and nodes of the order from its end downwards; a chunk is full when the two meet. So
//! the records of a chunk can be walked without any list of them, and what lies beside them needs
//! no chunk of its own. A record larger than a quarter of the largest chunk gets a block of its
//! own.
//!
//! # Invariants
//! - A1: memory is given back to the pool when the arena is dropped and not before. Whoever holds
//!   the arena may read every record that was published to it.
//! - A2: there is one [`ArenaWriter`] per arena. Bytes below its low mark are records and never
//!   written again; bytes above its high mark are lines; bytes between are its own.
//! - A3: whoever lists records gets the list from the writer, under whatever lock guards the
//!   writer; that lock orders the writes of the records before their reading.

mod pool;
mod record;

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use gabion_media::prefetch_range;

use pool::ArenaChunk;
pub(crate) use pool::ChunkPool;
pub(super) use pool::{BLOCK_ALIGN, HeapBlock};
use record::PREFETCH_BYTES_MAX;
pub(super) use record::{ArenaRecord, NewRecord, PREFETCH_BYTES};

use pool::CHUNK_SIZES;

/// Records above this size get a block of their own.
const LARGE_RECORD_BYTES: usize = CHUNK_SIZES[CHUNK_SIZES.len() - 1] / 4;

/// Items of a sorted list per fence.
pub(super) const FENCE_ITEMS: usize = 32;

/// The memory of one MemTable.
pub(super) struct Arena {
    pool: Arc<ChunkPool>,
    held: Mutex<Held>,
    /// Sum of what is held.
    bytes: AtomicU64,
}

/// What an arena holds.
#[derive(Default)]
struct Held {
    /// The pool's.
    chunks: Vec<ArenaChunk>,
    /// Its own: directories, and records that are too large for a chunk.
    blocks: Vec<HeapBlock>,
}

impl Arena {
    /// Bytes held.
    pub(super) fn bytes(&self) -> u64 {
        // ORDER: Relaxed; a statistic that orders nothing.
        self.bytes.load(Ordering::Relaxed)
    }

    /// Holds a chunk, which the pool has counted, until the arena is dropped.
    fn keep_chunk(&self, chunk: ArenaChunk) -> NonNull<u8> {
        let start = chunk.start();
        self.count(chunk.bytes());
        self.held.lock().chunks.push(chunk);
        start
    }

    /// Holds a block until the arena is dropped, counts it, and returns its first byte.
    pub(super) fn keep(&self, block: HeapBlock) -> NonNull<u8> {
        let start = block.start();
        self.pool.charge(block.bytes());
        self.count(block.bytes());
        self.held.lock().blocks.push(block);
        start
    }

    fn count(&self, bytes: usize) {
        // ORDER: Relaxed; a statistic that orders nothing.
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        let Held { chunks, blocks } = std::mem::take(self.held.get_mut());
        self.pool.release(blocks.iter().map(HeapBlock::bytes).sum());
        self.pool.give_back(chunks);
    }
}

/// Records of a chunk: `bytes` bytes from `start`.
#[derive(Clone, Copy)]
struct Span {
    start: NonNull<u8>,
    bytes: usize,
}

/// How much of an arena a listing covered, so that the next one goes on from there.
#[derive(Clone, Copy, Default)]
pub(super) struct ArenaMark {
    /// Chunks that are covered, but for the last one.
    chunk: usize,
    /// Bytes of the last one.
    offset: usize,
    /// Large records.
    large: usize,
    /// Records in all.
    records: usize,
}

/// The only one who adds to an arena.
pub(super) struct ArenaWriter {
    arena: Arc<Arena>,
    /// Where the next record goes.
    low: *mut u8,
    /// Where the last line begins.
    high: *mut u8,
    /// All chunks; of the last one the length is that at its beginning, zero.
    chunks: Vec<Span>,
    large: Vec<Span>,
    records: usize,
}

// SAFETY: the pointers lead into the arena, which may be used from any thread; what lies between
// them is used by the writer alone.
unsafe impl Send for ArenaWriter {}

impl ArenaWriter {
    /// A new arena, without memory yet, and its writer.
    pub(super) fn new(pool: &Arc<ChunkPool>) -> (Arc<Arena>, ArenaWriter) {
        let arena = Arc::new(Arena {
            pool: Arc::clone(pool),
            held: Mutex::default(),
            bytes: AtomicU64::new(0),
        });
        let writer = ArenaWriter {
            arena: Arc::clone(&arena),
            low: std::ptr::null_mut(),
            high: std::ptr::null_mut(),
            chunks: Vec::new(),
            large: Vec::new(),
            records: 0,
        };
        (arena, writer)
    }

    /// Adds a record and returns where it lies. It is for the caller to publish it.
    #[inline]
    pub(super) fn push(&mut self, record: &NewRecord<'_>) -> NonNull<u8> {
        let bytes = record.footprint();
        let at = if bytes <= self.room() {
            self.take_low(bytes)
        } else {
            self.reserve(bytes)
        };
        // SAFETY: `at` is the start of `bytes` bytes that were just taken for this record, at a
        // multiple of eight, since chunks are aligned and footprints are multiples of eight.
        unsafe { record.write(at) };
        self.records += 1;
        self.prefetch_low(bytes);
        at
    }

    /// Asks for the memory of the next record, which is likely as long as this one. By the time it
    /// is written, the lines are near; else the unlocking after it would wait for them.
    #[inline]
    fn prefetch_low(&self, bytes: usize) {
        prefetch_range(self.low, bytes.min(PREFETCH_BYTES_MAX) + 1);
    }

    /// Room for cache lines, of `bytes` bytes together: aligned as blocks are, not initialised. It
    /// is the caller's until it publishes it.
    pub(super) fn reserve_lines(&mut self, bytes: usize) -> NonNull<u8> {
        debug_assert!(bytes.is_multiple_of(BLOCK_ALIGN));
        if self.room() < bytes {
            self.next_chunk(bytes);
        }
        // SAFETY: there is that much room below the high mark in the same chunk.
        self.high = unsafe { self.high.sub(bytes) };
        NonNull::new(self.high).expect("the writer has a chunk")
    }

    /// Records so far.
    pub(super) fn records(&self) -> usize {
        self.records
    }

    #[inline]
    fn room(&self) -> usize {
        self.high.addr() - self.low.addr()
    }

    #[inline]
    fn take_low(&mut self, bytes: usize) -> NonNull<u8> {
        let at = self.low;
        // SAFETY: the caller has seen that there is that much room above the low mark.
        self.low = unsafe { at.add(bytes) };
        NonNull::new(at).expect("the writer has a chunk")
    }

    /// Room for a record that does not fit into what is left of the chunk.
    #[cold]
    fn reserve(&mut self, bytes: usize) -> NonNull<u8> {
        if bytes > LARGE_RECORD_BYTES {
            let start = self.arena.keep(HeapBlock::new(bytes));
            self.large.push(Span { start, bytes });
            return start;
        }
        self.next_chunk(bytes);
        self.take_low(bytes)
    }

    /// Goes on in a new chunk that has room for `bytes` bytes.
    #[cold]
    fn next_chunk(&mut self, bytes: usize) {
        let filled = self.filled();
        if let Some(last) = self.chunks.last_mut() {
            last.bytes = filled;
        }
        let mut class = self.chunks.len().min(CHUNK_SIZES.len() - 1);
        while CHUNK_SIZES[class] < bytes {
            class += 1;
        }
        let chunk = self.arena.pool.take(class);
        let len = chunk.bytes();
        let start = self.arena.keep_chunk(chunk);
        self.low = start.as_ptr();
        // SAFETY: one past the end of the block.
        self.high = unsafe { self.low.add(len) };
        self.chunks.push(Span { start, bytes: 0 });
    }

    /// Bytes of records in the last chunk.
    fn filled(&self) -> usize {
        self.chunks
            .last()
            .map_or(0, |last| self.low.addr() - last.start.addr().get())
    }

    /// The records that were added since `mark`, which is moved to the end of them.
    pub(super) fn list_since(&self, mark: &mut ArenaMark) -> ArenaListing {
        let mut spans = Vec::new();
        let mut offset = mark.offset;
        for (position, chunk) in self.chunks.iter().enumerate().skip(mark.chunk) {
            let is_last = position + 1 == self.chunks.len();
            let filled = if is_last { self.filled() } else { chunk.bytes };
            if filled > offset {
                // SAFETY: `offset` bytes of the chunk are filled.
                let start = unsafe { chunk.start.add(offset) };
                spans.push(Span {
                    start,
                    bytes: filled - offset,
                });
            }
            offset = 0;
        }
        spans.extend_from_slice(&self.large[mark.large..]);
        let records = self.records - mark.records;
        *mark = ArenaMark {
            chunk: self.chunks.len().saturating_sub(1),
            offset: self.filled(),
            large: self.large.len(),
            records: self.records,
        };
        ArenaListing {
            arena: Arc::clone(&self.arena),
            spans,
            records,
        }
    }
}

/// Some records of an arena.
pub(super) struct ArenaListing {
    arena: Arc<Arena>,
    /// Whole records, all of them published or at least written before the listing was made.
    spans: Vec<Span>,
    records: usize,
}

// SAFETY: the spans lie in the arena, which the listing holds, and are not written any more.
unsafe impl Send for ArenaListing {}

impl ArenaListing {
    /// The records in the order of their places: those with a block of their own come last, so a
    /// newer version of a key may come before an older one.
    pub(super) fn iter(&self) -> ListingIter<'_> {
        ListingIter {
            spans: self.spans.iter(),
            at: NonNull::dangling(),
            bytes: 0,
        }
    }
}

/// Iterator over the records of a [`ArenaListing`].
#[derive(Clone)]
pub(super) struct ListingIter<'a> {
    spans: std::slice::Iter<'a, Span>,
    /// The rest of the current span.
    at: NonNull<u8>,
    bytes: usize,
}

impl<'a> Iterator for ListingIter<'a> {
    type Item = ArenaRecord<'a>;

    #[inline]
    fn next(&mut self) -> Option<ArenaRecord<'a>> {
        if self.bytes == 0 {
            let span = self.spans.next()?;
            self.at = span.start;
            self.bytes = span.bytes;
        }
        // SAFETY: a span is a sequence of whole records that were written before the listing was
        // made, and the listing, borrowed for 'a, holds the arena.
        let record = unsafe { ArenaRecord::from_raw(self.at) };
        let footprint = record.footprint();
        // SAFETY: the record has that many bytes.
        self.at = unsafe { self.at.add(footprint) };
        self.bytes -= footprint;
        Some(record)
    }
}

/// A record in a sorted list, with a number that orders like the beginning of its key.
#[derive(Clone, Copy)]
pub(super) struct SortItem<'a> {
    pub(super) prefix: u64,
    pub(super) record: ArenaRecord<'a>,
}

/// Records of one arena, which the list keeps alive.
pub(super) struct RecordList {
    /// Records of `arena`; the lifetime stands for "as long as `arena` is held".
    items: Box<[SortItem<'static>]>,
    /// The prefix of every [`FENCE_ITEMS`]th item: a search begins in this short array, most of
    /// which stays in the cache.
    fences: Box<[u64]>,
    arena: Arc<Arena>,
}

impl RecordList {
    /// The list that `fill` makes of the records of a listing, and what else it returns.
    ///
    /// `fill` works for any lifetime, so what it puts into the list can only come from the listing.
    pub(super) fn build<T>(
        listing: &ArenaListing,
        fill: impl for<'x> FnOnce(ListingIter<'x>, &mut Vec<SortItem<'x>>) -> T,
    ) -> (RecordList, T) {
        let mut items = Vec::with_capacity(listing.records);
        let result = fill(listing.iter(), &mut items);
        (RecordList::hold(&listing.arena, items), result)
    }

    /// The list that `merge` makes of the items of two lists.
    ///
    /// # Panics
    /// When the lists belong to different arenas.
    pub(super) fn merge(
        a: &RecordList,
        b: &RecordList,
        merge: impl for<'x> FnOnce(&[SortItem<'x>], &[SortItem<'x>], &mut Vec<SortItem<'x>>),
    ) -> RecordList {
        assert!(
            Arc::ptr_eq(&a.arena, &b.arena),
            "merged lists belong to one arena"
        );
        let mut items = Vec::with_capacity(a.items.len() + b.items.len());
        merge(a.items(), b.items(), &mut items);
        RecordList::hold(&a.arena, items)
    }

    /// A list of `items`, all of which lie in `arena`: the callers' closures are generic over the
    /// lifetime and so have no other records to put there.
    fn hold(arena: &Arc<Arena>, items: Vec<SortItem<'_>>) -> RecordList {
        let items = items.into_boxed_slice();
        // SAFETY: only the lifetime changes. The records live as long as the arena, which is held
        // by the list; `items` shortens the lifetime to that of the list again.
        let items =
            unsafe { std::mem::transmute::<Box<[SortItem<'_>]>, Box<[SortItem<'static>]>>(items) };
        let fences = items
            .iter()
            .step_by(FENCE_ITEMS)
            .map(|item| item.prefix)
            .collect();
        let list = RecordList {
            items,
            fences,
            arena: Arc::clone(arena),
        };
        arena.pool.charge(list.bytes());
        list
    }

    /// Memory held by the list itself.
    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.items) + size_of_val(&*self.fences)
    }

    /// The prefixes of the items at the multiples of [`FENCE_ITEMS`].
    #[inline]
    pub(super) fn fences(&self) -> &[u64] {
        &self.fences
    }

    /// The records.
    #[inline]
    pub(super) fn items(&self) -> &[SortItem<'_>] {
        &self.items
    }
}

impl Drop for RecordList {
    fn drop(&mut self) {
        self.arena.pool.release(self.bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Kind;

    fn record<'a>(key: &'a [u8], value: &'a [u8], seq: u64) -> NewRecord<'a> {
        NewRecord {
            key,
            value,
            seq,
            kind: Kind::Put,
            hash_bits: 7,
            older: None,
        }
    }

    fn keys_since(writer: &ArenaWriter, mark: &mut ArenaMark) -> Vec<Vec<u8>> {
        let listing = writer.list_since(mark);
        let keys: Vec<_> = listing.iter().map(|record| record.key().to_vec()).collect();
        assert_eq!(keys.len(), listing.records);
        keys
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let pool = ChunkPool::new(0);
        let (_arena, mut writer) = ArenaWriter::new(&pool);
        for (key, value) in [(0, 0), (1, 0), (0, 1), (16, 100), (65_535, 3), (9, 70_000)] {
            let key = vec![1; key];
            let value = vec![2; value];
            let at = writer.push(&record(&key, &value, 1));
            // SAFETY: a record was just written there, and the arena lives until the end.
            let first = unsafe { ArenaRecord::from_raw(at) };
            let second = NewRecord {
                kind: Kind::Delete,
                older: Some(first),
                ..record(&key, &value, crate::types::SEQ_MAX)
            };
            let at = writer.push(&second);
            // SAFETY: as above.
            let second = unsafe { ArenaRecord::from_raw(at) };
            for (record, seq, kind) in [
                (first, 1, Kind::Put),
                (second, crate::types::SEQ_MAX, Kind::Delete),
            ] {
                assert_eq!(record.key(), key);
                assert_eq!(record.value(), value);
                assert_eq!(record.seq(), seq);
                assert_eq!(record.kind(), kind);
                assert_eq!(record.hash_bits(), 7);
            }
            assert!(first.older().is_none());
            assert_eq!(
                second.older().map(ArenaRecord::as_ptr),
                Some(first.as_ptr())
            );
        }
    }

    #[test]
    fn lists_every_record_once_between_lines_and_large_records() {
        let pool = ChunkPool::new(0);
        let (arena, mut writer) = ArenaWriter::new(&pool);
        let mut mark = ArenaMark::default();
        assert!(keys_since(&writer, &mut mark).is_empty());
        let mut expected = Vec::new();
        let count = if cfg!(miri) { 400u32 } else { 2000 };
        for i in 0..count {
            let key = i.to_le_bytes();
            let len = if i % 150 == 3 {
                LARGE_RECORD_BYTES + 1
            } else {
                i as usize % 90
            };
            writer.push(&record(&key, &vec![0; len], u64::from(i)));
            expected.push(key.to_vec());
            if i % 7 == 0 {
                let line = writer.reserve_lines(BLOCK_ALIGN);
                assert_eq!(line.addr().get() % BLOCK_ALIGN, 0);
                // SAFETY: the line was reserved for us.
                unsafe { line.write_bytes(0xff, BLOCK_ALIGN) };
            }
            if i % 131 == 0 {
                let mut keys = keys_since(&writer, &mut mark);
                keys.sort();
                expected.sort();
                assert_eq!(keys, expected);
                expected.clear();
            }
        }
        let mut all = keys_since(&writer, &mut ArenaMark::default());
        all.sort();
        all.dedup();
        assert_eq!(all.len(), count as usize);
        assert_eq!(arena.bytes(), pool.allocated_bytes());
        drop(arena);
        drop(writer);
        assert_eq!(pool.allocated_bytes(), 0);
    }

    #[test]
    fn a_list_keeps_its_arena_alive_and_is_counted() {
        let pool = ChunkPool::new(0);
        let (arena, mut writer) = ArenaWriter::new(&pool);
        for i in 0..100u8 {
            writer.push(&record(&[i], &[i; 50], 1));
        }
        let listing = writer.list_since(&mut ArenaMark::default());
        let (list, ()) = RecordList::build(&listing, |records, items| {
            items.extend(records.map(|record| SortItem { prefix: 0, record }));
        });
        let bytes = arena.bytes() + 100 * size_of::<SortItem<'_>>() as u64 + 4 * 8;
        assert_eq!(pool.allocated_bytes(), bytes);
        drop((listing, writer, arena));
        assert_eq!(pool.allocated_bytes(), bytes);
        for (i, item) in list.items().iter().enumerate() {
            assert_eq!(usize::from(item.record.value()[0]), i);
        }
        drop(list);
        assert_eq!(pool.allocated_bytes(), 0);
    }
    /// The pool kept every block that had the length of a chunk by chance, for tables that never
    /// asked for it: a store whose small tables had directories of 4 or 16 KiB, or records of just
    /// 64 KiB, came to hold its whole budget in memory of no use.
    #[test]
    fn only_what_the_pool_gave_out_is_kept_for_the_next_table() {
        let pool = ChunkPool::new(64 << 20);
        let mut waited = Vec::new();
        for round in 0..20 {
            let (arena, mut writer) = ArenaWriter::new(&pool);
            for bytes in CHUNK_SIZES {
                arena.keep(HeapBlock::zeroed(bytes));
                let (key, head) = ([1], record(&[1], &[], 1).footprint());
                let value = vec![0; bytes - head - 8];
                (0..2).for_each(|seq| _ = writer.push(&record(&key, &value, seq)));
            }
            drop((arena, writer));
            let (waiting, walked) = pool.waiting_bytes_for_tests();
            assert_eq!((waiting, pool.allocated_bytes()), (walked, 0));
            assert!(waiting > 0, "round {round}");
            waited.push(waiting);
        }
        waited.dedup();
        assert_eq!(
            waited.len(),
            1,
            "more waits from table to table: {waited:?}"
        );
    }
}
