//! Marks: where units begin, whatever becomes of the extents.
//!
//! Units of random lengths, some longer than an extent or a segment, are inserted between others,
//! replaced and removed, in a space so small that its garbage is collected all the time. Every mark
//! must be where a unit begins, and the marks must not be few, also after defragmentation and after
//! opening anew.

use gabion_flex::{Edit, FlexSpace, Options};
use gabion_media::seeded::SeededRng;
use gabion_media::{Disk, SimDisk};

/// A unit: its bytes are all the same.
struct Unit {
    byte: u8,
    len: u64,
}

fn options() -> Options {
    Options::default()
        .segment_bytes(4 << 10)
        .block_bytes(256)
        .capacity_bytes(Some(256 << 10))
        .log_bytes(16 << 10)
}

fn assert_marks(space: &FlexSpace, units: &[Unit]) -> usize {
    let mut starts = Vec::new();
    let mut bytes = Vec::new();
    for unit in units {
        starts.push(bytes.len() as u64);
        bytes.resize(bytes.len() + usize::try_from(unit.len).unwrap(), unit.byte);
    }
    let mut found = vec![0; bytes.len() + 1];
    assert_eq!(space.read_at(0, &mut found).unwrap(), bytes.len());
    assert!(found[..bytes.len()] == bytes, "the content");
    let mut marks = 0;
    let mut at = 0;
    while let Some(mark) = space.next_mark(at).unwrap() {
        assert!(mark >= at);
        assert!(
            starts.binary_search(&mark).is_ok(),
            "{mark} is within a unit"
        );
        if marks == 0 {
            assert_eq!(mark, 0, "the first unit is marked");
        }
        marks += 1;
        at = mark + 1;
    }
    marks
}

/// A unit, short as a rule, and its bytes.
fn new_unit(random: &mut SeededRng, step: u64) -> (Unit, Vec<u8>) {
    let len = match random.below(50) {
        0 => 1 + random.below(10_000),
        1..=5 => 1 + random.below(600),
        _ => 1 + random.below(60),
    };
    let byte = u8::try_from(step % 251).unwrap();
    let data = vec![byte; usize::try_from(len).unwrap()];
    (Unit { byte, len }, data)
}

#[test]
fn marks_are_where_units_begin() {
    for seed in 0..4 {
        let sim = SimDisk::new();
        let mut space = FlexSpace::open_on(Disk::simulated(&sim), options()).unwrap();
        let mut random = SeededRng::new(seed);
        let mut units: Vec<Unit> = Vec::new();
        let mut collections = 0;
        for step in 0..6_000_u64 {
            let at = random.index(units.len() + 1);
            let offset: u64 = units[..at].iter().map(|unit| unit.len).sum();
            let grows = space.len() < 100 << 10;
            if at == units.len() || (grows && random.one_in(2)) {
                let (unit, data) = new_unit(&mut random, step);
                let data = &data;
                space.apply(&[Edit::InsertMarked { offset, data }]).unwrap();
                units.insert(at, unit);
            } else if random.one_in(2) {
                // One comes in the place of one or two.
                let gone = units.drain(at..units.len().min(at + 1 + random.index(2)));
                let len = gone.map(|unit| unit.len).sum();
                let (unit, data) = new_unit(&mut random, step);
                let data = &data;
                let edits = [
                    Edit::Collapse { offset, len },
                    Edit::InsertMarked { offset, data },
                ];
                space.apply(&edits).unwrap();
                units.insert(at, unit);
            } else {
                let len = units.remove(at).len;
                space.collapse_range(offset, len).unwrap();
            }
            if step % 500 == 499 {
                let marks = assert_marks(&space, &units);
                assert!(marks > units.len() / 4, "{marks} marks of {}", units.len());
                collections += space.stats().collections;
                match step / 500 % 3 {
                    0 => space.defrag(offset, 9_000).unwrap(),
                    1 => {
                        space.sync().unwrap();
                        drop(space);
                        space = FlexSpace::open_on(Disk::simulated(&sim), options()).unwrap();
                    }
                    _ => drop(space.collect_garbage().unwrap()),
                }
                assert_marks(&space, &units);
            }
        }
        assert!(collections > 0, "nothing was collected");
    }
}

/// The log made one operation of insertions that follow each other, in the space and on the medium,
/// whatever marks they had. Repeating it, the tree cut it where extents end, and marked each part.
#[test]
fn units_that_follow_each_other_keep_their_marks_when_they_are_inserted_again() {
    let sim = SimDisk::new();
    let space = FlexSpace::open_on(Disk::simulated(&sim), options()).unwrap();
    let mut units = Vec::new();
    for byte in 0..40 {
        let (offset, len) = (space.len(), 100);
        let data = [byte; 100];
        space
            .apply(&[Edit::InsertMarked {
                offset,
                data: &data,
            }])
            .unwrap();
        units.push(Unit { byte, len });
    }
    let marks = assert_marks(&space, &units);
    space.sync().unwrap();
    drop(space);
    let space = FlexSpace::open_on(Disk::simulated(&sim), options()).unwrap();
    assert_eq!(assert_marks(&space, &units), marks);
    assert!(marks > 20, "{marks}");
}

#[test]
fn a_lock_is_taken_when_only_the_change_is_left() {
    let sim = SimDisk::new();
    let space = FlexSpace::open_on(Disk::simulated(&sim), options()).unwrap();
    let data = [7; 9_000];
    let edits = [Edit::Insert {
        offset: 0,
        data: &data,
    }];
    let len = space
        .apply_under(|| edits.to_vec(), || space.len())
        .unwrap();
    assert_eq!((len, space.len()), (0, 9_000));
    let beyond = [Edit::Collapse {
        offset: 1,
        len: 9_000,
    }];
    let refused = space.apply_under(|| beyond.to_vec(), || panic!("nothing is going to change"));
    assert!(refused.is_err());
    space.close();
    assert!(space.append(b"x").is_err());
    FlexSpace::open_on(Disk::simulated(&sim), options()).unwrap();
}
