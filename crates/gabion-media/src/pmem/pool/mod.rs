//! Pools: persistent memory with a header, a root and an allocator.
//!
//! # Invariants
//! - I1. The magic is written last when a pool is created: a file with it is a whole pool.
//! - I2. The state says `OPEN`, durably, before anything else changes, and `CLOSED` only after
//!   everything else is durable.
//! - I3. The file is locked as long as the pool is open.
//! - I4. A pool that was closed without space for a last checkpoint is in its file alone, which is
//!   durable. A checkpoint is made of it before it is open again, when its file stops being so.
//!
//! # Recovery
//! Opening a pool that was not closed resolves the allocator's intents; opening one that was closed
//! finds none. A pool of class Process is refused if the system went down while it was open.
//!
//! # Forks
//! A mapped file is shared with a forked child, and the locks of the structures in it are not. So
//! the pool stays with the process that opened it: another one can neither allocate nor retire,
//! sync or close, and dropping its copy changes nothing. It must not store to the pool either,
//! which nothing can keep it from.

mod block;
mod inspect;
mod open;
mod sync;

use std::marker::PhantomData;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

pub use self::block::{Reserved, Retiring};

use self::sync::SyncState;
use super::alloc::{AllocError, Allocator, BlockTicket, RoomRequest};
use super::atomic::{Media, PAtomicU64};
use super::checkpoint_gate::WriteGuard;
use super::epoch::Guard;
use super::file::PoolFile;
use super::layout::{
    NO_CHECKPOINT, ROOT_OFFSET, STATE_CLOSED, STATE_OFFSET, STATE_OPEN, StateLine, seal, unseal,
};
use super::medium::Medium;
use super::off::POff;
use super::options::PoolClass;
use super::page_witness;
use crate::owner::Owner;
use crate::{Error, PoolFault, Result};

/// The hint of a block that will be the root: see [`Pool::set_root`].
pub const ROOT_HINT: u64 = ROOT_OFFSET;

/// An open pool. Clones are the same pool; it is closed by [`Pool::close`], and left as after a
/// crash of the process if that is not called.
///
/// A pool dereferences to its [`Medium`].
#[derive(Clone)]
pub struct Pool {
    medium: Medium,
    shared: Arc<Shared>,
}

struct Shared {
    allocator: Allocator,
    class: PoolClass,
    file: Option<Arc<PoolFile>>,
    /// A file that is only looked at, kept for its lock.
    #[expect(dead_code, reason = "held for its lock")]
    looked_at: Option<Arc<PoolFile>>,
    path: PathBuf,
    uuid: [u8; 16],
    was_closed: bool,
    syncing: Option<SyncState>,
    owner: Owner,
}

impl Deref for Pool {
    type Target = Medium;

    #[inline]
    fn deref(&self) -> &Medium {
        &self.medium
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool")
            .field("path", &self.shared.path)
            .field("class", &self.shared.class)
            .field("size", &self.medium.len())
            .finish_non_exhaustive()
    }
}

// ORDER: Relaxed throughout: the header's words are read when the pool is opened, by one thread;
// only the root is read while the pool is in use, and says so.
impl Pool {
    /// What the pool survives.
    pub fn class(&self) -> PoolClass {
        self.shared.class
    }

    /// The pool's file, or a name in angle brackets if it has none.
    pub fn path(&self) -> &Path {
        &self.shared.path
    }

    /// The pool's UUID.
    pub fn uuid(&self) -> [u8; 16] {
        self.shared.uuid
    }

    /// Whether the pool was closed, or is new, when it was opened: whether nothing in it can be
    /// half done.
    pub fn was_closed(&self) -> bool {
        self.shared.was_closed
    }

    #[cfg(test)]
    pub(super) fn geometry(&self) -> super::layout::PoolGeometry {
        self.shared.allocator.geometry
    }

    /// An error in a process that was forked since the pool was opened: it is not its own.
    #[inline]
    fn check_owner(&self) -> Result<()> {
        self.shared.owner.check(|| self.shared.path.clone())
    }

    fn fault(&self, fault: PoolFault) -> Error {
        Error::Pool {
            path: self.shared.path.clone(),
            fault,
        }
    }

    fn try_root<T: Media>(&self) -> Result<POff<T>> {
        let word: &PAtomicU64 = self.medium.at(POff::new(ROOT_OFFSET));
        // ORDER: Acquire pairs with the Release of `set_root`: what the root refers to is there.
        let root = unseal(word.load(&self.medium, Ordering::Acquire));
        let root = root
            .filter(|root| *root <= self.medium.len())
            .ok_or_else(|| {
                self.fault(PoolFault::Damaged {
                    what: "root offset",
                    offset: ROOT_OFFSET,
                })
            })?;
        Ok(POff::new(root))
    }

    /// Where the structure in the pool begins; null in a new pool. Its intactness was checked
    /// when the pool was opened.
    pub fn root<T: Media>(&self) -> POff<T> {
        self.try_root().unwrap_or_default()
    }

    /// Sets the root, durably and atomically. A block that becomes the root is reserved with
    /// [`ROOT_HINT`].
    #[track_caller]
    pub fn set_root<T: Media>(&self, root: POff<T>) {
        let word: &PAtomicU64 = self.medium.at(POff::new(ROOT_OFFSET));
        // DURABLE: what the root refers to was persisted by the caller.
        // ORDER: Release pairs with the Acquire of `root`.
        word.store_persist(&self.medium, seal(root.raw()), Ordering::Release);
    }

    /// Size of the block that a request for `size` bytes gets: what may be used of it.
    pub fn rounded_size(&self, size: u64) -> u64 {
        self.shared.allocator.rounded(size, 1)
    }

    /// The unit of large blocks: blocks of more than half of it take whole ones, all others share
    /// one with blocks of the same size.
    pub fn chunk_bytes(&self) -> u64 {
        self.shared.allocator.geometry.chunk_bytes
    }

    /// Where blocks begin: what lies before is the header and what the allocator notes of them.
    pub fn blocks_at(&self) -> u64 {
        self.shared.allocator.geometry.chunks_at
    }

    /// Reserves a block of at least `size` bytes, aligned to 16; its content is arbitrary.
    ///
    /// The hint says where the reference to the block will be, see
    /// [`Reachable`](super::Reachable). Between this call and [`Reserved::commit`] the same thread
    /// fences (after it has filled and flushed the block), publishes, flushes and fences. A block
    /// that is dropped is free again.
    ///
    /// Costs some tens of nanoseconds and the flush of one line.
    ///
    /// # Errors
    /// [`Error::PoolFull`], or [`Error::Io`] if the file system has no space; the pool stays
    /// usable.
    #[track_caller]
    pub fn alloc(&self, size: u64, hint: u64) -> Result<Reserved<'_>> {
        self.alloc_aligned(size, 16, hint)
    }

    /// As [`Pool::alloc`], at a multiple of `align` bytes, a power of two up to the chunk size.
    #[track_caller]
    pub fn alloc_aligned(&self, size: u64, align: u64, hint: u64) -> Result<Reserved<'_>> {
        self.check_owner()?;
        let ticket = self.shared.allocator.reserve(size, align, hint);
        self.reserved(ticket, size)
    }

    /// Sees to it that all of some blocks can be had, in any order, as long as nobody else asks for
    /// one: before the first of several is reserved that make one thing only together.
    ///
    /// # Errors
    /// As [`Pool::alloc`]; nothing has changed then.
    pub fn expect_room(&self, parts: &[RoomRequest]) -> Result<()> {
        let expected = self.shared.allocator.expect_room(parts);
        expected.map_err(|refusal| {
            let bytes = parts
                .iter()
                .map(|part| part.bytes.saturating_mul(part.count));
            self.refused(refusal, bytes.fold(0, u64::saturating_add), 0)
        })
    }

    /// As [`Pool::alloc_aligned`], for a block that takes the place of `old`, which is at least as
    /// large: the same thread retires `old` next, and both commit. In a pool that
    /// [keeps blocks back](super::PoolOptions::keeps_back) there is space for that though it is
    /// full, if `old` is no larger than half of a chunk, unless another thread is about to replace
    /// a block of that size or readers keep what such a thread gave up: it comes back when their
    /// guards are gone.
    #[track_caller]
    pub fn alloc_instead<T: ?Sized>(
        &self,
        old: POff<T>,
        size: u64,
        align: u64,
        hint: u64,
    ) -> Result<Reserved<'_>> {
        let allocator = &self.shared.allocator;
        let ticket = allocator.reserve_instead(old.raw(), size, align, hint);
        self.reserved(ticket, size)
    }

    /// As [`Pool::alloc`], in the space that the pool keeps back for one block at a time, of at
    /// most the size that [`PoolOptions::keeps_run`](super::PoolOptions::keeps_run) says. That is
    /// there in a full pool, too, if it could be set aside before: from the creation of the pool
    /// on, or since so much was free in one piece. It is there again when the block was retired and
    /// the guards of that time are gone.
    #[track_caller]
    pub fn alloc_kept(&self, size: u64, hint: u64) -> Result<Reserved<'_>> {
        self.check_owner()?;
        let ticket = self.shared.allocator.reserve_kept(size, hint);
        self.reserved(ticket, size)
    }

    /// Whether the pool keeps space back for [`Pool::alloc_kept`], be it missing for now.
    pub fn keeps_run(&self) -> bool {
        self.shared.allocator.keeps_run()
    }

    /// A block of `size` bytes that the allocator has reserved, or why it did not.
    fn reserved(&self, ticket: Result<BlockTicket, AllocError>, size: u64) -> Result<Reserved<'_>> {
        let ticket = ticket.map_err(|refusal| self.refused(refusal, size, 0))?;
        Ok(Reserved {
            pool: self,
            ticket,
            is_open: true,
            thread: PhantomData,
        })
    }

    /// Announces that a block will be unpublished. The hint says where the reference to it is.
    ///
    /// Between this call and [`Retiring::commit`] the same thread fences, takes the reference
    /// away, flushes and fences. If it is dropped instead, the block stays allocated.
    ///
    /// # Errors
    /// If no allocated block begins there.
    #[track_caller]
    pub fn retire<T: ?Sized>(&self, block: POff<T>, hint: u64) -> Result<Retiring<'_>> {
        self.check_owner()?;
        let ticket = self.shared.allocator.prepare_retire(block.raw(), hint);
        let ticket = ticket.map_err(|refusal| self.refused(refusal, 0, block.raw()))?;
        Ok(Retiring {
            pool: self,
            ticket,
            is_open: true,
            thread: PhantomData,
        })
    }

    /// Asks for what the allocator notes of a block, before it is retired.
    #[inline]
    pub fn prefetch_note(&self, block: u64) {
        self.shared.allocator.prefetch_state(block);
    }

    #[cold]
    fn refused(&self, refusal: AllocError, wanted: u64, offset: u64) -> Error {
        match refusal {
            AllocError::Failed(error) => error,
            AllocError::Busy => self.fault(PoolFault::Busy),
            AllocError::NotABlock => self.fault(PoolFault::NotABlock { offset }),
            AllocError::Full => {
                let space = self.shared.allocator.space();
                let free = space.free_bytes + space.slab_free_bytes;
                Error::PoolFull {
                    path: self.shared.path.clone(),
                    wanted,
                    free,
                }
            }
        }
    }

    /// Keeps blocks that are found from here on from being reused until the guard is dropped.
    #[inline]
    pub fn enter(&self) -> Guard<'_> {
        self.shared.allocator.epochs.enter()
    }

    /// Ends all that committed operations left for later: after this, recovery asks about none of
    /// them. Called before a structure moves references that other operations may have just
    /// published, for their hints are then wrong.
    #[track_caller]
    pub fn settle(&self) {
        self.shared.allocator.settle();
    }

    /// Makes retired blocks free whose readers are gone, now rather than in passing.
    #[track_caller]
    pub fn collect(&self) {
        self.shared.allocator.reclaim();
    }

    /// Allows changes of the pool as long as the guard is held. For pools of class
    /// [`PoolClass::PowerBySync`], where it keeps a [`Pool::sync`] from seeing a half of what is
    /// done: whoever stores to the pool, or calls anything that does, holds one from the first
    /// store to the last commit of an operation. May be nested; costs two uncontended atomic
    /// operations there, and nothing elsewhere.
    #[inline]
    pub fn write_guard(&self) -> WriteGuard<'_> {
        self.shared
            .syncing
            .as_ref()
            .map_or_else(WriteGuard::free, SyncState::pass)
    }

    /// Makes everything that was stored before the call survive the loss of power: all of it, or,
    /// if power is lost meanwhile, nothing since the last sync.
    ///
    /// On persistent memory that is so for what was flushed and fenced, and not for more. A pool
    /// with a checkpoint waits until nobody holds a [`Pool::write_guard`], copies the pages that
    /// changed, lets the others go on, and waits for the disk; the first sync after a crash of the
    /// process copies all pages in use.
    ///
    /// # Errors
    /// A full disk is an error after which another sync may succeed. After a failed sync of the
    /// checkpoint file there is none until the pool is opened again. Pools of other classes cannot
    /// be synced.
    pub fn sync(&self) -> Result<()> {
        self.check_owner()?;
        let allocator = &self.shared.allocator;
        match &self.shared.syncing {
            Some(syncing) => syncing.sync(&self.medium, &allocator.geometry, || {
                allocator.reserved_chunks()
            }),
            None if self.shared.class == PoolClass::Power => {
                self.medium.fence();
                Ok(())
            }
            None => Err(self.fault(PoolFault::NoSync {
                class: self.shared.class.name(),
            })),
        }
    }

    /// What the pool is and what is in it. Costs a look at each chunk's descriptor and states.
    pub fn stats(&self) -> PoolStats {
        let space = self.shared.allocator.space();
        let syncing = self.shared.syncing.as_ref();
        let (checkpoint_written_bytes, checkpoint_syncs) =
            syncing.map(SyncState::costs).unwrap_or_default();
        PoolStats {
            class: self.shared.class,
            size_bytes: self.medium.len(),
            used_bytes: space.used_bytes,
            used_blocks: space.used_blocks,
            retired_bytes: space.retired_bytes,
            free_bytes: space.free_bytes,
            fragmented_bytes: space.slab_free_bytes,
            longest_free_bytes: space.longest_free_bytes.max(space.unreserved_bytes),
            checkpoint_bytes: syncing.map_or(0, SyncState::file_bytes),
            checkpoint_written_bytes,
            checkpoint_syncs,
        }
    }

    fn is_lasting_file(&self, syncing: &SyncState) -> bool {
        let file = self.shared.file.as_deref();
        file.is_some_and(|file| syncing.is_as_lasting(file).unwrap_or(false))
    }

    /// Closes the pool: everything in it is then durable, whatever its class, if it has a file.
    /// No other clone may be in use.
    ///
    /// A pool with a checkpoint for whose last changes there is no space is durable in its own
    /// file, whose space it has, if that lies on the same file system as the checkpoint. The next
    /// opening then needs space for a checkpoint.
    pub fn close(self) -> Result<()> {
        self.check_owner()?;
        let allocator = &self.shared.allocator;
        let within = self.write_guard();
        allocator.finish();
        drop(within);
        if let Some(syncing) = &self.shared.syncing {
            // Not asked for from within: a sync that holds the number waits for who is.
            let last = match self.sync() {
                Ok(()) => syncing.sequence(),
                // DURABLE: the file, by the sync below.
                Err(error) if error.is_no_space() && self.is_lasting_file(syncing) => NO_CHECKPOINT,
                Err(error) => return Err(error),
            };
            let within = self.write_guard();
            let line: &StateLine = self.medium.at(POff::new(STATE_OFFSET));
            line.checkpoint
                .store(&self.medium, seal(last), Ordering::Relaxed);
            self.medium.flush(line);
            drop(within);
        }
        if let Some(file) = &self.shared.file {
            file.sync().inspect_err(|_| self.disown())?;
        }
        let within = self.write_guard();
        let line: &StateLine = self.medium.at(POff::new(STATE_OFFSET));
        line.holder.store(&self.medium, 0, Ordering::Relaxed);
        line.witness
            .store(&self.medium, page_witness::NONE, Ordering::Relaxed);
        // DURABLE: everything else is; the pool is closed.
        line.state
            .store_persist(&self.medium, seal(STATE_CLOSED), Ordering::Relaxed);
        drop(within);
        match &self.shared.file {
            Some(file) => file.sync().inspect_err(|_| self.disown()),
            None => Ok(()),
        }
    }

    /// Says that the file is not to be trusted: after a sync of it that failed, the system may have
    /// taken pages for written that are not, and drop them. The checkpoint stands in for it.
    fn disown(&self) {
        if self.shared.syncing.is_none() {
            return;
        }
        let _within = self.write_guard();
        let line: &StateLine = self.medium.at(POff::new(STATE_OFFSET));
        line.state
            .store(&self.medium, seal(STATE_OPEN), Ordering::Relaxed);
        for half in &line.boot_id {
            half.store(&self.medium, 0, Ordering::Relaxed);
        }
    }
}

/// What a pool is and what is in it. Sizes in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolStats {
    /// What it survives.
    pub class: PoolClass,
    /// Size of the pool, with what describes its space.
    pub size_bytes: u64,
    /// In allocated blocks, as large as they were rounded up.
    pub used_bytes: u64,
    /// Number of allocated blocks.
    pub used_blocks: u64,
    /// In blocks that wait for their last readers.
    pub retired_bytes: u64,
    /// In chunks that are free for blocks of any size.
    pub free_bytes: u64,
    /// Lost to fragmentation: free in chunks whose other blocks are in use, so that only blocks of
    /// the same size fit in.
    pub fragmented_bytes: u64,
    /// The largest block that can be had.
    pub longest_free_bytes: u64,
    /// In the file of the checkpoints, if there is one.
    pub checkpoint_bytes: u64,
    /// Written to files of checkpoints since the pool was opened.
    pub checkpoint_written_bytes: u64,
    /// Number of syncs of these files and of their directory since the pool was opened.
    pub checkpoint_syncs: u64,
}
