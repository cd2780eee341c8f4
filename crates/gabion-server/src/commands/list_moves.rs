//! Lists: commands that move elements, take from the first list that has some, and wait for one.

use std::time::Duration;

use crate::args::float;
use crate::blocking::TimeoutReply;
use crate::command::{BLOCKING, Command, CommandGroup, DENYOOM, DIRECT, NOSCRIPT, WRITE, command};
use crate::commands::list::{pop_many, pop_name, push_name};
use crate::commands::set::counted;
use crate::events::EventClasses;
use crate::execution::Execution;
use crate::fault::{Fault, Result};
use crate::store::list::{List, ListEnd};

const ABOUT: CommandGroup = CommandGroup::List;
const WAIT: u32 = WRITE | NOSCRIPT | BLOCKING;

pub(crate) const COMMANDS: &[Command] = &[
    command("blmove", 6, blmove)
        .flags(WAIT | DENYOOM)
        .keys(1, 2, 1)
        .about(
            ABOUT,
            "6.2.0",
            "Moves an element to another list, or waits for one.",
        ),
    command("blmpop", -5, blmpop)
        .flags(WRITE | BLOCKING | DIRECT)
        .counted_keys(2, 2)
        .about(
            ABOUT,
            "7.0.0",
            "Removes and returns elements of the first list that is not empty, or waits.",
        ),
    command("blpop", -3, blpop)
        .flags(WAIT | DIRECT)
        .keys(1, -2, 1)
        .about(
            ABOUT,
            "2.0.0",
            "Removes and returns the first element of a list, or waits for one.",
        ),
    command("brpop", -3, brpop)
        .flags(WAIT | DIRECT)
        .keys(1, -2, 1)
        .about(
            ABOUT,
            "2.0.0",
            "Removes and returns the last element of a list, or waits for one.",
        ),
    command("brpoplpush", 4, brpoplpush)
        .flags(WAIT | DENYOOM)
        .keys(1, 2, 1)
        .about(
            ABOUT,
            "2.2.0",
            "Moves the last element to another list, or waits for one.",
        ),
    command("lmove", 5, lmove)
        .flags(WRITE | DENYOOM)
        .keys(1, 2, 1)
        .about(ABOUT, "6.2.0", "Moves an element to another list."),
    command("lmpop", -4, lmpop)
        .flags(WRITE | DIRECT)
        .counted_keys(1, 1)
        .about(
            ABOUT,
            "7.0.0",
            "Removes and returns elements of the first list that is not empty.",
        ),
    command("rpoplpush", 3, rpoplpush)
        .flags(WRITE | DENYOOM)
        .keys(1, 2, 1)
        .about(ABOUT, "1.2.0", "Moves the last element to another list."),
];

/// How long a command waits: `None` for ever.
///
/// # Errors
/// What Redis says of a number that is none, negative, or too large.
pub(crate) fn timeout(text: &[u8]) -> Result<Option<Duration>> {
    let seconds = float(text).ok_or(Fault::line("ERR timeout is not a float or out of range"))?;
    if seconds < 0.0 {
        return Err(Fault::line("ERR timeout is negative"));
    }
    if seconds > SECONDS_MAX {
        return Err(Fault::line("ERR timeout is out of range"));
    }
    if seconds == 0.0 {
        return Ok(None);
    }
    // What is longer than the clock of the system can count is for ever.
    let timeout = Duration::try_from_secs_f64(seconds).ok();
    Ok(timeout.filter(|timeout| *timeout < FOR_EVER))
}

/// Seconds that fit a number of milliseconds.
const SECONDS_MAX: f64 = 9_223_372_036_854_775.0;

const FOR_EVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// The end that a word names.
fn end(word: &[u8]) -> Result<ListEnd> {
    match word.to_ascii_lowercase().as_slice() {
        b"left" => Ok(ListEnd::Left),
        b"right" => Ok(ListEnd::Right),
        _ => Err(Fault::SYNTAX),
    }
}

/// The list of a key. A command that has waited goes on waiting where a key is of another type.
fn source(execution: &mut Execution<'_>, key: &[u8]) -> Result<List> {
    match List::open(execution, key) {
        Err(_) if execution.session.is_retry => Ok(List::empty(execution.space())),
        opened => opened,
    }
}

/// Moves an element from one list to another, or within one; `None` if there is none.
fn move_one(
    execution: &mut Execution<'_>,
    (from, to): (&[u8], &[u8]),
    (from_end, to_end): (ListEnd, ListEnd),
) -> Result<Option<Vec<u8>>> {
    let mut list = source(execution, from)?;
    if list.count() == 0 {
        return Ok(None);
    }
    if from == to {
        let element = list.pop(execution.work, from_end)?.unwrap_or_default();
        list.push(execution.work, to_end, &element)?;
        list.save(execution, from)?;
        execution.notify(EventClasses::LIST, pop_name(from_end), from);
        execution.notify(EventClasses::LIST, push_name(to_end), from);
        return Ok(Some(element));
    }
    let mut target = List::open(execution, to)?;
    let element = list.pop(execution.work, from_end)?.unwrap_or_default();
    target.push(execution.work, to_end, &element)?;
    let saved = list.save(execution, from)?;
    target.save(execution, to)?;
    execution.notify(EventClasses::LIST, push_name(to_end), to);
    execution.tell(saved, EventClasses::LIST, pop_name(from_end), from);
    Ok(Some(element))
}

fn lmove(execution: &mut Execution<'_>) -> Result<()> {
    let keys = (execution.arg(1), execution.arg(2));
    let ends = (end(execution.arg(3))?, end(execution.arg(4))?);
    let moved = move_one(execution, keys, ends)?;
    execution.reply.bulk_or_null(moved);
    Ok(())
}

fn rpoplpush(execution: &mut Execution<'_>) -> Result<()> {
    let keys = (execution.arg(1), execution.arg(2));
    let moved = move_one(execution, keys, (ListEnd::Right, ListEnd::Left))?;
    execution.reply.bulk_or_null(moved);
    Ok(())
}

fn move_or_wait(
    execution: &mut Execution<'_>,
    ends: (ListEnd, ListEnd),
    timeout: Option<Duration>,
) -> Result<()> {
    let keys = (execution.arg(1), execution.arg(2));
    match move_one(execution, keys, ends)? {
        Some(moved) => execution.reply.bulk(moved),
        None => execution.wait_for(&[keys.0], timeout, TimeoutReply::Null),
    }
    Ok(())
}

fn blmove(execution: &mut Execution<'_>) -> Result<()> {
    let ends = (end(execution.arg(3))?, end(execution.arg(4))?);
    let timeout = timeout(execution.arg(5))?;
    move_or_wait(execution, ends, timeout)
}

fn brpoplpush(execution: &mut Execution<'_>) -> Result<()> {
    let timeout = timeout(execution.arg(3))?;
    move_or_wait(execution, (ListEnd::Right, ListEnd::Left), timeout)
}

/// The first of some lists that is not empty.
fn first_of<'a>(
    execution: &mut Execution<'_>,
    keys: &[&'a [u8]],
) -> Result<Option<(&'a [u8], List)>> {
    for key in keys {
        let list = source(execution, key)?;
        if list.count() > 0 {
            return Ok(Some((*key, list)));
        }
    }
    Ok(None)
}

fn pop_or_wait(execution: &mut Execution<'_>, at: ListEnd) -> Result<()> {
    let count = execution.args.len();
    let timeout = timeout(execution.arg(count - 1))?;
    let keys: Vec<_> = execution.args.from(1).iter().take(count - 2).collect();
    let Some((key, mut list)) = first_of(execution, &keys)? else {
        execution.wait_for(&keys, timeout, TimeoutReply::NullArray);
        return Ok(());
    };
    let element = list.pop(execution.work, at)?.unwrap_or_default();
    let saved = list.save(execution, key)?;
    execution.tell(saved, EventClasses::LIST, pop_name(at), key);
    execution.reply.array(2);
    execution.reply.bulk(key);
    execution.reply.bulk(element);
    Ok(())
}

fn blpop(execution: &mut Execution<'_>) -> Result<()> {
    pop_or_wait(execution, ListEnd::Left)
}

fn brpop(execution: &mut Execution<'_>) -> Result<()> {
    pop_or_wait(execution, ListEnd::Right)
}

/// The arguments of a command that pops from the first of several keys that is not empty.
#[derive(Debug)]
pub(crate) struct MultiPopArgs<'a> {
    /// The keys.
    pub(crate) keys: Vec<&'a [u8]>,
    /// The word behind them, for an end.
    pub(crate) end: &'a [u8],
    /// How many it takes.
    pub(crate) count: u64,
}

/// The arguments of such a command, from the number of its keys on.
///
/// # Errors
/// What Redis says of other arguments.
pub(crate) fn takes<'a>(execution: &Execution<'a>, at: usize) -> Result<MultiPopArgs<'a>> {
    let args = execution.args;
    let (count, behind) =
        counted(execution, at).map_err(|fault| match fault.text().contains("greater than 0") {
            true => fault,
            false => Fault::SYNTAX,
        })?;
    let keys = args.from(at + 1).iter().take(count).collect();
    let word = args.get(behind).ok_or(Fault::SYNTAX)?;
    let mut taken = 1;
    let mut has_count = false;
    let mut next = behind + 1;
    while let Some(word) = args.get(next) {
        let value = args.get(next + 1).ok_or(Fault::SYNTAX)?;
        if !word.eq_ignore_ascii_case(b"count") || has_count {
            return Err(Fault::SYNTAX);
        }
        let number = crate::args::integer(value).filter(|number| *number > 0);
        taken = number
            .ok_or(Fault::line("ERR count should be greater than 0"))?
            .unsigned_abs();
        has_count = true;
        next += 2;
    }
    Ok(MultiPopArgs {
        keys,
        end: word,
        count: taken,
    })
}

/// Takes from the first list that has something; the keys if none has.
fn take<'a>(execution: &mut Execution<'a>, at: usize) -> Result<Option<Vec<&'a [u8]>>> {
    let MultiPopArgs {
        keys,
        end: word,
        count,
    } = takes(execution, at)?;
    let at = end(word)?;
    let Some((key, list)) = first_of(execution, &keys)? else {
        return Ok(Some(keys));
    };
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    let elements = pop_many(execution, key, list, at, count)?;
    execution.reply.array(2);
    execution.reply.bulk(key);
    execution.reply.array(elements.len());
    for element in elements {
        execution.reply.bulk(element);
    }
    Ok(None)
}

fn lmpop(execution: &mut Execution<'_>) -> Result<()> {
    if take(execution, 1)?.is_some() {
        execution.reply.null_array();
    }
    Ok(())
}

fn blmpop(execution: &mut Execution<'_>) -> Result<()> {
    let timeout = timeout(execution.arg(1))?;
    if let Some(keys) = take(execution, 2)? {
        execution.wait_for(&keys, timeout, TimeoutReply::NullArray);
    }
    Ok(())
}
