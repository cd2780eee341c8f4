//! Functions: `FUNCTION` and `FCALL`.

use std::collections::{BTreeMap, BTreeSet};

use crate::command::{
    ALLOW_BUSY, ALONE, Command, CommandGroup, DENYOOM, LONG, MAY_WRITE, MOVABLE_KEYS, NOSCRIPT,
    READONLY, STALE, WRITE, command,
};
use crate::commands::scripts::{end, run_call};
use crate::commands::{container, help};
use crate::execution::Execution;
use crate::fault::{Fault, Result};
use crate::glob;
use crate::rdb::{Refused, libraries};
use crate::script::{FunctionLibrary, LuaEngine, ScriptCall, library, metadata};
use crate::store::library_key;
use crate::store::work::Room;

const ABOUT: CommandGroup = CommandGroup::Scripting;
const OF_CALLS: u32 = NOSCRIPT | STALE | ALONE | LONG | MOVABLE_KEYS;

pub(crate) const COMMANDS: &[Command] = &[
    command("fcall", -3, fcall)
        .flags(OF_CALLS | MAY_WRITE)
        .counted_keys(2, 2)
        .about(ABOUT, "7.0.0", "Runs a function."),
    command("fcall_ro", -3, fcall)
        .flags(OF_CALLS | READONLY)
        .counted_keys(2, 2)
        .about(ABOUT, "7.0.0", "Runs a function that writes nothing."),
    command("function", -2, container).with(SUBCOMMANDS).about(
        ABOUT,
        "7.0.0",
        "Loads and removes functions.",
    ),
];

const SUBCOMMANDS: &[Command] = &[
    command("delete", 3, delete)
        .flags(NOSCRIPT | WRITE | ALONE)
        .about(ABOUT, "7.0.0", "Removes a library."),
    command("dump", 2, dump).flags(NOSCRIPT | ALONE).about(
        ABOUT,
        "7.0.0",
        "Returns all libraries as a snapshot has them.",
    ),
    command("flush", -2, flush)
        .flags(NOSCRIPT | WRITE | ALONE)
        .about(ABOUT, "7.0.0", "Removes all libraries."),
    command("help", 2, show_help)
        .flags(STALE)
        .about(ABOUT, "7.0.0", "Lists the subcommands."),
    command("kill", 2, kill).flags(NOSCRIPT | ALLOW_BUSY).about(
        ABOUT,
        "7.0.0",
        "Ends the function that runs.",
    ),
    command("list", -2, list).flags(NOSCRIPT | ALONE).about(
        ABOUT,
        "7.0.0",
        "Lists libraries and their functions.",
    ),
    command("load", -3, load)
        .flags(NOSCRIPT | WRITE | DENYOOM | ALONE | LONG)
        .about(ABOUT, "7.0.0", "Loads a library."),
    command("restore", -3, restore)
        .flags(NOSCRIPT | WRITE | DENYOOM | ALONE | LONG)
        .about(
            ABOUT,
            "7.0.0",
            "Loads the libraries that DUMP has returned.",
        ),
    command("stats", 2, stats)
        .flags(NOSCRIPT | ALLOW_BUSY)
        .about(ABOUT, "7.0.0", "Shows the running function."),
];

fn fcall(execution: &mut Execution<'_>) -> Result<()> {
    let (name, wants_readonly) = (execution.arg(1), execution.command.has(READONLY));
    let call = {
        let engine = execution.server.scripts.engine(&execution.server.store)?;
        let Some((registered, function)) = engine.function(name) else {
            return Err(Fault::line("ERR Function not found"));
        };
        let is_readonly = registered.flags.iter().any(|flag| flag == "no-writes");
        if wants_readonly && !is_readonly {
            return Err(Fault::line(
                "ERR Can not execute a script with write flag using *_ro command.",
            ));
        }
        ScriptCall {
            function,
            name: String::from_utf8_lossy(name).into_owned(),
            is_readonly,
            is_function: true,
        }
    };
    let bad = |_| Fault::line("ERR Bad number of keys provided");
    let keys = crate::command::parse_integer(execution.arg(2)).map_err(bad)?;
    let keys = match usize::try_from(keys) {
        Ok(keys) if keys <= execution.args.len() - 3 => keys,
        Ok(_) => {
            return Err(Fault::line(
                "ERR Number of keys can't be greater than number of args",
            ));
        }
        Err(_) => return Err(Fault::line("ERR Number of keys can't be negative")),
    };
    run_call(execution, &call, keys)
}

fn load(execution: &mut Execution<'_>) -> Result<()> {
    let args = execution.args;
    let replaces = match args.len() {
        3 => false,
        4 if args.at(2).eq_ignore_ascii_case(b"replace") => true,
        _ => {
            return Err(Fault::new(format!(
                "ERR Unknown option given: {}",
                String::from_utf8_lossy(args.at(2))
            )));
        }
    };
    let code = args.at(args.len() - 1);
    let server = execution.server;
    let mut engine = server.scripts.engine(&server.store)?;
    let (name, made) = prepare(&mut engine, code, replaces, &BTreeSet::new())?;
    execution
        .work
        .write(Room::Settings, &library_key(&name), Some(code))?;
    execution.work.dirty += 1;
    engine.libraries.insert(name.clone(), made);
    server.scripts.note(&engine);
    execution.reply.bulk(name);
    Ok(())
}

/// Loads a library beside those that there are, without those of some names.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn prepare(
    engine: &mut LuaEngine,
    code: &[u8],
    replaces: bool,
    without: &BTreeSet<Vec<u8>>,
) -> Result<(Vec<u8>, FunctionLibrary)> {
    let said = |why: String| Fault::new(format!("ERR {why}"));
    let (name, program) = metadata(code).map_err(said)?;
    if !replaces && !without.contains(&name) && engine.libraries.contains_key(&name) {
        let name = String::from_utf8_lossy(&name);
        return Err(said(format!("Library '{name}' already exists")));
    }
    let functions = engine.load(program).map_err(said)?;
    let made = library(code.to_vec(), functions);
    for (other, known) in &engine.libraries {
        if *other == name || without.contains(other) {
            continue;
        }
        if let Some(taken) = made
            .functions
            .keys()
            .find(|function| known.functions.contains_key(*function))
        {
            let taken = String::from_utf8_lossy(taken);
            return Err(said(format!("Function {taken} already exists")));
        }
    }
    Ok((name, made))
}

fn delete(execution: &mut Execution<'_>) -> Result<()> {
    let name = execution.arg(2);
    let server = execution.server;
    let mut engine = server.scripts.engine(&server.store)?;
    if engine.libraries.remove(name).is_none() {
        return Err(Fault::line("ERR Library not found"));
    }
    execution
        .work
        .write(Room::Settings, &library_key(name), None)?;
    execution.work.dirty += 1;
    server.scripts.note(&engine);
    execution.reply.ok();
    Ok(())
}

/// An error for a number of words that `FUNCTION` does not take.
fn unfit(execution: &Execution<'_>) -> Fault {
    Fault::new(format!(
        "ERR unknown subcommand or wrong number of arguments for '{}'. Try FUNCTION HELP.",
        String::from_utf8_lossy(execution.arg(1))
    ))
}

fn flush(execution: &mut Execution<'_>) -> Result<()> {
    if execution.args.len() > 3 {
        return Err(unfit(execution));
    }
    let is_way = |word: &[u8]| matches!(word.to_ascii_lowercase().as_slice(), b"sync" | b"async");
    if !execution.args.get(2).is_none_or(is_way) {
        return Err(Fault::line(
            "ERR FUNCTION FLUSH only supports SYNC|ASYNC option",
        ));
    }
    remove_all(execution)?;
    execution.reply.ok();
    Ok(())
}

fn remove_all(execution: &mut Execution<'_>) -> Result<()> {
    let server = execution.server;
    let mut engine = server.scripts.engine(&server.store)?;
    for name in engine.libraries.keys() {
        execution
            .work
            .write(Room::Settings, &library_key(name), None)?;
        execution.work.dirty += 1;
    }
    engine.libraries.clear();
    server.scripts.note(&engine);
    Ok(())
}

fn dump(execution: &mut Execution<'_>) -> Result<()> {
    let server = execution.server;
    let engine = server.scripts.engine(&server.store)?;
    let programs = engine.libraries.values();
    let payload = libraries::write(programs.map(|library| library.code.as_slice()));
    execution.reply.bulk(payload);
    Ok(())
}

fn restore(execution: &mut Execution<'_>) -> Result<()> {
    let args = execution.args;
    if args.len() > 4 {
        return Err(unfit(execution));
    }
    let policy = args.get(3).map(<[u8]>::to_ascii_lowercase);
    let (flushes, replaces) = match policy.as_deref() {
        None | Some(b"append") => (false, false),
        Some(b"replace") => (false, true),
        Some(b"flush") => (true, false),
        Some(_) => {
            return Err(Fault::line(
                "ERR Wrong restore policy given, value should be either FLUSH, APPEND or REPLACE.",
            ));
        }
    };
    let codes = libraries::read(args.at(2)).map_err(|refused| match refused {
        Refused::Foot => Fault::line("ERR DUMP payload version or checksum are wrong"),
        _ => Fault::line("ERR given type is not a function"),
    })?;
    let server = execution.server;
    let mut engine = server.scripts.engine(&server.store)?;
    let without: BTreeSet<Vec<u8>> = match flushes {
        true => engine.libraries.keys().cloned().collect(),
        false => BTreeSet::new(),
    };
    // All are checked before the first takes effect.
    let mut made: BTreeMap<Vec<u8>, FunctionLibrary> = BTreeMap::new();
    for code in &codes {
        let (name, library) = prepare(&mut engine, code, replaces, &without).map_err(|fault| {
            // Here the name of a library stands without quotation marks.
            let text = fault.text().replace('\'', "");
            Fault::new(text)
        })?;
        let taken = made.values().flat_map(|other| other.functions.keys());
        if let Some(taken) = taken
            .into_iter()
            .find(|function| library.functions.contains_key(*function))
        {
            let taken = String::from_utf8_lossy(taken);
            return Err(Fault::new(format!("ERR Function {taken} already exists")));
        }
        made.insert(name, library);
    }
    for name in &without {
        execution
            .work
            .write(Room::Settings, &library_key(name), None)?;
        engine.libraries.remove(name);
    }
    for (name, library) in made {
        let key = library_key(&name);
        execution
            .work
            .write(Room::Settings, &key, Some(&library.code))?;
        engine.libraries.insert(name, library);
        execution.work.dirty += 1;
    }
    server.scripts.note(&engine);
    execution.reply.ok();
    Ok(())
}

fn list(execution: &mut Execution<'_>) -> Result<()> {
    let args = execution.args;
    let (mut with_code, mut pattern, mut at) = (false, None, 2);
    while let Some(word) = args.get(at) {
        at += 1;
        match word.to_ascii_lowercase().as_slice() {
            b"withcode" if !with_code => with_code = true,
            b"libraryname" if pattern.is_none() => {
                let given = args.get(at);
                pattern =
                    Some(given.ok_or(Fault::line("ERR library name argument was not given"))?);
                at += 1;
            }
            _ => {
                return Err(Fault::new(format!(
                    "ERR Unknown argument {}",
                    String::from_utf8_lossy(word)
                )));
            }
        }
    }
    let server = execution.server;
    let engine = server.scripts.engine(&server.store)?;
    let fits = |name: &[u8]| pattern.is_none_or(|pattern| glob::matches_any_case(pattern, name));
    let found: Vec<_> = engine
        .libraries
        .iter()
        .filter(|(name, _)| fits(name))
        .collect();
    let reply = &mut *execution.reply;
    reply.array(found.len());
    for (name, library) in found {
        reply.map(3 + usize::from(with_code));
        reply.bulk("library_name");
        reply.bulk(name);
        reply.bulk("engine");
        reply.bulk("LUA");
        reply.bulk("functions");
        reply.array(library.functions.len());
        for function in library.functions.values() {
            reply.map(3);
            reply.bulk("name");
            reply.bulk(&function.name);
            reply.bulk("description");
            reply.bulk_or_null(function.description.as_deref());
            reply.bulk("flags");
            reply.set(function.flags.len());
            for flag in &function.flags {
                reply.simple(flag);
            }
        }
        if with_code {
            reply.bulk("library_code");
            reply.bulk(&library.code);
        }
    }
    Ok(())
}

fn kill(execution: &mut Execution<'_>) -> Result<()> {
    end(execution, true)
}

/// While a function runs nothing else is known of the interpreter.
fn stats(execution: &mut Execution<'_>) -> Result<()> {
    let server = execution.server;
    let running = server.scripts.running.function();
    let elapsed = server.scripts.running.elapsed_ms();
    let reply = &mut *execution.reply;
    reply.map(2);
    reply.bulk("running_script");
    match running.zip(elapsed) {
        None => reply.null(),
        Some(((name, command), elapsed)) => {
            reply.map(3);
            reply.bulk("name");
            reply.bulk(name);
            reply.bulk("command");
            reply.array(command.len());
            for word in command {
                reply.bulk(word);
            }
            reply.bulk("duration_ms");
            reply.integer(i64::try_from(elapsed).unwrap_or(i64::MAX));
        }
    }
    reply.bulk("engines");
    reply.map(1);
    reply.bulk("LUA");
    let (libraries, functions) = server.scripts.counts(&server.store)?;
    reply.map(2);
    reply.bulk("libraries_count");
    reply.count(libraries);
    reply.bulk("functions_count");
    reply.count(functions);
    Ok(())
}

fn show_help(execution: &mut Execution<'_>) -> Result<()> {
    help(
        execution,
        &[
            "FUNCTION <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
            "DUMP",
            "    Return all libraries as a snapshot has them.",
            "RESTORE <PAYLOAD> [FLUSH|APPEND|REPLACE]",
            "    Load the libraries that DUMP has returned.",
            "DELETE <LIBRARY NAME>",
            "    Remove a library.",
            "FLUSH [ASYNC|SYNC]",
            "    Remove all libraries.",
            "KILL",
            "    End the function that runs.",
            "LIST [LIBRARYNAME PATTERN] [WITHCODE]",
            "    List libraries and their functions.",
            "LOAD [REPLACE] <FUNCTION CODE>",
            "    Load a library.",
            "STATS",
            "    Show the running function.",
        ],
    );
    Ok(())
}
