//! The keyspaces of a store: found by their names, numbered by their positions.

use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};

/// A keyspace as every engine has it.
pub(crate) trait Named {
    /// The number by which the log knows it: its position.
    fn id(&self) -> u32;

    /// The name that users give it.
    fn name(&self) -> &str;
}

/// All keyspaces, in the order in which they were made. Readers take no lock.
pub(crate) struct Keyspaces<K>(ArcSwap<Vec<Arc<K>>>);

impl<K: Named> Keyspaces<K> {
    /// These keyspaces.
    pub(crate) fn new(keyspaces: Vec<Arc<K>>) -> Keyspaces<K> {
        Keyspaces(ArcSwap::from_pointee(keyspaces))
    }

    /// The keyspaces as they are now.
    #[inline]
    pub(crate) fn load(&self) -> Guard<Arc<Vec<Arc<K>>>> {
        self.0.load()
    }

    /// The keyspace of that name.
    pub(crate) fn find(&self, name: &str) -> Option<Arc<K>> {
        let all = self.load();
        all.iter().find(|keyspace| keyspace.name() == name).cloned()
    }

    /// The names of all keyspaces.
    pub(crate) fn names(&self) -> Vec<String> {
        let all = self.load();
        all.iter()
            .map(|keyspace| keyspace.name().to_owned())
            .collect()
    }

    /// Number of the next keyspace.
    pub(crate) fn next_id(&self) -> u32 {
        u32::try_from(self.load().len()).expect("fewer than 2^32 keyspaces")
    }

    /// Appends a keyspace. One caller at a time: each holds the lock of what makes it durable.
    pub(crate) fn add(&self, keyspace: &Arc<K>) {
        let mut all = self.load().to_vec();
        debug_assert_eq!(keyspace.id() as usize, all.len(), "a number is a position");
        all.push(Arc::clone(keyspace));
        self.0.store(Arc::new(all));
    }
}
