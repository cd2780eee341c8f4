//! The manifest: which files make up the store.
//!
//! # Idea
//! The state of the store's structure ([`ManifestState`]: keyspaces, buckets and their tables, the
//! log's tail) is a fold over edits. Edits that belong together form a group, which is one frame of
//! an append-only file and so takes effect as a whole. Each open begins a new file with a snapshot
//! of the state, and so does a file that has grown much longer than its snapshot. An open that
//! finds no space for one leaves all files as they are, and the first edit begins it.
//!
//! # Layout
//! `manifest-<number>`: a header, a frame with the snapshot, frames with groups of edits, and after
//! each of these a mark (`layout`, `edit`; frames: `crate::log::frame`). `CURRENT` names the
//! manifest in force and, after a clean close, its exact length (`layout`).
//!
//! # Invariants
//! - I1. A group is durable before the next is written, and before [`Manifest::apply`] returns. So
//!   only the newest group can be torn; the mark behind it, written after the sync, proves that it
//!   was durable, and an invalid frame with a later mark is corruption.
//! - I2. `CURRENT` names a manifest only after that one is durable with its snapshot.
//! - I3. The first manifest and `CURRENT` exist before the first log segment or table. So a
//!   directory with logs or tables and without `CURRENT` has lost it.
//! - I4. A group that does not fit the state is refused before it is written.
//! - I5. A group or a mark that finds no space is cut off before anything else is written: there
//!   was less of it than a valid frame.
//!
//! # Durability point
//! The sync in [`Manifest::apply`]; of a new manifest, the renaming of `CURRENT`.
//!
//! # Recovery
//! The state is what the valid frames say. After a clean close all bytes must be valid; else an
//! invalid frame ends the manifest, unless a later mark proves that it was durable. What a crash
//! leaves of manifests not in force is removed by the next open.
//!
//! # Limits of what can be detected
//! Damage of the newest groups cannot be told from one that a crash has interrupted if it covers
//! the marks behind them, too. An open takes the state before them then, and says so in the trace;
//! a repair reports it. Of what a flush has named the log's first segment is missing then, which is
//! found. An ingest has nothing in the log, so a new manifest is begun before it ends
//! ([`Manifest::renew`]), unless there is no space for one. After a clean close the length in
//! `CURRENT` covers everything.

#[cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used))]
mod edit;
#[cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used))]
mod follow;
#[cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used))]
mod layout;
#[cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used))]
mod recovery;
mod state;
mod writepath;

#[cfg(test)]
mod crash_tests;
#[cfg(test)]
mod tests;

pub(crate) use edit::{FileMeta, TableAge, VersionEdit};
pub(crate) use recovery::{ManifestLookup, check_root, inspect, read, read_damaged};
pub(crate) use state::{BucketRecord, ManifestState, TableSlice};
pub(crate) use writepath::{GROUP_BYTES_MAX, Manifest};
