//! A store that does all that stores do, and those who follow it.

use std::collections::BTreeMap;
use std::time::Duration;

use gabion::{
    AddI64, Changes, ChangesOptions, Consumer, Db, Durability, Error, Keyspace, KeyspaceOptions,
    Options, Position, WriteBatch,
};
use gabion_media::{Disk, SimDisk};

use super::twin::{COUNTERS, Content, Did, Written, assert_same};
use crate::support::SeededRng;

const NAMES: [&str; 3] = ["default", "some", COUNTERS];
const KEYS: u64 = 40;
const EXPIRES: Duration = Duration::from_secs(3600 * 24 * 365);

/// A consumer, and how far it is: in changes of the list.
struct Follower {
    consumer: Consumer,
    changes: Changes,
    read: usize,
    /// Positions behind changes that were read and not acknowledged.
    positions: Vec<(usize, Position)>,
}

/// What a consumer has acknowledged, when the disk had done so many operations.
#[derive(Clone, Debug)]
pub(super) struct Acknowledged {
    /// Operations before it began, and when it had ended.
    pub(super) ops: (u64, u64),
    pub(super) name: String,
    /// How many changes; `None` when the consumer is dropped.
    pub(super) changes: Option<usize>,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Totals {
    pub(crate) changes: u64,
    pub(crate) operations: u64,
    pub(crate) reopened: u64,
    pub(crate) ingests: u64,
    pub(crate) drops: u64,
    pub(crate) kept_bytes_max: u64,
}

pub(crate) struct Machine {
    pub(super) sim: SimDisk,
    options: Options,
    random: SeededRng,
    db: Option<Db>,
    content: Content,
    pub(crate) written: Vec<Written>,
    /// The names of keyspaces by their numbers.
    pub(super) names: BTreeMap<u32, String>,
    followers: BTreeMap<String, Follower>,
    pub(super) acknowledged: Vec<Acknowledged>,
    pub(super) totals: Totals,
}

impl Machine {
    pub(crate) fn new(sim: &SimDisk, options: Options, seed: u64) -> Machine {
        let mut machine = Machine {
            sim: sim.clone(),
            options,
            random: SeededRng::new(seed),
            db: None,
            content: Content::new(),
            written: Vec::new(),
            names: BTreeMap::new(),
            followers: BTreeMap::new(),
            acknowledged: Vec::new(),
            totals: Totals::default(),
        };
        machine.open();
        machine.note(Some(vec![("default".to_owned(), Did::Made)]));
        machine.follow("first");
        machine
    }

    pub(crate) fn db(&self) -> &Db {
        self.db.as_ref().expect("an open store")
    }

    /// The number of the last write.
    pub(crate) fn number(&self) -> u64 {
        self.db().stats().visible_seq
    }

    fn open(&mut self) {
        let disk = Disk::simulated(&self.sim);
        self.db = Some(Db::open_on(disk, self.options.clone()).expect("a store"));
    }

    /// Notes what was committed.
    fn note(&mut self, exact: Option<Vec<(String, Did)>>) {
        for (name, did) in exact.iter().flatten() {
            did.apply(&mut self.content, name);
        }
        let merges = |exact: &Vec<(String, Did)>| {
            let dids = exact.iter().map(|(_, did)| did);
            dids.clone().any(|did| matches!(did, Did::Merge(..)))
        };
        self.written.push(Written {
            number: self.db().stats().visible_seq,
            exact: exact.filter(|exact| !merges(exact)),
            content: self.content.clone(),
        });
    }

    /// A keyspace, made if it is not there.
    fn keyspace(&mut self) -> Keyspace {
        let name = NAMES[self.random.index(NAMES.len())];
        let options = match name {
            COUNTERS => KeyspaceOptions::default().merge(AddI64),
            _ => KeyspaceOptions::default(),
        };
        let is_new = !self.content.contains_key(name);
        let before = self.db().position().expect("a position");
        let keyspace = self.db().keyspace_with(name, &options).expect("a keyspace");
        if is_new {
            let made = self.db().changes(before).expect("changes").next();
            let made = made.expect("an event").expect("an event");
            let id = made.operations[0].keyspace;
            self.names.insert(id, name.to_owned());
            self.note(Some(vec![(name.to_owned(), Did::Made)]));
        }
        keyspace
    }

    fn key(&mut self) -> Vec<u8> {
        format!("key {:02}", self.random.below(KEYS)).into_bytes()
    }

    fn value(&mut self, name: &str) -> Vec<u8> {
        match name {
            COUNTERS => self.random.below(1000).to_le_bytes().to_vec(),
            _ => {
                let len = self.random.index(80);
                vec![self.random.word().to_le_bytes()[0]; len]
            }
        }
    }

    /// What a write does to a keyspace.
    fn did(&mut self, name: &str) -> Did {
        let key = self.key();
        match self.random.below(10) {
            0 => Did::Delete(key),
            1 => Did::PutExpiring(key, self.value(name)),
            2 if self.random.one_in(2) => {
                let to = (!self.random.one_in(4)).then(|| self.key());
                match to.as_ref().is_none_or(|to| *to > key) {
                    true => Did::DeleteRange(key, to),
                    false => Did::Delete(key),
                }
            }
            3..8 if name == COUNTERS => Did::Merge(key, self.random.below(9).cast_signed() - 4),
            _ => Did::Put(key, self.value(name)),
        }
    }

    pub(crate) fn act(&mut self) {
        match self.random.below(100) {
            0..50 => self.write_one(),
            50..62 => self.write_batch(),
            62..68 => self.transact(),
            68..72 => self.ingest(),
            72..74 => self.drop_keyspace(),
            74..78 => self.db().flush().expect("flush"),
            78 => self.db().compact::<&[u8]>(..).expect("compact"),
            79 => self.db().wait_idle().expect("rest"),
            80..83 => self.db().persist(Durability::Sync).expect("persist"),
            83..85 => self.reopen(),
            85..95 => self.read_some(),
            95 => self.follow_another(),
            _ => self.acknowledge(),
        }
        let kept = self.db().stats().log_bytes_kept_for_consumers;
        self.totals.kept_bytes_max = self.totals.kept_bytes_max.max(kept);
        self.totals.operations += 1;
    }

    fn write_one(&mut self) {
        let keyspace = self.keyspace();
        let did = self.did(keyspace.name());
        let done = match &did {
            Did::Put(key, value) => keyspace.put(key, value),
            Did::PutExpiring(key, value) => keyspace.put_expiring(key, value, EXPIRES),
            Did::Delete(key) => keyspace.delete(key),
            Did::DeleteRange(from, Some(to)) => keyspace.delete_range::<&[u8]>(&from[..]..&to[..]),
            Did::DeleteRange(from, None) => keyspace.delete_range::<&[u8]>(&from[..]..),
            Did::Merge(key, by) => keyspace.merge(key, by.to_le_bytes()),
            other => unreachable!("{other:?}"),
        };
        done.expect("a write");
        self.note(Some(vec![(keyspace.name().to_owned(), did)]));
    }

    fn write_batch(&mut self) {
        let mut batch = WriteBatch::new();
        let mut dids = Vec::new();
        for _ in 0..=self.random.below(12) {
            let keyspace = self.keyspace();
            let did = self.did(keyspace.name());
            match &did {
                Did::Put(key, value) => batch.put(&keyspace, key, value),
                Did::PutExpiring(key, value) => batch.put_expiring(&keyspace, key, value, EXPIRES),
                Did::Delete(key) => batch.delete(&keyspace, key),
                Did::DeleteRange(from, Some(to)) => {
                    batch.delete_range::<&[u8]>(&keyspace, &from[..]..&to[..])
                }
                Did::DeleteRange(from, None) => batch.delete_range::<&[u8]>(&keyspace, &from[..]..),
                Did::Merge(key, by) => batch.merge(&keyspace, key, by.to_le_bytes()),
                other => unreachable!("{other:?}"),
            }
            .expect("a batch");
            dids.push((keyspace.name().to_owned(), did));
        }
        let durability = match self.random.one_in(4) {
            true => Durability::Sync,
            false => Durability::Buffered,
        };
        self.db().write_with(&batch, durability).expect("a batch");
        self.note(Some(dids));
    }

    fn transact(&mut self) {
        let keyspace = self.keyspace();
        let name = keyspace.name().to_owned();
        let (first, second) = (self.key(), self.key());
        let value = self.value(&name);
        let mut transaction = self.db().begin().expect("a transaction");
        let _read = transaction.get(&keyspace, &first).expect("a value");
        transaction.put(&keyspace, &first, &value).expect("a put");
        let mut dids = BTreeMap::from([(first.clone(), Did::Put(first, value))]);
        transaction.delete(&keyspace, &second).expect("a delete");
        dids.insert(second.clone(), Did::Delete(second));
        transaction.commit().expect("a commit");
        // A transaction writes what it has changed in its own order.
        let dids = dids.into_values().map(|did| (name.clone(), did)).collect();
        self.note(Some(dids));
        let written = self.written.last_mut().expect("a commit");
        written.exact = None;
    }

    fn ingest(&mut self) {
        if !self.options.engine.capabilities().ingest {
            return;
        }
        let keyspace = self.keyspace();
        let mut pairs = BTreeMap::new();
        for _ in 0..=self.random.below(20) {
            let key = self.key();
            let value = self.value(keyspace.name());
            pairs.insert(key, value);
        }
        let pairs: Vec<_> = pairs.into_iter().collect();
        keyspace.ingest(pairs.clone()).expect("an ingest");
        self.totals.ingests += 1;
        self.note(Some(vec![(
            keyspace.name().to_owned(),
            Did::Ingested(pairs),
        )]));
    }

    fn drop_keyspace(&mut self) {
        let name = NAMES[1 + self.random.index(NAMES.len() - 1)];
        if self.content.contains_key(name) {
            self.db().drop_keyspace(name).expect("a drop");
            self.totals.drops += 1;
            self.note(Some(vec![(name.to_owned(), Did::Dropped)]));
        }
    }

    fn reopen(&mut self) {
        let names: Vec<String> = self.followers.keys().cloned().collect();
        let read: Vec<_> = self
            .followers
            .values()
            .map(Follower::acknowledged)
            .collect();
        self.followers.clear();
        self.db
            .take()
            .expect("an open store")
            .close()
            .expect("a close");
        self.open();
        for (name, acknowledged) in names.into_iter().zip(read) {
            self.attach(&name, acknowledged);
        }
        self.totals.reopened += 1;
    }

    /// A consumer that has acknowledged so many changes.
    fn attach(&mut self, name: &str, acknowledged: usize) {
        let consumer = self.db().consumer(name).expect("a consumer");
        let options = ChangesOptions::default().durable_only(name.len().is_multiple_of(2));
        let changes = consumer.changes_with(&options).expect("changes");
        let follower = Follower {
            positions: vec![(acknowledged, changes.position())],
            consumer,
            changes,
            read: acknowledged,
        };
        self.followers.insert(name.to_owned(), follower);
    }

    fn follow(&mut self, name: &str) {
        let before = self.sim.ops();
        let changes = self.written.len();
        self.attach(name, changes);
        self.acknowledged.push(Acknowledged {
            ops: (before, self.sim.ops()),
            name: name.to_owned(),
            changes: Some(changes),
        });
    }

    fn follow_another(&mut self) {
        let name = ["first", "another", "third"][self.random.index(3)];
        if !self.followers.contains_key(name) {
            self.follow(name);
        } else if self.random.one_in(3) && self.followers.len() > 1 {
            let before = self.sim.ops();
            self.db().drop_consumer(name).expect("a consumer");
            let follower = self.followers.remove(name).expect("a follower");
            let late = follower.consumer.acknowledge(Position::START);
            assert!(
                matches!(late, Err(Error::NoSuchConsumer { .. })),
                "{late:?}"
            );
            self.acknowledged.push(Acknowledged {
                ops: (before, self.sim.ops()),
                name: name.to_owned(),
                changes: None,
            });
        }
    }

    fn read_some(&mut self) {
        let most = self.random.index(60);
        for follower in self.followers.values_mut() {
            self.totals.changes += follower.read_up_to(most, (&self.names, &self.written));
        }
    }

    fn acknowledge(&mut self) {
        let at = self.random.index(self.followers.len());
        let (name, follower) = self.followers.iter_mut().nth(at).expect("a follower");
        let last = self.random.index(follower.positions.len());
        let (changes, position) = follower.positions[last];
        let before = self.sim.ops();
        follower
            .consumer
            .acknowledge(position)
            .expect("an acknowledgment");
        follower.positions.drain(..last);
        assert_eq!(follower.consumer.position().expect("a position"), position);
        self.acknowledged.push(Acknowledged {
            ops: (before, self.sim.ops()),
            name: name.clone(),
            changes: Some(changes),
        });
    }

    /// Reads all that is left, and closes the store.
    pub(crate) fn end(mut self) -> Totals {
        self.db().persist(Durability::Sync).expect("persist");
        for follower in self.followers.values_mut() {
            self.totals.changes += follower.read_up_to(usize::MAX, (&self.names, &self.written));
            assert_eq!(follower.read, self.written.len(), "all is read");
        }
        let known = self.db().consumers().expect("consumers");
        let names = known.iter().map(|info| &info.name);
        assert!(names.eq(self.followers.keys()) && known.iter().all(|info| !info.is_invalidated));
        self.followers.clear();
        self.db
            .take()
            .expect("an open store")
            .close()
            .expect("a close");
        self.totals
    }
}

impl Follower {
    /// How many changes it has acknowledged.
    fn acknowledged(&self) -> usize {
        self.positions[0].0
    }

    /// Reads at most so many changes.
    fn read_up_to(&mut self, most: usize, all: (&BTreeMap<u32, String>, &[Written])) -> u64 {
        let before = self.read;
        while self.read - before < most
            && let Some(change) = self.changes.next()
        {
            let change = change.expect("a change");
            assert_same(&change, all, self.read);
            self.read += 1;
            self.positions.push((self.read, change.position));
        }
        (self.read - before) as u64
    }
}
