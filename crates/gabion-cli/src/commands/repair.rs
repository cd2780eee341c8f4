//! `repair`: what can be read of a damaged store becomes another store.

use gabion_lab::text::count_text;
use serde_json::json;

use super::check::print_problems;
use crate::args::TwoStoresArguments;
use crate::failure::Failure;
use crate::output::Output;
use crate::store;

/// Repairs a store and says what was saved and what is lost.
pub(crate) fn run(arguments: &TwoStoresArguments, output: &mut Output) -> Result<(), Failure> {
    store::require(&arguments.db)?;
    let report = gabion::repair(&arguments.db, &arguments.to)?;
    if arguments.json {
        return output.json(&json!({
            "entries": report.entries,
            "log_operations": report.log_operations,
            "problems": report.problems,
        }));
    }
    print_problems(&report.problems, output)?;
    output.line(&format!(
        "saved to {}: {} entries and {} operations of the log; {} parts are lost",
        arguments.to.display(),
        count_text(report.entries),
        count_text(report.log_operations),
        count_text(report.problems.len() as u64)
    ))
}
