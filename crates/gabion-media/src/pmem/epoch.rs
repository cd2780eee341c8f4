//! Epoch-based reclamation: a block is reused only when no reader can have it any more.
//!
//! # Idea
//! Readers hold a [`Guard`] while they use what they found. A block that was made unreachable goes
//! to a collector (the crate `seize`), which hands it back once every guard that existed then is
//! gone. `seize` is used because entering costs a store and no full barrier, so that the cache
//! misses of successive lookups still overlap; the barrier is on the side of those who retire, for
//! whole batches.
//!
//! The batches of the collector belong to threads, and what a thread leaves in one when it ends
//! would wait for the next thread that gets its place: a few blocks, but each keeps a chunk from
//! being used for blocks of other sizes. So blocks gather here first ([`Gathering`]), where whoever
//! is short of space finds them all, and go to the collector as one entry. The others of a batch
//! are made up.
//!
//! The collector calls back at any moment, on any thread, so the callback only puts the block on a
//! list ([`ReclaimableBlocks`]); the allocator takes it from there when it is at work itself.

use std::fmt;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use seize::{Collector, Guard as _, LocalGuard};

use super::alloc::thread;

/// Threads without a number that have a guard when a batch is handed over early. With more of them
/// the batch waits as any other.
const READERS: u32 = 64;

/// Blocks that go to the collector together, and entries of its batches.
const BATCH: usize = 32;

/// Lists on which blocks gather, so that threads need not wait for each other.
const LISTS: usize = 16;

/// Keeps what its holder finds from being reused. Hold it for an operation, not for long: while it
/// is held, no block that is retired meanwhile becomes free.
pub struct Guard<'a>(LocalGuard<'a>);

impl fmt::Debug for Guard<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Guard")
    }
}

/// Blocks that nobody reads any more, on their way back to the allocator.
#[derive(Debug, Default)]
pub(super) struct ReclaimableBlocks {
    has_any: AtomicBool,
    blocks: Mutex<Vec<(u64, u64)>>,
}

// ORDER: Relaxed throughout: a hint, the list itself has a lock.
impl ReclaimableBlocks {
    fn put(&self, mut some: Vec<(u64, u64)>) {
        let mut blocks = self.blocks.lock();
        blocks.append(&mut some);
        self.has_any.store(true, Ordering::Relaxed);
    }

    /// Takes all blocks: offset, and number of chunks or 0.
    pub(super) fn take(&self) -> Vec<(u64, u64)> {
        if !self.has_any.load(Ordering::Relaxed) {
            return Vec::new();
        }
        let mut blocks = self.blocks.lock();
        self.has_any.store(false, Ordering::Relaxed);
        std::mem::take(&mut *blocks)
    }
}

/// Blocks that were retired and that the collector does not know of yet: offset, and number of
/// chunks or 0.
#[derive(Debug, Default)]
struct Gathering([Mutex<Vec<(u64, u64)>>; LISTS]);

impl Gathering {
    /// Adds a block; takes those of its list when they are enough for a batch.
    fn add(&self, block: u64, count: u64) -> Option<Vec<(u64, u64)>> {
        let mut list = self.0[thread::small_number() as usize % LISTS].lock();
        list.push((block, count));
        (list.len() >= BATCH).then(|| std::mem::take(&mut *list))
    }

    /// Takes the blocks of all threads.
    fn take(&self) -> Vec<(u64, u64)> {
        let lists = self.0.iter();
        lists
            .flat_map(|list| std::mem::take(&mut *list.lock()))
            .collect()
    }
}

/// The readers of a pool, and the blocks that wait for them.
#[derive(Debug, Default)]
pub(super) struct Epochs {
    collector: OnceLock<Collector>,
    gathering: Gathering,
    pub(super) ready: Arc<ReclaimableBlocks>,
}

/// Blocks in the hands of the collector.
struct RetiredBlocks {
    ready: Arc<ReclaimableBlocks>,
    blocks: Vec<(u64, u64)>,
}

impl Epochs {
    pub(super) fn enter(&self) -> Guard<'_> {
        let collector = || Collector::new().batch_size(BATCH);
        Guard(self.collector.get_or_init(collector).enter())
    }

    /// Puts a block on the list once all guards of now are gone.
    pub(super) fn defer(&self, guard: &Guard<'_>, block: u64, count: u64) {
        if let Some(blocks) = self.gathering.add(block, count) {
            self.retire(guard, blocks, BATCH);
        }
    }

    /// Hands blocks to the collector, as one of so many entries. Blocks of other threads may be
    /// among them: they cannot be found any more, so that more guards than need be are waited for
    /// and none less.
    fn retire(&self, guard: &Guard<'_>, blocks: Vec<(u64, u64)>, entries: usize) {
        let ready = Arc::clone(&self.ready);
        let retired = Box::into_raw(Box::new(RetiredBlocks { ready, blocks }));
        // SAFETY: the box belongs to the collector from here on, which calls `reclaim` once.
        unsafe { guard.0.defer_retire(retired, reclaim) };
        for _ in 1..entries {
            let nothing = std::ptr::dangling_mut::<RetiredBlocks>();
            // SAFETY: `pass_by` takes any pointer.
            unsafe { guard.0.defer_retire(nothing, pass_by) };
        }
    }

    /// Hands over what waits for a batch to fill. A batch needs an entry for each thread that has a
    /// guard: those that lack are made up. Threads that only read have no numbers, so some more are
    /// made up than there are numbers.
    #[cold]
    pub(super) fn hand_over(&self, guard: &Guard<'_>) {
        let entries = thread::most().saturating_add(READERS) as usize;
        self.retire(guard, self.gathering.take(), entries);
        guard.0.flush();
    }

    /// Hands over what waits for a batch to fill, of all threads.
    pub(super) fn flush(&self) {
        let blocks = self.gathering.take();
        if blocks.is_empty() && self.collector.get().is_none() {
            return;
        }
        let guard = self.enter();
        if !blocks.is_empty() {
            self.retire(&guard, blocks, BATCH);
        }
        guard.0.flush();
    }
}

/// Called by the collector when no guard can be in the way.
///
/// # Safety
/// `retired` came from `Box::into_raw` and is not used again.
unsafe fn reclaim(retired: *mut RetiredBlocks, _: &Collector) {
    // SAFETY: the caller's promise.
    let retired = unsafe { Box::from_raw(retired) };
    let RetiredBlocks { ready, blocks } = *retired;
    ready.put(blocks);
}

/// The same of an entry that only fills a batch.
fn pass_by(_: *mut RetiredBlocks, _: &Collector) {}

#[cfg(test)]
mod tests {
    use super::*;

    /// A batch waited for its thread to fill it, however short space was, or for one entry more
    /// than there were threads with a guard.
    #[test]
    fn what_is_handed_over_waits_for_guards_only() {
        let epochs = Epochs::default();
        let readers: Vec<_> = (0..3).map(|_| std::sync::mpsc::channel::<()>()).collect();
        std::thread::scope(|scope| {
            let (enters, entered) = std::sync::mpsc::channel();
            let mut ends = Vec::new();
            for (end, wait) in readers {
                let (epochs, enters) = (&epochs, enters.clone());
                scope.spawn(move || {
                    let reader = epochs.enter();
                    enters.send(()).expect("heard");
                    let _ = wait.recv();
                    drop(reader);
                });
                ends.push(end);
            }
            (0..ends.len()).for_each(|_| entered.recv().expect("told"));
            let guard = epochs.enter();
            epochs.defer(&guard, 16, 0);
            epochs.hand_over(&guard);
            drop(guard);
            assert!(epochs.ready.take().is_empty());
            drop(ends);
        });
        assert_eq!(epochs.ready.take(), [(16, 0)]);
    }

    #[test]
    fn a_block_waits_for_the_guards_of_its_time() {
        let epochs = Epochs::default();
        let reader = epochs.enter();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let guard = epochs.enter();
                for block in 1..=100 {
                    epochs.defer(&guard, block, 0);
                }
                drop(guard);
                epochs.flush();
            });
        });
        assert!(epochs.ready.take().is_empty());
        drop(reader);
        epochs.flush();
        let mut blocks = epochs.ready.take();
        blocks.sort_unstable();
        assert_eq!(blocks, Vec::from_iter((1..=100).map(|block| (block, 0))));
    }

    /// What threads left in batches when they ended waited for others that got their places. The
    /// few blocks kept nearly all chunks of a pool from other sizes.
    #[test]
    fn blocks_of_threads_that_ended_are_found_by_others() {
        let epochs = Epochs::default();
        std::thread::scope(|scope| {
            for first in [0, 10, 20] {
                let epochs = &epochs;
                scope.spawn(move || {
                    let guard = epochs.enter();
                    (first..first + 10).for_each(|block| epochs.defer(&guard, block, 0));
                });
            }
        });
        assert!(epochs.ready.take().is_empty());
        epochs.flush();
        let mut blocks = epochs.ready.take();
        blocks.sort_unstable();
        assert_eq!(blocks, Vec::from_iter((0..30).map(|block| (block, 0))));
    }
}
