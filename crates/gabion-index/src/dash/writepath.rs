//! Writes: under the lock of the segment's stripe, each published by one store to a bucket.

use gabion_media::pmem::POff;

use super::Dash;
use super::layout::{Bucket, HEAD_BYTES, bucket_of, tag_of};
use super::readpath::KeyLocation;
use super::recovery::record_hint;
use crate::extendible::Segment;
use crate::lock::StripeGuard;
use crate::{Item, Result};

/// A slot for a new entry.
struct Room<'a> {
    number: u64,
    bucket: &'a Bucket,
    slot: u32,
    /// Whether the entry's home is the bucket before.
    is_away: bool,
}

impl<K: Item + ?Sized, const USABLE: u32> Dash<K, USABLE> {
    /// Stores `value` under `key` and returns the value before.
    #[inline]
    pub(super) fn put(&self, key: &K, value: u64) -> Result<Option<u64>> {
        let _within = self.pool.write_guard();
        let hash = key.seeded_hash(&self.seed);
        loop {
            let (segment, mut held) = self.lock(hash)?;
            if let Some(found) = self.search(segment, hash, key)? {
                return Ok(Some(found.bucket.replace(&self.medium, found.slot, value)));
            }
            if let Some(room) = self.find_room(segment, &mut held, hash) {
                self.enter(segment, &room, hash, key, value)?;
                held.count_insert();
                return Ok(None);
            }
            self.split(segment, hash)?;
        }
    }

    /// Stores `value` under `key` if it is there, and returns the value before.
    #[inline]
    pub(super) fn replace(&self, key: &K, value: u64) -> Result<Option<u64>> {
        let _within = self.pool.write_guard();
        let hash = key.seeded_hash(&self.seed);
        let (segment, _held) = self.lock(hash)?;
        let found = self.search(segment, hash, key)?;
        Ok(found.map(|found| found.bucket.replace(&self.medium, found.slot, value)))
    }

    /// Deletes `key` and returns its value.
    #[inline]
    pub(super) fn delete(&self, key: &K) -> Result<Option<u64>> {
        let _within = self.pool.write_guard();
        let hash = key.seeded_hash(&self.seed);
        let (segment, held) = self.lock(hash)?;
        let Some(found) = self.search(segment, hash, key)? else {
            return Ok(None);
        };
        self.erase(segment, &found, hash)?;
        held.count_remove();
        Ok(Some(found.value))
    }

    /// Takes the lock of the segment to which `hash` leads, which stays as it is while it is held.
    /// The first writer since the table was opened looks the segment through.
    #[inline]
    pub(super) fn lock(&self, hash: u64) -> Result<(Segment, StripeGuard<'_>)> {
        let home = self.shape.home(hash);
        let prefetch = |segment| {
            for number in [home, self.shape.after(home)] {
                self.medium.prefetch(bucket_of(segment, number).raw());
            }
        };
        let (segment, held) = self.segments.lock(hash, prefetch);
        if !self.mended.has(hash) {
            self.mend(segment, hash)?;
        }
        Ok((segment, held))
    }

    /// A bucket of a segment that stays, of which all before the slots is read.
    pub(super) fn bucket_at(&self, segment: Segment, number: u64) -> &Bucket {
        let at = bucket_of(segment, number);
        let bucket = self.medium.at(at);
        self.medium.touch_range(at.raw(), HEAD_BYTES);
        bucket
    }

    /// A slot for a new entry: in the emptier of its home and the bucket behind, or in the place of
    /// an entry that can be moved from there, or in the stash. None if the segment must be split.
    fn find_room(
        &self,
        segment: Segment,
        held: &mut StripeGuard<'_>,
        hash: u64,
    ) -> Option<Room<'_>> {
        let home = self.shape.home(hash);
        let after = self.shape.after(home);
        let room = |number, is_away| {
            let bucket = self.bucket_at(segment, number);
            let free = bucket.meta().free(USABLE);
            let room = Room {
                number,
                bucket,
                slot: free.trailing_zeros(),
                is_away,
            };
            (free.count_ones(), room)
        };
        let (at_home, first) = room(home, false);
        let (behind, second) = room(after, true);
        if at_home.max(behind) > 0 {
            return Some(if at_home >= behind { first } else { second });
        }
        self.displace(segment, held, first, second).or_else(|| {
            let mut stashes = self.shape.homes..self.shape.buckets();
            stashes.find_map(|number| {
                let (free, room) = room(number, false);
                (free > 0).then_some(room)
            })
        })
    }

    /// Makes room in one of two full neighbours, `first` and `second`: an entry of the second goes
    /// from its home to the bucket behind, or one of the first goes back home.
    #[cold]
    fn displace<'a>(
        &self,
        segment: Segment,
        held: &mut StripeGuard<'_>,
        first: Room<'a>,
        second: Room<'a>,
    ) -> Option<Room<'a>> {
        let behind = self.shape.after(second.number);
        let before = self.shape.before(first.number);
        let at_home = second.bucket.meta();
        let at_home = at_home.live() & !at_home.away();
        let away = first.bucket.meta().away();
        let moves = [
            (second, behind, at_home, true),
            (first, before, away, false),
        ];
        for (from, target, movable, is_away) in moves {
            let target = self.bucket_at(segment, target);
            let free = target.meta().free(USABLE);
            if free == 0 || movable == 0 {
                continue;
            }
            let (slot, to) = (movable.trailing_zeros(), free.trailing_zeros());
            let (tag, key) = (from.bucket.tag(slot), from.bucket.key(&self.medium, slot));
            let value = from.bucket.value(slot);
            target.fill(&self.medium, to, tag, key, value);
            target.publish(&self.medium, target.meta().with(to, is_away));
            // Readers that looked at the target before must look again before they find the entry
            // gone.
            held.step();
            let meta = from.bucket.meta().without(1 << slot);
            from.bucket.publish(&self.medium, meta);
            return Some(Room { slot, ..from });
        }
        None
    }

    /// Writes an entry where there is room, and publishes it.
    #[inline]
    fn enter(
        &self,
        segment: Segment,
        room: &Room<'_>,
        hash: u64,
        key: &K,
        value: u64,
    ) -> Result<()> {
        let record = self.reserve_record(key, hash)?;
        let word = match &record {
            Some(record) => record.offset::<u8>().raw(),
            None => key.word(),
        };
        let tag = tag_of(hash);
        if let Some(stash) = room.number.checked_sub(self.shape.homes) {
            let home = self.bucket_at(segment, self.shape.home(hash));
            home.set_overflow(&self.medium, home.overflow().with(tag, stash));
            // DURABLE: the note with the pair, before there is an entry in the stash.
            self.medium.flush(&home.overflow);
        }
        room.bucket.fill(&self.medium, room.slot, tag, word, value);
        let meta = room.bucket.meta().with(room.slot, room.is_away);
        room.bucket.publish(&self.medium, meta);
        if let Some(record) = record {
            record.commit::<u8>();
        }
        Ok(())
    }

    /// Deletes an entry.
    #[inline]
    fn erase(&self, segment: Segment, found: &KeyLocation<'_>, hash: u64) -> Result<()> {
        let KeyLocation {
            number,
            bucket,
            slot,
            ..
        } = *found;
        let retiring = match K::IS_WORD {
            true => None,
            false => {
                let record: POff = POff::new(bucket.key(&self.medium, slot));
                let retiring = self.pool.retire(record, record_hint(hash))?;
                // DURABLE: the note that the record goes.
                self.medium.fence();
                Some(retiring)
            }
        };
        bucket.publish(&self.medium, bucket.meta().without(1 << slot));
        if let Some(stash) = number.checked_sub(self.shape.homes) {
            // A note that stays after a crash costs a look at the stash.
            let home = self.bucket_at(segment, self.shape.home(hash));
            if let Some(overflow) = home.overflow().without(tag_of(hash), stash) {
                home.set_overflow(&self.medium, overflow);
            }
        }
        if let Some(retiring) = retiring {
            retiring.commit(&self.pool.enter());
        }
        Ok(())
    }
}
