//! Where an engine's background threads and those who wait for them synchronize.
//!
//! # Idea
//! No queue of jobs is kept: what is due follows from the state of the store, so it is looked for
//! whenever a thread is free, and a thread that finds nothing sleeps until somebody says that there
//! may be something, or for a while. Two more threads tend the log: one prepares its segments, one
//! syncs it for the writes that were promised that ([`Durability::Interval`]), and sleeps until
//! there is one.
//!
//! [`Durability::Interval`]: crate::Durability::Interval

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::{Clock, Error, Result};

/// How long the background waits at first before it tries again after it found no space.
const RETRY_AFTER: Duration = Duration::from_millis(200);

/// How often that wait is doubled, as each try may write what it then removes: up to 3.2 s.
const RETRY_DOUBLINGS: u32 = 4;

/// How long a thread sleeps at most when nothing wakes it.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// What a panic said.
pub(super) fn message_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("without a message")
}

/// Where background threads and those who wait for them meet.
#[derive(Default)]
pub(crate) struct BackgroundScheduler {
    state: Mutex<State>,
    /// There may be something to do.
    work: Condvar,
    /// A job has ended or nothing was found to do.
    rest: Condvar,
    /// The log needs attention.
    log: Condvar,
    /// The log must be synced earlier than was known.
    sync: Condvar,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

#[derive(Default)]
struct State {
    /// Counts calls of `wake`, so that a thread does not sleep over one.
    wakes: u64,
    log_wakes: u64,
    running: usize,
    /// Counts the steps that were begun.
    steps: u64,
    stop: bool,
    /// The background was short of space or descriptors, and will try again.
    shortage: Option<Error>,
    /// How often in a row.
    shortages: u32,
}

impl State {
    fn begin_step(&mut self) {
        self.running += 1;
        self.steps += 1;
    }

    fn retry_after(&self) -> Duration {
        let doublings = self.shortages.saturating_sub(1).min(RETRY_DOUBLINGS);
        RETRY_AFTER * (1 << doublings)
    }
}

impl BackgroundScheduler {
    /// There may be something to do, or somebody who waits should look again.
    pub(crate) fn wake(&self) {
        self.state.lock().wakes += 1;
        self.work.notify_all();
        self.rest.notify_all();
    }

    /// How often somebody was told that there may be something to do.
    #[cfg(test)]
    pub(crate) fn wakes(&self) -> u64 {
        self.state.lock().wakes
    }

    /// The log needs attention.
    pub(crate) fn wake_log(&self) {
        self.state.lock().log_wakes += 1;
        self.log.notify_all();
    }

    /// The log must be synced earlier than was known.
    pub(crate) fn wake_sync(&self) {
        // Whoever looked before that, with the lock held, sleeps by now.
        drop(self.state.lock());
        self.sync.notify_all();
    }

    /// Starts a thread of an engine, which ends when one of the loops below does. If it panics,
    /// `fail` is told why: else everybody would wait for ever for what it does.
    pub(crate) fn spawn<E: Send + Sync + 'static>(
        &self,
        name: &str,
        engine: &Arc<E>,
        body: impl FnOnce(&E) + Send + 'static,
        fail: impl FnOnce(&E, Error) + Send + 'static,
    ) -> Result<()> {
        let error = |name: &str, what| Error::Thread {
            name: name.to_owned(),
            what,
        };
        let (engine, own_name) = (Arc::clone(engine), name.to_owned());
        let guarded = move || {
            let ended = catch_unwind(AssertUnwindSafe(|| body(&engine)));
            if let Err(panic) = ended {
                let what = format!("has panicked: {}", message_of(&*panic));
                fail(&engine, error(&own_name, what));
            }
        };
        let thread = std::thread::Builder::new().name(name.to_owned());
        let thread = thread.spawn(guarded).map_err(|refused| {
            let remedy = "raise the process's limits of threads and memory";
            error(name, format!("could not be started: {refused}; {remedy}"))
        })?;
        self.threads.lock().push(thread);
        Ok(())
    }

    /// Ends the threads and waits for what they do.
    pub(crate) fn stop(&self) {
        self.state.lock().stop = true;
        self.work.notify_all();
        self.log.notify_all();
        self.sync.notify_all();
        let threads = std::mem::take(&mut *self.threads.lock());
        for thread in threads {
            if thread.join().is_err() {
                tracing::error!("a background thread panicked");
            }
        }
    }

    /// What a thread does all its life: calls `step`, which does one thing that is due and says
    /// whether there was one.
    pub(crate) fn work(&self, step: impl Fn() -> bool) {
        loop {
            let wakes = {
                let mut state = self.state.lock();
                if state.stop {
                    return;
                }
                state.begin_step();
                state.wakes
            };
            let done = step();
            let mut state = self.end_step();
            let pause = match (done, state.shortage.is_some()) {
                (true, _) => continue,
                (false, true) => state.retry_after(),
                (false, false) => LOOK_AGAIN,
            };
            if state.wakes == wakes && !state.stop {
                self.work.wait_for(&mut state, pause);
            }
        }
    }

    /// Calls `tend` when the log needs attention, and now and then.
    pub(crate) fn maintain_log(&self, tend: impl Fn()) {
        loop {
            {
                let mut state = self.state.lock();
                if state.stop {
                    return;
                }
                state.begin_step();
            }
            tend();
            let mut state = self.end_step();
            if !state.stop && state.log_wakes == 0 {
                self.log.wait_for(&mut state, LOOK_AGAIN);
            }
            state.log_wakes = 0;
        }
    }

    fn end_step(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock();
        state.running -= 1;
        self.rest.notify_all();
        state
    }

    /// Calls `sync` whenever the time has come that `begins_at` tells, if it tells one.
    /// [`BackgroundScheduler::wake_sync`] follows when it tells an earlier one than before.
    pub(crate) fn sync_when_due(
        &self,
        clock: &Clock,
        begins_at: impl Fn() -> Option<Duration>,
        sync: impl Fn(),
    ) {
        let mut state = self.state.lock();
        while !state.stop {
            match begins_at() {
                None => self.sync.wait(&mut state),
                Some(at) if at > clock.now() => clock.wait_until(&self.sync, &mut state, at),
                Some(_) => MutexGuard::unlocked(&mut state, &sync),
            }
        }
    }

    /// The background was short of space or descriptors, or, without an error, is no more.
    pub(crate) fn set_shortage(&self, error: Option<Error>) {
        let mut state = self.state.lock();
        state.shortages = match &error {
            Some(_) => state.shortages.saturating_add(1),
            None => 0,
        };
        state.shortage = error;
    }

    /// An error if the background was short of something and has not gone on since.
    pub(crate) fn check_shortage(&self) -> Result<()> {
        match &self.state.lock().shortage {
            Some(error) => Err(error.clone()),
            None => Ok(()),
        }
    }

    /// Whether the threads are being ended.
    pub(crate) fn is_stopping(&self) -> bool {
        self.state.lock().stop
    }

    /// If no thread is in a step, how many steps there were. Who gets the same number before and
    /// after a look at the store looked while nothing was done.
    pub(crate) fn idle_epoch(&self) -> Option<u64> {
        let state = self.state.lock();
        (state.running == 0).then_some(state.steps)
    }

    /// Waits until a step has ended or somebody called [`BackgroundScheduler::wake`], at most for
    /// `time`.
    pub(crate) fn wait(&self, time: Duration) {
        let mut state = self.state.lock();
        self.rest.wait_for(&mut state, time);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::health::Health;

    #[derive(Default)]
    struct Engine {
        schedule: BackgroundScheduler,
        health: Health,
    }

    /// Each try of a job for which there is no room may write what it then removes: five times a
    /// second a job of 27 MB did, as long as the medium was full.
    #[test]
    fn tries_without_room_become_rare() {
        let schedule = BackgroundScheduler::default();
        let error = Error::Closed;
        let pauses = [1, 2, 3, 4, 5, 6, 40].map(|count| {
            let shortages = schedule.state.lock().shortages;
            (shortages..count).for_each(|_| schedule.set_shortage(Some(error.clone())));
            schedule.state.lock().retry_after().as_millis()
        });
        assert_eq!(pauses, [200, 400, 800, 1600, 3200, 3200, 3200]);
        schedule.set_shortage(None);
        schedule.set_shortage(Some(error));
        assert_eq!(schedule.state.lock().retry_after(), RETRY_AFTER);
    }

    /// A thread that had panicked was still counted as one at work: who waited for the store to
    /// come to rest, or for a flush, waited for ever.
    #[test]
    fn a_thread_that_panics_makes_the_store_fail() {
        let engine = Arc::new(Engine::default());
        let body = |engine: &Engine| engine.schedule.work(|| panic!("a step of {}", "a thread"));
        let fail = |engine: &Engine, error| engine.health.fail(&error);
        let started = engine.schedule.spawn("gabion-test", &engine, body, fail);
        started.unwrap();
        while engine.health.failure().is_none() {
            std::thread::yield_now();
        }
        let failure = engine.health.check_writable().unwrap_err().to_string();
        let expected = "the thread gabion-test of the store has panicked: a step of a thread";
        assert!(failure.contains(expected), "{failure}");
        engine.schedule.stop();
    }
}
