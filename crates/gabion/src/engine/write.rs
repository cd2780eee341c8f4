//! A write as it is handed in, and the queue in which writes gather behind a leader.
//!
//! # Idea
//! Whoever finds nobody leading leads: it commits its own write and all that wait behind it as one
//! group, and passes the lead to the next that waits. While a group is committed, the next one
//! gathers: it is committed the moment the leader is done, with whatever waits then, and no timer
//! is involved.
//!
//! # Invariants
//! - Q1. Somebody leads as long as writes wait: the lead is given up only when none does, under the
//!   lock under which they begin to wait.
//! - Q2. A write is ended once: by the leader who took it out of the queue, or by its own thread,
//!   which was taken out to lead.
//!
//! # A leader that panics
//! What it was at is there in part, so the store takes no writes from there on; that is said before
//! anybody else leads. Then those who wait behind it are told, and the lead goes on (Q1, Q2), as
//! nobody else would ever wake them. No code of users runs in a leader but what listens to the
//! store's reports (`tracing`), which may panic like any other.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

use gabion_media::prefetch_bytes;

use super::keyspaces::KeyspaceId;
use super::read_set::ReadSet;
use super::scheduler::message_of;
use crate::expiry::{StoredRecord, UnixMillis, stored};
use crate::log::{BatchEncoder, LogOpHead, SegmentPurpose, batch_head};
use crate::types::{Kind, SEQ_MAX, Seq, hash_key};
use crate::{Error, Result};

/// Bytes of waiting writes that one leader takes at most, so that the first of them does not wait
/// for a gigabyte of others.
const GROUP_BYTES_MAX: usize = 4 << 20;

/// Bytes of a value that are asked for ahead; who reads on is ahead of the memory by then.
const PREFETCH_BYTES_MAX: usize = 256;

/// What becomes of the record of a key.
pub(crate) enum UpdateOutcome {
    /// It stays.
    Not,
    /// This value, where `None` stands for no value. It expires when the record did; where there
    /// was none, at the moment that is given, if one is.
    To(Option<Vec<u8>>, Option<UnixMillis>),
    /// When it expires, if it is there.
    Expires(Option<UnixMillis>),
}

/// What an update makes of the value of a key, if it has one.
pub(crate) type Update<'c> = &'c mut dyn FnMut(Option<&[u8]>) -> UpdateOutcome;

impl UpdateOutcome {
    /// What has to be written: a kind, and what is stored of it.
    pub(crate) fn as_write<'w>(
        &'w self,
        old: Option<&'w StoredRecord>,
    ) -> Option<(Kind, Cow<'w, [u8]>)> {
        let write = |expires: Option<UnixMillis>, value: &'w [u8]| match expires {
            Some(moment) => (Kind::PutExpiring, Cow::Owned(stored(moment, value))),
            None => (Kind::Put, Cow::Borrowed(value)),
        };
        match (self, old) {
            (UpdateOutcome::To(Some(value), new), old) => {
                Some(write(old.map_or(*new, StoredRecord::expires), value))
            }
            (UpdateOutcome::To(None, _), Some(_)) => Some((Kind::Delete, Cow::default())),
            (UpdateOutcome::Expires(expires), Some(old)) if *expires != old.expires() => {
                Some(write(*expires, old.value()))
            }
            (UpdateOutcome::To(None, _) | UpdateOutcome::Expires(_), _)
            | (UpdateOutcome::Not, _) => None,
        }
    }
}

/// One write, with the keyspaces of an engine or of the facade.
pub(crate) enum Write<'w, K> {
    /// A single operation.
    Single {
        keyspace: &'w K,
        kind: Kind,
        key: &'w [u8],
        value: &'w [u8],
    },
    /// Encoded operations.
    Batch(&'w BatchEncoder),
    /// Encoded operations that take effect if nothing of what was read is written since.
    Transaction(&'w BatchEncoder, &'w Arc<ReadSet>),
}

impl<K> Clone for Write<'_, K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K> Copy for Write<'_, K> {}

impl<'w, K> Write<'w, K> {
    /// The same write, with the keyspace that `find` finds in its own.
    #[inline]
    pub(crate) fn with_keyspace<L>(self, find: impl FnOnce(&'w K) -> &'w L) -> Write<'w, L> {
        match self {
            Write::Single {
                keyspace,
                kind,
                key,
                value,
            } => Write::Single {
                keyspace: find(keyspace),
                kind,
                key,
                value,
            },
            Write::Batch(operations) => Write::Batch(operations),
            Write::Transaction(operations, reads) => Write::Transaction(operations, reads),
        }
    }

    /// Asks for the memory of the value of a single write: it comes while the write is admitted.
    #[inline]
    pub(crate) fn prefetch(&self) {
        if let Write::Single { value, .. } = self {
            prefetch_bytes(&value[..value.len().min(PREFETCH_BYTES_MAX)]);
        }
    }

    /// The hash of the key of a single write; 0 for a batch.
    #[inline]
    pub(crate) fn key_hash(&self) -> u64 {
        match self {
            Write::Single { key, .. } => hash_key(key),
            Write::Batch(_) | Write::Transaction(..) => 0,
        }
    }

    /// What of the medium its record in the log may take: deletes make room, sooner or later.
    #[inline]
    pub(crate) fn room_for(&self) -> SegmentPurpose {
        let deletes = match self {
            Write::Single { kind, .. } => kind.is_tombstone(),
            Write::Batch(operations) | Write::Transaction(operations, _) => {
                operations.only_deletes()
            }
        };
        match deletes {
            true => SegmentPurpose::Deletes,
            false => SegmentPurpose::Puts,
        }
    }

    /// Lets a delete pass where it would wait for what the background has no room for: it makes
    /// room itself.
    pub(crate) fn admitted(&self, admitted: Result<()>) -> Result<()> {
        match admitted {
            Err(error) if error.is_no_space() && self.room_for() == SegmentPurpose::Deletes => {
                Ok(())
            }
            admitted => admitted,
        }
    }

    /// Performs the write by `once`; a put that finds no room again, as long as `gain` makes some.
    pub(crate) fn perform(
        &self,
        once: impl Fn() -> Result<()>,
        gain: impl Fn() -> bool,
    ) -> Result<()> {
        while let Err(error) = once() {
            if !error.is_no_space() || self.room_for() == SegmentPurpose::Deletes || !gain() {
                return Err(error);
            }
        }
        Ok(())
    }

    /// Whether what it writes depends on what is there: it has operands to be merged.
    #[inline]
    pub(crate) fn has_operands(&self) -> bool {
        match self {
            Write::Single { kind, .. } => *kind == Kind::Operand,
            Write::Batch(operations) | Write::Transaction(operations, _) => {
                operations.has(Kind::Operand)
            }
        }
    }

    /// Bytes of its operations, about.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Write::Single { key, value, .. } => key.len() + value.len(),
            Write::Batch(operations) | Write::Transaction(operations, _) => {
                operations.bytes().len()
            }
        }
    }

    /// Number of its operations.
    pub(crate) fn count(&self) -> u32 {
        match self {
            Write::Single { .. } => 1,
            Write::Batch(operations) | Write::Transaction(operations, _) => operations.count(),
        }
    }

    /// What must not be written since it was read.
    pub(crate) fn reads(&self) -> Option<&'w Arc<ReadSet>> {
        match self {
            Write::Transaction(_, reads) => Some(reads),
            Write::Single { .. } | Write::Batch(_) => None,
        }
    }
}

impl<K: KeyspaceId> Write<'_, K> {
    /// Hands the parts of the write's record in the log to `append`. `first` is the number of its
    /// first operation.
    pub(crate) fn log<R>(
        &self,
        first: Seq,
        append: impl FnOnce(&[&[u8]]) -> Result<R>,
    ) -> Result<R> {
        let count = self.count();
        if first + u64::from(count) > SEQ_MAX {
            return Err(Error::Limit {
                what: "sequence number",
                size: first,
                limit: SEQ_MAX,
            });
        }
        let head = batch_head(first, count);
        match self {
            Write::Single {
                keyspace,
                kind,
                key,
                value,
            } => {
                let operation = LogOpHead::new(*kind, keyspace.id(), key.len(), value.len());
                append(&[&head, operation.as_bytes(), key, value])
            }
            Write::Batch(operations) | Write::Transaction(operations, _) => {
                append(&[&head, operations.bytes()])
            }
        }
    }

    /// The operations in the log's encoding, owned, for the leader of another thread.
    pub(crate) fn encode(&self) -> BatchEncoder {
        match self {
            Write::Single {
                keyspace,
                kind,
                key,
                value,
            } => {
                let mut operations = BatchEncoder::default();
                operations.op(*kind, keyspace.id(), key, value);
                operations
            }
            Write::Batch(operations) | Write::Transaction(operations, _) => (*operations).clone(),
        }
    }
}

/// The queue of writes.
#[derive(Default)]
pub(crate) struct WriteQueue {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Somebody leads.
    led: bool,
    waiting: VecDeque<Arc<QueuedWrite>>,
}

/// A write that waits for a leader, or for its turn to lead.
pub(crate) struct QueuedWrite {
    operations: BatchEncoder,
    reads: Option<Arc<ReadSet>>,
    sync: bool,
    turn: Mutex<Turn>,
    changed: Condvar,
}

enum Turn {
    Waiting,
    Lead,
    Done(Result<()>),
}

impl QueuedWrite {
    /// The write.
    pub(crate) fn write<K>(&self) -> Write<'_, K> {
        match &self.reads {
            Some(reads) => Write::Transaction(&self.operations, reads),
            None => Write::Batch(&self.operations),
        }
    }

    /// Whether it must survive the loss of power.
    pub(crate) fn wants_sync(&self) -> bool {
        self.sync
    }

    /// Tells its writer how it went.
    pub(crate) fn end(&self, result: Result<()>) {
        self.set(Turn::Done(result));
    }

    /// Tells its writer that the leader has panicked, unless it was told how the write went.
    fn give_up(&self, error: &Error) {
        let mut turn = self.turn.lock();
        if matches!(*turn, Turn::Waiting) {
            *turn = Turn::Done(Err(error.clone()));
            self.changed.notify_one();
        }
    }

    fn set(&self, turn: Turn) {
        *self.turn.lock() = turn;
        self.changed.notify_one();
    }

    /// Waits until the write is done or this thread must lead; `None` means lead.
    fn wait(&self) -> Option<Result<()>> {
        let mut turn = self.turn.lock();
        loop {
            match std::mem::replace(&mut *turn, Turn::Waiting) {
                Turn::Waiting => self.changed.wait(&mut turn),
                Turn::Lead => return None,
                Turn::Done(result) => return Some(result),
            }
        }
    }
}

impl WriteQueue {
    /// Performs a write, by this thread or by another one that leads. `commit` gets a write,
    /// whether it must survive the loss of power, and those that go with it; it ends all of these,
    /// and returns how the first one went. If it panics, `fail` is told, and keeps the store from
    /// taking more writes.
    pub(crate) fn perform<K: KeyspaceId>(
        &self,
        write: Write<'_, K>,
        sync: bool,
        fail: impl FnOnce(&Error),
        commit: impl FnOnce(Write<'_, K>, bool, &[Arc<QueuedWrite>]) -> Result<()>,
    ) -> Result<()> {
        let mut state = self.state.lock();
        if !state.led {
            state.led = true;
            drop(state);
            return self.lead(fail, |group| commit(write, sync, group));
        }
        let waiter = Arc::new(QueuedWrite {
            operations: write.encode(),
            reads: write.reads().cloned(),
            sync,
            turn: Mutex::new(Turn::Waiting),
            changed: Condvar::new(),
        });
        state.waiting.push_back(Arc::clone(&waiter));
        drop(state);
        match waiter.wait() {
            Some(result) => result,
            None => self.lead(fail, |group| commit(waiter.write(), sync, group)),
        }
    }

    /// Leads one group, then passes the lead on.
    fn lead(
        &self,
        fail: impl FnOnce(&Error),
        commit: impl FnOnce(&[Arc<QueuedWrite>]) -> Result<()>,
    ) -> Result<()> {
        let group = self.take_group();
        // Nobody goes on with what a panic leaves: the store fails.
        let committed = catch_unwind(AssertUnwindSafe(|| commit(&group)));
        if let Err(panic) = &committed {
            let what = message_of(&**panic).to_owned();
            let error = Error::Panicked { what };
            // Who listens to that may panic, too; the others must be told all the same.
            drop(catch_unwind(AssertUnwindSafe(|| fail(&error))));
            group.iter().for_each(|waiter| waiter.give_up(&error));
        }
        self.pass_on();
        committed.unwrap_or_else(|panic| resume_unwind(panic))
    }

    /// Lets the next one lead that waits.
    fn pass_on(&self) {
        let mut state = self.state.lock();
        match state.waiting.pop_front() {
            Some(next) => next.set(Turn::Lead),
            None => state.led = false,
        }
    }

    fn take_group(&self) -> Vec<Arc<QueuedWrite>> {
        let mut state = self.state.lock();
        let mut bytes = 0;
        let mut group = Vec::new();
        while let Some(waiter) = state.waiting.front() {
            bytes += waiter.operations.bytes().len();
            if bytes > GROUP_BYTES_MAX && !group.is_empty() {
                break;
            }
            group.extend(state.waiting.pop_front());
        }
        group
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Only;

    impl KeyspaceId for Only {
        fn id(&self) -> u32 {
            0
        }

        fn name(&self) -> &str {
            "only"
        }
    }

    const WRITE: Write<'_, Only> = Write::Single {
        keyspace: &Only,
        kind: Kind::Put,
        key: b"key",
        value: b"value",
    };

    /// How a thread's write ended: none if it has panicked.
    type Outcome = Option<Result<()>>;

    /// Performs a write, by `commit` if this thread leads. Who panics says so first.
    fn perform(
        queue: &WriteQueue,
        failed: &Mutex<Vec<String>>,
        commit: impl FnOnce(&[Arc<QueuedWrite>]) -> Result<()>,
    ) -> Outcome {
        let fail = |error: &Error| {
            failed.lock().push(error.to_string());
            panic!("who listens to the failure");
        };
        let perform = || queue.perform(WRITE, true, fail, |_, _, group| commit(group));
        catch_unwind(AssertUnwindSafe(perform)).ok()
    }

    /// The lead stayed with a leader that panicked: those who waited behind it did so for ever, and
    /// so did all who came later.
    #[test]
    fn a_leader_that_panics_tells_its_group_and_passes_the_lead_on() {
        let (queue, failed) = (WriteQueue::default(), Mutex::default());
        let (queue, failed) = (&queue, &failed);
        let wait_for = |waiting: usize| {
            while queue.state.lock().waiting.len() != waiting {
                std::thread::yield_now();
            }
        };
        let outcomes: Vec<Outcome> = std::thread::scope(|scope| {
            let first = scope.spawn(move || {
                perform(queue, failed, |group| {
                    assert!(group.is_empty());
                    wait_for(4);
                    Ok(())
                })
            });
            while !queue.state.lock().led {
                std::thread::yield_now();
            }
            // One of them leads the others.
            let follower = || {
                perform(queue, failed, |group| {
                    assert_eq!(group.len(), 3);
                    group[0].end(Ok(()));
                    wait_for(1);
                    panic!("in the middle of a group")
                })
            };
            let followers: Vec<_> = (0..4).map(|_| scope.spawn(follower)).collect();
            assert!(matches!(first.join(), Ok(Some(Ok(())))));
            wait_for(0);
            let last = scope.spawn(move || {
                perform(queue, failed, |group| {
                    assert!(group.is_empty());
                    assert_eq!(
                        failed.lock().len(),
                        1,
                        "it is said before anybody else leads"
                    );
                    Ok(())
                })
            });
            let threads = followers.into_iter().chain([last]);
            threads
                .map(|thread| thread.join().expect("caught"))
                .collect()
        });
        assert!(matches!(outcomes[4], Some(Ok(()))), "{outcomes:?}");
        let count = |is_so: fn(&Outcome) -> bool| {
            let four = outcomes[..4].iter();
            four.filter(|outcome| is_so(outcome)).count()
        };
        assert_eq!(count(Option::is_none), 1, "{outcomes:?}");
        assert_eq!(count(|outcome| matches!(outcome, Some(Ok(())))), 1);
        let is_told = |outcome: &Outcome| match outcome {
            Some(Err(error)) => error.to_string().contains("in the middle of a group"),
            _ => false,
        };
        assert_eq!(count(is_told), 2, "{outcomes:?}");
        let state = queue.state.lock();
        assert!(!state.led && state.waiting.is_empty());
    }
}
