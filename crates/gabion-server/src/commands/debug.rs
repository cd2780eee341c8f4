//! `DEBUG`: for tests of clients and of the server.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::args::float;
use crate::command::{
    ADMIN, ALONE, Command, CommandGroup, LOADING, LONG, NOSCRIPT, STALE, command,
};
use crate::commands::object::encoding_of;
use crate::commands::{container, digest, help};
use crate::execution::Execution;
use crate::fault::{Fault, Result};

const OF_DEBUG: u32 = ADMIN | NOSCRIPT | LOADING | STALE;

pub(crate) const COMMANDS: &[Command] = &[command("debug", -2, container).with(SUBCOMMANDS).about(
    CommandGroup::Server,
    "1.0.0",
    "Helps tests.",
)];

const SUBCOMMANDS: &[Command] = &[
    command("digest", 2, digest::digest)
        .flags(OF_DEBUG | ALONE | LONG)
        .about(
            CommandGroup::Server,
            "1.0.0",
            "Returns a fingerprint of all keys.",
        ),
    command("digest-value", -3, digest::digest_value)
        .flags(OF_DEBUG | crate::command::READONLY)
        .keys(2, -1, 1)
        .about(
            CommandGroup::Server,
            "5.0.0",
            "Returns fingerprints of values.",
        ),
    command("error", 3, error).flags(OF_DEBUG).about(
        CommandGroup::Server,
        "2.8.0",
        "Answers with an error, for tests of clients.",
    ),
    command("help", 2, show_help).flags(LOADING | STALE).about(
        CommandGroup::Server,
        "1.0.0",
        "Lists the subcommands.",
    ),
    command("loadaof", 2, take).flags(OF_DEBUG).about(
        CommandGroup::Server,
        "1.0.0",
        "Accepted without effect: all data is on the drive.",
    ),
    command("object", -3, object)
        .flags(OF_DEBUG | crate::command::READONLY)
        .keys(2, 2, 1)
        .about(
            CommandGroup::Server,
            "1.0.0",
            "Shows the encoding of a key.",
        ),
    command("quicklist-packed-threshold", 3, take)
        .flags(OF_DEBUG)
        .about(
            CommandGroup::Server,
            "7.0.0",
            "Accepted without effect: lists have another encoding here.",
        ),
    command("reload", -2, take).flags(OF_DEBUG).about(
        CommandGroup::Server,
        "1.0.0",
        "Accepted without effect: all data is on the drive.",
    ),
    command("set-active-expire", 3, set_active_expire)
        .flags(OF_DEBUG)
        .about(
            CommandGroup::Server,
            "1.0.0",
            "Turns the removal of expired keys on and off.",
        ),
    command("sleep", 3, sleep)
        .flags(OF_DEBUG | ALONE | LONG)
        .about(
            CommandGroup::Server,
            "1.0.0",
            "Keeps all commands waiting for seconds.",
        ),
];

fn error(execution: &mut Execution<'_>) -> Result<()> {
    Err(Fault::new(
        String::from_utf8_lossy(execution.arg(2)).into_owned(),
    ))
}

fn sleep(execution: &mut Execution<'_>) -> Result<()> {
    let seconds = float(execution.arg(2)).ok_or(Fault::NOT_A_FLOAT)?;
    let pause = Duration::try_from_secs_f64(seconds).map_err(|_| Fault::NOT_A_FLOAT)?;
    std::thread::sleep(pause);
    execution.reply.ok();
    Ok(())
}

fn take(execution: &mut Execution<'_>) -> Result<()> {
    execution.reply.ok();
    Ok(())
}

fn object(execution: &mut Execution<'_>) -> Result<()> {
    let key = execution.arg(2);
    let meta = execution.find(key)?.ok_or(Fault::NO_SUCH_KEY)?;
    let encoding = encoding_of(execution, &meta)?;
    execution.reply.simple(&format!(
        "Value at:0x0 refcount:1 encoding:{encoding} serializedlength:{} lru:0 lru_seconds_idle:0",
        meta.body().len()
    ));
    Ok(())
}

fn set_active_expire(execution: &mut Execution<'_>) -> Result<()> {
    let removes = match execution.arg(2) {
        b"0" => false,
        b"1" => true,
        _ => return Err(Fault::SYNTAX),
    };
    // ORDER: Relaxed; a switch for tests.
    execution
        .server
        .removes_expired
        .store(removes, Ordering::Relaxed);
    execution.reply.ok();
    Ok(())
}

fn show_help(execution: &mut Execution<'_>) -> Result<()> {
    help(
        execution,
        &[
            "DEBUG <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
            "ERROR <string>",
            "    Answer with an error.",
            "SET-ACTIVE-EXPIRE <0|1>",
            "    Turn the removal of expired keys on and off.",
            "SLEEP <seconds>",
            "    Keep all commands waiting.",
        ],
    );
    Ok(())
}
