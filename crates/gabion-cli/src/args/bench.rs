//! The command line of `gabion bench`, and what the lab shares of it.

use std::path::PathBuf;
use std::str::FromStr;

use clap::builder::PossibleValuesParser;
use clap::{Args, ValueEnum};
use gabion::{Compression, Engine, MemTableForm, TableReads};
use gabion_lab::workload::{WORKLOADS, Workload};

use super::{DurabilityArguments, parse_count};

/// Measure a store under standard workloads.
///
/// Phases run in the order given, on one store. Each phase ends when everything that it wrote is
/// on disk and no background work is due; that time is shown as `settle`, not counted in the
/// operations per second, and its bytes are counted. `WA` is bytes written by the store per byte
/// of keys and values put, without the log and with it (`+log`); `system` is the same by the
/// operating system's count for the process.
#[derive(Args, Debug)]
#[command(after_long_help = phase_help(), after_help = "Phases: see --help")]
pub(crate) struct BenchArguments {
    /// Phases to run, separated by commas.
    #[arg(
        value_name = "PHASE",
        required = true,
        value_delimiter = ',',
        hide_possible_values = true,
        value_parser = PossibleValuesParser::new(phases().map(|phase| phase.name)),
    )]
    pub(crate) phases: Vec<String>,
    /// Directory of the store to measure. It must not hold a store, unless --keep or --fresh.
    #[arg(long, value_name = "DIR")]
    pub(crate) db: PathBuf,
    /// Go on with the store that the directory holds, as an earlier run left it.
    #[arg(long, conflicts_with = "fresh")]
    pub(crate) keep: bool,
    /// Delete the store that the directory holds, and all its data, and begin with an empty one.
    #[arg(long)]
    pub(crate) fresh: bool,
    /// Storage engine.
    #[arg(
        long,
        default_value = "wip",
        value_parser = PossibleValuesParser::new(Engine::ALL.iter().map(|engine| engine.name())),
    )]
    pub(crate) engine: String,
    #[command(flatten)]
    pub(crate) work: WorkArguments,
    #[command(flatten)]
    pub(crate) durability: DurabilityArguments,
    /// Memory that the store may use in MiB; without it, what follows from the memory that the
    /// process may use, its control group's limit included, and from the other sizes.
    #[arg(long, value_name = "MIB")]
    pub(crate) memory_mb: Option<u64>,
    /// Size of the block cache in MiB; without it, what follows from --memory-mb, or 1024, or a
    /// quarter of the memory that the process may use if that is less.
    #[arg(long, value_name = "MIB")]
    pub(crate) cache_mb: Option<u64>,
    /// How tables are read: `mapped`, where the system keeps the files in memory, or `cached`,
    /// through the block cache.
    #[arg(
        long,
        value_name = "WAY",
        default_value_t = TableReads::default(),
        value_parser = TableReads::from_str
    )]
    pub(crate) table_reads: TableReads,
    /// How MemTables keep their records: `adaptive`, `hash` or `ordered`.
    #[arg(
        long,
        value_name = "FORM",
        default_value_t = MemTableForm::default(),
        value_parser = MemTableForm::from_str
    )]
    pub(crate) memtable_form: MemTableForm,
    /// How the blocks of new tables are compressed: `none`, `lz4` or `zstd:LEVEL` (1 to 19).
    /// Compressed blocks go through the block cache.
    #[arg(
        long,
        value_name = "METHOD",
        default_value_t = Compression::default(),
        value_parser = Compression::from_str
    )]
    pub(crate) compression: Compression,
    /// Limit on what the background writes, in MiB per second; 0 for none.
    #[arg(long, value_name = "MIB", default_value_t = 0)]
    pub(crate) background_mb_per_s: u64,
    /// Size of a table's blocks in bytes, before compression; without it, the store's default.
    #[arg(long, value_name = "BYTES")]
    pub(crate) block_bytes: Option<usize>,
    /// Memory for records not yet in tables in MiB; without it, what follows from --memory-mb, or
    /// the store's default.
    #[arg(long, value_name = "MIB")]
    pub(crate) memtable_mb: Option<u64>,
    /// Size at which a bucket is split in MiB; without it, the store's default.
    #[arg(long, value_name = "MIB")]
    pub(crate) bucket_mb: Option<u64>,
    /// Print the results as a JSON array of one object per phase.
    #[arg(long)]
    pub(crate) json: bool,
}

/// What phases work on and how: the same for `bench` and `lab`.
#[derive(Args, Debug)]
pub(crate) struct WorkArguments {
    /// Records in the data set, and operations of phases that only write.
    #[arg(long, value_name = "N", default_value = "1M", value_parser = parse_count)]
    pub(crate) num: u64,
    /// Operations of all other phases; without it, as many as --num.
    #[arg(long, value_name = "N", value_parser = parse_count)]
    pub(crate) reads: Option<u64>,
    /// Threads of phases that only write.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = parse_threads)]
    pub(crate) writers: usize,
    /// Threads of all other phases.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = parse_threads)]
    pub(crate) threads: usize,
    /// Records per write, in phases that only write.
    #[arg(long, value_name = "N", default_value = "1", value_parser = parse_count)]
    pub(crate) batch: u64,
    /// Bytes of every key, at least 8.
    #[arg(long, value_name = "BYTES", default_value_t = 16)]
    pub(crate) key_size: usize,
    /// Bytes of every value.
    #[arg(long, value_name = "BYTES", default_value_t = 100)]
    pub(crate) value_size: usize,
    /// Seconds of the phase `rest`.
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    pub(crate) rest_seconds: u64,
    /// How records are drawn, instead of each phase's own way. Zipfian has exponent 0.99.
    #[arg(long, value_enum)]
    pub(crate) distribution: Option<DistributionChoice>,
    /// Where the random numbers start. The same seed gives the same requests.
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Puts per second of the extra writer of the phases `mixed` and `readwhilewriting`.
    #[arg(long, value_name = "N", default_value = "20k", value_parser = parse_count)]
    pub(crate) write_rate: u64,
}

pub(super) fn parse_threads(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(threads) if (1..=1024).contains(&threads) => Ok(threads),
        _ => Err("must be a number from 1 to 1024".to_owned()),
    }
}

/// The distributions that a run may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DistributionChoice {
    /// Every record equally likely.
    Uniform,
    /// Few records take most requests; the popular ones are spread over the key space.
    Zipfian,
    /// New records are the popular ones.
    Latest,
    /// In key order.
    Sequential,
    /// Few groups of neighbouring records take most requests.
    ZipfianComposite,
    /// Neighbouring records at the start of the key space take most requests.
    Exponential,
}

/// The phases of `bench`: all but the one for which a process is killed, which `lab run` does.
fn phases() -> impl Iterator<Item = &'static Workload> {
    WORKLOADS.iter().filter(|workload| !workload.is_restart())
}

fn phase_help() -> String {
    let mut help = String::from("Phases:\n");
    let names = phases().map(|phase| phase.name.len());
    let width = names.max().unwrap_or(0);
    for phase in phases() {
        help.push_str(&format!("  {:<width$}  {}\n", phase.name, phase.about));
    }
    help.push_str(
        "\nExample:\n  \
         gabion bench fillrandom,readrandom,scan50 --db bench --num 20M --threads 2",
    );
    help
}
