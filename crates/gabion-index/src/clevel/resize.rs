//! Resizing: a level is put before the first one, and the entries of the last one are moved.
//!
//! The two are independent: levels come when there is no room, and the last one goes, bucket by
//! bucket, as long as there are more than two. Each insert moves one bucket while that is so.

use std::sync::atomic::Ordering;

use gabion_media::pmem::{Guard, PAtomicU64, POff};

use super::Clevel;
use super::layout::{BUCKET_BYTES, Bucket, LEVELS, SlotWord, moved_of, moved_word};
use super::places::{BITS_MAX, Context};
use crate::{Error, Item, Result};

impl<K: Item + ?Sized, const USED: usize> Clevel<K, USED> {
    /// The word that names the level with so many bits.
    pub(super) fn level_word(&self, bits: u32) -> &PAtomicU64 {
        &self.state().levels[bits as usize % LEVELS]
    }

    /// Puts a level before the first one, unless another thread has done so since.
    #[cold]
    pub(super) fn grow(&self, seen: Context) -> Result<()> {
        let _growth = self.growth.lock();
        let bits = seen.first() + 1;
        if self.context().first() != seen.first() {
            return Ok(());
        }
        self.add_level(bits)?;
        // ORDER: SeqCst: see `context`.
        self.context.fetch_add(Context::ONE_FIRST, Ordering::SeqCst);
        Ok(())
    }

    /// Makes an empty level of so many bits.
    pub(super) fn add_level(&self, bits: u32) -> Result<()> {
        if bits > BITS_MAX {
            return Err(Error::ShardLimit);
        }
        let word = self.level_word(bits);
        let bytes = BUCKET_BYTES << bits;
        let hint = self.medium.offset_of(word).raw();
        let space = self.pool.alloc_aligned(bytes, BUCKET_BYTES, hint)?;
        let at = space.offset::<Bucket>().raw();
        self.medium.zero(at, bytes);
        // DURABLE: the level, before it is named; and what the allocator noted.
        self.medium.fence();
        // DURABLE: that there is a level.
        // ORDER: Relaxed: read by recovery only.
        word.store_persist(&self.medium, at, Ordering::Relaxed);
        space.commit::<Bucket>();
        // ORDER: Relaxed: before the context that tells of it.
        self.levels[bits as usize % LEVELS].store(at, Ordering::Relaxed);
        Ok(())
    }

    /// Moves a bucket if that is to be done and nobody else does. What fails here is done another
    /// time: levels may be many.
    #[inline]
    pub(super) fn help(&self, context: Context) {
        if context.is_resizing()
            && let Some(_moving) = self.moving.try_lock()
        {
            let _ = self.advance();
        }
    }

    /// Whether an entry that was found is the copy of one that is still leaving: whoever looked at
    /// the slot of that before the key came there finds the copy first.
    #[inline]
    pub(super) fn is_half_moved(&self, hash: u64, word: SlotWord) -> bool {
        // As the copy was seen, so is the last level of that time, or a later one, and its slot as
        // it was when the copy came, or closed. If it is closed, so are the marks of the move seen.
        let now = self.context();
        now.is_resizing() && self.is_leaving_in(now.last(), hash, word)
    }

    #[cold]
    fn is_leaving_in(&self, bits: u32, hash: u64, word: SlotWord) -> bool {
        let slots = self.candidates(bits, hash).map(|bucket| self.slots(bucket));
        // ORDER: Acquire: the marks of who closed the slot are seen.
        let mut words = slots.iter().copied().flatten();
        words.any(|slot| SlotWord(slot.peek(Ordering::Acquire)) == word.as_leaving())
    }

    /// Waits for who moves a bucket.
    #[cold]
    pub(super) fn wait_for_move(&self) {
        drop(self.moving.lock());
    }

    /// Moves all buckets that are to be moved.
    pub(super) fn move_all(&self) -> Result<()> {
        let _within = self.pool.write_guard();
        while {
            let _moving = self.moving.lock();
            self.advance()?
        } {}
        Ok(())
    }

    /// Moves one bucket of the last level, and drops it after the last one, for the holder of
    /// `moving`. False if there was nothing to do.
    pub(super) fn advance(&self) -> Result<bool> {
        let guard = self.pool.enter();
        let context = self.context();
        if !context.is_resizing() {
            return Ok(false);
        }
        let bits = context.last();
        let moved = self.moved(bits);
        if moved < 1 << bits {
            self.move_bucket(bits, moved)?;
        }
        if moved + 1 >= 1 << bits {
            self.drop_last(bits, &guard)?;
        }
        Ok(true)
    }

    /// Buckets of the level with so many bits that were moved, if it is the last.
    pub(super) fn moved(&self, bits: u32) -> u64 {
        // ORDER: Relaxed: stored by the holder of `moving` before.
        moved_of(self.state().moved.peek(Ordering::Relaxed), bits)
    }

    /// Moves the entries of a bucket of the last level to others. Where there is no space for that,
    /// those that are left stay.
    fn move_bucket(&self, bits: u32, number: u64) -> Result<()> {
        let bucket = self.bucket(bits, number);
        let leaving = self.close(bucket);
        let mut marks = Vec::with_capacity(leaving.len());
        let copied: Result<()> = leaving.iter().try_for_each(|(_, word)| {
            let hash = self.hash_of(word.item())?;
            if self.pending.is_marked(hash) {
                // DURABLE: the word that is copied: recovery knows a copy by its item.
                self.medium.persist(bucket);
            }
            self.copy(hash, *word)?;
            // Before the slot is closed: until then nobody changes the copy.
            marks.push(self.pending.mark(hash));
            Ok(())
        });
        // DURABLE: the copies, before the others go.
        self.medium.fence();
        for (number, (slot, word)) in leaving.into_iter().enumerate() {
            let is_copied = number < marks.len();
            let word = if is_copied { SlotWord::CLOSED } else { word };
            // ORDER: Release pairs with the acquires of readers, who then see the copy.
            slot.store(&self.medium, word.0, Ordering::Release);
        }
        if copied.is_ok() {
            let moved = moved_word(bits, number + 1);
            // ORDER: Relaxed: read by the holders of `moving`.
            self.state()
                .moved
                .store(&self.medium, moved, Ordering::Relaxed);
            self.medium.flush(&self.state().moved);
        }
        self.seal(bucket);
        copied
    }

    /// Makes it durable that the entries of a bucket of the last level are in one place, before
    /// anybody changes them there.
    pub(super) fn seal(&self, bucket: &Bucket) {
        // DURABLE: as this says.
        self.medium.persist(bucket);
    }

    /// Takes back what is announced in a bucket, lets nobody take its free slots any more, and
    /// keeps its entries from changing. Returns them.
    fn close<'a>(&self, bucket: &'a Bucket) -> Vec<(&'a PAtomicU64, SlotWord)> {
        let mut leaving = Vec::new();
        for slot in self.slots(bucket) {
            loop {
                // ORDER: Acquire: the item is read as it was written.
                let word = SlotWord(slot.peek(Ordering::Acquire));
                let next = match word {
                    SlotWord::CLOSED => break,
                    word if word.is_entry() => word.as_leaving(),
                    _ => SlotWord::CLOSED,
                };
                if self.exchange(slot, word, next) {
                    if word.is_entry() {
                        leaving.push((slot, word.as_entry()));
                    }
                    break;
                }
            }
        }
        leaving
    }

    /// Puts an entry into a level above the last, and flushes it.
    fn copy(&self, hash: u64, word: SlotWord) -> Result<()> {
        loop {
            let context = self.context();
            let levels = context.last() + 1..=context.first();
            match self.free_place(levels, hash) {
                None => self.grow(context)?,
                Some(slot) if self.exchange(slot, SlotWord::FREE, word) => {
                    self.medium.flush(slot);
                    return Ok(());
                }
                Some(_) => {}
            }
        }
    }

    /// Drops the last level, all of which was moved.
    fn drop_last(&self, bits: u32, guard: &Guard<'_>) -> Result<()> {
        let word = self.level_word(bits);
        // ORDER: Relaxed: it does not change as long as there is the level.
        let level: POff<Bucket> = POff::new(word.peek(Ordering::Relaxed));
        let hint = self.medium.offset_of(word).raw();
        let retiring = self.pool.retire(level, hint)?;
        // ORDER: SeqCst: see `context`.
        self.context.fetch_add(Context::ONE_LAST, Ordering::SeqCst);
        // DURABLE: what the allocator noted.
        self.medium.fence();
        // DURABLE: that nothing refers to the level, before its space is free.
        // ORDER: Relaxed: read by recovery only.
        word.store_persist(&self.medium, 0, Ordering::Relaxed);
        retiring.commit(guard);
        Ok(())
    }
}
