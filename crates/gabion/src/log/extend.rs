//! Records put behind the end of a log that nobody has open.
//!
//! # Idea
//! A store that was closed, or whose process has ended, has a log that ends somewhere. Records that
//! are appended there are what the store would have if it had written them before: its next opening
//! replays them.

use std::collections::BTreeMap;
use std::sync::Arc;

use gabion_media::Disk;

use super::recovery::replay;
use super::sync::LogSyncer;
use super::{Log, LogOptions, SegmentPurpose};
use crate::{Clock, Result};

/// Appends the payloads of records to the log on `disk` that begins with segment `from` and of
/// which `sealed` lengths are known. They are durable when this returns.
///
/// Nobody else may have the log open. An error leaves a part of them.
pub(crate) fn extend<'r>(
    disk: &Disk,
    from: u64,
    sealed: &BTreeMap<u64, u64>,
    mut records: impl Iterator<Item = &'r [u8]>,
) -> Result<()> {
    let end = replay(disk, from, sealed, |_, _| Ok(()))?;
    let (options, clock) = (LogOptions::default(), Clock::system());
    let shared = LogSyncer::behind(disk, &end, &options, &clock);
    let mut log = Log::begin(&Arc::new(shared), &end)?;
    records.try_for_each(|record| log.append(&[record], SegmentPurpose::Puts).map(drop))?;
    // DURABLE: all of them.
    log.close().map(drop)
}
