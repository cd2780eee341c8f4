//! FlexTree beside a B+-tree without shifts and a sorted array, all in DRAM, on one thread.
//!
//! Inserts begin with an empty index, each at a random border of extents, and go on until it has so
//! many extents. Where an insert costs time linear in the extents, the index is filled by appends
//! and a few inserts are measured after that. Lookups and ranges run on what appends left.
//!
//! Source: the FlexSpace paper, section 6.1, table 1.

use std::hint::black_box;
use std::time::Instant;

use gabion_flex::twin::{PlainTree, SortedArray};
use gabion_flex::{Extent, FlexTree};
use gabion_media::seeded::SeededRng;

use super::Shown;
use crate::rows::{Table, column};
use crate::scale::Scale;

/// Extents of the paper's largest index.
const EXTENTS: u64 = 1_000_000_000;
/// Sizes that are measured, as parts of the largest one.
const SIZES: [(&str, u64); 3] = [("small", 100), ("middle", 10), ("large", 1)];

const EXTENT_BYTES: u32 = 4096;
const BYTES: u64 = EXTENT_BYTES as u64;
const EXTENT_MAX: u32 = 128 << 10;
/// Extents of a range.
const RANGE: u64 = 50;

/// Inserts of an index whose insert takes time linear in its extents.
const SLOW_INSERTS: u64 = 300;

/// How often an index is read.
#[derive(Clone, Copy)]
struct Reads {
    lookups: u64,
    ranges: u64,
}

/// Table 1: millions of operations per second.
pub(crate) fn operations(scale: Scale) -> Shown {
    let largest = scale.of(EXTENTS, 10_000);
    let reads = Reads {
        lookups: (largest / 4).min(2_000_000),
        ranges: (largest / 40).min(300_000),
    };
    let columns = [
        column("extents", "", 0),
        column("insert", "M/s", 5),
        column("append", "M/s", 4),
        column("lookup", "M/s", 4),
        column("range of 50", "M/s", 4),
    ];
    let mut table = Table::new("", &["size", "index"], columns).headings(1);
    for (size, part) in SIZES {
        let extents = largest / part;
        for (index, rates) in [
            ("FlexTree", flex(extents, reads)),
            ("B+-tree without shifts", plain(extents, reads)),
            ("sorted array", array(extents, reads)),
        ] {
            let [insert, append, lookup, range] = rates;
            let values = [extents as f64, insert, append, lookup, range];
            table.row(&[size, index], values);
        }
    }
    Ok(vec![table.note(
        "paper: inserts of 100 thousand and of a million extents 6.25, 5.26; 0.026, 0.0014; \
         0.028, 0.0017",
    )])
}

/// Runs `operations` and returns millions of them per second.
fn rate(operations: u64, run: impl FnOnce()) -> f64 {
    let start = Instant::now();
    run();
    operations as f64 / start.elapsed().as_secs_f64() / 1e6
}

/// The address of extent `number`: none continues another.
fn address_of(number: u64) -> u64 {
    number * BYTES * 2
}

/// A random border of extents in `len` bytes.
fn border(random: &mut SeededRng, len: u64) -> u64 {
    random.below(len / BYTES + 1) * BYTES
}

/// Rates of lookups and of ranges in an index of `len` bytes.
fn read(
    reads: Reads,
    len: u64,
    lookup: impl Fn(u64) -> Option<Extent>,
    range: impl Fn(u64, u64) -> u64,
) -> [f64; 2] {
    let mut random = SeededRng::new(7);
    let lookups = rate(reads.lookups, || {
        for _ in 0..reads.lookups {
            black_box(lookup(random.below(len)));
        }
    });
    let ranges = rate(reads.ranges, || {
        for _ in 0..reads.ranges {
            black_box(range(random.below(len), RANGE * BYTES));
        }
    });
    [lookups, ranges]
}

/// Rates of inserts into an index that was filled before.
fn slow_inserts(extents: u64, len: impl Fn(u64) -> u64, mut insert: impl FnMut(u64, u64)) -> f64 {
    let mut random = SeededRng::new(2);
    rate(SLOW_INSERTS, || {
        for number in 0..SLOW_INSERTS {
            let offset = border(&mut random, len(number));
            insert(offset, address_of(extents + number));
        }
    })
}

fn flex(extents: u64, reads: Reads) -> [f64; 4] {
    let mut tree = FlexTree::new(EXTENT_MAX);
    let mut random = SeededRng::new(1);
    let insert = rate(extents, || {
        for number in 0..extents {
            let offset = border(&mut random, tree.len());
            tree.insert(offset, BYTES, address_of(number));
        }
    });
    let mut tree = FlexTree::new(EXTENT_MAX);
    let append = rate(extents, || {
        for number in 0..extents {
            tree.append(BYTES, address_of(number));
        }
    });
    let [lookup, range] = read(
        reads,
        tree.len(),
        |offset| tree.lookup(offset),
        |offset, len| tree.range(offset, len).map(|extent| extent.address).sum(),
    );
    [insert, append, lookup, range]
}

fn plain(extents: u64, reads: Reads) -> [f64; 4] {
    let mut tree = PlainTree::new(EXTENT_MAX);
    let append = rate(extents, || {
        for number in 0..extents {
            tree.insert(tree.len(), EXTENT_BYTES, address_of(number));
        }
    });
    let [lookup, range] = read(
        reads,
        tree.len(),
        |offset| tree.lookup(offset),
        |offset, len| {
            let mut sum = 0;
            tree.for_each_in(offset, len, |extent| sum += extent.address);
            sum
        },
    );
    let filled = tree.len();
    let insert = slow_inserts(
        extents,
        |number| filled + number * BYTES,
        |offset, address| tree.insert(offset, EXTENT_BYTES, address),
    );
    [insert, append, lookup, range]
}

fn array(extents: u64, reads: Reads) -> [f64; 4] {
    let mut array = SortedArray::new(EXTENT_MAX);
    let append = rate(extents, || {
        for number in 0..extents {
            array.insert(array.len(), BYTES, address_of(number));
        }
    });
    let [lookup, range] = read(
        reads,
        array.len(),
        |offset| array.lookup(offset),
        |offset, len| array.range(offset, len).map(|extent| extent.address).sum(),
    );
    let filled = array.len();
    let insert = slow_inserts(
        extents,
        |number| filled + number * BYTES,
        |offset, address| array.insert(offset, BYTES, address),
    );
    [insert, append, lookup, range]
}
