//! Reads: through the router to a node, to its write buffer and its leaf, without locks.
//!
//! In a tree of strings, who searches or reads has pins from before the search until it has copied
//! what it wants.

use std::cmp::Ordering;

use super::bloom::tag_of;
use super::leaf::Leaf;
use super::mnode::{LockedNode, Mnode};
use super::router::SearchStart;
use super::{SpTree, TreeKey};
use crate::stored_key::KeyParts;
use crate::{Error, Result};

/// Steps along the links before the router is asked again, and how often that is done: a router
/// that leads astray has no memory for more.
const STEPS_MAX: u32 = 8;
const TURNS_MAX: u32 = 4;

/// A search for the node of a key.
pub(super) struct NodeSearch<'a, 'k, K: TreeKey + ?Sized, const N: usize> {
    tree: &'a SpTree<K, N>,
    key: &'k K,
    number: u64,
    steps: u32,
    turns: u32,
}

/// A node whose range holds the key, as it was seen.
#[derive(Clone, Copy)]
pub(super) struct NodeView<'a> {
    pub(super) node: &'a Mnode,
    pub(super) number: u64,
    /// Its word.
    pub(super) word: u64,
    /// The bound that all its keys are below, unless it has no neighbour.
    pub(super) hkey: u64,
    /// Number of its right neighbour plus one, 0 without one.
    pub(super) next: u64,
}

impl<'a, 'k, K: TreeKey + ?Sized, const N: usize> NodeSearch<'a, 'k, K, N> {
    /// Begins where the router says, and asks for the lines that a lookup needs.
    #[inline]
    pub(super) fn new(tree: &'a SpTree<K, N>, key: &'k K) -> NodeSearch<'a, 'k, K, N> {
        let number = tree.route(key);
        NodeSearch::at(tree, key, number)
    }

    /// Begins at a node.
    #[inline]
    pub(super) fn at(tree: &'a SpTree<K, N>, key: &'k K, number: u64) -> NodeSearch<'a, 'k, K, N> {
        NodeSearch {
            tree,
            key,
            number,
            steps: 0,
            turns: 0,
        }
    }

    /// Has the run recovered that a raw node stands for, after which the router knows more. A node
    /// that is not in use makes the search begin again.
    #[cold]
    fn wait_for(&mut self, node: &Mnode) -> Result<()> {
        if node.is_raw() {
            self.tree.recover_run(self.number)?;
            self.number = self.tree.route(self.key);
        } else {
            self.restart();
        }
        Ok(())
    }

    /// Begins again where the router says; or with the first node, which is always there.
    #[cold]
    fn restart(&mut self) {
        self.steps = 0;
        self.turns += 1;
        self.number = if self.turns <= TURNS_MAX {
            self.tree.route(self.key)
        } else {
            0
        };
    }

    /// The node whose range holds the key. Asked again, it looks again from there on.
    ///
    /// # Errors
    /// Damage on the medium, in leaves that were not recovered yet.
    #[inline]
    pub(super) fn node(&mut self) -> Result<NodeView<'a>> {
        self.node_with(|search, node, hkey, next| {
            if search.stands_to(node.lkey()) == Ordering::Less {
                Some(node.prev())
            } else if next != 0 && search.stands_to(hkey) != Ordering::Less {
                Some(next)
            } else {
                None
            }
        })
    }

    /// The node whose range holds what is next below the key.
    pub(super) fn node_before(&mut self) -> Result<NodeView<'a>> {
        self.node_with(|search, node, hkey, next| {
            let is_first = search.number == 0;
            if !is_first && search.stands_to(node.lkey()) != Ordering::Greater {
                Some(node.prev())
            } else if next != 0 && search.stands_to(hkey) == Ordering::Greater {
                Some(next)
            } else {
                None
            }
        })
    }

    /// The node at which `choose` does not want another one, which is told a node with its hkey and
    /// the link to its right neighbour.
    #[inline]
    fn node_with(
        &mut self,
        choose: impl Fn(&Self, &Mnode, u64, u64) -> Option<u64>,
    ) -> Result<NodeView<'a>> {
        loop {
            let number = self.number;
            let Some(node) = self.tree.nodes.get(number) else {
                self.number = 0;
                continue;
            };
            let Some(word) = node.look() else {
                self.wait_for(node)?;
                continue;
            };
            let (hkey, next) = (node.hkey(), node.next());
            let Some(link) = choose(self, node, hkey, next) else {
                return Ok(NodeView {
                    node,
                    number,
                    word,
                    hkey,
                    next,
                });
            };
            self.step(node, word, link);
        }
    }

    /// Where the key stands to a bound.
    #[inline]
    fn stands_to(&self, bound: u64) -> Ordering {
        let order = self.tree.router.compare(bound, &KeyParts::of(self.key));
        order.reverse()
    }

    /// Goes to a neighbour.
    #[cold]
    fn step(&mut self, node: &Mnode, word: u64, link: u64) {
        if !node.is_still(word) {
            return;
        }
        self.steps += 1;
        if self.steps >= STEPS_MAX && self.turns < TURNS_MAX {
            self.restart();
        } else {
            // The first node has no left neighbour, and no key is before it.
            self.number = link.saturating_sub(1);
        }
    }

    /// The node whose range holds the key, locked.
    #[inline]
    pub(super) fn lock(&mut self) -> Result<LockedNode<'a>> {
        loop {
            let seen = self.node()?;
            if let Some(locked) = seen.node.lock_seen(seen.number, seen.word) {
                return Ok(locked);
            }
        }
    }
}

impl<K: TreeKey + ?Sized, const N: usize> SpTree<K, N> {
    /// The number of the node to begin with.
    #[inline]
    fn route(&self, key: &K) -> u64 {
        let Some(SearchStart { node, leaf }) = self.router.find(key) else {
            return 0;
        };
        self.nodes.prefetch(node);
        if !self.saves_reads {
            Leaf::<N>::prefetch(&self.medium, leaf);
        }
        node
    }

    /// The leaf at an offset.
    #[inline]
    pub(super) fn leaf(&self, at: u64) -> Result<Leaf<'_, N>> {
        Leaf::new(&self.medium, at)
            .ok_or_else(|| Error::damaged("the place of a leaf of an SPTree", at))
    }

    /// What `read` makes of the second word of the pair of `key`. It may be called more than once.
    ///
    /// # Errors
    /// Damage on the medium.
    #[inline]
    pub(super) fn look_up<R>(
        &self,
        key: &K,
        mut read: impl FnMut(u64) -> Result<R>,
    ) -> Result<Option<R>> {
        let hash = key.seeded_hash(&self.seed);
        let mut search = NodeSearch::new(self, key);
        loop {
            let NodeView { node, word, .. } = search.node()?;
            let mut found = Ok(None);
            if node.bloom.may_hold(hash) {
                let buffer = self.buffer_of(node);
                let buffered = buffer.and_then(|buffer| buffer.find(key.word(), tag_of(hash)));
                // A leaf that was given up meanwhile may be anything, and is found out below.
                found = match buffered {
                    Some((_, value)) => read(value).map(Some),
                    None => self.leaf(node.leaf()).and_then(|leaf| {
                        let slot = leaf.find(key, tag_of(hash))?;
                        slot.map(|slot| read(leaf.value(slot))).transpose()
                    }),
                };
            }
            // Nobody wrote meanwhile; and whoever wrote before has made it durable.
            if node.is_still(word) {
                return found;
            }
        }
    }
}

impl<const N: usize> SpTree<u64, N> {
    /// The value of `key`.
    ///
    /// # Errors
    /// Damage on the medium.
    #[inline]
    pub fn get(&self, key: u64) -> Result<Option<u64>> {
        self.look_up(&key, Ok)
    }
}
