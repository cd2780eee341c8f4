//! What the slides about Level hashing claim.

use super::super::{Figure, Making, Ours, Paper, Rule};
use crate::rows::cell;
use crate::structure::level;

/// Why Level hashing's searches take longer.
const FOUND: &str = "A key that is there is found behind 2.3 lines of up to four buckets, by PFHT \
                     behind 1.2 and by path hashing behind 1.9, each of 200 ns. For one that is \
                     not it is the other way round: 774 ns beside 5,148 and 2,548.";

/// The time of one table over that of another, on the slides' medium.
macro_rules! times {
    ($one:literal / $other:literal $operation:literal) => {
        Ours::Ratio(
            cell(&["200/600", $one], $operation),
            cell(&["200/600", $other], $operation),
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
    about: "Level hashing beside BCH, PFHT and path hashing: movements and modelled times",
    making: Making::Structure(level::baselines),
    part: 0.02,
    claims: claims! {
        "Inserts that move an entry, in percent" Count Rule::AtMost(0.0) => [
            "Level hashing" 1.2 Ours::Cell(cell(&["200/600", "Level hashing"], "moved")),
                "Buckets have three slots here, to fit into a line with their tokens; the slides' \
                 have four.";
        ]
        "Inserts are so much faster, on 200/600 ns" Times Rule::AtLeast(0.0) => [
            "than BCH's" 1.4 times!("BCH" / "Level hashing" "insert"),
                "A line is written, which takes 600 of 1,325 ns; for the rest the key is \
                 looked for in four buckets, so that it is there once. BCH looks at two.";
            "than PFHT's" 1.4 times!("PFHT" / "Level hashing" "insert");
            "than path hashing's" 1.4 times!("Path hashing" / "Level hashing" "insert");
        ]
        "A growth is so much faster, on 200/600 ns" Times Rule::AtLeast(0.0) => [
            "than BCH's" 4.3 times!("BCH" / "Level hashing" "growth");
            "than PFHT's" 4.3 times!("PFHT" / "Level hashing" "growth");
            "than path hashing's" 4.3 times!("Path hashing" / "Level hashing" "growth");
        ]
        "A search takes no longer, on 200/600 ns" Times Rule::AtMost(0.0) => [
            "than PFHT's" 1.0 times!("Level hashing" / "PFHT" "search"), FOUND;
            "than path hashing's" 1.0 times!("Level hashing" / "Path hashing" "search"), FOUND;
        ]
    },
    caveat: "On the model of a medium that is read in 200 ns and written in 600.",
    ..Figure::BASE
};
