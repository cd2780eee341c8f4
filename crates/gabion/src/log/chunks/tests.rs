//! Replays by several threads: the same records, the same end and the same error as by one.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

use gabion_media::seeded::SeededRng;
use gabion_media::{Purpose, SimDisk, Tear};

use super::*;
use crate::Error;
use crate::log::{BatchEncoder, Log, LogOptions, SegmentPurpose, batch_head, replay};

const KEYSPACES: u32 = 3;

/// Numbers of threads that are tried.
const THREADS: [usize; 4] = [0, 1, 2, 5];

fn begin(disk: &Disk) -> Log {
    let end = replay(disk, 1, &BTreeMap::new(), |_, _| Ok(())).unwrap();
    let small = LogOptions {
        segment_bytes_max: 2048,
        flush_cost: 1,
        kept_bytes_max: u64::MAX,
    };
    Log::start(disk, &end, &small).unwrap()
}

/// Appends batches of the numbers from `first` up to at least `last`; returns the next number.
fn append(random: &mut SeededRng, log: &mut Log, first: Seq, last: Seq) -> Seq {
    let mut next = first;
    while next <= last {
        let mut batch = BatchEncoder::default();
        for _ in 0..=random.below(7) {
            let keyspace = u32::try_from(random.below(KEYSPACES.into())).unwrap();
            let kind = match random.below(150) {
                0 => Kind::DeleteRange,
                1..30 => Kind::Delete,
                _ => Kind::Put,
            };
            let value = if kind == Kind::Delete {
                0
            } else {
                random.index(90)
            };
            batch.op(kind, keyspace, b"some key", &vec![1; value]);
        }
        log.append(
            &[&batch_head(next, batch.count()), batch.bytes()],
            SegmentPurpose::Puts,
        )
        .unwrap();
        next += u64::from(batch.count());
    }
    next
}

/// Appends a record whose frame is valid and whose payload is not; returns its offset.
fn append_damaged(log: &mut Log) -> u64 {
    let payload = batch_head(1, 1);
    let end = log.append(&[&payload], SegmentPurpose::Puts).unwrap();
    end.offset() - payload.len() as u64 - 8
}

fn failed(seq: Seq) -> Error {
    Error::Limit {
        what: "the number of an operation",
        size: seq,
        limit: 0,
    }
}

/// Replays and calls `apply` with each operation and its segment, by whatever thread.
fn replay_by(
    disk: &Disk,
    threads: usize,
    apply: impl Fn(u64, LogOp<'_>) -> Result<()> + Sync,
) -> Result<(ReplayEnd, Seq)> {
    replay_chunks(disk, 1, &BTreeMap::new(), KEYSPACES, threads, || {
        |chunk: &Chunk<'_>| {
            let mut operations = chunk.operations();
            operations.try_for_each(|operation| apply(chunk.segment(), operation))
        }
    })
}

#[test]
fn all_operations_come_once_and_range_deletes_in_their_turn() {
    for seed in 0..20 {
        let disk = Disk::simulated(&SimDisk::new());
        let mut log = begin(&disk);
        let next = append(&mut SeededRng::new(seed), &mut log, 1, 600);
        assert!(log.current_segment() > 10);
        let mut expected = None;
        for threads in THREADS {
            let applied = Mutex::new(Vec::new());
            let (end, last_seq) = replay_by(&disk, threads, |segment, operation| {
                let LogOp {
                    seq, kind, value, ..
                } = operation;
                let mut applied = applied.lock();
                if kind == Kind::DeleteRange {
                    // All that are older, and none that is newer.
                    assert_eq!(applied.len() as u64, seq - 1, "{threads} threads");
                }
                applied.push((seq, segment, kind as u8, operation.keyspace, value.len()));
                Ok(())
            })
            .unwrap();
            let mut applied = applied.into_inner();
            applied.sort_unstable();
            assert!(applied.iter().map(|found| found.0).eq(1..next));
            assert_eq!(last_seq, next - 1);
            let found = (applied, end.segments.clone(), end.end, end.torn);
            assert_eq!(*expected.get_or_insert(found.clone()), found);
        }
    }
}

#[test]
fn the_first_error_in_the_log_is_told_whoever_meets_it() {
    for seed in 0..30 {
        let mut random = SeededRng::new(seed);
        let disk = Disk::simulated(&SimDisk::new());
        let mut log = begin(&disk);
        let next = append(&mut random, &mut log, 1, 600);
        let damaged_at = append_damaged(&mut log);
        let damaged_segment = log.current_segment();
        append(&mut random, &mut log, next, next + 200);
        // Workers fail at all of these; those in front of the damage are as many as the seed says.
        let bad: Vec<Seq> = (0..seed % 3).map(|_| 1 + random.below(next - 1)).collect();
        let bad_behind = next + 50;
        for threads in THREADS {
            let error = replay_by(&disk, threads, |_, LogOp { seq, .. }| {
                if bad.contains(&seq) || seq == bad_behind {
                    // Later ones that fail have time to fail before.
                    (0..50).for_each(|_| std::thread::yield_now());
                    return Err(failed(seq));
                }
                Ok(())
            })
            .unwrap_err();
            match (bad.iter().min(), error) {
                (Some(first), Error::Limit { size, .. }) => assert_eq!(size, *first),
                (None, Error::Corruption { file, offset, .. }) => {
                    assert_eq!(file, disk.path_of(&crate::names::log_name(damaged_segment)));
                    assert!((damaged_at..damaged_at + 30).contains(&offset), "{offset}");
                }
                (first, error) => panic!("{threads} threads, {first:?}: {error}"),
            }
        }
    }
}

#[test]
fn a_panic_of_any_thread_ends_the_replay() {
    let disk = Disk::simulated(&SimDisk::new());
    let mut log = begin(&disk);
    let next = append(&mut SeededRng::new(7), &mut log, 1, 600);
    for threads in THREADS {
        for at in [1, next / 2, next - 1] {
            let replay = || {
                replay_by(&disk, threads, |_, LogOp { seq, .. }| {
                    assert!(seq != at, "on purpose");
                    Ok(())
                })
            };
            assert!(catch_unwind(AssertUnwindSafe(replay)).is_err());
        }
    }
}

fn seals(end: &mut ReplayEnd, disk: &Disk) -> BTreeMap<u64, u64> {
    let seals = end.seal(disk).unwrap().iter();
    seals.map(|log| (log.segment, log.length)).collect()
}

/// Numbers of the operations, which must follow each other from 1 on.
fn count(disk: &Disk, sealed: &BTreeMap<u64, u64>) -> Seq {
    let count = AtomicU64::new(0);
    let apply = |chunk: &Chunk<'_>| {
        for operation in chunk.operations() {
            // ORDER: Relaxed (both); one thread.
            assert_eq!(operation.seq, count.load(Ordering::Relaxed) + 1);
            count.store(operation.seq, Ordering::Relaxed);
        }
        Ok(())
    };
    replay_chunks(disk, 1, sealed, KEYSPACES, 0, || apply).unwrap();
    count.into_inner()
}

#[test]
fn segments_are_written_anew_once_and_only_where_nothing_proves_them() {
    for (synced, threads) in [(false, 0), (false, 2), (true, 0), (true, 2)] {
        let sim = SimDisk::new();
        let disk = Disk::simulated(&sim);
        let mut log = begin(&disk);
        let mut random = SeededRng::new(3);
        let mut next = 1;
        while log.current_segment() < 12 {
            next = append(&mut random, &mut log, next, next);
            if synced {
                log.syncer().sync().unwrap();
            }
        }
        drop(log);
        let before = disk.counts().bytes_of(Purpose::Log);
        let (mut end, _) = replay_by(&disk, threads, |_, _| Ok(())).unwrap();
        let during = disk.counts().bytes_of(Purpose::Log) - before;
        let sealed = seals(&mut end, &disk);
        let all = disk.counts().bytes_of(Purpose::Log) - before;

        let lengths: Vec<u64> = end.segments.iter().map(|log| log.length).collect();
        let (last, others) = lengths.split_last().unwrap();
        let others: u64 = others.iter().sum();
        let unproven = if synced { 0 } else { others };
        assert_eq!(during, if threads == 0 { 0 } else { unproven });
        // The mark of the last sync is not written.
        assert_eq!(all, unproven + last);
        let cut = Disk::simulated(&sim.power_cut(sim.ops(), 1, Tear::DropAll));
        assert_eq!(count(&cut, &sealed), next - 1);
    }
}

/// The medium may stop at any moment of a replay by threads: the next one finds a prefix with all
/// that was durable, and after the end of the process all that there was.
#[test]
fn a_crash_while_segments_are_written_anew_leaves_a_prefix() {
    for seed in 0..8 {
        let mut random = SeededRng::new(seed);
        let sim = SimDisk::recording();
        let disk = Disk::simulated(&sim);
        let mut log = begin(&disk);
        let durable = append(&mut random, &mut log, 1, 10 + seed * 10);
        log.syncer().sync().unwrap();
        let next = append(&mut random, &mut log, durable, 200);
        assert!(log.current_segment() > 4);
        drop(log);

        let left = sim.process_kill(sim.ops());
        let disk = Disk::simulated(&left);
        let (mut end, _) = replay_by(&disk, 2, |_, _| Ok(())).unwrap();
        let sealed = seals(&mut end, &disk);
        for op in 0..=left.ops() {
            let none = BTreeMap::new();
            let killed = Disk::simulated(&left.process_kill(op));
            assert_eq!(count(&killed, &none), next - 1, "after {op}");
            for tear in [Tear::DropAll, Tear::KeepAll, Tear::Random512] {
                let cut = Disk::simulated(&left.power_cut(op, seed, tear));
                let found = count(&cut, &none);
                assert!((durable - 1..next).contains(&found), "{tear:?} after {op}");
            }
        }
        let cut = left.power_cut(left.ops(), seed, Tear::DropAll);
        assert_eq!(count(&Disk::simulated(&cut), &sealed), next - 1);
    }
}

/// No space for a copy, or a failed sync of one: the log is not sealed, and what it holds stays.
#[test]
fn a_segment_that_cannot_be_written_anew_costs_nothing() {
    use gabion_media::{Fault, FaultKind};
    let faults = [FaultKind::NoSpace, FaultKind::SyncFails { keep: false }];
    for (threads, kind) in [
        (0, faults[0]),
        (0, faults[1]),
        (2, faults[0]),
        (2, faults[1]),
    ] {
        for at in 1..15 {
            let sim = SimDisk::new();
            let disk = Disk::simulated(&sim);
            let next = append(&mut SeededRng::new(at), &mut begin(&disk), 1, 200);
            let left = sim.process_kill(sim.ops());
            let disk = Disk::simulated(&left);
            // A copy that finds no space is tried again by the seal.
            let at = left.ops() + at;
            left.inject(match kind {
                FaultKind::NoSpace => Fault::forever(at, kind),
                _ => Fault::once(at, kind),
            });
            let replayed = replay_by(&disk, threads, |_, _| Ok(()));
            let sealed = replayed.and_then(|(mut end, _)| end.seal(&disk).map(<[_]>::len));
            let error = sealed.unwrap_err();
            assert_eq!(error.is_no_space(), kind == FaultKind::NoSpace, "{error}");
            left.clear_faults();
            // Another opening; a disk whose directory could not be synced syncs it no more.
            let disk = Disk::simulated(&left);
            let (mut end, _) = replay_by(&disk, threads, |_, _| Ok(())).unwrap();
            let sealed = seals(&mut end, &disk);
            let cut = left.power_cut(left.ops(), 1, Tear::DropAll);
            assert_eq!(count(&Disk::simulated(&cut), &sealed), next - 1);
        }
    }
}
