//! The check of the invariants, and the tree's entry in the registry.

use super::layer::Layer;
use super::node::Node;
use super::readpath::SliceTarget;
use super::{Masstree, slice};
use crate::blink::{Checks, Node as _};
use crate::index::{CheckSummary, Makers, count_by_scans, index_by_methods};
use crate::registered::{IndexKind, PersistCounts, ReadProtocol, Registered};
use crate::{Error, Item, Result};

impl<K: Item + ?Sized> Masstree<K> {
    /// Number of entries; exact if nobody writes. Reads all leaves.
    ///
    /// # Errors
    /// Damage on the medium.
    pub fn len(&self) -> Result<u64> {
        count_by_scans(self)
    }

    /// Whether there is no entry.
    ///
    /// # Errors
    /// Damage on the medium.
    pub fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Gives up all nodes and layers that hold nothing, as far as deletes have not done so. Nodes
    /// of which little is left stay as they are.
    ///
    /// # Errors
    /// Damage on the medium.
    pub fn compact(&self) -> Result<()> {
        self.prune_all()
    }

    /// Checks all invariants, while nobody writes.
    ///
    /// # Errors
    /// The first violation.
    pub fn check(&self) -> Result<CheckSummary> {
        let mut checked = CheckSummary::default();
        let mut layers = vec![(self.root, 0)];
        while let Some((first, depth)) = layers.pop() {
            let layer = self.layer(first);
            // The first leaf of all lies in the block of the root, which counts in its place.
            checked.blocks += layer.check_levels(&mut |node| {
                if node.head().low() == 0 && node.head().level() == 0 && node.at != first {
                    return Err(Error::damaged("the first leaf of a layer", node.at));
                }
                self.check_order(node)?;
                if node.head().level() == 0 {
                    self.check_leaf((&layer, depth), node, &mut checked, &mut layers)?;
                }
                Ok(())
            })?;
        }
        Ok(checked)
    }

    /// Checks the order of a node.
    fn check_order(&self, node: Node<'_>) -> Result<()> {
        let permutation = node.permutation();
        let slices = (0..permutation.count()).map(|rank| node.slice(permutation.slot(rank)));
        let slices: Vec<u64> = slices.collect();
        let is_rising = slices.is_sorted_by(|one, two| one < two);
        let is_above = slices
            .first()
            .is_none_or(|first| *first >= node.head().low());
        if permutation.is_sound() && is_rising && is_above {
            return Ok(());
        }
        Err(Error::damaged("the order of a node", node.at))
    }

    /// Checks and counts what the entries of a leaf, in a layer of a depth, lead to.
    fn check_leaf(
        &self,
        (layer, depth): (&Layer<'_>, usize),
        leaf: Node<'_>,
        checked: &mut CheckSummary,
        layers: &mut Vec<(u64, usize)>,
    ) -> Result<()> {
        for (word, value) in leaf.entries(leaf.head().range()) {
            if slice::is_last::<K>(word) {
                checked.entries += 1;
                continue;
            }
            match SliceTarget::new(&self.medium, value, depth)? {
                SliceTarget::Rest(record) => {
                    if record.slice(&self.medium) != word || record.rest(&self.medium).is_empty() {
                        return Err(Error::damaged("a record", leaf.at));
                    }
                    checked.entries += 1;
                    checked.blocks += 1;
                }
                SliceTarget::Layer(first) => {
                    layer.expect_below(word, first)?;
                    layers.push((first, depth + 1));
                }
            }
        }
        Ok(())
    }
}

index_by_methods!([K: Item + ?Sized], Masstree<K>, K, |key| key, compact);

const fn makers<K: Item + ?Sized>() -> Makers<K> {
    Makers {
        pool_options: Masstree::<K>::pool_options,
        create: |pool, _| Ok(Box::new(Masstree::<K>::create(pool)?)),
        open: |pool| Ok(Box::new(Masstree::<K>::open(pool)?)),
        create_ordered: Some(|pool, _| Ok(Box::new(Masstree::<K>::create(pool)?))),
    }
}

/// What the registry knows.
pub(crate) static REGISTERED: Registered = Registered {
    name: "p-masstree",
    title: "P-Masstree",
    kind: IndexKind::Tree,
    reads: ReadProtocol::Optimistic,
    persists: PersistCounts {
        insert: 2,
        update: 1,
        remove: 1,
    },
    source: "Y. Mao et al., EuroSys 2012; S. K. Lee et al., SOSP 2019",
    words: makers(),
    strings: Some(makers()),
};
