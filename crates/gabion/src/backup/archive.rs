//! The log of a store, archived behind its backups.
//!
//! # Idea
//! A backup is a moment; the log has all that is between two moments. So a repository may keep,
//! behind a backup, the records of the log from there on: with these a store can be restored to any
//! write in between (`replay`). What is archived is what those read who follow the store's changes
//! (`engine/ssd/feed.rs`), and a consumer of the repository's own keeps it in the store until then.
//!
//! A *part* is what one call has archived, or a few mebibytes of that (`part`). Parts that follow
//! each other without a gap are a *chain*. A chain begins with a backup and has the number of that
//! backup; later backups with the log are taken along it, and name their place in it.
//!
//! # What ends a chain
//! What is in no log: pairs that were ingested, a drop that a crash has cut off from its record, a
//! log that was kept no longer as nobody archived it. Then the next backup begins another chain,
//! and what was written between the two cannot be restored; who archives is told so.
//!
//! # Keyspaces
//! Their making, their options and their drops are records, too. The record of a making may be lost
//! with a crash; so who archives writes one for each keyspace that it meets in a write and was not
//! told of.
//!
//! # Invariants
//! - A1. A part has all of what the log has from its `from` to its `to`, and is durable as a whole.
//! - A2. What is archived is durable in the store: no power loss gives its numbers to other writes.
//! - A3. The consumer is never in front of the parts: it moves on when they are durable.
//!
//! # Crashes and errors
//! What was archived before stays. A crash between a part and the consumer's step leaves the
//! consumer behind; the next call goes on where the last part ends.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use gabion_media::Purpose;

use super::layout::ChainEnd;
use super::objects::ObjectHash;
use super::part::{LogPart, LogParts, parse_part_name, part_name};
use super::transfer::{BackupOptions, Transfer};
use super::{BackupOrigin, BackupRepository, Descriptions};
use crate::engine::root_file::RootFile;
use crate::engine::{EngineHandle, FeedItem};
use crate::log::codec::put_bytes;
use crate::log::{KeyspaceEvent, LogEntry, MalformedPayload};
use crate::names::{LOCK, log_name};
use crate::options::Durability;
use crate::position::Position;
use crate::types::Seq;
use crate::{Error, Result};

/// Bytes of records after which a part is written.
const PART_BYTES: usize = 4 << 20;

/// Name of the file with the repository's own number.
const ARCHIVE: &str = "ARCHIVE";

/// What `ARCHIVE` says: 16 bytes that no other repository has.
const ARCHIVE_FILE: RootFile = RootFile {
    name: ARCHIVE,
    magic: *b"GABIONAR",
    format: 1,
};

const ID_BYTES: usize = 16;

const INGESTED: &str = "pairs were ingested then, which no log has";
const UNTOLD: &str = "a keyspace was made and dropped whose options no log has";
const UNLOGGED: &str = "a crash took the record of a drop or an ingest from the log";
const GONE: &str = "the store has removed the log behind it, as changes_bytes_max allows no more";
const NOBODY: &str = "the store keeps no log for this repository";

/// What was archived of a store's log.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArchivedLog {
    /// The number of the last write that the repository has.
    pub position: u64,
    /// Bytes of the records that were added.
    pub bytes: u64,
}

/// A part that is being filled.
struct PartWriter<'w> {
    store: &'w EngineHandle,
    path: &'w Path,
    records: Vec<u8>,
    /// Behind the last record.
    to: Position,
    next_keyspace: u32,
}

impl BackupRepository {
    /// Adds to the repository what the log of a store has behind the last backup with the log, or
    /// behind the last call.
    pub(crate) fn archive(
        &self,
        origin: &BackupOrigin<'_>,
        options: BackupOptions<'_>,
    ) -> Result<ArchivedLog> {
        origin.handle.check_archive()?;
        let _lock = self.disk.lock(LOCK)?;
        self.clear_left()?;
        let Some(mut end) = self.chain_end(origin, &self.descriptions()?)? else {
            return Err(Error::LogArchiveEnded {
                position: 0,
                why: "it has no backup with the log of this store",
            });
        };
        let consumer = self.consumer_name()?;
        let mut transfer = Transfer::new(options, bytes_left(origin.handle, &consumer)?);
        let ended = match keeps_log(origin.handle, &consumer, end.at)? {
            true => self.extend_chain(origin, &consumer, &mut end, &mut transfer)?,
            false => Some(NOBODY),
        };
        match ended {
            None => Ok(ArchivedLog {
                position: end.at.number(),
                bytes: transfer.bytes_moved(),
            }),
            Some(why) => Err(Error::LogArchiveEnded {
                position: end.at.number(),
                why,
            }),
        }
    }

    /// The place in a chain where backup `id` of a store is about to be taken: behind all that the
    /// log has, or at the front of a new chain.
    pub(super) fn place_in_log(
        &self,
        origin: &BackupOrigin<'_>,
        (id, earlier): (u64, &Descriptions),
        transfer: &mut Transfer<'_>,
    ) -> Result<ChainEnd> {
        origin.handle.check_archive()?;
        let consumer = self.consumer_name()?;
        if let Some(mut end) = self.chain_end(origin, earlier)?
            && keeps_log(origin.handle, &consumer, end.at)?
        {
            transfer.expect(bytes_left(origin.handle, &consumer)?);
            match self.extend_chain(origin, &consumer, &mut end, transfer)? {
                None => return Ok(end),
                Some(why) => tracing::warn!(why, "the log in the repository begins anew"),
            }
        }
        origin.handle.consumer(&consumer)?;
        let at = origin.handle.position()?;
        origin.handle.acknowledge(&consumer, at)?;
        Ok(ChainEnd {
            chain: id,
            at,
            next_keyspace: origin.handle.keyspaces_end(),
        })
    }

    /// Where the newest chain of a store ends, if it has any.
    fn chain_end(
        &self,
        origin: &BackupOrigin<'_>,
        descriptions: &Descriptions,
    ) -> Result<Option<ChainEnd>> {
        let store = origin.path.to_string_lossy();
        let of_store = descriptions
            .good
            .iter()
            .filter(|(_, own)| own.store == store && own.engine == origin.engine);
        let newest = of_store.rev().find_map(|(_, own)| own.log);
        let Some(link) = newest else {
            return Ok(None);
        };
        // Along a chain numbers ascend. Where one is missing or damaged, the next backup is behind
        // it, and what follows that can be restored.
        for id in self.part_ids()?.into_iter().rev() {
            match LogPart::read(&self.disk, id) {
                Ok(last) if last.chain == link.place.chain && last.to > link.place.at => {
                    return Ok(Some(ChainEnd {
                        chain: last.chain,
                        at: last.to,
                        next_keyspace: last.next_keyspace,
                    }));
                }
                Ok(part) if part.chain == link.place.chain => break,
                Err(error @ Error::Media(_)) => return Err(error),
                Ok(_) | Err(_) => {}
            }
        }
        Ok(Some(link.place))
    }

    /// Adds to a chain what the log has behind it, and lets the consumer go on; says why nothing
    /// can follow, if so.
    fn extend_chain(
        &self,
        origin: &BackupOrigin<'_>,
        consumer: &str,
        end: &mut ChainEnd,
        transfer: &mut Transfer<'_>,
    ) -> Result<Option<&'static str>> {
        let store = origin.handle;
        let until = store.position()?;
        // A2: what is durable is all that was there when this was called.
        store.persist(Durability::Sync)?;
        let mut feed = store.feed(end.at, true)?;
        let mut part = PartWriter {
            store,
            path: origin.path,
            records: Vec::new(),
            to: end.at,
            next_keyspace: end.next_keyspace,
        };
        let ended = loop {
            if feed.position() >= until {
                break None;
            }
            match store.feed_next_record(&mut feed, |item| part.add(&item)) {
                Ok(None) => break None,
                Ok(Some(None)) => {}
                Ok(Some(Some(why))) => break Some(why),
                Err(Error::ChangesGone { .. }) => break Some(GONE),
                Err(Error::ChangesUnlogged { .. }) => break Some(UNLOGGED),
                Err(error) => return Err(error),
            }
            if part.records.len() >= PART_BYTES {
                self.write_part(origin, &mut part, end, transfer)?;
            }
        };
        self.write_part(origin, &mut part, end, transfer)?;
        // DURABLE: the name of a part, too, whose writer was killed before it was (A3).
        self.disk.sync_dir()?;
        store.acknowledge(consumer, end.at)?;
        Ok(ended)
    }

    /// Writes what a part has so far, if that is anything.
    fn write_part(
        &self,
        origin: &BackupOrigin<'_>,
        part: &mut PartWriter<'_>,
        end: &mut ChainEnd,
        transfer: &mut Transfer<'_>,
    ) -> Result<()> {
        if part.to == end.at {
            return Ok(());
        }
        let id = self.part_ids()?.last().map_or(1, |last| last + 1);
        let bytes = part.records.len() as u64;
        let head = LogPart {
            chain: end.chain,
            engine: origin.engine,
            store: origin.path.to_string_lossy().into_owned(),
            from: end.at,
            to: part.to,
            archived_ms: self.now_ms(),
            next_keyspace: part.next_keyspace,
            bytes,
            hash: ObjectHash::of(&part.records),
        };
        head.write(&self.disk, id, &part.records).inspect_err(|_| {
            // It may be there, with a name that no power loss spares.
            let _ = self.disk.remove(&part_name(id));
        })?;
        end.at = part.to;
        end.next_keyspace = part.next_keyspace;
        part.records.clear();
        transfer.moved(bytes)
    }

    /// The heads of all parts.
    pub(super) fn parts(&self) -> Result<LogParts> {
        let mut parts = LogParts::default();
        for id in self.part_ids()? {
            match LogPart::read(&self.disk, id) {
                Ok(part) => parts.good.push((id, part)),
                // It was pruned meanwhile.
                Err(Error::Media(error)) if error.is_not_found() => {}
                Err(error @ Error::Media(_)) => return Err(error),
                Err(error) => parts.bad.push((id, error)),
            }
        }
        Ok(parts)
    }

    /// The numbers of all parts, in ascending order.
    fn part_ids(&self) -> Result<Vec<u64>> {
        let names = self.disk.list()?;
        let ids = names.iter().filter_map(|name| parse_part_name(name));
        Ok(ids.collect())
    }

    /// The name of the consumer for whom stores keep their logs.
    ///
    /// # Errors
    /// [`Error::Corruption`], [`Error::NewerFormat`] and [`Error::Media`] of the file that says it.
    fn consumer_name(&self) -> Result<String> {
        if !self.disk.exists(ARCHIVE)? {
            let id = new_id(self.disk.path());
            let bytes = ARCHIVE_FILE.encode(|out| out.extend(id));
            // DURABLE: no store keeps its log for a name that is forgotten.
            self.disk.replace(ARCHIVE, &bytes, Purpose::Metadata)?;
        }
        let id = ARCHIVE_FILE.read(&self.disk, |bytes| {
            ARCHIVE_FILE.decode(bytes, |reader| Ok(reader.take(ID_BYTES)?.to_vec()))
        })?;
        let digits = id.iter().map(|byte| format!("{byte:02x}"));
        Ok(format!("backup-{}", digits.collect::<String>()))
    }

    /// Milliseconds since 1970.
    pub(super) fn now_ms(&self) -> u64 {
        u64::try_from(self.clock.unix_time().as_millis()).unwrap_or(u64::MAX)
    }
}

/// Whether a store keeps its log from a position on for a consumer.
fn keeps_log(store: &EngineHandle, consumer: &str, at: Position) -> Result<bool> {
    match store.consumer_position(consumer) {
        Ok(stands) => Ok(stands <= at),
        Err(Error::NoSuchConsumer { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Bytes of the log that a consumer has in front of it.
fn bytes_left(store: &EngineHandle, consumer: &str) -> Result<u64> {
    let states = store.consumer_states()?;
    let own = states.iter().find(|state| state.name == consumer);
    Ok(own.map_or(0, |state| state.bytes))
}

/// Bytes that no other repository has.
fn new_id(path: &Path) -> [u8; ID_BYTES] {
    static MADE: AtomicU64 = AtomicU64::new(0);
    // ORDER: Relaxed; each caller gets another number.
    let made = MADE.fetch_add(1, Ordering::Relaxed);
    let since = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    let mut hasher = blake3::Hasher::new();
    hasher.update(path.as_os_str().as_encoded_bytes());
    hasher.update(&since.as_nanos().to_le_bytes());
    hasher.update(&std::process::id().to_le_bytes());
    hasher.update(&made.to_le_bytes());
    let mut id = [0; ID_BYTES];
    hasher.finalize_xof().fill(&mut id);
    id
}

impl PartWriter<'_> {
    /// Adds a record; or says why it cannot be.
    fn add(&mut self, item: &FeedItem<'_>) -> Result<Option<&'static str>> {
        match &item.logged {
            LogEntry::Event(_, _, KeyspaceEvent::Ingested { .. }) => return Ok(Some(INGESTED)),
            LogEntry::Event(_, id, KeyspaceEvent::Made { .. }) => {
                self.next_keyspace = self.next_keyspace.max(id + 1);
            }
            LogEntry::Event(..) | LogEntry::Again => {}
            LogEntry::Batch(first, _, operations) => {
                for operation in operations.clone() {
                    let damaged = |malformed: MalformedPayload| {
                        let file = self.path.join(log_name(item.at.segment()));
                        malformed.in_file(file, item.at.offset())
                    };
                    let id = operation.map_err(damaged)?.keyspace;
                    if id >= self.next_keyspace && !self.tell_made(id, first - 1) {
                        return Ok(Some(UNTOLD));
                    }
                }
            }
        }
        put_bytes(&mut self.records, item.record);
        self.to = item.position;
        Ok(None)
    }

    /// Adds the records of keyspaces up to that of a number, of which the log has told nothing;
    /// false if the last one is not there any more.
    fn tell_made(&mut self, last: u32, seq: Seq) -> bool {
        for id in self.next_keyspace..=last {
            let Some(keyspace) = self.store.live_keyspace(id) else {
                continue;
            };
            let made = KeyspaceEvent::Made {
                name: keyspace.name(),
            };
            put_bytes(&mut self.records, &made.encode(seq, id));
            let options = &keyspace.options().encode();
            if !options.is_empty() {
                let event = KeyspaceEvent::Options { options };
                put_bytes(&mut self.records, &event.encode(seq, id));
            }
            self.next_keyspace = id + 1;
        }
        self.next_keyspace > last
    }
}
