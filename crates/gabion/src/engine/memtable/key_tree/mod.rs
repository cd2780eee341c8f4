//! The keys of a MemTable in order: a tree that is kept while records are inserted.
//!
//! # Idea
//! A bucket that is searched by range between its writes would sort again for every search (paper,
//! section 2.3.4: such a bucket gets a skip list). Here the hash table stays, so that gets and the
//! search for older versions cost what they cost before, and a tree is kept beside it, over the
//! same records: one entry for each key, which leads to the newest version. Versions follow each
//! other by their links, so a key that is updated for ever has one entry.
//!
//! A skip list costs a wait for memory at each of its steps, a dozen in a table of 20,000 keys, and
//! another for every key that is walked over. A node of this tree is four cache lines that come
//! together; it holds up to 14 entries with the first eight bytes of their keys, so a search waits
//! about four times, and a walk knows the next records ahead.
//!
//! # Layout
//! | word of a node | bits | meaning |
//! |---|---|---|
//! | places | 4 i .. 4 i + 4 | the slot of the `i`-th smallest entry; then the free slots |
//! | places | 56..60, 60..64 | number of entries, level of the node (0: leaf) |
//! | prefix | | the number of the entry's key ([`prefix_after`] the bytes that all keys share) |
//! | target | | leaf: the newest version of the key; else a node of the level below |
//!
//! # Invariants
//! - T1: there is one writer at a time, which has the table's lock. Readers take no lock and wait
//!   for nobody: they repeat what they have read of a node only when it was split meanwhile.
//! - T2: the leaves are a list in the order of the keys. Each node has a `low` that never changes:
//!   no key of it, and none of any node behind it on its level, is below.
//! - T3: a node takes an entry by filling a free slot, then storing `places`. A slot in use changes
//!   its target only from one version of its key to a newer one.
//! - T4: a split copies the upper entries to a new node, tells the level above of it, links it
//!   behind the old one, cuts them from the old one's `places`, counts up `version`, and only then
//!   fills their slots again. So whoever finds the same `version` before and after has read no slot
//!   that was filled again; and in between the upper entries are found in two nodes, never in none.
//! - T5: who searches goes down to a node that is not behind the entry it looks for, and then along
//!   the leaves. A node that was split while the search was on its way costs steps along the
//!   leaves, no more.
//! - T6: nodes and records are written before the word that leads to them is stored, with Release,
//!   and freed with the arena.

mod cursor;
mod node;

use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};

use super::arena::{Arena, ArenaRecord, ArenaWriter};
use crate::types::prefix_after;

pub(super) use cursor::OrderCursor;

use node::{KeyNode, NodeData, NodeEntry, SLOTS, SearchKey};

/// Entries that stay in a node that is split, unless the new entry is the last of all.
const SLOTS_LEFT: usize = SLOTS / 2;

/// Most levels: nodes have at least seven entries, but for the last ones of their levels.
const LEVELS_MAX: usize = 16;

/// The nodes from the leaf up that an insert came through.
type Path<'a> = [Option<KeyNode<'a>>; LEVELS_MAX];

/// The tree of a table.
pub(super) struct KeyTree {
    root: AtomicPtr<NodeData>,
    /// Bytes that all keys share.
    common: usize,
}

impl KeyTree {
    /// An empty tree of keys that share their first `common` bytes, or more.
    pub(super) fn new(common: usize) -> KeyTree {
        let root = AtomicPtr::default();
        KeyTree { root, common }
    }

    /// Takes all that is in `other`, which lies in the same arena and has the same bytes in common.
    /// Readers see it from here on. For the writer.
    pub(super) fn adopt(&self, other: &KeyTree) {
        debug_assert_eq!(self.common, other.common);
        // ORDER: Relaxed; `other` is the caller's alone.
        let root = other.root.load(Ordering::Relaxed);
        // ORDER: Release pairs with the Acquire in `root_ptr`: the nodes are there.
        self.root.store(root, Ordering::Release);
    }

    /// Bytes that all keys share.
    pub(super) fn common(&self) -> usize {
        self.common
    }

    /// Whether there is any key in the tree.
    #[inline]
    pub(super) fn has_keys(&self) -> bool {
        !self.root_ptr().is_null()
    }

    /// A cursor over all that is in the tree now, and maybe over what is inserted later. `arena` is
    /// the table's.
    pub(super) fn cursor(&self, arena: &Arc<Arena>) -> OrderCursor {
        // SAFETY: the tree lies in the table's arena, and the root that was read is published.
        unsafe { OrderCursor::new(arena, self.root_ptr(), self.common) }
    }

    #[inline]
    fn root_ptr(&self) -> *mut NodeData {
        // ORDER: Acquire pairs with the Release in `set_root` and `adopt`: the node is there.
        self.root.load(Ordering::Acquire)
    }

    fn set_root(&self, node: KeyNode<'_>) {
        // ORDER: Release pairs with the Acquire in `root_ptr`: the node is there.
        self.root.store(node.as_ptr(), Ordering::Release);
    }

    /// Inserts a version of a key, unless there is a newer one. `arena` is the table's, and holds
    /// the record.
    pub(super) fn insert(&self, arena: &mut ArenaWriter, record: ArenaRecord<'_>) {
        let key = record.key();
        let entry = NodeEntry {
            prefix: prefix_after(key, self.common),
            target: record.as_ptr(),
        };
        // SAFETY: null or a node of the arena, which the table holds.
        let Some(mut node) = (unsafe { KeyNode::from_raw(self.root_ptr()) }) else {
            let next = std::ptr::null_mut();
            self.set_root(KeyNode::create(arena, 0, &[entry], None, next));
            return;
        };
        let mut path: Path<'_> = [None; LEVELS_MAX];
        let behind = SearchKey::new(key, self.common, true);
        let mut places = node.places();
        while places.level() > 0 {
            path[places.level()] = Some(node);
            let rank = node.count_before(places, &behind).saturating_sub(1);
            let child = node.child_at(places, rank);
            node = child.expect("a node above the leaves has entries");
            node.prefetch();
            places = node.places();
        }
        path[0] = Some(node);
        // The entries that are not behind the key: the last of them may be the key's.
        let passed = node.count_before(places, &behind);
        if let Some(rank) = passed.checked_sub(1) {
            let slot = places.slot(rank);
            let last = node.first_of(0, node.entry(slot));
            if let Some(last) = last.filter(|last| last.key() == key) {
                // Who puts a table in order meets versions in the order of their places (T3). The
                // later record of a number has more below it (`Directory::insert_below`).
                if last.seq() <= record.seq() {
                    node.replace(slot, record);
                }
                return;
            }
        }
        self.add(arena, &path, 0, entry, key);
    }

    /// Adds an entry whose first key is `key` to the node of the path on that level, which has no
    /// entry of this key.
    fn add(
        &self,
        arena: &mut ArenaWriter,
        path: &Path<'_>,
        level: usize,
        entry: NodeEntry,
        key: &[u8],
    ) {
        let node = path[level].expect("the path begins at the root");
        let places = node.places();
        let rank = node.count_before(places, &SearchKey::new(key, self.common, false));
        let count = places.count();
        if count < SLOTS {
            node.put(rank, entry);
            return;
        }
        // Where keys ascend, nodes stay full.
        let is_last = rank == count && node.next_ptr().is_null();
        let cut = if is_last { count } else { SLOTS_LEFT };
        let goes_up = rank > cut || is_last;
        let mut upper = Vec::with_capacity(SLOTS);
        upper.extend((cut..count).map(|rank| node.entry(places.slot(rank))));
        if goes_up {
            upper.insert(rank - cut, entry);
        }
        let low = node
            .first_of(level, upper[0])
            .expect("only the first node has no lower bound");
        let right = KeyNode::create(arena, level, &upper, Some(low), node.next_ptr()).as_ptr();
        let above = NodeEntry {
            prefix: prefix_after(low.key(), self.common),
            target: right.cast(),
        };
        if path[level + 1].is_some() {
            self.add(arena, path, level + 1, above, low.key());
        } else {
            let first = NodeEntry {
                prefix: 0,
                target: node.as_ptr().cast(),
            };
            let next = std::ptr::null_mut();
            self.set_root(KeyNode::create(
                arena,
                level + 1,
                &[first, above],
                None,
                next,
            ));
        }
        node.link(right);
        if cut < count {
            node.cut(cut);
        }
        if !goes_up {
            node.put(rank, entry);
        }
    }
}
