//! `ACL`: users, and what each may do.

use std::io::Read;
use std::sync::Arc;

use crate::acl::{
    AclSelector, AclUsers, DEFAULT, RuleContext, User, UserPermissions, explain, has_spaces, joined,
};
use crate::clients::now_ms;
use crate::command::{
    ADMIN, ALONE, Command, CommandGroup, LOADING, NOSCRIPT, STALE, command, parse_integer,
};
use crate::commands::{container, help};
use crate::dispatch::find;
use crate::execution::Execution;
use crate::fault::{Fault, Result};
use crate::pubsub::SubscriptionKind;
use crate::resp::reply::ReplyBuffer;
use crate::store::user_key;
use crate::store::work::Room;

const OF_ACL: u32 = NOSCRIPT | LOADING | STALE;
const ABOUT: CommandGroup = CommandGroup::Server;

pub(crate) const COMMANDS: &[Command] =
    &[command("acl", -2, container)
        .with(SUBCOMMANDS)
        .about(ABOUT, "6.0.0", "Manages users.")];

const SUBCOMMANDS: &[Command] = &[
    command("cat", -2, cat).flags(OF_ACL).about(
        ABOUT,
        "6.0.0",
        "Lists categories, or their commands.",
    ),
    command("deluser", -3, deluser)
        .flags(OF_ACL | ADMIN | ALONE)
        .about(ABOUT, "6.0.0", "Removes users, and ends their connections."),
    command("dryrun", -4, dryrun).flags(OF_ACL | ADMIN).about(
        ABOUT,
        "7.0.0",
        "Returns whether a user may run a command.",
    ),
    command("genpass", -2, genpass)
        .flags(OF_ACL)
        .about(ABOUT, "6.0.0", "Makes a password."),
    command("getuser", 3, getuser).flags(OF_ACL | ADMIN).about(
        ABOUT,
        "6.0.0",
        "Returns the permissions of a user.",
    ),
    command("help", 2, show_help).flags(LOADING | STALE).about(
        ABOUT,
        "6.0.0",
        "Lists the subcommands.",
    ),
    command("list", 2, list).flags(OF_ACL | ADMIN).about(
        ABOUT,
        "6.0.0",
        "Lists users with their rules.",
    ),
    command("load", 2, load)
        .flags(OF_ACL | ADMIN | ALONE)
        .about(ABOUT, "6.0.0", "Reads the users of the file."),
    command("log", -2, log).flags(OF_ACL | ADMIN).about(
        ABOUT,
        "6.0.0",
        "Shows denied commands, keys, channels and logins.",
    ),
    command("save", 2, save)
        .flags(OF_ACL | ADMIN | ALONE)
        .about(ABOUT, "6.0.0", "Writes the users into the file."),
    command("setuser", -3, setuser)
        .flags(OF_ACL | ADMIN | ALONE)
        .about(ABOUT, "6.0.0", "Creates or changes a user."),
    command("users", 2, users)
        .flags(OF_ACL | ADMIN)
        .about(ABOUT, "6.0.0", "Lists users."),
    command("whoami", 2, whoami).flags(OF_ACL).about(
        ABOUT,
        "6.0.0",
        "Returns the user of the connection.",
    ),
];

/// What the rules of a command are applied with.
fn ground(execution: &Execution<'_>) -> RuleContext {
    RuleContext {
        commands: execution.commands,
        gives_channels: execution.server.settings.text("acl-pubsub-default") == "allchannels",
    }
}

/// An error for a number of words that `ACL` does not take.
fn unfit(execution: &Execution<'_>) -> Fault {
    Fault::new(format!(
        "ERR unknown subcommand or wrong number of arguments for '{}'. Try ACL HELP.",
        String::from_utf8_lossy(execution.arg(1))
    ))
}

fn whoami(execution: &mut Execution<'_>) -> Result<()> {
    execution.reply.bulk(&execution.session.user.name);
    Ok(())
}

fn users(execution: &mut Execution<'_>) -> Result<()> {
    let all = execution.server.users.all();
    execution.reply.array(all.len());
    for user in all {
        execution.reply.bulk(&user.name);
    }
    Ok(())
}

fn list(execution: &mut Execution<'_>) -> Result<()> {
    let all = execution.server.users.all();
    execution.reply.array(all.len());
    for user in all {
        execution
            .reply
            .bulk(AclUsers::line(execution.commands, &user));
    }
    Ok(())
}

fn getuser(execution: &mut Execution<'_>) -> Result<()> {
    let Some(user) = execution.server.users.find(execution.arg(2)) else {
        execution.reply.null();
        return Ok(());
    };
    let rights = user.rights();
    let commands = execution.commands;
    let reply = &mut *execution.reply;
    reply.map(6);
    reply.bulk("flags");
    let flags = rights.flags();
    reply.set(flags.len());
    for flag in flags {
        reply.bulk(flag);
    }
    reply.bulk("passwords");
    reply.array(rights.passwords.len());
    for password in &rights.passwords {
        reply.bulk(password);
    }
    let show = |reply: &mut ReplyBuffer, selector: &AclSelector| {
        for (name, text) in [
            ("commands", selector.describe_commands(commands)),
            ("keys", selector.describe_keys()),
            ("channels", selector.describe_channels()),
        ] {
            reply.bulk(name);
            reply.bulk(text);
        }
    };
    show(reply, &rights.root);
    reply.bulk("selectors");
    reply.array(rights.selectors.len());
    for selector in &rights.selectors {
        reply.map(3);
        show(reply, selector);
    }
    Ok(())
}

fn setuser(execution: &mut Execution<'_>) -> Result<()> {
    let (name, server) = (execution.arg(2), execution.server);
    if name.is_empty() || has_spaces(name) {
        return Err(Fault::line(
            "ERR Usernames can't contain spaces or null characters",
        ));
    }
    let rules = joined(execution.args.from(3).iter()).map_err(|first| {
        let first = String::from_utf8_lossy(first);
        Fault::new(format!(
            "ERR Unmatched parenthesis in acl selector starting at '{first}'."
        ))
    })?;
    let ground = ground(execution);
    let user = server.users.find(name);
    let mut rights = match &user {
        Some(user) => UserPermissions::clone(&user.rights()),
        None => UserPermissions::new(ground),
    };
    for rule in rules {
        rights.apply(ground, &rule).map_err(|unfit| {
            let rule = String::from_utf8_lossy(&rule);
            Fault::new(format!(
                "ERR Error in ACL SETUSER modifier '{rule}': {}",
                unfit.text()
            ))
        })?;
    }
    keep(execution, name, Some(&rights))?;
    server.users.set(name, rights);
    if let Some(user) = user {
        end_listeners(execution, &user);
    }
    execution.reply.ok();
    Ok(())
}

/// Writes what becomes of a user into the store, if users are there.
///
/// # Errors
/// As [`Work::write`](crate::store::work::Work::write).
pub(crate) fn keep(
    execution: &mut Execution<'_>,
    name: &[u8],
    user: Option<&UserPermissions>,
) -> Result<()> {
    if execution.server.users.file.is_some() {
        return Ok(());
    }
    let rules = user.map(|rights| rights.describe(execution.commands));
    execution
        .work
        .write(Room::Settings, &user_key(name), rules.as_deref())
}

/// Ends the connections of a user that listen to what it may not listen to any more.
fn end_listeners(execution: &mut Execution<'_>, user: &Arc<User>) {
    let rights = user.rights();
    let may = |topic, name: &[u8]| rights.has_channel(name, topic == SubscriptionKind::Pattern);
    for client in execution.server.pubsub.listeners(may) {
        let is_its = Arc::ptr_eq(&client.user.lock(), user);
        if is_its {
            execution.end_client(&client);
        }
    }
}

/// Ends the connections of users that are no more.
fn end_connections(execution: &mut Execution<'_>, gone: &[Arc<User>]) {
    for client in execution.server.clients.all() {
        let user = Arc::clone(&client.user.lock());
        if gone.iter().any(|gone| Arc::ptr_eq(gone, &user)) {
            execution.end_client(&client);
        }
    }
}

fn deluser(execution: &mut Execution<'_>) -> Result<()> {
    let names = execution.args.from(2);
    if names.iter().any(|name| name == DEFAULT) {
        return Err(Fault::line("ERR The 'default' user cannot be removed"));
    }
    let server = execution.server;
    let mut gone = Vec::new();
    for name in names.iter() {
        if server.users.find(name).is_some() {
            keep(execution, name, None)?;
            gone.extend(server.users.remove(name));
        }
    }
    end_connections(execution, &gone);
    execution.reply.count(gone.len());
    Ok(())
}

const NO_FILE: Fault = Fault::line(
    "ERR This Redis instance is not configured to use an ACL file. You may want to specify users \
     via the ACL SETUSER command, which keeps them in the store.",
);

fn load(execution: &mut Execution<'_>) -> Result<()> {
    let server = execution.server;
    let path = server.users.file.as_ref().ok_or(NO_FILE)?;
    let loaded = server.users.load(path, ground(execution));
    let gone = loaded.map_err(|why| {
        Fault::new(format!(
            "ERR {why}WARNING: ACL errors detected, no change to the previously active ACL rules \
             was performed"
        ))
    })?;
    end_connections(execution, &gone);
    let default = Arc::clone(&server.users.default);
    end_listeners(execution, &default);
    execution.reply.ok();
    Ok(())
}

fn save(execution: &mut Execution<'_>) -> Result<()> {
    let users = &execution.server.users;
    let path = users.file.as_ref().ok_or(NO_FILE)?;
    users.save(execution.commands, path).map_err(|error| {
        Fault::new(format!(
            "ERR There was an error trying to save the ACLs: {error}"
        ))
    })?;
    execution.reply.ok();
    Ok(())
}

fn dryrun(execution: &mut Execution<'_>) -> Result<()> {
    let user = execution.server.users.find(execution.arg(2));
    let user = user.ok_or_else(|| {
        let name = String::from_utf8_lossy(execution.arg(2));
        Fault::new(format!("ERR User '{name}' not found"))
    })?;
    let args = execution.args.from(3);
    let command = find(execution.commands, args).map_err(|fault| {
        match fault.text().contains("wrong number") {
            true => fault,
            false => Fault::new(format!(
                "ERR Command '{}' not found",
                String::from_utf8_lossy(args.at(0))
            )),
        }
    })?;
    match user.check(execution.commands, command, args) {
        Ok(()) => execution.reply.ok(),
        Err(denied) => {
            let name = &execution.commands.entry(command).name;
            execution.reply.bulk(explain(denied, name, args));
        }
    }
    Ok(())
}

fn log(execution: &mut Execution<'_>) -> Result<()> {
    let log = &execution.server.users.log;
    let count = match (execution.args.get(2), execution.args.len()) {
        (None, _) => 10,
        (Some(word), 3) if word.eq_ignore_ascii_case(b"reset") => {
            log.reset();
            execution.reply.ok();
            return Ok(());
        }
        (Some(text), 3) => usize::try_from(parse_integer(text)?).unwrap_or_default(),
        _ => return Err(unfit(execution)),
    };
    let (entries, now) = (log.last(count), now_ms());
    let reply = &mut *execution.reply;
    reply.array(entries.len());
    for entry in entries {
        reply.map(7);
        reply.bulk("count");
        reply.unsigned(entry.count);
        for (name, value) in [
            ("reason", entry.reason.as_bytes()),
            ("context", entry.context.as_bytes()),
            ("object", &entry.object),
            ("username", &entry.user),
        ] {
            reply.bulk(name);
            reply.bulk(value);
        }
        reply.bulk("age-seconds");
        let age_ms = u32::try_from(now.saturating_sub(entry.at_ms)).unwrap_or(u32::MAX);
        reply.double(f64::from(age_ms) / 1000.0);
        reply.bulk("client-info");
        reply.bulk(entry.client);
    }
    Ok(())
}

fn cat(execution: &mut Execution<'_>) -> Result<()> {
    let commands = execution.commands;
    let names: Vec<&str> = match (execution.args.get(2), execution.args.len()) {
        (None, _) => {
            let all = commands.entries().flat_map(|entry| &entry.categories);
            let mut known: Vec<&str> = all.copied().collect();
            known.sort_unstable();
            known.dedup();
            known
        }
        (Some(asked), 3) => {
            let category = commands.category(asked).ok_or_else(|| {
                let asked = String::from_utf8_lossy(asked);
                Fault::new(format!("ERR Unknown category '{asked}'"))
            })?;
            // A container is listed by its subcommands.
            let fits = |entry: &&crate::command::CommandEntry| {
                entry.command.subcommands.is_empty() && entry.categories.contains(&category)
            };
            let found = commands.entries().filter(fits);
            found.map(|entry| entry.name.as_str()).collect()
        }
        _ => return Err(unfit(execution)),
    };
    execution.reply.array(names.len());
    for name in names {
        execution.reply.bulk(name);
    }
    Ok(())
}

fn genpass(execution: &mut Execution<'_>) -> Result<()> {
    let bits = match (execution.args.get(2), execution.args.len()) {
        (None, _) => 256,
        (Some(text), 3) => parse_integer(text)?,
        _ => return Err(unfit(execution)),
    };
    if !(1..=4096).contains(&bits) {
        return Err(Fault::line(
            "ERR ACL GENPASS argument must be the number of bits for the output password, a \
             positive number up to 4096",
        ));
    }
    let digits = usize::try_from(bits).unwrap_or_default().div_ceil(4);
    // The system's own source, since nobody may guess from one password the next.
    let mut bytes = vec![0; digits.div_ceil(2)];
    std::fs::File::open("/dev/urandom")
        .and_then(|mut source| source.read_exact(&mut bytes))
        .map_err(|error| Fault::new(format!("ERR the system gives no random bytes: {error}")))?;
    let mut password: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    password.truncate(digits);
    execution.reply.bulk(password);
    Ok(())
}

fn show_help(execution: &mut Execution<'_>) -> Result<()> {
    help(
        execution,
        &[
            "ACL <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
            "CAT [<category>]",
            "    List categories, or the commands of one.",
            "DELUSER <username> [<username> ...]",
            "    Remove users, and end their connections.",
            "DRYRUN <username> <command> [<arg> ...]",
            "    Return whether a user may run a command, without running it.",
            "GENPASS [<bits>]",
            "    Make a password.",
            "GETUSER <username>",
            "    Return the permissions of a user.",
            "LIST",
            "    List users with their rules.",
            "LOAD",
            "    Put the users of the file in the place of all.",
            "LOG [<count> | RESET]",
            "    Show or clear denied commands, keys, channels and logins.",
            "SAVE",
            "    Write the users into the file.",
            "SETUSER <username> [<rule> ...]",
            "    Create or change a user.",
            "USERS",
            "    List users.",
            "WHOAMI",
            "    Return the user of the connection.",
        ],
    );
    Ok(())
}
