//! Opening the images that crashes leave, and checking what is in them.

use gabion_flex::FlexSpace;
use gabion_media::{Disk, SimDisk, Tear};

use super::record::{Promise, Recording};
use crate::support::{PanicContext, SeededRng, bytes_of, difference, read_all};

/// How deep power cuts nest: the second one strikes the opening after an interrupted opening.
const DEPTH: u32 = 2;

/// Power cuts after each operation.
const CUTS_PER_OPERATION: usize = 2;

/// How they tear, the more varied styles more often.
const STYLES: [Tear; 5] = [
    Tear::DropAll,
    Tear::KeepAll,
    Tear::Random512,
    Tear::Random512,
    Tear::Random4096,
];

/// What was explored.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) power_cuts: u64,
    pub(super) process_ends: u64,
    /// Power cuts while the space was opened after an earlier one.
    pub(super) during_opening: u64,
    /// Images that held fewer groups than had been begun.
    pub(super) lost: u64,
    /// Images whose log had operations to repeat.
    pub(super) repeated: u64,
    /// Images that were changed, closed, verified byte by byte and opened again.
    pub(super) changed: u64,
    /// Leaves of the tree that were fetched from an image.
    pub(super) fetched: u64,
}

impl Counts {
    /// Images that were opened.
    pub(super) fn images(&self) -> u64 {
        self.power_cuts + self.process_ends + self.during_opening
    }

    pub(super) fn merge(&mut self, other: &Counts) {
        self.power_cuts += other.power_cuts;
        self.process_ends += other.process_ends;
        self.during_opening += other.during_opening;
        self.lost += other.lost;
        self.repeated += other.repeated;
        self.changed += other.changed;
        self.fetched += other.fetched;
    }
}

/// Explores the crashes after every operation of a recording.
pub(super) fn explore(recording: &Recording) -> Counts {
    let mut explorer = Explorer {
        recording,
        random: SeededRng::new(recording.seed),
        counts: Counts::default(),
    };
    for op in 0..=recording.sim.ops() {
        explorer.crash_after(op);
    }
    explorer.counts
}

struct Explorer<'r> {
    recording: &'r Recording,
    random: SeededRng,
    counts: Counts,
}

impl Explorer<'_> {
    fn crash_after(&mut self, op: u64) {
        let Recording {
            seed, sim, options, ..
        } = self.recording;
        let promise = self.recording.promise(op);
        for _ in 0..CUTS_PER_OPERATION {
            let style = STYLES[self.random.index(STYLES.len())];
            let cut = self.random.word();
            let _context = PanicContext(|| {
                let what = sim.describe(op).unwrap_or_default();
                format!("seed {seed}, {style:?} {cut:#x} after {op} ({what}), {options:?}")
            });
            let image = sim.power_cut(op, cut, style);
            let (groups, operations) = self.check(&image, promise);
            self.counts.power_cuts += 1;
            self.counts.lost += u64::from(groups < promise.most);
            if self.random.one_in(120) {
                self.cut_during_opening(&image, groups, operations, DEPTH);
            }
        }
        if !self.random.one_in(4) {
            return;
        }
        let _context =
            PanicContext(|| format!("seed {seed}, end of the process after operation {op}"));
        let image = sim.process_kill(op);
        let (groups, _) = self.check(&image, promise);
        self.counts.process_ends += 1;
        // What an opening has found after the end of a process survives the loss of power.
        let image = sim.process_kill(op);
        drop(self.open(&image));
        let image = image.power_cut(image.ops(), self.random.word(), Tear::DropAll);
        self.counts.power_cuts += 1;
        self.check(
            &image,
            Promise {
                least: groups,
                most: groups,
            },
        );
    }

    fn open(&self, image: &SimDisk) -> FlexSpace {
        let space = FlexSpace::open_on(Disk::simulated(image), self.recording.options.clone());
        space.unwrap_or_else(|error| panic!("the image does not open: {error}"))
    }

    /// Opens an image; returns how many groups it holds and how many operations opening it took.
    fn check(&mut self, image: &SimDisk, promise: Promise) -> (usize, u64) {
        let space = self.open(image);
        let operations = image.ops();
        let found = read_all(&space).unwrap_or_else(|error| panic!("cannot be read: {error}"));
        let groups = self.groups_in(&found, promise);
        let stats = space.stats();
        self.counts.repeated += u64::from(stats.repeated_operations > 20);
        self.counts.fetched += stats.tree_leaves_fetched;
        if self.random.one_in(6) {
            self.change(image, space, found);
            self.counts.changed += 1;
        }
        (groups, operations)
    }

    fn groups_in(&self, found: &[u8], promise: Promise) -> usize {
        let history = &self.recording.history;
        let mut allowed = (promise.least..=promise.most.min(history.len() - 1)).rev();
        if let Some(groups) = allowed.find(|groups| history[*groups] == found) {
            return groups;
        }
        let other = history.iter().position(|content| content == found);
        let nearest = &history[promise.least];
        panic!(
            "{promise:?}: the image holds the result of {other:?} groups; to the least: {}",
            difference(found, nearest)
        );
    }

    /// Changes a recovered space, so much that segments are filled and used again, then verifies it
    /// and reads all again.
    fn change(&mut self, image: &SimDisk, space: FlexSpace, mut found: Vec<u8>) {
        for number in 0..6 {
            let data = bytes_of(number, self.random.index(3000));
            if found.len() > 8000 {
                let len = found.len() - 6000;
                space.collapse_range(100, len as u64).expect("collapses");
                found.drain(100..100 + len);
            }
            let at = self.random.index(found.len() + 1);
            space
                .insert_range(at as u64, &data)
                .expect("a recovered space takes changes");
            found.splice(at..at, data);
        }
        space.sync().expect("syncs");
        drop(space);
        let disk = Disk::simulated(image);
        let report = gabion_flex::check_disk(&disk).expect("a closed space is checked");
        assert!(report.problems.is_empty(), "{:?}", report.problems);
        let again = read_all(&self.open(image)).expect("is read");
        assert!(
            again == found,
            "changes after a recovery: {}",
            difference(&again, &found)
        );
    }

    /// Cuts the power at every operation of the opening that `image` has just been through, and of
    /// the one after that, down to `depth`.
    fn cut_during_opening(&mut self, image: &SimDisk, groups: usize, operations: u64, depth: u32) {
        for op in 0..=operations {
            let style = Tear::ALL[self.random.index(Tear::ALL.len())];
            let cut = self.random.word();
            let _context = PanicContext(|| {
                let what = image.describe(op).unwrap_or_default();
                format!("cut again at depth {depth}: {style:?} {cut:#x} after {op} ({what})")
            });
            let again = image.power_cut(op, cut, style);
            let space = self.open(&again);
            let found = read_all(&space).unwrap_or_else(|error| panic!("cannot be read: {error}"));
            let before = &self.recording.history[groups];
            assert!(
                found == *before,
                "another state: {}",
                difference(&found, before)
            );
            let operations = again.ops();
            drop(space);
            self.counts.during_opening += 1;
            if depth > 1 && self.random.one_in(10) {
                self.cut_during_opening(&again, groups, operations, depth - 1);
            }
        }
    }
}
