//! How many files the system lets this process open, and how many of them clients may have.
//!
//! A client is an open file, and so is each table of the store, and its log. A client for whom
//! there is no file is told so; a store without files can neither read all of its tables nor write
//! new ones. So a quarter of the files is kept for the store.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the limit to what the system allows this process at most, and returns how many clients
/// there may be.
pub(crate) fn room_for_clients() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    let files = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        // Then it stays as it is.
        Err(_) => limit.current,
    };
    files.map_or(u64::MAX, |files| files - files / 4)
}
