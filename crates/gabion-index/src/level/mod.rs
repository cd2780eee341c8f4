//! Level hashing: two levels of buckets, the lower one shared.
//!
//! # Idea
//! A key has two places in the top level, by two hashes, and two in the bottom level, which has
//! half as many buckets: two neighbours of the top share one below them. If all four are full, one
//! entry of them is moved to another of *its* places; at most one for each insert. If none can be,
//! the table is resized: a new top level of twice the size is put on it, the old top becomes the
//! bottom, and only the entries of the old bottom, a third of the buckets, are copied. Nothing
//! needs a log: a token, one bit, is the only thing that makes an entry. Readers take no lock.
//!
//! # Layout
//! ```text
//! root   | magic, seed, capacity, ... check | top | note | 0 ...                   128 bytes
//! level  | bucket 0 | bucket 1 | ... | bucket n-1 | below | 0 ...                  n + 1 lines
//! bucket | tokens | key value | key value | key value | 0 |                    64 bytes, `line.rs`
//! ```
//! The words `top` and `below` name levels (`Array` in `line.rs`): the top, the bottom, and below
//! that nothing. A level of 2^b buckets has a key in the buckets that the first b bits of its two
//! hashes are; the second hash is the first one turned by 32 bits. So below the buckets 2g and 2g+1
//! of the top lies bucket g: that is a *group*.
//!
//! # Invariants
//! - I1. An entry lies in one of the four buckets of its key, and a key has one entry, except while
//!   it is being moved: then its two entries are equal, and `note` names the one that goes.
//! - I2. Tokens name only pairs that are durable when the token is.
//! - I3. The words `top` and `below` name only levels all of which is durable. A third level has
//!   nothing that the others do not have.
//! - I4. A group changes only under the lock of its stripe, and levels only under all of them. An
//!   operation holds the locks of both groups of its key, and of a third if it moves an entry
//!   there.
//!
//! # Linearization point
//! Insert and delete: the store of the tokens. Update: the store of the value. Reads: the load that
//! decided, if both stripes' words and the top are the same afterwards; a movement changes the
//! words twice: when the entry is in both of its places, and when the token of the first one is
//! clear and the new pair is not yet written there.
//!
//! # Durability point
//! The persist of that store, before the locks are released. A reader one of whose stripes is held
//! flushes the four buckets before it answers, so that no answer is lost in a crash.
//!
//! | operation | flushed lines | persists |
//! |---|---|---|
//! | insert, update, delete | the bucket | 1 |
//! | insert that moves an entry | the note; the bucket it goes to; the bucket it leaves | 3 |
//! | resize | the new level, past the cache; `top`; `below` | 3 |
//!
//! # Recovery
//! Reads the root and the words `below`. Ends what was half done: if the entry that `note` names
//! has an equal in another bucket of its key, it goes; if there is a third level, it is freed.
//! Nothing is rehashed or searched.
//!
//! # Padding
//! Buckets of the published code have 72 bytes, for their compiler aligned what follows the tokens:
//! "unintended bloat", says the write-amplification study (section IV-A), and removes it.
//! [`form::Padded`] has it still, to be measured. There seven of eight buckets lie in
//! two cache lines, and where a pair ends in another line than its token lies in, as half of them
//! do, it takes a flush and a fence of its own before the token's: 2 persists for such an insert,
//! and up to 5 if it moves an entry. While an entry is moved the old one's token may be durable
//! beside half of the new pair: key and value are then those of an entry that has an equal, which
//! `note` names, or all of the new one's. For the key lies in the line of the tokens if the pair
//! lies in two, and so the new one is not there before the old token has gone. All else is the
//! same.
//!
//! # Values of several words
//! The slides have buckets of 128 bytes with four slots, for items of several words, and
//! [`form::Quads`] has them (`quad.rs`). No store replaces such a value. So an update is log-free
//! where it can be: if the bucket of the entry has a free slot, the new value is written there with
//! the key, and one store of the tokens ends the old entry and makes the new one. Else a log has
//! the new value until it stands in its place (`update_log.rs`). Readers of such a bucket look at
//! its lane of the log as well. An entry of the second line is persisted before its token, and an
//! entry that is moved away from there has its token cleared durably before its slot is used again.
//!
//! | operation | flushed lines | persists |
//! |---|---|---|
//! | insert; update with a free slot | the slot, if it is in the second line; tokens | 1; 2 |
//! | update without one | the record; the line of the entry; the record | 3 |
//!
//! [`form::LoggedQuads`] always takes the log, which the slides compare with.
//! [`form::StreamedQuads`] grows as [`LevelHash`] does; the others insert entry by entry.
//!
//! # Deviations from the paper
//! - A value of [`LevelHash`] is a word, which one store replaces, and its bucket a cache line with
//!   three slots.
//! - The note makes recovery look at four buckets; the paper's finds equal entries when it meets
//!   them.
//! - Buckets are numbered by the first bits of the hashes. So the buckets of a group become four
//!   neighbours, and a resize copies each bucket of the old bottom to four of the new top, where
//!   its three entries always fit: both are read and written from front to back, and readers go on.
//! - Keys are looked for before they are inserted, as an insert replaces.
//! - Movements are tried over both levels at once: an entry goes to any other place of its own.
//!   [`form::Quads`] moves within a level.
//!
//! # The paper's terms
//! | paper | here |
//! |---|---|
//! | top level, bottom level, interim level | `Levels`, the third level |
//! | token | a bit of the tokens of a [`Bucket`] |
//! | insertion, at most one movement | `writepath.rs`: `put`, `make_room` |
//! | in-place resizing | `resize.rs`: `grow` |
//! | opportunistic log-free update | `writepath.rs`: `change`; [`Bucket::exchange`] |
//!
//! Source: P. Zuo, Y. Hua, J. Wu, "Write-optimized and high-performance hashing index scheme for
//! persistent memory", OSDI 2018.

mod check;
pub mod form;
mod places;
mod readpath;
mod recovery;
mod resize;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod update_tests;
mod writepath;

use std::sync::atomic::AtomicU64;

use gabion_media::media_struct;
use gabion_media::pmem::{Medium, PAtomicU64, Pool};
use parking_lot::Mutex;

use crate::bucket::Bucket;
use crate::index::{IndexPlan, index_of_words};
use crate::line::LINE_BYTES;
use crate::lock::Stripes;
use crate::registered::Registered;
use crate::root::{self, RootFacts};
use crate::update_log::UpdateLog;
use crate::{Result, Seed};
use form::{Form, Lines, LoggedQuads, Padded, Quads, StreamedQuads};
use places::{LEVEL_ALIGN, planned_bits};

media_struct! {
    /// What changes behind the root.
    struct State {
        /// The top level.
        top: PAtomicU64,
        /// The slot that an entry is moved from: the offset of its bucket, the slot above.
        note: PAtomicU64,
        unused: [PAtomicU64; 6],
    }
}

const _: () = {
    assert!(size_of::<State>() as u64 == LINE_BYTES);
    assert!(std::mem::offset_of!(State, note) == 8);
};

/// A hash table of words in a pool of persistent memory.
pub type LevelHash = LevelTable<Lines>;

/// A table in one of its [forms](form). [`LevelHash`] is the one for use; the others are there to
/// be measured.
///
/// [`Index::for_each`](crate::Index::for_each) holds all entries in memory, as they were at one
/// moment; writers wait while they are copied.
pub struct LevelTable<F: Form> {
    medium: Medium,
    seed: Seed,
    stripes: Stripes,
    /// The top level in use.
    top: AtomicU64,
    /// Held while an entry is moved, for there is one note.
    moving: Mutex<()>,
    /// Held by who resizes.
    growth: Mutex<()>,
    /// Inserts that moved an entry.
    moves: AtomicU64,
    /// Updates that no single store makes.
    log: UpdateLog<F::Bucket>,
    facts: RootFacts,
    pool: Pool,
}

impl<F: Form> LevelTable<F> {
    const LAYOUT: u64 = F::LAYOUT;

    /// Bytes behind the root.
    const BEHIND: u64 = size_of::<State>() as u64 + UpdateLog::<F::Bucket>::BYTES;

    /// Makes an empty table the root of `pool`. A crash before the return leaves the table or a
    /// pool without root.
    ///
    /// # Errors
    /// The pool has a root already, or no space for the planned table: nothing has changed then.
    pub fn create(pool: &Pool, plan: IndexPlan) -> Result<Self> {
        let bits = planned_bits(plan.capacity, F::Bucket::SLOTS);
        let levels = [bits - 1, bits].map(|bits| Self::bytes_of_level(1 << bits));
        let levels = levels.map(|bytes| root::part(bytes, LEVEL_ALIGN));
        root::expect_room(pool, Self::BEHIND, levels)?;
        let facts = RootFacts::create(pool, Self::LAYOUT, Self::BEHIND, plan)?;
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
        let this = LevelTable {
            medium: Medium::clone(pool),
            seed: Seed::new(facts.seed),
            stripes: Stripes::new(entries),
            top: AtomicU64::new(0),
            moving: Mutex::default(),
            growth: Mutex::default(),
            moves: AtomicU64::new(0),
            log: UpdateLog::new(pool, facts.behind::<State>().raw() + LINE_BYTES),
            facts,
            pool: pool.clone(),
        };
        this.recover()?;
        Ok(this)
    }

    fn state(&self) -> &State {
        self.medium.at(self.facts.behind())
    }

    /// Entries that inserts have moved (displacements) since the table was created or opened.
    pub fn moves(&self) -> u64 {
        // ORDER: Relaxed: a number of the past.
        self.moves.load(std::sync::atomic::Ordering::Relaxed)
    }
}

index_of_words!([F: Form], LevelTable<F>);

const fn registered<F: Form>(name: &'static str, title: &'static str) -> Registered {
    let words = LevelTable::<F>::MAKERS;
    Registered::hash_of_words(name, title, "Zuo, Hua, Wu, OSDI 2018", words)
}

/// What the registry knows.
pub(crate) static REGISTERED: Registered = registered::<Lines>("level", "Level hashing");

/// The same with the padding of the published code.
pub(crate) static PADDED: Registered =
    registered::<Padded>("level-padded", "Level hashing (padded)");

/// The same with the slides' buckets.
pub(crate) static QUADS: Registered =
    registered::<Quads>("level-quad", "Level hashing (four slots)").with_updates(2);

/// The same with a growth past the cache.
pub(crate) static STREAMED: Registered =
    registered::<StreamedQuads>("level-quad-nt", "Level hashing (four slots, streamed)")
        .with_updates(2);

/// The same with a log for every update.
pub(crate) static LOGGED: Registered =
    registered::<LoggedQuads>("level-quad-log", "Level hashing (four slots, logged)")
        .with_updates(3);
