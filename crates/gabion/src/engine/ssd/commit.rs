//! A write: admission, log, MemTable, publication.
//!
//! # Idea
//! A write that needs no sync takes the engine's fast path, if it has one. All others queue; the
//! first writer in the queue becomes the leader and excludes all others. The leader appends one
//! frame for each waiting write to the log, syncs the log once if any of them asked for it, inserts
//! all of them into MemTables and publishes their numbers. While it syncs, the next group gathers.
//!
//! A transaction is a write that takes effect only if nobody has written what it read (`validate`).
//! An update reads the newest value while it excludes all other writers.
//!
//! # Invariants
//! - C1. The order of frames in the log is the order of numbers and of publication.
//! - C2. A write is in the log before it is published, and at [`Durability::Sync`] on the medium
//!   before it is in a MemTable: no read returns a value that a power loss can undo.
//! - C3. Numbers that were given out and not logged, because the log has failed, stay unpublished.
//!
//! # Failures
//! A frame that finds no space for the next log segment fails its write and changes nothing; later
//! writes may succeed. A failed sync leaves unknown what is on the medium, so the store turns
//! read-only and the group's writes are not acknowledged, though a recovery may find them.

//!
//! [`Durability::Sync`]: crate::Durability::Sync

use std::iter::{empty, once};
use std::sync::Arc;

use super::SsdEngine;
use super::merges::PendingMerges;
use super::validate::validate;
use crate::engine::keyspaces::DroppableKeyspace;
use crate::engine::write::{QueuedWrite, Update, Write};
use crate::expiry::{StoredRecord, value_of};
use crate::limits::check_limits;
use crate::types::Seq;
use crate::{Error, Result};

/// Writes of an engine.
pub(crate) trait CommitWrites: SsdEngine {
    /// Performs a write: in the log, in its MemTables, visible. `user_bytes` are the bytes of its
    /// keys and values.
    fn write(&self, write: Write<'_, Self::Keyspace>, user_bytes: u64, sync: bool) -> Result<()> {
        let hash = self.prefetch(write);
        self.check_writable()?;
        let write_once = || {
            write.admitted(self.admit(user_bytes))?;
            match !sync && self.write_concurrently(write, hash)? {
                true => Ok(()),
                false => queue(self, write, sync),
            }
        };
        write.perform(write_once, || self.gain_room())?;
        self.counters.count_write(user_bytes);
        self.run_inline();
        Ok(())
    }

    /// Changes the record of a key to what `change` makes of it, and returns the one that it had.
    /// Nobody else writes meanwhile. `change` is called again
    /// where there was no room for what it made, and some could be gained.
    fn update(
        &self,
        keyspace: &Self::Keyspace,
        key: &[u8],
        change: Update<'_>,
        sync: bool,
    ) -> Result<Option<StoredRecord>> {
        self.check_writable()?;
        let mut changed = update_once(self, keyspace, key, change, sync);
        while matches!(&changed, Err(error) if error.is_no_space()) && self.gain_room() {
            changed = update_once(self, keyspace, key, change, sync);
        }
        self.run_inline();
        changed
    }
}

impl<E: SsdEngine> CommitWrites for E {}

fn update_once<E: SsdEngine>(
    engine: &E,
    keyspace: &E::Keyspace,
    key: &[u8],
    change: Update<'_>,
    sync: bool,
) -> Result<Option<StoredRecord>> {
    // What will be written is not known yet.
    let admitted = engine.admit(key.len() as u64);
    let half = &mut *engine.lock_write_half();
    engine.health.check_writable()?;
    keyspace.dropped().check()?;
    let old = engine.newest(keyspace, key)?;
    let changed = change(old.as_ref().map(StoredRecord::value));
    let Some((kind, stored)) = changed.as_write(old.as_ref()) else {
        return Ok(old);
    };
    check_limits(key, value_of(kind, &stored))?;
    let write = Write::Single {
        keyspace,
        kind,
        key,
        value: &stored,
    };
    write.admitted(admitted)?;
    commit_group(engine, half, write, sync, &[])?;
    let user_bytes = key.len() + stored.len();
    engine.counters.count_write(user_bytes as u64);
    Ok(old)
}

/// Performs a write by whoever leads.
fn queue<E: SsdEngine>(engine: &E, write: Write<'_, E::Keyspace>, sync: bool) -> Result<()> {
    // The log fails first: who writes beside looks at it while it waits for numbers that are never
    // published.
    let fail = |error: &Error| drop(engine.fail(engine.syncer.fail(error.clone())));
    let commit = |own: Write<'_, E::Keyspace>, own_sync, group: &[Arc<QueuedWrite>]| {
        let half = &mut *engine.lock_write_half();
        commit_group(engine, half, own, own_sync, group)
    };
    engine.queue.perform(write, sync, fail, commit)
}

/// Logs, syncs, inserts and publishes a group, each write if nothing of what it depends on was
/// written. The result is the own write's; the others get theirs through their waiters.
fn commit_group<E: SsdEngine>(
    engine: &E,
    half: &mut E::WriteHalf,
    own: Write<'_, E::Keyspace>,
    own_sync: bool,
    group: &[Arc<QueuedWrite>],
) -> Result<()> {
    let segment = E::segment(half);
    let mut merges = PendingMerges::of(once(own).chain(group.iter().map(|waiter| waiter.write())));
    let own_valid = validate(engine, own, empty());
    let own_logged = own_valid.and_then(|()| merges.append(engine, half, (0, own)));
    let mut logged: Vec<Result<Seq>> = Vec::with_capacity(group.len());
    for (position, waiter) in (1..).zip(group) {
        let before = group.iter().map(|waiter| waiter.write()).zip(&logged);
        let earlier = once((own, &own_logged)).chain(before);
        let earlier = earlier.filter_map(|(write, logged)| logged.is_ok().then_some(write));
        let valid = validate(engine, waiter.write(), earlier);
        let write = (position, waiter.write());
        logged.push(valid.and_then(|()| merges.append(engine, half, write)));
    }
    // What was refused waits for nothing.
    let own_waits = own_sync && own_logged.is_ok();
    let mut others = group.iter().zip(&logged);
    let waits = own_waits || others.any(|(own, logged)| own.wants_sync() && logged.is_ok());
    if waits && let Err(error) = engine.sync_log() {
        let tell = |waiter: &Arc<QueuedWrite>| waiter.end(Err(error.clone()));
        group.iter().for_each(tell);
        return Err(error);
    }
    let waiting = group.iter().map(|waiter| waiter.write());
    let all = once((own, &own_logged)).chain(waiting.zip(&logged));
    let inserted = all.enumerate().filter_map(|(position, (write, logged))| {
        let first = *logged.as_ref().ok()?;
        Some((merges.logged(position, write), first))
    });
    let whole = merges.must_stay_together();
    engine.insert_group(half, inserted, segment, whole);
    for (waiter, logged) in group.iter().zip(logged) {
        waiter.end(logged.map(|_| ()));
    }
    own_logged.map(|_| ())
}
