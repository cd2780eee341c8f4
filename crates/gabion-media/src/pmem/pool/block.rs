//! Blocks in transition: reserved but not published yet, or about to be freed.

use std::marker::PhantomData;

use super::super::alloc::BlockTicket;
use super::super::alloc::chunk::BlockState;
use super::super::epoch::Guard;
use super::super::off::POff;
use super::Pool;

/// A block that is reserved and not yet published. See [`Pool::alloc`].
#[derive(Debug)]
pub struct Reserved<'a> {
    pub(super) pool: &'a Pool,
    pub(super) ticket: BlockTicket,
    pub(super) is_open: bool,
    /// Fences are those of one thread.
    pub(super) thread: PhantomData<*const ()>,
}

impl Reserved<'_> {
    /// Where the block begins.
    #[inline]
    pub fn offset<T>(&self) -> POff<T> {
        POff::new(self.ticket.intent.block)
    }

    /// Size in bytes, at least what was asked for.
    #[inline]
    pub fn size(&self) -> u64 {
        self.ticket.size
    }

    /// Says that the block was published and that this is durable: it is allocated.
    #[inline]
    #[track_caller]
    pub fn commit<T>(mut self) -> POff<T> {
        self.is_open = false;
        self.pool
            .shared
            .allocator
            .commit(&self.ticket, BlockState::Allocated);
        self.offset()
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        if self.is_open {
            self.pool.shared.allocator.cancel(&self.ticket);
        }
    }
}

/// A block that is about to be unpublished. See [`Pool::retire`].
#[derive(Debug)]
pub struct Retiring<'a> {
    pub(super) pool: &'a Pool,
    pub(super) ticket: BlockTicket,
    pub(super) is_open: bool,
    /// Fences are those of one thread.
    pub(super) thread: PhantomData<*const ()>,
}

impl Retiring<'_> {
    /// Size of the block in bytes.
    pub fn size(&self) -> u64 {
        self.ticket.size
    }

    /// Says that nothing refers to the block any more and that this is durable: it is free once
    /// all guards of now are gone.
    #[track_caller]
    pub fn commit(mut self, guard: &Guard<'_>) {
        self.is_open = false;
        let allocator = &self.pool.shared.allocator;
        allocator.commit(&self.ticket, BlockState::Retired);
        allocator.defer(guard, self.ticket.intent.block, self.ticket.intent.count);
    }

    /// As [`Retiring::commit`] for a block that no other thread can be reading: it is free now.
    #[track_caller]
    pub fn commit_now(mut self) {
        self.is_open = false;
        let allocator = &self.pool.shared.allocator;
        allocator.commit(&self.ticket, BlockState::Retired);
        allocator.free(&[(self.ticket.intent.block, self.ticket.intent.count)]);
    }
}

impl Drop for Retiring<'_> {
    fn drop(&mut self) {
        if self.is_open {
            self.pool.shared.allocator.cancel(&self.ticket);
        }
    }
}
