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
//! - I2: every key in `heads` has at least `common` bytes, the bucket's own.
//! - I3: a source that may hold keys outside the bucket's range (a slice) is clipped.

use std::cmp::Ordering;
use std::sync::Arc;

use super::bucket::{Bucket, BucketState, Run};
use super::cursor::{Access, RunCursor, Source};
use super::table::Stretch;
use crate::Result;
use crate::types::prefix_after;

/// A cursor over several sources at once, inside one bucket's range. Versions of a key come one by
/// one, newest first going forward, oldest first going backward.
pub(crate) struct Merge {
    bucket: Arc<Bucket>,
    sources: Vec<Clipped>,
    heads: Vec<Head>,
    common: usize,
    forward: bool,
}

struct Clipped {
    source: Source,
    /// The source may leave the bucket's range.
    clip: bool,
}

#[derive(Clone, Copy)]
struct Head {
    prefix: u64,
    source: usize,
}

impl Merge {
    /// A merge of `sources`, each with whether it may leave the bucket's range; without a position
    /// until the first seek.
    pub(crate) fn new(
        bucket: Arc<Bucket>,
        sources: impl IntoIterator<Item = (Source, bool)>,
    ) -> Merge {
        let sources = sources.into_iter();
        let mut clipped = Vec::with_capacity(sources.size_hint().1.unwrap_or(0).max(8));
        clipped.extend(sources.map(|(source, clip)| Clipped { source, clip }));
        let sources = clipped;
        let common = bucket.common_prefix_len();
        let heads = Vec::with_capacity(sources.len());
        Merge {
            bucket,
            sources,
            heads,
            common,
            forward: true,
        }
    }

    /// A merge of everything in a bucket.
    pub(crate) fn of_state(bucket: &Arc<Bucket>, state: &BucketState) -> Merge {
        let memory = state
            .memtables()
            .filter(|table| !table.is_empty())
            .map(|table| {
                (
                    Source::Memory(table.sorted()),
                    !Arc::ptr_eq(table, &state.active),
                )
            });
        let runs = state
            .levels
            .runs()
            .map(|run| run_source(bucket, run, Access::Cached));
        Merge::new(Arc::clone(bucket), memory.chain(runs))
    }

    /// The bucket whose range the merge covers.
    pub(crate) fn bucket(&self) -> &Bucket {
        &self.bucket
    }

    /// Moves to the first entry whose key is not below `key`.
    pub(crate) fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.forward = true;
        let bucket = Arc::clone(&self.bucket);
        let key = key.max(bucket.lower());
        // The waits for memory of all sources overlap.
        for Clipped { source, .. } in &self.sources {
            source.prefetch(key);
        }
        self.seek_each(|source| source.approach(key))?;
        self.seek_each(|source| source.seek(key))?;
        self.rank_heads();
        Ok(())
    }

    /// Moves to the last entry whose key is below `key`, or to the last one of all.
    pub(crate) fn seek_before(&mut self, key: Option<&[u8]>) -> Result<()> {
        self.forward = false;
        let bucket = Arc::clone(&self.bucket);
        let key = match (key, bucket.upper()) {
            (Some(key), Some(upper)) => Some(key.min(upper)),
            (key, upper) => key.or(upper),
        };
        self.seek_each(|source| source.seek_before(key))?;
        self.rank_heads();
        Ok(())
    }

    /// The source that stands on the current entry; `None` at the end.
    #[inline]
    pub(crate) fn current(&self) -> Option<&Source> {
        self.heads
            .first()
            .map(|head| &self.sources[head.source].source)
    }

    /// Moves one entry on, in the direction of the last seek.
    #[inline]
    pub(crate) fn advance(&mut self) -> Result<()> {
        self.advance_head(0)
    }

    /// What the first source has at hand from the current entry on, below `upper`, if it can lend
    /// it and no other source stands on the same key. Only going forward.
    ///
    /// While the stretch is out, the first source stands where it began, and the other sources go
    /// on by [`Merge::rival`] and [`Merge::advance_rival`]; then the merge must
    /// [`Merge::leave`] the stretch.
    pub(crate) fn stretch(&self, upper: Option<&[u8]>) -> Option<Stretch> {
        debug_assert!(self.forward);
        let head = self.heads.first()?;
        let Clipped { source, clip } = &self.sources[head.source];
        if let Some(rival) = self.heads.get(1)
            && rival.prefix == head.prefix
            && self.sources[rival.source].source.key() == source.key()
        {
            return None;
        }
        let bucket_upper = self.bucket.upper().filter(|_| *clip);
        let mut stretch = source.stretch([bucket_upper, upper])?;
        stretch.extend(self.rival().map(Source::key));
        Some(stretch)
    }

    /// The first of the sources behind the one that lent a stretch.
    #[inline]
    pub(crate) fn rival(&self) -> Option<&Source> {
        self.heads
            .get(1)
            .map(|head| &self.sources[head.source].source)
    }

    /// As [`Merge::advance`], for a reader who has dealt with the current key: older versions of it
    /// may be left out. Only going forward.
    #[inline]
    pub(crate) fn advance_key(&mut self) -> Result<()> {
        self.advance_head_key(0)
    }

    /// Moves the rival one entry on.
    pub(crate) fn advance_rival(&mut self) -> Result<()> {
        self.advance_head(1)
    }

    /// As [`Merge::advance_rival`], for a reader who has dealt with the rival's key.
    pub(crate) fn advance_rival_key(&mut self) -> Result<()> {
        self.advance_head_key(1)
    }

    /// Moves past what was taken of `stretch`.
    pub(crate) fn leave(&mut self, stretch: &Stretch) -> Result<()> {
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

    fn seek_each(&mut self, mut seek: impl FnMut(&mut Source) -> Result<()>) -> Result<()> {
        self.heads.clear();
        self.sources
            .iter_mut()
            .try_for_each(|clipped| seek(&mut clipped.source))
    }

    /// Makes the heads of sources that were moved.
    fn rank_heads(&mut self) {
        for position in 0..self.sources.len() {
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
    }

    /// The prefix of a source's current key; `None` when it stands on no entry of the bucket.
    #[inline]
    fn prefix(&self, source: usize) -> Option<u64> {
        let Clipped { source, clip } = &self.sources[source];
        if !source.valid() {
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

/// A run as a source, and whether it may leave the bucket's range.
pub(crate) fn run_source(bucket: &Bucket, run: &Run, access: Access) -> (Source, bool) {
    let clip = !bucket.contains(run.smallest(), run.largest());
    (
        Source::Run(RunCursor::new(Arc::clone(&run.tables), access)),
        clip,
    )
}
