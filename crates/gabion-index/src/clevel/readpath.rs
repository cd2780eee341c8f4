//! Lookups: no locks, from the last level on, in the direction in which entries move.

use std::sync::atomic::Ordering;

use gabion_media::pmem::PAtomicU64;

use super::Clevel;
use super::layout::SlotWord;
use super::places::{Context, homes};
use crate::{Item, Result};

impl<K: Item + ?Sized, const USED: usize> Clevel<K, USED> {
    /// The value of `key`.
    #[inline]
    pub(super) fn lookup(&self, key: &K) -> Result<Option<u64>> {
        // Keeps items and levels that are read from being used again.
        let _guard = self.pool.enter();
        let hash = key.seeded_hash(&self.seed);
        loop {
            let context = self.context();
            let found = match self.find(context, hash, key)? {
                Some((_, word)) => Some(self.value(word.item())?),
                // An entry may have moved to a level that was not looked at.
                None if self.context() != context => continue,
                None => None,
            };
            self.settle(context, hash);
            return Ok(found);
        }
    }

    /// The slot of the entry with a key, and its word. If there is none, and the context is still
    /// the same, there was a moment without one.
    #[inline]
    pub(super) fn find(
        &self,
        context: Context,
        hash: u64,
        key: &K,
    ) -> Result<Option<(&PAtomicU64, SlotWord)>> {
        let tag = SlotWord::tag_of(hash);
        self.prefetch(context, hash);
        for slot in self.places(context, hash) {
            // ORDER: Acquire pairs with the exchanges of writers: the item is read as it was
            // written, and the next slot after this one.
            let word = SlotWord(slot.peek(Ordering::Acquire));
            if word.has_tag(tag) && word.is_entry() && self.is_key(word.item(), key)? {
                return Ok(Some((slot, word)));
            }
        }
        Ok(None)
    }

    /// Asks for the lines of all places of a key.
    #[inline]
    fn prefetch(&self, context: Context, hash: u64) {
        for bits in context.upwards() {
            for number in homes(bits, hash) {
                self.medium.prefetch(self.bucket_at(bits, number));
            }
        }
    }

    /// Makes durable what was seen in the places of a key, if it may not be.
    #[inline]
    pub(super) fn settle(&self, context: Context, hash: u64) {
        if self.pending.is_marked(hash) {
            let _within = self.pool.write_guard();
            self.flush_places(context, hash);
            // DURABLE: the answer, before it is given.
            self.medium.fence();
        }
    }
}
