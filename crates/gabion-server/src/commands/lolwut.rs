//! `LOLWUT`: a picture.

use std::fmt::Write;

use crate::args::integer;
use crate::commands::info::REDIS_VERSION;
use crate::execution::Execution;
use crate::fault::{Fault, Result};
use crate::random;

/// Stones, the small ones first.
const STONES: &[u8] = b".:oO0@";

/// Columns and rows of stones in a gabion.
const WIDTH: usize = 7;
const HEIGHT: usize = 3;

/// The largest wall, in gabions, and the usual one.
const MOST: i64 = 20;
const USUAL: (i64, i64) = (6, 3);

/// `LOLWUT [VERSION version] [columns [rows]]`.
pub(crate) fn lolwut(execution: &mut Execution<'_>) -> Result<()> {
    let asks_version = execution
        .args
        .get(1)
        .is_some_and(|word| word.eq_ignore_ascii_case(b"version"));
    let sizes = execution.args.from(if asks_version { 3 } else { 1 });
    let number = |argument: &[u8]| integer(argument).ok_or(Fault::NOT_AN_INTEGER);
    if asks_version {
        // There is one picture, whichever version is asked for.
        number(execution.args.get(2).ok_or(Fault::SYNTAX)?)?;
    }
    let size = |place, usual| match sizes.get(place) {
        None => Ok(usual),
        Some(argument) => number(argument).map(|size| size.clamp(1, MOST)),
    };
    let (columns, rows) = (size(0, USUAL.0)?, size(1, USUAL.1)?);
    execution.reply.verbatim(&wall(columns, rows));
    Ok(())
}

/// A wall, its larger stones below.
fn wall(columns: i64, rows: i64) -> String {
    let columns = usize::try_from(columns).unwrap_or(1);
    let edge = format!("+{}\n", format!("{}+", "-".repeat(WIDTH)).repeat(columns));
    let mut text = edge.clone();
    for _ in 0..rows {
        for line in 0..HEIGHT {
            for _ in 0..columns {
                text.push('|');
                for _ in 0..WIDTH {
                    let choice = &STONES[line..=STONES.len() - HEIGHT + line];
                    let stone = random::below(choice.len() as u64);
                    let stone = usize::try_from(stone).unwrap_or_default();
                    text.push(char::from(choice[stone]));
                }
            }
            text.push_str("|\n");
        }
        text.push_str(&edge);
    }
    // Writing to a string does not fail.
    let _ = writeln!(
        text,
        "\nRedis ver. {REDIS_VERSION}, Gabion {}",
        env!("CARGO_PKG_VERSION")
    );
    text
}
