//! The sorted keys of a node.
//!
//! # Idea
//! Keys that stand next to each other begin alike. A node keeps the length of what all its keys
//! share, and of each key the eight bytes behind that, as a number; most searches compare numbers
//! only. The first key of a node is compared with nothing: who searches a node knows already that
//! it is not too large. Where the first key, and the one that the next node begins with, begin as
//! the others do, so does each key that is sought in the node, and only the numbers are looked at,
//! which lie in the node itself.

use crate::types::prefix_after;

/// What a search looks for.
#[derive(Clone, Copy, Debug)]
pub(in super::super) enum SeekTarget<'k> {
    /// The interval that a key belongs to.
    At(&'k [u8]),
    /// The interval that the keys right below one belong to, which is not the empty one.
    Below(&'k [u8]),
    /// The last interval.
    Last,
}

/// The numbers of a node's keys, the first of which means nothing.
pub(super) trait KeyHeads {
    /// How many numbers are below `head`.
    fn count_below(&self, head: u64) -> usize;
    fn get(&self, at: usize) -> u64;
    fn of(heads: impl Iterator<Item = u64>) -> Self;
}

impl KeyHeads for Vec<u64> {
    fn count_below(&self, head: u64) -> usize {
        self.partition_point(|own| *own < head)
    }

    fn get(&self, at: usize) -> u64 {
        self[at]
    }

    fn of(heads: impl Iterator<Item = u64>) -> Vec<u64> {
        heads.collect()
    }
}

/// Numbers of one cache line.
const LINE_HEADS: usize = 8;

impl<const MAX: usize> KeyHeads for [u64; MAX] {
    /// The first numbers of all lines are compared independently, so that the lines come from
    /// memory at the same time.
    #[inline]
    fn count_below(&self, head: u64) -> usize {
        let (lines, _) = self.as_chunks::<LINE_HEADS>();
        let mut line = 0;
        for group in &lines[1..] {
            line += usize::from(group[0] < head);
        }
        let within: usize = lines[line].iter().map(|own| usize::from(*own < head)).sum();
        line * LINE_HEADS + within
    }

    fn get(&self, at: usize) -> u64 {
        self[at]
    }

    /// What lies behind the last number is not below any.
    fn of(heads: impl Iterator<Item = u64>) -> [u64; MAX] {
        let mut all = [u64::MAX; MAX];
        for (own, head) in all.iter_mut().zip(heads) {
            *own = head;
        }
        all
    }
}

/// Sorted keys.
#[derive(Debug)]
pub(super) struct SortedKeys<H> {
    heads: H,
    /// The first bytes that all keys but the first one share.
    common: usize,
    /// Whether all keys that are sought share them, too.
    are_common: bool,
    /// Where each key ends in `bytes`.
    ends: Vec<u32>,
    bytes: Vec<u8>,
}

impl<H: KeyHeads> SortedKeys<H> {
    /// Ascending keys of a node in which nothing below the first one is sought, and nothing above
    /// `upper`, if there is one.
    pub(super) fn new<'k>(
        keys: impl Iterator<Item = &'k [u8]> + Clone,
        upper: Option<&[u8]>,
    ) -> SortedKeys<H> {
        let mut others = keys.clone().skip(1);
        let first = others.next().unwrap_or_default();
        let last = others.last().unwrap_or(first);
        // In order, what the first and the last one share is what all share.
        let common = first.iter().zip(last).take_while(|(a, b)| a == b).count();
        let begins_so =
            |key: Option<&[u8]>| key.is_some_and(|key| key.starts_with(&first[..common]));
        let are_common = begins_so(keys.clone().next()) && begins_so(upper);
        let mut ends = Vec::with_capacity(keys.size_hint().0);
        let mut bytes = Vec::with_capacity(keys.clone().map(<[u8]>::len).sum());
        for key in keys.clone() {
            bytes.extend_from_slice(key);
            ends.push(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
        }
        let heads = keys.skip(1).map(|key| prefix_after(key, common));
        SortedKeys {
            heads: H::of(std::iter::once(0).chain(heads)),
            common,
            are_common,
            ends,
            bytes,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Memory behind pointers, in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.bytes.capacity() + self.ends.capacity() * size_of::<u32>()
    }

    #[inline]
    pub(super) fn get(&self, at: usize) -> &[u8] {
        let from = match at.checked_sub(1) {
            None => 0,
            Some(before) => self.ends[before] as usize,
        };
        &self.bytes[from..self.ends[at] as usize]
    }

    /// The last key that is at most, or below, what is sought; the first one if no other is. What
    /// is sought is within what the keys were [made](SortedKeys::new) for.
    #[inline]
    pub(super) fn find(&self, seek: SeekTarget<'_>) -> usize {
        let (key, equal_too) = match seek {
            SeekTarget::At(key) => (key, true),
            SeekTarget::Below(key) => (key, false),
            SeekTarget::Last => return self.len() - 1,
        };
        if self.len() < 2 {
            return 0;
        }
        if !self.are_common {
            let shared = &self.get(1)[..self.common];
            if key.get(..self.common) != Some(shared) {
                return if key < shared { 0 } else { self.len() - 1 };
            }
        }
        let head = prefix_after(key, self.common);
        let mut low = self.heads.count_below(head).max(1);
        let mut high = low;
        while high < self.len() && self.heads.get(high) == head {
            high += 1;
        }
        while low < high {
            let middle = low.midpoint(high);
            let own = self.get(middle);
            if own < key || (equal_too && own == key) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low - 1
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn keys() -> impl Strategy<Value = Vec<Vec<u8>>> {
        // Few different bytes, so that keys share beginnings of all lengths.
        let key = prop::collection::vec(prop::sample::select(vec![0, 7, 255]), 0..14);
        prop::collection::btree_set(key, 1..32).prop_map(|keys| keys.into_iter().collect())
    }

    fn check<H: KeyHeads>(keys: &[Vec<u8>], upper: Option<&[u8]>, probe: &[u8]) {
        let own = SortedKeys::<H>::new(keys.iter().map(Vec::as_slice), upper);
        let at_most = keys.iter().filter(|key| key.as_slice() <= probe).count();
        let below = keys.iter().filter(|key| key.as_slice() < probe).count();
        assert_eq!(own.find(SeekTarget::At(probe)), at_most.saturating_sub(1));
        assert_eq!(own.find(SeekTarget::Below(probe)), below.saturating_sub(1));
        assert_eq!(own.find(SeekTarget::Last), keys.len() - 1);
        for (at, key) in keys.iter().enumerate() {
            assert_eq!(own.get(at), key);
        }
    }

    proptest! {
        #[test]
        fn finding_equals_its_twin(keys in keys(), prefix in 0..20_usize, probe in keys()) {
            let front = vec![b'x'; prefix];
            let long = |key: &Vec<u8>| [&front[..], key].concat();
            let keys: Vec<Vec<u8>> = keys.iter().map(long).collect();
            let upper = keys.last().cloned().unwrap_or_default();
            let (below, _) = keys.split_at((keys.len() - 1).max(1));
            for probe in probe.iter().map(long).chain(probe.clone()).chain(keys.clone()) {
                check::<Vec<u64>>(&keys, None, &probe);
                check::<[u64; 32]>(&keys, None, &probe);
                if below[0] <= probe && probe <= upper {
                    check::<Vec<u64>>(below, Some(&upper), &probe);
                    check::<[u64; 32]>(below, Some(&upper), &probe);
                }
            }
        }
    }
}
