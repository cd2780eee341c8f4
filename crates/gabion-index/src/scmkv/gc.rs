//! Garbage collection: empties and frees pages with few live bytes.
//!
//! # Idea
//! The cleaner takes a full page, the one with the best ratio of benefit to cost as LFS defines it:
//! `(1 - u) * age / (1 + u)`, where `u` is the part of the page that is live and the age counts in
//! pages that became full since. It copies the live records to a log of its own, makes the copies
//! durable, and only then lets the table refer to them, record by record, each under its stripe
//! and only if the table still refers to the original. Pages of chains are emptied likewise.
//!
//! # Invariants
//! - G1. A copy is durable before the table refers to it. So no copy is ever rolled back.
//! - G2. Before a page is released, all logs are made durable. A record that may be rolled back was
//!   therefore written after the table stopped to refer to the page, and what it replaced does not
//!   lie there: rolling back never leads into a page that is gone.
//! - G3. The cleaner needs at most one new page to empty one, and that is kept for it (P3). So
//!   it never waits for space that only it can make.
//!
//! # After a crash
//! What is live in the full pages is not known then, only a bound. A page is counted, record by
//! record under the stripes, before it is chosen; and those that are not counted wait as long as
//! one that is has plenty of garbage.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::layout::{Entry, LINE_BYTES, PAGE_HEAD_BYTES, PageState, RECORD_HEAD_BYTES};
use super::log::{RecordFlush, ThreadLog, room_of_page};
use super::pages::{AppendPoint, PageUser};
use super::record::{NewRecord, Record, records};
use super::steps::{Step, is_taken};
use super::{Scmkv, Volume};
use crate::lock::Backoff;
use crate::{Error, Result};

/// A page whose garbage is less than this part of it is not worth cleaning, unless space is wanted.
const WORTHWHILE_PART: u64 = 16;

/// A page with so much of it free is worth cleaning while there are pages that are not counted.
const PLENTY_PART: u64 = 2;

/// Pages that a store may take whatever is live in it: those that are open, those that are kept,
/// and some for garbage.
const SLACK_PAGES: u64 = 16;

/// Lines of the chains that a record may need, at most, when space is set aside for it: with more,
/// the table would have been enlarged long before.
const CHAIN_LINES_OF_RECORD: u64 = 8;

/// Time that the cleaner waits for readers of a page that it released, before it empties another.
const RELEASED_PATIENCE: Duration = Duration::from_millis(5);

/// Time that a writer waits for pages that were released, once all are cleaned: a reader that lost
/// its processor comes back within it, and so does a writer that is about to hand over what it
/// released.
const READERS_PATIENCE: Duration = Duration::from_secs(1);

/// Time to wait for writers that have replaced a record and not yet counted it out, which takes
/// them some instructions. What is not counted out after it never will be.
const WRITERS_PATIENCE: Duration = Duration::from_secs(10);

/// What the cleaner holds.
#[derive(Debug, Default)]
pub(super) struct Cleaning {
    pub(super) log: ThreadLog,
}

/// What one step of the cleaner came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// Pages that were emptied and given back: 0 or 1.
    pub pages: u64,
    /// Bytes of records and chains that were moved out of them.
    pub moved_bytes: u64,
}

impl Volume {
    /// Cleans until a writer can have a page. False if nothing is left to clean and nothing comes
    /// back from readers.
    pub(super) fn make_room(&self) -> Result<bool> {
        self.await_room(|| self.make_room_for(&mut self.cleaning.lock(), 1))
    }

    /// As [`Volume::make_room`], until all pages are there that are kept.
    pub(super) fn make_kept_room(&self, cleaning: &mut Cleaning) -> Result<bool> {
        self.await_room(|| self.make_room_for(cleaning, 0))
    }

    fn await_room(&self, mut make_room: impl FnMut() -> Result<bool>) -> Result<bool> {
        let mut room = Ok(false);
        Backoff::wait_until(READERS_PATIENCE, || {
            room = make_room();
            !matches!(room, Ok(false)) || self.pool.stats().retired_bytes == 0
        });
        room
    }

    /// Cleans until writers can have so many pages. False if nothing is left to clean.
    fn make_room_for(&self, cleaning: &mut Cleaning, pages: usize) -> Result<bool> {
        let mut released = false;
        for _ in 0..2 * self.pages.count() + 4 {
            if self.has_room(pages, released)? {
                return Ok(true);
            }
            match self.clean_one(cleaning, 0) {
                Ok(Collected { pages: 0, .. }) => return Ok(false),
                Ok(_) => released = true,
                Err(error) if error.is_no_space() => return self.has_room(pages, true),
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }

    /// Does something that needs space of the pool, and cleans pages until there is enough.
    pub(super) fn clean_until(&self, act: impl Fn() -> Result<()>) -> Result<()> {
        for _ in 0..2 * self.pages.count() {
            match act() {
                Err(error) if error.is_no_space() => {
                    let mut cleaning = self.cleaning.lock();
                    if self.clean_one(&mut cleaning, 0)?.pages == 0 {
                        return Err(error);
                    }
                }
                done => return done,
            }
        }
        act()
    }

    /// Whether so many pages are to be had besides those that are kept. If pages were released,
    /// this waits a little for their readers.
    fn has_room(&self, pages: usize, released: bool) -> Result<bool> {
        let mut room = Ok(false);
        Backoff::wait_until(RELEASED_PATIENCE, || {
            let within = self.pool.write_guard();
            self.pool.collect();
            let filled = self.pages.fill_reserve(pages);
            drop(within);
            let may_come = released && self.pool.stats().retired_bytes > 0;
            room = match filled {
                Ok(()) => Ok(true),
                Err(error) if !error.is_no_space() => Err(error),
                Err(_) => Ok(false),
            };
            !matches!(room, Ok(false)) || !may_come
        });
        room
    }

    /// Empties the page that is best to be emptied, if there is one with more garbage than a part
    /// of it.
    fn clean_one(&self, cleaning: &mut Cleaning, garbage_min: u64) -> Result<Collected> {
        let _within = self.pool.write_guard();
        let Some(victim) = self.victim(garbage_min)? else {
            return Ok(Collected::default());
        };
        let moved_bytes = self.empty(cleaning, victim)?;
        if is_taken(Step::PersistBeforeRelease) {
            self.persist_logs();
        }
        self.pages.release(victim)?;
        self.pool.collect();
        self.counts.cleaned(moved_bytes);
        Ok(Collected {
            pages: 1,
            moved_bytes,
        })
    }

    /// The page to be emptied. Pages that are not counted are, one by one, until there is one with
    /// plenty of garbage: who waits for space after a crash does not wait for all of them.
    fn victim(&self, garbage_min: u64) -> Result<Option<u32>> {
        let plenty = garbage_min.max(self.pages.bytes / PLENTY_PART);
        loop {
            let Some(number) = self.next_uncounted() else {
                return Ok(self.choose(garbage_min));
            };
            if let Some(victim) = self.choose(plenty) {
                return Ok(Some(victim));
            }
            self.count(number)?;
        }
    }

    /// A full page of which is not known how much is live.
    fn next_uncounted(&self) -> Option<u32> {
        self.pages.numbers().find(|number| {
            let page = self.pages.page(*number);
            page.state().is_full() && !page.is_counted()
        })
    }

    /// Counts what is live in a full page. Others may write meanwhile.
    fn count(&self, number: u32) -> Result<()> {
        let page = self.pages.page(number);
        page.uncount_all();
        let (start, end) = (page.start(), page.end());
        if page.state().is_log() {
            for record in records(&self.medium, start, end, page.generation()) {
                let _stripe = self.stripes.lock(record.hash);
                let is_live = self.refers_to(&record)?;
                page.count_to(record.address, record.bytes(), is_live);
            }
        } else {
            for (address, chain) in self.pages.chains(start, end) {
                let _stripe = self.stripes.lock(chain.hash());
                let (_, entry) = self.bucket(chain.hash())?;
                let is_live = entry == Entry::chain(address, chain.lines());
                page.count_to(address, chain.bytes(), is_live);
            }
        }
        page.count_done();
        Ok(())
    }

    /// Counts one page that is not counted, and tells whether there was one.
    pub(super) fn count_one(&self) -> Result<bool> {
        let _cleaning = self.cleaning.lock();
        let next = self.next_uncounted();
        next.map_or(Ok(false), |number| self.count(number).map(|()| true))
    }

    /// The full page with the best ratio of benefit to cost.
    fn choose(&self, garbage_min: u64) -> Option<u32> {
        let now = self.pages.now();
        let room = room_of_page(self.pages.bytes);
        let mut best: Option<(f64, u32)> = None;
        for number in self.pages.numbers() {
            let page = self.pages.page(number);
            if !page.state().is_full() || !page.is_counted() {
                continue;
            }
            let (live, used) = (page.live(), page.end_bytes());
            let is_dirty = used - PAGE_HEAD_BYTES > live;
            // A page that a crash made full may be all live and nearly empty.
            let is_small = used < self.pages.bytes * 3 / 4;
            if !(is_dirty || is_small) || room.saturating_sub(live) < garbage_min {
                continue;
            }
            let used_part = live as f64 / room as f64;
            let age = (now.saturating_sub(page.stamp()) + 1) as f64;
            let ratio = (1.0 - used_part) * age / (1.0 + used_part);
            if best.is_none_or(|(best, _)| ratio > best) {
                best = Some((ratio, number));
            }
        }
        best.map(|(_, number)| number)
    }

    /// Moves what is live out of a page, and returns its size.
    fn empty(&self, cleaning: &mut Cleaning, number: u32) -> Result<u64> {
        let page = self.pages.page(number);
        let log = &mut cleaning.log;
        log.taker = PageUser::Cleaner;
        if page.live() == 0 {
            return Ok(0);
        }
        let moved = if page.state() == PageState::LogFull {
            self.move_records(log, number)
        } else {
            self.move_chains(log, number)
        };
        let moved = moved?;
        // A writer that has just replaced a record in the page counts it out in a moment.
        if Backoff::wait_until(WRITERS_PATIENCE, || page.live() == 0) {
            return Ok(moved);
        }
        Err(Error::damaged("the usage of a page", page.start()))
    }

    fn move_records(&self, log: &mut ThreadLog, number: u32) -> Result<u64> {
        let page = self.pages.page(number);
        let mut moves = Vec::new();
        let mut at_end = page.start() + PAGE_HEAD_BYTES;
        let mut failed = None;
        for record in records(&self.medium, page.start(), page.end(), page.generation()) {
            at_end = record.address + record.bytes();
            let guard = self.pool.enter();
            let is_live = self.refers_to(&record)?;
            drop(guard);
            if !is_live {
                continue;
            }
            match self.copy(log, &record) {
                Ok(copy) => moves.push((record, copy)),
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            }
        }
        if failed.is_none() && at_end != page.end() {
            return Err(Error::damaged("a record", at_end));
        }
        if let Some(head) = &mut log.records
            && is_taken(Step::PersistCopies)
        {
            // DURABLE: all copies, before the table refers to any of them.
            self.pages.persist(head);
        }
        let moved = self.redirect(&moves)?;
        failed.map_or(Ok(moved), Err)
    }

    /// Copies a live record to the cleaner's log, and returns the address.
    fn copy(&self, log: &mut ThreadLog, record: &Record) -> Result<u64> {
        let content = record.content(&self.medium, &self.seed);
        let (key, value) = content.ok_or_else(|| Error::damaged("a record", record.address))?;
        let address = log.room_for_record(&self.pages, record.bytes())?.next();
        let copy = NewRecord::new(record.hash, &key, &value);
        log.append(&self.medium, &copy, 0, RecordFlush::Nothing);
        Ok(address)
    }

    /// Lets the table refer to copies instead of records, as far as it does refer to them still.
    fn redirect(&self, moves: &[(Record, u64)]) -> Result<u64> {
        let mut moved = 0;
        for (record, copy) in moves {
            let _stripe = self.stripes.lock(record.hash);
            let spot = self.spot_of_record(record)?;
            let Some(found) = spot.found else {
                continue;
            };
            let entry = found.entry.at(*copy);
            // ORDER: Release pairs with the Acquire of lookups.
            // DURABLE: the copy is; this word is before the page is released.
            found.word.store(&self.medium, entry.0, Ordering::Release);
            self.medium.flush(found.word);
            let bytes = record.bytes();
            self.pages.count_in(*copy, bytes);
            self.pages.count_out(record.address, bytes);
            moved += bytes;
        }
        // DURABLE: the table refers to the copies.
        self.medium.fence();
        Ok(moved)
    }

    fn move_chains(&self, log: &mut ThreadLog, number: u32) -> Result<u64> {
        let page = self.pages.page(number);
        let mut moved = 0;
        let all: Vec<_> = self.pages.chains(page.start(), page.end()).collect();
        for (address, chain) in all {
            let _stripe = self.stripes.lock(chain.hash());
            let (bucket, entry) = self.bucket(chain.hash())?;
            if entry != Entry::chain(address, chain.lines()) {
                continue;
            }
            let entries: Vec<Entry> = super::table::entries(&self.medium, bucket, entry)?
                .map(|(_, entry)| entry)
                .collect();
            let copy = self.write_chain(log, &entries, chain.hash())?;
            // DURABLE: the copy, before its bucket refers to it.
            self.medium.fence();
            // ORDER: Release pairs with the Acquire of lookups.
            // DURABLE: the bucket refers to the copy, before the page is released.
            bucket.store_persist(&self.medium, copy.0, Ordering::Release);
            let bytes = copy.lines() * LINE_BYTES;
            self.pages.count_in(copy.address(), bytes);
            self.pages.count_out(address, chain.bytes());
            moved += chain.bytes();
        }
        Ok(moved)
    }

    /// Whether pages are getting few, or take too much for what is live in them.
    fn is_cleaning_due(&self) -> bool {
        let (mut used, mut live) = (0_u64, 0_u64);
        for number in self.pages.numbers() {
            let page = self.pages.page(number);
            // What is live there counts as nothing until it is counted.
            if page.state().is_full() && !page.is_counted() {
                return false;
            }
            used += 1;
            live += page.live();
        }
        // An eighth of all pages is kept free, so that writers do not have to clean themselves.
        let is_short = used * 8 >= self.pages_max() * 7;
        let allowed = self.space_amplification_max * live as f64;
        let used = used.saturating_sub(SLACK_PAGES) * self.pages.bytes;
        is_short || used as f64 > allowed
    }

    /// A step of the cleaner that runs in the background: cleans a page if that is due and one is
    /// worth it.
    pub(super) fn clean_if_due(&self) -> Result<Collected> {
        if !self.is_cleaning_due() {
            return Ok(Collected::default());
        }
        let garbage_min = self.pages.bytes / WORTHWHILE_PART;
        let mut cleaning = self.cleaning.lock();
        match self.clean_one(&mut cleaning, garbage_min) {
            Err(error) if error.is_no_space() => Ok(Collected::default()),
            done => done,
        }
    }

    /// The open pages of all logs, the cleaner's included.
    pub(super) fn open_heads(&self) -> Vec<AppendPoint> {
        let cleaners = self.cleaning.lock();
        let of_log = |log: &ThreadLog| [log.records, log.chains];
        let mut heads: Vec<AppendPoint> = of_log(&cleaners.log).into_iter().flatten().collect();
        for log in self.logs.each() {
            heads.extend(of_log(&log).into_iter().flatten());
        }
        heads
    }
}

impl Scmkv {
    /// Sets space aside for so many records, of so many bytes of keys and values, as long as nobody
    /// else writes: puts of them find space then. Cleans if that is needed.
    ///
    /// # Errors
    /// No space. Damage on the medium.
    pub fn reserve(&self, records: u64, bytes: u64) -> Result<()> {
        let volume = &self.volume;
        let room = room_of_page(volume.pages.bytes);
        // Two neighbouring pages together hold more than one of them has room for.
        let pages_of = |bytes: u64| match bytes.div_ceil(room) {
            0 | 1 => 1,
            pages => 2 * pages,
        };
        let bytes = bytes.saturating_add(records.saturating_mul(2 * RECORD_HEAD_BYTES));
        let chains = records.saturating_mul(CHAIN_LINES_OF_RECORD * LINE_BYTES);
        let pages = pages_of(bytes) + pages_of(chains);
        let pages = usize::try_from(pages).unwrap_or(usize::MAX);
        let within = volume.pool.write_guard();
        let filled = volume.pages.fill_reserve(pages);
        drop(within);
        match filled {
            Err(error) if error.is_no_space() => {
                let has_room = volume.make_room_for(&mut volume.cleaning.lock(), pages)?;
                has_room.then_some(()).ok_or(error)
            }
            done => done,
        }
    }

    /// Empties the page that is best to be emptied, if any has garbage, whether space is wanted or
    /// not. With [`Options::cleans`](super::Options::cleans), and by writers that find no space,
    /// this is done anyway.
    ///
    /// # Errors
    /// Damage on the medium.
    pub fn collect_garbage(&self) -> Result<Collected> {
        let volume = &self.volume;
        let mut cleaning = volume.cleaning.lock();
        match volume.clean_one(&mut cleaning, 0) {
            Err(error) if error.is_no_space() => Ok(Collected::default()),
            done => done,
        }
    }
}
