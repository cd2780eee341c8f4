//! The descent: down the tree, and to the right where the parent does not know a split yet.
//!
//! A search comes to its end, or says that there is damage, whatever the nodes hold: levels fall on
//! the way down and stay on the way to the right, links that lead in a ring are found, and a search
//! does not begin again without end.

use std::sync::atomic::Ordering;

use super::{LockedNode, Node, NodeRange, Tree, damaged};
use crate::Result;
use crate::atomic::yield_now;

/// Nodes that recovery looks at for one block: more than any sound tree needs.
const FIND_STEPS_MAX: u32 = 10_000;

/// Searches that begin again before there must be damage: each of the others was led astray by
/// somebody who changed a node at that moment, and nobody who stops in the middle leads any astray.
const TURNS_MAX: u32 = 1000;

/// Steps along a level to the left neighbour of a node: more are between the two only if many
/// nodes there are unknown to their parent, and then another time will do.
const LEFT_STEPS_MAX: u32 = 16;

/// A locked leaf, and perhaps a node that its parent does not know.
pub(crate) type LockedLeaf<'a, N> = (LockedNode<'a, N>, Option<N>);

/// How nodes are found.
pub(crate) trait Descent: Tree {
    /// The topmost node.
    #[inline]
    fn top(&self) -> Result<Self::Node<'_>> {
        // ORDER: Acquire pairs with the release in `grow`.
        self.node(self.top_word().load(self.medium(), Ordering::Acquire))
    }

    /// The node of a level that `key` belongs to, which others may split or give up meanwhile; none
    /// if the tree has no such level any more, or is gone.
    #[inline]
    fn descend(&self, level: u64, key: u64) -> Result<Option<Self::Node<'_>>> {
        Ok(self
            .descend_by(level, key, |_, _| ())?
            .map(|(node, _)| node))
    }

    /// As [`Descent::descend`], telling of each step to the right: from which node to which. The
    /// node comes with the range by which the key belonged there.
    #[inline]
    fn descend_by<'a>(
        &'a self,
        level: u64,
        key: u64,
        mut step: impl FnMut(Self::Node<'a>, Self::Node<'a>),
    ) -> Result<Option<(Self::Node<'a>, NodeRange)>> {
        // If it turns out to be of no use, the way begins at the top.
        let mut begin = match level {
            0 => self.leaf_before(key),
            _ => None,
        };
        let mut turns = 0;
        'top: loop {
            let mut node = match begin.take() {
                Some(leaf) => self.node(leaf)?,
                None => self.top()?,
            };
            let mut links = Links::default();
            loop {
                node.prefetch();
                let range = node.head().range();
                if range.is_dead() || key < node.head().low() {
                    if self.is_gone() {
                        return Ok(None);
                    }
                    turn(&mut turns, node.at())?;
                    continue 'top;
                }
                if !range.is_below_bound(key) {
                    let neighbour = self.node(range.neighbour)?;
                    if neighbour.head().level() != range.level() {
                        return Err(damaged(neighbour.at()));
                    }
                    links.follow(neighbour.at())?;
                    step(node, neighbour);
                    node = neighbour;
                } else if range.level() <= level {
                    return Ok(Some((node, range)).filter(|_| range.level() == level));
                } else {
                    let child = self.node(node.child(key))?;
                    if child.head().level() + 1 != range.level() {
                        return Err(damaged(child.at()));
                    }
                    node = child;
                }
            }
        }
    }

    /// As [`Descent::descend`], for whoever makes something durable that rests on what was reached.
    #[inline]
    fn descend_settled(&self, level: u64, key: u64) -> Result<Option<Self::Node<'_>>> {
        let found = self.descend_by(level, key, |from, _| self.settle_link(from))?;
        Ok(found.map(|(node, _)| node))
    }

    /// Makes the link of a node to its right neighbour durable, if its writer may not have come to
    /// that yet.
    #[track_caller]
    fn settle_link(&self, from: Self::Node<'_>) {
        if self.locks().is_locked(from.at()) {
            // DURABLE: the link, before anything that is only reached over it.
            self.medium().persist(from.head());
        }
    }

    /// The node whose bound is `low`, from the node at `at` on along its level: reached by links
    /// that are durable.
    fn left_of(&self, low: u64, at: u64) -> Result<Option<Self::Node<'_>>> {
        let mut node = self.node(at)?;
        for _ in 0..LEFT_STEPS_MAX {
            let range = node.head().range();
            if range.is_dead() || range.is_last() || range.bound > low {
                return Ok(None);
            }
            if range.bound == low {
                return Ok(Some(node));
            }
            self.settle_link(node);
            node = self.node(range.neighbour)?;
        }
        Ok(None)
    }

    /// Locks the leaf that `key` belongs to. With it comes the last node that was
    /// reached from its left neighbour: its parent may not know of it.
    /// None if the tree is gone.
    fn lock_leaf(&self, key: u64) -> Result<Option<LockedLeaf<'_, Self::Node<'_>>>> {
        loop {
            let mut stray = None;
            let leaf = self.descend_by(0, key, |from, to| {
                stray = Some(to);
                self.settle_link(from);
            })?;
            let Some((leaf, _)) = leaf else {
                return Ok(None);
            };
            if let Some(leaf) = self.lock(leaf, key) {
                return Ok(Some((leaf, stray)));
            }
        }
    }

    /// Locks a node and puts it in order; none if `key` does not belong there any more.
    fn lock<'a>(
        &'a self,
        node: Self::Node<'a>,
        key: u64,
    ) -> Option<LockedNode<'a, Self::Node<'a>>> {
        let lock = self.locks().lock(node.at());
        let range = node.head().range();
        range.has(key).then(|| self.tidy(node, range, lock))
    }
}

impl<T: Tree> Descent for T {}

/// Counts a search that begins again because of a node.
///
/// # Errors
/// There were too many.
#[cold]
fn turn(turns: &mut u32, at: u64) -> Result<()> {
    *turns += 1;
    if *turns > TURNS_MAX {
        return Err(damaged(at));
    }
    yield_now();
    Ok(())
}

/// The links that a search follows to the right: each leads further, unless they are damaged.
#[derive(Default)]
struct Links {
    count: u64,
    /// A node that one of them led to: the last one of which the number is a power of two.
    mark: u64,
}

impl Links {
    /// Follows one to a node.
    ///
    /// # Errors
    /// They go round in a ring.
    #[inline]
    fn follow(&mut self, to: u64) -> Result<()> {
        if self.mark == to {
            return Err(damaged(to));
        }
        self.count += 1;
        if self.count.is_power_of_two() {
            self.mark = to;
        }
        Ok(())
    }
}

/// The node of a level that `low` belongs to, from the topmost on, while nobody writes. For
/// recovery, which is asked about blocks before there is a tree.
pub(crate) fn find<'a, N: Node<'a>>(
    node_at: impl Fn(u64) -> Option<N>,
    top: u64,
    level: u64,
    low: u64,
) -> Option<N> {
    let mut node = node_at(top)?;
    for _ in 0..FIND_STEPS_MAX {
        let range = node.head().range();
        let next = if !range.is_below_bound(low) {
            range.neighbour
        } else if range.level() == level {
            return Some(node);
        } else {
            node.entry_upto(low)?.1
        };
        node = node_at(next)?;
    }
    None
}
