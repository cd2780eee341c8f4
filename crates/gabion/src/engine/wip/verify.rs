//! Checking a closed store, byte by byte.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use gabion_media::Disk;
use serde::Serialize;

use super::file::table_meta;
use super::manifest::{self, ManifestState};
use super::names::{CURRENT, LOCK, log_name, table_name};
use super::table::Table;
use crate::cache::BlockCache;
use crate::log::{decode, replay};
use crate::{Error, Result};

/// What a check found.
#[non_exhaustive]
#[derive(Clone, Debug, Default, Serialize)]
pub struct CheckReport {
    /// Table files that were read.
    pub tables: u64,
    /// Entries in them, hidden versions and tombstones included.
    pub entries: u64,
    /// Bytes of the table files.
    pub table_bytes: u64,
    /// Log segments that were read.
    pub log_segments: u64,
    /// Operations in the log, those that are in tables too included.
    pub log_operations: u64,
    /// What does not hold, in the order in which it was found.
    pub problems: Vec<Problem>,
}

/// Something that does not hold.
#[non_exhaustive]
#[derive(Clone, Debug, Serialize)]
pub struct Problem {
    /// The damaged file.
    pub file: PathBuf,
    /// Where in it, if that is known.
    pub offset: Option<u64>,
    /// What does not hold, as a sentence.
    pub what: String,
}

/// Verifies the store of a disk. Damage is part of the report; an error means that the check could
/// not be done.
pub(crate) fn check_disk(disk: &Disk) -> Result<CheckReport> {
    // Looked at before the lock, which makes a file where no store is.
    if !disk.exists(CURRENT)? {
        let why = "it has no file named CURRENT".to_owned();
        return Err(Error::NotAStore {
            path: disk.path().to_owned(),
            why,
        });
    }
    let _lock = disk.lock(LOCK)?;
    let mut report = CheckReport::default();
    match manifest::read(disk) {
        Ok(loaded) => {
            check_tables(disk, &loaded.state, &mut report)?;
            check_log(disk, &loaded.state, &mut report)?;
        }
        Err(error) => report.add(error, &disk.path_of(CURRENT))?,
    }
    Ok(report)
}

impl CheckReport {
    /// Turns corruption, and a file that is missing, into a problem; other errors stay errors.
    fn add(&mut self, error: Error, file: &Path) -> Result<()> {
        match error {
            Error::Corruption { file, offset, what } => {
                self.problems.push(Problem {
                    file,
                    offset: Some(offset),
                    what,
                });
                Ok(())
            }
            Error::Media(error) if error.is_not_found() => {
                let what = error.to_string();
                self.problems.push(Problem {
                    file: file.to_owned(),
                    offset: None,
                    what,
                });
                Ok(())
            }
            other => Err(other),
        }
    }
}

fn check_tables(disk: &Disk, state: &ManifestState, report: &mut CheckReport) -> Result<()> {
    let cache = Arc::new(BlockCache::new(0));
    for (number, file) in &state.files {
        report.tables += 1;
        report.table_bytes += file.meta.file_bytes;
        let checked = Table::open(disk, *number, &cache).and_then(|table| {
            let table = Arc::new(table);
            table.verify()?;
            Ok(table)
        });
        match checked {
            Ok(table) => {
                report.entries += table.meta().entries;
                let expected = table_meta(*number, &file.meta);
                if expected.as_ref() != Some(table.meta()) {
                    report.problems.push(Problem {
                        file: disk.path_of(&table_name(*number)),
                        offset: None,
                        what: "the table is not the one that the manifest describes".to_owned(),
                    });
                }
            }
            Err(error) => report.add(error, &disk.path_of(&table_name(*number)))?,
        }
        if file.refs == 0 {
            report.problems.push(Problem {
                file: disk.path_of(&table_name(*number)),
                offset: None,
                what: "the manifest names the table, but no bucket refers to it".to_owned(),
            });
        }
    }
    Ok(())
}

fn check_log(disk: &Disk, state: &ManifestState, report: &mut CheckReport) -> Result<()> {
    let mut operations = 0;
    let replayed = replay(disk, state.log_tail, &state.sealed, |lsn, payload| {
        let damaged = |malformed: crate::log::Malformed| {
            malformed.in_file(disk.path_of(&log_name(lsn.segment())), lsn.offset())
        };
        for operation in decode(payload).map_err(damaged)? {
            operation.map_err(damaged)?;
            operations += 1;
        }
        Ok(())
    });
    report.log_operations = operations;
    match replayed {
        Ok(end) => report.log_segments = end.segments.len() as u64,
        Err(error) => report.add(error, disk.path())?,
    }
    Ok(())
}
