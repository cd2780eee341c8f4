//! Spaces whose index does not fit: leaves of the tree come from the medium and go again.

use gabion_flex::{Edit, Error, FetchedNodes, FlexSpace, GcRound, Options, Result};
use gabion_media::{Disk, Fault, FaultKind, SimDisk};

use crate::support::{
    Change, PanicContext, SeededRng, apply, base_seed, bytes_of, difference, read_all, scattered,
};

fn options(index_bytes: Option<u64>) -> Options {
    Options::default()
        .segment_bytes(8 << 10)
        .block_bytes(256)
        .log_bytes(64 << 10)
        .index_bytes(index_bytes)
}

fn open(sim: &SimDisk, index_bytes: Option<u64>) -> FlexSpace {
    FlexSpace::open_on(Disk::simulated(sim), options(index_bytes)).unwrap()
}

/// A disk with a saved space of many small extents, and what it holds.
fn filled(seed: u64) -> (SimDisk, Vec<u8>) {
    filled_by(seed, 20)
}

/// As [`filled`], by so many groups.
fn filled_by(seed: u64, groups: u64) -> (SimDisk, Vec<u8>) {
    let sim = SimDisk::new();
    let space = open(&sim, None);
    let mut twin = Vec::new();
    for changes in scattered(&mut SeededRng::new(seed), groups, 100) {
        apply(&space, &changes).unwrap();
        changes.iter().for_each(|change| change.apply_to(&mut twin));
    }
    space.checkpoint().unwrap();
    (sim, twin)
}

fn copy(sim: &SimDisk) -> SimDisk {
    let copy = SimDisk::new();
    for name in sim.names() {
        copy.set_raw(&name, sim.raw(&name).unwrap());
    }
    copy
}

#[test]
fn opening_reads_no_leaf_and_reads_fetch_those_of_their_range() {
    let (sim, twin) = filled(base_seed());
    let space = open(&sim, None);
    let stats = space.stats();
    assert!(
        stats.tree_nodes > 60 && stats.tree_nodes_absent > 58,
        "{stats:?}"
    );
    assert_eq!((stats.tree_leaves_fetched, stats.tree_leaves_dirty), (0, 0));
    let mut part = [0; 20];
    assert_eq!(space.read_at(1_000, &mut part).unwrap(), 20);
    assert_eq!(part, twin[1_000..1_020]);
    let fetched = space.stats().tree_leaves_fetched;
    assert!((1..=2).contains(&fetched), "{fetched}");
    // They stay, as there is room for all of them.
    assert_eq!(read_all(&space).unwrap(), twin);
    assert_eq!(space.stats().tree_nodes_absent, 0);
    let fetched = space.stats().tree_leaves_fetched;
    assert_eq!(fetched, stats.tree_nodes_absent);
    assert_eq!(read_all(&space).unwrap(), twin);
    assert_eq!(space.stats().tree_leaves_fetched, fetched);
    // Another budget lets them go again.
    space.set_index_bytes(Some(20 << 10));
    let stats = space.stats();
    let in_memory = stats.tree_nodes - stats.tree_nodes_absent;
    assert!((10..=22).contains(&in_memory), "{stats:?}");
    assert_eq!(stats.tree_memory_bytes_max, Some(20 << 10));
}

#[test]
fn what_is_read_often_stays_in_memory() {
    let (sim, twin) = filled(base_seed());
    let space = open(&sim, Some(16 << 10));
    let mut random = SeededRng::new(base_seed());
    let mut byte = [0];
    let hot = |space: &FlexSpace, byte: &mut [u8]| {
        let before = space.stats().tree_leaves_fetched;
        assert_eq!(space.read_at(2_000, byte).unwrap(), 1);
        space.stats().tree_leaves_fetched - before
    };
    hot(&space, &mut byte);
    let mut misses = 0;
    for _ in 0..1_000 {
        let offset = random.below(twin.len() as u64);
        assert_eq!(space.read_at(offset, &mut byte).unwrap(), 1);
        assert_eq!(byte[0], twin[usize::try_from(offset).unwrap()]);
        misses += hot(&space, &mut byte);
    }
    let fetched = space.stats().tree_leaves_fetched;
    assert!(misses < 5 && fetched > 500, "{misses} misses of {fetched}");
}

/// What is in memory is what a budget allows, whatever happens; what changed is saved in time.
#[test]
fn the_budget_is_kept_by_changes_reads_and_collections() {
    let (sim, mut twin) = filled(base_seed());
    let budget = 24 << 10;
    let space = open(&sim, Some(budget));
    let mut random = SeededRng::new(base_seed());
    for number in 0..600_u64 {
        let offset = random.below(twin.len() as u64 + 1);
        let data = bytes_of(number, 1 + random.index(3));
        let change = Change::Insert(offset, data);
        apply(&space, std::slice::from_ref(&change)).unwrap();
        change.apply_to(&mut twin);
        if number % 50 == 0 {
            assert_eq!(read_all(&space).unwrap(), twin);
            space.defrag(offset, 60).unwrap();
        }
        if number % 150 == 0 {
            space.collect_garbage().unwrap();
        }
        let stats = space.stats();
        // A change of one byte's place touches two leaves, and cuts one.
        assert!(stats.tree_leaves_dirty <= 24 * 3 / 4 + 3, "{stats:?}");
        let in_memory = stats.tree_nodes - stats.tree_nodes_absent;
        assert!(in_memory <= 24 + 3, "{in_memory}: {stats:?}");
    }
    let stats = space.stats();
    assert!(
        stats.checkpoints > 20 && stats.checkpoints < 300,
        "{stats:?}"
    );
    // A portion of a collection may pass it for a while.
    assert!(stats.tree_memory_bytes < 100 << 10, "{stats:?}");
    assert!(stats.tree_nodes > 3 * 24, "{stats:?}");
    drop(space);
    let report = gabion_flex::check_disk(&Disk::simulated(&sim)).unwrap();
    assert!(report.problems.is_empty(), "{report:?}");
}

/// Between a look at the tree and the fetching of what is missing, the slots may be written again.
#[test]
fn a_read_that_fetches_what_is_outdated_begins_again() {
    let (sim, twin) = filled(base_seed());
    let space = open(&sim, Some(1));
    let mut outdated = 0;
    for round in 0..20_u8 {
        let mut fetched = FetchedNodes::default();
        let mut buffer = vec![0; twin.len()];
        let reading = space.begin_read(0, &mut buffer, &mut fetched);
        // All leaves change, and what they were is free twice over.
        for at in (0..twin.len() as u64).step_by(40).chain([0, 1]) {
            space.write_at(at, &[round]).unwrap();
        }
        space.checkpoint().unwrap();
        space.write_at(0, &[round]).unwrap();
        space.checkpoint().unwrap();
        assert_eq!(reading.finish().unwrap(), None);
        outdated += 1;
        let mut tries = 0;
        let len = loop {
            let reading = space.begin_read(0, &mut buffer, &mut fetched);
            if let Some(len) = reading.finish().unwrap() {
                break len;
            }
            tries += 1;
            assert!(tries < 5, "comes further each time");
        };
        assert_eq!(len, twin.len());
        assert_eq!(buffer, read_all(&space).unwrap());
        assert!(buffer.iter().step_by(40).all(|byte| *byte == round));
    }
    assert_eq!(outdated, 20);
}

/// Reads and changes that meet leaves everywhere; what is refused changes nothing. Returns how many
/// were refused.
fn strike(space: &FlexSpace, twin: &[u8]) -> u64 {
    let mut twin = twin.to_vec();
    let mut random = SeededRng::new(5);
    let mut refused = 0;
    let mut note = |result: Result<()>| match result {
        Ok(()) => true,
        Err(error) => {
            let text = error.to_string();
            assert!(text.contains("/simulated/TREE"), "{text}");
            let known = matches!(error, Error::Corruption { .. } | Error::Media(_));
            assert!(known, "{error:?}");
            refused += 1;
            false
        }
    };
    for number in 0..14 {
        let len = twin.len() as u64;
        let offset = random.below(len - 300);
        let change = match number % 7 {
            0 => Change::Insert(offset, bytes_of(number, 5)),
            1 => Change::Collapse(offset, 300),
            2 => Change::Write(offset, bytes_of(number, 200)),
            3 => Change::Punch(offset, 100),
            _ => Change::Insert(len, bytes_of(number, 3)),
        };
        if number % 7 < 4 {
            // The second one lies where the first one has moved it to.
            let second = Change::Write(offset, bytes_of(number, 20));
            let changes = [change, second];
            if note(apply(space, &changes)) {
                changes.iter().for_each(|change| change.apply_to(&mut twin));
            }
        } else {
            let mut part = vec![0; 250];
            let from = usize::try_from(offset).unwrap();
            match number % 7 {
                4 if note(space.read_at(offset, &mut part).map(drop)) => {
                    assert_eq!(part, twin[from..from + 250]);
                }
                5 => drop(note(space.extent_count(offset, 250).map(drop))),
                6 => drop(note(space.defrag(offset, 200))),
                _ => {}
            }
        }
    }
    assert_eq!(space.len(), twin.len() as u64);
    let found = match read_all(space) {
        Ok(found) => found,
        // The fault strikes once.
        Err(error) => {
            note(Err(error));
            read_all(space).unwrap()
        }
    };
    assert!(found == twin, "{}", difference(&found, &twin));
    refused
}

#[test]
fn a_fault_at_every_read_of_a_leaf_changes_nothing() {
    let (filled, twin) = filled(base_seed());
    // What is read of data is no matter here: all of it is in memory.
    let run = |fault: Option<(u64, FaultKind)>| {
        let sim = copy(&filled);
        let space = open(&sim, Some(1));
        let mut whole = vec![0; twin.len()];
        space.read_at(0, &mut whole).unwrap();
        sim.begin_trace();
        let before = sim.reads();
        if let Some((at, kind)) = fault {
            sim.inject(Fault::once(before + at, kind));
        }
        let refused = strike(&space, &twin);
        let reads = sim.reads() - before;
        space.sync().unwrap();
        drop(space);
        let report = gabion_flex::check_disk(&Disk::simulated(&sim)).unwrap();
        assert!(report.problems.is_empty(), "{report:?}");
        (reads, refused)
    };
    let (reads, refused) = run(None);
    assert!(
        reads > 40 && refused == 0,
        "{reads} reads, {refused} refused"
    );
    let mut refused = 0;
    for at in 1..=reads {
        for kind in [FaultKind::ReadEio, FaultKind::BitFlip { bit: 777 }] {
            let _context = PanicContext(|| format!("{kind:?} at read {at} of {reads}"));
            refused += run(Some((at, kind))).1;
        }
    }
    println!("leaves: {refused} refused of {} faults", 2 * reads);
    assert!(refused > reads / 4, "{refused} of {reads}");
}

/// A leaf that is damaged for good is named whenever it is needed, and the rest can be used.
#[test]
fn a_damaged_leaf_is_named_and_the_rest_goes_on() {
    let (sim, twin) = filled(base_seed());
    let tree = sim.raw("TREE").unwrap();
    let mut damaged = 0;
    for slot in (0..40).step_by(7) {
        let image = copy(&sim);
        let mut bytes = tree.clone();
        bytes[8192 + slot * 1024 + 100] ^= 1;
        image.set_raw("TREE", bytes);
        let space = match FlexSpace::open_on(Disk::simulated(&image), options(None)) {
            Ok(space) => space,
            Err(Error::Corruption { .. }) => continue,
            Err(error) => panic!("{error}"),
        };
        let Err(Error::Corruption { file, offset, .. }) = read_all(&space) else {
            continue;
        };
        damaged += 1;
        assert!(file.ends_with("TREE"));
        assert_eq!(offset, 8192 + slot as u64 * 1024);
        assert!(read_all(&space).is_err(), "it is told again");
        let mut sound = 0;
        let mut byte = [0];
        for (at, expected) in twin.iter().enumerate() {
            if space.read_at(at as u64, &mut byte).is_ok() {
                assert_eq!(byte[0], *expected);
                sound += 1;
            }
        }
        assert!(sound > twin.len() * 9 / 10 && sound < twin.len(), "{sound}");
        space.append(b"more").unwrap();
        assert!(space.set_len(0).is_err(), "it cannot be known what goes");
        space.checkpoint().unwrap();
        drop(space);
        let report = gabion_flex::check_disk(&Disk::simulated(&image)).unwrap();
        assert!(!report.problems.is_empty());
    }
    assert!(damaged > 2, "{damaged}");
}

/// What is put where a leaf went comes into a neighbour, and the last leaf that stays becomes the
/// root: both are in memory by then, wherever a group cuts.
#[test]
fn a_group_may_go_on_where_it_has_emptied_leaves() {
    let sim = SimDisk::new();
    let space = open(&sim, None);
    let mut twin = Vec::new();
    for changes in scattered(&mut SeededRng::new(base_seed()), 4, 60) {
        apply(&space, &changes).unwrap();
        changes.iter().for_each(|change| change.apply_to(&mut twin));
    }
    space.checkpoint().unwrap();
    let stats = space.stats();
    assert!(stats.tree_nodes > 6, "{stats:?}");
    drop(space);
    let len = twin.len() as u64;
    for cut in 0..=len {
        for (offset, removed) in [(cut, len - cut), (0, cut)] {
            let _context = PanicContext(|| format!("{removed} bytes at {offset} of {len}"));
            let image = copy(&sim);
            let space = open(&image, Some(1));
            let changes = [
                Change::Collapse(offset, removed),
                Change::Insert(offset, bytes_of(cut, 3)),
            ];
            apply(&space, &changes).unwrap();
            let mut twin = twin.clone();
            changes.iter().for_each(|change| change.apply_to(&mut twin));
            assert_eq!(read_all(&space).unwrap(), twin);
            space.sync().unwrap();
            drop(space);
            // The log's operations meet the same leaves.
            assert_eq!(read_all(&open(&image, Some(1))).unwrap(), twin);
        }
    }
}

/// What a group touches was reckoned as if a write of nothing behind the end lengthened the space.
#[test]
fn a_write_of_nothing_behind_the_end_touches_nothing() {
    let (sim, mut twin) = filled(base_seed());
    for offset in [twin.len() as u64 + 1, 1 << 40, u64::MAX] {
        let image = copy(&sim);
        let space = open(&image, Some(1));
        let changes = [
            Change::Write(offset, Vec::new()),
            Change::Insert(1_000, bytes_of(1, 3)),
            Change::Insert(twin.len() as u64 + 3, bytes_of(2, 3)),
            Change::Collapse(500, 20),
        ];
        apply(&space, &changes).unwrap();
        let before = twin.clone();
        changes[1..]
            .iter()
            .for_each(|change| change.apply_to(&mut twin));
        assert_eq!(read_all(&space).unwrap(), twin);
        twin = before;
    }
}

/// The hand counted the leaves it passed that were not in memory, which are most of a large tree.
#[test]
fn scans_of_a_tree_far_larger_than_its_budget_keep_to_it() {
    let (sim, twin) = filled_by(base_seed(), 1_000);
    let budget = 128 << 10;
    let space = open(&sim, Some(budget));
    for _ in 0..3 {
        assert_eq!(read_all(&space).unwrap(), twin);
    }
    let stats = space.stats();
    assert!(stats.tree_leaves_fetched > 3 * 2_000, "{stats:?}");
    // What a read fetched, and what the hand let stay as it had been read.
    let beyond = 2 * (256 << 10);
    assert!(stats.tree_memory_bytes < budget + beyond, "{stats:?}");
    // Who reads that much begins again a few times only.
    let mut buffer = vec![0; twin.len()];
    let mut fetched = FetchedNodes::default();
    let mut tries = 1;
    while (space.begin_read(0, &mut buffer, &mut fetched).finish())
        .unwrap()
        .is_none()
    {
        tries += 1;
    }
    assert!(buffer == twin && (2..=6).contains(&tries), "{tries} tries");
}

/// Without a budget each collection read all leaves that were not in memory, and kept few of them.
#[test]
fn a_collection_keeps_the_leaves_that_it_reads_where_there_is_room() {
    let sim = SimDisk::new();
    let space = open(&sim, None);
    // One before the other: each is an extent of its own, and few leaves refer to a segment.
    for number in 0..100 {
        let data = bytes_of(number, 4);
        let changes: Vec<_> = (0..100).map(|_| Change::Insert(0, data.clone())).collect();
        apply(&space, &changes).unwrap();
    }
    space.checkpoint().unwrap();
    drop(space);
    let space = open(&sim, None);
    let absent = space.stats().tree_nodes_absent;
    assert!(absent > 200, "{absent}");
    for offset in [30_000, 10_000] {
        space.collapse_range(offset, 2_000).unwrap();
        assert!(space.collect_garbage().unwrap());
    }
    let stats = space.stats();
    assert!(stats.moved_bytes > 0, "{stats:?}");
    assert_eq!(stats.tree_nodes_absent, 0, "{stats:?}");
    assert!(stats.tree_leaves_fetched <= absent, "{stats:?}");
}

/// A writer that is always at work kept the leaves that readers fetched out: each read of the same
/// place fetched them again.
#[test]
fn what_a_read_fetches_stays_though_a_writer_never_rests() {
    let (sim, twin) = filled_by(base_seed(), 500);
    for index_bytes in [None, Some(64 << 10)] {
        let space = open(&sim, index_bytes);
        let mut byte = [0];
        // The edits are asked for while the writer is at work.
        let edits = || {
            for at in (0..20).map(|round| 1_000 + round % 2 * 3_000) {
                assert_eq!(space.read_at(at, &mut byte).unwrap(), 1);
                assert_eq!(byte[0], twin[usize::try_from(at).unwrap()]);
            }
            Vec::new()
        };
        space.apply_under(edits, || ()).unwrap();
        let fetched = space.stats().tree_leaves_fetched;
        assert_eq!(fetched, 2);
        let edits = || {
            assert_eq!(read_all(&space).unwrap(), twin);
            Vec::new()
        };
        space.apply_under(edits, || ()).unwrap();
        let stats = space.stats();
        let Some(budget) = index_bytes else {
            assert_eq!(stats.tree_nodes_absent, 0, "all of them stay");
            continue;
        };
        // Nor do they take more than the budget, what the hand then lets go of at once, and what
        // is taken in at once.
        let (most, whole) = (budget + (512 << 10) + (32 << 10), stats.tree_nodes << 10);
        assert!(most < whole - (64 << 10), "{most} of {whole}");
        let in_memory = space.index_bytes();
        assert!(
            (256 << 10..=most).contains(&in_memory),
            "{in_memory} of {most}"
        );
    }
}

/// One damaged leaf of the tree ended every collection, and so did an extent beside it.
#[test]
fn a_collection_leaves_out_what_a_damaged_leaf_refers_to() {
    let sim = SimDisk::new();
    let space = open(&sim, None);
    let mut random = SeededRng::new(base_seed());
    // One before the other: each is an extent of its own, and few leaves refer to a segment.
    for number in 0..4_000 {
        let data = bytes_of(number, 20 + random.index(60));
        space.insert_range(0, &data).unwrap();
    }
    space.checkpoint().unwrap();
    drop(space);
    let tree = sim.raw("TREE").unwrap();
    let mut damaged = 0;
    for (slot, index_bytes) in (0..60)
        .step_by(7)
        .zip([None, Some(8 << 10)].into_iter().cycle())
    {
        let _context = PanicContext(|| format!("slot {slot}, index of {index_bytes:?}"));
        let image = copy(&sim);
        let mut bytes = tree.clone();
        bytes[8192 + slot * 1024 + 100] ^= 1;
        image.set_raw("TREE", bytes);
        let Ok(space) = FlexSpace::open_on(Disk::simulated(&image), options(index_bytes)) else {
            continue;
        };
        if read_all(&space).is_ok() {
            continue;
        }
        damaged += 1;
        // Garbage everywhere but beside the leaf.
        let mut at = 0;
        while at + 100 < space.len() {
            let _ = space.collapse_range(at, 100);
            at += 100;
        }
        let bytes_at = |at: u64| {
            let mut byte = [0];
            space.read_at(at, &mut byte).map(|_| byte[0]).ok()
        };
        let before: Vec<_> = (0..space.len()).step_by(7).map(bytes_at).collect();
        assert!(before.contains(&None));
        let in_use = || space.stats().segments - space.stats().segments_free;
        let used = in_use();
        let round = GcRound {
            segments: 4,
            garbage_parts: 1,
        };
        let collect = |space: &FlexSpace| space.collect_some(round).unwrap().is_some();
        let rounds = (0..1_000).take_while(|_| collect(&space)).count();
        assert!((1..1_000).contains(&rounds), "{rounds} rounds");
        assert!(in_use() < used * 3 / 4, "{} of {used} segments", in_use());
        let after: Vec<_> = (0..space.len()).step_by(7).map(bytes_at).collect();
        assert!(before == after, "what could be read is the same");
        space.checkpoint().unwrap();
        drop(space);
        let report = gabion_flex::check_disk(&Disk::simulated(&image)).unwrap();
        assert!(!report.problems.is_empty());
        let space = open(&image, index_bytes);
        while collect(&space) {}
        let bytes_at = |at: u64| {
            let mut byte = [0];
            space.read_at(at, &mut byte).map(|_| byte[0]).ok()
        };
        let again: Vec<_> = (0..space.len()).step_by(7).map(bytes_at).collect();
        assert!(before == again, "and is so after an opening");
    }
    assert!(damaged > 2, "{damaged}");
}

/// A collection failed where a leaf that it had seen in memory had gone when it was needed again,
/// and was damaged on the medium.
#[test]
fn a_collection_goes_on_where_a_leaf_that_went_is_damaged() {
    let (sim, mut twin) = filled_by(base_seed(), 500);
    let space = open(&sim, None);
    for at in (0..twin.len() / 2).step_by(150) {
        space.collapse_range(at as u64, 50).unwrap();
        twin.drain(at..at + 50);
    }
    space.checkpoint().unwrap();
    drop(space);
    let space = open(&sim, Some(64 << 10));
    // Beside a writer, reads put more leaves in than the budget allows.
    let edits = || {
        assert_eq!(read_all(&space).unwrap(), twin);
        Vec::new()
    };
    space.apply_under(edits, || ()).unwrap();
    let present = |space: &FlexSpace| {
        let stats = space.stats();
        stats.tree_nodes - stats.tree_nodes_absent
    };
    let before = present(&space);
    assert!(before > 400, "{before}");
    // What comes from the medium from here on is damaged.
    let mut tree = sim.raw("TREE").unwrap();
    tree[8192..].iter_mut().for_each(|byte| *byte ^= 1);
    sim.set_raw("TREE", tree);
    let content = |space: &FlexSpace| -> Vec<Option<u8>> {
        let mut byte = [0];
        (0..space.len())
            .map(|at| space.read_at(at, &mut byte).map(|_| byte[0]).ok())
            .collect()
    };
    let moved = space.stats().moved_bytes;
    while space.collect_garbage().unwrap() {}
    assert!(space.stats().moved_bytes > moved);
    assert!(present(&space) < before, "leaves went meanwhile");
    let left = content(&space);
    assert!(left.contains(&None));
    for (at, (left, byte)) in left.iter().zip(&twin).enumerate() {
        assert!(left.is_none_or(|left| left == *byte), "at {at}");
    }
    let at = left.windows(2).position(|pair| !pair.contains(&None));
    space.insert_range(at.unwrap() as u64 + 1, b"+").unwrap();
    space.sync().unwrap();
}

/// A disk with a saved space whose tree has more leaves than a look at it holds, and how many
/// extents it has.
fn filled_beyond_what_is_held() -> (SimDisk, usize) {
    let sim = SimDisk::new();
    let space = open(&sim, None);
    // One before the other, so each is an extent of its own.
    let (groups, group) = (1_100, 250);
    for number in 0..groups {
        let edits: Vec<_> = (0..group)
            .map(|_| Edit::Insert {
                offset: 0,
                data: &[7],
            })
            .collect();
        space.apply(&edits).unwrap();
        if number % 50 == 0 {
            space.sync().unwrap();
        }
    }
    space.checkpoint().unwrap();
    (sim, groups * group)
}

/// A look at a long range held all leaves that it had fetched until its end.
#[test]
fn looks_at_long_ranges_hold_few_leaves() {
    let (sim, all) = filled_beyond_what_is_held();
    let space = open(&sim, Some(64 << 10));
    let leaves = space.stats().tree_nodes_absent;
    assert!(leaves > 8_200, "{leaves}");
    assert_eq!(space.extent_count(0, u64::MAX).unwrap(), all);
    // It let go of what it had fetched, and went through all once more, from leaf to leaf, but for
    // the few that the tree had kept.
    let fetched = space.stats().tree_leaves_fetched;
    assert!(
        (leaves + 3_000..=leaves + 4_097).contains(&fetched),
        "{fetched} of {leaves}"
    );
    assert_eq!(space.extents(0, u64::MAX).unwrap().len(), all);
    assert_eq!(space.next_mark(0).unwrap(), None);
    assert_eq!(space.extent_count(10, 20).unwrap(), 20);
    // To prepare for a look, no leaf is read twice.
    let before = space.stats().tree_leaves_fetched;
    space.prepare(0, u64::MAX).unwrap();
    let fetched = space.stats().tree_leaves_fetched - before;
    assert!((4_000..=4_096).contains(&fetched), "{fetched}");
}

/// Who looked at a long range while its own change was under way waited for itself without end.
#[test]
fn edits_may_come_of_a_look_at_a_long_range() {
    let (sim, all) = filled_beyond_what_is_held();
    let space = open(&sim, Some(64 << 10));
    let edits = || {
        assert_eq!(space.extent_count(0, u64::MAX).unwrap(), all);
        assert_eq!(space.extents(0, u64::MAX).unwrap().len(), all);
        assert_eq!(space.next_mark(0).unwrap(), None);
        space.prepare(0, u64::MAX).unwrap();
        vec![Edit::Collapse { offset: 0, len: 1 }]
    };
    space.apply_under(edits, || ()).unwrap();
    assert_eq!(space.len(), all as u64 - 1);
}
