//! PFHT: a hash table for phase-change memory, the second of Level hashing's baselines.
//!
//! # Idea
//! Bucketized cuckoo hashing writes much because one insert may move many entries. Here it moves
//! one; what has no room then goes to a stash, which is searched from its begin to the last line
//! that was ever used. So writes are few, and lookups of keys that are not there, or in the stash,
//! get slower as the stash fills.
//!
//! # Layout, invariants, linearization, durability, recovery
//! Those of all tables with two hashes, see [`twohash`](crate::twohash). Bucket `b` is line `b`;
//! the stash, a line for each 32 buckets, follows the last bucket. Recovery reads the tokens of the
//! stash to find out how much of it is in use.
//!
//! # Deviations from the paper
//! - The paper's buckets are larger than one cache line of a CPU; these have three slots, as those
//!   of Level hashing here.
//! - The paper deletes and updates through a log; tokens make that needless, as in the comparison
//!   of the Level hashing slides.
//!
//! # The paper's terms
//! | paper | here |
//! |---|---|
//! | at most one displacement | [`Scheme::MOVES_MAX`] |
//! | stash | `twohash/writepath.rs`: `put_into_stash` |
//!
//! Sources: B. Debnath et al., "Revisiting hash table design for phase change memory", INFLOW 2015;
//! P. Zuo, Y. Hua, J. Wu, OSDI 2018, which compares with it.

use crate::bch::buckets;
use std::marker::PhantomData;

use crate::bucket::Bucket;
use crate::line::{Line, PAIRS};
use crate::quad::Quad;
use crate::registered::Registered;
use crate::twohash::{CandidateSlots, Scheme, TwoHash, registered};

/// Two buckets for a key, one movement, and a stash.
#[derive(Debug)]
pub struct Stashed<B = Line>(PhantomData<fn() -> B>);

/// A PFHT of words in a pool of persistent memory.
pub type Pfht = TwoHash<Stashed>;

/// The same with the buckets of the Level hashing slides, of four slots and two cache lines.
pub type PfhtQuad = TwoHash<Stashed<Quad>>;

/// Binary logarithm of the number of buckets for which there is a line of the stash: 3 percent.
const STASH_SHIFT: u32 = 5;

impl<B: Bucket> Scheme for Stashed<B> {
    type Bucket = B;
    const LAYOUT: u64 = match B::SLOTS {
        PAIRS => u64::from_le_bytes(*b"GbPfht_1"),
        _ => u64::from_le_bytes(*b"GbPfht_Q"),
    };
    const BITS_MIN: u32 = 1;
    const MOVES_MAX: usize = 1;
    const SEARCHED_MAX: usize = 2;
    const SLOTS_HAVE_LOCKS: bool = false;

    fn lines(bits: u32) -> u64 {
        1 << bits
    }

    fn stash_lines(bits: u32) -> u64 {
        (1 << bits >> STASH_SHIFT).max(1)
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
pub(crate) static REGISTERED: Registered = registered::<Stashed>(
    "pfht",
    "PFHT",
    "Debnath et al., INFLOW 2015; baseline of Zuo, Hua, Wu, OSDI 2018",
);

/// The same with buckets of two lines.
pub(crate) static QUADS: Registered = registered::<Stashed<Quad>>(
    "pfht-quad",
    "PFHT (four slots)",
    "Debnath et al., INFLOW 2015; baseline of Zuo, Hua, Wu, OSDI 2018",
);

#[cfg(test)]
mod tests {
    use crate::Index;

    crate::twohash::tests::twohash_tests!(super::Stashed, super::REGISTERED);

    /// Six keys of two buckets fill them; the next one has its place in the stash.
    #[test]
    fn entries_of_one_line_of_the_stash_keep_their_tokens() {
        let plan = crate::IndexPlan {
            capacity: 100,
            ..crate::suite::SMALL
        };
        let pool = crate::suite::pool(1 << 20, super::Pfht::pool_options());
        let table = super::Pfht::create(&pool, plan).expect("a table");
        let keys = [[0, 1], [2, 3]].map(|places| {
            let mut keys = tests::keys_of(&table, places);
            for key in keys.by_ref().take(6) {
                table.insert(&key, key).expect("space");
            }
            keys.next().expect("there are enough")
        });
        tests::neighbours_keep_their_tokens(&table, keys);
    }
}
