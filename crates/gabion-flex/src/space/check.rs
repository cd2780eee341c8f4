//! Verifying every byte of a space.

use std::collections::BTreeSet;
use std::path::PathBuf;

use gabion_media::{Disk, ReadFile};

use super::layout::{DATA_NAME, LOCK_NAME};
use super::recovery::{self, Known};
use super::sums::Sums;
use crate::{Error, Result};

/// What a check found.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct CheckReport {
    /// Bytes in the address space.
    pub len: u64,
    /// Extents of the tree.
    pub extents: u64,
    /// Operations in the log.
    pub log_operations: u64,
    /// Segments in use.
    pub segments: u64,
    /// Bytes of data that were read.
    pub data_bytes: u64,
    /// What does not hold.
    pub problems: Vec<Problem>,
}

/// A damaged part of a space.
#[derive(Debug)]
#[non_exhaustive]
pub struct Problem {
    /// The file.
    pub file: PathBuf,
    /// Where in it, in bytes.
    pub offset: u64,
    /// What does not hold.
    pub what: String,
}

/// Verifies the space of a disk. Damage is part of the report; an error means that the check could
/// not be done.
pub(super) fn check(disk: &Disk) -> Result<CheckReport> {
    if !recovery::exists(disk)? {
        return Err(recovery::not_a_space(disk, "it has no tree file"));
    }
    let _lock = disk.lock(LOCK_NAME)?;
    let mut report = CheckReport::default();
    let found = match recovery::find(disk) {
        Ok(found) => found,
        Err(error) => {
            report.add(error)?;
            return Ok(report);
        }
    };
    report.len = found.tree.len();
    report.extents = found.tree.extent_count();
    report.log_operations = found.repeated;
    let file = disk.open_read(DATA_NAME)?;
    let data = found.tree.iter().filter(|extent| !extent.is_hole());
    let used: BTreeSet<u32> = data
        .map(|extent| found.sums.geometry.split(extent.address).0)
        .collect();
    // The log still names segments that are free by now, and may have been written again.
    for (number, known) in found
        .segments
        .iter()
        .filter(|(number, _)| used.contains(number))
    {
        report.segments += 1;
        let checked = report.check_segment(&found.sums, &file, *number, known);
        if let Err(error) = checked {
            report.add(error)?;
        }
    }
    Ok(report)
}

impl CheckReport {
    fn check_segment(
        &mut self,
        sums: &Sums,
        file: &ReadFile,
        number: u32,
        known: &Known,
    ) -> Result<()> {
        let table = match &known.table {
            Some(table) => table.clone(),
            None => sums.read_footer(file, number, known.generation)?,
        };
        let block_bytes = sums.geometry.block_bytes();
        let mut block = vec![0; block_bytes as usize];
        for from in (0..table.written).step_by(block_bytes as usize) {
            let len = (table.written - from).min(block_bytes) as usize;
            self.data_bytes += len as u64;
            if let Err(error) = sums.read(file, number, &table, from, &mut block[..len]) {
                self.add(error)?;
            }
        }
        Ok(())
    }

    /// Takes damage into the report; other errors end the check.
    fn add(&mut self, error: Error) -> Result<()> {
        let text = error.to_string();
        let problem = match error {
            Error::Corruption { file, offset, what } => Problem { file, offset, what },
            Error::Media(gabion_media::Error::ShortRead { path, offset, .. }) => Problem {
                file: path,
                offset,
                what: text,
            },
            other => return Err(other),
        };
        self.problems.push(problem);
        Ok(())
    }
}
