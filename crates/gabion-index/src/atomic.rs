//! The atomics of locks and marks in DRAM: the standard library's, or, in tests of their orderings,
//! those of loom, which tries all that threads may see (`loom_tests`).

#[cfg(gabion_loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
#[cfg(gabion_loom)]
pub(crate) use loom::thread::yield_now;
#[cfg(not(gabion_loom))]
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
#[cfg(not(gabion_loom))]
pub(crate) use std::thread::yield_now;

/// Binary logarithm of a number of locks or marks: loom gets along with few of them only.
pub(crate) const fn count_log(usual: u32) -> u32 {
    if cfg!(gabion_loom) { 1 } else { usual }
}
