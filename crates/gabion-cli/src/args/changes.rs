//! The arguments of `gabion changes`.

use std::path::PathBuf;

use clap::Args;
use gabion::Position;

use super::NotationArguments;

/// Print what was written to a store, in the order in which it took effect.
///
/// Each line is an operation: the position behind its change, the keyspace, what was done, and then
/// key and value, or what else there is to tell, with tabs between them. Operations that were
/// committed together have one position. With --json each line is such a change.
///
/// The log has the newest changes only; it keeps them for consumers. Without --consumer the store
/// is opened for reading, also beside a process that writes it (WipDB). The command prints what is
/// there and ends, or with --follow goes on with what is written until SIGINT or SIGTERM. Exit
/// status 1 if the changes behind a position are gone.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  gabion changes --db cities
  gabion changes --db cities --from 1.1064.250 --json
  gabion changes --db cities --follow
  gabion changes --db cities --consumer mirror --json | ./mirror")]
pub(crate) struct ChangesArguments {
    /// Directory of the store.
    #[arg(long, value_name = "DIR")]
    pub(crate) db: PathBuf,
    /// Only changes behind this position, as the output has them. Without it, or a consumer, all
    /// that are there.
    #[arg(long, value_name = "POSITION", conflicts_with = "consumer")]
    pub(crate) from: Option<Position>,
    /// Only what this consumer has not had, which has had it when the command ends. It is made if
    /// the store has none of that name, and finds what is written from then on.
    #[arg(long, value_name = "NAME")]
    pub(crate) consumer: Option<String>,
    /// Wait for further changes and print them as they come.
    #[arg(long)]
    pub(crate) follow: bool,
    /// Print at most so many changes.
    #[arg(long, value_name = "N", value_parser = super::parse_count)]
    pub(crate) limit: Option<u64>,
    #[command(flatten)]
    pub(crate) notation: NotationArguments,
    /// Print lines of JSON.
    #[arg(long)]
    pub(crate) json: bool,
}
