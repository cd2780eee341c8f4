//! All indexes with their properties: the one table that the suite, the lab, the program and the
//! documents take them from.

use crate::{
    art, bch, bwtree, cceh, clevel, dash, fastfair, hot, layered, level, masstree, pathhash, pclht,
    pfht, skiplist, sptree, turbo,
};

pub use crate::registered::{Kind, Persists, Reads, Registered};

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
    &fastfair::PADDED,
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
    use super::*;

    #[test]
    fn names_are_words_and_unique() {
        for index in all() {
            let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
            assert!(index.name.chars().all(is_plain), "{}", index.name);
            let namesakes = all().filter(|other| other.name == index.name);
            assert_eq!(namesakes.count(), 1, "{}", index.name);
            assert!(by_name(index.name).is_some_and(|found| found.title == index.title));
            let is_ordered = matches!(index.kind, Kind::Tree | Kind::Trie | Kind::List);
            assert_eq!(index.is_ordered(), is_ordered, "{}", index.name);
        }
        assert!(by_name("none").is_none());
    }
}
