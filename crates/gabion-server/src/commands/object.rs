//! What is known of a key's form: `OBJECT` and `MEMORY USAGE`.

use crate::command::{Command, Group, READONLY, command};
use crate::commands::{container, help};
use crate::execution::Execution;
use crate::fault::{Fault, Result};
use crate::store::meta::{Kind, Meta};

/// Strings up to this length are stored with their key, as Redis calls it.
const EMBEDDED_BYTES_MAX: usize = 44;

pub(crate) const COMMANDS: &[Command] = &[command("object", -2, container)
    .with(SUBCOMMANDS)
    .about(Group::Generic, "2.2.3", "Tells how a key is kept.")];

const SUBCOMMANDS: &[Command] = &[
    command("encoding", 3, encoding)
        .flags(READONLY)
        .keys(2, 2, 1)
        .about(
            Group::Generic,
            "2.2.3",
            "Returns the form that Redis would have for it.",
        ),
    command("freq", 3, freq)
        .flags(READONLY)
        .keys(2, 2, 1)
        .about(Group::Generic, "4.0.0", "Is refused: uses are not counted."),
    command("help", 2, show_help).about(Group::Generic, "6.2.0", "Tells about the subcommands."),
    command("idletime", 3, idletime)
        .flags(READONLY)
        .keys(2, 2, 1)
        .about(Group::Generic, "2.2.3", "Is refused: uses are not noted."),
    command("refcount", 3, refcount)
        .flags(READONLY)
        .keys(2, 2, 1)
        .about(Group::Generic, "2.2.3", "Returns 1: nothing is shared."),
];

/// The key, or a reply that it is not there.
fn key(execution: &mut Execution<'_>) -> Result<Option<Meta>> {
    let found = execution.find(execution.arg(2))?;
    if found.is_none() {
        execution.reply.null();
    }
    Ok(found)
}

fn encoding(execution: &mut Execution<'_>) -> Result<()> {
    let Some(meta) = key(execution)? else {
        return Ok(());
    };
    let is_large = meta.head.elements.is_some();
    let name = match (meta.head.kind, is_large) {
        (Kind::String, _) if crate::args::integer(meta.body()).is_some() => "int",
        (Kind::String, _) if meta.body().len() <= EMBEDDED_BYTES_MAX => "embstr",
        (Kind::String, _) => "raw",
        (Kind::List, _) => "quicklist",
        (Kind::Set | Kind::Hash, true) => "hashtable",
        (Kind::SortedSet, true) => "skiplist",
        (Kind::Set | Kind::Hash | Kind::SortedSet, false) => "listpack",
        (Kind::Stream, _) => "stream",
    };
    execution.reply.bulk(name);
    Ok(())
}

fn refcount(execution: &mut Execution<'_>) -> Result<()> {
    if key(execution)?.is_some() {
        execution.reply.integer(1);
    }
    Ok(())
}

fn idletime(execution: &mut Execution<'_>) -> Result<()> {
    match key(execution)? {
        Some(_) => Err(Fault::line("ERR idle time is not tracked by this server")),
        None => Ok(()),
    }
}

fn freq(execution: &mut Execution<'_>) -> Result<()> {
    match key(execution)? {
        Some(_) => Err(Fault::line(
            "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please \
             note that when switching between policies at runtime LRU and LFU data will take some \
             time to adjust.",
        )),
        None => Ok(()),
    }
}

fn show_help(execution: &mut Execution<'_>) -> Result<()> {
    help(
        execution,
        &[
            "OBJECT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
            "ENCODING <key>",
            "    Return the form that Redis would have for the key.",
            "REFCOUNT <key>",
            "    Return 1 for a key that is there.",
        ],
    );
    Ok(())
}
