//! Scans: down to where the first key would be, then through all that is behind it.
//!
//! A scan keeps the nodes on its way, and of each a stretch of children: their misses overlap, and
//! children that it does not come to are not looked at. What byte a child of a node of 4 or 16 has
//! is told by another word than the child, so a stretch is read between two looks at the node's
//! lock, and again if that was taken or let go meanwhile.

use std::borrow::Borrow;

use super::Art;
use super::key::{self, Branch};
use super::layout::Child;
use super::node::Node;
use super::readpath::damaged;
use super::stretch::ChildRange;
use super::writepath::is_as_seen;
use crate::index::scan_on;
use crate::lock::Backoff;
use crate::node_lock::LockVersion;
use crate::{Item, OrderedIndex, Result};

/// Nodes on the way to a word, at most.
const DEPTH: usize = 8;

/// Bytes of a node of 16 children.
const SMALL_BYTES: u64 = 192;

/// A node that a scan is in, and the children that it has read of it, of which the first ones were
/// visited.
struct Visit<'a> {
    node: Node<'a>,
    stretch: ChildRange,
    visited: usize,
    /// The lock when they were read: the node has not changed as long as it is the same, and free.
    stamp: LockVersion,
}

impl<'a> Visit<'a> {
    fn new(node: Node<'a>, stretch: ChildRange, stamp: LockVersion) -> Visit<'a> {
        Visit {
            node,
            stretch,
            visited: 0,
            stamp,
        }
    }

    /// The next of the children that were read.
    #[inline]
    fn next(&mut self) -> Option<(Branch, Child)> {
        let next = self.stretch.children().get(self.visited).copied();
        self.visited += usize::from(next.is_some());
        next
    }
}

/// What a scan is about.
struct Scan<'a, 'b, K: Item + ?Sized> {
    trie: &'a Art<K>,
    from: &'b K,
    /// The nodes on the way, from the root on.
    way: Vec<Visit<'a>>,
    /// Whether something was flushed, and must be fenced before the scan returns.
    must_fence: bool,
}

impl<'a, K: Item + ?Sized> Scan<'a, '_, K> {
    /// Goes down to where the first key is or would be. False if a node was given up meanwhile, or
    /// a child seen that has another byte.
    fn seek(&mut self) -> Result<bool> {
        let mut node = self.trie.root();
        let mut above = 0;
        loop {
            let level = node.level();
            if let Some(fork) = self.trie.part_before(&node, self.from, above)? {
                // All keys of the node are on one side of `from`.
                if fork.branch > key::branch(self.from, fork.level) {
                    self.enter(node);
                }
                return Ok(fork.level > above);
            }
            let branch = key::branch(self.from, level);
            if branch.is_none() {
                self.enter(node);
                return Ok(true);
            }
            let stamp = self.trie.locks.stamp(node.at());
            let child = node.find(branch).map_or(Child::NONE, |(_, child)| child);
            if self.trie.locks.is_locked(node.at()) {
                self.trie.flush_seen(&node, branch, None);
                self.must_fence = true;
            } else if node.is_dead() {
                return Ok(false);
            }
            let is_leaf = child.is_leaf();
            let stretch = ChildRange::of(branch, if is_leaf { child } else { Child::NONE });
            self.way.push(Visit::new(node, stretch, stamp));
            if is_leaf || child.is_none() {
                return Ok(true);
            }
            above = level;
            node = self.trie.node_below(&node, child)?;
        }
    }

    /// Appends entries until there are `end`. False if a node was given up meanwhile, or a leaf has
    /// another place: then there may be more.
    fn run(&mut self, end: usize, found: &mut Vec<(K::Owned, u64)>) -> Result<bool> {
        while found.len() < end {
            let Some(visit) = self.way.last_mut() else {
                break;
            };
            let Some((branch, child)) = visit.next() else {
                if visit.stretch.is_last() {
                    self.way.pop();
                } else if !self.read(end - found.len()) {
                    return Ok(false);
                }
                continue;
            };
            let (node, stamp) = (visit.node, visit.stamp);
            if !child.is_leaf() {
                self.enter(self.trie.node_below(&node, child)?);
                continue;
            }
            let leaf = self.trie.leaf(child)?;
            let value = leaf.value();
            let key = leaf.key::<K>().ok_or_else(|| damaged(child.at()))?;
            let now = self.trie.locks.stamp(node.at());
            if now.is_locked() {
                self.trie.flush_seen(&node, branch, Some(leaf));
                self.must_fence = true;
            } else if now != stamp && !is_as_seen(&node, branch, child) {
                return Ok(false);
            }
            if key::branch(key.borrow(), node.level()) != branch {
                return Ok(false);
            }
            if key.borrow() >= self.from {
                found.push((key, value));
            }
        }
        Ok(true)
    }

    /// Goes into a node, from its first child on.
    fn enter(&mut self, node: Node<'a>) {
        let stamp = self.trie.locks.stamp(node.at());
        self.way
            .push(Visit::new(node, ChildRange::before_all(), stamp));
    }

    /// Reads the next children of the last node, and asks for as many of them as are wanted. False
    /// if the node was given up.
    fn read(&mut self, wanted: usize) -> bool {
        let Some(visit) = self.way.last_mut() else {
            return true;
        };
        let (trie, node) = (self.trie, visit.node);
        let mut backoff = Backoff::default();
        loop {
            visit.stamp = trie.locks.stamp(node.at());
            let stretch = node.stretch(visit.stretch.next());
            if trie.locks.stamp(node.at()) == visit.stamp {
                visit.stretch = stretch;
                break;
            }
            backoff.wait();
        }
        visit.visited = 0;
        if visit.stamp.is_locked() {
            let _within = trie.pool.write_guard();
            trie.medium
                .flush_range(node.at(), node.child.kind().bytes());
            self.must_fence = true;
        } else if node.is_dead() {
            return false;
        }
        // A leaf is one entry, a node some, and all of a small one is asked for.
        let mut asked = 0;
        for (_, child) in visit.stretch.children() {
            if asked >= wanted {
                break;
            }
            asked += 1 + child.kind().room() / 4;
            for line in (0..child.kind().bytes().min(SMALL_BYTES)).step_by(64) {
                trie.medium.prefetch(child.at() + line);
            }
        }
        true
    }
}

impl<K: Item + ?Sized> Art<K> {
    /// Appends entries from `from` on until there are `end`. False if somebody was in the way: then
    /// there may be more.
    fn scan_once(&self, from: &K, end: usize, found: &mut Vec<(K::Owned, u64)>) -> Result<bool> {
        let mut scan = Scan {
            trie: self,
            from,
            way: Vec::with_capacity(DEPTH),
            must_fence: false,
        };
        let is_whole = scan.seek()? && scan.run(end, found)?;
        if scan.must_fence {
            // DURABLE: what was seen of writers who are at work.
            self.medium.fence();
        }
        Ok(is_whole)
    }
}

impl<K: Item + ?Sized> OrderedIndex<K> for Art<K> {
    fn scan(&self, from: &K, limit: usize, found: &mut Vec<(K::Owned, u64)>) -> Result<()> {
        let _guard = self.pool.enter();
        scan_on(from, limit, found, |from, end, found| {
            self.scan_once(from, end, found)
        })
    }
}
