//! Checking a closed store, byte by byte.

use std::sync::Arc;

use gabion_media::Disk;

use super::bucket::file::table_meta;
use super::manifest::{self, ManifestState};
use super::table::Table;
use crate::Result;
use crate::cache::BlockCache;
use crate::engine::{CheckReport, Problem};
use crate::names::{CURRENT, LOCK, table_name};

/// Verifies the store of a disk. Damage is part of the report; an error means that the check could
/// not be done.
pub(crate) fn check_disk(disk: &Disk) -> Result<CheckReport> {
    let _lock = disk.lock_shared(LOCK)?;
    let mut report = CheckReport::default();
    match manifest::read(disk) {
        Ok(loaded) => {
            let state = &loaded.state;
            check_tables(disk, state, &mut report)?;
            report.check_log(disk, state.log_tail, &state.sealed, state.next_keyspace)?;
        }
        Err(error) => report.add(error, &disk.path_of(CURRENT))?,
    }
    Ok(report)
}

fn check_tables(disk: &Disk, state: &ManifestState, report: &mut CheckReport) -> Result<()> {
    let cache = Arc::new(BlockCache::new(0));
    for (number, file) in &state.files {
        let path = disk.path_of(&table_name(*number));
        let problem = |what: &str| Problem::new(path.clone(), None, what.to_owned());
        report.tables += 1;
        report.table_bytes += file.meta.file_bytes;
        let checked = Table::open(disk, *number, file.meta.min_seq, &cache).and_then(|table| {
            let table = Arc::new(table);
            table.verify()?;
            Ok(table)
        });
        match checked {
            Ok(table) => {
                report.entries += table.meta().entries;
                let expected = table_meta(*number, &file.meta);
                if expected.as_ref() != Some(table.meta()) {
                    report.problems.push(problem(
                        "the table is not the one that the manifest describes",
                    ));
                }
            }
            Err(error) => report.add(error, &path)?,
        }
        if file.refs == 0 {
            report.problems.push(problem(
                "the manifest names the table, but no bucket refers to it",
            ));
        }
    }
    Ok(())
}
