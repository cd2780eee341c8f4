//! Stretches of children: the part of a node that a scan reads at a time.
//!
//! Of a node of 256 children a scan needs a few, so it reads a few. What byte a child has is told
//! by another word than the child in all smaller nodes: to who looks while somebody changes them, a
//! child may seem to be that of another byte. Holders of the node's lock see each child as it is;
//! so does who reads between two looks at the lock that see the same (`scan.rs`).

use gabion_media::pmem::PAtomicU64;

use super::key::Branch;
use super::layout::Child;
use super::node::{byte_of, load};

/// Children of a stretch, at most: all of a node of 16, and its end.
const CHILDREN_MAX: usize = 17;

/// Places in the order of keys: that of the end, and one for each byte.
const PLACES: usize = 1 + 256;

/// Some children of a node, one behind the other in the order of keys.
pub(super) struct ChildRange {
    children: [(Branch, Child); CHILDREN_MAX],
    count: usize,
    /// The place from which on children may be missing.
    next: usize,
}

/// The place of a branch in the order of keys.
#[inline]
fn place(branch: Branch) -> usize {
    branch.map_or(0, |byte| usize::from(byte) + 1)
}

impl ChildRange {
    /// What comes before all children: none of them.
    pub(super) fn before_all() -> ChildRange {
        ChildRange {
            children: [(None, Child::NONE); CHILDREN_MAX],
            count: 0,
            next: 0,
        }
    }

    /// The child of a branch, or nothing in its place.
    pub(super) fn of(branch: Branch, child: Child) -> ChildRange {
        let mut stretch = ChildRange::before_all();
        stretch.add(branch, child);
        stretch.next = place(branch) + 1;
        stretch
    }

    /// The end, if a stretch begins with it. One of the functions below adds the rest.
    pub(super) fn begin(from: usize, end: Child) -> ChildRange {
        let mut stretch = ChildRange::before_all();
        if from == 0 {
            stretch.add(None, end);
        }
        stretch.next = from.max(1);
        stretch
    }

    /// The children.
    #[inline]
    pub(super) fn children(&self) -> &[(Branch, Child)] {
        &self.children[..self.count]
    }

    /// The place from which on children may be missing.
    #[inline]
    pub(super) fn next(&self) -> usize {
        self.next
    }

    /// Whether none are missing.
    #[inline]
    pub(super) fn is_last(&self) -> bool {
        self.next == PLACES
    }

    /// Adds a child, if it is there, behind the others; false if there is no room.
    #[inline]
    fn add(&mut self, branch: Branch, child: Child) -> bool {
        if child.is_none() {
            return true;
        }
        if self.count == CHILDREN_MAX {
            self.next = place(branch);
            return false;
        }
        self.children[self.count] = (branch, child);
        self.count += 1;
        true
    }

    /// The byte with which what is missing begins.
    fn first(&self) -> usize {
        self.next - 1
    }

    /// Adds children whose bytes stand beside them: all that are missing, at most 16. They are put
    /// in order by a bit for each byte: to compare them would cost more, in branches that nobody
    /// can foresee.
    pub(super) fn add_sorted(&mut self, keys: &[PAtomicU64], children: &[PAtomicU64]) {
        let first = self.first();
        self.next = PLACES;
        let mut there = [0_u64; 4];
        let mut of_slot = [Child::NONE; 16];
        let mut slots = [0_u8; 256];
        for (slot, child) in (0..16).zip(children) {
            // The child first: its byte was stored before it.
            let child = Child(load(child));
            let at = usize::from(slot);
            let byte = usize::from(byte_of(load(&keys[at / 8]), at));
            if child.is_none() || byte < first {
                continue;
            }
            there[byte / 64] |= 1 << (byte % 64);
            of_slot[at] = child;
            slots[byte] = slot;
        }
        for (at, mut bits) in there.into_iter().enumerate() {
            while bits != 0 {
                let byte = 64 * at + bits.trailing_zeros() as usize;
                bits &= bits - 1;
                let child = of_slot[usize::from(slots[byte]) % 16];
                self.add(u8::try_from(byte).ok(), child);
            }
        }
    }

    /// Adds children whose numbers an index has: as many as there is room for.
    pub(super) fn add_indexed(&mut self, index: &[PAtomicU64], children: &[PAtomicU64]) {
        let first = self.first();
        self.next = PLACES;
        for (at, word) in index.iter().enumerate().skip(first / 8) {
            let skipped = if at == first / 8 { first % 8 * 8 } else { 0 };
            let mut numbers = load(word) & u64::MAX << skipped;
            while numbers != 0 {
                let byte = numbers.trailing_zeros() as usize / 8;
                let slot = usize::from(byte_of(numbers, byte)).checked_sub(1);
                let child = slot.and_then(|slot| children.get(slot));
                let child = child.map_or(Child::NONE, |child| Child(load(child)));
                if !self.add(u8::try_from(8 * at + byte).ok(), child) {
                    return;
                }
                numbers &= !(0xff << (8 * byte));
            }
        }
    }

    /// Adds children of which each has the place of its byte: as many as there is room for.
    pub(super) fn add_direct(&mut self, children: &[PAtomicU64]) {
        let first = self.first();
        self.next = PLACES;
        for (byte, child) in (0..=u8::MAX).zip(children).skip(first) {
            if !self.add(Some(byte), Child(load(child))) {
                return;
            }
        }
    }
}
