//! What the log's records say: batches of writes, writes that are logged again, and events.
//!
//! # Layout
//! The first byte of a payload is its tag. Numbers have a fixed size where one is given, else they
//! are varints (`codec`).
//!
//! | tag | payload |
//! |---|---|
//! | 1, batch | tag (1), first sequence number (8), count (4), operations |
//! | 2, relog | tag (1), count (4), operations, each with its sequence number (8) in front |
//! | 3, event | tag (1), sequence number (8), what (1), id of a keyspace, then as below |
//!
//! The operations of a batch are numbered from the first sequence number on.
//!
//! | operation | |
//! |---|---|
//! | kind (1) | number of [`Kind`] |
//! | keyspace | id of the keyspace |
//! | key length | |
//! | value length | only where the kind has a value |
//! | key, value | |
//!
//! The key of a range delete is the first key that is deleted, its value the first one above that
//! is not, or empty for the end of all keys.
//!
//! An event is what the store does to a keyspace outside of the log, for who follows the log
//! ([`KeyspaceEvent`]); a replay passes it over. Strings are their length and bytes.
//!
//! | what | number | then |
//! |---|---|---|
//! | 1, made | the last one before, as it has none | the name |
//! | 2, dropped | its own | the name |
//! | 3, ingested | its own | count of pairs, first key, last key |
//! | 4, void | its own, which a drop or an ingest has used up that failed | |
//! | 5, options | the last one before, as it has none | the options (`keyspace_options`) |
//!
//! A batch is one payload and so one frame: it is replayed whole or not at all. Several batches
//! that are committed together may share a frame, as their numbers follow each other.
//!
//! Tags and kinds are never reused; an unknown one is an error.

use super::codec::{
    MalformedPayload, PayloadReader, VARINT_BYTES_MAX, encode_varint, put_bytes, put_varint,
};
use crate::types::{Kind, SEQ_MAX, Seq};

const TAG_BATCH: u8 = 1;
const TAG_RELOG: u8 = 2;
const TAG_EVENT: u8 = 3;

const EVENT_MADE: u8 = 1;
const EVENT_DROPPED: u8 = 2;
const EVENT_INGESTED: u8 = 3;
const EVENT_VOID: u8 = 4;
const EVENT_OPTIONS: u8 = 5;

/// Bytes of a batch before its first operation.
pub(crate) const BATCH_HEAD_BYTES: usize = 13;

/// Bytes of a relog payload before its first operation.
pub(crate) const RELOG_HEAD_BYTES: usize = 5;

/// Most bytes of an operation that are neither key nor value.
pub(crate) const OP_HEAD_BYTES_MAX: usize = 8 + 1 + 3 * 5;

/// One write, read from a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogOp<'a> {
    /// Its sequence number.
    pub(crate) seq: Seq,
    /// What it does.
    pub(crate) kind: Kind,
    /// Id of the keyspace.
    pub(crate) keyspace: u32,
    /// The key.
    pub(crate) key: &'a [u8],
    /// The value; empty for a kind that has none.
    pub(crate) value: &'a [u8],
}

/// Front of a batch payload; encoded operations follow it.
#[inline]
pub(crate) fn batch_head(first_seq: Seq, count: u32) -> [u8; BATCH_HEAD_BYTES] {
    let [s0, s1, s2, s3, s4, s5, s6, s7] = first_seq.to_le_bytes();
    let [c0, c1, c2, c3] = count.to_le_bytes();
    [TAG_BATCH, s0, s1, s2, s3, s4, s5, s6, s7, c0, c1, c2, c3]
}

/// The bytes of one operation before its key and value, on the stack: the payload of a single put
/// is `batch_head`, `LogOpHead`, key, value, with nothing copied or allocated.
#[derive(Clone, Debug)]
pub(crate) struct LogOpHead {
    bytes: [u8; OP_HEAD_BYTES_MAX],
    len: usize,
}

impl LogOpHead {
    /// Head of an operation of a batch. Lengths are those of key and value.
    ///
    /// # Panics
    /// When a length does not fit 32 bits.
    #[inline]
    pub(crate) fn new(kind: Kind, keyspace: u32, key_len: usize, value_len: usize) -> LogOpHead {
        let mut head = LogOpHead {
            bytes: [0; OP_HEAD_BYTES_MAX],
            len: 0,
        };
        head.push(&[kind as u8]);
        head.push_varint(keyspace);
        head.push_varint(u32::try_from(key_len).expect("a key is shorter than 4 GiB"));
        if has_value(kind) {
            head.push_varint(u32::try_from(value_len).expect("a value is shorter than 4 GiB"));
        }
        head
    }

    #[inline]
    fn push(&mut self, bytes: &[u8]) {
        for byte in bytes {
            if let Some(place) = self.bytes.get_mut(self.len) {
                *place = *byte;
                self.len += 1;
            }
        }
    }

    #[inline]
    fn push_varint(&mut self, number: u32) {
        let mut buffer = [0; VARINT_BYTES_MAX];
        let len = encode_varint(u64::from(number), &mut buffer);
        self.push(buffer.get(..len).unwrap_or_default());
    }

    /// The encoded bytes.
    #[inline]
    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

/// Encoded operations without a head: what a user's batch collects before its sequence numbers are
/// known.
#[derive(Clone, Debug, Default)]
pub(crate) struct BatchEncoder {
    bytes: Vec<u8>,
    count: u32,
    /// How many of them delete.
    deletes: u32,
    /// Their kinds, one bit for each.
    kinds: u8,
}

impl BatchEncoder {
    /// No operations yet, with memory for so many bytes of them.
    pub(crate) fn with_capacity(bytes: usize) -> BatchEncoder {
        BatchEncoder {
            bytes: Vec::with_capacity(bytes),
            ..BatchEncoder::default()
        }
    }

    /// Appends one operation. The value of a kind that has none must be empty.
    pub(crate) fn op(&mut self, kind: Kind, keyspace: u32, key: &[u8], value: &[u8]) {
        debug_assert!(has_value(kind) || value.is_empty(), "{kind:?} has no value");
        let head = LogOpHead::new(kind, keyspace, key.len(), value.len());
        self.bytes.reserve(head.len + key.len() + value.len());
        self.bytes.extend_from_slice(head.as_bytes());
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
        self.count += 1;
        self.deletes += u32::from(kind.is_tombstone());
        self.kinds |= 1 << kind as u8;
    }

    /// Whether there are operations of a kind.
    pub(crate) fn has(&self, kind: Kind) -> bool {
        self.kinds >> kind as u8 & 1 == 1
    }

    /// Whether all operations delete.
    pub(crate) fn only_deletes(&self) -> bool {
        self.deletes == self.count
    }

    /// The encoded operations.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Number of operations.
    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// Whether there is no operation.
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Forgets the operations and keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.count = 0;
        self.deletes = 0;
        self.kinds = 0;
    }

    /// The numbers of the operations' keyspaces.
    pub(crate) fn keyspaces(&self) -> impl Iterator<Item = u32> {
        // Numbers begin at 1.
        let operations = self.ops(1).map_while(Result::ok);
        operations.map(|operation| operation.keyspace)
    }

    /// The operations, numbered from `first_seq` on, which is not 0.
    pub(crate) fn ops(&self, first_seq: Seq) -> LogOps<'_> {
        LogOps {
            reader: PayloadReader::new(&self.bytes, 0),
            left: self.count,
            numbers: Numbers::From(first_seq),
        }
    }
}

/// A payload of writes that are logged again under their old sequence numbers.
#[derive(Clone, Debug)]
pub(crate) struct RelogEncoder {
    payload: Vec<u8>,
    count: u32,
}

impl RelogEncoder {
    /// A payload without operations.
    pub(crate) fn new() -> RelogEncoder {
        RelogEncoder {
            payload: vec![TAG_RELOG, 0, 0, 0, 0],
            count: 0,
        }
    }

    /// Appends one operation with its sequence number.
    pub(crate) fn op(&mut self, seq: Seq, kind: Kind, keyspace: u32, key: &[u8], value: &[u8]) {
        let head = LogOpHead::new(kind, keyspace, key.len(), value.len());
        self.payload.extend(seq.to_le_bytes());
        self.payload.extend_from_slice(head.as_bytes());
        self.payload.extend_from_slice(key);
        self.payload.extend_from_slice(value);
        self.count += 1;
        if let Some(count) = self.payload.get_mut(1..RELOG_HEAD_BYTES) {
            count.copy_from_slice(&self.count.to_le_bytes());
        }
    }

    /// The whole payload.
    pub(crate) fn payload(&self) -> &[u8] {
        &self.payload
    }

    /// Whether there is no operation.
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }
}

/// What the store does to a keyspace outside of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyspaceEvent<'a> {
    /// A keyspace was made.
    Made { name: &'a str },
    /// A keyspace was dropped.
    Dropped { name: &'a str },
    /// Sorted pairs became part of a keyspace, past the log.
    Ingested {
        pairs: u64,
        first: &'a [u8],
        last: &'a [u8],
    },
    /// Nothing; a number was used up.
    Void,
    /// A keyspace has these options of its own from now on, encoded.
    Options { options: &'a [u8] },
}

impl<'a> KeyspaceEvent<'a> {
    /// The payload that tells it, of a keyspace.
    pub(crate) fn encode(&self, seq: Seq, keyspace: u32) -> Vec<u8> {
        let mut payload = vec![TAG_EVENT];
        payload.extend(seq.to_le_bytes());
        payload.push(match self {
            KeyspaceEvent::Made { .. } => EVENT_MADE,
            KeyspaceEvent::Dropped { .. } => EVENT_DROPPED,
            KeyspaceEvent::Ingested { .. } => EVENT_INGESTED,
            KeyspaceEvent::Void => EVENT_VOID,
            KeyspaceEvent::Options { .. } => EVENT_OPTIONS,
        });
        put_varint(&mut payload, u64::from(keyspace));
        match self {
            KeyspaceEvent::Made { name } | KeyspaceEvent::Dropped { name } => {
                put_bytes(&mut payload, name.as_bytes());
            }
            KeyspaceEvent::Ingested { pairs, first, last } => {
                put_varint(&mut payload, *pairs);
                put_bytes(&mut payload, first);
                put_bytes(&mut payload, last);
            }
            KeyspaceEvent::Options { options } => put_bytes(&mut payload, options),
            KeyspaceEvent::Void => {}
        }
        payload
    }

    /// Whether it has a number of its own; else it has the last one before.
    pub(crate) fn is_numbered(&self) -> bool {
        !matches!(
            self,
            KeyspaceEvent::Made { .. } | KeyspaceEvent::Options { .. }
        )
    }

    /// Reads what follows the tag: number, keyspace and event.
    fn decode(
        reader: &mut PayloadReader<'a>,
    ) -> Result<(Seq, u32, KeyspaceEvent<'a>), MalformedPayload> {
        let seq = reader.u64()?;
        if seq > SEQ_MAX {
            return Err(reader.malformed("a sequence number is out of range"));
        }
        let what = reader.u8()?;
        let keyspace = reader.varint_u32()?;
        let event = match what {
            EVENT_MADE | EVENT_DROPPED => {
                let name = str::from_utf8(reader.bytes()?)
                    .map_err(|_| reader.malformed("the name of a keyspace is not UTF-8"))?;
                match what {
                    EVENT_MADE => KeyspaceEvent::Made { name },
                    _ => KeyspaceEvent::Dropped { name },
                }
            }
            EVENT_INGESTED => KeyspaceEvent::Ingested {
                pairs: reader.varint()?,
                first: reader.bytes()?,
                last: reader.bytes()?,
            },
            EVENT_VOID => KeyspaceEvent::Void,
            EVENT_OPTIONS => KeyspaceEvent::Options {
                options: reader.bytes()?,
            },
            _ => return Err(reader.malformed("the kind of an event is unknown")),
        };
        match reader.is_empty() {
            true => Ok((seq, keyspace, event)),
            false => Err(reader.malformed("bytes follow an event")),
        }
    }
}

/// What a record tells those who follow the log.
#[derive(Clone, Debug)]
pub(crate) enum LogEntry<'a> {
    /// Writes that were committed together, with the number of the first and their count.
    Batch(Seq, u32, LogOps<'a>),
    /// Nothing new.
    Again,
    /// What became of a keyspace, with its number.
    Event(Seq, u32, KeyspaceEvent<'a>),
}

impl<'a> LogEntry<'a> {
    /// Reads a payload.
    pub(crate) fn read(payload: &'a [u8]) -> Result<LogEntry<'a>, MalformedPayload> {
        let mut reader = PayloadReader::new(payload, 0);
        if reader.u8()? == TAG_EVENT {
            let (seq, keyspace, event) = KeyspaceEvent::decode(&mut reader)?;
            return Ok(LogEntry::Event(seq, keyspace, event));
        }
        let ops = decode(payload)?;
        Ok(match ops.numbers {
            Numbers::From(first) => LogEntry::Batch(first, ops.left, ops),
            Numbers::Own => LogEntry::Again,
        })
    }
}

/// The operations of a payload. After an error the iteration ends.
#[derive(Clone, Debug)]
pub(crate) struct LogOps<'a> {
    reader: PayloadReader<'a>,
    left: u32,
    numbers: Numbers,
}

/// Where the sequence numbers come from.
#[derive(Clone, Copy, Debug)]
enum Numbers {
    /// The next operation has this number.
    From(Seq),
    /// Each operation has its own in front.
    Own,
}

/// Decodes the head of a payload; the iterator decodes the operations.
pub(crate) fn decode(payload: &[u8]) -> Result<LogOps<'_>, MalformedPayload> {
    let mut reader = PayloadReader::new(payload, 0);
    match reader.u8()? {
        TAG_BATCH => {
            let first = reader.u64()?;
            let left = reader.u32()?;
            let last = first.checked_add(u64::from(left));
            if first == 0 || last.is_none_or(|last| last > SEQ_MAX + 1) {
                return Err(reader.malformed("the sequence numbers are out of range"));
            }
            Ok(LogOps {
                reader,
                left,
                numbers: Numbers::From(first),
            })
        }
        TAG_RELOG => {
            let left = reader.u32()?;
            Ok(LogOps {
                reader,
                left,
                numbers: Numbers::Own,
            })
        }
        TAG_EVENT => {
            KeyspaceEvent::decode(&mut reader)?;
            Ok(LogOps {
                reader,
                left: 0,
                numbers: Numbers::Own,
            })
        }
        _ => Err(reader.malformed("the kind of the log record is unknown to this version")),
    }
}

impl<'a> LogOps<'a> {
    fn decode_next(&mut self) -> Result<LogOp<'a>, MalformedPayload> {
        let seq = match &mut self.numbers {
            Numbers::From(next) => {
                *next += 1;
                *next - 1
            }
            Numbers::Own => self.reader.u64()?,
        };
        if seq == 0 || seq > SEQ_MAX {
            return Err(self.reader.malformed("a sequence number is out of range"));
        }
        let Some(kind) = Kind::from_u8(self.reader.u8()?) else {
            return Err(self.reader.malformed("the kind of a write is unknown"));
        };
        let keyspace = self.reader.varint_u32()?;
        let key_len = self.reader.varint_u32()?;
        let value_len = if has_value(kind) {
            self.reader.varint_u32()?
        } else {
            0
        };
        let key = self.reader.take(key_len as usize)?;
        let value = self.reader.take(value_len as usize)?;
        Ok(LogOp {
            seq,
            kind,
            keyspace,
            key,
            value,
        })
    }
}

impl<'a> Iterator for LogOps<'a> {
    type Item = Result<LogOp<'a>, MalformedPayload>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = if self.left > 0 {
            self.left -= 1;
            self.decode_next()
        } else if self.reader.is_empty() {
            return None;
        } else {
            Err(self.reader.malformed("bytes follow the last operation"))
        };
        if next.is_err() {
            self.left = 0;
            self.reader = PayloadReader::new(&[], self.reader.at());
        }
        Some(next)
    }
}

/// Whether entries of a kind have a value on media.
#[inline]
fn has_value(kind: Kind) -> bool {
    match kind {
        Kind::Delete => false,
        Kind::Put | Kind::DeleteRange | Kind::PutExpiring | Kind::Merge | Kind::Operand => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn batch(first_seq: Seq, ops: &BatchEncoder) -> Vec<u8> {
        let mut payload = batch_head(first_seq, ops.count()).to_vec();
        payload.extend_from_slice(ops.bytes());
        payload
    }

    #[test]
    fn payloads_have_these_bytes() {
        let mut ops = BatchEncoder::default();
        ops.op(Kind::Put, 300, b"key", b"value");
        ops.op(Kind::Delete, 1, b"", b"");
        ops.op(Kind::DeleteRange, 1, b"a", b"bc");
        let golden = b"\x01\x07\0\0\0\0\0\0\0\x03\0\0\0\
            \x01\xac\x02\x03\x05keyvalue\
            \0\x01\0\
            \x02\x01\x01\x02abc";
        assert_eq!(batch(7, &ops), golden);

        let mut relog = RelogEncoder::new();
        relog.op(9, Kind::Put, 1, b"k", b"");
        let golden = b"\x02\x01\0\0\0\x09\0\0\0\0\0\0\0\x01\x01\x01\0k";
        assert_eq!(relog.payload(), golden);
    }

    #[test]
    fn what_is_not_known_or_out_of_range_is_refused() {
        assert!(decode(&[]).is_err());
        assert!(decode(&[4, 0, 0, 0, 0]).is_err());
        assert!(decode(&batch_head(0, 1)).is_err());
        assert!(decode(&batch_head(SEQ_MAX, 2)).is_err());
        assert!(decode(&batch_head(SEQ_MAX, 1)).is_ok());
        let mut payload = batch_head(1, 1).to_vec();
        payload.extend([6, 0, 0, 0]);
        assert!(decode(&payload).unwrap().next().unwrap().is_err(), "kind 6");
        payload[13] = Kind::Delete as u8;
        let mut ops = decode(&payload).unwrap();
        assert!(ops.next().unwrap().is_ok());
        assert_eq!(ops.next().unwrap().unwrap_err().at, 16, "one byte too many");
        assert!(ops.next().is_none());
    }

    #[test]
    fn events_have_these_bytes_and_are_no_operations() {
        let made = KeyspaceEvent::Made { name: "stones" };
        let dropped = KeyspaceEvent::Dropped { name: "" };
        let ingested = KeyspaceEvent::Ingested {
            pairs: 300,
            first: b"a",
            last: b"bc",
        };
        let options = KeyspaceEvent::Options { options: b"xyz" };
        let golden: [(KeyspaceEvent<'_>, &[u8]); 5] = [
            (KeyspaceEvent::Void, b"\x03\x07\0\0\0\0\0\0\0\x04\xac\x02"),
            (made, b"\x03\x07\0\0\0\0\0\0\0\x01\xac\x02\x06stones"),
            (dropped, b"\x03\x07\0\0\0\0\0\0\0\x02\xac\x02\0"),
            (options, b"\x03\x07\0\0\0\0\0\0\0\x05\xac\x02\x03xyz"),
            (
                ingested,
                b"\x03\x07\0\0\0\0\0\0\0\x03\xac\x02\xac\x02\x01a\x02bc",
            ),
        ];
        for (event, bytes) in golden {
            let payload = event.encode(7, 300);
            assert_eq!(payload, bytes, "{event:?}");
            assert_eq!(
                decode(&payload).unwrap().count(),
                0,
                "a replay finds no write"
            );
            match LogEntry::read(&payload).unwrap() {
                LogEntry::Event(7, 300, found) => assert_eq!(found, event),
                other => panic!("{other:?}"),
            }
            for len in 0..payload.len() {
                assert!(decode(&payload[..len]).is_err(), "cut to {len}");
            }
            assert!(decode(&[&payload[..], &[0]].concat()).is_err());
        }
        let mut unknown = dropped.encode(7, 300);
        unknown[9] = 6;
        assert!(decode(&unknown).is_err());
    }

    type Model = Vec<(Kind, u32, Vec<u8>, Vec<u8>)>;

    fn model() -> impl Strategy<Value = Model> {
        let op = (
            any::<bool>(),
            any::<u32>(),
            any::<Vec<u8>>(),
            any::<Vec<u8>>(),
        );
        let op = op.prop_map(|(put, keyspace, key, value)| match put {
            true => (Kind::Put, keyspace, key, value),
            false => (Kind::Delete, keyspace, key, Vec::new()),
        });
        prop::collection::vec(op, 0..8)
    }

    proptest! {
        #[test]
        fn operations_come_back(ops in model(), first in 1..SEQ_MAX / 2) {
            let mut encoder = BatchEncoder::default();
            let mut relog = RelogEncoder::new();
            for (i, (kind, keyspace, key, value)) in ops.iter().enumerate() {
                encoder.op(*kind, *keyspace, key, value);
                relog.op(first + i as u64, *kind, *keyspace, key, value);
            }
            let expected: Vec<_> = ops
                .iter()
                .zip(first..)
                .map(|((kind, keyspace, key, value), seq)| {
                    Ok(LogOp { seq, kind: *kind, keyspace: *keyspace, key, value })
                })
                .collect();
            let payload = batch(first, &encoder);
            prop_assert_eq!(decode(&payload).unwrap().collect::<Vec<_>>(), expected.clone());
            prop_assert_eq!(encoder.ops(first).collect::<Vec<_>>(), expected.clone());
            prop_assert_eq!(decode(relog.payload()).unwrap().collect::<Vec<_>>(), expected);
        }

        #[test]
        fn damaged_payloads_end_in_an_error_or_in_bytes_of_the_payload(
            ops in model(),
            flip in any::<prop::sample::Index>(),
            cut in any::<prop::sample::Index>(),
            bit in 0..8u8,
        ) {
            let mut encoder = BatchEncoder::default();
            ops.iter().for_each(|(kind, keyspace, key, value)| {
                encoder.op(*kind, *keyspace, key, value);
            });
            let mut payload = batch(1, &encoder);
            let at = flip.index(payload.len());
            payload[at] ^= 1 << bit;
            payload.truncate(cut.index(payload.len() + 1));
            if let Ok(ops) = decode(&payload) {
                let read: Vec<_> = ops.collect();
                let sizes = read.iter().flatten().map(|op| op.key.len() + op.value.len());
                let bytes: usize = sizes.sum();
                prop_assert!(bytes <= payload.len());
                let errors = read.iter().filter(|op| op.is_err()).count();
                prop_assert!(errors <= 1);
                prop_assert!(errors == 0 || read.last().unwrap().is_err());
            }
        }

        #[test]
        fn a_cut_batch_is_never_whole(ops in model(), cut in any::<prop::sample::Index>()) {
            let mut encoder = BatchEncoder::default();
            ops.iter().for_each(|(kind, keyspace, key, value)| {
                encoder.op(*kind, *keyspace, key, value);
            });
            let payload = batch(1, &encoder);
            let cut = &payload[..cut.index(payload.len())];
            prop_assert!(decode(cut).map_or(true, |mut ops| ops.any(|op| op.is_err())));
        }

        #[test]
        fn random_payloads_do_not_panic(tag in 0..4u8, mut payload: Vec<u8>) {
            payload.insert(0, tag);
            if let Ok(ops) = decode(&payload) {
                ops.for_each(drop);
            }
        }
    }
}
