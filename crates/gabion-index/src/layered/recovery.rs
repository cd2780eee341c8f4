//! Making a layered index, and finding it again.
//!
//! Recovery reads the logs and keeps the last change of each key that is above the floor. What of
//! that the base does not have goes to buffers, in the order of keys. There were buffers enough for
//! it before, and there are again: nodes begin where parts of the base do, and where a part has
//! more than a buffer takes; if that makes too many, they begin only where a buffer is full.
//!
//! Changes that a crash found in the base and not in the logs, one for each thread at most, are
//! undone with this. If that takes more buffers than there are, the base is changed itself.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};

use gabion_media::pmem::{Claim, Medium, POff, Pool, PoolOptions, Reachable};
use parking_lot::Mutex;

use super::layout::{BASE_AT, MOVING_AT, Moving, block_bytes, first_page_at};
use super::{Base, Layered, Options};
use crate::index::{Plan, root_of};
use crate::spoton::buffer::{BUFFER_BYTES, Buffers, Tagged};
use crate::spoton::layout::{PAGE_HINT, Record};
use crate::spoton::log::{self, Logged, Logs};
use crate::spoton::mnode::{Born, Locked, Mnodes};
use crate::sptree::router::Router;
use crate::{Error, Result, Seed, root};

/// Buffers of the smallest index.
const BUFFERS_MIN: u64 = 4;

/// One part of how many of the pool's bytes the logs may take, unless the options say so.
const SHARE_OF_LOGS: u64 = 8;

/// Bytes of a part of the base, at least.
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
    pub fn create(pool: &Pool, plan: Plan) -> Result<Self> {
        let pairs = B::BUFFERED as u64;
        let bytes_of_buffer = 3 * pairs * size_of::<Record>() as u64;
        // Parts are two thirds full.
        let wanted = 2 * plan.capacity / (3 * pairs);
        let most = pool.len() / SHARE_OF_LOGS / bytes_of_buffer;
        let buffers = wanted.min(most).max(BUFFERS_MIN);
        Self::create_with(pool, plan, Options { buffers })
    }

    /// As [`Layered::create`], with so many buffers.
    ///
    /// # Errors
    /// As [`Layered::create`].
    pub fn create_with(pool: &Pool, plan: Plan, options: Options) -> Result<Self> {
        let seed = plan.seed.unwrap_or_else(Seed::random);
        let buffers = options.buffers.max(1);
        let lanes = log::lanes_of(pool) as u64;
        let pages = Pages::of::<PAGE>(buffers.saturating_mul(B::BUFFERED as u64), lanes).all;
        let rest = block_bytes::<PAGE>(B::EMPTY_BYTES, pages) - root::ROOT_BYTES;
        let fill = |behind: u64| {
            let root = behind - root::ROOT_BYTES;
            pool.zero(behind, BASE_AT + B::EMPTY_BYTES - root::ROOT_BYTES);
            B::place(pool, root + BASE_AT);
            let first = first_page_at(root, B::EMPTY_BYTES);
            let first = log::place::<PAGE>(pool, first, pages);
            let moving: &Moving = pool.at(POff::new(root + MOVING_AT));
            // ORDER: Relaxed: nobody else sees it before the pool refers to it.
            moving.logs.store(pool, first, Ordering::Relaxed);
            pool.flush(moving);
        };
        let words = vec![B::MAGIC, seed, plan.capacity, buffers, PAGE as u64, pages];
        root::create_filled(pool, rest, fill, |_| words)?;
        Self::open(pool)
    }

    /// Finds the index that is the root of `pool`: costs a look at each page of the logs and at
    /// each part of the base.
    ///
    /// # Errors
    /// No such index there, one with pages of another size, or damage on the medium.
    pub fn open(pool: &Pool) -> Result<Self> {
        let (root, [_, seed, _, buffers, page, pages, _]) = root::find(pool, B::MAGIC)?;
        if page != PAGE as u64 {
            return Err(Error::OtherKind);
        }
        let _within = pool.write_guard();
        let parts = pool.len() / PART_BYTES_MIN.max(32 * B::BUFFERED as u64) + 1;
        let lanes = log::lanes_of(pool) as u64;
        let reserve = Pages::of::<PAGE>(buffers * B::BUFFERED as u64, lanes).reserve;
        let index = Layered {
            medium: Medium::clone(pool),
            pool: pool.clone(),
            root,
            seed: Seed::new(seed),
            base: B::find(pool, root + BASE_AT, seed)?,
            nodes: Mnodes::new(parts),
            router: Router::new(pool, parts)?,
            buffers: Buffers::new(buffers * BUFFER_BYTES, u64::MAX),
            logs: Logs::open(pool, root + MOVING_AT, Seed::new(seed)),
            pages,
            reserve: usize::try_from(reserve).unwrap_or(usize::MAX),
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

    /// The last change of each key in some pages that is above the floor, and the page that it is
    /// in; and the greatest number of all changes.
    pub(super) fn last_changes(&self, chain: &[u64]) -> (BTreeMap<u64, (Logged, u64)>, u64) {
        let moving: &Moving = self.medium.at(POff::new(self.root + MOVING_AT));
        // ORDER: Relaxed: nobody writes.
        let floor = moving.floor.load(&self.medium, Ordering::Relaxed);
        let mut last: BTreeMap<u64, (Logged, u64)> = BTreeMap::new();
        for page in chain {
            let above = self.logs.records(*page);
            for logged in above.filter(|logged| logged.number > floor) {
                let known = last.entry(logged.key).or_insert((logged, *page));
                if known.0.number < logged.number {
                    *known = (logged, *page);
                }
            }
        }
        let greatest = last.values().map(|(logged, _)| logged.number).max();
        (last, greatest.unwrap_or(floor))
    }

    fn recover(&self) -> Result<()> {
        let moving: &Moving = self.medium.at(POff::new(self.root + MOVING_AT));
        // ORDER: Relaxed: nobody else knows the index.
        let floor = moving.floor.load(&self.medium, Ordering::Relaxed);
        self.floor.store(floor, Ordering::Relaxed);
        let chain = self.logs.chain()?;
        if (chain.len() as u64) < self.pages {
            return Err(Error::Damaged {
                what: "the number of pages of logs",
                offset: self.root + MOVING_AT,
            });
        }
        let (last, changes) = self.last_changes(&chain);
        // ORDER: Relaxed: as above.
        self.changes.store(changes, Ordering::Relaxed);
        let mut pending = Vec::new();
        for (key, (logged, _)) in &last {
            if let Some(value) = logged.value
                && self.base.get(key)? != Some(value)
            {
                pending.push((*key, value));
            }
        }
        let starts = self.starts(&pending)?;
        self.make_nodes(&starts, &pending, changes)?;
        let in_use: BTreeSet<u64> = last.values().map(|(_, page)| *page).collect();
        let (full, free) = chain.iter().partition(|page| in_use.contains(page));
        self.logs.adopt(free, full);
        Ok(())
    }

    /// Where nodes are to begin, in their order.
    fn starts(&self, pending: &[(u64, u64)]) -> Result<Vec<u64>> {
        let mut parts = vec![0];
        while let Some(next) = self.base.next_part(*parts.last().unwrap_or(&0))? {
            parts.push(next);
        }
        let (starts, buffers) = Self::starts_of(&parts, pending);
        if buffers <= self.buffers.limit() {
            return Ok(starts);
        }
        Ok(Self::starts_of(&[0], pending).0)
    }

    /// Where nodes begin so that each part has its own and none more pairs than its buffer takes,
    /// and the buffers for that.
    pub(super) fn starts_of(parts: &[u64], pending: &[(u64, u64)]) -> (Vec<u64>, usize) {
        let (mut starts, mut buffers, mut rest) = (Vec::new(), 0, pending);
        for (number, part) in parts.iter().enumerate() {
            let next = parts.get(number + 1);
            let is_within = |key: u64| next.is_none_or(|next| key < *next);
            let (within, behind) = rest.split_at(rest.partition_point(|(key, _)| is_within(*key)));
            let chunks = within.chunks(B::BUFFERED);
            buffers += chunks.len();
            starts.push(*part);
            let firsts = chunks.skip(1).filter_map(<[_]>::first);
            starts.extend(firsts.map(|(key, _)| *key));
            rest = behind;
        }
        (starts, buffers)
    }

    /// Makes the nodes, and fills their buffers. Both lists are in order.
    fn make_nodes(&self, starts: &[u64], pending: &[(u64, u64)], changes: u64) -> Result<()> {
        let mut before: Option<Locked<'_>> = None;
        let mut rest = pending;
        for (number, lkey) in starts.iter().enumerate() {
            let next = starts.get(number + 1);
            let born = Born {
                leaf: 0,
                lkey: *lkey,
                hkey: u64::MAX,
                next: 0,
                prev: before.as_ref().map_or(0, |before| before.number + 1),
                count: 0,
                merged: changes,
            };
            let node = self.nodes.add(born).ok_or(Error::Limit {
                what: "number of nodes",
                bytes: self.medium.len(),
                limit: self.medium.len(),
            })?;
            if let Some(before) = &before {
                before.set_hkey(*lkey);
                self.link(before, node.number + 1);
            }
            self.lead_to(&node);
            let is_within = |key: u64| next.is_none_or(|next| key < *next);
            let (within, behind) = rest.split_at(rest.partition_point(|(key, _)| is_within(*key)));
            for &(key, value) in within {
                let tag = self.tag(key);
                match self.free_buffer(&node) {
                    Some(buffer) => buffer.push(Tagged { key, value, tag }),
                    None => self.base.insert(&key, value).map(|_| ())?,
                }
            }
            rest = behind;
            before = Some(node);
        }
        Ok(())
    }
}

/// What recovery of the pool asks: whether the logs or the base durably refer to a block. The pool
/// itself answers for its root.
fn is_referenced<B: Base, const PAGE: usize>(medium: &Medium, claim: Claim) -> bool {
    let root = root_of(medium);
    if claim.hint == PAGE_HINT {
        return log::is_in_chain::<PAGE>(medium, root + MOVING_AT, claim);
    }
    root != 0 && B::is_referenced(medium, root + BASE_AT, claim)
}
