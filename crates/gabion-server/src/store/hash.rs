//! Hashes: fields with values, each of which may expire.
//!
//! # Layout of what belongs to a field
//! | offset | size | what |
//! |---|---|---|
//! | 0 | 1 | 1 if the field expires, else 0 |
//! | 1 | 8, if it expires | the moment, in milliseconds since 1970, little-endian |
//! | then | rest | the value |
//!
//! # Idea
//! A field that has expired is not there for any command. A command that writes removes those of
//! its hash first; the others go by the background, which has an entry of the keyspace `expiring`
//! for the first moment of a hash. A large hash has its fields by moment, too
//! ([keys](super::elements)), so neither reads more than what is due.
//!
//! # Invariants
//! - I1. Before the first moment of a hash's fields there is an entry for the hash in `expiring`,
//!   at that moment or earlier. Entries that have become wrong are dropped when they are due.

use std::collections::BTreeMap;
use std::ops::Bound;

use super::elements::{MOMENT, key as element_key, read, room_prefix, value as element_value};
use super::keys::{after_prefix, expiry_key};
use super::members::{DAMAGED, Members};
use super::meta::{KeyRecord, KeyType, SaveOutcome};
use super::work::{Room, Work};
use crate::fault::Result;

/// Set in the number of a database for the entries of `expiring` that are about fields.
pub(crate) const OF_FIELDS: u16 = 1 << 15;

/// A field, its value, and when it expires.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HashField {
    /// Its name.
    pub(crate) name: Vec<u8>,
    /// Its value.
    pub(crate) value: Vec<u8>,
}

/// An open hash: its content in memory, until it is saved.
#[derive(Debug)]
pub(crate) struct Hash {
    members: Members,
    now_ms: u64,
    /// Fields that have expired but are still counted.
    due: u64,
    /// The first moment when it was opened, or 0.
    due_before_ms: u64,
    /// Changes of the order by moments: keys to write or to remove, each with its value.
    moments: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    /// How many fields were removed because they had expired.
    purged: u64,
}

/// When a field expires, and its value.
fn decode(payload: &[u8]) -> Result<(Option<u64>, &[u8])> {
    match payload.split_first() {
        Some((0, value)) => Ok((None, value)),
        Some((1, rest)) => {
            let (moment, value) = rest.split_first_chunk().ok_or(DAMAGED)?;
            Ok((Some(u64::from_le_bytes(*moment)), value))
        }
        _ => Err(DAMAGED),
    }
}

fn encode(moment: Option<u64>, value: &[u8]) -> Vec<u8> {
    let mut payload = Vec::with_capacity(value.len() + 9);
    payload.push(u8::from(moment.is_some()));
    if let Some(moment) = moment {
        payload.extend_from_slice(&moment.to_le_bytes());
    }
    payload.extend_from_slice(value);
    payload
}

impl Hash {
    /// The hash of a record.
    ///
    /// # Errors
    /// As [`Members::of`].
    pub(crate) fn of(work: &mut Work, space: u16, meta: Option<&KeyRecord>) -> Result<Hash> {
        let mut hash = Hash {
            members: Members::of(space, meta, KeyType::Hash)?,
            now_ms: work.now_ms,
            due: 0,
            due_before_ms: 0,
            moments: BTreeMap::new(),
            purged: 0,
        };
        if hash.members.number().is_none() {
            hash.members.due_ms = hash.first_moment(work)?;
            hash.members.keep_due();
        }
        hash.due_before_ms = hash.members.due_ms;
        if hash.is_due() {
            hash.due = hash.due_fields(work)?.len() as u64;
        }
        Ok(hash)
    }

    fn is_due(&self) -> bool {
        self.members.due_ms != 0 && self.members.due_ms <= self.now_ms
    }

    /// The first moment of a small hash, or 0.
    fn first_moment(&self, work: &mut Work) -> Result<u64> {
        let mut first = 0;
        self.members.visit(work, |_, payload| {
            if let Ok((Some(moment), _)) = decode(payload)
                && (first == 0 || moment < first)
            {
                first = moment;
            }
            true
        })?;
        Ok(first)
    }

    /// Fields that have expired.
    fn due_fields(&self, work: &mut Work) -> Result<Vec<Vec<u8>>> {
        let mut due = Vec::new();
        let Some(number) = self.members.number() else {
            let now_ms = self.now_ms;
            self.members.visit(work, |field, payload| {
                if matches!(decode(payload), Ok((Some(moment), _)) if moment <= now_ms) {
                    due.push(field.to_vec());
                }
                true
            })?;
            return Ok(due);
        };
        let space = self.members.space();
        let lower = room_prefix(space, number, MOMENT);
        let upper = element_key(space, number, MOMENT, self.now_ms.saturating_add(1), &[]);
        for pair in work.range(Room::Elements, Bound::Included(&lower), Some(&upper))? {
            let (key, value) = pair?;
            let (_, field, _) = read(&key, &value).ok_or(DAMAGED)?;
            due.push(field.to_vec());
        }
        Ok(due)
    }

    /// Removes the fields that have expired; returns them.
    ///
    /// # Errors
    /// Of the store.
    pub(crate) fn purge(&mut self, work: &mut Work) -> Result<u64> {
        if !self.is_due() {
            return Ok(0);
        }
        let due = self.due_fields(work)?;
        for field in &due {
            self.remove(work, field)?;
        }
        self.due = 0;
        self.purged = due.len() as u64;
        if let Some(number) = self.members.number() {
            let space = self.members.space();
            let end = after_prefix(&room_prefix(space, number, MOMENT));
            let lower = element_key(space, number, MOMENT, self.now_ms.saturating_add(1), &[]);
            let mut later = work.range(Room::Elements, Bound::Included(&lower), end.as_deref())?;
            self.members.due_ms = match later.next().transpose()? {
                Some((key, value)) => read(&key, &value).ok_or(DAMAGED)?.0,
                None => 0,
            };
        }
        Ok(self.purged)
    }

    /// How many fields were removed because they had expired.
    pub(crate) fn purged(&self) -> u64 {
        self.purged
    }

    /// Has the key expire at a moment, or never, once it is saved.
    pub(crate) fn expire(&mut self, expires_ms: Option<u64>) {
        self.members.expire(expires_ms);
    }

    /// How many fields there are.
    pub(crate) fn count(&self) -> u64 {
        self.members.count().saturating_sub(self.due)
    }

    /// The form of the hash: of its members, some of which may have expired.
    pub(crate) fn members(&self) -> &Members {
        &self.members
    }

    /// The value of a field, and when it expires.
    ///
    /// # Errors
    /// Of the store.
    pub(crate) fn get(
        &self,
        work: &mut Work,
        field: &[u8],
    ) -> Result<Option<(Option<u64>, Vec<u8>)>> {
        let Some(payload) = self.members.get(work, field)? else {
            return Ok(None);
        };
        let (moment, value) = decode(&payload)?;
        let is_live = moment.is_none_or(|moment| moment > self.now_ms);
        Ok(is_live.then(|| (moment, value.to_vec())))
    }

    /// The value of a field.
    ///
    /// # Errors
    /// Of the store.
    pub(crate) fn value(&self, work: &mut Work, field: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.get(work, field)?.map(|(_, value)| value))
    }

    /// Gives a field a value, and a moment at which it expires or none; returns whether it was
    /// there.
    ///
    /// # Errors
    /// Of the store.
    pub(crate) fn set(
        &mut self,
        work: &mut Work,
        field: &[u8],
        value: &[u8],
        moment: Option<u64>,
    ) -> Result<bool> {
        let old = self.members.set(work, field, &encode(moment, value))?;
        self.members.touch();
        let before = match &old {
            Some(old) => decode(old)?.0,
            None => None,
        };
        if before != moment {
            self.forget_moment(before, field);
        }
        if let Some(moment) = moment {
            let key = element_key(0, 0, MOMENT, moment, field);
            self.moments.insert(key, Some(element_value(field, &[])));
            let due = &mut self.members.due_ms;
            *due = if *due == 0 { moment } else { moment.min(*due) };
        }
        Ok(old.is_some())
    }

    fn forget_moment(&mut self, moment: Option<u64>, field: &[u8]) {
        if let Some(moment) = moment {
            let key = element_key(0, 0, MOMENT, moment, field);
            self.moments.insert(key, None);
        }
    }

    /// Removes a field; returns its value if it was there.
    ///
    /// # Errors
    /// Of the store.
    pub(crate) fn remove(&mut self, work: &mut Work, field: &[u8]) -> Result<Option<Vec<u8>>> {
        let Some(payload) = self.members.remove(work, field)? else {
            return Ok(None);
        };
        let (moment, value) = decode(&payload)?;
        self.forget_moment(moment, field);
        Ok(Some(value.to_vec()))
    }

    /// A field and its value, of what the members have; `None` if it has expired.
    pub(crate) fn live(&self, pair: (Vec<u8>, Vec<u8>)) -> Result<Option<HashField>> {
        let (name, payload) = pair;
        let (moment, value) = decode(&payload)?;
        let is_live = moment.is_none_or(|moment| moment > self.now_ms);
        Ok(is_live.then(|| HashField {
            name,
            value: value.to_vec(),
        }))
    }

    /// Shows all fields and their values.
    ///
    /// # Errors
    /// Of the store.
    pub(crate) fn visit(&self, work: &mut Work, mut take: impl FnMut(&[u8], &[u8])) -> Result<()> {
        self.visit_all(work, |field, _, value| take(field, value))
    }

    /// The same with the moments at which they expire.
    ///
    /// # Errors
    /// Of the store.
    pub(crate) fn visit_all(
        &self,
        work: &mut Work,
        mut take: impl FnMut(&[u8], Option<u64>, &[u8]),
    ) -> Result<()> {
        let mut failed = Ok(());
        self.members.visit(work, |field, payload| {
            match decode(payload) {
                Ok((moment, value)) if moment.is_none_or(|moment| moment > self.now_ms) => {
                    take(field, moment, value);
                }
                Ok(_) => {}
                Err(error) => failed = Err(error),
            }
            failed.is_ok()
        })?;
        failed
    }

    /// Writes what has changed.
    ///
    /// # Errors
    /// As [`Members::save_to`].
    pub(crate) fn save_to(mut self, work: &mut Work, key: &[u8]) -> Result<SaveOutcome> {
        let space = self.members.space();
        if !self.members.is_empty() {
            match self.members.number() {
                None => {
                    self.members.due_ms = self.first_moment(work)?;
                    // It is no part of a small hash's record.
                    self.members.keep_due();
                }
                Some(number) => self.save_moments(work, number)?,
            }
            let due = self.members.due_ms;
            if due != 0 && due != self.due_before_ms {
                schedule(work, space, key, due)?;
            }
        }
        self.members.save_to(work, key)
    }

    fn save_moments(&mut self, work: &mut Work, number: u64) -> Result<()> {
        let space = self.members.space();
        if self.members.has_grown() {
            let mut all = Vec::new();
            self.members.visit(work, |field, payload| {
                if let Ok((Some(moment), _)) = decode(payload) {
                    all.push((field.to_vec(), moment));
                }
                true
            })?;
            for (field, moment) in all {
                let key = element_key(space, number, MOMENT, moment, &field);
                let value = element_value(&field, &[]);
                work.write(Room::Elements, &key, Some(&value))?;
            }
            return Ok(());
        }
        let room = room_prefix(space, number, MOMENT);
        for (key, value) in &self.moments {
            let rest = key.get(room.len()..).unwrap_or_default();
            let key = [&room[..], rest].concat();
            work.write(Room::Elements, &key, value.as_deref())?;
        }
        Ok(())
    }
}

/// Has the background look at the fields of a hash at a moment.
fn schedule(work: &mut Work, space: u16, key: &[u8], moment: u64) -> Result<()> {
    let key = expiry_key(moment, space | OF_FIELDS, key);
    work.write(Room::Expiring, &key, Some(&[]))
}

/// The same for a hash whose record has come under another key.
///
/// # Errors
/// Of the store.
pub(crate) fn schedule_moved(
    work: &mut Work,
    space: u16,
    key: &[u8],
    meta: &KeyRecord,
) -> Result<()> {
    if meta.head.kind == KeyType::Hash {
        let hash = Hash::of(work, space, Some(meta))?;
        if hash.members.due_ms != 0 {
            return schedule(work, space, key, hash.members.due_ms);
        }
    }
    Ok(())
}
