//! State that all connections of a server share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use gabion::Durability;
use tokio::sync::Notify;

use crate::acl::AclUsers;
use crate::blocking::BlockedClients;
use crate::calls::CommandStats;
use crate::clients::Clients;
use crate::config::{AppendFsync, Config, Settings};
use crate::cursors::ScanCursors;
use crate::events::EventClasses;
use crate::latency_monitor::LatencyMonitor;
use crate::locks::KeyLocks;
use crate::monitor::Monitor;
use crate::pause::ClientPause;
use crate::pubsub::PubSub;
use crate::resp::reply::{DIGITS_MAX, decimal};
use crate::saves::SaveState;
use crate::script::Scripts;
use crate::store::Store;
use crate::sync::Syncer;
use crate::tracking::Tracking;
use crate::watch::WatchTable;

/// Counts since the start, or since `CONFIG RESETSTAT`.
#[derive(Debug, Default)]
pub(crate) struct ServerStats {
    /// Commands that ran.
    pub(crate) commands: AtomicU64,
    /// Errors that were answered.
    pub(crate) errors: AtomicU64,
    /// Keys that were looked for and found.
    pub(crate) hits: AtomicU64,
    /// Keys that were looked for and not found.
    pub(crate) misses: AtomicU64,
    /// Keys that have expired.
    pub(crate) expired: AtomicU64,
    /// Clients that were refused.
    pub(crate) refused: AtomicU64,
    /// Bytes that came.
    pub(crate) bytes_in: AtomicU64,
    /// Bytes that went.
    pub(crate) bytes_out: AtomicU64,
    /// Changes since the start, never set back.
    pub(crate) changes: AtomicU64,
}

impl ServerStats {
    /// Begins anew.
    pub(crate) fn reset(&self) {
        for count in [
            &self.commands,
            &self.errors,
            &self.hits,
            &self.misses,
            &self.expired,
            &self.refused,
            &self.bytes_in,
            &self.bytes_out,
        ] {
            // ORDER: Relaxed; a count orders nothing.
            count.store(0, Ordering::Relaxed);
        }
    }
}

/// Adds to a count.
pub(crate) fn count(count: &AtomicU64, by: u64) {
    // ORDER: Relaxed; a count orders nothing.
    count.fetch_add(by, Ordering::Relaxed);
}

/// A count.
pub(crate) fn counted(count: &AtomicU64) -> u64 {
    // ORDER: Relaxed; a count orders nothing.
    count.load(Ordering::Relaxed)
}

/// A server.
#[derive(Debug)]
pub(crate) struct Server {
    /// What it was started with.
    pub(crate) config: Config,
    /// What can change.
    pub(crate) settings: Settings,
    /// The data.
    pub(crate) store: Arc<Store>,
    /// Who may touch which key.
    pub(crate) locks: KeyLocks,
    /// Keys that are watched.
    pub(crate) watch: WatchTable,
    /// Who is told of which keys.
    pub(crate) tracking: Tracking,
    /// Who waits for which key.
    pub(crate) blocking: BlockedClients,
    /// Who listens to what.
    pub(crate) pubsub: PubSub,
    /// Scripts and functions.
    pub(crate) scripts: Scripts,
    /// What is noted of commands.
    pub(crate) monitor: Monitor,
    /// Until when clients wait.
    pub(crate) pause: ClientPause,
    /// Who may do what.
    pub(crate) users: AclUsers,
    /// Who is connected.
    pub(crate) clients: Clients,
    /// Places of scans.
    pub(crate) cursors: ScanCursors,
    /// What happened.
    pub(crate) counts: ServerStats,
    /// Calls of commands, and errors by their kinds.
    pub(crate) calls: CommandStats,
    /// What took long, for `LATENCY`.
    pub(crate) spikes: LatencyMonitor,
    /// What `SAVE` and `BGSAVE` did.
    pub(crate) saves: SaveState,
    /// Syncs for `appendfsync always`.
    pub(crate) syncer: Syncer,
    /// When it was started.
    pub(crate) started: Instant,
    /// Its name among all servers that ever ran: forty hexadecimal digits.
    pub(crate) run_id: String,
    /// The port that it listens on.
    pub(crate) port: u16,
    /// How many clients have files.
    pub(crate) clients_room: u64,
    /// Until when the store is taken to hold writers back, in milliseconds since the start.
    pub(crate) slow_until_ms: AtomicU64,
    /// Whether keys are removed when they expire; `DEBUG SET-ACTIVE-EXPIRE` changes it.
    pub(crate) removes_expired: AtomicBool,
    /// Whether a write has failed, and none has succeeded since.
    pub(crate) has_failed_write: AtomicBool,
    /// Whether it is to end.
    pub(crate) is_stopping: AtomicBool,
    /// Wakes those that end the server.
    pub(crate) stop: Notify,
}

impl Server {
    /// Counts an error that is answered.
    pub(crate) fn count_error(&self, text: &str) {
        count(&self.counts.errors, 1);
        self.calls.add_error(text);
    }

    /// The most clients.
    pub(crate) fn clients_max(&self) -> u64 {
        self.settings.clients_max().min(self.clients_room)
    }

    /// Asks the server to end.
    pub(crate) fn stop(&self) {
        self.scripts.running.stop();
        // ORDER: Release, with the Acquire of `is_stopping`.
        self.is_stopping.store(true, Ordering::Release);
        self.stop.notify_one();
    }

    /// Whether the server is to end.
    pub(crate) fn is_stopping(&self) -> bool {
        // ORDER: Acquire, with the Release of `stop`.
        self.is_stopping.load(Ordering::Acquire)
    }

    /// At which durability a command commits: where its reply waits for a sync, the log is written
    /// first and synced for all together.
    pub(crate) fn durability(&self) -> Durability {
        match self.settings.fsync() {
            AppendFsync::EverySecond => Durability::Interval(std::time::Duration::from_secs(1)),
            AppendFsync::Always | AppendFsync::No => Durability::Buffered,
        }
    }

    /// Notes whether a write has succeeded, which `/readyz` tells.
    pub(crate) fn note_write(&self, has_failed: bool) {
        // ORDER: Relaxed (both); a hint, which is written only when it changes.
        if self.has_failed_write.load(Ordering::Relaxed) != has_failed {
            self.has_failed_write.store(has_failed, Ordering::Relaxed);
        }
    }

    /// Publishes that something happened to a key, if anybody may want to know.
    pub(crate) fn publish_event(
        &self,
        class: EventClasses,
        event: &str,
        database: usize,
        key: &[u8],
    ) {
        let events = self.settings.events();
        if !events.has(class) {
            return;
        }
        let mut digits = [0; DIGITS_MAX];
        let database = decimal(i64::try_from(database).unwrap_or_default(), &mut digits);
        if events.has(EventClasses::KEYSPACE) {
            let channel = [b"__keyspace@", database, b"__:", key].concat();
            self.pubsub.publish(&channel, event.as_bytes());
        }
        if events.has(EventClasses::KEYEVENT) {
            let channel = [b"__keyevent@", database, b"__:", event.as_bytes()].concat();
            self.pubsub.publish(&channel, key);
        }
    }

    /// Tells clients that track keys what a command of a client, or time, has changed.
    pub(crate) fn tell_followers(&self, touched: &[(u16, Vec<u8>)], by: Option<u64>) {
        if !touched.is_empty() && self.tracking.is_used() {
            let keys = touched.iter().map(|(_, key)| key.as_slice());
            self.tracking.invalidate(&self.clients, keys, by);
        }
    }

    /// Tells watchers of keys that have changed. Under the locks of the keys.
    pub(crate) fn tell_watchers(&self, touched: &[(u16, Vec<u8>)]) {
        for key in touched {
            self.watch.touch(key);
        }
    }
}
