//! Leaves: neighbouring intervals, and their decoded form where it is cached.
//!
//! # Invariants
//! - L1. Which intervals a leaf has never changes: another leaf takes its place. The length and the
//!   cached form of an interval change in place, under the index's lock held alone.
//! - L2. Forms are put in by those who hold the lock at all and have seen that the leaf is of the
//!   version which they read, and taken out by the hand of the cache, which holds the lock, too; so
//!   a form that is put in is of the interval as it is.
//! - L3. A bit of `full` is set from before a form is put in until after it was taken out.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use arc_swap::{ArcSwapOption, Guard};
use gabion_media::prefetch_line;

use super::super::interval::Interval;
use super::keys::Keys;

/// Most intervals of a leaf. A leaf is made anew when an interval is cut in two; of more intervals
/// that would cost more, and with fewer there are more leaves.
pub(super) const LEAF_MAX: usize = 32;

/// Forms of one cache line.
const LINE_FORMS: usize = 8;

/// An interval of a leaf that is going to be made.
#[derive(Debug)]
pub(super) struct Item<'k> {
    pub(super) key: &'k [u8],
    pub(super) len: u64,
    pub(super) interval: Option<Arc<Interval>>,
}

/// Neighbouring intervals.
#[derive(Debug)]
pub(in super::super) struct Leaf {
    pub(super) keys: Keys<[u64; LEAF_MAX]>,
    forms: [ArcSwapOption<Interval>; LEAF_MAX],
    /// Bytes in the space.
    lens: [AtomicU64; LEAF_MAX],
    /// Which forms were read since the hand of the cache came by.
    used: AtomicU32,
    /// Which forms are there.
    full: AtomicU32,
    /// Counts the changes of content.
    version: AtomicU32,
    /// Where the next leaf begins.
    upper: Option<Box<[u8]>>,
}

const _: () = assert!(LEAF_MAX == u32::BITS as usize);

impl Leaf {
    pub(super) fn new(items: &[Item<'_>], upper: Option<&[u8]>) -> Leaf {
        let mut full = 0;
        for (at, item) in items.iter().enumerate() {
            full |= u32::from(item.interval.is_some()) << at;
        }
        Leaf {
            keys: Keys::new(items.iter().map(|item| item.key), upper),
            forms: std::array::from_fn(|at| {
                let interval = items.get(at).and_then(|item| item.interval.clone());
                ArcSwapOption::new(interval)
            }),
            lens: std::array::from_fn(|at| items.get(at).map_or(0, |item| item.len).into()),
            used: AtomicU32::new(0),
            full: AtomicU32::new(full),
            version: AtomicU32::new(0),
            upper: upper.map(Into::into),
        }
    }

    /// Asks for the memory that the cached forms are found by, while the keys are searched.
    #[inline]
    pub(super) fn prefetch(&self) {
        for line in self.forms.chunks(LINE_FORMS) {
            prefetch_line(line.as_ptr().cast());
        }
    }

    /// Number of intervals.
    pub(in super::super) fn count(&self) -> usize {
        self.keys.len()
    }

    /// The smallest key that belongs to an interval.
    pub(in super::super) fn lower(&self, at: usize) -> &[u8] {
        self.keys.get(at)
    }

    /// The first key that belongs to the interval behind that one.
    pub(in super::super) fn upper(&self, at: usize) -> Option<&[u8]> {
        match at + 1 < self.count() {
            true => Some(self.keys.get(at + 1)),
            false => self.upper.as_deref(),
        }
    }

    /// The first key behind the leaf.
    pub(super) fn end(&self) -> Option<&[u8]> {
        self.upper.as_deref()
    }

    /// A number that is another one after each change of an interval's content. The caller holds
    /// the lock.
    pub(in super::super) fn version(&self) -> u32 {
        // ORDER: Relaxed; the lock of the index orders changes and those who ask.
        self.version.load(Ordering::Relaxed)
    }

    /// Bytes of an interval in the space.
    pub(in super::super) fn len(&self, at: usize) -> u64 {
        // ORDER: Relaxed; the lock of the index orders changes and those who rely on them.
        self.lens[at].load(Ordering::Relaxed)
    }

    /// Bytes of the intervals in front of one.
    pub(super) fn len_before(&self, at: usize) -> u64 {
        (0..at).map(|before| self.len(before)).sum()
    }

    /// The form of an interval, if it is cached, lent.
    #[inline]
    pub(super) fn lend(&self, at: usize) -> Guard<Option<Arc<Interval>>> {
        // ORDER: Relaxed (both); a hint for the hand.
        if self.used.load(Ordering::Relaxed) & (1 << at) == 0 {
            self.used.fetch_or(1 << at, Ordering::Relaxed);
        }
        self.forms[at].load()
    }

    /// The form of an interval, if it is cached, to keep.
    pub(in super::super) fn cached(&self, at: usize) -> Option<Arc<Interval>> {
        Guard::into_inner(self.lend(at))
    }

    /// As [`Leaf::cached`], without telling the hand.
    pub(in super::super) fn peek(&self, at: usize) -> Option<Arc<Interval>> {
        self.forms[at].load_full()
    }

    /// Puts a form in; false if there is one. The caller holds the lock.
    pub(super) fn fill(&self, at: usize, interval: &Arc<Interval>) -> bool {
        // ORDER: Relaxed; the bit decides who puts it in, and orders nothing.
        if self.full.fetch_or(1 << at, Ordering::Relaxed) & (1 << at) != 0 {
            return false;
        }
        self.forms[at].store(Some(Arc::clone(interval)));
        true
    }

    /// Gives an interval other content. The caller holds the lock alone. Returns the old length and
    /// the old form.
    pub(super) fn change(
        &self,
        at: usize,
        len: u64,
        interval: Option<Arc<Interval>>,
    ) -> (u64, Option<Arc<Interval>>) {
        let bit = 1 << at;
        // ORDER: Relaxed (all); the lock orders them.
        self.version.fetch_add(1, Ordering::Relaxed);
        match interval.is_some() {
            true => self.full.fetch_or(bit, Ordering::Relaxed),
            false => self.full.fetch_and(!bit, Ordering::Relaxed),
        };
        let old_len = self.lens[at].swap(len, Ordering::Relaxed);
        (old_len, self.forms[at].swap(interval))
    }

    /// Lets the hand of the cache pass: takes out the forms that nobody read since it came by last,
    /// and returns their bytes. The caller holds the lock.
    pub(super) fn sweep(&self) -> u64 {
        // ORDER: Relaxed (all), as in `lend` and `fill`.
        let used = self.used.swap(0, Ordering::Relaxed);
        let mut full = self.full.load(Ordering::Relaxed) & !used;
        let mut bytes = 0;
        while full != 0 {
            let at = full.trailing_zeros();
            full &= full - 1;
            // Whoever is putting one in has set the bit before.
            if let Some(interval) = self.forms[at as usize].swap(None) {
                // ORDER: Relaxed, as above.
                self.full.fetch_and(!(1 << at), Ordering::Relaxed);
                bytes += interval.memory_bytes();
            }
        }
        bytes
    }

    /// The intervals, to make another leaf of them.
    pub(super) fn items(&self) -> Vec<Item<'_>> {
        let item = |at| Item {
            key: self.keys.get(at),
            len: self.len(at),
            interval: self.peek(at),
        };
        (0..self.count()).map(item).collect()
    }

    /// Memory of the leaf in bytes, without the forms.
    pub(super) fn memory_bytes(&self) -> usize {
        size_of::<Leaf>() + self.keys.memory_bytes() + self.end().map_or(0, <[u8]>::len)
    }
}
