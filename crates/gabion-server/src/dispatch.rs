//! From arguments to an effect and a reply.
//!
//! # Steps
//! 1. Find the command, and check what can be checked without its keys: arity, password, the state
//!    of the connection.
//! 2. Between `MULTI` and `EXEC`, queue it.
//! 3. Take its locks: of its keys, shared or alone; or the gate alone.
//! 4. Run the handler, which reads the store and gathers writes.
//! 5. Commit them as a whole. Here the command takes effect.
//! 6. Tell watchers, then let go of the locks, then publish events.
//! 7. Serve the clients that have waited for the keys (`wake.rs`).
//!
//! An error in 4 or 5 discards the writes and becomes the reply.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::acl::{self, AclContext};
use crate::args::Args;
use crate::clients::{Client, now_ms};
use crate::command::{
    ADMIN, ALLOW_BUSY, ALONE, Command, CommandGroup, CommandTable, DIRECT, FAST, LONG, MAY_WRITE,
    NO_AUTH, NO_MULTI, NOSCRIPT, ONE_READ, PUBSUB, READONLY, UNQUEUED, WRITE,
};
use crate::execution::{Execution, wrong_arguments};
use crate::expire;
use crate::fault::{Fault, Result};
use crate::locks::{KeyLockGuard, LockMode};
use crate::resp::reply::ReplyBuffer;
use crate::server::{Server, count};
use crate::session::{ReplyMode, Session};
use crate::store::work::{Work, WorkMode};
use crate::tracking::ClientTracking;
use crate::wake;
use crate::watch::StoredKey;

/// Commands that a subscribed client may send in RESP2.
const OF_SUBSCRIBERS: [&str; 9] = [
    "subscribe",
    "unsubscribe",
    "psubscribe",
    "punsubscribe",
    "ssubscribe",
    "sunsubscribe",
    "ping",
    "quit",
    "reset",
];

/// Runs a request, and writes its reply.
pub(crate) fn run(
    server: &Arc<Server>,
    commands: &'static CommandTable,
    session: &mut Session,
    work: &mut Work,
    reply: &mut ReplyBuffer,
    args: Args<'_>,
) {
    let mark = reply.out.len();
    let ran = match admit(server, commands, session, reply, args) {
        Err(refused) => {
            if let Some(multi) = &mut session.multi {
                multi.is_broken = true;
            }
            if let Some(command) = named(commands, args) {
                server.calls.add_rejected(command.number);
                if command.name == "exec" {
                    abort(server, session);
                }
            }
            Err(refused)
        }
        Ok(command) if is_queued(session, command) => {
            if let Some(multi) = &mut session.multi {
                multi.queue.push(args.to_owned());
            }
            reply.simple("QUEUED");
            session.show();
            Ok(command)
        }
        Ok(command) => {
            // What EXEC runs comes before it.
            let is_exec = command.name == "exec";
            let is_shown = server.monitor.is_watched() && !command.has(ADMIN | NO_AUTH);
            if is_shown && !is_exec {
                show(server, session, args);
            }
            let execution = Execution {
                server,
                commands,
                command,
                session,
                work,
                reply,
                args,
                is_inside: false,
            };
            let executed = match command.has(LONG) {
                true => tokio::task::block_in_place(|| execute(execution)),
                false => execute(execution),
            };
            if session.tracks && session.multi.is_none() {
                unmark(session, commands, command);
            }
            // One look at the clock for each command: where one ends, the next begins.
            let ended = Instant::now();
            let nanos = nanos(ended.duration_since(session.began));
            session.began = ended;
            if is_shown && is_exec {
                show(server, session, args);
            }
            // Who waits for a key is counted when that is over.
            if session.wait.is_none() {
                session.calling.count(&server.calls, command.number, nanos);
                note_spike(server, command, nanos);
            }
            if executed.is_err() {
                server.calls.add_failed(command.number);
            }
            if session.wait.is_none() && !is_exec {
                note_slow(server, &session.client, args, nanos / 1000);
            }
            executed.map(|()| command)
        }
    };
    if let Err(fault) = &ran {
        reply.out.truncate(mark);
        server.count_error(&fault.text());
        if is_of_the_web(args.at(0)) {
            session.is_closing = true;
            return;
        }
        reply.error(&fault.text());
    }
    // Confirmations of subscriptions are messages, which no client turns off.
    let is_message = ran.is_ok_and(|command| command.has(PUBSUB) && command.has(NOSCRIPT));
    match session.wants {
        ReplyMode::All | ReplyMode::None if is_message => {}
        ReplyMode::AllButNext | ReplyMode::AllButThis if is_message => {
            session.wants = ReplyMode::All
        }
        ReplyMode::All => {}
        ReplyMode::None => reply.out.truncate(mark),
        ReplyMode::AllButNext => {
            reply.out.truncate(mark);
            session.wants = ReplyMode::AllButThis;
        }
        ReplyMode::AllButThis => {
            reply.out.truncate(mark);
            session.wants = ReplyMode::All;
        }
    }
}

/// Whether a word that is no command begins a line of HTTP. A page can make its reader's browser
/// send such a request to a port of its own machine, with commands in it: nothing of it is run.
fn is_of_the_web(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"post") || name.eq_ignore_ascii_case(b"host:")
}

/// An error for a command between `MULTI` and `EXEC`, or `EXEC`, while a script runs for long: what
/// is queued then would be run as a half of the transaction.
fn check_busy(server: &Server, command: &Command) -> Result<()> {
    match server.scripts.running.busy(server.settings.busy_ms()) {
        None => Ok(()),
        Some(busy) if command.name == "exec" => Err(Fault::new(format!(
            "EXECABORT Transaction discarded because of: {busy}"
        ))),
        Some(busy) => Err(Fault::line(busy)),
    }
}

/// Ends the transaction of an `EXEC` that was refused.
fn abort(server: &Server, session: &mut Session) {
    session.multi = None;
    let watched = std::mem::take(&mut session.watched);
    if !watched.is_empty() {
        server.watch.end(watched);
    }
    session.show();
}

/// Shows a command to those who watch.
fn show(server: &Server, session: &Session, args: Args<'_>) {
    let from = &session.client.address;
    server.monitor.show(session.database, from, args);
}

/// Notes a command that took so long, if that is long.
pub(crate) fn note_slow(server: &Server, client: &Client, args: Args<'_>, micros: u64) {
    if micros >= server.settings.slow_micros() {
        let most = server.settings.text("slowlog-max-len");
        let most = most.parse().unwrap_or_default();
        server.monitor.note_slow(client, args, micros, most);
    }
}

/// A duration in nanoseconds.
pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Notes for `LATENCY` that a command took so long, if that is long.
fn note_spike(server: &Server, command: &Command, nanos: u64) {
    let event = match command.has(FAST) {
        true => "fast-command",
        false => "command",
    };
    server.spikes.note(&server.settings, event, nanos);
}

/// Ends what `CLIENT CACHING` has begun, once the command behind it has run.
fn unmark(session: &Session, commands: &CommandTable, command: &Command) {
    if !commands.entry(command).name.starts_with("client|")
        && let Some(follows) = session.client.follows.lock().as_mut()
    {
        follows.is_marked = false;
    }
}

/// Whether a request waits while clients are paused: it writes, or all wait.
pub(crate) fn is_paused(
    server: &Server,
    commands: &'static CommandTable,
    session: &Session,
    args: Args<'_>,
) -> bool {
    if server.pause.is_for_all() {
        return true;
    }
    let writes = |args: Args<'_>| {
        // Scripts and messages may write.
        find(commands, args)
            .is_ok_and(|command| command.has(WRITE | MAY_WRITE) && !command.has(UNQUEUED))
    };
    match &session.multi {
        None => writes(args),
        Some(multi) if args.at(0).eq_ignore_ascii_case(b"exec") => {
            multi.queue.iter().any(|queued| writes(queued.borrow()))
        }
        Some(_) => false,
    }
}

fn is_queued(session: &Session, command: &Command) -> bool {
    session.multi.is_some() && !command.has(UNQUEUED)
}

/// The command that is meant, if it may run.
fn admit(
    server: &Server,
    commands: &'static CommandTable,
    session: &Session,
    reply: &ReplyBuffer,
    args: Args<'_>,
) -> Result<&'static Command> {
    let command = find(commands, args).or_else(|fault| {
        // Who may not run a command is not told which subcommands it has.
        let container = commands.find(args.at(0)).filter(|container| {
            container.subcommand(args.at(1)).is_none()
                && session.user.check(commands, container, args).is_err()
        });
        container.ok_or(fault)
    })?;
    if !session.is_authenticated
        && !command.has(NO_AUTH)
        && !server.users.default.rights().is_open()
    {
        return Err(Fault::line("NOAUTH Authentication required."));
    }
    if session.is_subscribed() && !reply.is_resp3 && !OF_SUBSCRIBERS.contains(&command.name) {
        return Err(Fault::new(format!(
            "ERR Can't execute '{}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET \
             are allowed in this context",
            command.name
        )));
    }
    if session.multi.is_some() && !command.has(ALLOW_BUSY) {
        check_busy(server, command)?;
    }
    if command.has(NO_MULTI) && session.multi.is_some() {
        return Err(Fault::line("ERR Command not allowed inside a transaction"));
    }
    if !session.user.is_unlimited() {
        let context = match &session.multi {
            Some(_) => AclContext::Multi,
            None => AclContext::TopLevel,
        };
        acl::check(server, commands, session, (command, args), context)?;
    }
    Ok(command)
}

/// The command, or subcommand, of a request whose arity fits.
///
/// # Errors
/// What Redis says of a name that it does not know, and of too many or too few arguments.
pub(crate) fn find(commands: &'static CommandTable, args: Args<'_>) -> Result<&'static Command> {
    let command = commands.find(args.at(0)).ok_or_else(|| unknown(args))?;
    let command = match args.get(1) {
        Some(name) if !command.subcommands.is_empty() => match command.subcommand(name) {
            Some(subcommand) => subcommand,
            None => return Err(unknown_subcommand(command, name)),
        },
        _ => command,
    };
    match command.takes(args.len()) {
        true => Ok(command),
        false => Err(wrong_arguments(command, args)),
    }
}

/// The command, or subcommand, that a request names, if there is one.
fn named(commands: &'static CommandTable, args: Args<'_>) -> Option<&'static Command> {
    let command = commands.find(args.at(0))?;
    match args.get(1) {
        Some(name) if !command.subcommands.is_empty() => command.subcommand(name),
        _ => Some(command),
    }
}

fn unknown(args: Args<'_>) -> Fault {
    let shown = |bytes: &[u8]| {
        let bytes = bytes.get(..128).unwrap_or(bytes);
        String::from_utf8_lossy(bytes).into_owned()
    };
    let mut line = format!(
        "ERR unknown command '{}', with args beginning with: ",
        shown(args.at(0))
    );
    for argument in args.from(1).iter() {
        if line.len() > 128 {
            break;
        }
        line.push('\'');
        line.push_str(&shown(argument));
        line.push_str("' ");
    }
    Fault::new(line)
}

fn unknown_subcommand(command: &Command, name: &[u8]) -> Fault {
    Fault::new(format!(
        "ERR unknown subcommand '{}'. Try {} HELP.",
        String::from_utf8_lossy(name.get(..128).unwrap_or(name)),
        command.name.to_ascii_uppercase()
    ))
}

/// Runs a command, and serves those who have waited for its keys.
fn execute(mut execution: Execution<'_>) -> Result<()> {
    let (server, client) = (execution.server, execution.session.client.id);
    let touched = perform(execution.again())?;
    server.tell_followers(&touched, Some(client));
    if !touched.is_empty() && server.blocking.count() > 0 {
        wake::wake(server, execution.commands, execution.work, touched);
    }
    Ok(())
}

/// Locks, runs, commits, and tells. Returns the keys that were changed, if anybody wants to know.
pub(crate) fn perform(mut execution: Execution<'_>) -> Result<Vec<StoredKey>> {
    let Execution {
        server,
        commands,
        command,
        args,
        ..
    } = execution;
    execution.work.commands += 1;
    *execution.session.client.command.lock() = &commands.entry(command).name;
    let held = lock(server, command, args)?;
    let way = match command.has(DIRECT | READONLY) || !command.has(WRITE | ALONE) {
        true => WorkMode::Direct,
        false => WorkMode::Whole,
    };
    let is_asked_for =
        server.watch.is_used() || server.blocking.count() > 0 || server.tracking.is_used();
    execution.work.begin(way, now_ms(), is_asked_for);
    let handled = call(execution.again());
    let work = execution.work;
    if handled.is_err() {
        work.discard();
        return handled.map(|()| Vec::new());
    }
    if let Err(fault) = work.commit(server.durability()) {
        if fault.is_of_media() {
            server.note_write(true);
        }
        if command.has(ALONE) {
            server.users.recover(commands, &server.store);
        }
        return Err(fault);
    }
    let mut touched = Vec::new();
    if work.dirty > 0 {
        count(&server.counts.changes, work.dirty);
        server.note_write(false);
        touched = work.touched.take().unwrap_or_default();
        server.tell_watchers(&touched);
    }
    drop(held);
    if work.replaces_all && server.tracking.is_used() {
        server.tracking.invalidate_all(&server.clients);
    }
    for event in work.events.drain(..) {
        server.publish_event(event.class, event.name, event.database, &event.key);
    }
    for (moment, space, key) in std::mem::take(&mut work.expired) {
        // A store that takes no writes still answers reads; the background tries again.
        if expire::remove(server, work, now_ms(), (moment, space, &key)).is_err() {
            work.discard();
        }
    }
    Ok(touched)
}

/// Runs the handler.
fn call(mut execution: Execution<'_>) -> Result<()> {
    // What a script declares is remembered when it reads.
    if execution.session.tracks
        && execution.command.has(READONLY)
        && execution.command.group != CommandGroup::Scripting
    {
        remember(&execution);
    }
    (execution.command.handler)(&mut execution)
}

/// Notes the keys of a command that reads, for a client that wants to know when they change.
fn remember(execution: &Execution<'_>) {
    let (server, client) = (execution.server, &execution.session.client);
    let follows = client.follows.lock();
    if follows.as_ref().is_some_and(ClientTracking::remembers) {
        drop(follows);
        let args = execution.args;
        let keys = execution.command.key_places(args);
        let keys = keys.map(|place| args.at(place));
        let most = server.settings.tracked_max();
        server
            .tracking
            .remember(&server.clients, client.id, keys, most);
    }
}

/// Runs a queued command inside of another that holds the gate, and writes its reply or its error.
pub(crate) fn call_inside(outer: &mut Execution<'_>, args: Args<'_>) {
    let mark = outer.reply.out.len();
    let called = find(outer.commands, args).and_then(|command| {
        let of_queue = (command, args);
        acl::check(
            outer.server,
            outer.commands,
            outer.session,
            of_queue,
            AclContext::Exec,
        )?;
        outer.work.commands += 1;
        if outer.server.monitor.is_watched() && !command.has(ADMIN) {
            let session = &outer.session;
            let from = &session.client.address;
            outer.server.monitor.show(session.database, from, args);
        }
        let began = Instant::now();
        let called = call(Execution {
            command,
            args,
            is_inside: true,
            ..outer.again()
        });
        let micros = count_inside(outer, command, began, called.is_ok());
        note_slow(outer.server, &outer.session.client, args, micros);
        called
    });
    if let Err(fault) = called {
        outer.reply.out.truncate(mark);
        outer.server.count_error(&fault.text());
        outer.reply.error(&fault.text());
    }
}

/// Counts a call within another command; returns how many microseconds it took.
fn count_inside(
    outer: &mut Execution<'_>,
    command: &Command,
    began: Instant,
    has_succeeded: bool,
) -> u64 {
    let nanos = nanos(began.elapsed());
    let calls = &outer.server.calls;
    outer.session.calling.count(calls, command.number, nanos);
    if !has_succeeded {
        calls.add_failed(command.number);
    }
    nanos / 1000
}

/// Runs a command of a script, which holds the gate, and writes its reply or its error.
pub(crate) fn call_in_script(
    outer: &mut Execution<'_>,
    reply: &mut ReplyBuffer,
    args: Args<'_>,
    is_readonly: bool,
) {
    let called = of_script(outer, args, is_readonly).and_then(|command| {
        outer.work.commands += 1;
        if command.has(WRITE) {
            outer.server.scripts.running.writes();
        }
        if outer.session.tracks && command.has(READONLY) {
            remember(outer);
        }
        if outer.server.monitor.is_watched() {
            outer
                .server
                .monitor
                .show(outer.session.database, "lua", args);
        }
        let began = Instant::now();
        let called = call(Execution {
            command,
            reply: &mut *reply,
            args,
            is_inside: true,
            ..outer.again()
        });
        count_inside(outer, command, began, called.is_ok());
        called
    });
    if let Err(fault) = called {
        reply.out.clear();
        reply.error(&fault.text());
    }
}

/// The command that a script means, if scripts may call it.
fn of_script(outer: &Execution<'_>, args: Args<'_>, is_readonly: bool) -> Result<&'static Command> {
    let command = find(outer.commands, args).map_err(|fault| {
        match fault.text().contains("wrong number of arguments") {
            true => Fault::line("ERR Wrong number of args calling Redis command from script"),
            false => Fault::line("ERR Unknown Redis command called from script"),
        }
    })?;
    if command.has(NOSCRIPT) {
        return Err(Fault::line(
            "ERR This Redis command is not allowed from script",
        ));
    }
    if is_readonly && command.has(WRITE) {
        return Err(Fault::line(
            "ERR Write commands are not allowed from read-only scripts.",
        ));
    }
    let of_script = (command, args);
    acl::check(
        outer.server,
        outer.commands,
        outer.session,
        of_script,
        AclContext::Script,
    )?;
    Ok(command)
}

/// Takes the locks of a command.
///
/// # Errors
/// `BUSY`, if a script has kept them for long.
fn lock<'s>(server: &'s Server, command: &Command, args: Args<'_>) -> Result<KeyLockGuard<'s>> {
    if command.has(ALLOW_BUSY) {
        return Ok(server.locks.nothing());
    }
    let busy = || {
        let threshold_ms = server.settings.busy_ms();
        match server.scripts.running.busy(threshold_ms) {
            Some(line) => Err(Fault::line(line)),
            None => Ok(()),
        }
    };
    if command.has(ALONE) {
        return server.locks.all(busy);
    }
    if command.has(ONE_READ) || !command.has(READONLY | WRITE) {
        return server.locks.none(busy);
    }
    let hold = match command.has(WRITE) {
        true => LockMode::Alone,
        false => LockMode::Shared,
    };
    let keys = command.key_places(args).map(|place| args.at(place));
    server.locks.keys(hold, keys, busy)
}
