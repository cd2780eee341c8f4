//! Failures of the program: message and exit status.

use std::fmt;
use std::io;
use std::path::Path;
use std::process::ExitCode;

use crate::output::tell;

/// A reason to stop: one sentence for standard error, or silence.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The command line asks for something that cannot be meant: exit status 2.
    Usage(String),
    /// The command could not be done: exit status 1.
    Failed(String),
    /// The reader of standard output went away, as `head` does: not worth a word.
    BrokenPipe,
}

impl Failure {
    /// The command could not be done, for this reason.
    pub(crate) fn new(sentence: impl Into<String>) -> Failure {
        Failure::Failed(sentence.into())
    }

    /// The command line is wrong, for this reason.
    pub(crate) fn usage<S: Into<String>>(sentence: S) -> Failure {
        Failure::Usage(sentence.into())
    }

    /// The command is in the lab, which this program was built without.
    #[cfg(not(feature = "lab"))]
    pub(crate) fn without_the_lab() -> Failure {
        Failure::new(
            "this program was built without the lab, which `bench` and `lab` need; build it with \
             `cargo build --profile measure --features full`",
        )
    }

    /// The command is the server, which this program was built without.
    #[cfg(not(feature = "server"))]
    pub(crate) fn without_the_server() -> Failure {
        Failure::new(
            "this program was built without the server, which `serve`, `cli` and RDB files need; \
             build it with `cargo build --release --features server`",
        )
    }

    /// Writing to standard output failed.
    pub(crate) fn output(error: &io::Error) -> Failure {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Failure::BrokenPipe,
            _ => Failure::new(format!("cannot write to standard output: {error}")),
        }
    }

    /// The system refused to `verb` the file at `path`.
    pub(crate) fn file(verb: &str, path: &Path, error: &io::Error) -> Failure {
        Failure::new(format!("cannot {verb} {}: {error}", path.display()))
    }

    /// Says the sentence and gives the exit status.
    pub(crate) fn report(&self) -> ExitCode {
        match self {
            Failure::Usage(_) => {
                tell(&format!("gabion: {self}; see the usage with `gabion help`"));
                ExitCode::from(2)
            }
            Failure::Failed(_) => {
                tell(&format!("gabion: {self}"));
                ExitCode::from(1)
            }
            Failure::BrokenPipe => ExitCode::SUCCESS,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Usage(sentence) | Failure::Failed(sentence) => f.write_str(sentence),
            Failure::BrokenPipe => f.write_str("the reader of the output has closed it"),
        }
    }
}

impl From<gabion::Error> for Failure {
    fn from(error: gabion::Error) -> Failure {
        Failure::new(error.to_string())
    }
}

impl From<gabion_flex::Error> for Failure {
    fn from(error: gabion_flex::Error) -> Failure {
        Failure::new(error.to_string())
    }
}

#[cfg(feature = "lab")]
impl From<gabion_lab::Error> for Failure {
    fn from(error: gabion_lab::Error) -> Failure {
        match error {
            gabion_lab::Error::Request(sentence) => Failure::Usage(sentence),
            error => Failure::new(error.to_string()),
        }
    }
}
