//! Writes: a delta, by one exchange of the word of its page.

use std::sync::atomic::Ordering;

use gabion_media::pmem::Guard;

use super::image::{delta, delta_lines};
use super::layout::{KEY_BYTES_MAX, PageWord};
use super::page::Page;
use super::shape::DeltaNeed;
use super::{BwTree, damaged};
use crate::retry::retry_delete;
use crate::stored_key::KeyParts;
use crate::{Error, Item, Result};

/// What is done to a key.
#[derive(Clone, Copy)]
enum Change {
    Insert(u64),
    Update(u64),
    Remove,
}

/// Lines that a writer has taken for its delta.
#[derive(Clone, Copy)]
struct Taken {
    cell: u64,
    base: u64,
    line: u64,
}

impl<K: Item + ?Sized, const ENTRIES: usize, const DELTAS: u64> BwTree<K, ENTRIES, DELTAS> {
    /// Stores `value` under `key`, whether it is there or not, and returns the value before.
    ///
    /// # Errors
    /// No space in the pool, or a key that is too long: nothing has changed then.
    pub fn insert(&self, key: &K, value: u64) -> Result<Option<u64>> {
        self.write(key, Change::Insert(value))
    }

    /// Stores `value` under `key` if it is there, and returns the value before.
    ///
    /// # Errors
    /// No space in the pool: nothing has changed then.
    pub fn update(&self, key: &K, value: u64) -> Result<Option<u64>> {
        self.write(key, Change::Update(value))
    }

    /// Deletes `key` and returns its value.
    ///
    /// # Errors
    /// Damage on the medium. No space in the pool, if it is full and a reader keeps what another
    /// delete gave up, or if keys are so long that a page takes more than half of a chunk: nothing
    /// has changed then.
    pub fn remove(&self, key: &K) -> Result<Option<u64>> {
        let parts = KeyParts::of(key);
        retry_delete(&self.pool, |guard| {
            self.attempt(&parts, Change::Remove, guard).map(Some)
        })
    }

    fn write(&self, key: &K, change: Change) -> Result<Option<u64>> {
        let _within = self.pool.write_guard();
        let parts = KeyParts::of(key);
        if matches!(change, Change::Insert(_)) && parts.len > KEY_BYTES_MAX {
            return Err(Error::Limit {
                what: "key",
                bytes: parts.len,
                limit: KEY_BYTES_MAX,
            });
        }
        match self.attempt(&parts, change, &self.pool.enter()) {
            Err(error) if error.is_no_space() => {
                // What was replaced a moment ago is free when no guard is in its way.
                self.pool.collect();
                self.attempt(&parts, change, &self.pool.enter())
            }
            other => other,
        }
    }

    fn attempt(
        &self,
        key: &KeyParts<'_>,
        change: Change,
        guard: &Guard<'_>,
    ) -> Result<Option<u64>> {
        let lines = delta_lines(key.len);
        let mut taken: Option<Taken> = None;
        loop {
            let way = self.descend(0, key)?.ok_or_else(|| damaged(self.root))?;
            let page = way.page;
            let (cell, base) = (page.cell, page.word.base());
            if page.word.is_frozen() {
                self.thaw(cell)?;
                continue;
            }
            let before = page.find(key);
            let value = match change {
                Change::Insert(value) => Some(value),
                Change::Update(_) | Change::Remove if before.is_none() => return Ok(None),
                Change::Update(value) => Some(value),
                Change::Remove => None,
            };
            let is_new = before.is_none();
            let need = DeltaNeed { lines, is_new };
            let mine = taken.filter(|taken| (taken.cell, taken.base) == (cell, base));
            let (word, line) = match mine {
                Some(taken) => (page.word, taken.line),
                None if !Self::takes(&page, need) => {
                    match (self.renew(cell, need, guard), change) {
                        (Err(error), Change::Remove) if error.is_no_space() => {
                            if let Some(before) = self.cut_out(cell, key, guard)? {
                                return Ok(Some(before));
                            }
                        }
                        (renewed, _) => renewed?,
                    }
                    continue;
                }
                None => {
                    let (word, line) = (page.word.take(lines), page.word.taken() + 1);
                    if !self.exchange(cell, page.word, word)? {
                        continue;
                    }
                    taken = Some(Taken { cell, base, line });
                    (word, line)
                }
            };
            if self.post(&page, word, word.with_top(line), key, value)? {
                if way.is_stray {
                    // As in `follow`.
                    let _ = self.adopt_page(&page, guard);
                }
                // A page of so few entries may not be written to again, and not be written anew.
                let is_little = (page.base_count() as u64) <= DELTAS && cell != self.root;
                if value.is_none() && is_little && page.entries().len() == 1 {
                    self.give_up(&page, guard);
                }
                return Ok(before);
            }
        }
    }

    /// Writes a delta into the line that `new` names, and lets the word of the page lead there if
    /// it still is `old`.
    pub(super) fn post(
        &self,
        page: &Page<'_>,
        old: PageWord,
        new: PageWord,
        key: &KeyParts<'_>,
        value: Option<u64>,
    ) -> Result<bool> {
        let at = page.line_at(new.top());
        let bytes = delta(key, value, old.top(), page.depth() + 1);
        self.medium.write(at, &bytes);
        self.medium.flush_range(at, bytes.len() as u64);
        // DURABLE: the delta, before the word leads to it.
        self.medium.fence();
        self.publish(page.cell, old, new)
    }

    /// Lets a cell hold another word if it holds `old`, durably.
    pub(super) fn publish(&self, at: u64, old: PageWord, new: PageWord) -> Result<bool> {
        let cell = self.cell(at)?;
        let _mark = self.pending.mark(at);
        let is_done = self.exchange(at, old, new)?;
        if is_done {
            // DURABLE: the change.
            self.medium.persist(cell);
        }
        Ok(is_done)
    }

    /// Lets a cell hold another word if it holds `old`.
    pub(super) fn exchange(&self, at: u64, old: PageWord, new: PageWord) -> Result<bool> {
        let cell = self.cell(at)?;
        // ORDER: Release pairs with the acquire in `load`; Relaxed: who fails loads again.
        let (yes, no) = (Ordering::Release, Ordering::Relaxed);
        let exchanged = cell.compare_exchange(&self.medium, old.0, new.0, yes, no);
        Ok(exchanged.is_ok())
    }
}
