//! `check`: verifies every byte of a store.

use gabion::text::{bytes_text, counted};
use gabion::{CheckReport, Problem};
use serde_json::json;

use crate::args::CheckArguments;
use crate::failure::Failure;
use crate::output::Output;
use crate::store;

/// Verifies a store and prints what is damaged.
pub(crate) fn run(arguments: &CheckArguments, output: &mut Output) -> Result<(), Failure> {
    store::require(&arguments.db)?;
    let report = gabion::check(&arguments.db)?;
    let shown = show(&report, arguments, output);
    // The verdict counts for more than whether somebody read it to its end.
    match report.problems.len() {
        0 => shown,
        1 => Err(Failure::new(
            "the store has a damaged part; restore the file from a copy",
        )),
        many => Err(Failure::new(format!(
            "the store has {many} damaged parts; restore the files from a copy"
        ))),
    }
}

fn show(
    report: &CheckReport,
    arguments: &CheckArguments,
    output: &mut Output,
) -> Result<(), Failure> {
    if arguments.json {
        output.json(&json!({
            "tables": report.tables,
            "entries": report.entries,
            "table_bytes": report.table_bytes,
            "log_segments": report.log_segments,
            "log_operations": report.log_operations,
            "problems": report.problems,
        }))?;
    } else {
        print_problems(&report.problems, output)?;
        output.line(&format!(
            "checked: {} with {} in {}, {} with {}",
            counted(report.tables, "table", "tables"),
            counted(report.entries, "entry", "entries"),
            bytes_text(report.table_bytes),
            counted(report.log_segments, "log segment", "log segments"),
            counted(report.log_operations, "operation", "operations")
        ))?;
    }
    output.flush()
}

/// Prints problems, one to a line.
pub(crate) fn print_problems(problems: &[Problem], output: &mut Output) -> Result<(), Failure> {
    for Problem {
        file, offset, what, ..
    } in problems
    {
        let offset = offset.map_or(String::new(), |at| format!(", offset {at}"));
        output.line(&format!("{}{offset}: {what}", file.display()))?;
    }
    Ok(())
}
