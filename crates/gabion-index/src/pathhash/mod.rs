//! Path hashing, the third of Level hashing's baselines.
//!
//! # Idea
//! No entry ever moves. Cells form a binary tree upside down: only the cells of the top level are
//! addressed by hashes, and each cell of a lower level stands by for the two above it. A key has
//! two paths, from two cells of the top down, and goes to the first free cell on them. Eight levels
//! are kept: those below would hold few cells and cost a look each. So an insert writes once, and a
//! lookup may have to look at sixteen cells that are far from each other.
//!
//! # Layout, invariants, linearization, durability, recovery
//! Those of all tables with two hashes, see [`twohash`](crate::twohash). Three cells share a line
//! and its tokens; each level begins with a line of its own.
//!
//! ```text
//! level 0   │0│1│2│3│4│5│6│7│    hash 1 ──► 2      hash 2 ──► 7
//! level 1   │ 0 │ 1 │ 2 │ 3 │               1                 3
//! level 2   │   0   │   1   │               0                 1
//! ```
//!
//! # Deviations from the paper
//! - A table of few cells has fewer levels, so that the two paths of a key need not meet.
//! - The paper logs; tokens make that needless, as in the comparison of the Level hashing slides.
//!
//! # The paper's terms
//! | paper | here |
//! |---|---|
//! | position sharing, standby position | the levels below 0 |
//! | double-path hashing | the two hashes |
//! | path shortening, reserved levels | [`LEVELS_MAX`] |
//!
//! Sources: P. Zuo, Y. Hua, "A write-friendly hashing scheme for non-volatile memory systems", MSST
//! 2017; P. Zuo, Y. Hua, J. Wu, OSDI 2018, which compares with it.

use std::marker::PhantomData;

use crate::bucket::Bucket;
use crate::line::{Line, PAIRS};
use crate::quad::Quad;
use crate::registered::Registered;
use crate::twohash::{CandidateSlots, Scheme, TwoHash, registered};

/// Levels of a table: the number that the paper finds best for its tables.
pub const LEVELS_MAX: u32 = 8;

/// Two paths for a key.
#[derive(Debug)]
pub struct Paths<B = Line>(PhantomData<fn() -> B>);

/// A path hash table of words in a pool of persistent memory.
pub type PathHash = TwoHash<Paths>;

/// The same with the buckets of the Level hashing slides, of four slots and two cache lines.
pub type PathHashQuad = TwoHash<Paths<Quad>>;

/// Levels of a table with so many bits.
#[inline]
fn levels(bits: u32) -> u32 {
    bits.min(LEVELS_MAX)
}

/// Lines of a level.
#[inline]
fn lines_of_level<B: Bucket>(bits: u32, level: u32) -> u64 {
    (1_u64 << (bits - level)).div_ceil(B::SLOTS as u64)
}

impl<B: Bucket> Scheme for Paths<B> {
    type Bucket = B;
    const LAYOUT: u64 = match B::SLOTS {
        PAIRS => u64::from_le_bytes(*b"GbPath_1"),
        _ => u64::from_le_bytes(*b"GbPath_Q"),
    };
    const BITS_MIN: u32 = 2;
    const MOVES_MAX: usize = 0;
    const SEARCHED_MAX: usize = 0;
    const SLOTS_HAVE_LOCKS: bool = true;

    fn lines(bits: u32) -> u64 {
        (0..levels(bits))
            .map(|level| lines_of_level::<B>(bits, level))
            .sum()
    }

    fn slots(bits: u32) -> u64 {
        (0..levels(bits)).map(|level| 1 << (bits - level)).sum()
    }

    fn shared_bits(bits: u32) -> u32 {
        bits + 1 - levels(bits)
    }

    #[inline]
    fn spots(bits: u32, hashes: [u64; 2]) -> impl Iterator<Item = CandidateSlots> {
        let [first, second] = hashes.map(|hash| hash >> (64 - bits));
        let mut begin = 0;
        (0..levels(bits)).flat_map(move |level| {
            let spot = move |cell: u64| CandidateSlots {
                line: begin + cell / B::SLOTS as u64,
                slots: 1 << (cell % B::SLOTS as u64),
            };
            let (one, two) = (first >> level, second >> level);
            let spots = [Some(spot(one)), (one != two).then(|| spot(two))];
            begin += lines_of_level::<B>(bits, level);
            spots.into_iter().flatten()
        })
    }
}

/// What the registry knows.
pub(crate) static REGISTERED: Registered = registered::<Paths>(
    "path",
    "Path hashing",
    "Zuo, Hua, MSST 2017; baseline of Zuo, Hua, Wu, OSDI 2018",
);

/// The same with buckets of two lines.
pub(crate) static QUADS: Registered = registered::<Paths<Quad>>(
    "path-quad",
    "Path hashing (four slots)",
    "Zuo, Hua, MSST 2017; baseline of Zuo, Hua, Wu, OSDI 2018",
)
.with_updates(3);

#[cfg(test)]
mod tests {
    crate::twohash::tests::twohash_tests!(super::Paths, super::REGISTERED);

    /// Cells 127 and 128 share a line, and stand below cells that no path has in common.
    #[test]
    fn cells_of_one_line_with_different_locks_keep_their_tokens() {
        let plan = crate::IndexPlan {
            capacity: 700,
            ..crate::suite::SMALL
        };
        let pool = crate::suite::pool(1 << 20, super::PathHash::pool_options());
        let table = super::PathHash::create(&pool, plan).expect("a table");
        assert_eq!(table.slots(), 1020, "four trees of 255 cells");
        let keys = [[127, 300], [128, 511]].map(|places| {
            let mut keys = tests::keys_of(&table, places);
            keys.next().expect("there are enough")
        });
        tests::neighbours_keep_their_tokens(&table, keys);
    }
}
