//! Sorted sets: parts by places, scores and members.

use std::ops::Bound;

use crate::args::{Args, float};
use crate::command::{
    Command, CommandGroup, DENYOOM, DIRECT, FAST, READONLY, WRITE, command, parse_integer,
};
use crate::commands::read_many;
use crate::commands::zset::show;
use crate::events::EventClasses;
use crate::execution::Execution;
use crate::fault::{Fault, Result};
use crate::store::scored::{ScoredMember, SortedSet, SortedSetRange};

const ABOUT: CommandGroup = CommandGroup::SortedSet;

pub(crate) const COMMANDS: &[Command] = &[
    command("zcount", 4, zcount)
        .flags(READONLY | FAST)
        .keys(1, 1, 1)
        .about(ABOUT, "2.0.0", "Counts the members in a range of scores."),
    command("zlexcount", 4, zlexcount)
        .flags(READONLY | FAST)
        .keys(1, 1, 1)
        .about(ABOUT, "2.8.9", "Counts the members in a range of members."),
    command("zrange", -4, zrange)
        .flags(READONLY)
        .keys(1, 1, 1)
        .about(ABOUT, "1.2.0", "Returns a part of a sorted set."),
    command("zrangebylex", -4, zrangebylex)
        .flags(READONLY)
        .keys(1, 1, 1)
        .about(ABOUT, "2.8.9", "Returns the members in a range of members."),
    command("zrangebyscore", -4, zrangebyscore)
        .flags(READONLY)
        .keys(1, 1, 1)
        .about(ABOUT, "1.0.5", "Returns the members in a range of scores."),
    command("zrangestore", -5, zrangestore)
        .flags(WRITE | DENYOOM)
        .keys(1, 2, 1)
        .about(ABOUT, "6.2.0", "Stores a part of a sorted set."),
    command("zremrangebylex", 4, zremrangebylex)
        .flags(WRITE | DIRECT)
        .keys(1, 1, 1)
        .about(ABOUT, "2.8.9", "Removes the members in a range of members."),
    command("zremrangebyrank", 4, zremrangebyrank)
        .flags(WRITE | DIRECT)
        .keys(1, 1, 1)
        .about(ABOUT, "2.0.0", "Removes the members in a range of places."),
    command("zremrangebyscore", 4, zremrangebyscore)
        .flags(WRITE | DIRECT)
        .keys(1, 1, 1)
        .about(ABOUT, "1.2.0", "Removes the members in a range of scores."),
    command("zrevrange", -4, zrevrange)
        .flags(READONLY)
        .keys(1, 1, 1)
        .about(ABOUT, "1.2.0", "Returns a part, from the highest score on."),
    command("zrevrangebylex", -4, zrevrangebylex)
        .flags(READONLY)
        .keys(1, 1, 1)
        .about(
            ABOUT,
            "2.8.9",
            "Returns the members in a range, the last first.",
        ),
    command("zrevrangebyscore", -4, zrevrangebyscore)
        .flags(READONLY)
        .keys(1, 1, 1)
        .about(
            ABOUT,
            "2.2.0",
            "Returns the members in a range, the highest score first.",
        ),
];

/// By what a range is stated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Place,
    Score,
    Member,
}

/// A range as it is stated: what is known before the set is.
#[derive(Clone, Debug)]
enum Stated {
    Places(i64, i64),
    Part(SortedSetRange),
}

fn score_bound(text: &[u8]) -> Result<Bound<f64>> {
    let wrong = Fault::line("ERR min or max is not a float");
    match text.strip_prefix(b"(") {
        Some(text) => float(text).map(Bound::Excluded).ok_or(wrong),
        None => float(text).map(Bound::Included).ok_or(wrong),
    }
}

/// A bound of members; `None` behind all, or before all.
fn member_bound(text: &[u8]) -> Result<(Bound<Vec<u8>>, Option<u8>)> {
    match text {
        b"-" | b"+" => Ok((Bound::Unbounded, text.first().copied())),
        [b'(', member @ ..] => Ok((Bound::Excluded(member.to_vec()), None)),
        [b'[', member @ ..] => Ok((Bound::Included(member.to_vec()), None)),
        _ => Err(Fault::line("ERR min or max not valid string range item")),
    }
}

fn member_range(min: &[u8], max: &[u8]) -> Result<SortedSetRange> {
    let (min, low) = member_bound(min)?;
    let (max, high) = member_bound(max)?;
    // From behind all, or to before all, there is nothing.
    if low == Some(b'+') || high == Some(b'-') {
        return Ok(SortedSetRange::Places(1, 0));
    }
    Ok(SortedSetRange::Members(min, max))
}

fn stated(by: By, min: &[u8], max: &[u8]) -> Result<Stated> {
    Ok(match by {
        By::Place => Stated::Places(parse_integer(min)?, parse_integer(max)?),
        By::Score => Stated::Part(SortedSetRange::Scores(score_bound(min)?, score_bound(max)?)),
        By::Member => Stated::Part(member_range(min, max)?),
    })
}

/// The part of a set; places that are negative count from the end.
fn part(set: &SortedSet, stated: Stated) -> SortedSetRange {
    let (from, to) = match stated {
        Stated::Part(range) => return range,
        Stated::Places(from, to) => (from, to),
    };
    let count = i64::try_from(set.count()).unwrap_or(i64::MAX);
    let place = |number: i64| match number < 0 {
        true => number.saturating_add(count),
        false => number,
    };
    match (u64::try_from(place(from).max(0)), u64::try_from(place(to))) {
        (Ok(from), Ok(to)) => SortedSetRange::Places(from, to),
        _ => SortedSetRange::Places(1, 0),
    }
}

/// What a command asks for.
#[derive(Debug)]
struct Asked {
    stated: Stated,
    is_reverse: bool,
    with_scores: bool,
    /// How many of the part are left out.
    offset: usize,
    /// How many of the others are wanted.
    limit: usize,
}

/// The arguments from the lower bound on. `by` and `is_reverse` are known for all commands but
/// `ZRANGE` and `ZRANGESTORE`.
fn asked(args: Args<'_>, known: Option<(By, bool)>, stores: bool) -> Result<Asked> {
    let (mut by, mut is_reverse) = known.unwrap_or((By::Place, false));
    let (mut with_scores, mut limits) = (false, None);
    let mut at = 2;
    while let Some(word) = args.get(at) {
        let is_free = known.is_none();
        match word.to_ascii_lowercase().as_slice() {
            b"withscores" if !stores => with_scores = true,
            b"limit" if args.len() > at + 2 => {
                limits = Some((
                    parse_integer(args.at(at + 1))?,
                    parse_integer(args.at(at + 2))?,
                ));
                at += 2;
            }
            b"byscore" if is_free => by = By::Score,
            b"bylex" if is_free => by = By::Member,
            b"rev" if is_free => is_reverse = true,
            _ => return Err(Fault::SYNTAX),
        }
        at += 1;
    }
    if limits.is_some() && by == By::Place {
        return Err(Fault::line(
            "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX",
        ));
    }
    if with_scores && by == By::Member {
        return Err(Fault::line(
            "ERR syntax error, WITHSCORES not supported in combination with BYLEX",
        ));
    }
    let (min, max) = match is_reverse && by != By::Place {
        true => (args.at(1), args.at(0)),
        false => (args.at(0), args.at(1)),
    };
    let (offset, limit) = limits.unwrap_or((0, -1));
    // A negative offset leaves nothing, a negative limit is none.
    let limit = match offset < 0 {
        true => 0,
        false => usize::try_from(limit).unwrap_or(usize::MAX),
    };
    Ok(Asked {
        stated: stated(by, min, max)?,
        is_reverse,
        with_scores,
        offset: usize::try_from(offset).unwrap_or_default(),
        limit,
    })
}

fn find(
    execution: &mut Execution<'_>,
    set: &SortedSet,
    asked: &Asked,
) -> Result<Vec<ScoredMember>> {
    let range = part(set, asked.stated.clone());
    let mut found = Vec::new();
    let mut skipped = 0;
    if asked.limit == 0 {
        return Ok(found);
    }
    set.visit(execution.work, &range, asked.is_reverse, |member, score| {
        if skipped < asked.offset {
            skipped += 1;
            return true;
        }
        found.push((member.to_vec(), score));
        found.len() < asked.limit
    })?;
    Ok(found)
}

fn range(execution: &mut Execution<'_>, known: Option<(By, bool)>) -> Result<()> {
    let asked = asked(execution.args.from(2), known, false)?;
    let set = SortedSet::look_up(execution, execution.arg(1))?;
    let count = match part(&set, asked.stated.clone()) {
        SortedSetRange::Places(from, to) => to.min(set.count()).saturating_sub(from),
        // How many have such scores is not known before.
        _ => 0,
    };
    let found = read_many(count, || find(execution, &set, &asked))?;
    show(execution.reply, &found, asked.with_scores);
    Ok(())
}

fn zrange(execution: &mut Execution<'_>) -> Result<()> {
    range(execution, None)
}

fn zrevrange(execution: &mut Execution<'_>) -> Result<()> {
    range(execution, Some((By::Place, true)))
}

fn zrangebyscore(execution: &mut Execution<'_>) -> Result<()> {
    range(execution, Some((By::Score, false)))
}

fn zrevrangebyscore(execution: &mut Execution<'_>) -> Result<()> {
    range(execution, Some((By::Score, true)))
}

fn zrangebylex(execution: &mut Execution<'_>) -> Result<()> {
    range(execution, Some((By::Member, false)))
}

fn zrevrangebylex(execution: &mut Execution<'_>) -> Result<()> {
    range(execution, Some((By::Member, true)))
}

fn zrangestore(execution: &mut Execution<'_>) -> Result<()> {
    let to = execution.arg(1);
    let asked = asked(execution.args.from(3), None, true)?;
    let set = SortedSet::look_up(execution, execution.arg(2))?;
    let found = find(execution, &set, &asked)?;
    store(execution, to, &found, "zrangestore")?;
    execution.reply.count(found.len());
    Ok(())
}

/// Puts members into a key, in the place of whatever it is.
///
/// # Errors
/// Of the store.
pub(crate) fn store(
    execution: &mut Execution<'_>,
    to: &[u8],
    members: &[ScoredMember],
    name: &'static str,
) -> Result<()> {
    if members.is_empty() {
        if execution.remove(to)? {
            execution.notify(EventClasses::GENERIC, "del", to);
        }
        return Ok(());
    }
    let mut set = SortedSet::empty(execution.space());
    for (member, score) in members {
        set.set(execution.work, member, *score)?;
    }
    set.save(execution, to)?;
    execution.notify(EventClasses::SORTED_SET, name, to);
    Ok(())
}

fn count(execution: &mut Execution<'_>, by: By) -> Result<()> {
    let stated = stated(by, execution.arg(2), execution.arg(3))?;
    let set = SortedSet::look_up(execution, execution.arg(1))?;
    let range = part(&set, stated);
    let count = set.count_of(execution.work, &range)?;
    execution.reply.unsigned(count);
    Ok(())
}

fn zcount(execution: &mut Execution<'_>) -> Result<()> {
    count(execution, By::Score)
}

fn zlexcount(execution: &mut Execution<'_>) -> Result<()> {
    count(execution, By::Member)
}

fn remove(execution: &mut Execution<'_>, by: By, name: &'static str) -> Result<()> {
    let key = execution.arg(1);
    let stated = stated(by, execution.arg(2), execution.arg(3))?;
    let mut set = SortedSet::open(execution, key)?;
    let range = part(&set, stated);
    let found = set.part(execution.work, &range, false)?;
    for (member, _) in &found {
        set.remove(execution.work, member)?;
    }
    let saved = set.save(execution, key)?;
    execution.tell(saved, EventClasses::SORTED_SET, name, key);
    execution.reply.count(found.len());
    Ok(())
}

fn zremrangebyrank(execution: &mut Execution<'_>) -> Result<()> {
    remove(execution, By::Place, "zremrangebyrank")
}

fn zremrangebyscore(execution: &mut Execution<'_>) -> Result<()> {
    remove(execution, By::Score, "zremrangebyscore")
}

fn zremrangebylex(execution: &mut Execution<'_>) -> Result<()> {
    remove(execution, By::Member, "zremrangebylex")
}
