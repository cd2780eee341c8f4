//! What changes the structure of a store: each job a file, with its journey at its head.
//!
//! # Idea
//! A job does what it is asked for and decides nothing: when it is due, and in which bucket, is a
//! matter of [`super::policy`], or of a user. Its outputs are files that nobody names until one
//! frame of edits exchanges them for its inputs, so that a job which fails, or is cut short, leaves
//! the store as it was.
//!
//! | file | journey |
//! |---|---|
//! | `flush` | a frozen MemTable becomes a table of level 0 |
//! | `compact` | runs of a level become one run of the next |
//! | `manual_compaction` | a user wants a range compacted |
//! | `split` | a full bucket becomes several |
//! | `join` | small neighbours become one bucket |
//! | `ingest` | sorted pairs become tables without log and MemTable |
//! | `drop` | a keyspace goes, with all that it held |
//! | `log_reclaim` | the log's tail moves on, its segments are deleted |
//! | `log_shrink` | an idle store's log gives its space back |
//! | `prewarm` | tables that were just written are made ready for readers |
//! | `version_gc`, `output` | what of merged entries stays, and the table that a job makes of it |

pub(super) mod compact;
mod drop;
mod flush;
pub(super) mod ingest;
mod join;
mod log_reclaim;
mod log_shrink;
mod manual_compaction;
mod output;
pub(super) mod prewarm;
pub(super) mod split;
mod version_gc;
