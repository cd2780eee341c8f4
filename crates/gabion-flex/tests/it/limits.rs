//! What cannot be done is refused with an error that says so, and changes nothing.

use gabion_flex::{Edit, Error, FlexSpace, GcRound, Options};
use gabion_media::{Disk, Purpose, SimDisk, Tear};

use crate::support::{SeededRng, Shape, Step, apply, bytes_of, next_step, read_all, small_options};

fn open(sim: &SimDisk, options: Options) -> Result<FlexSpace, Error> {
    FlexSpace::open_on(Disk::simulated(sim), options)
}

#[test]
fn a_group_with_one_impossible_edit_does_nothing() {
    let space = open(&SimDisk::new(), Options::default()).unwrap();
    space.append(b"abc").unwrap();
    let impossible = [
        Edit::Insert {
            offset: 6,
            data: b"x",
        },
        Edit::Collapse { offset: 4, len: 2 },
        Edit::Collapse {
            offset: 1,
            len: u64::MAX,
        },
        Edit::Punch { offset: 0, len: 6 },
    ];
    for edit in impossible {
        let first = Edit::Insert {
            offset: 0,
            data: b"00",
        };
        let error = space.apply(&[first, edit]).unwrap_err();
        assert!(
            matches!(error, Error::OutOfRange { space_len: 5, .. }),
            "{error}"
        );
    }
    for edit in [
        Edit::InsertHole {
            offset: 0,
            len: u64::MAX,
        },
        Edit::Write {
            offset: u64::MAX,
            data: b"x",
        },
        Edit::Write {
            offset: 1 << 48,
            data: b"x",
        },
    ] {
        let error = space.apply(&[edit]).unwrap_err();
        assert!(matches!(error, Error::TooLong { .. }), "{error}");
    }
    assert_eq!(read_all(&space).unwrap(), b"abc");
    space.set_len(1 << 48).unwrap();
    space.append(b"x").unwrap_err();
    space.sync().unwrap();
    space.set_len(2).unwrap();
    assert_eq!(read_all(&space).unwrap(), b"ab");
}

#[test]
fn empty_edits_do_nothing() {
    let space = open(&SimDisk::new(), Options::default()).unwrap();
    space.append(b"").unwrap();
    space.write_at(1 << 50, b"").unwrap();
    space.insert_hole(0, 0).unwrap();
    space.apply(&[]).unwrap();
    assert_eq!(
        (space.len(), space.read_at(0, &mut [0; 4]).unwrap()),
        (0, 0)
    );
}

#[test]
fn a_full_space_refuses_and_takes_again_what_was_removed() {
    let sim = SimDisk::new();
    let capacity = 12 * (4 << 10);
    let options = Options::default()
        .segment_bytes(4 << 10)
        .block_bytes(256)
        .capacity_bytes(Some(capacity));
    let space = open(&sim, options.clone()).unwrap();
    let mut twin = Vec::new();
    let mut refused = 0;
    for round in 0..2_000_u64 {
        let data = bytes_of(round, 700);
        let at = usize::try_from(round * 7919).unwrap() % (twin.len() + 1);
        match space.insert_range(at as u64, &data) {
            Ok(()) => drop(twin.splice(at..at, data)),
            Err(error) => {
                assert!(matches!(error, Error::Full { .. }), "{error}");
                refused += 1;
                let len = 1_000.min(twin.len() - at);
                space.collapse_range(at as u64, len as u64).unwrap();
                twin.drain(at..at + len);
            }
        }
    }
    assert!(read_all(&space).unwrap() == twin);
    let stats = space.stats();
    assert!(
        refused > 100 && stats.collections > 100,
        "{refused} refusals, {stats:?}"
    );
    // Nearly all of what the capacity promises is there.
    assert!(stats.live_bytes + 1_800 > stats.live_bytes_max, "{stats:?}");
    assert!(sim.raw("DATA").unwrap().len() as u64 <= capacity);
    space.sync().unwrap();
    drop(space);
    assert!(read_all(&open(&sim, options).unwrap()).unwrap() == twin);
}

#[test]
fn a_full_disk_refuses_and_takes_again_once_it_has_space() {
    let sim = SimDisk::recording();
    let options = Options::default()
        .segment_bytes(4 << 10)
        .block_bytes(256)
        .log_bytes(4 << 10);
    let space = open(&sim, options.clone()).unwrap();
    let (mut refused, mut went_on, mut twin) = (0, 0, Vec::new());
    for round in 0..400_u64 {
        let full = round / 50 % 2 == 1;
        if round % 50 == 0 {
            let lens = sim.names().into_iter().filter_map(|name| sim.raw(&name));
            let used: usize = lens.map(|bytes| bytes.len()).sum();
            sim.set_capacity(full.then_some(used as u64 + 9_000));
        }
        let data = bytes_of(round, 500);
        match space.append(&data).and_then(|_| {
            twin.extend(&data);
            space.sync()
        }) {
            Ok(()) => went_on += u64::from(refused > 0),
            Err(error) => {
                refused += 1;
                assert!(
                    full && error.to_string().contains("space"),
                    "round {round}: {error}"
                );
            }
        }
        assert!(read_all(&space).unwrap() == twin);
    }
    assert!(
        refused > 10 && went_on > 50,
        "{refused} refused, {went_on} went on"
    );
    sim.set_capacity(None);
    space.sync().unwrap();
    drop(space);
    assert!(read_all(&open(&sim, options).unwrap()).unwrap() == twin);
}

#[test]
fn a_space_has_one_opener_and_options_are_checked() {
    let sim = SimDisk::new();
    let first = open(
        &sim,
        Options::default().segment_bytes(8 << 10).block_bytes(256),
    )
    .unwrap();
    let error = open(&sim, Options::default()).unwrap_err();
    assert!(error.to_string().contains("locked"), "{error}");
    drop(first);
    // The sizes are those of the space, not those of a later opening.
    let again = open(&sim, Options::default()).unwrap();
    assert_eq!(again.stats().segment_bytes, 8 << 10);
    for options in [
        Options::default().segment_bytes(5000),
        Options::default().segment_bytes(2 << 10),
        Options::default().block_bytes(100),
        Options::default().log_bytes(10),
        Options::default().capacity_bytes(Some(4 << 20)),
    ] {
        let error = open(&SimDisk::new(), options).unwrap_err();
        assert!(matches!(error, Error::Options { .. }), "{error}");
    }
    let error = open(&SimDisk::new(), Options::default().create(false)).unwrap_err();
    assert!(matches!(error, Error::NotASpace { .. }), "{error}");
}

/// A space was made among somebody's files, and their logs, which have such names, too, went with
/// those that a space does not need any more.
#[test]
fn no_space_is_made_among_other_files() {
    let sim = SimDisk::new();
    let disk = Disk::simulated(&sim);
    let names = ["0000000000000007.log", "MANIFEST"];
    for name in names {
        let mut file = disk.create_random(name).unwrap();
        file.write_at(0, b"theirs", Purpose::Log).unwrap();
        file.sync().unwrap();
    }
    let error = open(&sim, Options::default()).unwrap_err();
    assert!(matches!(error, Error::NotASpace { .. }), "{error}");
    assert!(error.to_string().contains("MANIFEST"), "{error}");
    assert_eq!(disk.list().unwrap(), names);
    disk.remove("MANIFEST").unwrap();
    // What is left of a space whose making was interrupted is nobody else's.
    disk.create_random("TREE.tmp").unwrap();
    open(&sim, Options::default()).unwrap();
}

/// A space lost most of its bytes, a few in each segment stayed. More segments were in use than it
/// thought that it needed, none was free to move these bytes to, and the next write was refused as
/// if the space were full.
#[test]
fn a_space_without_a_capacity_is_not_full_after_much_of_it_was_removed() {
    let sim = SimDisk::new();
    let options = Options::default().segment_bytes(4 << 10).block_bytes(512);
    let space = open(&sim, options.clone()).unwrap();
    let mut twin = Vec::new();
    for number in 0..4_000 {
        let data = bytes_of(number, 100);
        space.append(&data).unwrap();
        twin.extend(data);
    }
    space.sync().unwrap();
    for number in 0..4_000 {
        space.collapse_range(number * 10, 90).unwrap();
    }
    let kept = twin.chunks(100).flat_map(|chunk| &chunk[90..]);
    let mut twin: Vec<u8> = kept.copied().collect();
    let segments = space.stats().segments;
    for number in 0..300 {
        let data = bytes_of(number, 500);
        space.insert_range(number * 30, &data).unwrap();
        let at = usize::try_from(number * 30).unwrap();
        twin.splice(at..at, data);
    }
    assert_eq!(read_all(&space).unwrap(), twin);
    let stats = space.stats();
    assert!(stats.collections > 0, "what was removed is used again");
    assert!(stats.segments <= segments + 10, "{stats:?}");
    space.sync().unwrap();
    drop(space);
    assert_eq!(read_all(&open(&sim, options).unwrap()).unwrap(), twin);
}

/// Small rounds come to an end, after which no segment is left that is worth one; and they win what
/// they say.
#[test]
fn small_rounds_of_collection_leave_little_garbage_and_then_nothing_to_do() {
    let sim = SimDisk::new();
    let options = Options::default().segment_bytes(8 << 10).block_bytes(512);
    let space = open(&sim, options.clone()).unwrap();
    let mut twin = Vec::new();
    for number in 0..400 {
        let data = bytes_of(number, 1_000);
        space.append(&data).unwrap();
        twin.extend(data);
    }
    for number in 0..160 {
        let at = number * 7919 % 230_000;
        space.collapse_range(at, 1_000).unwrap();
        let start = usize::try_from(at).unwrap();
        twin.drain(start..start + 1_000);
    }
    space.sync().unwrap();
    let before = space.stats();
    let used = |stats: &gabion_flex::SpaceStats| {
        u64::from(stats.segments - stats.segments_free) * stats.segment_bytes
    };
    let round = GcRound {
        segments: 3,
        garbage_parts: 4,
    };
    let (mut moved, mut rounds) = (0, 0);
    let room = space.room();
    while let Some(bytes) = space.collect_some(round).unwrap() {
        assert!(bytes <= 3 * (8 << 10) * 28 / 32, "{bytes} bytes in a round");
        (moved, rounds) = (moved + bytes, rounds + 1);
        assert!(rounds < 100, "rounds come to an end");
    }
    let after = space.stats();
    assert!(
        rounds > 5 && moved > 50_000,
        "{rounds} rounds, {moved} bytes"
    );
    assert_eq!(after.moved_bytes - before.moved_bytes, moved);
    assert!(used(&after) < used(&before) && space.room() > room);
    // An eighth of garbage in each segment at most, and two that are open.
    let most = after.live_bytes * 8 / 7 + 2 * (8 << 10);
    let footers = used(&after) / 8;
    assert!(used(&after) <= most + footers, "{after:?}");
    assert_eq!(space.collect_some(round).unwrap(), None);
    assert_eq!(read_all(&space).unwrap(), twin);
    drop(space);
    let space = open(&sim, options).unwrap();
    assert_eq!(read_all(&space).unwrap(), twin, "rounds are durable");
}

#[test]
fn a_round_that_moves_more_than_there_is_room_for_goes_on_in_parts() {
    let options = Options::default()
        .segment_bytes(4 << 10)
        .block_bytes(256)
        .capacity_bytes(Some(160 * (4 << 10)));
    let space = open(&SimDisk::new(), options).unwrap();
    let mut twin = bytes_of(1, 450_000);
    for part in twin.chunks(1_000) {
        space.append(part).unwrap();
    }
    // A third of each of the first segments is garbage now. There is no room for the rest of all.
    for at in (0..300_000).step_by(3_000) {
        let data = bytes_of(at, 1_000);
        let begin = usize::try_from(at).unwrap();
        twin[begin..begin + 1_000].copy_from_slice(&data);
        space.write_at(at, &data).unwrap();
    }
    space.sync().unwrap();
    let before = space.stats();
    assert!(
        before.collections == 0 && space.room() < 50_000,
        "{before:?}"
    );
    let round = GcRound {
        segments: u32::MAX,
        garbage_parts: 8,
    };
    let moved = space.collect_some(round).unwrap().unwrap();
    let after = space.stats();
    assert!(moved > 150_000, "{moved} bytes");
    assert_eq!(after.collections, 1);
    let ends = |stats: &gabion_flex::SpaceStats| stats.commits + stats.checkpoints;
    assert!(ends(&after) > ends(&before) + 1, "{after:?}");
    let won = after.segments_free - before.segments_free;
    assert!(won > 20, "{won} segments: {after:?}");
    assert_eq!(read_all(&space).unwrap(), twin);
}

/// A space saves its tree when it is opened, and was not opened where there was no space for that.
#[test]
fn a_space_opens_on_a_full_disk_and_is_changed_once_it_has_space() {
    // One that is managed keeps no room aside.
    let options = Options::default()
        .segment_bytes(4 << 10)
        .block_bytes(256)
        .log_bytes(4 << 10)
        .managed(true);
    let sim = SimDisk::recording();
    let space = open(&sim, options.clone()).unwrap();
    let mut before = Vec::new();
    for round in 0..60_u64 {
        let data = bytes_of(round, 300);
        let at = before.len() as u64 / 2;
        space.insert_range(at, &data).unwrap();
        let at = usize::try_from(at).unwrap();
        before.splice(at..at, data);
        space.sync().unwrap();
    }
    let (mut images, mut settled_late) = (0, 0);
    for free in (0..9_000).step_by(200) {
        let sim = sim.process_kill(sim.ops());
        let used: usize = sim
            .names()
            .iter()
            .filter_map(|name| sim.raw(name))
            .map(|bytes| bytes.len())
            .sum();
        sim.set_capacity(Some(used as u64 + free));
        let space = open(&sim, options.clone()).unwrap();
        assert!(read_all(&space).unwrap() == before);
        if space.stats().log_bytes == 0 {
            let error = space.append(b"more").unwrap_err();
            assert!(error.to_string().contains("space"), "{error}");
            assert!(space.sync().is_err());
            assert!(read_all(&space).unwrap() == before);
            settled_late += 1;
        }
        sim.set_capacity(None);
        let after = [&before[..], b"more"].concat();
        space.append(b"more").unwrap();
        space.sync().unwrap();
        drop(space);
        for op in 0..=sim.ops() {
            let cuts = Tear::ALL.map(|style| sim.power_cut(op, op ^ free, style));
            for image in cuts.iter().chain([&sim.process_kill(op)]) {
                image.set_capacity(None);
                let found = read_all(&open(image, options.clone()).unwrap()).unwrap();
                assert!(found == before || found == after, "after {op}");
                assert!(op < sim.ops() || found == after, "it was synced");
                images += 1;
            }
        }
    }
    println!("limits: {settled_late} spaces were changed late, {images} images");
    assert!(settled_late >= 10, "{settled_late}");
}

/// A space whose capacity was taken by data still told of room for its free segments, and refused
/// what was to fill them.
#[test]
fn what_a_space_has_room_for_can_be_written_anywhere() {
    let (mut written, mut some) = (0, 0);
    for seed in 0..24 {
        let mut random = SeededRng::new(seed);
        let capacity = [None, Some(10 * (8 << 10)), Some(40 * (8 << 10))][random.index(3)];
        let options = small_options(&mut random).capacity_bytes(capacity);
        let shape = Shape {
            len: [5_000, 60_000, 400_000][random.index(3)],
            data_max: [100, 3_000, 20_000][random.index(3)],
            sync_in: 8,
        };
        let sim = SimDisk::new();
        let mut space = open(&sim, options.clone()).unwrap();
        for number in 0..150 {
            let result = match next_step(&mut random, &shape, space.len()) {
                Step::Apply(changes) => apply(&space, &changes),
                Step::Sync | Step::Defrag(..) => space.sync(),
                Step::Checkpoint => space.checkpoint(),
                Step::Collect => space.collect_garbage().map(drop),
                Step::CollectSome(round) => space.collect_some(round).map(drop),
                Step::Reopen => {
                    space.sync().unwrap();
                    drop(space);
                    space = open(&sim, options.clone()).unwrap();
                    Ok(())
                }
            };
            assert!(
                matches!(result, Ok(()) | Err(Error::Full { .. })),
                "{result:?}"
            );
            if number % 3 > 0 {
                continue;
            }
            let room = space.room();
            let data = bytes_of(number, usize::try_from(room).unwrap());
            let offset = [space.len(), random.below(space.len() + 1)][random.index(2)];
            let inserted = space.insert_range(offset, &data);
            assert!(
                inserted.is_ok(),
                "seed {seed}, step {number}: {room} bytes, {inserted:?}"
            );
            space.collapse_range(offset, room).unwrap();
            (written, some) = (written + 1, some + u32::from(room > 0));
            if let Some(capacity) = capacity {
                assert!(sim.raw("DATA").unwrap().len() as u64 <= capacity);
            }
        }
    }
    assert!(written > 1_000 && some > written / 3, "{some} of {written}");
}

/// Defragmenting a range took steps as long as a segment through its holes: minutes, with the
/// writer kept out, for a hole of 2^40 bytes.
#[test]
fn defragmenting_costs_nothing_for_a_hole() {
    let fetched = |hole: u64| {
        let sim = SimDisk::new();
        // Nothing of the index stays in memory, so that each look at it is counted.
        let options = Options::default()
            .segment_bytes(4 << 10)
            .block_bytes(256)
            .index_bytes(Some(1));
        let space = open(&sim, options.clone()).unwrap();
        for number in 0..600 {
            space
                .insert_range(number * 5, &bytes_of(number, 10))
                .unwrap();
        }
        space.insert_hole(3_000, hole).unwrap();
        let extents = space.extent_count(0, 3_000).unwrap();
        let mut ends = [vec![0; 3_000], vec![0; 3_000]];
        let read = |space: &FlexSpace, ends: &mut [Vec<u8>; 2]| {
            for (offset, end) in [0, 3_000 + hole].into_iter().zip(ends) {
                assert_eq!(space.read_at(offset, end).unwrap(), 3_000);
            }
        };
        read(&space, &mut ends);
        space.checkpoint().unwrap();
        drop(space);
        let space = open(&sim, options).unwrap();
        let before = space.stats().tree_leaves_fetched;
        space.defrag(0, u64::MAX).unwrap();
        let fetched = space.stats().tree_leaves_fetched - before;
        assert!(space.extent_count(0, 3_000).unwrap() < extents / 10);
        let expected = ends.clone();
        read(&space, &mut ends);
        assert_eq!(ends, expected);
        fetched
    };
    let short = fetched(1 << 20);
    assert!((1..200).contains(&short), "{short}");
    assert!(fetched(1 << 30) <= short);
    // 2^48 bytes are 65,536 extents, which are looked at once or twice.
    let long = fetched((1 << 48) - 10_000);
    assert!(long < 6_000, "{long}");
}
