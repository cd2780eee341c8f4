//! Creation, opening, closing; and what is done after a crash.
//!
//! # After a crash
//! 1. The records of each open page of a log are read from its start on, by one thread per page.
//!    The first one whose key or value is not what was written ends the log; it and all behind it
//!    are lost (S3).
//! 2. Wherever the table refers to a lost record, it is taken back to the newest record before it
//!    that was not lost, by the addresses in the heads; or the entry goes, if there is none. One
//!    word is stored for each.
//! 3. The pages become full where they end.
//!
//! Each step gives the same again if it is interrupted: until a page is full, its lost records are
//! still lost, and an entry that was taken back refers to none of them any more. Nothing else is
//! read but the page table.
//!
//! What a page was made durable to on purpose is marked in it. A record before the mark that is not
//! as it was written is damage, and not lost with the power: then the store does not open.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use gabion_media::pmem::{
    BlockClaim, Medium, PAtomicU64, POff, Pool, PoolOptions, ROOT_HINT, Reachable,
};
use parking_lot::Mutex;
use xxhash_rust::xxh3::xxh3_64;

use super::cleaner::Cleaner;
use super::layout::{
    AT_MOST, CLOSED, Header, LAYOUT, LINE_BYTES, MAGIC, NotedBytes, PAGE_BYTES_MAX, PAGE_BYTES_MIN,
    PAGE_HEAD_BYTES, PageDescriptor, PagePlace, PageState, RECORD_HEAD_BYTES, TablePlace,
};
use super::log::ThreadLogs;
use super::pages::{AppendPoint, PageTable, kept_pages, page_mark};
use super::record::{Record, records};
use super::stats::Counts;
use super::steps::{Step, is_taken};
use super::stripes::StripeLocks;
use super::{Durability, KEY_BYTES_MAX, Options, Scmkv, Volume};
use crate::index::root_of;
use crate::parallel::by_threads;
use crate::{Error, Result, Seed};

/// The hint of the hash table's block. Those of pages are their numbers, which are smaller.
pub(super) const TABLE_HINT: u64 = 1 << 40;

/// Bytes of the pool for each entry that a store is planned for by default.
const BYTES_OF_ENTRY: u64 = 256;

/// Buckets for each entry that a store is planned for, at least. With one, three keys of five
/// share their bucket and are found behind a chain, which is a miss of the cache more; with two,
/// less than two of five.
const BUCKETS_OF_ENTRY: u64 = 2;

/// Binary logarithms of the smallest and the largest number of buckets.
const TABLE_LOG2_MIN: u32 = 2;
const TABLE_LOG2_MAX: u32 = 40;

/// Open pages without which a store cannot work, besides those that are kept.
const OPEN_PAGES_MIN: u64 = 2;

/// The part of the header that never changes.
#[derive(Clone, Copy, Debug)]
struct Plan {
    page_bytes: u64,
    seed: u64,
    pages: u64,
    capacity: u64,
}

impl Plan {
    fn words(self) -> [u64; 5] {
        [MAGIC, self.page_bytes, self.seed, self.pages, self.capacity]
    }

    fn check(self) -> u64 {
        let bytes: Vec<u8> = self
            .words()
            .into_iter()
            .flat_map(u64::to_le_bytes)
            .collect();
        xxh3_64(&bytes)
    }
}

fn damaged_header(offset: u64) -> Error {
    Error::damaged("the header of an SCMKV", offset)
}

/// Reads and checks the header at an offset.
fn read_plan(medium: &Medium, root: u64) -> Result<(Plan, &Header)> {
    let header: Option<&Header> = medium.try_at(POff::new(root));
    let header = header.ok_or_else(|| damaged_header(root))?;
    medium.touch(header);
    // ORDER: Relaxed: this part of the header does not change.
    let plan = Plan {
        page_bytes: header.page_bytes.peek(Ordering::Relaxed),
        seed: header.seed.peek(Ordering::Relaxed),
        pages: header.pages.peek(Ordering::Relaxed),
        capacity: header.capacity.peek(Ordering::Relaxed),
    };
    // ORDER: as above.
    if header.magic.peek(Ordering::Relaxed) != MAGIC {
        return Err(Error::NoRoot);
    }
    let is_sound = header.check.peek(Ordering::Relaxed) == plan.check()
        && is_page_size(plan.page_bytes)
        && u32::try_from(plan.pages).is_ok();
    if is_sound {
        Ok((plan, header))
    } else {
        Err(damaged_header(root))
    }
}

fn is_page_size(bytes: u64) -> bool {
    bytes.is_power_of_two() && (PAGE_BYTES_MIN..=PAGE_BYTES_MAX).contains(&bytes)
}

/// What recovery of the pool asks: whether a store durably refers to a block.
fn is_referenced(medium: &Medium, claim: BlockClaim) -> bool {
    let root = root_of(medium);
    let Ok((plan, header)) = read_plan(medium, root) else {
        return false;
    };
    if claim.hint == TABLE_HINT {
        // ORDER: Relaxed: asked while the pool is opened.
        let tables = [&header.table, &header.next];
        let tables = tables.map(|word| TablePlace(word.load(medium, Ordering::Relaxed)));
        return tables
            .iter()
            .any(|table| table.offset() == claim.block.raw());
    }
    if claim.hint >= plan.pages {
        return false;
    }
    let table = POff::<PageDescriptor>::new(root + size_of::<Header>() as u64);
    let Some(descriptor) = medium.try_at(table.element(claim.hint)) else {
        return false;
    };
    // ORDER: as above.
    let place = PagePlace(descriptor.place.load(medium, Ordering::Relaxed));
    place.offset() == claim.block.raw()
}

impl Scmkv {
    /// Options of pools for stores: the layout id, and how recovery finds what is in use. Whoever
    /// makes or opens the pool sets the rest. Chunks are not smaller than pages, or than 64 KiB.
    #[must_use]
    pub fn pool_options() -> PoolOptions {
        PoolOptions {
            layout: LAYOUT,
            reachable: Reachable::ask_fn(is_referenced),
            ..PoolOptions::default()
        }
    }

    /// Makes an empty store the root of `pool`.
    ///
    /// A crash before the return leaves the store or a pool without root.
    ///
    /// # Errors
    /// The pool has a root already, or too little space for four pages, two more with
    /// [`Options::keeps_for_copies`]; a page size that cannot be.
    pub fn create(pool: &Pool, options: &Options) -> Result<Scmkv> {
        if !pool.root::<Header>().is_null() {
            return Err(Error::RootTaken);
        }
        if !is_page_size(options.page_bytes) {
            return Err(Error::PageSize {
                bytes: options.page_bytes,
            });
        }
        let capacity = options.capacity.unwrap_or(pool.len() / BYTES_OF_ENTRY);
        let buckets = capacity
            .max(1)
            .saturating_mul(BUCKETS_OF_ENTRY)
            .min(1 << TABLE_LOG2_MAX);
        let log2 = buckets.next_power_of_two().trailing_zeros();
        let log2 = log2.clamp(TABLE_LOG2_MIN, TABLE_LOG2_MAX);
        let plan = Plan {
            page_bytes: options.page_bytes,
            seed: options.seed.unwrap_or_else(Seed::random),
            pages: (pool.len() / options.page_bytes).min(u64::from(u32::MAX)),
            capacity,
        };
        let _within = pool.write_guard();
        let header_bytes =
            size_of::<Header>() as u64 + plan.pages * size_of::<PageDescriptor>() as u64;
        let table_bytes = TablePlace::new(0, log2).bytes();
        let pages_min = kept_pages(options.keeps_for_copies) as u64 + OPEN_PAGES_MIN;
        let wanted = header_bytes + table_bytes + pages_min * plan.page_bytes;
        let free = pool.stats().free_bytes;
        if free < wanted {
            let path = pool.path().to_owned();
            let full = gabion_media::Error::PoolFull { path, wanted, free };
            return Err(full.into());
        }
        let space = pool.alloc_aligned(header_bytes, LINE_BYTES, ROOT_HINT)?;
        let buckets = pool.alloc_aligned(table_bytes, LINE_BYTES, TABLE_HINT)?;
        let root = space.offset::<Header>();
        pool.zero(root.raw(), header_bytes);
        pool.zero(buckets.offset::<PAtomicU64>().raw(), table_bytes);
        let header = pool.at(root);
        let table = TablePlace::new(buckets.offset::<PAtomicU64>().raw(), log2);
        let [magic, page_bytes, seed, pages, capacity] = plan.words();
        // ORDER: Relaxed: nobody else sees the header before the root refers to it.
        header.magic.store(pool, magic, Ordering::Relaxed);
        header.page_bytes.store(pool, page_bytes, Ordering::Relaxed);
        header.seed.store(pool, seed, Ordering::Relaxed);
        header.pages.store(pool, pages, Ordering::Relaxed);
        header.capacity.store(pool, capacity, Ordering::Relaxed);
        header.check.store(pool, plan.check(), Ordering::Relaxed);
        header.table.store(pool, table.0, Ordering::Relaxed);
        // DURABLE: header, page table and hash table, before the root refers to them.
        pool.persist(header);
        pool.set_root(root);
        space.commit::<Header>();
        buckets.commit::<PAtomicU64>();
        Scmkv::open(pool, options)
    }

    /// Finds the store that is the root of `pool`. After a clean close this reads the page table,
    /// after a crash the open pages of logs besides.
    ///
    /// # Errors
    /// No store there, or a damaged one.
    pub fn open(pool: &Pool, options: &Options) -> Result<Scmkv> {
        let root = pool.root::<Header>();
        if root.is_null() {
            return Err(Error::NoRoot);
        }
        let _within = pool.write_guard();
        let (plan, header) = read_plan(pool, root.raw())?;
        let table = read_table(pool, &header.table, root.raw())?;
        let mut next = TablePlace::NONE;
        // ORDER: Relaxed: nobody writes while a store is opened.
        let next_word = header.next.load(pool, Ordering::Relaxed);
        if next_word == table.0 {
            // DURABLE: the table has taken the place of the old one.
            // ORDER: as above.
            header.next.store_persist(pool, 0, Ordering::Relaxed);
        } else if next_word != 0 {
            next = read_table(pool, &header.next, root.raw())?;
            if next.log2() != table.log2() + 1 {
                return Err(damaged_header(root.raw()));
            }
        }
        let volume = Volume::new(pool, plan, root, options, [table, next]);
        volume.start(header)?;
        let volume = Arc::new(volume);
        let cleaner = options.cleans.then(|| Cleaner::start(&volume)).flatten();
        Ok(Scmkv {
            cleaner: Mutex::new(cleaner),
            volume,
        })
    }

    /// Closes the store, so that the next open finds everything at once. The pool is closed by
    /// whoever made it.
    ///
    /// # Errors
    /// None now.
    pub fn close(self) -> Result<()> {
        self.finish()
    }

    /// As [`Scmkv::close`], for a store that others still read. Nobody writes to it from here on.
    ///
    /// # Errors
    /// None now.
    pub fn finish(&self) -> Result<()> {
        let cleaner = self.cleaner.lock().take();
        drop(cleaner);
        let volume = &self.volume;
        let _within = volume.pool.write_guard();
        if !is_taken(Step::CloseLast) {
            volume.set_closed(CLOSED);
        }
        volume.persist_logs();
        volume.pages.checkpoint(&volume.open_heads());
        volume.set_closed(CLOSED);
        Ok(())
    }
}

/// Reads and checks the place of a hash table.
fn read_table(pool: &Pool, word: &PAtomicU64, root: u64) -> Result<TablePlace> {
    // ORDER: Relaxed: nobody writes while a store is opened.
    let table = TablePlace(word.load(pool, Ordering::Relaxed));
    let is_sound = (TABLE_LOG2_MIN..=TABLE_LOG2_MAX).contains(&table.log2())
        && table.is_sound()
        && table.offset() >= pool.blocks_at()
        && usize::try_from(table.buckets()).is_ok_and(|buckets| {
            let words: POff<PAtomicU64> = POff::new(table.offset());
            pool.try_slice(words, buckets).is_some()
        });
    if is_sound {
        Ok(table)
    } else {
        Err(damaged_header(root))
    }
}

/// What recovery found in an open page.
struct Scan {
    number: u32,
    /// Bytes of the page up to the first lost record.
    end: u64,
    lost: Vec<Record>,
}

impl Volume {
    fn new(
        pool: &Pool,
        plan: Plan,
        root: POff<Header>,
        options: &Options,
        [table, next]: [TablePlace; 2],
    ) -> Volume {
        let descriptors = root.byte_add(size_of::<Header>() as u64);
        let count = usize::try_from(plan.pages).unwrap_or(0);
        let processors = || std::thread::available_parallelism().map_or(1, usize::from);
        let room = plan.page_bytes - PAGE_HEAD_BYTES - RECORD_HEAD_BYTES;
        let key_bytes_max = KEY_BYTES_MAX.min(room / 2);
        Volume {
            pool: pool.clone(),
            medium: Medium::clone(pool),
            seed: Seed::new(plan.seed),
            header: root,
            is_strict: options.durability == Durability::Strict,
            checks_reads: options.checks_reads,
            space_amplification_max: options.space_amplification_max.max(1.0),
            key_bytes_max,
            value_bytes_max: (room - key_bytes_max) / RECORD_HEAD_BYTES * RECORD_HEAD_BYTES,
            table: AtomicU64::new(table.0),
            next: AtomicU64::new(next.0),
            stripes: StripeLocks::new(table.log2()),
            pages: PageTable::new(
                pool,
                descriptors,
                count,
                plan.page_bytes,
                options.keeps_for_copies,
            ),
            logs: ThreadLogs::new(options.logs.unwrap_or_else(processors)),
            cleaning: Mutex::default(),
            enlarging: Mutex::new(()),
            counts: Counts::default(),
            pages_max: AtomicU64::new(0),
        }
    }

    /// Reads the page table, and recovers what needs it.
    fn start(&self, header: &Header) -> Result<()> {
        // ORDER: Relaxed: nobody else writes while a store is opened.
        let was_closed = header.closed.load(&self.medium, Ordering::Relaxed) == CLOSED;
        let (mut unused, mut reserve, mut open) = (Vec::new(), Vec::new(), Vec::new());
        let mut newest = 0;
        for number in 0..self.pages.count() {
            let (state, head) = self.read_page(number, was_closed)?;
            newest = newest.max(head.generation);
            match state {
                PageState::Free => unused.push(number),
                PageState::Reserve => reserve.push(number),
                PageState::LogOpen | PageState::ChainsOpen => open.push((state, head)),
                PageState::LogFull | PageState::ChainsFull => {}
            }
        }
        unused.reverse();
        if was_closed {
            if is_taken(Step::Reopen) {
                self.set_closed(0);
            }
            self.pages.found(unused, reserve, open, newest);
        } else {
            self.pages.found(unused, reserve, Vec::new(), newest);
            self.recover(&open)?;
        }
        self.count_pages();
        match self.pages.fill_reserve(0) {
            Err(error) if !error.is_no_space() => Err(error),
            _ => Ok(()),
        }
    }

    /// Reads and checks what the page table says of a page, and takes note of it.
    fn read_page(&self, number: u32, was_closed: bool) -> Result<(PageState, AppendPoint)> {
        let medium = &self.medium;
        let descriptor = self.pages.descriptor(number);
        medium.touch(descriptor);
        // ORDER: Relaxed: nobody else writes while a store is opened.
        let place = PagePlace(descriptor.place.peek(Ordering::Relaxed));
        let generation = descriptor.generation.peek(Ordering::Relaxed);
        let end_word = descriptor.end.peek(Ordering::Relaxed);
        let live_word = descriptor.live.peek(Ordering::Relaxed);
        let bad = || Error::damaged("the page table", medium.offset_of(descriptor).raw());
        let state = place.state().ok_or_else(bad)?;
        let (end, live) = match state {
            // Nothing is there. What a page was about to be used for may be noted in part.
            PageState::Free | PageState::Reserve => (PAGE_HEAD_BYTES, 0),
            _ => {
                let end = NotedBytes::End
                    .bytes_of(end_word, generation)
                    .ok_or_else(bad)?;
                let live = NotedBytes::Live.bytes_of(live_word, generation);
                (end, live.ok_or_else(bad)?)
            }
        };
        let head = AppendPoint {
            number,
            start: place.offset(),
            generation,
            tail: end,
            persisted: end,
        };
        if state == PageState::Free {
            return Ok((state, head));
        }
        // A bound may be that of what the page was used for before.
        let live = if state == PageState::Reserve || was_closed && live & AT_MOST == 0 {
            live
        } else {
            (live & !AT_MOST).min(end) | AT_MOST
        };
        let has_end = (PAGE_HEAD_BYTES..=self.pages.bytes).contains(&end);
        let fits = head
            .start
            .checked_add(self.pages.bytes)
            .is_some_and(|end| end <= medium.len());
        let has_live = live & !AT_MOST <= end;
        if !fits || !has_end || !has_live {
            return Err(bad());
        }
        if state != PageState::Reserve {
            page_mark(medium, head.start, number, generation)
                .ok_or_else(|| Error::damaged("the head of a page", head.start))?;
        }
        self.pages.know(number, place, &head, live);
        Ok((state, head))
    }

    /// Says whether the store is closed.
    fn set_closed(&self, word: u64) {
        let header: &Header = self.medium.at(self.header);
        // DURABLE: that it is, when all records and the page table are; that it is not, before the
        // page table is not true any more.
        // ORDER: Relaxed: read when the store is opened.
        header
            .closed
            .store_persist(&self.medium, word, Ordering::Relaxed);
    }

    /// Takes back what was lost with the power, and closes the open pages.
    fn recover(&self, open: &[(PageState, AppendPoint)]) -> Result<()> {
        let logs: Vec<AppendPoint> = open
            .iter()
            .filter(|(state, _)| state.is_log())
            .map(|(_, head)| *head)
            .collect();
        let scans = self.scan_all(&logs)?;
        let lost = scans.iter().flat_map(|scan| &scan.lost);
        let lost: HashMap<u64, Record> = lost.map(|record| (record.address, *record)).collect();
        // In the order of the logs, so that recovery does the same each time.
        for record in scans.iter().flat_map(|scan| &scan.lost) {
            if is_taken(Step::RollBack) {
                self.roll_back(record, &lost)?;
            }
        }
        self.counts.lost_records(lost.len() as u64);
        for (state, head) in open.iter().filter(|_| is_taken(Step::CloseRecovered)) {
            let scan = scans.iter().find(|scan| scan.number == head.number);
            let end = scan.map_or_else(|| self.end_of_chains(head), |scan| scan.end);
            let mut head = AppendPoint {
                tail: end,
                // What was read may be in the caches of the processor only.
                persisted: PAGE_HEAD_BYTES,
                ..*head
            };
            debug_assert!(!state.is_full(), "only open pages are closed");
            self.pages.close_page(&mut head);
        }
        Ok(())
    }

    /// Where the last chain of a page ends, in bytes from its start on.
    fn end_of_chains(&self, head: &AppendPoint) -> u64 {
        let chains = self.pages.chains(head.start, head.start + self.pages.bytes);
        let last = chains
            .last()
            .map(|(at, chain)| at + chain.bytes() - head.start);
        last.unwrap_or(PAGE_HEAD_BYTES)
    }

    /// Reads all open pages of logs, each on a thread of its own; but one after the other where
    /// someone watches each step, so that the steps have an order.
    fn scan_all(&self, logs: &[AppendPoint]) -> Result<Vec<Scan>> {
        if self.medium.is_watched() {
            return logs.iter().map(|head| self.scan(head)).collect();
        }
        by_threads(logs.iter().collect(), |head| self.scan(head))
    }

    fn scan(&self, head: &AppendPoint) -> Result<Scan> {
        let medium = &self.medium;
        let end = head.start + self.pages.bytes;
        let mark = page_mark(medium, head.start, head.number, head.generation).unwrap_or(0);
        let mut scan = Scan {
            number: head.number,
            end: PAGE_HEAD_BYTES,
            lost: Vec::new(),
        };
        for record in records(medium, head.start, end, head.generation) {
            let may_be_sound = scan.lost.is_empty() || !is_taken(Step::LoseTail);
            if may_be_sound && record.content(medium, &self.seed).is_some() {
                scan.end = record.address + record.bytes() - head.start;
            } else {
                scan.lost.push(record);
            }
        }
        if scan.end < mark {
            return Err(Error::damaged(
                "a record that was durable",
                head.start + scan.end,
            ));
        }
        Ok(scan)
    }

    /// Takes the table back to before a lost record.
    fn roll_back(&self, record: &Record, lost: &HashMap<u64, Record>) -> Result<()> {
        let spot = self.spot_of_record(record)?;
        let Some(found) = &spot.found else {
            return Ok(());
        };
        let mut old = record.old;
        while let Some(record) = lost.get(&old) {
            old = record.old;
        }
        if old == 0 {
            self.publish(&self.change_without(&spot, found.word));
            return Ok(());
        }
        let before = self.record_at(old)?;
        if self.pages.number_of(old).is_none() || before.hash != record.hash {
            return Err(Error::damaged(
                "the predecessor of a lost record",
                record.address,
            ));
        }
        // ORDER: Release pairs with the Acquire of lookups.
        // DURABLE: what was lost is not referred to any more, before its page counts as full.
        found
            .word
            .store_persist(&self.medium, found.entry.at(old).0, Ordering::Release);
        Ok(())
    }
}
