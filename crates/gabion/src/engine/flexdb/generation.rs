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

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use arc_swap::ArcSwap;
use parking_lot::RwLock;

use crate::Slice;
use crate::engine::memtable::{ChunkPool, KeepOrder, MemTable};
use crate::engine::range_deletes::Fragments;
use crate::engine::snapshots::Protected;
use crate::types::{Kind, Seq};

/// Memory that a version takes beside its key and value, roughly.
const VERSION_BYTES: u64 = 48;

/// What a generation says about a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Said {
    Nothing,
    Deleted,
    Value(Slice),
}

/// The writes of one keyspace.
pub(super) struct Layer {
    pub(super) table: MemTable,
    deletes: ArcSwap<Fragments>,
    has_deletes: AtomicBool,
    images: RwLock<BTreeMap<Vec<u8>, Option<Slice>>>,
    has_images: AtomicBool,
}

impl Layer {
    fn new(pool: &Arc<ChunkPool>, keep: KeepOrder) -> Layer {
        Layer {
            table: MemTable::with_order(pool, 0, keep, 0),
            deletes: ArcSwap::default(),
            has_deletes: AtomicBool::new(false),
            images: RwLock::default(),
            has_images: AtomicBool::new(false),
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

    /// The deleted ranges.
    pub(super) fn deletes(&self) -> Arc<Fragments> {
        self.deletes.load_full()
    }

    /// The newest delete of a range with `key` that a reader at `seq` sees; 0 for none.
    #[inline]
    pub(super) fn deleted(&self, key: &[u8], seq: Seq) -> Seq {
        if !self.has_deletes() {
            return 0;
        }
        let deletes = self.deletes.load();
        deletes.find(key).map_or(0, |found| found.newest(seq))
    }

    /// The newest that a reader at `seq` may know of `key`.
    #[inline]
    pub(super) fn get(&self, key: &[u8], hash: u64, seq: Seq) -> Said {
        let entry = self.table.get(key, hash, seq);
        let deleted = self.deleted(key, seq);
        match entry {
            Some(entry) if entry.seq > deleted => match entry.kind {
                Kind::Put => Said::Value(Slice::new(entry.value)),
                _ => Said::Deleted,
            },
            _ if deleted > 0 => Said::Deleted,
            _ => Said::Nothing,
        }
    }

    /// Notes what the space holds of a key that is about to change. The first note counts.
    pub(super) fn note_image(&self, key: &[u8], value: Option<Slice>) -> u64 {
        let mut images = self.images.write();
        if images.contains_key(key) {
            return 0;
        }
        let bytes = key.len() as u64 + value.as_ref().map_or(0, |value| value.len() as u64);
        images.insert(key.to_vec(), value);
        // ORDER: Release pairs with the Acquire in `image`.
        self.has_images.store(true, Ordering::Release);
        bytes + VERSION_BYTES
    }

    /// What the space held of a key before it changed, if it has.
    pub(super) fn image(&self, key: &[u8]) -> Option<Option<Slice>> {
        // ORDER: Acquire pairs with the Release in `note_image`.
        if !self.has_images.load(Ordering::Acquire) {
            return None;
        }
        self.images.read().get(key).cloned()
    }

    /// The images of keys in a range.
    pub(super) fn images(
        &self,
        lower: &[u8],
        upper: Option<&[u8]>,
    ) -> Vec<(Vec<u8>, Option<Slice>)> {
        // ORDER: Acquire pairs with the Release in `note_image`.
        if !self.has_images.load(Ordering::Acquire) || upper.is_some_and(|upper| upper <= lower) {
            return Vec::new();
        }
        let upper = upper.map_or(Bound::Unbounded, Bound::Excluded);
        let images = self.images.read();
        let range = images.range::<[u8], _>((Bound::Included(lower), upper));
        range
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect()
    }
}

/// All writes between two numbers.
pub(super) struct Generation {
    /// One more than that of the generation before.
    pub(super) number: u64,
    /// No write of the generation is in an older segment of the log.
    pub(super) first_segment: u64,
    pool: Arc<ChunkPool>,
    keep: KeepOrder,
    /// By keyspace.
    layers: ArcSwap<Vec<Arc<Layer>>>,
    /// Keys, values and what comes with them.
    bytes: AtomicU64,
    image_bytes: AtomicU64,
    /// The number of the newest write.
    max_seq: AtomicU64,
}

impl Generation {
    pub(super) fn new(
        number: u64,
        first_segment: u64,
        pool: &Arc<ChunkPool>,
        keep: KeepOrder,
    ) -> Generation {
        Generation {
            number,
            first_segment,
            pool: Arc::clone(pool),
            keep,
            layers: ArcSwap::default(),
            bytes: AtomicU64::new(0),
            image_bytes: AtomicU64::new(0),
            max_seq: AtomicU64::new(0),
        }
    }

    /// The writes of a keyspace, if there may be any.
    #[inline]
    pub(super) fn layer(&self, keyspace: u32) -> Option<Arc<Layer>> {
        self.layers.load().get(keyspace as usize).cloned()
    }

    /// Calls `read` with the writes of a keyspace, if there may be any.
    #[inline]
    pub(super) fn with_layer<T>(&self, keyspace: u32, read: impl FnOnce(&Layer) -> T) -> Option<T> {
        self.layers
            .load()
            .get(keyspace as usize)
            .map(|layer| read(layer))
    }

    /// The layers, by keyspace.
    pub(super) fn layers(&self) -> Arc<Vec<Arc<Layer>>> {
        self.layers.load_full()
    }

    fn layer_for_writing(&self, keyspace: u32) -> Arc<Layer> {
        if let Some(layer) = self.layer(keyspace) {
            return layer;
        }
        let mut layers = self.layers.load().to_vec();
        while layers.len() <= keyspace as usize {
            layers.push(Arc::new(Layer::new(&self.pool, self.keep)));
        }
        let layer = Arc::clone(&layers[keyspace as usize]);
        self.layers.store(Arc::new(layers));
        layer
    }

    /// Inserts a write. One thread at a time does. `protected` are the readers for whom older
    /// deletes of ranges must be kept.
    pub(super) fn insert(
        &self,
        keyspace: u32,
        (kind, key, value): (Kind, &[u8], &[u8]),
        hash: u64,
        seq: Seq,
        protected: impl Fn() -> Protected,
    ) {
        let insert = |layer: &Layer| match kind {
            Kind::DeleteRange => {
                let upper = (!value.is_empty()).then_some(value);
                let range = Fragments::of_range(key, upper, seq);
                let deletes = layer.deletes.load();
                let united = Fragments::union([&**deletes, &range], &protected());
                layer.deletes.store(Arc::new(united));
                // ORDER: Release pairs with the Acquire in `has_deletes`.
                layer.has_deletes.store(true, Ordering::Release);
            }
            _ => drop(layer.table.insert(key, hash, seq, kind, value)),
        };
        if self.with_layer(keyspace, insert).is_none() {
            insert(&self.layer_for_writing(keyspace));
        }
        let bytes = (key.len() + value.len()) as u64 + VERSION_BYTES;
        // ORDER: Relaxed; figures for the writer, who alone changes them.
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        // ORDER: Release pairs with the Acquire in `max_seq`.
        self.max_seq.fetch_max(seq, Ordering::Release);
    }

    /// Bytes of the writes, with what they take beside keys and values.
    pub(super) fn bytes(&self) -> u64 {
        // ORDER: Relaxed, a figure.
        self.bytes.load(Ordering::Relaxed)
    }

    /// Counts bytes of images.
    pub(super) fn add_image_bytes(&self, bytes: u64) {
        // ORDER: Relaxed, a figure.
        self.image_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Bytes of images.
    pub(super) fn image_bytes(&self) -> u64 {
        // ORDER: Relaxed, a figure.
        self.image_bytes.load(Ordering::Relaxed)
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
}

/// What readers look at, newest first.
#[derive(Clone)]
pub(super) struct View {
    /// The generation that takes writes, then those that wait to be merged.
    pub(super) waiting: Vec<Arc<Generation>>,
    /// Merged ones that earlier readers need.
    pub(super) past: Vec<Arc<Generation>>,
}

impl View {
    /// The generation that takes writes.
    pub(super) fn active(&self) -> &Arc<Generation> {
        &self.waiting[0]
    }

    /// What a reader at a fixed number looks at.
    pub(super) fn for_reader(&self, seq: Seq) -> impl Iterator<Item = &Arc<Generation>> {
        let past = self.past.iter().filter(move |past| past.max_seq() > seq);
        self.waiting.iter().chain(past)
    }

    /// What waits to be merged, the oldest last.
    pub(super) fn frozen(&self) -> &[Arc<Generation>] {
        &self.waiting[1..]
    }
}
