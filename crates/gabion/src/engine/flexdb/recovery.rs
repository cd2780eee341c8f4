//! Opening and closing a store.
//!
//! # Open
//! 1. Lock the directory. Read the root, or make a store.
//! 2. Open the spaces; each recovers itself. Rebuild their indexes.
//! 3. Replay the log from the root's tail into a generation, but for what it has of keyspaces that
//!    were dropped (`drop`).
//! 4. Seal: make the replayed segments durable, record their lengths in the root.
//!    DURABLE: what was replayed cannot be lost again, and what was cut off cannot come back.
//! 5. Remove void segments, and spaces that the root does not name, which a crash left of those
//!    that were dropped or being made: not before 4, as what was read of a root that was not synced
//!    may be another one after a loss of power. Start the log in a new segment, and the threads.
//!
//! Where there is no space for steps 4 and 5, the store is open all the same, and
//! [unsettled](crate::engine::ssd): they are done before its first change. A space that finds
//! none to save its tree does so by itself.
//!
//! A crash at any step leaves a store that opens the same way.
//!
//! # Close
//! Stop the threads and keep writers out. Merge everything, and save the trees of the spaces, so
//! that the next opening repeats nothing. Sync and cut the log; then the root says that none of it
//! is needed, and it is removed. Where there is no space for a merge, what is in MemTables stays in
//! the log. A store that finds no space to settle even now stays as its files are.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use arc_swap::ArcSwap;
use gabion_media::Disk;
use parking_lot::Mutex;

use super::cache::IntervalCache;
use super::commit::remove_log;
use super::expiry_sweep::ExpiryCounts;
use super::generation::{Generation, GenerationList};
use super::layout::{self, Root, RootKeyspace, parse_space_name, space_prefix};
use super::partition::Partition;
use super::throttle::stop_bytes;
use super::writepath::FlexWriteHalf;
use super::{Flex, FlexKeyspace};
use crate::engine::keyspaces::{DropSeq, position};
use crate::engine::live_options::LiveKeyspaceOptions;
use crate::engine::memtable::{ChunkPool, OrderPolicy};
use crate::engine::root_file::{no_store, store_exists};
use crate::engine::snapshots::ProtectedSeqs;
use crate::engine::ssd::{ConsumerTable, Lifecycle, OpenedLog, Shell, StoreLock};
use crate::log::{Chunk, Log, LogOptions, PendingLog, ReplayEnd, replay_chunks, replay_threads};
use crate::memory::Memory;
use crate::names::parse_log_name;
use crate::threads::side_by_side;
use crate::types::{SEQ_MAX, Seq};
use crate::{Engine, Options, Result};

/// Threads that open spaces.
const OPENERS_MAX: usize = 8;

/// Largest size of a log segment.
const SEGMENT_BYTES_MAX: u64 = 64 << 20;

/// Bytes of a ceiling that the cache leaves for what nobody counts: as measured, some 16 MiB and a
/// sixteenth of the ceiling. A tiny store has less of either.
fn uncounted(bytes_max: u64) -> u64 {
    (bytes_max / 3).min((16 << 20) + bytes_max / 16)
}

impl Flex {
    /// Opens the store on `disk`, recovering it if need be, and starts its threads.
    pub(crate) fn open(disk: Disk, options: Options) -> Result<Arc<Flex>> {
        // Nothing is left behind where no store is to be made, not even the lock file.
        if !layout::exists(&disk)? && !options.create_if_missing {
            return Err(no_store(&disk));
        }
        let lock = Arc::new(StoreLock::take(&disk)?);
        let options = options.settled(Engine::Flex);
        let sizes = options.memory_sizes();
        let mut root = read_or_create(&disk, &options)?;
        let budget = stop_bytes(sizes.memtables);
        let pool = ChunkPool::new(usize::try_from(budget).unwrap_or(usize::MAX));
        let memory = Memory::leaving(uncounted(sizes.bytes_max), sizes.bytes_max, budget, &pool);
        let cache = Arc::new(IntervalCache::new(sizes.cache, &memory));
        let keyspaces = open_keyspaces(&disk, &root, &cache, &options)?;
        let replayed = Generation::new(1, root.log_tail, &memory, OrderPolicy::of(&options));
        let threads = replay_threads(&disk, options.background_threads)?;
        let (mut end, last_seq) = replay_log(&disk, &root, &replayed, threads)?;
        let consumers = ConsumerTable::open(&disk)?;
        end.keep_for(&disk, &consumers.positions())?;

        let log_options = LogOptions {
            segment_bytes_max: SEGMENT_BYTES_MAX.min((options.log_bytes_max / 16).max(1)),
            // What a merge replaces goes with its commit; and a space has its own log and reserve.
            flush_cost: 2,
            kept_bytes_max: options.changes_bytes_max,
        };
        let mut pending = PendingLog::new(&disk, end, &log_options, &options.tuning.clock);
        let settled = settle(&disk, &mut root, &mut pending, last_seq, &keyspaces);
        let (opened_log, log) = OpenedLog::new(&disk, consumers, pending, settled, true)?;
        let moment = root.moment;
        let engine = Arc::new(Flex {
            shell: Shell::new(
                (disk, lock),
                options,
                memory,
                keyspaces,
                opened_log,
                last_seq,
            ),
            cache,
            writer: Mutex::new(FlexWriteHalf {
                log,
                next_seq: last_seq + 1,
            }),
            view: ArcSwap::from_pointee(GenerationList {
                waiting: vec![Arc::new(replayed)],
                past: Vec::new(),
            }),
            view_lock: Mutex::new(()),
            merging: AtomicU64::new(0),
            merged: AtomicU64::new(0),
            merge_lock: Mutex::new(()),
            trees_left: AtomicU64::new(0),
            root: Mutex::new(root),
            past_waits: Mutex::default(),
            idleness: Mutex::default(),
        });
        engine.moments.raise(moment);
        engine.fit_memory();
        engine.start()?;
        Ok(engine)
    }

    /// Closes the spaces, and gives the directory back.
    pub(super) fn close_spaces(&self) {
        // Whoever changes a file holds one of these, and looks then whether the store is open.
        let _no_merge = self.merge_lock.lock();
        let _no_writer = self.writer.lock();
        let _no_root = self.root.lock();
        let keyspaces = self.keyspaces.load();
        for keyspace in keyspaces.iter().chain(keyspaces.leaving()) {
            keyspace.partition.close();
        }
        self.lock.release();
    }

    /// Whether the directory is this store's still: not any more once the store is closed. It is
    /// given back with the merge lock held, so who holds that one may look and then change files.
    pub(super) fn has_directory(&self) -> bool {
        self.lock.hold().is_some()
    }

    /// Ends the opening, which found no space for that.
    pub(super) fn end_opening(&self, pending: &mut PendingLog) -> Result<()> {
        let mut writer = self.writer.lock();
        let keyspaces: Vec<_> = self.keyspaces.load().iter().cloned().collect();
        let (mut root, last_seq) = (self.root.lock(), self.visible());
        let settled = settle(&self.disk, &mut root, pending, last_seq, &keyspaces);
        let log = settled.map_err(|error| match error.is_shortage() {
            true => error,
            false => self.fail(error),
        })?;
        writer.log = Some(log);
        Ok(())
    }

    /// Merges what there is space for, ends the log, and says in the root what of it is needed.
    pub(super) fn close_log(&self) -> Result<()> {
        let merged = self.merge_at_end();
        let is_merged = *merged.as_ref().unwrap_or(&false);
        let _no_merge = self.merge_lock.lock();
        let mut writer = self.writer.lock();
        let Some(log) = writer.log.take() else {
            return Ok(());
        };
        self.health.check()?;
        let sealed = log.close()?;
        let mut root = self.root.lock();
        let mut next = root.clone();
        next.last_seq = next.last_seq.max(writer.next_seq - 1);
        next.sealed.insert(sealed.segment, sealed.length);
        if is_merged {
            next.log_tail = sealed.segment + 1;
            self.note_reached(&mut next);
        }
        // DURABLE: all of the log, and of what was merged.
        self.write_root(&mut root, next)?;
        // What is kept of the log ends with its last record.
        remove_log(&self.syncer, root.log_tail);
        let kept_from = self.syncer.kept_from().unwrap_or(root.log_tail);
        let outdated = root.log_tail.min(kept_from);
        if is_merged && let Err(error) = remove_log_before(&self.disk, outdated) {
            tracing::warn!(%error, "a log segment could not be removed and stays until the store \
                                    is opened again");
        }
        merged.map(|_| ())
    }

    /// Merges all that was written, if there is space for it, and saves the trees of the spaces;
    /// says whether nothing is left that only the log has. No write has begun since the store was
    /// closed.
    fn merge_at_end(&self) -> Result<bool> {
        if self.health.failure().is_some() {
            return Ok(false);
        }
        self.freeze(&self.writer.lock());
        let merged = self.merge_all().and_then(|()| {
            let _lock = self.merge_lock.lock();
            let keyspaces = self.keyspaces.load();
            keyspaces
                .iter()
                .try_for_each(|keyspace| keyspace.partition.checkpoint())
        });
        match merged {
            Ok(()) => Ok(true),
            Err(error) if error.is_shortage() => {
                tracing::warn!(%error, "writes that were not merged stay in the log");
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    fn merge_all(&self) -> Result<()> {
        while self.merge_oldest()? {}
        Ok(())
    }
}

/// The first segment of the log that a store needs which nobody has open, and the lengths of
/// segments that its root knows.
pub(crate) fn log_place(disk: &Disk) -> Result<(u64, BTreeMap<u64, u64>)> {
    let root = Root::read(disk)?;
    Ok((root.log_tail, root.sealed))
}

/// Removes the segments of the log before one of them.
fn remove_log_before(disk: &Disk, segment: u64) -> Result<()> {
    for name in disk.list()? {
        if parse_log_name(&name).is_some_and(|number| number < segment) {
            disk.remove(&name)?;
        }
    }
    Ok(())
}

fn read_or_create(disk: &Disk, options: &Options) -> Result<Root> {
    if layout::exists(disk)? {
        if options.error_if_exists {
            return Err(store_exists(disk));
        }
        return Root::read(disk);
    }
    let root = Root {
        log_tail: 1,
        ..Root::default()
    };
    root.write(disk)?;
    Ok(root)
}

fn open_keyspaces(
    disk: &Disk,
    root: &Root,
    cache: &Arc<IntervalCache>,
    options: &Options,
) -> Result<Vec<Arc<FlexKeyspace>>> {
    let all: Vec<_> = root.keyspaces.iter().collect();
    let spaces = all.len();
    let open = |known: &&RootKeyspace| {
        let disk = disk.part(&space_prefix(known.id));
        Ok(Arc::new(FlexKeyspace {
            id: known.id,
            name: known.name.clone(),
            partition: Partition::open(disk, cache, options, spaces, known.reached)?,
            expiring: Mutex::new(ExpiryCounts::of_opened(known.expires)),
            dropped: DropSeq::default(),
            own: LiveKeyspaceOptions::new(known.options.clone(), known.expires),
        }))
    };
    if options.background_threads == 0 || spaces < 2 {
        return all.iter().map(open).collect();
    }
    // Each one waits for some syncs, and the medium takes several at a time.
    let parts = all.chunks(spaces.div_ceil(OPENERS_MAX));
    let open_part = |part: &[&RootKeyspace]| part.iter().map(open).collect::<Result<Vec<_>>>();
    let opened: Result<Vec<_>> = side_by_side(parts, open_part).into_iter().collect();
    Ok(opened?.concat())
}

/// Steps 4 and 5 of an opening, as far as they are left.
fn settle(
    disk: &Disk,
    root: &mut Root,
    pending: &mut PendingLog,
    last_seq: Seq,
    keyspaces: &[Arc<FlexKeyspace>],
) -> Result<Log> {
    pending.settle(disk, |seals| {
        let mut next = root.clone();
        for log in seals {
            next.sealed.insert(log.segment, log.length);
        }
        next.last_seq = next.last_seq.max(last_seq);
        next.write(disk)?;
        *root = next;
        remove_orphans(disk, keyspaces)
    })
}

/// Removes the files of spaces that the root does not name, and those that its spaces do not need.
fn remove_orphans(disk: &Disk, keyspaces: &[Arc<FlexKeyspace>]) -> Result<()> {
    let is_needed = |id, name: &str| match position(keyspaces, id, |keyspace| keyspace.id) {
        Ok(at) => {
            let names = keyspaces[at].partition.space().file_names();
            names.iter().any(|own| own == name)
        }
        Err(_) => false,
    };
    for name in disk.list()? {
        if parse_space_name(&name).is_some_and(|(id, own)| !is_needed(id, own)) {
            tracing::info!(name, "removed a file that no space needs");
            disk.remove(&name)?;
        }
    }
    Ok(())
}

/// Replays the log into a generation, by another thread if there may be one; returns where it ended
/// and the last sequence number.
fn replay_log(
    disk: &Disk,
    root: &Root,
    generation: &Generation,
    threads: usize,
) -> Result<(ReplayEnd, Seq)> {
    let (tail, given_out) = (root.log_tail, root.next_keyspace);
    // One thread at a time inserts into a generation.
    let threads = threads.min(1);
    let worker = || {
        |chunk: &Chunk<'_>| {
            apply(chunk, root, generation);
            Ok(())
        }
    };
    let (end, last_seq) = replay_chunks(disk, tail, &root.sealed, given_out, threads, worker)?;
    Ok((end, last_seq.max(root.last_seq)))
}

/// Applies a part of the log.
fn apply(chunk: &Chunk<'_>, root: &Root, generation: &Generation) {
    let operations = chunk.operations();
    let known = operations.filter(|operation| root.has(operation.keyspace));
    generation.insert_all(known, || ProtectedSeqs::only(SEQ_MAX));
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use gabion_media::SimDisk;

    use super::*;
    use crate::Error;

    /// A space had a lock of its own, and opened each file for reading besides: six descriptors.
    #[test]
    fn a_keyspace_has_three_files_and_as_many_descriptors() {
        let sim = SimDisk::new();
        for threads in [0, 2] {
            let options = Options::default().background_threads(threads);
            let open = || Flex::open(Disk::simulated(&sim), options.clone()).unwrap();
            let in_spaces = || {
                let names = sim.names();
                let own = names.iter().filter(|name| parse_space_name(name).is_some());
                own.count() as u64
            };
            let engine = open();
            for number in 1..=5 {
                engine.create_keyspace(&number.to_string()).unwrap();
                if threads == 0 {
                    // The log has one.
                    assert_eq!(
                        (in_spaces(), sim.open_files()),
                        (3 * number, 3 * number + 1)
                    );
                }
            }
            engine.close().unwrap();
            drop(engine);
            // Each had a log of 16 MiB from the first checkpoint on.
            for name in sim.names() {
                let len = sim.raw(&name).map_or(0, |file| file.len());
                assert!(len <= 80 << 10, "{name}: {len} bytes");
            }
            // What crashes leave, and what is no part of a space in a store.
            for left in [
                "00000000-LOCK",
                "00000003-00000000000000ff.log",
                "00000009-DATA",
            ] {
                sim.set_raw(left, b"something".to_vec());
            }
            let engine = open();
            assert_eq!(in_spaces(), 15, "{:?}", sim.names());
            let found = engine.keyspaces.names();
            assert_eq!(found, ["1", "2", "3", "4", "5"]);
            engine.close().unwrap();
        }
    }

    /// The last reader of a dropped keyspace removed its files, though the store was closed and its
    /// directory perhaps another store's, which has files of these names; and a compaction that had
    /// waited for a lock went on behind a close.
    #[test]
    fn nothing_changes_a_file_of_a_store_that_is_closed() {
        let sim = SimDisk::new();
        let options = Options::default().background_threads(0);
        let engine = Flex::open(Disk::simulated(&sim), options).unwrap();
        let keyspace = engine.create_keyspace("stays").unwrap();
        engine.create_keyspace("goes").unwrap();
        let snapshot = engine.begin_snapshot();
        assert!(engine.drop_keyspace("goes").unwrap());
        engine.close().unwrap();
        let (names, ops) = (sim.names(), sim.ops());
        assert!(names.iter().any(|name| name.starts_with("00000001-")));

        let merges = engine.lock_merges_of(&keyspace).map(drop);
        assert!(matches!(merges, Err(Error::Closed)), "{merges:?}");
        assert!(!engine.merge_oldest().unwrap() && !engine.tidy().unwrap());
        engine.end_snapshot(snapshot);
        assert_eq!((sim.names(), sim.ops()), (names, ops));
        let engine = Flex::open(Disk::simulated(&sim), Options::default()).unwrap();
        assert!(!sim.names().iter().any(|name| name.starts_with("00000001-")));
        engine.close().unwrap();
    }

    /// It had looked whether the store was open before it waited for the root.
    #[test]
    fn a_keyspace_is_not_made_behind_a_close() {
        let options = Options::default().background_threads(0);
        let engine = Flex::open(Disk::simulated(&SimDisk::new()), options).unwrap();
        let root = engine.root.lock();
        let is_begun = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let late = scope.spawn(|| {
                // ORDER: Relaxed: it only says that the thread runs.
                is_begun.store(true, Ordering::Relaxed);
                engine.create_keyspace("late").map(drop)
            });
            while !is_begun.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            // By now it waits for the lock; if not, it finds the store closed at once.
            (0..1000).for_each(|_| std::thread::yield_now());
            assert!(engine.health.close());
            drop(root);
            assert!(matches!(late.join().unwrap(), Err(Error::Closed)));
        });
    }
}
