//! What chapter 4 claims of Spot-On and SPTree.

use super::super::{Figure, FigureSource, Ours, Paper, Rule, curves};
use crate::rows::{Cell, cell};
use crate::structure::{layers, spoton};

/// A number of one form of an index over that of another, in figure 4.3.
macro_rules! layers {
    ($one:literal / $other:literal $column:literal) => {
        Ours::Ratio(cell(&[$one], $column), cell(&[$other], $column))
    };
}

/// A number of the plain form of an index over that of the cached one, in figure 4.4.
macro_rules! plain_over_cached {
    ($index:literal $column:literal) => {
        Ours::Ratio(
            cell(&[$index, "plain"], $column),
            cell(&[$index, "cached"], $column),
        )
    };
}

/// A ratio that figure 4.6 has itself.
const fn ratio(at: &'static [&'static str]) -> Ours {
    Ours::Cell(Cell {
        table: "ratios",
        ..cell(at, "total")
    })
}

const fn dram(at: &'static [&'static str]) -> Ours {
    Ours::Cell(Cell {
        table: "DRAM",
        ..cell(at, "per byte of the leaves")
    })
}

const fn insert_time(at: &'static [&'static str]) -> Cell {
    Cell {
        table: "volumes",
        ..cell(at, "time")
    }
}

pub(super) const PAPER: Paper = Paper {
    title: "X. Zhao: dissertation on key-value stores for SSDs and persistent memory, SPTree",
    figures: FIGURES,
};

const FIGURES: &[Figure] = &[
    Figure {
        name: "4.2",
        about: "bytes that indexes write to a medium, with write buffers and without, on the model",
        making: FigureSource::Structure(layers::written),
        part: 0.004,
        claims: claims! {
            "Write buffers save bytes that the media write" Times Rule::AtLeast(0.0) => [
                "CCEH, plain/buffered" 1.0 Ours::Cell(cell(&["CCEH"], "times less"));
                "FAST&FAIR, plain/buffered" 1.0 Ours::Cell(cell(&["FAST&FAIR"], "times less"));
                "P-Skiplist, plain/buffered" 1.0 Ours::Cell(cell(&["P-Skiplist"], "times less"));
            ]
        },
        caveat: "On the model of a medium, one thread. The paper's text has up to four times less, \
                 and does not say of which index.",
        ..Figure::BASE
    },
    Figure {
        name: "4.3",
        about: "what inserts read and write with one layer of Spot-On more each time, on the model",
        making: FigureSource::Structure(layers::layered),
        part: 0.004,
        claims: claims! {
            "Write buffers make inserts faster" Times Rule::AtLeast(0.0) => [
                "CCEH, plain/B" 1.0 layers!("CCEH" / "CCEH-B" "time"),
                    "An insert into CCEH alone persists one line. With a buffer its record is \
                     persisted, and in place the pair once more, so fences rise from 1.00 to 1.77; \
                     one thread does not notice that a third is written.";
                "FAST&FAIR, plain/B" 1.0 layers!("FAST&FAIR" / "FAST&FAIR-B" "time"),
                    "In place each pair of a buffer is made durable by itself, so fences fall from \
                     3.66 to 3.56 only; that a quarter is written one thread hardly notices.";
                "P-Skiplist, plain/B" 1.0 layers!("P-Skiplist" / "P-Skiplist-B" "time");
            ]
            "and inserts read less with them" Times Rule::AtLeast(0.0) => [
                "CCEH, plain/B" 1.0 layers!("CCEH" / "CCEH-B" "read"),
                    "Each insert looks for the value before, in the buffer or in CCEH; a merge \
                     looks for it again.";
                "FAST&FAIR, plain/B" 1.0 layers!("FAST&FAIR" / "FAST&FAIR-B" "read");
                "P-Skiplist, plain/B" 1.0 layers!("P-Skiplist" / "P-Skiplist-B" "read");
            ]
            "Merging out of place is faster than in place" Times Rule::AtLeast(0.0) => [
                "CCEH, B/BO" 1.0 layers!("CCEH-B" / "CCEH-BO" "time");
                "FAST&FAIR, B/BO" 1.0 layers!("FAST&FAIR-B" / "FAST&FAIR-BO" "time");
            ]
            "Inner nodes in DRAM save what inserts read" Times Rule::AtLeast(0.0) => [
                "FAST&FAIR, BO/BOC" 1.0 layers!("FAST&FAIR-BO" / "FAST&FAIR-BOC" "read");
                "P-Skiplist, B/BC" 1.0 layers!("P-Skiplist-B" / "P-Skiplist-BC" "read");
            ]
            "and inserts are faster with them" Times Rule::AtLeast(0.0) => [
                "FAST&FAIR, BO/BOC" 1.0 layers!("FAST&FAIR-BO" / "FAST&FAIR-BOC" "time");
                "P-Skiplist, B/BC" 1.0 layers!("P-Skiplist-B" / "P-Skiplist-BC" "time");
            ]
        },
        caveat: "On the model of a medium, one thread; what lies in DRAM costs nothing there. The \
                 paper's bars have no numbers.",
        ..Figure::BASE
    },
    Figure {
        name: "4.4",
        about: "latencies of indexes whose ways to leaves are in DRAM, and of others, on the model",
        making: FigureSource::Structure(layers::cached),
        part: 0.004,
        claims: claims! {
            "Inserts are faster with inner nodes in DRAM" Times Rule::AtLeast(0.0) => [
                "FAST&FAIR, plain/cached" 1.0 plain_over_cached!("FAST&FAIR" "insert time");
                "P-Skiplist, plain/cached" 1.0 plain_over_cached!("P-Skiplist" "insert time");
            ]
            "Lookups are faster with inner nodes in DRAM" Times Rule::AtLeast(0.0) => [
                "FAST&FAIR, plain/cached" 1.0 plain_over_cached!("FAST&FAIR" "lookup time");
                "P-Skiplist, plain/cached" 1.0 plain_over_cached!("P-Skiplist" "lookup time");
            ]
            "CCEH's directory in DRAM has almost no effect" Times Rule::Near(0.1) => [
                "inserts, plain/cached" 1.0 plain_over_cached!("CCEH" "insert time");
                "lookups, plain/cached" 1.0 plain_over_cached!("CCEH" "lookup time");
            ]
        },
        caveat: "On the model of a medium, one thread; what lies in DRAM costs nothing there.",
        ..Figure::BASE
    },
    Figure {
        name: "4.6",
        about: "SPTree beside FAST&FAIR: volumes and times of operations on the model (4.7, too)",
        making: FigureSource::Structure(spoton::volumes),
        part: 0.02,
        claims: claims! {
            "Bytes of the medium for an operation, of another tree's" Times Rule::AtMost(0.0) => [
                "insert, buffered/plain" 0.333 ratio(&["insert", "with buffers to without"]);
                "insert, /FAST&FAIR" 1.0 ratio(&["insert", "SPTree to FAST&FAIR"]);
                "read, /FAST&FAIR" 0.333 ratio(&["positive read", "SPTree to FAST&FAIR"]),
                    "A smaller tree than the paper's has fewer inner nodes to follow, so that \
                     FAST&FAIR reads less.";
                "absent, /FAST&FAIR" 0.05 ratio(&["negative read", "SPTree to FAST&FAIR"]);
            ]
            "Scans read more than FAST&FAIR's" Times Rule::AtLeast(0.0) => [
                "scan, /FAST&FAIR" 1.0 ratio(&["scan", "SPTree to FAST&FAIR"]);
            ]
            "DRAM for a byte of the leaves" Count Rule::AtMost(0.3) => [
                "without buffers" 0.12 dram(&["without buffers"]);
                "with buffers" 0.33 dram(&["with buffers"]);
            ]
            "Write buffers make inserts three times as fast" Times Rule::AtLeast(0.0) => [
                "insert, plain/buffered" 3.0 Ours::Ratio(
                    insert_time(&["SPTree", "insert"]),
                    insert_time(&["SPTree with write buffers", "insert"])),
                    "On the model one thread waits for its own flushes and for no other's.";
            ]
        },
        caveat: "On the model of a medium, one thread; what lies in DRAM costs nothing there.",
        ..Figure::BASE
    },
    Figure {
        name: "4.8",
        about: "the time in which SPTree is found again, by its size, in DRAM: first answer, all",
        making: FigureSource::Structure(spoton::recoveries),
        part: 0.04,
        claims: claims! {
            "A key takes a processor so many ns when a tree is opened" Count Rule::AtMost(0.0) => [
                "largest tree" 80.0 Ours::Cell(cell(&["whole"], "plain, of a key"));
            ]
        },
        caveat: "In this machine's DRAM and on its processors; the paper has 1 s for 250 million \
                 keys on 20 cores.",
        curves: curves::recoveries,
        ..Figure::BASE
    },
];
