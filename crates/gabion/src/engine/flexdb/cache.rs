//! The interval cache: decoded intervals, found through the index, replaced by CLOCK.
//!
//! # Idea (paper, section 5.2)
//! Every interval of the index has a slot, which is empty or holds the decoded interval; so a hit
//! costs no search beyond that of the index. The slots that were filled stand in a ring. When the
//! cache is full, its hand goes round: a slot that was read since it last came by is left once
//! more, another one is emptied. What readers still hold stays with them.
//!
//! # Invariants
//! - C1. A slot is of one content. An interval that changes gets another slot, so who fills a slot
//!   needs no lock; filling one that is of no use any more is a waste and no error.
//! - C2. `bytes` is the sum over the full slots, and at most `bytes_max` whenever nobody is
//!   filling.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;

use super::interval::Interval;

/// An interval is not cached when it takes more than this part of the cache.
const LARGEST_PART: u64 = 8;

/// A place for a decoded interval.
#[derive(Debug, Default)]
pub(super) struct Slot {
    interval: ArcSwapOption<Interval>,
    /// Whether it was read since the hand came by.
    used: AtomicBool,
    /// Whether the index has dropped it.
    retired: AtomicBool,
    cache: OnceLock<Arc<Totals>>,
}

#[derive(Debug, Default)]
struct Totals {
    bytes: AtomicU64,
    hits: AtomicU64,
    misses: AtomicU64,
}

impl Slot {
    /// The interval, if it is cached.
    #[inline]
    pub(super) fn get(&self) -> Option<Arc<Interval>> {
        let interval = self.interval.load_full()?;
        // ORDER: Relaxed (both); a hint for the hand.
        if !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::Relaxed);
        }
        Some(interval)
    }

    /// Empties the slot; its interval is of no use any more.
    pub(super) fn retire(&self) {
        // ORDER: Relaxed, a hint for the ring.
        self.retired.store(true, Ordering::Relaxed);
        self.empty();
    }

    fn empty(&self) {
        if let (Some(interval), Some(totals)) = (self.interval.swap(None), self.cache.get()) {
            // ORDER: Relaxed; the sum orders nothing.
            totals
                .bytes
                .fetch_sub(interval.memory_bytes(), Ordering::Relaxed);
        }
    }
}

/// The cache of all partitions.
#[derive(Debug)]
pub(super) struct Cache {
    bytes_max: u64,
    totals: Arc<Totals>,
    ring: Mutex<Ring>,
}

#[derive(Debug, Default)]
struct Ring {
    slots: VecDeque<Arc<Slot>>,
    /// How many slots there were when those that were dropped were last taken out.
    swept: usize,
}

impl Cache {
    pub(super) fn new(bytes_max: u64) -> Cache {
        Cache {
            bytes_max,
            totals: Arc::default(),
            ring: Mutex::default(),
        }
    }

    /// Counts a read that found its interval, or did not.
    #[inline]
    pub(super) fn count(&self, hit: bool) {
        let counter = if hit {
            &self.totals.hits
        } else {
            &self.totals.misses
        };
        // ORDER: Relaxed; a figure.
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Puts an interval into its slot, and makes room for it.
    pub(super) fn fill(&self, slot: &Arc<Slot>, interval: &Arc<Interval>) {
        let bytes = interval.memory_bytes();
        if bytes > self.bytes_max / LARGEST_PART {
            return;
        }
        let mut ring = self.ring.lock();
        let _ = slot.cache.set(Arc::clone(&self.totals));
        // ORDER: Relaxed, a hint; the slot may be dropped right after.
        if slot.retired.load(Ordering::Relaxed) || slot.interval.load().is_some() {
            return;
        }
        // ORDER: Relaxed (both); the lock of the ring orders fills, and the sum orders nothing
        // else.
        self.totals.bytes.fetch_add(bytes, Ordering::Relaxed);
        slot.interval.store(Some(Arc::clone(interval)));
        ring.slots.push_back(Arc::clone(slot));
        // Dropped slots are taken out when they may be as many as the others.
        if ring.slots.len() > 2 * ring.swept + 64 {
            ring.slots.retain(|slot| slot.interval.load().is_some());
            ring.swept = ring.slots.len();
        }
        // Twice round at most: the first time may only take the marks away.
        let mut steps = 2 * ring.slots.len();
        while self.bytes() > self.bytes_max
            && steps > 0
            && let Some(slot) = ring.slots.pop_front()
        {
            steps -= 1;
            if slot.interval.load().is_none() {
                continue;
            }
            // ORDER: Relaxed, as in `get`.
            if slot.used.swap(false, Ordering::Relaxed) {
                ring.slots.push_back(slot);
            } else {
                slot.empty();
            }
        }
    }

    /// Bytes of the cached intervals.
    pub(super) fn bytes(&self) -> u64 {
        // ORDER: Relaxed, see `Totals`.
        self.totals.bytes.load(Ordering::Relaxed)
    }

    pub(super) fn hits_and_misses(&self) -> (u64, u64) {
        // ORDER: Relaxed (both); figures.
        let hits = self.totals.hits.load(Ordering::Relaxed);
        (hits, self.totals.misses.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::super::interval::put_pair;
    use super::*;

    fn interval(number: u64) -> Arc<Interval> {
        let mut bytes = Vec::new();
        put_pair(&mut bytes, &number.to_le_bytes(), &[7; 100]);
        Arc::new(Interval::decode(bytes.into()).unwrap())
    }

    #[test]
    fn the_budget_is_kept_and_what_is_read_stays() {
        let one = interval(0).memory_bytes();
        let cache = Cache::new(10 * one);
        let hot: Arc<Slot> = Arc::default();
        cache.fill(&hot, &interval(0));
        for number in 1..200 {
            assert!(
                hot.get().is_some(),
                "read all the time, dropped at {number}"
            );
            cache.fill(&Arc::default(), &interval(number));
            assert!(cache.bytes() <= 10 * one);
        }
        assert_eq!(cache.bytes(), 10 * one);
        hot.retire();
        assert_eq!(cache.bytes(), 9 * one);
        cache.fill(&hot, &interval(0));
        assert!(hot.get().is_none(), "a slot that is dropped stays empty");
        assert_eq!(cache.bytes(), 9 * one);
    }

    #[test]
    fn dropped_slots_do_not_pile_up() {
        let cache = Cache::new(1 << 30);
        for number in 0..10_000 {
            let slot: Arc<Slot> = Arc::default();
            cache.fill(&slot, &interval(number));
            slot.retire();
        }
        assert!(cache.ring.lock().slots.len() < 200);
        assert_eq!(cache.bytes(), 0);
    }
}
