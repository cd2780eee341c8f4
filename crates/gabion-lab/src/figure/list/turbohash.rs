//! What chapter 3 claims of TurboHash.

use super::super::{Figure, FigureSource, Ours, Paper, Rule, curves};
use crate::rows::{Cell, cell};
use crate::structure::{hashes, medium, shape};

/// Why other tables write no more than TurboHash.
const LOCKS_IN_DRAM: &str = "The paper names locks in persistent memory as the cause; those of our \
                             tables are in DRAM.";
/// Why TurboHash's lookups take longer than CCEH's.
const TWO_LINES: &str = "A lookup reads the line of the tags and that of the slot, CCEH's mostly \
                         one line; they lie in one media line of 256 bytes, but on the model the \
                         second waits for the first.";
/// Why TurboHash's inserts take as long as CCEH's.
const TWO_PERSISTS: &str = "An insert persists twice, its slot and then the metadata, and CCEH's \
                            once.";
/// Why P-CLHT is faster.
const SMALL_PAIRS: &str = "P-CLHT reads one line here and persists once; the paper's has pairs of \
                           30 bytes, which lie apart.";
/// Why CCEH does not read so much more for absent keys.
const SIXTEEN_LINES: &str = "CCEH looks at eight lines from each of two homes on, as the published \
                             code does: 1,423 bytes, with 240,000 pairs. TurboHash reads 383, \
                             some more than one line of the media.";
/// Why clevel does not cost so much more than TurboHash.
const OWN_ITEMS: &str = "clevel reads 1,182 bytes and writes 352, of which 256 are the line of its \
                         slot: items of a thread lie side by side, without headers of an \
                         allocator. TurboHash, which the paper has far below, reads 545 and \
                         writes 410.";

/// States of a table in figures 3.9 and 3.10.
const LOADED: &str = "(a) loaded";
const LOADED_ANEW: &str = "(b) deleted and loaded anew";
const COLLECTED: &str = "(c) garbage collected";

/// What another table costs for an operation, over what TurboHash does.
macro_rules! over_turbohash {
    ($pairs:literal $table:literal $operation:literal $column:literal) => {
        Ours::Ratio(
            cell(&[$pairs, $table, $operation], $column),
            cell(&[$pairs, "TurboHash", $operation], $column),
        )
    };
}

/// What TurboHash does of a mix on the model, over what another table does.
macro_rules! turbohash_over {
    ($table:literal $mix:literal) => {
        Ours::Ratio(
            cell(&["on the model", "8 + 8 bytes", "TurboHash"], $mix),
            cell(&["on the model", "8 + 8 bytes", $table], $mix),
        )
    };
}

pub(super) const PAPER: Paper = Paper {
    title: "X. Zhao: dissertation on key-value stores for SSDs and persistent memory, TurboHash",
    figures: FIGURES,
};

const FIGURES: &[Figure] = &[
    Figure {
        name: "3.1",
        about: "load and probe distance before a rehash, by the scope of linear probing",
        making: FigureSource::Structure(shape::scopes),
        claims: claims! {
            "With a scope of 16 buckets a table is full at a load of 0.8" Count
            Rule::Near(0.15) => [
                "sixth rehash" 0.8 Ours::Cell(cell(&["16"], "6th load"));
            ]
            "and a search looks at 1.7 buckets then" Count Rule::Near(0.15) => [
                "sixth rehash" 1.7 Ours::Cell(cell(&["16"], "6th distance")),
                    "It goes with the load, which is 0.72 at that rehash here: at the paper's 0.80 \
                     the table of figure 3.9 has 1.70.";
            ]
        },
        caveat: "Counted in a table of counters: the machine does not matter.",
        ..Figure::BASE
    },
    Figure {
        name: "3.2",
        about: "random and sequential accesses of 8 bytes, on the model of a medium",
        making: FigureSource::Structure(medium::accesses),
        part: 0.03,
        claims: claims! {
            "Sequential accesses are at least 4 times as fast, in groups of 16" Times
            Rule::AtLeast(0.0) => [
                "reads" 4.0 Ours::Cell(cell(&["reads", "16"], "ratio")),
                    "On the model accesses of a group wait for one another, and nothing is \
                     prefetched: what is gained is that a media line is read once and not four \
                     times.";
                "writes" 4.0 Ours::Cell(cell(&["writes", "16"], "ratio")),
                    "A line is read from the medium before it is written, and accesses of a group \
                     wait for one another.";
            ]
        },
        caveat: "On the model of a medium: the machine does not matter.",
        ..Figure::BASE
    },
    Figure {
        name: "3.4",
        about: "bytes that TurboHash reads from a medium and writes to it, on the model",
        making: FigureSource::Structure(medium::volumes),
        part: 0.02,
        claims: claims! {
            "An operation persists so often at most" Count Rule::AtMost(0.01) => [
                "insert" 2.0 Ours::Cell(cell(&["TURBO16", "insert"], "persists"));
                "update" 2.0 Ours::Cell(cell(&["TURBO16", "update"], "persists"));
                "delete" 1.0 Ours::Cell(cell(&["TURBO16", "delete"], "persists"));
            ]
            "A read of an absent key writes nothing" Count Rule::AtMost(0.0) => [
                "bytes" 0.0 Ours::Cell(cell(&["TURBO16", "negative read"], "written"));
            ]
        },
        caveat: "On the model of a medium, with the growth of the table, which has fences of its \
                 own. The paper's bars have no numbers in its text.",
        ..Figure::BASE
    },
    Figure {
        name: "3.5",
        about: "latency, throughput and volumes of hash tables on the model (3.4 and 3.6, too)",
        making: FigureSource::Structure(hashes::operations),
        part: 0.01,
        claims: claims! {
            "Bytes of the medium for an operation, of TurboHash's" Times Rule::AtLeast(0.0) => [
                "insert, CCEH" 1.18
                    over_turbohash!("8 + 8 bytes" "CCEH" "insert" "together"), LOCKS_IN_DRAM;
                "insert, Dash" 1.6
                    over_turbohash!("8 + 8 bytes" "Dash" "insert" "together"), LOCKS_IN_DRAM;
                "insert, clevel" 3.0
                    over_turbohash!("15 + 8 bytes" "clevel" "insert" "together"), OWN_ITEMS;
                "absent, CCEH" 4.0
                    over_turbohash!("8 + 8 bytes" "CCEH" "negative read" "together"), SIXTEEN_LINES;
            ]
            "Latency of an operation, of TurboHash's" Times Rule::AtLeast(0.0) => [
                "insert, CCEH" 1.0
                    over_turbohash!("8 + 8 bytes" "CCEH" "insert" "mean"), TWO_PERSISTS;
                "insert, Dash" 1.0
                    over_turbohash!("8 + 8 bytes" "Dash" "insert" "mean"), LOCKS_IN_DRAM;
                "insert, clevel" 5.0
                    over_turbohash!("15 + 8 bytes" "clevel" "insert" "mean"), OWN_ITEMS;
                "insert, P-CLHT" 5.88
                    over_turbohash!("8 + 8 bytes" "P-CLHT" "insert" "mean"), SMALL_PAIRS;
                "read, CCEH" 1.0
                    over_turbohash!("8 + 8 bytes" "CCEH" "positive read" "mean"), TWO_LINES;
                "read, Dash" 1.0 over_turbohash!("8 + 8 bytes" "Dash" "positive read" "mean");
                "read, clevel" 1.18 over_turbohash!("15 + 8 bytes" "clevel" "positive read" "mean");
                "absent, CCEH" 1.0 over_turbohash!("8 + 8 bytes" "CCEH" "negative read" "mean");
                "absent, Dash" 1.0 over_turbohash!("8 + 8 bytes" "Dash" "negative read" "mean");
                "absent, clevel" 2.0
                    over_turbohash!("15 + 8 bytes" "clevel" "negative read" "mean");
            ]
        },
        caveat: "On the model of a medium, one thread; the paper has 16 on its tables' own code, \
                 with pairs of 8 + 8 and of 15 + 15 bytes, where ours are of 8 + 8 and of 15 + 8.",
        ..Figure::BASE
    },
    Figure {
        name: "3.7",
        about: "hash tables under the mixes of YCSB, on the model and in DRAM",
        making: FigureSource::Structure(hashes::mixes),
        part: 0.01,
        claims: claims! {
            "Throughput on the medium, of CCEH's" Times Rule::Change => [
                "load" 1.1 turbohash_over!("CCEH" "load"), TWO_PERSISTS;
                "C" 2.6 turbohash_over!("CCEH" "C"), TWO_LINES;
            ]
            "Throughput of mix A on the medium, of other tables'" Times Rule::AtLeast(0.0) => [
                "P-CLHT" 1.5 turbohash_over!("P-CLHT" "A"), SMALL_PAIRS;
                "clevel" 1.5 turbohash_over!("clevel" "A");
            ]
        },
        caveat: "On the model of a medium and in this machine's DRAM, one thread, where the paper \
                 has 20 on Optane; its tables other than CCEH and Dash hold pairs of 30 bytes.",
        ..Figure::BASE
    },
    Figure {
        name: "3.8",
        about: "TurboHash's load factor while it grows",
        making: FigureSource::Structure(shape::load_factors),
        part: 0.5,
        claims: claims! {
            "The load factor reaches 0.85" Count Rule::AtLeast(0.05) => [
                "peak" 0.85 Ours::Cell(Cell {
                    table: "peaks",
                    ..cell(&["paper's"], "peak")
                });
            ]
        },
        caveat: "Counted: the machine does not matter.",
        curves: curves::load_factors,
        ..Figure::BASE
    },
    Figure {
        name: "3.9",
        about: "TurboHash's probe distances by load, before and after garbage collection",
        making: FigureSource::Structure(shape::probe_distances),
        part: 0.2,
        claims: claims! {
            "A search for an absent key looks at so many buckets, at a load of 0.8" Count
            Rule::AtMost(0.0) => [
                "loaded, mean" 1.34 Ours::Cell(cell(&["0.743", LOADED], "distance mean")),
                    "A random function with 13 slots to a bucket gives 1.72 at this load, by \
                     simulation: the paper's keys or its load are others.";
                "loaded, longest" 6.0 Ours::Cell(cell(&["0.743", LOADED], "distance longest")),
                    "By the same simulation one search in 50 exceeds 6.";
                "loaded anew, mean" 6.13
                    Ours::Cell(cell(&["0.743", LOADED_ANEW], "distance mean"));
            ]
            "Garbage collection brings the distance back" Times Rule::AtMost(0.0) => [
                "collected to loaded" 1.0 Ours::Ratio(
                    cell(&["0.743", COLLECTED], "distance mean"),
                    cell(&["0.743", LOADED], "distance mean"));
            ]
        },
        caveat: "Counted: the machine does not matter. The load is that of 13 usable slots.",
        curves: curves::distances,
        ..Figure::BASE
    },
    Figure {
        name: "3.10",
        about: "TurboHash's lookup latency before and after garbage collection, in DRAM",
        making: FigureSource::Structure(shape::latencies),
        part: 0.2,
        claims: claims! {
            "Deletes and a new load make lookups of absent keys slower by" Times
            Rule::AtMost(0.0) => [
                "loaded anew to loaded" 3.07 Ours::Ratio(
                    cell(&[LOADED_ANEW], "absent key"), cell(&[LOADED], "absent key"));
            ]
            "Garbage collection brings the latency back" Times Rule::AtMost(0.0) => [
                "collected to loaded" 1.15 Ours::Ratio(
                    cell(&[COLLECTED], "absent key"), cell(&[LOADED], "absent key"));
            ]
        },
        caveat: "In this machine's DRAM, where the paper has Optane: ratios are compared.",
        ..Figure::BASE
    },
    Figure {
        name: "3.11",
        about: "the time in which TurboHash builds a shard anew, in DRAM",
        making: FigureSource::Structure(shape::build_times),
        claims: claims! {
            "A shard of 8192 buckets is built anew in 6 us" Micros Rule::AtMost(0.0) => [
                "7168 buckets" 6.0 Ours::Cell(cell(&["7168"], "built anew")),
                    "2 MiB in 6 us would be 350 GB/s; with milliseconds the paper's figure would \
                     fit.";
            ]
            "Four times the buckets take four times as long" Times Rule::AtMost(0.5) => [
                "3584 to 896 buckets" 4.0
                    Ours::Ratio(cell(&["3584"], "built anew"), cell(&["896"], "built anew"));
            ]
        },
        caveat: "In this machine's DRAM; sizes are as the table rounds them.",
        ..Figure::BASE
    },
];
