//! Writes: under the lock of the node whose child changes.

use std::borrow::Borrow;
use std::sync::atomic::Ordering;

use gabion_media::pmem::{Guard, POff};

use super::Art;
use super::key::{self, Branch};
use super::layout::{Child, KEY_BYTES_MAX, Kind};
use super::node::Node;
use super::readpath::{damaged, has_prefix};
use super::shape::SortedChildren;
use crate::leaf::{self, LeafRef};
use crate::node_lock::NodeGuard;
use crate::retry::{Attempt, retry};
use crate::{Error, Item, Result};

/// Where a key is, or would go.
pub(super) struct InsertPoint<'a> {
    /// The node above `node`, if that is not the root.
    pub(super) parent: Option<Node<'a>>,
    pub(super) node: Node<'a>,
    pub(super) stop: SearchEnd<'a>,
}

/// Why the search for a key ends at a node.
pub(super) enum SearchEnd<'a> {
    /// The keys below the node differ from the key before the node's level.
    Differs(PrefixMismatch),
    /// The node has no child for the key.
    Vacant,
    /// The child is the leaf of the key.
    Same(Child, LeafRef<'a>),
    /// The child is the leaf of another key.
    Other(Child, PrefixMismatch),
}

/// Where a key and what is in its place part.
#[derive(Clone, Copy)]
pub(super) struct PrefixMismatch {
    /// Bytes that they have in common.
    pub(super) level: usize,
    /// How the one that is there goes on.
    pub(super) branch: Branch,
}

impl<K: Item + ?Sized> Art<K> {
    /// Stores `value` under `key`, whether it is there or not, and returns the value before.
    ///
    /// # Errors
    /// No space in the pool, or a key that is too long: nothing has changed then.
    pub fn insert(&self, key: &K, value: u64) -> Result<Option<u64>> {
        let bytes = key.bytes().len() as u64;
        if bytes > KEY_BYTES_MAX {
            return Err(Error::TooLong { bytes });
        }
        retry(&self.pool, |guard| self.try_insert(key, value, guard))
    }

    /// Stores `value` under `key` if it is there, and returns the value before.
    ///
    /// # Errors
    /// Damage on the medium.
    pub fn update(&self, key: &K, value: u64) -> Result<Option<u64>> {
        retry(&self.pool, |_| {
            let Some(spot) = self.seek(key)? else {
                return Ok(None);
            };
            match spot.stop {
                SearchEnd::Same(child, leaf) => Ok(self
                    .replace_value(&spot.node, key, child, leaf, value)
                    .map(Some)),
                _ => Ok(Some(None)),
            }
        })
    }

    /// Deletes `key` and returns its value.
    ///
    /// # Errors
    /// Damage on the medium.
    pub fn remove(&self, key: &K) -> Result<Option<u64>> {
        retry(&self.pool, |guard| {
            let Some(spot) = self.seek(key)? else {
                return Ok(None);
            };
            match spot.stop {
                SearchEnd::Same(child, leaf) => {
                    let before = self.remove_leaf(&spot, key, child, leaf, guard)?;
                    Ok(before.map(Some))
                }
                _ => Ok(Some(None)),
            }
        })
    }

    fn try_insert(&self, key: &K, value: u64, guard: &Guard<'_>) -> Attempt<Option<u64>> {
        let Some(spot) = self.seek(key)? else {
            return Ok(None);
        };
        let done = match spot.stop {
            SearchEnd::Same(child, leaf) => {
                let before = self.replace_value(&spot.node, key, child, leaf, value);
                return Ok(before.map(Some));
            }
            SearchEnd::Other(child, fork) => self.fork(&spot.node, child, fork, key, value)?,
            SearchEnd::Differs(fork) => match &spot.parent {
                Some(parent) => self.fork(parent, spot.node.child, fork, key, value)?,
                // The root has level 0, and nothing differs before that.
                None => return Err(damaged(spot.node.at())),
            },
            SearchEnd::Vacant => self.add(&spot, key, value, guard)?,
        };
        Ok(done.then_some(None))
    }

    /// Finds the place of a key, and makes durable what was seen on the way of writers at work;
    /// none if somebody is changing it.
    pub(super) fn seek(&self, key: &K) -> Attempt<InsertPoint<'_>> {
        let mut parent: Option<Node<'_>> = None;
        let mut node = self.root();
        // The level of the node above. The byte that decided there is compared too: whoever saw a
        // slot that got another byte meanwhile is elsewhere.
        let mut above = 0;
        loop {
            let level = node.level();
            let spot = |stop| InsertPoint { parent, node, stop };
            if let Some(fork) = self.part_before(&node, key, above)? {
                let is_here = fork.level > above;
                return Ok(is_here.then(|| spot(SearchEnd::Differs(fork))));
            }
            let branch = key::branch(key, level);
            let child = node.find(branch).map_or(Child::NONE, |(_, child)| child);
            if self.locks.is_locked(node.at()) {
                node.flush(&self.medium, branch);
                // DURABLE: the child, before anything that is only reached through it.
                self.medium.fence();
            }
            if child.is_none() {
                return Ok(Some(spot(SearchEnd::Vacant)));
            }
            if child.is_leaf() {
                let leaf = self.leaf(child)?;
                if leaf.has(key) {
                    return Ok(Some(spot(SearchEnd::Same(child, leaf))));
                }
                let other = leaf.key::<K>().ok_or_else(|| damaged(child.at()))?;
                let fork = part(key, other.borrow());
                let is_here = fork.level > level;
                return Ok(is_here.then(|| spot(SearchEnd::Other(child, fork))));
            }
            parent = Some(node);
            above = level;
            node = self.node_below(&node, child)?;
        }
    }

    /// Where a key parts from those below a node before the node's level, if it does. It is known
    /// that they have the bytes before `above` in common.
    pub(super) fn part_before(
        &self,
        node: &Node<'_>,
        key: &K,
        above: usize,
    ) -> Attempt<PrefixMismatch> {
        let level = node.level();
        let is_known = level.saturating_sub(above) <= 8;
        if is_known && has_prefix(node, level, key, above) {
            return Ok(None);
        }
        let other = self.some_key(node.child)?;
        let fork = part(key, other.borrow());
        Ok((fork.level < level).then_some(fork))
    }

    /// Locks a node; none if it was given up or has another child for a branch than `child`.
    pub(super) fn lock<'a>(
        &'a self,
        node: &Node<'a>,
        branch: Branch,
        child: Child,
    ) -> Option<NodeGuard<'a>> {
        let lock = self.locks.lock(node.at());
        is_as_seen(node, branch, child).then_some(lock)
    }

    /// Stores another value in a leaf and returns the one before.
    fn replace_value(
        &self,
        node: &Node<'_>,
        key: &K,
        child: Child,
        leaf: LeafRef<'_>,
        value: u64,
    ) -> Option<u64> {
        let _lock = self.lock(node, key::branch(key, node.level()), child)?;
        let before = leaf.value();
        // ORDER: Release pairs with the acquire in `LeafRef::value`.
        // DURABLE: the update.
        leaf.leaf
            .value
            .store_persist(&self.medium, value, Ordering::Release);
        Some(before)
    }

    /// Puts a new leaf where a node has no child yet. False if somebody was in the way.
    fn add(&self, spot: &InsertPoint<'_>, key: &K, value: u64, guard: &Guard<'_>) -> Result<bool> {
        let node = &spot.node;
        let branch = key::branch(key, node.level());
        let Some(lock) = self.lock(node, branch, Child::NONE) else {
            return Ok(false);
        };
        let leaf = leaf::write(&self.pool, key, value, Kind::Leaf as u64)?;
        let child = Child::new(Kind::Leaf, leaf.offset::<u8>().raw());
        let Some(place) = node.prepare(&self.medium, branch) else {
            let (Some(parent), Some(byte)) = (&spot.parent, branch) else {
                return Err(damaged(node.at()));
            };
            let mut children = node.children();
            let at = children.partition_point(|(other, _)| *other < byte);
            children.insert(at, (byte, child));
            let form = SortedChildren {
                end: node.end(),
                children,
            };
            let reformed = self.reform(parent, key, node, &lock, &form, guard)?;
            if reformed.is_some() {
                leaf.commit::<u8>();
            }
            return Ok(reformed.is_some());
        };
        place.write(&self.medium, child);
        // DURABLE: the leaf, before anything leads to it.
        self.medium.fence();
        place.publish(&self.medium, child);
        leaf.commit::<u8>();
        Ok(true)
    }

    /// Takes a leaf out of its node, and the node out of its parent if it has no other child.
    fn remove_leaf(
        &self,
        spot: &InsertPoint<'_>,
        key: &K,
        child: Child,
        leaf: LeafRef<'_>,
        guard: &Guard<'_>,
    ) -> Attempt<u64> {
        let node = &spot.node;
        let branch = key::branch(key, node.level());
        let Some(lock) = self.lock(node, branch, child) else {
            return Ok(None);
        };
        let before = leaf.value();
        let space: POff<u8> = POff::new(child.at());
        let retiring = self.pool.retire(space, Kind::Leaf as u64)?;
        if let Some(parent) = &spot.parent
            && let Some(form) = node.form_without(branch)
        {
            let reformed = self.reform(parent, key, node, &lock, &form, guard);
            if matches!(reformed, Ok(Some(_))) {
                retiring.commit(guard);
                return Ok(Some(before));
            }
            // A node must not be left empty; one that stays large is as good as before.
            if form.is_empty() {
                return reformed.map(|_| None);
            }
        }
        // DURABLE: the note that the leaf goes.
        self.medium.fence();
        node.unlink(&self.medium, branch);
        retiring.commit(guard);
        Ok(Some(before))
    }
}

/// Where two keys part that are not equal.
fn part<K: Item + ?Sized>(key: &K, other: &K) -> PrefixMismatch {
    let level = key::common(key, other);
    PrefixMismatch {
        level,
        branch: key::branch(other, level),
    }
}

/// Whether a node is in use and has this child for a branch.
pub(super) fn is_as_seen(node: &Node<'_>, branch: Branch, child: Child) -> bool {
    let now = node.find(branch).map_or(Child::NONE, |(_, child)| child);
    !node.is_dead() && now == child
}
