//! A flat index over ascending keys: how many of them come before a given key?
//!
//! # Idea
//! Sorted keys of one region share their first bytes. The index stores what they share once and,
//! for each key, the following eight bytes as a number whose order is the order of the bytes.
//! A search runs over a dense array of numbers, eight to a cache line, and touches a key itself
//! only where numbers are equal.
//!
//! # Invariants
//! - I1: `prefixes[i]` is [`prefix_after`] of key `i`, behind the first `common` bytes.
//! - I2: all keys begin with the `common` bytes, so a key that does not is below or above them all.

use crate::types::prefix_after;

/// The index; the keys themselves stay with their owner.
#[derive(Debug)]
pub(crate) struct PrefixIndex {
    common: Box<[u8]>,
    prefixes: Box<[u64]>,
}

impl PrefixIndex {
    /// Indexes ascending `keys`.
    pub(crate) fn new<K: AsRef<[u8]>>(keys: &[K]) -> PrefixIndex {
        let common: Box<[u8]> = match (keys.first(), keys.last()) {
            (Some(first), Some(last)) => {
                let len = common_prefix_len(first.as_ref(), last.as_ref());
                first.as_ref()[..len].into()
            }
            _ => Box::default(),
        };
        let prefixes = keys
            .iter()
            .map(|key| prefix_after(key.as_ref(), common.len()))
            .collect();
        PrefixIndex { common, prefixes }
    }

    /// The number of keys that are not above `key`; `key_at(i)` returns key `i`. O(log n).
    #[inline]
    pub(crate) fn count_not_above<'k>(
        &self,
        key: &[u8],
        key_at: impl Fn(usize) -> &'k [u8],
    ) -> usize {
        self.count(key, |at| key_at(at) <= key)
    }

    /// The number of keys that are below `key`; `key_at(i)` returns key `i`. O(log n).
    #[inline]
    pub(crate) fn count_below<'k>(&self, key: &[u8], key_at: impl Fn(usize) -> &'k [u8]) -> usize {
        self.count(key, |at| key_at(at) < key)
    }

    /// The number of keys that come before `key`, where `comes_before(i)` says whether key `i`
    /// does if the prefixes do not.
    #[inline]
    fn count(&self, key: &[u8], comes_before: impl Fn(usize) -> bool) -> usize {
        let common = &self.common[..];
        // Comparing no bytes at all is not free: the address of an empty box is no memory, and the
        // C library's comparison by masked vectors takes a processor 100 ns there.
        if !common.is_empty() && !key.starts_with(common) {
            return if key < common { 0 } else { self.prefixes.len() };
        }
        let prefix = prefix_after(key, common.len());
        let first = self.prefixes.partition_point(|other| *other < prefix);
        match self.prefixes.get(first) {
            Some(other) if *other == prefix => self.count_among_ties(first, prefix, comes_before),
            _ => first,
        }
    }

    /// The same, where the keys from `first` on have the prefix of the one that is looked for.
    fn count_among_ties(
        &self,
        first: usize,
        prefix: u64,
        comes_before: impl Fn(usize) -> bool,
    ) -> usize {
        let ties = self.prefixes[first..].partition_point(|other| *other == prefix);
        let (mut low, mut high) = (first, first + ties);
        while low < high {
            let middle = low.midpoint(high);
            if comes_before(middle) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }
}

/// Length of the longest common prefix of two keys.
pub(crate) fn common_prefix_len(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use proptest::prelude::*;

    /// Keys whose difference begins behind the eight bytes that are indexed were compared one after
    /// the other.
    #[test]
    fn few_keys_are_looked_at_where_many_prefixes_are_equal() {
        let keys: Vec<String> = ["a prefix", "b prefix"]
            .iter()
            .flat_map(|group| (0..1_000).map(move |number| format!("{group} {number:04}")))
            .collect();
        let index = PrefixIndex::new(&keys);
        let looks = Cell::new(0);
        let key_at = |at: usize| {
            looks.set(looks.get() + 1);
            keys[at].as_bytes()
        };
        let mut probes: Vec<String> = keys.iter().map(|key| format!("{key}x")).collect();
        probes.extend(keys.iter().cloned());
        probes.extend(["", "a prefix", "b prefix", "b prefix 9", "c"].map(String::from));
        for probe in &probes {
            looks.set(0);
            let probe = probe.as_bytes();
            let expected = keys.partition_point(|key| key.as_bytes() <= probe);
            assert_eq!(index.count_not_above(probe, key_at), expected);
            let expected = keys.partition_point(|key| key.as_bytes() < probe);
            assert_eq!(index.count_below(probe, key_at), expected);
            assert!(looks.get() <= 2 * 10, "{} keys were looked at", looks.get());
        }
    }

    proptest! {
        #[test]
        fn agrees_with_a_linear_search(
            mut keys in prop::collection::vec(prop::collection::vec(0u8..3, 0..12), 0..40),
            probe in prop::collection::vec(0u8..3, 0..12),
            shared in prop::collection::vec(0u8..3, 0..4),
        ) {
            keys.sort();
            keys.dedup();
            let long: Vec<Vec<u8>> = keys.iter().map(|k| [&shared[..], k].concat()).collect();
            let index = PrefixIndex::new(&long);
            for probe in [probe.clone(), [&shared[..], &probe].concat()] {
                let expected = long.iter().filter(|key| **key <= probe).count();
                prop_assert_eq!(index.count_not_above(&probe, |i| &long[i]), expected);
                let expected = long.iter().filter(|key| **key < probe).count();
                prop_assert_eq!(index.count_below(&probe, |i| &long[i]), expected);
            }
        }
    }
}
