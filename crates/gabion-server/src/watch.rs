//! Versions of watched keys.
//!
//! As long as nobody watches, nothing is counted: a command asks [`WatchTable::is_used`], under the
//! locks of its keys, and notes what it touches only then. A key enters the table when the first
//! client watches it, under the key's lock, and leaves with the last.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

/// A key and its database in the store.
pub(crate) type StoredKey = (u16, Vec<u8>);

#[derive(Debug, Default)]
struct Entry {
    version: u64,
    watchers: usize,
}

/// The table of watched keys, of all clients.
#[derive(Debug, Default)]
pub(crate) struct WatchTable {
    entries: Mutex<HashMap<StoredKey, Entry>>,
    count: AtomicUsize,
}

/// A key that a client watches.
#[derive(Debug)]
pub(crate) struct WatchedKey {
    key: StoredKey,
    version: u64,
    /// The moment at which the key, which was there, expires.
    expires_ms: Option<u64>,
}

impl WatchedKey {
    /// The key and its database in the store.
    pub(crate) fn key(&self) -> &StoredKey {
        &self.key
    }
}

impl WatchTable {
    /// Whether anybody watches anything.
    pub(crate) fn is_used(&self) -> bool {
        // ORDER: Relaxed; who watches holds the key's lock, and so does who asks.
        self.count.load(Ordering::Relaxed) > 0
    }

    /// Begins to watch a key.
    pub(crate) fn begin(&self, key: StoredKey, expires_ms: Option<u64>) -> WatchedKey {
        let mut entries = self.entries.lock();
        let entry = entries.entry(key.clone()).or_default();
        entry.watchers += 1;
        // ORDER: Relaxed, as in `is_used`.
        self.count.fetch_add(1, Ordering::Relaxed);
        WatchedKey {
            key,
            version: entry.version,
            expires_ms,
        }
    }

    /// Ends it.
    pub(crate) fn end(&self, watched: Vec<WatchedKey>) {
        let mut entries = self.entries.lock();
        for watched in watched {
            // ORDER: Relaxed, as in `is_used`.
            self.count.fetch_sub(1, Ordering::Relaxed);
            if let Some(entry) = entries.get_mut(&watched.key) {
                entry.watchers -= 1;
                if entry.watchers == 0 {
                    entries.remove(&watched.key);
                }
            }
        }
    }

    /// A key was changed.
    pub(crate) fn touch(&self, key: &StoredKey) {
        if let Some(entry) = self.entries.lock().get_mut(key) {
            entry.version += 1;
        }
    }

    /// All keys of a database were changed for which `is_changed` says so.
    pub(crate) fn touch_all(&self, mut is_changed: impl FnMut(&StoredKey) -> bool) {
        for (key, entry) in self.entries.lock().iter_mut() {
            if is_changed(key) {
                entry.version += 1;
            }
        }
    }

    /// Whether none of the keys was changed, or has expired.
    pub(crate) fn is_unchanged(&self, watched: &[WatchedKey], now_ms: u64) -> bool {
        let entries = self.entries.lock();
        watched.iter().all(|watched| {
            let version = entries.get(&watched.key).map(|entry| entry.version);
            version == Some(watched.version)
                && watched.expires_ms.is_none_or(|expires| expires > now_ms)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_or_an_expiry_is_seen_until_the_watch_ends() {
        let watch = WatchTable::default();
        let key = (0, b"k".to_vec());
        watch.touch(&key);
        let watched = vec![watch.begin(key.clone(), Some(100))];
        assert!(watch.is_used() && watch.is_unchanged(&watched, 99));
        assert!(!watch.is_unchanged(&watched, 100));
        watch.touch(&(1, b"k".to_vec()));
        assert!(watch.is_unchanged(&watched, 1));
        watch.touch(&key);
        assert!(!watch.is_unchanged(&watched, 1));
        watch.end(watched);
        assert!(!watch.is_used() && watch.entries.lock().is_empty());
    }
}
