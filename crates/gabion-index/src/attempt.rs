//! Changes that are tried until nobody is in the way.
//!
//! Writers of nodes that may be replaced look for their place without locks, lock it, and look
//! whether it is still the place; if not, they begin again.

use gabion_media::pmem::{Guard, Pool};

use crate::Result;
use crate::lock::Backoff;

/// The answer of an attempt; none if somebody else was in the way.
pub(crate) type Attempt<T> = Result<Option<T>>;

/// Tries until nobody is in the way, as one change of the pool. What an attempt finds is not used
/// again while it goes on.
#[inline]
pub(crate) fn retry<T>(
    pool: &Pool,
    mut attempt: impl FnMut(&Guard<'_>) -> Attempt<T>,
) -> Result<T> {
    let _within = pool.write_guard();
    let mut backoff = Backoff::default();
    loop {
        let guard = pool.enter();
        if let Some(answer) = attempt(&guard)? {
            return Ok(answer);
        }
        drop(guard);
        backoff.wait();
    }
}
