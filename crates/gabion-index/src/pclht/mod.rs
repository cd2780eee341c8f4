//! P-CLHT: the cache-line hash table of RECIPE.
//!
//! # Idea
//! A bucket is one cache line with three pairs. All that most operations read, and all that they
//! write, is that line; so an insert, an update and a delete cost one flush and one fence each.
//! Where more keys fall into a bucket, spare buckets are chained to it. When a table has no spare
//! bucket left, a table of four times its size is built and takes its place. Readers take no lock.
//!
//! # Layout
//! ```text
//! root   | magic, seed, capacity, ... check | table | 0 ...                        128 bytes
//! table  | bucket 0 | bucket 1 | ... | bucket n-1 | spare 0 | ... | spare n/2-1 | given |
//! bucket | tokens | key value | key value | key value | next |                 64 bytes, `line.rs`
//! ```
//! The word `table` has the offset in its low 48 bits and the binary logarithm of n above. The home
//! of a key is the bucket with the number that the first bits of its hash are. The last line of a
//! table has one word: spares with this number and above were never given out.
//!
//! In DRAM there are the locks, by the first bits of hashes, and the mirror of the word `table`.
//!
//! # Forms
//! That is the form [`Best`]. Others ([`Form`], with a table of them) have what the
//! write-amplification study found in the published code, and each of its optimisations, to be
//! measured:
//!
//! - Without *cache flush coalescing* a pair is flushed and fenced before its token is stored,
//!   though both lie in one line: 2 persists for an insert.
//! - With *locks in buckets* the word of the tokens of each home has a lock above them (`locks.rs`,
//!   `line.rs`). What is stored to take it is flushed with the entry; what is stored to let it go
//!   stays in the cache, whose eviction is one line more for the medium. *Early eviction of
//!   volatile data* flushes it at once, without a fence. Growth takes the locks of all homes, and
//!   so writes to all of them. When such a table is opened, all homes are read and locks that are
//!   held are let go; its entries are counted by a walk.
//! - With *XPLine-aware unit sizing* a bucket is four lines, 256 bytes, each with three pairs and
//!   tokens of its own, so that an insert still flushes one line; only the last of them has a link.
//!   A spare is as large, and is flushed whole, four lines, when it is chained.
//!
//! All forms hold the invariants below, with *lock of its home* for *lock of its stripe*.
//!
//! # Invariants
//! - I1. The entries of a bucket and of the spares chained to it are those whose home it is, each
//!   key once.
//! - I2. A chain ends, and no spare is in two of them: a spare is given out once, and is linked
//!   once, at the end of a chain, after all of it is durable.
//! - I3. Tokens name only pairs that are durable when the token is (`line.rs`).
//! - I4. The word `table` names only a table all of which is durable.
//! - I5. A bucket, and what is chained to it, changes only under the lock of its stripe; the word
//!   `table` only under all of them. One hold of a lock changes one key.
//!
//! # Linearization point
//! Insert: the store of the tokens, or of the link to the spare that holds the entry. Update: the
//! store of the value. Delete: the store of the tokens. Reads: the load that decided, if the
//! stripe's word and the place of the table are the same afterwards.
//!
//! # Durability point
//! The persist of that store, before the lock is released. A reader whose stripe is held flushes
//! what it read before it answers, as the writer's flush may still be to come; so no answer is lost
//! in a crash.
//!
//! | operation | flushed lines | persists |
//! |---|---|---|
//! | insert, update, delete | the bucket | 1 |
//! | insert that chains a spare | the spare; the bucket before it | 2 |
//! | every 64th of these | and the number of spares given out | 2 |
//! | growth | all of the new table, past the cache; the word `table` | 2 |
//!
//! # Recovery
//! Reads the root and the last line of the table, and nothing else. Spares are given out in
//! batches; what a crash or a restart leaves of one, at most 63, is unused until the next growth.
//! What was built of a table that the word `table` does not name is free.
//!
//! # Growth
//! The thread that finds no spare takes all locks; threads that wait for one of them help, each
//! with a range of hashes at a time. A table is built past the cache, every line once, and readers
//! go on in the old one.
//!
//! # Deviations from the paper
//! - Tokens say which pairs are entries; there, the key 0 says that a pair is none. So all keys are
//!   allowed.
//! - The locks are in DRAM. On the medium they cost writes, and one that is held in a crash stays
//!   held until somebody looks for it.
//! - Keys are hashed with a seed, and the first bits name the bucket, not the last: so what was one
//!   bucket becomes four neighbours, and growth reads and writes both tables from front to back.
//! - Spares lie in the table's block, so nothing is lost or freed twice with the old table. When
//!   they are used up is the time to grow: at about 3.4 entries for each bucket.
//! - Values are replaced in place; the published code has no update.
//!
//! # The paper's terms
//! | there | here |
//! |---|---|
//! | `bucket_t`, `clht_hashtable_t`, `clht_t` | [`Line`], a table, [`PClht`] |
//! | `clht_put`, `clht_remove`, `clht_get` | `writepath.rs`, `readpath.rs` |
//! | `ht_resize_pes`, `ht_resize_help` | `resize.rs`: `rebuild`, `help` |
//! | `num_expands_threshold` | the number of spares |
//!
//! Source: S. K. Lee and others, "RECIPE: converting concurrent DRAM indexes to persistent-memory
//! indexes", SOSP 2019, section 6.1; CLHT: T. David, R. Guerraoui, V. Trigonakis, "Asynchronized
//! concurrency", ASPLOS 2015. Y. Woo and others, "Analysis and optimization of persistent memory
//! index structures' write amplification", 2021, sections II-B and IV.

mod check;
mod form;
mod locks;
mod readpath;
mod resize;
mod table;
#[cfg(test)]
mod tests;
mod writepath;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use gabion_media::pmem::{Medium, PAtomicU64, Pool};
use parking_lot::Mutex;

use crate::index::{IndexPlan, index_of_words};
use crate::line::Line;
use crate::lock::Stripes;
use crate::registered::Registered;
use crate::root::{self, RootFacts};
use crate::{Result, Seed};
pub use form::{Best, Coalesced, Evicting, EvictingWide, Form, LockPlace, Published, Wide};
use resize::ResizeJob;
use table::{SpareBuckets, TABLE_ALIGN, Table};

/// A hash table of words in a pool of persistent memory.
pub type PClht = ClhtTable<Best>;

/// As [`PClht`], in one of its forms.
pub struct ClhtTable<F: Form> {
    medium: Medium,
    seed: Seed,
    /// The locks, unless they are in the buckets.
    stripes: Stripes,
    /// The table in use, as [`Table`] packs it, with a number that changes with it.
    table: AtomicU64,
    spares: SpareBuckets,
    facts: RootFacts,
    /// Held by who builds a table.
    growth: Mutex<()>,
    /// What a thread that waits can help with, and whether there is anything.
    job: Mutex<Option<Arc<ResizeJob<F>>>>,
    has_job: AtomicBool,
    pool: Pool,
}

impl<F: Form> ClhtTable<F> {
    const LAYOUT: u64 = F::LAYOUT;

    /// Makes an empty table the root of `pool`. A crash before the return leaves the table or a
    /// pool without root.
    ///
    /// # Errors
    /// The pool has a root already, or no space.
    pub fn create(pool: &Pool, plan: IndexPlan) -> Result<Self> {
        let bits = Table::<F>::planned_bits(plan.capacity);
        let table = root::part(Table::<F>::new(0, bits).bytes(), TABLE_ALIGN);
        root::expect_room(pool, size_of::<Line>() as u64, [table])?;
        let facts = RootFacts::create(pool, Self::LAYOUT, size_of::<Line>() as u64, plan)?;
        Self::with(pool, facts, Some(0))
    }

    /// Finds the table that is the root of `pool`.
    ///
    /// # Errors
    /// No such table there, or a damaged one.
    pub fn open(pool: &Pool) -> Result<Self> {
        Self::with(pool, RootFacts::open(pool, Self::LAYOUT)?, None)
    }

    fn with(pool: &Pool, facts: RootFacts, entries: Option<u64>) -> Result<Self> {
        let _within = pool.write_guard();
        let mut this = ClhtTable {
            medium: Medium::clone(pool),
            seed: Seed::new(facts.seed),
            stripes: Stripes::new(entries),
            table: AtomicU64::new(0),
            spares: SpareBuckets::default(),
            facts,
            growth: Mutex::default(),
            job: Mutex::default(),
            has_job: AtomicBool::new(false),
            pool: pool.clone(),
        };
        match Table::<F>::read(pool, facts.behind())? {
            Some(table) => this.spares = table.find_spares(pool)?,
            None => {
                this.build_first(Table::<F>::planned_bits(facts.capacity))?;
                this.stripes = Stripes::new(Some(0));
            }
        }
        this.adopt();
        this.free_locks();
        Ok(this)
    }

    /// The word of the root that names the table.
    fn table_word(&self) -> &PAtomicU64 {
        self.medium.at(self.facts.behind())
    }
}

index_of_words!([F: Form], ClhtTable<F>, shrink);

const fn registered<F: Form>(name: &'static str, title: &'static str) -> Registered {
    let words = ClhtTable::<F>::MAKERS;
    let mut registered =
        Registered::hash_of_words(name, title, "Lee and others, RECIPE, SOSP 2019", words);
    if !F::IS_COALESCED {
        registered.persists.insert = 2;
    }
    registered
}

/// What the registry knows.
pub(crate) static REGISTERED: Registered = registered::<Best>("p-clht", "P-CLHT");

/// The form with wide buckets.
pub(crate) static WIDE: Registered = registered::<Wide>("p-clht-wide", "P-CLHT (256)");

/// The published form, and what the study's optimisations make of it, one after the other.
pub(crate) static PUBLISHED: Registered =
    registered::<Published>("p-clht-published", "P-CLHT (published)");
pub(crate) static COALESCED: Registered = registered::<Coalesced>("p-clht-fc", "P-CLHT (FC)");
pub(crate) static EVICTING: Registered = registered::<Evicting>("p-clht-fc-ve", "P-CLHT (FC, VE)");
pub(crate) static EVICTING_WIDE: Registered =
    registered::<EvictingWide>("p-clht-fc-ve-xs", "P-CLHT (FC, VE, XS)");
