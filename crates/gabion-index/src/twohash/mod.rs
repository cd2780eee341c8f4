//! Hash tables with two hash functions that are rebuilt when full: the common part of Level
//! hashing's baselines.
//!
//! # Idea
//! A key has a few slots where it may be, by two hashes; a [`Scheme`] says which, in what order
//! they are filled, and how many entries an insert may move to make room. A table that has no room
//! is replaced by one of twice the size, into which every entry is inserted. Nothing needs a log:
//! as in Level hashing, a token of one bit is the only thing that makes an entry. Readers take no
//! lock.
//!
//! # Layout
//! ```text
//! root   | magic, seed, capacity, ... check | table | note | 0 ...                 128 bytes
//! table  | lines, as the scheme orders them |
//! line   | tokens | key value | key value | key value | 0 |                64 bytes, `line.rs`
//! ```
//! The word `table` has the offset of the table and the binary logarithm of the number of places
//! that a hash chooses from (`LineArray` in `line.rs`).
//!
//! # Invariants
//! - I1. An entry lies in a slot that its key may be in, and a key has one entry, except while it
//!   is being moved: then its two entries are equal, and `note` names the one that goes.
//! - I2. Tokens name only pairs that are durable when the token is; `table` names only a table all
//!   of which is.
//! - I3. What a hash leads to changes only under the lock of its stripe, and `table` only under all
//!   of them. An operation holds the locks of both hashes of its key; a movement has no other. The
//!   stash is filled under a lock of its own besides. Where slots of one line have different locks
//!   (`SLOTS_HAVE_LOCKS`, and the stash), tokens change by atomic operations only.
//!
//! # Linearization point
//! Insert and delete: the store of the tokens. Update: the store of the value. Reads: the load that
//! decided, if both stripes' words and the table are the same afterwards; a movement changes the
//! words between its two halves. A rebuilt table has the content of the one before.
//!
//! # Durability point
//! The persist of that store, before the locks are released. A reader one of whose stripes is held
//! flushes the lines of its key before it answers.
//!
//! | operation | flushed lines | persists |
//! |---|---|---|
//! | insert, update, delete | the line | 1 |
//! | each movement | the note; the line it goes to; the line it leaves | 3 |
//! | rebuild | one for each entry, and those of its movements; `table` | as many |
//!
//! # Values of several words
//! With buckets of two cache lines ([`Scheme::Bucket`]), updates are those of
//! [`level`](crate::level): log-free if the line has a free slot and all of its slots have one
//! lock, else by the log behind the root, which recovery ends first.
//!
//! # Recovery
//! Reads the root, and the stash if there is one. If the entry that `note` names has an equal in
//! another slot of its key, it goes.

mod check;
mod moves;
mod readpath;
mod rebuild;
mod recovery;
#[cfg(test)]
pub(crate) mod tests;
mod writepath;

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};

use gabion_media::media_struct;
use gabion_media::pmem::{Medium, PAtomicU64, POff, Pool};
use parking_lot::Mutex;

use crate::bucket::Bucket;
use crate::index::{IndexPlan, index_of_words};
use crate::line::{LINE_BYTES, LineArray};
use crate::lock::Stripes;
use crate::registered::Registered;
use crate::root::{self, RootFacts};
use crate::update_log::UpdateLog;
use crate::{Result, Seed};

/// Slots of one line that a key may be in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CandidateSlots {
    /// Number of the line in its table.
    pub line: u64,
    /// A bit for each slot.
    pub slots: u64,
}

impl CandidateSlots {
    /// All of so many slots of a line.
    #[inline]
    #[must_use]
    pub fn whole(line: u64, slots: usize) -> CandidateSlots {
        CandidateSlots {
            line,
            slots: (1 << slots) - 1,
        }
    }
}

/// Where a table keeps its entries.
pub trait Scheme: Send + Sync + 'static {
    /// What is called a line here: a cache line, or a bucket of two of them.
    type Bucket: Bucket;

    /// What kind of structure the pool is told that it holds; the magic of the root as well.
    const LAYOUT: u64;

    /// Binary logarithm of the least number of places that a hash chooses from.
    const BITS_MIN: u32;

    /// How many entries may be moved, one making room for the next, for one insert. If it is not 0,
    /// the line of a place has the place's number.
    const MOVES_MAX: usize;

    /// Places that an entry may be moved to are looked for in so many lines at most.
    const SEARCHED_MAX: usize;

    /// Whether one line may have slots that no hash leads to together, and so slots with different
    /// locks.
    const SLOTS_HAVE_LOCKS: bool;

    /// Lines of a table, without its stash.
    fn lines(bits: u32) -> u64;

    /// Lines of the stash, which follow: they take what has no room in its own slots.
    fn stash_lines(_bits: u32) -> u64 {
        0
    }

    /// Slots of a table, without its stash.
    fn slots(bits: u32) -> u64;

    /// Number of first bits of a hash that two hashes have in common if they lead to one slot.
    fn shared_bits(bits: u32) -> u32;

    /// Where a key with these hashes may be, in the order in which slots are filled.
    fn spots(bits: u32, hashes: [u64; 2]) -> impl Iterator<Item = CandidateSlots>;
}

media_struct! {
    /// What changes behind the root.
    struct State {
        /// The table.
        table: PAtomicU64,
        /// The slot that an entry is moved from.
        note: PAtomicU64,
        unused: [PAtomicU64; 6],
    }
}

const _: () = assert!(size_of::<State>() as u64 == LINE_BYTES);

/// A hash table of words in a pool of persistent memory.
///
/// [`Index::for_each`](crate::Index::for_each) holds all entries in memory, as they were at one
/// moment; writers wait while they are copied.
pub struct TwoHash<S: Scheme> {
    medium: Medium,
    seed: Seed,
    stripes: Stripes,
    /// The table in use.
    table: AtomicU64,
    /// Lines of its stash that ever had an entry.
    stash_used: AtomicU64,
    /// Held while an entry is put into the stash.
    stash: Mutex<()>,
    /// Held while an entry is moved, for there is one note.
    moving: Mutex<()>,
    /// Held by who rebuilds.
    growth: Mutex<()>,
    /// Entries that inserts moved.
    moves: AtomicU64,
    /// Updates that no single store makes.
    log: UpdateLog<S::Bucket>,
    facts: RootFacts,
    pool: Pool,
    scheme: PhantomData<S>,
}

impl<S: Scheme> TwoHash<S> {
    const LAYOUT: u64 = S::LAYOUT;

    /// Bytes behind the root.
    const BEHIND: u64 = size_of::<State>() as u64 + UpdateLog::<S::Bucket>::BYTES;

    /// Makes an empty table the root of `pool`. A crash before the return leaves the table or a
    /// pool without root.
    ///
    /// # Errors
    /// The pool has a root already, or no space for the planned table: nothing has changed then.
    pub fn create(pool: &Pool, plan: IndexPlan) -> Result<Self> {
        let bytes = bytes_of_table::<S>(rebuild::planned_bits::<S>(plan.capacity));
        let table = root::part(bytes, LINE_BYTES);
        root::expect_room(pool, Self::BEHIND, [table])?;
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
        let this = TwoHash {
            medium: Medium::clone(pool),
            seed: Seed::new(facts.seed),
            stripes: Stripes::new(entries),
            table: AtomicU64::new(0),
            stash_used: AtomicU64::new(0),
            stash: Mutex::default(),
            moving: Mutex::default(),
            growth: Mutex::default(),
            moves: AtomicU64::new(0),
            log: UpdateLog::new(pool, facts.behind::<State>().raw() + LINE_BYTES),
            facts,
            pool: pool.clone(),
            scheme: PhantomData,
        };
        this.recover()?;
        Ok(this)
    }

    fn state(&self) -> &State {
        self.medium.at(self.facts.behind())
    }

    /// Entries that inserts have moved (displacements) since the table was created or opened, those
    /// while it was built anew aside.
    pub fn moves(&self) -> u64 {
        // ORDER: Relaxed: a number of the past.
        self.moves.load(Ordering::Relaxed)
    }

    /// Slots of the table.
    pub fn slots(&self) -> u64 {
        S::slots(self.table().bits())
    }

    /// The table in use.
    #[inline]
    fn table(&self) -> LineArray {
        // ORDER: Acquire pairs with the release in `adopt`: the table is read as it was built.
        LineArray(self.table.load(Ordering::Acquire))
    }

    /// The hashes of a key.
    #[inline]
    fn hashes(&self, key: u64) -> [u64; 2] {
        let hash = self.seed.hash_u64(key);
        [hash, hash.rotate_left(32)]
    }

    /// The numbers of the stripes of a key's hashes in a table.
    #[inline]
    fn stripes_of(table: LineArray, hashes: [u64; 2]) -> [usize; 2] {
        hashes.map(|hash| Stripes::index(hash, S::shared_bits(table.bits())))
    }

    /// Where the line of a table with a number is.
    #[inline]
    fn line_at(table: LineArray, number: u64) -> POff<S::Bucket> {
        POff::new(table.offset() + number * S::Bucket::BYTES)
    }

    /// A line of a table that is in use, whose free slots are looked for.
    #[inline]
    fn line(&self, table: LineArray, number: u64) -> &S::Bucket {
        self.line_for(table, number, None)
    }

    /// A line of a table that is in use. A watcher is told what a search for `key` reads.
    #[inline]
    fn line_for(&self, table: LineArray, number: u64, key: Option<u64>) -> &S::Bucket {
        let line: &S::Bucket = self.medium.at(Self::line_at(table, number));
        line.touch(&self.medium, key);
        line
    }
}

/// Bytes of a table with so many bits.
fn bytes_of_table<S: Scheme>(bits: u32) -> u64 {
    (S::lines(bits) + S::stash_lines(bits)) * S::Bucket::BYTES
}

index_of_words!([S: Scheme], TwoHash<S>);

/// What the registry knows of a table with this scheme.
pub(crate) const fn registered<S: Scheme>(
    name: &'static str,
    title: &'static str,
    source: &'static str,
) -> Registered {
    Registered::hash_of_words(name, title, source, TwoHash::<S>::MAKERS)
}

/// The offset of a line's table in the word of a note, and the slot above it.
const NOTE_OFFSET_BITS: u32 = 48;

/// A note of a slot.
fn note_of<B>(line: POff<B>, slot: usize) -> u64 {
    line.raw() | (slot as u64) << NOTE_OFFSET_BITS
}
