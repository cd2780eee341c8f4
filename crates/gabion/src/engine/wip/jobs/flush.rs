//! Flush: a frozen MemTable becomes a table of level 0.
//!
//! # Journey
//! 1. Take the oldest frozen MemTable that nobody flushes and that is the oldest of each bucket
//!    that holds it, so that for each key level 0 grows in the order of sequence numbers (what an
//!    ingest adds meanwhile has none of its keys).
//! 2. Write its entries, without hidden versions, to a new file; sync the file.
//! 3. Find how far the log's tail may move once this MemTable is gone.
//! 4. Sync the log: a table must not hold what the log could still lose (invariant I2 of the
//!    engine).
//! 5. Name the file, the flushed sequence number and the tail in the manifest.
//!    DURABLE: from here on the file is part of the store.
//! 6. Install: the buckets exchange the MemTable for the table.
//! 7. Delete log segments before the tail.
//!
//! After a split several buckets hold the same MemTable. It becomes one file all the same, which
//! each of them refers to as a slice.
//!
//! Step 2 keeps to the limit on what the background writes (`rate_limiter`).
//!
//! A failure before step 5 leaves a file that nobody names; it is removed at once, or at the next
//! open, and the MemTable is tried again. So it is when the keyspace was dropped meanwhile, but
//! that the MemTable waits for nothing any more.

use std::sync::Arc;

use gabion_media::Purpose;

use super::version_gc::VersionGc;
use crate::Result;
use crate::engine::memtable::MemTable;
use crate::engine::range_deletes::RangeTombstones;
use crate::engine::ssd::SsdEngine;
use crate::engine::ssd::rate_limiter::IoPriority;
use crate::engine::wip::bucket::age::flushed_age;
use crate::engine::wip::bucket::file::TableFile;
use crate::engine::wip::bucket::file::file_meta;
use crate::engine::wip::bucket::{Bucket, BucketState, Levels, Run};
use crate::engine::wip::manifest::{TableAge, VersionEdit};
use crate::engine::wip::table::TableMeta;
use crate::engine::wip::{Wip, WipKeyspace};

/// What a flush works on.
struct Job {
    table: Arc<MemTable>,
    keyspace: Arc<WipKeyspace>,
    lower: Box<[u8]>,
    upper: Option<Box<[u8]>>,
    born: u64,
}

impl Wip {
    /// Flushes one MemTable; false when none can be flushed now.
    pub(in super::super) fn flush_one(&self) -> Result<bool> {
        let Some(job) = self.take_frozen() else {
            return Ok(false);
        };
        let result = self.flush_table(&job);
        if result.is_err() {
            self.return_frozen(&job.table);
        }
        result.map(|()| true)
    }

    /// Makes tables of what is in memory now, and waits for them and for no others (`freeze`, F2).
    pub(crate) fn flush(&self) -> Result<()> {
        self.check_writable()?;
        let frozen = {
            let _alone = self.leader.write();
            self.freeze_everything()
        };
        self.wait_flushed(&frozen)
    }

    /// Whether a MemTable waits for its flush and nobody works on it.
    pub(in super::super) fn has_frozen(&self) -> bool {
        self.lock_install()
            .frozen
            .iter()
            .any(|frozen| !frozen.flushing)
    }

    fn take_frozen(&self) -> Option<Job> {
        let mut install = self.lock_install();
        let ready = install.frozen.iter().position(|frozen| {
            let router = frozen.keyspace.router.load();
            let mut holders = router.within(&frozen.lower, frozen.upper.as_deref());
            !frozen.flushing
                && holders.all(|bucket| {
                    let state = bucket.state.load();
                    let oldest = state.frozen.last();
                    oldest.is_some_and(|table| Arc::ptr_eq(table, &frozen.table))
                })
        })?;
        let frozen = &mut install.frozen[ready];
        frozen.flushing = true;
        Some(Job {
            table: Arc::clone(&frozen.table),
            keyspace: Arc::clone(&frozen.keyspace),
            lower: frozen.lower.clone(),
            upper: frozen.upper.clone(),
            born: frozen.born,
        })
    }

    fn return_frozen(&self, table: &Arc<MemTable>) {
        for frozen in &mut self.lock_install().frozen {
            if Arc::ptr_eq(&frozen.table, table) {
                frozen.flushing = false;
            }
        }
    }

    fn flush_table(&self, job: &Job) -> Result<()> {
        let protected = self.snapshots.protect(|| self.read_point());
        let deletes = RangeTombstones::union(job.table.range_deletes().iter(), &protected);
        let mut output = self.create_table(job.keyspace.id, Purpose::Flush, IoPriority::Flush)?;
        let retain = VersionGc::new(protected, false, deletes);
        let mut retain = retain.merging(job.keyspace.own.merge_operator());
        let mut add = |key: &[u8], seq, kind, value: &[u8]| output.add(key, seq, kind, value);
        let mut cursor = job.table.sorted();
        cursor.seek_first();
        while cursor.valid() {
            let (key, seq, kind) = (cursor.key(), cursor.seq(), cursor.kind());
            retain.offer(key, seq, kind, cursor.value_bytes(), &mut add)?;
            cursor.next();
        }
        retain.finish(&mut add)?;
        let meta = output.finish()?;
        let number = meta.file;
        let age = flushed_age(job.born, retain.superseded(), meta.tombstones);
        let installed = self.install_flush(job, meta, age);
        let file = installed.inspect_err(|_| self.abandon(number))?;
        self.counters.flushes.add(1);
        tracing::debug!(
            file = file.meta.file,
            bytes = file.meta.file_bytes,
            "flushed a MemTable"
        );
        self.reclaim_log();
        Ok(())
    }

    fn install_flush(&self, job: &Job, meta: TableMeta, age: TableAge) -> Result<Arc<TableFile>> {
        self.disk.sync_dir()?;
        let tail = self.log_tail([&job.table]);
        self.syncer.sync().map_err(|error| self.fail(error))?;
        let file = Arc::new(TableFile::new(
            meta,
            age,
            &self.disk,
            &self.lock,
            &self.cache,
        ));
        let number = file.meta.file;
        // Opens a table with range deletes, so that what they concern is known below.
        file.range_deletes()?;

        let mut versions = self.versions.lock();
        job.keyspace.dropped.check()?;
        let router = job.keyspace.router.load_full();
        let holders = router.within(&job.lower, job.upper.as_deref());
        let buckets: Vec<&Arc<Bucket>> = holders.collect();
        let overlaps = |bucket: &Bucket| file.concerns(bucket);
        let mut edits = vec![VersionEdit::NewFile {
            file: number,
            meta: file_meta(&file.meta),
            age,
        }];
        for bucket in &buckets {
            if overlaps(bucket) {
                edits.push(VersionEdit::AddTable {
                    bucket: bucket.id,
                    level: 0,
                    run: number,
                    file: number,
                });
            }
            edits.push(VersionEdit::FlushedSeq {
                bucket: bucket.id,
                seq: job.table.max_seq(),
            });
        }
        edits.extend(self.moment_edit(file.meta.expiries.is_some()));
        edits.push(VersionEdit::LogTail { segment: tail });
        edits.push(versions.next_file_edit());
        self.apply(&mut versions, &edits)?;

        let mut install = self.lock_install();
        for bucket in &buckets {
            let state = bucket.state.load();
            let mut levels = Levels::clone(&state.levels);
            if overlaps(bucket) {
                levels.add(0, Run::new(number, vec![Arc::clone(&file)]));
                let width = bucket.sizing.width(&self.options);
                let runs = width.scaled(0, levels.level(0).len());
                self.throttle.raise_runs(runs);
            }
            let frozen = state
                .frozen
                .iter()
                .filter(|table| !Arc::ptr_eq(table, &job.table));
            bucket.state.store(Arc::new(BucketState {
                active: Arc::clone(&state.active),
                frozen: frozen.cloned().collect(),
                levels: Arc::new(levels),
                deletes: state.deletes.clone(),
            }));
        }
        install.remove_frozen(&job.table);
        self.written.end(&job.table);
        drop(install);
        drop(versions);
        buckets.iter().for_each(|bucket| self.touch(bucket));
        self.throttle.flushed(self.pool.allocated_bytes());
        self.fresh.add(&file);
        Ok(file)
    }

    /// Makes a run of level 0, of pairs with these keys, in the only bucket of a keyspace.
    #[cfg(test)]
    pub(in super::super) fn put_run_for_tests(
        &self,
        keyspace: &Arc<WipKeyspace>,
        keys: impl IntoIterator<Item = u32>,
        value: u8,
    ) {
        for key in keys {
            self.put_for_tests(keyspace, &key.swap_bytes().to_le_bytes(), &[value; 100]);
        }
        self.flush_for_tests(keyspace);
    }

    /// Makes what the first bucket of a keyspace has in memory a run.
    #[cfg(test)]
    pub(in super::super) fn flush_for_tests(&self, keyspace: &Arc<WipKeyspace>) {
        let router = keyspace.router.load();
        let alone = self.leader.write();
        self.freeze(&mut self.lock_install(), keyspace, &router.buckets()[0]);
        drop(alone);
        assert!(self.flush_one().unwrap());
    }
}

#[cfg(test)]
mod tests {
    use gabion_media::{Disk, SimDisk};

    use super::*;
    use crate::Options;
    use crate::engine::ssd::Lifecycle;

    /// It waited until no MemTable of the store was frozen, which under steady writes need not be
    /// for ever.
    #[test]
    fn a_flush_waits_for_no_memtable_that_is_frozen_later() {
        let sim = SimDisk::new();
        let options = Options::default().background_threads(2);
        let engine = Wip::open(Disk::simulated(&sim), options).unwrap();
        let keyspace = engine.create_keyspace("keyspace").unwrap();
        let other = engine.create_keyspace("other").unwrap();
        let put = |keyspace: &Arc<WipKeyspace>| {
            engine.put_for_tests(keyspace, b"key", b"value");
        };
        put(&keyspace);
        let hold = sim.hold_create(".tbl", 0);
        std::thread::scope(|scope| {
            let flush = scope.spawn(|| engine.flush());
            while engine.lock_install().frozen.is_empty() {
                std::thread::yield_now();
            }
            put(&other);
            engine.freeze_for_tests(&other);
            drop(hold);
            flush.join().unwrap().unwrap();
        });
        let left = engine.lock_install().frozen.len();
        assert_eq!(left, 1, "what was frozen later is not a table yet");
        engine.close().unwrap();
    }
}
