//! The pace of the background: one limit on what merges and collections write per second.
//!
//! # Idea
//! What was written is paid for in time: who wrote it waits until a store that writes at the limit
//! would have written it, too (a leaky bucket). A merge pays after each [`STEP_BYTES`], a
//! collection after each round; both then hold no lock that readers or writers need.
//!
//! # When the limit gives way
//! Merges do not wait while writers are about to be slowed down; what they write then must be paid
//! for by what comes later, up to [`DEBT`]. So a limit below what writers bring delays collections,
//! not writers. Without background threads, and once the store is being closed, there is no limit.

use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::{Clock, Options};

/// After so many bytes a merge asks again: some milliseconds of a slow drive's time.
pub(super) const STEP_BYTES: u64 = 64 << 10;
/// Time in which nothing was written is worth so much later.
const BURST: Duration = Duration::from_millis(100);
/// What was written without waiting is forgotten beyond so much time.
const DEBT: Duration = Duration::from_secs(1);
/// How long who waits sleeps at most before it looks whether writers are pressed.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// The limit, shared by all who write in the background.
pub(super) struct Pace {
    /// Bytes per second; 0 for no limit.
    rate: u64,
    clock: Clock,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// When all that was written is paid for.
    paid_at: Duration,
    stopped: bool,
    waited: Duration,
}

impl State {
    /// Counts `bytes` that were written by now, at a rate; returns when they will be paid for.
    fn charge(&mut self, bytes: u64, rate: u64, now: Duration) -> Duration {
        let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(rate);
        let price = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        let from = self.paid_at.max(now.saturating_sub(BURST));
        self.paid_at = from.saturating_add(price);
        self.paid_at
    }
}

impl Pace {
    pub(super) fn new(options: &Options) -> Pace {
        Pace {
            rate: match options.background_threads {
                0 => 0,
                _ => options.background_bytes_per_second_max,
            },
            clock: options.clock.clone(),
            state: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// Waits until `bytes` that were written are paid for, unless writers are pressed.
    pub(super) fn pay(&self, bytes: u64, pressed: impl Fn() -> bool) {
        if self.rate == 0 || bytes == 0 {
            return;
        }
        let began = self.clock.now();
        let mut state = self.state.lock();
        let until = state.charge(bytes, self.rate, began);
        loop {
            let now = self.clock.now();
            if state.stopped || now >= until {
                break;
            }
            if pressed() {
                state.paid_at = state.paid_at.min(now + DEBT);
                break;
            }
            let deadline = until.min(now + LOOK_AGAIN);
            self.clock.wait_until(&self.changed, &mut state, deadline);
        }
        state.waited += self.clock.now().saturating_sub(began);
    }

    /// Ends all waits, those to come included.
    pub(super) fn stop(&self) {
        self.state.lock().stopped = true;
        self.changed.notify_all();
    }

    /// How long the background has waited, together.
    pub(super) fn waited(&self) -> Duration {
        self.state.lock().waited
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn paced(rate: u64) -> (Clock, Pace) {
        let clock = Clock::manual();
        let options = Options::default()
            .clock(clock.clone())
            .background_bytes_per_second_max(rate);
        (clock, Pace::new(&options))
    }

    #[test]
    fn what_is_written_in_a_time_is_the_rate_and_a_burst() {
        for step in [1, 7, 1_000, 5_000] {
            let mut state = State::default();
            let began = SECOND * 60;
            let (mut now, mut written) = (began, 0);
            while now < began + SECOND * 10 {
                // Whoever has written waits until then.
                now = now.max(state.charge(step, 1_000, now));
                written += step;
                let taken = u64::try_from((now - began).as_millis()).unwrap();
                assert!(written <= taken + 101, "{written} in {taken}");
                assert!(written + 1 >= taken, "{written} in {taken}");
            }
        }
    }

    #[test]
    fn who_is_pressed_does_not_wait_and_a_debt_is_forgotten() {
        let (clock, pace) = paced(1_000);
        clock.advance(SECOND * 60);
        for _ in 0..100 {
            pace.pay(1_000_000, || true);
        }
        assert_eq!(pace.waited(), Duration::ZERO);
        clock.advance(SECOND + Duration::from_millis(1));
        pace.pay(1, || false);
        assert_eq!(pace.waited(), Duration::ZERO);
    }

    #[test]
    fn a_stop_ends_all_waits() {
        let (_clock, pace) = paced(1);
        std::thread::scope(|scope| {
            let waits = [1, 2].map(|_| scope.spawn(|| pace.pay(1_000, || false)));
            pace.stop();
            waits.into_iter().for_each(|wait| wait.join().unwrap());
        });
        pace.pay(u64::MAX, || false);
    }
}
