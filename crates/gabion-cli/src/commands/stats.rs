//! `stats`: statistics of a store.

use gabion::text::{bytes_text, count_text, counted};
use gabion::{KeyspaceStats, MappedStats, Stats};

use crate::args::StatsArguments;
use crate::escape::escaped;
use crate::failure::Failure;
use crate::output::Output;
use crate::store;

/// Prints the figures of a store.
pub(crate) fn run(arguments: &StatsArguments, output: &mut Output) -> Result<(), Failure> {
    let db = store::open_reading(&arguments.db)?;
    let stats = db.stats();
    match arguments.json {
        true => output.json_text(&stats.to_json())?,
        false => print(&stats, output)?,
    }
    Ok(db.close()?)
}

/// The bytes written without the log for each byte put since the opening, and what bounds them.
fn amplification_text(stats: &Stats) -> String {
    let measured = match stats.user_bytes {
        0 => "nothing was put since the opening".to_owned(),
        _ => format!("{:.2}", stats.write_amplification_without_log),
    };
    match stats.write_amplification_bound {
        Some(bound) => format!("{measured}; a fill writes {bound:.2} at most, without the log"),
        None => format!("{measured}; without a bound"),
    }
}

/// The memory in use, the ceiling, and how much of that MemTables and the cache may have now.
fn memory_text(stats: &Stats) -> String {
    let memory = &stats.memory;
    match memory.bytes_max {
        0 => bytes_text(memory.bytes),
        most => format!(
            "{} of {}; MemTables up to {}, the cache up to {}",
            bytes_text(memory.bytes),
            bytes_text(most),
            bytes_text(memory.memtables_max),
            bytes_text(stats.cache.bytes_max)
        ),
    }
}

fn print(stats: &Stats, output: &mut Output) -> Result<(), Failure> {
    if let Some(mapped) = &stats.mapped {
        return print_mapped(stats, mapped, output);
    }
    let garbage = &stats.garbage;
    let mut figures = vec![
        ("files on disk", bytes_text(stats.space_bytes)),
        ("live in tables, about", bytes_text(stats.live_bytes)),
        (
            "space amplification",
            match stats.live_bytes {
                0 => "nothing is in tables yet".to_owned(),
                _ => format!(
                    "{:.2}, with the log {:.2}",
                    stats.space_amplification, stats.space_amplification_with_log
                ),
            },
        ),
        (
            "garbage, about",
            format!(
                "{} old versions, {} deleted ranges, {} of split buckets, {} expired, {}",
                bytes_text(garbage.old_version_bytes),
                bytes_text(garbage.deleted_range_bytes),
                bytes_text(garbage.shared_bytes),
                bytes_text(garbage.expired_bytes),
                counted(garbage.tombstones, "tombstone", "tombstones")
            ),
        ),
        ("written per byte put", amplification_text(stats)),
        ("log", bytes_text(stats.log_bytes)),
        ("files of the log", bytes_text(stats.log_file_bytes)),
        (
            "of these kept for consumers",
            bytes_text(stats.log_bytes_kept_for_consumers),
        ),
        (
            "in memory, not yet in tables",
            bytes_text(stats.memtable_bytes),
        ),
        (
            "index and filters",
            bytes_text(stats.index_and_filter_bytes),
        ),
        ("all memory", memory_text(stats)),
        ("tables", count_text(stats.tables)),
        ("buckets", count_text(stats.buckets)),
        ("durability", stats.durability.clone()),
    ];
    if let Some(cause) = &stats.read_only {
        figures.push(("read-only since", cause.clone()));
    }
    if let Some(lag) = &stats.follower {
        let writes = counted(lag.lag_writes, "write", "writes");
        let behind = format!("{writes}, {}", bytes_text(lag.lag_bytes));
        figures.push(("behind the writer", behind));
    }
    output.figures(&figures)?;
    for keyspace in &stats.keyspaces {
        output.line("")?;
        print_keyspace(keyspace, output)?;
    }
    Ok(())
}

/// The figures of a store that is a mapped file.
fn print_mapped(stats: &Stats, mapped: &MappedStats, output: &mut Output) -> Result<(), Failure> {
    let mut figures = vec![
        ("file", mapped.file.clone()),
        ("it survives", mapped.class.to_owned()),
        ("in use", bytes_text(stats.space_bytes)),
        ("its size at most", bytes_text(mapped.file_bytes_max)),
        ("checkpoint", bytes_text(mapped.checkpoint_bytes)),
        ("durability", stats.durability.clone()),
    ];
    if let Some(cause) = &stats.read_only {
        figures.push(("read-only since", cause.clone()));
    }
    if mapped.leaves > 0 {
        figures.extend([
            ("leaves", count_text(mapped.leaves)),
            ("memory", bytes_text(stats.index_and_filter_bytes)),
        ]);
    } else {
        figures.extend(figures_of_pages(stats, mapped));
    }
    output.figures(&figures)?;
    output.line("")?;
    if mapped.leaves == 0 {
        for usage in ["log", "chains", "reserve"] {
            print_pages(mapped, usage, output)?;
        }
    }
    for keyspace in &stats.keyspaces {
        output.line(&format!("keyspace {}", escaped(keyspace.name.as_bytes())))?;
    }
    Ok(())
}

/// What is known of the pages of a mapped store, and of its hash table.
fn figures_of_pages(stats: &Stats, mapped: &MappedStats) -> [(&'static str, String); 6] {
    [
        (
            "pages",
            format!(
                "{} of {} each, {} at most",
                count_text(mapped.pages.len() as u64),
                bytes_text(mapped.page_bytes),
                count_text(mapped.pages_max)
            ),
        ),
        ("live in pages", bytes_text(stats.live_bytes)),
        (
            "garbage in full pages",
            bytes_text(stats.garbage.old_version_bytes),
        ),
        (
            "space amplification",
            format!("{:.2}", stats.space_amplification),
        ),
        ("buckets of the hash table", count_text(mapped.hash_buckets)),
        (
            "lost with the power",
            counted(mapped.lost_records, "record", "records"),
        ),
    ]
}

/// How many pages of one use there are, and how many of the full ones are live to which part.
fn print_pages(mapped: &MappedStats, usage: &str, output: &mut Output) -> Result<(), Failure> {
    let pages = || mapped.pages.iter().filter(|page| page.usage == usage);
    let full = pages().filter(|page| page.is_full);
    let mut quarters = [0_u64; 4];
    let mut uncounted = 0;
    for page in full {
        match page.live_bytes {
            Some(live) => {
                let quarter = (4 * live / mapped.page_bytes.max(1)).min(3);
                quarters[usize::try_from(quarter).unwrap_or(3)] += 1;
            }
            None => uncounted += 1,
        }
    }
    let open = pages().filter(|page| !page.is_full).count();
    let [first, second, third, fourth] = quarters.map(count_text);
    output.line(&format!(
        "pages of {usage}: {open} not full; full and live to 0..25 %: {first}, 25..50 %: {second}, \
         50..75 %: {third}, 75..100 %: {fourth}, not counted: {}",
        count_text(uncounted)
    ))?;
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
    let options = match keyspace.options.is_empty() {
        true => String::new(),
        false => format!(" ({})", keyspace.options),
    };
    output.line(&format!(
        "keyspace {}{options}: {} in {}",
        escaped(keyspace.name.as_bytes()),
        bytes_text(bytes),
        counted(buckets.len() as u64, "bucket", "buckets")
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
            "  level {level}: {} in {}",
            bytes_text(bytes),
            counted(runs as u64, "run", "runs")
        ))?;
    }
    Ok(())
}
