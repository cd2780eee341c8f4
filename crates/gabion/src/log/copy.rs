//! Copying a log that is being written, up to a position.

use std::collections::BTreeMap;

use gabion_media::{Disk, Purpose};

use super::SealedLog;
use super::layout::{HEADER_BYTES, Lsn};
use crate::Result;
use crate::names::{log_name, parse_log_name};

/// Copies the segments from number `from` up to the position `end` to the disk `target`, durably
/// but for their names. Returns the seal with which the copy ends where the log ended.
///
/// Everything in front of `end` must be in its place, and no segment from `from` on may be removed
/// meanwhile. The writer may go on behind `end`.
pub(crate) fn copy(
    disk: &Disk,
    target: &Disk,
    from: u64,
    sealed: &BTreeMap<u64, u64>,
    end: Lsn,
) -> Result<SealedLog> {
    let last = end.segment();
    for name in disk.list()? {
        let Some(segment) = parse_log_name(&name) else {
            continue;
        };
        // A segment behind the last one was prepared; one that holds nothing is no part of the log.
        if (from..last).contains(&segment) && sealed.get(&segment) != Some(&0) {
            let len = disk.len_of(&name)?;
            disk.copy_to(target, &name, len, Purpose::Checkpoint)?;
        }
    }
    let length = match end.offset() {
        header if header <= HEADER_BYTES as u64 => 0,
        length => length,
    };
    if length > 0 {
        disk.copy_to(target, &log_name(last), length, Purpose::Checkpoint)?;
    }
    Ok(SealedLog {
        segment: last,
        length,
    })
}
