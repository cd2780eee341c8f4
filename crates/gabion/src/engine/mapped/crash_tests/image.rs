//! Opening what a loss of power leaves, and judging what is in it.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;

use gabion_media::seeded::SeededRng;
use gabion_media::{SimDisk, Tear};

use super::super::layout::POOL_NAME;
use super::super::recovery::set_checkpoint_disk;
use super::record::{KEYSPACES, PAGE, Recording, State, directory, keyspaces, value_of};
use crate::{Db, Durability, WriteBatch};

/// Power cuts after each operation of the disk.
const CUTS_PER_OPERATION: usize = 2;

/// Of a full pool, which takes longer to open, one operation of so many is cut after, and once.
const FULL_STEP: usize = 4;

/// What was explored.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) images: u64,
    /// Images that held fewer writes than had been begun.
    pub(super) lost_writes: u64,
    /// Images that were written to, and opened again after another loss of power.
    pub(super) written_to: u64,
    /// Images that were told to be damaged.
    pub(super) told: u64,
    /// Images that opened without what was durable.
    pub(super) silent: u64,
}

/// What must hold of an image: how many writes of each thread it has.
#[derive(Debug)]
struct Promise {
    least: Vec<usize>,
    most: Vec<usize>,
}

impl Recording {
    /// What a power cut right after an operation must leave.
    fn promise(&self, op: u64) -> Promise {
        let mut least = vec![0; self.tracks.len()];
        for floor in self.floors.iter().filter(|floor| floor.op <= op) {
            for (least, writes) in least.iter_mut().zip(&floor.writes) {
                *least = (*least).max(*writes);
            }
        }
        let begun = |track: &super::record::Track| {
            let begun = track.stamps.iter().filter(|stamp| stamp.op <= op);
            begun.count()
        };
        let most = self.tracks.iter().map(begun).collect();
        Promise { least, most }
    }

    /// Judges what an image holds, and returns how many writes that are, at most.
    fn judge(&self, promise: &Promise, found: &State) -> Result<usize, String> {
        let mut fits = Vec::new();
        for (thread, track) in self.tracks.iter().enumerate() {
            let own: State = found
                .iter()
                .filter(|((_, key), _)| usize::from(key[0]) == thread)
                .map(|(key, value)| (*key, *value))
                .collect();
            let range = promise.least[thread]..=promise.most[thread];
            let fitting: Vec<usize> = range.filter(|n| track.states[*n] == own).collect();
            let (Some(least), Some(most)) = (fitting.first(), fitting.last()) else {
                let (least, most) = (promise.least[thread], promise.most[thread]);
                let other = track.states.iter().rposition(|state| *state == own);
                return Err(format!(
                    "thread {thread} has the result of {other:?} writes, not of {least} to {most}"
                ));
            };
            fits.push((*least, *most));
        }
        for (thread, (least, _)) in fits.iter().enumerate() {
            let Some(last) = least.checked_sub(1) else {
                continue;
            };
            let last = self.tracks[thread].stamps[last];
            for (other, (track, (_, most))) in self.tracks.iter().zip(&fits).enumerate() {
                let before = track.stamps.iter().filter(|stamp| stamp.end < last.begin);
                let before = before.count();
                if before > *most {
                    return Err(format!(
                        "{least} writes of thread {thread} are there, and {most} of thread \
                         {other}, of which {before} came before"
                    ));
                }
            }
        }
        Ok(fits.iter().map(|(_, most)| most).sum())
    }
}

/// Everything in a store.
fn content(db: &Db) -> Result<State, String> {
    let mut state = State::new();
    for (number, name) in KEYSPACES.iter().enumerate() {
        let keyspace = db
            .existing_keyspace(name)
            .map_err(|error| error.to_string())?;
        for pair in keyspace.pairs() {
            let (key, value) = pair.map_err(|error| error.to_string())?;
            let word = value.first_chunk().copied().unwrap_or_default();
            let seed = u64::from_le_bytes(word);
            if value[..] != value_of(seed) {
                return Err(format!("a value of {key:?} that nobody wrote"));
            }
            let key = key[..].try_into().map_err(|_| format!("a key {key:?}"))?;
            state.insert((number, key), seed);
        }
    }
    Ok(state)
}

/// Opens a store in a directory whose checkpoint lies on a disk.
fn open(recording: &Recording, dir: &Path, sim: &SimDisk) -> Result<Db, String> {
    set_checkpoint_disk(Some(sim));
    let opened = recording.options.clone().open(dir);
    set_checkpoint_disk(None);
    opened.map_err(|error| format!("it does not open: {error}"))
}

/// A directory that has lost the file of the pool.
fn without_pool(recording: &Recording) -> tempfile::TempDir {
    let dir = directory();
    for name in ["SCMKV", "SPTREE"] {
        let from = recording.dir.path().join(name);
        if from.exists() {
            std::fs::copy(from, dir.path().join(name)).expect("a copy");
        }
    }
    dir
}

/// Where the file of a pool is found after a drive has lost pages of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// Somewhere else, as on a snapshot that is mounted.
    Elsewhere,
    /// In its place, as after a file system was taken away and mounted again.
    InPlace,
}

/// The drive loses pages, and the system runs on: each page of the pool's file is as it was at some
/// moment. The header is the newest one: it says that the pool is open, since this boot.
pub(super) fn explore_drive(
    recording: &Recording,
    found: Found,
    images: u64,
    counts: &mut Counts,
) -> Result<(), String> {
    let mut random = SeededRng::new(recording.seed);
    for image in 0..images {
        let newest = random.index(recording.snapshots.len());
        let snapshots = &recording.snapshots[..=newest];
        let op = snapshots[newest].op;
        let sim = recording.sim.power_cut(op, random.word(), Tear::DropAll);
        let elsewhere = without_pool(recording);
        let dir = match found {
            Found::Elsewhere => elsewhere.path(),
            Found::InPlace => recording.dir.path(),
        };
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false);
        let pool = options.open(dir.join(POOL_NAME)).expect("a file");
        pool.set_len(0)
            .and_then(|()| pool.set_len(snapshots[newest].len))
            .expect("space");
        let lost = 1 + random.below(4);
        for page in snapshots[newest].pages.keys() {
            let moment = match *page > 0 && random.below(4) < lost {
                true => random.index(newest + 1),
                false => newest,
            };
            if let Some(bytes) = snapshots[moment].pages.get(page) {
                pool.write_all_at(bytes, page * PAGE).expect("space");
            }
        }
        drop(pool);
        let promise = recording.promise(op);
        let judged = open(recording, dir, &sim)
            .and_then(|db| content(&db))
            .map(|state| {
                let judged = recording.judge(&promise, &state);
                judged.map_err(|told| format!("image {image} at operation {op}: {told}"))
            });
        counts.images += 1;
        match judged {
            Ok(Ok(_)) => {}
            Ok(Err(told)) if found == Found::Elsewhere => return Err(told),
            Ok(Err(_)) => counts.silent += 1,
            Err(told) if found == Found::Elsewhere => return Err(told),
            Err(_) => counts.told += 1,
        }
    }
    Ok(())
}

/// Cuts the power after each operation of a recording.
pub(super) fn explore(recording: &Recording, counts: &mut Counts) -> Result<(), String> {
    let mut random = SeededRng::new(recording.seed);
    let (step, cuts) = match recording.is_full {
        true => (FULL_STEP, 1),
        false => (1, CUTS_PER_OPERATION),
    };
    for op in (recording.first_op..=recording.sim.ops()).step_by(step) {
        for _ in 0..cuts {
            let style = Tear::ALL[random.index(Tear::ALL.len())];
            let cut = random.word();
            let sim = recording.sim.power_cut(op, cut, style);
            let judged = check(recording, op, &sim, &mut random, counts);
            judged.map_err(|told| {
                let what = recording.sim.describe(op).unwrap_or_default();
                format!("{style:?} {cut:#x} after operation {op} ({what}): {told}")
            })?;
        }
    }
    Ok(())
}

fn check(
    recording: &Recording,
    op: u64,
    sim: &SimDisk,
    random: &mut SeededRng,
    counts: &mut Counts,
) -> Result<(), String> {
    let promise = recording.promise(op);
    let dir = without_pool(recording);
    let db = open(recording, dir.path(), sim)?;
    let found = content(&db)?;
    let writes = recording.judge(&promise, &found)?;
    counts.images += 1;
    counts.lost_writes += u64::from(writes < promise.most.iter().sum());
    if random.one_in(if recording.is_full { 3 } else { 8 }) {
        counts.written_to += 1;
        write_on(recording, &db, found, sim, random)?;
    }
    Ok(())
}

/// What recovery has found and what is written after it survives the next loss of power.
fn write_on(
    recording: &Recording,
    db: &Db,
    mut found: State,
    sim: &SimDisk,
    random: &mut SeededRng,
) -> Result<(), String> {
    let opened = keyspaces(db);
    for level in [Durability::Buffered, Durability::Sync] {
        if recording.is_full {
            let mut batch = WriteBatch::new();
            for (number, key) in found.keys().step_by(7).copied().collect::<Vec<_>>() {
                let delete = batch.delete(&opened[number], key);
                delete.map_err(|error| error.to_string())?;
                found.remove(&(number, key));
            }
            let deleted = db.write_with(batch, level);
            deleted.map_err(|error| error.to_string())?;
            continue;
        }
        let (key, seed) = ([200, 1], random.word());
        let put = opened[1].put_with(key, value_of(seed), level);
        put.map_err(|error| error.to_string())?;
        found.insert((1, key), seed);
    }
    let again = sim.power_cut(sim.ops(), random.word(), Tear::Random512);
    let dir = without_pool(recording);
    let db = open(recording, dir.path(), &again)?;
    match content(&db)? == found {
        true => Ok(()),
        false => Err("after another loss of power it holds something else".to_owned()),
    }
}
