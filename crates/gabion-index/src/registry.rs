//! All indexes with their properties: the one table that the suite, the lab, the program and the
//! documents take them from.

use crate::index::Makers;
use crate::{
    art, bch, bwtree, cceh, clevel, dash, fastfair, hot, layered, level, masstree, pathhash, pclht,
    pfht, skiplist, sptree, turbo,
};

/// What sort of structure an index is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// A hash table.
    Hash,
    /// A tree of keys.
    Tree,
    /// A tree of parts of keys.
    Trie,
    /// A list with shortcuts.
    List,
}

/// What lookups do about writers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reads {
    /// They take no lock, and start again if a writer was in their way.
    Optimistic,
    /// They take no lock and never start again.
    LockFree,
    /// They take a lock.
    Locked,
}

/// Ordering points, flushes followed by a fence, of operations that do not change the shape of the
/// structure, for entries of 8 + 8 bytes; the median where they depend on the place of the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Persists {
    /// Of an insert of a new key.
    pub insert: u64,
    /// Of a change of a value.
    pub update: u64,
    /// Of a delete.
    pub remove: u64,
}

/// An index as the registry knows it.
#[derive(Debug)]
pub struct Registered {
    /// The name by which programs ask for it: lower case, no spaces.
    pub name: &'static str,
    /// The name that its paper gives it.
    pub title: &'static str,
    /// Its sort.
    pub kind: Kind,
    /// What its lookups do about writers.
    pub reads: Reads,
    /// What its writes cost.
    pub persists: Persists,
    /// The paper.
    pub source: &'static str,
    /// How to make it with words as keys; every index has them.
    pub words: Makers<u64>,
    /// How to make it with strings of bytes as keys, if it has them.
    pub strings: Option<Makers<[u8]>>,
}

impl Registered {
    /// A hash table of words whose writes persist once each.
    pub(crate) const fn hash_of_words(
        name: &'static str,
        title: &'static str,
        source: &'static str,
        words: Makers<u64>,
    ) -> Registered {
        Registered {
            name,
            title,
            kind: Kind::Hash,
            reads: Reads::Optimistic,
            persists: Persists {
                insert: 1,
                update: 1,
                remove: 1,
            },
            source,
            words,
            strings: None,
        }
    }

    /// Whether it knows the order of its keys.
    #[must_use]
    pub fn is_ordered(&self) -> bool {
        self.words.create_ordered.is_some()
    }
}

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
