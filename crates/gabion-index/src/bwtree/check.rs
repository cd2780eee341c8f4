//! The check of the invariants, and the tree's entry in the registry.

use std::cmp::Ordering;

use super::BwTree;
use super::page::Page;
use crate::index::{CheckSummary, Makers, count_by_scans, index_by_methods};
use crate::registered::{IndexKind, PersistCounts, ReadProtocol, Registered};
use crate::stored_key::StoredKey;
use crate::{Error, Item, Result};

impl<K: Item + ?Sized, const ENTRIES: usize, const DELTAS: u64> BwTree<K, ENTRIES, DELTAS> {
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

    /// Checks all invariants, while nobody writes.
    ///
    /// # Errors
    /// The first violation.
    pub fn check(&self) -> Result<CheckSummary> {
        let mut checked = CheckSummary::default();
        let mut first = self.load(self.root)?;
        if first.right != 0 {
            return Err(Error::damaged("the topmost page", first.word.base()));
        }
        loop {
            let level = first.level;
            let (mut page, mut low) = (first, None);
            loop {
                self.check_page(&page, level, low)?;
                checked.blocks += u64::from(page.word.base() != 0);
                // The cell of the topmost page lies in the block of the root.
                checked.blocks += 1;
                if level == 0 {
                    checked.entries += page.entries().len() as u64;
                }
                let Some(bound) = page.bound() else {
                    break;
                };
                low = Some(bound);
                page = self.load(page.right)?;
            }
            if level == 0 {
                return Ok(checked);
            }
            let below = first.entries().first().map(|(_, cell)| *cell);
            first = self.load(below.unwrap_or_default())?;
            if first.level + 1 != level {
                return Err(Error::damaged("the level of a page", first.word.base()));
            }
        }
    }

    fn order(&self, one: &StoredKey, two: &StoredKey) -> Ordering {
        one.order(&self.medium, two)
    }

    /// Checks a page that is to begin at a key, or at the least one.
    fn check_page(&self, page: &Page<'_>, level: u64, low: Option<StoredKey>) -> Result<()> {
        let low_is_right = match low {
            Some(low) => self.order(&page.low(), &low) == Ordering::Equal,
            None => (page.low().word, page.low().len) == (0, 0),
        };
        if page.level != level || page.word.is_dead() || !low_is_right {
            return Err(Error::damaged("the place of a page", page.word.base()));
        }
        let depth = page.deltas().count() as u64;
        let is_chain = page.depth() == depth && (depth == 0) == (page.word.top() == 0);
        if !is_chain || page.word.taken() > page.lines {
            return Err(Error::damaged("the deltas of a page", page.word.base()));
        }
        let entries = page.entries();
        let is_rising =
            entries.is_sorted_by(|one, two| self.order(&one.0, &two.0) == Ordering::Less);
        let is_above = entries
            .first()
            .is_none_or(|(first, _)| self.order(first, &page.low()) != Ordering::Less);
        let is_below = match (page.bound(), entries.last()) {
            (Some(bound), Some((last, _))) => self.order(last, &bound) == Ordering::Less,
            _ => true,
        };
        let bound_is_above = page
            .bound()
            .is_none_or(|bound| self.order(&bound, &page.low()) == Ordering::Greater);
        if !(is_rising && is_above && is_below && bound_is_above) {
            return Err(Error::damaged("the order of a page", page.word.base()));
        }
        if level == 0 {
            return Ok(());
        }
        let first = entries.first().map(|(first, _)| *first);
        if first.is_none_or(|first| self.order(&first, &page.low()) != Ordering::Equal) {
            return Err(Error::damaged(
                "the first entry of a page",
                page.word.base(),
            ));
        }
        for (low, cell) in entries {
            let child = self.load(cell)?;
            let is_it = self.order(&child.low(), &low) == Ordering::Equal;
            if !is_it || child.level + 1 != level || child.word.is_dead() {
                return Err(Error::damaged("a page below a page", page.word.base()));
            }
        }
        Ok(())
    }
}

index_by_methods!(
    [K: Item + ?Sized, const ENTRIES: usize, const DELTAS: u64],
    BwTree<K, ENTRIES, DELTAS>,
    K,
    |key| key,
    compact
);

const fn makers<K: Item + ?Sized, const ENTRIES: usize, const DELTAS: u64>() -> Makers<K> {
    Makers {
        pool_options: BwTree::<K, ENTRIES, DELTAS>::pool_options,
        create: |pool, _| Ok(Box::new(BwTree::<K, ENTRIES, DELTAS>::create(pool)?)),
        open: |pool| Ok(Box::new(BwTree::<K, ENTRIES, DELTAS>::open(pool)?)),
        create_ordered: Some(|pool, _| Ok(Box::new(BwTree::<K, ENTRIES, DELTAS>::create(pool)?))),
    }
}

const fn registered<const ENTRIES: usize, const DELTAS: u64>(
    name: &'static str,
    title: &'static str,
) -> Registered {
    Registered {
        name,
        title,
        kind: IndexKind::Tree,
        reads: ReadProtocol::LockFree,
        persists: PersistCounts {
            insert: 2,
            update: 2,
            remove: 2,
        },
        source: "J. Levandoski et al., ICDE 2013; Z. Wang et al., SIGMOD 2018; \
                 S. K. Lee et al., SOSP 2019",
        words: makers::<u64, ENTRIES, DELTAS>(),
        strings: Some(makers::<[u8], ENTRIES, DELTAS>()),
    }
}

/// What the registry knows.
pub(crate) static REGISTERED: Registered = registered::<64, 8>("p-bwtree", "P-BwTree");

/// A tree of small pages, for tests of few entries.
#[cfg(test)]
pub(crate) static TINY: Registered = registered::<6, 3>("p-bwtree-tiny", "P-BwTree (tiny)");
