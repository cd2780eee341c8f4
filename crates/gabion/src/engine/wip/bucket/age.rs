//! How old the entries of tables are, and since when there may be garbage among them
//! (`policy/aging`, A1).

use super::file::TableFile;
use super::{Levels, Run};
use crate::engine::wip::manifest::TableAge;

/// The age of what a flush has written: the entries of a MemTable since `born`.
pub(crate) fn flushed_age(born: u64, superseded: u64, tombstones: u64) -> TableAge {
    TableAge {
        superseded,
        born,
        garbage_since: if superseded + tombstones > 0 { born } else { 0 },
    }
}

/// The age of what a compaction has left of `runs`, newest first. `whole`: they were all runs of
/// their bucket, so that what is left is needed by somebody `now`.
pub(crate) fn compacted_age(
    runs: &[Run],
    whole: bool,
    (superseded, tombstones): (u64, u64),
    now: u64,
) -> TableAge {
    let files = || runs.iter().flat_map(|run| run.tables.iter());
    let born = files().map(|file| file.age.born).min();
    let garbage_since = match (superseded + tombstones, whole) {
        (0, _) => 0,
        (_, true) => now,
        (_, false) => oldest_garbage(runs).unwrap_or(now),
    };
    TableAge {
        superseded,
        born: born.unwrap_or(now),
        garbage_since,
    }
}

/// Since when a bucket may hold garbage.
pub(crate) fn garbage_since(levels: &Levels) -> Option<u64> {
    let runs: Vec<Run> = levels.runs().cloned().collect();
    oldest_garbage(&runs)
}

/// Since when there may be garbage in runs, which come newest first.
fn oldest_garbage(runs: &[Run]) -> Option<u64> {
    let own = |file: &TableFile| (file.age.garbage_since > 0).then_some(file.age.garbage_since);
    let files = runs.iter().flat_map(|run| run.tables.iter());
    let inside = files.filter_map(|file| own(file)).min();
    let covers = runs.iter().enumerate().filter(|(position, run)| {
        runs[position + 1..]
            .iter()
            .any(|older| run.smallest() <= older.largest() && older.smallest() <= run.largest())
    });
    let over = covers
        .flat_map(|(_, run)| run.tables.iter().map(|file| file.age.born))
        .min();
    inside.into_iter().chain(over).min()
}
