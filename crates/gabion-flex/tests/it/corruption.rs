//! Damage of every file: it is named, or it changes nothing; wrong data is never read.

use gabion_flex::{Error, FlexSpace, Options, PieceContent, check_content, check_disk};
use gabion_media::{Disk, SimDisk};

use crate::support::{PanicContext, SeededRng, Step, apply, base_seed, next_step, read_all};
use crate::support::{Shape, setting};

/// A space with all kinds of content, its disk, and what it holds.
fn filled(seed: u64) -> (SimDisk, Options, Vec<u8>) {
    let mut random = SeededRng::new(seed);
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
    let mut random = SeededRng::new(seed);
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
            let _context = PanicContext(|| format!("seed {seed}, bit {bit} of {name}"));
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
        .filter(|name| !["LOCK", "RESERVE"].contains(&name.as_str()))
        .collect();
    // The room that is kept aside holds nothing.
    let image = copy(&sim);
    image.set_raw("RESERVE", Vec::new());
    assert!(!is_named(&image, &options, &twin, "RESERVE"));
    for name in &names {
        let bytes = sim.raw(name).unwrap();
        for part in 0..20 {
            let _context = PanicContext(|| format!("{name} cut to {part} of 20 parts"));
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

/// A space that had been opened once, and whose newer header was damaged, was taken for one that
/// was never used, and was made anew: all that it held was gone without a word.
#[test]
fn a_space_is_not_made_anew_when_its_newer_header_is_damaged() {
    let sim = SimDisk::new();
    let space = FlexSpace::open_on(Disk::simulated(&sim), Options::default()).unwrap();
    space.append(b"all of it").unwrap();
    space.sync().unwrap();
    let reached = space.durable_point();
    assert_eq!(reached.tree_version, 2);
    drop(space);
    let mut tree = sim.raw("TREE").unwrap();
    tree[0] ^= 1;
    sim.set_raw("TREE", tree.clone());
    let report = check_disk(&Disk::simulated(&sim)).unwrap();
    assert_eq!(report.problems.len(), 1, "{report:?}");
    let error = FlexSpace::open_on(Disk::simulated(&sim), Options::default());
    let error = error.expect_err("the space is damaged");
    assert!(matches!(error, Error::Corruption { .. }), "{error}");

    // Without any trace of the header, only somebody who knows of it can tell.
    tree[..512].fill(0);
    sim.set_raw("TREE", tree);
    let strict = Options::default().reached(reached);
    FlexSpace::open_on(Disk::simulated(&sim), strict).expect_err("the header is missing");
    let report = check_content(&Disk::simulated(&sim), reached, |_| {}).unwrap();
    assert_eq!(report.problems.len(), 1, "{report:?}");
}

/// The newest commit of a log cannot be told from a torn one by the log alone.
#[test]
fn a_space_that_ends_before_the_moment_that_it_reached_is_refused() {
    let (sim, options, twin) = filled(base_seed());
    let space = FlexSpace::open_on(Disk::simulated(&sim), options.clone()).unwrap();
    let before = space.durable_point();
    space.append(b"the newest commit").unwrap();
    space.sync().unwrap();
    let reached = space.durable_point();
    assert!(reached > before);
    drop(space);
    let log = sim.names().into_iter().find(|name| name.ends_with(".log"));
    let log = log.unwrap();
    let image = copy(&sim);
    let mut bytes = image.raw(&log).unwrap();
    let last = last_frame(&bytes);
    bytes[last + 30] ^= 1;
    image.set_raw(&log, bytes);

    let strict = options.clone().reached(reached);
    for _ in 0..2 {
        let opened = FlexSpace::open_on(Disk::simulated(&image), strict.clone());
        let error = opened.expect_err("the newest commit is missing");
        let Error::Corruption { file, offset, .. } = error else {
            panic!("{error}");
        };
        assert!(file.ends_with(&log));
        assert_eq!(offset, last as u64);
        let report = check_content(&Disk::simulated(&image), reached, |_| {}).unwrap();
        assert_eq!(report.problems.len(), 1, "{report:?}");
    }
    let earlier = FlexSpace::open_on(Disk::simulated(&image), options.reached(before)).unwrap();
    assert_eq!(read_all(&earlier).unwrap(), twin);
    let whole = FlexSpace::open_on(Disk::simulated(&sim), strict.clone()).unwrap();
    assert_eq!(
        read_all(&whole).unwrap(),
        [&twin[..], b"the newest commit"].concat()
    );
    drop(whole);
    // A space that is not there at all has not come that far either.
    let empty = SimDisk::new();
    assert!(FlexSpace::open_on(Disk::simulated(&empty), strict.create(false)).is_err());
}

#[test]
fn a_check_hands_out_the_whole_content() {
    let (sim, _, twin) = filled(base_seed());
    let mut found = Vec::new();
    let mut holes = 0;
    let reached = gabion_flex::DurablePoint::default();
    let report = check_content(&Disk::simulated(&sim), reached, |piece| {
        assert_eq!(piece.offset, found.len() as u64);
        let end = usize::try_from(piece.offset + piece.len).unwrap();
        match piece.content {
            PieceContent::Data(bytes) => found.extend_from_slice(bytes),
            _ => holes += 1,
        }
        found.resize(end, 0);
    });
    assert!(report.unwrap().problems.is_empty());
    assert!(found == twin, "the content is that of the space");
    assert!(holes > 0);
}

/// Which records of 50 bytes can be read. Those that can are what they should be.
fn readable(space: &FlexSpace, twin: &[u8]) -> Vec<bool> {
    let records = twin.chunks(50).zip(0..);
    let is_read = |(record, number): (&[u8], u64)| {
        let mut bytes = [0; 50];
        match space.read_at(number * 50, &mut bytes) {
            Ok(read) => {
                assert!(read == 50 && bytes == record, "record {number}");
                true
            }
            Err(Error::Corruption { .. }) => false,
            Err(error) => panic!("{error}"),
        }
    };
    records.map(is_read).collect()
}

/// What a collection moves it reads many extents at a time: where some of them are damaged, these
/// stay and are named, and the others move.
#[test]
fn a_collection_moves_what_stands_beside_damage() {
    let options = Options::default()
        .segment_bytes(4 << 10)
        .block_bytes(256)
        .log_bytes(64 << 10);
    let sim = SimDisk::new();
    let space = FlexSpace::open_on(Disk::simulated(&sim), options.clone()).unwrap();
    let mut twin = Vec::new();
    // The last one first, so that none lies beside its neighbour.
    for number in 0..400_u16 {
        let record = number.to_le_bytes().repeat(25);
        space.insert_range(0, &record).unwrap();
        twin.splice(0..0, record);
    }
    for at in (0..400).rev().filter(|at| at % 3 == 0) {
        space.collapse_range(at as u64 * 50, 50).unwrap();
        twin.drain(at * 50..at * 50 + 50);
    }
    space.checkpoint().unwrap();
    drop(space);
    let bytes = sim.raw("DATA").unwrap();
    let mut damaged = 0;
    for at in (0..bytes.len()).step_by(900) {
        let image = copy(&sim);
        let mut flipped = bytes.clone();
        flipped[at] ^= 4;
        image.set_raw("DATA", flipped);
        let Ok(space) = FlexSpace::open_on(Disk::simulated(&image), options.clone()) else {
            continue;
        };
        let before = readable(&space, &twin);
        let rounds = (0..1_000).take_while(|_| space.collect_garbage().unwrap());
        assert!(rounds.count() < 1_000);
        assert_eq!(readable(&space, &twin), before, "byte {at}");
        let moved = space.stats().moved_bytes;
        assert!(moved > twin.len() as u64 / 2, "{moved} bytes");
        damaged += usize::from(before.contains(&false));
    }
    assert!(damaged > 5, "{damaged}");
}
