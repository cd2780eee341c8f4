//! Requests and answers as bytes, in the order in which they are asked.
//!
//! | what | bytes |
//! |---|---|
//! | text | length `u32`, bytes |
//! | keys | texts |
//! | an operation | kind `u8`: 0 is a put, of two texts, key and value; 1 is a delete, of one |
//! | a batch | kind 2, the number of operations `u32`, operations |
//! | an answer | length `i32`, bytes; -1 for none; -2 for a failure: two texts, code and sentence |
//!
//! Numbers are little-endian. The other side is `packed.js`.
//!
//! # Invariants
//! - What is asked comes from JavaScript: reading it never panics, whatever it is.

use gabion_bindings::{Failure, Result};

use crate::failures::level_code;

/// The most that one buffer of answers holds. What does not fit is answered by a failure.
const ANSWERS_BYTES_MAX: usize = i32::MAX as usize;

const PUT: u8 = 0;
const DELETE: u8 = 1;
const BATCH: u8 = 2;

/// Requests that are read one after the other.
pub struct Requests<'a> {
    rest: &'a [u8],
}

/// A put or a delete.
pub enum Operation<'a> {
    /// Key and value.
    Put(&'a [u8], &'a [u8]),
    /// A key.
    Delete(&'a [u8]),
}

/// What is written as one.
pub enum Unit<'a> {
    /// A single operation.
    Single(Operation<'a>),
    /// The number of operations that follow and take effect together.
    Batch(u32),
}

impl<'a> Requests<'a> {
    /// The requests of a buffer.
    pub fn new(packed: &'a [u8]) -> Requests<'a> {
        Requests { rest: packed }
    }

    /// Whether there is none left.
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or_else(cut)?;
        self.rest = rest;
        Ok(taken)
    }

    fn number(&mut self) -> Result<u32> {
        let bytes = self.take(4)?.try_into().map_err(|_| cut())?;
        Ok(u32::from_le_bytes(bytes))
    }

    /// The next text.
    ///
    /// # Errors
    /// [`Failure::Refused`] where there is none.
    pub fn text(&mut self) -> Result<&'a [u8]> {
        let length = self.number()?;
        self.take(length as usize)
    }

    /// All texts.
    ///
    /// # Errors
    /// As [`Requests::text`].
    pub fn texts(mut self) -> Result<Vec<&'a [u8]>> {
        let mut texts = Vec::new();
        while !self.is_empty() {
            texts.push(self.text()?);
        }
        Ok(texts)
    }

    /// The next unit.
    ///
    /// # Errors
    /// As [`Requests::text`].
    pub fn unit(&mut self) -> Result<Unit<'a>> {
        Ok(match self.take(1)? {
            [PUT] => Unit::Single(Operation::Put(self.text()?, self.text()?)),
            [DELETE] => Unit::Single(Operation::Delete(self.text()?)),
            [BATCH] => Unit::Batch(self.number()?),
            _ => return Err(cut()),
        })
    }

    /// The operations of a batch.
    ///
    /// # Errors
    /// As [`Requests::text`].
    pub fn operations(&mut self, count: u32) -> Result<Vec<Operation<'a>>> {
        let operation = |_| match self.unit()? {
            Unit::Single(operation) => Ok(operation),
            Unit::Batch(_) => Err(cut()),
        };
        (0..count).map(operation).collect()
    }
}

fn cut() -> Failure {
    Failure::argument("a request is cut off or of no known kind")
}

/// Adds a text. No text of a store has the length of a number of 32 bits.
pub(crate) fn push_text(packed: &mut Vec<u8>, text: &[u8]) {
    let length = u32::try_from(text.len()).unwrap_or_default();
    packed.extend_from_slice(&length.to_le_bytes());
    packed.extend_from_slice(&text[..length as usize]);
}

/// Answers, one after the other.
#[derive(Default)]
pub struct Answers {
    packed: Vec<u8>,
}

impl Answers {
    /// Answers to some requests, with room for small ones.
    pub fn of(count: usize) -> Answers {
        Answers {
            packed: Vec::with_capacity(count.min(1 << 16) * 64),
        }
    }

    /// How many bytes there are.
    pub fn len(&self) -> usize {
        self.packed.len()
    }

    /// Whether there is no answer.
    pub fn is_empty(&self) -> bool {
        self.packed.is_empty()
    }

    /// Answers with bytes, or with none.
    pub fn add(&mut self, answer: Option<&[u8]>) {
        match answer {
            None => self.packed.extend_from_slice(&(-1i32).to_le_bytes()),
            Some(bytes) if self.packed.len() + bytes.len() + 4 <= ANSWERS_BYTES_MAX => {
                push_text(&mut self.packed, bytes);
            }
            Some(bytes) => self.add_failure(&Failure::Refused(
                gabion_bindings::Code::Limit,
                format!(
                    "the answers to what was asked at once have more than {ANSWERS_BYTES_MAX} \
                     bytes, the one that did not fit has {}: ask for less at once",
                    bytes.len()
                ),
            )),
        }
    }

    /// Answers with a failure.
    pub fn add_failure(&mut self, failure: &Failure) {
        self.packed.extend_from_slice(&(-2i32).to_le_bytes());
        push_text(&mut self.packed, level_code(failure.code()).as_bytes());
        push_text(&mut self.packed, failure.to_string().as_bytes());
    }

    /// The bytes.
    pub fn into_bytes(self) -> Vec<u8> {
        self.packed
    }
}
