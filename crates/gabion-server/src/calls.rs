//! Statistics of commands: calls, durations and errors, as `INFO` shows them.
//!
//! A connection counts calls of the same command by itself ([`PendingCalls`]), and adds them up
//! here when another command comes, or its round ends: so clients that send the same do not write
//! to the same place at each command. Commands are known by their numbers.
//!
//! The durations of calls are in a [`Histogram`] for each command that was ever called, unless
//! `latency-tracking` is off.

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::histogram::{Histogram, HistogramSnapshot, LocalHistogram};

/// Kinds of errors that are counted apart. Scripts can make up any number of them.
const ERRORS_MAX: usize = 128;

/// The counters of a command.
#[derive(Debug, Default)]
pub(crate) struct CommandCounts {
    calls: AtomicU64,
    nanos: AtomicU64,
    rejected: AtomicU64,
    failed: AtomicU64,
    /// Of the durations of calls, from the first call on.
    durations: OnceLock<Box<Histogram>>,
}

/// The counts of a command that was called or rejected.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CommandStat<'n> {
    /// Its whole name.
    pub(crate) name: &'n str,
    /// Calls that have ended.
    pub(crate) calls: u64,
    /// Nanoseconds that they took.
    pub(crate) nanos: u64,
    /// Calls that were refused before they ran.
    pub(crate) rejected: u64,
    /// Calls that ran and failed.
    pub(crate) failed: u64,
}

/// The counters of all commands, and of errors.
#[derive(Debug)]
pub(crate) struct CommandStats {
    by_number: Box<[CommandCounts]>,
    /// Whether durations are kept.
    tracks: AtomicBool,
    /// By the first words of their texts.
    errors: Mutex<BTreeMap<String, u64>>,
}

/// Calls of a command that a connection has not added to the counters yet.
#[derive(Debug, Default)]
pub(crate) struct PendingCalls {
    number: usize,
    calls: u64,
    nanos: u64,
    durations: LocalHistogram,
}

fn add(count: &AtomicU64, by: u64) {
    // ORDER: Relaxed; a count orders nothing.
    count.fetch_add(by, Ordering::Relaxed);
}

fn told(count: &AtomicU64) -> u64 {
    // ORDER: Relaxed, as above.
    count.load(Ordering::Relaxed)
}

impl CommandStats {
    /// Of commands with numbers below this.
    pub(crate) fn new(commands: usize) -> CommandStats {
        CommandStats {
            by_number: (0..commands).map(|_| CommandCounts::default()).collect(),
            tracks: AtomicBool::new(true),
            errors: Mutex::default(),
        }
    }

    /// Keeps durations from now on, or does not.
    pub(crate) fn track(&self, tracks: bool) {
        // ORDER: Relaxed; calls that end now may go by either.
        self.tracks.store(tracks, Ordering::Relaxed);
    }

    fn tracks(&self) -> bool {
        // ORDER: Relaxed, as in `track`.
        self.tracks.load(Ordering::Relaxed)
    }

    /// A call has ended that was waiting for a key.
    pub(crate) fn add_waited(&self, command: usize, nanos: u64) {
        self.add(command, 1, nanos);
        if self.tracks() {
            self.durations(command).record(nanos);
        }
    }

    fn add(&self, number: usize, calls: u64, nanos: u64) {
        add(&self.by_number[number].calls, calls);
        add(&self.by_number[number].nanos, nanos);
    }

    fn durations(&self, number: usize) -> &Histogram {
        self.by_number[number].durations.get_or_init(Box::default)
    }

    /// The durations of a command's calls, if there were any.
    pub(crate) fn counts_of(&self, command: usize) -> Option<HistogramSnapshot> {
        let counts = self.by_number[command].durations.get()?.counts();
        (counts.total() > 0).then_some(counts)
    }

    /// A command was refused before it ran.
    pub(crate) fn add_rejected(&self, command: usize) {
        add(&self.by_number[command].rejected, 1);
    }

    /// A command that ran has failed.
    pub(crate) fn add_failed(&self, command: usize) {
        add(&self.by_number[command].failed, 1);
    }

    /// An error was answered with this text.
    pub(crate) fn add_error(&self, text: &str) {
        let kind = text.split_whitespace().next().unwrap_or_default();
        let mut errors = self.errors.lock();
        if let Some(known) = errors.get_mut(kind) {
            *known += 1;
        } else if errors.len() < ERRORS_MAX {
            errors.insert(kind.to_owned(), 1);
        }
    }

    /// Begins anew.
    pub(crate) fn reset(&self) {
        for own in &self.by_number {
            for count in [&own.calls, &own.nanos, &own.rejected, &own.failed] {
                // ORDER: Relaxed; a count orders nothing.
                count.store(0, Ordering::Relaxed);
            }
            if let Some(durations) = own.durations.get() {
                durations.reset();
            }
        }
        self.errors.lock().clear();
    }

    /// What was counted of each command that was called or refused, and its number; `names` are
    /// those of all.
    pub(crate) fn called<'n>(
        &self,
        names: impl Iterator<Item = &'n str>,
    ) -> impl Iterator<Item = (usize, CommandStat<'n>)> {
        let of = |(own, name): (&CommandCounts, &'n str)| CommandStat {
            name,
            calls: told(&own.calls),
            nanos: told(&own.nanos),
            rejected: told(&own.rejected),
            failed: told(&own.failed),
        };
        let all = self.by_number.iter().zip(names).map(of).enumerate();
        all.filter(|(_, called)| called.calls + called.rejected > 0)
    }

    /// A line for each command that was called or refused; `names` are those of all.
    pub(crate) fn command_lines<'n>(&self, names: impl Iterator<Item = &'n str>) -> String {
        let line = |(_, called): (usize, CommandStat<'_>)| {
            let CommandStat {
                name,
                calls,
                nanos,
                rejected,
                failed,
            } = called;
            let micros = nanos / 1000;
            let each = nanos as f64 / 1000.0 / calls.max(1) as f64;
            format!(
                "cmdstat_{name}:calls={calls},usec={micros},usec_per_call={each:.2},\
                 rejected_calls={rejected},failed_calls={failed}\r\n"
            )
        };
        self.called(names).map(line).collect()
    }

    /// A line with percentiles of the durations of each command that was called, in microseconds.
    pub(crate) fn percentile_lines<'n>(
        &self,
        names: impl Iterator<Item = &'n str>,
        percents: &[f64],
    ) -> String {
        let mut lines = String::new();
        for (number, name) in names.enumerate().take(self.by_number.len()) {
            let Some(counts) = self.counts_of(number) else {
                continue;
            };
            let each = |percent: &f64| {
                let micros = counts.percentile(*percent) as f64 / 1000.0;
                format!("p{percent}={micros:.3}")
            };
            let all: Vec<String> = percents.iter().map(each).collect();
            lines += &format!("latency_percentiles_usec_{name}:{}\r\n", all.join(","));
        }
        lines
    }

    /// Each kind of error, and how often it was answered.
    pub(crate) fn errors(&self) -> Vec<(String, u64)> {
        let errors = self.errors.lock();
        let pair = |(kind, times): (&String, &u64)| (kind.clone(), *times);
        errors.iter().map(pair).collect()
    }

    /// A line for each kind of error.
    pub(crate) fn error_lines(&self) -> String {
        let line = |(kind, times)| format!("errorstat_{kind}:count={times}\r\n");
        self.errors().into_iter().map(line).collect()
    }
}

impl PendingCalls {
    /// A command has run for so long.
    #[inline]
    pub(crate) fn count(&mut self, calls: &CommandStats, command: usize, nanos: u64) {
        if self.number != command {
            self.add_up(calls);
            self.number = command;
        }
        self.calls += 1;
        self.nanos += nanos;
        self.durations.record(nanos);
    }

    /// Adds up what was counted.
    pub(crate) fn add_up(&mut self, calls: &CommandStats) {
        if self.calls > 0 {
            calls.add(self.number, self.calls, self.nanos);
            (self.calls, self.nanos) = (0, 0);
            match calls.tracks() {
                true => self.durations.add_up(calls.durations(self.number)),
                false => self.durations.clear(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_added_up_by_command() {
        let names = ["other", "get", "set"];
        let (calls, mut calling) = (CommandStats::new(names.len()), PendingCalls::default());
        let (get, set) = (1, 2);
        for command in [get, get, set, get] {
            calling.count(&calls, command, 2000);
        }
        calls.add_failed(set);
        calls.add_rejected(set);
        let gets = |calls: &CommandStats| {
            calls
                .command_lines(names.into_iter())
                .lines()
                .next()
                .map(str::to_owned)
        };
        let line = |calls, usec| {
            let each = "usec_per_call=2.00,rejected_calls=0,failed_calls=0";
            Some(format!("cmdstat_get:calls={calls},usec={usec},{each}"))
        };
        assert_eq!(gets(&calls), line(2, 4));
        calling.add_up(&calls);
        calling.add_up(&calls);
        assert_eq!(gets(&calls), line(3, 6));
        let lines = calls.command_lines(names.into_iter());
        assert!(lines.ends_with("usec_per_call=2.00,rejected_calls=1,failed_calls=1\r\n"));
        calls.add_error("WRONGTYPE Operation");
        calls.add_error("WRONGTYPE\r\n");
        assert_eq!(calls.error_lines(), "errorstat_WRONGTYPE:count=2\r\n");
        (0..1000).for_each(|number| calls.add_error(&format!("E{number} made up")));
        assert_eq!(calls.error_lines().lines().count(), ERRORS_MAX);
        let percentiles = || calls.percentile_lines(names.into_iter(), &[50.0, 99.9]);
        let line = "latency_percentiles_usec_get:p50=2.048,p99.9=2.048\r\n";
        assert_eq!(percentiles(), [line, &line.replace("get", "set")].concat());
        calls.track(false);
        calling.count(&calls, get, 9000);
        calling.add_up(&calls);
        calls.track(true);
        assert_eq!(calls.counts_of(get).map(|counts| counts.total()), Some(3));
        calls.reset();
        assert_eq!(percentiles(), "");
        assert_eq!(
            calls.command_lines(names.into_iter()) + &calls.error_lines(),
            ""
        );
    }
}
