//! What every index can do.

use std::borrow::Borrow;
use std::sync::atomic::Ordering;

use gabion_media::pmem::{Medium, PAtomicU64, POff, Pool, PoolOptions, ROOT_HINT};

use crate::{Error, Item, Result};

/// An index from keys `K`, which are `u64` or `[u8]`, to words.
///
/// All operations may be called from any thread at any time, and each takes effect at one moment
/// between its call and its return. When one returns, its effect is durable, as far as the class of
/// the pool goes, and so is whatever a lookup has seen: no answer is lost in a crash. A crash in
/// the middle of a write leaves it done or not done. Every key and every value is allowed, 0 and
/// the empty string included. A failed operation has changed nothing.
pub trait Index<K: Item + ?Sized>: Send + Sync {
    /// The value of `key`.
    ///
    /// # Errors
    /// Damage on the medium.
    fn get(&self, key: &K) -> Result<Option<u64>>;

    /// Stores `value` under `key`, whether it is there or not, and returns the value before.
    ///
    /// # Errors
    /// No space in the pool, or damage on the medium.
    fn insert(&self, key: &K, value: u64) -> Result<Option<u64>>;

    /// Stores `value` under `key` if it is there, and returns the value before.
    ///
    /// # Errors
    /// As [`Index::insert`].
    fn update(&self, key: &K, value: u64) -> Result<Option<u64>>;

    /// Deletes `key` and returns its value.
    ///
    /// # Errors
    /// Damage on the medium.
    fn remove(&self, key: &K) -> Result<Option<u64>>;

    /// Number of entries; exact if nobody writes.
    ///
    /// # Errors
    /// Damage on the medium.
    fn len(&self) -> Result<u64>;

    /// Whether there is no entry.
    ///
    /// # Errors
    /// Damage on the medium.
    fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Visits all entries, in the order of keys if the index is ordered. What others change
    /// meanwhile is seen or not.
    ///
    /// # Errors
    /// Damage on the medium.
    fn for_each(&self, visit: &mut dyn FnMut(&K, u64)) -> Result<()>;

    /// Gives back space that deletes left over, as far as the index does not by itself. By default
    /// there is none.
    ///
    /// # Errors
    /// No space in the pool; the index is as it was.
    fn compact(&self) -> Result<()> {
        Ok(())
    }

    /// Checks all invariants, while nobody writes.
    ///
    /// # Errors
    /// The first violation.
    fn check(&self) -> Result<CheckSummary>;

    /// The pool that the index lies in.
    fn pool(&self) -> &Pool;

    /// The same index with what those can do that know the order of their keys, if it does.
    fn ordered(&self) -> Option<&dyn OrderedIndex<K>> {
        None
    }
}

/// An index that knows the order of its keys: that of numbers, or that of bytes.
pub trait OrderedIndex<K: Item + ?Sized>: Index<K> {
    /// Appends up to `limit` entries from `from` on, in the order of keys, to `found`.
    ///
    /// # Errors
    /// Damage on the medium.
    fn scan(&self, from: &K, limit: usize, found: &mut Vec<(K::Owned, u64)>) -> Result<()>;
}

/// Makes an ordered index what [`Index`] says by its own methods of the same names. They are told
/// what `|key|` says of the key; `compact` comes last if it has that. What says how an index is
/// visited that is not always ordered stands in brackets behind that.
macro_rules! index_by_methods {
    ([$($generics:tt)*], $index:ty, $key:ty, |$name:ident| $told:expr $(, $compact:ident)?) => {
        $crate::index::index_by_methods!(
            [$($generics)*],
            $index,
            $key,
            |$name| $told,
            [$($compact)?],
            [
                fn for_each(&self, visit: &mut dyn FnMut(&$key, u64)) -> $crate::Result<()> {
                    $crate::index::visit_by_scans(self, visit)
                }

                fn ordered(&self) -> Option<&dyn $crate::OrderedIndex<$key>> {
                    Some(self)
                }
            ]
        );
    };
    (
        [$($generics:tt)*], $index:ty, $key:ty, |$name:ident| $told:expr,
        [$($compact:ident)?], [$($visits:tt)*]
    ) => {
        impl<$($generics)*> $crate::Index<$key> for $index {
            fn get(&self, $name: &$key) -> $crate::Result<Option<u64>> {
                <$index>::get(self, $told)
            }

            fn insert(&self, $name: &$key, value: u64) -> $crate::Result<Option<u64>> {
                <$index>::insert(self, $told, value)
            }

            fn update(&self, $name: &$key, value: u64) -> $crate::Result<Option<u64>> {
                <$index>::update(self, $told, value)
            }

            fn remove(&self, $name: &$key) -> $crate::Result<Option<u64>> {
                <$index>::remove(self, $told)
            }

            fn len(&self) -> $crate::Result<u64> {
                <$index>::len(self)
            }

            $($visits)*

            $(fn $compact(&self) -> $crate::Result<()> {
                <$index>::$compact(self)
            })?

            fn check(&self) -> $crate::Result<$crate::index::CheckSummary> {
                <$index>::check(self)
            }

            fn pool(&self) -> &gabion_media::pmem::Pool {
                <$index>::pool(self)
            }
        }
    };
}
pub(crate) use index_by_methods;

/// Makes a hash table of words what [`Index`] says, by its own methods: `lookup`, `put`, `replace`
/// and `delete`; `entries`, `visit` and `check_all`; and what compacts it, which comes last, if it
/// has that. With its functions `create` and `open` and its `LAYOUT` it gets its `MAKERS`. Its pool
/// is in the field `pool`.
macro_rules! index_of_words {
    ([$($generics:tt)*], $index:ty $(, $compact:ident)?) => {
        impl<$($generics)*> $index {
            /// Options of pools for such tables. Whoever makes or opens the pool sets the rest.
            #[must_use]
            pub fn pool_options() -> gabion_media::pmem::PoolOptions {
                gabion_media::pmem::PoolOptions {
                    layout: Self::LAYOUT,
                    ..gabion_media::pmem::PoolOptions::default()
                }
            }

            /// How the registry makes such tables.
            const MAKERS: $crate::index::Makers<u64> = $crate::index::Makers {
                pool_options: Self::pool_options,
                create: |pool, plan| Ok(Box::new(Self::create(pool, plan)?)),
                open: |pool| Ok(Box::new(Self::open(pool)?)),
                create_ordered: None,
            };
        }

        impl<$($generics)*> $crate::Index<u64> for $index {
            #[inline]
            fn get(&self, key: &u64) -> $crate::Result<Option<u64>> {
                Ok(self.lookup(*key))
            }

            #[inline]
            fn insert(&self, key: &u64, value: u64) -> $crate::Result<Option<u64>> {
                self.put(*key, value)
            }

            #[inline]
            fn update(&self, key: &u64, value: u64) -> $crate::Result<Option<u64>> {
                Ok(self.replace(*key, value))
            }

            #[inline]
            fn remove(&self, key: &u64) -> $crate::Result<Option<u64>> {
                Ok(self.delete(*key))
            }

            fn len(&self) -> $crate::Result<u64> {
                self.entries()
            }

            fn for_each(&self, visit: &mut dyn FnMut(&u64, u64)) -> $crate::Result<()> {
                self.visit(visit)
            }

            $(fn compact(&self) -> $crate::Result<()> {
                self.$compact()
            })?

            fn check(&self) -> $crate::Result<$crate::index::CheckSummary> {
                self.check_all()
            }

            fn pool(&self) -> &gabion_media::pmem::Pool {
                &self.pool
            }
        }
    };
}
pub(crate) use index_of_words;

/// Entries that are visited under one guard of the pool: enough that its cost does not count, and
/// few enough that others soon get back what they give up meanwhile.
const VISITED_AT_ONCE: usize = 1024;

/// [`Index::for_each`] of an ordered index, by scans.
pub(crate) fn visit_by_scans<K: Item + ?Sized>(
    index: &(impl OrderedIndex<K> + ?Sized),
    visit: &mut dyn FnMut(&K, u64),
) -> Result<()> {
    let mut from = Some(K::rebuild(0, &[]));
    let mut found = Vec::new();
    while let Some(key) = from {
        found.clear();
        index.scan(key.borrow(), VISITED_AT_ONCE, &mut found)?;
        for (key, value) in &found {
            visit(key.borrow(), *value);
        }
        let last = found.last().filter(|_| found.len() == VISITED_AT_ONCE);
        from = last.and_then(|(key, _)| key.borrow().successor());
        if from
            .as_ref()
            .is_some_and(|next| next.borrow() <= key.borrow())
        {
            // Keys of a damaged index that do not rise could lead in a circle.
            return Err(Error::damaged("the order of keys", 0));
        }
    }
    Ok(())
}

/// [`Index::len`] of an ordered index, by scans.
pub(crate) fn count_by_scans<K: Item + ?Sized>(index: &impl OrderedIndex<K>) -> Result<u64> {
    let mut count = 0;
    visit_by_scans(index, &mut |_: &K, _| count += 1)?;
    Ok(count)
}

/// What [`Index::check`] has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckSummary {
    /// Entries.
    pub entries: u64,
    /// Blocks of the pool that the index refers to. If the index is all that is in the pool, every
    /// other allocated block is lost.
    pub blocks: u64,
}

/// What an index should know when it is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexPlan {
    /// Entries that are expected. More must work as well.
    pub capacity: u64,
    /// Seed of hash functions; by default drawn at random. Tests and experiments set it, so that
    /// they can be repeated.
    pub seed: Option<u64>,
}

/// Makes an index in a pool.
pub type Maker<K> = fn(&Pool, IndexPlan) -> Result<Box<dyn Index<K>>>;

/// Makes an ordered index in a pool.
pub type OrderedMaker<K> = fn(&Pool, IndexPlan) -> Result<Box<dyn OrderedIndex<K>>>;

/// Finds an index in a pool.
pub type Opener<K> = fn(&Pool) -> Result<Box<dyn Index<K>>>;

/// How indexes of one sort are made, for keys `K`.
#[derive(Debug)]
pub struct Makers<K: Item + ?Sized> {
    /// Options of pools for such indexes: what must be set; size and the like are the caller's.
    pub pool_options: fn() -> PoolOptions,
    /// Makes an empty index the root of a pool.
    pub create: Maker<K>,
    /// Finds the index that is the root of a pool.
    pub open: Opener<K>,
    /// As `create`, for indexes that are ordered.
    pub create_ordered: Option<OrderedMaker<K>>,
}

/// Visits the entries of an index part by part: of a hash table, in the order of the first bits of
/// hashes. `collect` appends all entries of a range of hashes that begins at its argument or
/// before, without those before it, and returns where the next range begins.
pub(crate) fn visit_by_hash<K: Item + ?Sized>(
    mut collect: impl FnMut(u64, &mut Vec<(K::Owned, u64)>) -> Result<Option<u64>>,
    visit: &mut dyn FnMut(&K, u64),
) -> Result<()> {
    let mut entries = Vec::new();
    let mut from = Some(0);
    while let Some(start) = from {
        from = collect(start, &mut entries)?;
        for (key, value) in entries.drain(..) {
            visit(key.borrow(), value);
        }
    }
    Ok(())
}

/// Stores entries that are in the order of an index's parts, part by part: `renew` is told those
/// that are left and stores all that belong to the part of the first one, out of place, and returns
/// how many they are; 0 if that is not worth it. What it does not store goes to its place by
/// itself.
pub(crate) fn insert_by_parts(
    index: &impl Index<u64>,
    entries: &[(u64, u64)],
    mut renew: impl FnMut(&[(u64, u64)]) -> Result<usize>,
) -> Result<()> {
    let mut rest = entries;
    while let Some((key, value)) = rest.first() {
        let done = match renew(rest) {
            // There may be room in place.
            Err(error) if error.is_no_space() => 0,
            done => done?,
        };
        if done == 0 {
            index.insert(key, *value)?;
        }
        rest = rest.get(done.max(1)..).unwrap_or_default();
    }
    Ok(())
}

/// The offset of a pool's root, by its word in the pool's header: the low 48 bits. For recovery,
/// which is asked about blocks before there is a pool.
pub(crate) fn root_of(medium: &Medium) -> u64 {
    let word: Option<&PAtomicU64> = medium.try_at(POff::new(ROOT_HINT));
    // ORDER: Relaxed: for recovery, when nobody writes.
    word.map_or(0, |word| {
        word.load(medium, Ordering::Relaxed) & ((1 << 48) - 1)
    })
}

/// Appends up to `limit` entries from `from` on to `found` by `scan_once`, which is told the length
/// at which to end, and says whether it came there or to the last key. Where a change was in its
/// way, the scan goes on behind the last entry that was found.
pub(crate) fn scan_on<K: Item + ?Sized>(
    from: &K,
    limit: usize,
    found: &mut Vec<(K::Owned, u64)>,
    mut scan_once: impl FnMut(&K, usize, &mut Vec<(K::Owned, u64)>) -> Result<bool>,
) -> Result<()> {
    let begin = found.len();
    let end = begin.saturating_add(limit);
    let mut is_whole = scan_once(from, end, found)?;
    while !is_whole {
        let last = found.get(begin..).and_then(<[_]>::last);
        let next = last.map(|(key, _)| key.borrow().successor());
        is_whole = match next {
            Some(Some(next)) => scan_once(next.borrow(), end, found)?,
            Some(None) => true,
            None => scan_once(from, end, found)?,
        };
    }
    Ok(())
}
