//! Range scans: the visible entries of a keyspace between two keys, from both ends.
//!
//! # Idea (paper, section 2.3.4)
//! A scan fixes a sequence number, registers it, and then merges one bucket after the other: the
//! MemTables' sorted copies with every run. Because the number is registered, any later state of a
//! bucket still holds all that the scan must see, so a state is taken only when its bucket is
//! reached, and a scan that rests holds on to the files of one bucket only.
//!
//! # Invariants
//! - I1: keys in `[lower, upper)` above `done` remain to be returned; each end moves its bound past
//!   what it returned, so the two ends meet without returning a key twice.
//! - I2: an end's merge, if there is one, is positioned on the next entry that this end must look
//!   at, and covers a bucket that holds the end's bound.

use std::ops::Bound;
use std::sync::Arc;

use super::merge::Merge;
use super::{Keyspace, Wip};
use crate::bytes::assign;
use crate::types::{Kind, Seq};
use crate::{Result, Slice};

/// Keys up to this length need no larger buffer.
const KEY_CAPACITY: usize = 48;

/// The visible entries of a keyspace in a range.
pub(crate) struct Scan {
    engine: Arc<Wip>,
    keyspace: Arc<Keyspace>,
    /// Registered with the engine's snapshots for as long as the scan lives.
    seq: Seq,
    lower: Vec<u8>,
    upper: Option<Vec<u8>>,
    /// The last key that the front dealt with, if there is one: keys up to it are done.
    done: Vec<u8>,
    done_any: bool,
    front: Option<Merge>,
    back: Option<Merge>,
    finished: bool,
}

/// A key and its value.
pub(crate) type Pair = (Slice, Slice);

impl Scan {
    /// A scan at `seq`, which the caller has registered for it.
    pub(crate) fn new(
        engine: &Arc<Wip>,
        keyspace: &Arc<Keyspace>,
        seq: Seq,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
    ) -> Scan {
        let lower = match lower {
            Bound::Included(key) => key.to_vec(),
            Bound::Excluded(key) => successor(key),
            Bound::Unbounded => Vec::new(),
        };
        let upper = match upper {
            Bound::Included(key) => Some(successor(key)),
            Bound::Excluded(key) => Some(key.to_vec()),
            Bound::Unbounded => None,
        };
        let finished = upper.as_ref().is_some_and(|upper| *upper <= lower);
        Scan {
            engine: Arc::clone(engine),
            keyspace: Arc::clone(keyspace),
            seq,
            lower,
            upper,
            done: Vec::with_capacity(KEY_CAPACITY),
            done_any: false,
            front: None,
            back: None,
            finished,
        }
    }

    /// The next pair from the low end.
    pub(crate) fn next(&mut self) -> Result<Option<Pair>> {
        let pair = self.end_on_error(Scan::find_next)?;
        if pair.is_none() {
            self.finish();
        }
        Ok(pair)
    }

    /// The next pair from the high end.
    pub(crate) fn next_back(&mut self) -> Result<Option<Pair>> {
        let pair = self.end_on_error(Scan::find_next_back)?;
        match &pair {
            Some((key, _)) => {
                let upper = self.upper.get_or_insert_default();
                upper.clear();
                upper.extend_from_slice(key);
            }
            None => self.finish(),
        }
        Ok(pair)
    }

    /// Runs a step of the scan; after an error the scan is at its end.
    fn end_on_error(
        &mut self,
        step: impl FnOnce(&mut Scan) -> Result<Option<Pair>>,
    ) -> Result<Option<Pair>> {
        if self.finished {
            return Ok(None);
        }
        let result = step(self);
        if result.is_err() {
            self.finish();
        }
        result
    }

    fn finish(&mut self) {
        self.finished = true;
        self.front = None;
        self.back = None;
    }

    fn find_next(&mut self) -> Result<Option<Pair>> {
        loop {
            let merge = match &mut self.front {
                Some(merge) => merge,
                None => {
                    let bucket = Arc::clone(self.keyspace.router.load().route(&self.lower));
                    let mut merge = Merge::of_state(&bucket, &bucket.state.load());
                    merge.seek(&self.lower)?;
                    self.front.insert(merge)
                }
            };
            while let Some(entry) = merge.current() {
                let key = entry.key();
                if self.upper.as_ref().is_some_and(|upper| key >= &upper[..]) {
                    return Ok(None);
                }
                // An older version of the key that was dealt with last, or one to come.
                let hidden = self.done_any && *key == *self.done;
                if entry.seq() > self.seq || hidden {
                    merge.advance()?;
                    continue;
                }
                assign(&mut self.done, key);
                self.done_any = true;
                let pair = (entry.kind() == Kind::Put).then(|| (Slice::new(key), entry.value()));
                merge.advance()?;
                if pair.is_some() {
                    return Ok(pair);
                }
            }
            // The bucket is exhausted: go on behind it, wherever the router puts that now.
            match merge.bucket().upper() {
                None => return Ok(None),
                Some(upper) => {
                    self.lower.clear();
                    self.lower.extend_from_slice(upper);
                }
            }
            self.front = None;
            if self
                .upper
                .as_ref()
                .is_some_and(|upper| *upper <= self.lower)
            {
                return Ok(None);
            }
        }
    }

    fn find_next_back(&mut self) -> Result<Option<Pair>> {
        loop {
            let upper = self.upper.as_deref();
            let merge = match &mut self.back {
                Some(merge) => merge,
                None => {
                    let bucket = Arc::clone(self.keyspace.router.load().route_below(upper));
                    let mut merge = Merge::of_state(&bucket, &bucket.state.load());
                    merge.seek_before(upper)?;
                    self.back.insert(merge)
                }
            };
            while let Some(entry) = merge.current() {
                let done = self.done_any && *entry.key() <= *self.done;
                if done || *entry.key() < self.lower[..] {
                    return Ok(None);
                }
                // All versions of one key, oldest first: the last visible one counts.
                let key = Slice::new(entry.key());
                let mut visible = None;
                while let Some(entry) = merge.current().filter(|entry| *entry.key() == *key) {
                    if entry.seq() <= self.seq {
                        visible = (entry.kind() == Kind::Put).then(|| entry.value());
                    }
                    merge.advance()?;
                }
                if let Some(value) = visible {
                    return Ok(Some((key, value)));
                }
            }
            let lower = merge.bucket().lower().to_vec();
            self.back = None;
            if lower <= self.lower {
                return Ok(None);
            }
            self.upper = Some(lower);
        }
    }
}

impl Drop for Scan {
    fn drop(&mut self) {
        self.engine.snapshots.release(self.seq);
    }
}

/// The smallest key above `key`.
fn successor(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}
