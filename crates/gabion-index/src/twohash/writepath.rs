//! Writes: under the locks of both hashes of a key, each published by one store to a line.

use std::sync::atomic::{AtomicU64, Ordering};

use super::rebuild::EntryOf;
use super::{CandidateSlots, Scheme, TwoHash};
use crate::Result;
use crate::bucket::{Bucket, Value};
use crate::line::LineArray;
use crate::lock::StripeGuard;

/// What a line keeps under a key.
type ValueOf<S> = <<S as Scheme>::Bucket as Bucket>::Value;

/// The locks of both hashes of a key.
struct Locks<'a> {
    first: StripeGuard<'a>,
    _second: Option<StripeGuard<'a>>,
}

/// What came of putting a key into the stash.
enum Stashing {
    Done,
    /// There is no room.
    Full,
    /// The key or another table came meanwhile.
    Changed,
}

impl<S: Scheme> TwoHash<S> {
    /// Stores `value` under `key` and returns the value before.
    #[inline]
    pub(super) fn put(&self, key: u64, value: u64) -> Result<Option<u64>> {
        let value = ValueOf::<S>::of_word(value);
        let _within = self.pool.write_guard();
        let hashes = self.hashes(key);
        loop {
            let (table, locks) = self.lock(hashes);
            if let Some((line, slot)) = self.find(table, hashes, key) {
                return Ok(Some(self.change(table, line, slot, value)));
            }
            if self.put_into_spot(table, hashes, key, value) {
                locks.first.count_insert();
                return Ok(None);
            }
            drop(locks);
            if self.make_room(table, hashes) {
                continue;
            }
            match self.put_into_stash(table, key, value) {
                Stashing::Done => return Ok(None),
                Stashing::Full => self.grow(table)?,
                Stashing::Changed => {}
            }
        }
    }

    /// Stores `value` under `key` if it is there, and returns the value before.
    #[inline]
    pub(super) fn replace(&self, key: u64, value: u64) -> Option<u64> {
        let _within = self.pool.write_guard();
        let hashes = self.hashes(key);
        let (table, _locks) = self.lock(hashes);
        let (line, slot) = self.find(table, hashes, key)?;
        Some(self.change(table, line, slot, ValueOf::<S>::of_word(value)))
    }

    /// Replaces the value of the entry in a slot: by one store if it is a word; else, if all slots
    /// of its line have one lock and one of them is free, by an entry there; else by the log.
    /// Returns the word before.
    #[inline]
    fn change(&self, table: LineArray, line: &S::Bucket, slot: usize, value: ValueOf<S>) -> u64 {
        if ValueOf::<S>::WORDS == 1 {
            return line.replace(&self.medium, slot, value).word();
        }
        let is_ours = !S::SLOTS_HAVE_LOCKS && !self.is_of_stash(table, line);
        let old = match line.free_slot().filter(|_| is_ours) {
            Some(free) => line.exchange(&self.medium, slot, free, value),
            None => self.log.replace(line, slot, value),
        };
        old.word()
    }

    /// Deletes `key` and returns its value.
    #[inline]
    pub(super) fn delete(&self, key: u64) -> Option<u64> {
        let _within = self.pool.write_guard();
        let hashes = self.hashes(key);
        let (table, locks) = self.lock(hashes);
        let (line, slot) = self.find(table, hashes, key)?;
        locks.first.count_remove();
        let old = match S::SLOTS_HAVE_LOCKS || self.is_of_stash(table, line) {
            true => line.remove_among(&self.medium, slot),
            false => line.remove(&self.medium, slot),
        };
        Some(old.word())
    }

    /// Takes the locks of both hashes, the lower first, and returns the table, which stays while
    /// they are held.
    #[inline]
    fn lock(&self, hashes: [u64; 2]) -> (LineArray, Locks<'_>) {
        loop {
            let table = self.table();
            for spot in S::spots(table.bits(), hashes).take(2) {
                self.medium.prefetch(Self::line_at(table, spot.line).raw());
            }
            let mut stripes = Self::stripes_of(table, hashes);
            stripes.sort_unstable();
            let [low, high] = stripes;
            let first = self.stripes.at(low).lock();
            let second = (low != high).then(|| self.stripes.at(high).lock());
            if self.table() == table {
                let locks = Locks {
                    first,
                    _second: second,
                };
                return (table, locks);
            }
        }
    }

    /// Where a key is.
    #[inline]
    pub(super) fn find(
        &self,
        table: LineArray,
        hashes: [u64; 2],
        key: u64,
    ) -> Option<(&S::Bucket, usize)> {
        let spots = S::spots(table.bits(), hashes).map(|spot| spot.line);
        spots.chain(self.stash_in_use(table)).find_map(|number| {
            let line = self.line_for(table, number, Some(key));
            Some((line, line.find(key)?))
        })
    }

    /// Puts a key that is not there into the first free slot of its own; false if there is none.
    #[inline]
    pub(super) fn put_into_spot(
        &self,
        table: LineArray,
        hashes: [u64; 2],
        key: u64,
        value: ValueOf<S>,
    ) -> bool {
        let free = S::spots(table.bits(), hashes).find_map(|spot| {
            let line = self.line(table, spot.line);
            Some((line, free_slot(line, spot)?))
        });
        match free {
            Some((line, slot)) if S::SLOTS_HAVE_LOCKS => {
                line.put_among(&self.medium, slot, key, value);
            }
            Some((line, slot)) => line.put(&self.medium, slot, key, value),
            None => {}
        }
        free.is_some()
    }

    /// Whether a line is one of the stash.
    #[inline]
    fn is_of_stash(&self, table: LineArray, line: &S::Bucket) -> bool {
        let first = Self::line_at(table, S::lines(table.bits())).raw();
        S::stash_lines(table.bits()) > 0 && self.medium.offset_of(line).raw() >= first
    }

    /// Puts a key for which there is no room into the stash, if there is one.
    #[cold]
    fn put_into_stash(&self, table: LineArray, key: u64, value: ValueOf<S>) -> Stashing {
        if S::stash_lines(table.bits()) == 0 {
            return Stashing::Full;
        }
        let hashes = self.hashes(key);
        let (now, locks) = self.lock(hashes);
        if now != table || self.find(table, hashes, key).is_some() {
            return Stashing::Changed;
        }
        if !self.fill_stash(table, &self.stash_used, (key, value)) {
            return Stashing::Full;
        }
        locks.first.count_insert();
        Stashing::Done
    }

    /// Puts an entry into the stash of a table, of which so many lines are in use; false if it is
    /// full.
    pub(super) fn fill_stash(&self, table: LineArray, used: &AtomicU64, entry: EntryOf<S>) -> bool {
        let _stash = self.stash.lock();
        let first = S::lines(table.bits());
        for number in 0..S::stash_lines(table.bits()) {
            let line = self.line(table, first + number);
            if let Some(slot) = line.free_slot() {
                // ORDER: Release pairs with the acquire in `stash_in_use`; before the entry is
                // there, so that nobody misses it.
                used.fetch_max(number + 1, Ordering::Release);
                line.put_among(&self.medium, slot, entry.0, entry.1);
                return true;
            }
        }
        false
    }
}

/// The first free slot of a spot.
#[inline]
pub(super) fn free_slot(line: &impl Bucket, spot: CandidateSlots) -> Option<usize> {
    let free = !line.tokens() & spot.slots;
    (free != 0).then_some(free.trailing_zeros() as usize)
}
