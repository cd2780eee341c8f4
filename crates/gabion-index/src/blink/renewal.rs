//! Renewal: replaces a leaf with all its entries by new nodes, in one step.
//!
//! It is a split in which everything goes to the right. The new nodes are durable before the old
//! one's link leads to them, and with that store its bound falls to its own low. From then on
//! nothing belongs to the old node, and whoever comes there goes on to the right: it is *spent*.
//!
//! ```text
//!                   parent              parent                     parent
//!                     │                   │                          │
//!         left ───► old         left ───► old ─► new       left ─► old ─► new     left ──► new
//!                                        spent                    spent
//!           before                link of old              parent            left neighbour
//! ```
//!
//! Then its parent is led past it, and after that its left neighbour, each durably and under its
//! lock, and it is given up. In this order a spent node is always on the way along the level, from
//! its left neighbour to the node that has its range, whatever its parent knows, and nobody but
//! that neighbour has to be asked whether it is in use.
//!
//! A crash in between, or somebody who is in the way, leaves a spent node where it is. That is
//! sound, and costs searches a step. There may be several in a row, with the same low, if the next
//! node is replaced meanwhile. All of a row go when the node behind them is replaced again or is
//! to be given up, when a writer comes along them to that node and its parent does not know it
//! ([`Tree::pass_by`]), and with [`NodeRemoval::give_up_all`](super::NodeRemoval::give_up_all).

use gabion_media::pmem::{Guard, POff};

use super::{Descent, LockedNode, Node, NodeInit, NodeSplit, Tree};
use crate::Result;

/// Whether a node is a leaf that has handed its range over. The first one never does.
pub(crate) fn is_spent<'a>(node: impl Node<'a>) -> bool {
    let (range, low) = (node.head().range(), node.head().low());
    let is_leaf = range.level() == 0 && !range.is_dead();
    is_leaf && !range.is_last() && range.bound == low && low > 0
}

/// How the entries of a leaf are replaced.
pub(crate) trait Renewal: Tree {
    /// Lets the entry of a key in a locked inner node lead elsewhere, with a fence.
    fn redirect<'a>(&'a self, node: &LockedNode<'a, Self::Node<'a>>, key: u64, at: u64);

    /// Puts `entries`, one at least and in the order of their keys, in the place of those of a
    /// leaf, which is not the first one. It is a stray if its parent may not know it. Readers may
    /// see what is new before it is durable: whoever calls sees to it that none of them relies on
    /// that. False if somebody was in the way: nothing has changed then.
    ///
    /// # Errors
    /// No space: nothing has changed then. Or damage.
    fn renew<'a>(
        &'a self,
        leaf: LockedNode<'a, Self::Node<'a>>,
        is_stray: bool,
        entries: &[(u64, u64)],
        guard: &Guard<'_>,
    ) -> Result<bool> {
        let LockedNode { node, range, .. } = leaf;
        let low = node.head().low();
        let nodes = entries.len().div_ceil(Self::ROOM);
        let mut plan = NodeInit {
            level: range.level(),
            low,
            neighbour: range.neighbour,
            bound: range.bound,
        };
        let mut spaces = Vec::with_capacity(nodes);
        let parts = entries.chunks(entries.len().div_ceil(nodes));
        for (number, part) in parts.enumerate().rev() {
            plan.low = if number == 0 { low } else { part[0].0 };
            let space = self.build(&plan, part)?;
            plan.neighbour = space.offset::<u8>().raw();
            plan.bound = plan.low;
            spaces.push(space);
        }
        // The last one comes first. It is given up under the lock of its left neighbour, the others
        // under theirs, and the first one under that of the old leaf.
        let lefts = spaces.iter().skip(1);
        let lefts = lefts.map(|space| space.offset::<u8>().raw());
        let Some(locks) = self.locks().try_all_beside(&[&leaf.lock], lefts) else {
            return Ok(false);
        };
        // DURABLE: the new nodes, before the link to them.
        self.medium().fence();
        node.head().link(self.medium(), plan.neighbour, low);
        // DURABLE: all that is new.
        self.medium().persist(&node.head().state);
        let new: Vec<u64> = spaces
            .into_iter()
            .rev()
            .map(|space| space.commit::<u8>().raw())
            .collect();
        drop(locks);
        drop(leaf);
        // What is not done now is done later.
        let _ = self.bypass(low, guard);
        for at in new.into_iter().skip(usize::from(!is_stray)) {
            self.adopt(Some(self.node(at)?));
        }
        Ok(true)
    }

    /// Leads the parent and the left neighbour of spent leaves with this low past them, as long as
    /// there are some and nobody is in the way, and gives them up.
    ///
    /// # Errors
    /// No room for a note of the allocator, or damage.
    fn bypass(&self, low: u64, guard: &Guard<'_>) -> Result<()> {
        let Some(before) = low.checked_sub(1) else {
            return Ok(());
        };
        // Over a link that is not durable yet a crash would leave the one before it, by which the
        // leaf that is given up here would be in use again.
        let parent = self.descend_settled(1, low)?;
        let Some(parent) = parent.and_then(|parent| self.lock(parent, low)) else {
            return Ok(());
        };
        let Some(left) = self.descend_settled(0, before)? else {
            return Ok(());
        };
        let Some(left_lock) = self.locks().try_beside(&[&parent.lock], left.at()) else {
            return Ok(());
        };
        loop {
            let range = left.head().range();
            if range.is_dead() || range.is_last() || range.bound != low {
                return Ok(());
            }
            let spent = self.node(range.neighbour)?;
            // Whoever replaces it keeps its lock until the link is durable.
            let held = [&parent.lock, &left_lock];
            let Some(_lock) = self.locks().try_beside(&held, spent.at()) else {
                return Ok(());
            };
            if !is_spent(spent) {
                return Ok(());
            }
            let next = spent.head().range().neighbour;
            let space: POff<u8> = POff::new(spent.at());
            let retiring = self.pool().retire(space, self.hint())?;
            let known = parent.node.entry_upto(low).filter(|(key, _)| *key == low);
            let mut known = known.map(|(_, at)| at);
            // DURABLE: what the allocator noted, and that the parent leads elsewhere, before the
            // left neighbour's link, by which the leaf is in use, does.
            if known == Some(spent.at()) {
                self.redirect(&parent, low, next);
                known = Some(next);
            } else {
                self.medium().fence();
            }
            left.head().link(self.medium(), next, low);
            // DURABLE: that nothing leads to the leaf.
            self.medium().persist(&left.head().state);
            match known {
                Some(at) => self.note_child(&self.node(at)?),
                None => self.note_end(&spent),
            }
            spent.head().give_up(self.medium());
            retiring.commit(guard);
        }
    }
}
