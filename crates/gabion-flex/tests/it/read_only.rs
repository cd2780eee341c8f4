//! Spaces that are opened opened read-only: they hold the same, and nothing of them is written.

use gabion_flex::{Error, FlexSpace, Options};
use gabion_media::{Disk, SimDisk, Tear};

use crate::support::{
    PanicContext, SeededRng, Shape, Step, apply, base_seed, bytes_of, next_step, read_all,
    small_options,
};

fn raw(sim: &SimDisk) -> Vec<(String, Vec<u8>)> {
    let names = sim.names().into_iter();
    names
        .map(|name| (name.clone(), sim.raw(&name).unwrap()))
        .collect()
}

fn assert_reads(sim: &SimDisk, options: &Options, expected: Option<&[u8]>) {
    let (before, operations) = (raw(sim), sim.ops());
    let open = || FlexSpace::open_on(Disk::simulated(sim), options.clone().read_only(true));
    let (space, other) = (open().unwrap(), open().unwrap());
    let found = read_all(&space).unwrap();
    assert!(read_all(&other).unwrap() == found);
    assert!(expected.is_none_or(|expected| expected == found));
    for refused in [
        space.insert_range(0, b"x"),
        space.write_at(0, b"x"),
        space.checkpoint(),
    ] {
        let is_told = |error: &Error| error.to_string().contains("opened read-only");
        assert!(refused.as_ref().is_err_and(is_told), "{refused:?}");
    }
    space.stats();
    let locked = FlexSpace::open_on(Disk::simulated(sim), options.clone());
    assert!(locked.is_err(), "somebody reads");
    space.close();
    other.close();
    drop((space, other));
    assert_eq!(sim.ops(), operations);
    assert!(raw(sim) == before);
    let copy = sim.process_kill(sim.ops());
    let space = FlexSpace::open_on(Disk::simulated(&copy), options.clone()).unwrap();
    assert!(read_all(&space).unwrap() == found);
}

#[test]
fn what_was_closed_or_killed_reads_the_same_and_is_not_touched() {
    for number in 0..12 {
        let seed = base_seed() ^ (0x4e_0000 + number);
        let _context = PanicContext(|| format!("seed {seed}"));
        let mut random = SeededRng::new(seed);
        let options = small_options(&mut random);
        let shape = Shape {
            len: 20_000,
            data_max: 900,
            sync_in: 20,
        };
        let sim = SimDisk::recording();
        let space = FlexSpace::open_on(Disk::simulated(&sim), options.clone()).unwrap();
        for step in 0..200 {
            match next_step(&mut random, &shape, space.len()) {
                Step::Apply(changes) => apply(&space, &changes).unwrap(),
                Step::Sync => space.sync().unwrap(),
                Step::Checkpoint => space.checkpoint().unwrap(),
                _ => {}
            }
            if step % 50 == 49 {
                let killed = sim.process_kill(sim.ops());
                assert_reads(&killed, &options, None);
                for tear in Tear::ALL {
                    assert_reads(&sim.power_cut(sim.ops(), step, tear), &options, None);
                }
            }
        }
        space.checkpoint().unwrap();
        let content = read_all(&space).unwrap();
        space.close();
        drop(space);
        assert_reads(&sim, &options, Some(&content));
    }
}

#[test]
fn a_space_that_was_never_made_is_none() {
    let sim = SimDisk::new();
    let options = Options::default().read_only(true);
    let refused = FlexSpace::open_on(Disk::simulated(&sim), options.clone());
    assert!(matches!(refused, Err(Error::NotASpace { .. })));
    assert_eq!(sim.ops(), 0);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("space");
    assert!(FlexSpace::open(&path, options.clone()).is_err() && !path.exists());
    let space = FlexSpace::open(&path, Options::default()).unwrap();
    space.insert_range(0, &bytes_of(1, 5_000)).unwrap();
    space.checkpoint().unwrap();
    space.close();
    let space = FlexSpace::open(&path, options).unwrap();
    assert_eq!(read_all(&space).unwrap(), bytes_of(1, 5_000));
}
