//! The command line: one definition per flag, from which parser and help are made.

pub(crate) mod backup;
#[cfg(feature = "lab")]
pub(crate) mod bench;
pub(crate) mod changes;
#[cfg(feature = "server")]
pub(crate) mod cli;
pub(crate) mod keyspace;
#[cfg(feature = "lab")]
pub(crate) mod lab;
#[cfg(feature = "server")]
pub(crate) mod serve;
pub(crate) mod space;

use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::builder::PossibleValuesParser;
use clap::{Args, Parser, Subcommand, ValueEnum};
use gabion::{Compression, Durability, Engine, Options};

use crate::failure::Failure;

/// Store, look up, inspect and measure data in Gabion stores.
///
/// A store is a directory that maps keys to values, both any bytes. `gabion load` puts a file's
/// records into a store; `get` and `scan` find them again; `bench` measures.
///
/// Errors are one sentence on standard error. The exit status is 0 when the command did what it
/// says, 1 when it could not (a key that is not there, a damaged store, a full disk), 2 when the
/// command line itself is wrong.
#[derive(Debug, Parser)]
#[command(
    name = "gabion",
    version,
    max_term_width = 100,
    arg_required_else_help = true
)]
pub(crate) struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Load(LoadArguments),
    Get(GetArguments),
    Put(PutArguments),
    Merge(MergeArguments),
    Del(DelArguments),
    Scan(ScanArguments),
    Changes(changes::ChangesArguments),
    Dump(DumpArguments),
    Stats(StatsArguments),
    Check(CheckArguments),
    Compact(CompactArguments),
    Drop(DropArguments),
    Keyspace(keyspace::KeyspaceArguments),
    Checkpoint(CheckpointArguments),
    Backup(backup::BackupArguments),
    Repair(RepairArguments),
    #[cfg(feature = "server")]
    Serve(serve::ServeArguments),
    #[cfg(not(feature = "server"))]
    Serve(NoServerArguments),
    #[cfg(feature = "server")]
    Cli(cli::CliArguments),
    #[cfg(not(feature = "server"))]
    Cli(NoServerArguments),
    #[cfg(feature = "lab")]
    Bench(bench::BenchArguments),
    #[cfg(feature = "lab")]
    Lab(lab::LabArguments),
    #[cfg(not(feature = "lab"))]
    Bench(AbsentArguments),
    #[cfg(not(feature = "lab"))]
    Lab(AbsentArguments),
    Space(space::SpaceArguments),
    /// Print the program's version.
    Version,
}

/// Which store, and which part of it.
#[derive(Args, Debug)]
pub(crate) struct StoreArguments {
    /// Directory of the store.
    #[arg(long, value_name = "DIR")]
    pub(crate) db: PathBuf,
    /// Keyspace to work on; without it the store's default keyspace. Keyspaces are separate sets
    /// of keys in one store. `put` and `load` make a keyspace that does not exist.
    #[arg(long, value_name = "NAME")]
    pub(crate) keyspace: Option<String>,
}

/// How keys and values are written on the command line and in the output.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct NotationArguments {
    /// Keys and values are hexadecimal digits, in the arguments and in the output. Without it,
    /// arguments are taken as they are, and output shows printable text as it is and every other
    /// byte escaped: \\, \t, \n, \r, \xNN.
    #[arg(long)]
    pub(crate) hex: bool,
}

/// Which keys.
#[derive(Args, Debug)]
pub(crate) struct RangeArguments {
    /// Only keys from this one on.
    #[arg(long, value_name = "KEY")]
    pub(crate) from: Option<OsString>,
    /// Only keys before this one.
    #[arg(long, value_name = "KEY")]
    pub(crate) to: Option<OsString>,
    /// Only keys that begin so.
    #[arg(long, value_name = "PREFIX")]
    pub(crate) prefix: Option<OsString>,
}

/// When a write counts as done.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct DurabilityArguments {
    /// When a write is acknowledged: `sync` once it survives power loss; `interval:MS` at once,
    /// and power loss costs at most the last MS milliseconds; `buffered` at once, and power loss
    /// costs what the system had not written. The end of the process, even by kill -9, costs
    /// nothing at any level.
    #[arg(
        long,
        value_name = "LEVEL",
        default_value = "interval:100",
        value_parser = Durability::from_str
    )]
    pub(crate) durability: Durability,
}

/// Parses a count such as 5000, 5_000, 5k, 20M or 1G (powers of 1000).
fn parse_count(text: &str) -> Result<u64, String> {
    let (digits, factor) = match text.char_indices().last() {
        Some((at, 'k' | 'K')) => (&text[..at], 1_000),
        Some((at, 'm' | 'M')) => (&text[..at], 1_000_000),
        Some((at, 'g' | 'G')) => (&text[..at], 1_000_000_000),
        _ => (text, 1),
    };
    digits
        .replace('_', "")
        .parse::<u64>()
        .ok()
        .and_then(|count| count.checked_mul(factor))
        .ok_or_else(|| "must be a whole number, which may end in k, M or G".to_owned())
}

/// A number of bytes.
fn parse_bytes(text: &str) -> Result<u64, String> {
    let units = [("KiB", 10), ("MiB", 20), ("GiB", 30)];
    let of_unit = |(unit, shift): (&str, u32)| Some((text.strip_suffix(unit)?, shift));
    match units.into_iter().find_map(of_unit) {
        Some((digits, shift)) => digits
            .trim_end()
            .parse::<u64>()
            .ok()
            .and_then(|count| count.checked_mul(1 << shift)),
        None => parse_count(text).ok(),
    }
    .ok_or_else(|| "must be a number of bytes, such as 512MiB".to_owned())
}

/// Put the records of a file into a store.
///
/// Every record becomes one key with one value. In CSV and TSV the key is one column, the first
/// unless --key says otherwise. With a header line, the value is a JSON object of the remaining
/// columns by their names, all of them strings; without one, it is the remaining columns as they
/// stand in the line. In JSON lines the key is the field `key`, or the first field if there is
/// none of that name, and the value is the whole line. A dump holds keys and values as
/// `gabion dump` wrote them. A key that the file has twice keeps the later value.
///
/// Files that gzip or Zstandard packed are read as they are, and so is UTF-16 text that begins with
/// a byte order mark. A record may have 64 KiB of key and 1 GiB of value, a line of JSON 1 GiB.
///
/// The store remembers how far a file has been loaded, together with the records themselves. When
/// a load is interrupted, even by kill -9, the same command goes on where it stopped, if the file
/// still begins with what was read of it and the keyspace is still the same. A line that cannot be
/// read stops the load; all records before it are in the store. Of a dump that is damaged or cut
/// off, nothing is loaded, unless it comes through a pipe.
///
/// A file of Redis or Valkey (RDB) goes into the store of a server instead, for `gabion serve`,
/// with all types, moments of expiry, databases and functions. Keys that the store has already are
/// replaced; keys that have expired are left out. Of a damaged file nothing is loaded, unless it
/// comes through a pipe; a load that was interrupted is begun anew. Only --db, --databases,
/// --durability, --raw and --json are for such a file.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  gabion load cities.csv --db /data/cities --key name
  gabion load UnicodeData.txt --db ucd --delimiter ';' --no-header
  gabion load events.jsonl.gz --db /data/events --key id
  gabion load dump.rdb --db /data/server")]
pub(crate) struct LoadArguments {
    /// File to load; `-` is standard input, which cannot be resumed.
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) ttl: TtlArguments,
    #[command(flatten)]
    pub(crate) store: StoreArguments,
    /// Form of the file. `auto` goes by the name's ending, then by the first line.
    #[arg(long, value_enum, default_value_t = Format::Auto)]
    pub(crate) format: Format,
    /// Column of the key: a name from the header line, or a number from 1. In JSON lines, a
    /// field.
    #[arg(long, value_name = "COL")]
    pub(crate) key: Option<String>,
    /// Column or field that alone becomes the value.
    #[arg(long, value_name = "COL")]
    pub(crate) value: Option<String>,
    /// The first line names the columns. This is the default for CSV and TSV.
    #[arg(long, overrides_with = "no_header")]
    pub(crate) header: bool,
    /// The first line is a record like all others.
    #[arg(long, overrides_with = "header")]
    pub(crate) no_header: bool,
    /// Character between columns, one ASCII character or `\t`, when it is neither comma nor tab.
    #[arg(long, value_name = "CHAR", value_parser = parse_delimiter)]
    pub(crate) delimiter: Option<u8>,
    /// How many databases the server has, of an RDB file; as --databases of `serve`.
    #[arg(
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u16).range(1..=4096),
    )]
    pub(crate) databases: Option<u16>,
    /// Take the file's bytes as they are. Without it, what gzip or Zstandard packed is unpacked,
    /// UTF-16 text that begins with a byte order mark is read as UTF-8, and the mark is left out.
    #[arg(long)]
    pub(crate) raw: bool,
    /// Records per write. A write is atomic, and at most 1 MiB of records goes into one.
    #[arg(long, value_name = "N", default_value = "1000", value_parser = parse_count)]
    pub(crate) batch: u64,
    #[command(flatten)]
    pub(crate) durability: DurabilityArguments,
    #[command(flatten)]
    pub(crate) make: MakeArguments,
    /// How the blocks of new tables are compressed: `none`, `lz4` or `zstd:LEVEL` (1 to 19).
    /// Not kept in the store: who opens it next chooses again.
    #[arg(
        long,
        value_name = "METHOD",
        default_value_t = Compression::default(),
        value_parser = Compression::from_str
    )]
    pub(crate) compression: Compression,
    /// At the end, write what is still in memory into tables, so that the figures count it.
    #[arg(long)]
    pub(crate) flush: bool,
    /// Print the summary as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

fn parse_delimiter(text: &str) -> Result<u8, String> {
    match text.as_bytes() {
        b"\\t" => Ok(b'\t'),
        [byte] if *byte == b'\t' || byte.is_ascii_punctuation() && *byte != b'"' => Ok(*byte),
        b" " => Ok(b' '),
        _ => Err("must be one ASCII punctuation character, a space, or \\t".to_owned()),
    }
}

/// Forms of files that `load` reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// By the name's ending (.csv, .tsv, .jsonl, .ndjson, .dump, .rdb, each also with .gz or .zst
    /// behind it), then by the first line.
    Auto,
    /// Columns separated by commas or --delimiter, quoted by ".
    Csv,
    /// Columns separated by tabs or --delimiter, without quotes.
    Tsv,
    /// One JSON object per line.
    Jsonl,
    /// What `gabion dump` writes: key, tab, value, both escaped.
    Dump,
    /// What Redis and Valkey write, by SAVE, BGSAVE or `redis-cli --rdb`.
    Rdb,
}

/// Print the value of a key.
///
/// Exit status 1 if the store has no such key.
#[derive(Args, Debug)]
pub(crate) struct GetArguments {
    /// The key.
    #[arg(value_name = "KEY")]
    pub(crate) key: OsString,
    #[command(flatten)]
    pub(crate) store: StoreArguments,
    #[command(flatten)]
    pub(crate) notation: NotationArguments,
    /// Print the value's bytes as they are, without a line end.
    #[arg(long, conflicts_with = "hex")]
    pub(crate) raw: bool,
    /// Print in how many seconds the value expires, or `never`, in its place.
    #[arg(long, conflicts_with = "raw")]
    pub(crate) ttl: bool,
    /// Print a value of eight bytes as the signed number that it is, little-endian.
    #[arg(long, conflicts_with_all = ["raw", "ttl", "hex"])]
    pub(crate) number: bool,
}

/// Merge an operand into the value of a key, as the operator of its keyspace says.
///
/// `gabion keyspace create NAME --merge add_i64` makes a keyspace of counters.
#[derive(Args, Debug)]
pub(crate) struct MergeArguments {
    /// The key.
    #[arg(value_name = "KEY")]
    pub(crate) key: OsString,
    /// The operand.
    #[arg(value_name = "OPERAND", allow_negative_numbers = true)]
    pub(crate) operand: OsString,
    /// The operand is a signed number, to be written as eight bytes, little-endian.
    #[arg(long, conflicts_with = "hex")]
    pub(crate) number: bool,
    #[command(flatten)]
    pub(crate) store: StoreArguments,
    #[command(flatten)]
    pub(crate) notation: NotationArguments,
    #[command(flatten)]
    pub(crate) durability: DurabilityArguments,
}

/// Give a key a value.
///
/// Makes the store if the directory does not exist or is empty.
#[derive(Args, Debug)]
pub(crate) struct PutArguments {
    /// The key.
    #[arg(value_name = "KEY")]
    pub(crate) key: OsString,
    /// The value.
    #[arg(value_name = "VALUE")]
    pub(crate) value: OsString,
    #[command(flatten)]
    pub(crate) ttl: TtlArguments,
    #[command(flatten)]
    pub(crate) store: StoreArguments,
    #[command(flatten)]
    pub(crate) notation: NotationArguments,
    #[command(flatten)]
    pub(crate) durability: DurabilityArguments,
    #[command(flatten)]
    pub(crate) make: MakeArguments,
}

/// How long what is written is there.
#[derive(Args, Debug)]
pub(crate) struct TtlArguments {
    /// Let what is written expire after so many seconds.
    #[arg(long = "ttl", value_name = "SECONDS")]
    seconds: Option<u64>,
}

impl TtlArguments {
    /// How long it is there, if it expires.
    pub(crate) fn ttl(&self) -> Option<Duration> {
        self.seconds.map(Duration::from_secs)
    }
}

/// How a store is made, where there is none.
#[derive(Args, Debug)]
pub(crate) struct MakeArguments {
    /// Storage engine of a store that is made; one that exists keeps its own. `scmkv` and `sptree`
    /// are in programs that were built with the feature `pm`, or `full`.
    #[arg(
        long,
        default_value = "wip",
        value_parser = PossibleValuesParser::new(Engine::ALL.iter().map(|engine| engine.name())),
    )]
    engine: String,
    /// Size of the file of a store of SCMKV or SPTree that is made, in bytes; it does not grow, and
    /// takes space as it is filled [default: 8 GiB].
    #[arg(long, value_name = "BYTES", value_parser = parse_count)]
    pool_bytes: Option<u64>,
}

impl MakeArguments {
    /// Whether the store is made as it is without any flag.
    #[cfg(feature = "server")]
    pub(crate) fn is_default(&self) -> bool {
        self.engine == Engine::default().name() && self.pool_bytes.is_none()
    }

    /// Options for a store of that engine and size.
    pub(crate) fn options(&self) -> Result<Options, Failure> {
        let engine = self.engine.parse().map_err(Failure::usage::<String>)?;
        let mut options = Options::default().engine(engine);
        if let Some(bytes) = self.pool_bytes {
            options.mapped.pool_bytes = bytes;
        }
        Ok(options)
    }
}

/// Delete a key.
///
/// It is no error if the store does not have the key.
#[derive(Args, Debug)]
pub(crate) struct DelArguments {
    /// The key.
    #[arg(value_name = "KEY")]
    pub(crate) key: OsString,
    #[command(flatten)]
    pub(crate) store: StoreArguments,
    #[command(flatten)]
    pub(crate) notation: NotationArguments,
    #[command(flatten)]
    pub(crate) durability: DurabilityArguments,
}

/// Print records in key order, one per line: key, tab, value.
///
/// The order is that of the keys' bytes. A store of SCMKV has none; `gabion dump` prints its
/// records.
#[derive(Args, Debug)]
pub(crate) struct ScanArguments {
    #[command(flatten)]
    pub(crate) store: StoreArguments,
    #[command(flatten)]
    pub(crate) notation: NotationArguments,
    #[command(flatten)]
    pub(crate) range: RangeArguments,
    /// From the last key to the first.
    #[arg(long)]
    pub(crate) reverse: bool,
    /// At most this many records.
    #[arg(long, value_name = "N", value_parser = parse_count)]
    pub(crate) limit: Option<u64>,
    /// Print keys without values.
    #[arg(long)]
    pub(crate) keys_only: bool,
}

/// Write all records of a keyspace to a file that `load` reads back.
///
/// The first line is `#gabion-dump 1`, then one line per record in key order, if the store has
/// one: key, tab, value, with every byte that is not printable text escaped, and a `#` that begins
/// a key. The last line holds the number of records and a checksum of all before it, so that a
/// dump that was cut short or damaged is noticed. A file is written under its name with
/// `.incomplete` behind it, and gets its name when it is whole.
#[derive(Args, Debug)]
pub(crate) struct DumpArguments {
    /// File to write, which must not exist; `-` is standard output.
    #[arg(value_name = "FILE", default_value = "-")]
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) store: StoreArguments,
}

/// Show what a store consists of: space, tables, buckets, levels, memory.
///
/// What was done to a store is counted from its opening on, and this opens it: what writes cost is
/// told by `load` and `bench`.
#[derive(Args, Debug)]
pub(crate) struct StatsArguments {
    /// Directory of the store.
    #[arg(long, value_name = "DIR")]
    pub(crate) db: PathBuf,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Read every byte of a store and verify all checksums, orders and counts.
///
/// Prints what is damaged, with file and offset, and then ends with exit status 1.
#[derive(Args, Debug)]
pub(crate) struct CheckArguments {
    /// Directory of the store.
    #[arg(long, value_name = "DIR")]
    pub(crate) db: PathBuf,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Merge what a store holds into as few tables as it needs.
///
/// Gives back the space of overwritten and deleted records, and leaves every key in one place. A
/// store does this by itself as far as it pays while it is open; this does all of it, for the whole
/// keyspace or for the parts that hold the keys asked for.
#[derive(Args, Debug)]
pub(crate) struct CompactArguments {
    #[command(flatten)]
    pub(crate) store: StoreArguments,
    #[command(flatten)]
    pub(crate) notation: NotationArguments,
    #[command(flatten)]
    pub(crate) range: RangeArguments,
    /// How the blocks of new tables are compressed: `none`, `lz4` or `zstd:LEVEL` (1 to 19).
    /// So a keyspace changes from one to another: name the method again to keep it.
    #[arg(
        long,
        value_name = "METHOD",
        default_value_t = Compression::default(),
        value_parser = Compression::from_str
    )]
    pub(crate) compression: Compression,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Remove a keyspace of a store, with all its records.
///
/// There is no way back but a checkpoint or a dump that was made before. The space of its tables is
/// free at once. The default keyspace stays, and a store of SCMKV or SPTree cannot drop any. Exit
/// status 1 if the store has no keyspace of that name; `gabion stats` tells which it has.
#[derive(Args, Debug)]
pub(crate) struct DropArguments {
    /// The keyspace.
    #[arg(value_name = "NAME")]
    pub(crate) keyspace: String,
    /// Directory of the store.
    #[arg(long, value_name = "DIR")]
    pub(crate) db: PathBuf,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// A store, and the directory for another one that is made from it.
#[derive(Args, Debug)]
pub(crate) struct TwoStoresArguments {
    /// Directory of the store.
    #[arg(long, value_name = "DIR")]
    pub(crate) db: PathBuf,
    /// Directory for the new store; it must not exist. It is there as a whole or not at all.
    #[arg(value_name = "NEW")]
    pub(crate) to: PathBuf,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Save what can be read of a damaged store into a new one.
///
/// The damaged store stays as it is, and nothing is written to it. Prints what is damaged, with
/// file and offset, and what is lost: how many entries, of which keyspace, between which keys;
/// there is no second copy of them. Ends with 1 where anything is lost. Where the newest value of a
/// key is lost, an older one may be found in the new store, also one that was deleted; a checkpoint
/// or another copy of the store is better, if there is one. A store of SCMKV or SPTree cannot be
/// repaired.
#[derive(Args, Debug)]
pub(crate) struct RepairArguments {
    #[command(flatten)]
    pub(crate) stores: TwoStoresArguments,
}

/// Write a store as it is now to another directory, as a store of its own.
///
/// On the same file system a checkpoint of a WipDB store shares the tables with the store, which
/// takes neither time nor space; so it is a copy for the moment before a risky change. A copy for
/// the day on which the drive fails must lie on another drive. FlexDB writes all records anew; of
/// SCMKV and SPTree there are no checkpoints.
#[derive(Args, Debug)]
pub(crate) struct CheckpointArguments {
    #[command(flatten)]
    pub(crate) stores: TwoStoresArguments,
}

/// Not in this program, which was built without the lab.
///
/// `cargo build --profile measure --features full` builds all of it.
#[cfg(not(feature = "lab"))]
#[derive(Args, Debug)]
pub(crate) struct AbsentArguments {
    /// Whatever is asked of it.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    _rest: Vec<OsString>,
}

/// Not in this program, which was built without the server.
///
/// `cargo build --release --features server` builds it along.
#[cfg(not(feature = "server"))]
#[derive(Args, Debug)]
pub(crate) struct NoServerArguments {
    /// Whatever is asked of it.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    _rest: Vec<OsString>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definitions_are_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn every_flag_has_help() {
        let program = Arguments::command();
        let mut commands: Vec<_> = program.get_subcommands().collect();
        while let Some(command) = commands.pop() {
            assert!(command.get_about().is_some(), "{}", command.get_name());
            for argument in command.get_arguments() {
                let (command, id) = (command.get_name(), argument.get_id());
                assert!(argument.get_help().is_some(), "{command} {id}");
            }
            commands.extend(command.get_subcommands());
        }
    }

    #[test]
    fn counts_may_have_units() {
        for (text, count) in [
            ("0", 0),
            ("12", 12),
            ("1_000", 1000),
            ("5k", 5000),
            ("20M", 20_000_000),
        ] {
            assert_eq!(parse_count(text), Ok(count));
        }
        for wrong in ["", "M", "-1", "1.5", "99999999999G", "ü"] {
            assert!(parse_count(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn delimiters_are_one_character() {
        assert_eq!(parse_delimiter(";"), Ok(b';'));
        assert_eq!(parse_delimiter("\\t"), Ok(b'\t'));
        for wrong in ["", "a", "\"", ";;", "\n", "ü"] {
            assert!(parse_delimiter(wrong).is_err(), "{wrong}");
        }
    }
}
