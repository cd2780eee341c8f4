//! Blocked clients, which wait for an element in one of several keys.
//!
//! # Idea
//! A command that finds nothing registers its client under its keys, while it holds their locks: so
//! no change of them is missed. Whoever changes a key that somebody waits for serves the waiters,
//! once its own command has taken effect and before its next one: it runs the waiter's command
//! anew, in the order in which the clients came, and hands the reply over. A waiter whose command
//! finds nothing again stays where it was.
//!
//! # Invariants
//! - I1. A waiter is `Waiting` until one side ends that, under the waiter's lock: a server of it
//!   with a reply, or its own connection, which has waited long enough or has gone.
//! - I2. Who holds the gate or locks of keys does not wait for a waiter's lock: who serves a waiter
//!   holds that one, and waits for the others.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::BytesMut;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::args::OwnedArgs;
use crate::clients::Client;
use crate::resp::reply::ReplyBuffer;

/// A database as clients select it, and a key.
type DatabaseKey = (usize, Vec<u8>);

/// A command that is blocked.
#[derive(Debug)]
pub(crate) struct BlockedCommand {
    /// The waiter that was registered.
    pub(crate) waiter: Arc<BlockedClient>,
    /// Until when; `None` for ever.
    pub(crate) until: Option<Instant>,
}

/// The reply of a blocked command after its timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimeoutReply {
    /// No array.
    NullArray,
    /// No value.
    Null,
    /// No replica.
    Zero,
    /// So many machines of ours, and no replica.
    Local(i64),
}

impl TimeoutReply {
    /// Writes it.
    pub(crate) fn write(self, reply: &mut ReplyBuffer) {
        match self {
            TimeoutReply::NullArray => reply.null_array(),
            TimeoutReply::Null => reply.null(),
            TimeoutReply::Zero => reply.integer(0),
            TimeoutReply::Local(count) => {
                reply.array(2);
                reply.integer(count);
                reply.integer(0);
            }
        }
    }
}

/// The state of a blocked client.
#[derive(Debug)]
pub(crate) enum BlockedState {
    /// It waits.
    Waiting,
    /// It was served, and this is the reply.
    Served(BytesMut),
    /// It waits no longer.
    Left,
}

/// A blocked client.
#[derive(Debug)]
pub(crate) struct BlockedClient {
    /// Who.
    pub(crate) client: Arc<Client>,
    /// Its command.
    pub(crate) args: OwnedArgs,
    /// The database that it has selected.
    pub(crate) database: usize,
    /// Whether it speaks RESP3.
    pub(crate) is_resp3: bool,
    /// What it is told when it has waited in vain.
    pub(crate) on_timeout: TimeoutReply,
    /// How it stands.
    pub(crate) state: Mutex<BlockedState>,
    /// Called when it was served.
    pub(crate) served: Notify,
    keys: Vec<Vec<u8>>,
}

/// All blocked clients.
#[derive(Debug, Default)]
pub(crate) struct BlockedClients {
    queues: Mutex<HashMap<DatabaseKey, VecDeque<Arc<BlockedClient>>>>,
    count: AtomicUsize,
}

impl BlockedClient {
    /// The reply when it has waited in vain.
    pub(crate) fn in_vain(&self) -> BytesMut {
        let mut reply = ReplyBuffer {
            is_resp3: self.is_resp3,
            ..ReplyBuffer::default()
        };
        self.on_timeout.write(&mut reply);
        reply.out
    }

    /// The reply, once it was served.
    pub(crate) fn take_reply(&self) -> Option<BytesMut> {
        let mut state = self.state.lock();
        match std::mem::replace(&mut *state, BlockedState::Left) {
            BlockedState::Served(reply) => Some(reply),
            other => {
                *state = other;
                None
            }
        }
    }
}

impl BlockedClients {
    /// How many clients wait.
    pub(crate) fn count(&self) -> usize {
        // ORDER: Relaxed; who waits holds its keys' locks, and so does who asks before a change.
        self.count.load(Ordering::Relaxed)
    }

    /// Puts a client behind those who wait for its keys. Under the keys' locks.
    pub(crate) fn join(
        &self,
        client: Arc<Client>,
        args: OwnedArgs,
        (database, is_resp3): (usize, bool),
        (keys, on_timeout): (Vec<Vec<u8>>, TimeoutReply),
    ) -> Arc<BlockedClient> {
        let waiter = Arc::new(BlockedClient {
            client,
            args,
            database,
            is_resp3,
            on_timeout,
            state: Mutex::new(BlockedState::Waiting),
            served: Notify::new(),
            keys,
        });
        let mut queues = self.queues.lock();
        for (index, key) in waiter.keys.iter().enumerate() {
            if !waiter.keys[..index].contains(key) {
                let queue = queues.entry((database, key.clone())).or_default();
                queue.push_back(Arc::clone(&waiter));
            }
        }
        // ORDER: Relaxed, as in `count`.
        self.count.fetch_add(1, Ordering::Relaxed);
        waiter
    }

    /// Ends the wait of a client with a reply; false if it had ended. For who holds no locks.
    pub(crate) fn end(&self, waiter: &Arc<BlockedClient>, reply: BytesMut) -> bool {
        self.end_with(waiter, waiter.state.lock(), reply)
    }

    /// The same for commands; false also if the client is being served.
    pub(crate) fn try_end(&self, waiter: &Arc<BlockedClient>, reply: BytesMut) -> bool {
        let state = waiter.state.try_lock();
        state.is_some_and(|state| self.end_with(waiter, state, reply))
    }

    fn end_with(
        &self,
        waiter: &Arc<BlockedClient>,
        mut state: MutexGuard<'_, BlockedState>,
        reply: BytesMut,
    ) -> bool {
        if !matches!(*state, BlockedState::Waiting) {
            return false;
        }
        *state = BlockedState::Served(reply);
        drop(state);
        self.leave(waiter);
        waiter.served.notify_one();
        true
    }

    /// Takes a client out that waits no longer.
    pub(crate) fn leave(&self, waiter: &Arc<BlockedClient>) {
        let mut queues = self.queues.lock();
        for key in &waiter.keys {
            let place = (waiter.database, key.clone());
            if let Some(queue) = queues.get_mut(&place) {
                queue.retain(|other| !Arc::ptr_eq(other, waiter));
                if queue.is_empty() {
                    queues.remove(&place);
                }
            }
        }
        // ORDER: Relaxed, as in `count`.
        self.count.fetch_sub(1, Ordering::Relaxed);
    }

    /// Those who wait for a key, in the order in which they came.
    pub(crate) fn waiting(&self, database: usize, key: &[u8]) -> Vec<Arc<BlockedClient>> {
        let queues = self.queues.lock();
        let queue = queues.get(&(database, key.to_vec()));
        queue.into_iter().flatten().cloned().collect()
    }

    /// The keys of a database that somebody waits for.
    pub(crate) fn keys_of(&self, database: usize) -> Vec<Vec<u8>> {
        let queues = self.queues.lock();
        let of_it = queues.keys().filter(|(of, _)| *of == database);
        of_it.map(|(_, key)| key.clone()).collect()
    }

    /// The waiter of a client.
    pub(crate) fn of_client(&self, id: u64) -> Option<Arc<BlockedClient>> {
        let queues = self.queues.lock();
        let mut all = queues.values().flatten();
        all.find(|waiter| waiter.client.id == id).cloned()
    }
}
