//! Values in the format of Redis' dumps (RDB), as `DUMP` and `RESTORE` carry them.
//!
//! # Layout of a payload
//! A byte for the type, the value, the version of the format (2, little-endian), and a checksum of
//! all before (8, little-endian: CRC-64 of Jones, reflected, from 0).
//!
//! Written are the plain types only, which all versions read. Read are the packed ones, too: see
//! [`packs`]. The source is Redis' own description of each type, `rdb.h` of its version 7.

pub(crate) mod libraries;
mod lzf;
mod packs;
mod read;

use read::Reader;

/// The version that is written, that of Redis 7.0; and that of hashes with fields that expire.
const VERSION: u16 = 10;
const VERSION_OF_MOMENTS: u16 = 12;

/// The newest version that is read.
const VERSION_MAX: u16 = 12;

const STRING: u8 = 0;
const LIST: u8 = 1;
const SET: u8 = 2;
const SORTED_SET: u8 = 3;
const HASH: u8 = 4;
const SORTED_SET_2: u8 = 5;
const HASH_ZIPMAP: u8 = 9;
const LIST_ZIPLIST: u8 = 10;
const SET_INTSET: u8 = 11;
const SORTED_SET_ZIPLIST: u8 = 12;
const HASH_ZIPLIST: u8 = 13;
const LIST_QUICKLIST: u8 = 14;
const HASH_LISTPACK: u8 = 16;
const SORTED_SET_LISTPACK: u8 = 17;
const LIST_QUICKLIST_2: u8 = 18;
const SET_LISTPACK: u8 = 20;
const HASH_METADATA: u8 = 24;
const HASH_LISTPACK_EX: u8 = 25;

/// Bytes behind the value.
const FOOT_BYTES: usize = 10;

/// A field, its value, and when it expires.
pub(crate) type Field = (Vec<u8>, Vec<u8>, Option<u64>);

/// A value that is no stream.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    /// A string.
    String(Vec<u8>),
    /// The elements of a list.
    List(Vec<Vec<u8>>),
    /// The members of a set.
    Set(Vec<Vec<u8>>),
    /// Members and their scores.
    SortedSet(Vec<(Vec<u8>, f64)>),
    /// Fields.
    Hash(Vec<Field>),
}

/// Why a payload is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The version is newer, or the checksum is of other bytes.
    Foot,
    /// What it has is no value, or one of an unknown type.
    Value,
}

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
fn close(mut out: Vec<u8>, version: u16) -> Vec<u8> {
    out.extend_from_slice(&version.to_le_bytes());
    let sum = checksum(&out);
    out.extend_from_slice(&sum.to_le_bytes());
    out
}

fn push_length(out: &mut Vec<u8>, length: u64) {
    let big_endian = |out: &mut Vec<u8>, bytes: &[u8]| out.extend(bytes.iter().rev());
    if let Ok(byte) = u8::try_from(length)
        && byte < 1 << 6
    {
        out.push(byte);
    } else if length < 1 << 14 {
        let number = u16::try_from(length).unwrap_or_default() | 1 << 14;
        big_endian(out, &number.to_le_bytes());
    } else if let Ok(number) = u32::try_from(length) {
        out.push(0x80);
        big_endian(out, &number.to_le_bytes());
    } else {
        out.push(0x81);
        big_endian(out, &length.to_le_bytes());
    }
}

fn push_string(out: &mut Vec<u8>, bytes: &[u8]) {
    push_length(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// What stands in front of a foot that fits.
fn open(payload: &[u8]) -> Result<&[u8], Refused> {
    let end = payload.len().checked_sub(FOOT_BYTES).ok_or(Refused::Foot)?;
    let (value, foot) = payload.split_at(end);
    let (version, sum) = foot.split_first_chunk().ok_or(Refused::Foot)?;
    let sum = sum.first_chunk().map(|sum| u64::from_le_bytes(*sum));
    // A checksum of 0 says that there is none.
    let is_whole = sum == Some(0) || sum == Some(checksum(&payload[..end + 2]));
    if u16::from_le_bytes(*version) > VERSION_MAX || !is_whole {
        return Err(Refused::Foot);
    }
    Ok(value)
}

/// The value of a payload.
///
/// # Errors
/// When it is none.
pub(crate) fn read(payload: &[u8]) -> Result<Value, Refused> {
    let mut reader = Reader::new(open(payload)?);
    let value = read_value(&mut reader).ok_or(Refused::Value)?;
    match reader.is_empty() && !is_nothing(&value) {
        true => Ok(value),
        false => Err(Refused::Value),
    }
}

fn is_nothing(value: &Value) -> bool {
    match value {
        Value::String(_) => false,
        Value::List(elements) | Value::Set(elements) => elements.is_empty(),
        Value::SortedSet(members) => members.is_empty(),
        Value::Hash(fields) => fields.is_empty(),
    }
}

fn read_value(reader: &mut Reader<'_>) -> Option<Value> {
    Some(match reader.byte()? {
        STRING => Value::String(reader.string()?),
        LIST => Value::List(reader.several(Reader::string)?),
        SET => Value::Set(reader.several(Reader::string)?),
        SORTED_SET => Value::SortedSet(scored(
            reader.several(|reader| Some((reader.string()?, reader.text_score()?)))?,
        )?),
        SORTED_SET_2 => Value::SortedSet(scored(
            reader.several(|reader| Some((reader.string()?, reader.score()?)))?,
        )?),
        HASH => {
            Value::Hash(reader.several(|reader| Some((reader.string()?, reader.string()?, None)))?)
        }
        HASH_METADATA => {
            let first = reader.number()?;
            Value::Hash(reader.several(|reader| {
                let moment = match reader.length()? {
                    0 => None,
                    after => Some(first.checked_add(after - 1)?),
                };
                Some((reader.string()?, reader.string()?, moment))
            })?)
        }
        HASH_LISTPACK_EX => {
            reader.number()?;
            let items = packs::listpack(&reader.string()?)?;
            let (triples, rest) = items.as_chunks::<3>();
            let field = |[field, value, moment]: &[Vec<u8>; 3]| {
                let moment = std::str::from_utf8(moment).ok()?.parse().ok()?;
                let moment = Some(moment).filter(|moment| *moment != 0);
                Some((field.clone(), value.clone(), moment))
            };
            let fields = triples.iter().map(field).collect::<Option<_>>()?;
            rest.is_empty().then_some(Value::Hash(fields))?
        }
        LIST_ZIPLIST => Value::List(packs::ziplist(&reader.string()?)?),
        LIST_QUICKLIST => {
            let nodes = reader.several(|reader| packs::ziplist(&reader.string()?))?;
            Value::List(nodes.concat())
        }
        LIST_QUICKLIST_2 => {
            let nodes = reader.several(|reader| match reader.length()? {
                1 => Some(vec![reader.string()?]),
                2 => packs::listpack(&reader.string()?),
                _ => None,
            })?;
            Value::List(nodes.concat())
        }
        SET_INTSET => Value::Set(packs::intset(&reader.string()?)?),
        SET_LISTPACK => Value::Set(packs::listpack(&reader.string()?)?),
        SORTED_SET_ZIPLIST => Value::SortedSet(score_pairs(packs::ziplist(&reader.string()?)?)?),
        SORTED_SET_LISTPACK => Value::SortedSet(score_pairs(packs::listpack(&reader.string()?)?)?),
        HASH_ZIPMAP => Value::Hash(field_pairs(packs::zipmap(&reader.string()?)?)?),
        HASH_ZIPLIST => Value::Hash(field_pairs(packs::ziplist(&reader.string()?)?)?),
        HASH_LISTPACK => Value::Hash(field_pairs(packs::listpack(&reader.string()?)?)?),
        _ => return None,
    })
}

fn field_pairs(items: Vec<Vec<u8>>) -> Option<Vec<Field>> {
    let (pairs, rest) = items.as_chunks::<2>();
    let field = |[field, value]: &[Vec<u8>; 2]| (field.clone(), value.clone(), None);
    rest.is_empty().then(|| pairs.iter().map(field).collect())
}

fn score_pairs(items: Vec<Vec<u8>>) -> Option<Vec<(Vec<u8>, f64)>> {
    let (pairs, rest) = items.as_chunks::<2>();
    let member =
        |[member, score]: &[Vec<u8>; 2]| Some((member.clone(), crate::args::float(score)?));
    let members = pairs.iter().map(member).collect::<Option<_>>()?;
    rest.is_empty().then_some(members)
}

/// No score is a NaN.
fn scored(members: Vec<(Vec<u8>, f64)>) -> Option<Vec<(Vec<u8>, f64)>> {
    let has_nan = members.iter().any(|(_, score)| score.is_nan());
    (!has_nan).then_some(members)
}

const fn sums() -> [u64; 256] {
    let mut sums = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut sum = byte as u64;
        let mut bit = 0;
        while bit < 8 {
            sum = match sum & 1 {
                1 => sum >> 1 ^ 0x95ac_9329_ac4b_c9b5,
                _ => sum >> 1,
            };
            bit += 1;
        }
        sums[byte] = sum;
        byte += 1;
    }
    sums
}

static SUMS: [u64; 256] = sums();

/// The checksum of bytes.
fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |sum: u64, byte| {
        let [low, ..] = sum.to_le_bytes();
        SUMS[usize::from(low ^ byte)] ^ sum >> 8
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_that_of_redis() {
        assert_eq!(checksum(b"123456789"), 0xe9c6_d914_c4b8_d9ca);
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
        ] {
            let payload = write(&value);
            assert_eq!(read(&payload), Ok(value));
            for at in 0..payload.len().min(100) {
                let mut damaged = payload.clone();
                damaged[at] ^= 1;
                assert_eq!(read(&damaged), Err(Refused::Foot));
                assert!(read(&payload[..at]).is_err());
            }
        }
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
            let _ = read(&payload);
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
        for (payload, value) in SAMPLES {
            let value = match value.split_once(' ').unwrap() {
                ("string", text) => Value::String(text.as_bytes().to_vec()),
                ("xs", count) => Value::String(vec![b'x'; count.parse().unwrap()]),
                ("list", text) => Value::List(words(text)),
                ("set", text) => Value::Set(words(text)),
                ("zset", text) => Value::SortedSet(score_pairs(words(text)).unwrap()),
                (_, text) => Value::Hash(field_pairs(words(text)).unwrap()),
            };
            assert_eq!(read(&bytes(payload)), Ok(value), "{payload}");
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
