//! Repair: a new store from what can be read of a damaged one, which stays as it is.
//!
//! The pairs that lie in sound blocks are written to a new store, then the writes of the log as far
//! as it can be read. How pairs are found behind a damaged block is told by `salvage`. A block of a
//! space has no second copy, so that what was in it is lost; the writes of the log were made after
//! those in the spaces or are among them.
//!
//! Nothing is written to the damaged store, not even its lock file: it is evidence, and perhaps on
//! a medium that takes no writes any more.

use std::collections::BTreeMap;
use std::sync::Arc;

use gabion_flex::check_content;
use gabion_media::Disk;

use super::layout::{Root, RootKeyspace, space_prefix};
use super::salvage::Salvage;
use super::{Flex, FlexKeyspace, Write};
use crate::engine::ssd::{CommitWrites, Lifecycle};
use crate::engine::{LostEntries, RepairReport};
use crate::names::LOCK;
use crate::types::Kind;
use crate::{Engine, Error, Options, Result};

/// Writes what can be read of the store on `disk` to an empty directory.
pub(crate) fn repair(disk: &Disk, target: &Disk) -> Result<RepairReport> {
    let _lock = disk.lock_shared(LOCK)?;
    let mut report = RepairReport::default();
    let root = Root::read(disk)?;
    let copy = Flex::open(target.clone(), Options::default().engine(Engine::Flex))?;
    let saved = save(disk, &root, &copy, &mut report);
    let closed = copy.close();
    let result = saved.and(closed).map(|()| report);
    result.map_err(|error| copy.health.as_error_of_copy(error))
}

/// Writes what can be read of all spaces and of the log.
fn save(disk: &Disk, root: &Root, copy: &Flex, report: &mut RepairReport) -> Result<()> {
    let mut keyspaces = BTreeMap::new();
    for known in root.keyspaces.iter() {
        let keyspace = copy.keyspace_with(&known.name, Some(&known.options))?;
        let space = disk.part(&space_prefix(known.id));
        save_space(&space, known, copy, &keyspace, report)?;
        keyspaces.insert(known.id, keyspace);
    }
    let (tail, given_out) = (root.log_tail, root.next_keyspace);
    report.replay(disk, tail, &root.sealed, given_out, |operation| {
        // What a keyspace held that was dropped went with it.
        let Some(keyspace) = keyspaces.get(&operation.keyspace) else {
            return Ok(());
        };
        put(
            copy,
            keyspace,
            operation.kind,
            operation.key,
            operation.value,
        )
    })
}

fn put(copy: &Flex, keyspace: &FlexKeyspace, kind: Kind, key: &[u8], value: &[u8]) -> Result<()> {
    let write = Write::Single {
        keyspace,
        kind,
        key,
        value,
    };
    copy.write(write, (key.len() + value.len()) as u64, false)
}

/// Writes the pairs of a space that are whole.
fn save_space(
    disk: &Disk,
    known: &RootKeyspace,
    copy: &Flex,
    keyspace: &Arc<FlexKeyspace>,
    report: &mut RepairReport,
) -> Result<()> {
    let mut salvage = Salvage::new(&known.name);
    let mut write = |kind: Kind, key: &[u8], stored: &[u8]| put(copy, keyspace, kind, key, stored);
    let mut written = Ok(());
    let checked = check_content(disk, known.reached, |piece| {
        if written.is_ok() {
            written = salvage.read(piece, &mut write);
        }
    });
    written?;
    let (saved, lost) = salvage.end(&mut write)?;
    report.entries += saved;
    match checked {
        Ok(found) => {
            report.lost.extend(lost);
            if !found.has_content {
                report.lost.push(LostEntries::of_keyspace(&known.name));
            }
            let problems = found.problems.into_iter();
            problems.for_each(|problem| {
                report.lose_at(problem.file, problem.offset, problem.what);
            });
        }
        Err(error) => {
            let error = Error::from(error);
            if error.needs_another_program() {
                return Err(error);
            }
            report.lose(&error, disk.path());
            report.lost.push(LostEntries::of_keyspace(&known.name));
        }
    }
    Ok(())
}
