//! The files of the log: which there are, and the next one prepared ahead.
//!
//! Creating a segment means reserving and mapping it, which takes milliseconds. A background
//! thread does it ahead of need, and also lets go of full segments, as unmapping takes as long.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};

use gabion_media::{Disk, LogFile};
use parking_lot::Mutex;

use super::recovery::ReplayEnd;
use super::writepath::segment_bytes_for;
use super::{LogOptions, SealedLog};
use crate::engine::wip::names::log_name;
use crate::log::layout::Lsn;
use crate::{Error, Result};

/// Size of the first segment: small, so that a small store is small.
pub(super) const SEGMENT_BYTES_FIRST: u64 = 1 << 20;

/// The log's files. Lock order: `next`, then `live`.
#[derive(Debug)]
pub(super) struct Segments {
    disk: Disk,
    bytes_max: u64,
    next: Mutex<Next>,
    /// Whether no file is prepared: a hint that costs no lock.
    needs_next: AtomicBool,
    live: Mutex<Live>,
}

#[derive(Debug)]
struct Next {
    /// The segment that is written now; 0 before the first.
    current: u64,
    /// Its successor, empty.
    prepared: Option<LogFile>,
    /// Size of the segment that is created next.
    bytes: u64,
}

#[derive(Debug)]
struct Live {
    /// Segments with their lengths, ascending, without the one that is written now.
    full: VecDeque<SealedLog>,
    /// Full segments of this process, to be unmapped.
    retired: Vec<LogFile>,
}

impl Segments {
    pub(super) fn new(disk: Disk, end: &ReplayEnd, options: &LogOptions) -> Segments {
        let bytes_max = options.segment_bytes_max.max(segment_bytes_for(1));
        let next = Next {
            current: 0,
            prepared: None,
            bytes: SEGMENT_BYTES_FIRST.min(bytes_max),
        };
        let live = Live {
            full: end.segments.iter().copied().collect(),
            retired: Vec::new(),
        };
        Segments {
            disk,
            bytes_max,
            next: Mutex::new(next),
            needs_next: AtomicBool::new(true),
            live: Mutex::new(live),
        }
    }

    /// The disk that holds the files.
    pub(super) fn disk(&self) -> &Disk {
        &self.disk
    }

    /// Hands over the empty file of `segment`, which becomes the current one: the prepared file if
    /// there is one (it may be too small for `wanted` bytes), else a new one with room for them.
    pub(super) fn take(&self, segment: u64, wanted: u64) -> Result<LogFile> {
        if segment > Lsn::PART_MAX {
            let what = "number of log segments";
            return Err(Error::Limit {
                what,
                size: segment,
                limit: Lsn::PART_MAX,
            });
        }
        let mut next = self.next.lock();
        let file = match next.prepared.take() {
            Some(file) => file,
            None => self.create(&mut next, segment, wanted)?,
        };
        next.current = segment;
        // ORDER: Relaxed, a hint; the mutex orders everything else.
        self.needs_next.store(true, Ordering::Relaxed);
        Ok(file)
    }

    /// Creates the file of the segment behind the current one, unless it is there.
    pub(super) fn prepare_next(&self) -> Result<()> {
        let mut next = self.next.lock();
        let segment = next.current + 1;
        if next.prepared.is_none() && segment <= Lsn::PART_MAX {
            next.prepared = Some(self.create(&mut next, segment, 0)?);
            // ORDER: Relaxed, as in `take`.
            self.needs_next.store(false, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Whether the segment behind the current one is missing.
    pub(super) fn needs_next(&self) -> bool {
        // ORDER: Relaxed, as in `take`.
        self.needs_next.load(Ordering::Relaxed)
    }

    /// Removes the prepared file.
    pub(super) fn discard_next(&self) -> Result<()> {
        let mut next = self.next.lock();
        if next.prepared.take().is_some() {
            self.disk.remove(&log_name(next.current + 1))?;
        }
        Ok(())
    }

    fn create(&self, next: &mut Next, segment: u64, wanted: u64) -> Result<LogFile> {
        let bytes = next.bytes.max(segment_bytes_for(wanted));
        let file = self.disk.create_log(&log_name(segment), bytes)?;
        next.bytes = (next.bytes * 2).min(self.bytes_max);
        Ok(file)
    }

    /// Takes note that a segment is full.
    pub(super) fn retire(&self, segment: u64, file: LogFile) {
        let mut live = self.live.lock();
        live.full.push_back(SealedLog {
            segment,
            length: file.position(),
        });
        live.retired.push(file);
    }

    /// Unmaps the full segments.
    pub(super) fn release_retired(&self) {
        let retired = std::mem::take(&mut self.live.lock().retired);
        drop(retired);
    }

    /// Bytes in the full segments.
    pub(super) fn full_bytes(&self) -> u64 {
        self.live.lock().full.iter().map(|log| log.length).sum()
    }

    /// Removes the full segments below `segment`. One that cannot be removed stays known, and so
    /// is tried again by the next call.
    pub(super) fn remove_before(&self, segment: u64) -> Result<()> {
        self.release_retired();
        loop {
            let first = self.live.lock().full.front().copied();
            let Some(first) = first.filter(|first| first.segment < segment) else {
                return Ok(());
            };
            match self.disk.remove(&log_name(first.segment)) {
                Err(error) if !error.is_not_found() => return Err(error.into()),
                _ => {}
            }
            self.live.lock().full.pop_front();
        }
    }
}
