//! A replay whose records are applied by several threads.
//!
//! # Idea
//! The calling thread reads the log, checks it, and copies its records into chunks. Other threads
//! take the chunks and apply them side by side, in any order, so that reading, checksums and the
//! waits for memory of many inserts go on at the same time. That is allowed because nobody reads
//! the store at an earlier moment: of each key only the newest version counts, and a MemTable
//! leaves out a version that is older than one it has.
//!
//! Meanwhile one more thread writes anew the segments that only [`ReplayEnd::seal`] would write
//! anew otherwise, as soon as the log is known to go on behind them: the medium works while the
//! processors do.
//!
//! Without threads the calling thread does all of it by itself, one thing after the other.
//!
//! # Invariants
//! - C1: the records of a chunk are of one segment, whole, and in the order of the log.
//! - C2: a chunk with a range delete is applied by the calling thread, after all chunks in front of
//!   it and before all behind it: what a range delete does may depend on what is there already.
//! - C3: the error that is told is the first in the order of the log, whoever met it. Payloads are
//!   checked before they are in a chunk, so that damage is met in that order anyway.
//! - C4: a few chunks of little more than a megabyte are in memory for each thread, whatever the
//!   length of the log. A record that is larger is applied from where it was read, as one with a
//!   range delete.

use std::collections::BTreeMap;

use gabion_media::Disk;
use parking_lot::Mutex;

use super::SealedLog;
use super::batch::{LogOp, decode};
use super::layout::Lsn;
use super::recovery::{
    ReplayEnd, file_bytes, for_each_operation, proven_by_headers, replay_telling, rewrite,
};
use super::work_queue::WorkQueue;
use crate::Result;
use crate::types::{Kind, Seq};

/// Bytes of payloads after which a chunk is full: some thousand small records, so that handing it
/// over does not count, and little enough to stay in a processor's cache.
const CHUNK_BYTES: usize = 256 << 10;

/// A record of more bytes than this is not copied.
const LARGE_RECORD_BYTES: usize = 1 << 20;

/// Full chunks that may wait for each thread.
const CHUNKS_PER_THREAD: usize = 2;

/// Most threads of a replay. Reading and checking takes a fifth of the time of small inserts, so
/// many more than these would wait for the one thread that reads.
const THREADS_MAX: usize = 8;

/// How many threads, besides the calling one, replay the log of a store that has so many background
/// threads: one for each processor. None where the store has none and does all in one order, or
/// where the log is less than a chunk.
pub(crate) fn replay_threads(disk: &Disk, background_threads: usize) -> Result<usize> {
    if background_threads == 0 || file_bytes(disk)? < CHUNK_BYTES as u64 {
        return Ok(0);
    }
    let processors = std::thread::available_parallelism();
    Ok(processors.map_or(1, |processors| processors.get().min(THREADS_MAX)))
}

/// Some records of one segment, in order.
pub(crate) struct Chunk<'p> {
    segment: u64,
    payloads: &'p [u8],
    /// Where each payload ends.
    ends: &'p [usize],
}

/// Records on their way to a chunk.
#[derive(Default)]
pub(crate) struct Gathered {
    segment: u64,
    payloads: Vec<u8>,
    ends: Vec<usize>,
    has_range_delete: bool,
}

impl Chunk<'_> {
    /// The segment that they are in.
    pub(crate) fn segment(&self) -> u64 {
        self.segment
    }

    /// Their operations.
    pub(crate) fn operations(&self) -> impl Iterator<Item = LogOp<'_>> {
        let mut start = 0;
        let payloads = self.ends.iter().map(move |end| {
            let payload = self.payloads.get(start..*end).unwrap_or_default();
            start = *end;
            payload
        });
        // All of it was decoded before it was added.
        let operations = |payload| decode(payload).into_iter().flatten();
        payloads
            .flat_map(operations)
            .map_while(|operation| operation.ok())
    }
}

impl Gathered {
    /// They.
    pub(crate) fn chunk(&self) -> Chunk<'_> {
        Chunk {
            segment: self.segment,
            payloads: &self.payloads,
            ends: &self.ends,
        }
    }

    /// Whether a record of a segment may follow.
    pub(crate) fn takes(&self, segment: u64) -> bool {
        self.segment == segment && self.payloads.len() < CHUNK_BYTES
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    fn add(&mut self, payload: &[u8]) {
        self.payloads.extend_from_slice(payload);
        self.ends.push(self.payloads.len());
    }

    /// Adds a record of a segment, of which all are.
    pub(crate) fn add_of(&mut self, segment: u64, payload: &[u8]) {
        self.segment = segment;
        self.add(payload);
    }

    /// Forgets them and keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.payloads.clear();
        self.ends.clear();
        self.has_range_delete = false;
    }
}

/// An error unless a record at `lsn` is whole and of keyspaces whose numbers are below `keyspaces`;
/// returns the number of its operations, and the largest of their sequence numbers, 0 for none.
pub(crate) fn check_record(
    disk: &Disk,
    keyspaces: u32,
    lsn: Lsn,
    payload: &[u8],
) -> Result<(u64, Seq)> {
    let (mut operations, mut last) = (0, 0);
    for_each_operation(disk, keyspaces, lsn, payload, |operation| {
        operations += 1;
        last = last.max(operation.seq);
        Ok(())
    })?;
    Ok((operations, last))
}

/// Replays a log by so many threads besides the calling one; `worker` makes what each of them, and
/// the calling one, applies chunks with. Returns where the log ended and the largest sequence
/// number in it, 0 for none.
///
/// With no threads nothing is written, and the order of all that is done is that of the log. With
/// threads, segments may have been written anew, as by [`ReplayEnd::seal`], also when this fails.
pub(crate) fn replay_chunks<W>(
    disk: &Disk,
    from: u64,
    sealed: &BTreeMap<u64, u64>,
    keyspaces: u32,
    threads: usize,
    worker: impl Fn() -> W + Sync,
) -> Result<(ReplayEnd, Seq)>
where
    W: FnMut(&Chunk<'_>) -> Result<()>,
{
    let spare = Mutex::new(Vec::new());
    let chunks = WorkQueue::new(threads * CHUNKS_PER_THREAD);
    let unproven = WorkQueue::new(usize::MAX);
    let rewritten = Mutex::new(Vec::new());
    let apply_chunks = || {
        let mut apply = worker();
        chunks.work(|mut chunk: Gathered| {
            apply(&chunk.chunk())?;
            chunk.clear();
            spare.lock().push(chunk);
            Ok(())
        });
    };
    let rewrite_segments = || {
        unproven.work(|log: SealedLog| {
            // DURABLE: the segment with its name. A crash before leaves it as it was.
            match rewrite(disk, log) {
                Ok(()) => rewritten.lock().push(log),
                // Who seals the log tries again.
                Err(error) if error.is_no_space() => {}
                Err(error) => return Err(error),
            }
            Ok(())
        });
    };
    let replayed: Result<_> = std::thread::scope(|scope| {
        let _ends = (chunks.end_on_drop(), unproven.end_on_drop());
        // What cannot be started is done by those that could, or by this thread.
        let mut started = 0;
        for number in 0..threads {
            let thread = std::thread::Builder::new().name(format!("gabion-replay-{number}"));
            started += usize::from(thread.spawn_scoped(scope, apply_chunks).is_ok());
        }
        let thread = std::thread::Builder::new().name("gabion-replay-seal".to_owned());
        let seals = started > 0 && !disk.is_read_only();
        let seals = seals && thread.spawn_scoped(scope, rewrite_segments).is_ok();
        let proven = match seals {
            true => proven_by_headers(disk, from)?,
            false => Lsn::default(),
        };
        let mut filling = Filling {
            chunk: Gathered::default(),
            last_seq: 0,
            spare: &spare,
            chunks: (started > 0).then_some(&chunks),
            apply: worker(),
        };
        let record = |lsn, payload: &[u8]| filling.add(disk, keyspaces, lsn, payload);
        let replayed = replay_telling(disk, from, sealed, record, |log, durable| {
            if seals && log.end() > durable.max(proven) {
                // What the thread fails of is told at the end: damage of the log comes first.
                let _ = unproven.push(log);
            }
            Ok(())
        });
        // What lies in front of an error may have one of its own, and that is the first.
        let replayed = filling.finish().and(replayed);
        if replayed.is_err() {
            unproven.stop();
        }
        Ok((replayed?, filling.last_seq))
    });
    chunks.result()?;
    let (mut end, last_seq) = replayed?;
    unproven.result()?;
    end.note_durable(&rewritten.into_inner());
    Ok((end, last_seq))
}

/// The work of the calling thread.
struct Filling<'r, W> {
    chunk: Gathered,
    last_seq: Seq,
    /// Chunks to be filled again.
    spare: &'r Mutex<Vec<Gathered>>,
    /// Where full chunks go, unless they are applied at once.
    chunks: Option<&'r WorkQueue<Gathered>>,
    apply: W,
}

impl<W: FnMut(&Chunk<'_>) -> Result<()>> Filling<'_, W> {
    /// Adds a record to the chunk, and hands the chunk over before that if it is full. A large
    /// record is applied at once.
    fn add(&mut self, disk: &Disk, keyspaces: u32, lsn: Lsn, payload: &[u8]) -> Result<()> {
        let is_large = payload.len() > LARGE_RECORD_BYTES;
        if is_large || !self.chunk.takes(lsn.segment()) {
            self.hand_over()?;
            self.chunk.segment = lsn.segment();
        }
        let mut has_range_delete = false;
        for_each_operation(disk, keyspaces, lsn, payload, |operation| {
            self.last_seq = self.last_seq.max(operation.seq);
            has_range_delete |= operation.kind == Kind::DeleteRange;
            Ok(())
        })?;
        if is_large {
            self.await_idle()?;
            return (self.apply)(&Chunk {
                segment: lsn.segment(),
                payloads: payload,
                ends: &[payload.len()],
            });
        }
        self.chunk.has_range_delete |= has_range_delete;
        self.chunk.add(payload);
        Ok(())
    }

    /// Gives the chunk to those who apply chunks, and takes an empty one in its place.
    fn hand_over(&mut self) -> Result<()> {
        if self.chunk.is_empty() {
            return Ok(());
        }
        if let Some(chunks) = self.chunks
            && !self.chunk.has_range_delete
        {
            let empty = self.spare.lock().pop().unwrap_or_default();
            return chunks.push(std::mem::replace(&mut self.chunk, empty));
        }
        self.await_idle()?;
        let applied = (self.apply)(&self.chunk.chunk());
        self.chunk.clear();
        applied
    }

    fn await_idle(&self) -> Result<()> {
        self.chunks.map_or(Ok(()), WorkQueue::await_idle)
    }

    fn finish(&mut self) -> Result<()> {
        self.hand_over()?;
        self.await_idle()
    }
}

#[cfg(test)]
mod tests;
