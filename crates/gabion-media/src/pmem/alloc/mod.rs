//! The allocator: blocks in a pool, none of which is lost or given out twice, whatever the moment
//! of a crash.
//!
//! # Idea
//! Space is cut into chunks. A chunk is free, a slab of blocks of one class (`classes`), or part of
//! a run that is one large block (`chunk`). What is durable is small: a descriptor for each chunk,
//! two bits for each block of a slab, and for each operation in flight an intent (`intent`). Lists
//! of free blocks are in memory only (`central`, and a cache in each heap) and found again by
//! reading descriptors, and the states of a slab when it is first needed.
//!
//! Reserving a block changes nothing durable but its intent, which needs no fence of its own. The
//! state changes after the structure's own publish is durable, and its flush needs no fence either.
//! So an allocation adds two flushes to an operation and no fence; likewise a retirement.
//!
//! # An operation
//! 1. [`Pool::alloc`](super::Pool::alloc) reserves a block and writes the intent: "block B, look at
//!    hint H". [`Pool::retire`](super::Pool::retire) does so for a block that will be replaced.
//! 2. The structure fills and flushes the block, then fences. Now the intent is durable too.
//! 3. It publishes at H, flushes and fences. This is the durability point of the operation.
//! 4. `commit` sets the state "allocated", or "retired", and flushes it.
//!
//! # Invariants
//! - I1. A block whose state is "allocated" and that no intent names is referred to by a durable
//!   structure, and each block that a durable structure refers to is "allocated", or an intent
//!   names it.
//! - I2. The intent of an operation that took effect is erased or overwritten, and that is durable,
//!   before its block can be reserved again, and before the memory of its hint can. So is any other
//!   intent before the memory of its hint can.
//! - I3. State "allocated" becomes durable after the publish did; so recovery never takes it back
//!   on account of an intent to allocate.
//!
//! # Recovery
//! For each intent on the medium: to allocate B, and B is free: is it referred to at H? Then it is
//! allocated. To retire B, and B is allocated: is it referred to at H? Else it is free. What was
//! retired is free. Then the intents are erased. Repeating any part of this gives the same.
//! Costs a look at each descriptor; after a clean close there are no intents.
//!
//! # A full pool
//! A structure whose deletes replace blocks by smaller ones could not delete in a full pool, for
//! sizes do not mix within a slab, and what deletes free is of other sizes than what they need. So
//! where a pool is opened to, it keeps a free block of each class back, if the class has one in use
//! ([`PoolOptions::keeps_back`](super::PoolOptions::keeps_back)). It is lent to whoever replaces a
//! block of that class ([`Allocator::reserve_instead`]), and the block that he frees takes its
//! place. So however blocks are used, each of them can be replaced by one of at most its size, one
//! after the other, without end; the cost is one block for each class. As long as space is short,
//! each retired block is handed to the collector at once and not in batches. Large blocks, of whole
//! chunks, have no such reserve; but a pool may keep a run of chunks back for one block at a time
//! (`reserved_run`).
//!
//! Reserve, then publish is the way of other persistent allocators too (nvm_malloc, ADMS 2015);
//! here recovery puts a question to the structure, where they log the words that will change.

pub(crate) mod central;
pub(crate) mod chunk;
pub(crate) mod classes;
#[cfg(test)]
mod crash_tests;
pub(crate) mod extents;
pub(crate) mod intent;
#[cfg(test)]
mod kept_tests;
pub(crate) mod recovery;
pub(crate) mod reserved_run;
mod room_request;
#[cfg(test)]
mod tests;
pub(crate) mod thread;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};

use self::central::CentralHeap;
use self::chunk::{BlockState, ChunkTable, Descriptor};
use self::classes::SizeClasses;
use self::intent::{Intent, IntentRing, IntentSlot, SLOTS};
pub use self::room_request::RoomRequest;
use super::epoch::{Epochs, Guard};
use super::layout::{GRANULE, PoolGeometry, STATE_OFFSET, StateLine, seal};
use super::medium::Medium;
use super::off::POff;
use super::trace::LINE;
use crate::Result;

/// Bytes of free blocks of one class that a heap keeps, and the fewest and most blocks.
const CACHE_BYTES: u64 = 16 << 10;
const CACHE_BLOCKS_MIN: u64 = 2;
const CACHE_BLOCKS_MAX: u64 = 128;

/// Lines of the next block of a cache that are asked for, at most.
const PREFETCHED_LINES: u64 = 8;

/// Reserves the space of the chunks from the first number to the second.
pub(super) type GrowPool = Box<dyn Fn(u64, u64) -> Result<()> + Send + Sync>;

/// Blocks of one pool.
pub(super) struct Allocator {
    pub(super) medium: Medium,
    pub(super) geometry: PoolGeometry,
    pub(super) epochs: Epochs,
    classes: SizeClasses,
    heaps: Box<[Heap]>,
    central: Mutex<CentralHeap>,
    /// A bit for each chunk that is no slab whose states were not read yet.
    known: Box<[AtomicU64]>,
    /// Whether a crash must be survived: else there are no intents.
    has_intents: bool,
    /// Whether there was no space a moment ago.
    is_short: AtomicBool,
    grow: GrowPool,
}

/// The part of an allocator that one thread uses at a time, aligned so that no two share a line.
#[derive(Default)]
#[repr(align(128))]
struct Heap(Mutex<HeapParts>);

#[derive(Default)]
struct HeapParts {
    /// Free blocks by class.
    caches: Vec<Vec<u64>>,
    ring: IntentRing,
}

/// A block that was reserved or is to be retired, until it is committed or given up.
#[derive(Clone, Copy, Debug)]
pub(super) struct BlockTicket {
    pub(super) intent: Intent,
    /// Size of the block in bytes.
    pub(super) size: u64,
    heap: usize,
    /// Slot of the intent, if there is one.
    slot: Option<usize>,
}

/// What a pool keeps back.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PoolReserve {
    /// A free block of each class.
    pub(super) blocks: bool,
    /// Bytes of a run of chunks.
    pub(super) run_bytes: u64,
}

/// Why a block was not to be had.
#[derive(Debug)]
pub(super) enum AllocError {
    /// No space.
    Full,
    /// All slots for intents are in use.
    Busy,
    /// The offset is not that of an allocated block.
    NotABlock,
    /// Space could not be reserved.
    Failed(crate::Error),
}

impl AllocError {
    fn is_no_space(&self) -> bool {
        match self {
            AllocError::Full => true,
            AllocError::Failed(error) => error.is_no_space(),
            AllocError::Busy | AllocError::NotABlock => false,
        }
    }
}

impl Allocator {
    pub(super) fn chunks(&self) -> ChunkTable<'_> {
        ChunkTable {
            medium: &self.medium,
            geometry: &self.geometry,
        }
    }

    /// Size of the block that a request gets.
    pub(super) fn rounded(&self, size: u64, align: u64) -> u64 {
        match self.classes.class_for(size, align) {
            Some(class) => self.classes.size(class),
            None => size.next_multiple_of(self.geometry.chunk_bytes),
        }
    }

    /// Reserves a block of at least `size` bytes at a multiple of `align`.
    #[track_caller]
    pub(super) fn reserve(
        &self,
        size: u64,
        align: u64,
        hint: u64,
    ) -> Result<BlockTicket, AllocError> {
        if size > self.geometry.size || align > self.geometry.chunk_bytes {
            return Err(AllocError::Full);
        }
        // A block of no bytes has a place of its own, too.
        let size = size.max(1);
        let class = self.classes.class_for(size, align);
        let reserved = match self.try_reserve(class, size) {
            Ok(Some(reserved)) => Some(reserved),
            Err(refusal) if !refusal.is_no_space() => return Err(refusal),
            // The pool is full, or its file system is.
            Ok(None) | Err(_) => {
                self.set_short();
                self.reclaim();
                self.try_reserve(class, size)?
            }
        };
        let (block, count) = reserved.ok_or(AllocError::Full)?;
        let intent = Intent {
            block,
            hint,
            count,
            is_retire: false,
        };
        self.announce(intent, self.rounded(size, align))
            .inspect_err(|_| self.give(block, count))
    }

    /// As [`Allocator::reserve`], for a block that takes the place of `old`, which the caller
    /// retires next: where there is no space, the block that is kept back of the class of `old`, if
    /// that is as large as is asked for.
    #[track_caller]
    pub(super) fn reserve_instead(
        &self,
        old: u64,
        size: u64,
        align: u64,
        hint: u64,
    ) -> Result<BlockTicket, AllocError> {
        // What is free at once, then what is kept back, and only then what takes a search: the pool
        // may be full for many deletes.
        let class = self.classes.class_for(size.max(1), align);
        let (block, size) = match class.and_then(|class| self.try_reserve(Some(class), size).ok()) {
            Some(Some((block, _))) => (block, self.rounded(size, align)),
            _ => match self.lend(old, size, align) {
                Some(lent) => lent,
                None => match self.reserve(size, align, hint) {
                    Err(refusal) if refusal.is_no_space() => {
                        self.lend(old, size, align).ok_or(refusal)?
                    }
                    reserved => return reserved,
                },
            },
        };
        let intent = Intent {
            block,
            hint,
            count: 0,
            is_retire: false,
        };
        self.announce(intent, size)
            .inspect_err(|_| self.give(block, 0))
    }

    /// The block that is kept back of the class of `old`, with its size, if that will do.
    #[cold]
    fn lend(&self, old: u64, size: u64, align: u64) -> Option<(u64, u64)> {
        let chunk = self.geometry.chunk_of(old)?;
        let Some(Descriptor::Slab { class }) = self.chunks().descriptor(chunk) else {
            return None;
        };
        let lent_bytes = self.classes.size(class);
        if lent_bytes < size || !lent_bytes.is_multiple_of(align) {
            return None;
        }
        self.set_short();
        self.drain();
        let mut central = self.central.lock();
        let block = central.lend(self.chunks(), &self.classes, &self.known, class)?;
        Some((block, lent_bytes))
    }

    fn set_short(&self) {
        // ORDER: Relaxed: a hint.
        self.is_short.store(true, Ordering::Relaxed);
    }

    /// Takes note of free chunks, if there are any besides those that are kept: space is not short
    /// then.
    fn note_room(&self, central: &CentralHeap) {
        if central.extents.free() > 0 && central.kept_run.missing() == 0 {
            // ORDER: Relaxed: a hint.
            self.is_short.store(false, Ordering::Relaxed);
        }
    }

    /// Lets a retired block become free when all guards of now are gone: offset, and number of
    /// chunks or 0.
    pub(super) fn defer(&self, guard: &Guard<'_>, block: u64, count: u64) {
        self.epochs.defer(guard, block, count);
        // ORDER: Relaxed: a hint.
        if self.is_short.load(Ordering::Relaxed) {
            self.epochs.hand_over(guard);
        }
    }

    /// Announces that an allocated block is about to be retired.
    #[track_caller]
    pub(super) fn prepare_retire(&self, block: u64, hint: u64) -> Result<BlockTicket, AllocError> {
        let chunk = self.geometry.chunk_of(block).ok_or(AllocError::NotABlock)?;
        let (count, size) = match self.chunks().descriptor(chunk) {
            Some(Descriptor::Run {
                count,
                is_retired: false,
            }) if block == self.geometry.chunk_at(chunk) => {
                (count, count * self.geometry.chunk_bytes)
            }
            Some(Descriptor::Slab { class }) if class < self.classes.count() => {
                let size = self.classes.size(class);
                let place = block - self.geometry.chunk_at(chunk);
                if !place.is_multiple_of(size) || place + size > self.geometry.chunk_bytes {
                    return Err(AllocError::NotABlock);
                }
                self.know(chunk, class);
                if self.chunks().slab_state(chunk, block) != BlockState::Allocated {
                    return Err(AllocError::NotABlock);
                }
                (0, size)
            }
            _ => return Err(AllocError::NotABlock),
        };
        self.announce(
            Intent {
                block,
                hint,
                count,
                is_retire: true,
            },
            size,
        )
    }

    /// Reads the states of a slab before one of its blocks is retired: blocks that are found
    /// retired then are of the past.
    fn know(&self, chunk: u64, class: usize) {
        let (word, bit) = self.known_bit(chunk);
        // ORDER: Relaxed: the bit is set under the lock below; who misses it looks again there.
        if word.load(Ordering::Relaxed) & bit == 0 {
            self.central
                .lock()
                .know_slab(self.chunks(), &self.classes, &self.known, chunk, class);
        }
    }

    fn known_bit(&self, chunk: u64) -> (&AtomicU64, u64) {
        central::known_bit(&self.known, chunk)
    }

    fn heap_index(&self) -> usize {
        let number = match self.medium.watched_thread() {
            Some(number) => number,
            None => thread::small_number(),
        };
        number as usize % self.heaps.len()
    }

    fn heap(&self, index: usize) -> MutexGuard<'_, HeapParts> {
        self.heaps[index].0.lock()
    }

    fn try_reserve(
        &self,
        class: Option<usize>,
        size: u64,
    ) -> Result<Option<(u64, u64)>, AllocError> {
        let Some(class) = class else {
            let count = size.div_ceil(self.geometry.chunk_bytes);
            self.drain();
            let chunk = self.take_chunks(&mut self.central.lock(), count)?;
            return Ok(chunk.map(|chunk| (self.geometry.chunk_at(chunk), count)));
        };
        let index = self.heap_index();
        let mut heap = self.heap(index);
        let cache = heap.cache(class);
        if let Some(block) = cache.pop() {
            if let Some(next) = cache.last() {
                self.prefetch_block(*next, self.classes.size(class));
            }
            return Ok(Some((block, 0)));
        }
        drop(heap);
        self.drain();
        let mut blocks = Vec::new();
        let mut central = self.central.lock();
        let wanted = self.cache_blocks(class) / 2;
        if !central.take_blocks(
            self.chunks(),
            &self.classes,
            &self.known,
            class,
            wanted,
            &mut blocks,
        ) {
            let Some(chunk) = self.take_chunks(&mut central, 1)? else {
                return Ok(None);
            };
            central.add_slab(self.chunks(), &self.classes, &self.known, chunk, class);
            central.take_blocks(
                self.chunks(),
                &self.classes,
                &self.known,
                class,
                wanted,
                &mut blocks,
            );
        }
        drop(central);
        // The cache hands out from its end: in the order of their places.
        blocks.reverse();
        let block = blocks.pop();
        self.heap(index).cache(class).append(&mut blocks);
        Ok(block.map(|block| (block, 0)))
    }

    /// Asks for the first lines of a block that will be written to soon, and for its state.
    #[inline]
    fn prefetch_block(&self, block: u64, size: u64) {
        for line in 0..size.div_ceil(LINE).min(PREFETCHED_LINES) {
            self.medium.prefetch(block + line * LINE);
        }
        self.prefetch_state(block);
    }

    /// Asks for the state of a block.
    #[inline]
    pub(super) fn prefetch_state(&self, block: u64) {
        if let Some(chunk) = self.geometry.chunk_of(block) {
            self.chunks().prefetch_state(chunk, block);
        }
    }

    fn cache_blocks(&self, class: usize) -> usize {
        let size = self.classes.size(class).max(1);
        let count = (CACHE_BYTES / size).clamp(CACHE_BLOCKS_MIN, CACHE_BLOCKS_MAX);
        usize::try_from(count).unwrap_or(1)
    }

    /// Takes a run of chunks and reserves more space where that is needed.
    fn take_chunks(
        &self,
        central: &mut CentralHeap,
        count: u64,
    ) -> Result<Option<u64>, AllocError> {
        if let Some(chunk) = central.extents.take(count) {
            return Ok(Some(chunk));
        }
        let missing = count - central.extents.run_before(central.reserved).min(count);
        let left = self.geometry.chunks - central.reserved;
        if missing > left {
            return Ok(None);
        }
        self.reserve_chunks(central, missing)?;
        Ok(central.extents.take(count))
    }

    /// Reserves the space of `missing` chunks more, and of some besides if there is enough: there
    /// are so many.
    fn reserve_chunks(&self, central: &mut CentralHeap, missing: u64) -> Result<(), AllocError> {
        // A sixteenth of what there is: reserving stays rare, and little is reserved in vain.
        let left = self.geometry.chunks - central.reserved;
        let step = missing.max(central.reserved / 16).min(left);
        let from = central.reserved;
        let (step, grown) = match (self.grow)(from, from + step) {
            Err(error) if step > missing && error.is_no_space() => {
                (missing, (self.grow)(from, from + missing))
            }
            grown => (step, grown),
        };
        grown.map_err(AllocError::Failed)?;
        central.reserved += step;
        let line: &StateLine = self.medium.at(POff::new(STATE_OFFSET));
        // ORDER: Relaxed: read when the pool is opened.
        line.reserved_chunks
            .store_persist(&self.medium, seal(central.reserved), Ordering::Relaxed);
        central.extents.give(from, step);
        Ok(())
    }

    /// Writes an intent into a slot of this thread's heap, or of another one where there is none.
    #[track_caller]
    fn announce(&self, intent: Intent, size: u64) -> Result<BlockTicket, AllocError> {
        if !self.has_intents {
            return Ok(BlockTicket {
                intent,
                size,
                heap: 0,
                slot: None,
            });
        }
        let first = self.heap_index();
        for heap in (first..self.heaps.len()).chain(0..first) {
            let mut parts = self.heap(heap);
            if parts.ring.is_full() {
                self.settle_heap(&mut parts);
            }
            if let Some(slot) = parts.ring.announce(self.thread_number()) {
                self.slot(heap, slot).write(&self.medium, intent);
                return Ok(BlockTicket {
                    intent,
                    size,
                    heap,
                    slot: Some(slot),
                });
            }
        }
        Err(AllocError::Busy)
    }

    fn slot(&self, heap: usize, slot: usize) -> &IntentSlot {
        let index = (heap * SLOTS + slot) as u64;
        self.medium
            .at(POff::<IntentSlot>::new(self.geometry.rings_at).element(index))
    }

    /// Changes the state of a block once the structure's change is durable.
    #[track_caller]
    pub(super) fn commit(&self, ticket: &BlockTicket, state: BlockState) {
        let Intent { block, count, .. } = ticket.intent;
        if let Some(chunk) = self.geometry.chunk_of(block) {
            // DURABLE: the structure has persisted its change; this follows with its next fence,
            // and until then the intent stands for it.
            self.chunks().set_state(chunk, block, count, state);
        }
        if let Some(slot) = ticket.slot {
            let thread = self.thread_number();
            self.heap(ticket.heap)
                .ring
                .commit(slot, thread, ticket.intent);
        }
    }

    fn thread_number(&self) -> u64 {
        self.medium
            .watched_thread()
            .map_or_else(thread::unique_number, u64::from)
    }

    /// Gives up what was announced; a reserved block is free again.
    #[track_caller]
    pub(super) fn cancel(&self, ticket: &BlockTicket) {
        let Intent { block, count, .. } = ticket.intent;
        match ticket.slot {
            Some(slot) if ticket.intent.is_retire => {
                self.slot(ticket.heap, slot).erase(&self.medium);
                // DURABLE: the intent is gone before the reference moves, which would look as if
                // the operation had happened.
                self.medium.fence();
                self.heap(ticket.heap).ring.blank(slot);
            }
            Some(slot) => self.heap(ticket.heap).ring.give_up(slot),
            None => {}
        }
        if !ticket.intent.is_retire {
            self.give(block, count);
        }
    }

    /// Takes a free block back.
    fn give(&self, block: u64, count: u64) {
        let Some(chunk) = self.geometry.chunk_of(block) else {
            return;
        };
        let mut central = self.central.lock();
        if count > 0 {
            central.give_chunks(chunk, count);
        } else {
            central.give_block(self.chunks(), &self.classes, block);
        }
    }

    /// Makes what committed operations changed durable: their intents count no more.
    #[track_caller]
    pub(super) fn settle(&self) {
        for heap in 0..self.heaps.len() {
            self.settle_heap(&mut self.heap(heap));
        }
    }

    #[track_caller]
    fn settle_heap(&self, parts: &mut HeapParts) {
        let this_thread = self.thread_number();
        let mut is_durable = true;
        for (thread, intent) in parts.ring.committed() {
            is_durable = false;
            // A fence ends the flushes of its own thread only.
            if let Some(chunk) = self.geometry.chunk_of(intent.block)
                && thread != this_thread
            {
                self.chunks().flush_state(chunk, intent.block, intent.count);
            }
        }
        if !is_durable {
            // DURABLE: the states are, before the intents that stand for them go.
            self.medium.fence();
            parts.ring.settle();
        }
    }

    /// Erases the intents of all operations that are over. The caller fences.
    fn erase_finished(&self) {
        if !self.has_intents {
            return;
        }
        let this_thread = self.thread_number();
        for heap in 0..self.heaps.len() {
            let mut parts = self.heap(heap);
            self.settle_heap(&mut parts);
            // One that is over may be on the medium still where another thread writes over it.
            for slot in parts.ring.announced_by_others(this_thread) {
                self.medium.flush(self.slot(heap, slot));
            }
            for slot in parts.ring.take_stale() {
                self.slot(heap, slot).erase(&self.medium);
            }
        }
    }

    /// Leaves nothing to recovery: no operation may be in flight.
    pub(super) fn finish(&self) {
        self.reclaim();
        self.erase_finished();
        // DURABLE: no intent is left.
        self.medium.fence();
    }

    /// Makes the blocks free that nobody reads any more.
    #[track_caller]
    pub(super) fn drain(&self) {
        let blocks = self.epochs.ready.take();
        self.free(&blocks);
    }

    /// Makes retired blocks free: offset, and number of chunks or 0.
    #[track_caller]
    pub(super) fn free(&self, blocks: &[(u64, u64)]) {
        if blocks.is_empty() {
            return;
        }
        // From here on, as others take the slots of erased intents for blank, while the fence that
        // makes them so has not come.
        let mut central = self.central.lock();
        self.erase_finished();
        let blocks = blocks
            .iter()
            .filter_map(|(block, count)| Some((self.geometry.chunk_of(*block)?, *block, *count)));
        for (chunk, block, count) in blocks.clone() {
            self.chunks()
                .set_state(chunk, block, count, BlockState::Free);
        }
        // DURABLE: the blocks are free, and no intent names them or lies about a hint in them,
        // before they are reserved again.
        self.medium.fence();
        for (chunk, block, count) in blocks {
            if count > 0 {
                central.give_chunks(chunk, count);
            } else {
                central.give_block(self.chunks(), &self.classes, block);
            }
        }
        self.note_room(&central);
    }

    /// Finds space that is free but not at hand: in caches of heaps, in empty slabs, and behind
    /// guards that are gone.
    pub(super) fn reclaim(&self) {
        self.epochs.flush();
        self.drain();
        for heap in 0..self.heaps.len() {
            let caches = std::mem::take(&mut self.heap(heap).caches);
            let mut central = self.central.lock();
            for block in caches.into_iter().flatten() {
                central.give_block(self.chunks(), &self.classes, block);
            }
        }
        let mut central = self.central.lock();
        central.drop_empty_slabs(self.chunks(), &self.classes, &self.known);
        self.note_room(&central);
    }

    /// Number of chunks whose space is reserved; the others hold nothing.
    pub(super) fn reserved_chunks(&self) -> u64 {
        self.central.lock().reserved
    }

    /// What the space is used for, counted from the medium.
    pub(super) fn space(&self) -> PoolSpace {
        let central = self.central.lock();
        let mut space = PoolSpace {
            free_bytes: (central.extents.free() + self.geometry.chunks - central.reserved)
                * self.geometry.chunk_bytes,
            unreserved_bytes: (self.geometry.chunks - central.reserved) * self.geometry.chunk_bytes,
            longest_free_bytes: central.extents.longest() * self.geometry.chunk_bytes,
            ..PoolSpace::default()
        };
        let mut chunk = 0;
        while chunk < central.reserved {
            match self.chunks().descriptor(chunk) {
                Some(Descriptor::Run { count, is_retired }) => {
                    let bytes = count * self.geometry.chunk_bytes;
                    if is_retired {
                        space.retired_bytes += bytes;
                    } else {
                        space.used_bytes += bytes;
                        space.used_blocks += 1;
                    }
                    chunk += count.max(1);
                    continue;
                }
                Some(Descriptor::Slab { class }) => {
                    let size = self.classes.size(class);
                    let mut used = 0;
                    let mut retired = 0;
                    for word in self.chunks().states(chunk) {
                        // ORDER: Relaxed: statistics.
                        let counts = central::count_states(word.peek(Ordering::Relaxed));
                        used += counts.0;
                        retired += counts.1;
                    }
                    space.used_bytes += used * size;
                    space.used_blocks += used;
                    space.retired_bytes += retired * size;
                    let lived_in = (used + retired) * size;
                    space.slab_free_bytes += self.geometry.chunk_bytes.saturating_sub(lived_in);
                }
                _ => {}
            }
            chunk += 1;
        }
        space
    }
}

impl HeapParts {
    fn cache(&mut self, class: usize) -> &mut Vec<u64> {
        if self.caches.len() <= class {
            self.caches.resize_with(class + 1, Vec::new);
        }
        &mut self.caches[class]
    }
}

/// What the space of a pool is used for, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PoolSpace {
    pub(super) used_bytes: u64,
    pub(super) used_blocks: u64,
    pub(super) retired_bytes: u64,
    pub(super) slab_free_bytes: u64,
    pub(super) free_bytes: u64,
    pub(super) unreserved_bytes: u64,
    pub(super) longest_free_bytes: u64,
}

const _: () = assert!(GRANULE == 16);
