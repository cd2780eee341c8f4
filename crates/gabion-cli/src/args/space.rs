//! The command line of `gabion space`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use gabion_flex::DurablePoint;

/// Edit huge files in place: insert and remove bytes anywhere without rewriting what follows.
///
/// A space is a directory that holds one sequence of bytes. Inserting at its front costs as much as
/// appending at its end, whatever its size. `import` makes a space of a file, `export` a file of a
/// space.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Example, a line at the top of a large text:
  gabion space import big.txt --space big
  printf 'a new first line\\n' | gabion space insert 0 --space big
  gabion space read 0 100 --space big
  gabion space export big2.txt --space big")]
pub(crate) struct SpaceArguments {
    /// What to do with the space.
    #[command(subcommand)]
    pub(crate) command: SpaceCommand,
}

/// The commands on spaces.
#[derive(Debug, Subcommand)]
pub(crate) enum SpaceCommand {
    Insert(SpaceInsertArguments),
    Cut(SpaceCutArguments),
    Read(SpaceReadArguments),
    /// Copy a whole file into a new space.
    Import(SpaceFileArguments),
    /// Copy a whole space into a new file.
    Export(SpaceFileArguments),
    /// Show the figures of a space.
    Stats(SpaceFiguresArguments),
    /// Verify every byte of a space.
    ///
    /// Ends with exit status 1 if anything is damaged.
    Check(SpaceFiguresArguments),
}

/// Which space.
#[derive(Args, Debug)]
pub(crate) struct SpaceDirArguments {
    /// Directory of the space.
    #[arg(long, value_name = "DIR")]
    pub(crate) space: PathBuf,
    /// A moment that the space is known to have reached, as `stats` and `check` tell it.
    ///
    /// When the end of what was synced last is damaged, it cannot be told from what a crash
    /// leaves, and the space is as it was at the sync before. With this, a space that ends before
    /// the moment is refused as damaged.
    #[arg(long, value_name = "VERSION:OFFSET", value_parser = parse_point)]
    pub(crate) reached: Option<DurablePoint>,
}

/// Insert bytes; what is at the offset or behind it moves.
///
/// All bytes are inserted or, if this fails, none. A space that does not exist is made.
#[derive(Args, Debug)]
pub(crate) struct SpaceInsertArguments {
    /// Where the first byte will be, in bytes from the start; `end` appends.
    #[arg(value_name = "OFFSET", value_parser = parse_place)]
    pub(crate) offset: Place,
    /// The bytes, as they are; without it they are read from standard input.
    #[arg(value_name = "TEXT")]
    pub(crate) text: Option<OsString>,
    #[command(flatten)]
    pub(crate) dir: SpaceDirArguments,
}

/// Remove bytes; what is behind them moves to their place.
#[derive(Args, Debug)]
pub(crate) struct SpaceCutArguments {
    /// The first byte to remove.
    #[arg(value_name = "OFFSET")]
    pub(crate) offset: u64,
    /// How many bytes.
    #[arg(value_name = "LENGTH")]
    pub(crate) len: u64,
    #[command(flatten)]
    pub(crate) dir: SpaceDirArguments,
}

/// Write bytes of the space to standard output, as they are.
#[derive(Args, Debug)]
pub(crate) struct SpaceReadArguments {
    /// The first byte.
    #[arg(value_name = "OFFSET", default_value_t = 0)]
    pub(crate) offset: u64,
    /// How many bytes at most; without it, all up to the end.
    #[arg(value_name = "LENGTH")]
    pub(crate) len: Option<u64>,
    #[command(flatten)]
    pub(crate) dir: SpaceDirArguments,
}

/// A space, and a file to copy from or to.
#[derive(Args, Debug)]
pub(crate) struct SpaceFileArguments {
    /// The file; `-` is standard input or output. A file to write must not exist.
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) dir: SpaceDirArguments,
}

/// A space, and how to print what is found of it.
#[derive(Args, Debug)]
pub(crate) struct SpaceFiguresArguments {
    #[command(flatten)]
    pub(crate) dir: SpaceDirArguments,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

fn parse_point(text: &str) -> Result<DurablePoint, String> {
    let point = text.split_once(':').and_then(|(version, offset)| {
        Some(DurablePoint {
            tree_version: version.parse().ok()?,
            log_offset: offset.parse().ok()?,
        })
    });
    point.ok_or_else(|| "must be two numbers, as `stats` prints them: 12:4096".to_owned())
}

/// A place in a space.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place {
    At(u64),
    End,
}

fn parse_place(text: &str) -> Result<Place, String> {
    match text {
        "end" => Ok(Place::End),
        _ => text
            .parse()
            .map(Place::At)
            .map_err(|_| "must be a number of bytes, or `end`".to_owned()),
    }
}
