//! Removal of empty nodes: their range goes to the left neighbour.

use std::sync::atomic::Ordering;

use gabion_media::pmem::{Guard, POff, Retiring};

use super::{Descent, LockedNode, Node, NodeSplit, Tree, is_spent};
use crate::Result;

/// What came of an attempt to give a node up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RemovalOutcome {
    /// It is given up.
    Done,
    /// It is the first child of its parent.
    IsFirst,
    /// It is in use, or somebody is at work there.
    Kept,
    /// A leaf that handed its range over is still before it.
    IsBehindSpent,
}

/// How nodes come to their end.
pub(crate) trait NodeRemoval: Tree {
    /// Gives up the node of a level whose low is `low` if it holds nothing, and its ancestors that
    /// then hold nothing.
    ///
    /// # Errors
    /// No room for a note of the allocator, or damage.
    #[cold]
    fn give_up(&self, level: u64, low: u64, guard: &Guard<'_>) -> Result<()> {
        if self.top()?.head().level() <= level || low == 0 {
            return Ok(());
        }
        match self.unlink(level, low, guard)? {
            RemovalOutcome::Kept | RemovalOutcome::IsBehindSpent => return Ok(()),
            RemovalOutcome::Done => self.settle_child(level, low, guard)?,
            RemovalOutcome::IsFirst => {}
        }
        let Some(parent) = self.descend(level + 1, low)? else {
            return Ok(());
        };
        let is_only_child = parent.entries(parent.head().range()).len() == 1;
        if is_only_child {
            self.give_up(level + 1, parent.head().low(), guard)?;
        }
        Ok(())
    }

    /// Finds a place for the only child of a node that was given up: it goes too if it holds
    /// nothing, else it gets another parent.
    fn settle_child(&self, level: u64, low: u64, guard: &Guard<'_>) -> Result<()> {
        for level in (0..level).rev() {
            if self.unlink(level, low, guard)? != RemovalOutcome::Done {
                let child = self.descend_settled(level, low)?;
                self.adopt(child.filter(|child| child.head().low() == low));
                break;
            }
        }
        Ok(())
    }

    /// Takes a node that holds nothing out of its parent and of its level, after the leaves before
    /// it that handed their range over.
    fn unlink(&self, level: u64, low: u64, guard: &Guard<'_>) -> Result<RemovalOutcome> {
        let outcome = self.try_unlink(level, low, guard)?;
        if outcome == RemovalOutcome::IsBehindSpent {
            self.pass_by(low)?;
            return self.try_unlink(level, low, guard);
        }
        Ok(outcome)
    }

    /// As [`NodeRemoval::unlink`], with nothing but the node between its neighbours.
    fn try_unlink(&self, level: u64, low: u64, guard: &Guard<'_>) -> Result<RemovalOutcome> {
        let parent = self.descend_settled(level + 1, low)?;
        let Some(mut parent) = parent.and_then(|parent| self.lock(parent, low)) else {
            return Ok(RemovalOutcome::Kept);
        };
        let Some((_, left)) = parent.node.entry_upto(low - 1) else {
            return Ok(RemovalOutcome::IsFirst);
        };
        let Some(left) = self.left_of(low, left)? else {
            return Ok(RemovalOutcome::Kept);
        };
        let Some(left_lock) = self.locks().try_beside(&[&parent.lock], left.at()) else {
            return Ok(RemovalOutcome::Kept);
        };
        let node = self.node(left.head().range().neighbour)?;
        let held = [&parent.lock, &left_lock];
        let Some(lock) = self.locks().try_beside(&held, node.at()) else {
            return Ok(RemovalOutcome::Kept);
        };
        if left.head().range().is_dead() || node.head().low() != low {
            return Ok(RemovalOutcome::Kept);
        }
        if is_spent(node) {
            return Ok(RemovalOutcome::IsBehindSpent);
        }
        let left = self.tidy(left, left.head().range(), left_lock);
        let node = self.tidy(node, node.head().range(), lock);
        if node.count > usize::from(level > 0) {
            return Ok(RemovalOutcome::Kept);
        }
        let space: POff<u8> = POff::new(node.node.at());
        let retiring = self.pool().retire(space, self.hint())?;
        let known = parent.node.entry_upto(low);
        if known.is_some_and(|(key, _)| key == low) {
            self.remove_entry(&mut parent, low);
        }
        self.close_gap(&left, &node, retiring, guard);
        Ok(RemovalOutcome::Done)
    }

    /// Gives the range of `node`, which no parent knows, to its left neighbour.
    fn close_gap<'a>(
        &'a self,
        left: &LockedNode<'a, Self::Node<'a>>,
        node: &LockedNode<'a, Self::Node<'a>>,
        retiring: Retiring<'_>,
        guard: &Guard<'_>,
    ) {
        self.clear_behind(left);
        // DURABLE: that the neighbour holds nothing behind its bound, before that rises; what the
        // allocator noted; and that the parent does not know the node.
        self.medium().fence();
        let head = left.node.head();
        head.link(self.medium(), node.range.neighbour, node.range.bound);
        // DURABLE: the new bound.
        self.medium().persist(&head.state);
        self.note_end(&node.node);
        node.node.head().give_up(self.medium());
        retiring.commit(guard);
    }

    /// Gives the topmost node up as long as it has but one child.
    ///
    /// # Errors
    /// No room for a note of the allocator, or damage.
    fn lower(&self, guard: &Guard<'_>) -> Result<()> {
        loop {
            let top_lock = self.locks().lock(self.top_lock());
            let top = self.top()?;
            let Some(_lock) = self.locks().try_beside(&[&top_lock], top.at()) else {
                return Ok(());
            };
            // Before the lock somebody may have been splitting it.
            let range = top.head().range();
            if range.level() == 0 || !range.is_last() {
                return Ok(());
            }
            let [(_, child)] = top.entries(range)[..] else {
                return Ok(());
            };
            let space: POff<u8> = POff::new(top.at());
            let retiring = self.pool().retire(space, self.hint())?;
            // DURABLE: what the allocator noted.
            self.medium().fence();
            // ORDER: Release pairs with the acquire in `top`.
            // DURABLE: the tree's new height.
            self.top_word()
                .store_persist(self.medium(), child, Ordering::Release);
            top.head().give_up(self.medium());
            retiring.commit(guard);
        }
    }

    /// Gives up all nodes that hold nothing, leaves without a range among them, and tells parents
    /// of nodes that they do not know.
    ///
    /// # Errors
    /// Damage.
    fn give_up_all(&self) -> Result<()> {
        let mut low = 0;
        loop {
            let guard = self.pool().enter();
            let Some(leaf) = self.descend_settled(0, low)? else {
                return Ok(());
            };
            let range = leaf.head().range();
            if leaf.entries(range).is_empty() {
                self.give_up(0, leaf.head().low(), &guard)?;
            } else if leaf.head().low() != 0 {
                self.adopt(Some(leaf));
            }
            if range.is_last() {
                return Ok(());
            }
            if is_spent(self.node(range.neighbour)?) {
                self.pass_by(range.bound)?;
            }
            low = range.bound;
        }
    }
}

impl<T: Tree> NodeRemoval for T {}
