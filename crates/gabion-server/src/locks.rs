//! Locks of keys, and the gate before them.
//!
//! # Idea
//! The server is the only writer of its store. A command locks its keys, so that what it has read
//! is still so when its writes take effect, and no attempt is made twice. Keys share
//! [`STRIPES`] locks by their hash.
//!
//! # Invariants
//! - I1. A command takes the gate first, then its stripes in the order of their numbers, all at
//!   once. So there is no circle of waiters.
//! - I2. A thread that waits for the gate for long hands its other tasks over, and asks now and
//!   then whether the wait has become hopeless: a script may keep the gate as long as it likes.
//! - I3. Who holds the gate alone (`EXEC`, scripts, commands for whole databases) takes no stripe.

use std::time::Duration;

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use xxhash_rust::xxh3::xxh3_64;

use crate::fault::Result;

/// How long a thread waits for the gate before it hands its tasks over.
const SHORT: Duration = Duration::from_millis(1);

/// How often it then asks whether to go on.
const LONG: Duration = Duration::from_millis(5);

/// How many locks there are.
const STRIPES: usize = 1024;

/// The locks.
#[derive(Debug)]
pub(crate) struct KeyLocks {
    gate: RwLock<()>,
    stripes: Box<[RwLock<()>]>,
}

/// Whether a lock is shared or exclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LockMode {
    /// Readers.
    Shared,
    /// A writer.
    Alone,
}

/// Held locks, released when this is dropped.
#[derive(Debug)]
#[must_use = "locks are held as long as this lives"]
pub(crate) struct KeyLockGuard<'l> {
    // In the order in which they are let go.
    _stripes: Stripes<'l>,
    _gate: Gate<'l>,
}

#[derive(Debug)]
#[expect(dead_code, reason = "guards are held, not read")]
enum Gate<'l> {
    None,
    Shared(RwLockReadGuard<'l, ()>),
    Alone(RwLockWriteGuard<'l, ()>),
}

#[derive(Debug)]
#[expect(dead_code, reason = "guards are held, not read")]
enum Stripes<'l> {
    None,
    One(Stripe<'l>),
    Many(Vec<Stripe<'l>>),
}

#[derive(Debug)]
#[expect(dead_code, reason = "guards are held, not read")]
enum Stripe<'l> {
    Shared(RwLockReadGuard<'l, ()>),
    Alone(RwLockWriteGuard<'l, ()>),
}

impl Default for KeyLocks {
    fn default() -> KeyLocks {
        KeyLocks {
            gate: RwLock::new(()),
            stripes: (0..STRIPES).map(|_| RwLock::new(())).collect(),
        }
    }
}

impl KeyLocks {
    /// Keeps everybody else out.
    ///
    /// # Errors
    /// What `is_hopeless` says while it waits.
    pub(crate) fn all(&self, is_hopeless: impl FnMut() -> Result<()>) -> Result<KeyLockGuard<'_>> {
        let gate = patient(|time| self.gate.try_write_for(time), is_hopeless)?;
        Ok(KeyLockGuard {
            _stripes: Stripes::None,
            _gate: Gate::Alone(gate),
        })
    }

    fn shared(&self, is_hopeless: impl FnMut() -> Result<()>) -> Result<Gate<'_>> {
        let gate = match self.gate.try_read() {
            Some(gate) => gate,
            None => patient(|time| self.gate.try_read_for(time), is_hopeless)?,
        };
        Ok(Gate::Shared(gate))
    }

    /// Keeps nobody out.
    pub(crate) fn nothing(&self) -> KeyLockGuard<'_> {
        KeyLockGuard {
            _stripes: Stripes::None,
            _gate: Gate::None,
        }
    }

    /// Keeps out only those who keep everybody out.
    ///
    /// # Errors
    /// As [`KeyLocks::all`].
    pub(crate) fn none(&self, is_hopeless: impl FnMut() -> Result<()>) -> Result<KeyLockGuard<'_>> {
        Ok(KeyLockGuard {
            _stripes: Stripes::None,
            _gate: self.shared(is_hopeless)?,
        })
    }

    /// Locks keys. The numbers of databases are no part of it: equal keys of two databases share a
    /// lock.
    ///
    /// # Errors
    /// As [`KeyLocks::all`].
    pub(crate) fn keys<'k>(
        &self,
        hold: LockMode,
        mut keys: impl Iterator<Item = &'k [u8]>,
        is_hopeless: impl FnMut() -> Result<()>,
    ) -> Result<KeyLockGuard<'_>> {
        let gate = self.shared(is_hopeless)?;
        let Some(first) = keys.next() else {
            return Ok(KeyLockGuard {
                _stripes: Stripes::None,
                _gate: gate,
            });
        };
        let stripes = match keys.next() {
            None => Stripes::One(self.stripe(stripe_of(first), hold)),
            Some(second) => {
                let mut numbers = vec![stripe_of(first), stripe_of(second)];
                numbers.extend(keys.map(stripe_of));
                numbers.sort_unstable();
                numbers.dedup();
                let locked = numbers.into_iter().map(|number| self.stripe(number, hold));
                Stripes::Many(locked.collect())
            }
        };
        Ok(KeyLockGuard {
            _stripes: stripes,
            _gate: gate,
        })
    }

    fn stripe(&self, number: usize, hold: LockMode) -> Stripe<'_> {
        let lock = &self.stripes[number];
        match hold {
            LockMode::Shared => Stripe::Shared(lock.read()),
            LockMode::Alone => Stripe::Alone(lock.write()),
        }
    }
}

/// Tries until it succeeds, or there is no hope.
fn patient<T>(
    attempt: impl Fn(Duration) -> Option<T>,
    mut is_hopeless: impl FnMut() -> Result<()>,
) -> Result<T> {
    if let Some(taken) = attempt(SHORT) {
        return Ok(taken);
    }
    tokio::task::block_in_place(|| {
        loop {
            is_hopeless()?;
            if let Some(taken) = attempt(LONG) {
                return Ok(taken);
            }
        }
    })
}

fn stripe_of(key: &[u8]) -> usize {
    usize::try_from(xxh3_64(key) % STRIPES as u64).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writers_of_a_key_exclude_each_other() {
        let locks = KeyLocks::default();
        let held = locks.keys(LockMode::Alone, [&b"a"[..], b"b", b"a"].into_iter(), || {
            Ok(())
        });
        assert!(locks.stripes[stripe_of(b"a")].try_read().is_none());
        assert!(locks.gate.try_write().is_none());
        assert!(locks.gate.try_read().is_some());
        drop(held);
        let _shared = locks.keys(LockMode::Shared, std::iter::once(&b"a"[..]), || Ok(()));
        assert!(locks.stripes[stripe_of(b"a")].try_read().is_some());
        assert!(locks.stripes[stripe_of(b"a")].try_write().is_none());
    }

    #[test]
    fn the_gate_keeps_everybody_out() {
        let locks = KeyLocks::default();
        let held = locks.all(|| Ok(()));
        assert!(locks.gate.try_read().is_none());
        drop(held);
        let _none = locks.none(|| Ok(()));
        assert!(locks.gate.try_write().is_none());
    }
}
