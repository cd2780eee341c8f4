//! The table of users.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::RwLock;
use sha2::{Digest, Sha256};

use super::log::AclLog;
use super::rights::UserPermissions;

/// The hash under which a password is kept: SHA-256, in hexadecimal digits.
pub(crate) fn password_hash(password: &[u8]) -> String {
    let hash = Sha256::digest(password);
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The user that every connection is at first.
pub(crate) const DEFAULT: &[u8] = b"default";

/// Permissions by the names of users.
pub(super) type UserTable = BTreeMap<Vec<u8>, UserPermissions>;

/// A user.
#[derive(Debug)]
pub(crate) struct User {
    /// Its name.
    pub(crate) name: Vec<u8>,
    rights: RwLock<Arc<UserPermissions>>,
    is_unlimited: AtomicBool,
}

impl User {
    /// With rights.
    pub(super) fn new(name: &[u8], rights: UserPermissions) -> Arc<User> {
        Arc::new(User {
            name: name.to_vec(),
            is_unlimited: AtomicBool::new(rights.is_unlimited()),
            rights: RwLock::new(Arc::new(rights)),
        })
    }

    /// What it may do now.
    pub(crate) fn rights(&self) -> Arc<UserPermissions> {
        Arc::clone(&self.rights.read())
    }

    /// Whether it may do everything.
    pub(crate) fn is_unlimited(&self) -> bool {
        // ORDER: Relaxed; a change concerns commands that come after its reply, and the sockets
        // between order them.
        self.is_unlimited.load(Ordering::Relaxed)
    }

    /// Gives it other rights.
    pub(super) fn change(&self, rights: UserPermissions) {
        // ORDER: Relaxed, as in `is_unlimited`.
        let is_unlimited = &self.is_unlimited;
        is_unlimited.store(rights.is_unlimited(), Ordering::Relaxed);
        *self.rights.write() = Arc::new(rights);
    }

    /// Its name as text.
    pub(crate) fn shown(&self) -> String {
        String::from_utf8_lossy(&self.name).into_owned()
    }
}

/// All users.
#[derive(Debug)]
pub(crate) struct AclUsers {
    /// The user of new connections.
    pub(crate) default: Arc<User>,
    /// What was denied.
    pub(crate) log: AclLog,
    /// The file that has them, if the store has not.
    pub(crate) file: Option<PathBuf>,
    by_name: RwLock<BTreeMap<Vec<u8>, Arc<User>>>,
}

impl AclUsers {
    /// Those of a table, which has `default`.
    pub(super) fn new(
        table: UserTable,
        default: UserPermissions,
        file: Option<PathBuf>,
    ) -> AclUsers {
        let users = AclUsers {
            default: User::new(DEFAULT, default),
            log: AclLog::default(),
            file,
            by_name: RwLock::default(),
        };
        users.become_those(table);
        users
    }

    /// Puts the users of a table, which has `default`, in the place of all.
    pub(super) fn become_those(&self, table: UserTable) {
        let mut by_name = BTreeMap::new();
        for (name, rights) in table {
            let user = match name == DEFAULT {
                true => {
                    self.default.change(rights);
                    Arc::clone(&self.default)
                }
                false => User::new(&name, rights),
            };
            by_name.insert(name, user);
        }
        *self.by_name.write() = by_name;
    }

    /// The user of a name.
    pub(crate) fn find(&self, name: &[u8]) -> Option<Arc<User>> {
        self.by_name.read().get(name).cloned()
    }

    /// All, by their names.
    pub(crate) fn all(&self) -> Vec<Arc<User>> {
        self.by_name.read().values().cloned().collect()
    }

    /// The user of that name, if the password is one of its own.
    pub(crate) fn authenticate(&self, name: &[u8], password: &[u8]) -> Option<Arc<User>> {
        // The hash is made in any case, so that the time does not tell who there is.
        let hash = password_hash(password);
        let user = self.find(name)?;
        let rights = user.rights();
        (rights.is_on && rights.has_password(&hash)).then_some(user)
    }

    /// Gives a user rights, or makes it.
    pub(crate) fn set(&self, name: &[u8], rights: UserPermissions) {
        let mut by_name = self.by_name.write();
        match by_name.get(name) {
            Some(user) => user.change(rights),
            None => {
                by_name.insert(name.to_vec(), User::new(name, rights));
            }
        }
    }

    /// Removes a user; its connections are to be ended.
    pub(crate) fn remove(&self, name: &[u8]) -> Option<Arc<User>> {
        self.by_name.write().remove(name)
    }

    /// Makes a password the only one of `default`; an empty one means that none is needed.
    /// Returns the rights.
    pub(crate) fn set_password(&self, password: &[u8]) -> Arc<UserPermissions> {
        let mut rights = UserPermissions::clone(&self.default.rights());
        rights.needs_no_password = password.is_empty();
        rights.passwords.clear();
        if !password.is_empty() {
            rights.passwords.push(password_hash(password));
        }
        self.default.change(rights);
        self.default.rights()
    }

    /// Gives users the rights of a table, and removes those that are not in it.
    pub(super) fn agree_with(&self, table: UserTable) {
        self.by_name
            .write()
            .retain(|name, _| table.contains_key(name));
        for (name, rights) in table {
            self.set(&name, rights);
        }
    }
}
