//! A node: its key, its value and its links.

use std::sync::atomic::Ordering;

use gabion_media::pmem::{Medium, PAtomicU64, POff};

use super::layout::{DEAD, FACE_BYTES, HEIGHT, LEN_SHIFT, LEVELS, NodeHead};
use crate::Item;
use crate::stored_key::{KeyParts, StoredKey, rest_len};

/// A node, as it lies in the pool.
#[derive(Clone, Copy)]
pub(super) struct Node<'a> {
    pub(super) face: &'a NodeHead,
    links: &'a [PAtomicU64],
    /// The node's offset, by which it is locked.
    pub(super) at: u64,
}

// ORDER: Acquire throughout: pairs with the releasing stores below.
impl<'a> Node<'a> {
    /// The node at an offset, if there can be one.
    #[inline]
    pub(super) fn new(medium: &'a Medium, at: u64) -> Option<Node<'a>> {
        let face: &NodeHead = medium.try_at(POff::new(at))?;
        let state = face.state.peek(Ordering::Acquire);
        let height = (state & HEIGHT) as usize;
        if height == 0 || height > LEVELS {
            return None;
        }
        let links = medium.try_slice(POff::new(at + FACE_BYTES), height)?;
        medium.touch_range(at, FACE_BYTES + 8 * height as u64);
        let node = Node { face, links, at };
        (at + node.bytes() <= medium.len()).then_some(node)
    }

    /// The head at an offset.
    #[inline]
    pub(super) fn head(medium: &'a Medium, at: u64) -> Node<'a> {
        let links: &[PAtomicU64; LEVELS] = medium.at(POff::new(at + FACE_BYTES));
        medium.touch(links);
        Node {
            face: medium.at(POff::new(at)),
            links,
            at,
        }
    }

    /// Levels that the node is high enough for.
    #[inline]
    pub(super) fn height(&self) -> usize {
        self.links.len()
    }

    /// Bytes of the node.
    pub(super) fn bytes(&self) -> u64 {
        let stored = self.stored();
        stored.rest - self.at + rest_len(stored.len)
    }

    /// Whether the node was taken out. Under its lock this stays as it is.
    #[inline]
    pub(super) fn is_dead(&self) -> bool {
        self.face.state.peek(Ordering::Acquire) & DEAD != 0
    }

    /// The offset of the next node of a level, 0 if there is none. A node that is too low has none.
    #[inline]
    pub(super) fn next(&self, level: usize) -> u64 {
        let link = self.links.get(level);
        link.map_or(0, |link| link.peek(Ordering::Acquire))
    }

    /// The value.
    #[inline]
    pub(super) fn value(&self) -> u64 {
        self.face.value.peek(Ordering::Acquire)
    }

    /// The key, in its parts.
    #[inline]
    pub(super) fn stored(&self) -> StoredKey {
        let state = self.face.state.peek(Ordering::Acquire);
        StoredKey {
            word: self.face.word.peek(Ordering::Acquire),
            len: state >> LEN_SHIFT,
            rest: self.at + FACE_BYTES + 8 * self.links.len() as u64,
        }
    }

    /// The key.
    pub(super) fn key<K: Item + ?Sized>(&self, medium: &Medium) -> Option<K::Owned> {
        self.stored().key::<K>(medium)
    }

    /// Makes the link of a level durable, but for the fence.
    #[cold]
    #[track_caller]
    pub(super) fn flush_link(&self, medium: &Medium, level: usize) {
        medium.flush(&self.links[level]);
    }
}

// ORDER: Release throughout: pairs with the acquiring loads above.
impl Node<'_> {
    /// Lets a link lead elsewhere, for the holder of the lock.
    #[inline]
    #[track_caller]
    pub(super) fn link(&self, medium: &Medium, level: usize, next: u64) {
        self.links[level].store(medium, next, Ordering::Release);
    }

    /// Lets a link lead elsewhere, and flushes it.
    #[inline]
    #[track_caller]
    pub(super) fn link_and_flush(&self, medium: &Medium, level: usize, next: u64) {
        self.link(medium, level, next);
        medium.flush(&self.links[level]);
    }

    /// Says that the node was taken out. Nothing leads here any more, and that is durable.
    pub(super) fn give_up(&self, medium: &Medium) {
        // ORDER: Relaxed: only the holder of the lock changes it.
        let state = self.face.state.peek(Ordering::Relaxed) | DEAD;
        self.face.state.store(medium, state, Ordering::Release);
    }
}

/// The bytes of a new node.
pub(super) fn image(key: &KeyParts<'_>, value: u64, nexts: &[u64]) -> Vec<u8> {
    let state = nexts.len() as u64 | key.len << LEN_SHIFT;
    let words = [state, value, key.word].into_iter();
    let words = words.chain(nexts.iter().copied());
    let mut bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
    bytes.extend_from_slice(key.rest);
    bytes
}
