//! Reading the log from a position on, while it is written.
//!
//! # Idea
//! A cursor stands at a position and goes from record to record, from segment to segment, up to an
//! end that its user gives with each step: what is appended, or what is durable. It reads files
//! and takes no lock that the log's writer waits for. What it needs to know of the segments it asks
//! the log, which knows which there are; so it can be used as long as the log is open.
//!
//! # Invariants
//! - R1. A cursor passes no hole: it goes on in a segment whose header says that the log ended
//!   where the cursor stands. What reads otherwise is damage, or the segment is gone.
//! - R2. Segments go from the front, and what goes is unknown to the log before its file changes.
//!   So who finds no valid bytes and the segment known has found damage.

use std::sync::Arc;

use gabion_media::Disk;

use super::batch::LogEntry;
use super::layout::{HEADER_BYTES, HeaderState, Lsn};
use super::reader::{NextFrame, SegmentReader};
use super::recovery::{ReplayEnd, corruption, newer};
use super::sync::LogSyncer;
use super::{LogOptions, MalformedPayload};
use crate::names::log_name;
use crate::{Clock, Error, Result};

/// Reads what is kept for readers at these positions of a log that was replayed, and the log.
pub(crate) fn check_kept(disk: &Disk, mut end: ReplayEnd, readers: &[Lsn]) -> Result<()> {
    if readers.is_empty() {
        return Ok(());
    }
    end.keep_for(disk, readers)?;
    let clock = Clock::system();
    let log = Arc::new(LogSyncer::behind(
        disk,
        &end,
        &LogOptions::default(),
        &clock,
    ));
    let mut cursor = LogCursor::new(&log, log.oldest_lsn());
    while let CursorStep::Record(at) = cursor.step(log.appended_lsn())? {
        let damaged = |malformed: MalformedPayload| {
            malformed.in_file(disk.path_of(&log_name(at.segment())), at.offset())
        };
        if let LogEntry::Batch(_, _, mut operations) =
            LogEntry::read(cursor.record()).map_err(damaged)?
        {
            operations
                .try_for_each(|operation| operation.map(drop))
                .map_err(damaged)?;
        }
    }
    Ok(())
}

/// Stands at a position of the log.
#[derive(Debug)]
pub(crate) struct LogCursor {
    log: Arc<LogSyncer>,
    at: Lsn,
    /// Where it stood before it passed to the segment of `at`, if it has read nothing there.
    passed: Lsn,
    /// The segment of `at`, once it was read.
    open: Option<SegmentReader>,
}

/// What a step of a cursor has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CursorStep {
    /// A record, which begins at the position: [`LogCursor::record`].
    Record(Lsn),
    /// The end up to which it was to read.
    End,
    /// That the log has nothing at its position, any more or at all.
    Gone,
}

impl LogCursor {
    /// A cursor at a position where a record begins or ends.
    pub(crate) fn new(log: &Arc<LogSyncer>, at: Lsn) -> LogCursor {
        LogCursor {
            log: Arc::clone(log),
            at,
            passed: at,
            open: None,
        }
    }

    /// Where it stands: behind the last record, also where the next one will be in another segment,
    /// which goes if there will be none.
    pub(crate) fn position(&self) -> Lsn {
        match self.at.offset() <= HEADER_BYTES as u64 {
            true => self.passed,
            false => self.at,
        }
    }

    /// The last record.
    pub(crate) fn record(&self) -> &[u8] {
        self.open.as_ref().map_or(&[], SegmentReader::record)
    }

    /// Goes back to the last record, which began at `at`.
    pub(crate) fn back_to(&mut self, at: Lsn) {
        self.at = at;
        if let Some(reader) = &mut self.open {
            reader.seek(at.offset());
        }
    }

    /// Goes on to the next record before `end`, up to which the log is written.
    pub(crate) fn step(&mut self, end: Lsn) -> Result<CursorStep> {
        loop {
            if self.at >= end {
                let is_ahead = self.at > self.log.appended_lsn();
                return Ok(if is_ahead {
                    CursorStep::Gone
                } else {
                    CursorStep::End
                });
            }
            let segment = self.at.segment();
            let stepped = match self.step_within(end) {
                // What is read of a file that goes may be anything (R2).
                Err(_) if self.is_gone(segment) => Ok(Some(CursorStep::Gone)),
                stepped => stepped,
            };
            if let Some(stepped) = stepped? {
                return Ok(stepped);
            }
        }
    }

    /// One step; `None` where it has passed to another segment.
    fn step_within(&mut self, end: Lsn) -> Result<Option<CursorStep>> {
        let segment = self.at.segment();
        let limit = match segment == end.segment() {
            true => Some(end.offset()),
            false => self.log.segments().length_of(segment),
        };
        let Some(limit) = limit else {
            return self.pass(end, None);
        };
        let Some(reader) = &mut self.open else {
            self.open = Some(self.enter(segment)?.0);
            return Ok(None);
        };
        if self.at.offset() > limit {
            return Ok(Some(CursorStep::Gone));
        }
        reader.set_end(limit);
        if let NextFrame::Record(start, _) = reader.step()? {
            self.at = Lsn::new(segment, reader.offset());
            return Ok(Some(CursorStep::Record(Lsn::new(segment, start))));
        }
        let stands = Lsn::new(segment, reader.offset());
        if segment == end.segment() {
            if stands < end {
                return Err(self.damage(stands, "the bytes are not a valid log record"));
            }
            self.at = stands;
            return Ok(Some(CursorStep::End));
        }
        self.at = stands;
        self.pass(end, Some(stands))
    }

    /// Passes to the segment behind that of the position. It begins where the cursor stands, which
    /// has read all that is in front, or whose segment is not there.
    fn pass(&mut self, end: Lsn, read: Option<Lsn>) -> Result<Option<CursorStep>> {
        let segment = self.at.segment();
        // The writer may be about to leave the segment of the end, which is in no list then.
        let known = self.log.segments().after(segment);
        let next = known.map_or(end.segment(), |known| known.min(end.segment()));
        let (reader, after) = self.enter(next)?;
        if after != self.at {
            // Of a log that somebody else writes, what was between may have gone.
            let is_between = after.segment() > segment && self.log.segments().is_followed();
            return match read.filter(|_| !is_between) {
                Some(stands) => {
                    Err(self.damage(stands, "the next log segment does not continue here"))
                }
                None => Ok(Some(CursorStep::Gone)),
            };
        }
        self.passed = self.position();
        self.at = Lsn::new(next, HEADER_BYTES as u64);
        self.open = Some(reader);
        Ok(None)
    }

    /// Opens a segment at the position, or at its first record; returns where the log had ended
    /// before, too.
    fn enter(&mut self, segment: u64) -> Result<(SegmentReader, Lsn)> {
        let disk = self.log.segments().disk();
        let file = disk.open_read(&log_name(segment))?;
        // What lies behind the header may not be written yet.
        let front = HEADER_BYTES as u64;
        let (mut reader, header) = SegmentReader::open(file, segment, Some(front))?;
        let after = match header {
            HeaderState::Valid(header) => header.after,
            HeaderState::Newer(found) => return Err(newer(disk, segment, found)),
            HeaderState::Blank | HeaderState::Invalid => {
                let at = Lsn::new(segment, 0);
                return Err(self.damage(at, "the log segment has no valid header"));
            }
        };
        if segment == self.at.segment() {
            let first = Lsn::new(segment, HEADER_BYTES as u64);
            self.at = self.at.max(first);
            reader.seek(self.at.offset());
        }
        Ok((reader, after))
    }

    /// Whether a segment is no part of the log, or not any more.
    fn is_gone(&self, segment: u64) -> bool {
        if self.log.segments().was_removed(segment) {
            return true;
        }
        let end = self.log.appended_lsn().segment();
        segment < end && self.log.segments().length_of(segment).is_none()
    }

    fn damage(&self, at: Lsn, what: &str) -> Error {
        let disk = self.log.segments().disk();
        corruption(disk, at.segment(), at.offset(), what.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::atomic::{AtomicBool, Ordering};

    use gabion_media::SimDisk;
    use gabion_media::seeded::SeededRng;

    use super::super::segments::SegmentPurpose;
    use super::super::{Log, replay};
    use super::*;

    fn begin(disk: &Disk) -> Log {
        let end = replay(disk, 1, &BTreeMap::new(), |_, _| Ok(())).unwrap();
        let options = LogOptions {
            segment_bytes_max: 1024,
            ..LogOptions::default()
        };
        Log::start(disk, &end, &options).unwrap()
    }

    fn record(number: u64) -> Vec<u8> {
        let mut record = number.to_le_bytes().to_vec();
        record.resize(8 + usize::try_from(number * 37 % 200).unwrap(), 7);
        record
    }

    /// Reads all records up to the end, and goes back now and then.
    fn read_on(
        cursor: &mut LogCursor,
        next: &mut u64,
        end: Lsn,
        random: &mut SeededRng,
    ) -> CursorStep {
        loop {
            match cursor.step(end).unwrap() {
                CursorStep::Record(at) => {
                    assert_eq!(cursor.record(), record(*next));
                    match random.one_in(4) {
                        true => cursor.back_to(at),
                        false => *next += 1,
                    }
                }
                stepped => return stepped,
            }
        }
    }

    #[test]
    fn a_cursor_reads_each_record_once_from_any_position() {
        let mut random = SeededRng::new(1);
        let disk = Disk::simulated(&SimDisk::new());
        let mut log = begin(&disk);
        let syncer = log.syncer();
        let mut cursor = LogCursor::new(&syncer, Lsn::new(1, 0));
        let mut next = 0;
        let mut ends = vec![(0, Lsn::new(1, 0))];
        for number in 0..500 {
            ends.push((
                number + 1,
                log.append(&[&record(number)], SegmentPurpose::Puts)
                    .unwrap(),
            ));
            if random.one_in(5) {
                let (count, end) = ends[ends.len() - 1 - random.index(2)];
                let stepped = read_on(&mut cursor, &mut next, end, &mut random);
                assert!(
                    stepped == CursorStep::End && next >= count,
                    "{next}, {count}"
                );
            }
        }
        let end = syncer.appended_lsn();
        for &(mut next, at) in ends.iter().step_by(13) {
            let mut cursor = LogCursor::new(&syncer, at);
            let stepped = read_on(&mut cursor, &mut next, end, &mut random);
            assert_eq!((stepped, next), (CursorStep::End, 500));
        }
        for at in [
            Lsn::new(1, 5000),
            Lsn(end.0 + 1),
            Lsn::new(end.segment() + 1, 64),
        ] {
            let mut cursor = LogCursor::new(&syncer, at);
            assert_eq!(cursor.step(end).unwrap(), CursorStep::Gone, "{at:?}");
        }
    }

    /// What nobody keeps goes; a cursor behind the last record in front of that goes on.
    #[test]
    fn a_cursor_knows_what_is_gone() {
        let disk = Disk::simulated(&SimDisk::new());
        let mut log = begin(&disk);
        let syncer = log.syncer();
        let mut ends = Vec::new();
        for number in 0..200 {
            ends.push(
                log.append(&[&record(number)], SegmentPurpose::Puts)
                    .unwrap(),
            );
        }
        let (end, middle) = (syncer.appended_lsn(), ends[100].segment());
        let last_before = ends.iter().rposition(|at| at.segment() < middle).unwrap();
        let mut inside = LogCursor::new(&syncer, ends[0]);
        assert!(matches!(inside.step(end), Ok(CursorStep::Record(_))));
        syncer.remove_before(middle).unwrap();
        assert_eq!(syncer.oldest_lsn(), Lsn::new(middle, 0));
        for mut cursor in [inside, LogCursor::new(&syncer, ends[last_before - 1])] {
            // A file that is open may have all of its content.
            while let CursorStep::Record(_) = cursor.step(end).unwrap() {}
            assert_eq!(cursor.step(end).unwrap(), CursorStep::Gone);
        }
        let mut cursor = LogCursor::new(&syncer, ends[last_before]);
        let mut next = last_before as u64 + 1;
        read_on(&mut cursor, &mut next, end, &mut SeededRng::new(2));
        assert_eq!(next, 200);
    }

    /// The writer leaves its segment at any moment of a reader.
    #[test]
    fn a_cursor_follows_a_thread_that_appends() {
        let disk = Disk::simulated(&SimDisk::new());
        let mut log = begin(&disk);
        let syncer = log.syncer();
        let count = 30_000;
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in 0..count {
                    log.append(&[&record(number)], SegmentPurpose::Puts)
                        .unwrap();
                }
                // ORDER: Release pairs with the Acquire below: all is appended.
                is_over.store(true, Ordering::Release);
            });
            let (mut next, mut random) = (0, SeededRng::new(3));
            let mut cursor = LogCursor::new(&syncer, Lsn::new(1, 0));
            let mut was_over = false;
            while !was_over {
                // ORDER: Acquire pairs with the Release above.
                was_over = is_over.load(Ordering::Acquire);
                let stepped = read_on(&mut cursor, &mut next, syncer.appended_lsn(), &mut random);
                assert_eq!(stepped, CursorStep::End);
            }
            assert_eq!(next, count);
        });
    }
}
