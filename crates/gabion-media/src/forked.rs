//! Forked children for tests: processes with all handles of their parent, and none of its threads.

use std::ffi::c_int;
use std::io::{ErrorKind, PipeReader, PipeWriter, Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

/// How long a child may take. One that takes as long waits for what never comes.
const PATIENCE: Duration = Duration::from_mins(2);

/// How often a child is looked at.
const PAUSE: Duration = Duration::from_millis(2);

unsafe extern "C" {
    fn fork() -> c_int;
    fn _exit(status: c_int) -> !;
}

/// A forked child, and the end of the pipe through which it tells how it went.
#[derive(Debug)]
pub struct ForkedChild {
    process: Pid,
    told: PipeReader,
}

/// Forks this process, and runs `body` in the child, which ends with it: nothing of the child is
/// dropped that `body` does not drop. To be called where few other threads run, which might hold
/// locks at that moment; `body` does not print, for the same reason.
///
/// # Errors
/// What `body` says; that it panicked, was killed, or never ended.
pub fn in_child(body: impl FnOnce() -> Result<(), String>) -> Result<(), String> {
    start(body)?.wait()
}

/// As [`in_child`], without waiting for it.
///
/// # Errors
/// When there can be no child.
pub fn start(body: impl FnOnce() -> Result<(), String>) -> Result<ForkedChild, String> {
    let failed = |error: std::io::Error| format!("no child can be forked: {error}");
    let (told, tells) = std::io::pipe().map_err(failed)?;
    // SAFETY: the child runs `body` and ends: it returns to no caller. It has this thread only, so
    // nothing that others share is used by two; a lock that another thread holds it would wait for,
    // and the parent ends it then.
    let forked = unsafe { fork() };
    match forked {
        0 => run(body, tells),
        process => Ok(ForkedChild {
            process: Pid::from_raw(process)
                .filter(|_| process > 0)
                .ok_or_else(|| failed(std::io::Error::last_os_error()))?,
            told,
        }),
    }
}

fn run(body: impl FnOnce() -> Result<(), String>, mut tells: PipeWriter) -> ! {
    let said = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => "done".to_owned(),
        Ok(Err(what)) => format!("{what}."),
        Err(_) => "the child panicked.".to_owned(),
    };
    // Who hears nothing knows that something went wrong.
    let _ = tells.write_all(said.as_bytes());
    drop(tells);
    // SAFETY: ends the process at once; nothing of it is used any more.
    unsafe { _exit(0) }
}

impl ForkedChild {
    /// Its process id.
    pub fn id(&self) -> u32 {
        self.process.as_raw_nonzero().get().unsigned_abs()
    }

    /// Waits until it has ended.
    ///
    /// # Errors
    /// As [`in_child`].
    pub fn wait(mut self) -> Result<(), String> {
        let began = Instant::now();
        let ended = loop {
            match waitpid(Some(self.process), WaitOptions::NOHANG) {
                Ok(None) if began.elapsed() < PATIENCE => std::thread::sleep(PAUSE),
                Ok(None) => {
                    // It is reaped below, or by the system.
                    let _ = kill_process(self.process, Signal::KILL);
                    let _ = waitpid(Some(self.process), WaitOptions::empty());
                    return Err("the child hangs".to_owned());
                }
                Ok(Some((_, status))) => break status,
                Err(error) => return Err(format!("the child cannot be waited for: {error}")),
            }
        };
        // All that it said is there; children of its own may have the pipe open for long.
        let mut said = Vec::new();
        let read = rustix::fs::fcntl_setfl(&self.told, OFlags::NONBLOCK)
            .map_err(std::io::Error::from)
            .and_then(|()| self.told.read_to_end(&mut said));
        let is_heard = read.map_or_else(|error| error.kind() == ErrorKind::WouldBlock, |_| true);
        match String::from_utf8_lossy(&said).as_ref() {
            "done" => Ok(()),
            "" if is_heard => Err(format!("the child said nothing and ended with {ended:?}")),
            "" => Err("the child cannot be heard".to_owned()),
            what => Err(what.to_owned()),
        }
    }

    /// Ends it by signal 9.
    pub fn kill(self) {
        let _ = kill_process(self.process, Signal::KILL);
        let _ = waitpid(Some(self.process), WaitOptions::empty());
    }
}
