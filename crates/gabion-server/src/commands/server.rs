//! The server and its databases as a whole.

use std::sync::Arc;

use crate::command::{
    ADMIN, ALLOW_BUSY, ALONE, Command, CommandGroup, FAST, LOADING, LONG, NO_MULTI, NOSCRIPT,
    READONLY, STALE, WRITE, command,
};
use crate::commands::lolwut;
use crate::execution::Execution;
use crate::fault::{Fault, Result};

const SAVES: Fault = Fault::line("ERR Background save already in progress");

pub(crate) const COMMANDS: &[Command] = &[
    command("bgsave", -1, bgsave).flags(ADMIN | NOSCRIPT).about(
        CommandGroup::Server,
        "1.0.0",
        "Brings all that was written to the medium, in the background.",
    ),
    command("dbsize", 1, dbsize).flags(READONLY | FAST).about(
        CommandGroup::Server,
        "1.0.0",
        "Counts the keys of the database.",
    ),
    command("flushall", -1, flushall)
        .flags(WRITE | ALONE | LONG)
        .about(
            CommandGroup::Server,
            "1.0.0",
            "Removes all keys of all databases.",
        ),
    command("flushdb", -1, flushdb)
        .flags(WRITE | ALONE | LONG)
        .about(
            CommandGroup::Server,
            "1.0.0",
            "Removes all keys of the database.",
        ),
    command("lastsave", 1, lastsave)
        .flags(LOADING | STALE | FAST)
        .about(
            CommandGroup::Server,
            "1.0.0",
            "Returns when the last save began that succeeded, or the start.",
        ),
    command("lolwut", -1, lolwut::lolwut)
        .flags(READONLY | FAST)
        .about(
            CommandGroup::Server,
            "5.0.0",
            "Draws a wall of gabions, and tells the version.",
        ),
    command("role", 1, role)
        .flags(NOSCRIPT | LOADING | STALE | FAST)
        .about(
            CommandGroup::Server,
            "2.8.12",
            "Reports that this server is not a replica.",
        ),
    command("save", 1, save)
        .flags(ADMIN | NOSCRIPT | NO_MULTI | LONG)
        .about(
            CommandGroup::Server,
            "1.0.0",
            "Brings all that was written to the medium.",
        ),
    command("shutdown", -1, shutdown)
        .flags(ALLOW_BUSY | ADMIN | NOSCRIPT | LOADING | STALE | NO_MULTI)
        .about(CommandGroup::Server, "1.0.0", "Ends the server."),
    command("time", 1, time)
        .flags(LOADING | STALE | FAST)
        .about(
            CommandGroup::Server,
            "2.6.0",
            "Returns seconds and microseconds since 1970.",
        ),
];

fn dbsize(execution: &mut Execution<'_>) -> Result<()> {
    let keys = execution.server.store.sizes.of(execution.space()).keys;
    execution.reply.integer(keys);
    Ok(())
}

fn check_flush(execution: &Execution<'_>) -> Result<()> {
    let args = execution.args;
    let is_way = |word: &[u8]| matches!(word.to_ascii_lowercase().as_slice(), b"sync" | b"async");
    match (args.len(), args.get(1)) {
        (1, _) => Ok(()),
        (2, Some(word)) if is_way(word) => Ok(()),
        _ => Err(Fault::SYNTAX),
    }
}

fn flushdb(execution: &mut Execution<'_>) -> Result<()> {
    check_flush(execution)?;
    let database = execution.session.database;
    execution.flush(&[database])?;
    execution.reply.ok();
    Ok(())
}

fn flushall(execution: &mut Execution<'_>) -> Result<()> {
    check_flush(execution)?;
    let databases: Vec<usize> = (0..execution.server.store.databases())
        .filter(|database| {
            let store = &execution.server.store;
            *database == execution.session.database
                || execution.is_inside
                || store.sizes.of(store.space(*database)).keys != 0
        })
        .collect();
    execution.flush(&databases)?;
    execution.reply.ok();
    Ok(())
}

fn time(execution: &mut Execution<'_>) -> Result<()> {
    let now = std::time::SystemTime::now();
    let now = now
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default();
    execution.reply.array(2);
    execution.reply.bulk(now.as_secs().to_string());
    execution.reply.bulk(now.subsec_micros().to_string());
    Ok(())
}

fn save(execution: &mut Execution<'_>) -> Result<()> {
    let server = execution.server;
    let save = server.saves.begin().ok_or(SAVES)?;
    save.run(server)?;
    execution.reply.ok();
    Ok(())
}

fn bgsave(execution: &mut Execution<'_>) -> Result<()> {
    let waits = match (execution.args.len(), execution.args.get(1)) {
        (1, _) => false,
        (2, Some(word)) if word.eq_ignore_ascii_case(b"schedule") => true,
        _ => return Err(Fault::SYNTAX),
    };
    let server = Arc::clone(execution.server);
    if waits {
        server.saves.schedule();
    }
    let Some(save) = server.saves.begin() else {
        if !waits {
            return Err(SAVES);
        }
        execution.reply.simple("Background saving scheduled");
        return Ok(());
    };
    // Whether it succeeds is in the section `persistence` of INFO.
    tokio::task::spawn_blocking(move || save.run(&server));
    execution.reply.simple("Background saving started");
    Ok(())
}

fn lastsave(execution: &mut Execution<'_>) -> Result<()> {
    execution.reply.unsigned(execution.server.saves.last());
    Ok(())
}

fn role(execution: &mut Execution<'_>) -> Result<()> {
    execution.reply.array(3);
    execution.reply.bulk("master");
    execution.reply.integer(0);
    execution.reply.array(0);
    Ok(())
}

fn shutdown(execution: &mut Execution<'_>) -> Result<()> {
    for word in execution.args.from(1).iter() {
        match word.to_ascii_lowercase().as_slice() {
            b"nosave" | b"save" | b"now" | b"force" => {}
            b"abort" => return Err(Fault::line("ERR No shutdown in progress.")),
            _ => return Err(Fault::SYNTAX),
        }
    }
    let is_nosave = |word: &[u8]| word.eq_ignore_ascii_case(b"nosave");
    let threshold_ms = execution.server.settings.busy_ms();
    if let Some(line) = execution.server.scripts.running.busy(threshold_ms)
        && !execution.args.from(1).iter().any(is_nosave)
    {
        return Err(Fault::line(line));
    }
    execution.server.stop();
    execution.session.is_closing = true;
    Ok(())
}
