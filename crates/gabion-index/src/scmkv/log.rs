//! Logs: the middle and upper layers of the paper's allocation.
//!
//! Each thread appends to a log of its own: records to an open page of records, chains to an open
//! page of chains. Threads that outnumber the logs share them. A log is locked from before its
//! record is written until the record is published, so that a full page holds nothing that is
//! still to be published. The cleaner has a log besides.

use gabion_media::pmem::Medium;
use parking_lot::{Mutex, MutexGuard};

use super::layout::{PAGE_HEAD_BYTES, RECORD_HEAD_BYTES, State};
use super::pages::{Head, Pages, Taker};
use super::record::Draft;
use crate::{Result, thread};

/// Where a thread appends.
#[derive(Debug, Default)]
pub(super) struct Log {
    pub(super) records: Option<Head>,
    pub(super) chains: Option<Head>,
    /// For whom its next page is.
    pub(super) taker: Taker,
    /// Records that users put, and their bytes.
    pub(super) puts: u64,
    pub(super) put_bytes: u64,
    /// A record that is put together.
    scratch: Vec<u8>,
}

/// How much of a record is durable before it is published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flush {
    /// Its head.
    Head,
    /// All of it, and all that came before it in its log.
    All,
    /// Nothing: the caller sees to that.
    Nothing,
}

impl Log {
    /// Makes sure that a record of so many bytes fits into the open page.
    ///
    /// # Errors
    /// No space.
    #[inline]
    pub(super) fn room_for_record(&mut self, pages: &Pages, bytes: u64) -> Result<&Head> {
        let fits = |head: &Head| head.tail + bytes <= pages.bytes;
        // An open page from before the last close may be all but full.
        while !self.records.as_ref().is_some_and(fits) {
            turn_page(pages, &mut self.records, State::LogOpen, self.taker)?;
        }
        self.records.as_ref().ok_or_else(|| pages.full())
    }

    /// As [`Log::room_for_record`], of a chain.
    ///
    /// # Errors
    /// No space.
    pub(super) fn room_for_chain(&mut self, pages: &Pages, bytes: u64) -> Result<&mut Head> {
        let fits = |head: &Head| head.tail + bytes <= pages.bytes;
        while !self.chains.as_ref().is_some_and(fits) {
            turn_page(pages, &mut self.chains, State::ChainsOpen, self.taker)?;
        }
        self.chains.as_mut().ok_or_else(|| pages.full())
    }

    /// Writes a record that replaces the one at `old` to the place that [`Log::room_for_record`]
    /// gave, without a fence.
    #[inline]
    #[track_caller]
    pub(super) fn append(&mut self, medium: &Medium, record: &Draft<'_>, old: u64, flush: Flush) {
        let Some(head) = &mut self.records else {
            return;
        };
        let address = head.next();
        record.encode(address, head.generation, old, &mut self.scratch);
        medium.write(address, &self.scratch);
        head.tail += record.bytes();
        // Where a record of this size will go next.
        for line in (head.next()..head.next() + record.bytes()).step_by(64) {
            medium.prefetch(line);
        }
        match flush {
            // DURABLE: the head, with the caller's fence: recovery finds the record and what it
            // replaced.
            Flush::Head => medium.flush_range(address, RECORD_HEAD_BYTES),
            // DURABLE: the record and all before it, with the caller's fence.
            Flush::All => {
                medium.flush_range(head.start + head.persisted, head.tail - head.persisted);
                head.persisted = head.tail;
            }
            Flush::Nothing => {}
        }
    }

    /// Makes the open pages full that lack room for a record or a chain of so many bytes: what is
    /// garbage in them can be cleaned then.
    pub(super) fn close_narrow(&mut self, pages: &Pages, record_bytes: u64, chain_bytes: u64) {
        let wanted = [record_bytes, chain_bytes];
        let open = [&mut self.records, &mut self.chains];
        for (head, bytes) in open.into_iter().zip(wanted) {
            if let Some(mut full) = head.take_if(|head| head.tail + bytes > pages.bytes) {
                pages.close_page(&mut full);
            }
        }
    }

    /// Makes everything in the open pages durable. Chains always are.
    pub(super) fn persist(&mut self, pages: &Pages) {
        if let Some(head) = &mut self.records {
            pages.persist_and_mark(head);
        }
    }
}

/// Replaces a page that is full by an empty one.
#[cold]
fn turn_page(pages: &Pages, head: &mut Option<Head>, state: State, taker: Taker) -> Result<()> {
    let next = pages.open_page(state, taker)?;
    if let Some(full) = head {
        pages.close_page(full);
    }
    *head = Some(next);
    Ok(())
}

/// Bytes of the largest record or chain that a page holds.
pub(super) fn room_of_page(page_bytes: u64) -> u64 {
    page_bytes - PAGE_HEAD_BYTES
}

/// The logs of the writers.
#[derive(Debug)]
pub(super) struct Logs(Box<[Padded]>);

#[derive(Debug, Default)]
#[repr(align(128))]
struct Padded(Mutex<Log>);

impl Logs {
    pub(super) fn new(count: usize) -> Logs {
        Logs((0..count.max(1)).map(|_| Padded::default()).collect())
    }

    /// The log of this thread, held.
    #[inline]
    pub(super) fn mine(&self) -> MutexGuard<'_, Log> {
        self.0[thread::number() % self.0.len()].0.lock()
    }

    /// All logs, each of which is held as long as its turn lasts.
    pub(super) fn each(&self) -> impl Iterator<Item = MutexGuard<'_, Log>> {
        self.0.iter().map(|log| log.0.lock())
    }
}
