//! The invariants, checked; and what the registry knows of the tree.

use std::collections::BTreeMap;

use gabion_media::pmem::Pool;

use super::bloom::tag_of;
use super::leaf::Leaf;
use super::log::Logged;
use super::mnode::Mnode;
use super::readpath::Search;
use super::{Options, SpTree};
use crate::index::{Checked, Index, Makers, OrderedIndex, Plan, visit_by_scans};
use crate::registry::{Kind, Persists, Reads, Registered};
use crate::{Error, Result};

fn violation(what: &'static str, offset: u64) -> Error {
    Error::Damaged { what, offset }
}

impl<const N: usize> SpTree<N> {
    /// Number of entries; exact if nobody writes. A look at each node in DRAM.
    ///
    /// # Errors
    /// Damage on the medium.
    pub fn len(&self) -> Result<u64> {
        let (mut key, mut number, mut sum) = (0, 0, 0);
        loop {
            let mut search = Search::at(self, key, number);
            let seen = search.node();
            let count = seen.node.count() as u64;
            if !seen.node.is_still(seen.word) {
                continue;
            }
            sum += count;
            let Some(next) = seen.next.checked_sub(1) else {
                return Ok(sum);
            };
            (key, number) = (seen.hkey, next);
        }
    }

    /// Whether there is no entry.
    ///
    /// # Errors
    /// Damage on the medium.
    pub fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Checks all invariants, while nobody writes.
    ///
    /// # Errors
    /// The first violation.
    pub fn check(&self) -> Result<Checked> {
        let [named, waiting] = self.backup.all_leaves()?;
        let mut known: BTreeMap<u64, u64> = named.into_iter().collect();
        for (lkey, leaf) in waiting {
            if known.insert(lkey, leaf).is_some() {
                return Err(violation("a leaf that waits for the backup", leaf));
            }
        }
        let pages = self.logs.chain()?;
        let mut checked = Checked {
            entries: 0,
            blocks: self.backup.check()? + pages.len() as u64,
        };
        // In the order of numbers, so that the last change of a key is what the map has.
        let mut records: Vec<Logged> = pages
            .iter()
            .flat_map(|page| self.logs.records(*page))
            .collect();
        records.sort_unstable_by_key(|record| record.number);
        let logged: BTreeMap<u64, Logged> = records
            .into_iter()
            .map(|record| (record.key, record))
            .collect();
        let (mut number, mut before) = (0, 0);
        loop {
            let node = self.nodes.get(number);
            let node = node.ok_or_else(|| violation("a link of a node", number))?;
            let leaf = self.leaf(node.leaf())?;
            let keys = self.check_leaf(node, leaf)?;
            checked.entries += self.check_buffer(node, leaf, keys, &logged)?;
            checked.blocks += 1;
            let is_first = number == 0 && before == 0;
            if node.prev() != before || node.look().is_none() {
                return Err(violation("a node", leaf.at));
            }
            let is_known = known.remove(&node.lkey()) == Some(leaf.at);
            if is_known == is_first {
                return Err(violation("what the backup knows of a leaf", leaf.at));
            }
            let routed = self.router.exact(node.lkey());
            if routed.is_some_and(|routed| routed != number) {
                return Err(violation("what the router knows of a leaf", leaf.at));
            }
            before = number + 1;
            match node.next().checked_sub(1) {
                Some(next) => number = next,
                None => break,
            }
        }
        if let Some((_, leaf)) = known.pop_first() {
            return Err(violation("a leaf of the backup", leaf));
        }
        Ok(checked)
    }

    /// Checks the buffer of a node with a leaf of these keys: it has what the logs have for the
    /// leaf and nothing else, and the leaf has room for it. Counts the entries of both.
    fn check_buffer(
        &self,
        node: &Mnode,
        leaf: Leaf<'_, N>,
        mut keys: Vec<u64>,
        logged: &BTreeMap<u64, Logged>,
    ) -> Result<u64> {
        let of_leaf = if node.next() == 0 {
            logged.range(node.lkey()..)
        } else {
            logged.range(node.lkey()..node.hkey())
        };
        let mut waiting: BTreeMap<u64, Option<u64>> = of_leaf
            .filter(|(_, record)| record.number > node.merged())
            .map(|(key, record)| (*key, record.value))
            .collect();
        if node.merged() != leaf.merged() || node.merged() > node.last() {
            return Err(violation(
                "the number of the last change of a leaf",
                leaf.at,
            ));
        }
        let buffer = self.buffer_of(node);
        for entry in buffer.iter().flat_map(|buffer| buffer.entries()) {
            let hash = self.seed.hash_u64(entry.key);
            let is_known = entry.tag == tag_of(hash) && node.bloom.may_hold(hash);
            if !is_known || waiting.remove(&entry.key) != Some(Some(entry.value)) {
                return Err(violation("an entry of a write buffer", leaf.at));
            }
            if let Err(place) = keys.binary_search(&entry.key) {
                keys.insert(place, entry.key);
            }
        }
        // What is left are deletes, whose keys are neither here nor there.
        let is_gone = |(key, value): (&u64, &Option<u64>)| {
            value.is_none() && keys.binary_search(key).is_err()
        };
        if !waiting.iter().all(is_gone) {
            return Err(violation("a change in the logs of an SPTree", leaf.at));
        }
        if keys.len() != node.count() || keys.len() > N {
            return Err(violation("the number of entries of a leaf", leaf.at));
        }
        Ok(keys.len() as u64)
    }

    /// Checks a leaf and its node; its keys in their order.
    fn check_leaf(&self, node: &Mnode, leaf: Leaf<'_, N>) -> Result<Vec<u64>> {
        let next = node.next().checked_sub(1);
        let next = next.and_then(|next| self.nodes.get(next));
        let is_linked = match next {
            Some(next) => next.lkey() == leaf.hkey() && next.leaf() == leaf.next(),
            None => leaf.hkey() == u64::MAX && leaf.next() == 0,
        };
        let range = (leaf.lkey(), leaf.hkey());
        if !is_linked || range != (node.lkey(), node.hkey()) || range.0 >= range.1 {
            return Err(violation("the range of a leaf", leaf.at));
        }
        let mut keys = Vec::new();
        for (slot, key, _) in leaf.entries() {
            let hash = self.seed.hash_u64(key);
            if leaf.tag(slot) != tag_of(hash) || !node.bloom.may_hold(hash) {
                return Err(violation("what is known of a key", leaf.at));
            }
            let is_below = next.is_none() || key < range.1;
            if key < range.0 || !is_below {
                return Err(violation("a key of a leaf", leaf.at));
            }
            keys.push(key);
        }
        keys.sort_unstable();
        if !keys.is_sorted_by(|one, two| one < two) {
            return Err(violation("the keys of a leaf", leaf.at));
        }
        Ok(keys)
    }
}

impl<const N: usize> Index<u64> for SpTree<N> {
    fn get(&self, key: &u64) -> Result<Option<u64>> {
        SpTree::get(self, *key)
    }

    fn insert(&self, key: &u64, value: u64) -> Result<Option<u64>> {
        SpTree::insert(self, *key, value)
    }

    fn update(&self, key: &u64, value: u64) -> Result<Option<u64>> {
        SpTree::update(self, *key, value)
    }

    fn remove(&self, key: &u64) -> Result<Option<u64>> {
        SpTree::remove(self, *key)
    }

    fn len(&self) -> Result<u64> {
        SpTree::len(self)
    }

    fn for_each(&self, visit: &mut dyn FnMut(&u64, u64)) -> Result<()> {
        visit_by_scans(self, visit)
    }

    fn compact(&self) -> Result<()> {
        SpTree::compact(self)
    }

    fn check(&self) -> Result<Checked> {
        SpTree::check(self)
    }

    fn pool(&self) -> &Pool {
        SpTree::pool(self)
    }

    fn ordered(&self) -> Option<&dyn OrderedIndex<u64>> {
        Some(self)
    }
}

/// As many write buffers as there are leaves.
const BUFFERS_FOR_ALL: Options = Options {
    buffer_bytes: u64::MAX,
};

const fn makers<const N: usize>() -> Makers<u64> {
    Makers {
        pool_options: SpTree::<N>::pool_options,
        create: |pool, plan| Ok(Box::new(SpTree::<N>::create(pool, plan)?)),
        open: |pool| Ok(Box::new(SpTree::<N>::open(pool)?)),
        create_ordered: Some(|pool, plan| Ok(Box::new(SpTree::<N>::create(pool, plan)?))),
    }
}

const fn buffered_makers<const N: usize>() -> Makers<u64> {
    Makers {
        pool_options: SpTree::<N>::pool_options,
        create: |pool, plan| Ok(Box::new(create_buffered::<N>(pool, plan)?)),
        open: |pool| Ok(Box::new(SpTree::<N>::open_with(pool, BUFFERS_FOR_ALL)?)),
        create_ordered: Some(|pool, plan| Ok(Box::new(create_buffered::<N>(pool, plan)?))),
    }
}

fn create_buffered<const N: usize>(pool: &Pool, plan: Plan) -> Result<SpTree<N>> {
    SpTree::create_with(pool, plan, BUFFERS_FOR_ALL)
}

const fn registered(name: &'static str, title: &'static str, words: Makers<u64>) -> Registered {
    Registered {
        name,
        title,
        kind: Kind::Tree,
        reads: Reads::Optimistic,
        persists: Persists {
            insert: 2,
            update: 1,
            remove: 1,
        },
        source: "X. Zhao, dissertation, UT Arlington 2022",
        words,
        strings: None,
    }
}

/// As [`registered`], with write buffers.
const fn buffered(name: &'static str, title: &'static str, words: Makers<u64>) -> Registered {
    let plain = registered(name, title, words);
    Registered {
        persists: Persists {
            insert: 1,
            ..plain.persists
        },
        ..plain
    }
}

/// What the registry knows of the tree.
pub(crate) static REGISTERED: Registered = registered("sptree", "SPTree", makers::<64>());

/// The tree with a write buffer for each leaf.
pub(crate) static BUFFERED: Registered = buffered(
    "sptree-b",
    "SPTree with write buffers",
    buffered_makers::<64>(),
);

/// A tree with leaves of eight pairs, which the tests of small trees make long.
#[cfg(test)]
pub(crate) static TINY: Registered = registered("sptree-tiny", "SPTree (tiny)", makers::<8>());

/// The same with write buffers, of three pairs each.
#[cfg(test)]
pub(crate) static TINY_BUFFERED: Registered = buffered(
    "sptree-b-tiny",
    "SPTree with write buffers (tiny)",
    buffered_makers::<8>(),
);
