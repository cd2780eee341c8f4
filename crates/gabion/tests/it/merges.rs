//! Merges: what readers find of them, through everything that the store does with operands.
//!
//! The machine is that of `expiry`, in which all ways of writing and reading are drawn.

use gabion::{AddI64, Append, Db, Error, KeyspaceOptions, Merge, MergeError, Options, WriteBatch};
use gabion_media::{Disk, SimDisk};

use crate::expiry::{Machine, run};
use crate::support::{
    PanicContext, SeededRng, base_seed, bytes_of, engines_on_disks, setting, small_options,
};

#[test]
fn readers_find_what_was_merged_one_by_one() {
    for engine in engines_on_disks() {
        let mut merges = 0;
        for number in 0..setting("GABION_MERGE_CASES", 15) {
            let seed = base_seed() ^ (0x3e_0000 + number);
            let _context = PanicContext(|| format!("{engine}, seed {seed}"));
            let options = small_options().engine(engine);
            merges += run(Machine::new(options, false, seed), 400).merges;
        }
        println!("{engine}: {merges} merges");
    }
}

fn counters() -> KeyspaceOptions {
    KeyspaceOptions::default().merge(AddI64)
}

fn number(value: Option<gabion::Slice>) -> Option<i64> {
    value.map(|value| i64::from_le_bytes((*value).try_into().unwrap()))
}

/// A log is replayed by threads in any order, and may hold what several MemTables held.
#[test]
fn what_was_merged_survives_a_replay_by_threads() {
    for engine in engines_on_disks() {
        let sim = SimDisk::new();
        let options = |threads| {
            let mut options = Options::default()
                .engine(engine)
                .background_threads(threads);
            options.tuning.memtable_budget_bytes = Some(64 << 20);
            options
        };
        let (keys, mut random) = (50, SeededRng::new(base_seed()));
        let mut twin = vec![None; keys];
        let db = Db::open_on(Disk::simulated(&sim), options(0)).unwrap();
        let keyspace = db.keyspace_with("counters", &counters()).unwrap();
        for round in 0..40_000 {
            let key = random.index(keys);
            let by = random.below(1_000).cast_signed() - 500;
            let name = format!("{key:0>40}");
            match random.below(300) {
                0 => {
                    keyspace.put(&name, by.to_le_bytes()).unwrap();
                    twin[key] = Some(by);
                }
                1 => {
                    keyspace.delete(&name).unwrap();
                    twin[key] = None;
                }
                _ => {
                    keyspace.merge(&name, by.to_le_bytes()).unwrap();
                    twin[key] = Some(twin[key].unwrap_or(0) + by);
                }
            }
            if round == 15_000 {
                db.flush().unwrap();
            }
        }
        let killed = sim.process_kill(sim.ops());
        for threads in [0, 3] {
            let copy = killed.process_kill(killed.ops());
            let db = Db::open_on(Disk::simulated(&copy), options(threads)).unwrap();
            let keyspace = db.keyspace("counters").unwrap();
            for (key, expected) in twin.iter().enumerate() {
                let found = keyspace.get(format!("{key:0>40}")).unwrap();
                assert_eq!(
                    number(found),
                    *expected,
                    "{engine}, {threads} threads, {key}"
                );
            }
            db.close().unwrap();
        }
    }
}

/// A repair writes the merges of a log anew, under other numbers than those that they cover.
#[test]
fn a_repair_of_what_a_kill_leaves_has_what_an_opening_finds() {
    for engine in engines_on_disks() {
        let sim = SimDisk::recording();
        let options = small_options().engine(engine);
        let mut random = SeededRng::new(base_seed());
        let db = Db::open_on(Disk::simulated(&sim), options.clone()).unwrap();
        let keyspace = db.keyspace_with("counters", &counters()).unwrap();
        for _ in 0..700 {
            let (key, by) = (format!("{:0>20}", random.index(6)), random.below(100));
            match random.below(12) {
                0 => keyspace.put(key, by.to_le_bytes()).unwrap(),
                1 => keyspace.delete(key).unwrap(),
                2..6 => db.put(key, bytes_of(by, 60)).unwrap(),
                _ => keyspace.merge(key, by.to_le_bytes()).unwrap(),
            }
        }
        let pairs = |sim: &SimDisk| {
            let db = Db::open_on(Disk::simulated(sim), options.clone()).unwrap();
            let keyspace = db.keyspace_with("counters", &counters()).unwrap();
            let both = keyspace.iter().chain(db.iter());
            both.collect::<Result<Vec<_>, _>>().unwrap()
        };
        let stride = usize::try_from(sim.ops() / 80 + 1).unwrap();
        for op in (0..=sim.ops()).rev().step_by(stride) {
            let _context = PanicContext(|| format!("{engine}, killed after operation {op}"));
            let killed = sim.process_kill(op);
            let target = SimDisk::new();
            let from = Disk::simulated(&killed);
            match gabion::repair_disk(&from, &Disk::simulated(&target)) {
                Ok(report) => assert!(report.lost.is_empty(), "{report:?}"),
                // There was no store yet.
                Err(error) => {
                    assert!(op < 20, "{error}");
                    continue;
                }
            }
            assert_eq!(pairs(&target), pairs(&killed));
        }
    }
}

/// Writers that merge into the same few keys, alone and in batches, lose nothing to each other.
#[test]
fn merges_of_many_threads_add_up() {
    for engine in engines_on_disks() {
        for side_by_side in [false, true] {
            let mut options = small_options().engine(engine).background_threads(2);
            options.tuning.concurrent_writers = side_by_side;
            let sim = SimDisk::new();
            let db = Db::open_on(Disk::simulated(&sim), options.clone()).unwrap();
            let keyspace = db.keyspace_with("counters", &counters()).unwrap();
            let (threads, each) = (4, setting("GABION_WRITES", 3_000));
            std::thread::scope(|scope| {
                for thread in 0..threads {
                    let (db, keyspace) = (&db, &keyspace);
                    scope.spawn(move || {
                        let mut random = SeededRng::new(thread);
                        for at in 0..each {
                            let key = [random.below(3).to_le_bytes()[0]];
                            let one = 1i64.to_le_bytes();
                            if at % 3 > 0 {
                                keyspace.merge(key, one).unwrap();
                                continue;
                            }
                            let mut batch = WriteBatch::new();
                            batch.merge(keyspace, key, 3i64.to_le_bytes()).unwrap();
                            batch.merge(keyspace, key, (-2i64).to_le_bytes()).unwrap();
                            db.write(&batch).unwrap();
                        }
                    });
                }
            });
            let sum = |db: &Db| -> i64 {
                let keyspace = db.keyspace("counters").unwrap();
                let pairs = keyspace
                    .iter()
                    .map(|pair| pair.map(|(_, value)| number(Some(value))));
                pairs.map(|own| own.unwrap().unwrap()).sum()
            };
            let expected = threads.cast_signed() * each.cast_signed();
            assert_eq!(sum(&db), expected, "{engine}, side by side {side_by_side}");
            db.close().unwrap();
            let db = Db::open_on(Disk::simulated(&sim), options).unwrap();
            assert_eq!(sum(&db), expected, "{engine}, reopened");
            db.close().unwrap();
        }
    }
}

/// A merge covers what its MemTable has of its key. So a batch that fills the MemTable must not
/// freeze it before the merge comes: a table would have what is covered, and fold its base into it,
/// and the merge would find none.
#[test]
fn no_memtable_is_frozen_within_a_batch_that_merges() {
    let options = small_options();
    let mut sim = SimDisk::recording();
    let open = |sim: &SimDisk| {
        let db = Db::open_on(Disk::simulated(sim), options.clone()).unwrap();
        let keyspace = db.keyspace_with("counters", &counters()).unwrap();
        (db, keyspace)
    };
    let (mut db, mut keyspace) = open(&sim);
    let (mut random, mut twin) = (SeededRng::new(base_seed()), [0; 6]);
    // In the bucket that the values are in, too.
    let key = |key: usize| format!("{:04}", key * 40);
    for (number, sum) in twin.iter_mut().enumerate() {
        keyspace.put(key(number), 1_000_i64.to_le_bytes()).unwrap();
        *sum = 1_000;
    }
    for round in 0..setting("GABION_MERGE_BATCHES", 60) {
        for _ in 0..4 {
            let number = random.index(twin.len());
            keyspace.merge(key(number), 1_i64.to_le_bytes()).unwrap();
            twin[number] += 1;
        }
        let mut batch = WriteBatch::new();
        for _ in 0..1_200 {
            let other = format!("{:04} {}", random.below(240), random.below(9));
            batch.put(&keyspace, other, [7; 8]).unwrap();
            if random.one_in(100) {
                let number = random.index(twin.len());
                batch
                    .merge(&keyspace, key(number), 10_i64.to_le_bytes())
                    .unwrap();
                twin[number] += 10;
            }
        }
        db.write(&batch).unwrap();
        let _context = PanicContext(|| format!("round {round}"));
        if random.one_in(3) {
            drop((db, keyspace));
            sim = sim.process_kill(sim.ops());
            (db, keyspace) = open(&sim);
        }
        for (number, sum) in twin.iter().enumerate() {
            let found = keyspace.get(key(number)).unwrap();
            assert_eq!(self::number(found), Some(*sum), "key {number}");
        }
    }
}

/// Fails for texts with a `x`.
struct Fails;

impl Merge for Fails {
    fn name(&self) -> &str {
        "fails"
    }

    fn full_merge(
        &self,
        _key: &[u8],
        base: Option<&[u8]>,
        operands: &[&[u8]],
    ) -> Result<Option<Vec<u8>>, MergeError> {
        let text = [&[base.unwrap_or_default()], operands].concat().concat();
        match text.contains(&b'x') {
            true => Err("there is an x".into()),
            false => Ok(Some(text)),
        }
    }
}

/// What an operator cannot merge is an error of its key, wherever the operands are, and of nothing
/// else; no operand is lost by it.
#[test]
fn an_operator_that_fails_fails_one_key() {
    let sim = SimDisk::new();
    let options = small_options();
    let open = || Db::open_on(Disk::simulated(&sim), options.clone()).unwrap();
    let own = KeyspaceOptions::default().merge(Fails);
    let db = open();
    let keyspace = db.keyspace_with("own", &own).unwrap();
    for key in ["a", "b", "c"] {
        keyspace.put(key, "1").unwrap();
    }
    let failed = |error: Error| {
        let said = error.to_string();
        assert!(
            said.contains("\"fails\"") && said.contains("there is an x"),
            "{said}"
        );
    };
    for round in 0..4 {
        keyspace.merge("b", format!("x{round}")).unwrap();
        failed(keyspace.get("b").unwrap_err());
        failed(keyspace.multi_get(&["a", "b"]).unwrap_err());
        failed(keyspace.iter().find_map(Result::err).unwrap());
        failed(keyspace.iter().rev().find_map(Result::err).unwrap());
        failed(
            keyspace
                .update("b", |old| old.map(<[u8]>::to_vec))
                .unwrap_err(),
        );
        let mut transaction = db.begin().unwrap();
        failed(transaction.get(&keyspace, "b").unwrap_err());
        transaction.merge(&keyspace, "a", "2").unwrap();
        transaction.commit().unwrap();
        assert_eq!(keyspace.get("c").unwrap().as_deref(), Some(&b"1"[..]));
        match round {
            0 => db.flush().unwrap(),
            1 => keyspace.compact::<&[u8]>(..).unwrap(),
            _ => {}
        }
    }
    db.close().unwrap();
    let db = open();
    let said = db.keyspace("own").unwrap_err().to_string();
    assert!(
        said.contains("\"fails\"") && said.contains("none"),
        "{said}"
    );
    let other = KeyspaceOptions::default().merge(Append::new(""));
    let said = db.keyspace_with("own", &other).unwrap_err().to_string();
    assert!(
        said.contains("\"fails\"") && said.contains("\"append:\""),
        "{said}"
    );
    // Another operator of the same name, which can: all operands are there.
    struct Can;
    impl Merge for Can {
        fn name(&self) -> &str {
            "fails"
        }

        fn partial_merge(&self, _: &[u8], left: &[u8], right: &[u8]) -> Option<Vec<u8>> {
            Some([left, right].concat())
        }
    }
    let can = KeyspaceOptions::default().merge(Can);
    let keyspace = db.keyspace_with("own", &can).unwrap();
    assert_eq!(
        keyspace.get("b").unwrap().as_deref(),
        Some(&b"1x0x1x2x3"[..])
    );
    assert_eq!(keyspace.get("a").unwrap().as_deref(), Some(&b"12222"[..]));
    keyspace.compact::<&[u8]>(..).unwrap();
    assert_eq!(
        keyspace.get("b").unwrap().as_deref(),
        Some(&b"1x0x1x2x3"[..])
    );
    db.close().unwrap();
}

#[test]
fn what_cannot_be_merged_is_refused() {
    for engine in engines_on_disks() {
        let db = Db::open_on(
            Disk::simulated(&SimDisk::new()),
            small_options().engine(engine),
        )
        .unwrap();
        let plain = db.keyspace("plain").unwrap();
        let refused = plain.merge("key", "1").unwrap_err();
        assert!(
            matches!(&refused, Error::NoMergeOperator { .. }),
            "{refused}"
        );
        let keyspace = db.keyspace_with("counters", &counters()).unwrap();
        let error = keyspace.merge("key", "text").unwrap_err();
        assert!(matches!(&error, Error::OperandRefused { .. }), "{error}");
        assert!(error.to_string().contains("4 bytes"), "{error}");
        assert_eq!(keyspace.get("key").unwrap(), None);
        let mut batch = WriteBatch::new();
        assert!(batch.merge(&keyspace, "key", "text").is_err() && batch.is_empty());
        let mut transaction = db.begin().unwrap();
        assert!(transaction.merge(&keyspace, "key", "text").is_err());
        assert!(transaction.merge(&plain, "key", "text").is_err());
        transaction.commit().unwrap();
        assert_eq!(keyspace.options(), counters());
        // An operator that is added later finds what was put before.
        plain.put("key", 40i64.to_le_bytes()).unwrap();
        db.flush().unwrap();
        let plain = db.keyspace_with("plain", &counters()).unwrap();
        plain.merge("key", 2i64.to_le_bytes()).unwrap();
        assert_eq!(number(plain.get("key").unwrap()), Some(42));
        db.close().unwrap();
    }
}

/// A repair writes what only the log has anew, under other numbers, by which a merge says what it
/// covers.
#[test]
fn what_was_merged_survives_a_repair_and_a_checkpoint() {
    for engine in engines_on_disks() {
        let sim = SimDisk::new();
        let mut options = small_options().engine(engine).log_bytes_max(1 << 20);
        options.tuning.memtable_budget_bytes = Some(1 << 20);
        let db = Db::open_on(Disk::simulated(&sim), options.clone()).unwrap();
        let keyspace = db.keyspace_with("counters", &counters()).unwrap();
        let (mut random, mut twin) = (SeededRng::new(base_seed()), [0; 20]);
        for round in 0..600 {
            let key = random.index(twin.len());
            let by = random.below(100).cast_signed();
            keyspace
                .merge(format!("{key:02}"), by.to_le_bytes())
                .unwrap();
            twin[key] += by;
            if round == 300 {
                db.flush().unwrap();
            }
        }
        let expect = |sim: &SimDisk, what: &str| {
            let db = Db::open_on(Disk::simulated(sim), options.clone()).unwrap();
            let keyspace = db.keyspace("counters").unwrap();
            for (key, sum) in twin.iter().enumerate() {
                let found = keyspace.get(format!("{key:02}")).unwrap();
                assert_eq!(number(found), Some(*sum), "{engine}, {what}, {key}");
            }
            db.close().unwrap();
        };
        let killed = sim.process_kill(sim.ops());
        let repaired = SimDisk::new();
        let targets = (Disk::simulated(&killed), Disk::simulated(&repaired));
        let report = gabion::repair_disk(&targets.0, &targets.1).unwrap();
        assert!(report.problems.is_empty(), "{:?}", report.problems);
        expect(&repaired, "repaired");
        let copied = SimDisk::new();
        db.checkpoint_on(&Disk::simulated(&copied)).unwrap();
        expect(&copied, "copied");
        db.close().unwrap();
        expect(&sim, "closed");
    }
}

/// Of a batch with many operands of one key each wrote all that came before it: 9,000 appends of a
/// hundred bytes were a record of gigabytes.
#[test]
fn a_batch_writes_a_key_that_it_merges_into_once() {
    for engine in engines_on_disks() {
        let db = Db::open_on(
            Disk::simulated(&SimDisk::new()),
            small_options().engine(engine),
        )
        .unwrap();
        let options = KeyspaceOptions::default().merge(Append::new(","));
        let keyspace = db.keyspace_with("lists", &options).unwrap();
        let before = db.stats().written.log;
        let mut batch = WriteBatch::new();
        for number in 0..3_000 {
            batch
                .merge(&keyspace, "list", format!("{number:0>100}"))
                .unwrap();
            batch.merge(&keyspace, "other", "a").unwrap();
            match number {
                1_000 => batch.delete(&keyspace, "other").unwrap(),
                2_000 => batch.put(&keyspace, "other", "b").unwrap(),
                2_500 => batch.delete_range(&keyspace, "m".."n").unwrap(),
                _ => {}
            }
        }
        db.write(&batch).unwrap();
        let logged = db.stats().written.log - before;
        assert!(logged < 3 * 3_000 * 101, "{logged} bytes of the log");
        let list = keyspace.get("list").unwrap().unwrap();
        assert_eq!(list.split(|byte| *byte == b',').count(), 3_000);
        let other = keyspace.get("other").unwrap().unwrap();
        assert_eq!(&*other, format!("b{}", ",a".repeat(999)).as_bytes());
        let mut batch = WriteBatch::new();
        batch.merge(&keyspace, "list", "x").unwrap();
        batch.delete_range(&keyspace, "a".."z").unwrap();
        batch.merge(&keyspace, "list", "y").unwrap();
        batch.merge(&keyspace, "list", "z").unwrap();
        db.write(&batch).unwrap();
        assert_eq!(keyspace.get("list").unwrap().as_deref(), Some(&b"y,z"[..]));
        assert_eq!(keyspace.get("other").unwrap(), None);
        db.close().unwrap();
    }
}

/// A transaction that merges into what it deleted lost the default expiry; and one that only merges
/// into a key had conflicts with others that do the same.
#[test]
fn a_transaction_that_merges_is_as_the_writes_that_it_stands_for() {
    for engine in engines_on_disks() {
        let db = Db::open_on(
            Disk::simulated(&SimDisk::new()),
            small_options().engine(engine),
        )
        .unwrap();
        let expiry = std::time::Duration::from_secs(1_000);
        let options = counters().default_expiry(expiry);
        let keyspace = db.keyspace_with("counters", &options).unwrap();
        let one = 1i64.to_le_bytes();
        for isolation in [gabion::Isolation::Serializable, gabion::Isolation::Snapshot] {
            let options = gabion::TransactionOptions::default().isolation(isolation);
            let mut transaction = db.begin_with(options).unwrap();
            transaction.get(&keyspace, "read").unwrap();
            transaction.delete(&keyspace, "deleted").unwrap();
            transaction.merge(&keyspace, "deleted", one).unwrap();
            transaction.merge(&keyspace, "merged", one).unwrap();
            keyspace.merge("merged", one).unwrap();
            transaction.commit().unwrap();
            assert!(
                keyspace.expires_at("deleted").unwrap().is_some(),
                "{engine}"
            );
        }
        assert_eq!(number(keyspace.get("merged").unwrap()), Some(4));
        db.close().unwrap();
    }
}
