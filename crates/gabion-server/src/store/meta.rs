//! The record of a key: type, expiry, and the value if it is small.
//!
//! # Layout
//! | offset | size | what |
//! |---|---|---|
//! | 0 | 1 | type ([`KeyType`]) in the low four bits, version of the format in the others |
//! | 1 | 1 | flags: 1 expires, 2 has elements elsewhere |
//! | 2 | 8, if it expires | the moment, in milliseconds since 1970, little-endian |
//! | then | 8, if it has elements | the number that its elements are kept under, little-endian |
//! | then | rest | the body: a string's value; what the family of another type keeps there |
//!
//! `docs/server-format.md` has all of it, with examples.

use gabion::Slice;

use crate::fault::{Fault, Result};

/// The version of the format that this program writes and reads.
const FORMAT: u8 = 1;

const EXPIRES: u8 = 1;
const HAS_ELEMENTS: u8 = 2;

/// The types of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum KeyType {
    /// Bytes.
    String = 0,
    /// A list.
    List = 1,
    /// A set.
    Set = 2,
    /// A sorted set.
    SortedSet = 3,
    /// A hash.
    Hash = 4,
    /// A stream.
    Stream = 5,
}

impl KeyType {
    /// The name that `TYPE` answers.
    pub(crate) fn name(self) -> &'static str {
        match self {
            KeyType::String => "string",
            KeyType::List => "list",
            KeyType::Set => "set",
            KeyType::SortedSet => "zset",
            KeyType::Hash => "hash",
            KeyType::Stream => "stream",
        }
    }

    fn of(number: u8) -> Option<KeyType> {
        Some(match number {
            0 => KeyType::String,
            1 => KeyType::List,
            2 => KeyType::Set,
            3 => KeyType::SortedSet,
            4 => KeyType::Hash,
            5 => KeyType::Stream,
            _ => return None,
        })
    }
}

/// The head of a record, before the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordHead {
    /// The type.
    pub(crate) kind: KeyType,
    /// When the key expires, in milliseconds since 1970.
    pub(crate) expires_ms: Option<u64>,
    /// The number that its elements are kept under, if it has any outside of the record.
    pub(crate) elements: Option<u64>,
}

impl RecordHead {
    /// A string that does not expire.
    pub(crate) const STRING: RecordHead = RecordHead {
        kind: KeyType::String,
        expires_ms: None,
        elements: None,
    };

    /// The same, with another moment.
    pub(crate) fn expiring(self, expires_ms: Option<u64>) -> RecordHead {
        RecordHead { expires_ms, ..self }
    }

    /// Appends the head to `record`.
    pub(crate) fn encode(self, record: &mut Vec<u8>) {
        let mut flags = 0;
        if self.expires_ms.is_some() {
            flags |= EXPIRES;
        }
        if self.elements.is_some() {
            flags |= HAS_ELEMENTS;
        }
        record.extend_from_slice(&[FORMAT << 4 | self.kind as u8, flags]);
        for number in [self.expires_ms, self.elements].into_iter().flatten() {
            record.extend_from_slice(&number.to_le_bytes());
        }
    }

    /// The head of a record, and where its body begins.
    fn decode(record: &[u8]) -> Option<(RecordHead, usize)> {
        let [first, flags, ..] = *record else {
            return None;
        };
        if first >> 4 != FORMAT || flags & !(EXPIRES | HAS_ELEMENTS) != 0 {
            return None;
        }
        let mut at = 2;
        let mut next = |has: bool| {
            if !has {
                return Some(None);
            }
            let number = record.get(at..)?.first_chunk()?;
            at += size_of::<u64>();
            Some(Some(u64::from_le_bytes(*number)))
        };
        let head = RecordHead {
            kind: KeyType::of(first & 0xf)?,
            expires_ms: next(flags & EXPIRES != 0)?,
            elements: next(flags & HAS_ELEMENTS != 0)?,
        };
        Some((head, at))
    }
}

/// The record of a key, as read from the store.
#[derive(Clone, Debug)]
pub(crate) struct KeyRecord {
    /// The head of a record, before the body.
    pub(crate) head: RecordHead,
    record: Slice,
    body: usize,
}

impl KeyRecord {
    /// Reads a record.
    ///
    /// # Errors
    /// When it is none that this program has written.
    pub(crate) fn read(record: Slice) -> Result<KeyRecord> {
        match RecordHead::decode(&record) {
            Some((head, body)) => Ok(KeyRecord { head, record, body }),
            None => Err(Fault::line(
                "ERR the record of the key is not of this server's format: it was written by a \
                 newer one, or by another program",
            )),
        }
    }

    /// A string's value; what the family of another type keeps there.
    pub(crate) fn body(&self) -> &[u8] {
        self.record.get(self.body..).unwrap_or_default()
    }

    /// The body of a string.
    ///
    /// # Errors
    /// `WRONGTYPE` for a key of another type.
    pub(crate) fn string(&self) -> Result<&[u8]> {
        self.expect(KeyType::String)?;
        Ok(self.body())
    }

    /// An error unless the key has that type.
    ///
    /// # Errors
    /// `WRONGTYPE`.
    pub(crate) fn expect(&self, kind: KeyType) -> Result<()> {
        match self.head.kind == kind {
            true => Ok(()),
            false => Err(Fault::WRONG_TYPE),
        }
    }

    /// Whether the key is there at a moment.
    pub(crate) fn is_live(&self, now_ms: u64) -> bool {
        self.head.expires_ms.is_none_or(|expires| expires > now_ms)
    }
}

/// The effect of a save on a collection's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SaveOutcome {
    /// Nothing has changed.
    Same,
    /// It has changed.
    Changed,
    /// It was not there before.
    New,
    /// It is not there any more.
    Removed,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_read_as_it_was_written() {
        for (head, bytes) in [
            (RecordHead::STRING, &[0x10, 0][..]),
            (
                RecordHead::STRING.expiring(Some(0x0102)),
                &[0x10, 1, 2, 1, 0, 0, 0, 0, 0, 0],
            ),
            (
                RecordHead {
                    kind: KeyType::Hash,
                    expires_ms: Some(1),
                    elements: Some(7),
                },
                &[0x14, 3, 1, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0],
            ),
        ] {
            let mut record = Vec::new();
            head.encode(&mut record);
            assert_eq!(record, bytes);
            record.extend_from_slice(b"body");
            let meta = KeyRecord::read(Slice::new(&record)).unwrap();
            assert_eq!((meta.head, meta.body()), (head, &b"body"[..]));
        }
    }

    #[test]
    fn other_records_are_refused() {
        for record in [
            &b""[..],
            b"\x10",
            b"\x20\0",
            b"\x1f\0",
            b"\x10\x04",
            b"\x10\x01abc",
        ] {
            assert!(KeyRecord::read(Slice::new(record)).is_err(), "{record:?}");
        }
    }
}
