//! Lists.

use crate::command::{
    Command, CommandGroup, DENYOOM, DIRECT, FAST, READONLY, WRITE, command, parse_integer,
};
use crate::commands::read_many;
use crate::events::EventClasses;
use crate::execution::Execution;
use crate::fault::{Fault, Result};
use crate::store::list::{List, ListEnd};
use crate::store::meta::SaveOutcome;

const ABOUT: CommandGroup = CommandGroup::List;
const ADD: u32 = WRITE | DENYOOM | FAST | DIRECT;

pub(crate) const COMMANDS: &[Command] = &[
    command("lindex", 3, lindex)
        .flags(READONLY)
        .keys(1, 1, 1)
        .about(ABOUT, "1.0.0", "Returns an element by its index."),
    command("linsert", 5, linsert)
        .flags(WRITE | DENYOOM | DIRECT)
        .keys(1, 1, 1)
        .about(ABOUT, "2.2.0", "Puts an element before or behind another."),
    command("llen", 2, llen)
        .flags(READONLY | FAST)
        .keys(1, 1, 1)
        .about(ABOUT, "1.0.0", "Counts the elements of a list."),
    command("lpop", -2, lpop)
        .flags(WRITE | FAST | DIRECT)
        .keys(1, 1, 1)
        .about(
            ABOUT,
            "1.0.0",
            "Returns the first elements and removes them.",
        ),
    command("lpos", -3, lpos)
        .flags(READONLY)
        .keys(1, 1, 1)
        .about(ABOUT, "6.0.6", "Returns the positions of an element."),
    command("lpush", -3, lpush).flags(ADD).keys(1, 1, 1).about(
        ABOUT,
        "1.0.0",
        "Adds elements at the front of a list.",
    ),
    command("lpushx", -3, lpushx)
        .flags(ADD)
        .keys(1, 1, 1)
        .about(
            ABOUT,
            "2.2.0",
            "Adds elements at the front of a list that exists.",
        ),
    command("lrange", 4, lrange)
        .flags(READONLY)
        .keys(1, 1, 1)
        .about(ABOUT, "1.0.0", "Returns a part of a list."),
    command("lrem", 4, lrem)
        .flags(WRITE | DIRECT)
        .keys(1, 1, 1)
        .about(ABOUT, "1.0.0", "Removes elements that are equal to one."),
    command("lset", 4, lset)
        .flags(WRITE | DENYOOM | DIRECT)
        .keys(1, 1, 1)
        .about(ABOUT, "1.0.0", "Replaces an element."),
    command("ltrim", 4, ltrim)
        .flags(WRITE | DIRECT)
        .keys(1, 1, 1)
        .about(ABOUT, "1.0.0", "Keeps a part of a list only."),
    command("rpop", -2, rpop)
        .flags(WRITE | FAST | DIRECT)
        .keys(1, 1, 1)
        .about(
            ABOUT,
            "1.0.0",
            "Returns the last elements and removes them.",
        ),
    command("rpush", -3, rpush).flags(ADD).keys(1, 1, 1).about(
        ABOUT,
        "1.0.0",
        "Adds elements at the end of a list.",
    ),
    command("rpushx", -3, rpushx)
        .flags(ADD)
        .keys(1, 1, 1)
        .about(
            ABOUT,
            "2.2.0",
            "Adds elements at the end of a list that exists.",
        ),
];

/// The name of a push at an end.
pub(crate) fn push_name(at: ListEnd) -> &'static str {
    match at {
        ListEnd::Left => "lpush",
        ListEnd::Right => "rpush",
    }
}

/// The name of a pop at an end.
pub(crate) fn pop_name(at: ListEnd) -> &'static str {
    match at {
        ListEnd::Left => "lpop",
        ListEnd::Right => "rpop",
    }
}

fn push(execution: &mut Execution<'_>, at: ListEnd, only_if_there: bool) -> Result<()> {
    let key = execution.arg(1);
    let mut list = List::open(execution, key)?;
    if only_if_there && list.count() == 0 {
        execution.reply.integer(0);
        return Ok(());
    }
    for element in execution.args.from(2).iter() {
        list.push(execution.work, at, element)?;
    }
    let count = list.count();
    let saved = list.save(execution, key)?;
    execution.tell(saved, EventClasses::LIST, push_name(at), key);
    execution.reply.count(count);
    Ok(())
}

fn lpush(execution: &mut Execution<'_>) -> Result<()> {
    push(execution, ListEnd::Left, false)
}

fn rpush(execution: &mut Execution<'_>) -> Result<()> {
    push(execution, ListEnd::Right, false)
}

fn lpushx(execution: &mut Execution<'_>) -> Result<()> {
    push(execution, ListEnd::Left, true)
}

fn rpushx(execution: &mut Execution<'_>) -> Result<()> {
    push(execution, ListEnd::Right, true)
}

fn pop(execution: &mut Execution<'_>, at: ListEnd) -> Result<()> {
    let key = execution.arg(1);
    if execution.args.len() > 3 {
        return Err(execution.wrong_arguments());
    }
    let count = match execution.args.get(2) {
        None => None,
        Some(count) => {
            let count = crate::args::integer(count).filter(|count| *count >= 0);
            let count = count.and_then(|count| usize::try_from(count).ok());
            Some(count.ok_or(Fault::line("ERR value is out of range, must be positive"))?)
        }
    };
    let mut list = List::open(execution, key)?;
    if list.count() == 0 {
        match count {
            None => execution.reply.null(),
            Some(_) => execution.reply.null_array(),
        }
        return Ok(());
    }
    let Some(count) = count else {
        let element = list.pop(execution.work, at)?;
        let saved = list.save(execution, key)?;
        execution.tell(saved, EventClasses::LIST, pop_name(at), key);
        execution.reply.bulk_or_null(element);
        return Ok(());
    };
    let elements = pop_many(execution, key, list, at, count)?;
    execution.reply.array(elements.len());
    for element in elements {
        execution.reply.bulk(element);
    }
    Ok(())
}

/// Takes elements from an end of a list, and saves it.
///
/// # Errors
/// Of the store.
pub(crate) fn pop_many(
    execution: &mut Execution<'_>,
    key: &[u8],
    mut list: List,
    at: ListEnd,
    count: usize,
) -> Result<Vec<Vec<u8>>> {
    let all = list.count();
    let count = count.min(all);
    let (taken, kept) = match at {
        ListEnd::Left => (0..count, count..all),
        ListEnd::Right => (all - count..all, 0..all - count),
    };
    let mut elements = list.part(execution.work, taken)?;
    if at == ListEnd::Right {
        elements.reverse();
    }
    if count > 0 {
        list.trim(execution.work, kept)?;
    }
    let saved = list.save(execution, key)?;
    execution.tell(saved, EventClasses::LIST, pop_name(at), key);
    Ok(elements)
}

fn lpop(execution: &mut Execution<'_>) -> Result<()> {
    pop(execution, ListEnd::Left)
}

fn rpop(execution: &mut Execution<'_>) -> Result<()> {
    pop(execution, ListEnd::Right)
}

fn llen(execution: &mut Execution<'_>) -> Result<()> {
    let list = List::look_up(execution, execution.arg(1))?;
    execution.reply.count(list.count());
    Ok(())
}

fn lindex(execution: &mut Execution<'_>) -> Result<()> {
    let list = List::look_up(execution, execution.arg(1))?;
    if list.count() == 0 {
        execution.reply.null();
        return Ok(());
    }
    let place = list.place(parse_integer(execution.arg(2))?);
    let element = match usize::try_from(place) {
        Ok(place) => list.get(execution.work, place)?,
        Err(_) => None,
    };
    execution.reply.bulk_or_null(element);
    Ok(())
}

fn lrange(execution: &mut Execution<'_>) -> Result<()> {
    let from = parse_integer(execution.arg(2))?;
    let to = parse_integer(execution.arg(3))?;
    let list = List::look_up(execution, execution.arg(1))?;
    let places = list.places(from, to);
    let Execution { work, reply, .. } = execution;
    reply.array(places.len());
    read_many(places.len() as u64, || {
        list.visit(work, places, false, |_, element| {
            reply.bulk(element);
            true
        })
    })
}

fn lset(execution: &mut Execution<'_>) -> Result<()> {
    let key = execution.arg(1);
    let mut list = List::open(execution, key)?;
    if list.count() == 0 {
        return Err(Fault::NO_SUCH_KEY);
    }
    let place = list.place(parse_integer(execution.arg(2))?);
    let place = usize::try_from(place)
        .ok()
        .filter(|place| *place < list.count());
    let place = place.ok_or(Fault::line("ERR index out of range"))?;
    list.set(execution.work, place, execution.args.at(3))?;
    let saved = list.save(execution, key)?;
    execution.tell(saved, EventClasses::LIST, "lset", key);
    execution.reply.ok();
    Ok(())
}

fn ltrim(execution: &mut Execution<'_>) -> Result<()> {
    let key = execution.arg(1);
    let from = parse_integer(execution.arg(2))?;
    let to = parse_integer(execution.arg(3))?;
    let mut list = List::open(execution, key)?;
    let is_there = list.count() > 0;
    let places = list.places(from, to);
    list.trim(execution.work, places)?;
    let saved = list.save(execution, key)?;
    if is_there {
        execution.notify(EventClasses::LIST, "ltrim", key);
    }
    if saved == SaveOutcome::Removed {
        execution.notify(EventClasses::GENERIC, "del", key);
    }
    execution.reply.ok();
    Ok(())
}

fn linsert(execution: &mut Execution<'_>) -> Result<()> {
    let (key, pivot, element) = (execution.arg(1), execution.arg(3), execution.arg(4));
    let is_behind = match execution.arg(2).to_ascii_lowercase().as_slice() {
        b"before" => false,
        b"after" => true,
        _ => return Err(Fault::SYNTAX),
    };
    let mut list = List::open(execution, key)?;
    if list.count() == 0 {
        execution.reply.integer(0);
        return Ok(());
    }
    let found = places_of(execution, &list, pivot, (1, usize::MAX, false))?;
    let Some(place) = found.first() else {
        execution.reply.integer(-1);
        return Ok(());
    };
    let place = place + usize::from(is_behind);
    list.insert(execution.work, place, element)?;
    let count = list.count();
    let saved = list.save(execution, key)?;
    execution.tell(saved, EventClasses::LIST, "linsert", key);
    execution.reply.count(count);
    Ok(())
}

/// The places of an element, in ascending order or from the last on: so many, among so many.
fn places_of(
    execution: &mut Execution<'_>,
    list: &List,
    element: &[u8],
    (count, among, is_reverse): (usize, usize, bool),
) -> Result<Vec<usize>> {
    let mut places = Vec::new();
    let mut seen = 0;
    list.visit(
        execution.work,
        0..list.count(),
        is_reverse,
        |place, other| {
            if other == element {
                places.push(place);
            }
            seen += 1;
            places.len() < count && seen < among
        },
    )?;
    Ok(places)
}

fn lrem(execution: &mut Execution<'_>) -> Result<()> {
    let (key, element) = (execution.arg(1), execution.arg(3));
    let count = parse_integer(execution.arg(2))?;
    let most = match count {
        0 => usize::MAX,
        count => usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX),
    };
    let mut list = List::open(execution, key)?;
    let mut places = places_of(execution, &list, element, (most, usize::MAX, count < 0))?;
    places.sort_unstable();
    list.remove(execution.work, &places)?;
    let saved = list.save(execution, key)?;
    execution.tell(saved, EventClasses::LIST, "lrem", key);
    execution.reply.count(places.len());
    Ok(())
}

fn lpos(execution: &mut Execution<'_>) -> Result<()> {
    let args = execution.args;
    let (mut rank, mut count, mut among) = (1_i64, None, usize::MAX);
    let mut at = 3;
    while let Some(word) = args.get(at) {
        let value = args.get(at + 1).ok_or(Fault::SYNTAX)?;
        match word.to_ascii_lowercase().as_slice() {
            b"rank" => {
                rank = parse_integer(value)?;
                if rank == 0 {
                    return Err(Fault::line(
                        "ERR RANK can't be zero: use 1 to start from the first match, 2 from the \
                         second ... or use negative to start from the end of the list",
                    ));
                }
                if rank == i64::MIN {
                    return Err(Fault::line("ERR value is out of range"));
                }
            }
            b"count" => {
                let number = parse_integer(value)?;
                let number = usize::try_from(number);
                count = Some(number.map_err(|_| Fault::line("ERR COUNT can't be negative"))?);
            }
            b"maxlen" => {
                let number = parse_integer(value)?;
                let number = usize::try_from(number);
                among = number.map_err(|_| Fault::line("ERR MAXLEN can't be negative"))?;
                if among == 0 {
                    among = usize::MAX;
                }
            }
            _ => return Err(Fault::SYNTAX),
        }
        at += 2;
    }
    let list = List::look_up(execution, args.at(1))?;
    let skipped = usize::try_from(rank.unsigned_abs() - 1).unwrap_or(usize::MAX);
    let most = match count {
        None => 1,
        Some(0) => usize::MAX,
        Some(count) => count,
    };
    let wanted = skipped.saturating_add(most);
    let found = places_of(execution, &list, args.at(2), (wanted, among, rank < 0))?;
    let mut found = found.into_iter().skip(skipped);
    match count {
        None => match found.next() {
            Some(place) => execution.reply.count(place),
            None => execution.reply.null(),
        },
        Some(_) => {
            execution.reply.array(found.len());
            for place in found {
                execution.reply.count(place);
            }
        }
    }
    Ok(())
}
