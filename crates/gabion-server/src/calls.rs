//! How often each command was called, how long it took, and which errors were answered: what `INFO`
//! says of it.
//!
//! A connection counts calls of the same command by itself ([`Calling`]), and adds them up here
//! when another command comes, or its round ends: so clients that send the same do not write to the
//! same place at each command. Commands are known by their numbers.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

/// Kinds of errors that are counted apart. Scripts can make up any number of them.
const ERRORS_MAX: usize = 128;

/// What is counted of a command.
#[derive(Debug, Default)]
pub(crate) struct Count {
    calls: AtomicU64,
    micros: AtomicU64,
    rejected: AtomicU64,
    failed: AtomicU64,
}

/// What is counted of all commands, and of errors.
#[derive(Debug)]
pub(crate) struct Calls {
    by_number: Box<[Count]>,
    /// By the first words of their texts.
    errors: Mutex<BTreeMap<String, u64>>,
}

/// Calls of a command that a connection has not added up yet.
#[derive(Debug, Default)]
pub(crate) struct Calling {
    number: usize,
    calls: u64,
    micros: u64,
}

fn add(count: &AtomicU64, by: u64) {
    // ORDER: Relaxed; a count orders nothing.
    count.fetch_add(by, Ordering::Relaxed);
}

fn told(count: &AtomicU64) -> u64 {
    // ORDER: Relaxed, as above.
    count.load(Ordering::Relaxed)
}

impl Calls {
    /// Of commands with numbers below this.
    pub(crate) fn new(commands: usize) -> Calls {
        Calls {
            by_number: (0..commands).map(|_| Count::default()).collect(),
            errors: Mutex::default(),
        }
    }

    /// A call has ended that was waiting for a key.
    pub(crate) fn add_waited(&self, command: usize, micros: u64) {
        self.add(command, 1, micros);
    }

    fn add(&self, number: usize, calls: u64, micros: u64) {
        add(&self.by_number[number].calls, calls);
        add(&self.by_number[number].micros, micros);
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
            for count in [&own.calls, &own.micros, &own.rejected, &own.failed] {
                // ORDER: Relaxed; a count orders nothing.
                count.store(0, Ordering::Relaxed);
            }
        }
        self.errors.lock().clear();
    }

    /// A line for each command that was called or refused; `names` are those of all.
    pub(crate) fn command_lines<'n>(&self, names: impl Iterator<Item = &'n str>) -> String {
        let mut lines = String::new();
        for (own, name) in self.by_number.iter().zip(names) {
            let (calls, micros) = (told(&own.calls), told(&own.micros));
            let (rejected, failed) = (told(&own.rejected), told(&own.failed));
            if calls + rejected > 0 {
                let each = micros as f64 / calls.max(1) as f64;
                lines += &format!(
                    "cmdstat_{name}:calls={calls},usec={micros},usec_per_call={each:.2},\
                     rejected_calls={rejected},failed_calls={failed}\r\n"
                );
            }
        }
        lines
    }

    /// A line for each kind of error.
    pub(crate) fn error_lines(&self) -> String {
        let errors = self.errors.lock();
        let line = |(kind, times): (&String, &u64)| format!("errorstat_{kind}:count={times}\r\n");
        errors.iter().map(line).collect()
    }
}

impl Calling {
    /// A command has run for so long.
    #[inline]
    pub(crate) fn count(&mut self, calls: &Calls, command: usize, micros: u64) {
        if self.number != command {
            self.add_up(calls);
            self.number = command;
        }
        self.calls += 1;
        self.micros += micros;
    }

    /// Adds up what was counted.
    pub(crate) fn add_up(&mut self, calls: &Calls) {
        if self.calls > 0 {
            calls.add(self.number, self.calls, self.micros);
            (self.calls, self.micros) = (0, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_added_up_by_command() {
        let names = ["other", "get", "set"];
        let (calls, mut calling) = (Calls::new(names.len()), Calling::default());
        let (get, set) = (1, 2);
        for command in [get, get, set, get] {
            calling.count(&calls, command, 2);
        }
        calls.add_failed(set);
        calls.add_rejected(set);
        let gets = |calls: &Calls| {
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
        calls.reset();
        assert_eq!(
            calls.command_lines(names.into_iter()) + &calls.error_lines(),
            ""
        );
    }
}
