//! `dump`: all records of a keyspace as text that `load` reads back.

use std::path::Path;
use std::time::UNIX_EPOCH;

use gabion::{Cursor, Db, Keyspace};

use crate::args::DumpArguments;
use crate::dump;
use crate::failure::Failure;
use crate::new_file::NewFile;
use crate::output::Output;
use crate::store;

/// Writes the dump that the arguments ask for.
pub(crate) fn run(arguments: &DumpArguments, output: &mut Output) -> Result<(), Failure> {
    let db = store::open_reading(&arguments.store.db)?;
    let keyspace = store::existing_keyspace(&db, &arguments.store)?;
    if arguments.file == Path::new("-") {
        lines(&db, &keyspace, |line| output.bytes(line))?;
    } else {
        let mut file = NewFile::create(&arguments.file, dump::NAME)?;
        lines(&db, &keyspace, |line| file.write(line))?;
        file.finish()?;
    }
    Ok(db.close()?)
}

/// When the pair of a cursor expires, in milliseconds since 1970.
fn moment(cursor: &Cursor) -> Option<u64> {
    let since = cursor.expires_at()?.duration_since(UNIX_EPOCH);
    u64::try_from(since.unwrap_or_default().as_millis()).ok()
}

/// Gives every line of the dump to `write`.
fn lines(
    db: &Db,
    keyspace: &Keyspace,
    write: impl FnMut(&[u8]) -> Result<(), Failure>,
) -> Result<(), Failure> {
    if !db.engine().capabilities().expiry {
        let plain = |(key, value)| (key, value, None);
        let records = keyspace.pairs().map(|record| Ok(plain(record?)));
        return dump::write(records, write);
    }
    let mut cursor = keyspace.cursor::<&[u8]>(..);
    let records = std::iter::from_fn(|| {
        let moved = cursor.advance().map_err(Failure::from);
        let record = |()| {
            (
                cursor.key().to_vec(),
                cursor.value().to_vec(),
                moment(&cursor),
            )
        };
        moved
            .map(|is_pair| is_pair.then_some(()))
            .transpose()
            .map(|own| own.map(record))
    });
    dump::write(records, write)
}
