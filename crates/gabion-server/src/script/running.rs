//! The running script, as other clients see it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::Mutex;

/// How long a library's program may take, in milliseconds.
const LOAD_MS_MAX: u64 = 500;

/// The running script, if there is one.
#[derive(Debug)]
pub(crate) struct RunningScript {
    epoch: Instant,
    /// When it began, in milliseconds since the epoch, and one more; 0 if none runs.
    since_ms: AtomicU64,
    /// When it is to end in any case; 0 for never.
    until_ms: AtomicU64,
    is_function: AtomicBool,
    is_killed: AtomicBool,
    has_written: AtomicBool,
    is_stopping: AtomicBool,
    /// Its name and its command.
    told: Mutex<(String, Vec<Vec<u8>>)>,
}

/// The outcome of `SCRIPT KILL`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KillOutcome {
    /// No script runs.
    Idle,
    /// It is a function, or it is none, other than the command thinks.
    Other,
    /// It has written.
    HasWritten,
    /// It ends soon.
    Done,
}

impl Default for RunningScript {
    fn default() -> RunningScript {
        RunningScript {
            epoch: Instant::now(),
            since_ms: AtomicU64::new(0),
            until_ms: AtomicU64::new(0),
            is_function: AtomicBool::new(false),
            is_killed: AtomicBool::new(false),
            has_written: AtomicBool::new(false),
            is_stopping: AtomicBool::new(false),
            told: Mutex::default(),
        }
    }
}

// ORDER: SeqCst throughout; nothing here is called often enough for anything else.
impl RunningScript {
    fn now_ms(&self) -> u64 {
        u64::try_from(self.epoch.elapsed().as_millis()).unwrap_or(u64::MAX - 1) + 1
    }

    /// A script begins.
    pub(crate) fn begin(&self, is_function: bool, name: &str, command: Vec<Vec<u8>>) {
        *self.told.lock() = (name.to_owned(), command);
        self.is_function.store(is_function, Ordering::SeqCst);
        self.is_killed.store(false, Ordering::SeqCst);
        self.has_written.store(false, Ordering::SeqCst);
        self.since_ms.store(self.now_ms(), Ordering::SeqCst);
    }

    /// A library is loaded, which may not take long.
    pub(crate) fn limit(&self) {
        self.until_ms
            .store(self.now_ms() + LOAD_MS_MAX, Ordering::SeqCst);
    }

    /// It has ended.
    pub(crate) fn end(&self) {
        self.since_ms.store(0, Ordering::SeqCst);
        self.until_ms.store(0, Ordering::SeqCst);
        self.is_killed.store(false, Ordering::SeqCst);
    }

    /// It writes from now on.
    pub(crate) fn writes(&self) {
        self.has_written.store(true, Ordering::SeqCst);
    }

    /// The server ends, and the script with it.
    pub(crate) fn stop(&self) {
        self.is_stopping.store(true, Ordering::SeqCst);
    }

    /// Whether the server ends.
    pub(crate) fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::SeqCst)
    }

    /// Why it is to end, if it is.
    pub(crate) fn interruption(&self) -> Option<&'static str> {
        let until = self.until_ms.load(Ordering::SeqCst);
        if until != 0 && self.now_ms() > until {
            return Some("ERR FUNCTION LOAD timeout");
        }
        let ends = self.is_killed.load(Ordering::SeqCst) || self.is_stopping();
        ends.then_some("ERR Script killed by user with SCRIPT KILL.")
    }

    /// For how many milliseconds a script has been running.
    pub(crate) fn elapsed_ms(&self) -> Option<u64> {
        let since = self.since_ms.load(Ordering::SeqCst);
        (since != 0).then(|| self.now_ms().saturating_sub(since))
    }

    /// Name and command of the function that runs.
    pub(crate) fn function(&self) -> Option<(String, Vec<Vec<u8>>)> {
        let is_function = self.is_function.load(Ordering::SeqCst);
        (is_function && self.elapsed_ms().is_some()).then(|| self.told.lock().clone())
    }

    /// What to say to a client that comes while a script runs for so long.
    pub(crate) fn busy(&self, threshold_ms: u64) -> Option<&'static str> {
        let elapsed = self.elapsed_ms()?;
        (elapsed >= threshold_ms).then(|| match self.is_function.load(Ordering::SeqCst) {
            true => BUSY_FUNCTION,
            false => BUSY_SCRIPT,
        })
    }

    /// Ends it, if that is possible.
    pub(crate) fn kill(&self, is_function: bool) -> KillOutcome {
        if self.elapsed_ms().is_none() {
            return KillOutcome::Idle;
        }
        if self.is_function.load(Ordering::SeqCst) != is_function {
            return KillOutcome::Other;
        }
        if self.has_written.load(Ordering::SeqCst) {
            return KillOutcome::HasWritten;
        }
        self.is_killed.store(true, Ordering::SeqCst);
        KillOutcome::Done
    }
}

/// What is said while a script runs.
pub(crate) const BUSY_SCRIPT: &str = "BUSY Redis is busy running a script. You can only call \
                                      SCRIPT KILL or SHUTDOWN NOSAVE.";

/// What is said while a function runs.
pub(crate) const BUSY_FUNCTION: &str = "BUSY Redis is busy running a script. You can only call \
                                        FUNCTION KILL or SHUTDOWN NOSAVE.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_script_that_has_written_nothing_can_be_killed() {
        let running = RunningScript::default();
        assert_eq!(running.kill(false), KillOutcome::Idle);
        running.begin(false, "", Vec::new());
        assert_eq!(running.kill(true), KillOutcome::Other);
        assert_eq!(running.busy(0), Some(BUSY_SCRIPT));
        assert_eq!(running.busy(1 << 40), None);
        running.writes();
        assert_eq!(running.kill(false), KillOutcome::HasWritten);
        assert_eq!(running.interruption(), None);
        running.begin(true, "f", Vec::new());
        assert_eq!(running.kill(true), KillOutcome::Done);
        assert!(running.interruption().is_some());
        running.end();
        assert_eq!((running.interruption(), running.busy(0)), (None, None));
    }
}
