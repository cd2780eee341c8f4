//! Reading the log back after a crash.
//!
//! # What a crash leaves
//! Segments in the directory from the manifest's tail on. Those that an earlier recovery or a clean
//! close recorded in the manifest are *sealed*: their valid length is known, 0 for one that holds
//! nothing. Behind them, what was written since: segments whose last writes, headers or names may
//! be missing or torn in any combination as far as they were not synced; and perhaps a segment that
//! was prepared and never used.
//!
//! # Rule
//! Segments are read in the order of their numbers; sealed ones up to their length, others up to
//! the first position without a valid frame. What lies there may be anything, as a segment whose
//! file was used before still holds old frames. A segment continues the log if its header says that
//! the log ended exactly where its predecessor's frames end. The first position at which the log
//! does not continue is the *cut*: the log ends there, and every later segment is void.
//!
//! A cut is only taken where nothing proves that the log was durable beyond it. Proofs are sealed
//! lengths, positions in valid headers, and marks found anywhere behind the cut. With a proof the
//! cut is corruption, and the error names the place.
//!
//! New segments at the end that hold nothing but their header are void, too. Sequences of segments
//! may have gaps in their numbers: void segments are removed, and no number is used again.
//!
//! # Then
//! 1. [`ReplayEnd::seal`] makes durable what was read: after the end of a process it may never have
//!    been synced, and a sealed length promises that it was. A sync would not do: if an earlier
//!    one had failed, the system may hold the bytes in memory and believe that they are on the
//!    medium. So segments are written anew as far as no mark proves them durable.
//! 2. The caller records the seals durably in the manifest.
//! 3. [`ReplayEnd::clean`] removes void and outdated segments, and a segment is begun with a number
//!    above all others ([`PendingLog`](super::PendingLog)).
//!
//! A replay by several threads ([`replay_chunks`](super::replay_chunks)) does 1 while it reads, for
//! each segment as soon as it knows that the log goes on behind it, unless any header proves the
//! segment durable. The new file ends with the last frame. What lay behind that is not missed: the
//! writer had gone on in the next segment, so none of it was of this log. So whoever reads the
//! segment later, also after an error of this replay, finds the same frames, and that the next
//! segment continues them.
//!
//! A crash before 2 changes nothing: the next replay finds the same or, after a loss of power in
//! between, a shorter prefix that still holds everything acknowledged as durable. A crash after 2
//! leaves void segments in place, which their seals keep from being read; so stale frames behind a
//! cut can never be taken for later ones, though the positions behind the cut are not used again
//! either (the new segment has a new number).

use std::collections::BTreeMap;
use std::path::PathBuf;

use gabion_media::{Disk, Purpose, TEMPORARY_SUFFIX};

use super::batch::{LogOp, decode};
use super::layout::{HEADER_BYTES, HeaderState, Lsn, SegmentHeader, VERSION, check_header};
use super::reader::{NextFrame, SegmentReader};
use super::retention::LogRetention;
use super::{MalformedPayload, SealedLog};
use crate::names::{log_name, parse_log_name};
use crate::types::Kind;
use crate::{Error, Result};

/// What a replay found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReplayEnd {
    /// Segments that belong to the log, ascending, with their valid lengths.
    pub(crate) segments: Vec<SealedLog>,
    /// Where the log ends.
    pub(crate) end: Lsn,
    /// Highest number that a segment has or had.
    pub(crate) last_segment: u64,
    /// What was cut off, if it was more than zeros.
    pub(crate) torn: Option<TornTail>,
    /// Segments that were read or found void for the first time: their seals are to be recorded.
    unsealed: Vec<SealedLog>,
    /// The first segment that was to be read.
    from: u64,
    /// Segments in the directory that hold nothing the store needs.
    useless: Vec<u64>,
    /// The furthest position that was proved durable.
    proven: Lsn,
    /// Segments that are durable besides, as they were written anew.
    durable: Vec<SealedLog>,
    /// What those need who read on.
    pub(super) kept: LogRetention,
}

/// The end of a log that was not completely written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TornTail {
    /// Where the log was cut.
    pub(crate) at: Lsn,
    /// Bytes behind the cut that are not zero, roughly: up to the last one of each segment. Those
    /// that the file of a segment held before are among them.
    pub(crate) bytes: u64,
}

/// Reads the log from segment `from` on and calls `record` with each record's position and payload,
/// in order. `sealed` are the valid lengths that the manifest knows.
///
/// Reads only; it may be repeated. Errors of `record` end it.
pub(crate) fn replay(
    disk: &Disk,
    from: u64,
    sealed: &BTreeMap<u64, u64>,
    record: impl FnMut(Lsn, &[u8]) -> Result<()>,
) -> Result<ReplayEnd> {
    replay_telling(disk, from, sealed, record, |_, _| Ok(()))
}

/// As [`replay`]. Calls `continued` with each segment whose seal is to be recorded once the log is
/// known to go on behind it, and with the furthest position that was proved durable so far. From
/// then on nothing of the segment is read any more, so it may be written anew.
pub(super) fn replay_telling(
    disk: &Disk,
    from: u64,
    sealed: &BTreeMap<u64, u64>,
    mut record: impl FnMut(Lsn, &[u8]) -> Result<()>,
    mut continued: impl FnMut(SealedLog, Lsn) -> Result<()>,
) -> Result<ReplayEnd> {
    let present = present_segments(disk)?;
    let mut replay = Replay::new(disk, from, sealed, &present)?;
    let mut cut = None;
    for &segment in present.iter().filter(|segment| **segment >= from) {
        match sealed.get(&segment) {
            Some(0) => replay.end.useless.push(segment),
            length => {
                replay.unread.push(segment);
                if cut.is_none() {
                    cut = replay.read(segment, length.copied(), &mut record, &mut continued)?;
                }
            }
        }
    }
    let cut = cut.or(replay.doubt.take());
    replay.finish(cut)
}

/// As [`replay`], with each operation of the records and the segment that it is in. An operation
/// of a keyspace whose number is not below `keyspaces` is damage.
pub(crate) fn replay_operations(
    disk: &Disk,
    from: u64,
    sealed: &BTreeMap<u64, u64>,
    keyspaces: u32,
    mut apply: impl FnMut(u64, LogOp<'_>) -> Result<()>,
) -> Result<ReplayEnd> {
    replay(disk, from, sealed, |lsn, payload| {
        let apply = |operation: LogOp<'_>| apply(lsn.segment(), operation);
        for_each_operation(disk, keyspaces, lsn, payload, apply)
    })
}

/// Calls `apply` with each operation of the record at `lsn`. An operation of a keyspace whose
/// number is not below `keyspaces` is damage.
pub(super) fn for_each_operation(
    disk: &Disk,
    keyspaces: u32,
    lsn: Lsn,
    payload: &[u8],
    mut apply: impl FnMut(LogOp<'_>) -> Result<()>,
) -> Result<()> {
    let (segment, offset) = (lsn.segment(), lsn.offset());
    let damaged = |malformed: MalformedPayload| malformed.in_file(path_of(disk, segment), offset);
    for operation in decode(payload).map_err(damaged)? {
        let operation = operation.map_err(damaged)?;
        if operation.keyspace >= keyspaces {
            let what = format!("a record names the unknown keyspace {}", operation.keyspace);
            return Err(corruption(disk, segment, offset, what));
        }
        if operation.kind == Kind::Operand {
            let what = "the operand of a record does not decode".to_owned();
            return Err(corruption(disk, segment, offset, what));
        }
        apply(operation)?;
    }
    Ok(())
}

/// The furthest position that the header of any segment from `from` on says was durable: what a
/// replay proves, but for marks and sealed lengths, at the cost of one short read of each segment.
pub(super) fn proven_by_headers(disk: &Disk, from: u64) -> Result<Lsn> {
    let mut proven = Lsn::default();
    for segment in present_segments(disk)?
        .into_iter()
        .filter(|segment| *segment >= from)
    {
        if let HeaderState::Valid(header) = read_header(disk, segment)? {
            proven = proven.max(header.durable);
        }
    }
    Ok(proven)
}

/// An error if any segment from `from` on that holds something has a newer format, also one that
/// damage keeps a replay from. What cannot be read is left to the replay.
pub(crate) fn refuse_newer(disk: &Disk, from: u64, sealed: &BTreeMap<u64, u64>) -> Result<()> {
    for segment in present_segments(disk)? {
        let is_void = segment < from || sealed.get(&segment) == Some(&0);
        if !is_void && let Ok(HeaderState::Newer(found)) = read_header(disk, segment) {
            return Err(newer(disk, segment, found));
        }
    }
    Ok(())
}

/// What the header of a segment says.
pub(super) fn read_header(disk: &Disk, segment: u64) -> Result<HeaderState> {
    let file = disk.open_read(&log_name(segment))?;
    let mut front = [0; HEADER_BYTES];
    if file.len() < front.len() as u64 {
        return Ok(HeaderState::Invalid);
    }
    file.read_exact_at(&mut front, 0)?;
    Ok(check_header(segment, &front))
}

pub(super) fn newer(disk: &Disk, segment: u64, found: u32) -> Error {
    Error::NewerFormat {
        file: path_of(disk, segment),
        found,
        supported: VERSION,
    }
}

/// Bytes of all segments in the directory.
pub(super) fn file_bytes(disk: &Disk) -> Result<u64> {
    let mut bytes = 0;
    for segment in present_segments(disk)? {
        bytes += disk.len_of(&log_name(segment))?;
    }
    Ok(bytes)
}

/// The numbers of the segments in the directory, ascending.
pub(super) fn present_segments(disk: &Disk) -> Result<Vec<u64>> {
    let names = disk.list()?;
    Ok(names
        .iter()
        .filter_map(|name| parse_log_name(name))
        .collect())
}

struct Replay<'a> {
    disk: &'a Disk,
    from: u64,
    /// The furthest position that was surely durable, and why.
    proof: Lsn,
    /// Segments at or behind the place where reading stopped.
    unread: Vec<u64>,
    /// Why the log ends where reading stopped, unless another segment continues it there.
    doubt: Option<Cut>,
    end: ReplayEnd,
}

/// Why the log ends although more may follow.
struct Cut {
    /// What is not as expected, for messages.
    at: Lsn,
    why: String,
}

impl<'a> Replay<'a> {
    fn new(
        disk: &'a Disk,
        from: u64,
        sealed: &BTreeMap<u64, u64>,
        present: &[u64],
    ) -> Result<Replay<'a>> {
        let numbers = present.iter().chain(sealed.keys()).copied();
        let last_segment = numbers.max().unwrap_or(0).max(from.saturating_sub(1));
        if last_segment > Lsn::PART_MAX {
            let what = "number of log segments";
            return Err(Error::Limit {
                what,
                size: last_segment,
                limit: Lsn::PART_MAX,
            });
        }
        let mut proof = Lsn::default();
        for (&segment, &length) in sealed.range(from..).filter(|(_, length)| **length > 0) {
            if present.binary_search(&segment).is_err() {
                let what = format!("the log segment is missing; it held {length} bytes");
                return Err(corruption(disk, segment, 0, what));
            }
            if length > Lsn::PART_MAX {
                let what = format!("the sealed length of {length} bytes is impossible");
                return Err(corruption(disk, segment, 0, what));
            }
            proof = Lsn::new(segment, length);
        }
        let useless = present
            .iter()
            .copied()
            .filter(|segment| *segment < from)
            .collect();
        let end = ReplayEnd {
            last_segment,
            useless,
            ..ReplayEnd::unread(from)
        };
        Ok(Replay {
            disk,
            from,
            proof,
            unread: Vec::new(),
            doubt: None,
            end,
        })
    }

    /// Reads one segment. Returns the cut if the log ends before it.
    fn read(
        &mut self,
        segment: u64,
        sealed: Option<u64>,
        record: &mut impl FnMut(Lsn, &[u8]) -> Result<()>,
        continued: &mut impl FnMut(SealedLog, Lsn) -> Result<()>,
    ) -> Result<Option<Cut>> {
        let file = self.disk.open_read(&log_name(segment))?;
        let (mut reader, header) = SegmentReader::open(file, segment, sealed)?;
        let header = match header {
            HeaderState::Valid(header) => header,
            HeaderState::Newer(found) => return Err(newer(self.disk, segment, found)),
            HeaderState::Blank | HeaderState::Invalid => {
                let why = "the log segment has no valid header".to_owned();
                let at = Lsn::new(segment, 0);
                return Ok(Some(self.doubt.take().unwrap_or(Cut { at, why })));
            }
        };
        let continues = self.check_continues(&header)?;
        let doubt = self.doubt.take();
        if let Some(cut) = continues {
            return Ok(Some(doubt.unwrap_or(cut)));
        }
        self.proof = self.proof.max(header.durable);
        if let Some(before) = self.end.unsealed.last()
            && self.end.segments.last() == Some(before)
        {
            continued(*before, self.proof)?;
        }
        self.end.end = Lsn::new(segment, HEADER_BYTES as u64);
        let valid = loop {
            match reader.step()? {
                NextFrame::Record(offset, payload) => record(Lsn::new(segment, offset), payload)?,
                NextFrame::Blank => break sealed.is_none_or(|length| reader.offset() == length),
                NextFrame::Invalid => break false,
            }
        };
        let length = reader.offset();
        self.proof = self.proof.max(reader.durable());
        self.end.end = Lsn::new(segment, length);
        self.end.segments.push(SealedLog { segment, length });
        if sealed.is_none() {
            self.end.unsealed.push(SealedLog { segment, length });
        }
        self.unread.clear();
        // The last segment read is searched for proofs, its rest may have been durable.
        if sealed.is_none() {
            self.unread.push(segment);
        }
        let why = "the bytes are not a valid log record";
        self.doubt = (!valid).then(|| Cut {
            at: self.end.end,
            why: why.to_owned(),
        });
        Ok(None)
    }

    /// Whether a segment with this header continues the log.
    fn check_continues(&self, header: &SegmentHeader) -> Result<Option<Cut>> {
        let end = self.end.end;
        let continues = if self.end.segments.is_empty() {
            // What came before the first segment that the manifest needs may be gone; but nothing
            // that is needed may lie between.
            let first_needed = Lsn::new(self.from, HEADER_BYTES as u64);
            header.segment == self.from || header.after < first_needed
        } else {
            header.after == end
        };
        if continues {
            return Ok(None);
        }
        let (segment, after) = (header.segment, header.after);
        let why = format!(
            "the next log segment, {segment:x}, continues at offset {} of segment {:x}",
            after.offset(),
            after.segment()
        );
        if after < end {
            // A valid frame lies where the log had already ended: no crash does that.
            return Err(corruption(self.disk, end.segment(), end.offset(), why));
        }
        Ok(Some(Cut { at: end, why }))
    }

    /// Decides about the place where the log ends, and sums up.
    fn finish(mut self, cut: Option<Cut>) -> Result<ReplayEnd> {
        let at = self.end.end;
        let mut bytes = 0;
        let unread = std::mem::take(&mut self.unread);
        for &segment in &unread {
            let file = self.disk.open_read(&log_name(segment))?;
            let (reader, header) = SegmentReader::open(file, segment, None)?;
            if let HeaderState::Valid(header) = header {
                self.proof = self.proof.max(header.durable);
            }
            let offset = if segment == at.segment() {
                at.offset()
            } else {
                0
            };
            let traces = reader.traces(offset)?;
            self.proof = self.proof.max(traces.durable);
            bytes += traces.bytes;
        }
        if self.proof > at {
            let cut = cut.unwrap_or(Cut {
                at,
                why: "the log ends here".to_owned(),
            });
            let (at, why) = (cut.at, cut.why);
            let what = format!(
                "{why}, but the log was durable up to offset {} of segment {:x}",
                self.proof.offset(),
                self.proof.segment()
            );
            return Err(corruption(self.disk, at.segment(), at.offset(), what));
        }
        let read = self.end.segments.last().map_or(0, |log| log.segment);
        for segment in unread.into_iter().filter(|segment| *segment > read) {
            self.end.unsealed.push(SealedLog { segment, length: 0 });
            self.end.useless.push(segment);
        }
        self.end.proven = self.proof;
        self.end.torn = (bytes > 0).then_some(TornTail { at, bytes });
        self.leave_out_empty();
        Ok(self.end)
    }

    /// Makes new segments at the end void that hold nothing but their header: the log says the same
    /// without them, and a store that is opened again and again does not grow.
    fn leave_out_empty(&mut self) {
        let end = &mut self.end;
        while let Some(&last) = end.segments.last()
            && last.length <= HEADER_BYTES as u64
            && let Some(seal) = end.unsealed.iter_mut().find(|seal| **seal == last)
        {
            seal.length = 0;
            end.segments.pop();
            end.useless.push(last.segment);
            end.end = match end.segments.last() {
                Some(log) => Lsn::new(log.segment, log.length),
                None => Lsn::new(self.from, 0),
            };
        }
    }
}

impl ReplayEnd {
    /// That of a log of which nothing was read.
    pub(crate) fn unread(from: u64) -> ReplayEnd {
        ReplayEnd {
            segments: Vec::new(),
            end: Lsn::new(from, 0),
            last_segment: from,
            torn: None,
            unsealed: Vec::new(),
            from,
            useless: Vec::new(),
            proven: Lsn::default(),
            durable: Vec::new(),
            kept: LogRetention::default(),
        }
    }

    /// Number of the segment in which the log goes on.
    pub(crate) fn next_segment(&self) -> u64 {
        self.last_segment + 1
    }

    /// Keeps the segments in front of those that were read for who reads on at these positions.
    pub(crate) fn keep_for(&mut self, disk: &Disk, readers: &[Lsn]) -> Result<()> {
        let present = present_segments(disk)?;
        self.kept = LogRetention::of_readers(readers);
        for &at in readers {
            if !is_reached(disk, &present, at)? {
                self.kept.cut_off(Lsn(at.0 + 1));
            }
        }
        let from = self.kept.from();
        let is_kept = |segment: &u64| from.is_some_and(|from| (from..self.from).contains(segment));
        for segment in self.useless.extract_if(.., |segment| is_kept(segment)) {
            let length = disk.len_of(&log_name(segment))?;
            self.kept.segments.push_back(SealedLog { segment, length });
        }
        // The next segment says where the log ended before. Where nothing was read, and nothing is
        // kept, that is where readers stand.
        if self.segments.is_empty() && self.kept.segments.is_empty() {
            let reached = readers.iter().filter(|at| !self.kept.is_invalidated(**at));
            self.end = reached.copied().max().unwrap_or(self.end);
        }
        if self.segments.is_empty()
            && let Some(last) = self.kept.segments.back_mut()
        {
            let file = disk.open_read(&log_name(last.segment))?;
            let (mut reader, _) = SegmentReader::open(file, last.segment, None)?;
            let is_whole = loop {
                match reader.step()? {
                    NextFrame::Record(..) => {}
                    NextFrame::Blank => break true,
                    NextFrame::Invalid => break false,
                }
            };
            // Behind damage the log did not end: who reads on finds that no segment continues it.
            if is_whole {
                last.length = reader.offset();
                self.end = last.end();
            }
        }
        Ok(())
    }

    /// Takes note that segments are durable as far as they were read.
    pub(super) fn note_durable(&mut self, segments: &[SealedLog]) {
        self.durable.extend_from_slice(segments);
    }

    /// The segments that were read and may not be durable.
    pub(super) fn unproven(&self) -> impl Iterator<Item = SealedLog> {
        let unsealed = self.unsealed.iter().filter(|log| log.length > 0);
        let unproven = |log: &&SealedLog| log.end() > self.proven && !self.durable.contains(log);
        unsealed.filter(unproven).copied()
    }

    /// Makes the segments that were read durable, and returns the seals that the caller must record
    /// durably before the log goes on: lengths, or 0 for a void segment. Called again after it has
    /// failed for want of space, it goes on with what is left.
    pub(crate) fn seal(&mut self, disk: &Disk) -> Result<&[SealedLog]> {
        let unproven: Vec<_> = self.unproven().collect();
        for log in unproven {
            // DURABLE: the segment with its name. A crash before leaves it as it was.
            rewrite(disk, log)?;
            self.durable.push(log);
        }
        Ok(&self.unsealed)
    }

    /// Removes what is of no use: void and outdated segments, what lies behind the end of the
    /// others, and the remains of an interrupted [`ReplayEnd::seal`]. Only after the seals were
    /// recorded; not durable, a repetition after a crash does the same.
    pub(crate) fn clean(&self, disk: &Disk) -> Result<()> {
        for segment in &self.useless {
            match disk.remove(&log_name(*segment)) {
                // A try before this one came no further.
                Err(error) if error.is_not_found() => {}
                removed => removed?,
            }
        }
        for log in &self.segments {
            let name = log_name(log.segment);
            if disk.len_of(&name)? > log.length {
                disk.truncate(&name, log.length)?;
            }
        }
        for name in disk.list()? {
            let log = name.strip_suffix(TEMPORARY_SUFFIX).and_then(parse_log_name);
            if log.is_some() {
                disk.remove(&name)?;
            }
        }
        Ok(())
    }
}

/// Whether who stands at a position can read on there: its segment is there, or the first one
/// behind it continues the log at the position.
fn is_reached(disk: &Disk, present: &[u64], at: Lsn) -> Result<bool> {
    let behind = present.partition_point(|segment| *segment < at.segment());
    Ok(match present.get(behind) {
        None => false,
        Some(segment) if *segment == at.segment() => true,
        Some(segment) => match read_header(disk, *segment)? {
            HeaderState::Valid(header) => header.after == at,
            _ => false,
        },
    })
}

/// Puts a new file with the valid part of the segment in its place, durably.
pub(super) fn rewrite(disk: &Disk, log: SealedLog) -> Result<()> {
    Ok(disk.rewrite(&log_name(log.segment), log.length, Purpose::Log)?)
}

fn path_of(disk: &Disk, segment: u64) -> PathBuf {
    disk.path_of(&log_name(segment))
}

pub(super) fn corruption(disk: &Disk, segment: u64, offset: u64, what: String) -> Error {
    Error::Corruption {
        file: path_of(disk, segment),
        offset,
        what,
    }
}
