//! Compaction: combines nodes that deletes have left small.

use gabion_media::pmem::Guard;

use super::form::UnpackedNode;
use super::layout::{Child, ROOM};
use super::node::Node;
use super::path::{ChildWord, PathStep};
use super::publish::UnpublishedBlocks;
use super::{Hot, damaged};
use crate::node_lock::NodeGuard;
use crate::{Item, Result};

impl<K: Item + ?Sized> Hot<K> {
    /// Makes one node of two that are the sides of one bit, and of a node and the one above it,
    /// where one has room for the children of both; from the bottom up.
    ///
    /// # Errors
    /// No space in the pool; the trie is sound, and holds what it held.
    pub fn compact(&self) -> Result<()> {
        let _within = self.pool.write_guard();
        let guard = self.pool.enter();
        // Places, and whether all below them was seen to.
        let mut places = vec![(self.root(), false)];
        while let Some((place, is_below_done)) = places.pop() {
            let child = self.child(&place);
            if !child.is_node() {
                continue;
            }
            let node = self.node_below(&place, child)?;
            if !is_below_done {
                places.push((place, true));
                places.extend((0..node.count()).map(|slot| (ChildWord::of(node, slot), false)));
                continue;
            }
            let step = PathStep { place, child };
            if self.join(&step, &node, &guard)? || self.absorb(&step, &node, &guard)? {
                places.push((place, true));
            }
        }
        Ok(())
    }

    /// The children of what a child leads to: those of a node, or the leaf.
    fn count(&self, child: Child) -> Result<usize> {
        if child.is_node() {
            return Ok(self.node(child)?.count());
        }
        Ok(1)
    }

    /// Makes one node of two neighbours in the node of a step that are the sides of one bit, if it
    /// has room. False if there are no such neighbours, or if somebody was in the way.
    fn join<'a>(&'a self, step: &PathStep<'a>, node: &Node<'a>, guard: &Guard<'_>) -> Result<bool> {
        let mut form = UnpackedNode::of(node);
        for slot in 0..node.count() - 1 {
            let Some(position) = form.position(slot) else {
                return Err(damaged(node.at));
            };
            let other = |at: Option<usize>| at.and_then(|at| form.position(at));
            let is_above = |at| other(at).is_none_or(|other| other < position);
            let is_one_bit = is_above(slot.checked_sub(1)) && is_above(Some(slot + 1));
            let [left, right] = [form.children()[slot], form.children()[slot + 1]];
            let is_fitting = self.count(left)? + self.count(right)? <= ROOM;
            if !is_one_bit || !is_fitting || left.is_leaf() && right.is_leaf() {
                continue;
            }
            let sides = [(slot, left), (slot + 1, right)];
            let sides = sides.map(|(slot, child)| PathStep {
                place: ChildWord::of(*node, slot),
                child,
            });
            let Some(locks) = self.lock_nodes(&sides, step)? else {
                continue;
            };
            let mut made = UnpublishedBlocks::default();
            let mut both = UnpackedNode::pair(left, position, right);
            let mut given_up = vec![step.child];
            for (slot, child) in [(1, right), (0, left)] {
                if child.is_node() {
                    both.absorb(slot, &UnpackedNode::of(&self.node(child)?));
                    given_up.push(child);
                }
            }
            let height = self.height_over(both.children())?;
            let both = self.make_node(&mut made, &both, height)?;
            // Under the locks the children are what they are now.
            form = UnpackedNode::of(node);
            form.remove(slot + 1);
            form.replace(slot, both);
            let height = self.height_over(form.children())?;
            let new = self.make_node(&mut made, &form, height)?;
            let held: Vec<_> = locks.iter().collect();
            return self.publish(&step.place, new, made, &given_up, &held, guard);
        }
        Ok(false)
    }

    /// Puts the children of one node into the node above it, which is that of a step, if they have
    /// room. False if there is no such node, or if somebody was in the way.
    fn absorb<'a>(
        &'a self,
        step: &PathStep<'a>,
        node: &Node<'a>,
        guard: &Guard<'_>,
    ) -> Result<bool> {
        for slot in 0..node.count() {
            let place = ChildWord::of(*node, slot);
            let child = node.child(slot);
            if !child.is_node() || node.count() + self.count(child)? > ROOM + 1 {
                continue;
            }
            let Some(locks) = self.lock_nodes(&[PathStep { place, child }], step)? else {
                continue;
            };
            let mut form = UnpackedNode::of(node);
            form.absorb(slot, &UnpackedNode::of(&self.node(child)?));
            let height = self.height_over(form.children())?;
            let mut made = UnpublishedBlocks::default();
            let new = self.make_node(&mut made, &form, height)?;
            let (gone, held): (_, Vec<_>) = ([step.child, child], locks.iter().collect());
            return self.publish(&step.place, new, made, &gone, &held, guard);
        }
        Ok(false)
    }

    /// Locks those of some children of a node that are nodes, one at least, then the node and the
    /// place of a step above it; none if one is not as it was.
    fn lock_nodes<'a>(
        &'a self,
        below: &[PathStep<'a>],
        step: &PathStep<'a>,
    ) -> Result<Option<Vec<NodeGuard<'a>>>> {
        let mut held: Vec<NodeGuard<'a>> = Vec::with_capacity(4);
        for child in below.iter().map(|step| step.child) {
            if child.is_node() {
                let at = self.node(child)?.at;
                let lock = match held.first() {
                    None => Some(self.locks.lock(at)),
                    Some(first) => self.locks.try_beside(&[first], at),
                };
                let Some(lock) = lock else { return Ok(None) };
                held.push(lock);
            }
        }
        for step in [&below[0], step] {
            let others: Vec<&NodeGuard<'a>> = held.iter().collect();
            let lock = self.lock_beside(&others, step);
            let Some(lock) = lock else { return Ok(None) };
            held.push(lock);
        }
        let is_as_seen = below.iter().all(|step| step.place.has(step.child));
        Ok(is_as_seen.then_some(held))
    }
}
