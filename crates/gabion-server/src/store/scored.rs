//! Sorted sets: members with a score, and their order by score and then by member.
//!
//! # Idea
//! What belongs to a member is its score. A small set is put in order when it is read. A large
//! one has a second record for each member whose key begins with the score
//! ([keys](super::elements)), so that a range of scores is a range of keys. Places are counted from
//! the nearer end: that costs as many steps as there are members before.
//!
//! # Invariants
//! - I1. A large set has one record in the order for each member, at its score.

use std::collections::BTreeMap;
use std::ops::Bound;

use super::elements::{SCORE, key, ordered_score, read, room_prefix, score_of, value};
use super::keys::after_prefix;
use super::members::{DAMAGED, Members};
use super::meta::{KeyRecord, KeyType, SaveOutcome};
use super::work::{Room, Work};
use crate::fault::Result;

/// A member and its score.
pub(crate) type ScoredMember = (Vec<u8>, f64);

/// A part of a sorted set.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum SortedSetRange {
    /// From one place to another, the last one included.
    Places(u64, u64),
    /// From one score to another.
    Scores(Bound<f64>, Bound<f64>),
    /// From one member to another, where all have the same score.
    Members(Bound<Vec<u8>>, Bound<Vec<u8>>),
}

impl SortedSetRange {
    /// Everything.
    pub(crate) const ALL: SortedSetRange = SortedSetRange::Places(0, u64::MAX);

    fn has(&self, place: u64, score: f64, member: &[u8]) -> bool {
        match self {
            SortedSetRange::Places(first, last) => (*first..=*last).contains(&place),
            SortedSetRange::Scores(min, max) => is_within(min, max, &score),
            SortedSetRange::Members(min, max) => is_within(&as_slice(min), &as_slice(max), &member),
        }
    }
}

fn as_slice(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
    match bound {
        Bound::Included(member) => Bound::Included(member),
        Bound::Excluded(member) => Bound::Excluded(member),
        Bound::Unbounded => Bound::Unbounded,
    }
}

fn is_within<T: PartialOrd>(min: &Bound<T>, max: &Bound<T>, value: &T) -> bool {
    let is_above = match min {
        Bound::Included(min) => value >= min,
        Bound::Excluded(min) => value > min,
        Bound::Unbounded => true,
    };
    let is_below = match max {
        Bound::Included(max) => value <= max,
        Bound::Excluded(max) => value < max,
        Bound::Unbounded => true,
    };
    is_above && is_below
}

/// An open sorted set: its content in memory, until it is saved.
#[derive(Debug)]
pub(crate) struct SortedSet {
    members: Members,
    /// Changes of the order: keys to write or to remove, each with its value.
    order: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
}

/// The score that belongs to a member.
fn decode(payload: &[u8]) -> Result<f64> {
    let bytes = payload.first_chunk().ok_or(DAMAGED)?;
    Ok(f64::from_le_bytes(*bytes))
}

impl SortedSet {
    /// The set of a record.
    ///
    /// # Errors
    /// As [`Members::of`].
    pub(crate) fn of(space: u16, meta: Option<&KeyRecord>) -> Result<SortedSet> {
        Ok(SortedSet::new(Members::of(
            space,
            meta,
            KeyType::SortedSet,
        )?))
    }

    /// An empty set, in the place of whatever the key is.
    pub(crate) fn empty(space: u16) -> SortedSet {
        SortedSet::new(Members::empty(space, KeyType::SortedSet))
    }

    fn new(members: Members) -> SortedSet {
        SortedSet {
            members,
            order: BTreeMap::new(),
        }
    }

    /// Has the key expire at a moment, or never, once it is saved.
    pub(crate) fn expire(&mut self, expires_ms: Option<u64>) {
        self.members.expire(expires_ms);
    }

    /// How many members there are.
    pub(crate) fn count(&self) -> u64 {
        self.members.count()
    }

    /// Its members, without their order.
    pub(crate) fn members(&self) -> &Members {
        &self.members
    }

    /// A member and its score, of what the members have.
    ///
    /// # Errors
    /// When it is damaged.
    pub(crate) fn scored((member, payload): (Vec<u8>, Vec<u8>)) -> Result<ScoredMember> {
        let score = decode(&payload)?;
        Ok((member, score))
    }

    /// The score of a member.
    ///
    /// # Errors
    /// Of the store.
    pub(crate) fn score(&self, work: &mut Work, member: &[u8]) -> Result<Option<f64>> {
        let found = self.members.get(work, member)?;
        found.as_deref().map(decode).transpose()
    }

    fn order_key(&self, score: f64, member: &[u8]) -> Vec<u8> {
        // The number may not be given out yet; it is put in front when the set is saved.
        key(0, 0, SCORE, ordered_score(score), member)
    }

    /// Gives a member a score; returns the one that it had.
    ///
    /// # Errors
    /// Of the store.
    pub(crate) fn set(
        &mut self,
        work: &mut Work,
        member: &[u8],
        score: f64,
    ) -> Result<Option<f64>> {
        let old = self.members.set(work, member, &score.to_le_bytes())?;
        let old = old.as_deref().map(decode).transpose()?;
        if old == Some(score) {
            return Ok(old);
        }
        if let Some(old) = old {
            self.order.insert(self.order_key(old, member), None);
        }
        let new = self.order_key(score, member);
        self.order.insert(new, Some(value(member, &[])));
        Ok(old)
    }

    /// Removes a member; returns its score.
    ///
    /// # Errors
    /// Of the store.
    pub(crate) fn remove(&mut self, work: &mut Work, member: &[u8]) -> Result<Option<f64>> {
        let old = self.members.remove(work, member)?;
        let old = old.as_deref().map(decode).transpose()?;
        if let Some(old) = old {
            self.order.insert(self.order_key(old, member), None);
        }
        Ok(old)
    }

    /// Shows the members of a part in their order, or from the last to the first, as long as
    /// `take` wants them. Places count from the end that is first. The set must not have been
    /// changed since it was opened.
    ///
    /// # Errors
    /// Of the store.
    pub(crate) fn visit(
        &self,
        work: &mut Work,
        range: &SortedSetRange,
        is_reverse: bool,
        mut take: impl FnMut(&[u8], f64) -> bool,
    ) -> Result<()> {
        let Some(number) = self.members.number() else {
            let all = self.in_order(work, is_reverse)?;
            let numbered = (0..).zip(&all);
            let mut part =
                numbered.filter(|(place, (member, score))| range.has(*place, *score, member));
            part.all(|(_, (member, score))| take(member, *score));
            return Ok(());
        };
        let room = room_prefix(self.members.space(), number, SCORE);
        let mut lower = room.clone();
        let mut upper = after_prefix(&room);
        let (mut first, mut last) = (0, u64::MAX);
        match range {
            SortedSetRange::Places(from, to) => {
                let count = self.count();
                let to = (*to).min(count.saturating_sub(1));
                if *from > to || count == 0 {
                    return Ok(());
                }
                (first, last) = (*from, to);
                // What is much nearer to the other end is read from there, and turned round.
                let behind = count - 1 - last;
                if behind < first / 2 {
                    let mirrored = SortedSetRange::Places(behind, count - 1 - first);
                    let part = self.part(work, &mirrored, !is_reverse)?;
                    let mut turned = part.iter().rev();
                    turned.all(|(member, score)| take(member, *score));
                    return Ok(());
                }
            }
            SortedSetRange::Scores(min, max) => {
                let at = |score: f64, past: u64| {
                    let number_at = ordered_score(score).saturating_add(past);
                    key(self.members.space(), number, SCORE, number_at, &[])
                };
                match min {
                    Bound::Included(min) => lower = at(*min, 0),
                    Bound::Excluded(min) => lower = at(*min, 1),
                    Bound::Unbounded => {}
                }
                match max {
                    Bound::Included(max) => upper = Some(at(*max, 1)),
                    Bound::Excluded(max) => upper = Some(at(*max, 0)),
                    Bound::Unbounded => {}
                }
            }
            SortedSetRange::Members(min, max) => {
                let Some((_, score)) = self.end(work, false)? else {
                    return Ok(());
                };
                let at = |member: &[u8], past: &[u8]| {
                    let space = self.members.space();
                    let mut key = key(space, number, SCORE, ordered_score(score), member);
                    key.extend_from_slice(past);
                    key
                };
                match min {
                    Bound::Included(min) => lower = at(min, &[]),
                    Bound::Excluded(min) => lower = at(min, &[0]),
                    Bound::Unbounded => {}
                }
                match max {
                    Bound::Included(max) => upper = Some(at(max, &[0])),
                    Bound::Excluded(max) => upper = Some(at(max, &[])),
                    Bound::Unbounded => {}
                }
            }
        }
        if upper.as_ref().is_some_and(|upper| *upper <= lower) {
            return Ok(());
        }
        let mut pairs = work.range(Room::Elements, Bound::Included(&lower), upper.as_deref())?;
        let mut place = 0;
        loop {
            let next = match is_reverse {
                false => pairs.next(),
                true => pairs.next_back(),
            };
            let Some(pair) = next else {
                return Ok(());
            };
            let (key, value) = pair?;
            if place >= first {
                let (score, member, _) = read(&key, &value).ok_or(DAMAGED)?;
                if !take(member, score_of(score)) {
                    return Ok(());
                }
            }
            if place == last {
                return Ok(());
            }
            place += 1;
        }
    }

    /// All members of a small set in order.
    fn in_order(&self, work: &mut Work, is_reverse: bool) -> Result<Vec<ScoredMember>> {
        let mut all = Vec::new();
        let mut failed = Ok(());
        self.members.visit(work, |member, payload| {
            match decode(payload) {
                Ok(score) => all.push((member.to_vec(), score)),
                Err(error) => failed = Err(error),
            }
            failed.is_ok()
        })?;
        failed?;
        sort(&mut all);
        if is_reverse {
            all.reverse();
        }
        Ok(all)
    }

    /// The member at one end.
    ///
    /// # Errors
    /// Of the store.
    pub(crate) fn end(&self, work: &mut Work, is_last: bool) -> Result<Option<ScoredMember>> {
        Ok(self
            .part(work, &SortedSetRange::Places(0, 0), is_last)?
            .pop())
    }

    /// The members of a part.
    ///
    /// # Errors
    /// Of the store.
    pub(crate) fn part(
        &self,
        work: &mut Work,
        range: &SortedSetRange,
        is_reverse: bool,
    ) -> Result<Vec<ScoredMember>> {
        let mut part = Vec::new();
        self.visit(work, range, is_reverse, |member, score| {
            part.push((member.to_vec(), score));
            true
        })?;
        Ok(part)
    }

    /// How many members a part has.
    ///
    /// # Errors
    /// Of the store.
    pub(crate) fn count_of(&self, work: &mut Work, range: &SortedSetRange) -> Result<u64> {
        let mut count = 0;
        self.visit(work, range, false, |_, _| {
            count += 1;
            true
        })?;
        Ok(count)
    }

    /// The place of a member in the order, and its score. Counts from it to the nearer end, in
    /// turns towards both.
    ///
    /// # Errors
    /// Of the store.
    pub(crate) fn place(&self, work: &mut Work, member: &[u8]) -> Result<Option<(u64, f64)>> {
        let Some(score) = self.score(work, member)? else {
            return Ok(None);
        };
        let Some(number) = self.members.number() else {
            let all = self.in_order(work, false)?;
            let place = all.iter().position(|(known, _)| known == member);
            return Ok(place.map(|place| (place as u64, score)));
        };
        let space = self.members.space();
        let room = room_prefix(space, number, SCORE);
        let end = after_prefix(&room);
        let here = key(space, number, SCORE, ordered_score(score), member);
        let (mut before, mut behind) = (0, 0);
        let (mut from, mut to) = (here.clone(), here);
        loop {
            let mut count = 0;
            let pairs = work.range(Room::Elements, Bound::Included(&room), Some(&from))?;
            for pair in pairs.rev().take(STRIDE) {
                from = pair?.0.to_vec();
                count += 1;
            }
            before += count;
            if count < STRIDE as u64 {
                return Ok(Some((before, score)));
            }
            count = 0;
            let pairs = work.range(Room::Elements, Bound::Excluded(&to), end.as_deref())?;
            let mut last = None;
            for pair in pairs.take(STRIDE) {
                last = Some(pair?.0.to_vec());
                count += 1;
            }
            to = last.unwrap_or(to);
            behind += count;
            if count < STRIDE as u64 {
                return Ok(Some((self.count().saturating_sub(behind + 1), score)));
            }
        }
    }

    /// Writes what has changed: see [`Members::save_to`].
    ///
    /// # Errors
    /// As there.
    pub(crate) fn save_to(self, work: &mut Work, of_user: &[u8]) -> Result<SaveOutcome> {
        let space = self.members.space();
        if let Some(number) = self.members.number()
            && !self.members.is_empty()
        {
            if self.members.has_grown() {
                let mut all = Vec::new();
                self.members.visit(work, |member, payload| {
                    all.push((member.to_vec(), payload.to_vec()));
                    true
                })?;
                for (member, payload) in all {
                    let score = ordered_score(decode(&payload)?);
                    let key = key(space, number, SCORE, score, &member);
                    let value = value(&member, &[]);
                    work.write(Room::Elements, &key, Some(&value))?;
                }
            } else {
                let room = room_prefix(space, number, SCORE);
                for (key, value) in &self.order {
                    let rest = key.get(room.len()..).unwrap_or_default();
                    let key = [&room[..], rest].concat();
                    work.write(Room::Elements, &key, value.as_deref())?;
                }
            }
        }
        self.members.save_to(work, of_user)
    }
}

/// Steps towards one end before the other one has its turn.
const STRIDE: usize = 128;

/// Puts members into the order of a sorted set.
pub(crate) fn sort(members: &mut [ScoredMember]) {
    members.sort_by(|one, other| {
        let by_score = one.1.partial_cmp(&other.1);
        by_score
            .unwrap_or(std::cmp::Ordering::Equal)
            .then_with(|| one.0.cmp(&other.0))
    });
}
