//! Clevel hashing: levels of buckets that are added and removed during lookups and writes, without
//! locks on buckets. Lookups never wait; a writer waits for a thread that adds a level or moves its
//! entry.
//!
//! # Idea
//! As in Level hashing, a key has two places, by two hashes, in each of two levels, one twice as
//! large as the other. But slots hold no pairs: the word of a slot is a tag of the key and the
//! offset of an *item*, key and value, which never changes. So an insert, an update and a delete
//! take effect by one exchange of one word, and readers read. When there is no room, a level twice
//! as large as the first is put before it, which takes no entry from anywhere, and everything goes
//! on in three levels. The last one is then emptied bucket by bucket by the inserts that come, and
//! dropped. Which levels there are is one word too, the *context*: who finds it changed looks again
//! if what was looked for was not there. Lookups go from the last level to the first, as entries
//! do, and so cannot miss one on its way.
//!
//! # Layout
//! See `layout.rs`. In DRAM there are the context, and marks of keys whose words may not be durable
//! yet, 16 KiB.
//!
//! ```text
//! root   | magic, seed, capacity, ... check | moved | 0 ... | level 0, level 1, ... |   448 bytes
//! level  | bucket 0 | bucket 1 | ... | bucket 2^b - 1 |
//! bucket | slot | slot | slot | slot | slot | slot | slot | slot |                       64 bytes
//! slot   | tag: 14, state: 2, offset of an item: 48 bits |                                8 bytes
//! ```
//!
//! # Invariants
//! - I1. An item is durable before a slot names it, and changes no more until its entry is gone and
//!   every reader of that time.
//! - I2. A key has one entry. An item is *announced* in a slot first, where lookups do not see it,
//!   and becomes the entry only if its slot was left alone and no other place of the key had
//!   anything after that. Of two that are announced, the later one sees the other.
//! - I3. A level is durable before the context tells of it, and the context changes only by one
//!   more level at the front or one less at the end.
//! - I4. Slots of the last level are *closed* before it goes: nobody takes them. An entry there is
//!   *leaving* from before its item is in another level until after that is durable. Writers wait
//!   as long as an entry is leaving, also who finds the copy, and so nothing changes that is in
//!   two slots.
//! - I5. One bucket is moved at a time. It and the one before are the only ones where the medium
//!   may have entries that are elsewhere too. An entry is durable before its item is in another
//!   level: recovery knows the two for one by that item.
//! - I6. Nobody relies on a word that is not durable: who finds a key marked after reading its
//!   places makes them durable.
//!
//! # Linearization point
//! Insert of a new key: the exchange that makes the announced item an entry. Insert, update, and
//! delete of one that is there: the exchange of its word. A lookup that finds its key: the load of
//! the word. One that does not: some moment between the loads of its places. A key that is there
//! all the time is found if the context is the same before and after, as it moves only the way that
//! a lookup goes. So if it is not found, it came or went meanwhile or was not there at all.
//!
//! # Durability point
//! The persist of the slot after that exchange, by the writer or by whoever saw it before.
//!
//! | operation | flushed lines | persists |
//! |---|---|---|
//! | insert | the item and its intent; the slot; the item's state: 4 | 2 |
//! | update | the item and two intents; the slot; the states of both items: 6 | 2 |
//! | delete | the intent; the slot; the item's state: 3 | 2 |
//! | move of a bucket, with an insert | a slot for each entry; the bucket and `moved` | 2 |
//! | a level more | the level, past the cache; its word | 2 |
//! | a level less | the allocator's note; its word | 2 |
//!
//! # Recovery
//! Reads the root. Looks through the bucket that was being moved and the one before: of what is in
//! another level as well, one of the two goes. What was only announced is taken back when recovery
//! of the pool asks whether the table refers to the item; each announcement has an intent of the
//! allocator. Nothing is searched for.
//!
//! # Deviations from the paper
//! - No key is ever there twice. In the paper two inserts of one key, or an insert that meets a
//!   resize, may leave two entries, which lookups and later writes then set right; a slot that is
//!   announced first makes that needless. So the answers are those of one table: linearizable,
//!   which the value before an insert shows.
//! - Slots of the last level are closed one by one, so an insert cannot come too late for the move.
//!   In the paper it looks at the context afterwards and inserts again.
//! - Buckets are moved by inserts, one by each, instead of a thread in the background: what a
//!   resize costs is where it can be measured, and a table that nobody writes to has no thread.
//! - A writer waits for another one in three places: to an entry that is being moved, for one
//!   bucket; to an item whose writer has not told the allocator yet, as a block belongs to the
//!   thread that reserved it until then; and for a new level. The first and the last wait on
//!   the mutexes `moving` and `growth`. The paper's writers do not, but for its allocator.
//! - Which levels there are is told by one word of two numbers, and the levels are in an array by
//!   their sizes. The paper's context is an object on the medium that is replaced.
//! - An item is taken by its offset, not its address.
//!
//! # The paper's terms
//! | paper, section | here |
//! |---|---|
//! | global context, first level, last level (3.1) | [`places::Context`] |
//! | slot, tag (3.1) | [`layout::SlotWord`] |
//! | key-value item | item |
//! | resizing, rehashing threads (3.2) | `resize.rs`: `grow`, `advance` |
//! | bottom-to-top search (3.3) | `find` |
//! | context-aware insertion (3.3) | closed slots |
//! | duplicate non-equivalent items (3.3) | not there: `is_alone` |
//!
//! Source: Z. Chen, Y. Hua, B. Ding, P. Zuo, "Lock-free concurrent level hashing for persistent
//! memory", USENIX ATC 2020.

mod check;
mod item;
mod layout;
mod places;
mod readpath;
mod recovery;
mod resize;
#[cfg(test)]
mod scenes;
#[cfg(test)]
mod tests;
mod writepath;

use std::marker::PhantomData;
use std::sync::atomic::AtomicU64;

use gabion_media::pmem::{Medium, POff, Pool};
use parking_lot::Mutex;

use crate::index::{CheckSummary, Index, Makers};
use crate::pending::PendingCells;
use crate::registered::{IndexKind, PersistCounts, ReadProtocol, Registered};
use crate::root::ROOT_BYTES;
use crate::{Item, Result, Seed};
use layout::{LEVELS, SLOTS, TableState};
use writepath::KeyChange;

/// A hash table from `K`, `u64` or `[u8]`, to words in a pool of persistent memory. `USED` is the
/// number of slots of a bucket that are used, of eight; fewer are for tests.
///
/// All operations take `&self` and may be called from any thread. A write is durable when it
/// returns, as far as the class of the pool promises; see [`Pool`]. An update needs space for an
/// item, as an insert does; a delete needs none. In a full pool an update may fail although enough
/// was replaced or deleted before: the heaps of other threads may hold what is free, and what a
/// reader may still see is not.
///
/// Buckets are moved by inserts and by `compact`: a table that is only read, updated and deleted
/// from keeps the levels that it has, three for instance.
pub struct Clevel<K: Item + ?Sized, const USED: usize = SLOTS> {
    medium: Medium,
    seed: Seed,
    /// Which levels there are: a [`places::Context`].
    context: AtomicU64,
    /// Offsets of levels by their bits, also of some that are no more.
    levels: [AtomicU64; LEVELS],
    /// Hashes of keys whose words may not be durable yet.
    pending: PendingCells,
    /// Held by who adds a level.
    growth: Mutex<()>,
    /// Held by who moves entries, or wants that nobody does.
    moving: Mutex<()>,
    root: u64,
    pool: Pool,
    keys: PhantomData<fn(&K)>,
}

impl<K: Item + ?Sized, const USED: usize> Clevel<K, USED> {
    fn state(&self) -> &TableState {
        self.medium.at(POff::new(self.root + ROOT_BYTES))
    }
}

impl<K: Item + ?Sized, const USED: usize> Index<K> for Clevel<K, USED> {
    #[inline]
    fn get(&self, key: &K) -> Result<Option<u64>> {
        self.lookup(key)
    }

    #[inline]
    fn insert(&self, key: &K, value: u64) -> Result<Option<u64>> {
        self.write(key, KeyChange::Insert(value))
    }

    #[inline]
    fn update(&self, key: &K, value: u64) -> Result<Option<u64>> {
        self.write(key, KeyChange::Update(value))
    }

    #[inline]
    fn remove(&self, key: &K) -> Result<Option<u64>> {
        self.write(key, KeyChange::Remove)
    }

    /// Reads all slots.
    fn len(&self) -> Result<u64> {
        Ok(self.count())
    }

    /// While this goes on, no bucket is moved. `visit` may change the table, but not visit, count
    /// or compact it: these would wait for this visit. A key that others delete and insert again
    /// meanwhile may be visited twice, in its old slot and in its new one.
    fn for_each(&self, visit: &mut dyn FnMut(&K, u64)) -> Result<()> {
        self.visit(visit)
    }

    /// Ends a resize, whose old level then goes.
    fn compact(&self) -> Result<()> {
        self.move_all()
    }

    fn check(&self) -> Result<CheckSummary> {
        self.check_all()
    }

    fn pool(&self) -> &Pool {
        &self.pool
    }
}

const fn makers<K: Item + ?Sized, const USED: usize>() -> Makers<K> {
    Makers {
        pool_options: Clevel::<K, USED>::pool_options,
        create: |pool, plan| Ok(Box::new(Clevel::<K, USED>::create(pool, plan)?)),
        open: |pool| Ok(Box::new(Clevel::<K, USED>::open(pool)?)),
        create_ordered: None,
    }
}

const fn registered<const USED: usize>(name: &'static str) -> Registered {
    Registered {
        name,
        title: "clevel hashing",
        kind: IndexKind::Hash,
        reads: ReadProtocol::Optimistic,
        persists: PersistCounts {
            insert: 2,
            update: 2,
            remove: 2,
        },
        source: "Chen, Hua, Ding, Zuo, ATC 2020",
        words: makers::<u64, USED>(),
        strings: Some(makers::<[u8], USED>()),
    }
}

/// What the registry knows.
pub(crate) static REGISTERED: Registered = registered::<SLOTS>("clevel");

/// The same with buckets of two slots, so that a few keys make it grow and move.
#[cfg(test)]
pub(crate) static TINY: Registered = registered::<2>("clevel-tiny");
