//! Sorted sets: members and their scores.

use crate::args::{Args, float};
use crate::command::{Command, CommandGroup, DENYOOM, DIRECT, FAST, READONLY, WRITE, command};
use crate::commands::picks::{RandomPicks, picks};
use crate::commands::scan;
use crate::events::EventClasses;
use crate::execution::Execution;
use crate::fault::{Fault, Result};
use crate::glob;
use crate::resp::reply::ReplyBuffer;
use crate::store::scored::{ScoredMember, SortedSet};

const ABOUT: CommandGroup = CommandGroup::SortedSet;

/// The error for a sum of infinities of opposite signs.
pub(crate) const NOT_A_SCORE: Fault = Fault::line("ERR resulting score is not a number (NaN)");

pub(crate) const COMMANDS: &[Command] = &[
    command("zadd", -4, zadd)
        .flags(WRITE | DENYOOM | FAST | DIRECT)
        .keys(1, 1, 1)
        .about(ABOUT, "1.2.0", "Adds members with their scores."),
    command("zcard", 2, zcard)
        .flags(READONLY | FAST)
        .keys(1, 1, 1)
        .about(ABOUT, "1.2.0", "Counts the members of a sorted set."),
    command("zincrby", 4, zincrby)
        .flags(WRITE | DENYOOM | FAST | DIRECT)
        .keys(1, 1, 1)
        .about(ABOUT, "1.2.0", "Adds to the score of a member."),
    command("zmscore", -3, zmscore)
        .flags(READONLY | FAST)
        .keys(1, 1, 1)
        .about(ABOUT, "6.2.0", "Returns the scores of members."),
    command("zrandmember", -2, zrandmember)
        .flags(READONLY)
        .keys(1, 1, 1)
        .about(ABOUT, "6.2.0", "Returns random members."),
    command("zrank", -3, zrank)
        .flags(READONLY | FAST)
        .keys(1, 1, 1)
        .about(
            ABOUT,
            "2.0.0",
            "Returns the rank of a member, from the lowest score.",
        ),
    command("zrem", -3, zrem)
        .flags(WRITE | FAST | DIRECT)
        .keys(1, 1, 1)
        .about(ABOUT, "1.2.0", "Removes members from a sorted set."),
    command("zrevrank", -3, zrevrank)
        .flags(READONLY | FAST)
        .keys(1, 1, 1)
        .about(
            ABOUT,
            "2.0.0",
            "Returns the rank of a member, from the highest score.",
        ),
    command("zscan", -3, zscan)
        .flags(READONLY)
        .keys(1, 1, 1)
        .about(ABOUT, "2.8.0", "Iterates over a sorted set."),
    command("zscore", 3, zscore)
        .flags(READONLY | FAST)
        .keys(1, 1, 1)
        .about(ABOUT, "1.2.0", "Returns the score of a member."),
];

/// The options of `ZADD`.
#[derive(Clone, Copy, Debug, Default)]
struct Options {
    if_missing: bool,
    if_there: bool,
    if_greater: bool,
    if_less: bool,
    counts_changes: bool,
    adds: bool,
}

/// The options, and where the scores begin.
fn options(args: Args<'_>) -> Result<(Options, usize)> {
    let mut options = Options::default();
    let mut at = 2;
    while let Some(word) = args.get(at) {
        match word.to_ascii_lowercase().as_slice() {
            b"nx" => options.if_missing = true,
            b"xx" => options.if_there = true,
            b"gt" => options.if_greater = true,
            b"lt" => options.if_less = true,
            b"ch" => options.counts_changes = true,
            b"incr" => options.adds = true,
            _ => break,
        }
        at += 1;
    }
    let left = args.len().saturating_sub(at);
    if left == 0 || !left.is_multiple_of(2) {
        return Err(Fault::SYNTAX);
    }
    if options.if_missing && options.if_there {
        return Err(Fault::line(
            "ERR XX and NX options at the same time are not compatible",
        ));
    }
    let orders = [options.if_missing, options.if_greater, options.if_less];
    if orders.iter().filter(|order| **order).count() > 1 {
        return Err(Fault::line(
            "ERR GT, LT, and/or NX options at the same time are not compatible",
        ));
    }
    if options.adds && left > 2 {
        return Err(Fault::line(
            "ERR INCR option supports a single increment-element pair",
        ));
    }
    Ok((options, at))
}

/// What has become of the members of an addition.
#[derive(Debug, Default)]
struct Added {
    new: i64,
    changed: i64,
    /// The score of the last one, if it was not left as it was by an option.
    score: Option<f64>,
}

fn add(
    execution: &mut Execution<'_>,
    set: &mut SortedSet,
    options: Options,
    pairs: &[(f64, &[u8])],
) -> Result<Added> {
    let mut added = Added::default();
    for (score, member) in pairs {
        let old = set.score(execution.work, member)?;
        added.score = None;
        let is_barred = match old {
            Some(_) => options.if_missing,
            None => options.if_there,
        };
        if is_barred {
            continue;
        }
        let new = match old {
            Some(old) if options.adds => old + score,
            _ => *score,
        };
        if new.is_nan() {
            return Err(NOT_A_SCORE);
        }
        let is_worse = old.is_some_and(|old| {
            (options.if_less && new >= old) || (options.if_greater && new <= old)
        });
        if is_worse {
            continue;
        }
        added.score = Some(new);
        match old {
            None => added.new += 1,
            Some(old) if old != new => added.changed += 1,
            Some(_) => continue,
        }
        set.set(execution.work, member, new)?;
    }
    Ok(added)
}

fn zadd(execution: &mut Execution<'_>) -> Result<()> {
    let key = execution.arg(1);
    let (options, at) = options(execution.args)?;
    let left = execution.args.from(at);
    let mut pairs = Vec::with_capacity(left.len() / 2);
    for index in (0..left.len()).step_by(2) {
        let score = float(left.at(index)).ok_or(Fault::NOT_A_FLOAT)?;
        pairs.push((score, left.at(index + 1)));
    }
    let mut set = SortedSet::open(execution, key)?;
    let added = add(execution, &mut set, options, &pairs)?;
    let saved = set.save(execution, key)?;
    let name = if options.adds { "zincr" } else { "zadd" };
    execution.tell(saved, EventClasses::SORTED_SET, name, key);
    if options.adds {
        match added.score {
            Some(score) => execution.reply.double(score),
            None => execution.reply.null(),
        }
        return Ok(());
    }
    let changed = match options.counts_changes {
        true => added.changed,
        false => 0,
    };
    execution.reply.integer(added.new + changed);
    Ok(())
}

fn zincrby(execution: &mut Execution<'_>) -> Result<()> {
    let (key, member) = (execution.arg(1), execution.arg(3));
    let by = float(execution.arg(2)).ok_or(Fault::NOT_A_FLOAT)?;
    let mut set = SortedSet::open(execution, key)?;
    let options = Options {
        adds: true,
        ..Options::default()
    };
    let added = add(execution, &mut set, options, &[(by, member)])?;
    let saved = set.save(execution, key)?;
    execution.tell(saved, EventClasses::SORTED_SET, "zincr", key);
    execution.reply.double(added.score.unwrap_or(by));
    Ok(())
}

fn zrem(execution: &mut Execution<'_>) -> Result<()> {
    let key = execution.arg(1);
    let mut set = SortedSet::open(execution, key)?;
    let mut count = 0;
    for member in execution.args.from(2).iter() {
        count += i64::from(set.remove(execution.work, member)?.is_some());
    }
    let saved = set.save(execution, key)?;
    execution.tell(saved, EventClasses::SORTED_SET, "zrem", key);
    execution.reply.integer(count);
    Ok(())
}

fn zcard(execution: &mut Execution<'_>) -> Result<()> {
    let set = SortedSet::look_up(execution, execution.arg(1))?;
    execution.reply.unsigned(set.count());
    Ok(())
}

fn score_or_null(reply: &mut ReplyBuffer, score: Option<f64>) {
    match score {
        Some(score) => reply.double(score),
        None => reply.null(),
    }
}

fn zscore(execution: &mut Execution<'_>) -> Result<()> {
    let set = SortedSet::look_up(execution, execution.arg(1))?;
    let score = set.score(execution.work, execution.args.at(2))?;
    score_or_null(execution.reply, score);
    Ok(())
}

fn zmscore(execution: &mut Execution<'_>) -> Result<()> {
    let set = SortedSet::look_up(execution, execution.arg(1))?;
    let members = execution.args.from(2);
    execution.reply.array(members.len());
    for member in members.iter() {
        let score = set.score(execution.work, member)?;
        score_or_null(execution.reply, score);
    }
    Ok(())
}

fn place(execution: &mut Execution<'_>, is_reverse: bool) -> Result<()> {
    let with_score = match execution.args.get(3) {
        None => false,
        Some(word) if word.eq_ignore_ascii_case(b"withscore") => true,
        Some(_) => return Err(Fault::SYNTAX),
    };
    if execution.args.len() > 4 {
        return Err(execution.wrong_arguments());
    }
    let set = SortedSet::look_up(execution, execution.arg(1))?;
    let Some((place, score)) = set.place(execution.work, execution.args.at(2))? else {
        match with_score {
            true => execution.reply.null_array(),
            false => execution.reply.null(),
        }
        return Ok(());
    };
    let place = match is_reverse {
        true => set.count() - 1 - place,
        false => place,
    };
    if with_score {
        execution.reply.array(2);
    }
    execution.reply.unsigned(place);
    if with_score {
        execution.reply.double(score);
    }
    Ok(())
}

fn zrank(execution: &mut Execution<'_>) -> Result<()> {
    place(execution, false)
}

fn zrevrank(execution: &mut Execution<'_>) -> Result<()> {
    place(execution, true)
}

/// Writes members, with their scores or without: in pairs in RESP3, in a row in RESP2.
pub(crate) fn show(reply: &mut ReplyBuffer, members: &[ScoredMember], with_scores: bool) {
    let nested = with_scores && reply.is_resp3;
    reply.array(match with_scores && !nested {
        true => members.len() * 2,
        false => members.len(),
    });
    for (member, score) in members {
        if nested {
            reply.array(2);
        }
        reply.bulk(member);
        if with_scores {
            reply.double(*score);
        }
    }
}

fn zrandmember(execution: &mut Execution<'_>) -> Result<()> {
    let picks = picks(execution, "WITHSCORES")?;
    let set = SortedSet::look_up(execution, execution.arg(1))?;
    let chosen = picks.choose(execution.work, set.members())?;
    let chosen = chosen
        .into_iter()
        .map(SortedSet::scored)
        .collect::<Result<Vec<_>>>()?;
    match picks {
        RandomPicks::One => {
            let member = chosen.first().map(|(member, _)| member);
            execution.reply.bulk_or_null(member);
        }
        RandomPicks::Many { has_more, .. } | RandomPicks::Repeated { has_more, .. } => {
            show(execution.reply, &chosen, has_more);
        }
    }
    Ok(())
}

fn zscan(execution: &mut Execution<'_>) -> Result<()> {
    let cursor = scan::parse_cursor(execution.arg(2))?;
    let options = scan::options(execution.args, 3)?;
    let set = SortedSet::look_up(execution, execution.arg(1))?;
    let (next, mut found) = set.members().step(execution.work, cursor, options.count)?;
    if let Some(pattern) = options.pattern {
        found.retain(|(member, _)| glob::matches(pattern, member));
    }
    let found = found
        .into_iter()
        .map(SortedSet::scored)
        .collect::<Result<Vec<_>>>()?;
    let reply = &mut *execution.reply;
    reply.array(2);
    reply.bulk(next.to_string());
    reply.array(found.len() * 2);
    for (member, score) in found {
        reply.bulk(member);
        reply.bulk(crate::resp::reply::double_text(score));
    }
    Ok(())
}
