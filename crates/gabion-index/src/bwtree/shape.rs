//! Pages that are replaced: with their deltas applied, or by two.
//!
//! Who replaces a page holds its lock and freezes it first, so nobody changes it meanwhile. What
//! is then left undone is done under the locks of the pages above, one after the other.

use std::borrow::Borrow;

use gabion_media::pmem::{Guard, POff, Reserved, Retiring};

use super::image::{self, PagePlan, delta_lines};
use super::layout::{
    CELL_BYTES, HEAD_BYTES, HINT_CELL, HINT_PAGE, LINE_BYTES, LINES_MAX, PageWord, RESTS_MAX,
};
use super::page::Page;
use super::{BwTree, damaged};
use crate::node_lock::NodeGuard;
use crate::stored_key::{KeyParts, StoredKey, rest_len};
use crate::{Item, Result};

/// What is left to do when a page was replaced.
pub(super) enum FollowUp<O> {
    Nothing,
    /// The page that begins at a key has a new right neighbour, which the level above does not
    /// know.
    Split {
        level: u64,
        low: O,
        cell: u64,
    },
    /// The page of a level that begins at a key holds little.
    Small {
        level: u64,
        low: O,
    },
}

/// The delta that a page is to have room for.
#[derive(Clone, Copy)]
pub(super) struct DeltaNeed {
    pub(super) lines: u64,
    /// Whether it adds an entry.
    pub(super) is_new: bool,
}

/// The word of a new page.
pub(super) fn word_of(page: &Reserved<'_>) -> PageWord {
    PageWord::of_page(page.offset::<u8>().raw())
}

/// Entries that an inner page has at least before long keys make it too large: else it would have
/// as many neighbours as pages below.
const FAN_OUT_MIN: usize = 8;

impl<K: Item + ?Sized, const ENTRIES: usize, const DELTAS: u64> BwTree<K, ENTRIES, DELTAS> {
    /// Bytes of the block of a page whose keys are words: of the same size for each, so that one
    /// that is given back serves for any other.
    const PAGE_BYTES: u64 = Self::WORDS_END + LINE_BYTES * DELTAS;

    /// The first line behind the entries of such a page.
    const WORDS_END: u64 =
        (HEAD_BYTES + 16 * (ENTRIES as u64 + DELTAS)).next_multiple_of(LINE_BYTES);

    /// Where the lines for deltas begin at least: if keys are words, in the same place in each
    /// page, so that they can be asked for together with the head that says it.
    pub(super) const DELTAS_AT: u64 = if K::IS_WORD { Self::WORDS_END } else { 0 };

    /// Whether entries are too many, or their keys too long, for a page.
    pub(super) fn is_large(level: u64, entries: &[(StoredKey, u64)]) -> bool {
        let bytes = || -> u64 { entries.iter().map(|(key, _)| rest_len(key.len)).sum() };
        let few = if level == 0 { 1 } else { FAN_OUT_MIN };
        entries.len() > ENTRIES || entries.len() > few && bytes() > RESTS_MAX
    }

    /// Whether a page takes a delta as it is.
    #[inline]
    pub(super) fn takes(page: &Page<'_>, need: DeltaNeed) -> bool {
        let is_full = need.is_new && page.base_count() > ENTRIES;
        page.has_room(need.lines, DELTAS) && !is_full
    }

    /// Makes room for a delta in a page that has none, unless others have done so.
    #[cold]
    pub(super) fn renew(&self, cell: u64, need: DeltaNeed, guard: &Guard<'_>) -> Result<()> {
        let lock = self.locks.lock(cell);
        let page = self.load(cell)?;
        if page.word.is_dead() || Self::takes(&page, need) {
            return Ok(());
        }
        let after = self.rebuild(&lock, cell, need, guard)?;
        drop(lock);
        self.follow(after, guard);
        Ok(())
    }

    /// Waits for whoever has frozen a page; if that was before a crash, thaws it.
    #[cold]
    pub(super) fn thaw(&self, cell: u64) -> Result<()> {
        let _lock = self.locks.lock(cell);
        let page = self.load(cell)?;
        self.melt(&page)
    }

    /// Thaws a frozen page, for the holder of its lock.
    pub(super) fn melt(&self, page: &Page<'_>) -> Result<()> {
        if page.word.is_frozen() && !page.word.is_dead() {
            self.exchange(page.cell, page.word, page.word.thawed())?;
        }
        Ok(())
    }

    /// Freezes a page, for the holder of its lock: its content is what is returned until it is
    /// replaced, given up, or thawed.
    pub(super) fn freeze(&self, cell: u64) -> Result<Page<'_>> {
        loop {
            let page = self.load(cell)?;
            if page.word.is_frozen() {
                return Ok(page);
            }
            self.exchange(cell, page.word, page.word.frozen())?;
        }
    }

    /// Replaces a page by one with its deltas applied and room for another one, or by two, or puts
    /// a level above it. Where there is no space for two, one will do for what adds no entry.
    pub(super) fn rebuild(
        &self,
        lock: &NodeGuard<'_>,
        cell: u64,
        need: DeltaNeed,
        guard: &Guard<'_>,
    ) -> Result<FollowUp<K::Owned>> {
        let page = self.freeze(cell)?;
        let entries = page.entries();
        let is_large = Self::is_large(page.level, &entries);
        let mut done = match (is_large, cell == self.root) {
            (false, _) => self.replace(&page, &entries, need.lines, guard),
            (true, false) => self.split(lock, &page, &entries, need.lines, guard),
            (true, true) => self.grow(lock, &page, guard),
        };
        let is_no_space = matches!(&done, Err(error) if error.is_no_space());
        if is_no_space && is_large && !need.is_new {
            done = self.replace(&page, &entries, need.lines, guard);
        }
        match done {
            Ok(Some(after)) => Ok(after),
            Ok(None) => self.melt(&page).map(|()| FollowUp::Nothing),
            Err(error) => self.melt(&page).and(Err(error)),
        }
    }

    /// Does what is left to do. What fails here is done another time: a page that its parent does
    /// not know is found from its left neighbour, and one that holds little is no harm.
    pub(super) fn follow(&self, after: FollowUp<K::Owned>, guard: &Guard<'_>) {
        let _ = match after {
            FollowUp::Nothing => Ok(()),
            FollowUp::Split { level, low, cell } => {
                self.adopt(level + 1, low.borrow(), cell, guard)
            }
            FollowUp::Small { level, low } => self.shrink(level, low.borrow(), guard),
        };
    }

    /// Tells the parent of a page that it may not know.
    #[cold]
    pub(super) fn adopt_page(&self, page: &Page<'_>, guard: &Guard<'_>) -> Result<()> {
        let low = page.low().key::<K>(&self.medium);
        let low = low.ok_or_else(|| damaged(page.cell))?;
        self.adopt(page.level + 1, low.borrow(), page.cell, guard)
    }

    /// Lets a page that holds nothing become one with a neighbour, if that can be now.
    #[cold]
    pub(super) fn give_up(&self, page: &Page<'_>, guard: &Guard<'_>) {
        if let Some(low) = page.low().key::<K>(&self.medium) {
            // As in `follow`.
            let _ = self.shrink(page.level, low.borrow(), guard);
        }
    }

    /// Adds a page to those that the level above knows, unless it is there or given up.
    pub(super) fn adopt(&self, level: u64, low: &K, cell: u64, guard: &Guard<'_>) -> Result<()> {
        let key = KeyParts::of(low);
        let need = DeltaNeed {
            lines: delta_lines(key.len),
            is_new: true,
        };
        loop {
            let Some((lock, parent)) = self.lock_page(level, &key)? else {
                return Ok(());
            };
            if self.load(cell)?.word.is_dead() || parent.find(&key).is_some() {
                return Ok(());
            }
            if Self::takes(&parent, need) {
                let new = parent
                    .word
                    .take(need.lines)
                    .with_top(parent.word.taken() + 1);
                self.post(&parent, parent.word, new, &key, Some(cell))?;
                return Ok(());
            }
            let after = self.rebuild(&lock, parent.cell, need, guard)?;
            drop(lock);
            self.follow(after, guard);
        }
    }

    /// Locks the page of a level that a key belongs to, which is not frozen then; none if the tree
    /// is lower.
    pub(super) fn lock_page(
        &self,
        level: u64,
        key: &KeyParts<'_>,
    ) -> Result<Option<(NodeGuard<'_>, Page<'_>)>> {
        loop {
            let Some(way) = self.descend(level, key)? else {
                return Ok(None);
            };
            let lock = self.locks.lock(way.page.cell);
            let page = self.load(way.page.cell)?;
            if page.word.is_frozen() {
                self.melt(&page)?;
            } else if page.level == level && page.has(key) {
                return Ok(Some((lock, page)));
            }
        }
    }

    /// Lines for deltas of a page that is to take one of so many.
    fn lines(lines: u64) -> u64 {
        (DELTAS * lines).min(LINES_MAX).max(lines)
    }

    /// What is to be a page in the place of another one.
    pub(super) fn plan_like(&self, page: &Page<'_>, lines: u64) -> PagePlan {
        PagePlan {
            level: page.level,
            low: page.low(),
            right: page.bound().map(|bound| (bound, page.right)),
            deltas_at: Self::DELTAS_AT,
            lines: Self::lines(lines),
            of_strings: !K::IS_WORD,
        }
    }

    /// Reserves space for a page and writes it, without a fence.
    pub(super) fn build(
        &self,
        plan: &PagePlan,
        entries: &[(StoredKey, u64)],
    ) -> Result<Reserved<'_>> {
        let (bytes, page_bytes) = image::page(&self.medium, plan, entries);
        let page = self.reserve(page_bytes)?;
        self.write_page(&page, &bytes);
        Ok(page)
    }

    /// As [`BwTree::build`], in the place of a page that is at least as large and given up next: in
    /// a full pool, too.
    pub(super) fn build_instead(
        &self,
        plan: &PagePlan,
        entries: &[(StoredKey, u64)],
        old: &Page<'_>,
    ) -> Result<Reserved<'_>> {
        let (bytes, page_bytes) = image::page(&self.medium, plan, entries);
        let (old, page_bytes) = (
            POff::<u8>::new(old.word.base()),
            Self::block_bytes(page_bytes),
        );
        let page = self
            .pool
            .alloc_instead(old, page_bytes, LINE_BYTES, HINT_PAGE)?;
        self.write_page(&page, &bytes);
        Ok(page)
    }

    fn write_page(&self, page: &Reserved<'_>, bytes: &[u8]) {
        let at = page.offset::<u8>().raw();
        self.medium.write(at, bytes);
        self.medium.flush_range(at, bytes.len() as u64);
    }

    /// Reserves space for a page.
    fn reserve(&self, bytes: u64) -> Result<Reserved<'_>> {
        let bytes = Self::block_bytes(bytes);
        Ok(self.pool.alloc_aligned(bytes, LINE_BYTES, HINT_PAGE)?)
    }

    /// Bytes of the block of a page of so many.
    fn block_bytes(page_bytes: u64) -> u64 {
        page_bytes.max(if K::IS_WORD { Self::PAGE_BYTES } else { 0 })
    }

    /// Reserves space for a cell and writes its word, without a fence.
    fn new_cell(&self, word: PageWord) -> Result<Reserved<'_>> {
        let cell = self.pool.alloc(CELL_BYTES, HINT_CELL)?;
        let at = cell.offset::<u8>().raw();
        let words = [word.0, 0];
        let bytes: Vec<u8> = words.into_iter().flat_map(u64::to_le_bytes).collect();
        self.medium.write(at, &bytes);
        self.medium.flush_range(at, CELL_BYTES);
        Ok(cell)
    }

    /// Announces that a block goes, if there is one.
    pub(super) fn retire(&self, at: u64, hint: u64) -> Result<Option<Retiring<'_>>> {
        let block: POff<u8> = POff::new(at);
        let retiring = (at != 0).then(|| self.pool.retire(block, hint));
        Ok(retiring.transpose()?)
    }

    /// Lets the cell of a frozen page hold another word, for which there are new blocks, and others
    /// that go.
    pub(super) fn install<'a>(
        &self,
        page: &Page<'_>,
        word: PageWord,
        new: impl IntoIterator<Item = Reserved<'a>>,
        gone: impl IntoIterator<Item = Option<Retiring<'a>>>,
        guard: &Guard<'_>,
    ) -> Result<()> {
        // DURABLE: what is new, before anything leads to it, and the notes of the allocator.
        self.medium.fence();
        self.publish(page.cell, page.word, word)?;
        for block in new {
            block.commit::<u8>();
        }
        for block in gone.into_iter().flatten() {
            block.commit(guard);
        }
        Ok(())
    }

    /// Puts a page with its deltas applied in the place of a frozen one.
    fn replace(
        &self,
        page: &Page<'_>,
        entries: &[(StoredKey, u64)],
        lines: u64,
        guard: &Guard<'_>,
    ) -> Result<Option<FollowUp<K::Owned>>> {
        let new = self.build(&self.plan_like(page, lines), entries)?;
        self.put_in_place(page, new, entries.len(), guard)
    }

    /// Deletes an entry by a page without it in the place of the one that has it: what a delete
    /// does if there is no space for a page with room for its delta. That one takes no more than
    /// the old one, as a delta takes no less than an entry; so the pool keeps space back for it.
    /// Returns the value; none if the entry is not there any more.
    #[cold]
    pub(super) fn cut_out(
        &self,
        cell: u64,
        key: &KeyParts<'_>,
        guard: &Guard<'_>,
    ) -> Result<Option<u64>> {
        let lock = self.locks.lock(cell);
        let page = self.load(cell)?;
        if page.word.is_dead() || !page.has(key) {
            return Ok(None);
        }
        let page = self.freeze(cell)?;
        let mut entries = page.entries();
        let is_it = |(stored, _): &(StoredKey, u64)| {
            stored.compare(&self.medium, key) == std::cmp::Ordering::Equal
        };
        let Some(place) = entries.iter().position(is_it) else {
            return self.melt(&page).map(|()| None);
        };
        let (_, value) = entries.remove(place);
        let mut plan = self.plan_like(&page, delta_lines(key.len));
        let lines = std::mem::replace(&mut plan.lines, 0);
        let (_, page_bytes) = image::page(&self.medium, &plan, &entries);
        plan.lines = lines.min(page.bytes().saturating_sub(page_bytes) / LINE_BYTES);
        let new = self.build_instead(&plan, &entries, &page);
        let done = new.and_then(|new| self.put_in_place(&page, new, entries.len(), guard));
        let after = match done {
            Ok(after) => after.unwrap_or(FollowUp::Nothing),
            Err(error) => return self.melt(&page).and(Err(error)),
        };
        drop(lock);
        self.follow(after, guard);
        Ok(Some(value))
    }

    /// Puts a new page of so many entries in the place of a frozen one.
    fn put_in_place(
        &self,
        page: &Page<'_>,
        new: Reserved<'_>,
        count: usize,
        guard: &Guard<'_>,
    ) -> Result<Option<FollowUp<K::Owned>>> {
        let old = self.retire(page.word.base(), HINT_PAGE)?;
        let low = page.low().key::<K>(&self.medium);
        let low = low.ok_or_else(|| damaged(page.cell))?;
        self.install(page, word_of(&new), [new], [old], guard)?;
        let level = page.level;
        let is_small = count * 4 < ENTRIES && (page.cell != self.root || level > 0);
        Ok(Some(match is_small {
            true => FollowUp::Small { level, low },
            false => FollowUp::Nothing,
        }))
    }

    /// Puts two pages in the place of a frozen one. None if somebody was in the way.
    pub(super) fn split(
        &self,
        lock: &NodeGuard<'_>,
        page: &Page<'_>,
        entries: &[(StoredKey, u64)],
        lines: u64,
        guard: &Guard<'_>,
    ) -> Result<Option<FollowUp<K::Owned>>> {
        let (lower, upper) = entries.split_at(entries.len() / 2);
        let middle = upper.first().map(|(key, _)| *key);
        let middle = middle.ok_or_else(|| damaged(page.cell))?;
        let low = middle.key::<K>(&self.medium);
        let low = low.ok_or_else(|| damaged(page.cell))?;
        let like = self.plan_like(page, lines);
        let upper = self.build(
            &PagePlan {
                low: middle,
                ..like
            },
            upper,
        )?;
        let cell = self.new_cell(word_of(&upper))?;
        let cell_at = cell.offset::<u8>().raw();
        let Some(_lock) = self.locks.try_beside(&[lock], cell_at) else {
            return Ok(None);
        };
        let right = Some((middle, cell_at));
        let lower = self.build(&PagePlan { right, ..like }, lower)?;
        let spare = self.reserve(0)?;
        let old = self.retire(page.word.base(), HINT_PAGE)?;
        let word = word_of(&lower);
        self.install(page, word, [cell, upper, lower], [old], guard)?;
        drop(spare);
        Ok(Some(FollowUp::Split {
            level: page.level,
            low,
            cell: cell_at,
        }))
    }

    /// Puts a level above the topmost page, which is frozen: its word moves to a new cell. None if
    /// somebody was in the way.
    fn grow(
        &self,
        lock: &NodeGuard<'_>,
        page: &Page<'_>,
        guard: &Guard<'_>,
    ) -> Result<Option<FollowUp<K::Owned>>> {
        let cell = self.new_cell(page.word.thawed())?;
        let cell_at = cell.offset::<u8>().raw();
        let Some(_lock) = self.locks.try_beside(&[lock], cell_at) else {
            return Ok(None);
        };
        let plan = PagePlan {
            level: page.level + 1,
            ..self.plan_like(page, 1)
        };
        let top = self.build(&plan, &[(page.low(), cell_at)])?;
        let spare = self.reserve(0)?;
        self.install(page, word_of(&top), [cell, top], [], guard)?;
        drop(spare);
        Ok(Some(FollowUp::Nothing))
    }
}
