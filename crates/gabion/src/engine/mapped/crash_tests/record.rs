//! Running writers, and noting what has been promised by each operation of the disk.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use gabion_media::seeded::SeededRng;
use gabion_media::{Fault, SimDisk};
use parking_lot::Mutex;

use super::super::layout::POOL_NAME;
use super::super::recovery::set_checkpoint_disk;
use crate::{Db, Durability, Engine, Keyspace, MappedOptions, Options, Result, WriteBatch};

/// The keyspaces of a store.
pub(super) const KEYSPACES: [&str; 2] = ["default", "second"];

/// Keys of each thread in each keyspace.
const KEYS: u64 = 6;

/// Lengths of values: some lie in a page, some cross several.
const LENGTHS: [usize; 8] = [8, 60, 700, 3000, 5000, 9000, 20_000, 60_000];

/// What a store holds, by the number of a keyspace and a key: the seed of the value.
pub(super) type State = BTreeMap<(usize, [u8; 2]), u64>;

/// The file of a pool at a moment: its pages that are not zero, by their numbers.
pub(super) struct Snapshot {
    /// Operations of the disk by then.
    pub(super) op: u64,
    pub(super) len: u64,
    pub(super) pages: BTreeMap<u64, Vec<u8>>,
}

/// Bytes of a page.
pub(super) const PAGE: u64 = 4096;

impl Snapshot {
    fn new(pool: &Path, op: u64) -> Snapshot {
        let bytes = std::fs::read(pool).expect("a pool");
        let page = usize::try_from(PAGE).unwrap_or(1);
        let pages = (0..).zip(bytes.chunks(page));
        let pages = pages.filter(|(_, page)| page.iter().any(|byte| *byte != 0));
        Snapshot {
            op,
            len: bytes.len() as u64,
            pages: pages.map(|(at, page)| (at, page.to_vec())).collect(),
        }
    }
}

/// How a store is written to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) threads: usize,
    /// Writes of each thread.
    pub(super) writes: usize,
    /// Whether the pool's file is kept as it was at some moments. Nobody else writes then.
    pub(super) takes_snapshots: bool,
    /// Whether the pool is full, so that hardly anything but deletes goes.
    pub(super) is_full: bool,
}

/// Keys of each keyspace of a full pool.
const KEYS_OF_FULL: u8 = 60;

/// What is in a full pool at first.
fn full_state() -> State {
    let keys = (0..KEYSPACES.len()).flat_map(|keyspace| {
        let keys = (0..KEYS_OF_FULL).map(|key| [0, key]);
        keys.map(move |key| (keyspace, key))
    });
    // Values of the first length.
    (0..)
        .step_by(LENGTHS.len())
        .zip(keys)
        .map(|(seed, key)| (key, seed))
        .collect()
}

/// The keyspace of what fills a pool, which is not judged.
const BALLAST: &str = "ballast";

/// Fills a pool until not even a value of the last length finds space.
fn fill(db: &Db, lengths: &[usize]) -> Result<()> {
    let ballast = db.keyspace(BALLAST)?;
    for length in lengths {
        for number in 0.. {
            let key = format!("{length} {number}");
            if ballast.get(&key)?.is_some() {
                continue;
            }
            match ballast.put_with(key, vec![7; *length], Durability::Buffered) {
                Err(error) if error.is_no_space() => break,
                put => put?,
            }
        }
    }
    Ok(())
}

/// When a write was at work.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stamp {
    /// Moments of a clock that all threads share.
    pub(super) begin: u64,
    pub(super) end: u64,
    /// Operations of the disk before it began.
    pub(super) op: u64,
}

/// The writes of a thread.
#[derive(Debug, Default)]
pub(super) struct Track {
    pub(super) stamps: Vec<Stamp>,
    /// What the thread's keys hold after so many of its writes.
    pub(super) states: Vec<State>,
}

/// From an operation of the disk on, so many writes of each thread are durable.
#[derive(Debug)]
pub(super) struct Floor {
    pub(super) op: u64,
    pub(super) writes: Vec<usize>,
}

/// A store that was written to.
pub(super) struct Recording {
    pub(super) seed: u64,
    pub(super) options: Options,
    pub(super) sim: SimDisk,
    pub(super) dir: tempfile::TempDir,
    /// The operation from which on the keyspaces are there.
    pub(super) first_op: u64,
    pub(super) tracks: Vec<Track>,
    pub(super) floors: Vec<Floor>,
    pub(super) snapshots: Vec<Snapshot>,
    pub(super) is_full: bool,
}

/// The value of a seed.
pub(super) fn value_of(seed: u64) -> Vec<u8> {
    let len = LENGTHS[usize::try_from(seed % LENGTHS.len() as u64).unwrap_or(0)];
    let words = (0..).map(|at: u64| seed ^ at.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    words.flat_map(u64::to_le_bytes).take(len).collect()
}

/// An empty directory: in shared memory if there is any, where syncs cost nothing.
pub(super) fn directory() -> tempfile::TempDir {
    let in_memory = tempfile::tempdir_in("/dev/shm");
    in_memory.unwrap_or_else(|_| tempfile::tempdir().expect("a directory"))
}

pub(super) fn keyspaces(db: &Db) -> Vec<Keyspace> {
    let keyspaces = KEYSPACES.map(|name| db.keyspace(name).expect("space"));
    keyspaces.into_iter().collect()
}

impl Recording {
    pub(super) fn new(engine: Engine, seed: u64, shape: Shape, lie: Option<Fault>) -> Recording {
        let (sim, dir) = (SimDisk::recording(), directory());
        let options = Options::default()
            .engine(engine)
            .durability(Durability::Buffered)
            .mapped(
                MappedOptions::default()
                    .pool_bytes(64 << 20)
                    .checkpoints(true)
                    .expected_records(64),
            )
            .background_threads(usize::from(shape.threads > 1));
        set_checkpoint_disk(Some(&sim));
        let db = options.clone().open(dir.path()).expect("space");
        let opened = keyspaces(&db);
        if shape.is_full {
            for ((number, key), seed) in full_state() {
                opened[number].put(key, value_of(seed)).expect("space");
            }
            fill(&db, &[900_000, 50_000, 3000, 90, 8]).expect("a sound store");
        }
        db.persist(Durability::Sync).expect("space");
        let first_op = sim.ops();
        if let Some(lie) = lie {
            sim.inject(Fault {
                at: first_op + lie.at,
                ..lie
            });
        }
        let shared = Shared {
            db: &db,
            keyspaces: &opened,
            sim: &sim,
            clock: AtomicU64::new(0),
            done: (0..shape.threads).map(|_| AtomicUsize::new(0)).collect(),
            floors: Mutex::default(),
            snapshots: Mutex::default(),
            pool: shape.takes_snapshots.then(|| dir.path().join(POOL_NAME)),
            is_full: shape.is_full,
        };
        let tracks = std::thread::scope(|scope| {
            let (shared, writes) = (&shared, shape.writes);
            let run = |thread| move || Writer::new(shared, thread, seed).run(writes);
            let threads = (0..shape.threads).map(|thread| scope.spawn(run(thread)));
            let threads: Vec<_> = threads.collect();
            let tracks = threads.into_iter().map(|thread| thread.join());
            tracks.map(|track| track.expect("no panic")).collect()
        });
        let floors = shared.floors.into_inner();
        let snapshots = shared.snapshots.into_inner();
        drop(opened);
        drop(db);
        set_checkpoint_disk(None);
        Recording {
            seed,
            options,
            sim,
            dir,
            first_op,
            tracks,
            floors,
            snapshots,
            is_full: shape.is_full,
        }
    }
}

/// What writers share.
struct Shared<'s> {
    db: &'s Db,
    keyspaces: &'s [Keyspace],
    sim: &'s SimDisk,
    clock: AtomicU64,
    /// Writes of each thread that were acknowledged.
    done: Vec<AtomicUsize>,
    floors: Mutex<Vec<Floor>>,
    snapshots: Mutex<Vec<Snapshot>>,
    /// The file to keep, if it is.
    pool: Option<PathBuf>,
    is_full: bool,
}

struct Writer<'s> {
    shared: &'s Shared<'s>,
    thread: usize,
    random: SeededRng,
    track: Track,
}

impl<'s> Writer<'s> {
    fn new(shared: &'s Shared<'s>, thread: usize, seed: u64) -> Writer<'s> {
        let track = Track {
            stamps: Vec::new(),
            states: vec![match shared.is_full {
                true => full_state(),
                false => State::new(),
            }],
        };
        Writer {
            shared,
            thread,
            random: SeededRng::new(seed ^ (thread as u64) << 40),
            track,
        }
    }

    fn run(mut self, writes: usize) -> Track {
        for count in 1..=writes {
            // ORDER: SeqCst throughout: what was acknowledged before this write began is seen.
            let done = self.shared.done.iter();
            let mut before: Vec<usize> = done.map(|done| done.load(Ordering::SeqCst)).collect();
            let begin = self.shared.clock.fetch_add(1, Ordering::SeqCst);
            let op = self.shared.sim.ops();
            let is_synced = match self.shared.is_full {
                true => self.delete().expect("deletes need no space"),
                false => self.write().expect("space"),
            };
            self.shared.done[self.thread].store(count, Ordering::SeqCst);
            let end = self.shared.clock.fetch_add(1, Ordering::SeqCst);
            self.track.stamps.push(Stamp { begin, end, op });
            if is_synced {
                before[self.thread] = count;
                let floor = Floor {
                    op: self.shared.sim.ops(),
                    writes: before,
                };
                self.shared.floors.lock().push(floor);
            }
            if let Some(pool) = &self.shared.pool
                && (count == writes || self.random.one_in(8))
            {
                let snapshot = Snapshot::new(pool, self.shared.sim.ops());
                self.shared.snapshots.lock().push(snapshot);
            }
        }
        self.track
    }

    fn level(&mut self) -> Durability {
        match self.random.below(8) {
            0 => Durability::Sync,
            1 => Durability::Interval(Duration::from_secs(3600)),
            _ => Durability::Buffered,
        }
    }

    /// A key of this thread; one in four is never there.
    fn key(&mut self) -> (usize, [u8; 2]) {
        let number = self.random.below(KEYS + KEYS / 3);
        let key = [self.thread, usize::try_from(number).unwrap_or(0)];
        let key = key.map(|byte| u8::try_from(byte).unwrap_or(0));
        (self.random.index(KEYSPACES.len()), key)
    }

    fn is_ever_there(key: [u8; 2]) -> bool {
        u64::from(key[1]) < KEYS
    }

    /// A key of a full pool that may be there.
    fn key_of_full(&mut self) -> (usize, [u8; 2]) {
        let key = self.random.index(usize::from(KEYS_OF_FULL));
        let key = [0, u8::try_from(key).unwrap_or(0)];
        (self.random.index(KEYSPACES.len()), key)
    }

    /// A batch of deletes or a delete of a range in a full pool, and whether it was synced. What it
    /// frees is filled again.
    fn delete(&mut self) -> Result<bool> {
        let mut after = self.track.states.last().cloned().unwrap_or_default();
        let level = self.level();
        let is_ordered = self.shared.db.engine().capabilities().ordered;
        let mut batch = WriteBatch::new();
        for _ in 0..2 + self.random.below(5) {
            let (number, key) = self.key_of_full();
            let keyspace = &self.shared.keyspaces[number];
            if is_ordered && self.random.one_in(3) {
                let end = [0, key[1].saturating_add(5)];
                batch.delete_range(keyspace, key..end)?;
                after.retain(|(of, one), _| *of != number || !(key..end).contains(one));
            } else {
                batch.delete(keyspace, key)?;
                after.remove(&(number, key));
            }
        }
        self.shared.db.write_with(batch, level)?;
        self.track.states.push(after);
        fill(self.shared.db, &[90, 8])?;
        Ok(level == Durability::Sync)
    }

    /// One write, and whether it was synced.
    fn write(&mut self) -> Result<bool> {
        let mut after = self.track.states.last().cloned().unwrap_or_default();
        let level = self.level();
        let is_synced = match self.random.below(10) {
            0 => {
                self.shared.db.persist(Durability::Sync)?;
                true
            }
            1 | 2 => {
                let mut batch = WriteBatch::new();
                for _ in 0..self.random.below(5) {
                    let (number, key) = self.key();
                    let keyspace = &self.shared.keyspaces[number];
                    if Self::is_ever_there(key) && !self.random.one_in(3) {
                        let value = self.random.word();
                        batch.put(keyspace, key, value_of(value))?;
                        after.insert((number, key), value);
                    } else {
                        batch.delete(keyspace, key)?;
                        after.remove(&(number, key));
                    }
                }
                let is_empty = batch.is_empty();
                self.shared.db.write_with(batch, level)?;
                level == Durability::Sync && !is_empty
            }
            3 | 4 => {
                let (number, key) = self.key();
                self.shared.keyspaces[number].delete_with(key, level)?;
                after.remove(&(number, key));
                level == Durability::Sync
            }
            _ => {
                let (number, mut key) = self.key();
                key[1] %= u8::try_from(KEYS).unwrap_or(1);
                let value = self.random.word();
                self.shared.keyspaces[number].put_with(key, value_of(value), level)?;
                after.insert((number, key), value);
                level == Durability::Sync
            }
        };
        self.track.states.push(after);
        Ok(is_synced)
    }
}
