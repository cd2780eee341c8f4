//! Carries operations out on a store and on its twin, and compares.

use std::collections::{BTreeSet, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use gabion::{Cursor, Error, Iter, Keyspace, Options, Slice, Snapshot};

use super::action::{Action, Key, Part, Range, Value};
use super::transactions::{Ended, Open};
use crate::support::{
    Bounds, Change, KEYSPACES, Operation, Pairs, Place, Subject, Ticker, Totals, Twin, assert_twin,
    bytes_of, log_number,
};

/// Pairs that an iterator has still to return.
pub(super) type Expected = VecDeque<(Vec<u8>, Arc<[u8]>)>;

struct Machine<'o> {
    options: &'o Options,
    place: Place,
    subject: Subject,
    twin: Twin,
    /// With what the store held, and the keyspaces of then.
    snapshots: VecDeque<(Snapshot, Twin, Vec<Keyspace>)>,
    iterators: VecDeque<(Iter, Expected)>,
    transactions: VecDeque<Open>,
    /// All that was written, in its order.
    written: Vec<Operation>,
    /// How many keys were appended.
    appended: u16,
    totals: Totals,
}

/// Runs a sequence from an empty disk; panics at the first difference.
pub(super) fn run(options: &Options, actions: &[Action]) -> Totals {
    let place = Place::of(options.engine);
    let _ticker = Ticker::of(options);
    let new = options.clone().create_if_missing(true);
    let subject = Subject::open(&place.disk(), &new).expect("an empty disk opens");
    let existing = options.clone().error_if_exists(false);
    let mut machine = Machine {
        options: &existing,
        place,
        subject,
        twin: Twin::new(KEYSPACES.len()),
        snapshots: VecDeque::new(),
        iterators: VecDeque::new(),
        transactions: VecDeque::new(),
        written: Vec::new(),
        appended: 0,
        totals: Totals::default(),
    };
    for action in actions
        .iter()
        .filter_map(|action| within_capabilities(action, options))
    {
        machine.act(&action);
    }
    machine.reopen();
    assert_twin(&machine.subject.db, &machine.twin);
    let names = machine.place.names();
    machine.totals.log_segments += log_number(&names);
    machine.totals.add(&machine.subject.db.stats());
    machine.totals
}

/// The action, or what the engine can do of it.
fn within_capabilities(action: &Action, options: &Options) -> Option<Action> {
    let can = options.engine.capabilities();
    match action {
        Action::DeleteRange(..) | Action::Scan(..) | Action::Prefix(..) if !can.ordered => None,
        Action::HoldIterator(..) | Action::TakeSnapshot if !can.snapshots => None,
        Action::Begin(_) if !can.transactions => None,
        Action::DropKeyspace(_) if !can.drop_keyspace => None,
        Action::Ingest { .. } if !can.ingest => None,
        Action::Batch(parts) if !can.ordered => {
            let is_one = |part: &&Part| matches!(part, Part::One(..));
            Some(Action::Batch(
                parts.iter().filter(is_one).cloned().collect(),
            ))
        }
        Action::Compact(keyspace, _) if !can.ordered => {
            let (lower, upper) = (Bound::Unbounded, Bound::Unbounded);
            Some(Action::Compact(*keyspace, Range { lower, upper }))
        }
        other => Some(other.clone()),
    }
}

impl Machine<'_> {
    fn act(&mut self, action: &Action) {
        self.totals.operations += action.operations();
        match action {
            Action::Put(keyspace, key, value) => {
                self.write(vec![operation(*keyspace, key, Some(*value))]);
            }
            Action::Delete(keyspace, key) => self.write(vec![operation(*keyspace, key, None)]),
            Action::DeleteRange(keyspace, range) => {
                self.write(vec![range_delete(*keyspace, range)]);
            }
            Action::Batch(operations) => {
                self.write(operations.iter().map(Part::operation).collect());
            }
            Action::Fill {
                keyspace,
                first,
                count,
                gap,
                value,
            } => {
                let key = |step| Key::Prefixed((first + step * gap) % 2_000);
                let value = |step| Value {
                    seed: value.seed.wrapping_add(step),
                    ..*value
                };
                let fill = (0..*count).map(|i| operation(*keyspace, &key(i), Some(value(i))));
                self.write(fill.collect());
            }
            Action::Ingest {
                keyspace,
                first,
                count,
                gap,
                value,
            } => {
                let numbers = (0..*count).map(|step| (first + step * gap) % 2_000);
                self.ingest(*keyspace, numbers.collect(), *value);
            }
            Action::Append {
                keyspace,
                count,
                value,
            } => {
                for _ in 0..*count {
                    let key = Key::Appended(self.appended);
                    self.write(vec![operation(*keyspace, &key, Some(*value))]);
                    self.appended += 1;
                }
                self.subject.db.flush().expect("flush");
            }
            Action::Flush => self.subject.db.flush().expect("flush"),
            Action::Persist => {
                let persisted = self.subject.db.persist(gabion::Durability::Sync);
                match self.options.mapped.checkpoints || !self.options.engine.capabilities().mapped
                {
                    true => persisted.expect("persist"),
                    false => assert!(matches!(persisted, Err(Error::Unsupported { .. }))),
                }
            }
            Action::WaitIdle => self.subject.db.wait_idle().expect("wait_idle"),
            Action::Compact(keyspace, range) => {
                let compacted = self.subject.keyspaces[*keyspace].compact(bounds(range));
                compacted.expect("compact");
            }
            Action::DropKeyspace(keyspace) => {
                let dropped = self.subject.drop_keyspace(*keyspace);
                dropped.expect("drop_keyspace");
                self.twin = self.twin.without(*keyspace);
                for mut open in std::mem::take(&mut self.transactions) {
                    match open.loses(*keyspace) {
                        true => open.commit_lost(),
                        false => self.transactions.push_back(open),
                    }
                }
                self.totals.drops += 1;
            }
            Action::Begin(isolation) => {
                if self.transactions.len() == 4 {
                    self.transactions.pop_front();
                }
                let (db, since) = (&self.subject.db, self.written.len());
                let open = Open::new(db, *isolation, &self.twin, since);
                self.transactions.push_back(open);
            }
            Action::Within(number, steps) => {
                let number = number % self.transactions.len().max(1);
                if let Some(open) = self.transactions.get_mut(number) {
                    steps.iter().for_each(|step| open.act(&self.subject, step));
                }
            }
            Action::Commit(number, level) => {
                let number = number % self.transactions.len().max(1);
                if let Some(open) = self.transactions.remove(number) {
                    let (ended, writes) = open.commit(&self.twin, &self.written, *level);
                    self.totals.commits += 1;
                    self.totals.conflicts += u64::from(ended == Ended::Conflicted);
                    self.totals.undecided += u64::from(ended == Ended::Undecided);
                    self.apply(writes);
                }
            }
            Action::Reopen => self.reopen(),
            Action::Kill => self.kill(),
            _ => self.read(action),
        }
    }

    fn write(&mut self, operations: Vec<Operation>) {
        self.subject.write(&operations, None).expect("write");
        self.apply(operations);
    }

    /// Notes what was written.
    fn apply(&mut self, operations: Vec<Operation>) {
        operations
            .iter()
            .for_each(|operation| self.twin.apply(operation));
        self.written.extend(operations);
    }

    fn ingest(&mut self, keyspace: usize, numbers: BTreeSet<u16>, value: Value) {
        let put = |number: u16| {
            let seed = value.seed.wrapping_add(number);
            operation(
                keyspace,
                &Key::Prefixed(number),
                Some(Value { seed, ..value }),
            )
        };
        let puts: Vec<_> = numbers.into_iter().map(put).collect();
        self.subject.ingest(&puts).expect("ingest");
        self.apply(puts);
    }

    fn read(&mut self, action: &Action) {
        match action {
            Action::Get(keyspace, key) => self.get(*keyspace, key),
            Action::MultiGet(keyspace, keys) => {
                let keys: Vec<_> = keys.iter().map(Key::bytes).collect();
                let found = self.subject.keyspaces[*keyspace]
                    .multi_get(&keys)
                    .expect("multi_get");
                let pairs = self.twin.pairs(*keyspace);
                let expected: Vec<_> = keys.iter().map(|key| pairs.get(key)).collect();
                let equal = |(found, expected): (&Option<Slice>, &Option<&Arc<[u8]>>)| {
                    found.as_deref() == expected.map(|value| &value[..])
                };
                assert!(found.iter().zip(&expected).all(equal), "multi_get");
            }
            Action::Scan(keyspace, range, ends) => {
                let range = bounds(range);
                let keyspace_of_store = &self.subject.keyspaces[*keyspace];
                let expected = within(self.twin.pairs(*keyspace), &range);
                compare_cursor(keyspace_of_store.cursor(range.clone()), &expected);
                compare(keyspace_of_store.range(range), expected, *ends, usize::MAX);
            }
            Action::Prefix(keyspace, prefix, ends) => {
                let prefix = prefix.bytes();
                let iterator = self.subject.keyspaces[*keyspace].prefix(&prefix);
                let pairs = self.twin.pairs(*keyspace).iter();
                let expected = pairs.filter(|(key, _)| key.starts_with(&prefix));
                let expected = expected.map(|(key, value)| (key.clone(), Arc::clone(value)));
                compare(iterator, expected.collect(), *ends, usize::MAX);
            }
            Action::TakeSnapshot => {
                if self.snapshots.len() == 4 {
                    self.snapshots.pop_front();
                }
                let keyspaces = self.subject.keyspaces.clone();
                self.snapshots.push_back((
                    self.subject.db.snapshot(),
                    self.twin.clone(),
                    keyspaces,
                ));
            }
            Action::ReadSnapshot {
                number,
                keyspace,
                key,
                range,
                ends,
            } => {
                if let Some((snapshot, twin, keyspaces)) = self.snapshots.get(*number) {
                    let handle = &keyspaces[*keyspace];
                    read_snapshot(snapshot, handle, twin.pairs(*keyspace), key, range, *ends);
                    let now = &self.subject.keyspaces[*keyspace];
                    if matches!(handle.get("?"), Err(Error::KeyspaceDropped)) {
                        let nothing = Pairs::new();
                        read_snapshot(snapshot, now, &nothing, key, range, *ends);
                    }
                }
            }
            Action::DropSnapshot(number) => drop(self.snapshots.remove(*number)),
            Action::HoldIterator(keyspace, range) => {
                if self.iterators.len() == 4 {
                    self.iterators.pop_front();
                }
                let range = bounds(range);
                let iterator = self.subject.keyspaces[*keyspace].range(range.clone());
                let expected = within(self.twin.pairs(*keyspace), &range);
                self.iterators.push_back((iterator, expected));
            }
            Action::StepIterator {
                number,
                steps,
                ends,
            } => {
                if let Some((iterator, expected)) = self.iterators.remove(*number) {
                    let rest = compare(iterator, expected, *ends, usize::from(*steps));
                    self.iterators.extend(rest);
                }
            }
            other => unreachable!("{other:?} is no read"),
        }
    }

    fn get(&self, keyspace: usize, key: &Key) {
        let key = key.bytes();
        let found = self.subject.keyspaces[keyspace].get(&key).expect("get");
        let expected = self.twin.pairs(keyspace).get(&key).map(|value| &value[..]);
        assert_eq!(found.as_deref(), expected, "get of {}", key.escape_ascii());
        let contains = self.subject.keyspaces[keyspace]
            .contains(&key)
            .expect("contains");
        assert_eq!(contains, expected.is_some(), "contains");
    }

    fn reopen(&mut self) {
        self.before_end();
        self.subject.db.clone().close().expect("close");
        self.subject = Subject::open(&self.place.disk(), self.options).expect("open after close");
        assert_twin(&self.subject.db, &self.twin);
    }

    fn kill(&mut self) {
        // Threads may be writing, which only a recording disk can stop at one moment.
        if matches!(self.place, Place::Directory(_)) && self.options.background_threads > 0 {
            return self.reopen();
        }
        let place = self.place.kill();
        self.before_end();
        self.place = place;
        self.subject =
            Subject::open(&self.place.disk(), self.options).expect("open after process death");
        assert_twin(&self.subject.db, &self.twin);
    }

    fn before_end(&mut self) {
        self.transactions.clear();
        for (iterator, expected) in self.iterators.drain(..) {
            compare(iterator, expected, 0b0110_1001, usize::MAX);
        }
        for (snapshot, twin, keyspaces) in self.snapshots.drain(..) {
            for (number, keyspace) in keyspaces.iter().enumerate() {
                let all: Bounds = (Bound::Unbounded, Bound::Unbounded);
                let expected = within(twin.pairs(number), &all);
                compare(snapshot.iter(keyspace), expected, 0, usize::MAX);
            }
        }
        self.totals.add(&self.subject.db.stats());
    }
}

pub(super) fn operation(keyspace: usize, key: &Key, value: Option<Value>) -> Operation {
    let value = value.map(|value| bytes_of(value.seed.into(), value.len as usize));
    Operation::new(keyspace, key.bytes(), value)
}

pub(super) fn range_delete(keyspace: usize, range: &Range) -> Operation {
    let change = Change::DeleteRange(bounds(range));
    Operation { keyspace, change }
}

pub(super) fn bounds(range: &Range) -> Bounds {
    let bytes = |bound: &Bound<Key>| bound.as_ref().map(Key::bytes);
    (bytes(&range.lower), bytes(&range.upper))
}

/// The pairs in a range; ranges whose ends are the wrong way round hold nothing.
pub(super) fn within(pairs: &Pairs, range: &Bounds) -> Expected {
    let contains = |key: &[u8]| {
        let above = match &range.0 {
            Bound::Included(lower) => key >= &lower[..],
            Bound::Excluded(lower) => key > &lower[..],
            Bound::Unbounded => true,
        };
        above
            && match &range.1 {
                Bound::Included(upper) => key <= &upper[..],
                Bound::Excluded(upper) => key < &upper[..],
                Bound::Unbounded => true,
            }
    };
    let pairs = pairs.iter().filter(|(key, _)| contains(key));
    pairs
        .map(|(key, value)| (key.clone(), Arc::clone(value)))
        .collect()
}

/// Takes pairs from the ends that the bits of `ends` choose, at most `steps`, and compares them.
/// Returns what is left unless the iterator has ended.
fn compare(
    mut iterator: Iter,
    mut expected: Expected,
    ends: u64,
    steps: usize,
) -> Option<(Iter, Expected)> {
    for step in 0..steps {
        let from_front = ends >> (step % 64) & 1 == 0;
        let found = if from_front {
            iterator.next()
        } else {
            iterator.next_back()
        };
        let expected = if from_front {
            expected.pop_front()
        } else {
            expected.pop_back()
        };
        let found = found.map(|pair| pair.expect("a sound store can be scanned"));
        let key = |pair: &[u8]| pair[..pair.len().min(60)].escape_ascii().to_string();
        assert!(
            found.as_ref().map(|(key, value)| (&**key, &**value))
                == expected.as_ref().map(|(key, value)| (&key[..], &value[..])),
            "step {step} of a scan from the {}: key {:?} instead of {:?}",
            if from_front { "front" } else { "back" },
            found.map(|pair| key(&pair.0)),
            expected.map(|pair| key(&pair.0)),
        );
        if found.is_none() {
            assert!(
                iterator.next().is_none() && iterator.next_back().is_none(),
                "fused"
            );
            return None;
        }
    }
    Some((iterator, expected))
}

fn read_snapshot(
    snapshot: &Snapshot,
    keyspace: &Keyspace,
    pairs: &Pairs,
    key: &Key,
    range: &Range,
    ends: u64,
) {
    let key = key.bytes();
    let found = snapshot.get(keyspace, &key).expect("get of a snapshot");
    let expected = pairs.get(&key).map(|value| &value[..]);
    assert_eq!(found.as_deref(), expected, "get of a snapshot");
    let range = bounds(range);
    let expected = within(pairs, &range);
    compare_cursor(snapshot.cursor(keyspace, range.clone()), &expected);
    compare(snapshot.range(keyspace, range), expected, ends, usize::MAX);
}

/// Takes all pairs of a cursor and compares them.
fn compare_cursor(mut cursor: Cursor, expected: &Expected) {
    assert_eq!((cursor.key(), cursor.value()), (&b""[..], &b""[..]));
    let mut expected = expected.iter();
    while cursor.advance().expect("a sound store can be scanned") {
        let found = Some((cursor.key(), cursor.value()));
        let expected = expected.next().map(|(key, value)| (&key[..], &value[..]));
        assert!(found == expected, "a cursor's pair");
    }
    assert!(expected.next().is_none(), "a cursor ended early");
    assert!(!cursor.advance().expect("fused"), "a cursor is fused");
    assert_eq!((cursor.key(), cursor.value()), (&b""[..], &b""[..]));
}
