//! `CLIENT PAUSE`: makes the commands of all clients wait.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A pause, or none.
#[derive(Debug)]
pub(crate) struct ClientPause {
    epoch: Instant,
    /// Until when, in milliseconds since the epoch; 0 for none.
    until_ms: AtomicU64,
    is_for_all: AtomicBool,
}

impl Default for ClientPause {
    fn default() -> ClientPause {
        ClientPause {
            epoch: Instant::now(),
            until_ms: AtomicU64::new(0),
            is_for_all: AtomicBool::new(false),
        }
    }
}

// ORDER: Relaxed throughout; a pause begins and ends soon, and orders nothing.
impl ClientPause {
    fn now_ms(&self) -> u64 {
        u64::try_from(self.epoch.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Begins a pause, or makes one longer and wider.
    pub(crate) fn begin(&self, length: Duration, is_for_all: bool) {
        let length = u64::try_from(length.as_millis()).unwrap_or(u64::MAX);
        let until = self.now_ms().saturating_add(length).max(1);
        let was_on = self.left().is_some();
        self.until_ms.fetch_max(until, Ordering::Relaxed);
        match was_on {
            true => self.is_for_all.fetch_or(is_for_all, Ordering::Relaxed),
            false => self.is_for_all.swap(is_for_all, Ordering::Relaxed),
        };
    }

    /// Ends it.
    pub(crate) fn end(&self) {
        self.until_ms.store(0, Ordering::Relaxed);
    }

    /// How long it still is, if there is one.
    pub(crate) fn left(&self) -> Option<Duration> {
        match self.until_ms.load(Ordering::Relaxed) {
            0 => None,
            until => {
                let left = until.saturating_sub(self.now_ms());
                (left > 0).then(|| Duration::from_millis(left))
            }
        }
    }

    /// Whether commands that write nothing wait too.
    pub(crate) fn is_for_all(&self) -> bool {
        self.is_for_all.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_becomes_longer_and_wider_only() {
        let pause = ClientPause::default();
        assert_eq!(pause.left(), None);
        pause.begin(Duration::from_secs(1000), false);
        assert!(!pause.is_for_all());
        pause.begin(Duration::from_secs(1), true);
        assert!(pause.is_for_all());
        assert!(pause.left() > Some(Duration::from_secs(900)));
        pause.end();
        assert_eq!(pause.left(), None);
        pause.begin(Duration::from_secs(1000), false);
        assert!(!pause.is_for_all());
    }
}
