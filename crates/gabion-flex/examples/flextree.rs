//! Measures FlexTree beside a B+-tree without shifts and a sorted array.
//!
//! ```text
//! cargo run --release -p gabion-flex --example flextree -- [EXTENTS ...]
//! ```
//!
//! Prints millions of operations per second, one thread. Inserts begin with an empty index and go
//! on until it has so many extents; where inserting costs time linear in the extents, the last
//! inserts are measured alone. All other operations run on the index that the inserts left.

use std::hint::black_box;
use std::time::Instant;

use gabion_flex::twin::{PlainTree, SortedArray};
use gabion_flex::{Extent, FlexTree};
use gabion_media::seeded::Random;

const EXTENT_BYTES: u32 = 4096;
const EXTENT_MAX: u32 = 128 << 10;
const LOOKUPS: u64 = 2_000_000;
const RANGES: u64 = 300_000;
const RANGE_EXTENTS: u64 = 50;

/// Inserts of an index whose insert takes time linear in its extents.
const SLOW_INSERTS: u64 = 300;

/// Runs `operations` and returns millions of them per second.
fn rate(operations: u64, run: impl FnOnce()) -> f64 {
    let start = Instant::now();
    run();
    #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
    let operations = operations as f64;
    operations / start.elapsed().as_secs_f64() / 1e6
}

/// The address of extent `number`: none continues another.
fn address_of(number: u64) -> u64 {
    number * u64::from(EXTENT_BYTES) * 2
}

/// A place for an insertion into `len` bytes, at a border of extents or in the middle of one.
fn place(random: &mut Random, len: u64, border: bool) -> u64 {
    let bytes = u64::from(EXTENT_BYTES);
    if border {
        random.below(len / bytes + 1) * bytes
    } else {
        random.below(len + 1)
    }
}

fn print(name: &str, rates: &[(&str, f64)]) {
    print!("  {name:<22}");
    for (what, rate) in rates {
        print!("  {what} {rate:>9.4}");
    }
    println!();
}

fn reads(
    len: u64,
    lookup: impl Fn(u64) -> Option<Extent>,
    range: impl Fn(u64, u64) -> u64,
) -> [(&'static str, f64); 2] {
    let mut random = Random::new(7);
    let lookups = rate(LOOKUPS, || {
        for _ in 0..LOOKUPS {
            black_box(lookup(random.below(len)));
        }
    });
    let ranges = rate(RANGES, || {
        for _ in 0..RANGES {
            black_box(range(
                random.below(len),
                RANGE_EXTENTS * u64::from(EXTENT_BYTES),
            ));
        }
    });
    [("lookup", lookups), ("range50", ranges)]
}

fn flex(extents: u64) {
    let bytes = u64::from(EXTENT_BYTES);
    for (name, border) in [("FlexTree, borders", true), ("FlexTree, middles", false)] {
        let mut tree = FlexTree::new(EXTENT_MAX);
        let mut random = Random::new(1);
        // An insertion in the middle adds two extents.
        let inserts = if border { extents } else { extents / 2 };
        let inserted = rate(inserts, || {
            for number in 0..inserts {
                let offset = place(&mut random, tree.len(), border);
                tree.insert(offset, bytes, address_of(number));
            }
        });
        let [lookups, ranges] = reads(
            tree.len(),
            |offset| tree.lookup(offset),
            |offset, len| tree.range(offset, len).map(|extent| extent.address).sum(),
        );
        let collapses = inserts / 2;
        let collapsed = rate(collapses, || {
            for _ in 0..collapses {
                let offset = place(&mut random, tree.len() - bytes, border);
                tree.collapse(offset, bytes, |extent| {
                    black_box(extent);
                });
            }
        });
        print(
            name,
            &[
                ("insert", inserted),
                lookups,
                ranges,
                ("collapse", collapsed),
            ],
        );
    }
    let mut tree = FlexTree::new(EXTENT_MAX);
    let appended = rate(extents, || {
        for number in 0..extents {
            tree.append(bytes, address_of(number));
        }
    });
    let [lookups, ranges] = reads(
        tree.len(),
        |offset| tree.lookup(offset),
        |offset, len| tree.range(offset, len).map(|extent| extent.address).sum(),
    );
    print(
        "FlexTree, appended",
        &[("append", appended), lookups, ranges],
    );
}

fn plain(extents: u64) {
    let bytes = u64::from(EXTENT_BYTES);
    let mut tree = PlainTree::new(EXTENT_MAX);
    let appended = rate(extents, || {
        for number in 0..extents {
            tree.insert(tree.len(), EXTENT_BYTES, address_of(number));
        }
    });
    let [lookups, ranges] = reads(
        tree.len(),
        |offset| tree.lookup(offset),
        |offset, len| {
            let mut sum = 0;
            tree.for_each_in(offset, len, |extent| sum += extent.address);
            sum
        },
    );
    let mut random = Random::new(2);
    let inserted = rate(SLOW_INSERTS, || {
        for number in 0..SLOW_INSERTS {
            let offset = random.below(tree.len() / bytes + 1) * bytes;
            tree.insert(offset, EXTENT_BYTES, address_of(extents + number));
        }
    });
    let rates = [("append", appended), lookups, ranges, ("insert", inserted)];
    print("B+-tree, no shifts", &rates);
}

fn array(extents: u64) {
    let bytes = u64::from(EXTENT_BYTES);
    let mut array = SortedArray::new(EXTENT_MAX);
    let appended = rate(extents, || {
        for number in 0..extents {
            array.insert(array.len(), bytes, address_of(number));
        }
    });
    let [lookups, ranges] = reads(
        array.len(),
        |offset| array.lookup(offset),
        |offset, len| array.range(offset, len).map(|extent| extent.address).sum(),
    );
    let mut random = Random::new(2);
    let inserted = rate(SLOW_INSERTS, || {
        for number in 0..SLOW_INSERTS {
            let offset = random.below(array.len() / bytes + 1) * bytes;
            array.insert(offset, bytes, address_of(extents + number));
        }
    });
    let rates = [("append", appended), lookups, ranges, ("insert", inserted)];
    print("sorted array", &rates);
}

fn main() {
    let sizes: Vec<u64> = std::env::args()
        .skip(1)
        .map(|size| size.parse().expect("a number of extents"))
        .collect();
    let sizes = if sizes.is_empty() {
        vec![100_000, 1_000_000, 10_000_000]
    } else {
        sizes
    };
    for extents in sizes {
        println!("{extents} extents, M/s");
        flex(extents);
        plain(extents);
        array(extents);
    }
}
