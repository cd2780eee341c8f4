//! New nodes: where two keys diverge, and where a node is too small or too large for its children.

use std::borrow::Borrow;

use gabion_media::pmem::{Guard, POff, Reserved};

use super::Art;
use super::key::{self, Branch};
use super::layout::{Child, Kind, NODE_ALIGN};
use super::node::Node;
use super::readpath::damaged;
use super::recovery::some_key_below;
use super::writepath::{PrefixMismatch, is_as_seen};
use crate::leaf;
use crate::node_lock::NodeGuard;
use crate::{Item, Result};

/// The children of a node, in the order of their bytes.
#[derive(Clone, Debug)]
pub(super) struct SortedChildren {
    pub(super) end: Child,
    pub(super) children: Vec<(u8, Child)>,
}

/// That a node was replaced. As long as this is held, nobody takes away what came with the new one:
/// the allocator is to be told first that it is in use.
pub(super) struct ReplacedNode<'a> {
    // Let go before the other, whose word it may share.
    _new_lock: Option<NodeGuard<'a>>,
    _parent_lock: NodeGuard<'a>,
}

impl SortedChildren {
    /// Children and end.
    pub(super) fn count(&self) -> usize {
        self.children.len() + usize::from(!self.end.is_none())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count() == 0
    }

    fn of(entries: [(Branch, Child); 2]) -> SortedChildren {
        let mut form = SortedChildren {
            end: Child::NONE,
            children: Vec::new(),
        };
        for (branch, child) in entries {
            match branch {
                None => form.end = child,
                Some(byte) => form.children.push((byte, child)),
            }
        }
        form.children.sort_by_key(|(byte, _)| *byte);
        form
    }

    /// The only child, if there is one, or none if there is no child.
    fn only(&self) -> Option<Child> {
        let first = self.children.first().map(|(_, child)| *child);
        (self.count() <= 1).then(|| first.unwrap_or(self.end))
    }

    /// The bytes of a node of these children.
    fn image(&self, kind: Kind, level: usize, before: u64) -> Vec<u8> {
        let mut bytes = vec![0; usize::try_from(kind.bytes()).unwrap_or(0)];
        let (keys, children) = kind.places();
        let mut put = |at: usize, word: u64| bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
        put(0, level as u64);
        put(8, before);
        put(16, self.end.0);
        for (slot, (byte, child)) in self.children.iter().enumerate() {
            let is_direct = kind == Kind::Node256;
            let slot = if is_direct { usize::from(*byte) } else { slot };
            put(children + 8 * slot, child.0);
        }
        for (number, (byte, _)) in (1..).zip(&self.children) {
            match kind {
                Kind::Node48 => bytes[keys + usize::from(*byte)] = number,
                Kind::Node256 => {}
                _ => bytes[keys + usize::from(number) - 1] = *byte,
            }
        }
        bytes
    }
}

impl<K: Item + ?Sized> Art<K> {
    /// Reserves and writes a node, without a fence.
    fn build(
        &self,
        form: &SortedChildren,
        level: usize,
        before: u64,
    ) -> Result<(Reserved<'_>, Child)> {
        let kind = Kind::for_children(form.children.len());
        let node = self
            .pool
            .alloc_aligned(kind.bytes(), NODE_ALIGN, kind as u64)?;
        let at = node.offset::<u8>().raw();
        self.medium.write(at, &form.image(kind, level, before));
        self.medium.flush_range(at, kind.bytes());
        Ok((node, Child::new(kind, at)))
    }

    /// Puts a node between `above` and its child `child`, where a new key parts from what is there.
    /// False if somebody was in the way.
    #[cold]
    pub(super) fn fork(
        &self,
        above: &Node<'_>,
        child: Child,
        fork: PrefixMismatch,
        key: &K,
        value: u64,
    ) -> Result<bool> {
        let branch = key::branch(key, above.level());
        let Some(lock) = self.lock(above, branch, child) else {
            return Ok(false);
        };
        let leaf = leaf::write(&self.pool, key, value, Kind::Leaf as u64)?;
        let new = Child::new(Kind::Leaf, leaf.offset::<u8>().raw());
        let level = fork.level;
        let form = SortedChildren::of([(key::branch(key, level), new), (fork.branch, child)]);
        let (node, new) = self.build(&form, level, key::before(key, level))?;
        // Nobody takes the new leaf or node away before the allocator knows that they are in use.
        let Some(_new_lock) = self.locks.try_beside(&[&lock], new.at()) else {
            return Ok(false);
        };
        // DURABLE: leaf and node, before anything leads to them.
        self.medium.fence();
        above.replace(&self.medium, branch, new);
        node.commit::<u8>();
        leaf.commit::<u8>();
        Ok(true)
    }

    /// Replaces a locked node by one of the right size with these children, by its only child, or
    /// by nothing. `parent` is above it on the way of `key`. None if somebody was in the way.
    #[cold]
    pub(super) fn reform<'a>(
        &'a self,
        parent: &Node<'a>,
        key: &K,
        node: &Node<'a>,
        lock: &NodeGuard<'a>,
        form: &SortedChildren,
        guard: &Guard<'_>,
    ) -> Result<Option<ReplacedNode<'a>>> {
        let branch = key::branch(key, parent.level());
        let Some(parent_lock) = self.locks.try_beside(&[lock], parent.at()) else {
            return Ok(None);
        };
        if !is_as_seen(parent, branch, node.child) {
            return Ok(None);
        }
        let (new, child) = match form.only() {
            Some(child) => (None, child),
            None => {
                let (new, child) = self.build(form, node.level(), node.before())?;
                let held = self.locks.try_beside(&[lock, &parent_lock], child.at());
                let Some(held) = held else {
                    return Ok(None);
                };
                (Some((new, held)), child)
            }
        };
        let space: POff<u8> = POff::new(node.at());
        let retiring = self.pool.retire(space, node.child.kind() as u64)?;
        // DURABLE: the new node, and what the allocator noted of both.
        self.medium.fence();
        if child.is_none() {
            parent.unlink(&self.medium, branch);
        } else {
            parent.replace(&self.medium, branch, child);
        }
        node.give_up(&self.medium);
        let _new_lock = new.map(|(new, held)| {
            new.commit::<u8>();
            held
        });
        retiring.commit(guard);
        Ok(Some(ReplacedNode {
            _new_lock,
            _parent_lock: parent_lock,
        }))
    }

    /// The key of some leaf below a child.
    pub(super) fn some_key(&self, child: Child) -> Result<K::Owned> {
        some_key_below::<K>(&self.medium, child).ok_or_else(|| damaged(child.at()))
    }

    /// Gives nodes the size that suits their children, as far as deletes have not done so.
    pub(super) fn compact_all(&self) -> Result<()> {
        let _within = self.pool.write_guard();
        let mut nodes = vec![self.root()];
        let guard = self.pool.enter();
        while let Some(parent) = nodes.pop() {
            for (byte, child) in parent.children() {
                if child.is_leaf() {
                    continue;
                }
                let node = self.node_below(&parent, child)?;
                let branch = Some(byte);
                let lock = self.locks.lock(node.at());
                let form = SortedChildren {
                    end: node.end(),
                    children: node.children(),
                };
                if node.is_dead() || !node.is_too_large_for(&form) || form.is_empty() {
                    drop(lock);
                    nodes.push(node);
                    continue;
                }
                let key = self.some_key(child)?;
                if !is_as_seen(&parent, branch, child) {
                    continue;
                }
                let reformed = self.reform(&parent, key.borrow(), &node, &lock, &form, &guard)?;
                let is_done = reformed.is_some();
                drop(reformed);
                drop(lock);
                // What took its place is looked at in its turn.
                let now = parent.find(branch).map(|(_, child)| child);
                match now.filter(|now| is_done && !now.is_leaf()) {
                    Some(now) => nodes.push(self.node_below(&parent, now)?),
                    None if is_done => {}
                    None => nodes.push(node),
                }
            }
        }
        Ok(())
    }
}
