//! The inserts of a batch, or of a part of a replayed log, bucket by bucket.
//!
//! # Idea
//! The operations of a batch fall on many buckets. They are taken in windows, and of each window
//! those of one bucket are inserted one behind the other: a MemTable is locked once for all of
//! them, and what its inserts write stays near. The cache lines that an insert begins with are
//! asked for some inserts before, so that their misses overlap.
//!
//! # Invariants
//! - G1: operations of one bucket are inserted in the order of their numbers (`writepath`, I4). A
//!   range delete, which may concern several buckets, is inserted after all that are in front of
//!   it and before all that are behind it. Threads that replay a log keep the second of the two
//!   only (`recovery`).
//! - G2: A batch looks at the sizes of MemTables after each window. So one of them passes its limit
//!   by a window at most: an eighth of the limit and one operation.

use std::sync::Arc;

use crate::engine::memtable::MemTable;
use crate::engine::wip::bucket::Router;
use crate::engine::wip::{InstallState, Wip};
use crate::log::{BatchEncoder, LogOp};
use crate::types::{Kind, Seq, hash_key};

/// Operations of a window. With some fifty buckets ten of them meet in one; the window itself stays
/// in the cache next to the processor.
const WINDOW_OPERATIONS: usize = 512;

/// Bytes of keys and values of a window, at most.
const WINDOW_BYTES_MAX: u64 = 256 << 10;

/// The part of a MemTable's limit that a window may fill: one in so many bytes.
const WINDOW_PARTS: u64 = 8;

/// Inserts whose cache lines are asked for ahead.
const PREFETCH_OPERATIONS: usize = 12;

/// A batch of at most so many operations is inserted one by one: it has no use of the lists.
const FEW_OPERATIONS: u32 = 4;

/// No entry: the end of a list.
const END: usize = usize::MAX;

/// Operations of one keyspace that are inserted together.
#[derive(Default)]
pub(in super::super) struct GroupWindow<'b> {
    entries: Vec<Entry<'b>>,
    /// Bytes of keys and values.
    bytes: u64,
}

impl GroupWindow<'_> {
    /// A window with room for the operations of a batch of so many.
    fn for_batch(operations: u32) -> Self {
        GroupWindow {
            entries: Vec::with_capacity(WINDOW_OPERATIONS.min(operations as usize)),
            bytes: 0,
        }
    }

    /// Whether there is no operation.
    pub(in super::super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether it is to be inserted before it takes more.
    pub(in super::super) fn is_full(&self) -> bool {
        self.is_full_at(WINDOW_BYTES_MAX)
    }

    fn is_full_at(&self, bytes_max: u64) -> bool {
        self.entries.len() >= WINDOW_OPERATIONS || self.bytes >= bytes_max
    }
}

/// The MemTables that the operations of a batch go to, by the positions of their buckets in the
/// router: most operations meet a bucket that an earlier one has met, and count no references.
#[derive(Default)]
pub(in super::super) struct BatchTargets {
    places: Vec<Place>,
    /// Positions with a table.
    met: Vec<usize>,
    /// Positions with a list.
    listed: Vec<usize>,
    /// Positions whose tables got their first records.
    begun: Vec<usize>,
}

/// What is known of a bucket.
#[derive(Clone)]
struct Place {
    table: Option<Arc<MemTable>>,
    /// The list of the window's operations that go there.
    first: usize,
    last: usize,
}

/// An operation of a window.
struct Entry<'b> {
    operation: LogOp<'b>,
    hash: u64,
    position: usize,
    /// The next one of the same bucket.
    next: usize,
}

impl BatchTargets {
    /// Adds an operation to the window. `position` is that of its bucket, `hash` that of its key.
    #[inline]
    pub(in super::super) fn add<'b>(
        &mut self,
        router: &Router,
        window: &mut GroupWindow<'b>,
        (position, hash): (usize, u64),
        operation: LogOp<'b>,
    ) {
        if self
            .places
            .get(position)
            .is_none_or(|place| place.table.is_none())
        {
            self.learn(router, position);
        }
        let place = &mut self.places[position];
        let at = window.entries.len();
        if place.first == END {
            place.first = at;
            self.listed.push(position);
        } else {
            window.entries[place.last].next = at;
        }
        place.last = at;
        window.bytes += (operation.key.len() + operation.value.len()) as u64;
        window.entries.push(Entry {
            operation,
            hash,
            position,
            next: END,
        });
    }

    #[cold]
    fn learn(&mut self, router: &Router, position: usize) {
        let buckets = router.buckets();
        if self.places.len() < buckets.len() {
            let unknown = Place {
                table: None,
                first: END,
                last: END,
            };
            self.places.resize(buckets.len(), unknown);
        }
        let active = Arc::clone(&buckets[position].state.load().active);
        self.places[position].table = Some(active);
        self.met.push(position);
    }

    /// The table at a position that was met.
    #[inline]
    fn table(&self, position: usize) -> &MemTable {
        let table = self.places[position].table.as_deref();
        table.expect("the position was met")
    }

    /// Asks for the memory that the insert of an entry begins with.
    #[inline]
    fn prefetch(&self, entry: &Entry<'_>) {
        self.table(entry.position).prefetch(entry.hash);
    }

    /// The entries in the order of their inserts.
    fn in_order<'w, 'b>(&'w self, window: &'w [Entry<'b>]) -> InOrder<'w, 'b> {
        InOrder {
            met: self,
            window,
            listed: self.listed.iter(),
            at: END,
        }
    }

    /// Inserts the operations of a window, which are in a segment of the log, and empties it.
    /// Returns the memory of the largest table that it met.
    pub(in super::super) fn insert(&mut self, window: &mut GroupWindow<'_>, segment: u64) -> u64 {
        let mut largest = 0;
        let mut begun = std::mem::take(&mut self.begun);
        let mut ahead = self.in_order(&window.entries);
        ahead
            .by_ref()
            .take(PREFETCH_OPERATIONS)
            .for_each(|entry| self.prefetch(entry));
        for position in &self.listed {
            let table = self.table(*position);
            let mut inserts = table.inserts();
            let mut at = self.places[*position].first;
            while let Some(entry) = window.entries.get(at) {
                if let Some(later) = ahead.next() {
                    self.prefetch(later);
                }
                let LogOp {
                    key,
                    seq,
                    kind,
                    value,
                    ..
                } = entry.operation;
                inserts.insert(key, entry.hash, seq, kind, value);
                at = entry.next;
            }
            drop(inserts);
            if table.pin_no_later(segment) {
                begun.push(*position);
            }
            largest = largest.max(table.memory_bytes());
        }
        self.begun = begun;
        for position in self.listed.drain(..) {
            self.places[position].first = END;
        }
        window.entries.clear();
        window.bytes = 0;
        largest
    }

    /// The positions whose tables got their first records since this was asked for last.
    pub(in super::super) fn take_begun(&mut self) -> impl Iterator<Item = usize> {
        self.begun.drain(..)
    }

    /// Forgets all tables: they are others now, or those of another keyspace come.
    fn forget(&mut self) {
        for position in self.met.drain(..) {
            self.places[position].table = None;
        }
    }
}

/// Iterator over the entries of a window, list by list.
struct InOrder<'w, 'b> {
    met: &'w BatchTargets,
    window: &'w [Entry<'b>],
    listed: std::slice::Iter<'w, usize>,
    at: usize,
}

impl<'w, 'b> Iterator for InOrder<'w, 'b> {
    type Item = &'w Entry<'b>;

    #[inline]
    fn next(&mut self) -> Option<&'w Entry<'b>> {
        if self.at == END {
            self.at = self.met.places[*self.listed.next()?].first;
        }
        let entry = &self.window[self.at];
        self.at = entry.next;
        Some(entry)
    }
}

impl Wip {
    /// Inserts the operations of a batch, numbered from `first` on, into their MemTables, and
    /// freezes those that become too large; of a batch that is `whole` none, and returns whether
    /// some are to be frozen. The caller holds the leader alone.
    pub(in super::super) fn insert_batch(
        &self,
        install: &mut InstallState,
        operations: &BatchEncoder,
        first: Seq,
        (segment, whole): (u64, bool),
    ) -> bool {
        if operations.count() <= FEW_OPERATIONS && !operations.has(Kind::DeleteRange) {
            return self.insert_few(install, operations, first, (segment, whole));
        }
        let mut is_due = false;
        let keyspaces = self.keyspaces.load();
        let bytes_max = self.throttle.limits().table_bytes_max / WINDOW_PARTS;
        let bytes_max = bytes_max.clamp(1, WINDOW_BYTES_MAX);
        let mut met = std::mem::take(&mut install.met);
        let mut window = GroupWindow::for_batch(operations.count());
        let mut operations = operations.ops(first).map_while(Result::ok);
        let mut next = operations.next();
        while let Some(LogOp { keyspace: id, .. }) = next {
            let keyspace = keyspaces.live(id).expect("looked for before it was logged");
            let router = keyspace.router.load();
            while let Some(operation) = next
                && operation.keyspace == id
                && operation.kind != Kind::DeleteRange
                && !window.is_full_at(bytes_max)
            {
                let place = (router.position(operation.key), hash_key(operation.key));
                met.add(&router, &mut window, place, operation);
                next = operations.next();
            }
            let largest = met.insert(&mut window, segment);
            for position in met.take_begun() {
                let bucket = &router.buckets()[position];
                self.begin_written(bucket, &bucket.state.load().active);
            }
            let is_large = largest > self.throttle.limits().table_bytes_max;
            if let Some(range) = next
                && range.keyspace == id
                && range.kind == Kind::DeleteRange
            {
                self.delete_range(keyspace, range.key, range.value, range.seq, segment);
                next = operations.next();
            }
            let is_last = next.is_none_or(|next| next.keyspace != id);
            is_due |= is_large || self.must_look_at_memory();
            let must_freeze = is_due && !whole;
            if is_last || must_freeze {
                met.forget();
            }
            if must_freeze {
                self.freeze_due(install);
                is_due = false;
            }
        }
        install.met = met;
        is_due
    }
}

impl Wip {
    /// As [`Wip::insert_batch`], of few operations without a range delete: one by one.
    fn insert_few(
        &self,
        install: &mut InstallState,
        operations: &BatchEncoder,
        first: Seq,
        (segment, whole): (u64, bool),
    ) -> bool {
        let mut is_due = false;
        let keyspaces = self.keyspaces.load();
        for operation in operations.ops(first).map_while(Result::ok) {
            let LogOp {
                keyspace,
                key,
                seq,
                kind,
                value,
            } = operation;
            let keyspace = keyspaces.live(keyspace);
            let keyspace = keyspace.expect("looked for before it was logged");
            let router = keyspace.router.load();
            let bucket = router.route(key);
            let active = &bucket.state.load().active;
            active.insert(key, hash_key(key), seq, kind, value);
            if active.pin_once(segment) {
                self.begin_written(bucket, active);
            }
            is_due |= self.is_freeze_due(active);
        }
        if is_due && !whole {
            self.freeze_due(install);
        }
        whole && is_due
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use gabion_media::seeded::SeededRng;
    use gabion_media::{Disk, SimDisk};

    use super::super::{WipKeyspace, Write};
    use super::*;
    use crate::engine::ssd::{CommitWrites, Lifecycle};
    use crate::{Options, Tuning};

    const KEYS: u64 = 600;

    /// What a keyspace should hold.
    type Twin = BTreeMap<Vec<u8>, Vec<u8>>;

    /// A key in the order of its number.
    fn key(number: u64) -> Vec<u8> {
        number.swap_bytes().to_le_bytes().to_vec()
    }

    /// Adds a random operation to a batch and does it in the twin.
    fn add(random: &mut SeededRng, batch: &mut BatchEncoder, keyspace: u32, twin: &mut Twin) {
        let number = random.below(KEYS);
        match random.below(200) {
            0 => {
                let upper = key(number + 1 + random.below(9));
                batch.op(Kind::DeleteRange, keyspace, &key(number), &upper);
                twin.retain(|other, _| *other < key(number) || *other >= upper);
            }
            1..=20 => {
                batch.op(Kind::Delete, keyspace, &key(number), b"");
                twin.remove(&key(number));
            }
            _ => {
                let len = random.index(90);
                let value = vec![number.to_le_bytes()[0]; len];
                batch.op(Kind::Put, keyspace, &key(number), &value);
                twin.insert(key(number), value);
            }
        }
    }

    fn assert_same(
        engine: &Wip,
        keyspace: &WipKeyspace,
        twin: &Twin,
        snapshot: Option<crate::expiry::ReadPoint>,
    ) {
        for number in 0..KEYS {
            let found = engine.get(keyspace, &key(number), snapshot).unwrap();
            assert_eq!(found.as_deref(), twin.get(&key(number)).map(Vec::as_slice));
        }
    }

    #[test]
    fn a_batch_over_many_buckets_does_what_its_operations_do_one_by_one() {
        let options = Options::default()
            .background_threads(0)
            .tuning(Tuning::default().bucket_bytes(4 << 10));
        let engine = Wip::open(Disk::simulated(&SimDisk::new()), options).unwrap();
        let keyspaces = ["one", "other"].map(|name| engine.create_keyspace(name).unwrap());
        let mut twins = [Twin::new(), Twin::new()];
        let mut random = SeededRng::new(1);
        for round in 0..30 {
            let before = twins.clone();
            let snapshot = engine.begin_snapshot();
            let mut batch = BatchEncoder::default();
            let mut at = 0;
            for _ in 0..=random.below(3 * WINDOW_OPERATIONS as u64) {
                if random.below(100) == 0 {
                    at = 1 - at;
                }
                add(&mut random, &mut batch, keyspaces[at].id, &mut twins[at]);
            }
            engine.write(Write::Batch(&batch), 0, false).unwrap();
            for (at, keyspace) in keyspaces.iter().enumerate() {
                assert_same(&engine, keyspace, &twins[at], None);
                assert_same(&engine, keyspace, &before[at], Some(snapshot));
            }
            engine.end_snapshot(snapshot);
            if round % 6 == 2 {
                engine.flush().unwrap();
                engine.wait_idle().unwrap();
            }
        }
        for keyspace in &keyspaces {
            assert!(keyspace.router.load().buckets().len() > 4);
        }
        engine.close().unwrap();
    }
}
