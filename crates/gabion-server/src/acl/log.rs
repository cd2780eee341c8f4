//! `ACL LOG`: denied commands, keys, channels and logins.

use std::collections::VecDeque;

use parking_lot::Mutex;

/// How long the same thing counts as one entry, in milliseconds.
const SAME_FOR_MS: u64 = 60_000;

/// Entries among which the same one is looked for.
const LOOKED_AT: usize = 10;

/// A denial.
#[derive(Clone, Debug)]
pub(crate) struct AclLogEntry {
    /// How often.
    pub(crate) count: u64,
    /// `command`, `key`, `channel` or `auth`.
    pub(crate) reason: &'static str,
    /// `toplevel`, `multi` or `lua`.
    pub(crate) context: &'static str,
    /// The name of the command, the key or the channel.
    pub(crate) object: Vec<u8>,
    /// Who it was, or wanted to be.
    pub(crate) user: Vec<u8>,
    /// When it happened last, in milliseconds since 1970.
    pub(crate) at_ms: u64,
    /// The client, as `CLIENT LIST` shows it.
    pub(crate) client: String,
}

impl AclLogEntry {
    fn is_same(&self, other: &AclLogEntry) -> bool {
        self.reason == other.reason
            && self.context == other.context
            && self.object == other.object
            && self.user == other.user
            && self.at_ms.abs_diff(other.at_ms) <= SAME_FOR_MS
    }
}

/// All entries, newest first.
#[derive(Debug, Default)]
pub(crate) struct AclLog {
    entries: Mutex<VecDeque<AclLogEntry>>,
}

impl AclLog {
    /// Notes an entry, in the place of the oldest if there are `most`.
    pub(crate) fn note(&self, mut entry: AclLogEntry, most: usize) {
        let mut entries = self.entries.lock();
        let mut newest = entries.iter().take(LOOKED_AT);
        if let Some(place) = newest.position(|known| known.is_same(&entry)) {
            let known = entries.remove(place);
            entry.count += known.map_or(0, |known| known.count);
        }
        entries.push_front(entry);
        entries.truncate(most);
    }

    /// The last entries, at most `count`.
    pub(crate) fn last(&self, count: usize) -> Vec<AclLogEntry> {
        self.entries.lock().iter().take(count).cloned().collect()
    }

    /// Forgets all.
    pub(crate) fn reset(&self) {
        self.entries.lock().clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(object: &str, at_ms: u64) -> AclLogEntry {
        AclLogEntry {
            count: 1,
            reason: "key",
            context: "toplevel",
            object: object.into(),
            user: b"u".to_vec(),
            at_ms,
            client: String::new(),
        }
    }

    #[test]
    fn what_happens_again_within_a_minute_is_one_entry() {
        let log = AclLog::default();
        for (object, at_ms) in [("a", 0), ("b", 1), ("a", 60_000), ("a", 120_001)] {
            log.note(entry(object, at_ms), 3);
        }
        let shown: Vec<_> = log
            .last(9)
            .iter()
            .map(|one| (one.count, one.at_ms))
            .collect();
        assert_eq!(shown, [(1, 120_001), (2, 60_000), (1, 1)]);
        log.note(entry("c", 0), 2);
        assert_eq!(log.last(9).len(), 2);
        assert_eq!(log.last(1)[0].object, b"c");
        log.reset();
        assert!(log.last(9).is_empty());
    }
}
