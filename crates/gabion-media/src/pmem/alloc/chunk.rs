//! Descriptors of chunks and states of blocks: what a pool durably says about its space.
//!
//! # Layout
//! A descriptor is a sealed word (`layout`): the kind in the low byte, its argument above.
//!
//! | kind | argument | meaning |
//! |---|---|---|
//! | 0 | 0 | the chunk is free, or within a run that an earlier descriptor tells of |
//! | 1 | class | the chunk is a slab: blocks of that class, one behind the other |
//! | 2 | count | the first of `count` chunks that are one allocated block |
//! | 3 | count | the same, retired |
//!
//! Each 16 bytes of a slab have two bits of state; those at the start of a block count:
//!
//! | state | meaning |
//! |---|---|
//! | 00 | free |
//! | 01 | allocated |
//! | 11 | retired: no new reader can find it, old ones may still read it; free after a crash |
//!
//! # Invariants
//! - I1. The states of a chunk that is no slab are zero, and so are the descriptors within a run.
//! - I2. A word of states or a descriptor changes by atomic operations only, so that blocks of
//!   different threads may share it.

use std::sync::atomic::Ordering;

use super::super::atomic::PAtomicU64;
use super::super::layout::{GRANULE, PoolGeometry, seal, unseal};
use super::super::medium::Medium;
use super::super::off::POff;

/// What a descriptor says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Descriptor {
    /// Free, or within a run.
    Free,
    /// Blocks of one class.
    Slab {
        /// The class.
        class: usize,
    },
    /// The first of a run of chunks that are one block.
    Run {
        /// Number of chunks.
        count: u64,
        /// Whether the block is retired.
        is_retired: bool,
    },
}

impl Descriptor {
    /// The word on media.
    pub(crate) fn encode(self) -> u64 {
        let value = match self {
            Descriptor::Free => 0,
            Descriptor::Slab { class } => 1 | (class as u64) << 8,
            Descriptor::Run { count, is_retired } => (2 + u64::from(is_retired)) | count << 8,
        };
        seal(value)
    }

    /// What a word on media says, if it is intact.
    pub(crate) fn decode(word: u64) -> Option<Descriptor> {
        let value = unseal(word)?;
        let argument = value >> 8;
        match (value & 0xff, argument) {
            (0, 0) => Some(Descriptor::Free),
            (1, class) => Some(Descriptor::Slab {
                class: usize::try_from(class).ok()?,
            }),
            (kind @ (2 | 3), 1..) => Some(Descriptor::Run {
                count: argument,
                is_retired: kind == 3,
            }),
            _ => None,
        }
    }
}

/// State of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlockState {
    /// Nobody's.
    Free,
    /// Someone's.
    Allocated,
    /// Nobody's once the readers of now are gone.
    Retired,
}

const ALLOCATED: u64 = 0b01;
const RETIRED: u64 = 0b11;

/// Blocks whose states share a word.
pub(crate) const BLOCKS_PER_WORD: u64 = 32;

/// The low bit of every state of a word.
pub(crate) const LOW_BITS: u64 = 0x5555_5555_5555_5555;

/// The descriptors and states of a pool.
#[derive(Clone, Copy)]
pub(crate) struct ChunkTable<'a> {
    pub(crate) medium: &'a Medium,
    pub(crate) geometry: &'a PoolGeometry,
}

// ORDER: Relaxed throughout: descriptors and states publish nothing. Who may change one owns the
// block, or holds the lock of the central lists, and got that from another thread by a lock.
impl<'a> ChunkTable<'a> {
    fn descriptor_word(self, chunk: u64) -> &'a PAtomicU64 {
        self.medium
            .at(POff::new(self.geometry.descriptor_of(chunk)))
    }

    /// Reads a descriptor; none if it is damaged.
    pub(crate) fn descriptor(self, chunk: u64) -> Option<Descriptor> {
        Descriptor::decode(
            self.descriptor_word(chunk)
                .load(self.medium, Ordering::Relaxed),
        )
    }

    /// Changes a descriptor and flushes it.
    #[track_caller]
    pub(crate) fn set_descriptor(self, chunk: u64, descriptor: Descriptor) {
        let word = self.descriptor_word(chunk);
        word.store(self.medium, descriptor.encode(), Ordering::Relaxed);
        self.medium.flush(word);
    }

    /// The words of states of a chunk.
    pub(crate) fn states(self, chunk: u64) -> &'a [PAtomicU64] {
        let count = self.geometry.chunk_bytes / GRANULE / BLOCKS_PER_WORD;
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        self.medium
            .slice(POff::new(self.geometry.states_of(chunk)), count)
    }

    fn state_word(self, chunk: u64, offset: u64) -> (&'a PAtomicU64, u64) {
        let granule = (offset - self.geometry.chunk_at(chunk)) / GRANULE;
        let word = self.geometry.states_of(chunk) + granule / BLOCKS_PER_WORD * 8;
        (
            self.medium.at(POff::new(word)),
            granule % BLOCKS_PER_WORD * 2,
        )
    }

    /// Asks for the state of the block at `offset` in a slab.
    #[inline]
    pub(crate) fn prefetch_state(self, chunk: u64, offset: u64) {
        let granule = (offset - self.geometry.chunk_at(chunk)) / GRANULE;
        let word = self.geometry.states_of(chunk) + granule / BLOCKS_PER_WORD * 8;
        self.medium.prefetch(word);
    }

    /// State of the block at `offset` in a slab.
    pub(crate) fn slab_state(self, chunk: u64, offset: u64) -> BlockState {
        let (word, shift) = self.state_word(chunk, offset);
        match word.load(self.medium, Ordering::Relaxed) >> shift & RETIRED {
            0 => BlockState::Free,
            ALLOCATED => BlockState::Allocated,
            _ => BlockState::Retired,
        }
    }

    /// Changes the state of a block and flushes it. `count` is the number of chunks of a block
    /// that has chunks of its own, and 0 in a slab.
    #[track_caller]
    pub(crate) fn set_state(self, chunk: u64, offset: u64, count: u64, state: BlockState) {
        if count > 0 {
            return self.set_descriptor(
                chunk,
                match state {
                    BlockState::Free => Descriptor::Free,
                    BlockState::Allocated => Descriptor::Run {
                        count,
                        is_retired: false,
                    },
                    BlockState::Retired => Descriptor::Run {
                        count,
                        is_retired: true,
                    },
                },
            );
        }
        let (word, shift) = self.state_word(chunk, offset);
        match state {
            BlockState::Free => word.fetch_and(self.medium, !(RETIRED << shift), Ordering::Relaxed),
            BlockState::Allocated => {
                word.fetch_or(self.medium, ALLOCATED << shift, Ordering::Relaxed)
            }
            BlockState::Retired => word.fetch_or(self.medium, RETIRED << shift, Ordering::Relaxed),
        };
        self.medium.flush(word);
    }

    /// Flushes the state of a block once more, for a thread that did not set it.
    #[track_caller]
    pub(crate) fn flush_state(self, chunk: u64, offset: u64, count: u64) {
        if count > 0 {
            self.medium.flush(self.descriptor_word(chunk));
        } else {
            self.medium.flush(self.state_word(chunk, offset).0);
        }
    }
}
