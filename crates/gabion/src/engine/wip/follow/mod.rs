//! A follower: the store of another process, read while that one writes.
//!
//! # Idea
//! All that a writer does is in two files that grow: the manifest says which tables there are, the
//! log has what is in none of them yet. A follower reads both as an opening does, and then, with
//! each *catch-up*, what has come since: records go into MemTables of its own, and where the
//! manifest has changed a bucket, a new one takes its place. It takes no lock and writes nothing;
//! the writer does not know of it.
//!
//! The writer drops versions that none of *its* readers needs. So what was built of an earlier
//! manifest is not changed but replaced, as a whole router, and stays for who is registered to read
//! at an earlier number ([`WipKeyspace::router_at`]). Buckets that are the same in both are shared,
//! and their MemTables grow; they have every version since the bucket was built.
//!
//! # Journey of a catch-up
//! 1. Read the manifest up to its end (`manifest::follow`), then open the tables that are new. One
//!    that is gone by now was left out by a later edit: begin again. From here on the file stays
//!    readable, whatever becomes of its name.
//! 2. Build the buckets that have changed, and give them what the MemTables have of their keys and
//!    their tables do not: as a replay of the log would.
//! 3. Read the log up to its end ([`LogTail`]), or up to a record that only a newer manifest
//!    explains (W3), into the MemTables of the new routers. If the log was removed in front of what
//!    was read, all of it is in tables by now, or was logged again further behind (W4): begin
//!    again, with empty MemTables and the log that the newest manifest needs, as an opening does.
//! 4. Install the routers, then publish the number of the last write.
//! 5. Where a record ended step 3, begin again: the manifest has it by now.
//!
//! # Invariant
//! **What a reader finds at a published number `n` is what the writer's readers find at `n`.**
//!
//! The writer's order is all that the proof needs:
//! - W1. A record is one frame, and holds a write, a batch or a transaction as a whole. Numbers
//!   ascend in the log without a gap but for those of drops and ingests.
//! - W2. A table enters the manifest when the log is written up to its newest entry (`wip`, I2). A
//!   segment of the log is removed after a durable edit says that it is not needed (W4).
//! - W3. A keyspace is made, dropped, or gets pairs by an ingest, by one edit, which is durable
//!   before any record with a higher number is in the log (the leader is held).
//! - W4. A segment is not needed when tables have all of it, or when what MemTables have of it was
//!   logged again, each entry with its own number, in front of the edit that says so.
//!
//! Let `m` be the moment at which step 1 ends to read, and `c` the largest number that the manifest
//! knew then: of an entry of a table, or of a drop.
//! - *Nothing is missing.* The log was written up to `c` at `m` (W2), and is read after `m`, to its
//!   end; so all writes up to `c` are in tables, or were read, or were removed, which is told
//!   ([`Tailed::Gone`]) and begun again. Above `c` records are read one by one from there on: no
//!   number is left out, as a gap stops the reading.
//! - *Nor where all begins with the manifest.* What was logged again stands behind writes with
//!   higher numbers, and alone may have the last one; but it is in the log at `m` (W4). So nothing
//!   is installed then before the end of the log, and its numbers count. A record that needs a
//!   newer manifest makes all of it begin again, with a manifest that was read when the log had
//!   been looked through to its end. Later, what is logged again is passed over: it was read
//!   before.
//! - *No table without what is in front of it.* `n` is at least `c`, so what a table has is never
//!   read before all that was written before it.
//! - *Nothing in part.* Frames are whole (W1). An event, a gap in the numbers or a keyspace that
//!   the manifest does not know stops the reading in front of the record, if its number is above
//!   `c`; it is passed when the manifest was read again after it was seen, which then has the drop,
//!   the ingest or the keyspace (W3). A drop or an ingest that the manifest has already has a
//!   number of at most `c`, so `n` is not below it.
//! - *Nothing hidden comes back.* A MemTable comes before the tables of its bucket. In step 2 and 3
//!   it gets only what its bucket's tables have no newer version of: what the manifest says is
//!   flushed is left out, and so is what an ingest has overtaken (`ingest`, N3).
//! - *Nobody reads by the wrong router.* A router says from which number on it is right. It is
//!   stored before that number is published, so who sees the number finds it; who finds it earlier
//!   looks again (`readpath`), or takes the one before, which stays as long as somebody is
//!   registered for whom no later one is right. Where nothing was written, but buckets have
//!   changed, the old routers stay as long as anybody is registered: he may read at a moment before
//!   that at which the writer let go of what had expired.
//!
//! The log may have a write that its writer is about to make visible, or that it makes durable
//! only after that; what a power loss takes it takes from both, as they share the machine.
//!
//! # Linearization point
//! The publication of the number. A get that took the router before it may still read by that one:
//! then it began before, and comes before it.
//!
//! # Crashes
//! A follower holds nothing that anybody waits for, so its end is nobody's concern. A writer that
//! ends leaves a log and a manifest whose valid frames are what the next one recovers; it goes on
//! behind them, in segments that say so. After any error the next catch-up begins anew.

pub(super) mod state;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use gabion_media::Disk;
use parking_lot::{Mutex, MutexGuard};

use super::bucket::file::TableFile;
use super::bucket::{Bucket, Router};
use super::manifest::{Manifest, ManifestLookup, ManifestState, inspect};
use super::recovery::{
    Inserter, Target, bucket_state, check_length, described, in_tables, levels_of,
};
use super::writepath::WipWriteHalf;
use super::{Past, Wip, WipKeyspace};
use crate::engine::keyspaces::KeyspaceId;
use crate::engine::live_options::LiveKeyspaceOptions;
use crate::engine::memtable::{MemTable, OrderPolicy};
use crate::engine::root_file::no_store;
use crate::engine::snapshots::ProtectedSeqs;
use crate::engine::ssd::{ConsumerTable, Lifecycle, OpenedLog, Shell, StoreLock};
use crate::log::{
    Gathered, LogEntry, LogOp, LogOptions, LogTail, Lsn, PendingLog, ReplayEnd, Tailed,
    check_record,
};
use crate::names::{log_name, table_name};
use crate::stats::FollowerStats;
use crate::types::{Seq, hash_key};
use crate::{Engine, Error, Options, Result};
use state::{Built, Following};

/// So often a catch-up begins again because files went that it was about to read.
const TRIES: usize = 100;

/// For how long it waits in between: the writer is busy with what makes them go.
const PAUSE: Duration = Duration::from_millis(2);

/// What takes the place of what was built before.
struct Plan {
    files: HashMap<u64, Arc<TableFile>>,
    built: HashMap<u64, Built>,
    targets: Vec<Target>,
    /// Keyspaces that were not there.
    made: Vec<Arc<WipKeyspace>>,
    /// Those that are gone.
    dropped: Vec<Arc<WipKeyspace>>,
}

/// How a round of a catch-up has ended.
enum Round {
    /// At the end of the log.
    End,
    /// In front of a record that needs a newer manifest.
    Before(Lsn),
    /// The log goes on where it cannot be read any more.
    Gone,
    /// It goes on elsewhere, and says that it was durable up to there.
    Beyond(Lsn),
}

impl Wip {
    /// Opens the store on `disk`, which somebody else may write, to follow it.
    pub(crate) fn follow(disk: Disk, options: Options) -> Result<Arc<Wip>> {
        if inspect(&disk)? == ManifestLookup::Free {
            return Err(no_store(&disk));
        }
        let options = options.settled(Engine::Wip);
        let manifest = Manifest::follow(&disk)?;
        let from = manifest.state().log_tail;
        let end = ReplayEnd::unread(from);
        let log_options = LogOptions::default();
        let pending = PendingLog::new(&disk, end, &log_options, &options.tuning.clock);
        let log = OpenedLog::followed(ConsumerTable::open(&disk)?, pending);
        let lock = Arc::new(StoreLock::none());
        let following = Following {
            tail: LogTail::new(&disk, from),
            files: HashMap::new(),
            built: HashMap::new(),
            seen: 0,
            is_stale: true,
            restarts: true,
            is_open: false,
            operations: 0,
            caught_up: Duration::ZERO,
            stats: FollowerStats::default(),
        };
        let (memory, pool, cache) = Wip::memory_of(&options);
        let shell = Shell::new((disk, lock), options, memory, Vec::new(), log, 0);
        let leader = WipWriteHalf::new(None, 1);
        let parts = (cache, pool, manifest, leader);
        let mut engine = Wip::assemble(shell, parts);
        engine.following = Some(Mutex::new(following));
        let engine = Arc::new(engine);
        engine.catch_up()?;
        engine.start()?;
        Ok(engine)
    }

    /// Reads what was written since; whether that was anything. Of a store that nobody else writes
    /// it is nothing.
    pub(crate) fn catch_up(&self) -> Result<bool> {
        self.health.check_open()?;
        let Some(following) = &self.following else {
            return Ok(false);
        };
        let mut following = following.lock();
        let Some(_held) = self.lock.hold() else {
            return Err(Error::Closed);
        };
        let (before, mut cleared, mut tries) = (self.visible(), Lsn::default(), 0);
        loop {
            let stood = following.tail.position();
            let round = self.catch_up_once(&mut following, cleared);
            tries += 1;
            match round {
                Ok(Round::End) => break,
                Ok(Round::Before(at)) => (cleared, tries) = (at, 0),
                Ok(Round::Gone) if tries < TRIES => {
                    following.restarts = true;
                    following.stats.manifest_reloads += 1;
                    if tries > 1 {
                        std::thread::sleep(PAUSE);
                    }
                }
                Err(Error::Media(error)) if error.is_not_found() && tries < TRIES => {
                    // What was read went with what was to be installed.
                    following.restarts |= following.tail.position() != stood;
                    std::thread::sleep(PAUSE);
                }
                failed => {
                    following.restarts = true;
                    failed?;
                    return Err(self.outrun());
                }
            }
        }
        following.stats.catch_ups += 1;
        following.caught_up = self.options.tuning.clock.now();
        self.renew_consumers()?;
        Ok(self.visible() > before)
    }

    /// The error of who finds again and again that the log has gone where it reads.
    fn outrun(&self) -> Error {
        Error::Corruption {
            file: self
                .disk
                .path_of(&log_name(self.syncer.appended_lsn().segment())),
            offset: 0,
            what: "the log does not continue at the place that the manifest names".to_owned(),
        }
    }

    /// Steps 1 to 4. Records up to `cleared` were seen before.
    fn catch_up_once(&self, following: &mut Following, cleared: Lsn) -> Result<Round> {
        let mut versions = self.versions.lock();
        let changed = versions.manifest.advance()?;
        let state = versions.manifest.state();
        following.is_stale |= changed;
        if following.restarts {
            following.tail = LogTail::new(&self.disk, state.log_tail);
            (following.seen, following.operations) = (0, 0);
        }
        let plan = match following.is_stale || following.restarts {
            true => Some(self.plan(following, state)?),
            false => None,
        };
        let same;
        let targets = match &plan {
            Some(plan) => &plan.targets,
            None => {
                same = self.targets(&following.built);
                &same
            }
        };
        let mut round = self.read_log(following, targets, state, cleared)?;
        let is_cut = matches!(round, Round::Beyond(_));
        if let Round::Beyond(durable) = round {
            // A segment goes when the manifest does not need it, nor any in front of it.
            if Manifest::follow(&self.disk)?.state().log_tail > following.tail.segment() {
                return Ok(Round::Gone);
            }
            following.tail.refuse_cut(durable)?;
            round = Round::End;
        }
        let is_part = following.restarts && matches!(round, Round::Before(_));
        if is_part || matches!(round, Round::Gone) {
            return Ok(round);
        }
        if !following.is_open && matches!(round, Round::End) {
            following.tail.check_end(&state.sealed, is_cut)?;
        }
        let (old, new) = (self.visible(), following.seen);
        if new < old {
            return Err(Error::NotAStore {
                path: self.disk.path().to_owned(),
                why: "another store has taken the place of the one that was followed, as the last \
                      writes are older than those read before; open it again"
                    .to_owned(),
            });
        }
        let is_read = following.is_open && self.snapshots.count() > 0;
        if plan.is_some() && new == old && is_read {
            // Nothing but the structure has changed, and somebody may need the old one.
            return Ok(round);
        }
        let renew = changed || following.restarts;
        self.syncer.follow(&following.tail, renew)?;
        self.moments.raise(state.moment);
        if let Some(plan) = plan {
            self.install(following, plan, state, new);
        }
        self.publish(new, following.tail.segment());
        drop(versions);
        following.is_open = true;
        self.forget_past();
        self.forget_dropped();
        Ok(round)
    }

    /// Step 3: reads the log into the MemTables.
    fn read_log(
        &self,
        following: &mut Following,
        targets: &[Target],
        state: &ManifestState,
        cleared: Lsn,
    ) -> Result<Round> {
        let covered = covered(state);
        let protected = self.snapshots.protect(|| self.read_point());
        let mut inserter = Inserter::new(targets, &self.pool, &protected);
        let mut gathered = Gathered::default();
        let mut seen = following.seen.max(covered);
        let tail = &mut following.tail;
        // The last record, where one needs a newer manifest and all begins with that.
        let mut unknown = None;
        let round = loop {
            let at = match tail.step(&state.sealed)? {
                Tailed::Record(at) => at,
                Tailed::End => break Round::End,
                Tailed::Gone => return Ok(Round::Gone),
                Tailed::Beyond(durable) => break Round::Beyond(durable),
            };
            let logged = LogEntry::read(tail.record()).map_err(|malformed| {
                malformed.in_file(self.disk.path_of(&log_name(at.segment())), at.offset())
            })?;
            if unknown.is_some() {
                unknown = Some(at);
                continue;
            }
            if at > cleared && needs_newer(&logged, (seen, covered), state.next_keyspace) {
                if following.restarts {
                    unknown = Some(at);
                    continue;
                }
                tail.back_to(at);
                break Round::Before(at);
            }
            let (operations, last) =
                check_record(&self.disk, state.next_keyspace, at, tail.record())?;
            if matches!(logged, LogEntry::Again) && !following.restarts {
                // It was read where it was logged first.
                continue;
            }
            seen = seen.max(last).max(last_number(&logged));
            following.operations += operations;
            if !gathered.takes(at.segment()) {
                inserter.apply(&gathered.chunk())?;
                gathered.clear();
            }
            gathered.add_of(at.segment(), tail.record());
        };
        if let Some(last) = unknown {
            return Ok(Round::Before(last));
        }
        inserter.apply(&gathered.chunk())?;
        following.seen = seen;
        Ok(round)
    }

    /// What records go to, where nothing is to be built.
    fn targets(&self, built: &HashMap<u64, Built>) -> Vec<Target> {
        let all = self.keyspaces.load();
        let target = |keyspace: &Arc<WipKeyspace>| {
            let router = keyspace.router.load_full();
            target_of(keyspace, router, built)
        };
        all.iter().map(target).collect()
    }

    /// Steps 1 and 2, for what the manifest says.
    fn plan(&self, following: &Following, state: &ManifestState) -> Result<Plan> {
        let files = self.open_held(&following.files, state)?;
        let mut by_keyspace: HashMap<u32, Vec<(&[u8], u64)>> = HashMap::new();
        for (number, bucket) in &state.buckets {
            let of = by_keyspace.entry(bucket.keyspace).or_default();
            of.push((&bucket.lower, *number));
        }
        let all = self.keyspaces.load();
        let expiring = state.expiring();
        // Who reads by the new buckets reads at this number or above it.
        let protected = ProtectedSeqs::only(self.visible());
        let mut plan = Plan {
            files,
            built: HashMap::new(),
            targets: Vec::new(),
            made: Vec::new(),
            dropped: Vec::new(),
        };
        for (id, name) in &state.keyspaces {
            let mut ordered = by_keyspace.remove(id).unwrap_or_default();
            ordered.sort_unstable();
            let mut buckets = Vec::with_capacity(ordered.len());
            let mut fresh = Vec::new();
            for (position, (lower, number)) in ordered.iter().enumerate() {
                let Some(known) = state.buckets.get(number) else {
                    continue;
                };
                let upper = ordered.get(position + 1).map(|(upper, _)| *upper);
                let is_same = |built: &&Built| {
                    let is_same = built.known == *known && built.bucket.upper() == upper;
                    is_same && !following.restarts
                };
                let built = match following.built.get(number).filter(is_same) {
                    Some(built) => built.clone(),
                    None => {
                        let levels = levels_of(&known.tables, &plan.files);
                        let memory = (&self.pool, OrderPolicy::of(&self.options));
                        let holds = bucket_state((lower, upper), levels, memory, &protected)?;
                        fresh.push(position);
                        Built {
                            known: known.clone(),
                            in_tables: in_tables(state, known),
                            bucket: Arc::new(Bucket::new((*id, *number), lower, upper, holds)),
                        }
                    }
                };
                buckets.push(Arc::clone(&built.bucket));
                plan.built.insert(*number, built);
            }
            let old = all.live(*id);
            let options = state.options.get(id).cloned().unwrap_or_default();
            let router = match old {
                Some(old) if fresh.is_empty() => {
                    let router = old.router.load_full();
                    match router.buckets().len() == buckets.len() {
                        true => router,
                        false => Arc::new(Router::new(buckets)),
                    }
                }
                _ => Arc::new(Router::new(buckets)),
            };
            let keyspace = match old {
                Some(old) => {
                    if expiring.contains(id) {
                        old.own.set_expires();
                    }
                    if options.encode() != old.own.get().encode() {
                        old.own.set(options);
                    }
                    Arc::clone(old)
                }
                None => {
                    let own = LiveKeyspaceOptions::new(options, expiring.contains(id));
                    let made =
                        WipKeyspace::new(*id, name, Router::new(router.buckets().to_vec()), own);
                    let made = Arc::new(made);
                    plan.made.push(Arc::clone(&made));
                    made
                }
            };
            let router = match old {
                Some(_) => router,
                None => keyspace.router.load_full(),
            };
            let target = target_of(&keyspace, router, &plan.built);
            if !following.restarts
                && let Some(old) = old
            {
                let old = old.router.load_full();
                for position in fresh {
                    carry(&target, position, &old, &protected)?;
                }
            }
            plan.targets.push(target);
        }
        let is_gone = |keyspace: &&Arc<WipKeyspace>| !state.keyspaces.contains_key(&keyspace.id());
        plan.dropped = all.iter().filter(is_gone).cloned().collect();
        Ok(plan)
    }

    /// The tables that the manifest names, open.
    fn open_held(
        &self,
        known: &HashMap<u64, Arc<TableFile>>,
        state: &ManifestState,
    ) -> Result<HashMap<u64, Arc<TableFile>>> {
        let mut files = HashMap::with_capacity(state.files.len());
        for (number, file) in &state.files {
            let held = match known.get(number) {
                Some(held) => Arc::clone(held),
                None => {
                    let meta = described(&self.disk, *number, &file.meta)?;
                    let read = self.disk.open_read(&table_name(*number))?;
                    check_length(&self.disk, &meta, read.len())?;
                    let (disk, lock, cache) = (&self.disk, &self.lock, &self.cache);
                    Arc::new(TableFile::new(meta, file.age, disk, lock, cache).held(read))
                }
            };
            files.insert(*number, held);
        }
        Ok(files)
    }

    /// Step 4, but for the publication of `seq`.
    fn install(&self, following: &mut Following, plan: Plan, state: &ManifestState, seq: Seq) {
        for keyspace in &plan.dropped {
            keyspace.dropped.set(seq);
            self.keyspaces.leave(keyspace);
        }
        for target in &plan.targets {
            let (keyspace, old) = (&target.keyspace, target.keyspace.router.load_full());
            if Arc::ptr_eq(&old, &target.router) {
                continue;
            }
            target.router.set_since(seq);
            if old.since() < seq {
                let mut past = Vec::clone(&keyspace.past.load());
                past.push(Past {
                    router: old,
                    until: seq,
                });
                keyspace.past.store(Arc::new(past));
            }
            keyspace.router.store(Arc::clone(&target.router));
        }
        for keyspace in &plan.made {
            self.keyspaces.add(keyspace);
        }
        self.set_bucket_count(state.buckets.len());
        following.files = plan.files;
        following.built = plan.built;
        following.is_stale = false;
        following.restarts = false;
    }

    /// Lets go of routers by which nobody reads any more.
    fn forget_past(&self) {
        let readers = self.snapshots.protect(|| self.read_point());
        for keyspace in self.keyspaces.load().iter() {
            let past = keyspace.past.load();
            let is_read = |past: &&Past| {
                let numbers = readers.bounds();
                let first = numbers.partition_point(|seq| *seq < past.router.since());
                numbers.get(first).is_some_and(|seq| *seq < past.until)
            };
            let kept: Vec<Past> = past.iter().filter(is_read).cloned().collect();
            if kept.len() < past.len() {
                keyspace.past.store(Arc::new(kept));
            }
        }
    }

    /// The tables that a follower holds, and how many segments of the log and operations in them it
    /// has read.
    pub(super) fn followed(&self) -> (Vec<Arc<TableFile>>, u64, u64) {
        let Some(following) = &self.following else {
            return (Vec::new(), 0, 0);
        };
        let following = following.lock();
        let mut files: Vec<_> = following.files.values().cloned().collect();
        files.sort_unstable_by_key(|file| file.meta.file);
        let tail = self.versions.lock().manifest.state().log_tail;
        let segments = self.syncer.segments_from(tail);
        (files, segments, following.operations)
    }

    /// How far it is behind, and what it did; `None` of a store that follows nobody. Reads what of
    /// the log it has not read yet.
    pub(super) fn follower_stats(&self) -> Option<FollowerStats> {
        let following: MutexGuard<'_, Following> = self.following.as_ref()?.lock();
        let mut stats = following.stats;
        let sealed = self.versions.lock().manifest.state().sealed.clone();
        let mut tail = following.tail.clone();
        let mut last = following.seen;
        // What cannot be read is not known: the next catch-up tells why.
        while let Ok(Tailed::Record(_)) = tail.step(&sealed) {
            stats.lag_bytes += tail.record().len() as u64;
            if let Ok(logged) = LogEntry::read(tail.record()) {
                last = last.max(last_number(&logged));
            }
        }
        stats.lag_writes = last - self.visible();
        if stats.lag_bytes > 0 {
            let since = self.options.tuning.clock.now();
            stats.lag_ns = crate::stats::nanos(since.saturating_sub(following.caught_up));
        }
        Some(stats)
    }
}

/// The largest number that is in a table or was used by an edit.
fn covered(state: &ManifestState) -> Seq {
    let flushed = state.buckets.values().map(|bucket| bucket.flushed_seq);
    let tables = state.files.values().map(|file| file.meta.max_seq);
    flushed.chain(tables).fold(state.last_seq, Seq::max)
}

/// The number of the last write of a record.
fn last_number(logged: &LogEntry<'_>) -> Seq {
    match logged {
        LogEntry::Batch(first, count, _) => first + u64::from(*count) - 1,
        LogEntry::Event(seq, ..) => *seq,
        LogEntry::Again => 0,
    }
}

/// Whether a record tells something that a manifest may not know which knows numbers up to
/// `covered`, and `keyspaces` of them; numbers up to `seen` were read.
fn needs_newer(logged: &LogEntry<'_>, (seen, covered): (Seq, Seq), keyspaces: u32) -> bool {
    match logged {
        LogEntry::Again => false,
        LogEntry::Event(seq, _, event) if !event.is_numbered() => *seq >= covered,
        LogEntry::Event(seq, ..) => *seq > covered,
        LogEntry::Batch(first, _, operations) => {
            let known = |operation: Result<LogOp<'_>, _>| {
                operation.is_ok_and(|operation| operation.keyspace >= keyspaces)
            };
            *first > seen + 1 || operations.clone().any(known)
        }
    }
}

/// A keyspace with a router whose buckets were built.
fn target_of(
    keyspace: &Arc<WipKeyspace>,
    router: Arc<Router>,
    built: &HashMap<u64, Built>,
) -> Target {
    let in_tables = |bucket: &Arc<Bucket>| {
        let known = built.get(&bucket.id);
        known.map_or((0, 0), |known| known.in_tables)
    };
    let in_tables = router.buckets().iter().map(in_tables).collect();
    Target::new(keyspace, router, in_tables)
}

/// Gives a new bucket what MemTables of the old ones have and its tables have not.
fn carry(target: &Target, position: usize, old: &Router, protected: &ProtectedSeqs) -> Result<()> {
    let bucket = &target.router.buckets()[position];
    let (lower, upper) = bucket.range();
    for old in old.touching(lower, upper) {
        for table in old.state.load().memtables() {
            if table.max_seq() > target.flushed(position) {
                carry_table(target, position, table, protected)?;
            }
        }
    }
    Ok(())
}

fn carry_table(
    target: &Target,
    position: usize,
    table: &MemTable,
    protected: &ProtectedSeqs,
) -> Result<()> {
    let bucket = &target.router.buckets()[position];
    let active = Arc::clone(&bucket.state.load().active);
    let segment = table.pin().unwrap_or(0);
    table.for_each(|key, seq, kind, value| {
        if !bucket.contains(key, key) {
            return Ok(());
        }
        let (hash, keyspace) = (hash_key(key), target.id);
        let operation = LogOp {
            seq,
            kind,
            keyspace,
            key,
            value,
        };
        if !target.has(position, hash, &operation)? {
            active.insert(key, hash, seq, kind, value);
            active.pin_no_later(segment);
        }
        Ok(())
    })?;
    let ranges = table.range_deletes().clone();
    for range in ranges.iter().flat_map(|range| range.iter()) {
        let (from, to) = (&*range.lower, range.upper.as_deref());
        let is_new = |seq: &&Seq| **seq > target.flushed(position);
        for seq in range.seqs.iter().filter(is_new) {
            let (lower, upper) = bucket.range();
            let ends_before = to.is_some_and(|to| to <= lower);
            let begins_behind = upper.is_some_and(|upper| from >= upper);
            if !ends_before && !begins_behind {
                bucket.delete_range((from, to), *seq, segment, &protected);
            }
        }
    }
    Ok(())
}
