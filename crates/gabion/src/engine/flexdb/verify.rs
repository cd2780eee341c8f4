//! Checking a closed store, byte by byte.

use gabion_media::Disk;

use super::layout::{ROOT_NAME, Root, space_prefix};
use crate::Result;
use crate::engine::{CheckReport, Problem};
use crate::names::LOCK;

/// Reads every byte of the store's files and checks it. Damage is part of the report.
pub(crate) fn check_disk(disk: &Disk) -> Result<CheckReport> {
    let _lock = disk.lock(LOCK)?;
    let mut report = CheckReport::default();
    match Root::read(disk) {
        Ok(root) => {
            for (id, _) in (0..).zip(&root.keyspaces) {
                check_space(&disk.part(&space_prefix(id)), &mut report)?;
            }
            let keyspaces = root.keyspaces.len();
            report.check_log(disk, root.log_tail, &root.sealed, keyspaces)?;
        }
        Err(error) => report.add(error, &disk.path_of(ROOT_NAME))?,
    }
    Ok(report)
}

fn check_space(disk: &Disk, report: &mut CheckReport) -> Result<()> {
    match gabion_flex::check_disk(disk) {
        Ok(found) => {
            report.table_bytes += found.data_bytes;
            let problems = found
                .problems
                .into_iter()
                .map(|problem| Problem::new(problem.file, Some(problem.offset), problem.what));
            report.problems.extend(problems);
            Ok(())
        }
        Err(error) => report.add(error.into(), disk.path()),
    }
}
