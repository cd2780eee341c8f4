//! `repair`: saves what is readable of a damaged store to a new store.

use gabion::text::counted;
use gabion::{Db, LostEntries};
use serde_json::json;

use super::check::print_problems;
use crate::args::TwoStoresArguments;
use crate::escape::escaped;
use crate::failure::Failure;
use crate::load::progress;
use crate::output::Output;
use crate::store;

/// Repairs a store and says what was saved and what is lost. That something is lost is a failure,
/// though the new store is there.
pub(crate) fn run(arguments: &TwoStoresArguments, output: &mut Output) -> Result<(), Failure> {
    store::require(&arguments.db)?;
    let report = gabion::repair(&arguments.db, &arguments.to)?;
    let db = Db::open(&arguments.to)?;
    progress::forget(&db)?;
    db.close()?;
    let to = arguments.to.display();
    let shown = if arguments.json {
        output.json(&json!({
            "entries": report.entries,
            "log_operations": report.log_operations,
            "problems": report.problems,
            "lost": report.lost.iter().map(json_of).collect::<Vec<_>>(),
        }))
    } else {
        print_problems(&report.problems, output).and_then(|()| {
            let mut lost = report.lost.iter();
            lost.try_for_each(|lost| output.line(&format!("lost: {}", sentence_of(lost))))?;
            output.line(&format!(
                "saved to {to}: {} and {} of the log; {}",
                counted(report.entries, "entry", "entries"),
                counted(report.log_operations, "operation", "operations"),
                match report.lost.len() {
                    0 => "nothing is lost".to_owned(),
                    parts => format!("{} lost", counted(parts as u64, "part is", "parts are")),
                }
            ))
        })
    };
    let shown = shown.and_then(|()| output.flush());
    // The verdict counts for more than whether somebody read it to its end.
    match report.lost.is_empty() {
        true => shown,
        false => Err(Failure::new(format!(
            "not all of the store could be saved; {to} has the rest, and a copy of the store from \
             before the damage has what is lost"
        ))),
    }
}

fn json_of(lost: &LostEntries) -> serde_json::Value {
    let key = |key: &Option<Vec<u8>>| key.as_deref().map(escaped);
    json!({
        "keyspace": lost.keyspace,
        "above": key(&lost.above),
        "below": key(&lost.below),
        "entries": lost.entries,
        "entries_max": lost.entries_max,
    })
}

/// How much is lost, and where it was.
fn sentence_of(lost: &LostEntries) -> String {
    let entries = |count| counted(count, "entry", "entries");
    let how_many = match (lost.entries, lost.entries_max) {
        (Some(count), _) => entries(count),
        (None, Some(most)) => format!("up to {}", entries(most)),
        (None, None) => "an unknown number of entries".to_owned(),
    };
    let key = |key: &[u8]| format!("\"{}\"", escaped(key));
    let place = match (&lost.above, &lost.below) {
        (Some(above), Some(below)) => {
            format!(", between the keys {} and {}", key(above), key(below))
        }
        (Some(above), None) => format!(", above the key {}", key(above)),
        (None, Some(below)) => format!(", below the key {}", key(below)),
        (None, None) => String::new(),
    };
    match &lost.keyspace {
        Some(name) => format!(
            "{how_many} of the keyspace {}{place}",
            escaped(name.as_bytes())
        ),
        None => format!("{how_many} of any keyspace{place}"),
    }
}
