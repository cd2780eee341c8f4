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
//!   at, or on the front's current pair (`at` says where that is), and covers a bucket that holds
//!   the end's bound. While there is a stretch, its source stands where the stretch began.
//! - I3: `front_prefix` is at most what [`VisibleSpan::front`] says. So where runs interleave, most
//!   entries of the rivals are told from those of the stretch without a look at it; what the
//!   stretch may give was said for an earlier rival then, and is nothing.
//! - I4: `gone` counts the entries that are no pairs since the front entered its bucket at `lower`,
//!   as long as it has found no pair there. Where there were many, the MemTable of the bucket
//!   remembers that there is nothing before the first pair ([`crate::engine::memtable`]). Not where
//!   one has expired: who reads at an earlier moment may still see it.

use std::ops::Bound;
use std::sync::Arc;

use super::cursor::EntryCursor;
use super::merge::MergingCursor;
use crate::bytes::assign;
use crate::engine::keyspaces::KeyspaceView;
use crate::engine::memtable::NOTED_FROM;
use crate::engine::open_store::OpenStore;
use crate::engine::range_deletes::RangeDeletes;
use crate::engine::wip::table::VisibleSpan;
use crate::engine::wip::{Wip, WipKeyspace};
use crate::expiry::{ReadPoint, StoredRecord, UnixMillis, expires, has_expired};
use crate::ranges::key_range;
use crate::types::Kind;
use crate::{Error, Result, Slice};

/// Keys up to this length need no larger buffer.
const KEY_CAPACITY: usize = 48;

/// The visible entries of a keyspace in a range.
pub(crate) struct WipScan {
    /// The keyspace's number.
    keyspace: u32,
    /// Registered with the engine's snapshots for as long as the scan lives.
    point: ReadPoint,
    lower: Vec<u8>,
    upper: Option<Vec<u8>>,
    /// The last key that the front dealt with, if there is one: keys up to it are done.
    done: Vec<u8>,
    done_any: bool,
    at: At,
    front: Option<MergingCursor>,
    /// What of the front's merge may be taken without it; empty when `stretched` is not set.
    stretch: VisibleSpan,
    stretched: bool,
    /// A rival below this comes before all that is left of the stretch (I3).
    front_prefix: u64,
    back: Option<MergingCursor>,
    /// The front's current pair, where it is what merges amount to.
    merged: Option<StoredRecord>,
    /// Nobody asks for values, so merges are pairs whatever they amount to.
    keys_only: bool,
    /// I4; none once a pair was found, or what has expired.
    gone: Option<u32>,
    finished: bool,
    store: Arc<dyn OpenStore<Wip>>,
}

impl OpenStore<Wip> for Wip {
    fn engine(&self) -> &Wip {
        self
    }
}

/// Where the current pair of the front is; its key is `done`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// There is none.
    Nowhere,
    /// The last one that the stretch found.
    Stretch,
    /// The current entry of the rival of the stretch.
    Rival,
    /// The current entry of the merge.
    Merge,
}

/// What an entry is to a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dealt {
    /// The next pair.
    Pair,
    /// A tombstone, or a version that a newer one hides; what is older of its key is gone, too.
    Gone,
    /// A version that has expired; likewise.
    Expired,
    /// A merge: what it amounts to says which of these it is.
    Merge,
    /// A version that was written after the scan began.
    ToCome,
}

/// A key and its value.
pub(crate) type Pair = (Slice, Slice);

impl WipScan {
    /// A scan at `point`, which the caller has registered for it.
    pub(crate) fn new(
        store: Arc<dyn OpenStore<Wip>>,
        keyspace: &WipKeyspace,
        point: ReadPoint,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
    ) -> WipScan {
        let range = key_range((lower, upper));
        let finished = range.is_none();
        let (lower, upper) = range.unwrap_or_default();
        WipScan {
            keyspace: keyspace.id,
            point,
            lower,
            upper,
            done: Vec::with_capacity(KEY_CAPACITY),
            done_any: false,
            at: At::Nowhere,
            front: None,
            stretch: VisibleSpan::default(),
            stretched: false,
            front_prefix: 0,
            back: None,
            merged: None,
            keys_only: false,
            gone: None,
            finished,
            store,
        }
    }

    /// The same, of which nobody asks for values.
    pub(in crate::engine::wip) fn of_keys(mut self) -> WipScan {
        self.keys_only = true;
        self
    }

    /// Goes to the next pair from the low end; false at the end.
    #[inline]
    pub(crate) fn advance(&mut self) -> Result<bool> {
        if self.at != At::Rival && self.stretch.next(self.point.seq, &mut self.done) {
            self.at = At::Stretch;
            return Ok(true);
        }
        self.advance_merge()
    }

    #[inline(never)]
    fn advance_merge(&mut self) -> Result<bool> {
        if self.finished {
            return Ok(false);
        }
        let found = self.find_next();
        match &found {
            Ok(true) => self.end_gap(true, NOTED_FROM),
            Ok(false) => self.end_gap(false, NOTED_FROM),
            Err(_) => {}
        }
        if !matches!(found, Ok(true)) {
            self.finish();
        }
        found
    }

    /// The front has found its first pair in a bucket, or has come to its end or that of the scan
    /// without one. If it had to step over `noted_from` entries, that is remembered (I4).
    #[inline]
    fn end_gap(&mut self, at_pair: bool, noted_from: u32) {
        let Some(gone) = self.gone.take().filter(|_| !self.stretch.has_expired()) else {
            return;
        };
        #[cfg(test)]
        self.store.engine().count_visits(gone as usize);
        if gone >= noted_from {
            self.note_gap(at_pair);
        }
    }

    #[cold]
    fn note_gap(&self, at_pair: bool) {
        let Some(merge) = &self.front else {
            return;
        };
        let bucket = merge.bucket();
        let end = match (bucket.upper(), self.upper.as_deref()) {
            _ if at_pair => Some(&*self.done),
            (Some(own), Some(upper)) => Some(own.min(upper)),
            (own, upper) => own.or(upper),
        };
        let lower = bucket.lower().max(&self.lower);
        if end.is_none_or(|end| lower < end) {
            let active = &bucket.state.load().active;
            active.note_gap((lower, end), self.point.seq);
        }
    }

    /// The key that [`WipScan::advance`] went to; empty when it did not.
    #[inline]
    pub(crate) fn key(&self) -> &[u8] {
        match self.at {
            At::Nowhere => &[],
            _ => &self.done,
        }
    }

    /// The value of that key, to look at.
    #[inline]
    pub(crate) fn value_bytes(&self) -> &[u8] {
        match self.at {
            At::Stretch => self.stretch.value_bytes(),
            _ => self.value_of_source(),
        }
    }

    /// Apart from the values of stretches, which most are.
    #[inline(never)]
    fn value_of_source(&self) -> &[u8] {
        match &self.merged {
            Some(merged) => merged.value(),
            None => self.source().map_or(&[], EntryCursor::value_bytes),
        }
    }

    /// The value of that key, to keep.
    #[inline]
    pub(crate) fn value(&mut self) -> Slice {
        match self.at {
            At::Stretch => self.stretch.value(),
            _ => self.kept_value_of_source(),
        }
    }

    #[inline(never)]
    fn kept_value_of_source(&self) -> Slice {
        match &self.merged {
            Some(merged) => merged.clone().into_value(),
            None => self
                .source()
                .map_or_else(|| Slice::new(&[]), EntryCursor::value),
        }
    }

    /// When the current pair expires, if it does.
    pub(crate) fn expires(&self) -> Option<UnixMillis> {
        match self.at {
            At::Stretch => self.stretch.expires(),
            _ if self.merged.is_some() => self.merged.as_ref().and_then(StoredRecord::expires),
            _ => self
                .source()
                .and_then(|own| expires(own.kind(), own.stored())),
        }
    }

    /// The source that stands on the current pair, if one does.
    fn source(&self) -> Option<&EntryCursor> {
        let merge = self.front.as_ref()?;
        match self.at {
            At::Rival => merge.rival(),
            At::Merge => merge.current(),
            At::Nowhere | At::Stretch => None,
        }
    }

    /// The next pair from the high end. The front's current pair is gone then.
    pub(crate) fn next_back(&mut self) -> Result<Option<Pair>> {
        if self.finished {
            return Ok(None);
        }
        let pair = self.find_next_back();
        match &pair {
            Ok(Some((key, _))) => assign(self.upper.get_or_insert_default(), key),
            _ => self.finish(),
        }
        pair
    }

    fn finish(&mut self) {
        self.finished = true;
        self.at = At::Nowhere;
        self.front = None;
        self.stretch = VisibleSpan::default();
        self.stretched = false;
        self.back = None;
    }

    /// Moves the front past its current pair, if that is not the stretch's.
    fn pass_current(&mut self) -> Result<()> {
        let at = std::mem::replace(&mut self.at, At::Nowhere);
        self.merged = None;
        match (at, &mut self.front) {
            (At::Rival, Some(merge)) => {
                merge.advance_rival_key()?;
                if !merge.is_rival_before(self.front_prefix) {
                    self.stretch.skip_key(&self.done);
                    self.stretch.extend(merge.rival().map(EntryCursor::key));
                }
                Ok(())
            }
            (At::Merge, Some(merge)) => merge.advance_key(),
            _ => Ok(()),
        }
    }

    /// Ends the stretch, if there is one: the merge is then where it has come to.
    fn leave_stretch(&mut self) -> Result<()> {
        if !self.stretched {
            return Ok(());
        }
        self.stretched = false;
        let stretch = std::mem::take(&mut self.stretch);
        if stretch.has_expired() {
            self.gone = None;
        }
        match &mut self.front {
            Some(merge) => merge.leave(&stretch),
            None => Ok(()),
        }
    }

    /// Deals with the entry that `source` stands on; `deletes` are the merge's.
    #[inline]
    fn deal(
        (done, done_any): (&mut Vec<u8>, &mut bool),
        ReadPoint { seq, moment }: ReadPoint,
        source: &EntryCursor,
        deletes: &RangeDeletes,
    ) -> Dealt {
        if source.seq() > seq {
            return Dealt::ToCome;
        }
        let key = source.key();
        if *done_any && *key == **done {
            return Dealt::Gone;
        }
        assign(done, key);
        *done_any = true;
        let kind = source.kind();
        if kind.is_tombstone() || source.seq() <= deletes.newest(source.key(), seq) {
            return Dealt::Gone;
        }
        if kind == Kind::Merge {
            return Dealt::Merge;
        }
        match has_expired(kind, source.stored(), || moment) {
            true => Dealt::Expired,
            false => Dealt::Pair,
        }
    }

    /// Finds the next pair while there is a stretch, in it or in the sources beside it. False when
    /// the stretch is exhausted.
    fn find_beside_stretch(&mut self) -> Result<bool> {
        let Some(merge) = &mut self.front else {
            return Ok(false);
        };
        loop {
            let is_rival_next = merge.is_rival_before(self.front_prefix);
            if !is_rival_next && self.stretch.next(self.point.seq, &mut self.done) {
                self.at = At::Stretch;
                self.done_any = true;
                return Ok(true);
            }
            // A tombstone, which is no pair, hides what is to come all the same.
            self.done_any |= self.stretch.has_dealt();
            let Some(rival) = merge.rival() else {
                return Ok(false);
            };
            if !is_rival_next {
                if !self.stretch.is_all_behind(rival.key(), rival.seq()) {
                    if self.stretch.extend_exactly(rival.key(), rival.seq()) {
                        continue;
                    }
                    return Ok(false);
                }
                self.front_prefix = merge.front_of(&self.stretch);
            }
            self.stretch.forget_dealt();
            let done = (&mut self.done, &mut self.done_any);
            let dealt = WipScan::deal(done, self.point, rival, merge.deletes());
            let dealt = match dealt {
                Dealt::Merge if !self.keys_only => {
                    let at = (&self.store, self.keyspace, self.point);
                    settle(at, &self.done, &mut self.merged)?
                }
                dealt => dealt,
            };
            match dealt {
                Dealt::Pair | Dealt::Merge => {
                    self.at = At::Rival;
                    return Ok(true);
                }
                Dealt::Gone => {
                    self.gone = self.gone.map(|gone| gone + 1);
                    merge.advance_rival_key()?;
                }
                Dealt::Expired => {
                    self.gone = None;
                    merge.advance_rival_key()?;
                }
                Dealt::ToCome => merge.advance_rival()?,
            }
            if merge.is_rival_before(self.front_prefix) {
                continue;
            }
            if self.done_any {
                self.stretch.skip_key(&self.done);
            }
            self.stretch.extend(merge.rival().map(EntryCursor::key));
        }
    }

    fn find_next(&mut self) -> Result<bool> {
        self.pass_current()?;
        loop {
            if self.stretched {
                if self.find_beside_stretch()? {
                    return Ok(true);
                }
                self.leave_stretch()?;
            }
            let merge = match &mut self.front {
                Some(merge) => merge,
                None => {
                    let engine = self.store.engine();
                    let keyspaces = engine.keyspaces.load();
                    let keyspace = keyspace_of(&keyspaces, self.keyspace)?;
                    let router = keyspace.router_at(self.point.seq);
                    let bucket = router.route(&self.lower);
                    engine.count_scan(bucket);
                    let state = bucket.state.load();
                    let mut merge = MergingCursor::of_state(bucket, &state, self.point.seq);
                    self.gone = Some(0);
                    match state.active.behind_gap(&self.lower, self.point.seq) {
                        None => merge.seek(&self.lower, Some(&engine.residency))?,
                        Some(Some(key)) => merge.seek(&key, Some(&engine.residency))?,
                        Some(None) => {}
                    }
                    self.front.insert(merge)
                }
            };
            let upper = self.upper.as_deref();
            if let Some(mut stretch) = merge.stretch(upper) {
                if self.done_any {
                    stretch.skip_key(&self.done);
                }
                stretch.read_at(self.point.moment);
                self.stretch = stretch;
                self.stretched = true;
                self.front_prefix = 0;
            } else if let Some(entry) = merge.current() {
                if upper.is_some_and(|upper| entry.key() >= upper) {
                    return Ok(false);
                }
                let done = (&mut self.done, &mut self.done_any);
                let dealt = WipScan::deal(done, self.point, entry, merge.deletes());
                let dealt = match dealt {
                    Dealt::Merge if !self.keys_only => {
                        let at = (&self.store, self.keyspace, self.point);
                        settle(at, &self.done, &mut self.merged)?
                    }
                    dealt => dealt,
                };
                match dealt {
                    Dealt::Pair | Dealt::Merge => {
                        self.at = At::Merge;
                        return Ok(true);
                    }
                    Dealt::Gone => {
                        self.gone = self.gone.map(|gone| gone + 1);
                        merge.advance_key()?;
                    }
                    Dealt::Expired => {
                        self.gone = None;
                        merge.advance_key()?;
                    }
                    Dealt::ToCome => merge.advance()?,
                }
            } else {
                // The bucket is exhausted: go on behind it, wherever the router puts that now.
                if merge.bucket().upper().is_none() {
                    return Ok(false);
                }
                // Many buckets in which little is left to step over would be as slow as one with
                // much.
                self.end_gap(false, 1);
                let upper = self.front.as_ref().and_then(|merge| merge.bucket().upper());
                assign(&mut self.lower, upper.unwrap_or_default());
                self.front = None;
                if self.upper.as_ref().is_some_and(|end| *end <= self.lower) {
                    return Ok(false);
                }
            }
        }
    }

    fn find_next_back(&mut self) -> Result<Option<Pair>> {
        self.pass_current()?;
        self.leave_stretch()?;
        loop {
            let upper = self.upper.as_deref();
            let merge = match &mut self.back {
                Some(merge) => merge,
                None => {
                    let engine = self.store.engine();
                    let keyspaces = engine.keyspaces.load();
                    let keyspace = keyspace_of(&keyspaces, self.keyspace)?;
                    let router = keyspace.router_at(self.point.seq);
                    let bucket = router.route_below(upper);
                    engine.count_scan(bucket);
                    let mut merge =
                        MergingCursor::of_state(bucket, &bucket.state.load(), self.point.seq);
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
                    if entry.seq() <= self.point.seq {
                        let (kind, moment) = (entry.kind(), self.point.moment);
                        let is_there =
                            !kind.is_tombstone() && !has_expired(kind, entry.stored(), || moment);
                        visible = is_there.then(|| (entry.seq(), kind, entry.value()));
                    }
                    merge.advance()?;
                }
                let deleted = merge.deletes().newest(&key, self.point.seq);
                let visible = visible.filter(|(seq, ..)| *seq > deleted);
                let value = match visible {
                    Some((_, Kind::Merge, _)) => {
                        let merged = merged_at((&self.store, self.keyspace, self.point), &key)?;
                        merged.map(StoredRecord::into_value)
                    }
                    visible => visible.map(|(.., value)| value),
                };
                if let Some(value) = value {
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

impl Drop for WipScan {
    fn drop(&mut self) {
        self.store.engine().end_snapshot(self.point);
    }
}

/// Where a scan asks for what merges amount to: its store, keyspace and point.
type MergeReader<'s> = (&'s Arc<dyn OpenStore<Wip>>, u32, ReadPoint);

/// The record of a key that merges amount to.
#[cold]
fn merged_at(
    (store, keyspace, point): MergeReader<'_>,
    key: &[u8],
) -> Result<Option<StoredRecord>> {
    let engine = store.engine();
    let keyspaces = engine.keyspaces.load();
    engine.find_record(keyspace_of(&keyspaces, keyspace)?, key, Some(point))
}

/// What a merge is to a scan that has come to it; `merged` is the record that it amounts to.
#[cold]
fn settle(at: MergeReader<'_>, key: &[u8], merged: &mut Option<StoredRecord>) -> Result<Dealt> {
    *merged = merged_at(at, key)?;
    // One that amounts to nothing may do so because its base has expired.
    Ok(match merged {
        Some(_) => Dealt::Pair,
        None => Dealt::Expired,
    })
}

/// The keyspace of a scan, which is there as long as the scan's number is registered.
fn keyspace_of(keyspaces: &KeyspaceView<WipKeyspace>, id: u32) -> Result<&Arc<WipKeyspace>> {
    keyspaces.of_reader(id).ok_or(Error::KeyspaceDropped)
}
