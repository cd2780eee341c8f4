//! Watches the threads of a phase: records their progress, ends them when their time is up, and
//! divides the phase into turns.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use super::gate::Gate;
use super::progress::{Counter, Timeline};
use super::turns::Turns;
use crate::Error;

/// What watches a phase, with time counted as the phase's own: without others' turns.
pub(super) struct Watch<'w> {
    pub(super) begin: Instant,
    /// Time after which the phase ends.
    pub(super) limit: Option<Duration>,
    /// How long a turn is, if the phase is cut.
    pub(super) turn: Option<Duration>,
    pub(super) gate: &'w Gate,
    /// Each thread that ends says whether it did its work.
    pub(super) ends: &'w mpsc::Receiver<bool>,
    /// One for each thread.
    pub(super) counters: &'w [Counter],
    /// Called with the number of operations done whenever somebody looks at it.
    pub(super) each_look: &'w dyn Fn(u64) -> Result<(), Error>,
}

/// What was seen.
pub(super) struct Watched {
    pub(super) timeline: Timeline,
    /// The time was up.
    pub(super) is_capped: bool,
    /// Time that belonged to others.
    pub(super) paused: Duration,
    /// Turns that the phase took.
    pub(super) turns: u64,
}

impl Watch<'_> {
    /// Returns when all threads have ended; lets them end when one has failed or the time is up.
    pub(super) fn run(&self, turns: &mut dyn Turns) -> Result<Watched, Error> {
        let mut seen = Watched {
            timeline: Timeline::new(),
            is_capped: false,
            paused: Duration::ZERO,
            turns: 1,
        };
        let mut running = self.counters.len();
        let mut turn_end = self.turn;
        while running > 0 {
            let limit = self.limit.filter(|_| !seen.is_capped);
            let due = [Some(seen.timeline.next_due()), limit, turn_end];
            let due = due.into_iter().flatten().min().unwrap_or_default();
            let wait = due.saturating_sub(self.own_time(&seen));
            if let Ok(is_done) = self.ends.recv_timeout(wait) {
                running -= self.ended(is_done);
                continue;
            }
            let now = self.own_time(&seen);
            if now >= seen.timeline.next_due() {
                let done = seen.timeline.look(now, self.counters);
                (self.each_look)(done)?;
            }
            if limit.is_some_and(|limit| now >= limit) {
                seen.is_capped = true;
                self.gate.end();
            }
            if turn_end.is_some_and(|end| now >= end) {
                self.gate.close();
                running -= self
                    .ends
                    .try_iter()
                    .map(|is_done| self.ended(is_done))
                    .sum::<usize>();
                if running > 0 && !self.gate.is_ended() {
                    let given = Instant::now();
                    turns.give()?;
                    turns.take()?;
                    seen.paused += given.elapsed();
                    seen.turns += 1;
                }
                self.gate.open();
                let turn = self.turn.filter(|_| !self.gate.is_ended());
                turn_end = turn.map(|turn| self.own_time(&seen) + turn);
            }
        }
        Ok(seen)
    }

    fn own_time(&self, seen: &Watched) -> Duration {
        self.begin.elapsed().saturating_sub(seen.paused)
    }

    /// One thread has ended; one that failed ends the others.
    fn ended(&self, is_done: bool) -> usize {
        if !is_done {
            self.gate.end();
        }
        1
    }
}
