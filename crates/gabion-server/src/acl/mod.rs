//! Users and their permissions.
//!
//! # Idea
//! Every connection is a user; at first it is `default`, who may do everything unless somebody says
//! otherwise. A user has [rights](rights::UserPermissions): passwords, of which only hashes are
//! kept, and selectors, which say what commands may run on which keys and channels. [Rules](rules)
//! make them. A command is checked where it arrives, where `EXEC` runs it, where a script calls it,
//! and where a client that has waited for a key is served.
//!
//! A user who may do everything is known by a mark, so that such a command costs one branch.
//!
//! # Where they are kept
//! A user stands in the store, as the rules that make it of a new one, and a command that changes
//! users commits that as all commands commit. A server with an `aclfile` has its users from there,
//! and changes last until `ACL SAVE` writes them back.
//!
//! # Invariants
//! - I1. Users change behind the gate, so with each change the store and the memory stay in step:
//!   where the commit fails, memory is read anew ([`AclUsers::recover`]).
//! - I2. Connections hold their user itself, so a change concerns their next command. A user that
//!   is removed ends its connections.
//! - I3. The user `default` is always there.

mod access;
mod check;
mod commands;
mod describe;
mod file;
mod keep;
mod log;
mod rights;
mod rules;
mod set;
mod users;

pub(crate) use check::{AclContext, check, explain, note};
pub(crate) use rights::{AclSelector, UserPermissions};
pub(crate) use rules::{RuleContext, has_spaces, joined};
pub(crate) use users::{AclUsers, DEFAULT, User};
