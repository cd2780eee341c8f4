//! The parts of a generation, by the numbers of their keyspaces.
//!
//! # Idea
//! Whoever reads finds the part of a keyspace without a lock, and one comes with the first write to
//! its keyspace. A list that is replaced by a longer one each time would cost the square of the
//! number of keyspaces in every generation. So parts have places in *blocks* of neighbouring
//! numbers: a part fills its place, and only a new block makes a new list.

use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;

use crate::engine::keyspaces::position;

/// Places in a block: a kilobyte.
const PLACES: u32 = 64;

/// What each keyspace has of something, ascending by their numbers. One thread at a time adds.
pub(super) struct PerKeyspace<T>(ArcSwap<Vec<Arc<Block<T>>>>);

struct Block<T> {
    /// Numbers of keyspaces divided by [`PLACES`].
    number: u32,
    places: [OnceLock<Arc<T>>; PLACES as usize],
}

impl<T> Default for PerKeyspace<T> {
    fn default() -> PerKeyspace<T> {
        PerKeyspace(ArcSwap::default())
    }
}

impl<T> Block<T> {
    fn place(&self, keyspace: u32) -> Option<&OnceLock<Arc<T>>> {
        self.places.get((keyspace % PLACES) as usize)
    }
}

impl<T> PerKeyspace<T> {
    /// Calls `read` with what a keyspace has, if it has anything.
    #[inline]
    pub(super) fn with<R>(&self, keyspace: u32, read: impl FnOnce(&Arc<T>) -> R) -> Option<R> {
        let blocks = self.0.load();
        let at = position(&blocks, keyspace / PLACES, |block| block.number).ok()?;
        blocks.get(at)?.place(keyspace)?.get().map(read)
    }

    /// What a keyspace has, made if it has nothing yet.
    pub(super) fn get_or_add(&self, keyspace: u32, make: impl FnOnce() -> T) -> Arc<T> {
        let number = keyspace / PLACES;
        let mut blocks = self.0.load_full();
        let at = match position(&blocks, number, |block| block.number) {
            Ok(at) => at,
            Err(at) => {
                let places = std::array::from_fn(|_| OnceLock::new());
                #[cfg(test)]
                COPIES.set(COPIES.get() + blocks.len());
                let longer = Arc::make_mut(&mut blocks);
                longer.insert(at, Arc::new(Block { number, places }));
                self.0.store(Arc::clone(&blocks));
                at
            }
        };
        let place = blocks.get(at).and_then(|block| block.place(keyspace));
        let place = place.expect("a block has a place for each of its numbers");
        Arc::clone(place.get_or_init(|| Arc::new(make())))
    }

    /// What all keyspaces have.
    pub(super) fn all(&self) -> Vec<Arc<T>> {
        let blocks = self.0.load();
        let places = blocks.iter().flat_map(|block| &block.places);
        places.filter_map(OnceLock::get).cloned().collect()
    }
}

#[cfg(test)]
thread_local! {
    /// Blocks that were copied into a longer list.
    static COPIES: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first write to each keyspace copied the list of all others: 50 million for 10,000.
    #[test]
    fn a_layer_costs_no_copy_of_the_others() {
        let layers = PerKeyspace::default();
        let count = 10_000_u32;
        // In an order that meets each once.
        let numbers = (0..count).map(|number| number * 7_919 % count * 3);
        for number in numbers {
            assert_eq!(layers.with(number, |own| **own), None);
            let added = layers.get_or_add(number, || number);
            assert!(Arc::ptr_eq(&added, &layers.get_or_add(number, || 0)));
        }
        let all: Vec<u32> = layers.all().iter().map(|own| **own).collect();
        let expected: Vec<u32> = (0..count).map(|number| 3 * number).collect();
        assert!(all == expected);
        for number in 0..3 * count {
            let found = layers.with(number, |own| **own);
            assert_eq!(found, number.is_multiple_of(3).then_some(number));
        }
        let copies = COPIES.get();
        assert!(copies < 20 * count as usize, "{copies} blocks were copied");
    }
}
