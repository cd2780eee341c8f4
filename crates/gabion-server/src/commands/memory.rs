//! `MEMORY`: memory use of keys and of the server.

use crate::command::{Command, CommandGroup, READONLY, command};
use crate::commands::{container, help, object};
use crate::execution::Execution;
use crate::fault::Result;

pub(crate) const COMMANDS: &[Command] = &[command("memory", -2, container)
    .with(SUBCOMMANDS)
    .about(CommandGroup::Server, "4.0.0", "Shows memory use.")];

const SUBCOMMANDS: &[Command] = &[
    command("doctor", 2, doctor).about(
        CommandGroup::Server,
        "4.0.0",
        "Reports whether memory is short.",
    ),
    command("help", 2, show_help).about(CommandGroup::Server, "4.0.0", "Lists the subcommands."),
    command("stats", 2, stats).about(
        CommandGroup::Server,
        "4.0.0",
        "Shows what memory is used for.",
    ),
    command("usage", -3, object::usage)
        .flags(READONLY)
        .keys(2, 2, 1)
        .about(
            CommandGroup::Server,
            "4.0.0",
            "Returns about how many bytes a key takes in the store.",
        ),
];

fn doctor(execution: &mut Execution<'_>) -> Result<()> {
    let memory = execution.server.store.db.stats().memory;
    let (used, most) = (memory.bytes, memory.bytes_max);
    let text = match used > most && most > 0 {
        true => format!("The store uses {used} bytes, more than its ceiling of {most}.\n"),
        false => format!("The store uses {used} bytes of {most}. All is well.\n"),
    };
    execution.reply.verbatim(&text);
    Ok(())
}

fn stats(execution: &mut Execution<'_>) -> Result<()> {
    let server = execution.server;
    let memory = server.store.db.stats().memory;
    let (lua_bytes, _) = server.scripts.sizes();
    let lua_bytes = u64::try_from(lua_bytes).unwrap_or(u64::MAX);
    let shown = [
        ("total.allocated", memory.bytes.saturating_add(lua_bytes)),
        ("lua.caches", lua_bytes),
        ("store.tables", memory.tables),
        ("store.memtables", memory.memtables),
        ("store.cache", memory.cache),
        ("store.ceiling", memory.bytes_max),
    ];
    execution.reply.map(shown.len());
    for (name, bytes) in shown {
        execution.reply.bulk(name);
        execution.reply.unsigned(bytes);
    }
    Ok(())
}

fn show_help(execution: &mut Execution<'_>) -> Result<()> {
    help(
        execution,
        &[
            "MEMORY <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
            "DOCTOR",
            "    Report whether memory is short.",
            "STATS",
            "    Show what memory is used for, in bytes.",
            "USAGE <key> [SAMPLES <count>]",
            "    Return about how many bytes a key takes in the store.",
        ],
    );
    Ok(())
}
