//! Nodes by number, in chunks that never move: growing costs no copy of what is there.

use std::ops::{Index, IndexMut};

use super::node::id_of;

const CHUNK_BITS: u32 = 8;
const CHUNK_NODES: usize = 1 << CHUNK_BITS;

/// Nodes of one kind. A number is used again after its node was freed.
#[derive(Clone, Debug)]
pub(super) struct Arena<T> {
    chunks: Vec<Box<[T]>>,
    /// Numbers given out so far, freed ones included.
    used: usize,
    free: Vec<u32>,
    empty: T,
}

impl<T: Clone> Arena<T> {
    /// An arena whose new nodes are copies of `empty`.
    pub(super) fn new(empty: T) -> Arena<T> {
        Arena {
            chunks: Vec::new(),
            used: 0,
            free: Vec::new(),
            empty,
        }
    }

    /// Makes an empty node.
    pub(super) fn add(&mut self) -> u32 {
        if let Some(id) = self.free.pop() {
            self[id] = self.empty.clone();
            return id;
        }
        if self.used == self.chunks.len() * CHUNK_NODES {
            let chunk = vec![self.empty.clone(); CHUNK_NODES];
            self.chunks.push(chunk.into_boxed_slice());
        }
        self.used += 1;
        id_of(self.used - 1)
    }

    /// Gives a node back.
    pub(super) fn remove(&mut self, id: u32) {
        self.free.push(id);
    }

    /// Nodes in use.
    pub(super) fn len(&self) -> usize {
        self.used - self.free.len()
    }

    /// Memory of the nodes in bytes, unused ones included.
    pub(super) fn memory_bytes(&self) -> usize {
        self.chunks.len() * CHUNK_NODES * size_of::<T>()
    }
}

impl<T> Index<u32> for Arena<T> {
    type Output = T;

    #[inline]
    fn index(&self, id: u32) -> &T {
        &self.chunks[(id >> CHUNK_BITS) as usize][id as usize % CHUNK_NODES]
    }
}

impl<T> IndexMut<u32> for Arena<T> {
    #[inline]
    fn index_mut(&mut self, id: u32) -> &mut T {
        &mut self.chunks[(id >> CHUNK_BITS) as usize][id as usize % CHUNK_NODES]
    }
}
