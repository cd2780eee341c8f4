//! Cursors: walk the entries of a table in both directions.
//!
//! A cursor holds its block, so that a step inside the block touches neither the cache nor any
//! atomic. A cursor that keeps moving forward over blocks that are not cached reads ahead: two
//! blocks in one read, then four, up to [`AHEAD_BYTES`]. If it goes on, it looks whether the system
//! has the next [`LOOK_BYTES`] in memory, and lets it read them meanwhile. A scan cursor reads
//! [`CHUNK_BYTES`] at a time into one buffer of its own, and checks each block, and unpacks it,
//! when it comes to it.
//!
//! Invariant: a valid cursor's `block`, `position` and decoded fields describe one entry. After an
//! error the cursor is not valid.
#![deny(clippy::indexing_slicing, clippy::unwrap_used)]

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use super::block::{BlockShape, TableBlock};
use super::block_layout::Encoding;
use super::blocks::CursorBlock;
use super::reader::Table;
use super::visible_span::VisibleSpan;
use crate::bytes::copy_to;
use crate::error::Result;
use crate::slice::Slice;
use crate::types::{Kind, Seq};

/// How far a cursor reads ahead at most: a read of that size takes about ten times as long as one
/// of a block.
const AHEAD_BYTES: u64 = 64 << 10;
/// How many blocks a cursor reads ahead at most.
const AHEAD_BLOCKS: usize = 64;
/// After so many steps from block to block a cursor looks whether what follows is in memory. A scan
/// that ends before gains nothing by that.
const LOOK_AFTER_STEPS: usize = 8;
/// How far it looks, and lets the system read: half of it is read while the other half is scanned.
const LOOK_BYTES: u64 = 256 << 10;
/// Keys up to this length need no larger buffer.
const KEY_CAPACITY: usize = 48;
/// How much a scan cursor reads at a time: the cost of the call vanishes, and the buffer still fits
/// a second-level cache.
const CHUNK_BYTES: u64 = 256 << 10;

/// Walks the entries of a table: keys ascending, the versions of a key from the newest on.
#[derive(Debug)]
pub(crate) struct TableCursor {
    table: Arc<Table>,
    source: Source,
    /// The block at hand; `None` before the first seek.
    block: Option<usize>,
    /// The block that the next seek looks into, if that was announced.
    sought: Option<usize>,
    /// What has the block, and where in it.
    buffer: CursorBlock,
    place: Range<usize>,
    shape: BlockShape,
    valid: bool,
    position: usize,
    seq: Seq,
    kind: Kind,
    /// The value, within the block.
    value: Range<usize>,
    key: Vec<u8>,
}

/// Where blocks come from.
#[derive(Debug)]
enum Source {
    Cache(Ahead),
    Scan(Chunk),
}

/// Adjacent blocks as they lie on the medium.
#[derive(Debug, Default)]
struct Chunk {
    /// Which blocks they are.
    blocks: Range<usize>,
    bytes: Arc<[u8]>,
    /// How the block at hand is encoded.
    encoding: Option<Encoding>,
}

/// Blocks that were read ahead.
#[derive(Debug, Default)]
struct Ahead {
    /// Number of the first of `blocks`.
    first: usize,
    blocks: VecDeque<CursorBlock>,
    /// How many blocks the next read takes.
    window: usize,
    /// How the cursor came to its last block.
    way: Way,
    /// Steps in the same direction until it looks ahead.
    steps_left: usize,
    /// Where it has looked to.
    looked: usize,
    /// Something was not in memory.
    lost: bool,
}

/// How a cursor comes to a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Way {
    /// From anywhere.
    #[default]
    Seek,
    /// From the block before.
    Forward,
    /// From the block after.
    Backward,
}

impl TableCursor {
    pub(super) fn new(table: Arc<Table>, scan: bool) -> TableCursor {
        TableCursor {
            table,
            source: match scan {
                true => Source::Scan(Chunk::default()),
                false => Source::Cache(Ahead::default()),
            },
            block: None,
            sought: None,
            buffer: CursorBlock::default(),
            place: 0..0,
            shape: BlockShape::default(),
            valid: false,
            position: 0,
            seq: 0,
            kind: Kind::Delete,
            value: 0..0,
            key: Vec::with_capacity(KEY_CAPACITY),
        }
    }

    /// Whether the cursor stands on an entry. The methods that describe the entry may be called
    /// only then.
    #[inline]
    pub(crate) fn valid(&self) -> bool {
        self.valid
    }

    /// The entry's key.
    #[inline]
    pub(crate) fn key(&self) -> &[u8] {
        debug_assert!(self.valid);
        &self.key
    }

    /// The entry's sequence number.
    #[inline]
    pub(crate) fn seq(&self) -> Seq {
        debug_assert!(self.valid);
        self.seq
    }

    /// The entry's kind.
    #[inline]
    pub(crate) fn kind(&self) -> Kind {
        debug_assert!(self.valid);
        self.kind
    }

    /// The entry's value; long values share the buffer that the cursor read the block into.
    #[inline]
    pub(crate) fn value(&self) -> Slice {
        debug_assert!(self.valid);
        let start = self.place.start + self.value.start;
        self.table.slice_of(&self.buffer, start, self.value.len())
    }

    /// The entry's value.
    #[inline]
    pub(crate) fn value_bytes(&self) -> &[u8] {
        debug_assert!(self.valid);
        self.block().part(self.value.start, self.value.end)
    }

    /// The tag stored for the entry.
    pub(super) fn tag(&self) -> Option<u8> {
        self.block().tags().get(self.position).copied()
    }

    /// How the entry's block is encoded; known to scan cursors only.
    pub(super) fn encoding(&self) -> Option<Encoding> {
        match &self.source {
            Source::Cache(_) => None,
            Source::Scan(chunk) => chunk.encoding,
        }
    }

    /// The number of the entry's block.
    pub(super) fn block_number(&self) -> usize {
        self.block.unwrap_or_default()
    }

    /// Goes to the first entry.
    pub(crate) fn seek_first(&mut self) -> Result<()> {
        self.enter(0, Way::Seek)?;
        self.settle(0);
        Ok(())
    }

    /// Goes to the last entry.
    pub(crate) fn seek_last(&mut self) -> Result<()> {
        self.enter(self.table.index.len() - 1, Way::Seek)?;
        self.settle_last();
        Ok(())
    }

    /// Asks for the block in which [`TableCursor::seek`] will look for `key`, which must be what
    /// the cursor is told to do next.
    pub(crate) fn approach(&mut self, key: &[u8]) {
        let block = self.table.index.find(key);
        self.sought = Some(block);
        self.table.prefetch_block(block);
    }

    /// Lets the system begin to read that block, as for [`Table::will_need`].
    pub(crate) fn announce(&self, lost: bool) {
        if let Some(block) = self.sought {
            self.table.announce(block, lost);
        }
    }

    /// Whether the system still has that block, if it was read where it has it.
    pub(crate) fn keeps_sought(&self) -> bool {
        self.sought.is_none_or(|block| self.table.keeps(block))
    }

    /// Goes to the first entry whose key is at least `key`.
    pub(crate) fn seek(&mut self, key: &[u8]) -> Result<()> {
        let block = match self.sought.take() {
            Some(block) => block,
            None => self.table.index.find(key),
        };
        debug_assert_eq!(block, self.table.index.find(key), "the announced key");
        if block == self.table.index.len() {
            self.valid = false;
            return Ok(());
        }
        self.enter(block, Way::Seek)?;
        let position = self.block().lower_bound(key);
        if position < self.shape.count {
            self.settle(position);
            return Ok(());
        }
        self.step_block_forward()
    }

    /// Goes to the last entry whose key is below `key`.
    pub(crate) fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        let block = self.table.index.find(key);
        if block == self.table.index.len() {
            return self.seek_last();
        }
        self.enter(block, Way::Seek)?;
        match self.block().lower_bound(key).checked_sub(1) {
            Some(position) => {
                self.settle(position);
                Ok(())
            }
            None => self.step_block_backward(),
        }
    }

    /// Goes to the next entry. Stays invalid when it is not valid.
    #[inline]
    pub(crate) fn next(&mut self) -> Result<()> {
        if !self.valid {
            return Ok(());
        }
        if self.position + 1 < self.shape.count {
            self.settle(self.position + 1);
            return Ok(());
        }
        self.step_block_forward()
    }

    /// Goes to the entry before. Stays invalid when it is not valid.
    #[inline]
    pub(crate) fn prev(&mut self) -> Result<()> {
        if !self.valid {
            return Ok(());
        }
        match self.position.checked_sub(1) {
            Some(position) => {
                self.settle(position);
                Ok(())
            }
            None => self.step_block_backward(),
        }
    }

    /// The entries of the block from the current one on, as far as their keys are below all of
    /// `stops`; `None` when the current one is not, and of a table with merges, whose values are
    /// not in its blocks. Only for a cursor that is valid and reads through the cache. The cursor
    /// itself stays where it is; [`TableCursor::leave`] makes it follow.
    pub(crate) fn stretch(&self, stops: [Option<&[u8]>; 2]) -> Option<VisibleSpan> {
        debug_assert!(self.valid && matches!(self.source, Source::Cache(_)));
        if self.table.has_merges() {
            return None;
        }
        let block = self.block();
        let mut limit = self.shape.count;
        for stop in stops.into_iter().flatten() {
            // Mostly the stop is behind the whole block.
            if block.compare_key(limit.saturating_sub(1), stop) != Ordering::Less {
                limit = block.lower_bound_in(self.position..limit, stop);
            }
        }
        let held = || self.table.hold(&self.buffer);
        (limit > self.position).then(|| VisibleSpan::new(held(), self.shape, self.position, limit))
    }

    /// Whether the last entry of the block has `key` or a greater one.
    pub(crate) fn reaches(&self, key: &[u8]) -> bool {
        let last = self.shape.count.saturating_sub(1);
        self.block().compare_key(last, key) != Ordering::Less
    }

    /// Goes to the next entry that `stretch`, taken at this place, would look at.
    pub(crate) fn leave(&mut self, stretch: &VisibleSpan) -> Result<()> {
        if stretch.position() < self.shape.count {
            self.settle(stretch.position());
            return Ok(());
        }
        self.step_block_forward()
    }

    /// Goes to the first entry of a block.
    pub(super) fn enter_block(&mut self, block: usize) -> Result<()> {
        self.enter(block, Way::Seek)?;
        self.settle(0);
        Ok(())
    }

    /// Goes to the next entry of the block; false, and the cursor stays, at the last one.
    pub(super) fn next_in_block(&mut self) -> bool {
        let is_one_more = self.valid && self.position + 1 < self.shape.count;
        if is_one_more {
            self.settle(self.position + 1);
        }
        is_one_more
    }

    fn step_block_forward(&mut self) -> Result<()> {
        self.valid = false;
        let next = self.block.map_or(0, |block| block + 1);
        if next < self.table.index.len() {
            self.enter(next, Way::Forward)?;
            self.settle(0);
        }
        Ok(())
    }

    fn step_block_backward(&mut self) -> Result<()> {
        self.valid = false;
        if let Some(before) = self.block.and_then(|block| block.checked_sub(1)) {
            self.enter(before, Way::Backward)?;
            self.settle_last();
        }
        Ok(())
    }

    fn settle_last(&mut self) {
        self.settle(self.shape.count.saturating_sub(1));
    }

    /// Decodes the entry at `position` of the block.
    #[inline]
    fn settle(&mut self, position: usize) {
        let bytes = self.table.bytes_of(&self.buffer);
        let bytes = bytes.get(self.place.clone()).unwrap_or_default();
        let block = TableBlock::with_shape(bytes, self.shape);
        let found = block.entry(position);
        let suffix = block.part(found.suffix_at, found.value_at);
        let prefix_len = self.shape.prefix_len;
        if self.key.len() != prefix_len + suffix.len() {
            self.key.resize(prefix_len + suffix.len(), 0);
        }
        copy_to(self.key.get_mut(prefix_len..).unwrap_or_default(), suffix);
        self.position = position;
        self.seq = found.seq;
        self.kind = found.kind;
        self.value = found.value_at..found.end;
        self.valid = true;
    }

    #[inline]
    fn block(&self) -> TableBlock<'_> {
        let bytes = self.table.bytes_of(&self.buffer);
        let bytes = bytes.get(self.place.clone()).unwrap_or_default();
        TableBlock::with_shape(bytes, self.shape)
    }

    /// Makes `block` the block at hand. Leaves the cursor invalid.
    fn enter(&mut self, block: usize, way: Way) -> Result<()> {
        self.valid = false;
        if self.block == Some(block) {
            return Ok(());
        }
        self.block = None;
        match &mut self.source {
            Source::Cache(ahead) => {
                self.buffer = ahead.take(&self.table, block, way)?;
                self.place = 0..self.table.bytes_of(&self.buffer).len();
            }
            Source::Scan(chunk) => {
                (self.buffer, self.place) =
                    chunk.take(&self.table, block, way, std::mem::take(&mut self.buffer))?;
            }
        }
        let bytes = self.table.bytes_of(&self.buffer);
        let bytes = bytes.get(self.place.clone()).unwrap_or_default();
        self.shape = BlockShape::read(bytes).raised(self.table.seq_base());
        self.key.clear();
        self.key
            .extend_from_slice(TableBlock::with_shape(bytes, self.shape).prefix());
        self.block = Some(block);
        Ok(())
    }
}

impl Ahead {
    /// The block, from what was read ahead, from the cache or from the medium.
    fn take(&mut self, table: &Table, block: usize, way: Way) -> Result<CursorBlock> {
        if way == Way::Seek || way != self.way {
            self.way = way;
            self.steps_left = LOOK_AFTER_STEPS;
            self.looked = block;
        } else if self.steps_left > 1 {
            self.steps_left -= 1;
        } else {
            self.look_ahead(table, block);
        }
        if self.first == block
            && let Some(bytes) = self.blocks.pop_front()
        {
            self.first += 1;
            return Ok(bytes);
        }
        self.blocks.clear();
        self.window = if way == Way::Forward {
            (self.window.max(1) * 2).min(AHEAD_BLOCKS)
        } else {
            1
        };
        if let Some(bytes) = table.ready_block(block) {
            self.window = self.window.min(2);
            return Ok(bytes);
        }
        let start = table.index.place(block).start;
        let mut end = block + 1;
        while end < table.index.len()
            && end - block < self.window
            && table.index.place(end).end - start <= AHEAD_BYTES
        {
            end += 1;
        }
        self.blocks = table.read_blocks(block..end)?;
        self.first = block + 1;
        let bytes = self.blocks.pop_front();
        bytes.ok_or_else(|| table.corruption(start, "the index does not name this block"))
    }

    /// Lets the system read what comes after `block` in the direction of the last step, if that is
    /// not in memory. The farthest block tells, until one is found that is not; from then on nobody
    /// asks.
    #[cold]
    fn look_ahead(&mut self, table: &Table, block: usize) {
        let index = &table.index;
        let place = index.place(block);
        let (new, farthest, looked) = if self.way == Way::Backward {
            let start = index.block_at(place.start.saturating_sub(LOOK_BYTES));
            (start..self.looked.min(block), start, start)
        } else {
            let end = index.block_at(place.end + LOOK_BYTES);
            (self.looked.max(block + 1)..end, end.saturating_sub(1), end)
        };
        if !new.is_empty() {
            self.lost = self.lost || !table.is_at_hand(farthest);
            if self.lost {
                table.announce_all(new);
            }
            self.looked = looked;
        }
        self.steps_left = farthest.abs_diff(block) / 2;
    }
}

impl Chunk {
    /// The block, and what of the buffer it is. `before` has the block before, whose memory is used
    /// again.
    fn take(
        &mut self,
        table: &Table,
        block: usize,
        way: Way,
        before: CursorBlock,
    ) -> Result<(CursorBlock, Range<usize>)> {
        let mut spare = match before {
            CursorBlock::Shared(buffer) => buffer,
            CursorBlock::Mapped(_) | CursorBlock::Empty => Arc::default(),
        };
        if Arc::ptr_eq(&spare, &self.bytes) {
            spare = Arc::default();
        }
        if !self.blocks.contains(&block) {
            self.blocks = 0..0;
            self.blocks = self.read(table, block, way)?;
        }
        let place = place_in_chunk(table, self.blocks.start, block);
        let stored = self.bytes.get(place.clone()).unwrap_or_default();
        let Some(packed) = table.check_block(block, stored)? else {
            self.encoding = Some(Encoding::Plain);
            return Ok((CursorBlock::Shared(Arc::clone(&self.bytes)), place));
        };
        self.encoding = Some(packed.encoding());
        let len = packed.block_len();
        spare = table.unpack(block, packed, spare)?;
        Ok((CursorBlock::Shared(spare), 0..len))
    }

    /// Reads the blocks around `block`, and says which.
    fn read(&mut self, table: &Table, block: usize, way: Way) -> Result<Range<usize>> {
        let place = table.index.place(block);
        let blocks = if way == Way::Backward {
            let mut first = block;
            while first > 0 && place.end - table.index.place(first - 1).start <= CHUNK_BYTES {
                first -= 1;
            }
            first..block + 1
        } else {
            let mut end = block + 1;
            while end < table.index.len() && table.index.place(end).end - place.start <= CHUNK_BYTES
            {
                end += 1;
            }
            block..end
        };
        let start = table.index.place(blocks.start).start;
        let len = usize::try_from(table.index.place(blocks.end).start - start)
            .map_err(|_| table.corruption(start, "the block is too large to read here"))?;
        // Values may still share the buffer; then they keep it and the cursor takes a new one.
        if Arc::get_mut(&mut self.bytes).is_none_or(|bytes| bytes.len() < len) {
            let usual = CHUNK_BYTES.min(table.index.place(table.index.len()).end);
            let usual = usize::try_from(usual).unwrap_or(len);
            self.bytes = std::iter::repeat_n(0, len.max(usual)).collect();
        }
        let bytes = Arc::get_mut(&mut self.bytes).and_then(|bytes| bytes.get_mut(..len));
        table.read_raw(bytes.unwrap_or_default(), start)?;
        Ok(blocks)
    }
}

/// Where `block` lies in a chunk that begins with block `first`.
fn place_in_chunk(table: &Table, first: usize, block: usize) -> Range<usize> {
    let chunk_start = table.index.place(first).start;
    let place = table.index.place(block);
    let within = |offset: u64| usize::try_from(offset - chunk_start).unwrap_or(usize::MAX);
    within(place.start)..within(place.end)
}
