//! A node, as it lies in the pool: how children are found in it.
//!
//! Nothing in a node ever changes but the words of its children and the bit of its state that says
//! that it is given up.

use std::sync::atomic::Ordering;

use gabion_media::pmem::{Medium, PAtomicU64, POff};

use super::bits::{Position, extract, first_position, window};
use super::layout::{Child, DEAD, NodeShape, WINDOW_WORDS, height_of};
use crate::Item;

/// A node.
#[derive(Clone, Copy)]
pub(super) struct Node<'a> {
    words: &'a [PAtomicU64],
    shape: NodeShape,
    height: u32,
    /// Its offset, by which it is locked.
    pub(super) at: u64,
}

// ORDER: Acquire throughout: pairs with the releasing stores of children and states.
#[inline]
fn load(word: &PAtomicU64) -> u64 {
    word.peek(Ordering::Acquire)
}

impl<'a> Node<'a> {
    /// The node at an offset, if there can be one.
    #[inline]
    pub(super) fn new(medium: &'a Medium, at: u64) -> Option<Node<'a>> {
        let state: &PAtomicU64 = medium.try_at(POff::new(at))?;
        let state = load(state);
        let shape = NodeShape::of(state)?;
        let words = medium.try_slice(POff::new(at), shape.words())?;
        medium.touch_range(at, 8 * shape.children_at() as u64);
        Some(Node {
            words,
            shape,
            height: height_of(state),
            at,
        })
    }

    #[inline]
    pub(super) fn shape(&self) -> NodeShape {
        self.shape
    }

    /// Number of children.
    #[inline]
    pub(super) fn count(&self) -> usize {
        self.shape.children
    }

    /// More than that of each child.
    #[inline]
    pub(super) fn height(&self) -> u32 {
        self.height
    }

    /// Whether another node has taken its place.
    #[inline]
    pub(super) fn is_dead(&self) -> bool {
        load(&self.words[0]) & DEAD != 0
    }

    /// The word with a child.
    #[inline]
    pub(super) fn slot(&self, slot: usize) -> &'a PAtomicU64 {
        &self.words[self.shape.children_at() + slot]
    }

    /// A child.
    #[inline]
    pub(super) fn child(&self, slot: usize) -> Child {
        Child(load(self.slot(slot)))
    }

    /// Offsets and masks of the windows.
    #[inline]
    pub(super) fn windows(&self) -> impl Iterator<Item = (u64, u64)> + use<'a> {
        let (windows, _) = self.words[1..self.shape.lanes_at()].as_chunks::<WINDOW_WORDS>();
        windows
            .iter()
            .map(|[offset, mask]| (load(offset), load(mask)))
    }

    /// The first bit of keys that the node looks at.
    #[inline]
    pub(super) fn first_position(&self) -> Position {
        let first = self.windows().next();
        first.map_or(0, |(offset, mask)| first_position(offset, mask))
    }

    /// Reads the partial keys of the children.
    pub(super) fn read_lanes(&self, lanes: &mut [u32]) {
        let words = &self.words[self.shape.lanes_at()..self.shape.children_at()];
        match self.shape.lane_bits() {
            8 => unpack::<8>(words, lanes),
            16 => unpack::<16>(words, lanes),
            _ => unpack::<32>(words, lanes),
        }
    }

    /// The slot of the only child that a key can be below.
    #[inline]
    pub(super) fn find<K: Item + ?Sized>(&self, key: &K) -> usize {
        let mut partial = 0_u64;
        for (offset, mask) in self.windows() {
            let (bits, count) = extract(window(key, offset), mask);
            partial = partial.wrapping_shl(count) | bits;
        }
        let lanes = &self.words[self.shape.lanes_at()..self.shape.children_at()];
        let found = match self.shape.lane_bits() {
            8 => last_within::<8>(lanes, partial),
            16 => last_within::<16>(lanes, partial),
            _ => last_within::<32>(lanes, partial),
        };
        // The 1s behind the last lane are within a key of 1s only, as that lane then is too.
        found.min(self.shape.children - 1)
    }

    /// Says that the node is given up. Nothing leads here any more, and that is durable.
    pub(super) fn give_up(&self, medium: &Medium) {
        // ORDER: Release pairs with the acquire in `is_dead`. Nobody else writes under the lock.
        let state = load(&self.words[0]) | DEAD;
        self.words[0].store(medium, state, Ordering::Release);
    }

    /// Whether the node is as a form has it, but for its height and whether it is given up.
    pub(super) fn is_image(&self, image: &[u8]) -> bool {
        let (words, _) = image.as_chunks::<8>();
        let mut words = words.iter().map(|word| u64::from_le_bytes(*word));
        let shape = words.next().and_then(NodeShape::of);
        shape == Some(self.shape) && words.eq(self.words[1..].iter().map(load))
    }
}

/// The last of the lanes of so many bits whose 1s are all among those of a partial key.
#[inline]
fn last_within<const BITS: u32>(lanes: &[PAtomicU64], partial: u64) -> usize {
    let lane = u64::MAX >> (u64::BITS - BITS);
    // A 1 in each lane.
    let ones = u64::MAX / lane;
    let missing = !((partial & lane) * ones);
    let high = ones << (BITS - 1);
    let lanes_in_word = (u64::BITS / BITS) as usize;
    for (number, word) in lanes.iter().enumerate().rev() {
        let foreign = load(word) & missing;
        // The sum carries into the highest bit of a lane from those below it, and no further.
        let within = !(((foreign & !high) + (high - ones)) | foreign) & high;
        if within != 0 {
            let last = (u64::BITS - 1 - within.leading_zeros()) / BITS;
            return number * lanes_in_word + last as usize;
        }
    }
    0
}

/// Takes lanes of so many bits out of words.
fn unpack<const BITS: u32>(words: &[PAtomicU64], lanes: &mut [u32]) {
    let chunks = lanes.chunks_mut((u64::BITS / BITS) as usize);
    for (word, lanes) in words.iter().zip(chunks) {
        let mut word = load(word);
        for lane in lanes {
            // A lane has at most 32 bits.
            *lane = (word & (u64::MAX >> (u64::BITS - BITS)) & 0xffff_ffff) as u32;
            word >>= BITS;
        }
    }
}
