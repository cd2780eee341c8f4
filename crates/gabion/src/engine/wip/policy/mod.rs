//! What comes next: jobs, stalls, and what is done because little is written.
//!
//! # Idea
//! Everything that the engine decides by a rule or a number of its own is decided here, over facts
//! that somebody else has gathered (`background/facts`): numbers of a bucket ([`shape`]), of the
//! store ([`due::Circumstances`]), of what was read and written ([`idleness`]). So a rule is read
//! in one place, and tested without a store.
//!
//! | file | decides |
//! |---|---|
//! | `due` | what is due in a bucket: a list of rules |
//! | `priority` | in which bucket first |
//! | `width`, `capacity` | how many runs a level takes; how large buckets become, and how many |
//! | `space`, `ledger` | how much is garbage, of a bucket and of all; when it is too much |
//! | `aging` | when garbage is too old |
//! | `idleness`, `gentle` | when there is leisure; how jobs at leisure give way to readers |
//! | `log_length` | when the log is too long; which MemTables are logged again |
//! | `throttle` | how much writers are slowed |
//! | `shape`, `reads`, `demand` | what is known of a bucket: its tables, its reads, who waits |
//!
//! # Invariants
//! - P0: nothing here knows the engine, a bucket or a table, takes a lock of theirs, or looks at a
//!   clock for a decision; what `throttle` and `gentle` wait for they are given.

pub(super) mod aging;
#[cfg(test)]
mod bound_tests;
pub(super) mod capacity;
pub(super) mod demand;
pub(super) mod due;
pub(super) mod gentle;
pub(super) mod idleness;
pub(super) mod ledger;
pub(super) mod log_length;
pub(super) mod priority;
pub(super) mod reads;
pub(super) mod shape;
pub(super) mod space;
pub(super) mod throttle;
pub(super) mod width;
