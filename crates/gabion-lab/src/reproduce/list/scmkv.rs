//! What the SCMKV paper claims.

use super::super::claim::{Cell, Ours, Rule};
use super::super::{Entry, Source};
use super::{DISSERTATION, below};

/// Rows of SCMKV and of the Masstree beside it.
const FLUSH_UNIFORM: &str = "SCMKV-flush uniform, threads";
const FLUSH_ZIPFIAN: &str = "SCMKV-flush zipfian, threads";
const MASSTREE_UNIFORM: &str = "Masstree uniform, threads";
const MASSTREE_ZIPFIAN: &str = "Masstree zipfian, threads";

/// Why small objects are written less often.
const MISSES: &str = "A put takes 610 ns, of which its flushes take 90: less than three reads of \
                      memory that wait for one another, of 224 ns each on this machine. The \
                      Masstree here takes 1,100 ns.";

/// A row of one of the two sizes of objects.
const fn small(row: &'static str, place: usize) -> Cell {
    below("small:", row, place)
}

const fn large(row: &'static str, place: usize) -> Cell {
    below("large:", row, place)
}

/// Figures 8 to 10.
pub(super) const THROUGHPUT: Entry = Entry {
    figure: "scmkv",
    source: Source::Scmkv,
    part: 0.03,
    claims: claims! {
        "Writes with flushes are so many times as fast as a Masstree's" Times Rule::AtLeast => [
            "small, uniform" 2.6
                Ours::Ratio(small(FLUSH_UNIFORM, 1), small(MASSTREE_UNIFORM, 1)), MISSES;
            "large, uniform" 7.0
                Ours::Ratio(large(FLUSH_UNIFORM, 1), large(MASSTREE_UNIFORM, 1)),
                "The Masstree here copies a value of 512 bytes and no more; what the paper's \
                 did with large ones is not told.";
        ]
        "Reads are so many times as fast as a Masstree's" Times Rule::AtLeast => [
            "small, uniform" 1.0
                Ours::Ratio(small(FLUSH_UNIFORM, 2), small(MASSTREE_UNIFORM, 2));
            "small, Zipfian" 1.0
                Ours::Ratio(small(FLUSH_ZIPFIAN, 2), small(MASSTREE_ZIPFIAN, 2));
            "large, uniform" 1.0
                Ours::Ratio(large(FLUSH_UNIFORM, 2), large(MASSTREE_UNIFORM, 2));
            "large, Zipfian" 1.0
                Ours::Ratio(large(FLUSH_ZIPFIAN, 2), large(MASSTREE_ZIPFIAN, 2));
        ]
        "Flushes leave so much of the writes" Times Rule::AtLeast => [
            "small, Zipfian" 0.6
                Ours::Ratio(small(FLUSH_ZIPFIAN, 1), small("SCMKV-noflush zipfian, threads", 1)),
                "The flushes of a put take 266 ns, a little more than one read of memory that \
                 waits for another, 224 ns; without them it takes 329.";
            "large, Zipfian" 0.8
                Ours::Ratio(large(FLUSH_ZIPFIAN, 1), large("SCMKV-noflush zipfian, threads", 1)),
                "Of a large object more is flushed with its full page than of a small one.";
        ]
        "So many million small objects are written in a second" Count Rule::AtLeast => [
            "one thread" 2.1 Ours::Cell(small(FLUSH_UNIFORM, 1)), MISSES;
        ]
    },
    about: "In this machine's DRAM; the paper's is another one. LevelDB, which it has besides, \
            is a target of `gabion lab run` in a program with peers.",
    ..DISSERTATION
};
