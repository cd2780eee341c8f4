//! Connected clients, as other connections see them.
//!
//! A connection's own state is its [`Session`](crate::session::Session). Here is what others may
//! ask for or change: its name, what it does, whether it is to end, and its *outbox*, the messages
//! that others send it. An outbox is bounded: a client that does not read is disconnected, and
//! cannot make the server's memory grow.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::BytesMut;
use parking_lot::{Mutex, RwLock};
use tokio::sync::Notify;

use crate::acl::User;
use crate::tracking::{ClientTracking, redirect_of};

/// The most bytes of messages that wait for a client, as Redis has it for pub/sub.
const OUTBOX_BYTES_MAX: usize = 32 << 20;

/// Milliseconds since 1970.
pub(crate) fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    u64::try_from(now.unwrap_or_default().as_millis()).unwrap_or(u64::MAX)
}

/// The names that a client has set for itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClientInfo {
    /// By `CLIENT SETNAME`.
    pub(crate) name: String,
    /// The name of its library.
    pub(crate) library: String,
    /// The version of its library.
    pub(crate) library_version: String,
}

/// How many subscriptions a client has, and the length of its queue between `MULTI` and `EXEC`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ClientActivity {
    /// Channels.
    pub(crate) channels: usize,
    /// Patterns.
    pub(crate) patterns: usize,
    /// Channels of shards.
    pub(crate) shard_channels: usize,
    /// Whether its command waits for a key.
    pub(crate) is_blocked: bool,
    /// Commands that wait for `EXEC`; `None` outside.
    pub(crate) queued: Option<usize>,
}

impl ClientActivity {
    /// Whether it listens to anything.
    pub(crate) fn is_subscribed(&self) -> bool {
        self.channels + self.patterns + self.shard_channels > 0
    }
}

/// A client.
#[derive(Debug)]
pub(crate) struct Client {
    /// Its number; none is used twice.
    pub(crate) id: u64,
    /// Where it comes from.
    pub(crate) address: String,
    /// Where it has come to.
    pub(crate) local: String,
    /// Whether it came by the socket of this machine.
    pub(crate) is_unix: bool,
    /// When it came, in milliseconds since 1970.
    pub(crate) since_ms: u64,
    /// When it last sent a command.
    pub(crate) active_ms: AtomicU64,
    /// The database that it has selected.
    pub(crate) database: AtomicUsize,
    /// Bytes of requests that had come when its last round of commands began.
    pub(crate) input_bytes: AtomicUsize,
    /// Bytes that could come besides.
    pub(crate) input_room: AtomicUsize,
    /// The command that it sent last.
    pub(crate) command: Mutex<&'static str>,
    /// What it says of itself.
    pub(crate) names: Mutex<ClientInfo>,
    /// How it tracks keys, if it does.
    pub(crate) follows: Mutex<Option<ClientTracking>>,
    /// Which user it is.
    pub(crate) user: Mutex<Arc<User>>,
    /// What it waits for.
    pub(crate) engaged: Mutex<ClientActivity>,
    /// Whether it speaks RESP3.
    pub(crate) is_resp3: AtomicBool,
    is_killed: AtomicBool,
    has_mail: AtomicBool,
    outbox: Mutex<BytesMut>,
    call: Notify,
}

impl Client {
    /// Sends a message that [`Client::is_resp3`] was asked for before.
    pub(crate) fn send(&self, message: &[u8]) {
        let mut outbox = self.outbox.lock();
        if outbox.len() + message.len() > OUTBOX_BYTES_MAX {
            drop(outbox);
            return self.kill();
        }
        outbox.extend_from_slice(message);
        // ORDER: Release, with the Acquire of `take_messages`: who sees the mark finds the message.
        self.has_mail.store(true, Ordering::Release);
        drop(outbox);
        self.call.notify_one();
    }

    /// Whether it speaks RESP3 now.
    pub(crate) fn speaks_resp3(&self) -> bool {
        // ORDER: Relaxed; what is said in the other protocol while it changes is the client's risk.
        self.is_resp3.load(Ordering::Relaxed)
    }

    /// Moves what others have sent behind `out`.
    pub(crate) fn take_messages(&self, out: &mut BytesMut) {
        // ORDER: Acquire, with the Release of `send`.
        if self.has_mail.load(Ordering::Acquire) {
            let mut outbox = self.outbox.lock();
            out.extend_from_slice(&outbox);
            outbox.clear();
            // ORDER: Release, as in `send`; under the same lock.
            self.has_mail.store(false, Ordering::Release);
        }
    }

    /// Disconnects the client, after the command that it is at.
    pub(crate) fn kill(&self) {
        // ORDER: Release, with the Acquire of `is_killed`.
        self.is_killed.store(true, Ordering::Release);
        self.call.notify_one();
    }

    /// Whether the client is to be disconnected.
    pub(crate) fn is_killed(&self) -> bool {
        // ORDER: Acquire, with the Release of `kill`.
        self.is_killed.load(Ordering::Acquire)
    }

    /// Waits until there is mail, or the client is to be disconnected.
    pub(crate) async fn called(&self) {
        self.call.notified().await;
    }

    /// The client's line of `CLIENT LIST`, without a newline.
    pub(crate) fn line(&self) -> String {
        let now = now_ms();
        // ORDER: Relaxed throughout; what a list shows is of no moment in particular.
        let active = self.active_ms.load(Ordering::Relaxed);
        let names = self.names.lock().clone();
        let engaged = *self.engaged.lock();
        let mut flags = String::new();
        if engaged.is_subscribed() {
            flags.push('P');
        }
        if engaged.queued.is_some() {
            flags.push('x');
        }
        if engaged.is_blocked {
            flags.push('b');
        }
        let follows = self.follows.lock().clone();
        if let Some(follows) = &follows {
            flags.push('t');
            flags.extend(follows.is_broken.then_some('R'));
            flags.extend(follows.broadcasts.then_some('B'));
        }
        if self.is_unix {
            flags.push('U');
        }
        if flags.is_empty() {
            flags.push('N');
        }
        let queued = engaged
            .queued
            .map_or("-1".to_owned(), |queued| queued.to_string());
        // ORDER: Relaxed (all), as above.
        let (waiting, room) = (
            self.input_bytes.load(Ordering::Relaxed),
            self.input_room.load(Ordering::Relaxed),
        );
        let (database, is_resp3) = (
            self.database.load(Ordering::Relaxed),
            self.is_resp3.load(Ordering::Relaxed),
        );
        format!(
            "id={} addr={} laddr={} fd=-1 name={} age={} idle={} flags={flags} db={database} \
             sub={} psub={} ssub={} multi={queued} qbuf={} qbuf-free={} argv-mem=0 multi-mem=0 \
             rbs=0 rbp=0 obl=0 oll=0 omem={} tot-mem=0 events=r cmd={} user={} redir={} \
             resp={} lib-name={} lib-ver={}",
            self.id,
            self.address,
            self.local,
            names.name,
            now.saturating_sub(self.since_ms) / 1000,
            now.saturating_sub(active) / 1000,
            engaged.channels,
            engaged.patterns,
            engaged.shard_channels,
            waiting,
            room,
            self.outbox.lock().len(),
            self.command.lock(),
            self.user.lock().shown(),
            redirect_of(follows.as_ref()),
            if is_resp3 { 3 } else { 2 },
            names.library,
            names.library_version,
        )
    }
}

/// All clients, by their numbers.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    by_id: RwLock<BTreeMap<u64, Arc<Client>>>,
    last_id: AtomicU64,
}

impl Clients {
    /// A client has come.
    pub(crate) fn add(
        &self,
        address: String,
        local: String,
        is_unix: bool,
        user: Arc<User>,
    ) -> Arc<Client> {
        // ORDER: Relaxed; the number only has to differ.
        let id = self.last_id.fetch_add(1, Ordering::Relaxed) + 1;
        let client = Arc::new(Client {
            id,
            address,
            local,
            is_unix,
            since_ms: now_ms(),
            active_ms: AtomicU64::new(now_ms()),
            database: AtomicUsize::new(0),
            input_bytes: AtomicUsize::new(0),
            input_room: AtomicUsize::new(0),
            command: Mutex::new("NULL"),
            names: Mutex::default(),
            follows: Mutex::default(),
            user: Mutex::new(user),
            engaged: Mutex::default(),
            is_resp3: AtomicBool::new(false),
            is_killed: AtomicBool::new(false),
            has_mail: AtomicBool::new(false),
            outbox: Mutex::default(),
            call: Notify::new(),
        });
        self.by_id.write().insert(id, Arc::clone(&client));
        client
    }

    /// A client has gone.
    pub(crate) fn remove(&self, id: u64) {
        self.by_id.write().remove(&id);
    }

    /// One that is there and stays.
    pub(crate) fn find(&self, id: u64) -> Option<Arc<Client>> {
        let by_id = self.by_id.read();
        by_id.get(&id).filter(|client| !client.is_killed()).cloned()
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.by_id.read().len()
    }

    /// How many have come since the start.
    pub(crate) fn count_ever(&self) -> u64 {
        // ORDER: Relaxed, as in `add`.
        self.last_id.load(Ordering::Relaxed)
    }

    /// All that there are and that stay, the oldest first.
    pub(crate) fn all(&self) -> Vec<Arc<Client>> {
        let by_id = self.by_id.read();
        let stay = by_id.values().filter(|client| !client.is_killed());
        stay.cloned().collect()
    }
}
