//! `checkpoint`: copies a store, as of one moment, to a new store.

use gabion::Options;
use gabion::text::{bytes_text, counted};
use serde_json::json;

use crate::args::TwoStoresArguments;
use crate::failure::Failure;
use crate::output::Output;
use crate::store;

/// Writes the checkpoint and says where it is and how large its files are.
pub(crate) fn run(arguments: &TwoStoresArguments, output: &mut Output) -> Result<(), Failure> {
    let db = store::open_existing(&arguments.db, Options::default())?;
    db.checkpoint(&arguments.to)?;
    db.close()?;
    let list = |error| Failure::file("list", &arguments.to, &error);
    let (mut files, mut bytes) = (0_u64, 0);
    for entry in std::fs::read_dir(&arguments.to).map_err(list)? {
        bytes += entry
            .and_then(|entry| entry.metadata())
            .map_err(list)?
            .len();
        files += 1;
    }
    if arguments.json {
        output.json(&json!({ "files": files, "bytes": bytes }))?;
    } else {
        output.line(&format!(
            "checkpoint of {} in {}: {} with {}",
            arguments.db.display(),
            arguments.to.display(),
            counted(files, "file", "files"),
            bytes_text(bytes)
        ))?;
    }
    Ok(())
}
