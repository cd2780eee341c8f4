//! Removes a key that has expired.
//!
//! The background does this for all keys, and a command for those that it has met, after it has let
//! go of its locks. Watchers are not told: who watches a key knows when it expires.

use std::sync::Arc;

use crate::events::EventClasses;
use crate::fault::Result;
use crate::locks::LockMode;
use crate::server::{Server, count};
use crate::store::hash::{Hash, OF_FIELDS};
use crate::store::keys::expiry_key;
use crate::store::meta::{KeyType, SaveOutcome};
use crate::store::work::{Room, Work, WorkMode};

/// Removes a key if it has expired at that moment, or else its place in the index.
///
/// # Errors
/// As [`Work::commit`].
pub(crate) fn remove(
    server: &Arc<Server>,
    work: &mut Work,
    now_ms: u64,
    (moment, space, key): (u64, u16, &[u8]),
) -> Result<()> {
    if moment > now_ms {
        // The clock was set back; it is due later.
        return Ok(());
    }
    if space & OF_FIELDS != 0 {
        return remove_fields(server, work, now_ms, (moment, space, key));
    }
    let held = server
        .locks
        .keys(LockMode::Alone, std::iter::once(key), || Ok(()))?;
    work.begin(WorkMode::Direct, now_ms, false);
    let is_it = work.expires_at(space, key)? == Some(moment);
    match is_it {
        true => {
            work.remove(space, key)?;
        }
        false => work.write(Room::Expiring, &expiry_key(moment, space, key), None)?,
    }
    work.commit(gabion::Durability::Buffered)?;
    if is_it {
        server.tell_followers(&[(space, key.to_vec())], None);
        count(&server.counts.expired, 1);
        let database = server.store.database_of(space);
        drop(held);
        if let Some(database) = database {
            server.publish_event(EventClasses::EXPIRED, "expired", database, key);
        }
    }
    Ok(())
}

/// Removes the fields of a hash that have expired by that moment, and its place in the index.
fn remove_fields(
    server: &Arc<Server>,
    work: &mut Work,
    now_ms: u64,
    (moment, of_fields, key): (u64, u16, &[u8]),
) -> Result<()> {
    let space = of_fields & !OF_FIELDS;
    let held = server
        .locks
        .keys(LockMode::Alone, std::iter::once(key), || Ok(()))?;
    let is_asked_for = server.watch.is_used() || server.tracking.is_used();
    work.begin(WorkMode::Direct, now_ms, is_asked_for);
    let found = work.find(space, key)?;
    let mut purged = 0;
    let mut saved = SaveOutcome::Same;
    if let Some(meta) = found.filter(|meta| meta.head.kind == KeyType::Hash) {
        let mut hash = Hash::of(work, space, Some(&meta))?;
        purged = hash.purge(work)?;
        saved = hash.save_to(work, key)?;
    }
    work.write(Room::Expiring, &expiry_key(moment, of_fields, key), None)?;
    work.commit(gabion::Durability::Buffered)?;
    if let Some(touched) = work.touched.take() {
        server.tell_watchers(&touched);
        server.tell_followers(&touched, None);
    }
    drop(held);
    if let Some(database) = server.store.database_of(space)
        && purged > 0
    {
        server.publish_event(EventClasses::HASH, "hexpired", database, key);
        if saved == SaveOutcome::Removed {
            server.publish_event(EventClasses::GENERIC, "del", database, key);
        }
    }
    Ok(())
}
