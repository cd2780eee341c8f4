//! `lab reproduce`: makes the figures that are not kept yet, one after the other, and shows them.

use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use gabion::Options;
use gabion_lab::figure::{Figure, FigureSource, Outcome, Verdict, figures, named};
use gabion_lab::page::reproduction::page;
use gabion_lab::page::score;
use gabion_lab::plan::{Plan, Resources};
use gabion_lab::reproduce::{FigureTerms, OutcomeStore, check_scale};
use gabion_lab::scale::Scale;
use gabion_lab::stores::{self, Runs};
use gabion_lab::text::{Unit, counted};
use serde_json::{Value, json};

use super::lab::{MIB, conduct, registry, write_to};
use crate::args::lab::LabReproduceArguments;
use crate::failure::Failure;
use crate::output::{Output, tell};
use crate::signals::stopped_by_signals;

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
    let chosen = chosen(&arguments.only)?;
    let kept = OutcomeStore::open(
        &arguments.dir,
        FigureTerms::of(arguments.scale, &registry()),
    )?;
    let stop = stopped_by_signals()?;
    let mut outcomes = Vec::new();
    let mut failed = Vec::new();
    let mut is_stopped = false;
    for (at, figure) in chosen.iter().enumerate() {
        let place = format!("figure {} ({} of {})", figure.name, at + 1, chosen.len());
        if let Some(outcome) = kept.outcome(figure.name)? {
            tell(&format!("{place}: kept"));
            outcomes.push(outcome);
        } else if !is_stopped {
            tell(&format!("{place}: {}", figure.about));
            match made(figure, &kept, arguments, &stop)? {
                Ok(outcome) => {
                    // Before it is kept, so that none is kept that cannot be shown.
                    figure.verdicts(&outcome)?;
                    kept.keep(&outcome)?;
                    outcomes.push(outcome);
                }
                Err(Missing::Stopped) => is_stopped = true,
                Err(Missing::Failed(why)) => failed.push(format!("figure {}: {why}", figure.name)),
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
        outcomes.len() < chosen.len(),
        &failed,
    )
}

/// The figures to make, in the order of the papers.
fn chosen(only: &[String]) -> Result<Vec<&'static Figure>, Failure> {
    let named = only.iter().map(|name| named(name));
    let named = named.collect::<Result<Vec<&Figure>, _>>()?;
    let is_chosen =
        |figure: &&Figure| named.is_empty() || named.iter().any(|one| one.name == figure.name);
    Ok(figures().filter(is_chosen).collect())
}

/// Makes a figure.
fn made(
    figure: &Figure,
    kept: &OutcomeStore,
    arguments: &LabReproduceArguments,
    stop: &AtomicBool,
) -> Result<Result<Outcome, Missing>, Failure> {
    let part = figure.part_at(arguments.scale);
    let scale = Scale::new(part)?;
    let start = Instant::now();
    let mut outcome = Outcome {
        figure: figure.name.to_owned(),
        part,
        ..Outcome::default()
    };
    match figure.making {
        FigureSource::Structure(make) => {
            outcome.tables = make(scale).map_err(gabion_lab::Error::from)?;
        }
        FigureSource::Files(make) => outcome.tables = make(scale, &kept.stores())?,
        FigureSource::Stores(runs) => {
            let plans = plans(runs, part, &kept.stores())?;
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
fn plans(runs: &Runs, part: f64, dir: &Path) -> Result<Vec<Plan>, Failure> {
    let registry = registry();
    let owned =
        |names: &[&str]| -> Vec<String> { names.iter().map(|name| (*name).to_owned()).collect() };
    let is_built = |peer: &&&str| registry.named(peer).is_ok();
    let peers: Vec<&str> = runs.peers.iter().filter(is_built).copied().collect();
    let targets = [owned(runs.targets), owned(&peers)].concat();
    let plan = |run: &stores::FigureRun| {
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
                background_threads: Options::default().background_threads,
            },
            memory_limit_bytes: None,
            dir: dir.to_owned(),
        })
    };
    runs.parts.iter().map(plan).collect()
}

fn write_page(
    path: &Path,
    kept: &OutcomeStore,
    outcomes: &[Outcome],
    notes: &[String],
) -> Result<(), Failure> {
    let page = page(kept.terms(), outcomes, notes)?;
    write_to(path, |out| out.write_all(page.as_bytes()))
}

/// All claims, figure by figure.
fn print(outcomes: &[Outcome], output: &mut Output) -> Result<(), Failure> {
    for (figure, verdicts) in verdicts(outcomes)? {
        output.line(&format!("{}: {}", figure.name, figure.about))?;
        for verdict in verdicts {
            let claim = &verdict.claim;
            let what = format!("{}: {}", claim.says, claim.case);
            output.line(&format!(
                "  {what}\n    paper {}, here {}: {}",
                claim.paper_text(),
                claim.unit.text(verdict.ours),
                verdict.answer().name()
            ))?;
        }
    }
    let score = score(outcomes)?;
    let seconds: f64 = outcomes.iter().map(|outcome| outcome.seconds).sum();
    output.line(&format!(
        "{} of {} in {}: {}",
        counted(score.claims() as u64, "claim", "claims"),
        counted(outcomes.len() as u64, "figure", "figures"),
        Unit::Seconds.text(seconds),
        score.text()
    ))
}

fn print_json(outcomes: &[Outcome], output: &mut Output) -> Result<(), Failure> {
    let mut claims: Vec<Value> = Vec::new();
    for (figure, verdicts) in verdicts(outcomes)? {
        let command = outcomes.iter().find(|it| it.figure == figure.name);
        let command = command.map(|outcome| figure.command(outcome.part));
        claims.extend(verdicts.iter().map(|verdict| {
            let claim = &verdict.claim;
            json!({
                "figure": figure.name,
                "claim": claim.says,
                "case": claim.case,
                "paper": claim.paper,
                "paper_text": claim.paper_text(),
                "ours": verdict.ours,
                "verdict": verdict.answer().name(),
                "why": verdict.why(),
                "command": command,
            })
        }));
    }
    output.json(&claims)
}

fn verdicts(outcomes: &[Outcome]) -> Result<Vec<(&'static Figure, Vec<Verdict>)>, Failure> {
    let of = |outcome: &Outcome| {
        let figure = named(&outcome.figure)?;
        Ok((figure, figure.verdicts(outcome)?))
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
        false => format!("some figures could not be made: {}", failed.join("; ")),
    };
    Err(Failure::new(format!(
        "{what}; finished results are kept in {}: run the same command to continue",
        dir.display()
    )))
}
