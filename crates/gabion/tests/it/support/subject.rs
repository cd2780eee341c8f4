//! The store under test with its keyspaces, and what must hold of any store.

use std::sync::Arc;
use std::time::Duration;

use gabion::{
    Db, Durability, Error, Keyspace, KeyspaceOptions, Merge, MergeError, Options, Result, Stats,
    WriteBatch,
};
use gabion_media::Disk;

use super::{Change, Operation, Pairs, Twin};

/// The keyspaces that the tests use, in the order in which they are made.
pub(crate) const KEYSPACES: [&str; 3] = [gabion::DEFAULT_KEYSPACE, "second", "third"];

/// An open store and its keyspaces.
#[derive(Clone)]
pub(crate) struct Subject {
    pub(crate) db: Db,
    pub(crate) keyspaces: Vec<Keyspace>,
    durability: Durability,
}

/// Merged into a value, an operand takes its place, so that a put may as well be a merge. Some are
/// put together, and of some both are kept.
struct Last;

impl Merge for Last {
    fn name(&self) -> &str {
        "last"
    }

    fn full_merge(
        &self,
        _key: &[u8],
        base: Option<&[u8]>,
        operands: &[&[u8]],
    ) -> Result<Option<Vec<u8>>, MergeError> {
        let last = operands.last().copied().or(base);
        Ok(last.map(<[u8]>::to_vec))
    }

    fn partial_merge(&self, _key: &[u8], _left: &[u8], right: &[u8]) -> Option<Vec<u8>> {
        (right.len() % 5 == 3).then(|| right.to_vec())
    }
}

/// The keyspace of that name, in which puts may be merges, if the engine has them.
pub(crate) fn keyspace(db: &Db, name: &str) -> Result<Keyspace> {
    match db.engine().capabilities().merges {
        true => db.keyspace_with(name, &KeyspaceOptions::default().merge(Last)),
        false => db.keyspace(name),
    }
}

/// As [`keyspace`], of one that was made.
pub(crate) fn existing_keyspace(db: &Db, name: &str) -> Result<Keyspace> {
    match db.keyspace_names().iter().any(|own| own == name) {
        true => keyspace(db, name),
        false => db.existing_keyspace(name),
    }
}

/// No test takes as long.
const FAR: Duration = Duration::from_secs(1 << 40);

impl Subject {
    /// Opens the store on a disk and makes the keyspaces that are missing.
    pub(crate) fn open(disk: &Disk, options: &Options) -> Result<Subject> {
        let db = Db::open_on(disk.clone(), options.clone())?;
        let keyspaces = KEYSPACES
            .iter()
            .map(|name| keyspace(&db, name))
            .collect::<Result<_>>()?;
        let durability = options.durability;
        Ok(Subject {
            db,
            keyspaces,
            durability,
        })
    }

    /// Whether a put of the value is one that expires, long after the test: so it is with some, as
    /// they are stored otherwise. In one keyspace nothing does, for merges are stored otherwise
    /// there.
    fn expires(&self, keyspace: usize, value: &[u8]) -> bool {
        let expires = value.len() % 5 == 2 && keyspace != 1;
        expires && self.db.engine().capabilities().expiry
    }

    /// Whether a put of the value is a merge of it, which says the same: some are.
    fn merges(&self, value: &[u8]) -> bool {
        value.len() % 5 >= 3 && self.db.engine().capabilities().merges
    }

    /// Writes operations: one by itself, several as a batch, an odd number of them in a
    /// transaction.
    pub(crate) fn write(
        &self,
        operations: &[Operation],
        durability: Option<Durability>,
    ) -> Result<()> {
        if let [operation] = operations {
            let keyspace = &self.keyspaces[operation.keyspace];
            return match (&operation.change, durability) {
                (Change::Put(key, value), level) if self.merges(value) => {
                    keyspace.merge_with(key, value, level.unwrap_or(self.durability))
                }
                (Change::Put(key, value), level) if self.expires(operation.keyspace, value) => {
                    let level = level.unwrap_or(self.durability);
                    keyspace.put_expiring_with(key, value, FAR, level)
                }
                (Change::Put(key, value), Some(level)) => keyspace.put_with(key, value, level),
                (Change::Put(key, value), None) => keyspace.put(key, value),
                (Change::Delete(key), Some(level)) => keyspace.delete_with(key, level),
                (Change::Delete(key), None) => keyspace.delete(key),
                (Change::DeleteRange(range), Some(level)) => {
                    keyspace.delete_range_with(range.clone(), level)
                }
                (Change::DeleteRange(range), None) => keyspace.delete_range(range.clone()),
            };
        }
        /// Adds the operations to a batch or a transaction, which both take them.
        macro_rules! add_to {
            ($writes:ident) => {
                for Operation {
                    keyspace: at,
                    change,
                } in operations
                {
                    let keyspace = &self.keyspaces[*at];
                    match change {
                        Change::Put(key, value) if self.merges(value) => {
                            $writes.merge(keyspace, key, value)?;
                        }
                        Change::Put(key, value) if self.expires(*at, value) => {
                            $writes.put_expiring(keyspace, key, value, FAR)?;
                        }
                        Change::Put(key, value) => $writes.put(keyspace, key, value)?,
                        Change::Delete(key) => $writes.delete(keyspace, key)?,
                        Change::DeleteRange(range) => {
                            $writes.delete_range(keyspace, range.clone())?;
                        }
                    }
                }
            };
        }
        if operations.len() % 2 == 1 && self.db.engine().capabilities().transactions {
            let mut transaction = self.db.begin()?;
            add_to!(transaction);
            return transaction.commit_with(durability.unwrap_or(self.durability));
        }
        let mut batch = WriteBatch::new();
        add_to!(batch);
        match durability {
            Some(level) => self.db.write_with(batch, level),
            None => self.db.write(batch),
        }
    }
}

impl Subject {
    /// Ingests puts of one keyspace.
    pub(crate) fn ingest(&self, puts: &[Operation]) -> Result<()> {
        let Some(first) = puts.first() else {
            return Ok(());
        };
        let pairs = puts.iter().map(|operation| match &operation.change {
            Change::Put(key, value) => (key, value),
            Change::Delete(_) | Change::DeleteRange(_) => panic!("an ingest has puts only"),
        });
        let count = self.keyspaces[first.keyspace].ingest(pairs)?;
        assert_eq!(count, puts.len() as u64);
        Ok(())
    }
}

impl Subject {
    /// Drops a keyspace, and makes another one of its name.
    pub(crate) fn drop_keyspace(&mut self, keyspace: usize) -> Result<()> {
        self.db.drop_keyspace(KEYSPACES[keyspace])?;
        assert_gone(&self.db, &self.keyspaces[keyspace]);
        let another = self::keyspace(&self.db, KEYSPACES[keyspace])?;
        let old = std::mem::replace(&mut self.keyspaces[keyspace], another);
        assert_gone(&self.db, &old);
        Ok(())
    }
}

/// Asserts that a handle is of a keyspace that was dropped, and that nothing can be done by it.
pub(crate) fn assert_gone(db: &Db, old: &Keyspace) {
    let told = |error: Error| matches!(error, Error::KeyspaceDropped);
    let refuses = |what: &str, result: Result<()>| match result {
        Err(Error::KeyspaceDropped) => {}
        result => panic!("{what} by an old handle: {result:?}"),
    };
    refuses("a put", old.put("a", "value"));
    refuses("a put", old.put_with("a", "value", Durability::Sync));
    refuses("a delete", old.delete("a"));
    refuses("a range delete", old.delete_range("a".."b"));
    refuses("a compaction", old.compact::<&str>(..));
    refuses("a get", old.get("a").map(drop));
    refuses("a multi_get", old.multi_get(&["a"]).map(drop));
    refuses("a get of a snapshot", db.snapshot().get(old, "a").map(drop));
    for mut pairs in [old.iter(), db.snapshot().iter(old)] {
        assert!(pairs.next_back().is_some_and(|pair| pair.is_err_and(told)));
        assert!(pairs.next().is_none(), "the error comes once");
    }
    if db.engine().capabilities().ingest {
        refuses("an ingest", old.ingest([("a", "value")]).map(drop));
    }
    // A batch is refused as a whole, wherever it names the keyspace.
    let probe = "a key that is written with a dropped keyspace only";
    for is_first in [true, false] {
        let mut batch = WriteBatch::new();
        let mut add = |keyspace: &Keyspace| batch.put(keyspace, probe, "a value").unwrap();
        match is_first {
            true => [old, db.default_keyspace()].into_iter().for_each(&mut add),
            false => [db.default_keyspace(), old].into_iter().for_each(&mut add),
        }
        for level in [Durability::Buffered, Durability::Sync] {
            refuses("a batch", db.write_with(&batch, level));
        }
    }
    assert_eq!(db.get(probe).unwrap(), None);
}

/// All pairs of a store by keyspace; a keyspace that does not exist is empty.
pub(crate) fn read_all(db: &Db) -> Result<Vec<Pairs>> {
    let mut found = Vec::new();
    for name in KEYSPACES {
        let mut pairs = Pairs::new();
        if let Ok(keyspace) = existing_keyspace(db, name) {
            let is_ordered = db.engine().capabilities().ordered;
            for pair in keyspace.pairs() {
                let (key, value) = pair?;
                let position = pairs.len();
                let before = pairs.insert(key.to_vec(), Arc::from(&*value));
                assert!(before.is_none(), "the scan returned {key:?} twice");
                if !is_ordered {
                    continue;
                }
                let last = pairs.last_key_value().map(|(last, _)| &last[..]);
                assert_eq!(
                    last,
                    Some(&*key),
                    "item {position} of the scan is out of order"
                );
            }
        }
        found.push(pairs);
    }
    Ok(found)
}

/// Reads everything in all ways: scans in both directions and gets agree. Returns what they say.
pub(crate) fn assert_sound(db: &Db) -> Result<Vec<Pairs>> {
    let found = read_all(db)?;
    for (name, pairs) in KEYSPACES.iter().zip(&found) {
        let Ok(keyspace) = existing_keyspace(db, name) else {
            continue;
        };
        let is_ordered = db.engine().capabilities().ordered;
        let scanned = is_ordered.then_some(pairs);
        let mut expected = scanned
            .into_iter()
            .flatten()
            .collect::<Vec<_>>()
            .into_iter()
            .rev();
        for pair in keyspace.iter().rev().filter(|_| is_ordered) {
            let (key, value) = pair?;
            let expected = expected.next().map(|(key, value)| (&key[..], &value[..]));
            let place = "the reverse scan differs from the forward one";
            assert_eq!(
                Some((&*key, &*value)),
                expected,
                "{place} in keyspace {name}"
            );
        }
        assert!(
            expected.next().is_none(),
            "the reverse scan of keyspace {name} is too short"
        );
        let keys = pairs
            .keys()
            .flat_map(|key| [key.clone(), [key, &b"!"[..]].concat()]);
        let keys: Vec<_> = keys.filter(|key| key.len() <= 0xffff).collect();
        let together = keyspace.multi_get(&keys)?;
        assert_eq!(together.len(), keys.len());
        for (key, value) in keys.iter().zip(&together) {
            let expected = pairs.get(&key[..]).map(|value| &value[..]);
            let place = key.escape_ascii();
            assert_eq!(value.as_deref(), expected, "multi_get of {place}");
        }
        for (key, expected) in pairs {
            let value = keyspace.get(key)?;
            assert_eq!(
                value.as_deref(),
                Some(&expected[..]),
                "get of {}",
                key.escape_ascii()
            );
            let absent = [&key[..], b"?"].concat();
            if absent.len() <= 0xffff && !pairs.contains_key(&absent) {
                assert_eq!(
                    keyspace.get(&absent)?,
                    None,
                    "get of {}",
                    absent.escape_ascii()
                );
            }
        }
    }
    Ok(found)
}

/// Asserts that a store holds exactly what its twin holds, however it is read.
pub(crate) fn assert_twin(db: &Db, twin: &Twin) {
    let found = assert_sound(db).expect("a sound store can be read");
    assert!(twin.equals(&found), "{}", twin.difference(&found));
}

/// What the stores of a test did in total, so that a test can tell that it still covers things.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Totals {
    /// Puts, deletes, reads and whatever else a test asks for, those of a batch counted singly.
    pub(crate) operations: u64,
    pub(crate) writes: u64,
    pub(crate) flushes: u64,
    pub(crate) compactions: u64,
    pub(crate) splits: u64,
    pub(crate) joins: u64,
    /// Small tables that became one with their neighbours.
    pub(crate) coalesced_tables: u64,
    /// Keyspaces that were dropped.
    pub(crate) drops: u64,
    /// Commits of transactions, and those that were refused, and those that might have been.
    pub(crate) commits: u64,
    pub(crate) conflicts: u64,
    pub(crate) undecided: u64,
    /// Segments of the log that were begun.
    pub(crate) log_segments: u64,
}

impl Totals {
    /// Adds what a store did since it was opened.
    pub(crate) fn add(&mut self, stats: &Stats) {
        self.writes += stats.writes;
        self.flushes += stats.flushes;
        self.compactions += stats.compactions;
        self.splits += stats.splits;
        self.joins += stats.joins;
        self.coalesced_tables += stats.coalesced_tables;
    }

    /// Adds what another thread counted.
    pub(crate) fn merge(&mut self, other: &Totals) {
        self.operations += other.operations;
        self.writes += other.writes;
        self.flushes += other.flushes;
        self.compactions += other.compactions;
        self.splits += other.splits;
        self.joins += other.joins;
        self.coalesced_tables += other.coalesced_tables;
        self.drops += other.drops;
        self.commits += other.commits;
        self.conflicts += other.conflicts;
        self.undecided += other.undecided;
        self.log_segments += other.log_segments;
    }
}

/// The highest number of a log segment among file names.
pub(crate) fn log_number(names: &[String]) -> u64 {
    let numbers = names.iter().filter_map(|name| name.strip_suffix(".log"));
    numbers
        .filter_map(|digits| u64::from_str_radix(digits, 16).ok())
        .max()
        .unwrap_or(0)
}
