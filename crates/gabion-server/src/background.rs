//! Background work: removes expired keys and the elements of deleted collections.
//!
//! A key that has expired is gone for every command at once, by the moment in its record. Here its
//! record is deleted, so that counts, watchers and listeners hear of it, within [`PAUSE`].

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::clients::now_ms;
use crate::dispatch::nanos;
use crate::expire;
use crate::fault::Result;
use crate::server::Server;
use crate::store::keys::{expiry_key, split_expiry_key};
use crate::store::sweep::remove_garbage;
use crate::store::work::Work;

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
            let began = Instant::now();
            while remove_expired(&server).is_ok_and(|count| count == AT_ONCE) {}
            let took = nanos(began.elapsed());
            server.spikes.note(&server.settings, "expire-cycle", took);
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
    if server.is_stopping()
        || server.pause.left().is_some()
        || !server.removes_expired.load(Ordering::Relaxed)
    {
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
            expire::remove(server, &mut work, now_ms, (moment, space, key))?;
        }
    }
    Ok(looked_at)
}
