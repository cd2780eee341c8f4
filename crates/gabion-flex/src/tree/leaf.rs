//! Leaves: extents by partial offset.
//!
//! An extent takes 16 bytes in two words: 48 bits of partial offset above the upper 16 bits of the
//! address, and 32 bits of length above the lower 32 bits of the address. One addition moves an
//! extent without touching its address, and one comparison of first words orders two extents.
//!
//! The two words lie side by side, not in arrays of their own: memory is what a lookup in a large
//! tree waits for, and so the line that ends its search holds the extent, too. Adding to every
//! second word vectorizes as well as adding to every word.

use super::node::{ENTRIES_MAX, SavedAt};
use super::{ADDRESS_BITS, Extent, HOLE};

const LOW_BITS: u32 = 32;
const LOW_MASK: u64 = (1 << LOW_BITS) - 1;
const HIGH_BITS: u32 = ADDRESS_BITS - LOW_BITS;
const HIGH_MASK: u64 = (1 << HIGH_BITS) - 1;

/// Entries of one cache line.
const LINE_ENTRIES: usize = 4;

/// Partial offset and upper address bits; length and lower address bits.
type Entry = [u64; 2];

/// What stands behind the last entry, and sorts behind all.
const VOID: Entry = [u64::MAX; 2];

/// Extents, contiguous in the address space.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(crate) struct Leaf {
    count: u32,
    pub(super) saved: SavedAt,
    entries: Entries,
}

/// Begins with a cache line of its own.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
struct Entries([Entry; ENTRIES_MAX]);

const _: () = assert!(size_of::<Leaf>() == 1024 && align_of::<Leaf>() == 64);

/// What takes the place of a range of a leaf.
#[derive(Clone, Copy)]
pub(crate) struct LeafPatch {
    pub(crate) len: u32,
    pub(crate) address: u64,
}

impl Leaf {
    pub(crate) const EMPTY: Leaf = Leaf {
        count: 0,
        saved: SavedAt::NEVER,
        entries: Entries([VOID; ENTRIES_MAX]),
    };

    #[inline]
    pub(crate) fn count(&self) -> usize {
        self.count as usize
    }

    /// Asks for the memory of all of it.
    #[inline]
    pub(super) fn prefetch(&self) {
        gabion_media::prefetch_line(std::ptr::from_ref(self).cast());
        for line in self.entries.0.as_chunks::<LINE_ENTRIES>().0 {
            gabion_media::prefetch_line(std::ptr::from_ref(line).cast());
        }
    }

    /// Whether an operation that splits an extent may not fit.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.count() + 2 > ENTRIES_MAX
    }

    #[inline]
    fn set_count(&mut self, count: usize) {
        debug_assert!(count <= ENTRIES_MAX);
        #[expect(clippy::cast_possible_truncation, reason = "at most ENTRIES_MAX")]
        let count = count as u32;
        self.count = count;
    }

    #[inline]
    fn partial(&self, at: usize) -> u64 {
        self.entries.0[at][0] >> HIGH_BITS
    }

    #[inline]
    fn len_of(&self, at: usize) -> u64 {
        self.entries.0[at][1] >> LOW_BITS
    }

    #[inline]
    fn address(&self, at: usize) -> u64 {
        let [head, tail] = self.entries.0[at];
        (head & HIGH_MASK) << LOW_BITS | tail & LOW_MASK
    }

    /// An entry; its offset is the partial one.
    #[inline]
    pub(crate) fn entry(&self, at: usize) -> Extent {
        Extent {
            offset: self.partial(at),
            len: self.len_of(at),
            address: self.address(at),
        }
    }

    /// The two words of an entry.
    pub(super) fn words(&self, at: usize) -> [u64; 2] {
        self.entries.0[at]
    }

    /// Appends an entry from its two words, whatever they say.
    pub(super) fn push_words(&mut self, words: [u64; 2]) {
        let at = self.count();
        self.entries.0[at] = words;
        self.set_count(at + 1);
    }

    #[inline]
    fn set(&mut self, at: usize, partial: u64, piece: LeafPatch) {
        let head = partial << HIGH_BITS | piece.address >> LOW_BITS;
        let tail = u64::from(piece.len) << LOW_BITS | piece.address & LOW_MASK;
        self.entries.0[at] = [head, tail];
    }

    #[inline]
    fn set_len(&mut self, at: usize, len: u64) {
        let low = self.entries.0[at][1] & LOW_MASK;
        self.entries.0[at][1] = len << LOW_BITS | low;
    }

    /// How many entries have a partial offset up to `x`.
    ///
    /// The first entries of all cache lines are compared first and independently, so that the
    /// lines come from memory at the same time and not one after the other as in a binary search.
    #[inline]
    fn count_up_to(&self, x: u64) -> usize {
        let key = x << HIGH_BITS | HIGH_MASK;
        let (lines, _) = self.entries.0.as_chunks::<LINE_ENTRIES>();
        let mut line = 0;
        for group in &lines[1..] {
            line += usize::from(group[0][0] <= key);
        }
        let group = &lines[line];
        let within: usize = group.iter().map(|entry| usize::from(entry[0] <= key)).sum();
        line * LINE_ENTRIES + within
    }

    /// The entry that covers `x`; the last one for the end of the leaf, 0 in an empty leaf.
    #[inline]
    pub(crate) fn find(&self, x: u64) -> usize {
        self.count_up_to(x).saturating_sub(1)
    }

    /// Bytes of the address space that the leaf covers.
    pub(super) fn span(&self) -> u64 {
        match self.count() {
            0 => 0,
            count => self.partial(count - 1) + self.len_of(count - 1),
        }
    }

    /// Adds `delta`, which may be negative in two's complement, to the partial offsets of
    /// `from..to`.
    #[inline]
    fn shift(&mut self, from: usize, to: usize, delta: u64) {
        let delta = delta << HIGH_BITS;
        for entry in &mut self.entries.0[from..to] {
            entry[0] = entry[0].wrapping_add(delta);
        }
    }

    /// Adds `delta`, which may be negative in two's complement, to all partial offsets.
    pub(crate) fn shift_all(&mut self, delta: u64) {
        self.shift(0, self.count(), delta);
    }

    /// Moves the entries from `from` on by `gap` places and `delta` bytes.
    #[inline]
    fn open(&mut self, from: usize, gap: usize, delta: u64) {
        let count = self.count();
        self.entries.0.copy_within(from..count, from + gap);
        self.shift(from + gap, count + gap, delta);
        self.set_count(count + gap);
    }

    /// Whether a piece continues entry `at`, in the address space and on the medium, and both
    /// together are at most `extent_max` long.
    #[inline]
    fn continues(&self, at: usize, piece: LeafPatch, extent_max: u32) -> bool {
        let len = self.len_of(at);
        let address = self.address(at);
        let follows = if piece.address == HOLE {
            address == HOLE
        } else {
            address != HOLE && address + len == piece.address
        };
        follows && len + u64::from(piece.len) <= u64::from(extent_max)
    }

    /// Inserts a piece at `x` and moves what follows. Needs a leaf that is not full. Returns how
    /// many entries were added.
    #[inline]
    pub(crate) fn insert(&mut self, x: u64, piece: LeafPatch, extent_max: u32) -> usize {
        let delta = u64::from(piece.len);
        let count = self.count();
        let mut at = self.find(x);
        if at < count {
            let (start, len) = (self.partial(at), self.len_of(at));
            if x >= start + len {
                at += 1;
            } else if x > start {
                self.insert_within(at, x, piece);
                return 2;
            }
        }
        if at > 0 && self.continues(at - 1, piece, extent_max) {
            self.set_len(at - 1, self.len_of(at - 1) + delta);
            self.shift(at, count, delta);
            return 0;
        }
        self.open(at, 1, delta);
        self.set(at, x, piece);
        1
    }

    /// Inserts a piece in the middle of entry `at`.
    fn insert_within(&mut self, at: usize, x: u64, piece: LeafPatch) {
        let whole = self.entry(at);
        let head = x - whole.offset;
        self.open(at + 1, 2, u64::from(piece.len));
        self.set_len(at, head);
        self.set(at + 1, x, piece);
        let tail = whole.behind(head);
        let rest = LeafPatch {
            len: short(tail.len),
            address: tail.address,
        };
        self.set(at + 2, x + u64::from(piece.len), rest);
    }

    /// Puts `piece`, if any, in place of the `removed` bytes from `x` on, which lie in the leaf,
    /// and moves what follows. Each entry or part of one that goes is told to `freed`, with its
    /// partial offset. Needs a leaf that is not full.
    pub(super) fn replace(
        &mut self,
        x: u64,
        removed: u64,
        piece: Option<LeafPatch>,
        extent_max: u32,
        freed: &mut impl FnMut(Extent),
    ) {
        let (first, last) = (self.find(x), self.find(x + removed - 1));
        let (front, back) = (self.entry(first), self.entry(last));
        for at in first..=last {
            freed(self.entry(at).clipped(x, x + removed));
        }
        let head = x - front.offset;
        let tail = back.behind(x + removed - back.offset);
        let added = piece.map_or(0, |piece| u64::from(piece.len));
        let delta = added.wrapping_sub(removed);

        let parts =
            usize::from(head > 0) + usize::from(piece.is_some()) + usize::from(tail.len > 0);
        let (gone, count) = (last + 1 - first, self.count());
        if parts > gone {
            self.open(last + 1, parts - gone, delta);
        } else if parts < gone || delta != 0 {
            let to = first + parts;
            self.entries.0.copy_within(last + 1..count, to);
            let left = count - (gone - parts);
            self.entries.0[left..count].fill(VOID);
            self.set_count(left);
            self.shift(to, left, delta);
        }
        let mut at = first;
        if head > 0 {
            self.set_len(at, head);
            at += 1;
        }
        if let Some(piece) = piece {
            self.set(at, x, piece);
            at += 1;
        }
        if tail.len > 0 {
            let rest = LeafPatch {
                len: short(tail.len),
                address: tail.address,
            };
            self.set(at, x + added, rest);
        }
        if let Some(piece) = piece
            && let Some(left) = (first + usize::from(head > 0)).checked_sub(1)
            && self.continues(left, piece, extent_max)
        {
            self.join_with_next(left);
        }
    }

    fn join_with_next(&mut self, at: usize) {
        let count = self.count();
        self.set_len(at, self.len_of(at) + self.len_of(at + 1));
        self.entries.0.copy_within(at + 2..count, at + 1);
        self.entries.0[count - 1] = VOID;
        self.set_count(count - 1);
    }

    /// Moves the entries from `at` on to the empty leaf `right`, re-bases them, and returns the
    /// shift of that leaf.
    pub(super) fn split(&mut self, at: usize, right: &mut Leaf) -> u64 {
        let base = self.split_plain(at, right);
        right.shift_all(base.wrapping_neg());
        base
    }

    /// As [`Leaf::split`], without re-basing.
    pub(crate) fn split_plain(&mut self, at: usize, right: &mut Leaf) -> u64 {
        let count = self.count();
        let moved = count - at;
        let base = if moved == 0 {
            self.span()
        } else {
            self.partial(at)
        };
        right.entries.0[..moved].copy_from_slice(&self.entries.0[at..count]);
        right.set_count(moved);
        self.entries.0[at..count].fill(VOID);
        self.set_count(at);
        base
    }

    /// Takes over the entries of the right neighbour, whose shift is `base` more than this one's.
    pub(super) fn merge(&mut self, right: &Leaf, base: u64) {
        let (from, added) = (self.count(), right.count());
        let to = from + added;
        self.entries.0[from..to].copy_from_slice(&right.entries.0[..added]);
        self.set_count(to);
        self.shift(from, to, base);
    }
}

/// The length of a part of an entry.
fn short(len: u64) -> u32 {
    u32::try_from(len).expect("a part of an entry is no longer than the entry")
}
