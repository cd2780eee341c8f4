//! State of a connection between its commands.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use crate::acl::User;
use crate::args::OwnedArgs;
use crate::blocking::BlockedCommand;
use crate::calls::PendingCalls;
use crate::clients::{Client, ClientActivity};
use crate::watch::WatchedKey;

/// A transaction between `MULTI` and `EXEC`.
#[derive(Debug, Default)]
pub(crate) struct MultiState {
    /// Its commands so far, each with its name.
    pub(crate) queue: Vec<OwnedArgs>,
    /// Whether one of them was refused, so that `EXEC` refuses all.
    pub(crate) is_broken: bool,
}

/// The replies that a client wants: `CLIENT REPLY`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ReplyMode {
    /// All.
    #[default]
    All,
    /// None.
    None,
    /// All but that of the command that comes next.
    AllButNext,
    /// All but that of this command.
    AllButThis,
}

/// The state of a connection.
#[derive(Debug)]
pub(crate) struct Session {
    /// What others see of it.
    pub(crate) client: Arc<Client>,
    /// The database that it has selected.
    pub(crate) database: usize,
    /// Which user it is; others see it in [`Client::user`].
    pub(crate) user: Arc<User>,
    /// Whether it has said the password, or needed none when it came.
    pub(crate) is_authenticated: bool,
    /// Whether it tracks keys: then [`Client::follows`] says how.
    pub(crate) tracks: bool,
    /// Its transaction.
    pub(crate) multi: Option<MultiState>,
    /// Keys that it watches.
    pub(crate) watched: Vec<WatchedKey>,
    /// Channels that it listens to.
    pub(crate) channels: BTreeSet<Vec<u8>>,
    /// Patterns of channels.
    pub(crate) patterns: BTreeSet<Vec<u8>>,
    /// Channels of shards.
    pub(crate) shard_channels: BTreeSet<Vec<u8>>,
    /// Which replies it wants.
    pub(crate) wants: ReplyMode,
    /// What its command waits for.
    pub(crate) wait: Option<BlockedCommand>,
    /// Whether its command has waited, and is run anew by who has changed a key.
    pub(crate) is_retry: bool,
    /// Whether such a command has found nothing again.
    pub(crate) still_waits: bool,
    /// When its last command ended, or its turn began.
    pub(crate) began: Instant,
    /// Calls that are not added up yet.
    pub(crate) calling: PendingCalls,
    /// Whether it ends after the reply.
    pub(crate) is_closing: bool,
}

impl Session {
    /// Of a connection that has just come.
    pub(crate) fn new(client: Arc<Client>, is_authenticated: bool) -> Session {
        let user = Arc::clone(&client.user.lock());
        Session {
            client,
            user,
            database: 0,
            is_authenticated,
            tracks: false,
            multi: None,
            watched: Vec::new(),
            channels: BTreeSet::new(),
            patterns: BTreeSet::new(),
            shard_channels: BTreeSet::new(),
            wants: ReplyMode::All,
            wait: None,
            is_retry: false,
            still_waits: false,
            began: Instant::now(),
            calling: PendingCalls::default(),
            is_closing: false,
        }
    }

    /// Becomes a user.
    pub(crate) fn become_user(&mut self, user: Arc<User>, is_authenticated: bool) {
        *self.client.user.lock() = Arc::clone(&user);
        self.user = user;
        self.is_authenticated = is_authenticated;
    }

    /// How many subscriptions there are, of channels and of patterns.
    pub(crate) fn subscriptions(&self) -> usize {
        self.channels.len() + self.patterns.len()
    }

    /// Whether only commands for subscriptions are taken in RESP2.
    pub(crate) fn is_subscribed(&self) -> bool {
        self.subscriptions() + self.shard_channels.len() > 0
    }

    /// Selects a database that is there.
    pub(crate) fn select(&mut self, database: usize) {
        self.database = database;
        // ORDER: Relaxed; a list shows it.
        self.client.database.store(database, Ordering::Relaxed);
    }

    /// Shows others what has changed of subscriptions and transaction.
    pub(crate) fn show(&self) {
        *self.client.engaged.lock() = ClientActivity {
            channels: self.channels.len(),
            patterns: self.patterns.len(),
            shard_channels: self.shard_channels.len(),
            is_blocked: self.wait.is_some(),
            queued: self.multi.as_ref().map(|multi| multi.queue.len()),
        };
    }
}
