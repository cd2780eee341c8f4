//! Room that a space does not need any more goes back to the file system.

use gabion_flex::{FlexSpace, Options};
use gabion_media::{Disk, SimDisk};

use crate::support::{bytes_of, read_all};

const SEGMENT_BYTES: u64 = 4 << 10;

fn options() -> Options {
    Options::default()
        .segment_bytes(4 << 10)
        .block_bytes(512)
        .log_bytes(8 << 10)
}

fn open(sim: &SimDisk) -> FlexSpace {
    FlexSpace::open_on(Disk::simulated(sim), options()).unwrap()
}

/// Bytes that the files of a disk take.
fn used(sim: &SimDisk) -> u64 {
    sim.set_capacity(Some(1 << 40));
    (1 << 40) - Disk::simulated(sim).room().unwrap().free_bytes
}

/// A space of many segments, in which little is left in the first one and in the last one.
fn emptied() -> (SimDisk, FlexSpace, Vec<u8>) {
    let sim = SimDisk::new();
    let space = open(&sim);
    let data = bytes_of(1, 2_000_000);
    for part in data.chunks(10_000) {
        space.append(part).unwrap();
    }
    space.checkpoint().unwrap();
    assert!(used(&sim) > 2_000_000);
    space.collapse_range(5, 1_999_990).unwrap();
    (sim, space, [&data[..5], &data[1_999_995..]].concat())
}

/// 400 MB were imported and all but 10 bytes removed: 383 MB stayed, as only a checkpoint gave
/// room back, and it kept a reserve for the largest size that the space had ever had.
#[test]
fn what_a_space_does_not_need_goes_back_whichever_way_it_ends() {
    type End = fn(&FlexSpace);
    let ends: [(&str, End, bool); 5] = [
        ("a checkpoint", |space| space.checkpoint().unwrap(), false),
        (
            "a sync and the end",
            |space| {
                space.sync().unwrap();
                space.close();
            },
            false,
        ),
        ("a sync and an opening", |space| space.sync().unwrap(), true),
        (
            "a save and an opening",
            |space| space.checkpoint().unwrap(),
            true,
        ),
        ("a crash before the sync, and removing again", |_| (), true),
    ];
    for (what, end, is_opened) in ends {
        let (sim, space, twin) = emptied();
        end(&space);
        // As it is when the process ends now.
        let image = sim.process_kill(sim.ops());
        drop(space);
        if is_opened {
            let space = open(&image);
            if space.len() > 10 {
                space.collapse_range(5, 1_999_990).unwrap();
                space.checkpoint().unwrap();
            }
            assert!(read_all(&space).unwrap() == twin, "{what}");
            let stats = space.stats();
            assert!(
                stats.data_file_bytes <= 4 * SEGMENT_BYTES,
                "{what}: {stats:?}"
            );
        }
        // Of the tree, only a save can say what is not needed.
        let tree = image.raw("TREE").unwrap().len() as u64;
        assert!(
            tree < 20_000 || what == "a sync and the end",
            "{what}: {tree}"
        );
        let left = used(&image) - tree;
        assert!(left < 120_000, "{what}: {left} bytes are left");
        let report = gabion_flex::check_disk(&Disk::simulated(&image)).unwrap();
        assert!(report.problems.is_empty(), "{what}: {report:?}");
        assert!(read_all(&open(&image)).unwrap() == twin, "{what}");
    }
}

/// The saved tree of many extents was as long as it had ever been.
#[test]
fn the_tree_file_is_as_long_as_the_tree_needs() {
    let sim = SimDisk::new();
    let space = open(&sim);
    for number in 0..20_000 {
        space.insert_range(number * 3, b"granite").unwrap();
    }
    space.checkpoint().unwrap();
    let many = sim.raw("TREE").unwrap().len();
    space.set_len(0).unwrap();
    space.checkpoint().unwrap();
    let none = sim.raw("TREE").unwrap().len();
    assert!(many > 300_000 && none < 20_000, "{many}, then {none}");
    space.append(b"marble").unwrap();
    space.checkpoint().unwrap();
    drop(space);
    assert_eq!(read_all(&open(&sim)).unwrap(), b"marble");
}

/// An insertion that found the disk full left all that it had written until then.
#[test]
fn what_a_failed_edit_has_written_goes_back_at_once() {
    let sim = SimDisk::new();
    let space = open(&sim);
    space.append(&bytes_of(1, 30_000)).unwrap();
    space.sync().unwrap();
    let before = used(&sim);
    sim.set_capacity(Some(before + 200_000));
    for number in 0..20 {
        let error = space
            .insert_range(number, &bytes_of(2, 300_000))
            .unwrap_err();
        assert!(error.is_no_space(), "{error}");
        // But for the rest of the segment that was begun before, and what is kept aside.
        let free = Disk::simulated(&sim).room().unwrap().free_bytes;
        assert!(free > 185_000, "{free}");
    }
    space.append(&bytes_of(3, 100_000)).unwrap();
    space.checkpoint().unwrap();
    let twin = [bytes_of(1, 30_000), bytes_of(3, 100_000)].concat();
    assert!(read_all(&space).unwrap() == twin);
}

/// A reserve by the largest size ever was kept: 64 segments for two bytes.
#[test]
fn the_room_for_collections_follows_the_present_size() {
    let sim = SimDisk::new();
    let space = open(&sim);
    let mut kept = Vec::new();
    for len in [2_000_000_u64, 500_000, 50_000, 2] {
        space.set_len(0).unwrap();
        for part in bytes_of(len, usize::try_from(len).unwrap()).chunks(9_000) {
            space.append(part).unwrap();
        }
        space.checkpoint().unwrap();
        let stats = space.stats();
        kept.push(stats.data_file_bytes - stats.live_bytes);
        let most = len / 16 + len / 4 + 4 * SEGMENT_BYTES;
        assert!(stats.data_file_bytes <= len + most, "{stats:?}");
    }
    assert!(kept[0] > kept[3], "{kept:?}");
}
