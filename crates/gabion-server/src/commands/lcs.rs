//! `LCS`: the longest common subsequence of two strings.
//!
//! The usual table of lengths, row by row: `(a + 1) * (b + 1)` cells of four bytes, which is
//! bounded as Redis bounds it, and the way back through it.

use crate::command::{Command, CommandGroup, READONLY, command, parse_integer};
use crate::execution::Execution;
use crate::fault::{Fault, Result};

/// The most cells of the table, 4 GiB of them.
const CELLS_MAX: usize = 1 << 30;

pub(crate) const COMMANDS: &[Command] =
    &[command("lcs", -3, lcs).flags(READONLY).keys(1, 2, 1).about(
        CommandGroup::String,
        "7.0.0",
        "Finds the longest common subsequence.",
    )];

/// What is asked for.
#[derive(Debug, Default)]
struct Options {
    wants_length: bool,
    wants_places: bool,
    with_lengths: bool,
    length_min: usize,
}

/// A stretch that both have: where it begins in the one and in the other, and its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stretch {
    first: usize,
    second: usize,
    length: usize,
}

fn options(execution: &Execution<'_>) -> Result<Options> {
    let mut options = Options::default();
    let args = execution.args;
    let mut at = 3;
    while let Some(word) = args.get(at) {
        at += 1;
        match word.to_ascii_lowercase().as_slice() {
            b"idx" => options.wants_places = true,
            b"len" => options.wants_length = true,
            b"withmatchlen" => options.with_lengths = true,
            b"minmatchlen" => {
                let least = parse_integer(args.get(at).ok_or(Fault::SYNTAX)?)?;
                options.length_min = usize::try_from(least).unwrap_or(0);
                at += 1;
            }
            _ => return Err(Fault::SYNTAX),
        }
    }
    if options.wants_places && options.wants_length {
        return Err(Fault::line(
            "ERR If you want both the length and indexes, please just use IDX.",
        ));
    }
    Ok(options)
}

fn lcs(execution: &mut Execution<'_>) -> Result<()> {
    let mut values = Vec::new();
    for place in [1, 2] {
        values.push(match execution.look_up(execution.arg(place))? {
            Some(meta) => meta
                .string()
                .map(<[u8]>::to_vec)
                .map_err(|_| Fault::line("ERR The specified keys must contain string values"))?,
            None => Vec::new(),
        });
    }
    let options = options(execution)?;
    let (first, second) = (&values[0], &values[1]);
    let cells = (first.len() + 1).checked_mul(second.len() + 1);
    if cells.is_none_or(|cells| cells > CELLS_MAX) {
        return Err(Fault::line(
            "ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len",
        ));
    }
    let stretches = longest_common(first, second);
    let length: usize = stretches.iter().map(|stretch| stretch.length).sum();
    if options.wants_places {
        reply_places(execution, &stretches, length, &options);
    } else if options.wants_length {
        execution.reply.count(length);
    } else {
        let part = |stretch: &Stretch| &first[stretch.first..stretch.first + stretch.length];
        let common: Vec<u8> = stretches.iter().rev().flat_map(part).copied().collect();
        execution.reply.bulk(common);
    }
    Ok(())
}

fn reply_places(
    execution: &mut Execution<'_>,
    stretches: &[Stretch],
    length: usize,
    options: &Options,
) {
    let shown: Vec<_> = stretches
        .iter()
        .filter(|stretch| stretch.length >= options.length_min)
        .collect();
    let reply = &mut *execution.reply;
    reply.map(2);
    reply.bulk("matches");
    reply.array(shown.len());
    for stretch in shown {
        reply.array(2 + usize::from(options.with_lengths));
        for start in [stretch.first, stretch.second] {
            reply.array(2);
            reply.count(start);
            reply.count(start + stretch.length - 1);
        }
        if options.with_lengths {
            reply.count(stretch.length);
        }
    }
    reply.bulk("len");
    reply.count(length);
}

/// The stretches of a longest common subsequence, the last one first.
fn longest_common(first: &[u8], second: &[u8]) -> Vec<Stretch> {
    let width = second.len() + 1;
    let mut lengths = vec![0_u32; (first.len() + 1) * width];
    for (row, one) in first.iter().enumerate() {
        for (column, other) in second.iter().enumerate() {
            let at = (row + 1) * width + column + 1;
            lengths[at] = match one == other {
                true => lengths[at - width - 1] + 1,
                false => lengths[at - width].max(lengths[at - 1]),
            };
        }
    }
    let (mut row, mut column) = (first.len(), second.len());
    let mut stretches: Vec<Stretch> = Vec::new();
    while row > 0 && column > 0 {
        let at = row * width + column;
        if first[row - 1] == second[column - 1] {
            (row, column) = (row - 1, column - 1);
            match stretches.last_mut() {
                Some(last) if last.first == row + 1 && last.second == column + 1 => {
                    (last.first, last.second) = (row, column);
                    last.length += 1;
                }
                _ => stretches.push(Stretch {
                    first: row,
                    second: column,
                    length: 1,
                }),
            }
        } else if lengths[at - width] > lengths[at - 1] {
            row -= 1;
        } else {
            column -= 1;
        }
    }
    stretches
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_the_documentation() {
        let stretches = longest_common(b"ohmytext", b"mynewtext");
        let of = |first, second, length| Stretch {
            first,
            second,
            length,
        };
        assert_eq!(stretches, [of(4, 5, 4), of(2, 0, 2)]);
        assert!(longest_common(b"", b"a").is_empty());
    }
}
