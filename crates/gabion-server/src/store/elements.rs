//! Keys and values of the elements of large collections.
//!
//! # Layout
//! A key is the [prefix](super::keys::prefix) of the collection, a byte for what it is, and then:
//!
//! | byte | what | rest of the key | value |
//! |---|---|---|---|
//! | 0 | a member | hash of the member (8), member | what belongs to it |
//! | 1 | a place in the order of scores | score (8, ordered), member | nothing |
//! | 2 | an element of a list | index (8, ordered) | the element |
//! | 3 | a field that expires | moment (8, ordered), field | nothing |
//!
//! The hash puts members into an order that has nothing to do with them, so that a place in it is
//! the cursor of a scan, and a random place gives a random member.
//!
//! A member of more than [`WHOLE_BYTES_MAX`] bytes is too long for a key: the key has its first
//! bytes and a hash of all, and the value begins with the member as an [item](super::packed).

use std::borrow::Cow;

use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

use super::keys::{PREFIX_BYTES, ordered, prefix};
use super::packed;

/// Members.
pub(crate) const MEMBER: u8 = 0;
/// Places in the order of scores.
pub(crate) const SCORE: u8 = 1;
/// Elements of a list.
pub(crate) const INDEX: u8 = 2;
/// Fields that expire.
pub(crate) const MOMENT: u8 = 3;

/// The longest member that a key holds, in bytes.
const WHOLE_BYTES_MAX: usize = 16 << 10;

/// Of a longer one, bytes that the key holds with the hash behind them: more than a whole one has.
const CUT_BYTES: usize = WHOLE_BYTES_MAX + 1 - size_of::<u128>();
const LONG_BYTES: usize = CUT_BYTES + size_of::<u128>();

/// Bytes in front of the member in a key.
const FRONT_BYTES: usize = PREFIX_BYTES + 1 + size_of::<u64>();

/// The place of a member among others: positive, and not 0, as it is a cursor.
pub(crate) fn place_of(member: &[u8]) -> u64 {
    (xxh3_64(member) >> 1).max(1)
}

/// What stands for a member in a key.
fn in_key(member: &[u8]) -> Cow<'_, [u8]> {
    if member.len() <= WHOLE_BYTES_MAX {
        return Cow::Borrowed(member);
    }
    let mut short = member[..CUT_BYTES].to_vec();
    short.extend_from_slice(&xxh3_128(member).to_le_bytes());
    Cow::Owned(short)
}

/// A key of a member behind a number.
pub(crate) fn key(space: u16, collection: u64, room: u8, number: u64, member: &[u8]) -> Vec<u8> {
    let member = in_key(member);
    let mut key = Vec::with_capacity(FRONT_BYTES + member.len());
    key.extend_from_slice(&prefix(space, collection));
    key.push(room);
    key.extend_from_slice(&ordered(number));
    key.extend_from_slice(&member);
    key
}

/// The key of a member itself.
pub(crate) fn member_key(space: u16, collection: u64, member: &[u8]) -> Vec<u8> {
    key(space, collection, MEMBER, place_of(member), member)
}

/// What the keys of one sort of a collection begin with.
pub(crate) fn room_prefix(space: u16, collection: u64, room: u8) -> Vec<u8> {
    let mut key = prefix(space, collection).to_vec();
    key.push(room);
    key
}

/// The value of a key with a member.
pub(crate) fn value(member: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut value = Vec::with_capacity(payload.len());
    if member.len() > WHOLE_BYTES_MAX {
        packed::push(&mut value, member);
    }
    value.extend_from_slice(payload);
    value
}

/// The number, the member and what belongs to it, of a pair of the store.
pub(crate) fn read<'a>(key: &'a [u8], value: &'a [u8]) -> Option<(u64, &'a [u8], &'a [u8])> {
    let (number, member) = key.get(PREFIX_BYTES + 1..)?.split_first_chunk()?;
    let number = super::keys::from_ordered(*number);
    match member.len() == LONG_BYTES {
        true => {
            let (member, payload) = packed::split(value)?;
            Some((number, member, payload))
        }
        false => Some((number, member, value)),
    }
}

/// A score as a number of the same order. No score is a NaN.
pub(crate) fn ordered_score(score: f64) -> u64 {
    // Adding 0 makes -0 the same as 0.
    let bits = (score + 0.0).to_bits();
    match bits >> 63 {
        0 => bits | 1 << 63,
        _ => !bits,
    }
}

/// The score of such a number.
pub(crate) fn score_of(number: u64) -> f64 {
    f64::from_bits(match number >> 63 {
        1 => number & !(1 << 63),
        _ => !number,
    })
}

/// The index of a list's element as a number of the same order.
pub(crate) fn ordered_index(index: i64) -> u64 {
    index.cast_unsigned() ^ 1 << 63
}

/// The index of such a number.
pub(crate) fn index_of(number: u64) -> i64 {
    (number ^ 1 << 63).cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_order_of_scores_and_indexes() {
        let scores = [
            f64::NEG_INFINITY,
            -1e300,
            -1.0,
            -1e-300,
            0.0,
            1e-300,
            2.5,
            f64::INFINITY,
        ];
        for pair in scores.windows(2) {
            assert!(ordered_score(pair[0]) < ordered_score(pair[1]));
        }
        for score in scores {
            assert_eq!(score_of(ordered_score(score)), score);
        }
        assert_eq!(ordered_score(-0.0), ordered_score(0.0));
        for index in [i64::MIN, -1, 0, 1, i64::MAX] {
            assert_eq!(index_of(ordered_index(index)), index);
        }
        assert!(ordered_index(-1) < ordered_index(0));
    }

    #[test]
    fn long_members_are_read_back_whole() {
        for length in [0, 1, LONG_BYTES - 1, LONG_BYTES, LONG_BYTES + 1, 100_000] {
            let member = vec![b'm'; length];
            let key = member_key(1, 2, &member);
            let value = value(&member, b"payload");
            let read = read(&key, &value).unwrap();
            assert_eq!(read, (place_of(&member), &member[..], &b"payload"[..]));
            assert!(key.len() <= usize::from(u16::MAX));
        }
    }
}
