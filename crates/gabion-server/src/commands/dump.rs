//! `DUMP` and `RESTORE`: values that move between servers.

use crate::command::{Command, DENYOOM, Group, READONLY, WRITE, command, parse_integer};
use crate::dump::{BAD_FORMAT, Reader, Writer};
use crate::events::Events;
use crate::execution::Execution;
use crate::fault::{Fault, Result};
use crate::store::hash::Hash;
use crate::store::list::{End, List};
use crate::store::members::Members;
use crate::store::meta::{Head, Kind};
use crate::store::scored::ScoredSet;

/// Types in snapshots, in their plain forms.
const STRING: u8 = 0;
const LIST: u8 = 1;
const SET: u8 = 2;
const HASH: u8 = 4;
const SORTED_SET: u8 = 5;

pub(crate) const COMMANDS: &[Command] = &[
    command("dump", 2, dump)
        .flags(READONLY)
        .keys(1, 1, 1)
        .about(
            Group::Generic,
            "2.6.0",
            "Returns a value as a snapshot has it.",
        ),
    command("restore", -4, restore)
        .flags(WRITE | DENYOOM)
        .keys(1, 1, 1)
        .about(
            Group::Generic,
            "2.6.0",
            "Makes a key of what DUMP has returned.",
        ),
];

fn dump(execution: &mut Execution<'_>) -> Result<()> {
    let key = execution.arg(1);
    let Some(meta) = execution.look_up(key)? else {
        execution.reply.null();
        return Ok(());
    };
    let space = execution.space();
    let mut writer = Writer::default();
    match meta.head.kind {
        Kind::String => {
            writer.byte(STRING);
            writer.string(meta.body());
        }
        Kind::List => {
            let list = List::of(space, Some(&meta))?;
            let all = list.part(execution.work, 0..list.count())?;
            writer.byte(LIST);
            writer.length(all.len() as u64);
            for element in all {
                writer.string(&element);
            }
        }
        Kind::Set => {
            let set = Members::of(space, Some(&meta), Kind::Set)?;
            let all = set.all(execution.work)?;
            writer.byte(SET);
            writer.length(all.len() as u64);
            for (member, _) in all {
                writer.string(&member);
            }
        }
        Kind::Hash => {
            let hash = Hash::of(execution.work, space, Some(&meta))?;
            let mut pairs = Vec::new();
            hash.visit(execution.work, |field, value| {
                pairs.push((field.to_vec(), value.to_vec()));
            })?;
            writer.byte(HASH);
            writer.length(pairs.len() as u64);
            for (field, value) in pairs {
                writer.string(&field);
                writer.string(&value);
            }
        }
        Kind::SortedSet => {
            let set = ScoredSet::of(space, Some(&meta))?;
            let all = set.members().all(execution.work)?;
            writer.byte(SORTED_SET);
            writer.length(all.len() as u64);
            for pair in all {
                let (member, score) = ScoredSet::scored(pair)?;
                writer.string(&member);
                writer.number(score);
            }
        }
        Kind::Stream => {
            return Err(Fault::line("ERR streams cannot be dumped by this server"));
        }
    }
    execution.reply.bulk(writer.finish());
    Ok(())
}

/// The options of `RESTORE`: whether it replaces, and whether the moment counts from 1970 on.
fn options(execution: &Execution<'_>) -> Result<(bool, bool)> {
    let args = execution.args;
    let (mut replaces, mut is_absolute, mut at) = (false, false, 4);
    while let Some(word) = args.get(at) {
        let value = args.get(at + 1);
        at += 1;
        match (word.to_ascii_lowercase().as_slice(), value) {
            (b"replace", _) => replaces = true,
            (b"absttl", _) => is_absolute = true,
            (b"idletime", Some(seconds)) => {
                if parse_integer(seconds)? < 0 {
                    return Err(Fault::line("ERR Invalid IDLETIME value, must be >= 0"));
                }
                at += 1;
            }
            (b"freq", Some(uses)) => {
                if !(0..=255).contains(&parse_integer(uses)?) {
                    return Err(Fault::line(
                        "ERR Invalid FREQ value, must be >= 0 and <= 255",
                    ));
                }
                at += 1;
            }
            _ => return Err(Fault::SYNTAX),
        }
    }
    Ok((replaces, is_absolute))
}

fn restore(execution: &mut Execution<'_>) -> Result<()> {
    let key = execution.arg(1);
    let (replaces, is_absolute) = options(execution)?;
    if !replaces && execution.find(key)?.is_some() {
        return Err(Fault::line("BUSYKEY Target key name already exists."));
    }
    let ttl = parse_integer(execution.arg(2))?;
    let ttl = u64::try_from(ttl).map_err(|_| Fault::line("ERR Invalid TTL value, must be >= 0"))?;
    let expires_ms = match ttl {
        0 => None,
        ttl if is_absolute => Some(ttl),
        ttl => Some(execution.now_ms().saturating_add(ttl)),
    };
    let mut reader = Reader::new(execution.arg(3))?;
    let value = Value::read(&mut reader)?;
    execution.remove(key)?;
    if expires_ms.is_some_and(|expires| expires <= execution.now_ms()) {
        execution.notify(Events::GENERIC, "del", key);
        execution.reply.ok();
        return Ok(());
    }
    value.save(execution, key)?;
    if expires_ms.is_some()
        && let Some(meta) = execution.find(key)?
    {
        execution.put(key, meta.head.expiring(expires_ms), &[meta.body()])?;
    }
    execution.notify(Events::GENERIC, "restore", key);
    execution.reply.ok();
    Ok(())
}

type Text = Vec<u8>;

/// A value that was read.
#[derive(Debug)]
enum Value {
    String(Text),
    List(Vec<Text>),
    Set(Vec<Text>),
    Hash(Vec<(Text, Text)>),
    SortedSet(Vec<(Text, f64)>),
}

impl Value {
    /// All of a payload.
    fn read(reader: &mut Reader<'_>) -> Result<Value> {
        fn all<'p, T>(
            reader: &mut Reader<'p>,
            read: impl Fn(&mut Reader<'p>) -> Result<T>,
        ) -> Result<Vec<T>> {
            match reader.length()? {
                0 => Err(BAD_FORMAT),
                count => (0..count).map(|_| read(reader)).collect(),
            }
        }
        let value = match reader.byte()? {
            STRING => Value::String(reader.string()?),
            LIST => Value::List(all(reader, Reader::string)?),
            SET => Value::Set(all(reader, Reader::string)?),
            HASH => Value::Hash(all(reader, |reader| {
                Ok((reader.string()?, reader.string()?))
            })?),
            SORTED_SET => Value::SortedSet(all(reader, |reader| {
                Ok((reader.string()?, reader.number()?))
            })?),
            other => {
                return Err(Fault::new(format!(
                    "ERR Bad data format: this server does not read type {other} of snapshots"
                )));
            }
        };
        match reader.is_empty() {
            true => Ok(value),
            false => Err(BAD_FORMAT),
        }
    }

    /// Puts it into a key that is not there.
    fn save(self, execution: &mut Execution<'_>, key: &[u8]) -> Result<()> {
        let space = execution.space();
        match self {
            Value::String(text) => execution.put(key, Head::STRING, &[&text])?,
            Value::List(elements) => {
                let mut list = List::empty(space);
                for element in elements {
                    list.push(execution.work, End::Right, &element)?;
                }
                list.save(execution, key)?;
            }
            Value::Set(members) => {
                let mut set = Members::empty(space, Kind::Set);
                for member in members {
                    if set.set(execution.work, &member, &[])?.is_some() {
                        return Err(BAD_FORMAT);
                    }
                }
                set.save(execution, key)?;
            }
            Value::Hash(pairs) => {
                let mut hash = Hash::of(execution.work, space, None)?;
                for (field, value) in pairs {
                    hash.set(execution.work, &field, &value, None)?;
                }
                hash.save(execution, key)?;
            }
            Value::SortedSet(members) => {
                let mut set = ScoredSet::empty(space);
                for (member, score) in members {
                    if set.set(execution.work, &member, score)?.is_some() {
                        return Err(BAD_FORMAT);
                    }
                }
                set.save(execution, key)?;
            }
        }
        Ok(())
    }
}
