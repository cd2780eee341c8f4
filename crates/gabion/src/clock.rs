//! The time: the system's, or one that a test moves by hand.
//!
//! # Idea
//! Every decision of a store that depends on time asks its [`Clock`], so that a test can advance it
//! by an hour, and its result does not depend on the machine. Statistics of durations measure by
//! themselves.
//!
//! # Invariants
//! - I1: [`Clock::now`] never goes back. [`Clock::unix_time`] may, when the system's time is set.
//! - I2: every wait lets go of the lock that it is called with, whatever its deadline. So others
//!   can do under that lock what somebody waits for in a loop.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use parking_lot::{Condvar, MutexGuard};

/// How long a wait by a clock that is moved by hand lasts before it looks at the clock again.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// No wait is shorter, even one whose deadline has passed: in a loop that comes too late each time,
/// the others have the lock meanwhile (I2), and the loop costs no processor.
const PAUSE_MIN: Duration = Duration::from_micros(50);

/// The source of time of a store. Clones share one clock.
#[derive(Clone)]
pub struct Clock(Source);

#[derive(Clone)]
enum Source {
    /// The system's, with the moment from which [`Clock::now`] counts.
    System(Instant),
    /// Nanoseconds since the clock was made, and seconds by which the date is set off from them.
    Manual(Arc<(AtomicU64, AtomicI64)>),
}

impl Clock {
    /// The system's clock.
    pub fn system() -> Clock {
        Clock(Source::System(Instant::now()))
    }

    /// A clock that only [`Clock::advance`] moves. It begins at 0, as does its
    /// [`Clock::unix_time`].
    pub fn manual() -> Clock {
        Clock(Source::Manual(Arc::default()))
    }

    /// Advances a clock made by [`Clock::manual`].
    ///
    /// # Panics
    /// When the clock is the system's.
    pub fn advance(&self, by: Duration) {
        let by = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
        // ORDER: Relaxed; a time orders nothing.
        self.by_hand().0.fetch_add(by, Ordering::Relaxed);
    }

    /// Moves [`Clock::unix_time`] of a clock made by [`Clock::manual`] forward or back by
    /// `seconds`, as setting the system's time does; [`Clock::now`] does not change.
    ///
    /// # Panics
    /// When the clock is the system's.
    pub fn shift_unix_time(&self, seconds: i64) {
        // ORDER: Relaxed; a time orders nothing.
        self.by_hand().1.fetch_add(seconds, Ordering::Relaxed);
    }

    fn by_hand(&self) -> &(AtomicU64, AtomicI64) {
        match &self.0 {
            Source::Manual(time) => time,
            Source::System(_) => panic!("nobody moves the system's clock"),
        }
    }

    /// The time since the clock was made; never goes back.
    pub fn now(&self) -> Duration {
        match &self.0 {
            Source::System(origin) => origin.elapsed(),
            // ORDER: Relaxed; a time orders nothing.
            Source::Manual(time) => Duration::from_nanos(time.0.load(Ordering::Relaxed)),
        }
    }

    /// The time since 1970, for what is compared after the store was opened again. Follows the
    /// system's time where that is set; before 1970 it is 0.
    pub fn unix_time(&self) -> Duration {
        match &self.0 {
            Source::System(_) => SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .unwrap_or_default(),
            Source::Manual(time) => {
                // ORDER: Relaxed; a time orders nothing.
                let set_by = time.1.load(Ordering::Relaxed);
                let off = Duration::from_secs(set_by.unsigned_abs());
                match set_by < 0 {
                    true => self.now().saturating_sub(off),
                    false => self.now().saturating_add(off),
                }
            }
        }
    }

    /// Waits until [`Clock::now`] has come to `deadline` or somebody notifies `condvar`; may also
    /// return for no reason. Lets go of the lock for [`PAUSE_MIN`] at least (I2).
    pub(crate) fn wait_until<T>(
        &self,
        condvar: &Condvar,
        guard: &mut MutexGuard<'_, T>,
        deadline: Duration,
    ) {
        let left = deadline.saturating_sub(self.now());
        let pause = match &self.0 {
            Source::System(_) => left.max(PAUSE_MIN),
            Source::Manual(_) if left.is_zero() => PAUSE_MIN,
            Source::Manual(_) => LOOK_AGAIN,
        };
        condvar.wait_for(guard, pause);
    }
}

impl Default for Clock {
    fn default() -> Clock {
        Clock::system()
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Source::System(_) => f.write_str("Clock::system()"),
            Source::Manual(_) => write!(f, "Clock::manual() at {:?}", self.now()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parking_lot::Mutex;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn a_manual_clock_moves_by_hand_only() {
        let clock = Clock::manual();
        let same = clock.clone();
        assert_eq!(clock.now(), Duration::ZERO);
        same.advance(Duration::from_secs(3600));
        assert_eq!(clock.now(), Duration::from_secs(3600));
        assert_eq!(clock.unix_time(), Duration::from_secs(3600));
        for (set_by, unix_time) in [(-600, 3000), (-9000, 0), (10_000, 4000)] {
            same.shift_unix_time(set_by);
            assert_eq!(clock.now(), Duration::from_secs(3600));
            assert_eq!(clock.unix_time(), Duration::from_secs(unix_time));
        }
    }

    #[test]
    fn the_systems_clock_does_not_go_back() {
        let clock = Clock::system();
        let mut before = clock.now();
        for _ in 0..1000 {
            let now = clock.now();
            assert!(now >= before);
            before = now;
        }
        assert!(clock.unix_time() > Duration::from_secs(1_700_000_000));
    }

    #[test]
    fn a_wait_ends_when_the_clock_has_come_there() {
        let clock = Clock::manual();
        let (lock, condvar) = (Mutex::new(()), Condvar::new());
        let deadline = Duration::from_secs(60);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut guard = lock.lock();
                while clock.now() < deadline {
                    clock.wait_until(&condvar, &mut guard, deadline);
                }
            });
            clock.advance(deadline);
        });
        assert_eq!(clock.now(), deadline);
    }
    /// A wait whose deadline had passed returned with the lock held all the time. Whoever waited in
    /// a loop for something else then kept everybody out who could have brought it about.
    #[test]
    fn a_wait_lets_go_of_the_lock_even_if_its_deadline_has_passed() {
        /// Longer than any machine takes to hand a lock over.
        const PATIENCE: Duration = Duration::from_secs(60);
        for clock in [Clock::system(), Clock::manual()] {
            let shared = Arc::new((Mutex::new(0_u64), Condvar::new(), AtomicBool::new(false)));
            let (own, passed) = (Arc::clone(&shared), clock.now());
            let waiter = std::thread::spawn(move || {
                let (lock, condvar, ends) = &*own;
                let mut waits = lock.lock();
                // ORDER: Relaxed; a flag that orders nothing.
                while !ends.load(Ordering::Relaxed) {
                    *waits += 1;
                    clock.wait_until(condvar, &mut waits, passed);
                }
            });
            let (lock, _, ends) = &*shared;
            let is_let_in = || lock.try_lock_for(PATIENCE).map(|waits| *waits);
            while is_let_in() == Some(0) {
                std::thread::yield_now();
            }
            let found = is_let_in();
            // ORDER: Relaxed, as above.
            ends.store(true, Ordering::Relaxed);
            assert!(found.is_some(), "nobody gets the lock of who waits");
            waiter.join().unwrap();
        }
    }
}
