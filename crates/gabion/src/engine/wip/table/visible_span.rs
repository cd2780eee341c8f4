//! Stretches: the entries of one block, handed out without moving the cursor that stands in it.
//!
//! # Idea
//! In a tiered tree most entries come from one large run, and mostly many in a row. A merge lends
//! the rest of the block that this run stands in, and says which entry of another source, the
//! rival, comes before or between. A step of a scan then looks at one entry of one block, and
//! compares eight bytes of its key with those of the rival's.
//!
//! # Invariants
//! - I1: the entries from `position` on and below `limit` are all still to be looked at; those
//!   below `end`, and those whose keys have a number below `stop` behind the block's prefix, come
//!   before all entries of other sources.
//! - I2: `dealt` is the last entry that the reader saw, if it saw one: older versions of its key
//!   are hidden. It is before `position`.
//! - I3: `start` is where the entry at `position` begins, if that is below `limit`.
#![deny(clippy::indexing_slicing, clippy::unwrap_used)]

use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;

use super::block::{BlockShape, TableBlock};
use super::blocks::HeldBlock;
use super::filter::LINE_BYTES;
use crate::bytes::{assign, copy_to};
use crate::expiry::{UnixMillis, expires, has_expired, value_start};
use crate::slice::{INLINE_LEN, Slice};
use crate::types::{Kind, Seq};
use gabion_media::prefetch_line;

/// How far ahead of an entry memory is asked for: some four usual entries, about as many as are
/// looked at while a line comes.
const AHEAD_BYTES: usize = 512;

/// How much of a mapped block is copied at a time for the values that users keep. An allocation
/// costs more than a copy of so much, and a value that is kept keeps no more than this besides.
/// With the counters in front of it, it is 1 KiB: glibc takes 620 instructions to make, fill and
/// free a piece that is 16 bytes longer, 350 for this.
const COPY_BYTES: usize = (1 << 10) - 16;

/// Entries of one block, as a reader at some sequence number sees them.
#[derive(Debug, Default)]
pub(crate) struct VisibleSpan {
    buffer: HeldBlock,
    shape: BlockShape,
    position: usize,
    start: usize,
    end: usize,
    stop: u64,
    limit: usize,
    dealt: Option<Dealt>,
    /// The reader's moment, and whether any entry has expired by then.
    moment: UnixMillis,
    has_expired: bool,
    /// The value of the pair that was found last.
    value: Range<usize>,
    /// What was copied of a mapped block for the values that users keep, and where in it that
    /// begins.
    copy: Option<Arc<[u8]>>,
    copy_at: usize,
}

/// What the entry that was looked at is to a reader.
enum Step {
    /// A pair.
    Pair,
    /// Nothing: it is too new, a tombstone, or an older version of what the reader saw.
    Hidden,
    /// It may not be taken, or there is none.
    End,
}

/// The key of an entry behind the block's prefix.
#[derive(Clone, Copy, Debug)]
struct Dealt {
    /// Its first eight bytes, as [`Found::suffix_prefix`] gives them.
    front: u64,
    suffix_at: usize,
    suffix_end: usize,
}

impl VisibleSpan {
    /// The entries of the block in `buffer` from `position` on and below `limit`. None may be
    /// taken before the first [`VisibleSpan::extend`].
    pub(super) fn new(
        buffer: HeldBlock,
        shape: BlockShape,
        position: usize,
        limit: usize,
    ) -> VisibleSpan {
        let start = shape.start_of(&buffer, position);
        VisibleSpan {
            buffer,
            shape,
            position,
            start,
            end: position,
            stop: 0,
            limit,
            dealt: None,
            moment: 0,
            has_expired: false,
            value: 0..0,
            copy: None,
            copy_at: 0,
        }
    }

    /// Goes to the next pair that a reader at `seq` sees, and puts its key into `key`, which nobody
    /// else may have changed since the stretch last did; false when no more may be taken.
    /// `key` becomes that of the last entry that the reader saw, tombstones included.
    #[inline]
    pub(crate) fn next(&mut self, seq: Seq, key: &mut Vec<u8>) -> bool {
        match self.step(seq, key) {
            Step::Pair => true,
            Step::Hidden => self.next_behind_hidden(seq, key),
            Step::End => false,
        }
    }

    /// As [`VisibleSpan::next`]. Apart from it, because a loop there would prepare itself for many
    /// entries, for each pair that is the first entry.
    #[inline(never)]
    fn next_behind_hidden(&mut self, seq: Seq, key: &mut Vec<u8>) -> bool {
        loop {
            match self.step(seq, key) {
                Step::Pair => return true,
                Step::Hidden => {}
                Step::End => return false,
            }
        }
    }

    /// Looks at the next entry.
    #[inline]
    fn step(&mut self, seq: Seq, key: &mut Vec<u8>) -> Step {
        if self.position >= self.limit {
            return Step::End;
        }
        let (bytes, shape) = (&*self.buffer, &self.shape);
        let entry = shape.entry_from(bytes, self.position, self.start);
        let front = entry.suffix_prefix(bytes);
        if self.position >= self.end && front >= self.stop {
            return Step::End;
        }
        self.position += 1;
        self.start = entry.end;
        // A mapped block is followed by the next one.
        let ahead = bytes.as_ptr().wrapping_add(entry.value_at + AHEAD_BYTES);
        prefetch_line(ahead);
        prefetch_line(ahead.wrapping_add(LINE_BYTES));
        if entry.seq > seq {
            return Step::Hidden;
        }
        let suffix = bytes.get(entry.suffix_at..entry.value_at);
        let suffix = suffix.unwrap_or_default();
        match self.dealt {
            Some(dealt) if dealt.front == front && dealt.suffix(bytes) == suffix => {
                return Step::Hidden;
            }
            Some(_) => {}
            None => assign(key, TableBlock::with_shape(bytes, *shape).prefix()),
        }
        let prefix_len = shape.prefix_len;
        if key.len() != prefix_len + suffix.len() {
            key.resize(prefix_len + suffix.len(), 0);
        }
        copy_to(key.get_mut(prefix_len..).unwrap_or_default(), suffix);
        self.dealt = Some(Dealt {
            front,
            suffix_at: entry.suffix_at,
            suffix_end: entry.value_at,
        });
        if entry.kind == Kind::Put {
            self.value = entry.value_at..entry.end;
            return Step::Pair;
        }
        self.step_to()
    }

    /// As [`VisibleSpan::step`], to an entry that is no plain put: the one that it has passed.
    #[cold]
    fn step_to(&mut self) -> Step {
        let entry = self.shape.entry(&self.buffer, self.position - 1);
        if entry.kind.is_tombstone() {
            return Step::Hidden;
        }
        let stored = self.buffer.get(entry.value_at..entry.end);
        if has_expired(entry.kind, stored.unwrap_or_default(), || self.moment) {
            self.has_expired = true;
            return Step::Hidden;
        }
        self.value = entry.value_at + value_start(entry.kind)..entry.end;
        Step::Pair
    }

    /// The value of the pair that was found last.
    #[inline]
    pub(crate) fn value_bytes(&self) -> &[u8] {
        self.buffer.get(self.value.clone()).unwrap_or_default()
    }

    /// When the pair that was found last expires, if it does.
    pub(crate) fn expires(&self) -> Option<UnixMillis> {
        // It stands in front of the entry that is looked at next.
        let entry = self
            .shape
            .entry(&self.buffer, self.position.checked_sub(1)?);
        let stored = self.buffer.get(entry.value_at..entry.end);
        expires(entry.kind, stored.unwrap_or_default())
    }

    /// The value of the pair that was found last, to keep.
    #[inline]
    pub(crate) fn value(&mut self) -> Slice {
        let (start, len) = (self.value.start, self.value.len());
        match &self.buffer {
            HeldBlock::Shared(buffer) => Slice::shared(buffer, start, len),
            HeldBlock::Mapped { .. } | HeldBlock::Empty => {
                if len <= INLINE_LEN {
                    return Slice::new(self.value_bytes());
                }
                let within = start.wrapping_sub(self.copy_at);
                match &self.copy {
                    Some(copy) if within.saturating_add(len) <= copy.len() => {
                        Slice::shared(copy, within, len)
                    }
                    _ => self.copied_value(),
                }
            }
        }
    }

    /// The value of the pair that was found last, with a copy of some entries behind it, unless it
    /// is the first that is kept, or long.
    #[inline(never)]
    fn copied_value(&mut self) -> Slice {
        let Range { start, end } = self.value;
        let is_first = self.copy_at == 0;
        self.copy_at = start;
        if is_first || end - start > COPY_BYTES / 4 {
            self.copy = None;
            return Slice::new(self.value_bytes());
        }
        let end = (start + COPY_BYTES).min(self.buffer.len());
        let copy = Arc::from(self.buffer.get(start..end).unwrap_or_default());
        let value = Slice::shared(&copy, 0, self.value.len().min(copy.len()));
        self.copy = Some(copy);
        value
    }

    /// Says at which moment the reader reads.
    pub(crate) fn read_at(&mut self, moment: UnixMillis) {
        self.moment = moment;
    }

    /// Whether an entry was stepped over because it has expired.
    #[inline]
    pub(crate) fn has_expired(&self) -> bool {
        self.has_expired
    }

    /// Whether the last entry that the reader saw was of the stretch; its key is then the reader's.
    #[inline]
    pub(crate) fn has_dealt(&self) -> bool {
        self.dealt.is_some()
    }

    /// Says that the reader saw an entry of another source.
    #[inline]
    pub(crate) fn forget_dealt(&mut self) {
        self.dealt = None;
    }

    /// Lets the entries be taken that come before `rival`, the next entry of the other sources, as
    /// far as eight bytes tell; all of them when there is none.
    #[inline]
    pub(crate) fn extend(&mut self, rival: Option<&[u8]>) {
        let place = rival.map(|rival| self.block().prefix_behind_shared(rival));
        (self.end, self.stop) = match place {
            Some(Ok(stop)) => (self.position, stop),
            Some(Err(Ordering::Less)) => (self.position, 0),
            Some(Err(_)) | None => (self.limit, 0),
        };
    }

    /// As [`VisibleSpan::extend`], of a rival that is the version `seq` of `key`, as far as keys
    /// and versions tell. Returns whether any may be taken.
    pub(crate) fn extend_exactly(&mut self, key: &[u8], seq: Seq) -> bool {
        let left = self.position..self.limit;
        self.end = self.block().lower_bound_near(left, key);
        while self.end < self.limit && !self.is_behind(self.end, key, seq) {
            self.end += 1;
        }
        self.end > self.position
    }

    /// Whether the version `seq` of `key` comes before all entries that are left, which are some.
    pub(crate) fn is_all_behind(&self, key: &[u8], seq: Seq) -> bool {
        self.position < self.limit && self.is_behind(self.position, key, seq)
    }

    /// Whether the version `seq` of `key` comes before the entry at `position`.
    fn is_behind(&self, position: usize, key: &[u8], seq: Seq) -> bool {
        match self.block().compare_key(position, key) {
            Ordering::Less => false,
            Ordering::Equal => self.shape.entry(&self.buffer, position).seq < seq,
            Ordering::Greater => true,
        }
    }

    /// The eight bytes behind the first `skip` of the next entry's key, as a number that orders
    /// keys; zero when no entry is left.
    #[inline]
    pub(crate) fn front(&self, skip: usize) -> u64 {
        if self.position == self.limit {
            return 0;
        }
        self.block().prefix_after(self.position, skip)
    }

    /// Leaves out the entries at the front whose key is `key`.
    pub(crate) fn skip_key(&mut self, key: &[u8]) {
        while self.position < self.limit
            && self.block().compare_key(self.position, key) == Ordering::Equal
        {
            self.position += 1;
            self.start = self.shape.start_of(&self.buffer, self.position);
        }
    }

    /// Position in the block of the next entry to look at.
    pub(super) fn position(&self) -> usize {
        self.position
    }

    #[inline]
    fn block(&self) -> TableBlock<'_> {
        TableBlock::with_shape(&self.buffer, self.shape)
    }
}

impl Dealt {
    #[inline]
    fn suffix<'b>(&self, bytes: &'b [u8]) -> &'b [u8] {
        let suffix = bytes.get(self.suffix_at..self.suffix_end);
        suffix.unwrap_or_default()
    }
}
