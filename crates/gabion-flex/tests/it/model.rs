//! A space and a vector of bytes go through the same steps and must stay equal.

use gabion_flex::FlexSpace;
use gabion_media::{Disk, SimDisk};

use crate::support::{
    PanicContext, SeededRng, Shape, Step, apply, base_seed, difference, next_step, read_all,
    scattered, setting, small_options,
};

/// What the runs did.
#[derive(Debug, Default)]
struct Totals {
    collections: u64,
    checkpoints: u64,
    commits: u64,
    full: u64,
    repeated: u64,
    punched: u64,
    fetched: u64,
}

fn run(seed: u64, steps: u64, totals: &mut Totals) {
    let mut random = SeededRng::new(seed);
    let capacity = [None, Some(10 * (8 << 10)), Some(24 * (8 << 10))][random.index(3)];
    let options = small_options(&mut random).capacity_bytes(capacity);
    let shape = Shape {
        len: [2_000, 30_000, 60_000][random.index(3)],
        data_max: [100, 3_000, 20_000][random.index(3)],
        sync_in: [5, 30][random.index(2)],
    };
    let _context = PanicContext(|| format!("seed {seed}, {options:?}, {shape:?}"));
    let sim = SimDisk::new();
    let disk = Disk::simulated(&sim);
    let mut space = FlexSpace::open_on(disk.clone(), options.clone()).unwrap();
    let mut twin: Vec<u8> = Vec::new();
    // Some have many extents, so that leaves of the tree come and go.
    let groups = if random.one_in(3) { 20 } else { 0 };
    let mut filling = scattered(&mut random, groups, 100).into_iter();
    for number in 0..steps {
        let _context = PanicContext(|| format!("step {number}"));
        let step = match filling.next() {
            Some(changes) => Step::Apply(changes),
            None => next_step(&mut random, &shape, twin.len() as u64),
        };
        match &step {
            Step::Apply(changes) => match apply(&space, changes) {
                Ok(()) => changes.iter().for_each(|change| change.apply_to(&mut twin)),
                Err(gabion_flex::Error::Full { .. }) if capacity.is_some() => totals.full += 1,
                Err(error) => panic!("{error}"),
            },
            Step::Sync => space.sync().unwrap(),
            Step::Checkpoint => space.checkpoint().unwrap(),
            Step::Collect => drop(space.collect_garbage().unwrap()),
            Step::CollectSome(round) => drop(space.collect_some(*round).unwrap()),
            Step::Defrag(offset, len) => match space.defrag(*offset, *len) {
                Err(gabion_flex::Error::Full { .. }) if capacity.is_some() => totals.full += 1,
                result => result.unwrap(),
            },
            Step::Reopen => {
                space.sync().unwrap();
                add(&space, totals);
                drop(space);
                let report = gabion_flex::check_disk(&disk).unwrap();
                assert!(report.problems.is_empty(), "{report:?}");
                space = FlexSpace::open_on(disk.clone(), options.clone()).unwrap();
            }
        }
        assert_eq!(space.len(), twin.len() as u64);
        assert_budget(&space);
        if number % 16 == 0 || matches!(step, Step::Reopen | Step::Defrag(..)) {
            let found = read_all(&space).unwrap();
            assert!(
                found == twin,
                "after {step:?}: {}",
                difference(&found, &twin)
            );
        }
        let offset = random.below(twin.len() as u64 + 100);
        let mut part = vec![0; random.index(3_000)];
        let len = space.read_at(offset, &mut part).unwrap();
        let from = usize::try_from(offset).unwrap().min(twin.len());
        let to = (from + part.len()).min(twin.len());
        assert!(
            part[..len] == twin[from..to],
            "{} bytes at {offset}",
            part.len()
        );
        let len = space.read_extent(offset, &mut part).unwrap();
        assert!(part[..len] == twin[from..from + len] && (len > 0 || from == to));
    }
    if let Some(capacity) = capacity {
        assert!(disk.len_of("DATA").unwrap() <= capacity);
    }
    add(&space, totals);
}

/// Dirty leaves are three quarters of the budget at most, or the least that is worth a save, and
/// what one step adds. What is in memory besides goes when the next step begins.
fn assert_budget(space: &FlexSpace) {
    let stats = space.stats();
    if let Some(bytes) = stats.tree_memory_bytes_max {
        let leaves = (bytes / 1024).max(1);
        let dirty_max = (leaves - leaves / 4).max(8) + 450;
        assert!(stats.tree_leaves_dirty <= dirty_max, "{stats:?}");
    }
}

fn add(space: &FlexSpace, totals: &mut Totals) {
    let stats = space.stats();
    assert!(stats.live_bytes <= stats.len);
    totals.collections += stats.collections;
    totals.checkpoints += stats.checkpoints;
    totals.commits += stats.commits;
    totals.repeated += stats.repeated_operations;
    totals.punched += stats.segments_punched;
    totals.fetched += stats.tree_leaves_fetched;
}

#[test]
fn a_space_equals_a_vector_of_bytes() {
    let steps = setting("GABION_FLEX_STEPS", 30_000);
    let mut totals = Totals::default();
    for seed in base_seed()..base_seed() + 30 {
        run(seed, steps / 30, &mut totals);
    }
    println!("model: from seed {}, {totals:?}", base_seed());
    assert!(totals.collections > steps / 200, "{totals:?}");
    assert!(totals.checkpoints > steps / 200, "{totals:?}");
    assert!(
        totals.full > 10 && totals.repeated > steps / 200,
        "{totals:?}"
    );
    assert!(totals.punched > 10 && totals.fetched > steps, "{totals:?}");
}
