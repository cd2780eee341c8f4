//! `CLIENT`: connected clients, and settings of the connection.

use std::sync::Arc;

use crate::acl::User;
use crate::args::integer;
use crate::clients::Client;
use crate::command::{ADMIN, ALONE, Command, CommandGroup, LOADING, NOSCRIPT, STALE, command};
use crate::commands::{container, help, tracking};
use crate::execution::Execution;
use crate::fault::{Fault, Result};
use crate::session::ReplyMode;

const OF_CLIENT: u32 = NOSCRIPT | LOADING | STALE;

pub(crate) const COMMANDS: &[Command] = &[command("client", -2, container)
    .with(SUBCOMMANDS)
    .about(CommandGroup::Connection, "2.4.0", "Lists connections.")];

const SUBCOMMANDS: &[Command] = &[
    command("getname", 2, getname).flags(OF_CLIENT).about(
        CommandGroup::Connection,
        "2.6.9",
        "Returns the name of the connection.",
    ),
    command("caching", 3, tracking::caching)
        .flags(OF_CLIENT)
        .about(
            CommandGroup::Connection,
            "6.0.0",
            "Sets whether the keys of the next command are tracked.",
        ),
    command("getredir", 2, tracking::getredir)
        .flags(OF_CLIENT)
        .about(
            CommandGroup::Connection,
            "6.0.0",
            "Returns the connection to which this one redirects its invalidations.",
        ),
    command("help", 2, show_help).flags(LOADING | STALE).about(
        CommandGroup::Connection,
        "5.0.0",
        "Lists the subcommands.",
    ),
    command("id", 2, id).flags(OF_CLIENT).about(
        CommandGroup::Connection,
        "5.0.0",
        "Returns the number of the connection.",
    ),
    command("info", 2, info).flags(OF_CLIENT).about(
        CommandGroup::Connection,
        "6.2.0",
        "Shows the connection.",
    ),
    command("unblock", -3, unblock)
        .flags(OF_CLIENT | ADMIN)
        .about(
            CommandGroup::Connection,
            "5.0.0",
            "Ends the wait of another connection for a key.",
        ),
    command("kill", -3, kill).flags(OF_CLIENT | ADMIN).about(
        CommandGroup::Connection,
        "2.4.0",
        "Ends connections.",
    ),
    command("list", -2, list).flags(OF_CLIENT | ADMIN).about(
        CommandGroup::Connection,
        "2.4.0",
        "Lists connections.",
    ),
    command("no-evict", 3, no_evict)
        .flags(OF_CLIENT | ADMIN)
        .about(
            CommandGroup::Connection,
            "7.0.0",
            "Accepted without effect: no client is evicted.",
        ),
    command("pause", -3, pause).flags(OF_CLIENT | ADMIN).about(
        CommandGroup::Connection,
        "3.0.0",
        "Makes the commands of all clients wait.",
    ),
    command("unpause", 2, unpause)
        .flags(OF_CLIENT | ADMIN)
        .about(CommandGroup::Connection, "6.2.0", "Ends a pause."),
    command("reply", 3, reply).flags(OF_CLIENT).about(
        CommandGroup::Connection,
        "3.2.0",
        "Turns replies on and off.",
    ),
    command("setinfo", 4, setinfo).flags(OF_CLIENT).about(
        CommandGroup::Connection,
        "7.2.0",
        "Names the library of the client.",
    ),
    command("setname", 3, setname).flags(OF_CLIENT).about(
        CommandGroup::Connection,
        "2.6.9",
        "Names the connection.",
    ),
    command("tracking", -3, tracking::tracking)
        .flags(OF_CLIENT | ALONE)
        .about(
            CommandGroup::Connection,
            "6.0.0",
            "Notifies the connection when keys that it has read change.",
        ),
    command("trackinginfo", 2, tracking::trackinginfo)
        .flags(OF_CLIENT)
        .about(
            CommandGroup::Connection,
            "6.2.0",
            "Shows the tracking settings of the connection.",
        ),
];

/// A name of visible letters without spaces.
///
/// # Errors
/// What Redis says of another one.
pub(crate) fn checked_name(name: &[u8], what: &str) -> Result<String> {
    match name.iter().all(u8::is_ascii_graphic) {
        true => Ok(String::from_utf8_lossy(name).into_owned()),
        false => Err(Fault::new(format!(
            "ERR {what} cannot contain spaces, newlines or special characters."
        ))),
    }
}

fn id(execution: &mut Execution<'_>) -> Result<()> {
    let id = execution.session.client.id;
    execution
        .reply
        .integer(i64::try_from(id).unwrap_or(i64::MAX));
    Ok(())
}

fn getname(execution: &mut Execution<'_>) -> Result<()> {
    let name = execution.session.client.names.lock().name.clone();
    execution
        .reply
        .bulk_or_null((!name.is_empty()).then_some(name));
    Ok(())
}

fn setname(execution: &mut Execution<'_>) -> Result<()> {
    let name = checked_name(execution.arg(2), "Client names")?;
    execution.session.client.names.lock().name = name;
    execution.reply.ok();
    Ok(())
}

fn setinfo(execution: &mut Execution<'_>) -> Result<()> {
    let option = execution.arg(2);
    let mut names = execution.session.client.names.lock();
    match option.to_ascii_lowercase().as_slice() {
        b"lib-name" => names.library = checked_name(execution.args.at(3), "lib-name")?,
        b"lib-ver" => names.library_version = checked_name(execution.args.at(3), "lib-ver")?,
        _ => {
            return Err(Fault::new(format!(
                "ERR Unrecognized option '{}'",
                String::from_utf8_lossy(option)
            )));
        }
    }
    execution.reply.ok();
    Ok(())
}

fn info(execution: &mut Execution<'_>) -> Result<()> {
    let line = execution.session.client.line();
    execution.reply.verbatim(&format!("{line}\n"));
    Ok(())
}

fn is_kind(client: &Client, kind: &[u8]) -> bool {
    let listens = client.engaged.lock().is_subscribed();
    match kind {
        b"normal" => !listens,
        b"pubsub" => listens,
        _ => false,
    }
}

fn check_kind(kind: &[u8]) -> Result<Vec<u8>> {
    let lower = kind.to_ascii_lowercase();
    match lower.as_slice() {
        b"normal" | b"pubsub" | b"master" | b"replica" | b"slave" => Ok(lower),
        _ => Err(Fault::new(format!(
            "ERR Unknown client type '{}'",
            String::from_utf8_lossy(kind)
        ))),
    }
}

fn list(execution: &mut Execution<'_>) -> Result<()> {
    let args = execution.args;
    let clients = execution.server.clients.all();
    let option = args.get(2).map(<[u8]>::to_ascii_lowercase);
    let shown: Vec<Arc<Client>> = match (option.as_deref(), args.len()) {
        (None, _) => clients,
        (Some(b"type"), 4) => {
            let kind = check_kind(args.at(3))?;
            clients
                .into_iter()
                .filter(|client| is_kind(client, &kind))
                .collect()
        }
        (Some(b"id"), 4..) => {
            let ids: Option<Vec<i64>> = args.from(3).iter().map(integer).collect();
            let ids = ids.ok_or(Fault::line("ERR Invalid client ID"))?;
            let is_asked =
                |client: &Arc<Client>| i64::try_from(client.id).is_ok_and(|id| ids.contains(&id));
            clients.into_iter().filter(is_asked).collect()
        }
        _ => return Err(Fault::SYNTAX),
    };
    let lines: String = shown.iter().map(|client| client.line() + "\n").collect();
    execution.reply.verbatim(&lines);
    Ok(())
}

/// Which connections are to end.
#[derive(Debug, Default)]
struct Doomed {
    id: Option<u64>,
    address: Option<Vec<u8>>,
    local: Option<Vec<u8>>,
    kind: Option<Vec<u8>>,
    user: Option<Arc<User>>,
    skips_self: bool,
}

impl Doomed {
    fn parse(execution: &Execution<'_>) -> Result<Doomed> {
        let options = execution.args.from(2);
        if !options.len().is_multiple_of(2) {
            return Err(Fault::SYNTAX);
        }
        let mut doomed = Doomed {
            skips_self: true,
            ..Doomed::default()
        };
        for at in (0..options.len()).step_by(2) {
            let value = options.at(at + 1);
            match options.at(at).to_ascii_lowercase().as_slice() {
                b"id" => {
                    let id = integer(value).and_then(|id| u64::try_from(id).ok());
                    let id = id.filter(|id| *id > 0);
                    doomed.id =
                        Some(id.ok_or(Fault::line("ERR client-id should be greater than 0"))?);
                }
                b"addr" => doomed.address = Some(value.to_vec()),
                b"laddr" => doomed.local = Some(value.to_vec()),
                b"type" => doomed.kind = Some(check_kind(value)?),
                b"user" => {
                    let user = execution.server.users.find(value);
                    doomed.user = Some(user.ok_or_else(|| {
                        let name = String::from_utf8_lossy(value);
                        Fault::new(format!("ERR No such user '{name}'"))
                    })?);
                }
                b"skipme" if value.eq_ignore_ascii_case(b"yes") => doomed.skips_self = true,
                b"skipme" if value.eq_ignore_ascii_case(b"no") => doomed.skips_self = false,
                _ => return Err(Fault::SYNTAX),
            }
        }
        Ok(doomed)
    }

    fn has(&self, client: &Client) -> bool {
        self.id.is_none_or(|id| id == client.id)
            && self
                .address
                .as_ref()
                .is_none_or(|address| address == client.address.as_bytes())
            && self
                .local
                .as_ref()
                .is_none_or(|local| local == client.local.as_bytes())
            && self.kind.as_ref().is_none_or(|kind| is_kind(client, kind))
            && self
                .user
                .as_ref()
                .is_none_or(|user| Arc::ptr_eq(user, &client.user.lock()))
    }
}

fn kill(execution: &mut Execution<'_>) -> Result<()> {
    let is_old_form = execution.args.len() == 3;
    let doomed = match is_old_form {
        true => Doomed {
            address: Some(execution.arg(2).to_vec()),
            ..Doomed::default()
        },
        false => Doomed::parse(execution)?,
    };
    let own = execution.session.client.id;
    let mut count = 0;
    for client in execution.server.clients.all() {
        if !doomed.has(&client) || (client.id == own && doomed.skips_self) {
            continue;
        }
        count += 1;
        execution.end_client(&client);
    }
    match is_old_form {
        true if count == 0 => return Err(Fault::line("ERR No such client")),
        true => execution.reply.ok(),
        false => execution.reply.integer(count),
    }
    Ok(())
}

fn no_evict(execution: &mut Execution<'_>) -> Result<()> {
    match execution.arg(2).to_ascii_lowercase().as_slice() {
        b"on" | b"off" => execution.reply.ok(),
        _ => return Err(Fault::SYNTAX),
    }
    Ok(())
}

fn pause(execution: &mut Execution<'_>) -> Result<()> {
    let args = execution.args;
    let is_for_all = match args.get(3).map(<[u8]>::to_ascii_lowercase).as_deref() {
        None | Some(b"all") => true,
        Some(b"write") => false,
        Some(_) => {
            return Err(Fault::line("ERR CLIENT PAUSE mode must be WRITE or ALL"));
        }
    };
    if args.len() > 4 {
        return Err(execution.wrong_arguments());
    }
    let bad = || Fault::line("ERR timeout is not an integer or out of range");
    let ms = integer(args.at(2)).ok_or_else(bad)?;
    let ms = u64::try_from(ms).map_err(|_| Fault::line("ERR timeout is negative"))?;
    let length = std::time::Duration::from_millis(ms);
    execution.server.pause.begin(length, is_for_all);
    execution.reply.ok();
    Ok(())
}

fn unpause(execution: &mut Execution<'_>) -> Result<()> {
    execution.server.pause.end();
    execution.reply.ok();
    Ok(())
}

fn reply(execution: &mut Execution<'_>) -> Result<()> {
    match execution.arg(2).to_ascii_lowercase().as_slice() {
        b"on" => {
            execution.session.wants = ReplyMode::All;
            execution.reply.ok();
        }
        b"off" => execution.session.wants = ReplyMode::None,
        b"skip" if execution.session.wants == ReplyMode::All => {
            execution.session.wants = ReplyMode::AllButNext;
        }
        b"skip" => {}
        _ => return Err(Fault::SYNTAX),
    }
    Ok(())
}

fn unblock(execution: &mut Execution<'_>) -> Result<()> {
    let args = execution.args;
    let is_error = match args.get(3).map(<[u8]>::to_ascii_lowercase).as_deref() {
        None | Some(b"timeout") => false,
        Some(b"error") => true,
        Some(_) => {
            return Err(Fault::line(
                "ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR",
            ));
        }
    };
    if args.len() > 4 {
        return Err(execution.wrong_arguments());
    }
    let id = integer(args.at(2)).ok_or(Fault::NOT_AN_INTEGER)?;
    let waiter = u64::try_from(id)
        .ok()
        .and_then(|id| execution.server.blocking.of_client(id));
    let is_ended = waiter.is_some_and(|waiter| {
        let mut reply = crate::resp::reply::ReplyBuffer::default();
        match is_error {
            true => reply.error("UNBLOCKED client unblocked via CLIENT UNBLOCK"),
            false => reply.out = waiter.in_vain(),
        }
        execution.server.blocking.try_end(&waiter, reply.out)
    });
    execution.reply.flag(is_ended);
    Ok(())
}

fn show_help(execution: &mut Execution<'_>) -> Result<()> {
    help(
        execution,
        &[
            "CLIENT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
            "CACHING (YES|NO)",
            "    Set whether the keys of the next command are tracked.",
            "GETREDIR",
            "    Return the connection to which this one redirects its invalidations.",
            "GETNAME",
            "    Return the name of the connection.",
            "ID",
            "    Return the number of the connection.",
            "INFO",
            "    Show the connection.",
            "KILL <ip:port>",
            "    End the connection from there.",
            "KILL <option> <value> [<option> <value> ...]",
            "    End connections by ID, ADDR, LADDR, TYPE, USER; SKIPME (yes|no).",
            "LIST [TYPE <type> | ID <id> ...]",
            "    List connections.",
            "PAUSE <timeout> [WRITE|ALL]",
            "    Make the commands of all clients wait for milliseconds.",
            "UNPAUSE",
            "    End a pause.",
            "REPLY (ON|OFF|SKIP)",
            "    Turn replies on and off.",
            "SETINFO (LIB-NAME|LIB-VER) <value>",
            "    Name the library of the client.",
            "SETNAME <name>",
            "    Name the connection.",
            "TRACKING (ON|OFF) [REDIRECT <id>] [BCAST] [PREFIX <prefix> ...] [OPTIN] [OPTOUT]",
            "         [NOLOOP]",
            "    Notify the connection when keys that it has read change.",
            "TRACKINGINFO",
            "    Show the tracking settings of the connection.",
        ],
    );
    Ok(())
}
