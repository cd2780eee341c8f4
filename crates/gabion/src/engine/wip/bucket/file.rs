//! A table file as the levels hold it: opened at first use, deleted after last use, as long as the
//! store has its directory.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use gabion_media::{Disk, ReadFile};

use super::Bucket;
use crate::backup::source::KnownPieces;
use crate::cache::BlockCache;
use crate::engine::range_deletes::RangeTombstones;
use crate::engine::ssd::StoreLock;
use crate::engine::wip::manifest::{FileMeta, TableAge};
use crate::engine::wip::table::{DistinctSketch, Table, TableMeta};
use crate::names::table_name;
use crate::{Error, Result, Slice};

/// A table file that the manifest names. Its index and filter come into memory at first use, so
/// that opening a store does not read every table.
pub(crate) struct TableFile {
    /// What the manifest says about the table.
    pub(crate) meta: TableMeta,
    /// How old its entries are.
    pub(crate) age: TableAge,
    disk: Disk,
    lock: Arc<StoreLock>,
    cache: Arc<BlockCache>,
    table: OnceLock<Arc<Table>>,
    /// The file, where somebody else may remove it at any time.
    held: Option<ReadFile>,
    retired: AtomicBool,
}

impl TableFile {
    /// A file that is there; nothing is read yet.
    pub(crate) fn new(
        meta: TableMeta,
        age: TableAge,
        disk: &Disk,
        lock: &Arc<StoreLock>,
        cache: &Arc<BlockCache>,
    ) -> TableFile {
        TableFile {
            meta,
            age,
            disk: disk.clone(),
            lock: Arc::clone(lock),
            cache: Arc::clone(cache),
            table: OnceLock::new(),
            held: None,
            retired: AtomicBool::new(false),
        }
    }

    /// The same, of a store that somebody else writes: the file stays readable whatever becomes of
    /// its name.
    pub(crate) fn held(mut self, file: ReadFile) -> TableFile {
        self.held = Some(file);
        self
    }

    /// The open table. Two threads that come first may both open it; one of the two stays.
    ///
    /// # Errors
    /// The store is closed, and the table was not open before.
    #[inline]
    pub(crate) fn table(&self) -> Result<&Arc<Table>> {
        match self.table.get() {
            Some(table) => Ok(table),
            None => self.open(),
        }
    }

    #[cold]
    fn open(&self) -> Result<&Arc<Table>> {
        let _held = self.lock.hold().ok_or(Error::Closed)?;
        let (file, seq) = (self.meta.file, self.meta.min_seq);
        let table = match &self.held {
            Some(held) => Table::of_file(held.clone(), file, seq, &self.cache)?,
            None => Table::open(&self.disk, file, seq, &self.cache)?,
        };
        Ok(self.table.get_or_init(|| Arc::new(table)))
    }

    /// The file as it lies on the disk. Once it is open, it is whole to the end, whatever becomes
    /// of its name.
    pub(crate) fn open_raw(&self) -> Result<ReadFile> {
        let _held = self.lock.hold().ok_or(Error::Closed)?;
        Ok(self.disk.open_read(&table_name(self.meta.file))?)
    }

    /// Marks by which the file is known unread. A table is written once; another one with its
    /// number, of a copy of the store that went another way, is another file or was written at
    /// another time.
    pub(crate) fn known(&self) -> Result<KnownPieces> {
        let _held = self.lock.hold().ok_or(Error::Closed)?;
        let name = table_name(self.meta.file);
        let stamp = self.disk.stamp_of(&name)?.map(u64::to_le_bytes);
        Ok(KnownPieces::by(&[
            b"table",
            name.as_bytes(),
            stamp.as_flattened(),
        ]))
    }

    /// The range deletes of the table, which is opened if it has any; `None` for one without.
    pub(crate) fn range_deletes(&self) -> Result<Option<&RangeTombstones>> {
        match self.meta.range_deletes {
            0 => Ok(None),
            _ => Ok(Some(self.table()?.range_deletes())),
        }
    }

    /// Whether the table may say anything about keys of a bucket. Its range deletes may reach
    /// beyond its entries.
    pub(crate) fn concerns(&self, bucket: &Bucket) -> bool {
        if bucket.overlaps(&self.meta.smallest, &self.meta.largest) {
            return true;
        }
        match self.table.get() {
            Some(table) => table.range_deletes().touches(bucket.range()),
            None => self.meta.range_deletes > 0,
        }
    }

    /// The table's bytes in a bucket; of a shared table the part in the bucket's range.
    pub(crate) fn bytes_in(&self, bucket: &Bucket) -> Result<u64> {
        match bucket.contains(&self.meta.smallest, &self.meta.largest) {
            true => Ok(self.meta.file_bytes),
            false => Ok(self.table()?.bytes_between(bucket.lower(), bucket.upper())),
        }
    }

    /// The table, if it is open.
    #[inline]
    pub(crate) fn opened(&self) -> Option<&Arc<Table>> {
        self.table.get()
    }

    /// Memory of the index and the filter, if they are loaded.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.table
            .get()
            .map_or(0, |table| table.memory_bytes() as u64)
    }

    /// Says that the manifest names the file no more: it is deleted when its last reader is gone,
    /// or by the next open if the store is closed before that.
    pub(crate) fn retire(&self) {
        // ORDER: Release pairs with the Acquire in `drop`, on whichever thread that runs.
        self.retired.store(true, Ordering::Release);
    }
}

impl Drop for TableFile {
    fn drop(&mut self) {
        // ORDER: Acquire pairs with the Release of `retire`.
        if self.retired.load(Ordering::Acquire)
            && let Some(_held) = self.lock.hold()
            && let Err(error) = self.disk.remove(&table_name(self.meta.file))
        {
            // The next open removes files that the manifest does not name.
            tracing::warn!(%error, "a table that is no longer needed could not be removed");
        }
    }
}

/// What the manifest keeps of a table.
pub(crate) fn file_meta(meta: &TableMeta) -> FileMeta {
    FileMeta {
        file_bytes: meta.file_bytes,
        entries: meta.entries,
        tombstones: meta.tombstones,
        range_deletes: meta.range_deletes,
        user_bytes: meta.user_bytes,
        smallest: meta.smallest.to_vec(),
        largest: meta.largest.to_vec(),
        min_seq: meta.min_seq,
        max_seq: meta.max_seq,
        sketch: meta.sketch.encode(),
        expiries: meta.expiries.map(Box::new),
    }
}

/// A table from what the manifest keeps of it; `None` when its sketch is not valid.
pub(crate) fn table_meta(file: u64, meta: &FileMeta) -> Option<TableMeta> {
    Some(TableMeta {
        file,
        file_bytes: meta.file_bytes,
        entries: meta.entries,
        tombstones: meta.tombstones,
        range_deletes: meta.range_deletes,
        user_bytes: meta.user_bytes,
        smallest: Slice::new(&meta.smallest),
        largest: Slice::new(&meta.largest),
        min_seq: meta.min_seq,
        max_seq: meta.max_seq,
        sketch: DistinctSketch::decode(&meta.sketch)?,
        expiries: meta.expiries.as_deref().copied(),
    })
}
