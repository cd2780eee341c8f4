//! Locks of indexes: always in DRAM, never on the medium.
//!
//! A lock word on a medium costs writes of the medium for every acquisition and is found held after
//! a crash by a thread that is gone. So whatever an index locks has its word in ordinary memory and
//! is free when a pool is opened.

use std::time::Duration;

/// Waiting that gives way: spins first, then yields the processor, then sleeps.
#[derive(Debug, Default)]
pub struct Backoff {
    rounds: u32,
}

impl Backoff {
    /// Rounds that spin, doubling up to 64 pauses: about the time of a short critical section.
    const SPIN_ROUNDS: u32 = 7;
    /// Rounds that yield before sleeping: the holder may have lost its processor.
    const YIELD_ROUNDS: u32 = 64;

    /// Waits a little, longer from call to call.
    #[cold]
    pub fn wait(&mut self) {
        if self.rounds < Self::SPIN_ROUNDS {
            for _ in 0..1 << self.rounds {
                std::hint::spin_loop();
            }
        } else if self.rounds < Self::SPIN_ROUNDS + Self::YIELD_ROUNDS {
            std::thread::yield_now();
        } else {
            std::thread::sleep(Duration::from_micros(50));
        }
        self.rounds = self.rounds.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_never_overflows() {
        let last_spin = Backoff::SPIN_ROUNDS - 1;
        for rounds in [last_spin, last_spin + Backoff::YIELD_ROUNDS, u32::MAX] {
            let mut backoff = Backoff { rounds };
            backoff.wait();
            assert_eq!(backoff.rounds, rounds.saturating_add(1));
        }
    }
}
