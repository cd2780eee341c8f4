//! Nodes by number, in chunks that never move: growing costs no copy of what is there.
//!
//! Each chunk has room for twice as many nodes as the one before, so a small tree takes little
//! memory, and a large one lies in few pieces, for which the system is asked for large pages: a
//! search at random places then waits less for addresses to be translated. What no node was made in
//! takes no memory.

use std::ops::{Index, IndexMut};

use super::node::id_of;

const FIRST_BITS: u32 = 4;
/// Nodes of the first chunk.
const FIRST_NODES: usize = 1 << FIRST_BITS;

/// Nodes of one kind. A number is used again after its node was freed.
#[derive(Clone, Debug)]
pub(super) struct Arena<T> {
    chunks: Vec<Vec<T>>,
    /// Numbers given out so far, freed ones included.
    used: usize,
    free: Vec<u32>,
    empty: T,
}

/// The chunk of a node, and its place there.
#[inline]
fn place_of(id: u32) -> (usize, usize) {
    let number = id as usize + FIRST_NODES;
    let bits = number.ilog2();
    ((bits - FIRST_BITS) as usize, number - (1 << bits))
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
        let id = id_of(self.used);
        let (chunk, _) = place_of(id);
        if chunk == self.chunks.len() {
            let mut nodes = Vec::with_capacity(FIRST_NODES << chunk);
            gabion_media::prefer_large_pages(nodes.spare_capacity_mut());
            self.chunks.push(nodes);
        }
        self.chunks[chunk].push(self.empty.clone());
        self.used += 1;
        id
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
        self.used * size_of::<T>()
    }
}

impl<T> Index<u32> for Arena<T> {
    type Output = T;

    #[inline]
    fn index(&self, id: u32) -> &T {
        let (chunk, at) = place_of(id);
        &self.chunks[chunk][at]
    }
}

impl<T> IndexMut<u32> for Arena<T> {
    #[inline]
    fn index_mut(&mut self, id: u32) -> &mut T {
        let (chunk, at) = place_of(id);
        &mut self.chunks[chunk][at]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_places_belong_together_and_nodes_stay_where_they_are() {
        let mut arena = Arena::new(0_u64);
        let mut places = Vec::new();
        for number in 0..5_000_u32 {
            let id = arena.add();
            assert_eq!((id, arena[id]), (number, 0));
            arena[id] = u64::from(number) * 3;
            places.push(std::ptr::from_ref(&arena[id]));
        }
        for (number, place) in (0..).zip(places) {
            assert_eq!(arena[number], u64::from(number) * 3);
            assert!(std::ptr::eq(place, &raw const arena[number]));
        }
        arena.remove(77);
        assert_eq!((arena.len(), arena.add(), arena[77]), (4_999, 77, 0));
        assert_eq!(arena.memory_bytes(), 40_000);
    }
}
