//! A cursor over a MemTable, whatever its form.

use super::key_tree::OrderCursor;
use super::sorted_cursor::SortedCursor;
use crate::Slice;
use crate::types::{Kind, Seq};

/// A cursor over the records that a table held when the cursor was made, and maybe over some that
/// were inserted later; by key, then newest first. It stands on no record until it is moved, and it
/// keeps the memory of the table.
pub(crate) enum MemCursor {
    /// Of a table that was sorted.
    Sorted(SortedCursor),
    /// Of a table that is kept in order.
    Ordered(OrderCursor),
}

/// Calls a method of either cursor.
macro_rules! either {
    ($cursor:expr, $inner:ident => $call:expr) => {
        match $cursor {
            MemCursor::Sorted($inner) => $call,
            MemCursor::Ordered($inner) => $call,
        }
    };
}

impl MemCursor {
    /// Moves to the first record.
    pub(crate) fn seek_first(&mut self) {
        either!(self, cursor => cursor.seek_first());
    }

    /// Moves to the last record.
    pub(crate) fn seek_last(&mut self) {
        either!(self, cursor => cursor.seek_last());
    }

    /// Asks for the memory that [`MemCursor::seek`] waits for first.
    pub(crate) fn prefetch(&self, key: &[u8]) {
        match self {
            MemCursor::Sorted(cursor) => cursor.prefetch(key),
            MemCursor::Ordered(cursor) => cursor.prefetch(),
        }
    }

    /// Moves to the first record whose key is not below `key`.
    pub(crate) fn seek(&mut self, key: &[u8]) {
        either!(self, cursor => cursor.seek(key));
    }

    /// Moves to the last record whose key is below `key`.
    pub(crate) fn seek_before(&mut self, key: &[u8]) {
        either!(self, cursor => cursor.seek_before(key));
    }

    /// Moves to the next record. The cursor must be valid.
    #[inline]
    pub(crate) fn next(&mut self) {
        either!(self, cursor => cursor.next());
    }

    /// Moves past records that have the current key: in a table that is kept in order past all of
    /// them, else past those of the current run, where a key that was written a thousand times
    /// costs ten comparisons. The cursor must be valid.
    pub(crate) fn next_key(&mut self) {
        either!(self, cursor => cursor.next_key());
    }

    /// Moves to the previous record. The cursor must be valid.
    #[inline]
    pub(crate) fn prev(&mut self) {
        either!(self, cursor => cursor.prev());
    }

    /// Whether the cursor stands on a record; the methods below need that.
    #[inline]
    pub(crate) fn valid(&self) -> bool {
        either!(self, cursor => cursor.valid())
    }

    /// The record's key.
    #[inline]
    pub(crate) fn key(&self) -> &[u8] {
        either!(self, cursor => cursor.key())
    }

    /// The record's sequence number.
    #[inline]
    pub(crate) fn seq(&self) -> Seq {
        either!(self, cursor => cursor.seq())
    }

    /// The record's kind.
    #[inline]
    pub(crate) fn kind(&self) -> Kind {
        either!(self, cursor => cursor.kind())
    }

    /// The record's value, copied.
    #[inline]
    pub(crate) fn value(&self) -> Slice {
        Slice::new(self.value_bytes())
    }

    /// The record's value.
    #[inline]
    pub(crate) fn value_bytes(&self) -> &[u8] {
        either!(self, cursor => cursor.value_bytes())
    }
}
