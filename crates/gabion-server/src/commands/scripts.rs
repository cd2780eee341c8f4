//! Scripts: `EVAL`, `EVALSHA`, and `SCRIPT`.

use crate::command::{
    ALLOW_BUSY, ALONE, Command, CommandGroup, LONG, MAY_WRITE, MOVABLE_KEYS, NOSCRIPT, READONLY,
    STALE, command, parse_integer,
};
use crate::commands::{container, help};
use crate::execution::Execution;
use crate::fault::{Fault, Result};
use crate::script::{BUSY_FUNCTION, BUSY_SCRIPT, KillOutcome, Script, ScriptCall, failed, hash};

const OF_SCRIPTS: u32 = NOSCRIPT | STALE | ALONE | LONG | MOVABLE_KEYS;
const WRITING: u32 = OF_SCRIPTS | MAY_WRITE;
const ABOUT: CommandGroup = CommandGroup::Scripting;

pub(crate) const COMMANDS: &[Command] = &[
    command("eval", -3, eval)
        .flags(WRITING)
        .counted_keys(2, 2)
        .about(ABOUT, "2.6.0", "Runs a script."),
    command("eval_ro", -3, eval)
        .flags(OF_SCRIPTS | READONLY)
        .counted_keys(2, 2)
        .about(ABOUT, "7.0.0", "Runs a script that writes nothing."),
    command("evalsha", -3, evalsha)
        .flags(WRITING)
        .counted_keys(2, 2)
        .about(ABOUT, "2.6.0", "Runs a script that was loaded."),
    command("evalsha_ro", -3, evalsha)
        .flags(OF_SCRIPTS | READONLY)
        .counted_keys(2, 2)
        .about(
            ABOUT,
            "7.0.0",
            "Runs a script that was loaded and writes nothing.",
        ),
    command("script", -2, container).with(SUBCOMMANDS).about(
        ABOUT,
        "2.6.0",
        "Loads and ends scripts.",
    ),
];

const SUBCOMMANDS: &[Command] = &[
    command("debug", 3, debug).flags(NOSCRIPT).about(
        ABOUT,
        "3.2.0",
        "Always fails: there is no debugger.",
    ),
    command("exists", -3, exists).flags(NOSCRIPT).about(
        ABOUT,
        "2.6.0",
        "Returns which scripts are loaded.",
    ),
    command("flush", -2, flush).flags(NOSCRIPT | ALONE).about(
        ABOUT,
        "2.6.0",
        "Removes all scripts.",
    ),
    command("help", 2, show_help)
        .flags(STALE)
        .about(ABOUT, "5.0.0", "Lists the subcommands."),
    command("kill", 2, kill).flags(NOSCRIPT | ALLOW_BUSY).about(
        ABOUT,
        "2.6.0",
        "Ends the script that runs.",
    ),
    command("load", 3, load)
        .flags(NOSCRIPT | STALE | ALONE)
        .about(ABOUT, "2.6.0", "Loads a script and returns its hash."),
];

/// How many keys there are, of the third argument.
///
/// # Errors
/// What Redis says of a number that does not fit.
pub(crate) fn count_keys(execution: &Execution<'_>) -> Result<usize> {
    let keys = parse_integer(execution.arg(2))?;
    let most = execution.args.len() - 3;
    match usize::try_from(keys) {
        Ok(keys) if keys <= most => Ok(keys),
        Ok(_) => Err(Fault::line(
            "ERR Number of keys can't be greater than number of args",
        )),
        Err(_) => Err(Fault::line("ERR Number of keys can't be negative")),
    }
}

fn eval(execution: &mut Execution<'_>) -> Result<()> {
    let keys = count_keys(execution)?;
    let code = execution.arg(1);
    let hash = hash(code);
    let known = execution.server.scripts.known.read().get(&hash).cloned();
    match known {
        Some(script) => run(execution, &script, hash, keys),
        None => {
            let script = add(execution, &hash, code)?;
            run(execution, &script, hash, keys)
        }
    }
}

fn evalsha(execution: &mut Execution<'_>) -> Result<()> {
    let keys = count_keys(execution)?;
    let hash = String::from_utf8_lossy(execution.arg(1)).to_ascii_lowercase();
    let known = execution.server.scripts.known.read().get(&hash).cloned();
    let script = known.ok_or(Fault::line("NOSCRIPT No matching script. Please use EVAL."))?;
    run(execution, &script, hash, keys)
}

/// Compiles a script, and keeps it.
fn add(execution: &Execution<'_>, hash: &str, code: &[u8]) -> Result<Script> {
    let scripts = &execution.server.scripts;
    let script = Script::parse(code)?;
    let mut engine = scripts.engine(&execution.server.store)?;
    engine
        .compile(hash, &script.program)
        .map_err(|why| Fault::new(format!("ERR Error compiling script (new function): {why}")))?;
    scripts
        .known
        .write()
        .insert(hash.to_owned(), script.clone());
    Ok(script)
}

fn run(execution: &mut Execution<'_>, script: &Script, hash: String, keys: usize) -> Result<()> {
    let wants_readonly = execution.command.has(READONLY);
    if wants_readonly && script.flags.is_some() && !script.has("no-writes") {
        return Err(Fault::line(
            "ERR Can not execute a script with write flag using *_ro command.",
        ));
    }
    let function = {
        let mut engine = execution.server.scripts.engine(&execution.server.store)?;
        engine
            .compile(&hash, &script.program)
            .map_err(|why| Fault::new(format!("ERR {why}")))?
    };
    let call = ScriptCall {
        function,
        name: hash,
        is_readonly: wants_readonly || script.has("no-writes"),
        is_function: false,
    };
    run_call(execution, &call, keys)
}

/// Runs a script or a function, and tells others that it runs.
///
/// # Errors
/// When Lua has no memory, or the server ends: then nothing of it takes effect.
pub(crate) fn run_call(
    execution: &mut Execution<'_>,
    call: &ScriptCall,
    keys: usize,
) -> Result<()> {
    let server = execution.server;
    let running = &server.scripts.running;
    let engine = server.scripts.engine(&server.store)?;
    let command = execution.args.iter().map(<[u8]>::to_vec).collect();
    let mark = execution.reply.out.len();
    running.begin(call.is_function, &call.name, command);
    let ran = engine.run(execution, call, keys);
    running.end();
    ran.map_err(failed)?;
    if running.is_stopping() {
        return Err(Fault::line("ERR the server ends"));
    }
    if execution.reply.out.get(mark) == Some(&b'-') {
        let answered = String::from_utf8_lossy(&execution.reply.out[mark + 1..]).into_owned();
        server.count_error(&answered);
    }
    Ok(())
}

fn load(execution: &mut Execution<'_>) -> Result<()> {
    let code = execution.arg(2);
    let hash = hash(code);
    add(execution, &hash, code)?;
    execution.reply.bulk(hash);
    Ok(())
}

fn exists(execution: &mut Execution<'_>) -> Result<()> {
    let hashes = execution.args.from(2);
    let known = execution.server.scripts.known.read();
    execution.reply.array(hashes.len());
    for hash in hashes.iter() {
        let hash = String::from_utf8_lossy(hash).to_ascii_lowercase();
        execution.reply.flag(known.contains_key(&hash));
    }
    Ok(())
}

fn flush(execution: &mut Execution<'_>) -> Result<()> {
    let is_way = |word: &[u8]| matches!(word.to_ascii_lowercase().as_slice(), b"sync" | b"async");
    if execution.args.len() > 3 || !execution.args.get(2).is_none_or(is_way) {
        return Err(Fault::line(
            "ERR SCRIPT FLUSH only support SYNC|ASYNC option",
        ));
    }
    execution.server.scripts.flush();
    execution.reply.ok();
    Ok(())
}

fn kill(execution: &mut Execution<'_>) -> Result<()> {
    end(execution, false)
}

/// Ends what runs, if it is what the command is for.
///
/// # Errors
/// Why it does not end.
pub(crate) fn end(execution: &mut Execution<'_>, is_function: bool) -> Result<()> {
    match execution.server.scripts.running.kill(is_function) {
        KillOutcome::Done => {
            execution.reply.ok();
            Ok(())
        }
        KillOutcome::Idle => Err(Fault::line("NOTBUSY No scripts in execution right now.")),
        KillOutcome::Other if is_function => Err(Fault::line(BUSY_SCRIPT)),
        KillOutcome::Other => Err(Fault::line(BUSY_FUNCTION)),
        KillOutcome::HasWritten => Err(Fault::line(
            "UNKILLABLE Sorry the script already executed write commands against the dataset. You \
             can either wait the script termination or kill the server in a hard way using the \
             SHUTDOWN NOSAVE command.",
        )),
    }
}

fn debug(_: &mut Execution<'_>) -> Result<()> {
    Err(Fault::line("ERR this server has no debugger of scripts"))
}

fn show_help(execution: &mut Execution<'_>) -> Result<()> {
    help(
        execution,
        &[
            "SCRIPT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
            "EXISTS <sha1> [<sha1> ...]",
            "    Return which scripts are loaded.",
            "FLUSH [ASYNC|SYNC]",
            "    Remove all scripts.",
            "KILL",
            "    End the script that runs.",
            "LOAD <script>",
            "    Load a script and return its hash.",
        ],
    );
    Ok(())
}
