//! Reads that are finished later than they began.

use gabion_flex::{FetchedNodes, FlexSpace, Options};
use gabion_media::{Disk, SimDisk};

use crate::support::{bytes_of, read_all};

const SEGMENT_BYTES: u32 = 4 << 10;

fn options() -> Options {
    Options::default()
        .segment_bytes(SEGMENT_BYTES)
        .block_bytes(256)
        .measure_waits(true)
}

/// A space that has been opened again, so that all of its content is on the medium only.
fn reopened(sim: &SimDisk, content: &[u8]) -> FlexSpace {
    let space = FlexSpace::open_on(Disk::simulated(sim), options()).unwrap();
    // An extent each, so that a read has many parts.
    for part in content.chunks(100).rev() {
        space.insert_range(0, part).unwrap();
    }
    space.checkpoint().unwrap();
    space.close();
    FlexSpace::open_on(Disk::simulated(sim), options()).unwrap()
}

/// What a read needs that finds all of the index in memory.
fn fetched(space: &FlexSpace) -> FetchedNodes {
    space.prepare(0, space.len()).unwrap();
    assert_eq!(space.stats().tree_nodes_absent, 0);
    FetchedNodes::default()
}

#[test]
fn a_read_sees_the_space_as_it_was_when_it_began() {
    let content = bytes_of(1, 10_000);
    let space = reopened(&SimDisk::new(), &content);
    let mut buffer = vec![0; 9_000];
    let mut fetched = fetched(&space);
    let reading = space.begin_read(500, &mut buffer, &mut fetched);
    space.insert_range(0, b"in front").unwrap();
    space.write_at(2_000, &[1; 3_000]).unwrap();
    space.collapse_range(6_000, 2_000).unwrap();
    assert_eq!(reading.finish().unwrap(), Some(9_000));
    assert_eq!(buffer, content[500..9_500]);
    assert!(space.reader_waits().count > 3);
}

#[test]
fn a_read_whose_segments_are_used_again_says_so() {
    let content = bytes_of(2, 30_000);
    let space = reopened(&SimDisk::new(), &content);
    let mut buffer = vec![0; 30_000];
    let mut outdated = 0;
    for round in 0..60_u8 {
        let before = read_all(&space).unwrap();
        let mut fetched = fetched(&space);
        let reading = space.begin_read(0, &mut buffer, &mut fetched);
        // Some rounds leave segments without data, some do so durably, some fill them again.
        space.write_at(0, &[round; 30_000]).unwrap();
        for _ in 0..round % 4 {
            space.sync().unwrap();
            space.write_at(1_000, &[round; 20_000]).unwrap();
        }
        match reading.finish().unwrap() {
            Some(len) => assert!(len == 30_000 && buffer == before, "round {round}"),
            None => outdated += 1,
        }
        space.sync().unwrap();
        let now = read_all(&space).unwrap();
        assert!(now.iter().all(|byte| *byte == round));
    }
    assert!((10..50).contains(&outdated), "{outdated} of 60");
}

#[test]
fn a_read_whose_segments_are_given_back_says_so() {
    let content = bytes_of(3, 200_000);
    let space = reopened(&SimDisk::new(), &content);
    let mut buffer = vec![0; 100_000];
    let mut fetched = fetched(&space);
    let reading = space.begin_read(50_000, &mut buffer, &mut fetched);
    space.set_len(0).unwrap();
    space.checkpoint().unwrap();
    assert!(space.stats().segments_punched > 20);
    assert_eq!(reading.finish().unwrap(), None);
    assert_eq!(space.read_at(50_000, &mut buffer).unwrap(), 0);
}

/// More than is copied from a buffer under one lock.
#[test]
fn a_read_of_a_buffer_goes_on_where_its_segment_is_written_meanwhile() {
    let space = FlexSpace::open_on(Disk::simulated(&SimDisk::new()), Options::default()).unwrap();
    let content = bytes_of(4, 3 << 20);
    space.append(&content).unwrap();
    let mut buffer = vec![0; content.len()];
    for seals in [false, true] {
        let mut fetched = fetched(&space);
        let reading = space.begin_read(0, &mut buffer, &mut fetched);
        space.insert_range(1_000_000, &bytes_of(5, 700)).unwrap();
        if seals {
            space.append(&bytes_of(6, 2 << 20)).unwrap();
        }
        assert_eq!(reading.finish().unwrap(), Some(content.len()));
        assert!(buffer == content, "seals: {seals}");
        space.collapse_range(1_000_000, 700).unwrap();
    }
    assert_eq!(
        space.read_extent(10, &mut buffer).unwrap(),
        (128 << 10) - 10
    );
    assert!(buffer[..(128 << 10) - 10] == content[10..128 << 10]);
}
