//! Gabion's C interface: what `include/gabion.h` declares.
//!
//! # Idea
//! Each function is a thin border in front of the facade: it checks what came across, does one
//! thing, and turns what went wrong into a code and an error object. Options go by name and value,
//! so that the interface stays as it is when options are added.
//!
//! | module | what |
//! |---|---|
//! | [`handle`] | handles: boxes that begin with a word which says of what kind they are |
//! | [`raw`] | bytes, text and places for results, checked as they come in |
//! | [`error`] | codes, error objects, and the one way in and out of every function |
//! | [`options`], [`store`], [`keyspace`] | opening and closing, names and sizes |
//! | [`read`], [`write`], [`batch`], [`iterator`], [`transaction`] | keys and values |
//! | [`ingest`] | sorted pairs on their way into a keyspace |
//! | [`changes`], [`consumer`] | what was written to a store, and who follows it |
//! | [`backup`] | repositories of backups |
//!
//! # Invariants
//! - A1. No panic crosses: every function that can fail runs within [`error::call`].
//! - A2. Nothing is read through a pointer before it is checked as far as a pointer can be: null,
//!   alignment, the kind of a handle, a length above the store's limits.
//! - A3. A handle keeps alive all that it needs, by counted references. So handles are freed in any
//!   order, and the use of one after its store was closed is an error.
//! - A4. There is no state but that of handles. What two threads may use at once is behind a lock,
//!   and what they may not answers with `GABION_CODE_BUSY`.
//! - A5. Freeing takes the address of the caller's variable and clears it, so that to free the same
//!   variable twice does nothing.
//!
//! What remains to the caller is what no library can check: memory that is not there, and a handle
//! that is used after another variable's free.

#![expect(
    unsafe_code,
    reason = "every function takes pointers of another language"
)]
#![expect(
    clippy::missing_safety_doc,
    reason = "one contract, which the head of the header states, holds for all functions"
)]

use std::ffi::{c_char, c_void};

pub mod handle;
pub mod raw;

// In the order in which the header has them.
pub mod error;

pub mod options;

pub mod store;

pub mod keyspace;

pub mod write;

pub mod read;

pub mod batch;

pub mod iterator;

pub mod transaction;

pub mod ingest;

pub mod changes;

pub mod consumer;

pub mod backup;

#[cfg(test)]
#[expect(clippy::undocumented_unsafe_blocks, reason = "tables of calls")]
mod tests;

/// Version of the binary interface that this header describes. It rises when a program that was
/// compiled with an older header could no longer work.
pub const GABION_ABI_VERSION: u32 = 1;

/// The version of the binary interface of the library that is loaded: a program refuses to go on
/// where it is not GABION_ABI_VERSION.
#[unsafe(no_mangle)]
pub extern "C" fn gabion_abi_version() -> u32 {
    GABION_ABI_VERSION
}

/// The version of Gabion, such as 0.1.0. Static.
#[unsafe(no_mangle)]
pub extern "C" fn gabion_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

/// Frees bytes or text that a function returned. NULL is fine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_free(memory: *mut c_void) {
    // SAFETY: by contract it is what a function of this library returned, or null.
    unsafe { raw::give_back(memory) }
}
