//! `backup`: backups of stores in a repository.

use std::ops::ControlFlow;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use gabion::text::{bytes_text, counted};
use gabion::{
    BackupInfo, BackupOptions, BackupRepository, Engine, Options, Problem, RetentionPolicy,
};
use serde_json::json;

use super::check::print_problems;
use crate::args::backup::{
    BackupAction, BackupArguments, CreateArguments, ListArguments, PruneArguments, RateArguments,
    RestoreArguments, VerifyArguments,
};
use crate::failure::Failure;
use crate::output::Output;
use crate::{bar, store};

pub(crate) fn run(arguments: &BackupArguments, output: &mut Output) -> Result<(), Failure> {
    match &arguments.action {
        BackupAction::Create(arguments) => create(arguments, output),
        BackupAction::List(arguments) => list(arguments, output),
        BackupAction::Verify(arguments) => verify(arguments, output),
        BackupAction::Restore(arguments) => restore(arguments, output),
        BackupAction::Prune(arguments) => prune(arguments, output),
    }
}

/// Does something with a bar on standard error, as fast as the arguments allow.
fn with_bar<T>(
    rate: &RateArguments,
    work: impl FnOnce(BackupOptions<'_>) -> gabion::Result<T>,
) -> Result<T, Failure> {
    let bar = bar::new(Some(0));
    let options = BackupOptions::default()
        .bytes_per_second_max(rate.rate.unwrap_or(0))
        .progress(|progress| {
            bar.set_length(progress.bytes_total);
            bar.set_position(progress.bytes);
            ControlFlow::Continue(())
        });
    let done = work(options);
    bar.finish_and_clear();
    Ok(done?)
}

fn create(arguments: &CreateArguments, output: &mut Output) -> Result<(), Failure> {
    let db = store::open_existing(&arguments.db, Options::default())?;
    refuse_without_backups(db.engine())?;
    let repo = &arguments.repository.repo;
    let repository = BackupRepository::create_or_open(repo)?;
    let made = with_bar(&arguments.rate, |options| {
        db.backup(&repository, options.archive_log(arguments.log))
    });
    let closed = db.close();
    let made = made?;
    closed?;
    if arguments.repository.json {
        return output.json(&made);
    }
    output.line(&format!(
        "backup {} of {} in {}: {} with {}, of which {} were copied",
        made.id,
        made.store,
        repo.display(),
        counted(made.files, "file", "files"),
        bytes_text(made.bytes),
        bytes_text(made.bytes_copied),
    ))
}

/// Before a repository is made for nothing.
fn refuse_without_backups(engine: Engine) -> Result<(), Failure> {
    match engine.capabilities().backup {
        true => Ok(()),
        false => Err(Failure::new(format!(
            "the engine {engine} has no backups; close the store and copy the directory"
        ))),
    }
}

fn list(arguments: &ListArguments, output: &mut Output) -> Result<(), Failure> {
    let list = BackupRepository::open(&arguments.repository.repo)?.list()?;
    let shown = if arguments.repository.json {
        output.json(&list)
    } else {
        list.backups
            .iter()
            .try_for_each(|backup| output.line(&as_line(backup)))
            .and_then(|()| print_problems(&list.problems, output))
    };
    verdict(&list.problems, shown.and_then(|()| output.flush()))
}

fn verify(arguments: &VerifyArguments, output: &mut Output) -> Result<(), Failure> {
    let repository = BackupRepository::open(&arguments.repository.repo)?;
    let work = |options: BackupOptions<'_>| repository.verify(arguments.id, options);
    let report = with_bar(&arguments.rate, work)?;
    let shown = if arguments.repository.json {
        output.json(&report)
    } else {
        print_problems(&report.problems, output).and_then(|()| {
            output.line(&format!(
                "verified: {}, {}, {} with {}",
                counted(report.backups, "backup", "backups"),
                counted(report.objects, "object", "objects"),
                counted(report.log_parts, "part of logs", "parts of logs"),
                bytes_text(report.bytes)
            ))
        })
    };
    verdict(&report.problems, shown.and_then(|()| output.flush()))
}

/// That something is damaged counts for more than whether somebody read it to its end.
fn verdict(problems: &[Problem], shown: Result<(), Failure>) -> Result<(), Failure> {
    match problems.len() {
        0 => shown,
        count => Err(Failure::new(format!(
            "the repository has {}; remove the damaged files and back up again, which copies what \
             the store still has of them",
            counted(
                count as u64,
                "damaged or missing part",
                "damaged or missing parts"
            )
        ))),
    }
}

fn restore(arguments: &RestoreArguments, output: &mut Output) -> Result<(), Failure> {
    let repository = BackupRepository::open(&arguments.repository.repo)?;
    let (id, to) = (arguments.id, &arguments.db);
    let until = with_bar(&arguments.rate, |options| match (arguments.until, id) {
        (Some(until), id) => {
            let restored = repository.restore_until(id, until, to, options)?;
            Ok((restored.backup, Some(restored.position)))
        }
        (None, id) => {
            // The arguments have it then.
            let id = id.unwrap_or(0);
            repository.restore(id, to, options)?;
            Ok((id, None))
        }
    });
    let (id, position) = until?;
    let backups = repository.list()?.backups;
    let restored = backups.iter().find(|backup| backup.id == id);
    if arguments.repository.json {
        let mut value = restored.map(|backup| json!(backup));
        if let (Some(value), Some(position)) = (&mut value, position) {
            value["restored_position"] = position.into();
        }
        return output.json(&value);
    }
    let bytes = restored.map_or(0, |backup| backup.bytes);
    let log = position.map_or(String::new(), |position| {
        format!(", and its log up to position {position}")
    });
    output.line(&format!(
        "backup {id} is restored to {}: {}{log}",
        to.display(),
        bytes_text(bytes)
    ))
}

fn prune(arguments: &PruneArguments, output: &mut Output) -> Result<(), Failure> {
    let repository = BackupRepository::open(&arguments.repository.repo)?;
    let report = repository.prune(RetentionPolicy {
        newest: arguments.keep.unwrap_or(1),
        younger_than: arguments.older_than,
    })?;
    if arguments.repository.json {
        return output.json(&report);
    }
    output.line(&format!(
        "removed: {}, {}, {} with {}",
        counted(report.removed.len() as u64, "backup", "backups"),
        counted(report.objects, "object", "objects"),
        counted(report.log_parts, "part of logs", "parts of logs"),
        bytes_text(report.bytes)
    ))
}

fn as_line(backup: &BackupInfo) -> String {
    let log = backup.log.map_or(String::new(), |log| {
        format!(" to {}, {} ago", log.position, ago(log.archived))
    });
    format!(
        "{}  {} ago  {} ({} new)  position {}{log}  {}  {}",
        backup.id,
        ago(backup.created),
        bytes_text(backup.bytes),
        bytes_text(backup.bytes_copied),
        backup.position,
        backup.engine,
        backup.store,
    )
}

/// How long ago a moment was, in its largest unit.
fn ago(created: Duration) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let seconds = now.unwrap_or_default().saturating_sub(created).as_secs();
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min", seconds / 60),
        3600..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}
