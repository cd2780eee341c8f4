//! Ingest: pairs that come sorted become tables without the log and the MemTables.
//!
//! # Idea
//! Who has the pairs in order has done the work of a MemTable. They go straight into tables, each
//! within one bucket as the buckets are at that time, and are written once. At the end one group of
//! edits of the manifest names all tables: they are the newest run of level 0 of each bucket that
//! they touch. A bucket that is too large then is split like any other, which writes nothing.
//!
//! # Number of tables
//! A table ends at the size that a split leaves of a bucket, in a store as large as this one is by
//! then (`capacity`): with the default options at 8 MiB while that is at most 4 GiB, at a 512th of
//! it up to 64 GiB, at 128 MiB beyond. So the first 4 GiB that are ingested into an empty store are
//! 512 tables, 16 GiB are 1,222, 64 GiB 1,931, and each GiB beyond 8 more. A table takes a
//! descriptor of the process from its first use on. Neither the ingest nor a split that cuts
//! between tables uses them; what opens them is a lookup below, a read, a compaction, and a split
//! into more parts than a bucket has tables.
//!
//! # The sequence number
//! All pairs have one sequence number, which must be above all that readers have seen before the
//! tables are named. So it is given out last, and the tables, written before, leave it to the
//! manifest (`table::layout`).
//!
//! # Invariants
//! - N1: the number is given out, the tables are named and installed, and the number is published
//!   with the leader held alone: whoever reads at the number or above finds all tables, and nobody
//!   below sees any of their pairs.
//! - N2: when that is done, no MemTable holds a key of the tables. So for each key what is newer
//!   lies before what is older (`bucket`, I2), though a MemTable with other keys may hold older
//!   numbers than a table below it. A range delete, which may come later by replay, hides by its
//!   number alone (`readpath`).
//! - N3: the log is durable before the tables are named (I2 of the engine). It may still hold older
//!   versions of their keys, in front of what a joined bucket has flushed: replay leaves out what
//!   a table has a newer version of.
//!
//! # MemTables in the way
//! A MemTable with a key of the tables is frozen and becomes a table before it is tried again. So
//! is one with more keys than may still be looked for: of all MemTables together only so many
//! are, because writers wait for it. Tables in which keys are found to lie are opened before, but
//! those of keys that are written just then. The ingest waits for these MemTables and no others.
//! From the second time on writers are held back meanwhile, so that there is no third for what they
//! write.
//!
//! # Crash safety
//! Before the edits are durable the manifest names none of the tables, and the next open removes
//! them; after, all. What fails before removes them at once, or leaves that to the next open of a
//! store that was closed meanwhile. A failure of the log's sync or of the manifest leaves the store
//! read-only, and that of the manifest leaves unknown which of the two it is; where there is no
//! space for the edits, the ingest has failed and the store goes on. A drop of the
//! keyspace fails the ingest at its next table, or at its end.

use std::sync::Arc;

use gabion_media::Purpose;

use super::output::TableOutput;
use crate::engine::memtable::MemTable;
use crate::engine::ssd::rate_limiter::IoPriority;
use crate::engine::ssd::{FeedSource, SsdEngine};
use crate::engine::wip::bucket::age::flushed_age;
use crate::engine::wip::bucket::file::{TableFile, file_meta};
use crate::engine::wip::bucket::{Bucket, BucketState, Levels, Run};
use crate::engine::wip::manifest::{GROUP_BYTES_MAX, Manifest, VersionEdit};
use crate::engine::wip::policy::capacity::capacity_base;
use crate::engine::wip::table::TableMeta;
use crate::engine::wip::writepath::WipWriteHalf;
use crate::engine::wip::{VersionSet, Wip, WipKeyspace};
use crate::expiry::{UnixMillis, millis, stored};
use crate::log::KeyspaceEvent;
use crate::types::{Kind, SEQ_MAX, Seq, hash_key};
use crate::{Error, Result};

/// Only so many keys of MemTables are looked for with writers waiting, which takes about as long as
/// a sync of the log does. MemTables with more keys than are left are in the way whatever they
/// hold.
const LOOKED_UP_KEYS_MAX: usize = 1 << 10;

/// The number in tables whose number is in the manifest.
const UNNUMBERED: Seq = 0;

/// Pairs on their way into a keyspace. Dropped before it is finished, it leaves nothing.
pub(crate) struct WipIngest<'e> {
    engine: &'e Wip,
    keyspace: &'e Arc<WipKeyspace>,
    /// The table in work ends at this size: what a split leaves of a full bucket.
    table_bytes_max: u64,
    /// The table in work.
    output: Option<TableOutput<'e>>,
    /// The first key above the bucket of the table in work.
    upper: Option<Box<[u8]>>,
    /// Tables that no manifest names yet, ascending.
    written: Vec<TableMeta>,
    /// What they have.
    written_bytes: u64,
    /// The largest group of edits.
    group_bytes_max: u64,
    /// When the first pair came.
    born: u64,
    /// When the pairs expire, if they do.
    expires: Option<UnixMillis>,
}

impl Wip {
    /// Begins an ingest.
    pub(crate) fn ingest<'e>(&'e self, keyspace: &'e Arc<WipKeyspace>) -> Result<WipIngest<'e>> {
        self.check_writable()?;
        keyspace.dropped.check()?;
        self.idleness.lock().begin_ingest();
        Ok(WipIngest {
            engine: self,
            keyspace,
            table_bytes_max: 0,
            output: None,
            upper: None,
            written: Vec::new(),
            written_bytes: 0,
            group_bytes_max: GROUP_BYTES_MAX,
            born: self.time(),
            expires: keyspace.own.default_expiry().map(|after| {
                let now = self.moments.now();
                now.saturating_add(millis(after))
            }),
        })
    }
}

impl WipIngest<'_> {
    /// Adds a pair, whose key is above the one before.
    pub(crate) fn add(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.engine.health.check_writable()?;
        let is_above = self.upper.as_deref().is_some_and(|upper| key >= upper);
        let is_full = |output: &TableOutput<'_>| output.bytes_written() >= self.table_bytes_max;
        if is_above || self.output.as_ref().is_some_and(is_full) {
            self.end_table()?;
        }
        if self.output.is_none() {
            self.begin_table(key)?;
        }
        let output = self.output.as_mut().expect("a table was begun");
        match self.expires {
            None => output.add(key, UNNUMBERED, Kind::Put, value),
            Some(moment) => output.add(key, UNNUMBERED, Kind::PutExpiring, &stored(moment, value)),
        }
    }

    /// Makes all pairs part of the store, durably, or none; they were `user_bytes`.
    pub(crate) fn finish(mut self, user_bytes: u64) -> Result<()> {
        self.end_table()?;
        if self.written.is_empty() {
            return Ok(());
        }
        self.engine.disk.sync_dir()?;
        self.install()?;
        // No log has these pairs, so the manifest's newest edit must not be all that names them.
        self.engine.versions.lock().manifest.renew();
        tracing::debug!(bytes = user_bytes, "ingested sorted pairs");
        self.engine.counters.count_write(user_bytes);
        self.engine.after_job();
        self.engine.run_inline();
        Ok(())
    }

    fn begin_table(&mut self, key: &[u8]) -> Result<()> {
        let engine = self.engine;
        let bytes = self.written.last().map_or(0, |meta| meta.file_bytes);
        engine
            .throttle
            .admit(bytes, &engine.waits, || engine.relief_is_due())?;
        let total = engine.table_bytes.get().saturating_add(self.written_bytes);
        self.keyspace.dropped.check()?;
        let parts = engine.options.tuning.split_ways as u64;
        self.table_bytes_max = (capacity_base(&engine.options, total) / parts).max(1);
        let router = self.keyspace.router.load();
        self.upper = router.route(key).upper().map(Into::into);
        self.output =
            Some(engine.create_table(self.keyspace.id, Purpose::Flush, IoPriority::Usual)?);
        Ok(())
    }

    fn end_table(&mut self) -> Result<()> {
        if let Some(output) = self.output.take() {
            let meta = output.finish()?;
            self.written_bytes += meta.file_bytes;
            self.written.push(meta);
        }
        Ok(())
    }

    fn install(&mut self) -> Result<()> {
        let engine = self.engine;
        let files = self.files(UNNUMBERED);
        let mut held = None;
        loop {
            engine.health.check_writable()?;
            self.keyspace.dropped.check()?;
            // Before writers have to wait most of the log is durable, and the tables are open that
            // keys have to be looked for in.
            engine.syncer.sync().map_err(|error| engine.fail(error))?;
            self.buckets_in_the_way(&files)?;
            let frozen = {
                let mut versions = engine.versions.lock();
                let mut leader = engine.leader.write();
                leader.check()?;
                self.keyspace.dropped.check()?;
                let in_the_way = self.buckets_in_the_way(&files)?;
                if in_the_way.is_empty() {
                    return self.name(&mut versions, &mut leader);
                }
                engine.freeze_all(in_the_way.iter().map(|bucket| (self.keyspace, bucket)))
            };
            engine.wait_flushed(&frozen)?;
            held.get_or_insert_with(|| engine.throttle.hold());
        }
    }

    /// The tables as files, whose entries have the number `seq`.
    fn files(&self, seq: Seq) -> Vec<Arc<TableFile>> {
        let age = flushed_age(self.born, 0, 0);
        let engine = self.engine;
        let (disk, lock, cache) = (&engine.disk, &engine.lock, &engine.cache);
        let files = self.written.iter().map(|meta| {
            let meta = TableMeta {
                min_seq: seq,
                max_seq: seq,
                ..meta.clone()
            };
            Arc::new(TableFile::new(meta, age, disk, lock, cache))
        });
        files.collect()
    }

    /// The buckets whose MemTables are in the way of the tables.
    fn buckets_in_the_way(&self, files: &[Arc<TableFile>]) -> Result<Vec<Arc<Bucket>>> {
        let router = self.keyspace.router.load();
        let mut left = LOOKED_UP_KEYS_MAX;
        let mut found = Vec::new();
        for (bucket, files) in places(router.buckets(), files) {
            for table in bucket.state.load().memtables() {
                if is_in_the_way(table, files, &mut left)? {
                    found.push(Arc::clone(bucket));
                    break;
                }
            }
        }
        Ok(found)
    }

    /// Gives the tables their number, names and installs them (N1).
    fn name(&mut self, versions: &mut VersionSet, leader: &mut WipWriteHalf) -> Result<()> {
        let engine = self.engine;
        engine.syncer.sync().map_err(|error| engine.fail(error))?;
        let number = versions.take_file_number();
        // What the manifest would refuse leaves nothing behind. No number is longer than this one.
        let edits = self.edits(versions, number, &self.files(SEQ_MAX));
        let (size, limit) = (Manifest::group_bytes(&edits), self.group_bytes_max);
        if size > limit {
            let what = "names of the tables of an ingest";
            return Err(Error::Limit { what, size, limit });
        }
        drop(edits);
        let seq = leader.take_number()?;
        let files = self.files(seq);
        let edits = self.edits(versions, number, &files);
        // From here on the manifest may name them, unless it is as before.
        let written = std::mem::take(&mut self.written);
        let named = self.install_files(versions, number, &files, &edits);
        let event = match (&named, files.first().zip(files.last())) {
            (Ok(()), Some((first, last))) => KeyspaceEvent::Ingested {
                pairs: files.iter().map(|file| file.meta.entries).sum(),
                first: &first.meta.smallest,
                last: &last.meta.largest,
            },
            _ => KeyspaceEvent::Void,
        };
        engine.tell(leader, seq, self.keyspace.id, event);
        if named.is_err() && versions.manifest.is_usable() {
            self.written = written;
        }
        // A number that nothing has is published all the same: writers wait for it.
        engine.publish(seq, leader.segment());
        named
    }

    /// What names the tables as a run of that number.
    fn edits(
        &self,
        versions: &VersionSet,
        number: u64,
        files: &[Arc<TableFile>],
    ) -> Vec<VersionEdit> {
        let router = self.keyspace.router.load();
        let mut edits = Vec::new();
        for file in files {
            edits.push(VersionEdit::NewFile {
                file: file.meta.file,
                meta: file_meta(&file.meta),
                age: file.age,
            });
        }
        for (bucket, files) in places(router.buckets(), files) {
            edits.extend(files.iter().map(|file| VersionEdit::AddTable {
                bucket: bucket.id,
                level: 0,
                run: number,
                file: file.meta.file,
            }));
        }
        if let Some(file) = files.first() {
            let seq = file.meta.max_seq;
            edits.push(VersionEdit::LastSeq { seq });
        }
        edits.push(versions.next_file_edit());
        edits
    }

    fn install_files(
        &self,
        versions: &mut VersionSet,
        number: u64,
        files: &[Arc<TableFile>],
        edits: &[VersionEdit],
    ) -> Result<()> {
        let engine = self.engine;
        let router = self.keyspace.router.load();
        // DURABLE: the tables and their names were synced before, and so was the log.
        engine.apply(versions, edits)?;

        let _install = engine.lock_install();
        for (bucket, files) in places(router.buckets(), files) {
            let state = bucket.state.load();
            // Before anybody can read the pairs.
            let newest = files.iter().map(|file| file.meta.max_seq).max();
            state.active.forget_gaps(newest.unwrap_or(0));
            let mut levels = Levels::clone(&state.levels);
            levels.add(0, Run::new(number, files.to_vec()));
            bucket.state.store(Arc::new(BucketState {
                levels: Arc::new(levels),
                ..BucketState::clone(&state)
            }));
            engine.touch(bucket);
        }
        files.iter().for_each(|file| engine.fresh.add(file));
        Ok(())
    }
}

impl Drop for WipIngest<'_> {
    fn drop(&mut self) {
        // What a forked child has is a copy.
        if !self.engine.health.is_here() {
            return;
        }
        // The table in work removes itself.
        for meta in &self.written {
            self.engine.remove_unnamed(meta.file);
        }
        self.engine.idleness.lock().end_ingest();
    }
}

/// The buckets that tables in order reach into, each with its tables.
fn places<'p>(
    buckets: &'p [Arc<Bucket>],
    files: &'p [Arc<TableFile>],
) -> impl Iterator<Item = (&'p Arc<Bucket>, &'p [Arc<TableFile>])> {
    buckets.iter().filter_map(move |bucket| {
        let (lower, upper) = bucket.range();
        let first = files.partition_point(|file| &*file.meta.largest < lower);
        let is_below =
            |file: &Arc<TableFile>| upper.is_none_or(|upper| &*file.meta.smallest < upper);
        let files = &files[first..];
        let files = &files[..files.partition_point(is_below)];
        (!files.is_empty()).then_some((bucket, files))
    })
}

/// Whether a MemTable has a key of one of the tables, which are in order, or more keys than are
/// left to be looked for.
fn is_in_the_way(table: &MemTable, files: &[Arc<TableFile>], left: &mut usize) -> Result<bool> {
    match left.checked_sub(table.keys()) {
        Some(rest) => *left = rest,
        None => return Ok(true),
    }
    let mut cursor = table.sorted();
    cursor.seek_first();
    while cursor.valid() {
        let key = cursor.key();
        let at = files.partition_point(|file| &*file.meta.largest < key);
        if let Some(file) = files.get(at)
            && *file.meta.smallest <= *key
        {
            let (file, hash) = (file.table()?, hash_key(key));
            if file.may_contain(hash) && file.get(key, hash, SEQ_MAX)?.is_some() {
                return Ok(true);
            }
        }
        cursor.next_key();
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use gabion_media::{Disk, SimDisk};

    use super::*;
    use crate::engine::ssd::Lifecycle;
    use crate::{Options, Tuning};

    fn key(number: u64) -> Vec<u8> {
        format!("key {number:08}").into_bytes()
    }

    fn small_store() -> (SimDisk, Arc<Wip>, Arc<WipKeyspace>) {
        let sim = SimDisk::new();
        let options = Options::default().background_threads(0).tuning(
            Tuning::default()
                .memtable_budget_bytes(64 << 10)
                .bucket_bytes(32 << 10)
                .block_bytes(1 << 10)
                .split_ways(8),
        );
        let engine = Wip::open(Disk::simulated(&sim), options).unwrap();
        let keyspace = engine.create_keyspace("keyspace").unwrap();
        (sim, engine, keyspace)
    }

    fn add(ingest: &mut WipIngest<'_>, keys: std::ops::Range<u64>) {
        keys.for_each(|number| ingest.add(&key(number), &[7; 1000]).unwrap());
    }

    /// With tables of the same size however much comes, 4 MiB were a thousand of them, and the
    /// split that follows at once opened all.
    #[test]
    fn a_large_ingest_makes_larger_tables_and_opens_none() {
        let (_, engine, keyspace) = small_store();
        let mut ingest = engine.ingest(&keyspace).unwrap();
        add(&mut ingest, 0..4 << 10);
        ingest.finish(4 << 20).unwrap();
        let router = keyspace.router.load();
        assert!(router.buckets().len() > 16, "{}", router.buckets().len());
        let (mut tables, mut opened) = (0, 0);
        for bucket in router.buckets() {
            let state = bucket.state.load();
            tables += state.levels.files().count();
            opened += state
                .levels
                .files()
                .filter(|f| f.opened().is_some())
                .count();
        }
        assert!((256..700).contains(&tables), "{tables} tables");
        assert_eq!(opened, 0, "of {tables} tables");
        for number in [0, 1, 2_000, 4_095] {
            let found = engine.get(&keyspace, &key(number), None).unwrap();
            assert_eq!(found.as_deref(), Some(&[7; 1000][..]));
        }
        engine.close().unwrap();
    }

    fn put(engine: &Wip, keyspace: &WipKeyspace, keys: std::ops::Range<u64>) {
        for number in keys {
            engine.put_for_tests(keyspace, &key(number), b"put");
        }
    }

    fn roomy_store() -> (Arc<Wip>, Arc<WipKeyspace>) {
        let options = Options::default().background_threads(0);
        let engine = Wip::open(Disk::simulated(&SimDisk::new()), options).unwrap();
        let keyspace = engine.create_keyspace("keyspace").unwrap();
        (engine, keyspace)
    }

    /// Each MemTable was allowed so many keys, and buckets there are many.
    #[test]
    fn an_ingest_looks_for_so_many_keys_in_all_memtables_together() {
        let most = LOOKED_UP_KEYS_MAX as u64;
        for (more, expected) in [(0, 0), (1, 1)] {
            let (engine, keyspace) = roomy_store();
            put(&engine, &keyspace, 1_000..1_000 + most / 2);
            engine.freeze_for_tests(&keyspace);
            put(&engine, &keyspace, 1_000..1_000 + most / 2 + more);
            let mut ingest = engine.ingest(&keyspace).unwrap();
            add(&mut ingest, 0..10);
            ingest.end_table().unwrap();
            let files = ingest.files(UNNUMBERED);
            let found = ingest.buckets_in_the_way(&files).unwrap();
            assert_eq!(found.len(), expected);
            assert!(files.iter().all(|file| file.opened().is_none()));
            drop(ingest);
            engine.close().unwrap();
        }
    }

    /// It waited until no MemTable of the store was frozen, which under many writers need not be
    /// for ever.
    #[test]
    fn an_ingest_waits_for_no_memtable_but_those_in_its_way() {
        let (engine, keyspace) = roomy_store();
        let other = engine.create_keyspace("other").unwrap();
        put(&engine, &other, 0..10);
        engine.freeze_for_tests(&other);
        put(&engine, &keyspace, 5..7);
        let mut ingest = engine.ingest(&keyspace).unwrap();
        add(&mut ingest, 0..10);
        ingest.finish(10_000).unwrap();
        assert_eq!(engine.lock_install().frozen.len(), 1);
        for number in 0..10 {
            let found = engine.get(&keyspace, &key(number), None).unwrap();
            assert_eq!(found.as_deref(), Some(&[7; 1000][..]));
        }
        engine.close().unwrap();
    }

    #[test]
    fn what_the_manifest_cannot_name_at_once_is_refused_and_leaves_nothing() {
        let (sim, engine, keyspace) = small_store();
        let (names, visible) = (sim.names(), engine.visible());
        let mut ingest = engine.ingest(&keyspace).unwrap();
        ingest.group_bytes_max = 1_000;
        add(&mut ingest, 0..100);
        assert!(sim.names().len() > names.len() + 3);
        let error = ingest.finish(100_000).unwrap_err();
        assert!(
            matches!(error, Error::Limit { size, limit: 1_000, .. } if size > 1_000),
            "{error}"
        );
        assert_eq!((sim.names(), engine.visible()), (names, visible));
        let mut ingest = engine.ingest(&keyspace).unwrap();
        add(&mut ingest, 0..100);
        ingest.finish(100_000).unwrap();
        assert_eq!(engine.visible(), visible + 1);
        engine.close().unwrap();
    }
}
