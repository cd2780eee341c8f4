//! Runs a plan, each trial in a process of its own.
//!
//! So memory, processor time and bytes written are those of one target alone, and a target that
//! crashes or hangs ends its trial and not the run. The processes are the same program again: it
//! reads its [`Trial`] as JSON from standard input and writes a [`Message`] per line to standard
//! output, one for each phase as soon as it is done. What a trial did before it ended early is
//! kept.

use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::Error;
use crate::plan::{Plan, Trial};
use crate::result::PhaseResult;
use crate::targets::Registry;

/// How often a run looks whether it is to stop.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// A line from a trial's process.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Message {
    /// A phase is done.
    Phase(Box<PhaseResult>),
    /// The trial cannot go on, for this reason.
    Failed(String),
}

/// What a run tells while it goes on.
#[derive(Debug)]
pub enum Event<'a> {
    /// A trial begins.
    Begin(&'a Trial),
    /// A phase is done.
    Phase(&'a PhaseResult),
    /// A trial ended early, for the reason in the sentence.
    Failed(&'a str),
}

/// What came of a run.
#[derive(Debug, Default)]
pub struct Report {
    /// Results of all phases that were done.
    pub results: Vec<PhaseResult>,
    /// What a reader of them must know: trials that ended early.
    pub notes: Vec<String>,
    /// The run was told to stop.
    pub is_interrupted: bool,
}

/// A run about to begin.
pub struct Experiment<'a> {
    /// What is run.
    pub plan: &'a Plan,
    /// Makes the command that runs one trial: this program, so told that it calls [`serve`].
    pub command: &'a dyn Fn() -> Command,
    /// Set from elsewhere to end the run.
    pub stop: &'a AtomicBool,
    /// How long a trial may say nothing before it counts as hung.
    pub silence_max: Duration,
}

impl Experiment<'_> {
    /// Runs all trials, one after the other, and tells what happens.
    ///
    /// # Errors
    /// When the plan cannot work, a process cannot be started, or `each` fails. A trial that ends
    /// early is a note of the report and no error.
    pub fn run(
        &self,
        registry: &Registry,
        mut each: impl FnMut(Event<'_>) -> Result<(), Error>,
    ) -> Result<Report, Error> {
        self.plan.check(registry)?;
        make_dir(&self.plan.dir)?;
        self.plan.check_space(registry)?;
        let mut report = Report::default();
        for trial in self.plan.trials() {
            if self.is_stopped() {
                break;
            }
            each(Event::Begin(&trial))?;
            make_dir(&trial.dir)?;
            let outcome = self.run_trial(&trial, &mut report.results, &mut each);
            let removed = fs::remove_dir_all(&trial.dir);
            if let Some(note) = outcome? {
                each(Event::Failed(&note))?;
                report.notes.push(note);
            }
            removed.map_err(|source| file_error("delete", &trial.dir, source))?;
        }
        if self.is_stopped() {
            report.is_interrupted = true;
            report.notes.push("the run was interrupted".to_owned());
        }
        Ok(report)
    }

    fn is_stopped(&self) -> bool {
        // ORDER: Relaxed; the flag only ends loops, no data depends on it.
        self.stop.load(Ordering::Relaxed)
    }

    /// Runs one trial; says why it ended early, if it did.
    fn run_trial(
        &self,
        trial: &Trial,
        results: &mut Vec<PhaseResult>,
        each: &mut impl FnMut(Event<'_>) -> Result<(), Error>,
    ) -> Result<Option<String>, Error> {
        let process = Process::start((self.command)(), trial)?;
        let done_before = results.len();
        let mut why = None;
        let mut heard = Instant::now();
        loop {
            match process.lines.recv_timeout(LOOK_INTERVAL) {
                Ok(line) => {
                    heard = Instant::now();
                    match serde_json::from_str(&line) {
                        Ok(Message::Phase(result)) => {
                            results.push(*result);
                            each(Event::Phase(&results[results.len() - 1]))?;
                        }
                        Ok(Message::Failed(sentence)) => why = Some(sentence),
                        // Some libraries print to standard output what they have to say.
                        Err(_) => {}
                    }
                }
                Err(RecvTimeoutError::Timeout) if self.is_stopped() => {
                    why = Some("interrupted".to_owned());
                    break;
                }
                Err(RecvTimeoutError::Timeout) if heard.elapsed() > self.silence_max => {
                    let seconds = self.silence_max.as_secs();
                    why = Some(format!("no phase ended within {seconds} s"));
                    break;
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        let status = process.end(why.is_some())?;
        let done = results.len() - done_before;
        if why.is_none() && status.success() && done == trial.workloads.len() {
            return Ok(None);
        }
        let why = match why {
            Some(why) => why,
            None if self.is_stopped() => "interrupted".to_owned(),
            None => format!("its process ended with {status}"),
        };
        let phase = match trial.workloads.get(done) {
            Some(phase) => format!("in {phase}"),
            None => "while closing".to_owned(),
        };
        Ok(Some(format!(
            "{}, repetition {}, ended early {phase}: {why}",
            trial.target,
            trial.repetition + 1
        )))
    }
}

/// The process of a trial. It is killed if it is dropped before its end.
struct Process {
    child: Child,
    lines: mpsc::Receiver<String>,
}

impl Process {
    fn start(mut command: Command, trial: &Trial) -> Result<Process, Error> {
        let program = command.get_program().to_owned();
        let failed = |source| file_error("start", Path::new(&program), source);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let stdout = child.stdout.take().expect("standard output is a pipe");
        let mut stdin = child.stdin.take().expect("standard input is a pipe");
        let process = Process {
            child,
            lines: lines_of(stdout),
        };
        let text = serde_json::to_string(trial).expect("a plan always becomes JSON");
        // A process that ends before it has read its trial is reported by its exit status.
        let _ = stdin.write_all(text.as_bytes());
        Ok(process)
    }

    fn end(mut self, kill: bool) -> Result<ExitStatus, Error> {
        if kill {
            // It may have ended by itself meanwhile.
            let _ = self.child.kill();
        }
        let failed = |source| file_error("wait for", Path::new("the trial's process"), source);
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
        for text in BufReader::new(stdout).lines() {
            let Ok(text) = text else { break };
            if line.send(text).is_err() {
                break;
            }
        }
    });
    lines
}

/// The other side of [`Experiment::run`]: reads a trial from `input`, runs it, and writes a line
/// for each phase.
///
/// # Errors
/// When the trial cannot be read. A trial that fails is told in a line.
pub fn serve(
    registry: &Registry,
    input: impl io::Read,
    output: &mut impl Write,
) -> Result<(), Error> {
    let trial: Trial = serde_json::from_reader(input)
        .map_err(|error| Error::Request(format!("the trial cannot be read: {error}")))?;
    let outcome = trial.run(registry, |result| {
        say(output, &Message::Phase(Box::new(result.clone())))
    });
    match outcome {
        Ok(()) => Ok(()),
        Err(error) => say(output, &Message::Failed(error.to_string())),
    }
}

fn say(output: &mut impl Write, message: &Message) -> Result<(), Error> {
    let text = serde_json::to_string(message).expect("figures always become JSON");
    writeln!(output, "{text}")
        .and_then(|()| output.flush())
        .map_err(|source| file_error("write to", Path::new("the pipe of results"), source))
}

fn make_dir(dir: &Path) -> Result<(), Error> {
    fs::create_dir_all(dir).map_err(|source| file_error("make", dir, source))
}

fn file_error(action: &'static str, path: &Path, source: io::Error) -> Error {
    Error::File {
        action,
        path: path.to_owned(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::tests::plan;

    /// Runs a plan whose trials are a shell script.
    fn run_script(script: &str, stop: &AtomicBool, silence_max: Duration) -> Report {
        let dir = tempfile::tempdir().unwrap();
        let command = || {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            command
        };
        let experiment = Experiment {
            plan: &plan(dir.path()),
            command: &command,
            stop,
            silence_max,
        };
        let report = experiment.run(&Registry::new(&[]), |_| Ok(())).unwrap();
        assert_eq!(
            dir.path().read_dir().unwrap().count(),
            0,
            "trials leave nothing"
        );
        report
    }

    fn line_of_a_phase() -> String {
        let dir = tempfile::tempdir().unwrap();
        let mut trial = plan(dir.path()).trials().next().unwrap();
        trial.dir = dir.path().to_owned();
        let text = serde_json::to_string(&trial).unwrap();
        let mut output = Vec::new();
        serve(&Registry::new(&[]), text.as_bytes(), &mut output).unwrap();
        let output = String::from_utf8(output).unwrap();
        assert_eq!(output.lines().count(), 2);
        output.lines().next().unwrap().to_owned()
    }

    const LONG: Duration = Duration::from_secs(600);

    #[test]
    fn what_a_trial_did_before_it_died_is_kept() {
        let script = format!(
            "cat > /dev/null; echo 'a library says hello'; echo '{}'; kill -KILL $$",
            line_of_a_phase()
        );
        let report = run_script(&script, &AtomicBool::new(false), LONG);
        assert_eq!(report.results.len(), 4);
        assert_eq!(report.notes.len(), 4);
        let note = &report.notes[0];
        assert!(
            note.starts_with("wip, repetition 1, ended early in readrandom: "),
            "{note}"
        );
        assert!(note.contains("signal"), "{note}");
        assert!(!report.is_interrupted);
    }

    #[test]
    fn a_trial_tells_why_it_cannot_go_on() {
        let script = "cat > /dev/null; echo '{\"failed\":\"no stones left\"}'";
        let report = run_script(script, &AtomicBool::new(false), LONG);
        assert!(report.notes[0].ends_with("in fillseq: no stones left"));
        let dir = tempfile::tempdir().unwrap();
        let mut trial = plan(dir.path()).trials().next().unwrap();
        trial.dir = dir.path().to_owned();
        trial.workloads = vec!["readrandom".to_owned()];
        let text = serde_json::to_string(&trial).unwrap();
        let mut output = Vec::new();
        serve(&Registry::new(&[]), text.as_bytes(), &mut output).unwrap();
        let output = String::from_utf8(output).unwrap();
        assert!(
            output.starts_with("{\"failed\":\"readrandom found no record"),
            "{output}"
        );
    }

    #[test]
    fn a_hung_trial_is_ended() {
        let report = run_script("exec sleep 1000", &AtomicBool::new(false), Duration::ZERO);
        assert_eq!(report.notes.len(), 4);
        assert!(report.notes[0].contains("no phase ended within 0 s"));
    }

    #[test]
    fn a_run_that_is_told_to_stop_stops() {
        let stop = AtomicBool::new(true);
        let report = run_script("exec sleep 1000", &stop, LONG);
        assert!(report.is_interrupted && report.results.is_empty());
    }
}
