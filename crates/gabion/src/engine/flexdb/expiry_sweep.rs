//! Removes expired pairs to free their space, whether or not anybody writes.
//!
//! # Idea
//! Whoever reads steps over them, but they lie in the space until a merge meets their keys again,
//! which may be never. So what expires in a space is counted, by bytes and by a sample of the
//! moments ([`crate::engine::expiries`]). When by these an eighth of the space has expired, half of
//! [`Options::expiry_lag_max`](crate::Options::expiry_lag_max) ago, a *sweep* goes through the
//! intervals in the order of their keys, some at a time between merges, and removes the pairs that
//! have expired for all who read (`expiry`, X2). From what it leaves the counts begin anew.
//!
//! A pair that is overwritten or deleted counts until then. So a sweep may come too early, but not
//! before as much was written as an eighth of the space.
//!
//! The root says of a keyspace whether anything in it expires. If so, what it is is not known after
//! an opening, and there is a sweep.
//!
//! # Invariants
//! - W1. The root says so before the log is not needed any more for the first such pair.

use std::sync::Arc;

use super::Flex;
use super::FlexKeyspace;
use super::index::SeekTarget;
use super::interval::Interval;
use super::partition::{CachedInterval, IntervalChanges, MergeChanges, Partition, ReadIntent};
use crate::Result;
use crate::compaction_filter::SharedCompactionFilter;
use crate::engine::expiries::{ExpirySample, is_worth};
use crate::expiry::{UnixMillis, expires};

/// Intervals that a step of a sweep looks at: by estimate a millisecond where they are cached.
const INTERVALS: usize = 64;

/// What expires in a space.
#[derive(Default)]
pub(super) struct ExpiryCounts {
    /// Whether it is not counted, since it was there when the store was opened.
    unknown: bool,
    counted: Counted,
    sweep: Option<Sweep>,
}

#[derive(Default)]
struct Counted {
    sample: ExpirySample,
    bytes: u64,
}

/// A sweep that is under way.
#[derive(Default)]
struct Sweep {
    /// The key from which it goes on.
    at: Vec<u8>,
    /// What expires of all that it has passed, and of what was merged meanwhile.
    left: Counted,
}

impl Counted {
    fn add(&mut self, moment: UnixMillis, bytes: u64) {
        self.sample.add(moment);
        self.bytes += bytes;
    }

    /// About how many bytes have expired by a moment.
    fn expired_by(&self, moment: UnixMillis) -> u64 {
        let (expired, of) = self.sample.expired_by(moment);
        let part = u128::from(self.bytes) * u128::from(expired);
        let bytes = part.checked_div(u128::from(of)).unwrap_or(0);
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }
}

impl ExpiryCounts {
    /// Of a space that is opened, in which something may expire or nothing does.
    pub(super) fn of_opened(any: bool) -> ExpiryCounts {
        ExpiryCounts {
            unknown: any,
            ..ExpiryCounts::default()
        }
    }

    /// Whether anything may expire.
    pub(super) fn any(&self) -> bool {
        self.unknown || self.sweep.is_some() || self.counted.bytes > 0
    }

    /// About how many bytes have expired by a moment, of those that are counted.
    pub(super) fn expired_by(&self, moment: UnixMillis) -> u64 {
        self.counted.expired_by(moment)
    }

    /// Counts a pair that was merged.
    pub(super) fn add(&mut self, moment: UnixMillis, bytes: u64) {
        match &mut self.sweep {
            Some(sweep) => sweep.left.add(moment, bytes),
            None => self.counted.add(moment, bytes),
        }
    }

    /// Whether a sweep is due, or under way, in a space of so many bytes.
    fn is_due(&self, expired_by: UnixMillis, len: u64) -> bool {
        let is_known = !self.unknown && self.sweep.is_none();
        !is_known || is_worth(self.counted.expired_by(expired_by), len)
    }
}

impl Flex {
    /// A step of a sweep in one of the spaces, if one is due; returns the bytes that were written.
    /// The caller holds the merge lock.
    pub(super) fn sweep_some(&self) -> Result<Option<u64>> {
        let expired_by = self.expired_by();
        for keyspace in self.keyspaces.load().iter() {
            let len = keyspace.partition.space().len();
            if keyspace.expiring.lock().is_due(expired_by, len) {
                return self.sweep_on(keyspace).map(Some);
            }
        }
        Ok(None)
    }

    /// Goes on with the sweep of a keyspace, or begins it.
    fn sweep_on(&self, keyspace: &FlexKeyspace) -> Result<u64> {
        let horizon = self.horizon();
        let partition = &keyspace.partition;
        let mut at = {
            let mut expiring = keyspace.expiring.lock();
            expiring.sweep.get_or_insert_default().at.clone()
        };
        let (mut written, mut left) = (0, Vec::new());
        let mut is_done = false;
        for _ in 0..INTERVALS {
            let held = partition.interval(SeekTarget::At(&at), ReadIntent::Merge)?;
            let next = held.place.upper().map(<[u8]>::to_vec);
            let interval = Arc::clone(&held.interval);
            for pair in 0..interval.len() {
                if let Some(moment) = expires(interval.kind(pair), interval.stored(pair))
                    && moment > horizon
                {
                    left.push((moment, interval.encoded(pair..pair + 1).len() as u64));
                }
            }
            drop(interval);
            let changes = changes_of(&held.interval, &[], horizon, None);
            written += change_held(partition, held, &changes)?;
            match next {
                Some(next) => at = next,
                None => {
                    is_done = true;
                    break;
                }
            }
        }
        let mut expiring = keyspace.expiring.lock();
        if let Some(sweep) = &mut expiring.sweep {
            left.iter()
                .for_each(|(moment, bytes)| sweep.left.add(*moment, *bytes));
            sweep.at = at;
        }
        if is_done && let Some(sweep) = expiring.sweep.take() {
            expiring.unknown = false;
            expiring.counted = sweep.left;
        }
        Ok(written)
    }
}

/// What becomes of the pairs of an interval from a key on: those that have expired by a moment go,
/// and a filter says it of the others.
pub(super) fn changes_of(
    interval: &Interval,
    from: &[u8],
    horizon: UnixMillis,
    filter: Option<&SharedCompactionFilter>,
) -> MergeChanges {
    let mut changes = MergeChanges::default();
    if filter.is_none() && !interval.may_expire() {
        return changes;
    }
    for pair in interval.count_below(from)..interval.len() {
        let (key, kind, stored) = (
            interval.key(pair),
            interval.kind(pair),
            interval.stored(pair),
        );
        if interval.has_expired(pair, horizon) {
            changes.remove(key);
        } else if let Some((kind, stored)) = filter.and_then(|own| own.filter(key, kind, stored)) {
            match kind.is_tombstone() {
                true => changes.remove(key),
                false => changes.put(kind, key, &stored),
            }
        }
    }
    changes
}

/// Makes changes of an interval; returns the bytes that were written. The caller holds the merge
/// lock.
pub(super) fn change_held(
    partition: &Partition,
    held: CachedInterval,
    changes: &MergeChanges,
) -> Result<u64> {
    if changes.len() == 0 {
        return Ok(0);
    }
    let wanted = IntervalChanges {
        changes: 0..changes.len(),
        interval: Some(held.interval),
        place: held.place,
    };
    partition.change(vec![wanted], changes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sweep_is_due_when_an_eighth_has_expired() {
        let mut expiring = ExpiryCounts::default();
        assert!(!expiring.is_due(UnixMillis::MAX, 0) && !expiring.any());
        for number in 0..100 {
            expiring.add(1_000 + number, 10);
        }
        assert!(expiring.any());
        assert!(!expiring.is_due(999, 1) && !expiring.is_due(1_100, 9_000));
        assert!(expiring.is_due(1_100, 8_000) && expiring.is_due(1_050, 3_000));
        assert!(
            ExpiryCounts::of_opened(true).is_due(0, 1 << 40),
            "nothing is known of it"
        );
        assert!(!ExpiryCounts::of_opened(false).is_due(UnixMillis::MAX, 0));
        expiring.sweep = Some(Sweep::default());
        assert!(expiring.is_due(0, 1 << 40), "it is under way");
    }
}
