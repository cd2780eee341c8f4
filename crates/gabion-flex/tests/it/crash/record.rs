//! Running a workload and noting, operation by operation, what has been promised.

use gabion_flex::{Error, FlexSpace, Options};
use gabion_media::{Disk, SimDisk};

use crate::support::{
    PanicContext, SeededRng, Shape, Step, apply, difference, next_step, read_all, scattered,
    small_options,
};

/// Steps of a workload.
const STEPS: usize = 90;

/// What holds from an operation of the disk on.
#[derive(Clone, Copy, Debug)]
struct Mark {
    op: u64,
    promise: Promise,
}

/// How many groups of changes an image may hold.
#[derive(Clone, Copy, Debug)]
pub(super) struct Promise {
    pub(super) least: usize,
    pub(super) most: usize,
}

/// What a workload made the space do.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Totals {
    pub(super) collections: u64,
    pub(super) checkpoints: u64,
    pub(super) commits: u64,
    pub(super) refused: u64,
}

impl Totals {
    pub(super) fn merge(&mut self, other: &Totals) {
        self.collections += other.collections;
        self.checkpoints += other.checkpoints;
        self.commits += other.commits;
        self.refused += other.refused;
    }

    fn add(&mut self, space: &FlexSpace) {
        let stats = space.stats();
        self.collections += stats.collections;
        self.checkpoints += stats.checkpoints;
        self.commits += stats.commits;
    }
}

/// A workload that ran, its disk, and its promises.
pub(super) struct Recording {
    pub(super) seed: u64,
    pub(super) options: Options,
    pub(super) sim: SimDisk,
    /// What the space holds after the first `n` groups.
    pub(super) history: Vec<Vec<u8>>,
    pub(super) totals: Totals,
    marks: Vec<Mark>,
}

impl Recording {
    /// Runs the workload of a seed.
    pub(super) fn new(seed: u64) -> Recording {
        let _context = PanicContext(|| format!("recording the workload of seed {seed}"));
        let mut random = SeededRng::new(seed ^ 0x000f_1e55);
        let capacity = [None, Some(10 * (8 << 10))][random.index(2)];
        let options = small_options(&mut random).capacity_bytes(capacity);
        let shape = Shape {
            len: [1_500, 12_000, 35_000][random.index(3)],
            data_max: [100, 2_000, 9_000][random.index(3)],
            sync_in: [3, 6, 15][random.index(3)],
        };
        let mut recording = Recording {
            seed,
            options,
            sim: SimDisk::recording(),
            history: vec![Vec::new()],
            totals: Totals::default(),
            marks: Vec::new(),
        };
        recording.run(&mut random, &shape);
        recording
    }

    fn run(&mut self, random: &mut SeededRng, shape: &Shape) {
        let disk = Disk::simulated(&self.sim);
        let open = || FlexSpace::open_on(disk.clone(), self.options.clone()).unwrap();
        let mut space = open();
        let mut durable = 0;
        let mut history = vec![Vec::new()];
        let mut marks = vec![Mark {
            op: 0,
            promise: Promise { least: 0, most: 0 },
        }];
        let mut totals = Totals::default();
        // Some have many extents, so that leaves of the tree come and go.
        let groups = if random.one_in(3) { 6 } else { 0 };
        let mut filling = scattered(random, groups, 60).into_iter();
        for _ in 0..STEPS {
            let now: &Vec<u8> = history.last().unwrap();
            let step = match filling.next() {
                Some(changes) => Step::Apply(changes),
                None => next_step(random, shape, now.len() as u64),
            };
            let mut twin = now.clone();
            let begun = history.len() - 1 + usize::from(matches!(step, Step::Apply(_)));
            let mut mark = |durable| {
                let promise = Promise {
                    least: durable,
                    most: begun,
                };
                marks.push(Mark {
                    op: self.sim.ops(),
                    promise,
                });
            };
            mark(durable);
            let result = match &step {
                Step::Apply(changes) => apply(&space, changes),
                Step::Sync => space.sync(),
                Step::Checkpoint => space.checkpoint(),
                Step::Collect => space.collect_garbage().map(drop),
                Step::CollectSome(round) => space.collect_some(*round).map(drop),
                Step::Defrag(offset, len) => space.defrag(*offset, *len),
                Step::Reopen => {
                    space.sync().unwrap();
                    totals.add(&space);
                    drop(space);
                    space = open();
                    Ok(())
                }
            };
            match (result, &step) {
                (Err(Error::Full { .. }), _) => totals.refused += 1,
                (Err(error), _) => panic!("{step:?}: {error}"),
                (Ok(()), Step::Apply(changes)) => {
                    changes.iter().for_each(|change| change.apply_to(&mut twin));
                    history.push(twin);
                }
                (Ok(()), Step::Sync | Step::Checkpoint | Step::Reopen) => {
                    durable = history.len() - 1;
                    mark(durable);
                }
                (Ok(()), _) => {}
            }
        }
        let (found, expected) = (read_all(&space).unwrap(), history.last().unwrap());
        assert!(found == *expected, "{}", difference(&found, expected));
        totals.add(&space);
        self.history = history;
        self.marks = marks;
        self.totals = totals;
    }

    /// What an image after operation `op` may hold.
    pub(super) fn promise(&self, op: u64) -> Promise {
        let end = self.marks.partition_point(|mark| mark.op <= op);
        self.marks[end - 1].promise
    }
}
