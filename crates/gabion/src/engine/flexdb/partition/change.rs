//! Changes of intervals: what a merge, a range delete or a compaction makes of their pairs.
//!
//! # Idea
//! A change is planned without any lock: which pairs go and which come, and the steps that take the
//! space there, each of which removes bytes at one place and inserts others. Then the space and the
//! index change together, for as long as their trees take (P2 of the partition); forms, leaves and
//! nodes of the index are made just before. A cached form is changed in place; only an interval
//! that is cut, or written anew, is put together as a whole.

use std::cell::Cell;
use std::ops::Range;
use std::sync::Arc;

use gabion_flex::Edit;

use super::{CachedInterval, Partition};
use crate::Result;
use crate::engine::flexdb::index::{
    EXTENTS_UNKNOWN, EditKind, IndexLeaf, IntervalEdit, IntervalRef, NewInterval, SeekTarget,
};
use crate::engine::flexdb::interval::{
    BYTES_MAX, Interval, PAIRS_MAX, PairEdit, PairRef, put_pair, tag_of,
};
use crate::expiry::{UnixMillis, moment_of};
use crate::types::{Kind, hash_key};

/// An interval that has this many extents, and more than half as many as pairs, is written anew
/// when it changes (the paper's rule, section 5.2).
const FRAGMENTS_MIN: usize = 4;

/// What a merge does with some keys, in their order.
#[derive(Debug, Default)]
pub(in super::super) struct MergeChanges {
    /// The new pairs as they will lie in the space, one behind the other.
    pairs: Vec<u8>,
    /// The keys that go.
    gone: Vec<u8>,
    /// When new pairs expire that do, and the bytes of each.
    expiring: Vec<(UnixMillis, u64)>,
    list: Vec<Change>,
}

#[derive(Clone, Copy, Debug)]
struct Change {
    /// Where its pair is, or where it would be.
    start: usize,
    end: usize,
    /// Where its key is: within the pair, or among those that go.
    key: usize,
    key_len: u16,
    is_put: bool,
}

impl MergeChanges {
    /// Gives the next key a value.
    pub(in super::super) fn put(&mut self, kind: Kind, key: &[u8], stored: &[u8]) {
        let start = self.pairs.len();
        let head = put_pair(&mut self.pairs, kind, key, stored);
        if kind == Kind::PutExpiring {
            let bytes = self.pairs.len() - start;
            self.expiring.push((moment_of(stored), bytes as u64));
        }
        self.push(start, start + usize::from(head), key, true);
    }

    /// Removes the next key.
    pub(in super::super) fn remove(&mut self, key: &[u8]) {
        let at = self.gone.len();
        self.gone.extend_from_slice(key);
        self.push(self.pairs.len(), at, key, false);
    }

    fn push(&mut self, start: usize, at: usize, key: &[u8], is_put: bool) {
        self.list.push(Change {
            start,
            end: self.pairs.len(),
            key: at,
            key_len: u16::try_from(key.len()).unwrap_or(u16::MAX),
            is_put,
        });
    }

    /// When new pairs expire that do, and the bytes of each.
    pub(in super::super) fn expiring(&self) -> &[(UnixMillis, u64)] {
        &self.expiring
    }

    /// How many keys there are.
    pub(in super::super) fn len(&self) -> usize {
        self.list.len()
    }

    /// Bytes of new pairs, and of keys that go.
    pub(in super::super) fn bytes(&self) -> usize {
        self.pairs.len() + self.gone.len()
    }

    /// A key.
    pub(in super::super) fn key(&self, at: usize) -> &[u8] {
        let change = &self.list[at];
        let bytes = if change.is_put {
            &self.pairs
        } else {
            &self.gone
        };
        &bytes[change.key..change.key + usize::from(change.key_len)]
    }

    /// The new pair of a key that gets a value.
    fn pair(&self, at: usize) -> Option<(&[u8], PairRef)> {
        let change = &self.list[at];
        if !change.is_put {
            return None;
        }
        let pair = PairRef {
            start: 0,
            head: u8::try_from(change.key - change.start).unwrap_or_default(),
            key_len: change.key_len,
            tag: tag_of(hash_key(self.key(at))),
        };
        Some((&self.pairs[change.start..change.end], pair))
    }

    pub(in super::super) fn clear(&mut self) {
        self.pairs.clear();
        self.gone.clear();
        self.expiring.clear();
        self.list.clear();
    }
}

/// An interval that a merge has found, and the changes of its keys.
#[derive(Debug)]
pub(in super::super) struct IntervalChanges {
    pub(in super::super) place: IntervalRef,
    /// What it holds, if it was read; else it was cached.
    pub(in super::super) interval: Option<Arc<Interval>>,
    pub(in super::super) changes: Range<usize>,
}

impl Partition {
    /// Changes pairs of some intervals of one leaf, in the order of their keys, which the caller
    /// has just looked up (P2): all of them, or none if this fails. The changes of each belong to
    /// the interval. Returns how many bytes were written.
    pub(in super::super) fn change(
        &self,
        wanted: Vec<IntervalChanges>,
        changes: &MergeChanges,
    ) -> Result<u64> {
        // So that their misses overlap.
        for own in wanted.iter().filter(|own| own.interval.is_none()) {
            own.place.leaf.prefetch_pairs(own.place.at);
        }
        if let (Some(first), Some(last)) = (wanted.first(), wanted.last()) {
            self.prepare(&first.place, &last.place)?;
        }
        let wanted = self.read_wanted(wanted)?;
        let mut plans = Plans::new(wanted.len(), changes.len());
        for (number, (held, range)) in wanted.iter().enumerate() {
            let rewrites = self.is_fragmented(&held.place, &held.interval)?;
            plans.add(number, &held.interval, changes, range.clone(), rewrites);
        }
        if plans.list.is_empty() {
            return Ok(0);
        }
        let new_of = |plan: &Plan| {
            let whole = plan.whole.as_ref().filter(|_| !plan.splices_form)?;
            let (held, _) = &wanted[plan.number];
            let mut new = self.result_of(held, whole);
            let extents = plan.extents(held.place.leaf.extents(held.place.at));
            new.iter_mut().for_each(|new| new.extents = extents);
            Some(new)
        };
        let new: Vec<Option<Vec<NewInterval>>> = plans.list.iter().map(new_of).collect();
        let held = wanted.into_iter().map(|(held, _)| held);
        let (places, read): (Vec<IntervalRef>, Vec<_>) =
            held.map(|held| (held.place, Some(held.interval))).unzip();
        let altered = self.altered(&places, read, &plans, new);
        self.begin_change();
        let (ready, mut alone) = self.space.apply_under(
            || self.edits(&places, &plans, changes),
            || {
                // The data is placed: nothing can fail any more.
                let ahead = self.index.ahead();
                (self.index.prepare(&ahead, altered), ahead.alone())
            },
        )?;
        let made = self.index.make(&mut alone, ready);
        drop(alone);
        if let Some(first) = plans.list.first().filter(|_| made.is_large) {
            self.index.cut_branch(places[first.number].lower());
        }
        drop(made);
        for plan in plans.list.iter().rev() {
            if plan.count > 0 && plan.count < PAIRS_MAX / 4 {
                self.join_with_next(places[plan.number].lower());
            }
        }
        self.cache.shrink();
        Ok(plans.written())
    }

    /// What the index does with intervals for which there are plans, and what some of them become.
    /// None of what was `read` is kept but there: else forms would have to be copied.
    fn altered<'p>(
        &'p self,
        places: &'p [IntervalRef],
        mut read: Vec<Option<Arc<Interval>>>,
        plans: &'p Plans<'p>,
        new: Vec<Option<Vec<NewInterval>>>,
    ) -> Vec<IntervalEdit<'p, impl FnOnce(&mut Option<Arc<Interval>>)>> {
        let altered = |(plan, new): (&'p Plan, Option<Vec<NewInterval>>)| {
            let place = &places[plan.number];
            let read = read[plan.number].take();
            let becomes = match new {
                Some(new) => EditKind::Others(1, new),
                None => {
                    let extents = plan.extents(place.leaf.extents(place.at));
                    let splices = &plans.splices[plan.splices.clone()];
                    let splice = |form: &mut _| self.splice(form, read, splices);
                    EditKind::Edited((plan.len as u64, extents), Some(splice))
                }
            };
            IntervalEdit {
                lower: place.lower(),
                becomes,
            }
        };
        plans.list.iter().zip(new).map(altered).collect()
    }

    /// Intervals with what they hold.
    fn read_wanted(
        &self,
        wanted: Vec<IntervalChanges>,
    ) -> Result<Vec<(CachedInterval, Range<usize>)>> {
        let read = |own: IntervalChanges| {
            let IntervalChanges {
                place,
                interval,
                changes,
            } = own;
            let held = match interval {
                Some(interval) => CachedInterval { place, interval },
                None => {
                    let leaf = Arc::clone(&place.leaf);
                    let lower = leaf.lower(place.at);
                    self.read_found(place, lower)?
                }
            };
            Ok((held, changes))
        };
        wanted.into_iter().map(read).collect()
    }

    /// Changes the form of an interval in place. What was cached stays so; what was not, `read`, is
    /// worth free room only.
    fn splice(
        &self,
        form: &mut Option<Arc<Interval>>,
        read: Option<Arc<Interval>>,
        splices: &[PairEdit<'_>],
    ) {
        let fits = |read: &Arc<Interval>| form.is_none() && self.cache.has_room_for(read);
        if let Some(read) = read.filter(fits) {
            *form = Some(read);
        }
        if let Some(shared) = form {
            let own = Arc::make_mut(shared);
            let (slabs, roomy) = (self.cache.slabs(), self.cache.is_roomy());
            splices
                .iter()
                .rev()
                .for_each(|splice| own.splice(splice, slabs, roomy));
            if !self.cache.takes(own) {
                *form = None;
            }
        }
    }

    /// The intervals that pairs become.
    fn result_of(&self, held: &CachedInterval, whole: &Whole) -> Vec<NewInterval> {
        let CachedInterval { place, interval } = held;
        let cached = place.leaf.peek(place.at).is_some() || self.cache.has_room_for(interval);
        self.intervals_of(place.lower(), &whole.bytes, &whole.pairs, cached)
    }

    /// The edits of some plans, in the order of their keys. Each moves what is behind it.
    fn edits<'p>(
        &self,
        places: &[IntervalRef],
        plans: &'p Plans<'_>,
        changes: &'p MergeChanges,
    ) -> Vec<Edit<'p>> {
        let _share = self.index.share();
        let mut edits = Vec::with_capacity(2 * plans.steps.len());
        let mut moved = 0_u64;
        // The leaf that was looked at last, and where it begins.
        let mut known: Option<(Arc<IndexLeaf>, u64)> = None;
        for plan in &plans.list {
            let place = &places[plan.number];
            let of_known = known
                .as_ref()
                .filter(|own| Arc::ptr_eq(&own.0, &place.leaf));
            let (len, offset) = match of_known {
                Some((leaf, begin)) => (place.len(), begin + leaf.len_before(place.at)),
                None => {
                    let (now, offset) = self.index.locate(SeekTarget::At(place.lower()));
                    let begin = offset - now.leaf.len_before(now.at);
                    let len = now.len();
                    known = Some((now.leaf, begin));
                    (len, offset)
                }
            };
            plans.add_edits(plan, offset.wrapping_add(moved), changes, &mut edits);
            moved = moved.wrapping_add(plan.len as u64).wrapping_sub(len);
        }
        edits
    }

    /// Joins an interval of few pairs with the one beside it. Both together are less than what is
    /// cut.
    fn join_with_next(&self, lower: &[u8]) {
        let ahead = self.index.ahead();
        let place = self.index.find(SeekTarget::At(lower));
        // The one in front of it may have been joined with it just now.
        let Some(next) = place.next().filter(|_| place.lower() == lower) else {
            return;
        };
        let len = place.len() + next.len();
        if len > BYTES_MAX as u64 {
            return;
        }
        let joined = NewInterval {
            key: lower.to_vec(),
            len,
            extents: place
                .leaf
                .extents(place.at)
                .saturating_add(next.leaf.extents(next.at)),
            interval: None,
        };
        let joined = IntervalEdit::others(lower, 2, vec![joined]);
        let ready = self.index.prepare(&ahead, vec![joined]);
        drop(self.index.make(&mut ahead.alone(), ready));
    }

    /// Writes an interval anew if it lies in several extents; says whether it did. The caller holds
    /// the merge lock.
    pub(in super::super) fn defragment(&self, held: &CachedInterval) -> Result<bool> {
        let CachedInterval { place, interval } = held;
        self.prepare(place, place)?;
        if self.extent_count(place)? < 2 {
            return Ok(false);
        }
        self.begin_change();
        let edits = || {
            let _share = self.index.share();
            let (now, offset) = self.index.locate(SeekTarget::At(place.lower()));
            let (len, data) = (now.len(), interval.encoded(0..interval.len()));
            vec![
                Edit::Collapse { offset, len },
                Edit::InsertMarked { offset, data },
            ]
        };
        self.space.apply_under(edits, || ())?;
        Ok(true)
    }

    /// Removes all pairs of the interval, unread; false when somebody has cut it.
    pub(in super::super) fn clear(&self, place: &IntervalRef) -> Result<bool> {
        self.prepare(place, place)?;
        self.begin_change();
        let held = Cell::new(None);
        let edits = || {
            let ahead = self.index.ahead();
            let (now, offset) = self.index.locate(SeekTarget::At(place.lower()));
            if (now.lower(), now.upper()) != (place.lower(), place.upper()) {
                return Vec::new();
            }
            held.set(Some(ahead));
            let len = now.len();
            vec![Edit::Collapse { offset, len }]
        };
        let cleared = || IntervalEdit::others(place.lower(), 1, Vec::new());
        let alone = || {
            let ahead = held.take()?;
            let ready = self.index.prepare(&ahead, vec![cleared()]);
            Some((ready, ahead.alone()))
        };
        let Some((ready, mut alone)) = self.space.apply_under(edits, alone)? else {
            return Ok(false);
        };
        let made = self.index.make(&mut alone, ready);
        drop(alone);
        drop(made);
        Ok(true)
    }

    /// Brings what the index of the space has of some intervals, from one to another, into memory,
    /// so that who holds the lock of this index mostly finds it there.
    fn prepare(&self, first: &IntervalRef, last: &IntervalRef) -> Result<()> {
        let share = self.index.share();
        let (_, begin) = self.index.locate(SeekTarget::At(first.lower()));
        let (last, end) = self.index.locate(SeekTarget::At(last.lower()));
        drop(share);
        Ok(self.space.prepare(begin, end - begin + last.len())?)
    }

    /// Extents of an interval, for which was [prepared](Partition::prepare).
    fn extent_count(&self, place: &IntervalRef) -> Result<usize> {
        let _share = self.index.share();
        let (place, offset) = self.index.locate(SeekTarget::At(place.lower()));
        Ok(self.space.extent_count(offset, place.len())?)
    }

    /// Whether an interval is written anew when it changes. Its extents are counted only where what
    /// is known of them leaves that open.
    fn is_fragmented(&self, place: &IntervalRef, interval: &Interval) -> Result<bool> {
        let is_many = |extents| extents >= FRAGMENTS_MIN && extents > interval.len() / 2;
        if !is_many(place.leaf.extents(place.at).into()) {
            return Ok(false);
        }
        let extents = self.extent_count(place)?;
        place
            .leaf
            .set_extents(place.at, u8::try_from(extents).unwrap_or(EXTENTS_UNKNOWN));
        Ok(is_many(extents))
    }
}

/// What becomes of some intervals, and how. Their steps lie together, since memory for a few bytes
/// each costs more than what is done with them.
struct Plans<'c> {
    list: Vec<Plan>,
    splices: Vec<PairEdit<'c>>,
    steps: Vec<Step>,
}

/// What becomes of an interval, and how.
struct Plan {
    /// Which of the intervals it is.
    number: usize,
    /// Its part of all splices, and of all steps.
    splices: Range<usize>,
    steps: Range<usize>,
    /// Pairs and bytes of the interval afterwards.
    count: usize,
    len: usize,
    old_len: usize,
    /// Whether the form can be changed in place.
    splices_form: bool,
    /// Whether all pairs are written anew.
    rewrites: bool,
    /// All pairs, where they are needed.
    whole: Option<Whole>,
}

/// All pairs of an interval, and where they lie in these bytes.
#[derive(Default)]
struct Whole {
    bytes: Vec<u8>,
    pairs: Vec<PairRef>,
}

/// A place of the interval at which bytes are removed, and then those of some changes inserted.
struct Step {
    offset: usize,
    removed: usize,
    inserted: Range<usize>,
}

impl<'c> Plans<'c> {
    /// Room for the plans of so many intervals and changes.
    fn new(intervals: usize, changes: usize) -> Plans<'c> {
        Plans {
            list: Vec::with_capacity(intervals),
            splices: Vec::with_capacity(changes),
            steps: Vec::with_capacity(changes),
        }
    }

    /// Adds the plan for some changes of an interval, if they change anything.
    fn add(
        &mut self,
        number: usize,
        interval: &Interval,
        changes: &'c MergeChanges,
        range: Range<usize>,
        rewrites: bool,
    ) {
        let old_len = interval.start(interval.len());
        let first = (self.splices.len(), self.steps.len());
        let (mut count, mut len) = (interval.len(), old_len);
        let (mut puts, mut put_bytes) = (0, 0);
        for number in range {
            let key = changes.key(number);
            let at = interval.count_below(key);
            let removes = at < interval.len() && interval.key(at) == key;
            let put = changes.pair(number);
            let is_same = match (removes, put) {
                (true, Some((pair, _))) => pair == interval.encoded(at..at + 1),
                (removes, put) => !removes && put.is_none(),
            };
            if is_same {
                continue;
            }
            let removed = if removes {
                interval.start(at + 1) - interval.start(at)
            } else {
                0
            };
            let change = &changes.list[number];
            let inserted = change.start..change.end;
            puts += usize::from(change.is_put);
            put_bytes += inserted.len();
            // What is in front has changed already.
            let offset = interval.start(at) + len - old_len;
            count = count + usize::from(change.is_put) - usize::from(removes);
            len = len + inserted.len() - removed;
            add_step(&mut self.steps, first.1, (offset, removed, inserted));
            self.splices.push(PairEdit { at, removes, put });
        }
        let splices = first.0..self.splices.len();
        if splices.is_empty() {
            return;
        }
        let is_cut = count > PAIRS_MAX || (count > 1 && len > BYTES_MAX);
        let splices_form = !is_cut && count > 0 && interval.takes(puts, put_bytes);
        let needs_whole = rewrites || !splices_form;
        let whole =
            needs_whole.then(|| Whole::of(interval, &self.splices[splices.clone()], count, len));
        self.list.push(Plan {
            number,
            splices,
            steps: first.1..self.steps.len(),
            count,
            len,
            old_len,
            splices_form,
            rewrites,
            whole,
        });
    }

    /// Bytes that go into the space.
    fn written(&self) -> u64 {
        let inserted = |steps: &Range<usize>| {
            let steps = self.steps[steps.clone()].iter();
            steps.map(|step| step.inserted.len()).sum()
        };
        let written = |plan: &Plan| match plan.rewrites {
            true => plan.len,
            false => inserted(&plan.steps),
        };
        self.list.iter().map(|plan| written(plan) as u64).sum()
    }

    /// Adds the edits of an interval that begins at an offset.
    fn add_edits<'p>(
        &self,
        plan: &'p Plan,
        begin: u64,
        changes: &'p MergeChanges,
        edits: &mut Vec<Edit<'p>>,
    ) {
        let mut add = |offset: usize, removed: usize, data: &'p [u8]| {
            let offset = begin + offset as u64;
            if removed > 0 {
                let len = removed as u64;
                edits.push(Edit::Collapse { offset, len });
            }
            if !data.is_empty() {
                edits.push(Edit::InsertMarked { offset, data });
            }
        };
        match plan.whole.as_ref().filter(|_| plan.rewrites) {
            Some(whole) => add(0, plan.old_len, &whole.bytes),
            None => {
                for step in &self.steps[plan.steps.clone()] {
                    let data = &changes.pairs[step.inserted.clone()];
                    add(step.offset, step.removed, data);
                }
            }
        }
    }
}

/// Adds a step of the interval whose steps begin at `first`, or makes its last one longer, if it is
/// at the same place.
fn add_step(
    steps: &mut Vec<Step>,
    first: usize,
    (offset, removed, inserted): (usize, usize, Range<usize>),
) {
    if let Some(last) = steps[first..].last_mut()
        && last.offset + last.inserted.len() == offset
        && (inserted.is_empty() || last.inserted.is_empty() || last.inserted.end == inserted.start)
    {
        last.removed += removed;
        last.inserted = match (last.inserted.is_empty(), inserted.is_empty()) {
            (_, true) => last.inserted.clone(),
            (true, false) => inserted,
            (false, false) => last.inserted.start..inserted.end,
        };
        return;
    }
    steps.push(Step {
        offset,
        removed,
        inserted,
    });
}

impl Plan {
    /// In how many extents the interval lies at most afterwards, about: each step cuts one in two
    /// and adds one.
    fn extents(&self, before: u8) -> u8 {
        let more = u8::try_from(2 * self.steps.len()).unwrap_or(EXTENTS_UNKNOWN);
        if self.rewrites {
            1
        } else {
            before.saturating_add(more)
        }
    }
}

impl Whole {
    /// All pairs, so many and so long, as they will be after some changes.
    fn of(interval: &Interval, splices: &[PairEdit<'_>], count: usize, len: usize) -> Whole {
        let mut whole = Whole {
            bytes: Vec::with_capacity(len),
            pairs: Vec::with_capacity(count),
        };
        let mut kept = 0;
        for splice in splices {
            whole.keep(interval, kept..splice.at);
            kept = splice.at + usize::from(splice.removes);
            if let Some((bytes, pair)) = splice.put {
                let start = whole.bytes.len();
                whole.pairs.push(PairRef { start, ..pair });
                whole.bytes.extend_from_slice(bytes);
            }
        }
        whole.keep(interval, kept..interval.len());
        whole
    }

    /// Takes over pairs of the interval.
    fn keep(&mut self, interval: &Interval, range: Range<usize>) {
        if range.is_empty() {
            return;
        }
        let (from, to) = (interval.start(range.start), self.bytes.len());
        self.bytes
            .extend_from_slice(interval.encoded(range.clone()));
        for at in range {
            let pair = interval.pair(at);
            let start = pair.start - from + to;
            self.pairs.push(PairRef { start, ..pair });
        }
    }
}
