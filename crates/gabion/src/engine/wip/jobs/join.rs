//! Join: small neighbours become one bucket (paper, section 2.3.5).
//!
//! # Idea
//! A bucket from which most keys were deleted keeps its MemTable, its place in the router and its
//! tables. Neighbours that are small together become one. Each is first made one table of its own,
//! which writes little, as they are small; so no table that it shares with others, and of which it
//! has dropped keys, comes back with the larger range, and buckets that are joined again and again
//! do not gather ever more tables. The join itself writes no data: the new bucket refers to all
//! these tables as one run, and takes over what the MemTables hold.
//!
//! # Hysteresis
//! The neighbours have together at most one part in `2 * split_ways` of the smallest size at which
//! a bucket splits; the parts that a split makes have about twice that each. So what was split is
//! not joined before half of it is gone, and what was joined must grow many times over to split.
//! A step is taken when nothing else is due, and each leaves fewer tables or fewer buckets, so an
//! idle store comes to rest.
//!
//! # Crash safety
//! One group of edits exchanges the old buckets for the new one. Its flushed sequence number is the
//! largest of theirs: a bucket whose MemTable has a record that is not above that number is flushed
//! first. So what is replayed is what the MemTables held, and nothing of what was flushed; else a
//! bucket with one old record would bring all that its neighbours have written since, and have
//! flushed, perhaps deleted again, into memory. What tables have a newer version of without a
//! record, from an ingest, replay leaves out.
//!
//! # Concurrency
//! All of the buckets are reserved, and none has a MemTable that waits for its flush. Writers are
//! kept out while the manifest is written: a record that came between could freeze a MemTable that
//! is too large to be copied, when the manifest has the new bucket already. Readers see the old
//! buckets or the new one: as with a split, the old ones get a last state.

use std::sync::Arc;

use gabion_media::Purpose;

use super::compact::Compaction;
use super::log_reclaim::records_of;
use crate::Result;
use crate::engine::memtable::MemTable;
use crate::engine::range_deletes::RangeTombstones;
use crate::engine::wip::bucket::file::TableFile;
use crate::engine::wip::bucket::{Bucket, BucketState, Levels, Run};
use crate::engine::wip::manifest::VersionEdit;
use crate::engine::wip::policy::log_length::LogLength;
use crate::engine::wip::{InstallState, VersionSet, Wip, WipKeyspace};
use crate::types::INITIAL_LEVELS;
use crate::types::{Kind, Seq, hash_key};

/// Buckets that are joined at once, at most.
const JOINED_MAX: usize = 16;

impl Wip {
    /// Joins neighbours somewhere, or does a part of what it takes; false when there is nothing to
    /// join. Looks at all buckets if `all`, else around those that were touched.
    pub(in super::super) fn join_some(&self, all: bool) -> Result<bool> {
        if all {
            while self.agenda.take_joinable().is_some() {}
            for keyspace in self.keyspaces.load().iter() {
                let row = self.small_neighbours(keyspace, None)?;
                if self.join_row(keyspace, row)? {
                    return Ok(true);
                }
            }
            return Ok(false);
        }
        while let Some(bucket) = self.agenda.take_joinable() {
            let Some((keyspace, bucket)) = self.with_keyspace(bucket) else {
                continue;
            };
            let row = self.small_neighbours(&keyspace, Some(&bucket))?;
            if self.join_row(&keyspace, row)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn join_row(&self, keyspace: &Arc<WipKeyspace>, row: Option<Vec<Arc<Bucket>>>) -> Result<bool> {
        let Some(row) = row else {
            return Ok(false);
        };
        let reserved = row.iter().take_while(|bucket| bucket.reserve()).count();
        let mine = reserved == row.len() && row.iter().all(|bucket| keyspace.has(bucket));
        let result = match mine {
            true => self.join(keyspace, &row),
            false => Ok(false),
        };
        // Buckets that were replaced stay reserved for ever.
        let left = row[..reserved].iter().filter(|bucket| keyspace.has(bucket));
        left.for_each(|bucket| bucket.release());
        if !matches!(result, Ok(false)) {
            row.iter().for_each(|bucket| self.touch(bucket));
        }
        result
    }

    /// Whether there is anything to join; all buckets are looked at.
    pub(in super::super) fn may_join(&self) -> Result<bool> {
        for keyspace in self.keyspaces.load().iter() {
            if let Some(row) = self.small_neighbours(keyspace, None)? {
                self.agenda.add_joinable(&row[0]);
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Neighbours that are small together, and that no job works on: around a bucket, or anywhere
    /// in the keyspace.
    fn small_neighbours(
        &self,
        keyspace: &WipKeyspace,
        around: Option<&Bucket>,
    ) -> Result<Option<Vec<Arc<Bucket>>>> {
        let options = &self.options;
        let limit = options.tuning.bucket_bytes / 4 * 3 / (2 * options.tuning.split_ways as u64);
        let router = keyspace.router.load_full();
        let buckets = router.buckets();
        let buckets = match around {
            None => buckets,
            Some(bucket) => {
                let at = router.position(bucket.lower());
                let end = (at + JOINED_MAX).min(buckets.len());
                &buckets[at.saturating_sub(JOINED_MAX - 1)..end]
            }
        };
        if buckets.len() < 2 {
            return Ok(None);
        }
        self.count_visits(buckets.len());
        let (mut row, mut sum) = (Vec::new(), 0);
        for bucket in buckets {
            let state = bucket.state.load_full();
            let memory: u64 = state.memtables().map(|table| table.user_bytes()).sum();
            let bytes = self.space_of(bucket, &state.levels)?.bytes + memory;
            let fits = !bucket.is_busy() && state.frozen.is_empty();
            if !fits || sum + bytes > limit || row.len() == JOINED_MAX {
                if row.len() > 1 {
                    break;
                }
                (row, sum) = (Vec::new(), 0);
            }
            if fits && bytes <= limit {
                row.push(Arc::clone(bucket));
                sum += bytes;
            }
        }
        Ok((row.len() > 1).then_some(row))
    }

    /// Joins buckets that the caller has reserved, or does a part of what it takes; false when
    /// nothing can be done now.
    fn join(&self, keyspace: &Arc<WipKeyspace>, row: &[Arc<Bucket>]) -> Result<bool> {
        for bucket in row {
            let levels = Arc::clone(&bucket.state.load().levels);
            if !is_joinable(bucket, &levels)? {
                self.compact(&Compaction::rewriting(bucket, &levels, Purpose::Merge))?;
                return Ok(true);
            }
        }
        let mut versions = self.versions.lock();
        keyspace.dropped.check()?;
        let leader = self.leader.write();
        leader.check()?;
        let mut install = self.lock_install();
        let states: Vec<_> = row.iter().map(|bucket| bucket.state.load_full()).collect();
        for (bucket, state) in row.iter().zip(&states) {
            if !state.frozen.is_empty() || !is_joinable(bucket, &state.levels)? {
                return Ok(false);
            }
        }
        let flushed = row.iter().map(|bucket| versions.flushed_seq(bucket.id));
        let flushed_seq = flushed.max().unwrap_or(0);
        let is_in_the_way = |state: &Arc<BucketState>| {
            // Copying it would keep writers waiting.
            state.active.user_bytes() > LogLength::of(&self.options).relogged
                || oldest_record(&state.active).is_some_and(|seq| seq <= flushed_seq)
        };
        let pairs = row.iter().zip(&states);
        let in_the_way: Vec<_> = pairs.filter(|(_, state)| is_in_the_way(state)).collect();
        if !in_the_way.is_empty() {
            for (bucket, _) in in_the_way {
                self.freeze(&mut install, keyspace, bucket);
            }
            return Ok(true);
        }
        let joined = (row, &states[..], flushed_seq);
        self.install_join(&mut versions, &mut install, keyspace, joined)?;
        self.counters.joins.add(1);
        tracing::debug!(buckets = row.len(), "joined buckets");
        Ok(true)
    }

    /// Exchanges buckets for one with all that they hold, of which what is in tables has numbers up
    /// to `flushed_seq`. The caller holds the leader alone.
    fn install_join(
        &self,
        versions: &mut VersionSet,
        _install: &mut InstallState,
        keyspace: &Arc<WipKeyspace>,
        (row, states, flushed_seq): (&[Arc<Bucket>], &[Arc<BucketState>], Seq),
    ) -> Result<()> {
        let (first, last) = (&row[0], &row[row.len() - 1]);
        let tables: Vec<Arc<TableFile>> = states
            .iter()
            .flat_map(|state| state.levels.files().cloned())
            .collect();
        let id = versions.take_bucket_id();
        let run = versions.take_file_number();
        let mut edits: Vec<VersionEdit> = row
            .iter()
            .map(|bucket| VersionEdit::RemoveBucket { id: bucket.id })
            .collect();
        edits.push(VersionEdit::AddBucket {
            id,
            keyspace: keyspace.id,
            lower: first.lower().to_vec(),
            flushed_seq,
        });
        let level = u8::try_from(INITIAL_LEVELS - 1).expect("there are a few levels");
        edits.extend(tables.iter().map(|file| VersionEdit::AddTable {
            bucket: id,
            level,
            run,
            file: file.meta.file,
        }));
        edits.push(versions.next_file_edit());
        edits.push(versions.next_bucket_edit());

        let joined = Bucket::new(
            (keyspace.id, id),
            first.lower(),
            last.upper(),
            self.empty_state(),
        );
        let mut levels = Levels::default();
        if !tables.is_empty() {
            levels.add(INITIAL_LEVELS - 1, Run::new(run, tables));
        }
        let keys = states.iter().map(|state| state.active.keys()).sum();
        let common = joined.common_prefix_len();
        let mut state = BucketState {
            active: self.new_memtable(&states[0].active, common, keys),
            levels: Arc::new(levels),
            ..self.empty_state()
        };
        for old in states {
            state.active.take_over_part(&old.active);
            copy(&old.active, &state.active);
        }
        let protected = self.snapshots.protect(|| self.read_point());
        state.deletes = state.index_deletes(&protected)?;
        joined.state.store(Arc::new(state));
        if row.iter().any(|bucket| bucket.demand.is_open()) {
            joined.demand.ask();
        }
        self.apply(versions, &edits)?;

        let joined = Arc::new(joined);
        let since = row.iter().filter_map(|bucket| bucket.written_since()).min();
        if let Some(since) = since {
            let active = Arc::clone(&joined.state.load().active);
            self.written.begin(&joined, &active, since);
        }
        row.iter().for_each(|bucket| self.written.forget(bucket));
        self.exchange(keyspace, row, vec![joined]);
        Ok(())
    }
}

/// Whether a bucket has one table at most, and that says nothing of keys outside its range.
fn is_joinable(bucket: &Bucket, levels: &Levels) -> Result<bool> {
    if levels.files().count() > 1 {
        return Ok(false);
    }
    for file in levels.files() {
        let within = bucket.contains(&file.meta.smallest, &file.meta.largest);
        if !within
            || file
                .range_deletes()?
                .is_some_and(|set| !is_within(bucket, set))
        {
            return Ok(false);
        }
    }
    Ok(true)
}

fn is_within(bucket: &Bucket, deletes: &RangeTombstones) -> bool {
    let within = |lower: &[u8], upper: Option<&[u8]>| {
        bucket.lower() <= lower
            && match (upper, bucket.upper()) {
                (_, None) => true,
                (None, Some(_)) => false,
                (Some(upper), Some(own)) => upper <= own,
            }
    };
    deletes
        .iter()
        .all(|fragment| within(&fragment.lower, fragment.upper.as_deref()))
}

/// The smallest number of the records of a MemTable.
fn oldest_record(table: &MemTable) -> Option<Seq> {
    records_of(table).first().map(|(seq, ..)| *seq)
}

/// Inserts the records of one MemTable into another, which pins what it pinned.
fn copy(from: &MemTable, to: &MemTable) {
    for (seq, kind, key, value) in records_of(from) {
        if kind == Kind::DeleteRange {
            let upper = (!value.is_empty()).then_some(&*value);
            to.insert_range(&key, upper, seq);
        } else {
            to.insert(&key, hash_key(&key), seq, kind, &value);
        }
    }
    if let Some(pin) = from.pin() {
        let least = to.pin().map_or(pin, |own| own.min(pin));
        to.replace_pin(least);
    }
}

#[cfg(test)]
mod tests {
    use gabion_media::{Disk, SimDisk};

    use super::*;
    use crate::Tuning;
    use crate::engine::ssd::{CommitWrites, Lifecycle};
    use crate::engine::wip::Write;
    use crate::{Clock, Options};

    fn key(number: u32) -> Vec<u8> {
        format!("key {number:06}").into_bytes()
    }

    /// The joined bucket's flushed number was the least of those of the old ones. After a crash,
    /// the memory of an opening was then bounded by the log: all was in MemTables that one of the
    /// old buckets had flushed since another one had got its only record.
    #[test]
    fn a_join_brings_nothing_back_into_memory_that_was_flushed() {
        const BUDGET: u64 = 256 << 10;
        let sim = SimDisk::recording();
        let options = Options::default()
            .background_threads(0)
            .tuning(
                Tuning::default()
                    .clock(Clock::manual())
                    .memtable_budget_bytes(BUDGET)
                    .bucket_bytes(64 << 10),
            )
            .log_bytes_max(16 * BUDGET);
        let engine = Wip::open(Disk::simulated(&sim), options.clone()).unwrap();
        let keyspace = engine.create_keyspace("keyspace").unwrap();
        let mut number = 0;
        while keyspace.router.load().buckets().len() < 2 {
            engine.put_for_tests(&keyspace, &key(number), &[1; 100]);
            number += 1;
        }
        let first = Arc::clone(&keyspace.router.load().buckets()[0]);
        let rest = first.upper().unwrap().to_vec();
        let delete = |lower: &[u8], upper: &[u8]| {
            let write = Write::Single {
                keyspace: &keyspace,
                kind: Kind::DeleteRange,
                key: lower,
                value: upper,
            };
            engine.write(write, 0, false).unwrap();
        };
        delete(b"", &rest);
        engine.compact_range(&keyspace, b"", None).unwrap();
        // Somebody works on it, so that it is not joined yet.
        assert!(first.reserve());
        engine.put_for_tests(&keyspace, b"a", b"the only one");
        for round in 0..10 * BUDGET / (64 << 10) {
            for number in 0..512 {
                let key = [&rest[..], &key(number)].concat();
                engine.put_for_tests(&keyspace, &key, &[u8::try_from(round).unwrap(); 128]);
            }
            delete(&rest, b"");
            engine.compact_range(&keyspace, &rest, None).unwrap();
        }
        assert!(engine.log_bytes() > 8 * BUDGET, "{}", engine.log_bytes());
        assert!(keyspace.has(&first));
        first.release();
        engine.run_inline();
        assert_eq!(keyspace.router.load().buckets().len(), 1);

        let killed = sim.process_kill(sim.ops());
        let opened = Wip::open(Disk::simulated(&killed), options).unwrap();
        let allocated = opened.pool.allocated_bytes();
        println!("join: {allocated} bytes in MemTables after a crash");
        assert!(allocated <= BUDGET / 100 * 105, "{allocated}");
        let keyspace = opened.create_keyspace("keyspace").unwrap();
        let found = opened.get(&keyspace, b"a", None).unwrap();
        assert_eq!(found.as_deref(), Some(&b"the only one"[..]));
        opened.close().unwrap();
        engine.close().unwrap();
    }
}
