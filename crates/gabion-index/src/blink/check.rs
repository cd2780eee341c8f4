//! The check of a tree's invariants.

use std::collections::BTreeSet;

use super::{Descent, NO_BOUND, Node, NodeRange, Tree, is_spent};
use crate::{Error, Result};

/// What is checked of every tree.
pub(crate) trait Checks: Tree {
    /// Checks what trees have in common, while nobody writes, and visits all nodes. Returns their
    /// number.
    ///
    /// # Errors
    /// The first violation.
    fn check_levels<'a>(
        &'a self,
        visit: &mut dyn FnMut(Self::Node<'a>) -> Result<()>,
    ) -> Result<u64> {
        let (mut first, mut nodes) = (self.top()?, 0);
        // What the level above leads to.
        let mut named = BTreeSet::new();
        loop {
            let (mut node, level) = (first, first.head().level());
            let (mut low, mut children) = (0, BTreeSet::new());
            // Each counts once, so that a walk along a level comes to its end.
            let mut spent = BTreeSet::new();
            let mut is_new_spent =
                |node: Self::Node<'a>| Self::RENEWS && is_spent(node) && spent.insert(node.at());
            loop {
                let range = node.head().range();
                if range.is_dead() || range.level() != level {
                    return Err(Error::damaged("the state of a node", node.at()));
                }
                let is_rising = match range.is_last() {
                    true => range.bound == NO_BOUND,
                    false => range.bound > low || is_new_spent(node),
                };
                if node.head().low() != low || !is_rising {
                    return Err(Error::damaged("the range of a node", node.at()));
                }
                self.check_children(node, range, &mut children)?;
                visit(node)?;
                nodes += 1;
                named.remove(&node.at());
                if range.is_last() {
                    break;
                }
                low = range.bound;
                node = self.node(range.neighbour)?;
            }
            if let Some(at) = named.first() {
                let what = "a child without a link from its neighbours";
                return Err(Error::damaged(what, *at));
            }
            named = children;
            if level == 0 {
                return Ok(nodes);
            }
            let below = self.node(first.child(0))?;
            if below.head().level() + 1 != level {
                return Err(Error::damaged("the level of a node", below.at()));
            }
            first = below;
        }
    }

    /// Checks the entries of an inner node, and says to what they lead.
    fn check_children(
        &self,
        node: Self::Node<'_>,
        range: NodeRange,
        children: &mut BTreeSet<u64>,
    ) -> Result<()> {
        if range.level() == 0 {
            return Ok(());
        }
        let entries = node.entries(range);
        if entries.first().map(|(key, _)| *key) != Some(node.head().low()) {
            return Err(Error::damaged("the first slot of a node", node.at()));
        }
        for (key, at) in entries {
            let child = self.node(at)?;
            if child.head().low() != key || child.head().level() + 1 != range.level() {
                return Err(Error::damaged("a child of a node", node.at()));
            }
            children.insert(at);
        }
        Ok(())
    }
}

impl<T: Tree> Checks for T {}
