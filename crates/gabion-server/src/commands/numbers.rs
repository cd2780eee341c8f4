//! Strings that are numbers.

use crate::args::{float, integer};
use crate::command::{Command, CommandGroup, DENYOOM, DIRECT, FAST, WRITE, command, parse_integer};
use crate::events::EventClasses;
use crate::execution::Execution;
use crate::fault::{Fault, Result};
use crate::resp::reply::{DIGITS_MAX, decimal};
use crate::store::meta::RecordHead;

const CHANGE: u32 = WRITE | DENYOOM | FAST | DIRECT;

pub(crate) const COMMANDS: &[Command] = &[
    command("decr", 2, decr).flags(CHANGE).keys(1, 1, 1).about(
        CommandGroup::String,
        "1.0.0",
        "Subtracts one.",
    ),
    command("decrby", 3, decrby)
        .flags(CHANGE)
        .keys(1, 1, 1)
        .about(CommandGroup::String, "1.0.0", "Subtracts a number."),
    command("incr", 2, incr).flags(CHANGE).keys(1, 1, 1).about(
        CommandGroup::String,
        "1.0.0",
        "Adds one.",
    ),
    command("incrby", 3, incrby)
        .flags(CHANGE)
        .keys(1, 1, 1)
        .about(CommandGroup::String, "1.0.0", "Adds a number."),
    command("incrbyfloat", 3, incrbyfloat)
        .flags(CHANGE)
        .keys(1, 1, 1)
        .about(
            CommandGroup::String,
            "2.6.0",
            "Adds a number with a fraction.",
        ),
];

fn add(execution: &mut Execution<'_>, by: i64) -> Result<()> {
    let key = execution.arg(1);
    let (head, old) = match execution.find(key)? {
        Some(meta) => {
            let number = integer(meta.string()?).ok_or(Fault::NOT_AN_INTEGER)?;
            (meta.head, number)
        }
        None => (RecordHead::STRING, 0),
    };
    let new = old
        .checked_add(by)
        .ok_or(Fault::line("ERR increment or decrement would overflow"))?;
    let mut digits = [0; DIGITS_MAX];
    execution.put(key, head, &[decimal(new, &mut digits)])?;
    execution.notify(EventClasses::STRING, "incrby", key);
    execution.reply.integer(new);
    Ok(())
}

fn incr(execution: &mut Execution<'_>) -> Result<()> {
    add(execution, 1)
}

fn decr(execution: &mut Execution<'_>) -> Result<()> {
    add(execution, -1)
}

fn incrby(execution: &mut Execution<'_>) -> Result<()> {
    let by = parse_integer(execution.arg(2))?;
    add(execution, by)
}

fn decrby(execution: &mut Execution<'_>) -> Result<()> {
    let by = parse_integer(execution.arg(2))?;
    let by = by
        .checked_neg()
        .ok_or(Fault::line("ERR decrement would overflow"))?;
    add(execution, by)
}

fn incrbyfloat(execution: &mut Execution<'_>) -> Result<()> {
    let key = execution.arg(1);
    let (head, old) = match execution.find(key)? {
        Some(meta) => {
            let number = float(meta.string()?).ok_or(Fault::NOT_A_FLOAT)?;
            (meta.head, number)
        }
        None => (RecordHead::STRING, 0.0),
    };
    let by = float(execution.arg(2)).ok_or(Fault::NOT_A_FLOAT)?;
    let new = old + by;
    if !new.is_finite() {
        return Err(Fault::line("ERR increment would produce NaN or Infinity"));
    }
    let text = plain(new);
    execution.put(key, head, &[text.as_bytes()])?;
    execution.notify(EventClasses::STRING, "incrbyfloat", key);
    execution.reply.bulk(text);
    Ok(())
}

/// A number with at most 17 digits behind the point, without an exponent.
pub(crate) fn plain(number: f64) -> String {
    let shortest = format!("{number}");
    let digits = shortest
        .split_once('.')
        .map_or(0, |(_, digits)| digits.len());
    if digits <= 17 {
        return if shortest == "-0" {
            "0".to_owned()
        } else {
            shortest
        };
    }
    let rounded = format!("{number:.17}");
    let trimmed = rounded.trim_end_matches('0').trim_end_matches('.');
    if trimmed == "-0" {
        "0".to_owned()
    } else {
        trimmed.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_shown_without_an_exponent() {
        for (number, shown) in [
            (3.0, "3"),
            (10.5, "10.5"),
            (-0.0, "0"),
            (1e20, "100000000000000000000"),
            (1e-5, "0.00001"),
            (1e-30, "0"),
        ] {
            assert_eq!(plain(number), shown);
        }
    }
}
