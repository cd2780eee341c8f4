//! Damage of every file: it is named, or it changes nothing; wrong data is never read.

use gabion_flex::{Error, FlexSpace, Options, check_disk};
use gabion_media::{Disk, SimDisk};

use crate::support::{Context, Random, Step, apply, base_seed, next_step, read_all};
use crate::support::{Shape, setting};

/// A space with all kinds of content, its disk, and what it holds.
fn filled(seed: u64) -> (SimDisk, Options, Vec<u8>) {
    let mut random = Random::new(seed);
    let options = Options::default()
        .segment_bytes(4 << 10)
        .block_bytes(256)
        .log_bytes(8 << 10);
    let shape = Shape {
        len: 12_000,
        data_max: 2_000,
        sync_in: 1_000_000,
    };
    let sim = SimDisk::new();
    let space = FlexSpace::open_on(Disk::simulated(&sim), options.clone()).unwrap();
    let mut twin = Vec::new();
    for number in 0..150 {
        if let Step::Apply(changes) = next_step(&mut random, &shape, twin.len() as u64) {
            apply(&space, &changes).unwrap();
            changes.iter().for_each(|change| change.apply_to(&mut twin));
        }
        if number == 100 {
            space.checkpoint().unwrap();
        }
        if number % 10 == 9 {
            space.sync().unwrap();
        }
    }
    space.sync().unwrap();
    (sim, options, twin)
}

fn copy(sim: &SimDisk) -> SimDisk {
    let copy = SimDisk::new();
    for name in sim.names() {
        copy.set_raw(&name, sim.raw(&name).unwrap());
    }
    copy
}

/// Whether damage was named. What is read without an error must be right.
fn is_named(sim: &SimDisk, options: &Options, twin: &[u8], damaged: &str) -> bool {
    let disk = Disk::simulated(sim);
    let report = check_disk(&disk).unwrap_or_else(|error| panic!("{error}"));
    let named = report
        .problems
        .iter()
        .any(|problem| problem.file.ends_with(damaged));
    let space = match FlexSpace::open_on(disk, options.clone()) {
        Ok(space) => space,
        Err(error) => {
            assert!(error.to_string().contains("/simulated/"), "{error}");
            assert!(named, "the opening names what the check does not: {error}");
            return true;
        }
    };
    match read_all(&space) {
        Ok(found) => {
            assert!(found == twin, "wrong data was read");
            named
        }
        Err(Error::Corruption { file, .. }) => {
            assert!(file.ends_with(damaged) && named, "{}", file.display());
            true
        }
        Err(Error::Media(error)) => {
            assert!(error.to_string().contains(damaged) && named, "{error}");
            true
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_flipped_bit_anywhere_is_named_or_changes_nothing() {
    let seed = base_seed();
    let (sim, options, twin) = filled(seed);
    assert!(is_undamaged(&sim, &options, &twin));
    let mut random = Random::new(seed);
    let each = setting("GABION_FLEX_FLIPS", 600);
    let log = sim
        .names()
        .into_iter()
        .find(|name| name.ends_with(".log"))
        .unwrap();
    for name in ["DATA", "TREE", &log] {
        let bytes = sim.raw(name).unwrap();
        let mut named = 0;
        for _ in 0..each {
            let bit = random.index(bytes.len() * 8);
            let _context = Context(|| format!("seed {seed}, bit {bit} of {name}"));
            let image = copy(&sim);
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            // A flip behind the last durable frame is the torn end of a crash; one in the last
            // frame cannot be told from it, and that frame is not flipped here.
            if name == log && bit / 8 >= last_frame(&bytes) {
                continue;
            }
            image.set_raw(name, damaged);
            named += u64::from(is_named(&image, &options, &twin, name));
        }
        println!("corruption: {named} of {each} flips in {name} named");
        assert!(
            named > each / 10,
            "{named} of {each} flips in {name} are named"
        );
    }
}

/// Where the last frame of a log begins, by the lengths in the heads.
fn last_frame(log: &[u8]) -> usize {
    let len_at = |at: usize| u32::from_le_bytes(log[at + 4..at + 8].try_into().unwrap()) as usize;
    let mut at = 40;
    while len_at(at + 24 + len_at(at)) > 0 {
        at += 24 + len_at(at);
    }
    at
}

fn is_undamaged(sim: &SimDisk, options: &Options, twin: &[u8]) -> bool {
    !is_named(&copy(sim), options, twin, "DATA")
}

#[test]
fn truncated_and_missing_files_are_named() {
    let (sim, options, twin) = filled(base_seed());
    let names: Vec<String> = sim
        .names()
        .into_iter()
        .filter(|name| name != "LOCK")
        .collect();
    for name in &names {
        let bytes = sim.raw(name).unwrap();
        for part in 0..20 {
            let _context = Context(|| format!("{name} cut to {part} of 20 parts"));
            let image = copy(&sim);
            image.set_raw(name, bytes[..bytes.len() * part / 20].to_vec());
            let named = is_named(&image, &options, &twin, name);
            assert!(named || name == "DATA", "nothing is said");
        }
    }
    for name in &names {
        let image = SimDisk::new();
        for other in names.iter().filter(|other| *other != name) {
            image.set_raw(other, sim.raw(other).unwrap());
        }
        let opened = FlexSpace::open_on(Disk::simulated(&image), options.clone());
        let error = opened.expect_err("a file is missing").to_string();
        assert!(error.contains("/simulated"), "{error}");
    }
}

#[test]
fn swapped_blocks_and_files_of_other_spaces_are_named() {
    let (sim, options, twin) = filled(base_seed());
    let data = sim.raw("DATA").unwrap();
    for (a, b) in [(4096, 4096 + 256), (4096, 8192), (8192, 12_288)] {
        let image = copy(&sim);
        let mut swapped = data.clone();
        for at in 0..256 {
            swapped.swap(a + at, b + at);
        }
        image.set_raw("DATA", swapped);
        assert!(
            is_named(&image, &options, &twin, "DATA"),
            "blocks at {a} and {b}"
        );
    }
    let (other, ..) = filled(base_seed() + 1);
    for name in ["DATA", "TREE"] {
        let image = copy(&sim);
        image.set_raw(name, other.raw(name).unwrap());
        FlexSpace::open_on(Disk::simulated(&image), options.clone()).expect_err("two spaces");
    }
}
