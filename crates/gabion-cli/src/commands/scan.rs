//! `scan`: records in key order.

use gabion::Iter;

use super::point::text_of;
use super::range;
use crate::args::ScanArguments;
use crate::failure::Failure;
use crate::output::Output;
use crate::store;

/// Prints the records that the arguments ask for.
pub(crate) fn run(arguments: &ScanArguments, output: &mut Output) -> Result<(), Failure> {
    let range = range::of(&arguments.range, arguments.notation)?;
    let db = store::open_reading(&arguments.store.db)?;
    let keyspace = store::existing_keyspace(&db, &arguments.store)?;
    if let Some(range) = range {
        print(keyspace.range(range), arguments, output)?;
    }
    Ok(db.close()?)
}

fn print(mut records: Iter, arguments: &ScanArguments, output: &mut Output) -> Result<(), Failure> {
    let notation = arguments.notation;
    for _ in 0..arguments.limit.unwrap_or(u64::MAX) {
        let record = match arguments.reverse {
            true => records.next_back(),
            false => records.next(),
        };
        let Some(record) = record else { break };
        let (key, value) = record?;
        let mut line = text_of(&key, notation);
        if !arguments.keys_only {
            line.push('\t');
            line.push_str(&text_of(&value, notation));
        }
        output.line(&line)?;
    }
    Ok(())
}
