//! Logs that say what is not so.

use gabion_media::SimDisk;
use gabion_media::seeded::{SeededRng, setting};

use super::*;
use crate::{FlexSpace, SpaceStats, check_disk};

fn open(sim: &SimDisk) -> FlexSpace {
    let options = Options::default().segment_bytes(8 << 10).block_bytes(256);
    FlexSpace::open_on(Disk::simulated(sim), options).unwrap()
}

/// A disk with a saved space of many extents, of which the log has removed some, and what the
/// space said of itself.
fn filled() -> (SimDisk, SpaceStats) {
    let sim = SimDisk::new();
    let space = open(&sim);
    for number in 0..2_000_u64 {
        let offset = number * 7919 % (space.len() + 1);
        space.insert_range(offset, &number.to_le_bytes()).unwrap();
    }
    space.checkpoint().unwrap();
    space.collapse_range(5_000, 3_000).unwrap();
    space.sync().unwrap();
    let stats = space.stats();
    (sim, stats)
}

/// Writes the log of a space anew, all in one frame, with other records.
fn rewrite(sim: &SimDisk, change: impl Fn(LogRecord) -> Option<LogRecord>) {
    let disk = Disk::simulated(sim);
    let (header, _) = TreeFile::read_header(&disk).unwrap();
    let log = disk.read_all(&log_name(header.version)).unwrap();
    let frames = FrameCodec::new(header.space, header.version);
    let mut offset = LOG_HEADER_BYTES;
    let mut found = Vec::new();
    while let ParsedFrame::Frame { payload, .. } = frames.parse(&log, offset) {
        found.extend(RecordReader::new(payload).map(Result::unwrap));
        offset += super::super::log::FRAME_HEAD_BYTES + payload.len();
    }
    let mut records = PendingRecords::default();
    for record in found.into_iter().filter_map(change) {
        records.push(&record);
    }
    CurrentLog::create(&disk, header.space, header.version, &records, 8 << 10).unwrap();
}

fn with_live(record: LogRecord, live: impl Fn(u64) -> u64) -> LogRecord {
    match record {
        LogRecord::Segment {
            segment,
            generation,
            live: told,
        } => LogRecord::Segment {
            segment,
            generation,
            live: live(told),
        },
        other => other,
    }
}

#[test]
fn a_wrong_count_is_found_by_a_check_and_mended_where_it_shows() {
    let (sim, before) = filled();
    rewrite(&sim, |record| Some(with_live(record, |live| live + 1)));
    let report = check_disk(&Disk::simulated(&sim)).unwrap();
    let problem = &report.problems[0];
    assert!(problem.file.ends_with(DATA_NAME), "{problem:?}");
    assert!(problem.what.contains("as the log says"), "{problem:?}");
    // Segments that are never empty are not emptied for ever.
    let space = open(&sim);
    let rounds = (0..100).take_while(|_| space.collect_garbage().unwrap());
    assert!(rounds.count() < 100);
    // None of one that is in use; the operations of the log would show that at once.
    let (sim, _) = filled();
    rewrite(&sim, |record| match record {
        LogRecord::Collapse { .. } => None,
        LogRecord::Segment { segment: 1, .. } => Some(with_live(record, |_| 0)),
        other => Some(other),
    });
    let report = check_disk(&Disk::simulated(&sim)).unwrap();
    let what = &report.problems[0].what;
    assert!(what.contains("of segment 1 are in use, not 0 as"), "{what}");
    // Less than the log's operations remove.
    let (sim, _) = filled();
    rewrite(&sim, |record| Some(with_live(record, |_| 1)));
    assert_eq!(open(&sim).stats().live_bytes, before.live_bytes);
}

/// Content that is wrong under right checksums: an error, or a space that can be read and
/// checked, but no panic.
#[test]
fn a_log_that_says_anything_is_refused_or_leaves_a_space_that_can_be_read() {
    const EDGES: [u64; 6] = [0, 1, u64::MAX, HOLE, LEN_MAX, 1 << 63];
    let (sim, _) = filled();
    rewrite(&sim, Some);
    let disk = Disk::simulated(&sim);
    let (header, _) = TreeFile::read_header(&disk).unwrap();
    let name = log_name(header.version);
    let good = sim.raw(&name).unwrap();
    let frames = FrameCodec::new(header.space, header.version);
    let ParsedFrame::Frame { payload, .. } = frames.parse(&good, LOG_HEADER_BYTES) else {
        panic!("the log begins with a frame");
    };
    let mut random = SeededRng::new(setting("GABION_FLEX_SEED", 1));
    let [mut refused, mut opened] = [0; 2];
    for _ in 0..setting("GABION_FLEX_FORGERIES", 400) {
        let mut forged = payload.to_vec();
        for _ in 0..=random.below(3) {
            let at = random.index(forged.len());
            match random.below(3) {
                0 => forged[at] ^= 1 << random.below(8),
                _ => {
                    let word = match random.one_in(2) {
                        true => EDGES[random.index(EDGES.len())],
                        false => random.below(20_000),
                    };
                    let at = at / 8 * 8;
                    forged[at..at + 8].copy_from_slice(&word.to_le_bytes());
                }
            }
        }
        let offset = LOG_HEADER_BYTES as u64;
        let mut log = good[..LOG_HEADER_BYTES].to_vec();
        log.extend(frames.head(offset, offset, &forged));
        log.extend(forged);
        log.resize(good.len(), 0);
        let forgery = SimDisk::new();
        for name in sim.names() {
            forgery.set_raw(&name, sim.raw(&name).unwrap());
        }
        forgery.set_raw(&name, log);
        let report = check_disk(&Disk::simulated(&forgery));
        let options = Options::default().segment_bytes(8 << 10).block_bytes(256);
        let space = match FlexSpace::open_on(Disk::simulated(&forgery), options) {
            Ok(space) => space,
            Err(error) => {
                assert!(matches!(error, Error::Corruption { .. }), "{error:?}");
                let sound = report
                    .as_ref()
                    .is_ok_and(|report| report.problems.is_empty());
                assert!(
                    !sound,
                    "a check does not find what an opening does: {error}"
                );
                refused += 1;
                continue;
            }
        };
        let mut bytes = vec![0; 1 << 10];
        for offset in (0..space.len().min(1 << 20)).step_by(bytes.len()) {
            let _ = space.read_at(offset, &mut bytes);
        }
        opened += 1;
    }
    assert!(
        refused > 0 && opened > 0,
        "{refused} refused, {opened} opened"
    );
}
