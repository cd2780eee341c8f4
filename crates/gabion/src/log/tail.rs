//! The log of a store that somebody else writes, read record by record as it grows.
//!
//! # Idea
//! Who follows a store knows neither where its log ends nor which segments there are: it finds
//! both in the directory. A record is one frame, whose checksum covers its place, so a frame that
//! is valid is whole, and what is not valid yet is looked at again later. Nothing is locked, and
//! the writer does not know of it.
//!
//! # Rule
//! It is that of a [replay](super::recovery): frames of a segment up to the first position without
//! a valid one; then on in the segment whose header says that the log had ended exactly there. The
//! writer may be at work meanwhile, so a header is looked for before the last look at the frames in
//! front of it: a segment is begun only behind all that its predecessor has.
//!
//! # Invariants
//! - T1. What is handed out is a prefix of what a replay would find that began now: no hole is
//!   passed, neither in a segment nor between two.
//! - T2. A segment that the writer has removed or used again has no name any more, and what was in
//!   it cannot be taken for anything. Where the log goes on [beyond](Tailed::Beyond) what can be
//!   read, the manifest tells why: if it needs the segment at hand, the log ends there, as a crash
//!   leaves it; if not, what follows has gone, too.

use std::collections::BTreeMap;

use gabion_media::Disk;

use super::layout::{HEADER_BYTES, HeaderState, Lsn, SegmentHeader};
use super::reader::{NextFrame, SegmentReader};
use super::recovery::{corruption, newer, present_segments, read_header};
use crate::names::log_name;
use crate::{Error, Result};

/// Reads on as the log grows.
#[derive(Clone, Debug)]
pub(crate) struct LogTail {
    disk: Disk,
    /// Behind the last frame that was read; before the first, the segment to begin with.
    at: Lsn,
    /// Where the log had ended before the segment of `at`, if nothing was read there.
    passed: Lsn,
    /// Whether the first segment was found.
    is_begun: bool,
    /// The segment of `at`.
    open: Option<SegmentReader>,
    /// The furthest position that a header or a mark says was durable.
    durable: Lsn,
}

/// What a step has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tailed {
    /// A record, which begins there: [`LogTail::record`].
    Record(Lsn),
    /// That there is no more for now.
    End,
    /// That the log goes on, but not from here: what follows was removed.
    Gone,
    /// That a segment is there which goes on elsewhere, and says that the log was durable up to
    /// there.
    Beyond(Lsn),
}

impl LogTail {
    /// From the front of segment `from`, the first that the store needs.
    pub(crate) fn new(disk: &Disk, from: u64) -> LogTail {
        LogTail {
            disk: disk.clone(),
            at: Lsn::new(from, 0),
            passed: Lsn::new(from, 0),
            is_begun: false,
            open: None,
            durable: Lsn::default(),
        }
    }

    /// Where it stands: behind the last record, whatever empty segments came after it.
    pub(crate) fn position(&self) -> Lsn {
        match self.at.offset() <= HEADER_BYTES as u64 {
            true => self.passed,
            false => self.at,
        }
    }

    /// Where the next record would begin, or, with an empty segment, end the log.
    pub(super) fn end(&self) -> Lsn {
        self.at
    }

    /// Everything before this position survives the loss of power, as far as the log has told.
    pub(super) fn durable(&self) -> Lsn {
        let marked = self.open.as_ref().map(SegmentReader::durable);
        self.durable.max(marked.unwrap_or_default()).min(self.at)
    }

    /// The segment that it reads.
    pub(crate) fn segment(&self) -> u64 {
        self.at.segment()
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

    /// Goes on to the next record. Segments that `sealed` says to be void are no part of the log.
    pub(crate) fn step(&mut self, sealed: &BTreeMap<u64, u64>) -> Result<Tailed> {
        loop {
            if let Some(start) = self.read()? {
                return Ok(Tailed::Record(start));
            }
            let next = self.next_segment(sealed)?;
            // What is not there now the writer had not written when it began the next one.
            if let Some(start) = self.read()? {
                return Ok(Tailed::Record(start));
            }
            match next {
                Next::None => return Ok(Tailed::End),
                Next::Continues(segment) => {
                    if !self.pass_to(segment)? {
                        return Ok(Tailed::Gone);
                    }
                }
                Next::Beyond(header) => {
                    let is_there =
                        self.is_begun && self.disk.exists(&log_name(self.at.segment()))?;
                    return Ok(match is_there {
                        true => Tailed::Beyond(header.durable),
                        false => Tailed::Gone,
                    });
                }
            }
        }
    }

    /// An error where the log ends here for good, and was durable beyond.
    pub(crate) fn refuse_cut(&self, durable: Lsn) -> Result<()> {
        match durable > self.at {
            true => Err(self.cut_at_durable(durable)),
            false => Ok(()),
        }
    }

    /// The next record of the segment at hand, if it is there by now.
    fn read(&mut self) -> Result<Option<Lsn>> {
        if !self.is_begun || self.open.is_none() && !self.enter(self.at.segment())? {
            return Ok(None);
        }
        let segment = self.at.segment();
        for is_fresh in [false, true] {
            let Some(reader) = &mut self.open else {
                return Ok(None);
            };
            match reader.step() {
                Ok(NextFrame::Record(start, _)) => {
                    self.at = Lsn::new(segment, reader.offset());
                    return Ok(Some(Lsn::new(segment, start)));
                }
                Ok(NextFrame::Blank | NextFrame::Invalid) => {
                    self.at = Lsn::new(segment, reader.offset());
                    reader.forget();
                }
                // It became shorter, as a close makes it.
                Err(Error::Media(error)) if error.is_short_read() => reader.give_up(),
                Err(error) => return Err(error),
            }
            // It may be shorter or longer by now than it was when it was opened.
            if !is_fresh && reader.is_at_end() && !self.enter(segment)? {
                return Ok(None);
            }
        }
        Ok(None)
    }

    /// Opens the segment of the position anew; false if there is none of that name by now.
    fn enter(&mut self, segment: u64) -> Result<bool> {
        let Some((mut reader, _)) = self.open_segment(segment)? else {
            return Ok(false);
        };
        self.at = self.at.max(Lsn::new(segment, HEADER_BYTES as u64));
        reader.seek(self.at.offset());
        self.open = Some(reader);
        Ok(true)
    }

    /// Passes to a segment that continues the log; false if it has gone meanwhile.
    fn pass_to(&mut self, segment: u64) -> Result<bool> {
        let Some((reader, header)) = self.open_segment(segment)? else {
            return Ok(false);
        };
        self.durable = self.durable.max(self.durable()).max(header.durable);
        self.passed = match self.is_begun {
            true => self.position(),
            false => header.after,
        };
        self.at = Lsn::new(segment, HEADER_BYTES as u64);
        self.is_begun = true;
        self.open = Some(reader);
        Ok(true)
    }

    /// A segment that is there and has begun.
    fn open_segment(&self, segment: u64) -> Result<Option<(SegmentReader, SegmentHeader)>> {
        let file = match self.disk.open_read(&log_name(segment)) {
            Err(error) if error.is_not_found() => return Ok(None),
            opened => opened?,
        };
        let (reader, header) = SegmentReader::open(file, segment, None)?;
        match header {
            HeaderState::Valid(header) => Ok(Some((reader, header))),
            HeaderState::Newer(found) => Err(newer(&self.disk, segment, found)),
            HeaderState::Blank | HeaderState::Invalid => Ok(None),
        }
    }

    /// The segment in which the log goes on, as the directory has it now.
    fn next_segment(&self, sealed: &BTreeMap<u64, u64>) -> Result<Next> {
        let own = self.at.segment();
        if self.is_begun {
            // The usual one, which may be prepared and not begun: then there is no other.
            let usual = own + 1;
            match self.header_of(usual)? {
                Some(HeaderState::Valid(header)) if self.continues(&header) => {
                    return Ok(Next::Continues(usual));
                }
                // Unless it was used again between its opening and the read.
                Some(HeaderState::Blank | HeaderState::Invalid)
                    if self.disk.exists(&log_name(usual))? =>
                {
                    return Ok(Next::None);
                }
                _ => {}
            }
        }
        let first = own + u64::from(self.is_begun);
        let mut beyond = Next::None;
        for segment in present_segments(&self.disk)? {
            if segment < first || sealed.get(&segment) == Some(&0) {
                continue;
            }
            match self.header_of(segment)? {
                Some(HeaderState::Newer(found)) => return Err(newer(&self.disk, segment, found)),
                Some(HeaderState::Valid(header)) if self.continues(&header) => {
                    return Ok(Next::Continues(segment));
                }
                Some(HeaderState::Valid(header)) if matches!(beyond, Next::None) => {
                    beyond = Next::Beyond(header);
                }
                _ => {}
            }
        }
        Ok(beyond)
    }

    /// What the header of a segment says, if it is there.
    fn header_of(&self, segment: u64) -> Result<Option<HeaderState>> {
        match read_header(&self.disk, segment) {
            Err(Error::Media(error)) if error.is_not_found() => Ok(None),
            read => read.map(Some),
        }
    }

    /// Whether a segment with this header is the next one.
    fn continues(&self, header: &SegmentHeader) -> bool {
        let stands = self.position();
        match self.is_begun {
            true => header.after == stands || header.after == self.at,
            // What came before the first segment that is needed may be gone.
            false => {
                let first = Lsn::new(self.at.segment(), HEADER_BYTES as u64);
                header.segment == first.segment() || header.after < first
            }
        }
    }

    /// An error where the log was durable beyond its end, as the lengths say that the manifest
    /// knows, or marks anywhere behind. What has come meanwhile is no damage: who is told of none
    /// goes on. `is_cut` says that what goes on beyond is no part of the log.
    pub(crate) fn check_end(&mut self, sealed: &BTreeMap<u64, u64>, is_cut: bool) -> Result<()> {
        let lengths = sealed.iter().filter(|(_, length)| **length > 0);
        let known = lengths.map(|(segment, length)| Lsn::new(*segment, *length));
        let mut proof = known.max().unwrap_or_default();
        for segment in present_segments(&self.disk)? {
            if segment < self.at.segment() || sealed.get(&segment) == Some(&0) {
                continue;
            }
            if let Some((reader, header)) = self.open_segment(segment)? {
                let from = match segment == self.at.segment() {
                    true => self.at.offset(),
                    false => 0,
                };
                proof = proof.max(header.durable).max(reader.traces(from)?.durable);
            }
        }
        let at = self.at;
        if proof <= at {
            return Ok(());
        }
        // It may have gone on since.
        match self.step(sealed)? {
            Tailed::Record(start) => {
                self.back_to(start);
                Ok(())
            }
            Tailed::Gone | Tailed::Beyond(_) if !is_cut => Ok(()),
            Tailed::End if self.at > at || !self.disk.exists(&log_name(at.segment()))? => Ok(()),
            _ => Err(self.cut_at_durable(proof)),
        }
    }

    fn cut_at_durable(&self, durable: Lsn) -> Error {
        let what = format!(
            "the bytes are not a valid log record, but the log was durable up to offset {} of \
             segment {:x}",
            durable.offset(),
            durable.segment()
        );
        corruption(&self.disk, self.at.segment(), self.at.offset(), what)
    }
}

/// What the directory has behind the segment at hand.
enum Next {
    /// Nothing that has begun.
    None,
    /// A segment that goes on where the last one ends.
    Continues(u64),
    /// One that goes on elsewhere.
    Beyond(SegmentHeader),
}
