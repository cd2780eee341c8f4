//! Opening and closing a store.
//!
//! # Open
//! 1. Lock the directory. Read `CURRENT` and the manifest it names; or make a store.
//! 2. Check that every file that the manifest names is there and has its length. Tables with range
//!    deletes are opened, because gets of all keys must know them; the others open at first use.
//! 3. Replay the log from its tail, by several threads. A record goes to the bucket of its key,
//!    unless that bucket's flushed sequence number says that a table has it, or a table has a newer
//!    version (`ingest`, N3), or its keyspace was dropped (`drop`). Segments that nothing proves
//!    durable are written anew meanwhile.
//! 4. Seal: write the rest of those anew, record the valid lengths of all in the manifest.
//!    DURABLE: what was replayed cannot be lost again, and what was cut off cannot come back.
//! 5. Remove void log segments, and files that the manifest does not name.
//! 6. Start the log in a new segment, and the background threads. If there are many short segments,
//!    gather them (`log_reclaim`).
//!
//! Where there is no space for steps 4 to 6, or for the new manifest of step 1, the store is open
//! all the same, and [unsettled](crate::engine::ssd): they are done before its first change.
//!
//! A crash at any step leaves a store that opens the same way: steps 1 to 3 write nothing but a new
//! manifest and segments of the same content, step 4 is one group of edits, steps 5 and 6 can be
//! repeated.
//!
//! The memory of the replayed MemTables is what they had before: flushed records are not inserted
//! again.
//!
//! # Replay by several threads
//! Threads apply chunks of the log in any order ([`replay_chunks`]), each of them bucket by bucket
//! ([`BatchTargets`]). What is left of the order, and why that is enough:
//! - Of each key the newest version counts, and a MemTable leaves out what is older (its M1): then
//!   it holds fewer old versions, which nobody could read, as no snapshot is older than the open.
//! - A MemTable's pin is the oldest segment of all its records, left out or not.
//! - Range deletes come in their turn, as a bucket that holds nothing ignores them.
//! - Whether tables have a record is asked of what was there before.
//!
//! Without background threads all of it is done by the calling thread, in order.
//!
//! # Close
//! Stop the threads, wait for the writer that leads, sync and cut the log, record its length, mark
//! the manifest as clean. MemTables stay in the log. A store that finds no space to settle even now
//! stays as its files are.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use gabion_media::Disk;
use parking_lot::{Mutex, RwLock};

use super::background::bucket_queue::BucketQueue;
use super::bucket::file::{TableFile, table_meta};
use super::bucket::prefix_index::common_prefix_len;
use super::bucket::{Bucket, BucketState, Levels, Router, Run};
use super::jobs::prewarm::PrewarmQueue;
use super::manifest::{
    self, FileMeta, Manifest, ManifestLookup, ManifestState, TableSlice, VersionEdit, inspect,
};
use super::policy::write_controller::WriteController;
use super::readpath::has_newer;
use super::readpath::residency::PageResidency;
use super::table::TableMeta;
use super::writepath::dirty_buckets::DirtyBuckets;
use super::writepath::grouped::{BatchTargets, GroupWindow};
use super::writepath::{PublishOrder, WipWriteHalf};
use super::{InstallState, VersionSet, Wip, WipKeyspace};
use crate::cache::BlockCache;
use crate::engine::counters::{Counter, Tally};
use crate::engine::keyspaces::position;
use crate::engine::live_options::LiveKeyspaceOptions;
use crate::engine::memtable::{ChunkPool, MemTable, OrderPolicy};
use crate::engine::range_deletes::RangeDeletes;
use crate::engine::root_file::{no_store, store_exists};
use crate::engine::snapshots::ProtectedSeqs;
use crate::engine::ssd::{ConsumerTable, Lifecycle, OpenedLog, Shell, StoreLock};
use crate::log::{
    Chunk, Log, LogOp, LogOptions, PendingLog, ReplayEnd, replay_chunks, replay_threads,
};
use crate::memory::Memory;
use crate::names::{CURRENT, parse_table_name, table_name};
use crate::options::TableReads;
use crate::types::{Kind, SEQ_MAX, Seq, hash_key};
use crate::{Engine, Error, Options, Result};

/// Chunks of memory that wait when a thread begins to insert into MemTables: more than a window of
/// a replay fills, so that page faults are not taken with a MemTable locked, which other threads
/// may wait for: all of them where there is one bucket.
const STOCK_CHUNKS: usize = 4;

impl Wip {
    /// Opens the store on `disk`, recovering it if need be, and starts its threads.
    pub(crate) fn open(disk: Disk, options: Options) -> Result<Arc<Wip>> {
        Wip::open_by_threads(disk, options, None)
    }

    /// As [`Wip::open`]; the log is replayed by so many threads besides this one.
    fn open_by_threads(disk: Disk, options: Options, threads: Option<usize>) -> Result<Arc<Wip>> {
        // Nothing is left behind where no store is to be made, not even the lock file.
        match inspect(&disk)? {
            ManifestLookup::Free if !options.create_if_missing => return Err(no_store(&disk)),
            _ => {}
        }
        let lock = Arc::new(StoreLock::take(&disk)?);
        let threads = match threads {
            None => replay_threads(&disk, options.background_threads)?,
            Some(threads) => threads,
        };
        let options = options.settled(Engine::Wip);
        let mut manifest = open_manifest(&disk, &options)?;
        let (memory, pool, cache) = Wip::memory_of(&options);
        let parts = Parts {
            disk: &disk,
            lock: &lock,
            cache: &cache,
            pool: &pool,
            keep: OrderPolicy::of(&options),
        };
        let keyspaces = parts.build(manifest.state())?;
        let (mut end, last_seq) = replay_log(&disk, manifest.state(), &keyspaces, &pool, threads)?;
        let consumers = ConsumerTable::open(&disk)?;
        end.keep_for(&disk, &consumers.positions())?;

        let log_options = LogOptions {
            kept_bytes_max: options.changes_bytes_max,
            ..LogOptions::within(options.log_bytes_max)
        };
        let mut pending = PendingLog::new(&disk, end, &log_options, &options.tuning.clock);
        let segment = pending.next_segment();
        let settled = settle(&disk, &mut manifest, &mut pending, last_seq);
        let (log, write_half) =
            OpenedLog::new(&disk, consumers, pending, settled, manifest.is_usable())?;
        let shell = Shell::new((disk, lock), options, memory, keyspaces, log, last_seq);
        shell.moments.raise(manifest.state().moment);
        let leader = WipWriteHalf::new(write_half, last_seq + 1);
        let parts = (cache, pool, manifest, leader);
        let engine = Wip::assemble(shell, parts);
        // ORDER: Relaxed; nobody else has the store yet.
        engine.published_segment.store(segment, Ordering::Relaxed);
        let engine = Arc::new(engine);
        engine.enter_buckets();
        engine.after_job();
        engine.start()?;
        if engine.unsettled.is_settled()
            && let Err(error) = engine.gather_log()
        {
            engine.record(error);
        }
        Ok(engine)
    }

    /// The memory of a store with these options, and those who share it.
    pub(super) fn memory_of(options: &Options) -> (Arc<Memory>, Arc<ChunkPool>, Arc<BlockCache>) {
        let sizes = options.memory_sizes();
        let maps_tables = options.table_reads == TableReads::Mapped;
        let pool = ChunkPool::new(usize::try_from(sizes.memtables).unwrap_or(usize::MAX));
        let memory = Memory::new(sizes.bytes_max, sizes.memtables, &pool);
        let cache = BlockCache::new(sizes.cache)
            .map_tables(maps_tables)
            .check_always(options.tuning.paranoid_checks);
        let cache = Arc::new(cache.within(&memory));
        (memory, pool, cache)
    }

    /// The engine of its parts.
    pub(super) fn assemble(
        shell: Shell<WipKeyspace>,
        (cache, pool, manifest, leader): (Arc<BlockCache>, Arc<ChunkPool>, Manifest, WipWriteHalf),
    ) -> Wip {
        let state = manifest.state();
        let (next_file, next_bucket) = (state.next_file, state.next_bucket);
        let throttle = WriteController::new(&shell.options);
        let turns = PublishOrder::new(shell.options.tuning.concurrent_writers);
        Wip {
            shell,
            cache,
            pool,
            published_segment: AtomicU64::new(0),
            leader: RwLock::new(leader),
            turns,
            versions: Mutex::new(VersionSet {
                manifest,
                next_file,
                next_bucket,
            }),
            install: Mutex::new(InstallState::default()),
            idleness: Mutex::default(),
            throttle,
            totals: Mutex::default(),
            residency: PageResidency::default(),
            fresh: PrewarmQueue::default(),
            agenda: BucketQueue::default(),
            ledger: Mutex::default(),
            written: DirtyBuckets::default(),
            bucket_count: AtomicUsize::new(0),
            table_reads: Tally::default(),
            #[cfg(test)]
            visits: AtomicUsize::new(0),
            table_bytes: Counter::default(),
            following: None,
        }
    }

    /// Enters all buckets, which were just made, where the background finds them.
    fn enter_buckets(&self) {
        let (buckets, now) = (self.buckets(), self.time());
        // ORDER: Relaxed; nobody else has the store yet.
        self.bucket_count.store(buckets.len(), Ordering::Relaxed);
        for (_, bucket) in &buckets {
            let active = Arc::clone(&bucket.state.load().active);
            if !active.is_empty() {
                self.written.begin(bucket, &active, now);
            }
            self.touch(bucket);
        }
    }

    /// Ends the opening, which found no space for that.
    pub(super) fn end_opening(&self, pending: &mut PendingLog) -> Result<()> {
        let mut versions = self.versions.lock();
        let last_seq = self.visible();
        let settled = settle(&self.disk, &mut versions.manifest, pending, last_seq);
        let log = settled.map_err(|error| {
            match error.is_shortage() && versions.manifest.is_usable() {
                true => error,
                false => self.fail(error),
            }
        })?;
        *self.leader.write() = WipWriteHalf::new(Some(log), last_seq + 1);
        Ok(())
    }

    /// Ends the log, and marks the store closed.
    pub(super) fn close_log(&self) -> Result<()> {
        let taken = self.leader.write().take();
        let Some((log, last_seq)) = taken else {
            return Ok(());
        };
        self.health.check()?;
        let sealed = log.close()?;
        let mut versions = self.versions.lock();
        let mut edits = vec![
            VersionEdit::LogSealed {
                segment: sealed.segment,
                length: sealed.length,
            },
            VersionEdit::LastSeq { seq: last_seq },
        ];
        edits.extend(self.moment_edit(versions.manifest.state().expires()));
        versions.manifest.close_clean(&edits)
    }
}

/// The manifest of the store, or of a new one.
fn open_manifest(disk: &Disk, options: &Options) -> Result<Manifest> {
    match inspect(disk)? {
        ManifestLookup::Store if options.error_if_exists => Err(store_exists(disk)),
        ManifestLookup::Store => Manifest::open(disk),
        ManifestLookup::Free if options.create_if_missing => Manifest::create(disk),
        ManifestLookup::Free => Err(no_store(disk)),
    }
}

/// Steps 4 to 6 of an opening, as far as they are left.
fn settle(
    disk: &Disk,
    manifest: &mut Manifest,
    pending: &mut PendingLog,
    last_seq: Seq,
) -> Result<Log> {
    pending.settle(disk, |seals| {
        let seals = seals.iter().map(|log| VersionEdit::LogSealed {
            segment: log.segment,
            length: log.length,
        });
        let mut edits: Vec<VersionEdit> = seals.collect();
        edits.push(VersionEdit::LastSeq { seq: last_seq });
        manifest.apply(&edits)?;
        remove_orphans(disk, manifest)
    })
}

/// What building the buckets needs.
struct Parts<'p> {
    disk: &'p Disk,
    lock: &'p Arc<StoreLock>,
    cache: &'p Arc<BlockCache>,
    pool: &'p Arc<ChunkPool>,
    /// When the MemTables are in order.
    keep: OrderPolicy,
}

impl Parts<'_> {
    /// The keyspaces as the manifest describes them.
    fn build(&self, state: &ManifestState) -> Result<Vec<Arc<WipKeyspace>>> {
        let files = self.open_files(state)?;
        let mut by_keyspace: HashMap<u32, Vec<(&[u8], u64)>> = HashMap::new();
        for (number, bucket) in &state.buckets {
            by_keyspace
                .entry(bucket.keyspace)
                .or_default()
                .push((&bucket.lower, *number));
        }
        let expiring = state.expiring();
        let mut keyspaces = Vec::new();
        for (id, name) in &state.keyspaces {
            let mut ordered = by_keyspace.remove(id).unwrap_or_default();
            ordered.sort_unstable();
            let mut buckets = Vec::with_capacity(ordered.len());
            for (position, (lower, number)) in ordered.iter().enumerate() {
                let upper = ordered.get(position + 1).map(|(upper, _)| *upper);
                let known = state.buckets.get(number);
                let tables = known.map_or(&[][..], |bucket| &bucket.tables);
                let levels = levels_of(tables, &files);
                let (pool, keep) = (self.pool, self.keep);
                let all = ProtectedSeqs::only(SEQ_MAX);
                let state = bucket_state((lower, upper), levels, (pool, keep), &all)?;
                buckets.push(Arc::new(Bucket::new((*id, *number), lower, upper, state)));
            }
            let options = state.options.get(id).cloned().unwrap_or_default();
            let own = LiveKeyspaceOptions::new(options, expiring.contains(id));
            let router = Router::new(buckets);
            keyspaces.push(Arc::new(WipKeyspace::new(*id, name, router, own)));
        }
        Ok(keyspaces)
    }

    fn open_files(&self, state: &ManifestState) -> Result<HashMap<u64, Arc<TableFile>>> {
        let mut files = HashMap::with_capacity(state.files.len());
        for (number, file) in &state.files {
            let meta = described(self.disk, *number, &file.meta)?;
            let len = match self.disk.len_of(&table_name(*number)) {
                Ok(len) => len,
                Err(error) if error.is_not_found() => 0,
                Err(error) => return Err(error.into()),
            };
            check_length(self.disk, &meta, len)?;
            files.insert(
                *number,
                Arc::new(TableFile::new(
                    meta, file.age, self.disk, self.lock, self.cache,
                )),
            );
        }
        Ok(files)
    }
}

/// A table as the manifest describes it.
pub(super) fn described(disk: &Disk, number: u64, meta: &FileMeta) -> Result<TableMeta> {
    table_meta(number, meta).ok_or_else(|| Error::Corruption {
        file: disk.path_of(CURRENT),
        offset: 0,
        what: format!("the manifest's description of table {number:016x} is not valid"),
    })
}

/// An error unless a table has its length.
pub(super) fn check_length(disk: &Disk, meta: &TableMeta, len: u64) -> Result<()> {
    match len == meta.file_bytes {
        true => Ok(()),
        false => Err(Error::Corruption {
            file: disk.path_of(&table_name(meta.file)),
            offset: len,
            what: format!("the file has {len} bytes instead of {}", meta.file_bytes),
        }),
    }
}

/// What a bucket holds whose MemTable is empty.
pub(super) fn bucket_state(
    (lower, upper): (&[u8], Option<&[u8]>),
    levels: Levels,
    (pool, keep): (&Arc<ChunkPool>, OrderPolicy),
    protected: &ProtectedSeqs,
) -> Result<BucketState> {
    let common = upper.map_or(0, |upper| common_prefix_len(lower, upper));
    let mut state = BucketState {
        active: Arc::new(MemTable::with_order(pool, 0, keep, common)),
        frozen: Vec::new(),
        levels: Arc::new(levels),
        deletes: RangeDeletes::default(),
    };
    state.deletes = state.index_deletes(protected)?;
    Ok(state)
}

/// The tables of a bucket as levels of runs, in the order in which they are read.
pub(super) fn levels_of(tables: &[TableSlice], files: &HashMap<u64, Arc<TableFile>>) -> Levels {
    let mut runs: BTreeMap<(u8, u64), Vec<Arc<TableFile>>> = BTreeMap::new();
    for table in tables {
        if let Some(file) = files.get(&table.file) {
            runs.entry((table.level, table.run))
                .or_default()
                .push(Arc::clone(file));
        }
    }
    let mut levels = Levels::default();
    for ((level, number), mut tables) in runs {
        tables.sort_by(|a, b| a.meta.smallest.cmp(&b.meta.smallest));
        levels.add(usize::from(level), Run::new(number, tables));
    }
    levels
}

/// Replays the log into the MemTables, by so many threads besides this one; returns where it ended
/// and the last sequence number.
fn replay_log(
    disk: &Disk,
    state: &ManifestState,
    keyspaces: &[Arc<WipKeyspace>],
    pool: &ChunkPool,
    threads: usize,
) -> Result<(ReplayEnd, Seq)> {
    let in_tables = |bucket: &Arc<Bucket>| {
        let known = state.buckets.get(&bucket.id);
        known.map_or((0, 0), |known| in_tables(state, known))
    };
    let target = |keyspace: &Arc<WipKeyspace>| {
        let router = keyspace.router.load_full();
        let in_tables = router.buckets().iter().map(in_tables).collect();
        Target::new(keyspace, router, in_tables)
    };
    let targets: Vec<Target> = keyspaces.iter().map(target).collect();
    let all = ProtectedSeqs::only(SEQ_MAX);
    let worker = || {
        let mut inserter = Inserter::new(&targets, pool, &all);
        move |chunk: &Chunk<'_>| inserter.apply(chunk)
    };
    let (tail, sealed, given_out) = (state.log_tail, &state.sealed, state.next_keyspace);
    let (end, replayed) = replay_chunks(disk, tail, sealed, given_out, threads, worker)?;
    let flushed = state.buckets.values().map(|bucket| bucket.flushed_seq);
    let last_seq = flushed.fold(state.last_seq.max(replayed), Seq::max);
    Ok((end, last_seq))
}

/// A keyspace that a log is replayed into.
pub(super) struct Target {
    pub(super) id: u32,
    pub(super) keyspace: Arc<WipKeyspace>,
    pub(super) router: Arc<Router>,
    /// What is in the tables of each bucket, by its position in the router: all up to the first
    /// number, and nothing above the second, which is larger only where pairs were ingested.
    in_tables: Vec<(Seq, Seq)>,
}

impl Target {
    /// `in_tables` are those of the router's buckets.
    pub(super) fn new(
        keyspace: &Arc<WipKeyspace>,
        router: Arc<Router>,
        in_tables: Vec<(Seq, Seq)>,
    ) -> Target {
        Target {
            id: keyspace.id,
            keyspace: Arc::clone(keyspace),
            router,
            in_tables,
        }
    }

    /// Whether a table has a write of a bucket, or a newer version of its key.
    pub(super) fn has(&self, position: usize, hash: u64, operation: &LogOp<'_>) -> Result<bool> {
        let (flushed, newest) = self.in_tables[position];
        if operation.seq <= flushed || operation.seq >= newest {
            return Ok(operation.seq <= flushed);
        }
        let state = self.router.buckets()[position].state.load();
        // One that has the write itself may have folded into it what is below.
        has_newer(&state.levels, operation.key, hash, operation.seq - 1)
    }

    /// The number up to which the tables of a bucket have all.
    pub(super) fn flushed(&self, position: usize) -> Seq {
        self.in_tables[position].0
    }

    /// Deletes the keys of a range in the buckets whose tables do not have that range delete.
    fn delete_range(&self, range: &LogOp<'_>, segment: u64, protected: &ProtectedSeqs) {
        let upper = (!range.value.is_empty()).then_some(range.value);
        let first = self.router.position(range.key);
        let touched = self.router.touching(range.key, upper);
        for (bucket, (flushed, _)) in touched.zip(&self.in_tables[first..]) {
            if range.seq > *flushed {
                bucket.delete_range((range.key, upper), range.seq, segment, &protected);
            }
        }
    }
}

/// What a thread applies parts of the log with.
pub(super) struct Inserter<'r> {
    targets: &'r [Target],
    pool: &'r ChunkPool,
    /// What readers need of range deletes.
    protected: &'r ProtectedSeqs,
    /// The tables that it has met, by the positions of their targets.
    met: Vec<BatchTargets>,
}

impl<'r> Inserter<'r> {
    pub(super) fn new(
        targets: &'r [Target],
        pool: &'r ChunkPool,
        protected: &'r ProtectedSeqs,
    ) -> Inserter<'r> {
        let mut met = Vec::new();
        met.resize_with(targets.len(), BatchTargets::default);
        Inserter {
            targets,
            pool,
            protected,
            met,
        }
    }

    pub(super) fn apply(&mut self, chunk: &Chunk<'_>) -> Result<()> {
        let segment = chunk.segment();
        let mut windows: Vec<GroupWindow<'_>> = Vec::new();
        windows.resize_with(self.targets.len(), GroupWindow::default);
        for operation in chunk.operations() {
            // What a keyspace held that was dropped went with it.
            let Ok(at) = position(self.targets, operation.keyspace, |target| target.id) else {
                continue;
            };
            let (target, window) = (&self.targets[at], &mut windows[at]);
            if operation.kind == Kind::DeleteRange {
                self.insert(at, window, segment);
                target.delete_range(&operation, segment, self.protected);
                continue;
            }
            if operation.kind == Kind::PutExpiring {
                target.keyspace.own.set_expires();
            }
            let position = target.router.position(operation.key);
            let hash = hash_key(operation.key);
            if !target.has(position, hash, &operation)? {
                self.met[at].add(&target.router, window, (position, hash), operation);
                if window.is_full() {
                    self.insert(at, window, segment);
                }
            }
        }
        for (at, window) in windows.iter_mut().enumerate() {
            self.insert(at, window, segment);
        }
        Ok(())
    }

    fn insert(&mut self, target: usize, window: &mut GroupWindow<'_>, segment: u64) {
        if !window.is_empty() {
            self.pool.stock(STOCK_CHUNKS);
            self.met[target].insert(window, segment);
        }
    }
}

/// What is in the tables of a bucket: all up to the first number, and nothing above the second.
pub(super) fn in_tables(state: &ManifestState, bucket: &manifest::BucketRecord) -> (Seq, Seq) {
    let files = bucket.tables.iter().map(|table| table.file);
    let metas = files.filter_map(|file| state.files.get(&file));
    let newest = metas.map(|file| file.meta.max_seq).max();
    (bucket.flushed_seq, newest.unwrap_or(0))
}

/// Removes tables that the manifest does not name: what a crash left of jobs that did not finish,
/// and of removals that did not happen.
fn remove_orphans(disk: &Disk, manifest: &Manifest) -> Result<()> {
    for name in disk.list()? {
        let table = parse_table_name(&name)
            .is_some_and(|number| !manifest.state().files.contains_key(&number));
        if table {
            tracing::info!(name, "removed a file that the manifest does not name");
            disk.remove(&name)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
