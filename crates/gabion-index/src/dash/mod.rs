//! Dash: extendible hashing with balanced buckets, tags and a stash.
//!
//! # Idea
//! A directory leads from the first bits of a hash to a *segment* of 16 KiB, as in CCEH. A segment
//! that is split as soon as some bucket is full is split half empty, so much is done here to fill
//! it first. An entry goes into the emptier of two neighbouring buckets, its *home* and the one
//! behind. If both are full, an entry of theirs that may also lie elsewhere makes room. If there is
//! none, the new one goes to the *stash*, buckets at the end of the segment that belong to all.
//! Only when that is full as well the segment is split. So that lookups do not pay for it, one byte
//! of each entry's hash, its *tag*, lies in front of its bucket, and each home notes the tags of
//! its entries in the stash: keys are compared only where tags are equal, and a lookup of an absent
//! key reads two lines. Readers take no lock and write nothing. After a crash the table is in use
//! when its directory is read; what was half done is mended by the writers that come there.
//!
//! # Layout
//! See `layout.rs`. In DRAM there is, after an open, a bit for each entry of the directory.
//!
//! ```text
//! segment | home 0 | home 1 | ... | home 61 | stash 0 | stash 1 |             16 KiB
//! bucket  | metadata | 14 tags | overflow | 14 slots of key and value |    256 bytes
//! ```
//!
//! # Invariants
//! - I1. The 2^(G-L) entries of the directory for a segment of depth L are equal, except while it
//!   is split.
//! - I2. An entry lies in its home, or in the bucket behind, where it is marked as away, or in the
//!   stash, where its home has a note of it: its tag and its bucket, or a count. There may be notes
//!   without entries.
//! - I3. A key has one entry, except while that is moved between two neighbours, and after a crash
//!   meanwhile until the first writer comes to the segment: then there are two equal ones, in the
//!   home and behind it.
//! - I4. Metadata names only slots, and slots name only records, that are durable by then; the
//!   directory names only segments that are. A note of the stash is durable before its entry is.
//! - I5. A slot changes only if no metadata names it, but for its value, which is one word. Readers
//!   look at the metadata again after the slots.
//! - I6. A segment, and the entries that name it, change under the lock of its first stripe. All
//!   entries that a split moves are gone from the old segment, durably, before it is over; one
//!   split at a time is under way, so recovery finds one at most.
//!
//! # Linearization point
//! Insert and delete: the store of the bucket's metadata. Update: the store of the value. Reads:
//! the second load of the metadata of the bucket that decided, if the stripe's word and the entry
//! of the directory are the same afterwards; a move changes the word between its two halves.
//!
//! # Durability point
//! The persist of that store, before the lock is released. A reader whose stripe is held flushes
//! the buckets that it may have read before it answers, so that no answer is lost in a crash.
//!
//! | operation | flushed lines | persists |
//! |---|---|---|
//! | insert | slot; metadata | 2 |
//! | insert into the stash | note and slot; metadata | 2 |
//! | insert that moves an entry | slot; metadata; metadata; slot; metadata | 5 |
//! | update, delete | value, or metadata | 1 |
//! | split | the new segment, past the cache; its entries; the old metadata | 3 |
//! | split with entries in several lines | also the last and the first of them | 5 |
//! | doubling | the new directory, past the cache; the word that names it | 2 |
//!
//! A tag lies in the line of its metadata. On x86-64 the stores to one line reach the medium in
//! their order, so it needs no flush. With keys that are strings their records join the first
//! persist of an insert, and a delete has one more.
//!
//! # Recovery
//! Reads the directory, and ends the split that its entries show. Everything else is lazy: the
//! first writer that takes the lock of a segment after an open drops entries that are there twice
//! (I3) and notes anew what is in the stash (I2). Readers need neither.
//!
//! # Deviations from the paper
//! - Locks are in DRAM, one for each of the first bits of hashes, with the versions by which
//!   readers see writers. In the paper each bucket has a lock word on the medium, which has to be
//!   cleared after a crash and is written with every operation.
//! - So is the knowledge which segments were looked through: no version of the table has to be
//!   compared with one of each segment, nor written to it; and what to mend is looked for after
//!   every open.
//! - A segment has 62 homes and a stash of 2 instead of 64 and 2, and no header: it is 16 KiB, and
//!   its depth is in the directory. Tables that are planned for few entries have smaller ones.
//! - A split is known by the order in which entries of the directory change, not by states of
//!   segments. Entries keep their slots, so that the new segment has room for them whatever they
//!   are; only those of the stash go home.
//! - A note of the stash that finds no room at home is counted there at once. The paper tries the
//!   bucket behind first; more than four notes are rare.
//! - A note is durable before the entry that it is about. The paper's are lost in a crash, so that
//!   readers must wait for the segment to be mended.
//! - Segments are not merged.
//!
//! # The paper's terms
//! | paper, section | here |
//! |---|---|
//! | fingerprint (4.2) | tag |
//! | target bucket, probing bucket (4.3) | home, the bucket behind |
//! | allocation bitmap, membership bitmap (4.1) | [`layout::BucketMeta`]: live, away |
//! | overflow metadata (4.3) | [`layout::OverflowMeta`] |
//! | balanced insert, displacement, stashing (4.3) | `writepath.rs`: `find_room`, `displace` |
//! | optimistic locking (4.4) | `lock.rs`, [`Extendible::read`] |
//! | variable-length keys (4.5) | `record.rs` |
//! | structural modification (4.7) | `split.rs`, `extendible` |
//! | instant recovery (4.8) | `recovery.rs` |
//!
//! Source: B. Lu, X. Hao, T. Wang, E. Lo, "Dash: scalable hashing on persistent memory", PVLDB
//! 13(8), 2020; of its two tables the extendible one, Dash-EH.

mod check;
mod layout;
mod readpath;
mod record;
mod recovery;
mod split;
#[cfg(test)]
mod tests;
mod writepath;

use std::marker::PhantomData;

use gabion_media::pmem::{Medium, Pool, PoolOptions};

use crate::extendible::Extendible;
use crate::index::{CheckSummary, Index, IndexPlan, Makers};
use crate::registered::{IndexKind, PersistCounts, ReadProtocol, Registered};
use crate::{Item, Result, Seed};
use layout::{SLOTS, SegmentShape};
use recovery::RecoveredSegments;

/// A hash table from `K`, `u64` or `[u8]`, to words in a pool of persistent memory. `USABLE` is the
/// number of slots of a bucket that are used, of fourteen; fewer are for tests.
///
/// All operations take `&self` and may be called from any thread. A write is durable when it
/// returns, as far as the class of the pool promises; see [`Pool`]. Lookups cost the wait for two
/// or three cache lines, writes that for one or two persists more; a split moves half of 16 KiB.
pub struct Dash<K: Item + ?Sized, const USABLE: u32 = 14> {
    medium: Medium,
    segments: Extendible,
    shape: SegmentShape,
    seed: Seed,
    mended: RecoveredSegments,
    pool: Pool,
    keys: PhantomData<fn(&K)>,
}

impl<K: Item + ?Sized> Dash<K> {
    /// Options of pools for such tables: the layout id, and how recovery finds what is in use.
    /// Whoever makes or opens the pool sets the rest.
    #[must_use]
    pub fn pool_options() -> PoolOptions {
        Self::options()
    }

    /// Makes an empty table the root of `pool`. A crash before the return leaves the table or a
    /// pool without root.
    ///
    /// # Errors
    /// The pool has a root already, or no space for all planned segments: nothing has changed then.
    pub fn create(pool: &Pool, plan: IndexPlan) -> Result<Self> {
        Self::make(pool, plan)
    }

    /// Finds the table that is the root of `pool`. Reads the directory, 8 bytes for each segment.
    ///
    /// # Errors
    /// No table there, one of other kinds of keys, or a damaged one.
    pub fn open(pool: &Pool) -> Result<Self> {
        Self::find(pool)
    }
}

#[cfg(test)]
impl<K: Item + ?Sized, const USABLE: u32> Dash<K, USABLE> {
    /// The segments.
    pub(crate) fn segments(&self) -> &Extendible {
        &self.segments
    }
}

const _: () = assert!(SLOTS == 14);

impl<K: Item + ?Sized, const USABLE: u32> Index<K> for Dash<K, USABLE> {
    #[inline]
    fn get(&self, key: &K) -> Result<Option<u64>> {
        self.lookup(key)
    }

    #[inline]
    fn insert(&self, key: &K, value: u64) -> Result<Option<u64>> {
        self.put(key, value)
    }

    #[inline]
    fn update(&self, key: &K, value: u64) -> Result<Option<u64>> {
        self.replace(key, value)
    }

    #[inline]
    fn remove(&self, key: &K) -> Result<Option<u64>> {
        self.delete(key)
    }

    fn len(&self) -> Result<u64> {
        // Before the locks under which segments are counted, and looked through first.
        let _within = self.pool.write_guard();
        self.segments.entries(|| self.count())
    }

    fn for_each(&self, visit: &mut dyn FnMut(&K, u64)) -> Result<()> {
        crate::index::visit_by_hash(|from, entries| self.collect(from, entries), visit)
    }

    fn check(&self) -> Result<CheckSummary> {
        self.check_all()
    }

    fn pool(&self) -> &Pool {
        &self.pool
    }
}

const fn makers<K: Item + ?Sized, const USABLE: u32>() -> Makers<K> {
    Makers {
        pool_options: Dash::<K, USABLE>::options,
        create: |pool, plan| Ok(Box::new(Dash::<K, USABLE>::make(pool, plan)?)),
        open: |pool| Ok(Box::new(Dash::<K, USABLE>::find(pool)?)),
        create_ordered: None,
    }
}

const fn registered<const USABLE: u32>(name: &'static str) -> Registered {
    Registered {
        name,
        title: "Dash",
        kind: IndexKind::Hash,
        reads: ReadProtocol::Optimistic,
        persists: PersistCounts {
            insert: 2,
            update: 1,
            remove: 1,
        },
        source: "Lu, Hao, Wang, Lo, VLDB 2020",
        words: makers::<u64, USABLE>(),
        strings: Some(makers::<[u8], USABLE>()),
    }
}

/// What the registry knows.
pub(crate) static REGISTERED: Registered = registered::<SLOTS>("dash");

/// The same with buckets of three entries, so that a few keys make segments overflow and split.
#[cfg(test)]
pub(crate) static TINY: Registered = registered::<3>("dash-tiny");
