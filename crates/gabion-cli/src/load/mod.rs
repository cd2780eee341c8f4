//! `load`: a file's records into a store.
//!
//! [`source`] opens the file and chooses its form; [`delimited`] and [`lines`] read the forms;
//! [`progress`] remembers how far a file has been loaded.
//!
//! I1. The records of a batch and the progress that covers them are one atomic write, so what the
//!     store says about a file is true after any crash.
//! I2. A record that cannot be read or kept stops the load only after everything before it has
//!     been written.

mod delimited;
mod lines;
pub(crate) mod progress;
mod source;
mod summary;

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use gabion::{Db, Durability, Keyspace, WriteBatch};
use gabion_lab::measure::ProcessUse;
use gabion_lab::text::{bytes_text, count_text};
use indicatif::{ProgressBar, ProgressStyle};

use crate::args::LoadArguments;
use crate::failure::Failure;
use crate::output::{Output, tell};
use crate::store;
use progress::{Ledger, Progress};
use source::{Place, Source};
use summary::Summary;

/// A batch holds at most this many bytes of keys and values, or one record.
const BATCH_BYTES_MAX: usize = 1 << 20;
/// How often the progress bar is drawn anew.
const BAR_REDRAWS_PER_SECOND: u8 = 5;

/// A key with its value, in buffers that are used again.
#[derive(Debug, Default)]
struct Record {
    key: Vec<u8>,
    value: Vec<u8>,
}

/// Loads the file that the arguments name and prints the summary.
pub(crate) fn run(arguments: &LoadArguments, output: &mut Output) -> Result<(), Failure> {
    if arguments.batch == 0 {
        return Err(Failure::usage("--batch must be at least 1"));
    }
    let input = source::Input::open(&arguments.file)?;
    let form = source::Form::of(&input, arguments)?;
    // What cannot be loaded at all is refused before a store is made for it.
    let mut source = Source::open(&input, &form, None)?;

    let durability = arguments.durability.durability;
    let options = arguments
        .make
        .options()?
        .durability(durability)
        .compression(arguments.compression);
    let db = options.open(&arguments.store.db)?;
    let keyspace = store::keyspace(&db, &arguments.store)?;
    let ledger = match input.identity() {
        Some(identity) => Some(Ledger::open(&db, &keyspace, identity, &form)?),
        None => None,
    };
    let earlier = match &ledger {
        Some(ledger) => ledger.read()?,
        None => None,
    };
    if let Some(earlier) = &earlier {
        source = Source::open(&input, &form, Some(earlier.place))?;
        tell(&format!(
            "gabion: going on where an earlier load of {} stopped, after {} records and {}",
            arguments.file.display(),
            count_text(earlier.records),
            bytes_text(earlier.place.offset)
        ));
    }

    let process_before = ProcessUse::now();
    let begin = Instant::now();
    let start = earlier.map_or(Place::START, |earlier| earlier.place);
    let mut load = Load {
        db: &db,
        keyspace: &keyspace,
        ledger,
        batch: WriteBatch::new(),
        batch_bytes: 0,
        records: 0,
        records_earlier: earlier.map_or(0, |earlier| earlier.records),
        written_to: source.place(),
        bar: progress_bar(input.length(), start),
    };
    load.all(&mut source, arguments)?;
    load.bar.finish_and_clear();
    db.persist(Durability::Sync)?;
    let seconds = begin.elapsed();
    if arguments.flush {
        db.flush()?;
    }
    db.wait_idle()?;

    let summary = Summary {
        file: &arguments.file,
        db: &arguments.store.db,
        records: load.records,
        records_earlier: load.records_earlier,
        seconds,
        bytes_in: source.place().offset - start.offset,
        durability: durability.to_string(),
        stats: db.stats(),
        process: (process_before, ProcessUse::now()),
    };
    summary.print(arguments.json, output)?;
    Ok(db.close()?)
}

/// A bar on standard error if a person watches it.
fn progress_bar(length: Option<u64>, start: Place) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let (bar, template) = match length {
        Some(length) => (
            ProgressBar::new(length),
            "{bar:40} {bytes}/{total_bytes} {bytes_per_sec} {msg} ETA {eta}",
        ),
        None => (
            ProgressBar::no_length(),
            "{spinner} {bytes} {bytes_per_sec} {msg}",
        ),
    };
    let bar = bar.with_position(start.offset);
    bar.set_draw_target(indicatif::ProgressDrawTarget::stderr_with_hz(
        BAR_REDRAWS_PER_SECOND,
    ));
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

/// A load under way.
struct Load<'a> {
    db: &'a Db,
    keyspace: &'a Keyspace,
    ledger: Option<Ledger>,
    batch: WriteBatch,
    batch_bytes: usize,
    records: u64,
    records_earlier: u64,
    /// Everything before this place of the file is in the store or in the batch.
    written_to: Place,
    bar: ProgressBar,
}

impl Load<'_> {
    /// Loads everything that is left of the file.
    fn all(&mut self, source: &mut Source, arguments: &LoadArguments) -> Result<(), Failure> {
        let mut record = Record::default();
        loop {
            match source.next(&mut record) {
                Ok(true) => {}
                Ok(false) => return self.write(true),
                Err(failure) => return Err(self.stopped(&failure)),
            }
            let bytes = record.key.len() + record.value.len();
            if !self.batch.is_empty() && self.batch_bytes + bytes > BATCH_BYTES_MAX {
                self.write(false)?;
            }
            if let Err(error) = self.batch.put(self.keyspace, &record.key, &record.value) {
                return Err(self.stopped(&source.wrong(&error.to_string())));
            }
            self.batch_bytes += bytes;
            self.records += 1;
            self.written_to = source.place();
            if self.batch.len() as u64 >= arguments.batch || self.batch_bytes >= BATCH_BYTES_MAX {
                self.write(false)?;
            }
        }
    }

    /// Writes what comes before a record that is not to be had; why the load ends.
    fn stopped(&mut self, failure: &Failure) -> Failure {
        if let Err(refused) = self.write(false) {
            return refused;
        }
        self.bar.abandon();
        Failure::new(format!(
            "{failure}; {} records before it are in the store, and the same command loads the \
             rest once the file is mended",
            self.records_earlier + self.records
        ))
    }

    /// Writes the batch together with the progress that it makes. A load that is done leaves no
    /// progress behind: the same command later loads the file again.
    fn write(&mut self, done: bool) -> Result<(), Failure> {
        if self.batch.is_empty() && !done {
            return Ok(());
        }
        let mut batch = std::mem::replace(&mut self.batch, WriteBatch::new());
        if let Some(ledger) = &self.ledger {
            match done {
                true => ledger.clear(&mut batch)?,
                false => ledger.record(
                    &mut batch,
                    &Progress {
                        place: self.written_to,
                        records: self.records_earlier + self.records,
                    },
                )?,
            }
        }
        self.db.write(batch)?;
        self.batch_bytes = 0;
        self.bar.set_position(self.written_to.offset);
        self.bar
            .set_message(format!("{} records", self.records_earlier + self.records));
        Ok(())
    }
}
