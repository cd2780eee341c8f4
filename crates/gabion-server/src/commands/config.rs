//! `CONFIG`: the parameters.

use crate::acl::DEFAULT;
use crate::command::{ADMIN, ALONE, Command, CommandGroup, LOADING, NOSCRIPT, STALE, command};
use crate::commands::acl::keep;
use crate::commands::{container, help};
use crate::execution::Execution;
use crate::fault::{Fault, Result};
use crate::glob;

const OF_CONFIG: u32 = ADMIN | NOSCRIPT | LOADING | STALE;

pub(crate) const COMMANDS: &[Command] =
    &[command("config", -2, container).with(SUBCOMMANDS).about(
        CommandGroup::Server,
        "2.0.0",
        "Shows and changes parameters.",
    )];

const SUBCOMMANDS: &[Command] = &[
    command("get", -3, get).flags(OF_CONFIG).about(
        CommandGroup::Server,
        "2.0.0",
        "Returns parameters by patterns of their names.",
    ),
    command("help", 2, show_help).flags(LOADING | STALE).about(
        CommandGroup::Server,
        "5.0.0",
        "Lists the subcommands.",
    ),
    command("resetstat", 2, resetstat).flags(OF_CONFIG).about(
        CommandGroup::Server,
        "2.0.0",
        "Resets the statistics of INFO.",
    ),
    command("rewrite", 2, rewrite)
        .flags(OF_CONFIG | ALONE)
        .about(
            CommandGroup::Server,
            "2.8.0",
            "Writes changed parameters to the configuration file.",
        ),
    command("set", -4, set).flags(OF_CONFIG | ALONE).about(
        CommandGroup::Server,
        "2.0.0",
        "Changes parameters, all or none.",
    ),
];

fn get(execution: &mut Execution<'_>) -> Result<()> {
    let patterns = execution.args.from(2);
    let matches = |name: &str| {
        let fits = |pattern| glob::matches_any_case(pattern, name.as_bytes());
        patterns.iter().any(fits)
    };
    let found = execution.server.settings.matching(matches);
    execution.reply.map(found.len());
    for (name, value) in found {
        execution.reply.bulk(name);
        execution.reply.bulk(value);
    }
    Ok(())
}

fn set(execution: &mut Execution<'_>) -> Result<()> {
    let pairs = execution.args.from(2);
    if !pairs.len().is_multiple_of(2) {
        return Err(execution.wrong_arguments());
    }
    let text = |place| String::from_utf8_lossy(pairs.at(place)).into_owned();
    let changes: Vec<_> = (0..pairs.len())
        .step_by(2)
        .map(|place| (text(place), text(place + 1)))
        .collect();
    execution.server.settings.set(&changes)?;
    for place in (0..pairs.len()).step_by(2) {
        if pairs.at(place).eq_ignore_ascii_case(b"requirepass") {
            let rights = execution.server.users.set_password(pairs.at(place + 1));
            keep(execution, DEFAULT, Some(&rights))?;
        }
    }
    let server = execution.server;
    let most = server.settings.tracked_max();
    server.tracking.limit(&server.clients, most);
    server.calls.track(server.settings.tracks_latency());
    execution.reply.ok();
    Ok(())
}

fn resetstat(execution: &mut Execution<'_>) -> Result<()> {
    execution.server.counts.reset();
    execution.server.calls.reset();
    execution.reply.ok();
    Ok(())
}

fn rewrite(execution: &mut Execution<'_>) -> Result<()> {
    let server = execution.server;
    let Some(file) = &server.config.file else {
        return Err(Fault::line(
            "ERR The server is running without a config file",
        ));
    };
    let written = server.settings.rewrite(file);
    written.map_err(|why| Fault::new(format!("ERR Rewriting config file: {why}")))?;
    execution.reply.ok();
    Ok(())
}

fn show_help(execution: &mut Execution<'_>) -> Result<()> {
    help(
        execution,
        &[
            "CONFIG <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
            "GET <pattern> [<pattern> ...]",
            "    Return the parameters whose names match.",
            "SET <name> <value> [<name> <value> ...]",
            "    Change parameters, all of them or none.",
            "RESETSTAT",
            "    Reset the statistics of INFO.",
            "REWRITE",
            "    Write changed parameters to the configuration file.",
        ],
    );
    Ok(())
}
