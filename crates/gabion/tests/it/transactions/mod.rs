//! Transactions: what they see, what a commit refuses, and what is left of one that did not come to
//! its end.

mod histories;
mod iteration;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use gabion::{
    Clock, Db, Durability, Engine, Error, Isolation, Keyspace, Options, Transaction,
    TransactionOptions, WriteBatch,
};
use gabion_media::{Disk, SimDisk};

use crate::support::{roomy_options, small_options, small_tuning};

/// The engines that have transactions.
pub(super) fn engines() -> impl Iterator<Item = Engine> {
    let all = Engine::ALL.iter().copied();
    all.filter(|engine| engine.capabilities().transactions)
}

pub(super) fn open(engine: Engine, options: Options) -> Db {
    let disk = Disk::simulated(&SimDisk::new());
    Db::open_on(disk, options.engine(engine)).unwrap()
}

fn is_conflict(result: &gabion::Result<()>, on: &[u8]) -> bool {
    matches!(result, Err(Error::Conflict { key, .. }) if key == on)
}

fn value(db: &Db, key: &str) -> Option<String> {
    let value = db.get(key).unwrap();
    value.map(|value| String::from_utf8(value.to_vec()).unwrap())
}

/// Something that others do between the reads of a transaction and its commit.
type Meanwhile = fn(&Db, &Keyspace);

/// What a transaction has read before.
type Reads = fn(&Transaction, &Keyspace);

#[test]
fn a_transaction_reads_one_moment_and_its_own_writes() {
    for engine in engines() {
        let db = open(engine, small_options());
        let keyspace = db.default_keyspace().clone();
        db.put("a", "1").unwrap();
        db.put("b", "1").unwrap();
        let mut transaction = db.begin().unwrap();
        db.put("a", "2").unwrap();
        let get = |transaction: &Transaction, key: &str| {
            let value = transaction.get(&keyspace, key).unwrap();
            value.map(|value| value.to_vec())
        };
        assert_eq!(get(&transaction, "a").as_deref(), Some(&b"1"[..]));
        transaction.put(&keyspace, "a", "own").unwrap();
        transaction.delete(&keyspace, "b").unwrap();
        assert_eq!(get(&transaction, "a").as_deref(), Some(&b"own"[..]));
        assert_eq!(get(&transaction, "b"), None);
        assert!(!transaction.contains(&keyspace, "b").unwrap());
        transaction.delete_range(&keyspace, "a"..).unwrap();
        assert_eq!(get(&transaction, "a"), None);
        transaction.put(&keyspace, "c", "own").unwrap();
        let all = transaction.multi_get(&keyspace, &["a", "b", "c"]).unwrap();
        let is_there: Vec<_> = all.iter().map(Option::is_some).collect();
        assert_eq!(is_there, [false, false, true]);
        // Nobody else sees any of it.
        assert_eq!(
            (value(&db, "a").as_deref(), value(&db, "c")),
            (Some("2"), None)
        );
        drop(transaction);
        assert_eq!(
            (value(&db, "b").as_deref(), value(&db, "c")),
            (Some("1"), None)
        );
        let stats = db.stats();
        assert_eq!((stats.transactions, stats.snapshots), (0, 0), "{engine}");
    }
}

/// Each of these was read, and each of those changes it: at every age of what was written.
#[test]
fn a_commit_is_refused_if_what_was_read_has_changed() {
    let reads: [(&str, Reads); 6] = [
        ("key", |transaction, keyspace| {
            assert!(transaction.get(keyspace, "m").unwrap().is_some());
        }),
        ("keys", |transaction, keyspace| {
            transaction.multi_get(keyspace, &["x", "m", "y"]).unwrap();
        }),
        ("range", |transaction, keyspace| {
            assert_eq!(transaction.range(keyspace, "k".."o").count(), 1);
        }),
        ("range from the end", |transaction, keyspace| {
            assert_eq!(transaction.range(keyspace, "k".."o").rev().count(), 1);
        }),
        ("first of all", |transaction, keyspace| {
            let first = transaction.iter(keyspace).next().unwrap().unwrap();
            assert_eq!(&*first.0, b"m");
        }),
        ("prefix", |transaction, keyspace| {
            assert_eq!(transaction.prefix(keyspace, "m").count(), 1);
        }),
    ];
    let changes: [(&str, Meanwhile); 6] = [
        ("put", |_, keyspace| keyspace.put("m", "other").unwrap()),
        ("delete", |_, keyspace| keyspace.delete("m").unwrap()),
        ("delete of a range", |_, keyspace| {
            keyspace.delete_range("a".."n").unwrap();
        }),
        ("batch", |db, keyspace| {
            let mut batch = WriteBatch::new();
            batch.put(keyspace, "a long way off", "x").unwrap();
            batch.put(keyspace, "m", "other").unwrap();
            db.write(batch).unwrap();
        }),
        ("transaction", |db, keyspace| {
            let mut other = db.begin().unwrap();
            other.put(keyspace, "m", "other").unwrap();
            other.commit_with(Durability::Sync).unwrap();
        }),
        ("update", |_, keyspace| {
            keyspace.update("m", |_| Some("other")).unwrap();
        }),
    ];
    let ages: [(&str, Meanwhile); 4] = [
        ("just now", |_, _| {}),
        ("flushed", |db, _| db.flush().unwrap()),
        ("compacted", |db, keyspace| {
            db.flush().unwrap();
            keyspace.compact::<&str>(..).unwrap();
        }),
        ("long ago", |db, keyspace| {
            for number in 0..3000_u32 {
                keyspace.put(format!("z{number:06}"), [7; 40]).unwrap();
            }
            db.wait_idle().unwrap();
        }),
    ];
    for engine in engines() {
        for (read, reads) in reads {
            for (change, changes) in changes {
                for (age, ages) in ages {
                    let what = format!("{engine}, {read}, {change}, {age}");
                    let db = open(engine, small_options());
                    let keyspace = db.keyspace("keyspace").unwrap();
                    keyspace.put("m", "first").unwrap();
                    let mut transaction = db.begin().unwrap();
                    reads(&transaction, &keyspace);
                    transaction.put(&keyspace, "own", "value").unwrap();
                    changes(&db, &keyspace);
                    ages(&db, &keyspace);
                    let refused = transaction.commit();
                    assert!(
                        matches!(refused, Err(Error::Conflict { .. })),
                        "{what}: {refused:?}"
                    );
                    assert_eq!(keyspace.get("own").unwrap(), None, "{what}");
                    // The same once more, with nothing in between.
                    keyspace.put("m", "again").unwrap();
                    keyspace.delete_range("a".."m").unwrap();
                    let mut transaction = db.begin().unwrap();
                    reads(&transaction, &keyspace);
                    transaction.put(&keyspace, "own", "value").unwrap();
                    ages(&db, &keyspace);
                    let committed = transaction.commit();
                    match read {
                        // What comes is in the range.
                        _ if age == "long ago" && read == "all" => drop(committed),
                        _ => committed.unwrap_or_else(|error| panic!("{what}: {error}")),
                    }
                    assert!(keyspace.get("own").unwrap().is_some(), "{what}");
                }
            }
        }
    }
}

#[test]
fn what_was_looked_for_in_vain_counts_as_read() {
    for engine in engines() {
        let db = open(engine, small_options());
        let keyspace = db.default_keyspace().clone();
        let commit = |reads: Reads, changes: Meanwhile| {
            let mut transaction = db.begin().unwrap();
            reads(&transaction, &keyspace);
            transaction.put(&keyspace, "own", "value").unwrap();
            changes(&db, &keyspace);
            transaction.commit()
        };
        let absent: Reads = |transaction, keyspace| {
            assert!(transaction.get(keyspace, "absent").unwrap().is_none());
        };
        let nothing: Reads = |transaction, keyspace| {
            assert!(transaction.range(keyspace, "a".."c").next().is_none());
        };
        let appears: Meanwhile = |_, keyspace| keyspace.put("absent", "now").unwrap();
        assert!(is_conflict(&commit(absent, appears), b"absent"));
        db.delete("absent").unwrap();
        assert!(is_conflict(&commit(nothing, appears), b"absent"));
        db.delete("absent").unwrap();
        // What is beside it does not.
        commit(nothing, |_, keyspace| keyspace.put("c", "beside").unwrap()).unwrap();
        commit(absent, |_, keyspace| keyspace.put("absent2", "x").unwrap()).unwrap();
    }
}

/// An iterator that stops counts what it has passed, and nothing behind it.
#[test]
fn a_range_counts_as_far_as_it_was_read() {
    for engine in engines() {
        let db = open(engine, small_options());
        let keyspace = db.default_keyspace().clone();
        for key in ["b", "d", "f", "h"] {
            db.put(key, "1").unwrap();
        }
        let commit = |reads: Reads, key: &str| {
            let mut transaction = db.begin().unwrap();
            reads(&transaction, &keyspace);
            transaction.put(&keyspace, "own", "value").unwrap();
            db.put(key, "2").unwrap();
            let committed = transaction.commit();
            if !["b", "d", "f", "h"].contains(&key) {
                db.delete(key).unwrap();
            }
            committed
        };
        let two: Reads = |transaction, keyspace| {
            assert_eq!(transaction.range(keyspace, "a".."i").take(2).count(), 2);
        };
        let last: Reads = |transaction, keyspace| {
            assert!(transaction.range(keyspace, "a".."i").next_back().is_some());
        };
        // Forgotten, so that it cannot tell at its end.
        let forgotten: Reads = |transaction, keyspace| {
            let mut iter = transaction.range(keyspace, "a".."i");
            assert!(iter.nth(1).is_some() && iter.next_back().is_some());
            std::mem::forget(iter);
        };
        for key in ["a", "b", "c", "d"] {
            assert!(is_conflict(&commit(two, key), key.as_bytes()), "{key}");
            assert!(
                is_conflict(&commit(forgotten, key), key.as_bytes()),
                "{key}"
            );
            commit(last, key).unwrap();
        }
        for key in ["h", "h5"] {
            commit(two, key).unwrap();
            assert!(is_conflict(&commit(last, key), key.as_bytes()), "{key}");
            assert!(
                is_conflict(&commit(forgotten, key), key.as_bytes()),
                "{key}"
            );
        }
        for key in ["e", "f", "g"] {
            commit(two, key).unwrap();
            commit(last, key).unwrap();
            commit(forgotten, key).unwrap();
        }
    }
}

#[test]
fn who_only_writes_or_only_reads_never_conflicts() {
    for engine in engines() {
        let db = open(engine, small_options());
        let keyspace = db.default_keyspace().clone();
        for isolation in [Isolation::Serializable, Isolation::Snapshot] {
            let options = TransactionOptions::default().isolation(isolation);
            let mut writes = db.begin_with(options).unwrap();
            writes.put(&keyspace, "key", "mine").unwrap();
            writes.delete_range(&keyspace, "x"..).unwrap();
            // It reads what it has written itself.
            assert!(writes.get(&keyspace, "key").unwrap().is_some());
            let reads = db.begin_with(options).unwrap();
            assert_eq!(reads.get(&keyspace, "other").unwrap(), None);
            db.put("key", "theirs").unwrap();
            db.put("other", "theirs").unwrap();
            writes.commit().unwrap();
            reads.commit().unwrap();
            assert_eq!(value(&db, "key").as_deref(), Some("mine"));
            db.delete("other").unwrap();
        }
    }
}

/// Two read what the other writes: there is no order of the two in which both see what they saw.
#[test]
fn write_skew_is_allowed_to_snapshots_alone() {
    for engine in engines() {
        for (isolation, for_update) in [
            (Isolation::Serializable, false),
            (Isolation::Snapshot, false),
            (Isolation::Snapshot, true),
        ] {
            let db = open(engine, small_options());
            let keyspace = db.default_keyspace().clone();
            db.put("a", "1").unwrap();
            db.put("b", "1").unwrap();
            let options = TransactionOptions::default().isolation(isolation);
            let begin = |read: &str, write: &str| {
                let mut transaction = db.begin_with(options).unwrap();
                let found = match for_update {
                    true => transaction.get_for_update(&keyspace, read),
                    false => transaction.get(&keyspace, read),
                };
                assert_eq!(found.unwrap().as_deref(), Some(&b"1"[..]));
                transaction.put(&keyspace, write, "0").unwrap();
                transaction
            };
            let (first, second) = (begin("a", "b"), begin("b", "a"));
            first.commit().unwrap();
            let second = second.commit();
            match isolation == Isolation::Snapshot && !for_update {
                true => second.unwrap(),
                false => assert!(is_conflict(&second, b"b"), "{second:?}"),
            }
        }
    }
}

/// At both levels no update is lost.
#[test]
fn who_wrote_first_wins() {
    for engine in engines() {
        for isolation in [Isolation::Serializable, Isolation::Snapshot] {
            let db = open(engine, small_options());
            let keyspace = db.default_keyspace().clone();
            let options = TransactionOptions::default().isolation(isolation);
            let begin = || {
                let transaction = db.begin_with(options).unwrap();
                transaction.get(&keyspace, "key").unwrap();
                transaction
            };
            let (mut first, mut second, mut third) = (begin(), begin(), begin());
            first.put(&keyspace, "key", "1").unwrap();
            second.put(&keyspace, "key", "2").unwrap();
            third.delete_range(&keyspace, "j".."l").unwrap();
            first.commit().unwrap();
            assert!(is_conflict(&second.commit(), b"key"));
            assert!(is_conflict(&third.commit(), b"key"));
            assert_eq!(value(&db, "key").as_deref(), Some("1"));
        }
    }
}

#[test]
fn a_savepoint_brings_back_writes_and_forgets_reads() {
    for engine in engines() {
        let db = open(engine, small_options());
        let keyspace = db.default_keyspace().clone();
        db.put("stored", "1").unwrap();
        let mut transaction = db.begin().unwrap();
        transaction.put(&keyspace, "a", "1").unwrap();
        let first = transaction.savepoint();
        transaction.put(&keyspace, "a", "2").unwrap();
        transaction.put(&keyspace, "b", "2").unwrap();
        let second = transaction.savepoint();
        transaction.delete_range::<&str>(&keyspace, ..).unwrap();
        assert!(transaction.get(&keyspace, "stored").unwrap().is_none());
        transaction.rollback_to(second).unwrap();
        assert_eq!(
            transaction.get(&keyspace, "a").unwrap().as_deref(),
            Some(&b"2"[..])
        );
        assert_eq!(transaction.iter(&keyspace).count(), 3);
        assert!(transaction.get(&keyspace, "read").unwrap().is_none());
        transaction.rollback_to(first).unwrap();
        assert_eq!(
            transaction.get(&keyspace, "a").unwrap().as_deref(),
            Some(&b"1"[..])
        );
        assert!(matches!(
            transaction.rollback_to(second),
            Err(Error::NoSuchSavepoint)
        ));
        let mut other = db.begin().unwrap();
        let foreign = other.savepoint();
        assert!(matches!(
            transaction.rollback_to(foreign),
            Err(Error::NoSuchSavepoint)
        ));
        // One that has ended, whose memory another one may have by now.
        drop(other);
        let mut later = db.begin().unwrap();
        later.savepoint();
        assert!(matches!(
            later.rollback_to(foreign),
            Err(Error::NoSuchSavepoint)
        ));
        transaction.rollback_to(first).unwrap();
        // What was read since is as good as not read.
        for key in ["read", "stored", "b"] {
            db.put(key, "changed").unwrap();
        }
        transaction.put(&keyspace, "c", "3").unwrap();
        transaction.commit().unwrap();
        let found = ["a", "b", "c"].map(|key| value(&db, key));
        let found: Vec<_> = found.iter().map(Option::as_deref).collect();
        assert_eq!(found, [Some("1"), Some("changed"), Some("3")]);
    }
}

#[test]
fn a_transaction_over_its_bound_is_refused_what_it_asks() {
    for engine in engines() {
        let db = open(engine, roomy_options());
        let keyspace = db.default_keyspace().clone();
        let options = TransactionOptions::default().bytes_max(200 << 10);
        let mut transaction = db.begin_with(options).unwrap();
        let before = db.stats().memory.tables;
        let refused =
            |error: &Error| matches!(error, Error::Limit { limit, .. } if *limit == 200 << 10);
        let mut written = 0_u32;
        let error = loop {
            match transaction.put(&keyspace, written.to_le_bytes(), [7; 100]) {
                Ok(()) => written += 1,
                Err(error) => break error,
            }
        };
        assert!(refused(&error), "{error}");
        assert!((500..1500).contains(&written), "{written}");
        let held = db.stats().memory.tables - before;
        assert!(
            (128 << 10..=200 << 10).contains(&held),
            "{engine}: {held} bytes are counted"
        );
        assert!(refused(
            &transaction.get(&keyspace, vec![1; 200]).unwrap_err()
        ));
        let ranges = (0..10_000).map(|_| transaction.iter(&keyspace).next());
        let error = ranges.flatten().find_map(Result::err);
        assert!(error.as_ref().is_some_and(refused), "{error:?}");
        assert_eq!(
            transaction
                .get(&keyspace, 0_u32.to_le_bytes())
                .unwrap()
                .map(|v| v.len()),
            Some(100)
        );
        transaction.commit().unwrap();
        assert_eq!(db.iter().count(), written as usize);
        // What reads of tables need came meanwhile.
        let left = db.stats().memory.tables - before;
        assert!(left < 100 << 10, "{engine}: {left} bytes are counted");
    }
}

#[test]
fn a_transaction_that_is_open_for_too_long_is_ended() {
    for engine in engines() {
        let clock = Clock::manual();
        let options = small_options()
            .background_threads(1)
            .tuning(small_tuning().clock(clock.clone()))
            .transaction_age_max(Duration::from_secs(5));
        let db = open(engine, options);
        let keyspace = db.default_keyspace().clone();
        db.put("key", "1").unwrap();
        let mut old = db.begin().unwrap();
        old.put(&keyspace, "own", "1").unwrap();
        clock.advance(Duration::from_secs(4));
        let young = db.begin().unwrap();
        assert!(old.get(&keyspace, "key").unwrap().is_some());
        assert_eq!(db.stats().transactions, 2);
        assert_eq!(db.stats().transaction_age_ns_max, 4_000_000_000);
        clock.advance(Duration::from_secs(2));
        // The background looks twice a second.
        while old.get(&keyspace, "key").is_ok() {
            std::thread::yield_now();
        }
        let too_old = |error: Error| matches!(error, Error::TransactionTooOld);
        assert!(too_old(old.put(&keyspace, "key", "2").unwrap_err()));
        assert!(too_old(old.iter(&keyspace).next().unwrap().unwrap_err()));
        assert!(too_old(old.commit().unwrap_err()));
        assert!(young.get(&keyspace, "key").unwrap().is_some());
        assert_eq!(value(&db, "own"), None);
        drop(young);
        assert_eq!(db.stats().snapshots, 0, "{engine}");
    }
}

#[test]
fn what_a_transaction_cannot_do_is_an_error_that_says_so() {
    for engine in engines() {
        let (db, other) = (open(engine, small_options()), open(engine, small_options()));
        let (own, foreign) = (db.default_keyspace(), other.default_keyspace());
        let mut transaction = db.begin().unwrap();
        let errors = [
            transaction.get(foreign, "key").unwrap_err(),
            transaction.put(foreign, "key", "value").unwrap_err(),
            transaction.delete_range::<&str>(foreign, ..).unwrap_err(),
            transaction.iter(foreign).next().unwrap().unwrap_err(),
        ];
        for error in errors {
            assert!(matches!(error, Error::ForeignKeyspace { .. }), "{error}");
        }
        let long = vec![1; 70_000];
        assert!(matches!(
            transaction.put(own, &long, ""),
            Err(Error::Limit { .. })
        ));
        transaction.rollback();
        // A keyspace that was dropped takes its readers and its writers along.
        for reads in [false, true] {
            let drafts = db.keyspace("drafts").unwrap();
            let mut transaction = db.begin().unwrap();
            match reads {
                true => drop(transaction.get(&drafts, "key").unwrap()),
                false => transaction.put(&drafts, "key", "value").unwrap(),
            }
            transaction.put(own, "own", "value").unwrap();
            db.drop_keyspace("drafts").unwrap();
            assert!(matches!(transaction.commit(), Err(Error::KeyspaceDropped)));
            assert_eq!(value(&db, "own"), None);
        }
        let mut late = db.begin().unwrap();
        late.put(own, "own", "value").unwrap();
        db.clone().close().unwrap();
        assert!(matches!(late.commit(), Err(Error::Closed)));
        assert!(matches!(db.begin(), Err(Error::Closed)));
    }
    for engine in [Engine::Scmkv, Engine::Sptree] {
        let dir = tempfile::tempdir().unwrap();
        let db = small_options().engine(engine).open(dir.path()).unwrap();
        let refused = db.begin().map(drop);
        assert!(
            matches!(refused, Err(Error::Unsupported { .. })),
            "{refused:?}"
        );
    }
}

/// Money is moved between accounts by several threads, some of which also add all of it up; a
/// thread writes beside them without transactions.
#[test]
fn the_sum_of_all_accounts_stays_what_it_was() {
    const ACCOUNTS: u64 = 20;
    for engine in engines() {
        let db = open(engine, small_options().background_threads(2));
        let accounts = db.keyspace("accounts").unwrap();
        let balance = |value: Option<&[u8]>| {
            value.map_or(0, |bytes| u64::from_le_bytes(bytes.try_into().unwrap()))
        };
        for account in 0..ACCOUNTS {
            accounts
                .put(account.to_le_bytes(), 100_u64.to_le_bytes())
                .unwrap();
        }
        let conflicts = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for thread in 0..3_u64 {
                let (db, accounts, conflicts) = (&db, &accounts, &conflicts);
                scope.spawn(move || {
                    for round in 0..400_u64 {
                        let from = (thread * 7 + round * 3) % ACCOUNTS;
                        let to = (from + 1 + round % 5) % ACCOUNTS;
                        let mut attempts = 0;
                        db.transact(|transaction| {
                            attempts += 1;
                            let read = |key: u64| -> gabion::Result<u64> {
                                let value = transaction.get(accounts, key.to_le_bytes())?;
                                Ok(balance(value.as_deref()))
                            };
                            let (has, gets) = (read(from)?, read(to)?);
                            let amount = has.min(round % 30);
                            transaction.put(
                                accounts,
                                from.to_le_bytes(),
                                (has - amount).to_le_bytes(),
                            )?;
                            transaction.put(
                                accounts,
                                to.to_le_bytes(),
                                (gets + amount).to_le_bytes(),
                            )?;
                            if round % 10 == 0 {
                                let all: gabion::Result<Vec<_>> =
                                    transaction.iter(accounts).collect();
                                let sum: u64 =
                                    all?.iter().map(|(_, value)| balance(Some(value))).sum();
                                assert_eq!(sum, ACCOUNTS * 100);
                            }
                            Ok::<_, Error>(())
                        })
                        .unwrap();
                        // ORDER: Relaxed; a count.
                        conflicts.fetch_add(attempts - 1, Ordering::Relaxed);
                    }
                });
            }
            scope.spawn(|| {
                for number in 0..2000_u32 {
                    db.put(number.to_le_bytes(), [7; 60]).unwrap();
                }
            });
        });
        let all: gabion::Result<BTreeMap<_, _>> = accounts.iter().collect();
        let sum: u64 = all
            .unwrap()
            .values()
            .map(|value| balance(Some(value)))
            .sum();
        assert_eq!(sum, ACCOUNTS * 100);
        println!("transactions: {engine}, {conflicts:?} conflicts");
        db.close().unwrap();
    }
}

/// An update is one step, with every engine, beside plain writes and others like it.
#[test]
fn no_update_is_lost() {
    for engine in Engine::ALL.iter().copied() {
        let dir = tempfile::tempdir().unwrap();
        let db = small_options()
            .engine(engine)
            .background_threads(1)
            .open(dir.path())
            .unwrap();
        let counters = &db.default_keyspace().clone();
        let add = |value: Option<&[u8]>| {
            let count = value.map_or(0, |bytes| u64::from_le_bytes(bytes.try_into().unwrap()));
            Some((count + 1).to_le_bytes())
        };
        std::thread::scope(|scope| {
            for thread in 0..3_u8 {
                scope.spawn(move || {
                    for round in 0..300_u32 {
                        counters.update("shared", add).unwrap();
                        counters
                            .put([thread, (round % 200) as u8], "beside")
                            .unwrap();
                        let durability = match round % 100 {
                            0 if engine.capabilities().transactions => Durability::Sync,
                            _ => Durability::Buffered,
                        };
                        counters.update_with([thread], add, durability).unwrap();
                    }
                });
            }
        });
        let count = |key: &[u8]| {
            counters
                .get(key)
                .unwrap()
                .map(|value| u64::from_le_bytes((&*value).try_into().unwrap()))
        };
        assert_eq!(count(b"shared"), Some(900), "{engine}");
        for thread in 0..3_u8 {
            assert_eq!(count(&[thread]), Some(300), "{engine}");
        }
        // The old value comes back; a key is taken away; nothing becomes nothing.
        let old = counters.update("shared", |_| None::<&[u8]>).unwrap();
        assert_eq!(old.map(|old| old.len()), Some(8));
        assert_eq!(counters.get("shared").unwrap(), None);
        assert_eq!(counters.update("shared", |_| None::<&[u8]>).unwrap(), None);
        assert!(counters.compare_and_swap("lock", None, Some(b"a")).unwrap());
        assert!(!counters.compare_and_swap("lock", None, Some(b"b")).unwrap());
        assert!(!counters.compare_and_swap("lock", Some(b"b"), None).unwrap());
        assert!(
            counters
                .compare_and_swap("lock", Some(b"a"), Some(b"c"))
                .unwrap()
        );
        assert_eq!(value(&db, "lock").as_deref(), Some("c"));
        let too_long = vec![0; (1 << 30) + 1];
        assert!(matches!(
            counters.update("lock", |_| Some(&too_long[..])),
            Err(Error::Limit { .. })
        ));
        assert_eq!(value(&db, "lock").as_deref(), Some("c"));
        db.clone().close().unwrap();
        assert!(matches!(
            counters.update("lock", |_| Some("d")),
            Err(Error::Closed)
        ));
    }
}

/// A transaction that conflicts again and again gives up; an error of its body ends it at once.
#[test]
fn a_closure_runs_until_it_is_committed_or_fails() {
    for engine in engines() {
        let db = open(engine, small_options());
        let keyspace = db.default_keyspace().clone();
        let mut runs = 0;
        let options = TransactionOptions::default().attempts_max(5);
        let result = db.transact_with(options, |transaction| {
            runs += 1;
            transaction.get(&keyspace, "key")?;
            transaction.put(&keyspace, "own", "value")?;
            db.put("key", [runs])
        });
        assert!(
            matches!(result, Err(Error::Conflict { .. })) && runs == 5,
            "{result:?}"
        );
        let result: Result<(), String> = db
            .transact(|transaction| {
                transaction.put(&keyspace, "own", "value").map_err(Failed)?;
                Err(Failed(Error::Closed))
            })
            .map_err(|failed: Failed| failed.0.to_string());
        assert!(result.unwrap_err().contains("closed"));
        assert_eq!(value(&db, "own"), None);
        let committed = db.transact(|transaction| {
            runs += 1;
            transaction.get(&keyspace, "key")?;
            transaction.put(&keyspace, "own", "value")?;
            match runs {
                6 => db.put("key", "once more"),
                _ => Ok(()),
            }
        });
        committed.unwrap();
        assert_eq!((runs, value(&db, "own").as_deref()), (7, Some("value")));
    }
}

/// An error of a user's own kind.
struct Failed(Error);

impl From<Error> for Failed {
    fn from(error: Error) -> Failed {
        Failed(error)
    }
}
