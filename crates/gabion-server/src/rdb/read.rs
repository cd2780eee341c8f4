//! Reads the parts of a value: from a file as it comes, or from bytes that are there.
//!
//! No length is believed: room is made as the bytes come that should fill it.

use std::io::{self, Read};

use super::piece::{Refused, Result};
use super::{checksum, lzf};

/// Bytes of a string that are read in one go.
const PIECE_BYTES: usize = 64 << 10;

/// A length, or the way in which a string is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Length {
    Plain(u64),
    Form(u8),
}

/// Reads parts from the front.
#[derive(Debug)]
pub(super) struct Reader<R> {
    /// What is read.
    pub(super) input: R,
}

impl<R: Read> Reader<R> {
    pub(super) fn new(input: R) -> Reader<R> {
        Reader { input }
    }

    fn exact(&mut self, bytes: &mut [u8]) -> Result<()> {
        self.input
            .read_exact(bytes)
            .map_err(|error| match error.kind() {
                io::ErrorKind::UnexpectedEof => Refused::Cut,
                _ => Refused::Unread(error),
            })
    }

    /// So many bytes, of which there are not more than a few.
    pub(super) fn chunk<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut chunk = [0; N];
        self.exact(&mut chunk)?;
        Ok(chunk)
    }

    pub(super) fn byte(&mut self) -> Result<u8> {
        let [byte] = self.chunk()?;
        Ok(byte)
    }

    /// A number of eight bytes.
    pub(super) fn number(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.chunk()?))
    }

    /// A moment of eight bytes; what lies before 1970 is 0.
    pub(super) fn moment(&mut self) -> Result<u64> {
        let moment = i64::from_le_bytes(self.chunk()?);
        Ok(u64::try_from(moment).unwrap_or_default())
    }

    /// So many bytes, whatever the number.
    fn bytes(&mut self, count: u64) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let mut missing = count;
        while missing > 0 {
            let piece = usize::try_from(missing).unwrap_or(usize::MAX);
            let piece = piece.min(PIECE_BYTES);
            let start = bytes.len();
            bytes.resize(start + piece, 0);
            self.exact(&mut bytes[start..])?;
            missing -= piece as u64;
        }
        Ok(bytes)
    }

    fn length_or_form(&mut self) -> Result<Length> {
        let first = self.byte()?;
        let low = u64::from(first & 0x3f);
        let turned = |bytes: &[u8]| {
            let add = |number, byte: &u8| number << 8 | u64::from(*byte);
            bytes.iter().fold(0, add)
        };
        Ok(match (first >> 6, first) {
            (0, _) => Length::Plain(low),
            (1, _) => Length::Plain(low << 8 | u64::from(self.byte()?)),
            (2, 0x80) => Length::Plain(turned(&self.chunk::<4>()?)),
            (2, 0x81) => Length::Plain(turned(&self.chunk::<8>()?)),
            (3, _) => Length::Form(first & 0x3f),
            _ => return Err(Refused::Broken("a length is in no known form")),
        })
    }

    /// A length.
    pub(super) fn length(&mut self) -> Result<u64> {
        match self.length_or_form()? {
            Length::Plain(length) => Ok(length),
            Length::Form(_) => Err(Refused::Broken("a string stands where a length should")),
        }
    }

    /// A string, which may be written as a number or compressed.
    pub(super) fn string(&mut self) -> Result<Vec<u8>> {
        let decimal = |number: i64| number.to_string().into_bytes();
        match self.length_or_form()? {
            Length::Plain(length) => self.bytes(length),
            Length::Form(0) => Ok(decimal(i8::from_le_bytes(self.chunk()?).into())),
            Length::Form(1) => Ok(decimal(i16::from_le_bytes(self.chunk()?).into())),
            Length::Form(2) => Ok(decimal(i32::from_le_bytes(self.chunk()?).into())),
            Length::Form(3) => {
                let packed = self.length()?;
                let length = self.length()?;
                let packed = self.bytes(packed)?;
                let unpacked = usize::try_from(length)
                    .ok()
                    .and_then(|length| lzf::unpack(&packed, length));
                unpacked.ok_or(Refused::Broken("a compressed string does not unpack"))
            }
            Length::Form(_) => Err(Refused::Broken("a string is in no known form")),
        }
    }

    /// A score of eight bytes.
    pub(super) fn score(&mut self) -> Result<f64> {
        Ok(f64::from_le_bytes(self.chunk()?))
    }

    /// A score as text, with its length in front.
    pub(super) fn text_score(&mut self) -> Result<f64> {
        match self.byte()? {
            255 => Ok(f64::NEG_INFINITY),
            254 => Ok(f64::INFINITY),
            253 => Ok(f64::NAN),
            length => {
                let text = self.bytes(length.into())?;
                crate::args::float(&text).ok_or(Refused::Broken("a score is no number"))
            }
        }
    }
}

impl Reader<&[u8]> {
    pub(super) fn is_empty(&self) -> bool {
        self.input.is_empty()
    }
}

/// Counts and sums up what is read.
#[derive(Debug)]
pub(super) struct Summed<R> {
    input: R,
    /// Bytes that were read.
    pub(super) offset: u64,
    /// Their checksum.
    pub(super) sum: u64,
}

impl<R: Read> Summed<R> {
    pub(super) fn new(input: R) -> Summed<R> {
        Summed {
            input,
            offset: 0,
            sum: 0,
        }
    }
}

impl<R: Read> Read for Summed<R> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let count = self.input.read(bytes)?;
        let read = bytes.get(..count).unwrap_or_default();
        self.sum = checksum::add(self.sum, read);
        self.offset += read.len() as u64;
        Ok(count)
    }
}

/// Bytes that are taken from the front. What is cut is `None`.
#[derive(Clone, Debug)]
pub(super) struct Bytes<'a>(pub(super) &'a [u8]);

impl<'a> Bytes<'a> {
    pub(super) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    pub(super) fn byte(&mut self) -> Option<u8> {
        let (byte, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*byte)
    }

    /// A whole number with a sign, of 1 to 8 bytes, little-endian.
    pub(super) fn signed(&mut self, count: usize) -> Option<i64> {
        let taken = self.take(count)?;
        let is_negative = taken.last()? & 0x80 != 0;
        let mut bytes = if is_negative { [0xff; 8] } else { [0; 8] };
        bytes.get_mut(..count)?.copy_from_slice(taken);
        Some(i64::from_le_bytes(bytes))
    }

    /// The same without a sign.
    pub(super) fn unsigned(&mut self, count: usize) -> Option<u64> {
        let mut bytes = [0; 8];
        bytes.get_mut(..count)?.copy_from_slice(self.take(count)?);
        Some(u64::from_le_bytes(bytes))
    }

    /// The same with the highest byte first.
    pub(super) fn turned(&mut self, count: usize) -> Option<u64> {
        let taken = self.take(count)?;
        let add = |number, byte: &u8| number << 8 | u64::from(*byte);
        Some(taken.iter().fold(0, add))
    }
}
