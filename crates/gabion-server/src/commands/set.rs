//! Sets.

use std::collections::HashSet;

use crate::command::{
    Command, CommandGroup, DENYOOM, DIRECT, FAST, READONLY, WRITE, command, parse_integer,
};
use crate::commands::picks::{RandomPicks, picks};
use crate::commands::{read_many, scan};
use crate::events::EventClasses;
use crate::execution::Execution;
use crate::fault::{Fault, Result};
use crate::glob;
use crate::store::members::Members;
use crate::store::meta::{KeyType, SaveOutcome};

const ABOUT: CommandGroup = CommandGroup::Set;

pub(crate) const COMMANDS: &[Command] = &[
    command("sadd", -3, sadd)
        .flags(WRITE | DENYOOM | FAST | DIRECT)
        .keys(1, 1, 1)
        .about(ABOUT, "1.0.0", "Adds members to a set."),
    command("scard", 2, scard)
        .flags(READONLY | FAST)
        .keys(1, 1, 1)
        .about(ABOUT, "1.0.0", "Counts the members of a set."),
    command("sdiff", -2, sdiff)
        .flags(READONLY)
        .keys(1, -1, 1)
        .about(
            ABOUT,
            "1.0.0",
            "Returns the members that only the first set has.",
        ),
    command("sdiffstore", -3, sdiffstore)
        .flags(WRITE | DENYOOM)
        .keys(1, -1, 1)
        .about(
            ABOUT,
            "1.0.0",
            "Stores the members that only the first set has.",
        ),
    command("sinter", -2, sinter)
        .flags(READONLY)
        .keys(1, -1, 1)
        .about(ABOUT, "1.0.0", "Returns the members that all sets have."),
    command("sintercard", -3, sintercard)
        .flags(READONLY)
        .counted_keys(1, 1)
        .about(ABOUT, "7.0.0", "Counts the members that all sets have."),
    command("sinterstore", -3, sinterstore)
        .flags(WRITE | DENYOOM)
        .keys(1, -1, 1)
        .about(ABOUT, "1.0.0", "Stores the members that all sets have."),
    command("sismember", 3, sismember)
        .flags(READONLY | FAST)
        .keys(1, 1, 1)
        .about(ABOUT, "1.0.0", "Returns whether a set has a member."),
    command("smembers", 2, smembers)
        .flags(READONLY)
        .keys(1, 1, 1)
        .about(ABOUT, "1.0.0", "Returns all members of a set."),
    command("smismember", -3, smismember)
        .flags(READONLY | FAST)
        .keys(1, 1, 1)
        .about(
            ABOUT,
            "6.2.0",
            "Returns which of several members a set has.",
        ),
    command("smove", 4, smove)
        .flags(WRITE | FAST)
        .keys(1, 2, 1)
        .about(ABOUT, "1.0.0", "Moves a member to another set."),
    command("spop", -2, spop)
        .flags(WRITE | FAST | DIRECT)
        .keys(1, 1, 1)
        .about(ABOUT, "1.0.0", "Removes and returns random members."),
    command("srandmember", -2, srandmember)
        .flags(READONLY)
        .keys(1, 1, 1)
        .about(ABOUT, "1.0.0", "Returns random members."),
    command("srem", -3, srem)
        .flags(WRITE | FAST | DIRECT)
        .keys(1, 1, 1)
        .about(ABOUT, "1.0.0", "Removes members from a set."),
    command("sscan", -3, sscan)
        .flags(READONLY)
        .keys(1, 1, 1)
        .about(ABOUT, "2.8.0", "Iterates over a set."),
    command("sunion", -2, sunion)
        .flags(READONLY)
        .keys(1, -1, 1)
        .about(ABOUT, "1.0.0", "Returns the members that any set has."),
    command("sunionstore", -3, sunionstore)
        .flags(WRITE | DENYOOM)
        .keys(1, -1, 1)
        .about(ABOUT, "1.0.0", "Stores the members that any set has."),
];

fn sadd(execution: &mut Execution<'_>) -> Result<()> {
    let key = execution.arg(1);
    let mut set = Members::open(execution, key, KeyType::Set)?;
    let mut count = 0;
    for member in execution.args.from(2).iter() {
        count += i64::from(set.set(execution.work, member, &[])?.is_none());
    }
    let saved = set.save(execution, key)?;
    execution.tell(saved, EventClasses::SET, "sadd", key);
    execution.reply.integer(count);
    Ok(())
}

fn srem(execution: &mut Execution<'_>) -> Result<()> {
    let key = execution.arg(1);
    let mut set = Members::open(execution, key, KeyType::Set)?;
    let mut count = 0;
    for member in execution.args.from(2).iter() {
        count += i64::from(set.remove(execution.work, member)?.is_some());
    }
    let saved = set.save(execution, key)?;
    execution.tell(saved, EventClasses::SET, "srem", key);
    execution.reply.integer(count);
    Ok(())
}

fn scard(execution: &mut Execution<'_>) -> Result<()> {
    let set = Members::look_up(execution, execution.arg(1), KeyType::Set)?;
    execution.reply.unsigned(set.count());
    Ok(())
}

fn sismember(execution: &mut Execution<'_>) -> Result<()> {
    let set = Members::look_up(execution, execution.arg(1), KeyType::Set)?;
    let found = set.get(execution.work, execution.args.at(2))?;
    execution.reply.flag(found.is_some());
    Ok(())
}

fn smismember(execution: &mut Execution<'_>) -> Result<()> {
    let set = Members::look_up(execution, execution.arg(1), KeyType::Set)?;
    let members = execution.args.from(2);
    execution.reply.array(members.len());
    for member in members.iter() {
        let found = set.get(execution.work, member)?;
        execution.reply.flag(found.is_some());
    }
    Ok(())
}

fn smembers(execution: &mut Execution<'_>) -> Result<()> {
    let set = Members::look_up(execution, execution.arg(1), KeyType::Set)?;
    let Execution { work, reply, .. } = execution;
    reply.set(usize::try_from(set.count()).unwrap_or_default());
    read_many(set.count(), || {
        set.visit(work, |member, _| {
            reply.bulk(member);
            true
        })
    })
}

fn smove(execution: &mut Execution<'_>) -> Result<()> {
    let (from, to, member) = (execution.arg(1), execution.arg(2), execution.arg(3));
    let mut source = Members::open(execution, from, KeyType::Set)?;
    // A source that is not there says so whatever the destination is.
    if source.is_empty() {
        execution.reply.flag(false);
        return Ok(());
    }
    let mut target = Members::open(execution, to, KeyType::Set)?;
    if from == to {
        let found = source.get(execution.work, member)?;
        execution.reply.flag(found.is_some());
        return Ok(());
    }
    let is_there = source.remove(execution.work, member)?.is_some();
    if is_there {
        target.set(execution.work, member, &[])?;
        let saved = source.save(execution, from)?;
        execution.tell(saved, EventClasses::SET, "srem", from);
        let saved = target.save(execution, to)?;
        execution.tell(saved, EventClasses::SET, "sadd", to);
    }
    execution.reply.flag(is_there);
    Ok(())
}

fn spop(execution: &mut Execution<'_>) -> Result<()> {
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
    let mut set = Members::open(execution, key, KeyType::Set)?;
    let chosen: Vec<_> = match count {
        None => set.random(execution.work)?.into_iter().collect(),
        Some(count) => set.sample(execution.work, count)?,
    };
    for (member, _) in &chosen {
        set.remove(execution.work, member)?;
    }
    let saved = set.save(execution, key)?;
    execution.tell(saved, EventClasses::SET, "spop", key);
    match count {
        None => {
            let member = chosen.first().map(|(member, _)| member);
            execution.reply.bulk_or_null(member);
        }
        Some(_) => {
            execution.reply.set(chosen.len());
            for (member, _) in chosen {
                execution.reply.bulk(member);
            }
        }
    }
    Ok(())
}

fn srandmember(execution: &mut Execution<'_>) -> Result<()> {
    if execution.args.len() > 3 {
        return Err(Fault::SYNTAX);
    }
    let picks = picks(execution, "")?;
    let set = Members::look_up(execution, execution.arg(1), KeyType::Set)?;
    let chosen = picks.choose(execution.work, &set)?;
    if let RandomPicks::One = picks {
        let member = chosen.first().map(|(member, _)| member);
        execution.reply.bulk_or_null(member);
        return Ok(());
    }
    execution.reply.array(chosen.len());
    for (member, _) in chosen {
        execution.reply.bulk(member);
    }
    Ok(())
}

fn sscan(execution: &mut Execution<'_>) -> Result<()> {
    let cursor = scan::parse_cursor(execution.arg(2))?;
    let options = scan::options(execution.args, 3)?;
    let set = Members::look_up(execution, execution.arg(1), KeyType::Set)?;
    let (next, mut found) = set.step(execution.work, cursor, options.count)?;
    if let Some(pattern) = options.pattern {
        found.retain(|(member, _)| glob::matches(pattern, member));
    }
    let reply = &mut *execution.reply;
    reply.array(2);
    reply.bulk(next.to_string());
    reply.array(found.len());
    for (member, _) in found {
        reply.bulk(member);
    }
    Ok(())
}

/// Which members of several sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Of {
    All,
    Any,
    FirstOnly,
}

/// The sets of keys.
fn sets<'a>(
    execution: &mut Execution<'_>,
    keys: impl Iterator<Item = &'a [u8]>,
) -> Result<Vec<Members>> {
    keys.map(|key| Members::look_up(execution, key, KeyType::Set))
        .collect()
}

/// Members of sets, at most `limit` if it is not 0.
fn combine(
    execution: &mut Execution<'_>,
    mut sets: Vec<Members>,
    of: Of,
    limit: usize,
) -> Result<Vec<Vec<u8>>> {
    let work = &mut *execution.work;
    if of == Of::Any {
        let mut seen = HashSet::new();
        for set in &sets {
            set.visit(work, |member, _| {
                seen.insert(member.to_vec());
                true
            })?;
        }
        return Ok(seen.into_iter().collect());
    }
    if of == Of::All {
        // The smallest set decides how many members are looked for in the others.
        sets.sort_by_key(Members::count);
    }
    let Some((first, others)) = sets.split_first() else {
        return Ok(Vec::new());
    };
    let is_in_others = of == Of::All;
    let mut found = Vec::new();
    'members: for (member, _) in first.all(work)? {
        for other in others {
            if other.get(work, &member)?.is_some() != is_in_others {
                continue 'members;
            }
        }
        found.push(member);
        if found.len() == limit {
            break;
        }
    }
    Ok(found)
}

/// How many members are read one after the other.
fn count_read(mut counts: impl Iterator<Item = u64>, of: Of) -> u64 {
    match of {
        Of::All => counts.min().unwrap_or_default(),
        Of::Any => counts.sum(),
        Of::FirstOnly => counts.next().unwrap_or_default(),
    }
}

fn show(execution: &mut Execution<'_>, of: Of) -> Result<()> {
    let keys = execution.args.from(1);
    let sets = sets(execution, keys.iter())?;
    let count = count_read(sets.iter().map(Members::count), of);
    let found = read_many(count, || combine(execution, sets, of, 0))?;
    execution.reply.set(found.len());
    for member in found {
        execution.reply.bulk(member);
    }
    Ok(())
}

fn store(execution: &mut Execution<'_>, of: Of, name: &'static str) -> Result<()> {
    let to = execution.arg(1);
    let keys = execution.args.from(2);
    let sets = sets(execution, keys.iter())?;
    let count = count_read(sets.iter().map(Members::count), of);
    let found = read_many(count, || combine(execution, sets, of, 0))?;
    let mut target = Members::empty(execution.space(), KeyType::Set);
    for member in &found {
        target.set(execution.work, member, &[])?;
    }
    if found.is_empty() {
        if execution.remove(to)? {
            execution.notify(EventClasses::GENERIC, "del", to);
        }
    } else if target.save(execution, to)? != SaveOutcome::Same {
        execution.notify(EventClasses::SET, name, to);
    }
    execution.reply.count(found.len());
    Ok(())
}

fn sinter(execution: &mut Execution<'_>) -> Result<()> {
    show(execution, Of::All)
}

fn sunion(execution: &mut Execution<'_>) -> Result<()> {
    show(execution, Of::Any)
}

fn sdiff(execution: &mut Execution<'_>) -> Result<()> {
    show(execution, Of::FirstOnly)
}

fn sinterstore(execution: &mut Execution<'_>) -> Result<()> {
    store(execution, Of::All, "sinterstore")
}

fn sunionstore(execution: &mut Execution<'_>) -> Result<()> {
    store(execution, Of::Any, "sunionstore")
}

fn sdiffstore(execution: &mut Execution<'_>) -> Result<()> {
    store(execution, Of::FirstOnly, "sdiffstore")
}

/// The number of keys of a command, and where the arguments behind them begin.
///
/// # Errors
/// What Redis says of a number that is none, not positive, or larger than what follows.
pub(crate) fn counted(execution: &Execution<'_>, at: usize) -> Result<(usize, usize)> {
    let count = crate::args::integer(execution.args.at(at)).filter(|count| *count > 0);
    let count = count.and_then(|count| usize::try_from(count).ok());
    let count = count.ok_or(Fault::line("ERR numkeys should be greater than 0"))?;
    let behind = count.saturating_add(at + 1);
    match behind <= execution.args.len() {
        true => Ok((count, behind)),
        false => Err(Fault::line(
            "ERR Number of keys can't be greater than number of args",
        )),
    }
}

/// The words `LIMIT limit` behind the keys.
///
/// # Errors
/// What Redis says of other words.
pub(crate) fn limit(execution: &Execution<'_>, mut at: usize) -> Result<usize> {
    let mut limit = 0;
    while let Some(word) = execution.args.get(at) {
        let value = execution.args.get(at + 1).ok_or(Fault::SYNTAX)?;
        if !word.eq_ignore_ascii_case(b"limit") {
            return Err(Fault::SYNTAX);
        }
        let number = parse_integer(value)
            .ok()
            .and_then(|limit| usize::try_from(limit).ok());
        limit = number.ok_or(Fault::line("ERR LIMIT can't be negative"))?;
        at += 2;
    }
    Ok(limit)
}

fn sintercard(execution: &mut Execution<'_>) -> Result<()> {
    let (count, behind) = counted(execution, 1)?;
    let limit = limit(execution, behind)?;
    let keys = execution.args.from(2);
    let sets = sets(execution, keys.iter().take(count))?;
    let found = combine(execution, sets, Of::All, limit)?;
    execution.reply.count(found.len());
    Ok(())
}
