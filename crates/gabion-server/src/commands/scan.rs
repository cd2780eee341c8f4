//! Going through the keys of a database.

use std::ops::Bound;

use crate::args::Args;
use crate::command::{Command, CommandGroup, LONG, READONLY, command, parse_integer};
use crate::cursors::ScanPosition;
use crate::execution::Execution;
use crate::fault::{Fault, Result};
use crate::glob;
use crate::random;
use crate::store::keys::{SPACE_BYTES, after_prefix, space_bytes};
use crate::store::meta::{KeyRecord, KeyType};
use crate::store::work::Room;

pub(crate) const COMMANDS: &[Command] = &[
    command("keys", 2, keys).flags(READONLY | LONG).about(
        CommandGroup::Generic,
        "1.0.0",
        "Returns all keys that match a pattern.",
    ),
    command("randomkey", 1, randomkey).flags(READONLY).about(
        CommandGroup::Generic,
        "1.0.0",
        "Returns a random key.",
    ),
    command("scan", -2, scan).flags(READONLY).about(
        CommandGroup::Generic,
        "2.8.0",
        "Iterates over keys.",
    ),
];

/// Databases up to this size give each key the same chance.
const FAIR_KEYS_MAX: i64 = 1000;

/// The keys of a database, from a place on, as far as `take` wants them.
fn visit(
    execution: &mut Execution<'_>,
    from: Bound<&[u8]>,
    mut take: impl FnMut(&[u8], &KeyRecord) -> bool,
) -> Result<()> {
    let space = space_bytes(execution.space());
    let end = after_prefix(&space);
    let of_store = |key: &[u8]| [&space[..], key].concat();
    let lower = from.map(of_store);
    let lower = match &lower {
        Bound::Included(key) => Bound::Included(key.as_slice()),
        Bound::Excluded(key) => Bound::Excluded(key.as_slice()),
        Bound::Unbounded => Bound::Included(&space[..]),
    };
    let now_ms = execution.now_ms();
    for pair in execution.work.range(Room::Keys, lower, end.as_deref())? {
        let (key, record) = pair?;
        let meta = KeyRecord::read(record)?;
        let key = key.get(SPACE_BYTES..).unwrap_or_default();
        if meta.is_live(now_ms) && !take(key, &meta) {
            break;
        }
    }
    Ok(())
}

fn keys(execution: &mut Execution<'_>) -> Result<()> {
    let pattern = execution.arg(1);
    // Keys that match begin with what comes before the first special byte.
    let is_special = |byte: &u8| b"*?[\\".contains(byte);
    let plain = pattern.iter().position(is_special).unwrap_or(pattern.len());
    let front = &pattern[..plain];
    let mut found = Vec::new();
    visit(execution, Bound::Included(front), |key, _| {
        let goes_on = key.starts_with(front);
        if goes_on && glob::matches(pattern, key) {
            found.push(key.to_vec());
        }
        goes_on
    })?;
    execution.reply.array(found.len());
    for key in found {
        execution.reply.bulk(key);
    }
    Ok(())
}

/// The options of a scan.
#[derive(Debug)]
pub(crate) struct ScanOptions<'a> {
    /// What is returned matches it.
    pub(crate) pattern: Option<&'a [u8]>,
    /// About how many are looked at.
    pub(crate) count: usize,
    /// The type of keys, in lower case.
    pub(crate) kind: Option<Vec<u8>>,
    /// Whether a hash's values are left out.
    pub(crate) has_no_values: bool,
}

/// The options from an argument on.
///
/// # Errors
/// What Redis says of words that it does not know.
pub(crate) fn options<'a>(args: Args<'a>, mut at: usize) -> Result<ScanOptions<'a>> {
    let mut options = ScanOptions {
        pattern: None,
        count: 10,
        kind: None,
        has_no_values: false,
    };
    while let Some(word) = args.get(at) {
        if word.eq_ignore_ascii_case(b"novalues") {
            options.has_no_values = true;
            at += 1;
            continue;
        }
        let value = args.get(at + 1).ok_or(Fault::SYNTAX)?;
        match word.to_ascii_lowercase().as_slice() {
            b"match" => options.pattern = Some(value),
            b"count" => {
                let count = parse_integer(value)?;
                if count < 1 {
                    return Err(Fault::SYNTAX);
                }
                options.count = usize::try_from(count).unwrap_or(usize::MAX);
            }
            b"type" => options.kind = Some(value.to_ascii_lowercase()),
            _ => return Err(Fault::SYNTAX),
        }
        at += 2;
    }
    Ok(options)
}

/// The number of a cursor.
///
/// # Errors
/// For what is none.
pub(crate) fn parse_cursor(text: &[u8]) -> Result<u64> {
    std::str::from_utf8(text)
        .ok()
        .filter(|text| text.starts_with(|first: char| first.is_ascii_digit()))
        .and_then(|text| text.parse().ok())
        .ok_or(Fault::line("ERR invalid cursor"))
}

fn scan(execution: &mut Execution<'_>) -> Result<()> {
    let cursor = parse_cursor(execution.arg(1))?;
    let ScanOptions {
        pattern,
        count,
        kind,
        has_no_values,
    } = options(execution.args, 2)?;
    if has_no_values {
        return Err(Fault::SYNTAX);
    }
    let place = execution.server.cursors.place(cursor);
    let from = match &place {
        ScanPosition::Start => Bound::Unbounded,
        ScanPosition::Behind(key) => Bound::Excluded(key.as_slice()),
        ScanPosition::From(key) => Bound::Included(key.as_slice()),
    };
    let fits = |key: &[u8], meta_kind: KeyType| {
        pattern.is_none_or(|pattern| glob::matches(pattern, key))
            && kind
                .as_ref()
                .is_none_or(|kind| meta_kind.name().as_bytes() == kind)
    };
    let mut found = Vec::new();
    let mut looked_at = 0;
    let mut last = None;
    visit(execution, from, |key, meta| {
        looked_at += 1;
        if fits(key, meta.head.kind) {
            found.push(key.to_vec());
        }
        if looked_at == count {
            last = Some(key.to_vec());
        }
        looked_at < count
    })?;
    let next = last.map_or(0, |last| execution.server.cursors.behind(&last));
    let reply = &mut *execution.reply;
    reply.array(2);
    reply.bulk(next.to_string());
    reply.array(found.len());
    for key in found {
        reply.bulk(key);
    }
    Ok(())
}

fn randomkey(execution: &mut Execution<'_>) -> Result<()> {
    let size = execution.server.store.sizes.of(execution.space()).keys;
    let key = match size <= FAIR_KEYS_MAX {
        true => nth_key(execution, u64::try_from(size).unwrap_or_default())?,
        false => key_near(execution)?,
    };
    execution.reply.bulk_or_null(key);
    Ok(())
}

/// Each of the first `count` keys with the same chance, as far as they have not expired.
fn nth_key(execution: &mut Execution<'_>, count: u64) -> Result<Option<Vec<u8>>> {
    let mut seen = 0;
    let mut chosen = None;
    visit(execution, Bound::Unbounded, |key, _| {
        seen += 1;
        // The n-th key takes the place of an earlier one with a chance of 1 to n.
        if random::below(seen) == 0 {
            chosen = Some(key.to_vec());
        }
        seen <= count
    })?;
    Ok(chosen)
}

/// A key at a place between the first and the last one that is chosen by chance. Keys behind large
/// gaps have a higher one.
fn key_near(execution: &mut Execution<'_>) -> Result<Option<Vec<u8>>> {
    let space = space_bytes(execution.space());
    let end = after_prefix(&space);
    let lower = Bound::Included(&space[..]);
    let mut pairs = execution.work.range(Room::Keys, lower, end.as_deref())?;
    let (first, last) = (pairs.next().transpose()?, pairs.next_back().transpose()?);
    drop(pairs);
    let (Some((first, _)), Some((last, _))) = (first, last) else {
        return nth_key(execution, 1);
    };
    let place = between(&first[SPACE_BYTES..], &last[SPACE_BYTES..]);
    let mut chosen = None;
    let mut steps = random::below(16);
    visit(execution, Bound::Included(&place), |key, _| {
        chosen = Some(key.to_vec());
        steps = steps.saturating_sub(1);
        steps > 0
    })?;
    match chosen {
        Some(chosen) => Ok(Some(chosen)),
        None => nth_key(execution, 1),
    }
}

/// Bytes by chance between two keys.
fn between(first: &[u8], last: &[u8]) -> Vec<u8> {
    let common = first
        .iter()
        .zip(last)
        .take_while(|(one, other)| one == other)
        .count();
    let number = |key: &[u8]| {
        let mut bytes = [0; 8];
        for (byte, of) in bytes.iter_mut().rev().zip(&key[common..]) {
            *byte = *of;
        }
        u64::from_le_bytes(bytes)
    };
    let (low, high) = (number(first), number(last));
    let chosen = low + random::below(high.saturating_sub(low).saturating_add(1));
    let mut place = first[..common].to_vec();
    place.extend(chosen.to_le_bytes().iter().rev());
    place
}
