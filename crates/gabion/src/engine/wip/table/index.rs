//! Which block a key lies in, for a few cache lines.
//!
//! # Idea
//! Per block the index has a separator: the shortest string that is at least the last key of the
//! block and below the first key of the next. (For the last block it is the last key itself.) The
//! block of a key is the first one whose separator is at least the key. The search runs over the
//! separators' first eight bytes as numbers, taken after the prefix that all separators share, in
//! a tree of cache lines ([`super::tree`]); whole separators are compared only on ties.
//!
//! # Layout of the encoded index
//! u32 number of blocks, u32 length of the shared prefix, the shared prefix; then per block:
//! varint length of the block in bytes, varint length of the separator after the prefix, these
//! bytes. The blocks lie in this order without gaps from offset 0 of the file.
//!
//! # Invariants
//! - I1: separators ascend (equal neighbours are legal: one key's versions fill several blocks).
//! - I2: blocks have at least one byte.
//! - I3: the number of block `i` in the tree is `prefix_of(separator i)`, hence they ascend.
#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used))]

use std::ops::Range;

use super::layout::{CheckResult, FieldReader, after_prefix, common_len, is_same, put_varint};
use super::tree::BlockTree;
use crate::types::prefix_of;

/// Collects the index while the table is written.
#[derive(Debug, Default)]
pub(super) struct BlockIndexBuilder {
    lens: Vec<u64>,
    ends: Vec<usize>,
    separators: Vec<u8>,
}

impl BlockIndexBuilder {
    /// Adds the next block: the last key in it, the first key after it, its length.
    pub(super) fn add(&mut self, last: &[u8], next: Option<&[u8]>, block_len: u64) {
        match next {
            Some(next) => separate(last, next, &mut self.separators),
            None => self.separators.extend_from_slice(last),
        }
        self.ends.push(self.separators.len());
        self.lens.push(block_len);
    }

    /// Appends the encoded index.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let common = match (self.separators().next(), self.separators().last()) {
            (Some(first), Some(last)) => first.get(..common_len(first, last)).unwrap_or_default(),
            _ => &[],
        };
        for number in [self.lens.len(), common.len()] {
            let number = u32::try_from(number).expect("a table has fewer than 2^32 blocks");
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.extend_from_slice(common);
        for (len, separator) in self.lens.iter().zip(self.separators()) {
            let rest = separator.get(common.len()..).unwrap_or_default();
            put_varint(out, *len);
            put_varint(out, rest.len() as u64);
            out.extend_from_slice(rest);
        }
    }

    fn separators(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts
            .zip(&self.ends)
            .map(|(start, end)| self.separators.get(start..*end).unwrap_or_default())
    }
}

/// Appends the shortest string that is at least `last` and below `next`, or `last` where they are
/// equal.
fn separate(last: &[u8], next: &[u8], out: &mut Vec<u8>) {
    let common = common_len(last, next);
    let start = out.len();
    out.extend_from_slice(last.get(..common).unwrap_or_default());
    if common == last.len() {
        return;
    }
    // `last` has another byte here, and `next` a larger one. Raise the first byte that can be
    // raised without reaching `next`; what follows it may be cut off.
    let rest = next.get(common..).unwrap_or_default();
    for (at, byte) in last.iter().enumerate().skip(common) {
        match byte.checked_add(1) {
            Some(raised) if at > common || rest > &[raised] => {
                out.push(raised);
                break;
            }
            _ => out.push(*byte),
        }
    }
    if out.len() - start >= last.len() {
        out.truncate(start);
        out.extend_from_slice(last);
    }
}

/// The index in memory.
#[derive(Debug)]
pub(super) struct BlockIndex {
    common: Vec<u8>,
    tree: BlockTree,
    ends: Vec<usize>,
    rests: Vec<u8>,
}

impl BlockIndex {
    /// Decodes the index of a table whose blocks have `data_bytes` together.
    pub(super) fn decode(bytes: &[u8], data_bytes: u64) -> CheckResult<BlockIndex> {
        let mut reader = FieldReader { bytes };
        let count = reader.u32().ok_or("the index does not parse")?;
        let common_len = reader.u32().ok_or("the index does not parse")?;
        let common = reader
            .take(common_len as usize)
            .ok_or("the index does not parse")?;
        let mut ends = Vec::new();
        let mut rests = Vec::with_capacity(reader.bytes.len());
        let mut blocks = Vec::new();
        let mut before: &[u8] = &[];
        let mut start = 0u64;
        for _ in 0..count {
            let len = reader.varint().ok_or("the index does not parse")?;
            let rest_len = reader.varint().ok_or("the index does not parse")?;
            let rest = usize::try_from(rest_len)
                .ok()
                .and_then(|len| reader.take(len))
                .ok_or("the index does not parse")?;
            start = start
                .checked_add(len)
                .filter(|_| len > 0)
                .ok_or("the index has a block of impossible length")?;
            if rest < before {
                return Err("the separators of the index do not ascend");
            }
            before = rest;
            blocks.push((prefix_of(rest), len));
            rests.extend_from_slice(rest);
            ends.push(rests.len());
        }
        if !reader.bytes.is_empty() || count == 0 || start != data_bytes {
            return Err("the index does not cover the blocks");
        }
        ends.shrink_to_fit();
        rests.shrink_to_fit();
        Ok(BlockIndex {
            common: common.to_vec(),
            tree: BlockTree::new(blocks.into_iter()),
            ends,
            rests,
        })
    }

    /// Number of blocks.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.tree.len()
    }

    /// The first block whose separator is at least `key`; [`BlockIndex::len`] when there is none.
    #[inline]
    pub(super) fn find(&self, key: &[u8]) -> usize {
        let rest = match self.rest_of(key) {
            Ok(rest) => rest,
            Err(block) => return block,
        };
        let wanted = prefix_of(rest);
        let block = self.tree.find(wanted);
        if self.tree.number(block) == Some(wanted) {
            self.find_among_ties(block, wanted, rest)
        } else {
            block
        }
    }

    /// Asks for the memory that [`BlockIndex::find`] waits for.
    #[inline]
    pub(super) fn prefetch(&self, key: &[u8]) {
        if let Ok(rest) = self.rest_of(key) {
            self.tree.prefetch(prefix_of(rest));
        }
    }

    /// What follows the shared prefix in `key`, or the block for a key without that prefix.
    #[inline]
    fn rest_of<'k>(&self, key: &'k [u8]) -> Result<&'k [u8], usize> {
        match after_prefix(key, &self.common) {
            Some(rest) => Ok(rest),
            None if key < self.common.as_slice() => Err(0),
            None => Err(self.len()),
        }
    }

    #[cold]
    fn find_among_ties(&self, first: usize, wanted: u64, rest: &[u8]) -> usize {
        let is_behind = |block| self.tree.number(block) != Some(wanted);
        let behind = self.tree.first(is_behind, first..self.len());
        self.tree
            .first(|block| self.rest(block) >= rest, first..behind)
    }

    #[inline]
    fn rest(&self, block: usize) -> &[u8] {
        let start = match block.checked_sub(1) {
            Some(before) => self.ends.get(before).copied().unwrap_or_default(),
            None => 0,
        };
        let end = self.ends.get(block).copied().unwrap_or_default();
        self.rests.get(start..end).unwrap_or_default()
    }

    /// The separator of a block.
    pub(super) fn separator(&self, block: usize) -> Vec<u8> {
        [self.common.as_slice(), self.rest(block)].concat()
    }

    /// Whether `key` is the separator of `block`: only then can the next block have versions of a
    /// key that [`BlockIndex::find`] placed here.
    #[inline]
    pub(super) fn is_separator(&self, block: usize, key: &[u8]) -> bool {
        after_prefix(key, &self.common).is_some_and(|rest| is_same(rest, self.rest(block)))
    }

    /// The first block from `block` on whose separator is above `key`, which is the separator of
    /// `block`: the last one that can have versions of the key.
    pub(super) fn find_above(&self, block: usize, key: &[u8]) -> usize {
        let Ok(rest) = self.rest_of(key) else {
            return block;
        };
        self.tree
            .first(|block| self.rest(block) > rest, block..self.len())
    }

    /// Where `block` lies in the file; for one past the last block the empty range at the end.
    #[inline]
    pub(super) fn place(&self, block: usize) -> Range<u64> {
        self.tree.place(block)
    }

    /// The block that the byte at `offset` of the file belongs to; for one behind all blocks their
    /// number.
    pub(super) fn block_at(&self, offset: u64) -> usize {
        self.tree
            .first(|block| self.place(block).end > offset, 0..self.len())
    }

    /// Bytes of the index in memory.
    pub(super) fn memory_bytes(&self) -> usize {
        self.common.len()
            + self.rests.len()
            + self.tree.memory_bytes()
            + size_of_val(self.ends.as_slice())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn separators_separate(
            mut keys in prop::collection::vec(prop::collection::vec(0xfcu8.., 0..5), 2),
        ) {
            keys.sort();
            let mut separator = Vec::new();
            separate(&keys[0], &keys[1], &mut separator);
            prop_assert!(keys[0] <= separator);
            prop_assert!(separator < keys[1] || keys[0] == keys[1]);
            prop_assert!(separator.len() <= keys[0].len());
        }

        #[test]
        fn finds_the_block_of_every_key(
            keys in prop::collection::btree_set(key(), 2..80),
            probes in prop::collection::vec(key(), 20),
            shared in prop::collection::vec(any::<u8>(), 0..3),
        ) {
            let keys: Vec<Vec<u8>> = keys.iter().map(|key| [&shared[..], key].concat()).collect();
            // One key per block; the separators are then as tight as they get.
            let mut builder = BlockIndexBuilder::default();
            for (at, key) in keys.iter().enumerate() {
                builder.add(key, keys.get(at + 1).map(Vec::as_slice), at as u64 + 1);
            }
            let mut bytes = Vec::new();
            builder.encode(&mut bytes);
            let total = (1..=keys.len() as u64).sum();
            let index = BlockIndex::decode(&bytes, total).unwrap();
            let separators: Vec<Vec<u8>> =
                (0..keys.len()).map(|block| index.separator(block)).collect();
            for probe in keys.iter().cloned().chain(probes).chain([vec![], vec![255; 40]]) {
                let expected = separators.partition_point(|separator| *separator < probe);
                prop_assert_eq!(index.find(&probe), expected);
                let is = separators.get(expected) == Some(&probe);
                prop_assert_eq!(index.is_separator(expected, &probe), is);
            }
            for (at, key) in keys.iter().enumerate() {
                prop_assert_eq!(index.find(key), at);
                prop_assert_eq!(index.block_at(index.place(at).start), at);
                prop_assert_eq!(index.block_at(index.place(at).end - 1), at);
            }
            prop_assert!(BlockIndex::decode(&bytes, total + 1).is_err());
        }

        #[test]
        fn decoding_takes_any_bytes_without_panic(bytes: Vec<u8>, count in 0u32..5, total: u8) {
            let _ = BlockIndex::decode(&bytes, u64::from(total));
            let counted = [&count.to_le_bytes()[..], &[0; 4], &bytes].concat();
            let _ = BlockIndex::decode(&counted, u64::from(total));
        }
    }

    #[test]
    fn a_large_index_is_searched_as_a_small_one_is() {
        let mut builder = BlockIndexBuilder::default();
        let evenly = (0..3000u64).map(|n| n << 50);
        let crowded = (0..3000u64).map(|n| (1 << 62) + n * n);
        let mut keys: Vec<[u8; 8]> = evenly.chain(crowded).map(big_endian).collect();
        keys.sort_unstable();
        for key in &keys {
            builder.add(key, None, 1);
        }
        let mut bytes = Vec::new();
        builder.encode(&mut bytes);
        let index = BlockIndex::decode(&bytes, keys.len() as u64).unwrap();
        for number in (0..1 << 20).map(|n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15)) {
            let key = big_endian(number);
            assert_eq!(index.find(&key), keys.partition_point(|found| *found < key));
        }
        for (at, key) in keys.iter().enumerate().skip(1) {
            assert_eq!(
                index.find(key),
                keys[..at].partition_point(|found| found < key)
            );
        }
    }

    /// Eight bytes that order as the number does.
    fn big_endian(number: u64) -> [u8; 8] {
        number.swap_bytes().to_le_bytes()
    }

    /// Keys that differ early, late (beyond eight bytes) or only in length.
    fn key() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            prop::collection::vec(any::<u8>(), 0..12),
            prop::collection::vec(0u8..2, 8..14),
            any::<u64>().prop_map(|number| number.to_le_bytes().to_vec()),
        ]
    }
}
