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

use gabion_bindings::packed::{Unpacked, cut, push_text};
use gabion_bindings::{Failure, Result};

use crate::failures::level_code;

/// The most that one buffer of answers holds. What does not fit is answered by a failure.
const ANSWERS_BYTES_MAX: usize = i32::MAX as usize;

const PUT: u8 = 0;
const DELETE: u8 = 1;
const BATCH: u8 = 2;

/// Requests that are read one after the other.
pub struct Requests<'a> {
    rest: Unpacked<'a>,
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
        Requests {
            rest: Unpacked::new(packed),
        }
    }

    /// Whether there is none left.
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The next unit.
    ///
    /// # Errors
    /// As [`Unpacked::take`].
    pub fn unit(&mut self) -> Result<Unit<'a>> {
        Ok(match self.rest.take(1)? {
            [PUT] => Unit::Single(Operation::Put(self.rest.text()?, self.rest.text()?)),
            [DELETE] => Unit::Single(Operation::Delete(self.rest.text()?)),
            [BATCH] => Unit::Batch(self.rest.number()?),
            _ => return Err(cut()),
        })
    }

    /// The operations of a batch.
    ///
    /// # Errors
    /// As [`Requests::unit`].
    pub fn operations(&mut self, count: u32) -> Result<Vec<Operation<'a>>> {
        let operation = |_| match self.unit()? {
            Unit::Single(operation) => Ok(operation),
            Unit::Batch(_) => Err(cut()),
        };
        (0..count).map(operation).collect()
    }
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
                    "the replies of one request have more than {ANSWERS_BYTES_MAX} bytes, and the \
                     one that did not fit has {}; ask for less at once",
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
