//! Channels: subscriptions and messages.

use std::sync::Arc;

use crate::command::{
    Command, CommandGroup, FAST, LOADING, MAY_WRITE, NOSCRIPT, PUBSUB, STALE, command,
};
use crate::commands::{container, help};
use crate::execution::Execution;
use crate::fault::Result;
use crate::pubsub::SubscriptionKind;

const OF_SUBSCRIBERS: u32 = PUBSUB | NOSCRIPT | LOADING | STALE;
const OF_PUBLISHERS: u32 = PUBSUB | LOADING | STALE | FAST;

pub(crate) const COMMANDS: &[Command] = &[
    command("psubscribe", -2, psubscribe)
        .flags(OF_SUBSCRIBERS)
        .about(
            CommandGroup::PubSub,
            "2.0.0",
            "Listens to channels by patterns.",
        ),
    command("publish", 3, publish)
        .flags(MAY_WRITE | OF_PUBLISHERS)
        .about(
            CommandGroup::PubSub,
            "2.0.0",
            "Sends a message to a channel.",
        ),
    command("pubsub", -2, container).with(SUBCOMMANDS).about(
        CommandGroup::PubSub,
        "2.8.0",
        "Shows channels and their subscribers.",
    ),
    command("punsubscribe", -1, punsubscribe)
        .flags(OF_SUBSCRIBERS)
        .about(
            CommandGroup::PubSub,
            "2.0.0",
            "Listens no more by patterns.",
        ),
    command("spublish", 3, spublish)
        .flags(MAY_WRITE | OF_PUBLISHERS)
        .about(
            CommandGroup::PubSub,
            "7.0.0",
            "Sends a message to a channel of a shard.",
        ),
    command("ssubscribe", -2, ssubscribe)
        .flags(OF_SUBSCRIBERS)
        .about(
            CommandGroup::PubSub,
            "7.0.0",
            "Listens to channels of shards.",
        ),
    command("subscribe", -2, subscribe)
        .flags(OF_SUBSCRIBERS)
        .about(CommandGroup::PubSub, "2.0.0", "Listens to channels."),
    command("sunsubscribe", -1, sunsubscribe)
        .flags(OF_SUBSCRIBERS)
        .about(
            CommandGroup::PubSub,
            "7.0.0",
            "Listens no more to channels of shards.",
        ),
    command("unsubscribe", -1, unsubscribe)
        .flags(OF_SUBSCRIBERS)
        .about(
            CommandGroup::PubSub,
            "2.0.0",
            "Listens no more to channels.",
        ),
];

const SUBCOMMANDS: &[Command] = &[
    command("channels", -2, channels)
        .flags(PUBSUB | LOADING | STALE)
        .about(
            CommandGroup::PubSub,
            "2.8.0",
            "Lists channels with listeners.",
        ),
    command("help", 2, show_help).flags(LOADING | STALE).about(
        CommandGroup::PubSub,
        "6.2.0",
        "Lists the subcommands.",
    ),
    command("numpat", 2, numpat)
        .flags(PUBSUB | LOADING | STALE)
        .about(
            CommandGroup::PubSub,
            "2.8.0",
            "Counts patterns with listeners.",
        ),
    command("numsub", -2, numsub)
        .flags(PUBSUB | LOADING | STALE)
        .about(
            CommandGroup::PubSub,
            "2.8.0",
            "Counts the listeners of channels.",
        ),
    command("shardchannels", -2, shardchannels)
        .flags(PUBSUB | LOADING | STALE)
        .about(
            CommandGroup::PubSub,
            "7.0.0",
            "Lists channels of shards with listeners.",
        ),
    command("shardnumsub", -2, shardnumsub)
        .flags(PUBSUB | LOADING | STALE)
        .about(
            CommandGroup::PubSub,
            "7.0.0",
            "Counts the listeners of channels of shards.",
        ),
];

fn subscribe(execution: &mut Execution<'_>) -> Result<()> {
    join(execution, SubscriptionKind::Channel, "subscribe")
}

fn psubscribe(execution: &mut Execution<'_>) -> Result<()> {
    join(execution, SubscriptionKind::Pattern, "psubscribe")
}

fn ssubscribe(execution: &mut Execution<'_>) -> Result<()> {
    join(execution, SubscriptionKind::Shard, "ssubscribe")
}

fn unsubscribe(execution: &mut Execution<'_>) -> Result<()> {
    leave(execution, SubscriptionKind::Channel, "unsubscribe");
    Ok(())
}

fn punsubscribe(execution: &mut Execution<'_>) -> Result<()> {
    leave(execution, SubscriptionKind::Pattern, "punsubscribe");
    Ok(())
}

fn sunsubscribe(execution: &mut Execution<'_>) -> Result<()> {
    leave(execution, SubscriptionKind::Shard, "sunsubscribe");
    Ok(())
}

/// How many subscriptions a reply states: those of shards are counted by themselves.
fn subscriptions(execution: &Execution<'_>, topic: SubscriptionKind) -> usize {
    match topic {
        SubscriptionKind::Channel | SubscriptionKind::Pattern => execution.session.subscriptions(),
        SubscriptionKind::Shard => execution.session.shard_channels.len(),
    }
}

fn join(execution: &mut Execution<'_>, topic: SubscriptionKind, word: &str) -> Result<()> {
    for name in execution.args.from(1).iter() {
        if names(execution, topic).insert(name.to_vec()) {
            let client = Arc::clone(&execution.session.client);
            execution.server.pubsub.add(topic, name, &client);
        }
        confirm(execution, topic, word, Some(name));
    }
    execution.session.show();
    Ok(())
}

fn leave(execution: &mut Execution<'_>, topic: SubscriptionKind, word: &str) {
    let asked: Vec<Vec<u8>> = match execution.args.len() {
        0 | 1 => names(execution, topic).iter().cloned().collect(),
        _ => execution.args.from(1).iter().map(<[u8]>::to_vec).collect(),
    };
    for name in &asked {
        if names(execution, topic).remove(name) {
            let id = execution.session.client.id;
            execution.server.pubsub.remove(topic, name, id);
            // What was sent before comes before the confirmation.
            let client = Arc::clone(&execution.session.client);
            client.take_messages(&mut execution.reply.out);
        }
        confirm(execution, topic, word, Some(name));
    }
    if asked.is_empty() {
        confirm(execution, topic, word, None);
    }
    execution.session.show();
}

/// Ends all subscriptions, without a word.
pub(crate) fn leave_all(execution: &mut Execution<'_>) {
    for topic in [
        SubscriptionKind::Channel,
        SubscriptionKind::Pattern,
        SubscriptionKind::Shard,
    ] {
        let id = execution.session.client.id;
        for name in std::mem::take(names(execution, topic)) {
            execution.server.pubsub.remove(topic, &name, id);
        }
    }
}

fn names<'e>(
    execution: &'e mut Execution<'_>,
    topic: SubscriptionKind,
) -> &'e mut std::collections::BTreeSet<Vec<u8>> {
    match topic {
        SubscriptionKind::Channel => &mut execution.session.channels,
        SubscriptionKind::Pattern => &mut execution.session.patterns,
        SubscriptionKind::Shard => &mut execution.session.shard_channels,
    }
}

fn confirm(
    execution: &mut Execution<'_>,
    topic: SubscriptionKind,
    word: &str,
    name: Option<&[u8]>,
) {
    let count = subscriptions(execution, topic);
    execution.reply.push(3);
    execution.reply.bulk(word);
    execution.reply.bulk_or_null(name);
    execution.reply.count(count);
}

fn publish(execution: &mut Execution<'_>) -> Result<()> {
    let count = execution
        .server
        .pubsub
        .publish(execution.arg(1), execution.arg(2));
    published(execution, count);
    Ok(())
}

fn spublish(execution: &mut Execution<'_>) -> Result<()> {
    let (channel, text) = (execution.arg(1), execution.arg(2));
    let count = execution.server.pubsub.publish_to_shard(channel, text);
    published(execution, count);
    Ok(())
}

/// A client that listens to itself has the message before the reply.
fn published(execution: &mut Execution<'_>, count: usize) {
    if !execution.is_inside && execution.session.is_subscribed() {
        let client = Arc::clone(&execution.session.client);
        client.take_messages(&mut execution.reply.out);
    }
    execution.reply.count(count);
}

fn channels(execution: &mut Execution<'_>) -> Result<()> {
    list(execution, SubscriptionKind::Channel)
}

fn shardchannels(execution: &mut Execution<'_>) -> Result<()> {
    list(execution, SubscriptionKind::Shard)
}

fn list(execution: &mut Execution<'_>, topic: SubscriptionKind) -> Result<()> {
    if execution.args.len() > 3 {
        return Err(execution.wrong_arguments());
    }
    let names = execution.server.pubsub.names(topic, execution.args.get(2));
    execution.reply.array(names.len());
    for name in names {
        execution.reply.bulk(name);
    }
    Ok(())
}

fn numsub(execution: &mut Execution<'_>) -> Result<()> {
    count_listeners(execution, SubscriptionKind::Channel);
    Ok(())
}

fn shardnumsub(execution: &mut Execution<'_>) -> Result<()> {
    count_listeners(execution, SubscriptionKind::Shard);
    Ok(())
}

fn count_listeners(execution: &mut Execution<'_>, topic: SubscriptionKind) {
    let asked = execution.args.from(2);
    execution.reply.array(asked.len() * 2);
    for name in asked.iter() {
        execution.reply.bulk(name);
        execution
            .reply
            .count(execution.server.pubsub.count(topic, name));
    }
}

fn numpat(execution: &mut Execution<'_>) -> Result<()> {
    let count = execution
        .server
        .pubsub
        .count_names(SubscriptionKind::Pattern);
    execution.reply.count(count);
    Ok(())
}

fn show_help(execution: &mut Execution<'_>) -> Result<()> {
    help(
        execution,
        &[
            "PUBSUB <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
            "CHANNELS [<pattern>]",
            "    List channels that somebody listens to, those that match the pattern.",
            "NUMPAT",
            "    Count patterns that somebody listens by.",
            "NUMSUB [<channel> ...]",
            "    Count who listens to the channels.",
            "SHARDCHANNELS [<pattern>]",
            "    The same as CHANNELS, for channels of shards.",
            "SHARDNUMSUB [<channel> ...]",
            "    The same as NUMSUB, for channels of shards.",
        ],
    );
    Ok(())
}
