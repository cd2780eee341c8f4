//! `lab reproduce`: makes the figures that are not kept yet, one after the other, and shows them.

use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use gabion::DEFAULT_BACKGROUND_THREADS;
use gabion_lab::figure::Figure;
use gabion_lab::page::reproduction::{page, score};
use gabion_lab::plan::{Plan, Resources};
use gabion_lab::reproduce::{ENTRIES, Entry, Kept, Making, Outcome, Terms, Verdict, check_scale};
use gabion_lab::text::{Unit, counted};
use serde_json::{Value, json};

use super::lab::{MIB, conduct, registry, stopped_by_signals, write_to};
use crate::args::lab::LabReproduceArguments;
use crate::failure::Failure;
use crate::output::{Output, tell};

/// Cache of each store, as in `lab figure`.
const CACHE_BYTES: u64 = 1024 * MIB;

/// Why a figure was not made.
enum Missing {
    /// The run was told to stop.
    Stopped,
    /// A trial ended early.
    Failed(String),
}

/// Does what the arguments say.
pub(super) fn run(arguments: &LabReproduceArguments, output: &mut Output) -> Result<(), Failure> {
    check_scale(arguments.scale)?;
    let entries = chosen(&arguments.only)?;
    let kept = Kept::open(&arguments.dir, Terms::of(arguments.scale, &registry()))?;
    let stop = stopped_by_signals()?;
    let mut outcomes = Vec::new();
    let mut failed = Vec::new();
    let mut is_stopped = false;
    for (at, entry) in entries.iter().enumerate() {
        let place = format!("figure {} ({} of {})", entry.figure, at + 1, entries.len());
        if let Some(outcome) = kept.outcome(entry.figure)? {
            tell(&format!("{place}: kept"));
            outcomes.push(outcome);
        } else if !is_stopped {
            tell(&format!("{place}: {}", entry.title()));
            match made(entry, &kept, arguments, &stop)? {
                Ok(outcome) => {
                    // Before it is kept, so that none is kept that cannot be shown.
                    entry.verdicts(&outcome)?;
                    kept.keep(&outcome)?;
                    outcomes.push(outcome);
                }
                Err(Missing::Stopped) => is_stopped = true,
                Err(Missing::Failed(why)) => failed.push(format!("figure {}: {why}", entry.figure)),
            }
            // ORDER: Relaxed; the flag only ends loops, no data depends on it.
            is_stopped |= stop.load(Ordering::Relaxed);
        }
        if let Some(path) = &arguments.html {
            write_page(path, &kept, &outcomes, &failed)?;
        }
    }
    if arguments.json {
        print_json(&outcomes, output)?;
    } else {
        print(&outcomes, output)?;
    }
    output.flush()?;
    finish(
        &arguments.dir,
        is_stopped,
        outcomes.len() < entries.len(),
        &failed,
    )
}

/// The figures to make, in the order of the papers.
fn chosen(only: &[String]) -> Result<Vec<&'static Entry>, Failure> {
    let named = only.iter().map(|name| Entry::named(name));
    let named = named.collect::<Result<Vec<&Entry>, _>>()?;
    let is_chosen =
        |entry: &&Entry| named.is_empty() || named.iter().any(|one| one.figure == entry.figure);
    Ok(ENTRIES.iter().filter(is_chosen).collect())
}

/// Makes a figure.
fn made(
    entry: &Entry,
    kept: &Kept,
    arguments: &LabReproduceArguments,
    stop: &AtomicBool,
) -> Result<Result<Outcome, Missing>, Failure> {
    let part = entry.part_at(arguments.scale);
    let start = Instant::now();
    let mut outcome = Outcome {
        figure: entry.figure.to_owned(),
        part,
        ..Outcome::default()
    };
    match entry.making()? {
        Making::Structure(figure) => outcome.lines = figure.lines(part)?,
        Making::Files(figure) => outcome.lines = figure.lines(part, &kept.stores())?,
        Making::Stores(figure) => {
            let plans = plans(figure, part, &kept.stores())?;
            let silence_max = Duration::from_secs(arguments.hang_seconds_max);
            let report = conduct(&plans, silence_max, stop, |_| Ok(()))?;
            if report.is_interrupted {
                return Ok(Err(Missing::Stopped));
            }
            if !report.notes.is_empty() {
                return Ok(Err(Missing::Failed(report.notes.join("; "))));
            }
            outcome.results = report.results;
        }
    }
    outcome.seconds = start.elapsed().as_secs_f64();
    Ok(Ok(outcome))
}

/// The runs of a figure about stores.
fn plans(figure: &Figure, part: f64, dir: &Path) -> Result<Vec<Plan>, Failure> {
    let registry = registry();
    let owned =
        |names: &[&str]| -> Vec<String> { names.iter().map(|name| (*name).to_owned()).collect() };
    let is_built = |peer: &&&str| registry.named(peer).is_ok();
    let peers: Vec<&str> = figure.peers.iter().filter(is_built).copied().collect();
    let targets = [owned(figure.targets), owned(&peers)].concat();
    let plan = |run: &gabion_lab::figure::Part| {
        Ok(Plan {
            targets: targets.clone(),
            workloads: owned(run.workloads),
            repetitions: 1,
            turn_ms: None,
            settings: run.settings(part)?,
            resources: Resources {
                cache_bytes: CACHE_BYTES,
                write_buffer_bytes: None,
                hold_flushes: run.hold_flushes,
                background_threads: DEFAULT_BACKGROUND_THREADS,
            },
            memory_limit_bytes: None,
            dir: dir.to_owned(),
        })
    };
    figure.parts.iter().map(plan).collect()
}

fn write_page(
    path: &Path,
    kept: &Kept,
    outcomes: &[Outcome],
    notes: &[String],
) -> Result<(), Failure> {
    let page = page(kept.terms(), outcomes, notes)?;
    write_to(path, |out| out.write_all(page.as_bytes()))
}

/// All claims, figure by figure.
fn print(outcomes: &[Outcome], output: &mut Output) -> Result<(), Failure> {
    for (entry, verdicts) in verdicts(outcomes)? {
        output.line(&format!("{}: {}", entry.figure, entry.title()))?;
        for verdict in verdicts {
            let claim = &verdict.claim;
            let what = format!("{}: {}", claim.says, claim.case);
            output.line(&format!(
                "  {what}\n    paper {}, here {}; holds: {}",
                claim.paper_text(),
                claim.unit.text(verdict.ours),
                verdict.answer()
            ))?;
        }
    }
    let score = score(outcomes)?;
    let not_run = match score.not_run {
        0 => String::new(),
        1 => ", 1 was not run".to_owned(),
        count => format!(", {count} were not run"),
    };
    let hold = if score.held == 1 { "holds" } else { "hold" };
    let seconds: f64 = outcomes.iter().map(|outcome| outcome.seconds).sum();
    output.line(&format!(
        "{} of {} {hold}{not_run}; {} in {}",
        score.held,
        counted(score.claims as u64, "claim", "claims"),
        counted(outcomes.len() as u64, "figure", "figures"),
        Unit::Seconds.text(seconds)
    ))
}

fn print_json(outcomes: &[Outcome], output: &mut Output) -> Result<(), Failure> {
    let mut claims: Vec<Value> = Vec::new();
    for (entry, verdicts) in verdicts(outcomes)? {
        claims.extend(verdicts.iter().map(|verdict| {
            let claim = &verdict.claim;
            json!({
                "figure": entry.figure,
                "claim": claim.says,
                "case": claim.case,
                "paper": claim.paper,
                "paper_text": claim.paper_text(),
                "ours": verdict.ours,
                "holds": verdict.holds(),
                "answer": verdict.answer(),
                "why": if verdict.holds() { "" } else { verdict.why() },
            })
        }));
    }
    output.json(&claims)
}

fn verdicts(outcomes: &[Outcome]) -> Result<Vec<(&'static Entry, Vec<Verdict>)>, Failure> {
    let of = |outcome: &Outcome| {
        let entry = Entry::named(&outcome.figure)?;
        Ok((entry, entry.verdicts(outcome)?))
    };
    outcomes.iter().map(of).collect()
}

/// The last word: nothing, or what is missing and how to go on.
fn finish(
    dir: &Path,
    is_stopped: bool,
    is_missing: bool,
    failed: &[String],
) -> Result<(), Failure> {
    if !is_missing {
        return Ok(());
    }
    let what = match is_stopped {
        true => "the run was interrupted".to_owned(),
        false => format!("not every figure could be made: {}", failed.join("; ")),
    };
    Err(Failure::new(format!(
        "{what}; what is done is kept in {}, and the same command goes on there",
        dir.display()
    )))
}
