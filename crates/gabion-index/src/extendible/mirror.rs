//! The directory in DRAM (Spot-On's guideline C): a copy of its entries, which lookups read
//! instead.
//!
//! There is a table for each depth that the directory has had, so that one is made when the
//! directory is doubled and none ever goes: whoever still reads an old one finds out by the entry
//! of the new one, as with directories in the pool. All tables together have twice the words of the
//! last one. The entries in the pool stay what recovery reads, and are stored first.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{DEPTH_MAX, Directory, Segment};
use crate::line::LineArray;

/// Tables by the depth of the directory.
pub(super) struct DirectoryMirror {
    tables: Box<[OnceLock<Box<[AtomicU64]>>]>,
}

impl DirectoryMirror {
    /// Without a table.
    pub(super) fn new() -> DirectoryMirror {
        DirectoryMirror {
            tables: (0..=DEPTH_MAX).map(|_| OnceLock::new()).collect(),
        }
    }

    fn table(&self, directory: Directory) -> Option<&[AtomicU64]> {
        let table = self.tables.get(directory.bits() as usize)?;
        table.get().map(|table| &**table)
    }

    /// Makes the table of a directory, before anybody uses that.
    pub(super) fn add(&self, directory: Directory, segments: impl Iterator<Item = Segment>) {
        if let Some(table) = self.tables.get(directory.bits() as usize) {
            table.get_or_init(|| {
                segments
                    .map(|segment| AtomicU64::new(segment.0.0))
                    .collect()
            });
        }
    }

    /// An entry of a directory in use, by its number.
    #[inline]
    pub(super) fn get(&self, directory: Directory, number: u64) -> Option<Segment> {
        let entry = self.table(directory)?.get(usize::try_from(number).ok()?)?;
        // ORDER: Acquire pairs with the release of `set`: the segment is there.
        Some(Segment(LineArray(entry.load(Ordering::Acquire))))
    }

    /// Changes an entry, after that in the pool.
    pub(super) fn set(&self, directory: Directory, number: u64, segment: Segment) {
        let number = usize::try_from(number).unwrap_or(usize::MAX);
        if let Some(entry) = self.table(directory).and_then(|table| table.get(number)) {
            // ORDER: Release pairs with the acquire of `get`.
            entry.store(segment.0.0, Ordering::Release);
        }
    }

    /// Bytes of DRAM of all tables.
    pub(super) fn bytes(&self) -> u64 {
        let tables = self.tables.iter().filter_map(OnceLock::get);
        tables.map(|table| size_of_val(&**table) as u64).sum()
    }
}
