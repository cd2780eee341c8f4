//! A shard's descriptor in DRAM: where its buckets are, its lock, and its counts.
//!
//! The descriptor is 16 bytes, so that the mirror of a directory stays in the cache: the place of
//! the buckets, and one word with the lock and the counts of entries. Whoever holds the lock keeps
//! that word in a register and gives it back with the store that unlocks, so counting is free.
//!
//! Nothing of this is on the medium. After an open the counts are unknown until the first writer
//! of the shard counts its buckets.

use std::sync::atomic::{AtomicU64, Ordering};

use super::layout::ShardPlace;
use crate::lock::Backoff;

/// What DRAM knows of a shard.
#[derive(Debug)]
#[repr(align(16))]
pub(super) struct Shard {
    place: AtomicU64,
    state: AtomicU64,
}

/// Entries and deleted slots of a shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) live: u64,
    pub(super) deleted: u64,
}

/// The lock of a shard, held. Gives the counts back when it is dropped.
#[derive(Debug)]
pub(super) struct LockedShard<'a> {
    shard: &'a Shard,
    state: u64,
}

const LOCKED: u64 = 1 << 63;
const COUNTED: u64 = 1 << 62;
const DELETED_SHIFT: u32 = 31;
const ONE_DELETED: u64 = 1 << DELETED_SHIFT;
const COUNT_MASK: u64 = ONE_DELETED - 1;

impl Shard {
    /// A shard at `place`; `counts` if they are known.
    pub(super) fn new(place: ShardPlace, counts: Option<Counts>) -> Shard {
        Shard {
            place: AtomicU64::new(place.0),
            state: AtomicU64::new(counts.map_or(0, pack)),
        }
    }

    /// Where the buckets are.
    #[inline]
    pub(super) fn place(&self) -> ShardPlace {
        // ORDER: pairs with the release in `move_to`: the buckets there are read as written.
        ShardPlace(self.place.load(Ordering::Acquire))
    }

    /// Whether the buckets are still at `place`, for readers that have read them.
    #[inline]
    pub(super) fn is_at(&self, place: ShardPlace) -> bool {
        // ORDER: the loads of the buckets before were acquires and so stay before this one; if one
        // of them saw a later use of the space, this one sees the place that came before that use.
        self.place.load(Ordering::Relaxed) == place.0
    }

    /// Whether a writer may be between a publish and its flush.
    #[inline]
    pub(super) fn is_locked(&self) -> bool {
        // ORDER: the acquiring load of what was published comes before; it saw a store that its
        // writer made after taking the lock, so this sees the lock taken, or released again.
        self.state.load(Ordering::Relaxed) & LOCKED != 0
    }

    /// Whether the buckets are still at `place`, and no writer is at work on them.
    #[inline]
    pub(super) fn is_at_rest(&self, place: ShardPlace) -> bool {
        self.is_at(place) && !self.is_locked()
    }

    /// The counts, if they are known.
    pub(super) fn counts(&self) -> Option<Counts> {
        // ORDER: Relaxed, a number of the past whoever looks.
        unpack(self.state.load(Ordering::Relaxed))
    }

    /// Takes the lock, waiting for other writers.
    #[inline]
    pub(super) fn lock(&self) -> LockedShard<'_> {
        // ORDER: the failing load is only a hint for the next try.
        let state = self.state.load(Ordering::Relaxed);
        if state & LOCKED == 0 && self.try_lock(state) {
            return LockedShard { shard: self, state };
        }
        self.lock_slowly()
    }

    #[inline]
    fn try_lock(&self, state: u64) -> bool {
        // ORDER: acquire pairs with the release of the unlocking store.
        self.state
            .compare_exchange(state, state | LOCKED, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    #[cold]
    fn lock_slowly(&self) -> LockedShard<'_> {
        let mut backoff = Backoff::default();
        loop {
            // ORDER: as in `lock`.
            let state = self.state.load(Ordering::Relaxed);
            if state & LOCKED == 0 && self.try_lock(state) {
                return LockedShard { shard: self, state };
            }
            backoff.wait();
        }
    }
}

impl LockedShard<'_> {
    /// Where the buckets are, as long as the lock is held.
    #[inline]
    pub(super) fn place(&self) -> ShardPlace {
        self.shard.place()
    }

    /// Makes readers and later writers use the buckets at `place`.
    pub(super) fn move_to(&mut self, place: ShardPlace, counts: Counts) {
        self.state = pack(counts);
        // ORDER: pairs with the acquire in `Shard::place`.
        self.shard.place.store(place.0, Ordering::Release);
    }

    /// The counts, if they are known.
    #[inline]
    pub(super) fn counts(&self) -> Option<Counts> {
        unpack(self.state)
    }

    /// Tells the counts.
    pub(super) fn set_counts(&mut self, counts: Counts) {
        self.state = pack(counts);
    }

    /// Counts an entry in a slot that was empty.
    #[inline]
    pub(super) fn count_insert(&mut self) {
        self.state += 1;
    }

    /// Counts an entry in a slot whose entry was deleted.
    #[inline]
    pub(super) fn count_reuse(&mut self) {
        self.state = self.state + 1 - ONE_DELETED;
    }

    /// Counts the end of an entry.
    #[inline]
    pub(super) fn count_delete(&mut self) {
        self.state = self.state - 1 + ONE_DELETED;
    }
}

impl Drop for LockedShard<'_> {
    #[inline]
    fn drop(&mut self) {
        // ORDER: pairs with the acquire in `Shard::try_lock`. For readers it follows the fence of
        // the last persist.
        self.shard.state.store(self.state, Ordering::Release);
    }
}

fn pack(counts: Counts) -> u64 {
    debug_assert!(counts.live <= COUNT_MASK && counts.deleted <= COUNT_MASK);
    COUNTED | counts.live | counts.deleted << DELETED_SHIFT
}

#[inline]
fn unpack(state: u64) -> Option<Counts> {
    (state & COUNTED != 0).then_some(Counts {
        live: state & COUNT_MASK,
        deleted: state >> DELETED_SHIFT & COUNT_MASK,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_survive_the_lock() {
        let place = ShardPlace::new(512, 3, 1).expect("a place");
        let shard = Shard::new(place, None);
        assert_eq!(shard.counts(), None);
        let mut locked = shard.lock();
        assert!(shard.is_locked());
        assert_eq!(locked.counts(), None);
        locked.set_counts(Counts::default());
        locked.count_insert();
        locked.count_insert();
        locked.count_delete();
        let now = Counts {
            live: 1,
            deleted: 1,
        };
        assert_eq!(locked.counts(), Some(now));
        drop(locked);
        assert!(!shard.is_locked());
        assert_eq!(shard.counts(), Some(now));
        shard.lock().count_reuse();
        let now = Counts {
            live: 2,
            deleted: 0,
        };
        assert_eq!(shard.counts(), Some(now));
        assert!(shard.is_at(place));
        shard.lock().move_to(ShardPlace(0), Counts::default());
        assert!(!shard.is_at(place));
    }

    #[test]
    fn writers_exclude_each_other() {
        let shard = Shard::new(ShardPlace(0), Some(Counts::default()));
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| (0..10_000).for_each(|_| shard.lock().count_insert()));
            }
        });
        assert_eq!(shard.counts().map(|counts| counts.live), Some(30_000));
    }
}
