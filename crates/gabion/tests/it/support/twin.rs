//! The naive twin of a store: ordered maps.

use std::collections::BTreeMap;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

/// The pairs of a keyspace.
pub(crate) type Pairs = BTreeMap<Vec<u8>, Arc<[u8]>>;

/// The ends of a range of keys.
pub(crate) type Bounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// One operation of a write.
#[derive(Clone)]
pub(crate) struct Operation {
    pub(crate) keyspace: usize,
    pub(crate) change: Change,
}

/// What an operation does.
#[derive(Clone)]
pub(crate) enum Change {
    Put(Vec<u8>, Arc<[u8]>),
    Delete(Vec<u8>),
    DeleteRange(Bounds),
}

impl Operation {
    /// A put, or a delete where there is no value.
    pub(crate) fn new(keyspace: usize, key: Vec<u8>, value: Option<Arc<[u8]>>) -> Operation {
        let change = match value {
            Some(value) => Change::Put(key, value),
            None => Change::Delete(key),
        };
        Operation { keyspace, change }
    }
}

/// What a store should hold. Clones are cheap and serve as snapshots.
#[derive(Clone, PartialEq)]
pub(crate) struct Twin {
    keyspaces: Vec<Arc<Pairs>>,
}

impl Twin {
    /// Empty keyspaces.
    pub(crate) fn new(keyspaces: usize) -> Twin {
        Twin {
            keyspaces: vec![Arc::default(); keyspaces],
        }
    }

    pub(crate) fn apply(&mut self, operation: &Operation) {
        let pairs = Arc::make_mut(&mut self.keyspaces[operation.keyspace]);
        match &operation.change {
            Change::Put(key, value) => drop(pairs.insert(key.clone(), Arc::clone(value))),
            Change::Delete(key) => drop(pairs.remove(key)),
            Change::DeleteRange(range) => pairs.retain(|key, _| !range.contains(key)),
        }
    }

    /// This twin without what a keyspace holds.
    pub(crate) fn without(&self, keyspace: usize) -> Twin {
        let mut twin = self.clone();
        twin.keyspaces[keyspace] = Arc::default();
        twin
    }

    /// This twin after more operations.
    pub(crate) fn after(&self, operations: &[Operation]) -> Twin {
        let mut twin = self.clone();
        operations
            .iter()
            .for_each(|operation| twin.apply(operation));
        twin
    }

    pub(crate) fn pairs(&self, keyspace: usize) -> &Pairs {
        &self.keyspaces[keyspace]
    }

    /// A few words on how this differs from what was found.
    pub(crate) fn difference(&self, found: &[Pairs]) -> String {
        let mut words = Vec::new();
        for (number, (expected, found)) in self.keyspaces.iter().zip(found).enumerate() {
            for key in expected.keys().chain(found.keys()) {
                let (expected, found) = (expected.get(key), found.get(key));
                if expected != found && words.len() < 8 {
                    let key = key[..key.len().min(40)].escape_ascii();
                    let (expected, found) = (brief(expected), brief(found));
                    words.push(format!(
                        "keyspace {number}, key {key}: {found} instead of {expected}"
                    ));
                }
            }
        }
        words.dedup();
        words.join("; ")
    }

    /// Whether these are exactly the pairs.
    pub(crate) fn equals(&self, found: &[Pairs]) -> bool {
        self.keyspaces
            .iter()
            .zip(found)
            .all(|(expected, found)| **expected == *found)
    }
}

fn brief(value: Option<&Arc<[u8]>>) -> String {
    match value {
        None => "nothing".to_owned(),
        Some(value) => {
            format!(
                "{} bytes {}",
                value.len(),
                value[..value.len().min(12)].escape_ascii()
            )
        }
    }
}

/// Bytes that differ for different seeds and, but for short ones, at different places.
pub(crate) fn bytes_of(seed: u64, len: usize) -> Arc<[u8]> {
    let mut random = super::SeededRng::new(seed);
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        bytes.extend(random.word().to_le_bytes());
    }
    bytes.truncate(len);
    Arc::from(bytes)
}
