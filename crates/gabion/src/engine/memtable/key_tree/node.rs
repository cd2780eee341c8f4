//! A node of the tree: four cache lines, one writer, readers that do not wait (T3, T4).

use std::cmp;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering, fence};

use super::super::arena::{Arena, ArenaRecord, ArenaWriter};
use crate::types::prefix_after;
use gabion_media::prefetch_line;

/// Entries of a node.
pub(super) const SLOTS: usize = 14;

const COUNT_SHIFT: u32 = 56;
const LEVEL_SHIFT: u32 = 60;
const FIELD: u64 = 0xF;

/// All slots in their order, none in use.
const ALL_FREE: u64 = 0x00DC_BA98_7654_3210;

const _: () = assert!(size_of::<NodeData>() == 256 && align_of::<NodeData>() == 64);

/// A node as it lies in the arena.
#[repr(C, align(64))]
pub(super) struct NodeData {
    /// Counts the splits.
    version: AtomicU64,
    places: AtomicU64,
    /// The node behind this one on its level.
    next: AtomicPtr<NodeData>,
    /// The record of the key that is T2's `low`; null when no key is below it.
    low: *mut u8,
    prefixes: [AtomicU64; SLOTS],
    targets: [AtomicPtr<u8>; SLOTS],
}

/// The word `places` of a node.
#[derive(Clone, Copy)]
pub(super) struct SlotOrder(u64);

impl SlotOrder {
    pub(super) fn of_level(level: usize) -> SlotOrder {
        SlotOrder(ALL_FREE | (level as u64) << LEVEL_SHIFT)
    }

    #[inline]
    pub(super) fn count(self) -> usize {
        (self.0 >> COUNT_SHIFT & FIELD) as usize
    }

    #[inline]
    pub(super) fn level(self) -> usize {
        (self.0 >> LEVEL_SHIFT) as usize
    }

    #[inline]
    pub(super) fn slot(self, rank: usize) -> usize {
        (self.0 >> (4 * rank) & FIELD) as usize
    }

    pub(super) fn with_count(self, count: usize) -> SlotOrder {
        SlotOrder(self.0 & !(FIELD << COUNT_SHIFT) | (count as u64) << COUNT_SHIFT)
    }

    /// With the first free slot as the entry of that rank; and the slot.
    pub(super) fn taking(self, rank: usize) -> (SlotOrder, usize) {
        let count = self.count();
        let slot = self.slot(count);
        let below = (1 << (4 * rank)) - 1;
        let up_to_count = (1 << (4 * (count + 1))) - 1;
        let moved = (self.0 & up_to_count & !below & !(FIELD << (4 * count))) << 4;
        let slots = self.0 & below | (slot as u64) << (4 * rank) | moved | self.0 & !up_to_count;
        (SlotOrder(slots).with_count(count + 1), slot)
    }
}

/// What entries are compared with.
#[derive(Clone, Copy)]
pub(super) struct SearchKey<'k> {
    prefix: u64,
    at: At<'k>,
}

#[derive(Clone, Copy)]
enum At<'k> {
    /// In front of all keys.
    Start,
    /// In front of the key.
    Before(&'k [u8]),
    /// Behind the key.
    Behind(&'k [u8]),
    /// Behind all keys.
    End,
}

impl<'k> SearchKey<'k> {
    /// The place of a key, which shares its first `common` bytes with all others: behind an entry
    /// of this key, or in front of it.
    #[inline]
    pub(super) fn new(key: &'k [u8], common: usize, passes_equal: bool) -> SearchKey<'k> {
        let prefix = prefix_after(key, common);
        let at = match passes_equal {
            true => At::Behind(key),
            false => At::Before(key),
        };
        SearchKey { prefix, at }
    }

    /// The place in front of all keys.
    pub(super) fn before_all() -> SearchKey<'k> {
        let (prefix, at) = (0, At::Start);
        SearchKey { prefix, at }
    }

    /// The place behind all keys.
    pub(super) fn behind_all() -> SearchKey<'k> {
        let (prefix, at) = (u64::MAX, At::End);
        SearchKey { prefix, at }
    }

    /// Whether a key comes before the place.
    #[inline]
    fn is_behind(&self, key: &[u8]) -> bool {
        match self.at {
            At::Start => false,
            At::Before(place) => key < place,
            At::Behind(place) => key <= place,
            At::End => true,
        }
    }
}

/// A node of a tree whose arena outlives `'a`.
#[derive(Clone, Copy)]
pub(super) struct KeyNode<'a> {
    at: NonNull<NodeData>,
    arena: PhantomData<&'a Arena>,
}

/// An entry: its prefix and its target.
#[derive(Clone, Copy)]
pub(super) struct NodeEntry {
    pub(super) prefix: u64,
    pub(super) target: *mut u8,
}

impl<'a> KeyNode<'a> {
    /// The node at `at`, if there is one.
    ///
    /// # Safety
    /// `at` is null or leads to a node of an arena that outlives `'a`, whose writing happened
    /// before this call.
    #[inline]
    pub(super) unsafe fn from_raw(at: *mut NodeData) -> Option<KeyNode<'a>> {
        let arena = PhantomData;
        NonNull::new(at).map(|at| KeyNode { at, arena })
    }

    #[inline]
    fn data(self) -> &'a NodeData {
        // SAFETY: a node is made of a pointer to initialised data that outlives 'a; what changes
        // in it are atomics.
        unsafe { self.at.as_ref() }
    }

    #[inline]
    pub(super) fn prefetch(self) {
        for line in 0..size_of::<NodeData>() / 64 {
            prefetch_line(self.at.as_ptr().cast::<u8>().wrapping_add(64 * line));
        }
    }

    #[inline]
    pub(super) fn places(self) -> SlotOrder {
        // ORDER: Acquire pairs with the Release in `put` and `cut`: the slots are filled.
        SlotOrder(self.data().places.load(Ordering::Acquire))
    }

    /// The node behind this one on its level, or null.
    #[inline]
    pub(super) fn next_ptr(self) -> *mut NodeData {
        // ORDER: Acquire pairs with the Release in `link`: the node is there.
        self.data().next.load(Ordering::Acquire)
    }

    /// Makes `next` the node behind this one. For the writer.
    pub(super) fn link(self, next: *mut NodeData) {
        // ORDER: Release pairs with the Acquire in `next_ptr`: the node is there.
        self.data().next.store(next, Ordering::Release);
    }

    /// Where the node lies.
    pub(super) fn as_ptr(self) -> *mut NodeData {
        self.at.as_ptr()
    }

    /// Whether a key of the node, or of one in front of it, comes before what is wanted.
    pub(super) fn begins_before(self, wanted: &SearchKey<'_>) -> bool {
        self.low().is_none_or(|low| wanted.is_behind(low.key()))
    }

    /// The record of the smallest key that the node may have, if it is not the first of its level.
    #[inline]
    fn low(self) -> Option<ArenaRecord<'a>> {
        // SAFETY: `low` is a record that was published before the node was.
        NonNull::new(self.data().low).map(|at| unsafe { ArenaRecord::from_raw(at) })
    }

    #[inline]
    pub(super) fn entry(self, slot: usize) -> NodeEntry {
        let data = self.data();
        // ORDER: Relaxed for the prefix, which `places` published; Acquire for the target pairs
        // with the Release in `put` and `replace`: what it leads to is there.
        NodeEntry {
            prefix: data.prefixes[slot].load(Ordering::Relaxed),
            target: data.targets[slot].load(Ordering::Acquire),
        }
    }

    /// The record that an entry of this level leads to, or `low` of the node.
    #[inline]
    pub(super) fn first_of(self, level: usize, entry: NodeEntry) -> Option<ArenaRecord<'a>> {
        if level == 0 {
            // SAFETY: a leaf's targets are published records of the arena.
            return NonNull::new(entry.target).map(|at| unsafe { ArenaRecord::from_raw(at) });
        }
        self.child(entry).and_then(KeyNode::low)
    }

    /// The node that the entry of a rank leads to, above the leaves.
    #[inline]
    pub(super) fn child_at(self, places: SlotOrder, rank: usize) -> Option<KeyNode<'a>> {
        debug_assert!(places.level() > 0);
        self.child(self.entry(places.slot(rank)))
    }

    #[inline]
    fn child(self, entry: NodeEntry) -> Option<KeyNode<'a>> {
        #[expect(clippy::cast_ptr_alignment, reason = "such a target is a node")]
        let at = entry.target.cast::<NodeData>();
        // SAFETY: above the leaves, targets are published nodes of the arena.
        unsafe { KeyNode::from_raw(at) }
    }

    /// Whether an entry of this level comes before what is wanted.
    #[inline]
    fn is_before(self, level: usize, entry: NodeEntry, wanted: &SearchKey<'_>) -> bool {
        match entry.prefix.cmp(&wanted.prefix) {
            cmp::Ordering::Equal => {
                let first = self.first_of(level, entry);
                first.is_none_or(|first| wanted.is_behind(first.key()))
            }
            order => order == cmp::Ordering::Less,
        }
    }

    /// The number of entries that come before what is wanted.
    #[inline]
    pub(super) fn count_before(self, places: SlotOrder, wanted: &SearchKey<'_>) -> usize {
        let (mut from, mut to) = (0, places.count());
        while from < to {
            let middle = usize::midpoint(from, to);
            let entry = self.entry(places.slot(middle));
            if self.is_before(places.level(), entry, wanted) {
                from = middle + 1;
            } else {
                to = middle;
            }
        }
        from
    }

    /// What `read` finds in the node, of which nothing was read that a split had changed meanwhile.
    #[inline]
    pub(super) fn read<T>(self, read: impl Fn(SlotOrder) -> T) -> T {
        loop {
            // ORDER: Acquire pairs with the Release in `cut`: from this version on the entries that
            // were cut are not seen in `places`.
            let version = self.data().version.load(Ordering::Acquire);
            let result = read(self.places());
            // ORDER: Acquire pairs with the Release fence in `cut`: who has read a slot that was
            // filled again after a split finds another version.
            fence(Ordering::Acquire);
            // ORDER: Relaxed, ordered by the fence.
            if self.data().version.load(Ordering::Relaxed) == version {
                return result;
            }
        }
    }

    /// Puts an entry at a rank. For the writer, of a node that is not full.
    pub(super) fn put(self, rank: usize, entry: NodeEntry) {
        let (places, slot) = self.places().taking(rank);
        let data = self.data();
        // ORDER: Relaxed, `places` publishes it.
        data.prefixes[slot].store(entry.prefix, Ordering::Relaxed);
        // ORDER: Release pairs with the Acquire in `entry`; and that in `places`.
        data.targets[slot].store(entry.target, Ordering::Release);
        data.places.store(places.0, Ordering::Release);
    }

    /// Leaves only the first `count` entries. For the writer.
    pub(super) fn cut(self, count: usize) {
        let data = self.data();
        let places = self.places().with_count(count);
        // ORDER: Release pairs with the Acquire in `places`, so that `next` is seen with it.
        data.places.store(places.0, Ordering::Release);
        // ORDER: Relaxed; only the writer stores it.
        let version = data.version.load(Ordering::Relaxed) + 1;
        // ORDER: Release and the fence pair with the Acquire and the fence in `read`.
        data.version.store(version, Ordering::Release);
        fence(Ordering::Release);
    }

    /// Makes the entry at a slot lead to a newer version of its key. For the writer.
    pub(super) fn replace(self, slot: usize, record: ArenaRecord<'_>) {
        // ORDER: Release pairs with the Acquire in `entry`: the record is there.
        self.data().targets[slot].store(record.as_ptr(), Ordering::Release);
    }

    /// A node that nobody sees yet, in front of `next`; its first key is that of `low`.
    pub(super) fn create(
        arena: &'a mut ArenaWriter,
        level: usize,
        entries: &[NodeEntry],
        low: Option<ArenaRecord<'_>>,
        next: *mut NodeData,
    ) -> KeyNode<'a> {
        let at = arena
            .reserve_lines(size_of::<NodeData>())
            .cast::<NodeData>();
        let entry_at = |slot: usize| entries.get(slot);
        let data = NodeData {
            version: AtomicU64::new(0),
            places: AtomicU64::new(SlotOrder::of_level(level).with_count(entries.len()).0),
            next: AtomicPtr::new(next),
            low: low.map_or(std::ptr::null_mut(), ArenaRecord::as_ptr),
            prefixes: std::array::from_fn(|slot| {
                AtomicU64::new(entry_at(slot).map_or(0, |entry| entry.prefix))
            }),
            targets: std::array::from_fn(|slot| {
                AtomicPtr::new(entry_at(slot).map_or(std::ptr::null_mut(), |entry| entry.target))
            }),
        };
        // SAFETY: the lines were reserved for us, are aligned and large enough; nobody else knows
        // them yet.
        unsafe { at.write(data) };
        let arena = PhantomData;
        KeyNode { at, arena }
    }
}
