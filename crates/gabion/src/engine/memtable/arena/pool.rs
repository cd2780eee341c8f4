//! The memory that MemTables are made of: chunks of a few fixed sizes, recycled between tables and
//! counted to the byte.
//!
//! # Idea
//! All MemTables of a store share one pool and so one memory budget. A table that is dropped hands
//! its chunks to the pool, and the next table writes into memory that is already mapped: in steady
//! state no put pays for a page fault.
//!
//! The first chunks of a table are smaller than the later ones, so that thousands of nearly empty
//! tables do not hold megabytes that they do not use.
//!
//! What is no chunk goes back to the system: a directory or a record may be as long as a chunk by
//! chance, but nobody takes its block for the next one of its kind. So a [`ArenaChunk`] is a type
//! of its own, which only the pool makes.
//!
//! # Invariants
//! - P1: [`ChunkPool::allocated_bytes`] is the sum of what tables hold: chunks, records too large
//!   for a chunk, directories and sorted lists. Chunks that wait to be recycled are not in it.
//! - P2: chunks wait only as far as they and what tables hold are below the limit together.
//! - P3: of each size no more chunks wait than were in use at the same time, or stocked.

use std::alloc::{Layout, alloc, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use gabion_media::SystemMemory;
use parking_lot::Mutex;

/// Sizes of a table's first, second and all later chunks.
pub(in super::super) const CHUNK_SIZES: [usize; 3] = [4 << 10, 16 << 10, 64 << 10];

/// Alignment of every block: a cache line, which is what a line of the directory needs.
pub(in super::super) const BLOCK_ALIGN: usize = 64;

/// The system gives memory in pages of this size or larger ones.
const PAGE_BYTES: usize = 4 << 10;

/// Addresses have to leave the upper 16 bits of a word free.
const ADDRESS_BITS: u32 = 48;

/// Blocks of so many bytes or more, the largest chunks among them, are the system's own memory:
/// directories come and go with each table, and what the allocator keeps of them no table has.
const SYSTEM_BYTES_MIN: usize = CHUNK_SIZES[2];

/// A piece of memory that is freed when the block is dropped. What it holds is not initialised
/// unless the block was made by [`HeapBlock::zeroed`].
pub(in super::super) struct HeapBlock(Memory);

enum Memory {
    Allocated { start: NonNull<u8>, layout: Layout },
    System(SystemMemory),
}

// SAFETY: a block is a plain allocation; nothing about it belongs to the thread that made it.
unsafe impl Send for HeapBlock {}

impl HeapBlock {
    /// A block of `bytes` bytes, at least one, whose content is undefined.
    pub(in super::super) fn new(bytes: usize) -> HeapBlock {
        HeapBlock::allocated(bytes, |layout| {
            // SAFETY: the layout's size is not zero.
            unsafe { alloc(layout) }
        })
    }

    /// A block of `bytes` bytes, at least one, all zero.
    pub(in super::super) fn zeroed(bytes: usize) -> HeapBlock {
        HeapBlock::allocated(bytes, |layout| {
            // SAFETY: the layout's size is not zero.
            unsafe { alloc_zeroed(layout) }
        })
    }

    /// Memory of the system, or what `allocate` gives for a layout whose size is not zero.
    fn allocated(bytes: usize, allocate: impl FnOnce(Layout) -> *mut u8) -> HeapBlock {
        assert!(bytes > 0, "a block has at least one byte");
        let memory = if bytes >= SYSTEM_BYTES_MIN {
            Memory::System(SystemMemory::new(bytes))
        } else {
            let layout = Layout::from_size_align(bytes, BLOCK_ALIGN);
            let layout = layout.expect("a block is shorter than isize::MAX");
            match NonNull::new(allocate(layout)) {
                Some(start) => Memory::Allocated { start, layout },
                None => handle_alloc_error(layout),
            }
        };
        let block = HeapBlock(memory);
        let end = block.start().addr().get() + bytes;
        assert!(
            end >> ADDRESS_BITS == 0,
            "memory lies below 2^48 on this machine"
        );
        block
    }

    /// Writes to each page, so that the system gives the memory now.
    fn touch(&mut self) {
        for offset in (0..self.bytes()).step_by(PAGE_BYTES) {
            // SAFETY: the offset is below the length of the block.
            let byte = unsafe { self.start().add(offset) };
            // SAFETY: the block is borrowed alone, and any byte may be written to it.
            unsafe { byte.write_volatile(0) };
        }
    }

    /// The first byte; the pointer is good for the whole block.
    pub(in super::super) fn start(&self) -> NonNull<u8> {
        match &self.0 {
            Memory::Allocated { start, .. } => *start,
            Memory::System(memory) => memory.start(),
        }
    }

    /// The length in bytes.
    pub(in super::super) fn bytes(&self) -> usize {
        match &self.0 {
            Memory::Allocated { layout, .. } => layout.size(),
            Memory::System(memory) => memory.bytes(),
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if let Memory::Allocated { start, layout } = self {
            // SAFETY: `start` was allocated with this layout, and only this block frees it.
            unsafe { dealloc(start.as_ptr(), *layout) }
        }
    }
}

/// A block of one of the [`CHUNK_SIZES`] that a pool gave out, and takes back (P3).
pub(in super::super) struct ArenaChunk {
    block: HeapBlock,
    class: usize,
}

impl ArenaChunk {
    fn new(class: usize) -> ArenaChunk {
        let block = HeapBlock::new(CHUNK_SIZES[class]);
        ArenaChunk { block, class }
    }

    /// The first byte; the pointer is good for the whole chunk.
    pub(super) fn start(&self) -> NonNull<u8> {
        self.block.start()
    }

    /// The length in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.block.bytes()
    }
}

/// The memory of all MemTables of a store.
pub(crate) struct ChunkPool {
    /// Bytes that tables hold.
    allocated: AtomicU64,
    /// Bytes that tables have taken, ever.
    taken: AtomicU64,
    /// Most bytes of what tables hold and of chunks that wait to be used again (P2).
    limit: AtomicU64,
    /// Bytes of the chunks that wait; changed with these locked.
    waiting_bytes: AtomicU64,
    waiting: Mutex<Waiting>,
}

/// Chunks that no table uses, by their size.
#[derive(Default)]
struct Waiting {
    chunks: [Vec<ArenaChunk>; CHUNK_SIZES.len()],
}

impl ChunkPool {
    /// A pool that keeps unused chunks for the next tables while all is below `limit_bytes`.
    pub(crate) fn new(limit_bytes: usize) -> Arc<ChunkPool> {
        Arc::new(ChunkPool {
            allocated: AtomicU64::new(0),
            taken: AtomicU64::new(0),
            limit: AtomicU64::new(limit_bytes as u64),
            waiting_bytes: AtomicU64::new(0),
            waiting: Mutex::default(),
        })
    }

    /// Bytes that tables have taken since the pool exists, whatever they have given back: between
    /// two moments no table has grown by more than this has.
    #[inline]
    pub(crate) fn taken_bytes(&self) -> u64 {
        // ORDER: Relaxed; a statistic that orders nothing.
        self.taken.load(Ordering::Relaxed)
    }

    /// Bytes in use by tables, by cursors on them and by the sorted lists of both.
    pub(crate) fn allocated_bytes(&self) -> u64 {
        // ORDER: Relaxed; a statistic that orders nothing.
        self.allocated.load(Ordering::Relaxed)
    }

    /// Counts `bytes` as used.
    pub(in super::super) fn charge(&self, bytes: usize) {
        // ORDER: Relaxed (both); statistics that order nothing.
        self.allocated.fetch_add(bytes as u64, Ordering::Relaxed);
        self.taken.fetch_add(bytes as u64, Ordering::Relaxed);
        self.keep_limit();
    }

    /// As [`ChunkPool::charge`], for ever.
    #[cfg(test)]
    pub(crate) fn count_for_tests(&self, bytes: usize) {
        self.charge(bytes);
    }

    /// Bytes in use, and of chunks that wait to be used again.
    pub(crate) fn held_bytes(&self) -> u64 {
        // ORDER: Relaxed; a statistic that orders nothing.
        self.allocated_bytes() + self.waiting_bytes.load(Ordering::Relaxed)
    }

    /// Sets the limit up to which unused chunks are kept.
    pub(crate) fn set_limit(&self, bytes: u64) {
        // ORDER: Relaxed; a figure that orders nothing.
        self.limit.store(bytes, Ordering::Relaxed);
        self.keep_limit();
    }

    /// Bytes of chunks that wait: what is counted, and what a walk over them finds.
    #[cfg(test)]
    pub(crate) fn waiting_bytes_for_tests(&self) -> (u64, u64) {
        let waiting = self.waiting.lock();
        let walked = waiting.chunks.iter().flatten();
        let walked = walked.map(|chunk| chunk.bytes() as u64).sum();
        // ORDER: Relaxed; changed with the lock held.
        (self.waiting_bytes.load(Ordering::Relaxed), walked)
    }

    /// How much too much is held; chunks that wait could be given up for it.
    fn excess(&self) -> u64 {
        // ORDER: Relaxed; a figure that orders nothing.
        self.held_bytes()
            .saturating_sub(self.limit.load(Ordering::Relaxed))
    }

    /// Gives up chunks that wait until the limit is kept (P2).
    fn keep_limit(&self) {
        // ORDER: Relaxed; a statistic that orders nothing.
        if self.excess() == 0 || self.waiting_bytes.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut waiting = self.waiting.lock();
        let mut given_up = Vec::new();
        for class in (0..CHUNK_SIZES.len()).rev() {
            while self.excess() > 0
                && let Some(chunk) = waiting.chunks[class].pop()
            {
                let bytes = chunk.bytes() as u64;
                // ORDER: Relaxed, as above.
                self.waiting_bytes.fetch_sub(bytes, Ordering::Relaxed);
                given_up.push(chunk);
            }
        }
        drop(waiting);
        drop(given_up);
    }

    /// Counts `bytes` as no longer used.
    pub(in super::super) fn release(&self, bytes: usize) {
        // ORDER: Relaxed; a statistic that orders nothing.
        self.allocated.fetch_sub(bytes as u64, Ordering::Relaxed);
    }

    /// A chunk of one of the [`CHUNK_SIZES`], counted as used.
    pub(super) fn take(&self, class: usize) -> ArenaChunk {
        let size = CHUNK_SIZES[class];
        let recycled = {
            let mut waiting = self.waiting.lock();
            let chunk = waiting.chunks[class].pop();
            if chunk.is_some() {
                // ORDER: Relaxed; a statistic that orders nothing.
                self.waiting_bytes.fetch_sub(size as u64, Ordering::Relaxed);
            }
            chunk
        };
        self.charge(size);
        recycled.unwrap_or_else(|| ArenaChunk::new(class))
    }

    /// Sees to it that so many chunks of the largest size wait whose memory is there, as far as the
    /// limit allows: who fills a table with its lock held then waits for no page fault.
    pub(crate) fn stock(&self, chunks: usize) {
        let class = CHUNK_SIZES.len() - 1;
        let missing = chunks.saturating_sub(self.waiting.lock().chunks[class].len());
        // ORDER: Relaxed, a figure that orders nothing.
        let room = self.limit.load(Ordering::Relaxed);
        let room = room.saturating_sub(self.held_bytes()) / CHUNK_SIZES[class] as u64;
        let missing = missing.min(usize::try_from(room).unwrap_or(usize::MAX));
        if missing == 0 {
            return;
        }
        let mut made = Vec::with_capacity(missing);
        for _ in 0..missing {
            let mut chunk = ArenaChunk::new(class);
            chunk.block.touch();
            made.push(chunk);
        }
        self.keep_waiting(made);
    }

    /// Takes back chunks; they are kept for the next table as far as the limit allows.
    pub(super) fn give_back(&self, chunks: Vec<ArenaChunk>) {
        self.release(chunks.iter().map(ArenaChunk::bytes).sum());
        self.keep_waiting(chunks);
    }

    /// Keeps chunks until they are taken, and frees what is too much.
    fn keep_waiting(&self, chunks: Vec<ArenaChunk>) {
        let mut waiting = self.waiting.lock();
        let mut excess = Vec::new();
        for chunk in chunks {
            let bytes = chunk.bytes() as u64;
            // ORDER: Relaxed (both); figures that order nothing.
            if self.held_bytes() + bytes <= self.limit.load(Ordering::Relaxed) {
                self.waiting_bytes.fetch_add(bytes, Ordering::Relaxed);
                waiting.chunks[chunk.class].push(chunk);
            } else {
                excess.push(chunk);
            }
        }
        drop(waiting);
        drop(excess);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_what_is_out_and_recycles_up_to_the_limit() {
        let pool = ChunkPool::new(CHUNK_SIZES[2] + CHUNK_SIZES[0]);
        let chunks: Vec<ArenaChunk> = [2, 2, 0].map(|class| pool.take(class)).into();
        let first = chunks[0].start();
        assert_eq!(
            pool.allocated_bytes(),
            (2 * CHUNK_SIZES[2] + CHUNK_SIZES[0]) as u64
        );

        pool.give_back(chunks);
        assert_eq!(pool.allocated_bytes(), 0);
        let waiting =
            |bytes: usize| assert_eq!(pool.waiting_bytes_for_tests(), (bytes as u64, bytes as u64));
        waiting(CHUNK_SIZES[2] + CHUNK_SIZES[0]);

        let again = pool.take(2);
        assert_eq!(again.start(), first);
        waiting(CHUNK_SIZES[0]);
        // What is in use takes the place of what waits.
        let middle = pool.take(1);
        waiting(0);
        assert_eq!(pool.held_bytes(), (CHUNK_SIZES[2] + CHUNK_SIZES[1]) as u64);
        pool.give_back(vec![again, middle]);
        waiting(CHUNK_SIZES[2]);
        pool.set_limit(0);
        waiting(0);
    }

    #[test]
    fn a_stock_is_kept_below_the_limit_and_used_first() {
        let pool = ChunkPool::new(3 * CHUNK_SIZES[2]);
        pool.stock(2);
        let waits = |chunks: usize| {
            let bytes = (chunks * CHUNK_SIZES[2]) as u64;
            assert_eq!(pool.waiting_bytes_for_tests(), (bytes, bytes));
        };
        waits(2);
        assert_eq!(pool.allocated_bytes(), 0);
        let taken = [2, 2, 2].map(|class| pool.take(class));
        waits(0);
        pool.stock(2);
        waits(0);
        pool.give_back(taken.into());
        waits(3);
        pool.stock(9);
        waits(3);
    }

    #[test]
    fn a_zeroed_block_is_aligned_and_zero() {
        for bytes in [1000, SYSTEM_BYTES_MIN] {
            let block = HeapBlock::zeroed(bytes);
            assert_eq!(block.start().addr().get() % BLOCK_ALIGN, 0);
            // SAFETY: all bytes of the block are initialised, and it lives as long as they do here.
            let bytes = unsafe { std::slice::from_raw_parts(block.start().as_ptr(), bytes) };
            assert!(bytes.iter().all(|byte| *byte == 0));
        }
    }
}
