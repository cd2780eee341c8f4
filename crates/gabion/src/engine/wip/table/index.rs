//! Which block a key lies in, for a few cache lines.
//!
//! # Idea
//! Per block the index has a separator: the shortest string that is at least the last key of the
//! block and below the first key of the next. (For the last block it is the last key itself.) The
//! block of a key is the first one whose separator is at least the key. The search runs over a flat
//! array of the separators' first eight bytes as numbers, taken after the prefix that all
//! separators share; whole separators are compared only on ties. Since keys are often spread
//! evenly, the search guesses the place from the number and gallops from there: three to five cache
//! lines in a large index, where binary search takes up to ten. Where the guess is bad, it costs at
//! most twice the steps of binary search. (Measured with 24 tables of 16,000 blocks: 160 ns, binary
//! search 340 ns; correcting the guess once or twice before galloping made it slower.)
//!
//! # Layout of the encoded index
//! u32 number of blocks, u32 length of the shared prefix, the shared prefix; then per block:
//! varint length of the block in bytes, varint length of the separator after the prefix, these
//! bytes. The blocks lie in this order without gaps from offset 0 of the file.
//!
//! # Invariants
//! - I1: separators ascend (equal neighbours are legal: one key's versions fill several blocks).
//! - I2: `starts` has one more element than there are blocks, starts with 0 and ascends strictly.
//! - I3: `prefixes[i] == prefix_of(separator i)`, hence ascending.
#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used))]

use std::ops::Range;

use super::layout::{Checked, Reader, after_prefix, common_len, is_same, put_varint};
use crate::types::prefix_of;

/// Indexes with fewer blocks are searched by halving alone: they fit the first-level cache, where a
/// guess costs more than the steps it saves.
const GUESSED_BLOCKS_MIN: usize = 1024;

/// First step of the gallop: the numbers of one cache line.
const GALLOP_STEP: usize = 8;

/// Collects the index while the table is written.
#[derive(Debug, Default)]
pub(super) struct IndexBuilder {
    lens: Vec<u64>,
    ends: Vec<usize>,
    separators: Vec<u8>,
}

impl IndexBuilder {
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
pub(super) struct Index {
    common: Vec<u8>,
    prefixes: Vec<u64>,
    /// Positions in `prefixes` per step of a prefix, on average.
    density: f64,
    starts: Vec<u64>,
    ends: Vec<usize>,
    rests: Vec<u8>,
}

impl Index {
    /// Decodes the index of a table whose blocks have `data_bytes` together.
    pub(super) fn decode(bytes: &[u8], data_bytes: u64) -> Checked<Index> {
        let mut reader = Reader { bytes };
        let count = reader.u32().ok_or("the index does not parse")?;
        let common_len = reader.u32().ok_or("the index does not parse")?;
        let common = reader
            .take(common_len as usize)
            .ok_or("the index does not parse")?;
        let mut index = Index {
            common: common.to_vec(),
            prefixes: Vec::new(),
            density: 0.0,
            starts: vec![0],
            ends: Vec::new(),
            rests: Vec::with_capacity(reader.bytes.len()),
        };
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
            index.starts.push(start);
            index.prefixes.push(prefix_of(rest));
            index.rests.extend_from_slice(rest);
            index.ends.push(index.rests.len());
        }
        if !reader.bytes.is_empty() || count == 0 || start != data_bytes {
            return Err("the index does not cover the blocks");
        }
        index.settle();
        Ok(index)
    }

    fn settle(&mut self) {
        let span = match (self.prefixes.first(), self.prefixes.last()) {
            (Some(first), Some(last)) => last - first,
            _ => 0,
        };
        self.density = (self.prefixes.len() - 1) as f64 / span.max(1) as f64;
        self.prefixes.shrink_to_fit();
        self.starts.shrink_to_fit();
        self.ends.shrink_to_fit();
        self.rests.shrink_to_fit();
    }

    /// Number of blocks.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.prefixes.len()
    }

    /// The first block whose separator is at least `key`; [`Index::len`] when there is none.
    #[inline]
    pub(super) fn find(&self, key: &[u8]) -> usize {
        let rest = match self.rest_of(key) {
            Ok(rest) => rest,
            Err(block) => return block,
        };
        let wanted = prefix_of(rest);
        let block = self.find_prefix(wanted);
        if self.prefixes.get(block) == Some(&wanted) {
            self.find_among_ties(block, wanted, rest)
        } else {
            block
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

    /// The first block whose number is at least `wanted`.
    #[inline]
    fn find_prefix(&self, wanted: u64) -> usize {
        let prefixes = self.prefixes.as_slice();
        let (Some(first), Some(last)) = (prefixes.first(), prefixes.last()) else {
            return 0;
        };
        if wanted <= *first {
            return 0;
        }
        if wanted > *last {
            return prefixes.len();
        }
        if prefixes.len() < GUESSED_BLOCKS_MIN {
            return prefixes.partition_point(|prefix| *prefix < wanted);
        }
        let steps = |distance: u64| {
            #[expect(clippy::cast_possible_truncation, reason = "saturates, by intention")]
            #[expect(clippy::cast_sign_loss, reason = "never negative")]
            let steps = (distance as f64 * self.density) as usize;
            steps
        };
        let guess = steps(wanted - first).min(prefixes.len() - 1);
        gallop(prefixes, guess, wanted)
    }

    #[cold]
    fn find_among_ties(&self, first: usize, wanted: u64, rest: &[u8]) -> usize {
        let ties = self.prefixes.get(first..).unwrap_or_default();
        let (mut low, mut high) = (
            first,
            first + ties.partition_point(|found| *found == wanted),
        );
        while low < high {
            let middle = low.midpoint(high);
            if self.rest(middle) < rest {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
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
    /// key that [`Index::find`] placed here.
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
        let (mut low, mut high) = (block, self.len());
        while low < high {
            let middle = low.midpoint(high);
            if self.rest(middle) <= rest {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// Where `block` lies in the file; for one past the last block the empty range at the end.
    #[inline]
    pub(super) fn place(&self, block: usize) -> Range<u64> {
        let end_of_all = self.starts.last().copied().unwrap_or_default();
        let start = self.starts.get(block).copied().unwrap_or(end_of_all);
        let end = self.starts.get(block + 1).copied().unwrap_or(end_of_all);
        start..end
    }

    /// The block that the byte at `offset` of the file belongs to.
    pub(super) fn block_at(&self, offset: u64) -> usize {
        self.starts
            .partition_point(|start| *start <= offset)
            .saturating_sub(1)
    }

    /// Bytes of the index in memory.
    pub(super) fn memory_bytes(&self) -> usize {
        self.common.len()
            + self.rests.len()
            + size_of_val(self.prefixes.as_slice())
            + size_of_val(self.starts.as_slice())
            + size_of_val(self.ends.as_slice())
    }
}

/// The first position of ascending `numbers` with at least `wanted`, looked for around `guess` in
/// steps that double.
///
/// Requires `numbers[0] < wanted <= numbers[last]`.
#[inline]
fn gallop(numbers: &[u64], guess: usize, wanted: u64) -> usize {
    let below = |at: usize| numbers.get(at).is_some_and(|number| *number < wanted);
    let (mut low, mut high, mut step) = (guess, guess, GALLOP_STEP);
    if below(guess) {
        while below(high) {
            low = high + 1;
            high += step;
            step *= 2;
        }
        high = high.min(numbers.len());
    } else {
        while low > 0 && !below(low) {
            high = low;
            low = low.saturating_sub(step);
            step *= 2;
        }
        low += usize::from(below(low));
    }
    let between = numbers.get(low..high).unwrap_or_default();
    low + between.partition_point(|number| *number < wanted)
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
        fn galloping_finds_what_binary_search_finds(
            mut numbers in prop::collection::vec(0u64..300, 1..400),
            wanted in 0u64..302,
            guess in 0usize..400,
        ) {
            numbers.sort_unstable();
            prop_assume!(numbers[0] < wanted && wanted <= numbers[numbers.len() - 1]);
            let guess = guess % numbers.len();
            let expected = numbers.partition_point(|number| *number < wanted);
            prop_assert_eq!(gallop(&numbers, guess, wanted), expected);
        }

        #[test]
        fn finds_the_block_of_every_key(
            keys in prop::collection::btree_set(key(), 2..80),
            probes in prop::collection::vec(key(), 20),
            shared in prop::collection::vec(any::<u8>(), 0..3),
        ) {
            let keys: Vec<Vec<u8>> = keys.iter().map(|key| [&shared[..], key].concat()).collect();
            // One key per block; the separators are then as tight as they get.
            let mut builder = IndexBuilder::default();
            for (at, key) in keys.iter().enumerate() {
                builder.add(key, keys.get(at + 1).map(Vec::as_slice), at as u64 + 1);
            }
            let mut bytes = Vec::new();
            builder.encode(&mut bytes);
            let total = (1..=keys.len() as u64).sum();
            let index = Index::decode(&bytes, total).unwrap();
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
            prop_assert!(Index::decode(&bytes, total + 1).is_err());
        }

        #[test]
        fn decoding_takes_any_bytes_without_panic(bytes: Vec<u8>, count in 0u32..5, total: u8) {
            let _ = Index::decode(&bytes, u64::from(total));
            let counted = [&count.to_le_bytes()[..], &[0; 4], &bytes].concat();
            let _ = Index::decode(&counted, u64::from(total));
        }
    }

    #[test]
    fn a_large_index_is_searched_as_a_small_one_is() {
        let mut builder = IndexBuilder::default();
        let evenly = (0..3000u64).map(|n| n << 50);
        let crowded = (0..3000u64).map(|n| (1 << 62) + n * n);
        let mut keys: Vec<[u8; 8]> = evenly.chain(crowded).map(big_endian).collect();
        keys.sort_unstable();
        for key in &keys {
            builder.add(key, None, 1);
        }
        let mut bytes = Vec::new();
        builder.encode(&mut bytes);
        let index = Index::decode(&bytes, keys.len() as u64).unwrap();
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
