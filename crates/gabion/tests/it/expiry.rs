//! Records that expire: what readers see of them at any moment, and when their space comes back.
//!
//! A machine draws writes, merges among them, moments and what the background does, on a clock that
//! it moves, and compares every way of reading with a map that keeps the moment of each record:
//! now, at snapshots and in transactions. Merges are drawn in a keyspace in which nothing expires
//! as well (`merges`), for there they are not folded at once.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use gabion::{
    Clock, Db, Engine, Error, Keyspace, KeyspaceOptions, Merge, MergeError, Options, Slice,
    Snapshot, WriteBatch,
};
use gabion_media::{Disk, SimDisk};

use crate::support::{
    PanicContext, SeededRng, base_seed, bytes_of, engines_on_disks, setting, small_options,
};

/// Keys of the machine.
const KEYS: u64 = 120;

/// A value, and the millisecond at which it is gone.
type Own = (Vec<u8>, Option<u64>);

/// What is there, expired or not.
type Twin = BTreeMap<Vec<u8>, Own>;

fn at(ms: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(ms)
}

fn is_there(own: &Own, moment: u64) -> bool {
    own.1.is_none_or(|expires| moment < expires)
}

fn pairs_at(twin: &Twin, moment: u64) -> Vec<(Vec<u8>, Vec<u8>)> {
    let there = twin.iter().filter(|(_, own)| is_there(own, moment));
    there
        .map(|(key, own)| (key.clone(), own.0.clone()))
        .collect()
}

/// A snapshot, what it sees, and its moment.
struct Past {
    snapshot: Snapshot,
    twin: Twin,
    moment: u64,
}

pub(crate) struct Machine {
    random: SeededRng,
    /// Whether anything expires.
    expires: bool,
    clock: Clock,
    options: Options,
    sim: SimDisk,
    db: Db,
    keyspace: Keyspace,
    twin: Twin,
    /// The highest moment that the clock has shown since the store was opened.
    highest: u64,
    past: Vec<Past>,
    pub(crate) expired_seen: u64,
    pub(crate) merges: u64,
}

/// The options of the machine's keyspace.
fn own_options() -> KeyspaceOptions {
    KeyspaceOptions::default().merge(Texts)
}

/// Puts operands behind a text, with `+` in between; an operand `!` takes the text away, and is put
/// together with no other.
struct Texts;

impl Merge for Texts {
    fn name(&self) -> &str {
        "texts of the tests"
    }

    fn check(&self, operand: &[u8]) -> Result<(), MergeError> {
        match operand {
            b"?" => Err("a question".into()),
            _ => Ok(()),
        }
    }

    fn full_merge(
        &self,
        _key: &[u8],
        base: Option<&[u8]>,
        operands: &[&[u8]],
    ) -> Result<Option<Vec<u8>>, MergeError> {
        let base = base.map(<[u8]>::to_vec);
        Ok(operands.iter().fold(base, |text, own| merged(text, own)))
    }

    fn partial_merge(&self, _key: &[u8], left: &[u8], right: &[u8]) -> Option<Vec<u8>> {
        let goes_together =
            left.last() != Some(&b'!') && right != b"!" && !right.len().is_multiple_of(3);
        goes_together.then(|| [left, b"+", right].concat())
    }
}

fn merged(text: Option<Vec<u8>>, operand: &[u8]) -> Option<Vec<u8>> {
    match (text, operand) {
        (_, b"!") => None,
        (None, operand) => Some(operand.to_vec()),
        (Some(text), operand) => Some([&text[..], b"+", operand].concat()),
    }
}

impl Machine {
    pub(crate) fn new(mut options: Options, expires: bool, seed: u64) -> Machine {
        let (sim, clock) = (SimDisk::new(), Clock::manual());
        clock.advance(Duration::from_secs(1_000));
        options.tuning.clock = clock.clone();
        let db = Db::open_on(Disk::simulated(&sim), options.clone()).unwrap();
        let keyspace = db.keyspace_with("expiring", &own_options()).unwrap();
        Machine {
            expires,
            merges: 0,
            random: SeededRng::new(seed),
            clock,
            options,
            sim,
            db,
            keyspace,
            twin: Twin::new(),
            highest: 0,
            past: Vec::new(),
            expired_seen: 0,
        }
    }

    /// The store's moment: its clock's, or a later one that it has shown.
    fn now(&mut self) -> u64 {
        let shown = u64::try_from(self.clock.unix_time().as_millis()).unwrap();
        self.highest = self.highest.max(shown);
        self.highest
    }

    fn key(&mut self) -> Vec<u8> {
        format!("key {:04}", self.random.below(KEYS)).into_bytes()
    }

    fn value(&mut self) -> Vec<u8> {
        let len = [0, 1, 8, 30, 200][self.random.index(5)];
        bytes_of(self.random.word(), len).to_vec()
    }

    /// A moment at which something may expire, in the past now and then.
    fn expiry(&mut self) -> u64 {
        let now = self.now();
        match self.random.below(8) {
            0 => now.saturating_sub(self.random.below(3_000)),
            1 => now + 1_000_000_000,
            _ => now + self.random.below(20_000),
        }
    }

    pub(crate) fn step(&mut self) {
        match self.random.below(100) {
            0..15 if self.expires => {
                let (key, value, expires) = (self.key(), self.value(), self.expiry());
                self.keyspace
                    .put_expiring(&key, &value, at(expires))
                    .unwrap();
                self.twin.insert(key, (value, Some(expires)));
            }
            0..33 => {
                let (key, operand) = (self.key(), self.operand());
                self.keyspace.merge(&key, &operand).unwrap();
                let now = self.now();
                self.merge_twin(None, key, &operand, now);
            }
            33..40 => {
                let (key, value) = (self.key(), self.value());
                self.keyspace.put(&key, &value).unwrap();
                self.twin.insert(key, (value, None));
            }
            40..46 => {
                let key = self.key();
                self.keyspace.delete(&key).unwrap();
                self.twin.remove(&key);
            }
            46..48 => self.delete_range(),
            48..54 => self.change_expiry(),
            54..58 => self.update(),
            58..62 => self.batch(),
            62..65 => self.transaction(),
            65..80 => self.pass_time(),
            80..84 => self.db.flush().unwrap(),
            84..86 => self.keyspace.compact::<&[u8]>(..).unwrap(),
            86..89 => self.db.wait_idle().unwrap(),
            89..92 => self.take_snapshot(),
            92..94 => {
                if !self.past.is_empty() {
                    let at = self.random.index(self.past.len());
                    self.past.swap_remove(at);
                }
            }
            94 => self.reopen(),
            _ => self.check_one(),
        }
    }

    /// An operand, which takes the text away now and then.
    fn operand(&mut self) -> Vec<u8> {
        match self.random.below(12) {
            0 => b"!".to_vec(),
            _ => {
                let len = 1 + self.random.index(6);
                let letter = b'a' + self.random.below(26).to_le_bytes()[0];
                vec![letter; len]
            }
        }
    }

    /// Merges in the twin, or in another map, at a moment.
    fn merge_twin(&mut self, other: Option<&mut Twin>, key: Vec<u8>, operand: &[u8], moment: u64) {
        self.merges += 1;
        let twin = other.unwrap_or(&mut self.twin);
        let own = twin.remove(&key).filter(|own| is_there(own, moment));
        let (text, expires) = own.map_or((None, None), |(text, expires)| (Some(text), expires));
        if let Some(text) = merged(text, operand) {
            twin.insert(key, (text, expires));
        }
    }

    fn delete_range(&mut self) {
        let (one, other) = (self.key(), self.key());
        let (lower, upper) = (one.clone().min(other.clone()), one.max(other));
        self.keyspace
            .delete_range(lower.clone()..upper.clone())
            .unwrap();
        self.twin.retain(|key, _| *key < lower || *key >= upper);
    }

    /// The record of a key that is there now.
    fn own(&mut self, key: &[u8]) -> Option<Own> {
        let now = self.now();
        self.twin.get(key).filter(|own| is_there(own, now)).cloned()
    }

    fn change_expiry(&mut self) {
        if !self.expires {
            return;
        }
        let key = self.key();
        let own = self.own(&key);
        if self.random.below(2) == 0 {
            let expires = self.expiry();
            let changed = self.keyspace.expire(&key, at(expires)).unwrap();
            assert_eq!(changed, own.is_some());
            if let Some((value, _)) = own {
                self.twin.insert(key, (value, Some(expires)));
            }
        } else {
            let changed = self.keyspace.remove_expiry(&key).unwrap();
            assert_eq!(changed, own.as_ref().is_some_and(|own| own.1.is_some()));
            if let Some((value, _)) = own {
                self.twin.insert(key, (value, None));
            }
        }
    }

    fn update(&mut self) {
        let (key, value) = (self.key(), self.value());
        let own = self.own(&key);
        let old = self.keyspace.update(&key, |_| Some(&value)).unwrap();
        assert_eq!(old.as_deref(), own.as_ref().map(|own| &own.0[..]));
        self.twin.insert(key, (value, own.and_then(|own| own.1)));
    }

    fn batch(&mut self) {
        let mut batch = WriteBatch::new();
        for _ in 0..1 + self.random.below(6) {
            let (key, value) = (self.key(), self.value());
            let kind = self.random.below(4);
            if kind < 2 {
                let operand = self.operand();
                batch.merge(&self.keyspace, &key, &operand).unwrap();
                let now = self.now();
                self.merge_twin(None, key, &operand, now);
            } else if kind == 2 && self.expires {
                let after = self.random.below(9_000);
                let expires = self.now() + after;
                let after = Duration::from_millis(after);
                batch
                    .put_expiring(&self.keyspace, &key, &value, after)
                    .unwrap();
                self.twin.insert(key, (value, Some(expires)));
            } else {
                batch.put(&self.keyspace, &key, &value).unwrap();
                self.twin.insert(key, (value, None));
            }
        }
        self.db.write(&batch).unwrap();
    }

    /// A transaction reads at its beginning, own writes too, whatever the clock does.
    fn transaction(&mut self) {
        let began = self.now();
        let mut transaction = self.db.begin().unwrap();
        let (mut seen, keyspace) = (self.twin.clone(), self.keyspace.clone());
        for _ in 0..1 + self.random.below(6) {
            let (key, value, expires) = (self.key(), self.value(), self.expiry());
            match self.random.below(5) {
                0 if self.expires => {
                    transaction
                        .put_expiring(&keyspace, &key, &value, at(expires))
                        .unwrap();
                    seen.insert(key, (value, Some(expires)));
                    self.pass_time();
                }
                0 => {
                    transaction.delete(&keyspace, &key).unwrap();
                    seen.remove(&key);
                }
                1 => {
                    transaction.put(&keyspace, &key, &value).unwrap();
                    seen.insert(key, (value, None));
                }
                _ => {
                    let operand = self.operand();
                    transaction.merge(&keyspace, &key, &operand).unwrap();
                    self.merge_twin(Some(&mut seen), key, &operand, began);
                }
            }
        }
        let found: Vec<(Slice, Slice)> = transaction
            .iter(&keyspace)
            .collect::<Result<_, _>>()
            .unwrap();
        assert_same(&found, &pairs_at(&seen, began), "a transaction");
        let key = self.key();
        let own = seen.get(&key).filter(|own| is_there(own, began));
        let found = transaction.get(&keyspace, &key).unwrap();
        assert_eq!(found.as_deref(), own.map(|own| &own.0[..]));
        let expires = transaction.expires_at(&keyspace, &key).unwrap();
        assert_eq!(expires, own.and_then(|own| own.1).map(at));
        // What has expired since the beginning is no base of the commit any more, so nothing is
        // drawn there that would need it.
        let expired = |own: &Own| is_there(own, began) && !is_there(own, self.highest);
        if self.random.below(3) > 0 && !self.twin.values().any(expired) {
            transaction.commit().unwrap();
            self.twin = seen;
        }
    }

    fn pass_time(&mut self) {
        self.now();
        let ms = [0, 1, 10, 500, 3_000, 30_000, 700_000][self.random.index(7)];
        self.clock.advance(Duration::from_millis(ms));
        if self.random.below(20) == 0 {
            // The store has seen what its clock showed.
            self.now();
            drop(self.db.snapshot());
            self.clock
                .shift_unix_time([-5, -1, 3][self.random.index(3)]);
        }
        self.now();
    }

    fn take_snapshot(&mut self) {
        if self.past.len() < 4 {
            let moment = self.now();
            self.past.push(Past {
                snapshot: self.db.snapshot(),
                twin: self.twin.clone(),
                moment,
            });
        }
    }

    /// Closes or kills the store and opens it again. The clock is not set back in between.
    fn reopen(&mut self) {
        self.past.clear();
        let shown = u64::try_from(self.clock.unix_time().as_millis()).unwrap();
        if shown < self.highest {
            self.clock
                .advance(Duration::from_millis(self.highest - shown));
        }
        if self.random.below(2) == 0 {
            self.db.clone().close().unwrap();
        } else {
            self.sim = self.sim.process_kill(self.sim.ops());
        }
        self.open();
    }

    fn open(&mut self) {
        self.db = Db::open_on(Disk::simulated(&self.sim), self.options.clone()).unwrap();
        self.keyspace = self.db.keyspace_with("expiring", &own_options()).unwrap();
    }

    fn check_one(&mut self) {
        let (key, now) = (self.key(), self.now());
        let own = self.twin.get(&key).filter(|own| is_there(own, now));
        let found = self.keyspace.get(&key).unwrap();
        assert_eq!(
            found.as_deref(),
            own.map(|own| &own.0[..]),
            "{key:?} at {now}"
        );
        let expires = self.keyspace.expires_at(&key).unwrap();
        assert_eq!(expires, own.and_then(|own| own.1).map(at));
        for past in &self.past {
            let own = past.twin.get(&key).filter(|own| is_there(own, past.moment));
            let found = past.snapshot.get(&self.keyspace, &key).unwrap();
            assert_eq!(
                found.as_deref(),
                own.map(|own| &own.0[..]),
                "{key:?} in the past"
            );
            let expires = past.snapshot.expires_at(&self.keyspace, &key).unwrap();
            assert_eq!(expires, own.and_then(|own| own.1).map(at));
        }
    }

    pub(crate) fn check_all(&mut self) {
        let now = self.now();
        let expected = pairs_at(&self.twin, now);
        self.expired_seen += (self.twin.len() - expected.len()) as u64;
        let all =
            |iter: gabion::Iter| -> Vec<(Slice, Slice)> { iter.collect::<Result<_, _>>().unwrap() };
        assert_same(&all(self.keyspace.iter()), &expected, "forwards");
        let mut backwards: Vec<(Slice, Slice)> = self
            .keyspace
            .iter()
            .rev()
            .collect::<Result<_, _>>()
            .unwrap();
        backwards.reverse();
        assert_same(&backwards, &expected, "backwards");
        let mut cursor = self.keyspace.cursor::<&[u8]>(..);
        let mut walked = Vec::new();
        while cursor.advance().unwrap() {
            let own = &self.twin[cursor.key()];
            assert_eq!(cursor.expires_at(), own.1.map(at));
            walked.push((Slice::new(cursor.key()), Slice::new(cursor.value())));
        }
        assert_same(&walked, &expected, "by a cursor");
        let keys: Vec<Vec<u8>> = self.twin.keys().cloned().collect();
        let values = self.keyspace.multi_get(&keys).unwrap();
        for (key, value) in keys.iter().zip(values) {
            let own = self.twin.get(key).filter(|own| is_there(own, now));
            assert_eq!(
                value.as_deref(),
                own.map(|own| &own.0[..]),
                "{key:?} among others"
            );
        }
        for past in &self.past {
            let expected = pairs_at(&past.twin, past.moment);
            assert_same(
                &all(past.snapshot.iter(&self.keyspace)),
                &expected,
                "in the past",
            );
        }
    }
}

fn assert_same(found: &[(Slice, Slice)], expected: &[(Vec<u8>, Vec<u8>)], how: &str) {
    let found: Vec<(Vec<u8>, Vec<u8>)> = found
        .iter()
        .map(|(key, value)| (key.to_vec(), value.to_vec()))
        .collect();
    if let Some(wrong) = found.iter().zip(expected).position(|(a, b)| a != b) {
        panic!("{how}: {:?} instead of {:?}", found[wrong], expected[wrong]);
    }
    assert_eq!(found.len(), expected.len(), "{how}: {:?}", found.last());
}

/// Runs a machine, and looks at what it leaves: its store, and a checkpoint of it.
pub(crate) fn run(mut machine: Machine, steps: u64) -> Machine {
    for step in 0..steps {
        machine.step();
        if step % 20 == 0 {
            machine.check_all();
        }
    }
    machine.check_all();
    let copy = SimDisk::new();
    machine.db.checkpoint_on(&Disk::simulated(&copy)).unwrap();
    machine.db.clone().close().unwrap();
    for sim in [&machine.sim, &copy] {
        let report = gabion::check_disk(&Disk::simulated(sim)).unwrap();
        assert!(report.problems.is_empty(), "{:?}", report.problems);
    }
    machine.past.clear();
    machine.sim = copy;
    machine.open();
    let now = machine.now();
    machine.twin.retain(|_, own| is_there(own, now));
    machine.check_all();
    machine
}

#[test]
fn readers_at_any_moment_see_what_a_map_with_moments_has() {
    for engine in engines_on_disks() {
        let (mut expired, mut merges) = (0, 0);
        for number in 0..setting("GABION_EXPIRY_CASES", 12) {
            let seed = base_seed() ^ (0xe0_0000 + number);
            let _context = PanicContext(|| format!("{engine}, seed {seed}"));
            let options = small_options().engine(engine);
            let machine = run(Machine::new(options, true, seed), 400);
            expired += machine.expired_seen;
            merges += machine.merges;
        }
        println!("{engine}: {expired} expired records were stepped over, {merges} merges");
        assert!(expired > 100, "{expired}");
    }
}

#[test]
fn engines_without_expiry_say_so() {
    for engine in Engine::ALL.iter().copied() {
        assert_eq!(engine.capabilities().expiry, !engine.capabilities().mapped);
    }
}

/// Space comes back without traffic, and the bucket that was rewritten once for it rests.
#[test]
fn the_space_of_what_has_expired_comes_back_without_traffic() {
    for engine in engines_on_disks() {
        let _context = PanicContext(|| engine.to_string());
        let clock = Clock::manual();
        let sim = SimDisk::new();
        let mut options = small_options()
            .engine(engine)
            .log_bytes_max(1 << 20)
            .expiry_lag_max(Duration::from_secs(60));
        options.tuning.memtable_budget_bytes = Some(1 << 20);
        options.tuning.clock = clock.clone();
        let db = Db::open_on(Disk::simulated(&sim), options).unwrap();
        for number in 0..4_000_u64 {
            let key = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
            let value = bytes_of(number, 500);
            match number % 4 {
                0 => db.put(key, value).unwrap(),
                _ => {
                    let keyspace = db.default_keyspace();
                    let after = Duration::from_secs(1_000 + number % 100);
                    keyspace.put_expiring(key, value, after).unwrap();
                }
            }
        }
        db.flush().unwrap();
        db.wait_idle().unwrap();
        let full = db.stats().space_bytes;
        clock.advance(Duration::from_secs(990));
        db.wait_idle().unwrap();
        assert_eq!(db.iter().count(), 4_000);
        clock.advance(Duration::from_secs(110));
        assert_eq!(db.iter().count(), 1_000, "nobody sees them any more");
        clock.advance(Duration::from_secs(60));
        db.wait_idle().unwrap();
        let left = db.stats();
        println!("{engine}: {full} bytes, {} left", left.space_bytes);
        assert!(
            left.space_bytes < full / 2,
            "{} of {full}",
            left.space_bytes
        );
        assert_eq!(db.iter().count(), 1_000);
        for _ in 0..3 {
            clock.advance(Duration::from_secs(3_600));
            db.wait_idle().unwrap();
        }
        let after = db.stats();
        assert_eq!(after.compactions, left.compactions, "nothing is left to do");
        assert_eq!(after.flushes, left.flushes, "nothing is left to do");
        db.close().unwrap();
    }
}

/// What a snapshot sees stays for it, and goes once it has ended.
#[test]
fn a_snapshot_keeps_what_has_expired_since() {
    for engine in engines_on_disks() {
        let _context = PanicContext(|| engine.to_string());
        let clock = Clock::manual();
        let mut options = small_options().engine(engine);
        options.tuning.clock = clock.clone();
        let db = Db::open_on(Disk::simulated(&SimDisk::new()), options).unwrap();
        let keyspace = db.default_keyspace();
        for number in 0..200_u32 {
            let after = Duration::from_secs(10);
            keyspace
                .put_expiring(number.to_le_bytes(), [7; 100], after)
                .unwrap();
        }
        let snapshot = db.snapshot();
        clock.advance(Duration::from_secs(10));
        assert_eq!(
            (db.iter().count(), snapshot.iter(keyspace).count()),
            (0, 200)
        );
        db.put("another", "key").unwrap();
        db.compact::<&[u8]>(..).unwrap();
        clock.advance(Duration::from_secs(100_000));
        db.compact::<&[u8]>(..).unwrap();
        assert_eq!(snapshot.iter(keyspace).count(), 200);
        drop(snapshot);
        db.compact::<&[u8]>(..).unwrap();
        assert_eq!(db.iter().count(), 1);
        db.close().unwrap();
    }
}

#[test]
fn limits_hold_for_the_value_alone() {
    let db = Db::open_on(Disk::simulated(&SimDisk::new()), small_options()).unwrap();
    let keyspace = db.default_keyspace();
    let long = vec![0; 65_536];
    let put = keyspace.put_expiring(&long, "", Duration::ZERO);
    assert!(matches!(put, Err(Error::Limit { what: "key", .. })));
    keyspace
        .put_expiring("", "", Duration::from_secs(9))
        .unwrap();
    assert_eq!(keyspace.get("").unwrap().as_deref(), Some(&b""[..]));
    keyspace.put_expiring("", "", Duration::ZERO).unwrap();
    assert_eq!(keyspace.get("").unwrap(), None);
    db.close().unwrap();
}

/// A scan that had stepped over many keys that are gone let the MemTable remember that there is
/// nothing. What has expired is there for who reads at an earlier moment.
#[test]
fn no_reader_of_an_earlier_moment_misses_what_has_expired_since() {
    for engine in engines_on_disks() {
        for flushes in [false, true] {
            let _context = PanicContext(|| format!("{engine}, flushes: {flushes}"));
            let clock = Clock::manual();
            let mut options = small_options().engine(engine).log_bytes_max(4 << 20);
            options.tuning.memtable_budget_bytes = Some(4 << 20);
            options.tuning.clock = clock.clone();
            let db = Db::open_on(Disk::simulated(&SimDisk::new()), options).unwrap();
            let keyspace = db.default_keyspace();
            for number in 0..5_000_u32 {
                let key = format!("{number:06}");
                match number % 2 {
                    0 => {
                        let after = Duration::from_secs(10);
                        keyspace.put_expiring(key, "value", after).unwrap();
                    }
                    _ => keyspace.delete(key).unwrap(),
                }
            }
            if flushes {
                db.flush().unwrap();
            }
            db.put("behind", "them").unwrap();
            let early = db.snapshot();
            clock.advance(Duration::from_secs(10));
            // The second one begins behind what the first one has told of.
            for _ in 0..3 {
                let first = db.iter().next().unwrap().unwrap();
                assert_eq!(&*first.0, b"behind");
                let first = early.iter(keyspace).next().unwrap().unwrap();
                assert_eq!(&*first.0, b"000000");
                let (start, end) = ("000100", "004000");
                assert_eq!(early.range(keyspace, start..end).count(), 1_950);
            }
            drop(early);
            db.compact::<&[u8]>(..).unwrap();
            db.wait_idle().unwrap();
            assert_eq!(db.iter().count(), 1);
            let stats = db.stats();
            assert!(stats.live_bytes < 2_000, "{} bytes", stats.live_bytes);
            db.close().unwrap();
        }
    }
}

/// Puts of all kinds expire by the keyspace's default, unless they say it themselves.
#[test]
fn a_keyspace_has_a_default() {
    let clock = Clock::manual();
    let sim = SimDisk::new();
    let mut options = small_options();
    options.tuning.clock = clock.clone();
    let open = || Db::open_on(Disk::simulated(&sim), options.clone()).unwrap();
    let db = open();
    let minute = Duration::from_secs(60);
    let own = KeyspaceOptions::default().default_expiry(minute);
    let keyspace = db.keyspace_with("own", &own).unwrap();
    keyspace.ingest([("ingest", "1")]).unwrap();
    keyspace.put("put", "1").unwrap();
    let mut batch = WriteBatch::new();
    batch.put(&keyspace, "batch", "1").unwrap();
    db.write(&batch).unwrap();
    let mut transaction = db.begin().unwrap();
    transaction.put(&keyspace, "transaction", "1").unwrap();
    transaction.commit().unwrap();
    keyspace.update("update", |_| Some("1")).unwrap();
    assert!(keyspace.compare_and_swap("swap", None, Some(b"1")).unwrap());
    keyspace.put_expiring("later", "1", 2 * minute).unwrap();
    keyspace.put("kept", "1").unwrap();
    assert!(keyspace.remove_expiry("kept").unwrap());
    keyspace.update("kept", |_| Some("2")).unwrap();
    db.close().unwrap();
    let db = open();
    let keyspace = db.keyspace("own").unwrap();
    assert_eq!(keyspace.options(), own);
    clock.advance(minute - Duration::from_millis(1));
    assert_eq!(keyspace.iter().count(), 8);
    clock.advance(Duration::from_millis(1));
    let keys: Vec<Slice> = keyspace.iter().map(|pair| pair.unwrap().0).collect();
    assert_eq!(keys, [&b"kept"[..], b"later"]);
    // From now on without one.
    let keyspace = db
        .keyspace_with("own", &KeyspaceOptions::default())
        .unwrap();
    keyspace.put("put", "2").unwrap();
    assert_eq!(keyspace.expires_at("put").unwrap(), None);
    db.close().unwrap();
}

/// The tables are damaged, so whoever reads them fails.
#[test]
fn tables_of_which_all_has_expired_go_unread() {
    for everything in [true, false] {
        let _context = PanicContext(|| format!("everything expires: {everything}"));
        let (clock, sim) = (Clock::manual(), SimDisk::new());
        let mut options = small_options();
        options.tuning.clock = clock.clone();
        let db = Db::open_on(Disk::simulated(&sim), options.clone()).unwrap();
        for number in 0..100_u32 {
            let (key, minute) = (number.to_le_bytes(), Duration::from_secs(60));
            match everything || number > 0 {
                true => db
                    .default_keyspace()
                    .put_expiring(key, [7; 20], minute)
                    .unwrap(),
                false => db.put(key, [7; 20]).unwrap(),
            }
        }
        db.flush().unwrap();
        db.close().unwrap();
        for name in sim.names().iter().filter(|name| name.ends_with(".tbl")) {
            let mut bytes = sim.raw(name).unwrap();
            bytes[100] ^= 1;
            sim.set_raw(name, bytes);
        }
        clock.advance(Duration::from_secs(60));
        let db = Db::open_on(Disk::simulated(&sim), options).unwrap();
        let before = db.stats();
        let (bytes, expired) = (before.table_bytes, before.garbage.expired_bytes);
        assert!(bytes > 0 && expired > bytes / 2 && expired <= bytes);
        assert_eq!(before.expired_tables_dropped, 0);
        let compacted = db.compact::<&[u8]>(..);
        match everything {
            true => {
                compacted.unwrap();
                let after = db.stats();
                assert_eq!((after.table_bytes, after.garbage.expired_bytes), (0, 0));
                assert_eq!(after.expired_tables_dropped, before.tables);
                assert_eq!(db.iter().count(), 0);
            }
            false => {
                let error = compacted.unwrap_err().to_string();
                assert!(error.contains("checksum"), "{error}");
            }
        }
        drop(db);
    }
}
