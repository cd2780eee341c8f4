//! Gabion for Node: the native library of the package `gabion-level`.
//!
//! # Idea
//! The package's JavaScript implements `abstract-level`; what it needs of the store is here. A
//! crossing from JavaScript to a thread of libuv's pool and back costs about ten times what a get
//! or a put does, so one crossing takes many of them: JavaScript packs what is asked for in one
//! turn of its loop into one buffer, one [`job::Job`] does it all, and one buffer carries the
//! answers back.
//!
//! | module | what |
//! |---|---|
//! | [`failures`] | errors with the codes that users of `abstract-level` know |
//! | [`job`] | work on libuv's pool, and the promise of its answer |
//! | [`packed`] | requests and answers as bytes |
//! | [`registry`] | stores that threads of one process share |
//! | [`store`] | a store: open, close, what is done with all of it |
//! | [`view`] | reads and writes, of a store or of a transaction |
//! | `writes` | the writes of a job |
//! | [`pairs`] | iterators, which hand out pages of pairs |
//! | [`snapshot`] | moments that do not change |
//!
//! # Invariants
//! - N1. Whatever may wait for a medium or another writer is a job; but `getSync`, which promises
//!   the answer at once, and the end of objects that were never closed.
//! - N2. Bytes of JavaScript are copied before a call returns. Nobody else may look at them, as
//!   JavaScript can change them at any time.
//! - N3. No panic reaches JavaScript: [`gabion_bindings::guard`] stands around all that a job does
//!   and all that reads or writes within a call.

pub mod failures;
pub mod job;
pub mod packed;
pub mod pairs;
pub mod registry;
pub mod snapshot;
pub mod store;
pub mod view;
mod writes;
