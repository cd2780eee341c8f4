//! Repair: a new store from what can be read of a damaged one, which stays as it is.
//!
//! The pairs of sound extents are written to a new store, then the writes of the log as far as it
//! can be read. Behind damage, reading goes on at the next mark, where a pair begins. A damaged
//! extent of a space has no second copy, so that what was in it is lost; the writes of the log were
//! made after those in the spaces or are among them.

use std::collections::BTreeMap;
use std::sync::Arc;

use gabion_flex::{Content, Piece, check_content};
use gabion_media::Disk;

use super::interval::{PAIR_HEAD_BYTES_MAX, pair_head};
use super::layout::{Root, RootKeyspace, space_prefix};
use super::{Flex, Keyspace, Write};
use crate::engine::{KEY_BYTES_MAX, RepairReport, VALUE_BYTES_MAX};
use crate::names::LOCK;
use crate::types::Kind;
use crate::{Engine, Error, Options, Result};

/// Writes what can be read of the store on `disk` to an empty directory.
pub(crate) fn repair(disk: &Disk, target: &Disk) -> Result<RepairReport> {
    let _lock = disk.lock(LOCK)?;
    let mut report = RepairReport::default();
    let root = Root::read(disk)?;
    let copy = Flex::open(target.clone(), Options::default().engine(Engine::Flex))?;
    let saved = save(disk, &root, &copy, &mut report);
    let closed = copy.close();
    saved.and(closed).map(|()| report)
}

/// Writes what can be read of all spaces and of the log.
fn save(disk: &Disk, root: &Root, copy: &Flex, report: &mut RepairReport) -> Result<()> {
    let mut keyspaces = BTreeMap::new();
    for known in &root.keyspaces {
        let keyspace = copy.create_keyspace(&known.name)?;
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

fn put(copy: &Flex, keyspace: &Keyspace, kind: Kind, key: &[u8], value: &[u8]) -> Result<()> {
    let write = Write::Single {
        keyspace,
        kind,
        key,
        value,
    };
    copy.write(write, (key.len() + value.len()) as u64, false)
}

/// Writes the pairs of sound extents of a space.
fn save_space(
    disk: &Disk,
    known: &RootKeyspace,
    copy: &Flex,
    keyspace: &Arc<Keyspace>,
    report: &mut RepairReport,
) -> Result<()> {
    let mut pairs = Pairs::default();
    let (mut saved, mut failed) = (0, Ok(()));
    let checked = check_content(disk, known.reached, |piece| {
        pairs.read(piece, &mut |key, value| {
            if failed.is_ok() {
                failed = put(copy, keyspace, Kind::Put, key, value);
                saved += 1;
            }
        });
    });
    failed?;
    report.entries += saved;
    match checked {
        Ok(found) => found
            .problems
            .into_iter()
            .for_each(|problem| report.lose_at(problem.file, problem.offset, problem.what)),
        Err(error) => {
            let error = Error::from(error);
            if error.needs_another_program() {
                return Err(error);
            }
            report.lose(&error, disk.path());
        }
    }
    Ok(())
}

/// Finds the whole pairs among the pieces of a space.
#[derive(Default)]
struct Pairs {
    /// What was read of the pair at hand.
    front: Vec<u8>,
    /// Nothing can be told before the next mark.
    lost: bool,
}

impl Pairs {
    fn read(&mut self, piece: &Piece<'_>, found: &mut dyn FnMut(&[u8], &[u8])) {
        if piece.is_marked {
            self.front.clear();
            self.lost = false;
        }
        match piece.content {
            Content::Data(bytes) if !self.lost => {
                self.front.extend_from_slice(bytes);
                self.lost = !self.take_pairs(found);
            }
            Content::Data(_) => {}
            _ => self.lost = true,
        }
        if self.lost {
            self.front.clear();
        }
    }

    /// Takes the whole pairs out; false where the bytes are none.
    fn take_pairs(&mut self, found: &mut dyn FnMut(&[u8], &[u8])) -> bool {
        let mut at = 0;
        loop {
            let rest = &self.front[at..];
            let (head, key, all) = match pair_head(rest) {
                Ok(lens) => lens,
                Err(_) if rest.len() < PAIR_HEAD_BYTES_MAX => break,
                Err(_) => return false,
            };
            if key as u64 > KEY_BYTES_MAX || (all - head - key) as u64 > VALUE_BYTES_MAX {
                return false;
            }
            let Some(pair) = rest.get(head..all) else {
                break;
            };
            let (key, value) = pair.split_at(key);
            found(key, value);
            at += all;
        }
        self.front.drain(..at);
        true
    }
}
