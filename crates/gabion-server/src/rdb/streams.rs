//! Streams in dumps.
//!
//! # Layout
//! ```text
//! stream   = nodes node*  length last [first deleted added]  groups group*
//! node     = key pack         key: the id that the node's entries count from, a string of 16 bytes
//! group    = name last [read]  pendings pending*  consumers consumer*
//! pending  = id moment deliveries
//! consumer = name moment [moment]  pendings id*
//! id       = 16 bytes, big-endian; milliseconds and number
//! ```
//! Counts, and ids but those in `key`, `pending` and `consumer`, are lengths; a moment has eight
//! bytes. What stands in brackets came with version 2; a consumer's second moment, with version 3,
//! is when it last was given an entry, and is not kept here. `read` is all ones if nobody knows.
//!
//! A pack is a listpack: entries and deleted entries (two counts), the fields that the node's
//! entries have in common, how many in front and a zero behind, and the entries: flags,
//! milliseconds and number less the key's, fields and values, and how many items that were. With
//! the flag [`SAME_FIELDS`] an entry has the common fields and only values stand there, else their
//! number stands in front.
//!
//! # Memory
//! A node is in memory at a time, and of a group the ids of all entries that wait, 40 bytes each.

use std::collections::BTreeSet;
use std::io::Read;

use super::packs::{Item, Listpack, listpack};
use super::piece::{Ends, GroupValue, HasRead, Piece, Refused, Result, StreamValue, Take};
use super::read::Reader;
use super::write::{push_length, push_string};
use crate::store::stream::{GroupConsumer, PendingEntry, StreamEntry, StreamId};

/// The entry was deleted.
const DELETED: i64 = 1;
/// The entry has the fields that the node's entries have in common.
const SAME_FIELDS: i64 = 2;

/// Bytes and entries after which a node is closed.
const NODE_BYTES: usize = 4096;
const NODE_ENTRIES: u64 = 100;

/// What stands in a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Version {
    One,
    Two,
    Three,
}

/// An entry of a group that waits, while its consumer is looked for.
struct Waiting {
    id: StreamId,
    delivered_ms: u64,
    deliveries: u64,
    has_consumer: bool,
}

/// Gives away the pieces of a stream.
pub(super) fn read<R: Read>(
    reader: &mut Reader<R>,
    version: Version,
    take: Take<'_>,
) -> Result<()> {
    let mut last_entry = None;
    let mut count = 0;
    for _ in 0..reader.length()? {
        let key = reader.string()?;
        let key = StreamId::of(&key).filter(|_| key.len() == 16);
        let key = key.ok_or(Refused::Broken("the key of a stream's node is no id"))?;
        let pack = reader.string()?;
        count += read_node(&pack, key, &mut last_entry, take)?;
    }
    let length = reader.length()?;
    let mut ends = Ends {
        last: read_id(reader)?,
        deleted: StreamId::MIN,
        added: length,
    };
    if version >= Version::Two {
        // The first id follows from the entries.
        read_id(reader)?;
        ends.deleted = read_id(reader)?;
        ends.added = reader.length()?;
    }
    if length != count || last_entry.is_some_and(|id| id > ends.last) {
        return Err(Refused::Broken("a stream has other entries than it says"));
    }
    take(Piece::Ends(ends))?;
    let mut names = BTreeSet::new();
    for _ in 0..reader.length()? {
        let name = reader.string()?;
        read_group(reader, version, &name, take)?;
        if !names.insert(name) {
            return Err(Refused::Broken("two groups of a stream have the same name"));
        }
    }
    Ok(())
}

fn read_id<R: Read>(reader: &mut Reader<R>) -> Result<StreamId> {
    Ok(StreamId {
        ms: reader.length()?,
        seq: reader.length()?,
    })
}

fn read_raw_id<R: Read>(reader: &mut Reader<R>) -> Result<StreamId> {
    let bytes: [u8; 16] = reader.chunk()?;
    StreamId::of(&bytes).ok_or(Refused::Cut)
}

/// Gives away the entries of a node; returns how many there were.
fn read_node(
    pack: &[u8],
    key: StreamId,
    last: &mut Option<StreamId>,
    take: Take<'_>,
) -> Result<u64> {
    let mut items = listpack(pack);
    let (live, deleted) = (items.unsigned()?, items.unsigned()?);
    let mut common = Vec::new();
    for _ in 0..items.unsigned()? {
        common.push(items.one()?);
    }
    items.one()?;
    let all = live.checked_add(deleted);
    let all = all.ok_or(Refused::Broken("a stream's node has too many entries"))?;
    let mut seen = 0;
    let mut fields: Vec<Item<'_>> = Vec::new();
    for _ in 0..all {
        let (flags, ms, seq) = (items.number()?, items.number()?, items.number()?);
        let id = StreamId {
            ms: key.ms.wrapping_add_signed(ms),
            seq: key.seq.wrapping_add_signed(seq),
        };
        fields.clear();
        if flags & SAME_FIELDS != 0 {
            for field in &common {
                fields.push(field.clone());
                fields.push(items.one()?);
            }
        } else {
            for _ in 0..items.unsigned()? {
                fields.push(items.one()?);
                fields.push(items.one()?);
            }
        }
        // How many items they were, for who reads from the end.
        items.one()?;
        if flags & DELETED != 0 {
            continue;
        }
        if last.is_some_and(|last| last >= id) {
            return Err(Refused::Broken("entries of a stream are out of order"));
        }
        *last = Some(id);
        seen += 1;
        take(Piece::Entry(id, &fields))?;
    }
    match items.next() {
        None if seen == live => Ok(seen),
        _ => Err(Refused::Broken(
            "a stream's node has other entries than it says",
        )),
    }
}

fn read_group<R: Read>(
    reader: &mut Reader<R>,
    version: Version,
    group: &[u8],
    take: Take<'_>,
) -> Result<()> {
    let last = read_id(reader)?;
    let has_read = match version {
        Version::One => HasRead::Uncounted,
        _ => HasRead::Counted(Some(reader.length()?).filter(|read| *read != u64::MAX)),
    };
    let count = reader.length()?;
    let mut waiting: Vec<Waiting> = Vec::new();
    for _ in 0..count {
        let id = read_raw_id(reader)?;
        if waiting.last().is_some_and(|last| last.id >= id) {
            return Err(Refused::Broken("entries that wait are out of order"));
        }
        waiting.push(Waiting {
            id,
            delivered_ms: reader.moment()?,
            deliveries: reader.length()?,
            has_consumer: false,
        });
    }
    take(Piece::Group(group, last, has_read, count))?;
    let mut names = BTreeSet::new();
    for _ in 0..reader.length()? {
        let name = reader.string()?;
        if !names.insert(name.clone()) {
            return Err(Refused::Broken(
                "two consumers of a group have the same name",
            ));
        }
        read_consumer(reader, version, (group, name), &mut waiting, take)?;
    }
    match waiting.iter().all(|waiting| waiting.has_consumer) {
        true => Ok(()),
        false => Err(Refused::Broken("an entry waits for nobody")),
    }
}

fn read_consumer<R: Read>(
    reader: &mut Reader<R>,
    version: Version,
    (group, name): (&[u8], Vec<u8>),
    waiting: &mut [Waiting],
    take: Take<'_>,
) -> Result<()> {
    let seen_ms = reader.moment()?;
    if version >= Version::Three {
        reader.moment()?;
    }
    let count = reader.length()?;
    let consumer = GroupConsumer {
        seen_ms,
        pending: count,
    };
    take(Piece::Consumer(group, &name, consumer))?;
    let mut pending = PendingEntry {
        delivered_ms: 0,
        deliveries: 0,
        consumer: name,
    };
    for _ in 0..count {
        let id = read_raw_id(reader)?;
        let place = waiting.binary_search_by_key(&id, |waiting| waiting.id);
        let found = place.ok().and_then(|place| waiting.get_mut(place));
        let found = found.filter(|found| !found.has_consumer);
        let found = found.ok_or(Refused::Broken(
            "a consumer has an entry that does not wait",
        ))?;
        found.has_consumer = true;
        pending.delivered_ms = found.delivered_ms;
        pending.deliveries = found.deliveries;
        take(Piece::Pending(group, id, &pending))?;
    }
    Ok(())
}

/// Appends a stream.
pub(super) fn write(out: &mut Vec<u8>, stream: &StreamValue, version: Version) {
    let mut nodes = Vec::new();
    let mut count = 0;
    let mut entries = stream.entries.as_slice();
    while !entries.is_empty() {
        entries = write_node(&mut nodes, entries);
        count += 1;
    }
    push_length(out, count);
    out.append(&mut nodes);
    push_length(out, stream.entries.len() as u64);
    push_id(out, stream.ends.last);
    if version >= Version::Two {
        let first = stream
            .entries
            .first()
            .map_or(StreamId::MIN, |entry| entry.id);
        push_id(out, first);
        push_id(out, stream.ends.deleted);
        push_length(out, stream.ends.added);
    }
    push_length(out, stream.groups.len() as u64);
    for (name, group) in &stream.groups {
        push_string(out, name);
        write_group(out, group, version);
    }
}

fn push_id(out: &mut Vec<u8>, id: StreamId) {
    push_length(out, id.ms);
    push_length(out, id.seq);
}

/// Appends a node of the first entries; returns the others.
fn write_node<'e>(out: &mut Vec<u8>, entries: &'e [StreamEntry]) -> &'e [StreamEntry] {
    let key = entries.first().map_or(StreamId::MIN, |entry| entry.id);
    let mut written = Listpack::default();
    let (mut count, mut rest) = (0, entries);
    while let Some((entry, others)) = rest.split_first() {
        if count == NODE_ENTRIES || written.bytes() >= NODE_BYTES {
            break;
        }
        let fields = i64::try_from(entry.fields.len() / 2).unwrap_or(i64::MAX);
        written.push_number(0);
        written.push_number(entry.id.ms.wrapping_sub(key.ms).cast_signed());
        written.push_number(entry.id.seq.wrapping_sub(key.seq).cast_signed());
        written.push_number(fields);
        for field in &entry.fields {
            written.push(field);
        }
        written.push_number(2 * fields + 4);
        count += 1;
        rest = others;
    }
    let mut pack = Listpack::default();
    pack.push_number(i64::try_from(count).unwrap_or(i64::MAX));
    // None was deleted, and no fields are common.
    for _ in 0..3 {
        pack.push_number(0);
    }
    pack.append(&written);
    push_string(out, &key.bytes());
    push_string(out, &pack.finish());
    rest
}

fn write_group(out: &mut Vec<u8>, group: &GroupValue, version: Version) {
    push_id(out, group.group.last);
    if version >= Version::Two {
        push_length(out, group.group.read.unwrap_or(u64::MAX));
    }
    push_length(out, group.pendings.len() as u64);
    for (id, pending) in &group.pendings {
        out.extend_from_slice(&id.bytes());
        out.extend_from_slice(&pending.delivered_ms.to_le_bytes());
        push_length(out, pending.deliveries);
    }
    push_length(out, group.consumers.len() as u64);
    for (name, consumer) in &group.consumers {
        push_string(out, name);
        out.extend_from_slice(&consumer.seen_ms.to_le_bytes());
        if version >= Version::Three {
            out.extend_from_slice(&consumer.seen_ms.to_le_bytes());
        }
        let own = group.pendings.iter();
        let own: Vec<_> = own.filter(|(_, known)| known.consumer == *name).collect();
        push_length(out, own.len() as u64);
        for (id, _) in own {
            out.extend_from_slice(&id.bytes());
        }
    }
}
