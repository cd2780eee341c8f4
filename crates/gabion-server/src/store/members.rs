//! Members, each with a payload: the base of sets, sorted sets and hashes.
//!
//! # Idea
//! A small collection is a [row of pairs](super::packed) in the record of its key. Once the row
//! is longer than the store's bound, each member becomes a record of its own
//! ([keys](super::elements)), and the collection stays so until it is deleted. A command opens the
//! collection, reads and changes it here, and saves it: then only what has changed is written.
//!
//! # Layout of the body of a large collection
//! | offset | size | what |
//! |---|---|---|
//! | 0 | 8 | how many members there are |
//! | 8 | 8, hashes only | the first moment at which a field may expire, or 0 |
//!
//! # Invariants
//! - I1. `pending` has what a large collection changes; reads look there first.
//! - I2. The number of a large collection has a record for each member, and no others; `count`
//!   counts them.

use std::collections::BTreeMap;
use std::ops::Bound;

use super::elements::{MEMBER, key, member_key, read, room_prefix, value};
use super::keys::after_prefix;
use super::meta::{KeyRecord, KeyType, RecordHead, SaveOutcome};
use super::packed;
use super::work::{Room, Work};
use crate::fault::{Fault, Result};
use crate::random;

/// A member and its payload.
pub(crate) type MemberPair = (Vec<u8>, Vec<u8>);

/// Collections up to this size give random members from all that they have.
const FAIR_COUNT_MAX: u64 = 256;

/// Members of large ones that share a part of the places, on average, and at most.
const PART_COUNT: u64 = 8;
const PART_COUNT_MAX: u64 = 40;

/// Choices after which there are no members where so many should be: each succeeds with a chance
/// of one in five.
const TRIES_MAX: usize = 10_000;

#[derive(Debug)]
enum Form {
    Packed(Vec<u8>),
    Large {
        number: u64,
        pending: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    },
}

/// An open collection: its content in memory, until it is saved.
#[derive(Debug)]
pub(crate) struct Members {
    space: u16,
    head: RecordHead,
    count: u64,
    count_before: u64,
    form: Form,
    /// The first moment at which a member may expire, or 0: of large hashes.
    pub(crate) due_ms: u64,
    due_before_ms: u64,
    is_changed: bool,
}

impl Members {
    /// An empty collection, in the place of whatever the key is.
    pub(crate) fn empty(space: u16, kind: KeyType) -> Members {
        Members {
            space,
            head: RecordHead {
                kind,
                expires_ms: None,
                elements: None,
            },
            count: 0,
            count_before: 0,
            form: Form::Packed(Vec::new()),
            due_ms: 0,
            due_before_ms: 0,
            is_changed: false,
        }
    }

    /// The collection of a record.
    ///
    /// # Errors
    /// `WRONGTYPE`; and for a record that is damaged.
    pub(crate) fn of(space: u16, meta: Option<&KeyRecord>, kind: KeyType) -> Result<Members> {
        let mut members = Members::empty(space, kind);
        let Some(meta) = meta else {
            return Ok(members);
        };
        meta.expect(kind)?;
        members.head = meta.head;
        let body = meta.body();
        match meta.head.elements {
            None => {
                members.count = packed::pairs(body).count() as u64;
                members.form = Form::Packed(body.to_vec());
            }
            Some(number) => {
                let (count, rest) = body.split_first_chunk().ok_or(DAMAGED)?;
                members.count = u64::from_le_bytes(*count);
                members.due_ms = rest.first_chunk().map_or(0, |due| u64::from_le_bytes(*due));
                members.form = Form::Large {
                    number,
                    pending: BTreeMap::new(),
                };
            }
        }
        members.count_before = members.count;
        members.due_before_ms = members.due_ms;
        Ok(members)
    }

    /// Has the key expire at a moment, or never, once it is saved.
    pub(crate) fn expire(&mut self, expires_ms: Option<u64>) {
        self.head.expires_ms = expires_ms;
    }

    /// How many members there are.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Takes the moment as known: a small hash's is not written.
    pub(crate) fn keep_due(&mut self) {
        self.due_before_ms = self.due_ms;
    }

    /// The number that its elements are kept under, if it is large.
    pub(crate) fn number(&self) -> Option<u64> {
        match self.form {
            Form::Packed(_) => None,
            Form::Large { number, .. } => Some(number),
        }
    }

    /// The database in the store.
    pub(crate) fn space(&self) -> u16 {
        self.space
    }

    /// Whether it has become large since it was opened.
    pub(crate) fn has_grown(&self) -> bool {
        self.head.elements != self.number()
    }

    /// What belongs to a member.
    ///
    /// # Errors
    /// Of the store.
    pub(crate) fn get(&self, work: &mut Work, member: &[u8]) -> Result<Option<Vec<u8>>> {
        match &self.form {
            Form::Packed(row) => {
                let pair = packed::pairs(row).find(|pair| pair.member == member);
                Ok(pair.map(|pair| pair.payload.to_vec()))
            }
            Form::Large { number, pending } => {
                if let Some(known) = pending.get(member) {
                    return Ok(known.clone());
                }
                let key = member_key(self.space, *number, member);
                let Some(found) = work.get(Room::Elements, &key)? else {
                    return Ok(None);
                };
                let (_, known, payload) = read(&key, &found).ok_or(DAMAGED)?;
                if known != member {
                    return Err(Fault::line(
                        "ERR two long members of the collection have the same hash",
                    ));
                }
                Ok(Some(payload.to_vec()))
            }
        }
    }

    /// Gives a member what belongs to it; returns what did before.
    ///
    /// # Errors
    /// Of the store.
    pub(crate) fn set(
        &mut self,
        work: &mut Work,
        member: &[u8],
        payload: &[u8],
    ) -> Result<Option<Vec<u8>>> {
        let old = self.get(work, member)?;
        if old.as_deref() == Some(payload) {
            return Ok(old);
        }
        self.is_changed = true;
        self.count += u64::from(old.is_none());
        match &mut self.form {
            Form::Packed(row) => {
                let pair = packed::pairs(row).find(|pair| pair.member == member);
                match pair.map(|pair| pair.payload_span) {
                    Some(span) => packed::replace(row, span, payload),
                    None => {
                        packed::push(row, member);
                        packed::push(row, payload);
                    }
                }
                if row.len() > work.packed_bytes_max() {
                    self.grow(work)?;
                }
            }
            Form::Large { pending, .. } => {
                pending.insert(member.to_vec(), Some(payload.to_vec()));
            }
        }
        Ok(old)
    }

    /// Takes the collection as changed, though it may be as it was.
    pub(crate) fn touch(&mut self) {
        self.is_changed = true;
    }

    /// Removes a member; returns what belonged to it.
    ///
    /// # Errors
    /// Of the store.
    pub(crate) fn remove(&mut self, work: &mut Work, member: &[u8]) -> Result<Option<Vec<u8>>> {
        let Some(old) = self.get(work, member)? else {
            return Ok(None);
        };
        self.is_changed = true;
        self.count = self.count.saturating_sub(1);
        match &mut self.form {
            Form::Packed(row) => {
                let pair = packed::pairs(row).find(|pair| pair.member == member);
                if let Some(span) = pair.map(|pair| pair.span) {
                    row.drain(span);
                }
            }
            Form::Large { pending, .. } => {
                pending.insert(member.to_vec(), None);
            }
        }
        Ok(Some(old))
    }

    /// Gives each member a record of its own.
    fn grow(&mut self, work: &mut Work) -> Result<()> {
        let number = work.next_number()?;
        if let Form::Packed(row) = &self.form {
            let pairs = packed::pairs(row);
            let pending = pairs.map(|pair| (pair.member.to_vec(), Some(pair.payload.to_vec())));
            self.form = Form::Large {
                number,
                pending: pending.collect(),
            };
        }
        Ok(())
    }

    /// Shows all members, as long as `take` wants them.
    ///
    /// # Errors
    /// Of the store.
    pub(crate) fn visit(
        &self,
        work: &mut Work,
        mut take: impl FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<()> {
        match &self.form {
            Form::Packed(row) => {
                packed::pairs(row).all(|pair| take(pair.member, pair.payload));
                Ok(())
            }
            Form::Large { pending, .. } => {
                let mut goes_on = true;
                self.visit_from(work, 0, |_, member, payload| {
                    goes_on = pending.contains_key(member) || take(member, payload);
                    goes_on
                })?;
                if goes_on {
                    let added = pending.iter();
                    let mut added = added.filter_map(|(member, set)| Some((member, set.as_ref()?)));
                    added.all(|(member, payload)| take(member, payload));
                }
                Ok(())
            }
        }
    }

    /// Shows the stored members of a large collection from a place on.
    fn visit_from(
        &self,
        work: &mut Work,
        place: u64,
        mut take: impl FnMut(u64, &[u8], &[u8]) -> bool,
    ) -> Result<()> {
        let Form::Large { number, .. } = &self.form else {
            return Ok(());
        };
        if self.has_grown() {
            return Ok(());
        }
        let lower = key(self.space, *number, MEMBER, place, &[]);
        let end = after_prefix(&room_prefix(self.space, *number, MEMBER));
        for pair in work.range(Room::Elements, Bound::Included(&lower), end.as_deref())? {
            let (key, value) = pair?;
            let (place, member, payload) = read(&key, &value).ok_or(DAMAGED)?;
            if !take(place, member, payload) {
                break;
            }
        }
        Ok(())
    }

    /// All members.
    ///
    /// # Errors
    /// Of the store.
    pub(crate) fn all(&self, work: &mut Work) -> Result<Vec<MemberPair>> {
        let mut all = Vec::new();
        self.visit(work, |member, payload| {
            all.push((member.to_vec(), payload.to_vec()));
            true
        })?;
        Ok(all)
    }

    /// A step of a scan: members from a cursor on, about `count`, and the next cursor. A small
    /// collection comes whole.
    ///
    /// # Errors
    /// Of the store.
    pub(crate) fn step(
        &self,
        work: &mut Work,
        cursor: u64,
        count: usize,
    ) -> Result<(u64, Vec<MemberPair>)> {
        if let Form::Packed(_) = self.form {
            return Ok((0, self.all(work)?));
        }
        let mut found: Vec<MemberPair> = Vec::new();
        let mut last = 0;
        let mut next = 0;
        self.visit_from(work, cursor, |place, member, payload| {
            // Members with the same place come together.
            if found.len() >= count && place != last {
                next = place;
                return false;
            }
            last = place;
            found.push((member.to_vec(), payload.to_vec()));
            true
        })?;
        Ok((next, found))
    }

    /// A member by chance, each with the same one.
    ///
    /// # Errors
    /// Of the store.
    pub(crate) fn random(&self, work: &mut Work) -> Result<Option<MemberPair>> {
        if self.count > FAIR_COUNT_MAX && self.number().is_some() {
            return self.random_of_many(work).map(Some);
        }
        let nth = random::below(self.count);
        let mut chosen = None;
        let mut seen = 0;
        self.visit(work, |member, payload| {
            if seen == nth {
                chosen = Some((member.to_vec(), payload.to_vec()));
            }
            seen += 1;
            chosen.is_none()
        })?;
        Ok(chosen)
    }

    /// The places are cut into parts of equal width. A part is chosen, and one of so many seats
    /// in it: if nobody sits there, the choice is made again. So a part's members have the same
    /// chance however many share it.
    fn random_of_many(&self, work: &mut Work) -> Result<MemberPair> {
        let width = (1 << 63) / (self.count / PART_COUNT).max(1);
        for _ in 0..TRIES_MAX {
            let from = random::below(1 << 63) / width * width;
            let mut shared: Vec<MemberPair> = Vec::new();
            self.visit_from(work, from, |place, member, payload| {
                if place - from >= width {
                    return false;
                }
                shared.push((member.to_vec(), payload.to_vec()));
                true
            })?;
            let seats = (shared.len() as u64).max(PART_COUNT_MAX);
            let seat = usize::try_from(random::below(seats)).unwrap_or_default();
            if seat < shared.len() {
                return Ok(shared.swap_remove(seat));
            }
        }
        Err(DAMAGED)
    }

    /// Several different members by chance; all if there are not so many.
    ///
    /// # Errors
    /// Of the store.
    pub(crate) fn sample(&self, work: &mut Work, count: u64) -> Result<Vec<MemberPair>> {
        if count >= self.count {
            return self.all(work);
        }
        if self.count > FAIR_COUNT_MAX && count < self.count / 4 && self.number().is_some() {
            let mut chosen = BTreeMap::new();
            while (chosen.len() as u64) < count {
                let (member, payload) = self.random_of_many(work)?;
                chosen.insert(member, payload);
            }
            let mut chosen: Vec<_> = chosen.into_iter().collect();
            random::shuffle(&mut chosen);
            return Ok(chosen);
        }
        let mut all = self.all(work)?;
        random::shuffle(&mut all);
        all.truncate(usize::try_from(count).unwrap_or(usize::MAX));
        Ok(all)
    }

    /// Writes what has changed. An empty collection is removed with its key.
    ///
    /// # Errors
    /// Of the store.
    pub(crate) fn save_to(self, work: &mut Work, key: &[u8]) -> Result<SaveOutcome> {
        if !self.is_changed && self.due_ms == self.due_before_ms {
            return Ok(SaveOutcome::Same);
        }
        if self.count == 0 {
            work.remove(self.space, key)?;
            return Ok(SaveOutcome::Removed);
        }
        let mut head = self.head;
        let (number, pending) = match self.form {
            Form::Packed(row) => return work.put_collection(self.space, key, head, &[&row]),
            Form::Large { number, pending } => (number, pending),
        };
        for (member, payload) in &pending {
            let key = member_key(self.space, number, member);
            let value = payload.as_ref().map(|payload| value(member, payload));
            work.write(Room::Elements, &key, value.as_deref())?;
        }
        let is_same = head.elements == Some(number)
            && self.count == self.count_before
            && self.due_ms == self.due_before_ms;
        if is_same {
            work.touch(self.space, key);
            return Ok(SaveOutcome::Changed);
        }
        head.elements = Some(number);
        let (count, due) = (self.count.to_le_bytes(), self.due_ms.to_le_bytes());
        let due = match head.kind {
            KeyType::Hash => &due[..],
            _ => &[],
        };
        work.put_collection(self.space, key, head, &[&count, due])
    }
}

/// What is said of a record or an element that this program has not written.
pub(crate) const DAMAGED: Fault = Fault::line("ERR the key's elements are damaged");
