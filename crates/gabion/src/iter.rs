//! Iterators over ranges of keys.

use std::sync::Arc;

use crate::db::Store;
use crate::engine::wip::Scan;
use crate::{Result, Slice};

/// The pairs of a keyspace in a range, in the order of their keys from the front and in the
/// opposite order from the back. The iterator sees exactly what was written before it began,
/// whatever is written while it runs.
///
/// An error ends the iteration. An iterator that rests costs memory for one block per sublevel of
/// the bucket it stands in, and keeps versions alive that it may still return.
pub struct Iter {
    scan: Scan,
    /// The store stays open as long as the iterator lives.
    _store: Arc<Store>,
}

impl Iter {
    pub(crate) fn new(scan: Scan, store: &Arc<Store>) -> Iter {
        Iter {
            scan,
            _store: Arc::clone(store),
        }
    }
}

impl Iterator for Iter {
    type Item = Result<(Slice, Slice)>;

    #[inline]
    fn next(&mut self) -> Option<Result<(Slice, Slice)>> {
        self.scan.next().transpose()
    }
}

impl DoubleEndedIterator for Iter {
    #[inline]
    fn next_back(&mut self) -> Option<Result<(Slice, Slice)>> {
        self.scan.next_back().transpose()
    }
}

impl std::iter::FusedIterator for Iter {}
