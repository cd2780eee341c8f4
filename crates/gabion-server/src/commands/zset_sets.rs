//! Sorted sets: unions, intersections and differences. Sets count as sorted sets with scores of 1.

use std::collections::HashMap;

use crate::args::float;
use crate::command::{Command, CommandGroup, DENYOOM, READONLY, WRITE, command};
use crate::commands::read_many;
use crate::commands::set::{counted, limit};
use crate::commands::zset::show;
use crate::commands::zset_ranges::store;
use crate::execution::Execution;
use crate::fault::{Fault, Result};
use crate::store::members::Members;
use crate::store::meta::KeyType;
use crate::store::scored::{ScoredMember, SortedSet, SortedSetRange, sort};
use crate::store::work::Work;

const ABOUT: CommandGroup = CommandGroup::SortedSet;

pub(crate) const COMMANDS: &[Command] = &[
    command("zdiff", -3, zdiff)
        .flags(READONLY)
        .counted_keys(1, 1)
        .about(
            ABOUT,
            "6.2.0",
            "Returns the members that only the first has.",
        ),
    command("zdiffstore", -4, zdiffstore)
        .flags(WRITE | DENYOOM)
        .counted_keys(1, 2)
        .about(
            ABOUT,
            "6.2.0",
            "Stores the members that only the first has.",
        ),
    command("zinter", -3, zinter)
        .flags(READONLY)
        .counted_keys(1, 1)
        .about(ABOUT, "6.2.0", "Returns the members that all have."),
    command("zintercard", -3, zintercard)
        .flags(READONLY)
        .counted_keys(1, 1)
        .about(ABOUT, "7.0.0", "Counts the members that all have."),
    command("zinterstore", -4, zinterstore)
        .flags(WRITE | DENYOOM)
        .counted_keys(1, 2)
        .about(ABOUT, "2.0.0", "Stores the members that all have."),
    command("zunion", -3, zunion)
        .flags(READONLY)
        .counted_keys(1, 1)
        .about(ABOUT, "6.2.0", "Returns the members that any has."),
    command("zunionstore", -4, zunionstore)
        .flags(WRITE | DENYOOM)
        .counted_keys(1, 2)
        .about(ABOUT, "2.0.0", "Stores the members that any has."),
];

/// Which members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Of {
    All,
    Any,
    FirstOnly,
}

/// How scores of a member become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Aggregate {
    Sum,
    Min,
    Max,
}

impl Aggregate {
    fn of(self, one: f64, other: f64) -> f64 {
        match self {
            // Infinities of opposite signs make nothing.
            Aggregate::Sum => number(one + other),
            Aggregate::Min => one.min(other),
            Aggregate::Max => one.max(other),
        }
    }
}

fn number(score: f64) -> f64 {
    if score.is_nan() { 0.0 } else { score }
}

/// A set, or a sorted set.
#[derive(Debug)]
enum Source {
    Plain(Members),
    Scored(SortedSet),
}

impl Source {
    fn open(execution: &mut Execution<'_>, key: &[u8]) -> Result<Source> {
        let space = execution.space();
        let found = execution.look_up(key)?;
        Ok(match &found {
            Some(meta) if meta.head.kind == KeyType::Set => {
                Source::Plain(Members::of(space, found.as_ref(), KeyType::Set)?)
            }
            _ => Source::Scored(SortedSet::of(space, found.as_ref())?),
        })
    }

    fn count(&self) -> u64 {
        match self {
            Source::Plain(set) => set.count(),
            Source::Scored(set) => set.count(),
        }
    }

    fn score(&self, work: &mut Work, member: &[u8]) -> Result<Option<f64>> {
        match self {
            Source::Plain(set) => Ok(set.get(work, member)?.map(|_| 1.0)),
            Source::Scored(set) => set.score(work, member),
        }
    }

    fn all(&self, work: &mut Work) -> Result<Vec<ScoredMember>> {
        match self {
            Source::Plain(set) => {
                let all = set.all(work)?;
                Ok(all.into_iter().map(|(member, _)| (member, 1.0)).collect())
            }
            Source::Scored(set) => set.part(work, &SortedSetRange::ALL, false),
        }
    }
}

/// What a command asks for.
#[derive(Debug)]
struct Asked {
    sources: Vec<(Source, f64)>,
    aggregate: Aggregate,
    with_scores: bool,
}

fn needs_a_key(execution: &Execution<'_>) -> Fault {
    Fault::new(format!(
        "ERR at least 1 input key is needed for '{}' command",
        execution.command.name
    ))
}

/// The arguments from the number of keys on. `zdiff` has no weights.
fn asked(execution: &mut Execution<'_>, at: usize, of: Of) -> Result<Asked> {
    let args = execution.args;
    let stores = at > 1;
    let count = crate::args::integer(args.at(at)).ok_or(Fault::NOT_AN_INTEGER)?;
    if count < 1 {
        return Err(needs_a_key(execution));
    }
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    let mut next = count.saturating_add(at + 1);
    if next > args.len() {
        return Err(Fault::SYNTAX);
    }
    let mut sources = Vec::new();
    for key in args.from(at + 1).iter().take(count) {
        sources.push((Source::open(execution, key)?, 1.0));
    }
    let (mut aggregate, mut with_scores) = (Aggregate::Sum, false);
    while let Some(word) = args.get(next) {
        next += 1;
        match word.to_ascii_lowercase().as_slice() {
            b"weights" if of != Of::FirstOnly && args.len() >= next + count => {
                for (_, weight) in &mut sources {
                    let stated = float(args.at(next));
                    *weight = stated.ok_or(Fault::line("ERR weight value is not a float"))?;
                    next += 1;
                }
            }
            b"aggregate" if of != Of::FirstOnly => {
                let word = args.get(next).ok_or(Fault::SYNTAX)?.to_ascii_lowercase();
                aggregate = match word.as_slice() {
                    b"sum" => Aggregate::Sum,
                    b"min" => Aggregate::Min,
                    b"max" => Aggregate::Max,
                    _ => return Err(Fault::SYNTAX),
                };
                next += 1;
            }
            b"withscores" if !stores => with_scores = true,
            _ => return Err(Fault::SYNTAX),
        }
    }
    Ok(Asked {
        sources,
        aggregate,
        with_scores,
    })
}

fn combine(work: &mut Work, asked: Asked, of: Of, limit: usize) -> Result<Vec<ScoredMember>> {
    let Asked {
        mut sources,
        aggregate,
        ..
    } = asked;
    let mut found: Vec<ScoredMember> = Vec::new();
    if of == Of::Any {
        let mut scores: HashMap<Vec<u8>, f64> = HashMap::new();
        for (source, weight) in &sources {
            for (member, score) in source.all(work)? {
                let score = number(score * weight);
                let known = scores.get(&member).copied();
                let new = known.map_or(score, |known| aggregate.of(known, score));
                scores.insert(member, new);
            }
        }
        found.extend(scores);
    } else {
        if of == Of::All {
            sources.sort_by_key(|(source, _)| source.count());
        }
        let Some(((first, weight), others)) = sources.split_first() else {
            return Ok(found);
        };
        'members: for (member, score) in first.all(work)? {
            let mut score = number(score * weight);
            for (other, weight) in others {
                match (other.score(work, &member)?, of) {
                    (Some(other), Of::All) => {
                        score = aggregate.of(score, number(other * weight));
                    }
                    (None, Of::All) | (Some(_), _) => continue 'members,
                    (None, _) => {}
                }
            }
            found.push((member, score));
            if found.len() == limit {
                break;
            }
        }
    }
    sort(&mut found);
    Ok(found)
}

/// How many members are read one after the other.
fn count_read(asked: &Asked, of: Of) -> u64 {
    let mut counts = asked.sources.iter().map(|(source, _)| source.count());
    match of {
        Of::All => counts.min().unwrap_or_default(),
        Of::Any => counts.sum(),
        Of::FirstOnly => counts.next().unwrap_or_default(),
    }
}

fn answer(execution: &mut Execution<'_>, of: Of) -> Result<()> {
    let asked = asked(execution, 1, of)?;
    let with_scores = asked.with_scores;
    let count = count_read(&asked, of);
    let found = read_many(count, || combine(execution.work, asked, of, 0))?;
    show(execution.reply, &found, with_scores);
    Ok(())
}

fn keep(execution: &mut Execution<'_>, of: Of, name: &'static str) -> Result<()> {
    let to = execution.arg(1);
    let asked = asked(execution, 2, of)?;
    let count = count_read(&asked, of);
    let found = read_many(count, || combine(execution.work, asked, of, 0))?;
    store(execution, to, &found, name)?;
    execution.reply.count(found.len());
    Ok(())
}

fn zunion(execution: &mut Execution<'_>) -> Result<()> {
    answer(execution, Of::Any)
}

fn zinter(execution: &mut Execution<'_>) -> Result<()> {
    answer(execution, Of::All)
}

fn zdiff(execution: &mut Execution<'_>) -> Result<()> {
    answer(execution, Of::FirstOnly)
}

fn zunionstore(execution: &mut Execution<'_>) -> Result<()> {
    keep(execution, Of::Any, "zunionstore")
}

fn zinterstore(execution: &mut Execution<'_>) -> Result<()> {
    keep(execution, Of::All, "zinterstore")
}

fn zdiffstore(execution: &mut Execution<'_>) -> Result<()> {
    keep(execution, Of::FirstOnly, "zdiffstore")
}

fn zintercard(execution: &mut Execution<'_>) -> Result<()> {
    let (count, behind) =
        counted(execution, 1).map_err(|fault| match fault.text().contains("greater than 0") {
            true => needs_a_key(execution),
            false => Fault::SYNTAX,
        })?;
    let limit = limit(execution, behind)?;
    let mut sources = Vec::new();
    for key in execution.args.from(2).iter().take(count) {
        sources.push((Source::open(execution, key)?, 1.0));
    }
    let asked = Asked {
        sources,
        aggregate: Aggregate::Sum,
        with_scores: false,
    };
    let found = combine(execution.work, asked, Of::All, limit)?;
    execution.reply.count(found.len());
    Ok(())
}
