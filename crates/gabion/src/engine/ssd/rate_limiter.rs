//! The rate limiter of the background: one limit on the bytes that it writes per second.
//!
//! # Idea
//! A bucket of tokens, one per byte (as in SILK, ATC 2019). It fills with time, up to a tenth of a
//! second's worth. Every [`STEP_BYTES`] a job asks for the bytes that it has written since it last
//! asked. It may continue while the bucket is not empty, and may overdraw it by that one step, so
//! that steps of any size keep the rate. A waiting job holds no lock and is between two blocks of
//! its output.
//!
//! # Who comes first
//! Flushes, which writers wait for, and FlexDB's merges, which are its flushes, with the
//! collections that the same thread does between them; then compactions of levels that are full;
//! then everything else, what is done at leisure last. No job continues while a more urgent one
//! waits; that one wakes the others when it no longer waits.
//!
//! Writers that bring as much as the limit allows keep flushes waiting for good, and everybody else
//! behind them. So patience has an end: whoever has waited for [`PATIENCE_STEPS`] times as long as
//! its bytes take at the rate, and for the longest debt, goes on in front of everybody, at the
//! expense of those who come later. Each of the less urgent gets a tenth of the rate by that.
//!
//! # What counts
//! Bytes of tables that flushes, compactions and splits write, and what is logged again; bytes that
//! FlexDB's merges and collections write. What a merge reads is not counted: it is about what it
//! writes. The log itself is the writers' own.
//!
//! # When the limit gives way
//! While writers are pressed (half way between their first delay and a stop), flushes do not wait.
//! Nor do compactions while writers are pressed by what compactions remove, runs of level 0 and
//! garbage: one that waits keeps the thread that could merge them. Nor does anybody where one
//! thread does everything. The bucket goes below nothing for it, by at most [`DEBT_SECONDS`] of the
//! rate, and all others wait until that is made up for. So a limit below what writers bring delays
//! merges, not them. Without background threads there is no limit.
//!
//! # Invariants
//! - P1: over any time, what was let on without overdrawing is at most the rate times that time, a
//!   tenth of a second's worth, and a step.
//! - P2: a wait ends when the store is closed or fails.
//! - P3: a wait ends when its patience does, whoever else waits.
//! - P4: whoever waits does so without the lock, and is counted among those who wait only as long
//!   as it does.

use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::{Clock, Error, Options, Result};

/// After so many bytes a job asks again: some milliseconds of a slow drive's time.
pub(crate) const STEP_BYTES: u64 = 64 << 10;
/// What overdraws the tokens by more than so many seconds of the rate is forgotten.
const DEBT_SECONDS: i128 = 1;
/// The bucket holds the part `1 / BURST_PARTS` of a second's tokens.
const BURST_PARTS: i128 = 10;
/// Parts of a byte that tokens are counted in: with them a nanosecond is worth the rate.
const NANOS: i128 = 1_000_000_000;
/// Whoever waits has patience for so many times what its bytes take at the rate.
const PATIENCE_STEPS: i128 = 10;
/// How long who waits sleeps at most before it looks whether writers are pressed.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// What holds writers back hard.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StallCauses {
    /// MemTables wait for their flush.
    pub(crate) by_memory: bool,
    /// A level 0, or garbage, waits for its compaction.
    pub(crate) by_merges: bool,
}

/// How urgent a job is, the most urgent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IoPriority {
    /// Writers wait for its memory.
    Flush,
    /// It makes room in a level that is full.
    Urgent,
    /// It can wait.
    Usual,
    /// Nobody waits for it.
    Leisure,
}

impl IoPriority {
    const COUNT: usize = 4;
}

/// The limit, shared by all background threads.
pub(crate) struct RateLimiter {
    /// Bytes per second; 0 for no limit.
    rate: u64,
    one_thread: bool,
    clock: Clock,
    tokens: Mutex<Tokens>,
    changed: Condvar,
}

/// The bucket of tokens, and who waits for them.
#[derive(Debug)]
struct Tokens {
    rate: i128,
    /// Billionths of a byte; below 0 for a debt.
    balance: i128,
    /// When the balance was right.
    at: Duration,
    waiting: [usize; IoPriority::COUNT],
    stopped: bool,
    /// How long jobs have waited, together.
    waited: Duration,
}

impl Tokens {
    fn new(rate: u64, now: Duration) -> Tokens {
        let rate = i128::from(rate);
        Tokens {
            rate,
            balance: rate * NANOS / BURST_PARTS,
            at: now,
            waiting: [0; IoPriority::COUNT],
            stopped: false,
            waited: Duration::ZERO,
        }
    }

    /// Takes `bytes` if the class may go on at this time.
    fn try_take(&mut self, class: IoPriority, bytes: u64, now: Duration, overdraws: bool) -> bool {
        self.refill(now);
        if self.balance > 0 && self.is_first(class) {
            self.spend(bytes);
            return true;
        }
        if overdraws {
            let lowest = self.balance.min(-self.rate * NANOS * DEBT_SECONDS);
            self.spend(bytes);
            self.balance = self.balance.max(lowest);
        }
        overdraws
    }

    fn spend(&mut self, bytes: u64) {
        self.balance = self.balance.saturating_sub(i128::from(bytes) * NANOS);
    }

    /// Whether nobody more urgent waits.
    fn is_first(&self, class: IoPriority) -> bool {
        self.waiting[..class as usize]
            .iter()
            .all(|count| *count == 0)
    }

    fn refill(&mut self, now: Duration) {
        let passed = now.saturating_sub(self.at).as_nanos();
        let passed = i128::try_from(passed).unwrap_or(i128::MAX);
        let added = self.rate.saturating_mul(passed);
        let full = self.rate * NANOS / BURST_PARTS;
        self.balance = self.balance.saturating_add(added).min(full);
        self.at = self.at.max(now);
    }

    /// When the balance will be above nothing, if nobody takes anything.
    fn ready_at(&self) -> Duration {
        let missing = 1 - self.balance.min(1);
        self.at.saturating_add(self.time_of(missing))
    }

    /// How long somebody who waits for `bytes` has patience.
    fn patience(&self, bytes: u64) -> Duration {
        let bytes = i128::from(bytes) * NANOS * PATIENCE_STEPS;
        self.time_of(bytes.saturating_add(self.rate * NANOS * DEBT_SECONDS))
    }

    /// The time in which so many billionths of a byte come, rounded up.
    fn time_of(&self, tokens: i128) -> Duration {
        let rate = self.rate.max(1);
        let nanos = tokens.saturating_add(rate - 1) / rate;
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// When somebody who waits looks again, unless it is told to before. What it waits for comes
    /// with time only if nobody more urgent waits.
    fn look_again_at(&self, class: IoPriority, now: Duration) -> Duration {
        let latest = now.saturating_add(LOOK_AGAIN);
        match self.is_first(class) {
            true => latest.min(self.ready_at()),
            false => latest,
        }
    }
}

impl RateLimiter {
    /// The limit of these options.
    pub(crate) fn new(options: &Options) -> RateLimiter {
        let threads = options.background_threads;
        let rate = match threads {
            0 => 0,
            _ => options.tuning.background_bytes_per_second_max,
        };
        let clock = options.tuning.clock.clone();
        RateLimiter {
            rate,
            one_thread: threads == 1,
            tokens: Mutex::new(Tokens::new(rate, clock.now())),
            clock,
            changed: Condvar::new(),
        }
    }

    /// Waits until a job that has written `bytes` may go on. `pressed` tells what presses writers.
    ///
    /// # Errors
    /// [`Error::Closed`] when the store is closed or has failed.
    pub(crate) fn take(
        &self,
        class: IoPriority,
        bytes: u64,
        pressed: impl Fn() -> StallCauses,
    ) -> Result<()> {
        if self.rate == 0 {
            return Ok(());
        }
        let overdraws = || {
            let StallCauses {
                by_memory,
                by_merges,
            } = pressed();
            by_merges || (by_memory && (class == IoPriority::Flush || self.one_thread))
        };
        let mut tokens = self.tokens.lock();
        let began = self.clock.now();
        if !tokens.stopped && tokens.try_take(class, bytes, began, overdraws()) {
            return Ok(());
        }
        let patient_until = began.saturating_add(tokens.patience(bytes));
        tokens.waiting[class as usize] += 1;
        let result = loop {
            if tokens.stopped {
                break Err(Error::Closed);
            }
            let now = self.clock.now();
            if tokens.try_take(class, bytes, now, now >= patient_until || overdraws()) {
                break Ok(());
            }
            let deadline = tokens.look_again_at(class, now).min(patient_until);
            self.clock.wait_until(&self.changed, &mut tokens, deadline);
        };
        tokens.waiting[class as usize] -= 1;
        tokens.waited += self.clock.now().saturating_sub(began);
        drop(tokens);
        self.changed.notify_all();
        result
    }

    /// Counts `bytes` that were written without asking.
    pub(crate) fn spend(&self, bytes: u64) {
        if self.rate > 0 {
            let mut tokens = self.tokens.lock();
            tokens.refill(self.clock.now());
            tokens.spend(bytes);
        }
    }

    /// Ends all waits, those to come included.
    pub(crate) fn stop(&self) {
        self.tokens.lock().stopped = true;
        self.changed.notify_all();
    }

    /// How long jobs have waited, together.
    pub(crate) fn waited(&self) -> Duration {
        self.tokens.lock().waited
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Tuning;

    const SECOND: Duration = Duration::from_secs(1);
    const NOT: StallCauses = StallCauses {
        by_memory: false,
        by_merges: false,
    };
    const MEMORY: StallCauses = StallCauses {
        by_memory: true,
        by_merges: false,
    };
    const MERGES: StallCauses = StallCauses {
        by_memory: false,
        by_merges: true,
    };

    fn paced(rate: u64, threads: usize) -> (Clock, RateLimiter) {
        let clock = Clock::manual();
        let options = Options::default()
            .tuning(
                Tuning::default()
                    .clock(clock.clone())
                    .background_bytes_per_second_max(rate),
            )
            .background_threads(threads);
        (clock, RateLimiter::new(&options))
    }

    /// Takes steps of `bytes` until the tokens refuse; how many were let on.
    fn drain(tokens: &mut Tokens, bytes: u64, now: Duration) -> u64 {
        let mut count = 0;
        while tokens.try_take(IoPriority::Usual, bytes, now, false) {
            count += 1;
        }
        count
    }

    #[test]
    fn what_is_let_on_is_the_rate_whatever_the_size_of_a_step() {
        for step in [1, 7, 1000, 5000] {
            let mut tokens = Tokens::new(1000, SECOND);
            let mut bytes = step * drain(&mut tokens, step, SECOND);
            assert!((100..100 + step).contains(&bytes), "{step}: {bytes}");
            for tick in 1..=60_000 {
                let now = SECOND + Duration::from_millis(tick);
                bytes += step * drain(&mut tokens, step, now);
            }
            assert!((60_100..60_100 + step).contains(&bytes), "{step}: {bytes}");
        }
    }

    #[test]
    fn the_bucket_holds_a_tenth_of_a_second() {
        let mut tokens = Tokens::new(1000, SECOND);
        assert_eq!(drain(&mut tokens, 1, SECOND * 3600), 100);
        // An older time changes nothing.
        assert_eq!(drain(&mut tokens, 1, SECOND), 0);
        assert_eq!(drain(&mut tokens, 1, SECOND * 3600), 0);
    }

    #[test]
    fn the_time_that_is_told_is_the_time_at_which_there_is_something() {
        for (rate, step) in [
            (3, 100),
            (1000, 1),
            (999_999_937, 65_536),
            (7_000_000_000, 1 << 30),
        ] {
            let mut tokens = Tokens::new(rate, SECOND);
            for _ in 0..100 {
                let now = tokens.at;
                drain(&mut tokens, step, now);
                let ready = tokens.ready_at();
                let before = ready - Duration::from_nanos(1);
                assert!(!tokens.try_take(IoPriority::Usual, step, before, false));
                assert!(tokens.try_take(IoPriority::Usual, step, ready, false));
            }
        }
    }

    #[test]
    fn nobody_passes_somebody_more_urgent() {
        let classes = [
            IoPriority::Flush,
            IoPriority::Urgent,
            IoPriority::Usual,
            IoPriority::Leisure,
        ];
        for (position, waiting) in classes.into_iter().enumerate() {
            let mut tokens = Tokens::new(1000, SECOND);
            tokens.waiting[waiting as usize] += 1;
            for (other, class) in classes.into_iter().enumerate() {
                assert_eq!(tokens.try_take(class, 1, SECOND, false), other <= position);
            }
        }
    }

    #[test]
    fn a_debt_is_made_up_for_and_never_more_than_a_second() {
        let mut tokens = Tokens::new(1000, SECOND);
        assert!(tokens.try_take(IoPriority::Flush, 600, SECOND, true));
        assert!(!tokens.try_take(IoPriority::Flush, 1, SECOND, false));
        assert_eq!(
            tokens.ready_at() - SECOND,
            Duration::from_nanos(500_000_001)
        );
        assert!(tokens.try_take(IoPriority::Urgent, 1 << 40, SECOND, true));
        assert_eq!(tokens.ready_at() - SECOND, SECOND + Duration::from_nanos(1));
    }

    /// No rate, amount or time is too large to reckon with.
    #[test]
    fn the_largest_figures_do_not_overflow() {
        for rate in [1, 1 << 20, u64::MAX] {
            let mut tokens = Tokens::new(rate, SECOND);
            let most = Duration::from_nanos(u64::MAX);
            for now in [SECOND, most, Duration::MAX] {
                for bytes in [0, 1, u64::MAX, u64::MAX] {
                    for overdraws in [false, true] {
                        tokens.try_take(IoPriority::Leisure, bytes, now, overdraws);
                    }
                    assert!(tokens.ready_at() >= tokens.at);
                    assert!(tokens.patience(bytes) >= SECOND);
                    assert!(tokens.look_again_at(IoPriority::Flush, now) >= tokens.at.min(now));
                }
            }
        }
    }

    #[test]
    fn who_can_help_pressed_writers_overdraws() {
        let (_, pace) = paced(1000, 2);
        pace.spend(5000);
        pace.take(IoPriority::Flush, 1 << 30, || MEMORY).unwrap();
        for class in [IoPriority::Flush, IoPriority::Urgent, IoPriority::Usual] {
            pace.take(class, 1 << 30, || MERGES).unwrap();
        }
        let (_, alone) = paced(1000, 1);
        for class in [IoPriority::Usual, IoPriority::Flush, IoPriority::Usual] {
            alone.take(class, 1 << 30, || MEMORY).unwrap();
        }
        assert_eq!(pace.waited(), Duration::ZERO);
    }

    /// A merge of a store with a thread for flushes waits, however pressed writers are.
    #[test]
    fn a_usual_job_waits_for_its_tokens() {
        let (clock, pace) = paced(1000, 2);
        pace.spend(600);
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| pace.take(IoPriority::Usual, 1, || MEMORY));
            while pace.tokens.lock().waiting[IoPriority::Usual as usize] == 0 {
                std::thread::yield_now();
            }
            clock.advance(SECOND);
            waiter.join().unwrap().unwrap();
        });
        assert_eq!(pace.waited(), SECOND);
    }

    #[test]
    fn without_a_limit_or_threads_nobody_waits() {
        for (rate, threads) in [(0, 2), (1000, 0)] {
            let (_, pace) = paced(rate, threads);
            for _ in 0..3 {
                pace.take(IoPriority::Usual, 1 << 40, || NOT).unwrap();
                pace.spend(1 << 40);
            }
        }
    }

    /// A compaction that waited behind a flush found tokens there, and so a deadline that had
    /// passed: it went round and round with the lock held. The flush could not take its tokens, and
    /// nothing of the store that asks for the limit ever came back, `stats` and `close` among it.
    #[test]
    fn who_waits_behind_somebody_more_urgent_keeps_nobody_out() {
        /// Longer than any machine takes to hand a lock over.
        const A_HANG: Duration = Duration::from_secs(20);
        let options =
            Options::default().tuning(Tuning::default().background_bytes_per_second_max(1 << 30));
        let pace = std::sync::Arc::new(RateLimiter::new(&options));
        let own = std::sync::Arc::clone(&pace);
        // As of a flush that waits.
        pace.tokens.lock().waiting[IoPriority::Flush as usize] += 1;
        let waiter = std::thread::spawn(move || own.take(IoPriority::Usual, 1 << 30, || NOT));
        let tokens = || pace.tokens.try_lock_for(A_HANG);
        while tokens().is_some_and(|tokens| tokens.waiting[IoPriority::Usual as usize] == 0) {
            std::thread::yield_now();
        }
        let mut tokens = tokens().expect("who waits does so without the lock");
        tokens.waiting[IoPriority::Flush as usize] -= 1;
        drop(tokens);
        pace.changed.notify_all();
        waiter.join().unwrap().unwrap();
    }

    /// Where flushes always waited, nothing else ever went on: a compaction of the caller's under
    /// steady writes did not end.
    #[test]
    fn patience_has_an_end() {
        let (clock, pace) = paced(1000, 2);
        pace.spend(5000);
        pace.tokens.lock().waiting[IoPriority::Flush as usize] += 1;
        for class in [IoPriority::Urgent, IoPriority::Usual, IoPriority::Leisure] {
            let patience = pace.tokens.lock().patience(100);
            assert_eq!(patience, 2 * SECOND);
            std::thread::scope(|scope| {
                let waiter = scope.spawn(|| pace.take(class, 100, || NOT));
                while pace.tokens.lock().waiting[class as usize] == 0 {
                    std::thread::yield_now();
                }
                clock.advance(patience);
                waiter.join().unwrap().unwrap();
            });
        }
        assert_eq!(pace.waited(), 6 * SECOND);
    }

    /// The clock stands still, so only what is said to the waiter can end its wait.
    #[test]
    fn the_end_of_the_store_ends_a_wait_and_every_later_one() {
        let (_, pace) = paced(1000, 2);
        pace.spend(5000);
        std::thread::scope(|scope| {
            let waiters = [IoPriority::Flush, IoPriority::Urgent, IoPriority::Usual].map(|class| {
                let pace = &pace;
                scope.spawn(move || pace.take(class, 1, || NOT))
            });
            pace.stop();
            for waiter in waiters {
                assert!(matches!(waiter.join().unwrap(), Err(Error::Closed)));
            }
        });
        let later = pace.take(IoPriority::Flush, 1, || MERGES);
        assert!(matches!(later, Err(Error::Closed)));
        assert_eq!(pace.tokens.lock().waiting, [0; IoPriority::COUNT]);
    }
}
