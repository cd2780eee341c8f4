//! A cursor over the tree of a MemTable.
//!
//! # Idea
//! The cursor copies what a leaf leads to when it comes there, and walks over the copy: it looks at
//! no node for the next steps, knows the records ahead, and what is inserted meanwhile does not
//! concern it. Going forward it follows the list of the leaves; going backward it searches for the
//! leaf in front of the one it leaves. The versions of a key are found by their links, newest
//! first; going backward the cursor notes those that it passed on its way to the oldest.
//!
//! # Invariants
//! - C1: `current` is null or a version of the key at `rank` of the leaf.
//! - C2: `newer` is empty, or holds all versions of that key that are newer than the current one,
//!   the newest first.

use std::ptr::NonNull;
use std::sync::Arc;

use super::super::arena::{Arena, ArenaRecord, PREFETCH_BYTES};
use super::node::{KeyNode, NodeData, SLOTS, SearchKey};
use crate::types::{Kind, Seq};

/// Records that a walk asks for ahead.
const PREFETCH_DISTANCE: usize = 6;
/// Records that a search asks for ahead: it may end where it began.
const PREFETCH_FIRST: usize = 1;

/// What was read of a leaf: the newest versions of some keys that follow each other.
struct Leaf {
    records: [*mut u8; SLOTS],
    count: usize,
    /// The leaf behind it.
    next: *mut NodeData,
}

/// A cursor over the records of a table: by key, then newest first. It stands on no record until it
/// is moved, and it keeps the memory of the table.
pub(crate) struct OrderCursor {
    /// Holds the memory that all pointers lead to.
    _arena: Arc<Arena>,
    root: *mut NodeData,
    common: usize,
    leaf: Leaf,
    rank: usize,
    current: *mut u8,
    newer: Vec<*mut u8>,
}

// SAFETY: all pointers lead into the arena, which may be used from any thread and is held.
unsafe impl Send for OrderCursor {}
// SAFETY: as above; a shared cursor only reads what is not written any more.
unsafe impl Sync for OrderCursor {}

impl OrderCursor {
    /// A cursor over the tree that begins at `root` (null: an empty one), all of whose keys share
    /// `common` bytes.
    ///
    /// # Safety
    /// The tree lies in the arena, and `root` was published before the call.
    pub(super) unsafe fn new(
        arena: &Arc<Arena>,
        root: *mut NodeData,
        common: usize,
    ) -> OrderCursor {
        OrderCursor {
            _arena: Arc::clone(arena),
            root,
            common,
            leaf: Leaf::EMPTY,
            rank: 0,
            current: std::ptr::null_mut(),
            newer: Vec::new(),
        }
    }

    /// Asks for the memory that a search begins with.
    pub(in super::super) fn prefetch(&self) {
        if let Some(root) = self.node(self.root) {
            root.prefetch();
        }
    }

    /// Moves to the first record.
    pub(in super::super) fn seek_first(&mut self) {
        let (leaf, rank) = self.find(None);
        self.stand(leaf, rank);
    }

    /// Moves to the last record.
    pub(in super::super) fn seek_last(&mut self) {
        let (leaf, count) = self.find_before(None);
        self.stand_at_end(leaf, count);
    }

    /// Moves to the first record whose key is not below `key`.
    pub(in super::super) fn seek(&mut self, key: &[u8]) {
        let (leaf, rank) = self.find(Some(key));
        self.stand(leaf, rank);
    }

    /// Moves to the last record whose key is below `key`.
    pub(in super::super) fn seek_before(&mut self, key: &[u8]) {
        let (leaf, count) = self.find_before(Some(key));
        self.stand_at_end(leaf, count);
    }

    /// Moves to the next record. The cursor must be valid.
    #[inline]
    pub(in super::super) fn next(&mut self) {
        match self.record().older() {
            Some(older) => {
                self.current = older.as_ptr();
                self.newer.clear();
            }
            None => self.next_key(),
        }
    }

    /// Moves to the first record of the next key. The cursor must be valid.
    #[inline]
    pub(in super::super) fn next_key(&mut self) {
        self.rank += 1;
        if self.rank < self.leaf.count {
            self.newer.clear();
            self.current = self.leaf.records[self.rank];
            self.prefetch_record(self.rank + PREFETCH_DISTANCE);
        } else {
            self.next_leaf();
        }
    }

    /// Moves to the previous record. The cursor must be valid.
    pub(in super::super) fn prev(&mut self) {
        if let Some(newer) = self.newer.pop() {
            self.current = newer;
            return;
        }
        let current = self.current;
        self.note_newer(|record| record.as_ptr() == current);
        if let Some(newer) = self.newer.pop() {
            self.current = newer;
        } else if self.rank > 0 {
            self.rank -= 1;
            self.go_to_oldest();
        } else {
            let (leaf, count) = self.find_before(Some(self.record().key()));
            self.stand_at_end(leaf, count);
        }
    }

    /// Whether the cursor stands on a record; the methods below need that.
    #[inline]
    pub(in super::super) fn valid(&self) -> bool {
        !self.current.is_null()
    }

    /// The record's key.
    #[inline]
    pub(in super::super) fn key(&self) -> &[u8] {
        self.record().key()
    }

    /// The record's sequence number.
    #[inline]
    pub(in super::super) fn seq(&self) -> Seq {
        self.record().seq()
    }

    /// The record's kind.
    #[inline]
    pub(in super::super) fn kind(&self) -> Kind {
        self.record().kind()
    }

    /// The record's value.
    #[inline]
    pub(in super::super) fn value_bytes(&self) -> &[u8] {
        self.record().value()
    }

    #[inline]
    fn record(&self) -> ArenaRecord<'_> {
        self.record_of(self.current).expect("the cursor is valid")
    }

    /// The record behind a pointer of the cursor's.
    #[inline]
    fn record_of(&self, at: *mut u8) -> Option<ArenaRecord<'_>> {
        // SAFETY: what the cursor took from leaves and from links of records are published records
        // of the arena, which it holds.
        NonNull::new(at).map(|at| unsafe { ArenaRecord::from_raw(at) })
    }

    /// The node behind a pointer of the cursor's.
    #[inline]
    fn node(&self, at: *mut NodeData) -> Option<KeyNode<'_>> {
        // SAFETY: the root and what the cursor took from leaves are published nodes of the arena,
        // which it holds, or null.
        unsafe { KeyNode::from_raw(at) }
    }

    /// Stands on the newest version of the key at `rank`, or on nothing behind the end.
    fn stand(&mut self, leaf: Leaf, rank: usize) {
        self.leaf = leaf;
        self.rank = rank;
        self.newer.clear();
        self.current = std::ptr::null_mut();
        if rank < self.leaf.count {
            self.current = self.leaf.records[rank];
            for ahead in 0..=PREFETCH_FIRST {
                self.prefetch_record(rank + ahead);
            }
        }
    }

    /// Stands on the oldest version of the last of the leaf's first `count` keys.
    fn stand_at_end(&mut self, leaf: Leaf, count: usize) {
        self.leaf = leaf;
        self.current = std::ptr::null_mut();
        self.newer.clear();
        if let Some(rank) = count.checked_sub(1) {
            self.rank = rank;
            self.go_to_oldest();
        }
    }

    /// Goes to the oldest version of the key at the current rank.
    fn go_to_oldest(&mut self) {
        self.newer.clear();
        self.note_newer(|record| record.older().is_none());
        self.prefetch_record(self.rank.wrapping_sub(PREFETCH_DISTANCE));
    }

    /// Goes to the first version, from the newest on, of the current rank's key for which
    /// `is_wanted` holds, and notes those in front of it.
    fn note_newer(&mut self, is_wanted: impl Fn(ArenaRecord<'_>) -> bool) {
        let mut at = self.leaf.records[self.rank];
        while let Some(record) = self.record_of(at).filter(|record| !is_wanted(*record)) {
            let older = record
                .older()
                .map_or(std::ptr::null_mut(), ArenaRecord::as_ptr);
            self.newer.push(at);
            at = older;
        }
        self.current = at;
    }

    #[inline]
    fn prefetch_record(&self, rank: usize) {
        let records = &self.leaf.records[..self.leaf.count];
        if let Some(record) = records.get(rank).and_then(|at| self.record_of(*at)) {
            record.prefetch(PREFETCH_BYTES);
        }
    }

    /// A leaf that is not behind the last entry that comes before what is wanted.
    fn descend(&self, wanted: &SearchKey<'_>) -> Option<KeyNode<'_>> {
        let mut node = self.node(self.root)?;
        while node.places().level() > 0 {
            let before = |places| node.count_before(places, wanted);
            node = node.read(|places| node.child_at(places, before(places).saturating_sub(1)))?;
            node.prefetch();
        }
        Some(node)
    }

    /// The leaf with the first key that is not below `key`, of all keys for `None`, and the key's
    /// rank; where there is none, a leaf and the number of its keys.
    fn find(&self, key: Option<&[u8]>) -> (Leaf, usize) {
        let first = SearchKey::before_all();
        let wanted = |passes| key.map_or(first, |key| SearchKey::new(key, self.common, passes));
        match self.descend(&wanted(true)) {
            Some(node) => self.read_from(node, &wanted(false)),
            None => (Leaf::EMPTY, 0),
        }
    }

    /// From `node` on, the leaf with the first key that does not come before what is wanted, and
    /// the key's rank; where there is none, the last leaf and the number of its keys.
    fn read_from<'c>(&'c self, mut node: KeyNode<'c>, wanted: &SearchKey<'_>) -> (Leaf, usize) {
        loop {
            let (leaf, before) = Leaf::read(node, wanted);
            match self.node(leaf.next) {
                Some(next) if before == leaf.count => node = next,
                _ => return (leaf, before),
            }
        }
    }

    /// The leaf with the last key that is below `key`, or with the last key of all, and how many of
    /// the leaf's keys are not behind it; 0 when there is none.
    fn find_before(&self, key: Option<&[u8]>) -> (Leaf, usize) {
        let wanted = key.map_or(SearchKey::behind_all(), |key| {
            SearchKey::new(key, self.common, false)
        });
        let Some(mut node) = self.descend(&wanted) else {
            return (Leaf::EMPTY, 0);
        };
        loop {
            let (leaf, before) = Leaf::read(node, &wanted);
            let goes_on = |next: &KeyNode<'_>| before == leaf.count && next.begins_before(&wanted);
            match self.node(leaf.next).filter(goes_on) {
                Some(next) => node = next,
                None => return (leaf, before),
            }
        }
    }

    /// Goes on in the next leaf, behind the last key of this one: some of its keys are there as
    /// well when the leaf was split while it was read.
    fn next_leaf(&mut self) {
        let last = self.record_of(self.leaf.records[self.leaf.count - 1]);
        let passed = last.map(|last| SearchKey::new(last.key(), self.common, true));
        let (leaf, rank) = match (self.node(self.leaf.next), passed) {
            (Some(next), Some(passed)) => self.read_from(next, &passed),
            _ => (Leaf::EMPTY, 0),
        };
        self.stand(leaf, rank);
        if let Some(next) = self.node(self.leaf.next) {
            next.prefetch();
        }
    }
}

impl Leaf {
    /// A leaf without keys, behind which there is nothing.
    const EMPTY: Leaf = Leaf {
        records: [std::ptr::null_mut(); SLOTS],
        count: 0,
        next: std::ptr::null_mut(),
    };

    /// What is in a leaf, and how many of its keys come before what is wanted.
    #[inline]
    fn read(node: KeyNode<'_>, wanted: &SearchKey<'_>) -> (Leaf, usize) {
        node.read(|places| {
            let mut leaf = Leaf::EMPTY;
            leaf.count = places.count();
            for (rank, record) in leaf.records[..places.count()].iter_mut().enumerate() {
                *record = node.entry(places.slot(rank)).target;
            }
            // Read after `places`: where those are cut already, it is the node with the rest.
            leaf.next = node.next_ptr();
            (leaf, node.count_before(places, wanted))
        })
    }
}
