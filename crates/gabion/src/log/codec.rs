//! Numbers and byte strings in payloads: variable-length integers and a reader that trusts nothing.
//!
//! A variable-length integer (varint) holds seven bits per byte, low bits first; the top bit says
//! that another byte follows. Only the shortest form is valid, so that every value has exactly one
//! encoding.

use std::path::PathBuf;

use crate::Error;

/// Longest varint in bytes.
pub(crate) const VARINT_BYTES_MAX: usize = 10;

/// A payload that passed its checksum and still does not decode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MalformedPayload {
    /// Offset in the payload.
    pub(crate) at: usize,
    /// What does not hold.
    pub(crate) what: &'static str,
}

impl MalformedPayload {
    /// The error for a payload that lies at `offset` of `file`.
    pub(crate) fn in_file(self, file: PathBuf, offset: u64) -> Error {
        let MalformedPayload { at, what } = self;
        Error::Corruption {
            file,
            offset: offset.saturating_add(at as u64),
            what: what.to_owned(),
        }
    }
}

/// Writes a varint to the front of `buffer` and returns its length.
#[inline]
pub(crate) fn encode_varint(mut number: u64, buffer: &mut [u8; VARINT_BYTES_MAX]) -> usize {
    let mut len = 0;
    for byte in buffer {
        len += 1;
        #[expect(
            clippy::cast_possible_truncation,
            reason = "the low seven bits are meant"
        )]
        let low = number as u8 & 0x7f;
        number >>= 7;
        if number == 0 {
            *byte = low;
            break;
        }
        *byte = low | 0x80;
    }
    len
}

/// Appends a varint.
#[inline]
pub(crate) fn put_varint(bytes: &mut Vec<u8>, number: u64) {
    let mut buffer = [0; VARINT_BYTES_MAX];
    let len = encode_varint(number, &mut buffer);
    bytes.extend(buffer.iter().take(len));
}

/// Appends a byte string: its length as a varint, then its bytes.
pub(crate) fn put_bytes(bytes: &mut Vec<u8>, string: &[u8]) {
    put_varint(bytes, string.len() as u64);
    bytes.extend_from_slice(string);
}

/// Reads a payload from its front to its end.
#[derive(Clone, Debug)]
pub(crate) struct PayloadReader<'a> {
    rest: &'a [u8],
    at: usize,
}

impl<'a> PayloadReader<'a> {
    /// A reader of `bytes`, which begin at offset `at` of their payload.
    pub(crate) fn new(bytes: &'a [u8], at: usize) -> PayloadReader<'a> {
        PayloadReader { rest: bytes, at }
    }

    /// Offset in the payload of the next byte.
    pub(crate) fn at(&self) -> usize {
        self.at
    }

    /// Whether everything was read.
    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The error that something does not hold at the next byte.
    #[cold]
    pub(crate) fn malformed(&self, what: &'static str) -> MalformedPayload {
        MalformedPayload { at: self.at, what }
    }

    /// The next `len` bytes.
    #[inline]
    pub(crate) fn take(&mut self, len: usize) -> Result<&'a [u8], MalformedPayload> {
        let Some((taken, rest)) = self.rest.split_at_checked(len) else {
            return Err(self.malformed("a field reaches past the end of its record"));
        };
        self.rest = rest;
        self.at += len;
        Ok(taken)
    }

    #[inline]
    fn array<const N: usize>(&mut self) -> Result<[u8; N], MalformedPayload> {
        let Some((taken, rest)) = self.rest.split_first_chunk::<N>() else {
            return Err(self.malformed("a field reaches past the end of its record"));
        };
        self.rest = rest;
        self.at += N;
        Ok(*taken)
    }

    /// The next byte.
    #[inline]
    pub(crate) fn u8(&mut self) -> Result<u8, MalformedPayload> {
        self.array::<1>().map(|[byte]| byte)
    }

    /// The next four bytes, little-endian.
    #[inline]
    pub(crate) fn u32(&mut self) -> Result<u32, MalformedPayload> {
        self.array().map(u32::from_le_bytes)
    }

    /// The next eight bytes, little-endian.
    #[inline]
    pub(crate) fn u64(&mut self) -> Result<u64, MalformedPayload> {
        self.array().map(u64::from_le_bytes)
    }

    /// The next varint.
    #[inline]
    pub(crate) fn varint(&mut self) -> Result<u64, MalformedPayload> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            let low = u64::from(byte & 0x7f);
            if low << shift >> shift != low {
                return Err(self.malformed("a number is too large"));
            }
            number |= low << shift;
            if byte < 0x80 {
                if byte == 0 && shift > 0 {
                    return Err(self.malformed("a number is not in its shortest form"));
                }
                return Ok(number);
            }
        }
        Err(self.malformed("a number is too long"))
    }

    /// The next varint, which must fit 32 bits.
    #[inline]
    pub(crate) fn varint_u32(&mut self) -> Result<u32, MalformedPayload> {
        let number = self.varint()?;
        u32::try_from(number).map_err(|_| self.malformed("a number is too large"))
    }

    /// The next byte string.
    pub(crate) fn bytes(&mut self) -> Result<&'a [u8], MalformedPayload> {
        let len = self.varint_u32()?;
        self.take(len as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn varints_have_these_bytes() {
        let golden: [(u64, &[u8]); 6] = [
            (0, &[0]),
            (127, &[0x7f]),
            (128, &[0x80, 1]),
            (300, &[0xac, 2]),
            (u64::from(u32::MAX), &[0xff, 0xff, 0xff, 0xff, 0x0f]),
            (
                u64::MAX,
                &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1],
            ),
        ];
        for (number, expected) in golden {
            let mut bytes = Vec::new();
            put_varint(&mut bytes, number);
            assert_eq!(bytes, expected);
        }
    }

    #[test]
    fn longer_forms_and_larger_numbers_are_refused() {
        for bytes in [
            &[0x80, 0][..],
            &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2],
            &[0x80; 11],
            &[0x80],
            &[],
        ] {
            assert!(PayloadReader::new(bytes, 0).varint().is_err(), "{bytes:x?}");
        }
    }

    proptest! {
        #[test]
        fn what_decodes_encodes_to_the_same_bytes(
            bytes in prop::collection::vec(any::<u8>(), 0..12),
        ) {
            let mut reader = PayloadReader::new(&bytes, 0);
            if let Ok(number) = reader.varint() {
                let mut again = Vec::new();
                put_varint(&mut again, number);
                prop_assert_eq!(&again[..], &bytes[..reader.at()]);
            }
        }

        #[test]
        fn fields_come_back(number: u64, string: Vec<u8>, word: u32) {
            let mut bytes = Vec::new();
            put_varint(&mut bytes, number);
            put_bytes(&mut bytes, &string);
            bytes.extend(word.to_le_bytes());
            let mut reader = PayloadReader::new(&bytes, 0);
            prop_assert_eq!(reader.varint(), Ok(number));
            prop_assert_eq!(reader.bytes(), Ok(&string[..]));
            prop_assert_eq!(reader.u32(), Ok(word));
            prop_assert!(reader.is_empty());
            prop_assert!(reader.u8().is_err());
        }
    }
}
