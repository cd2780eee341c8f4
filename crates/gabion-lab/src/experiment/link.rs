//! The trial's side of the link to the run.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::time::Duration;

use rustix::process::{Signal, set_parent_process_death_signal};

use super::Message;
use crate::Error;
use crate::plan::{Trial, TrialEnd, TrialLink};
use crate::result::PhaseResult;
use crate::run::Turns;
use crate::targets::Registry;

/// Reads a trial from `input`, runs it, and writes a line for each phase. What `input` has after
/// the trial are its turns, a line each.
///
/// # Errors
/// When the trial cannot be read. A trial that fails is told in a line.
pub fn serve(registry: &Registry, input: impl Read, output: &mut impl Write) -> Result<(), Error> {
    let mut input = BufReader::new(input);
    let mut text = String::new();
    let read = input
        .read_line(&mut text)
        .map_err(|error| error.to_string());
    let trial: Trial = read
        .and_then(|_| serde_json::from_str(&text).map_err(|error| error.to_string()))
        .map_err(|why| Error::Request(format!("cannot read the trial: {why}")))?;
    // A run that is killed must not leave this process behind: stopped for ever, or at work beside
    // the next run. Where the system does not do that, somebody has to end it by hand.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    let mut link = Pipes {
        input,
        output,
        turn: trial.turn_ms.map(Duration::from_millis),
    };
    match trial.run(registry, &mut link) {
        Ok(TrialEnd::Closed) => Ok(()),
        Ok(TrialEnd::ToBeKilled) => {
            link.say(&Message::Kill)?;
            // Nothing may run that a killed process does not do: not even the end of `main`.
            loop {
                std::thread::park();
            }
        }
        Err(error) => link.say(&Message::Failed(error.to_string())),
    }
}

/// What leads to the run.
struct Pipes<'o, I, O> {
    input: I,
    output: &'o mut O,
    turn: Option<Duration>,
}

impl<I: BufRead, O: Write> Pipes<'_, I, O> {
    fn say(&mut self, message: &Message) -> Result<(), Error> {
        let text = serde_json::to_string(message).expect("figures always become JSON");
        writeln!(self.output, "{text}")
            .and_then(|()| self.output.flush())
            .map_err(|source| Error::file("write to", Path::new("the pipe of results"), source))
    }
}

impl<I: BufRead, O: Write> Turns for Pipes<'_, I, O> {
    fn length(&self) -> Option<Duration> {
        self.turn
    }

    fn take(&mut self) -> Result<(), Error> {
        if self.turn.is_none() {
            return Ok(());
        }
        let mut line = String::new();
        let read = self.input.read_line(&mut line);
        let bytes =
            read.map_err(|source| Error::file("read", Path::new("the pipe of turns"), source))?;
        match bytes {
            0 => Err(Error::Request("nobody gives turns any more".to_owned())),
            _ => Ok(()),
        }
    }

    fn give(&mut self) -> Result<(), Error> {
        match self.turn {
            Some(_) => self.say(&Message::TurnOver),
            None => Ok(()),
        }
    }
}

impl<I: BufRead, O: Write> TrialLink for Pipes<'_, I, O> {
    fn tell(&mut self, result: &PhaseResult) -> Result<(), Error> {
        self.say(&Message::Phase(Box::new(result.clone())))
    }
}
