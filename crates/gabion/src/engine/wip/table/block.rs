//! Blocks: some entries of a table, as they lie on the medium and in the cache.
//! [`super::block_layout`] says where everything is.
//!
//! # How it is read
//! A point lookup matches the tags with one vectorised search; header and tags of a usual block
//! share a cache line or two, and a key that is not there is not compared with any (but for one
//! in 256). A seek is a binary search over the offsets. A step of a cursor loads one offset and one
//! mark.
//!
//! # Invariants
//! - I1: [`check`] or [`unpack`] looks at every length and offset of a block once, after it was
//!   read from the medium. Everything else here expects such a block; for any other it gives wrong
//!   entries, but never panics.
//! - I2: entries do not overlap and fill the space between offsets and trailer.
#![deny(clippy::indexing_slicing, clippy::unwrap_used)]

use std::cmp::Ordering;
use std::ops::Range;

use super::block_layout::{Encoding, HEADER_BYTES, KIND_BITS, LEN_WIDTH, MARK_BYTES_MAX};
use super::codec::CompressedBlock;
use super::layout::{
    CheckResult, TRAILER_BYTES, after_prefix, check_stored, is_same, u16_at, u64_at,
};
use crate::types::{Kind, SEQ_MAX, Seq, prefix_of};
use gabion_media::{prefetch_bytes, prefetch_line};

/// Parts of a block between which [`TableBlock::lower_bound`] decides first.
const FENCES: usize = 8;
/// What it asks for behind the place that it found: about what the next four steps look at.
const PREFETCH_BYTES: usize = 512;

/// Where the parts of a block lie; computed from its header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct BlockShape {
    /// Number of entries.
    pub(super) count: usize,
    /// Length of the shared prefix.
    pub(super) prefix_len: usize,
    offsets_at: usize,
    entries_at: usize,
    entries_end: usize,
    mark_width: usize,
    mark_mask: u64,
    len_width: usize,
    suffix_len: usize,
    base: Seq,
}

impl BlockShape {
    /// Reads the header of a block of `bytes`.
    #[inline]
    pub(super) fn read(bytes: &[u8]) -> BlockShape {
        let Some(header) = bytes.first_chunk::<HEADER_BYTES>() else {
            return BlockShape::default();
        };
        let [c0, c1, p0, p1, mark_width, len_width, s0, s1, base @ ..] = *header;
        let count = usize::from(u16::from_le_bytes([c0, c1]));
        let prefix_len = usize::from(u16::from_le_bytes([p0, p1]));
        let offsets_at = HEADER_BYTES + count + prefix_len;
        BlockShape {
            count,
            prefix_len,
            offsets_at,
            entries_at: offsets_at + 2 * count,
            entries_end: bytes.len().saturating_sub(TRAILER_BYTES),
            mark_width: usize::from(mark_width),
            mark_mask: u64::MAX >> (64u32.saturating_sub(8 * u32::from(mark_width)) & 63),
            len_width: usize::from(len_width),
            suffix_len: usize::from(u16::from_le_bytes([s0, s1])),
            base: u64::from_le_bytes(base),
        }
    }

    /// The same, of a table to whose sequence numbers `by` is added.
    #[inline]
    pub(super) fn raised(mut self, by: Seq) -> BlockShape {
        self.base = self.base.wrapping_add(by);
        self
    }

    /// Where the entry at `position` begins.
    #[inline]
    pub(super) fn start_of(&self, bytes: &[u8], position: usize) -> usize {
        let offset = u16_at(bytes, self.offsets_at + 2 * position);
        self.entries_at + usize::from(offset.unwrap_or_default())
    }

    /// The entry at `position`, which is below the count, of the block in `bytes`.
    #[inline]
    pub(super) fn entry(&self, bytes: &[u8], position: usize) -> BlockEntry {
        self.entry_from(bytes, position, self.start_of(bytes, position))
    }

    /// As [`BlockShape::entry`], of an entry that begins at `start`, where the one before it ends.
    #[inline]
    pub(super) fn entry_from(&self, bytes: &[u8], position: usize, start: usize) -> BlockEntry {
        let end = if position + 1 < self.count {
            self.start_of(bytes, position + 1)
        } else {
            self.entries_end
        };
        // The trailer is eight bytes, so a mark can be loaded as eight bytes anywhere.
        let mark = u64_at(bytes, start).unwrap_or_default() & self.mark_mask;
        let (suffix_at, suffix_len) = self.suffix_place(bytes, start);
        BlockEntry {
            seq: self.base.wrapping_add(mark >> KIND_BITS),
            kind: kind_of(mark).unwrap_or(Kind::Delete),
            suffix_at,
            value_at: suffix_at + suffix_len,
            end,
        }
    }

    #[inline]
    fn suffix_place(&self, bytes: &[u8], start: usize) -> (usize, usize) {
        let at = start + self.mark_width;
        if self.len_width == 0 {
            return (at, self.suffix_len);
        }
        let len = u16_at(bytes, at).unwrap_or_default();
        (at + LEN_WIDTH, usize::from(len))
    }

    /// The key of the entry at `position`, after the shared prefix.
    #[inline]
    pub(super) fn suffix<'a>(&self, bytes: &'a [u8], position: usize) -> &'a [u8] {
        let (at, len) = self.suffix_place(bytes, self.start_of(bytes, position));
        bytes.get(at..at + len).unwrap_or_default()
    }

    /// As [`prefix_of`] of [`BlockShape::suffix`], for one load.
    #[inline]
    fn suffix_prefix(&self, bytes: &[u8], position: usize) -> u64 {
        let (at, len) = self.suffix_place(bytes, self.start_of(bytes, position));
        prefix_at(bytes, at, len)
    }
}

/// One entry of a block: what its mark says, and where key and value lie in the block.
#[derive(Clone, Copy, Debug)]
pub(super) struct BlockEntry {
    /// Sequence number.
    pub(super) seq: Seq,
    /// Kind.
    pub(super) kind: Kind,
    /// Start of the key after the shared prefix.
    pub(super) suffix_at: usize,
    /// Start of the value, which is the end of the key.
    pub(super) value_at: usize,
    /// End of the value.
    pub(super) end: usize,
}

/// A checked block.
#[derive(Clone, Copy, Debug)]
pub(super) struct TableBlock<'a> {
    bytes: &'a [u8],
    shape: BlockShape,
}

impl<'a> TableBlock<'a> {
    /// The block in `bytes`, which [`check`] or [`unpack`] found sound before.
    #[inline]
    pub(super) fn new(bytes: &'a [u8]) -> TableBlock<'a> {
        TableBlock {
            bytes,
            shape: BlockShape::read(bytes),
        }
    }

    /// The block in `bytes` whose shape was read before.
    #[inline]
    pub(super) fn with_shape(bytes: &'a [u8], shape: BlockShape) -> TableBlock<'a> {
        TableBlock { bytes, shape }
    }

    /// Where the parts lie.
    #[cfg(test)]
    pub(super) fn shape(&self) -> BlockShape {
        self.shape
    }

    /// The tags of the entries.
    #[inline]
    pub(super) fn tags(&self) -> &'a [u8] {
        self.part(HEADER_BYTES, HEADER_BYTES + self.shape.count)
    }

    /// What the keys of all entries start with.
    #[inline]
    pub(super) fn prefix(&self) -> &'a [u8] {
        let at = HEADER_BYTES + self.shape.count;
        self.part(at, at + self.shape.prefix_len)
    }

    /// The bytes from `start` to `end`.
    #[inline]
    pub(super) fn part(&self, start: usize, end: usize) -> &'a [u8] {
        self.bytes.get(start..end).unwrap_or_default()
    }

    #[inline]
    fn start_of(&self, position: usize) -> usize {
        self.shape.start_of(self.bytes, position)
    }

    /// The entry at `position`, which is below the count.
    #[inline]
    pub(super) fn entry(&self, position: usize) -> BlockEntry {
        self.shape.entry(self.bytes, position)
    }

    /// The key of the entry at `position`, after the shared prefix.
    #[inline]
    pub(super) fn suffix(&self, position: usize) -> &'a [u8] {
        self.shape.suffix(self.bytes, position)
    }

    /// [`prefix_of`] the key of the entry at `position` behind its first `skip` bytes.
    #[inline]
    pub(super) fn prefix_after(&self, position: usize, skip: usize) -> u64 {
        let shared = self.prefix();
        if let Some(shared) = shared.get(skip..) {
            // All eight bytes, none, or some of them are in what the keys share.
            let first = prefix_of(shared);
            return match u32::try_from(8 * shared.len()) {
                Ok(bits @ 0..64) => first | self.shape.suffix_prefix(self.bytes, position) >> bits,
                _ => first,
            };
        }
        let rest = self.suffix(position).get(skip - shared.len()..);
        prefix_of(rest.unwrap_or_default())
    }

    /// Orders the key of the entry at `position` and `key`.
    #[inline]
    pub(super) fn compare_key(&self, position: usize, key: &[u8]) -> Ordering {
        let prefix = self.prefix();
        match after_prefix(key, prefix) {
            Some(suffix) => self.compare_suffix(position, &Suffix::new(suffix)),
            None => prefix.cmp(key),
        }
    }

    /// Orders what follows the shared prefix in the entry at `position` and in another key.
    #[inline]
    fn compare_suffix(&self, position: usize, other: &Suffix<'_>) -> Ordering {
        let prefix = self.shape.suffix_prefix(self.bytes, position);
        match prefix.cmp(&other.prefix) {
            Ordering::Equal => self.suffix(position).cmp(other.bytes),
            order => order,
        }
    }

    /// [`prefix_of`] what follows the shared prefix in `key`; where it has another, whether it lies
    /// below or above the entries.
    #[inline]
    pub(super) fn prefix_behind_shared(&self, key: &[u8]) -> Result<u64, Ordering> {
        self.suffix_of(key).map(|suffix| suffix.prefix)
    }

    /// What follows the shared prefix in `key`; where it has another, whether it lies below or
    /// above the entries.
    #[inline]
    fn suffix_of<'k>(&self, key: &'k [u8]) -> Result<Suffix<'k>, Ordering> {
        let prefix = self.prefix();
        match after_prefix(key, prefix) {
            Some(suffix) => Ok(Suffix::new(suffix)),
            None => Err(key.cmp(prefix)),
        }
    }

    /// The newest version of `key` that is at most `seq`; `tag` is the lowest byte of its hash.
    #[inline]
    pub(super) fn get(&self, key: &[u8], tag: u8, seq: Seq) -> Option<BlockEntry> {
        let suffix = after_prefix(key, self.prefix())?;
        for position in memchr::memchr_iter(tag, self.tags()) {
            let found = self.entry(position);
            if found.seq <= seq && is_same(self.part(found.suffix_at, found.value_at), suffix) {
                return Some(found);
            }
        }
        None
    }

    /// The sequence number of the last entry.
    pub(super) fn last_seq(&self) -> Seq {
        self.entry(self.shape.count.saturating_sub(1)).seq
    }

    /// The position of the first entry whose key is at least `key`; the count when there is none.
    ///
    /// Made for a block that is not in the processor's caches: looks at some entries whose memory
    /// it asks for all at once, and then at those between two of them, which the steps after a
    /// search go on to. So it waits for memory twice, not once per comparison.
    pub(super) fn lower_bound(&self, key: &[u8]) -> usize {
        let count = self.shape.count;
        let suffix = match self.suffix_of(key) {
            Ok(suffix) => suffix,
            Err(Ordering::Less) => return 0,
            Err(_) => return count,
        };
        let fence = |number: usize| count * number / FENCES;
        for number in 1..FENCES {
            prefetch_line(self.address_of(fence(number)));
        }
        let (mut low, mut high) = (0, FENCES);
        while high - low > 1 {
            let middle = low.midpoint(high);
            if self.compare_suffix(fence(middle), &suffix) == Ordering::Less {
                low = middle;
            } else {
                high = middle;
            }
        }
        let range = fence(low)..fence(high);
        let start = self.start_of(range.start);
        let end = start + PREFETCH_BYTES;
        prefetch_bytes(self.part(start, end.min(self.bytes.len())));
        self.search(range, &suffix)
    }

    /// As [`TableBlock::lower_bound_in`], looked for from the front of the range in steps that
    /// double: for a place that is expected there.
    #[inline]
    pub(super) fn lower_bound_near(&self, range: Range<usize>, key: &[u8]) -> usize {
        let suffix = match self.suffix_of(key) {
            Ok(suffix) => suffix,
            Err(Ordering::Less) => return range.start,
            Err(_) => return range.end,
        };
        let (mut low, mut step) = (range.start, 1);
        while low < range.end {
            let probe = (low + step - 1).min(range.end - 1);
            if self.compare_suffix(probe, &suffix) != Ordering::Less {
                return self.search(low..probe, &suffix);
            }
            low = probe + 1;
            step *= 2;
        }
        range.end
    }

    /// Where the entry at `position` begins in memory.
    #[inline]
    fn address_of(&self, position: usize) -> *const u8 {
        self.bytes.as_ptr().wrapping_add(self.start_of(position))
    }

    /// The position of the first entry in `range` whose key is at least `key`; the range's end when
    /// there is none.
    #[inline]
    pub(super) fn lower_bound_in(&self, range: Range<usize>, key: &[u8]) -> usize {
        match self.suffix_of(key) {
            Ok(suffix) => self.search(range, &suffix),
            Err(Ordering::Less) => range.start,
            Err(_) => range.end,
        }
    }

    #[inline]
    fn search(&self, range: Range<usize>, suffix: &Suffix<'_>) -> usize {
        let (mut low, mut high) = (range.start, range.end);
        while low < high {
            let middle = low.midpoint(high);
            if self.compare_suffix(middle, suffix) == Ordering::Less {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }
}

impl BlockEntry {
    /// [`prefix_of`] what follows the shared prefix in the entry's key; `bytes` is its block.
    #[inline]
    pub(super) fn suffix_prefix(&self, bytes: &[u8]) -> u64 {
        prefix_at(bytes, self.suffix_at, self.value_at - self.suffix_at)
    }
}

/// [`prefix_of`] the `len` bytes at `at` of a block, for one load: the trailer of a block is eight
/// bytes, so they can be loaded wherever a suffix is.
#[inline]
fn prefix_at(bytes: &[u8], at: usize, len: usize) -> u64 {
    let prefix = u64_at(bytes, at).unwrap_or_default().swap_bytes();
    match len {
        0 => 0,
        1..8 => prefix >> (64 - 8 * len) << (64 - 8 * len),
        _ => prefix,
    }
}

/// What follows the shared prefix of a block in a key that entries are compared with.
struct Suffix<'k> {
    bytes: &'k [u8],
    prefix: u64,
}

impl<'k> Suffix<'k> {
    #[inline]
    fn new(bytes: &'k [u8]) -> Suffix<'k> {
        let prefix = prefix_of(bytes);
        Suffix { bytes, prefix }
    }
}

#[inline]
fn kind_of(mark: u64) -> Option<Kind> {
    let number = u8::try_from(mark & ((1 << KIND_BITS) - 1)).ok()?;
    Kind::from_u8(number)
}

/// Asks for the memory around which [`TableBlock::lower_bound`] looks first, as it is where entries
/// are of about equal length, before the block says where they begin.
#[inline]
pub(super) fn prefetch_fences(bytes: &[u8]) {
    for number in 1..FENCES {
        let about = bytes.len() * number / FENCES;
        prefetch_line(bytes.as_ptr().wrapping_add(about));
    }
}

/// Checks a block that was read from `offset` of file `file`: its checksum and, unless it is
/// compressed, every length and offset in it. Returns what has to be unpacked first.
pub(super) fn check(
    file: u64,
    offset: u64,
    stored: &[u8],
) -> CheckResult<Option<CompressedBlock<'_>>> {
    match check_stored(file, offset, stored)? {
        (Encoding::Plain, _) => check_entries(stored).map(|()| None),
        (encoding, body) => CompressedBlock::read(encoding, body).map(Some),
    }
}

/// Makes a block of a compressed one, in as many bytes as that says, and checks every length and
/// offset in it.
pub(super) fn unpack(packed: CompressedBlock<'_>, block: &mut [u8]) -> CheckResult<()> {
    packed.unpack(block)?;
    check_entries(block)
}

fn check_entries(bytes: &[u8]) -> CheckResult<()> {
    let block = TableBlock::new(bytes);
    let shape = block.shape;
    let widths_sound = (1..=MARK_BYTES_MAX).contains(&shape.mark_width)
        && (shape.len_width == 0 || shape.len_width == LEN_WIDTH)
        && (shape.len_width == 0 || shape.suffix_len == 0);
    if shape.count == 0 || !widths_sound || shape.base > SEQ_MAX {
        return Err("the header of the block is impossible");
    }
    if shape.entries_at > shape.entries_end || block.start_of(0) != shape.entries_at {
        return Err("the entries of the block do not start after its offsets");
    }
    let mut start = shape.entries_at;
    for position in 0..shape.count {
        let BlockEntry {
            seq, value_at, end, ..
        } = block.entry(position);
        // The suffix length is read only where the entry has room for it.
        let head_end = start + shape.mark_width + shape.len_width;
        if end > shape.entries_end || head_end > end || value_at > end {
            return Err("an entry of the block leaves its place");
        }
        let mark = u64_at(bytes, start).unwrap_or_default() & shape.mark_mask;
        if kind_of(mark).is_none() {
            return Err("an entry of the block has an unknown kind");
        }
        if !(shape.base..=SEQ_MAX).contains(&seq) {
            return Err("an entry of the block has an impossible sequence number");
        }
        start = end;
    }
    Ok(())
}
