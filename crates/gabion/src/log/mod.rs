//! The write-ahead log.
//!
//! # Idea
//! Every write is in the log before it is acknowledged. The log is a sequence of preallocated
//! segments; appending is a checksum and a copy into a mapping, which survives the end of the
//! process without a system call. A sync, by whichever thread, makes what was appended survive
//! the loss of power. When MemTables have been flushed to tables, the segments that held their
//! writes are removed or used again (one log for all buckets, its tail bounded by the oldest write
//! that is not in a table: WipDB, section 2.3.4).
//!
//! # Layout
//! A segment is a header (`layout`) and frames (`frame`); a frame holds a record, whose payload is
//! a batch of writes (`batch`), or a mark, which says up to where the log was durable when it was
//! written. A position ([`Lsn`]) is the number of a segment and an offset in it.
//!
//! # Rooms
//! | file | journey |
//! |---|---|
//! | `writepath`, `segments` | an append; segments come and go |
//! | `sync` | what was appended becomes durable; what other threads do for the writer |
//! | `copy`, `extend` | a log up to a position, in another directory; records behind its end |
//! | `recovery`, `reader` | a replay after a crash: where the log ends, what is torn or corrupt |
//! | `pending` | what was replayed becomes a log that takes appends, now or once there is space |
//! | `chunks`, `work_queue` | its records applied by several threads |
//! | `cursor`, `retention` | reads records while the log is written; keeps segments for that |
//! | `tail` | the log of a store that another process writes |
//! | `layout`, `frame`, `batch`, `codec` | bytes on media |
//!
//! # Invariants
//! - I1. One owner, who appends or lets threads fill reserved places; nothing counts as appended
//!   before everything in front of it is in its place. Frames follow each other without gaps; each
//!   segment's header tells the end of its predecessor. So what a replay reads is a prefix of what
//!   was appended.
//! - I2. A mark, a header's durable position and a sealed length in the manifest are only written
//!   after the sync that makes them true has returned.
//! - I3. The number of a segment is used once, unless its file's name was lost with the power.
//!   Every checksum covers it, so what a file held under another number is never taken for valid.
//! - I4. After a failed write or sync the log takes no more appends: nobody knows what of it is on
//!   the medium. A failed creation of a segment changes nothing.
//!
//! # Durability points
//! Process death: the return of [`Log::append`]. Loss of power: the return of [`LogSyncer::sync`].
//!
//! # Limits of what can be detected
//! Damage of the newest durable bytes cannot be told from a torn write as long as nothing was
//! written behind them: the mark that tells of a sync is carried by the next append. After a clean
//! close the sealed length in the manifest covers everything.

#[cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used))]
mod batch;
#[cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used))]
mod chunks;
#[cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used))]
pub(crate) mod codec;
mod copy;
#[cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used))]
mod cursor;
mod deadline;
mod extend;
#[cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used))]
pub(crate) mod frame;
#[cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used))]
mod layout;
mod pending;
#[cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used))]
mod reader;
#[cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used))]
mod recovery;
mod retention;
mod segments;
mod sync;
#[cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used))]
mod tail;
mod work_queue;
mod writepath;

#[cfg(test)]
mod tests;

pub(crate) use batch::{
    BATCH_HEAD_BYTES, BatchEncoder, KeyspaceEvent, LogEntry, LogOp, LogOpHead, RelogEncoder,
    batch_head,
};
#[cfg(feature = "pm")]
pub(crate) use batch::{LogOps, decode as decode_batch};
pub(crate) use chunks::{Chunk, Gathered, check_record, replay_chunks, replay_threads};
pub(crate) use codec::MalformedPayload;
pub(crate) use copy::copy;
pub(crate) use cursor::{CursorStep, LogCursor, check_kept};
pub(crate) use extend::extend;
pub(crate) use layout::Lsn;
pub(crate) use pending::PendingLog;
#[cfg(test)]
pub(crate) use recovery::replay;
pub(crate) use recovery::{ReplayEnd, refuse_newer, replay_operations};
pub(crate) use segments::SegmentPurpose;
pub(crate) use sync::LogSyncer;
pub(crate) use tail::{LogTail, Tailed};
pub(crate) use writepath::Log;

/// A segment and the length of its valid part in bytes; 0 for a segment that holds nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SealedLog {
    /// Number of the segment.
    pub(crate) segment: u64,
    /// Length in bytes, header included.
    pub(crate) length: u64,
}

impl SealedLog {
    /// A segment that holds nothing.
    pub(crate) fn empty(segment: u64) -> SealedLog {
        SealedLog { segment, length: 0 }
    }

    /// Where the valid part ends.
    fn end(self) -> layout::Lsn {
        layout::Lsn::new(self.segment, self.length)
    }
}

/// How the log is laid out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogOptions {
    /// Largest size of a segment in bytes. Segments begin small and double up to it; a larger
    /// record gets a segment of its size.
    pub(crate) segment_bytes_max: u64,
    /// Bytes of the medium that it takes, until the log has become shorter by it, to flush a byte
    /// of the log.
    pub(crate) flush_cost: u64,
    /// Bytes in segments that are kept for readers alone.
    pub(crate) kept_bytes_max: u64,
}

impl Default for LogOptions {
    /// Segments of 16 MiB: a few of them hold what a store at rest needs, and one lasts a fast
    /// writer a tenth of a second, in which the next one is created within milliseconds.
    fn default() -> LogOptions {
        LogOptions {
            segment_bytes_max: 16 << 20,
            flush_cost: 1,
            kept_bytes_max: u64::MAX,
        }
    }
}

impl LogOptions {
    /// For a log of at most so many bytes: at least 16 segments, so that the tail moves in small
    /// steps.
    pub(crate) fn within(log_bytes_max: u64) -> LogOptions {
        let options = LogOptions::default();
        LogOptions {
            segment_bytes_max: options.segment_bytes_max.min((log_bytes_max / 16).max(1)),
            ..options
        }
    }
}
