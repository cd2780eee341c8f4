//! A backup and the log behind it become a store as it was at any moment in between.
//!
//! # Idea
//! A restored backup is a store that was closed. What is archived of the log behind it is put
//! behind its own log, up to the moment asked for, so that the store is one whose process ended
//! just then; and the engine recovers it, with the numbers that writes had. What became of
//! keyspaces in between is done first, as a recovery finds it done.
//!
//! # Rounds
//! A recovery has all that it replays in memory. So a long log is put behind the store in rounds of
//! some mebibytes, after each of which the store is flushed and closed. A merge may cover earlier
//! ones of its key that are in the same MemTable (`operands`, O2): no round ends between those two.
//! Behind a backup there are none that cover what it has (`engine/wip/checkpoint.rs`).
//!
//! # Invariants
//! - R1. What is put behind a backup follows it without a gap: its parts are of one chain, from the
//!   backup's place in it on.
//! - R2. Batches and transactions are there as a whole or not at all.
//! - R3. All parts that are needed are read, and compared with their hashes, before the store has a
//!   record of any of them.
//!
//! # Durability and recovery
//! As with any restore: the target is marked until all of it is durable (`new_dir`).

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use gabion_media::Disk;

use super::BackupRepository;
use super::layout::BackupDescription;
use super::part::{LogPart, LogParts, each_record, part_name};
use super::restore::fill_dir;
use super::transfer::{BackupOptions, Transfer};
use crate::engine::{EngineHandle, extend_log};
use crate::log::{KeyspaceEvent, LogEntry, MalformedPayload};
use crate::names::LOCK;
use crate::new_dir::fill;
use crate::operands::Operands;
use crate::types::{Kind, SEQ_MAX, Seq};
use crate::{Engine, Error, KeyspaceOptions, Options, Result, Tuning};

/// Bytes of records after which a round may end.
pub(super) const ROUND_BYTES: usize = 32 << 20;

/// The moment to which a store is restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestoreUntil {
    /// Behind the write of this sequence number ([`Position::number`](crate::Position::number)); in
    /// front of a batch that it is in the middle of.
    Position(u64),
    /// Behind all that was archived by then: what [`Db::archive_log`](crate::Db::archive_log) added
    /// up to this moment. So nothing in the store was written later, but what was written between
    /// the last call and this moment is not in it.
    Time(SystemTime),
}

/// What a store was restored of.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RestoredUntil {
    /// The number of the backup.
    pub backup: u64,
    /// The sequence number of the last write.
    pub position: u64,
}

impl fmt::Display for RestoreUntil {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RestoreUntil::Position(number) => write!(f, "position {number}"),
            RestoreUntil::Time(_) => write!(f, "that time"),
        }
    }
}

/// What a store is made of.
struct Plan<'p> {
    id: u64,
    description: &'p BackupDescription,
    parts: Vec<&'p (u64, LogPart)>,
    /// No later write is in it.
    last: Seq,
}

impl BackupRepository {
    /// Makes a store of a backup and of the log behind it, as it was at a moment; in the directory
    /// `to`, as [`BackupRepository::restore`] does. The backup is `id`, or the newest from which
    /// the moment can be reached.
    ///
    /// Takes the time of a restore, and that of writing once more what was written since the
    /// backup. Uses about as much memory as a store with [`Options::default`], without a cache;
    /// more where merges into the same keys go on and on.
    ///
    /// # Errors
    /// [`Error::NotRestorable`] if the repository has no way to that moment;
    /// [`Error::Corruption`] of a part of the log; and those of [`BackupRepository::restore`].
    pub fn restore_until(
        &self,
        id: Option<u64>,
        until: RestoreUntil,
        to: impl AsRef<Path>,
        options: BackupOptions<'_>,
    ) -> Result<RestoredUntil> {
        self.restore_by(id, until, options, |work| fill_dir(to.as_ref(), work))
    }

    /// As [`BackupRepository::restore_until`], to a directory of a disk of any kind, which is empty
    /// or holds what an interrupted restore has left.
    ///
    /// # Errors
    /// Those of [`BackupRepository::restore_until`].
    #[doc(hidden)]
    pub fn restore_until_on(
        &self,
        id: Option<u64>,
        until: RestoreUntil,
        target: &Disk,
        options: BackupOptions<'_>,
    ) -> Result<RestoredUntil> {
        self.restore_by(id, until, options, |work| fill(target, || work(target)))
    }

    /// Plans, and lets `place` give the target to who writes it.
    fn restore_by(
        &self,
        id: Option<u64>,
        until: RestoreUntil,
        options: BackupOptions<'_>,
        place: impl FnOnce(&mut dyn FnMut(&Disk) -> Result<Seq>) -> Result<Seq>,
    ) -> Result<RestoredUntil> {
        let _lock = self.disk.lock_shared(LOCK)?;
        let backups = match id {
            Some(id) => vec![(id, self.description(id)?)],
            None => self.descriptions()?.good,
        };
        let parts = self.parts()?;
        let plan = plan(&backups, &parts, until)?;
        let log: u64 = plan.parts.iter().map(|(_, part)| part.bytes).sum();
        let mut transfer = Transfer::new(options, plan.description.bytes() + 2 * log);
        let ends = self.round_ends(&plan, &mut transfer)?;
        let position = place(&mut |target| {
            self.copy(plan.id, plan.description, target, &mut transfer)?;
            self.replay(&plan, &ends, target, &mut transfer)
        })?;
        Ok(RestoredUntil {
            backup: plan.id,
            position,
        })
    }

    /// Where rounds may end: the last numbers of records.
    fn round_ends(&self, plan: &Plan<'_>, transfer: &mut Transfer<'_>) -> Result<BTreeSet<Seq>> {
        let (mut ends, mut bytes) = (BTreeSet::new(), 0);
        self.each_entry(plan, transfer, |entry, record| {
            let mut last = None;
            if let LogEntry::Batch(first, count, operations) = entry {
                for operation in operations {
                    let operation = operation?;
                    let below = match operation.kind {
                        Kind::Merge => Operands::below_of(operation.value, operation.seq),
                        _ => None,
                    };
                    if let Some(since) = below {
                        // No end lies behind this operation.
                        drop(ends.split_off(&since));
                    }
                }
                last = Some(first + u64::from(count) - 1);
            }
            bytes += record.len();
            if let Some(last) = last
                && bytes >= self.round_bytes
            {
                ends.insert(last);
                bytes = 0;
            }
            Ok(())
        })?;
        Ok(ends)
    }

    /// Puts the log behind a restored backup; returns the number of the last write.
    fn replay(
        &self,
        plan: &Plan<'_>,
        ends: &BTreeSet<Seq>,
        target: &Disk,
        transfer: &mut Transfer<'_>,
    ) -> Result<Seq> {
        let (engine, mut position) = (plan.description.engine, plan.description.position);
        let mut round = Round::default();
        self.each_record_of(plan, transfer, |id, entry, record| {
            position = position.max(last_number(&entry));
            match entry {
                LogEntry::Event(..) => round.events.push((id, record.to_vec())),
                _ => round.records.push(record.to_vec()),
            }
            if ends.contains(&position) {
                self.end_round(&mut round, engine, target)?;
            }
            Ok(())
        })?;
        self.end_round(&mut round, engine, target)?;
        // DURABLE: each round is, and now all names are.
        target.sync_dir()?;
        Ok(position)
    }

    /// Does to the store what a round has, and forgets it.
    fn end_round(&self, round: &mut Round, engine: Engine, target: &Disk) -> Result<()> {
        let Round { records, events } = std::mem::take(round);
        if !events.is_empty() {
            self.with_store(engine, target, |store| {
                events
                    .iter()
                    .try_for_each(|(id, record)| self.apply(store, *id, record))
            })?;
        }
        if !records.is_empty() {
            extend_log(engine, target, records.iter().map(Vec::as_slice))?;
            drop(records);
            self.with_store(engine, target, EngineHandle::flush)?;
        }
        Ok(())
    }

    /// Opens the store that is being made, does something with it, and closes it.
    fn with_store(
        &self,
        engine: Engine,
        target: &Disk,
        work: impl FnOnce(&EngineHandle) -> Result<()>,
    ) -> Result<()> {
        let options = Options {
            engine,
            create_if_missing: false,
            background_threads: 0,
            tuning: Tuning {
                clock: self.clock.clone(),
                cache_bytes: Some(0),
                ..Tuning::default()
            },
            ..Options::default()
        };
        // The mark of what is not whole is for others.
        let store = EngineHandle::open_unfinished(target.clone(), options)?;
        let worked = work(&store);
        let closed = store.close();
        worked.and(closed)
    }

    /// Does to a store what the record of an event tells, in a part of that number.
    fn apply(&self, store: &EngineHandle, part: u64, record: &[u8]) -> Result<()> {
        let damaged =
            |malformed: MalformedPayload| malformed.in_file(self.disk.path_of(&part_name(part)), 0);
        let LogEntry::Event(_, id, event) = LogEntry::read(record).map_err(damaged)? else {
            return Ok(());
        };
        match (event, store.live_keyspace(id)) {
            (KeyspaceEvent::Made { name }, None) => loop {
                let made = store.create_keyspace(name, None)?;
                match made.id().cmp(&id) {
                    Ordering::Equal => return Ok(()),
                    // The number of one that was made and dropped unseen.
                    Ordering::Less => drop(store.drop_keyspace(name)?),
                    Ordering::Greater => {
                        return Err(Error::Corruption {
                            file: self.disk.path_of(&part_name(part)),
                            offset: 0,
                            what: format!("keyspace {id} ({name:?}) was made before others"),
                        });
                    }
                }
            },
            (KeyspaceEvent::Options { options }, Some(keyspace)) => {
                let options = KeyspaceOptions::decode(options).map_err(damaged)?;
                store
                    .create_keyspace(keyspace.name(), Some(&options))
                    .map(drop)
            }
            (KeyspaceEvent::Dropped { .. }, Some(keyspace)) => {
                store.drop_keyspace(keyspace.name()).map(drop)
            }
            _ => Ok(()),
        }
    }

    /// Calls `take` with each record that a plan has, decoded.
    fn each_entry(
        &self,
        plan: &Plan<'_>,
        transfer: &mut Transfer<'_>,
        mut take: impl FnMut(LogEntry<'_>, &[u8]) -> Result<(), MalformedPayload>,
    ) -> Result<()> {
        self.each_record_of(plan, transfer, |id, entry, record| {
            let taken = take(entry, record);
            taken.map_err(|malformed| malformed.in_file(self.disk.path_of(&part_name(id)), 0))
        })
    }

    /// As [`BackupRepository::each_entry`], with the number of the part in which each is.
    fn each_record_of(
        &self,
        plan: &Plan<'_>,
        transfer: &mut Transfer<'_>,
        mut take: impl FnMut(u64, LogEntry<'_>, &[u8]) -> Result<()>,
    ) -> Result<()> {
        for (id, part) in plan.parts.iter().copied() {
            let records = part.read_records(&self.disk, *id, transfer)?;
            let goes_on = each_record(&self.disk, *id, &records, |record| {
                let entry = LogEntry::read(record).map_err(|malformed| {
                    malformed.in_file(self.disk.path_of(&part_name(*id)), 0)
                })?;
                if last_number(&entry) > plan.last {
                    return Ok(false);
                }
                if !is_before(&entry, plan.description.position) {
                    take(*id, entry, record)?;
                }
                Ok(true)
            })?;
            if !goes_on {
                return Ok(());
            }
        }
        Ok(())
    }
}

/// Records that are put behind a store together.
#[derive(Default)]
struct Round {
    records: Vec<Vec<u8>>,
    /// Those of events, each with the number of its part.
    events: Vec<(u64, Vec<u8>)>,
}

/// The number of the last write that a record tells of.
fn last_number(entry: &LogEntry<'_>) -> Seq {
    match entry {
        LogEntry::Batch(first, count, _) => first + u64::from(*count) - 1,
        LogEntry::Event(seq, ..) => *seq,
        LogEntry::Again => 0,
    }
}

/// Whether a store of that position has what a record tells.
fn is_before(entry: &LogEntry<'_>, position: Seq) -> bool {
    match entry {
        // It may have: who does it again finds it done.
        LogEntry::Event(seq, _, event) if !event.is_numbered() => *seq < position,
        entry => last_number(entry) <= position,
    }
}

/// The way to a moment from the newest of these backups that has one.
fn plan<'p>(
    backups: &'p [(u64, BackupDescription)],
    parts: &'p LogParts,
    until: RestoreUntil,
) -> Result<Plan<'p>> {
    let not_restorable = |why: String| Error::NotRestorable {
        until: until.to_string(),
        why,
    };
    let mut whys = Vec::new();
    let newest_first = backups.iter().rev();
    let with_log = newest_first.filter(|(_, own)| own.log.is_some());
    let mut stores = with_log.clone().map(|(_, own)| &own.store);
    let first = stores.next();
    if stores.any(|other| Some(other) != first) {
        let why = "it has logs of several stores; say with which backup to begin";
        return Err(not_restorable(why.to_owned()));
    }
    for (id, description) in with_log.chain(backups) {
        match plan_from(*id, description, parts, until) {
            Ok(plan) => return Ok(plan),
            Err(why) => whys.push(why),
        }
    }
    // The newest one with the log says most.
    let why = whys.into_iter().next();
    Err(not_restorable(why.unwrap_or_else(|| {
        "the repository has no backup".to_owned()
    })))
}

/// The way to a moment from a backup; or why there is none.
fn plan_from<'p>(
    id: u64,
    description: &'p BackupDescription,
    parts: &'p LogParts,
    until: RestoreUntil,
) -> Result<Plan<'p>, String> {
    let Some(link) = description.log else {
        return Err(format!("backup {id} was made without the log"));
    };
    let (mut behind, gap) = parts.behind(link.place);
    let own = description.position;
    let last = match until {
        RestoreUntil::Position(number) if number < own => {
            return Err(format!("backup {id} is of position {own}, which is later"));
        }
        RestoreUntil::Position(number) => {
            let end = behind.last().map_or(own, |(_, last)| last.to.number());
            if number > end.max(own) {
                let goes_on = match gap {
                    Some(_) => ", where a part of it is missing or damaged",
                    None => "",
                };
                return Err(format!(
                    "the log behind backup {id} ends at position {}{goes_on}",
                    end.max(own)
                ));
            }
            // One that has no write up to there is needed for the keyspaces that it makes.
            behind.retain(|(_, part)| part.from.number() < number || part.to.number() == number);
            number
        }
        RestoreUntil::Time(time) => {
            let time = time.duration_since(UNIX_EPOCH).unwrap_or_default();
            let time = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
            if time < link.taken_ms {
                return Err(format!("backup {id} was made later"));
            }
            let late = behind.iter().position(|(_, part)| part.archived_ms > time);
            if late.is_none() && gap.is_some() {
                return Err(format!(
                    "of the log behind backup {id} a part is missing or damaged"
                ));
            }
            behind.truncate(late.unwrap_or(behind.len()));
            SEQ_MAX
        }
    };
    Ok(Plan {
        id,
        description,
        parts: behind,
        last,
    })
}
