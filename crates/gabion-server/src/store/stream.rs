//! Streams: entries in the order of their ids, and groups of consumers that share them.
//!
//! # Layout
//! The body of the record is seven pairs or numbers of eight bytes, little-endian:
//!
//! | offset | what |
//! |---|---|
//! | 0 | how many entries there are |
//! | 8 | how many were ever added |
//! | 16 | the last id: milliseconds, number |
//! | 32 | the greatest id that was deleted |
//! | 48 | the first id, 0-0 if there is none |
//!
//! Entries, groups and what they wait for are elements, whatever their number. Their keys are the
//! prefix of the collection, a byte, and:
//!
//! | byte | what | rest of the key | value |
//! |---|---|---|---|
//! | 4 | an entry | id | fields and values, [in a row](super::packed) |
//! | 5 | a group | name | last id that was delivered (16), entries read (8), pending (8) |
//! | 6 | a consumer | group, name | moment of its last request (8), pending (8) |
//! | 7 | a pending entry | group, id | moment of delivery (8), deliveries (8), consumer |
//! | 8 | the same by consumer | group, consumer, id | nothing |
//!
//! Ids in keys are big-endian; a name that something follows is an item.

use std::ops::Bound;

use super::keys::{after_prefix, from_ordered, ordered};
use super::meta::{KeyRecord, KeyType, RecordHead, SaveOutcome};
use super::packed;
use super::work::{Room, Work};
use crate::execution::Execution;
use crate::fault::{Fault, Result};
use crate::store::elements::room_prefix;

const ENTRY: u8 = 4;
const GROUP: u8 = 5;
const CONSUMER: u8 = 6;
const PENDING: u8 = 7;
const OF_CONSUMER: u8 = 8;

/// The id of an entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct StreamId {
    /// Milliseconds since 1970, as a rule.
    pub(crate) ms: u64,
    /// A number among those of the same millisecond.
    pub(crate) seq: u64,
}

impl StreamId {
    /// The least.
    pub(crate) const MIN: StreamId = StreamId { ms: 0, seq: 0 };
    /// The greatest.
    pub(crate) const MAX: StreamId = StreamId {
        ms: u64::MAX,
        seq: u64::MAX,
    };

    /// An id, or milliseconds alone with `seq` for the number.
    pub(crate) fn parse(text: &[u8], seq: u64) -> Option<StreamId> {
        let number = |text: &[u8]| -> Option<u64> {
            let is_number = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
            let text = std::str::from_utf8(text).ok().filter(|_| is_number)?;
            text.parse().ok()
        };
        match memchr::memchr(b'-', text) {
            None => Some(StreamId {
                ms: number(text)?,
                seq,
            }),
            Some(at) => Some(StreamId {
                ms: number(&text[..at])?,
                seq: number(&text[at + 1..])?,
            }),
        }
    }

    /// The next greater.
    pub(crate) fn next(self) -> Option<StreamId> {
        match self.seq.checked_add(1) {
            Some(seq) => Some(StreamId { seq, ..self }),
            None => self.ms.checked_add(1).map(|ms| StreamId { ms, seq: 0 }),
        }
    }

    /// The next lesser.
    pub(crate) fn before(self) -> Option<StreamId> {
        match self.seq.checked_sub(1) {
            Some(seq) => Some(StreamId { seq, ..self }),
            None => self
                .ms
                .checked_sub(1)
                .map(|ms| StreamId { ms, seq: u64::MAX }),
        }
    }

    /// Its bytes, which have its order.
    pub(crate) fn bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&ordered(self.ms));
        bytes[8..].copy_from_slice(&ordered(self.seq));
        bytes
    }

    /// The id at the front of bytes.
    pub(crate) fn of(bytes: &[u8]) -> Option<StreamId> {
        let (ms, rest) = bytes.split_first_chunk()?;
        let seq = rest.first_chunk()?;
        Some(StreamId {
            ms: from_ordered(*ms),
            seq: from_ordered(*seq),
        })
    }
}

impl std::fmt::Display for StreamId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.ms, self.seq)
    }
}

/// An entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StreamEntry {
    /// Its id.
    pub(crate) id: StreamId,
    /// Its fields and values, in turn.
    pub(crate) fields: Vec<Vec<u8>>,
}

/// A group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ConsumerGroup {
    /// The last id that was delivered.
    pub(crate) last: StreamId,
    /// How many entries were read up to it, if that is known.
    pub(crate) read: Option<u64>,
    /// How many entries wait for an acknowledgement.
    pub(crate) pending: u64,
}

/// A consumer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct GroupConsumer {
    /// When it asked for something last, in milliseconds since 1970.
    pub(crate) seen_ms: u64,
    /// How many entries wait for its acknowledgement.
    pub(crate) pending: u64,
}

/// An entry that waits for an acknowledgement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PendingEntry {
    /// When it was delivered last, in milliseconds since 1970.
    pub(crate) delivered_ms: u64,
    /// How often it was delivered.
    pub(crate) deliveries: u64,
    /// To whom.
    pub(crate) consumer: Vec<u8>,
}

/// A stream.
#[derive(Clone, Debug)]
pub(crate) struct Stream {
    head: RecordHead,
    space: u16,
    number: u64,
    /// Entries.
    pub(crate) length: u64,
    /// Entries that were ever added.
    pub(crate) added: u64,
    /// The last id.
    pub(crate) last: StreamId,
    /// The greatest id that was deleted.
    pub(crate) deleted: StreamId,
    /// The first id.
    pub(crate) first: StreamId,
}

const BROKEN: Fault = Fault::line("ERR the stream is not of this server's format");

fn number_at(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u64::from_le_bytes(*bytes))
}

impl Stream {
    /// The stream of a key, if it is there.
    ///
    /// # Errors
    /// `WRONGTYPE`, and those of the store.
    pub(crate) fn find(execution: &mut Execution<'_>, key: &[u8]) -> Result<Option<Stream>> {
        let space = execution.space();
        match execution.look_up(key)? {
            Some(meta) => Stream::of(space, &meta).map(Some),
            None => Ok(None),
        }
    }

    /// A new one, that is stored once it is saved.
    ///
    /// # Errors
    /// Of the store.
    pub(crate) fn create(work: &Work, space: u16) -> Result<Stream> {
        let number = work.next_number()?;
        Ok(Stream {
            head: RecordHead {
                kind: KeyType::Stream,
                expires_ms: None,
                elements: Some(number),
            },
            space,
            number,
            length: 0,
            added: 0,
            last: StreamId::MIN,
            deleted: StreamId::MIN,
            first: StreamId::MIN,
        })
    }

    /// Of a record.
    ///
    /// # Errors
    /// `WRONGTYPE`.
    pub(crate) fn of(space: u16, meta: &KeyRecord) -> Result<Stream> {
        meta.expect(KeyType::Stream)?;
        let body = meta.body();
        let number = |index: usize| number_at(body, index * 8).ok_or(BROKEN);
        let id = |index: usize| -> Result<StreamId> {
            Ok(StreamId {
                ms: number(index)?,
                seq: number(index + 1)?,
            })
        };
        Ok(Stream {
            head: meta.head,
            space,
            number: meta.head.elements.ok_or(BROKEN)?,
            length: number(0)?,
            added: number(1)?,
            last: id(2)?,
            deleted: id(4)?,
            first: id(6)?,
        })
    }

    /// Stores the record, and publishes that it is new if it is.
    ///
    /// # Errors
    /// As [`Stream::save_to`].
    pub(crate) fn save(&self, execution: &mut Execution<'_>, key: &[u8]) -> Result<()> {
        let saved = self.save_to(execution.work, key)?;
        execution.tell_new(saved, key);
        Ok(())
    }

    /// Stores the record.
    ///
    /// # Errors
    /// As [`Work::put`].
    pub(crate) fn save_to(&self, work: &mut Work, key: &[u8]) -> Result<SaveOutcome> {
        let mut body = Vec::with_capacity(64);
        for number in [self.length, self.added] {
            body.extend_from_slice(&number.to_le_bytes());
        }
        for id in [self.last, self.deleted, self.first] {
            body.extend_from_slice(&id.ms.to_le_bytes());
            body.extend_from_slice(&id.seq.to_le_bytes());
        }
        work.put_collection(self.space, key, self.head, &[&body])
    }

    /// Has the key expire at a moment, or never, once the record is stored.
    pub(crate) fn expire(&mut self, expires_ms: Option<u64>) {
        self.head.expires_ms = expires_ms;
    }

    fn key(&self, room: u8, parts: &[&[u8]]) -> Vec<u8> {
        let mut key = room_prefix(self.space, self.number, room);
        for part in parts {
            key.extend_from_slice(part);
        }
        key
    }

    /// Adds an entry behind all others; the caller has checked its id.
    ///
    /// # Errors
    /// Of the store.
    pub(crate) fn add<'a>(
        &mut self,
        work: &mut Work,
        id: StreamId,
        fields: impl Iterator<Item = &'a [u8]>,
    ) -> Result<()> {
        let mut row = Vec::new();
        for field in fields {
            packed::push(&mut row, field);
        }
        let key = self.key(ENTRY, &[&id.bytes()]);
        work.write(Room::Elements, &key, Some(&row))?;
        if self.length == 0 {
            self.first = id;
        }
        self.length += 1;
        Ok(())
    }

    /// The entry of an id.
    ///
    /// # Errors
    /// Of the store.
    pub(crate) fn entry(&self, work: &mut Work, id: StreamId) -> Result<Option<StreamEntry>> {
        let key = self.key(ENTRY, &[&id.bytes()]);
        let row = work.get(Room::Elements, &key)?;
        Ok(row.map(|row| entry_of(id, &row)))
    }

    /// Entries from one id to another, at most `count` of them, from the last on if `is_backward`.
    ///
    /// # Errors
    /// Of the store.
    pub(crate) fn range(
        &self,
        work: &mut Work,
        (from, to): (StreamId, StreamId),
        count: usize,
        is_backward: bool,
    ) -> Result<Vec<StreamEntry>> {
        // What was deleted before the first is not met.
        let from = from.max(self.first);
        if from > to || count == 0 || self.length == 0 {
            return Ok(Vec::new());
        }
        let lower = self.key(ENTRY, &[&from.bytes()]);
        let upper = match to.next() {
            Some(next) => self.key(ENTRY, &[&next.bytes()]),
            None => self.key(GROUP, &[]),
        };
        let pairs = work.range(Room::Elements, Bound::Included(&lower), Some(&upper))?;
        let of_pair = |pair: gabion::Result<(gabion::Slice, gabion::Slice)>| {
            let (key, row) = pair?;
            let id = StreamId::of(&key[lower.len() - 16..]).ok_or(BROKEN)?;
            Ok(entry_of(id, &row))
        };
        match is_backward {
            true => pairs.rev().take(count).map(of_pair).collect(),
            false => pairs.take(count).map(of_pair).collect(),
        }
    }

    /// Removes entries that are there, and finds out which is the first then.
    ///
    /// # Errors
    /// Of the store.
    pub(crate) fn remove(
        &mut self,
        work: &mut Work,
        ids: &[StreamId],
        deletes: bool,
    ) -> Result<()> {
        let Some(greatest) = ids.iter().max() else {
            return Ok(());
        };
        let first = match ids.contains(&self.first) {
            false => Some(self.first),
            true => {
                let some =
                    self.range(work, (StreamId::MIN, StreamId::MAX), ids.len() + 1, false)?;
                let mut left = some.iter().map(|entry| entry.id);
                left.find(|id| !ids.contains(id))
            }
        };
        for id in ids {
            work.write(Room::Elements, &self.key(ENTRY, &[&id.bytes()]), None)?;
        }
        self.length -= ids.len() as u64;
        self.first = first.unwrap_or_default();
        if deletes {
            self.deleted = self.deleted.max(*greatest);
        }
        Ok(())
    }

    /// A group.
    ///
    /// # Errors
    /// Of the store.
    pub(crate) fn group(&self, work: &mut Work, name: &[u8]) -> Result<Option<ConsumerGroup>> {
        let value = work.get(Room::Elements, &self.key(GROUP, &[name]))?;
        value.map(|value| group_of(&value)).transpose()
    }

    /// Stores a group, or removes it.
    ///
    /// # Errors
    /// Of the store.
    pub(crate) fn set_group(
        &self,
        work: &mut Work,
        name: &[u8],
        group: ConsumerGroup,
    ) -> Result<()> {
        let mut value = group.last.bytes().to_vec();
        value.extend_from_slice(&group.read.unwrap_or(u64::MAX).to_le_bytes());
        value.extend_from_slice(&group.pending.to_le_bytes());
        work.write(Room::Elements, &self.key(GROUP, &[name]), Some(&value))
    }

    /// Removes a group with all that belongs to it.
    ///
    /// # Errors
    /// Of the store.
    pub(crate) fn remove_group(&self, work: &mut Work, name: &[u8]) -> Result<()> {
        for room in [CONSUMER, PENDING, OF_CONSUMER] {
            let prefix = self.key(room, &[&item(name)]);
            for (key, _) in all(work, &prefix)? {
                work.write(Room::Elements, &key, None)?;
            }
        }
        work.write(Room::Elements, &self.key(GROUP, &[name]), None)
    }

    /// All groups.
    ///
    /// # Errors
    /// Of the store.
    pub(crate) fn groups(&self, work: &mut Work) -> Result<Vec<(Vec<u8>, ConsumerGroup)>> {
        let prefix = self.key(GROUP, &[]);
        let found = all(work, &prefix)?.into_iter();
        found
            .map(|(key, value)| Ok((key[prefix.len()..].to_vec(), group_of(&value)?)))
            .collect()
    }

    /// A consumer of a group.
    ///
    /// # Errors
    /// Of the store.
    pub(crate) fn consumer(
        &self,
        work: &mut Work,
        group: &[u8],
        name: &[u8],
    ) -> Result<Option<GroupConsumer>> {
        let value = work.get(Room::Elements, &self.key(CONSUMER, &[&item(group), name]))?;
        value.map(|value| consumer_of(&value)).transpose()
    }

    /// Stores a consumer.
    ///
    /// # Errors
    /// Of the store.
    pub(crate) fn set_consumer(
        &self,
        work: &mut Work,
        group: &[u8],
        name: &[u8],
        consumer: GroupConsumer,
    ) -> Result<()> {
        let mut value = consumer.seen_ms.to_le_bytes().to_vec();
        value.extend_from_slice(&consumer.pending.to_le_bytes());
        let key = self.key(CONSUMER, &[&item(group), name]);
        work.write(Room::Elements, &key, Some(&value))
    }

    /// Removes a consumer with what waits for it; returns how much that was.
    ///
    /// # Errors
    /// Of the store.
    pub(crate) fn remove_consumer(
        &self,
        work: &mut Work,
        group: &[u8],
        name: &[u8],
    ) -> Result<u64> {
        let ids = self.pending_of(
            work,
            group,
            name,
            (StreamId::MIN, StreamId::MAX),
            usize::MAX,
        )?;
        for id in &ids {
            self.forget(work, group, name, *id)?;
        }
        let key = self.key(CONSUMER, &[&item(group), name]);
        work.write(Room::Elements, &key, None)?;
        Ok(ids.len() as u64)
    }

    /// All consumers of a group.
    ///
    /// # Errors
    /// Of the store.
    pub(crate) fn consumers(
        &self,
        work: &mut Work,
        group: &[u8],
    ) -> Result<Vec<(Vec<u8>, GroupConsumer)>> {
        let prefix = self.key(CONSUMER, &[&item(group)]);
        let found = all(work, &prefix)?.into_iter();
        found
            .map(|(key, value)| Ok((key[prefix.len()..].to_vec(), consumer_of(&value)?)))
            .collect()
    }

    /// A pending entry.
    ///
    /// # Errors
    /// Of the store.
    pub(crate) fn pending(
        &self,
        work: &mut Work,
        group: &[u8],
        id: StreamId,
    ) -> Result<Option<PendingEntry>> {
        let key = self.key(PENDING, &[&item(group), &id.bytes()]);
        let value = work.get(Room::Elements, &key)?;
        value.map(|value| pending_of(&value)).transpose()
    }

    /// Notes that an entry waits for a consumer.
    ///
    /// # Errors
    /// Of the store.
    pub(crate) fn set_pending(
        &self,
        work: &mut Work,
        group: &[u8],
        id: StreamId,
        pending: &PendingEntry,
    ) -> Result<()> {
        let mut value = pending.delivered_ms.to_le_bytes().to_vec();
        value.extend_from_slice(&pending.deliveries.to_le_bytes());
        value.extend_from_slice(&pending.consumer);
        let group = item(group);
        let key = self.key(PENDING, &[&group, &id.bytes()]);
        work.write(Room::Elements, &key, Some(&value))?;
        let key = self.key(
            OF_CONSUMER,
            &[&group, &item(&pending.consumer), &id.bytes()],
        );
        work.write(Room::Elements, &key, Some(&[]))
    }

    /// Notes that an entry waits no longer.
    ///
    /// # Errors
    /// Of the store.
    pub(crate) fn forget(
        &self,
        work: &mut Work,
        group: &[u8],
        consumer: &[u8],
        id: StreamId,
    ) -> Result<()> {
        let group = item(group);
        let key = self.key(PENDING, &[&group, &id.bytes()]);
        work.write(Room::Elements, &key, None)?;
        let key = self.key(OF_CONSUMER, &[&group, &item(consumer), &id.bytes()]);
        work.write(Room::Elements, &key, None)
    }

    /// Pending entries of a group, from one id to another, for which `takes` says so, at most
    /// `count` of them.
    ///
    /// # Errors
    /// Of the store.
    pub(crate) fn pendings(
        &self,
        work: &mut Work,
        group: &[u8],
        (from, to): (StreamId, StreamId),
        count: usize,
        mut takes: impl FnMut(&PendingEntry) -> bool,
    ) -> Result<Vec<(StreamId, PendingEntry)>> {
        let prefix = self.key(PENDING, &[&item(group)]);
        let mut found = Vec::new();
        for pair in ids(work, &prefix, (from, to))? {
            if found.len() >= count {
                break;
            }
            let (key, value) = pair?;
            let id = StreamId::of(&key[prefix.len()..]).ok_or(BROKEN)?;
            let pending = pending_of(&value)?;
            if takes(&pending) {
                found.push((id, pending));
            }
        }
        Ok(found)
    }

    /// The first and the last entry of a group that wait.
    ///
    /// # Errors
    /// Of the store.
    pub(crate) fn pending_ends(
        &self,
        work: &mut Work,
        group: &[u8],
    ) -> Result<Option<(StreamId, StreamId)>> {
        let prefix = self.key(PENDING, &[&item(group)]);
        let id = |pair: gabion::Result<(gabion::Slice, gabion::Slice)>| {
            StreamId::of(&pair?.0[prefix.len()..]).ok_or(BROKEN)
        };
        let mut pairs = ids(work, &prefix, (StreamId::MIN, StreamId::MAX))?;
        let Some(first) = pairs.next() else {
            return Ok(None);
        };
        let first = id(first)?;
        let last = pairs.next_back().map_or(Ok(first), id)?;
        Ok(Some((first, last)))
    }

    /// Ids of the entries that wait for a consumer.
    ///
    /// # Errors
    /// Of the store.
    pub(crate) fn pending_of(
        &self,
        work: &mut Work,
        group: &[u8],
        consumer: &[u8],
        range: (StreamId, StreamId),
        count: usize,
    ) -> Result<Vec<StreamId>> {
        let prefix = self.key(OF_CONSUMER, &[&item(group), &item(consumer)]);
        let pairs = ids(work, &prefix, range)?.take(count);
        pairs
            .map(|pair| StreamId::of(&pair?.0[prefix.len()..]).ok_or(BROKEN))
            .collect()
    }

    /// Whether entries from an id on were deleted.
    pub(crate) fn has_gaps(&self, from: StreamId) -> bool {
        self.length > 0 && self.deleted != StreamId::MIN && self.deleted >= from
    }

    /// How many entries were added up to an id, if that is known without counting.
    pub(crate) fn added_up_to(&self, id: StreamId) -> Option<u64> {
        if self.added == 0 {
            return Some(0);
        }
        if id == self.last || self.length == 0 && id < self.last {
            return Some(self.added);
        }
        if id > self.last || self.deleted != StreamId::MIN && self.deleted >= self.first {
            return None;
        }
        match id.cmp(&self.first) {
            std::cmp::Ordering::Less => Some(self.added - self.length),
            std::cmp::Ordering::Equal => Some(self.added - self.length + 1),
            std::cmp::Ordering::Greater => None,
        }
    }

    /// How many entries a group has still to read, if that is known.
    pub(crate) fn lag(&self, group: &ConsumerGroup) -> Option<u64> {
        if self.added == 0 {
            return Some(0);
        }
        let read = match group.read.filter(|_| !self.has_gaps(group.last)) {
            Some(read) => read,
            None => self.added_up_to(group.last)?,
        };
        Some(self.added.saturating_sub(read))
    }
}

/// A name that something follows.
fn item(name: &[u8]) -> Vec<u8> {
    let mut item = Vec::with_capacity(name.len() + 2);
    packed::push(&mut item, name);
    item
}

fn entry_of(id: StreamId, row: &[u8]) -> StreamEntry {
    let fields = packed::items(row).map(|item| item.bytes.to_vec()).collect();
    StreamEntry { id, fields }
}

fn group_of(value: &[u8]) -> Result<ConsumerGroup> {
    let last = StreamId::of(value).ok_or(BROKEN)?;
    let read = number_at(value, 16).ok_or(BROKEN)?;
    Ok(ConsumerGroup {
        last,
        read: Some(read).filter(|read| *read != u64::MAX),
        pending: number_at(value, 24).ok_or(BROKEN)?,
    })
}

fn consumer_of(value: &[u8]) -> Result<GroupConsumer> {
    Ok(GroupConsumer {
        seen_ms: number_at(value, 0).ok_or(BROKEN)?,
        pending: number_at(value, 8).ok_or(BROKEN)?,
    })
}

fn pending_of(value: &[u8]) -> Result<PendingEntry> {
    Ok(PendingEntry {
        delivered_ms: number_at(value, 0).ok_or(BROKEN)?,
        deliveries: number_at(value, 8).ok_or(BROKEN)?,
        consumer: value.get(16..).ok_or(BROKEN)?.to_vec(),
    })
}

/// All pairs whose keys begin with `prefix`.
fn all(work: &mut Work, prefix: &[u8]) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let upper = after_prefix(prefix);
    let pairs = work.range(Room::Elements, Bound::Included(prefix), upper.as_deref())?;
    let mut found = Vec::new();
    for pair in pairs {
        let (key, value) = pair?;
        found.push((key.to_vec(), value.to_vec()));
    }
    Ok(found)
}

/// The pairs whose keys are `prefix` and an id from one to another.
fn ids<'w>(
    work: &'w mut Work,
    prefix: &[u8],
    (from, to): (StreamId, StreamId),
) -> Result<super::work::Pairs<'w>> {
    let lower = [prefix, &from.bytes()].concat();
    let upper = match to.next() {
        Some(next) => Some([prefix, &next.bytes()].concat()),
        None => after_prefix(prefix),
    };
    let (lower, upper) = match from > to {
        // Nothing is between them.
        true => (lower.clone(), Some(lower)),
        false => (lower, upper),
    };
    work.range(Room::Elements, Bound::Included(&lower), upper.as_deref())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(ms: u64, seq: u64) -> StreamId {
        StreamId { ms, seq }
    }

    #[test]
    fn ids_are_read_and_ordered() {
        for (text, parsed) in [
            (&b"5"[..], Some(id(5, 7))),
            (b"5-1", Some(id(5, 1))),
            (
                b"18446744073709551615-18446744073709551615",
                Some(StreamId::MAX),
            ),
            (b"", None),
            (b"-", None),
            (b"1-", None),
            (b"1-2-3", None),
            (b"+1", None),
            (b"18446744073709551616", None),
        ] {
            assert_eq!(StreamId::parse(text, 7), parsed, "{}", text.escape_ascii());
        }
        assert_eq!(id(1, u64::MAX).next(), Some(id(2, 0)));
        assert_eq!(id(2, 0).before(), Some(id(1, u64::MAX)));
        assert_eq!((StreamId::MAX.next(), StreamId::MIN.before()), (None, None));
        assert!(id(255, 9).bytes() < id(256, 1).bytes());
        assert_eq!(StreamId::of(&id(3, 4).bytes()), Some(id(3, 4)));
    }

    #[test]
    fn what_a_group_has_to_read_is_known_where_nothing_was_deleted() {
        let mut stream = Stream {
            head: RecordHead::STRING,
            space: 0,
            number: 1,
            length: 3,
            added: 5,
            last: id(5, 0),
            deleted: StreamId::MIN,
            first: id(3, 0),
        };
        assert_eq!(stream.added_up_to(id(5, 0)), Some(5));
        assert_eq!(stream.added_up_to(id(3, 0)), Some(3));
        assert_eq!(stream.added_up_to(id(1, 0)), Some(2));
        assert_eq!(stream.added_up_to(id(4, 0)), None);
        let group = ConsumerGroup {
            last: id(4, 0),
            read: Some(4),
            pending: 0,
        };
        assert_eq!(stream.lag(&group), Some(1));
        stream.deleted = id(4, 5);
        assert_eq!(stream.lag(&group), None);
    }
}
