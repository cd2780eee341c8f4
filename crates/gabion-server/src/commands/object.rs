//! `OBJECT` and `MEMORY USAGE`: the encoding and size of keys.

use crate::command::{Command, CommandGroup, READONLY, command};
use crate::commands::{container, help};
use crate::execution::Execution;
use crate::fault::{Fault, Result};
use crate::store::list::List;
use crate::store::members::Members;
use crate::store::meta::{KeyRecord, KeyType};

/// Strings up to this length are stored with their key, as Redis calls it.
const EMBEDDED_BYTES_MAX: usize = 44;

pub(crate) const COMMANDS: &[Command] =
    &[command("object", -2, container).with(SUBCOMMANDS).about(
        CommandGroup::Generic,
        "2.2.3",
        "Shows the encoding of a key.",
    )];

/// Bytes of a record beside its key and its body, about.
const HEAD_BYTES: usize = 24;

/// Bytes of an element beside what is in it, about.
const ELEMENT_BYTES: usize = 24;

const SUBCOMMANDS: &[Command] = &[
    command("encoding", 3, encoding)
        .flags(READONLY)
        .keys(2, 2, 1)
        .about(
            CommandGroup::Generic,
            "2.2.3",
            "Returns the form that Redis would have for it.",
        ),
    command("freq", 3, freq)
        .flags(READONLY)
        .keys(2, 2, 1)
        .about(
            CommandGroup::Generic,
            "4.0.0",
            "Always fails: accesses are not counted.",
        ),
    command("help", 2, show_help).about(CommandGroup::Generic, "6.2.0", "Lists the subcommands."),
    command("idletime", 3, idletime)
        .flags(READONLY)
        .keys(2, 2, 1)
        .about(
            CommandGroup::Generic,
            "2.2.3",
            "Always fails: access times are not recorded.",
        ),
    command("refcount", 3, refcount)
        .flags(READONLY)
        .keys(2, 2, 1)
        .about(
            CommandGroup::Generic,
            "2.2.3",
            "Returns 1: nothing is shared.",
        ),
];

/// The key, or a reply that it is not there.
fn key(execution: &mut Execution<'_>) -> Result<Option<KeyRecord>> {
    let found = execution.find(execution.arg(2))?;
    if found.is_none() {
        execution.reply.null();
    }
    Ok(found)
}

fn encoding(execution: &mut Execution<'_>) -> Result<()> {
    let Some(meta) = key(execution)? else {
        return Ok(());
    };
    let name = encoding_of(execution, &meta)?;
    execution.reply.bulk(name);
    Ok(())
}

/// The form that Redis would have for a key of this size, by the limits that are set. Redis keeps
/// a form when a collection shrinks again; here it follows from what is there.
///
/// # Errors
/// Of the store.
pub(crate) fn encoding_of(execution: &mut Execution<'_>, meta: &KeyRecord) -> Result<&'static str> {
    Ok(match meta.head.kind {
        KeyType::String if crate::args::integer(meta.body()).is_some() => "int",
        KeyType::String if meta.body().len() <= EMBEDDED_BYTES_MAX => "embstr",
        KeyType::String => "raw",
        KeyType::List => "quicklist",
        KeyType::Set if is_short(execution, meta, "set-max-intset-entries", None)? => "intset",
        KeyType::Hash
            if is_short(
                execution,
                meta,
                "hash-max-listpack-entries",
                Some("hash-max-listpack-value"),
            )? =>
        {
            "listpack"
        }
        KeyType::SortedSet
            if is_short(
                execution,
                meta,
                "zset-max-listpack-entries",
                Some("zset-max-listpack-value"),
            )? =>
        {
            "listpack"
        }
        KeyType::Set | KeyType::Hash => "hashtable",
        KeyType::SortedSet => "skiplist",
        KeyType::Stream => "stream",
    })
}

/// Whether a collection has few enough members, none of which is too long; or is a number, where
/// there is no limit of length.
fn is_short(
    execution: &mut Execution<'_>,
    meta: &KeyRecord,
    entries: &str,
    value: Option<&str>,
) -> Result<bool> {
    let settings = &execution.server.settings;
    let limit = |name: &str| settings.text(name).parse::<u64>().unwrap_or_default();
    let (entries, bytes) = (limit(entries), value.map(limit));
    let kind = meta.head.kind;
    let members = Members::of(execution.space(), Some(meta), kind)?;
    if members.count() > entries {
        return Ok(false);
    }
    let mut is_short = true;
    members.visit(execution.work, |member, payload| {
        is_short = match bytes {
            None => crate::args::integer(member).is_some(),
            Some(most) => {
                // A hash's value has a byte in front of it.
                let length = match kind {
                    KeyType::Hash => member.len().max(payload.len().saturating_sub(1)),
                    _ => member.len(),
                };
                length as u64 <= most
            }
        };
        is_short
    })?;
    Ok(is_short)
}

/// The bytes that a key takes in the store, its own included; of a large collection what some of
/// its members say of all.
///
/// # Errors
/// Of the store, and for words that it does not take.
pub(crate) fn usage(execution: &mut Execution<'_>) -> Result<()> {
    let args = execution.args;
    let samples = match (args.get(3), args.get(4)) {
        (None, _) => 5,
        (Some(word), Some(count)) if word.eq_ignore_ascii_case(b"samples") && args.len() == 5 => {
            let count = crate::command::parse_integer(count)?;
            u64::try_from(count).map_err(|_| Fault::SYNTAX)?
        }
        _ => return Err(Fault::SYNTAX),
    };
    let Some(meta) = key(execution)? else {
        return Ok(());
    };
    let own = (args.at(2).len() + meta.body().len() + HEAD_BYTES) as u64;
    if meta.head.elements.is_none() {
        execution.reply.unsigned(own);
        return Ok(());
    }
    let samples = if samples == 0 { u64::MAX } else { samples };
    let (mut seen, mut bytes) = (0, 0);
    let mut add = |length: usize| {
        seen += 1;
        bytes += (length + ELEMENT_BYTES) as u64;
        seen < samples
    };
    let count = match meta.head.kind {
        KeyType::List => {
            let list = List::of(execution.space(), Some(&meta))?;
            list.visit(execution.work, 0..list.count(), false, |_, element| {
                add(element.len())
            })?;
            list.count() as u64
        }
        KeyType::Stream | KeyType::String => 0,
        kind => {
            let members = Members::of(execution.space(), Some(&meta), kind)?;
            // A sorted set has each member twice.
            let times = if kind == KeyType::SortedSet { 2 } else { 1 };
            members.visit(execution.work, |member, payload| {
                add(member.len() * times + payload.len())
            })?;
            members.count()
        }
    };
    let of_elements = u128::from(bytes) * u128::from(count) / u128::from(seen.max(1));
    let of_elements = u64::try_from(of_elements).unwrap_or(u64::MAX);
    execution.reply.unsigned(own.saturating_add(of_elements));
    Ok(())
}

fn refcount(execution: &mut Execution<'_>) -> Result<()> {
    if key(execution)?.is_some() {
        execution.reply.integer(1);
    }
    Ok(())
}

fn idletime(execution: &mut Execution<'_>) -> Result<()> {
    match key(execution)? {
        Some(_) => Err(Fault::line("ERR idle time is not tracked by this server")),
        None => Ok(()),
    }
}

fn freq(execution: &mut Execution<'_>) -> Result<()> {
    match key(execution)? {
        Some(_) => Err(Fault::line(
            "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please \
             note that when switching between policies at runtime LRU and LFU data will take some \
             time to adjust.",
        )),
        None => Ok(()),
    }
}

fn show_help(execution: &mut Execution<'_>) -> Result<()> {
    help(
        execution,
        &[
            "OBJECT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
            "ENCODING <key>",
            "    Return the form that Redis would have for the key.",
            "REFCOUNT <key>",
            "    Return 1 if the key exists.",
        ],
    );
    Ok(())
}
