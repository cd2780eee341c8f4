//! Opens collections for commands, and saves them.

use crate::events::EventClasses;
use crate::execution::Execution;
use crate::fault::Result;
use crate::store::hash::Hash;
use crate::store::list::List;
use crate::store::members::Members;
use crate::store::meta::{KeyType, SaveOutcome};
use crate::store::scored::SortedSet;

impl Members {
    /// The collection of a key, empty if there is none.
    ///
    /// # Errors
    /// `WRONGTYPE`, and of the store.
    pub(crate) fn open(
        execution: &mut Execution<'_>,
        key: &[u8],
        kind: KeyType,
    ) -> Result<Members> {
        let found = execution.find(key)?;
        Members::of(execution.space(), found.as_ref(), kind)
    }

    /// The same for a command that reads, which counts as a hit or a miss.
    ///
    /// # Errors
    /// As [`Members::open`].
    pub(crate) fn look_up(
        execution: &mut Execution<'_>,
        key: &[u8],
        kind: KeyType,
    ) -> Result<Members> {
        let found = execution.look_up(key)?;
        Members::of(execution.space(), found.as_ref(), kind)
    }

    /// Writes what has changed: see [`Members::save_to`].
    ///
    /// # Errors
    /// Of the store.
    pub(crate) fn save(self, execution: &mut Execution<'_>, key: &[u8]) -> Result<SaveOutcome> {
        let saved = self.save_to(execution.work, key)?;
        execution.tell_new(saved, key);
        Ok(saved)
    }
}

impl List {
    /// The list of a key, empty if there is none.
    ///
    /// # Errors
    /// `WRONGTYPE`, and of the store.
    pub(crate) fn open(execution: &mut Execution<'_>, key: &[u8]) -> Result<List> {
        let found = execution.find(key)?;
        List::of(execution.space(), found.as_ref())
    }

    /// The same for a command that reads, which counts as a hit or a miss.
    ///
    /// # Errors
    /// As [`List::open`].
    pub(crate) fn look_up(execution: &mut Execution<'_>, key: &[u8]) -> Result<List> {
        let found = execution.look_up(key)?;
        List::of(execution.space(), found.as_ref())
    }

    /// Writes what has changed: see [`List::save_to`].
    ///
    /// # Errors
    /// Of the store.
    pub(crate) fn save(self, execution: &mut Execution<'_>, key: &[u8]) -> Result<SaveOutcome> {
        let saved = self.save_to(execution.work, key)?;
        execution.tell_new(saved, key);
        Ok(saved)
    }
}

impl SortedSet {
    /// The set of a key, empty if there is none.
    ///
    /// # Errors
    /// `WRONGTYPE`, and of the store.
    pub(crate) fn open(execution: &mut Execution<'_>, key: &[u8]) -> Result<SortedSet> {
        let found = execution.find(key)?;
        SortedSet::of(execution.space(), found.as_ref())
    }

    /// The same for a command that reads, which counts as a hit or a miss.
    ///
    /// # Errors
    /// As [`SortedSet::open`].
    pub(crate) fn look_up(execution: &mut Execution<'_>, key: &[u8]) -> Result<SortedSet> {
        let found = execution.look_up(key)?;
        SortedSet::of(execution.space(), found.as_ref())
    }

    /// Writes what has changed: see [`SortedSet::save_to`].
    ///
    /// # Errors
    /// Of the store.
    pub(crate) fn save(self, execution: &mut Execution<'_>, key: &[u8]) -> Result<SaveOutcome> {
        let saved = self.save_to(execution.work, key)?;
        execution.tell_new(saved, key);
        Ok(saved)
    }
}

impl Hash {
    /// The hash of a key, without the fields that have expired, for a command that writes.
    ///
    /// # Errors
    /// `WRONGTYPE`, and of the store.
    pub(crate) fn open(execution: &mut Execution<'_>, key: &[u8]) -> Result<Hash> {
        let found = execution.find(key)?;
        let space = execution.space();
        let mut hash = Hash::of(execution.work, space, found.as_ref())?;
        hash.purge(execution.work)?;
        Ok(hash)
    }

    /// The hash of a key for a command that reads, which counts as a hit or a miss.
    ///
    /// # Errors
    /// As [`Hash::open`].
    pub(crate) fn look_up(execution: &mut Execution<'_>, key: &[u8]) -> Result<Hash> {
        let found = execution.look_up(key)?;
        let space = execution.space();
        Hash::of(execution.work, space, found.as_ref())
    }

    /// Writes what has changed: see [`Hash::save_to`].
    ///
    /// # Errors
    /// Of the store.
    pub(crate) fn save(self, execution: &mut Execution<'_>, key: &[u8]) -> Result<SaveOutcome> {
        let purged = self.purged();
        let saved = self.save_to(execution.work, key)?;
        execution.tell_new(saved, key);
        if purged > 0 {
            execution.notify(EventClasses::HASH, "hexpired", key);
        }
        Ok(saved)
    }
}
