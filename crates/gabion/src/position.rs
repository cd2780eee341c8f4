//! Positions in the change stream of a store.

use std::fmt;
use std::str::FromStr;

/// A position between two changes of a store ([`Db::changes`](crate::Db::changes)): after a change
/// that was read, or the store's current one ([`Db::position`](crate::Db::position)).
///
/// It belongs to one store and names a place in that store's log, so it stays valid in other
/// processes and after the store is opened again. Later positions are larger.
///
/// Its text form is three numbers with dots between them, which [`FromStr`] reads; its binary form
/// has [16 bytes](Position::to_bytes).
///
/// ```
/// use gabion::Position;
///
/// let position = Position::START;
/// assert_eq!(position.to_string(), "1.0.0");
/// assert_eq!("1.0.0".parse(), Ok(position));
/// assert_eq!(Position::from_bytes(position.to_bytes()), position);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// Where to continue in the log: segment number in the high half, offset in the low half.
    pub(crate) log: u64,
    /// The number of the last change before; a reader skips changes up to it.
    pub(crate) number: u64,
}

impl Position {
    /// The position before the first change of a store.
    pub const START: Position = Position {
        log: 1 << 32,
        number: 0,
    };

    /// The number of the last write before the position: what
    /// [`Stats::visible_seq`](crate::Stats::visible_seq) counts.
    pub fn number(self) -> u64 {
        self.number
    }

    /// The position as bytes, to store it anywhere.
    pub fn to_bytes(self) -> [u8; 16] {
        let both = u128::from(self.number) << 64 | u128::from(self.log);
        both.to_le_bytes()
    }

    /// The position from bytes made by [`Position::to_bytes`].
    pub fn from_bytes(bytes: [u8; 16]) -> Position {
        let both = u128::from_le_bytes(bytes);
        #[expect(clippy::cast_possible_truncation, reason = "the halves are meant")]
        let (log, number) = (both as u64, (both >> 64) as u64);
        Position { log, number }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (segment, offset) = (self.log >> 32, self.log & u64::from(u32::MAX));
        write!(f, "{segment}.{offset}.{}", self.number)
    }
}

impl FromStr for Position {
    type Err = String;

    fn from_str(text: &str) -> Result<Position, String> {
        let parts: Vec<&str> = text.split('.').collect();
        let part = |at: usize, max: u64| {
            let digits = parts.get(at).filter(|part| is_number(part))?;
            digits.parse().ok().filter(|number| *number <= max)
        };
        let half = u64::from(u32::MAX);
        match (part(0, half), part(1, half), part(2, u64::MAX), parts.len()) {
            (Some(segment), Some(offset), Some(number), 3) => Ok(Position {
                log: segment << 32 | offset,
                number,
            }),
            _ => Err(format!(
                "{text:?} is not a position; use three numbers with dots between them, such as \
                 3.1064.250"
            )),
        }
    }
}

/// Whether text is a number without a sign or leading zeros.
fn is_number(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "",
            "1",
            "1.2",
            "1.2.3.4",
            "1.2.",
            ".1.2",
            "+1.2.3",
            "01.2.3",
            "1.2.x",
            "4294967296.0.0",
            "1.2.18446744073709551616",
        ] {
            assert!(text.parse::<Position>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn positions_come_back(log: u64, number: u64) {
            let position = Position { log, number };
            prop_assert_eq!(position.to_string().parse(), Ok(position));
            prop_assert_eq!(Position::from_bytes(position.to_bytes()), position);
        }
    }
}
