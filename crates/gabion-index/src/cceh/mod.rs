//! CCEH: cache-line-conscious extendible hashing.
//!
//! # Idea
//! A directory of words leads from the first bits of a hash to a *segment*, 16 KiB of buckets of
//! one cache line; the last bits of the hash name a bucket in it, and an entry lies in that bucket
//! or in one of the three behind. So a lookup reads the directory and few neighbouring lines. When
//! an entry finds no room, its segment alone is split by one more bit, and the directory is doubled
//! when a segment has as many bits as it. Nothing says whether a slot holds an entry but the key
//! itself: a key whose hash does not begin as those of the segment do is none. So what a split
//! moves away need not be deleted. Readers take no lock.
//!
//! # Layout
//! ```text
//! root      | magic, seed, capacity, ... check | directory | 0 ...                 128 bytes
//! directory | entry 0 | entry 1 | ... | entry 2^G-1 |                              8 bytes each
//! segment   | bucket 0 | bucket 1 | ... | bucket 255 |                             aligned to 256
//! bucket    | key value | key value | key value | key value |                      64 bytes
//! ```
//! The word `directory` has the offset in its low 48 bits and G, the *global depth*, above. An
//! entry of it has the offset of a segment and its *local depth* L: all keys whose hashes begin
//! with the same L bits are in the segment. Tables that are planned for few entries have smaller
//! segments.
//!
//! # Invariants
//! - I1. The 2^(G-L) entries of the directory for a segment of depth L are equal, except while it
//!   is split: then the last of them names the new segment, and the first names the old one until
//!   all others are durable. While a new segment takes the place of one, some name the one and some
//!   the other, and the first one counts.
//! - I2. A pair is an entry of its segment if the first L bits of its key's hash are those of the
//!   segment. It lies in the bucket that the last bits name or in one of the three behind, in a
//!   circle, and a key is there once.
//! - I3. A key is stored after its value, in the same line, and is durable after it.
//! - I4. Entries of the directory name only segments, and the root only a directory, all of which
//!   is durable.
//! - I5. A segment, and the entries that name it, change under the lock of its first stripe, and
//!   the directory as a whole under `growth`. One hold of a lock changes one key, or splits.
//!
//! # Linearization point
//! Insert and delete: the store of the key. Update: the store of the value. Reads: the load that
//! decided, if the stripe's word and the entry of the directory are the same afterwards.
//!
//! # Durability point
//! The persist of that store, before the lock is released. A reader whose stripe is held flushes
//! the buckets that it may have read before it answers, so that no answer is lost in a crash.
//!
//! | operation | flushed lines | persists |
//! |---|---|---|
//! | insert, update, delete | the bucket | 1 |
//! | split | the new segment, past the cache; its entries | 2; 4 if several lines |
//! | doubling | the new directory, past the cache; the word `directory` | 2 |
//! | replacement | the new segment, past the cache; its entries | 2 |
//!
//! # Recovery
//! Reads the directory. A split that its last entry shows is completed (I1); otherwise it did not
//! begin, and its segment is free. Entries that name another segment of the same depth are led to
//! where the first one leads.
//!
//! # Two ways to split
//! [`Cceh<false>`](Cceh) leaves the entries that moved where they are: they are none any more. With
//! [`Cceh<true>`](Cceh) both halves are new segments, the paper's copy-on-write split.
//!
//! # Scopes
//! The published code, which the dissertation measured, has a scope of eight buckets, `SCOPE` here,
//! and looks for a free slot from a second home on, by a second hash function, before it splits:
//! `TWICE`. Both fill segments more before they are split, and make absent keys dearer. The second
//! home is named by other bits of the same hash.
//!
//! # As the base of a layered index
//! [`Layered`](crate::Layered) puts write buffers above a table whose word `directory` lies in its
//! root block. It knows of segments as ranges of hashes, and of nothing else. It may store many
//! pairs at once, in a new segment that takes the place of the old one (`renew.rs`).
//!
//! # Deviations from the paper
//! - A segment has no header: its depth is in the directory. It is 16 KiB, not 16 KiB and a line.
//! - No key is reserved for empty slots: an empty slot has a key of the other half of all hashes.
//!   So a segment's depth is 1 at least.
//! - Locks are in DRAM, one for each of the first bits of hashes; readers take none.
//! - The entries of the directory change in an order of which each stage tells what comes next; the
//!   paper's recovery compares depths from one side.
//! - Entries keep their slots in a split. Keys are looked for before they are inserted.
//! - Splits of one segment end with an error when it has 40 bits: keys that are equal in so many
//!   bits of a hash with a secret seed do not occur, and the published code crashes after 16.
//!
//! # The paper's terms
//! | paper | here |
//! |---|---|
//! | directory, global depth, segment, local depth | `extendible` |
//! | lazy deletion | I2: `Segment::owns` |
//! | segment split, directory doubling, MSB | `extendible/split.rs` |
//! | out-of-place merging (Spot-On) | `cceh/renew.rs`, `extendible/renew.rs` |
//! | caching the directory (Spot-On) | `extendible/mirror.rs` |
//! | recovery of a split | `extendible/recovery.rs` |
//!
//! Source: M. Nam and others, "Write-optimized dynamic hashing for persistent memory", FAST 2019.

mod check;
mod image;
mod layout;
mod readpath;
mod renew;
#[cfg(test)]
mod renewed;
mod split;
#[cfg(test)]
mod tests;
mod writepath;

use gabion_media::pmem::{Medium, POff, Pool, RoomRequest};

use crate::extendible::{self, Extendible, FirstHalf, segment_end};
use crate::index::{IndexPlan, Makers, index_of_words};
use crate::line::LINE_BYTES;
use crate::registered::Registered;
use crate::root::{self, ROOT_BYTES, RootFacts};
use crate::spoton::search_starts::told;
use crate::{Result, Seed};
use layout::planned_depth;
pub(crate) use layout::{PAIRS, segment_bits};
#[cfg(test)]
pub(crate) use renewed::{TINY_RENEWED, TINY_RENEWED_CACHED};

/// A hash table of words in a pool of persistent memory. `COPIES` says how segments are split: with
/// copies of both halves, or of one. An entry lies in one of `SCOPE` buckets from its home on, a
/// power of two; with `TWICE` it has two homes. Only tables with a scope of 4 and one home are the
/// base of [`Layered`](crate::Layered).
pub struct Cceh<const COPIES: bool, const SCOPE: u64 = 4, const TWICE: bool = false> {
    medium: Medium,
    seed: Seed,
    segments: Extendible,
    /// Binary logarithm of the number of buckets of a segment.
    segment_bits: u32,
    /// Two keys, whose hashes begin with 0 and with 1.
    fillers: [u64; 2],
    pool: Pool,
}

impl<const COPIES: bool, const SCOPE: u64, const TWICE: bool> Cceh<COPIES, SCOPE, TWICE> {
    const LAYOUT: u64 = match (SCOPE, TWICE) {
        (layout::SCOPE, false) => u64::from_le_bytes(*b"GbCceh_1"),
        (8, false) => u64::from_le_bytes(*b"GbCceh_8"),
        (8, true) => u64::from_le_bytes(*b"GbCceh_2"),
        _ => panic!("a layout has a name of its own"),
    };

    /// Makes an empty table the root of `pool`. A crash before the return leaves the table or a
    /// pool without root.
    ///
    /// # Errors
    /// The pool has a root already, or no space for all planned segments: nothing has changed then.
    pub fn create(pool: &Pool, plan: IndexPlan) -> Result<Self> {
        root::expect_room(pool, ROOT_BYTES, Self::planned_parts(plan.capacity))?;
        let facts = RootFacts::create(pool, Self::LAYOUT, ROOT_BYTES, plan)?;
        let this = Self::with(pool, facts, Some(0))?;
        this.presplit(plan.capacity)?;
        Ok(this)
    }

    /// Finds the table that is the root of `pool`.
    ///
    /// # Errors
    /// No such table there, or a damaged one.
    pub fn open(pool: &Pool) -> Result<Self> {
        Self::with(pool, RootFacts::open(pool, Self::LAYOUT)?, None)
    }

    fn with(pool: &Pool, facts: RootFacts, entries: Option<u64>) -> Result<Self> {
        let first_half = match COPIES {
            true => FirstHalf::MayBeCopied,
            false => FirstHalf::Stays,
        };
        let segments = |bytes| Extendible::new(pool, facts.behind(), bytes, first_half, entries);
        Self::of(pool, facts.seed, facts.capacity, segments)
    }

    /// What a table of so many entries has in the beginning.
    pub(crate) fn planned_parts(capacity: u64) -> Vec<RoomRequest> {
        let bits = Self::bits_of_segments(capacity);
        extendible::planned_parts(planned_depth(capacity, bits), LINE_BYTES << bits)
    }

    /// Finds the table whose directory is named by the word at `word`, or makes one if that is 0.
    /// Its segments may be replaced as a whole.
    pub(crate) fn at(pool: &Pool, word: u64, seed: u64, capacity: u64) -> Result<Self> {
        let may_be = FirstHalf::MayBeCopied;
        let segments = |bytes| Extendible::new(pool, POff::new(word), bytes, may_be, None);
        Self::of(pool, seed, capacity, segments)
    }

    /// The table of segments of so many bytes.
    fn of(
        pool: &Pool,
        seed: u64,
        capacity: u64,
        segments: impl FnOnce(u64) -> Extendible,
    ) -> Result<Self> {
        let seed = Seed::new(seed);
        let filler = |bit| (0..).find(|key| seed.hash_u64(*key) >> 63 == bit);
        let segment_bits = Self::bits_of_segments(capacity);
        let bytes = LINE_BYTES << segment_bits;
        let this = Cceh {
            medium: Medium::clone(pool),
            segments: segments(bytes),
            segment_bits,
            fillers: [0, 1].map(|bit| filler(bit).unwrap_or_default()),
            seed,
            pool: pool.clone(),
        };
        let empty = |bit: u64| this.empty_segment(bit << 63);
        this.segments.recover(empty, |_| Ok(()))?;
        Ok(this)
    }

    /// The table with its directory in DRAM as well, so that lookups read nothing of the pool but
    /// buckets (Spot-On's guideline C). All writes must go through this handle then. What is in the
    /// pool is the same. Reads the directory.
    #[must_use]
    pub fn cached(mut self) -> Self {
        self.segments.keep_in_dram();
        self
    }

    /// Bytes of DRAM that the directory takes there.
    pub fn dram_bytes(&self) -> u64 {
        self.segments.dram_bytes()
    }

    /// Splits the segments of an empty table until there are as many as so many entries need.
    pub(crate) fn presplit(&self, capacity: u64) -> Result<()> {
        let depth = planned_depth(capacity, self.segment_bits);
        let split = |segment, hash| self.split(segment, hash);
        self.segments.presplit(depth, split)
    }

    /// Binary logarithm of the number of buckets of a segment, in a table that is planned for so
    /// many entries.
    fn bits_of_segments(capacity: u64) -> u32 {
        segment_bits(capacity).max(SCOPE.ilog2())
    }

    /// The hash of a key: its first bits lead to a segment, its last ones to a bucket.
    #[inline]
    pub(crate) fn hash(&self, key: u64) -> u64 {
        self.seed.hash_u64(key)
    }

    /// Binary logarithm of the number of buckets of a segment.
    #[inline]
    pub(crate) fn segment_bits(&self) -> u32 {
        self.segment_bits
    }

    /// The first hash behind those of the segment to which `hash` leads, or did a moment ago, if
    /// there is one.
    pub(crate) fn end_of_segment(&self, hash: u64) -> Option<u64> {
        segment_end(self.segments.segment(hash), hash)
    }
}

index_of_words!(
    [const COPIES: bool, const SCOPE: u64, const TWICE: bool],
    Cceh<COPIES, SCOPE, TWICE>
);

const fn registered<const COPIES: bool, const SCOPE: u64, const TWICE: bool>(
    name: &'static str,
    title: &'static str,
) -> Registered {
    let words = Cceh::<COPIES, SCOPE, TWICE>::MAKERS;
    Registered::hash_of_words(name, title, "Nam and others, FAST 2019", words)
}

/// What the registry knows.
pub(crate) static REGISTERED: Registered = registered::<false, 4, false>("cceh", "CCEH");

/// What the registry knows of the variant whose splits copy both halves.
pub(crate) static COPYING: Registered =
    registered::<true, 4, false>("cceh-cow", "CCEH with copy-on-write splits");

/// The same with a scope of eight buckets.
pub(crate) static SCOPE_8: Registered =
    registered::<true, 8, false>("cceh-cow-8", "CCEH with copy-on-write splits, scope 8");

/// The same with two homes for a key: the published code.
pub(crate) static TWO_HOMES: Registered = registered::<true, 8, true>(
    "cceh-cow-8-two",
    "CCEH with copy-on-write splits, scope 8 and two hash functions",
);

/// What the registry knows of the table with its directory in DRAM.
pub(crate) static CACHED: Registered = Registered::hash_of_words(
    "cceh-c",
    "CCEH, directory in DRAM",
    "Nam and others, FAST 2019",
    Makers {
        pool_options: Cceh::<false>::pool_options,
        create: |pool, plan| {
            let table = Cceh::<false>::create(pool, plan);
            Ok(told::<true, _>(table, |table| Ok(table.cached()))?)
        },
        open: |pool| {
            let table = Cceh::<false>::open(pool);
            Ok(told::<true, _>(table, |table| Ok(table.cached()))?)
        },
        create_ordered: None,
    },
);
