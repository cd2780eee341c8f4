//! Changes that are retried until they meet no conflict.
//!
//! Writers of nodes that may be replaced look for their place without locks, lock it, and look
//! whether it is still the place; if not, they begin again.

use gabion_media::pmem::{Guard, Pool};

use crate::Result;
use crate::lock::Backoff;

/// Rounds in which a delete waits for space that others have: half a second and more.
const ROUNDS_MAX: u32 = 10_000;

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

/// As [`retry`], for a delete, which replaces a block by one that is no larger. If the pool is full
/// it has space for that one replacement at a time, see [`Pool::alloc_instead`]: whoever finds none
/// waits for the other's. That is free when the guards of its time are gone, so who waits has none;
/// if a reader keeps his for long, there is no space.
pub(crate) fn retry_delete<T>(
    pool: &Pool,
    mut attempt: impl FnMut(&Guard<'_>) -> Attempt<T>,
) -> Result<T> {
    let _within = pool.write_guard();
    let mut backoff = Backoff::default();
    let mut rounds = 0;
    loop {
        let guard = pool.enter();
        let answer = attempt(&guard);
        drop(guard);
        match answer {
            Ok(Some(answer)) => return Ok(answer),
            Ok(None) => {}
            Err(error) if error.is_no_space() && rounds < ROUNDS_MAX => {
                rounds += 1;
                pool.collect();
            }
            Err(error) => return Err(error),
        }
        backoff.wait();
    }
}
