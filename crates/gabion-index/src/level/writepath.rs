//! Writes: under the locks of both groups of a key, each published by one store to a bucket.

use std::sync::atomic::Ordering;

use super::LevelTable;
use super::form::Form;
use super::places::{GroupLocks, Hashes, Levels, PLACES};
use crate::Result;
use crate::bucket::{Bucket, Value};

/// Bits of the offset in the word that notes a movement.
pub(super) const NOTE_OFFSET_BITS: u32 = 48;

/// What a bucket keeps under a key.
pub(super) type ValueOf<F> = <<F as Form>::Bucket as Bucket>::Value;

impl<F: Form> LevelTable<F> {
    /// Stores `value` under `key` and returns the value before.
    #[inline]
    pub(super) fn put(&self, key: u64, value: u64) -> Result<Option<u64>> {
        let value = ValueOf::<F>::of_word(value);
        let _within = self.pool.write_guard();
        let hashes = self.hashes(key);
        loop {
            let (levels, mut groups) = self.lock(hashes);
            if let Some((line, slot)) = self.find(&levels, hashes, key) {
                return Ok(Some(self.change(line, slot, value)));
            }
            let places = self.places(&levels, hashes);
            if let Some((line, slot)) = choose(&places) {
                let flush = self.pair_flush(line, slot);
                line.put_as(flush, &self.medium, slot, key, value);
                groups.first.count_insert();
                return Ok(None);
            }
            if self.make_room(&levels, &mut groups, &places, key, value) {
                groups.first.count_insert();
                return Ok(None);
            }
            drop(groups);
            self.grow(levels.top)?;
        }
    }

    /// Stores `value` under `key` if it is there, and returns the value before.
    #[inline]
    pub(super) fn replace(&self, key: u64, value: u64) -> Option<u64> {
        let _within = self.pool.write_guard();
        let hashes = self.hashes(key);
        let (levels, _groups) = self.lock(hashes);
        let (line, slot) = self.find(&levels, hashes, key)?;
        Some(self.change(line, slot, ValueOf::<F>::of_word(value)))
    }

    /// Replaces the value of the entry in a slot: by one store if it is a word; else, if its bucket
    /// has a free slot, by an entry there; else by the log. Returns the word before.
    #[inline]
    fn change(&self, line: &F::Bucket, slot: usize, value: ValueOf<F>) -> u64 {
        if ValueOf::<F>::WORDS == 1 {
            return line.replace(&self.medium, slot, value).word();
        }
        let old = match line.free_slot().filter(|_| !F::LOGS_ALWAYS) {
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
        let (levels, groups) = self.lock(hashes);
        let (line, slot) = self.find(&levels, hashes, key)?;
        groups.first.count_remove();
        Some(line.remove(&self.medium, slot).word())
    }

    /// Where a key is.
    #[inline]
    fn find(&self, levels: &Levels, hashes: Hashes, key: u64) -> Option<(&F::Bucket, usize)> {
        (0..PLACES).find_map(|number| {
            let bucket = self.place_at(levels, hashes, number, Some(key));
            Some((bucket, bucket.find(key)?))
        })
    }

    /// Takes the locks of both groups, the lower first, and returns the levels, which stay while
    /// they are held.
    #[inline]
    fn lock(&self, hashes: Hashes) -> (Levels, GroupLocks<'_>) {
        loop {
            let top = self.top();
            let levels = self.levels(top);
            self.prefetch_places(&levels, hashes);
            let [first, second] = hashes.0;
            let (first, second) = (levels.stripe(first), levels.stripe(second));
            let (low, high) = (first.min(second), first.max(second));
            let first = self.stripes.at(low).lock();
            let second = (low != high).then(|| self.stripes.at(high).lock());
            if self.top() == top {
                let levels = self.levels(top);
                let groups = GroupLocks {
                    first,
                    second,
                    stripes: [low, high],
                };
                return (levels, groups);
            }
        }
    }

    /// Moves one entry of the full `places` to another place of its own, and puts the new entry
    /// where it was. False if none can be moved.
    #[cold]
    fn make_room(
        &self,
        levels: &Levels,
        groups: &mut GroupLocks<'_>,
        places: &[&F::Bucket; PLACES],
        key: u64,
        value: ValueOf<F>,
    ) -> bool {
        for (home, line) in places.iter().enumerate() {
            self.medium.touch(*line);
            for slot in 0..F::Bucket::SLOTS {
                let Some(entry) = line.entry(slot) else {
                    continue;
                };
                let hashes = self.hashes(entry.0);
                for number in 0..PLACES {
                    if !F::MOVES_BETWEEN_LEVELS && Levels::of(number) != Levels::of(home) {
                        continue;
                    }
                    let target = self.place_at(levels, hashes, number, None);
                    if std::ptr::eq(target, *line) || target.free_slot().is_none() {
                        continue;
                    }
                    let stripe = levels.stripe(hashes.0[number % 2]);
                    let held = match groups.stripes.contains(&stripe) {
                        true => None,
                        // Waiting here could be for ever: others may wait for this group's lock.
                        false => match self.stripes.at(stripe).try_lock() {
                            None => continue,
                            held => held,
                        },
                    };
                    let Some(free) = target.free_slot() else {
                        continue;
                    };
                    let _moving = self.moving.lock();
                    self.note_move(line, slot);
                    let flush = self.pair_flush(target, free);
                    target.put_as(flush, &self.medium, free, entry.0, entry.1);
                    // Readers that looked at the target before must look again before they find
                    // the entry gone.
                    groups.step();
                    if let Some(mut held) = held {
                        held.step();
                    }
                    line.vacate(&self.medium, slot);
                    // Readers that have seen the token must look again before they find another
                    // pair behind it: they would take the value for that of the entry, or the key
                    // for one that is there already.
                    groups.step();
                    let flush = self.pair_flush(line, slot);
                    line.put_as(flush, &self.medium, slot, key, value);
                    // ORDER: Relaxed: a number for statistics.
                    self.moves.fetch_add(1, Ordering::Relaxed);
                    return true;
                }
            }
        }
        false
    }

    /// Tells recovery that the entry of a slot may have an equal.
    fn note_move(&self, line: &F::Bucket, slot: usize) {
        let at = self.medium.offset_of(line).raw();
        let note = &self.state().note;
        // DURABLE: the note, before there are two equal entries.
        // ORDER: Relaxed: read by recovery only.
        note.store_persist(
            &self.medium,
            at | (slot as u64) << NOTE_OFFSET_BITS,
            Ordering::Relaxed,
        );
    }
}

/// The free slot for a new entry: in the emptier bucket of the top, else of the bottom.
#[inline]
fn choose<'a, B: Bucket>(places: &[&'a B; PLACES]) -> Option<(&'a B, usize)> {
    let [top, other_top, bottom, other_bottom] = *places;
    [[top, other_top], [bottom, other_bottom]]
        .into_iter()
        .find_map(|[one, other]| {
            let line = if other.entry_count() < one.entry_count() {
                other
            } else {
                one
            };
            Some((line, line.free_slot()?))
        })
}
