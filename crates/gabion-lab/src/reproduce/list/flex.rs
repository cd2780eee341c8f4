//! What the FlexSpace paper claims.

use super::super::claim::{Cell, Ours, Rule};
use super::super::{Entry, Source, phases};
use super::{DISSERTATION, NEAR, below};

/// The B+-tree without shifts beside FlexTree.
const PLAIN: &str = "B+-tree without shifts";

/// Why FlexTree gains less on the tree without shifts.
const SMALLER: &str = "That tree takes 0.042 and 0.0027 million inserts a second at scale 1, the \
                       paper's 0.026 and 0.0014; FlexTree 7.7 and 4.0, the paper's 6.25 and \
                       5.26. Below scale 1 both indexes are smaller, and so is the gain.";
/// Why FlexTree gains less on the sorted array.
const BELOW_ONE: &str = "The paper's numbers are those of 100 thousand and of a million extents, \
                         as at scale 1; below it both indexes are smaller, and so is the gain.";

/// A row of one of the three sizes of index that FlexTree is measured with.
const fn small(row: &'static str, place: usize) -> Cell {
    below("small:", row, place)
}

const fn middle(row: &'static str, place: usize) -> Cell {
    below("middle:", row, place)
}

const fn large(row: &'static str, place: usize) -> Cell {
    below("large:", row, place)
}

/// Rows of the spaces and files with blocks of so many KiB.
const fn of_4_kib(row: &'static str, place: usize) -> Cell {
    below("4 KiB:", row, place)
}

const fn of_64_kib(row: &'static str, place: usize) -> Cell {
    below("64 KiB:", row, place)
}

/// Why no file inserts.
const NO_INSERTS: &str = "The file system below --dir does not insert ranges into files.";

/// Why ratios to a file differ from run to run.
const DRIVE: &str = "The drive does not give the same twice: of two runs the first had 0.98 for \
                     random and 0.84 for sequential writes, the second 2.86 and 2.14.";
/// Why inserts and writes are apart.
const BOTH_WAYS: &str = "Both run at the drive's pace, which differs from one to the next: of four \
                         runs inserts had 0.82, 0.97, 1.00 and 2.54 of writes with 4 KiB, 1.05 to \
                         1.39 with 64 KiB.";
/// Why reads in order lag a file's.
const CHECKED: &str = "A read of 4 KiB out of the system's memory takes 0.54 to 0.74 us, the \
                       piece's place and its checksum 0.1 more: 0.81 to 0.90 in four runs.";
/// Why writes in order are now ahead, now behind.
const AS_FAST: &str = "0.93 to 1.07 in four runs: both run at the drive's pace.";
/// Why RocksDB does not write twice the bytes.
const FEW_LEVELS: &str = "At this size RocksDB's compactions write 0.5 to 1.3 bytes for each, as \
                          its tree has hardly a second level, and half of what either store \
                          writes is its log.";
/// Why a file is ahead where its blocks are there.
const NEW_PAGES: &str = "Nine tenths of FlexSpace's time pass in the system's call that writes, \
                         4.5 of 5 s: its segments are new to the system's memory and to the file \
                         system. A file that is written a second time has its blocks and pages; \
                         the first time, in order, it takes 550 to 690 MB/s, not 1,330.";

const FASTER: &str = "Where it is faster than that, nothing is lost by it.";

/// Throughput of FlexDB over RocksDB's, and bytes of RocksDB over FlexDB's.
macro_rules! rocksdb {
    ($workload:literal) => {
        Ours::Beside("rocksdb", |results| {
            phases::flexdb_over_rocksdb(results, $workload)
        })
    };
    (bytes $workload:literal) => {
        Ours::Beside("rocksdb", |results| {
            phases::written_by_rocksdb(results, $workload)
        })
    };
}

/// FlexTree, table 1.
pub(super) const TREE: Entry = Entry {
    figure: "flextree",
    source: Source::FlexSpace,
    part: 0.01,
    claims: claims! {
        "Inserts are so many times as fast as into a B+-tree without shifts" Times
        Rule::AtLeast => [
            "small index" 240.0 Ours::Ratio(small("FlexTree", 0), small(PLAIN, 0)), SMALLER;
            "middle index" 3757.0 Ours::Ratio(middle("FlexTree", 0), middle(PLAIN, 0)), SMALLER;
        ]
        "Inserts are so many times as fast as into a sorted array" Times Rule::AtLeast => [
            "small index" 223.0
                Ours::Ratio(small("FlexTree", 0), small("sorted array", 0)), BELOW_ONE;
            "middle index" 3094.0
                Ours::Ratio(middle("FlexTree", 0), middle("sorted array", 0)), BELOW_ONE;
        ]
        "Other operations are as fast as a B+-tree's without shifts" Times NEAR => [
            "append" 0.98 Ours::Ratio(large("FlexTree", 1), large(PLAIN, 1)), FASTER;
            "lookup" 0.99 Ours::Ratio(large("FlexTree", 2), large(PLAIN, 2)), FASTER;
            "range of 50" 0.99 Ours::Ratio(large("FlexTree", 3), large(PLAIN, 3)), FASTER;
        ]
    },
    about: "In this machine's DRAM, one thread: ratios are compared. At part 1/100 the small \
            and the middle index are those into which the paper inserts; the others' inserts \
            are measured when they are full, the paper's from empty to full.",
    ..DISSERTATION
};

/// FlexSpace, table 2.
pub(super) const SPACE: Entry = Entry {
    figure: "flexspace",
    source: Source::FlexSpace,
    part: 0.125,
    claims: claims! {
        "Bytes written for each, by FlexSpace" Times Rule::AtMost => [
            "4 KiB, inserts" 1.03 Ours::Cell(of_4_kib("FlexSpace, random insert", 1));
            "4 KiB, random" 1.03 Ours::Cell(of_4_kib("FlexSpace, random write", 1));
            "4 KiB, sequential" 1.03 Ours::Cell(of_4_kib("FlexSpace, sequential write", 1));
            "64 KiB, inserts" 1.02 Ours::Cell(of_64_kib("FlexSpace, random insert", 1));
            "64 KiB, random" 1.02 Ours::Cell(of_64_kib("FlexSpace, random write", 1));
            "64 KiB, sequential" 1.02 Ours::Cell(of_64_kib("FlexSpace, sequential write", 1));
        ]
        "Random inserts are as fast as random writes" Times Rule::Near(0.15) => [
            "4 KiB" 1.02 Ours::Ratio(
                of_4_kib("FlexSpace, random insert", 0), of_4_kib("FlexSpace, random write", 0)),
                BOTH_WAYS;
            "64 KiB" 0.99 Ours::Ratio(
                of_64_kib("FlexSpace, random insert", 0),
                of_64_kib("FlexSpace, random write", 0)), BOTH_WAYS;
        ]
        "Random inserts are so many times as fast as a file's" Times Rule::AtLeast => [
            "4 KiB" 180.0 Ours::RatioIfThere(
                of_4_kib("FlexSpace, random insert", 0),
                of_4_kib("plain file, random insert", 0), NO_INSERTS),
                "A file's inserts take time linear in its extents, and only its first 4096 are \
                 made; the paper has 262,144.";
            "64 KiB" 15.0 Ours::RatioIfThere(
                of_64_kib("FlexSpace, random insert", 0),
                of_64_kib("plain file, random insert", 0), NO_INSERTS),
                "As above.";
        ]
        "Throughput, of a file's of ext4" Times Rule::AtLeast => [
            "4 KiB, random writes" 1.22 Ours::Ratio(
                of_4_kib("FlexSpace, random write", 0), of_4_kib("plain file, random write", 0)),
                DRIVE;
            "4 KiB, sequential writes" 1.03 Ours::Ratio(
                of_4_kib("FlexSpace, sequential write", 0),
                of_4_kib("plain file, sequential write", 0)), DRIVE;
            "4 KiB, sequential reads" 0.975 Ours::Ratio(
                of_4_kib("FlexSpace, sequential write", 4),
                of_4_kib("plain file, sequential write", 2)), CHECKED;
            "4 KiB, random reads" 0.82 Ours::Ratio(
                of_4_kib("FlexSpace, sequential write", 6),
                of_4_kib("plain file, sequential write", 4)),
                "A file's read takes 1.24 us, and a look at the tree and at a checksum 0.4 more.";
            "64 KiB, random writes" 0.99 Ours::Ratio(
                of_64_kib("FlexSpace, random write", 0),
                of_64_kib("plain file, random write", 0)), NEW_PAGES;
            "64 KiB, sequential writes" 1.0 Ours::Ratio(
                of_64_kib("FlexSpace, sequential write", 0),
                of_64_kib("plain file, sequential write", 0)), AS_FAST;
        ]
    },
    about: "On the file system below --dir. Reads are those with pages cached, of what was \
            written in order. Checksums of all blocks are written and checked, which the \
            paper's FlexSpace does not have.",
    ..DISSERTATION
};

/// FlexDB's figure 12.
pub(super) const DB: Entry = Entry {
    figure: "flexdb",
    source: Source::FlexSpace,
    part: 0.01,
    claims: claims! {
        "Writes are so many times as fast as RocksDB's" Times Rule::AtLeast => [
            "sequential" 2.2 rocksdb!("fillseq sequential");
            "Zipfian" 2.2 rocksdb!("fillrandom zipfian");
            "composite" 2.2 rocksdb!("fillrandom zipfian-composite");
        ]
        "RocksDB writes so many times the bytes" Times Rule::AtLeast => [
            "sequential" 2.1 rocksdb!(bytes "fillseq sequential"), FEW_LEVELS;
            "Zipfian" 2.1 rocksdb!(bytes "fillrandom zipfian"), FEW_LEVELS;
            "composite" 2.1 rocksdb!(bytes "fillrandom zipfian-composite"), FEW_LEVELS;
        ]
        "Reads are so many times as fast as RocksDB's" Times Rule::AtLeast => [
            "Zipfian" 3.17 rocksdb!("readrandom zipfian");
        ]
    },
    about: "With the cache larger than the store, four clients on this machine's processors \
            where the paper has ten, and log writes that survive the process, not the paper's \
            buffered ones.",
    ..DISSERTATION
};

/// FlexDB's figure 13.
pub(super) const YCSB: Entry = Entry {
    figure: "flexdb-ycsb",
    source: Source::FlexSpace,
    part: 0.01,
    claims: claims! {
        "YCSB's mixes are so many times as fast as RocksDB's" Times Rule::AtLeast => [
            "A" 2.1 rocksdb!("ycsb-a zipfian");
            "B" 2.0 rocksdb!("ycsb-b zipfian");
            "C" 2.0 rocksdb!("ycsb-c zipfian");
            "E" 2.0 rocksdb!("ycsb-e zipfian");
            "F" 2.1 rocksdb!("ycsb-f zipfian");
        ]
    },
    about: "With the cache larger than the store, four clients on this machine's processors \
            where the paper has ten; the composite keys stand beside for comparison.",
    ..DISSERTATION
};
