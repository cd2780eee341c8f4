//! The logical log: the operations on the tree since it was saved, in frames.
//!
//! # Frame
//! | offset | size | meaning |
//! |---|---|---|
//! | 0 | 4 | checksum of the payload |
//! | 4 | 4 | bytes of the payload, a multiple of 8 and at least 8 |
//! | 8 | 8 | position up to which the log was durable when the frame was written |
//! | 16 | 4 | checksum of bytes 0 to 16 |
//! | 20 | 4 | zero |
//! | 24 | .. | payload: records |
//!
//! Both checksums begin with the magic, the number of the space, the version of the tree and the
//! offset of the frame, so that a frame of another log or place is not valid. Frames follow each
//! other without gaps; zeros end them.
//!
//! # Record: three words of 8 bytes, and checksums
//! | first word, top byte | first word, rest | second word | third word |
//! |---|---|---|---|
//! | 1 insert | address (48) | offset | length |
//! | 2 collapse | 0 | offset | length |
//! | 3 map | address (48) | offset | length |
//! | 4 sums | class (byte 6), segment (32) | first block (32), count | bytes written (32), *g* |
//! | 5 segment | segment (32) | live bytes | 0 (32), *g* |
//!
//! *g* is the generation, in the upper half of the word. Behind sums follow the checksums of
//! `count` blocks, 4 bytes each, padded with zeros to 8. A segment is full and has a footer, unless
//! sums of it follow. Its live bytes are those that extents of the saved tree refer to.
//!
//! The class of sums is 0 for a segment that users fill, 1 for one that is filled with moved data,
//! 2 for one that is not filled on.
//!
//! # Torn or corrupt
//! A frame is one commit: it holds whole operations, or groups of operations, only. Replay ends at
//! the first invalid frame. If a frame behind it, found by the checksum of its head, says that the
//! log was durable beyond that place, the bytes were there once: that is damage, and not the torn
//! end of a crash.

use gabion_media::crc32c;

use super::geometry::MARK;
use super::layout::{LOG_HEADER_BYTES, LOG_MAGIC, seed_of, u32_at, u64_at};
use super::segments::{SegmentClass, SegmentState};

/// Bytes of a frame before its payload.
pub(crate) const FRAME_HEAD_BYTES: usize = 24;

/// Bytes of a record without checksums.
pub(crate) const RECORD_BYTES: usize = 24;

const ADDRESS_MASK: u64 = (1 << 48) - 1;
const KIND_SHIFT: u32 = 56;
const CLASS_SHIFT: u32 = 48;

const INSERT: u64 = 1;
const COLLAPSE: u64 = 2;
const MAP: u64 = 3;
const SUMS: u64 = 4;
const SEGMENT: u64 = 5;

/// One record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LogRecord {
    Insert {
        offset: u64,
        len: u64,
        address: u64,
    },
    Collapse {
        offset: u64,
        len: u64,
    },
    Map {
        offset: u64,
        len: u64,
        address: u64,
    },
    Sums(SumsRecord),
    /// A segment, which is full unless sums follow.
    Segment {
        segment: u32,
        generation: u32,
        /// Bytes of it that extents refer to.
        live: u64,
    },
}

/// Checksums of blocks that were written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SumsRecord {
    pub(crate) segment: u32,
    pub(crate) state: SegmentState,
    pub(crate) generation: u32,
    pub(crate) first: u32,
    /// Bytes of the segment that are written.
    pub(crate) written: u32,
    pub(crate) sums: Vec<u32>,
}

/// Records that wait for their commit.
#[derive(Debug, Default)]
pub(crate) struct PendingRecords {
    bytes: Vec<u8>,
    /// Where the last record begins, if it is an insertion that may be lengthened.
    insert: Option<usize>,
}

impl PendingRecords {
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.insert = None;
    }

    /// Adds a record. An insertion that continues the one before lengthens it, unless it has a mark
    /// of its own.
    pub(crate) fn push(&mut self, record: &LogRecord) {
        if self.lengthen(record) {
            return;
        }
        self.insert = matches!(record, LogRecord::Insert { .. }).then_some(self.bytes.len());
        let [first, second, third] = match record {
            LogRecord::Insert {
                offset,
                len,
                address,
            } => [INSERT << KIND_SHIFT | address, *offset, *len],
            LogRecord::Collapse { offset, len } => [COLLAPSE << KIND_SHIFT, *offset, *len],
            LogRecord::Map {
                offset,
                len,
                address,
            } => [MAP << KIND_SHIFT | address, *offset, *len],
            LogRecord::Segment {
                segment,
                generation,
                live,
            } => {
                let first = SEGMENT << KIND_SHIFT | u64::from(*segment);
                [first, *live, u64::from(*generation) << 32]
            }
            LogRecord::Sums(sums) => [
                SUMS << KIND_SHIFT | sums.class() << CLASS_SHIFT | u64::from(sums.segment),
                u64::from(sums.first) | (sums.sums.len() as u64) << 32,
                u64::from(sums.written) | u64::from(sums.generation) << 32,
            ],
        };
        for word in [first, second, third] {
            self.bytes.extend(word.to_le_bytes());
        }
        if let LogRecord::Sums(sums) = record {
            self.bytes
                .extend(sums.sums.iter().flat_map(|sum| sum.to_le_bytes()));
            self.bytes.resize(self.bytes.len().next_multiple_of(8), 0);
        }
    }

    fn lengthen(&mut self, record: &LogRecord) -> bool {
        let (
            Some(last),
            LogRecord::Insert {
                offset,
                len,
                address,
            },
        ) = (self.insert, record)
        else {
            return false;
        };
        let before = u64_at(&self.bytes, last) & ADDRESS_MASK;
        let before_offset = u64_at(&self.bytes, last + 8);
        let before_len = u64_at(&self.bytes, last + 16);
        let continues = *address != ADDRESS_MASK
            && address & MARK == 0
            && before + before_len == *address
            && before_offset + before_len == *offset;
        if continues {
            let sum = before_len + len;
            self.bytes[last + 16..last + 24].copy_from_slice(&sum.to_le_bytes());
        }
        continues
    }
}

impl SumsRecord {
    fn class(&self) -> u64 {
        match self.state {
            SegmentState::Open(SegmentClass::User) => 0,
            SegmentState::Open(SegmentClass::Moved) => 1,
            _ => 2,
        }
    }
}

/// Reads the records of a payload, whose checksum has been checked.
pub(crate) struct RecordReader<'a>(&'a [u8]);

impl<'a> RecordReader<'a> {
    pub(crate) fn new(payload: &'a [u8]) -> RecordReader<'a> {
        RecordReader(payload)
    }
}

impl Iterator for RecordReader<'_> {
    type Item = Result<LogRecord, &'static str>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let Some((words, rest)) = self.0.split_at_checked(RECORD_BYTES) else {
            self.0 = &[];
            return Some(Err("a record is cut off"));
        };
        self.0 = rest;
        let (first, second, third) = (u64_at(words, 0), u64_at(words, 8), u64_at(words, 16));
        let (address, offset, len) = (first & ADDRESS_MASK, second, third);
        let segment = u32_at(words, 0);
        let generation = u32_at(words, 20);
        Some(Ok(match first >> KIND_SHIFT {
            INSERT => LogRecord::Insert {
                offset,
                len,
                address,
            },
            COLLAPSE => LogRecord::Collapse { offset, len },
            MAP => LogRecord::Map {
                offset,
                len,
                address,
            },
            SEGMENT => LogRecord::Segment {
                segment,
                generation,
                live: second,
            },
            SUMS => {
                let count = u32_at(words, 12) as usize;
                let size = (count * 4).next_multiple_of(8);
                let Some((sums, rest)) = rest.split_at_checked(size) else {
                    self.0 = &[];
                    return Some(Err("the checksums of a record are cut off"));
                };
                self.0 = rest;
                let (sums, _) = sums.as_chunks::<4>();
                LogRecord::Sums(SumsRecord {
                    segment,
                    state: match first >> CLASS_SHIFT & 0xff {
                        0 => SegmentState::Open(SegmentClass::User),
                        1 => SegmentState::Open(SegmentClass::Moved),
                        _ => SegmentState::Left,
                    },
                    generation,
                    first: u32_at(words, 8),
                    written: u32_at(words, 16),
                    sums: sums
                        .iter()
                        .take(count)
                        .map(|sum| u32::from_le_bytes(*sum))
                        .collect(),
                })
            }
            _ => return Some(Err("the kind of a record is unknown")),
        }))
    }
}

/// Makes and checks the frames of one log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FrameCodec {
    seed: u32,
}

/// What begins at a place of a log.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ParsedFrame<'a> {
    Frame {
        payload: &'a [u8],
        durable: u64,
    },
    /// Zeros up to the end.
    Blank,
    Invalid,
}

impl FrameCodec {
    pub(crate) fn new(space: u64, version: u64) -> FrameCodec {
        let seed = crc32c::crc32c_append(seed_of(&LOG_MAGIC, space), &version.to_le_bytes());
        FrameCodec { seed }
    }

    fn checksum(self, offset: u64, bytes: &[u8]) -> u32 {
        crc32c::crc32c_append(
            crc32c::crc32c_append(self.seed, &offset.to_le_bytes()),
            bytes,
        )
    }

    /// The head of a frame at `offset`. A payload is limited by the size of a log, far below 4 GiB.
    pub(crate) fn head(self, offset: u64, durable: u64, payload: &[u8]) -> [u8; FRAME_HEAD_BYTES] {
        let len = u32::try_from(payload.len()).expect("a log is shorter than 4 GiB");
        let mut head = [0; FRAME_HEAD_BYTES];
        head[..4].copy_from_slice(&self.checksum(offset, payload).to_le_bytes());
        head[4..8].copy_from_slice(&len.to_le_bytes());
        head[8..16].copy_from_slice(&durable.to_le_bytes());
        let crc = self.checksum(offset, &head[..16]);
        head[16..20].copy_from_slice(&crc.to_le_bytes());
        head
    }

    /// What begins at `offset` of the log's bytes.
    pub(crate) fn parse(self, log: &[u8], offset: usize) -> ParsedFrame<'_> {
        let rest = log.get(offset..).unwrap_or_default();
        let Some(durable) = self.durable_of(rest, offset) else {
            // Without an early end, so that many bytes are looked at together.
            let blank = rest.iter().fold(0, |sum, byte| sum | byte) == 0;
            return if blank {
                ParsedFrame::Blank
            } else {
                ParsedFrame::Invalid
            };
        };
        let len = u32_at(rest, 4) as usize;
        let payload = rest
            .get(FRAME_HEAD_BYTES..)
            .and_then(|rest| rest.get(..len));
        match payload {
            Some(payload) if self.checksum(offset as u64, payload) == u32_at(rest, 0) => {
                ParsedFrame::Frame { payload, durable }
            }
            _ => ParsedFrame::Invalid,
        }
    }

    /// What a head at `offset` says about durability, if it is valid.
    fn durable_of(self, rest: &[u8], offset: usize) -> Option<u64> {
        let head = rest.first_chunk::<FRAME_HEAD_BYTES>()?;
        let len = u32_at(head, 4);
        let sound = len >= 8 && len.is_multiple_of(8) && u32_at(head, 20) == 0;
        let valid = sound && u32_at(head, 16) == self.checksum(offset as u64, &head[..16]);
        valid.then(|| u64_at(head, 8))
    }

    /// The farthest place up to which the log was durable, by the heads behind `offset`.
    pub(crate) fn proof(self, log: &[u8], offset: usize) -> u64 {
        let places = (offset.next_multiple_of(8)..log.len()).step_by(8);
        let said = places.filter_map(|at| self.durable_of(&log[at..], at));
        said.max().unwrap_or(LOG_HEADER_BYTES as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records() -> Vec<LogRecord> {
        vec![
            LogRecord::Segment {
                segment: 3,
                generation: 9,
                live: 77,
            },
            LogRecord::Insert {
                offset: 10,
                len: 20,
                address: 30,
            },
            LogRecord::Collapse {
                offset: 1 << 62,
                len: 5,
            },
            LogRecord::Map {
                offset: 1,
                len: 2,
                address: ADDRESS_MASK,
            },
            LogRecord::Sums(SumsRecord {
                segment: 7,
                state: SegmentState::Open(SegmentClass::Moved),
                generation: 8,
                first: 2,
                written: 1234,
                sums: vec![1, 2, 3],
            }),
            LogRecord::Insert {
                offset: 10,
                len: 20,
                address: 30,
            },
        ]
    }

    #[test]
    fn records_come_back() {
        let mut pending = PendingRecords::default();
        records().iter().for_each(|record| pending.push(record));
        let read: Result<Vec<LogRecord>, _> = RecordReader::new(pending.as_bytes()).collect();
        assert_eq!(read, Ok(records()));
        let bytes = pending.as_bytes();
        assert!(RecordReader::new(&bytes[..bytes.len() - 8]).any(|record| record.is_err()));
    }

    #[test]
    fn an_insertion_that_continues_the_one_before_lengthens_it() {
        let mut pending = PendingRecords::default();
        for at in 0..10 {
            let (offset, address) = (100 + at * 5, 7000 + at * 5);
            pending.push(&LogRecord::Insert {
                offset,
                len: 5,
                address,
            });
        }
        pending.push(&LogRecord::Insert {
            offset: 150,
            len: 5,
            address: ADDRESS_MASK,
        });
        pending.push(&LogRecord::Insert {
            offset: 155,
            len: 5,
            address: ADDRESS_MASK,
        });
        let read: Vec<LogRecord> = RecordReader::new(pending.as_bytes()).flatten().collect();
        assert_eq!(
            read[0],
            LogRecord::Insert {
                offset: 100,
                len: 50,
                address: 7000
            }
        );
        assert_eq!(read.len(), 3);
    }

    #[test]
    fn frames_are_bound_to_their_place_and_prove_what_was_durable() {
        let frames = FrameCodec::new(5, 6);
        let mut log = vec![0; LOG_HEADER_BYTES];
        let mut starts = Vec::new();
        for number in 0..3_u8 {
            let payload = [number + 1; 16];
            let durable = starts.last().copied().unwrap_or(LOG_HEADER_BYTES);
            starts.push(log.len());
            log.extend(frames.head(log.len() as u64, durable as u64, &payload));
            log.extend(payload);
        }
        log.resize(log.len() + 100, 0);
        for (number, start) in (1..).zip(&starts) {
            let parsed = frames.parse(&log, *start);
            assert!(
                matches!(parsed, ParsedFrame::Frame { payload, .. } if payload == [number; 16])
            );
            assert_eq!(
                FrameCodec::new(5, 7).parse(&log, *start),
                ParsedFrame::Invalid
            );
        }
        assert_eq!(frames.parse(&log, starts[2] + 40), ParsedFrame::Blank);
        assert_eq!(frames.proof(&log, starts[0]), starts[1] as u64);
        for at in starts[1]..starts[1] + 40 {
            let mut damaged = log.clone();
            damaged[at] ^= 4;
            assert_eq!(
                frames.parse(&damaged, starts[1]),
                ParsedFrame::Invalid,
                "byte {at}"
            );
        }
        let moved = [&log[..starts[1]], &log[starts[0]..]].concat();
        assert_eq!(frames.parse(&moved, starts[1]), ParsedFrame::Invalid);
    }
}
