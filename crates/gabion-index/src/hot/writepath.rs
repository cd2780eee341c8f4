//! Writes: under the locks of the nodes that are replaced, and of the place above them.

use std::borrow::Borrow;
use std::sync::atomic::Ordering;

use gabion_media::pmem::Guard;

use super::bits::{KEY_BYTES_MAX, Position, differ};
use super::form::UnpackedNode;
use super::layout::{Child, ROOM};
use super::node::Node;
use super::path::{PathStep, host};
use super::publish::UnpublishedBlocks;
use super::{Hot, damaged};
use crate::leaf::LeafRef;
use crate::node_lock::NodeGuard;
use crate::retry::{Attempt, retry, retry_delete};
use crate::{Error, Item, Result};

/// What became of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Done,
    /// Somebody else was in the way.
    Lost,
    /// The node above, that of the step of this number, has no room.
    Crowded(usize),
}

impl Change {
    /// What became of a change that was published, if nobody was in the way.
    fn of(is_done: bool) -> Change {
        match is_done {
            true => Change::Done,
            false => Change::Lost,
        }
    }
}

/// Where a key parts from what is in its place.
#[derive(Clone, Copy)]
struct Fork {
    position: Position,
    /// Whether the key has a 1 there.
    has_one: bool,
}

impl Fork {
    /// Two children that part here, of which the second is of the key.
    fn pair(self, there: Child, new: Child) -> UnpackedNode {
        let (left, right) = if self.has_one {
            (there, new)
        } else {
            (new, there)
        };
        UnpackedNode::pair(left, self.position, right)
    }
}

impl<K: Item + ?Sized> Hot<K> {
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
            let Some(path) = self.seek(key)? else {
                return Ok(None);
            };
            match self.leaf_of(&path, key)? {
                Some((step, leaf)) => Ok(self.replace_value(step, leaf, value).map(Some)),
                None => Ok(Some(None)),
            }
        })
    }

    /// Deletes `key` and returns its value.
    ///
    /// # Errors
    /// Damage on the medium. No space in the pool, if it is full and a reader keeps what another
    /// delete gave up: nothing has changed then.
    pub fn remove(&self, key: &K) -> Result<Option<u64>> {
        retry_delete(&self.pool, |guard| {
            let Some(path) = self.seek(key)? else {
                return Ok(None);
            };
            match self.leaf_of(&path, key)? {
                Some((_, leaf)) => Ok(self.remove_leaf(&path, leaf, guard)?.map(Some)),
                None => Ok(Some(None)),
            }
        })
    }

    /// The last step of a way and its leaf, if that is the leaf of `key`.
    fn leaf_of<'a, 'p>(
        &'a self,
        path: &'p [PathStep<'a>],
        key: &K,
    ) -> Result<Option<(&'p PathStep<'a>, LeafRef<'a>)>> {
        let Some(step) = path.last().filter(|step| !step.child.is_none()) else {
            return Ok(None);
        };
        let leaf = self.leaf(step.child)?;
        Ok(leaf.has(key).then_some((step, leaf)))
    }

    fn try_insert(&self, key: &K, value: u64, guard: &Guard<'_>) -> Attempt<Option<u64>> {
        let Some(path) = self.seek(key)? else {
            return Ok(None);
        };
        let Some(last) = path.last() else {
            return Ok(None);
        };
        if last.child.is_none() {
            return Ok(self.plant(last, key, value, guard)?.then_some(None));
        }
        if let Some(node) = last.place.node {
            // Most often this is the node that goes; its note is far away, as the leaf is.
            self.pool.prefetch_note(node.at);
        }
        let leaf = self.leaf(last.child)?;
        if leaf.has(key) {
            return Ok(self.replace_value(last, leaf, value).map(Some));
        }
        let other = leaf.key::<K>().ok_or_else(|| damaged(last.child.at()))?;
        let other: &K = other.borrow();
        let fork = Fork {
            position: differ(key, other).ok_or_else(|| damaged(last.child.at()))?,
            has_one: key > other,
        };
        let depth = host(&path, fork.position);
        match self.grow(&path, depth, key, value, fork, guard)? {
            Change::Done => return Ok(Some(None)),
            Change::Lost => {}
            Change::Crowded(at) => self.make_room(key, path, at, guard)?,
        }
        Ok(None)
    }

    /// Puts the first leaf into an empty trie. False if somebody was in the way.
    fn plant(&self, step: &PathStep<'_>, key: &K, value: u64, guard: &Guard<'_>) -> Result<bool> {
        let Some(lock) = self.lock(step) else {
            return Ok(false);
        };
        let mut made = UnpublishedBlocks::default();
        let leaf = self.make_leaf(&mut made, key, value)?;
        self.publish(&step.place, leaf, made, &[], &[&lock], guard)
    }

    /// Stores another value in a leaf and returns the one before.
    fn replace_value(&self, step: &PathStep<'_>, leaf: LeafRef<'_>, value: u64) -> Option<u64> {
        let _lock = self.lock(step)?;
        let before = leaf.value();
        // ORDER: Release pairs with the acquire in `LeafRef::value`.
        // DURABLE: the update.
        leaf.leaf
            .value
            .store_persist(&self.medium, value, Ordering::Release);
        Some(before)
    }

    /// Adds a leaf where its key parts from what a step of the way leads to.
    fn grow(
        &self,
        path: &[PathStep<'_>],
        depth: usize,
        key: &K,
        value: u64,
        fork: Fork,
        guard: &Guard<'_>,
    ) -> Result<Change> {
        let step = &path[depth];
        let Some(lock) = self.lock(step) else {
            return Ok(Change::Lost);
        };
        let node = step.place.node;
        let mut form = node.map_or_else(UnpackedNode::empty, |node| UnpackedNode::of(&node));
        let around = match node {
            Some(_) => form.around(step.place.slot, fork.position),
            None => 0..1,
        };
        let height = self.height(step.child)?;
        let is_alone = around.len() == 1;
        if is_alone && step.child.is_node() && self.node(step.child)?.count() < ROOM {
            drop(lock);
            return self.grow(path, depth + 1, key, value, fork, guard);
        }
        let mut made = UnpublishedBlocks::default();
        let new = self.make_leaf(&mut made, key, value)?;
        let Some(node) = node else {
            return self.push_down(step, &lock, fork, new, made, guard);
        };
        if is_alone && node.height() > height + 1 {
            return self.push_down(step, &lock, fork, new, made, guard);
        }
        form.insert(around, fork.position, fork.has_one, new);
        if form.len() > ROOM {
            return self.split(path, depth, &lock, &form, made, guard);
        }
        let above = &path[depth - 1];
        let Some(above_lock) = self.lock_beside(&[&lock], above) else {
            return Ok(Change::Lost);
        };
        let child = self.make_node(&mut made, &form, node.height())?;
        let held = [&lock, &above_lock];
        let is_done = self.publish(&above.place, child, made, &[above.child], &held, guard)?;
        Ok(Change::of(is_done))
    }

    /// Makes a child and a new leaf a node of their own, in the place of the child, which is
    /// locked.
    fn push_down<'a>(
        &'a self,
        step: &PathStep<'a>,
        lock: &NodeGuard<'a>,
        fork: Fork,
        new: Child,
        mut made: UnpublishedBlocks<'a>,
        guard: &Guard<'_>,
    ) -> Result<Change> {
        let form = fork.pair(step.child, new);
        let child = self.make_node(&mut made, &form, self.height(step.child)? + 1)?;
        let is_done = self.publish(&step.place, child, made, &[], &[lock], guard)?;
        Ok(Change::of(is_done))
    }

    /// Makes both sides of the topmost bit of a form nodes of their own, and puts that bit above
    /// them. The form is that of the node of a step, which is locked, or has a child more.
    #[cold]
    fn split<'a>(
        &'a self,
        path: &[PathStep<'a>],
        depth: usize,
        lock: &NodeGuard<'a>,
        form: &UnpackedNode,
        mut made: UnpublishedBlocks<'a>,
        guard: &Guard<'_>,
    ) -> Result<Change> {
        let above = &path[depth - 1];
        let Some(above_lock) = self.lock_beside(&[lock], above) else {
            return Ok(Change::Lost);
        };
        let parent = self.parent_of_split(path, depth)?;
        if parent.is_some_and(|parent| parent.count() == ROOM) {
            return Ok(Change::Crowded(depth - 1));
        }
        let (left, position, right) = form.split();
        let side = |made: &mut UnpublishedBlocks<'a>, form: &UnpackedNode| {
            if let Some(only) = form.only() {
                return Ok((only, self.height(only)?));
            }
            let height = self.height_over(form.children())?;
            Result::Ok((self.make_node(made, form, height)?, height))
        };
        let (left, left_height) = side(&mut made, &left)?;
        let (right, right_height) = side(&mut made, &right)?;
        let Some(parent) = parent else {
            let pair = UnpackedNode::pair(left, position, right);
            let height = left_height.max(right_height) + 1;
            let child = self.make_node(&mut made, &pair, height)?;
            let held = [lock, &above_lock];
            let is_done = self.publish(&above.place, child, made, &[above.child], &held, guard)?;
            return Ok(Change::of(is_done));
        };
        let top = &path[depth - 2];
        let Some(top_lock) = self.lock_beside(&[lock, &above_lock], top) else {
            return Ok(Change::Lost);
        };
        let mut form = UnpackedNode::of(&parent);
        form.replace(above.place.slot, left);
        form.part(above.place.slot, position, right);
        let child = self.make_node(&mut made, &form, parent.height())?;
        let (gone, held) = ([above.child, top.child], [lock, &above_lock, &top_lock]);
        let is_done = self.publish(&top.place, child, made, &gone, &held, guard)?;
        Ok(Change::of(is_done))
    }

    /// The node above that of a step, if it takes in the topmost bit of that one when it is split.
    fn parent_of_split<'a>(
        &'a self,
        path: &[PathStep<'a>],
        depth: usize,
    ) -> Result<Option<Node<'a>>> {
        let above = &path[depth - 1];
        let height = self.height(above.child)?;
        let pulls_up = |parent: &Node<'_>| parent.height() <= height + 1;
        Ok(above.place.node.filter(pulls_up))
    }

    /// Splits the full node of a step, and before it those above it that are full too, from the
    /// topmost down, unless somebody is in the way. Of the way it looks again only at what a split
    /// has replaced, so this takes time in proportion to what it splits.
    #[cold]
    fn make_room<'a>(
        &'a self,
        key: &K,
        mut path: Vec<PathStep<'a>>,
        mut depth: usize,
        guard: &Guard<'_>,
    ) -> Result<()> {
        let mut full = Vec::new();
        while let Some(parent) = self.parent_of_split(&path, depth)?
            && parent.count() == ROOM
        {
            full.push(path[depth].place.lock);
            depth -= 1;
        }
        loop {
            let step = &path[depth];
            let (Some(node), Some(lock)) = (step.place.node, self.lock(step)) else {
                return Ok(());
            };
            let form = UnpackedNode::of(&node);
            let change = self.split(
                &path,
                depth,
                &lock,
                &form,
                UnpublishedBlocks::default(),
                guard,
            )?;
            drop(lock);
            let (Change::Done, Some(next)) = (change, full.pop()) else {
                return Ok(());
            };
            // The node above may have been replaced as well.
            let from = depth.saturating_sub(2);
            let place = path[from].place;
            path.truncate(from);
            if !self.go_on(key, place, Some(next), &mut path)? {
                return Ok(());
            }
            depth = path.len() - 1;
            if path[depth].place.lock != next {
                return Ok(());
            }
        }
    }

    /// Takes the leaf at the end of a way out of its node, and the node out of that above it if it
    /// has only one other child.
    fn remove_leaf(
        &self,
        path: &[PathStep<'_>],
        leaf: LeafRef<'_>,
        guard: &Guard<'_>,
    ) -> Attempt<u64> {
        let (Some(step), above) = (path.last(), path.iter().nth_back(1)) else {
            return Ok(None);
        };
        let Some(lock) = self.lock(step) else {
            return Ok(None);
        };
        let before = leaf.value();
        let mut made = UnpublishedBlocks::default();
        let (Some(node), Some(above)) = (step.place.node, above) else {
            let gone = [step.child];
            let is_done = self.publish(&step.place, Child::NONE, made, &gone, &[&lock], guard)?;
            return Ok(is_done.then_some(before));
        };
        let Some(above_lock) = self.lock_beside(&[&lock], above) else {
            return Ok(None);
        };
        let mut form = UnpackedNode::of(&node);
        form.remove(step.place.slot);
        let child = self.make_node_instead(&mut made, &form, node.height(), above.child)?;
        let (gone, held) = ([above.child, step.child], [&lock, &above_lock]);
        let is_done = self.publish(&above.place, child, made, &gone, &held, guard)?;
        Ok(is_done.then_some(before))
    }
}
