//! Reads: down the tree without locks.

use std::borrow::Borrow;
use std::sync::atomic::Ordering;

use gabion_media::pmem::{PAtomicU64, POff};

use super::layout::PageWord;
use super::page::Page;
use super::{BwTree, damaged};
use crate::stored_key::KeyParts;
use crate::{Item, OrderedIndex, Result};

/// The page that a key belongs to.
pub(super) struct PageLookup<'a> {
    pub(super) page: Page<'a>,
    /// Whether it was reached from its left neighbour: its parent may not know of it.
    pub(super) is_stray: bool,
}

impl<K: Item + ?Sized, const ENTRIES: usize, const DELTAS: u64> BwTree<K, ENTRIES, DELTAS> {
    /// The word of a page. Cells lie where the tree says, unless the pool is damaged.
    #[inline]
    pub(super) fn cell(&self, at: u64) -> Result<&PAtomicU64> {
        self.medium.try_at(POff::new(at)).ok_or_else(|| damaged(at))
    }

    /// The page of a cell as it is now, durably.
    #[inline]
    pub(super) fn load(&self, at: u64) -> Result<Page<'_>> {
        let cell = self.cell(at)?;
        // ORDER: Acquire pairs with the release in `publish`: the page and its deltas are there.
        let word = PageWord(cell.load(&self.medium, Ordering::Acquire));
        if self.pending.is_marked(at) {
            self.settle(cell);
        }
        let page = Page::new(&self.medium, at, word, Self::DELTAS_AT);
        page.ok_or_else(|| damaged(at))
    }

    /// Makes durable what was seen of a writer who is at work.
    #[cold]
    #[inline(never)]
    fn settle(&self, cell: &PAtomicU64) {
        let _within = self.pool.write_guard();
        self.medium.flush(cell);
        // DURABLE: the word, before anybody relies on it.
        self.medium.fence();
    }

    /// The page of a level that a key belongs to; none if the tree is lower.
    ///
    /// A page that is not frozen was part of the tree when its word was loaded. One that is frozen
    /// was so if the word over which it was reached is afterwards what it was: whoever gives a page
    /// up freezes it first and then changes all words that lead to it. A writer must make sure
    /// itself that what it changes is not frozen.
    #[inline]
    pub(super) fn descend(&self, level: u64, key: &KeyParts<'_>) -> Result<Option<PageLookup<'_>>> {
        'root: loop {
            let mut page = self.load(self.root)?;
            let mut is_stray = false;
            loop {
                let is_here = page.has(key);
                let next = if !is_here {
                    page.right
                } else if page.level <= level {
                    let way = PageLookup { page, is_stray };
                    return Ok(Some(way).filter(|way| way.page.level == level));
                } else {
                    page.floor(key).ok_or_else(|| damaged(page.cell))?
                };
                let next = self.load(next)?;
                if next.word.is_frozen() && !self.leads_to(&page, &next)? {
                    continue 'root;
                }
                if next.level + u64::from(is_here) != page.level {
                    return Err(damaged(next.cell));
                }
                (page, is_stray) = (next, !is_here);
            }
        }
    }

    /// Whether a page that is frozen was part of the tree when its word was loaded.
    #[cold]
    fn leads_to(&self, from: &Page<'_>, to: &Page<'_>) -> Result<bool> {
        // ORDER: Acquire: after the load of the frozen word, and before what follows.
        let word = self.cell(from.cell)?.load(&self.medium, Ordering::Acquire);
        Ok(!to.word.is_dead() && PageWord(word) == from.word)
    }

    /// The bound of the page that a key belongs to, where the next page begins; none if it is the
    /// last one.
    pub(super) fn bound_behind(&self, page: &Page<'_>, key: &K) -> Result<Option<K::Owned>> {
        let Some(bound) = page.bound() else {
            return Ok(None);
        };
        let bound = bound.key::<K>(&self.medium);
        // Else a wrong bit could lead in a circle: the place of a bound says how it compares.
        let bound = bound.filter(|bound| bound.borrow() > key);
        Ok(Some(bound.ok_or_else(|| damaged(page.cell))?))
    }

    /// The value of `key`.
    ///
    /// # Errors
    /// Damage on the medium.
    #[inline]
    pub fn get(&self, key: &K) -> Result<Option<u64>> {
        let _guard = self.pool.enter();
        let parts = KeyParts::of(key);
        let way = self.descend(0, &parts)?;
        Ok(way.and_then(|way| way.page.find(&parts)))
    }
}

impl<K: Item + ?Sized, const ENTRIES: usize, const DELTAS: u64> OrderedIndex<K>
    for BwTree<K, ENTRIES, DELTAS>
{
    fn scan(&self, from: &K, limit: usize, found: &mut Vec<(K::Owned, u64)>) -> Result<()> {
        let _guard = self.pool.enter();
        let end = found.len().saturating_add(limit);
        let mut start = Some(K::rebuild(from.word(), from.bytes()));
        while let Some(low) = start.filter(|_| found.len() < end) {
            let parts = KeyParts::of(low.borrow());
            let Some(PageLookup { page, .. }) = self.descend(0, &parts)? else {
                break;
            };
            for (key, value) in page.entries_from(&parts, end - found.len()) {
                let key = key.key::<K>(&self.medium);
                found.push((key.ok_or_else(|| damaged(page.cell))?, value));
            }
            start = self.bound_behind(&page, low.borrow())?;
        }
        Ok(())
    }
}
