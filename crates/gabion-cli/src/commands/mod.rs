//! One module per command, except for `load`, which has a directory of its own.

pub(crate) mod backup;
#[cfg(feature = "lab")]
pub(crate) mod bench;
pub(crate) mod changes;
pub(crate) mod check;
pub(crate) mod checkpoint;
#[cfg(feature = "server")]
pub(crate) mod cli;
pub(crate) mod compact;
pub(crate) mod drop;
pub(crate) mod dump;
#[cfg(feature = "lab")]
mod equals;
pub(crate) mod keyspace;
#[cfg(feature = "lab")]
pub(crate) mod lab;
pub(crate) mod point;
pub(crate) mod range;
pub(crate) mod repair;
#[cfg(feature = "lab")]
mod reproduce;
pub(crate) mod scan;
#[cfg(feature = "server")]
pub(crate) mod serve;
pub(crate) mod space;
pub(crate) mod stats;
