//! Creation and recovery of a layered index.
//!
//! Recovery reads the logs and keeps the last change of each key that is above the floor. What of
//! that the base does not have goes to buffers, in the order of positions. Nodes begin where parts
//! of the base do, and where a part has more than a buffer takes; if that makes too many nodes or
//! takes too many buffers, they begin at every second part, or at every fourth, and so on, and in
//! the end only where a buffer is full.
//!
//! Changes that a crash found in the base and not in the logs, one for each thread at most, are
//! undone with this: an insert by a delete in the base, the others by pairs in buffers. If that
//! takes more buffers than the index was made for, it has some more until it is opened next: the
//! base may have no space for what is in them.
//!
//! A round that logs anew what the base has no space for says what older records say. Of such
//! records, one behind the other, the first is kept: the others may be written over. So the pages
//! of a round that a crash ended are empty again (I6).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};

use gabion_media::pmem::{BlockClaim, Medium, POff, Pool, PoolOptions, Reachable};
use parking_lot::Mutex;

use super::layout::{BASE_AT, MOVING_AT, RootState, block_bytes, first_page_at};
use super::{Base, Layered, Options};
use crate::index::{IndexPlan, root_of};
use crate::spoton::buffer::{Buffers, Tagged};
use crate::spoton::layout::{PAGE_HINT, Record};
use crate::spoton::log::{self, LoggedChange, Logs};
use crate::spoton::mnode::{LockedNode, Mnodes, NodeInit};
use crate::sptree::router::Router;
use crate::{Error, Result, Seed, root};

/// Buffers of the smallest index.
const BUFFERS_MIN: u64 = 4;

/// One part of how many of the pool's bytes the logs may take, unless the options say so.
const SHARE_OF_LOGS: u64 = 8;

/// Bytes of a part of the base, at least; where parts are smaller, some share a node.
const PART_BYTES_MIN: u64 = 256;

/// Pages of the logs: those in which all pairs of buffers have room, thrice, and what threads that
/// turn pages at the same time may take from the empty ones.
struct Pages {
    /// Empty ones below which the floor is raised.
    reserve: u64,
    all: u64,
}

impl Pages {
    fn of<const PAGE: usize>(pairs: u64, lanes: u64) -> Pages {
        let filled = pairs.div_ceil(Logs::<PAGE>::RECORDS as u64);
        // What was logged before somebody noticed, and what a round logs anew.
        let reserve = lanes + filled + 1;
        Pages {
            reserve,
            all: lanes + reserve + 2 * filled + 2,
        }
    }
}

impl<B: Base, const PAGE: usize> Layered<B, PAGE> {
    /// Makes an empty index the root of `pool`, with a buffer for each part of a base of the
    /// planned entries, as far as the logs for them take no more than an eighth of the pool.
    ///
    /// A crash before the return leaves the index or a pool without root, and then nothing is lost
    /// but time.
    ///
    /// # Errors
    /// The pool has a root already, or no space.
    pub fn create(pool: &Pool, plan: IndexPlan) -> Result<Self> {
        Self::create_with(pool, plan, Options::default())
    }

    /// As [`Layered::create`], as the options say.
    ///
    /// # Errors
    /// As [`Layered::create`]; more buffers than the pool could have logs for.
    pub fn create_with(pool: &Pool, plan: IndexPlan, options: Options) -> Result<Self> {
        let seed = plan.seed.unwrap_or_else(Seed::random);
        let planned = || Self::planned_buffers(pool, plan.capacity);
        let buffers = options.buffers.unwrap_or_else(planned).max(1);
        let pairs = buffers.saturating_mul(B::shape(plan.capacity).pairs_of_node());
        let bytes = pairs.saturating_mul(size_of::<Record>() as u64);
        if bytes > pool.len() {
            return Err(Error::Limit {
                what: "log of write buffers",
                bytes,
                limit: pool.len(),
            });
        }
        let lanes = log::lanes_of(pool) as u64;
        let pages = Pages::of::<PAGE>(pairs, lanes).all;
        let rest = block_bytes::<PAGE>(B::EMPTY_BYTES, pages) - root::ROOT_BYTES;
        root::expect_room(pool, rest, B::planned_parts(plan.capacity))?;
        let fill = |behind: u64| {
            let root = behind - root::ROOT_BYTES;
            pool.zero(behind, BASE_AT + B::EMPTY_BYTES - root::ROOT_BYTES);
            B::place(pool, root + BASE_AT);
            let first = first_page_at(root, B::EMPTY_BYTES);
            let first = log::place::<PAGE>(pool, first, pages);
            let moving: &RootState = pool.at(POff::new(root + MOVING_AT));
            // ORDER: Relaxed: nobody else sees it before the pool refers to it.
            moving.logs.store(pool, first, Ordering::Relaxed);
            pool.flush(moving);
        };
        let page = PAGE as u64;
        let words = vec![B::MAGIC, seed, plan.capacity, buffers, page, pages, lanes];
        root::create_filled(pool, rest, fill, |_| words)?;
        Self::open_as(pool, options, true)
    }

    /// Buffers for so many entries.
    fn planned_buffers(pool: &Pool, entries: u64) -> u64 {
        let shape = B::shape(entries);
        let bytes_of_buffer = 3 * shape.pairs_of_node() * size_of::<Record>() as u64;
        let most = pool.len() / SHARE_OF_LOGS / bytes_of_buffer;
        shape.parts.min(most).max(BUFFERS_MIN)
    }

    /// Finds the index that is the root of `pool`: costs a look at each page of the logs and at
    /// each part of the base.
    ///
    /// # Errors
    /// No such index there, one with pages of another size, or damage on the medium.
    pub fn open(pool: &Pool) -> Result<Self> {
        Self::open_with(pool, Options::default())
    }

    /// As [`Layered::open`], as the options say.
    ///
    /// # Errors
    /// As [`Layered::open`].
    pub fn open_with(pool: &Pool, options: Options) -> Result<Self> {
        Self::open_as(pool, options, false)
    }

    /// Finds the index, which may have been made a moment ago.
    fn open_as(pool: &Pool, options: Options, is_new: bool) -> Result<Self> {
        let (root, words) = root::find(pool, B::MAGIC)?;
        let [_, seed, entries, buffers, page, pages, lanes] = words;
        if page != PAGE as u64 {
            return Err(Error::OtherKind);
        }
        let _within = pool.write_guard();
        let shape = B::shape(entries);
        let parts = pool.len() / PART_BYTES_MIN.max(32 * shape.pairs_of_node()) + 1;
        let reserve = Pages::of::<PAGE>(buffers * shape.pairs_of_node(), lanes).reserve;
        let base = B::find(pool, root + BASE_AT, seed, entries)?;
        if is_new {
            base.grow(entries)?;
        }
        let mut index = Layered {
            medium: Medium::clone(pool),
            pool: pool.clone(),
            root,
            seed: Seed::new(seed),
            base: if options.caches_paths {
                base.cached()?
            } else {
                base
            },
            nodes: Mnodes::new(parts),
            router: Router::new(pool, parts)?,
            shape,
            buffers: Buffers::in_ways(buffers, shape.ways),
            logs: Logs::open_with(pool, root + MOVING_AT, Seed::new(seed), lanes),
            pages,
            reserve: usize::try_from(reserve).unwrap_or(usize::MAX),
            merges_out_of_place: options.merges_out_of_place,
            changes: AtomicU64::new(0),
            floor: AtomicU64::new(0),
            round: Mutex::default(),
        };
        index.recover()?;
        Ok(index)
    }

    /// Options of pools for such indexes: the layout id, and how recovery finds what is in use.
    /// Whoever makes or opens the pool sets the rest.
    #[must_use]
    pub fn pool_options() -> PoolOptions {
        PoolOptions {
            layout: B::MAGIC,
            reachable: Reachable::ask_fn(is_referenced::<B, PAGE>),
            ..PoolOptions::default()
        }
    }

    /// The last change of each key in some pages that is above the floor, and the page that has to
    /// stay for it, with the first of its last records that all say the same; and the greatest
    /// number of all changes.
    pub(super) fn last_changes(&self, chain: &[u64]) -> (BTreeMap<u64, (LoggedChange, u64)>, u64) {
        let moving: &RootState = self.medium.at(POff::new(self.root + MOVING_AT));
        // ORDER: Relaxed: nobody writes.
        let floor = moving.floor.load(&self.medium, Ordering::Relaxed);
        let mut last: BTreeMap<u64, (LoggedChange, u64)> = BTreeMap::new();
        let of_page = |page: &u64| {
            let page = *page;
            self.logs.records(page).map(move |logged| (logged, page))
        };
        let above = chain.iter().flat_map(of_page);
        let mut above: Vec<(LoggedChange, u64)> =
            above.filter(|(logged, _)| logged.number > floor).collect();
        above.sort_unstable_by_key(|(logged, _)| (logged.key, logged.number));
        for (logged, page) in above {
            let known = last.entry(logged.key).or_insert((logged, page));
            if known.0.value != logged.value {
                known.1 = page;
            }
            known.0 = logged;
        }
        let greatest = last.values().map(|(logged, _)| logged.number).max();
        (last, greatest.unwrap_or(floor))
    }

    fn recover(&mut self) -> Result<()> {
        let moving: &RootState = self.medium.at(POff::new(self.root + MOVING_AT));
        // ORDER: Relaxed: nobody else knows the index.
        let floor = moving.floor.load(&self.medium, Ordering::Relaxed);
        self.floor.store(floor, Ordering::Relaxed);
        let chain = self.logs.chain()?;
        if (chain.len() as u64) < self.pages {
            return Err(Error::damaged(
                "the number of pages of logs",
                self.root + MOVING_AT,
            ));
        }
        let (last, changes) = self.last_changes(&chain);
        // ORDER: Relaxed: as above.
        self.changes.store(changes, Ordering::Relaxed);
        let mut pending = Vec::new();
        for (key, (logged, _)) in &last {
            let stored = self.base.get(key)?;
            match logged.value {
                Some(value) if stored != Some(value) => pending.push(self.waiting(*key, value)),
                None if stored.is_some() => {
                    self.base.remove(key)?;
                }
                _ => {}
            }
        }
        pending.sort_by_key(|pair| pair.position);
        let (_, needed) = starts_of(&[0], &pending, self.shape.pairs);
        if needed > self.buffers.limit() {
            self.buffers = Buffers::in_ways(needed as u64, self.shape.ways);
        }
        let starts = self.starts(&pending)?;
        self.make_nodes(&starts, &pending, changes)?;
        let in_use: BTreeSet<u64> = last.values().map(|(_, page)| *page).collect();
        let (full, free) = chain.iter().partition(|page| in_use.contains(page));
        self.logs.adopt(free, full);
        Ok(())
    }

    fn waiting(&self, key: u64, value: u64) -> Waiting {
        let (position, tag) = (self.base.position(key), self.tag(key));
        Waiting {
            position,
            way: self.base.way(position),
            entry: Tagged { key, value, tag },
        }
    }

    /// Where nodes are to begin, in their order.
    fn starts(&self, pending: &[Waiting]) -> Result<Vec<u64>> {
        let mut parts = vec![0];
        while let Some(next) = self.base.next_part(*parts.last().unwrap_or(&0))? {
            parts.push(next);
        }
        loop {
            let (starts, buffers) = starts_of(&parts, pending, self.shape.pairs);
            let are_few = starts.len() <= self.nodes.room() && buffers <= self.buffers.limit();
            if are_few || parts.len() == 1 {
                return Ok(starts);
            }
            parts = parts.into_iter().step_by(2).collect();
        }
    }

    /// Makes the nodes, and fills their buffers. Both lists are in order.
    fn make_nodes(&self, starts: &[u64], pending: &[Waiting], changes: u64) -> Result<()> {
        let mut before: Option<LockedNode<'_>> = None;
        let mut rest = pending;
        for (number, lkey) in starts.iter().enumerate() {
            let next = starts.get(number + 1);
            let born = NodeInit {
                leaf: 0,
                lkey: *lkey,
                hkey: u64::MAX,
                next: 0,
                prev: before.as_ref().map_or(0, |before| before.number + 1),
                count: 0,
                merged: changes,
            };
            let node = self.nodes.add(born).ok_or_else(|| self.too_many("nodes"))?;
            if let Some(before) = &before {
                before.set_hkey(*lkey);
                self.link(before, node.number + 1);
            }
            self.lead_to(&node);
            let (within, behind) = split_before(rest, next);
            for pair in within {
                let buffer = self.free_buffer(&node, pair.position);
                let buffer = buffer.ok_or_else(|| self.too_many("write buffers"))?;
                buffer.push(pair.entry);
            }
            rest = behind;
            before = Some(node);
        }
        Ok(())
    }

    #[cold]
    fn too_many(&self, what: &'static str) -> Error {
        Error::Limit {
            what,
            bytes: self.medium.len(),
            limit: self.medium.len(),
        }
    }
}

/// A pair that the logs have and the base has not.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting {
    pub(super) position: u64,
    /// Which way of a buffer it goes to.
    pub(super) way: usize,
    pub(super) entry: Tagged,
}

/// Those of some pairs, in the order of positions, that are before a position, and the others.
fn split_before<'a>(pending: &'a [Waiting], end: Option<&u64>) -> (&'a [Waiting], &'a [Waiting]) {
    let is_before = |pair: &Waiting| end.is_none_or(|end| pair.position < *end);
    pending.split_at(pending.partition_point(is_before))
}

/// Where nodes begin so that each part has its own and none more pairs than each way of a buffer
/// takes, and the buffers for that. Pairs that share a position stay together.
pub(super) fn starts_of(parts: &[u64], pending: &[Waiting], room: usize) -> (Vec<u64>, usize) {
    let (mut starts, mut buffers, mut rest) = (Vec::new(), 0, pending);
    for (number, part) in parts.iter().enumerate() {
        starts.push(*part);
        let (within, behind) = split_before(rest, parts.get(number + 1));
        let mut counts = BTreeMap::new();
        for alike in within.chunk_by(|one, two| one.position == two.position) {
            let count = counts.entry(alike[0].way).or_insert(0);
            *count += alike.len();
            if *count > room {
                starts.push(alike[0].position);
                buffers += 1;
                counts = BTreeMap::from([(alike[0].way, alike.len())]);
            }
        }
        buffers += usize::from(!within.is_empty());
        rest = behind;
    }
    (starts, buffers)
}

/// What recovery of the pool asks: whether the logs or the base durably refer to a block. The pool
/// itself answers for its root.
fn is_referenced<B: Base, const PAGE: usize>(medium: &Medium, claim: BlockClaim) -> bool {
    let root = root_of(medium);
    if claim.hint == PAGE_HINT {
        return log::is_in_chain::<PAGE>(medium, root + MOVING_AT, claim);
    }
    root != 0 && B::is_referenced(medium, root + BASE_AT, claim)
}
