//! When the log must be synced, for writes that were promised a sync within a time.
//!
//! # Idea
//! A write at [`Durability::Interval`](crate::Durability::Interval) asks for a sync within its time
//! once it is in the log. The first one that no sync has taken along yet sets the deadline; those
//! after it find that it is set, which costs them a load. A sync takes what was appended before it
//! began, and so the deadline with it.
//!
//! What is promised is the end of a sync and not its beginning. So a sync begins earlier than the
//! deadline, by the time that the last ones took.
//!
//! # What is kept
//! Where a sync takes `d`, no write is older than the larger of its time and of `2 d` when it
//! becomes durable: one that comes just after a sync has begun waits for the end of it and for the
//! whole of the next. A sync that takes longer than those before adds the difference.
//!
//! # Invariants
//! - D1: a write that has asked is durable, or the deadline is at most its time after it asked.
//! - D2: whoever syncs for the deadline takes it away, whether there was anything to sync or the
//!   sync has failed: nobody goes round and round for it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::Clock;

/// Nobody has asked.
const NEVER: u64 = u64::MAX;

/// Of what is known of the time of a sync, a part in so many is forgotten with each shorter one.
const FORGET_ONE_IN: u32 = 8;

/// The deadline of a log.
#[derive(Debug)]
pub(super) struct SyncDeadline {
    clock: Clock,
    /// The shortest time that was asked for since the last sync began, in nanoseconds. Who asks for
    /// no less finds the deadline early enough.
    shortest: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// When what is in the log must be durable.
    due: Option<Duration>,
    /// How long a sync takes, by those of late.
    sync_time: Duration,
}

/// A sync that has begun.
#[must_use]
pub(super) struct SyncInProgress {
    at: Duration,
    shortest: u64,
}

impl SyncDeadline {
    /// No deadline yet.
    pub(super) fn new(clock: &Clock) -> SyncDeadline {
        SyncDeadline {
            clock: clock.clone(),
            shortest: AtomicU64::new(NEVER),
            state: Mutex::default(),
        }
    }

    /// What the caller has appended must be durable within `time`. Whether the deadline has come
    /// nearer by that, and who waits for it must be told.
    #[inline]
    pub(super) fn ask(&self, time: Duration) -> bool {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(NEVER - 1);
        // ORDER: Relaxed. A sync may have begun meanwhile and not seen the append: then its end
        // does (`end`).
        self.shortest.load(Ordering::Relaxed) > nanos && self.bring_forward(time, nanos)
    }

    #[cold]
    fn bring_forward(&self, time: Duration, nanos: u64) -> bool {
        let mut state = self.state.lock();
        let due = self.clock.now().saturating_add(time);
        let is_nearer = state.due.is_none_or(|before| due < before);
        if is_nearer {
            state.due = Some(due);
        }
        // ORDER: Relaxed; changed with the lock held.
        self.shortest.fetch_min(nanos, Ordering::Relaxed);
        is_nearer
    }

    /// When the next sync must begin, if one must.
    pub(super) fn begins_at(&self) -> Option<Duration> {
        let state = self.state.lock();
        state.due.map(|due| due.saturating_sub(state.sync_time))
    }

    /// Whether the next sync must begin now.
    pub(super) fn is_due(&self) -> bool {
        self.begins_at().is_some_and(|at| at <= self.clock.now())
    }

    /// Takes the deadline away, for a sync of what is appended by now.
    pub(super) fn begin(&self) -> SyncInProgress {
        let mut state = self.state.lock();
        state.due = None;
        SyncInProgress {
            at: self.clock.now(),
            // ORDER: Relaxed; changed with the lock held.
            shortest: self.shortest.swap(NEVER, Ordering::Relaxed),
        }
    }

    /// The sync has ended, and something was appended in time for it or not (`has_left`). A writer
    /// that found the old deadline, while its append came too late for the sync, is among the
    /// latter: the sync took longer than a processor keeps a store back. So the deadline is set as
    /// if it had asked when the sync began. It is one for that once, unless others ask.
    pub(super) fn end(&self, begun: &SyncInProgress, has_synced: bool, has_left: bool) {
        let mut state = self.state.lock();
        if has_synced {
            let took = self.clock.now().saturating_sub(begun.at);
            let before = state.sync_time;
            state.sync_time = took.max(before - before / FORGET_ONE_IN);
        }
        if has_left && begun.shortest != NEVER {
            let due = begun
                .at
                .saturating_add(Duration::from_nanos(begun.shortest));
            state.due = Some(state.due.map_or(due, |other| other.min(due)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// A write each millisecond, and syncs that take `sync`: how old the oldest write is when it
    /// becomes durable, and how many syncs there were.
    fn oldest_at_sync(time: Duration, sync: Duration, writes: u32) -> (Duration, u32) {
        let clock = Clock::manual();
        let deadline = SyncDeadline::new(&clock);
        let first = deadline.begin();
        clock.advance(sync);
        deadline.end(&first, true, false);
        // When the oldest write came that no sync has taken along, and the sync that is under way.
        let mut waiting: Option<Duration> = None;
        let mut under_way: Option<(SyncInProgress, Option<Duration>)> = None;
        let (mut oldest, mut syncs) = (Duration::ZERO, 0);
        for _ in 0..writes {
            let now = clock.now();
            if let Some((begun, taken)) = under_way.take_if(|(begun, _)| begun.at + sync <= now) {
                deadline.end(&begun, true, waiting.is_some());
                oldest = oldest.max(now - taken.unwrap_or(now));
            }
            if under_way.is_none() && deadline.is_due() {
                under_way = Some((deadline.begin(), waiting.take()));
                syncs += 1;
            }
            waiting.get_or_insert(now);
            deadline.ask(time);
            clock.advance(MS);
        }
        (oldest, syncs)
    }

    /// A sync began when its interval had passed since the one before had ended, and a write that
    /// came while that one was under way waited for its end, the interval and the next sync: 700 ms
    /// for an interval of 100 ms and syncs of 300 ms.
    #[test]
    fn a_write_waits_for_its_time_or_for_two_syncs_and_no_longer() {
        let time = 100 * MS;
        for sync in [0, 1, 10, 49, 50, 60, 100, 300].map(|ms| ms * MS) {
            let (oldest, syncs) = oldest_at_sync(time, sync, 20_000);
            let kept = time.max(2 * sync);
            // Here time goes by in steps.
            assert!(oldest <= kept + MS, "{sync:?}: {oldest:?}");
            let period = (time - sync.min(time)).max(sync).max(MS);
            let most = 20_000 * MS.as_nanos() / period.as_nanos();
            assert!(u128::from(syncs) <= most + 2, "{sync:?}: {syncs} syncs");
            assert!(u128::from(syncs) >= most / 2, "{sync:?}: {syncs} syncs");
        }
    }

    #[test]
    fn once_it_is_known_what_a_sync_takes_the_time_is_kept() {
        let clock = Clock::manual();
        let deadline = SyncDeadline::new(&clock);
        let sync = |takes: Duration| {
            let begun = deadline.begin();
            clock.advance(takes);
            deadline.end(&begun, true, false);
        };
        sync(40 * MS);
        assert_eq!(deadline.begins_at(), None);
        assert!(deadline.ask(100 * MS));
        assert_eq!(deadline.begins_at(), Some(clock.now() + 60 * MS));
        // Shorter ones make it forget, little by little.
        (0..50).for_each(|_| sync(10 * MS));
        assert!(deadline.ask(100 * MS));
        assert_eq!(deadline.begins_at(), Some(clock.now() + 90 * MS));
    }

    #[test]
    fn the_nearest_deadline_counts() {
        let clock = Clock::manual();
        let deadline = SyncDeadline::new(&clock);
        assert!(deadline.ask(Duration::MAX));
        assert!(deadline.ask(100 * MS));
        clock.advance(30 * MS);
        assert!(!deadline.ask(100 * MS) && !deadline.ask(200 * MS));
        assert!(!deadline.ask(70 * MS));
        assert_eq!(deadline.begins_at(), Some(100 * MS));
        assert!(deadline.ask(20 * MS));
        assert_eq!(deadline.begins_at(), Some(50 * MS));
        assert!(deadline.ask(Duration::ZERO) && deadline.is_due());
        let begun = deadline.begin();
        assert!(!deadline.is_due());
        deadline.end(&begun, true, false);
        assert_eq!(deadline.begins_at(), None);
    }

    /// A writer that sees the deadline of a sync which does not see its append.
    #[test]
    fn what_comes_as_a_sync_begins_is_not_forgotten() {
        let clock = Clock::manual();
        let deadline = SyncDeadline::new(&clock);
        deadline.ask(100 * MS);
        clock.advance(100 * MS);
        let begun = deadline.begin();
        clock.advance(10 * MS);
        deadline.end(&begun, true, true);
        assert_eq!(deadline.begins_at(), Some(190 * MS));
        // Nobody has asked since: that was the last one.
        clock.advance(100 * MS);
        let begun = deadline.begin();
        deadline.end(&begun, true, true);
        assert_eq!(deadline.begins_at(), None);
    }
}
