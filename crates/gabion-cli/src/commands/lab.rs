//! `lab`: turns the command line into a plan, runs it, and writes the reports.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use gabion_lab::experiment::{self, Event, Experiment, Report};
use gabion_lab::figure::{self, Figure, FigureSource};
use gabion_lab::page;
use gabion_lab::plan::{Plan, Resources, labelled};
use gabion_lab::result::PhaseResult;
use gabion_lab::rows::Table;
use gabion_lab::run::Settings;
use gabion_lab::scale::Scale;
use gabion_lab::stores::Runs;
use gabion_lab::summary::Summary;
use gabion_lab::targets::{Registry, peer_feature};
use gabion_lab::text::{count_text, counted};
use gabion_lab::workload::{PRESETS, SIZES, Size, WORKLOADS, unfolded};
use serde_json::json;

use super::bench::settings;
use crate::args::lab::{
    LabArguments, LabCommand, LabFigureArguments, LabListArguments, LabRunArguments, TrialArguments,
};
use crate::failure::Failure;
use crate::output::{Output, tell};
use crate::signals::stopped_by_signals;
use crate::table::{beside_paper, borders, comparison};

pub(super) const MIB: u64 = 1 << 20;

/// Characters of the longest name that is listed, that of a target.
const NAME_CHARS: usize = 22;

/// Does what the arguments say.
pub(crate) fn run(arguments: &LabArguments, output: &mut Output) -> Result<(), Failure> {
    match &arguments.command {
        LabCommand::Run(arguments) => compare(arguments, output),
        LabCommand::Equals(arguments) => super::equals::run(arguments, output),
        LabCommand::Figure(arguments) => figure(arguments, output),
        LabCommand::Reproduce(arguments) => super::reproduce::run(arguments, output),
        LabCommand::List(arguments) => list(arguments, output),
        LabCommand::Trial => Ok(experiment::serve(&registry(), io::stdin(), output)?),
    }
}

/// The targets of this program.
pub(super) fn registry() -> Registry {
    #[cfg(feature = "rust-peers")]
    let peers = gabion_peers::targets();
    #[cfg(not(feature = "rust-peers"))]
    let peers = &[];
    Registry::new(peers)
}

/// Runs the plan that the arguments describe and compares its targets.
fn compare(arguments: &LabRunArguments, output: &mut Output) -> Result<(), Failure> {
    let mut settings = Settings {
        rate: arguments.rate,
        warm_up: arguments.warm_up,
        seconds_max: arguments.phase_seconds_max,
        fill_seconds_max: arguments.fill_seconds_max,
        whole_fills: arguments.whole_fills,
        complete_fills: arguments.complete_fills,
        ..settings(&arguments.work)
    };
    if let Some(size) = arguments.size.as_deref().and_then(Size::named) {
        settings.key_bytes = size.key_bytes;
        settings.value_bytes = size.value_bytes;
        settings.value_sizes = size.value_sizes;
    }
    let workloads = unfolded(&arguments.workload);
    let plan = plan(&arguments.trials, &arguments.target, workloads, settings)?;
    let (report, reports) = carry_out(&[plan], &arguments.trials)?;
    let shown = output
        .bytes(comparison(&Summary::of(&report.results)).as_bytes())
        .and_then(|()| output.flush());
    tell_notes(&report.results);
    // Whether all went well counts for more than whether somebody read on.
    finish(&report, &reports)?;
    shown
}

/// Makes a figure and shows the paper's numbers beside ours.
fn figure(arguments: &LabFigureArguments, output: &mut Output) -> Result<(), Failure> {
    let figure = figure::named(&arguments.name)?;
    let scale = Scale::new(arguments.scale)?;
    match figure.making {
        FigureSource::Stores(runs) => of_stores(runs, arguments, output),
        FigureSource::Structure(make) => {
            check_alone(figure, "one structure", arguments)?;
            print(&make(scale).map_err(gabion_lab::Error::from)?, output)
        }
        FigureSource::Files(make) => {
            check_alone(figure, "what lies in files", arguments)?;
            print(&make(scale, place(&arguments.trials, "files")?)?, output)
        }
    }
}

/// Runs the parts of a figure.
fn of_stores(
    runs: &Runs,
    arguments: &LabFigureArguments,
    output: &mut Output,
) -> Result<(), Failure> {
    let targets = match &*arguments.target {
        [] => runs.targets.iter().copied().map(str::to_owned).collect(),
        named => named.to_vec(),
    };
    let parts = runs.parts.iter().map(|part| {
        let workloads = part.workloads.iter().copied().map(str::to_owned).collect();
        let settings = part.settings(arguments.scale)?;
        let mut plan = plan(&arguments.trials, &targets, workloads, settings)?;
        plan.resources.hold_flushes |= part.hold_flushes;
        Ok(plan)
    });
    let plans = parts.collect::<Result<Vec<Plan>, Failure>>()?;
    let (report, reports) = carry_out(&plans, &arguments.trials)?;
    let shown = show_figure(runs, &report, output);
    tell_notes(&report.results);
    // Whether all went well counts for more than whether somebody read on.
    finish(&report, &reports)?;
    shown
}

/// Shows what came of a figure's parts, and the paper's numbers beside it.
fn show_figure(runs: &Runs, report: &Report, output: &mut Output) -> Result<(), Failure> {
    output.bytes(comparison(&Summary::of(&report.results)).as_bytes())?;
    let borders = borders(&report.results);
    if !borders.is_empty() {
        output.line("")?;
        output.bytes(borders.as_bytes())?;
    }
    let beside = runs.beside(&report.results);
    if !beside.is_empty() {
        output.line("")?;
        output.bytes(beside_paper(&beside).as_bytes())?;
    }
    if !runs.says.is_empty() {
        output.line(&format!("\nThe paper: {}", runs.says))?;
    }
    output.flush()
}

/// Refuses what a figure that is computed here, and has no targets, cannot do.
fn check_alone(
    figure: &Figure,
    about: &str,
    arguments: &LabFigureArguments,
) -> Result<(), Failure> {
    let trials = &arguments.trials;
    let has_report = [&trials.json, &trials.csv, &trials.html]
        .iter()
        .any(|path| path.is_some());
    if arguments.target.is_empty() && !has_report && trials.repeat == 1 && trials.turns.is_none() {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "the figure {} measures {about}: it has no targets, repetitions, turns or report; leave \
         these flags out",
        figure.name
    )))
}

/// Prints the tables of a figure.
fn print(tables: &[Table], output: &mut Output) -> Result<(), Failure> {
    let texts: Vec<String> = tables.iter().map(Table::text).collect();
    output.bytes(texts.join("\n").as_bytes())
}

/// The directory below which something is made.
fn place<'a>(trials: &'a TrialArguments, what: &str) -> Result<&'a Path, Failure> {
    trials
        .dir
        .as_deref()
        .ok_or_else(|| Failure::usage(format!("{what} need a directory; name one with --dir")))
}

/// The plan of these trials.
pub(super) fn plan(
    trials: &TrialArguments,
    targets: &[String],
    workloads: Vec<String>,
    settings: Settings,
) -> Result<Plan, Failure> {
    let dir = place(trials, "stores")?.to_owned();
    Ok(Plan {
        targets: labelled(targets),
        workloads,
        repetitions: trials.repeat,
        turn_ms: trials.turns,
        settings,
        resources: Resources {
            cache_bytes: trials.cache_mb.saturating_mul(MIB),
            write_buffer_bytes: trials.write_buffer_mb.map(|mib| mib.saturating_mul(MIB)),
            hold_flushes: trials.hold_flushes,
            background_threads: trials.background_threads,
        },
        memory_limit_bytes: trials.memory_limit,
        dir,
    })
}

/// Runs plans one after the other and writes the reports of all of them.
pub(super) fn carry_out<'a>(
    plans: &[Plan],
    trials: &'a TrialArguments,
) -> Result<(Report, Reports<'a>), Failure> {
    let registry = registry();
    // Before the files: a run that is refused leaves the reports of an earlier one as they are.
    for plan in plans {
        plan.prepare(&registry)?;
    }
    let mut reports = Reports::create(trials)?;
    let silence_max = Duration::from_secs(trials.hang_seconds_max);
    let stop = stopped_by_signals()?;
    let report = conduct(plans, silence_max, &stop, |result| reports.add(result))?;
    reports.write(&report)?;
    Ok((report, reports))
}

/// Runs plans one after the other, each trial in a process of this program, and hands on each
/// result as it comes.
pub(super) fn conduct(
    plans: &[Plan],
    silence_max: Duration,
    stop: &AtomicBool,
    mut each: impl FnMut(&PhaseResult) -> Result<(), gabion_lab::Error>,
) -> Result<Report, Failure> {
    let registry = registry();
    let program = std::env::current_exe()
        .map_err(|error| Failure::new(format!("cannot find this program: {error}")))?;
    let command = || {
        let mut command = Command::new(&program);
        command.args(["lab", "trial"]);
        command
    };
    let mut all = Report::default();
    for plan in plans {
        let experiment = Experiment {
            plan,
            command: &command,
            stop,
            silence_max,
        };
        let report = experiment.run(&registry, |event| {
            tell(&said(&event, plan.repetitions));
            match event {
                Event::Phase(result) => each(result),
                Event::Begin(_) | Event::Failed(_) => Ok(()),
            }
        })?;
        all.results.extend(report.results);
        all.notes.extend(report.notes);
        if report.is_interrupted {
            all.is_interrupted = true;
            break;
        }
    }
    Ok(all)
}

/// What is going on.
fn said(event: &Event<'_>, repetitions: u32) -> String {
    match event {
        Event::Begin(trial) => format!(
            "{}, repetition {} of {repetitions}",
            trial.target,
            trial.repetition + 1
        ),
        Event::Phase(result) => format!(
            "  {}, {}: {} in {:.2} s, {} operations/s",
            result.target,
            result.workload,
            counted(result.operations, "operation", "operations"),
            result.seconds,
            per_second(result.ops_per_s)
        ),
        Event::Failed(sentence) => format!("note: {sentence}"),
    }
}

fn per_second(rate: f64) -> String {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a rate is not negative, and far below the largest number"
    )]
    count_text(rate as u64)
}

/// Says each note once, however many results have it.
pub(super) fn tell_notes(results: &[PhaseResult]) {
    let mut told: Vec<String> = Vec::new();
    for result in results {
        for note in &result.notes {
            let sentence = format!("note: {}: {}: {note}", result.target, result.phase);
            if !told.contains(&sentence) {
                tell(&sentence);
                told.push(sentence);
            }
        }
    }
}

/// The last word: nothing, or what is missing and where the rest is.
pub(super) fn finish(report: &Report, reports: &Reports) -> Result<(), Failure> {
    if report.notes.is_empty() {
        return Ok(());
    }
    let kept = match reports.lines.as_ref() {
        Some((path, _)) => format!(
            "; the results of {} are in {}",
            counted(report.results.len() as u64, "phase", "phases"),
            path.display()
        ),
        None => String::new(),
    };
    let what = match report.is_interrupted {
        true => "the run was interrupted".to_owned(),
        false => format!("not every trial finished: {}", report.notes.join("; ")),
    };
    Err(Failure::new(format!("{what}{kept}")))
}

/// The files that a run writes.
pub(super) struct Reports<'a> {
    arguments: &'a TrialArguments,
    /// Results as they come, one line each, beside the first of the other files.
    lines: Option<(PathBuf, File)>,
}

impl Reports<'_> {
    /// Makes all files before the run, so that none is refused after it.
    fn create(arguments: &TrialArguments) -> Result<Reports<'_>, Failure> {
        let paths = [&arguments.json, &arguments.csv, &arguments.html];
        for path in paths.into_iter().flatten() {
            create(path)?;
        }
        let lines = paths
            .into_iter()
            .flatten()
            .next()
            .map(|first| {
                let path = first.with_extension("partial.jsonl");
                let file = create(&path)?;
                Ok::<_, Failure>((path, file))
            })
            .transpose()?;
        Ok(Reports { arguments, lines })
    }

    /// Keeps a result at once.
    fn add(&mut self, result: &PhaseResult) -> Result<(), gabion_lab::Error> {
        let Some((path, file)) = &mut self.lines else {
            return Ok(());
        };
        let line = serde_json::to_string(result).expect("figures always become JSON");
        writeln!(file, "{line}").map_err(|source| gabion_lab::Error::File {
            action: "write to",
            path: path.clone(),
            source,
        })
    }

    fn write(&self, report: &Report) -> Result<(), Failure> {
        let results = &report.results;
        if let Some(path) = &self.arguments.json {
            write_to(path, |out| {
                serde_json::to_writer_pretty(&mut *out, results).map_err(Into::into)
            })?;
        }
        if let Some(path) = &self.arguments.csv {
            write_to(path, |out| page::csv::write(results, out))?;
        }
        if let Some(path) = &self.arguments.html {
            write_to(path, |out| {
                page::write(results, "Gabion lab", &report.notes, out)
            })?;
        }
        Ok(())
    }
}

pub(super) fn create(path: &Path) -> Result<File, Failure> {
    File::create(path).map_err(|error| Failure::file("make", path, &error))
}

pub(super) fn write_to(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> Result<(), Failure> {
    let mut out = BufWriter::new(create(path)?);
    write(&mut out)
        .and_then(|()| out.flush())
        .map_err(|error| Failure::file("write to", path, &error))
}

/// Shows what a run can name.
fn list(arguments: &LabListArguments, output: &mut Output) -> Result<(), Failure> {
    let registry = registry();
    if arguments.json {
        let targets = registry.targets().iter().map(|target| {
            json!({ "name": target.name, "about": target.about, "abilities": target.abilities })
        });
        let workloads = WORKLOADS.iter().map(|workload| {
            json!({
                "name": workload.name,
                "about": workload.about,
                "distribution": workload.distribution(None).name(),
            })
        });
        let sizes = SIZES.iter().map(|size| {
            json!({
                "name": size.name,
                "about": size.about,
                "key_bytes": size.key_bytes,
                "value_bytes": size.value_bytes,
                "value_sizes": size.value_sizes,
            })
        });
        let figures = figure::figures().map(
            |figure| json!({ "name": figure.name, "tables": figure.tables, "about": figure.about }),
        );
        let presets = PRESETS
            .iter()
            .map(|(name, workloads)| json!({ "name": name, "workloads": workloads }));
        return output.json(&json!({
            "presets": presets.collect::<Vec<_>>(),
            "targets": targets.collect::<Vec<_>>(),
            "peers_not_built": registry.absent_peers().collect::<Vec<_>>(),
            "workloads": workloads.collect::<Vec<_>>(),
            "sizes": sizes.collect::<Vec<_>>(),
            "figures": figures.collect::<Vec<_>>(),
        }));
    }
    output.line("Targets")?;
    for target in registry.targets() {
        output.line(&format!("  {:<NAME_CHARS$} {}", target.name, target.about))?;
    }
    for peer in registry.absent_peers() {
        let feature = peer_feature(peer);
        output.line(&format!(
            "  {peer:<NAME_CHARS$} not built: needs `--features {feature}`"
        ))?;
    }
    output.line("\nWorkloads")?;
    for workload in WORKLOADS {
        output.line(&format!(
            "  {:<NAME_CHARS$} {}",
            workload.name, workload.about
        ))?;
    }
    output.line("\nWorkloads by one name")?;
    for (name, workloads) in PRESETS {
        output.line(&format!("  {name:<NAME_CHARS$} {}", workloads.join(", ")))?;
    }
    output.line("\nSizes, in bytes of key and value")?;
    for size in SIZES {
        let bytes = format!("{}+{}", size.key_bytes, size.value_bytes);
        output.line(&format!(
            "  {:<NAME_CHARS$} {bytes:<9} {}",
            size.name, size.about
        ))?;
    }
    output.line("\nFigures and tables of the papers")?;
    for Figure {
        name,
        tables,
        about,
        ..
    } in figure::figures()
    {
        let names = [&[*name], *tables].concat().join(", ");
        output.line(&format!("  {names:<NAME_CHARS$} {about}"))?;
    }
    Ok(())
}
