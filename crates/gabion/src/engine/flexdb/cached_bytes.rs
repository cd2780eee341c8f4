//! What the forms of all indexes take, and the memory that they lie in.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::slabs::Slabs;

/// The bytes of all decoded forms, which every index counts together, and the memory that their
/// pairs lie in.
#[derive(Clone, Debug)]
pub(super) struct CachedBytes {
    sum: Arc<AtomicU64>,
    slabs: Arc<Slabs>,
}

impl CachedBytes {
    /// Of a cache of so many bytes.
    pub(super) fn new(cache_bytes: u64) -> CachedBytes {
        CachedBytes {
            sum: Arc::default(),
            slabs: Slabs::new(cache_bytes),
        }
    }

    pub(super) fn add(&self, bytes: u64) {
        // ORDER: Relaxed; the sum orders nothing.
        self.sum.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn subtract(&self, bytes: u64) {
        // ORDER: Relaxed; the sum orders nothing.
        self.sum.fetch_sub(bytes, Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> u64 {
        // ORDER: Relaxed; the sum orders nothing.
        self.sum.load(Ordering::Relaxed)
    }

    pub(super) fn slabs(&self) -> &Arc<Slabs> {
        &self.slabs
    }
}
