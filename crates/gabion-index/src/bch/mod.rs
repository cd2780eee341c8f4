//! BCH: bucketized cuckoo hashing, the first of Level hashing's baselines.
//!
//! # Idea
//! A key has two buckets of a line each. If both are full, an entry of them moves to its other
//! bucket; if that is full too, one of that has to move first, and so on. So the table fills up to
//! nine tenths, and the fuller it is, the more entries move, each with two writes to the medium.
//!
//! # Layout, invariants, linearization, durability, recovery
//! Those of all tables with two hashes, see [`twohash`](crate::twohash). Bucket `b` is line `b`.
//!
//! # Deviations from the paper
//! - The chain of movements is the shortest one, found by breadth, as in MemC3 and libcuckoo; the
//!   original walks at random. Up to five entries move.
//! - Buckets have three slots, as those of Level hashing here; the slides have four.
//!
//! # The paper's terms
//! | paper | here |
//! |---|---|
//! | bucket, slot | line, pair |
//! | cuckoo path (MemC3) | [`moves`](crate::twohash), the movements of `make_room` |
//!
//! Sources: B. Fan, D. Andersen, M. Kaminsky, "MemC3", NSDI 2013; P. Zuo, Y. Hua, J. Wu, OSDI 2018,
//! which compares with it.

use std::marker::PhantomData;

use crate::bucket::Bucket;
use crate::line::{Line, PAIRS};
use crate::quad::Quad;
use crate::registered::Registered;
use crate::twohash::{CandidateSlots, Scheme, TwoHash, registered};

/// Two buckets for a key, and movements.
#[derive(Debug)]
pub struct Cuckoo<B = Line>(PhantomData<fn() -> B>);

/// A bucketized cuckoo hash table of words in a pool of persistent memory.
pub type Bch = TwoHash<Cuckoo>;

/// The same with the buckets of the Level hashing slides, of four slots and two cache lines.
pub type BchQuad = TwoHash<Cuckoo<Quad>>;

/// The places of a key in buckets of one line.
#[inline]
pub(crate) fn buckets(
    bits: u32,
    hashes: [u64; 2],
    slots: usize,
) -> impl Iterator<Item = CandidateSlots> {
    let [first, second] = hashes.map(|hash| hash >> (64 - bits));
    let second = (second != first).then_some(second);
    let lines = [Some(first), second].into_iter().flatten();
    lines.map(move |line| CandidateSlots::whole(line, slots))
}

impl<B: Bucket> Scheme for Cuckoo<B> {
    type Bucket = B;
    const LAYOUT: u64 = match B::SLOTS {
        PAIRS => u64::from_le_bytes(*b"GbBch__1"),
        _ => u64::from_le_bytes(*b"GbBch__Q"),
    };
    const BITS_MIN: u32 = 1;
    const MOVES_MAX: usize = 5;
    /// As many as the buckets up to the last movement but one.
    const SEARCHED_MAX: usize = 2 * (1 + 3 + 9 + 27 + 81);
    const SLOTS_HAVE_LOCKS: bool = false;

    fn lines(bits: u32) -> u64 {
        1 << bits
    }

    fn slots(bits: u32) -> u64 {
        B::SLOTS as u64 * Self::lines(bits)
    }

    fn shared_bits(bits: u32) -> u32 {
        bits
    }

    #[inline]
    fn spots(bits: u32, hashes: [u64; 2]) -> impl Iterator<Item = CandidateSlots> {
        buckets(bits, hashes, B::SLOTS)
    }
}

/// What the registry knows.
pub(crate) static REGISTERED: Registered = registered::<Cuckoo>(
    "bch",
    "BCH",
    "Fan, Andersen, Kaminsky, NSDI 2013; baseline of Zuo, Hua, Wu, OSDI 2018",
);

/// The same with buckets of two lines.
pub(crate) static QUADS: Registered = registered::<Cuckoo<Quad>>(
    "bch-quad",
    "BCH (four slots)",
    "Fan, Andersen, Kaminsky, NSDI 2013; baseline of Zuo, Hua, Wu, OSDI 2018",
);

#[cfg(test)]
mod tests {
    crate::twohash::tests::twohash_tests!(super::Cuckoo, super::REGISTERED);
}
