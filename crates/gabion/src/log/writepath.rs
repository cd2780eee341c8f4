//! Appending to the log.
//!
//! # Idea
//! An append has the log for itself. Threads that share it reserve places for short records
//! ([`Log::reserve`]) and fill them side by side, as long as there is room in the segment; what is
//! filled counts as appended once everything in front of it is, which is for the caller to see to
//! ([`Log::set_appended`]). A segment is begun by an append only, when no place is being filled.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use gabion_media::{LogFile, LogSpace};

use super::SealedLog;
use super::frame::{FRAME_HEADER_BYTES, FrameSeed, MARK_BYTES, PAYLOAD_BYTES_MAX};
use super::layout::{HEADER_BYTES, Lsn, MAGIC, SegmentHeader};
use super::recovery::ReplayEnd;
use super::segments::SegmentPurpose;
use super::sync::LogSyncer;
use crate::names::log_name;
use crate::{Error, Result};

/// Payloads up to this length are copied together before they are written: up to about here the
/// copy costs less than it saves.
const STAGED_BYTES_MAX: u32 = 1024;

/// The log's writer. There is one; what other threads do for the log they do through the
/// [`LogSyncer`] that they share with it.
#[derive(Debug)]
pub(crate) struct Log {
    file: LogFile,
    segment: u64,
    place: FrameSeed,
    /// The position that the last mark or header in the log tells.
    marked: AtomicU64,
    /// Memory for short frames.
    staging: Vec<u8>,
    shared: Arc<LogSyncer>,
}

impl Log {
    /// Starts to write behind what a replay found. The caller has recorded
    /// [`ReplayEnd::seal`] durably.
    #[cfg(test)]
    pub(crate) fn start(
        disk: &gabion_media::Disk,
        end: &ReplayEnd,
        options: &super::LogOptions,
    ) -> Result<Log> {
        let clock = crate::Clock::system();
        let shared = LogSyncer::behind(disk, end, options, &clock);
        Log::begin(&Arc::new(shared), end)
    }

    /// Begins the segment behind what a replay found, whose seals are recorded durably. Where there
    /// is no space for it, nothing has changed.
    pub(super) fn begin(shared: &Arc<LogSyncer>, end: &ReplayEnd) -> Result<Log> {
        let segment = end.next_segment();
        let file = shared
            .segments()
            .take(segment, 0, SegmentPurpose::Deletes)?;
        let begun = begin(file, segment, end.end, end.end);
        let (file, place) = begun.inspect_err(|_| {
            // Another try makes it anew; else the next opening removes it.
            let _ = shared.segments().disk().remove(&log_name(segment));
        })?;
        shared.begun(segment, file.sync_handle(), end.end);
        shared.set_appended(Lsn::new(segment, file.position()));
        Ok(Log {
            file,
            segment,
            place,
            marked: AtomicU64::new(end.end.0),
            staging: Vec::new(),
            shared: Arc::clone(shared),
        })
    }

    /// Appends one frame whose payload consists of the parts, and returns its end. It survives the
    /// end of the process; the loss of power once [`LogSyncer::sync`] has returned that position.
    ///
    /// Costs a checksum and a memory copy. When the segment is full, the log goes on in the next,
    /// prepared by [`LogSyncer::prepare_next`] or else created here. If that fails, nothing is
    /// appended and the append may be tried again once there is space; after any other failure the
    /// log takes no more appends.
    ///
    /// # Panics
    /// When the payload is empty.
    ///
    /// `room` says what of the medium the next segment may take.
    #[inline]
    pub(crate) fn append(&mut self, parts: &[&[u8]], room: SegmentPurpose) -> Result<Lsn> {
        self.shared.check()?;
        let len = payload_len(parts)?;
        let (durable, mark_bytes) = loop {
            let durable = self.shared.durable_lsn();
            let marked = Lsn(*self.marked.get_mut());
            let mark_bytes = if durable > marked { MARK_BYTES } else { 0 };
            let wanted = (mark_bytes + FRAME_HEADER_BYTES) as u64 + u64::from(len);
            if wanted <= self.file.remaining() {
                break (durable, mark_bytes);
            }
            self.roll(wanted, room)?;
        };
        let start = self.file.position();
        let mark;
        let mark_part: &[u8] = if mark_bytes > 0 {
            mark = self.place.mark(start, durable.0);
            &mark
        } else {
            &[]
        };
        let offset = start + mark_bytes as u64;
        let appended = if len <= STAGED_BYTES_MAX {
            let frame = self.place.stage(&mut self.staging, offset, len, parts);
            self.file.append(&[mark_part, frame])
        } else {
            let header = self.place.header(offset, len, parts);
            let front: [&[u8]; 2] = [mark_part, &header];
            self.file.append(&[&front, parts].concat())
        };
        // A failure is for good: a part of the frame may stand in the file.
        appended.map_err(|error| self.shared.fail(error.into()))?;
        let marked = self.marked.get_mut();
        *marked = durable.0.max(*marked);
        let end = Lsn::new(self.segment, self.file.position());
        self.shared.set_appended(end);
        Ok(end)
    }

    /// Reserves the place of a record whose payload has `len` bytes, for a thread that shares the
    /// log; `None` when an append must do it, because the record is long or the segment is full.
    ///
    /// The caller fills the place and then sees to it that everything in front of it is filled
    /// before it calls [`Log::set_appended`].
    #[inline]
    pub(crate) fn reserve(&self, len: usize) -> Result<Option<LogPlace<'_>>> {
        self.shared.check()?;
        let Some(len) = u32::try_from(len)
            .ok()
            .filter(|len| (1..=STAGED_BYTES_MAX).contains(len))
        else {
            return Ok(None);
        };
        let mark = self.claim_mark();
        let mark_bytes = if mark.is_some() { MARK_BYTES } else { 0 };
        let space = self
            .file
            .reserve(mark_bytes + FRAME_HEADER_BYTES + len as usize);
        Ok(space.map(|space| LogPlace {
            log: self,
            space,
            mark,
            len,
        }))
    }

    /// The position that a mark should tell, if none does yet. One caller gets each, and if that
    /// one writes no mark, the next header tells the position.
    #[inline]
    fn claim_mark(&self) -> Option<Lsn> {
        let durable = self.shared.durable_lsn();
        // ORDER: Relaxed (all); the number orders nothing, `durable_lsn` says what is durable.
        let marked = self.marked.load(Ordering::Relaxed);
        if durable.0 <= marked {
            return None;
        }
        self.marked
            .compare_exchange(marked, durable.0, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
            .then_some(durable)
    }

    /// Counts everything up to `end` as appended, which the caller knows to be filled.
    #[inline]
    pub(crate) fn set_appended(&self, end: Lsn) {
        self.shared.set_appended(end);
    }

    /// Number of appends and reservations in the current segment.
    #[inline]
    pub(crate) fn reservations(&self) -> u64 {
        self.file.reservations()
    }

    /// The first failure, if there was one.
    #[inline]
    pub(crate) fn check(&self) -> Result<()> {
        self.shared.check()
    }

    /// Goes on in the next segment, which has room for a frame of `wanted` bytes if it must be
    /// created here.
    #[cold]
    fn roll(&mut self, wanted: u64, room: SegmentPurpose) -> Result<()> {
        let segment = self.segment + 1;
        let after = Lsn::new(self.segment, self.file.position());
        let durable = self.shared.durable_lsn();
        let file = self.shared.segments().take(segment, wanted, room)?;
        let begun = begin(file, segment, after, durable);
        let (file, place) = begun.map_err(|error| self.shared.fail(error))?;
        // The segment is known to the syncer before anything of it counts as appended.
        self.shared.begun(segment, file.sync_handle(), after);
        let full = std::mem::replace(&mut self.file, file);
        self.shared.segments().retire(self.segment, full);
        self.segment = segment;
        self.place = place;
        *self.marked.get_mut() = durable.0;
        self.shared
            .set_appended(Lsn::new(segment, self.file.position()));
        Ok(())
    }

    /// Goes on in a new segment that is as small as the first one was. Before, the caller has
    /// published all that was appended.
    pub(crate) fn begin_small(&mut self) -> Result<u64> {
        self.shared.check()?;
        self.shared.segments().begin_small()?;
        self.roll(0, SegmentPurpose::Deletes)?;
        Ok(self.segment)
    }

    /// The segment that the next append goes to, unless it must begin a new one.
    pub(crate) fn current_segment(&self) -> u64 {
        self.segment
    }

    /// What other threads do for the log.
    #[cfg(test)]
    pub(crate) fn syncer(&self) -> Arc<LogSyncer> {
        Arc::clone(&self.shared)
    }

    /// Makes everything durable, gives back unused space, and returns the end of the log, which
    /// the caller records durably: 0 for a segment without a record, which is removed; unless it
    /// alone tells readers that the log goes on where they stand.
    pub(crate) fn close(self) -> Result<SealedLog> {
        self.shared.sync()?;
        let sync = self.file.sync_handle();
        let segment = self.segment;
        let length = self.file.position();
        self.shared.segments().discard_next()?;
        self.file.finish()?;
        let before = self.shared.last_record_lsn().segment();
        let segments = self.shared.segments();
        let is_needed = segments.kept_from().is_some() && segments.length_of(before).is_none();
        if length <= HEADER_BYTES as u64 && !is_needed {
            let disk = self.shared.segments().disk();
            disk.remove(&log_name(segment))?;
            return Ok(SealedLog { segment, length: 0 });
        }
        sync.sync()?;
        Ok(SealedLog { segment, length })
    }
}

/// The place of a record that a thread has reserved in the log which it shares.
#[derive(Debug)]
#[must_use = "a place that is not filled ends the log"]
pub(crate) struct LogPlace<'l> {
    log: &'l Log,
    space: LogSpace<'l>,
    /// What the mark in front of the record tells.
    mark: Option<Lsn>,
    len: u32,
}

impl LogPlace<'_> {
    /// How many appends and reservations of the segment came before.
    #[inline]
    pub(crate) fn number(&self) -> u64 {
        self.space.number()
    }

    /// Fills the place with a record whose payload consists of the parts, which have the length
    /// that was reserved, and returns its end. `staging` is memory to put the frame together in.
    ///
    /// After a failure the log takes no more appends.
    #[inline]
    pub(crate) fn fill(self, staging: &mut Vec<u8>, parts: &[&[u8]]) -> Result<Lsn> {
        let LogPlace {
            log,
            space,
            mark,
            len,
        } = self;
        let start = space.offset();
        let filled = match mark {
            None => {
                let frame = log.place.stage(staging, start, len, parts);
                space.fill(&[frame])
            }
            Some(durable) => {
                let mark = log.place.mark(start, durable.0);
                let frame = log
                    .place
                    .stage(staging, start + MARK_BYTES as u64, len, parts);
                space.fill(&[&mark, frame])
            }
        };
        filled.map_err(|error| log.shared.fail(error.into()))?;
        let mark_bytes = if mark.is_some() { MARK_BYTES } else { 0 };
        let bytes = mark_bytes + FRAME_HEADER_BYTES + len as usize;
        Ok(Lsn::new(log.segment, start + bytes as u64))
    }
}

/// Writes the header of a segment.
fn begin(
    mut file: LogFile,
    segment: u64,
    after: Lsn,
    durable: Lsn,
) -> Result<(LogFile, FrameSeed)> {
    file.append(&[&SegmentHeader {
        segment,
        after,
        durable,
    }
    .encode()])?;
    Ok((file, FrameSeed::new(&MAGIC, segment)))
}

/// Size of a segment that has room for a mark and `wanted` bytes.
pub(super) fn segment_bytes_for(wanted: u64) -> u64 {
    (HEADER_BYTES + MARK_BYTES) as u64 + wanted
}

#[inline]
fn payload_len(parts: &[&[u8]]) -> Result<u32> {
    let len: usize = parts.iter().map(|part| part.len()).sum();
    match u32::try_from(len) {
        Ok(len) if len <= PAYLOAD_BYTES_MAX - FRAME_ROOM => Ok(len),
        _ => Err(Error::Limit {
            what: "log record (a write batch with its keys and values)",
            size: len as u64,
            limit: u64::from(PAYLOAD_BYTES_MAX - FRAME_ROOM),
        }),
    }
}

/// Room left below the largest payload, so that a segment with one frame has a length that fits a
/// position.
const FRAME_ROOM: u32 = 4096;
