//! Values as Redis' snapshots have them: what `DUMP` gives and `RESTORE` takes.
//!
//! # Layout
//! A byte for the type, the value, the version of the format (2 bytes), and a checksum of all that
//! (8 bytes), both little-endian. Of the forms that a type has in snapshots, the plain ones are
//! written, which all versions of Redis read. A length is one byte below 64, two below 16,384, and
//! five or nine else; a string is its length and its bytes, a small number, or compressed.
//!
//! The checksum is the CRC of 64 bits of Jones, its bits reflected.

use std::sync::LazyLock;

use crate::fault::{Fault, Result};

/// The version that is written, and the greatest that is read: those of Redis 7.0 and 7.2.
const VERSION: u16 = 10;
const VERSION_MAX: u16 = 11;

/// Bytes behind a value.
const TAIL_BYTES: usize = 10;

/// The polynomial, its bits reflected.
const POLYNOMIAL: u64 = 0x95ac_9329_ac4b_c9b5;

/// The longest string that a payload may have compressed, in bytes.
const LONG_MAX: usize = 512 << 20;

static TABLE: LazyLock<[u64; 256]> = LazyLock::new(|| {
    let mut table = [0; 256];
    for (index, entry) in (0_u64..).zip(table.iter_mut()) {
        *entry = (0..8).fold(index, |crc, _| match crc & 1 {
            1 => crc >> 1 ^ POLYNOMIAL,
            _ => crc >> 1,
        });
    }
    table
});

/// The checksum of bytes.
fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |crc, byte| {
        let index = (crc ^ u64::from(*byte)) & 0xff;
        TABLE[usize::try_from(index).unwrap_or_default()] ^ crc >> 8
    })
}

/// What Redis says of a payload that was changed.
pub(crate) const BAD_CHECKSUM: Fault =
    Fault::line("ERR DUMP payload version or checksum are wrong");

/// Of one that is not whole.
pub(crate) const BAD_FORMAT: Fault = Fault::line("ERR Bad data format");

/// Values that are written.
#[derive(Debug, Default)]
pub(crate) struct Writer(Vec<u8>);

impl Writer {
    /// A byte, such as a type.
    pub(crate) fn byte(&mut self, byte: u8) {
        self.0.push(byte);
    }

    /// A length.
    pub(crate) fn length(&mut self, length: u64) {
        let mut bytes = length.to_le_bytes();
        bytes.reverse();
        match length {
            0..64 => self.0.push(bytes[7]),
            64..16_384 => self.0.extend_from_slice(&[0x40 | bytes[6], bytes[7]]),
            _ if bytes[..4] == [0; 4] => {
                self.0.push(0x80);
                self.0.extend_from_slice(&bytes[4..]);
            }
            _ => {
                self.0.push(0x81);
                self.0.extend_from_slice(&bytes);
            }
        }
    }

    /// A string.
    pub(crate) fn string(&mut self, bytes: &[u8]) {
        self.length(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    /// A number with a fraction, in eight bytes.
    pub(crate) fn number(&mut self, number: f64) {
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    /// All, with version and checksum.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.0.extend_from_slice(&VERSION.to_le_bytes());
        let checksum = checksum(&self.0);
        self.0.extend_from_slice(&checksum.to_le_bytes());
        self.0
    }
}

/// Values that are read.
#[derive(Debug)]
pub(crate) struct Reader<'p>(&'p [u8]);

impl<'p> Reader<'p> {
    /// Of a payload whose checksum fits.
    ///
    /// # Errors
    /// [`BAD_CHECKSUM`].
    pub(crate) fn new(payload: &'p [u8]) -> Result<Reader<'p>> {
        let end = payload.len().checked_sub(TAIL_BYTES).ok_or(BAD_CHECKSUM)?;
        let (value, tail) = payload.split_at(end);
        let (version, stored) = tail.split_first_chunk().ok_or(BAD_CHECKSUM)?;
        let stored = stored.first_chunk().ok_or(BAD_CHECKSUM)?;
        let is_sound = u64::from_le_bytes(*stored) == checksum(&payload[..end + 2]);
        match is_sound && u16::from_le_bytes(*version) <= VERSION_MAX {
            true => Ok(Reader(value)),
            false => Err(BAD_CHECKSUM),
        }
    }

    /// Whether all was read.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// So many bytes.
    ///
    /// # Errors
    /// [`BAD_FORMAT`] if there are fewer.
    fn take(&mut self, count: usize) -> Result<&'p [u8]> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(BAD_FORMAT)?;
        self.0 = rest;
        Ok(taken)
    }

    /// A byte.
    ///
    /// # Errors
    /// [`BAD_FORMAT`].
    pub(crate) fn byte(&mut self) -> Result<u8> {
        Ok(self.take(1)?[0])
    }

    /// Bytes as a number, the highest first.
    fn high_first(&mut self, count: usize) -> Result<u64> {
        let bytes = self.take(count)?;
        Ok(bytes
            .iter()
            .fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    /// A length, or the number of a special form of a string.
    fn length_or_form(&mut self) -> Result<(u64, bool)> {
        let first = self.byte()?;
        Ok(match first >> 6 {
            0 => (u64::from(first), false),
            1 => (
                u64::from(first & 0x3f) << 8 | u64::from(self.byte()?),
                false,
            ),
            3 => (u64::from(first & 0x3f), true),
            _ if first == 0x80 => (self.high_first(4)?, false),
            _ if first == 0x81 => (self.high_first(8)?, false),
            _ => return Err(BAD_FORMAT),
        })
    }

    /// A length.
    ///
    /// # Errors
    /// [`BAD_FORMAT`].
    pub(crate) fn length(&mut self) -> Result<u64> {
        match self.length_or_form()? {
            (length, false) => Ok(length),
            _ => Err(BAD_FORMAT),
        }
    }

    fn size(&mut self) -> Result<usize> {
        usize::try_from(self.length()?).map_err(|_| BAD_FORMAT)
    }

    /// A string.
    ///
    /// # Errors
    /// [`BAD_FORMAT`].
    pub(crate) fn string(&mut self) -> Result<Vec<u8>> {
        let low_first = |bytes: &[u8]| {
            let unused = 64 - 8 * bytes.len();
            let number = bytes
                .iter()
                .rev()
                .fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
            (number.cast_signed() << unused >> unused)
                .to_string()
                .into_bytes()
        };
        match self.length_or_form()? {
            (length, false) => {
                let length = usize::try_from(length).map_err(|_| BAD_FORMAT)?;
                Ok(self.take(length)?.to_vec())
            }
            (form @ 0..=2, true) => Ok(low_first(self.take(1 << form)?)),
            (3, true) => {
                let (packed, length) = (self.size()?, self.size()?);
                expand(self.take(packed)?, length)
            }
            _ => Err(BAD_FORMAT),
        }
    }

    /// A number with a fraction, in eight bytes.
    ///
    /// # Errors
    /// [`BAD_FORMAT`].
    pub(crate) fn number(&mut self) -> Result<f64> {
        let bytes = self.take(8)?.first_chunk().ok_or(BAD_FORMAT)?;
        let number = f64::from_le_bytes(*bytes);
        match number.is_nan() {
            true => Err(BAD_FORMAT),
            false => Ok(number),
        }
    }
}

/// What was compressed by LZF (Lehmann): bytes as they are, or a part of what came before.
fn expand(mut packed: &[u8], length: usize) -> Result<Vec<u8>> {
    if length > LONG_MAX {
        return Err(BAD_FORMAT);
    }
    let mut out = Vec::with_capacity(length.min(packed.len().saturating_mul(300)));
    let mut next = |count: usize| -> Result<&[u8]> {
        let (taken, rest) = packed.split_at_checked(count).ok_or(BAD_FORMAT)?;
        packed = rest;
        Ok(taken)
    };
    while out.len() < length {
        let first = usize::from(next(1)?[0]);
        if first < 32 {
            out.extend_from_slice(next(first + 1)?);
            continue;
        }
        let mut count = (first >> 5) + 2;
        if count == 9 {
            count += usize::from(next(1)?[0]);
        }
        let back = (first & 0x1f) << 8 | usize::from(next(1)?[0]);
        let start = out.len().checked_sub(back + 1).ok_or(BAD_FORMAT)?;
        for index in start..start + count {
            out.push(out[index]);
        }
    }
    match out.len() == length {
        true => Ok(out),
        false => Err(BAD_FORMAT),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_that_of_redis() {
        assert_eq!(checksum(b"123456789"), 0xe9c6_d914_c4b8_d9ca);
    }

    #[test]
    fn what_was_written_is_read() {
        let mut writer = Writer::default();
        writer.byte(7);
        let lengths = [0, 63, 64, 16_383, 16_384, u64::from(u32::MAX), u64::MAX];
        for length in lengths {
            writer.length(length);
        }
        writer.string(b"text");
        writer.number(-1.5);
        let payload = writer.finish();
        let mut reader = Reader::new(&payload).unwrap();
        assert_eq!(reader.byte().unwrap(), 7);
        for length in lengths {
            assert_eq!(reader.length().unwrap(), length);
        }
        assert_eq!(reader.string().unwrap(), b"text");
        assert_eq!(reader.number().unwrap(), -1.5);
        assert!(reader.is_empty() && reader.byte().is_err());
        for index in 0..payload.len() {
            let mut broken = payload.clone();
            broken[index] ^= 1;
            assert!(Reader::new(&broken).is_err());
        }
    }

    #[test]
    fn special_forms_of_strings_are_read() {
        for (bytes, text) in [
            (&[0xc0, 0xff][..], &b"-1"[..]),
            (&[0xc1, 0x39, 0x30], b"12345"),
            (&[0xc2, 0, 0, 0, 0x80], b"-2147483648"),
            (&[0xc3, 5, 8, 0, b'a', 0xa0, 0, 0], b"aaaaaaaa"),
        ] {
            let mut reader = Reader(bytes);
            assert_eq!(reader.string().ok().as_deref(), Some(text), "{bytes:?}");
        }
        assert!(Reader(&[0xc3, 3, 8, 0x20, 5, 0]).string().is_err());
    }
}
