//! Bytes in which a binding packs much for one crossing: texts, each a length `u32` and its bytes,
//! and numbers. All numbers are little-endian.
//!
//! # Invariants
//! - What is read comes from another language: reading it never panics, whatever it is.

use crate::{Failure, Result};

/// Packed bytes that are read one after the other.
pub struct Unpacked<'a> {
    rest: &'a [u8],
}

impl<'a> Unpacked<'a> {
    /// Reads from the beginning of `packed`.
    pub fn new(packed: &'a [u8]) -> Unpacked<'a> {
        Unpacked { rest: packed }
    }

    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The next bytes.
    ///
    /// # Errors
    /// [`Failure::Refused`] where there are fewer.
    pub fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or_else(cut)?;
        self.rest = rest;
        Ok(taken)
    }

    /// The next number of 32 bits.
    ///
    /// # Errors
    /// As [`Unpacked::take`].
    pub fn number(&mut self) -> Result<u32> {
        let bytes = self.take(4)?.try_into().map_err(|_| cut())?;
        Ok(u32::from_le_bytes(bytes))
    }

    /// The next number of 64 bits.
    ///
    /// # Errors
    /// As [`Unpacked::take`].
    pub fn long(&mut self) -> Result<u64> {
        let bytes = self.take(8)?.try_into().map_err(|_| cut())?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// The next text.
    ///
    /// # Errors
    /// As [`Unpacked::take`].
    pub fn text(&mut self) -> Result<&'a [u8]> {
        let length = self.number()?;
        self.take(length as usize)
    }

    /// All that is left, as texts.
    ///
    /// # Errors
    /// As [`Unpacked::take`].
    pub fn texts(mut self) -> Result<Vec<&'a [u8]>> {
        let mut texts = Vec::new();
        while !self.is_empty() {
            texts.push(self.text()?);
        }
        Ok(texts)
    }
}

/// What is said of packed bytes that end too early, or hold what nobody packs.
pub fn cut() -> Failure {
    Failure::argument("a request is cut off or of an unknown kind")
}

/// Adds a text. No text of a store has the length of a number of 32 bits.
pub fn push_text(packed: &mut Vec<u8>, text: &[u8]) {
    let length = u32::try_from(text.len()).unwrap_or_default();
    packed.extend_from_slice(&length.to_le_bytes());
    packed.extend_from_slice(&text[..length as usize]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Code;

    #[test]
    fn what_was_packed_comes_back_and_what_is_cut_off_is_refused() {
        let mut packed = Vec::new();
        push_text(&mut packed, b"stone");
        push_text(&mut packed, b"");
        let texts = Unpacked::new(&packed).texts().unwrap();
        assert_eq!(texts, [&b"stone"[..], b""]);
        for end in [1, 3, 8, packed.len() - 1] {
            let failure = Unpacked::new(&packed[..end]).texts().unwrap_err();
            assert_eq!(failure.code(), Code::InvalidArgument, "{end}");
        }
        let mut numbers = Unpacked::new(&[1, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 1, 9]);
        assert_eq!(numbers.number().unwrap(), 1);
        assert_eq!(numbers.long().unwrap(), (1 << 56) + 2);
        assert!(numbers.number().is_err() && !numbers.is_empty());
    }
}
