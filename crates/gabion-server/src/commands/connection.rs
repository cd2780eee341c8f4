//! Commands about the connection itself.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::acl::{self, AclContext, DEFAULT};
use crate::command::{
    ALLOW_BUSY, Command, CommandGroup, FAST, LOADING, NO_AUTH, NOSCRIPT, STALE, UNQUEUED, command,
};
use crate::commands::transactions::unwatch_all;
use crate::execution::Execution;
use crate::fault::{Fault, Result};
use crate::session::{MultiState, ReplyMode};

const OF_CONNECTION: u32 = LOADING | STALE | FAST;

pub(crate) const COMMANDS: &[Command] = &[
    command("auth", -2, auth)
        .flags(ALLOW_BUSY | OF_CONNECTION | NOSCRIPT | NO_AUTH)
        .about(
            CommandGroup::Connection,
            "1.0.0",
            "Authenticates the connection.",
        ),
    command("echo", 2, echo).flags(OF_CONNECTION).about(
        CommandGroup::Connection,
        "1.0.0",
        "Returns its argument.",
    ),
    command("hello", -1, hello)
        .flags(ALLOW_BUSY | OF_CONNECTION | NOSCRIPT | NO_AUTH)
        .about(
            CommandGroup::Connection,
            "6.0.0",
            "Chooses the protocol version, and authenticates.",
        ),
    command("ping", -1, ping).flags(OF_CONNECTION).about(
        CommandGroup::Connection,
        "1.0.0",
        "Replies with PONG or its argument.",
    ),
    command("quit", -1, quit)
        .flags(ALLOW_BUSY | OF_CONNECTION | NOSCRIPT | NO_AUTH | UNQUEUED)
        .about(CommandGroup::Connection, "1.0.0", "Ends the connection."),
    command("reset", 1, reset)
        .flags(ALLOW_BUSY | OF_CONNECTION | NOSCRIPT | NO_AUTH | UNQUEUED)
        .about(CommandGroup::Connection, "6.2.0", "Resets the connection."),
    command("select", 2, select).flags(OF_CONNECTION).about(
        CommandGroup::Connection,
        "1.0.0",
        "Selects a database.",
    ),
];

/// Becomes a user, if the password is right.
fn authenticate(execution: &mut Execution<'_>, name: &[u8], password: &[u8]) -> Result<()> {
    let server = execution.server;
    let Some(user) = server.users.authenticate(name, password) else {
        let context = match execution.session.multi {
            Some(_) => AclContext::Multi,
            None => AclContext::TopLevel,
        };
        let word = execution.arg(0);
        acl::note(server, execution.session, ("auth", context), word, name);
        return Err(Fault::line(
            "WRONGPASS invalid username-password pair or user is disabled.",
        ));
    };
    execution.session.become_user(user, true);
    Ok(())
}

fn auth(execution: &mut Execution<'_>) -> Result<()> {
    let args = execution.args;
    match args.len() {
        2 => {
            if execution.server.users.default.rights().needs_no_password {
                return Err(Fault::line(
                    "ERR AUTH <password> called without any password configured for the default \
                     user. Are you sure your configuration is correct?",
                ));
            }
            authenticate(execution, DEFAULT, args.at(1))?;
        }
        3 => authenticate(execution, args.at(1), args.at(2))?,
        _ => return Err(Fault::SYNTAX),
    }
    execution.reply.ok();
    Ok(())
}

fn echo(execution: &mut Execution<'_>) -> Result<()> {
    let text = execution.arg(1);
    execution.reply.bulk(text);
    Ok(())
}

fn hello(execution: &mut Execution<'_>) -> Result<()> {
    let args = execution.args;
    let mut version = 0;
    let mut at = 1;
    if let Some(asked) = args.get(1) {
        version = crate::args::integer(asked).ok_or(Fault::line(
            "ERR Protocol version is not an integer or out of range",
        ))?;
        if !(2..=3).contains(&version) {
            return Err(Fault::line("NOPROTO unsupported protocol version"));
        }
        at = 2;
    }
    let mut name = None;
    while let Some(word) = args.get(at) {
        match (word.to_ascii_lowercase().as_slice(), args.len() - at - 1) {
            (b"auth", 2..) => {
                authenticate(execution, args.at(at + 1), args.at(at + 2))?;
                at += 3;
            }
            (b"setname", 1..) => {
                name = Some(super::client::checked_name(
                    args.at(at + 1),
                    "Client names",
                )?);
                at += 2;
            }
            _ => {
                return Err(Fault::new(format!(
                    "ERR Syntax error in HELLO option '{}'",
                    String::from_utf8_lossy(word)
                )));
            }
        }
    }
    let is_open = execution.server.users.default.rights().is_open();
    if !execution.session.is_authenticated && !is_open {
        return Err(Fault::line(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the \
             HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and \
             select the RESP protocol version at the same time",
        ));
    }
    if let Some(name) = name {
        execution.session.client.names.lock().name = name;
    }
    if version != 0 {
        set_protocol(execution, version == 3);
    }
    greet(execution);
    Ok(())
}

fn set_protocol(execution: &mut Execution<'_>, is_resp3: bool) {
    execution.reply.is_resp3 = is_resp3;
    // ORDER: Relaxed; whoever sends next finds it soon, as with any change of protocol.
    execution
        .session
        .client
        .is_resp3
        .store(is_resp3, Ordering::Relaxed);
}

fn greet(execution: &mut Execution<'_>) {
    let id = i64::try_from(execution.session.client.id).unwrap_or(i64::MAX);
    let reply = &mut *execution.reply;
    reply.map(7);
    for (name, value) in [("server", "redis"), ("version", super::info::REDIS_VERSION)] {
        reply.bulk(name);
        reply.bulk(value);
    }
    reply.bulk("proto");
    reply.integer(if reply.is_resp3 { 3 } else { 2 });
    reply.bulk("id");
    reply.integer(id);
    for (name, value) in [("mode", "standalone"), ("role", "master")] {
        reply.bulk(name);
        reply.bulk(value);
    }
    reply.bulk("modules");
    reply.array(0);
}

fn ping(execution: &mut Execution<'_>) -> Result<()> {
    let args = execution.args;
    if args.len() > 2 {
        return Err(execution.wrong_arguments());
    }
    if execution.session.is_subscribed() && !execution.reply.is_resp3 {
        execution.reply.array(2);
        execution.reply.bulk("pong");
        execution.reply.bulk(args.at(1));
    } else if let Some(text) = args.get(1) {
        execution.reply.bulk(text);
    } else {
        execution.reply.simple("PONG");
    }
    Ok(())
}

fn quit(execution: &mut Execution<'_>) -> Result<()> {
    execution.reply.ok();
    execution.session.is_closing = true;
    // Others need not wait for the end to know of it.
    execution.session.client.kill();
    Ok(())
}

fn reset(execution: &mut Execution<'_>) -> Result<()> {
    execution.session.multi = None::<MultiState>;
    unwatch_all(execution);
    super::pubsub::leave_all(execution);
    super::tracking::end(execution);
    execution.session.wants = ReplyMode::All;
    execution.session.select(0);
    let default = Arc::clone(&execution.server.users.default);
    let is_open = default.rights().is_open();
    execution.session.become_user(default, is_open);
    execution.session.client.names.lock().name.clear();
    set_protocol(execution, false);
    execution.session.show();
    execution.reply.simple("RESET");
    Ok(())
}

fn select(execution: &mut Execution<'_>) -> Result<()> {
    let argument = execution.arg(1);
    if crate::args::integer(argument).is_none() {
        return Err(Fault::line("ERR value is not an integer or out of range"));
    }
    let database = execution.database(argument)?;
    execution.session.select(database);
    execution.reply.ok();
    Ok(())
}
