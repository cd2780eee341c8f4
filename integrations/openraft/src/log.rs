//! The log of a node and its vote.
//!
//! # Layout
//! | keyspace | key | value |
//! |---|---|---|
//! | `raft.log` | index of the entry, eight bytes, most significant first | the entry |
//! | `raft.notes` | `vote` | the last vote |
//! | | `committed` | id of the last entry that is known to be committed |
//! | | `purged` | id of the last entry that was purged |
//!
//! # Durability
//! All writes go to the store's log in the order of the calls, without a sync. Who needs one waits
//! in a queue: a task syncs for all who wait at that moment, and begins again for who came
//! meanwhile.

use std::fmt::Debug;
use std::io;
use std::marker::PhantomData;
use std::ops::RangeBounds;
use std::sync::Arc;

use gabion::{Db, Durability, Keyspace, WriteBatch, key};
use openraft::storage::{LogFlushed, RaftLogStorage};
use openraft::{
    Entry, ErrorSubject, ErrorVerb, LogId, LogState, OptionalSend, RaftLogReader, Vote,
};
use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::{AnyResult, Stored, TypeConfig, decode, encode, told};

const VOTE: &str = "vote";
const COMMITTED: &str = "committed";
const PURGED: &str = "purged";

/// How many bytes of entries a node sends at once, about.
const SENT_BYTES: usize = 4 << 20;

/// The log of a node, and its vote. Clones share it.
pub struct LogStore<C> {
    log: Arc<Log>,
    types: PhantomData<fn() -> C>,
}

impl<C> Clone for LogStore<C> {
    fn clone(&self) -> LogStore<C> {
        LogStore {
            log: Arc::clone(&self.log),
            types: PhantomData,
        }
    }
}

struct Log {
    db: Db,
    entries: Keyspace,
    notes: Keyspace,
    queue: Mutex<Queue>,
}

type Waiter = Box<dyn FnOnce(io::Result<()>) + Send>;

/// Who waits for a sync.
#[derive(Default)]
struct Queue {
    waiters: Vec<Waiter>,
    /// Whether a task is there that syncs until nobody waits.
    is_served: bool,
}

impl Log {
    fn get<T: DeserializeOwned>(&self, note: &str) -> AnyResult<Option<T>> {
        decode(self.notes.get(note)?)
    }

    fn put<T: Serialize>(&self, note: &str, value: &T) -> AnyResult<()> {
        let value = encode(value)?;
        Ok(self.notes.put_with(note, value, Durability::Buffered)?)
    }

    fn write(&self, batch: &WriteBatch) -> AnyResult<()> {
        Ok(self.db.write_with(batch, Durability::Buffered)?)
    }

    /// The entries in a range: all of them, or the first ones up to some bytes as they are stored,
    /// but one at least.
    fn read<E: DeserializeOwned>(
        &self,
        range: &impl RangeBounds<u64>,
        bytes_max: usize,
    ) -> AnyResult<Vec<E>> {
        let key_of = |index: &u64| key::of(index);
        let range = (
            range.start_bound().map(key_of),
            range.end_bound().map(key_of),
        );
        let (mut entries, mut bytes) = (Vec::new(), 0);
        for pair in self.entries.range(range) {
            let (_, entry) = pair?;
            bytes += entry.len();
            if bytes > bytes_max && !entries.is_empty() {
                break;
            }
            entries.extend(decode::<E>(Some(entry))?);
        }
        Ok(entries)
    }

    /// Calls `waiter` when all that was written before this call is synced, or cannot be.
    fn when_synced(self: &Arc<Log>, waiter: impl FnOnce(io::Result<()>) + Send + 'static) {
        let mut queue = self.queue.lock();
        queue.waiters.push(Box::new(waiter));
        if !std::mem::replace(&mut queue.is_served, true) {
            let log = Arc::clone(self);
            tokio::task::spawn_blocking(move || log.serve_queue());
        }
    }

    fn serve_queue(&self) {
        loop {
            let mut queue = self.queue.lock();
            let waiters = std::mem::take(&mut queue.waiters);
            queue.is_served = !waiters.is_empty();
            drop(queue);
            if waiters.is_empty() {
                return;
            }
            let synced = self.db.persist(Durability::Sync);
            for waiter in waiters {
                waiter(synced.clone().map_err(io::Error::other));
            }
        }
    }
}

impl<C: TypeConfig> LogStore<C> {
    pub(crate) fn open(db: &Db) -> AnyResult<LogStore<C>> {
        let log = Log {
            db: db.clone(),
            entries: db.keyspace("raft.log")?,
            notes: db.keyspace("raft.notes")?,
            queue: Mutex::default(),
        };
        Ok(LogStore {
            log: Arc::new(log),
            types: PhantomData,
        })
    }

    fn state(&self) -> AnyResult<LogState<C>> {
        let last_purged_log_id: Option<LogId<C::NodeId>> = self.log.get(PURGED)?;
        let last = self.log.entries.iter().next_back().transpose()?;
        let last: Option<Entry<C>> = decode(last.map(|(_, entry)| entry))?;
        let last_log_id = last.map(|entry| entry.log_id);
        Ok(LogState {
            last_log_id: last_log_id.or_else(|| last_purged_log_id.clone()),
            last_purged_log_id,
        })
    }

    async fn note_vote(&self, vote: &Vote<C::NodeId>) -> AnyResult<()> {
        self.log.put(VOTE, vote)?;
        let (done, synced) = tokio::sync::oneshot::channel();
        // Nobody is there to be told if the node has stopped.
        self.log.when_synced(|result| drop(done.send(result)));
        Ok(synced.await??)
    }

    fn append_entries(&self, entries: impl Iterator<Item = Entry<C>>) -> AnyResult<()> {
        let mut batch = WriteBatch::new();
        for entry in entries {
            let key = key::of(&entry.log_id.index);
            batch.put(&self.log.entries, key, encode(&entry)?)?;
        }
        self.log.write(&batch)
    }

    fn remove_from(&self, first: &LogId<C::NodeId>) -> AnyResult<()> {
        let range = key::of(&first.index)..;
        let removed = self
            .log
            .entries
            .delete_range_with(range, Durability::Buffered);
        Ok(removed?)
    }

    fn remove_up_to(&self, last: &LogId<C::NodeId>) -> AnyResult<()> {
        let mut batch = WriteBatch::new();
        batch.put(&self.log.notes, PURGED, encode(last)?)?;
        batch.delete_range(&self.log.entries, ..=key::of(&last.index))?;
        self.log.write(&batch)
    }
}

impl<C: TypeConfig> RaftLogReader<C> for LogStore<C> {
    async fn try_get_log_entries<R: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: R,
    ) -> Stored<C, Vec<C::Entry>> {
        let entries = self.log.read(&range, usize::MAX);
        told::<C, _>(entries, ErrorVerb::Read, ErrorSubject::Logs)
    }

    async fn limited_get_log_entries(&mut self, start: u64, end: u64) -> Stored<C, Vec<C::Entry>> {
        let entries = self.log.read(&(start..end), SENT_BYTES);
        told::<C, _>(entries, ErrorVerb::Read, ErrorSubject::Logs)
    }
}

impl<C: TypeConfig> RaftLogStorage<C> for LogStore<C> {
    type LogReader = LogStore<C>;

    async fn get_log_state(&mut self) -> Stored<C, LogState<C>> {
        told::<C, _>(self.state(), ErrorVerb::Read, ErrorSubject::Logs)
    }

    async fn get_log_reader(&mut self) -> LogStore<C> {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote<C::NodeId>) -> Stored<C, ()> {
        let noted = self.note_vote(vote).await;
        told::<C, _>(noted, ErrorVerb::Write, ErrorSubject::Vote)
    }

    async fn read_vote(&mut self) -> Stored<C, Option<Vote<C::NodeId>>> {
        told::<C, _>(self.log.get(VOTE), ErrorVerb::Read, ErrorSubject::Vote)
    }

    async fn save_committed(&mut self, committed: Option<LogId<C::NodeId>>) -> Stored<C, ()> {
        let noted = self.log.put(COMMITTED, &committed);
        told::<C, _>(noted, ErrorVerb::Write, ErrorSubject::Store)
    }

    async fn read_committed(&mut self) -> Stored<C, Option<LogId<C::NodeId>>> {
        let committed: AnyResult<Option<Option<_>>> = self.log.get(COMMITTED);
        let committed = committed.map(Option::flatten);
        told::<C, _>(committed, ErrorVerb::Read, ErrorSubject::Store)
    }

    async fn append<I>(&mut self, entries: I, callback: LogFlushed<C>) -> Stored<C, ()>
    where
        I: IntoIterator<Item = C::Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let appended = self.append_entries(entries.into_iter());
        told::<C, _>(appended, ErrorVerb::Write, ErrorSubject::Logs)?;
        self.log
            .when_synced(|synced| callback.log_io_completed(synced));
        Ok(())
    }

    async fn truncate(&mut self, first: LogId<C::NodeId>) -> Stored<C, ()> {
        let removed = self.remove_from(&first);
        told::<C, _>(removed, ErrorVerb::Delete, ErrorSubject::Log(first))
    }

    async fn purge(&mut self, last: LogId<C::NodeId>) -> Stored<C, ()> {
        let removed = self.remove_up_to(&last);
        told::<C, _>(removed, ErrorVerb::Delete, ErrorSubject::Log(last))
    }
}
