//! Strings, as a whole and in parts.

use crate::command::{
    Command, CommandGroup, DENYOOM, DIRECT, FAST, ONE_READ, READONLY, WRITE, command, parse_integer,
};
use crate::commands::expires::{EX, PX, TimeUnit, moment_of};
use crate::events::EventClasses;
use crate::execution::Execution;
use crate::fault::{Fault, Result};
use crate::store::meta::{KeyType, RecordHead};

const ABOUT: CommandGroup = CommandGroup::String;
const CHANGE: u32 = WRITE | DENYOOM | DIRECT;

pub(crate) const COMMANDS: &[Command] = &[
    command("append", 3, append)
        .flags(CHANGE | FAST)
        .keys(1, 1, 1)
        .about(ABOUT, "2.0.0", "Adds to the end of a string."),
    command("get", 2, get)
        .flags(READONLY | FAST | ONE_READ)
        .keys(1, 1, 1)
        .about(ABOUT, "1.0.0", "Returns a string."),
    command("getdel", 2, getdel)
        .flags(WRITE | FAST | DIRECT)
        .keys(1, 1, 1)
        .about(ABOUT, "6.2.0", "Returns a string and deletes its key."),
    command("getex", -2, getex)
        .flags(WRITE | FAST | DIRECT)
        .keys(1, 1, 1)
        .about(ABOUT, "6.2.0", "Returns a string and sets when it expires."),
    command("getrange", 4, getrange)
        .flags(READONLY | ONE_READ)
        .keys(1, 1, 1)
        .about(ABOUT, "2.4.0", "Returns a part of a string."),
    command("getset", 3, getset)
        .flags(CHANGE | FAST)
        .keys(1, 1, 1)
        .about(ABOUT, "1.0.0", "Sets a string and returns the old one."),
    command("mget", -2, mget)
        .flags(READONLY | FAST)
        .keys(1, -1, 1)
        .about(ABOUT, "1.0.0", "Returns several strings of one moment."),
    command("mset", -3, mset)
        .flags(WRITE | DENYOOM)
        .keys(1, -1, 2)
        .about(ABOUT, "1.0.1", "Sets several strings together."),
    command("msetnx", -3, msetnx)
        .flags(WRITE | DENYOOM)
        .keys(1, -1, 2)
        .about(
            ABOUT,
            "1.0.1",
            "Sets several strings together, if none of the keys exists.",
        ),
    command("psetex", 4, psetex)
        .flags(CHANGE)
        .keys(1, 1, 1)
        .about(
            ABOUT,
            "2.6.0",
            "Sets a string that expires after milliseconds.",
        ),
    command("set", -3, set)
        .flags(CHANGE)
        .keys(1, 1, 1)
        .about(ABOUT, "1.0.0", "Sets a string."),
    command("setex", 4, setex)
        .flags(CHANGE)
        .keys(1, 1, 1)
        .about(ABOUT, "2.0.0", "Sets a string that expires after seconds."),
    command("setnx", 3, setnx)
        .flags(CHANGE | FAST)
        .keys(1, 1, 1)
        .about(ABOUT, "1.0.0", "Sets a string if its key does not exist."),
    command("setrange", 4, setrange)
        .flags(CHANGE)
        .keys(1, 1, 1)
        .about(ABOUT, "2.2.0", "Overwrites a part of a string."),
    command("strlen", 2, strlen)
        .flags(READONLY | FAST | ONE_READ)
        .keys(1, 1, 1)
        .about(ABOUT, "2.2.0", "Returns the length of a string."),
    command("substr", 4, getrange)
        .flags(READONLY | ONE_READ)
        .keys(1, 1, 1)
        .about(ABOUT, "1.0.0", "Returns a part of a string."),
];

fn get(execution: &mut Execution<'_>) -> Result<()> {
    match execution.look_up(execution.arg(1))? {
        Some(meta) => execution.reply.bulk(meta.string()?),
        None => execution.reply.null(),
    }
    Ok(())
}

fn strlen(execution: &mut Execution<'_>) -> Result<()> {
    let length = match execution.look_up(execution.arg(1))? {
        Some(meta) => meta.string()?.len(),
        None => 0,
    };
    execution.reply.count(length);
    Ok(())
}

fn mget(execution: &mut Execution<'_>) -> Result<()> {
    let keys = execution.args.from(1);
    execution.reply.array(keys.len());
    for key in keys.iter() {
        match execution
            .look_up(key)?
            .filter(|meta| meta.head.kind == KeyType::String)
        {
            Some(meta) => execution.reply.bulk(meta.body()),
            None => execution.reply.null(),
        }
    }
    Ok(())
}

/// When `SET` sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Condition {
    Always,
    IfMissing,
    IfThere,
}

/// The options of `SET`.
#[derive(Debug)]
struct SetOptions {
    condition: Condition,
    expires_ms: Option<u64>,
    keeps_expiry: bool,
    returns_old: bool,
}

fn set_options(execution: &Execution<'_>) -> Result<SetOptions> {
    let args = execution.args;
    let mut options = SetOptions {
        condition: Condition::Always,
        expires_ms: None,
        keeps_expiry: false,
        returns_old: false,
    };
    let mut at = 3;
    while let Some(word) = args.get(at) {
        let word = word.to_ascii_lowercase();
        at += 1;
        match word.as_slice() {
            b"nx" if options.condition != Condition::IfThere => {
                options.condition = Condition::IfMissing;
            }
            b"xx" if options.condition != Condition::IfMissing => {
                options.condition = Condition::IfThere;
            }
            b"get" => options.returns_old = true,
            b"keepttl" if options.expires_ms.is_none() => options.keeps_expiry = true,
            word => {
                let unit = TimeUnit::of(word).ok_or(Fault::SYNTAX)?;
                if options.keeps_expiry || options.expires_ms.is_some() {
                    return Err(Fault::SYNTAX);
                }
                let now_ms = execution.now_ms();
                options.expires_ms = Some(moment_of(args, at, unit, now_ms, "set")?);
                at += 1;
            }
        }
    }
    Ok(options)
}

fn set(execution: &mut Execution<'_>) -> Result<()> {
    let (key, value) = (execution.arg(1), execution.arg(2));
    let options = match execution.args.len() {
        3 => SetOptions {
            condition: Condition::Always,
            expires_ms: None,
            keeps_expiry: false,
            returns_old: false,
        },
        _ => set_options(execution)?,
    };
    let old = execution.find(key)?;
    if options.returns_old {
        match &old {
            Some(old) => execution.reply.bulk(old.string()?),
            None => execution.reply.null(),
        }
    }
    let sets = match options.condition {
        Condition::Always => true,
        Condition::IfMissing => old.is_none(),
        Condition::IfThere => old.is_some(),
    };
    if !sets {
        if !options.returns_old {
            execution.reply.null();
        }
        return Ok(());
    }
    let expires_ms = match options.keeps_expiry {
        true => old.and_then(|old| old.head.expires_ms),
        false => options.expires_ms,
    };
    put_string(execution, key, value, expires_ms)?;
    execution.notify(EventClasses::STRING, "set", key);
    if options.expires_ms.is_some() {
        execution.notify(EventClasses::GENERIC, "expire", key);
    }
    if !options.returns_old {
        execution.reply.ok();
    }
    Ok(())
}

/// Makes a key a string.
fn put_string(
    execution: &mut Execution<'_>,
    key: &[u8],
    value: &[u8],
    expires_ms: Option<u64>,
) -> Result<()> {
    match expires_ms.is_some_and(|expires| expires <= execution.now_ms()) {
        // A moment that has passed: nobody ever sees the value.
        true => execution.remove(key).map(|_| ()),
        false => execution.put(key, RecordHead::STRING.expiring(expires_ms), &[value]),
    }
}

fn set_expiring(execution: &mut Execution<'_>, unit: TimeUnit, name: &str) -> Result<()> {
    let (key, value) = (execution.arg(1), execution.arg(3));
    let moment = moment_of(execution.args, 2, unit, execution.now_ms(), name)?;
    put_string(execution, key, value, Some(moment))?;
    execution.notify(EventClasses::STRING, "set", key);
    execution.notify(EventClasses::GENERIC, "expire", key);
    execution.reply.ok();
    Ok(())
}

fn setex(execution: &mut Execution<'_>) -> Result<()> {
    set_expiring(execution, EX, "setex")
}

fn psetex(execution: &mut Execution<'_>) -> Result<()> {
    set_expiring(execution, PX, "psetex")
}

fn setnx(execution: &mut Execution<'_>) -> Result<()> {
    let (key, value) = (execution.arg(1), execution.arg(2));
    let is_missing = execution.find(key)?.is_none();
    if is_missing {
        put_string(execution, key, value, None)?;
        execution.notify(EventClasses::STRING, "set", key);
    }
    execution.reply.flag(is_missing);
    Ok(())
}

fn getset(execution: &mut Execution<'_>) -> Result<()> {
    let (key, value) = (execution.arg(1), execution.arg(2));
    match execution.look_up(key)? {
        Some(old) => execution.reply.bulk(old.string()?),
        None => execution.reply.null(),
    }
    put_string(execution, key, value, None)?;
    execution.notify(EventClasses::STRING, "set", key);
    Ok(())
}

fn getdel(execution: &mut Execution<'_>) -> Result<()> {
    let key = execution.arg(1);
    match execution.look_up(key)? {
        Some(old) => {
            execution.reply.bulk(old.string()?);
            execution.remove(key)?;
            execution.notify(EventClasses::GENERIC, "del", key);
        }
        None => execution.reply.null(),
    }
    Ok(())
}

fn getex(execution: &mut Execution<'_>) -> Result<()> {
    let (args, now_ms) = (execution.args, execution.now_ms());
    let option = args.get(2).map(<[u8]>::to_ascii_lowercase);
    let change = match option.as_deref() {
        None => None,
        Some(b"persist") if args.len() == 3 => Some(None),
        Some(word) => {
            let unit = TimeUnit::of(word)
                .filter(|_| args.len() == 4)
                .ok_or(Fault::SYNTAX)?;
            Some(Some(moment_of(args, 3, unit, now_ms, "getex")?))
        }
    };
    let key = args.at(1);
    let Some(meta) = execution.look_up(key)? else {
        execution.reply.null();
        return Ok(());
    };
    execution.reply.bulk(meta.string()?);
    let before = meta.head.expires_ms;
    match change {
        None => {}
        Some(expires_ms) if expires_ms.is_some_and(|expires| expires <= now_ms) => {
            execution.remove(key)?;
            execution.notify(EventClasses::GENERIC, "del", key);
        }
        Some(expires_ms) if expires_ms != before => {
            execution.put(key, meta.head.expiring(expires_ms), &[meta.body()])?;
            let event = if expires_ms.is_some() {
                "expire"
            } else {
                "persist"
            };
            execution.notify(EventClasses::GENERIC, event, key);
        }
        Some(_) => {}
    }
    Ok(())
}

fn mset(execution: &mut Execution<'_>) -> Result<()> {
    set_several(execution)?;
    execution.reply.ok();
    Ok(())
}

fn msetnx(execution: &mut Execution<'_>) -> Result<()> {
    check_pairs(execution)?;
    for place in (1..execution.args.len()).step_by(2) {
        if execution.find(execution.arg(place))?.is_some() {
            execution.reply.flag(false);
            return Ok(());
        }
    }
    set_several(execution)?;
    execution.reply.flag(true);
    Ok(())
}

fn check_pairs(execution: &Execution<'_>) -> Result<()> {
    match execution.args.len() % 2 {
        1 => Ok(()),
        _ => Err(execution.wrong_arguments()),
    }
}

fn set_several(execution: &mut Execution<'_>) -> Result<()> {
    check_pairs(execution)?;
    for place in (1..execution.args.len()).step_by(2) {
        let (key, value) = (execution.arg(place), execution.arg(place + 1));
        put_string(execution, key, value, None)?;
        execution.notify(EventClasses::STRING, "set", key);
    }
    Ok(())
}

/// An error for a string that would be longer than an argument may be.
fn check_length(execution: &Execution<'_>, length: usize) -> Result<()> {
    match length > execution.server.settings.bulk_bytes_max() {
        true => Err(Fault::line(
            "ERR string exceeds maximum allowed size (proto-max-bulk-len)",
        )),
        false => Ok(()),
    }
}

fn append(execution: &mut Execution<'_>) -> Result<()> {
    let (key, tail) = (execution.arg(1), execution.arg(2));
    let old = execution.find(key)?;
    let (head, front) = match &old {
        Some(old) => (old.head, old.string()?),
        None => (RecordHead::STRING, &b""[..]),
    };
    let length = front.len() + tail.len();
    check_length(execution, length)?;
    execution.put(key, head, &[front, tail])?;
    execution.notify(EventClasses::STRING, "append", key);
    execution.reply.count(length);
    Ok(())
}

fn setrange(execution: &mut Execution<'_>) -> Result<()> {
    let (key, patch) = (execution.arg(1), execution.arg(3));
    let offset = parse_integer(execution.arg(2))?;
    let offset = usize::try_from(offset).map_err(|_| Fault::line("ERR offset is out of range"))?;
    let old = execution.find(key)?;
    let (head, value) = match &old {
        Some(old) => (old.head, old.string()?),
        None => (RecordHead::STRING, &b""[..]),
    };
    if patch.is_empty() {
        execution.reply.count(value.len());
        return Ok(());
    }
    check_length(execution, offset.saturating_add(patch.len()))?;
    let front = value.get(..offset).unwrap_or(value);
    let gap = vec![0; offset - front.len()];
    let behind = value.get(offset + patch.len()..).unwrap_or_default();
    let length = offset + patch.len() + behind.len();
    execution.put(key, head, &[front, &gap, patch, behind])?;
    execution.notify(EventClasses::STRING, "setrange", key);
    execution.reply.count(length);
    Ok(())
}

fn getrange(execution: &mut Execution<'_>) -> Result<()> {
    let from = parse_integer(execution.arg(2))?;
    let to = parse_integer(execution.arg(3))?;
    match execution.look_up(execution.arg(1))? {
        Some(meta) => {
            let value = meta.string()?;
            let part = range(from, to, value.len());
            execution.reply.bulk(value.get(part).unwrap_or_default());
        }
        None => execution.reply.bulk(b""),
    }
    Ok(())
}

/// The part from one index to another, both of which may count from the end.
fn range(from: i64, to: i64, length: usize) -> std::ops::Range<usize> {
    let count = i64::try_from(length).unwrap_or(i64::MAX);
    if from < 0 && to < 0 && from > to {
        return 0..0;
    }
    let place = |index: i64| match index < 0 {
        true => index.saturating_add(count).max(0),
        false => index,
    };
    let (from, to) = (place(from), place(to).min(count - 1));
    match from > to || count == 0 {
        true => 0..0,
        false => {
            let place = |index: i64| usize::try_from(index).unwrap_or_default();
            place(from)..place(to) + 1
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_count_from_either_end() {
        for (from, to, length, expected) in [
            (0, 3, 10, 0..4),
            (0, -1, 10, 0..10),
            (-3, -1, 10, 7..10),
            (5, 100, 10, 5..10),
            (-100, 2, 10, 0..3),
            (5, 3, 10, 0..0),
            (-1, -5, 10, 0..0),
            (0, 0, 0, 0..0),
            (20, 30, 10, 0..0),
            (i64::MIN, i64::MAX, 3, 0..3),
        ] {
            assert_eq!(range(from, to, length), expected, "{from} {to} of {length}");
        }
    }
}
