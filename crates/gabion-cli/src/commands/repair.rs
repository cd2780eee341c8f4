//! `repair`: what can be read of a damaged store becomes another store.

use gabion::Db;
use serde_json::json;

use super::check::print_problems;
use crate::args::TwoStoresArguments;
use crate::failure::Failure;
use crate::load::progress;
use crate::output::Output;
use crate::store;
use crate::text::counted;

/// Repairs a store and says what was saved and what is lost.
pub(crate) fn run(arguments: &TwoStoresArguments, output: &mut Output) -> Result<(), Failure> {
    store::require(&arguments.db)?;
    let report = gabion::repair(&arguments.db, &arguments.to)?;
    let db = Db::open(&arguments.to)?;
    progress::forget(&db)?;
    db.close()?;
    if arguments.json {
        return output.json(&json!({
            "entries": report.entries,
            "log_operations": report.log_operations,
            "problems": report.problems,
        }));
    }
    print_problems(&report.problems, output)?;
    output.line(&format!(
        "saved to {}: {} and {} of the log; {} lost",
        arguments.to.display(),
        counted(report.entries, "entry", "entries"),
        counted(report.log_operations, "operation", "operations"),
        counted(report.problems.len() as u64, "part is", "parts are")
    ))
}
