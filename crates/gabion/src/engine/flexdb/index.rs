//! The sparse index: which interval holds a key, and where it lies in the space.
//!
//! # Idea (paper, section 5.1)
//! A B+-tree over the intervals, by their smallest keys. Its leaves hold where each interval begins
//! relative to the leaf, and each child pointer carries a shift, so that a change of an interval's
//! length moves all behind it by changing one node per level, as in a FlexTree. Here offsets are no
//! search keys, so no key changes.
//!
//! # Invariants
//! - I1. The first interval begins with the empty key and is always there; intervals follow each
//!   other without gaps, in keys as in offsets.
//! - I2. The first start of a leaf and the first shift of an inner node are 0.
//! - I3. A key of an inner node is not above any key below its child, and above all keys below the
//!   child before it. It may be below the child's first key, if that was removed.
//! - I4. No node but the root is empty. Nodes that become small stay so; intervals are merged where
//!   pairs are removed, so that few nodes become small.

use std::sync::Arc;

use super::cache::Slot;
use crate::types::prefix_of;

/// Most entries of a node.
const ENTRIES_MAX: usize = 64;

/// A key, and its first bytes as a number.
#[derive(Clone, Debug)]
pub(super) struct Key {
    prefix: u64,
    bytes: Arc<[u8]>,
}

impl Key {
    pub(super) fn new(bytes: &[u8]) -> Key {
        Key {
            prefix: prefix_of(bytes),
            bytes: bytes.into(),
        }
    }

    pub(super) fn bytes(&self) -> &Arc<[u8]> {
        &self.bytes
    }

    /// Whether the key is at most `other`, which has that prefix.
    #[inline]
    fn is_at_most(&self, prefix: u64, other: &[u8]) -> bool {
        self.prefix < prefix || (self.prefix == prefix && *self.bytes <= *other)
    }
}

/// An interval.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    /// Bytes in the space.
    pub(super) len: u64,
    /// Its decoded form, if it is cached.
    pub(super) slot: Arc<Slot>,
}

/// An interval that was looked up.
#[derive(Clone, Debug)]
pub(super) struct Found {
    /// The smallest key that belongs to it.
    pub(super) lower: Arc<[u8]>,
    /// The first key that belongs to the next one.
    pub(super) upper: Option<Arc<[u8]>>,
    /// Where it begins in the space.
    pub(super) offset: u64,
    pub(super) entry: Entry,
}

#[derive(Debug, Default)]
struct Leaf {
    keys: Vec<Key>,
    starts: Vec<u64>,
    entries: Vec<Entry>,
}

#[derive(Debug)]
struct Inner {
    keys: Vec<Key>,
    shifts: Vec<u64>,
    children: Vec<Node>,
}

#[derive(Debug)]
enum Node {
    Leaf(Box<Leaf>),
    Inner(Box<Inner>),
}

/// All intervals.
#[derive(Debug)]
pub(super) struct Index {
    root: Node,
    count: usize,
    /// Memory of keys and entries, roughly.
    bytes: usize,
}

fn position(keys: &[Key], prefix: u64, key: &[u8]) -> usize {
    keys.partition_point(|own| own.is_at_most(prefix, key))
}

/// As [`position`], with the keys that equal `key` left out.
fn position_below(keys: &[Key], prefix: u64, key: &[u8]) -> usize {
    keys.partition_point(|own| own.prefix < prefix || (own.prefix == prefix && *own.bytes < *key))
}

impl Leaf {
    fn len(&self) -> u64 {
        match (self.starts.last(), self.entries.last()) {
            (Some(start), Some(entry)) => start + entry.len,
            _ => 0,
        }
    }

    fn found(&self, at: usize) -> Found {
        Found {
            lower: Arc::clone(&self.keys[at].bytes),
            upper: self.keys.get(at + 1).map(|key| Arc::clone(&key.bytes)),
            offset: self.starts[at],
            entry: self.entries[at].clone(),
        }
    }

    fn insert(&mut self, key: Key, entry: Entry) -> Option<(Key, Node)> {
        let at = position(&self.keys, key.prefix, &key.bytes);
        let start = match at.checked_sub(1) {
            None => 0,
            Some(before) => self.starts[before] + self.entries[before].len,
        };
        for later in &mut self.starts[at..] {
            *later += entry.len;
        }
        self.keys.insert(at, key);
        self.starts.insert(at, start);
        self.entries.insert(at, entry);
        if self.keys.len() <= ENTRIES_MAX {
            return None;
        }
        // Keys that come in ascending order leave full nodes behind.
        let cut = match at + 1 == self.keys.len() {
            true => self.keys.len() - 1,
            false => self.keys.len() / 2,
        };
        let mut right = Leaf {
            keys: self.keys.split_off(cut),
            starts: self.starts.split_off(cut),
            entries: self.entries.split_off(cut),
        };
        let base = right.starts[0];
        for start in &mut right.starts {
            *start -= base;
        }
        Some((right.keys[0].clone(), Node::Leaf(Box::new(right))))
    }

    fn remove(&mut self, key: &Key) -> Option<Entry> {
        let at = position_below(&self.keys, key.prefix, &key.bytes);
        if self.keys.get(at)?.bytes != key.bytes {
            return None;
        }
        self.keys.remove(at);
        self.starts.remove(at);
        let entry = self.entries.remove(at);
        for later in &mut self.starts[at..] {
            *later -= entry.len;
        }
        Some(entry)
    }
}

impl Inner {
    fn child_of(&self, prefix: u64, key: &[u8]) -> usize {
        position(&self.keys, prefix, key).saturating_sub(1)
    }

    fn insert(&mut self, key: Key, entry: Entry) -> Option<(Key, Node)> {
        let at = self.child_of(key.prefix, &key.bytes);
        let len = entry.len;
        let split = self.children[at].insert(key, entry);
        for later in &mut self.shifts[at + 1..] {
            *later += len;
        }
        let (key, node) = split?;
        let shift = self.shifts[at] + self.children[at].len();
        let last = at + 1 == self.children.len();
        self.keys.insert(at + 1, key);
        self.shifts.insert(at + 1, shift);
        self.children.insert(at + 1, node);
        if self.children.len() <= ENTRIES_MAX {
            return None;
        }
        let cut = match last {
            true => self.children.len() - 1,
            false => self.children.len() / 2,
        };
        let mut right = Inner {
            keys: self.keys.split_off(cut),
            shifts: self.shifts.split_off(cut),
            children: self.children.split_off(cut),
        };
        let base = right.shifts[0];
        for shift in &mut right.shifts {
            *shift -= base;
        }
        Some((right.keys[0].clone(), Node::Inner(Box::new(right))))
    }

    fn remove(&mut self, key: &Key) -> Option<Entry> {
        let at = self.child_of(key.prefix, &key.bytes);
        let entry = self.children[at].remove(key)?;
        for later in &mut self.shifts[at + 1..] {
            *later -= entry.len;
        }
        if self.children[at].is_empty() {
            self.children.remove(at);
            self.shifts.remove(at);
            self.keys.remove(at);
        }
        Some(entry)
    }
}

impl Node {
    fn is_empty(&self) -> bool {
        match self {
            Node::Leaf(leaf) => leaf.keys.is_empty(),
            Node::Inner(inner) => inner.children.is_empty(),
        }
    }

    fn len(&self) -> u64 {
        match self {
            Node::Leaf(leaf) => leaf.len(),
            Node::Inner(inner) => match (inner.shifts.last(), inner.children.last()) {
                (Some(shift), Some(child)) => shift + child.len(),
                _ => 0,
            },
        }
    }

    fn insert(&mut self, key: Key, entry: Entry) -> Option<(Key, Node)> {
        match self {
            Node::Leaf(leaf) => leaf.insert(key, entry),
            Node::Inner(inner) => inner.insert(key, entry),
        }
    }

    fn remove(&mut self, key: &Key) -> Option<Entry> {
        match self {
            Node::Leaf(leaf) => leaf.remove(key),
            Node::Inner(inner) => inner.remove(key),
        }
    }

    fn first_key(&self) -> Option<&Key> {
        match self {
            Node::Leaf(leaf) => leaf.keys.first(),
            Node::Inner(inner) => inner.children.first()?.first_key(),
        }
    }

    /// The last interval whose first key is at most `key`, or below it.
    fn find(&self, prefix: u64, key: &[u8], below: bool) -> Option<Found> {
        let position = if below { position_below } else { position };
        match self {
            Node::Leaf(leaf) => {
                let at = position(&leaf.keys, prefix, key).checked_sub(1)?;
                Some(leaf.found(at))
            }
            Node::Inner(inner) => {
                let mut at = position(&inner.keys, prefix, key).saturating_sub(1);
                // A child whose first keys were removed may have none that is low enough (I3).
                let mut found = loop {
                    match inner.children[at].find(prefix, key, below) {
                        Some(found) => break found,
                        None => at = at.checked_sub(1)?,
                    }
                };
                found.offset += inner.shifts[at];
                if found.upper.is_none() {
                    let next = inner.children.get(at + 1).and_then(Node::first_key);
                    found.upper = next.map(|key| Arc::clone(&key.bytes));
                }
                Some(found)
            }
        }
    }

    fn last(&self) -> Option<Found> {
        match self {
            Node::Leaf(leaf) => Some(leaf.found(leaf.keys.len().checked_sub(1)?)),
            Node::Inner(inner) => {
                let mut found = inner.children.last()?.last()?;
                found.offset += inner.shifts.last()?;
                Some(found)
            }
        }
    }
}

impl Index {
    /// An index of one interval.
    pub(super) fn new(entry: Entry) -> Index {
        let mut index = Index {
            root: Node::Leaf(Box::default()),
            count: 0,
            bytes: 0,
        };
        index.insert(Key::new(b""), entry);
        index
    }

    /// Number of intervals.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Memory of the index in bytes, roughly.
    pub(super) fn memory_bytes(&self) -> u64 {
        self.bytes as u64
    }

    /// Bytes of all intervals.
    #[cfg(test)]
    fn len(&self) -> u64 {
        self.root.len()
    }

    /// The interval that `key` belongs to.
    pub(super) fn find(&self, key: &[u8]) -> Found {
        let found = self.root.find(prefix_of(key), key, false);
        found.expect("the first interval begins with the empty key")
    }

    /// The interval that the keys right below `key` belong to, or below the end of all keys; `None`
    /// for the empty key.
    pub(super) fn find_below(&self, key: Option<&[u8]>) -> Option<Found> {
        match key {
            Some(key) => self.root.find(prefix_of(key), key, true),
            None => self.root.last(),
        }
    }

    /// Puts intervals in place of all that begin from `lower` on and below `upper`. The first of
    /// them begins with `lower`; none at all leaves its keys to the interval before.
    pub(super) fn replace(
        &mut self,
        lower: &[u8],
        upper: Option<&[u8]>,
        entries: Vec<(Key, Entry)>,
    ) {
        debug_assert!(!lower.is_empty() || !entries.is_empty());
        loop {
            let found = self.find_below(upper);
            let Some(found) = found.filter(|found| *found.lower >= *lower) else {
                break;
            };
            self.remove(&Key::new(&found.lower));
            found.entry.slot.retire();
        }
        for (key, entry) in entries {
            self.insert(key, entry);
        }
    }

    /// Gives an interval another form of the same content.
    fn insert(&mut self, key: Key, entry: Entry) {
        self.count += 1;
        self.bytes += entry_bytes(&key);
        if let Some((key, right)) = self.root.insert(key, entry) {
            let left = std::mem::replace(&mut self.root, Node::Leaf(Box::default()));
            let shift = left.len();
            let first = left.first_key().cloned().unwrap_or_else(|| Key::new(b""));
            self.root = Node::Inner(Box::new(Inner {
                keys: vec![first, key],
                shifts: vec![0, shift],
                children: vec![left, right],
            }));
        }
    }

    fn remove(&mut self, key: &Key) {
        if self.root.remove(key).is_some() {
            self.count -= 1;
            self.bytes -= entry_bytes(key);
        }
        while let Node::Inner(inner) = &mut self.root
            && inner.children.len() < 2
        {
            let only = inner.children.pop();
            self.root = only.unwrap_or_else(|| Node::Leaf(Box::default()));
        }
    }
}

fn entry_bytes(key: &Key) -> usize {
    key.bytes.len() + size_of::<Key>() + size_of::<Entry>() + size_of::<u64>() + 64
}

#[cfg(test)]
mod tests {
    use super::*;
    use gabion_media::seeded::Random;

    /// The naive twin: intervals in order.
    type Twin = Vec<(Vec<u8>, u64)>;

    fn entry(len: u64) -> Entry {
        Entry {
            len,
            slot: Arc::default(),
        }
    }

    fn assert_equal(index: &Index, twin: &Twin, random: &mut Random) {
        assert_eq!(index.count(), twin.len());
        assert_eq!(index.len(), twin.iter().map(|(_, len)| len).sum::<u64>());
        for probe in 0..40 {
            let key = match probe % 2 {
                0 => twin[random.index(twin.len())].0.clone(),
                _ => random.below(1 << 30).to_string().into_bytes(),
            };
            let at = twin.partition_point(|(own, _)| *own <= key) - 1;
            check(&index.find(&key), twin, at);
            let below = twin.partition_point(|(own, _)| *own < key).checked_sub(1);
            match (index.find_below(Some(&key)), below) {
                (Some(found), Some(at)) => check(&found, twin, at),
                (None, None) => {}
                other => panic!("{other:?}"),
            }
        }
        check(&index.find_below(None).unwrap(), twin, twin.len() - 1);
    }

    fn check(found: &Found, twin: &Twin, at: usize) {
        assert_eq!(*found.lower, *twin[at].0);
        assert_eq!(
            found.upper.as_deref(),
            twin.get(at + 1).map(|(key, _)| &key[..])
        );
        assert_eq!(
            found.offset,
            twin[..at].iter().map(|(_, len)| len).sum::<u64>()
        );
        assert_eq!(found.entry.len, twin[at].1);
    }

    #[test]
    fn equals_a_sorted_list() {
        let mut random = Random::new(7);
        let mut index = Index::new(entry(5));
        let mut twin: Twin = vec![(Vec::new(), 5)];
        for step in 0..3_000 {
            // It grows, shrinks to little, and grows again; sometimes in ascending order.
            let shrinks = (1_200..2_000).contains(&step);
            let key = match step % 400 < 100 {
                true => format!("9{step:09}").into_bytes(),
                false => random.below(1 << 30).to_string().into_bytes(),
            };
            let from = twin.partition_point(|(own, _)| *own <= key) - 1;
            let most = if shrinks { 9 } else { 2 };
            let to = (from + 1 + random.index(most)).min(twin.len());
            let lower = twin[from].0.clone();
            let upper = twin.get(to).map(|(key, _)| key.clone());
            let mut new = vec![(lower.clone(), random.below(100))];
            if !shrinks && key != lower && upper.as_ref().is_none_or(|upper| key < *upper) {
                new.push((key, random.below(100)));
            }
            if random.one_in(8) && !lower.is_empty() {
                new.clear();
            }
            let entries = new.iter().map(|(key, len)| (Key::new(key), entry(*len)));
            index.replace(&lower, upper.as_deref(), entries.collect());
            twin.splice(from..to, new);
            if step % 10 == 0 {
                assert_equal(&index, &twin, &mut random);
            }
        }
        assert!(twin.len() > 300, "{}", twin.len());
    }
}
