//! What the SCMKV paper claims.

use super::super::{Figure, FigureSource, Ours, Paper, Rule};
use crate::rows::cell;
use crate::structure::scmkv;

/// Why small objects are written less often.
const MISSES: &str = "A put takes 610 ns, of which its flushes take 90: less than three reads of \
                      memory that wait for one another, of 224 ns each on this machine. The \
                      Masstree here takes 1,100 ns.";

/// The rate of SCMKV with flushes over that of another, on one thread.
macro_rules! flush_over {
    ($other:literal $objects:literal $order:literal $column:literal) => {
        Ours::Ratio(
            cell(&[$objects, "SCMKV-flush", $order, "1"], $column),
            cell(&[$objects, $other, $order, "1"], $column),
        )
    };
}

pub(super) const PAPER: Paper = Paper {
    title: "Wang, Huang, Zhu: SCMKV, a lightweight log-structured key-value store on storage \
            class memory",
    figures: &[FIGURE],
};

/// Figures 8 to 10.
const FIGURE: Figure = Figure {
    name: "scmkv",
    about: "SCMKV beside a Masstree: writes and reads in DRAM (its figures 8 to 10)",
    making: FigureSource::Structure(scmkv::throughput),
    part: 0.03,
    claims: claims! {
        "Writes with flushes are so many times as fast as a Masstree's" Times
        Rule::AtLeast(0.0) => [
            "small, uniform" 2.6 flush_over!("Masstree" "small" "uniform" "writes"), MISSES;
            "large, uniform" 7.0 flush_over!("Masstree" "large" "uniform" "writes"),
                "The Masstree here copies a value of 512 bytes and no more; what the paper's \
                 did with large ones is not told.";
        ]
        "Reads are so many times as fast as a Masstree's" Times Rule::AtLeast(0.0) => [
            "small, uniform" 1.0 flush_over!("Masstree" "small" "uniform" "reads");
            "small, Zipfian" 1.0 flush_over!("Masstree" "small" "zipfian" "reads");
            "large, uniform" 1.0 flush_over!("Masstree" "large" "uniform" "reads");
            "large, Zipfian" 1.0 flush_over!("Masstree" "large" "zipfian" "reads");
        ]
        "Flushes leave so much of the writes" Times Rule::AtLeast(0.0) => [
            "small, Zipfian" 0.6 flush_over!("SCMKV-noflush" "small" "zipfian" "writes"),
                "The flushes of a put take 266 ns, a little more than one read of memory that \
                 waits for another, 224 ns; without them it takes 329.";
            "large, Zipfian" 0.8 flush_over!("SCMKV-noflush" "large" "zipfian" "writes"),
                "Of a large object more is flushed with its full page than of a small one.";
        ]
        "So many million small objects are written in a second" Count Rule::AtLeast(0.0) => [
            "one thread" 2.1
                Ours::Cell(cell(&["small", "SCMKV-flush", "uniform", "1"], "writes")), MISSES;
        ]
    },
    caveat: "In this machine's DRAM; the paper's is another one. LevelDB, which it has besides, \
             is a target of `gabion lab run` in a program with peers.",
    ..Figure::BASE
};
