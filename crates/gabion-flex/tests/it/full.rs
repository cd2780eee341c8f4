//! A disk that is full, wherever that is met: what only removes goes on, and so does what makes
//! durable; what removing frees can be used again.

use gabion_flex::{FlexSpace, Options};
use gabion_media::{Disk, SimDisk};

use crate::support::{
    Change, PanicContext, SeededRng, Shape, Step, apply, base_seed, bytes_of, difference,
    each_seed, next_step, read_all, setting, small_options,
};

/// What the runs met.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    runs: u64,
    /// Edits that were refused.
    refused: u64,
    /// Edits that only remove, syncs and checkpoints, after something was refused.
    went: u64,
    /// Edits that went after they were refused, on the same disk.
    room_again: u64,
    /// Openings of a disk that was full.
    opened: u64,
    /// Spaces that were full, empty, and filled again.
    filled: u64,
}

/// A space on a disk that takes so many bytes, and its twin.
struct Run<'r> {
    sim: SimDisk,
    capacity: u64,
    options: &'r Options,
    space: FlexSpace,
    twin: Vec<u8>,
    /// The states since the last one that was synced, that one first.
    undurable: Vec<Vec<u8>>,
    is_refused: bool,
    counts: Counts,
}

fn open(sim: &SimDisk, options: &Options) -> FlexSpace {
    FlexSpace::open_on(Disk::simulated(sim), options.clone()).unwrap()
}

/// Whether a new space on a disk that is a little smaller has room for so many bytes.
fn fits_a_new_space(capacity: u64, options: &Options, bytes: usize) -> bool {
    let new = SimDisk::new();
    new.set_capacity(Some(capacity - capacity / 8));
    let space = FlexSpace::open_on(Disk::simulated(&new), options.clone());
    space.is_ok_and(|space| space.append(&bytes_of(7, bytes)).is_ok())
}

/// Bytes of a disk that is never full.
const LARGE: u64 = 1 << 40;

fn used(sim: &SimDisk) -> u64 {
    LARGE - Disk::simulated(sim).room().unwrap().free_bytes
}

fn only_removes(changes: &[Change]) -> bool {
    let removes = |change: &Change| matches!(change, Change::Collapse(..) | Change::Punch(..));
    changes.iter().all(removes)
}

impl Run<'_> {
    fn step(&mut self, step: &Step) {
        let result = match step {
            Step::Apply(changes) => apply(&self.space, changes),
            Step::Sync => self.space.sync(),
            Step::Checkpoint => self.space.checkpoint(),
            Step::Collect => self.space.collect_garbage().map(drop),
            Step::CollectSome(round) => self.space.collect_some(*round).map(drop),
            Step::Defrag(offset, len) => self.space.defrag(*offset, *len),
            Step::Reopen => {
                self.space.sync().unwrap();
                self.undurable = vec![self.twin.clone()];
                self.reopen();
                Ok(())
            }
        };
        let is_owed = match step {
            Step::Apply(changes) => only_removes(changes),
            Step::Sync | Step::Checkpoint | Step::Reopen => true,
            _ => false,
        };
        match result {
            Ok(()) => {
                self.counts.went += u64::from(self.is_refused && is_owed);
                if let Step::Apply(changes) = step {
                    let changes = changes.iter();
                    changes.for_each(|change| change.apply_to(&mut self.twin));
                    self.undurable.push(self.twin.clone());
                    if !is_owed {
                        self.counts.room_again += u64::from(self.is_refused);
                        self.is_refused = false;
                    }
                }
                if matches!(step, Step::Sync | Step::Checkpoint) {
                    self.undurable = vec![self.twin.clone()];
                }
            }
            Err(error) => {
                assert!(!is_owed, "{step:?} on a full disk: {error}");
                assert!(error.is_no_space(), "{step:?}: {error}");
                self.is_refused = true;
                self.counts.refused += 1;
            }
        }
        self.assert_content();
    }

    fn reopen(&mut self) {
        self.space.close();
        self.space = open(&self.sim, self.options);
        self.counts.opened += 1;
    }

    fn assert_content(&self) {
        let found = read_all(&self.space).unwrap();
        assert!(found == self.twin, "{}", difference(&found, &self.twin));
        assert_eq!(self.space.stats().read_only, None);
    }

    /// The end of the process: what is left opens on the full disk, and room can be won.
    fn kill(&mut self) {
        let image = self.sim.process_kill(self.sim.ops());
        let space = open(&image, self.options);
        self.counts.opened += 1;
        let found = read_all(&space).unwrap();
        assert!(self.undurable.contains(&found), "{} bytes", found.len());
        space.set_len(found.len() as u64 / 3).unwrap();
        space.checkpoint().unwrap();
        assert!(read_all(&space).unwrap() == found[..found.len() / 3]);
    }

    /// Removes all, part by part, and then has room for as much again.
    fn empty_and_fill(mut self) -> Counts {
        let mut random = SeededRng::new(self.twin.len() as u64);
        let most = self.twin.len() / 2;
        while !self.twin.is_empty() {
            let len = self.twin.len() as u64;
            let removed = 1 + random.below(len.min(2_000));
            let offset = random.below(len - removed + 1);
            self.step(&Step::Apply(vec![Change::Collapse(offset, removed)]));
            if random.one_in(4) {
                let steps = [Step::Sync, Step::Checkpoint, Step::Reopen];
                self.step(&steps[random.index(3)]);
            }
        }
        self.step(&Step::Checkpoint);
        if fits_a_new_space(self.capacity, self.options, most) {
            let step = Step::Apply(vec![Change::Insert(0, bytes_of(7, most))]);
            self.step(&step);
            assert_eq!(self.twin.len(), most, "what was removed has left room");
            self.counts.filled += 1;
        }
        self.step(&Step::Reopen);
        self.space.close();
        let report = gabion_flex::check_disk(&Disk::simulated(&self.sim)).unwrap();
        assert!(report.problems.is_empty(), "{report:?}");
        self.counts
    }
}

/// A workload on a disk that has room for so many bytes beside a new space.
fn play(seed: u64, room: Option<u64>) -> (Counts, u64) {
    let mut random = SeededRng::new(seed ^ 0xf011);
    let options = small_options(&mut random);
    let shape = Shape {
        len: [3_000, 20_000, 60_000][random.index(3)],
        data_max: [200, 4_000, 12_000][random.index(3)],
        sync_in: [4, 9][random.index(2)],
    };
    let sim = SimDisk::new();
    sim.set_capacity(Some(LARGE));
    let space = open(&sim, &options);
    let begun = used(&sim);
    let capacity = room.map_or(LARGE, |room| begun + room);
    sim.set_capacity(Some(capacity));
    // As where another program takes what is free.
    sim.hide_capacity(room.is_some_and(|room| room.is_multiple_of(2)));
    let mut run = Run {
        sim: sim.clone(),
        capacity,
        options: &options,
        space,
        twin: Vec::new(),
        undurable: vec![Vec::new()],
        is_refused: false,
        counts: Counts {
            runs: 1,
            ..Counts::default()
        },
    };
    let mut most = 0;
    for number in 0..100 {
        let _context = PanicContext(|| format!("step {number}, {options:?}, {shape:?}"));
        let step = next_step(&mut random, &shape, run.twin.len() as u64);
        run.step(&step);
        if room.is_none() {
            most = most.max(used(&sim) - begun);
        } else if random.one_in(12) {
            run.kill();
        }
    }
    let _context = PanicContext(|| format!("at the end, {options:?}, {shape:?}"));
    (run.empty_and_fill(), most)
}

fn fill_everywhere(seed: u64) -> Counts {
    let (mut counts, most) = play(seed, None);
    assert_eq!(counts.refused, 0);
    // The disk is full wherever the space comes to take so much.
    let step = usize::try_from(most / 40).unwrap().max(1);
    for room in (0..most).step_by(step) {
        let _context = PanicContext(|| format!("seed {seed}, {room} bytes of {most}"));
        let (run, _) = play(seed, Some(room));
        counts.runs += run.runs;
        counts.refused += run.refused;
        counts.went += run.went;
        counts.room_again += run.room_again;
        counts.opened += run.opened;
        counts.filled += run.filled;
    }
    counts
}

#[test]
fn wherever_a_disk_is_full_removing_goes_on_and_gives_room() {
    let workloads = setting("GABION_FLEX_FULL_WORKLOADS", 12);
    let mut counts = Counts::default();
    for run in each_seed(base_seed(), |begun| begun < workloads, fill_everywhere) {
        counts.runs += run.runs;
        counts.refused += run.refused;
        counts.went += run.went;
        counts.room_again += run.room_again;
        counts.opened += run.opened;
        counts.filled += run.filled;
    }
    println!("full: from seed {}, {counts:?}", base_seed());
    assert!(counts.runs > 30 * workloads, "{counts:?}");
    assert!(counts.refused > counts.runs, "{counts:?}");
    assert!(counts.went > 5 * counts.runs, "{counts:?}");
    assert!(counts.room_again > counts.runs / 4, "{counts:?}");
    assert!(counts.filled > counts.runs / 2, "{counts:?}");
    assert!(counts.opened > 2 * counts.runs, "{counts:?}");
}

/// A space without a capacity has as much garbage as its options allow. Where the medium had no
/// room for that, writes were refused with garbage beside them that nobody collected. Only a
/// managed space goes on to the end: any other has to keep room aside.
#[test]
fn garbage_is_collected_where_the_medium_has_no_room_for_more() {
    let options = Options::default()
        .segment_bytes(8 << 10)
        .block_bytes(512)
        .garbage_parts(24)
        .managed(true);
    let sim = SimDisk::new();
    sim.set_capacity(Some(1 << 20));
    let space = open(&sim, &options);
    let mut twin = bytes_of(1, 500_000);
    space.append(&twin).unwrap();
    let mut random = SeededRng::new(base_seed());
    let mut written = 0;
    while written < 5 << 20 {
        let len = 1 + random.index(6_000);
        let offset = random.index(twin.len() - len);
        let data = bytes_of(random.word(), len);
        space.write_at(offset as u64, &data).unwrap();
        twin[offset..offset + len].copy_from_slice(&data);
        written += len;
        if random.one_in(50) {
            space.sync().unwrap();
        }
    }
    let found = read_all(&space).unwrap();
    assert!(found == twin, "{}", difference(&found, &twin));
    space.checkpoint().unwrap();
    space.close();
    assert!(read_all(&open(&sim, &options)).unwrap() == twin);
}
