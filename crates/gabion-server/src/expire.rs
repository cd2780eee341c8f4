//! Removes a key that has expired.
//!
//! The background does this for all keys, and a command for those that it has met, after it has let
//! go of its locks. Watchers are not told: who watches a key knows when it expires.

use std::sync::Arc;

use crate::events::Events;
use crate::fault::Result;
use crate::locks::Hold;
use crate::server::{Server, count};
use crate::store::keys::expiry_key;
use crate::store::work::{Room, Way, Work};

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
    let held = server
        .locks
        .keys(Hold::Alone, std::iter::once(key), || Ok(()))?;
    work.begin(Way::Direct, now_ms, false);
    let is_it = work.expires_at(space, key)? == Some(moment);
    match is_it {
        true => {
            work.remove(space, key)?;
        }
        false => work.write(Room::Expiring, &expiry_key(moment, space, key), None)?,
    }
    work.commit(gabion::Durability::Buffered)?;
    if is_it {
        count(&server.counts.expired, 1);
        let database = server.store.database_of(space);
        drop(held);
        if let Some(database) = database {
            server.publish_event(Events::EXPIRED, "expired", database, key);
        }
    }
    Ok(())
}
