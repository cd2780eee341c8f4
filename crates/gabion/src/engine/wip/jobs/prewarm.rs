//! Prewarms new tables for readers.
//!
//! # Idea
//! The first reader of a block of a mapped table reads it by a system call, checks it, and takes a
//! page fault of the mapping: some microseconds for each block, while a search of a block read
//! before takes half of one. So in the first second after a fill, scans run at a fraction of their
//! later speed. But the system still has new tables in memory. So when nothing else is due and the
//! store has leisure, the background reads them in large pieces, checks their blocks, and lets the
//! system map their pages, at a small part of the cost.
//!
//! # Invariants
//! - F1: prewarming reads nothing from the medium: it leaves what the system has dropped to
//!   readers.
//! - F2: nothing depends on it. It leaves errors to the reader who meets them, too.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::engine::wip::bucket::file::TableFile;

/// The tables that were written and not made ready yet, as long as anybody has them.
#[derive(Default)]
pub(in super::super) struct PrewarmQueue {
    tables: Mutex<Vec<Weak<TableFile>>>,
}

impl PrewarmQueue {
    /// A table was written.
    pub(in super::super) fn add(&self, file: &Arc<TableFile>) {
        let mut tables = self.tables.lock();
        // While a store is filled most tables go soon. Looking for those only where the list would
        // have to grow costs a few looks for each.
        if tables.len() == tables.capacity() {
            tables.retain(|file| file.strong_count() > 0);
            let len = tables.len();
            tables.reserve(len.max(16));
        }
        tables.push(Arc::downgrade(file));
    }

    /// Whether there are none.
    pub(in super::super) fn is_empty(&self) -> bool {
        self.tables.lock().is_empty()
    }

    /// Takes one that somebody still has.
    pub(in super::super) fn take(&self) -> Option<Arc<TableFile>> {
        let mut tables = self.tables.lock();
        std::iter::from_fn(|| tables.pop()).find_map(|file| file.upgrade())
    }
}

#[cfg(test)]
mod tests {
    use gabion_media::{Disk, Fault, FaultKind, SimDisk};

    use super::*;
    use crate::Options;
    use crate::engine::ssd::Lifecycle;
    use crate::engine::wip::{Wip, WipKeyspace};

    fn store() -> (SimDisk, Arc<Wip>, Arc<WipKeyspace>) {
        let sim = SimDisk::new();
        let options = Options::default().background_threads(0);
        let engine = Wip::open(Disk::simulated(&sim), options).unwrap();
        let keyspace = engine.create_keyspace("keyspace").unwrap();
        (sim, engine, keyspace)
    }

    /// How many tables of the first bucket are open, and whether all their blocks were read.
    fn opened(keyspace: &WipKeyspace) -> (usize, bool) {
        let state = keyspace.router.load().buckets()[0].state.load_full();
        let tables = || state.levels.files().filter_map(|file| file.opened());
        (tables().count(), tables().all(|table| table.is_ready()))
    }

    #[test]
    fn what_was_written_is_ready_once_the_store_rests() {
        let (_, engine, keyspace) = store();
        engine.put_run_for_tests(&keyspace, 0..10_000, 1);
        engine.run_inline();
        assert_eq!(opened(&keyspace).0, 0, "no leisure");
        engine.wait_idle().unwrap();
        assert!(engine.fresh.is_empty());
        assert_eq!(opened(&keyspace), (1, true));
        engine.close().unwrap();
    }

    #[test]
    fn what_cannot_be_read_is_left_to_readers() {
        let (sim, engine, keyspace) = store();
        engine.put_run_for_tests(&keyspace, 0..10_000, 1);
        engine.idle_for_tests(|| {
            sim.inject(Fault::forever(sim.ops(), FaultKind::Eio));
            assert!(engine.make_one_ready());
            assert!(!engine.make_one_ready());
            sim.clear_faults();
        });
        engine.check_progress().unwrap();
        let found = engine.get(&keyspace, &7u32.swap_bytes().to_le_bytes(), None);
        assert!(found.unwrap().is_some());
        engine.close().unwrap();
    }

    #[test]
    fn tables_that_are_gone_are_forgotten() {
        let (_, engine, keyspace) = store();
        engine.put_run_for_tests(&keyspace, 0..10, 1);
        let state = keyspace.router.load().buckets()[0].state.load_full();
        let file = state.levels.files().next().unwrap();
        let fresh = PrewarmQueue::default();
        let gone = Weak::<TableFile>::new();
        for _ in 0..100 {
            fresh.tables.lock().push(gone.clone());
            let all = fresh.tables.lock().len();
            assert!(all <= 32, "{all}");
            if all == fresh.tables.lock().capacity() {
                fresh.add(file);
            }
        }
        while let Some(taken) = fresh.take() {
            assert!(Arc::ptr_eq(&taken, file));
        }
        assert!(fresh.is_empty());
        engine.close().unwrap();
    }
}
