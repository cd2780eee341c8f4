//! The keyspaces of a store: found by their names and by their numbers.
//!
//! # Idea
//! A number belongs to one keyspace for ever: the log may hold records of a keyspace that is gone,
//! which nobody may take for those of another one. So numbers have gaps where keyspaces were
//! dropped.
//!
//! A drop has a sequence number, as a write has: who reads below it finds what was there, who reads
//! from it on is told. So a keyspace that was dropped *leaves*: no name leads to it and no job
//! works on it any more, but readers that are registered below the number of the drop find it until
//! the last of them is gone.
//!
//! There may be very many. So they stand in lists of which a change copies a small part only, and
//! each change, each search and each look for those that nobody reads any more takes about the same
//! time however many there are.

use std::cmp::Ordering;
use std::sync::Arc;
use std::sync::atomic::{self, AtomicU64};

use arc_swap::{ArcSwap, Guard};

use super::live_options::LiveKeyspaceOptions;
use super::persistent_list::PersistentList;
use super::write::Write;
use crate::types::Seq;
use crate::{Error, Result};

/// A keyspace as every engine has it.
pub(crate) trait KeyspaceId {
    /// The number by which the log knows it.
    fn id(&self) -> u32;

    /// The name that users give it.
    fn name(&self) -> &str;
}

/// A keyspace of an engine that can drop them.
pub(crate) trait DroppableKeyspace: KeyspaceId {
    /// Its drop, if there is one.
    fn dropped(&self) -> &DropSeq;

    /// The options that it has of its own.
    fn own_options(&self) -> &LiveKeyspaceOptions;
}

/// The number of a keyspace's drop, once there is one.
pub(crate) struct DropSeq(AtomicU64);

impl Default for DropSeq {
    fn default() -> DropSeq {
        DropSeq(AtomicU64::new(DropSeq::NEVER))
    }
}

impl DropSeq {
    const NEVER: Seq = Seq::MAX;

    /// The keyspace is dropped, for those who read at `seq` or later.
    pub(crate) fn set(&self, seq: Seq) {
        // ORDER: Release pairs with the Acquire in `at`.
        self.0.store(seq, atomic::Ordering::Release);
    }

    /// The number of the drop; above all numbers where there is none.
    #[inline]
    pub(crate) fn at(&self) -> Seq {
        // ORDER: Acquire pairs with the Release in `set`: who finds what a drop has left, or its
        // number published, finds its number here.
        self.0.load(atomic::Ordering::Acquire)
    }

    /// Whether there was one.
    #[inline]
    pub(crate) fn is_set(&self) -> bool {
        self.at() != DropSeq::NEVER
    }

    /// An error if there was one: for writers and jobs, who hold a lock that a drop holds.
    #[inline]
    pub(crate) fn check(&self) -> Result<()> {
        self.check_at(DropSeq::NEVER - 1)
    }

    /// An error for who reads at `seq`, and has looked at the keyspace before it asks.
    #[inline]
    pub(crate) fn check_at(&self, seq: Seq) -> Result<()> {
        match seq < self.at() {
            true => Ok(()),
            false => Err(Error::KeyspaceDropped),
        }
    }
}

/// All keyspaces. Readers take no lock.
pub(crate) struct KeyspaceTable<K>(ArcSwap<KeyspaceView<K>>);

/// The keyspaces at one moment.
pub(crate) struct KeyspaceView<K> {
    /// Those that there are, in the order in which they were made, which is that of their numbers.
    live: PersistentList<K>,
    /// The same in the order of their names.
    by_name: PersistentList<K>,
    /// Dropped ones that readers of earlier moments may need, in the order of their numbers.
    leaving: PersistentList<K>,
    /// The same in the order of their drops.
    by_drop: PersistentList<K>,
    /// Any was dropped since the store was opened: else no handle is of a dropped one.
    any_dropped: bool,
}

impl<K> Clone for KeyspaceView<K> {
    fn clone(&self) -> KeyspaceView<K> {
        KeyspaceView {
            live: self.live.clone(),
            by_name: self.by_name.clone(),
            leaving: self.leaving.clone(),
            by_drop: self.by_drop.clone(),
            any_dropped: self.any_dropped,
        }
    }
}

impl<K> KeyspaceView<K> {
    /// Those that there are, in the order of their numbers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<K>> {
        self.live.iter()
    }

    /// Number of those that there are.
    pub(crate) fn len(&self) -> usize {
        self.live.len()
    }

    /// Those that leave, in the order of their numbers.
    pub(crate) fn leaving(&self) -> impl Iterator<Item = &Arc<K>> {
        self.leaving.iter()
    }

    /// Whether any leaves.
    pub(crate) fn has_leaving(&self) -> bool {
        self.leaving.len() > 0
    }
}

impl<K: KeyspaceId> KeyspaceView<K> {
    /// The keyspace of that number, if there is one.
    #[inline]
    pub(crate) fn live(&self, id: u32) -> Option<&Arc<K>> {
        self.live.find_number(id, |keyspace| keyspace.id())
    }

    /// As [`KeyspaceView::live`], for who may read of an earlier moment.
    #[inline]
    pub(crate) fn of_reader(&self, id: u32) -> Option<&Arc<K>> {
        let leaving = || self.leaving.find_number(id, |keyspace| keyspace.id());
        self.live(id).or_else(leaving)
    }
}

impl<K: DroppableKeyspace> KeyspaceView<K> {
    /// Those that no reader is left for, where `visible` was the newest number that readers see
    /// before `oldest` looks for the oldest that is registered: who registers later reads at
    /// `visible` or above it. No others are looked at but one.
    pub(crate) fn forgettable(
        &self,
        visible: Seq,
        oldest: impl FnOnce() -> Option<Seq>,
    ) -> impl Iterator<Item = &Arc<K>> {
        let oldest = match self.has_leaving() {
            true => oldest(),
            false => None,
        };
        let is_over = move |seq| seq <= visible && oldest.is_none_or(|oldest| seq <= oldest);
        let leaving = self.by_drop.iter();
        leaving.take_while(move |keyspace| is_over(keyspace.dropped().at()))
    }
}

/// Where the element of a number stands in a list that ascends by numbers, or would stand. No gap
/// in front of it makes it the one at the position of its number, which is looked at first.
#[inline]
pub(crate) fn position<T>(list: &[T], id: u32, id_of: impl Fn(&T) -> u32) -> Result<usize, usize> {
    let at = id as usize;
    match list.get(at) {
        Some(element) if id_of(element) == id => Ok(at),
        _ => list.binary_search_by_key(&id, id_of),
    }
}

impl<K: KeyspaceId> KeyspaceTable<K> {
    /// These keyspaces, ascending by their numbers.
    pub(crate) fn new(keyspaces: Vec<Arc<K>>) -> KeyspaceTable<K> {
        let mut by_name = keyspaces.clone();
        by_name.sort_unstable_by(|a, b| a.name().cmp(b.name()));
        KeyspaceTable(ArcSwap::from_pointee(KeyspaceView {
            live: PersistentList::new(keyspaces),
            by_name: PersistentList::new(by_name),
            leaving: PersistentList::default(),
            by_drop: PersistentList::default(),
            any_dropped: false,
        }))
    }

    /// The keyspaces as they are now.
    #[inline]
    pub(crate) fn load(&self) -> Guard<Arc<KeyspaceView<K>>> {
        self.0.load()
    }

    /// The keyspace of that name.
    pub(crate) fn find(&self, name: &str) -> Option<Arc<K>> {
        let all = self.load();
        all.by_name.find(|other| other.name().cmp(name)).cloned()
    }

    /// The name of the keyspace of that number, if it is there, or somebody may read it.
    pub(crate) fn name_of(&self, id: u32) -> Option<Arc<str>> {
        let all = self.load();
        all.of_reader(id).map(|keyspace| keyspace.name().into())
    }

    /// The names of all keyspaces.
    pub(crate) fn names(&self) -> Vec<String> {
        let all = self.load();
        all.iter()
            .map(|keyspace| keyspace.name().to_owned())
            .collect()
    }

    /// Adds a keyspace, whose number is above all others.
    pub(crate) fn add(&self, keyspace: &Arc<K>) {
        self.change(|all| {
            let last = all.live.last().map(|last| last.id());
            debug_assert!(last < Some(keyspace.id()), "numbers ascend");
            all.by_name.insert(Arc::clone(keyspace), |other| {
                other.name().cmp(keyspace.name())
            });
            all.live
                .insert(Arc::clone(keyspace), |other| other.id().cmp(&keyspace.id()));
        });
    }

    fn change(&self, change: impl Fn(&mut KeyspaceView<K>)) {
        self.0.rcu(|all| {
            let mut all = KeyspaceView::clone(all);
            change(&mut all);
            all
        });
    }
}

impl<K: DroppableKeyspace> KeyspaceTable<K> {
    /// Lets a keyspace leave, which was dropped: its drop has the largest number of all.
    pub(crate) fn leave(&self, keyspace: &Arc<K>) {
        let by_number = |other: &K| other.id().cmp(&keyspace.id());
        self.change(|all| {
            all.by_name
                .remove(|other| other.name().cmp(keyspace.name()));
            all.live.remove(by_number);
            all.leaving.insert(Arc::clone(keyspace), by_number);
            all.by_drop
                .insert(Arc::clone(keyspace), by_drop_of(&**keyspace));
            all.any_dropped = true;
        });
    }

    /// Forgets a keyspace that has left.
    pub(crate) fn forget(&self, keyspace: &K) {
        self.change(|all| {
            all.leaving.remove(|other| other.id().cmp(&keyspace.id()));
            all.by_drop.remove(by_drop_of(keyspace));
        });
    }
}

/// How others compare with a keyspace that was dropped, in the order of their drops.
fn by_drop_of<K: DroppableKeyspace>(keyspace: &K) -> impl Fn(&K) -> Ordering {
    let key = |of: &K| (of.dropped().at(), of.id());
    let own = key(keyspace);
    move |other| key(other).cmp(&own)
}

impl<K: DroppableKeyspace> KeyspaceTable<K> {
    /// An error unless there are the keyspaces of a write, whose handles users of the store had
    /// since it was opened. The caller holds a lock that a drop holds.
    #[inline]
    pub(crate) fn check_write(&self, write: Write<'_, K>) -> Result<()> {
        let operations = match write {
            Write::Single { keyspace, .. } => return keyspace.dropped().check(),
            Write::Batch(operations) | Write::Transaction(operations, _) => operations,
        };
        let all = self.load();
        if !all.any_dropped {
            return Ok(());
        }
        match operations.keyspaces().all(|id| all.live(id).is_some()) {
            true => Ok(()),
            false => Err(Error::KeyspaceDropped),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::BatchEncoder;
    use crate::types::Kind;

    struct Numbered(u32, DropSeq, LiveKeyspaceOptions);

    impl KeyspaceId for Numbered {
        fn id(&self) -> u32 {
            self.0
        }

        fn name(&self) -> &str {
            ["zero", "one", "two", "three"][self.0 as usize]
        }
    }

    impl DroppableKeyspace for Numbered {
        fn dropped(&self) -> &DropSeq {
            &self.1
        }

        fn own_options(&self) -> &LiveKeyspaceOptions {
            &self.2
        }
    }

    /// Keyspaces of these numbers.
    fn numbered(ids: &[u32]) -> KeyspaceTable<Numbered> {
        let all = KeyspaceTable::new(Vec::new());
        ids.iter().for_each(|id| {
            all.add(&Arc::new(Numbered(
                *id,
                DropSeq::default(),
                LiveKeyspaceOptions::default(),
            )))
        });
        all
    }

    fn leave(all: &KeyspaceTable<Numbered>, name: &str, seq: Seq) -> Arc<Numbered> {
        let keyspace = all.find(name).unwrap();
        keyspace.dropped().set(seq);
        all.leave(&keyspace);
        keyspace
    }

    #[test]
    fn numbers_stay_those_of_their_keyspaces_when_others_leave() {
        let all = numbered(&[0, 1, 2]);
        let one = leave(&all, "one", 5);
        all.add(&Arc::new(Numbered(
            3,
            DropSeq::default(),
            LiveKeyspaceOptions::default(),
        )));
        assert_eq!(all.names(), ["zero", "two", "three"]);
        for (name, id) in [("zero", 0), ("two", 2), ("three", 3)] {
            assert_eq!(all.find(name).map(|found| found.id()), Some(id));
        }
        for gone in ["one", "", "zebra"] {
            assert!(all.find(gone).is_none());
        }
        let live = |id| all.load().live(id).map(|found| found.id());
        let expected = [Some(0), None, Some(2), Some(3), None];
        assert_eq!([0, 1, 2, 3, 4].map(live), expected);
        assert_eq!(all.load().of_reader(1).map(|found| found.id()), Some(1));
        all.forget(&one);
        assert!(all.load().of_reader(1).is_none() && !all.load().has_leaving());
    }

    #[test]
    fn a_write_is_refused_that_names_a_keyspace_which_is_gone() {
        let all = numbered(&[0, 1, 2]);
        let takes = |ids: &[u32]| {
            let mut batch = BatchEncoder::default();
            ids.iter()
                .for_each(|id| batch.op(Kind::Put, *id, b"key", b"value"));
            all.check_write(Write::Batch(&batch)).is_ok()
        };
        assert!(takes(&[0, 1, 2]));
        let one = leave(&all, "one", 5);
        assert!(takes(&[0, 2, 0]) && takes(&[]) && !takes(&[0, 1]) && !takes(&[1, 0]));
        let takes_one = |keyspace: &Numbered| {
            let (kind, key, value) = (Kind::Put, &b"key"[..], &b"value"[..]);
            let write = Write::Single {
                keyspace,
                kind,
                key,
                value,
            };
            all.check_write(write).is_ok()
        };
        assert!(takes_one(&all.find("two").unwrap()) && !takes_one(&one));
    }

    #[test]
    fn what_a_reader_may_need_is_not_forgotten() {
        let all = numbered(&[0, 1]);
        leave(&all, "zero", 5);
        leave(&all, "one", 8);
        let forgettable = |visible, oldest: Option<Seq>| -> Vec<u32> {
            let all = all.load();
            let found = all.forgettable(visible, || oldest);
            found.map(|keyspace| keyspace.id()).collect()
        };
        assert_eq!(forgettable(8, None), [0, 1]);
        assert_eq!(forgettable(7, None), [0], "the other is not published");
        assert_eq!(forgettable(9, Some(8)), [0, 1]);
        assert_eq!(forgettable(9, Some(7)), [0]);
        assert_eq!(forgettable(9, Some(4)), [0; 0]);
    }

    #[test]
    fn a_drop_is_told_to_those_who_read_at_its_number_or_later() {
        let dropped = DropSeq::default();
        assert!(dropped.check().is_ok() && dropped.check_at(Seq::MAX - 1).is_ok());
        assert!(!dropped.is_set());
        dropped.set(7);
        assert!(dropped.is_set() && dropped.check_at(6).is_ok());
        for told in [dropped.check_at(7), dropped.check()] {
            assert!(matches!(told, Err(Error::KeyspaceDropped)));
        }
    }
}
