//! What comes next: jobs, stalls, and what is done because little is written.
//!
//! # Idea
//! Everything that the engine decides by a rule or a number of its own is decided here, over facts
//! that somebody else has gathered (`background/facts`): numbers of a bucket ([`bucket_shape`]), of
//! the store ([`compaction_picker::StoreFacts`]), of what was read and written ([`idle_detector`]).
//! So a rule is read in one place, and tested without a store.
//!
//! | file | decides |
//! |---|---|
//! | `compaction_picker` | what is due in a bucket: a list of rules |
//! | `job_score` | in which bucket first |
//! | `run_limits`, `capacity` | runs per level; size and number of buckets |
//! | `space`, `bucket_totals` | how much is garbage, of a bucket and of all; when it is too much |
//! | `aging` | when garbage is too old |
//! | `idle_detector`, `cpu_throttle` | leisure, and how jobs at leisure yield to readers |
//! | `log_length` | when the log is too long; which MemTables are logged again |
//! | `write_controller` | how much writers are slowed |
//! | `bucket_shape`, `read_counter`, `manual_mark` | a bucket's tables and reads, who waits |
//! | `bound_tests` | nothing: a model of a store that checks the bound whenever a rule changes |
//!
//! # Invariants
//! - P0: nothing here knows the engine, a bucket or a table, takes a lock of theirs, or looks at a
//!   clock for a decision; what `write_controller` and `cpu_throttle` wait for they are given.

pub(super) mod aging;
#[cfg(test)]
mod bound_tests;
pub(super) mod bucket_shape;
pub(super) mod bucket_totals;
pub(super) mod capacity;
pub(super) mod compaction_picker;
pub(super) mod cpu_throttle;
pub(super) mod idle_detector;
pub(super) mod job_score;
pub(super) mod log_length;
pub(super) mod manual_mark;
pub(super) mod read_counter;
pub(super) mod run_limits;
pub(super) mod space;
pub(super) mod write_controller;
