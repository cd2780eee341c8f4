//! Merges small pages with a neighbour, and lowers the tree.

use std::borrow::Borrow;
use std::cmp::Ordering;

use gabion_media::pmem::Guard;

use super::image::{PagePlan, delta_lines};
use super::layout::{HINT_CELL, HINT_PAGE};
use super::page::Page;
use super::readpath::PageLookup;
use super::shape::{DeltaNeed, FollowUp, word_of};
use super::{BwTree, damaged};
use crate::node_lock::NodeGuard;
use crate::stored_key::{KeyParts, StoredKey};
use crate::{Item, Result};

impl<K: Item + ?Sized, const ENTRIES: usize, const DELTAS: u64> BwTree<K, ENTRIES, DELTAS> {
    /// Lets the page of a level that a key belongs to become one with a neighbour that has the same
    /// parent, if there is room for both in one and nobody is in the way.
    #[cold]
    pub(super) fn shrink(&self, level: u64, low: &K, guard: &Guard<'_>) -> Result<()> {
        let key = KeyParts::of(low);
        loop {
            let Some((lock, parent)) = self.lock_page(level + 1, &key)? else {
                return self.lower(guard);
            };
            let children = parent.entries();
            let lines = children.iter().map(|(low, _)| delta_lines(low.len)).max();
            let need = DeltaNeed {
                lines: lines.ok_or_else(|| damaged(parent.cell))?,
                is_new: false,
            };
            if !Self::takes(&parent, need) {
                let after = self.rebuild(&lock, parent.cell, need, guard)?;
                drop(lock);
                if matches!(after, FollowUp::Split { .. }) {
                    self.follow(after, guard);
                }
                continue;
            }
            let is_upto =
                |(low, _): &(StoredKey, u64)| low.compare(&self.medium, &key) != Ordering::Greater;
            let behind = children.partition_point(is_upto);
            let mut left_over = children.len();
            for node in [behind.wrapping_sub(1), behind] {
                let left = node.checked_sub(1).and_then(|left| children.get(left));
                if let (Some((_, left)), Some((_, node))) = (left, children.get(node))
                    && self.merge(&parent, &lock, *left, *node, guard)?
                {
                    left_over -= 1;
                    break;
                }
            }
            drop(lock);
            if parent.cell == self.root {
                return self.lower(guard);
            }
            if left_over * 4 >= ENTRIES {
                return Ok(());
            }
            let above = parent.low().key::<K>(&self.medium);
            let above = above.ok_or_else(|| damaged(parent.cell))?;
            return self.shrink(level + 1, above.borrow(), guard);
        }
    }

    /// Whether two pages are neighbours and have room in one.
    fn have_room_in_one(left: &Page<'_>, node: &Page<'_>) -> bool {
        let (mut all, two) = (left.entries(), node.entries());
        let is_one_empty = all.is_empty() || two.is_empty();
        all.extend(two);
        let has_room = is_one_empty || all.len() * 4 <= ENTRIES * 3;
        let is_dead = left.word.is_dead() || node.word.is_dead();
        !is_dead && left.right == node.cell && has_room && !Self::is_large(left.level, &all)
    }

    /// Lets a page take in its right neighbour, for the holder of their parent's lock. False if
    /// that cannot be now.
    fn merge(
        &self,
        parent: &Page<'_>,
        lock: &NodeGuard<'_>,
        left: u64,
        node: u64,
        guard: &Guard<'_>,
    ) -> Result<bool> {
        let Some(left_lock) = self.locks.try_beside(&[lock], left) else {
            return Ok(false);
        };
        let Some(_node_lock) = self.locks.try_beside(&[lock, &left_lock], node) else {
            return Ok(false);
        };
        if !Self::have_room_in_one(&self.load(left)?, &self.load(node)?) {
            return Ok(false);
        }
        let (left, node) = (self.freeze(left)?, self.freeze(node)?);
        let merged = self.merge_frozen(parent, &left, &node, guard);
        if !matches!(merged, Ok(true)) {
            self.melt(&left)?;
            self.melt(&node)?;
        }
        merged
    }

    fn merge_frozen(
        &self,
        parent: &Page<'_>,
        left: &Page<'_>,
        node: &Page<'_>,
        guard: &Guard<'_>,
    ) -> Result<bool> {
        if !Self::have_room_in_one(left, node) {
            return Ok(false);
        }
        let mut entries = left.entries();
        entries.extend(node.entries());
        let plan = PagePlan {
            low: left.low(),
            ..self.plan_like(node, 1)
        };
        let old = if left.bytes() > node.bytes() {
            left
        } else {
            node
        };
        let new = self.build_instead(&plan, &entries, old)?;
        let gone = [
            self.retire(left.word.base(), HINT_PAGE)?,
            self.retire(node.word.base(), HINT_PAGE)?,
            self.retire(node.cell, HINT_CELL)?,
        ];
        let low = node.low().key::<K>(&self.medium);
        let low = low.ok_or_else(|| damaged(node.cell))?;
        let key = KeyParts::of(low.borrow());
        let word = parent.word.take(delta_lines(key.len));
        let word = word.with_top(parent.word.taken() + 1);
        // The parent forgets the node first, so that from then on every way there is over its left
        // neighbour.
        self.post(parent, parent.word, word, &key, None)?;
        self.install(left, word_of(&new), [new], gone, guard)?;
        self.exchange(node.cell, node.word, node.word.dead())?;
        Ok(true)
    }

    /// Takes the topmost page away as long as there is but one page below it: the word of that one
    /// moves to its cell.
    fn lower(&self, guard: &Guard<'_>) -> Result<()> {
        loop {
            let lock = self.locks.lock(self.root);
            let top = self.load(self.root)?;
            let &[(_, below)] = &top.entries()[..] else {
                return Ok(());
            };
            if top.level == 0 {
                return Ok(());
            }
            let Some(_below_lock) = self.locks.try_beside(&[&lock], below) else {
                return Ok(());
            };
            if self.load(below)?.right != 0 {
                return Ok(());
            }
            let page = self.freeze(below)?;
            if let Err(error) = self.take_away(&top, &page, guard) {
                return self.melt(&page).and(Err(error));
            }
        }
    }

    /// Puts a frozen page in the place of the topmost one.
    fn take_away(&self, top: &Page<'_>, page: &Page<'_>, guard: &Guard<'_>) -> Result<()> {
        let gone = [
            self.retire(page.cell, HINT_CELL)?,
            self.retire(top.word.base(), HINT_PAGE)?,
        ];
        self.install(top, page.word.thawed(), [], gone, guard)?;
        self.exchange(page.cell, page.word, page.word.dead())?;
        Ok(())
    }

    /// Lets pages that hold little become one with their neighbours, and tells parents of pages
    /// that they do not know.
    ///
    /// # Errors
    /// No space in the pool; what was done so far stays.
    pub fn compact(&self) -> Result<()> {
        let _within = self.pool.write_guard();
        for level in 0.. {
            let mut from = Some(K::rebuild(0, &[]));
            while let Some(key) = from {
                let guard = self.pool.enter();
                let Some(page) = self.tend(level, key.borrow(), &guard)? else {
                    return self.lower(&guard);
                };
                from = self.bound_behind(&page, key.borrow())?;
            }
        }
        Ok(())
    }

    /// Tells the parent of the page that a key belongs to, if it may not know, and lets the page
    /// become one with a neighbour if it holds little. Returns the page as it was; none if the tree
    /// is lower.
    pub(super) fn tend(&self, level: u64, key: &K, guard: &Guard<'_>) -> Result<Option<Page<'_>>> {
        let Some(PageLookup { page, is_stray }) = self.descend(level, &KeyParts::of(key))? else {
            return Ok(None);
        };
        if is_stray {
            // By its own low: the page that began at the key may have been taken in by this one.
            self.adopt_page(&page, guard)?;
        }
        if page.entries().len() * 4 < ENTRIES {
            self.shrink(level, key, guard)?;
        }
        Ok(Some(page))
    }
}
