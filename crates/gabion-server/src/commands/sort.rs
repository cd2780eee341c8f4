//! `SORT` and `SORT_RO`: the elements of a list, a set or a sorted set, in the order of themselves
//! or of other keys, which patterns name.

use std::cmp::Ordering;

use crate::args::float;
use crate::command::{
    Command, CommandGroup, DENYOOM, LONG, MOVABLE_KEYS, READONLY, WRITE, command, parse_integer,
};
use crate::events::EventClasses;
use crate::execution::Execution;
use crate::fault::{Fault, Result};
use crate::store::hash::Hash;
use crate::store::list::{List, ListEnd};
use crate::store::members::Members;
use crate::store::meta::KeyType;
use crate::store::scored::{SortedSet, SortedSetRange};

pub(crate) const COMMANDS: &[Command] = &[
    command("sort", -2, sort)
        .flags(WRITE | DENYOOM | LONG)
        .stored_keys("store")
        .about(
            CommandGroup::Generic,
            "1.0.0",
            "Returns or stores the sorted elements of a list, set or sorted set.",
        ),
    command("sort_ro", -2, sort_ro)
        .flags(READONLY | LONG | MOVABLE_KEYS)
        .keys(1, 1, 1)
        .about(
            CommandGroup::Generic,
            "7.0.0",
            "Returns the sorted elements of a list, set or sorted set.",
        ),
];

/// What a command asks for.
#[derive(Debug, Default)]
struct Asked<'a> {
    by: Option<&'a [u8]>,
    get: Vec<&'a [u8]>,
    limit: Option<(i64, i64)>,
    is_descending: bool,
    is_alpha: bool,
    store: Option<&'a [u8]>,
}

impl Asked<'_> {
    /// Whether the elements are to be in an order of their own: a pattern without a star names the
    /// same key for all.
    fn sorts(&self) -> bool {
        self.by.is_none_or(|pattern| pattern.contains(&b'*'))
    }
}

/// Checks whether the user may read whatever keys a pattern names.
fn check_patterns(execution: &Execution<'_>, option: &str) -> Result<()> {
    let user = &execution.session.user;
    let (commands, command) = (execution.commands, execution.command);
    let may = user.is_unlimited()
        || user
            .rights()
            .reads_all_keys(commands, command, execution.args);
    match may {
        true => Ok(()),
        false => Err(Fault::new(format!(
            "ERR {option} option of SORT denied due to insufficient ACL permissions."
        ))),
    }
}

fn asked<'a>(execution: &Execution<'a>, stores: bool) -> Result<Asked<'a>> {
    let args = execution.args;
    let mut asked = Asked::default();
    let mut at = 2;
    while let Some(word) = args.get(at) {
        let value = args.get(at + 1);
        at += 1;
        match (word.to_ascii_lowercase().as_slice(), value) {
            (b"asc", _) => asked.is_descending = false,
            (b"desc", _) => asked.is_descending = true,
            (b"alpha", _) => asked.is_alpha = true,
            (b"limit", Some(offset)) if args.len() > at + 1 => {
                asked.limit = Some((parse_integer(offset)?, parse_integer(args.at(at + 1))?));
                at += 2;
            }
            (b"store", Some(to)) if stores => {
                asked.store = Some(to);
                at += 1;
            }
            (b"by", Some(pattern)) => {
                if pattern.contains(&b'*') {
                    check_patterns(execution, "BY")?;
                }
                asked.by = Some(pattern);
                at += 1;
            }
            (b"get", Some(pattern)) => {
                check_patterns(execution, "GET")?;
                asked.get.push(pattern);
                at += 1;
            }
            _ => return Err(Fault::SYNTAX),
        }
    }
    Ok(asked)
}

/// The elements of a key, in the order that they have; and whether they have one.
fn elements(execution: &mut Execution<'_>, asked: &Asked<'_>) -> Result<(Vec<Vec<u8>>, bool)> {
    let space = execution.space();
    let Some(meta) = execution.look_up(execution.arg(1))? else {
        return Ok((Vec::new(), true));
    };
    let work = &mut *execution.work;
    match meta.head.kind {
        KeyType::List => {
            let list = List::of(space, Some(&meta))?;
            Ok((list.part(work, 0..list.count())?, true))
        }
        KeyType::Set => {
            let set = Members::of(space, Some(&meta), KeyType::Set)?;
            let all = set.all(work)?;
            Ok((all.into_iter().map(|(member, _)| member).collect(), false))
        }
        KeyType::SortedSet => {
            let set = SortedSet::of(space, Some(&meta))?;
            // Where nothing else orders them, they come by score.
            let is_reverse = asked.is_descending && !asked.sorts();
            let all = set.part(work, &SortedSetRange::ALL, is_reverse)?;
            Ok((all.into_iter().map(|(member, _)| member).collect(), true))
        }
        _ => Err(Fault::WRONG_TYPE),
    }
}

/// What a pattern names for an element: the element itself for `#`, or a string, or a field of a
/// hash behind `->`.
fn named(execution: &mut Execution<'_>, pattern: &[u8], element: &[u8]) -> Result<Option<Vec<u8>>> {
    if pattern == b"#" {
        return Ok(Some(element.to_vec()));
    }
    let Some(star) = pattern.iter().position(|byte| *byte == b'*') else {
        return Ok(None);
    };
    let (front, back) = (&pattern[..star], &pattern[star + 1..]);
    // An arrow at the very end is a part of the key.
    let arrow = back.windows(2).position(|two| two == b"->");
    let arrow = arrow.filter(|arrow| arrow + 2 < back.len());
    let (back, field) = match arrow {
        Some(arrow) => (&back[..arrow], Some(&back[arrow + 2..])),
        None => (back, None),
    };
    let key = [front, element, back].concat();
    let Some(meta) = execution.find(&key)? else {
        return Ok(None);
    };
    let space = execution.space();
    match (field, meta.head.kind) {
        (None, KeyType::String) => Ok(Some(meta.body().to_vec())),
        (Some(field), KeyType::Hash) => {
            let hash = Hash::of(execution.work, space, Some(&meta))?;
            hash.value(execution.work, field)
        }
        _ => Ok(None),
    }
}

/// What an element is sorted by.
#[derive(Debug)]
enum Weight {
    Number(f64),
    Text(Option<Vec<u8>>),
}

fn weight(execution: &mut Execution<'_>, asked: &Asked<'_>, element: &[u8]) -> Result<Weight> {
    let text = match asked.by {
        None => Some(element.to_vec()),
        Some(pattern) => named(execution, pattern, element)?,
    };
    if asked.is_alpha {
        return Ok(Weight::Text(text));
    }
    let number = match &text {
        None => Some(0.0),
        Some(text) => float(text),
    };
    number.map(Weight::Number).ok_or(Fault::line(
        "ERR One or more scores can't be converted into double",
    ))
}

fn compare(one: &Weight, other: &Weight) -> Ordering {
    match (one, other) {
        (Weight::Number(one), Weight::Number(other)) => one.total_cmp(other),
        (Weight::Text(one), Weight::Text(other)) => one.cmp(other),
        _ => Ordering::Equal,
    }
}

/// The elements in the order that is asked for.
fn sorted(execution: &mut Execution<'_>, asked: &Asked<'_>) -> Result<Vec<Vec<u8>>> {
    let (elements, has_order) = elements(execution, asked)?;
    // What is stored, or comes from a set by a pattern that orders nothing, has a fixed order.
    let is_free =
        !asked.sorts() && !has_order && (asked.store.is_some() || execution.is_of_script());
    if !asked.sorts() && !is_free {
        return Ok(elements);
    }
    let mut weighed = Vec::with_capacity(elements.len());
    for element in elements {
        let weight = match is_free {
            true => Weight::Text(Some(element.clone())),
            false => weight(execution, asked, &element)?,
        };
        weighed.push((weight, element));
    }
    weighed.sort_by(|(one, first), (other, second)| {
        let by_weight = compare(one, other);
        // Equal ones are told apart by themselves, so that the order is always the same.
        let by_all = match asked.by {
            Some(_) => by_weight.then_with(|| first.cmp(second)),
            None if asked.is_alpha => by_weight,
            None => by_weight.then_with(|| first.cmp(second)),
        };
        match asked.is_descending {
            true => by_all.reverse(),
            false => by_all,
        }
    });
    Ok(weighed.into_iter().map(|(_, element)| element).collect())
}

fn run(execution: &mut Execution<'_>, stores: bool) -> Result<()> {
    let asked = asked(execution, stores)?;
    let elements = sorted(execution, &asked)?;
    let (offset, limit) = asked.limit.unwrap_or((0, -1));
    let offset = usize::try_from(offset).unwrap_or_default();
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let mut found = Vec::new();
    for element in elements.into_iter().skip(offset).take(limit) {
        if asked.get.is_empty() {
            found.push(Some(element));
            continue;
        }
        for pattern in &asked.get {
            found.push(named(execution, pattern, &element)?);
        }
    }
    let Some(to) = asked.store else {
        execution.reply.array(found.len());
        for element in found {
            execution.reply.bulk_or_null(element);
        }
        return Ok(());
    };
    if found.is_empty() {
        if execution.remove(to)? {
            execution.notify(EventClasses::GENERIC, "del", to);
        }
    } else {
        let mut list = List::empty(execution.space());
        for element in &found {
            let element = element.as_deref().unwrap_or_default();
            list.push(execution.work, ListEnd::Right, element)?;
        }
        list.save(execution, to)?;
        execution.notify(EventClasses::LIST, "sortstore", to);
    }
    execution.reply.count(found.len());
    Ok(())
}

fn sort(execution: &mut Execution<'_>) -> Result<()> {
    run(execution, true)
}

fn sort_ro(execution: &mut Execution<'_>) -> Result<()> {
    run(execution, false)
}
