//! An index's entry in the registry.

use crate::index::Makers;

/// What sort of structure an index is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum IndexKind {
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
pub enum ReadProtocol {
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
pub struct PersistCounts {
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
    pub kind: IndexKind,
    /// What its lookups do about writers.
    pub reads: ReadProtocol,
    /// What its writes cost.
    pub persists: PersistCounts,
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
            kind: IndexKind::Hash,
            reads: ReadProtocol::Optimistic,
            persists: PersistCounts {
                insert: 1,
                update: 1,
                remove: 1,
            },
            source,
            words,
            strings: None,
        }
    }

    /// The same with updates that persist so often.
    pub(crate) const fn with_updates(mut self, persists: u64) -> Registered {
        self.persists.update = persists;
        self
    }

    /// Whether it knows the order of its keys.
    #[must_use]
    pub fn is_ordered(&self) -> bool {
        self.words.create_ordered.is_some()
    }
}
