//! Changes of intervals: what a merge, a range delete or a compaction makes of their pairs.
//!
//! # Idea
//! A change is planned without any lock: all pairs of the interval as they will be, and the steps
//! that take the space there, each of which removes bytes at one place and inserts others. Then the
//! space and the index change together, for as long as their trees take (P2 of the partition).

use std::ops::Range;

use gabion_flex::{Alone, Edit};

use super::{Held, Partition};
use crate::engine::flexdb::index::{New, Place, Seek};
use crate::engine::flexdb::interval::{BYTES_MAX, Interval, PAIRS_MAX, Pair, put_pair, tag_of};
use crate::types::hash_key;
use crate::{Result, Slice};

/// An interval that has this many extents, and more than half as many as pairs, is written anew
/// when it changes (the paper's rule, section 5.2).
const FRAGMENTS_MIN: usize = 4;

/// What a merge does with a key.
#[derive(Clone, Debug)]
pub(in super::super) struct Change {
    pub(in super::super) key: Vec<u8>,
    /// The new value; `None` removes the key.
    pub(in super::super) value: Option<Slice>,
}

impl Partition {
    /// Changes pairs of some intervals of one leaf, in the order of their keys, which the caller
    /// has just looked up (P2): all of them, or none if this fails. The changes of each are in the
    /// order of their keys, which belong to the interval. Returns how many bytes were written.
    pub(in super::super) fn change(&self, wanted: &[(Held, Vec<Change>)]) -> Result<u64> {
        let mut plans = Vec::with_capacity(wanted.len());
        for (held, changes) in wanted {
            plans.extend(self.plan(held, changes)?);
        }
        let steps = plans.iter().flat_map(|plan| &plan.steps);
        let written = steps.map(|step| step.inserted.len() as u64).sum();
        if plans.is_empty() {
            return Ok(0);
        }
        let new: Vec<Vec<New>> = plans.iter().map(|plan| self.result_of(plan)).collect();
        self.begin_change();
        let mut alone = self
            .space
            .apply_under(|| self.edits(&plans), || self.index.alone())?;
        let mut is_large = false;
        let mut small = Vec::new();
        // From the last one on: where an interval goes, the one behind it may begin elsewhere.
        for (plan, new) in plans.iter().zip(new).rev() {
            if plan.pairs.len() < PAIRS_MAX / 4 {
                small.extend(new.last().map(|new| new.key.clone()));
            }
            is_large |= self
                .index
                .replace(&mut alone, plan.held.place.lower(), 1, new);
        }
        for lower in small {
            self.join_with_next(&mut alone, &lower);
        }
        drop(alone);
        if is_large {
            self.index.cut_branch(plans[0].held.place.lower());
        }
        self.cache.shrink();
        Ok(written)
    }

    /// What becomes of an interval; `None` if nothing changes.
    fn plan<'h>(&self, held: &'h Held, changes: &[Change]) -> Result<Option<Plan<'h>>> {
        let Held { place, interval } = held;
        let rewrites = self.is_fragmented(place, interval)?;
        Ok(Plan::new(held, changes, rewrites))
    }

    /// The intervals that a plan leaves. What was cached stays so; what was not is worth free room
    /// only.
    fn result_of(&self, plan: &Plan<'_>) -> Vec<New> {
        let Held { place, interval } = plan.held;
        let cached = place.leaf.peek(place.at).is_some() || self.cache.has_room_for(interval);
        self.intervals_of(place.lower(), &plan.bytes, &plan.pairs, cached)
    }

    /// The edits of some plans, in the order of their keys. Each moves what is behind it.
    fn edits<'p>(&self, plans: &'p [Plan<'_>]) -> Vec<Edit<'p>> {
        let _share = self.index.share();
        let mut edits = Vec::new();
        let mut moved = 0_u64;
        for plan in plans {
            let (now, offset) = self.index.locate(Seek::At(plan.held.place.lower()));
            plan.add_edits(offset.wrapping_add(moved), &mut edits);
            moved = moved
                .wrapping_add(plan.bytes.len() as u64)
                .wrapping_sub(now.len());
        }
        edits
    }

    /// Joins an interval of few pairs with the one beside it. Both together are less than what is
    /// cut.
    fn join_with_next(&self, alone: &mut Alone<'_, ()>, lower: &[u8]) {
        let place = self.index.find(Seek::At(lower));
        // The one in front of it may have been joined with it just now.
        let Some(next) = place.next().filter(|_| place.lower() == lower) else {
            return;
        };
        let len = place.len() + next.len();
        if len > BYTES_MAX as u64 {
            return;
        }
        let joined = New {
            key: lower.to_vec(),
            len,
            interval: None,
        };
        self.index.replace(alone, lower, 2, vec![joined]);
    }

    /// Writes an interval anew if it lies in several extents; says whether it did. The caller holds
    /// the merge lock.
    pub(in super::super) fn defragment(&self, held: &Held) -> Result<bool> {
        let Held { place, interval } = held;
        if self.extent_count(place)? < 2 {
            return Ok(false);
        }
        self.begin_change();
        let edits = || {
            let _share = self.index.share();
            let (now, offset) = self.index.locate(Seek::At(place.lower()));
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
    pub(in super::super) fn clear(&self, place: &Place) -> Result<bool> {
        self.prepare(place)?;
        self.begin_change();
        let mut held = None;
        let edits = || {
            let alone = self.index.alone();
            let (now, offset) = self.index.locate(Seek::At(place.lower()));
            if (now.lower(), now.upper()) != (place.lower(), place.upper()) {
                return Vec::new();
            }
            held = Some(alone);
            let len = now.len();
            vec![Edit::Collapse { offset, len }]
        };
        self.space.apply_under(edits, || ())?;
        let Some(mut alone) = held else {
            return Ok(false);
        };
        self.index.replace(&mut alone, place.lower(), 1, Vec::new());
        Ok(true)
    }

    /// Brings what the index of the space has of an interval into memory, so that who holds the
    /// lock of this index mostly finds it there.
    fn prepare(&self, place: &Place) -> Result<()> {
        let share = self.index.share();
        let (now, offset) = self.index.locate(Seek::At(place.lower()));
        drop(share);
        Ok(self.space.prepare(offset, now.len())?)
    }

    fn extent_count(&self, place: &Place) -> Result<usize> {
        self.prepare(place)?;
        let _share = self.index.share();
        let (place, offset) = self.index.locate(Seek::At(place.lower()));
        Ok(self.space.extent_count(offset, place.len())?)
    }

    fn is_fragmented(&self, place: &Place, interval: &Interval) -> Result<bool> {
        let extents = self.extent_count(place)?;
        Ok(extents >= FRAGMENTS_MIN && extents > interval.len() / 2)
    }
}

/// What becomes of an interval, and the edits that make it so.
struct Plan<'h> {
    held: &'h Held,
    /// All pairs of the interval, and where they lie in these bytes.
    bytes: Vec<u8>,
    pairs: Vec<Pair>,
    steps: Vec<Step>,
}

/// A place at which bytes are removed, and those from a range of the plan inserted.
#[derive(Default)]
struct Step {
    removed: u64,
    inserted: Range<usize>,
}

impl<'h> Plan<'h> {
    /// The plan for some changes; `None` if they change nothing.
    fn new(held: &'h Held, changes: &[Change], rewrites: bool) -> Option<Plan<'h>> {
        let interval = &*held.interval;
        let old = interval.encoded(0..interval.len()).len();
        let mut plan = Plan {
            held,
            bytes: Vec::with_capacity(old + old / 2),
            pairs: Vec::with_capacity(interval.len() + changes.len()),
            steps: vec![Step::default()],
        };
        let mut changed = false;
        let mut at = 0;
        for change in changes {
            let below = interval.count_below(&change.key);
            plan.keep(interval, at..below, rewrites);
            at = below;
            let is_there = at < interval.len() && interval.key(at) == change.key;
            if is_there {
                let same = change.value.as_deref() == Some(interval.value_bytes(at));
                if same {
                    plan.keep(interval, at..at + 1, rewrites);
                    at += 1;
                    continue;
                }
                plan.step().removed += interval.encoded(at..at + 1).len() as u64;
                at += 1;
                changed = true;
            }
            if let Some(value) = &change.value {
                plan.put(&change.key, value);
                changed = true;
            }
        }
        plan.keep(interval, at..interval.len(), rewrites);
        changed.then_some(plan)
    }

    /// The step under way.
    fn step(&mut self) -> &mut Step {
        let last = self.steps.len() - 1;
        &mut self.steps[last]
    }

    /// Puts a new pair behind the others.
    fn put(&mut self, key: &[u8], value: &[u8]) {
        let start = self.bytes.len();
        let head = put_pair(&mut self.bytes, key, value);
        self.pairs.push(Pair {
            start,
            head,
            key_len: u16::try_from(key.len()).unwrap_or(u16::MAX),
            tag: tag_of(hash_key(key)),
        });
        self.step().inserted.end = self.bytes.len();
    }

    /// Keeps pairs of the interval: in their place, or in another one if all is written anew.
    fn keep(&mut self, interval: &Interval, range: Range<usize>, rewrites: bool) {
        let bytes = interval.encoded(range.clone());
        if bytes.is_empty() {
            return;
        }
        let (from, to) = (interval.start(range.start), self.bytes.len());
        for at in range {
            let pair = interval.pair(at);
            let start = pair.start - from + to;
            self.pairs.push(Pair { start, ..pair });
        }
        self.bytes.extend_from_slice(bytes);
        let end = self.bytes.len();
        let step = self.step();
        if rewrites {
            step.inserted.end = end;
            step.removed += bytes.len() as u64;
        } else {
            self.steps.push(Step {
                removed: 0,
                inserted: end..end,
            });
        }
    }

    /// Adds the edits of an interval that begins at an offset.
    fn add_edits<'p>(&'p self, begin: u64, edits: &mut Vec<Edit<'p>>) {
        for step in &self.steps {
            let offset = begin + step.inserted.start as u64;
            let (len, data) = (step.removed, &self.bytes[step.inserted.clone()]);
            if len > 0 {
                edits.push(Edit::Collapse { offset, len });
            }
            if !data.is_empty() {
                edits.push(Edit::InsertMarked { offset, data });
            }
        }
    }
}
