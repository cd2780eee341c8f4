//! Checking a store, byte by byte: one that nobody has open, or beside the process that writes it.

use std::path::Path;
use std::sync::Arc;

use gabion_media::Disk;

use super::Wip;
use super::bucket::file::table_meta;
use super::manifest::{self, ManifestState};
use super::table::{Table, TableMeta};
use crate::cache::BlockCache;
use crate::engine::ssd::Lifecycle;
use crate::engine::{CheckReport, Problem};
use crate::names::{CURRENT, LOCK, table_name};
use crate::{Options, Result};

/// Verifies the store of a disk. Damage is part of the report; an error means that the check could
/// not be done.
pub(crate) fn check_disk(disk: &Disk) -> Result<CheckReport> {
    let _lock = match disk.lock_shared(LOCK) {
        Err(gabion_media::Error::Locked { .. }) => return check_as_follower(disk),
        lock => lock?,
    };
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

/// Verifies the store as a follower has it.
fn check_as_follower(disk: &Disk) -> Result<CheckReport> {
    let mut report = CheckReport::default();
    match Wip::follow(disk.clone().read_only(), Options::default()) {
        Ok(follower) => {
            let checked = follower.check_followed(&mut report);
            checked.and(follower.close())?;
        }
        Err(error) => report.add(error, &disk.path_of(CURRENT))?,
    }
    Ok(report)
}

impl Wip {
    /// Verifies the tables that a follower holds; it has read the log.
    fn check_followed(&self, report: &mut CheckReport) -> Result<()> {
        let (files, segments, operations) = self.followed();
        (report.log_segments, report.log_operations) = (segments, operations);
        for file in files {
            let path = self.disk.path_of(&table_name(file.meta.file));
            report.tables += 1;
            report.table_bytes += file.meta.file_bytes;
            let checked = file.table().and_then(|table| {
                table.verify()?;
                Ok(Arc::clone(table))
            });
            report.add_table(checked, Some(&file.meta), &path)?;
        }
        Ok(())
    }
}

impl CheckReport {
    /// What a table is that was read, beside what the manifest says.
    fn add_table(
        &mut self,
        checked: Result<Arc<Table>>,
        expected: Option<&TableMeta>,
        path: &Path,
    ) -> Result<()> {
        let table = match checked {
            Ok(table) => table,
            Err(error) => return self.add(error, path),
        };
        self.entries += table.meta().entries;
        if expected != Some(table.meta()) {
            let what = "the table is not the one that the manifest describes".to_owned();
            self.problems
                .push(Problem::new(path.to_owned(), None, what));
        }
        Ok(())
    }
}

fn check_tables(disk: &Disk, state: &ManifestState, report: &mut CheckReport) -> Result<()> {
    let cache = Arc::new(BlockCache::new(0));
    for (number, file) in &state.files {
        let path = disk.path_of(&table_name(*number));
        report.tables += 1;
        report.table_bytes += file.meta.file_bytes;
        let checked = Table::open(disk, *number, file.meta.min_seq, &cache).and_then(|table| {
            let table = Arc::new(table);
            table.verify()?;
            Ok(table)
        });
        let expected = table_meta(*number, &file.meta);
        report.add_table(checked, expected.as_ref(), &path)?;
        if file.refs == 0 {
            let what = "the manifest names the table, but no bucket refers to it".to_owned();
            report.problems.push(Problem::new(path, None, what));
        }
    }
    Ok(())
}
