//! `MULTI`, `EXEC`, and what belongs to them.
//!
//! The commands of an `EXEC` run behind the gate, at one moment, on one transaction of the store:
//! so nobody sees a part of them, and a crash leaves all or nothing.

use crate::command::{
    ALLOW_BUSY, ALONE, Command, CommandGroup, FAST, LOADING, NOSCRIPT, READONLY, STALE, UNQUEUED,
    command,
};
use crate::dispatch::call_inside;
use crate::execution::Execution;
use crate::fault::{Fault, Result};
use crate::session::MultiState;

const OF_TRANSACTIONS: u32 = NOSCRIPT | LOADING | STALE | UNQUEUED;

pub(crate) const COMMANDS: &[Command] = &[
    command("discard", 1, discard)
        .flags(ALLOW_BUSY | OF_TRANSACTIONS | FAST)
        .about(
            CommandGroup::Transactions,
            "2.0.0",
            "Discards the queued commands.",
        ),
    command("exec", 1, exec)
        .flags(OF_TRANSACTIONS | ALONE)
        .about(
            CommandGroup::Transactions,
            "1.2.0",
            "Runs the queued commands atomically.",
        ),
    command("multi", 1, multi)
        .flags(ALLOW_BUSY | OF_TRANSACTIONS | FAST)
        .about(
            CommandGroup::Transactions,
            "1.2.0",
            "Begins a transaction: queues the commands that follow.",
        ),
    command("unwatch", 1, unwatch)
        .flags(NOSCRIPT | LOADING | STALE | FAST)
        .about(CommandGroup::Transactions, "2.2.0", "Stops watching keys."),
    command("watch", -2, watch)
        .flags(OF_TRANSACTIONS | FAST | READONLY)
        .keys(1, -1, 1)
        .about(
            CommandGroup::Transactions,
            "2.2.0",
            "Makes EXEC fail if one of the keys changes.",
        ),
];

fn multi(execution: &mut Execution<'_>) -> Result<()> {
    if execution.session.multi.is_some() {
        return Err(Fault::line("ERR MULTI calls can not be nested"));
    }
    execution.session.multi = Some(MultiState::default());
    execution.session.show();
    execution.reply.ok();
    Ok(())
}

fn discard(execution: &mut Execution<'_>) -> Result<()> {
    if execution.session.multi.take().is_none() {
        return Err(Fault::line("ERR DISCARD without MULTI"));
    }
    unwatch_all(execution);
    execution.session.show();
    execution.reply.ok();
    Ok(())
}

fn exec(execution: &mut Execution<'_>) -> Result<()> {
    let Some(multi) = execution.session.multi.take() else {
        return Err(Fault::line("ERR EXEC without MULTI"));
    };
    let watched = &execution.session.watched;
    let is_unchanged = execution
        .server
        .watch
        .is_unchanged(watched, execution.now_ms());
    unwatch_all(execution);
    execution.session.show();
    if multi.is_broken {
        return Err(Fault::line(
            "EXECABORT Transaction discarded because of previous errors.",
        ));
    }
    if !is_unchanged {
        execution.reply.null_array();
        return Ok(());
    }
    execution.reply.array(multi.queue.len());
    for queued in &multi.queue {
        call_inside(execution, queued.borrow());
    }
    Ok(())
}

fn watch(execution: &mut Execution<'_>) -> Result<()> {
    if execution.session.multi.is_some() {
        return Err(Fault::line("ERR WATCH inside MULTI is not allowed"));
    }
    let space = execution.space();
    for key in execution.args.from(1).iter() {
        let of_store = (space, key.to_vec());
        let is_known = |watched: &&crate::watch::WatchedKey| *watched.key() == of_store;
        if execution
            .session
            .watched
            .iter()
            .any(|watched| is_known(&watched))
        {
            continue;
        }
        let found = execution.find(key)?;
        let expires_ms = found.and_then(|meta| meta.head.expires_ms);
        let watched = execution.server.watch.begin(of_store, expires_ms);
        execution.session.watched.push(watched);
    }
    execution.reply.ok();
    Ok(())
}

fn unwatch(execution: &mut Execution<'_>) -> Result<()> {
    unwatch_all(execution);
    execution.reply.ok();
    Ok(())
}

/// Ends all watches of the connection.
pub(crate) fn unwatch_all(execution: &mut Execution<'_>) {
    let watched = std::mem::take(&mut execution.session.watched);
    if !watched.is_empty() {
        execution.server.watch.end(watched);
    }
}
