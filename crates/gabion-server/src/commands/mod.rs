//! The commands, a file for each family: a table and its handlers.

pub(crate) mod acl;
pub(crate) mod bitfield;
pub(crate) mod bits;
pub(crate) mod client;
pub(crate) mod cluster;
pub(crate) mod config;
pub(crate) mod connection;
pub(crate) mod debug;
pub(crate) mod digest;
pub(crate) mod dump;
pub(crate) mod expires;
pub(crate) mod expiry;
pub(crate) mod functions;
pub(crate) mod geo;
pub(crate) mod hash;
pub(crate) mod hash_expiry;
pub(crate) mod hyperloglog;
pub(crate) mod info;
pub(crate) mod introspection;
pub(crate) mod keys;
pub(crate) mod latency;
pub(crate) mod lcs;
pub(crate) mod list;
pub(crate) mod list_moves;
pub(crate) mod lolwut;
pub(crate) mod memory;
pub(crate) mod migrate;
pub(crate) mod numbers;
pub(crate) mod object;
pub(crate) mod picks;
pub(crate) mod pubsub;
pub(crate) mod scan;
pub(crate) mod scripts;
pub(crate) mod server;
pub(crate) mod set;
pub(crate) mod sort;
pub(crate) mod stream;
pub(crate) mod stream_groups;
pub(crate) mod stream_info;
pub(crate) mod string;
pub(crate) mod tracking;
pub(crate) mod transactions;
pub(crate) mod watching;
pub(crate) mod zset;
pub(crate) mod zset_pops;
pub(crate) mod zset_ranges;
pub(crate) mod zset_sets;

use crate::execution::Execution;
use crate::fault::Result;

/// Writes lines of help, as subcommands `HELP` answer.
fn help(execution: &mut Execution<'_>, lines: &[&str]) {
    execution.reply.array(lines.len() + 2);
    for line in lines {
        execution.reply.simple(line);
    }
    execution.reply.simple("HELP");
    execution.reply.simple("    Print this help.");
}

/// Elements from which on a command hands the other tasks of its thread over before it reads them.
const LONG_COUNT: u64 = 10_000;

/// Reads that many elements.
fn read_many<T>(count: u64, read: impl FnOnce() -> T) -> T {
    match count >= LONG_COUNT {
        true => tokio::task::block_in_place(read),
        false => read(),
    }
}

/// The handler of a command that is nothing without a subcommand.
fn container(execution: &mut Execution<'_>) -> Result<()> {
    Err(execution.wrong_arguments())
}
