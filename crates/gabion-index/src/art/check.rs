//! The check of the invariants, and the trie's entry in the registry.

use std::borrow::Borrow;

use super::Art;
use super::key;
use super::layout::Child;
use super::node::Node;
use crate::index::{CheckSummary, Makers, index_by_methods};
use crate::registered::{IndexKind, PersistCounts, ReadProtocol, Registered};
use crate::{Error, Item, Result};

impl<K: Item + ?Sized> Art<K> {
    /// Number of entries; exact if nobody writes. Reads all nodes, and no leaf.
    ///
    /// # Errors
    /// Damage on the medium.
    pub fn len(&self) -> Result<u64> {
        let _guard = self.pool.enter();
        let (mut count, mut nodes) = (0, vec![self.root()]);
        while let Some(node) = nodes.pop() {
            count += u64::from(!node.end().is_none());
            for (_, child) in node.children() {
                if child.is_leaf() {
                    count += 1;
                } else {
                    nodes.push(self.node_below(&node, child)?);
                }
            }
        }
        Ok(count)
    }

    /// Whether there is no entry.
    ///
    /// # Errors
    /// Damage on the medium.
    pub fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Gives nodes the size that suits their children, as far as deletes have not done so.
    ///
    /// # Errors
    /// No space in the pool; the trie is sound, and holds what it held.
    pub fn compact(&self) -> Result<()> {
        self.compact_all()
    }

    /// Checks all invariants, while nobody writes. It ends on any medium: where a lookup would wait
    /// for a writer who is not there, it is damage.
    ///
    /// # Errors
    /// The first violation.
    pub fn check(&self) -> Result<CheckSummary> {
        let mut checked = CheckSummary {
            entries: 0,
            // The header and the root.
            blocks: 1,
        };
        let _guard = self.pool.enter();
        let mut nodes = vec![self.root()];
        while let Some(node) = nodes.pop() {
            if node.is_dead() || (node.level() != 0 && node.child == self.root) {
                return Err(Error::damaged("the state of a node", node.at()));
            }
            let mut children: Vec<_> = node.children();
            children.sort_unstable_by_key(|(_, child)| child.0);
            if children.windows(2).any(|two| two[0].1 == two[1].1) {
                return Err(Error::damaged("a duplicate child of a node", node.at()));
            }
            let end = Some(node.end()).filter(|end| !end.is_none());
            let branches = children
                .iter()
                .map(|(byte, child)| (Some(*byte), *child))
                .chain(end.map(|end| (None, end)));
            let mut count = 0;
            for (branch, child) in branches {
                count += 1;
                checked.blocks += 1;
                if child.is_leaf() {
                    checked.entries += 1;
                    self.check_leaf(&node, branch, child)?;
                } else {
                    let below = self.node(child)?;
                    self.check_below(&node, branch, &below)?;
                    nodes.push(below);
                }
            }
            if count == 0 && node.child != self.root {
                return Err(Error::damaged("a node without children", node.at()));
            }
        }
        Ok(checked)
    }

    /// Checks that a leaf is where a search for its key ends.
    fn check_leaf(&self, node: &Node<'_>, branch: key::Branch, child: Child) -> Result<()> {
        let leaf = self.leaf(child)?;
        let key = leaf.key::<K>();
        let key = key.ok_or_else(|| Error::damaged("a key", node.at()))?;
        let key: &K = key.borrow();
        let is_here = key::len(key) >= node.level() && key::branch(key, node.level()) == branch;
        if !is_here || self.try_get(key)? != Some(Some(leaf.value())) {
            return Err(Error::damaged("the place of a leaf", node.at()));
        }
        Ok(())
    }

    /// Checks what a node says about itself against a key below it.
    fn check_below(&self, node: &Node<'_>, branch: key::Branch, below: &Node<'_>) -> Result<()> {
        let key = self.some_key(below.child)?;
        let key: &K = key.borrow();
        let level = below.level();
        let is_sound = level > node.level()
            && level <= key::len(key)
            && key::branch(key, node.level()) == branch
            && key::before(key, level) == below.before();
        if is_sound {
            return Ok(());
        }
        Err(Error::damaged(
            "the level or the prefix of a node",
            below.at(),
        ))
    }
}

index_by_methods!([K: Item + ?Sized], Art<K>, K, |key| key, compact);

const fn makers<K: Item + ?Sized>() -> Makers<K> {
    Makers {
        pool_options: Art::<K>::pool_options,
        create: |pool, _| Ok(Box::new(Art::<K>::create(pool)?)),
        open: |pool| Ok(Box::new(Art::<K>::open(pool)?)),
        create_ordered: Some(|pool, _| Ok(Box::new(Art::<K>::create(pool)?))),
    }
}

/// What the registry knows.
pub(crate) static REGISTERED: Registered = Registered {
    name: "p-art",
    title: "P-ART",
    kind: IndexKind::Trie,
    reads: ReadProtocol::Optimistic,
    persists: PersistCounts {
        insert: 2,
        update: 1,
        remove: 2,
    },
    source: "V. Leis et al., ICDE 2013 and DaMoN 2016; S. K. Lee et al., SOSP 2019",
    words: makers(),
    strings: Some(makers()),
};
