//! LevelDB's C interface, on Gabion: the functions of `leveldb/c.h`, so that a program that uses
//! them runs on a store of Gabion's once it is linked with `libgabion_leveldb`. It does not read
//! LevelDB's files.
//!
//! # What is as there
//! All 68 functions, who owns what they return, and what they do with errors: the text of the first
//! error takes the place of an earlier one.
//!
//! # What is not
//! - Keys are ordered by their bytes, always. A comparator is tried on some thousand pairs of keys
//!   when a store is opened; one that orders them otherwise is an error then. It is not called
//!   afterwards, so one that differs on other keys only is not noticed.
//! - A filter policy of the program's own is not called. Gabion has its own filters, which find
//!   what there is to find.
//! - The options `max_open_files`, `block_restart_interval`, `max_file_size`, `info_log`,
//!   `verify_checksums` and `fill_cache` say nothing to Gabion. Blocks are always checked when they
//!   are first read. Snappy stands for LZ4.
//! - Keys have at most 65,535 bytes, values 1 GiB.
//! - A repair leaves a sound store as it is. A damaged one stays beside the repaired one, with
//!   `.damaged` behind its name.
//!
//! # Invariants
//! - L1. No panic crosses: each function runs within [`raw::call`] or [`raw::call_or`].
//! - L2. Handles are boxes; what the caller does with them in the wrong order is undefined as it is
//!   in LevelDB, but that snapshots and iterators may outlive the store.

#![expect(
    unsafe_code,
    reason = "every function takes pointers of another language"
)]
#![expect(
    clippy::missing_safety_doc,
    reason = "the contracts are those of LevelDB's header"
)]

use std::ffi::{c_int, c_void};

pub mod raw;

// In the order in which the header has them.
pub mod db;

pub mod iterator;

pub mod batch;

pub mod options;

pub mod parts;

/// Frees what one of these functions returned as a copy. NULL is fine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_free(ptr: *mut c_void) {
    // SAFETY: by contract it is what one of these functions returned, or null.
    unsafe { raw::give_back(ptr) }
}

/// The version of LevelDB whose interface this is, first part.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_major_version() -> c_int {
    1
}

/// The version of LevelDB whose interface this is, second part.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_minor_version() -> c_int {
    23
}
