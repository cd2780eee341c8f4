//! Gabion: a key-value storage engine for fast storage.

// The optimised paths of several modules meet in the engine; each module is reachable from here only.
mod error;
mod slice;
mod types;

pub use error::{Error, Result};
pub use slice::Slice;
