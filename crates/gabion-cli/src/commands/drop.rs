//! `drop`: remove a keyspace.

use gabion::Options;
use gabion::text::bytes_text;
use serde_json::json;

use crate::args::DropArguments;
use crate::escape::escaped;
use crate::failure::Failure;
use crate::output::Output;
use crate::store;

/// Drops the keyspace that the arguments name and says what space that gave back.
pub(crate) fn run(arguments: &DropArguments, output: &mut Output) -> Result<(), Failure> {
    let db = store::open_existing(&arguments.db, Options::default())?;
    let before = db.stats().table_bytes;
    db.drop_keyspace(&arguments.keyspace)?;
    let after = db.stats().table_bytes;
    let keyspaces = db.keyspace_names();
    if arguments.json {
        output.json(&json!({
            "table_bytes_before": before,
            "table_bytes_after": after,
            "keyspaces": keyspaces,
        }))?;
    } else {
        output.line(&format!(
            "dropped: tables with {} became tables with {}; the keyspaces are {}",
            bytes_text(before),
            bytes_text(after),
            keyspaces
                .iter()
                .map(|name| escaped(name.as_bytes()))
                .collect::<Vec<_>>()
                .join(", ")
        ))?;
    }
    Ok(db.close()?)
}
