//! Sorted sets: commands that take members with the lowest or highest scores, and wait for some.

use std::time::Duration;

use crate::blocking::TimeoutReply;
use crate::command::{BLOCKING, Command, CommandGroup, DIRECT, FAST, NOSCRIPT, WRITE, command};
use crate::commands::list_moves::{MultiPopArgs, takes, timeout};
use crate::commands::zset::show;
use crate::events::EventClasses;
use crate::execution::Execution;
use crate::fault::{Fault, Result};
use crate::store::scored::{ScoredMember, SortedSet, SortedSetRange};

const ABOUT: CommandGroup = CommandGroup::SortedSet;

pub(crate) const COMMANDS: &[Command] = &[
    command("bzmpop", -5, bzmpop)
        .flags(WRITE | BLOCKING | DIRECT)
        .counted_keys(2, 2)
        .about(
            ABOUT,
            "7.0.0",
            "Removes and returns members of the first set that is not empty, or waits.",
        ),
    command("bzpopmax", -3, bzpopmax)
        .flags(WRITE | NOSCRIPT | FAST | BLOCKING | DIRECT)
        .keys(1, -2, 1)
        .about(
            ABOUT,
            "5.0.0",
            "Removes and returns the member with the highest score, or waits for one.",
        ),
    command("bzpopmin", -3, bzpopmin)
        .flags(WRITE | NOSCRIPT | FAST | BLOCKING | DIRECT)
        .keys(1, -2, 1)
        .about(
            ABOUT,
            "5.0.0",
            "Removes and returns the member with the lowest score, or waits for one.",
        ),
    command("zmpop", -4, zmpop)
        .flags(WRITE | DIRECT)
        .counted_keys(1, 1)
        .about(
            ABOUT,
            "7.0.0",
            "Removes and returns members of the first set that is not empty.",
        ),
    command("zpopmax", -2, zpopmax)
        .flags(WRITE | FAST | DIRECT)
        .keys(1, 1, 1)
        .about(
            ABOUT,
            "5.0.0",
            "Removes and returns the members with the highest scores.",
        ),
    command("zpopmin", -2, zpopmin)
        .flags(WRITE | FAST | DIRECT)
        .keys(1, 1, 1)
        .about(
            ABOUT,
            "5.0.0",
            "Removes and returns the members with the lowest scores.",
        ),
];

/// Takes members from an end of a set, and saves it.
fn pop_many(
    execution: &mut Execution<'_>,
    key: &[u8],
    mut set: SortedSet,
    (is_max, count): (bool, u64),
) -> Result<Vec<ScoredMember>> {
    if count == 0 || set.count() == 0 {
        return Ok(Vec::new());
    }
    let range = SortedSetRange::Places(0, count - 1);
    let taken = set.part(execution.work, &range, is_max)?;
    for (member, _) in &taken {
        set.remove(execution.work, member)?;
    }
    let saved = set.save(execution, key)?;
    let name = if is_max { "zpopmax" } else { "zpopmin" };
    execution.tell(saved, EventClasses::SORTED_SET, name, key);
    Ok(taken)
}

fn pop(execution: &mut Execution<'_>, is_max: bool) -> Result<()> {
    let key = execution.arg(1);
    if execution.args.len() > 3 {
        return Err(Fault::SYNTAX);
    }
    let count = match execution.args.get(2) {
        None => None,
        Some(count) => {
            let count = crate::args::integer(count).filter(|count| *count >= 0);
            let count = count.ok_or(Fault::line("ERR value is out of range, must be positive"))?;
            Some(count.unsigned_abs())
        }
    };
    let set = SortedSet::open(execution, key)?;
    let taken = pop_many(execution, key, set, (is_max, count.unwrap_or(1)))?;
    match (count, taken.first()) {
        // One member without a count is no array of one.
        (None, Some((member, score))) => {
            execution.reply.array(2);
            execution.reply.bulk(member);
            execution.reply.double(*score);
        }
        _ => show(execution.reply, &taken, true),
    }
    Ok(())
}

fn zpopmin(execution: &mut Execution<'_>) -> Result<()> {
    pop(execution, false)
}

fn zpopmax(execution: &mut Execution<'_>) -> Result<()> {
    pop(execution, true)
}

/// The first of some sets that is not empty. A command that has waited goes on waiting where a key
/// is of another type.
fn first_of<'a>(
    execution: &mut Execution<'_>,
    keys: &[&'a [u8]],
) -> Result<Option<(&'a [u8], SortedSet)>> {
    for key in keys {
        let set = match SortedSet::open(execution, key) {
            Err(_) if execution.session.is_retry => continue,
            opened => opened?,
        };
        if set.count() > 0 {
            return Ok(Some((*key, set)));
        }
    }
    Ok(None)
}

fn pop_or_wait(execution: &mut Execution<'_>, is_max: bool) -> Result<()> {
    let count = execution.args.len();
    let timeout: Option<Duration> = timeout(execution.arg(count - 1))?;
    let keys: Vec<_> = execution.args.from(1).iter().take(count - 2).collect();
    let Some((key, set)) = first_of(execution, &keys)? else {
        execution.wait_for(&keys, timeout, TimeoutReply::NullArray);
        return Ok(());
    };
    let taken = pop_many(execution, key, set, (is_max, 1))?;
    execution.reply.array(1 + 2 * taken.len());
    execution.reply.bulk(key);
    for (member, score) in taken {
        execution.reply.bulk(member);
        execution.reply.double(score);
    }
    Ok(())
}

fn bzpopmin(execution: &mut Execution<'_>) -> Result<()> {
    pop_or_wait(execution, false)
}

fn bzpopmax(execution: &mut Execution<'_>) -> Result<()> {
    pop_or_wait(execution, true)
}

/// Takes from the first set that has something; the keys if none has.
fn take<'a>(execution: &mut Execution<'a>, at: usize) -> Result<Option<Vec<&'a [u8]>>> {
    let MultiPopArgs { keys, end, count } = takes(execution, at)?;
    let is_max = match end.to_ascii_lowercase().as_slice() {
        b"min" => false,
        b"max" => true,
        _ => return Err(Fault::SYNTAX),
    };
    let Some((key, set)) = first_of(execution, &keys)? else {
        return Ok(Some(keys));
    };
    let taken = pop_many(execution, key, set, (is_max, count))?;
    let reply = &mut *execution.reply;
    reply.array(2);
    reply.bulk(key);
    reply.array(taken.len());
    for (member, score) in taken {
        reply.array(2);
        reply.bulk(member);
        reply.double(score);
    }
    Ok(None)
}

fn zmpop(execution: &mut Execution<'_>) -> Result<()> {
    if take(execution, 1)?.is_some() {
        execution.reply.null_array();
    }
    Ok(())
}

fn bzmpop(execution: &mut Execution<'_>) -> Result<()> {
    let timeout = timeout(execution.arg(1))?;
    if let Some(keys) = take(execution, 2)? {
        execution.wait_for(&keys, timeout, TimeoutReply::NullArray);
    }
    Ok(())
}
