//! A reserved run of chunks: space for one block at a time even if the pool is full.
//!
//! A structure that needs space for a moment in order to make some, such as for a copy of many
//! deletes that are to happen together, would be stuck in a full pool. So a pool may keep a run of
//! chunks back ([`PoolOptions::keeps_run`](super::super::PoolOptions::keeps_run)), from which
//! nothing is taken but by [`Allocator::reserve_kept`], one block at a time.
//!
//! It is in memory only. On the medium its chunks are free, and so an opening finds them, unless a
//! block lay there; where they are missing, the next chunks that are free in one piece are kept,
//! before anybody else has them. A block takes all of the run, however small it is: else others
//! would have the rest after an opening that finds the block, and no run would come of it again.

use super::central::CentralHeap;
use super::extents::FreeExtents;
use super::intent::Intent;
use super::{AllocError, Allocator, BlockTicket};

/// The run.
#[derive(Debug, Default)]
pub(crate) struct ReservedRun {
    /// Its length in chunks; 0 if none is kept.
    chunks: u64,
    /// Its first chunk, unless it is missing.
    start: Option<u64>,
    /// Whether it is a block now.
    is_lent: bool,
}

impl ReservedRun {
    /// A run of so many chunks, which is missing.
    pub(crate) fn new(chunks: u64) -> ReservedRun {
        ReservedRun {
            chunks,
            ..ReservedRun::default()
        }
    }

    /// Its length if it is missing, else 0.
    pub(crate) fn missing(&self) -> u64 {
        match self.start {
            None => self.chunks,
            Some(_) => 0,
        }
    }

    /// Takes it out of free chunks if it is missing and they have so many in one piece.
    fn keep(&mut self, extents: &mut FreeExtents) {
        if self.missing() > 0 {
            self.start = extents.take(self.chunks);
        }
    }

    /// All of it for a block of so many chunks: the first one, and their number.
    fn lend(&mut self, count: u64) -> Option<(u64, u64)> {
        let is_free = !self.is_lent && count <= self.chunks;
        let start = self.start.filter(|_| is_free)?;
        self.is_lent = true;
        Some((start, self.chunks))
    }

    /// Takes chunks back from the first one on, and tells whether they are of the run.
    fn take_back(&mut self, chunk: u64) -> bool {
        let is_own = self.is_lent && self.start == Some(chunk);
        self.is_lent &= !is_own;
        is_own
    }
}

impl CentralHeap {
    /// Takes free chunks back.
    pub(crate) fn give_chunks(&mut self, chunk: u64, count: u64) {
        if !self.kept_run.take_back(chunk) {
            self.extents.give(chunk, count);
            self.kept_run.keep(&mut self.extents);
        }
    }
}

impl Allocator {
    /// Sets the run aside if it is missing and there is space for it. If there is none, it is
    /// short: whoever retires a block that lies there hands it over at once.
    pub(in super::super) fn keep_run(&self) {
        let mut central = self.central.lock();
        let missing = central.kept_run.missing();
        if missing == 0 {
            return;
        }
        match self.take_chunks(&mut central, missing) {
            Ok(Some(start)) => central.kept_run.start = Some(start),
            Ok(None) | Err(_) => self.set_short(),
        }
    }

    /// Whether a run is kept back, be it missing for now.
    pub(in super::super) fn keeps_run(&self) -> bool {
        self.central.lock().kept_run.chunks > 0
    }

    /// As [`Allocator::reserve`], in the run that is kept back.
    #[track_caller]
    pub(in super::super) fn reserve_kept(
        &self,
        size: u64,
        hint: u64,
    ) -> Result<BlockTicket, AllocError> {
        let chunk_bytes = self.geometry.chunk_bytes;
        let count = size.max(1).div_ceil(chunk_bytes);
        // The block is wanted again soon after it is retired, by whatever thread.
        self.set_short();
        self.epochs.flush();
        self.drain();
        self.keep_run();
        let lent = self.central.lock().kept_run.lend(count);
        let (chunk, count) = lent.ok_or(AllocError::Full)?;
        let block = self.geometry.chunk_at(chunk);
        let intent = Intent {
            block,
            hint,
            count,
            is_retire: false,
        };
        self.announce(intent, count * chunk_bytes)
            .inspect_err(|_| self.give(block, count))
    }
}
