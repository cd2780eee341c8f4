//! An arena of nodes in chunks that never move, so growing copies nothing. The number of a node is
//! its chunk and its place there.
//!
//! Each chunk has room for twice as many nodes as the one before, so a small tree takes little
//! memory, and a large one lies in few pieces, for which the system is asked for large pages: a
//! search at random places then waits less for addresses to be translated. What no node was made in
//! takes no memory. A freed number is given out again before others, the lowest chunks first; so
//! when there are far fewer nodes than there were, those of the last chunk, which is half of the
//! memory, can be moved to others, and it is given back.
//!
//! A page is cleared by the system when it is used first, which may take milliseconds for a large
//! one. Who must not wait for that asks [ahead](NodeArena::ahead) for what the next nodes take.

use std::ops::{Index, IndexMut};

use super::node::id_of;

const FIRST_BITS: u32 = 4;
/// Nodes of the first chunk.
const FIRST_NODES: usize = 1 << FIRST_BITS;

/// Nodes whose memory is asked for ahead: at least as many as a group of edits adds, as a rule.
const AHEAD_MIN: usize = 64;

/// How many more they become when there are fewer. Of leaves it is 128 KiB, or the rest of a large
/// page.
const AHEAD_MORE: usize = 2 * AHEAD_MIN;

/// Nodes of an arena that takes no memory ahead, at most: it has no large pages.
const SMALL_NODES: usize = 1 << 10;

/// Nodes of one kind. A number is used again after its node was freed.
#[derive(Clone, Debug)]
pub(super) struct NodeArena<T> {
    /// The first ones are in use.
    chunks: [Vec<T>; CHUNKS_MAX],
    /// Freed numbers, by chunk in use, and how many these are.
    free: Vec<Vec<u32>>,
    freed: usize,
    /// Numbers given out so far, freed ones included.
    used: usize,
    /// Numbers up to which the system was asked for memory.
    ready: usize,
    /// The next chunk, if it was made ahead.
    next: Option<Vec<T>>,
    empty: T,
}

/// What an arena needs for its next nodes.
#[derive(Debug)]
pub(super) struct ArenaReserve<T> {
    ready: usize,
    chunk: Option<Vec<T>>,
}

/// Bits of a name that are the node's place in its chunk; those above are the chunk. A search finds
/// the next node by a shift and a mask, and not by a logarithm.
const PLACE_BITS: u32 = 26;

/// Chunks at most: so many have more nodes than there are names.
const CHUNKS_MAX: usize = 32;

/// The chunk of a node, and its place there.
#[inline]
fn place_of(id: u32) -> (usize, usize) {
    let chunk = (id >> PLACE_BITS) as usize % CHUNKS_MAX;
    (chunk, (id & ((1 << PLACE_BITS) - 1)) as usize)
}

/// The chunk and the place there of the node that is made after so many others.
fn place_after(nodes: usize) -> (usize, usize) {
    let number = nodes + FIRST_NODES;
    let bits = number.ilog2();
    ((bits - FIRST_BITS) as usize, number - (1 << bits))
}

impl<T: Clone> NodeArena<T> {
    /// An arena whose new nodes are copies of `empty`.
    pub(super) fn new(empty: T) -> NodeArena<T> {
        NodeArena {
            chunks: [const { Vec::new() }; CHUNKS_MAX],
            free: Vec::new(),
            freed: 0,
            used: 0,
            ready: 0,
            next: None,
            empty,
        }
    }

    /// Memory for the nodes of a chunk.
    fn new_chunk(chunk: usize) -> Vec<T> {
        let mut nodes = Vec::with_capacity(FIRST_NODES << chunk);
        gabion_media::prefer_large_pages(nodes.spare_capacity_mut());
        nodes
    }

    /// Makes an empty node.
    pub(super) fn add(&mut self) -> u32 {
        if self.freed > 0
            && let Some(id) = self.free.iter_mut().find_map(Vec::pop)
        {
            self.freed -= 1;
            self[id] = self.empty.clone();
            return id;
        }
        let (chunk, at) = place_after(self.used);
        assert!(at >> PLACE_BITS == 0, "128 GiB of leaves at most");
        if chunk == self.free.len() {
            let next = self.next.take();
            let next = next.filter(|next| next.capacity() >= FIRST_NODES << chunk);
            self.chunks[chunk] = next.unwrap_or_else(|| Self::new_chunk(chunk));
            self.free.push(Vec::new());
        }
        self.chunks[chunk].push(self.empty.clone());
        self.used += 1;
        id_of(chunk << PLACE_BITS | at)
    }

    /// Has the system give memory for the next nodes, if there is little; the arena does not know
    /// of it before it [takes](NodeArena::take_ahead) what is returned. So this is done while
    /// others read, and takes memory for few nodes more than there are, however often it is done.
    pub(super) fn ahead(&self) -> Option<ArenaReserve<T>> {
        let left = self.freed + self.ready.saturating_sub(self.used);
        if self.used < SMALL_NODES || left >= AHEAD_MIN {
            return None;
        }
        let from = self.ready.max(self.used);
        let (chunk, at) = place_after(from);
        let to = (at + AHEAD_MORE).min(FIRST_NODES << chunk);
        let known = self.chunks[..self.free.len()].get(chunk);
        let known = known.or(self.next.as_ref());
        let made = known.is_none().then(|| Self::new_chunk(chunk));
        if let Some(nodes) = known.or(made.as_ref()) {
            gabion_media::populate(nodes, at..to);
        }
        Some(ArenaReserve {
            ready: from + (to - at),
            chunk: made,
        })
    }

    /// Takes what was asked for ahead.
    pub(super) fn take_ahead(&mut self, ahead: ArenaReserve<T>) {
        self.ready = self.ready.max(ahead.ready);
        if ahead.chunk.is_some() {
            self.next = ahead.chunk;
        }
    }

    /// Gives a node back.
    pub(super) fn remove(&mut self, id: u32) {
        self.free[place_of(id).0].push(id);
        self.freed += 1;
    }

    /// The last chunk, if the others have room for the nodes of all and a quarter of them is left,
    /// so that it is not needed again soon.
    fn spare_chunk(&self) -> Option<usize> {
        let last = self.free.len().checked_sub(1).filter(|last| *last > 0)?;
        let others = (FIRST_NODES << last) - FIRST_NODES;
        (self.len() <= others / 4 * 3).then_some(last)
    }

    /// Whether memory can be given back, when some nodes were [moved down](NodeArena::move_down).
    pub(super) fn has_spare_chunk(&self) -> bool {
        self.spare_chunk().is_some()
    }

    /// Moves a node out of a chunk that can be given back, and returns its new number.
    pub(super) fn move_down(&mut self, id: u32) -> Option<u32> {
        let last = self.spare_chunk().filter(|last| *last == place_of(id).0)?;
        let to = self.free[..last].iter_mut().find_map(Vec::pop)?;
        self.freed -= 1;
        let empty = self.empty.clone();
        self[to] = std::mem::replace(&mut self[id], empty);
        self.remove(id);
        Some(to)
    }

    /// Gives chunks up that have no node and are not needed soon, and moves them to `gone`: to give
    /// a large one back to the system takes long.
    pub(super) fn shrink(&mut self, gone: &mut Vec<Vec<T>>) {
        while let Some(last) = self.spare_chunk()
            && self.free[last].len() == self.chunks[last].len()
        {
            gone.extend(self.next.take());
            gone.push(std::mem::take(&mut self.chunks[last]));
            let freed = self.free.pop().map_or(0, |free| free.len());
            self.freed -= freed;
            self.used -= freed;
            self.ready = self.ready.min(self.used);
        }
    }

    /// Nodes in use.
    pub(super) fn len(&self) -> usize {
        self.used - self.freed
    }

    /// Whether memory was asked for ahead for all nodes that there are.
    #[cfg(test)]
    pub(super) fn is_ahead(&self) -> bool {
        self.used <= self.ready
    }

    /// Memory of the nodes in bytes, unused ones included.
    pub(super) fn memory_bytes(&self) -> usize {
        self.used * size_of::<T>()
    }
}

impl<T> Index<u32> for NodeArena<T> {
    type Output = T;

    #[inline]
    fn index(&self, id: u32) -> &T {
        let (chunk, at) = place_of(id);
        &self.chunks[chunk][at]
    }
}

impl<T> IndexMut<u32> for NodeArena<T> {
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
    fn names_and_places_belong_together_and_nodes_stay_where_they_are() {
        let mut arena = NodeArena::new(0_u64);
        let mut places = Vec::new();
        for number in 0..5_000_u64 {
            let id = arena.add();
            assert_eq!(arena[id], 0);
            assert!(places.last().is_none_or(|(last, _)| *last < id));
            arena[id] = number * 3;
            places.push((id, std::ptr::from_ref(&arena[id])));
        }
        for (number, (id, place)) in (0..).zip(&places) {
            assert_eq!(arena[*id], number * 3);
            assert!(std::ptr::eq(*place, &raw const arena[*id]));
        }
        let (id, _) = places[77];
        arena.remove(id);
        assert_eq!((arena.len(), arena.add(), arena[id]), (4_999, id, 0));
        assert_eq!(arena.memory_bytes(), 40_000);
    }

    #[test]
    fn memory_of_few_nodes_is_given_back() {
        let mut arena = NodeArena::new(0_u64);
        let mut ids: Vec<u32> = (0..5_000_u64)
            .map(|number| {
                let id = arena.add();
                arena[id] = number;
                id
            })
            .collect();
        // Every tenth one stays.
        for (number, id) in ids.iter().enumerate() {
            if number % 10 != 0 {
                arena.remove(*id);
            }
        }
        let mut gone = Vec::new();
        arena.shrink(&mut gone);
        assert!(gone.is_empty());
        assert_eq!((arena.len(), arena.memory_bytes()), (500, 40_000));
        let mut kept: Vec<u32> = ids.drain(..).step_by(10).collect();
        while arena.has_spare_chunk() {
            for id in &mut kept {
                if let Some(lower) = arena.move_down(*id) {
                    assert!(lower < *id);
                    *id = lower;
                }
            }
            arena.shrink(&mut gone);
        }
        let gone_len: Vec<usize> = gone.iter().map(Vec::len).collect();
        assert_eq!(gone_len, [5_000 - 4_080, 2_048, 1_024]);
        for (number, id) in (0..).zip(&kept) {
            assert_eq!(arena[*id], number * 10);
        }
        // Room for 16 + 32 + 64 + 128 + 256 + 512, of which less than three quarters were others'.
        assert_eq!((arena.len(), arena.memory_bytes()), (500, 1_008 * 8));
        let added: Vec<u32> = (0..600).map(|_| arena.add()).collect();
        let all: std::collections::BTreeSet<_> = added.iter().chain(&kept).collect();
        assert_eq!((all.len(), arena.len()), (1_100, 1_100));
        all.into_iter().for_each(|id| arena.remove(*id));
        arena.shrink(&mut gone);
        assert_eq!((gone.len(), arena.memory_bytes()), (9, FIRST_NODES * 8));
    }

    #[test]
    fn memory_is_asked_for_ahead_of_the_nodes_and_not_far_ahead() {
        let mut arena = NodeArena::new([0_u64; 64]);
        while arena.len() < SMALL_NODES {
            assert!(arena.ahead().is_none());
            arena.add();
        }
        let mut made = Vec::new();
        while arena.len() < 40_000 {
            while let Some(ahead) = arena.ahead() {
                made.extend(ahead.chunk.as_ref().map(|chunk| chunk.as_ptr().addr()));
                arena.take_ahead(ahead);
            }
            assert!(arena.ready <= arena.used + AHEAD_MIN + AHEAD_MORE);
            // As many as are asked for at least, now and then, and some are freed.
            for number in 0..=arena.len() % AHEAD_MIN {
                let id = arena.add();
                if number % 8 == 3 {
                    arena.remove(id);
                }
            }
            assert!(arena.is_ahead());
        }
        let chunks = arena.chunks[..arena.free.len()]
            .iter()
            .map(|chunk| chunk.as_ptr().addr());
        let chunks: Vec<usize> = chunks.skip_while(|chunk| *chunk != made[0]).collect();
        assert_eq!(chunks.len(), 5);
        assert_eq!(chunks, made);
    }

    #[test]
    fn what_was_asked_for_ahead_goes_with_the_chunks_before_it() {
        let mut arena = NodeArena::new(0_u64);
        // As far as to a few nodes before the end of a chunk.
        let ids: Vec<u32> = (0..FIRST_NODES * 255 - AHEAD_MIN / 2)
            .map(|_| arena.add())
            .collect();
        while let Some(ahead) = arena.ahead() {
            arena.take_ahead(ahead);
        }
        assert!(arena.next.is_some());
        ids.iter().for_each(|id| arena.remove(*id));
        assert!(arena.ahead().is_none());
        let mut gone = Vec::new();
        arena.shrink(&mut gone);
        assert!(arena.next.is_none());
        assert_eq!((gone.len(), arena.ready, arena.used), (8, 16, 16));
        // What was made for a smaller arena does not do for a larger one.
        arena.next = Some(Vec::with_capacity(FIRST_NODES));
        for _ in 0..100 {
            arena.add();
        }
        assert_eq!(arena.chunks[1].capacity(), 2 * FIRST_NODES);
    }
}
