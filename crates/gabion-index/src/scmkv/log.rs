//! Logs: the middle and upper layers of the paper's allocation.
//!
//! Each thread appends to a log of its own: records to an open page of records, chains to an open
//! page of chains. Threads that outnumber the logs share them. A log is locked from before its
//! record is written until the record is published, so that a full page holds nothing that is
//! still to be published. The cleaner has a log besides.

use gabion_media::pmem::Medium;
use parking_lot::{Mutex, MutexGuard};

use super::layout::{PAGE_HEAD_BYTES, PageState, RECORD_HEAD_BYTES};
use super::pages::{AppendPoint, PageTable, PageUser};
use super::record::NewRecord;
use crate::{Result, thread};

/// Where a thread appends.
#[derive(Debug, Default)]
pub(super) struct ThreadLog {
    pub(super) records: Option<AppendPoint>,
    pub(super) chains: Option<AppendPoint>,
    /// For whom its next page is.
    pub(super) taker: PageUser,
    /// Records that users put, and their bytes.
    pub(super) puts: u64,
    pub(super) put_bytes: u64,
    /// A record that is put together.
    scratch: Vec<u8>,
}

/// How much of a record is durable before it is published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RecordFlush {
    /// Its head.
    Head,
    /// All of it, and all that came before it in its log.
    All,
    /// Nothing: the caller sees to that.
    Nothing,
}

impl ThreadLog {
    /// Makes sure that a record of so many bytes fits into the open page.
    ///
    /// # Errors
    /// No space.
    #[inline]
    pub(super) fn room_for_record(
        &mut self,
        pages: &PageTable,
        bytes: u64,
    ) -> Result<&AppendPoint> {
        let fits = |head: &AppendPoint| head.tail + bytes <= pages.bytes;
        // An open page from before the last close may be all but full.
        while !self.records.as_ref().is_some_and(fits) {
            turn_page(pages, &mut self.records, PageState::LogOpen, self.taker)?;
        }
        self.records.as_ref().ok_or_else(|| pages.full())
    }

    /// As [`ThreadLog::room_for_record`], of a chain.
    ///
    /// # Errors
    /// No space.
    pub(super) fn room_for_chain(
        &mut self,
        pages: &PageTable,
        bytes: u64,
    ) -> Result<&mut AppendPoint> {
        let fits = |head: &AppendPoint| head.tail + bytes <= pages.bytes;
        while !self.chains.as_ref().is_some_and(fits) {
            turn_page(pages, &mut self.chains, PageState::ChainsOpen, self.taker)?;
        }
        self.chains.as_mut().ok_or_else(|| pages.full())
    }

    /// Writes a record that replaces the one at `old` to the place that
    /// [`ThreadLog::room_for_record`] gave, without a fence.
    #[inline]
    #[track_caller]
    pub(super) fn append(
        &mut self,
        medium: &Medium,
        record: &NewRecord<'_>,
        old: u64,
        flush: RecordFlush,
    ) {
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
            RecordFlush::Head => medium.flush_range(address, RECORD_HEAD_BYTES),
            // DURABLE: the record and all before it, with the caller's fence.
            RecordFlush::All => {
                medium.flush_range(head.start + head.persisted, head.tail - head.persisted);
                head.persisted = head.tail;
            }
            RecordFlush::Nothing => {}
        }
    }

    /// Makes the open pages full that lack room for a record or a chain of so many bytes: what is
    /// garbage in them can be cleaned then.
    pub(super) fn close_narrow(&mut self, pages: &PageTable, record_bytes: u64, chain_bytes: u64) {
        let wanted = [record_bytes, chain_bytes];
        let open = [&mut self.records, &mut self.chains];
        for (head, bytes) in open.into_iter().zip(wanted) {
            if let Some(mut full) = head.take_if(|head| head.tail + bytes > pages.bytes) {
                pages.close_page(&mut full);
            }
        }
    }

    /// Makes everything in the open pages durable. Chains always are.
    pub(super) fn persist(&mut self, pages: &PageTable) {
        if let Some(head) = &mut self.records {
            pages.persist_and_mark(head);
        }
    }
}

/// Replaces a page that is full by an empty one.
#[cold]
fn turn_page(
    pages: &PageTable,
    head: &mut Option<AppendPoint>,
    state: PageState,
    taker: PageUser,
) -> Result<()> {
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
pub(super) struct ThreadLogs(Box<[Padded]>);

#[derive(Debug, Default)]
#[repr(align(128))]
struct Padded(Mutex<ThreadLog>);

impl ThreadLogs {
    pub(super) fn new(count: usize) -> ThreadLogs {
        ThreadLogs((0..count.max(1)).map(|_| Padded::default()).collect())
    }

    /// The log of this thread, held.
    #[inline]
    pub(super) fn mine(&self) -> MutexGuard<'_, ThreadLog> {
        self.0[thread::number() % self.0.len()].0.lock()
    }

    /// All logs, each of which is held as long as its turn lasts.
    pub(super) fn each(&self) -> impl Iterator<Item = MutexGuard<'_, ThreadLog>> {
        self.0.iter().map(|log| log.0.lock())
    }
}
