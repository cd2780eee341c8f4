//! Making the log durable, from any thread, while its writer goes on.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use gabion_media::{Disk, LogSync};
use parking_lot::Mutex;

use super::LogOptions;
use super::deadline::{SyncDeadline, SyncInProgress};
use super::layout::{HEADER_BYTES, Lsn};
use super::recovery::ReplayEnd;
use super::segments::Segments;
use super::tail::LogTail;
use crate::{Clock, Error, Result};

/// What the log's writer shares with the threads that work for it: group commit and the interval
/// thread sync, a background thread prepares segments and removes old ones.
///
/// # Invariants
/// - I1. `durable <= appended`; both only grow.
/// - I2. Every segment with bytes in `durable..appended` is in `unsynced`, in order, unless it was
///   removed because the manifest needs it no more; the last entry is the current segment.
/// - I3. `durable` moves past bytes of a segment only after the segment's file and its name in the
///   directory are durable, and all segments before it.
/// - I4. After the first failure nothing is appended or becomes durable any more.
#[derive(Debug)]
pub(crate) struct LogSyncer {
    appended: AtomicU64,
    durable: AtomicU64,
    failure: OnceLock<Error>,
    /// One sync at a time. Never taken by the writer.
    syncing: Mutex<()>,
    /// When the next sync must begin.
    deadline: SyncDeadline,
    /// Held for moments only, not while a file is synced.
    unsynced: Mutex<Vec<Unsynced>>,
    segments: Segments,
    /// The end of the log when it was last told to rest.
    rested: AtomicU64,
    /// Where the log ended before the segment that is written now.
    before: AtomicU64,
}

#[derive(Clone, Debug)]
struct Unsynced {
    segment: u64,
    file: LogSync,
    /// Whether its name is durable.
    named: bool,
}

impl LogSyncer {
    /// That of a log that ends where a replay ended and rests until its next segment is begun.
    pub(super) fn behind(
        disk: &Disk,
        end: &ReplayEnd,
        options: &LogOptions,
        clock: &Clock,
    ) -> LogSyncer {
        let segments = Segments::new(disk.clone(), end, options);
        let end = end.end;
        LogSyncer {
            appended: AtomicU64::new(end.0),
            durable: AtomicU64::new(end.0),
            failure: OnceLock::new(),
            syncing: Mutex::new(()),
            deadline: SyncDeadline::new(clock),
            unsynced: Mutex::new(Vec::new()),
            segments,
            rested: AtomicU64::new(end.0),
            before: AtomicU64::new(end.0),
        }
    }

    /// Takes note of how far a log was read that somebody else writes; and of the segments that it
    /// has, if they may be others than before.
    pub(crate) fn follow(&self, tail: &LogTail, renew: bool) -> Result<()> {
        if renew || tail.segment() != self.appended_lsn().segment() {
            self.segments.follow(tail.segment())?;
        }
        // ORDER: as in `begun`, `sync_begun` and `set_appended`.
        self.before.store(tail.position().0, Ordering::Relaxed);
        self.durable.store(tail.durable().0, Ordering::Release);
        self.set_appended(tail.end());
        Ok(())
    }

    pub(super) fn segments(&self) -> &Segments {
        &self.segments
    }

    /// The writer has begun a segment, behind the end of the one before.
    pub(super) fn begun(&self, segment: u64, file: LogSync, after: Lsn) {
        // ORDER: Relaxed; who asks for it keeps the writer out.
        self.before.store(after.0, Ordering::Relaxed);
        self.unsynced.lock().push(Unsynced {
            segment,
            file,
            named: false,
        });
    }

    /// The writer has appended up to here.
    #[inline]
    pub(super) fn set_appended(&self, end: Lsn) {
        // ORDER: Release, partner of the Acquire in `appended_lsn`: whoever sees the position also
        // sees the bytes in the mapping and the segment in `unsynced`.
        self.appended.store(end.0, Ordering::Release);
    }

    /// End of the log.
    #[inline]
    pub(crate) fn appended_lsn(&self) -> Lsn {
        // ORDER: Acquire, partner of the Release in `set_appended`.
        Lsn(self.appended.load(Ordering::Acquire))
    }

    /// Where the last record ends: a position that stays one when a segment without a record is
    /// left out. Whoever asks keeps the writer out.
    pub(crate) fn last_record_lsn(&self) -> Lsn {
        let end = self.appended_lsn();
        match end.offset() <= HEADER_BYTES as u64 {
            // ORDER: Relaxed, as in `begun`.
            true => Lsn(self.before.load(Ordering::Relaxed)),
            false => end,
        }
    }

    /// Everything before this position survives the loss of power.
    #[inline]
    pub(crate) fn durable_lsn(&self) -> Lsn {
        // ORDER: Acquire, partner of the Release in `sync`: a mark with this position is written
        // after the sync returned.
        Lsn(self.durable.load(Ordering::Acquire))
    }

    /// The first failure, if there was one.
    #[inline]
    pub(crate) fn check(&self) -> Result<()> {
        match self.failure.get() {
            None => Ok(()),
            Some(error) => Err(error.clone()),
        }
    }

    /// Keeps the first failure, after which the log takes no more appends or syncs.
    #[cold]
    pub(crate) fn fail(&self, error: Error) -> Error {
        self.failure.get_or_init(|| error).clone()
    }

    /// Makes everything durable that was appended before the call, and returns the position up to
    /// which the log is durable. Costs nothing if that is so already. The writer may append
    /// meanwhile; callers at the same time wait for each other and share syncs.
    ///
    /// After a failure the log takes no more appends or syncs, as nobody knows what a second sync
    /// would have to write.
    pub(crate) fn sync(&self) -> Result<Lsn> {
        let wanted = self.appended_lsn();
        let _one_at_a_time = self.syncing.lock();
        self.check()?;
        let durable = self.durable_lsn();
        if durable >= wanted {
            return Ok(durable);
        }
        self.sync_begun(&self.deadline.begin())
    }

    /// As [`LogSyncer::sync`], when [`LogSyncer::sync_begins_at`] has come.
    pub(crate) fn sync_due(&self) -> Result<Lsn> {
        let _one_at_a_time = self.syncing.lock();
        let begun = self.deadline.begin();
        self.check()?;
        self.sync_begun(&begun)
    }

    /// The sync itself, one at a time.
    fn sync_begun(&self, begun: &SyncInProgress) -> Result<Lsn> {
        // What was appended until here is taken along, and what was asked for until `begun` was
        // appended before. The segments are listed after the position is read, so the list holds
        // all segments up to that position (I2).
        let target = self.appended_lsn();
        let has_work = self.durable_lsn() < target;
        if has_work {
            let unsynced = self.unsynced.lock().clone();
            self.sync_files(&unsynced)
                .map_err(|error| self.fail(error))?;
            self.forget(&unsynced);
            // DURABLE: the bytes of all segments before `target`, and the names of these segments.
            // ORDER: Release, partner of the Acquire in `durable_lsn`.
            self.durable.store(target.0, Ordering::Release);
        }
        let has_left = self.appended_lsn() > target;
        self.deadline.end(begun, has_work, has_left);
        Ok(target)
    }

    /// What the caller has appended must be durable within `time`. Whether
    /// [`LogSyncer::sync_begins_at`] has changed by that, and who waits for it must be told.
    #[inline]
    pub(crate) fn ask(&self, time: Duration) -> bool {
        self.deadline.ask(time)
    }

    /// When somebody must call [`LogSyncer::sync_due`], if anybody must.
    pub(crate) fn sync_begins_at(&self) -> Option<Duration> {
        self.deadline.begins_at()
    }

    /// Whether that is now.
    pub(crate) fn is_sync_due(&self) -> bool {
        self.deadline.is_due()
    }

    fn sync_files(&self, unsynced: &[Unsynced]) -> Result<()> {
        for segment in unsynced {
            segment.file.sync()?;
        }
        if unsynced.iter().any(|segment| !segment.named) {
            self.segments.disk().sync_dir()?;
        }
        Ok(())
    }

    /// Of the synced segments only the last may have been written to since.
    fn forget(&self, synced: &[Unsynced]) {
        let Some(last) = synced.last() else {
            return;
        };
        let mut unsynced = self.unsynced.lock();
        unsynced.retain(|entry| entry.segment >= last.segment);
        for entry in unsynced
            .iter_mut()
            .filter(|entry| entry.segment == last.segment)
        {
            entry.named = true;
        }
    }

    /// Whether [`LogSyncer::prepare_next`] has something to do. A log that rests needs no segment
    /// before its next append.
    pub(crate) fn needs_next(&self) -> bool {
        self.segments.needs_next() && !self.is_resting()
    }

    /// Removes what is there for appends to come, until one comes.
    pub(crate) fn rest(&self) -> Result<()> {
        // ORDER: Relaxed, a hint: a log that is wrong about its rest creates a segment late.
        self.rested.store(self.appended_lsn().0, Ordering::Relaxed);
        self.segments.discard_next()
    }

    /// Whether [`LogSyncer::rest`] would remove anything, or keep anything from being made.
    pub(crate) fn may_rest(&self) -> bool {
        self.segments.holds_unused() || self.needs_next()
    }

    fn is_resting(&self) -> bool {
        // ORDER: Relaxed, as in `rest`.
        self.rested.load(Ordering::Relaxed) == self.appended_lsn().0
    }

    /// As [`LogSyncer::prepare_next`], where there is something to do. A failure concerns nobody
    /// yet: the writer tries again when it needs the segment.
    pub(crate) fn prepare_next_or_warn(&self) {
        if self.needs_next()
            && let Err(error) = self.prepare_next()
        {
            tracing::warn!(%error, "the log's next segment could not be prepared");
        }
    }

    /// Creates the next segment ahead of need, so that the writer does not wait for it, and lets
    /// go of full ones. For a background thread.
    pub(crate) fn prepare_next(&self) -> Result<()> {
        self.segments.release_retired();
        self.segments.prepare_next()
    }

    /// Bytes in the log's segments.
    pub(crate) fn live_bytes(&self) -> u64 {
        let end = self.appended_lsn();
        self.segments.bytes_before(end.segment()) + end.offset()
    }

    /// Number of the segments in front of the one that is written now.
    pub(crate) fn full_segments(&self) -> usize {
        self.segments.full()
    }

    /// Looks how much of the medium is free.
    pub(crate) fn look_at_room(&self) {
        self.segments.look_at_room();
    }

    /// An error where a job that goes on to write the file `name` takes of what flushes need, as
    /// they are what makes the log shorter.
    pub(crate) fn keep_room_to_flush(&self, name: impl FnOnce() -> String) -> Result<()> {
        self.segments.keep_room_to_flush(name, self.live_bytes())
    }

    /// Whether the medium is short of room, but has what it takes to flush all that is in memory.
    pub(crate) fn has_room_to_flush(&self) -> bool {
        self.segments.has_room_to_flush(self.live_bytes())
    }

    /// Whether a log of so many [`LogSyncer::live_bytes`] is longer than it should be for what the
    /// medium has free, and files of it would go with a flush. By the last look.
    #[inline]
    pub(crate) fn is_long_for_room(&self, live_bytes: u64) -> bool {
        live_bytes > self.segments.flush_at_bytes() && self.oldest_full().is_some()
    }

    /// Whether the medium was nearly full at the last look.
    pub(crate) fn is_room_short(&self) -> bool {
        self.segments.is_room_short()
    }

    /// The oldest segment, if it is not the one that is written now.
    pub(crate) fn oldest_full(&self) -> Option<u64> {
        self.segments.oldest_full()
    }

    /// Keeps the log for readers at these positions, from now on, and no more for others.
    pub(crate) fn keep_for(&self, readers: &[Lsn]) -> Result<()> {
        self.segments.keep_for(readers)
    }

    /// Whether the log is kept no more for a reader at that position, which was too slow.
    pub(crate) fn is_invalidated(&self, at: Lsn) -> bool {
        self.segments.is_invalidated(at)
    }

    /// The first segment that a reader needs, if there is any.
    pub(crate) fn kept_from(&self) -> Option<u64> {
        self.segments.kept_from()
    }

    /// Bytes in segments that are kept for readers alone.
    pub(crate) fn kept_bytes(&self) -> u64 {
        self.segments.kept_bytes()
    }

    /// Whether the log has come to a position, as far as it knows of its segment.
    pub(crate) fn has_reached(&self, at: Lsn) -> bool {
        let end = self.appended_lsn();
        let length = self.segments.length_of(at.segment());
        at <= end && length.is_none_or(|length| at.offset() <= length)
    }

    /// Bytes of the log behind a position.
    pub(crate) fn bytes_behind(&self, at: Lsn) -> u64 {
        let end = self.appended_lsn();
        let current = match at.segment() < end.segment() {
            true => end.offset(),
            false => end.0.saturating_sub(at.0),
        };
        self.segments.full_bytes_behind(at) + current
    }

    /// Number of the segments from one on, with the one that is written now.
    pub(crate) fn segments_from(&self, segment: u64) -> u64 {
        self.segments.full_from(segment) + 1
    }

    /// Where the oldest segment begins that there is.
    pub(crate) fn oldest_lsn(&self) -> Lsn {
        let first = self.segments.after(0);
        first.map_or(self.appended_lsn(), |segment| Lsn::new(segment, 0))
    }

    /// Bytes that the log's files take.
    pub(crate) fn file_bytes(&self) -> u64 {
        self.segments.file_bytes()
    }

    /// Removes the segments below `segment`, but not the one that is written now. The manifest
    /// says durably that they are not needed; so nothing in them needs a sync any more, but for
    /// those that are kept for readers.
    pub(crate) fn remove_before(&self, segment: u64) -> Result<()> {
        let segment = segment.min(self.appended_lsn().segment());
        if self.segments.kept_from().is_some_and(|from| from < segment)
            && self.durable_lsn() < Lsn::new(segment, 0)
        {
            self.sync()?;
        }
        self.unsynced
            .lock()
            .retain(|entry| entry.segment >= segment);
        self.segments.remove_before(segment)
    }
}
