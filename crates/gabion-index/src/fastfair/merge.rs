//! Nodes that hold nothing are given up, and their range goes to the left neighbour.

use gabion_media::pmem::{Guard, POff, Retiring};

use super::FastFair;
use super::layout::NO_KEY;
use super::node::Node;
use super::writepath::Locked;
use crate::Result;

/// Steps along a level to the left neighbour of a node: more are between the two only if many
/// nodes there are unknown to their parent, and then another time will do.
const STEPS_MAX: u32 = 16;

/// What came of an attempt to give a node up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// It is given up.
    Done,
    /// It is the first child of its parent.
    IsFirst,
    /// It is in use, or somebody is at work there.
    Kept,
}

impl<const N: usize> FastFair<N> {
    /// Gives up the node of a level whose low is `low` if it holds nothing, and its ancestors that
    /// then hold nothing.
    #[cold]
    pub(super) fn give_up(&self, level: u64, low: u64, guard: &Guard<'_>) -> Result<()> {
        if self.top()?.level() <= level || low == 0 {
            return Ok(());
        }
        match self.unlink(level, low, guard)? {
            Outcome::Kept => return Ok(()),
            Outcome::Done => self.settle_child(level, low, guard)?,
            Outcome::IsFirst => {}
        }
        let parent = self.descend(level + 1, low)?;
        let is_only_child = parent.survey(parent.range().bound).count == 1;
        if is_only_child {
            self.give_up(level + 1, parent.low(), guard)?;
        }
        Ok(())
    }

    /// Finds a place for the only child of a node that was given up: it goes too if it holds
    /// nothing, else it gets another parent.
    fn settle_child(&self, level: u64, low: u64, guard: &Guard<'_>) -> Result<()> {
        for level in (0..level).rev() {
            if self.unlink(level, low, guard)? != Outcome::Done {
                let child = self.descend(level, low)?;
                self.adopt(Some(child).filter(|child| child.low() == low));
                break;
            }
        }
        Ok(())
    }

    /// Takes a node that holds nothing out of its parent and of its level.
    fn unlink(&self, level: u64, low: u64, guard: &Guard<'_>) -> Result<Outcome> {
        let Some(mut parent) = self.lock(self.descend(level + 1, low)?, low) else {
            return Ok(Outcome::Kept);
        };
        let slot = parent.locate(low);
        let (Ok(next) | Err(next)) = slot;
        let Some(left_slot) = next.checked_sub(1) else {
            return Ok(Outcome::IsFirst);
        };
        let Some(left) = self.left_of(low, parent.node.value(left_slot))? else {
            return Ok(Outcome::Kept);
        };
        let Some(left_lock) = self.locks.try_beside(&[&parent.lock], left.at) else {
            return Ok(Outcome::Kept);
        };
        let node = self.node(left.range().neighbour)?;
        let held = [&parent.lock, &left_lock];
        let Some(lock) = self.locks.try_beside(&held, node.at) else {
            return Ok(Outcome::Kept);
        };
        if left.range().is_dead() || node.low() != low {
            return Ok(Outcome::Kept);
        }
        let left = self.tidy(left, left.range(), left_lock);
        let node = self.tidy(node, node.range(), lock);
        if node.count > usize::from(level > 0) {
            return Ok(Outcome::Kept);
        }
        let space: POff<u8> = POff::new(node.node.at);
        let retiring = self.pool.retire(space, 0)?;
        if let Ok(slot) = slot {
            self.remove_at(&mut parent, slot);
        }
        self.close_gap(&left, &node, retiring, guard);
        Ok(Outcome::Done)
    }

    /// Gives the range of `node`, which no parent knows, to its left neighbour.
    fn close_gap(
        &self,
        left: &Locked<'_, N>,
        node: &Locked<'_, N>,
        retiring: Retiring<'_>,
        guard: &Guard<'_>,
    ) {
        left.node.clear_from(&self.medium, left.count);
        // DURABLE: the free slots of the neighbour, before its bound rises above what they held;
        // what the allocator noted; and that the parent does not know the node.
        self.medium.fence();
        left.node
            .link(&self.medium, node.range.neighbour, node.range.bound);
        node.node.give_up(&self.medium);
        retiring.commit(guard);
    }

    /// The node whose bound is `low`, from the node at `at` on along its level.
    fn left_of(&self, low: u64, at: u64) -> Result<Option<Node<'_, N>>> {
        let mut node = self.node(at)?;
        for _ in 0..STEPS_MAX {
            let range = node.range();
            if range.is_dead() || range.bound > low || range.bound == NO_KEY {
                return Ok(None);
            }
            if range.bound == low {
                return Ok(Some(node));
            }
            node = self.node(range.neighbour)?;
        }
        Ok(None)
    }

    /// Gives up all nodes that hold nothing, and tells parents of nodes that they do not know.
    pub(super) fn compact_all(&self) -> Result<()> {
        let mut low = 0;
        loop {
            let guard = self.pool.enter();
            let leaf = self.descend(0, low)?;
            let range = leaf.range();
            if leaf.survey(range.bound).count == 0 {
                self.give_up(0, leaf.low(), &guard)?;
            } else if leaf.low() != 0 {
                self.adopt(Some(leaf));
            }
            if range.bound == NO_KEY {
                return Ok(());
            }
            low = range.bound;
        }
    }
}
