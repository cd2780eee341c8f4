//! Which sequence numbers somebody still reads at, and at which moments (`expiry`).
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

use crate::expiry::{ReadPoint, UnixMillis};
use crate::stripe::Striped;
use crate::types::Seq;

/// The registered numbers.
#[derive(Default)]
pub(crate) struct SnapshotList {
    readers: Striped<Mutex<Readers>>,
}

/// Points that stand in the list of a [`Readers`], at most: as many as fit in some cache lines.
const FEW: usize = 32;

/// Some of the registered points, with how many readers each has: at least one.
#[derive(Default)]
struct Readers {
    /// Ascending.
    few: Vec<(ReadPoint, usize)>,
    /// Those that found no place there.
    many: BTreeMap<ReadPoint, usize>,
}

impl SnapshotList {
    /// Registers a reader of what `newest` returns.
    pub(crate) fn register(&self, newest: impl FnOnce() -> ReadPoint) -> ReadPoint {
        let mut readers = self.readers.own().lock();
        let point = newest();
        readers.add(point);
        point
    }

    /// Registers one more reader where one is registered.
    pub(crate) fn register_again(&self, point: ReadPoint) {
        self.readers.own().lock().add(point);
    }

    /// Ends one registration.
    pub(crate) fn release(&self, point: ReadPoint) {
        if self.readers.own().lock().remove(point) {
            return;
        }
        // It began on another thread (I2). With all locks held it cannot be missed.
        let mut lists = self.lock_all();
        let found = lists.iter_mut().any(|readers| readers.remove(point));
        debug_assert!(found, "a registration ends once");
    }

    /// What a job that begins now must protect, where a reader would see `newest`.
    pub(crate) fn protect(&self, newest: impl FnOnce() -> ReadPoint) -> ProtectedSeqs {
        let lists = self.lock_all();
        let ReadPoint {
            seq: visible,
            moment,
        } = newest();
        let points = || lists.iter().flat_map(|readers| readers.counts());
        let points = || points().map(|(point, _)| point);
        let horizon = points()
            .map(|point| point.moment)
            .fold(moment, UnixMillis::min);
        let seqs = || points().map(|point| point.seq);
        let registered = seqs().max().unwrap_or(0);
        let mut bounds: Vec<Seq> = seqs().filter(|seq| *seq < visible).collect();
        drop(lists);
        #[cfg(test)]
        COLLECTED.set(COLLECTED.get() + bounds.len());
        bounds.sort_unstable();
        bounds.dedup();
        bounds.push(visible);
        ProtectedSeqs {
            bounds,
            horizon,
            registered,
        }
    }

    /// The oldest number that is registered.
    pub(crate) fn oldest(&self) -> Option<Seq> {
        self.oldest_point().map(|point| point.seq)
    }

    /// The reader of the oldest number that is registered.
    pub(crate) fn oldest_point(&self) -> Option<ReadPoint> {
        let lists = self.lock_all();
        lists.iter().filter_map(|readers| readers.first()).min()
    }

    /// The oldest number that a job which begins now must protect.
    pub(crate) fn oldest_protected(&self, visible: impl FnOnce() -> Seq) -> Seq {
        let lists = self.lock_all();
        let visible = visible();
        let oldest = lists.iter().filter_map(|readers| readers.first()).min();
        oldest.map_or(visible, |oldest| oldest.seq.min(visible))
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
    fn add(&mut self, point: ReadPoint) {
        let at = match self.few.last() {
            Some((last, _)) if *last < point => self.few.len(),
            _ => self.few.partition_point(|(other, _)| *other < point),
        };
        if let Some((other, count)) = self.few.get_mut(at)
            && *other == point
        {
            *count += 1;
        } else if self.few.len() < FEW && !self.many.contains_key(&point) {
            self.few.insert(at, (point, 1));
        } else {
            *self.many.entry(point).or_default() += 1;
        }
    }

    /// Takes one registration of the point away; false when there is none.
    fn remove(&mut self, point: ReadPoint) -> bool {
        let at = self.few.partition_point(|(other, _)| *other < point);
        if let Some((other, count)) = self.few.get_mut(at)
            && *other == point
        {
            *count -= 1;
            if *count == 0 {
                self.few.remove(at);
            }
            return true;
        }
        let Some(count) = self.many.get_mut(&point) else {
            return false;
        };
        *count -= 1;
        if *count == 0 {
            self.many.remove(&point);
        }
        true
    }

    /// The points, in any order, with their readers.
    fn counts(&self) -> impl Iterator<Item = (ReadPoint, usize)> {
        let many = self.many.iter().map(|(point, count)| (*point, *count));
        self.few.iter().copied().chain(many)
    }

    /// The first point.
    fn first(&self) -> Option<ReadPoint> {
        let few = self.few.first().map(|(point, _)| *point);
        let many = self.many.first_key_value().map(|(point, _)| *point);
        few.into_iter().chain(many).min()
    }
}

/// What a job protects.
#[derive(Clone, Debug)]
pub(crate) struct ProtectedSeqs {
    /// The numbers at which somebody reads: ascending, the last one is what was visible when the
    /// job began.
    bounds: Vec<Seq>,
    /// The oldest moment at which somebody reads.
    horizon: UnixMillis,
    /// The newest number that is registered; 0 for none.
    registered: Seq,
}

impl ProtectedSeqs {
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

impl ProtectedSeqs {
    /// Protects readers at `visible` and above, at any moment.
    pub(crate) fn only(visible: Seq) -> ProtectedSeqs {
        ProtectedSeqs {
            bounds: vec![visible],
            horizon: 0,
            registered: 0,
        }
    }

    /// Whether a version was the newest for all who began to read from then on, and nobody else saw
    /// it.
    #[inline]
    pub(crate) fn is_free(&self, seq: Seq) -> bool {
        seq > self.registered && self.stripe(seq) == Some(self.bounds.len() - 1)
    }

    /// The numbers at which somebody reads, ascending.
    pub(crate) fn bounds(&self) -> &[Seq] {
        &self.bounds
    }

    /// What expires up to then has expired for all who read, and who will (`expiry`, X2).
    #[inline]
    pub(crate) fn horizon(&self) -> UnixMillis {
        self.horizon
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

    fn at(seq: Seq) -> ReadPoint {
        ReadPoint {
            seq,
            moment: 1_000 + seq,
        }
    }

    #[test]
    fn protects_registered_numbers_and_the_visible_one() {
        let snapshots = SnapshotList::default();
        assert_eq!(snapshots.register(|| at(10)), at(10));
        snapshots.register_again(at(10));
        snapshots.register(|| at(20));
        let protected = snapshots.protect(|| at(30));
        let stripes: Vec<_> = [1, 10, 11, 20, 21, 30, 31]
            .map(|seq| protected.stripe(seq))
            .to_vec();
        assert_eq!(
            stripes,
            [Some(0), Some(0), Some(1), Some(1), Some(2), Some(2), None]
        );
        snapshots.release(at(10));
        assert_eq!(snapshots.count(), 2);
        snapshots.release(at(10));
        snapshots.release(at(20));
        assert_eq!(snapshots.count(), 0);
        assert_eq!(snapshots.protect(|| at(30)).stripe(5), Some(0));
    }
    #[test]
    fn the_horizon_is_the_oldest_moment_at_which_somebody_reads() {
        let snapshots = SnapshotList::default();
        let point = |seq, moment| ReadPoint { seq, moment };
        let horizon = |now| snapshots.protect(|| point(30, now)).horizon();
        assert_eq!(horizon(500), 500);
        // Somebody who comes later may read at the same number.
        let (first, second) = (point(20, 400), point(20, 450));
        for reader in [first, second, first] {
            snapshots.register(|| reader);
        }
        assert_eq!((horizon(500), horizon(300)), (400, 300));
        snapshots.release(first);
        assert_eq!(horizon(500), 400);
        // Another thread's list may have to give it back.
        std::thread::scope(|scope| {
            scope.spawn(|| snapshots.release(first));
        });
        assert_eq!(horizon(500), 450);
        snapshots.release(second);
        assert_eq!(horizon(500), 500);
        assert_eq!(ProtectedSeqs::only(9).horizon(), 0);
    }

    #[test]
    fn what_is_handed_from_thread_to_thread_is_protected_all_the_time() {
        let snapshots = SnapshotList::default();
        snapshots.register(|| at(5));
        let (send, receive) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            let snapshots = &snapshots;
            // Each registration begins on one thread and ends on another.
            scope.spawn(move || {
                for number in 0..20_000 {
                    snapshots.register_again(at(5));
                    let own = snapshots.register(|| at(100 + number));
                    send.send(own).unwrap();
                }
            });
            let end = scope.spawn(move || {
                for own in receive {
                    snapshots.release(at(5));
                    snapshots.release(own);
                }
            });
            while !end.is_finished() {
                let protected = snapshots.protect(|| at(50));
                assert_eq!((protected.stripe(5), protected.last_of(0)), (Some(0), 5));
                assert_eq!(snapshots.oldest_point(), Some(at(5)));
            }
        });
        assert_eq!(snapshots.count(), 1);
    }

    #[test]
    fn several_threads_register_what_one_list_would_hold() {
        let snapshots = SnapshotList::default();
        let seqs = [7, 3, 9, 3];
        for seq in seqs {
            std::thread::scope(|scope| {
                scope.spawn(|| snapshots.register(|| at(seq)));
            });
        }
        let protected = snapshots.protect(|| at(8));
        assert_eq!(protected.bounds, [3, 7, 8]);
        assert_eq!(snapshots.oldest_protected(|| 8), 3);
        assert_eq!(snapshots.oldest_protected(|| 2), 2);
        assert_eq!((snapshots.oldest(), snapshots.count()), (Some(3), 4));
        for seq in seqs {
            snapshots.release(at(seq));
        }
        assert_eq!((snapshots.oldest(), snapshots.count()), (None, 0));
    }

    /// A list of `n` numbers moved up to `n` of them for each one that ended: 100,000 snapshots
    /// took seconds to drop.
    #[test]
    fn no_registration_moves_more_than_a_few_others() {
        let mut random = gabion_media::seeded::SeededRng::new(3);
        let (mut readers, mut twin) = (Readers::default(), BTreeMap::<Seq, usize>::new());
        for step in 0..40_000 {
            let seq = random.below(3_000);
            if random.below(5) < 3 || step < 5_000 {
                readers.add(at(seq));
                *twin.entry(seq).or_default() += 1;
            } else {
                let count = twin.get(&seq).copied().unwrap_or(0);
                assert_eq!(readers.remove(at(seq)), count > 0);
                match count {
                    0 | 1 => drop(twin.remove(&seq)),
                    _ => *twin.get_mut(&seq).unwrap() -= 1,
                }
            }
            assert!(readers.few.len() <= FEW, "what an end moves");
            assert_eq!(
                readers.first().map(|point| point.seq),
                twin.keys().next().copied()
            );
            if step % 1_000 == 0 {
                let counts = readers.counts().map(|(point, count)| (point.seq, count));
                let mut counts: Vec<_> = counts.collect();
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
