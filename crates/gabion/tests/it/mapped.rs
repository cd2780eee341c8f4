//! Engines that map a file: what they refuse, what a power loss leaves, damage, want of space.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use gabion::{Db, Durability, Engine, Error, Options, WriteBatch};
use gabion_media::{Disk, SimDisk};

use crate::support::{
    PanicContext, Place, SeededRng, base_seed, bytes_of, copy_with_holes, mapped, small_mapped,
    small_options,
};

pub(crate) fn options_of(engine: Engine) -> Options {
    small_options()
        .engine(engine)
        .mapped(small_mapped().checkpoints(true))
}

/// Runs a test with each engine that maps a file.
pub(crate) fn on_each_engine(test: impl Fn(Engine)) {
    let all = Engine::ALL.iter().copied();
    for engine in all.filter(|engine| engine.capabilities().mapped) {
        let _context = PanicContext(|| format!("engine {engine}"));
        test(engine);
    }
}

/// The directory of a place for a mapped store.
pub(crate) fn directory(place: &Place) -> &Path {
    match place {
        Place::Directory(dir) => dir.path(),
        Place::Simulated(_) => unreachable!("the engine needs a directory"),
    }
}

fn is_unsupported_by<T>(engine: Engine, result: Result<T, Error>) -> bool {
    matches!(result, Err(Error::Unsupported { engine: told, .. }) if told == engine.name())
}

#[test]
fn what_the_engine_cannot_do_it_says_before_and_refuses() {
    let engine = Engine::Scmkv;
    let options = || options_of(engine);
    fn is_unsupported<T>(result: Result<T, Error>) -> bool {
        is_unsupported_by(Engine::Scmkv, result)
    }
    let can = Engine::Scmkv.capabilities();
    assert!(!can.ordered && !can.snapshots && can.mapped);
    assert!(!can.ingest && !can.checkpoint && !can.repair);
    let place = Place::of(engine);
    let db = options().open(directory(&place)).unwrap();
    db.put("key", "value").unwrap();
    let keyspace = db.default_keyspace();
    let mut batch = WriteBatch::new();
    assert!(is_unsupported(batch.delete_range(keyspace, "a".."b")));
    assert!(is_unsupported(db.delete_range("a".."b")));
    assert!(is_unsupported(db.compact("a".."b")));
    for mut pairs in [db.iter(), db.range("a".."b"), db.prefix("a")] {
        assert!(is_unsupported(pairs.next().expect("an error")));
        assert!(pairs.next().is_none() && pairs.next_back().is_none());
    }
    assert!(is_unsupported(db.iter().next_back().expect("an error")));
    let mut cursor = keyspace.cursor::<&[u8]>(..);
    assert!(is_unsupported(cursor.advance()) && !cursor.advance().unwrap());
    let snapshot = db.snapshot();
    assert!(is_unsupported(snapshot.get(keyspace, "key")));
    assert!(is_unsupported(snapshot.multi_get(keyspace, &["key"])));
    assert!(is_unsupported(
        snapshot.iter(keyspace).next().expect("an error")
    ));
    let large = vec![7; usize::try_from(can.value_bytes_max).unwrap() + 1];
    let refused = db.put("key", &large).unwrap_err().to_string();
    assert!(
        refused.contains("value") && refused.contains("1966080"),
        "{refused}"
    );
    batch.put(keyspace, "key", &large).unwrap();
    assert!(matches!(db.write(batch), Err(Error::Limit { .. })));
    db.put("key", &large[1..]).unwrap();
    assert_eq!(db.get("key").unwrap().as_deref(), Some(&large[1..]));
    db.compact::<&str>(..).unwrap();
    assert!(is_unsupported(keyspace.begin_ingest().map(drop)));
    let simulated = Disk::simulated(&SimDisk::new());
    assert!(is_unsupported(db.checkpoint_on(&simulated)));
    db.close().unwrap();
    assert!(is_unsupported(gabion::repair_disk(
        &place.disk(),
        &simulated
    )));
    assert_eq!(simulated.list().unwrap(), Vec::<String>::new());
    assert!(is_unsupported(Db::open_on(simulated, options())));
}

#[test]
fn what_sptree_cannot_do_it_says_before_and_refuses() {
    let engine = Engine::Sptree;
    let can = engine.capabilities();
    assert!(can.ordered && !can.snapshots && can.mapped);
    assert!(!can.ingest && !can.checkpoint && !can.repair && !can.drop_keyspace);
    let place = Place::of(engine);
    let db = options_of(engine).open(directory(&place)).unwrap();
    db.put("key", "value").unwrap();
    let keyspace = db.default_keyspace();
    let snapshot = db.snapshot();
    let refused = |result| is_unsupported_by(engine, result);
    assert!(refused(snapshot.get(keyspace, "key").map(drop)));
    assert!(refused(snapshot.multi_get(keyspace, &["key"]).map(drop)));
    let mut pairs = snapshot.iter(keyspace);
    assert!(refused(pairs.next().expect("an error").map(drop)) && pairs.next().is_none());
    assert!(refused(
        snapshot.cursor::<&[u8]>(keyspace, ..).advance().map(drop)
    ));
    assert!(refused(keyspace.begin_ingest().map(drop)));
    let large = vec![7; usize::try_from(can.value_bytes_max).unwrap() + 1];
    assert!(matches!(db.put("key", &large), Err(Error::Limit { .. })));
    let mut batch = WriteBatch::new();
    batch.put(keyspace, "key", &large).unwrap();
    assert!(matches!(db.write(batch), Err(Error::Limit { .. })));
    for key in ["key", "other"] {
        db.put(key, &large[1..]).unwrap();
    }
    for pair in db.iter() {
        assert!(pair.unwrap().1 == large[1..]);
    }
    let simulated = Disk::simulated(&SimDisk::new());
    assert!(refused(db.checkpoint_on(&simulated)));
    db.close().unwrap();
    assert!(refused(
        gabion::repair_disk(&place.disk(), &simulated).map(drop)
    ));
    assert_eq!(simulated.list().unwrap(), Vec::<String>::new());
    assert!(refused(
        Db::open_on(simulated, options_of(engine)).map(drop)
    ));
}

/// There are no snapshots: a scan sees of what is written beside it some and some not. But it keeps
/// its order, what nobody writes comes exactly once, and values are whole.
#[test]
fn a_scan_sees_once_what_nobody_changes() {
    let place = Place::of(Engine::Sptree);
    let db = options_of(Engine::Sptree)
        .background_threads(1)
        .open(directory(&place))
        .unwrap();
    let key = |number: u64| format!("key {number:05}");
    for number in (0..6000).step_by(3) {
        db.put(key(number), key(number)).unwrap();
    }
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..6 {
                // Leaves split, and merge again.
                for number in (0..6000).filter(|number| number % 3 != 0) {
                    match round % 2 {
                        0 => db.put(key(number), key(number)).unwrap(),
                        _ => db.delete(key(number)).unwrap(),
                    }
                }
            }
            db.delete_range(key(6000)..).unwrap();
            // ORDER: Relaxed: the readers only have to end.
            is_done.store(true, Ordering::Relaxed);
        });
        for is_reversed in [false, true] {
            let (db, is_done) = (&db, &is_done);
            scope.spawn(move || {
                let mut rounds = 0;
                // ORDER: as above.
                while rounds < 3 || !is_done.load(Ordering::Relaxed) {
                    let mut pairs: Vec<_> = match is_reversed {
                        false => db.iter().map(Result::unwrap).collect(),
                        true => db.iter().rev().map(Result::unwrap).collect(),
                    };
                    if is_reversed {
                        pairs.reverse();
                    }
                    assert!(pairs.is_sorted_by(|one, two| *one.0 < *two.0));
                    assert!(pairs.iter().all(|(key, value)| **key == **value));
                    let number = |key: &[u8]| -> u64 {
                        let digits = std::str::from_utf8(&key[4..]).unwrap();
                        digits.parse().unwrap()
                    };
                    let lasting = pairs.iter().filter(|pair| number(&pair.0) % 3 == 0);
                    assert_eq!(lasting.count(), 2000);
                    rounds += 1;
                }
            });
        }
    });
    assert_eq!(db.iter().count(), 2000);
    // Both ends of one scan share what it has read.
    let mut pairs = db.iter();
    let mut found = 0;
    while let Some(pair) = pairs.next() {
        assert_eq!(*pair.unwrap().0, *key(3 * found).as_bytes());
        if let Some(pair) = pairs.next_back() {
            assert_eq!(*pair.unwrap().0, *key(5997 - 3 * found).as_bytes());
        }
        found += 1;
    }
    assert_eq!(found, 1000);
}

/// Who reads several keys together sees a delete of their range whole or not at all, and so does
/// who opens what a power loss has left.
#[test]
fn a_delete_of_a_range_is_one_moment() {
    let place = Place::of(Engine::Sptree);
    let db = options_of(Engine::Sptree)
        .background_threads(1)
        .open(directory(&place))
        .unwrap();
    let other = db.keyspace("other").unwrap();
    let keys: Vec<String> = (0..600).map(|number| format!("key {number:03}")).collect();
    other.put("key 300", "of another keyspace").unwrap();
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..20 {
                let mut batch = WriteBatch::new();
                for key in &keys {
                    batch.put(db.default_keyspace(), key, "value").unwrap();
                }
                db.write(batch).unwrap();
                db.delete_range("key 000"..="key 599").unwrap();
            }
            // ORDER: Relaxed: the reader only has to end.
            is_done.store(true, Ordering::Relaxed);
        });
        // ORDER: as above.
        while !is_done.load(Ordering::Relaxed) {
            let found = db.multi_get(&keys).unwrap();
            let count = found.iter().flatten().count();
            assert!(count == 0 || count == keys.len(), "{count}");
        }
    });
    db.put("key 7", "behind").unwrap();
    // In a batch, in the order of its operations.
    let mut batch = WriteBatch::new();
    batch.put(&other, "key 1", "goes").unwrap();
    batch.delete_range::<&str>(&other, ..).unwrap();
    batch.put(&other, "key 2", "stays").unwrap();
    db.write_with(batch, Durability::Sync).unwrap();
    db.delete_range("key 7"..).unwrap();
    db.delete_range::<&str>(..).unwrap();
    let after = place.kill();
    std::fs::remove_file(directory(&after).join("store.pool")).unwrap();
    let db = options_of(Engine::Sptree).open(directory(&after)).unwrap();
    let other = db.existing_keyspace("other").unwrap();
    let pairs = other.iter().map(|pair| pair.unwrap().0);
    assert_eq!(pairs.collect::<Vec<_>>(), [&b"key 2"[..]]);
    assert_eq!(db.iter().count(), 1, "the last synced moment");
}

#[test]
fn a_store_without_a_checkpoint_says_what_it_does_not_survive() {
    on_each_engine(be_without_a_checkpoint);
}

fn be_without_a_checkpoint(engine: Engine) {
    let options = || options_of(engine);
    let place = Place::of(engine);
    let without = || mapped(options(), |own| own.checkpoints(false));
    let db = without()
        .durability(Durability::default())
        .open(directory(&place))
        .unwrap();
    assert_eq!(db.stats().durability, "buffered");
    let mapped = db.stats().mapped.expect("a mapped file");
    assert_eq!((mapped.class, mapped.checkpoint_bytes), ("process", 0));
    let keyspace = db.default_keyspace();
    assert!(is_unsupported_by(
        engine,
        keyspace.put_with("key", "synced", Durability::Sync)
    ));
    assert_eq!(db.get("key").unwrap(), None, "nothing was written");
    assert!(is_unsupported_by(engine, db.persist(Durability::Sync)));
    db.put("key", "value").unwrap();
    db.flush().unwrap();
    drop(db);
    let refused = without()
        .durability(Durability::Sync)
        .open(directory(&place));
    let text = refused.expect_err("it cannot be synced").to_string();
    assert!(
        text.contains("durability") && text.contains("store.pool"),
        "{text}"
    );
    // The store knows that it has none, whatever the options say.
    let db = options().open(directory(&place)).unwrap();
    assert_eq!(db.get("key").unwrap().as_deref(), Some(&b"value"[..]));
}

/// After a power loss the pool's file is not to be trusted; here it is even gone, as in shared
/// memory. The last checkpoint stands in for it: what was synced is there, and what was written
/// later is not.
#[test]
fn a_power_loss_leaves_what_was_synced() {
    on_each_engine(lose_power);
}

fn lose_power(engine: Engine) {
    let place = Place::of(engine);
    let elsewhere = tempfile::tempdir().unwrap();
    let pool = elsewhere.path().join("some.pool");
    let options = || mapped(options_of(engine), |own| own.pool_path(Some(pool.clone())));
    let db = options().open(directory(&place)).unwrap();
    assert_eq!(db.stats().mapped.expect("mapped").class, "power-by-sync");
    let keyspace = db.keyspace("second").unwrap();
    for number in 0..500 {
        db.put(format!("early {number}"), bytes_of(number, 300))
            .unwrap();
    }
    db.delete("early 7").unwrap();
    keyspace
        .put_with("synced", "value", Durability::Sync)
        .unwrap();
    let mut batch = WriteBatch::new();
    for number in 0..50 {
        batch
            .put(&keyspace, format!("late {number}"), "value")
            .unwrap();
    }
    db.write(batch).unwrap();
    let after = place.kill();
    drop((keyspace, db));
    std::fs::remove_file(&pool).unwrap();
    let report = gabion::check(directory(&after)).unwrap();
    assert!(report.problems.is_empty(), "{report:?}");
    assert!(!pool.exists(), "a check changes nothing");
    let db = options().open(directory(&after)).unwrap();
    let keyspace = db.existing_keyspace("second").unwrap();
    assert_eq!(keyspace.pairs().count(), 1);
    assert_eq!(
        keyspace.get("synced").unwrap().as_deref(),
        Some(&b"value"[..])
    );
    assert_eq!(db.default_keyspace().pairs().count(), 499);
    assert_eq!(
        db.get("early 8").unwrap().as_deref(),
        Some(&bytes_of(8, 300)[..])
    );
    db.put("and", "goes on").unwrap();
    db.close().unwrap();
}

/// A pool that was there before is nobody's to remove.
#[test]
fn a_file_in_the_place_of_the_pool_is_kept() {
    on_each_engine(keep_a_letter);
}

fn keep_a_letter(engine: Engine) {
    let options = || options_of(engine);
    let place = Place::of(engine);
    let elsewhere = tempfile::tempdir().unwrap();
    let file = elsewhere.path().join("letter.txt");
    let mut letter = File::create(&file).unwrap();
    letter.write_all(b"dear reader").unwrap();
    for _ in 0..2 {
        let elsewhere = mapped(options(), |own| own.pool_path(Some(file.clone())));
        let refused = elsewhere.open(directory(&place));
        let text = refused.expect_err("the file is there").to_string();
        assert!(
            text.contains("letter.txt") && text.contains("not overwritten"),
            "{text}"
        );
    }
    assert_eq!(std::fs::read(&file).unwrap(), b"dear reader");
}

#[test]
fn a_full_store_refuses_writes_and_goes_on() {
    on_each_engine(be_full);
}

fn be_full(engine: Engine) {
    let options = || options_of(engine);
    for threads in [0, 2] {
        let _context = PanicContext(|| format!("{threads} threads"));
        let place = Place::of(engine);
        let db = options()
            .background_threads(threads)
            .open(directory(&place))
            .unwrap();
        let keyspace = db.default_keyspace();
        let value = |number: u64| bytes_of(number, 40_000);
        let mut count = 0;
        let refused = loop {
            match db.put(format!("{count}"), value(count)) {
                Ok(()) => count += 1,
                Err(error) => break error,
            }
        };
        assert!(refused.is_no_space() && !refused.is_locked(), "{refused}");
        let refused = refused.to_string();
        assert!(count > 500, "{count} values of 40 KB in 64 MiB");
        assert!(
            refused.contains("store.pool") && refused.contains("delete something"),
            "{refused}"
        );
        // A batch that finds no space has done nothing.
        let mut batch = WriteBatch::new();
        for number in 0..200 {
            batch
                .put(keyspace, format!("{number}"), value(number + 1))
                .unwrap();
        }
        assert!(db.write(batch).is_err_and(|error| error.is_no_space()));
        for number in 0..count {
            let found = db.get(format!("{number}")).unwrap();
            assert_eq!(found.as_deref(), Some(&value(number)[..]), "{number}");
        }
        assert_eq!(db.stats().read_only, None);
        // Deletes need no space, and make some.
        for number in 0..count / 2 {
            db.delete(format!("{number}")).unwrap();
        }
        for number in 0..count / 4 {
            db.put(format!("{number}"), value(number + 7)).unwrap();
        }
        assert_eq!(
            keyspace.pairs().count() as u64,
            count - count / 2 + count / 4
        );
        db.close().unwrap();
        let report = gabion::check(directory(&place)).unwrap();
        assert!(report.problems.is_empty(), "{report:?}");
    }
}

/// Overwriting at 100 % writes never wedges, and space stays in proportion to what is live.
#[test]
fn garbage_is_collected_in_proportion_to_what_is_live() {
    let engine = Engine::Scmkv;
    let options = || options_of(engine);
    for threads in [0, 1] {
        let place = Place::of(engine);
        let set = options().background_threads(threads);
        let db = set
            .space_amplification_max(1.5)
            .open(directory(&place))
            .unwrap();
        for round in 0..30_u64 {
            for number in 0..200 {
                db.put(format!("{number}"), bytes_of(round, 16 << 10))
                    .unwrap();
            }
        }
        db.wait_idle().unwrap();
        let stats = db.stats();
        let mapped = stats.mapped.as_ref().expect("mapped");
        assert!(mapped.cleaned_pages > 10, "{stats:?}");
        let allowed = stats.live_bytes * 3 / 2 + 17 * mapped.page_bytes;
        assert!(stats.table_bytes <= allowed, "{stats:?}");
    }
}

/// Readers that look at several keys, one by one or together, see a batch whole or not at all.
#[test]
fn readers_see_batches_whole() {
    on_each_engine(read_beside_batches);
}

fn read_beside_batches(engine: Engine) {
    let options = || options_of(engine);
    let place = Place::of(engine);
    let db = options()
        .background_threads(2)
        .open(directory(&place))
        .unwrap();
    let keyspace = db.default_keyspace();
    let keys: Vec<String> = (0..20).map(|number| format!("key {number}")).collect();
    let write = |round: u64| {
        let mut batch = WriteBatch::new();
        for key in &keys {
            batch.put(keyspace, key, round.to_le_bytes()).unwrap();
        }
        db.write(batch).unwrap();
    };
    let read = |value: Option<gabion::Slice>| {
        u64::from_le_bytes((*value.expect("there")).try_into().expect("eight bytes"))
    };
    write(0);
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            (1..500).for_each(write);
            // ORDER: Relaxed: the readers only have to end.
            is_done.store(true, Ordering::Relaxed);
        });
        for _ in 0..2 {
            scope.spawn(|| {
                // ORDER: as above.
                while !is_done.load(Ordering::Relaxed) {
                    let all = keyspace.multi_get(&keys).unwrap();
                    let all: Vec<u64> = all.into_iter().map(read).collect();
                    assert!(all.iter().all(|round| *round == all[0]), "{all:?}");
                    // Who has seen a batch never sees anything from before it.
                    let last = read(keyspace.get(&keys[19]).unwrap());
                    assert!(read(keyspace.get(&keys[0]).unwrap()) >= last);
                }
            });
        }
    });
}

/// Where bytes of a file are that are not zero.
fn places_in_use(path: &Path) -> Vec<u64> {
    let bytes = std::fs::read(path).unwrap();
    let zeros = [0; 4096];
    let mut places = Vec::new();
    for (page, start) in bytes.chunks(zeros.len()).zip((0..).step_by(zeros.len())) {
        if page != zeros {
            let used = page.iter().zip(start..).filter(|(byte, _)| **byte != 0);
            places.extend(used.map(|(_, place)| place));
        }
    }
    places
}

fn change_byte(path: &Path, at: u64, change: impl Fn(u8) -> u8) {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&byte.map(change), at).unwrap();
}

/// A wrong byte anywhere in the pool: the right data or an error that names the file, never wrong
/// data; and whatever was refused, a check finds.
#[test]
fn a_wrong_byte_in_the_pool_never_gives_wrong_data() {
    on_each_engine(damage_bytes);
}

fn damage_bytes(engine: Engine) {
    let options = || options_of(engine);
    let place = Place::of(engine);
    let db = options().open(directory(&place)).unwrap();
    let mut random = SeededRng::new(base_seed());
    for number in 0..400_u64 {
        let len = random.index(200);
        db.put(format!("{number}"), bytes_of(number, len)).unwrap();
    }
    let expected = |db: &Db| -> Result<Vec<(String, Vec<u8>)>, Error> {
        let pairs = db.default_keyspace().pairs();
        let pairs = pairs.map(|pair| pair.map(|(k, v)| (k.escape_ascii().to_string(), v.to_vec())));
        let mut pairs: Vec<_> = pairs.collect::<Result<_, _>>()?;
        pairs.sort();
        Ok(pairs)
    };
    let before = expected(&db).unwrap();
    db.close().unwrap();
    let used = places_in_use(&directory(&place).join("store.pool"));
    let (mut refused, mut unharmed) = (0, 0);
    for _ in 0..60 {
        let at = used[random.index(used.len())];
        let _context = PanicContext(|| format!("a wrong byte at {at}"));
        let damaged = place.kill();
        let bit = 1 << random.below(8);
        change_byte(&directory(&damaged).join("store.pool"), at, |byte| {
            byte ^ bit
        });
        let checked = gabion::check(directory(&damaged)).unwrap();
        let opened = options().create_if_missing(false).open(directory(&damaged));
        match opened.and_then(|db| expected(&db)) {
            Ok(found) => {
                let wrong: Vec<_> = found.iter().filter(|pair| !before.contains(pair)).collect();
                let lost = before.iter().filter(|pair| !found.contains(pair));
                let lost: Vec<_> = lost.map(|(key, _)| key).collect();
                assert!(
                    wrong.is_empty() && lost.is_empty(),
                    "{wrong:?}, lost: {lost:?}"
                );
                unharmed += 1;
            }
            Err(error) => {
                assert!(error.to_string().contains("store.pool"), "{error}");
                assert!(!checked.problems.is_empty(), "check found nothing: {error}");
                refused += 1;
            }
        }
    }
    println!("mapped: {engine}, {refused} damages refused, {unharmed} harmless");
    assert!(refused > 20, "{refused}");
    let root = engine.name().to_uppercase();
    for name in [&root[..], "store.pool"] {
        let damaged = place.kill();
        let path = directory(&damaged).join(name);
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        file.set_len(file.metadata().unwrap().len() / 2).unwrap();
        let refused = options().open(directory(&damaged)).expect_err("cut short");
        assert!(refused.to_string().contains(name), "{refused}");
        let checked = gabion::check(directory(&damaged)).unwrap();
        assert!(
            checked
                .problems
                .iter()
                .any(|problem| problem.file.ends_with(name))
        );
    }
    let copy = place.kill();
    copy_with_holes(
        &directory(&place).join(&root),
        &directory(&copy).join(format!("{root}.tmp")),
    )
    .unwrap();
    assert_eq!(
        expected(&options().open(directory(&copy)).unwrap()).unwrap(),
        before
    );
}

/// A store of SPTree is open before all of it was looked at. A pair that is damaged is told to
/// those who come to it and to a check, and keeps nobody from the others.
#[test]
fn damage_in_a_large_sptree_is_told_to_who_comes_to_it() {
    let place = Place::of(Engine::Sptree);
    let options = |threads| options_of(Engine::Sptree).background_threads(threads);
    let key = |number: u64| format!("key {number:05}");
    let value = |number: u64| format!("value of {number:05}");
    let db = options(1).open(directory(&place)).unwrap();
    for number in 0..20_000 {
        db.put(key(number), value(number)).unwrap();
    }
    db.close().unwrap();
    let pool = directory(&place).join("store.pool");
    let (bytes, sought) = (std::fs::read(&pool).unwrap(), value(12_345));
    let at = bytes
        .windows(sought.len())
        .position(|window| window == sought.as_bytes())
        .expect("the value lies in the file") as u64;
    for threads in [0, 1] {
        change_byte(&pool, at, |byte| byte ^ 1);
        let db = options(threads).open(directory(&place)).unwrap();
        for number in (0..7000).chain(18_000..20_000) {
            let found = db.get(key(number)).unwrap();
            assert_eq!(found.as_deref(), Some(value(number).as_bytes()));
        }
        let is_told =
            |error: Error| matches!(error, Error::Corruption { file, .. } if file == pool);
        for _ in 0..2 {
            assert!(is_told(db.get(key(12_345)).unwrap_err()));
            let mut pairs = db.range(key(12_345)..);
            assert!(pairs.next().expect("an error").is_err());
            assert!(db.iter().any(|pair| pair.is_err()));
        }
        db.put(key(3), value(3)).unwrap();
        db.close().unwrap();
        let report = gabion::check(directory(&place)).unwrap();
        assert!(!report.problems.is_empty());
        change_byte(&pool, at, |byte| byte ^ 1);
    }
    let db = options(1).open(directory(&place)).unwrap();
    // Closed before all was looked at, perhaps.
    db.close().unwrap();
    let report = gabion::check(directory(&place)).unwrap();
    assert!(report.problems.is_empty(), "{report:?}");
}

/// A walk that somebody has forgotten once kept the pool, and its lock, until it was dropped.
#[test]
fn a_walk_does_not_keep_a_closed_store() {
    on_each_engine(close_beside_a_walk);
}

fn close_beside_a_walk(engine: Engine) {
    let options = || options_of(engine);
    let place = Place::of(engine);
    let db = options().open(directory(&place)).unwrap();
    for number in 0..500 {
        db.put(format!("{number}"), "value").unwrap();
    }
    let mut pairs = db.default_keyspace().pairs();
    pairs.next().expect("a pair").unwrap();
    db.close().unwrap();
    let again = options().open(directory(&place)).unwrap();
    assert_eq!(again.default_keyspace().pairs().count(), 500);
    // What it has read already it may still give.
    let rest: Vec<_> = pairs.by_ref().collect();
    assert!(rest.len() < 100, "{}", rest.len());
    assert!(matches!(rest.last(), Some(Err(Error::Closed))));
    assert!(pairs.next().is_none());
    again.close().unwrap();
}
