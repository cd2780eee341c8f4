//! Intervals: a few neighbouring pairs, as they lie in the space and as they are cached.
//!
//! # Layout of a pair in the space
//! | field | |
//! |---|---|
//! | key length | varint |
//! | value length | varint |
//! | key, value | |
//!
//! Nothing stands between pairs, and the space has no other content. Its checksums are those of the
//! space.

use std::sync::Arc;

use crate::Slice;
use crate::log::codec::{Malformed, Reader, put_varint};

/// Most pairs of an interval (the paper's split threshold, section 5.1).
pub(super) const PAIRS_MAX: usize = 16;

/// Most bytes of an interval that has more than one pair (the paper's split threshold).
pub(super) const BYTES_MAX: usize = 16 << 10;

/// Most bytes in front of the key of a pair.
pub(super) const PAIR_HEAD_BYTES_MAX: usize = 2 * 5;

/// Where a pair lies in the bytes of its interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pair {
    key: u32,
    value: u32,
    end: u32,
}

/// Pairs in the order of their keys, decoded.
#[derive(Debug)]
pub(super) struct Interval {
    bytes: Arc<[u8]>,
    pairs: Vec<Pair>,
    /// The fingerprint of each key.
    tags: Vec<u16>,
}

/// Appends a pair as it lies in the space.
pub(super) fn put_pair(bytes: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    bytes.reserve(PAIR_HEAD_BYTES_MAX + key.len() + value.len());
    put_varint(bytes, key.len() as u64);
    put_varint(bytes, value.len() as u64);
    bytes.extend_from_slice(key);
    bytes.extend_from_slice(value);
}

/// The lengths of the key and of all of the pair that `front` begins with.
pub(super) fn pair_head(front: &[u8]) -> Result<(usize, usize, usize), Malformed> {
    let mut reader = Reader::new(front, 0);
    let too_long = reader.malformed("a pair states a length that no pair has");
    let key = usize::try_from(reader.varint()?).map_err(|_| too_long)?;
    let value = usize::try_from(reader.varint()?).map_err(|_| too_long)?;
    let head = reader.at();
    let all = head
        .checked_add(key)
        .and_then(|sum| sum.checked_add(value))
        .ok_or(too_long)?;
    Ok((head, key, all))
}

fn tag_of(hash: u64) -> u16 {
    u16::try_from(hash >> 48).unwrap_or_default()
}

impl Interval {
    /// Decodes the bytes of an interval.
    pub(super) fn decode(bytes: Arc<[u8]>) -> Result<Interval, Malformed> {
        let mut pairs = Vec::with_capacity(PAIRS_MAX);
        let mut tags = Vec::with_capacity(PAIRS_MAX);
        let mut at = 0;
        let mut last: Option<&[u8]> = None;
        while at < bytes.len() {
            let malformed = |what| Malformed { at, what };
            let (head, key_len, len) = pair_head(&bytes[at..])?;
            let end = at + len;
            if end > bytes.len() {
                return Err(malformed("a pair reaches beyond its interval"));
            }
            let word = |place: usize| {
                u32::try_from(place).map_err(|_| malformed("an interval has 4 GiB or more"))
            };
            let key = &bytes[at + head..at + head + key_len];
            if last.is_some_and(|last| last >= key) {
                return Err(malformed("a key is not above the one before it"));
            }
            last = Some(key);
            pairs.push(Pair {
                key: word(at + head)?,
                value: word(at + head + key_len)?,
                end: word(end)?,
            });
            tags.push(tag_of(crate::types::hash_key(key)));
            at = end;
        }
        Ok(Interval { bytes, pairs, tags })
    }

    /// Number of pairs.
    pub(super) fn len(&self) -> usize {
        self.pairs.len()
    }

    /// Whether the interval has more than it should: a recovery found it so.
    pub(super) fn is_oversize(&self) -> bool {
        self.len() > 2 * PAIRS_MAX || (self.len() > 1 && self.bytes.len() > 2 * BYTES_MAX)
    }

    /// Memory in bytes.
    pub(super) fn memory_bytes(&self) -> u64 {
        let pairs = self.pairs.capacity() * (size_of::<Pair>() + size_of::<u16>());
        (self.bytes.len() + pairs + size_of::<Interval>() + 64) as u64
    }

    /// The encoded bytes of the pairs from `from` up to `to`.
    pub(super) fn encoded(&self, from: usize, to: usize) -> &[u8] {
        &self.bytes[self.start(from)..self.start(to)]
    }

    /// Where pair `at` begins in the bytes; the end of all for the number of pairs.
    pub(super) fn start(&self, at: usize) -> usize {
        match at.checked_sub(1) {
            None => 0,
            Some(before) => self.pairs[before].end as usize,
        }
    }

    pub(super) fn key(&self, at: usize) -> &[u8] {
        let pair = self.pairs[at];
        &self.bytes[pair.key as usize..pair.value as usize]
    }

    pub(super) fn value_bytes(&self, at: usize) -> &[u8] {
        let pair = self.pairs[at];
        &self.bytes[pair.value as usize..pair.end as usize]
    }

    /// The key of pair `at`, which shares the interval's memory.
    pub(super) fn key_slice(&self, at: usize) -> Slice {
        let pair = self.pairs[at];
        let (from, to) = (pair.key as usize, pair.value as usize);
        Slice::shared(&self.bytes, from, to - from)
    }

    /// The value of pair `at`, which shares the interval's memory.
    pub(super) fn value(&self, at: usize) -> Slice {
        let pair = self.pairs[at];
        let (from, to) = (pair.value as usize, pair.end as usize);
        Slice::shared(&self.bytes, from, to - from)
    }

    /// The pair with that key, which has that hash.
    pub(super) fn find(&self, key: &[u8], hash: u64) -> Option<usize> {
        let tag = tag_of(hash);
        let mut candidates = self.tags.iter().enumerate().filter(|(_, own)| **own == tag);
        candidates.find_map(|(at, _)| (self.key(at) == key).then_some(at))
    }

    /// How many keys are below `key`.
    pub(super) fn count_below(&self, key: &[u8]) -> usize {
        let mut low = 0;
        let mut high = self.len();
        while low < high {
            let middle = low.midpoint(high);
            if self.key(middle) < key {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }
}

/// Cuts pairs of these lengths into intervals, of about the same size each: where each but the
/// first begins.
pub(super) fn cuts(lens: &[usize]) -> Vec<usize> {
    let parts = lens.len().div_ceil(PAIRS_MAX).max(1);
    let per_part = lens.len().div_ceil(parts);
    let mut cuts = Vec::new();
    let (mut pairs, mut bytes) = (0, 0);
    for (at, len) in lens.iter().enumerate() {
        if pairs > 0 && (pairs == per_part || bytes + len > BYTES_MAX) {
            cuts.push(at);
            (pairs, bytes) = (0, 0);
        }
        pairs += 1;
        bytes += len;
    }
    cuts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::hash_key;

    fn interval(pairs: &[(&[u8], &[u8])]) -> Interval {
        let mut bytes = Vec::new();
        for (key, value) in pairs {
            put_pair(&mut bytes, key, value);
        }
        Interval::decode(bytes.into()).unwrap()
    }

    #[test]
    fn pairs_come_back() {
        let long = vec![7; 300];
        let pairs: [(&[u8], &[u8]); 4] = [(b"", b"x"), (b"a", b""), (b"ab", &long), (b"b", b"y")];
        let interval = interval(&pairs);
        assert_eq!(interval.len(), 4);
        for (at, (key, value)) in pairs.iter().enumerate() {
            assert_eq!(interval.key(at), *key);
            assert_eq!(interval.value_bytes(at), *value);
            assert_eq!(
                (interval.key_slice(at), interval.value(at)),
                ((*key).into(), (*value).into())
            );
            assert_eq!(interval.find(key, hash_key(key)), Some(at));
            assert_eq!(interval.count_below(key), at);
        }
        assert_eq!(interval.find(b"c", hash_key(b"c")), None);
        assert_eq!(interval.count_below(b"c"), 4);
        assert_eq!(interval.encoded(0, 2).len(), 3 + 3);
    }

    #[test]
    fn bytes_that_are_no_pairs_are_refused() {
        let mut bytes = Vec::new();
        put_pair(&mut bytes, b"b", b"1");
        put_pair(&mut bytes, b"a", b"2");
        assert!(Interval::decode(bytes.clone().into()).is_err(), "the order");
        bytes.truncate(4);
        put_pair(&mut bytes, b"c", b"12345");
        for len in 0..bytes.len() {
            let whole = len == 0 || len == 4;
            assert_eq!(
                Interval::decode(bytes[..len].into()).is_ok(),
                whole,
                "{len}"
            );
        }
        let endless = [0xff; 12];
        assert!(Interval::decode(endless.into()).is_err());
    }

    #[test]
    fn intervals_keep_their_limits() {
        for count in 0..200 {
            let lens: Vec<usize> = (0..count).map(|at| 10 + at * 97 % 5000).collect();
            let cuts = cuts(&lens);
            let ends = cuts.iter().copied().chain([count]);
            let mut from = 0;
            for end in ends {
                let part = &lens[from..end];
                assert!(part.len() <= PAIRS_MAX);
                assert!(part.len() == 1 || part.iter().sum::<usize>() <= BYTES_MAX);
                assert!(!part.is_empty() || count == 0);
                from = end;
            }
        }
        assert_eq!(cuts(&[100_000, 1, 1]), [1]);
        assert_eq!(cuts(&[10; 17]), [9]);
    }
}
