//! The MemTable: where a bucket's newest writes live until they are flushed.
//!
//! # Idea (paper, sections 2.3.3 and 2.3.4)
//! A store has one MemTable per bucket, thousands in all, so a write meets cold memory. A sorted
//! structure would cost several cache misses per write; this is a hash table, which costs about
//! one. It is sorted when it is flushed or searched by range, and what was sorted is kept.
//!
//! A table that is searched by range between its writes again and again keeps a tree of its keys
//! from then on, and so does the table that takes over from it, until one of them was not searched
//! at all. The paper's bucket waits for its next table; here the tree is made of the records that
//! are there, so a bucket that is written little gains as well. [`OrderPolicy`] says when.
//!
//! | paper's term | here |
//! |---|---|
//! | directory entry | a line, [`directory`] |
//! | slot, tag, pointer | the same |
//! | space storing the item | [`arena`] |
//! | one-time-use buffer of a range search | [`sorted_view`], kept and added to |
//! | skip list of a bucket with many range searches | [`key_tree`], beside the hash table |
//!
//! # Parts
//! | file | what |
//! |---|---|
//! | `arena/pool.rs` | memory of all tables: chunks, one budget |
//! | `arena/record.rs` | a version of a key as it lies in memory |
//! | `arena/mod.rs` | the records of one table, in the order of their insertion |
//! | `directory.rs`, `line_count.rs` | the hash table: one writer, readers that never wait |
//! | `late_versions.rs` | versions that come behind a newer merge that needs them |
//! | `sorted_view.rs`, `sorted_cursor.rs` | the records in order, sorted when somebody asks |
//! | `order/` | the keys in order, kept with every insert |
//! | `cursor.rs` | a cursor over either |
//! | `gaps.rs` | ranges in which readers find nothing but tombstones |
//!
//! # Invariants
//! - M1: versions of one key have ascending sequence numbers; an insert that would break this is
//!   ignored, or goes below a merge that needs it (`operands`), so that replaying a record twice is
//!   harmless, and records of any order.
//! - M2: what [`MemTable::insert`] put in is found by every [`MemTable::get`] and every cursor of
//!   [`MemTable::sorted`] or [`MemTable::search`] that begins after it returned. What is inserted
//!   later may or may not be; readers leave it out by its sequence number.
//! - M3: memory is counted in the pool to the byte, and given back when the last of the table and
//!   its cursors is dropped.
//!
//! Nothing here is durable; the log is.

#[expect(
    unsafe_code,
    reason = "records are read through addresses while others are written"
)]
mod arena;
mod cursor;
#[expect(
    unsafe_code,
    reason = "lines and records are reached through tagged addresses"
)]
mod directory;
mod gaps;
#[expect(
    unsafe_code,
    reason = "nodes and records are reached through addresses, as those of the directory are"
)]
mod key_tree;
mod late_versions;
mod line_count;
mod sorted_cursor;
mod sorted_view;
#[cfg(test)]
mod tests;
mod totals;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use arc_swap::ArcSwap;
use parking_lot::{Mutex, MutexGuard};

use super::range_deletes::RangeTombstones;
use crate::Options;
use crate::bytes::assign;
use crate::options::MemTableForm;
use crate::types::{Kind, Seq, hash_key};

pub(crate) use arena::ChunkPool;
pub(crate) use cursor::MemCursor;
pub(crate) use directory::InsertGuard;
pub(crate) use gaps::NOTED_FROM;

use arena::{ArenaMark, ArenaRecord};
use directory::HashDirectory;
use key_tree::OrderCursor;
use sorted_cursor::SortedCursor;
use sorted_view::SortedView;

/// The pin of a table that has none.
const NOT_PINNED: u64 = u64::MAX;

/// A version of a key, borrowed from its table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemEntry<'a> {
    /// Its sequence number.
    pub(crate) seq: Seq,
    /// What it says about the key.
    pub(crate) kind: Kind,
    /// The value; empty for a tombstone.
    pub(crate) value: &'a [u8],
}

/// When a table keeps its keys in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OrderPolicy {
    /// Never.
    Never,
    /// Once so many searches have met writes that no search had met before.
    AfterSearches(u32),
    /// From the start.
    Always,
}

impl OrderPolicy {
    /// What the options ask for of a new table.
    pub(crate) fn of(options: &Options) -> OrderPolicy {
        match options.tuning.memtable_form {
            MemTableForm::Hash => OrderPolicy::Never,
            MemTableForm::Ordered => OrderPolicy::Always,
            MemTableForm::Adaptive => {
                OrderPolicy::AfterSearches(options.tuning.scans_until_ordered)
            }
        }
    }
}

/// The newest version of each key of a table. Cursors may stand on older ones as well.
pub(crate) struct NewestVersions<'t> {
    table: &'t MemTable,
    /// None if the table has them.
    sorted: Option<Arc<SortedView>>,
}

impl NewestVersions<'_> {
    /// A cursor over them.
    pub(crate) fn cursor(&self) -> MemCursor {
        match &self.sorted {
            Some(sorted) => MemCursor::Sorted(SortedCursor::new(Arc::clone(sorted))),
            None => self.table.sorted(),
        }
    }
}

/// How far the records are sorted.
#[derive(Default)]
struct Covered {
    mark: ArenaMark,
    /// Searches that met new writes.
    searches: u32,
}

/// The newest writes of a bucket, in memory. One thread inserts at a time (a lock inside sees to
/// it), any number read without waiting.
pub(crate) struct MemTable {
    directory: HashDirectory,
    /// The oldest log segment that holds a record of the table.
    pin: AtomicU64,
    keep: OrderPolicy,
    sorted: ArcSwap<SortedView>,
    /// What `sorted` covers; held while it is brought up to date.
    covered: Mutex<Covered>,
    /// Whether the table was searched while it was in order.
    searched: AtomicBool,
    /// The range deletes among the records.
    range_deletes: Mutex<Vec<RangeTombstones>>,
}

impl MemTable {
    /// An empty table that is never in order.
    #[cfg(test)]
    pub(crate) fn new(pool: &Arc<ChunkPool>, expected_keys: usize) -> MemTable {
        MemTable::with_order(pool, expected_keys, OrderPolicy::Never, 0)
    }

    /// An empty table that takes `expected_keys` distinct keys without growing its directory;
    /// [`MemTable::keys`] of the table before it is a good guess, 0 is always allowed. `keep` says
    /// when it is in order. All keys share their first `common` bytes. It holds no memory before
    /// the first insert.
    pub(crate) fn with_order(
        pool: &Arc<ChunkPool>,
        expected_keys: usize,
        keep: OrderPolicy,
        common: usize,
    ) -> MemTable {
        let is_kept = keep == OrderPolicy::Always;
        MemTable {
            directory: HashDirectory::new(pool, expected_keys, common, is_kept),
            pin: AtomicU64::new(NOT_PINNED),
            keep,
            sorted: ArcSwap::default(),
            covered: Mutex::default(),
            searched: AtomicBool::new(false),
            range_deletes: Mutex::default(),
        }
    }

    /// Inserts a version of a key. The cost does not depend on how many versions there are.
    ///
    /// False, and nothing done, if the table has a version of that key with the same or a higher
    /// sequence number, unless that is a merge which needs it.
    ///
    /// # Panics
    /// When the key has 64 KiB or more, or the value 4 GiB or more.
    #[inline]
    pub(crate) fn insert(&self, key: &[u8], hash: u64, seq: Seq, kind: Kind, value: &[u8]) -> bool {
        self.directory.insert(key, hash, seq, kind, value)
    }

    /// Keeps other writers out for several inserts, each as by [`MemTable::insert`].
    #[inline]
    pub(crate) fn inserts(&self) -> InsertGuard<'_> {
        self.directory.inserts()
    }

    /// As [`MemTable::insert`], for a range delete: a record of its first key, and one of
    /// [`MemTable::range_deletes`], which is the one that counts: where the first key has a newer
    /// version already, as when a record that was logged again is replayed, the range is still one.
    ///
    /// False, and nothing done, if the table has that range delete.
    pub(crate) fn insert_range(&self, lower: &[u8], upper: Option<&[u8]>, seq: Seq) -> bool {
        let (hash, value) = (hash_key(lower), upper.unwrap_or(&[]));
        let inserted = self.insert(lower, hash, seq, Kind::DeleteRange, value);
        let range = RangeTombstones::of_range(lower, upper, seq);
        let mut known = self.range_deletes.lock();
        let adds = inserted || !known.contains(&range);
        if adds {
            known.push(range);
        }
        adds
    }

    /// The range deletes among the records, one by one.
    pub(crate) fn range_deletes(&self) -> MutexGuard<'_, Vec<RangeTombstones>> {
        self.range_deletes.lock()
    }

    /// Calls `visit` with each record that is no range delete, in about the order of their inserts.
    pub(crate) fn for_each(
        &self,
        mut visit: impl FnMut(&[u8], Seq, Kind, &[u8]) -> crate::Result<()>,
    ) -> crate::Result<()> {
        let listing = self.directory.list_since(&mut ArenaMark::default());
        let mut points = listing
            .iter()
            .filter(|record| record.kind() != Kind::DeleteRange);
        points
            .try_for_each(|record| visit(record.key(), record.seq(), record.kind(), record.value()))
    }

    /// Asks for the memory that an insert or a get of that hash begins with.
    #[inline]
    pub(crate) fn prefetch(&self, hash: u64) {
        self.directory.prefetch(hash);
    }

    /// The newest version of `key` whose sequence number is at most `seq`. Constant time for the
    /// newest version; for an older one, a step for each version that is newer than it.
    #[inline]
    pub(crate) fn get(&self, key: &[u8], hash: u64, seq: Seq) -> Option<MemEntry<'_>> {
        let mut record: ArenaRecord<'_> = self.directory.newest(key, hash)?;
        while record.seq() > seq {
            record = record.older()?;
        }
        Some(MemEntry {
            seq: record.seq(),
            kind: record.kind(),
            value: record.value(),
        })
    }

    /// A cursor over at least all records that were inserted before the call.
    ///
    /// Where the table is not in order, the first call sorts it, later ones what was inserted since
    /// the call before.
    pub(crate) fn sorted(&self) -> MemCursor {
        self.cursor(false)
    }

    /// As [`MemTable::sorted`], for a search by range: the table may be put in order for it.
    #[inline]
    pub(crate) fn search(&self) -> MemCursor {
        self.cursor(true)
    }

    /// The newest version of each key, of a table that takes no inserts any more. Sorts them if the
    /// table has them neither sorted nor in order.
    pub(crate) fn newest(&self) -> NewestVersions<'_> {
        let is_sorted = || self.sorted.load().len() >= self.items();
        let sorted = (!self.directory.is_in_order() && !is_sorted()).then(|| {
            let listing = self.directory.list_since(&mut ArenaMark::default());
            Arc::new(SortedView::newest(&listing))
        });
        NewestVersions {
            table: self,
            sorted,
        }
    }

    #[inline]
    fn cursor(&self, is_search: bool) -> MemCursor {
        if let Some(cursor) = self.directory.order_cursor() {
            // ORDER: Relaxed (both); a statistic that orders nothing.
            if is_search && !self.searched.load(Ordering::Relaxed) {
                self.searched.store(true, Ordering::Relaxed);
            }
            return MemCursor::Ordered(cursor);
        }
        let sorted = self.sorted.load_full();
        if sorted.len() >= self.items() {
            return MemCursor::Sorted(SortedCursor::new(sorted));
        }
        self.sort(is_search)
    }

    fn sort(&self, is_search: bool) -> MemCursor {
        let mut covered = self.covered.lock();
        if let Some(cursor) = self.directory.order_cursor() {
            return MemCursor::Ordered(cursor);
        }
        let sorted = self.sorted.load_full();
        if sorted.len() >= self.items() {
            return MemCursor::Sorted(SortedCursor::new(sorted));
        }
        let listing = self.directory.list_since(&mut covered.mark);
        let sorted = Arc::new(sorted.with(&listing));
        covered.searches += u32::from(is_search);
        if let OrderPolicy::AfterSearches(searches) = self.keep
            && covered.searches >= searches
            && let Some(cursor) = self.put_in_order(&mut covered.mark, &sorted)
        {
            return MemCursor::Ordered(cursor);
        }
        self.sorted.store(Arc::clone(&sorted));
        MemCursor::Sorted(SortedCursor::new(sorted))
    }

    /// Keeps the keys in order from here on. `sorted` has all records up to `mark`.
    #[cold]
    fn put_in_order(&self, mark: &mut ArenaMark, sorted: &Arc<SortedView>) -> Option<OrderCursor> {
        self.directory.keep_order(mark, |insert| {
            let mut cursor = SortedCursor::new(Arc::clone(sorted));
            let (mut last, mut is_first) = (Vec::new(), true);
            cursor.seek_first();
            while cursor.valid() {
                if is_first || cursor.key() != last {
                    insert(cursor.record());
                    assign(&mut last, cursor.key());
                    is_first = false;
                }
                cursor.next_key();
            }
        });
        // ORDER: Relaxed; a statistic that orders nothing.
        self.searched.store(true, Ordering::Relaxed);
        self.sorted.store(Arc::default());
        self.directory.order_cursor()
    }

    /// Whether the keys are kept in order.
    pub(crate) fn is_in_order(&self) -> bool {
        self.keep == OrderPolicy::Always || self.directory.is_in_order()
    }

    /// Whether the table that takes over from this one is to be in order from the start: this one
    /// is, and somebody searched it.
    pub(crate) fn hands_on_order(&self) -> bool {
        // ORDER: Relaxed; a statistic that orders nothing.
        self.is_in_order() && self.searched.load(Ordering::Relaxed)
    }

    /// Where a reader at `seq` may go on that looks for the first key of the bucket from `key` on,
    /// if it is known that there is none before; `Some(None)` where there is none at all. Whatever
    /// table of the bucket the keys are in: `self` is the one that takes its writes.
    #[inline]
    pub(crate) fn behind_gap(&self, key: &[u8], seq: Seq) -> Option<Option<Vec<u8>>> {
        let gaps = &self.directory.gaps;
        match gaps.is_watched() {
            true => gaps.behind(key, seq),
            false => None,
        }
    }

    /// A reader at `seq` has found no key of the bucket in a range, from its first key up to but
    /// without the second.
    #[cold]
    pub(crate) fn note_gap(&self, range: (&[u8], Option<&[u8]>), seq: Seq) {
        self.directory.note_gap(range, seq);
    }

    /// Pairs with numbers up to `seq` are put into the bucket beside the table.
    pub(crate) fn forget_gaps(&self, seq: Seq) {
        self.directory.gaps.forget(seq);
    }

    /// The table takes the writes of a bucket from now on, or of a part of one, after `before`,
    /// into which nobody inserts any more.
    pub(crate) fn take_over_gaps(&self, before: &MemTable) {
        self.directory.take_over_gaps(&before.directory);
    }

    /// As [`MemTable::take_over_gaps`], where the bucket was one of several that have become one.
    pub(crate) fn take_over_part(&self, before: &MemTable) {
        let gaps = &self.directory.gaps;
        gaps.take_over_number(&before.directory.gaps, before.max_seq());
    }

    /// Number of records: every version of every key.
    #[inline]
    pub(crate) fn items(&self) -> usize {
        self.directory.totals().records()
    }

    /// Number of distinct keys.
    pub(crate) fn keys(&self) -> usize {
        self.directory.totals().keys()
    }

    /// Whether nothing was inserted yet.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.items() == 0
    }

    /// Memory held by records and directories, in bytes; what sorting holds is not in it.
    #[inline]
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.directory.memory_bytes()
    }

    /// Memory held by all of it, what sorting holds included.
    #[cfg(test)]
    pub(crate) fn held_bytes(&self) -> u64 {
        self.memory_bytes() + self.sorted.load().memory_bytes()
    }

    /// Bytes of all keys and values inserted.
    pub(crate) fn user_bytes(&self) -> u64 {
        self.directory.totals().user_bytes()
    }

    /// Number of deletes of single keys.
    pub(crate) fn tombstones(&self) -> u64 {
        self.directory.totals().tombstones()
    }

    /// The largest sequence number; 0 when the table is empty.
    pub(crate) fn max_seq(&self) -> Seq {
        self.directory.totals().max_seq()
    }

    /// The oldest log segment that holds a record of this table, once one is set.
    pub(crate) fn pin(&self) -> Option<u64> {
        // ORDER: Acquire pairs with the Release in `pin_once`, `pin_no_later` and `replace_pin`.
        let pin = self.pin.load(Ordering::Acquire);
        (pin != NOT_PINNED).then_some(pin)
    }

    /// Sets the pin unless there is one; whether it did.
    #[inline]
    pub(crate) fn pin_once(&self, segment: u64) -> bool {
        // ORDER: Relaxed; only whether there is one matters, and it is never taken away.
        if self.pin.load(Ordering::Relaxed) != NOT_PINNED {
            return false;
        }
        // ORDER: Release pairs with the Acquire in `pin`. On failure the first one stays.
        let (order, failed) = (Ordering::Release, Ordering::Relaxed);
        let set = self
            .pin
            .compare_exchange(NOT_PINNED, segment, order, failed);
        set.is_ok()
    }

    /// Sets the pin unless it is that of an older segment: where records come in any order. Whether
    /// there was none before.
    #[inline]
    pub(crate) fn pin_no_later(&self, segment: u64) -> bool {
        // ORDER: Relaxed; the pin only moves to older segments here, and then by what follows.
        if self.pin.load(Ordering::Relaxed) <= segment {
            return false;
        }
        // ORDER: Release pairs with the Acquire in `pin`.
        self.pin.fetch_min(segment, Ordering::Release) == NOT_PINNED
    }

    /// Sets the pin, whatever it was: the records were logged again.
    pub(crate) fn replace_pin(&self, segment: u64) {
        // ORDER: Release pairs with the Acquire in `pin`.
        self.pin.store(segment, Ordering::Release);
    }
}
