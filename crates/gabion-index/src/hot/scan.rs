//! Scans: down to where the first key would be, then through all that is behind it.

use std::borrow::Borrow;
use std::ops::Range;

use super::bits::differ;
use super::form::UnpackedNode;
use super::node::Node;
use super::path::{ChildWord, host};
use super::{Hot, damaged};
use crate::index::scan_on;
use crate::{Item, OrderedIndex, Result};

/// Leaves whose lines are asked for before it is their turn: their misses overlap.
const AHEAD: usize = 8;

/// How far a scan has come in a node, or at the root.
#[derive(Clone, Copy)]
struct Cursor<'a> {
    node: Option<Node<'a>>,
    next: usize,
}

impl<K: Item + ?Sized> Hot<K> {
    /// The nodes on the way to `from`, each with the first slot that is not visited through a lower
    /// one and may lead to keys from `from` on. None if one of them was given up meanwhile.
    fn seek_scan(&self, from: &K) -> Result<Option<Vec<Cursor<'_>>>> {
        let Some(path) = self.seek(from)? else {
            return Ok(None);
        };
        let behind = path.iter().map(|step| Cursor {
            node: step.place.node,
            next: step.place.slot + 1,
        });
        let mut cursors: Vec<_> = behind.collect();
        let Some(last) = path.last().filter(|last| !last.child.is_none()) else {
            return Ok(Some(cursors));
        };
        let key = self.leaf(last.child)?.key::<K>();
        let key = key.ok_or_else(|| damaged(last.child.at()))?;
        let key: &K = key.borrow();
        let Some(position) = differ(from, key) else {
            if let Some(cursor) = cursors.last_mut() {
                cursor.next = last.place.slot;
            }
            return Ok(Some(cursors));
        };
        // All keys below the inner node that parts them from `from` are on one side of it.
        let depth = host(&path, position);
        let place = &path[depth].place;
        let around = match place.node {
            Some(node) => UnpackedNode::of(&node).around(place.slot, position),
            None => 0..1,
        };
        cursors.truncate(depth + 1);
        cursors[depth].next = if from < key { around.start } else { around.end };
        Ok(Some(cursors))
    }

    /// Appends entries from `from` on until there are `end`. False if a node was given up
    /// meanwhile: then there may be more.
    fn scan_once(&self, from: &K, end: usize, found: &mut Vec<(K::Owned, u64)>) -> Result<bool> {
        let Some(mut cursors) = self.seek_scan(from)? else {
            return Ok(false);
        };
        if let Some(cursor) = cursors.last() {
            self.ask_for(cursor, 0..AHEAD.min(end - found.len()));
        }
        let mut must_fence = false;
        let mut is_whole = true;
        while is_whole
            && found.len() < end
            && let Some(cursor) = cursors.last_mut()
        {
            if cursor.next >= cursor.node.map_or(1, |node| node.count()) {
                cursors.pop();
                continue;
            }
            let place = self.place(cursor.node, cursor.next);
            cursor.next += 1;
            let child = self.child(&place);
            let left = end - found.len();
            if !child.is_leaf() {
                is_whole = self.vouch(&place, child, None, &mut must_fence);
                if is_whole && !child.is_none() {
                    let node = self.node_below(&place, child)?;
                    if node.count() < left {
                        self.ask_for(cursor, 0..1);
                    }
                    let cursor = Cursor {
                        node: Some(node),
                        next: 0,
                    };
                    self.ask_for(&cursor, 0..AHEAD.min(left));
                    cursors.push(cursor);
                }
                continue;
            }
            if AHEAD < left {
                self.ask_for(cursor, AHEAD - 1..AHEAD);
            }
            let leaf = self.leaf(child)?;
            let value = leaf.value();
            let key = leaf.key::<K>().ok_or_else(|| damaged(child.at()))?;
            is_whole = self.vouch(&place, child, Some(leaf), &mut must_fence);
            // What came since the way was found may be before its end.
            if is_whole && key.borrow() >= from {
                found.push((key, value));
            }
        }
        if must_fence {
            // DURABLE: what was seen of writers who are at work.
            self.medium.fence();
        }
        if !is_whole && let [.., above, last] = &cursors[..] {
            let above = self.place(above.node, above.next.saturating_sub(1));
            self.expect_replaced(&above, &self.place(last.node, 0))?;
        }
        Ok(is_whole)
    }

    /// Asks for the lines of children, counted from the next one on: of nodes as for a search, of
    /// leaves the first, which has all of a key that is a word.
    #[inline]
    fn ask_for(&self, cursor: &Cursor<'_>, children: Range<usize>) {
        let Some(node) = cursor.node else {
            return;
        };
        for slot in children.start + cursor.next..(children.end + cursor.next).min(node.count()) {
            self.prefetch(node.child(slot));
        }
    }

    fn place<'a>(&'a self, node: Option<Node<'a>>, slot: usize) -> ChildWord<'a> {
        match node {
            Some(node) => ChildWord::of(node, slot),
            None => self.root(),
        }
    }
}

impl<K: Item + ?Sized> OrderedIndex<K> for Hot<K> {
    fn scan(&self, from: &K, limit: usize, found: &mut Vec<(K::Owned, u64)>) -> Result<()> {
        let _guard = self.pool.enter();
        scan_on(from, limit, found, |from, end, found| {
            self.scan_once(from, end, found)
        })
    }
}
