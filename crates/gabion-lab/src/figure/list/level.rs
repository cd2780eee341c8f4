//! What the slides about Level hashing claim.

use super::super::{Figure, FigureSource, Ours, Paper, Rule};
use crate::rows::Cell;
use crate::structure::level;

/// Why inserts are not so much faster.
const LOOKED_UP: &str = "An insert replaces, so a new key is looked for first: in four buckets, \
                         which takes 1,240 of 2,071 ns at a load of 80 %. BCH and PFHT look at \
                         two, 699 and 1,026 ns.";
/// Why a log does not cost so much more.
const THREE_PERSISTS: &str = "The log costs three persists. A free slot costs one, or two in the \
                              second line of a bucket, and there is none in most buckets when \
                              much is filled: 1.92 at a load of 40 %, 2.72 at 80 %.";
/// Why a growth is not so much faster.
const BY_INSERTS: &str = "All tables insert what has to move, with 0.29 persists for each entry of \
                          Level hashing's and 1.25 for each of BCH's and PFHT's.";
/// Why searches take longer.
const FOUR_BUCKETS: &str = "A key may be in four buckets of two lines each, and is in the third or \
                            fourth one more often the more is filled. BCH and PFHT have two.";
/// Why threads do not more.
const SAME_LOCKS: &str = "BCH locks two stripes for an insert here, as Level hashing does, and \
                          each movement of a chain by itself. Times of threads depend on the \
                          machine.";

/// A number of one of the figure's tables.
const fn of(table: &'static str, at: &'static [&'static str], column: &'static str) -> Cell {
    Cell { table, at, column }
}

/// The time of one table over that of another at a load, on the slides' medium.
macro_rules! times {
    ($one:literal / $other:literal $operation:literal at $load:literal) => {
        Ours::Ratio(
            of("operations", &["200/600", $load, $one], $operation),
            of("operations", &["200/600", $load, $other], $operation),
        )
    };
}

/// The same for a growth.
macro_rules! growth {
    ($other:literal) => {
        Ours::Ratio(
            of("growth", &["200/600", $other], "growth"),
            of("growth", &["200/600", "Level hashing"], "growth"),
        )
    };
}

/// The throughput of two threads over that of BCH's.
macro_rules! over_cuckoo {
    ($column:literal) => {
        Ours::Ratio(
            of("threads", &["2", "Level hashing"], $column),
            of("threads", &["2", "BCH"], $column),
        )
    };
}

pub(super) const PAPER: Paper = Paper {
    title: "Zuo, Hua, Wu: Write-optimized and high-performance hashing index scheme for persistent \
            memory (Level hashing)",
    figures: &[FIGURE],
};

const FIGURE: Figure = Figure {
    name: "level",
    about: "Level hashing beside BCH, PFHT and path hashing: modelled times, loads, threads",
    making: FigureSource::Structure(level::baselines),
    part: 0.005,
    claims: claims! {
        "Inserts that move an entry, in percent" Count Rule::AtMost(0.0) => [
            "Level hashing" 1.2 Ours::Cell(of("fullness", &["Level hashing"], "moved"));
        ]
        "Inserts are so much faster at a load of 60 %, on 200/600 ns" Times Rule::AtLeast(0.0) => [
            "than BCH's" 1.4 times!("BCH" / "Level hashing" "insert" at "60 %"), LOOKED_UP;
            "than PFHT's" 1.4 times!("PFHT" / "Level hashing" "insert" at "60 %"), LOOKED_UP;
            "than path hashing's" 1.4
                times!("Path hashing" / "Level hashing" "insert" at "60 %");
        ]
        "Inserts are so much faster at a load of 80 %, on 200/600 ns" Times Rule::AtLeast(0.0) => [
            "than BCH's" 1.4 times!("BCH" / "Level hashing" "insert" at "80 %"), LOOKED_UP;
            "than PFHT's" 1.4 times!("PFHT" / "Level hashing" "insert" at "80 %"), LOOKED_UP;
            "than path hashing's" 1.4
                times!("Path hashing" / "Level hashing" "insert" at "80 %");
        ]
        "A free slot makes updates so much faster than a log does, on 200/600 ns"
            Times Rule::AtLeast(0.0) => [
            "at 40 % full, their best" 2.1
                times!("Level hashing, all logged" / "Level hashing" "update" at "40 %"),
                THREE_PERSISTS;
            "at 80 % full, their least" 1.2
                times!("Level hashing, all logged" / "Level hashing" "update" at "80 %"),
                THREE_PERSISTS;
        ]
        "A growth is so much faster, on 200/600 ns" Times Rule::AtLeast(0.0) => [
            "than BCH's" 4.3 growth!("BCH"), BY_INSERTS;
            "than PFHT's" 4.3 growth!("PFHT"), BY_INSERTS;
            "than path hashing's" 4.3 growth!("Path hashing");
        ]
        "A search is about as fast at a load of 80 %, on 200/600 ns" Times Rule::AtMost(0.15) => [
            "as BCH's" 1.0 times!("Level hashing" / "BCH" "search" at "80 %"), FOUR_BUCKETS;
        ]
        "A search takes no longer at a load of 80 %, on 200/600 ns" Times Rule::AtMost(0.0) => [
            "than PFHT's" 1.0 times!("Level hashing" / "PFHT" "search" at "80 %"), FOUR_BUCKETS;
            "than path hashing's" 1.0
                times!("Level hashing" / "Path hashing" "search" at "80 %");
        ]
        "Two threads do so much more than in a cuckoo table" Times Rule::AtLeast(0.0) => [
            "inserts" 1.6 over_cuckoo!("inserts"), SAME_LOCKS;
            "half of them searches" 1.6 over_cuckoo!("half searches"), SAME_LOCKS;
        ]
    },
    caveat: "On the model of a medium that is read in 200 ns and written in 600; threads in this \
             machine's DRAM. The slides' text does not say at which loads they measured.",
    ..Figure::BASE
};
