//! How much of the tables nobody needs, and what is done before it is too much.
//!
//! # Idea
//! The space amplification of a store is the bytes of its tables over the bytes that they would
//! have if each held only what a reader of now can see. The first is known exactly; the second is
//! estimated for each bucket, and the estimate that the cap goes by is low, so that the cap is
//! kept:
//!
//! - A run has a key once (but for versions that a snapshot protected). So a bucket of one run has
//!   no old versions, and every bucket has at least as many keys as its longest run has entries.
//! - Where the sketches of the tables (`table::distinct_sketch`) promise more keys than that, nine
//!   tenths of them count: three standard errors less.
//! - Each tombstone takes one key away; a range delete takes the blocks away that it touches in
//!   tables with older entries.
//! - The keys that are left have the entries of the runs with the shortest ones.
//!
//! What is still taken to be like the average are the lengths of entries within one run.
//!
//! # The cap
//! From 70 % of the garbage that the cap allows on, buckets are compacted for their garbage, the
//! one with the largest share first (`compaction_picker`). Each byte written so makes room for
//! `cap-1` bytes of new versions, as long as they fall evenly; uneven ones cost less. From 85 % on
//! writers are slowed down (`write_controller`), and at the cap they wait. A flush that would pass
//! the cap comes after the compactions that make room for it. A bucket is worth it if an eighth of
//! it is garbage that no snapshot holds; when none is, there is nothing to wait for, and nobody
//! waits. On a medium that is nearly full buckets are compacted for their garbage wherever it is
//! worth it.
//!
//! Not in the figure: the outputs of jobs that are not finished, and tables that are gone from the
//! store and stay on the medium for iterators that began before.
//!
//! # Invariants
//! - P1: after a compaction for its garbage a bucket is not worth another one before new tables
//!   come or the oldest snapshot ends.

use crate::types::Seq;

/// Shares of the garbage that the cap allows, in hundredths: from which on buckets are compacted
/// for their garbage, and writers slowed down.
const COMPACT_FROM: f64 = 0.70;
const SLOW_FROM: f64 = 0.85;

/// A bucket is compacted for its garbage when this part of it is garbage: one in so many bytes.
pub(crate) const WORTH_ONE_IN: u64 = 8;

/// A single run of which the sketch finds at least this share of its entries, in hundredths, has
/// no two versions of a key: its standard error is three of them.
const DISTINCT_FROM: u64 = 80;

/// What the tables of a bucket hold. Bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SpaceUsage {
    /// All of it; of shared tables the part in the bucket's range.
    pub(crate) bytes: u64,
    /// What readers see of it, by the best estimate.
    pub(crate) live: u64,
    /// What readers see of it, by the low estimate.
    pub(crate) live_min: u64,
    /// What range deletes hide.
    pub(crate) deleted: u64,
    /// Number of tombstones.
    pub(crate) tombstones: u64,
    /// Number of entries.
    pub(crate) entries: u64,
    /// Some tables reach beyond the bucket.
    pub(crate) shares: bool,
}

impl SpaceUsage {
    /// The bytes that a full compaction gives back, by the low estimate of what it leaves.
    pub(crate) fn garbage(&self) -> u64 {
        self.bytes - self.live_min
    }

    /// As [`SpaceUsage::garbage`], in thousandths of all bytes.
    pub(crate) fn garbage_share(&self) -> u64 {
        scaled(1000, self.garbage(), self.bytes)
    }

    /// Adds the space of other tables.
    pub(crate) fn add(&mut self, other: &SpaceUsage) {
        self.bytes += other.bytes;
        self.live += other.live;
        self.live_min += other.live_min;
        self.deleted += other.deleted;
        self.tombstones += other.tombstones;
        self.entries += other.entries;
        self.shares |= other.shares;
    }

    /// Takes away what was added; whether any part shares tables is not known any more.
    pub(crate) fn take(&mut self, other: &SpaceUsage) {
        self.bytes -= other.bytes;
        self.live -= other.live;
        self.live_min -= other.live_min;
        self.deleted -= other.deleted;
        self.tombstones -= other.tombstones;
        self.entries -= other.entries;
    }
}

/// The space of all tables.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SpaceTotals {
    /// Sums over the buckets.
    pub(crate) buckets: SpaceUsage,
    /// Bytes of the table files.
    pub(crate) table_bytes: u64,
    /// Bytes of shared tables that are in no bucket's part.
    pub(crate) orphaned: u64,
    /// Some bucket is worth a compaction for its garbage.
    pub(crate) may_shrink: bool,
}

impl SpaceTotals {
    /// Whether so much of shared tables is in no bucket's part that buckets are compacted for it.
    pub(crate) fn are_orphans_many(&self) -> bool {
        self.orphaned > self.table_bytes / WORTH_ONE_IN
    }

    /// The pressure of garbage on writers under a cap: none up to 0, stop from 1 on.
    pub(crate) fn pressure(&self, cap: f64) -> f64 {
        if !self.may_shrink {
            return 0.0;
        }
        let part = part_of_allowed(self.amplification_max(), cap);
        (part - SLOW_FROM) / (1.0 - SLOW_FROM)
    }

    /// How pressing it is to give space back under a cap, when the next flush brings `coming`.
    pub(crate) fn need(
        &self,
        cap: f64,
        coming: impl FnOnce() -> u64,
        is_room_short: impl FnOnce() -> bool,
    ) -> SpacePressure {
        if !self.may_shrink || !cap.is_finite() {
            return SpacePressure::None;
        }
        let after = SpaceTotals {
            table_bytes: self.table_bytes + coming(),
            ..*self
        };
        let part = |totals: &SpaceTotals| part_of_allowed(totals.amplification_max(), cap);
        if part(&after) >= 1.0 {
            SpacePressure::Stop
        } else if part(self) >= COMPACT_FROM || is_room_short() {
            SpacePressure::Compact
        } else {
            SpacePressure::None
        }
    }

    /// The space amplification by the low estimate of what is live; 1 for an empty store.
    fn amplification_max(&self) -> f64 {
        ratio(self.table_bytes, self.buckets.live_min)
    }

    /// Bytes over what is live by the best estimate.
    pub(crate) fn amplification(&self, bytes: u64) -> f64 {
        ratio(bytes, self.buckets.live)
    }
}

/// The garbage at this amplification as a part of what a cap allows.
fn part_of_allowed(amplification: f64, cap: f64) -> f64 {
    (amplification - 1.0) / (cap - 1.0)
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a ratio of byte counts needs no more than 53 bits"
)]
fn ratio(bytes: u64, live: u64) -> f64 {
    match (bytes, live) {
        (0, _) => 1.0,
        (bytes, live) => bytes as f64 / (live as f64).max(1.0),
    }
}

/// How pressing it is to give space back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum SpacePressure {
    /// Far from the cap.
    None,
    /// Buckets are compacted for their garbage.
    Compact,
    /// At the cap, or a flush would pass it.
    Stop,
}

/// What a compaction of a bucket for its garbage depends on (P1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GarbageWorth {
    /// It is not worth what it writes.
    No,
    /// It is, unless this is the oldest snapshot.
    Unless(Option<Seq>),
    /// It is.
    Yes,
}

impl GarbageWorth {
    /// Whether it is, with this oldest snapshot.
    pub(crate) fn is_worth(self, oldest: Option<Seq>) -> bool {
        match self {
            GarbageWorth::No => false,
            GarbageWorth::Yes => true,
            GarbageWorth::Unless(held) => held != oldest,
        }
    }
}

/// What a full compaction left, and the oldest snapshot and the number of reads of then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LastFullCompaction {
    pub(crate) run: u64,
    pub(crate) oldest: Option<Seq>,
    pub(crate) reads: u64,
}

/// What a bucket's tables say of its space.
#[derive(Debug, Default)]
pub(crate) struct SpaceEstimate {
    /// Bytes and entries of each run; of shared tables the part in the bucket's range.
    pub(crate) runs: Vec<(u64, u64)>,
    /// The most entries of any run that are no old versions of others in it.
    pub(crate) longest: u64,
    /// Entries of all tables, of shared ones all, and about how many keys they have.
    pub(crate) sketched: u64,
    pub(crate) distinct: u64,
    /// As in [`SpaceUsage`].
    pub(crate) tombstones: u64,
    pub(crate) deleted: u64,
    pub(crate) shares: bool,
}

impl SpaceEstimate {
    /// The space of the bucket.
    pub(crate) fn space(&self) -> SpaceUsage {
        let bytes = self.runs.iter().map(|(bytes, _)| bytes).sum();
        let entries = self.runs.iter().map(|(_, entries)| entries).sum();
        let longest = self.longest;
        let distinct = scaled(entries, self.distinct, self.sketched);
        let (distinct, distinct_min) = match self.runs.len() {
            0 | 1 if self.distinct * 100 >= longest * DISTINCT_FROM => (longest, longest),
            0 | 1 => (distinct, distinct / 10 * 9),
            _ => (distinct.max(longest), longest.max(distinct / 10 * 9)),
        };
        let live = scaled(bytes, distinct.saturating_sub(self.tombstones), entries);
        let live = live.saturating_sub(self.deleted);
        let keys_min = distinct_min.saturating_sub(self.tombstones);
        let live_min = shortest(&mut self.runs.clone(), keys_min);
        SpaceUsage {
            bytes,
            live,
            live_min: live_min.saturating_sub(self.deleted).min(live),
            deleted: self.deleted,
            tombstones: self.tombstones,
            entries,
            shares: self.shares,
        }
    }

    /// About how many of the bytes each key's newest version has.
    pub(crate) fn distinct_bytes(&self) -> u64 {
        let bytes = self.runs.iter().map(|(bytes, _)| bytes).sum();
        scaled(bytes, self.distinct, self.sketched)
    }
}

/// The bytes of `keys` entries, the runs with the shortest ones first.
fn shortest(runs: &mut [(u64, u64)], keys: u64) -> u64 {
    let length = |(bytes, entries): &(u64, u64)| bytes.checked_div(*entries).unwrap_or(0);
    runs.sort_by_key(length);
    let (mut left, mut sum) = (keys, 0);
    for (bytes, entries) in runs {
        let taken = left.min(*entries);
        sum += scaled(*bytes, taken, *entries);
        left -= taken;
    }
    sum
}

/// `amount * part / whole`; 0 of nothing.
pub(crate) fn scaled(amount: u64, part: u64, whole: u64) -> u64 {
    let product = u128::from(amount) * u128::from(part);
    let scaled = product.checked_div(u128::from(whole)).unwrap_or(0);
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shortest_entries_are_what_is_left() {
        let runs = [(1000, 10), (100, 5), (400, 5)];
        for (keys, expected) in [(0, 0), (3, 60), (5, 100), (10, 500), (20, 1500), (99, 1500)] {
            assert_eq!(shortest(&mut runs.clone(), keys), expected, "{keys} keys");
        }
        assert_eq!(shortest(&mut [], 7), 0);
        assert_eq!(shortest(&mut [(70, 0)], 7), 0);
    }

    #[test]
    fn runs_of_the_same_keys_are_one_of_them_and_garbage() {
        let two = SpaceEstimate {
            runs: vec![(1000, 100), (1000, 100)],
            longest: 100,
            sketched: 200,
            distinct: 104,
            ..SpaceEstimate::default()
        };
        let space = two.space();
        assert_eq!((space.bytes, space.entries), (2000, 200));
        // The best estimate is the sketch's, the low one that of the longest run.
        assert_eq!((space.live, space.live_min), (1040, 1000));
        assert_eq!((space.garbage(), space.garbage_share()), (1000, 500));
        assert_eq!(two.distinct_bytes(), 1040);
        // A tombstone takes a key away, a range delete takes bytes.
        let fewer = SpaceEstimate {
            tombstones: 10,
            deleted: 300,
            ..two
        };
        let space = fewer.space();
        assert_eq!((space.live, space.live_min), (640, 600));
    }

    #[test]
    fn a_single_run_has_no_old_versions_but_those_of_a_snapshot() {
        let one = |longest, distinct| SpaceEstimate {
            runs: vec![(1000, 100)],
            longest,
            sketched: 100,
            distinct,
            ..SpaceEstimate::default()
        };
        assert_eq!(one(100, 80).space().garbage(), 0, "the sketch's error");
        assert_eq!(one(100, 79).space().live, 790, "more than that");
        assert_eq!(one(50, 52).space().live_min, 500, "half is superseded");
    }

    #[test]
    fn need_and_pressure_grow_with_the_part_of_the_allowed_garbage() {
        let totals = |table_bytes, may_shrink| SpaceTotals {
            buckets: SpaceUsage {
                live: 1000,
                live_min: 1000,
                ..SpaceUsage::default()
            },
            table_bytes,
            orphaned: 0,
            may_shrink,
        };
        // A cap of 2 allows as much garbage as there is live.
        for (bytes, coming, need) in [
            (1690, 0, SpacePressure::None),
            (1710, 0, SpacePressure::Compact),
            (1710, 280, SpacePressure::Compact),
            (1710, 290, SpacePressure::Stop),
            (2000, 0, SpacePressure::Stop),
        ] {
            let need_of = |may_shrink, cap, is_room_short| {
                totals(bytes, may_shrink).need(cap, || coming, || is_room_short)
            };
            assert_eq!(need_of(true, 2.0, false), need, "{bytes}");
            assert_eq!(need_of(false, 2.0, true), SpacePressure::None);
            assert_eq!(need_of(true, f64::INFINITY, true), SpacePressure::None);
        }
        let far = totals(1000, true);
        assert_eq!(
            far.need(2.0, || 0, || true),
            SpacePressure::Compact,
            "a medium short of room"
        );
        assert!(totals(1840, true).pressure(2.0) < 0.0);
        assert!((0.9..1.0).contains(&totals(1990, true).pressure(2.0)));
        assert!(totals(2000, true).pressure(2.0) >= 1.0);
        assert!(totals(2000, false).pressure(2.0) <= 0.0);
    }
}
