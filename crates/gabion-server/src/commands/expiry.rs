//! Expiry of keys: `EXPIRE`, `TTL`, `PERSIST`, and their kin.

use crate::args::integer;
use crate::command::{Command, CommandGroup, DIRECT, FAST, ONE_READ, READONLY, WRITE, command};
use crate::commands::expires::{EX, EXAT, PX, PXAT, TimeUnit, invalid};
use crate::events::EventClasses;
use crate::execution::Execution;
use crate::fault::{Fault, Result};

const CHANGE: u32 = WRITE | FAST | DIRECT;
const LOOK: u32 = READONLY | FAST | ONE_READ;

pub(crate) const COMMANDS: &[Command] = &[
    command("expire", -3, expire)
        .flags(CHANGE)
        .keys(1, 1, 1)
        .about(
            CommandGroup::Generic,
            "1.0.0",
            "Sets the expiry of a key, in seconds from now.",
        ),
    command("expireat", -3, expireat)
        .flags(CHANGE)
        .keys(1, 1, 1)
        .about(
            CommandGroup::Generic,
            "1.2.0",
            "Sets the expiry of a key, in seconds since 1970.",
        ),
    command("expiretime", 2, expiretime)
        .flags(LOOK)
        .keys(1, 1, 1)
        .about(
            CommandGroup::Generic,
            "7.0.0",
            "Returns the second since 1970 at which a key expires.",
        ),
    command("persist", 2, persist)
        .flags(CHANGE)
        .keys(1, 1, 1)
        .about(
            CommandGroup::Generic,
            "2.2.0",
            "Removes the expiry of a key.",
        ),
    command("pexpire", -3, pexpire)
        .flags(CHANGE)
        .keys(1, 1, 1)
        .about(
            CommandGroup::Generic,
            "2.6.0",
            "Sets the expiry of a key, in milliseconds from now.",
        ),
    command("pexpireat", -3, pexpireat)
        .flags(CHANGE)
        .keys(1, 1, 1)
        .about(
            CommandGroup::Generic,
            "2.6.0",
            "Sets the expiry of a key, in milliseconds since 1970.",
        ),
    command("pexpiretime", 2, pexpiretime)
        .flags(LOOK)
        .keys(1, 1, 1)
        .about(
            CommandGroup::Generic,
            "7.0.0",
            "Returns the millisecond at which a key expires.",
        ),
    command("pttl", 2, pttl).flags(LOOK).keys(1, 1, 1).about(
        CommandGroup::Generic,
        "2.6.0",
        "Returns the milliseconds until a key expires.",
    ),
    command("ttl", 2, ttl).flags(LOOK).keys(1, 1, 1).about(
        CommandGroup::Generic,
        "1.0.0",
        "Returns the seconds until a key expires.",
    ),
];

/// When a new moment takes the place of the old one.
#[derive(Clone, Copy, Debug, Default)]
struct Condition {
    if_none: bool,
    if_any: bool,
    if_later: bool,
    if_sooner: bool,
}

impl Condition {
    fn parse(execution: &Execution<'_>) -> Result<Condition> {
        let mut condition = Condition::default();
        for word in execution.args.from(3).iter() {
            match word.to_ascii_lowercase().as_slice() {
                b"nx" => condition.if_none = true,
                b"xx" => condition.if_any = true,
                b"gt" => condition.if_later = true,
                b"lt" => condition.if_sooner = true,
                _ => {
                    return Err(Fault::new(format!(
                        "ERR Unsupported option {}",
                        String::from_utf8_lossy(word)
                    )));
                }
            }
        }
        let has_other = condition.if_any || condition.if_later || condition.if_sooner;
        if condition.if_none && has_other {
            return Err(Fault::line(
                "ERR NX and XX, GT or LT options at the same time are not compatible",
            ));
        }
        if condition.if_later && condition.if_sooner {
            return Err(Fault::line(
                "ERR GT and LT options at the same time are not compatible",
            ));
        }
        Ok(condition)
    }

    /// No moment is later than any.
    fn holds(self, old: Option<u64>, new: i64) -> bool {
        let old = old.map(|old| i64::try_from(old).unwrap_or(i64::MAX));
        !(self.if_none && old.is_some()
            || self.if_any && old.is_none()
            || self.if_later && old.is_none_or(|old| new <= old)
            || self.if_sooner && old.is_some_and(|old| new >= old))
    }
}

fn set_moment(execution: &mut Execution<'_>, unit: TimeUnit, name: &str) -> Result<()> {
    let key = execution.arg(1);
    let number = integer(execution.arg(2)).ok_or(Fault::NOT_AN_INTEGER)?;
    let now_ms = execution.now_ms();
    let moment = unit.moment(number, now_ms).ok_or_else(|| invalid(name))?;
    let condition = Condition::parse(execution)?;
    let found = execution.find(key)?;
    let Some(meta) = found.filter(|meta| condition.holds(meta.head.expires_ms, moment)) else {
        execution.reply.flag(false);
        return Ok(());
    };
    match u64::try_from(moment).ok().filter(|moment| *moment > now_ms) {
        Some(moment) => {
            execution.put(key, meta.head.expiring(Some(moment)), &[meta.body()])?;
            execution.notify(EventClasses::GENERIC, "expire", key);
        }
        None => {
            execution.remove(key)?;
            execution.notify(EventClasses::GENERIC, "del", key);
        }
    }
    execution.reply.flag(true);
    Ok(())
}

fn expire(execution: &mut Execution<'_>) -> Result<()> {
    set_moment(execution, EX, "expire")
}

fn pexpire(execution: &mut Execution<'_>) -> Result<()> {
    set_moment(execution, PX, "pexpire")
}

fn expireat(execution: &mut Execution<'_>) -> Result<()> {
    set_moment(execution, EXAT, "expireat")
}

fn pexpireat(execution: &mut Execution<'_>) -> Result<()> {
    set_moment(execution, PXAT, "pexpireat")
}

fn persist(execution: &mut Execution<'_>) -> Result<()> {
    let key = execution.arg(1);
    let found = execution.find(key)?;
    let expiring = found.filter(|meta| meta.head.expires_ms.is_some());
    if let Some(meta) = &expiring {
        execution.put(key, meta.head.expiring(None), &[meta.body()])?;
        execution.notify(EventClasses::GENERIC, "persist", key);
    }
    execution.reply.flag(expiring.is_some());
    Ok(())
}

/// Replies -2 for no key, -1 for one that stays, or else what `show` makes of its moment.
fn show_moment(execution: &mut Execution<'_>, show: impl Fn(i64, i64) -> i64) -> Result<()> {
    let now_ms = i64::try_from(execution.now_ms()).unwrap_or(i64::MAX);
    let shown = match execution.look_up(execution.arg(1))? {
        None => -2,
        Some(meta) => match meta.head.expires_ms {
            None => -1,
            Some(moment) => show(i64::try_from(moment).unwrap_or(i64::MAX), now_ms),
        },
    };
    execution.reply.integer(shown);
    Ok(())
}

fn ttl(execution: &mut Execution<'_>) -> Result<()> {
    show_moment(execution, |moment, now_ms| {
        (moment - now_ms).saturating_add(500) / 1000
    })
}

fn pttl(execution: &mut Execution<'_>) -> Result<()> {
    show_moment(execution, |moment, now_ms| moment - now_ms)
}

fn expiretime(execution: &mut Execution<'_>) -> Result<()> {
    show_moment(execution, |moment, _| moment.saturating_add(500) / 1000)
}

fn pexpiretime(execution: &mut Execution<'_>) -> Result<()> {
    show_moment(execution, |moment, _| moment)
}
