//! CCEH below write buffers, in special situations.

use std::collections::BTreeMap;

use super::tests::{compare, follow, nodes, parts, pool, waiting, with};
use super::{Base, Layered, Options};
use crate::cceh::Cceh;
use crate::suite::{SMALL, words};
use crate::{IndexPlan, Seed};

/// Segments of the size that the paper has.
type Table = Layered<Cceh<false>, 64>;

/// A plan for segments of 256 buckets.
const LARGE: IndexPlan = IndexPlan {
    capacity: 10_000,
    ..SMALL
};

/// In place, and out of place.
fn ways_to_merge(buffers: u64) -> [Options; 2] {
    [false, true].map(|merges_out_of_place| Options {
        merges_out_of_place,
        ..with(buffers)
    })
}

fn table(options: Options) -> Table {
    let pool = pool::<Cceh<false>, 64>(32 << 20);
    Layered::create_with(&pool, LARGE, options).expect("space")
}

/// The table as a crash of the process leaves it, opened with these options.
fn opened(table: Table, options: Options) -> Table {
    let pool = table.pool().clone();
    drop(table);
    Layered::open_with(&pool, options).expect("a table")
}

/// A way is for eight neighbouring buckets, and all ways of a node are for half of a segment, but
/// for what the pairs of a buffer lack to 16.
#[test]
fn ways_are_for_neighbouring_buckets() {
    let shape = <Cceh<false> as Base>::shape(LARGE.capacity);
    assert_eq!((shape.ways, shape.pairs), (32, 15));
    let index = table(with(4));
    for number in 0..2000 {
        let position = Seed::new(3).hash_u64(number);
        let bucket = position % 256;
        assert_eq!(index.base.way(position) as u64, bucket / 8);
    }
    let small = <Cceh<false> as Base>::shape(SMALL.capacity);
    assert_eq!((small.ways, small.pairs), (2, 4));
}

/// Segments of 16 KiB split, and the directory is doubled, with pairs in all ways of many nodes,
/// and with few buffers, so that some nodes have none. Each opening merges in the other way.
#[test]
fn large_segments_lose_nothing() {
    for buffers in [3, 200] {
        let options = ways_to_merge(buffers);
        let mut index = table(options[0]);
        let random = Seed::new(buffers);
        let mut twin = BTreeMap::new();
        for round in 0..4 {
            for number in 0..10_000 {
                let drawn = random.hash_u64(round << 32 | number);
                let key = random.hash_u64(drawn % 30_000);
                let (found, expected) = match drawn >> 32 & 7 {
                    0 => (index.remove(key), twin.remove(&key)),
                    _ => (index.insert(key, drawn), twin.insert(key, drawn)),
                };
                assert_eq!(found.expect("space"), expected);
            }
            let waited = waiting(&index);
            assert!(waited > 0);
            index = opened(index, options[usize::from(round % 2 == 0)]);
            assert!(waiting(&index) <= waited);
            compare(&index, &twin);
        }
        follow(&index, &mut twin, 1);
    }
}

/// Each segment has a node of its own once there was a merge there.
#[test]
fn nodes_follow_segments() {
    ways_to_merge(200).into_iter().for_each(follow_segments);
}

fn follow_segments(options: Options) {
    let index = table(options);
    let begun = nodes(&index);
    assert!(begun > 8 && begun == parts(&index));
    for number in 0..60_000 {
        let key = Seed::new(5).hash_u64(number);
        assert_eq!(index.insert(key, key).expect("space"), None);
    }
    let (had, most) = (nodes(&index), parts(&index));
    assert!(most > 2 * begun && had * 10 > most * 9, "{had} for {most}");
    index.compact().expect("space");
    assert_eq!(waiting(&index), 0);
    let most = parts(&index);
    let index = opened(index, options);
    assert_eq!(nodes(&index), most);
    words::check(&index, 60_000);
}

#[test]
fn threads_agree_about_segments() {
    for options in ways_to_merge(100) {
        words::threads_agree(&table(options));
        words::grow_by_threads(&table(options));
    }
}

/// Segments are replaced as long as the pool has space for others, and pairs go to their places
/// where they can afterwards.
#[test]
fn a_full_pool_is_merged_in_place() {
    let pool = pool::<Cceh<false>, 64>(1 << 20);
    for options in ways_to_merge(3).into_iter().skip(1) {
        let index: Table = Layered::create_with(&pool, LARGE, options).expect("space");
        words::fill_the_pool(&index);
    }
}
