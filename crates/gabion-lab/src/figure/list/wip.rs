//! What chapter 2 claims of WipDB.

use super::super::{Figure, FigureSource, Ours, Paper, Rule, curves, phases};
use crate::stores;

/// What all latencies here have in common.
const IN_CACHE: &str = "Latencies are those of a store in the page cache; the paper's waited for a \
                        drive.";

pub(super) const PAPER: Paper = Paper {
    title: "X. Zhao: dissertation on key-value stores for SSDs and persistent memory, WipDB",
    figures: FIGURES,
};

const FIGURES: &[Figure] = &[
    Figure {
        name: "2.3",
        about: "writes into MemTables that are hash tables, and into ordered ones",
        making: FigureSource::Stores(&stores::MEMTABLE_KINDS),
        part: 0.05,
        claims: claims! {
            "Puts into hash tables are twice as fast as into ordered ones" Times
            Rule::AtLeast(0.0) => [
                "most MemTables" 2.0 Ours::Phases(phases::hashed_over_ordered),
                    "An ordered MemTable is a hash table here, too.";
            ]
        },
        caveat: "The paper's text gives a factor of two for figure 2.6; figure 2.3 has no numbers.",
        ..Figure::BASE
    },
    Figure {
        name: "2.6",
        about: "write performance: 8 billion uniform puts",
        making: FigureSource::Stores(&stores::WRITES),
        part: 0.0025,
        caveat: "Throughput is that of another machine.",
        ..Figure::BASE
    },
    Figure {
        name: "2.7",
        about: "four regions of keys in turn, each with a distribution of its own",
        making: FigureSource::Stores(&stores::CHANGING_KEYS),
        part: 0.003,
        claims: claims! {
            "Throughput is lowest where the distribution of keys changes" Times
            Rule::AtMost(0.0) => [
                "there over elsewhere" 1.0 Ours::Phases(phases::mean_at_changes),
                    "No dip stands out: it was 0.85 and 1.08 in two runs. The lowest moments are \
                     those at which puts wait for memory, wherever they fall.";
            ]
        },
        caveat: "The eighth of a region behind its beginning counts as the change.",
        curves: curves::regions,
        ..Figure::BASE
    },
    Figure {
        name: "2.8",
        tables: &["table-2.1"],
        about: "eight readers beside a writer of 150 thousand puts per second",
        making: FigureSource::Stores(&stores::READERS),
        part: 0.01,
        claims: claims! {
            "Reads recover while writes go on" Times Rule::AtLeast(0.0) => [
                "last fifth over first" 1.0 Ours::Phases(phases::recovered),
                    "They rise threefold within a second or two. When the first MemTables of the \
                     phase are flushed, at 6 s of 20, they lose a seventh, as a read looks at more \
                     tables, and soon no more; without read-aware compaction they go on to lose.";
            ]
            "Reads with locality are several times as fast" Times Rule::AtLeast(0.0) => [
                "exponential to uniform" 2.0 Ours::Phases(phases::exponential_over_uniform),
                    "Everything is in the page cache here: a read without locality waits for \
                     memory, not for a drive.";
            ]
            "Without read-aware compaction, reads lose 30 %" Times Rule::AtMost(0.0) => [
                "exponential" 0.7 Ours::Phases(phases::unaware_over_aware),
                    "No compaction has to wait here: the writer puts a seventh of what a fill \
                     does, and what is read is compacted at leisure besides.";
            ]
        },
        caveat: IN_CACHE,
        curves: curves::mixed,
    },
    Figure {
        name: "2.9",
        about: "time of a restart after a kill, against the size of the log",
        making: FigureSource::Stores(&stores::RESTART_TIMES),
        claims: claims! {
            "A restart reads a gigabyte of log in 8 s" Seconds Rule::AtMost(0.0) => [
                "per gigabyte" 8.0 Ours::Phases(phases::restart_of_a_gigabyte);
            ]
            "The time of a restart grows as the log does" Times Rule::AtMost(0.5) => [
                "per byte, largest log" 1.0 Ours::Phases(phases::restart_growth),
                    "The medium bounds it: all of the log is written anew, beside the system that \
                     still writes the first copy.";
            ]
        },
        caveat: "Nothing of the log was synced and all of it is in one bucket: the worst case.",
        curves: curves::restart_times,
        ..Figure::BASE
    },
    Figure {
        name: "2.10",
        tables: &["table-2.2"],
        about: "throughput of YCSB load and A to F, 8 threads, 8 million requests each",
        making: FigureSource::Stores(&stores::MIXES),
        part: 0.01,
        claims: claims! {
            "Short ranges have a longer tail than single reads" Times Rule::AtMost(0.0) => [
                "p99 of E over C" 3.3 Ours::Phases(phases::ranges_over_reads);
            ]
        },
        caveat: IN_CACHE,
        ..Figure::BASE
    },
];
