//! Persistence of users: in the store, or in a file.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::file;
use super::rights::UserPermissions;
use super::rules::RuleContext;
use super::users::{AclUsers, DEFAULT, User, UserTable};
use crate::command::CommandTable;
use crate::fault::{Fault, Result};
use crate::store::Store;

impl UserPermissions {
    /// Those of `default` where nobody has said otherwise: it may do everything.
    pub(crate) fn of_default(ground: RuleContext) -> UserPermissions {
        let rules = [&b"on"[..], b"nopass", b"~*", b"&*", b"+@all"];
        match file::rights_of(rules.into_iter(), ground) {
            Ok(rights) => rights,
            Err(why) => unreachable!("these rules are valid: {why}"),
        }
    }
}

impl AclUsers {
    /// Those of the file, or of the store.
    ///
    /// # Errors
    /// Of the store; and all that is wrong with the file.
    pub(crate) fn open(
        commands: &'static CommandTable,
        store: &Store,
        file: Option<PathBuf>,
        password: Option<&str>,
    ) -> Result<AclUsers> {
        let ground = ground_of(commands);
        let table = match &file {
            Some(path) => {
                file::load(path, ground).map_err(|why| Fault::new(format!("ERR {why}")))?
            }
            None => stored(commands, store)?,
        };
        let users = AclUsers::new(table, UserPermissions::of_default(ground), file);
        if let Some(password) = password {
            let rights = users.set_password(password.as_bytes());
            if users.file.is_none() {
                store.put_user(DEFAULT, &rights.describe(commands))?;
            }
        }
        Ok(users)
    }

    /// A user's line in lists and files.
    pub(crate) fn line(commands: &CommandTable, user: &User) -> Vec<u8> {
        let rules = user.rights().describe(commands);
        [b"user ", user.name.as_slice(), b" ", &rules].concat()
    }

    /// Reads the file again, and puts its users in the place of all. Returns those that there were
    /// besides `default`: their connections are to be ended.
    ///
    /// # Errors
    /// All that is wrong with the file; then nothing has changed.
    pub(crate) fn load(&self, path: &Path, ground: RuleContext) -> Result<Vec<Arc<User>>, String> {
        let table = file::load(path, ground)?;
        let before = self.all();
        self.become_those(table);
        let others = before.into_iter().filter(|user| user.name != DEFAULT);
        Ok(others.collect())
    }

    /// Writes all users into the file.
    ///
    /// # Errors
    /// Of the file system.
    pub(crate) fn save(&self, commands: &CommandTable, path: &Path) -> std::io::Result<()> {
        let all = self.all();
        let lines: Vec<_> = all
            .iter()
            .map(|user| AclUsers::line(commands, user))
            .collect();
        file::save(path, &lines)
    }

    /// Makes users what the store says, after a change of them was not committed. Connections keep
    /// their user where it is there.
    pub(crate) fn recover(&self, commands: &'static CommandTable, store: &Store) {
        // A store that cannot be read has no other users to offer.
        if self.file.is_none()
            && let Ok(table) = stored(commands, store)
        {
            self.agree_with(table);
        }
    }
}

/// What the rules in files and in the store are applied with: they name all channels if they mean
/// them.
fn ground_of(commands: &'static CommandTable) -> RuleContext {
    RuleContext {
        commands,
        gives_channels: false,
    }
}

/// The users that the store has.
fn stored(commands: &'static CommandTable, store: &Store) -> Result<UserTable> {
    let ground = ground_of(commands);
    let mut users = UserTable::new();
    for (name, rules) in store.users()? {
        let words = rules.split(|byte| *byte == b' ');
        let rights = file::rights_of(words, ground).map_err(|why| {
            let name = String::from_utf8_lossy(&name);
            Fault::new(format!("ERR the store's user '{name}' is not valid: {why}"))
        })?;
        users.insert(name, rights);
    }
    let default = || UserPermissions::of_default(ground);
    users.entry(DEFAULT.to_vec()).or_insert_with(default);
    Ok(users)
}
