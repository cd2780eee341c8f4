//! The locks of buckets: in DRAM, by stripes, or in the buckets themselves.
//!
//! A lock in a bucket is part of the word of tokens of the bucket's first line, so taking it makes
//! that line dirty, and letting it go does so again after the flush of what was done under it. It
//! is a lock for threads only: what a crash left held is let go when the table is opened.
//!
//! Such a lock can be asked for in a table that was given up meanwhile. So who looks at one keeps
//! the memory of tables from being used again ([`ClhtTable::enter`]), and growth, which takes the
//! locks of all buckets, never lets go those of a table that it has replaced: whoever waits for one
//! sees that there is another table.

use gabion_media::pmem::{Guard, Medium};

use super::ClhtTable;
use super::form::{Form, LockPlace};
use super::table::Table;
use crate::line::Line;
use crate::lock::{self, Backoff, STRIPE_BITS, Stripe, StripeChange, Stripes};

/// The lock of a key, held until this is dropped.
pub(super) enum KeyLock<'a> {
    Stripe(lock::StripeGuard<'a>),
    Bucket { _held: BucketLock<'a> },
}

/// The lock in a bucket.
pub(super) struct BucketLock<'a> {
    line: &'a Line,
    medium: &'a Medium,
    is_flushed: bool,
}

impl KeyLock<'_> {
    /// Counts an entry more, where entries are counted.
    #[inline]
    pub(super) fn count_insert(&self) {
        if let KeyLock::Stripe(held) = self {
            held.count_insert();
        }
    }

    /// Counts an entry less, where entries are counted.
    #[inline]
    pub(super) fn count_remove(&self) {
        if let KeyLock::Stripe(held) = self {
            held.count_remove();
        }
    }
}

impl Drop for BucketLock<'_> {
    #[inline]
    fn drop(&mut self) {
        self.line.let_go(self.medium);
        if self.is_flushed {
            // DURABLE: nothing that counts. The line goes to the medium while what was flushed of
            // it before waits there to be combined; else it would go later, on its own.
            self.medium.flush(self.line);
        }
    }
}

/// All locks of a table, held until this is dropped.
pub(super) enum AllLocks<'a, F: Form> {
    Stripes { _held: Vec<lock::StripeGuard<'a>> },
    Buckets(&'a ClhtTable<F>, Table<F>),
}

impl<F: Form> AllLocks<'_, F> {
    /// Says that another table is in use: locks that lie in the old one stay held.
    pub(super) fn give_up(self) {
        if let AllLocks::Buckets(..) = self {
            std::mem::forget(self);
        }
    }
}

impl<F: Form> Drop for AllLocks<'_, F> {
    fn drop(&mut self) {
        if let AllLocks::Buckets(index, table) = self {
            let homes = index.homes(*table);
            homes.for_each(|line| line.let_go(&index.medium));
        }
    }
}

impl<F: Form> ClhtTable<F> {
    /// Whether locks lie in buckets.
    pub(super) const IN_BUCKETS: bool = !matches!(F::LOCKS, LockPlace::Dram);

    /// Keeps tables that are given up from here on readable, if their locks are looked at.
    #[inline]
    pub(super) fn enter(&self) -> Option<Guard<'_>> {
        Self::IN_BUCKETS.then(|| self.pool.enter())
    }

    /// The first lines of all buckets.
    fn homes(&self, table: Table<F>) -> impl Iterator<Item = &Line> {
        (0..table.len()).map(move |number| self.bucket(table, number))
    }

    /// First bits of hashes that share a lock.
    pub(super) fn lock_bits(table: Table<F>) -> u32 {
        match F::LOCKS {
            LockPlace::Dram => table.bits().min(STRIPE_BITS),
            LockPlace::Bucket | LockPlace::BucketFlushed => table.bits(),
        }
    }

    /// Takes the lock of `hash`, and returns the table, which stays while it is held. The caller
    /// has entered.
    #[inline(always)]
    pub(super) fn lock(&self, hash: u64) -> (Table<F>, KeyLock<'_>) {
        loop {
            let table = self.table();
            self.prefetch_home(table, hash);
            let held = match F::LOCKS {
                LockPlace::Dram => {
                    let stripe = self.stripes.at(Stripes::index(hash, table.bits()));
                    let held = match stripe.try_lock() {
                        Some(held) => held,
                        None => stripe.lock_slowly(|| self.help()),
                    };
                    Some(KeyLock::Stripe(held))
                }
                LockPlace::Bucket | LockPlace::BucketFlushed => self.lock_bucket(table, hash),
            };
            if let Some(held) = held
                && self.table() == table
            {
                return (table, held);
            }
        }
    }

    /// Takes the lock in the home of `hash`; none if the table is not in use any more.
    fn lock_bucket(&self, table: Table<F>, hash: u64) -> Option<KeyLock<'_>> {
        let line = self.bucket(table, table.home(hash));
        let mut backoff = Backoff::default();
        while !line.try_hold(&self.medium) {
            self.help();
            if self.table() != table {
                return None;
            }
            backoff.wait();
        }
        let held = BucketLock {
            line,
            medium: &self.medium,
            is_flushed: matches!(F::LOCKS, LockPlace::BucketFlushed),
        };
        Some(KeyLock::Bucket { _held: held })
    }

    /// Takes all locks of the table in use, which only the holder of `growth` changes.
    pub(super) fn lock_all(&self) -> AllLocks<'_, F> {
        if !Self::IN_BUCKETS {
            let _held = self.stripes.lock_all();
            return AllLocks::Stripes { _held };
        }
        let table = self.table();
        for line in self.homes(table) {
            let mut backoff = Backoff::default();
            while !line.try_hold(&self.medium) {
                backoff.wait();
            }
        }
        AllLocks::Buckets(self, table)
    }

    /// Lets all locks go that a crash left held, before anybody else has the table.
    pub(super) fn free_locks(&self) {
        if Self::IN_BUCKETS {
            let is_held = |line: &&Line| !line.holds().is_multiple_of(2);
            let held = self.homes(self.table()).filter(is_held);
            held.for_each(|line| line.let_go(&self.medium));
        }
    }

    /// The lock of `hash`, for a reader who looks at it before and after.
    #[inline(always)]
    pub(super) fn lock_word(&self, table: Table<F>, hash: u64) -> LockWord<'_> {
        match F::LOCKS {
            LockPlace::Dram => {
                let stripe = self.stripes.at(Stripes::index(hash, table.bits()));
                LockWord::Stripe(stripe)
            }
            LockPlace::Bucket | LockPlace::BucketFlushed => {
                LockWord::Bucket(self.bucket(table, table.home(hash)))
            }
        }
    }
}

/// A lock that is looked at.
#[derive(Clone, Copy)]
pub(super) enum LockWord<'a> {
    Stripe(&'a Stripe),
    Bucket(&'a Line),
}

impl LockWord<'_> {
    /// What is kept for [`LockWord::since`].
    #[inline(always)]
    pub(super) fn look(self) -> u64 {
        match self {
            LockWord::Stripe(stripe) => stripe.look(),
            LockWord::Bucket(line) => line.holds(),
        }
    }

    /// What has happened under the lock since `look`. What was read in between was read with
    /// acquire.
    #[inline(always)]
    pub(super) fn since(self, seen: u64) -> StripeChange {
        match self {
            LockWord::Stripe(stripe) => stripe.since(seen),
            LockWord::Bucket(line) => StripeChange::between(seen, line.holds()),
        }
    }
}
