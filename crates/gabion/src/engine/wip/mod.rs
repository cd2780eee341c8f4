//! The write-in-place engine.

pub(crate) mod manifest;
pub(crate) mod memtable;
pub(crate) mod names;
pub(crate) mod table;
