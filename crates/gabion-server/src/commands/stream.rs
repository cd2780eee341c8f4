//! Streams: entries. Groups are in `stream_groups.rs`.

use crate::args::Args;
use crate::blocking::TimeoutReply;
use crate::command::{
    BLOCKING, Command, CommandGroup, DENYOOM, DIRECT, FAST, READONLY, WRITE, command, parse_integer,
};
use crate::events::EventClasses;
use crate::execution::Execution;
use crate::fault::{Fault, Result};
use crate::resp::reply::ReplyBuffer;
use crate::store::stream::{Stream, StreamEntry, StreamId};

const ABOUT: CommandGroup = CommandGroup::Stream;

pub(crate) const COMMANDS: &[Command] = &[
    command("xadd", -5, xadd)
        .flags(WRITE | DENYOOM | FAST | DIRECT)
        .keys(1, 1, 1)
        .about(ABOUT, "5.0.0", "Adds an entry to a stream."),
    command("xdel", -3, xdel)
        .flags(WRITE | FAST | DIRECT)
        .keys(1, 1, 1)
        .about(ABOUT, "5.0.0", "Removes entries of a stream."),
    command("xlen", 2, xlen)
        .flags(READONLY | FAST)
        .keys(1, 1, 1)
        .about(ABOUT, "5.0.0", "Counts the entries of a stream."),
    command("xrange", -4, xrange)
        .flags(READONLY)
        .keys(1, 1, 1)
        .about(ABOUT, "5.0.0", "Returns entries from one id to another."),
    command("xread", -4, xread)
        .flags(READONLY | BLOCKING)
        .stream_keys()
        .about(
            ABOUT,
            "5.0.0",
            "Returns entries behind an id, of several streams.",
        ),
    command("xrevrange", -4, xrevrange)
        .flags(READONLY)
        .keys(1, 1, 1)
        .about(
            ABOUT,
            "5.0.0",
            "Returns entries from one id back to another.",
        ),
    command("xsetid", -3, xsetid)
        .flags(WRITE | DENYOOM | FAST | DIRECT)
        .keys(1, 1, 1)
        .about(ABOUT, "5.0.0", "Sets the last id of a stream."),
    command("xtrim", -4, xtrim)
        .flags(WRITE | DIRECT)
        .keys(1, 1, 1)
        .about(ABOUT, "5.0.0", "Removes the first entries of a stream."),
];

/// What Redis says of a word that is no id.
pub(crate) const BAD_ID: Fault =
    Fault::line("ERR Invalid stream ID specified as stream command argument");

/// What Redis says of an id that is not behind all others.
const TOO_SMALL: Fault =
    Fault::line("ERR The ID specified in XADD is equal or smaller than the target stream top item");

/// An id that an argument states in full.
///
/// # Errors
/// [`BAD_ID`].
pub(crate) fn id(text: &[u8], seq: u64) -> Result<StreamId> {
    StreamId::parse(text, seq).ok_or(BAD_ID)
}

/// The end of a range: an id, `-` or `+`, or an id behind `(`, which is not part of it.
///
/// # Errors
/// What Redis says of another word.
pub(crate) fn bound(text: &[u8], is_lower: bool) -> Result<StreamId> {
    let seq = if is_lower { 0 } else { u64::MAX };
    match text {
        b"-" => Ok(StreamId::MIN),
        b"+" => Ok(StreamId::MAX),
        [b'(', rest @ ..] => {
            let edge = id(rest, seq)?;
            let (inside, side) = match is_lower {
                true => (edge.next(), "start"),
                false => (edge.before(), "end"),
            };
            let said = || Fault::new(format!("ERR invalid {side} ID for the interval"));
            inside.ok_or_else(said)
        }
        text => id(text, seq),
    }
}

/// Which entries a trim removes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Keep {
    Length(u64),
    From(StreamId),
}

/// How a stream is to be trimmed.
#[derive(Clone, Copy, Debug)]
struct Trim {
    keep: Keep,
    is_exact: bool,
    limit: Option<u64>,
}

/// The options of `XADD` and `XTRIM`, and where they end.
#[derive(Debug)]
struct Options {
    trim: Option<Trim>,
    creates: bool,
    end: usize,
}

fn options(args: Args<'_>, is_add: bool) -> Result<Options> {
    let (mut keep, mut is_exact, mut limit, mut creates) = (None, true, None, true);
    let mut at = 2;
    while let Some(word) = args.get(at) {
        let more = args.len() - at - 1;
        match word.to_ascii_lowercase().as_slice() {
            b"*" if is_add => break,
            b"nomkstream" if is_add => creates = false,
            kind @ (b"maxlen" | b"minid") if more > 0 => {
                if keep.is_some() {
                    return Err(Fault::line(
                        "ERR syntax error, MAXLEN and MINID options at the same time are not \
                         compatible",
                    ));
                }
                if let mark @ (b"~" | b"=") = args.at(at + 1)
                    && more > 1
                {
                    is_exact = mark == b"=";
                    at += 1;
                }
                at += 1;
                keep =
                    Some(match kind {
                        b"maxlen" => {
                            let length = parse_integer(args.at(at))?;
                            Keep::Length(u64::try_from(length).map_err(|_| {
                                Fault::line("ERR The MAXLEN argument must be >= 0.")
                            })?)
                        }
                        _ => Keep::From(id(args.at(at), 0)?),
                    });
            }
            b"limit" if more > 0 => {
                let number = parse_integer(args.at(at + 1))?;
                let number = u64::try_from(number);
                limit =
                    Some(number.map_err(|_| Fault::line("ERR The LIMIT argument must be >= 0."))?);
                at += 1;
            }
            _ if is_add => break,
            _ => return Err(Fault::SYNTAX),
        }
        at += 1;
    }
    if limit.is_some() && keep.is_none() {
        return Err(Fault::line(
            "ERR syntax error, LIMIT cannot be used without specifying a trimming strategy",
        ));
    }
    if !is_add && keep.is_none() {
        return Err(Fault::line(
            "ERR syntax error, XTRIM must be called with MAXLEN or MINID options",
        ));
    }
    if limit.is_some() && is_exact {
        return Err(Fault::line(
            "ERR syntax error, LIMIT cannot be used without the special ~ option",
        ));
    }
    Ok(Options {
        trim: keep.map(|keep| Trim {
            keep,
            is_exact,
            limit,
        }),
        creates,
        end: at,
    })
}

/// Removes the first entries, as if `new` were the last; returns how many of all, the new one
/// included, if nothing is to be left. Where it need not be exact, as many go as Redis has in whole
/// nodes of its tree: a node has so many of the entries that were added one after the other.
fn trim(
    execution: &mut Execution<'_>,
    stream: &mut Stream,
    trim: Trim,
    new: Option<StreamId>,
) -> Result<u64> {
    let setting = execution.server.settings.text("stream-node-max-entries");
    let node: u64 = setting.parse().unwrap_or(100);
    let total = stream.length + u64::from(new.is_some());
    let mut excess = match trim.keep {
        Keep::Length(length) => total.saturating_sub(length),
        Keep::From(from) => match from.before() {
            None => 0,
            Some(last) => {
                let below =
                    stream.range(execution.work, (StreamId::MIN, last), usize::MAX, false)?;
                below.len() as u64 + u64::from(new.is_some_and(|new| new < from))
            }
        },
    };
    if !trim.is_exact {
        let limit = match trim.limit {
            Some(0) => u64::MAX,
            Some(limit) => limit,
            None => node.max(1).saturating_mul(100),
        };
        excess = excess.min(limit);
        excess = in_whole_nodes(stream.added + u64::from(new.is_some()), total, excess, node);
    }
    let count = usize::try_from(excess).unwrap_or(usize::MAX);
    let first = stream.range(execution.work, (StreamId::MIN, StreamId::MAX), count, false)?;
    let ids: Vec<StreamId> = first.iter().map(|entry| entry.id).collect();
    stream.remove(execution.work, &ids, false)?;
    Ok(excess)
}

/// How many of the first `excess` of `total` entries are in whole nodes, of `added` entries in all.
fn in_whole_nodes(added: u64, total: u64, excess: u64, node: u64) -> u64 {
    let node = node.max(1);
    let before = added.saturating_sub(total);
    let (mut whole, mut next) = (0, (node - before % node).min(total));
    while next > 0 && whole + next <= excess {
        whole += next;
        next = node.min(total - whole);
    }
    whole
}

/// The id of an entry to add.
fn new_id(text: &[u8], last: StreamId, now_ms: u64) -> Result<StreamId> {
    let exhausted =
        Fault::line("ERR The stream has exhausted the last possible ID, unable to add more items");
    if text == b"*" {
        let now = StreamId { ms: now_ms, seq: 0 };
        return match now > last {
            true => Ok(now),
            false => last.next().ok_or(exhausted),
        };
    }
    let id = match text.strip_suffix(b"-*") {
        Some(ms) => {
            let least = id(ms, 0)?;
            match least.ms == last.ms {
                false => least,
                true if last == StreamId::MIN => StreamId { ms: 0, seq: 1 },
                true => StreamId {
                    ms: last.ms,
                    seq: last.seq.checked_add(1).ok_or(TOO_SMALL)?,
                },
            }
        }
        None => id(text, 0)?,
    };
    if id == StreamId::MIN {
        // With a number of its own, 0-* is 0-1.
        return match text.ends_with(b"-*") {
            true => Ok(StreamId { ms: 0, seq: 1 }),
            false => Err(Fault::line(
                "ERR The ID specified in XADD must be greater than 0-0",
            )),
        };
    }
    if last == StreamId::MAX {
        return Err(exhausted);
    }
    match id > last {
        true => Ok(id),
        false => Err(TOO_SMALL),
    }
}

fn xadd(execution: &mut Execution<'_>) -> Result<()> {
    let (key, args) = (execution.arg(1), execution.args);
    let options = options(args, true)?;
    let fields = args.from(options.end + 1);
    let has_fields = fields.len() >= 2 && fields.len() % 2 == 0;
    if args.len() <= options.end || !has_fields {
        return Err(execution.wrong_arguments());
    }
    let text = args.at(options.end);
    if text != b"*" {
        id(text.strip_suffix(b"-*").unwrap_or(text), 0)?;
    }
    if text == b"0-0" || text == b"0" {
        return Err(Fault::line(
            "ERR The ID specified in XADD must be greater than 0-0",
        ));
    }
    let mut stream = match Stream::find(execution, key)? {
        Some(stream) => stream,
        None if !options.creates => {
            execution.reply.null();
            return Ok(());
        }
        None => Stream::create(execution.work, execution.space())?,
    };
    let id = new_id(text, stream.last, execution.now_ms())?;
    // All reads come first: so the entry is added after what it would push out is gone.
    let before = stream.length;
    let trimmed = match options.trim {
        Some(how) => trim(execution, &mut stream, how, Some(id))?,
        None => 0,
    };
    if trimmed <= before {
        stream.add(execution.work, id, fields.iter())?;
    }
    stream.last = id;
    stream.added += 1;
    stream.save(execution, key)?;
    execution.notify(EventClasses::STREAM, "xadd", key);
    if trimmed > 0 {
        execution.notify(EventClasses::STREAM, "xtrim", key);
    }
    execution.reply.bulk(id.to_string());
    Ok(())
}

fn xtrim(execution: &mut Execution<'_>) -> Result<()> {
    let key = execution.arg(1);
    let options = options(execution.args, false)?;
    let (Some(mut stream), Some(how)) = (Stream::find(execution, key)?, options.trim) else {
        execution.reply.integer(0);
        return Ok(());
    };
    let trimmed = trim(execution, &mut stream, how, None)?;
    if trimmed > 0 {
        stream.save(execution, key)?;
        execution.notify(EventClasses::STREAM, "xtrim", key);
    }
    execution
        .reply
        .integer(i64::try_from(trimmed).unwrap_or(i64::MAX));
    Ok(())
}

fn xdel(execution: &mut Execution<'_>) -> Result<()> {
    let key = execution.arg(1);
    let mut ids = Vec::new();
    for text in execution.args.from(2).iter() {
        ids.push(id(text, 0)?);
    }
    ids.sort_unstable();
    ids.dedup();
    let Some(mut stream) = Stream::find(execution, key)? else {
        execution.reply.integer(0);
        return Ok(());
    };
    let mut there = Vec::new();
    for id in ids {
        if stream.entry(execution.work, id)?.is_some() {
            there.push(id);
        }
    }
    stream.remove(execution.work, &there, true)?;
    if !there.is_empty() {
        stream.save(execution, key)?;
        execution.notify(EventClasses::STREAM, "xdel", key);
    }
    execution.reply.count(there.len());
    Ok(())
}

fn xlen(execution: &mut Execution<'_>) -> Result<()> {
    let stream = Stream::find(execution, execution.arg(1))?;
    let length = stream.map_or(0, |stream| stream.length);
    execution
        .reply
        .integer(i64::try_from(length).unwrap_or(i64::MAX));
    Ok(())
}

fn xsetid(execution: &mut Execution<'_>) -> Result<()> {
    let (key, args) = (execution.arg(1), execution.args);
    let last = id(args.at(2), 0)?;
    let (mut added, mut deleted, mut at) = (None, None, 3);
    while let Some(word) = args.get(at) {
        let value = args.get(at + 1).ok_or(Fault::SYNTAX)?;
        match word.to_ascii_lowercase().as_slice() {
            b"entriesadded" => {
                let number = parse_integer(value)?;
                added = Some(
                    u64::try_from(number)
                        .map_err(|_| Fault::line("ERR entries_added must be positive"))?,
                );
            }
            b"maxdeletedid" => {
                let greatest = id(value, 0)?;
                if last < greatest {
                    return Err(Fault::line(
                        "ERR The ID specified in XSETID is smaller than the provided \
                         max_deleted_entry_id",
                    ));
                }
                deleted = Some(greatest);
            }
            _ => return Err(Fault::SYNTAX),
        }
        at += 2;
    }
    if added.is_some() != deleted.is_some() {
        return Err(Fault::SYNTAX);
    }
    let Some(mut stream) = Stream::find(execution, key)? else {
        return Err(Fault::NO_SUCH_KEY);
    };
    if last < stream.deleted {
        return Err(Fault::line(
            "ERR The ID specified in XSETID is smaller than current max_deleted_entry_id",
        ));
    }
    if stream.length > 0 {
        let greatest = stream.range(execution.work, (StreamId::MIN, StreamId::MAX), 1, true)?;
        if greatest.first().is_some_and(|entry| last < entry.id) {
            return Err(Fault::line(
                "ERR The ID specified in XSETID is smaller than the target stream top item",
            ));
        }
        if added.is_some_and(|added| added < stream.length) {
            return Err(Fault::line(
                "ERR The entries_added specified in XSETID is smaller than the target stream \
                 length",
            ));
        }
    }
    stream.last = last;
    stream.added = added.unwrap_or(stream.added);
    stream.deleted = deleted
        .filter(|deleted| *deleted != StreamId::MIN)
        .unwrap_or(stream.deleted);
    stream.save(execution, key)?;
    execution.notify(EventClasses::STREAM, "xsetid", key);
    execution.reply.ok();
    Ok(())
}

/// Writes an entry: its id and its fields, which are nothing of one that is gone.
pub(crate) fn reply_entry(reply: &mut ReplyBuffer, id: StreamId, fields: Option<&[Vec<u8>]>) {
    reply.array(2);
    reply.bulk(id.to_string());
    match fields {
        None => reply.null_array(),
        Some(fields) => {
            reply.array(fields.len());
            for field in fields {
                reply.bulk(field);
            }
        }
    }
}

/// Writes entries.
pub(crate) fn reply_entries(reply: &mut ReplyBuffer, entries: &[StreamEntry]) {
    reply.array(entries.len());
    for entry in entries {
        reply_entry(reply, entry.id, Some(&entry.fields));
    }
}

fn range(execution: &mut Execution<'_>, is_backward: bool) -> Result<()> {
    let args = execution.args;
    let (from, to) = if is_backward { (3, 2) } else { (2, 3) };
    let range = (bound(args.at(from), true)?, bound(args.at(to), false)?);
    let mut count = usize::MAX;
    let mut at = 4;
    while let Some(word) = args.get(at) {
        match args.get(at + 1) {
            Some(number) if word.eq_ignore_ascii_case(b"count") => {
                let number = parse_integer(number)?.max(0);
                count = usize::try_from(number).unwrap_or(usize::MAX);
            }
            _ => return Err(Fault::SYNTAX),
        }
        at += 2;
    }
    let Some(stream) = Stream::find(execution, args.at(1))? else {
        execution.reply.array(0);
        return Ok(());
    };
    if count == 0 {
        execution.reply.null_array();
        return Ok(());
    }
    let entries = stream.range(execution.work, range, count, is_backward)?;
    reply_entries(execution.reply, &entries);
    Ok(())
}

fn xrange(execution: &mut Execution<'_>) -> Result<()> {
    range(execution, false)
}

fn xrevrange(execution: &mut Execution<'_>) -> Result<()> {
    range(execution, true)
}

/// The options of `XREAD` and `XREADGROUP`.
#[derive(Debug)]
pub(crate) struct ReadOptions<'a> {
    /// The most entries of each stream.
    pub(crate) count: usize,
    /// How long to wait for some, in milliseconds; 0 for ever.
    pub(crate) block_ms: Option<u64>,
    /// The group and the consumer.
    pub(crate) group: Option<(&'a [u8], &'a [u8])>,
    /// Whether entries need no acknowledgement.
    pub(crate) needs_none: bool,
    /// Where the keys begin.
    pub(crate) keys: usize,
    /// How many streams there are.
    pub(crate) streams: usize,
}

impl<'a> ReadOptions<'a> {
    /// Of arguments.
    ///
    /// # Errors
    /// What Redis says of others.
    pub(crate) fn parse(args: Args<'a>, is_group: bool) -> Result<ReadOptions<'a>> {
        let name = if is_group { "XREADGROUP" } else { "XREAD" };
        let mut options = ReadOptions {
            count: usize::MAX,
            block_ms: None,
            group: None,
            needs_none: false,
            keys: 0,
            streams: 0,
        };
        let mut at = 1;
        while let Some(word) = args.get(at) {
            let more = args.len() - at - 1;
            match word.to_ascii_lowercase().as_slice() {
                b"block" if more > 0 => {
                    let bad = |_| Fault::line("ERR timeout is not an integer or out of range");
                    let ms = parse_integer(args.at(at + 1)).map_err(bad)?;
                    let negative = |_| Fault::line("ERR timeout is negative");
                    options.block_ms = Some(u64::try_from(ms).map_err(negative)?);
                    at += 1;
                }
                b"count" if more > 0 => {
                    let count = parse_integer(args.at(at + 1))?.max(0);
                    options.count = match usize::try_from(count).unwrap_or(usize::MAX) {
                        0 => usize::MAX,
                        count => count,
                    };
                    at += 1;
                }
                b"group" if more > 1 && is_group => {
                    options.group = Some((args.at(at + 1), args.at(at + 2)));
                    at += 2;
                }
                b"noack" if is_group => options.needs_none = true,
                b"streams" if more > 0 => {
                    options.keys = at + 1;
                    break;
                }
                b"group" | b"noack" if !is_group => {
                    return Err(Fault::new(format!(
                        "ERR The {} option is only supported by XREADGROUP. You called XREAD \
                         instead.",
                        String::from_utf8_lossy(word).to_ascii_uppercase()
                    )));
                }
                _ => return Err(Fault::SYNTAX),
            }
            at += 1;
        }
        if options.keys == 0 {
            return Err(Fault::SYNTAX);
        }
        let rest = args.len() - options.keys;
        if rest % 2 == 1 {
            let name = name.to_ascii_lowercase();
            let hint = if is_group { "ID or '>'" } else { "ID or '$'" };
            return Err(Fault::new(format!(
                "ERR Unbalanced '{name}' list of streams: for each stream key an {hint} must be \
                 specified."
            )));
        }
        options.streams = rest / 2;
        if is_group && options.group.is_none() {
            return Err(Fault::line("ERR Missing GROUP option for XREADGROUP"));
        }
        Ok(options)
    }

    /// The keys, and where each has its id.
    pub(crate) fn places(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        let (keys, streams) = (self.keys, self.streams);
        (keys..keys + streams).map(move |key| (key, key + streams))
    }
}

fn xread(execution: &mut Execution<'_>) -> Result<()> {
    let args = execution.args;
    let options = ReadOptions::parse(args, false)?;
    refuse_waiting(execution, &options)?;
    let mut ids = Vec::new();
    for (_, place) in options.places() {
        ids.push(match args.at(place) {
            b"$" => None,
            b">" => {
                return Err(Fault::line(
                    "ERR The > ID can be specified only when calling XREADGROUP using the GROUP \
                     <group> <consumer> option.",
                ));
            }
            text => Some(id(text, 0)?),
        });
    }
    let mut found = Vec::new();
    let mut resolved = Vec::new();
    for ((place, _), id) in options.places().zip(ids) {
        let key = args.at(place);
        let stream = match Stream::find(execution, key) {
            // Who waits for a stream waits until it is one.
            Err(_) if execution.session.is_retry => None,
            stream => stream?,
        };
        let after = id.unwrap_or(stream.as_ref().map_or(StreamId::MIN, |stream| stream.last));
        resolved.push(after);
        let (Some(stream), Some(from)) = (stream, after.next()) else {
            continue;
        };
        let entries = stream.range(execution.work, (from, StreamId::MAX), options.count, false)?;
        if !entries.is_empty() {
            found.push((key, entries));
        }
    }
    if found.is_empty() {
        wait(execution, &options, &resolved);
        return Ok(());
    }
    reply_streams(execution.reply, found.len());
    for (key, entries) in found {
        reply_stream_key(execution.reply, key);
        reply_entries(execution.reply, &entries);
    }
    Ok(())
}

/// An error for a script that would wait.
///
/// # Errors
/// What Redis says.
pub(crate) fn refuse_waiting(execution: &Execution<'_>, options: &ReadOptions<'_>) -> Result<()> {
    match execution.is_of_script() && options.block_ms.is_some() {
        true => Err(Fault::new(format!(
            "ERR {} command is not allowed with BLOCK option from scripts",
            execution.command.name
        ))),
        false => Ok(()),
    }
}

/// Waits for entries behind ids, if the command may.
pub(crate) fn wait(execution: &mut Execution<'_>, options: &ReadOptions<'_>, ids: &[StreamId]) {
    let Some(block_ms) = options.block_ms else {
        return execution.reply.null_array();
    };
    let args = execution.args;
    let keys: Vec<&[u8]> = options.places().map(|(key, _)| args.at(key)).collect();
    let timeout = (block_ms > 0).then(|| std::time::Duration::from_millis(block_ms));
    let mut words: Vec<Vec<u8>> = args.iter().map(<[u8]>::to_vec).collect();
    for ((_, place), id) in options.places().zip(ids) {
        words[place] = id.to_string().into_bytes();
    }
    let words = crate::args::OwnedArgs::of(&words);
    execution.wait_as(words, &keys, timeout, TimeoutReply::NullArray);
}

/// The beginning of the entries of several streams.
pub(crate) fn reply_streams(reply: &mut ReplyBuffer, count: usize) {
    match reply.is_resp3 {
        true => reply.map(count),
        false => reply.array(count),
    }
}

/// The key of a stream, in front of its entries.
pub(crate) fn reply_stream_key(reply: &mut ReplyBuffer, key: &[u8]) {
    if !reply.is_resp3 {
        reply.array(2);
    }
    reply.bulk(key);
}
