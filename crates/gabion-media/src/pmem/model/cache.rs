//! The processor's cache: finite, set-associative, least recently used out first.

use crate::pmem::trace::LINE;

/// One line in the cache, or an empty place for one.
#[derive(Clone, Copy)]
struct Slot {
    /// Number of the line on the medium; `EMPTY` for none.
    line: u64,
    /// When it was used last, on a clock of uses.
    used: u64,
    dirty: bool,
}

const EMPTY: u64 = u64::MAX;

const NOTHING: Slot = Slot {
    line: EMPTY,
    used: 0,
    dirty: false,
};

/// What a use of a line found, and what it drove out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CacheAccess {
    pub(super) hit: bool,
    /// The dirty line that had to leave.
    pub(super) evicted: Option<u64>,
}

pub(super) struct ModelCache {
    slots: Vec<Slot>,
    ways: usize,
    sets: u64,
    clock: u64,
}

impl ModelCache {
    /// A cache of `bytes` in sets of `ways` lines; at least one set.
    pub(super) fn new(bytes: u64, ways: usize) -> ModelCache {
        let ways = ways.max(1);
        let sets = (bytes / LINE / ways as u64).max(1);
        let count = usize::try_from(sets).unwrap_or(usize::MAX) * ways;
        ModelCache {
            slots: vec![NOTHING; count],
            ways,
            sets,
            clock: 0,
        }
    }

    fn set(&mut self, line: u64) -> &mut [Slot] {
        // The remainder is below the number of sets, which came from a `usize`.
        let set = usize::try_from(line % self.sets).unwrap_or(0);
        &mut self.slots[set * self.ways..(set + 1) * self.ways]
    }

    /// Uses a line for a load, or for a store that makes it dirty.
    pub(super) fn touch(&mut self, line: u64, is_store: bool) -> CacheAccess {
        self.clock += 1;
        let clock = self.clock;
        let set = self.set(line);
        if let Some(slot) = set.iter_mut().find(|slot| slot.line == line) {
            slot.used = clock;
            slot.dirty |= is_store;
            return CacheAccess {
                hit: true,
                evicted: None,
            };
        }
        // An empty slot was never used, so it is the oldest.
        let Some(victim) = set.iter_mut().min_by_key(|slot| slot.used) else {
            unreachable!("sets have at least one slot");
        };
        let evicted = victim.dirty.then_some(victim.line);
        *victim = Slot {
            line,
            used: clock,
            dirty: is_store,
        };
        CacheAccess {
            hit: false,
            evicted,
        }
    }

    /// Writes a line back and says whether it was dirty.
    pub(super) fn flush(&mut self, line: u64, keep: bool) -> bool {
        let Some(slot) = self.set(line).iter_mut().find(|slot| slot.line == line) else {
            return false;
        };
        let was_dirty = slot.dirty;
        slot.dirty = false;
        if !keep {
            *slot = NOTHING;
        }
        was_dirty
    }

    /// Makes all lines clean and names those that were dirty, in the order of the sets.
    pub(super) fn write_back(&mut self) -> Vec<u64> {
        let mut lines = Vec::new();
        for slot in self.slots.iter_mut().filter(|slot| slot.dirty) {
            slot.dirty = false;
            lines.push(slot.line);
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_line_of_a_full_set_leaves() {
        // Two sets of two: even and odd lines.
        let mut cache = ModelCache::new(4 * LINE, 2);
        let miss = CacheAccess {
            hit: false,
            evicted: None,
        };
        assert_eq!(cache.touch(0, true), miss);
        assert_eq!(cache.touch(2, false), miss);
        assert_eq!(cache.touch(1, true), miss);
        assert!(cache.touch(0, false).hit);
        // Line 2 is the oldest of its set, and clean.
        assert_eq!(cache.touch(4, false), miss);
        // Now line 0, which is dirty.
        assert_eq!(cache.touch(6, false).evicted, Some(0));
        assert!(cache.touch(1, false).hit, "another set is not concerned");
    }

    #[test]
    fn a_flush_cleans_a_line_and_may_keep_it() {
        let mut cache = ModelCache::new(4 * LINE, 2);
        cache.touch(3, true);
        assert!(cache.flush(3, true));
        assert!(!cache.flush(3, true), "it is clean now");
        assert!(cache.touch(3, true).hit);
        assert!(cache.flush(3, false));
        assert!(!cache.touch(3, false).hit);
        assert!(!cache.flush(9, true), "it was never there");
        cache.touch(3, true);
        cache.touch(8, true);
        assert_eq!(cache.write_back(), [8, 3]);
        assert!(cache.write_back().is_empty());
    }
}
