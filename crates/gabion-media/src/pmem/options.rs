//! Options of a pool: how it is created and opened, and its durability class.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::alloc::PoolReserve;
use super::atomic::PAtomicU64;
use super::medium::Medium;
use super::off::POff;
use super::trace::Watcher;
use crate::Disk;

/// What a pool's memory survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PoolClass {
    /// The loss of power: the mapping is to persistent memory itself.
    Power,
    /// The loss of power up to the last [`sync`](super::Pool::sync), and the end of the process
    /// always: a mapping to the page cache, or to shared memory, with a checkpoint file.
    PowerBySync,
    /// The end of the process, in whatever way: the mapping is to the page cache, or to shared
    /// memory. If the system goes down while the pool is open, it may be torn.
    Process,
    /// Nothing: memory of the process.
    None,
}

impl PoolClass {
    /// The class's name.
    pub const fn name(self) -> &'static str {
        match self {
            PoolClass::Power => "power",
            PoolClass::PowerBySync => "power-by-sync",
            PoolClass::Process => "process",
            PoolClass::None => "none",
        }
    }
}

/// Options of pools. The first group counts when a pool is created, and is read from the pool
/// when it is opened.
#[derive(Clone)]
pub struct PoolOptions {
    /// Size in bytes; rounded down to pages of 4096. Space is reserved as it is needed, so a pool
    /// may be made larger than what will ever be in it.
    pub size: u64,
    /// What kind of structure lies in the pool; a pool of another kind is refused.
    pub layout: u64,
    /// Threads that may allocate at the same time without waiting for each other; each one costs
    /// 512 bytes. More threads than that share.
    pub heaps: u32,
    /// The unit of large blocks in bytes, a power of two from 4 KiB to 1 MiB. Smaller blocks are
    /// cut from chunks of this size.
    pub chunk_bytes: u64,
    /// The pool's UUID; without one the system gives one, and pools in a region have zeros.
    pub uuid: Option<[u8; 16]>,

    /// The file of the pool's checkpoints. With one, a pool on an ordinary file or in shared memory
    /// has class [`PoolClass::PowerBySync`]. Best on another file system if the pool is in shared
    /// memory. Named whenever the pool is opened; a pool on persistent memory makes no use of it.
    pub checkpoint: Option<PathBuf>,
    /// The disk that has this file, such as a simulated one; its directory if there is none.
    pub checkpoint_disk: Option<Disk>,
    /// Open a pool of class Process that may be torn since the system went down while it was
    /// open. The structure in it must then check what it reads.
    pub salvage: bool,
    /// Let others [look](super::Pool::inspect) at the pool at the same time: its file is opened for
    /// reading only, so that nobody needs to be allowed to write to it.
    pub shares: bool,
    /// How recovery finds out what refers to a block.
    pub reachable: Reachable,
    /// Keep one block of each size back for [`Pool::alloc_instead`](super::Pool::alloc_instead),
    /// so that a full pool can be emptied by a structure whose deletes replace blocks.
    pub keeps_back: bool,
    /// Bytes of a block, at most, for which space is kept back for
    /// [`Pool::alloc_kept`](super::Pool::alloc_kept); none where this is 0.
    pub keeps_run: u64,
    /// Who is told of each step on the medium.
    pub watcher: Option<Arc<dyn Watcher>>,
    /// Flush and fence even where the pool's class does not need it, to measure what that costs.
    pub always_flush: bool,
}

impl Default for PoolOptions {
    /// A pool of 64 MiB with 64 heaps and chunks of 64 KiB.
    fn default() -> PoolOptions {
        PoolOptions {
            size: 64 << 20,
            layout: 0,
            heaps: 64,
            chunk_bytes: 64 << 10,
            uuid: None,
            checkpoint: None,
            checkpoint_disk: None,
            salvage: false,
            shares: false,
            reachable: Reachable::Word,
            keeps_back: false,
            keeps_run: 0,
            watcher: None,
            always_flush: false,
        }
    }
}

impl PoolOptions {
    pub(super) fn keeps(&self) -> PoolReserve {
        PoolReserve {
            blocks: self.keeps_back,
            run_bytes: self.keeps_run,
        }
    }
}

impl fmt::Debug for PoolOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PoolOptions")
            .field("size", &self.size)
            .field("layout", &self.layout)
            .field("heaps", &self.heaps)
            .field("chunk_bytes", &self.chunk_bytes)
            .field("checkpoint", &self.checkpoint)
            .field("salvage", &self.salvage)
            .field("is_watched", &self.watcher.is_some())
            .finish_non_exhaustive()
    }
}

/// What recovery asks about a block with which an operation was in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockClaim {
    /// The block.
    pub block: POff,
    /// Its size in bytes.
    pub size: u64,
    /// The hint that the operation gave.
    pub hint: u64,
}

impl BlockClaim {
    /// Whether the hint is the offset of a word whose low 48 bits are the block's offset. For
    /// recovery, when nobody else has the pool.
    #[must_use]
    pub fn is_in_word(&self, medium: &Medium) -> bool {
        let word: Option<&PAtomicU64> = medium.try_at(POff::new(self.hint));
        // ORDER: Relaxed: nobody else has the pool while it is opened.
        let word = word.map(|word| word.load(medium, Ordering::Relaxed));
        word.is_some_and(|word| word & ((1 << 48) - 1) == self.block.raw())
    }
}

/// How recovery finds out whether the structure durably refers to a block.
#[derive(Clone, Default)]
pub enum Reachable {
    /// The hint is the offset of a word, and the block is referred to if the low 48 bits of that
    /// word are the block's offset.
    #[default]
    Word,
    /// The structure answers; what the hint means is its own affair. The answer may read the
    /// medium, which is as the crash left it, and must hold for a crash during recovery too. It may
    /// also store and flush what takes a reference back, if that can be done again: recovery fences
    /// before the intent goes.
    Ask(Arc<ClaimCheck>),
}

/// A question about a claim.
pub(super) type ClaimCheck = dyn Fn(&Medium, BlockClaim) -> bool + Send + Sync;

impl Reachable {
    /// Asks a function.
    pub fn ask_fn(ask: impl Fn(&Medium, BlockClaim) -> bool + Send + Sync + 'static) -> Reachable {
        Reachable::Ask(Arc::new(ask))
    }

    pub(super) fn ask(&self, medium: &Medium, claim: BlockClaim) -> bool {
        match self {
            Reachable::Word => claim.is_in_word(medium),
            Reachable::Ask(ask) => ask(medium, claim),
        }
    }
}

impl fmt::Debug for Reachable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reachable::Word => f.write_str("Word"),
            Reachable::Ask(_) => f.write_str("Ask"),
        }
    }
}
