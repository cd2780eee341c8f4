//! What a transaction promises and how large it may become.

/// What a transaction notices of others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Isolation {
    /// Committed transactions have the effect of some order in which one runs after the other. A
    /// commit is refused if anything that was read has changed: a key, a key that was not there, or
    /// anything in a range that was gone through.
    #[default]
    Serializable,
    /// All reads are of one moment, and of two transactions that overlap and give the same key
    /// another value one is refused. Two that read what the other writes may both take effect
    /// (*write skew*), though in no order of the two each would have. Cheaper where much is read;
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
    /// Bytes that its writes and the notes of its reads may take in memory. They count below the
    /// store's ceiling, [`Options::memory_bytes_max`](crate::Options::memory_bytes_max). Default:
    /// 64 MiB.
    pub bytes_max: u64,
    /// How often [`Db::transact`](crate::Db::transact) runs it at most. Default: 100.
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
