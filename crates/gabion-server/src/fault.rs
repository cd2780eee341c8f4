//! Errors of commands, as clients read them.

use std::borrow::Cow;

/// Result of a handler.
pub(crate) type Result<T, E = Fault> = std::result::Result<T, E>;

/// An error of a command.
#[derive(Clone, Debug)]
pub(crate) enum Fault {
    /// The whole line without its dash: a code in capitals, and a sentence. Clients match on it.
    Said(Cow<'static, str>),
    /// The store refused.
    Store(gabion::Error),
}

impl Fault {
    /// What Redis says to a command whose words do not fit.
    pub(crate) const SYNTAX: Fault = Fault::line("ERR syntax error");
    /// To what is no number.
    pub(crate) const NOT_AN_INTEGER: Fault =
        Fault::line("ERR value is not an integer or out of range");
    /// To what is no number with a fraction.
    pub(crate) const NOT_A_FLOAT: Fault = Fault::line("ERR value is not a valid float");
    /// To a command for keys of another type.
    pub(crate) const WRONG_TYPE: Fault =
        Fault::line("WRONGTYPE Operation against a key holding the wrong kind of value");
    /// To a command that needs a key.
    pub(crate) const NO_SUCH_KEY: Fault = Fault::line("ERR no such key");

    /// A fixed line.
    pub(crate) const fn line(line: &'static str) -> Fault {
        Fault::Said(Cow::Borrowed(line))
    }

    /// A line that is made.
    pub(crate) fn new(line: impl Into<String>) -> Fault {
        Fault::Said(Cow::Owned(line.into()))
    }

    /// Whether the medium has failed, or the store takes no writes.
    pub(crate) fn is_of_media(&self) -> bool {
        use gabion::Error::{Media, ReadOnly};
        matches!(self, Fault::Store(Media(_) | ReadOnly { .. }))
    }

    /// What is wrong, without the code in front: for people.
    pub(crate) fn sentence(&self) -> String {
        let text = self.text();
        let sentence = text
            .split_once(' ')
            .map(|(_, sentence)| sentence.to_owned());
        sentence.unwrap_or_else(|| text.into_owned())
    }

    /// The line to send.
    pub(crate) fn text(&self) -> Cow<'_, str> {
        match self {
            Fault::Said(line) => Cow::Borrowed(line),
            Fault::Store(error) => Cow::Owned(store_line(error)),
        }
    }
}

/// What the store could not do, with the code that clients know for it.
fn store_line(error: &gabion::Error) -> String {
    match error {
        gabion::Error::Media(cause) if cause.is_no_space() => {
            format!(
                "MISCONF the disk is full, and writes are refused until there is space: {error}"
            )
        }
        gabion::Error::Media(_) | gabion::Error::ReadOnly { .. } => {
            format!("MISCONF the store takes no writes: {error}")
        }
        gabion::Error::Limit { .. } => format!("ERR {error}"),
        _ => format!("ERR the store failed: {error}"),
    }
}

impl From<gabion::Error> for Fault {
    fn from(error: gabion::Error) -> Fault {
        Fault::Store(error)
    }
}
