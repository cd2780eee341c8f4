//! Log and manifest together on the simulated disk: crashes after every operation, during the
//! recovery from them, and failures of every operation.
//!
//! The store under test is the smallest that uses both: its content is records 0, 1, 2, .., of
//! which the manifest says how many are "flushed" and so not needed in the log.

use gabion_media::seeded::SeededRng;
use gabion_media::{Disk, Fault, FaultKind, SimDisk, Tear};

use super::{Manifest, ManifestLookup, VersionEdit, inspect};
use crate::Result;
use crate::log::{Log, LogOptions, SegmentPurpose, replay};

const OPTIONS: LogOptions = LogOptions {
    segment_bytes_max: 700,
    flush_cost: 1,
    kept_bytes_max: u64::MAX,
};

/// The record with this number: its number, then bytes that follow from it.
fn record(number: u32) -> Vec<u8> {
    let len = number.wrapping_mul(2_654_435_761) >> 25;
    let filler = (0..len).map(|i| number.wrapping_mul(31).wrapping_add(i).to_le_bytes()[0]);
    number.to_le_bytes().into_iter().chain(filler).collect()
}

struct Store {
    manifest: Manifest,
    log: Log,
    /// Number of records.
    count: u32,
}

impl Store {
    /// Opens or creates; checks that what is found is a prefix without damage.
    fn open(disk: &Disk) -> Result<Store> {
        let mut manifest = match inspect(disk)? {
            ManifestLookup::Store => Manifest::open(disk)?,
            ManifestLookup::Free => Manifest::create(disk)?,
        };
        let state = manifest.state();
        let flushed = u32::try_from(state.last_seq).unwrap();
        let mut next = None;
        let mut end = replay(disk, state.log_tail, &state.sealed, |_, payload| {
            let number = u32::from_le_bytes(*payload.first_chunk().unwrap());
            assert_eq!(payload, record(number));
            assert!(next.map_or(number <= flushed, |next| next == number));
            next = Some(number + 1);
            Ok(())
        })?;
        let seals = end.seal(disk)?.iter();
        let seals: Vec<VersionEdit> = seals
            .map(|seal| VersionEdit::LogSealed {
                segment: seal.segment,
                length: seal.length,
            })
            .collect();
        manifest.apply(&seals)?;
        end.clean(disk)?;
        let log = Log::start(disk, &end, &OPTIONS)?;
        Ok(Store {
            manifest,
            log,
            count: next.unwrap_or(0).max(flushed),
        })
    }

    fn append(&mut self) -> Result<()> {
        self.log
            .append(&[&record(self.count)], SegmentPurpose::Puts)?;
        self.count += 1;
        Ok(())
    }

    /// Says that everything so far is needed in the log no more.
    fn flush(&mut self) -> Result<()> {
        let syncer = self.log.syncer();
        syncer.sync()?;
        let segment = self.log.current_segment();
        let seq = u64::from(self.count);
        self.manifest.apply(&[
            VersionEdit::LastSeq { seq },
            VersionEdit::LogTail { segment },
        ])?;
        syncer.remove_before(segment)
    }

    fn close(mut self) -> Result<()> {
        let sealed = self.log.close()?;
        let (segment, length) = (sealed.segment, sealed.length);
        self.manifest
            .close_clean(&[VersionEdit::LogSealed { segment, length }])
    }
}

/// How many records were there, and how many durable, from an operation of the disk on.
#[derive(Clone, Copy, Debug, Default)]
struct Progress {
    op: u64,
    appended: u32,
    durable: u32,
}

/// A history of progress, in order.
#[derive(Default)]
struct History(Vec<Progress>);

impl History {
    fn note(&mut self, op: u64, appended: u32, durable: u32) {
        self.0.push(Progress {
            op,
            appended,
            durable,
        });
    }

    /// The last progress that was complete at the operation.
    fn at(&self, op: u64) -> Progress {
        let done = self.0.partition_point(|progress| progress.op <= op);
        done.checked_sub(1)
            .map_or(Progress::default(), |last| self.0[last])
    }
}

/// One step of a workload. An error means that the store must be opened again.
fn step(
    random: &mut SeededRng,
    sim: &SimDisk,
    store: &mut Option<Store>,
    durable: &mut u32,
    history: &mut History,
) -> Result<()> {
    let Some(open) = store else {
        let opened = Store::open(&Disk::simulated(sim))?;
        *durable = opened.count;
        history.note(sim.ops(), opened.count, opened.count);
        *store = Some(opened);
        return Ok(());
    };
    match random.below(20) {
        0..12 => open.append()?,
        12..14 => {
            open.log.syncer().sync()?;
            *durable = open.count;
        }
        14..16 => open.log.syncer().prepare_next()?,
        16..18 => {
            open.flush()?;
            *durable = open.count;
        }
        18 => *store = None,
        _ => {
            let closing = store.take();
            let count = closing.as_ref().map_or(0, |open| open.count);
            closing.map_or(Ok(()), Store::close)?;
            *durable = count;
        }
    }
    if let Some(open) = store {
        history.note(sim.ops(), open.count, *durable);
    }
    Ok(())
}

fn workload(sim: &SimDisk, seed: u64, steps: u32) -> History {
    let mut random = SeededRng::new(seed);
    let mut history = History::default();
    let (mut store, mut durable) = (None, 0);
    for _ in 0..steps {
        step(&mut random, sim, &mut store, &mut durable, &mut history).unwrap();
    }
    history
}

/// Recovers, checks the number of records, and goes on for a while.
fn recover(sim: &SimDisk, at_least: u32, at_most: u32, place: &str) -> History {
    let mut store =
        Store::open(&Disk::simulated(sim)).unwrap_or_else(|error| panic!("{place}: {error}"));
    let count = store.count;
    assert!(
        (at_least..=at_most).contains(&count),
        "{place}: {count} of {at_least}..={at_most}"
    );
    let mut history = History::default();
    history.note(sim.ops(), count, count);
    for _ in 0..4 {
        store.append().unwrap();
        history.note(sim.ops(), store.count, count);
    }
    store.log.syncer().sync().unwrap();
    history.note(sim.ops(), store.count, store.count);
    store.append().unwrap();
    history.note(sim.ops(), store.count, store.count - 1);
    history
}

/// Crashes `sim` after each operation, recovers, crashes during and after that, recovers again.
fn crash_twice(sim: &SimDisk, history: &History, seed: u64) -> u64 {
    let mut recoveries = 0;
    let mut random = SeededRng::new(seed);
    for op in 0..=sim.ops() {
        let was = history.at(op);
        let at_most = was.appended + 1;
        let tear = Tear::ALL[usize::try_from(random.below(4)).unwrap()];
        let cut_seed = random.below(1 << 40);
        let place = format!("seed {seed}, op {op}, {tear:?} {cut_seed}");
        let kinds = [
            (sim.process_kill(op), was.appended, was.durable),
            (sim.power_cut(op, cut_seed, tear), was.durable, was.durable),
        ];
        for (crashed, at_least, surely) in kinds {
            let again = recover(&crashed, at_least, at_most, &place);
            recoveries += 1;
            let begun = again.0[0].op;
            // Of the second crashes every seventh, a different choice for each first one.
            for second in (op % 7..=crashed.ops()).step_by(7) {
                let then = again.at(second);
                let at_most = if second < begun {
                    at_most
                } else {
                    then.appended + 1
                };
                let killed = crashed.process_kill(second);
                recover(&killed, at_least.max(then.appended), at_most, &place);
                let cut = crashed.power_cut(second, cut_seed ^ second, tear);
                recover(
                    &cut,
                    surely.max(then.durable),
                    at_most,
                    &format!("{place}, {second}"),
                );
                recoveries += 2;
            }
        }
    }
    recoveries
}

#[test]
fn any_two_crashes_leave_a_prefix_that_holds_what_was_acknowledged() {
    let mut recoveries = 0;
    for seed in 1..9 {
        let sim = SimDisk::recording();
        let history = workload(&sim, seed, 60);
        recoveries += crash_twice(&sim, &history, seed);
    }
    assert!(recoveries > 20_000, "{recoveries}");
}

#[test]
fn any_failed_operation_leaves_a_store_that_opens_with_what_was_acknowledged() {
    let kinds = [
        FaultKind::Eio,
        FaultKind::NoSpace,
        FaultKind::ShortWrite,
        FaultKind::SyncFails { keep: false },
        FaultKind::SyncFails { keep: true },
    ];
    for kind in kinds {
        for seed in 1..4 {
            let mut at = 0;
            let mut struck = true;
            while struck {
                at += 1;
                let sim = SimDisk::recording();
                sim.inject(Fault::once(at, kind));
                let (history, durable) = workload_with_fault(&sim, seed);
                struck = sim.waiting_faults() == 0;
                let place = format!("{kind:?} at {at}, seed {seed}");
                let last = history.0.last().unwrap();
                for tear in Tear::ALL {
                    let cut = sim.power_cut(sim.ops(), at, tear);
                    recover(&cut, durable, last.appended + 1, &place);
                }
            }
            assert!(at > 30, "{at}");
        }
    }
}

/// Opens again after each error. Returns what was acknowledged.
fn workload_with_fault(sim: &SimDisk, seed: u64) -> (History, u32) {
    let mut random = SeededRng::new(seed);
    let mut history = History::default();
    let (mut store, mut durable) = (None, 0);
    for _ in 0..40 {
        let before = history.0.last().copied().unwrap_or_default();
        let was_open = store.is_some();
        let result = step(&mut random, sim, &mut store, &mut durable, &mut history);
        let opened = store
            .as_ref()
            .filter(|_| !was_open)
            .map(|store| store.count);
        assert!(
            opened.is_none_or(|count| count >= before.appended),
            "{before:?} {opened:?}"
        );
        if result.is_err() {
            store = None;
        }
    }
    (history, durable)
}
