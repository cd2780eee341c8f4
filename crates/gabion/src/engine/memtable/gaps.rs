//! Gaps: ranges of keys in which readers find nothing, remembered so that they need not step over
//! the tombstones there again.
//!
//! # Idea
//! Who takes the smallest key of a store and deletes it, again and again, as from a queue, leaves a
//! tombstone each time, and each search for the smallest key steps over all of them. So a scan that
//! has stepped over many of them before its first pair *notes* where it began and where that pair
//! is, in the MemTable that takes the bucket's writes, whatever MemTables and tables the keys and
//! tombstones are in. Scans that begin in the gap go on behind it, and when they have stepped over
//! many again, the gap becomes longer. A put into a gap ends it there. What is said of a bucket
//! here is true of a keyspace of FlexDB.
//!
//! # Invariants
//! - N1: no reader at `seq` of a gap or above finds a key in `[lower, upper)`.
//! - N2: from the first note on, each put into the MemTable comes here before anybody can read it.
//!   Of all puts into the bucket with a larger number than `since`, the key is in `recent`. So what
//!   a scan at `since` or above has not seen of puts is in there, and a note is taken that names no
//!   range with such a put.
//! - N3: a MemTable that takes over from another one takes over what that one knows, with nobody
//!   inserting meanwhile.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::bytes::assign;
use crate::types::Seq;

/// A scan that has stepped over so many entries without a pair notes a gap. A step costs about as
/// much as a hundredth of a search.
pub(crate) const NOTED_FROM: u32 = 32;

/// Gaps of a MemTable, at most; the oldest goes first. Several queues may lie in one bucket.
const GAPS_MAX: usize = 8;

/// Puts that are remembered. In the time of a scan fewer come.
const RECENT_MAX: usize = 32;

/// The gaps of a bucket, as its active MemTable knows them.
#[derive(Default)]
pub(super) struct TombstoneGaps {
    /// Whether there may be any; never again false.
    watched: AtomicBool,
    watch: Mutex<Watch>,
}

#[derive(Clone, Default)]
struct Watch {
    gaps: VecDeque<Gap>,
    /// N2.
    since: Seq,
    recent: VecDeque<(Seq, Vec<u8>)>,
}

/// A range without keys (N1).
#[derive(Clone, Debug)]
struct Gap {
    lower: Vec<u8>,
    /// `None` for the end of all keys.
    upper: Option<Vec<u8>>,
    seq: Seq,
}

impl Gap {
    /// Whether `key` lies in it.
    fn contains(&self, key: &[u8]) -> bool {
        *self.lower <= *key && is_below(key, self.upper.as_deref())
    }
}

/// Whether a key lies below the end of a range.
fn is_below(key: &[u8], upper: Option<&[u8]>) -> bool {
    upper.is_none_or(|upper| key < upper)
}

impl TombstoneGaps {
    /// Whether puts are to be told.
    #[inline]
    pub(super) fn is_watched(&self) -> bool {
        // ORDER: Relaxed; who inserts holds a lock that the first note holds, and a reader that
        // misses it steps over what it need not.
        self.watched.load(Ordering::Relaxed)
    }

    /// A put of `key` is about to come.
    #[cold]
    pub(super) fn put(&self, seq: Seq, key: &[u8]) {
        let watch = &mut *self.watch.lock();
        watch.gaps.retain_mut(|gap| {
            if gap.contains(key) {
                assign(gap.upper.get_or_insert_default(), key);
            }
            gap.upper.as_ref().is_none_or(|upper| gap.lower < *upper)
        });
        let mut copy = match watch.recent.len() {
            RECENT_MAX => watch.recent.pop_front().map_or_else(Vec::new, |oldest| {
                watch.since = watch.since.max(oldest.0);
                oldest.1
            }),
            _ => Vec::new(),
        };
        assign(&mut copy, key);
        watch.recent.push_back((seq, copy));
    }

    /// Where a reader at `seq` may go on that looks for the first key from `key` on, if that lies
    /// in a gap; `Some(None)` where there is none any more.
    pub(super) fn behind(&self, key: &[u8], seq: Seq) -> Option<Option<Vec<u8>>> {
        let watch = self.watch.lock();
        let mut gaps = watch.gaps.iter();
        let gap = gaps.find(|gap| gap.seq <= seq && gap.contains(key))?;
        Some(gap.upper.clone())
    }

    /// A reader at `seq` has found no key in `[lower, upper)`. The caller keeps inserts out, of
    /// which `newest` is the largest number.
    pub(super) fn note(&self, (lower, upper): (&[u8], Option<&[u8]>), seq: Seq, newest: Seq) {
        let mut watch = self.watch.lock();
        if !self.is_watched() {
            watch.since = watch.since.max(newest);
            // ORDER: Relaxed, see `is_watched`.
            self.watched.store(true, Ordering::Relaxed);
        }
        let is_in_the_way =
            |(put, key): &(Seq, Vec<u8>)| *put > seq && *lower <= **key && is_below(key, upper);
        if seq < watch.since || watch.recent.iter().any(is_in_the_way) {
            return;
        }
        let is_extended = |gap: &Gap| gap.contains(lower) || gap.upper.as_deref() == Some(lower);
        let mut new = Gap {
            lower: lower.to_vec(),
            upper: upper.map(<[u8]>::to_vec),
            seq,
        };
        if let Some(at) = watch.gaps.iter().position(is_extended) {
            let old = &watch.gaps[at];
            if old
                .upper
                .as_deref()
                .is_none_or(|end| upper.is_some_and(|upper| upper <= end))
            {
                return;
            }
            new.seq = seq.max(old.seq);
            new.lower.clone_from(&old.lower);
            watch.gaps.remove(at);
        }
        if watch.gaps.len() == GAPS_MAX {
            watch.gaps.pop_front();
        }
        watch.gaps.push_back(new);
    }

    /// Pairs up to the number `seq` come into the bucket beside its MemTable, or have come.
    pub(super) fn forget(&self, seq: Seq) {
        let mut watch = self.watch.lock();
        watch.gaps.clear();
        watch.since = watch.since.max(seq);
    }

    /// Takes over from another MemTable, of which `newest` is the largest number (N3).
    pub(super) fn take_over(&self, from: &TombstoneGaps, newest: Seq) {
        let old = from.watch.lock();
        let mut watch = self.watch.lock();
        watch.since = watch.since.max(old.since).max(newest);
        if from.is_watched() {
            watch.gaps.clone_from(&old.gaps);
            // ORDER: Relaxed, see `is_watched`.
            self.watched.store(true, Ordering::Relaxed);
        }
    }

    /// As [`TombstoneGaps::take_over`], for a MemTable of which others inherit as well, and no gap
    /// is one in all their keys.
    pub(super) fn take_over_number(&self, from: &TombstoneGaps, newest: Seq) {
        let since = from.watch.lock().since.max(newest);
        self.forget(since);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(gaps: &TombstoneGaps, lower: &str, upper: Option<&str>, seq: Seq, newest: Seq) {
        let range = (lower.as_bytes(), upper.map(str::as_bytes));
        gaps.note(range, seq, newest);
    }

    fn behind(gaps: &TombstoneGaps, key: &str, seq: Seq) -> Option<Option<String>> {
        let found = gaps.behind(key.as_bytes(), seq)?;
        Some(found.map(|key| String::from_utf8(key).unwrap()))
    }

    fn at(key: &str) -> Option<Option<String>> {
        Some(Some(key.to_owned()))
    }

    #[test]
    fn a_gap_is_for_readers_at_its_number_and_above() {
        let gaps = TombstoneGaps::default();
        note(&gaps, "", Some("d"), 10, 8);
        assert_eq!(behind(&gaps, "", 10), at("d"));
        assert_eq!(behind(&gaps, "c", 12), at("d"));
        assert_eq!(behind(&gaps, "c", 9), None);
        assert_eq!(behind(&gaps, "d", 12), None);
        note(&gaps, "c", Some("g"), 20, 8);
        assert_eq!(behind(&gaps, "", 20), at("g"), "it became longer");
        note(&gaps, "e", None, 21, 8);
        assert_eq!(behind(&gaps, "", 21), Some(None));
    }

    #[test]
    fn a_put_ends_a_gap() {
        let gaps = TombstoneGaps::default();
        note(&gaps, "b", None, 10, 8);
        gaps.put(11, b"a");
        assert_eq!(behind(&gaps, "b", 12), Some(None));
        gaps.put(12, b"k");
        assert_eq!(behind(&gaps, "b", 12), at("k"));
        assert_eq!(behind(&gaps, "k", 12), None);
        gaps.put(13, b"b");
        assert_eq!(behind(&gaps, "b", 13), None);
    }

    #[test]
    fn no_gap_is_noted_that_a_later_put_lies_in() {
        let gaps = TombstoneGaps::default();
        note(&gaps, "a", Some("k"), 7, 8);
        assert_eq!(
            behind(&gaps, "a", 9),
            None,
            "it has not seen all that is there"
        );
        gaps.put(9, b"c");
        note(&gaps, "a", Some("k"), 8, 9);
        assert_eq!(behind(&gaps, "a", 9), None, "it has not seen the put");
        note(&gaps, "d", Some("k"), 8, 9);
        assert_eq!(behind(&gaps, "e", 9), at("k"), "the put lies elsewhere");
        note(&gaps, "a", Some("b"), 9, 9);
        assert_eq!(behind(&gaps, "a", 9), at("b"));
        // What is not remembered any more must have been seen.
        (10..10 + RECENT_MAX as u64).for_each(|seq| gaps.put(seq, b"z"));
        note(&gaps, "m", Some("n"), 8, 99);
        assert_eq!(behind(&gaps, "m", 99), None);
        note(&gaps, "m", Some("n"), 9, 99);
        assert_eq!(behind(&gaps, "m", 99), at("n"));
    }

    #[test]
    fn the_next_table_knows_what_the_one_before_did() {
        let (first, second) = (TombstoneGaps::default(), TombstoneGaps::default());
        note(&first, "a", Some("k"), 8, 8);
        second.take_over(&first, 20);
        assert_eq!(behind(&second, "a", 8), at("k"));
        note(&second, "m", Some("n"), 19, 0);
        assert_eq!(
            behind(&second, "m", 99),
            None,
            "the first table has numbers up to 20"
        );
        let joined = TombstoneGaps::default();
        joined.take_over_number(&second, 5);
        assert_eq!(behind(&joined, "a", 99), None);
        note(&joined, "a", Some("k"), 19, 0);
        assert_eq!(behind(&joined, "a", 99), None);
        note(&joined, "a", Some("k"), 20, 0);
        assert_eq!(behind(&joined, "a", 99), at("k"));
    }
}
