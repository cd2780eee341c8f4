//! Locks of indexes: always in DRAM, never on the medium.
//!
//! A lock word on a medium costs writes of the medium for every acquisition and is found held after
//! a crash by a thread that is gone. So whatever an index locks has its word in ordinary memory and
//! is free when a pool is opened.
//!
//! # Stripes
//! [`Stripes`] are locks for parts of a hash table: one for each value of the first bits of a hash.
//! Writers take them; readers only look, before they read and after. A stripe's word is odd while
//! it is held and changes with every acquisition, so a reader finds out ([`StripeChange`]) that
//! nobody was at work, that one operation was under way all the time, or that it must read again. A
//! writer that changes more than one thing a reader could miss takes a [`StripeGuard::step`] in
//! between.

use std::time::{Duration, Instant};

use crate::Result;
use crate::atomic::{AtomicU64, Ordering, count_log, yield_now};

/// Waiting that gives way: spins first, then yields the processor, then sleeps.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    rounds: u32,
}

impl Backoff {
    /// Rounds that spin, doubling up to 64 pauses: about the time of a short critical section.
    const SPIN_ROUNDS: u32 = if cfg!(gabion_loom) { 0 } else { 7 };
    /// Rounds that yield before sleeping: the holder may have lost its processor.
    const YIELD_ROUNDS: u32 = if cfg!(gabion_loom) { u32::MAX } else { 64 };

    /// Waits a little, longer from call to call.
    #[cold]
    pub(crate) fn wait(&mut self) {
        if self.rounds < Self::SPIN_ROUNDS {
            for _ in 0..1 << self.rounds {
                std::hint::spin_loop();
            }
        } else if self.rounds < Self::SPIN_ROUNDS + Self::YIELD_ROUNDS {
            yield_now();
        } else {
            std::thread::sleep(Duration::from_micros(50));
        }
        self.rounds = self.rounds.saturating_add(1);
    }

    /// Waits until something is so, but no longer than a time that is told; tells whether it is.
    ///
    /// The time is that of the clock, for who is waited for may have lost its processor; but time
    /// in which the waiter did not get to look is not counted: see [`Patience`].
    pub(crate) fn wait_until(limit: Duration, mut is_so: impl FnMut() -> bool) -> bool {
        let mut backoff = Self::default();
        let mut patience = Patience::default();
        loop {
            if is_so() {
                return true;
            }
            if patience.waited(Instant::now()) > limit {
                return false;
            }
            backoff.wait();
        }
    }
}

/// How long something has been waited for.
///
/// A process that is stopped and goes on finds the clock far ahead, and so does one whose machine
/// was paused. The threads that it waits for have had no time meanwhile either, so between two
/// looks no more is counted than a little.
#[derive(Debug, Default)]
struct Patience {
    waited: Duration,
    looked: Option<Instant>,
}

impl Patience {
    /// What is counted between two looks, at most: two hundred times what a waiter sleeps.
    const BETWEEN_LOOKS_MAX: Duration = Duration::from_millis(10);

    /// The time that was waited by the look of now.
    fn waited(&mut self, now: Instant) -> Duration {
        if let Some(looked) = self.looked.replace(now) {
            let between = now.saturating_duration_since(looked);
            self.waited += between.min(Self::BETWEEN_LOOKS_MAX);
        }
        self.waited
    }
}

/// Binary logarithm of the number of stripes: 32 KiB of them, in which 28 threads meet once in 70
/// operations.
pub(crate) const STRIPE_BITS: u32 = count_log(11);

/// The number of entries when the stripes were made is not known.
const UNKNOWN: u64 = u64::MAX;

/// Locks by the first bits of hashes, and the number of entries that they guard.
#[derive(Debug)]
pub(crate) struct Stripes {
    stripes: Box<[Stripe]>,
    /// Entries when the stripes were made.
    base: AtomicU64,
}

/// A lock of [`Stripes`].
#[derive(Debug, Default)]
pub(crate) struct Stripe {
    /// Odd while held; counts acquisitions and steps.
    word: AtomicU64,
    /// Entries that came, less those that went, wrapping around.
    change: AtomicU64,
}

/// What has happened under a stripe's lock since a reader looked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StripeChange {
    /// Nothing, and all that was read is durable.
    Quiet,
    /// One operation was and is under way: what was read may not be durable yet.
    Busy,
    /// Operations began or ended: what was read means nothing.
    Changed,
}

impl StripeChange {
    /// What has happened between two looks at a word that is odd while a lock is held.
    #[inline]
    pub(crate) fn between(seen: u64, now: u64) -> StripeChange {
        match (now == seen, now & 1 == 0) {
            (false, _) => StripeChange::Changed,
            (true, true) => StripeChange::Quiet,
            (true, false) => StripeChange::Busy,
        }
    }
}

/// A stripe's lock, held until this is dropped.
#[derive(Debug)]
pub(crate) struct StripeGuard<'a> {
    stripe: &'a Stripe,
    word: u64,
}

impl Stripes {
    /// Free locks that guard so many entries; none if that is not known yet.
    pub(crate) fn new(entries: Option<u64>) -> Stripes {
        Stripes {
            stripes: (0..1 << STRIPE_BITS).map(|_| Stripe::default()).collect(),
            base: AtomicU64::new(entries.unwrap_or(UNKNOWN)),
        }
    }

    /// The number of the stripe for all hashes that share their first `bits` bits, at least one,
    /// with `hash`. Numbers are in the order of hashes.
    #[inline]
    pub(crate) fn index(hash: u64, bits: u32) -> usize {
        let kept = hash & (u64::MAX << (64 - bits));
        (kept >> (64 - STRIPE_BITS)) as usize
    }

    /// The stripe with this number.
    #[inline]
    pub(crate) fn at(&self, index: usize) -> &Stripe {
        // Numbers come from `index` and have so many bits.
        &self.stripes[index & ((1 << STRIPE_BITS) - 1)]
    }

    /// Takes all locks, in their order.
    pub(crate) fn lock_all(&self) -> Vec<StripeGuard<'_>> {
        self.stripes.iter().map(Stripe::lock).collect()
    }

    /// The number of entries. If it is not known, writers wait for `count`, which counts them.
    pub(crate) fn entries(&self, count: impl FnOnce() -> Result<u64>) -> Result<u64> {
        // ORDER: Acquire pairs with the release below; the changes are exact if nobody writes.
        if self.base.load(Ordering::Acquire) == UNKNOWN {
            let held = self.lock_all();
            let base = count()?.wrapping_sub(self.changes());
            // ORDER: as above.
            self.base.store(base, Ordering::Release);
            drop(held);
        }
        // ORDER: as above.
        let base = self.base.load(Ordering::Acquire);
        Ok(base.wrapping_add(self.changes()))
    }

    fn changes(&self) -> u64 {
        // ORDER: Relaxed: a sum of the past, whoever looks.
        let change = |stripe: &Stripe| stripe.change.load(Ordering::Relaxed);
        self.stripes.iter().map(change).fold(0, u64::wrapping_add)
    }
}

impl Stripe {
    /// What a reader keeps for [`Stripe::since`].
    #[inline]
    pub(crate) fn look(&self) -> u64 {
        // ORDER: Acquire pairs with the releases of `step` and of the end of `StripeGuard`: what
        // came before them is seen.
        self.word.load(Ordering::Acquire)
    }

    /// What has happened since `look`. What was read in between was read with acquire.
    #[inline]
    pub(crate) fn since(&self, seen: u64) -> StripeChange {
        // ORDER: Relaxed: the acquiring loads before stay before; if one of them saw a store that
        // was made under the lock, this sees the lock taken then, or a later word.
        let now = self.word.load(Ordering::Relaxed);
        StripeChange::between(seen, now)
    }

    /// Takes the lock if it is free.
    #[inline]
    pub(crate) fn try_lock(&self) -> Option<StripeGuard<'_>> {
        // ORDER: the load is a hint; Acquire pairs with the release of the end of `StripeGuard`.
        let word = self.word.load(Ordering::Relaxed) & !1;
        self.word
            .compare_exchange(word, word + 1, Ordering::Acquire, Ordering::Relaxed)
            .ok()
            .map(|_| StripeGuard {
                stripe: self,
                word: word + 1,
            })
    }

    /// Takes the lock, waiting for other writers.
    #[inline]
    pub(crate) fn lock(&self) -> StripeGuard<'_> {
        match self.try_lock() {
            Some(held) => held,
            None => self.lock_slowly(|| ()),
        }
    }

    /// Takes the lock, and calls `help` again and again while others hold it.
    #[cold]
    pub(crate) fn lock_slowly(&self, help: impl Fn()) -> StripeGuard<'_> {
        let mut backoff = Backoff::default();
        loop {
            if let Some(held) = self.try_lock() {
                return held;
            }
            help();
            backoff.wait();
        }
    }
}

impl StripeGuard<'_> {
    /// Makes readers that looked before read again, who may have missed what was done so far.
    pub(crate) fn step(&mut self) {
        self.word += 2;
        // ORDER: Release pairs with the acquire of `look`: who sees this sees what was done.
        self.stripe.word.store(self.word, Ordering::Release);
    }

    /// Counts an entry more.
    #[inline]
    pub(crate) fn count_insert(&self) {
        self.count(1);
    }

    /// Counts an entry less.
    #[inline]
    pub(crate) fn count_remove(&self) {
        self.count(u64::MAX);
    }

    #[inline]
    fn count(&self, change: u64) {
        let cell = &self.stripe.change;
        // ORDER: Relaxed: only the holder of the lock writes it.
        let sum = cell.load(Ordering::Relaxed).wrapping_add(change);
        cell.store(sum, Ordering::Relaxed);
    }
}

impl Drop for StripeGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        // ORDER: Release pairs with the acquires of `try_lock` and `look`; the last fence of the
        // operation came before, so who sees a free lock sees what is durable.
        self.stripe.word.store(self.word + 1, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_share_a_stripe_as_far_as_they_share_their_bits() {
        let ones = u64::MAX;
        assert_eq!(Stripes::index(ones, 1), 1 << (STRIPE_BITS - 1));
        assert_eq!(Stripes::index(ones >> 1, 1), 0);
        assert_eq!(Stripes::index(ones, 64), (1 << STRIPE_BITS) - 1);
        assert_eq!(Stripes::index(ones << 50, 14), Stripes::index(ones, 40));
        let sorted: Vec<_> = (0..32).map(|i| Stripes::index(i << 59, 5)).collect();
        assert!(sorted.is_sorted_by(|one, two| one < two));
    }

    #[test]
    fn readers_learn_what_happened() {
        let stripe = Stripe::default();
        let seen = stripe.look();
        assert_eq!(stripe.since(seen), StripeChange::Quiet);
        let mut held = stripe.lock();
        assert_eq!(stripe.since(seen), StripeChange::Changed);
        let seen = stripe.look();
        assert_eq!(stripe.since(seen), StripeChange::Busy);
        assert!(stripe.try_lock().is_none());
        held.step();
        assert_eq!(stripe.since(seen), StripeChange::Changed);
        let seen = stripe.look();
        drop(held);
        assert_eq!(stripe.since(seen), StripeChange::Changed);
        assert!(stripe.try_lock().is_some());
    }

    #[test]
    fn entries_are_counted_once_and_then_followed() {
        let stripes = Stripes::new(None);
        stripes.at(0).lock().count_insert();
        assert_eq!(stripes.entries(|| Ok(6)).expect("counted"), 6);
        stripes.at(1).lock().count_remove();
        stripes.at(1).lock().count_remove();
        let known = stripes.entries(|| unreachable!("it is known"));
        assert_eq!(known.expect("known"), 4);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| (0..10_000).for_each(|_| stripes.at(5).lock().count_insert()));
            }
        });
        assert_eq!(stripes.entries(|| Ok(0)).expect("known"), 30_004);
        drop(stripes.lock_all());
    }

    /// The first thread that goes on when a process was stopped must not take the others, who had
    /// no time either, for ones that never come.
    #[test]
    fn a_process_that_was_stopped_has_not_waited() {
        let (second, look) = (Duration::from_secs(1), Duration::from_millis(1));
        let mut patience = Patience::default();
        let mut now = Instant::now();
        assert_eq!(patience.waited(now), Duration::ZERO);
        for _ in 0..5 {
            now += look;
            patience.waited(now);
        }
        assert_eq!(patience.waited(now), 5 * look);
        now += 1000 * second;
        assert_eq!(patience.waited(now), 5 * look + Patience::BETWEEN_LOOKS_MAX);
        for _ in 0..1000 {
            now += look;
            patience.waited(now);
        }
        assert!(patience.waited(now) > second);
        // A clock that goes back, as some machines have had, is no time.
        let waited = patience.waited(now);
        assert_eq!(patience.waited(now - second), waited);
    }

    #[test]
    fn waiting_never_overflows() {
        let last_spin = Backoff::SPIN_ROUNDS.saturating_sub(1);
        for rounds in [last_spin, last_spin + Backoff::YIELD_ROUNDS, u32::MAX] {
            let mut backoff = Backoff { rounds };
            backoff.wait();
            assert_eq!(backoff.rounds, rounds.saturating_add(1));
        }
    }
}
