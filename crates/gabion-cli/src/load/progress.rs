//! How far a file has been loaded: a ledger in a keyspace of its own.
//!
//! Key: name of the keyspace loaded into, a zero byte, the file's absolute path. Value: a JSON
//! object with the file's identity (length and time of last change), the settings that decide what
//! a record is, the place where the next record starts, and the records so far. An entry counts
//! only if identity and settings are those of the load at hand; otherwise the load starts anew.

use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use gabion::{Db, Keyspace, WriteBatch};
use serde::{Deserialize, Serialize};

use super::source::{Form, Place};
use crate::failure::Failure;

/// The keyspace that holds the ledger.
const KEYSPACE: &str = "gabion.load";

/// What makes a file the same file as before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    /// Absolute path without links.
    pub(super) path: PathBuf,
    /// Length in bytes.
    pub(super) length: u64,
    /// Time of the last change, in nanoseconds since 1970.
    pub(super) modified_ns: u128,
}

/// How far a load has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Progress {
    /// Where the next record starts.
    pub(super) place: Place,
    /// Records loaded so far.
    pub(super) records: u64,
}

/// An entry of the ledger.
#[derive(Debug, Deserialize, Serialize)]
struct Entry {
    length: u64,
    modified: String,
    settings: String,
    offset: u64,
    line: u64,
    records: u64,
}

/// The entry of one file in the ledger.
pub(super) struct Ledger {
    keyspace: Keyspace,
    key: Vec<u8>,
    identity: Identity,
    settings: String,
}

/// Forgets how far any file has been loaded into the keyspace of that name: who drops it and loads
/// such a file again wants all of it. The next sync of the log makes that durable.
pub(crate) fn forget(db: &Db, keyspace: &str) -> Result<(), Failure> {
    match db.existing_keyspace(KEYSPACE) {
        Ok(ledger) => {
            let end = |byte| [keyspace.as_bytes(), &[byte]].concat();
            Ok(ledger.delete_range(end(0)..end(1))?)
        }
        Err(gabion::Error::NoSuchKeyspace { .. }) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

impl Ledger {
    /// The entry for loading the file of that identity and form into `target`.
    pub(super) fn open(
        db: &Db,
        target: &Keyspace,
        identity: Identity,
        form: &Form,
    ) -> Result<Ledger, Failure> {
        let mut key = target.name().as_bytes().to_vec();
        key.push(0);
        key.extend_from_slice(identity.path.as_os_str().as_bytes());
        Ok(Ledger {
            keyspace: db.keyspace(KEYSPACE)?,
            key,
            identity,
            settings: format!("{form:?}"),
        })
    }

    /// How far this very load has come; `None` if it has not begun, or if file or settings have
    /// changed since.
    pub(super) fn read(&self) -> Result<Option<Progress>, Failure> {
        let Some(value) = self.keyspace.get(&self.key)? else {
            return Ok(None);
        };
        let Ok(entry) = serde_json::from_slice::<Entry>(&value) else {
            return Ok(None);
        };
        let same = entry.length == self.identity.length
            && entry.modified == self.identity.modified_ns.to_string()
            && entry.settings == self.settings;
        Ok(same.then_some(Progress {
            place: Place {
                offset: entry.offset,
                line: entry.line,
            },
            records: entry.records,
        }))
    }

    /// Adds the progress to `batch`.
    pub(super) fn record(
        &self,
        batch: &mut WriteBatch,
        progress: &Progress,
    ) -> Result<(), Failure> {
        let entry = Entry {
            length: self.identity.length,
            modified: self.identity.modified_ns.to_string(),
            settings: self.settings.clone(),
            offset: progress.place.offset,
            line: progress.place.line,
            records: progress.records,
        };
        let value = serde_json::to_vec(&entry).expect("numbers and strings have a JSON form");
        Ok(batch.put(&self.keyspace, &self.key, value)?)
    }

    /// Adds the removal of the entry to `batch`.
    pub(super) fn clear(&self, batch: &mut WriteBatch) -> Result<(), Failure> {
        Ok(batch.delete(&self.keyspace, &self.key)?)
    }
}
