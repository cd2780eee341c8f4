//! What goes on beside commands: keys that expire are removed, and so are dead elements.
//!
//! A key that has expired is gone for every command at once, by the moment in its record. Here its
//! record is deleted, so that counts, watchers and listeners hear of it, within [`PAUSE`].

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::clients::now_ms;
use crate::events::Events;
use crate::fault::Result;
use crate::locks::Hold;
use crate::server::{Server, count};
use crate::store::keys::{expiry_key, split_expiry_key};
use crate::store::sweep::remove_garbage;
use crate::store::work::{Room, Way, Work};

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(50);

/// Keys that are looked at in one go.
const AT_ONCE: usize = 1000;

/// Works until it is stopped.
pub(crate) async fn run(server: Arc<Server>) {
    let mut ticks = tokio::time::interval(PAUSE);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let server = Arc::clone(&server);
        let round = tokio::task::spawn_blocking(move || {
            // A store that takes no writes says so to whoever writes; here it is tried again.
            while remove_expired(&server).is_ok_and(|count| count == AT_ONCE) {}
            while remove_garbage(&server.store).is_ok_and(|count| count > 0) {}
        });
        if round.await.is_err() {
            return;
        }
    }
}

/// Removes some keys that have expired; returns how many were looked at.
fn remove_expired(server: &Arc<Server>) -> Result<usize> {
    // ORDER: Relaxed; a switch for tests.
    if server.is_stopping() || !server.removes_expired.load(Ordering::Relaxed) {
        return Ok(0);
    }
    let now_ms = now_ms();
    let behind = expiry_key(now_ms.saturating_add(1), 0, &[]);
    let due = server.store.expiring.range(..&behind[..]).take(AT_ONCE);
    let mut work = Work::new(Arc::clone(&server.store));
    let mut looked_at = 0;
    for pair in due {
        let (of_index, _) = pair?;
        looked_at += 1;
        if let Some((moment, space, key)) = split_expiry_key(&of_index) {
            remove_one(server, &mut work, now_ms, (moment, space, key))?;
        }
    }
    Ok(looked_at)
}

/// Removes a key if it has expired at that moment, or else its place in the index.
fn remove_one(
    server: &Arc<Server>,
    work: &mut Work,
    now_ms: u64,
    (moment, space, key): (u64, u16, &[u8]),
) -> Result<()> {
    let held = server.locks.keys(Hold::Alone, std::iter::once(key));
    work.begin(Way::Direct, now_ms, server.watch.is_used());
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
        if let Some(touched) = work.touched.take() {
            server.tell_watchers(&touched);
        }
        let database = server.store.database_of(space);
        drop(held);
        if let Some(database) = database {
            server.publish_event(Events::EXPIRED, "expired", database, key);
        }
    }
    Ok(())
}
