//! A reader-writer lock that is held exclusively for short moments only, and that measures for how
//! long.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{RwLock, RwLockReadGuard, RwLockUpgradableReadGuard, RwLockWriteGuard};

/// Classes of [`ReaderWaits::by_micros`]: the last one begins at four seconds.
const CLASSES: usize = 24;

/// A lock that readers share.
///
/// Who takes it alone lets those in who wait for it when giving it up, before taking it again: so a
/// reader waits for one such section, however many follow each other. A gate that measures adds up
/// for how long readers could be kept out, at the cost of two looks at the clock each time.
#[derive(Debug)]
pub struct SharedLock<T> {
    lock: RwLock<T>,
    waits: Option<Box<Waits>>,
}

/// A [`SharedLock`] that is shared with readers, and that nobody else takes alone: see
/// [`SharedLock::ahead`].
#[derive(Debug)]
pub struct UpgradableGuard<'g, T> {
    guard: RwLockUpgradableReadGuard<'g, T>,
    waits: Option<&'g Waits>,
}

/// A [`SharedLock`] that is held alone.
pub struct ExclusiveGuard<'g, T> {
    /// `None` only while it is dropped.
    guard: Option<RwLockWriteGuard<'g, T>>,
    /// When it was asked for.
    measured: Option<(Instant, &'g Waits)>,
}

/// How often and for how long readers could be kept out of a [`SharedLock`]: from when somebody
/// asked for it alone, which holds up those who come later, until it was given up. The clock goes
/// on while the system runs something else on the processor, so the longest times tell of that,
/// too.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReaderWaits {
    /// How often.
    pub count: u64,
    /// All of these times together, in nanoseconds.
    pub total_ns: u64,
    /// The longest one, in nanoseconds.
    pub longest_ns: u64,
    /// How many took `2^(n - 1)` microseconds or more, and less than `2^n`, by `n`; the first class
    /// has all below one microsecond, the last one no upper end.
    pub by_micros: [u64; CLASSES],
}

/// Figures for people, which order nothing.
#[derive(Debug, Default)]
struct Waits {
    total_ns: AtomicU64,
    longest_ns: AtomicU64,
    by_micros: [AtomicU64; CLASSES],
}

impl Waits {
    fn add(&self, time: Duration) {
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let micros = ns / 1_000;
        let class = (u64::BITS - micros.leading_zeros()) as usize;
        // ORDER: Relaxed (all), see the type.
        self.total_ns.fetch_add(ns, Ordering::Relaxed);
        self.longest_ns.fetch_max(ns, Ordering::Relaxed);
        self.by_micros[class.min(CLASSES - 1)].fetch_add(1, Ordering::Relaxed);
    }

    fn get(&self) -> ReaderWaits {
        // ORDER: Relaxed (all), see the type.
        let by_micros = self.by_micros.each_ref();
        let by_micros = by_micros.map(|class| class.load(Ordering::Relaxed));
        ReaderWaits {
            count: by_micros.iter().sum(),
            // ORDER: Relaxed (both), see the type.
            total_ns: self.total_ns.load(Ordering::Relaxed),
            longest_ns: self.longest_ns.load(Ordering::Relaxed),
            by_micros,
        }
    }
}

impl ReaderWaits {
    /// Adds what another gate measured.
    pub fn add(&mut self, other: &ReaderWaits) {
        self.count += other.count;
        self.total_ns += other.total_ns;
        self.longest_ns = self.longest_ns.max(other.longest_ns);
        for (own, other) in self.by_micros.iter_mut().zip(other.by_micros) {
            *own += other;
        }
    }

    /// How many took `2^log2` microseconds or more.
    pub fn count_from(&self, log2: usize) -> u64 {
        self.by_micros.iter().skip(log2 + 1).sum()
    }
}

impl<T> SharedLock<T> {
    /// A gate to a value. Only one that `measures` has [waits](SharedLock::waits).
    pub fn new(value: T, measures: bool) -> SharedLock<T> {
        SharedLock {
            lock: RwLock::new(value),
            waits: measures.then(Box::default),
        }
    }

    /// Shares it with other readers.
    #[inline]
    pub fn share(&self) -> RwLockReadGuard<'_, T> {
        self.lock.read()
    }

    /// Keeps all others out. Who waits for it gets it when the guard is dropped.
    #[inline]
    pub fn alone(&self) -> ExclusiveGuard<'_, T> {
        let measured = self.waits.as_deref().map(|waits| (Instant::now(), waits));
        ExclusiveGuard {
            guard: Some(self.lock.write()),
            measured,
        }
    }

    /// Shares it with readers and keeps others out who want it alone: so what is then done with it
    /// [alone](UpgradableGuard::alone) can be prepared before readers have to wait.
    #[inline]
    pub fn ahead(&self) -> UpgradableGuard<'_, T> {
        UpgradableGuard {
            guard: self.lock.upgradable_read(),
            waits: self.waits.as_deref(),
        }
    }

    /// As [`SharedLock::alone`], if nobody has it.
    pub(crate) fn try_alone(&self) -> Option<ExclusiveGuard<'_, T>> {
        let measured = self.waits.as_deref().map(|waits| (Instant::now(), waits));
        Some(ExclusiveGuard {
            guard: Some(self.lock.try_write()?),
            measured,
        })
    }

    /// For how long readers could be kept out so far.
    pub fn waits(&self) -> ReaderWaits {
        self.waits.as_deref().map(Waits::get).unwrap_or_default()
    }
}

impl<'g, T> UpgradableGuard<'g, T> {
    /// Keeps readers out, too, as [`SharedLock::alone`] does. Nobody else has had it alone
    /// meanwhile.
    #[inline]
    pub fn alone(self) -> ExclusiveGuard<'g, T> {
        let measured = self.waits.map(|waits| (Instant::now(), waits));
        ExclusiveGuard {
            guard: Some(RwLockUpgradableReadGuard::upgrade(self.guard)),
            measured,
        }
    }
}

impl<T> Deref for ExclusiveGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        self.guard.as_deref().expect("held until it is dropped")
    }
}

impl<T> DerefMut for ExclusiveGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        self.guard.as_deref_mut().expect("held until it is dropped")
    }
}

impl<T> Drop for ExclusiveGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // Before it is given up: who wakes another thread may have to leave it the processor.
        let time = self.measured.map(|(since, _)| since.elapsed());
        if let Some(guard) = self.guard.take() {
            RwLockWriteGuard::unlock_fair(guard);
        }
        if let (Some(time), Some((_, waits))) = (time, self.measured) {
            waits.add(time);
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for ExclusiveGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Alone").field(&**self).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_counted_by_their_class() {
        let waits = Waits::default();
        for micros in [0, 1, 2, 3, 4, 511, 512, 1 << 40] {
            waits.add(Duration::from_micros(micros));
        }
        let mut waits = waits.get();
        assert_eq!(waits.by_micros[..5], [1, 1, 2, 1, 0]);
        assert_eq!((waits.by_micros[9], waits.by_micros[10]), (1, 1));
        assert_eq!((waits.by_micros[CLASSES - 1], waits.count), (1, 8));
        assert_eq!((waits.count_from(0), waits.count_from(9)), (7, 2));
        assert_eq!(waits.longest_ns, (1 << 40) * 1_000);
        waits.add(&waits.clone());
        assert_eq!((waits.count, waits.by_micros[2]), (16, 4));
    }

    #[test]
    fn a_gate_that_measures_counts_each_time_that_it_is_held_alone() {
        let (gate, other) = (SharedLock::new(1, true), SharedLock::new(1, false));
        for gate in [&gate, &other] {
            for _ in 0..3 {
                let value = *gate.share();
                *gate.alone() += value;
            }
            assert_eq!(*gate.share(), 8);
        }
        assert_eq!((gate.waits().count, other.waits().count), (3, 0));
    }

    #[test]
    fn who_is_ahead_lets_readers_in_until_it_is_alone() {
        let gate = SharedLock::new(1, true);
        let ahead = gate.ahead();
        assert_eq!(*gate.share(), 1);
        assert!(gate.try_alone().is_none() && gate.lock.try_upgradable_read().is_none());
        assert_eq!(gate.waits().count, 0);
        let mut alone = ahead.alone();
        *alone += 1;
        assert!(gate.lock.try_read().is_none());
        drop(alone);
        assert_eq!((*gate.share(), gate.waits().count), (2, 1));
        drop(gate.ahead());
        assert!(gate.try_alone().is_some());
    }
}
