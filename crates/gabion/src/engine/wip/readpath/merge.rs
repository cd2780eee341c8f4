//! Merging sorted sources into one order.
//!
//! # Idea
//! The heads of all sources stand in a short array, best first. Taking the first entry moves one
//! head, which is then sunk to its place. In a tiered tree most entries come from one large run,
//! so the head that moved mostly stays first and a step costs one comparison, which no heap and no
//! loser tree beats; with equal sources the cost grows linearly, but there are at most a few dozen.
//! Comparisons look at an 8-byte prefix taken behind the bytes that all keys of the bucket share.
//!
//! # Invariants
//! - I1: `heads` holds the sources that stand on an entry inside the bucket's range, ordered by key
//!   in the merge's direction; equal keys newest first going forward and oldest first backward.
//!   While a stretch is out, the head of its source is the first all the same.
//! - I2: every key in `heads` has at least `common` bytes, the bucket's own.
//! - I3: a source stands on no entry that a range delete hides from the merge's reader, as far as
//!   the source is older than the delete as a whole; it is sought past such ranges.
//! - I4: a source that may hold keys outside the bucket's range (a slice) is clipped.

use std::cmp::Ordering;
use std::sync::Arc;

use super::cursor::{EntryCursor, ReadPattern, RunCursor};
use super::residency::PageResidency;
use crate::Result;
use crate::engine::range_deletes::{HiddenByRangeDelete, RangeDeletes};
use crate::engine::wip::bucket::{Bucket, BucketState, Run};
use crate::engine::wip::table::{TableCursor, VisibleSpan};
use crate::types::{Seq, prefix_after};

/// A cursor over several sources at once, inside one bucket's range. Versions of a key come one by
/// one, newest first going forward, oldest first going backward.
pub(crate) struct MergingCursor {
    bucket: Arc<Bucket>,
    sources: Vec<Clipped>,
    heads: Vec<Head>,
    common: usize,
    forward: bool,
    /// The range deletes that concern the merge.
    deletes: RangeDeletes,
}

struct Clipped {
    source: EntryCursor,
    /// The source may leave the bucket's range.
    clip: bool,
    /// What range deletes hide of the source.
    hidden: Option<HiddenByRangeDelete>,
    /// Nothing more of the source is to be seen, though it may stand on an entry.
    ended: bool,
}

#[derive(Clone, Copy)]
struct Head {
    prefix: u64,
    source: usize,
}

impl MergingCursor {
    /// A merge of `sources`, each with whether it may leave the bucket's range; without a position
    /// until the first seek.
    pub(crate) fn new(
        bucket: Arc<Bucket>,
        sources: impl IntoIterator<Item = (EntryCursor, bool)>,
    ) -> MergingCursor {
        MergingCursor::with_capacity(bucket, 0, sources)
    }

    /// As [`MergingCursor::new`], of at most so many sources. A short scan spends a good part of
    /// its time on memory for its cursors; what is not larger than needed is cheap to get.
    fn with_capacity(
        bucket: Arc<Bucket>,
        capacity: usize,
        new_sources: impl IntoIterator<Item = (EntryCursor, bool)>,
    ) -> MergingCursor {
        let mut sources = Vec::with_capacity(capacity);
        for (source, clip) in new_sources {
            sources.push(Clipped {
                source,
                clip,
                hidden: None,
                ended: false,
            });
        }
        let common = bucket.common_prefix_len();
        let heads = Vec::with_capacity(sources.len());
        MergingCursor {
            bucket,
            sources,
            heads,
            common,
            forward: true,
            deletes: RangeDeletes::default(),
        }
    }

    /// Leaves out what `deletes` hide; `hidden` says of each source what that is.
    pub(crate) fn leave_out(
        &mut self,
        deletes: RangeDeletes,
        hidden: impl IntoIterator<Item = HiddenByRangeDelete>,
    ) {
        self.deletes = deletes;
        for (source, hidden) in self.sources.iter_mut().zip(hidden) {
            source.hidden = Some(hidden);
        }
    }

    /// A merge of everything in a bucket, for a reader at `seq`.
    pub(crate) fn of_state(bucket: &Arc<Bucket>, state: &BucketState, seq: Seq) -> MergingCursor {
        // Looked at once: the active table may get its first record meanwhile.
        let empty = usize::from(state.active.is_empty());
        let memory = state.memtables().skip(empty).map(|table| {
            (
                EntryCursor::Memory(table.search()),
                !Arc::ptr_eq(table, &state.active),
            )
        });
        let runs = state
            .levels
            .runs()
            .map(|run| run_source(bucket, run, ReadPattern::Cached));
        let capacity = 1 + state.frozen.len() + state.levels.runs().count();
        let sources = memory.chain(runs);
        let mut merge = MergingCursor::with_capacity(Arc::clone(bucket), capacity, sources);
        if !state.deletes.is_empty() {
            // What is inserted into a MemTable from now on is not for this reader.
            let newest = state
                .memtables()
                .skip(empty)
                .map(|table| table.max_seq())
                .chain(state.levels.runs().map(|run| run.seqs().1));
            let hidden = newest.map(|newest| HiddenByRangeDelete::from_reader(newest, seq));
            merge.leave_out(state.deletes.clone(), hidden);
        }
        merge
    }

    /// The range deletes that concern the merge. Its entries may be hidden by them, where a source
    /// is not older than the delete as a whole.
    pub(crate) fn deletes(&self) -> &RangeDeletes {
        &self.deletes
    }

    /// The bucket whose range the merge covers.
    pub(crate) fn bucket(&self) -> &Bucket {
        &self.bucket
    }

    /// Moves to the first entry whose key is not below `key`. Reads of several sources overlap if
    /// it is known how well the system keeps what it had.
    pub(crate) fn seek(&mut self, key: &[u8], residency: Option<&PageResidency>) -> Result<()> {
        self.forward = true;
        self.heads.clear();
        let key = key.max(self.bucket.lower());
        if self.deletes.is_empty() {
            // The waits for memory of all sources overlap.
            for Clipped { source, .. } in &mut self.sources {
                source.prefetch(key);
            }
            for Clipped { source, .. } in &mut self.sources {
                source.approach(key)?;
            }
            if let Some(residency) = residency {
                self.announce(residency);
            }
        }
        for clipped in &mut self.sources {
            clipped.ended = false;
            clipped.seek(key, &self.deletes)?;
        }
        self.rank_heads()
    }

    /// Lets the system begin to read what the sources will look at first.
    fn announce(&self, residency: &PageResidency) {
        let cursors = || self.sources.iter().filter_map(|s| s.source.table_cursor());
        let keeps_first = || cursors().next().is_none_or(TableCursor::keeps_sought);
        let lost = residency.is_lost(keeps_first);
        if lost || cursors().nth(1).is_some() {
            cursors().for_each(|cursor| cursor.announce(lost));
        }
    }

    /// Moves to the last entry whose key is below `key`, or to the last one of all.
    pub(crate) fn seek_before(&mut self, key: Option<&[u8]>) -> Result<()> {
        self.forward = false;
        self.heads.clear();
        let key = match (key, self.bucket.upper()) {
            (Some(key), Some(upper)) => Some(key.min(upper)),
            (key, upper) => key.or(upper),
        };
        for clipped in &mut self.sources {
            clipped.ended = false;
            clipped.source.seek_before(key)?;
        }
        self.rank_heads()
    }

    /// The source that stands on the current entry; `None` at the end.
    #[inline]
    pub(crate) fn current(&self) -> Option<&EntryCursor> {
        self.heads
            .first()
            .map(|head| &self.sources[head.source].source)
    }

    /// Moves one entry on, in the direction of the last seek.
    #[inline]
    pub(crate) fn advance(&mut self) -> Result<()> {
        self.advance_head(0)
    }

    /// What one source has at hand from its entry on, below `upper`, if it can lend it: the oldest
    /// run, which mostly is the largest, if it comes before the end of what the first run has at
    /// hand, else that one. Only going forward.
    ///
    /// While the stretch is out, its source is the first of the heads, whatever comes before its
    /// entries, and stands where the stretch began. The other sources go on by
    /// [`MergingCursor::rival`] and [`MergingCursor::advance_rival`]; then the merge must
    /// [`MergingCursor::leave`] the stretch.
    pub(crate) fn stretch(&mut self, upper: Option<&[u8]>) -> Option<VisibleSpan> {
        debug_assert!(self.forward);
        let source_of = |head: &Head| &self.sources[head.source].source;
        let first = self.heads.iter().position(|head| source_of(head).lends())?;
        let oldest = self.sources.len() - 1;
        let oldest = self.heads.iter().position(|head| head.source == oldest);
        let near = oldest.filter(|oldest| {
            let key = source_of(&self.heads[*oldest]).key();
            *oldest > first && source_of(&self.heads[first]).reaches(key)
        });
        let lent = near.and_then(|place| Some((place, self.lend(place, upper)?)));
        let (place, mut stretch) = match lent {
            Some(lent) => lent,
            None => (first, self.lend(first, upper)?),
        };
        self.heads[..=place].rotate_right(1);
        stretch.extend(self.rival().map(EntryCursor::key));
        Some(stretch)
    }

    /// What the source of the head at `place` has at hand from its entry on, below `upper`.
    fn lend(&self, place: usize, upper: Option<&[u8]>) -> Option<VisibleSpan> {
        let Clipped { source, clip, .. } = &self.sources[self.heads[place].source];
        let bucket_upper = self.bucket.upper().filter(|_| *clip);
        let mut upper = upper;
        if !self.deletes.is_empty() {
            // The entries of a stretch are not asked whether they are deleted.
            if self.deletes.covers(source.key()) {
                return None;
            }
            let next = self.deletes.next_lower(source.key());
            upper = upper.into_iter().chain(next).min();
        }
        source.stretch([bucket_upper, upper])
    }

    /// The first of the sources behind the one that lent a stretch.
    #[inline]
    pub(crate) fn rival(&self) -> Option<&EntryCursor> {
        self.heads
            .get(1)
            .map(|head| &self.sources[head.source].source)
    }

    /// Whether the rival comes before all keys whose eight bytes behind the bucket's common ones
    /// are `front` or more, as far as its own eight bytes tell.
    #[inline]
    pub(crate) fn is_rival_before(&self, front: u64) -> bool {
        self.heads.get(1).is_some_and(|head| head.prefix < front)
    }

    /// [`VisibleSpan::front`] of a stretch of this merge, for [`MergingCursor::is_rival_before`].
    #[inline]
    pub(crate) fn front_of(&self, stretch: &VisibleSpan) -> u64 {
        stretch.front(self.common)
    }

    /// As [`MergingCursor::advance`], for a reader who has dealt with the current key: older
    /// versions of it may be left out. Only going forward.
    #[inline]
    pub(crate) fn advance_key(&mut self) -> Result<()> {
        self.advance_head_key(0)
    }

    /// Moves the rival one entry on.
    pub(crate) fn advance_rival(&mut self) -> Result<()> {
        self.advance_head(1)
    }

    /// As [`MergingCursor::advance_rival`], for a reader who has dealt with the rival's key.
    pub(crate) fn advance_rival_key(&mut self) -> Result<()> {
        self.advance_head_key(1)
    }

    /// Moves past what was taken of `stretch`.
    pub(crate) fn leave(&mut self, stretch: &VisibleSpan) -> Result<()> {
        let Some(head) = self.heads.first().copied() else {
            return Ok(());
        };
        let moved = self.sources[head.source].source.leave(stretch);
        self.replace_head(0, moved)
    }

    /// Moves the source of the head at `place` one entry on.
    #[inline]
    fn advance_head(&mut self, place: usize) -> Result<()> {
        let Some(head) = self.heads.get(place).copied() else {
            return Ok(());
        };
        let source = &mut self.sources[head.source].source;
        let moved = if self.forward {
            source.next()
        } else {
            source.prev()
        };
        self.replace_head(place, moved)
    }

    #[inline]
    fn advance_head_key(&mut self, place: usize) -> Result<()> {
        debug_assert!(self.forward);
        let Some(head) = self.heads.get(place).copied() else {
            return Ok(());
        };
        let moved = self.sources[head.source].source.next_key();
        self.replace_head(place, moved)
    }

    /// Puts the head at `place`, whose source was moved, where it now belongs among those behind
    /// it.
    #[inline]
    fn replace_head(&mut self, mut place: usize, moved: Result<()>) -> Result<()> {
        if let Err(error) = moved {
            self.heads.clear();
            return Err(error);
        }
        let source = self.heads[place].source;
        if !self.deletes.is_empty()
            && let Err(error) = self.skip_deleted(source)
        {
            self.heads.clear();
            return Err(error);
        }
        match self.prefix(source) {
            None => {
                self.heads.remove(place);
            }
            Some(prefix) => {
                let head = Head { prefix, source };
                while place + 1 < self.heads.len()
                    && self.compare(self.heads[place + 1], head) == Ordering::Less
                {
                    self.heads[place] = self.heads[place + 1];
                    place += 1;
                }
                self.heads[place] = head;
            }
        }
        Ok(())
    }

    /// Makes the heads of sources that were moved.
    fn rank_heads(&mut self) -> Result<()> {
        for position in 0..self.sources.len() {
            if !self.deletes.is_empty()
                && let Err(error) = self.skip_deleted(position)
            {
                self.heads.clear();
                return Err(error);
            }
            let Some(prefix) = self.prefix(position) else {
                continue;
            };
            let head = Head {
                prefix,
                source: position,
            };
            let mut place = self.heads.len();
            self.heads.push(head);
            while place > 0 && self.compare(head, self.heads[place - 1]) == Ordering::Less {
                self.heads[place] = self.heads[place - 1];
                place -= 1;
            }
            self.heads[place] = head;
        }
        Ok(())
    }

    /// Moves a source past what is hidden of it (I3).
    #[cold]
    fn skip_deleted(&mut self, source: usize) -> Result<()> {
        let Clipped {
            source,
            hidden,
            ended,
            ..
        } = &mut self.sources[source];
        let Some(hidden) = *hidden else {
            return Ok(());
        };
        while source.valid() && !*ended {
            let Some(gap) = self.deletes.gap(source.key(), hidden) else {
                break;
            };
            match (&gap.upper, self.forward) {
                (Some(upper), true) => source.seek(upper)?,
                (None, true) => *ended = true,
                (_, false) => source.seek_before(Some(&gap.lower))?,
            }
        }
        Ok(())
    }

    /// The prefix of a source's current key; `None` when it stands on no entry of the bucket.
    #[inline]
    fn prefix(&self, source: usize) -> Option<u64> {
        let Clipped {
            source,
            clip,
            ended,
            ..
        } = &self.sources[source];
        if *ended || !source.valid() {
            return None;
        }
        let key = source.key();
        if *clip
            && (key < self.bucket.lower() || self.bucket.upper().is_some_and(|upper| key >= upper))
        {
            return None;
        }
        Some(prefix_after(key, self.common))
    }

    /// Orders two heads as the direction wants it.
    #[inline]
    fn compare(&self, a: Head, b: Head) -> Ordering {
        let order = a.prefix.cmp(&b.prefix).then_with(|| {
            let (a, b) = (
                &self.sources[a.source].source,
                &self.sources[b.source].source,
            );
            a.key()[self.common..]
                .cmp(&b.key()[self.common..])
                .then_with(|| b.seq().cmp(&a.seq()))
        });
        if self.forward { order } else { order.reverse() }
    }
}

impl Clipped {
    /// Moves to the first entry that is not below `key`, without a look at the tables that hold
    /// nothing else than what is hidden.
    fn seek(&mut self, key: &[u8], deletes: &RangeDeletes) -> Result<()> {
        let mut start = key;
        if let (Some(hidden), EntryCursor::Run(run)) = (self.hidden, &self.source) {
            let smallest = run.smallest().to_vec();
            start = start.max(&smallest);
            while let Some(gap) = deletes.gap(start, hidden) {
                match &gap.upper {
                    Some(upper) => start = upper,
                    None => {
                        self.ended = true;
                        return Ok(());
                    }
                }
            }
            return self.source.seek(start);
        }
        self.source.seek(start)
    }
}

/// A run as a source, and whether it may leave the bucket's range.
pub(crate) fn run_source(bucket: &Bucket, run: &Run, access: ReadPattern) -> (EntryCursor, bool) {
    let clip = !bucket.contains(run.smallest(), run.largest());
    (
        EntryCursor::Run(RunCursor::new(Arc::clone(&run.tables), access)),
        clip,
    )
}

#[cfg(test)]
mod tests {
    use gabion_media::{Disk, SimDisk};

    use super::*;
    use crate::Options;
    use crate::engine::wip::Wip;

    #[test]
    fn the_oldest_run_lends_where_it_is_near_and_the_first_one_elsewhere() {
        let options = Options::default().background_threads(0);
        let engine = Wip::open(Disk::simulated(&SimDisk::new()), options).unwrap();
        let keyspace = engine.create_keyspace("keyspace").unwrap();
        let key = |number: u32| number.swap_bytes().to_le_bytes();
        // A block has some thirty of these. The young run alone has what is below 1000.
        engine.put_run_for_tests(&keyspace, 1000..2000, 1);
        engine.put_run_for_tests(&keyspace, (0..1000).chain((1000..2000).step_by(5)), 2);
        let router = keyspace.router.load();
        let bucket = &router.buckets()[0];
        let mut merge = MergingCursor::of_state(bucket, &bucket.state.load(), Seq::MAX);
        let mut lender = |from: u32| {
            merge.seek(&key(from), None).unwrap();
            let first = merge.heads[0].source;
            let mut stretch = merge.stretch(None).unwrap();
            let (lender, mut found) = (merge.heads[0].source, Vec::new());
            stretch.next(Seq::MAX, &mut found);
            merge.leave(&stretch).unwrap();
            // Where the merge goes on after the entries of the stretch that come first.
            (
                first,
                lender,
                merge.current().map(|source| source.key().to_vec()),
            )
        };
        let (young, old) = (0, 1);
        assert_eq!(lender(7).0, young);
        assert_eq!(lender(7).1, young, "the old run begins a thousand keys on");
        assert_eq!(lender(1002).0, old);
        assert_eq!(lender(1002).1, old);
        assert_eq!(lender(1005).0, young, "the newer version comes first");
        assert_eq!(lender(1005).1, old, "it is the next entry");
        assert_eq!(lender(1005).2.as_deref(), Some(&key(1005)[..]));
        assert_eq!(lender(999).1, old, "it comes within the block at hand");
    }
}
