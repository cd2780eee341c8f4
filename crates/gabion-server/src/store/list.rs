//! Lists: elements in a row, that grow and shrink at both ends.
//!
//! # Idea
//! A small list is a [row of items](super::packed) in the record of its key. Once the row is longer
//! than the store's bound, each element becomes a record of its own under an index
//! ([keys](super::elements)). Indexes go on from both ends without a gap, below 0 too, so a push
//! and a pop write one element; what is put into the middle or taken from it moves the elements of
//! the shorter side.
//!
//! # Layout of the body of a large list
//! | offset | size | what |
//! |---|---|---|
//! | 0 | 8 | index of the first element |
//! | 8 | 8 | index behind the last one |
//!
//! # Invariants
//! - I1. A large list has one record for each index from the first to before the end, and no
//!   others.
//! - I2. `pending` has what a large list changes; reads look there first.

use std::collections::BTreeMap;
use std::ops::{Bound, Range};

use super::elements::{INDEX, index_of, key, ordered_index, read};
use super::members::DAMAGED;
use super::meta::{KeyRecord, KeyType, RecordHead, SaveOutcome};
use super::packed;
use super::work::{Room, Work};
use crate::fault::Result;

#[derive(Debug)]
enum Form {
    Packed(Vec<u8>),
    Large {
        number: u64,
        first: i64,
        end: i64,
        pending: BTreeMap<i64, Option<Vec<u8>>>,
    },
}

/// An end of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListEnd {
    /// The first element.
    Left,
    /// The last element.
    Right,
}

/// An open list: its content in memory, until it is saved.
#[derive(Debug)]
pub(crate) struct List {
    space: u16,
    head: RecordHead,
    count: usize,
    form: Form,
    ends_before: (i64, i64),
    is_changed: bool,
}

impl List {
    /// An empty list, in the place of whatever the key is.
    pub(crate) fn empty(space: u16) -> List {
        List {
            space,
            head: RecordHead {
                kind: KeyType::List,
                expires_ms: None,
                elements: None,
            },
            count: 0,
            form: Form::Packed(Vec::new()),
            ends_before: (0, 0),
            is_changed: false,
        }
    }

    /// The list of a record.
    ///
    /// # Errors
    /// `WRONGTYPE`; and for a record that is damaged.
    pub(crate) fn of(space: u16, meta: Option<&KeyRecord>) -> Result<List> {
        let mut list = List::empty(space);
        let Some(meta) = meta else {
            return Ok(list);
        };
        meta.expect(KeyType::List)?;
        list.head = meta.head;
        let body = meta.body();
        match meta.head.elements {
            None => {
                list.count = packed::items(body).count();
                list.form = Form::Packed(body.to_vec());
            }
            Some(number) => {
                let (first, rest) = body.split_first_chunk().ok_or(DAMAGED)?;
                let end = rest.first_chunk().ok_or(DAMAGED)?;
                let (first, end) = (i64::from_le_bytes(*first), i64::from_le_bytes(*end));
                let count = end.checked_sub(first).ok_or(DAMAGED)?;
                list.count = usize::try_from(count).map_err(|_| DAMAGED)?;
                list.ends_before = (first, end);
                list.form = Form::Large {
                    number,
                    first,
                    end,
                    pending: BTreeMap::new(),
                };
            }
        }
        Ok(list)
    }

    /// Has the key expire at a moment, or never, once it is saved.
    pub(crate) fn expire(&mut self, expires_ms: Option<u64>) {
        self.head.expires_ms = expires_ms;
    }

    /// How many elements there are.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Whether the elements are in the record.
    pub(crate) fn is_packed(&self) -> bool {
        matches!(self.form, Form::Packed(_))
    }

    /// The place that a number stands for, which counts from the end if it is negative; it may lie
    /// before the first element (then negative) or behind the last.
    pub(crate) fn place(&self, number: i64) -> i64 {
        match number < 0 {
            true => number.saturating_add(i64::try_from(self.count).unwrap_or(i64::MAX)),
            false => number,
        }
    }

    /// The places from one number to another, the last one included.
    pub(crate) fn places(&self, from: i64, to: i64) -> Range<usize> {
        let from = usize::try_from(self.place(from)).unwrap_or_default();
        let end = usize::try_from(self.place(to).saturating_add(1)).unwrap_or_default();
        from..end.min(self.count).max(from)
    }

    /// The element at a place.
    ///
    /// # Errors
    /// Of the store.
    pub(crate) fn get(&self, work: &mut Work, place: usize) -> Result<Option<Vec<u8>>> {
        if place >= self.count {
            return Ok(None);
        }
        match &self.form {
            Form::Packed(row) => {
                let item = packed::items(row).nth(place);
                Ok(item.map(|item| item.bytes.to_vec()))
            }
            Form::Large {
                number,
                first,
                pending,
                ..
            } => {
                let index = index(*first, place)?;
                if let Some(known) = pending.get(&index) {
                    return Ok(known.clone());
                }
                let key = index_key(self.space, *number, index);
                match work.get(Room::Elements, &key)? {
                    Some(found) => Ok(Some(found.to_vec())),
                    None => Err(DAMAGED),
                }
            }
        }
    }

    /// Shows the elements at places in their order, or from the last to the first, as long as
    /// `take` wants them.
    ///
    /// # Errors
    /// Of the store.
    pub(crate) fn visit(
        &self,
        work: &mut Work,
        places: Range<usize>,
        is_reverse: bool,
        mut take: impl FnMut(usize, &[u8]) -> bool,
    ) -> Result<()> {
        let places = places.start..places.end.min(self.count);
        if places.is_empty() {
            return Ok(());
        }
        let (number, first, pending) = match &self.form {
            Form::Packed(row) => {
                let skipped = packed::items(row).enumerate().skip(places.start);
                let part = skipped.take(places.len());
                match is_reverse {
                    false => {
                        let mut part = part;
                        part.all(|(place, item)| take(place, item.bytes))
                    }
                    true => {
                        let part: Vec<_> = part.collect();
                        let mut turned = part.iter().rev();
                        turned.all(|(place, item)| take(*place, item.bytes))
                    }
                };
                return Ok(());
            }
            Form::Large {
                number,
                first,
                pending,
                ..
            } => (*number, *first, pending),
        };
        if !pending.is_empty() {
            // Changed since it was opened: one by one.
            for step in 0..places.len() {
                let place = match is_reverse {
                    true => places.end - 1 - step,
                    false => places.start + step,
                };
                let element = self.get(work, place)?.ok_or(DAMAGED)?;
                if !take(place, &element) {
                    break;
                }
            }
            return Ok(());
        }
        let lower = index_key(self.space, number, index(first, places.start)?);
        let upper = index_key(self.space, number, index(first, places.end)?);
        let mut pairs = work.range(Room::Elements, Bound::Included(&lower), Some(&upper))?;
        loop {
            let next = match is_reverse {
                true => pairs.next_back(),
                false => pairs.next(),
            };
            let Some(pair) = next else {
                return Ok(());
            };
            let (key, value) = pair?;
            let (number, _, _) = read(&key, &[]).ok_or(DAMAGED)?;
            let place = index_of(number).checked_sub(first).ok_or(DAMAGED)?;
            let place = usize::try_from(place).map_err(|_| DAMAGED)?;
            if !take(place, &value) {
                return Ok(());
            }
        }
    }

    /// The elements at places.
    ///
    /// # Errors
    /// Of the store.
    pub(crate) fn part(&self, work: &mut Work, places: Range<usize>) -> Result<Vec<Vec<u8>>> {
        let mut part = Vec::new();
        self.visit(work, places, false, |_, element| {
            part.push(element.to_vec());
            true
        })?;
        Ok(part)
    }

    /// Adds an element at an end.
    ///
    /// # Errors
    /// Of the store.
    pub(crate) fn push(&mut self, work: &mut Work, at: ListEnd, element: &[u8]) -> Result<()> {
        self.is_changed = true;
        self.count += 1;
        match &mut self.form {
            Form::Packed(row) => {
                match at {
                    ListEnd::Left => packed::replace(row, 0..0, element),
                    ListEnd::Right => packed::push(row, element),
                }
                self.grow(work)?;
            }
            Form::Large {
                first,
                end,
                pending,
                ..
            } => {
                let index = match at {
                    ListEnd::Left => {
                        *first -= 1;
                        *first
                    }
                    ListEnd::Right => {
                        *end += 1;
                        *end - 1
                    }
                };
                pending.insert(index, Some(element.to_vec()));
            }
        }
        Ok(())
    }

    /// Takes the element at an end.
    ///
    /// # Errors
    /// Of the store.
    pub(crate) fn pop(&mut self, work: &mut Work, at: ListEnd) -> Result<Option<Vec<u8>>> {
        if self.count == 0 {
            return Ok(None);
        }
        let place = match at {
            ListEnd::Left => 0,
            ListEnd::Right => self.count - 1,
        };
        let element = self.get(work, place)?;
        if self.is_packed() {
            self.remove(work, &[place])?;
            return Ok(element);
        }
        self.is_changed = true;
        match at {
            ListEnd::Left => self.cut(1, 0),
            ListEnd::Right => self.cut(0, 1),
        }
        Ok(element)
    }

    /// Puts an element in the place of another.
    ///
    /// # Errors
    /// Of the store.
    pub(crate) fn set(&mut self, work: &mut Work, place: usize, element: &[u8]) -> Result<()> {
        self.is_changed = true;
        match &mut self.form {
            Form::Packed(row) => {
                let item = packed::items(row).nth(place);
                if let Some(span) = item.map(|item| item.span) {
                    packed::replace(row, span, element);
                }
                self.grow(work)?;
            }
            Form::Large { first, pending, .. } => {
                pending.insert(index(*first, place)?, Some(element.to_vec()));
            }
        }
        Ok(())
    }

    /// Puts an element before the one at a place, or behind the last.
    ///
    /// # Errors
    /// Of the store.
    pub(crate) fn insert(&mut self, work: &mut Work, place: usize, element: &[u8]) -> Result<()> {
        self.is_changed = true;
        if let Form::Packed(row) = &mut self.form {
            let item = packed::items(row).nth(place);
            let at = item.map_or(row.len(), |item| item.span.start);
            packed::replace(row, at..at, element);
            self.count += 1;
            return self.grow(work);
        }
        let count = self.count;
        match place <= count / 2 {
            true => {
                let moved = self.part(work, 0..place)?;
                self.push(work, ListEnd::Left, element)?;
                for (place, moved) in moved.iter().enumerate() {
                    self.set(work, place, moved)?;
                }
            }
            false => {
                let moved = self.part(work, place..count)?;
                self.push(work, ListEnd::Right, element)?;
                for (step, moved) in moved.iter().enumerate() {
                    self.set(work, place + 1 + step, moved)?;
                }
            }
        }
        self.set(work, place, element)
    }

    /// Takes elements away; their places ascend.
    ///
    /// # Errors
    /// Of the store.
    pub(crate) fn remove(&mut self, work: &mut Work, removed: &[usize]) -> Result<()> {
        let (Some(lowest), Some(highest)) = (removed.first(), removed.last()) else {
            return Ok(());
        };
        self.is_changed = true;
        let count = self.count;
        if let Form::Packed(row) = &mut self.form {
            let places = packed::items(row).enumerate();
            let gone: Vec<_> = places
                .filter(|(place, _)| removed.binary_search(place).is_ok())
                .map(|(_, item)| item.span)
                .collect();
            for span in gone.into_iter().rev() {
                row.drain(span);
            }
            self.count -= removed.len();
            return Ok(());
        }
        // The elements of the shorter side close the gaps.
        let is_left = highest + 1 < count - lowest;
        let side = match is_left {
            true => 0..highest + 1,
            false => *lowest..count,
        };
        let mut kept = Vec::new();
        self.visit(work, side.clone(), false, |place, element| {
            if removed.binary_search(&place).is_err() {
                kept.push(element.to_vec());
            }
            true
        })?;
        let start = match is_left {
            true => removed.len(),
            false => *lowest,
        };
        for (step, element) in kept.iter().enumerate() {
            self.set(work, start + step, element)?;
        }
        match is_left {
            true => self.cut(removed.len(), 0),
            false => self.cut(0, removed.len()),
        }
        Ok(())
    }

    /// Takes elements away at the ends of a large list.
    fn cut(&mut self, left: usize, right: usize) {
        if let Form::Large {
            first,
            end,
            pending,
            ..
        } = &mut self.form
        {
            for _ in 0..left {
                pending.insert(*first, None);
                *first += 1;
            }
            for _ in 0..right {
                *end -= 1;
                pending.insert(*end, None);
            }
        }
        self.count -= left + right;
    }

    /// Keeps the elements at places only.
    ///
    /// # Errors
    /// Of the store.
    pub(crate) fn trim(&mut self, work: &mut Work, places: Range<usize>) -> Result<()> {
        let (left, right) = match places.is_empty() {
            true => (self.count, 0),
            false => (places.start, self.count - places.end),
        };
        if left + right == 0 {
            return Ok(());
        }
        self.is_changed = true;
        if left + right == self.count {
            self.count = 0;
            return Ok(());
        }
        let is_small = self.count - left - right < (left + right) / 2;
        if is_small || self.is_packed() {
            // Fewer are left than go: they are written anew, and the old number is garbage.
            let kept = self.part(work, places)?;
            self.count = 0;
            self.form = Form::Packed(Vec::new());
            for element in &kept {
                self.push(work, ListEnd::Right, element)?;
            }
            return Ok(());
        }
        self.cut(left, right);
        Ok(())
    }

    /// Gives each element a record of its own, if the row has become too long.
    fn grow(&mut self, work: &mut Work) -> Result<()> {
        let Form::Packed(row) = &self.form else {
            return Ok(());
        };
        if row.len() <= work.packed_bytes_max() {
            return Ok(());
        }
        let elements = packed::items(row).map(|item| Some(item.bytes.to_vec()));
        let pending: BTreeMap<i64, _> = (0..).zip(elements).collect();
        self.form = Form::Large {
            number: work.next_number()?,
            first: 0,
            end: i64::try_from(pending.len()).unwrap_or(i64::MAX),
            pending,
        };
        Ok(())
    }

    /// Writes what has changed. An empty list is removed with its key.
    ///
    /// # Errors
    /// Of the store.
    pub(crate) fn save_to(self, work: &mut Work, key: &[u8]) -> Result<SaveOutcome> {
        if !self.is_changed {
            return Ok(SaveOutcome::Same);
        }
        if self.count == 0 {
            work.remove(self.space, key)?;
            return Ok(SaveOutcome::Removed);
        }
        let mut head = self.head;
        let (number, first, end, pending) = match self.form {
            Form::Packed(row) => {
                head.elements = None;
                return work.put_collection(self.space, key, head, &[&row]);
            }
            Form::Large {
                number,
                first,
                end,
                pending,
            } => (number, first, end, pending),
        };
        for (index, element) in &pending {
            let key = index_key(self.space, number, *index);
            work.write(Room::Elements, &key, element.as_deref())?;
        }
        if head.elements == Some(number) && self.ends_before == (first, end) {
            work.touch(self.space, key);
            return Ok(SaveOutcome::Changed);
        }
        head.elements = Some(number);
        let body = [&first.to_le_bytes()[..], &end.to_le_bytes()];
        work.put_collection(self.space, key, head, &body)
    }
}

fn index(first: i64, place: usize) -> Result<i64> {
    let place = i64::try_from(place).map_err(|_| DAMAGED)?;
    first.checked_add(place).ok_or(DAMAGED)
}

fn index_key(space: u16, number: u64, index: i64) -> Vec<u8> {
    key(space, number, INDEX, ordered_index(index), &[])
}
