//! Verifies a whole table against itself.
#![deny(clippy::indexing_slicing, clippy::unwrap_used)]

use std::cmp::Ordering;
use std::sync::Arc;

use super::block_layout::Encoding;
use super::cursor::TableCursor;
use super::properties::TableProperties;
use super::reader::Table;
use crate::engine::expiries::ExpirySample;
use crate::error::Result;
use crate::expiry::moment_of;
use crate::operands::Operands;
use crate::types::{Kind, hash_key};

impl Table {
    /// Reads every block from the medium, past the cache, and checks what the checksums cannot
    /// know: the order of the entries, tags, separators, filter, sketch and properties. Returns the
    /// first thing that does not hold as [`crate::Error::Corruption`].
    pub(crate) fn verify(self: &Arc<Self>) -> Result<()> {
        let mut cursor = self.scan_cursor();
        cursor.seek_first()?;
        let mut seen = Seen::new(self, &cursor);
        while cursor.valid() {
            if let Some(what) = seen.objection(self, &cursor) {
                let offset = self.index.place(cursor.block_number()).start;
                return Err(self.corruption(offset, what));
            }
            cursor.next()?;
        }
        seen.found.largest = seen.last_key;
        seen.found.expiries = seen.expiries.expiries();
        if seen.found != self.properties {
            let offset = self.index.place(self.index.len()).start;
            return Err(self.corruption(offset, "the properties do not describe the entries"));
        }
        Ok(())
    }
}

/// What the entries so far amount to.
struct Seen {
    found: TableProperties,
    expiries: ExpirySample,
    last_key: Vec<u8>,
    last_seq: u64,
    last_block: usize,
    lower: Option<Vec<u8>>,
    upper: Vec<u8>,
}

impl Seen {
    fn new(table: &Table, first: &TableCursor) -> Seen {
        Seen {
            found: TableProperties {
                smallest: first.key().to_vec(),
                ..TableProperties::empty(table.properties.filter_bits_per_key)
            },
            expiries: ExpirySample::default(),
            last_key: Vec::new(),
            last_seq: 0,
            last_block: 0,
            lower: None,
            upper: table.index.separator(0),
        }
    }

    /// Takes the cursor's entry in; returns what is wrong with it.
    fn objection(&mut self, table: &Table, cursor: &TableCursor) -> Option<&'static str> {
        let (key, seq) = (cursor.key(), cursor.seq());
        let hash = hash_key(key);
        let order = self.last_key.as_slice().cmp(key);
        let first = self.found.entries == 0;
        if !first && (order == Ordering::Greater || (order.is_eq() && self.last_seq <= seq)) {
            return Some("the entries are out of order");
        }
        let changes = cursor.block_number() != self.last_block;
        if first || changes {
            let encoding = cursor.encoding().unwrap_or(Encoding::Plain);
            self.found.packed.count(encoding);
        }
        if changes {
            self.last_block = cursor.block_number();
            let upper = table.index.separator(self.last_block);
            self.lower = Some(std::mem::replace(&mut self.upper, upper));
        }
        // A key equal to the separator before its block is legal only for a further version.
        let above = match &self.lower {
            Some(lower) => key > lower.as_slice() || (order.is_eq() && key == lower.as_slice()),
            None => true,
        };
        if !above || key > self.upper.as_slice() {
            return Some("an entry lies in a block that the index does not name for it");
        }
        let [tag, ..] = hash.to_le_bytes();
        if cursor.tag() != Some(tag) {
            return Some("an entry's tag does not belong to its key");
        }
        if !table.filter.may_contain(hash) {
            return Some("the filter lacks a key of the table");
        }
        if cursor.kind() == Kind::Operand {
            return Some("an entry has an operand that does not decode");
        }
        if cursor.kind() == Kind::Merge && Operands::decode(cursor.value_bytes()).is_err() {
            return Some("the operands of a merge do not decode");
        }
        self.count(cursor, hash);
        None
    }

    fn count(&mut self, cursor: &TableCursor, hash: u64) {
        let found = &mut self.found;
        found.entries += 1;
        found.tombstones += u64::from(cursor.kind().is_tombstone());
        found.merges += u64::from(cursor.kind() == Kind::Merge);
        if cursor.kind() == Kind::DeleteRange {
            found
                .deletes
                .note(cursor.key(), cursor.value_bytes(), cursor.seq());
        }
        if cursor.kind() == Kind::PutExpiring {
            self.expiries.add(moment_of(cursor.value_bytes()));
        }
        found.key_bytes += cursor.key().len() as u64;
        found.value_bytes += cursor.value_bytes().len() as u64;
        found.min_seq = found.min_seq.min(cursor.seq());
        found.max_seq = found.max_seq.max(cursor.seq());
        found.sketch.add(hash);
        self.last_key.clear();
        self.last_key.extend_from_slice(cursor.key());
        self.last_seq = cursor.seq();
    }
}
