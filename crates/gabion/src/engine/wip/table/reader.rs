//! An open table: filter, index and properties in memory, blocks mapped or through the cache.
#![deny(clippy::indexing_slicing, clippy::unwrap_used)]

use std::cell::RefCell;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use gabion_media::{Disk, ReadFile};

use super::block::{self, BlockShape, TableBlock};
use super::blocks::{CursorBlock, HeldBlock, LentBlock, MappedBlocks};
use super::codec::CompressedBlock;
use super::cursor::TableCursor;
use super::filter::{BloomFilter, LINE_BYTES};
use super::index::BlockIndex;
use super::layout::{FOOTER_BYTES, Footer, FooterError, TRAILER_BYTES, VERSION, check_part};
use super::properties::TableProperties;
use super::{TableMeta, layout::CheckResult};
use crate::cache::{BlockCache, BlockHints};
use crate::engine::range_deletes::RangeTombstones;
use crate::error::{Error, Result};
use crate::memory::TableMemory;
use crate::names::table_name;
use crate::slice::Slice;
use crate::types::{Kind, Seq};
use gabion_media::prefetch_line;

/// Lines at the front of a block that a search by tag looks at.
const HEAD_LINES: usize = 3;
/// How much is read at a time of a table that is made ready for readers: a call costs little for so
/// much, and it still fits a second-level cache.
const READY_BYTES: u64 = 256 << 10;
/// A thread's read buffer stays at most this long; longer reads use a buffer of their own.
const SCRATCH_BYTES_MAX: usize = 1 << 20;

/// One version of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TableEntry {
    /// Sequence number.
    pub(crate) seq: Seq,
    /// Whether the key has the value from then on, or none.
    pub(crate) kind: Kind,
    /// The value; empty for a tombstone.
    pub(crate) value: Slice,
}

/// An open table. All methods are for many threads at a time.
#[derive(Debug)]
pub(crate) struct Table {
    file: ReadFile,
    meta: TableMeta,
    /// Added to the sequence numbers in the blocks: 0, or the number that the manifest gives.
    seq_base: Seq,
    pub(super) properties: TableProperties,
    pub(super) filter: BloomFilter,
    pub(super) index: BlockIndex,
    cache: Arc<BlockCache>,
    /// Where in the cache the blocks are.
    places: BlockHints,
    /// The blocks in place, if the table is mapped; then the cache has none.
    mapped: Option<MappedBlocks>,
    /// The table's memory as a part of what the store may use.
    held: Option<TableMemory>,
}

impl Table {
    /// Opens table number `file` of the directory: reads and checks everything but the blocks, in
    /// two reads. `seq` is the smallest sequence number that the manifest says: that of all entries
    /// of a table that leaves it to the manifest, of no use for any other.
    pub(crate) fn open(disk: &Disk, file: u64, seq: Seq, cache: &Arc<BlockCache>) -> Result<Table> {
        Table::open_unless(disk, file, seq, cache, &mut Err)
    }

    /// As [`Table::open`], of a file that is open.
    pub(crate) fn of_file(
        read_file: ReadFile,
        file: u64,
        seq: Seq,
        cache: &Arc<BlockCache>,
    ) -> Result<Table> {
        Table::of_file_unless(read_file, file, seq, cache, &mut Err)
    }

    /// As [`Table::open`]; of a part without which blocks can be read, `refuse` decides whether its
    /// damage is an error. The table is without it else.
    pub(super) fn open_unless(
        disk: &Disk,
        file: u64,
        seq: Seq,
        cache: &Arc<BlockCache>,
        refuse: &mut dyn FnMut(Error) -> Result<()>,
    ) -> Result<Table> {
        Table::of_file_unless(disk.open_read(&table_name(file))?, file, seq, cache, refuse)
    }

    fn of_file_unless(
        read_file: ReadFile,
        file: u64,
        seq: Seq,
        cache: &Arc<BlockCache>,
        refuse: &mut dyn FnMut(Error) -> Result<()>,
    ) -> Result<Table> {
        let footer = read_footer(&read_file, file)?;
        let tail_at = footer.data_bytes;
        let tail_len = read_file.len() - FOOTER_BYTES as u64 - tail_at;
        let tail_len = usize::try_from(tail_len)
            .map_err(|_| corruption(&read_file, tail_at, "the table is too large to open here"))?;
        let mut tail = vec![0; tail_len];
        read_file.read_exact_at(&mut tail, tail_at)?;

        let mut sections = Sections {
            file: &read_file,
            number: file,
            offset: tail_at,
            rest: &tail,
        };
        let filter = sections.next(footer.filter_bytes, |bytes| {
            BloomFilter::decode(bytes).ok_or("the filter is not a whole number of cache lines")
        });
        let filter = filter.or_else(|error| refuse(error).map(|()| BloomFilter::default()))?;
        let index = sections.next(footer.index_bytes, |bytes| {
            BlockIndex::decode(bytes, footer.data_bytes)
        })?;
        let properties = sections.next(footer.properties_bytes, |bytes| {
            TableProperties::decode(bytes, footer.features)
        });
        let mut properties =
            properties.or_else(|error| refuse(error).map(|()| TableProperties::unknown()))?;
        let has_filter = footer.filter_bytes >= (LINE_BYTES + TRAILER_BYTES) as u64;
        let contradiction = if has_filter != (properties.filter_bits_per_key > 0) {
            Some("properties and filter contradict each other")
        } else if !index.is_separator(index.len() - 1, &properties.largest) {
            Some("properties and index contradict each other")
        } else {
            None
        };
        if let Some(what) = contradiction {
            refuse(corruption(&read_file, tail_at, what))?;
        }
        if properties.packed.zstd > 0 && !cfg!(feature = "zstd") {
            return Err(Error::MissingFeature {
                file: read_file.path().to_path_buf(),
                feature: "zstd",
            });
        }
        let mut seq_base = 0;
        if properties.is_numbered_by_manifest() {
            (seq_base, properties.min_seq, properties.max_seq) = (seq, seq, seq);
        }
        let maps = cache.maps_tables() && properties.packed.is_empty();
        let blocks = if cache.checks_always() {
            0
        } else {
            index.len()
        };
        let mapped = maps.then(|| map(&read_file, blocks)).flatten();
        let cached_blocks = if mapped.is_some() { 0 } else { index.len() };
        let mut table = Table {
            meta: TableMeta::new(file, read_file.len(), &properties),
            seq_base,
            file: read_file,
            properties,
            filter,
            cache: Arc::clone(cache),
            places: BlockHints::new(file, cached_blocks),
            mapped,
            index,
            held: None,
        };
        table.held = cache.charge_table(table.memory_bytes() as u64);
        Ok(table)
    }

    /// What is known of the table without reading its entries.
    pub(crate) fn meta(&self) -> &TableMeta {
        &self.meta
    }

    /// Whether any entry is a merge.
    #[inline]
    pub(super) fn has_merges(&self) -> bool {
        self.properties.merges > 0
    }

    /// What is added to the sequence numbers in the blocks.
    #[inline]
    pub(super) fn seq_base(&self) -> Seq {
        self.seq_base
    }

    /// The range deletes among the entries.
    pub(crate) fn range_deletes(&self) -> &RangeTombstones {
        &self.properties.deletes
    }

    /// Asks for the memory that [`Table::may_contain`] waits for.
    #[inline]
    pub(crate) fn prefetch_filter(&self, hash: u64) {
        self.filter.prefetch(hash);
    }

    /// Asks for the memory that a search for the block of `key` waits for.
    #[inline]
    pub(crate) fn prefetch_index(&self, key: &[u8]) {
        self.index.prefetch(key);
    }

    /// Says that the block that may hold `key` will be read: what is in memory is asked for, what
    /// is not the system begins to read. What was mapped and read before counts as in memory
    /// unless it is `lost`. A hint that does not wait and cannot fail.
    pub(crate) fn will_need(&self, key: &[u8], lost: bool) {
        let at = self.index.find(key);
        match &self.mapped {
            Some(mapped) if mapped.is_checked(at) && !lost => {
                prefetch_head(mapped.bytes(self.index.place(at)));
            }
            _ => self.announce(at, lost),
        }
    }

    /// Lets the system begin to read block `at`, unless it is in memory, as for
    /// [`Table::will_need`].
    pub(super) fn announce(&self, at: usize, lost: bool) {
        let has = match &self.mapped {
            Some(mapped) => mapped.is_checked(at) && !lost,
            None => self.cache.contains(&self.places, at),
        };
        if !has {
            self.file.will_need(self.index.place(at));
        }
    }

    /// Lets the system begin to read adjacent blocks.
    pub(super) fn announce_all(&self, blocks: Range<usize>) {
        let end = self.index.place(blocks.end).start;
        self.file
            .will_need(self.index.place(blocks.start).start..end);
    }

    /// Whether the system still has the block that may hold `key`, as [`Table::keeps`] says.
    pub(crate) fn is_in_memory(&self, key: &[u8]) -> bool {
        self.keeps(self.index.find(key))
    }

    /// Whether the system still has block `at`, which was read where it has it; true for any other
    /// block.
    pub(super) fn keeps(&self, at: usize) -> bool {
        match &self.mapped {
            Some(mapped) if mapped.is_checked(at) => {
                self.file.is_in_memory(self.index.place(at).start)
            }
            _ => true,
        }
    }

    /// Whether block `at` can be read without waiting for the medium.
    pub(super) fn is_at_hand(&self, at: usize) -> bool {
        let cached = self.mapped.is_none() && self.cache.contains(&self.places, at);
        cached || self.file.is_in_memory(self.index.place(at).start)
    }

    /// Asks for what a search of block `at` begins with, if that is mapped.
    #[inline]
    pub(super) fn prefetch_block(&self, at: usize) {
        if let Some(mapped) = &self.mapped {
            let bytes = mapped.bytes(self.index.place(at));
            prefetch_head(bytes);
            block::prefetch_fences(bytes);
        }
    }

    /// Whether the table may have the key with this hash; `false` is certain.
    #[inline]
    pub(crate) fn may_contain(&self, hash: u64) -> bool {
        self.filter.may_contain(hash)
    }

    /// The newest version of `key` whose sequence number is at most `seq`. Does not ask the filter:
    /// the caller does, for all tables at once.
    pub(crate) fn get(&self, key: &[u8], hash: u64, seq: Seq) -> Result<Option<TableEntry>> {
        let [tag, ..] = hash.to_le_bytes();
        let at = self.index.find(key);
        if at == self.index.len() {
            return Ok(None);
        }
        let bytes = self.block(at)?;
        let found = self.entry_in(&bytes, key, tag, seq);
        if found.is_some() || !self.index.is_separator(at, key) {
            return Ok(found);
        }
        self.get_across(at + 1, key, tag, seq)
    }

    /// Looks for older versions of a key that is the separator of the block before `first`. All
    /// blocks up to the next separator hold nothing but the key, so their last sequence numbers
    /// descend and the block is found by binary search.
    #[cold]
    fn get_across(
        &self,
        first: usize,
        key: &[u8],
        tag: u8,
        seq: Seq,
    ) -> Result<Option<TableEntry>> {
        let (mut low, mut high) = (first, self.index.find_above(first - 1, key));
        while low < high {
            let middle = low.midpoint(high);
            if self.entries_of(&self.block(middle)?).last_seq() > seq {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        if low == self.index.len() {
            return Ok(None);
        }
        Ok(self.entry_in(&self.block(low)?, key, tag, seq))
    }

    #[inline]
    fn entry_in(&self, block: &LentBlock<'_>, key: &[u8], tag: u8, seq: Seq) -> Option<TableEntry> {
        let found = self.entries_of(block).get(key, tag, seq)?;
        Some(TableEntry {
            seq: found.seq,
            kind: found.kind,
            value: block.slice(found.value_at, found.end.saturating_sub(found.value_at)),
        })
    }

    /// A block with the sequence numbers that its entries have.
    #[inline]
    fn entries_of<'b>(&self, bytes: &'b [u8]) -> TableBlock<'b> {
        TableBlock::with_shape(bytes, BlockShape::read(bytes).raised(self.seq_base))
    }

    /// A cursor that reads through the cache. It stands nowhere until it is told to seek.
    pub(crate) fn cursor(self: &Arc<Self>) -> TableCursor {
        TableCursor::new(Arc::clone(self), false)
    }

    /// A cursor that reads large pieces and leaves the cache alone, for reading the whole table.
    pub(crate) fn scan_cursor(self: &Arc<Self>) -> TableCursor {
        TableCursor::new(Arc::clone(self), true)
    }

    /// About how many bytes of the file hold the keys from `lower` on and below `upper`. Exact to
    /// a block at both ends, and additive: the parts of a range sum up to the whole range. A part
    /// within one block counts as 0 bytes, which does not mean that it is empty.
    pub(crate) fn bytes_between(&self, lower: &[u8], upper: Option<&[u8]>) -> u64 {
        let (start, end) = self.span(lower, upper);
        end.saturating_sub(start)
    }

    fn span(&self, lower: &[u8], upper: Option<&[u8]>) -> (u64, u64) {
        let start = self.index.place(self.index.find(lower)).start;
        let block = upper.map_or(self.index.len(), |upper| self.index.find(upper));
        (start, self.index.place(block).start)
    }

    /// Up to `parts - 1` ascending keys that cut the table's part from `lower` on and below `upper`
    /// into pieces of about equal size. All are above `lower` and below `upper`. There are fewer
    /// where the part has fewer blocks.
    pub(crate) fn cut_keys(
        &self,
        lower: &[u8],
        upper: Option<&[u8]>,
        parts: usize,
    ) -> Vec<Vec<u8>> {
        let (start, end) = self.span(lower, upper);
        let length = u128::from(end.saturating_sub(start));
        let mut keys: Vec<Vec<u8>> = Vec::new();
        for part in 1..parts {
            let ahead = length * part as u128 / parts as u128;
            let target = start + u64::try_from(ahead).unwrap_or(u64::MAX);
            // The block before the one that has the target ends nearest to it on the left.
            let Some(block) = self.index.block_at(target).checked_sub(1) else {
                continue;
            };
            let key = self.index.separator(block);
            let above = key.as_slice() > keys.last().map_or(lower, Vec::as_slice);
            if above && upper.is_none_or(|upper| key.as_slice() < upper) {
                keys.push(key);
            }
        }
        keys
    }

    /// Bytes that the open table holds in memory, blocks in the cache aside.
    pub(crate) fn memory_bytes(&self) -> usize {
        size_of::<Table>()
            + self.filter.bytes()
            + self.index.memory_bytes()
            + self.places.memory_bytes()
            + self.properties.deletes.memory_bytes()
            + self.mapped.as_ref().map_or(0, MappedBlocks::memory_bytes)
    }

    /// Block `at`, from memory or from the medium.
    #[inline]
    fn block(&self, at: usize) -> Result<LentBlock<'_>> {
        if let Some(mapped) = &self.mapped {
            let bytes = mapped.bytes(self.index.place(at));
            prefetch_head(bytes);
            if !mapped.is_checked(at) {
                self.read_block(at)?;
            }
            return Ok(LentBlock::Mapped(bytes));
        }
        match self.cache.get(&self.places, at) {
            Some(bytes) => Ok(LentBlock::Shared(bytes)),
            None => match self.read_block(at)? {
                CursorBlock::Shared(bytes) => Ok(LentBlock::Shared(bytes)),
                CursorBlock::Mapped(_) | CursorBlock::Empty => Err(self.no_such_block()),
            },
        }
    }

    /// Block `at` if it is in memory and was checked.
    #[inline]
    pub(super) fn ready_block(&self, at: usize) -> Option<CursorBlock> {
        match &self.mapped {
            Some(mapped) => mapped
                .is_checked(at)
                .then(|| MappedBlocks::block(&self.index.place(at))),
            None => self.cache.get(&self.places, at).map(CursorBlock::Shared),
        }
    }

    /// The bytes of a block that a cursor has.
    #[inline]
    pub(super) fn bytes_of<'b>(&'b self, block: &'b CursorBlock) -> &'b [u8] {
        block.bytes(self.mapped.as_ref())
    }

    /// A part of a block that a cursor has, to keep.
    #[inline]
    pub(super) fn slice_of(&self, block: &CursorBlock, start: usize, len: usize) -> Slice {
        block.slice(self.mapped.as_ref(), start, len)
    }

    /// A block that a cursor has, held.
    pub(super) fn hold(&self, block: &CursorBlock) -> HeldBlock {
        block.held(self.mapped.as_ref())
    }

    #[cold]
    fn read_block(&self, at: usize) -> Result<CursorBlock> {
        let first = self.read_blocks(at..at + 1)?.pop_front();
        first.ok_or_else(|| self.no_such_block())
    }

    #[cold]
    fn no_such_block(&self) -> Error {
        self.corruption(0, "the index does not name this block")
    }

    /// Reads adjacent blocks with one read, checks them and gives them to the cache, unless the
    /// table is mapped.
    pub(super) fn read_blocks(&self, blocks: Range<usize>) -> Result<VecDeque<CursorBlock>> {
        let start = self.index.place(blocks.start).start;
        let length = self.index.place(blocks.end).start - start;
        let length = usize::try_from(length)
            .map_err(|_| self.corruption(start, "the block is too large to read here"))?;
        with_scratch(length, |scratch| {
            self.file.read_exact_at(scratch, start)?;
            let mut rest: &[u8] = scratch;
            let mut read = VecDeque::with_capacity(blocks.len());
            for at in blocks {
                let place = self.index.place(at);
                let len = usize::try_from(place.end - place.start).unwrap_or(usize::MAX);
                let (bytes, after) = rest.split_at_checked(len).unwrap_or_default();
                let packed = self.check_block(at, bytes)?;
                read.push_back(match &self.mapped {
                    Some(mapped) => {
                        mapped.set_checked(at);
                        MappedBlocks::block(&place)
                    }
                    None => {
                        let bytes = match packed {
                            Some(packed) => self.unpack(at, packed, Arc::default())?,
                            None => Arc::from(bytes),
                        };
                        self.cache.insert(&self.places, at, Arc::clone(&bytes));
                        CursorBlock::Shared(bytes)
                    }
                });
                rest = after;
            }
            Ok(read)
        })
    }

    /// Checks all blocks of a mapped table, and lets the system enter their pages into the mapping,
    /// as far as it has them in memory and `go_on` says so, which is asked between large pieces.
    pub(crate) fn make_ready(&self, mut go_on: impl FnMut() -> bool) -> Result<()> {
        let Some(mapped) = self.mapped.as_ref().filter(|_| !self.cache.checks_always()) else {
            return Ok(());
        };
        let mut blocks = 0..0;
        while blocks.end < self.index.len() && go_on() {
            let start = self.index.place(blocks.end).start;
            let end = self.index.block_at(start + READY_BYTES).max(blocks.end + 1);
            blocks = blocks.end..end;
            let place = start..self.index.place(end).start;
            let is_kept = |offset| self.file.is_in_memory(offset);
            if !is_kept(place.start) || !is_kept(place.end.saturating_sub(1)) {
                return Ok(());
            }
            if !blocks.clone().all(|block| mapped.is_checked(block)) {
                self.read_blocks(blocks.clone())?;
            }
            mapped.enter(place);
        }
        Ok(())
    }

    /// Whether all blocks of a mapped table were checked.
    #[cfg(test)]
    pub(crate) fn is_ready(&self) -> bool {
        let is_checked = |block| self.mapped.as_ref().is_some_and(|m| m.is_checked(block));
        (0..self.index.len()).all(is_checked)
    }

    /// Reads bytes of the file, past the cache and unchecked.
    pub(super) fn read_raw(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        Ok(self.file.read_exact_at(buffer, offset)?)
    }

    /// Checks the bytes read for block `at`; returns what has to be unpacked first.
    pub(super) fn check_block<'b>(
        &self,
        at: usize,
        bytes: &'b [u8],
    ) -> Result<Option<CompressedBlock<'b>>> {
        let offset = self.index.place(at).start;
        let packed = block::check(self.meta.file, offset, bytes)
            .map_err(|what| self.corruption(offset, what))?;
        if packed.is_some() && self.properties.packed.is_empty() {
            let what = "the block is compressed, and the table has no compressed blocks";
            return Err(self.corruption(offset, what));
        }
        Ok(packed)
    }

    /// Block `at`, unpacked: in `buffer` if that is long enough and nobody shares it, else in a new
    /// one of the block's length.
    pub(super) fn unpack(
        &self,
        at: usize,
        packed: CompressedBlock<'_>,
        mut buffer: Arc<[u8]>,
    ) -> Result<Arc<[u8]>> {
        let len = packed.block_len();
        if Arc::get_mut(&mut buffer).is_none_or(|bytes| bytes.len() < len) {
            buffer = std::iter::repeat_n(0, len).collect();
        }
        let bytes = Arc::get_mut(&mut buffer).and_then(|bytes| bytes.get_mut(..len));
        block::unpack(packed, bytes.unwrap_or_default())
            .map_err(|what| self.corruption(self.index.place(at).start, what))?;
        Ok(buffer)
    }

    /// The error for bytes at `offset` that do not hold what they should.
    #[cold]
    pub(super) fn corruption(&self, offset: u64, what: &str) -> Error {
        corruption(&self.file, offset, what)
    }
}

/// Asks for header, tags and offsets of a usual block.
#[inline]
fn prefetch_head(block: &[u8]) {
    for line in block.chunks(LINE_BYTES).take(HEAD_LINES) {
        prefetch_line(line.as_ptr());
    }
}

/// Maps a table, of which so many blocks are to be checked only once; `None` where the system does
/// not let it be mapped. Then its blocks go through the cache.
fn map(file: &ReadFile, blocks: usize) -> Option<MappedBlocks> {
    match file.map() {
        Ok(map) => Some(MappedBlocks::new(map, blocks)),
        Err(error) => {
            tracing::warn!(%error, "a table is read through the cache");
            None
        }
    }
}

/// Runs `work` on `len` bytes of the thread's read buffer.
fn with_scratch<T>(len: usize, work: impl FnOnce(&mut [u8]) -> T) -> T {
    thread_local! {
        static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    }
    if len > SCRATCH_BYTES_MAX {
        return work(&mut vec![0; len]);
    }
    SCRATCH.with_borrow_mut(|scratch| {
        if scratch.len() < len {
            scratch.resize(len, 0);
        }
        work(scratch.get_mut(..len).unwrap_or_default())
    })
}

fn corruption(file: &ReadFile, offset: u64, what: &str) -> Error {
    Error::Corruption {
        file: file.path().to_path_buf(),
        offset,
        what: what.to_string(),
    }
}

fn read_footer(file: &ReadFile, number: u64) -> Result<Footer> {
    let Some(offset) = file.len().checked_sub(FOOTER_BYTES as u64) else {
        return Err(corruption(
            file,
            0,
            "the file is shorter than the footer of a table",
        ));
    };
    let mut bytes = [0; FOOTER_BYTES];
    file.read_exact_at(&mut bytes, offset)?;
    Footer::decode(&bytes, number, offset).map_err(|refusal| match refusal {
        FooterError::Corrupt(what) => corruption(file, offset, what),
        FooterError::Newer(found) => Error::NewerFormat {
            file: file.path().to_path_buf(),
            found,
            supported: VERSION,
        },
        FooterError::UnknownFeatures(features) => Error::UnknownFeatures {
            file: file.path().to_path_buf(),
            features,
        },
    })
}

/// The sections between blocks and footer, taken one after the other.
struct Sections<'a> {
    file: &'a ReadFile,
    number: u64,
    offset: u64,
    rest: &'a [u8],
}

impl Sections<'_> {
    fn next<T>(&mut self, len: u64, decode: impl FnOnce(&[u8]) -> CheckResult<T>) -> Result<T> {
        let offset = self.offset;
        let decoded = usize::try_from(len)
            .ok()
            .and_then(|len| self.rest.split_at_checked(len))
            .ok_or("the section leaves the file")
            .and_then(|(section, rest)| {
                self.rest = rest;
                self.offset += len;
                decode(check_part(self.number, offset, section)?)
            });
        decoded.map_err(|what| corruption(self.file, offset, what))
    }
}
