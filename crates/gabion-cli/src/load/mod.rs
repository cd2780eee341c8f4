//! `load`: a file's records into a store.
//!
//! [`input`] opens the file, and [`unpack`] makes text of its bytes; [`source`] chooses its form;
//! [`delimited`] and [`lines`] read the forms; [`progress`] remembers how far a file has been
//! loaded. [`rdb`] hands a file of Redis to the server's crate, which has a store of its own form.
//!
//! I1. The records of a batch and the progress that covers them are one atomic write, so what the
//!     store says about a file is true after any crash.
//! I2. A record that cannot be read or kept stops the load only after everything before it has
//!     been written.
//! I3. Of a dump that can be read twice, nothing is written before all of it has been checked. What
//!     comes through a pipe is checked at its end.
//! I4. The end of the file is its end, and a place in it is known by all bytes before it: nothing
//!     that stands in a file is a mark of the loader's.

mod columns;
mod delimited;
mod input;
mod lines;
pub(crate) mod progress;
#[cfg(feature = "server")]
mod rdb;
mod source;
mod summary;
mod unpack;

#[cfg(test)]
mod tests;

use std::time::{Duration, Instant, UNIX_EPOCH};

use gabion::text::{bytes_text, counted};
use gabion::{Db, Durability, Expiry, Keyspace, WriteBatch};
use gabion_media::process_written_bytes;
use indicatif::ProgressBar;

use crate::args::{Format, LoadArguments};
use crate::bar;
use crate::failure::Failure;
use crate::output::{Output, tell};
use crate::store;
use input::{Input, Place, Record};
use progress::{Ledger, Progress};
use source::{Form, Source};
use summary::Summary;

/// A batch holds at most this many bytes of keys and values, or one record.
const BATCH_BYTES_MAX: usize = 1 << 20;

/// Loads the file that the arguments name and prints the summary.
pub(crate) fn run(arguments: &LoadArguments, output: &mut Output) -> Result<(), Failure> {
    if arguments.batch == 0 {
        return Err(Failure::usage("--batch must be at least 1"));
    }
    let input = Input::open(&arguments.file, arguments.raw)?;
    let format = source::format(&input, arguments)?;
    if format == Format::Rdb {
        #[cfg(feature = "server")]
        return rdb::run(&input, arguments, output);
        #[cfg(not(feature = "server"))]
        return Err(Failure::without_the_server());
    }
    let form = Form::of(format, arguments)?;
    // What cannot be loaded at all is refused before a store is made for it.
    let mut source = Source::open(&input, &form)?;
    let is_checked = form == Form::Dump && input.canonical().is_some();
    if is_checked {
        check(source, input.length())?;
        source = Source::open(&input, &form)?;
    }

    let durability = arguments.durability.durability;
    let options = arguments
        .make
        .options()?
        .durability(durability)
        .compression(arguments.compression);
    let db = options.open(&arguments.store.db)?;
    let keyspace = store::keyspace(&db, &arguments.store)?;
    let ledger = match input.canonical() {
        Some(path) => {
            let settings = format!("{form:?}, raw: {}", input.is_raw());
            Some(Ledger::open(&db, &keyspace, path, settings)?)
        }
        None => None,
    };
    let earlier = match &ledger {
        Some(ledger) => ledger.read()?,
        None => None,
    };
    let (mut source, earlier) = match earlier {
        Some(earlier) => go_on(source, &earlier, &input, &form)?,
        None => (source, None),
    };

    let process_before = process_written_bytes();
    let begin = Instant::now();
    let mut load = Load {
        db: &db,
        keyspace: &keyspace,
        ledger,
        batch: WriteBatch::new(),
        batch_bytes: 0,
        records: 0,
        records_earlier: earlier.unwrap_or(0),
        value_bytes_max: db.engine().capabilities().value_bytes_max,
        ttl: arguments.ttl.ttl(),
        is_unchecked: form == Form::Dump && !is_checked,
        bar: bar::new(input.length()),
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
        bytes_in: source.text().read(),
        durability: durability.to_string(),
        stats: db.stats(),
        process: (process_before, process_written_bytes()),
    };
    summary.print(arguments.json, output)?;
    Ok(db.close()?)
}

/// The source behind what an earlier load came to, and the records before that; the source from its
/// start if the file begins otherwise by now.
fn go_on<'a>(
    mut source: Source<'a>,
    earlier: &Progress,
    input: &'a Input,
    form: &Form,
) -> Result<(Source<'a>, Option<u64>), Failure> {
    if source.go_on(earlier)? {
        tell(&format!(
            "gabion: continuing where an earlier load of {} stopped, after {} and {}",
            input.name(),
            counted(earlier.records, "record", "records"),
            bytes_text(earlier.place.offset)
        ));
        return Ok((source, Some(earlier.records)));
    }
    tell(&format!(
        "gabion: {} has changed since an earlier load of it stopped, so all of it is loaded",
        input.name()
    ));
    Ok((Source::open(input, form)?, None))
}

/// Reads a dump to its end, to see whether it is whole.
fn check(mut source: Source, length: Option<u64>) -> Result<(), Failure> {
    let bar = bar::new(length);
    bar.set_message("checked");
    let mut record = Record::default();
    loop {
        match source.next(&mut record) {
            Ok(true) => bar.set_position(source.text().read()),
            Ok(false) => {
                bar.finish_and_clear();
                return Ok(());
            }
            Err(failure) => {
                bar.abandon();
                let sentence = format!("{failure}; nothing of the dump was loaded");
                return Err(Failure::new(sentence));
            }
        }
    }
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
    /// Bytes that a value may have in the store.
    value_bytes_max: u64,
    /// How long records are there of which the file does not say it, if they expire.
    ttl: Option<Duration>,
    /// It is a dump whose end has not been seen.
    is_unchecked: bool,
    bar: ProgressBar,
}

impl Load<'_> {
    /// Loads everything that is left of the file.
    fn all(&mut self, source: &mut Source, arguments: &LoadArguments) -> Result<(), Failure> {
        let mut record = Record::default();
        loop {
            match source.next(&mut record) {
                Ok(true) => {}
                Ok(false) => return self.write(source, None),
                Err(failure) => return Err(self.stopped(source, &failure)),
            }
            let bytes = record.key.len() + record.value.len();
            if !self.batch.is_empty() && self.batch_bytes + bytes > BATCH_BYTES_MAX {
                self.write(source, Some(source.place_before()))?;
            }
            if let Err(what) = self.take(&record) {
                let failure = source.wrong(&what);
                return Err(self.stopped(source, &failure));
            }
            self.batch_bytes += bytes;
            self.records += 1;
            if self.batch.len() as u64 >= arguments.batch || self.batch_bytes >= BATCH_BYTES_MAX {
                self.write(source, Some(source.place()))?;
            }
        }
    }

    /// Adds a record to the batch, or says what is wrong with it.
    fn take(&mut self, record: &Record) -> Result<(), String> {
        let size = record.value.len() as u64;
        if size > self.value_bytes_max {
            return Err(format!(
                "the value has {size} bytes; the limit of the store's engine is {}",
                self.value_bytes_max
            ));
        }
        let (key, value) = (&record.key, &record.value);
        let own = record.expires.map(|moment| {
            let since = Duration::from_millis(moment);
            Expiry::At(UNIX_EPOCH.checked_add(since).unwrap_or(UNIX_EPOCH))
        });
        let put = match own.or(self.ttl.map(Expiry::After)) {
            Some(expiry) => self.batch.put_expiring(self.keyspace, key, value, expiry),
            None => self.batch.put(self.keyspace, key, value),
        };
        put.map_err(|error| error.to_string())
    }

    /// Writes what comes before a record that is not to be had; why the load ends.
    fn stopped(&mut self, source: &Source, failure: &Failure) -> Failure {
        if let Err(refused) = self.write(source, Some(source.place_before())) {
            return refused;
        }
        self.bar.abandon();
        let records = self.records_earlier + self.records;
        let are = if records == 1 { "is" } else { "are" };
        let records = counted(records, "record", "records");
        Failure::new(match self.is_unchecked {
            true => format!(
                "{failure}; {records} before it {are} in the store, and may be wrong: load the \
                 dump from a file instead of a pipe, and nothing is loaded unless all of it is \
                 whole"
            ),
            false => format!(
                "{failure}; {records} before it {are} in the store: fix the file, and the same \
                 command loads the rest"
            ),
        })
    }

    /// Writes the batch together with the place that the load comes to by it. A load that is done
    /// has none and leaves no progress behind: the same command later loads the file again.
    fn write(&mut self, source: &Source, place: Option<Place>) -> Result<(), Failure> {
        if self.batch.is_empty() && place.is_some() {
            return Ok(());
        }
        let mut batch = std::mem::replace(&mut self.batch, WriteBatch::new());
        if let Some(ledger) = &self.ledger {
            let records = self.records_earlier + self.records;
            match place {
                None => ledger.clear(&mut batch)?,
                Some(place) => ledger.record(&mut batch, &Progress { place, records })?,
            }
        }
        self.db.write(batch)?;
        self.batch_bytes = 0;
        self.bar.set_position(source.text().read());
        let records = self.records_earlier + self.records;
        self.bar.set_message(counted(records, "record", "records"));
        Ok(())
    }
}
