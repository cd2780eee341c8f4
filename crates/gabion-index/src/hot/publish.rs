//! New leaves and nodes, and the one store that puts them in the place of others.

use std::sync::atomic::Ordering;

use gabion_media::pmem::{Guard, POff, Reserved};

use super::Hot;
use super::form::UnpackedNode;
use super::layout::{Child, NODE_ALIGN};
use super::path::{ChildWord, PathStep};
use crate::node_lock::NodeGuard;
use crate::{Item, Result, leaf};

/// Blocks that one step gives up, at most: a node and two below it that become one.
const GIVEN_UP_MAX: usize = 3;

/// Blocks that are written and not published yet. Those that never are go back to the pool.
#[derive(Default)]
pub(super) struct UnpublishedBlocks<'a>(Vec<(Child, Reserved<'a>)>);

impl<K: Item + ?Sized> Hot<K> {
    /// Writes a leaf, without a fence.
    pub(super) fn make_leaf<'a>(
        &'a self,
        made: &mut UnpublishedBlocks<'a>,
        key: &K,
        value: u64,
    ) -> Result<Child> {
        let leaf = leaf::write(&self.pool, key, value, Child::LEAF_HINT)?;
        let child = Child::leaf(leaf.offset::<u8>().raw());
        made.0.push((child, leaf));
        Ok(child)
    }

    /// Writes a node of these children, without a fence; if there is only one, that will do.
    pub(super) fn make_node<'a>(
        &'a self,
        made: &mut UnpublishedBlocks<'a>,
        form: &UnpackedNode,
        height: u32,
    ) -> Result<Child> {
        let reserve = |bytes| self.pool.alloc_aligned(bytes, NODE_ALIGN, Child::NODE_HINT);
        self.make_node_in(made, form, height, reserve)
    }

    /// As [`Hot::make_node`], in the place of `old`, which is at least as large and given up next:
    /// in a full pool, too.
    pub(super) fn make_node_instead<'a>(
        &'a self,
        made: &mut UnpublishedBlocks<'a>,
        form: &UnpackedNode,
        height: u32,
        old: Child,
    ) -> Result<Child> {
        let old = POff::<u8>::new(old.at());
        let reserve = |bytes| {
            self.pool
                .alloc_instead(old, bytes, NODE_ALIGN, Child::NODE_HINT)
        };
        self.make_node_in(made, form, height, reserve)
    }

    fn make_node_in<'a>(
        &'a self,
        made: &mut UnpublishedBlocks<'a>,
        form: &UnpackedNode,
        height: u32,
        reserve: impl FnOnce(u64) -> gabion_media::Result<Reserved<'a>>,
    ) -> Result<Child> {
        if let Some(only) = form.only() {
            return Ok(only);
        }
        let image = form.image(height);
        let bytes = image.bytes().len() as u64;
        let node = reserve(bytes)?;
        let at = node.offset::<u8>().raw();
        self.medium.write(at, image.bytes());
        self.medium.flush_range(at, bytes);
        made.0.push((Child::node(at), node));
        Ok(Child::node(at))
    }

    /// The height of a child.
    pub(super) fn height(&self, child: Child) -> Result<u32> {
        if child.is_leaf() {
            return Ok(0);
        }
        Ok(self.node(child)?.height())
    }

    /// The height that a node of these children needs.
    pub(super) fn height_over(&self, children: &[Child]) -> Result<u32> {
        let mut heights = children.iter().map(|child| self.height(*child));
        heights.try_fold(1, |most, height| Ok(most.max(height? + 1)))
    }

    /// Puts a child into a place, which is locked, and gives up what was in use instead: leaves,
    /// and nodes, which are locked too. `held` are all locks. False if somebody was in the way:
    /// then nothing has changed.
    pub(super) fn publish<'a>(
        &'a self,
        place: &ChildWord<'_>,
        child: Child,
        made: UnpublishedBlocks<'_>,
        given_up: &[Child],
        held: &[&NodeGuard<'a>],
        guard: &Guard<'_>,
    ) -> Result<bool> {
        // What was made lies in a node that was made or in the place, and goes under that lock.
        let nodes = made.0.iter().filter(|(child, _)| child.is_node());
        let nodes = nodes.map(|(child, _)| child.at());
        let Some(_new_locks) = self.locks.try_all_beside(held, nodes) else {
            return Ok(false);
        };
        debug_assert!(
            given_up.len() <= GIVEN_UP_MAX,
            "there is room for all notes"
        );
        let mut retiring = [const { None }; GIVEN_UP_MAX];
        for (note, old) in retiring.iter_mut().zip(given_up) {
            let block = POff::<u8>::new(old.at());
            *note = Some(self.pool.retire(block, old.hint())?);
        }
        // DURABLE: all that was made, and what the allocator noted of it and of what goes, before
        // anything leads to it.
        self.medium.fence();
        // ORDER: Release pairs with the acquire in `child`.
        // DURABLE: the operation.
        place
            .word
            .store_persist(&self.medium, child.0, Ordering::Release);
        for old in given_up.iter().filter(|old| old.is_node()) {
            self.node(*old)?.give_up(&self.medium);
        }
        for (_, block) in made.0 {
            block.commit::<u8>();
        }
        for block in retiring.into_iter().flatten() {
            block.commit(guard);
        }
        Ok(true)
    }

    /// Locks the place of a step, waiting for its holder; none if it is not as it was. The thread
    /// must hold no other lock.
    pub(super) fn lock<'a>(&'a self, step: &PathStep<'a>) -> Option<NodeGuard<'a>> {
        let lock = self.locks.lock(step.place.lock);
        step.place.has(step.child).then_some(lock)
    }

    /// Locks the place of a step beside others, without waiting; none if somebody else has it, or
    /// if it is not as it was.
    pub(super) fn lock_beside<'a>(
        &'a self,
        held: &[&NodeGuard<'a>],
        step: &PathStep<'a>,
    ) -> Option<NodeGuard<'a>> {
        let lock = self.locks.try_beside(held, step.place.lock)?;
        step.place.has(step.child).then_some(lock)
    }
}
