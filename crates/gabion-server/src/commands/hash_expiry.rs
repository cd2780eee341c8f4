//! Expiry of hash fields.

use crate::args::{Args, integer};
use crate::command::{
    Command, CommandGroup, DENYOOM, DIRECT, FAST, READONLY, WRITE, command, parse_integer,
};
use crate::commands::expires::{EX, EXAT, PX, PXAT, TimeUnit, invalid, moment_of};
use crate::commands::hash::counted_fields;
use crate::events::EventClasses;
use crate::execution::Execution;
use crate::fault::{Fault, Result};
use crate::store::hash::Hash;

const ABOUT: CommandGroup = CommandGroup::Hash;
const CHANGE: u32 = WRITE | DENYOOM | FAST | DIRECT;
const LOOK: u32 = READONLY | FAST;

pub(crate) const COMMANDS: &[Command] = &[
    command("hexpire", -6, hexpire)
        .flags(CHANGE)
        .keys(1, 1, 1)
        .about(
            ABOUT,
            "7.4.0",
            "Sets the expiry of fields, in seconds from now.",
        ),
    command("hexpireat", -6, hexpireat)
        .flags(CHANGE)
        .keys(1, 1, 1)
        .about(
            ABOUT,
            "7.4.0",
            "Sets the expiry of fields, in seconds since 1970.",
        ),
    command("hexpiretime", -5, hexpiretime)
        .flags(LOOK)
        .keys(1, 1, 1)
        .about(
            ABOUT,
            "7.4.0",
            "Returns the seconds since 1970 at which fields expire.",
        ),
    command("hgetex", -5, hgetex)
        .flags(WRITE | FAST | DIRECT)
        .keys(1, 1, 1)
        .about(
            ABOUT,
            "8.0.0",
            "Returns the values of fields and sets when they expire.",
        ),
    command("hpersist", -5, hpersist)
        .flags(WRITE | FAST | DIRECT)
        .keys(1, 1, 1)
        .about(ABOUT, "7.4.0", "Removes the expiry of fields."),
    command("hpexpire", -6, hpexpire)
        .flags(CHANGE)
        .keys(1, 1, 1)
        .about(
            ABOUT,
            "7.4.0",
            "Sets the expiry of fields, in milliseconds from now.",
        ),
    command("hpexpireat", -6, hpexpireat)
        .flags(CHANGE)
        .keys(1, 1, 1)
        .about(
            ABOUT,
            "7.4.0",
            "Sets the expiry of fields, in milliseconds since 1970.",
        ),
    command("hpexpiretime", -5, hpexpiretime)
        .flags(LOOK)
        .keys(1, 1, 1)
        .about(
            ABOUT,
            "7.4.0",
            "Returns the milliseconds at which fields expire.",
        ),
    command("hpttl", -5, hpttl).flags(LOOK).keys(1, 1, 1).about(
        ABOUT,
        "7.4.0",
        "Returns the milliseconds until fields expire.",
    ),
    command("hsetex", -6, hsetex)
        .flags(CHANGE)
        .keys(1, 1, 1)
        .about(ABOUT, "8.0.0", "Sets fields and when they expire."),
    command("httl", -5, httl).flags(LOOK).keys(1, 1, 1).about(
        ABOUT,
        "7.4.0",
        "Returns the seconds until fields expire.",
    ),
];

/// The replies for a field.
const NO_FIELD: i64 = -2;
const NO_MOMENT: i64 = -1;
const UNCHANGED: i64 = 0;
const SET: i64 = 1;
const DELETED: i64 = 2;

/// When a new moment takes the place of the old one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Condition {
    None,
    IfNone,
    IfAny,
    IfLater,
    IfSooner,
}

impl Condition {
    fn of(word: &[u8]) -> Option<Condition> {
        Some(match word.to_ascii_lowercase().as_slice() {
            b"nx" => Condition::IfNone,
            b"xx" => Condition::IfAny,
            b"gt" => Condition::IfLater,
            b"lt" => Condition::IfSooner,
            _ => return None,
        })
    }

    /// No moment is later than all.
    fn holds(self, old: Option<u64>, new: i64) -> bool {
        let old = old.map(|old| i64::try_from(old).unwrap_or(i64::MAX));
        match self {
            Condition::None => true,
            Condition::IfNone => old.is_none(),
            Condition::IfAny => old.is_some(),
            Condition::IfLater => old.is_some_and(|old| new > old),
            Condition::IfSooner => old.is_none_or(|old| new < old),
        }
    }
}

fn expire(execution: &mut Execution<'_>, unit: TimeUnit) -> Result<()> {
    let number = parse_integer(execution.arg(2))?;
    if number < 0 {
        return Err(Fault::line("ERR invalid expire time, must be >= 0"));
    }
    let moment = unit.moment(number, execution.now_ms());
    let moment = moment.ok_or_else(|| invalid(execution.command.name))?;
    let (condition, at) = match Condition::of(execution.arg(3)) {
        Some(condition) => (condition, 4),
        None => (Condition::None, 3),
    };
    let fields = counted_fields(execution, at)?;
    let key = execution.arg(1);
    let mut hash = Hash::open(execution, key)?;
    let now_ms = execution.now_ms();
    let later = u64::try_from(moment).ok().filter(|moment| *moment > now_ms);
    let (mut count_set, mut count_deleted) = (0, 0);
    execution.reply.array(fields.len());
    for field in fields.iter() {
        let answer = match (hash.get(execution.work, field)?, later) {
            (None, _) => NO_FIELD,
            (Some((old, _)), _) if !condition.holds(old, moment) => UNCHANGED,
            (Some((_, value)), Some(later)) => {
                hash.set(execution.work, field, &value, Some(later))?;
                count_set += 1;
                SET
            }
            (Some(_), None) => {
                hash.remove(execution.work, field)?;
                count_deleted += 1;
                DELETED
            }
        };
        execution.reply.integer(answer);
    }
    let saved = hash.save(execution, key)?;
    if count_set > 0 {
        execution.notify(EventClasses::HASH, "hexpire", key);
    }
    if count_deleted > 0 {
        execution.tell(saved, EventClasses::HASH, "hdel", key);
    }
    Ok(())
}

fn hexpire(execution: &mut Execution<'_>) -> Result<()> {
    expire(execution, EX)
}

fn hpexpire(execution: &mut Execution<'_>) -> Result<()> {
    expire(execution, PX)
}

fn hexpireat(execution: &mut Execution<'_>) -> Result<()> {
    expire(execution, EXAT)
}

fn hpexpireat(execution: &mut Execution<'_>) -> Result<()> {
    expire(execution, PXAT)
}

fn show(execution: &mut Execution<'_>, unit: TimeUnit) -> Result<()> {
    let fields = counted_fields(execution, 2)?;
    let hash = Hash::look_up(execution, execution.arg(1))?;
    let now_ms = execution.now_ms();
    execution.reply.array(fields.len());
    for field in fields.iter() {
        let answer = match hash.get(execution.work, field)? {
            None => NO_FIELD,
            Some((None, _)) => NO_MOMENT,
            Some((Some(moment), _)) => {
                let ms = match unit.is_relative {
                    true => moment.saturating_sub(now_ms),
                    false => moment,
                };
                let ms = i64::try_from(ms).unwrap_or(i64::MAX);
                // A part of a second counts as one until it is over.
                match unit.is_relative {
                    true => ms.saturating_add(unit.ms - 1) / unit.ms,
                    false => ms / unit.ms,
                }
            }
        };
        execution.reply.integer(answer);
    }
    Ok(())
}

fn httl(execution: &mut Execution<'_>) -> Result<()> {
    show(execution, EX)
}

fn hpttl(execution: &mut Execution<'_>) -> Result<()> {
    show(execution, PX)
}

fn hexpiretime(execution: &mut Execution<'_>) -> Result<()> {
    show(execution, EXAT)
}

fn hpexpiretime(execution: &mut Execution<'_>) -> Result<()> {
    show(execution, PXAT)
}

fn hpersist(execution: &mut Execution<'_>) -> Result<()> {
    let fields = counted_fields(execution, 2)?;
    let key = execution.arg(1);
    let mut hash = Hash::open(execution, key)?;
    let mut count = 0;
    execution.reply.array(fields.len());
    for field in fields.iter() {
        let answer = match hash.get(execution.work, field)? {
            None => NO_FIELD,
            Some((None, _)) => NO_MOMENT,
            Some((Some(_), value)) => {
                hash.set(execution.work, field, &value, None)?;
                count += 1;
                SET
            }
        };
        execution.reply.integer(answer);
    }
    hash.save(execution, key)?;
    if count > 0 {
        execution.notify(EventClasses::HASH, "hpersist", key);
    }
    Ok(())
}

/// What is to become of the moments of fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Keep,
    Drop,
    Set(u64),
}

/// Whether fields must be there, or must not, and what becomes of their moments; and where `FIELDS`
/// is. `drop` is the word for a change that a command has beside `EX` and the like.
fn options(
    execution: &Execution<'_>,
    drop: (&[u8], Change),
    has_conditions: bool,
) -> Result<(Option<bool>, Option<Change>, usize)> {
    let args = execution.args;
    let (mut condition, mut change) = (None, None);
    let mut at = 2;
    while let Some(word) = args.get(at) {
        let word = word.to_ascii_lowercase();
        match word.as_slice() {
            b"fields" => break,
            b"fnx" if has_conditions && condition.is_none() => condition = Some(false),
            b"fxx" if has_conditions && condition.is_none() => condition = Some(true),
            word if change.is_none() && word == drop.0 => change = Some(drop.1),
            word if change.is_none() => {
                let unit = TimeUnit::of(word).ok_or(Fault::SYNTAX)?;
                let name = execution.command.name;
                let moment = moment_of(args, at + 1, unit, execution.now_ms(), name)?;
                change = Some(Change::Set(moment));
                at += 1;
            }
            _ => return Err(Fault::SYNTAX),
        }
        at += 1;
    }
    Ok((condition, change, at))
}

fn hgetex(execution: &mut Execution<'_>) -> Result<()> {
    let (_, change, at) = options(execution, (b"persist", Change::Drop), false)?;
    let fields = counted_fields(execution, at)?;
    let key = execution.arg(1);
    let mut hash = Hash::open(execution, key)?;
    let now_ms = execution.now_ms();
    execution.reply.array(fields.len());
    let mut count = 0;
    for field in fields.iter() {
        let found = hash.get(execution.work, field)?;
        if let Some((old, value)) = &found {
            match change.unwrap_or(Change::Keep) {
                Change::Keep => {}
                Change::Drop if old.is_none() => {}
                Change::Set(moment) if moment <= now_ms => {
                    hash.remove(execution.work, field)?;
                    count += 1;
                }
                Change::Drop => {
                    hash.set(execution.work, field, value, None)?;
                    count += 1;
                }
                Change::Set(moment) => {
                    hash.set(execution.work, field, value, Some(moment))?;
                    count += 1;
                }
            }
        }
        execution.reply.bulk_or_null(found.map(|(_, value)| value));
    }
    let saved = hash.save(execution, key)?;
    if count > 0 {
        let name = match change {
            Some(Change::Drop) => "hpersist",
            Some(Change::Set(moment)) if moment <= now_ms => "hdel",
            _ => "hexpire",
        };
        execution.tell(saved, EventClasses::HASH, name, key);
    }
    Ok(())
}

/// The pairs behind `FIELDS count`.
fn counted_pairs<'a>(execution: &Execution<'a>, at: usize) -> Result<Args<'a>> {
    let args = execution.args;
    if !args.at(at).eq_ignore_ascii_case(b"fields") {
        return Err(Fault::SYNTAX);
    }
    let count = args.get(at + 1).and_then(integer);
    let count = count.filter(|count| *count > 0);
    let count = count.ok_or(Fault::line("ERR invalid number of fields"))?;
    let pairs = args.from(at + 2);
    match i64::try_from(pairs.len()) == Ok(count.saturating_mul(2)) {
        true => Ok(pairs),
        false => Err(execution.wrong_arguments()),
    }
}

fn hsetex(execution: &mut Execution<'_>) -> Result<()> {
    let (condition, change, at) = options(execution, (b"keepttl", Change::Keep), true)?;
    let pairs = counted_pairs(execution, at)?;
    let key = execution.arg(1);
    let mut hash = Hash::open(execution, key)?;
    let now_ms = execution.now_ms();
    for at in (0..pairs.len()).step_by(2) {
        let is_there = hash.value(execution.work, pairs.at(at))?.is_some();
        if condition.is_some_and(|must_be| must_be != is_there) {
            hash.save(execution, key)?;
            execution.reply.flag(false);
            return Ok(());
        }
    }
    for at in (0..pairs.len()).step_by(2) {
        let (field, value) = (pairs.at(at), pairs.at(at + 1));
        let moment = match change.unwrap_or(Change::Drop) {
            Change::Drop => None,
            Change::Keep => hash.get(execution.work, field)?.and_then(|(old, _)| old),
            Change::Set(moment) => Some(moment),
        };
        match moment.is_some_and(|moment| moment <= now_ms) {
            true => {
                hash.remove(execution.work, field)?;
            }
            false => {
                hash.set(execution.work, field, value, moment)?;
            }
        }
    }
    let saved = hash.save(execution, key)?;
    execution.tell(saved, EventClasses::HASH, "hset", key);
    if matches!(change, Some(Change::Set(_))) {
        execution.notify(EventClasses::HASH, "hexpire", key);
    }
    execution.reply.flag(true);
    Ok(())
}
