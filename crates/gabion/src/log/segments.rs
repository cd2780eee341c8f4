//! The files of the log: which there are, and the next one prepared ahead.
//!
//! Creating a segment means reserving, reading and mapping it, which takes tens of milliseconds. A
//! background thread does it ahead of need.
//!
//! Of the segments that are needed no more, a few are kept and become the next ones: their space
//! was written before, so that a sync changes nothing in the file system but the data, and their
//! pages are in memory. They still hold old frames. None of them is valid in the new segment: a
//! frame's checksum covers the number of its segment, and two strings of the same length that
//! differ in this number only have different checksums, as a CRC keeps every difference of 32 bits
//! apart.
//!
//! A log that takes no appends for a while keeps neither spare files nor one prepared ahead
//! ([`Segments::discard_next`]), and may go on in a small segment ([`Segments::begin_small`]).
//!
//! Segments that are needed no more but by those who follow the log are kept for them
//! (`retention`).
//!
//! # A medium that fills up
//! Puts are refused before the last bytes are gone: a segment for them is begun only where what is
//! in memory can still be flushed after it, which takes as much as the log holds, and
//! [`KEPT_BYTES_MAX`] bytes are left for merges and deletes ([`SegmentPurpose`]). So whoever has
//! filled a medium can delete, and the deletes come to give room back. The less is free, the
//! smaller segments are, so that the last of them ends where the room does; and the shorter the log
//! is kept, as its files go with flushes ([`Segments::flush_at_bytes`]). Other programs may take
//! what is kept.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use gabion_media::{Disk, LogFile};
use parking_lot::Mutex;

use super::recovery::{ReplayEnd, present_segments};
use super::retention::LogRetention;
use super::writepath::segment_bytes_for;
use super::{LogOptions, SealedLog};
use crate::log::layout::Lsn;
use crate::names::log_name;
use crate::{Error, Result};

/// Size of the first segment: small, so that a small store is small.
pub(super) const SEGMENT_BYTES_FIRST: u64 = 1 << 20;

/// Segments that are kept to be used again. A flush moves the tail over several at once.
const SPARES_MAX: usize = 4;

/// What puts leave of a medium, or a sixteenth of one that is smaller than sixteen times that: the
/// size of a bucket, so that one can be merged.
const KEPT_BYTES_MAX: u64 = 64 << 20;

/// Merges leave this part of that to deletes, beside what flushes need: one in so many bytes.
const MERGES_LEAVE_ONE_IN: u64 = 4;

/// A segment takes at most this part of what is free: one in so many bytes.
const FREE_ONE_IN: u64 = 16;

/// The log is shortened when it is longer than this part of what is free: the flush for that leaves
/// most of it.
const FLUSH_AT_ONE_IN: u64 = 4;

/// Smallest size of a segment where less is free.
const SEGMENT_BYTES_SHORT: u64 = 64 << 10;

/// Whose records a segment is begun for, which says what of the medium it may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SegmentPurpose {
    /// Leaves what is kept.
    Puts,
    /// All there is; and what makes the log shorter has it, too.
    Deletes,
}

/// What a medium has left.
#[derive(Clone, Copy, Debug)]
pub(super) struct FreeSpace {
    free_bytes: u64,
    /// What of it puts leave.
    kept_bytes: u64,
}

impl FreeSpace {
    /// Of a medium without an end.
    const ALL: FreeSpace = FreeSpace {
        free_bytes: u64::MAX,
        kept_bytes: 0,
    };

    /// Whether puts are about to be refused.
    fn is_short(self) -> bool {
        self.free_bytes < 2 * self.kept_bytes
    }
}

/// The log's files. Lock order: `next`, then `live`.
#[derive(Debug)]
pub(super) struct Segments {
    disk: Disk,
    bytes_max: u64,
    flush_cost: u64,
    kept_bytes_max: u64,
    next: Mutex<Next>,
    /// Whether no file is prepared: a hint that costs no lock.
    needs_next: AtomicBool,
    /// What follows from the last look at the medium's room.
    flush_at_bytes: AtomicU64,
    is_short: AtomicBool,
    live: Mutex<Live>,
    /// Somebody else writes the log.
    is_followed: AtomicBool,
}

#[derive(Debug)]
struct Next {
    /// The segment that is written now; 0 before the first.
    current: u64,
    /// Size of its file.
    current_bytes: u64,
    /// Its successor, empty.
    prepared: Option<LogFile>,
    /// Size of the segment that is created next.
    bytes: u64,
}

#[derive(Debug)]
struct Live {
    /// Segments with their lengths, ascending, without the one that is written now.
    full: VecDeque<SealedLog>,
    /// Full segments of this process, ascending.
    retired: VecDeque<Retired>,
    /// Segments that are needed no more, to become the next ones. They have their old names.
    spares: Vec<Retired>,
    /// Those in front of the full ones.
    kept: LogRetention,
}

impl Live {
    /// Bytes in the full segments.
    fn full_bytes(&self) -> u64 {
        self.full.iter().map(|log| log.length).sum()
    }
}

#[derive(Debug)]
struct Retired {
    segment: u64,
    file: LogFile,
    /// Whether its memory was let go of.
    rests: bool,
}

impl Segments {
    pub(super) fn new(disk: Disk, end: &ReplayEnd, options: &LogOptions) -> Segments {
        let bytes_max = options.segment_bytes_max.max(segment_bytes_for(1));
        let next = Next {
            current: 0,
            current_bytes: 0,
            prepared: None,
            bytes: SEGMENT_BYTES_FIRST.min(bytes_max),
        };
        let live = Live {
            full: end.segments.iter().copied().collect(),
            retired: VecDeque::new(),
            spares: Vec::new(),
            kept: end.kept.clone(),
        };
        Segments {
            disk,
            bytes_max,
            flush_cost: options.flush_cost,
            kept_bytes_max: options.kept_bytes_max,
            next: Mutex::new(next),
            needs_next: AtomicBool::new(true),
            flush_at_bytes: AtomicU64::new(u64::MAX),
            is_short: AtomicBool::new(false),
            live: Mutex::new(live),
            is_followed: AtomicBool::new(false),
        }
    }

    /// The disk that holds the files.
    pub(super) fn disk(&self) -> &Disk {
        &self.disk
    }

    /// Hands over the empty file of `segment`, which becomes the current one: the prepared file if
    /// there is one (it may be too small for `wanted` bytes), else a new one with room for them.
    pub(super) fn take(&self, segment: u64, wanted: u64, room: SegmentPurpose) -> Result<LogFile> {
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
            None => self.create(&mut next, segment, wanted, room)?,
        };
        next.current = segment;
        next.current_bytes = file.capacity();
        // ORDER: Relaxed, a hint; the mutex orders everything else.
        self.needs_next.store(true, Ordering::Relaxed);
        Ok(file)
    }

    /// Creates the file of the segment behind the current one, unless it is there.
    pub(super) fn prepare_next(&self) -> Result<()> {
        let mut next = self.next.lock();
        let segment = next.current + 1;
        if next.prepared.is_none() && segment <= Lsn::PART_MAX {
            next.prepared = Some(self.create(&mut next, segment, 0, SegmentPurpose::Puts)?);
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

    /// Removes the prepared file and the spare ones.
    pub(super) fn discard_next(&self) -> Result<()> {
        let mut next = self.next.lock();
        if next.prepared.is_some() {
            self.disk.remove(&log_name(next.current + 1))?;
            next.prepared = None;
            // ORDER: Relaxed, as in `take`.
            self.needs_next.store(true, Ordering::Relaxed);
        }
        self.discard_spares()
    }

    fn discard_spares(&self) -> Result<()> {
        let mut live = self.live.lock();
        while let Some(spare) = live.spares.last() {
            self.disk.remove(&log_name(spare.segment))?;
            live.spares.pop();
        }
        Ok(())
    }

    /// Whether there is anything that [`Segments::discard_next`] removes.
    pub(super) fn holds_unused(&self) -> bool {
        self.next.lock().prepared.is_some() || !self.live.lock().spares.is_empty()
    }

    /// As [`Segments::discard_next`]; and the next segment is as small as the first one was.
    pub(super) fn begin_small(&self) -> Result<()> {
        self.discard_next()?;
        self.next.lock().bytes = SEGMENT_BYTES_FIRST.min(self.bytes_max);
        Ok(())
    }

    fn create(
        &self,
        next: &mut Next,
        segment: u64,
        wanted: u64,
        room: SegmentPurpose,
    ) -> Result<LogFile> {
        let part = self.look_at_room().free_bytes / FREE_ONE_IN;
        let fitting = next.bytes.min(part.max(SEGMENT_BYTES_SHORT));
        let mut bytes = fitting.max(segment_bytes_for(wanted));
        if room == SegmentPurpose::Puts {
            self.keep_room(next, segment, bytes)?;
        }
        if let Some(file) = self.recycle(segment, bytes)? {
            return Ok(file);
        }
        let least = segment_bytes_for(wanted).max(bytes.min(SEGMENT_BYTES_SHORT));
        loop {
            match self.disk.create_log(&log_name(segment), bytes) {
                Err(error)
                    if error.is_no_space() && room == SegmentPurpose::Deletes && bytes > least =>
                {
                    bytes = (bytes / 2).max(least);
                }
                created => {
                    let file = created?;
                    if bytes >= next.bytes {
                        next.bytes = (next.bytes * 2).min(self.bytes_max);
                    }
                    return Ok(file);
                }
            }
        }
    }

    /// An error where a segment of `bytes` bytes would take what is kept for deletes. Gives up
    /// spare files before.
    fn keep_room(&self, next: &Next, segment: u64, bytes: u64) -> Result<()> {
        let unflushed = self.live.lock().full_bytes() + next.current_bytes;
        let flushes = self.flush_cost * (unflushed + bytes);
        let is_kept = |left: FreeSpace| left.free_bytes >= left.kept_bytes + bytes + flushes;
        if is_kept(self.look_at_room()) {
            return Ok(());
        }
        self.discard_spares()?;
        if is_kept(self.look_at_room()) {
            return Ok(());
        }
        let operation = "use the space reserved for deletes for";
        Err(self.no_room(operation, &log_name(segment)))
    }

    /// An error where somebody who goes on to write the file `name` takes of what flushes need.
    pub(super) fn keep_room_to_flush(
        &self,
        name: impl FnOnce() -> String,
        live_bytes: u64,
    ) -> Result<()> {
        let left = self.look_at_room();
        match left.free_bytes < live_bytes + left.kept_bytes / MERGES_LEAVE_ONE_IN {
            true => Err(self.no_room("use the space reserved for flushes for", &name())),
            false => Ok(()),
        }
    }

    /// Whether the medium is short of room, but has what it takes to flush a log of so many bytes.
    pub(super) fn has_room_to_flush(&self, live_bytes: u64) -> bool {
        let left = self.look_at_room();
        left.is_short() && left.free_bytes >= self.flush_cost * live_bytes
    }

    fn no_room(&self, operation: &'static str, name: &str) -> Error {
        let error = gabion_media::Error::Io {
            operation,
            path: self.disk.path_of(name),
            offset: None,
            source: ErrorKind::StorageFull.into(),
        };
        error.into()
    }

    /// Looks how much of the medium is free. Where the file system does not tell, nothing is kept.
    pub(super) fn look_at_room(&self) -> FreeSpace {
        let left = self.disk.room().map_or(FreeSpace::ALL, |room| FreeSpace {
            free_bytes: room.free_bytes,
            kept_bytes: KEPT_BYTES_MAX.min(room.total_bytes / FREE_ONE_IN),
        });
        // ORDER: Relaxed (both): figures for pacing, no data depends on them.
        self.flush_at_bytes
            .store(left.free_bytes / FLUSH_AT_ONE_IN, Ordering::Relaxed);
        self.is_short.store(left.is_short(), Ordering::Relaxed);
        left
    }

    /// The length of the log from which on it is shortened, by what was free at the last look.
    pub(super) fn flush_at_bytes(&self) -> u64 {
        // ORDER: Relaxed, as above.
        self.flush_at_bytes.load(Ordering::Relaxed)
    }

    /// Whether puts were about to be refused at the last look.
    pub(super) fn is_room_short(&self) -> bool {
        // ORDER: Relaxed, as above.
        self.is_short.load(Ordering::Relaxed)
    }

    /// A spare file as the file of `segment`, if one has at least `bytes` bytes. Those that cannot
    /// be used are removed.
    fn recycle(&self, segment: u64, bytes: u64) -> Result<Option<LogFile>> {
        loop {
            let Some(spare) = self.live.lock().spares.pop() else {
                return Ok(None);
            };
            if spare.file.capacity() >= bytes
                && let Some(file) = self.disk.recycle_log(spare.file, &log_name(segment))?
            {
                return Ok(Some(file));
            }
            self.disk.remove(&log_name(spare.segment))?;
        }
    }

    /// Takes note that a segment is full.
    pub(super) fn retire(&self, segment: u64, file: LogFile) {
        let mut live = self.live.lock();
        live.full.push_back(SealedLog {
            segment,
            length: file.position(),
        });
        live.retired.push_back(Retired {
            segment,
            file,
            rests: false,
        });
    }

    /// Lets go of the memory of full segments.
    pub(super) fn release_retired(&self) {
        while let Some(mut retired) = self.take_awake() {
            // It takes milliseconds, in which the writer must be able to retire a segment.
            retired.file.rest();
            retired.rests = true;
            self.put_back(retired);
        }
    }

    /// Takes out the oldest full segment that has not let go of its memory.
    fn take_awake(&self) -> Option<Retired> {
        let mut live = self.live.lock();
        let at = live.retired.iter().position(|retired| !retired.rests)?;
        live.retired.remove(at)
    }

    /// Puts back what was taken out, unless the segment is needed no more: then nobody needs the
    /// file.
    fn put_back(&self, retired: Retired) {
        let mut live = self.live.lock();
        if live.full.iter().any(|log| log.segment == retired.segment) {
            let is_below = |other: &Retired| other.segment < retired.segment;
            let at = live.retired.partition_point(is_below);
            live.retired.insert(at, retired);
        }
    }

    /// Bytes in the full segments below `segment`.
    pub(super) fn bytes_before(&self, segment: u64) -> u64 {
        let live = self.live.lock();
        let before = live.full.iter().filter(|log| log.segment < segment);
        before.map(|log| log.length).sum()
    }

    /// The oldest full segment.
    pub(super) fn oldest_full(&self) -> Option<u64> {
        self.live.lock().full.front().map(|log| log.segment)
    }

    /// The length of a segment that is full or kept; `None` for all others.
    pub(super) fn length_of(&self, segment: u64) -> Option<u64> {
        let live = self.live.lock();
        let mut logs = live.kept.segments.iter().chain(&live.full);
        let found = logs.find(|log| log.segment == segment);
        found.map(|log| log.length)
    }

    /// The first segment behind another one.
    pub(super) fn after(&self, segment: u64) -> Option<u64> {
        let current = self.next.lock().current;
        let live = self.live.lock();
        let logs = live.kept.segments.iter().chain(&live.full);
        let all = logs.map(|log| log.segment).chain([current]);
        all.filter(|other| *other > segment).min()
    }

    /// Bytes of the full and kept segments behind a position.
    pub(super) fn full_bytes_behind(&self, at: Lsn) -> u64 {
        let live = self.live.lock();
        let logs = live.kept.segments.iter().chain(&live.full);
        let behind = logs.map(|log| match log.segment.cmp(&at.segment()) {
            std::cmp::Ordering::Less => 0,
            std::cmp::Ordering::Equal => log.length.saturating_sub(at.offset()),
            std::cmp::Ordering::Greater => log.length,
        });
        behind.sum()
    }

    /// Bytes of the segments that are kept for readers alone.
    pub(super) fn kept_bytes(&self) -> u64 {
        self.live.lock().kept.bytes()
    }

    /// The first segment that a reader needs.
    pub(super) fn kept_from(&self) -> Option<u64> {
        self.live.lock().kept.from()
    }

    /// Whether a reader at that position is cut off.
    pub(super) fn is_invalidated(&self, at: Lsn) -> bool {
        self.live.lock().kept.is_invalidated(at)
    }

    /// Keeps segments for readers at these positions from now on, and removes what they do not
    /// need.
    pub(super) fn keep_for(&self, readers: &[Lsn]) -> Result<()> {
        self.live.lock().kept.set_readers(readers);
        self.remove_kept()
    }

    /// Removes kept segments that nobody needs, or that are too many.
    fn remove_kept(&self) -> Result<()> {
        loop {
            let outdated = self.live.lock().kept.take_outdated(self.kept_bytes_max);
            let Some(log) = outdated else {
                return Ok(());
            };
            if let Err(error) = self.disk.remove(&log_name(log.segment))
                && !error.is_not_found()
            {
                self.live.lock().kept.segments.push_front(log);
                return Err(error.into());
            }
        }
    }

    /// Number of the full segments from one on.
    pub(super) fn full_from(&self, segment: u64) -> u64 {
        let live = self.live.lock();
        let from = live.full.iter().filter(|log| log.segment >= segment);
        from.count() as u64
    }

    /// Takes note of the segments of a log that somebody else writes, of which `current` is the
    /// newest that was read. Those in front of it count as long as their files.
    pub(super) fn follow(&self, current: u64) -> Result<()> {
        let mut full = VecDeque::new();
        for segment in present_segments(&self.disk)? {
            if segment < current {
                match self.disk.len_of(&log_name(segment)) {
                    Err(error) if error.is_not_found() => {}
                    length => full.push_back(SealedLog {
                        segment,
                        length: length?,
                    }),
                }
            }
        }
        // ORDER: Relaxed; it never changes back.
        self.is_followed.store(true, Ordering::Relaxed);
        self.next.lock().current = current;
        self.live.lock().full = full;
        Ok(())
    }

    /// Whether somebody else writes the log.
    pub(super) fn is_followed(&self) -> bool {
        // ORDER: Relaxed, as above.
        self.is_followed.load(Ordering::Relaxed)
    }

    /// Whether somebody else, who writes the log, has removed a segment, which is forgotten then.
    pub(super) fn was_removed(&self, segment: u64) -> bool {
        if !self.is_followed() || self.disk.exists(&log_name(segment)).unwrap_or(true) {
            return false;
        }
        let mut next = self.next.lock();
        if next.current == segment {
            next.current = 0;
        }
        let mut live = self.live.lock();
        live.full.retain(|log| log.segment != segment);
        true
    }

    /// Number of the full segments.
    pub(super) fn full(&self) -> usize {
        self.live.lock().full.len()
    }

    /// Bytes that the files take, the parts included that hold nothing yet or nothing any more.
    pub(super) fn file_bytes(&self) -> u64 {
        let next = self.next.lock();
        let live = self.live.lock();
        let full = live.full_bytes();
        let retired = live.retired.iter().map(|retired| &retired.file);
        let ends: u64 = retired.map(LogFile::remaining).sum();
        let spares = live.spares.iter().map(|spare| &spare.file);
        let empty = spares.chain(&next.prepared).map(LogFile::capacity);
        full + live.kept.bytes() + ends + next.current_bytes + empty.sum::<u64>()
    }

    /// Removes the full segments below `segment`, or keeps a few of them as spare ones, but for
    /// those that readers need, which are durable. One that cannot be removed stays known, and so
    /// is tried again by the next call.
    pub(super) fn remove_before(&self, segment: u64) -> Result<()> {
        self.keep_before(segment)?;
        self.remove_kept()?;
        while let Some(first) = self.take_outdated(segment) {
            if let Err(error) = self.disk.remove(&log_name(first.segment))
                && !error.is_not_found()
            {
                let mut live = self.live.lock();
                let at = live.full.partition_point(|log| log.segment < first.segment);
                live.full.insert(at, first);
                return Err(error.into());
            }
        }
        Ok(())
    }

    /// Keeps the full segments below `segment` that readers need, without their unused space.
    fn keep_before(&self, segment: u64) -> Result<()> {
        while let Some((log, retired)) = self.take_needed(segment) {
            // The mapping must not outlive the pages that it maps.
            drop(retired);
            let name = log_name(log.segment);
            if self.disk.len_of(&name)? > log.length {
                self.disk.truncate(&name, log.length)?;
            }
        }
        Ok(())
    }

    /// Takes the first full segment below `segment` that readers need to those that are kept.
    fn take_needed(&self, segment: u64) -> Option<(SealedLog, Option<Retired>)> {
        let mut live = self.live.lock();
        let from = live.kept.from()?;
        let at = live.full.iter().position(|log| log.segment >= from)?;
        let log = live.full.get(at).copied()?;
        if log.segment >= segment {
            return None;
        }
        live.full.remove(at);
        let is_it = |retired: &Retired| retired.segment == log.segment;
        let retired = live.retired.iter().position(is_it);
        let retired = retired.and_then(|at| live.retired.remove(at));
        live.kept.segments.push_back(log);
        Some((log, retired))
    }

    /// Takes the oldest full segment out of what is known if it is below `segment` and is to be
    /// removed, which is up to the caller alone from then on; one that becomes a spare is passed
    /// over.
    fn take_outdated(&self, segment: u64) -> Option<SealedLog> {
        let bytes = self.next.lock().bytes;
        let mut live = self.live.lock();
        loop {
            let first = live.full.pop_front_if(|log| log.segment < segment)?;
            let is_first = |retired: &mut Retired| retired.segment == first.segment;
            let Some(retired) = live.retired.pop_front_if(is_first) else {
                return Some(first);
            };
            let fits = (bytes..=self.bytes_max).contains(&retired.file.capacity());
            if live.spares.len() >= SPARES_MAX || !fits {
                return Some(first);
            }
            live.spares.push(retired);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use gabion_media::SimDisk;

    use super::*;
    use crate::log::replay;

    /// Puts took the last byte, and then there was none for a delete. Segments for deletes are as
    /// small as they have to be.
    #[test]
    fn puts_leave_room_for_deletes() {
        let sim = SimDisk::new();
        let disk = Disk::simulated(&sim);
        let end = replay(&disk, 1, &BTreeMap::new(), |_, _| Ok(())).unwrap();
        let segments = Segments::new(disk.clone(), &end, &LogOptions::default());
        sim.set_capacity(Some(64 << 20));
        let mut full = 0;
        let refused = loop {
            match segments.take(full + 1, 0, SegmentPurpose::Puts) {
                Ok(mut file) => {
                    full += 1;
                    let content = vec![7; usize::try_from(file.remaining()).unwrap()];
                    file.append(&[&content]).unwrap();
                    segments.retire(full, file);
                }
                Err(error) => break error,
            }
        };
        assert!(refused.is_no_space(), "{refused}");
        assert!(
            refused.to_string().contains("reserved for deletes"),
            "{refused}"
        );
        assert!(
            segments.prepare_next().is_err(),
            "nor is one made ahead for puts"
        );
        let (free, used) = (disk.room().unwrap().free_bytes, segments.file_bytes());
        assert!(
            free > used + (4 << 20) && used > 16 << 20,
            "{free} free, {used} used"
        );
        let mut smallest = u64::MAX;
        for number in full + 1.. {
            let Ok(file) = segments.take(number, 1000, SegmentPurpose::Deletes) else {
                break;
            };
            smallest = smallest.min(file.capacity());
            segments.retire(number, file);
        }
        assert_eq!(smallest, SEGMENT_BYTES_SHORT);
        let left = disk.room().unwrap().free_bytes;
        assert!(left < SEGMENT_BYTES_SHORT, "{left} bytes are left");
    }

    /// Between a thread's look at what is outdated and its removal of the file, a second one puts
    /// the file back whose memory it let go of, and a third removes what is outdated.
    #[test]
    fn a_file_that_is_being_removed_does_not_become_a_spare_one() {
        let sim = SimDisk::new();
        let disk = Disk::simulated(&sim);
        let end = replay(&disk, 1, &BTreeMap::new(), |_, _| Ok(())).unwrap();
        let options = LogOptions {
            segment_bytes_max: 1024,
            ..LogOptions::default()
        };
        let segments = Segments::new(disk.clone(), &end, &options);
        for segment in 1..=2 {
            let file = segments.take(segment, 0, SegmentPurpose::Puts).unwrap();
            segments.retire(segment, file);
        }
        let resting = segments.take_awake().unwrap();
        let outdated = segments.take_outdated(2).unwrap();
        segments.put_back(resting);
        segments.remove_before(2).unwrap();
        disk.remove(&log_name(outdated.segment)).unwrap();
        let file = segments.take(3, 0, SegmentPurpose::Puts).unwrap();
        segments.retire(3, file);
        segments.remove_before(3).unwrap();
        assert_eq!(sim.names(), [log_name(2), log_name(3)], "2 is a spare one");
        let file = segments.take(4, 0, SegmentPurpose::Puts).unwrap();
        segments.retire(4, file);
        assert_eq!(sim.names(), [log_name(3), log_name(4)], "2 became 4");
        segments.remove_before(u64::MAX).unwrap();
        segments.discard_next().unwrap();
        assert_eq!(sim.names(), Vec::<String>::new());
    }
}
