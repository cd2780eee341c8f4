//! Reads the parts of a value. Every part that is cut or damaged is `None`.

use super::lzf;

/// Items that room is made for before they have come.
const ROOM_MAX: usize = 1024;

/// Bytes that are read from the front.
#[derive(Debug)]
pub(super) struct Reader<'a>(&'a [u8]);

/// A length, or the way in which a string is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Length {
    Plain(u64),
    Form(u8),
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader(bytes)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn chunk<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (chunk, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*chunk)
    }

    pub(super) fn byte(&mut self) -> Option<u8> {
        let [byte] = self.chunk()?;
        Some(byte)
    }

    /// A number of eight bytes.
    pub(super) fn number(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.chunk()?))
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
        Some(
            taken
                .iter()
                .fold(0, |number, byte| number << 8 | u64::from(*byte)),
        )
    }

    fn length_or_form(&mut self) -> Option<Length> {
        let first = self.byte()?;
        let low = u64::from(first & 0x3f);
        Some(match (first >> 6, first) {
            (0, _) => Length::Plain(low),
            (1, _) => Length::Plain(low << 8 | u64::from(self.byte()?)),
            (2, 0x80) => Length::Plain(self.turned(4)?),
            (2, 0x81) => Length::Plain(self.turned(8)?),
            (3, _) => Length::Form(first & 0x3f),
            _ => return None,
        })
    }

    /// A length.
    pub(super) fn length(&mut self) -> Option<u64> {
        match self.length_or_form()? {
            Length::Plain(length) => Some(length),
            Length::Form(_) => None,
        }
    }

    /// A string, which may be written as a number or compressed.
    pub(super) fn string(&mut self) -> Option<Vec<u8>> {
        match self.length_or_form()? {
            Length::Plain(length) => Some(self.take(usize::try_from(length).ok()?)?.to_vec()),
            Length::Form(form @ 0..=2) => {
                let number = self.signed(1 << form)?;
                Some(number.to_string().into_bytes())
            }
            Length::Form(3) => {
                let packed = usize::try_from(self.length()?).ok()?;
                let length = usize::try_from(self.length()?).ok()?;
                lzf::unpack(self.take(packed)?, length)
            }
            Length::Form(_) => None,
        }
    }

    /// A score of eight bytes.
    pub(super) fn score(&mut self) -> Option<f64> {
        Some(f64::from_le_bytes(self.chunk()?))
    }

    /// A score as text, with its length in front.
    pub(super) fn text_score(&mut self) -> Option<f64> {
        match self.byte()? {
            255 => Some(f64::NEG_INFINITY),
            254 => Some(f64::INFINITY),
            253 => None,
            length => crate::args::float(self.take(usize::from(length))?),
        }
    }

    /// A number of items and the items.
    pub(super) fn several<T>(
        &mut self,
        mut one: impl FnMut(&mut Reader<'a>) -> Option<T>,
    ) -> Option<Vec<T>> {
        let count = usize::try_from(self.length()?).ok()?;
        let mut items = Vec::with_capacity(count.min(ROOM_MAX));
        for _ in 0..count {
            items.push(one(self)?);
        }
        Some(items)
    }
}
