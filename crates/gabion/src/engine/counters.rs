//! What the engines count.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::stats::nanos;
use crate::stripe::Striped;

/// A figure for people. It orders nothing, so all accesses are relaxed.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// Adds to it.
    #[inline]
    pub(crate) fn add(&self, amount: u64) {
        // ORDER: Relaxed, see the type.
        self.0.fetch_add(amount, Ordering::Relaxed);
    }

    /// Makes it at least this.
    pub(crate) fn raise(&self, to: u64) {
        // ORDER: Relaxed, see the type.
        self.0.fetch_max(to, Ordering::Relaxed);
    }

    /// Gives it another value.
    pub(crate) fn set(&self, value: u64) {
        // ORDER: Relaxed, see the type.
        self.0.store(value, Ordering::Relaxed);
    }

    /// Its value.
    pub(crate) fn get(&self) -> u64 {
        // ORDER: Relaxed, see the type.
        self.0.load(Ordering::Relaxed)
    }
}

/// A figure that all writers add to, each thread to a counter of its own.
#[derive(Debug, Default)]
pub(crate) struct Tally(Striped<Counter>);

impl Tally {
    /// Adds to it.
    #[inline]
    pub(crate) fn add(&self, amount: u64) {
        self.0.own().add(amount);
    }

    /// Its value.
    pub(crate) fn get(&self) -> u64 {
        self.0.all().map(Counter::get).sum()
    }
}

/// What a store did.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// Bytes of keys and values that were written.
    pub(crate) user_bytes: Tally,
    /// Acknowledged writes.
    pub(crate) writes: Tally,
    /// MemTables that became something on the medium.
    pub(crate) flushes: Counter,
    /// Times that something was written anew to be in better order.
    pub(crate) compactions: Counter,
    /// Buckets that were split.
    pub(crate) splits: Counter,
    /// Times that small neighbours became one bucket.
    pub(crate) joins: Counter,
    /// Small tables that became one with their neighbours where others are moved as they are.
    pub(crate) coalesced_tables: Counter,
    /// Tables that were dropped unread, since all in them had expired.
    pub(crate) expired_tables_dropped: Counter,
}

impl Counters {
    /// A write of so many bytes of keys and values was acknowledged.
    #[inline]
    pub(crate) fn count_write(&self, user_bytes: u64) {
        self.user_bytes.add(user_bytes);
        self.writes.add(1);
    }
}

/// How long writers were held back.
#[derive(Debug, Default)]
pub(crate) struct WriteStallCounters {
    /// Nanoseconds that writers slept or waited.
    pub(crate) slowdown_ns: Counter,
    /// The longest of these.
    pub(crate) slowdown_ns_max: Counter,
    /// Nanoseconds of them that writers were stopped.
    pub(crate) stall_ns: Counter,
    /// How often a writer was stopped.
    pub(crate) stalls: Counter,
}

impl WriteStallCounters {
    /// A write was held back for so long.
    pub(crate) fn count_slowdown(&self, time: Duration) {
        self.slowdown_ns.add(nanos(time));
        self.slowdown_ns_max.raise(nanos(time));
    }
}
