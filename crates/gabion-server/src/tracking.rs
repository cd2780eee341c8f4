//! Client-side caching: `CLIENT TRACKING` sends invalidations for changed keys.
//!
//! # Idea
//! A *follower* is a client that tracks keys. For one that tracks what it reads, each key is put
//! into a table *before* it is read, and whoever changes the key takes it out and tells the
//! followers, after the commit. For one that broadcasts, prefixes are kept instead, and every key
//! that begins like one of them is told.
//!
//! # Invariants
//! - I1. A follower that has read a value is told when it changes. The key was in the table before
//!   the read, so either the read has seen the change, or the change finds the key. Tracking
//!   begins behind the gate, so no command that is about to change a key overlooks it.
//! - I2. As long as nobody tracks, the table is empty, and a command costs a look at a number.
//! - I3. There are at most `tracking-table-max-keys` keys in the table. The oldest makes room, and
//!   its followers are told as if it had changed.
//! - I4. A message to the client that has changed the key comes behind the reply.
//!
//! Keys of all databases are one: a follower may be told more than it needs.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::clients::{Client, Clients};
use crate::resp::reply::ReplyBuffer;

/// The channel by which clients of RESP2 are told.
const CHANNEL: &str = "__redis__:invalidate";

/// Which of the keys that a client reads are tracked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum TrackingMode {
    /// All that it reads.
    #[default]
    All,
    /// Those that the command after `CLIENT CACHING YES` reads.
    In,
    /// All but those that the command after `CLIENT CACHING NO` reads.
    Out,
}

/// The tracking settings of a client.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClientTracking {
    /// Whether it is told of all keys with its prefixes, whatever it reads.
    pub(crate) broadcasts: bool,
    /// Which keys it is told of.
    pub(crate) choice: TrackingMode,
    /// Whether its next command is the one that `CLIENT CACHING` is about.
    pub(crate) is_marked: bool,
    /// Whether it is not told of its own changes.
    pub(crate) skips_own: bool,
    /// The client that is told in its place.
    pub(crate) redirect: Option<u64>,
    /// Whether that one is no longer there.
    pub(crate) is_broken: bool,
    /// What keys begin with.
    pub(crate) prefixes: BTreeSet<Vec<u8>>,
}

impl ClientTracking {
    /// Whether what is read now is put into the table.
    pub(crate) fn remembers(&self) -> bool {
        !self.broadcasts
            && match self.choice {
                TrackingMode::All => true,
                TrackingMode::In => self.is_marked,
                TrackingMode::Out => !self.is_marked,
            }
    }
}

/// The client that is told in the place of one: its number, 0 if that is itself, -1 if it does not
/// track.
pub(crate) fn redirect_of(follows: Option<&ClientTracking>) -> i64 {
    match follows {
        None => -1,
        Some(follows) => i64::try_from(follows.redirect.unwrap_or(0)).unwrap_or(i64::MAX),
    }
}

/// A key of the table.
#[derive(Debug)]
struct Known {
    age: u64,
    followers: BTreeSet<u64>,
}

#[derive(Debug, Default)]
struct State {
    followers: BTreeMap<u64, Arc<Client>>,
    keys: HashMap<Arc<[u8]>, Known>,
    by_age: BTreeMap<u64, Arc<[u8]>>,
    next_age: u64,
    /// Followers by the prefixes of those that broadcast.
    prefixes: BTreeMap<Vec<u8>, BTreeSet<u64>>,
}

/// All tracking clients, and the keys that they track.
#[derive(Debug, Default)]
pub(crate) struct Tracking {
    count: AtomicUsize,
    state: Mutex<State>,
}

/// Sizes of the tracking tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TrackingSizes {
    /// Clients.
    pub(crate) followers: usize,
    /// Keys in the table.
    pub(crate) keys: usize,
    /// Followers of all these keys together.
    pub(crate) items: usize,
    /// Prefixes.
    pub(crate) prefixes: usize,
}

impl Tracking {
    /// Whether anybody tracks.
    pub(crate) fn is_used(&self) -> bool {
        // ORDER: Relaxed; it changes from 0 behind the gate, in front of which who asks is.
        self.count.load(Ordering::Relaxed) > 0
    }

    /// A client tracks from now on, or tracks in another way. Behind the gate.
    pub(crate) fn join(&self, client: &Arc<Client>, follows: ClientTracking) {
        let mut state = self.state.lock();
        for prefix in &follows.prefixes {
            let followers = state.prefixes.entry(prefix.clone()).or_default();
            followers.insert(client.id);
        }
        *client.follows.lock() = Some(follows);
        state.followers.insert(client.id, Arc::clone(client));
        // ORDER: Relaxed, as in `is_used`.
        self.count.store(state.followers.len(), Ordering::Relaxed);
    }

    /// A client tracks no more. Keys of the table keep its number until they change.
    pub(crate) fn leave(&self, client: &Client) {
        let Some(follows) = client.follows.lock().take() else {
            return;
        };
        let mut state = self.state.lock();
        for prefix in &follows.prefixes {
            if let Some(followers) = state.prefixes.get_mut(prefix) {
                followers.remove(&client.id);
                if followers.is_empty() {
                    state.prefixes.remove(prefix);
                }
            }
        }
        state.followers.remove(&client.id);
        if state.followers.is_empty() {
            state.keys = HashMap::new();
            state.by_age.clear();
        }
        // ORDER: Relaxed, as in `is_used`.
        self.count.store(state.followers.len(), Ordering::Relaxed);
    }

    /// Puts keys into the table that a client is about to read, of which it takes at most `most`;
    /// 0 for any number.
    pub(crate) fn remember<'k>(
        &self,
        clients: &Clients,
        client: u64,
        keys: impl Iterator<Item = &'k [u8]>,
        most: usize,
    ) {
        let mut state = self.state.lock();
        let state = &mut *state;
        for key in keys {
            if let Some(known) = state.keys.get_mut(key) {
                known.followers.insert(client);
                continue;
            }
            let (age, key) = (state.next_age, Arc::<[u8]>::from(key));
            state.next_age += 1;
            state.by_age.insert(age, Arc::clone(&key));
            let followers = BTreeSet::from([client]);
            state.keys.insert(key, Known { age, followers });
        }
        state.limit(clients, most);
    }

    /// Lets the oldest keys go beyond `most`; 0 for any number.
    pub(crate) fn limit(&self, clients: &Clients, most: usize) {
        self.state.lock().limit(clients, most);
    }

    /// Tells of keys that were changed, by a client or by time.
    pub(crate) fn invalidate<'k>(
        &self,
        clients: &Clients,
        keys: impl Iterator<Item = &'k [u8]> + Clone,
        by: Option<u64>,
    ) {
        let mut state = self.state.lock();
        for key in keys.clone() {
            state.forget(clients, key, by);
        }
        let mut told: BTreeSet<&[u8]> = BTreeSet::new();
        for (prefix, followers) in &state.prefixes {
            told.clear();
            told.extend(keys.clone().filter(|key| key.starts_with(prefix)));
            if told.is_empty() {
                continue;
            }
            let told: Vec<&[u8]> = told.iter().copied().collect();
            for id in followers {
                if let Some(client) = state.followers.get(id) {
                    tell(clients, client, Some(&told), by);
                }
            }
        }
    }

    /// Tells that any key may have been changed.
    pub(crate) fn invalidate_all(&self, clients: &Clients) {
        let mut state = self.state.lock();
        state.keys = HashMap::new();
        state.by_age.clear();
        for client in state.followers.values() {
            tell(clients, client, None, None);
        }
    }

    /// Sizes of the tracking tables. Takes time by the keys.
    pub(crate) fn sizes(&self) -> TrackingSizes {
        let state = self.state.lock();
        TrackingSizes {
            followers: state.followers.len(),
            keys: state.keys.len(),
            items: state.keys.values().map(|known| known.followers.len()).sum(),
            prefixes: state.prefixes.len(),
        }
    }
}

impl State {
    fn limit(&mut self, clients: &Clients, most: usize) {
        while most > 0
            && self.keys.len() > most
            && let Some((_, key)) = self.by_age.pop_first()
        {
            self.forget(clients, &key, None);
        }
    }

    /// Takes a key out of the table, and tells its followers.
    fn forget(&mut self, clients: &Clients, key: &[u8], by: Option<u64>) {
        let Some(known) = self.keys.remove(key) else {
            return;
        };
        self.by_age.remove(&known.age);
        for id in known.followers {
            let client = self.followers.get(&id);
            // One that has come back to broadcast has nothing to do with what it read before.
            let follows = |client: &&Arc<Client>| {
                let follows = client.follows.lock();
                follows.as_ref().is_some_and(|follows| !follows.broadcasts)
            };
            if let Some(client) = client.filter(follows) {
                tell(clients, client, Some(&[key]), by);
            }
        }
    }
}

/// Tells a follower, or whom it names, of keys, or that any key may have been changed.
fn tell(clients: &Clients, client: &Arc<Client>, keys: Option<&[&[u8]]>, by: Option<u64>) {
    let mut follows = client.follows.lock();
    let Some(follows) = follows.as_mut() else {
        return;
    };
    if follows.skips_own && by == Some(client.id) {
        return;
    }
    let mut reply = ReplyBuffer::default();
    let Some(redirect) = follows.redirect else {
        if client.speaks_resp3() {
            reply.is_resp3 = true;
            reply.push(2);
            reply.bulk("invalidate");
            write_keys(&mut reply, keys);
            client.send(&reply.out);
        }
        return;
    };
    match clients.find(redirect) {
        Some(target) if target.speaks_resp3() => {
            reply.is_resp3 = true;
            reply.push(2);
            reply.bulk("invalidate");
            write_keys(&mut reply, keys);
            target.send(&reply.out);
        }
        Some(target) if target.engaged.lock().is_subscribed() => {
            reply.array(3);
            reply.bulk("message");
            reply.bulk(CHANNEL);
            write_keys(&mut reply, keys);
            target.send(&reply.out);
        }
        // It would not know what to make of a message.
        Some(_) => {}
        None => {
            follows.is_broken = true;
            if client.speaks_resp3() {
                reply.is_resp3 = true;
                reply.push(2);
                reply.bulk("tracking-redir-broken");
                reply.unsigned(redirect);
                client.send(&reply.out);
            }
        }
    }
}

fn write_keys(reply: &mut ReplyBuffer, keys: Option<&[&[u8]]>) {
    match keys {
        None => reply.null(),
        Some(keys) => {
            reply.array(keys.len());
            for key in keys {
                reply.bulk(key);
            }
        }
    }
}
