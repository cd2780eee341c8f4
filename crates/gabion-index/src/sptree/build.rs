//! The nodes of a run: the one that stands for it at first, and all of them once its leaves were
//! looked at.
//!
//! Nothing leads to a new node before the run is whole: what fails gives all of them up again, and
//! the raw node is as it was (R4 in `parallel_recovery.rs`). Then they are linked between the raw
//! node and its right neighbour, whose place does not change meanwhile (R1), and there for others
//! when their locks are let go.

use std::borrow::Borrow;

use super::item::LEAST;
use super::leaf::HeadChange;
use super::mnode::{LockedNode, NodeInit};
use super::parallel_recovery::LeafRun;
use super::router::SearchStart;
use super::steps::{Step, is_taken};
use super::walk::{RunLeaf, damaged};
use super::{SpTree, TreeKey};
use crate::Result;

impl<K: TreeKey + ?Sized, const N: usize> SpTree<K, N> {
    /// Makes the nodes that stand for runs; their numbers are those of the runs.
    pub(super) fn add_raw_nodes(&self, runs: &[LeafRun<K>]) -> Result<()> {
        let mut before: Option<LockedNode<'_>> = None;
        for (number, run) in (0..).zip(runs) {
            let (lkey, at) = run.starts.first().ok_or_else(|| damaged(self.root))?;
            let node = self.new_node(lkey, *at)?;
            if node.number != number {
                return Err(damaged(*at));
            }
            node.set_raw(true);
            if let Some(before) = &before {
                join(before, &node);
            }
            self.lead_to(&node, lkey);
            before = Some(node);
        }
        Ok(())
    }

    /// A node for a leaf, locked, which nothing leads to.
    fn new_node(&self, lkey: &K::Owned, at: u64) -> Result<LockedNode<'_>> {
        let lkey = if self.leaf(at)?.lkey() == LEAST {
            LEAST
        } else {
            let bound = self.router.bound(lkey.borrow())?;
            let word = bound.word;
            bound.commit();
            word
        };
        let born = NodeInit {
            leaf: at,
            lkey,
            hkey: u64::MAX,
            next: 0,
            prev: 0,
            count: 0,
            merged: 0,
        };
        self.nodes.add(born).ok_or_else(|| {
            self.router.give_up(lkey);
            damaged(at)
        })
    }

    /// Has the router lead to a node.
    fn lead_to(&self, node: &LockedNode<'_>, lkey: &K::Owned) {
        let hint = SearchStart {
            node: node.number,
            leaf: node.leaf(),
        };
        self.router.add(lkey.borrow(), hint);
    }

    /// Makes the nodes of a run, of which `head` is the first.
    pub(super) fn build(&self, head: &LockedNode<'_>, run: &LeafRun<K>) -> Result<()> {
        let parts = self.walk(run)?;
        for part in &parts {
            let Some(mend) = part.mend.filter(|_| is_taken(Step::Mend)) else {
                continue;
            };
            if !self.recovery.may_mend() {
                return Err(damaged(part.at));
            }
            let changes = [HeadChange::Hkey(mend.hkey), HeadChange::Bitmap(mend.bitmap)];
            self.leaf(part.at)?.change_head(&changes);
        }
        let fresh = self.recovery.expect(parts.len(), run);
        let mut nodes = Vec::with_capacity(parts.len());
        let filled = self.fill(head, &mut nodes, &parts, run);
        filled.inspect_err(|_| {
            self.recovery.expect_again(fresh);
            nodes.drain(..).for_each(|node| self.drop_node(node));
        })?;
        self.publish(head, &nodes, parts);
        Ok(())
    }

    /// Makes the nodes of all parts but the first, and says in each node, and in `head`, what there
    /// is to be known of its leaf. The leaves take what the logs have for them.
    fn fill<'a>(
        &'a self,
        head: &LockedNode<'a>,
        nodes: &mut Vec<LockedNode<'a>>,
        parts: &[RunLeaf<K>],
        run: &LeafRun<K>,
    ) -> Result<()> {
        for part in parts.iter().skip(1) {
            nodes.push(self.new_node(&part.lkey, part.at)?);
        }
        for (node, part) in std::iter::once(head).chain(&*nodes).zip(parts) {
            node.set_count(part.count);
            node.set_last(part.merged);
            node.set_merged(part.merged);
            node.bloom.set(part.filter);
            node.note_change();
        }
        self.replay_run(head, nodes, &run.records)
    }

    /// Gives a node up that nothing leads to.
    fn drop_node(&self, node: LockedNode<'_>) {
        let (number, bound) = (node.number, node.lkey());
        node.bury();
        self.router.give_up(bound);
        self.nodes.give_back(number);
    }

    /// Links the nodes of a run, and has router and backup know of them.
    fn publish(&self, head: &LockedNode<'_>, nodes: &[LockedNode<'_>], parts: Vec<RunLeaf<K>>) {
        let (hkey, right) = (head.hkey(), head.next().checked_sub(1));
        let mut before = head;
        for node in nodes {
            join(before, node);
            before = node;
        }
        before.set_hkey(hkey);
        before.link(right.and_then(|right| Some((right, self.nodes.get(right)?))));
        for (node, part) in nodes.iter().zip(parts.iter().skip(1)) {
            self.lead_to(node, &part.lkey);
        }
        for part in parts.into_iter().filter(|part| !part.is_named) {
            self.backup.add(part.lkey, part.at);
        }
    }
}

/// Makes two nodes neighbours; whoever calls holds both locks.
fn join(left: &LockedNode<'_>, right: &LockedNode<'_>) {
    left.set_hkey(right.lkey());
    left.link(Some((right.number, right)));
}
