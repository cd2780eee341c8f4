//! Threads have numbers, by which they find what is theirs among several of a kind.

use std::sync::atomic::{AtomicUsize, Ordering};

static NEXT: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    // ORDER: Relaxed: the numbers only have to differ.
    static NUMBER: usize = NEXT.fetch_add(1, Ordering::Relaxed);
}

/// The number of this thread: they are given out in the order in which threads first ask.
#[inline]
pub(crate) fn number() -> usize {
    NUMBER.with(|number| *number)
}
