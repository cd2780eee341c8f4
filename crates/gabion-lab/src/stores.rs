//! Runs behind the figures and tables of the WipDB and FlexDB papers, with the papers' own numbers
//! to compare with.
//!
//! They are data: the paper's setup in a few parts, each a run of its own, and what the paper's
//! text gives as numbers. Curves that exist only as pictures have no numbers here; what the text
//! says of them stands in [`Runs::says`]. Records, requests and times are scaled by one factor,
//! threads and rates are not.

use crate::Error;
use crate::result::PhaseResult;
use crate::run::Settings;
use crate::scale::Scale;
use crate::summary::Spread;
use crate::workload::{Distribution, Size};

/// The runs of a figure.
#[derive(Clone, Copy, Debug)]
pub struct Runs {
    /// What it is about, where nobody names targets.
    pub targets: &'static [&'static str],
    /// Stores that the paper compares with and that a program may be built without: a reproduction
    /// has them where the program does.
    pub peers: &'static [&'static str],
    /// The runs that it needs.
    pub parts: &'static [FigureRun],
    /// Numbers of the paper.
    pub paper: &'static [PaperNumber],
    /// What the paper says besides.
    pub says: &'static str,
}

/// One run, in the paper's size.
#[derive(Clone, Copy, Debug)]
pub struct FigureRun {
    /// The phases in order.
    pub workloads: &'static [&'static str],
    /// Records.
    pub records: u64,
    /// Requests of the phases that read; those of a phase with a time end with it.
    pub reads: u64,
    /// Time of the phases that read.
    pub seconds: Option<u64>,
    /// Threads that read.
    pub threads: usize,
    /// Threads of the phases that only write.
    pub writers: usize,
    /// Records that a phase that only writes puts at a time.
    pub batch: u64,
    /// The size of keys and values, by its name.
    pub size: &'static str,
    /// How the records to read are drawn, if not as the phase says.
    pub distribution: Option<Distribution>,
    /// Records stay in memory and in the log.
    pub hold_flushes: bool,
}

/// One number of the paper.
#[derive(Clone, Copy, Debug)]
pub struct PaperNumber {
    /// Our name of the target.
    pub target: &'static str,
    /// The phase with its distribution.
    pub workload: &'static str,
    /// What is measured.
    pub measure: Measure,
    /// The paper's number.
    pub value: f64,
}

/// What a number measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Operations per second.
    OpsPerS,
    /// Write amplification without the log.
    WaWithoutLog,
    /// 99th percentile of the latency of reads and scans, in microseconds.
    ReadP99,
}

/// A number of the paper beside ours.
#[derive(Clone, Copy, Debug)]
pub struct Comparison {
    /// The paper's.
    pub paper: PaperNumber,
    /// Ours over all repetitions.
    pub ours: Spread,
}

/// Puts per second of the paper's writer beside the readers.
const WRITE_RATE: u64 = 150_000;
/// Requests that the paper's stores log together.
const BATCH: u64 = 1000;
/// Peak of the paper's write amplification.
#[expect(clippy::approx_constant, reason = "it has nothing to do with circles")]
const WA_PEAK: f64 = 3.14;
/// More requests than any time limit lets through.
const ENDLESS: u64 = 1 << 50;
/// Longer than any fill: the time of a part is that of its reads.
const FILL_SECONDS_MAX: u64 = 30 * 86_400;

/// What parts have in common.
const BASE: FigureRun = FigureRun {
    workloads: &[],
    records: 0,
    reads: 0,
    seconds: None,
    threads: 1,
    writers: 1,
    batch: BATCH,
    size: "16+100",
    distribution: None,
    hold_flushes: false,
};

const fn mixed(distribution: Distribution) -> FigureRun {
    FigureRun {
        workloads: &["ycsb-load", "mixed"],
        records: 1_000_000_000,
        reads: ENDLESS,
        // 300 million puts at 150 thousand per second.
        seconds: Some(2000),
        threads: 8,
        distribution: Some(distribution),
        ..BASE
    }
}

const MIXED: &[FigureRun] = &[
    mixed(Distribution::Uniform),
    mixed(Distribution::Exponential),
];

const YCSB: &[FigureRun] = &[FigureRun {
    workloads: &[
        "ycsb-load",
        "ycsb-a",
        "ycsb-b",
        "ycsb-c",
        "ycsb-d",
        "ycsb-e",
        "ycsb-f",
    ],
    records: 1_000_000_000,
    reads: 8_000_000,
    threads: 8,
    ..BASE
}];

const fn fill(workload: &'static [&'static str], records: u64) -> FigureRun {
    FigureRun {
        workloads: workload,
        records,
        ..BASE
    }
}

/// A log of so many records, read at a restart.
const fn restart(records: u64) -> FigureRun {
    FigureRun {
        hold_flushes: true,
        ..fill(&["fillrandom", "restart"], records)
    }
}

/// Records of 10, 100 and so on MemTables of 10 thousand, put once and then once more.
const MEMTABLES: &[FigureRun] = &[
    fill(&["ycsb-load", "overwrite"], 100_000),
    fill(&["ycsb-load", "overwrite"], 1_000_000),
    fill(&["ycsb-load", "overwrite"], 10_000_000),
    fill(&["ycsb-load", "overwrite"], 100_000_000),
];

/// From an eighth of the paper's largest log to all of it, 1.5 GB.
const RESTARTS: &[FigureRun] = &[
    restart(1_500_000),
    restart(3_000_000),
    restart(6_000_000),
    restart(12_000_000),
];

/// Four clients of a store of the paper's UDB records. Each of the paper's points is a minute long,
/// in which FlexDB reads 100 million times.
const fn flexdb(workloads: &'static [&'static str], distribution: Distribution) -> FigureRun {
    FigureRun {
        workloads,
        records: 420_000_000,
        reads: 100_000_000,
        threads: 4,
        writers: 4,
        batch: 1,
        size: "udb",
        distribution: Some(distribution),
        ..BASE
    }
}

const FLEXDB: &[FigureRun] = &[
    flexdb(&["fillseq"], Distribution::Sequential),
    flexdb(
        &["fillrandom", "overwrite", "readrandom", "scan50"],
        Distribution::Zipfian,
    ),
    flexdb(
        &["fillrandom", "readrandom", "scan50"],
        Distribution::ZipfianComposite,
    ),
];

const FLEXDB_YCSB: &[FigureRun] = &[
    FigureRun {
        distribution: None,
        ..flexdb(YCSB[0].workloads, Distribution::Zipfian)
    },
    flexdb(
        &[
            "ycsb-load",
            "ycsb-a",
            "ycsb-b",
            "ycsb-c",
            "ycsb-e",
            "ycsb-f",
        ],
        Distribution::ZipfianComposite,
    ),
];

const fn number(
    target: &'static str,
    workload: &'static str,
    measure: Measure,
    value: f64,
) -> PaperNumber {
    PaperNumber {
        target,
        workload,
        measure,
        value,
    }
}

const fn p99(target: &'static str, workload: &'static str, micros: f64) -> PaperNumber {
    number(target, workload, Measure::ReadP99, micros)
}

/// Figure 2.3: writes into MemTables that are hash tables, and into ordered ones.
pub(crate) static MEMTABLE_KINDS: Runs = Runs {
    targets: &["wip-hash", "wip-ordered"],
    peers: &[],
    parts: MEMTABLES,
    paper: &[],
    says: "Sorted MemTables cost more the more of them there are, since each write looks for \
           its place through more of memory than caches hold. The paper has as many tables of \
           10 thousand records as it likes; here their number is that of the buckets, which \
           follows from the size of the store, and an ordered MemTable is a hash table too.",
};

/// Figure 2.6: write performance: 8 billion uniform puts.
pub(crate) static WRITES: Runs = Runs {
    targets: &["wip"],
    peers: &[],
    parts: &[fill(&["fillrandom"], 8_000_000_000)],
    paper: &[
        number("wip", "fillrandom uniform", Measure::OpsPerS, 800_000.0),
        number("wip", "fillrandom uniform", Measure::WaWithoutLog, WA_PEAK),
    ],
    says: "3.14 is WipDB's peak. RocksDB's and LevelDB's write amplification is 5 to 6 times \
           as high.",
};

/// Figure 2.7: four regions of keys in turn, each with a distribution of its own.
pub(crate) static CHANGING_KEYS: Runs = Runs {
    targets: &["wip"],
    peers: &[],
    parts: &[fill(&["regions"], 4_000_000_000)],
    paper: &[],
    says: "Throughput is lowest when the distribution changes; the report's curve over time \
           shows it. Buckets follow the keys: the table shows where they begin, the JSON \
           report every border. The paper has no numbers in its text.",
};

/// Figure 2.8: eight readers beside a writer of 150 thousand puts per second.
pub(crate) static READERS: Runs = Runs {
    targets: &["wip", "wip-unaware"],
    peers: &[],
    parts: MIXED,
    paper: &[
        p99("wip", "mixed uniform", 365.0),
        p99("wip", "mixed exponential", 190.0),
        p99("rocksdb", "mixed uniform", 765.0),
        p99("rocksdb", "mixed exponential", 293.0),
        p99("leveldb", "mixed uniform", 526.0),
        p99("leveldb", "mixed exponential", 249.0),
    ],
    says: "WipDB's read throughput recovers during the writes, and with exponential reads it \
           is often more than twice that of the others, without numbers in the text. \
           Beside it the same store with compactions that do not follow the reads.",
};

/// Figure 2.9: time of a restart after a kill, against the size of the log.
pub(crate) static RESTART_TIMES: Runs = Runs {
    targets: &["wip"],
    peers: &[],
    parts: RESTARTS,
    paper: &[],
    says: "Log and restart time grow with the number of buckets, up to 1.5 GB and 12 seconds. \
           Here the log is made so long by holding flushes back, so that nothing else differs.",
};

/// Figure 2.10: throughput of YCSB load and A to F, 8 threads, 8 million requests each.
pub(crate) static MIXES: Runs = Runs {
    targets: &["wip"],
    peers: &[],
    parts: YCSB,
    paper: &[
        p99("wip", "ycsb-a zipfian", 349.0),
        p99("wip", "ycsb-b zipfian", 344.0),
        p99("wip", "ycsb-c zipfian", 343.0),
        p99("wip", "ycsb-d latest", 323.0),
        p99("wip", "ycsb-e zipfian", 1133.0),
        p99("wip", "ycsb-f zipfian", 351.0),
        p99("leveldb", "ycsb-a zipfian", 253.0),
        p99("leveldb", "ycsb-b zipfian", 342.0),
        p99("leveldb", "ycsb-c zipfian", 328.0),
        p99("leveldb", "ycsb-d latest", 341.0),
        p99("leveldb", "ycsb-e zipfian", 688.0),
        p99("leveldb", "ycsb-f zipfian", 364.0),
        p99("rocksdb", "ycsb-a zipfian", 237.0),
        p99("rocksdb", "ycsb-b zipfian", 241.0),
        p99("rocksdb", "ycsb-c zipfian", 241.0),
        p99("rocksdb", "ycsb-d latest", 241.0),
        p99("rocksdb", "ycsb-e zipfian", 638.0),
        p99("rocksdb", "ycsb-f zipfian", 248.0),
    ],
    says: "WipDB loads much faster than the others and reads a little slower than RocksDB. \
           The figure has no numbers in the text.",
};

/// Figure flexdb: FlexDB's writes, reads and scans of UDB records by four clients (its figure 12).
pub(crate) static FLEXDB_CLIENTS: Runs = Runs {
    targets: &["flex"],
    peers: &["rocksdb"],
    parts: FLEXDB,
    paper: &[
        number("flex", "fillrandom zipfian", Measure::OpsPerS, 950_000.0),
        number("flex", "readrandom zipfian", Measure::OpsPerS, 1_650_000.0),
        p99("flex", "readrandom zipfian", 33.0),
        number("rocksdb", "fillrandom zipfian", Measure::OpsPerS, 300_000.0),
        number("rocksdb", "readrandom zipfian", Measure::OpsPerS, 520_000.0),
        p99("rocksdb", "readrandom zipfian", 43.0),
    ],
    says: "FlexDB writes 2.2 to 3.3 times as fast as RocksDB, which writes 2.1 to 2.9 times \
           as many bytes. Keys are sequential, Zipfian, or Zipfian in their first three \
           digits and uniform in the rest.",
};

/// Figure flexdb-ycsb: FlexDB under YCSB with UDB records and four clients (its figure 13).
pub(crate) static FLEXDB_MIXES: Runs = Runs {
    targets: &["flex"],
    peers: &["rocksdb"],
    parts: FLEXDB_YCSB,
    paper: &[p99("flex", "ycsb-a zipfian", 30.0)],
    says: "FlexDB is 2.0 to 5.9 times as fast as RocksDB in B, C and E, and 2.1 to 2.3 times \
           in A and F. The paper's requests are Zipfian; the composite ones are ours.",
};

impl Runs {
    /// The paper's numbers for which `results` have ours.
    pub fn beside(&self, results: &[PhaseResult]) -> Vec<Comparison> {
        let ours = |paper: &PaperNumber| {
            let of_paper = |result: &&PhaseResult| {
                result.target == paper.target && result.workload == paper.workload
            };
            let taken = results.iter().filter(of_paper);
            Spread::of(taken.filter_map(|result| paper.measure.of(result)))
        };
        let numbers = self.paper.iter();
        numbers
            .filter_map(|paper| {
                ours(paper).map(|ours| Comparison {
                    paper: *paper,
                    ours,
                })
            })
            .collect()
    }
}

impl FigureRun {
    /// The settings of this part at `scale` times the paper's size.
    ///
    /// # Errors
    /// [`Error::Request`] unless `scale` is above 0 and at most 1.
    pub fn settings(&self, scale: f64) -> Result<Settings, Error> {
        let scale = Scale::new(scale)?;
        let scaled = |count| scale.of(count, 1);
        let size = Size::named(self.size)
            .ok_or_else(|| Error::Request(format!("there is no size {}", self.size)))?;
        Ok(Settings {
            key_bytes: size.key_bytes,
            value_bytes: size.value_bytes,
            value_sizes: size.value_sizes,
            writers: self.writers,
            num: scaled(self.records),
            reads: match self.seconds {
                Some(_) => self.reads,
                None => scaled(self.reads),
            },
            threads: self.threads,
            batch: self.batch,
            distribution: self.distribution,
            write_rate: WRITE_RATE,
            seconds_max: self.seconds.map(scaled),
            fill_seconds_max: Some(FILL_SECONDS_MAX),
            ..Settings::default()
        })
    }
}

impl Measure {
    /// The name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Measure::OpsPerS => "operations/s",
            Measure::WaWithoutLog => "write amplification without log",
            Measure::ReadP99 => "latency of reads p99, us",
        }
    }

    /// What a number of it claims, as a sentence.
    pub(crate) fn says(self) -> &'static str {
        match self {
            Measure::OpsPerS => "So many operations are done in a second",
            Measure::WaWithoutLog => {
                "So many bytes are written for each of the user's, without log"
            }
            Measure::ReadP99 => "99 of 100 reads are done within so many microseconds",
        }
    }

    fn of(self, result: &PhaseResult) -> Option<f64> {
        match self {
            Measure::OpsPerS => Some(result.ops_per_s),
            Measure::WaWithoutLog => result.wa_without_log,
            Measure::ReadP99 => {
                let by_operation = &result.latency_us_by_operation;
                let reads = by_operation
                    .get("read")
                    .or_else(|| by_operation.get("scan"))?;
                Some(reads.latency_us.p99)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::sample;
    use crate::result::OperationLatency;
    use crate::workload::Workload;

    fn all() -> impl Iterator<Item = (&'static str, &'static Runs)> {
        crate::figure::figures().filter_map(|figure| match figure.making {
            crate::figure::FigureSource::Stores(runs) => Some((figure.name, runs)),
            _ => None,
        })
    }

    #[test]
    fn every_number_belongs_to_a_phase_of_its_figure() {
        for (name, runs) in all() {
            let mut phases = Vec::new();
            for part in runs.parts {
                let settings = part.settings(1e-6).unwrap();
                settings.check().unwrap();
                for name in part.workloads {
                    let workload = Workload::named(name).unwrap();
                    let distribution = workload.distribution(settings.distribution).name();
                    phases.push(format!("{name} {distribution}"));
                }
            }
            for paper in runs.paper {
                let is_run = phases.iter().any(|phase| phase == paper.workload);
                assert!(is_run, "{name} {paper:?}");
            }
        }
    }

    #[test]
    fn a_scale_makes_records_requests_and_times_smaller_and_nothing_else() {
        let settings = MIXED[1].settings(0.001).unwrap();
        assert_eq!((settings.num, settings.seconds_max), (1_000_000, Some(2)));
        assert_eq!((settings.threads, settings.write_rate), (8, 150_000));
        // The load took more than the two seconds, which ended it, so that the reads met a store
        // with a part of its records.
        assert_eq!(settings.fill_seconds_max, Some(FILL_SECONDS_MAX));
        let settings = FLEXDB[0].settings(0.001).unwrap();
        assert_eq!((settings.key_bytes, settings.value_bytes), (27, 127));
        assert_eq!(
            (settings.writers, settings.threads, settings.batch),
            (4, 4, 1)
        );
        assert_eq!(YCSB[0].settings(0.01).unwrap().reads, 80_000);
        for scale in [0.0, -1.0, 1.5, f64::NAN] {
            assert!(YCSB[0].settings(scale).is_err(), "{scale}");
        }
    }

    #[test]
    fn the_paper_s_numbers_stand_beside_ours() {
        let mut result = sample::empty();
        "leveldb".clone_into(&mut result.target);
        "ycsb-e zipfian".clone_into(&mut result.workload);
        let mut latency_us = result.latency_us;
        latency_us.p99 = 700.0;
        let latency = OperationLatency {
            calls: 1,
            latency_us,
        };
        result.latency_us_by_operation = [("scan".to_owned(), latency)].into();
        let beside = MIXES.beside(&[result]);
        assert_eq!(beside.len(), 1);
        let (paper, ours) = (beside[0].paper.value, beside[0].ours.median);
        assert!((paper - 688.0).abs() < 1e-9 && (ours - 700.0).abs() < 1e-9);
    }
}
