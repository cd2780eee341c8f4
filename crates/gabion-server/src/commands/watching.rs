//! `SLOWLOG` and `MONITOR`, which show executed commands; and `WAIT`.

use std::sync::Arc;
use std::time::Duration;

use crate::blocking::TimeoutReply;
use crate::command::{
    ADMIN, BLOCKING, Command, CommandGroup, LOADING, LONG, NO_MULTI, NOSCRIPT, STALE, command,
    parse_integer,
};
use crate::commands::{container, help};
use crate::execution::Execution;
use crate::fault::{Fault, Result};

const OF_LOG: u32 = ADMIN | LOADING | STALE;

pub(crate) const COMMANDS: &[Command] = &[
    command("monitor", 1, monitor)
        .flags(ADMIN | NOSCRIPT | LOADING | STALE | NO_MULTI)
        .about(
            CommandGroup::Server,
            "1.0.0",
            "Streams all executed commands.",
        ),
    command("slowlog", -2, container).with(SUBCOMMANDS).about(
        CommandGroup::Server,
        "2.2.12",
        "Shows slow commands.",
    ),
    command("wait", 3, wait).flags(NOSCRIPT | BLOCKING).about(
        CommandGroup::Generic,
        "3.0.0",
        "Waits for replicas; this server has none.",
    ),
    command("waitaof", 4, waitaof)
        .flags(NOSCRIPT | BLOCKING | LONG)
        .about(
            CommandGroup::Generic,
            "7.2.0",
            "Waits until earlier writes are on the medium.",
        ),
];

const SUBCOMMANDS: &[Command] = &[
    command("get", -2, get).flags(OF_LOG).about(
        CommandGroup::Server,
        "2.2.12",
        "Returns the entries of the slow log.",
    ),
    command("help", 2, show_help).flags(LOADING | STALE).about(
        CommandGroup::Server,
        "6.2.0",
        "Lists the subcommands.",
    ),
    command("len", 2, length).flags(OF_LOG).about(
        CommandGroup::Server,
        "2.2.12",
        "Counts the entries of the slow log.",
    ),
    command("reset", 2, reset).flags(OF_LOG).about(
        CommandGroup::Server,
        "2.2.12",
        "Clears the slow log.",
    ),
];

fn monitor(execution: &mut Execution<'_>) -> Result<()> {
    let client = Arc::clone(&execution.session.client);
    execution.server.monitor.watch(client);
    execution.reply.ok();
    Ok(())
}

fn get(execution: &mut Execution<'_>) -> Result<()> {
    let count = match execution.args.get(2) {
        None => 10,
        Some(text) => match parse_integer(text)? {
            -1 => usize::MAX,
            count => usize::try_from(count)
                .map_err(|_| Fault::line("ERR count should be greater than or equal to -1"))?,
        },
    };
    let slow = execution.server.monitor.slow(count);
    let reply = &mut *execution.reply;
    reply.array(slow.len());
    for slow in slow {
        reply.array(6);
        for number in [slow.id, slow.at, slow.micros] {
            reply.integer(i64::try_from(number).unwrap_or(i64::MAX));
        }
        reply.array(slow.arguments.len());
        for argument in slow.arguments {
            reply.bulk(argument);
        }
        reply.bulk(slow.address);
        reply.bulk(slow.name);
    }
    Ok(())
}

fn length(execution: &mut Execution<'_>) -> Result<()> {
    let count = execution.server.monitor.slow_count();
    execution.reply.count(count);
    Ok(())
}

fn reset(execution: &mut Execution<'_>) -> Result<()> {
    execution.server.monitor.forget_slow();
    execution.reply.ok();
    Ok(())
}

/// How many replicas, and how long to wait for them; `None` for ever.
fn replicas(execution: &Execution<'_>, at: usize) -> Result<(i64, Option<Duration>)> {
    let replicas = parse_integer(execution.arg(at))?;
    let bad = |_| Fault::line("ERR timeout is not an integer or out of range");
    let ms = parse_integer(execution.arg(at + 1)).map_err(bad)?;
    let ms = u64::try_from(ms).map_err(|_| Fault::line("ERR timeout is negative"))?;
    Ok((replicas, (ms > 0).then(|| Duration::from_millis(ms))))
}

fn wait(execution: &mut Execution<'_>) -> Result<()> {
    let (replicas, timeout) = replicas(execution, 1)?;
    match replicas > 0 {
        true => execution.wait_for(&[], timeout, TimeoutReply::Zero),
        false => execution.reply.integer(0),
    }
    Ok(())
}

fn waitaof(execution: &mut Execution<'_>) -> Result<()> {
    let local = parse_integer(execution.arg(1))?;
    if !(0..=1).contains(&local) {
        return Err(Fault::line(
            "ERR value is out of range, value must between 0 and 1",
        ));
    }
    let (replicas, timeout) = replicas(execution, 2)?;
    if local == 1 {
        // DURABLE: what was acknowledged before the call survives a power loss after this.
        let store = &execution.server.store;
        store.db.persist(gabion::Durability::Sync)?;
    }
    match replicas > 0 {
        true => execution.wait_for(&[], timeout, TimeoutReply::Local(local)),
        false => {
            execution.reply.array(2);
            execution.reply.integer(local);
            execution.reply.integer(0);
        }
    }
    Ok(())
}

fn show_help(execution: &mut Execution<'_>) -> Result<()> {
    help(
        execution,
        &[
            "SLOWLOG <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
            "GET [<count>]",
            "    Return the last commands that were slow, 10 by default.",
            "LEN",
            "    Count the commands that were slow.",
            "RESET",
            "    Clear the slow log.",
        ],
    );
    Ok(())
}
