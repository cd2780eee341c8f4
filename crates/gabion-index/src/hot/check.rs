//! The check of the invariants, and the trie's entry in the registry.

use std::borrow::Borrow;

use super::Hot;
use super::bits::differ;
use super::form::UnpackedNode;
use super::layout::Child;
use super::node::Node;
use super::path::ChildWord;
use crate::index::{CheckSummary, Makers, index_by_methods};
use crate::registered::{IndexKind, PersistCounts, ReadProtocol, Registered};
use crate::{Error, Item, Result};

impl<K: Item + ?Sized> Hot<K> {
    /// Number of entries; exact if nobody writes. Reads all nodes, and no leaf.
    ///
    /// # Errors
    /// Damage on the medium.
    pub fn len(&self) -> Result<u64> {
        let _guard = self.pool.enter();
        let mut count = 0;
        self.visit_children(|_, child| {
            count += u64::from(child.is_leaf());
            Ok(())
        })?;
        Ok(count)
    }

    /// Whether there is no entry.
    ///
    /// # Errors
    /// Damage on the medium.
    pub fn is_empty(&self) -> Result<bool> {
        Ok(self.child(&self.root()).is_none())
    }

    /// Calls a function for each child with its place, from the top down.
    fn visit_children(
        &self,
        mut visit: impl FnMut(&ChildWord<'_>, Child) -> Result<()>,
    ) -> Result<()> {
        let mut places = vec![self.root()];
        while let Some(place) = places.pop() {
            let child = self.child(&place);
            visit(&place, child)?;
            if child.is_node() {
                let node = self.node_below(&place, child)?;
                places.extend((0..node.count()).map(|slot| ChildWord::of(node, slot)));
            }
        }
        Ok(())
    }

    /// Checks all invariants, while nobody writes.
    ///
    /// # Errors
    /// The first violation.
    pub fn check(&self) -> Result<CheckSummary> {
        let mut checked = CheckSummary {
            entries: 0,
            // The root.
            blocks: 1,
        };
        self.visit_children(|place, child| {
            if child.is_none() && place.node.is_none() {
                return Ok(());
            }
            checked.blocks += 1;
            if child.is_leaf() {
                checked.entries += 1;
                return self.check_leaf(child);
            }
            let node = self.node(child)?;
            if node.is_dead() {
                return Err(Error::damaged("a retired node", child.at()));
            }
            self.check_node(child, &node)
        })?;
        Ok(checked)
    }

    /// Checks that a search for the key of a leaf ends there.
    fn check_leaf(&self, child: Child) -> Result<()> {
        let leaf = self.leaf(child)?;
        let key = leaf
            .key::<K>()
            .ok_or_else(|| Error::damaged("a key", child.at()))?;
        if self.get(key.borrow())? == Some(leaf.value()) {
            return Ok(());
        }
        Err(Error::damaged("the place of a leaf", child.at()))
    }

    /// Checks that neighbours in a node are in order and part where the node says, which must be
    /// said in the one way that there is: as if they had come one by one, and that the node is
    /// higher than its children.
    fn check_node(&self, child: Child, node: &Node<'_>) -> Result<()> {
        let form = UnpackedNode::of(node);
        if self.height_over(form.children())? > node.height() {
            return Err(Error::damaged("the height of a node", child.at()));
        }
        let mut made: Option<UnpackedNode> = None;
        for (slot, two) in form.children().windows(2).enumerate() {
            let left = self.some_key(two[0], true)?;
            let right = self.some_key(two[1], false)?;
            let (left, right): (&K, &K) = (left.borrow(), right.borrow());
            let position = differ(left, right).filter(|_| left < right);
            let position =
                position.ok_or_else(|| Error::damaged("the order of children", child.at()))?;
            match &mut made {
                Some(made) => made.part(slot, position, two[1]),
                None => made = Some(UnpackedNode::pair(two[0], position, two[1])),
            }
        }
        if !made.is_some_and(|made| node.is_image(made.image(0).bytes())) {
            return Err(Error::damaged(
                "the masks or the partial keys of a node",
                child.at(),
            ));
        }
        Ok(())
    }
}

index_by_methods!([K: Item + ?Sized], Hot<K>, K, |key| key, compact);

const fn makers<K: Item + ?Sized>() -> Makers<K> {
    Makers {
        pool_options: Hot::<K>::pool_options,
        create: |pool, _| Ok(Box::new(Hot::<K>::create(pool)?)),
        open: |pool| Ok(Box::new(Hot::<K>::open(pool)?)),
        create_ordered: Some(|pool, _| Ok(Box::new(Hot::<K>::create(pool)?))),
    }
}

/// What the registry knows.
pub(crate) static REGISTERED: Registered = Registered {
    name: "p-hot",
    title: "P-HOT",
    kind: IndexKind::Trie,
    reads: ReadProtocol::Optimistic,
    persists: PersistCounts {
        insert: 2,
        update: 1,
        remove: 2,
    },
    source: "R. Binna et al., SIGMOD 2018; S. K. Lee et al., SOSP 2019",
    words: makers(),
    strings: Some(makers()),
};
