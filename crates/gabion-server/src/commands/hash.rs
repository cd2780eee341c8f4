//! Hashes.

use crate::args::{float, integer};
use crate::command::{
    Command, CommandGroup, DENYOOM, DIRECT, FAST, READONLY, WRITE, command, parse_integer,
};
use crate::commands::numbers::plain;
use crate::commands::picks::{RandomPicks, picks};
use crate::commands::{read_many, scan};
use crate::events::EventClasses;
use crate::execution::{Execution, wrong_arguments};
use crate::fault::{Fault, Result};
use crate::glob;
use crate::resp::reply::{DIGITS_MAX, decimal};
use crate::store::hash::{Hash, HashField};

const ABOUT: CommandGroup = CommandGroup::Hash;
const CHANGE: u32 = WRITE | DENYOOM | FAST | DIRECT;

pub(crate) const COMMANDS: &[Command] = &[
    command("hdel", -3, hdel)
        .flags(WRITE | FAST | DIRECT)
        .keys(1, 1, 1)
        .about(ABOUT, "2.0.0", "Deletes fields of a hash."),
    command("hexists", 3, hexists)
        .flags(READONLY | FAST)
        .keys(1, 1, 1)
        .about(ABOUT, "2.0.0", "Returns whether a hash has a field."),
    command("hget", 3, hget)
        .flags(READONLY | FAST)
        .keys(1, 1, 1)
        .about(ABOUT, "2.0.0", "Returns the value of a field."),
    command("hgetall", 2, hgetall)
        .flags(READONLY)
        .keys(1, 1, 1)
        .about(ABOUT, "2.0.0", "Returns all fields and their values."),
    command("hgetdel", -5, hgetdel)
        .flags(WRITE | FAST | DIRECT)
        .keys(1, 1, 1)
        .about(
            ABOUT,
            "8.0.0",
            "Returns the values of fields and deletes them.",
        ),
    command("hincrby", 4, hincrby)
        .flags(CHANGE)
        .keys(1, 1, 1)
        .about(ABOUT, "2.0.0", "Adds a number to a field."),
    command("hincrbyfloat", 4, hincrbyfloat)
        .flags(CHANGE)
        .keys(1, 1, 1)
        .about(ABOUT, "2.6.0", "Adds a number with a fraction to a field."),
    command("hkeys", 2, hkeys)
        .flags(READONLY)
        .keys(1, 1, 1)
        .about(ABOUT, "2.0.0", "Returns all fields."),
    command("hlen", 2, hlen)
        .flags(READONLY | FAST)
        .keys(1, 1, 1)
        .about(ABOUT, "2.0.0", "Counts the fields of a hash."),
    command("hmget", -3, hmget)
        .flags(READONLY | FAST)
        .keys(1, 1, 1)
        .about(ABOUT, "2.0.0", "Returns the values of fields."),
    command("hmset", -4, hmset)
        .flags(CHANGE)
        .keys(1, 1, 1)
        .about(ABOUT, "2.0.0", "Sets fields of a hash."),
    command("hrandfield", -2, hrandfield)
        .flags(READONLY)
        .keys(1, 1, 1)
        .about(ABOUT, "6.2.0", "Returns random fields."),
    command("hscan", -3, hscan)
        .flags(READONLY)
        .keys(1, 1, 1)
        .about(ABOUT, "2.8.0", "Iterates over a hash."),
    command("hset", -4, hset).flags(CHANGE).keys(1, 1, 1).about(
        ABOUT,
        "2.0.0",
        "Sets fields of a hash.",
    ),
    command("hsetnx", 4, hsetnx)
        .flags(CHANGE)
        .keys(1, 1, 1)
        .about(ABOUT, "2.0.0", "Sets a field if it does not exist."),
    command("hstrlen", 3, hstrlen)
        .flags(READONLY | FAST)
        .keys(1, 1, 1)
        .about(ABOUT, "3.2.0", "Returns the length of a field's value."),
    command("hvals", 2, hvals)
        .flags(READONLY)
        .keys(1, 1, 1)
        .about(ABOUT, "2.0.0", "Returns all values."),
];

fn set_fields(execution: &mut Execution<'_>) -> Result<i64> {
    let pairs = execution.args.from(2);
    if !pairs.len().is_multiple_of(2) {
        return Err(wrong_arguments(execution.command, execution.args));
    }
    let key = execution.arg(1);
    let mut hash = Hash::open(execution, key)?;
    let mut added = 0;
    for at in (0..pairs.len()).step_by(2) {
        let (field, value) = (pairs.at(at), pairs.at(at + 1));
        added += i64::from(!hash.set(execution.work, field, value, None)?);
    }
    hash.save(execution, key)?;
    execution.notify(EventClasses::HASH, "hset", key);
    Ok(added)
}

fn hset(execution: &mut Execution<'_>) -> Result<()> {
    let added = set_fields(execution)?;
    execution.reply.integer(added);
    Ok(())
}

fn hmset(execution: &mut Execution<'_>) -> Result<()> {
    set_fields(execution)?;
    execution.reply.ok();
    Ok(())
}

fn hsetnx(execution: &mut Execution<'_>) -> Result<()> {
    let (key, field) = (execution.arg(1), execution.arg(2));
    let mut hash = Hash::open(execution, key)?;
    let is_new = hash.value(execution.work, field)?.is_none();
    if is_new {
        hash.set(execution.work, field, execution.args.at(3), None)?;
    }
    hash.save(execution, key)?;
    if is_new {
        execution.notify(EventClasses::HASH, "hset", key);
    }
    execution.reply.flag(is_new);
    Ok(())
}

fn hget(execution: &mut Execution<'_>) -> Result<()> {
    let hash = Hash::look_up(execution, execution.arg(1))?;
    let value = hash.value(execution.work, execution.args.at(2))?;
    execution.reply.bulk_or_null(value);
    Ok(())
}

fn hmget(execution: &mut Execution<'_>) -> Result<()> {
    let hash = Hash::look_up(execution, execution.arg(1))?;
    let fields = execution.args.from(2);
    execution.reply.array(fields.len());
    for field in fields.iter() {
        let value = hash.value(execution.work, field)?;
        execution.reply.bulk_or_null(value);
    }
    Ok(())
}

fn hdel(execution: &mut Execution<'_>) -> Result<()> {
    let key = execution.arg(1);
    let mut hash = Hash::open(execution, key)?;
    let mut count = 0;
    for field in execution.args.from(2).iter() {
        count += i64::from(hash.remove(execution.work, field)?.is_some());
    }
    let saved = hash.save(execution, key)?;
    if count > 0 {
        execution.tell(saved, EventClasses::HASH, "hdel", key);
    }
    execution.reply.integer(count);
    Ok(())
}

/// The fields behind `FIELDS count`, at an argument.
pub(crate) fn counted_fields<'a>(
    execution: &Execution<'a>,
    at: usize,
) -> Result<crate::args::Args<'a>> {
    let args = execution.args;
    if !args.at(at).eq_ignore_ascii_case(b"fields") {
        return Err(Fault::line(
            "ERR Mandatory argument FIELDS is missing or not at the right position",
        ));
    }
    let count = args
        .get(at + 1)
        .and_then(integer)
        .filter(|count| *count > 0);
    let count = count.ok_or(Fault::line(
        "ERR Number of fields must be a positive integer",
    ))?;
    let fields = args.from(at + 2);
    if i64::try_from(fields.len()) != Ok(count) {
        return Err(Fault::line(
            "ERR The `numfields` parameter must match the number of arguments",
        ));
    }
    Ok(fields)
}

fn hgetdel(execution: &mut Execution<'_>) -> Result<()> {
    let fields = counted_fields(execution, 2)?;
    let key = execution.arg(1);
    let mut hash = Hash::open(execution, key)?;
    execution.reply.array(fields.len());
    let mut count = 0;
    for field in fields.iter() {
        let value = hash.remove(execution.work, field)?;
        count += usize::from(value.is_some());
        execution.reply.bulk_or_null(value);
    }
    let saved = hash.save(execution, key)?;
    if count > 0 {
        execution.tell(saved, EventClasses::HASH, "hdel", key);
    }
    Ok(())
}

fn hlen(execution: &mut Execution<'_>) -> Result<()> {
    let hash = Hash::look_up(execution, execution.arg(1))?;
    execution.reply.unsigned(hash.count());
    Ok(())
}

fn hexists(execution: &mut Execution<'_>) -> Result<()> {
    let hash = Hash::look_up(execution, execution.arg(1))?;
    let found = hash.value(execution.work, execution.args.at(2))?;
    execution.reply.flag(found.is_some());
    Ok(())
}

fn hstrlen(execution: &mut Execution<'_>) -> Result<()> {
    let hash = Hash::look_up(execution, execution.arg(1))?;
    let found = hash.value(execution.work, execution.args.at(2))?;
    execution.reply.count(found.map_or(0, |value| value.len()));
    Ok(())
}

fn hgetall(execution: &mut Execution<'_>) -> Result<()> {
    let hash = Hash::look_up(execution, execution.arg(1))?;
    let Execution { work, reply, .. } = execution;
    reply.map(usize::try_from(hash.count()).unwrap_or_default());
    read_many(hash.count(), || {
        hash.visit(work, |field, value| {
            reply.bulk(field);
            reply.bulk(value);
        })
    })
}

fn hkeys(execution: &mut Execution<'_>) -> Result<()> {
    let hash = Hash::look_up(execution, execution.arg(1))?;
    let Execution { work, reply, .. } = execution;
    reply.array(usize::try_from(hash.count()).unwrap_or_default());
    read_many(hash.count(), || {
        hash.visit(work, |field, _| reply.bulk(field))
    })
}

fn hvals(execution: &mut Execution<'_>) -> Result<()> {
    let hash = Hash::look_up(execution, execution.arg(1))?;
    let Execution { work, reply, .. } = execution;
    reply.array(usize::try_from(hash.count()).unwrap_or_default());
    read_many(hash.count(), || {
        hash.visit(work, |_, value| reply.bulk(value))
    })
}

fn hincrby(execution: &mut Execution<'_>) -> Result<()> {
    let (key, field) = (execution.arg(1), execution.arg(2));
    let by = parse_integer(execution.arg(3))?;
    let mut hash = Hash::open(execution, key)?;
    let (moment, old) = match hash.get(execution.work, field)? {
        Some((moment, value)) => {
            let number = integer(&value).ok_or(Fault::line("ERR hash value is not an integer"))?;
            (moment, number)
        }
        None => (None, 0),
    };
    let new = old
        .checked_add(by)
        .ok_or(Fault::line("ERR increment or decrement would overflow"))?;
    let mut digits = [0; DIGITS_MAX];
    hash.set(execution.work, field, decimal(new, &mut digits), moment)?;
    hash.save(execution, key)?;
    execution.notify(EventClasses::HASH, "hincrby", key);
    execution.reply.integer(new);
    Ok(())
}

fn hincrbyfloat(execution: &mut Execution<'_>) -> Result<()> {
    let (key, field) = (execution.arg(1), execution.arg(2));
    let by = float(execution.arg(3)).ok_or(Fault::NOT_A_FLOAT)?;
    if by.is_infinite() {
        return Err(Fault::line("ERR value is NaN or Infinity"));
    }
    let mut hash = Hash::open(execution, key)?;
    let (moment, old) = match hash.get(execution.work, field)? {
        Some((moment, value)) => {
            let number = float(&value).ok_or(Fault::line("ERR hash value is not a float"))?;
            (moment, number)
        }
        None => (None, 0.0),
    };
    let new = old + by;
    if !new.is_finite() {
        return Err(Fault::line("ERR increment would produce NaN or Infinity"));
    }
    let text = plain(new);
    hash.set(execution.work, field, text.as_bytes(), moment)?;
    hash.save(execution, key)?;
    execution.notify(EventClasses::HASH, "hincrbyfloat", key);
    execution.reply.bulk(text);
    Ok(())
}

fn hscan(execution: &mut Execution<'_>) -> Result<()> {
    let cursor = scan::parse_cursor(execution.arg(2))?;
    let options = scan::options(execution.args, 3)?;
    let hash = Hash::look_up(execution, execution.arg(1))?;
    let (next, pairs) = hash.members().step(execution.work, cursor, options.count)?;
    let mut found = Vec::new();
    for pair in pairs {
        let field = hash.live(pair)?;
        let matching = |field: &HashField| {
            options
                .pattern
                .is_none_or(|pattern| glob::matches(pattern, &field.name))
        };
        found.extend(field.filter(matching));
    }
    let reply = &mut *execution.reply;
    reply.array(2);
    reply.bulk(next.to_string());
    let width = if options.has_no_values { 1 } else { 2 };
    reply.array(found.len() * width);
    for field in found {
        reply.bulk(&field.name);
        if !options.has_no_values {
            reply.bulk(&field.value);
        }
    }
    Ok(())
}

fn hrandfield(execution: &mut Execution<'_>) -> Result<()> {
    let picks = picks(execution, "WITHVALUES")?;
    let hash = Hash::look_up(execution, execution.arg(1))?;
    let with_values = match picks {
        RandomPicks::One => false,
        RandomPicks::Many { has_more, .. } | RandomPicks::Repeated { has_more, .. } => has_more,
    };
    let chosen = picks.choose(execution.work, hash.members())?;
    let mut fields = Vec::new();
    for pair in chosen {
        fields.extend(hash.live(pair)?);
    }
    let reply = &mut *execution.reply;
    if let RandomPicks::One = picks {
        reply.bulk_or_null(fields.first().map(|field| &field.name));
        return Ok(());
    }
    let nested = with_values && reply.is_resp3;
    reply.array(match with_values && !nested {
        true => fields.len() * 2,
        false => fields.len(),
    });
    for field in fields {
        if nested {
            reply.array(2);
        }
        reply.bulk(&field.name);
        if with_values {
            reply.bulk(&field.value);
        }
    }
    Ok(())
}
