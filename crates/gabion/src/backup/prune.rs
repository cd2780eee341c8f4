//! Removes old backups, and the objects that only they need.
//!
//! Descriptions first, durably, then objects (B2), and parts of logs that follow none of the
//! backups that stay. A crash in between leaves objects that nobody names, which the next prune or
//! backup removes, and parts, which the next prune removes.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use serde::Serialize;

use super::BackupRepository;
use super::layout::{BackupDescription, backup_name};
use super::objects::{is_object, object_name};
use super::part::part_name;
use crate::Result;
use crate::names::LOCK;

/// Which backups of each store to keep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RetentionPolicy {
    /// The number of newest backups to keep. The newest one is always kept.
    pub newest: u64,
    /// Keep backups that are not older than this; `None` for no such rule.
    pub younger_than: Option<Duration>,
}

/// What a prune removed.
#[non_exhaustive]
#[derive(Clone, Debug, Default, Serialize)]
pub struct PruneReport {
    /// The removed backups, oldest first.
    pub removed: Vec<u64>,
    /// Number of removed objects.
    pub objects: u64,
    /// Number of removed parts of archived logs.
    pub log_parts: u64,
    /// Bytes of the removed objects and parts.
    pub bytes: u64,
}

impl RetentionPolicy {
    /// Keeps the `count` newest backups of each store.
    pub fn newest(count: u64) -> RetentionPolicy {
        RetentionPolicy {
            newest: count,
            younger_than: None,
        }
    }
}

impl BackupRepository {
    /// Removes the backups that `keep` does not retain, and the objects that no other backup needs;
    /// and what is archived of the log in front of the first backup that stays.
    /// The others stay restorable whatever interrupts the prune.
    ///
    /// Stores are distinguished by their directories.
    ///
    /// # Errors
    /// [`Error::Corruption`](crate::Error::Corruption) and
    /// [`Error::NewerFormat`](crate::Error::NewerFormat) of a description that cannot be read:
    /// nothing is removed then, as nobody knows what it needs. Remove its file to give that backup
    /// up. [`Error::Media`](crate::Error::Media).
    pub fn prune(&self, keep: RetentionPolicy) -> Result<PruneReport> {
        let _lock = self.disk.lock(LOCK)?;
        self.clear_left()?;
        let mut all = self.descriptions()?;
        if let Some((_, error)) = all.bad.pop() {
            return Err(error);
        }
        let gone = gone(&all.good, keep, self.clock.unix_time());
        for id in &gone {
            self.disk.remove(&backup_name(*id))?;
        }
        // DURABLE: the descriptions are gone before the first object is (B2).
        self.disk.sync_dir()?;
        let left = all.good.iter().filter(|(id, _)| !gone.contains(id));
        let left: Vec<_> = left.map(|(_, own)| own).collect();
        let (objects, bytes) = self.remove_unnamed(left.iter().copied())?;
        let (log_parts, log_bytes) = self.remove_parts(&left)?;
        self.disk.sync_dir()?;
        Ok(PruneReport {
            removed: gone,
            objects,
            log_parts,
            bytes: bytes + log_bytes,
        })
    }

    /// Removes the parts of logs that follow none of these backups, all that there are; returns how
    /// many these were, and their bytes. What cannot be read stays: nobody knows what it follows.
    fn remove_parts(&self, descriptions: &[&BackupDescription]) -> Result<(u64, u64)> {
        let (mut parts, mut bytes) = (0, 0);
        for (id, part) in self.parts()?.good {
            let follows = |own: &&BackupDescription| {
                let place = own.log.map(|link| link.place);
                place.is_some_and(|place| place.chain == part.chain && place.at <= part.from)
            };
            if !descriptions.iter().any(follows) {
                bytes += self.disk.len_of(&part_name(id))?;
                self.disk.remove(&part_name(id))?;
                parts += 1;
            }
        }
        Ok((parts, bytes))
    }

    /// Removes the objects that none of these descriptions, all that there are, names; returns how
    /// many these were, and their bytes.
    pub(super) fn remove_unnamed<'d>(
        &self,
        descriptions: impl Iterator<Item = &'d BackupDescription>,
    ) -> Result<(u64, u64)> {
        let pieces = descriptions.flat_map(BackupDescription::pieces);
        let named: HashSet<String> = pieces.map(|piece| object_name(&piece.hash)).collect();
        let (mut objects, mut bytes) = (0, 0);
        for name in self.disk.list()? {
            if is_object(&name) && !named.contains(&name) {
                bytes += self.disk.len_of(&name)?;
                self.disk.remove(&name)?;
                objects += 1;
            }
        }
        Ok((objects, bytes))
    }
}

/// The backups that need not stay, of all, which are in the order of their numbers.
fn gone(all: &[(u64, BackupDescription)], keep: RetentionPolicy, now: Duration) -> Vec<u64> {
    let now = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
    let mut newer: BTreeMap<&str, u64> = BTreeMap::new();
    let mut gone = Vec::new();
    for (id, own) in all.iter().rev() {
        let rank = newer.entry(&own.store).or_default();
        let age = Duration::from_millis(now.saturating_sub(own.created_ms));
        let is_young = keep.younger_than.is_some_and(|limit| age <= limit);
        if *rank >= keep.newest.max(1) && !is_young {
            gone.push(*id);
        }
        *rank += 1;
    }
    gone.reverse();
    gone
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Engine;

    #[test]
    fn each_store_keeps_its_newest_ones_and_those_that_are_young() {
        let backup = |id: u64, store: &str| {
            let description = BackupDescription {
                engine: Engine::Wip,
                store: store.to_owned(),
                created_ms: id * 1000,
                position: 0,
                bytes_copied: 0,
                files_copied: 0,
                log: None,
                files: Vec::new(),
            };
            (id, description)
        };
        let all = [
            backup(1, "one"),
            backup(2, "other"),
            backup(3, "one"),
            backup(4, "one"),
        ];
        let now = Duration::from_secs(5);
        let gone = |newest, younger_than: Option<u64>| {
            let younger_than = younger_than.map(Duration::from_secs);
            let keep = RetentionPolicy {
                newest,
                younger_than,
            };
            super::gone(&all, keep, now)
        };
        assert_eq!(gone(1, None), [1, 3]);
        assert_eq!(gone(2, None), [1]);
        assert_eq!(gone(3, None), [0; 0]);
        // Whatever is asked for, there is one left of each.
        assert_eq!(gone(0, None), [1, 3]);
        assert_eq!(gone(0, Some(0)), [1, 3]);
        assert_eq!(gone(0, Some(2)), [1]);
        assert_eq!(gone(2, Some(4)), [0; 0]);
    }
}
