//! `ACL`: there is one user, `default`, who may do everything once it has said the password.

use std::io::Read;

use crate::command::{ADMIN, Command, Group, LOADING, NOSCRIPT, STALE, command, parse_integer};
use crate::commands::{container, help};
use crate::execution::Execution;
use crate::fault::{Fault, Result};

const OF_ACL: u32 = NOSCRIPT | LOADING | STALE;
const ABOUT: Group = Group::Server;

pub(crate) const COMMANDS: &[Command] =
    &[command("acl", -2, container)
        .with(SUBCOMMANDS)
        .about(ABOUT, "6.0.0", "Tells about users.")];

const SUBCOMMANDS: &[Command] = &[
    command("cat", -2, cat).flags(OF_ACL).about(
        ABOUT,
        "6.0.0",
        "Lists categories, or their commands.",
    ),
    command("genpass", -2, genpass)
        .flags(OF_ACL)
        .about(ABOUT, "6.0.0", "Makes a password."),
    command("getuser", 3, getuser).flags(OF_ACL | ADMIN).about(
        ABOUT,
        "6.0.0",
        "Tells what a user may do.",
    ),
    command("help", 2, show_help).flags(LOADING | STALE).about(
        ABOUT,
        "6.0.0",
        "Tells about the subcommands.",
    ),
    command("list", 2, list).flags(OF_ACL | ADMIN).about(
        ABOUT,
        "6.0.0",
        "Lists users with what they may do.",
    ),
    command("users", 2, users)
        .flags(OF_ACL | ADMIN)
        .about(ABOUT, "6.0.0", "Lists users."),
    command("whoami", 2, whoami).flags(OF_ACL).about(
        ABOUT,
        "6.0.0",
        "Returns the user of the connection.",
    ),
];

/// The only user.
const USER: &str = "default";

fn whoami(execution: &mut Execution<'_>) -> Result<()> {
    execution.reply.bulk(USER);
    Ok(())
}

fn users(execution: &mut Execution<'_>) -> Result<()> {
    execution.reply.array(1);
    execution.reply.bulk(USER);
    Ok(())
}

fn needs_password(execution: &Execution<'_>) -> bool {
    !execution.server.settings.text("requirepass").is_empty()
}

fn list(execution: &mut Execution<'_>) -> Result<()> {
    // The password is not shown, in whatever form.
    let password = match needs_password(execution) {
        true => "",
        false => " nopass",
    };
    execution.reply.array(1);
    execution
        .reply
        .bulk(format!("user {USER} on{password} ~* &* +@all"));
    Ok(())
}

fn getuser(execution: &mut Execution<'_>) -> Result<()> {
    if execution.arg(2) != USER.as_bytes() {
        execution.reply.null();
        return Ok(());
    }
    let mut flags = vec!["on"];
    if !needs_password(execution) {
        flags.push("nopass");
    }
    let reply = &mut *execution.reply;
    reply.map(6);
    reply.bulk("flags");
    reply.set(flags.len());
    for flag in flags {
        reply.bulk(flag);
    }
    reply.bulk("passwords");
    reply.array(0);
    for (name, value) in [("commands", "+@all"), ("keys", "~*"), ("channels", "&*")] {
        reply.bulk(name);
        reply.bulk(value);
    }
    reply.bulk("selectors");
    reply.array(0);
    Ok(())
}

/// The categories of all commands, without their mark.
fn categories(execution: &Execution<'_>) -> Vec<&'static str> {
    let all = execution.commands.all().into_iter();
    let mut found: Vec<_> = all
        .flat_map(|command| command.categories())
        .map(|category| category.trim_start_matches('@'))
        .collect();
    found.sort_unstable();
    found.dedup();
    found
}

fn cat(execution: &mut Execution<'_>) -> Result<()> {
    let known = categories(execution);
    let names: Vec<String> = match (execution.args.get(2), execution.args.len()) {
        (None, _) => known.into_iter().map(str::to_owned).collect(),
        (Some(asked), 3) => {
            let asked = String::from_utf8_lossy(asked).to_ascii_lowercase();
            if !known.contains(&asked.as_str()) {
                return Err(Fault::new(format!("ERR Unknown category '{asked}'")));
            }
            let is_of_it = |command: &crate::command::Command| {
                let mut all = command.categories().into_iter();
                all.any(|category| category.trim_start_matches('@') == asked)
            };
            let mut names = Vec::new();
            for command in execution.commands.all() {
                if command.subcommands.is_empty() && is_of_it(command) {
                    names.push(command.name.to_owned());
                }
                let below = command.subcommands.iter().filter(|below| is_of_it(below));
                names.extend(below.map(|below| format!("{}|{}", command.name, below.name)));
            }
            names
        }
        _ => return Err(execution.wrong_arguments()),
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
        _ => return Err(execution.wrong_arguments()),
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
            "GENPASS [<bits>]",
            "    Make a password.",
            "GETUSER <username>",
            "    Tell what a user may do.",
            "LIST",
            "    List users with what they may do.",
            "USERS",
            "    List users.",
            "WHOAMI",
            "    Return the user of the connection.",
        ],
    );
    Ok(())
}
