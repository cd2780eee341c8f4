//! Values as `DUMP` and `RESTORE` carry them.
//!
//! # Layout
//! A byte for the type, the value, the version of the format (2, little-endian), and a checksum of
//! all before (8, little-endian: [`checksum`]).

use super::piece::{
    HASH, HASH_METADATA, LIST, Refused, Result, SET, SORTED_SET_2, STREAM_2, STRING, Take, Value,
};
use super::read::Reader;
use super::streams::{self, Version};
use super::write::{push_length, push_string};
use super::{checksum, value};
use crate::store::meta::KeyType;

/// The version that is written, that of Redis 7.0; and that of hashes with fields that expire.
pub(super) const VERSION: u16 = 10;
const VERSION_OF_MOMENTS: u16 = 12;

/// The newest version that is read.
const VERSION_MAX: u16 = 12;

/// Bytes behind the value.
const FOOT_BYTES: usize = 10;

/// The payload of a value.
pub(crate) fn write(value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    let mut version = VERSION;
    match value {
        Value::String(bytes) => {
            out.push(STRING);
            push_string(&mut out, bytes);
        }
        Value::List(elements) | Value::Set(elements) => {
            out.push(match value {
                Value::List(_) => LIST,
                _ => SET,
            });
            push_length(&mut out, elements.len() as u64);
            for element in elements {
                push_string(&mut out, element);
            }
        }
        Value::SortedSet(members) => {
            out.push(SORTED_SET_2);
            push_length(&mut out, members.len() as u64);
            for (member, score) in members {
                push_string(&mut out, member);
                out.extend_from_slice(&score.to_le_bytes());
            }
        }
        Value::Stream(stream) => {
            out.push(STREAM_2);
            streams::write(&mut out, stream, Version::Two);
        }
        Value::Hash(fields) => {
            let first = fields.iter().filter_map(|(_, _, moment)| *moment).min();
            out.push(if first.is_some() { HASH_METADATA } else { HASH });
            if let Some(first) = first {
                version = VERSION_OF_MOMENTS;
                out.extend_from_slice(&first.to_le_bytes());
            }
            push_length(&mut out, fields.len() as u64);
            for (field, value, moment) in fields {
                if let Some(first) = first {
                    push_length(&mut out, moment.map_or(0, |moment| moment - first + 1));
                }
                push_string(&mut out, field);
                push_string(&mut out, value);
            }
        }
    }
    close(out, version)
}

/// Adds the foot.
pub(super) fn close(mut out: Vec<u8>, version: u16) -> Vec<u8> {
    out.extend_from_slice(&version.to_le_bytes());
    let sum = checksum::add(0, &out);
    out.extend_from_slice(&sum.to_le_bytes());
    out
}

/// What stands in front of a foot that fits.
///
/// # Errors
/// When it does not fit.
pub(crate) fn open(payload: &[u8]) -> Result<&[u8]> {
    let end = payload.len().checked_sub(FOOT_BYTES).ok_or(Refused::Foot)?;
    let (value, foot) = payload.split_at(end);
    let (version, sum) = foot.split_first_chunk().ok_or(Refused::Foot)?;
    let sum = sum.first_chunk().map(|sum| u64::from_le_bytes(*sum));
    // A checksum of 0 says that there is none.
    let is_whole = sum == Some(0) || sum == Some(checksum::add(0, &payload[..end + 2]));
    if u16::from_le_bytes(*version) > VERSION_MAX || !is_whole {
        return Err(Refused::Foot);
    }
    Ok(value)
}

/// The type of an opened payload's value.
pub(crate) fn kind(value: &[u8]) -> Result<KeyType> {
    value::kind(*value.first().ok_or(Refused::Cut)?)
}

/// Gives away the pieces of an opened payload's value.
///
/// # Errors
/// When it is none; and what `take` says.
pub(crate) fn read(value: &[u8], take: Take<'_>) -> Result<()> {
    let mut reader = Reader::new(value);
    let form = reader.byte()?;
    value::read(&mut reader, form, take)?;
    match reader.is_empty() {
        true => Ok(()),
        false => Err(Refused::Broken("bytes stand behind the value")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::piece::*;
    use super::*;
    use crate::store::stream::{ConsumerGroup, GroupConsumer, PendingEntry, StreamEntry, StreamId};

    /// The value of a payload, put together.
    fn collected(payload: &[u8]) -> Result<Value> {
        let value = open(payload)?;
        let mut whole = match kind(value)? {
            KeyType::String => Value::String(Vec::new()),
            KeyType::List => Value::List(Vec::new()),
            KeyType::Set => Value::Set(Vec::new()),
            KeyType::SortedSet => Value::SortedSet(Vec::new()),
            KeyType::Hash => Value::Hash(Vec::new()),
            KeyType::Stream => Value::Stream(StreamValue::default()),
        };
        read(value, &mut |piece| {
            match (&mut whole, piece) {
                (Value::String(bytes), Piece::String(all)) => bytes.extend_from_slice(all),
                (Value::List(elements), Piece::Element(element)) => elements.push(element.to_vec()),
                (Value::Set(members), Piece::Member(member)) => members.push(member.to_vec()),
                (Value::SortedSet(members), Piece::Scored(member, score)) => {
                    members.push((member.to_vec(), score));
                }
                (Value::Hash(fields), Piece::Field(field, value, moment)) => {
                    fields.push((field.to_vec(), value.to_vec(), moment));
                }
                (Value::Stream(stream), piece) => collect(stream, piece),
                (whole, piece) => panic!("{piece:?} of {whole:?}"),
            }
            Ok(())
        })?;
        Ok(whole)
    }

    fn collect(stream: &mut StreamValue, piece: Piece<'_>) {
        let group = stream.groups.last_mut();
        match (group, piece) {
            (_, Piece::Entry(id, items)) => stream.entries.push(StreamEntry {
                id,
                fields: items.iter().map(|item| item.to_vec()).collect(),
            }),
            (_, Piece::Ends(ends)) => stream.ends = ends,
            (_, Piece::Group(name, last, HasRead::Counted(read), pending)) => {
                let group = ConsumerGroup {
                    last,
                    read,
                    pending,
                };
                let group = GroupValue {
                    group,
                    ..GroupValue::default()
                };
                stream.groups.push((name.to_vec(), group));
            }
            (Some((of, group)), Piece::Consumer(name, consumer, known)) if *of == name => {
                group.consumers.push((consumer.to_vec(), known));
            }
            (Some((of, group)), Piece::Pending(name, id, pending)) if *of == name => {
                group.pendings.push((id, pending.clone()));
                group.pendings.sort_by_key(|(id, _)| *id);
            }
            (group, piece) => panic!("{piece:?} of {group:?}"),
        }
    }

    fn id(ms: u64, seq: u64) -> StreamId {
        StreamId { ms, seq }
    }

    fn pending(delivered_ms: u64, deliveries: u64, consumer: &str) -> PendingEntry {
        PendingEntry {
            delivered_ms,
            deliveries,
            consumer: consumer.as_bytes().to_vec(),
        }
    }

    /// A stream of so many entries, with two groups.
    fn stream(count: u64) -> StreamValue {
        let entry = |number: u64| StreamEntry {
            // Numbers that go back with a later millisecond.
            id: id(5 + number / 3, 900 - number),
            fields: (0..2 * (1 + number % 3))
                .map(|field| format!("{}", field * number * 1_000).into_bytes())
                .collect(),
        };
        let entries = (0..count).rev().map(entry);
        let mut entries: Vec<_> = entries.collect();
        entries.sort_by_key(|entry| entry.id);
        let last = entries.last().map_or(id(9, 9), |entry| entry.id);
        let consumer = |seen_ms, pending| GroupConsumer { seen_ms, pending };
        let read = GroupValue {
            group: ConsumerGroup {
                last,
                read: Some(count),
                pending: 3,
            },
            pendings: vec![
                (id(5, 1), pending(1_700_000_000_000, 1, "one")),
                (id(5, 2), pending(1_700_000_000_001, 300, "two")),
                (id(6, 0), pending(7, 2, "one")),
            ],
            consumers: vec![
                (b"one".to_vec(), consumer(1_700_000_000_000, 2)),
                (b"two".to_vec(), consumer(12, 1)),
                (b"idle".to_vec(), consumer(0, 0)),
            ],
        };
        StreamValue {
            entries,
            ends: Ends {
                last,
                deleted: id(4, u64::MAX),
                added: count + 17,
            },
            groups: vec![
                (b"new".to_vec(), GroupValue::default()),
                (b"read".to_vec(), read),
            ],
        }
    }

    #[test]
    fn values_are_read_as_they_were_written() {
        let long = vec![b'x'; 70_000];
        for value in [
            Value::String(Vec::new()),
            Value::String(long.clone()),
            Value::List(vec![b"a".to_vec(); 100]),
            Value::List(vec![long; 2]),
            Value::Set(vec![b"a".to_vec(), vec![b'y'; 64]]),
            Value::SortedSet(vec![(b"a".to_vec(), -1.5), (b"b".to_vec(), f64::INFINITY)]),
            Value::Hash(vec![(b"f".to_vec(), b"v".to_vec(), None)]),
            Value::Hash(vec![
                (b"f".to_vec(), b"v".to_vec(), Some(1000)),
                (b"g".to_vec(), b"w".to_vec(), None),
                (b"h".to_vec(), b"x".to_vec(), Some(123_456)),
            ]),
            Value::Stream(StreamValue::default()),
            Value::Stream(stream(0)),
            Value::Stream(stream(1)),
            Value::Stream(stream(750)),
        ] {
            let payload = write(&value);
            assert_eq!(collected(&payload).unwrap(), value);
            for at in 0..payload.len().min(100) {
                let mut damaged = payload.clone();
                damaged[at] ^= 1;
                assert!(matches!(collected(&damaged), Err(Refused::Foot)));
                assert!(collected(&payload[..at]).is_err());
            }
        }
    }

    /// Whatever byte is another one, the value is read or refused; without a checksum.
    #[test]
    fn no_damage_makes_the_reader_panic() {
        let mut value = write(&Value::Stream(stream(30)));
        value.truncate(value.len() - FOOT_BYTES);
        let mut refused = 0;
        for at in 0..value.len() {
            for bit in 0..8 {
                let mut damaged = value.clone();
                damaged[at] ^= 1 << bit;
                refused += u32::from(read(&damaged, &mut |_| Ok(())).is_err());
            }
            assert!(read(&value[..at], &mut |_| Ok(())).is_err());
        }
        assert!(refused > 1000, "{refused}");
    }

    proptest::proptest! {
        /// Whatever has a right foot is read or refused.
        #[test]
        fn no_payload_makes_the_reader_panic(
            kind in 0..27_u8,
            value in proptest::collection::vec(proptest::num::u8::ANY, 0..60),
            is_string: bool,
        ) {
            let mut payload = vec![kind];
            if is_string {
                // A packed form, whose length is right.
                push_string(&mut payload, &value);
            } else {
                payload.extend_from_slice(&value);
            }
            payload.extend_from_slice(&[10, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
            let _ = collected(&payload);
        }
    }

    /// A value in a form that is one string.
    fn packed(form: u8, bytes: &[u8]) -> Vec<u8> {
        let mut value = vec![form];
        push_string(&mut value, bytes);
        value
    }

    /// A ziplist: items of at most 63 bytes, as strings.
    fn ziplist(items: &[&[u8]]) -> Vec<u8> {
        let mut bytes = vec![0; 10];
        let mut before = 0;
        for item in items {
            let length = u8::try_from(item.len()).unwrap();
            bytes.extend_from_slice(&[before, length]);
            bytes.extend_from_slice(item);
            before = length + 1;
        }
        bytes.push(0xff);
        bytes
    }

    fn listpack(items: &[&[u8]]) -> Vec<u8> {
        let mut pack = super::super::packs::Listpack::default();
        for item in items {
            pack.push(item);
        }
        pack.finish()
    }

    /// All forms that Redis has written since its version 2, by hand: the versions that are left do
    /// not write them any more.
    #[test]
    fn old_forms_are_read() {
        let words = |words: &[&str]| -> Vec<Vec<u8>> {
            words.iter().map(|word| word.as_bytes().to_vec()).collect()
        };
        let list = |items: &[&str]| Value::List(words(items));
        let scored = |scored: &[(&str, f64)]| {
            let scored = scored.iter();
            let scored = scored.map(|(member, score)| (member.as_bytes().to_vec(), *score));
            Value::SortedSet(scored.collect())
        };
        let hash = |fields: &[(&str, &str, Option<u64>)]| {
            let bytes = |text: &str| text.as_bytes().to_vec();
            let fields = fields.iter();
            let fields = fields.map(|(field, value, at)| (bytes(field), bytes(value), *at));
            Value::Hash(fields.collect())
        };
        let nodes = |form: u8, nodes: &[(Option<u8>, Vec<u8>)]| {
            let mut value = vec![form];
            push_length(&mut value, nodes.len() as u64);
            for (container, node) in nodes {
                value.extend(container);
                push_string(&mut value, node);
            }
            value
        };
        let numbers = [
            &[0; 10][..],
            b"\0\xfe\x80",
            b"\x03\xc0\x00\x80",
            b"\x04\xf0\xff\xff\x7f",
            b"\x05\xd0\x00\x00\x00\x80",
            b"\x06\xe0\xff\xff\xff\xff\xff\xff\xff\x7f",
            b"\x0a\xf1",
            b"\x02\xfd\xff",
        ]
        .concat();
        let long = vec![b'y'; 300];
        let long_items = [
            &[0; 10][..],
            b"\0\x41\x2c",
            &long[..],
            b"\xfe\x2e\x01\0\0\x80\0\0\x01\x2c",
            &long[..],
            b"\xff",
        ]
        .concat();
        let text_scores = b"\x03\x04\x01a\x03-.5\x01b\xfe\x01c\xff\x01d\x051e100";
        let expiring = [
            &1000_u64.to_le_bytes()[..],
            &packed(0, &listpack(&[b"f", b"v", b"0", b"g", b"w", b"1000"]))[1..],
        ]
        .concat();
        for (value, expected) in [
            (
                packed(LIST_ZIPLIST, &numbers),
                list(&[
                    "-128",
                    "-32768",
                    "8388607",
                    "-2147483648",
                    "9223372036854775807",
                    "0",
                    "12",
                ]),
            ),
            (
                packed(LIST_ZIPLIST, &long_items),
                Value::List(vec![long.clone(), long]),
            ),
            (
                nodes(
                    LIST_QUICKLIST,
                    &[(None, ziplist(&[b"a", b"b"])), (None, ziplist(&[b"c"]))],
                ),
                list(&["a", "b", "c"]),
            ),
            (
                nodes(
                    LIST_QUICKLIST_2,
                    &[(Some(2), listpack(&[b"a", b"b"])), (Some(1), b"c".to_vec())],
                ),
                list(&["a", "b", "c"]),
            ),
            (
                packed(SET_INTSET, b"\x08\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\x80"),
                Value::Set(words(&["-9223372036854775808"])),
            ),
            (
                packed(SET_LISTPACK, &listpack(&[b"a", b"b"])),
                Value::Set(words(&["a", "b"])),
            ),
            (
                text_scores.to_vec(),
                scored(&[
                    ("a", -0.5),
                    ("b", f64::INFINITY),
                    ("c", f64::NEG_INFINITY),
                    ("d", 1e100),
                ]),
            ),
            (
                packed(SORTED_SET_ZIPLIST, &ziplist(&[b"a", b"1.5", b"b", b"inf"])),
                scored(&[("a", 1.5), ("b", f64::INFINITY)]),
            ),
            (
                packed(SORTED_SET_LISTPACK, &listpack(&[b"a", b"-3"])),
                scored(&[("a", -3.0)]),
            ),
            (
                packed(HASH_ZIPMAP, b"\x01\x01f\x01\x02v..\xff"),
                hash(&[("f", "v", None)]),
            ),
            (
                packed(HASH_ZIPLIST, &ziplist(&[b"f", b"v"])),
                hash(&[("f", "v", None)]),
            ),
            (
                packed(HASH_LISTPACK, &listpack(&[b"f", b"v"])),
                hash(&[("f", "v", None)]),
            ),
            (
                [&[HASH_LISTPACK_EX][..], &expiring].concat(),
                hash(&[("f", "v", None), ("g", "w", Some(1000))]),
            ),
        ] {
            let payload = close(value.clone(), VERSION);
            assert_eq!(collected(&payload).unwrap(), expected);
            // An end that is not there is missed.
            for cut in 1..value.len() {
                assert!(
                    read(&value[..cut], &mut |_| Ok(())).is_err(),
                    "{value:?} {cut}"
                );
            }
        }
    }

    /// Lengths and counts that nothing stands behind: who made room for them would have none.
    #[test]
    fn no_length_is_believed() {
        for form in 0..=HASH_LISTPACK_EX {
            for length in [1 << 20, 1 << 40, u64::MAX] {
                let mut value = vec![form];
                push_length(&mut value, length);
                value.extend_from_slice(b"\x01a\x01b");
                assert!(read(&value, &mut |_| Ok(())).is_err(), "{form}");
            }
        }
        let mut compressed = vec![STRING, 0xc3, 2];
        push_length(&mut compressed, 1 << 50);
        compressed.extend_from_slice(b"\0a");
        assert!(read(&compressed, &mut |_| Ok(())).is_err());
    }

    /// A stream of Redis 5 says neither what was deleted nor what groups have read; one of Redis
    /// 7.2 says when consumers were given something last.
    #[test]
    fn streams_of_all_versions_are_read() {
        let all = stream(30);
        let mut less = all.clone();
        less.ends.deleted = StreamId::MIN;
        less.ends.added = 30;
        for (version, form, expected, uncounted_groups) in [
            (Version::One, STREAM, &less, 2),
            (Version::Two, STREAM_2, &all, 0),
            (Version::Three, STREAM_3, &all, 0),
        ] {
            let mut value = vec![form];
            streams::write(&mut value, &all, version);
            let mut found = StreamValue::default();
            let mut uncounted = 0;
            let taken = read(&value, &mut |piece| {
                let piece = match piece {
                    Piece::Group(name, last, HasRead::Uncounted, pending) => {
                        uncounted += 1;
                        let read = (name == b"read").then_some(30);
                        Piece::Group(name, last, HasRead::Counted(read), pending)
                    }
                    piece => piece,
                };
                collect(&mut found, piece);
                Ok(())
            });
            taken.unwrap();
            assert_eq!(uncounted, uncounted_groups);
            assert_eq!(&found, expected);
        }
    }

    /// Payloads that Redis 7.0 has written: `DUMP` of each key.
    #[test]
    fn what_redis_has_written_is_read() {
        let bytes = |text: &str| -> Vec<u8> {
            (0..text.len() / 2)
                .map(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).unwrap())
                .collect()
        };
        let words = |text: &str| -> Vec<Vec<u8>> {
            text.split_whitespace()
                .map(|word| word.as_bytes().to_vec())
                .collect()
        };
        let pairs = |text: &str| -> Vec<[Vec<u8>; 2]> { words(text).as_chunks().0.to_vec() };
        for (payload, value) in SAMPLES {
            let value = match value.split_once(' ').unwrap() {
                ("string", text) => Value::String(text.as_bytes().to_vec()),
                ("xs", count) => Value::String(vec![b'x'; count.parse().unwrap()]),
                ("list", text) => Value::List(words(text)),
                ("set", text) => Value::Set(words(text)),
                ("zset", text) => {
                    let scored = pairs(text).into_iter().map(|[member, score]| {
                        let score = crate::args::float(&score).unwrap();
                        (member, score)
                    });
                    Value::SortedSet(scored.collect())
                }
                (_, text) => {
                    let fields = pairs(text).into_iter();
                    let fields = fields.map(|[field, value]| (field, value, None));
                    Value::Hash(fields.collect())
                }
            };
            assert_eq!(collected(&bytes(payload)).unwrap(), value, "{payload}");
        }
    }

    const SAMPLES: &[(&str, &str)] = &[
        ("00c139300a009d94ea2793fc08b9", "string 12345"),
        ("00c0f90a005e26d130d7a242ab", "string -7"),
        ("00c287d612000a00e93e1e362b3b7c5e", "string 1234567"),
        ("000568656c6c6f0a006372df766534200a", "string hello"),
        (
            "00c30c412c017878e0ff00e017000178780a00f033195a8b660d84",
            "xs 300",
        ),
        (
            "120102c33b407c1f7c0000000c0081610200017f01c08002dfff02cfff02d00002f1ff\
             7f03f20000088004f3ffffff7f05f420054000047f09e04679e03c000148ff0a00b5eb\
             cc4515a33ee6",
            "list a 0 127 128 -1 4095 -4096 32767 -8388608 2147483647 9223372036854\
             775807 yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy\
             yyyyyyy",
        ),
        (
            "0b0e0200000003000000d4fe010002000a00bddd0046b38de81d",
            "set -300 1 2",
        ),
        (
            "0b10040000000200000001000000701101000a002735436efd6656c4",
            "set 1 70000",
        ),
        ("020101780a00ffe880ba760c2f09", "set x"),
        (
            "111c1c0000000600816102010181620283322e350481630283696e6604ff0a006b1dde\
             dce8e2c399",
            "zset a 1 b 2.5 c inf",
        ),
        (
            "10121200000004008166028176028167021101ff0a007ea570b011c84d31",
            "hash f v g 17",
        ),
        (
            "05010161000000000000f8bf0a0044853d9a93b5010b",
            "zset a -1.5",
        ),
        ("0401016601760a00adf24356b1860efc", "hash f v"),
    ];
}
