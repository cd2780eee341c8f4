//! The root of an index: the line at which its pool's root points.
//!
//! | offset | bytes | meaning |
//! |---|---|---|
//! | 0 | 8 | magic, which names the kind of index |
//! | 8 | 48 | six words of the index that never change |
//! | 56 | 8 | hash of the bytes before under the seed 0 |
//!
//! What changes comes behind it. [`RootFacts`] are the words of indexes of words.

use std::sync::atomic::Ordering;

use gabion_media::media_struct;
use gabion_media::pmem::{Medium, POff, Pool, ROOT_HINT, RoomRequest};

use crate::index::IndexPlan;
use crate::{Error, Result, Seed};

/// Bytes of the line, and its alignment.
pub(crate) const ROOT_BYTES: u64 = 64;

/// The words of a root before its check.
pub(crate) const WORDS: usize = 7;

media_struct! {
    /// The line.
    struct Root {
        words: [gabion_media::pmem::PAtomicU64; WORDS],
        check: gabion_media::pmem::PAtomicU64,
    }
}

const _: () = assert!(size_of::<Root>() as u64 == ROOT_BYTES);

fn check_of(words: &[u64; WORDS]) -> u64 {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    Seed::new(0).hash_bytes(&bytes)
}

fn damaged(offset: u64) -> Error {
    Error::damaged("the root of an index", offset)
}

/// Sees to it that a pool without root has room for a root with `rest` bytes behind it, and for all
/// that is made before the index is whole: so a creation that fails has changed nothing.
pub(crate) fn expect_room(
    pool: &Pool,
    rest: u64,
    others: impl IntoIterator<Item = RoomRequest>,
) -> Result<()> {
    let _within = pool.write_guard();
    if !pool.root::<Root>().is_null() {
        return Err(Error::RootTaken);
    }
    let root = part(ROOT_BYTES + rest, ROOT_BYTES);
    let parts: Vec<RoomRequest> = std::iter::once(root).chain(others).collect();
    Ok(pool.expect_room(&parts)?)
}

/// One block of so many bytes.
pub(crate) fn part(bytes: u64, align: u64) -> RoomRequest {
    RoomRequest {
        bytes,
        align,
        count: 1,
    }
}

/// Makes the root of `pool`, with `rest` bytes of zeros behind it, and returns where it is. `words`
/// is told that place and says what comes first; the others are 0.
///
/// A crash before the return leaves a root or none, and loses nothing.
pub(crate) fn create(pool: &Pool, rest: u64, words: impl FnOnce(u64) -> Vec<u64>) -> Result<u64> {
    let fill = |behind| pool.zero(behind, rest);
    create_filled(pool, rest, fill, words)
}

/// As [`create`], with `fill` to write and flush what is behind the root, at the place that it is
/// told.
pub(crate) fn create_filled(
    pool: &Pool,
    rest: u64,
    fill: impl FnOnce(u64),
    words: impl FnOnce(u64) -> Vec<u64>,
) -> Result<u64> {
    let _within = pool.write_guard();
    if !pool.root::<Root>().is_null() {
        return Err(Error::RootTaken);
    }
    let space = pool.alloc_aligned(ROOT_BYTES + rest, ROOT_BYTES, ROOT_HINT)?;
    let place = space.offset::<Root>();
    fill(place.raw() + ROOT_BYTES);
    let root = pool.at(place);
    let given = words(place.raw()).into_iter().chain(std::iter::repeat(0));
    let mut all = [0; WORDS];
    // ORDER: Relaxed: nobody else sees the line before the pool refers to it.
    for ((word, cell), all) in given.zip(&root.words).zip(&mut all) {
        *all = word;
        cell.store(pool, word, Ordering::Relaxed);
    }
    root.check.store(pool, check_of(&all), Ordering::Relaxed);
    // DURABLE: the line and what is behind it, before the pool refers to it.
    pool.persist(root);
    pool.set_root(place);
    space.commit::<Root>();
    Ok(place.raw())
}

/// Where the root of `pool` is, which must have this magic.
pub(crate) fn find(pool: &Pool, magic: u64) -> Result<(u64, [u64; WORDS])> {
    let root = pool.root::<Root>();
    if root.is_null() {
        return Err(Error::NoRoot);
    }
    Ok((root.raw(), read(pool, root.raw(), magic)?))
}

/// Reads and checks the line at `offset`, which must have this magic.
pub(crate) fn read(medium: &Medium, offset: u64, magic: u64) -> Result<[u64; WORDS]> {
    let root: Option<&Root> = medium.try_at(POff::new(offset));
    let root = root.ok_or_else(|| damaged(offset))?;
    medium.touch(root);
    // ORDER: Relaxed: the line does not change.
    let words: [u64; WORDS] = std::array::from_fn(|at| root.words[at].peek(Ordering::Relaxed));
    if words[0] != magic {
        return Err(Error::NoRoot);
    }
    // ORDER: Relaxed: as above.
    if root.check.peek(Ordering::Relaxed) != check_of(&words) {
        return Err(damaged(offset));
    }
    Ok(words)
}

/// What an index of words knows for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RootFacts {
    /// Where the root is.
    pub(crate) root: u64,
    /// Seed of the hash function.
    pub(crate) seed: u64,
    /// Entries that it was planned for.
    pub(crate) capacity: u64,
}

impl RootFacts {
    /// Makes a root with `rest` bytes of zeros behind it.
    pub(crate) fn create(pool: &Pool, magic: u64, rest: u64, plan: IndexPlan) -> Result<RootFacts> {
        let seed = plan.seed.unwrap_or_else(Seed::random);
        let root = create(pool, rest, |_| vec![magic, seed, plan.capacity])?;
        Ok(RootFacts {
            root,
            seed,
            capacity: plan.capacity,
        })
    }

    /// Finds the root of `pool`.
    pub(crate) fn open(pool: &Pool, magic: u64) -> Result<RootFacts> {
        let (root, [_, seed, capacity, ..]) = find(pool, magic)?;
        Ok(RootFacts {
            root,
            seed,
            capacity,
        })
    }

    /// What lies behind the root, as far as it was made.
    pub(crate) fn behind<T>(&self) -> POff<T> {
        POff::new(self.root + ROOT_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use gabion_media::pmem::PoolOptions;

    use super::*;
    use crate::suite::while_flipped;

    #[test]
    fn every_bit_of_the_line_counts() {
        let pool = Pool::anonymous(PoolOptions {
            size: 1 << 20,
            ..PoolOptions::default()
        });
        let pool = pool.expect("a pool in memory");
        let root = create(&pool, 0, |place| vec![7, place, 9]).expect("space");
        let found = find(&pool, 7).expect("the root");
        assert_eq!(found, (root, [7, root, 9, 0, 0, 0, 0]));
        for bit in 0..8 * ROOT_BYTES {
            let (at, mask) = (root + bit / 8, 1 << (bit % 8));
            let found = while_flipped(&pool, at, mask, || find(&pool, 7));
            assert!(found.is_err(), "bit {bit}");
        }
        find(&pool, 7).expect("the root");
    }
}
