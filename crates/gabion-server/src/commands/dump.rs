//! Values that go from one server to another: `DUMP` and `RESTORE`.

use crate::command::{Command, CommandGroup, DENYOOM, READONLY, WRITE, command, parse_integer};
use crate::events::EventClasses;
use crate::execution::Execution;
use crate::fault::{Fault, Result};
use crate::rdb::{self, Refused, Value};
use crate::store::hash::Hash;
use crate::store::list::{List, ListEnd};
use crate::store::members::Members;
use crate::store::meta::{KeyRecord, KeyType, RecordHead};
use crate::store::scored::{SortedSet, SortedSetRange};

pub(crate) const COMMANDS: &[Command] = &[
    command("dump", 2, dump)
        .flags(READONLY)
        .keys(1, 1, 1)
        .about(
            CommandGroup::Generic,
            "2.6.0",
            "Returns a key's value in the format of dumps.",
        ),
    command("restore", -4, restore)
        .flags(WRITE | DENYOOM)
        .keys(1, 1, 1)
        .about(
            CommandGroup::Generic,
            "2.6.0",
            "Creates a key from such a value.",
        ),
];

fn dump(execution: &mut Execution<'_>) -> Result<()> {
    let Some(meta) = execution.look_up(execution.arg(1))? else {
        execution.reply.null();
        return Ok(());
    };
    let value = value_of(execution, &meta)?;
    execution.reply.bulk(rdb::write(&value));
    Ok(())
}

/// The value of a record.
///
/// # Errors
/// Of the store; and for a stream.
pub(crate) fn value_of(execution: &mut Execution<'_>, meta: &KeyRecord) -> Result<Value> {
    let space = execution.space();
    let work = &mut *execution.work;
    Ok(match meta.head.kind {
        KeyType::String => Value::String(meta.body().to_vec()),
        KeyType::List => {
            let list = List::of(space, Some(meta))?;
            Value::List(list.part(work, 0..list.count())?)
        }
        KeyType::Set => {
            let all = Members::of(space, Some(meta), KeyType::Set)?.all(work)?;
            Value::Set(all.into_iter().map(|(member, _)| member).collect())
        }
        KeyType::SortedSet => {
            let set = SortedSet::of(space, Some(meta))?;
            Value::SortedSet(set.part(work, &SortedSetRange::ALL, false)?)
        }
        KeyType::Hash => {
            let hash = Hash::of(work, space, Some(meta))?;
            let mut fields = Vec::new();
            hash.visit_all(work, |field, moment, value| {
                fields.push((field.to_vec(), value.to_vec(), moment));
            })?;
            Value::Hash(fields)
        }
        KeyType::Stream => return Err(Fault::line("ERR streams cannot be dumped yet")),
    })
}

/// The options of `RESTORE`.
#[derive(Debug, Default)]
struct Options {
    replaces: bool,
    is_absolute: bool,
}

fn options(execution: &Execution<'_>) -> Result<Options> {
    let args = execution.args;
    let mut options = Options::default();
    let mut at = 4;
    while let Some(word) = args.get(at) {
        at += 1;
        let value = args.get(at);
        match (word.to_ascii_lowercase().as_slice(), value) {
            (b"replace", _) => options.replaces = true,
            (b"absttl", _) => options.is_absolute = true,
            // Uses are not noted here.
            (b"idletime", Some(value)) => {
                if parse_integer(value)? < 0 {
                    return Err(Fault::line("ERR Invalid IDLETIME value, must be >= 0"));
                }
                at += 1;
            }
            (b"freq", Some(value)) => {
                if !(0..=255).contains(&parse_integer(value)?) {
                    return Err(Fault::line(
                        "ERR Invalid FREQ value, must be >= 0 and <= 255",
                    ));
                }
                at += 1;
            }
            _ => return Err(Fault::SYNTAX),
        }
    }
    Ok(options)
}

fn restore(execution: &mut Execution<'_>) -> Result<()> {
    let key = execution.arg(1);
    let options = options(execution)?;
    if !options.replaces && execution.find(key)?.is_some() {
        return Err(Fault::line("BUSYKEY Target key name already exists."));
    }
    let ttl = u64::try_from(parse_integer(execution.arg(2))?)
        .map_err(|_| Fault::line("ERR Invalid TTL value, must be >= 0"))?;
    let value = rdb::read(execution.arg(3)).map_err(|refused| match refused {
        Refused::Foot => Fault::line("ERR DUMP payload version or checksum are wrong"),
        Refused::Value => Fault::line("ERR Bad data format"),
    })?;
    let expires_ms = match (ttl, options.is_absolute) {
        (0, _) => None,
        (moment, true) => Some(moment),
        (ttl, false) => Some(execution.now_ms().saturating_add(ttl)),
    };
    let was_there = execution.remove(key)?;
    // What has expired already is not created at all.
    if expires_ms.is_some_and(|expires| expires <= execution.now_ms()) {
        if was_there {
            execution.notify(EventClasses::GENERIC, "del", key);
        }
        execution.reply.ok();
        return Ok(());
    }
    create(execution, key, value, expires_ms)?;
    execution.notify(EventClasses::GENERIC, "restore", key);
    execution.reply.ok();
    Ok(())
}

fn create(
    execution: &mut Execution<'_>,
    key: &[u8],
    value: Value,
    expires_ms: Option<u64>,
) -> Result<()> {
    let space = execution.space();
    match value {
        Value::String(bytes) => {
            execution.put(key, RecordHead::STRING, &[&bytes])?;
        }
        Value::List(elements) => {
            let mut list = List::empty(space);
            for element in &elements {
                list.push(execution.work, ListEnd::Right, element)?;
            }
            list.save(execution, key)?;
        }
        Value::Set(members) => {
            let mut set = Members::empty(space, KeyType::Set);
            for member in &members {
                set.set(execution.work, member, &[])?;
            }
            set.save(execution, key)?;
        }
        Value::SortedSet(members) => {
            let mut set = SortedSet::empty(space);
            for (member, score) in &members {
                set.set(execution.work, member, *score)?;
            }
            set.save(execution, key)?;
        }
        Value::Hash(fields) => {
            let mut hash = Hash::of(execution.work, space, None)?;
            for (field, value, moment) in &fields {
                hash.set(execution.work, field, value, *moment)?;
            }
            hash.save(execution, key)?;
        }
    }
    if expires_ms.is_some() {
        let meta = execution.find(key)?.ok_or(Fault::NO_SUCH_KEY)?;
        execution.put(key, meta.head.expiring(expires_ms), &[meta.body()])?;
    }
    Ok(())
}
