//! `BITFIELD`: whole numbers of any width in a string.

use crate::command::{
    Command, CommandGroup, DENYOOM, DIRECT, FAST, ONE_READ, READONLY, WRITE, command, parse_integer,
};
use crate::commands::bits::{offset, string_of};
use crate::events::EventClasses;
use crate::execution::Execution;
use crate::fault::{Fault, Result};

pub(crate) const COMMANDS: &[Command] = &[
    command("bitfield", -2, bitfield)
        .flags(WRITE | DENYOOM | DIRECT)
        .keys(1, 1, 1)
        .about(
            CommandGroup::Bitmap,
            "3.2.0",
            "Reads and writes numbers of any width in a string.",
        ),
    command("bitfield_ro", -2, bitfield_ro)
        .flags(READONLY | FAST | ONE_READ)
        .keys(1, 1, 1)
        .about(
            CommandGroup::Bitmap,
            "6.0.0",
            "Reads numbers of any width in a string.",
        ),
];

/// How a number is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Width {
    is_signed: bool,
    bits: u32,
}

impl Width {
    fn parse(text: &[u8]) -> Option<Width> {
        let (first, digits) = text.split_first()?;
        let is_signed = match first {
            b'i' | b'I' => true,
            b'u' | b'U' => false,
            _ => return None,
        };
        let bits = u32::try_from(crate::args::integer(digits)?).ok()?;
        let most = if is_signed { 64 } else { 63 };
        (1..=most)
            .contains(&bits)
            .then_some(Width { is_signed, bits })
    }

    /// The least and the greatest number.
    fn range(self) -> (i128, i128) {
        match self.is_signed {
            true => (-(1 << (self.bits - 1)), (1 << (self.bits - 1)) - 1),
            false => (0, (1 << self.bits) - 1),
        }
    }

    /// The number whose lowest bits are those of another, as it is when too high bits are lost.
    fn wrap(self, number: i128) -> i128 {
        let low = number & ((1 << self.bits) - 1);
        match low > self.range().1 {
            true => low - (1 << self.bits),
            false => low,
        }
    }

    fn read(self, value: &[u8], offset: u64) -> i128 {
        let bits = (offset..offset + u64::from(self.bits)).map(|place| {
            let index = usize::try_from(place / 8).unwrap_or(usize::MAX);
            let byte = value.get(index).copied().unwrap_or_default();
            i128::from(byte >> (7 - place % 8) & 1)
        });
        self.wrap(bits.fold(0, |number, bit| number << 1 | bit))
    }

    fn write(self, value: &mut [u8], offset: u64, number: i128) {
        for index in 0..self.bits {
            let bit = number >> (self.bits - 1 - index) & 1 == 1;
            let place = offset + u64::from(index);
            let mask = 1 << (7 - place % 8);
            let index = usize::try_from(place / 8).unwrap_or(usize::MAX);
            if let Some(byte) = value.get_mut(index) {
                *byte = if bit { *byte | mask } else { *byte & !mask };
            }
        }
    }
}

/// What becomes of a number that does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Overflow {
    Wrap,
    Saturate,
    Fail,
}

impl Overflow {
    /// What is kept for an exact result; `None` if nothing is.
    fn kept(self, width: Width, exact: i128) -> Option<i128> {
        let (least, greatest) = width.range();
        match self {
            _ if (least..=greatest).contains(&exact) => Some(exact),
            Overflow::Wrap => Some(width.wrap(exact)),
            Overflow::Saturate => Some(exact.clamp(least, greatest)),
            Overflow::Fail => None,
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Action {
    Get,
    Set(i64),
    Add(i64),
}

#[derive(Clone, Copy, Debug)]
struct Step {
    width: Width,
    offset: u64,
    action: Action,
    overflow: Overflow,
}

impl Step {
    /// Bytes of a string that has all bits of the number.
    fn bytes(&self) -> usize {
        let end = self.offset + u64::from(self.width.bits);
        usize::try_from(end.div_ceil(8)).unwrap_or(usize::MAX)
    }
}

const BAD_TYPE: Fault = Fault::line(
    "ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 \
     is.",
);

/// The steps of a request.
fn steps(execution: &Execution<'_>) -> Result<Vec<Step>> {
    let args = execution.args;
    let (mut at, mut overflow) = (2, Overflow::Wrap);
    let mut steps = Vec::new();
    while let Some(word) = args.get(at) {
        let word = word.to_ascii_lowercase();
        let takes = match word.as_slice() {
            b"get" => 2,
            b"set" | b"incrby" => 3,
            b"overflow" => 1,
            _ => return Err(Fault::SYNTAX),
        };
        if args.len() <= at + takes {
            return Err(Fault::SYNTAX);
        }
        if word == b"overflow" {
            overflow = match args.at(at + 1).to_ascii_lowercase().as_slice() {
                b"wrap" => Overflow::Wrap,
                b"sat" => Overflow::Saturate,
                b"fail" => Overflow::Fail,
                _ => return Err(Fault::line("ERR Invalid OVERFLOW type specified")),
            };
            at += 2;
            continue;
        }
        let width = Width::parse(args.at(at + 1)).ok_or(BAD_TYPE)?;
        let offset = offset(execution, args.at(at + 2), Some(u64::from(width.bits)))?;
        let action = match word.as_slice() {
            b"get" => Action::Get,
            b"set" => Action::Set(parse_integer(args.at(at + 3))?),
            _ => Action::Add(parse_integer(args.at(at + 3))?),
        };
        steps.push(Step {
            width,
            offset,
            action,
            overflow,
        });
        at += 1 + takes;
    }
    Ok(steps)
}

fn bitfield(execution: &mut Execution<'_>) -> Result<()> {
    let key = execution.arg(1);
    let steps = steps(execution)?;
    let found = execution.look_up(key)?;
    let (head, old) = string_of(found.as_ref())?;
    let writes = |step: &&Step| !matches!(step.action, Action::Get);
    let mut value = old.to_vec();
    if let Some(length) = steps.iter().filter(writes).map(Step::bytes).max() {
        value.resize(length.max(value.len()), 0);
    }
    execution.reply.array(steps.len());
    let mut changes = 0;
    for step in &steps {
        let before = step.width.read(&value, step.offset);
        let (exact, shows_old) = match step.action {
            Action::Get => {
                reply_number(execution, before);
                continue;
            }
            // Without a sign a negative number is a huge one.
            Action::Set(number) if !step.width.is_signed => {
                (i128::from(number.cast_unsigned()), true)
            }
            Action::Set(number) => (i128::from(number), true),
            Action::Add(number) => (before + i128::from(number), false),
        };
        match step.overflow.kept(step.width, exact) {
            Some(number) => {
                step.width.write(&mut value, step.offset, number);
                reply_number(execution, if shows_old { before } else { number });
                changes += usize::from(number != before || step.bytes() > old.len());
            }
            None => execution.reply.null(),
        }
    }
    if changes > 0 {
        execution.put(key, head, &[&value])?;
        execution.notify(EventClasses::STRING, "setbit", key);
    }
    Ok(())
}

fn reply_number(execution: &mut Execution<'_>, number: i128) {
    execution
        .reply
        .integer(i64::try_from(number).unwrap_or_default());
}

fn bitfield_ro(execution: &mut Execution<'_>) -> Result<()> {
    let steps = steps(execution)?;
    if steps.iter().any(|step| !matches!(step.action, Action::Get)) {
        return Err(Fault::line(
            "ERR BITFIELD_RO only supports the GET subcommand",
        ));
    }
    let found = execution.look_up(execution.arg(1))?;
    let (_, value) = string_of(found.as_ref())?;
    execution.reply.array(steps.len());
    for step in steps {
        reply_number(execution, step.width.read(value, step.offset));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_they_were_written() {
        for text in [&b"i1"[..], b"u1", b"i5", b"u7", b"i64", b"u63"] {
            let width = Width::parse(text).unwrap();
            let (least, greatest) = width.range();
            for number in [least, greatest, 0.max(least), (least + greatest) / 2] {
                for offset in [0, 3, 9] {
                    let mut value = [0xa5; 12];
                    width.write(&mut value, offset, number);
                    assert_eq!(width.read(&value, offset), number, "{text:?}");
                    let others = (0..offset).chain(offset + u64::from(width.bits)..96);
                    let bit = Width::parse(b"u1").unwrap();
                    for place in others {
                        assert_eq!(bit.read(&value, place), bit.read(&[0xa5; 12], place));
                    }
                }
            }
        }
        for text in [&b"u64"[..], b"i65", b"u0", b"x8", b"i", b"", b"i-1"] {
            assert_eq!(Width::parse(text), None);
        }
    }

    #[test]
    fn what_does_not_fit_wraps_saturates_or_fails() {
        let byte = Width::parse(b"i8").unwrap();
        for (exact, wrapped, saturated) in [(128, -128, 127), (-129, 127, -128), (300, 44, 127)] {
            assert_eq!(Overflow::Wrap.kept(byte, exact), Some(wrapped));
            assert_eq!(Overflow::Saturate.kept(byte, exact), Some(saturated));
            assert_eq!(Overflow::Fail.kept(byte, exact), None);
        }
        assert_eq!(Overflow::Fail.kept(byte, 127), Some(127));
    }
}
