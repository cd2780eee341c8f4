//! Streams that groups of consumers share.
//!
//! An entry is delivered to one consumer of a group, and waits for its acknowledgement. Reads of
//! these commands see their own writes, since all run on a transaction.

use crate::command::{
    BLOCKING, Command, CommandGroup, DENYOOM, FAST, READONLY, WRITE, command, parse_integer,
};
use crate::commands::stream::{
    BAD_ID, ReadOptions, bound, id, refuse_waiting, reply_entries, reply_entry, reply_stream_key,
    reply_streams,
};
use crate::commands::{container, help};
use crate::events::EventClasses;
use crate::execution::Execution;
use crate::fault::{Fault, Result};
use crate::store::meta::KeyType;
use crate::store::stream::{self, GroupConsumer, PendingEntry, Stream, StreamEntry, StreamId};

const ABOUT: CommandGroup = CommandGroup::Stream;

pub(crate) const COMMANDS: &[Command] = &[
    command("xack", -4, xack)
        .flags(WRITE | FAST)
        .keys(1, 1, 1)
        .about(ABOUT, "5.0.0", "Acknowledges entries."),
    command("xautoclaim", -6, xautoclaim)
        .flags(WRITE | FAST)
        .keys(1, 1, 1)
        .about(
            ABOUT,
            "6.2.0",
            "Gives entries that wait for long to a consumer.",
        ),
    command("xclaim", -6, xclaim)
        .flags(WRITE | FAST)
        .keys(1, 1, 1)
        .about(ABOUT, "5.0.0", "Gives entries to a consumer."),
    command("xgroup", -2, container).with(SUBCOMMANDS).about(
        ABOUT,
        "5.0.0",
        "Creates, changes and removes groups.",
    ),
    command("xpending", -3, xpending)
        .flags(READONLY)
        .keys(1, 1, 1)
        .about(
            ABOUT,
            "5.0.0",
            "Returns entries that wait for an acknowledgement.",
        ),
    command("xreadgroup", -7, xreadgroup)
        .flags(WRITE | BLOCKING)
        .stream_keys()
        .about(ABOUT, "5.0.0", "Returns entries as a consumer of a group."),
];

const SUBCOMMANDS: &[Command] = &[
    command("create", -5, create)
        .flags(WRITE | DENYOOM)
        .keys(2, 2, 1)
        .about(ABOUT, "5.0.0", "Makes a group."),
    command("createconsumer", 5, createconsumer)
        .flags(WRITE | DENYOOM)
        .keys(2, 2, 1)
        .about(ABOUT, "6.2.0", "Makes a consumer."),
    command("delconsumer", 5, delconsumer)
        .flags(WRITE)
        .keys(2, 2, 1)
        .about(ABOUT, "5.0.0", "Removes a consumer."),
    command("destroy", 4, destroy)
        .flags(WRITE)
        .keys(2, 2, 1)
        .about(ABOUT, "5.0.0", "Removes a group."),
    command("help", 2, show_help).about(ABOUT, "5.0.0", "Lists the subcommands."),
    command("setid", -5, setid)
        .flags(WRITE)
        .keys(2, 2, 1)
        .about(ABOUT, "5.0.0", "Sets the last id that a group has read."),
];

fn no_group(name: &[u8], key: &[u8]) -> Fault {
    Fault::new(format!(
        "NOGROUP No such consumer group '{}' for key name '{}'",
        String::from_utf8_lossy(name),
        String::from_utf8_lossy(key)
    ))
}

/// The stream and the group that the second and the third argument name.
fn group_of(execution: &mut Execution<'_>) -> Result<(Stream, stream::ConsumerGroup)> {
    let (key, name) = (execution.arg(2), execution.arg(3));
    let stream = Stream::find(execution, key)?.ok_or(Fault::line(
        "ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want \
         to use the MKSTREAM option to create an empty stream automatically.",
    ))?;
    let group = stream.group(execution.work, name)?;
    Ok((stream, group.ok_or_else(|| no_group(name, key))?))
}

/// The words behind a group's id: whether the stream is made, and what was read.
fn group_options(execution: &Execution<'_>, is_create: bool) -> Result<(bool, Option<u64>)> {
    let args = execution.args;
    let (mut creates, mut read, mut at) = (false, None, 5);
    while let Some(word) = args.get(at) {
        match word.to_ascii_lowercase().as_slice() {
            b"mkstream" if is_create => creates = true,
            b"entriesread" if args.len() > at + 1 => {
                let number = parse_integer(args.at(at + 1))?;
                let bad = Fault::line("ERR value for ENTRIESREAD must be positive or -1");
                read = match number {
                    -1 => None,
                    number => Some(u64::try_from(number).map_err(|_| bad)?),
                };
                at += 1;
            }
            _ => {
                return Err(Fault::new(format!(
                    "ERR unknown subcommand or wrong number of arguments for '{}'. Try XGROUP \
                     HELP.",
                    String::from_utf8_lossy(args.at(1))
                )));
            }
        }
        at += 1;
    }
    Ok((creates, read))
}

fn create(execution: &mut Execution<'_>) -> Result<()> {
    let (key, name, text) = (execution.arg(2), execution.arg(3), execution.arg(4));
    let (creates, read) = group_options(execution, true)?;
    let stream = match Stream::find(execution, key)? {
        Some(stream) => stream,
        None if creates => {
            let stream = Stream::create(execution.work, execution.space())?;
            stream.save(execution, key)?;
            stream
        }
        None => {
            return Err(Fault::line(
                "ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you \
                 may want to use the MKSTREAM option to create an empty stream automatically.",
            ));
        }
    };
    let last = match text {
        b"$" => stream.last,
        text => bound(text, true)?,
    };
    if stream.group(execution.work, name)?.is_some() {
        return Err(Fault::line("BUSYGROUP Consumer Group name already exists"));
    }
    let group = stream::ConsumerGroup {
        last,
        read,
        pending: 0,
    };
    stream.set_group(execution.work, name, group)?;
    changed(execution, key, "xgroup-create");
    execution.reply.ok();
    Ok(())
}

/// Says that elements of a stream have changed.
fn changed(execution: &mut Execution<'_>, key: &[u8], event: &'static str) {
    execution.work.touch(execution.space(), key);
    execution.notify(EventClasses::STREAM, event, key);
}

fn setid(execution: &mut Execution<'_>) -> Result<()> {
    let (key, name, text) = (execution.arg(2), execution.arg(3), execution.arg(4));
    let (_, read) = group_options(execution, false)?;
    let (stream, mut group) = group_of(execution)?;
    group.last = match text {
        b"$" => stream.last,
        text => bound(text, true)?,
    };
    group.read = read;
    stream.set_group(execution.work, name, group)?;
    changed(execution, key, "xgroup-setid");
    execution.reply.ok();
    Ok(())
}

fn destroy(execution: &mut Execution<'_>) -> Result<()> {
    let (key, name) = (execution.arg(2), execution.arg(3));
    let found = match group_of(execution) {
        Err(fault) if fault.text().starts_with("NOGROUP") => None,
        found => Some(found?),
    };
    if let Some((stream, _)) = &found {
        stream.remove_group(execution.work, name)?;
        changed(execution, key, "xgroup-destroy");
    }
    execution.reply.flag(found.is_some());
    Ok(())
}

fn createconsumer(execution: &mut Execution<'_>) -> Result<()> {
    let (key, name, consumer) = (execution.arg(2), execution.arg(3), execution.arg(4));
    let (stream, _) = group_of(execution)?;
    let is_new = seen(execution, &stream, key, name, consumer)?.1;
    execution.reply.flag(is_new);
    Ok(())
}

fn delconsumer(execution: &mut Execution<'_>) -> Result<()> {
    let (key, name, consumer) = (execution.arg(2), execution.arg(3), execution.arg(4));
    let (stream, mut group) = group_of(execution)?;
    let mut pending = 0;
    if stream.consumer(execution.work, name, consumer)?.is_some() {
        pending = stream.remove_consumer(execution.work, name, consumer)?;
        group.pending -= pending;
        stream.set_group(execution.work, name, group)?;
        changed(execution, key, "xgroup-delconsumer");
    }
    execution
        .reply
        .integer(i64::try_from(pending).unwrap_or(i64::MAX));
    Ok(())
}

/// A consumer that asks for something: it is made if it is not there, and true returned.
fn seen(
    execution: &mut Execution<'_>,
    stream: &Stream,
    key: &[u8],
    group: &[u8],
    name: &[u8],
) -> Result<(GroupConsumer, bool)> {
    let found = stream.consumer(execution.work, group, name)?;
    let consumer = GroupConsumer {
        seen_ms: execution.now_ms(),
        ..found.unwrap_or_default()
    };
    stream.set_consumer(execution.work, group, name, consumer)?;
    if found.is_none() {
        changed(execution, key, "xgroup-createconsumer");
    }
    Ok((consumer, found.is_none()))
}

fn xreadgroup(execution: &mut Execution<'_>) -> Result<()> {
    let args = execution.args;
    let options = ReadOptions::parse(args, true)?;
    refuse_waiting(execution, &options)?;
    let (group, consumer) = options.group.unwrap_or_default();
    let mut found = Vec::new();
    let mut streams = Vec::new();
    for (place, id_place) in options.places() {
        let (key, text) = (args.at(place), args.at(id_place));
        let after = match text {
            b">" => None,
            b"$" => {
                return Err(Fault::line(
                    "ERR The $ ID is meaningless in the context of XREADGROUP: you want to read \
                     the history of this consumer by specifying a proper ID, or use the > ID to \
                     get new messages. The $ ID would just return an empty result set.",
                ));
            }
            text => Some(id(text, 0)?),
        };
        if execution.session.is_retry {
            let meta = execution.find(key)?;
            if meta.is_none_or(|meta| meta.head.kind != KeyType::Stream) {
                return Err(Fault::line("UNBLOCKED the stream key no longer exists"));
            }
        }
        let missing = || {
            Fault::new(format!(
                "NOGROUP No such key '{}' or consumer group '{}' in XREADGROUP with GROUP option",
                String::from_utf8_lossy(key),
                String::from_utf8_lossy(group)
            ))
        };
        let stream = Stream::find(execution, key)?.ok_or_else(missing)?;
        let state = stream.group(execution.work, group)?;
        streams.push((key, stream, state.ok_or_else(missing)?, after));
    }
    for (key, stream, state, after) in streams {
        let mut own = seen(execution, &stream, key, group, consumer)?.0;
        match after {
            Some(after) => {
                let from = after.next();
                let ids = match from {
                    Some(from) => stream.pending_of(
                        execution.work,
                        group,
                        consumer,
                        (from, StreamId::MAX),
                        options.count,
                    )?,
                    None => Vec::new(),
                };
                found.push((key, history(execution, &stream, group, &ids)?));
            }
            None => {
                let mut state = state;
                let entries = deliver(
                    execution,
                    &stream,
                    (group, consumer),
                    (&mut state, &mut own),
                    &options,
                )?;
                if !entries.is_empty() {
                    execution.work.touch(execution.space(), key);
                    let entries = entries.into_iter();
                    found.push((key, entries.map(|entry| (entry.id, Some(entry))).collect()));
                }
            }
        }
    }
    if found.is_empty() {
        let is_waiting = options.block_ms.is_some() && !execution.is_inside;
        if !is_waiting {
            execution.reply.null_array();
            return Ok(());
        }
        let keys: Vec<&[u8]> = options.places().map(|(key, _)| args.at(key)).collect();
        let timeout = options.block_ms.filter(|ms| *ms > 0);
        let timeout = timeout.map(std::time::Duration::from_millis);
        let on_timeout = crate::blocking::TimeoutReply::NullArray;
        execution.wait_for(&keys, timeout, on_timeout);
        return Ok(());
    }
    reply_streams(execution.reply, found.len());
    for (key, entries) in found {
        reply_stream_key(execution.reply, key);
        execution.reply.array(entries.len());
        for (id, entry) in entries {
            let fields = entry.as_ref().map(|entry| entry.fields.as_slice());
            reply_entry(execution.reply, id, fields);
        }
    }
    Ok(())
}

type Shown = Vec<(StreamId, Option<StreamEntry>)>;

/// Entries that wait for a consumer, which are delivered once more.
fn history(
    execution: &mut Execution<'_>,
    stream: &Stream,
    group: &[u8],
    ids: &[StreamId],
) -> Result<Shown> {
    let mut shown = Vec::new();
    for id in ids {
        let entry = stream.entry(execution.work, *id)?;
        if entry.is_some()
            && let Some(mut pending) = stream.pending(execution.work, group, *id)?
        {
            pending.delivered_ms = execution.now_ms();
            pending.deliveries += 1;
            stream.set_pending(execution.work, group, *id, &pending)?;
        }
        shown.push((*id, entry));
    }
    Ok(shown)
}

/// New entries of a group for a consumer.
fn deliver(
    execution: &mut Execution<'_>,
    stream: &Stream,
    (group, consumer): (&[u8], &[u8]),
    (state, own): (&mut stream::ConsumerGroup, &mut GroupConsumer),
    options: &ReadOptions<'_>,
) -> Result<Vec<StreamEntry>> {
    let Some(from) = state.last.next() else {
        return Ok(Vec::new());
    };
    let range = (from, StreamId::MAX);
    let entries = stream.range(execution.work, range, options.count, false)?;
    for entry in &entries {
        state.read = match state.read {
            Some(read) if !stream.has_gaps(entry.id) => Some(read + 1),
            _ => stream.added_up_to(entry.id),
        };
        state.last = entry.id;
        if options.needs_none {
            continue;
        }
        // After a step back of the group it may wait for another consumer already.
        if let Some(old) = stream.pending(execution.work, group, entry.id)? {
            release(execution, stream, group, consumer, (&old, own), entry.id)?;
        } else {
            state.pending += 1;
        }
        own.pending += 1;
        let pending = PendingEntry {
            delivered_ms: execution.now_ms(),
            deliveries: 1,
            consumer: consumer.to_vec(),
        };
        stream.set_pending(execution.work, group, entry.id, &pending)?;
    }
    if !entries.is_empty() {
        stream.set_group(execution.work, group, *state)?;
        stream.set_consumer(execution.work, group, consumer, *own)?;
    }
    Ok(entries)
}

/// Takes a pending entry from the consumer that has it; `own` is the one that gets it.
fn release(
    execution: &mut Execution<'_>,
    stream: &Stream,
    group: &[u8],
    consumer: &[u8],
    (old, own): (&PendingEntry, &mut GroupConsumer),
    id: StreamId,
) -> Result<()> {
    stream.forget(execution.work, group, &old.consumer, id)?;
    if old.consumer == consumer {
        own.pending -= 1;
        return Ok(());
    }
    if let Some(mut other) = stream.consumer(execution.work, group, &old.consumer)? {
        other.pending = other.pending.saturating_sub(1);
        stream.set_consumer(execution.work, group, &old.consumer, other)?;
    }
    Ok(())
}

/// Takes a pending entry out of a group.
fn settle(
    execution: &mut Execution<'_>,
    stream: &Stream,
    group: &[u8],
    state: &mut stream::ConsumerGroup,
    (id, pending): (StreamId, &PendingEntry),
) -> Result<()> {
    let mut nobody = GroupConsumer::default();
    // No consumer gets it, so none has this name.
    let none = [pending.consumer.as_slice(), b"-"].concat();
    release(execution, stream, group, &none, (pending, &mut nobody), id)?;
    state.pending = state.pending.saturating_sub(1);
    Ok(())
}

fn xack(execution: &mut Execution<'_>) -> Result<()> {
    let (key, name) = (execution.arg(1), execution.arg(2));
    let mut ids = Vec::new();
    for text in execution.args.from(3).iter() {
        ids.push(id(text, 0)?);
    }
    let mut count = 0;
    if let Some(stream) = Stream::find(execution, key)?
        && let Some(mut group) = stream.group(execution.work, name)?
    {
        for id in ids {
            if let Some(pending) = stream.pending(execution.work, name, id)? {
                settle(execution, &stream, name, &mut group, (id, &pending))?;
                count += 1;
            }
        }
        if count > 0 {
            stream.set_group(execution.work, name, group)?;
            execution.work.touch(execution.space(), key);
        }
    }
    execution.reply.integer(count);
    Ok(())
}

/// The stream and the group of a command with both in front.
fn required(execution: &mut Execution<'_>) -> Result<(Stream, stream::ConsumerGroup)> {
    let (key, name) = (execution.arg(1), execution.arg(2));
    let missing = || {
        Fault::new(format!(
            "NOGROUP No such key '{}' or consumer group '{}'",
            String::from_utf8_lossy(key),
            String::from_utf8_lossy(name)
        ))
    };
    let stream = Stream::find(execution, key)?.ok_or_else(missing)?;
    let group = stream.group(execution.work, name)?.ok_or_else(missing)?;
    Ok((stream, group))
}

fn xpending(execution: &mut Execution<'_>) -> Result<()> {
    let (args, name) = (execution.args, execution.arg(2));
    if args.len() == 3 {
        return pending_summary(execution);
    }
    let mut at = 3;
    let mut idle_ms = 0;
    if args.at(at).eq_ignore_ascii_case(b"idle") {
        if args.len() < 8 {
            return Err(Fault::SYNTAX);
        }
        idle_ms = u64::try_from(parse_integer(args.at(at + 1))?).unwrap_or_default();
        at += 2;
    }
    if !(at + 3..=at + 4).contains(&args.len()) {
        return Err(Fault::SYNTAX);
    }
    let count = parse_integer(args.at(at + 2))?.max(0);
    let range = (bound(args.at(at), true)?, bound(args.at(at + 1), false)?);
    let wanted = args.get(at + 3);
    let now_ms = execution.now_ms();
    let (stream, _) = required(execution)?;
    let takes = |pending: &PendingEntry| {
        let idle = now_ms.saturating_sub(pending.delivered_ms);
        idle >= idle_ms && wanted.is_none_or(|wanted| wanted == pending.consumer)
    };
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    let found = stream.pendings(execution.work, name, range, count, takes)?;
    execution.reply.array(found.len());
    for (id, pending) in found {
        execution.reply.array(4);
        execution.reply.bulk(id.to_string());
        execution.reply.bulk(&pending.consumer);
        reply_number(execution, now_ms.saturating_sub(pending.delivered_ms));
        reply_number(execution, pending.deliveries);
    }
    Ok(())
}

fn reply_number(execution: &mut Execution<'_>, number: u64) {
    execution
        .reply
        .integer(i64::try_from(number).unwrap_or(i64::MAX));
}

fn pending_summary(execution: &mut Execution<'_>) -> Result<()> {
    let name = execution.arg(2);
    let (stream, group) = required(execution)?;
    execution.reply.array(4);
    reply_number(execution, group.pending);
    let Some((first, last)) = stream.pending_ends(execution.work, name)? else {
        execution.reply.null();
        execution.reply.null();
        execution.reply.null_array();
        return Ok(());
    };
    execution.reply.bulk(first.to_string());
    execution.reply.bulk(last.to_string());
    let mut consumers = stream.consumers(execution.work, name)?;
    consumers.retain(|(_, consumer)| consumer.pending > 0);
    execution.reply.array(consumers.len());
    for (name, consumer) in consumers {
        execution.reply.array(2);
        execution.reply.bulk(name);
        execution.reply.bulk(consumer.pending.to_string());
    }
    Ok(())
}

/// The options of `XCLAIM`.
#[derive(Debug, Default)]
struct Claim {
    delivered_ms: Option<u64>,
    deliveries: Option<u64>,
    forces: bool,
    just_ids: bool,
    last: Option<StreamId>,
}

/// The ids of `XCLAIM` and its options.
fn claim_options(execution: &Execution<'_>) -> Result<(Vec<StreamId>, Claim)> {
    let (args, now_ms) = (execution.args, execution.now_ms());
    let mut ids = Vec::new();
    let mut at = 5;
    while let Some(id) = args.get(at).and_then(|text| StreamId::parse(text, 0)) {
        ids.push(id);
        at += 1;
    }
    if ids.is_empty() {
        return Err(BAD_ID);
    }
    let mut claim = Claim::default();
    while let Some(word) = args.get(at) {
        let value = args.get(at + 1);
        let number = |what: &str| -> Result<i64> {
            let bad = |_| Fault::new(format!("ERR Invalid {what} option argument for XCLAIM"));
            parse_integer(value.ok_or(Fault::SYNTAX)?).map_err(bad)
        };
        at += match word.to_ascii_lowercase().as_slice() {
            b"force" => {
                claim.forces = true;
                1
            }
            b"justid" => {
                claim.just_ids = true;
                1
            }
            b"idle" if value.is_some() => {
                let idle = number("IDLE")?;
                let delivered = i64::try_from(now_ms)
                    .unwrap_or(i64::MAX)
                    .saturating_sub(idle);
                claim.delivered_ms = Some(u64::try_from(delivered).unwrap_or(now_ms).min(now_ms));
                2
            }
            b"time" if value.is_some() => {
                let delivered = number("TIME")?;
                claim.delivered_ms = Some(u64::try_from(delivered).unwrap_or(now_ms).min(now_ms));
                2
            }
            b"retrycount" if value.is_some() => {
                let count = number("RETRYCOUNT")?;
                claim.deliveries = Some(u64::try_from(count).unwrap_or_default());
                2
            }
            b"lastid" if value.is_some() => {
                claim.last = Some(id(value.unwrap_or_default(), 0)?);
                2
            }
            _ => {
                return Err(Fault::new(format!(
                    "ERR Unrecognized XCLAIM option '{}'",
                    String::from_utf8_lossy(word)
                )));
            }
        };
    }
    Ok((ids, claim))
}

fn xclaim(execution: &mut Execution<'_>) -> Result<()> {
    let (key, name, consumer) = (execution.arg(1), execution.arg(2), execution.arg(3));
    let idle_ms = parse_integer(execution.arg(4))
        .map_err(|_| Fault::line("ERR Invalid min-idle-time argument for XCLAIM"))?;
    let idle_ms = u64::try_from(idle_ms).unwrap_or_default();
    let (stream, mut group) = required(execution)?;
    let (ids, claim) = claim_options(execution)?;
    let now_ms = execution.now_ms();
    if let Some(last) = claim.last.filter(|last| *last > group.last) {
        group.last = last;
    }
    let mut own = seen(execution, &stream, key, name, consumer)?.0;
    let mut claimed = Vec::new();
    for id in ids {
        let old = stream.pending(execution.work, name, id)?;
        let Some(entry) = stream.entry(execution.work, id)? else {
            // What is deleted waits for nobody.
            if let Some(old) = old {
                stream.set_consumer(execution.work, name, consumer, own)?;
                settle(execution, &stream, name, &mut group, (id, &old))?;
                own = stream
                    .consumer(execution.work, name, consumer)?
                    .unwrap_or_default();
            }
            continue;
        };
        let old = match old {
            Some(old) if now_ms.saturating_sub(old.delivered_ms) < idle_ms => continue,
            Some(old) => {
                release(execution, &stream, name, consumer, (&old, &mut own), id)?;
                old
            }
            None if claim.forces => {
                group.pending += 1;
                PendingEntry {
                    delivered_ms: now_ms,
                    deliveries: 0,
                    consumer: Vec::new(),
                }
            }
            None => continue,
        };
        own.pending += 1;
        let pending = PendingEntry {
            delivered_ms: claim.delivered_ms.unwrap_or(now_ms),
            deliveries: match claim.deliveries {
                Some(count) => count,
                None => old.deliveries + u64::from(!claim.just_ids),
            },
            consumer: consumer.to_vec(),
        };
        stream.set_pending(execution.work, name, id, &pending)?;
        claimed.push(entry);
    }
    stream.set_group(execution.work, name, group)?;
    stream.set_consumer(execution.work, name, consumer, own)?;
    execution.work.touch(execution.space(), key);
    reply_claimed(execution, &claimed, claim.just_ids);
    Ok(())
}

fn reply_claimed(execution: &mut Execution<'_>, claimed: &[StreamEntry], just_ids: bool) {
    if !just_ids {
        return reply_entries(execution.reply, claimed);
    }
    execution.reply.array(claimed.len());
    for entry in claimed {
        execution.reply.bulk(entry.id.to_string());
    }
}

fn xautoclaim(execution: &mut Execution<'_>) -> Result<()> {
    let (key, name, consumer) = (execution.arg(1), execution.arg(2), execution.arg(3));
    let args = execution.args;
    let idle_ms = parse_integer(args.at(4))
        .map_err(|_| Fault::line("ERR Invalid min-idle-time argument for XAUTOCLAIM"))?;
    let idle_ms = u64::try_from(idle_ms).unwrap_or_default();
    let start = bound(args.at(5), true)?;
    let (mut count, mut just_ids, mut at) = (100, false, 6);
    while let Some(word) = args.get(at) {
        match word.to_ascii_lowercase().as_slice() {
            b"count" if args.len() > at + 1 => {
                let number = parse_integer(args.at(at + 1))?;
                let fits = (1..=i64::MAX / 10 / 16).contains(&number);
                if !fits {
                    return Err(Fault::line("ERR COUNT must be > 0"));
                }
                count = usize::try_from(number).unwrap_or(usize::MAX);
                at += 1;
            }
            b"justid" => just_ids = true,
            _ => return Err(Fault::SYNTAX),
        }
        at += 1;
    }
    let (stream, mut group) = required(execution)?;
    let now_ms = execution.now_ms();
    let mut own = seen(execution, &stream, key, name, consumer)?.0;
    // One more than are tried says where to go on.
    let tried = count.saturating_mul(10);
    let range = (start, StreamId::MAX);
    let mut waiting =
        stream.pendings(execution.work, name, range, tried.saturating_add(1), |_| {
            true
        })?;
    let mut next = (waiting.len() > tried)
        .then(|| waiting.pop().map(|(id, _)| id))
        .flatten();
    let (mut claimed, mut deleted) = (Vec::new(), Vec::new());
    let mut left = count;
    for (id, old) in waiting {
        if left == 0 {
            next = Some(id);
            break;
        }
        let Some(entry) = stream.entry(execution.work, id)? else {
            stream.set_consumer(execution.work, name, consumer, own)?;
            settle(execution, &stream, name, &mut group, (id, &old))?;
            own = stream
                .consumer(execution.work, name, consumer)?
                .unwrap_or_default();
            deleted.push(id);
            left -= 1;
            continue;
        };
        if now_ms.saturating_sub(old.delivered_ms) < idle_ms {
            continue;
        }
        release(execution, &stream, name, consumer, (&old, &mut own), id)?;
        own.pending += 1;
        let pending = PendingEntry {
            delivered_ms: now_ms,
            deliveries: old.deliveries + u64::from(!just_ids),
            consumer: consumer.to_vec(),
        };
        stream.set_pending(execution.work, name, id, &pending)?;
        claimed.push(entry);
        left -= 1;
    }
    stream.set_group(execution.work, name, group)?;
    stream.set_consumer(execution.work, name, consumer, own)?;
    execution.work.touch(execution.space(), key);
    execution.reply.array(3);
    execution
        .reply
        .bulk(next.unwrap_or(StreamId::MIN).to_string());
    reply_claimed(execution, &claimed, just_ids);
    execution.reply.array(deleted.len());
    for id in deleted {
        execution.reply.bulk(id.to_string());
    }
    Ok(())
}

fn show_help(execution: &mut Execution<'_>) -> Result<()> {
    help(
        execution,
        &[
            "XGROUP <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
            "CREATE <key> <groupname> <id|$> [option]",
            "    Create a group. Options are:",
            "    * MKSTREAM",
            "      Create the stream if it does not exist.",
            "    * ENTRIESREAD entries_read",
            "      Say how many entries the group has read.",
            "CREATECONSUMER <key> <groupname> <consumer>",
            "    Make a consumer.",
            "DELCONSUMER <key> <groupname> <consumer>",
            "    Remove a consumer.",
            "DESTROY <key> <groupname>",
            "    Remove a group.",
            "SETID <key> <groupname> <id|$> [ENTRIESREAD entries_read]",
            "    Set the last id that a group has read.",
        ],
    );
    Ok(())
}
