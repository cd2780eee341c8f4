//! The process of a trial, seen from the run.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::Message;
use super::group::Group;
use crate::Error;
use crate::plan::Trial;

/// How often a run looks whether it is to stop.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// The process of a trial. It is killed if it is dropped before its end.
pub(super) struct Process {
    child: Child,
    /// Open as long as there are turns to give.
    stdin: Option<ChildStdin>,
    lines: mpsc::Receiver<String>,
}

/// What is heard of a process.
pub(super) enum ProcessMessage {
    Message(Message),
    /// It has closed its output, as it does when it ends.
    End,
    /// It has said nothing for too long.
    Nothing,
    /// The run is to stop.
    Interrupted,
}

impl Process {
    /// Starts it, in `group` if there is one.
    pub(super) fn start(
        mut command: Command,
        trial: &Trial,
        group: Option<&Group>,
    ) -> Result<Process, Error> {
        let program = command.get_program().to_owned();
        let failed = |source| Error::file("start", Path::new(&program), source);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let stdout = child.stdout.take().expect("standard output is a pipe");
        let mut stdin = child.stdin.take().expect("standard input is a pipe");
        let mut process = Process {
            child,
            stdin: None,
            lines: lines_of(stdout),
        };
        if let Some(group) = group {
            group.take(process.child.id())?;
        }
        let text = serde_json::to_string(trial).expect("a plan always becomes JSON");
        // A process that ends before it has read its trial is reported by its exit status.
        let _ = writeln!(stdin, "{text}");
        process.stdin = trial.turn_ms.map(|_| stdin);
        Ok(process)
    }

    /// Gives it the turn, if there are turns.
    pub(super) fn go_on(&mut self) {
        if let Some(stdin) = &mut self.stdin {
            // Whether a process that has ended is told makes no difference: it closed its output.
            let _ = writeln!(stdin, "turn");
            self.signal(Signal::CONT);
        }
    }

    /// Stops it with all its threads until its next turn.
    pub(super) fn stop(&self) {
        self.signal(Signal::STOP);
    }

    fn signal(&self, signal: Signal) {
        // Only fails when it has ended. Nobody has waited for it yet, so its number is still its.
        let _ = kill_process(Pid::from_child(&self.child), signal);
    }

    /// The next message. Waits for at most `silence_max`, and until `is_stopped`.
    pub(super) fn hear(
        &self,
        silence_max: Duration,
        is_stopped: impl Fn() -> bool,
    ) -> ProcessMessage {
        let begin = Instant::now();
        loop {
            match self.lines.recv_timeout(LOOK_INTERVAL) {
                Ok(line) => {
                    if let Ok(message) = serde_json::from_str(&line) {
                        return ProcessMessage::Message(message);
                    }
                    // Some libraries print to standard output what they have to say.
                }
                Err(RecvTimeoutError::Disconnected) => return ProcessMessage::End,
                Err(RecvTimeoutError::Timeout) if is_stopped() => {
                    return ProcessMessage::Interrupted;
                }
                Err(RecvTimeoutError::Timeout) if begin.elapsed() > silence_max => {
                    return ProcessMessage::Nothing;
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    /// Waits until it has ended, and lets it end at once with `kill`.
    pub(super) fn end(&mut self, kill: bool) -> Result<ExitStatus, Error> {
        if kill {
            // It may have ended by itself meanwhile.
            let _ = self.child.kill();
        }
        let failed = |source| Error::file("wait for", Path::new("the trial's process"), source);
        self.child.wait().map_err(failed)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(Some(_))) {
            // Nothing can be done about a process that cannot be ended.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// The lines of a process as they come, read by a thread that ends with them.
fn lines_of(stdout: ChildStdout) -> mpsc::Receiver<String> {
    let (line, lines) = mpsc::channel();
    thread::spawn(move || {
        // What is no text is no message, and no end.
        for bytes in BufReader::new(stdout).split(b'\n') {
            let Ok(bytes) = bytes else { break };
            if line
                .send(String::from_utf8_lossy(&bytes).into_owned())
                .is_err()
            {
                break;
            }
        }
    });
    lines
}
