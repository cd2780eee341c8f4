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
use crate::lock::{self, Backoff, STRIPE_BITS, Since, Stripes};

/// The lock of a key, held until this is dropped.
pub(super) enum Held<'a> {
    Stripe(lock::Held<'a>),
    Bucket { _held: HeldBucket<'a> },
}

/// The lock in a bucket.
pub(super) struct HeldBucket<'a> {
    line: &'a Line,
    medium: &'a Medium,
    is_flushed: bool,
}

impl Held<'_> {
    /// Counts an entry more, where entries are counted.
    #[inline]
    pub(super) fn count_insert(&self) {
        if let Held::Stripe(held) = self {
            held.count_insert();
        }
    }

    /// Counts an entry less, where entries are counted.
    #[inline]
    pub(super) fn count_remove(&self) {
        if let Held::Stripe(held) = self {
            held.count_remove();
        }
    }
}

impl Drop for HeldBucket<'_> {
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
pub(super) enum HeldAll<'a, F: Form> {
    Stripes { _held: Vec<lock::Held<'a>> },
    Buckets(&'a ClhtTable<F>, Table<F>),
}

impl<F: Form> HeldAll<'_, F> {
    /// Says that another table is in use: locks that lie in the old one stay held.
    pub(super) fn give_up(self) {
        if let HeldAll::Buckets(..) = self {
            std::mem::forget(self);
        }
    }
}

impl<F: Form> Drop for HeldAll<'_, F> {
    fn drop(&mut self) {
        if let HeldAll::Buckets(index, table) = self {
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
    #[inline]
    pub(super) fn lock(&self, hash: u64) -> (Table<F>, Held<'_>) {
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
                    Some(Held::Stripe(held))
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
    fn lock_bucket(&self, table: Table<F>, hash: u64) -> Option<Held<'_>> {
        let line = self.bucket(table, table.home(hash));
        let mut backoff = Backoff::default();
        while !line.try_hold(&self.medium) {
            self.help();
            if self.table() != table {
                return None;
            }
            backoff.wait();
        }
        let held = HeldBucket {
            line,
            medium: &self.medium,
            is_flushed: matches!(F::LOCKS, LockPlace::BucketFlushed),
        };
        Some(Held::Bucket { _held: held })
    }

    /// Takes all locks of the table in use, which only the holder of `growth` changes.
    pub(super) fn lock_all(&self) -> HeldAll<'_, F> {
        if !Self::IN_BUCKETS {
            let _held = self.stripes.lock_all();
            return HeldAll::Stripes { _held };
        }
        let table = self.table();
        for line in self.homes(table) {
            let mut backoff = Backoff::default();
            while !line.try_hold(&self.medium) {
                backoff.wait();
            }
        }
        HeldAll::Buckets(self, table)
    }

    /// Lets all locks go that a crash left held, before anybody else has the table.
    pub(super) fn free_locks(&self) {
        if Self::IN_BUCKETS {
            let is_held = |line: &&Line| !line.holds().is_multiple_of(2);
            let held = self.homes(self.table()).filter(is_held);
            held.for_each(|line| line.let_go(&self.medium));
        }
    }

    /// What a reader of `hash` keeps for [`ClhtTable::since`].
    #[inline]
    pub(super) fn look(&self, table: Table<F>, hash: u64) -> u64 {
        match F::LOCKS {
            LockPlace::Dram => self.stripes.at(Stripes::index(hash, table.bits())).look(),
            _ => self.bucket(table, table.home(hash)).holds(),
        }
    }

    /// What has happened under the lock of `hash` since `look`.
    #[inline]
    pub(super) fn since(&self, table: Table<F>, hash: u64, seen: u64) -> Since {
        match F::LOCKS {
            LockPlace::Dram => {
                let stripe = self.stripes.at(Stripes::index(hash, table.bits()));
                stripe.since(seen)
            }
            // The loads before were acquires: as `Stripe::since` has it.
            _ => Since::between(seen, self.bucket(table, table.home(hash)).holds()),
        }
    }
}
