//! `compact`: compacts a range of keys.

use gabion::text::{bytes_text, counted};
use gabion::{Db, Options};
use serde_json::json;

use super::range;
use crate::args::CompactArguments;
use crate::failure::Failure;
use crate::output::Output;
use crate::store;

/// Compacts the range that the arguments name and says what that gained.
pub(crate) fn run(arguments: &CompactArguments, output: &mut Output) -> Result<(), Failure> {
    let range = range::of(&arguments.range, arguments.notation)?;
    let options = Options::default().compression(arguments.compression);
    let db = store::open_existing(&arguments.store.db, options)?;
    let keyspace = store::existing_keyspace(&db, &arguments.store)?;
    let before = sizes(&db);
    if let Some(range) = range {
        keyspace.compact(range)?;
    }
    let after = sizes(&db);
    if arguments.json {
        output.json(&json!({
            "tables_before": before.0,
            "tables_after": after.0,
            "table_bytes_before": before.1,
            "table_bytes_after": after.1,
        }))?;
    } else {
        output.line(&format!(
            "compacted: {} with {} became {} with {}",
            counted(before.0, "table", "tables"),
            bytes_text(before.1),
            counted(after.0, "table", "tables"),
            bytes_text(after.1)
        ))?;
    }
    Ok(db.close()?)
}

/// Number and bytes of the tables.
fn sizes(db: &Db) -> (u64, u64) {
    let stats = db.stats();
    (stats.tables, stats.table_bytes)
}
