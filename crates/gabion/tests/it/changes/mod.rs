//! Changes: whoever follows a store finds all that was committed, in its order, once.

pub(crate) mod machine;
pub(crate) mod twin;

use std::time::Duration;

use gabion::{ChangeAction, ChangesOptions, Db, Durability, Error, Options, Position, check_disk};
use gabion_media::{Disk, SimDisk, Tear};

use crate::support::{
    PanicContext, SeededRng, base_seed, engines_on_disks, setting, small_options,
};
use machine::Machine;
use twin::assert_rest;

fn small(engine: gabion::Engine) -> Options {
    small_options().engine(engine)
}

fn open(sim: &SimDisk, options: &Options) -> Db {
    Db::open_on(Disk::simulated(sim), options.clone()).unwrap()
}

#[test]
fn consumers_find_all_that_was_committed() {
    for engine in engines_on_disks() {
        for number in 0..setting("GABION_CHANGES_CASES", 12) {
            let seed = base_seed() ^ (0xc4_0000 + number);
            let _context = PanicContext(|| format!("{engine}, seed {seed}"));
            let mut machine = Machine::new(&SimDisk::new(), small(engine), seed);
            for _ in 0..400 {
                machine.act();
            }
            let sim = machine.sim.clone();
            let totals = machine.end();
            let report = check_disk(&Disk::simulated(&sim)).unwrap();
            assert!(report.problems.is_empty(), "{:?}", report.problems);
            println!("{engine}, seed {seed}: {totals:?}");
        }
    }
}

/// At any operation of the disk the power goes. What is left is a prefix of what was written; each
/// consumer stands where it has acknowledged last, or was about to, and reads on from there.
#[test]
fn a_power_cut_takes_nothing_that_was_acknowledged_and_tells_nothing_twice() {
    for engine in engines_on_disks() {
        let (mut images, mut read, mut unlogged, mut made_lost) = (0, 0, 0, 0);
        for number in 0..setting("GABION_CHANGES_CASES", 12) {
            let seed = base_seed() ^ (0xc5_0000 + number);
            let sim = SimDisk::recording();
            let mut machine = Machine::new(&sim, small(engine), seed);
            let first = sim.ops();
            for _ in 0..150 {
                machine.act();
            }
            let (written, acknowledged) = (machine.written.clone(), machine.acknowledged.clone());
            let names = machine.names.clone();
            let last = sim.ops();
            drop(machine);
            let mut random = SeededRng::new(seed);
            for _ in 0..setting("GABION_CHANGES_IMAGES", 25) {
                let at = first + random.below(last - first);
                let style = Tear::ALL[random.index(Tear::ALL.len())];
                let cut = random.word();
                let _context = PanicContext(|| {
                    format!("{engine}, seed {seed}, operation {at}, {style:?}, {cut}")
                });
                let image = sim.power_cut(at, cut, style);
                let db = open(&image, &small(engine));
                let visible = db.stats().visible_seq;
                let left = written.partition_point(|written| written.number <= visible);
                let found = db.consumers().unwrap();
                for own in &acknowledged {
                    let mut own = acknowledged.iter().filter(|other| other.name == own.name);
                    let begun = own.clone().rfind(|own| own.ops.0 <= at);
                    let ended = own.rfind(|own| own.ops.1 <= at);
                    if let (Some(begun), Some(ended)) = (begun, ended)
                        && begun.changes.is_some()
                        && ended.changes.is_some()
                    {
                        assert!(
                            found.iter().any(|info| info.name == ended.name),
                            "{ended:?}"
                        );
                    }
                }
                let mut pending = 0;
                for info in &found {
                    let own = acknowledged.iter().filter(|own| own.name == info.name);
                    let mut begun = own.clone().filter(|own| own.ops.0 <= at);
                    let mut ended = own.filter(|own| own.ops.1 <= at);
                    let standing = [begun.next_back(), ended.next_back()];
                    let standing: Vec<_> = standing.into_iter().flatten().collect();
                    let from = standing.iter().filter_map(|own| own.changes);
                    let from = from.clone().find(|from| {
                        let number = from.checked_sub(1).map_or(0, |last| written[last].number);
                        number == info.position.number()
                    });
                    let from = from.unwrap_or_else(|| panic!("{info:?} stands at {standing:?}"));
                    assert!(!info.is_invalidated);
                    let survived =
                        assert_rest(&db, info.position, (&names, &written[..left]), from);
                    read += survived.read;
                    unlogged += survived.unlogged;
                    made_lost += survived.made_lost;
                    pending = survived.pending;
                }
                images += 1;
                // What is written now is told behind it, and survives another opening.
                let position = db.position().unwrap();
                db.put("after", "the cut").unwrap();
                db.close().unwrap();
                let db = open(&image, &small(engine));
                let kept = db.consumers().unwrap();
                if kept.is_empty() {
                    continue;
                }
                let changes: Vec<_> = db.changes(position).unwrap().collect();
                assert_eq!(changes.len(), 1, "{changes:?}");
                let all = db.changes(kept[0].position).unwrap();
                let told = all.into_iter().find_map(Result::err);
                let is_told = matches!(&told, Some(Error::ChangesUnlogged { .. }));
                assert!(
                    is_told || told.is_none() && pending == 0,
                    "{told:?}, {pending}"
                );
            }
        }
        println!(
            "{engine}: {images} images, {read} changes, {unlogged} events unlogged, {made_lost} \
             keyspaces made without a record"
        );
        assert!(read > 0);
    }
}

/// Puts that fill more segments of the log than a store of these options keeps.
fn put_many(db: &Db, from: u64, count: u64) {
    for number in from..from + count {
        db.put(format!("key {number:04}"), [7; 100]).unwrap();
    }
    db.flush().unwrap();
}

fn count_of(mut changes: gabion::Changes) -> (u64, Option<Error>) {
    let mut count = 0;
    loop {
        match changes.next() {
            None => return (count, None),
            Some(Ok(_)) => count += 1,
            Some(Err(error)) => return (count, Some(error)),
        }
    }
}

#[test]
fn who_is_no_consumer_is_told_that_the_changes_are_gone() {
    for engine in engines_on_disks() {
        let sim = SimDisk::new();
        let db = open(&sim, &small(engine));
        let position = db.position().unwrap();
        let mut reading = db.changes(position).unwrap();
        for number in 0..10 {
            db.put(format!("key {number}"), "value").unwrap();
        }
        assert!(reading.next().is_some_and(|change| change.is_ok()));
        put_many(&db, 10, 2_000);
        for changes in [reading, db.changes(position).unwrap()] {
            let (count, error) = count_of(changes);
            let Some(Error::ChangesGone { oldest }) = error else {
                panic!("{engine}: {count} changes, then {error:?}");
            };
            assert_eq!(oldest, db.oldest_position().unwrap());
            let (count, error) = count_of(db.changes(oldest).unwrap());
            assert!(
                error.is_none() && oldest.number() + count == 2_010,
                "{error:?}"
            );
        }
        db.close().unwrap();
    }
}

#[test]
fn positions_that_a_store_never_had_are_refused() {
    for engine in engines_on_disks() {
        let sim = SimDisk::new();
        let db = open(&sim, &small(engine));
        let consumer = db.consumer("ahead").unwrap();
        put_many(&db, 0, 10);
        for position in ["1.4000000000.3", "77.64.3"] {
            let position: Position = position.parse().unwrap();
            let (count, error) = count_of(db.changes(position).unwrap());
            assert!(
                matches!(error, Some(Error::ChangesGone { .. })),
                "{error:?}"
            );
            assert_eq!(count, 0);
            let refused = consumer.acknowledge(position);
            assert!(
                matches!(refused, Err(Error::ChangesGone { .. })),
                "{refused:?}"
            );
        }
        db.close().unwrap();
    }
}

/// The slow one stands in the way of nobody once it is cut off, also after the store was opened
/// again; and it goes on where changes are.
#[test]
fn the_slowest_consumer_is_cut_off() {
    for engine in engines_on_disks() {
        let sim = SimDisk::new();
        let options = small(engine).changes_bytes_max(40 << 10);
        let mut db = open(&sim, &options);
        let slow = db.consumer("slow").unwrap();
        let fast = db.consumer("fast").unwrap();
        let mut changes = fast.changes().unwrap();
        let mut most = 0;
        for round in 0..40 {
            put_many(&db, round * 50, 50);
            let read = changes.by_ref().map(|change| change.unwrap().position);
            fast.acknowledge(read.last().unwrap()).unwrap();
            let kept = db.stats().log_bytes_kept_for_consumers;
            most = most.max(kept);
            assert!(kept <= 40 << 10, "{engine}: {kept}");
        }
        assert!(most > 30 << 10, "{engine}: {most}");
        drop((slow, fast, changes));
        for _ in 0..2 {
            let [fast, slow] = &db.consumers().unwrap()[..] else {
                panic!("two consumers");
            };
            assert_eq!((&*fast.name, fast.is_invalidated), ("fast", false));
            assert_eq!((&*slow.name, slow.is_invalidated), ("slow", true));
            assert!(
                db.stats().log_bytes_kept_for_consumers < 10 << 10,
                "{:?}",
                db.stats()
            );
            let slow = db.consumer("slow").unwrap();
            let (count, error) = count_of(slow.changes().unwrap());
            let Some(Error::ChangesGone { oldest }) = error else {
                panic!("{engine}: {count} changes, then {error:?}");
            };
            assert_eq!(count, 0);
            let (count, error) = count_of(db.changes(oldest).unwrap());
            assert!(error.is_none() && oldest.number() + count == 2_000);
            db.close().unwrap();
            db = open(&sim, &options);
        }
        let slow = db.consumer("slow").unwrap();
        slow.acknowledge(db.position().unwrap()).unwrap();
        assert!(
            db.consumers()
                .unwrap()
                .iter()
                .all(|info| !info.is_invalidated)
        );
        put_many(&db, 0, 100);
        assert_eq!(count_of(slow.changes().unwrap()).0, 100);
        db.close().unwrap();
    }
}

#[test]
fn a_consumer_keeps_the_log_over_openings_and_lets_go_of_it() {
    for engine in engines_on_disks() {
        let sim = SimDisk::new();
        let mut db = open(&sim, &small(engine));
        let names = || {
            sim.names()
                .iter()
                .filter(|name| name.ends_with(".log"))
                .count()
        };
        db.consumer("one").unwrap();
        for round in 0..5 {
            put_many(&db, round * 100, 100);
            db.wait_idle().unwrap();
            db.close().unwrap();
            db = open(&sim, &small(engine));
        }
        let consumer = db.consumer("one").unwrap();
        let info = &db.consumers().unwrap()[0];
        let kept = db.stats().log_bytes_kept_for_consumers;
        assert!(
            kept > 50_000 && info.bytes + 1024 > kept && names() > 20,
            "{kept}, {info:?}"
        );
        let mut changes = consumer.changes().unwrap();
        let positions: Vec<_> = changes
            .by_ref()
            .map(|change| change.unwrap().position)
            .collect();
        assert_eq!(positions.len(), 500);
        consumer.acknowledge(positions[250]).unwrap();
        let half = db.stats().log_bytes_kept_for_consumers;
        assert!(half > 0 && half < kept * 2 / 3, "{half} of {kept}");
        consumer.acknowledge(positions[10]).unwrap();
        assert_eq!(
            consumer.position().unwrap(),
            positions[250],
            "it does not go back"
        );
        assert_eq!(count_of(consumer.changes().unwrap()).0, 249);
        db.drop_consumer("one").unwrap();
        assert!(matches!(
            db.drop_consumer("one"),
            Err(Error::NoSuchConsumer { .. })
        ));
        assert!(matches!(
            consumer.position(),
            Err(Error::NoSuchConsumer { .. })
        ));
        assert_eq!(db.stats().log_bytes_kept_for_consumers, 0);
        assert!(!sim.names().contains(&"CONSUMERS".to_owned()));
        db.wait_idle().unwrap();
        db.close().unwrap();
        assert!(names() <= 2, "{:?}", sim.names());
    }
}

/// The bytes of a segment that only a consumer needs are changed one after the other.
#[test]
fn damage_in_what_is_kept_is_an_error_and_no_end() {
    for engine in engines_on_disks() {
        let sim = SimDisk::new();
        let db = open(&sim, &small(engine));
        db.consumer("one").unwrap();
        put_many(&db, 0, 300);
        db.close().unwrap();
        let mut logs = sim.names();
        logs.retain(|name| name.ends_with(".log"));
        // The last one of all ends where the log does.
        if engine == gabion::Engine::Flex {
            let name = &logs[logs.len() - 1];
            let sound = sim.raw(name).unwrap();
            for at in 0..sound.len() {
                let mut damaged = sound.clone();
                damaged[at] ^= 1 << (at % 8);
                sim.set_raw(name, damaged);
                let report = check_disk(&Disk::simulated(&sim)).unwrap();
                assert!(!report.problems.is_empty(), "byte {at} of the last");
            }
            sim.set_raw(name, sound);
        }
        let name = &logs[logs.len() / 3];
        let sound = sim.raw(name).unwrap();
        let mut found = 0;
        for at in (0..sound.len()).step_by(7) {
            for change in [1 << (at % 8), sound[at]] {
                let mut damaged = sound.clone();
                damaged[at] ^= change;
                if damaged == sound {
                    continue;
                }
                sim.set_raw(name, damaged);
                let report = check_disk(&Disk::simulated(&sim)).unwrap();
                assert!(!report.problems.is_empty(), "{engine}: byte {at}");
                found += 1;
                if found % 20 == 0 {
                    let db = open(&sim, &small(engine));
                    let changes = db.consumer("one").unwrap().changes().unwrap();
                    let (count, error) = count_of(changes);
                    assert!(matches!(error, Some(Error::Corruption { .. })), "{error:?}");
                    assert!(count < 300);
                    drop(db);
                }
            }
        }
        assert!(found > 100, "{found}");
        // A whole frame of zeros, or a file less.
        let mut zeroed = sound.clone();
        let half = sound.len() / 2;
        zeroed[half..].fill(0);
        sim.set_raw(name, zeroed);
        let report = check_disk(&Disk::simulated(&sim)).unwrap();
        assert!(!report.problems.is_empty(), "{engine}");
        let db = open(&sim, &small(engine));
        let (_, error) = count_of(db.consumer("one").unwrap().changes().unwrap());
        assert!(matches!(error, Some(Error::Corruption { .. })), "{error:?}");
        db.close().unwrap();
    }
}

#[test]
fn only_what_is_durable_is_told_to_who_wants_that() {
    for engine in engines_on_disks() {
        let sim = SimDisk::new();
        let db = open(&sim, &small(engine));
        db.persist(Durability::Sync).unwrap();
        let position = db.position().unwrap();
        let options = ChangesOptions::default().durable_only(true);
        let mut durable = db.changes_with(position, &options).unwrap();
        let mut all = db.changes(position).unwrap();
        db.put("one", "1").unwrap();
        assert!(durable.next().is_none() && all.next().is_some());
        db.persist(Durability::Sync).unwrap();
        assert!(durable.next().is_some() && durable.next().is_none());
        db.default_keyspace()
            .put_with("two", "2", Durability::Sync)
            .unwrap();
        assert!(durable.next().is_some() && all.next().is_some());
        assert_eq!(durable.position(), all.position());
        db.close().unwrap();
    }
}

/// Threads write side by side, while one follows them and waits for what comes.
#[test]
fn a_reader_follows_threads_that_write() {
    for engine in engines_on_disks() {
        for side_by_side in [false, true] {
            let mut options = small(engine).background_threads(2);
            options.tuning.concurrent_writers = side_by_side;
            let sim = SimDisk::new();
            let db = open(&sim, &options);
            let consumer = db.consumer("one").unwrap();
            let (threads, each) = (3_u64, setting("GABION_WRITES", 3_000));
            std::thread::scope(|scope| {
                for thread in 0..threads {
                    let db = &db;
                    scope.spawn(move || {
                        for number in 0..each {
                            let key = [thread.to_le_bytes(), number.to_le_bytes()].concat();
                            match number % 100 {
                                0 => {
                                    let keyspace = db.default_keyspace();
                                    keyspace.put_with(key, [1; 40], Durability::Sync).unwrap();
                                }
                                1 => {
                                    let mut batch = gabion::WriteBatch::new();
                                    batch.put(db.default_keyspace(), &key, [2; 40]).unwrap();
                                    batch.delete(db.default_keyspace(), "none").unwrap();
                                    db.write(&batch).unwrap();
                                }
                                _ => db.put(key, [3; 40]).unwrap(),
                            }
                        }
                    });
                }
                let mut next = vec![0; usize::try_from(threads).unwrap()];
                let mut changes = consumer.changes().unwrap();
                let mut number = changes.position().number();
                let mut count = 0;
                while count < threads * each {
                    let long = Duration::from_secs(600);
                    let change = changes.next_timeout(long).unwrap().expect("a change");
                    count += 1;
                    number += change.operations.len() as u64;
                    assert_eq!(change.position.number(), number);
                    let ChangeAction::Put { key, .. } = &change.operations[0].action else {
                        panic!("{change:?}");
                    };
                    assert!(db.contains(key).unwrap(), "readers see what is told");
                    let (thread, own) = key.split_first_chunk::<8>().unwrap();
                    let thread = usize::try_from(u64::from_le_bytes(*thread)).unwrap();
                    let own = u64::from_le_bytes(own.try_into().unwrap());
                    assert_eq!(own, next[thread], "each once, in its order");
                    next[thread] += 1;
                    if count % 1_000 == 0 {
                        consumer.acknowledge(change.position).unwrap();
                    }
                }
                let none = changes.next_timeout(Duration::from_millis(1)).unwrap();
                assert!(none.is_none(), "{none:?}");
            });
            db.close().unwrap();
        }
    }
}

#[test]
fn a_snapshot_and_the_changes_behind_it_are_everything_once() {
    for engine in engines_on_disks() {
        let db = open(&SimDisk::new(), &small(engine));
        let consumer = db.consumer("copy").unwrap();
        put_many(&db, 0, 30);
        let snapshot = db.snapshot();
        put_many(&db, 30, 12);
        let position = consumer.position().unwrap().after(&snapshot);
        let snapshot = snapshot.iter(db.default_keyspace()).count();
        let (count, error) = count_of(db.changes(position).unwrap());
        assert!(
            error.is_none() && (snapshot, count) == (30, 12),
            "{snapshot}, {count}, {error:?}"
        );
        db.close().unwrap();
    }
}

/// A consumer that finds no room to acknowledge stands where it stood, and nothing is lost.
#[test]
fn a_full_disk_refuses_acknowledgments_and_loses_nothing() {
    for engine in engines_on_disks() {
        let sim = SimDisk::new();
        let db = open(&sim, &small(engine));
        let consumer = db.consumer("one").unwrap();
        put_many(&db, 0, 200);
        db.persist(Durability::Sync).unwrap();
        let mut changes = consumer.changes().unwrap();
        let positions: Vec<_> = changes
            .by_ref()
            .map(|change| change.unwrap().position)
            .collect();
        let before = consumer.position().unwrap();
        sim.set_capacity(Some(0));
        let refused = consumer.acknowledge(positions[100]).unwrap_err();
        assert!(refused.is_no_space(), "{refused}");
        let refused = db.consumer("two").unwrap_err();
        assert!(refused.is_no_space(), "{refused}");
        assert_eq!(consumer.position().unwrap(), before);
        assert_eq!(db.consumers().unwrap().len(), 1);
        assert_eq!(count_of(consumer.changes().unwrap()).0, 200);
        sim.set_capacity(None);
        consumer.acknowledge(positions[100]).unwrap();
        db.consumer("two").unwrap();
        drop((db, consumer, changes));
        let db = open(&sim, &small(engine));
        let consumer = db.consumer("one").unwrap();
        assert_eq!(consumer.position().unwrap(), positions[100]);
        assert_eq!(count_of(consumer.changes().unwrap()).0, 99);
        db.close().unwrap();
    }
}

#[test]
fn who_reads_only_finds_the_changes_and_changes_no_consumer() {
    for engine in engines_on_disks() {
        let sim = SimDisk::new();
        let db = open(&sim, &small(engine));
        db.consumer("one").unwrap();
        put_many(&db, 0, 100);
        let killed = sim.process_kill(sim.ops());
        db.close().unwrap();
        for sim in [sim, killed] {
            let db = open(&sim, &small(engine).read_only(true));
            let consumer = db.consumer("one").unwrap();
            let (count, error) = count_of(consumer.changes().unwrap());
            assert!(count == 100 && error.is_none(), "{count}, {error:?}");
            let refused = consumer.acknowledge(db.position().unwrap());
            assert!(matches!(refused, Err(Error::OpenedReadOnly)), "{refused:?}");
            let refused = db.consumer("two").map(drop);
            assert!(matches!(refused, Err(Error::OpenedReadOnly)), "{refused:?}");
            let refused = db.drop_consumer("one");
            assert!(matches!(refused, Err(Error::OpenedReadOnly)), "{refused:?}");
        }
    }
}

#[test]
fn a_copy_has_no_consumers_and_a_store_that_is_removed_leaves_none() {
    for engine in engines_on_disks() {
        let (sim, copy) = (SimDisk::new(), SimDisk::new());
        let db = open(&sim, &small(engine));
        let consumer = db.consumer("one").unwrap();
        put_many(&db, 0, 100);
        db.checkpoint_on(&Disk::simulated(&copy)).unwrap();
        let mut changes = consumer.changes().unwrap();
        db.close().unwrap();
        let late = changes.next();
        assert!(matches!(late, Some(Err(Error::Closed))), "{late:?}");
        assert!(matches!(consumer.position(), Err(Error::Closed)));
        let copied = open(&copy, &small(engine));
        assert_eq!(copied.consumers().unwrap(), []);
        copied.close().unwrap();
        assert!(sim.names().contains(&"CONSUMERS".to_owned()));
        gabion::destroy_disk(&Disk::simulated(&sim)).unwrap();
        assert_eq!(sim.names(), ["LOCK"]);
    }
}

#[test]
fn engines_without_a_log_say_so() {
    for engine in [gabion::Engine::Scmkv, gabion::Engine::Sptree] {
        assert!(!engine.capabilities().changes);
        let place = crate::support::Place::of(engine);
        let db = Db::open_on(place.disk(), small(engine)).unwrap();
        let unsupported = [
            db.changes(Position::START).map(drop),
            db.position().map(drop),
            db.oldest_position().map(drop),
            db.consumer("one").map(drop),
            db.consumers().map(drop),
            db.drop_consumer("one"),
        ];
        for error in unsupported {
            assert!(matches!(error, Err(Error::Unsupported { .. })), "{error:?}");
        }
        db.close().unwrap();
    }
}

/// A consumer was made in a run without a write: the segment in which it stood was removed at the
/// close, as it held nothing, and the consumer found its changes gone.
#[test]
fn runs_without_a_write_move_no_position() {
    for engine in engines_on_disks() {
        for (written, flushed, killed) in [
            (false, false, false),
            (true, false, false),
            (true, true, false),
            (true, true, true),
        ] {
            let _context = PanicContext(|| format!("{engine}: {written}, {flushed}, {killed}"));
            let mut sim = SimDisk::new();
            let reopen = |sim: &mut SimDisk, db: Db| {
                let left = sim.process_kill(sim.ops());
                db.close().unwrap();
                if killed {
                    *sim = left;
                }
                open(sim, &small(engine))
            };
            let mut db = open(&sim, &small(engine));
            if written {
                put_many(&db, 0, 30);
            }
            if flushed {
                db.wait_idle().unwrap();
            }
            db = reopen(&mut sim, db);
            db.consumer("one").unwrap();
            for _ in 0..4 {
                db = reopen(&mut sim, db);
            }
            let logs = sim
                .names()
                .iter()
                .filter(|name| name.ends_with(".log"))
                .count();
            assert!(logs <= 8, "{:?}", sim.names());
            let (mut count, mut changes) = (0, db.consumer("one").unwrap().changes().unwrap());
            for round in 0..3 {
                assert!(changes.next().is_none());
                db.consumer("one")
                    .unwrap()
                    .acknowledge(changes.position())
                    .unwrap();
                drop(changes);
                db = reopen(&mut sim, db);
                assert!(
                    db.consumers()
                        .unwrap()
                        .iter()
                        .all(|info| !info.is_invalidated)
                );
                db.put(format!("later {round}"), "value").unwrap();
                db = reopen(&mut sim, db);
                changes = db.consumer("one").unwrap().changes().unwrap();
                count += changes.by_ref().map(Result::unwrap).count();
            }
            assert_eq!(count, 3);
            drop(changes);
            db.close().unwrap();
        }
    }
}
