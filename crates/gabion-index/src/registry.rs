//! All indexes with their properties: the one table that the suite, the lab, the program and the
//! documents take them from.

use crate::{
    art, bch, bwtree, cceh, clevel, dash, fastfair, hot, layered, level, masstree, pathhash, pclht,
    pfht, skiplist, sptree, turbo,
};

pub use crate::registered::{IndexKind, PersistCounts, ReadProtocol, Registered};

/// All indexes.
pub static INDEXES: &[&Registered] = &[
    &turbo::REGISTERED,
    &pclht::REGISTERED,
    &level::REGISTERED,
    &bch::REGISTERED,
    &pfht::REGISTERED,
    &pathhash::REGISTERED,
    &cceh::REGISTERED,
    &cceh::COPYING,
    &dash::REGISTERED,
    &clevel::REGISTERED,
    &fastfair::REGISTERED,
    &fastfair::REGISTERED_256,
    &masstree::REGISTERED,
    &bwtree::REGISTERED,
    &art::REGISTERED,
    &hot::REGISTERED,
    &skiplist::REGISTERED,
    &sptree::REGISTERED,
    &sptree::BUFFERED,
];

/// Forms of some of them, to measure what each part is worth: with other parts of the
/// write-amplification study's optimisations, and with the layers of Spot-On above them.
pub static FORMS: &[&Registered] = &[
    &pclht::PUBLISHED,
    &pclht::COALESCED,
    &pclht::EVICTING,
    &pclht::EVICTING_WIDE,
    &pclht::WIDE,
    &level::PADDED,
    &level::QUADS,
    &level::STREAMED,
    &level::LOGGED,
    &bch::QUADS,
    &pfht::QUADS,
    &pathhash::QUADS,
    &fastfair::PADDED,
    &cceh::SCOPE_8,
    &cceh::TWO_HOMES,
    &cceh::CACHED,
    &fastfair::CACHED,
    &skiplist::CACHED,
    &layered::BUFFERED_CCEH,
    &layered::RENEWED_CCEH,
    &layered::RENEWED_CACHED_CCEH,
    &layered::BUFFERED_FASTFAIR,
    &layered::BUFFERED_SKIPLIST,
    &layered::RENEWED_FASTFAIR,
    &layered::CACHED_FASTFAIR,
    &layered::RENEWED_CACHED_FASTFAIR,
    &layered::CACHED_SKIPLIST,
];

/// All indexes, and the other forms of some.
pub fn all() -> impl Iterator<Item = &'static Registered> {
    INDEXES.iter().chain(FORMS).copied()
}

/// The index, or the form of one, with this name.
#[must_use]
pub fn by_name(name: &str) -> Option<&'static Registered> {
    all().find(|index| index.name == name)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use gabion_media::pmem::trace::{LINE, TraceEvent, TraceStep, Watcher};
    use gabion_media::pmem::{Pool, PoolOptions};
    use parking_lot::Mutex;

    use super::*;
    use crate::IndexPlan;

    /// The lines that were loaded.
    #[derive(Default)]
    struct Loads(Mutex<BTreeSet<u64>>);

    impl Watcher for Loads {
        fn event(&self, event: TraceEvent<'_>) {
            if let TraceStep::Load { offset, len } = event.step {
                let lines = offset / LINE..=(offset + len - 1) / LINE;
                self.0.lock().extend(lines);
            }
        }
    }

    /// Tables with buckets of four lines report the lines that a lookup reads, and no others: a
    /// model that is told of whole buckets charges four times as much.
    #[test]
    fn a_lookup_touches_the_lines_that_it_reads() {
        const KEYS: u64 = 2000;
        let key = |number: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for (name, present_max, absent_max) in [("turbohash", 2.1, 1.5), ("dash", 3.3, 3.3)] {
            let index = by_name(name).expect("an index");
            let loads = Arc::new(Loads::default());
            let pool = Pool::anonymous(PoolOptions {
                watcher: Some(loads.clone()),
                ..(index.words.pool_options)()
            });
            let plan = IndexPlan {
                capacity: KEYS,
                seed: Some(1),
            };
            let table = (index.words.create)(&pool.unwrap(), plan).unwrap();
            for number in 0..KEYS {
                table.insert(&key(number), number).unwrap();
            }
            let lines = |numbers: std::ops::Range<u64>| {
                let mut lines = 0;
                for number in numbers {
                    loads.0.lock().clear();
                    let found = table.get(&key(number)).unwrap();
                    assert_eq!(found.is_some(), number < KEYS, "{name}");
                    lines += loads.0.lock().len();
                }
                lines as f64 / KEYS as f64
            };
            let (present, absent) = (lines(0..KEYS), lines(KEYS..2 * KEYS));
            assert!((1.0..present_max).contains(&present), "{name} {present}");
            assert!((1.0..absent_max).contains(&absent), "{name} {absent}");
        }
    }

    #[test]
    fn names_are_words_and_unique() {
        for index in all() {
            let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
            assert!(index.name.chars().all(is_plain), "{}", index.name);
            let namesakes = all().filter(|other| other.name == index.name);
            assert_eq!(namesakes.count(), 1, "{}", index.name);
            assert!(by_name(index.name).is_some_and(|found| found.title == index.title));
            let is_ordered = matches!(
                index.kind,
                IndexKind::Tree | IndexKind::Trie | IndexKind::List
            );
            assert_eq!(index.is_ordered(), is_ordered, "{}", index.name);
        }
        assert!(by_name("none").is_none());
    }
}
