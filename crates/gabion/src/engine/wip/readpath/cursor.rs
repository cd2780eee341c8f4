//! One sorted source of a merge: a MemTable or a run of tables.

use std::sync::Arc;

use crate::engine::memtable::MemCursor;
use crate::engine::wip::bucket::RunTables;
use crate::engine::wip::table::{TableCursor, VisibleSpan};
use crate::expiry::{value_of, value_start};
use crate::types::{Kind, Seq};
use crate::{Result, Slice};

/// A cursor over entries ordered by key ascending, then by sequence number descending.
///
/// A position stays valid until the cursor is moved again; after an error it is invalid.
pub(crate) enum EntryCursor {
    /// A MemTable.
    Memory(MemCursor),
    /// A run of tables.
    Run(RunCursor),
}

impl EntryCursor {
    /// Asks for the memory that [`EntryCursor::seek`] waits for first.
    pub(crate) fn prefetch(&mut self, key: &[u8]) {
        match self {
            EntryCursor::Memory(cursor) => cursor.prefetch(key),
            EntryCursor::Run(cursor) => cursor.prefetch(key),
        }
    }

    /// Asks for the memory that [`EntryCursor::seek`] waits for next, as far as it is known without
    /// waiting long. That seek, and to the same key, must be what follows.
    pub(crate) fn approach(&mut self, key: &[u8]) -> Result<()> {
        match self {
            EntryCursor::Memory(_) => Ok(()),
            EntryCursor::Run(cursor) => cursor.approach(key),
        }
    }

    /// The cursor over the table that the source is in, if it is in one.
    pub(crate) fn table_cursor(&self) -> Option<&TableCursor> {
        match self {
            EntryCursor::Memory(_) => None,
            EntryCursor::Run(cursor) => cursor.cursor.as_ref(),
        }
    }

    /// Moves to the first entry whose key is not below `key`.
    pub(crate) fn seek(&mut self, key: &[u8]) -> Result<()> {
        match self {
            EntryCursor::Memory(cursor) => cursor.seek(key),
            EntryCursor::Run(cursor) => return cursor.seek(key),
        }
        Ok(())
    }

    /// Moves to the last entry whose key is below `key`, or to the last one of all.
    pub(crate) fn seek_before(&mut self, key: Option<&[u8]>) -> Result<()> {
        match (self, key) {
            (EntryCursor::Memory(cursor), Some(key)) => cursor.seek_before(key),
            (EntryCursor::Memory(cursor), None) => cursor.seek_last(),
            (EntryCursor::Run(cursor), key) => return cursor.seek_before(key),
        }
        Ok(())
    }

    /// Moves to the next entry.
    #[inline]
    pub(crate) fn next(&mut self) -> Result<()> {
        match self {
            EntryCursor::Memory(cursor) => cursor.next(),
            EntryCursor::Run(cursor) => return cursor.next(),
        }
        Ok(())
    }

    /// Moves to the next entry that a reader of the current key may need: past the older versions
    /// of the key, where they may be many.
    #[inline]
    pub(crate) fn next_key(&mut self) -> Result<()> {
        match self {
            EntryCursor::Memory(cursor) => cursor.next_key(),
            EntryCursor::Run(cursor) => return cursor.next(),
        }
        Ok(())
    }

    /// Moves to the previous entry.
    pub(crate) fn prev(&mut self) -> Result<()> {
        match self {
            EntryCursor::Memory(cursor) => cursor.prev(),
            EntryCursor::Run(cursor) => return cursor.prev(),
        }
        Ok(())
    }

    /// Whether the cursor stands on an entry; the methods below need that.
    #[inline]
    pub(crate) fn valid(&self) -> bool {
        match self {
            EntryCursor::Memory(cursor) => cursor.valid(),
            EntryCursor::Run(cursor) => cursor.valid(),
        }
    }

    /// The entry's key.
    #[inline]
    pub(crate) fn key(&self) -> &[u8] {
        match self {
            EntryCursor::Memory(cursor) => cursor.key(),
            EntryCursor::Run(cursor) => cursor.table().key(),
        }
    }

    /// The entry's sequence number.
    #[inline]
    pub(crate) fn seq(&self) -> Seq {
        match self {
            EntryCursor::Memory(cursor) => cursor.seq(),
            EntryCursor::Run(cursor) => cursor.table().seq(),
        }
    }

    /// The entry's kind.
    #[inline]
    pub(crate) fn kind(&self) -> Kind {
        match self {
            EntryCursor::Memory(cursor) => cursor.kind(),
            EntryCursor::Run(cursor) => cursor.table().kind(),
        }
    }

    /// The entry's value, to keep.
    #[inline]
    pub(crate) fn value(&self) -> Slice {
        let stored = match self {
            EntryCursor::Memory(cursor) => cursor.value(),
            EntryCursor::Run(cursor) => cursor.table().value(),
        };
        match value_start(self.kind()) {
            0 => stored,
            start => stored.without_front(start),
        }
    }

    /// Whether the source is one that can lend entries.
    #[inline]
    pub(crate) fn lends(&self) -> bool {
        matches!(self, EntryCursor::Run(cursor) if cursor.access == ReadPattern::Cached)
    }

    /// Whether the entries at hand go as far as `key`, or farther.
    #[inline]
    pub(crate) fn reaches(&self, key: &[u8]) -> bool {
        matches!(self, EntryCursor::Run(cursor) if cursor.table().reaches(key))
    }

    /// The entries at hand from the current one on, below all of `stops`, if the source is one
    /// that can lend them. [`EntryCursor::leave`] tells it how many were taken.
    #[inline]
    pub(crate) fn stretch(&self, stops: [Option<&[u8]>; 2]) -> Option<VisibleSpan> {
        match self {
            EntryCursor::Run(cursor) if self.lends() => cursor.table().stretch(stops),
            _ => None,
        }
    }

    /// Goes to the next entry that `stretch`, taken at this place, would look at.
    pub(crate) fn leave(&mut self, stretch: &VisibleSpan) -> Result<()> {
        match self {
            EntryCursor::Memory(_) => Ok(()),
            EntryCursor::Run(cursor) => {
                cursor.table_mut().leave(stretch)?;
                cursor.skip_forward()
            }
        }
    }

    /// The entry's value, to look at.
    #[inline]
    pub(crate) fn value_bytes(&self) -> &[u8] {
        value_of(self.kind(), self.stored())
    }

    /// What is stored of the entry, with its value.
    #[inline]
    pub(crate) fn stored(&self) -> &[u8] {
        match self {
            EntryCursor::Memory(cursor) => cursor.value_bytes(),
            EntryCursor::Run(cursor) => cursor.table().value_bytes(),
        }
    }
}

/// How a run is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadPattern {
    /// Through the block cache.
    Cached,
    /// Once from end to end, in large reads that leave the cache alone.
    Sequential,
}

/// A cursor over the tables of a run, one table open at a time.
pub(crate) struct RunCursor {
    tables: Arc<RunTables>,
    access: ReadPattern,
    /// The table that `cursor` reads.
    position: usize,
    /// The table that the next seek needs, if that was announced.
    sought: Option<usize>,
    cursor: Option<TableCursor>,
}

impl RunCursor {
    /// A cursor over `tables`, which are ordered and do not overlap.
    pub(crate) fn new(tables: Arc<RunTables>, access: ReadPattern) -> RunCursor {
        RunCursor {
            tables,
            access,
            position: 0,
            sought: None,
            cursor: None,
        }
    }

    /// The smallest key of the tables.
    pub(crate) fn smallest(&self) -> &[u8] {
        self.tables.first().map_or(&[], |file| &file.meta.smallest)
    }

    fn prefetch(&mut self, key: &[u8]) {
        let position = self.tables.position_of(key);
        self.sought = Some(position);
        let table = self.tables.get(position);
        if let Some(table) = table.and_then(|file| file.opened()) {
            table.prefetch_index(key);
        }
    }

    fn approach(&mut self, key: &[u8]) -> Result<()> {
        let position = self.place_of(key);
        self.sought = Some(position);
        if self.enter(position)? {
            self.table_mut().approach(key);
        }
        Ok(())
    }

    /// The position of the table that a seek to `key` needs.
    fn place_of(&mut self, key: &[u8]) -> usize {
        let position = self.sought.take();
        let position = position.unwrap_or_else(|| self.tables.position_of(key));
        debug_assert_eq!(position, self.tables.position_of(key), "the announced key");
        position
    }

    fn seek(&mut self, key: &[u8]) -> Result<()> {
        let position = self.place_of(key);
        if !self.enter(position)? {
            return Ok(());
        }
        self.table_mut().seek(key)?;
        self.skip_forward()
    }

    fn seek_before(&mut self, key: Option<&[u8]>) -> Result<()> {
        let below = match key {
            Some(key) => self
                .tables
                .partition_point(|file| *file.meta.smallest < *key),
            None => self.tables.len(),
        };
        if !self.enter(below.wrapping_sub(1))? {
            return Ok(());
        }
        match key {
            Some(key) => self.table_mut().seek_before(key),
            None => self.table_mut().seek_last(),
        }
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        self.table_mut().next()?;
        self.skip_forward()
    }

    fn prev(&mut self) -> Result<()> {
        self.table_mut().prev()?;
        if !self.valid() && self.enter(self.position.wrapping_sub(1))? {
            self.table_mut().seek_last()?;
        }
        Ok(())
    }

    #[inline]
    fn valid(&self) -> bool {
        self.cursor.as_ref().is_some_and(TableCursor::valid)
    }

    /// Goes on to the next table when the current one is at its end.
    #[inline]
    fn skip_forward(&mut self) -> Result<()> {
        if !self.valid() && self.enter(self.position + 1)? {
            self.table_mut().seek_first()?;
        }
        Ok(())
    }

    /// Opens a cursor on the table at `position`; false, and no position, when there is none.
    fn enter(&mut self, position: usize) -> Result<bool> {
        if position == self.position && self.cursor.is_some() {
            return Ok(true);
        }
        self.cursor = None;
        let Some(file) = self.tables.get(position) else {
            return Ok(false);
        };
        let table = file.table()?;
        self.position = position;
        self.cursor = Some(match self.access {
            ReadPattern::Cached => table.cursor(),
            ReadPattern::Sequential => table.scan_cursor(),
        });
        Ok(true)
    }

    fn table(&self) -> &TableCursor {
        self.cursor.as_ref().expect("the cursor is valid")
    }

    fn table_mut(&mut self) -> &mut TableCursor {
        self.cursor.as_mut().expect("a table has been entered")
    }
}
