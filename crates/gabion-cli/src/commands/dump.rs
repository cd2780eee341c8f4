//! `dump`: all records of a keyspace as text that `load` reads back.

use std::path::Path;

use gabion::{Keyspace, Options};

use crate::args::DumpArguments;
use crate::dump;
use crate::failure::Failure;
use crate::new_file::NewFile;
use crate::output::Output;
use crate::store;

/// Writes the dump that the arguments ask for.
pub(crate) fn run(arguments: &DumpArguments, output: &mut Output) -> Result<(), Failure> {
    let db = store::open_existing(&arguments.store.db, Options::default())?;
    let keyspace = store::existing_keyspace(&db, &arguments.store)?;
    if arguments.file == Path::new("-") {
        lines(&keyspace, |line| output.bytes(line))?;
    } else {
        let mut file = NewFile::create(&arguments.file, dump::NAME)?;
        lines(&keyspace, |line| file.write(line))?;
        file.finish()?;
    }
    Ok(db.close()?)
}

/// Gives every line of the dump to `write`.
fn lines(
    keyspace: &Keyspace,
    write: impl FnMut(&[u8]) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let records = keyspace.pairs();
    dump::write(records.map(|record| record.map_err(Failure::from)), write)
}
