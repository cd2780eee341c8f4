//! What is frozen stays the space of its moment, whatever becomes of the space, and the space stays
//! sound.

use gabion_flex::{FlexSpace, Frozen, Options};
use gabion_media::{Disk, Purpose, SimDisk};

use crate::support::{
    PanicContext, SeededRng, Shape, Step, apply, base_seed, difference, next_step, read_all,
    setting, small_options,
};

/// Copies the files of a frozen space to a disk.
fn copy(frozen: &Frozen) -> Disk {
    let disk = Disk::simulated(&SimDisk::new());
    for file in frozen.files() {
        let mut to = disk.create_random(&file.name).unwrap();
        for part in &file.parts {
            let mut bytes = vec![0; usize::try_from(part.len).unwrap()];
            frozen.read(part, part.offset, &mut bytes).unwrap();
            to.write_at(part.offset, &bytes, Purpose::Checkpoint)
                .unwrap();
        }
        to.cut(file.len).unwrap();
    }
    disk
}

fn assert_is(frozen: &Frozen, twin: &[u8], options: &Options) {
    let disk = copy(frozen);
    let report = gabion_flex::check_disk(&disk).unwrap();
    assert!(report.problems.is_empty(), "{report:?}");
    let space = FlexSpace::open_on(disk, options.clone().create(false)).unwrap();
    let found = read_all(&space).unwrap();
    assert!(found == twin, "{}", difference(&found, twin));
    // It can be written to, too.
    space.append(b"more").unwrap();
    space.checkpoint().unwrap();
    assert_eq!(space.len(), twin.len() as u64 + 4);
}

/// The marks of all parts that have any, with their bytes.
fn marks(frozen: &Frozen) -> Vec<(String, u64, Vec<u8>, Vec<u8>)> {
    let mut marks = Vec::new();
    for file in frozen.files() {
        for part in &file.parts {
            if let Some(mark) = frozen.mark(part).unwrap() {
                let mut bytes = vec![0; usize::try_from(part.len).unwrap()];
                frozen.read(part, part.offset, &mut bytes).unwrap();
                marks.push((file.name.clone(), part.offset, mark, bytes));
            }
        }
    }
    marks
}

fn run(seed: u64, steps: u64) -> (u64, u64) {
    let mut random = SeededRng::new(seed);
    let options = small_options(&mut random);
    let shape = Shape {
        len: [2_000, 30_000, 60_000][random.index(3)],
        data_max: [100, 3_000, 20_000][random.index(3)],
        sync_in: [5, 30][random.index(2)],
    };
    let _context = PanicContext(|| format!("seed {seed}, {options:?}, {shape:?}"));
    let space = FlexSpace::open_on(Disk::simulated(&SimDisk::new()), options.clone()).unwrap();
    let mut twin: Vec<u8> = Vec::new();
    let mut held: Vec<(Frozen, Vec<u8>)> = Vec::new();
    let mut seen: Vec<(String, u64, Vec<u8>, Vec<u8>)> = Vec::new();
    let (mut compared, mut known) = (0, 0);
    for number in 0..steps {
        let _context = PanicContext(|| format!("step {number}"));
        match next_step(&mut random, &shape, twin.len() as u64) {
            Step::Apply(changes) => {
                apply(&space, &changes).unwrap();
                changes.iter().for_each(|change| change.apply_to(&mut twin));
            }
            Step::Sync => space.sync().unwrap(),
            Step::Checkpoint => space.checkpoint().unwrap(),
            Step::Collect => drop(space.collect_garbage().unwrap()),
            Step::CollectSome(round) => drop(space.collect_some(round).unwrap()),
            Step::Defrag(offset, len) => space.defrag(offset, len).unwrap(),
            Step::Reopen => {}
        }
        if random.one_in(25) {
            let frozen = space.freeze().unwrap();
            for mark in marks(&frozen) {
                let before = seen
                    .iter()
                    .rev()
                    .find(|own| (&own.0, own.1, &own.2) == (&mark.0, mark.1, &mark.2));
                match before {
                    // Of nodes, what no tree refers to may change.
                    Some(before) if mark.0 == "DATA" => {
                        assert!(before.3 == mark.3, "the mark is that of other bytes");
                        known += 1;
                    }
                    Some(_) => {}
                    None => seen.push(mark),
                }
            }
            held.push((frozen, twin.clone()));
        }
        if !held.is_empty() && random.one_in(15) {
            let (frozen, twin) = held.swap_remove(random.index(held.len()));
            assert_is(&frozen, &twin, &options);
            compared += 1;
        }
        if number % 16 == 0 {
            let found = read_all(&space).unwrap();
            assert!(found == twin, "{}", difference(&found, &twin));
        }
    }
    for (frozen, twin) in held {
        assert_is(&frozen, &twin, &options);
        compared += 1;
    }
    (compared, known)
}

#[test]
fn what_is_frozen_stays_as_it_is() {
    let steps = setting("GABION_FLEX_STEPS", 30_000) / 3;
    let (mut compared, mut known) = (0, 0);
    for seed in base_seed()..base_seed() + 20 {
        let (more, marked) = run(seed, steps / 20);
        compared += more;
        known += marked;
    }
    println!("frozen: {compared} moments, {known} parts known by their marks");
    assert!(
        compared > steps / 40 && known > compared,
        "{compared}, {known}"
    );
}

/// A space that was held grows, and gives back what it grew by.
#[test]
fn a_space_wins_its_room_back_when_nothing_is_held_any_more() {
    let sim = SimDisk::new();
    let options = Options::default().segment_bytes(4 << 10).block_bytes(512);
    let space = FlexSpace::open_on(Disk::simulated(&sim), options).unwrap();
    let data = |number| crate::support::bytes_of(number, 100_000);
    space.append(&data(0)).unwrap();
    let frozen = space.freeze().unwrap();
    for number in 1..40 {
        space.write_at(0, &data(number)).unwrap();
        space.sync().unwrap();
    }
    let grown = space.stats().data_file_bytes;
    assert!(grown > 3_900_000, "{grown}");
    drop(frozen);
    for number in 40..44 {
        space.write_at(0, &data(number)).unwrap();
        space.checkpoint().unwrap();
    }
    let left = space.stats().data_file_bytes;
    assert!(left < 1_000_000, "{left}");
    assert!(read_all(&space).unwrap() == data(43));
}

/// A moment of a space that has not changed costs no save.
#[test]
fn what_has_not_changed_is_not_saved_again() {
    let sim = SimDisk::new();
    let space = FlexSpace::open_on(Disk::simulated(&sim), Options::default()).unwrap();
    space.append(&crate::support::bytes_of(1, 10_000)).unwrap();
    drop(space.freeze().unwrap());
    let (before, point) = (sim.ops(), space.durable_point());
    for _ in 0..3 {
        drop(space.freeze().unwrap());
    }
    assert_eq!((sim.ops(), space.durable_point()), (before, point));
    space.append(b"more").unwrap();
    drop(space.freeze().unwrap());
    assert!(space.durable_point() > point);
}
