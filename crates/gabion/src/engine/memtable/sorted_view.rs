//! The sorted view of a MemTable, made when it is first asked for and kept.
//!
//! # Idea
//! The paper sorts a copy for every range search and throws it away. Here what was sorted stays
//! with the table: a list of runs, the oldest and largest first. A search sorts only what was
//! inserted since the last one into a new run and merges it with its neighbour as long as that is
//! less than [`RUN_RATIO`] times as long; so repeated searches of a table that hardly changes cost
//! nothing. With searches between all inserts, an insert makes about 16 items move for each of the
//! two or three ratios between the runs, and a search looks at three or four runs.
//!
//! Sorting compares numbers: the eight bytes of the key behind those that all keys of the run
//! share. Records are visited once, in the order in which they lie in memory. Only items whose
//! numbers agree are compared by their keys, and large groups of those again by their next eight
//! bytes.
//!
//! # Invariants
//! - S1: a run is ordered by key, then newest first, and no two items of a table are equal.
//! - S2: all keys of a run begin with the same `common` bytes, and an item's prefix is
//!   [`prefix_of`] the rest of its key.
//! - S3: each run but the last is at least [`RUN_RATIO`] times as long as the next, so there are
//!   at most [`RUNS_MAX`].

use std::cmp::{Ordering, Reverse};
use std::ops::Range;
use std::sync::Arc;

use super::arena::{ArenaListing, ArenaRecord, FENCE_ITEMS, RecordList, SortItem};
use crate::types::prefix_of;
use gabion_media::prefetch_line;

/// Items of a cache line.
const ITEMS_PER_LINE: usize = 64 / size_of::<SortItem<'_>>();

/// Lines of the items between two fences.
const FENCE_LINES: usize = FENCE_ITEMS / ITEMS_PER_LINE + 1;

/// See S3.
const RUN_RATIO: usize = 32;

/// Most runs of a table: seven ratios of 32 make 34 billion records.
pub(super) const RUNS_MAX: usize = 8;

/// Records whose common beginning is the first guess for that of all.
const GUESS_RECORDS: usize = 16;

/// Items of equal prefix up to this number are compared by their keys at once.
const SMALL_GROUP: usize = 24;

/// Most times that a group is sorted by eight further bytes before keys are compared as a whole.
const GROUP_LEVELS_MAX: usize = 64;

/// A sorted part of a table's records.
pub(super) struct SortedRun {
    list: RecordList,
    /// What all keys begin with.
    common: Box<[u8]>,
}

/// A sorted view: all records that a table held at some time.
#[derive(Default)]
pub(super) struct SortedView {
    runs: Vec<Arc<SortedRun>>,
    records: usize,
}

impl SortedView {
    /// Memory held by the lists.
    #[cfg(test)]
    pub(super) fn memory_bytes(&self) -> u64 {
        let bytes = self.runs.iter().map(|run| run.list_bytes() as u64);
        bytes.sum()
    }

    /// The view that has the records of `listing` as well.
    pub(super) fn with(&self, listing: &ArenaListing) -> SortedView {
        let mut runs = self.runs.clone();
        let mut last = SortedRun::sort(listing);
        while let Some(before) = runs.last()
            && (before.len() < last.len() * RUN_RATIO || runs.len() == RUNS_MAX)
        {
            last = SortedRun::merge(before, &last);
            runs.pop();
        }
        runs.push(Arc::new(last));
        let records = runs.iter().map(|run| run.len()).sum();
        SortedView { runs, records }
    }

    /// The newest version of each key in a listing of all records.
    pub(super) fn newest(listing: &ArenaListing) -> SortedView {
        let run = SortedRun::sort_some(listing, |record| !record.is_superseded());
        SortedView {
            records: run.len(),
            runs: vec![Arc::new(run)],
        }
    }

    /// The runs, each a part of the records.
    #[inline]
    pub(super) fn runs(&self) -> &[Arc<SortedRun>] {
        &self.runs
    }

    /// Records.
    pub(super) fn len(&self) -> usize {
        self.records
    }
}

impl SortedRun {
    fn sort(listing: &ArenaListing) -> SortedRun {
        SortedRun::sort_some(listing, |_| true)
    }

    /// The records that are wanted.
    fn sort_some(
        listing: &ArenaListing,
        is_wanted: impl Fn(ArenaRecord<'_>) -> bool + Copy,
    ) -> SortedRun {
        let (list, common) = RecordList::build(listing, |records, items| {
            let common = gather(records.filter(|record| is_wanted(*record)), items);
            sort_items(items, common);
            common
        });
        SortedRun::new(list, common)
    }

    /// A run of records whose keys have so many bytes in common.
    fn new(list: RecordList, common: usize) -> SortedRun {
        let first = list.items().first();
        let common = first.map_or(&[][..], |item| &item.record.key()[..common]);
        let common = common.into();
        SortedRun { list, common }
    }

    fn merge(a: &SortedRun, b: &SortedRun) -> SortedRun {
        let common = common_len(&a.common, &b.common);
        let a_move = Rebase::new(&a.common, common);
        let b_move = Rebase::new(&b.common, common);
        let list = RecordList::merge(&a.list, &b.list, |a, b, merged| {
            merge_items((a, a_move), (b, b_move), merged);
        });
        SortedRun::new(list, common)
    }

    /// Memory held by the list.
    #[cfg(test)]
    fn list_bytes(&self) -> usize {
        self.list.bytes()
    }

    /// Records.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.list.items().len()
    }

    /// The record at `position` in the order of the run.
    #[inline]
    pub(super) fn get(&self, position: usize) -> Option<ArenaRecord<'_>> {
        self.list.items().get(position).map(|item| item.record)
    }

    /// How many records have a key below `key`.
    pub(super) fn count_below(&self, key: &[u8]) -> usize {
        match self.prefix_in(key) {
            Ok(prefix) => self.count_below_prefix(prefix, key),
            Err(count) => count,
        }
    }

    /// Asks for the items that [`SortedRun::count_below`] looks at.
    pub(super) fn prefetch_search(&self, key: &[u8]) {
        if let Ok(prefix) = self.prefix_in(key) {
            let range = self.items_around(prefix);
            let items = &self.list.items()[range];
            for item in items.iter().step_by(ITEMS_PER_LINE).take(FENCE_LINES) {
                prefetch_line(std::ptr::from_ref(item).cast());
            }
        }
    }

    /// The prefix of a key that begins as all keys do; for any other key the number of records
    /// below it.
    fn prefix_in(&self, key: &[u8]) -> Result<u64, usize> {
        let common = &self.common[..];
        if common.is_empty() {
            // No comparison of no bytes: see `PrefixIndex::count`.
            return Ok(prefix_of(key));
        }
        let shared = &key[..key.len().min(common.len())];
        match shared.cmp(common) {
            // A key that ends inside the common beginning is below all keys of the run, too.
            Ordering::Less => Err(0),
            Ordering::Greater => Err(self.len()),
            Ordering::Equal => Ok(prefix_of(&key[common.len()..])),
        }
    }

    /// The items among which those of a prefix begin.
    fn items_around(&self, prefix: u64) -> Range<usize> {
        let fences = self.list.fences();
        // Items up to the last fence below the prefix are below the key; items from the first
        // fence above the prefix on are not.
        let below = fences.partition_point(|fence| *fence < prefix);
        let above = below + fences[below..].partition_point(|fence| *fence == prefix);
        let from = below.saturating_sub(1) * FENCE_ITEMS;
        from..(above * FENCE_ITEMS).min(self.len())
    }

    /// [`SortedRun::count_below`] for a key that begins as all keys do and goes on with `prefix`.
    fn count_below_prefix(&self, prefix: u64, key: &[u8]) -> usize {
        let range = self.items_around(prefix);
        let from = range.start;
        from + self.list.items()[range].partition_point(|item| match item.prefix.cmp(&prefix) {
            Ordering::Less => true,
            Ordering::Greater => false,
            Ordering::Equal => item.record.key() < key,
        })
    }

    /// The position behind the last record that has the key of the record at `position`.
    pub(super) fn end_of_key(&self, position: usize) -> usize {
        let items = &self.list.items()[position..];
        let Some(first) = items.first() else {
            return position;
        };
        let has_key = |item: &SortItem<'_>| {
            item.prefix == first.prefix && item.record.key() == first.record.key()
        };
        let mut step = 1;
        while items.get(step).is_some_and(has_key) {
            step *= 2;
        }
        // The last doubling went from a record that has the key to one that has not.
        let from = step / 2;
        let to = step.min(items.len());
        position + from + items[from..to].partition_point(has_key)
    }

    /// Asks for the memory of the record at `position`, which has about so many bytes.
    #[inline]
    pub(super) fn prefetch(&self, position: usize, bytes: usize) {
        if let Some(record) = self.get(position) {
            record.prefetch(bytes);
        }
    }
}

/// Length of the common beginning.
fn common_len(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// Puts all records into `items` and returns the length of their keys' common beginning, which the
/// prefixes stand behind.
fn gather<'x>(
    records: impl Iterator<Item = ArenaRecord<'x>> + Clone,
    items: &mut Vec<SortItem<'x>>,
) -> usize {
    let Some(first) = records.clone().next() else {
        return 0;
    };
    let mut common = first.key();
    for record in records.clone().take(GUESS_RECORDS) {
        common = &common[..common_len(common, record.key())];
    }
    for record in records {
        let key = record.key();
        if !key.starts_with(common) {
            let rebase = Rebase::new(common, common_len(common, key));
            for item in &mut *items {
                item.prefix = rebase.apply(item.prefix);
            }
            common = &common[..rebase.to];
        }
        items.push(SortItem {
            prefix: prefix_of(&key[common.len()..]),
            record,
        });
    }
    common.len()
}

/// Turns prefixes behind a common beginning into prefixes behind a shorter one.
#[derive(Clone, Copy)]
struct Rebase {
    /// Length of the shorter beginning.
    to: usize,
    /// Prefix of the bytes that are common no more.
    lead: u64,
    /// Eight times their number.
    shift: u32,
}

impl Rebase {
    fn new(common: &[u8], to: usize) -> Rebase {
        let bytes = common.len() - to;
        let shift = u32::try_from(bytes * 8).expect("a key is shorter than 64 KiB");
        Rebase {
            to,
            lead: prefix_of(&common[to..]),
            shift,
        }
    }

    #[inline]
    fn apply(self, prefix: u64) -> u64 {
        self.lead | prefix.checked_shr(self.shift).unwrap_or(0)
    }
}

/// Sorts items whose prefixes stand behind `common` bytes.
fn sort_items(items: &mut [SortItem<'_>], common: usize) {
    items.sort_unstable_by_key(|item| item.prefix);
    sort_groups(items, common, GROUP_LEVELS_MAX);
}

/// Sorts the groups of equal prefix in items that are sorted by prefix, behind `common` bytes.
fn sort_groups(items: &mut [SortItem<'_>], common: usize, levels: usize) {
    for group in items.chunk_by_mut(|a, b| a.prefix == b.prefix) {
        if group.len() > 1 {
            sort_group(group, common, levels);
        }
    }
}

/// Sorts items of one prefix, behind `common` bytes.
fn sort_group(group: &mut [SortItem<'_>], common: usize, levels: usize) {
    if group.len() <= SMALL_GROUP || levels == 0 {
        group.sort_unstable_by(|a, b| a.record.order(b.record));
        return;
    }
    let first = group[0].record.key();
    let (mut shared, mut longest) = (first.len(), first.len());
    for item in &*group {
        let key = item.record.key();
        if key != &first[..shared] {
            shared = common_len(&first[..shared], key);
        }
        longest = longest.max(key.len());
    }
    if shared == longest {
        group.sort_unstable_by_key(|item| Reverse(item.record.seq()));
    } else if shared <= common {
        // Keys that end here, and others that go on with zeros.
        group.sort_unstable_by(|a, b| a.record.order(b.record));
    } else {
        let prefix = group[0].prefix;
        for item in &mut *group {
            item.prefix = prefix_of(&item.record.key()[shared..]);
        }
        group.sort_unstable_by_key(|item| item.prefix);
        sort_groups(group, shared, levels - 1);
        for item in group {
            item.prefix = prefix;
        }
    }
}

/// Merges two sorted lists whose prefixes are to be rebased to the same length.
fn merge_items<'x>(
    (mut a, a_move): (&[SortItem<'x>], Rebase),
    (mut b, b_move): (&[SortItem<'x>], Rebase),
    merged: &mut Vec<SortItem<'x>>,
) {
    let moved = |item: &SortItem<'x>, by: Rebase| SortItem {
        prefix: by.apply(item.prefix),
        ..*item
    };
    while let ([first_a, rest_a @ ..], [first_b, rest_b @ ..]) = (a, b) {
        let (item_a, item_b) = (moved(first_a, a_move), moved(first_b, b_move));
        let order = item_a
            .prefix
            .cmp(&item_b.prefix)
            .then_with(|| item_a.record.order(item_b.record));
        if order == Ordering::Less {
            merged.push(item_a);
            a = rest_a;
        } else {
            merged.push(item_b);
            b = rest_b;
        }
    }
    merged.extend(a.iter().map(|item| moved(item, a_move)));
    merged.extend(b.iter().map(|item| moved(item, b_move)));
}
