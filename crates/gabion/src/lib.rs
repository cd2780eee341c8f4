//! Gabion: a key-value storage engine for fast storage.

// The optimised paths of several modules meet in the engine; each module is reachable from here only.
#[allow(
    dead_code,
    unused_imports,
    reason = "parts of the engine arrive one by one"
)]
mod cache;
#[allow(
    dead_code,
    unused_imports,
    reason = "parts of the engine arrive one by one"
)]
mod engine;
mod error;
#[allow(
    dead_code,
    unused_imports,
    reason = "parts of the engine arrive one by one"
)]
mod log;
mod slice;
mod types;

pub use error::{Error, Result};
pub use slice::Slice;
