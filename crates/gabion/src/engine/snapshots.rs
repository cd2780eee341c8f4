//! Which sequence numbers somebody still reads at.
//!
//! A flush or a compaction drops a version when a newer one hides it from every reader. Readers at
//! a fixed number (snapshots, iterators) register it here; a reader of the newest state needs no
//! registration, because a job also protects the number that was visible when it began.
//!
//! Every iterator registers one, so readers that begin at the same time do so in different lists,
//! each with a lock of its own. Mostly few numbers differ, and those stand in a short sorted list,
//! which costs neither a search nor an allocation. What does not fit there, where a program keeps
//! very many snapshots, stands in a tree: there a registration costs its logarithm to begin and to
//! end, in any order.
//!
//! # Invariants
//! - I1: a number that registers after a job took its list is not below the visible number in that
//!   list, and a job keeps every version above that number. Both are taken under the lock of the
//!   registration's list, and a job holds those of all lists.
//! - I2: the lists together have each number as often as it is registered. A registration may end
//!   in another list than it began in, on another thread; what a job finds, holding all locks, is
//!   the same as in a single list.

use std::collections::BTreeMap;

use parking_lot::{Mutex, MutexGuard};

use crate::stripe::Striped;
use crate::types::Seq;

/// The registered numbers.
#[derive(Default)]
pub(crate) struct Snapshots {
    readers: Striped<Mutex<Readers>>,
}

/// Numbers that stand in the list of a [`Readers`], at most: as many as fit in some cache lines.
const FEW: usize = 32;

/// Some of the registered numbers, with how many readers each has: at least one.
#[derive(Default)]
struct Readers {
    /// Ascending.
    few: Vec<(Seq, usize)>,
    /// Those that found no place there.
    many: BTreeMap<Seq, usize>,
}

impl Snapshots {
    /// Registers the number that `visible` returns.
    pub(crate) fn register(&self, visible: impl FnOnce() -> Seq) -> Seq {
        let mut readers = self.readers.own().lock();
        let seq = visible();
        readers.add(seq);
        seq
    }

    /// Registers a number that is registered already, for one more reader.
    pub(crate) fn register_again(&self, seq: Seq) {
        self.readers.own().lock().add(seq);
    }

    /// Ends one registration.
    pub(crate) fn release(&self, seq: Seq) {
        if self.readers.own().lock().remove(seq) {
            return;
        }
        // It began on another thread (I2). With all locks held it cannot be missed.
        let mut lists = self.lock_all();
        let found = lists.iter_mut().any(|readers| readers.remove(seq));
        debug_assert!(found, "a registration ends once");
    }

    /// What a job that begins now must protect.
    pub(crate) fn protect(&self, visible: impl FnOnce() -> Seq) -> Protected {
        let lists = self.lock_all();
        let visible = visible();
        let seqs = lists.iter().flat_map(|readers| readers.counts());
        let mut bounds: Vec<Seq> = seqs
            .map(|(seq, _)| seq)
            .filter(|seq| *seq < visible)
            .collect();
        drop(lists);
        #[cfg(test)]
        COLLECTED.set(COLLECTED.get() + bounds.len());
        bounds.sort_unstable();
        bounds.dedup();
        bounds.push(visible);
        Protected { bounds }
    }

    /// The oldest number that is registered.
    pub(crate) fn oldest(&self) -> Option<Seq> {
        let lists = self.lock_all();
        lists.iter().filter_map(|readers| readers.first()).min()
    }

    /// The oldest number that a job which begins now must protect.
    pub(crate) fn oldest_protected(&self, visible: impl FnOnce() -> Seq) -> Seq {
        let lists = self.lock_all();
        let visible = visible();
        let oldest = lists.iter().filter_map(|readers| readers.first()).min();
        oldest.map_or(visible, |oldest| oldest.min(visible))
    }

    /// Number of registrations.
    pub(crate) fn count(&self) -> usize {
        let lists = self.lock_all();
        let counts = lists.iter().flat_map(|readers| readers.counts());
        counts.map(|(_, count)| count).sum()
    }

    fn lock_all(&self) -> Vec<MutexGuard<'_, Readers>> {
        self.readers.all().map(Mutex::lock).collect()
    }
}

impl Readers {
    fn add(&mut self, seq: Seq) {
        let at = match self.few.last() {
            Some((last, _)) if *last < seq => self.few.len(),
            _ => self.few.partition_point(|(other, _)| *other < seq),
        };
        if let Some((other, count)) = self.few.get_mut(at)
            && *other == seq
        {
            *count += 1;
        } else if self.few.len() < FEW && !self.many.contains_key(&seq) {
            self.few.insert(at, (seq, 1));
        } else {
            *self.many.entry(seq).or_default() += 1;
        }
    }

    /// Takes one registration of the number away; false when there is none.
    fn remove(&mut self, seq: Seq) -> bool {
        let at = self.few.partition_point(|(other, _)| *other < seq);
        if let Some((other, count)) = self.few.get_mut(at)
            && *other == seq
        {
            *count -= 1;
            if *count == 0 {
                self.few.remove(at);
            }
            return true;
        }
        let Some(count) = self.many.get_mut(&seq) else {
            return false;
        };
        *count -= 1;
        if *count == 0 {
            self.many.remove(&seq);
        }
        true
    }

    /// The numbers, in any order, with their readers.
    fn counts(&self) -> impl Iterator<Item = (Seq, usize)> {
        let many = self.many.iter().map(|(seq, count)| (*seq, *count));
        self.few.iter().copied().chain(many)
    }

    /// The smallest number.
    fn first(&self) -> Option<Seq> {
        let few = self.few.first().map(|(seq, _)| *seq);
        let many = self.many.first_key_value().map(|(seq, _)| *seq);
        few.into_iter().chain(many).min()
    }
}

/// The numbers that a job protects: ascending, the last one is what was visible when it began.
#[derive(Clone, Debug)]
pub(crate) struct Protected {
    bounds: Vec<Seq>,
}

impl Protected {
    /// The readers that see version `seq` unless a newer version of the key hides it, as the
    /// position of the first bound that is not below it. Versions in one stripe hide each other;
    /// those above all bounds (`None`) are all kept.
    #[inline]
    pub(crate) fn stripe(&self, seq: Seq) -> Option<usize> {
        match self.bounds.as_slice() {
            [only] => (seq <= *only).then_some(0),
            bounds => {
                let stripe = bounds.partition_point(|bound| *bound < seq);
                (stripe < bounds.len()).then_some(stripe)
            }
        }
    }
}

impl Protected {
    /// Protects readers at `visible` and above.
    pub(crate) fn only(visible: Seq) -> Protected {
        Protected {
            bounds: vec![visible],
        }
    }

    /// The largest number of a stripe.
    pub(crate) fn last_of(&self, stripe: usize) -> Seq {
        self.bounds.get(stripe).copied().unwrap_or(0)
    }
}

#[cfg(test)]
thread_local! {
    /// Numbers that this thread has collected to protect them.
    pub(crate) static COLLECTED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protects_registered_numbers_and_the_visible_one() {
        let snapshots = Snapshots::default();
        assert_eq!(snapshots.register(|| 10), 10);
        snapshots.register_again(10);
        snapshots.register(|| 20);
        let protected = snapshots.protect(|| 30);
        let stripes: Vec<_> = [1, 10, 11, 20, 21, 30, 31]
            .map(|seq| protected.stripe(seq))
            .to_vec();
        assert_eq!(
            stripes,
            [Some(0), Some(0), Some(1), Some(1), Some(2), Some(2), None]
        );
        snapshots.release(10);
        assert_eq!(snapshots.count(), 2);
        snapshots.release(10);
        snapshots.release(20);
        assert_eq!(snapshots.count(), 0);
        assert_eq!(snapshots.protect(|| 30).stripe(5), Some(0));
    }
    #[test]
    fn what_is_handed_from_thread_to_thread_is_protected_all_the_time() {
        let snapshots = Snapshots::default();
        snapshots.register(|| 5);
        let (send, receive) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            let snapshots = &snapshots;
            // Each registration begins on one thread and ends on another.
            scope.spawn(move || {
                for number in 0..20_000 {
                    snapshots.register_again(5);
                    let own = snapshots.register(|| 100 + number);
                    send.send(own).unwrap();
                }
            });
            let end = scope.spawn(move || {
                for own in receive {
                    snapshots.release(5);
                    snapshots.release(own);
                }
            });
            while !end.is_finished() {
                let protected = snapshots.protect(|| 50);
                assert_eq!((protected.stripe(5), protected.last_of(0)), (Some(0), 5));
                assert_eq!(snapshots.oldest(), Some(5));
            }
        });
        assert_eq!(snapshots.count(), 1);
    }

    #[test]
    fn several_threads_register_what_one_list_would_hold() {
        let snapshots = Snapshots::default();
        let seqs = [7, 3, 9, 3];
        for seq in seqs {
            std::thread::scope(|scope| {
                scope.spawn(|| snapshots.register(|| seq));
            });
        }
        let protected = snapshots.protect(|| 8);
        assert_eq!(protected.bounds, [3, 7, 8]);
        assert_eq!(snapshots.oldest_protected(|| 8), 3);
        assert_eq!(snapshots.oldest_protected(|| 2), 2);
        assert_eq!((snapshots.oldest(), snapshots.count()), (Some(3), 4));
        for seq in seqs {
            snapshots.release(seq);
        }
        assert_eq!((snapshots.oldest(), snapshots.count()), (None, 0));
    }

    /// A list of `n` numbers moved up to `n` of them for each one that ended: 100,000 snapshots
    /// took seconds to drop.
    #[test]
    fn no_registration_moves_more_than_a_few_others() {
        let mut random = gabion_media::seeded::Random::new(3);
        let (mut readers, mut twin) = (Readers::default(), BTreeMap::<Seq, usize>::new());
        for step in 0..40_000 {
            let seq = random.below(3_000);
            if random.below(5) < 3 || step < 5_000 {
                readers.add(seq);
                *twin.entry(seq).or_default() += 1;
            } else {
                let count = twin.get(&seq).copied().unwrap_or(0);
                assert_eq!(readers.remove(seq), count > 0);
                match count {
                    0 | 1 => drop(twin.remove(&seq)),
                    _ => *twin.get_mut(&seq).unwrap() -= 1,
                }
            }
            assert!(readers.few.len() <= FEW, "what an end moves");
            assert_eq!(readers.first(), twin.keys().next().copied());
            if step % 1_000 == 0 {
                let mut counts: Vec<_> = readers.counts().collect();
                counts.sort_unstable();
                assert!(
                    counts
                        .into_iter()
                        .eq(twin.iter().map(|(seq, count)| (*seq, *count)))
                );
            }
        }
    }
}
