//! A log of single updates: for values of several words whose bucket has no free slot.
//!
//! # Idea
//! A value of several words cannot be replaced by one store, so a crash in between would leave a
//! part of each. The slides of Level hashing write the new value to a free slot of the bucket
//! ([`Bucket::exchange`]), and where there is none, to a log first. This is that log: of redo, with
//! a record for the one update that is under way in a *lane*. A bucket has a lane by its place.
//!
//! # Layout
//! ```text
//! log    | record 0 | record 1 | ... | record 15 |                                 64 bytes each
//! record | place | key | value | value | 0 ...     place: offset of the bucket, the slot above
//! ```
//!
//! # Invariants
//! - L1. A record whose `place` is not 0 has a whole value, durably, and its slot has the entry of
//!   its key.
//! - L2. Words of a value are written over only while the bucket's lane is held. The lane is in
//!   DRAM; its holder waits for nobody.
//! - L3. Whoever replaces a value holds the lock of its bucket from before the record until the
//!   record is void; so the bucket's table stays meanwhile.
//!
//! # Linearization point
//! The end of the hold: readers of a bucket look at its lane before and after, and read again if
//! somebody had it. No reader sees a value that is written in part, and none answers with one
//! whose record is not durable.
//!
//! # Durability point
//! The persist of the record. Three persists: the record, the value, the void record.
//!
//! # Recovery
//! Writes the values of valid records where they belong, and voids them; before it changes
//! anything else.

use std::marker::PhantomData;
use std::sync::atomic::Ordering;

use gabion_media::media_struct;
use gabion_media::pmem::{Medium, PAtomicU64, POff};

use crate::bucket::{Bucket, Entry, VALUE_WORDS_MAX, Value};
use crate::line::LINE_BYTES;
use crate::lock::{Backoff, Stripe, StripeChange};
use crate::steps::steps;
use crate::{Error, Result};

steps! {
    /// Readers look at the lane of a bucket.
    LookAtLane,
}

/// Lanes, of a record each.
const LANES: usize = 16;

/// Bits of the offset in the word of a place.
const OFFSET_BITS: u32 = 48;

media_struct! {
    /// An update.
    struct Record {
        place: PAtomicU64,
        key: PAtomicU64,
        value: [PAtomicU64; VALUE_WORDS_MAX],
        unused: [PAtomicU64; 4],
    }
}

const _: () = {
    assert!(size_of::<Record>() as u64 == LINE_BYTES);
    assert!(std::mem::offset_of!(Record, place) == 0);
    assert!(std::mem::offset_of!(Record, key) == 8);
    assert!(std::mem::offset_of!(Record, value) == 16);
};

/// The log of a table. One whose values are words has no lanes.
pub(crate) struct UpdateLog<B> {
    medium: Medium,
    first: u64,
    lanes: Box<[Stripe]>,
    buckets: PhantomData<fn() -> B>,
}

impl<B: Bucket> UpdateLog<B> {
    /// Whether values are replaced by one store.
    const IS_NEEDLESS: bool = {
        assert!(B::Value::WORDS <= VALUE_WORDS_MAX);
        B::Value::WORDS == 1
    };

    const LANES: usize = if Self::IS_NEEDLESS { 0 } else { LANES };

    /// Bytes of the log, which begins as zeros.
    pub(crate) const BYTES: u64 = Self::LANES as u64 * LINE_BYTES;

    /// The log at an offset.
    pub(crate) fn new(medium: &Medium, first: u64) -> Self {
        UpdateLog {
            medium: medium.clone(),
            first,
            lanes: (0..Self::LANES).map(|_| Stripe::default()).collect(),
            buckets: PhantomData,
        }
    }

    /// Where the log begins.
    #[cfg(test)]
    pub(crate) fn first_byte(&self) -> u64 {
        self.first
    }

    #[inline]
    fn lane(&self, bucket: &B) -> usize {
        let number = self.medium.offset_of(bucket).raw() / B::BYTES;
        usize::try_from(number % Self::LANES as u64).unwrap_or_default()
    }

    fn record(&self, lane: usize) -> &Record {
        let at = POff::new(self.first + lane as u64 * LINE_BYTES);
        self.medium.at(at)
    }

    /// What `look` finds in a bucket: never a value that is being written.
    #[inline]
    pub(crate) fn read(
        &self,
        bucket: &B,
        look: impl Fn(&B) -> Option<B::Value>,
    ) -> Option<B::Value> {
        if Self::IS_NEEDLESS {
            return look(bucket);
        }
        if !is_taken(Step::LookAtLane) {
            return look(bucket);
        }
        let lane = &self.lanes[self.lane(bucket)];
        let mut backoff = Backoff::default();
        loop {
            let seen = lane.look();
            let found = look(bucket);
            if lane.since(seen) == StripeChange::Quiet {
                return found;
            }
            backoff.wait();
        }
    }

    /// Replaces the value of the entry in a slot, durably, and returns the value before. The slot's
    /// lock is held.
    #[cold]
    pub(crate) fn replace(&self, bucket: &B, slot: usize, value: B::Value) -> B::Value {
        let number = self.lane(bucket);
        let (record, pair) = (self.record(number), bucket.pair(slot));
        let medium = &self.medium;
        // ORDER: Relaxed: only the holder of the slot's lock writes.
        let (key, old) = (pair.key().peek(Ordering::Relaxed), pair.load());
        let _lane = self.lanes[number].lock();
        // ORDER: Relaxed for the record: read by recovery only.
        for (at, word) in record.value.iter().enumerate().take(B::Value::WORDS) {
            word.store(medium, value.word_at(at), Ordering::Relaxed);
        }
        record.key.store(medium, key, Ordering::Relaxed);
        if !cfg!(target_arch = "x86_64") {
            // DURABLE: the value of the record, before it is valid.
            medium.persist(record);
        }
        let place = medium.offset_of(bucket).raw() | (slot as u64) << OFFSET_BITS;
        // DURABLE: the value, by the order of stores to a line or before; the update, by this.
        // ORDER: Relaxed: as above.
        record.place.store_persist(medium, place, Ordering::Relaxed);
        self.finish(record, pair, value);
        old
    }

    /// Writes the value of a record where it belongs, and voids the record.
    fn finish(&self, record: &Record, pair: &B::Pair, value: B::Value) {
        pair.store(&self.medium, value);
        // DURABLE: the value in its place, before its record is void.
        self.medium.persist(pair);
        // DURABLE: the end of the record, before the slot changes again.
        // ORDER: Relaxed: read by recovery only.
        record
            .place
            .store_persist(&self.medium, 0, Ordering::Relaxed);
    }

    /// Ends what was under way. `find` knows the bucket at an offset, if there is one.
    ///
    /// # Errors
    /// A record whose slot does not have its entry.
    pub(crate) fn recover<'a>(&self, find: impl Fn(u64) -> Option<&'a B>) -> Result<()> {
        for lane in 0..Self::LANES {
            let record = self.record(lane);
            let medium = &self.medium;
            // ORDER: Relaxed: nobody else has the table yet.
            let place = record.place.load(medium, Ordering::Relaxed);
            if place == 0 {
                continue;
            }
            let key = record.key.load(medium, Ordering::Relaxed);
            let value = |at: usize| record.value[at].load(medium, Ordering::Relaxed);
            let value = B::Value::of_words(value);
            let slot = (place >> OFFSET_BITS) as usize;
            let bucket = find(place & ((1 << OFFSET_BITS) - 1)).filter(|_| slot < B::SLOTS);
            let is_its = |bucket: &&B| bucket.entry(slot).is_some_and(|entry| entry.0 == key);
            let Some(bucket) = bucket.filter(is_its) else {
                let at = medium.offset_of(record).raw();
                return Err(Error::damaged("the log of a hash table", at));
            };
            self.finish(record, bucket.pair(slot), value);
        }
        Ok(())
    }
}

/// Until what this returns is dropped, this thread reads without a look at lanes.
#[cfg(test)]
pub(crate) fn leave_out_the_lane() -> impl Drop {
    let [step] = Step::ALL;
    leave_out(step)
}
