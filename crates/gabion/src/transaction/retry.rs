//! A transaction that is run until it takes effect.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

use super::{Transaction, TransactionOptions};
use crate::stats::nanos;
use crate::{Db, Error, Result};

/// Attempts that follow each other at once.
const ATTEMPTS_AT_ONCE: u32 = 3;

/// The longest pause after the first attempt that waits; it doubles with each one.
const PAUSE: Duration = Duration::from_micros(20);

/// How often it doubles: up to 20 ms.
const DOUBLINGS_MAX: u32 = 10;

impl Db {
    /// Runs `body` in a [serializable](crate::Isolation::Serializable) transaction and commits it.
    /// After a conflict, runs it again in a new transaction. An error of `body` rolls back.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = gabion::Db::open(dir.path())?;
    /// let counters = db.keyspace("counters")?;
    /// let visits = db.transact(|transaction| {
    ///     let visits = transaction.get(&counters, "visits")?.map_or(0, |value| value[0]) + 1;
    ///     transaction.put(&counters, "visits", [visits])?;
    ///     Ok::<_, gabion::Error>(visits)
    /// })?;
    /// assert_eq!(visits, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Those of `body`; [`Error::Conflict`] where that many
    /// [attempts](TransactionOptions::attempts_max) met one; and as [`Transaction::commit`].
    pub fn transact<T, E: From<Error>>(
        &self,
        body: impl FnMut(&mut Transaction) -> Result<T, E>,
    ) -> Result<T, E> {
        self.transact_with(TransactionOptions::default(), body)
    }

    /// As [`Db::transact`], with options.
    ///
    /// # Errors
    /// Those of [`Db::transact`].
    pub fn transact_with<T, E: From<Error>>(
        &self,
        options: TransactionOptions,
        mut body: impl FnMut(&mut Transaction) -> Result<T, E>,
    ) -> Result<T, E> {
        let mut attempt = 1;
        loop {
            let mut transaction = self.begin_with(options)?;
            let result = body(&mut transaction)?;
            match transaction.commit() {
                Ok(()) => return Ok(result),
                Err(Error::Conflict { .. }) if attempt < options.attempts_max => pause(attempt),
                Err(error) => return Err(error.into()),
            }
            attempt += 1;
        }
    }
}

/// Waits for a random time, longer after more attempts, so that conflicting transactions spread
/// out.
fn pause(attempt: u32) {
    let Some(doublings) = attempt.checked_sub(ATTEMPTS_AT_ONCE) else {
        return std::thread::yield_now();
    };
    let longest = nanos(PAUSE * (1 << doublings.min(DOUBLINGS_MAX)));
    // A new state has new keys.
    let random = RandomState::new().build_hasher().finish();
    std::thread::sleep(Duration::from_nanos(random % longest.max(1)));
}
