//! `dump`: all records of a keyspace as text that `load` reads back.
//!
//! ```text
//! #gabion-dump 1
//! <escaped key> TAB <escaped value>      one line per record, in key order if there is one
//! #gabion-dump end, records: <count>
//! ```
//!
//! The first and the last line hold no tab, so no record can look like them.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use gabion::{Keyspace, Options};

use crate::args::DumpArguments;
use crate::escape::escape;
use crate::failure::Failure;
use crate::output::Output;
use crate::store;

/// The first line of every dump.
pub(crate) const FIRST_LINE: &str = "#gabion-dump 1";
/// The last line of every dump, without the number of records that follows.
pub(crate) const LAST_LINE: &str = "#gabion-dump end, records: ";

/// Writes the dump that the arguments ask for.
pub(crate) fn run(arguments: &DumpArguments, output: &mut Output) -> Result<(), Failure> {
    let db = store::open_existing(&arguments.store.db, Options::default())?;
    let keyspace = store::existing_keyspace(&db, &arguments.store)?;
    if arguments.file == Path::new("-") {
        lines(&keyspace, |line| output.bytes(line))?;
    } else {
        to_file(&keyspace, &arguments.file)?;
    }
    Ok(db.close()?)
}

fn to_file(keyspace: &Keyspace, path: &Path) -> Result<(), Failure> {
    let file = File::create_new(path).map_err(|error| Failure::file("make", path, &error))?;
    fill(keyspace, path, file).inspect_err(|_| {
        // A part of a dump is of no use. The first error is the one to tell.
        let _ = std::fs::remove_file(path);
    })
}

fn fill(keyspace: &Keyspace, path: &Path, file: File) -> Result<(), Failure> {
    let mut file = BufWriter::with_capacity(1 << 20, file);
    let refused = |error: &std::io::Error| Failure::file("write to", path, error);
    lines(keyspace, |line| {
        file.write_all(line).map_err(|error| refused(&error))
    })?;
    file.flush().map_err(|error| refused(&error))?;
    file.get_ref().sync_all().map_err(|error| refused(&error))
}

/// Gives every line of the dump to `write`.
fn lines(
    keyspace: &Keyspace,
    mut write: impl FnMut(&[u8]) -> Result<(), Failure>,
) -> Result<(), Failure> {
    write(format!("{FIRST_LINE}\n").as_bytes())?;
    let mut line = String::new();
    let mut records = 0u64;
    for record in keyspace.pairs() {
        let (key, value) = record?;
        line.clear();
        escape(&key, &mut line);
        line.push('\t');
        escape(&value, &mut line);
        line.push('\n');
        write(line.as_bytes())?;
        records += 1;
    }
    write(format!("{LAST_LINE}{records}\n").as_bytes())
}
