//! Checks permissions, and logs denials.

use super::access;
use super::log::AclLogEntry;
use super::rights::{AclSelector, UserPermissions};
use super::users::User;
use crate::args::Args;
use crate::clients::now_ms;
use crate::command::{Command, CommandTable, NO_AUTH};
use crate::fault::{Fault, Result};
use crate::server::Server;
use crate::session::Session;

/// Why a command may not run. Of several reasons the greatest is reported: that of the selector
/// that allows most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum AclDenial {
    /// It may not run at all.
    Command,
    /// Not on the key at that place among the arguments.
    Key(usize),
    /// Not on the channel there.
    Channel(usize),
}

impl AclSelector {
    fn check(
        &self,
        commands: &CommandTable,
        command: &Command,
        args: Args<'_>,
    ) -> std::result::Result<(), AclDenial> {
        if !command.has(NO_AUTH) && !self.commands.has(command, args) {
            return Err(AclDenial::Command);
        }
        let name = commands.entry(command).name.as_str();
        if !self.has_all_keys {
            let (first, others) = access::of_keys(command, name, args);
            for (index, place) in command.key_places(args).enumerate() {
                let access = if index == 0 { first } else { others };
                if !self.has_key(args.at(place), access) {
                    return Err(AclDenial::Key(place));
                }
            }
        }
        if !self.has_all_channels {
            let (mut places, is_pattern) = access::channels(name, args);
            if let Some(place) = places.find(|place| !self.has_channel(args.at(*place), is_pattern))
            {
                return Err(AclDenial::Channel(place));
            }
        }
        Ok(())
    }
}

impl UserPermissions {
    /// Checks whether a command may run. Takes time by patterns and keys.
    ///
    /// # Errors
    /// Why it may not.
    pub(crate) fn check(
        &self,
        commands: &CommandTable,
        command: &Command,
        args: Args<'_>,
    ) -> std::result::Result<(), AclDenial> {
        let mut reason = AclDenial::Command;
        for selector in self.all_selectors() {
            match selector.check(commands, command, args) {
                Ok(()) => return Ok(()),
                Err(denied) => reason = reason.max(denied),
            }
        }
        Err(reason)
    }

    /// Whether a command may run and read any key besides, which `SORT` does by its patterns.
    pub(crate) fn reads_all_keys(
        &self,
        commands: &CommandTable,
        command: &Command,
        args: Args<'_>,
    ) -> bool {
        self.all_selectors().any(|selector| {
            selector.reads_all_keys() && selector.check(commands, command, args).is_ok()
        })
    }
}

impl User {
    /// Checks whether a command may run.
    ///
    /// # Errors
    /// Why it may not.
    pub(crate) fn check(
        &self,
        commands: &CommandTable,
        command: &Command,
        args: Args<'_>,
    ) -> std::result::Result<(), AclDenial> {
        match self.is_unlimited() {
            true => Ok(()),
            false => self.rights().check(commands, command, args),
        }
    }
}

/// Where a command is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AclContext {
    /// Where it arrives, or is served.
    TopLevel,
    /// Where it is queued between `MULTI` and `EXEC`.
    Multi,
    /// Where `EXEC` runs it: the rights may have changed since it was queued.
    Exec,
    /// Where a script calls it.
    Script,
}

impl AclContext {
    fn name(self) -> &'static str {
        match self {
            AclContext::TopLevel => "toplevel",
            AclContext::Multi | AclContext::Exec => "multi",
            AclContext::Script => "lua",
        }
    }
}

/// Checks whether the user of a connection may run a command, and notes it down if not.
///
/// # Errors
/// Why it may not.
pub(crate) fn check(
    server: &Server,
    commands: &CommandTable,
    session: &Session,
    (command, args): (&Command, Args<'_>),
    context: AclContext,
) -> Result<()> {
    let Err(denied) = session.user.check(commands, command, args) else {
        return Ok(());
    };
    let name = &commands.entry(command).name;
    let (reason, object) = match denied {
        AclDenial::Command => ("command", name.as_bytes()),
        AclDenial::Key(place) => ("key", args.at(place)),
        AclDenial::Channel(place) => ("channel", args.at(place)),
    };
    note(
        server,
        session,
        (reason, context),
        object,
        &session.user.name,
    );
    let why = match denied {
        AclDenial::Command => "can't run this command or subcommand",
        AclDenial::Key(_) => {
            "can't access at least one of the keys mentioned in the command arguments"
        }
        AclDenial::Channel(_) => "can't publish to the channel mentioned in the command",
    };
    Err(Fault::new(match context {
        AclContext::TopLevel | AclContext::Multi => {
            let what = match denied {
                AclDenial::Command => format!("run the '{name}' command"),
                AclDenial::Key(_) => "access one of the keys used as arguments".to_owned(),
                AclDenial::Channel(_) => "access one of the channels used as arguments".to_owned(),
            };
            format!("NOPERM this user has no permissions to {what}")
        }
        AclContext::Exec => format!(
            "NOPERM ACLs rules changed between the moment the transaction was accumulated and \
             the EXEC call. This command is no longer allowed for the following reason: {why}"
        ),
        AclContext::Script => format!("ERR The user executing the script {why}"),
    }))
}

/// What `ACL DRYRUN` says of a command that is denied.
pub(crate) fn explain(denied: AclDenial, name: &str, args: Args<'_>) -> Vec<u8> {
    let access = |place, kind: &str| {
        let quoted = [b"access the '", args.at(place), b"' ", kind.as_bytes()];
        quoted.concat()
    };
    let what = match denied {
        AclDenial::Command => format!("run the '{name}' command").into_bytes(),
        AclDenial::Key(place) => access(place, "key"),
        AclDenial::Channel(place) => access(place, "channel"),
    };
    [b"This user has no permissions to ", what.as_slice()].concat()
}

/// Notes down that a user was kept from something.
pub(crate) fn note(
    server: &Server,
    session: &Session,
    (reason, context): (&'static str, AclContext),
    object: &[u8],
    user: &[u8],
) {
    let most = server.settings.text("acllog-max-len");
    let entry = AclLogEntry {
        count: 1,
        reason,
        context: context.name(),
        object: object.to_vec(),
        user: user.to_vec(),
        at_ms: now_ms(),
        client: session.client.line(),
    };
    server
        .users
        .log
        .note(entry, most.parse().unwrap_or_default());
}
