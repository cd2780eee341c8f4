//! The order of the entries of a node, in one word.

use super::layout::SLOTS;

/// Bits 0 to 3 are the number of entries. Behind them stand the numbers of all slots, four bits
/// each: those of the entries in the order of their keys, then the free ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Permutation(pub(super) u64);

const COUNT_BITS: u64 = 0xf;

/// The lowest `count` slot numbers of a word without its count.
fn mask(count: usize) -> u64 {
    (1 << (4 * count)) - 1
}

impl Permutation {
    /// The first `count` slots are entries, in their order.
    pub(super) fn first(count: usize) -> Permutation {
        let slots = (0..SLOTS).fold(0, |word, slot| word | (slot as u64) << (4 * slot));
        Permutation(slots << 4 | count as u64)
    }

    /// Number of entries.
    #[inline]
    pub(super) fn count(self) -> usize {
        (self.0 & COUNT_BITS) as usize
    }

    /// The slot of the entry with this rank; or, from their number on, a free one.
    #[inline]
    pub(super) fn slot(self, rank: usize) -> usize {
        // Four bits are at most 15, which is no slot, and stands in no sound permutation.
        ((self.0 >> (4 * rank + 4) & 0xf) as usize).min(SLOTS - 1)
    }

    /// With the first free slot as the entry of a rank. There is room.
    pub(super) fn with(self, rank: usize) -> Permutation {
        let (count, slots) = (self.count(), self.0 >> 4);
        let free = slots >> (4 * count) & 0xf;
        let moved = slots & mask(count) & !mask(rank);
        let slots = slots & !mask(count + 1) | moved << 4 | free << (4 * rank) | slots & mask(rank);
        Permutation(slots << 4 | (count + 1) as u64)
    }

    /// Without the entry of a rank, whose slot becomes the first free one.
    pub(super) fn without(self, rank: usize) -> Permutation {
        let (count, slots) = (self.count(), self.0 >> 4);
        let gone = slots >> (4 * rank) & 0xf;
        let moved = slots & mask(count) & !mask(rank + 1);
        let slots =
            slots & !mask(count) | gone << (4 * count - 4) | moved >> 4 | slots & mask(rank);
        Permutation(slots << 4 | (count - 1) as u64)
    }

    /// With the first `count` entries only.
    pub(super) fn cut(self, count: usize) -> Permutation {
        Permutation(self.0 & !COUNT_BITS | count as u64)
    }

    /// Whether every slot stands in it once.
    pub(super) fn is_sound(self) -> bool {
        let slots = (0..SLOTS).fold(0_u32, |seen, rank| {
            seen | 1 << (self.0 >> (4 * rank + 4) & 0xf)
        });
        slots == (1 << SLOTS) - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Inserts and removes at all ranks, beside a list.
    #[test]
    fn a_permutation_follows_a_list() {
        let mut random = 1_u64;
        let mut permutation = Permutation::first(3);
        let mut list = vec![0, 1, 2];
        for step in 0..100_000 {
            random = crate::Seed::new(3).hash_u64(random);
            let count = list.len();
            assert_eq!(permutation.count(), count);
            let draw = |limit: usize| usize::try_from(random >> 8).expect("64 bits") % limit;
            if count < SLOTS && (count == 0 || !random.is_multiple_of(3)) {
                let rank = draw(count + 1);
                list.insert(rank, permutation.slot(count));
                permutation = permutation.with(rank);
            } else if step % 50 == 0 {
                list.truncate(count / 2);
                permutation = permutation.cut(count / 2);
            } else {
                let rank = draw(count);
                list.remove(rank);
                permutation = permutation.without(rank);
            }
            let slots: Vec<_> = (0..list.len()).map(|rank| permutation.slot(rank)).collect();
            assert_eq!(slots, list);
            assert!(permutation.is_sound());
        }
        assert!(!Permutation(permutation.0 | 0xff00).is_sound());
    }
}
