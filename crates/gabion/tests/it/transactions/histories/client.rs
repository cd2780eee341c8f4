//! Does what a history consists of, and records it.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use gabion::{
    Db, Durability, Error, Isolation, Keyspace, KeyspaceOptions, Savepoint, Transaction,
    TransactionOptions, WriteBatch,
};

use super::record::{
    AppendNumbers, By, Interval, KEYS, KEYSPACES, Key, Read, Record, Value, Write, decoded,
    encoded, is_list, keys_of, name_of,
};
use crate::support::SeededRng;

/// An open store, and the ticks of the history of what is done with it.
#[derive(Clone)]
pub(super) struct Client<'h> {
    pub(super) db: Db,
    pub(super) isolation: Isolation,
    keyspaces: Vec<Keyspace>,
    ticks: &'h AtomicU64,
}

/// A transaction that is open, and what is known of it.
pub(super) struct Open {
    transaction: Transaction,
    record: Record,
    own: Own,
    savepoints: Vec<(Savepoint, Record, Own)>,
}

/// What a transaction has made of a key.
#[derive(Clone, Debug)]
enum OwnValue {
    Known(Value),
    /// These follow what is there.
    Appended(Value),
}

type Own = BTreeMap<Key, OwnValue>;

impl<'h> Client<'h> {
    pub(super) fn new(db: Db, isolation: Isolation, ticks: &'h AtomicU64) -> Client<'h> {
        let options = KeyspaceOptions::default().merge(AppendNumbers);
        let keyspace = |number: usize| db.keyspace_with(&format!("keyspace {number}"), &options);
        Client {
            keyspaces: (0..KEYSPACES)
                .map(|number| keyspace(number).expect("a keyspace"))
                .collect(),
            db,
            isolation,
            ticks,
        }
    }

    /// The next tick, or the number of a write: all are different.
    pub(super) fn tick(&self) -> u64 {
        // ORDER: AcqRel pairs with itself: what returned before a tick is before what is called
        // after it.
        self.ticks.fetch_add(1, Ordering::AcqRel)
    }

    fn during<T>(&self, call: impl FnOnce() -> T) -> (Interval, T) {
        let begun = self.tick();
        let result = call();
        let end = self.tick();
        (Interval { call: begun, end }, result)
    }

    pub(super) fn keyspace(&self, key: Key) -> &Keyspace {
        &self.keyspaces[key / KEYS]
    }

    pub(super) fn begin(&self) -> Open {
        let options = TransactionOptions::default().isolation(self.isolation);
        let (begin, transaction) = self.during(|| self.db.begin_with(options));
        Open {
            transaction: transaction.expect("a transaction"),
            record: Record {
                begin,
                ..Record::default()
            },
            own: Own::new(),
            savepoints: Vec::new(),
        }
    }

    /// Anything that a transaction can do before its end.
    pub(super) fn step(&self, open: &mut Open, random: &mut SeededRng) {
        let key = a_key(random);
        match random.below(20) {
            0..5 => drop(self.get(open, key, random.one_in(6))),
            5..9 => self.range(open, random),
            9..13 if is_list(key) => match random.one_in(2) {
                true => self.append(open, key),
                false => self.merge(open, key),
            },
            9..13 => self.put(open, key, Value::new()),
            13 | 14 if !is_list(key) => self.delete(open, key),
            15 => self.delete_range(open, random),
            16 => {
                let savepoint = open.transaction.savepoint();
                let record = open.record.clone();
                open.savepoints.push((savepoint, record, open.own.clone()));
            }
            17 if !open.savepoints.is_empty() => {
                let at = random.index(open.savepoints.len());
                open.savepoints.truncate(at + 1);
                let (savepoint, record, own) = open.savepoints[at].clone();
                let rolled_back = open.transaction.rollback_to(savepoint);
                rolled_back.expect("a savepoint");
                (open.record, open.own) = (record, own);
            }
            _ => {
                let keys: Vec<_> = keys_of(key / KEYS).filter(|_| random.one_in(2)).collect();
                let names: Vec<_> = keys.iter().map(|key| name_of(*key)).collect();
                let values = open.transaction.multi_get(self.keyspace(key), &names);
                for (key, value) in keys.into_iter().zip(values.expect("values")) {
                    open.note(key, decoded(value.as_deref()), By::Key);
                }
            }
        }
    }

    fn get(&self, open: &mut Open, key: Key, for_update: bool) -> Value {
        let (keyspace, name) = (self.keyspace(key), name_of(key));
        let value = match for_update {
            true => open.transaction.get_for_update(keyspace, name),
            false => open.transaction.get(keyspace, name),
        };
        let value = decoded(value.expect("a value").as_deref());
        let by = if for_update { By::Update } else { By::Key };
        open.note(key, value.clone(), by);
        value
    }

    /// Reads a list, and writes it with one more number.
    fn append(&self, open: &mut Open, key: Key) {
        let before = self.get(open, key, false);
        self.put(open, key, before);
    }

    /// Appends to a list without a look at it.
    fn merge(&self, open: &mut Open, key: Key) {
        let number = self.tick();
        let (keyspace, name) = (self.keyspace(key), name_of(key));
        let operand = number.to_le_bytes();
        let merged = open.transaction.merge(keyspace, name, operand);
        merged.expect("a merge of a transaction");
        open.append(key, number);
    }

    /// Writes the number of this write behind others.
    fn put(&self, open: &mut Open, key: Key, before: Value) {
        let number = self.tick();
        let value = [before, vec![number]].concat();
        let (keyspace, name) = (self.keyspace(key), name_of(key));
        let put = open.transaction.put(keyspace, name, encoded(&value));
        put.expect("a put of a transaction");
        open.write(key, number, value);
    }

    fn delete(&self, open: &mut Open, key: Key) {
        let number = self.tick();
        let deleted = open.transaction.delete(self.keyspace(key), name_of(key));
        deleted.expect("a delete of a transaction");
        open.write(key, number, Value::new());
    }

    /// Deletes registers, never a list.
    fn delete_range(&self, open: &mut Open, random: &mut SeededRng) {
        let (keyspace, (lower, upper)) = (random.index(KEYSPACES), register_bounds(random));
        let handle = &self.keyspaces[keyspace];
        let range = lower.clone()..upper.clone();
        let deleted = open.transaction.delete_range(handle, range);
        deleted.expect("a delete of a range");
        for key in keys_of(keyspace) {
            if (lower.clone()..upper.clone()).contains(&name_of(key)) {
                let number = self.tick();
                open.write(key, number, Value::new());
            }
        }
    }

    /// Reads a range from both ends, mostly all of it.
    fn range(&self, open: &mut Open, random: &mut SeededRng) {
        let (keyspace, (lower, upper)) = (random.index(KEYSPACES), bounds(random));
        let upper_bound = upper.clone().map_or(Bound::Unbounded, Bound::Excluded);
        let bounds = (Bound::Included(lower.clone()), upper_bound);
        let steps = if random.one_in(3) {
            1 + random.below(4)
        } else {
            u64::MAX
        };
        let ends = [0, u64::MAX, random.word()][random.index(3)];
        let mut pairs = open.transaction.range(&self.keyspaces[keyspace], bounds);
        let mut found = BTreeMap::new();
        // What each end has come to.
        let (mut front, mut back, mut is_done) = (None, None, false);
        for step in 0..steps {
            let is_front = ends >> (step % 64) & 1 == 0;
            let pair = if is_front {
                pairs.next()
            } else {
                pairs.next_back()
            };
            let Some((name, value)) = pair.map(|pair| pair.expect("a pair")) else {
                is_done = true;
                break;
            };
            match is_front {
                true => front = Some(name.to_vec()),
                false => back = Some(name.to_vec()),
            }
            found.insert(name.to_vec(), value.to_vec());
        }
        drop(pairs);
        for key in keys_of(keyspace) {
            let name = name_of(key);
            let is_in = name >= lower && upper.as_ref().is_none_or(|upper| name < *upper);
            let passed = front.as_ref().is_some_and(|front| name <= *front)
                || back.as_ref().is_some_and(|back| name >= *back);
            if is_in && (is_done || passed) {
                let value = found.get(&name).map(Vec::as_slice);
                open.note(key, decoded(value), By::Range);
            }
        }
    }

    /// Ends a transaction by its commit.
    pub(super) fn commit(&self, open: Open, durability: Durability) -> Record {
        let Open {
            transaction,
            mut record,
            ..
        } = open;
        let (end, result) = self.during(|| transaction.commit_with(durability));
        record.end = end;
        record.is_committed = match result {
            Ok(()) => true,
            Err(Error::Conflict { keyspace, key }) => {
                let mut keys = 0..KEYSPACES * KEYS;
                let is_it =
                    |own: &Key| self.keyspace(*own).name() == keyspace && name_of(*own) == key;
                record.refused_by = keys.find(is_it);
                false
            }
            Err(error) => panic!("a commit: {error}"),
        };
        record
    }

    /// Ends it without an effect.
    pub(super) fn roll_back(&self, mut open: Open) -> Record {
        let ((), end) = (drop(open.transaction), self.tick());
        open.record.end = Interval { call: end, end };
        open.record
    }

    /// A write without a transaction.
    pub(super) fn write_plainly(&self, random: &mut SeededRng, durability: Durability) -> Record {
        let key = a_register(random);
        let (keyspace, name) = (self.keyspace(key), name_of(key));
        if random.one_in(4) {
            return self.merge_plainly(random, durability);
        }
        let mut writes = Vec::new();
        let mut add = |key: Key, is_delete: bool| {
            let number = self.tick();
            let value = if is_delete {
                Value::new()
            } else {
                vec![number]
            };
            let bytes = encoded(&value);
            let value = Some(value);
            writes.push(Write { key, number, value });
            bytes
        };
        let (end, result) = match random.below(6) {
            0 => {
                add(key, true);
                self.during(|| keyspace.delete_with(name, durability))
            }
            1 => {
                let (lower, upper) = register_bounds(random);
                let range = lower..upper;
                let keys = keys_of(key / KEYS).filter(|key| range.contains(&name_of(*key)));
                keys.for_each(|key| drop(add(key, true)));
                self.during(|| keyspace.delete_range_with(range.clone(), durability))
            }
            2 | 3 => {
                let mut batch = WriteBatch::new();
                for _ in 0..1 + random.below(4) {
                    let key = a_register(random);
                    let (keyspace, name) = (self.keyspace(key), name_of(key));
                    let is_delete = random.one_in(4);
                    let value = add(key, is_delete);
                    let added = match is_delete {
                        true => batch.delete(keyspace, name),
                        false => batch.put(keyspace, name, value),
                    };
                    added.expect("a batch has room");
                }
                self.during(|| self.db.write_with(batch, durability))
            }
            _ => {
                let value = add(key, false);
                self.during(|| keyspace.put_with(name, value, durability))
            }
        };
        result.expect("a write");
        whole(end, Vec::new(), writes)
    }

    /// A merge into a list, or several in a batch, also of the same one.
    fn merge_plainly(&self, random: &mut SeededRng, durability: Durability) -> Record {
        let mut writes = Vec::new();
        for _ in 0..1 + random.below(3) {
            writes.push(Write {
                key: a_list(random),
                number: self.tick(),
                value: None,
            });
        }
        let (end, result) = match &writes[..] {
            [one] => {
                let (keyspace, operand) = (self.keyspace(one.key), one.number.to_le_bytes());
                let merge = || keyspace.merge_with(name_of(one.key), operand, durability);
                self.during(merge)
            }
            several => {
                let mut batch = WriteBatch::new();
                for write in several {
                    let (keyspace, operand) = (self.keyspace(write.key), write.number);
                    let added = batch.merge(keyspace, name_of(write.key), operand.to_le_bytes());
                    added.expect("a batch has room");
                }
                self.during(|| self.db.write_with(batch, durability))
            }
        };
        result.expect("a merge");
        whole(end, Vec::new(), writes)
    }

    /// An update of a list.
    pub(super) fn update(&self, random: &mut SeededRng, durability: Durability) -> Record {
        let key = a_list(random);
        let number = self.tick();
        let (mut before, mut after) = (Value::new(), Value::new());
        let change = |old: Option<&[u8]>| {
            // Those who commit meanwhile gather, and are committed as a group.
            std::thread::sleep(Duration::from_micros(200));
            before = decoded(old);
            after = before.clone();
            after.push(number);
            Some(encoded(&after))
        };
        let (keyspace, name) = (self.keyspace(key), name_of(key));
        let (end, result) = self.during(|| keyspace.update_with(name, change, durability));
        assert_eq!(decoded(result.expect("an update").as_deref()), before);
        let read = Read {
            key,
            value: before,
            by: By::Key,
        };
        let write = Write {
            key,
            number,
            value: Some(after),
        };
        whole(end, vec![read], vec![write])
    }

    /// An ingest of registers.
    pub(super) fn ingest(&self, random: &mut SeededRng) -> Record {
        let keyspace = random.index(KEYSPACES);
        let mut writes = Vec::new();
        for key in keys_of(keyspace).filter(|key| !is_list(*key)) {
            if random.one_in(2) {
                let number = self.tick();
                let value = Some(vec![number]);
                writes.push(Write { key, number, value });
            }
        }
        let pairs = writes
            .iter()
            .map(|write| (name_of(write.key), encoded(&[write.number])));
        let (end, result) = self.during(|| self.keyspaces[keyspace].ingest(pairs));
        result.expect("an ingest");
        whole(end, Vec::new(), writes)
    }

    /// All keys, read by a snapshot.
    pub(super) fn read_all(&self) -> Record {
        let (begin, snapshot) = self.during(|| self.db.snapshot());
        let mut reads = Vec::new();
        for (number, keyspace) in self.keyspaces.iter().enumerate() {
            let pairs: gabion::Result<BTreeMap<_, _>> = snapshot.iter(keyspace).collect();
            let pairs = pairs.expect("pairs");
            for key in keys_of(number) {
                let value = pairs.get(&name_of(key)[..]).map(|value| &value[..]);
                let value = decoded(value);
                let by = By::Range;
                reads.push(Read { key, value, by });
            }
        }
        let mut record = whole(begin, reads, Vec::new());
        record.end.end = self.tick();
        record
    }

    /// Puts other keys beside those of the history, or deletes some of them, so that tables are
    /// written, and buckets split and are joined.
    pub(super) fn fill(&self, random: &mut SeededRng) {
        let key = a_key(random);
        let keyspace = self.keyspace(key);
        let beside = |last: &str| [&name_of(key)[..], last.as_bytes()].concat();
        if random.one_in(3) {
            let deleted = keyspace.delete_range(beside("~")..beside("\x7f"));
            return deleted.expect("a delete of a range");
        }
        let mut batch = WriteBatch::new();
        for number in 0..10 + random.below(60) {
            let added = batch.put(keyspace, beside(&format!("~{number:03}")), [7; 60]);
            added.expect("a batch has room");
        }
        self.db.write(batch).expect("a write");
    }

    /// Work that moves what was written.
    pub(super) fn move_data(&self, random: &mut SeededRng) {
        let keyspace = &self.keyspaces[random.index(KEYSPACES)];
        let moved = match random.below(6) {
            0..3 => self.db.flush(),
            3 | 4 => keyspace.compact::<&str>(..),
            _ => self.db.wait_idle(),
        };
        moved.expect("flushes and compactions");
    }
}

impl Open {
    /// Notes what was read, if it is not the transaction's own.
    fn note(&mut self, key: Key, value: Value, by: By) {
        let value = match self.own.get(&key) {
            Some(OwnValue::Known(own)) => {
                return assert_eq!(value, *own, "a transaction reads its own writes");
            }
            Some(OwnValue::Appended(own)) => {
                let before = value.strip_suffix(&own[..]);
                before
                    .expect("a transaction reads what it appended")
                    .to_vec()
            }
            None => value,
        };
        self.record.reads.push(Read { key, value, by });
    }

    fn write(&mut self, key: Key, number: u64, value: Value) {
        self.own.insert(key, OwnValue::Known(value.clone()));
        let value = Some(value);
        self.record.writes.push(Write { key, number, value });
    }

    /// Appends to what a key has.
    fn append(&mut self, key: Key, number: u64) {
        let own = self.own.entry(key);
        let value = match own.or_insert_with(|| OwnValue::Appended(Value::new())) {
            OwnValue::Known(own) => {
                own.push(number);
                Some(own.clone())
            }
            OwnValue::Appended(own) => {
                own.push(number);
                None
            }
        };
        self.record.writes.push(Write { key, number, value });
    }
}

/// What took effect at once.
fn whole(end: Interval, reads: Vec<Read>, writes: Vec<Write>) -> Record {
    Record {
        begin: end,
        end,
        reads,
        writes,
        is_committed: true,
        refused_by: None,
    }
}

fn a_key(random: &mut SeededRng) -> Key {
    random.index(KEYSPACES * KEYS)
}

fn a_list(random: &mut SeededRng) -> Key {
    loop {
        match a_key(random) {
            key if is_list(key) => return key,
            _ => {}
        }
    }
}

fn a_register(random: &mut SeededRng) -> Key {
    loop {
        match a_key(random) {
            key if is_list(key) => {}
            key => return key,
        }
    }
}

/// A range that may hold any keys.
fn bounds(random: &mut SeededRng) -> (Vec<u8>, Option<Vec<u8>>) {
    let (lower, upper) = (random.index(KEYS), random.index(KEYS + 1));
    let lower = if random.one_in(3) {
        Vec::new()
    } else {
        name_of(lower)
    };
    (lower, (upper < KEYS).then(|| name_of(upper)))
}

/// A range that holds registers only, with what is beside them.
fn register_bounds(random: &mut SeededRng) -> (Vec<u8>, Vec<u8>) {
    let key = a_register(random) % KEYS;
    let upper = (key + 1 + random.index(2)).min(KEYS);
    (name_of(key), format!("r{upper}").into_bytes())
}
