//! `COMMAND`: the list of commands and their properties.

use std::iter::once;

use crate::command::{Command, CommandGroup, KeySpec, LOADING, STALE, command};
use crate::commands::{container, help};
use crate::dispatch::find;
use crate::execution::Execution;
use crate::fault::{Fault, Result};
use crate::glob;
use crate::resp::reply::ReplyBuffer;

const OF_COMMAND: u32 = LOADING | STALE;

pub(crate) const COMMANDS: &[Command] = &[command("command", -1, all)
    .flags(OF_COMMAND)
    .with(SUBCOMMANDS)
    .about(
        CommandGroup::Server,
        "2.8.13",
        "Returns information about all commands.",
    )];

const SUBCOMMANDS: &[Command] = &[
    command("count", 2, count).flags(OF_COMMAND).about(
        CommandGroup::Server,
        "2.8.13",
        "Counts the commands.",
    ),
    command("docs", -2, docs).flags(OF_COMMAND).about(
        CommandGroup::Server,
        "7.0.0",
        "Documents commands.",
    ),
    command("getkeys", -3, getkeys).flags(OF_COMMAND).about(
        CommandGroup::Server,
        "2.8.13",
        "Returns the keys of a command with arguments.",
    ),
    command("getkeysandflags", -3, getkeysandflags)
        .flags(OF_COMMAND)
        .about(
            CommandGroup::Server,
            "7.0.0",
            "Returns the keys of a command, and how it uses them.",
        ),
    command("help", 2, show_help).flags(OF_COMMAND).about(
        CommandGroup::Server,
        "5.0.0",
        "Lists the subcommands.",
    ),
    command("info", -2, info).flags(OF_COMMAND).about(
        CommandGroup::Server,
        "2.8.13",
        "Returns information about some commands.",
    ),
    command("list", -2, list).flags(OF_COMMAND).about(
        CommandGroup::Server,
        "7.0.0",
        "Lists the names of commands.",
    ),
];

fn all(execution: &mut Execution<'_>) -> Result<()> {
    if execution.args.len() > 1 {
        return container(execution);
    }
    let all = execution.commands.all();
    execution.reply.array(all.len());
    for command in all {
        describe(execution.reply, command, command.name);
    }
    Ok(())
}

fn describe(reply: &mut ReplyBuffer, command: &Command, name: &str) {
    reply.array(10);
    reply.bulk(name);
    reply.integer(i64::from(command.arity));
    let flags: Vec<_> = command.flag_names().collect();
    reply.set(flags.len());
    for flag in flags {
        reply.simple(flag);
    }
    let (first, last, step) = match command.keys {
        KeySpec::None | KeySpec::Streams => (0, 0, 0),
        KeySpec::Range(first, last, step) => (first, last, step),
        KeySpec::Counted { first, count } if first == count => (0, 0, 0),
        KeySpec::Counted { .. } | KeySpec::Stored(_) => (1, 1, 1),
        KeySpec::Migrated => (3, 3, 1),
    };
    reply.count(first);
    reply.integer(i64::from(last));
    reply.count(step);
    let categories = command.categories(name);
    reply.set(categories.len());
    for category in categories {
        reply.simple(category);
    }
    reply.array(0);
    key_specs(reply, command);
    reply.array(command.subcommands.len());
    for subcommand in command.subcommands {
        describe(reply, subcommand, &format!("{name}|{}", subcommand.name));
    }
}

fn key_specs(reply: &mut ReplyBuffer, command: &Command) {
    let (first, last, step) = match command.keys {
        KeySpec::None => return reply.array(0),
        KeySpec::Streams => return streams_spec(reply, command),
        KeySpec::Range(first, last, step) => (first, last, step),
        KeySpec::Counted { first, count } if first == count => {
            return counted_spec(reply, command, count);
        }
        KeySpec::Counted { .. } | KeySpec::Stored(_) => (1, 1, 1),
        KeySpec::Migrated => (3, 3, 1),
    };
    reply.array(1);
    reply.map(3);
    reply.bulk("flags");
    let flags = key_flags(command);
    reply.set(flags.len());
    for flag in flags {
        reply.simple(flag);
    }
    reply.bulk("begin_search");
    reply.map(2);
    reply.bulk("type");
    reply.bulk("index");
    reply.bulk("spec");
    reply.map(1);
    reply.bulk("index");
    reply.count(first);
    reply.bulk("find_keys");
    reply.map(2);
    reply.bulk("type");
    reply.bulk("range");
    reply.bulk("spec");
    reply.map(3);
    reply.bulk("lastkey");
    let first = i64::try_from(first).unwrap_or_default();
    reply.integer(match last < 0 {
        true => i64::from(last),
        false => i64::from(last) - first,
    });
    reply.bulk("keystep");
    reply.count(step);
    reply.bulk("limit");
    reply.integer(0);
}

/// Keys behind a word, as many as there are ids behind them.
fn streams_spec(reply: &mut ReplyBuffer, command: &Command) {
    reply.array(1);
    reply.map(3);
    reply.bulk("flags");
    let flags = key_flags(command);
    reply.set(flags.len());
    for flag in flags {
        reply.simple(flag);
    }
    reply.bulk("begin_search");
    reply.map(2);
    reply.bulk("type");
    reply.bulk("keyword");
    reply.bulk("spec");
    reply.map(2);
    reply.bulk("keyword");
    reply.bulk("STREAMS");
    reply.bulk("startfrom");
    reply.integer(1);
    reply.bulk("find_keys");
    reply.map(2);
    reply.bulk("type");
    reply.bulk("range");
    reply.bulk("spec");
    reply.map(3);
    for (name, number) in [("lastkey", -1), ("keystep", 1), ("limit", 2)] {
        reply.bulk(name);
        reply.integer(number);
    }
}

/// Keys behind their number.
fn counted_spec(reply: &mut ReplyBuffer, command: &Command, place: usize) {
    reply.array(1);
    reply.map(3);
    reply.bulk("flags");
    let flags = key_flags(command);
    reply.set(flags.len());
    for flag in flags {
        reply.simple(flag);
    }
    for (part, kind, numbers) in [
        ("begin_search", "index", &[("index", place)][..]),
        (
            "find_keys",
            "keynum",
            &[("keynumidx", 0), ("firstkey", 1), ("keystep", 1)],
        ),
    ] {
        reply.bulk(part);
        reply.map(2);
        reply.bulk("type");
        reply.bulk(kind);
        reply.bulk("spec");
        reply.map(numbers.len());
        for (name, number) in numbers {
            reply.bulk(name);
            reply.count(*number);
        }
    }
}

fn key_flags(command: &Command) -> &'static [&'static str] {
    match command.has(crate::command::WRITE) {
        true => &["RW", "access", "update"],
        false => &["RO", "access"],
    }
}

fn count(execution: &mut Execution<'_>) -> Result<()> {
    execution.reply.count(execution.commands.all().len());
    Ok(())
}

/// The command of a name such as `get` or `config|get`, with that name.
fn named(execution: &Execution<'_>, name: &[u8]) -> Option<(&'static Command, String)> {
    let lower = String::from_utf8_lossy(name).to_ascii_lowercase();
    let Some((container, subcommand)) = lower.split_once('|') else {
        return Some((execution.commands.find(name)?, lower));
    };
    let container = execution.commands.find(container.as_bytes())?;
    let found = container.subcommand(subcommand.as_bytes())?;
    Some((found, lower))
}

fn info(execution: &mut Execution<'_>) -> Result<()> {
    let asked = execution.args.from(2);
    if asked.len() == 0 {
        let all = execution.commands.all();
        execution.reply.array(all.len());
        for command in all {
            describe(execution.reply, command, command.name);
        }
        return Ok(());
    }
    execution.reply.array(asked.len());
    for name in asked.iter() {
        match named(execution, name) {
            Some((command, name)) => describe(execution.reply, command, &name),
            None => execution.reply.null_array(),
        }
    }
    Ok(())
}

fn docs(execution: &mut Execution<'_>) -> Result<()> {
    let asked = execution.args.from(2);
    let found: Vec<(&'static Command, String)> = match asked.len() {
        0 => {
            let all = execution.commands.all().into_iter();
            all.map(|command| (command, command.name.to_owned()))
                .collect()
        }
        _ => asked
            .iter()
            .filter_map(|name| named(execution, name))
            .collect(),
    };
    execution.reply.map(found.len());
    for (command, name) in found {
        document(execution.reply, command, &name);
    }
    Ok(())
}

fn document(reply: &mut ReplyBuffer, command: &Command, name: &str) {
    reply.bulk(name);
    reply.map(3 + usize::from(!command.subcommands.is_empty()));
    for (field, value) in [
        ("summary", command.summary),
        ("since", command.since),
        ("group", command.group.name()),
    ] {
        reply.bulk(field);
        reply.bulk(value);
    }
    if !command.subcommands.is_empty() {
        reply.bulk("subcommands");
        reply.map(command.subcommands.len());
        for subcommand in command.subcommands {
            document(reply, subcommand, &format!("{name}|{}", subcommand.name));
        }
    }
}

fn list(execution: &mut Execution<'_>) -> Result<()> {
    let args = execution.args;
    let option = args.get(3).map(<[u8]>::to_ascii_lowercase);
    let is_filter = args
        .get(2)
        .is_none_or(|word| word.eq_ignore_ascii_case(b"filterby"));
    let value = args.at(4);
    let fits = |command: &Command| match option.as_deref() {
        None => true,
        Some(b"pattern") => {
            let name = &execution.commands.entry(command).name;
            glob::matches_any_case(value, name.as_bytes())
        }
        Some(b"aclcat") => command.categories(command.name).iter().any(|category| {
            category
                .trim_start_matches('@')
                .as_bytes()
                .eq_ignore_ascii_case(value)
        }),
        // No command is of a module.
        Some(_) => false,
    };
    let known = [
        None,
        Some(&b"pattern"[..]),
        Some(b"aclcat"),
        Some(b"module"),
    ];
    if !is_filter || !matches!(args.len(), 2 | 5) || !known.contains(&option.as_deref()) {
        return Err(Fault::SYNTAX);
    }
    let all = execution.commands.all();
    let with_own = |command: &'static Command| once(command).chain(command.subcommands);
    let found = all.into_iter().flat_map(with_own);
    let found: Vec<_> = found.filter(|command| fits(command)).collect();
    execution.reply.array(found.len());
    for command in found {
        execution
            .reply
            .bulk(&execution.commands.entry(command).name);
    }
    Ok(())
}

fn keys_of<'a>(execution: &Execution<'a>) -> Result<(&'static Command, Vec<&'a [u8]>)> {
    let args = execution.args.from(2);
    let command = find(execution.commands, args).map_err(|fault| {
        match fault.text().contains("wrong number") {
            true => Fault::line("ERR Invalid number of arguments specified for command"),
            false => Fault::line("ERR Invalid command specified"),
        }
    })?;
    let keys: Vec<_> = command
        .key_places(args)
        .map(|place| args.at(place))
        .collect();
    let may_have_none = matches!(command.keys, KeySpec::Counted { .. });
    match keys.is_empty() && !may_have_none {
        true => Err(Fault::line("ERR The command has no key arguments")),
        false => Ok((command, keys)),
    }
}

fn getkeys(execution: &mut Execution<'_>) -> Result<()> {
    let (_, keys) = keys_of(execution)?;
    execution.reply.array(keys.len());
    for key in keys {
        execution.reply.bulk(key);
    }
    Ok(())
}

fn getkeysandflags(execution: &mut Execution<'_>) -> Result<()> {
    let (command, keys) = keys_of(execution)?;
    execution.reply.array(keys.len());
    for key in keys {
        execution.reply.array(2);
        execution.reply.bulk(key);
        let flags = key_flags(command);
        execution.reply.set(flags.len());
        for flag in flags {
            execution.reply.simple(flag);
        }
    }
    Ok(())
}

fn show_help(execution: &mut Execution<'_>) -> Result<()> {
    help(
        execution,
        &[
            "COMMAND <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
            "(no subcommand)",
            "    Return information about all commands.",
            "COUNT",
            "    Count the commands.",
            "DOCS [<command-name> ...]",
            "    Document commands.",
            "GETKEYS <full-command>",
            "    Return the keys of a full command.",
            "GETKEYSANDFLAGS <full-command>",
            "    Return the keys of a command, and how it uses them.",
            "INFO [<command-name> ...]",
            "    Return information about some commands.",
            "LIST [FILTERBY (ACLCAT <category> | PATTERN <pattern> | MODULE <name>)]",
            "    List the names of commands.",
        ],
    );
    Ok(())
}
