//! Range deletes: which keys were deleted together, and when.
//!
//! # Idea
//! A range delete says that all versions of the keys in `[lower, upper)` that are older than its
//! sequence number are gone. It is logged as one operation, and put into the MemTable of each
//! bucket that it touches as one entry of the kind [`Kind::DeleteRange`], under the range's first
//! key there, with the end of the range as the value. So it is ordered, flushed, logged again and
//! counted as any other entry.
//!
//! For all keys of the range, the first one included, a bucket's state has an index of all range
//! deletes in it: [`RangeDeletes`], which is empty in most buckets, so that a get pays for one
//! test. The index is of facts that are true for ever, so it may know more than the MemTables and
//! tables still hold. In FlexDB that index is all there is: a generation has one for each keyspace,
//! which a merge makes one set of.
//!
//! # Layout
//! [`RangeTombstones`] are ranges that do not overlap, each with the numbers of the deletes that
//! cover it. [`RangeDeletes`] are a few such sets, whose sizes grow from the last to the first, so
//! that adding one range costs a logarithm of their number and not a copy of all. On media, ranges
//! are fragments too, see `table::layout`.
//!
//! # Invariants
//! - R1: fragments ascend and do not overlap; each has at least one number; numbers descend.
//! - R2: of the numbers of one stripe (`snapshots`) only the newest is kept when sets are united: a
//!   reader who sees an older one sees that one too.
//! - R3: only a delete that is in a table makes a job drop what it covers: what is in a MemTable
//!   alone may be lost with the end of the log, and then what it covers must still be there.
//!
//! The naive twin is in the tests: a list of ranges that is searched from end to end.

use std::cmp::Ordering;
use std::ops::Deref;
use std::sync::Arc;

use super::snapshots::ProtectedSeqs;
use crate::types::{SEQ_MAX, Seq};

#[cfg(doc)]
use crate::types::Kind;

/// The end of a range: the first key above it, or the end of all keys.
pub(crate) type UpperBound = Option<Arc<[u8]>>;

/// Keys that were deleted at the same moments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RangeTombstone {
    /// The first key.
    pub(crate) lower: Arc<[u8]>,
    /// The first key above.
    pub(crate) upper: UpperBound,
    /// When they were deleted, newest first.
    pub(crate) seqs: Vec<Seq>,
}

impl RangeTombstone {
    /// The newest delete that a reader at `seq` sees; 0 when there is none.
    pub(crate) fn newest(&self, seq: Seq) -> Seq {
        let first = self.seqs.partition_point(|own| *own > seq);
        self.seqs.get(first).copied().unwrap_or(0)
    }

    fn contains(&self, key: &[u8]) -> bool {
        *self.lower <= *key && self.upper.as_deref().is_none_or(|upper| key < upper)
    }
}

/// Ranges that do not overlap (R1).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RangeTombstones(Vec<RangeTombstone>);

impl RangeTombstones {
    /// Bytes in memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        let bytes_of = |fragment: &RangeTombstone| {
            let upper = fragment.upper.as_ref().map_or(0, |upper| upper.len());
            let seqs = size_of_val(fragment.seqs.as_slice());
            size_of::<RangeTombstone>() + fragment.lower.len() + upper + seqs
        };
        self.0.iter().map(bytes_of).sum()
    }

    /// A single range; nothing when it holds no key.
    pub(crate) fn of_range(lower: &[u8], upper: Option<&[u8]>, seq: Seq) -> RangeTombstones {
        if upper.is_some_and(|upper| upper <= lower) {
            return RangeTombstones::default();
        }
        RangeTombstones(vec![RangeTombstone {
            lower: lower.into(),
            upper: upper.map(Into::into),
            seqs: vec![seq],
        }])
    }

    /// The union of sets, without numbers that no reader of `protected` needs (R2).
    pub(crate) fn union<'f>(
        sets: impl IntoIterator<Item = &'f RangeTombstones>,
        protected: &ProtectedSeqs,
    ) -> RangeTombstones {
        let mut sets: Vec<RangeTombstones> = sets
            .into_iter()
            .filter(|set| !set.is_empty())
            .cloned()
            .collect();
        // Pairs of neighbours, so that no range is copied more often than a logarithm.
        while sets.len() > 1 {
            sets = sets
                .chunks(2)
                .map(|pair| match pair {
                    [a, b] => a.united(b, &protected),
                    _ => pair[0].clone(),
                })
                .collect();
        }
        sets.pop().unwrap_or_default()
    }

    /// As [`RangeTombstones::union`] of two sets. Linear.
    fn united<P: Deref<Target = ProtectedSeqs>>(
        &self,
        other: &RangeTombstones,
        protected: &P,
    ) -> RangeTombstones {
        let mut sides = [self.0.as_slice(), other.0.as_slice()];
        let mut united = RangeTombstones::default();
        let mut at: Option<Arc<[u8]>> = None;
        loop {
            for side in &mut sides {
                while let [first, rest @ ..] = side
                    && let (Some(at), Some(upper)) = (&at, &first.upper)
                    && upper <= at
                {
                    *side = rest;
                }
            }
            // Where the next piece begins: here if a range goes on here, else at the next range.
            let lowers = sides.iter().filter_map(|side| side.first());
            let Some(next) = lowers.map(|fragment| &fragment.lower).min() else {
                return united;
            };
            let from = match at {
                Some(at) if *next <= at => at,
                _ => Arc::clone(next),
            };
            let mut seqs = Vec::new();
            let mut upper: UpperBound = None;
            for fragment in sides.iter().filter_map(|side| side.first()) {
                let bound = if fragment.lower <= from {
                    seqs.extend_from_slice(&fragment.seqs);
                    fragment.upper.as_ref()
                } else {
                    Some(&fragment.lower)
                };
                if let Some(bound) = bound
                    && upper.as_ref().is_none_or(|upper| bound < upper)
                {
                    upper = Some(Arc::clone(bound));
                }
            }
            #[cfg(test)]
            WORK.set(WORK.get() + 1);
            united.push(RangeTombstone {
                lower: from,
                upper: upper.clone(),
                seqs: thinned(seqs, protected),
            });
            match upper {
                Some(upper) => at = Some(upper),
                None => return united,
            }
        }
    }

    /// Appends a fragment behind all others; one that only continues the last one lengthens that.
    fn push(&mut self, fragment: RangeTombstone) {
        if let Some(last) = self.0.last_mut()
            && last.upper.as_ref() == Some(&fragment.lower)
            && last.seqs == fragment.seqs
        {
            last.upper = fragment.upper;
        } else {
            self.0.push(fragment);
        }
    }

    /// Appends an entry of a table: the range from `lower` to `upper` was deleted at `seq`. They
    /// come in the order of the fragments, and of their numbers.
    pub(crate) fn note(&mut self, lower: &[u8], upper: &[u8], seq: Seq) {
        match self.0.last_mut() {
            Some(last) if *last.lower == *lower => last.seqs.push(seq),
            _ => self.0.push(RangeTombstone {
                lower: lower.into(),
                upper: (!upper.is_empty()).then(|| upper.into()),
                seqs: vec![seq],
            }),
        }
    }

    /// The fragments as a medium has them, if they are in order.
    pub(crate) fn checked(fragments: Vec<RangeTombstone>) -> Option<RangeTombstones> {
        let sound = |fragment: &RangeTombstone| {
            let descends = fragment.seqs.windows(2).all(|pair| pair[0] > pair[1]);
            let upper = fragment.upper.as_ref();
            descends && !fragment.seqs.is_empty() && upper.is_none_or(|u| *u > fragment.lower)
        };
        let apart = |pair: &[RangeTombstone]| {
            let upper = pair[0].upper.as_ref();
            upper.is_some_and(|upper| *upper <= pair[1].lower)
        };
        let in_order = fragments.iter().all(sound) && fragments.windows(2).all(apart);
        in_order.then_some(RangeTombstones(fragments))
    }

    /// What of the fragments lies in a range of keys.
    pub(crate) fn within(&self, (lower, upper): (&[u8], Option<&[u8]>)) -> RangeTombstones {
        let mut within = RangeTombstones::default();
        for fragment in self.touching(lower, upper) {
            let mut fragment = fragment.clone();
            if *fragment.lower < *lower {
                fragment.lower = lower.into();
            }
            if let Some(upper) = upper
                && fragment.upper.as_deref().is_none_or(|own| own > upper)
            {
                fragment.upper = Some(upper.into());
            }
            within.0.push(fragment);
        }
        within
    }

    fn touching(&self, lower: &[u8], upper: Option<&[u8]>) -> &[RangeTombstone] {
        let first = self.0.partition_point(|fragment| {
            let end = fragment.upper.as_deref();
            end.is_some_and(|end| end <= lower)
        });
        let rest = &self.0[first..];
        let count = upper.map_or(rest.len(), |upper| {
            rest.partition_point(|fragment| *fragment.lower < *upper)
        });
        &rest[..count]
    }

    /// Whether any key of a range is covered.
    pub(crate) fn touches(&self, (lower, upper): (&[u8], Option<&[u8]>)) -> bool {
        !self.touching(lower, upper).is_empty()
    }

    /// The fragment that holds `key`.
    pub(crate) fn find(&self, key: &[u8]) -> Option<&RangeTombstone> {
        let above = self.0.partition_point(|fragment| *fragment.lower <= *key);
        let fragment = self.0[..above].last()?;
        fragment.contains(key).then_some(fragment)
    }

    /// The smallest first key of a fragment above `key`.
    pub(crate) fn next_lower(&self, key: &[u8]) -> Option<&[u8]> {
        let above = self.0.partition_point(|fragment| *fragment.lower <= *key);
        self.0.get(above).map(|fragment| &*fragment.lower)
    }

    /// The fragment at a position.
    pub(crate) fn get(&self, position: usize) -> Option<&RangeTombstone> {
        self.0.get(position)
    }

    /// The fragments, in the order of their keys.
    pub(crate) fn iter(&self) -> std::slice::Iter<'_, RangeTombstone> {
        self.0.iter()
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
thread_local! {
    /// Fragments that unions of this thread have made.
    static WORK: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// How many fragments the unions that `work` makes on this thread have.
#[cfg(test)]
pub(crate) fn united_by(work: impl FnOnce()) -> u64 {
    let before = WORK.get();
    work();
    WORK.get() - before
}

/// Numbers in any order, as a fragment has them (R1, R2).
fn thinned<P: Deref<Target = ProtectedSeqs>>(mut seqs: Vec<Seq>, protected: &P) -> Vec<Seq> {
    if seqs.len() < 2 {
        return seqs;
    }
    seqs.sort_unstable_by(|a, b| b.cmp(a));
    seqs.dedup();
    let mut newer = None;
    seqs.retain(|seq| {
        let stripe = protected.stripe(*seq);
        let keep = stripe.is_none() || stripe != newer;
        newer = stripe;
        keep
    });
    seqs
}

/// All range deletes of a bucket. Clones share the fragments.
#[derive(Clone, Default)]
pub(crate) struct RangeDeletes {
    /// Sets of fragments, the large ones first; none for a bucket without range deletes.
    tiers: Option<Arc<[Arc<RangeTombstones>]>>,
}

/// Entries of a source that a delete hides from every reader that matters: those in a fragment
/// with a number above the first one and at most the second one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HiddenByRangeDelete {
    above: Seq,
    at_most: Seq,
}

impl HiddenByRangeDelete {
    /// For a reader at `seq` of entries whose newest that it may see is `newest`.
    pub(crate) fn from_reader(newest: Seq, seq: Seq) -> HiddenByRangeDelete {
        HiddenByRangeDelete {
            above: newest,
            at_most: seq,
        }
    }

    /// For all readers of entries from `oldest` to `newest`.
    pub(crate) fn from_all(
        oldest: Seq,
        newest: Seq,
        protected: &ProtectedSeqs,
    ) -> HiddenByRangeDelete {
        let stripe = protected.stripe(newest);
        let one_stripe = stripe == protected.stripe(oldest);
        let at_most = stripe.filter(|_| one_stripe);
        HiddenByRangeDelete {
            above: newest,
            at_most: at_most.map_or(0, |stripe| protected.last_of(stripe)),
        }
    }

    fn holds(self, fragment: &RangeTombstone) -> bool {
        fragment.newest(self.at_most) > self.above
    }
}

impl RangeDeletes {
    /// These sets together.
    pub(crate) fn of<'f>(
        sets: impl IntoIterator<Item = &'f RangeTombstones>,
        protected: &ProtectedSeqs,
    ) -> RangeDeletes {
        let all = RangeTombstones::union(sets, protected);
        RangeDeletes {
            tiers: (!all.is_empty()).then(|| Arc::from([Arc::new(all)])),
        }
    }

    /// These and one more. Who is protected is asked for only where deletes of one key meet: it
    /// may be very many.
    pub(crate) fn with<P>(&self, range: RangeTombstones, protected: &P) -> RangeDeletes
    where
        P: Deref<Target = ProtectedSeqs>,
    {
        let mut tiers: Vec<Arc<RangeTombstones>> = self.tiers().to_vec();
        let mut last = Arc::new(range);
        while let Some(before) = tiers.pop_if(|before| before.0.len() <= 2 * last.0.len()) {
            last = Arc::new(before.united(&last, protected));
        }
        tiers.push(last);
        RangeDeletes {
            tiers: Some(tiers.into()),
        }
    }

    /// All of them as one set.
    pub(crate) fn united(&self, protected: &ProtectedSeqs) -> RangeTombstones {
        RangeTombstones::union(self.tiers().iter().map(|tier| &**tier), protected)
    }

    /// Whether there is no range delete.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.tiers.is_none()
    }

    fn tiers(&self) -> &[Arc<RangeTombstones>] {
        self.tiers.as_deref().unwrap_or_default()
    }

    /// A key of a range of keys that was deleted above `since`.
    pub(crate) fn newer_in(
        &self,
        (lower, upper): (&[u8], Option<&[u8]>),
        since: Seq,
    ) -> Option<Vec<u8>> {
        let touching = self
            .tiers()
            .iter()
            .flat_map(|tier| tier.touching(lower, upper));
        let mut newer = touching.filter(|fragment| fragment.newest(SEQ_MAX) > since);
        newer
            .next()
            .map(|fragment| lower.max(&fragment.lower).to_vec())
    }

    /// The newest delete of `key` that a reader at `seq` sees; 0 when there is none. What is older
    /// is gone for that reader.
    #[inline]
    pub(crate) fn newest(&self, key: &[u8], seq: Seq) -> Seq {
        if self.is_empty() {
            return 0;
        }
        self.search(key, seq)
    }

    #[cold]
    fn search(&self, key: &[u8], seq: Seq) -> Seq {
        let tiers = self.tiers().iter();
        let found = tiers.filter_map(|tier| tier.find(key));
        found
            .map(|fragment| fragment.newest(seq))
            .max()
            .unwrap_or(0)
    }

    /// Whether a reader may find any delete of `key`.
    pub(crate) fn covers(&self, key: &[u8]) -> bool {
        self.tiers().iter().any(|tier| tier.find(key).is_some())
    }

    /// Up to where no key above `key` is covered; `None` when none is.
    pub(crate) fn next_lower(&self, key: &[u8]) -> Option<&[u8]> {
        let lowers = self.tiers().iter().filter_map(|tier| tier.next_lower(key));
        lowers.min()
    }

    /// A range around `key` of which a source has nothing to show, as far as one fragment says.
    pub(crate) fn gap(&self, key: &[u8], hidden: HiddenByRangeDelete) -> Option<&RangeTombstone> {
        let found = self.tiers().iter().filter_map(|tier| tier.find(key));
        found
            .filter(|fragment| hidden.holds(fragment))
            .max_by(|a, b| compare_uppers(&a.upper, &b.upper))
    }
}

fn compare_uppers(a: &UpperBound, b: &UpperBound) -> Ordering {
    match (a, b) {
        (Some(a), Some(b)) => a.cmp(b),
        (a, b) => a.is_none().cmp(&b.is_none()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::engine::snapshots::SnapshotList;
    use crate::expiry::ReadPoint;

    type Range = (u8, Option<u8>, Seq);

    fn range() -> impl Strategy<Value = Range> {
        (0..24u8, prop::option::of(0..24u8), 1..20u64)
    }

    fn fragments((lower, upper, seq): Range) -> RangeTombstones {
        RangeTombstones::of_range(&[lower], upper.as_ref().map(std::slice::from_ref), seq)
    }

    /// The naive twin.
    fn newest(ranges: &[Range], key: u8, seq: Seq) -> Seq {
        let covers = |(lower, upper, own): &&Range| {
            *lower <= key && upper.is_none_or(|upper| key < upper) && *own <= seq
        };
        let found = ranges.iter().filter(covers);
        found.map(|(_, _, own)| *own).max().unwrap_or(0)
    }

    proptest! {
        #[test]
        fn every_protected_reader_sees_what_the_twin_says(
            ranges in prop::collection::vec(range(), 0..40),
            readers in prop::collection::vec(0..20u64, 0..4),
        ) {
            let snapshots = SnapshotList::default();
            readers.iter().for_each(|seq| {
                snapshots.register(|| ReadPoint::early(*seq));
            });
            let protected = snapshots.protect(|| ReadPoint::early(15));
            let sets: Vec<_> = ranges.iter().map(|range| fragments(*range)).collect();
            let union = RangeTombstones::union(&sets, &protected);
            prop_assert!(RangeTombstones::checked(union.0.clone()).is_some());
            let united = RangeDeletes::of(&sets, &protected);
            let mut grown = RangeDeletes::default();
            for set in sets.iter().filter(|set| !set.is_empty()) {
                grown = grown.with(set.clone(), &&protected);
            }
            let seen = readers.into_iter().chain(15..21);
            for seq in seen {
                for key in 0..25u8 {
                    let expected = newest(&ranges, key, seq);
                    prop_assert_eq!(united.newest(&[key], seq), expected);
                    prop_assert_eq!(grown.newest(&[key], seq), expected);
                    let hidden = HiddenByRangeDelete::from_reader(7, seq);
                    if let Some(gap) = grown.gap(&[key], hidden) {
                        prop_assert!(expected > 7 && gap.contains(&[key]));
                    }
                }
            }
            for key in 0..25u8 {
                let covered = |key| newest(&ranges, key, Seq::MAX) > 0;
                prop_assert_eq!(grown.covers(&[key]), covered(key));
                let next = grown.next_lower(&[key]).map(|lower| lower[0]);
                if !covered(key) {
                    let begins = (key + 1..25).find(|key| covered(*key));
                    prop_assert_eq!(next, begins);
                }
            }
        }

        #[test]
        fn a_range_of_keys_has_its_part(
            ranges in prop::collection::vec(range(), 0..10),
            lower in 0..24u8,
            upper in prop::option::of(0..24u8),
        ) {
            prop_assume!(upper.is_none_or(|upper| upper > lower));
            let protected = SnapshotList::default().protect(|| ReadPoint::early(0));
            let sets: Vec<_> = ranges.iter().map(|range| fragments(*range)).collect();
            let all = RangeTombstones::union(&sets, &protected);
            let upper_key = upper.map(|upper| [upper]);
            let range = (&[lower][..], upper_key.as_ref().map(|key| &key[..]));
            let part = all.within(range);
            prop_assert!(RangeTombstones::checked(part.0.clone()).is_some());
            prop_assert_eq!(part.is_empty(), !all.touches(range));
            for key in 0..25u8 {
                let inside = lower <= key && upper.is_none_or(|upper| key < upper);
                let expected = all.find(&[key]).filter(|_| inside).map(|f| f.seqs.clone());
                prop_assert_eq!(part.find(&[key]).map(|f| f.seqs.clone()), expected);
            }
        }
    }

    #[test]
    fn many_nested_ranges_stay_few() {
        let protected = SnapshotList::default().protect(|| ReadPoint::early(1_000_000));
        let mut deletes = RangeDeletes::default();
        for seq in 1..=10_000u64 {
            let upper = seq.to_le_bytes();
            let upper: Vec<u8> = upper.into_iter().rev().collect();
            deletes = deletes.with(
                RangeTombstones::of_range(b"", Some(&upper), seq),
                &&protected,
            );
        }
        let numbers: usize = deletes
            .tiers()
            .iter()
            .flat_map(|tier| tier.iter())
            .map(|fragment| fragment.seqs.len())
            .sum();
        assert!(numbers < 100, "{numbers}");
    }
}
