//! A node: how children are found in it, added, replaced and taken away.
//!
//! No node counts its children. A child of a node of 4 or 16 is there if its word is not 0, so its
//! key byte may be written before; one of a node of 48 is there if a byte of the index has its
//! number, so its word may be written before. So each change is one store of 8 bytes, and nothing
//! can disagree with anything after a crash. A slot of a node of 48 whose word is not 0 although no
//! byte names it is what a crash left of a change; it is found when the node seems full.

use std::sync::atomic::Ordering;

use gabion_media::pmem::{Medium, PAtomicU64, POff};
use gabion_media::prefetch_line;

use super::key::Branch;
use super::layout::{Child, DEAD, Head, Kind, Node4, Node16, Node48, Node256};
use super::shape::SortedChildren;
use super::stretch::ChildRange;
use crate::tags;

/// A node, as it lies in the pool.
#[derive(Clone, Copy)]
pub(super) struct Node<'a> {
    pub(super) head: &'a Head,
    body: Body<'a>,
    /// The reference to it.
    pub(super) child: Child,
}

#[derive(Clone, Copy)]
enum Body<'a> {
    Of4(&'a Node4),
    Of16(&'a Node16),
    Of48(&'a Node48),
    Of256(&'a Node256),
}

/// A slot that a child may be put into.
pub(super) enum ChildSlot<'a> {
    /// The child becomes reachable when it is stored.
    Word(&'a PAtomicU64),
    /// The child goes into the first word, and becomes reachable by the second value in the second
    /// word.
    Indexed(&'a PAtomicU64, &'a PAtomicU64, u64),
}

/// A word of key bytes or of an index with the byte at `at` replaced.
fn with_byte(word: u64, at: usize, byte: u8) -> u64 {
    let shift = at % 8 * 8;
    word & !(0xff << shift) | u64::from(byte) << shift
}

#[inline]
pub(super) fn byte_of(word: u64, at: usize) -> u8 {
    (word >> (at % 8 * 8) & 0xff) as u8
}

// ORDER: Acquire throughout: pairs with the releasing stores below.
#[inline]
pub(super) fn load(word: &PAtomicU64) -> u64 {
    word.peek(Ordering::Acquire)
}

impl<'a> Node<'a> {
    /// The node that a child refers to; none if it refers to none.
    #[inline]
    pub(super) fn new(medium: &'a Medium, child: Child) -> Option<Node<'a>> {
        let at = child.at();
        let (head, body) = match child.kind() {
            Kind::None | Kind::Leaf => return None,
            Kind::Node4 => {
                let node: &Node4 = medium.try_at(POff::new(at))?;
                (&node.head, Body::Of4(node))
            }
            Kind::Node16 => {
                let node: &Node16 = medium.try_at(POff::new(at))?;
                (&node.head, Body::Of16(node))
            }
            Kind::Node48 => {
                let node: &Node48 = medium.try_at(POff::new(at))?;
                (&node.head, Body::Of48(node))
            }
            Kind::Node256 => {
                let node: &Node256 = medium.try_at(POff::new(at))?;
                (&node.head, Body::Of256(node))
            }
        };
        medium.touch(head);
        Some(Node { head, body, child })
    }

    /// The node's offset, by which it is locked.
    #[inline]
    pub(super) fn at(&self) -> u64 {
        self.child.at()
    }

    /// Bytes of a key before the one that decides here. It never changes.
    #[inline]
    pub(super) fn level(&self) -> usize {
        (load(&self.head.state) & 0xffff_ffff) as usize
    }

    /// Whether another node has taken its place.
    #[inline]
    pub(super) fn is_dead(&self) -> bool {
        load(&self.head.state) & DEAD != 0
    }

    /// The eight bytes before the level. They never change.
    #[inline]
    pub(super) fn before(&self) -> u64 {
        load(&self.head.before)
    }

    /// The word with the child of a branch, and the child.
    #[inline]
    pub(super) fn find(&self, branch: Branch) -> Option<(&'a PAtomicU64, Child)> {
        let Some(byte) = branch else {
            return there(&self.head.end);
        };
        match self.body {
            Body::Of4(node) => {
                let keys = load(&node.keys);
                let mut children = node.children.iter().enumerate();
                children.find_map(|(slot, child)| {
                    (byte_of(keys, slot) == byte).then(|| there(child))?
                })
            }
            Body::Of16(node) => {
                let keys = [load(&node.keys[0]), load(&node.keys[1])];
                let mut matches = tags::match_16(keys, byte);
                while matches != 0 {
                    let found = there(&node.children[matches.trailing_zeros() as usize & 15]);
                    if found.is_some() {
                        return found;
                    }
                    matches &= matches - 1;
                }
                None
            }
            Body::Of48(node) => {
                let index = load(&node.index[usize::from(byte / 8)]);
                let slot = usize::from(byte_of(index, usize::from(byte))).checked_sub(1)?;
                there(node.children.get(slot)?)
            }
            Body::Of256(node) => there(&node.children[usize::from(byte)]),
        }
    }

    /// Asks for the lines that a search for a branch needs.
    #[inline]
    pub(super) fn prefetch(&self, branch: Branch) {
        if let (Body::Of256(node), Some(byte)) = (self.body, branch) {
            prefetch_line(std::ptr::from_ref(&node.children[usize::from(byte)]).cast());
        }
    }

    /// All children with their bytes, in order, without the end.
    pub(super) fn children(&self) -> Vec<(u8, Child)> {
        let mut children = Vec::with_capacity(self.child.kind().room());
        let mut stretch = ChildRange::of(None, Child::NONE);
        while !stretch.is_last() {
            stretch = self.stretch(stretch.next());
            let bytes = stretch.children().iter();
            children.extend(bytes.filter_map(|(branch, child)| Some(((*branch)?, *child))));
        }
        children
    }

    /// Some children from a place on, in order. Whoever changes the node meanwhile may make it look
    /// as if a child had another byte.
    pub(super) fn stretch(&self, from: usize) -> ChildRange {
        let mut stretch = ChildRange::begin(from, self.end());
        match self.body {
            Body::Of4(node) => {
                stretch.add_sorted(std::slice::from_ref(&node.keys), &node.children);
            }
            Body::Of16(node) => stretch.add_sorted(&node.keys, &node.children),
            Body::Of48(node) => stretch.add_indexed(&node.index, &node.children),
            Body::Of256(node) => stretch.add_direct(&node.children),
        }
        stretch
    }

    /// The child of the greatest byte below one, or of all if that is 256.
    pub(super) fn child_before(&self, byte: usize) -> Option<Child> {
        let last = |keys: &[PAtomicU64], children: &[PAtomicU64]| {
            let children = children.iter().enumerate();
            let there = children.filter_map(|(slot, child)| {
                let key = usize::from(byte_of(load(&keys[slot / 8]), slot));
                (key < byte).then_some((key, there(child)?.1))
            });
            there.max_by_key(|(key, _)| *key).map(|(_, child)| child)
        };
        match self.body {
            Body::Of4(node) => last(std::slice::from_ref(&node.keys), &node.children),
            Body::Of16(node) => last(&node.keys, &node.children),
            Body::Of48(node) => (0..byte).rev().find_map(|byte| {
                let index = load(node.index.get(byte / 8)?);
                let slot = usize::from(byte_of(index, byte)).checked_sub(1)?;
                Some(there(node.children.get(slot)?)?.1)
            }),
            Body::Of256(node) => {
                let children = node.children.get(..byte)?.iter().rev();
                children
                    .map(|child| Child(load(child)))
                    .find(|child| !child.is_none())
            }
        }
    }

    /// The end, if it is there.
    pub(super) fn end(&self) -> Child {
        Child(load(&self.head.end))
    }

    /// Some child: the first, or the end.
    pub(super) fn first(&self) -> Option<Child> {
        let end = Some(self.end()).filter(|end| !end.is_none());
        end.or_else(|| self.children().first().map(|(_, child)| *child))
    }

    /// Makes what a search for a branch saw durable, but for the fence.
    #[cold]
    #[track_caller]
    pub(super) fn flush(&self, medium: &Medium, branch: Branch) {
        match (self.body, branch) {
            (_, None) => medium.flush(&self.head.end),
            (Body::Of4(node), _) => medium.flush(node),
            (Body::Of16(node), _) => medium.flush(&node.children),
            (Body::Of48(node), Some(byte)) => {
                medium.flush(&node.index[usize::from(byte / 8)]);
                medium.flush(&node.children);
            }
            (Body::Of256(node), Some(byte)) => medium.flush(&node.children[usize::from(byte)]),
        }
    }
}

/// A word with a child, if one is there.
#[inline]
fn there(word: &PAtomicU64) -> Option<(&PAtomicU64, Child)> {
    let child = Child(load(word));
    (!child.is_none()).then_some((word, child))
}

// ORDER: Release throughout: pairs with the acquiring loads above.
impl<'a> Node<'a> {
    /// Finds a free slot for a branch that has no child, and prepares it; none if all are taken.
    /// What was stored is durable with the next fence.
    pub(super) fn prepare(&self, medium: &Medium, branch: Branch) -> Option<ChildSlot<'a>> {
        let Some(byte) = branch else {
            return Some(ChildSlot::Word(&self.head.end));
        };
        match self.body {
            Body::Of4(node) => {
                let slot = free_slot(&node.children)?;
                let keys = with_byte(load(&node.keys), slot, byte);
                // In the line of the child, so on the medium when the child is.
                node.keys.store(medium, keys, Ordering::Release);
                Some(ChildSlot::Word(&node.children[slot]))
            }
            Body::Of16(node) => {
                let slot = free_slot(&node.children)?;
                let word = &node.keys[slot / 8];
                let keys = with_byte(load(word), slot, byte);
                word.store(medium, keys, Ordering::Release);
                medium.flush(word);
                Some(ChildSlot::Word(&node.children[slot]))
            }
            Body::Of48(node) => {
                let slot = free_slot(&node.children).or_else(|| {
                    sweep(medium, node);
                    free_slot(&node.children)
                })?;
                let word = &node.index[usize::from(byte / 8)];
                let number = u8::try_from(slot + 1).ok()?;
                let index = load(word);
                let index = with_byte(index, usize::from(byte), number);
                Some(ChildSlot::Indexed(&node.children[slot], word, index))
            }
            Body::Of256(node) => Some(ChildSlot::Word(&node.children[usize::from(byte)])),
        }
    }

    /// Puts another child in the place of that of a branch, durably.
    pub(super) fn replace(&self, medium: &Medium, branch: Branch, new: Child) {
        if let Some((child, _)) = self.find(branch) {
            // DURABLE: what it leads to, by the fence before; this, by the persist.
            child.store_persist(medium, new.0, Ordering::Release);
        }
    }

    /// Takes the child of a branch away, durably.
    pub(super) fn unlink(&self, medium: &Medium, branch: Branch) {
        let Some((child, _)) = self.find(branch) else {
            return;
        };
        if let (Body::Of48(node), Some(byte)) = (self.body, branch) {
            let word = &node.index[usize::from(byte / 8)];
            let index = with_byte(load(word), usize::from(byte), 0);
            // DURABLE: the delete, before the slot looks free.
            word.store_persist(medium, index, Ordering::Release);
            child.store(medium, 0, Ordering::Release);
        } else {
            // DURABLE: the delete.
            child.store_persist(medium, 0, Ordering::Release);
        }
    }

    /// Says that the node is given up. Nothing leads here any more, and that is durable.
    pub(super) fn give_up(&self, medium: &Medium) {
        let state = load(&self.head.state) | DEAD;
        self.head.state.store(medium, state, Ordering::Release);
    }

    /// What the node has without the child of a branch, if that is few enough for a smaller node,
    /// or none. A look at some words tells in most cases that it is not.
    pub(super) fn form_without(&self, branch: Branch) -> Option<SortedChildren> {
        let may_be = match (self.body, branch) {
            (Body::Of4(node), _) => filled(&node.children) <= 2,
            (Body::Of16(node), _) => filled(&node.children) <= 4,
            // Slots that a crash left are swept when the node seems full.
            (Body::Of48(node), _) => filled(&node.children) <= 13,
            // A line of eight children that will have none: every node of few children has such
            // lines, and comes to one at the latest eight deletes after it should.
            (Body::Of256(node), Some(byte)) => {
                let first = usize::from(byte) / 8 * 8;
                filled(&node.children[first..first + 8]) <= 1
            }
            (Body::Of256(_), None) => true,
        };
        if !may_be {
            return None;
        }
        let mut form = SortedChildren {
            end: self.end(),
            children: self.children(),
        };
        match branch {
            None => form.end = Child::NONE,
            Some(byte) => form.children.retain(|(other, _)| *other != byte),
        }
        self.is_too_large_for(&form).then_some(form)
    }

    /// Whether a smaller node, or none, is to hold these children.
    pub(super) fn is_too_large_for(&self, form: &SortedChildren) -> bool {
        let count = form.children.len();
        match self.body {
            Body::Of4(_) => form.count() <= 1,
            Body::Of16(_) => count <= 3,
            Body::Of48(_) => count <= 12,
            Body::Of256(_) => count <= 40,
        }
    }
}

fn filled(children: &[PAtomicU64]) -> usize {
    children.iter().filter(|child| load(child) != 0).count()
}

// ORDER: Release throughout: as above.
impl ChildSlot<'_> {
    /// Writes a child where it is not reachable yet, if there is such a place. Durable with the
    /// next fence.
    pub(super) fn write(&self, medium: &Medium, child: Child) {
        if let ChildSlot::Indexed(slot, ..) = self {
            slot.store(medium, child.0, Ordering::Release);
            medium.flush(*slot);
        }
    }

    /// Makes the child reachable, durably.
    pub(super) fn publish(&self, medium: &Medium, child: Child) {
        // DURABLE: the child and what was prepared, by the fence before; this, by the persist.
        match self {
            ChildSlot::Word(word) => word.store_persist(medium, child.0, Ordering::Release),
            ChildSlot::Indexed(_, word, index) => {
                word.store_persist(medium, *index, Ordering::Release);
            }
        }
    }
}

fn free_slot(children: &[PAtomicU64]) -> Option<usize> {
    children.iter().position(|child| load(child) == 0)
}

/// Empties the slots that no byte names.
#[cold]
fn sweep(medium: &Medium, node: &Node48) {
    let named: Vec<u8> = node
        .index
        .iter()
        .flat_map(|word| load(word).to_le_bytes())
        .collect();
    for (number, child) in (1..=48_u8).zip(&node.children) {
        if !named.contains(&number) {
            // ORDER: Release: as above.
            child.store(medium, 0, Ordering::Release);
        }
    }
}
