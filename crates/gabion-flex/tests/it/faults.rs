//! A fault at every operation of a workload: nothing synced is lost, nothing refused is there,
//! errors are sentences, and after the fault the space goes on.

use gabion_flex::{Error, FlexSpace, Options};
use gabion_media::{Disk, Fault, FaultKind, SimDisk, Tear};

use crate::support::{
    PanicContext, SeededRng, Shape, Step, apply, base_seed, difference, each_seed, next_step,
    read_all, setting, small_options,
};

/// Steps of a workload.
const STEPS: usize = 40;

/// What may strike an operation, and whether it does so for good.
const FAULTS: [(FaultKind, bool); 9] = [
    (FaultKind::Eio, false),
    (FaultKind::Eio, true),
    (FaultKind::NoSpace, false),
    (FaultKind::NoSpace, true),
    (FaultKind::ShortWrite, false),
    (FaultKind::SyncFails { keep: true }, false),
    (FaultKind::SyncFails { keep: false }, false),
    (FaultKind::SyncFails { keep: false }, true),
    (FaultKind::ShortWrite, true),
];

const READ_FAULTS: [(FaultKind, bool); 3] = [
    (FaultKind::ReadEio, false),
    (FaultKind::ReadEio, true),
    (FaultKind::BitFlip { bit: 12_345 }, false),
];

/// What the runs met.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    workloads: u64,
    faults: u64,
    refused: u64,
    /// Runs in which a change was applied after another was refused, without opening again.
    went_on: u64,
    /// Runs in which the space became read-only.
    read_only: u64,
    /// Openings that were refused.
    unopened: u64,
}

impl Counts {
    fn merge(&mut self, other: &Counts) {
        self.workloads += other.workloads;
        self.faults += other.faults;
        self.refused += other.refused;
        self.went_on += other.went_on;
        self.read_only += other.read_only;
        self.unopened += other.unopened;
    }
}

/// A workload that is being run, and what it may rely on.
struct Run<'r> {
    sim: &'r SimDisk,
    options: &'r Options,
    space: Option<FlexSpace>,
    /// What the open space holds, or what it held when it was left.
    twin: Vec<u8>,
    /// The states since the last one that was synced, that one first.
    undurable: Vec<Vec<u8>>,
    refused: bool,
    counts: Counts,
}

impl Run<'_> {
    fn open(&mut self) {
        match FlexSpace::open_on(Disk::simulated(self.sim), self.options.clone()) {
            Ok(space) => {
                if let Some(found) = read(&space) {
                    assert!(
                        self.undurable.contains(&found),
                        "after an opening: {}",
                        difference(&found, &self.twin)
                    );
                    self.twin = found;
                    // What an opening has found survives.
                    self.undurable = vec![self.twin.clone()];
                    self.space = Some(space);
                }
            }
            Err(error) => {
                self.counts.unopened += 1;
                assert_sentence(&error);
            }
        }
    }

    fn step(&mut self, random: &mut SeededRng, shape: &Shape) {
        let Some(space) = self.space.clone() else {
            self.open();
            return;
        };
        let step = next_step(random, shape, self.twin.len() as u64);
        let result = match &step {
            Step::Apply(changes) => apply(&space, changes),
            Step::Sync => space.sync(),
            Step::Checkpoint => space.checkpoint(),
            Step::Collect => space.collect_garbage().map(drop),
            Step::CollectSome(round) => space.collect_some(*round).map(drop),
            Step::Defrag(offset, len) => space.defrag(*offset, *len),
            Step::Reopen => {
                let result = space.sync();
                if result.is_ok() {
                    self.undurable = vec![self.twin.clone()];
                }
                self.space = None;
                drop(space);
                self.open();
                if let Err(error) = result {
                    self.refuse(&error);
                }
                return;
            }
        };
        match (result, &step) {
            (Ok(()), Step::Apply(changes)) => {
                self.counts.went_on += u64::from(self.refused);
                self.refused = false;
                changes
                    .iter()
                    .for_each(|change| change.apply_to(&mut self.twin));
                self.undurable.push(self.twin.clone());
            }
            (Ok(()), Step::Sync | Step::Checkpoint) => self.undurable = vec![self.twin.clone()],
            (Ok(()), _) => {}
            (Err(error), _) => self.refuse(&error),
        }
        if let Some(found) = read(&space) {
            assert!(
                found == self.twin,
                "{step:?}: {}",
                difference(&found, &self.twin)
            );
        }
        if space.stats().read_only.is_some() && random.one_in(3) {
            let error = space.append(b"x").expect_err("a read-only space says so");
            assert!(matches!(error, Error::ReadOnly { .. }), "{error}");
            self.counts.read_only += 1;
            self.space = None;
        }
    }

    fn refuse(&mut self, error: &Error) {
        self.counts.refused += 1;
        self.refused = true;
        assert_sentence(error);
    }

    /// Opens what is left without the fault: after crashes, and in the same process.
    fn finish(mut self) -> Counts {
        self.sim.clear_faults();
        let op = self.sim.ops();
        let mut images = vec![(
            self.sim.process_kill(op),
            "the end of the process".to_owned(),
        )];
        for style in [Tear::DropAll, Tear::Random512] {
            images.push((
                self.sim.power_cut(op, op, style),
                format!("a power cut, {style:?}"),
            ));
        }
        for (image, what) in images {
            let _context = PanicContext(|| format!("after {what}"));
            let space = FlexSpace::open_on(Disk::simulated(&image), self.options.clone()).unwrap();
            let found = read_all(&space).unwrap();
            assert!(
                self.undurable.contains(&found),
                "none of {} states: {}",
                self.undurable.len(),
                difference(&found, &self.twin)
            );
        }
        self.space = None;
        self.open();
        let space = self.space.take().expect("opens without the fault");
        space.append(b"more").unwrap();
        space.sync().unwrap();
        self.twin.extend(b"more");
        assert!(read_all(&space).unwrap() == self.twin);
        drop(space);
        let report = gabion_flex::check_disk(&Disk::simulated(self.sim)).unwrap();
        assert!(report.problems.is_empty(), "{report:?}");
        self.counts
    }
}

/// Reads all; `None` if a read fails, which must be said in a sentence.
fn read(space: &FlexSpace) -> Option<Vec<u8>> {
    read_all(space)
        .map_err(|error| assert_sentence(&error))
        .ok()
}

fn assert_sentence(error: &Error) {
    let text = error.to_string();
    assert!(
        text.split_whitespace().count() >= 5,
        "no sentence: {text:?}"
    );
    assert!(text.contains("/simulated"), "names no file: {text:?}");
}

fn play(sim: &SimDisk, seed: u64) -> Counts {
    let mut random = SeededRng::new(seed ^ 0xfa17);
    let capacity = [None, Some(10 * (8 << 10))][random.index(2)];
    let options = small_options(&mut random).capacity_bytes(capacity);
    let shape = Shape {
        len: [1_500, 9_000, 30_000][random.index(3)],
        data_max: [100, 2_000, 9_000][random.index(3)],
        sync_in: [3, 6][random.index(2)],
    };
    let mut run = Run {
        sim,
        options: &options,
        space: None,
        twin: Vec::new(),
        undurable: vec![Vec::new()],
        refused: false,
        counts: Counts::default(),
    };
    run.open();
    for number in 0..STEPS {
        let _context = PanicContext(|| format!("step {number}, {options:?}"));
        run.step(&mut random, &shape);
    }
    run.finish()
}

fn strike_everywhere(seed: u64) -> Counts {
    let sound = SimDisk::recording();
    let mut counts = play(&sound, seed);
    counts.workloads = 1;
    let operations = (1..=sound.ops()).map(|at| (at, &FAULTS[..]));
    let reads = (1..=sound.reads())
        .step_by(3)
        .map(|at| (at, &READ_FAULTS[..]));
    for (at, kinds) in operations.chain(reads) {
        // The next seed strikes the same number with the next kind.
        let (kind, forever) = kinds[usize::try_from((seed + at) % kinds.len() as u64).unwrap()];
        let fault = if forever {
            Fault::forever(at, kind)
        } else {
            Fault::once(at, kind)
        };
        let _context = PanicContext(|| {
            let what = sound.describe(at).unwrap_or_default();
            format!("seed {seed}, {fault:?} (operation {at} was: {what})")
        });
        let sim = SimDisk::recording();
        sim.inject(fault);
        counts.merge(&play(&sim, seed));
        counts.faults += 1;
    }
    counts
}

#[test]
fn a_fault_at_every_operation_loses_nothing_synced() {
    let workloads = setting("GABION_FLEX_FAULT_WORKLOADS", 20);
    let first = base_seed();
    let mut counts = Counts::default();
    for sum in each_seed(first, |begun| begun < workloads, strike_everywhere) {
        counts.merge(&sum);
    }
    println!("faults: from seed {first}, {counts:?}");
    assert_eq!(counts.workloads, workloads);
    assert!(counts.faults > 60 * workloads, "{counts:?}");
    assert!(counts.refused > counts.faults / 4, "{counts:?}");
    assert!(counts.went_on > 5 * workloads, "{counts:?}");
    assert!(
        counts.read_only > 5 * workloads && counts.unopened > workloads,
        "{counts:?}"
    );
}

/// A write of the tree's header failed after its bytes had reached the medium. The space went on
/// with the old header, and a recovery took the new one, with its empty log: what was synced
/// between was lost.
#[test]
fn nothing_is_written_after_a_header_that_may_be_there() {
    let sim = SimDisk::recording();
    let options = Options::default();
    let space = FlexSpace::open_on(Disk::simulated(&sim), options.clone()).unwrap();
    // Saving a tree without changes writes the header only.
    sim.inject(Fault::once(sim.ops() + 1, FaultKind::ShortWrite));
    assert_sentence(&space.checkpoint().unwrap_err());
    let refused = space.append(b"lost").and_then(|_| space.sync());
    assert!(
        matches!(refused, Err(Error::ReadOnly { .. })),
        "{refused:?}"
    );
    let image = sim.process_kill(sim.ops());
    let again = FlexSpace::open_on(Disk::simulated(&image), options).unwrap();
    again.append(b"kept").unwrap();
    again.sync().unwrap();
    drop(again);
    let cut = image.power_cut(image.ops(), 1, Tear::DropAll);
    let again = FlexSpace::open_on(Disk::simulated(&cut), Options::default()).unwrap();
    assert_eq!(read_all(&again).unwrap(), b"kept");
}

/// A collection that could not read its second extent left the first one's copy counted as in use,
/// though no extent refers to it. The next checkpoint wrote that down.
#[test]
fn a_collection_that_cannot_read_leaves_nothing_that_counts_as_in_use() {
    let filled = SimDisk::new();
    let options = Options::default().segment_bytes(16 << 10).block_bytes(256);
    let open = |sim: &SimDisk| FlexSpace::open_on(Disk::simulated(sim), options.clone()).unwrap();
    let space = open(&filled);
    for number in 0..120 {
        space.append(&[number; 500]).unwrap();
    }
    for number in (0..60).rev() {
        space.collapse_range(number * 1_000, 500).unwrap();
    }
    space.checkpoint().unwrap();
    let twin = read_all(&space).unwrap();
    drop(space);
    let run = |at: Option<u64>| {
        let sim = SimDisk::new();
        for name in filled.names() {
            sim.set_raw(&name, filled.raw(&name).unwrap());
        }
        let space = open(&sim);
        // The index is in memory, so what is read is data.
        space.extent_count(0, u64::MAX).unwrap();
        let before = sim.reads();
        if let Some(at) = at {
            sim.inject(Fault::once(before + at, FaultKind::ReadEio));
        }
        let collected = space.collect_garbage();
        let reads = sim.reads() - before;
        assert_eq!(collected.is_err(), at.is_some(), "{collected:?}");
        assert_eq!(space.stats().live_bytes, twin.len() as u64);
        space.checkpoint().unwrap();
        drop(space);
        let report = gabion_flex::check_disk(&Disk::simulated(&sim)).unwrap();
        assert!(report.problems.is_empty(), "{report:?}");
        let space = open(&sim);
        assert_eq!(read_all(&space).unwrap(), twin);
        let rounds = (0..100).take_while(|_| space.collect_garbage().unwrap());
        assert!(rounds.count() < 100, "it comes to an end");
        assert_eq!(read_all(&space).unwrap(), twin);
        reads
    };
    let reads = run(None);
    assert!(reads > 20, "{reads}");
    for at in 1..=reads {
        let _context = PanicContext(|| format!("read {at} of {reads}"));
        run(Some(at));
    }
}

/// Of spaces of which every step is looked at, without room that is kept aside.
fn tiny_options() -> Options {
    Options::default()
        .managed(true)
        .segment_bytes(8 << 10)
        .block_bytes(256)
        .log_bytes(4 << 10)
}

/// The first part of a header of the tree was all of it, as the one before in its place was of the
/// same tree. What went to the log that went on was lost.
#[test]
fn what_is_synced_after_a_header_found_no_space_is_there() {
    let options = tiny_options();
    let mut went_on = 0;
    // A log that finds no room is tried once more, as a short one.
    for (at, times) in (1..).flat_map(|at| [(at, 1), (at, 2)]) {
        let _context = PanicContext(|| format!("no space {times} times from operation {at} on"));
        let sim = SimDisk::recording();
        let space = FlexSpace::open_on(Disk::simulated(&sim), options.clone()).unwrap();
        let begun = sim.ops();
        for _ in 0..times {
            sim.inject(Fault::once(begun + at, FaultKind::NoSpace));
        }
        let saved = space.checkpoint();
        let struck = sim.waiting_faults() < times;
        sim.clear_faults();
        assert!(saved.is_ok() || struck);
        let appended = space.append(b"more").is_ok() && space.sync().is_ok();
        let synced = sim.ops();
        went_on += u64::from(appended && saved.is_err());
        let _ = space.checkpoint();
        drop(space);
        for op in begun..=sim.ops() {
            let cuts = Tear::ALL.map(|style| sim.power_cut(op, op, style));
            for image in cuts.iter().chain([&sim.process_kill(op)]) {
                let space = FlexSpace::open_on(Disk::simulated(image), options.clone()).unwrap();
                let found = read_all(&space).unwrap();
                assert!(found.is_empty() || found == b"more", "{found:?}");
                let is_lost = appended && op >= synced && found.is_empty();
                assert!(!is_lost, "what was synced is lost after {op}");
            }
        }
        if !struck {
            break;
        }
    }
    assert!(went_on >= 1, "{went_on}");
}

/// A header of the tree that found no space ended writing, as a failed sync does, though nothing of
/// it was valid.
#[test]
fn no_space_ends_writing_only_where_a_sync_finds_none() {
    let options = tiny_options();
    let (mut went_on, mut ended) = (0, 0);
    // A log that finds no room is tried once more, as a short one.
    for (at, times) in (1..).flat_map(|at| [(at, 1), (at, 2)]) {
        let _context = PanicContext(|| format!("no space {times} times from operation {at} on"));
        let sim = SimDisk::recording();
        let space = FlexSpace::open_on(Disk::simulated(&sim), options.clone()).unwrap();
        let mut states = vec![vec![7; 3_000]];
        space.append(&states[0]).unwrap();
        space.sync().unwrap();
        space.append(&[8; 2_000]).unwrap();
        states.push([&[7; 3_000][..], &[8; 2_000]].concat());
        let begun = sim.ops();
        for _ in 0..times {
            sim.inject(Fault::once(begun + at, FaultKind::NoSpace));
        }
        let saved = space.checkpoint();
        let struck = sim.waiting_faults() < times;
        sim.clear_faults();
        match (saved, space.stats().read_only) {
            (Err(error), Some(_)) => {
                assert!(error.to_string().contains("cannot sync"), "{error}");
                ended += 1;
            }
            (saved, None) => {
                assert!(saved.is_ok() || struck);
                went_on += u64::from(saved.is_err());
                space.append(b"more").unwrap();
                space.checkpoint().unwrap();
                states.push([&states[1][..], b"more"].concat());
            }
            (Ok(()), Some(cause)) => panic!("it went well, and then {cause}"),
        }
        drop(space);
        for op in begun..=sim.ops() {
            let cuts = Tear::ALL.map(|style| sim.power_cut(op, op, style));
            for image in cuts.iter().chain([&sim.process_kill(op)]) {
                let space = FlexSpace::open_on(Disk::simulated(image), options.clone()).unwrap();
                let found = read_all(&space).unwrap();
                assert!(states.contains(&found), "{} bytes after {op}", found.len());
                let is_last = op == sim.ops() && states.len() == 3;
                assert!(!is_last || found == states[2], "it was synced");
            }
        }
        if !struck {
            break;
        }
    }
    println!("faults: {went_on} checkpoints tried again, {ended} spaces ended");
    assert!(went_on >= 4 && ended >= 5, "{went_on}, {ended}");
}
