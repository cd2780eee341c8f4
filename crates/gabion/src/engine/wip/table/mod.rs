//! LevelTables: sorted, immutable files of entries, the runs of which the levels consist.
//!
//! # Idea
//! A table (WipDB, 2.3: "LevelTable") is written once, in order, and then read by many threads. It
//! is a sequence of blocks of about 4 KiB, a filter, an index and properties. Filter and index of
//! an open table are in memory, so a point lookup reads at most one block, and a lookup of a key
//! that is not there usually none. Memory is the slow medium here (a miss of the processor's caches
//! takes 200 ns, a read from the page cache 2 us), so everything is laid out by cache lines: one
//! line in the filter, three to five in the index, about four in the block.
//!
//! Entries ascend by key; those of one key descend by sequence number, so the newest comes first.
//!
//! # Layout
//! See [`layout`] for the file, [`block_layout`], [`codec`], [`filter`], [`index`] and
//! [`distinct_sketch`] for its parts.
//!
//! # Invariants
//! - I1: a table never changes once [`TableWriter::finish`] returned, and its number is never
//!   used again: blocks may be cached by number and offset without ever being invalidated.
//! - I2: a byte is believed only after its checksum, which covers its place, and the structure
//!   around it were checked. Whatever the medium holds, the outcome is an answer or
//!   [`crate::Error::Corruption`], never a panic and never wrong data.
//! - I3: all blocks before the one that [`index::BlockIndex::find`] names hold smaller keys only,
//!   and versions of the key in later blocks are there only if the block's separator is the key.
//!
//! # Durability point
//! [`TableWriter::finish`] syncs the file. The caller syncs the directory and then lets the
//! manifest name the file.
//!
//! # Recovery
//! None: a table that the manifest names is whole, any other is removed by the engine.
//!
//! # Deviations from the paper
//! The paper leaves the format open and knows no range deletes and no compression. Sketches of the
//! distinct keys, tags and the separators' number array are ours.

mod block;
mod block_builder;
mod block_layout;
mod blocks;
mod codec;
#[cfg(test)]
mod compression_tests;
mod cursor;
#[cfg(test)]
mod damage_tests;
mod distinct_sketch;
mod features;
mod filter;
mod index;
mod layout;
#[cfg(test)]
mod paranoid_tests;
mod properties;
mod reader;
mod salvage;
#[cfg(test)]
mod tests;
mod tree;
mod verify;
mod visible_span;
mod writer;

pub(crate) use cursor::TableCursor;
pub(crate) use distinct_sketch::DistinctSketch;
pub(crate) use reader::Table;
pub(crate) use visible_span::VisibleSpan;
pub(crate) use writer::TableWriter;

use crate::engine::expiries::Expiries;
use crate::options::Compression;
use crate::slice::Slice;
use crate::types::Seq;

/// Usual size of a block. Fits a page of the system and of the device; reading more for one entry
/// costs more time in copying and checking than it saves in the index.
pub(crate) const BLOCK_BYTES_DEFAULT: usize = 4096;
/// Usual bits per key of the filter: about 1.2 % of absent keys pass.
pub(crate) const FILTER_BITS_PER_KEY_DEFAULT: u32 = 10;

/// How a table is written.
#[derive(Clone, Debug)]
pub(crate) struct TableOptions {
    /// Blocks are at most this long, not counting the prefix that their keys share, unless one
    /// entry alone is longer. Numbers above [`block_layout::BLOCK_BYTES_MAX`] count as that.
    pub(crate) block_bytes: usize,
    /// Bits per distinct key in the filter; 0 leaves the filter out.
    pub(crate) filter_bits_per_key: u32,
    /// How blocks are compressed.
    pub(crate) compression: Compression,
    /// Whether an entry that comes out of order is an error. Otherwise nobody looks.
    pub(crate) checks_order: bool,
}

impl Default for TableOptions {
    fn default() -> TableOptions {
        TableOptions {
            block_bytes: BLOCK_BYTES_DEFAULT,
            filter_bits_per_key: FILTER_BITS_PER_KEY_DEFAULT,
            compression: Compression::None,
            checks_order: false,
        }
    }
}

/// What is known of a table without reading its entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TableMeta {
    /// Number of the file.
    pub(crate) file: u64,
    /// Length of the file.
    pub(crate) file_bytes: u64,
    /// Number of entries.
    pub(crate) entries: u64,
    /// Entries that are tombstones, range deletes included.
    pub(crate) tombstones: u64,
    /// Ranges of keys that were deleted.
    pub(crate) range_deletes: u64,
    /// Bytes of keys and values, each version counted.
    pub(crate) user_bytes: u64,
    /// Smallest key.
    pub(crate) smallest: Slice,
    /// Largest key.
    pub(crate) largest: Slice,
    /// Smallest sequence number.
    pub(crate) min_seq: Seq,
    /// Largest sequence number.
    pub(crate) max_seq: Seq,
    /// Estimates the number of distinct keys, here and in unions with other tables.
    pub(crate) sketch: DistinctSketch,
    /// The entries that expire, if any do.
    pub(crate) expiries: Option<Expiries>,
}

impl TableMeta {
    fn new(file: u64, file_bytes: u64, properties: &properties::TableProperties) -> TableMeta {
        TableMeta {
            file,
            file_bytes,
            entries: properties.entries,
            tombstones: properties.tombstones,
            range_deletes: properties.deletes.iter().len() as u64,
            user_bytes: properties.key_bytes.saturating_add(properties.value_bytes),
            smallest: Slice::new(&properties.smallest),
            largest: Slice::new(&properties.largest),
            min_seq: properties.min_seq,
            max_seq: properties.max_seq,
            sketch: properties.sketch.clone(),
            expiries: properties.expiries,
        }
    }
}
