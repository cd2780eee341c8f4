//! Reading a segment from its front, frame by frame, without trust.

use gabion_media::ReadFile;

use super::frame::{FRAME_HEADER_BYTES, FrameSeed, MARK_BYTES, ParsedFrame, marks};
use super::layout::{HEADER_BYTES, HeaderState, Lsn, MAGIC, check_header};
use crate::Result;

/// Bytes per read: long enough that the calls do not count.
const WINDOW_BYTES: usize = 1 << 20;

/// Bytes by which the parts of a scan overlap, so that a mark lies in one of them as a whole.
const OVERLAP_BYTES: usize = MARK_BYTES - 1;

/// Bytes of the first read after [`SegmentReader::forget`]: little of them may be new.
const FORGETFUL_BYTES: usize = 64 << 10;

/// Reads the frames of one segment.
#[derive(Clone, Debug)]
pub(super) struct SegmentReader {
    file: ReadFile,
    place: FrameSeed,
    /// Where the frames end at the latest: the length of the file, or the sealed one.
    end: u64,
    /// Where the payload of the last record lies.
    record: (u64, u64),
    /// A part of the file that holds `offset`.
    window: Vec<u8>,
    window_offset: u64,
    /// Bytes that are read at a time.
    window_bytes: usize,
    /// Where the next frame begins.
    offset: u64,
    /// The furthest position that a mark read so far says was durable.
    durable: Lsn,
}

/// What comes next in a segment.
#[derive(Debug)]
pub(super) enum NextFrame<'a> {
    /// A record that begins at the offset.
    Record(u64, &'a [u8]),
    /// Zeros or the end of the file: the frames end here.
    Blank,
    /// Bytes that are no valid frame.
    Invalid,
}

/// What a scan of a damaged region found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct DamageTraces {
    /// The furthest position that a mark says was durable.
    pub(super) durable: Lsn,
    /// How many bytes the region has up to its last that is not zero.
    pub(super) bytes: u64,
}

impl SegmentReader {
    /// A reader of the segment's frames up to `end`, and the state of its header.
    pub(super) fn open(
        file: ReadFile,
        segment: u64,
        end: Option<u64>,
    ) -> Result<(SegmentReader, HeaderState)> {
        let len = file.len();
        let mut reader = SegmentReader {
            file,
            place: FrameSeed::new(&MAGIC, segment),
            end: end.map_or(len, |end| end.min(len)),
            record: (0, 0),
            window: Vec::new(),
            window_offset: 0,
            window_bytes: WINDOW_BYTES,
            offset: 0,
            durable: Lsn::default(),
        };
        reader.fill(HEADER_BYTES)?;
        let state = check_header(segment, &reader.window);
        reader.offset = HEADER_BYTES as u64;
        Ok((reader, state))
    }

    /// Where the next frame begins.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// Frames are read up to here from now on, which is not before where they were: the log has
    /// gone on.
    pub(super) fn set_end(&mut self, end: u64) {
        self.end = end.min(self.file.len());
    }

    /// Goes on with the frame at an offset: where frames began that were not read yet, or the last
    /// one that was.
    pub(super) fn seek(&mut self, offset: u64) {
        self.offset = offset;
    }

    /// Forgets what was read ahead: somebody writes to the file, and it is read again.
    pub(super) fn forget(&mut self) {
        self.window.clear();
        self.window_offset = self.offset;
        self.window_bytes = FORGETFUL_BYTES;
    }

    /// Reads nothing further: the file is not what it was when it was opened.
    pub(super) fn give_up(&mut self) {
        self.forget();
        self.end = self.offset;
    }

    /// Whether the file, as long as it was when it was opened, has no further frame.
    pub(super) fn is_at_end(&self) -> bool {
        !self.has(FRAME_HEADER_BYTES)
    }

    /// The payload of the last record.
    pub(super) fn record(&self) -> &[u8] {
        let (start, end) = self.record;
        self.between(start, end).unwrap_or_default()
    }

    /// The furthest position that a mark read so far says was durable.
    pub(super) fn durable(&self) -> Lsn {
        self.durable
    }

    /// Goes on to the next record.
    pub(super) fn step(&mut self) -> Result<NextFrame<'_>> {
        let mut wanted = 0;
        let (start, end) = loop {
            self.fill(wanted)?;
            let bytes = self.unread();
            match self.place.parse(self.offset, bytes) {
                // The bytes are borrowed again below, when nothing is moved any more.
                ParsedFrame::Record(payload) => {
                    let len = payload.len() as u64;
                    let payload_offset = self.offset + FRAME_HEADER_BYTES as u64;
                    break (payload_offset, payload_offset + len);
                }
                ParsedFrame::Mark(durable) => {
                    self.durable = self.durable.max(Lsn(durable));
                    self.offset += MARK_BYTES as u64;
                    wanted = 0;
                }
                ParsedFrame::Blank => return Ok(NextFrame::Blank),
                ParsedFrame::Invalid => return Ok(NextFrame::Invalid),
                ParsedFrame::Short(len) if self.has(len) => wanted = len,
                ParsedFrame::Short(_) => {
                    let rest_is_short = self.end.saturating_sub(self.offset) < 8;
                    let blank = rest_is_short && bytes.iter().all(|byte| *byte == 0);
                    return Ok(if blank {
                        NextFrame::Blank
                    } else {
                        NextFrame::Invalid
                    });
                }
            }
        };
        let at = self.offset;
        self.offset = end;
        self.record = (start, end);
        Ok(match self.between(start, end) {
            Some(payload) => NextFrame::Record(at, payload),
            None => NextFrame::Invalid,
        })
    }

    /// Whether the file has that many bytes from the next frame on.
    fn has(&self, len: usize) -> bool {
        len as u64 <= self.end.saturating_sub(self.offset)
    }

    fn unread(&self) -> &[u8] {
        self.between(self.offset, self.window_offset + self.window.len() as u64)
            .unwrap_or_default()
    }

    fn between(&self, start: u64, end: u64) -> Option<&[u8]> {
        let start = usize::try_from(start.checked_sub(self.window_offset)?).ok()?;
        let end = usize::try_from(end.checked_sub(self.window_offset)?).ok()?;
        self.window.get(start..end)
    }

    /// Moves the window so that it holds `wanted` bytes, at least some, from the next frame on, as
    /// far as the file goes.
    fn fill(&mut self, wanted: usize) -> Result<()> {
        let unread = self.unread().len();
        if unread >= wanted.max(1) || !self.has(unread + 1) {
            return Ok(());
        }
        let keep_from = self.window.len() - unread;
        self.window.drain(..keep_from);
        // What a large record took is not kept for the small ones behind it.
        self.window.shrink_to(wanted.max(2 * WINDOW_BYTES));
        self.window_offset = self.offset;
        let left = self.end.saturating_sub(self.offset);
        let size = usize::try_from(left)
            .unwrap_or(usize::MAX)
            .min(wanted.max(self.window_bytes));
        self.window_bytes = WINDOW_BYTES;
        self.window.resize(size, 0);
        if let Some(missing) = self.window.get_mut(unread..) {
            self.file
                .read_exact_at(missing, self.offset + unread as u64)?;
        }
        Ok(())
    }

    /// Searches everything from `offset` on for traces of a log that reached further.
    pub(super) fn traces(mut self, offset: u64) -> Result<DamageTraces> {
        let mut traces = DamageTraces::default();
        let mut at = offset;
        loop {
            let left = usize::try_from(self.end.saturating_sub(at)).unwrap_or(usize::MAX);
            let size = left.min(WINDOW_BYTES);
            self.window.resize(size, 0);
            self.file.read_exact_at(&mut self.window, at)?;
            if let Some(bytes) = bytes_to_last_nonzero(&self.window) {
                traces.bytes = at - offset + bytes as u64;
                for durable in marks(self.place, at, &self.window) {
                    traces.durable = traces.durable.max(Lsn(durable));
                }
            }
            if size == left {
                return Ok(traces);
            }
            at += (size - OVERLAP_BYTES) as u64;
        }
    }
}

/// Number of bytes up to the last that is not zero, if there is one.
fn bytes_to_last_nonzero(bytes: &[u8]) -> Option<usize> {
    const ZEROS: [u8; 4096] = [0; 4096];
    // Comparing chunks as a whole is what makes long runs of zeros cheap.
    let zero = |chunk: &[u8]| ZEROS.get(..chunk.len()) == Some(chunk);
    let chunk = bytes.chunks(ZEROS.len()).rposition(|chunk| !zero(chunk))?;
    let end = bytes.len().min((chunk + 1) * ZEROS.len());
    let last = bytes.get(..end)?.iter().rposition(|byte| *byte != 0)?;
    Some(last + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_byte_that_is_not_zero_is_found() {
        for len in [0, 1, 4095, 4096, 4097, 20_000] {
            let mut bytes = vec![0; len];
            assert_eq!(bytes_to_last_nonzero(&bytes), None);
            for at in (0..len).step_by(1021).chain(len.checked_sub(1)) {
                bytes[at] = 1;
                assert_eq!(bytes_to_last_nonzero(&bytes), Some(at + 1));
            }
        }
    }
}
