//! A search tree over the blocks of a table, laid out by cache lines.
//!
//! # Idea
//! A sorted array costs a cold line for nearly every step of a search. In this tree a line of eight
//! numbers is looked at as a whole, so a table of 5,000 blocks is three lines and a leaf deep, and
//! the lines above the leaves, 12 bytes per leaf, stay in the processor's caches. A leaf has the
//! numbers of seven blocks and beside them where the blocks lie: two lines, which the processor
//! fetches as a pair. So a search ends with one wait for memory, whatever the keys look like.
//!
//! # Layout
//! `upper` has the levels above the leaves one after the other, the lowest first. Line `i` of a
//! level has the largest numbers of the lines (or leaves) `8 i` to `8 i + 7` below it; where there
//! are none, `u64::MAX`.
//!
//! # Invariants
//! - T1: numbers ascend, equal neighbours are legal. Places without a block have `u64::MAX`.
//! - T2: `starts[i]` and `starts[i + 1]` of a leaf enclose its block `i`; the starts ascend.

use std::ops::Range;

use gabion_media::prefetch_line;

/// Numbers of a line.
const LINE: usize = 8;
/// Blocks of a leaf.
const LEAF: usize = 7;

#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Line([u64; LINE]);

#[derive(Clone, Copy, Debug)]
#[repr(align(128))]
struct Leaf {
    /// Of its blocks; the last place is spare.
    numbers: Line,
    starts: Line,
}

const _: () = assert!(size_of::<Leaf>() == 128);

/// The numbers and places of a table's blocks.
#[derive(Debug, Default)]
pub(super) struct BlockTree {
    leaves: Vec<Leaf>,
    upper: Vec<Line>,
    /// Where each level begins in `upper`, the root last.
    levels: Vec<usize>,
    len: usize,
    last: u64,
    end: u64,
}

impl BlockTree {
    /// The tree of blocks with these numbers, which ascend, and these lengths; they lie one after
    /// the other from 0 on.
    pub(super) fn new(blocks: impl Iterator<Item = (u64, u64)>) -> BlockTree {
        let mut tree = BlockTree::default();
        let empty = |start| Leaf {
            numbers: Line([u64::MAX; LINE]),
            starts: Line([start; LINE]),
        };
        for (number, length) in blocks {
            let place = tree.len % LEAF;
            if place == 0 {
                tree.leaves.push(empty(tree.end));
            }
            tree.end += length;
            if let Some(leaf) = tree.leaves.last_mut() {
                leaf.numbers.0[place] = number;
                leaf.starts.0[place + 1..].fill(tree.end);
            }
            tree.last = number;
            tree.len += 1;
        }
        tree.leaves.shrink_to_fit();
        let largest = |leaf: &Leaf| leaf.numbers.0[LEAF - 1];
        let mut below: Vec<u64> = tree.leaves.iter().map(largest).collect();
        while below.len() > 1 {
            let level = tree.upper.len();
            tree.levels.push(level);
            for numbers in below.chunks(LINE) {
                let mut line = Line([u64::MAX; LINE]);
                line.0[..numbers.len()].copy_from_slice(numbers);
                tree.upper.push(line);
            }
            let largest = |line: &Line| line.0[LINE - 1];
            below = tree.upper[level..].iter().map(largest).collect();
        }
        tree.upper.shrink_to_fit();
        tree
    }

    /// Number of blocks.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The first block whose number is at least `wanted`; [`BlockTree::len`] when there is none.
    #[inline]
    pub(super) fn find(&self, wanted: u64) -> usize {
        if wanted > self.last {
            return self.len;
        }
        let leaf = self.leaf_of(wanted);
        let numbers = self.leaves.get(leaf).map(|leaf| &leaf.numbers);
        leaf * LEAF + numbers.map_or(0, |line| count_below(line, wanted))
    }

    /// Asks for the memory that [`BlockTree::find`] ends with.
    #[inline]
    pub(super) fn prefetch(&self, wanted: u64) {
        if let Some(leaf) = self.leaves.get(self.leaf_of(wanted)) {
            prefetch_line((&raw const leaf.numbers).cast());
            prefetch_line((&raw const leaf.starts).cast());
        }
    }

    /// The leaf of the first block whose number is at least `wanted`, if there is one.
    #[inline]
    fn leaf_of(&self, wanted: u64) -> usize {
        let mut at = 0;
        for level in self.levels.iter().rev() {
            let line = self.upper.get(level + at);
            at = at * LINE + line.map_or(0, |line| count_below(line, wanted));
        }
        at
    }

    /// The number of a block; `None` when there is no such block.
    #[inline]
    pub(super) fn number(&self, block: usize) -> Option<u64> {
        if block >= self.len {
            return None;
        }
        let leaf = self.leaves.get(block / LEAF)?;
        leaf.numbers.0.get(block % LEAF).copied()
    }

    /// Where `block` lies in the file; for one past the last block the empty range at the end.
    #[inline]
    pub(super) fn place(&self, block: usize) -> Range<u64> {
        let Some(leaf) = self.leaves.get(block / LEAF) else {
            return self.end..self.end;
        };
        match leaf.starts.0.get(block % LEAF..) {
            Some([start, end, ..]) => *start..*end,
            _ => self.end..self.end,
        }
    }

    /// The first block for which `is_behind` holds; it must hold for all blocks behind that, too.
    #[inline]
    pub(super) fn first(&self, is_behind: impl Fn(usize) -> bool, among: Range<usize>) -> usize {
        let (mut low, mut high) = (among.start, among.end);
        while low < high {
            let middle = low.midpoint(high);
            if is_behind(middle) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        low
    }

    /// Bytes in memory.
    pub(super) fn memory_bytes(&self) -> usize {
        size_of_val(self.leaves.as_slice())
            + size_of_val(self.upper.as_slice())
            + size_of_val(self.levels.as_slice())
    }
}

#[inline]
fn count_below(line: &Line, wanted: u64) -> usize {
    line.0
        .iter()
        .map(|number| usize::from(*number < wanted))
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn finds_what_a_search_of_the_sorted_numbers_finds(
            mut numbers in prop::collection::vec(
                prop_oneof![0..40u64, any::<u64>(), Just(u64::MAX), Just(u64::MAX - 1)],
                0..1200,
            ),
            probes: Vec<u64>,
        ) {
            numbers.sort_unstable();
            let length = |at: usize| at as u64 % 5 + 1;
            let blocks = numbers.iter().enumerate().map(|(at, number)| (*number, length(at)));
            let tree = BlockTree::new(blocks);
            prop_assert_eq!(tree.len(), numbers.len());
            let near = numbers.iter().flat_map(|number| {
                [number.wrapping_sub(1), *number, number.wrapping_add(1)]
            });
            for probe in near.chain(probes).chain([0, u64::MAX]) {
                let expected = numbers.partition_point(|number| *number < probe);
                prop_assert_eq!(tree.find(probe), expected);
                tree.prefetch(probe);
            }
            let mut start = 0;
            for (at, number) in numbers.iter().enumerate() {
                prop_assert_eq!(tree.number(at), Some(*number));
                prop_assert_eq!(tree.place(at), start..start + length(at));
                start += length(at);
            }
            for behind in numbers.len()..numbers.len() + 9 {
                prop_assert_eq!(tree.number(behind), None);
                prop_assert_eq!(tree.place(behind), start..start);
            }
        }
    }
}
