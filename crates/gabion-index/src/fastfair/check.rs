//! The check of the invariants, and the tree's entry in the registry.

use gabion_media::pmem::Pool;

use super::FastFair;
use super::layout::is_padded;
use super::node::Node;
use crate::blink::{Checks, NodeRemoval, Tree};
use crate::index::{CheckSummary, Makers, count_by_scans, index_by_methods};
use crate::registered::{IndexKind, PersistCounts, ReadProtocol, Registered};
use crate::spoton::search_starts::told;
use crate::{Error, Result};

impl<const N: usize> FastFair<N> {
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

    /// Gives up all nodes that hold nothing, as far as deletes have not done so. Nodes of which
    /// little is left stay as they are.
    ///
    /// # Errors
    /// Damage on the medium.
    pub fn compact(&self) -> Result<()> {
        let _within = self.pool.write_guard();
        self.give_up_all()
    }

    /// Checks all invariants, while nobody writes.
    ///
    /// # Errors
    /// The first violation.
    pub fn check(&self) -> Result<CheckSummary> {
        // The first leaf lies in the block of the header, which counts in its place.
        let mut entries = u64::from(self.get_greatest().is_some());
        let blocks = self.check_levels(&mut |node| {
            let count = self.check_node(node)?;
            if node.head.level() == 0 {
                entries += count;
            }
            Ok(())
        })?;
        if let Some(paths) = &self.paths {
            paths.check(|low, at| {
                let leaf = self.node(at).ok().map(|leaf| leaf.head);
                leaf.is_some_and(|head| {
                    let range = head.range();
                    range.level() == 0 && !range.is_dead() && head.low() == *low
                })
            })?;
        }
        Ok(CheckSummary { entries, blocks })
    }

    /// Checks the entries of a node and counts them.
    fn check_node(&self, node: Node<'_, N>) -> Result<u64> {
        let bound = node.head.range().bound;
        let survey = node.survey(bound);
        let keys: Vec<u64> = (0..survey.count).map(|slot| node.key(slot)).collect();
        let dead = keys.windows(2).filter(|keys| keys[0] == keys[1]).count();
        let is_sorted = keys.is_sorted() && keys.iter().all(|&key| key >= node.head.low());
        // What lies behind must not be found by a search that does not look at the bound.
        let is_ended = (survey.count..N).all(|slot| node.key(slot) >= bound);
        if !is_sorted || dead > 1 || !is_ended {
            return Err(Error::damaged("the order of a node", node.at));
        }
        Ok((survey.count - dead) as u64)
    }
}

index_by_methods!([const N: usize], FastFair<N>, u64, |key| *key, compact);

fn create<const N: usize, const IS_CACHED: bool>(pool: &Pool) -> Result<Box<FastFair<N>>> {
    told::<IS_CACHED, _>(FastFair::create(pool), FastFair::cached)
}

const fn makers<const N: usize, const IS_CACHED: bool>() -> Makers<u64> {
    Makers {
        pool_options: FastFair::<N>::pool_options,
        create: |pool, _| Ok(create::<N, IS_CACHED>(pool)?),
        open: |pool| {
            Ok(told::<IS_CACHED, FastFair<N>>(
                FastFair::open(pool),
                FastFair::cached,
            )?)
        },
        create_ordered: Some(|pool, _| Ok(create::<N, IS_CACHED>(pool)?)),
    }
}

const fn registered<const N: usize, const IS_CACHED: bool>(
    name: &'static str,
    title: &'static str,
) -> Registered {
    Registered {
        name,
        title,
        kind: IndexKind::Tree,
        reads: ReadProtocol::Optimistic,
        // Inserts and deletes write the lines, of four slots, that they shift: half of the entries
        // of a node that is seven tenths full. Padding splits the slot of one insert in four.
        persists: PersistCounts {
            insert: (N as u64).div_ceil(11) + is_padded(N) as u64,
            update: 1,
            remove: (N as u64).div_ceil(11),
        },
        source: "D. Hwang et al., FAST 2018",
        words: makers::<N, IS_CACHED>(),
        strings: None,
    }
}

/// What the registry knows of the tree with nodes of 512 bytes.
pub(crate) static REGISTERED: Registered = registered::<29, false>("fastfair", "FAST&FAIR");

/// What the registry knows of the tree with nodes of 256 bytes, the medium's unit.
pub(crate) static REGISTERED_256: Registered =
    registered::<13, false>("fastfair-256", "FAST&FAIR (256)");

/// What the registry knows of the tree with padded nodes of 512 bytes, as they were published.
pub(crate) static PADDED: Registered =
    registered::<28, false>("fastfair-padded", "FAST&FAIR (padded)");

/// What the registry knows of the tree with nodes of 512 bytes and the ways to its leaves in DRAM.
pub(crate) static CACHED: Registered =
    registered::<29, true>("fastfair-c", "FAST&FAIR, ways in DRAM");

/// A tree with nodes of two lines, which the tests of small trees make high.
#[cfg(test)]
pub(crate) static TINY: Registered = registered::<5, false>("fastfair-tiny", "FAST&FAIR (tiny)");

/// The same with the ways to its leaves in DRAM.
#[cfg(test)]
pub(crate) static TINY_CACHED: Registered = registered::<5, true>("fastfair-c-tiny", "");

/// The tree with padded nodes.
#[cfg(test)]
pub(crate) static TINY_PADDED: Registered = registered::<4, false>("fastfair-tiny-padded", "");
