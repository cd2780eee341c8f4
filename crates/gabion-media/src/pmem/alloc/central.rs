//! The lists that all heaps share: slabs with free blocks, and free runs of chunks. In memory only.
//!
//! # Invariants
//! - I1. A block is in at most one place: free in its slab's mask, in the cache of one heap, or
//!   allocated. The first two have the state "free" on the medium.
//! - I2. A slab is durably a slab before any of its blocks leaves it, and it is durably free before
//!   its chunk is used for anything else.
//! - I3. Chunks from `reserved` on have no space yet and are not touched.
//! - I4. Where blocks are kept back, each class with a block in use has a free one in `kept`, or
//!   that one was lent to who frees another block of the class.
//! - I5. Chunks of the run that is kept back are in no extent.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};

use super::super::layout::GRANULE;
use super::chunk::{ChunkTable, Descriptor, LOW_BITS};
use super::classes::SizeClasses;
use super::extents::FreeExtents;
use super::recovery::mark_known;
use super::reserved_run::ReservedRun;

/// Slabs and runs.
#[derive(Debug)]
pub(crate) struct CentralHeap {
    /// Whether a block of each class is kept back.
    keeps_back: bool,
    pub(crate) extents: FreeExtents,
    pub(crate) kept_run: ReservedRun,
    /// Chunks whose space is reserved.
    pub(crate) reserved: u64,
    slabs: HashMap<u64, Slab>,
    by_class: Vec<ClassList>,
}

#[derive(Debug, Default)]
struct ClassList {
    /// Slabs with free blocks in their mask.
    partial: BTreeSet<u64>,
    /// Slabs whose states were not read since the pool was opened.
    unread: Vec<u64>,
    /// Slabs whose states were read.
    slabs: usize,
    /// A free block that is in no mask, kept back for who replaces one of this class.
    kept: Option<u64>,
}

/// A slab whose states were read.
#[derive(Debug)]
struct Slab {
    class: usize,
    /// A bit for each block that is free and in no heap's cache.
    mask: Box<[u64]>,
    /// A bit for each word of the mask that is not zero: a slab of 1 MiB has up to 1024, and its
    /// free blocks may be few and far from each other.
    filled: Box<[u64]>,
    free: u32,
    total: u32,
}

impl Slab {
    /// A slab of so many blocks, none of which is free yet.
    fn empty(class: usize, total: u64) -> Slab {
        let words = usize::try_from(total.div_ceil(64)).unwrap_or(0);
        Slab {
            class,
            mask: vec![0; words].into(),
            filled: vec![0; words.div_ceil(64)].into(),
            free: 0,
            total: u32::try_from(total).unwrap_or(0),
        }
    }

    /// Takes the first free block.
    fn take(&mut self) -> Option<u64> {
        let group = self.filled.iter().position(|words| *words != 0)?;
        let index = group * 64 + self.filled[group].trailing_zeros() as usize;
        let word = &mut self.mask[index];
        let bit = word.trailing_zeros();
        *word &= *word - 1;
        if *word == 0 {
            self.filled[group] &= self.filled[group] - 1;
        }
        self.free -= 1;
        Some(index as u64 * 64 + u64::from(bit))
    }

    /// Takes the last free block.
    fn take_last(&mut self) -> Option<u64> {
        let group = self.filled.iter().rposition(|words| *words != 0)?;
        let index = group * 64 + self.filled[group].ilog2() as usize;
        let bit = self.mask[index].ilog2();
        self.mask[index] &= !(1 << bit);
        if self.mask[index] == 0 {
            self.filled[group] &= !(1 << (index % 64));
        }
        self.free -= 1;
        Some(index as u64 * 64 + u64::from(bit))
    }

    fn give(&mut self, block: u64) {
        let index = usize::try_from(block / 64).unwrap_or(usize::MAX);
        let bit = 1 << (block % 64);
        debug_assert!(self.mask[index] & bit == 0, "a block is free once");
        self.mask[index] |= bit;
        self.filled[index / 64] |= 1 << (index % 64);
        self.free += 1;
    }
}

impl CentralHeap {
    /// Nothing is known of any chunk.
    pub(crate) fn new(
        classes: usize,
        reserved: u64,
        keeps_back: bool,
        kept_run: ReservedRun,
    ) -> CentralHeap {
        CentralHeap {
            keeps_back,
            extents: FreeExtents::default(),
            kept_run,
            reserved,
            slabs: HashMap::new(),
            by_class: (0..classes).map(|_| ClassList::default()).collect(),
        }
    }

    /// Free blocks of each class in slabs whose states were read.
    pub(crate) fn free_by_class(&self) -> Vec<u64> {
        let mut free = vec![0; self.by_class.len()];
        for slab in self.slabs.values() {
            free[slab.class] += u64::from(slab.free);
        }
        free
    }

    /// Takes note of a slab that recovery found.
    pub(crate) fn found_slab(&mut self, chunk: u64, class: usize) {
        self.by_class[class].unread.push(chunk);
    }

    /// Takes up to `wanted` blocks of a class from one slab and adds their offsets to `blocks`,
    /// once one is kept back. False if no slab has any.
    pub(crate) fn take_blocks(
        &mut self,
        chunks: ChunkTable<'_>,
        classes: &SizeClasses,
        known: &[AtomicU64],
        class: usize,
        wanted: usize,
        blocks: &mut Vec<u64>,
    ) -> bool {
        loop {
            let Some(chunk) = self.by_class[class].partial.first().copied() else {
                match self.by_class[class].unread.pop() {
                    Some(chunk) => self.know_slab(chunks, classes, known, chunk, class),
                    None => return false,
                }
                continue;
            };
            let Some(slab) = self.slabs.get_mut(&chunk) else {
                self.by_class[class].partial.remove(&chunk);
                continue;
            };
            let base = chunks.geometry.chunk_at(chunk);
            let size = classes.size(class);
            let list = &mut self.by_class[class];
            if self.keeps_back && list.kept.is_none() {
                // The last one, so that the others follow each other.
                list.kept = slab.take_last().map(|block| base + block * size);
            }
            let count = blocks.len();
            let taken = std::iter::from_fn(|| slab.take()).take(wanted);
            blocks.extend(taken.map(|block| base + block * size));
            if slab.free == 0 {
                list.partial.remove(&chunk);
            }
            if blocks.len() > count {
                return true;
            }
        }
    }

    /// Lends the block of a class that is kept back, or the last one that there is. It comes back
    /// with the next block of the class that is free.
    pub(crate) fn lend(
        &mut self,
        chunks: ChunkTable<'_>,
        classes: &SizeClasses,
        known: &[AtomicU64],
        class: usize,
    ) -> Option<u64> {
        if self.by_class[class].kept.is_none() {
            // A pool that was opened keeps none before a block of the class is asked for.
            let mut last = Vec::new();
            self.take_blocks(chunks, classes, known, class, 1, &mut last);
            if let Some(block) = last.pop() {
                self.give_block(chunks, classes, block);
            }
        }
        self.by_class[class].kept.take()
    }

    /// Reads the states of a slab unless they were read before.
    pub(crate) fn know_slab(
        &mut self,
        chunks: ChunkTable<'_>,
        classes: &SizeClasses,
        known: &[AtomicU64],
        chunk: u64,
        class: usize,
    ) {
        let (word, bit) = known_bit(known, chunk);
        // ORDER: Relaxed: bits are set under the lock of these lists only.
        if word.load(Ordering::Relaxed) & bit == 0 {
            self.read_slab(chunks, classes, chunk, class);
            mark_known(known, chunk);
        }
    }

    /// Reads the states of a slab. Blocks that were retired when the pool was last used are free
    /// now: nobody reads them any more.
    fn read_slab(
        &mut self,
        chunks: ChunkTable<'_>,
        classes: &SizeClasses,
        chunk: u64,
        class: usize,
    ) {
        let mut slab = empty_slab(chunks, classes, class);
        let words = chunks.states(chunk);
        let mut had_retired = false;
        for block in 0..u64::from(slab.total) {
            let granule = block * classes.size(class) / GRANULE;
            let Some(word) = words.get(usize::try_from(granule / 32).unwrap_or(usize::MAX)) else {
                break;
            };
            // ORDER: Relaxed: see `ChunkTable`.
            let state = word.load(chunks.medium, Ordering::Relaxed) >> (granule % 32 * 2) & 0b11;
            if state > 0b01 {
                let offset = chunks.geometry.chunk_at(chunk) + block * classes.size(class);
                chunks.set_state(chunk, offset, 0, super::chunk::BlockState::Free);
                had_retired = true;
            }
            if state != 0b01 {
                slab.give(block);
            }
        }
        if had_retired {
            // DURABLE: retired blocks of the past are free before they are used again.
            chunks.medium.fence();
        }
        if slab.free > 0 {
            self.by_class[class].partial.insert(chunk);
        }
        self.insert_slab(chunk, slab);
    }

    fn insert_slab(&mut self, chunk: u64, slab: Slab) {
        self.by_class[slab.class].slabs += 1;
        self.slabs.insert(chunk, slab);
    }

    /// Makes a free chunk a slab.
    pub(crate) fn add_slab(
        &mut self,
        chunks: ChunkTable<'_>,
        classes: &SizeClasses,
        known: &[AtomicU64],
        chunk: u64,
        class: usize,
    ) {
        mark_known(known, chunk);
        chunks.set_descriptor(chunk, Descriptor::Slab { class });
        // DURABLE: the chunk is a slab before any of its blocks is published, by whatever thread.
        chunks.medium.fence();
        let mut slab = empty_slab(chunks, classes, class);
        (0..u64::from(slab.total)).for_each(|block| slab.give(block));
        self.insert_slab(chunk, slab);
        self.by_class[class].partial.insert(chunk);
    }

    /// Gives a free block back to its slab. A slab of free blocks only becomes a free chunk, unless
    /// it is the last of its class that has any.
    pub(crate) fn give_block(
        &mut self,
        chunks: ChunkTable<'_>,
        classes: &SizeClasses,
        offset: u64,
    ) {
        let Some(chunk) = chunks.geometry.chunk_of(offset) else {
            debug_assert!(false, "a block lies in a chunk");
            return;
        };
        let Some(slab) = self.slabs.get_mut(&chunk) else {
            // The slab was not read yet; its states say that the block is free.
            return;
        };
        let class = slab.class;
        let list = &mut self.by_class[class];
        if self.keeps_back && list.kept.is_none() {
            list.kept = Some(offset);
        } else {
            slab.give((offset - chunks.geometry.chunk_at(chunk)) / classes.size(class));
            list.partial.insert(chunk);
        }
        if list.partial.len() > 1 && self.is_empty(chunks, chunk) {
            self.drop_slab(chunks, classes, chunk, class);
        }
    }

    /// Whether no block of a slab is in use or in a cache.
    fn is_empty(&self, chunks: ChunkTable<'_>, chunk: u64) -> bool {
        self.slabs.get(&chunk).is_some_and(|slab| {
            let kept = self.by_class[slab.class].kept;
            let has_kept = kept.and_then(|kept| chunks.geometry.chunk_of(kept)) == Some(chunk);
            slab.free + u32::from(has_kept) == slab.total
        })
    }

    /// Makes an empty slab a free chunk, unless what is kept back would have no other place though
    /// blocks of the class are in use. False then.
    fn drop_slab(
        &mut self,
        chunks: ChunkTable<'_>,
        classes: &SizeClasses,
        chunk: u64,
        class: usize,
    ) -> bool {
        let list = &mut self.by_class[class];
        let was_partial = list.partial.remove(&chunk);
        if list.kept.and_then(|kept| chunks.geometry.chunk_of(kept)) == Some(chunk) {
            let other = list.partial.first().copied();
            let moved = other.and_then(|other| {
                let slab = self.slabs.get_mut(&other)?;
                let block = slab.take()?;
                if slab.free == 0 {
                    list.partial.remove(&other);
                }
                Some(chunks.geometry.chunk_at(other) + block * classes.size(class))
            });
            if moved.is_none() && list.slabs > 1 {
                if was_partial {
                    list.partial.insert(chunk);
                }
                return false;
            }
            list.kept = moved;
        }
        list.slabs -= 1;
        self.slabs.remove(&chunk);
        chunks.set_descriptor(chunk, Descriptor::Free);
        // DURABLE: the chunk is free before it is used for anything else.
        chunks.medium.fence();
        self.give_chunks(chunk, 1);
        true
    }

    /// Makes all slabs without a block in use free chunks. True if there were any.
    pub(crate) fn drop_empty_slabs(
        &mut self,
        chunks: ChunkTable<'_>,
        classes: &SizeClasses,
        known: &[AtomicU64],
    ) -> bool {
        for class in 0..self.by_class.len() {
            while let Some(chunk) = self.by_class[class].unread.pop() {
                self.know_slab(chunks, classes, known, chunk, class);
            }
        }
        let slabs = self.slabs.iter().map(|(chunk, slab)| (*chunk, slab.class));
        let mut empty: Vec<_> = slabs
            .filter(|(chunk, _)| self.is_empty(chunks, *chunk))
            .collect();
        empty.sort_unstable();
        let mut any = false;
        for (chunk, class) in empty {
            // What is kept back may have moved into it meanwhile.
            any |= self.is_empty(chunks, chunk) && self.drop_slab(chunks, classes, chunk, class);
        }
        any
    }
}

fn empty_slab(chunks: ChunkTable<'_>, classes: &SizeClasses, class: usize) -> Slab {
    Slab::empty(class, chunks.geometry.chunk_bytes / classes.size(class))
}

/// The bit that says that a chunk is no slab whose states were not read.
pub(crate) fn known_bit(known: &[AtomicU64], chunk: u64) -> (&AtomicU64, u64) {
    let index = usize::try_from(chunk / 64).unwrap_or(usize::MAX);
    (&known[index], 1 << (chunk % 64))
}

/// Number of allocated blocks that a word of states tells of, and of retired ones.
pub(crate) fn count_states(word: u64) -> (u64, u64) {
    let retired = word >> 1 & word & LOW_BITS;
    let allocated = word & !(word >> 1) & LOW_BITS;
    let count = |bits: u64| u64::from(bits.count_ones());
    (count(allocated), count(retired))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Blocks are taken from the lowest on, whatever was taken and given back before.
    #[test]
    fn a_slab_gives_its_first_free_block_or_its_last() {
        const BLOCKS: u64 = 9_000;
        let mut slab = Slab::empty(0, BLOCKS);
        (0..BLOCKS).for_each(|block| slab.give(block));
        let mut twin: BTreeSet<u64> = (0..BLOCKS).collect();
        let mut taken = Vec::new();
        let (mut was_empty, mut was_full) = (false, false);
        let mut random = 1_u64;
        for step in 0..200_000 {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            // Long runs of each, so that the slab is empty and full now and then.
            let is_take = (random >> 40) % 100 < if step / 20_000 % 2 == 0 { 90 } else { 10 };
            if is_take {
                let (block, expected) = match random >> 60 {
                    0 => (slab.take_last(), twin.pop_last()),
                    _ => (slab.take(), twin.pop_first()),
                };
                assert_eq!(block, expected);
                taken.extend(block);
            } else if !taken.is_empty() {
                let at = usize::try_from(random >> 33).unwrap() % taken.len();
                let block = taken.swap_remove(at);
                slab.give(block);
                twin.insert(block);
            }
            assert_eq!(slab.free as usize, twin.len());
            was_empty |= twin.is_empty();
            was_full |= step > 0 && taken.is_empty();
        }
        assert!(was_empty && was_full);
    }
}
