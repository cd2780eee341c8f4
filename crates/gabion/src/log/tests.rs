//! The log as a whole: what was appended comes back, and damage is told from torn writes.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use gabion_media::crc32c;
use gabion_media::{Disk, Fault, FaultKind, SimDisk, Tear};

use super::frame::MARK_BYTES;
use super::layout::HEADER_BYTES;
use super::layout::Lsn;
use super::recovery::replay;
use super::{Log, LogOptions, ReplayEnd, SegmentPurpose};
use crate::names::{log_name, parse_log_name};
use crate::{Error, Result};

const SMALL: LogOptions = LogOptions {
    segment_bytes_max: 1024,
    flush_cost: 1,
    kept_bytes_max: u64::MAX,
};

/// The record with this number: its number, then bytes that follow from it.
fn record(number: u32) -> Vec<u8> {
    let len = number.wrapping_mul(2_654_435_761) >> 25;
    let filler = (0..len).map(|i| number.wrapping_mul(31).wrapping_add(i).to_le_bytes()[0]);
    number.to_le_bytes().into_iter().chain(filler).collect()
}

/// Replays and checks that records 0, 1, 2, .. come in order and unharmed. Returns their number.
fn replay_records(disk: &Disk, from: u64, sealed: &BTreeMap<u64, u64>) -> Result<(u32, ReplayEnd)> {
    let mut count = 0;
    let mut last = Lsn::default();
    let end = replay(disk, from, sealed, |lsn, payload| {
        assert_eq!(payload, record(count), "record {count} at {lsn:?}");
        assert!(last < lsn);
        (count, last) = (count + 1, lsn);
        Ok(())
    })?;
    assert!(last <= end.end);
    Ok((count, end))
}

fn fresh(disk: &Disk, options: &LogOptions) -> Log {
    let (count, end) = replay_records(disk, 1, &BTreeMap::new()).unwrap();
    assert_eq!((count, end.next_segment()), (0, 1));
    Log::start(disk, &end, options).unwrap()
}

fn append(log: &mut Log, numbers: std::ops::Range<u32>) -> Lsn {
    let mut end = Lsn::default();
    for number in numbers {
        let payload = record(number);
        let (front, back) = payload.split_at(payload.len() / 2);
        end = log.append(&[front, back], SegmentPurpose::Puts).unwrap();
    }
    end
}

#[test]
fn records_come_back_in_order_across_segments() {
    let sim = SimDisk::new();
    let disk = Disk::simulated(&sim);
    let mut log = fresh(&disk, &SMALL);
    let end = append(&mut log, 0..200);
    assert!(log.current_segment() > 10);
    assert_eq!(log.syncer().appended_lsn(), end);
    let (count, found) = replay_records(&disk, 1, &BTreeMap::new()).unwrap();
    assert_eq!((count, found.end, found.torn), (200, end, None));
    assert_eq!(found.segments.len() as u64, log.current_segment());
    let live: u64 = found.segments.iter().map(|log| log.length).sum();
    assert_eq!(log.syncer().live_bytes(), live);
}

#[test]
fn many_parts_and_large_records_come_back() {
    let disk = Disk::simulated(&SimDisk::new());
    let mut log = fresh(&disk, &SMALL);
    let large = vec![7; 5000];
    log.syncer().prepare_next().unwrap();
    let parts: Vec<&[u8]> = large.chunks(100).collect();
    log.append(&parts, SegmentPurpose::Puts).unwrap();
    log.append(&[b"small"], SegmentPurpose::Puts).unwrap();
    let mut found = Vec::new();
    replay(&disk, 1, &BTreeMap::new(), |_, payload| {
        found.push(payload.to_vec());
        Ok(())
    })
    .unwrap();
    assert_eq!(found, [large, b"small".to_vec()]);
}

#[test]
fn a_clean_close_leaves_exact_lengths_and_nothing_unused() {
    let sim = SimDisk::new();
    let disk = Disk::simulated(&sim);
    let mut log = fresh(&disk, &SMALL);
    let end = append(&mut log, 0..50);
    log.syncer().prepare_next().unwrap();
    assert!(!log.syncer().needs_next());
    let sealed = log.close().unwrap();
    assert_eq!(Lsn::new(sealed.segment, sealed.length), end);
    assert_eq!(
        disk.len_of(&log_name(sealed.segment)).unwrap(),
        sealed.length
    );
    assert!(!disk.exists(&log_name(sealed.segment + 1)).unwrap());
    let sealed = BTreeMap::from([(sealed.segment, sealed.length)]);
    let cut = sim.power_cut(sim.ops(), 1, Tear::DropAll);
    let disk = Disk::simulated(&cut);
    assert_eq!(replay_records(&disk, 1, &sealed).unwrap().0, 50);

    // With the seal, no damage anywhere passes.
    for name in cut.names() {
        let bytes = cut.raw(&name).unwrap();
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x10;
            cut.set_raw(&name, damaged);
            let length = sealed.get(&parse_log_name(&name).unwrap());
            let behind_the_frames = length.is_none() && at as u64 >= frames_end(&bytes);
            let result = replay_records(&disk, 1, &sealed);
            assert!(
                behind_the_frames || matches!(result, Err(Error::Corruption { .. })),
                "{name} {at}: {result:?}"
            );
        }
        cut.set_raw(&name, bytes);
    }
}

/// Offset behind the last byte of a file that is not zero.
fn frames_end(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .rposition(|byte| *byte != 0)
        .map_or(0, |at| at as u64 + 1)
}

/// A log of two segments on a disk: records `0..synced` are durable, and unless `quiet` a mark
/// behind them says so; more records follow. Returns the durable position.
fn two_segments(sim: &SimDisk, quiet: bool) -> (Lsn, u32, u32) {
    let disk = Disk::simulated(sim);
    let mut log = fresh(&disk, &SMALL);
    let mut synced = 0;
    let mut durable = Lsn::default();
    for number in 0.. {
        append(&mut log, number..number + 1);
        if log.current_segment() == 2 && log.syncer().appended_lsn().offset() > 600 {
            if !quiet && synced == 0 {
                durable = log.syncer().sync().unwrap();
                synced = number + 1;
            } else {
                return (durable, synced, number + 1);
            }
        }
    }
    unreachable!()
}

#[test]
fn a_flip_in_what_a_mark_covers_is_corruption_with_its_place() {
    let sim = SimDisk::new();
    let (durable, synced, all) = two_segments(&sim, false);
    let disk = Disk::simulated(&sim);
    assert_eq!(replay_records(&disk, 1, &BTreeMap::new()).unwrap().0, all);
    for segment in [1, 2] {
        let name = log_name(segment);
        let bytes = sim.raw(&name).unwrap();
        for at in 0..frames_end(&bytes) {
            for bit in [0, 3, 7] {
                let mut damaged = bytes.clone();
                damaged[usize::try_from(at).unwrap()] ^= 1 << bit;
                sim.set_raw(&name, damaged);
                match replay_records(&disk, 1, &BTreeMap::new()) {
                    Err(Error::Corruption { file, offset, .. }) => {
                        assert!(Lsn::new(segment, at) < durable, "{name} {at}");
                        assert_eq!(file, disk.path_of(&name));
                        assert!(offset <= at && at < offset + 200, "{at} told as {offset}");
                    }
                    Err(error) => panic!("{name} {at}: {error}"),
                    Ok((count, end)) => {
                        assert!(Lsn::new(segment, at) >= durable, "{name} {at}");
                        assert!((synced..=all).contains(&count));
                        assert!(end.torn.is_some());
                    }
                }
            }
        }
        sim.set_raw(&name, bytes);
    }
}

#[test]
fn a_flip_that_nothing_proves_durable_cuts_a_prefix() {
    let sim = SimDisk::new();
    let (_, _, all) = two_segments(&sim, true);
    let disk = Disk::simulated(&sim);
    for segment in [1, 2] {
        let name = log_name(segment);
        let bytes = sim.raw(&name).unwrap();
        for at in 0..frames_end(&bytes) {
            let mut damaged = bytes.clone();
            damaged[usize::try_from(at).unwrap()] ^= 0x04;
            sim.set_raw(&name, damaged);
            let (count, end) = replay_records(&disk, 1, &BTreeMap::new()).unwrap();
            assert!(count < all || at < HEADER_BYTES as u64, "{name} {at}");
            assert!(
                end.end <= Lsn::new(segment, at) && end.torn.is_some(),
                "{name} {at}"
            );
        }
        sim.set_raw(&name, bytes);
    }
}

#[test]
fn the_log_ends_before_a_torn_record_wherever_it_is_torn() {
    let sim = SimDisk::new();
    let disk = Disk::simulated(&sim);
    let mut log = fresh(&disk, &SMALL);
    append(&mut log, 0..4);
    let start = log.syncer().sync().unwrap();
    let end = append(&mut log, 4..5);
    let name = log_name(1);
    let whole = sim.raw(&name).unwrap();
    let (start, end) = (start.offset(), end.offset());
    for at in start..=end {
        let at = usize::try_from(at).unwrap();
        let zeros = vec![0; whole.len() - at];
        let garbage: Vec<u8> = (at..whole.len())
            .map(|i| u8::try_from(i * 37 % 255).unwrap() + 1)
            .collect();
        for tail in [Vec::new(), zeros, garbage] {
            let mut torn = whole[..at].to_vec();
            torn.extend(tail);
            sim.set_raw(&name, torn);
            let (count, found) = replay_records(&disk, 1, &BTreeMap::new()).unwrap();
            // Trailing zeros of the last record may be the same as unused space.
            let complete = at as u64 == end;
            assert!(count == 4 + u32::from(complete), "{at}: {count}");
            let mark_end = start + MARK_BYTES as u64;
            let expected = [start, mark_end, end];
            assert!(expected.contains(&found.end.offset()), "{at}: {found:?}");
        }
    }
}

#[test]
fn missing_segments_are_told_or_cut() {
    let sim = SimDisk::new();
    let (durable, _, all) = two_segments(&sim, false);
    assert!(durable.segment() == 2);
    let disk = Disk::simulated(&sim);
    let first = sim.raw(&log_name(1)).unwrap();

    // The mark in segment 2 proves that segment 1 was there.
    disk.remove(&log_name(1)).unwrap();
    let error = replay_records(&disk, 1, &BTreeMap::new()).unwrap_err();
    assert!(
        matches!(&error, Error::Corruption { file, .. } if *file == disk.path_of(&log_name(1)))
    );

    // A tail beyond it says that it is not needed.
    let mut count = 0;
    let end = replay(&disk, 2, &BTreeMap::new(), |_, _| {
        count += 1;
        Ok(())
    });
    assert!(end.is_ok() && 0 < count && count < all);

    // The newest segment may be missing: its name was perhaps never durable.
    sim.set_raw(&log_name(1), first);
    disk.remove(&log_name(2)).unwrap();
    let (count, end) = replay_records(&disk, 1, &BTreeMap::new()).unwrap();
    assert!(count > 0 && end.next_segment() == 2);

    // Unless the manifest says that it was there.
    let error = replay_records(&disk, 1, &BTreeMap::from([(2, 700)])).unwrap_err();
    assert!(
        matches!(&error, Error::Corruption { file, .. } if *file == disk.path_of(&log_name(2)))
    );
}

#[test]
fn a_hole_between_segments_without_proof_ends_the_log() {
    let sim = SimDisk::new();
    let disk = Disk::simulated(&sim);
    let mut log = fresh(&disk, &SMALL);
    append(&mut log, 0..60);
    let last = log.current_segment();
    assert!(last > 3);
    drop(log);
    disk.remove(&log_name(2)).unwrap();
    let (count, mut end) = replay_records(&disk, 1, &BTreeMap::new()).unwrap();
    assert!(0 < count && count < 60);
    assert_eq!((end.end.segment(), end.next_segment()), (1, last + 1));
    let seals = end.seal(&disk).unwrap().to_vec();
    assert!(
        seals
            .iter()
            .all(|seal| (seal.length > 0) == (seal.segment == 1)),
        "{seals:?}"
    );
    let sealed = seals
        .iter()
        .map(|seal| (seal.segment, seal.length))
        .collect();

    // The void segments are not read again, removed or not, and the log goes on behind them.
    let log_and_count = |clean: bool| {
        let (again, end) = replay_records(&disk, 1, &sealed).unwrap();
        assert_eq!(again, count);
        if clean {
            end.clean(&disk).unwrap();
        }
        end
    };
    log_and_count(false);
    let end = log_and_count(true);
    assert!(!disk.exists(&log_name(last)).unwrap());
    let mut log = Log::start(&disk, &end, &SMALL).unwrap();
    assert_eq!(log.current_segment(), last + 1);
    append(&mut log, count..count + 40);
    assert_eq!(replay_records(&disk, 1, &sealed).unwrap().0, count + 40);
}

#[test]
fn a_newer_segment_is_refused_by_version() {
    let sim = SimDisk::new();
    let mut bytes = sim_segment_header();
    bytes[8] = 9;
    let crc = crc32c::crc32c_append(crc32c::crc32c(&bytes[..12]), &bytes[16..64]);
    bytes[12..16].copy_from_slice(&crc.to_le_bytes());
    sim.set_raw(&log_name(1), bytes);
    let result = replay_records(&Disk::simulated(&sim), 1, &BTreeMap::new());
    assert!(matches!(
        result,
        Err(Error::NewerFormat {
            found: 9,
            supported: 1,
            ..
        })
    ));
}

fn sim_segment_header() -> Vec<u8> {
    let sim = SimDisk::new();
    drop(fresh(&Disk::simulated(&sim), &SMALL));
    sim.raw(&log_name(1)).unwrap()[..HEADER_BYTES].to_vec()
}

#[test]
fn a_full_disk_fails_the_append_and_space_mends_it() {
    let sim = SimDisk::new();
    sim.set_capacity(Some(3 * 1024));
    let disk = Disk::simulated(&sim);
    let mut log = fresh(&disk, &SMALL);
    let mut number = 0;
    let error = loop {
        match log.append(&[&record(number)], SegmentPurpose::Puts) {
            Ok(_) => number += 1,
            Err(error) => break error,
        }
    };
    assert!(
        matches!(&error, Error::Media(error) if error.is_no_space()),
        "{error}"
    );
    let before = log.syncer().appended_lsn();
    assert!(
        log.append(&[&record(number)], SegmentPurpose::Puts)
            .is_err()
    );
    assert_eq!(log.syncer().appended_lsn(), before);
    log.syncer().sync().unwrap();

    sim.set_capacity(None);
    append(&mut log, number..number + 30);
    assert_eq!(
        replay_records(&disk, 1, &BTreeMap::new()).unwrap().0,
        number + 30
    );
}

#[test]
fn after_a_failed_sync_nothing_is_taken_and_recovery_makes_durable_what_it_returns() {
    for keep in [false, true] {
        let sim = SimDisk::new();
        let disk = Disk::simulated(&sim);
        let mut log = fresh(&disk, &SMALL);
        append(&mut log, 0..5);
        let durable = log.syncer().sync().unwrap();
        append(&mut log, 5..9);
        sim.inject(Fault::once(sim.ops() + 1, FaultKind::SyncFails { keep }));
        assert!(log.syncer().sync().is_err());
        assert!(log.append(&[b"more"], SegmentPurpose::Puts).is_err());
        assert!(log.syncer().sync().is_err());
        assert_eq!(log.syncer().durable_lsn(), durable);
        drop(log);

        // The process ends; the next one reads what may be in memory only. What it seals must
        // survive, though no sync would write it.
        let (count, mut end) = replay_records(&disk, 1, &BTreeMap::new()).unwrap();
        assert_eq!(count, 9);
        let seals = end.seal(&disk).unwrap();
        let sealed = seals
            .iter()
            .map(|seal| (seal.segment, seal.length))
            .collect();
        let cut = sim.power_cut(sim.ops(), 3, Tear::DropAll);
        assert_eq!(
            replay_records(&Disk::simulated(&cut), 1, &sealed)
                .unwrap()
                .0,
            9
        );
    }
}

#[test]
fn removed_segments_are_gone_but_for_spares_and_need_no_sync() {
    let sim = SimDisk::new();
    let disk = Disk::simulated(&sim);
    let mut log = fresh(&disk, &SMALL);
    append(&mut log, 0..100);
    let current = log.current_segment();
    let syncer = log.syncer();
    syncer.remove_before(current - 1).unwrap();
    let spares: Vec<String> = (1..=4).map(log_name).collect();
    let with_spares = |live: &[u64]| {
        let live = live.iter().map(|segment| log_name(*segment));
        spares.iter().cloned().chain(live).collect::<Vec<_>>()
    };
    assert_eq!(sim.names(), with_spares(&[current - 1, current]));
    assert!(current > 8, "some segments are gone");
    let before = disk.counts().syncs();
    syncer.sync().unwrap();
    assert_eq!(
        disk.counts().syncs() - before,
        3,
        "two files and the directory"
    );
    syncer.sync().unwrap();
    assert_eq!(disk.counts().syncs() - before, 3, "nothing to do");
    syncer.remove_before(u64::MAX).unwrap();
    assert_eq!(
        sim.names(),
        with_spares(&[current]),
        "the current segment stays"
    );
    log.close().unwrap();
    assert_eq!(sim.names(), [log_name(current)]);
}

#[test]
fn appends_go_on_while_others_sync_and_prepare() {
    const RECORDS: u32 = 20_000;
    let dir = tempfile::tempdir().unwrap();
    let disk = Disk::system(dir.path()).unwrap();
    let mut log = fresh(
        &disk,
        &LogOptions {
            segment_bytes_max: 64 << 10,
            flush_cost: 1,
            kept_bytes_max: u64::MAX,
        },
    );
    let syncer = log.syncer();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut last = Lsn::default();
                // ORDER: Relaxed; the flag only ends the loop.
                while !done.load(Ordering::Relaxed) {
                    let before = syncer.appended_lsn();
                    let durable = syncer.sync().unwrap();
                    assert!(before <= durable && last <= durable);
                    assert!(durable <= syncer.appended_lsn());
                    last = durable;
                    if syncer.needs_next() {
                        syncer.prepare_next().unwrap();
                    }
                }
            });
        }
        append(&mut log, 0..RECORDS);
        done.store(true, Ordering::Relaxed);
    });
    let (count, end) = replay_records(&disk, 1, &BTreeMap::new()).unwrap();
    assert_eq!((count, end.torn), (RECORDS, None));
    assert_eq!(end.end, syncer.appended_lsn());
    let sealed = log.close().unwrap();
    let sealed = BTreeMap::from([(sealed.segment, sealed.length)]);
    let (count, end) = replay_records(&disk, 1, &sealed).unwrap();
    assert_eq!(count, RECORDS);
    end.clean(&disk).unwrap();
}

/// A cleaning that was interrupted removed nothing the next time, as a segment was not there.
#[test]
fn what_is_of_no_use_is_removed_by_any_number_of_tries() {
    let sim = SimDisk::new();
    let disk = Disk::simulated(&sim);
    let options = LogOptions {
        segment_bytes_max: 4 << 20,
        flush_cost: 1,
        kept_bytes_max: u64::MAX,
    };
    let mut log = fresh(&disk, &options);
    append(&mut log, 0..10);
    drop(log);
    let void = BTreeMap::from([(1, 0)]);
    let (count, end) = replay_records(&disk, 1, &void).unwrap();
    assert_eq!(count, 0);
    assert!(sim.names().contains(&log_name(1)));
    for _ in 0..2 {
        end.clean(&disk).unwrap();
        assert!(!sim.names().contains(&log_name(1)));
    }
}

#[test]
fn a_log_that_rests_keeps_one_small_segment_until_the_next_append() {
    let sim = SimDisk::new();
    let disk = Disk::simulated(&sim);
    let options = LogOptions {
        segment_bytes_max: 4 << 20,
        flush_cost: 1,
        kept_bytes_max: u64::MAX,
    };
    let mut log = fresh(&disk, &options);
    let syncer = log.syncer();
    let large = vec![7; 700 << 10];
    for _ in 0..20 {
        syncer.prepare_next().unwrap();
        log.append(&[&large], SegmentPurpose::Puts).unwrap();
        syncer.remove_before(u64::MAX).unwrap();
    }
    syncer.prepare_next().unwrap();
    assert!(sim.names().len() >= 2 && syncer.may_rest());
    let on_disk = || -> u64 {
        let names = sim.names();
        let files = names.iter().map(|name| disk.len_of(name).unwrap());
        files.sum()
    };
    assert_eq!(syncer.file_bytes(), on_disk());
    let end = syncer.appended_lsn();
    let segment = log.begin_small().unwrap();
    assert_eq!(segment, end.segment() + 1);
    syncer.sync().unwrap();
    syncer.remove_before(segment).unwrap();
    syncer.rest().unwrap();
    assert_eq!(sim.names(), [log_name(segment)]);
    assert_eq!((syncer.file_bytes(), on_disk()), (1 << 20, 1 << 20));
    assert!(!syncer.may_rest() && !syncer.needs_next());
    log.append(&[b"goes on"], SegmentPurpose::Puts).unwrap();
    assert!(syncer.needs_next());
    syncer.prepare_next().unwrap();
    log.append(&[&large], SegmentPurpose::Puts).unwrap();
    log.append(&[&large], SegmentPurpose::Puts).unwrap();
    assert_eq!(log.current_segment(), segment + 1);
    let mut found = Vec::new();
    replay(&disk, segment, &BTreeMap::new(), |lsn, payload| {
        found.push((lsn.segment(), payload.len()));
        Ok(())
    })
    .unwrap();
    assert_eq!(
        found,
        [
            (segment, 7),
            (segment, large.len()),
            (segment + 1, large.len())
        ]
    );
}

/// A log that goes on in files which were used before. Returns the position from which on it is
/// needed, and the number of its first record there.
fn recycled(sim: &SimDisk, log: &mut Log) -> (u64, u32) {
    let syncer = log.syncer();
    append(log, 0..60);
    syncer.sync().unwrap();
    let from = log.current_segment();
    let mut first = 60;
    // Find the first record of a segment, so that a replay can count from there on.
    while log.current_segment() == from {
        append(log, first..first + 1);
        first += 1;
    }
    syncer.sync().unwrap();
    let from = log.current_segment();
    let disk = Disk::simulated(sim);
    for next in first..first + 60 {
        syncer.remove_before(from).unwrap();
        append(log, next..next + 1);
        let kept = disk.list().unwrap().len() as u64;
        assert!(
            kept <= log.current_segment() - from + 5,
            "more than four spare files"
        );
    }
    (from, first - 1)
}

fn replay_from(disk: &Disk, from: u64, first: u32) -> Result<(u32, ReplayEnd)> {
    let mut next = first;
    let end = replay(disk, from, &BTreeMap::new(), |lsn, payload| {
        assert_eq!(payload, record(next), "record {next} at {lsn:?}");
        next += 1;
        Ok(())
    })?;
    Ok((next, end))
}

/// A segment in a file that was used before ends in old frames instead of zeros: the log went on in
/// the next segment all the same, and ends where its own frames end.
#[test]
fn old_frames_in_recycled_segments_are_never_read() {
    for prepared in [false, true] {
        let sim = SimDisk::new();
        let disk = Disk::simulated(&sim);
        let mut log = fresh(&disk, &SMALL);
        let (from, first) = recycled(&sim, &mut log);
        let syncer = log.syncer();
        let mut seen = 0;
        for next in first + 61..first + 400 {
            // The tail follows the head, so every file is used several times.
            syncer.sync().unwrap();
            let tail = log.current_segment().saturating_sub(1).max(from);
            syncer.remove_before(tail).unwrap();
            if prepared && next % 3 == 0 {
                syncer.prepare_next().unwrap();
            }
            let end = append(&mut log, next..next + 1);
            let raw = sim.raw(&log_name(end.segment())).unwrap();
            seen += u32::from(frames_end(&raw) > end.offset());
            let mut last = None;
            let found = replay(&disk, tail, &BTreeMap::new(), |_, payload| {
                let number = u32::from_le_bytes(*payload.first_chunk().unwrap());
                assert!(
                    last.is_none_or(|last| last + 1 == number),
                    "{last:?} {number}"
                );
                assert_eq!(payload, record(number));
                last = Some(number);
                Ok(())
            })
            .unwrap();
            assert_eq!((last, found.end), (Some(next), end));
        }
        assert!(seen > 100, "files were used again: {seen}");
    }
}

#[test]
fn a_power_cut_of_a_recycled_log_leaves_a_prefix() {
    let sim = SimDisk::recording();
    let disk = Disk::simulated(&sim);
    let mut log = fresh(&disk, &SMALL);
    let (from, first) = recycled(&sim, &mut log);
    let syncer = log.syncer();
    let began = sim.ops();
    let mut durable = vec![];
    for next in first + 61..first + 160 {
        append(&mut log, next..next + 1);
        if next % 7 == 0 {
            syncer.sync().unwrap();
            durable.push((sim.ops(), next));
        }
        if next % 11 == 0 {
            syncer.prepare_next().unwrap();
        }
    }
    for op in began..=sim.ops() {
        let acknowledged = durable.iter().rev().find(|(at, _)| *at <= op);
        for (seed, tear) in [(1, Tear::DropAll), (2, Tear::KeepAll), (3, Tear::Random512)] {
            let cut = Disk::simulated(&sim.power_cut(op, seed, tear));
            let (count, _) = replay_from(&cut, from, first)
                .unwrap_or_else(|error| panic!("operation {op}, {tear:?}: {error}"));
            if let Some((_, number)) = acknowledged {
                assert!(
                    count > *number,
                    "operation {op}: {number} is lost, {count} came back"
                );
            }
        }
    }
}

/// Puts a record into a reserved place; `None` when there is no room.
fn append_beside(log: &Log, number: u32) -> Option<Lsn> {
    let payload = record(number);
    let place = log.reserve(payload.len()).unwrap()?;
    Some(
        place
            .fill(&mut Vec::new(), &[&payload[..2], &payload[2..]])
            .unwrap(),
    )
}

#[test]
fn places_are_filled_in_any_order_and_a_hole_ends_the_log() {
    let disk = Disk::simulated(&SimDisk::new());
    let mut log = fresh(&disk, &SMALL);
    append(&mut log, 0..2);
    log.syncer().sync().unwrap();
    let before = log.reservations();
    // The first place carries the mark of the sync, the others do not.
    let places: Vec<_> = (2..5)
        .map(|number| log.reserve(record(number).len()).unwrap().unwrap())
        .collect();
    for (count, place) in places.iter().enumerate() {
        assert_eq!(place.number(), before + count as u64);
    }
    let mut end = Lsn::default();
    for (number, place) in (2..5).zip(places).rev() {
        assert_eq!(replay_records(&disk, 1, &BTreeMap::new()).unwrap().0, 2);
        let filled = place.fill(&mut Vec::new(), &[&record(number)]).unwrap();
        end = end.max(filled);
    }
    log.set_appended(end);
    let (count, found) = replay_records(&disk, 1, &BTreeMap::new()).unwrap();
    assert_eq!((count, found.end), (5, end));
    assert_eq!(log.syncer().sync().unwrap(), end);
    assert_eq!(append_beside(&log, 5).map(|end| end.segment()), Some(1));
    assert!(
        log.reserve(5000).unwrap().is_none(),
        "long records are appended"
    );
    let mut next = 6;
    while append_beside(&log, next).is_some() {
        next += 1;
    }
    assert_eq!(log.current_segment(), 1);
    append(&mut log, next..next + 1);
    assert_eq!(log.current_segment(), 2);
    assert_eq!(log.reservations(), 2, "a header and a record");
    assert_eq!(
        replay_records(&disk, 1, &BTreeMap::new()).unwrap().0,
        next + 1
    );
}

#[test]
fn threads_fill_their_places_side_by_side() {
    let dir = tempfile::tempdir().unwrap();
    let disk = Disk::system(dir.path()).unwrap();
    let log = fresh(&disk, &LogOptions::default());
    let threads = 4;
    let rounds = 2000;
    let stop = AtomicBool::new(false);
    let syncer = log.syncer();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // ORDER: Relaxed; the end of the scope orders what follows it.
            while !stop.load(Ordering::Relaxed) {
                syncer.sync().unwrap();
            }
        });
        let writers: Vec<_> = (0..threads)
            .map(|thread: u32| {
                let log = &log;
                scope.spawn(move || {
                    let mut staging = Vec::new();
                    for round in 0..rounds {
                        let payload = [thread.to_le_bytes(), u32::to_le_bytes(round)].concat();
                        let place = log.reserve(payload.len()).unwrap().unwrap();
                        place.fill(&mut staging, &[&payload]).unwrap();
                    }
                })
            })
            .collect();
        writers
            .into_iter()
            .for_each(|writer| writer.join().unwrap());
        stop.store(true, Ordering::Relaxed);
    });
    let sealed = log.close().unwrap();
    let mut next = vec![0; threads as usize];
    let sealed = BTreeMap::from([(sealed.segment, sealed.length)]);
    replay(&disk, 1, &sealed, |_, payload| {
        let (thread, round) = payload.split_at(4);
        let thread = u32::from_le_bytes(*thread.first_chunk().unwrap()) as usize;
        let round = u32::from_le_bytes(*round.first_chunk().unwrap());
        assert_eq!(round, next[thread]);
        next[thread] += 1;
        Ok(())
    })
    .unwrap();
    assert_eq!(next, vec![rounds; threads as usize]);
}
