//! Followers: who reads a store that somebody else writes finds it as it was after some write.

mod images;
mod replica;
mod threads;

use std::time::Duration;

use gabion::{Clock, Db, Durability, Engine, Error, Options, Snapshot};
use gabion_media::{Disk, Fault, FaultKind, SimDisk};

use crate::changes::machine::Machine;
use crate::changes::twin::{Content, Written, content};
use crate::support::{
    KEYSPACES, Pairs, PanicContext, SeededRng, Step, Subject, Twin, Workload, assert_sound,
    base_seed, bytes_of, existing_keyspace, option_sets, read_all, setting, small_options,
    small_tuning,
};

fn follow(sim: &SimDisk, options: &Options) -> Db {
    Db::open_on(Disk::simulated(sim), options.clone().follower(true)).unwrap()
}

/// Panics unless a follower has what there was at its number. A keyspace that was made has no
/// number of its own; that it was survives a power loss by itself, so after one (`is_bare`) empty
/// keyspaces say nothing.
fn assert_was(db: &Db, written: &[Written], is_bare: bool) {
    let number = db.stats().visible_seq;
    let bare = |content: &Content| {
        let mut content = content.clone();
        content.retain(|_, pairs| !is_bare || !pairs.is_empty());
        content
    };
    let found = bare(&content(db));
    let last = written.partition_point(|written| written.number <= number);
    let same = written[..last].iter().rev();
    let mut same = same.take_while(|written| written.number == number);
    assert!(
        same.any(|written| bare(&written.content) == found),
        "at {number}: {found:?} instead of {:?}",
        written[last - 1]
    );
}

/// Everything that a store does, with reopens, drops, ingests, merges, range deletes and what
/// expires: a follower that catches up now and then has what there was, and between two catch-ups
/// what there was at the first.
#[test]
fn a_follower_has_what_there_was_at_its_number() {
    let mut manifest_reloads = 0;
    for number in 0..setting("GABION_FOLLOWER_CASES", 12) {
        let seed = base_seed() ^ (0xf0_0000 + number);
        let _context = PanicContext(|| format!("seed {seed}"));
        let mut random = SeededRng::new(seed);
        let sim = SimDisk::new();
        let options = small_options();
        let mut machine = Machine::new(&sim, options.clone(), seed);
        let follower = follow(&sim, &options);
        let mut lagging: Vec<(Snapshot, Found)> = Vec::new();
        let (mut found, mut since) = (content(&follower), follower.stats().visible_seq);
        for step in 0..400 {
            machine.act();
            if random.one_in(12) {
                follower.catch_up().unwrap();
                let (seen, now) = (follower.stats().visible_seq, machine.number());
                assert_eq!(seen, now, "step {step}");
                assert_was(&follower, &machine.written, false);
                (found, since) = (content(&follower), seen);
            } else if random.one_in(12) {
                assert_eq!(content(&follower), found, "step {step}");
                assert_eq!(follower.stats().visible_seq, since, "step {step}");
            }
            if random.one_in(20) {
                let snapshot = follower.snapshot();
                let pairs = pairs_at(&follower, &snapshot);
                lagging.push((snapshot, pairs));
            }
            if random.one_in(20) && !lagging.is_empty() {
                let at = random.index(lagging.len());
                let (snapshot, pairs) = lagging.swap_remove(at);
                assert_same_at(&follower, &snapshot, &pairs);
            }
        }
        for (snapshot, pairs) in lagging {
            assert_same_at(&follower, &snapshot, &pairs);
        }
        let stats = follower.stats().follower.unwrap();
        manifest_reloads += stats.manifest_reloads;
        machine.end();
        follower.catch_up().unwrap();
        let fresh = follow(&sim, &options);
        assert_eq!(content(&follower), content(&fresh), "at the end");
        follower.close().unwrap();
        let db = Db::open_on(Disk::simulated(&sim), options).unwrap();
        assert_eq!(content(&db), content(&fresh), "closed");
    }
    println!("began again {manifest_reloads} times");
}

type Pair = (Vec<u8>, Vec<u8>);

/// The pairs of keyspaces by their names.
type Found = Vec<(String, Vec<Pair>)>;

fn pairs_at(db: &Db, snapshot: &Snapshot) -> Found {
    let names = db.keyspace_names().into_iter();
    let pairs = names.map(|name| {
        let keyspace = db.existing_keyspace(&name).unwrap();
        let pairs = snapshot.iter(&keyspace).map(|pair| pair.unwrap());
        let pairs = pairs.map(|(key, value)| (key.to_vec(), value.to_vec()));
        (name, pairs.collect())
    });
    pairs.collect()
}

/// Scans and gets at a snapshot find what it had, of keyspaces that are still found by their names.
fn assert_same_at(db: &Db, snapshot: &Snapshot, pairs: &[(String, Vec<Pair>)]) {
    for (name, pairs) in pairs {
        let Ok(keyspace) = db.existing_keyspace(name) else {
            continue;
        };
        let all: Vec<Pair> = match snapshot.iter(&keyspace).collect::<Result<Vec<_>, _>>() {
            Ok(all) => all
                .iter()
                .map(|(key, value)| (key.to_vec(), value.to_vec()))
                .collect(),
            Err(error) => panic!("{name}: {error}"),
        };
        // Another keyspace may have the name by now, which was empty at the snapshot.
        if all.is_empty() {
            continue;
        }
        assert_eq!(&all, pairs, "{name}");
        let keys: Vec<&[u8]> = pairs.iter().map(|(key, _)| &key[..]).collect();
        let values = snapshot.multi_get(&keyspace, &keys).unwrap();
        for ((key, value), found) in pairs.iter().zip(values) {
            assert_eq!(found.as_deref(), Some(&value[..]));
            let got = snapshot.get(&keyspace, key).unwrap();
            assert_eq!(got.as_deref(), Some(&value[..]));
        }
    }
}

/// Splits, joins, compactions and flushes of stores with all kinds of options; iterators and
/// snapshots of the follower go on over them.
#[test]
fn readers_of_a_follower_go_on_while_it_catches_up() {
    let (mut splits, mut compactions, mut looked) = (0, 0, 0);
    for (number, options) in option_sets(Engine::Wip).into_iter().enumerate() {
        let seed = base_seed() ^ (0xf1_0000 + number as u64);
        let _context = PanicContext(|| format!("option set {number}, seed {seed}"));
        let sim = SimDisk::new();
        let mut subject = Subject::open(&Disk::simulated(&sim), &options).unwrap();
        let mut random = SeededRng::new(seed);
        let follower = follow(&sim, &options);
        let mut twin = Twin::new(KEYSPACES.len());
        let mut seen = twin.clone();
        let mut snapshots: Vec<(Snapshot, Twin)> = Vec::new();
        for workload in [
            Workload::new(seed, 400),
            Workload::appending(seed, 400),
            Workload::ingesting(seed, 200),
        ] {
            for next in workload.steps {
                match next {
                    Step::Write { operations, sync } => {
                        let level = sync.then_some(Durability::Sync);
                        subject.write(&operations, level).unwrap();
                        operations.iter().for_each(|own| twin.apply(own));
                    }
                    Step::Ingest(puts) => {
                        subject.ingest(&puts).unwrap();
                        puts.iter().for_each(|own| twin.apply(own));
                    }
                    Step::Flush => subject.db.flush().unwrap(),
                    Step::WaitIdle => subject.db.wait_idle().unwrap(),
                    Step::Compact(at) => subject.keyspaces[at].compact::<&[u8]>(..).unwrap(),
                    Step::Reopen => {
                        let Subject { db, keyspaces, .. } = subject;
                        drop(keyspaces);
                        let stats = db.stats();
                        splits += stats.splits;
                        compactions += stats.compactions;
                        db.close().unwrap();
                        subject = Subject::open(&Disk::simulated(&sim), &options).unwrap();
                    }
                    _ => {}
                }
                match random.below(40) {
                    0..3 => {
                        follower.catch_up().unwrap();
                        seen = twin.clone();
                        let (own, its) = (follower.stats(), subject.db.stats());
                        assert_eq!(own.visible_seq, its.visible_seq);
                        assert_follows(&follower, &seen);
                        looked += 1;
                    }
                    3 => snapshots.push((follower.snapshot(), seen.clone())),
                    4 if !snapshots.is_empty() => {
                        let at = random.index(snapshots.len());
                        let (snapshot, twin) = snapshots.swap_remove(at);
                        assert_snapshot(&follower, &snapshot, &twin);
                    }
                    5 => {
                        // It begins before a catch-up, and ends behind it.
                        let keyspace = existing_keyspace(&follower, KEYSPACES[0]).unwrap();
                        let mut iter = keyspace.iter();
                        let first: Vec<_> = iter.by_ref().take(5).map(Result::unwrap).collect();
                        let before = seen.clone();
                        follower.catch_up().unwrap();
                        seen = twin.clone();
                        let all = first.into_iter().chain(iter.map(Result::unwrap));
                        let all: Pairs = all
                            .map(|(key, value)| (key.to_vec(), (*value).into()))
                            .collect();
                        assert!(all == *before.pairs(0), "an iterator over a catch-up");
                    }
                    _ => {}
                }
            }
        }
        for (snapshot, twin) in &snapshots {
            assert_snapshot(&follower, snapshot, twin);
        }
        drop(snapshots);
        let stats = subject.db.stats();
        splits += stats.splits;
        compactions += stats.compactions;
        follower.catch_up().unwrap();
        assert_follows(&follower, &twin);
        follower.close().unwrap();
        drop(subject);
    }
    println!("{looked} looks, {splits} splits, {compactions} compactions");
    assert!(splits > 20 && compactions > 100 && looked > 100);
}

fn assert_follows(db: &Db, twin: &Twin) {
    let found = assert_sound(db).unwrap();
    assert!(twin.equals(&found), "{}", twin.difference(&found));
}

fn assert_snapshot(db: &Db, snapshot: &Snapshot, twin: &Twin) {
    for (at, name) in KEYSPACES.iter().enumerate() {
        let Ok(keyspace) = existing_keyspace(db, name) else {
            continue;
        };
        let pairs = twin.pairs(at);
        let all: Pairs = snapshot
            .iter(&keyspace)
            .map(Result::unwrap)
            .map(|(key, value)| (key.to_vec(), (*value).into()))
            .collect();
        assert!(all == *pairs, "{name} at a snapshot");
        for (key, value) in pairs {
            let found = snapshot.get(&keyspace, key).unwrap();
            assert_eq!(found.as_deref(), Some(&value[..]));
        }
        let behind = snapshot.iter(&keyspace).rev().count();
        assert_eq!(behind, pairs.len());
    }
}

/// The writer has removed the log that the follower was to read next, and the tables that it reads.
#[test]
fn a_follower_that_is_far_behind_begins_again() {
    let sim = SimDisk::new();
    let options = small_options();
    let db = Db::open_on(Disk::simulated(&sim), options.clone()).unwrap();
    let own = db.default_keyspace();
    for number in 0..300u64 {
        own.put(number.to_le_bytes(), bytes_of(number, 60)).unwrap();
    }
    db.flush().unwrap();
    db.wait_idle().unwrap();
    let follower = follow(&sim, &options);
    let tables = tables_of(&sim);
    let snapshot = follower.snapshot();
    for round in 1..6u64 {
        for number in 0..300u64 {
            let value = bytes_of(number + round * 1000, 60);
            own.put(number.to_le_bytes(), value).unwrap();
        }
        db.flush().unwrap();
        own.compact::<&[u8]>(..).unwrap();
        db.wait_idle().unwrap();
    }
    assert!(tables_of(&sim).iter().all(|name| !tables.contains(name)));
    // Tables that it had not opened are there as well.
    for number in 0..300u64 {
        let found = follower.get(number.to_le_bytes()).unwrap();
        assert_eq!(found.as_deref(), Some(&bytes_of(number, 60)[..]));
    }
    let lag = follower.stats().follower.unwrap();
    assert_eq!(lag.manifest_reloads, 0);
    assert!(follower.catch_up().unwrap());
    assert!(!follower.catch_up().unwrap(), "nothing is new");
    let stats = follower.stats().follower.unwrap();
    assert!(stats.manifest_reloads > 0, "{stats:?}");
    assert_eq!((stats.lag_writes, stats.lag_bytes, stats.lag_ns), (0, 0, 0));
    for number in 0..300u64 {
        let found = follower.get(number.to_le_bytes()).unwrap();
        assert_eq!(found.as_deref(), Some(&bytes_of(number + 5000, 60)[..]));
        let before = snapshot.get(follower.default_keyspace(), number.to_le_bytes());
        assert_eq!(before.unwrap().as_deref(), Some(&bytes_of(number, 60)[..]));
    }
    db.close().unwrap();
}

/// A file goes at any moment of a catch-up: what was read so far went with what was to be
/// installed, and all is read again.
#[test]
fn a_file_that_goes_while_it_is_read_loses_nothing() {
    let options = small_options();
    let sim = SimDisk::new();
    let mut machine = Machine::new(&sim, options.clone(), base_seed());
    let (mut met, mut reads_most) = (0, 0);
    for round in 0..setting("GABION_FOLLOWER_ROUNDS", 25) {
        let before = sim.process_kill(sim.ops());
        for _ in 0..20 {
            machine.act();
        }
        let copy_all = |to: &SimDisk| {
            for name in to.names() {
                if sim.raw(&name).is_none() {
                    Disk::simulated(to).remove(&name).unwrap();
                }
            }
            for name in sim.names() {
                to.set_raw(&name, sim.raw(&name).unwrap());
            }
        };
        let expected = content(machine.db());
        for read in 1.. {
            let _context = PanicContext(|| format!("round {round}, read {read}"));
            let copy = before.process_kill(before.ops());
            let follower = follow(&copy, &options);
            copy_all(&copy);
            let reads = copy.reads();
            copy.inject(Fault::once(reads + read, FaultKind::ReadGone));
            follower.catch_up().unwrap();
            let is_over = copy.waiting_faults() > 0;
            copy.clear_faults();
            assert_eq!(follower.stats().visible_seq, machine.number());
            assert_eq!(content(&follower), expected);
            if is_over {
                reads_most = reads_most.max(read);
                break;
            }
            met += 1;
        }
    }
    println!("{met} reads, {reads_most} in a catch-up at most");
    assert!(met > 100);
}

/// A store at rest logs again what small MemTables have, in a new segment, and removes the log in
/// front of it. Then that alone tells of the last write.
#[test]
fn what_was_logged_again_counts() {
    let sim = SimDisk::new();
    let options = Options::default()
        .background_threads(1)
        .log_bytes_max(1 << 20);
    let db = Db::open_on(Disk::simulated(&sim), options.clone()).unwrap();
    let small = db.keyspace("small").unwrap();
    let follower = follow(&sim, &options);
    for round in 0..4u64 {
        for number in 0..300u64 {
            db.put(number.to_le_bytes(), [7; 1000]).unwrap();
        }
        small.put("last", round.to_le_bytes()).unwrap();
        // A segment is left as it is.
        while db.stats().log_bytes > 64 << 10 {
            std::thread::sleep(Duration::from_millis(1));
        }
        follower.catch_up().unwrap();
        for follower in [&follower, &follow(&sim, &options)] {
            assert_eq!(follower.stats().visible_seq, db.stats().visible_seq);
            assert_eq!(content(follower), content(&db), "round {round}");
        }
    }
    let stats = follower.stats().follower.unwrap();
    assert!(stats.manifest_reloads > 0, "{stats:?}");
}

fn tables_of(sim: &SimDisk) -> Vec<String> {
    let mut names = sim.names();
    names.retain(|name| name.ends_with(".tbl"));
    names
}

/// The writer lets go of what has expired for all of its readers; who reads a follower at an
/// earlier moment still finds it, though nothing was written since.
#[test]
fn what_has_expired_stays_for_who_reads_at_an_earlier_moment() {
    let sim = SimDisk::new();
    let clock = Clock::manual();
    let options = small_options().tuning(small_tuning().clock(clock.clone()));
    let db = Db::open_on(Disk::simulated(&sim), options.clone()).unwrap();
    let own = db.default_keyspace();
    for number in 0..100u64 {
        let expires = Duration::from_secs(60);
        own.put_expiring(number.to_le_bytes(), [7; 60], expires)
            .unwrap();
    }
    db.flush().unwrap();
    let follower = follow(&sim, &options);
    let (snapshot, tables) = (follower.snapshot(), tables_of(&sim));
    clock.advance(Duration::from_secs(3600));
    own.compact::<&[u8]>(..).unwrap();
    db.wait_idle().unwrap();
    assert!(tables_of(&sim).iter().all(|name| !tables.contains(name)));
    follower.catch_up().unwrap();
    let seen = snapshot
        .iter(follower.default_keyspace())
        .map(Result::unwrap);
    assert_eq!(seen.count(), 100);
    assert_eq!(follower.iter().count(), 0);
    drop(snapshot);
    follower.catch_up().unwrap();
    assert_eq!(follower.iter().count(), 0);
    assert_eq!(follower.stats().table_bytes, db.stats().table_bytes);
}

/// How far behind a follower is can be told without catching up.
#[test]
fn the_lag_is_told() {
    let sim = SimDisk::new();
    let options = small_options().log_bytes_max(1 << 20);
    let db = Db::open_on(Disk::simulated(&sim), options.clone()).unwrap();
    let follower = follow(&sim, &options);
    for number in 0..10u64 {
        db.put(number.to_le_bytes(), [7; 100]).unwrap();
    }
    let lag = follower.stats().follower.unwrap();
    assert_eq!(lag.lag_writes, 10);
    assert!((1000..2000).contains(&lag.lag_bytes), "{lag:?}");
    follower.catch_up().unwrap();
    let lag = follower.stats().follower.unwrap();
    assert_eq!((lag.lag_writes, lag.lag_bytes, lag.lag_ns), (0, 0, 0));
    assert_eq!(lag.catch_ups, 2, "with that of the opening");
    assert_eq!(db.stats().follower, None);
    assert!(!db.catch_up().unwrap(), "it follows nobody");
}

/// Changes are read from a follower as from the store, as far as it has caught up.
#[test]
fn changes_are_read_beside_the_writer() {
    for number in 0..setting("GABION_FOLLOWER_CASES", 12) {
        let seed = base_seed() ^ (0xf2_0000 + number);
        let _context = PanicContext(|| format!("seed {seed}"));
        let sim = SimDisk::new();
        let options = small_options();
        let mut machine = Machine::new(&sim, options.clone(), seed);
        let follower = follow(&sim, &options);
        let mut random = SeededRng::new(seed);
        let since = follower.position().unwrap();
        assert_eq!(since, machine.db().position().unwrap());
        let (mut changes, mut read) = (follower.changes(since).unwrap(), 0);
        for _ in 0..200 {
            machine.act();
            if random.one_in(5) {
                follower.catch_up().unwrap();
                for change in changes.by_ref() {
                    match change {
                        Ok(change) => {
                            assert!(change.position.number() <= follower.stats().visible_seq);
                            read += 1;
                        }
                        // The machine keeps the log for its consumers alone.
                        Err(Error::ChangesGone { oldest }) => {
                            assert_eq!(oldest, follower.oldest_position().unwrap());
                            break;
                        }
                        Err(error) => panic!("{error}"),
                    }
                }
                if changes.position().number() < follower.stats().visible_seq {
                    let oldest = follower.oldest_position().unwrap();
                    changes = follower.changes(oldest).unwrap();
                    changes.by_ref().map(Result::unwrap).for_each(drop);
                }
                assert_eq!(changes.position().number(), machine.number());
                assert_eq!(
                    follower.consumers().unwrap().len(),
                    machine.db().consumers().unwrap().len()
                );
            }
        }
        let all: Vec<_> = machine
            .db()
            .changes(machine.db().oldest_position().unwrap())
            .unwrap()
            .map(Result::unwrap)
            .collect();
        follower.catch_up().unwrap();
        let oldest = machine.db().oldest_position().unwrap();
        let found: Vec<_> = follower
            .changes(oldest)
            .unwrap()
            .map(Result::unwrap)
            .collect();
        let bare = |change: &gabion::Change| (change.position, change.operations.len());
        assert!(found.iter().map(bare).eq(all.iter().map(bare)));
        println!("seed {seed}: {read} changes");
    }
}

#[test]
fn what_a_follower_cannot_do_is_refused() {
    let sim = SimDisk::new();
    let options = small_options();
    let missing = Db::open_on(Disk::simulated(&sim), options.clone().follower(true));
    assert!(
        matches!(missing, Err(Error::NotAStore { .. })),
        "{missing:?}"
    );
    assert_eq!(sim.ops(), 0, "nothing is made");
    let db = Db::open_on(Disk::simulated(&sim), options.clone()).unwrap();
    let follower = follow(&sim, &options);
    let refused = follower.put("key", "value");
    assert!(matches!(refused, Err(Error::OpenedReadOnly)), "{refused:?}");
    let refused = follower.keyspace("new");
    assert!(matches!(refused, Err(Error::OpenedReadOnly)), "{refused:?}");
    let refused = follower.consumer("new");
    assert!(matches!(refused, Err(Error::OpenedReadOnly)), "{refused:?}");
    db.close().unwrap();
    let other = follower.clone();
    follower.close().unwrap();
    let refused = other.catch_up();
    assert!(matches!(refused, Err(Error::Closed)), "{refused:?}");
    let sim = SimDisk::new();
    let options = options.engine(Engine::Flex);
    let db = Db::open_on(Disk::simulated(&sim), options.clone()).unwrap();
    let refused = Db::open_on(Disk::simulated(&sim), options.follower(true));
    assert!(
        matches!(refused, Err(Error::Unsupported { .. })),
        "{refused:?}"
    );
    assert!(read_all(&db).is_ok());
}
