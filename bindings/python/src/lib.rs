//! Gabion for Python: the module `gabion._gabion`, which the package `gabion` is made of.
//!
//! # Idea
//! Classes are thin: they turn arguments into bytes and options, call the facade, and turn what
//! comes back into `bytes` and exceptions. Whatever may wait for a medium, a lock or another writer
//! runs without the interpreter's lock, so that other threads of Python go on.
//!
//! | module | what |
//! |---|---|
//! | [`arguments`] | bytes, options, expiries and durabilities that come in |
//! | [`errors`] | exceptions, by the codes of [`gabion_bindings::Code`] |
//! | [`store`], [`keyspace`] | stores and keyspaces, which are mappings |
//! | [`pairs`] | iterators, which read pages of pairs |
//! | [`snapshot`], [`transaction`], [`batch`] | moments, transactions and batches |
//!
//! # Invariants
//! - P1. `bytes` are read where they lie, since nothing changes them; of all other buffers a copy
//!   is made while the interpreter's lock is held, since anybody may change them without it.
//! - P2. No lock of this crate is held while Python code runs, and none is waited for while the
//!   interpreter's lock is held.
//! - P3. No state is global but the interned classes of exceptions and views.

mod arguments;
mod batch;
mod errors;
mod keyspace;
mod pairs;
mod snapshot;
mod store;
mod transaction;

use pyo3::prelude::*;

/// What the package imports. No class needs the interpreter's lock for its own sake.
#[pymodule(gil_used = false)]
mod _gabion {
    #[pymodule_export]
    use super::batch::Batch;
    #[pymodule_export]
    use super::keyspace::Keyspace;
    #[pymodule_export]
    use super::pairs::Pairs;
    #[pymodule_export]
    use super::snapshot::Snapshot;
    #[pymodule_export]
    use super::store::{Store, check, destroy, open};
    #[pymodule_export]
    use super::transaction::Transaction;

    /// The version of Gabion.
    #[pymodule_export]
    #[expect(non_upper_case_globals, reason = "a name of Python's")]
    const __version__: &str = env!("CARGO_PKG_VERSION");
}
