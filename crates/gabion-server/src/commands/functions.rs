//! `FUNCTION`: libraries of functions. None can be loaded, so that there are none to remove.

use crate::command::{Command, Group, NOSCRIPT, WRITE, command};
use crate::commands::container;
use crate::execution::Execution;
use crate::fault::{Fault, Result};

pub(crate) const COMMANDS: &[Command] = &[command("function", -2, container)
    .with(SUBCOMMANDS)
    .about(Group::Server, "7.0.0", "Tells about functions.")];

const SUBCOMMANDS: &[Command] = &[
    command("flush", -2, flush).flags(NOSCRIPT | WRITE).about(
        Group::Server,
        "7.0.0",
        "Removes all functions.",
    ),
    command("list", -2, list)
        .flags(NOSCRIPT)
        .about(Group::Server, "7.0.0", "Lists the functions."),
];

fn flush(execution: &mut Execution<'_>) -> Result<()> {
    let is_way = |word: &[u8]| matches!(word.to_ascii_lowercase().as_slice(), b"sync" | b"async");
    if execution.args.len() > 3 || !execution.args.get(2).is_none_or(is_way) {
        return Err(Fault::line(
            "ERR FUNCTION FLUSH only supports SYNC|ASYNC option",
        ));
    }
    execution.reply.ok();
    Ok(())
}

fn list(execution: &mut Execution<'_>) -> Result<()> {
    execution.reply.array(0);
    Ok(())
}
