//! Builds blocks in the [layout](super::block_layout) that [`super::block`] reads.
//!
//! Entries are kept until the block is full, because the shared prefix, the width of the marks and
//! whether the suffixes differ in length are known only then. The size of the block is known
//! exactly all the while, so blocks are cut where they are full and not before.

use super::block_layout::{HEADER_BYTES, KIND_BITS, LEN_WIDTH, SLOT_BYTES};
use super::layout::{TRAILER_BYTES, common_len};
use crate::bytes::copy_to;
use crate::types::{Kind, Seq};

/// Keys that a block keeps until it is finished. Bounds the memory for keys whose shared prefix is
/// so long that thousands of them fit in a block.
const KEYS_BYTES_MAX: usize = 1 << 20;

#[derive(Debug)]
struct Pending {
    key_start: usize,
    key_end: usize,
    value_end: usize,
    seq: Seq,
    kind: Kind,
}

/// Collects the entries of one block.
#[derive(Debug, Default)]
pub(super) struct BlockBuilder {
    pending: Vec<Pending>,
    tags: Vec<u8>,
    keys: Vec<u8>,
    values: Vec<u8>,
    facts: Facts,
}

/// What the size of the block follows from.
#[derive(Clone, Copy, Debug, Default)]
struct Facts {
    count: usize,
    prefix_len: usize,
    /// Lengths of all keys together, repeated keys counted again.
    keys_len: usize,
    values_len: usize,
    same_len: bool,
    min_seq: Seq,
    max_seq: Seq,
}

impl Facts {
    fn mark_width(&self) -> usize {
        let largest = (self.max_seq - self.min_seq) << KIND_BITS | ((1 << KIND_BITS) - 1);
        (64 - largest.leading_zeros() as usize).div_ceil(8)
    }

    fn len_width(&self) -> usize {
        if self.same_len { 0 } else { LEN_WIDTH }
    }

    fn entries_bytes(&self) -> usize {
        self.count * (self.mark_width() + self.len_width())
            + (self.keys_len - self.count * self.prefix_len)
            + self.values_len
    }

    fn block_bytes(&self) -> usize {
        HEADER_BYTES
            + self.prefix_len
            + self.count * SLOT_BYTES
            + self.entries_bytes()
            + TRAILER_BYTES
    }
}

impl BlockBuilder {
    /// Whether nothing was added since the last block was finished.
    pub(super) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// The key added last; empty when there is none.
    #[inline]
    pub(super) fn last_key(&self) -> &[u8] {
        self.pending
            .last()
            .map_or(&[], |last| &self.keys[last.key_start..last.key_end])
    }

    /// The sequence number of the entry added last.
    pub(super) fn last_seq(&self) -> Option<Seq> {
        self.pending.last().map(|last| last.seq)
    }

    /// Adds an entry if the block then has at most `limit` bytes, not counting the shared prefix
    /// (so that the versions of a very long key need not repeat it in blocks of their own), or if
    /// it is the first one. `tag` is the lowest byte of the key's hash; `repeats` says that the key
    /// is the one added last. Returns whether the entry was added.
    #[inline]
    #[must_use]
    pub(super) fn push_within(
        &mut self,
        limit: usize,
        (key, tag, repeats): (&[u8], u8, bool),
        seq: Seq,
        kind: Kind,
        value: &[u8],
    ) -> bool {
        let facts = self.with(key, seq, value);
        let fits = self.keys.len() + key.len() <= KEYS_BYTES_MAX
            && facts.block_bytes() - facts.prefix_len <= limit;
        if !fits && !self.is_empty() {
            return false;
        }
        self.facts = facts;
        let key_start = match self.pending.last() {
            Some(last) if repeats => last.key_start,
            _ => {
                self.keys.extend_from_slice(key);
                self.keys.len() - key.len()
            }
        };
        self.values.extend_from_slice(value);
        self.tags.push(tag);
        self.pending.push(Pending {
            key_start,
            key_end: key_start + key.len(),
            value_end: self.values.len(),
            seq,
            kind,
        });
        true
    }

    #[inline]
    fn with(&self, key: &[u8], seq: Seq, value: &[u8]) -> Facts {
        let facts = &self.facts;
        let Some(first) = self.pending.first() else {
            return Facts {
                count: 1,
                prefix_len: key.len(),
                keys_len: key.len(),
                values_len: value.len(),
                same_len: true,
                min_seq: seq,
                max_seq: seq,
            };
        };
        Facts {
            count: facts.count + 1,
            prefix_len: common_len(&self.keys[..facts.prefix_len], key),
            keys_len: facts.keys_len + key.len(),
            values_len: facts.values_len + value.len(),
            same_len: facts.same_len && key.len() == first.key_end,
            min_seq: facts.min_seq.min(seq),
            max_seq: facts.max_seq.max(seq),
        }
    }

    /// Appends the block without its trailer to `out`.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.reserve(self.facts.block_bytes());
        self.encode_head(out);
        self.encode_entries(out);
        debug_assert_eq!(out.len() - start + TRAILER_BYTES, self.facts.block_bytes());
    }

    /// Starts over.
    pub(super) fn clear(&mut self) {
        self.pending.clear();
        self.tags.clear();
        self.keys.clear();
        self.values.clear();
    }

    fn encode_head(&self, out: &mut Vec<u8>) {
        let facts = &self.facts;
        let suffix_len = match self.pending.first() {
            Some(first) if facts.same_len => first.key_end - facts.prefix_len,
            _ => 0,
        };
        out.extend_from_slice(&word(facts.count));
        out.extend_from_slice(&word(facts.prefix_len));
        for width in [facts.mark_width(), facts.len_width()] {
            out.push(u8::try_from(width).expect("at most eight"));
        }
        out.extend_from_slice(&word(suffix_len));
        out.extend_from_slice(&facts.min_seq.to_le_bytes());
        out.extend_from_slice(&self.tags);
        out.extend_from_slice(&self.keys[..facts.prefix_len]);
        let (mut offset, mut value_start) = (0, 0);
        for entry in &self.pending {
            out.extend_from_slice(&word(offset));
            let suffix_len = entry.key_end - entry.key_start - facts.prefix_len;
            let head_len = facts.mark_width() + facts.len_width();
            offset += head_len + suffix_len + entry.value_end - value_start;
            value_start = entry.value_end;
        }
    }

    /// Appends the entries. Their places are made first, so that a mark can be stored as eight
    /// bytes of which the surplus is written over: by the rest of its entry, the next one or the
    /// trailer.
    fn encode_entries(&self, out: &mut Vec<u8>) {
        let facts = &self.facts;
        let (mark_width, len_width) = (facts.mark_width(), facts.len_width());
        let mut at = out.len();
        out.resize(at + facts.entries_bytes() + TRAILER_BYTES, 0);
        let mut value_start = 0;
        for entry in &self.pending {
            let mark = (entry.seq - facts.min_seq) << KIND_BITS | entry.kind as u64;
            copy_to(&mut out[at..], &mark.to_le_bytes());
            at += mark_width;
            let suffix = &self.keys[entry.key_start + facts.prefix_len..entry.key_end];
            if len_width > 0 {
                out[at..at + LEN_WIDTH].copy_from_slice(&word(suffix.len()));
                at += LEN_WIDTH;
            }
            copy_to(&mut out[at..], suffix);
            at += suffix.len();
            let value = &self.values[value_start..entry.value_end];
            out[at..at + value.len()].copy_from_slice(value);
            at += value.len();
            value_start = entry.value_end;
        }
        out.truncate(at);
    }
}

/// A count, length or offset as it lies in a block.
fn word(number: usize) -> [u8; 2] {
    let number = u16::try_from(number).expect("blocks of several entries are below 64 KiB");
    number.to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::super::block::{TableBlock, check};
    use super::super::layout::append_trailer;
    use super::*;
    use crate::types::{SEQ_MAX, prefix_after};

    fn built(entries: &[(&[u8], Seq, Kind, &[u8])]) -> Vec<u8> {
        let mut builder = BlockBuilder::default();
        for (key, seq, kind, value) in entries {
            let tag = 0xa0 + u8::try_from(key.len()).unwrap();
            let repeats = !builder.is_empty() && builder.last_key() == *key;
            assert!(builder.push_within(4096, (key, tag, repeats), *seq, *kind, value));
        }
        let mut out = b"before".to_vec();
        builder.encode(&mut out);
        append_trailer(&mut out, 6, 1, 2);
        builder.clear();
        assert!(builder.is_empty());
        out.split_off(6)
    }

    #[test]
    fn a_block_is_laid_out_as_documented() {
        let block = built(&[
            (b"key", 9, Kind::Put, b"new"),
            (b"key", 7, Kind::Delete, b""),
            (b"keys", 100, Kind::Put, b"v"),
        ]);
        let head = [3, 0, 3, 0, 2, 2, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0];
        let tags_prefix_offsets = [0xa3, 0xa3, 0xa4, b'k', b'e', b'y', 0, 0, 7, 0, 11, 0];
        let first = [2 << 3 | 1, 0, 0, 0, b'n', b'e', b'w'];
        let second = [0, 0, 0, 0];
        let third = [0xe9, 2, 1, 0, b's', b'v'];
        let body = [&head[..], &tags_prefix_offsets, &first, &second, &third].concat();
        assert_eq!(block[..block.len() - TRAILER_BYTES], body);
        assert!(matches!(check(1, 2, &block), Ok(None)));
    }

    #[test]
    fn searches_find_what_looking_at_every_entry_finds() {
        for count in 1..100u64 {
            let keys: Vec<Vec<u8>> = (0..count)
                .map(|number| format!("k{:05}", number / 3 * 20).into_bytes())
                .collect();
            let mut builder = BlockBuilder::default();
            for (at, key) in keys.iter().enumerate() {
                let repeats = !builder.is_empty() && builder.last_key() == key;
                let seq = 1000 - at as u64;
                assert!(builder.push_within(32 << 10, (key, 7, repeats), seq, Kind::Put, b"v"));
            }
            let mut bytes = Vec::new();
            builder.encode(&mut bytes);
            append_trailer(&mut bytes, 0, 1, 2);
            let block = TableBlock::new(&bytes);
            let probes = (0..count * 7 + 9).map(|number| format!("k{number:05}").into_bytes());
            for probe in probes.chain([b"".to_vec(), b"k".to_vec(), b"z".to_vec()]) {
                let expected = keys.iter().filter(|key| **key < probe).count();
                assert_eq!(block.lower_bound(&probe), expected);
                for range in [0..keys.len(), keys.len() / 3..keys.len(), 0..keys.len() / 2] {
                    let expected = expected.clamp(range.start, range.end);
                    assert_eq!(block.lower_bound_in(range.clone(), &probe), expected);
                    assert_eq!(block.lower_bound_near(range, &probe), expected);
                }
            }
        }
    }

    #[test]
    fn eight_bytes_of_a_key_are_those_of_the_whole_key() {
        let ends: [&[u8]; 4] = [b"", b"a", b"abcdefgh", b"bcdefghijklmnop"];
        for shared in 0..12 {
            let keys = ends.map(|end| [&vec![b'p'; shared], end].concat());
            let entries = keys
                .each_ref()
                .map(|key| (&key[..], 1, Kind::Put, &b"v"[..]));
            let bytes = built(&entries);
            for (at, key) in keys.iter().enumerate() {
                for skip in 0..=key.len() {
                    let found = TableBlock::new(&bytes).prefix_after(at, skip);
                    assert_eq!(found, prefix_after(key, skip), "{shared} {key:?} {skip}");
                }
            }
        }
    }

    #[test]
    fn suffixes_of_one_length_need_no_lengths() {
        let block = built(&[(b"aab", 5, Kind::Put, b"x"), (b"aac", 5, Kind::Put, b"y")]);
        let head = [2, 0, 2, 0, 1, 0, 1, 0, 5, 0, 0, 0, 0, 0, 0, 0];
        let rest = [
            0xa3, 0xa3, b'a', b'a', 0, 0, 3, 0, 1, b'b', b'x', 1, b'c', b'y',
        ];
        assert_eq!(
            block[..block.len() - TRAILER_BYTES],
            [&head[..], &rest].concat()
        );
    }

    #[test]
    fn marks_are_as_wide_as_the_sequence_numbers_need() {
        let distances = [(0, 1), (31, 1), (32, 2), (8191, 2), (8192, 3), (SEQ_MAX, 8)];
        for (distance, width) in distances {
            let block = built(&[(b"a", 0, Kind::Put, b""), (b"b", distance, Kind::Put, b"")]);
            assert_eq!(block[4], width, "{distance}");
            assert!(matches!(check(1, 2, &block), Ok(None)));
            let found = TableBlock::new(&block).get(b"b", 0xa1, distance);
            assert_eq!(found.map(|found| found.seq), Some(distance));
        }
    }
}
