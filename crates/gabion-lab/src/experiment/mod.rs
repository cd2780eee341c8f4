//! Runs a plan, each trial in a process of its own.
//!
//! So memory, processor time and bytes written are those of one target alone, and a target that
//! crashes or hangs ends its trial and not the run. The processes are the same program again: it
//! reads its [`Trial`] as a line of JSON from standard input and writes a [`Message`] per line to
//! standard output, one for each phase as soon as it is done. What a trial did before it ended
//! early is kept.
//!
//! Trials of one table run in turns. Whoever has the turn works until it says that the turn is
//! over; then its process is stopped as a whole, its background threads with it, so that nothing of
//! it runs while another is measured. Only what the system itself writes back to the drive goes on.
//! Turns go round forwards and backwards (A B B A). A phase begins when all have ended the one
//! before. A trial that has ended, for whatever reason, is left out of the round.
//!
//! Where the plan limits memory, each trial has a control group of its own ([`group`]).
//!
//! A phase that restarts the store ends the process: the trial goes on in a new one, which finds
//! what a store leaves that was killed.

mod group;
mod link;
mod process;

use std::fs;
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Error;
use crate::plan::{Plan, Resume, Trial};
use crate::result::PhaseResult;
use crate::targets::Registry;
use group::Group;
use process::{Process, ProcessMessage};

pub use link::serve;

/// A line from a trial's process.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Message {
    /// A phase is done.
    Phase(Box<PhaseResult>),
    /// The process has worked for its turn and waits for the next one.
    TurnOver,
    /// The process is to be killed; the trial goes on in another one.
    Kill,
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

/// Who hears of what happens.
type Each<'e> = &'e mut dyn FnMut(Event<'_>) -> Result<(), Error>;

impl Experiment<'_> {
    /// Runs all trials and tells what happens.
    ///
    /// # Errors
    /// When the plan cannot work, a process cannot be started, or `each` fails. A trial that ends
    /// early is a note of the report and no error.
    pub fn run(
        &self,
        registry: &Registry,
        mut each: impl FnMut(Event<'_>) -> Result<(), Error>,
    ) -> Result<Report, Error> {
        self.plan.prepare(registry)?;
        let mut report = Report::default();
        for table in self.plan.tables() {
            if self.is_stopped() {
                break;
            }
            for trial in &table {
                each(Event::Begin(trial))?;
                make_dir(&trial.dir)?;
            }
            let dirs: Vec<_> = table.iter().map(|trial| trial.dir.clone()).collect();
            let first = report.results.len();
            let outcome = self.run_table(table, &mut report, &mut each);
            // Whoever was the first to end a phase, targets keep the order of the plan.
            let place = |result: &PhaseResult| {
                let mut targets = self.plan.targets.iter();
                targets.position(|target| *target == result.target)
            };
            report.results[first..].sort_by_key(place);
            let removed = dirs.iter().map(|dir| {
                fs::remove_dir_all(dir).map_err(|source| Error::file("delete", dir, source))
            });
            let removed: Vec<Result<(), Error>> = removed.collect();
            outcome?;
            removed.into_iter().collect::<Result<(), Error>>()?;
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

    /// Runs the trials of a table to their ends, in turns.
    fn run_table(
        &self,
        trials: Vec<Trial>,
        report: &mut Report,
        each: Each<'_>,
    ) -> Result<(), Error> {
        let seats = trials.into_iter().map(|trial| self.seat(trial));
        let mut seats = seats.collect::<Result<Vec<Seat>, Error>>()?;
        let mut is_backward = false;
        while seats.iter().any(|seat| seat.is_running) {
            if !seats.iter().any(Seat::is_at_work) {
                seats.iter_mut().for_each(|seat| seat.is_between = false);
            }
            let at_work = |at: &usize| seats[*at].is_at_work();
            let mut round: Vec<usize> = (0..seats.len()).filter(at_work).collect();
            if is_backward {
                round.reverse();
            }
            is_backward = !is_backward;
            for at in round {
                self.take_turn(&mut seats[at], report, each)?;
            }
        }
        Ok(())
    }

    fn seat(&self, trial: Trial) -> Result<Seat, Error> {
        let limit = self.plan.memory_limit_bytes;
        let group = limit.map(Group::with_limit).transpose()?;
        Ok(Seat {
            process: Process::start((self.command)(), &trial, group.as_ref())?,
            group,
            trial,
            done: 0,
            log_bytes: Some(0),
            records_live: None,
            is_running: true,
            is_between: false,
        })
    }

    /// Lets a trial work until its turn is over or it ends.
    fn take_turn(&self, seat: &mut Seat, report: &mut Report, each: Each<'_>) -> Result<(), Error> {
        seat.process.go_on();
        let why = loop {
            match seat.process.hear(self.silence_max, || self.is_stopped()) {
                ProcessMessage::Message(Message::Phase(result)) => {
                    seat.note_phase(&result);
                    report.results.push(*result);
                    each(Event::Phase(&report.results[report.results.len() - 1]))?;
                }
                ProcessMessage::Message(Message::TurnOver) => {
                    seat.process.stop();
                    return Ok(());
                }
                ProcessMessage::Message(Message::Kill) => {
                    seat.process.end(true)?;
                    seat.trial.resume = Some(seat.resume());
                    let group = seat.group.as_ref();
                    seat.process = Process::start((self.command)(), &seat.trial, group)?;
                    seat.process.go_on();
                }
                ProcessMessage::Message(Message::Failed(sentence)) => break Some(sentence),
                ProcessMessage::Interrupted => break Some("interrupted".to_owned()),
                ProcessMessage::Nothing => {
                    let seconds = self.silence_max.as_secs();
                    break Some(format!("no phase ended within {seconds} s"));
                }
                ProcessMessage::End => break None,
            }
        };
        seat.is_running = false;
        let status = seat.process.end(why.is_some())?;
        if let Some(note) = seat.note(why, status, self.is_stopped()) {
            each(Event::Failed(&note))?;
            report.notes.push(note);
        }
        Ok(())
    }
}

/// A trial that goes on.
struct Seat {
    trial: Trial,
    // Ends before its group, which can be removed only when it is empty.
    process: Process,
    /// What limits its memory, if something does.
    group: Option<Group>,
    /// Phases that are done.
    done: usize,
    /// What the store has written to its log since it was opened, where it says so.
    log_bytes: Option<u64>,
    /// Records of the store after the last phase, where that is known.
    records_live: Option<u64>,
    is_running: bool,
    /// It has ended a phase that others are still in.
    is_between: bool,
}

impl Seat {
    fn is_at_work(&self) -> bool {
        self.is_running && !self.is_between
    }

    fn note_phase(&mut self, result: &PhaseResult) {
        self.done += 1;
        self.is_between = true;
        self.records_live = result.records_live;
        self.log_bytes = self
            .log_bytes
            .zip(result.bytes_written)
            .map(|(before, written)| before + written.log);
    }

    /// Where the next process goes on.
    fn resume(&mut self) -> Resume {
        Resume {
            phase: self.done,
            records_live: self.records_live,
            log_bytes: self.log_bytes.replace(0),
        }
    }

    /// Why the trial ended early; `None` if it did not.
    fn note(&self, why: Option<String>, status: ExitStatus, is_stopped: bool) -> Option<String> {
        let trial = &self.trial;
        if why.is_none() && status.success() && self.done == trial.workloads.len() {
            return None;
        }
        let why = match why {
            Some(why) => why,
            None if is_stopped => "interrupted".to_owned(),
            None => {
                let told = self.group.as_ref().and_then(Group::why_gone);
                told.unwrap_or_else(|| format!("its process ended with {status}"))
            }
        };
        let phase = match trial.workloads.get(self.done) {
            Some(phase) => format!("in {phase}"),
            None => "while closing".to_owned(),
        };
        let repetition = trial.repetition + 1;
        let target = &trial.target;
        Some(format!(
            "{target}, repetition {repetition}, ended early {phase}: {why}"
        ))
    }
}

fn make_dir(dir: &Path) -> Result<(), Error> {
    fs::create_dir_all(dir).map_err(|source| Error::file("make", dir, source))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::tests::plan;

    /// Runs a plan whose trials are a shell script.
    fn run_script(script: &str, stop: &AtomicBool, silence_max: Duration) -> Report {
        run_plan(script, stop, silence_max, |_| {})
    }

    fn run_plan(
        script: &str,
        stop: &AtomicBool,
        silence_max: Duration,
        change: impl FnOnce(&mut Plan),
    ) -> Report {
        let dir = tempfile::tempdir().unwrap();
        let mut plan = plan(dir.path());
        change(&mut plan);
        let command = || {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            command
        };
        let experiment = Experiment {
            plan: &plan,
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
            "cat > /dev/null; echo 'a library says hello'; printf '\\377\\n'; echo '{}'; \
             kill -KILL $$",
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

    /// Two trials in turns, as scripts: `a` works for three turns and one, `b` for two and three.
    /// They write down their turns; what `b` does besides in each is `more`.
    fn run_turns(more: &str) -> (Vec<String>, Report) {
        let place = tempfile::tempdir().unwrap();
        let path = |name: &str| place.path().join(name).display().to_string();
        let (log, number) = (path("log"), path("number"));
        let script = format!(
            "read -r trial
             case $trial in
                 *'\"target\":\"wip\"'*) name=a; phases='3 1'; echo $$ > {number};;
                 *) name=b; phases='2 3';;
             esac
             for turns in $phases; do
                 for turn in $(seq $turns); do
                     read -r go || exit 9
                     echo $name >> {log}
                     [ $name = b ] && {{ {more}; }}
                     [ $turn = $turns ] && echo '{phase}'
                     echo '\"turn_over\"'
                 done
             done
             read -r go && echo $name ends >> {log}",
            phase = line_of_a_phase(),
        );
        let report = run_plan(
            &script.replace("NUMBER", &number),
            &AtomicBool::new(false),
            LONG,
            |plan| {
                plan.turn_ms = Some(50);
                plan.repetitions = 1;
            },
        );
        let log = fs::read_to_string(log).unwrap();
        (log.lines().map(str::to_owned).collect(), report)
    }

    #[test]
    fn turns_go_to_and_fro_and_phases_begin_together() {
        let (turns, report) = run_turns("true");
        let wanted = "a b b a a, b a b b, a ends, b ends".replace(',', "");
        assert_eq!(turns.join(" "), wanted);
        assert_eq!(report.results.len(), 4);
        assert_eq!(report.notes, [""; 0]);
    }

    /// `b` waits in each of its turns until the system says that `a` is stopped.
    #[test]
    fn a_trial_is_stopped_while_others_have_their_turn() {
        let stopped = "while kill -0 $(cat NUMBER) 2> /dev/null && \
                       ! grep -q '^State:.T' /proc/$(cat NUMBER)/status; do sleep 0.01; done";
        let (turns, report) = run_turns(stopped);
        assert_eq!((turns.len(), report.results.len()), (11, 4));
    }

    #[test]
    fn a_partner_that_dies_is_left_out() {
        let (turns, report) = run_turns("kill -KILL $$");
        assert_eq!(turns.join(" "), "a b a a a a ends");
        assert_eq!((report.results.len(), report.notes.len()), (2, 1));
        let note = &report.notes[0];
        assert!(
            note.starts_with("btreemap, repetition 1, ended early in fillseq"),
            "{note}"
        );
        let (turns, report) = run_turns("exit 0");
        assert_eq!((turns.len(), report.notes.len()), (6, 1));
    }
}
