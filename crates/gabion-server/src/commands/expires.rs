//! Expiry times in arguments: seconds or milliseconds, from now or since 1970.

use crate::args::Args;
use crate::args::integer;
use crate::fault::{Fault, Result};

/// The unit of an expiry time, and whether it counts from now or from 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TimeUnit {
    /// Milliseconds in one.
    pub(crate) ms: i64,
    /// Whether it counts from now on.
    pub(crate) is_relative: bool,
}

/// Seconds from now on.
pub(crate) const EX: TimeUnit = unit(1000, true);
/// Milliseconds from now on.
pub(crate) const PX: TimeUnit = unit(1, true);
/// Seconds since 1970.
pub(crate) const EXAT: TimeUnit = unit(1000, false);
/// Milliseconds since 1970.
pub(crate) const PXAT: TimeUnit = unit(1, false);

const fn unit(ms: i64, is_relative: bool) -> TimeUnit {
    TimeUnit { ms, is_relative }
}

impl TimeUnit {
    /// The unit of a word.
    pub(crate) fn of(word: &[u8]) -> Option<TimeUnit> {
        Some(match word {
            b"ex" => EX,
            b"px" => PX,
            b"exat" => EXAT,
            b"pxat" => PXAT,
            _ => return None,
        })
    }

    /// The moment, in milliseconds since 1970, which may have passed; `None` if no number holds it.
    pub(crate) fn moment(self, number: i64, now_ms: u64) -> Option<i64> {
        let ms = number.checked_mul(self.ms)?;
        match self.is_relative {
            true => ms.checked_add(i64::try_from(now_ms).ok()?),
            false => Some(ms),
        }
    }
}

/// What Redis says of a moment that cannot be.
pub(crate) fn invalid(command: &str) -> Fault {
    Fault::new(format!("ERR invalid expire time in '{command}' command"))
}

/// The moment that an option `EX`, `PX`, `EXAT` or `PXAT` of a command states. It must be above 0.
///
/// # Errors
/// What Redis says of a number that is none, or too low or high.
pub(crate) fn moment_of(
    args: Args<'_>,
    at: usize,
    unit: TimeUnit,
    now_ms: u64,
    command: &str,
) -> Result<u64> {
    let number = args.get(at).ok_or(Fault::SYNTAX)?;
    let number = integer(number).ok_or(Fault::NOT_AN_INTEGER)?;
    if number <= 0 {
        return Err(invalid(command));
    }
    let moment = unit
        .moment(number, now_ms)
        .ok_or_else(|| invalid(command))?;
    u64::try_from(moment).map_err(|_| invalid(command))
}
