//! What a transaction promises, and its limits.

/// How far a transaction is isolated from others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Isolation {
    /// Committed transactions have the same effect as if they had run one after the other in some
    /// order. A commit fails if anything that the transaction read has changed: a key, an absent
    /// key, or anything in a scanned range.
    #[default]
    Serializable,
    /// All reads are as of one moment, and if two concurrent transactions change the same key, one
    /// of them fails. Two transactions that each read what the other writes may both commit (*write
    /// skew*), though in no serial order would both. This is cheaper if a transaction reads much;
    /// [`Transaction::get_for_update`](crate::Transaction::get_for_update) makes single keys count.
    Snapshot,
}

/// Options of a transaction.
///
/// ```
/// use gabion::{Isolation, TransactionOptions};
///
/// let options = TransactionOptions::default().isolation(Isolation::Snapshot).bytes_max(1 << 20);
/// assert_eq!(options.isolation, Isolation::Snapshot);
/// ```
#[non_exhaustive]
#[derive(Clone, Copy, Debug)]
pub struct TransactionOptions {
    /// Default: [`Isolation::Serializable`].
    pub isolation: Isolation,
    /// Bytes of memory that its writes and its read set may take. They count below the store's
    /// ceiling, [`Options::memory_bytes_max`](crate::Options::memory_bytes_max). Default: 64 MiB.
    pub bytes_max: u64,
    /// How often [`Db::transact`](crate::Db::transact) runs its closure at most. Default: 100.
    pub attempts_max: u32,
}

impl Default for TransactionOptions {
    fn default() -> TransactionOptions {
        TransactionOptions {
            isolation: Isolation::default(),
            bytes_max: 64 << 20,
            attempts_max: 100,
        }
    }
}

impl TransactionOptions {
    /// Sets [`TransactionOptions::isolation`].
    #[must_use]
    pub fn isolation(self, isolation: Isolation) -> TransactionOptions {
        TransactionOptions { isolation, ..self }
    }

    /// Sets [`TransactionOptions::bytes_max`].
    #[must_use]
    pub fn bytes_max(self, bytes_max: u64) -> TransactionOptions {
        TransactionOptions { bytes_max, ..self }
    }

    /// Sets [`TransactionOptions::attempts_max`].
    #[must_use]
    pub fn attempts_max(self, attempts_max: u32) -> TransactionOptions {
        TransactionOptions {
            attempts_max,
            ..self
        }
    }
}
