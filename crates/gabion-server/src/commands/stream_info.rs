//! `XINFO`: information about streams, groups and consumers.

use crate::command::{Command, CommandGroup, READONLY, command, parse_integer};
use crate::commands::stream::{reply_entries, reply_entry};
use crate::commands::{container, help};
use crate::execution::Execution;
use crate::fault::{Fault, Result};
use crate::resp::reply::ReplyBuffer;
use crate::store::stream::{self, Stream, StreamId};

const ABOUT: CommandGroup = CommandGroup::Stream;

pub(crate) const COMMANDS: &[Command] = &[command("xinfo", -2, container).with(SUBCOMMANDS).about(
    ABOUT,
    "5.0.0",
    "Shows streams, groups and consumers.",
)];

const SUBCOMMANDS: &[Command] = &[
    command("consumers", 4, consumers)
        .flags(READONLY)
        .keys(2, 2, 1)
        .about(ABOUT, "5.0.0", "Lists the consumers of a group."),
    command("groups", 3, groups)
        .flags(READONLY)
        .keys(2, 2, 1)
        .about(ABOUT, "5.0.0", "Lists the groups of a stream."),
    command("help", 2, show_help).about(ABOUT, "5.0.0", "Lists the subcommands."),
    command("stream", -3, of_stream)
        .flags(READONLY)
        .keys(2, 2, 1)
        .about(ABOUT, "5.0.0", "Shows a stream."),
];

fn find(execution: &mut Execution<'_>) -> Result<Stream> {
    Stream::find(execution, execution.arg(2))?.ok_or(Fault::NO_SUCH_KEY)
}

fn number(reply: &mut ReplyBuffer, name: &str, number: u64) {
    reply.bulk(name);
    reply.integer(i64::try_from(number).unwrap_or(i64::MAX));
}

fn number_or_null(reply: &mut ReplyBuffer, name: &str, known: Option<u64>) {
    match known {
        Some(known) => number(reply, name, known),
        None => {
            reply.bulk(name);
            reply.null();
        }
    }
}

fn id(reply: &mut ReplyBuffer, name: &str, id: StreamId) {
    reply.bulk(name);
    reply.bulk(id.to_string());
}

fn consumers(execution: &mut Execution<'_>) -> Result<()> {
    let (key, name) = (execution.arg(2), execution.arg(3));
    let stream = find(execution)?;
    if stream.group(execution.work, name)?.is_none() {
        return Err(Fault::new(format!(
            "NOGROUP No such consumer group '{}' for key name '{}'",
            String::from_utf8_lossy(name),
            String::from_utf8_lossy(key)
        )));
    }
    let now_ms = execution.now_ms();
    let consumers = stream.consumers(execution.work, name)?;
    let reply = &mut *execution.reply;
    reply.array(consumers.len());
    for (name, consumer) in consumers {
        reply.map(3);
        reply.bulk("name");
        reply.bulk(name);
        number(reply, "pending", consumer.pending);
        number(reply, "idle", now_ms.saturating_sub(consumer.seen_ms));
    }
    Ok(())
}

fn groups(execution: &mut Execution<'_>) -> Result<()> {
    let stream = find(execution)?;
    let groups = stream.groups(execution.work)?;
    execution.reply.array(groups.len());
    for (name, group) in groups {
        let consumers = stream.consumers(execution.work, &name)?.len();
        let reply = &mut *execution.reply;
        reply.map(6);
        reply.bulk("name");
        reply.bulk(name);
        number(reply, "consumers", consumers as u64);
        number(reply, "pending", group.pending);
        id(reply, "last-delivered-id", group.last);
        number_or_null(reply, "entries-read", group.read);
        number_or_null(reply, "lag", stream.lag(&group));
    }
    Ok(())
}

/// Entries of a node of Redis' streams (`stream-node-max-entries`).
const NODE_ENTRIES: u64 = 100;

/// What is said of a stream in any case. There is no tree; what is said of one is what Redis would
/// have for as many entries.
fn common(reply: &mut ReplyBuffer, stream: &Stream) {
    number(reply, "length", stream.length);
    let nodes = stream.length.div_ceil(NODE_ENTRIES);
    number(reply, "radix-tree-keys", nodes);
    number(reply, "radix-tree-nodes", 1 + nodes);
    id(reply, "last-generated-id", stream.last);
    id(reply, "max-deleted-entry-id", stream.deleted);
    number(reply, "entries-added", stream.added);
    id(reply, "recorded-first-entry-id", stream.first);
}

fn of_stream(execution: &mut Execution<'_>) -> Result<()> {
    let args = execution.args;
    if let Some(word) = args.get(3) {
        let count = match args.len() {
            _ if !word.eq_ignore_ascii_case(b"full") => return Err(Fault::SYNTAX),
            4 => 10,
            6 if args.at(4).eq_ignore_ascii_case(b"count") => parse_integer(args.at(5))?,
            _ => return Err(Fault::SYNTAX),
        };
        let count = match usize::try_from(count) {
            Ok(0) => usize::MAX,
            Ok(count) => count,
            Err(_) => 10,
        };
        return full(execution, count);
    }
    let stream = find(execution)?;
    let groups = stream.groups(execution.work)?.len();
    let all = (StreamId::MIN, StreamId::MAX);
    let first = stream.range(execution.work, all, 1, false)?;
    let last = stream.range(execution.work, all, 1, true)?;
    let reply = &mut *execution.reply;
    reply.map(10);
    common(reply, &stream);
    number(reply, "groups", groups as u64);
    for (name, entries) in [("first-entry", first), ("last-entry", last)] {
        reply.bulk(name);
        match entries.first() {
            Some(entry) => reply_entry(reply, entry.id, Some(&entry.fields)),
            None => reply.null(),
        }
    }
    Ok(())
}

fn full(execution: &mut Execution<'_>, count: usize) -> Result<()> {
    let stream = find(execution)?;
    let entries = stream.range(execution.work, (StreamId::MIN, StreamId::MAX), count, false)?;
    let groups = stream.groups(execution.work)?;
    let reply = &mut *execution.reply;
    reply.map(9);
    common(reply, &stream);
    reply.bulk("entries");
    reply_entries(reply, &entries);
    reply.bulk("groups");
    reply.array(groups.len());
    for (name, group) in &groups {
        full_group(execution, &stream, (name, group), count)?;
    }
    Ok(())
}

fn full_group(
    execution: &mut Execution<'_>,
    stream: &Stream,
    (name, group): (&[u8], &stream::ConsumerGroup),
    count: usize,
) -> Result<()> {
    let all = (StreamId::MIN, StreamId::MAX);
    let pending = stream.pendings(execution.work, name, all, count, |_| true)?;
    let consumers = stream.consumers(execution.work, name)?;
    let reply = &mut *execution.reply;
    let millis = |reply: &mut ReplyBuffer, moment: u64| {
        reply.integer(i64::try_from(moment).unwrap_or(i64::MAX));
    };
    reply.map(7);
    reply.bulk("name");
    reply.bulk(name);
    id(reply, "last-delivered-id", group.last);
    number_or_null(reply, "entries-read", group.read);
    number_or_null(reply, "lag", stream.lag(group));
    number(reply, "pel-count", group.pending);
    reply.bulk("pending");
    reply.array(pending.len());
    for (id, pending) in pending {
        reply.array(4);
        reply.bulk(id.to_string());
        reply.bulk(&pending.consumer);
        millis(reply, pending.delivered_ms);
        millis(reply, pending.deliveries);
    }
    reply.bulk("consumers");
    reply.array(consumers.len());
    for (consumer, state) in consumers {
        let ids = stream.pending_of(execution.work, name, &consumer, all, count)?;
        let mut rows = Vec::new();
        for id in ids {
            if let Some(pending) = stream.pending(execution.work, name, id)? {
                rows.push((id, pending));
            }
        }
        let reply = &mut *execution.reply;
        reply.map(4);
        reply.bulk("name");
        reply.bulk(consumer);
        number(reply, "seen-time", state.seen_ms);
        number(reply, "pel-count", state.pending);
        reply.bulk("pending");
        reply.array(rows.len());
        for (id, pending) in rows {
            reply.array(3);
            reply.bulk(id.to_string());
            millis(reply, pending.delivered_ms);
            millis(reply, pending.deliveries);
        }
    }
    Ok(())
}

fn show_help(execution: &mut Execution<'_>) -> Result<()> {
    help(
        execution,
        &[
            "XINFO <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
            "CONSUMERS <key> <groupname>",
            "    List the consumers of a group.",
            "GROUPS <key>",
            "    List the groups of a stream.",
            "STREAM <key> [FULL [COUNT <count>]",
            "    Show a stream.",
        ],
    );
    Ok(())
}
