//! Scans: down to where the first key would be, then through all that is behind it.

use std::borrow::Borrow;

use super::Art;
use super::key;
use super::layout::Child;
use super::node::Node;
use super::writepath::is_as_seen;
use crate::index::scan_on;
use crate::{Item, OrderedIndex, Result};

/// Children of a node that are asked for before they are visited, so that their misses overlap.
const FETCHED_AHEAD: usize = 16;

/// A child that is still to be visited, and the node that it was found in.
#[derive(Clone, Copy)]
struct Pending {
    child: Child,
    node: Child,
}

/// What a scan has still to visit, the next one last.
#[derive(Default)]
struct Stack {
    pending: Vec<Pending>,
    /// Whether something was flushed, and must be fenced before the scan returns.
    must_fence: bool,
}

impl<K: Item + ?Sized> Art<K> {
    /// Puts children of a node on the stack: the end if wanted, and those whose byte is above one,
    /// or all. False if the node was given up.
    fn push(&self, stack: &mut Stack, node: &Node<'_>, above: Option<u8>, with_end: bool) -> bool {
        let end = node.end();
        let children = node.children();
        if self.locks.is_locked(node.at()) {
            let _within = self.pool.write_guard();
            self.medium
                .flush_range(node.at(), node.child.kind().bytes());
            stack.must_fence = true;
        } else if node.is_dead() {
            return false;
        }
        let first = above.map_or(0, |above| {
            children.partition_point(|(byte, _)| *byte <= above)
        });
        let wanted = &children[first..];
        for (_, child) in wanted.iter().take(FETCHED_AHEAD) {
            self.medium.prefetch(child.at());
        }
        let node = node.child;
        let pending = |(_, child): &(u8, Child)| Pending {
            child: *child,
            node,
        };
        stack.pending.extend(wanted.iter().rev().map(pending));
        if with_end && !end.is_none() {
            stack.pending.push(Pending { child: end, node });
        }
        true
    }

    /// Goes down to where `from` is or would be, and puts all that is not before it on the stack.
    /// False if a node was given up meanwhile.
    fn seek_scan(&self, stack: &mut Stack, from: &K) -> Result<bool> {
        let mut parent = Child::NONE;
        let mut node = self.root();
        let mut above = 0;
        loop {
            let level = node.level();
            if let Some(fork) = self.part_before(&node, from, above)? {
                // All keys of the node are on one side of `from`.
                let is_behind = fork.branch > key::branch(from, fork.level);
                if is_behind {
                    let child = node.child;
                    stack.pending.push(Pending {
                        child,
                        node: parent,
                    });
                }
                return Ok(true);
            }
            let Some(byte) = key::branch(from, level) else {
                return Ok(self.push(stack, &node, None, true));
            };
            if !self.push(stack, &node, Some(byte), false) {
                return Ok(false);
            }
            let Some((_, child)) = node.find(Some(byte)) else {
                return Ok(true);
            };
            parent = node.child;
            if child.is_leaf() {
                stack.pending.push(Pending {
                    child,
                    node: parent,
                });
                return Ok(true);
            }
            above = level;
            node = self.node(child)?;
        }
    }

    /// Appends entries from `from` on until there are `end`. False if a node was given up
    /// meanwhile: then there may be more.
    fn scan_once(&self, from: &K, end: usize, found: &mut Vec<(K::Owned, u64)>) -> Result<bool> {
        let mut stack = Stack::default();
        let mut is_whole = self.seek_scan(&mut stack, from)?;
        while is_whole && found.len() < end {
            let Some(Pending { child, node }) = stack.pending.pop() else {
                break;
            };
            if !child.is_leaf() {
                is_whole = self.push(&mut stack, &self.node(child)?, None, true);
                continue;
            }
            let leaf = self.leaf(child)?;
            let value = leaf.value();
            let key = leaf.key::<K>();
            let key = key.ok_or_else(|| super::readpath::damaged(child.at()))?;
            let node = self.node(node)?;
            let branch = key::branch(key.borrow(), node.level());
            if self.locks.is_locked(node.at()) {
                let _within = self.pool.write_guard();
                self.medium.flush(&leaf.leaf.value);
                stack.must_fence = true;
            } else if !is_as_seen(&node, branch, child) {
                is_whole = false;
                continue;
            }
            if key.borrow() >= from {
                found.push((key, value));
            }
        }
        if stack.must_fence {
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
