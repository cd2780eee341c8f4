//! Floor lookups: the entry of the greatest key up to a given one. For users that keep a trie as a
//! directory and can check the answer.

use std::borrow::Borrow;
use std::cmp::Ordering;

use gabion_media::pmem::Medium;

use super::Art;
use super::key;
use super::layout::Child;
use super::node::Node;
use super::recovery::{root_at, some_key_below};
use crate::Item;
use crate::leaf::LeafRef;

/// Nodes on the way to a word at most: one for each of its bytes.
const DEPTH: usize = 8;

/// The nodes on the way to a key. Those beyond the first ones, which only strings have, take
/// memory of their own.
struct Path {
    first: [Child; DEPTH],
    count: usize,
    more: Vec<Child>,
}

impl Path {
    #[inline]
    fn push(&mut self, child: Child) {
        match self.first.get_mut(self.count) {
            Some(place) => {
                *place = child;
                self.count += 1;
            }
            None => self.more.push(child),
        }
    }

    /// What `find` finds first, from the last one to the root.
    #[inline]
    fn find_back(&self, mut find: impl FnMut(Child) -> Option<u64>) -> Option<u64> {
        for child in self.more.iter().rev() {
            if let Some(found) = find(*child) {
                return Some(found);
            }
        }
        for child in self.first[..self.count].iter().rev() {
            if let Some(found) = find(*child) {
                return Some(found);
            }
        }
        None
    }
}

impl<K: Item + ?Sized> Art<K> {
    /// The value of the greatest key up to `key`; none if there is no such key. While others
    /// insert and delete near it, it may be the value of another key, or none. It may not be
    /// durable yet.
    #[inline]
    pub(crate) fn floor_hint(&self, key: &K) -> Option<u64> {
        let _guard = self.pool.enter();
        floor(&self.medium, self.root, key)
    }
}

/// As [`Art::floor_hint`], of the trie whose header is at `root`, while nobody writes.
pub(crate) fn floor_at<K: Item + ?Sized>(medium: &Medium, root: u64, key: &K) -> Option<u64> {
    floor(medium, root_at(root), key)
}

#[inline]
fn floor<K: Item + ?Sized>(medium: &Medium, root: Child, key: &K) -> Option<u64> {
    let mut path = Path {
        first: [Child::NONE; DEPTH],
        count: 0,
        more: Vec::new(),
    };
    let mut node = Node::new(medium, root)?;
    let mut from = 0;
    loop {
        let level = node.level();
        if level < from || (K::IS_WORD && level >= DEPTH) {
            return None;
        }
        match side::<K>(medium, &node, key, from)? {
            Ordering::Less => return last_below(medium, node.child),
            Ordering::Greater => return before_path(medium, &path, key),
            Ordering::Equal => {}
        }
        path.push(node.child);
        let branch = key::branch(key, level);
        node.prefetch(branch);
        let Some((_, child)) = node.find(branch) else {
            return before_path(medium, &path, key);
        };
        if child.is_leaf() {
            let leaf = LeafRef::new(medium, child.at())?;
            return if is_up_to(leaf, key)? {
                Some(leaf.value())
            } else {
                before_path(medium, &path, key)
            };
        }
        node = Node::new(medium, child)?;
        from = level + 1;
    }
}

/// Where the keys below a node stand to one that they share the bytes before `from` with, as far as
/// the bytes before the level of the node tell.
#[inline]
fn side<K: Item + ?Sized>(
    medium: &Medium,
    node: &Node<'_>,
    key: &K,
    from: usize,
) -> Option<Ordering> {
    let level = node.level();
    if K::IS_WORD || (key::len(key) >= level && level - from <= 8) {
        let mask = key::mask(level - from);
        return Some((node.before() & mask).cmp(&(key::before(key, level) & mask)));
    }
    side_of_long(medium, node, key, from)
}

/// As [`side`], where the node does not have all of the bytes, or the key has not so many: it is
/// compared with a key below the node.
#[cold]
fn side_of_long<K: Item + ?Sized>(
    medium: &Medium,
    node: &Node<'_>,
    key: &K,
    from: usize,
) -> Option<Ordering> {
    let other = some_key_below::<K>(medium, node.child)?;
    let other: &K = other.borrow();
    let theirs = other.bytes().get(from..node.level())?;
    let ours = key.bytes().get(from..)?;
    Some(theirs.cmp(&ours[..ours.len().min(theirs.len())]))
}

/// Whether the key of a leaf is not above another one.
#[inline]
fn is_up_to<K: Item + ?Sized>(leaf: LeafRef<'_>, key: &K) -> Option<bool> {
    if K::IS_WORD {
        return Some(leaf.word() <= key.word());
    }
    Some(leaf.key::<K>()?.borrow() <= key)
}

/// The value of the greatest key before those that a path leads to.
fn before_path<K: Item + ?Sized>(medium: &Medium, path: &Path, key: &K) -> Option<u64> {
    path.find_back(|child| {
        let node = Node::new(medium, child)?;
        let byte = key::branch(key, node.level())?;
        let before = node.child_before(usize::from(byte));
        last_below(medium, before.or_else(|| end(&node))?)
    })
}

/// The value of the greatest key below a child.
fn last_below(medium: &Medium, mut child: Child) -> Option<u64> {
    let mut from = 0;
    while !child.is_leaf() {
        let node = Node::new(medium, child)?;
        // Levels rise, or the trie is damaged.
        if node.level() < from {
            return None;
        }
        from = node.level() + 1;
        child = node.child_before(1 << 8).or_else(|| end(&node))?;
    }
    Some(LeafRef::new(medium, child.at())?.value())
}

/// The leaf of the key that ends at a node: the least of those below it.
fn end(node: &Node<'_>) -> Option<Child> {
    Some(node.end()).filter(|end| !end.is_none())
}
