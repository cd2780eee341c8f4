//! Why a run cannot begin or go on.

use std::io;
use std::path::Path;

/// A run cannot begin or go on, for the reason that the sentence gives.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The request cannot be meant: an unknown target or workload, figures that do not fit.
    #[error("{0}")]
    Request(String),
    /// A target that is known, but not part of this program.
    #[error(
        "this program was built without the peer {peer}; build it with `cargo build --profile \
         measure --features {}`",
        crate::targets::peer_feature(peer)
    )]
    NotBuilt {
        /// Its name.
        peer: &'static str,
    },
    /// The file system is too small for what a run will write.
    #[error(
        "the run needs about {needed}, and {dir} has {free} free; use a smaller --num or another \
         --dir"
    )]
    NoSpace {
        /// Where the stores would be.
        dir: std::path::PathBuf,
        /// An estimate.
        needed: String,
        /// What there is.
        free: String,
    },
    /// A store of ours failed.
    #[error(transparent)]
    Store(#[from] gabion::Error),
    /// A structure of ours failed.
    #[error(transparent)]
    Structure(#[from] gabion_index::Error),
    /// A space of ours failed.
    #[error(transparent)]
    Space(#[from] gabion_flex::Error),
    /// Another store failed.
    #[error("{target}: {message}")]
    Peer {
        /// Name of the target.
        target: &'static str,
        /// What it says.
        message: String,
    },
    /// The system refused something.
    #[error("cannot {action} {path}: {source}")]
    File {
        /// What was tried.
        action: &'static str,
        /// With which file.
        path: std::path::PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// A phase did not do what its figures would claim.
    #[error("{0}")]
    Meaningless(String),
}

impl Error {
    /// What the system refused to do with a file.
    pub(crate) fn file(action: &'static str, path: &Path, source: io::Error) -> Error {
        Error::File {
            action,
            path: path.to_owned(),
            source,
        }
    }
}
