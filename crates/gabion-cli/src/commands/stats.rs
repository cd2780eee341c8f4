//! `stats`: what a store consists of.

use gabion::{KeyspaceStats, Options, Stats};
use gabion_lab::text::{bytes_text, count_text};

use crate::args::StatsArguments;
use crate::failure::Failure;
use crate::output::Output;
use crate::store;

/// Prints the figures of a store.
pub(crate) fn run(arguments: &StatsArguments, output: &mut Output) -> Result<(), Failure> {
    let db = store::open_existing(&arguments.db, Options::default())?;
    let stats = db.stats();
    match arguments.json {
        true => output.line(&stats.to_json())?,
        false => print(&stats, output)?,
    }
    Ok(db.close()?)
}

fn print(stats: &Stats, output: &mut Output) -> Result<(), Failure> {
    let garbage = &stats.garbage;
    let mut figures = vec![
        ("files on disk", bytes_text(stats.space_bytes)),
        ("live in tables, about", bytes_text(stats.live_bytes)),
        (
            "space amplification",
            format!(
                "{:.2}, with the log {:.2}",
                stats.space_amplification, stats.space_amplification_with_log
            ),
        ),
        (
            "garbage, about",
            format!(
                "{} old versions, {} deleted ranges, {} of split buckets, {} tombstones",
                bytes_text(garbage.old_version_bytes),
                bytes_text(garbage.deleted_range_bytes),
                bytes_text(garbage.shared_bytes),
                count_text(garbage.tombstones)
            ),
        ),
        ("log", bytes_text(stats.log_bytes)),
        ("files of the log", bytes_text(stats.log_file_bytes)),
        (
            "in memory, not yet in tables",
            bytes_text(stats.memtable_bytes),
        ),
        (
            "index and filters",
            bytes_text(stats.index_and_filter_bytes),
        ),
        (
            "all memory",
            match stats.memory.bytes_max {
                0 => bytes_text(stats.memory.bytes),
                most => format!("{} of {}", bytes_text(stats.memory.bytes), bytes_text(most)),
            },
        ),
        ("tables", count_text(stats.tables)),
        ("buckets", count_text(stats.buckets)),
        ("durability", stats.durability.clone()),
    ];
    if let Some(cause) = &stats.read_only {
        figures.push(("read-only since", cause.clone()));
    }
    output.figures(&figures)?;
    for keyspace in &stats.keyspaces {
        output.line("")?;
        print_keyspace(keyspace, output)?;
    }
    Ok(())
}

/// A line for the keyspace and one per level: how many tables of which size all its buckets have.
fn print_keyspace(keyspace: &KeyspaceStats, output: &mut Output) -> Result<(), Failure> {
    let buckets = &keyspace.buckets;
    let bytes = buckets
        .iter()
        .flat_map(|bucket| &bucket.levels)
        .flatten()
        .sum();
    output.line(&format!(
        "keyspace {}: {} in {} buckets",
        keyspace.name,
        bytes_text(bytes),
        count_text(buckets.len() as u64)
    ))?;
    let deepest = buckets
        .iter()
        .map(|bucket| bucket.levels.len())
        .max()
        .unwrap_or(0);
    for level in 0..deepest {
        let sublevels = || buckets.iter().filter_map(|bucket| bucket.levels.get(level));
        let bytes = sublevels().flatten().sum();
        let runs = sublevels().map(Vec::len).sum::<usize>();
        output.line(&format!(
            "  level {level}: {} in {} runs",
            bytes_text(bytes),
            count_text(runs as u64)
        ))?;
    }
    Ok(())
}
