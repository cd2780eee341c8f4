//! The logs: what is in write buffers, in pages of records in persistent memory.
//!
//! # Idea
//! All pages are in one chain, which begins at a word of the index and only ever grows at that end.
//! A thread fills a page that it has for itself, record by record. A page that is full waits until
//! each of its records is *dead*: the index has the change without the log. Then the page is filled
//! again, where it is. So to reclaim a page writes nothing to it.
//!
//! # Which records count
//! - L1. A record is valid if its hash fits, which depends on the seed of the index and on the
//!   place of the record. A record that was torn is not valid, nor is what another block left.
//! - L2. A valid record counts if its number is above the one that is durable for its key, which is
//!   the index's to keep; of several of one key the one with the greatest number does. SPTree has
//!   such a number in each leaf (`merged`), a layered index one for all keys (`floor`).
//! - L3. A dead record never counts again: those numbers do not fall. So what pages hold behind
//!   their last record does no harm, and neither do pages that were freed and taken again.
//!
//! The order of pages and of records in them means nothing, so threads need not agree on one.
//!
//! # Limit
//! Full pages have room for as many records as all buffers have for pairs. Beyond that each write
//! has to help: in SPTree it looks at some records of the page that is full for longest and has the
//! leaves of those that still count take their changes (`sptree/flush.rs`). Of random writes nearly
//! all are dead by then. Threads that outrun this by a quarter and some pages wait for each other
//! and look at a page each. A layered index has all its pages from the beginning and lets go of all
//! full ones at a time (`layered/merge.rs`).
//!
//! # Durability point
//! The persist of the record, one line, before the lock of the key's node is let go. A page is in
//! the chain, durably, before its first record is written.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use gabion_media::pmem::{BlockClaim, Medium, PAtomicU64, POff, Pool};
use parking_lot::{Mutex, MutexGuard};

use super::layout::{PAGE_ALIGN, PAGE_HINT, PageHead, Record, page_bytes};
use crate::{Error, Result, Seed, thread};

/// Threads that write to pages of their own at the same time.
const LANES: usize = 16;

/// A change in the logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LoggedChange {
    pub(crate) key: u64,
    pub(crate) number: u64,
    /// None if the key was deleted.
    pub(crate) value: Option<u64>,
}

/// The logs of an index, in pages of so many records, one of which is the page's head.
pub(crate) struct Logs<const N: usize> {
    medium: Medium,
    pool: Pool,
    /// Where the word is that begins the chain.
    start: u64,
    seed: Seed,
    lanes: Box<[Lane]>,
    pages: Mutex<Pages>,
    /// Pages that wait until their records are dead; changed with `pages`.
    waiting: AtomicUsize,
    /// Where the search for dead records is.
    cursor: Mutex<Cursor>,
    /// Empty pages that nobody fills; changed with `pages`.
    spare: AtomicUsize,
    /// Pages at which the pool had no room for another one.
    room: AtomicUsize,
    /// All pages.
    count: AtomicU64,
}

/// Where a thread writes, aligned so that no two share a line.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Lane(Mutex<RecordSlot>);

/// The next record of a page; offset 0 if there is no page.
#[derive(Debug, Default)]
pub(crate) struct RecordSlot {
    page: u64,
    record: usize,
}

/// The record that is looked at next.
pub(crate) type Cursor = RecordSlot;

#[derive(Debug, Default)]
struct Pages {
    /// Full ones, the first for longest.
    full: VecDeque<u64>,
    /// Those without records that count.
    free: Vec<u64>,
}

/// How much there is to do so that the logs do not grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogBacklog {
    None,
    Some,
    /// Those that write wait for their turn.
    Much,
}

/// Threads that fill pages of their own at the same time, at most.
pub(crate) fn lanes_of(pool: &Pool) -> usize {
    // On a medium that somebody watches what happens is a function of the operations.
    if pool.is_watched() { 1 } else { LANES }
}

fn damaged(offset: u64) -> Error {
    Error::damaged("the logs of write buffers", offset)
}

/// The word that begins the chain.
fn start_at(medium: &Medium, start: u64) -> Result<&PAtomicU64> {
    medium
        .try_at(POff::new(start))
        .ok_or_else(|| damaged(start))
}

/// The pages of the chain, and whether it is sound; at most as many as the medium has room for.
fn chain<const N: usize>(medium: &Medium, start: u64) -> Result<Vec<u64>> {
    let start = start_at(medium, start)?;
    medium.touch(start);
    // ORDER: Acquire pairs with the release of `Logs::grow`.
    let mut next = start.peek(Ordering::Acquire);
    let mut pages = Vec::new();
    while next != 0 {
        let end = next.checked_add(page_bytes(N));
        let is_page = next.is_multiple_of(PAGE_ALIGN) && end.is_some_and(|end| end <= medium.len());
        let head: Option<&PageHead> = medium.try_at(POff::new(next));
        let (Some(head), true) = (head, is_page) else {
            return Err(damaged(next));
        };
        if pages.len() as u64 > medium.len() / page_bytes(N) {
            return Err(damaged(next));
        }
        pages.push(next);
        medium.touch(head);
        // ORDER: as above.
        next = head.next.peek(Ordering::Acquire);
    }
    Ok(pages)
}

/// Writes a chain of so many pages, one behind the other from `first` on, to an index that nothing
/// refers to yet; durable with the next fence. Returns what the word at its begin is to be.
pub(crate) fn place<const N: usize>(medium: &Medium, first: u64, pages: u64) -> u64 {
    for page in 0..pages {
        let at = first + page * page_bytes(N);
        let is_last = page + 1 == pages;
        let head: &PageHead = medium.at(POff::new(at));
        let next = if is_last { 0 } else { at + page_bytes(N) };
        // ORDER: Relaxed: nobody else sees the page before the index is there.
        head.next.store(medium, next, Ordering::Relaxed);
        medium.flush(head);
    }
    if pages == 0 { 0 } else { first }
}

/// What recovery of the pool asks: whether the chain that begins at `start` durably has a page.
pub(crate) fn is_in_chain<const N: usize>(medium: &Medium, start: u64, claim: BlockClaim) -> bool {
    let pages = chain::<N>(medium, start);
    pages.is_ok_and(|pages| pages.contains(&claim.block.raw()))
}

impl<const N: usize> Logs<N> {
    /// Records of a page: its head takes the place of one.
    pub(crate) const RECORDS: usize = N - 1;

    /// The logs of an index whose chain begins at the word at `start`.
    pub(crate) fn open(pool: &Pool, start: u64, seed: Seed) -> Logs<N> {
        Self::open_with(pool, start, seed, u64::MAX)
    }

    /// As [`Logs::open`], for no more threads at the same time than so many.
    pub(crate) fn open_with(pool: &Pool, start: u64, seed: Seed, lanes: u64) -> Logs<N> {
        let lanes = lanes.clamp(1, lanes_of(pool) as u64);
        Logs {
            medium: Medium::clone(pool),
            pool: pool.clone(),
            start,
            seed,
            lanes: (0..lanes).map(|_| Lane::default()).collect(),
            pages: Mutex::default(),
            waiting: AtomicUsize::new(0),
            cursor: Mutex::default(),
            spare: AtomicUsize::new(0),
            room: AtomicUsize::new(usize::MAX),
            count: AtomicU64::new(0),
        }
    }

    /// Bytes of all pages.
    pub(crate) fn bytes(&self) -> u64 {
        // ORDER: Relaxed: a number, and no more.
        self.count.load(Ordering::Relaxed) * page_bytes(N)
    }

    fn record_at(&self, page: u64, number: usize) -> Option<&Record> {
        let offset = page + ((number + 1) * size_of::<Record>()) as u64;
        self.medium.try_at(POff::new(offset))
    }

    /// The hash of a record at an offset.
    fn check_of(&self, offset: u64, words: [u64; 3]) -> u64 {
        let mut bytes = [0; 32];
        let [key, value, change] = words;
        for (bytes, word) in bytes
            .as_chunks_mut::<8>()
            .0
            .iter_mut()
            .zip([key, value, change, offset])
        {
            *bytes = word.to_le_bytes();
        }
        self.seed.hash_bytes(&bytes)
    }

    /// Appends a change, durably; false if there is no room for a page.
    ///
    /// Whoever calls holds the lock of the node of the key, and no other lock is waited for here
    /// than those of this module, under which nobody waits for nodes.
    pub(crate) fn append(&self, change: LoggedChange) -> bool {
        self.slot().map(|slot| slot.fill(change)).is_ok()
    }

    /// Room for a change, which others that write to the same page wait for.
    ///
    /// # Errors
    /// No space for a page.
    pub(crate) fn slot(&self) -> Result<ChangeSlot<'_, N>> {
        let lane = self.lanes.get(thread::number() % self.lanes.len());
        let mut place = lane.ok_or_else(|| damaged(self.start))?.0.lock();
        if place.page == 0 || place.record == Self::RECORDS {
            self.turn_page(&mut place)?;
        }
        let record = self.record_at(place.page, place.record);
        let record = record.ok_or_else(|| damaged(place.page))?;
        Ok(ChangeSlot {
            logs: self,
            place,
            record,
        })
    }

    /// Gives a thread an empty page, and lets the full one wait.
    #[cold]
    fn turn_page(&self, place: &mut RecordSlot) -> Result<()> {
        let mut pages = self.pages.lock();
        if place.page != 0 {
            pages.full.push_back(place.page);
            // ORDER: Relaxed: a hint of how much there is to do.
            self.waiting.store(pages.full.len(), Ordering::Relaxed);
            place.page = 0;
        }
        place.page = match pages.free.pop() {
            Some(page) => page,
            None => self.grow().inspect_err(|_| {
                // ORDER: Relaxed: as above.
                self.room.store(pages.full.len(), Ordering::Relaxed);
            })?,
        };
        self.note_free(&pages);
        place.record = 0;
        Ok(())
    }

    /// Puts a new page before the others. Whoever calls holds the lock of the pages.
    fn grow(&self) -> Result<u64> {
        let start = start_at(&self.medium, self.start)?;
        let space = self
            .pool
            .alloc_aligned(page_bytes(N), PAGE_ALIGN, PAGE_HINT)?;
        let page = space.offset::<PageHead>();
        let head = self.medium.at(page);
        // ORDER: Relaxed: changed under the lock only.
        let next = start.peek(Ordering::Relaxed);
        head.next.store(&self.medium, next, Ordering::Relaxed);
        // DURABLE: the way to the other pages, before this one stands before them.
        self.medium.persist(head);
        // DURABLE: the page, before it has records.
        // ORDER: Release pairs with the acquires of `chain`.
        start.store_persist(&self.medium, page.raw(), Ordering::Release);
        space.commit::<PageHead>();
        // ORDER: Relaxed: a number, and no more.
        self.count.fetch_add(1, Ordering::Relaxed);
        Ok(page.raw())
    }

    /// How much there is to do, if buffers have room for so many pairs.
    #[inline]
    pub(crate) fn backlog(&self, buffered: usize) -> LogBacklog {
        // ORDER: Relaxed: hints.
        let waiting = self.waiting.load(Ordering::Relaxed);
        let limit = buffered.div_ceil(Self::RECORDS);
        let limit = limit.min(self.room.load(Ordering::Relaxed));
        if waiting == 0 || waiting < limit {
            LogBacklog::None
        } else if waiting < limit + limit / 4 + 2 * self.lanes.len() {
            LogBacklog::Some
        } else {
            LogBacklog::Much
        }
    }

    /// Takes the place where records are looked at, without waiting unless that is told.
    pub(crate) fn cursor(&self, waits: bool) -> Option<MutexGuard<'_, Cursor>> {
        if waits {
            Some(self.cursor.lock())
        } else {
            self.cursor.try_lock()
        }
    }

    /// Lets `see` see to it that the next record of the page that is full for longest is dead. A
    /// page is free behind its last record. False if no page is full.
    pub(crate) fn visit(
        &self,
        cursor: &mut Cursor,
        see: impl FnOnce(LoggedChange) -> Result<()>,
    ) -> Result<bool> {
        if cursor.page == 0 && !self.begin_page(cursor) {
            return Ok(false);
        }
        if let Some(record) = self.read(cursor.page, cursor.record) {
            see(record)?;
        }
        cursor.record += 1;
        if cursor.record == Self::RECORDS {
            self.free_again([cursor.page]);
            cursor.page = 0;
        }
        Ok(true)
    }

    fn begin_page(&self, cursor: &mut Cursor) -> bool {
        let mut pages = self.pages.lock();
        let Some(page) = pages.full.pop_front() else {
            return false;
        };
        // ORDER: Relaxed: a hint of how much there is to do.
        self.waiting.store(pages.full.len(), Ordering::Relaxed);
        *cursor = Cursor { page, record: 0 };
        true
    }

    /// A record, if it is valid.
    fn read(&self, page: u64, number: usize) -> Option<LoggedChange> {
        let record = self.record_at(page, number)?;
        self.medium.touch(record);
        let offset = self.medium.offset_of(record).raw();
        // ORDER: Relaxed: nobody writes to a page that is full, or while an index is opened or
        // checked.
        let [key, value, change, check] =
            [&record.key, &record.value, &record.change, &record.check]
                .map(|word| word.peek(Ordering::Relaxed));
        let is_valid = change >> 1 != 0 && check == self.check_of(offset, [key, value, change]);
        is_valid.then_some(LoggedChange {
            key,
            number: change >> 1,
            value: (change & 1 == 0).then_some(value),
        })
    }

    /// All pages of the chain.
    ///
    /// # Errors
    /// Damage on the medium.
    pub(crate) fn chain(&self) -> Result<Vec<u64>> {
        chain::<N>(&self.medium, self.start)
    }

    /// The valid records of a page.
    pub(crate) fn records(&self, page: u64) -> impl Iterator<Item = LoggedChange> {
        (0..Self::RECORDS).filter_map(move |number| self.read(page, number))
    }

    /// Says how many pages the chain has, before they are taken for use.
    pub(crate) fn set_count(&self, pages: usize) {
        // ORDER: Relaxed: a number, and no more.
        self.count.store(pages as u64, Ordering::Relaxed);
    }

    /// Takes the pages of the chain for use: those of which no record counts, and those that wait.
    pub(crate) fn adopt(&self, free: Vec<u64>, full: Vec<u64>) {
        self.set_count(free.len() + full.len());
        let mut pages = self.pages.lock();
        pages.free = free;
        pages.full = full.into();
        // ORDER: Relaxed: a hint of how much there is to do.
        self.waiting.store(pages.full.len(), Ordering::Relaxed);
        self.note_free(&pages);
    }

    /// Empty pages that nobody fills.
    #[inline]
    pub(crate) fn spare(&self) -> usize {
        // ORDER: Relaxed: a hint of how much there is to do.
        self.spare.load(Ordering::Relaxed)
    }

    fn note_free(&self, pages: &MutexGuard<'_, Pages>) {
        // ORDER: Relaxed: as above.
        self.spare.store(pages.free.len(), Ordering::Relaxed);
    }

    /// Takes out the pages that wait, for one who will see to it that none of their records counts.
    /// The numbers of all their changes were given before.
    pub(crate) fn take_full(&self) -> Vec<u64> {
        let mut pages = self.pages.lock();
        // ORDER: Relaxed: a hint of how much there is to do.
        self.waiting.store(0, Ordering::Relaxed);
        pages.full.drain(..).collect()
    }

    /// Puts pages back among those that wait.
    pub(crate) fn wait_again(&self, full: Vec<u64>) {
        let mut pages = self.pages.lock();
        pages.full.extend(full);
        // ORDER: Relaxed: a hint of how much there is to do.
        self.waiting.store(pages.full.len(), Ordering::Relaxed);
    }

    /// Lets pages be filled again, of which no record counts.
    pub(crate) fn free_again(&self, free: impl IntoIterator<Item = u64>) {
        let mut pages = self.pages.lock();
        pages.free.extend(free);
        self.note_free(&pages);
    }

    /// Frees the pages of the chain, when none of their records counts.
    ///
    /// # Errors
    /// The pool refuses.
    pub(crate) fn free(&self, chain: &[u64]) -> Result<()> {
        let start = start_at(&self.medium, self.start)?;
        for (number, page) in chain.iter().enumerate() {
            let guard = self.pool.enter();
            let retiring = self.pool.retire(POff::<PageHead>::new(*page), PAGE_HINT)?;
            // DURABLE: the intent, before the chain begins behind the page.
            self.medium.fence();
            let next = chain.get(number + 1).copied().unwrap_or(0);
            // DURABLE: the page is out of the chain, before it is free.
            // ORDER: Release: as in `grow`.
            start.store_persist(&self.medium, next, Ordering::Release);
            retiring.commit(&guard);
            self.set_count(chain.len() - number - 1);
        }
        Ok(())
    }
}

/// Room for a change.
pub(crate) struct ChangeSlot<'a, const N: usize> {
    logs: &'a Logs<N>,
    place: MutexGuard<'a, RecordSlot>,
    record: &'a Record,
}

impl<const N: usize> ChangeSlot<'_, N> {
    /// Writes a change here, durably.
    pub(crate) fn fill(mut self, change: LoggedChange) {
        let (medium, record) = (&self.logs.medium, self.record);
        let offset = medium.offset_of(record).raw();
        let is_delete = change.value.is_none();
        let words = [
            change.key,
            change.value.unwrap_or(0),
            change.number << 1 | u64::from(is_delete),
        ];
        let check = self.logs.check_of(offset, words);
        // ORDER: Relaxed: nobody else looks at the record before the page is full, under a lock.
        record.key.store(medium, words[0], Ordering::Relaxed);
        // ORDER: Relaxed: as above.
        record.value.store(medium, words[1], Ordering::Relaxed);
        record.change.store(medium, words[2], Ordering::Relaxed);
        record.check.store(medium, check, Ordering::Relaxed);
        // DURABLE: the change.
        medium.persist(record);
        self.place.record += 1;
    }
}
