//! Channels, patterns, and their subscribers.
//!
//! A message is encoded once for each protocol, and put into the outbox of each listener. Channels
//! of shards are a space of their own, since a server without a cluster is one shard.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::BytesMut;
use parking_lot::RwLock;

use crate::clients::Client;
use crate::glob;
use crate::resp::reply::ReplyBuffer;

/// The kind of a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SubscriptionKind {
    /// Of one channel.
    Channel,
    /// Of all channels that match a pattern.
    Pattern,
    /// Of one channel of a shard.
    Shard,
}

type Listeners = BTreeMap<u64, Arc<Client>>;

/// The subscribers of all channels and patterns.
#[derive(Debug, Default)]
pub(crate) struct PubSub {
    channels: RwLock<HashMap<Vec<u8>, Listeners>>,
    patterns: RwLock<HashMap<Vec<u8>, Listeners>>,
    shards: RwLock<HashMap<Vec<u8>, Listeners>>,
}

/// A message in both protocols, made when it is needed.
struct Message<'m> {
    parts: &'m [&'m [u8]],
    encoded: [Option<BytesMut>; 2],
}

impl Message<'_> {
    fn send_to(&mut self, client: &Client) {
        // ORDER: Relaxed; a client that changes its protocol has no subscriptions, or asks for it.
        let is_resp3 = client.is_resp3.load(Ordering::Relaxed);
        let parts = self.parts;
        let bytes = self.encoded[usize::from(is_resp3)].get_or_insert_with(|| {
            let mut reply = ReplyBuffer {
                is_resp3,
                ..ReplyBuffer::default()
            };
            reply.push(parts.len());
            for part in parts {
                reply.bulk(part);
            }
            reply.out
        });
        client.send(bytes);
    }
}

impl PubSub {
    fn of(&self, topic: SubscriptionKind) -> &RwLock<HashMap<Vec<u8>, Listeners>> {
        match topic {
            SubscriptionKind::Channel => &self.channels,
            SubscriptionKind::Pattern => &self.patterns,
            SubscriptionKind::Shard => &self.shards,
        }
    }

    /// A client begins to listen.
    pub(crate) fn add(&self, topic: SubscriptionKind, name: &[u8], client: &Arc<Client>) {
        let mut names = self.of(topic).write();
        let listeners = names.entry(name.to_vec()).or_default();
        listeners.insert(client.id, Arc::clone(client));
    }

    /// A client no longer listens.
    pub(crate) fn remove(&self, topic: SubscriptionKind, name: &[u8], client: u64) {
        let mut names = self.of(topic).write();
        if let Some(listeners) = names.get_mut(name) {
            listeners.remove(&client);
            if listeners.is_empty() {
                names.remove(name);
            }
        }
    }

    /// Sends a message to those who listen to the channel; returns how often it was sent.
    pub(crate) fn publish(&self, channel: &[u8], text: &[u8]) -> usize {
        let mut count = 0;
        if let Some(listeners) = self.channels.read().get(channel) {
            let parts = [&b"message"[..], channel, text];
            count += send(&parts, listeners);
        }
        for (pattern, listeners) in self.patterns.read().iter() {
            if glob::matches(pattern, channel) {
                let parts = [&b"pmessage"[..], pattern, channel, text];
                count += send(&parts, listeners);
            }
        }
        count
    }

    /// The same, to those who listen to the channel of a shard.
    pub(crate) fn publish_to_shard(&self, channel: &[u8], text: &[u8]) -> usize {
        match self.shards.read().get(channel) {
            Some(listeners) => send(&[&b"smessage"[..], channel, text], listeners),
            None => 0,
        }
    }

    /// Names that somebody listens to, and that match a pattern.
    pub(crate) fn names(&self, topic: SubscriptionKind, pattern: Option<&[u8]>) -> Vec<Vec<u8>> {
        let fits = |name: &&Vec<u8>| pattern.is_none_or(|pattern| glob::matches(pattern, name));
        self.of(topic).read().keys().filter(fits).cloned().collect()
    }

    /// Those who listen to a name that does not fit.
    pub(crate) fn listeners(
        &self,
        fits: impl Fn(SubscriptionKind, &[u8]) -> bool,
    ) -> Vec<Arc<Client>> {
        let mut found = Vec::new();
        for topic in [
            SubscriptionKind::Channel,
            SubscriptionKind::Pattern,
            SubscriptionKind::Shard,
        ] {
            let names = self.of(topic).read();
            let unfit = names.iter().filter(|(name, _)| !fits(topic, name));
            found.extend(unfit.flat_map(|(_, listeners)| listeners.values().cloned()));
        }
        found
    }

    /// How many listen to a name.
    pub(crate) fn count(&self, topic: SubscriptionKind, name: &[u8]) -> usize {
        self.of(topic).read().get(name).map_or(0, BTreeMap::len)
    }

    /// How many names of a kind somebody listens to.
    pub(crate) fn count_names(&self, topic: SubscriptionKind) -> usize {
        self.of(topic).read().len()
    }
}

fn send(parts: &[&[u8]], listeners: &Listeners) -> usize {
    let mut message = Message {
        parts,
        encoded: [None, None],
    };
    for client in listeners.values() {
        message.send_to(client);
    }
    listeners.len()
}
