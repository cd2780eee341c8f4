//! Ingest: pairs that come sorted become tables without the log and the MemTables.
//!
//! # Idea
//! Who has the pairs in order has done the work of a MemTable. They go straight into tables, each
//! within one bucket as the buckets are at that time, and are written once. At the end one group of
//! edits of the manifest names all tables: they are the newest run of level 0 of each bucket that
//! they touch. A bucket that is too large then is split like any other, which writes nothing.
//!
//! # The number
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
//! A MemTable with a key of the tables, or with so many keys that to look for one would keep
//! writers waiting, is frozen and becomes a table before it is tried again. From the second time on
//! writers are held back meanwhile, so that there is no third for what they write.
//!
//! # Crash safety
//! Before the edits are durable the manifest names none of the tables, and the next open removes
//! them; after, all. A failure of the manifest leaves unknown which, and the store read-only.

use std::sync::Arc;

use gabion_media::Purpose;

use super::bucket::{Bucket, BucketState, Levels, Run};
use super::file::{TableFile, file_meta};
use super::flush::TableOutput;
use super::manifest::Edit;
use super::table::TableMeta;
use super::writepath::Leader;
use super::{Keyspace, Versions, Wip};
use crate::engine::memtable::MemTable;
use crate::engine::pace::Class;
use crate::types::{Kind, SEQ_MAX, Seq, hash_key};
use crate::{Error, Result};

/// MemTables with more keys than this are in the way whatever they hold: to look for so many keys
/// keeps writers waiting for about as long as a sync of the log does.
const LOOKED_UP_KEYS_MAX: usize = 1 << 10;

/// The number in tables whose number is in the manifest.
const UNNUMBERED: Seq = 0;

/// Pairs on their way into a keyspace. Dropped before it is finished, it leaves nothing.
pub(crate) struct Ingest<'e> {
    engine: &'e Wip,
    keyspace: &'e Arc<Keyspace>,
    /// Tables end at this size: what a split leaves of a full bucket.
    table_bytes_max: u64,
    /// The table in work.
    output: Option<TableOutput<'e>>,
    /// The first key above the bucket of the table in work.
    upper: Option<Box<[u8]>>,
    /// Tables that no manifest names yet, ascending.
    written: Vec<TableMeta>,
    /// When the first pair came.
    born: u64,
}

impl Wip {
    /// Begins an ingest.
    pub(crate) fn ingest<'e>(&'e self, keyspace: &'e Arc<Keyspace>) -> Result<Ingest<'e>> {
        self.health.check_writable()?;
        let parts = self.options.split_ways.max(1) as u64;
        Ok(Ingest {
            engine: self,
            keyspace,
            table_bytes_max: (self.options.bucket_bytes / parts).max(1),
            output: None,
            upper: None,
            written: Vec::new(),
            born: self.time(),
        })
    }
}

impl Ingest<'_> {
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
        output.add(key, UNNUMBERED, Kind::Put, value)
    }

    /// Makes all pairs part of the store, durably, or none; they were `user_bytes`.
    pub(crate) fn finish(mut self, user_bytes: u64) -> Result<()> {
        self.end_table()?;
        if self.written.is_empty() {
            return Ok(());
        }
        self.engine.disk.sync_dir()?;
        self.install()?;
        tracing::debug!(bytes = user_bytes, "ingested sorted pairs");
        self.engine.counters.count_write(user_bytes);
        self.engine.after_open();
        self.engine.run_inline();
        Ok(())
    }

    fn begin_table(&mut self, key: &[u8]) -> Result<()> {
        let engine = self.engine;
        let bytes = self.written.last().map_or(0, |meta| meta.file_bytes);
        engine.throttle.admit(bytes, || engine.relief_is_due())?;
        let router = self.keyspace.router.load();
        self.upper = router.route(key).upper().map(Into::into);
        // Who closes the store waits for this; after that its directory may be another's.
        let lock = engine.lock.lock();
        if lock.is_none() {
            return Err(Error::Closed);
        }
        self.output = Some(engine.create_table(Purpose::Flush, Class::Usual)?);
        Ok(())
    }

    fn end_table(&mut self) -> Result<()> {
        if let Some(output) = self.output.take() {
            self.written.push(output.finish()?);
        }
        Ok(())
    }

    fn install(&mut self) -> Result<()> {
        let engine = self.engine;
        let mut held = None;
        loop {
            engine.health.check_writable()?;
            // Most of the log is durable before writers have to wait.
            engine.syncer.sync().map_err(|error| engine.fail(error))?;
            {
                let mut versions = engine.versions.lock();
                let mut leader = engine.leader.write();
                leader.check()?;
                let in_the_way = self.buckets_in_the_way()?;
                if in_the_way.is_empty() {
                    return self.name(&mut versions, &mut leader);
                }
                let mut install = engine.lock_install();
                for bucket in &in_the_way {
                    engine.freeze(&mut install, self.keyspace, bucket);
                }
            }
            engine.wait_flushed()?;
            held.get_or_insert_with(|| engine.throttle.hold());
        }
    }

    /// The tables as files, whose entries have the number `seq`.
    fn files(&self, seq: Seq) -> Vec<Arc<TableFile>> {
        let age = Wip::flushed_age(self.born, 0, 0);
        let (disk, cache) = (&self.engine.disk, &self.engine.cache);
        let files = self.written.iter().map(|meta| {
            let meta = TableMeta {
                min_seq: seq,
                max_seq: seq,
                ..meta.clone()
            };
            Arc::new(TableFile::new(meta, age, disk, cache))
        });
        files.collect()
    }

    /// The buckets whose MemTables are in the way.
    fn buckets_in_the_way(&self) -> Result<Vec<Arc<Bucket>>> {
        let files = self.files(UNNUMBERED);
        let router = self.keyspace.router.load();
        let mut found = Vec::new();
        for (bucket, files) in places(router.buckets(), &files) {
            for table in bucket.state.load().memtables() {
                if is_in_the_way(table, files)? {
                    found.push(Arc::clone(bucket));
                    break;
                }
            }
        }
        Ok(found)
    }

    /// Gives the tables their number, names and installs them (N1).
    fn name(&mut self, versions: &mut Versions, leader: &mut Leader) -> Result<()> {
        let engine = self.engine;
        engine.syncer.sync().map_err(|error| engine.fail(error))?;
        let seq = leader.take_number()?;
        let files = self.files(seq);
        // From here on the manifest may name them.
        self.written.clear();
        let named = self.install_files(versions, &files);
        // A number that nothing has is published all the same: writers wait for it.
        engine.publish(seq, leader.segment());
        named
    }

    fn install_files(&self, versions: &mut Versions, files: &[Arc<TableFile>]) -> Result<()> {
        let engine = self.engine;
        let router = self.keyspace.router.load();
        let number = versions.take_file_number();
        let mut edits = Vec::new();
        for file in files {
            edits.push(Edit::NewFile {
                file: file.meta.file,
                meta: file_meta(&file.meta),
            });
            edits.push(Edit::FileAge {
                file: file.meta.file,
                age: file.age,
            });
            edits.push(Edit::LastSeq {
                seq: file.meta.max_seq,
            });
        }
        for (bucket, files) in places(router.buckets(), files) {
            edits.extend(files.iter().map(|file| Edit::AddTable {
                bucket: bucket.id,
                level: 0,
                run: number,
                file: file.meta.file,
            }));
        }
        edits.push(versions.next_file_edit());
        // DURABLE: the tables and their names were synced before, and so was the log.
        engine.apply(versions, &edits)?;

        let _install = engine.lock_install();
        for (bucket, files) in places(router.buckets(), files) {
            let state = bucket.state.load();
            let mut levels = Levels::clone(&state.levels);
            levels.add(0, Run::new(number, files.to_vec()));
            bucket.state.store(Arc::new(BucketState {
                levels: Arc::new(levels),
                ..BucketState::clone(&state)
            }));
        }
        Ok(())
    }
}

impl Drop for Ingest<'_> {
    fn drop(&mut self) {
        // The table in work removes itself.
        for meta in &self.written {
            self.engine.remove_unnamed(meta.file);
        }
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

/// Whether a MemTable has a key of one of the tables, which are in order, or too many keys to look
/// for.
fn is_in_the_way(table: &MemTable, files: &[Arc<TableFile>]) -> Result<bool> {
    if table.keys() > LOOKED_UP_KEYS_MAX {
        return Ok(true);
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
