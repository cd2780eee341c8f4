//! `CLUSTER`: this server is not part of a cluster.

use crate::command::{Command, CommandGroup, FAST, LOADING, NOSCRIPT, STALE, command};
use crate::commands::{container, help};
use crate::execution::Execution;
use crate::fault::{Fault, Result};

const ABOUT: CommandGroup = CommandGroup::Server;

pub(crate) const COMMANDS: &[Command] = &[
    command("cluster", -2, container)
        .flags(NOSCRIPT)
        .with(SUBCOMMANDS)
        .about(
            ABOUT,
            "3.0.0",
            "Reports that this server has no cluster mode.",
        ),
    of_connection("asking"),
    of_connection("readonly"),
    of_connection("readwrite"),
];

/// What clients of a cluster say to one of its servers.
const fn of_connection(name: &'static str) -> Command {
    command(name, 1, refuse)
        .flags(FAST | LOADING | STALE)
        .about(
            CommandGroup::Connection,
            "3.0.0",
            "Always fails: this server has no cluster mode.",
        )
}

const SUBCOMMANDS: &[Command] = &[
    refused("info", 2),
    refused("keyslot", 3),
    refused("myid", 2),
    refused("nodes", 2),
    refused("reset", -2),
    refused("shards", 2),
    refused("slots", 2),
    command("help", 2, show_help)
        .flags(STALE)
        .about(ABOUT, "5.0.0", "Lists the subcommands."),
];

const fn refused(name: &'static str, arity: i32) -> Command {
    command(name, arity, refuse).flags(NOSCRIPT | STALE).about(
        ABOUT,
        "3.0.0",
        "Always fails: this server has no cluster mode.",
    )
}

fn refuse(_: &mut Execution<'_>) -> Result<()> {
    Err(Fault::line(
        "ERR This instance has cluster support disabled",
    ))
}

fn show_help(execution: &mut Execution<'_>) -> Result<()> {
    help(
        execution,
        &["CLUSTER <subcommand>. All but HELP are refused: there is no cluster."],
    );
    Ok(())
}
