//! Reclamation: a block is free for others only when nobody reads it any more.
//!
//! # Idea
//! Readers hold a [`Guard`] while they use what they found. A block that was made unreachable goes
//! to a collector (the crate `seize`), which hands it back once every guard that existed then is
//! gone. `seize` is used because entering costs a store and no full barrier, so that the cache
//! misses of successive lookups still overlap; the barrier is on the side of those who retire, for
//! whole batches.
//!
//! The collector calls back at any moment, on any thread, so the callback only puts the block on a
//! list ([`Ready`]); the allocator takes it from there when it is at work itself.

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

/// The header of the pool, which is no block: an entry that only fills a batch.
const NO_BLOCK: u64 = 0;

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
pub(super) struct Ready {
    has_any: AtomicBool,
    blocks: Mutex<Vec<(u64, u64)>>,
}

// ORDER: Relaxed throughout: a hint, the list itself has a lock.
impl Ready {
    fn put(&self, block: u64, count: u64) {
        let mut blocks = self.blocks.lock();
        blocks.push((block, count));
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

/// The readers of a pool, and the blocks that wait for them.
#[derive(Debug, Default)]
pub(super) struct Epochs {
    collector: OnceLock<Collector>,
    pub(super) ready: Arc<Ready>,
}

/// A block in the hands of the collector.
struct Retired {
    ready: Arc<Ready>,
    block: u64,
    count: u64,
}

impl Epochs {
    pub(super) fn enter(&self) -> Guard<'_> {
        Guard(self.collector.get_or_init(Collector::new).enter())
    }

    /// Puts a block on the list once all guards of now are gone.
    pub(super) fn defer(&self, guard: &Guard<'_>, block: u64, count: u64) {
        let ready = Arc::clone(&self.ready);
        let retired = Box::into_raw(Box::new(Retired {
            ready,
            block,
            count,
        }));
        // SAFETY: the box belongs to the collector from here on, which calls `reclaim` once.
        unsafe { guard.0.defer_retire(retired, reclaim) };
    }

    /// Hands over what waits for a batch to fill. A batch needs an entry for each thread that has a
    /// guard: those that lack are made up. Threads that only read have no numbers, so some more are
    /// made up than there are numbers.
    #[cold]
    pub(super) fn hand_over(&self, guard: &Guard<'_>) {
        for _ in 0..thread::most().saturating_add(READERS) {
            self.defer(guard, NO_BLOCK, 0);
        }
        guard.0.flush();
    }

    /// Hands over what waits only for a batch to fill, if no other guard is in its way.
    pub(super) fn flush(&self) {
        if let Some(collector) = self.collector.get() {
            collector.enter().flush();
        }
    }
}

/// Called by the collector when no guard can be in the way.
///
/// # Safety
/// `retired` came from `Box::into_raw` and is not used again.
unsafe fn reclaim(retired: *mut Retired, _: &Collector) {
    // SAFETY: the caller's promise.
    let retired = unsafe { Box::from_raw(retired) };
    if retired.block != NO_BLOCK {
        retired.ready.put(retired.block, retired.count);
    }
}

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
        // The last ones may wait in a batch of the thread that ended.
        assert!(blocks.len() >= 32, "{blocks:?}");
        assert!(
            blocks
                .iter()
                .zip(1..)
                .all(|(got, block)| *got == (block, 0))
        );
    }
}
