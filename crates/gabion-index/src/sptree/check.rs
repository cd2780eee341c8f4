//! The invariants, checked; and what the registry knows of the tree.

use std::borrow::Borrow;
use std::collections::BTreeMap;

use gabion_media::pmem::Pool;

use super::backup::BackupState;
use super::bloom::tag_of;
use super::item::{LEAST, bound_key, key_of};
use super::leaf::Leaf;
use super::log::LoggedChange;
use super::mnode::Mnode;
use super::readpath::NodeSearch;
use super::{Options, SpTree, TreeKey};
use crate::index::{CheckSummary, IndexPlan, Makers, index_by_methods};
use crate::registered::{IndexKind, PersistCounts, ReadProtocol, Registered};
use crate::stored_key::KeyParts;
use crate::{Error, Result};

impl<K: TreeKey + ?Sized, const N: usize> SpTree<K, N> {
    /// Number of entries; exact if nobody writes. A look at each node in DRAM.
    ///
    /// # Errors
    /// Damage on the medium.
    pub fn len(&self) -> Result<u64> {
        let (mut key, mut number, mut sum) = (self.router.key(LEAST)?, 0, 0);
        loop {
            let _pins = self.pin();
            let mut search = NodeSearch::at(self, key.borrow(), number);
            let seen = search.node()?;
            let count = seen.node.count() as u64;
            if !seen.node.is_still(seen.word) {
                continue;
            }
            sum += count;
            let Some(next) = seen.next.checked_sub(1) else {
                return Ok(sum);
            };
            (key, number) = (self.router.key(seen.hkey)?, next);
        }
    }

    /// Whether there is no entry.
    ///
    /// # Errors
    /// Damage on the medium.
    pub fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Checks all invariants, while nobody writes; all of the tree is in memory then.
    ///
    /// # Errors
    /// The first violation.
    pub fn check(&self) -> Result<CheckSummary> {
        self.recover_all()?;
        let BackupState {
            named,
            waiting,
            blocks,
        } = self.backup.all()?;
        let mut known: BTreeMap<K::Owned, u64> = named.into_iter().collect();
        for (lkey, leaf) in waiting {
            if known.insert(lkey, leaf).is_some() {
                return Err(Error::damaged("a leaf that waits for the backup", leaf));
            }
        }
        let pages = self.logs.chain()?;
        let mut checked = CheckSummary {
            entries: 0,
            blocks: blocks + pages.len() as u64,
        };
        // In the order of numbers, so that the last change of a key is what the map has.
        let mut records: Vec<LoggedChange> = pages
            .iter()
            .flat_map(|page| self.logs.records(*page))
            .collect();
        records.sort_unstable_by_key(|record| record.number);
        let logged: BTreeMap<u64, LoggedChange> = records
            .into_iter()
            .map(|record| (record.key, record))
            .collect();
        let (mut number, mut before) = (0, 0);
        loop {
            let node = self.nodes.get(number);
            let node = node.ok_or_else(|| Error::damaged("a link of a node", number))?;
            let leaf = self.leaf(node.leaf())?;
            let keys = self.check_leaf(node, leaf)?;
            checked.blocks += 1;
            if K::IS_WORD {
                let words = keys.iter().map(|key| {
                    let key: &K = key.borrow();
                    key.word()
                });
                checked.entries += self.check_buffer(node, leaf, words.collect(), &logged)?;
            } else {
                // An item for each pair, and one for the lkey.
                checked.entries += self.check_count(node, leaf, keys.len())?;
                checked.blocks += (keys.len() + usize::from(leaf.lkey() != LEAST)) as u64;
            }
            let is_first = number == 0 && before == 0;
            if node.prev() != before || node.look().is_none() {
                return Err(Error::damaged("a node", leaf.at));
            }
            let lkey = self.router.key(node.lkey())?;
            let is_known = known.remove::<K::Owned>(&lkey) == Some(leaf.at);
            if is_known == is_first {
                return Err(Error::damaged("the backup's entry of a leaf", leaf.at));
            }
            let routed = self.router.exact(lkey.borrow());
            if routed.is_some_and(|routed| routed != number) {
                return Err(Error::damaged("the router's entry of a leaf", leaf.at));
            }
            before = number + 1;
            match node.next().checked_sub(1) {
                Some(next) => number = next,
                None => break,
            }
        }
        if let Some((_, leaf)) = known.pop_first() {
            return Err(Error::damaged("a leaf of the backup", leaf));
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
        logged: &BTreeMap<u64, LoggedChange>,
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
            return Err(Error::damaged(
                "the number of the last change of a leaf",
                leaf.at,
            ));
        }
        let buffer = self.buffer_of(node);
        for entry in buffer.iter().flat_map(|buffer| buffer.entries()) {
            let hash = self.seed.hash_u64(entry.key);
            let is_known = entry.tag == tag_of(hash) && node.bloom.may_hold(hash);
            if !is_known || waiting.remove(&entry.key) != Some(Some(entry.value)) {
                return Err(Error::damaged("an entry of a write buffer", leaf.at));
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
            return Err(Error::damaged("a change in the logs of an SPTree", leaf.at));
        }
        self.check_count(node, leaf, keys.len())
    }

    /// Checks the number of entries of a node.
    fn check_count(&self, node: &Mnode, leaf: Leaf<'_, N>, count: usize) -> Result<u64> {
        if count != node.count() || count > N {
            return Err(Error::damaged("the number of entries of a leaf", leaf.at));
        }
        Ok(count as u64)
    }

    /// Checks that a leaf and its node have the same range: its lkey, and its hkey unless it is the
    /// last one.
    fn check_range(&self, node: &Mnode, leaf: Leaf<'_, N>) -> Result<(K::Owned, Option<K::Owned>)> {
        let wrong = || Error::damaged("the range of a leaf", leaf.at);
        let lkey = bound_key::<K>(&self.medium, leaf.lkey())?;
        let next = node.next().checked_sub(1);
        let hkey = match next.and_then(|next| self.nodes.get(next)) {
            Some(next) => {
                let is_linked = next.lkey() == node.hkey() && next.leaf() == leaf.next();
                let of_next = self.leaf(next.leaf())?.lkey();
                if !is_linked || of_next != leaf.hkey() {
                    return Err(wrong());
                }
                Some(bound_key::<K>(&self.medium, leaf.hkey())?)
            }
            None if leaf.hkey() == u64::MAX && leaf.next() == 0 => None,
            None => return Err(wrong()),
        };
        let is_same = self.router.key(node.lkey())? == lkey
            && match &hkey {
                Some(hkey) => self.router.key(node.hkey())? == *hkey && lkey < *hkey,
                None => node.hkey() == u64::MAX,
            };
        if is_same {
            Ok((lkey, hkey))
        } else {
            Err(wrong())
        }
    }

    /// Checks a leaf and its node; its keys in their order.
    fn check_leaf(&self, node: &Mnode, leaf: Leaf<'_, N>) -> Result<Vec<K::Owned>> {
        let (lkey, hkey) = self.check_range(node, leaf)?;
        let mut keys = Vec::new();
        for (slot, key, value) in leaf.entries() {
            let owned = key_of::<K>(&self.medium, [key, value])?;
            let of_pair: &K = owned.borrow();
            let hash = of_pair.seeded_hash(&self.seed);
            let is_first = KeyParts::of(of_pair).word == key;
            if leaf.tag(slot) != tag_of(hash) || !node.bloom.may_hold(hash) || !is_first {
                return Err(Error::damaged("the tag or the filter of a key", leaf.at));
            }
            if owned < lkey || hkey.as_ref().is_some_and(|hkey| owned >= *hkey) {
                return Err(Error::damaged("a key of a leaf", leaf.at));
            }
            keys.push(owned);
        }
        keys.sort_unstable();
        if !keys.is_sorted_by(|one, two| one < two) {
            return Err(Error::damaged("the keys of a leaf", leaf.at));
        }
        Ok(keys)
    }
}

index_by_methods!([const N: usize], SpTree<u64, N>, u64, |key| *key, compact);

/// As many write buffers as there are leaves.
const BUFFERS_FOR_ALL: Options = Options {
    buffer_bytes: u64::MAX,
};

const fn makers<const N: usize>() -> Makers<u64> {
    Makers {
        pool_options: SpTree::<u64, N>::pool_options,
        create: |pool, plan| Ok(Box::new(SpTree::<u64, N>::create(pool, plan)?)),
        open: |pool| Ok(Box::new(SpTree::<u64, N>::open(pool)?)),
        create_ordered: Some(|pool, plan| Ok(Box::new(SpTree::<u64, N>::create(pool, plan)?))),
    }
}

const fn string_makers<const N: usize>() -> Makers<[u8]> {
    Makers {
        pool_options: SpTree::<[u8], N>::pool_options,
        create: |pool, plan| Ok(Box::new(SpTree::<[u8], N>::create(pool, plan)?)),
        open: |pool| Ok(Box::new(SpTree::<[u8], N>::open(pool)?)),
        create_ordered: Some(|pool, plan| Ok(Box::new(SpTree::<[u8], N>::create(pool, plan)?))),
    }
}

const fn buffered_makers<const N: usize>() -> Makers<u64> {
    Makers {
        pool_options: SpTree::<u64, N>::pool_options,
        create: |pool, plan| Ok(Box::new(create_buffered::<N>(pool, plan)?)),
        open: |pool| {
            Ok(Box::new(SpTree::<u64, N>::open_with(
                pool,
                BUFFERS_FOR_ALL,
            )?))
        },
        create_ordered: Some(|pool, plan| Ok(Box::new(create_buffered::<N>(pool, plan)?))),
    }
}

fn create_buffered<const N: usize>(pool: &Pool, plan: IndexPlan) -> Result<SpTree<u64, N>> {
    SpTree::create_with(pool, plan, BUFFERS_FOR_ALL)
}

const fn registered(name: &'static str, title: &'static str, words: Makers<u64>) -> Registered {
    Registered {
        name,
        title,
        kind: IndexKind::Tree,
        reads: ReadProtocol::Optimistic,
        persists: PersistCounts {
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
        persists: PersistCounts {
            insert: 1,
            ..plain.persists
        },
        ..plain
    }
}

/// What the registry knows of the tree.
pub(crate) static REGISTERED: Registered = Registered {
    strings: Some(string_makers::<64>()),
    ..registered("sptree", "SPTree", makers::<64>())
};

/// The tree with a write buffer for each leaf.
pub(crate) static BUFFERED: Registered = buffered(
    "sptree-b",
    "SPTree with write buffers",
    buffered_makers::<64>(),
);

/// A tree with leaves of eight pairs, which the tests of small trees make long.
#[cfg(test)]
pub(crate) static TINY: Registered = Registered {
    strings: Some(string_makers::<8>()),
    ..registered("sptree-tiny", "SPTree (tiny)", makers::<8>())
};

/// The same with write buffers, of three pairs each.
#[cfg(test)]
pub(crate) static TINY_BUFFERED: Registered = buffered(
    "sptree-b-tiny",
    "SPTree with write buffers (tiny)",
    buffered_makers::<8>(),
);
