//! What is written, against a map.

use std::thread;

use super::*;

/// Numbers that look random (SplitMix64), from a seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn key(&mut self) -> Vec<u8> {
        format!("key {:08}", self.below(3000)).into_bytes()
    }

    fn value(&mut self) -> Vec<u8> {
        let size = if self.below(10) == 0 {
            0
        } else {
            self.below(400)
        };
        (0..size).map(|_| self.next().to_le_bytes()[0]).collect()
    }
}

const MISSING: [&[u8]; 4] = [b"\x01", b"key", b"key 00000001x", b"\xf0"];

/// Two threads that meet on a few keys: each transaction takes effect, and finds what is there.
#[test]
fn transactions_read_and_write_whoever_else_does() {
    let has_them = |target: &&Target| target.abilities.transactions;
    for target in gabion_peers::targets().iter().filter(has_them) {
        println!("target {}", target.name);
        let dir = tempfile::tempdir().unwrap();
        let store = create(target, dir.path());
        let key = |number: u64| format!("key {number:08}").into_bytes();
        let mut batch = Batch::default();
        batch.put(&key(0), b"old");
        batch.put(&key(1), b"old");
        store.session().unwrap().write(&batch).unwrap();
        let work = |seed: u64| {
            let mut session = store.session().unwrap();
            let mut batch = Batch::default();
            for round in 0..500 {
                batch.clear();
                batch.put(
                    &key((round + seed) % 2),
                    format!("{seed} {round}").as_bytes(),
                );
                batch.put(&key((round + seed + 1) % 2), b"");
                // Nobody else has this one, and only the first finds nothing.
                batch.put(&key(10 + seed), b"own");
                let done = session.transact(&batch).unwrap();
                assert_eq!(done.found, if round == 0 { 2 } else { 3 });
            }
        };
        thread::scope(|scope| {
            scope.spawn(|| work(0));
            scope.spawn(|| work(1));
        });
        let mut session = store.session().unwrap();
        batch.clear();
        batch.delete(&key(10));
        batch.delete(&key(12));
        let done = session.transact(&batch).unwrap();
        assert_eq!((done.found, done.conflicts), (1, 0));
        assert_eq!(session.scan(b"", 10).unwrap(), 3);
        drop(session);
        store.close().unwrap();
    }
}

#[test]
fn random_writes_are_what_a_map_makes_of_them() {
    for_each_target(|target, dir| {
        let mut random = Random(1);
        let mut map = Map::new();
        let mut batch = Batch::default();
        let mut store = create(target, dir);
        for round in 0..4 {
            let mut session = store.session().unwrap();
            for _ in 0..500 {
                match random.below(8) {
                    0 => {
                        let key = random.key();
                        session.delete(&key).unwrap();
                        map.remove(&key);
                    }
                    1 => {
                        batch.clear();
                        for _ in 0..random.below(50) {
                            if random.below(4) == 0 {
                                batch.delete(&random.key());
                            } else {
                                batch.put(&random.key(), &random.value());
                            }
                        }
                        write(&mut *session, &mut map, &batch);
                    }
                    _ => {
                        let (key, value) = (random.key(), random.value());
                        session.put(&key, &value).unwrap();
                        map.insert(key, value);
                    }
                }
            }
            check(target, &mut *session, &map, &MISSING);
            drop(session);
            if round % 2 == 0 {
                match round {
                    0 => store.settle().unwrap(),
                    _ => store.compact().unwrap(),
                }
                check(target, &mut *store.session().unwrap(), &map, &MISSING);
            }
            store = closed_and_reopened(store, target, dir);
            check(target, &mut *store.session().unwrap(), &map, &MISSING);
        }
    });
}

#[test]
fn the_last_record_of_a_batch_wins() {
    for_each_target(|target, dir| {
        let store = create(target, dir);
        let mut session = store.session().unwrap();
        let mut map = Map::new();
        let mut batch = Batch::default();
        batch.put(b"a", b"1");
        batch.delete(b"a");
        batch.delete(b"b");
        batch.put(b"b", b"2");
        write(&mut *session, &mut map, &batch);
        check(target, &mut *session, &map, &[b"a"]);
    });
}

#[test]
fn synced_puts_are_puts() {
    for_each_target(|target, dir| {
        if !target.abilities.synced_writes {
            let store = create(target, dir);
            let mut session = store.session().unwrap();
            assert!(session.put_synced(b"key", b"value").is_err());
            assert!(session.write_synced(&Batch::default()).is_err());
            return;
        }
        let store = create(target, dir);
        let mut session = store.session().unwrap();
        let mut map = Map::new();
        for i in 0..20_u8 {
            // Synced and plain ones in turns, for some stores switch between two ways.
            if i % 3 == 0 {
                session.put(&[i], &[]).unwrap();
            } else {
                session.put_synced(&[i], &[i]).unwrap();
            }
            map.insert(vec![i], vec![]);
            let mut batch = Batch::default();
            batch.put(&[100 + i], b"batch");
            batch.delete(&[100 + i / 2]);
            session.write_synced(&batch).unwrap();
            map.insert(vec![100 + i], vec![]);
            map.remove(&[100 + i / 2][..]);
        }
        check(target, &mut *session, &map, &[b"x"]);
        drop(session);
        let store = closed_and_reopened(store, target, dir);
        check(target, &mut *store.session().unwrap(), &map, &[b"x"]);
    });
}

#[test]
fn reads_see_what_other_sessions_wrote_before() {
    for_each_target(|target, dir| {
        let store = create(target, dir);
        let store = &*store;
        let mut reader = store.session().unwrap();
        assert!(!reader.get(b"key").unwrap());
        thread::scope(|scope| {
            let write = || store.session().unwrap().put(b"key", b"value").unwrap();
            scope.spawn(write).join().unwrap();
        });
        assert!(reader.get(b"key").unwrap());
        assert_eq!(reader.scan(b"", 2).unwrap(), 1);
        reader.delete(b"key").unwrap();
        assert!(!reader.get(b"key").unwrap());
    });
}

/// Those in which a put that has returned is not always seen at once, where others put too.
const LATE: [&str; 1] = ["tidesdb"];

/// Checks what a put that has returned has brought about: at once, or within seconds for those that
/// are known to be late.
fn check_soon(target: &Target, mut is_so: impl FnMut() -> bool) {
    for _ in 0..5000 {
        if is_so() {
            return;
        }
        assert!(LATE.contains(&target.name), "{} is late", target.name);
        thread::sleep(std::time::Duration::from_millis(1));
    }
    panic!("{} has lost a put", target.name);
}

#[test]
fn sessions_of_several_threads_write_and_read_side_by_side() {
    const THREADS: u8 = 3;
    const RECORDS: usize = 300;
    for_each_target(|target, dir| {
        let store = create(target, dir);
        let store = &*store;
        thread::scope(|scope| {
            for thread in 0..THREADS {
                scope.spawn(move || {
                    let mut session = store.session().unwrap();
                    let key = |i: usize| {
                        let mut key = vec![thread];
                        key.extend_from_slice(format!("{i:04}").as_bytes());
                        key
                    };
                    for i in 0..RECORDS {
                        session.put(&key(i), &[7; 100]).unwrap();
                        check_soon(target, || session.get(&key(i / 2)).unwrap());
                        if i % 100 == 99 {
                            let expected = i + 1;
                            check_soon(target, || {
                                session.scan(&[thread], expected).unwrap() >= expected
                            });
                            if target.abilities.synced_writes {
                                session.put_synced(&key(i), &[8; 100]).unwrap();
                            }
                        }
                    }
                });
            }
        });
        let expected = usize::from(THREADS) * RECORDS;
        let mut session = store.session().unwrap();
        assert_eq!(session.scan(b"", expected + 1).unwrap(), expected);
    });
}

#[test]
fn steps_go_on_while_others_write() {
    for_each_target(|target, dir| {
        let store = create(target, dir);
        let store = &*store;
        let mut session = store.session().unwrap();
        for i in 0..100_u8 {
            session.put(&[i], b"value").unwrap();
        }
        let mut steps = session.steps(&[50]).unwrap();
        assert_eq!(steps(10).unwrap(), 10);
        thread::scope(|scope| {
            let write = || store.session().unwrap().put(&[200], b"value").unwrap();
            scope.spawn(write).join().unwrap();
        });
        // A snapshot has 40 left; a store without them may show the new one.
        let left = steps(100).unwrap();
        assert!((40..=41).contains(&left), "{left} left");
    });
}
