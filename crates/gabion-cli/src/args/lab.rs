//! The command line of `gabion lab`.

use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};
use gabion::Options;
use gabion_lab::workload::SIZES;

use super::bench::{WorkArguments, parse_threads};
use super::{parse_bytes, parse_count};

/// Compare targets: Gabion's engines, other stores, and what the measuring itself costs.
#[derive(Args, Debug)]
pub(crate) struct LabArguments {
    /// What to do in the lab.
    #[command(subcommand)]
    pub(crate) command: LabCommand,
}

/// The commands of the lab.
#[derive(Debug, Subcommand)]
pub(crate) enum LabCommand {
    Run(Box<LabRunArguments>),
    Equals(Box<LabEqualsArguments>),
    Figure(Box<LabFigureArguments>),
    Reproduce(LabReproduceArguments),
    List(LabListArguments),
    /// Run one trial, which is read as JSON from standard input. `run` starts these.
    #[command(hide = true)]
    Trial,
}

/// Run the same workloads on several targets and compare them.
///
/// Each target goes through all workloads, in the order given, on one fresh store, and does so
/// --repeat times; the targets take turns, forwards and backwards (A B B A). Every such trial has a
/// process of its own, so that memory, processor time and bytes written are those of one target. A
/// target that crashes or hangs ends its trial, not the run. Results are written to a file as they
/// come; an interrupted run reports what it has.
///
/// With --turns the targets of a repetition run side by side, one at a time for some milliseconds:
/// the way to see differences of a few percent.
///
/// The table shows medians, `±` half of the range over the repetitions in percent, and `x` the
/// ratio to the first target: the median of the ratios within each repetition, so that a machine
/// whose speed drifts does not change it.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  gabion lab run --target wip,btreemap --workload fillrandom,readrandom --num 1M \\
      --repeat 3 --dir bench --html report.html --json report.json
  gabion lab run --target wip,wip --workload fillrandom,scan50 --num 1M --repeat 8 --turns \\
      --dir bench
  gabion lab run --target wip --workload fillrandom,restart --hold-flushes --num 1M --dir bench

All stores of a program built with peers, some 20 minutes:
  gabion lab run --target wip,rocksdb,leveldb,lmdb,redb,fjall,sqlite --workload full \\
      --num 20M --reads 1G --threads 2 --warm-up 100k --fill-seconds-max 60 \\
      --phase-seconds-max 5 --complete-fills --dir bench --html report.html --json report.json")]
pub(crate) struct LabRunArguments {
    /// Targets, separated by commas; the others are compared to the first. `gabion lab list` shows
    /// them. One may be named twice, with labels of your choice: `wip#a,wip#b`.
    #[arg(long, value_name = "NAME", value_delimiter = ',', required = true)]
    pub(crate) target: Vec<String>,
    /// Workloads, separated by commas, in the order in which they run, or a name for several of
    /// them. `gabion lab list` shows them.
    #[arg(long, value_name = "NAME", value_delimiter = ',', required = true)]
    pub(crate) workload: Vec<String>,
    #[command(flatten)]
    pub(crate) work: WorkArguments,
    /// Sizes of keys and values by name; `gabion lab list` shows them.
    #[arg(
        long,
        value_name = "NAME",
        conflicts_with_all = ["key_size", "value_size"],
        value_parser = PossibleValuesParser::new(SIZES.iter().map(|size| size.name)),
    )]
    pub(crate) size: Option<String>,
    /// Operations before the measuring starts, in workloads that do not only write.
    #[arg(long, value_name = "N", default_value = "0", value_parser = parse_count)]
    pub(crate) warm_up: u64,
    /// Operations per second of all threads together, each due at its time: its latency counts
    /// from then, so that a store that stops is charged for all that it delays. Without it, each
    /// thread goes on as soon as its last operation has ended.
    #[arg(long, value_name = "N", value_parser = parse_count)]
    pub(crate) rate: Option<u64>,
    /// End a phase after so many seconds with what it has done, and say so.
    #[arg(long, value_name = "SECONDS")]
    pub(crate) phase_seconds_max: Option<u64>,
    /// The same for phases that only write, instead of --phase-seconds-max.
    #[arg(long, value_name = "SECONDS")]
    pub(crate) fill_seconds_max: Option<u64>,
    /// Let phases that only write go to their end, whatever the limits are.
    #[arg(long, conflicts_with_all = ["fill_seconds_max", "complete_fills"])]
    pub(crate) whole_fills: bool,
    /// After a fill that its time limit ended, put the records that it had not come to, in key
    /// order and unmeasured, so that the phases after it find the same records in every store.
    #[arg(long)]
    pub(crate) complete_fills: bool,
    #[command(flatten)]
    pub(crate) trials: TrialArguments,
}

/// Compare stores that hold equal records, and write the table of them.
///
/// Every store is given all of --num puts, however long they take, and ends its work in the
/// background. Then it is read at once and again after a rest, which are two rows of the table;
/// mixes of reads and writes follow, and at the end all records are counted. A store that does not
/// hold what it was given ends its trial, and the table says so.
///
/// The page is printed as Markdown. It also says how much of the data the caches hold, and what
/// each store loses of a put that has returned.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  gabion lab equals --num 200k --seconds 1 --rest-seconds 2 --dir bench
  gabion lab equals --repeat 3 --dir bench --page equals.md --json equals.json
  gabion lab equals --memory-limit 512MiB --cache-mb 192 --dir bench --page beyond-memory.md")]
pub(crate) struct LabEqualsArguments {
    /// Targets, separated by commas; without it, wip, flex and all peers that the program has.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub(crate) target: Vec<String>,
    /// Puts of the fill.
    #[arg(long, value_name = "N", default_value = "20M", value_parser = parse_count)]
    pub(crate) num: u64,
    /// Threads of all phases but the fill.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = parse_threads)]
    pub(crate) threads: usize,
    /// Operations of each phase but the fill, at most.
    #[arg(long, value_name = "N", default_value = "1G", value_parser = parse_count)]
    pub(crate) reads: u64,
    /// Seconds of each phase but the fill, at most.
    #[arg(long, value_name = "SECONDS", default_value_t = 5)]
    pub(crate) seconds: u64,
    /// Seconds of the rest.
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    pub(crate) rest_seconds: u64,
    /// Tell the fill's speed for so many seconds from its beginning, beside that of all of it.
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    pub(crate) first_seconds: u64,
    /// Bytes of every key, at least 8.
    #[arg(long, value_name = "BYTES", default_value_t = 16)]
    pub(crate) key_size: usize,
    /// Bytes of every value.
    #[arg(long, value_name = "BYTES", default_value_t = 100)]
    pub(crate) value_size: usize,
    /// Where all random numbers start.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// File for the page, besides.
    #[arg(long, value_name = "FILE")]
    pub(crate) page: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) trials: TrialArguments,
}

/// Run a figure or table of the papers and show the paper's numbers beside ours.
///
/// Records, requests and times are those of the paper times --scale; threads and rates are the
/// paper's. At full scale the stores take up to a terabyte and days.
#[derive(Args, Debug)]
pub(crate) struct LabFigureArguments {
    /// The figure, mostly by its number in the paper; `gabion lab list` shows them.
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// Part of the paper's size, above 0 and at most 1.
    #[arg(long, value_name = "F", default_value_t = 0.001)]
    pub(crate) scale: f64,
    /// Targets, separated by commas; without it, `wip`, or those that the figure compares.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub(crate) target: Vec<String>,
    #[command(flatten)]
    pub(crate) trials: TrialArguments,
}

/// Make all figures and tables of the papers that can be made, and show what holds of them.
///
/// Each figure is made at a part of the paper's size that leaves it what it is about; --scale
/// multiplies all of these parts. At scale 1 the whole takes up to an hour on two processors, and
/// asks for 10 GB of free space.
///
/// What comes of each figure is kept in --dir as JSON. A run that ended early, however it did, goes
/// on behind the last figure that is there when the same command is given again; another scale,
/// version or machine is refused. To make a figure anew, delete its file. The page opens with the
/// claims by verdict and with those that do not hold, each with its reason and the command that
/// shows it.
///
/// An interrupt ends the run when the figure that is being made is done, or at once if it is about
/// stores; a second one ends it at once.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  gabion lab reproduce --html papers.html
  gabion lab reproduce --scale 0.1 --only 2.6,table2,4.6 --dir quick --html quick.html")]
pub(crate) struct LabReproduceArguments {
    /// What the parts of the papers' sizes are multiplied by.
    #[arg(long, value_name = "F", default_value_t = 1.0)]
    pub(crate) scale: f64,
    /// Make only these figures, separated by commas.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub(crate) only: Vec<String>,
    /// Directory for what comes of each figure, and for the stores while they are measured.
    #[arg(long, value_name = "DIR", default_value = "reproduction")]
    pub(crate) dir: PathBuf,
    /// File for the page, which is written anew after each figure.
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
    /// End a figure in which no phase ends for so many seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 3600)]
    pub(crate) hang_seconds_max: u64,
}

/// How trials are run and what is reported of them.
#[derive(Args, Debug)]
pub(crate) struct TrialArguments {
    /// How often each target goes through all workloads.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) repeat: u32,
    /// Run the targets of a repetition at the same time, a turn of so many milliseconds each, while
    /// the others' processes are stopped: A B B A and so on. So all of them meet a machine in the
    /// same state, however its speed drifts. All stores are there at once, in memory and on disk.
    #[arg(
        long,
        value_name = "MS",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "50"
    )]
    pub(crate) turns: Option<u64>,
    /// End a trial in which no phase ends for so many seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 3600)]
    pub(crate) hang_seconds_max: u64,
    /// Memory that the processes of a trial may use, the page cache included, in bytes, which may
    /// end in KiB, MiB or GiB: each trial runs in a control group of its own. Needs the right to
    /// make one.
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub(crate) memory_limit: Option<u64>,
    /// Size of every store's cache in MiB.
    #[arg(long, value_name = "MIB", default_value_t = 1024)]
    pub(crate) cache_mb: u64,
    /// Memory for records not yet in tables in MiB; without it, each store's default.
    #[arg(long, value_name = "MIB")]
    pub(crate) write_buffer_mb: Option<u64>,
    /// Keep records in memory and in the log, as far as a store can, instead of writing tables: for
    /// restarts.
    #[arg(long)]
    pub(crate) hold_flushes: bool,
    /// Threads that each store may use in the background.
    #[arg(
        long,
        value_name = "N",
        default_value_t = Options::default().background_threads,
        value_parser = parse_threads
    )]
    pub(crate) background_threads: usize,
    /// Directory below which each trial makes a store and deletes it again. Figures about one
    /// structure alone need none.
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// File for all results as a JSON array. Beside the first of these files each result is kept as
    /// it comes, in one whose name ends with `.partial.jsonl`.
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// File for all results as comma-separated values.
    #[arg(long, value_name = "FILE")]
    pub(crate) csv: Option<PathBuf>,
    /// File for the report as one HTML page.
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
}

/// Show the targets, workloads, sizes and figures that can be named.
#[derive(Args, Debug)]
pub(crate) struct LabListArguments {
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}
