//! Progress of a load, recorded in a reserved keyspace.
//!
//! Key: the number of the keyspace loaded into, and the file's absolute path. Value: a JSON object
//! with the settings that decide what a record is, the place where the next record starts, the
//! checksum of the text up to there, and the records so far.
//!
//! An entry counts only for the very keyspace that the records went to: the number of one that was
//! dropped never comes again, so a keyspace that was made anew under its name gets all records. And
//! it counts only if the settings are those of the load at hand and the file still begins with what
//! was read of it, byte by byte; otherwise the load starts anew.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use gabion::{Db, Keyspace, WriteBatch};
use serde::{Deserialize, Serialize};

use super::input::Place;
use crate::failure::Failure;

/// The hidden keyspace that holds the ledger.
const KEYSPACE: &str = "load";
/// Bytes of the number at the front of a key.
const ID_BYTES: usize = 4;

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
    keyspace: String,
    settings: String,
    offset: u64,
    line: u64,
    checksum: u64,
    records: u64,
}

/// The entry of one file in the ledger.
pub(super) struct Ledger {
    ledger: Keyspace,
    target: String,
    key: Vec<u8>,
    settings: String,
}

/// Forgets how far files were loaded into a store: after a repair, records may be missing before
/// such places.
pub(crate) fn forget(db: &Db) -> Result<(), Failure> {
    match db.drop_keyspace(&format!("gabion.{KEYSPACE}")) {
        Ok(()) | Err(gabion::Error::NoSuchKeyspace { .. }) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

impl Ledger {
    /// The entry for loading the file of that path by those settings into `target`.
    pub(super) fn open(
        db: &Db,
        target: &Keyspace,
        path: &Path,
        settings: String,
    ) -> Result<Ledger, Failure> {
        let mut key = number(target.id()).to_vec();
        key.extend_from_slice(path.as_os_str().as_bytes());
        let ledger = db.reserved_keyspace(KEYSPACE)?;
        sweep(db, &ledger)?;
        Ok(Ledger {
            ledger,
            target: target.name().to_owned(),
            key,
            settings,
        })
    }

    /// How far such a load came into this very keyspace; `None` if there was none.
    pub(super) fn read(&self) -> Result<Option<Progress>, Failure> {
        let Some(value) = self.ledger.get(&self.key)? else {
            return Ok(None);
        };
        let Ok(entry) = serde_json::from_slice::<Entry>(&value) else {
            return Ok(None);
        };
        let same = entry.settings == self.settings && entry.keyspace == self.target;
        Ok(same.then_some(Progress {
            place: Place {
                offset: entry.offset,
                line: entry.line,
                checksum: entry.checksum,
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
            keyspace: self.target.clone(),
            settings: self.settings.clone(),
            offset: progress.place.offset,
            line: progress.place.line,
            checksum: progress.place.checksum,
            records: progress.records,
        };
        let value = serde_json::to_vec(&entry).expect("numbers and strings have a JSON form");
        Ok(batch.put(&self.ledger, &self.key, value)?)
    }

    /// Adds the removal of the entry to `batch`.
    pub(super) fn clear(&self, batch: &mut WriteBatch) -> Result<(), Failure> {
        Ok(batch.delete(&self.ledger, &self.key)?)
    }
}

/// The number of a keyspace as the front of a key.
fn number(id: u32) -> [u8; ID_BYTES] {
    id.to_le_bytes()
}

/// Removes the entries of keyspaces that are gone.
fn sweep(db: &Db, ledger: &Keyspace) -> Result<(), Failure> {
    let mut gone = Vec::new();
    for pair in ledger.pairs() {
        let (key, value) = pair?;
        let entry = serde_json::from_slice::<Entry>(&value);
        let is_there = entry.is_ok_and(|entry| {
            let target = db.existing_keyspace(&entry.keyspace);
            target.is_ok_and(|target| key.starts_with(&number(target.id())))
        });
        if !is_there {
            gone.push(key);
        }
    }
    for key in gone {
        ledger.delete(key)?;
    }
    Ok(())
}
