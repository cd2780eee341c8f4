//! Checking a closed store, byte by byte.

use gabion_media::Disk;

use super::layout::{LOCK_NAME, ROOT_NAME, Root, space_prefix};
use crate::engine::wip::names::log_name;
use crate::engine::{CheckReport, Problem};
use crate::log::{decode, replay};
use crate::{Error, Result};

/// Reads every byte of the store's files and checks it. Damage is part of the report.
pub(crate) fn check_disk(disk: &Disk) -> Result<CheckReport> {
    let _lock = disk.lock(LOCK_NAME)?;
    let mut report = CheckReport::default();
    match Root::read(disk) {
        Ok(root) => {
            for (id, _) in (0..).zip(&root.keyspaces) {
                check_space(&disk.part(&space_prefix(id)), &mut report)?;
            }
            check_log(disk, &root, &mut report)?;
        }
        Err(error) => add(&mut report, error, disk)?,
    }
    Ok(report)
}

fn check_space(disk: &Disk, report: &mut CheckReport) -> Result<()> {
    match gabion_flex::check_disk(disk) {
        Ok(found) => {
            report.table_bytes += found.data_bytes;
            let problems = found.problems.into_iter().map(|problem| Problem {
                file: problem.file,
                offset: Some(problem.offset),
                what: problem.what,
            });
            report.problems.extend(problems);
            Ok(())
        }
        Err(error) => add(report, error.into(), disk),
    }
}

fn check_log(disk: &Disk, root: &Root, report: &mut CheckReport) -> Result<()> {
    let mut operations = 0;
    let replayed = replay(disk, root.log_tail, &root.sealed, |lsn, payload| {
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
        Ok(end) => {
            report.log_segments = end.segments.len() as u64;
            Ok(())
        }
        Err(error) => add(report, error, disk),
    }
}

/// Turns corruption, and a file that is missing, into a problem; other errors stay errors.
fn add(report: &mut CheckReport, error: Error, disk: &Disk) -> Result<()> {
    let problem = match error {
        Error::Corruption { file, offset, what } => Problem {
            file,
            offset: Some(offset),
            what,
        },
        Error::Media(error) if error.is_not_found() => Problem {
            file: disk.path_of(ROOT_NAME),
            offset: None,
            what: error.to_string(),
        },
        other => return Err(other),
    };
    report.problems.push(problem);
    Ok(())
}
