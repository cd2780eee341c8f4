//! Tests that every index passes, by `index_suite!`.
//!
//! - `model`: the same operations on the index and on a `BTreeMap`, all answers compared.
//! - `refusal`: pools that hold another index, or none, or a damaged one.
//! - `concurrent`: histories of several threads, linearizable key by key, while others make the
//!   index grow and shrink.
//! - `crash`: images that a power failure may leave, mutants, golden persist traces.
//! - `interleaved`: images that a power failure may leave while several threads are at work.
//! - `checkpoint`: what a pool in an ordinary file goes back to after a power failure.
//!
//! Indexes that know the order of their keys are scanned in each of them: against the twin, as one
//! more way to look a key up, and in every image.
//!
//! All of them ask the index for its invariants and count the blocks of the pool, so that a leak
//! fails as well.

pub(crate) mod checkpoint;
pub(crate) mod concurrent;
pub(crate) mod crash;
mod creation;
pub(crate) mod damage;
pub(crate) mod director;
pub(crate) mod essay;
pub(crate) mod fresh;
mod full;
pub(crate) mod interleaved;
pub(crate) mod model;
pub(crate) mod moved;
mod panics;
mod persists;
pub(crate) mod refusal;
pub(crate) mod renewed;
pub(crate) mod strings;
pub(crate) mod words;

use std::borrow::Borrow;

use gabion_media::pmem::{Medium, Pool, PoolOptions};

use crate::Item;
use crate::index::{Index, IndexPlan, Makers, OrderedIndex};

/// Makes the tests of an index of the registry in a module of its own, for each of its kinds of
/// keys. Its golden traces are in the directory `golden`.
/// After the index come the flushes and fences that can be left out, each with the reason. An index
/// that makes durable what another one does, in the same steps, has its `traces`.
macro_rules! index_suite {
    ($name:ident, $index:expr, [$($kind:ident),+], $survivors:expr) => {
        index_suite!($name, $index, [$($kind),+], $survivors, traces of $name);
    };
    ($name:ident, $index:expr, [$($kind:ident),+], $survivors:expr, traces of $traces:ident) => {
        mod $name {
            $(index_suite!(
                @keys $kind, $traces, crate::suite::Keys::$kind(&$index), $survivors
            );)+
        }
    };
    (@keys $kind:ident, $traces:ident, $keys:expr, $survivors:expr) => {
        mod $kind {
            use crate::suite::{checkpoint, concurrent, crash, interleaved, model, refusal};

            #[test]
            fn all_answers_are_the_twins() {
                $keys.iter().for_each(model::follow);
            }

            #[test]
            fn an_emptied_index_is_as_new() {
                $keys.iter().for_each(model::empty);
            }

            #[test]
            fn what_is_no_such_index_is_refused() {
                $keys.iter().for_each(refusal::follow);
            }

            #[test]
            fn histories_are_linearizable() {
                $keys.iter().for_each(concurrent::linearizable);
            }

            #[test]
            fn visits_beside_writers_miss_nothing() {
                $keys.iter().for_each(concurrent::visits_miss_nothing);
            }

            #[test]
            fn power_failures_lose_nothing() {
                $keys.into_iter().for_each(crash::survive);
            }

            #[test]
            fn power_failures_undo_no_answer_of_any_thread() {
                $keys.into_iter().for_each(interleaved::survive);
            }

            #[test]
            fn a_checkpoint_is_one_moment() {
                $keys.iter().for_each(checkpoint::follow);
            }

            #[test]
            fn every_flush_and_fence_is_missed() {
                $keys
                    .into_iter()
                    .for_each(|keys| crash::catch_mutants(keys, $survivors));
            }

            #[test]
            fn the_persist_traces_are_golden() {
                let golden = include_str!(concat!(
                    "golden/",
                    stringify!($traces),
                    "-",
                    stringify!($kind),
                    ".txt"
                ));
                $keys.into_iter().for_each(|keys| crash::compare_golden(keys, golden));
            }
        }
    };
}

mod quads;
mod scopes;

index_suite!(turbohash, crate::turbo::REGISTERED, [words, strings], &[]);
index_suite!(
    pclht,
    crate::pclht::REGISTERED,
    [words],
    &[crate::suite::TABLE_COMMIT]
);
index_suite!(
    pclht_wide,
    crate::pclht::WIDE,
    [words],
    &[crate::suite::TABLE_RETIRED]
);
index_suite!(
    pclht_published,
    crate::pclht::PUBLISHED,
    [words],
    &[
        (
            "flush in fill of bucket.rs: medium.persist(pair);",
            crate::suite::STUDIED
        ),
        (
            "fence in fill of bucket.rs: medium.persist(pair);",
            crate::suite::STUDIED
        ),
        crate::suite::TABLE_COMMIT
    ]
);
index_suite!(
    pclht_fc,
    crate::pclht::COALESCED,
    [words],
    &[crate::suite::TABLE_COMMIT]
);
index_suite!(
    pclht_fc_ve,
    crate::pclht::EVICTING,
    [words],
    &[crate::suite::EVICTION, crate::suite::TABLE_COMMIT]
);
index_suite!(
    pclht_fc_ve_xs,
    crate::pclht::EVICTING_WIDE,
    [words],
    &[crate::suite::EVICTION, crate::suite::TABLE_RETIRED]
);

const TABLE_COMMIT: (&str, &str) = (
    "flush in rebuild of pclht/resize.rs: space.commit::<Line>();",
    "the intent stands for the table until the next one takes its place",
);
/// No history here makes a table with wide buckets grow twice.
const TABLE_RETIRED: (&str, &str) = (
    "flush in rebuild of pclht/resize.rs: retiring.commit(&self.pool.enter());",
    COMMIT_SURVIVES,
);

/// Why a form of an index has flushes and fences that nothing durable needs.
const STUDIED: &str = "it is there to be measured";
const EVICTION: (&str, &str) = (
    "flush in drop of pclht/locks.rs: self.medium.flush(self.line);",
    STUDIED,
);
index_suite!(
    level,
    crate::level::REGISTERED,
    [words],
    &[crate::suite::LEVEL_SETTLE]
);
index_suite!(
    level_padded,
    crate::level::PADDED,
    [words],
    &[crate::suite::LEVEL_SETTLE]
);
index_suite!(bch, crate::bch::REGISTERED, [words], &[]);
index_suite!(pfht, crate::pfht::REGISTERED, [words], &[]);
index_suite!(pathhash, crate::pathhash::REGISTERED, [words], &[]);
index_suite!(
    cceh,
    crate::cceh::REGISTERED,
    [words],
    &[
        crate::suite::SETTLE,
        crate::suite::DIRECTORY_INTENT,
        crate::suite::DIRECTORY_COMMIT
    ]
);
index_suite!(
    cceh_c,
    crate::cceh::CACHED,
    [words],
    &[
        crate::suite::SETTLE,
        crate::suite::DIRECTORY_INTENT,
        crate::suite::DIRECTORY_COMMIT
    ],
    traces of cceh
);
index_suite!(
    cceh_o_tiny,
    crate::cceh::TINY_RENEWED,
    [words],
    &[
        crate::suite::DIRECTORY_INTENT,
        crate::suite::DIRECTORY_COMMIT,
        crate::suite::SEGMENT_COMMIT,
        crate::suite::SEGMENT_RETIRED
    ]
);
index_suite!(
    cceh_oc_tiny,
    crate::cceh::TINY_RENEWED_CACHED,
    [words],
    &[
        crate::suite::DIRECTORY_INTENT,
        crate::suite::DIRECTORY_COMMIT,
        crate::suite::SEGMENT_COMMIT,
        crate::suite::SEGMENT_RETIRED
    ],
    traces of cceh_o_tiny
);
index_suite!(
    cceh_cow,
    crate::cceh::COPYING,
    [words],
    &[
        crate::suite::SETTLE,
        crate::suite::DIRECTORY_INTENT,
        crate::suite::DIRECTORY_COMMIT,
        crate::suite::SEGMENT_COMMIT,
        crate::suite::COPY_COMMIT
    ]
);

const COPY_COMMIT: (&str, &str) = (
    "flush in split of extendible/split.rs: copy.commit::<Line>();",
    SAME_LINE,
);

/// A new segment, and one that was replaced.
const SEGMENT_COMMIT: (&str, &str) = (
    "flush in split of extendible/split.rs: new.commit::<Line>();",
    SAME_LINE,
);
const SEGMENT_RETIRED: (&str, &str) = (
    "flush in split of extendible/split.rs: retiring.commit(&self.pool.enter());",
    COMMIT_SURVIVES,
);
/// Why some flushes of the allocator's words can be left out.
const SAME_LINE: &str = "the word of the next block, in the same line, is flushed after it";
const LEVEL_SETTLE: (&str, &str) = (
    "fence in push of level/resize.rs: self.pool.settle();",
    "the fence before the new level is named comes before the reference moves",
);
const SETTLE: (&str, &str) = (
    "fence in split of extendible/split.rs: self.pool.settle();",
    "the fence before the new segment is named comes before the reference moves",
);
const DIRECTORY_INTENT: (&str, &str) = (
    "flush in double of extendible/split.rs: .alloc_aligned(Directory::bytes(depth), LINE_BYTES, \
     hint)?;",
    SAME_LINE,
);
const DIRECTORY_COMMIT: (&str, &str) = (
    "flush in double of extendible/split.rs: space.commit::<Line>();",
    SAME_LINE,
);
index_suite!(dash, crate::dash::REGISTERED, [words, strings], &[]);
index_suite!(
    dash_tiny,
    crate::dash::TINY,
    [words],
    &[
        crate::suite::SETTLE,
        crate::suite::DIRECTORY_INTENT,
        crate::suite::DIRECTORY_COMMIT
    ]
);
index_suite!(
    dash_tiny_strings,
    crate::dash::TINY,
    [strings],
    &[crate::suite::DIRECTORY_INTENT]
);
index_suite!(
    clevel,
    crate::clevel::REGISTERED,
    [words, strings],
    &[crate::suite::MOVE_FENCE, crate::suite::ITEM_COMMIT]
);
index_suite!(
    clevel_tiny,
    crate::clevel::TINY,
    [words],
    &[crate::suite::ITEM_COMMIT]
);
index_suite!(
    clevel_tiny_strings,
    crate::clevel::TINY,
    [strings],
    &[crate::suite::MOVE_FENCE, crate::suite::ITEM_COMMIT]
);

const MOVE_FENCE: (&str, &str) = (
    "fence in seal of clevel/resize.rs: self.medium.persist(bucket);",
    "a thread fences again before it changes what it has moved; others rely on this one",
);
const ITEM_COMMIT: (&str, &str) = (
    "flush in replace of clevel/writepath.rs: item.commit::<u8>();",
    SAME_LINE,
);
index_suite!(
    art,
    crate::art::REGISTERED,
    [words],
    &[
        (
            "flush in create of art/recovery.rs: space.commit::<Header>();",
            crate::suite::COMMIT_SURVIVES
        ),
        (
            "flush in fork of art/shape.rs: leaf.commit::<u8>();",
            crate::suite::COMMIT_SURVIVES
        ),
    ]
);
index_suite!(
    art_strings,
    crate::art::REGISTERED,
    [strings],
    &[(
        "flush in create of art/recovery.rs: space.commit::<Header>();",
        crate::suite::COMMIT_SURVIVES
    )]
);
index_suite!(hot, crate::hot::REGISTERED, [words], &[]);
index_suite!(hot_strings, crate::hot::REGISTERED, [strings], &[]);
index_suite!(hot_families, crate::hot::REGISTERED, [families], &[]);
index_suite!(
    fastfair,
    crate::fastfair::REGISTERED,
    [words],
    &[crate::suite::GROWTH_COMMIT]
);
index_suite!(
    fastfair_tiny,
    crate::fastfair::TINY,
    [words],
    &[crate::suite::GROWTH_COMMIT]
);

index_suite!(
    fastfair_256,
    crate::fastfair::REGISTERED_256,
    [words],
    &[crate::suite::GROWTH_COMMIT]
);
index_suite!(
    fastfair_padded,
    crate::fastfair::PADDED,
    [words],
    &[crate::suite::GROWTH_COMMIT]
);
index_suite!(
    fastfair_tiny_padded,
    crate::fastfair::TINY_PADDED,
    [words],
    &[]
);
index_suite!(
    fastfair_c,
    crate::fastfair::CACHED,
    [words],
    &[crate::suite::GROWTH_COMMIT],
    traces of fastfair
);
index_suite!(
    fastfair_c_tiny,
    crate::fastfair::TINY_CACHED,
    [words],
    &[crate::suite::GROWTH_COMMIT],
    traces of fastfair_tiny
);
index_suite!(skiplist, crate::skiplist::REGISTERED, [words], &[]);
index_suite!(skiplist_tall, crate::skiplist::TALL, [words], &[]);
index_suite!(skiplist_c, crate::skiplist::CACHED, [words], &[], traces of skiplist);
index_suite!(
    skiplist_c_tall,
    crate::skiplist::TALL_CACHED,
    [words],
    &[],
    traces of skiplist_tall
);
index_suite!(
    skiplist_strings,
    crate::skiplist::REGISTERED,
    [strings],
    &[]
);

index_suite!(
    masstree,
    crate::masstree::REGISTERED,
    [words],
    &[crate::suite::GROWTH_COMMIT]
);
index_suite!(
    masstree_strings,
    crate::masstree::REGISTERED,
    [strings],
    &[]
);
index_suite!(
    masstree_families,
    crate::masstree::REGISTERED,
    [families],
    &[(
        "flush in note_origin of masstree/readpath.rs: medium.flush(&self.record.len);",
        "shows with strings only"
    )]
);
index_suite!(bwtree, crate::bwtree::REGISTERED, [words], &[]);
index_suite!(
    bwtree_tiny,
    crate::bwtree::TINY,
    [words],
    &[crate::suite::INTENT_BESIDE]
);
index_suite!(
    bwtree_strings,
    crate::bwtree::TINY,
    [strings],
    &[crate::suite::INTENT_BESIDE]
);
index_suite!(
    sptree,
    crate::sptree::REGISTERED,
    [words],
    &[crate::suite::SPLIT_COMMIT]
);
index_suite!(
    sptree_tiny,
    crate::sptree::TINY,
    [words],
    &[crate::suite::BACKUP_REMOVE]
);
index_suite!(
    sptree_b,
    crate::sptree::BUFFERED,
    [words],
    &[crate::suite::SPLIT_COMMIT]
);
index_suite!(
    sptree_b_tiny,
    crate::sptree::TINY_BUFFERED,
    [words],
    &[crate::suite::BACKUP_REMOVE]
);

index_suite!(
    sptree_strings,
    crate::sptree::REGISTERED,
    [strings],
    &[crate::suite::SPLIT_COMMIT, crate::suite::STRING_COMMIT]
);
index_suite!(
    sptree_tiny_strings,
    crate::sptree::TINY,
    [strings],
    &[crate::suite::STRING_COMMIT]
);
index_suite!(
    fastfair_b,
    crate::layered::BUFFERED_FASTFAIR,
    [words],
    &[crate::suite::FLOOR_FENCE]
);
index_suite!(fastfair_b_tiny, crate::layered::TINY_FASTFAIR, [words], &[]);
index_suite!(
    skiplist_b,
    crate::layered::BUFFERED_SKIPLIST,
    [words],
    &[crate::suite::FLOOR_FENCE]
);
index_suite!(
    skiplist_b_tiny,
    crate::layered::TINY_SKIPLIST,
    [words],
    &[crate::suite::ROOT_COMMIT]
);
index_suite!(
    cceh_b,
    crate::layered::BUFFERED_CCEH,
    [words],
    &[crate::suite::FLOOR_FENCE, crate::suite::ROOT_COMMIT]
);
index_suite!(
    cceh_b_tiny,
    crate::layered::TINY_CCEH,
    [words],
    &[crate::suite::ROOT_COMMIT]
);
index_suite!(
    cceh_bo,
    crate::layered::RENEWED_CCEH,
    [words],
    &[crate::suite::FLOOR_FENCE, crate::suite::ROOT_COMMIT]
);
index_suite!(
    cceh_boc,
    crate::layered::RENEWED_CACHED_CCEH,
    [words],
    &[crate::suite::FLOOR_FENCE, crate::suite::ROOT_COMMIT],
    traces of cceh_bo
);
index_suite!(
    cceh_boc_tiny,
    crate::layered::TINY_RENEWED_CACHED_CCEH,
    [words],
    &[crate::suite::ROOT_COMMIT],
    traces of cceh_bo_tiny
);
index_suite!(
    cceh_bo_tiny,
    crate::layered::TINY_RENEWED_CCEH,
    [words],
    &[crate::suite::ROOT_COMMIT]
);

index_suite!(
    fastfair_o_tiny,
    crate::fastfair::TINY_RENEWED,
    [words],
    &[crate::suite::GAP_FENCE]
);
index_suite!(
    fastfair_oc_tiny,
    crate::fastfair::TINY_RENEWED_CACHED,
    [words],
    &[crate::suite::GAP_FENCE],
    traces of fastfair_o_tiny
);
index_suite!(
    fastfair_bo,
    crate::layered::RENEWED_FASTFAIR,
    [words],
    &[crate::suite::FLOOR_FENCE]
);
index_suite!(
    fastfair_bo_tiny,
    crate::layered::TINY_RENEWED_FASTFAIR,
    [words],
    &[]
);
index_suite!(
    fastfair_bc,
    crate::layered::CACHED_FASTFAIR,
    [words],
    &[crate::suite::FLOOR_FENCE],
    traces of fastfair_b
);
index_suite!(
    fastfair_bc_tiny,
    crate::layered::TINY_CACHED_FASTFAIR,
    [words],
    &[],
    traces of fastfair_b_tiny
);
index_suite!(
    fastfair_boc,
    crate::layered::RENEWED_CACHED_FASTFAIR,
    [words],
    &[crate::suite::FLOOR_FENCE],
    traces of fastfair_bo
);
index_suite!(
    fastfair_boc_tiny,
    crate::layered::TINY_RENEWED_CACHED_FASTFAIR,
    [words],
    &[],
    traces of fastfair_bo_tiny
);
index_suite!(
    skiplist_bc,
    crate::layered::CACHED_SKIPLIST,
    [words],
    &[crate::suite::FLOOR_FENCE],
    traces of skiplist_b
);
index_suite!(
    skiplist_bc_tiny,
    crate::layered::TINY_CACHED_SKIPLIST,
    [words],
    &[crate::suite::ROOT_COMMIT],
    traces of skiplist_b_tiny
);

/// Trees whose leaves split in place have histories that miss it.
const GAP_FENCE: (&str, &str) = (
    "fence in close_gap of blink/removal.rs: self.medium().fence();",
    "leaves that are replaced have nothing behind their bounds that could come back",
);

/// The forms with small pages have a history that misses it.
const FLOOR_FENCE: (&str, &str) = (
    "fence in raise of layered/merge.rs: .store_persist(&self.medium, floor, Ordering::Release);",
    "no history here fills pages of that size again",
);

pub(crate) const STRING_COMMIT: (&str, &str) = (
    "flush in put_item of sptree/writepath.rs: item.commit::<u8>();, number 2",
    SAME_LINE,
);

const SPLIT_COMMIT: (&str, &str) = (
    "flush in split of sptree/split.rs: space.commit::<u8>();",
    COMMIT_SURVIVES,
);
const BACKUP_REMOVE: (&str, &str) = (
    "fence in remove of fastfair/node.rs: medium.persist(&last.key);",
    "the fence between the pairs of a merge and its bitmap comes before the leaf is dropped",
);

/// Why no history here misses the flush of a block's state: the intent stands for the state until
/// its slot is needed, and by then another block's state, in the same line, was flushed.
const COMMIT_SURVIVES: &str = "the intent stands for the state until the line is flushed again";

/// The state of the root block.
const ROOT_COMMIT: (&str, &str) = (
    "flush in create_filled of root.rs: space.commit::<Root>();",
    COMMIT_SURVIVES,
);

/// The state of a new topmost node.
const GROWTH_COMMIT: (&str, &str) = (
    "flush in grow of blink/split.rs: new.commit::<u8>();",
    COMMIT_SURVIVES,
);

/// With larger pages, an image gives it away.
const INTENT_BESIDE: (&str, &str) = (
    "flush in build_instead of bwtree/shape.rs: \
     .alloc_instead(old, page_bytes, LINE_BYTES, HINT_PAGE)?;",
    "the intent of the page that goes, in the same line, is flushed before anything refers to it",
);

/// A plan for few entries.
pub(crate) const SMALL: IndexPlan = IndexPlan {
    capacity: 8,
    seed: Some(7),
};

/// A pool in memory of so many bytes, for several threads.
pub(crate) fn pool(size: u64, options: PoolOptions) -> Pool {
    let pool = Pool::anonymous(PoolOptions {
        size,
        heaps: 4,
        ..options
    });
    pool.expect("a pool in memory")
}

/// What `look` sees while some bits of a byte of the medium are wrong.
pub(crate) fn while_flipped<T>(medium: &Medium, at: u64, mask: u8, look: impl FnOnce() -> T) -> T {
    let mut byte = [0];
    medium.read(at, &mut byte);
    medium.write(at, &[byte[0] ^ mask]);
    let seen = look();
    medium.write(at, &byte);
    seen
}

/// An index under test, and the keys that it is tested with: one for each number.
pub(crate) struct Keys<K: Item + ?Sized> {
    pub(crate) name: &'static str,
    pub(crate) makers: &'static Makers<K>,
    pub(crate) key: fn(u64) -> K::Owned,
}

impl Keys<u64> {
    /// Words that differ in high and low bits.
    pub(crate) fn words(index: &'static crate::registered::Registered) -> Option<Keys<u64>> {
        Some(Keys {
            name: index.name,
            makers: &index.words,
            key: |number| number << 48 | number,
        })
    }
}

impl Keys<[u8]> {
    /// Strings of 0 to 63 bytes, many of which are prefixes of others.
    pub(crate) fn strings(index: &'static crate::registered::Registered) -> Option<Keys<[u8]>> {
        index.strings.as_ref().map(|makers| Keys {
            name: index.name,
            makers,
            key: |number| {
                let length = usize::try_from(number % 64).expect("small");
                let mut key = number.to_le_bytes().to_vec();
                key.resize(8 + length, 0);
                // The first key is the empty string.
                if number == 0 { Vec::new() } else { key }
            },
        })
    }
}

impl Keys<[u8]> {
    /// Strings in three families that begin alike, each of which has strings that begin others.
    pub(crate) fn families(index: &'static crate::registered::Registered) -> Option<Keys<[u8]>> {
        index.strings.as_ref().map(|makers| Keys {
            name: index.name,
            makers,
            key: |number| {
                let family = u8::try_from(number % 3).expect("small");
                let mut key = vec![b'a' + family; 16];
                // Two digits: as many bytes as the first says, and the second.
                let (length, last) = (number / 3 % 8, number / 24);
                key.resize(16 + usize::try_from(length).expect("small"), 7);
                key.extend(
                    last.to_le_bytes()
                        .into_iter()
                        .take(if last == 0 { 0 } else { 5 }),
                );
                key
            },
        })
    }
}

impl<K: Item + ?Sized> Keys<K> {
    /// A small index in memory.
    pub(crate) fn create(&self) -> Box<dyn Index<K>> {
        let pool = pool(32 << 20, (self.makers.pool_options)());
        (self.makers.create)(&pool, SMALL).expect("a new index")
    }
}

/// What a lookup by a scan finds under a key, which comes first if it is there.
pub(crate) fn find_by_scan<K: Item + ?Sized>(
    index: &dyn OrderedIndex<K>,
    key: &K,
) -> crate::Result<Option<u64>> {
    let mut found = Vec::new();
    index.scan(key, 3, &mut found)?;
    assert!(found.len() <= 3, "more than was asked for: {found:?}");
    let keys = || found.iter().map(|(key, _)| key.borrow());
    assert!(keys().is_sorted_by(|one, two| one < two), "{found:?}");
    assert!(keys().all(|other: &K| other >= key), "{key:?}: {found:?}");
    let first = found.first().filter(|(first, _)| first.borrow() == key);
    Ok(first.map(|(_, value)| *value))
}

/// The invariants hold, and no block is lost.
pub(crate) fn check<K: Item + ?Sized>(index: &dyn Index<K>) -> Result<(), String> {
    let checked = index.check().map_err(|error| error.to_string())?;
    let len = index.len().map_err(|error| error.to_string())?;
    let used = index.pool().stats().used_blocks;
    if checked.entries != len {
        return Err(format!(
            "{} entries, and the length is {len}",
            checked.entries
        ));
    }
    if checked.blocks != used {
        return Err(format!(
            "{used} blocks in use, {} are reachable",
            checked.blocks
        ));
    }
    Ok(())
}
