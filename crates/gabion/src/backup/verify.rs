//! Verification: whether a repository still holds what was written.

use std::collections::BTreeMap;

use serde::Serialize;

use super::BackupRepository;
use super::layout::{BackupDescription, backup_name};
use super::objects::{self, ObjectHash, object_name};
use super::transfer::{BackupOptions, Transfer};
use crate::names::LOCK;
use crate::{Problem, Result};

/// What a verification found.
#[non_exhaustive]
#[derive(Clone, Debug, Default, Serialize)]
pub struct VerifyReport {
    /// Number of backups whose objects were read.
    pub backups: u64,
    /// Number of objects that were read.
    pub objects: u64,
    /// Bytes of these objects.
    pub bytes: u64,
    /// Missing or damaged objects; each problem names the backups that cannot be restored.
    pub problems: Vec<Problem>,
}

impl BackupRepository {
    /// Reads all objects of backup `id`, or of all backups with `None`, each once, and compares
    /// each with its hash. Changes nothing.
    ///
    /// # Errors
    /// [`Error::NoSuchBackup`](crate::Error::NoSuchBackup),
    /// [`Error::Cancelled`](crate::Error::Cancelled), [`Error::Media`](crate::Error::Media). Damage
    /// is not an error but part of the report.
    pub fn verify(&self, id: Option<u64>, options: BackupOptions<'_>) -> Result<VerifyReport> {
        let _lock = self.disk.lock_shared(LOCK)?;
        let mut report = VerifyReport::default();
        let mut all = self.descriptions()?;
        if let Some(id) = id {
            if !self.ids()?.contains(&id) {
                // Says which ones there are.
                self.description(id)?;
            }
            all.good.retain(|(own, _)| *own == id);
            all.bad.retain(|(own, _)| *own == id);
        }
        for (id, error) in &all.bad {
            let file = self.disk.path_of(&backup_name(*id));
            report.problems.push(Problem::of(error, &file));
        }
        report.backups = all.good.len() as u64;
        let objects = needed(&all.good);
        let bytes = objects.keys().map(|(_, len)| len).sum();
        let mut transfer = Transfer::new(options, bytes);
        for ((hash, len), ids) in &objects {
            match objects::check(&self.disk, (hash, *len), &mut transfer) {
                Ok(()) => {}
                Err(fault) => {
                    let what = fault.told(*len)?;
                    let file = self.disk.path_of(&object_name(hash));
                    let whose = told(ids);
                    report.problems.push(Problem::new(
                        file,
                        None,
                        format!("{what}; {whose} cannot be restored without it"),
                    ));
                }
            }
            report.objects += 1;
            report.bytes += len;
        }
        Ok(report)
    }
}

/// The objects of backups, each with the backups that need it.
fn needed(backups: &[(u64, BackupDescription)]) -> BTreeMap<(ObjectHash, u64), Vec<u64>> {
    let mut objects: BTreeMap<_, Vec<u64>> = BTreeMap::new();
    for (id, description) in backups {
        for piece in description.pieces() {
            let ids = objects.entry((piece.hash, piece.len)).or_default();
            if ids.last() != Some(id) {
                ids.push(*id);
            }
        }
    }
    objects
}

fn told(ids: &[u64]) -> String {
    let numbers: Vec<_> = ids.iter().map(u64::to_string).collect();
    match ids.len() {
        1 => format!("backup {}", numbers.concat()),
        _ => format!("the backups {}", numbers.join(", ")),
    }
}
