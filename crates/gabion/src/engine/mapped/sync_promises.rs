//! Syncs for writes that shall survive a loss of power within a time.
//!
//! # Idea
//! A write at [`Durability::Interval`] promises a sync. The first promise since the last sync says
//! when the next one begins: so long before its time is over as the last sync took. A promise that
//! gives more time than one that waits is kept with it, which costs a load of a word. So the level
//! is that of each write, whatever the store's, and a store that nobody writes to at this level is
//! never synced.
//!
//! # Invariants
//! - N1. `shortest` is not longer than the time of any promise whose sync has not begun. A sync
//!   sets it back before it closes the pool's gate. So whoever finds a short enough time there has
//!   changed the pool before the gate closes: else it would have passed the gate later, and found
//!   what the sync had set.
//! - N2. Promises that a sync could not keep for want of space are made again.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::{Mapped, PoolStore};
use crate::Durability;

/// No promise.
const NONE: u64 = u64::MAX;

/// What was promised.
#[derive(Debug)]
pub(super) struct SyncPromises {
    /// The shortest time of those that wait for a sync, in nanoseconds, or [`NONE`].
    shortest: AtomicU64,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// When the next sync begins.
    due: Option<Instant>,
    /// How long the last sync took.
    took: Duration,
    stops: bool,
}

impl Default for SyncPromises {
    fn default() -> SyncPromises {
        SyncPromises {
            shortest: AtomicU64::new(NONE),
            state: Mutex::default(),
            changed: Condvar::new(),
        }
    }
}

// ORDER: Relaxed throughout: the locks of the pool's gate order it (N1).
impl SyncPromises {
    /// Promises that what was written before survives a loss of power within `time`.
    #[inline]
    fn make(&self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(NONE - 1);
        if nanos < self.shortest.load(Ordering::Relaxed) {
            self.make_earlier(time, nanos);
        }
    }

    #[cold]
    fn make_earlier(&self, time: Duration, nanos: u64) {
        let mut state = self.state.lock();
        let due = Instant::now().checked_add(time.saturating_sub(state.took));
        if let Some(due) = due
            && state.due.is_none_or(|known| due < known)
        {
            state.due = Some(due);
            self.changed.notify_one();
        }
        self.shortest.fetch_min(nanos, Ordering::Relaxed);
    }

    /// Waits until a sync is due, and tells the shortest time that was promised; none when it shall
    /// end. What is promised from here on is kept by the next one.
    fn next(&self) -> Option<Duration> {
        let mut state = self.state.lock();
        while !state.stops {
            match state.due {
                None => self.changed.wait(&mut state),
                Some(due) if Instant::now() < due => {
                    self.changed.wait_until(&mut state, due);
                }
                Some(_) => {
                    state.due = None;
                    let nanos = self.shortest.swap(NONE, Ordering::Relaxed);
                    return Some(Duration::from_nanos(nanos));
                }
            }
        }
        None
    }

    /// Lets the thread end.
    pub(super) fn stop(&self) {
        self.state.lock().stops = true;
        self.changed.notify_one();
    }
}

impl<S: PoolStore> Mapped<S> {
    /// Promises what the durability of a write says that has just been done.
    #[inline]
    pub(crate) fn promise(&self, durability: Durability) {
        if let Durability::Interval(time) = durability {
            self.promises.make(time);
        }
    }

    /// Keeps promises as long as the store is open.
    pub(super) fn keep_promises(&self) {
        while let Some(time) = self.promises.next() {
            let began = Instant::now();
            let synced = self.with(|opened| opened.persist().map_err(|error| self.fail(error)));
            self.promises.state.lock().took = began.elapsed();
            let Err(error) = synced else {
                continue;
            };
            tracing::warn!(%error, "a sync failed");
            // What fails else has made the store read-only.
            if error.is_shortage() {
                self.promises.make(time.max(RETRY_AFTER));
            }
        }
    }
}

/// How long it waits at least before it tries again after it found no space.
const RETRY_AFTER: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use std::path::Path;

    use gabion_media::{SimDisk, Tear};

    use super::super::recovery::set_checkpoint_disk;
    use super::*;
    use crate::{Db, Engine, MappedOptions, Options};

    const ENGINES: [Engine; 2] = [Engine::Scmkv, Engine::Sptree];

    fn open(engine: Engine, durability: Durability, dir: &Path, sim: &SimDisk) -> Db {
        let options = Options::default()
            .engine(engine)
            .durability(durability)
            .mapped(
                MappedOptions::default()
                    .pool_bytes(64 << 20)
                    .checkpoints(true)
                    .expected_records(64),
            )
            .background_threads(0);
        set_checkpoint_disk(Some(sim));
        let db = options.open(dir).expect("space");
        set_checkpoint_disk(None);
        db
    }

    /// Waits until a condition holds, which it does soon.
    fn wait_until(holds: impl Fn() -> bool) {
        let began = Instant::now();
        while !holds() {
            assert!(began.elapsed() < Duration::from_secs(120), "it never holds");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// A put at `Interval` in a store that was opened at `Buffered` was never synced.
    #[test]
    fn the_level_of_a_write_holds_whatever_that_of_the_store() {
        for engine in ENGINES {
            for durability in [Durability::Buffered, Durability::Sync] {
                let dir = tempfile::tempdir().expect("a directory");
                let sim = SimDisk::recording();
                let db = open(engine, durability, dir.path(), &sim);
                let keyspace = db.default_keyspace();
                let before = sim.ops();
                keyspace
                    .put_with("buffered", "value", Durability::Buffered)
                    .expect("space");
                assert_eq!(sim.ops(), before, "{engine}: nobody asked for a sync");
                let interval = Durability::Interval(Duration::from_millis(1));
                keyspace
                    .put_with("interval", "value", interval)
                    .expect("space");
                let is_there = || {
                    let after = sim.power_cut(sim.ops(), 1, Tear::DropAll);
                    let copy = tempfile::tempdir().expect("a directory");
                    for name in ["SCMKV", "SPTREE"] {
                        let (from, to) = (dir.path().join(name), copy.path().join(name));
                        if from.exists() {
                            std::fs::copy(from, to).expect("a copy");
                        }
                    }
                    let db = open(engine, durability, copy.path(), &after);
                    db.get("interval").expect("sound").is_some()
                };
                wait_until(is_there);
            }
        }
    }

    /// A promise that gives more time than one that waits changes nothing, and one that gives less
    /// comes first.
    #[test]
    fn the_shortest_time_that_was_promised_counts() {
        let promises = SyncPromises::default();
        let due = |promises: &SyncPromises| promises.state.lock().due.expect("promised");
        promises.make(Duration::from_secs(500));
        let first = due(&promises);
        promises.make(Duration::from_secs(600));
        assert_eq!(due(&promises), first);
        promises.make(Duration::from_secs(400));
        assert!(due(&promises) < first);
        promises.make(Duration::ZERO);
        assert_eq!(promises.next(), Some(Duration::ZERO));
        assert_eq!(promises.state.lock().due, None);
        promises.make(Duration::from_secs(500));
        assert!(due(&promises) >= first);
        promises.make(Duration::MAX);
        promises.stop();
        assert_eq!(promises.next(), None);
    }
}
