//! Generations: the MemTables of all keyspaces that take writes at the same time, and what of the
//! past they keep for snapshots.
//!
//! # Idea
//! Writes go into the MemTables of one generation. When it is full it is frozen, as a whole, and
//! the next one begins; so a generation is all writes between two numbers. A frozen one is merged
//! into the spaces, in place. What a merge overwrites there is gone, but for the readers of earlier
//! moments: if there are any when a merge begins, it first notes in its generation what it is going
//! to overwrite, the *images*, and the generation stays in memory until these readers are gone.
//!
//! # Reading at a number
//! From the newest generation to the oldest, the first one that has a version of the key which the
//! reader may see decides. If none has, what the space holds decides, unless generations newer than
//! the reader's number have images of the key: then the image of the oldest of them does. Images
//! are looked at after the space, and are noted before the space changes.
//!
//! # How much of the past is kept
//! A merged generation between whose writes no reader stands is of use for its images only, and two
//! neighbours are as good as one that has the older image of each key. So merges fold them, and
//! what a reader costs is one image of each key that changed since, however often: a snapshot can
//! cost the memory of the store as it was, not more.
//!
//! # Gaps
//! The newest MemTable of a keyspace knows ranges in which readers find nothing
//! ([`crate::engine::memtable`]). It takes over what that of the generation before knows, if there
//! is one; of puts before its own first write it says nothing.

use std::cell::LazyCell;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use arc_swap::ArcSwap;
use parking_lot::RwLock;

use super::per_keyspace::PerKeyspace;
use crate::Slice;
use crate::engine::memtable::{MemTable, OrderPolicy};
use crate::engine::range_deletes::{RangeDeletes, RangeTombstones};
use crate::engine::snapshots::ProtectedSeqs;
use crate::expiry::StoredRecord;
use crate::log::LogOp;
use crate::memory::{Memory, TableMemory};
use crate::slabs::{Slabs, memory_of};
use crate::types::{Kind, SEQ_MAX, Seq, hash_key};

/// Memory that a version takes beside its key and value, roughly.
const VERSION_BYTES: u64 = 48;

/// Memory that an image takes in the map beside its key and value: nodes are two thirds full.
const IMAGE_BYTES: u64 = 96;

/// Inserts whose memory is asked for together.
const PREFETCH_OPERATIONS: usize = 16;

/// Steps of scans over keys that are gone which are worth a merge of few writes: some milliseconds.
const STEPS_MIN: u64 = 1 << 17;

/// The same, in bytes of more writes for each step.
const STEP_BYTES: u64 = 8;

/// Images that are read under one lock, at most: 30 us by estimate.
const IMAGES_MAX: usize = 256;

/// What a generation says about a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum GenerationLookup {
    Nothing,
    Deleted,
    Record(StoredRecord),
}

/// The writes of one keyspace.
pub(super) struct GenerationPart {
    pub(super) keyspace: u32,
    pub(super) table: MemTable,
    deletes: ArcSwap<RangeDeletes>,
    has_deletes: AtomicBool,
    images: Arc<Images>,
}

/// What the space held of keys before they changed. Key and value lie in the memory of the cache,
/// which is given back when a snapshot ends.
#[derive(Default)]
struct Images {
    by_key: RwLock<BTreeMap<Slice, Option<StoredRecord>>>,
    any: AtomicBool,
}

impl Images {
    /// Notes an image unless there is one of the key; returns the bytes that it takes.
    fn note(&self, key: &[u8], image: impl FnOnce() -> (Slice, Option<StoredRecord>)) -> u64 {
        let mut images = self.by_key.write();
        if images.contains_key(key) {
            return 0;
        }
        let (key, image) = image();
        let len = key.len() + image.as_ref().map_or(0, StoredRecord::len);
        images.insert(key, image);
        // ORDER: Release pairs with the Acquire in `is_empty`.
        self.any.store(true, Ordering::Release);
        memory_of(len) as u64 + IMAGE_BYTES
    }

    fn is_empty(&self) -> bool {
        // ORDER: Acquire pairs with the Release in `note`.
        !self.any.load(Ordering::Acquire)
    }

    /// The next images of a range, as many as are read under one lock. They only become more.
    fn some(&self, from: Bound<&[u8]>, upper: Option<&[u8]>) -> Vec<(Slice, Option<StoredRecord>)> {
        let upper = upper.map_or(Bound::Unbounded, Bound::Excluded);
        let images = self.by_key.read();
        let range = images.range::<[u8], _>((from, upper)).take(IMAGES_MAX);
        range
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect()
    }

    /// Notes the images of a newer generation; returns the bytes that they take more. Readers get
    /// their turn after some keys.
    fn absorb(&self, newer: &Images) -> u64 {
        let mut bytes = 0;
        let mut last: Option<Slice> = None;
        loop {
            let from = last.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
            let part = newer.some(from, None);
            for (key, value) in &part {
                bytes += self.note(key, || (key.clone(), value.clone()));
            }
            match part.into_iter().next_back() {
                Some((key, _)) => last = Some(key),
                None => return bytes,
            }
        }
    }
}

impl GenerationPart {
    fn new(keyspace: u32, memory: &Memory, keep: OrderPolicy) -> GenerationPart {
        GenerationPart::with_images(keyspace, memory, keep, Arc::default())
    }

    fn with_images(
        keyspace: u32,
        memory: &Memory,
        keep: OrderPolicy,
        images: Arc<Images>,
    ) -> GenerationPart {
        GenerationPart {
            keyspace,
            table: MemTable::with_order(memory.pool(), 0, keep, 0),
            deletes: ArcSwap::default(),
            has_deletes: AtomicBool::new(false),
            images,
        }
    }

    /// Whether nothing was written.
    pub(super) fn is_empty(&self) -> bool {
        self.table.is_empty() && !self.has_deletes()
    }

    pub(super) fn has_deletes(&self) -> bool {
        // ORDER: Acquire pairs with the Release in `delete_range`.
        self.has_deletes.load(Ordering::Acquire)
    }

    /// The deleted ranges, as those see them who read all that was written.
    pub(super) fn deletes(&self) -> RangeTombstones {
        self.deletes.load().united(&ProtectedSeqs::only(SEQ_MAX))
    }

    /// The newest delete of a range with `key` that a reader at `seq` sees; 0 for none.
    #[inline]
    pub(super) fn deleted(&self, key: &[u8], seq: Seq) -> Seq {
        if !self.has_deletes() {
            return 0;
        }
        self.deletes.load().newest(key, seq)
    }

    /// The newest that a reader at `seq` may know of `key`.
    #[inline]
    pub(super) fn get(&self, key: &[u8], hash: u64, seq: Seq) -> GenerationLookup {
        let entry = self.table.get(key, hash, seq);
        let deleted = self.deleted(key, seq);
        match entry {
            Some(entry) if entry.seq > deleted => match entry.kind.is_tombstone() {
                true => GenerationLookup::Deleted,
                false => {
                    GenerationLookup::Record(StoredRecord::new(entry.kind, Slice::new(entry.value)))
                }
            },
            _ if deleted > 0 => GenerationLookup::Deleted,
            _ => GenerationLookup::Nothing,
        }
    }

    /// A key of a range that was written with a number above `since`.
    pub(super) fn newer_in(
        &self,
        (lower, upper): (&[u8], Option<&[u8]>),
        since: Seq,
    ) -> Option<Vec<u8>> {
        if self.has_deletes()
            && let Some(key) = self.deletes.load().newer_in((lower, upper), since)
        {
            return Some(key);
        }
        let mut cursor = self.table.search();
        cursor.seek(lower);
        while cursor.valid() && upper.is_none_or(|upper| cursor.key() < upper) {
            // The newest version of a key comes first.
            if cursor.seq() > since {
                return Some(cursor.key().to_vec());
            }
            cursor.next_key();
        }
        None
    }

    /// Notes what the space holds of a key that is about to change; returns the bytes that this
    /// takes. The first note counts.
    pub(super) fn note_image(
        &self,
        slabs: &Arc<Slabs>,
        key: &[u8],
        found: Option<(Kind, &[u8])>,
    ) -> u64 {
        self.images.note(key, || {
            let middle = key.len();
            let bytes = found.map_or(&[][..], |(_, stored)| stored);
            let mut buffer = slabs.take(middle + bytes.len());
            buffer.own()[..middle].copy_from_slice(key);
            buffer.own()[middle..].copy_from_slice(bytes);
            let stored = Slice::cached(&buffer, middle, bytes.len());
            let image = found.map(|(kind, _)| StoredRecord::new(kind, stored));
            (Slice::cached(&buffer, 0, middle), image)
        })
    }

    /// What the space held of a key before it changed, if it has.
    pub(super) fn image(&self, key: &[u8]) -> Option<Option<StoredRecord>> {
        if self.images.is_empty() {
            return None;
        }
        self.images.by_key.read().get(key).cloned()
    }

    /// The images of keys in a range.
    pub(super) fn images(
        &self,
        lower: &[u8],
        upper: Option<&[u8]>,
    ) -> Vec<(Slice, Option<StoredRecord>)> {
        if self.images.is_empty() || upper.is_some_and(|upper| upper <= lower) {
            return Vec::new();
        }
        let mut list: Vec<(Slice, Option<StoredRecord>)> = Vec::new();
        loop {
            let last = list.last().map(|(key, _)| Bound::Excluded(&key[..]));
            let from = last.unwrap_or(Bound::Included(lower));
            let part = self.images.some(from, upper);
            let is_last = part.len() < IMAGES_MAX;
            list.extend(part);
            if is_last {
                return list;
            }
        }
    }
}

/// All writes between two numbers.
pub(super) struct Generation {
    /// One more than that of the generation before.
    pub(super) number: u64,
    /// No write of the generation is in an older segment of the log.
    pub(super) first_segment: u64,
    memory: Arc<Memory>,
    keep: OrderPolicy,
    layers: PerKeyspace<GenerationPart>,
    /// Keys, values and what comes with them.
    bytes: AtomicU64,
    /// What of these the merge under way has put into the spaces, about.
    merged: AtomicU64,
    images: Arc<TableMemory>,
    /// The number of the oldest write.
    min_seq: AtomicU64,
    /// The number of the newest write.
    max_seq: AtomicU64,
    /// Keys that are gone and that scans have stepped over.
    steps: AtomicU64,
    /// The one before, while it is there.
    before: Weak<Generation>,
}

impl Generation {
    pub(super) fn new(
        number: u64,
        first_segment: u64,
        memory: &Arc<Memory>,
        keep: OrderPolicy,
    ) -> Generation {
        Generation {
            number,
            first_segment,
            memory: Arc::clone(memory),
            keep,
            layers: PerKeyspace::default(),
            bytes: AtomicU64::new(0),
            merged: AtomicU64::new(0),
            images: Arc::new(memory.charge_table(0)),
            min_seq: AtomicU64::new(SEQ_MAX),
            max_seq: AtomicU64::new(0),
            steps: AtomicU64::new(0),
            before: Weak::new(),
        }
    }

    /// The one that takes the writes after another one.
    pub(super) fn after(before: &Arc<Generation>, first_segment: u64) -> Generation {
        let (number, memory) = (before.number + 1, &before.memory);
        Generation {
            before: Arc::downgrade(before),
            ..Generation::new(number, first_segment, memory, before.keep)
        }
    }

    /// What of a merged generation is of use to readers of moments before all of its writes: its
    /// images.
    pub(super) fn without_writes(&self) -> Generation {
        let layers = PerKeyspace::default();
        for layer in self.layers.all() {
            layers.get_or_add(layer.keyspace, || {
                let images = Arc::clone(&layer.images);
                GenerationPart::with_images(layer.keyspace, &self.memory, self.keep, images)
            });
        }
        Generation {
            number: self.number,
            first_segment: self.first_segment,
            memory: Arc::clone(&self.memory),
            keep: self.keep,
            layers,
            bytes: AtomicU64::new(0),
            merged: AtomicU64::new(0),
            images: Arc::clone(&self.images),
            min_seq: AtomicU64::new(self.min_seq()),
            max_seq: AtomicU64::new(self.max_seq()),
            steps: AtomicU64::new(0),
            before: Weak::new(),
        }
    }

    /// Takes over the images of the next newer generation, which is merged, too. No reader stands
    /// between the writes of the two, and this one has none of its own any more.
    pub(super) fn absorb(&self, newer: &Generation) {
        for layer in newer.layers() {
            if !layer.images.is_empty() {
                let own = self.layer_for_writing(layer.keyspace, self.min_seq());
                self.images.add(own.images.absorb(&layer.images));
            }
        }
        // ORDER: Release pairs with the Acquire in `max_seq`: who takes this one for the newer one
        // finds its images.
        self.max_seq.fetch_max(newer.max_seq(), Ordering::Release);
    }

    /// The writes of a keyspace, if there may be any.
    #[inline]
    pub(super) fn layer(&self, keyspace: u32) -> Option<Arc<GenerationPart>> {
        self.layers.with(keyspace, Arc::clone)
    }

    /// Calls `read` with the writes of a keyspace, if there may be any.
    #[inline]
    pub(super) fn with_layer<T>(
        &self,
        keyspace: u32,
        read: impl FnOnce(&GenerationPart) -> T,
    ) -> Option<T> {
        self.layers.with(keyspace, |layer| read(layer))
    }

    /// The layers, ascending by the numbers of their keyspaces.
    pub(super) fn layers(&self) -> Vec<Arc<GenerationPart>> {
        self.layers.all()
    }

    /// What a keyspace has, made for its first write, of number `seq`, if it has nothing yet.
    fn layer_for_writing(&self, keyspace: u32, seq: Seq) -> Arc<GenerationPart> {
        let make = || {
            let layer = GenerationPart::new(keyspace, &self.memory, self.keep);
            // No table that comes later knows of older puts than these.
            layer.table.forget_gaps(seq.saturating_sub(1));
            let before = self.before.upgrade();
            if let Some(before) = before.and_then(|before| before.layer(keyspace)) {
                layer.table.take_over_gaps(&before.table);
            }
            layer
        };
        self.layers.get_or_add(keyspace, make)
    }

    /// Inserts a write. One thread at a time does. `protected` are the readers for whom older
    /// deletes of ranges must be kept.
    pub(super) fn insert(
        &self,
        keyspace: u32,
        (kind, key, value): (Kind, &[u8], &[u8]),
        hash: u64,
        seq: Seq,
        protected: impl Fn() -> ProtectedSeqs,
    ) {
        let insert = |layer: &GenerationPart| match kind {
            Kind::DeleteRange => {
                let upper = (!value.is_empty()).then_some(value);
                let range = RangeTombstones::of_range(key, upper, seq);
                if range.is_empty() {
                    return;
                }
                // One thread at a time changes them.
                let protected = LazyCell::new(&protected);
                let deletes = layer.deletes.load().with(range, &protected);
                layer.deletes.store(Arc::new(deletes));
                // ORDER: Release pairs with the Acquire in `has_deletes`.
                layer.has_deletes.store(true, Ordering::Release);
            }
            _ => drop(layer.table.insert(key, hash, seq, kind, value)),
        };
        if self.with_layer(keyspace, insert).is_none() {
            insert(&self.layer_for_writing(keyspace, seq));
        }
        // One thread at a time changes these, so plain stores do.
        let bytes = self.bytes() + (key.len() + value.len()) as u64 + VERSION_BYTES;
        // ORDER: Relaxed; figures for the writer.
        self.bytes.store(bytes, Ordering::Relaxed);
        if seq < self.min_seq() {
            // ORDER: Relaxed; those who ask come after the generation was frozen.
            self.min_seq.store(seq, Ordering::Relaxed);
        }
        if seq > self.max_seq() {
            // ORDER: Release pairs with the Acquire in `max_seq`.
            self.max_seq.store(seq, Ordering::Release);
        }
    }

    /// Inserts writes, each as by [`Generation::insert`]. The memory that some of them begin with
    /// is asked for together.
    pub(super) fn insert_all<'o>(
        &self,
        operations: impl Iterator<Item = LogOp<'o>>,
        protected: impl Fn() -> ProtectedSeqs,
    ) {
        let mut operations = operations.map(|operation| (hash_key(operation.key), operation));
        let mut next = Vec::with_capacity(PREFETCH_OPERATIONS);
        loop {
            next.extend(operations.by_ref().take(PREFETCH_OPERATIONS));
            if next.is_empty() {
                return;
            }
            for (hash, operation) in &next {
                self.prefetch(operation.keyspace, *hash);
            }
            for (hash, operation) in next.drain(..) {
                let change = (operation.kind, operation.key, operation.value);
                self.insert(operation.keyspace, change, hash, operation.seq, &protected);
            }
        }
    }

    /// Asks for the memory that an insert of a key of that hash begins with.
    #[inline]
    pub(super) fn prefetch(&self, keyspace: u32, hash: u64) {
        self.with_layer(keyspace, |layer| layer.table.prefetch(hash));
    }

    /// Bytes of the writes, with what they take beside keys and values.
    pub(super) fn bytes(&self) -> u64 {
        // ORDER: Relaxed, a figure.
        self.bytes.load(Ordering::Relaxed)
    }

    /// Whether at least half of the writes are deletes, or there are deletes of ranges.
    pub(super) fn deletes_much(&self) -> bool {
        let layers = self.layers();
        let items: u64 = layers.iter().map(|layer| layer.table.items() as u64).sum();
        let tombstones: u64 = layers.iter().map(|layer| layer.table.tombstones()).sum();
        let deletes_ranges = layers.iter().any(|layer| layer.has_deletes());
        deletes_ranges || tombstones > 0 && 2 * tombstones >= items
    }

    /// Begins a merge, or begins it again; returns how many bytes [`Generation::note_merged`] is
    /// told for each key.
    pub(super) fn begin_merge(&self) -> u64 {
        let layers = self.layers();
        let keys: usize = layers.iter().map(|layer| layer.table.keys()).sum();
        // ORDER: Relaxed, a figure.
        self.merged.store(0, Ordering::Relaxed);
        self.bytes() / (keys as u64).max(1)
    }

    /// Says that a merge has put so many bytes more into the spaces.
    pub(super) fn note_merged(&self, bytes: u64) {
        // ORDER: Relaxed, a figure.
        self.merged.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Bytes of the writes that no merge has put into the spaces yet, about.
    pub(super) fn bytes_to_merge(&self) -> u64 {
        // ORDER: Relaxed, a figure.
        self.bytes()
            .saturating_sub(self.merged.load(Ordering::Relaxed))
    }

    /// Counts keys that a scan has stepped over; whether they have become enough for
    /// [`Generation::is_in_the_way`].
    pub(super) fn count_steps(&self, steps: u32) -> bool {
        // ORDER: Relaxed, a figure.
        let before = self.steps.fetch_add(steps.into(), Ordering::Relaxed);
        before < self.steps_max() && self.is_in_the_way()
    }

    /// Whether scans have stepped over so many keys that are gone that a merge is less work.
    pub(super) fn is_in_the_way(&self) -> bool {
        // ORDER: Relaxed, a figure.
        self.steps.load(Ordering::Relaxed) >= self.steps_max()
    }

    fn steps_max(&self) -> u64 {
        STEPS_MIN.max(self.bytes() / STEP_BYTES)
    }

    /// Counts bytes of images.
    pub(super) fn add_image_bytes(&self, bytes: u64) {
        self.images.add(bytes);
    }

    /// Bytes of images.
    pub(super) fn image_bytes(&self) -> u64 {
        self.images.bytes()
    }

    /// The number of the oldest write; above all numbers for none.
    pub(super) fn min_seq(&self) -> Seq {
        // ORDER: Relaxed, as in `insert`.
        self.min_seq.load(Ordering::Relaxed)
    }

    /// The number of the newest write; 0 for none.
    pub(super) fn max_seq(&self) -> Seq {
        // ORDER: Acquire pairs with the Release in `insert`.
        self.max_seq.load(Ordering::Acquire)
    }

    /// Whether nothing was written.
    pub(super) fn is_empty(&self) -> bool {
        self.max_seq() == 0
    }

    /// Whether there are writes, or the generation is [`Generation::without_writes`].
    fn has_writes(&self) -> bool {
        self.bytes() > 0
    }
}

/// What readers look at, newest first.
#[derive(Clone)]
pub(super) struct GenerationList {
    /// The generation that takes writes, then those that wait to be merged.
    pub(super) waiting: Vec<Arc<Generation>>,
    /// Merged ones that earlier readers need.
    pub(super) past: Vec<Arc<Generation>>,
}

impl GenerationList {
    /// The generation that takes writes.
    pub(super) fn active(&self) -> &Arc<Generation> {
        &self.waiting[0]
    }

    /// What a reader at a fixed number looks at.
    pub(super) fn for_reader(&self, seq: Seq) -> impl Iterator<Item = &Arc<Generation>> {
        self.waiting.iter().chain(self.past_for_reader(seq))
    }

    /// What of the past it looks at: no generation has larger numbers than a newer one.
    pub(super) fn past_for_reader(&self, seq: Seq) -> impl Iterator<Item = &Arc<Generation>> {
        self.past
            .iter()
            .take_while(move |past| past.max_seq() > seq)
    }

    /// The merged generations, folded as far as these readers let them, newest first.
    pub(super) fn folded_past(&self, readers: &ProtectedSeqs) -> Vec<Arc<Generation>> {
        let stands_in = |from: Seq, to: Seq| {
            let first = readers.stripe(from).map(|stripe| readers.last_of(stripe));
            first.is_some_and(|first| first < to)
        };
        // Oldest first.
        let mut folded: Vec<Arc<Generation>> = Vec::with_capacity(self.past.len());
        for newer in self.past.iter().rev() {
            let older = folded.last();
            match older.filter(|older| !stands_in(older.min_seq(), newer.max_seq())) {
                Some(older) => older.absorb(newer),
                None if newer.has_writes() && !stands_in(newer.min_seq(), newer.max_seq()) => {
                    folded.push(Arc::new(newer.without_writes()));
                }
                None => folded.push(Arc::clone(newer)),
            }
        }
        folded.reverse();
        folded
    }

    /// Bytes of the writes that are not merged.
    pub(super) fn waiting_bytes(&self) -> u64 {
        self.waiting.iter().map(|waiting| waiting.bytes()).sum()
    }

    /// Bytes of the writes that no merge has put into the spaces yet, about.
    pub(super) fn debt(&self) -> u64 {
        let debts = self.waiting.iter().map(|waiting| waiting.bytes_to_merge());
        debts.sum()
    }

    /// What waits to be merged, the oldest last.
    pub(super) fn frozen(&self) -> &[Arc<Generation>] {
        &self.waiting[1..]
    }
}
