//! Outputs: the table that a job of the background, or an ingest, writes.
//!
//! # Idea
//! Flushes, compactions and ingests write tables in the same way: under a file number of their own,
//! at the pace of their class (`rate_limiter`, `cpu_throttle`), and not at all as far as anybody
//! can tell until the manifest names the file. What is dropped before it is finished, or fails,
//! removes its file; what a crash leaves is removed by the next open.

use gabion_media::Purpose;

use crate::engine::ssd::rate_limiter::{IoPriority, STEP_BYTES};
use crate::engine::wip::Wip;
use crate::engine::wip::bucket::Bucket;
use crate::engine::wip::policy::cpu_throttle::CpuThrottle;
use crate::engine::wip::table::{TableMeta, TableOptions, TableWriter};
use crate::names::table_name;
use crate::types::{Kind, Seq};
use crate::{Error, Result};

impl Wip {
    /// A writer for a new table file of a keyspace, as fast as jobs of the class may go. Once the
    /// store is closed its directory may be another's, so there is none.
    pub(in super::super) fn create_table(
        &self,
        keyspace: u32,
        purpose: Purpose,
        class: IoPriority,
    ) -> Result<TableOutput<'_>> {
        let _held = self.lock.hold().ok_or(Error::Closed)?;
        let file = self.versions.lock().take_file_number();
        let appender = self.disk.create_append(&table_name(file), purpose)?;
        // Of one that was dropped meanwhile nobody sees a table.
        let keyspaces = self.keyspaces.load();
        let own = keyspaces.live(keyspace).map(|keyspace| keyspace.own.get());
        let options = own.map_or_else(|| self.options.clone(), |own| own.on(&self.options));
        let options = TableOptions {
            block_bytes: options.tuning.block_bytes,
            filter_bits_per_key: options.tuning.filter_bits_per_key,
            compression: options.compression,
            checks_order: options.tuning.paranoid_checks,
        };
        let writer = TableWriter::new(appender, file, &options);
        Ok(TableOutput {
            engine: self,
            file,
            writer: Some(writer),
            class,
            bucket: None,
            gentle: (class == IoPriority::Leisure)
                .then(|| CpuThrottle::new(self.reads_of_tables())),
            paced_bytes: 0,
        })
    }

    /// Removes a table whose job has failed. Where the manifest has failed, which ends writing, it
    /// may name the table.
    pub(in super::super) fn abandon(&self, file: u64) {
        if self.health.failure().is_none() {
            self.remove_unnamed(file);
        }
    }

    /// Removes a table that no manifest names, unless the store is closed: another program may have
    /// opened it since, and used the number again.
    pub(in super::super) fn remove_unnamed(&self, file: u64) {
        if let Some(_held) = self.lock.hold()
            && let Err(error) = self.disk.remove(&table_name(file))
        {
            // The next open removes it.
            tracing::warn!(%error, "a table that the manifest does not name could not be removed");
        }
    }
}

/// A table file that is being written. Dropped before it is finished, it removes the file.
pub(in super::super) struct TableOutput<'e> {
    engine: &'e Wip,
    file: u64,
    writer: Option<TableWriter>,
    class: IoPriority,
    /// Nobody needs the table if this one goes.
    bucket: Option<&'e Bucket>,
    /// The pace of a job that nobody waits for.
    gentle: Option<CpuThrottle>,
    /// Bytes of the file that were asked for.
    paced_bytes: u64,
}

impl<'e> TableOutput<'e> {
    /// The same, which fails if the bucket goes meanwhile with its keyspace.
    pub(in super::super) fn within(mut self, bucket: &'e Bucket) -> TableOutput<'e> {
        self.bucket = Some(bucket);
        self
    }

    /// Adds an entry.
    #[inline]
    pub(in super::super) fn add(
        &mut self,
        key: &[u8],
        seq: Seq,
        kind: Kind,
        value: &[u8],
    ) -> Result<()> {
        let writer = self.writer.as_mut().expect("the table is not finished");
        writer.add(key, seq, kind, value)?;
        let written = writer.bytes_written() - self.paced_bytes;
        if written >= STEP_BYTES {
            self.keep_pace(written)?;
        }
        Ok(())
    }

    /// Waits until a job that has written so many bytes more may go on.
    #[cold]
    fn keep_pace(&mut self, written: u64) -> Result<()> {
        self.paced_bytes += written;
        self.bucket.map_or(Ok(()), Bucket::check_dropped)?;
        if self.class != IoPriority::Flush {
            let name = || table_name(self.file);
            self.engine.syncer.keep_room_to_flush(name)?;
        }
        let throttle = &self.engine.throttle;
        self.engine
            .pace
            .take(self.class, written, || throttle.pressed())?;
        if let Some(gentle) = &mut self.gentle {
            let engine = self.engine;
            gentle.step(|| engine.reads_of_tables(), || engine.is_unhurried());
        }
        Ok(())
    }

    /// Number of entries so far.
    pub(in super::super) fn entries(&self) -> u64 {
        self.writer.as_ref().map_or(0, TableWriter::entries)
    }

    /// Bytes of the file so far, without the block in work.
    pub(in super::super) fn bytes_written(&self) -> u64 {
        self.writer.as_ref().map_or(0, TableWriter::bytes_written)
    }

    /// Writes the rest and syncs the file.
    pub(in super::super) fn finish(mut self) -> Result<TableMeta> {
        let writer = self.writer.take().expect("the table is not finished");
        let result = writer.finish();
        match &result {
            // What is left is as good as installed: waiting now would only keep memory.
            Ok(meta) => self.engine.pace.spend(meta.file_bytes - self.paced_bytes),
            Err(_) => self.remove(),
        }
        result
    }

    fn remove(&self) {
        self.engine.remove_unnamed(self.file);
    }
}

impl Drop for TableOutput<'_> {
    fn drop(&mut self) {
        if self.writer.take().is_some() {
            self.remove();
        }
    }
}

#[cfg(test)]
mod tests {
    use gabion_media::{Disk, SimDisk};

    use super::*;
    use crate::Options;
    use crate::engine::ssd::Lifecycle;

    /// On a medium that was nearly full merges took what flushes needed, and these are what makes
    /// the log shorter.
    #[test]
    fn merges_leave_room_for_flushes() {
        let sim = SimDisk::new();
        let options = Options::default().background_threads(0);
        let engine = Wip::open(Disk::simulated(&sim), options).unwrap();
        let keyspace = engine.create_keyspace("keyspace").unwrap();
        for number in 0..3000_u64 {
            engine.put_for_tests(&keyspace, &number.to_le_bytes(), &[7; 100]);
        }
        let free = engine.log_bytes() - 1000;
        let used: usize = sim
            .names()
            .iter()
            .map(|name| sim.raw(name).unwrap().len())
            .sum();
        sim.set_capacity(Some(used as u64 + free));
        let write = |purpose, class| {
            let mut output = engine.create_table(0, purpose, class).unwrap();
            let mut numbers = 0..2000_u64;
            numbers.try_for_each(|number| {
                let key = number.swap_bytes().to_le_bytes();
                output.add(&key, number + 1, Kind::Put, &[7; 100])
            })
        };
        let refused = write(Purpose::Compaction, IoPriority::Urgent).unwrap_err();
        assert!(refused.is_no_space(), "{refused}");
        assert!(
            refused.to_string().contains("reserved for flushes"),
            "{refused}"
        );
        write(Purpose::Flush, IoPriority::Flush).unwrap();
        engine.flush().unwrap();
        engine.close().unwrap();
    }

    /// A store without threads flushes in its writers' threads. One that was late made a table in
    /// the directory of a closed store, which another program may have opened since.
    #[test]
    fn a_closed_store_makes_no_table() {
        let sim = SimDisk::new();
        let options = Options::default().background_threads(0);
        let engine = Wip::open(Disk::simulated(&sim), options).unwrap();
        let keyspace = engine.create_keyspace("keyspace").unwrap();
        engine.put_for_tests(&keyspace, b"key", b"value");
        {
            let _alone = engine.leader.write();
            let buckets = engine.buckets();
            engine.freeze_all(buckets.iter().map(|(keyspace, bucket)| (keyspace, bucket)));
        }
        engine.close().unwrap();
        let (names, operations) = (sim.names(), sim.ops());
        let late = engine.flush_one();
        assert!(matches!(late, Err(Error::Closed)), "{late:?}");
        assert_eq!((sim.names(), sim.ops()), (names, operations));
    }
}
