//! Keys of any type: whether they are there, and where they go.

use std::ops::Bound;

use crate::command::{
    ALONE, Command, CommandGroup, DENYOOM, FAST, ONE_READ, READONLY, WRITE, command,
};
use crate::events::EventClasses;
use crate::execution::Execution;
use crate::fault::{Fault, Result};
use crate::store::hash::schedule_moved;
use crate::store::keys::{PREFIX_BYTES, after_prefix, prefix};
use crate::store::meta::{KeyRecord, RecordHead};
use crate::store::work::Room;

/// Elements that are copied at a time.
const AT_ONCE: usize = 512;

pub(crate) const COMMANDS: &[Command] = &[
    command("copy", -3, copy)
        .flags(WRITE | DENYOOM)
        .keys(1, 2, 1)
        .about(CommandGroup::Generic, "6.2.0", "Copies a key."),
    command("del", -2, del).flags(WRITE).keys(1, -1, 1).about(
        CommandGroup::Generic,
        "1.0.0",
        "Deletes keys.",
    ),
    command("exists", -2, exists)
        .flags(READONLY | FAST)
        .keys(1, -1, 1)
        .about(
            CommandGroup::Generic,
            "1.0.0",
            "Counts the keys that exist.",
        ),
    command("move", 3, move_key)
        .flags(WRITE | FAST)
        .keys(1, 1, 1)
        .about(
            CommandGroup::Generic,
            "1.0.0",
            "Moves a key to another database.",
        ),
    command("rename", 3, rename)
        .flags(WRITE)
        .keys(1, 2, 1)
        .about(
            CommandGroup::Generic,
            "1.0.0",
            "Renames a key, replacing a key with the new name.",
        ),
    command("renamenx", 3, renamenx)
        .flags(WRITE | FAST)
        .keys(1, 2, 1)
        .about(
            CommandGroup::Generic,
            "1.0.0",
            "Renames a key if nothing has the new name.",
        ),
    command("swapdb", 3, swapdb)
        .flags(WRITE | FAST | ALONE)
        .about(CommandGroup::Server, "4.0.0", "Exchanges two databases."),
    command("touch", -2, exists)
        .flags(READONLY | FAST)
        .keys(1, -1, 1)
        .about(
            CommandGroup::Generic,
            "3.2.1",
            "Counts the keys that exist.",
        ),
    command("type", 2, type_of)
        .flags(READONLY | FAST | ONE_READ)
        .keys(1, 1, 1)
        .about(CommandGroup::Generic, "1.0.0", "Returns the type of a key."),
    command("unlink", -2, del)
        .flags(WRITE | FAST)
        .keys(1, -1, 1)
        .about(CommandGroup::Generic, "4.0.0", "Deletes keys."),
];

fn del(execution: &mut Execution<'_>) -> Result<()> {
    let mut count = 0;
    for key in execution.args.from(1).iter() {
        if execution.remove(key)? {
            execution.notify(EventClasses::GENERIC, "del", key);
            count += 1;
        }
    }
    execution.reply.integer(count);
    Ok(())
}

fn exists(execution: &mut Execution<'_>) -> Result<()> {
    let mut count = 0;
    for key in execution.args.from(1).iter() {
        count += i64::from(execution.look_up(key)?.is_some());
    }
    execution.reply.integer(count);
    Ok(())
}

fn type_of(execution: &mut Execution<'_>) -> Result<()> {
    let found = execution.look_up(execution.arg(1))?;
    execution
        .reply
        .simple(found.map_or("none", |meta| meta.head.kind.name()));
    Ok(())
}

fn rename(execution: &mut Execution<'_>) -> Result<()> {
    let (from, to) = (execution.arg(1), execution.arg(2));
    let meta = execution.find(from)?.ok_or(Fault::NO_SUCH_KEY)?;
    if from != to {
        rename_found(execution, from, to, &meta)?;
    }
    execution.reply.ok();
    Ok(())
}

fn renamenx(execution: &mut Execution<'_>) -> Result<()> {
    let (from, to) = (execution.arg(1), execution.arg(2));
    let meta = execution.find(from)?.ok_or(Fault::NO_SUCH_KEY)?;
    let is_free = from != to && execution.find(to)?.is_none();
    if is_free {
        rename_found(execution, from, to, &meta)?;
    }
    execution.reply.flag(is_free);
    Ok(())
}

/// The elements keep their number, so the size of a collection does not matter.
fn rename_found(
    execution: &mut Execution<'_>,
    from: &[u8],
    to: &[u8],
    meta: &KeyRecord,
) -> Result<()> {
    execution.put(to, meta.head, &[meta.body()])?;
    let space = execution.space();
    schedule_moved(execution.work, space, to, meta)?;
    execution.work.remove_but(space, from, meta.head.elements)?;
    execution.notify(EventClasses::GENERIC, "rename_from", from);
    execution.notify(EventClasses::GENERIC, "rename_to", to);
    Ok(())
}

fn copy(execution: &mut Execution<'_>) -> Result<()> {
    let args = execution.args;
    let (from, to) = (args.at(1), args.at(2));
    let mut database = execution.session.database;
    let mut replaces = false;
    let mut at = 3;
    while let Some(word) = args.get(at) {
        at += 1;
        match (word.to_ascii_lowercase().as_slice(), args.get(at)) {
            (b"replace", _) => replaces = true,
            (b"db", Some(number)) => {
                database = execution.database(number)?;
                at += 1;
            }
            _ => return Err(Fault::SYNTAX),
        }
    }
    if database == execution.session.database && from == to {
        return Err(Fault::line(
            "ERR source and destination objects are the same",
        ));
    }
    let copied = match execution.find(from)? {
        Some(meta) => copy_to(execution, &meta, database, to, replaces)?,
        None => false,
    };
    if copied {
        execution.notify_in(database, EventClasses::GENERIC, "copy_to", to);
    }
    execution.reply.flag(copied);
    Ok(())
}

fn move_key(execution: &mut Execution<'_>) -> Result<()> {
    let key = execution.arg(1);
    let database = execution
        .database(execution.arg(2))
        .map_err(|fault| match fault {
            Fault::Said(line) if line.starts_with("ERR value") => Fault::Said(line),
            _ => Fault::line("ERR DB index is out of range"),
        })?;
    if database == execution.session.database {
        return Err(Fault::line(
            "ERR source and destination objects are the same",
        ));
    }
    let moved = match execution.find(key)? {
        Some(meta) => copy_to(execution, &meta, database, key, false)?,
        None => false,
    };
    if moved {
        execution.remove(key)?;
        execution.notify(EventClasses::GENERIC, "move_from", key);
        execution.notify_in(database, EventClasses::GENERIC, "move_to", key);
    }
    execution.reply.flag(moved);
    Ok(())
}

/// Copies a record and its elements, under a number of their own; false if something is in the way.
fn copy_to(
    execution: &mut Execution<'_>,
    meta: &KeyRecord,
    database: usize,
    to: &[u8],
    replaces: bool,
) -> Result<bool> {
    let here = execution.space();
    let there = execution.server.store.space(database);
    if !replaces && execution.work.find(there, to)?.is_some() {
        return Ok(false);
    }
    let mut head: RecordHead = meta.head;
    if let Some(elements) = meta.head.elements {
        let copy = execution.server.store.next_number()?;
        copy_elements(execution, prefix(here, elements), prefix(there, copy))?;
        head.elements = Some(copy);
    }
    schedule_moved(execution.work, there, to, meta)?;
    execution.work.put(there, to, head, &[meta.body()])?;
    Ok(true)
}

fn copy_elements(
    execution: &mut Execution<'_>,
    from: [u8; PREFIX_BYTES],
    to: [u8; PREFIX_BYTES],
) -> Result<()> {
    let end = after_prefix(&from);
    let mut last: Option<Vec<u8>> = None;
    loop {
        let lower = match &last {
            None => Bound::Included(&from[..]),
            Some(last) => Bound::Excluded(last.as_slice()),
        };
        let pairs = execution
            .work
            .range(Room::Elements, lower, end.as_deref())?;
        let pairs: Vec<_> = pairs.take(AT_ONCE).collect::<gabion::Result<_>>()?;
        let Some((key, _)) = pairs.last() else {
            return Ok(());
        };
        last = Some(key.to_vec());
        for (key, value) in &pairs {
            let element = key.get(PREFIX_BYTES..).unwrap_or_default();
            let key = [&to[..], element].concat();
            execution.work.write(Room::Elements, &key, Some(value))?;
        }
    }
}

fn swapdb(execution: &mut Execution<'_>) -> Result<()> {
    let number = |execution: &Execution<'_>, place: usize, said: &'static str| {
        let number = crate::args::integer(execution.arg(place)).ok_or(Fault::line(said))?;
        usize::try_from(number)
            .ok()
            .filter(|database| *database < execution.server.store.databases())
            .ok_or(Fault::line("ERR DB index is out of range"))
    };
    let one = number(execution, 1, "ERR invalid first DB index")?;
    let other = number(execution, 2, "ERR invalid second DB index")?;
    if one != other {
        touch_swapped(execution, one, other)?;
        execution.work.swap(one, other)?;
        // Who waits for a key of either database looks again.
        for database in [one, other] {
            for key in execution.server.blocking.keys_of(database) {
                let space = execution.server.store.space(database);
                execution.work.touch(space, &key);
            }
        }
    }
    execution.reply.ok();
    Ok(())
}

/// Whoever watches a key by a database that gets other keys is told, if the key is in one of them.
fn touch_swapped(execution: &mut Execution<'_>, one: usize, other: usize) -> Result<()> {
    if !execution.server.watch.is_used() {
        return Ok(());
    }
    let store = &execution.server.store;
    let spaces = [store.space(one), store.space(other)];
    let mut failed = Ok(());
    let work = &mut *execution.work;
    execution.server.watch.touch_all(|(space, key)| {
        spaces.contains(space)
            && spaces.iter().any(|space| match work.find(*space, key) {
                Ok(found) => found.is_some(),
                Err(error) => {
                    failed = Err(error);
                    true
                }
            })
    });
    failed
}
