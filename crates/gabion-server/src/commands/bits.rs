//! Bits of strings: `SETBIT`, `GETBIT`, `BITCOUNT`, `BITPOS` and `BITOP`.
//!
//! Bits count from the highest of the first byte on. Behind the end of a string there are zeros.

use crate::command::{
    Command, CommandGroup, DENYOOM, DIRECT, FAST, ONE_READ, READONLY, WRITE, command, parse_integer,
};
use crate::events::EventClasses;
use crate::execution::Execution;
use crate::fault::{Fault, Result};
use crate::store::meta::{KeyRecord, RecordHead};

const ABOUT: CommandGroup = CommandGroup::Bitmap;

pub(crate) const COMMANDS: &[Command] = &[
    command("bitcount", -2, bitcount)
        .flags(READONLY | ONE_READ)
        .keys(1, 1, 1)
        .about(ABOUT, "2.6.0", "Counts the ones in a string."),
    command("bitop", -4, bitop)
        .flags(WRITE | DENYOOM)
        .keys(2, -1, 1)
        .about(ABOUT, "2.6.0", "Combines strings bit by bit."),
    command("bitpos", -3, bitpos)
        .flags(READONLY | ONE_READ)
        .keys(1, 1, 1)
        .about(ABOUT, "2.8.7", "Returns where the first one or zero is."),
    command("getbit", 3, getbit)
        .flags(READONLY | FAST | ONE_READ)
        .keys(1, 1, 1)
        .about(ABOUT, "2.2.0", "Returns a bit of a string."),
    command("setbit", 4, setbit)
        .flags(WRITE | DENYOOM | DIRECT)
        .keys(1, 1, 1)
        .about(
            ABOUT,
            "2.2.0",
            "Sets a bit of a string and returns the old one.",
        ),
];

const BAD_OFFSET: Fault = Fault::line("ERR bit offset is not an integer or out of range");

/// The place of a bit in an argument: with `#` in front in multiples of `width`.
///
/// # Errors
/// What Redis says of what is no number, or beyond the longest string.
pub(crate) fn offset(execution: &Execution<'_>, text: &[u8], width: Option<u64>) -> Result<u64> {
    let (digits, factor) = match (text.strip_prefix(b"#"), width) {
        (Some(digits), Some(width)) => (digits, width),
        _ => (text, 1),
    };
    let number = crate::args::integer(digits).ok_or(BAD_OFFSET)?;
    let place = u64::try_from(number)
        .ok()
        .and_then(|number| number.checked_mul(factor))
        .ok_or(BAD_OFFSET)?;
    let bytes_max = execution.server.settings.bulk_bytes_max() as u64;
    match place / 8 < bytes_max {
        true => Ok(place),
        false => Err(BAD_OFFSET),
    }
}

/// The byte that a bit is in, and how far it is from that byte's lowest bit.
fn place(offset: u64) -> (usize, u32) {
    let byte = usize::try_from(offset / 8).unwrap_or(usize::MAX);
    (byte, 7 - (offset % 8) as u32)
}

/// The record of a string, or `None`.
pub(crate) fn string_of(found: Option<&KeyRecord>) -> Result<(RecordHead, &[u8])> {
    match found {
        Some(meta) => Ok((meta.head, meta.string()?)),
        None => Ok((RecordHead::STRING, &[])),
    }
}

fn setbit(execution: &mut Execution<'_>) -> Result<()> {
    let key = execution.arg(1);
    let (byte, shift) = place(offset(execution, execution.arg(2), None)?);
    let bit = match execution.arg(3) {
        b"0" => 0,
        b"1" => 1,
        _ => {
            return Err(Fault::line("ERR bit is not an integer or out of range"));
        }
    };
    let found = execution.find(key)?;
    let (head, value) = string_of(found.as_ref())?;
    let old = value.get(byte).copied().unwrap_or_default();
    let new = old & !(1 << shift) | bit << shift;
    if new != old || byte >= value.len() {
        let front = value.get(..byte).unwrap_or(value);
        let gap = vec![0; byte - front.len()];
        let behind = value.get(byte + 1..).unwrap_or_default();
        execution.put(key, head, &[front, &gap, &[new], behind])?;
        execution.notify(EventClasses::STRING, "setbit", key);
    }
    execution.reply.flag(old >> shift & 1 == 1);
    Ok(())
}

fn getbit(execution: &mut Execution<'_>) -> Result<()> {
    let (byte, shift) = place(offset(execution, execution.arg(2), None)?);
    let found = execution.look_up(execution.arg(1))?;
    let (_, value) = string_of(found.as_ref())?;
    let byte = value.get(byte).copied().unwrap_or_default();
    execution.reply.flag(byte >> shift & 1 == 1);
    Ok(())
}

/// Whether a word says that a range is in bits.
fn is_in_bits(word: Option<&[u8]>) -> Result<bool> {
    match word.map(<[u8]>::to_ascii_lowercase).as_deref() {
        None | Some(b"byte") => Ok(false),
        Some(b"bit") => Ok(true),
        Some(_) => Err(Fault::SYNTAX),
    }
}

/// A range of bits, the last included, from two indexes that may count from the end; `None` if
/// there is nothing in it.
fn bits(from: i64, to: i64, bytes: usize, is_in_bits: bool) -> Option<(u64, u64)> {
    let unit = if is_in_bits { 1 } else { 8 };
    let total = i64::try_from(bytes).ok()?.checked_mul(8)? / unit;
    let place = |index: i64| match index < 0 {
        true => index.saturating_add(total).max(0),
        false => index,
    };
    let (from, to) = (place(from), place(to).min(total - 1));
    if from > to {
        return None;
    }
    let first = u64::try_from(from.checked_mul(unit)?).ok()?;
    let last = u64::try_from(to.checked_mul(unit)? + unit - 1).ok()?;
    Some((first, last))
}

/// The bytes that hold a range of bits, with those before and behind it in the first and the last
/// byte replaced by `fill`.
fn bytes_of(
    value: &[u8],
    (first, last): (u64, u64),
    fill: u8,
) -> impl Iterator<Item = (usize, u8)> {
    let (from, to) = (place(first).0, place(last).0);
    let part = value.get(from..=to).unwrap_or_default();
    part.iter().enumerate().map(move |(index, byte)| {
        let mut kept = u8::MAX;
        if index == 0 {
            kept &= u8::MAX >> (first % 8);
        }
        if from + index == to {
            kept &= u8::MAX << (7 - last % 8);
        }
        (from + index, byte & kept | fill & !kept)
    })
}

fn bitcount(execution: &mut Execution<'_>) -> Result<()> {
    let found = execution.look_up(execution.arg(1))?;
    let Some(meta) = found else {
        execution.reply.integer(0);
        return Ok(());
    };
    let value = meta.string()?;
    let args = execution.args;
    let range = match args.len() {
        2 => bits(0, -1, value.len(), false),
        4 | 5 => {
            let (from, to) = (parse_integer(args.at(2))?, parse_integer(args.at(3))?);
            let is_in_bits = is_in_bits(args.get(4))?;
            match from < 0 && to < 0 && from > to {
                true => None,
                false => bits(from, to, value.len(), is_in_bits),
            }
        }
        _ => return Err(Fault::SYNTAX),
    };
    let count: u64 = match range {
        Some(range) => bytes_of(value, range, 0)
            .map(|(_, byte)| u64::from(byte.count_ones()))
            .sum(),
        None => 0,
    };
    execution
        .reply
        .integer(i64::try_from(count).unwrap_or(i64::MAX));
    Ok(())
}

fn bitpos(execution: &mut Execution<'_>) -> Result<()> {
    let args = execution.args;
    let bit = match parse_integer(args.at(2))? {
        0 => false,
        1 => true,
        _ => return Err(Fault::line("ERR The bit argument must be 1 or 0.")),
    };
    let found = execution.look_up(args.at(1))?;
    let Some(meta) = found else {
        execution.reply.integer(if bit { -1 } else { 0 });
        return Ok(());
    };
    let value = meta.string()?;
    if args.len() > 6 {
        return Err(Fault::SYNTAX);
    }
    let number = |place: usize, other: i64| args.get(place).map_or(Ok(other), parse_integer);
    let from = number(3, 0)?;
    let to = number(4, -1)?;
    let range = bits(from, to, value.len(), is_in_bits(args.get(5))?);
    let position = range.and_then(|range| find_bit(value, range, bit));
    // A string without a given end goes on with zeros.
    let behind = (!bit && args.len() < 5 && range.is_some()).then_some(value.len() as u64 * 8);
    let position = position.or(behind);
    execution.reply.integer(match position {
        Some(position) => i64::try_from(position).unwrap_or(i64::MAX),
        None => -1,
    });
    Ok(())
}

fn find_bit(value: &[u8], range: (u64, u64), bit: bool) -> Option<u64> {
    let (fill, without) = if bit { (0, 0) } else { (u8::MAX, u8::MAX) };
    let (index, byte) = bytes_of(value, range, fill).find(|(_, byte)| *byte != without)?;
    let inside = if bit {
        byte.leading_zeros()
    } else {
        byte.leading_ones()
    };
    Some(index as u64 * 8 + u64::from(inside))
}

fn bitop(execution: &mut Execution<'_>) -> Result<()> {
    let (target, sources) = (execution.arg(2), execution.args.from(3));
    let word = execution.arg(1).to_ascii_lowercase();
    let combine: fn(u8, u8) -> u8 = match word.as_slice() {
        b"and" => |one, other| one & other,
        b"or" => |one, other| one | other,
        b"xor" => |one, other| one ^ other,
        b"not" if sources.len() == 1 => |one, _| one,
        b"not" => {
            return Err(Fault::line(
                "ERR BITOP NOT must be called with a single source key.",
            ));
        }
        _ => return Err(Fault::SYNTAX),
    };
    let mut found = Vec::new();
    for key in sources.iter() {
        found.push(execution.look_up(key)?);
    }
    let mut values = Vec::new();
    for meta in &found {
        values.push(string_of(meta.as_ref())?.1);
    }
    let length = values.iter().map(|value| value.len()).max().unwrap_or(0);
    let mut result = values.first().copied().unwrap_or_default().to_vec();
    result.resize(length, 0);
    if word == b"not" {
        result.iter_mut().for_each(|byte| *byte = !*byte);
    }
    for value in values.iter().skip(1) {
        let behind = std::iter::repeat(&0);
        for (byte, other) in result.iter_mut().zip(value.iter().chain(behind)) {
            *byte = combine(*byte, *other);
        }
    }
    if !result.is_empty() {
        execution.put(target, RecordHead::STRING, &[&result])?;
        execution.notify(EventClasses::STRING, "set", target);
    } else if execution.remove(target)? {
        execution.notify(EventClasses::GENERIC, "del", target);
    }
    execution.reply.count(length);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_bits_are_those_of_a_naive_twin() {
        let value = [0b1010_0000, 0xff, 0, 0b0000_0101];
        let bit = |index: u64| value[place(index).0] >> place(index).1 & 1 == 1;
        for first in 0..32 {
            for last in first..32 {
                let ones: u32 = bytes_of(&value, (first, last), 0)
                    .map(|(_, byte)| byte.count_ones())
                    .sum();
                let naive = (first..=last).filter(|index| bit(*index)).count();
                assert_eq!(ones as usize, naive, "{first} {last}");
                for wanted in [false, true] {
                    let naive = (first..=last).find(|index| bit(*index) == wanted);
                    assert_eq!(find_bit(&value, (first, last), wanted), naive);
                }
            }
        }
    }

    #[test]
    fn indexes_count_from_either_end() {
        for (from, to, bytes, in_bits, expected) in [
            (0, -1, 2, false, Some((0, 15))),
            (1, 1, 2, false, Some((8, 15))),
            (-3, -2, 2, true, Some((13, 14))),
            (5, 4, 2, false, None),
            (0, -1, 0, false, None),
            (0, i64::MAX, 1, true, Some((0, 7))),
            (i64::MIN, 0, 1, true, Some((0, 0))),
        ] {
            assert_eq!(bits(from, to, bytes, in_bits), expected, "{from} {to}");
        }
    }
}
