//! Leaves: neighbouring intervals, and their decoded form where it is cached.
//!
//! # Invariants
//! - L1. Which intervals a leaf has never changes: another leaf takes its place, and its forms. The
//!   length of an interval changes in place, under the index's lock held alone; its cached form
//!   does so just before, when the version is odd and nobody else can get that lock.
//! - L2. Forms are put in by those who hold the lock at all, and find, with the form's own lock,
//!   that the leaf is of the even version of which they read, and taken out by the hand of the
//!   cache, which holds the lock, too. So a form that is put in is of the interval as it is, and
//!   whoever makes a version odd finds all forms that were read before.
//! - L3. A bit of `full` is set from before a form is put in until it was taken out. Where a form
//!   has room to give up, and nobody holds its lock, its bit of `roomy` is set, or the hand is
//!   about to take that room.
//!
//! # Locks of forms
//! Each form has a lock of its own, which a reader shares while it looks for a pair and copies its
//! value, and somebody takes alone while the form changes in place: both some 100 ns, in which
//! nothing else is waited for. What keeps a form longer shares its memory, and a change leaves that
//! as it is.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use gabion_media::prefetch_line;
use parking_lot::RwLock;

use super::super::interval::Interval;
use super::keys::SortedKeys;
use crate::slabs::Slabs;

/// Most intervals of a leaf. A leaf is made anew when an interval is cut in two; of more intervals
/// that would cost more, and with fewer there are more leaves.
pub(super) const LEAF_MAX: usize = 32;

/// The decoded form of an interval, if it is cached.
type Form = RwLock<Option<Arc<Interval>>>;

/// Forms of one cache line.
const LINE_FORMS: usize = 64 / size_of::<Form>();

/// That nobody has counted the extents of an interval, or that they are many.
pub(in super::super) const EXTENTS_UNKNOWN: u8 = u8::MAX;

/// An interval of a leaf that is going to be made.
#[derive(Debug)]
pub(super) struct NewLeafEntry<'k> {
    pub(super) key: &'k [u8],
    pub(super) len: u64,
    pub(super) extents: u8,
    pub(super) interval: Option<Arc<Interval>>,
    /// Whether that may have room to give up.
    pub(super) is_roomy: bool,
}

/// Neighbouring intervals.
#[derive(Debug)]
pub(in super::super) struct IndexLeaf {
    pub(super) keys: SortedKeys<[u64; LEAF_MAX]>,
    forms: [Form; LEAF_MAX],
    /// Bytes in the space.
    lens: [AtomicU64; LEAF_MAX],
    /// In how many extents the intervals lie at most, as far as that is known.
    extents: [AtomicU8; LEAF_MAX],
    /// Which forms were read since the hand of the cache came by.
    used: AtomicU32,
    /// Which forms are there.
    full: AtomicU32,
    /// Which forms may have room to give up.
    roomy: AtomicU32,
    /// Counts the changes of content.
    version: AtomicU32,
    /// Where the next leaf begins.
    upper: Option<Box<[u8]>>,
}

const _: () = assert!(LEAF_MAX == u32::BITS as usize);

impl IndexLeaf {
    pub(super) fn new(items: Vec<NewLeafEntry<'_>>, upper: Option<&[u8]>) -> IndexLeaf {
        let (mut full, mut roomy) = (0, 0);
        for (at, item) in items.iter().enumerate() {
            full |= u32::from(item.interval.is_some()) << at;
            roomy |= u32::from(item.is_roomy) << at;
        }
        let keys = SortedKeys::new(items.iter().map(|item| item.key), upper);
        let lens = std::array::from_fn(|at| items.get(at).map_or(0, |item| item.len).into());
        let extents = std::array::from_fn(|at| items.get(at).map_or(0, |item| item.extents).into());
        let mut forms = items.into_iter().map(|item| item.interval);
        IndexLeaf {
            keys,
            forms: std::array::from_fn(|_| RwLock::new(forms.next().flatten())),
            lens,
            extents,
            used: AtomicU32::new(0),
            full: AtomicU32::new(full),
            roomy: AtomicU32::new(roomy),
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

    /// A number that is another one after each change of an interval's content, and odd while one
    /// has begun: then forms may be ahead of the space. The caller holds the lock.
    pub(in super::super) fn version(&self) -> u32 {
        // ORDER: Relaxed; the lock of the index orders changes and those who ask.
        self.version.load(Ordering::Relaxed)
    }

    /// Bytes of an interval in the space.
    pub(in super::super) fn len(&self, at: usize) -> u64 {
        // ORDER: Relaxed; the lock of the index orders changes and those who rely on them.
        self.lens[at].load(Ordering::Relaxed)
    }

    /// In how many extents an interval lies at most, about; [`EXTENTS_UNKNOWN`] for any number.
    pub(in super::super) fn extents(&self, at: usize) -> u8 {
        // ORDER: Relaxed; a hint of what is worth to be written anew.
        self.extents[at].load(Ordering::Relaxed)
    }

    /// Notes in how many extents an interval lies.
    pub(in super::super) fn set_extents(&self, at: usize, extents: u8) {
        // ORDER: Relaxed, as in `extents`.
        self.extents[at].store(extents, Ordering::Relaxed);
    }

    /// Bytes of the intervals in front of one.
    pub(in super::super) fn len_before(&self, at: usize) -> u64 {
        (0..at).map(|before| self.len(before)).sum()
    }

    /// Calls `read` with the form of an interval, if it is cached, and tells the hand.
    #[inline]
    pub(super) fn with<T>(&self, at: usize, read: impl FnOnce(&Arc<Interval>) -> T) -> Option<T> {
        // ORDER: Relaxed (both); a hint for the hand.
        if self.used.load(Ordering::Relaxed) & (1 << at) == 0 {
            self.used.fetch_or(1 << at, Ordering::Relaxed);
        }
        self.forms[at].read().as_ref().map(read)
    }

    /// The form of an interval, if it is cached, to keep.
    pub(in super::super) fn cached(&self, at: usize) -> Option<Arc<Interval>> {
        self.with(at, Arc::clone)
    }

    /// As [`IndexLeaf::cached`], without telling the hand.
    pub(in super::super) fn peek(&self, at: usize) -> Option<Arc<Interval>> {
        self.forms[at].read().clone()
    }

    /// Asks for the memory of the form of an interval; false if it is not cached.
    pub(in super::super) fn prefetch_form(&self, at: usize) -> bool {
        let form = self.forms[at].read();
        form.as_ref().map(|form| form.prefetch()).is_some()
    }

    /// Asks for the memory of the pairs of an interval whose form was asked for before.
    pub(in super::super) fn prefetch_pairs(&self, at: usize) {
        if let Some(form) = &*self.forms[at].read() {
            form.prefetch_pairs();
        }
    }

    /// Puts a form in that was read when the leaf was of this version; false if there is one, or
    /// that was before a change. The caller holds the lock.
    pub(super) fn fill(&self, at: usize, version: u32, interval: &Arc<Interval>) -> bool {
        // ORDER: Relaxed; the bit decides who puts it in, and orders nothing.
        if self.full.fetch_or(1 << at, Ordering::Relaxed) & (1 << at) != 0 {
            return false;
        }
        let mut form = self.forms[at].write();
        if version == self.version() && version.is_multiple_of(2) {
            *form = Some(Arc::clone(interval));
            return true;
        }
        if form.is_none() {
            // ORDER: Relaxed, as above.
            self.full.fetch_and(!(1 << at), Ordering::Relaxed);
        }
        false
    }

    /// Says that forms are about to change before the space does. The caller holds the lock
    /// [ahead](gabion_flex::SharedLock::ahead) of all changes.
    pub(super) fn begin_change(&self) {
        // ORDER: Relaxed (both); the locks of the forms order it and those who put forms in, and
        // nobody else changes it meanwhile.
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version | 1, Ordering::Relaxed);
    }

    /// Gives an interval another length and another number of extents; returns the old length. The
    /// caller holds the lock alone.
    pub(super) fn set_content(&self, at: usize, (len, extents): (u64, u8)) -> u64 {
        self.set_extents(at, extents);
        // ORDER: Relaxed (all); the lock orders them, and lets nobody else change them.
        let version = self.version.load(Ordering::Relaxed);
        self.version
            .store(version.wrapping_add(2) & !1, Ordering::Relaxed);
        let old_len = self.lens[at].load(Ordering::Relaxed);
        self.lens[at].store(len, Ordering::Relaxed);
        old_len
    }

    /// Changes the form of an interval. The caller holds the lock ahead of all changes, and has
    /// [begun](IndexLeaf::begin_change) one.
    pub(super) fn change_form(&self, at: usize, change: impl FnOnce(&mut Option<Arc<Interval>>)) {
        let bit = 1 << at;
        let mut form = self.forms[at].write();
        change(&mut form);
        // ORDER: Relaxed (all); the lock of the form orders it and the hand, and who puts one in
        // looks again when it has that.
        let is_full = self.full.load(Ordering::Relaxed) & bit != 0;
        match form.is_some() {
            true if !is_full => self.full.fetch_or(bit, Ordering::Relaxed),
            false if is_full => self.full.fetch_and(!bit, Ordering::Relaxed),
            _ => bit,
        };
        let is_roomy = form.as_ref().is_some_and(|form| form.has_room());
        // ORDER: Relaxed (both), as above.
        if is_roomy && self.roomy.load(Ordering::Relaxed) & bit == 0 {
            self.roomy.fetch_or(bit, Ordering::Relaxed);
        }
    }

    /// Lets the hand of the cache pass that takes the room of forms; returns its bytes. What
    /// somebody keeps stays as it is. The caller holds the lock.
    pub(super) fn sweep_room(&self, slabs: &Arc<Slabs>) -> u64 {
        // ORDER: Relaxed; the lock orders it and changes.
        let mut roomy = self.roomy.swap(0, Ordering::Relaxed);
        let mut bytes = 0;
        while roomy != 0 {
            let at = roomy.trailing_zeros();
            roomy &= roomy - 1;
            let mut form = self.forms[at as usize].write();
            let before = memory_of(form.as_ref());
            if let Some(own) = form.as_mut().and_then(Arc::get_mut) {
                own.give_up_room(slabs);
            }
            bytes += before - memory_of(form.as_ref());
        }
        bytes
    }

    /// Lets the hand of the cache pass that empties pages: of the forms that lie in one which is
    /// drained it takes out those that nobody read since it came by last, and moves the others.
    /// What somebody keeps stays where it is. Returns the bytes of what it took out, and at how
    /// many forms it has looked. The caller holds the lock.
    pub(super) fn sweep_drained(&self, slabs: &Arc<Slabs>) -> (u64, usize) {
        // ORDER: Relaxed (all), as in `with` and `fill`.
        let (used, full) = (
            self.used.load(Ordering::Relaxed),
            self.full.load(Ordering::Relaxed),
        );
        let is_drained = |form: &Arc<Interval>| form.is_drained();
        let mut bytes = 0;
        for at in (0..LEAF_MAX).filter(|at| full & 1 << at != 0) {
            if !self.forms[at].read().as_ref().is_some_and(is_drained) {
                continue;
            }
            if used & 1 << at == 0 {
                bytes += self.take_form(at);
            } else if let Some(own) = self.forms[at].write().as_mut().and_then(Arc::get_mut) {
                own.leave_page(slabs);
            }
        }
        (bytes, full.count_ones() as usize)
    }

    /// Lets the hand of the cache pass: takes out the forms that nobody read since it came by last,
    /// and returns their bytes. The caller holds the lock.
    pub(super) fn sweep(&self) -> u64 {
        // ORDER: Relaxed (all), as in `with` and `fill`.
        let used = self.used.swap(0, Ordering::Relaxed);
        let mut full = self.full.load(Ordering::Relaxed) & !used;
        let mut bytes = 0;
        while full != 0 {
            let at = full.trailing_zeros();
            full &= full - 1;
            bytes += self.take_form(at as usize);
        }
        bytes
    }

    /// Takes a form out, if it is there; returns its bytes.
    fn take_form(&self, at: usize) -> u64 {
        // Whoever is putting one in has set the bit before.
        let mut form = self.forms[at].write();
        let taken = form.take();
        if taken.is_some() {
            // ORDER: Relaxed; the lock of the form orders it and changes.
            self.full.fetch_and(!(1 << at), Ordering::Relaxed);
        }
        drop(form);
        memory_of(taken.as_ref())
    }

    /// Takes the intervals out, to make another leaf of them and some more. Who still reads here
    /// finds no form, and the other leaf when it looks again. The caller holds the lock alone, or
    /// ahead of all changes, and has [begun](IndexLeaf::begin_change) one.
    pub(super) fn take_items(&self, more: usize) -> Vec<NewLeafEntry<'_>> {
        let item = |at: usize| NewLeafEntry {
            key: self.keys.get(at),
            len: self.len(at),
            extents: self.extents(at),
            interval: self.forms[at].write().take(),
            // ORDER: Relaxed; the lock of the index orders it.
            is_roomy: self.roomy.load(Ordering::Relaxed) & 1 << at != 0,
        };
        let mut items = Vec::with_capacity(self.count() + more);
        items.extend((0..self.count()).map(item));
        items
    }

    /// Memory of the forms in bytes.
    pub(super) fn form_bytes(&self) -> u64 {
        let forms = self.forms.iter();
        forms.map(|form| memory_of(form.read().as_ref())).sum()
    }

    /// Memory of the leaf in bytes, without the forms.
    pub(super) fn memory_bytes(&self) -> usize {
        size_of::<IndexLeaf>() + self.keys.memory_bytes() + self.end().map_or(0, <[u8]>::len)
    }
}

/// Memory of a form in bytes, if there is one.
pub(super) fn memory_of(form: Option<&Arc<Interval>>) -> u64 {
    form.map_or(0, |interval| interval.memory_bytes())
}
