//! Processes that fork with an open store, and processes that are killed while they make one.
//!
//! A process of its own, in which one test runs at a time: a child has copies of all that is open.
//!
//! `GABION_UNFINISHED_KILLS` sets the number of kills of each work on a store; 12 unless it is set.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use gabion::{Db, Durability, Engine, Error, MappedOptions, Options, Tuning, WriteBatch};
use gabion_media::forked::{self, ForkedChild};
use gabion_media::seeded::{PanicContext, SeededRng, setting};
use tempfile::TempDir;

/// Held by the test that runs.
static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());

fn alone() -> std::sync::MutexGuard<'static, ()> {
    ALONE
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// In shared memory if there is any, where syncs cost nothing.
fn directory() -> TempDir {
    let in_memory = tempfile::tempdir_in("/dev/shm");
    in_memory.unwrap_or_else(|_| tempfile::tempdir().unwrap())
}

fn options_of(engine: Engine) -> Options {
    Options::default()
        .engine(engine)
        .tuning(
            Tuning::default()
                .memtable_budget_bytes(256 << 10)
                .bucket_bytes(64 << 10),
        )
        .log_bytes_max(256 << 10)
        .mapped(
            MappedOptions::default()
                .pool_bytes(64 << 20)
                .expected_records(4096)
                .checkpoints(true),
        )
        .durability(Durability::Buffered)
        .background_threads(0)
}

/// What a child says of itself where it should be refused.
fn is_forked<T>(what: &str, result: Result<T, Error>) -> Result<(), String> {
    match result {
        Err(Error::Forked { owner }) if owner != std::process::id() => Ok(()),
        Err(other) => Err(format!("{what}: {other}")),
        Ok(_) => Err(format!("{what} succeeds")),
    }
}

fn told(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// Names and contents of all files.
fn contents(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let entries = std::fs::read_dir(dir).unwrap();
    let read = |entry: std::io::Result<std::fs::DirEntry>| {
        let path = entry.unwrap().path();
        let content = std::fs::read(&path).unwrap();
        (path, content)
    };
    let mut all: Vec<_> = entries.map(read).collect();
    all.sort();
    all
}

/// Asks for everything that a store does.
fn use_store(db: &Db, dir: &Path) -> Result<(), String> {
    let can = db.engine().capabilities();
    let keyspace = db.default_keyspace();
    is_forked("a put", db.put("key", "value"))?;
    is_forked(
        "a synced put",
        keyspace.put_with("key", "value", Durability::Sync),
    )?;
    is_forked("a delete", db.delete("key"))?;
    let mut batch = WriteBatch::new();
    batch.put(keyspace, "key", "value").map_err(told)?;
    is_forked("a batch", db.write(&batch))?;
    is_forked("a get", db.get("key"))?;
    is_forked("a multi_get", db.multi_get(&["key", "other"]))?;
    if can.ordered {
        is_forked("a range delete", db.delete_range("a".."b"))?;
        for mut pairs in [db.iter(), db.prefix("k")] {
            is_forked("a scan", pairs.next().ok_or("no error")?)?;
            assert!(pairs.next().is_none(), "the error comes once");
        }
        is_forked("a cursor", keyspace.cursor::<&[u8]>(..).advance())?;
    }
    is_forked("a walk", keyspace.pairs().next().ok_or("no error")?)?;
    if can.snapshots {
        let snapshot = db.snapshot();
        is_forked("a snapshot", snapshot.clone().get(keyspace, "key"))?;
    }
    if can.checkpoint {
        is_forked("a checkpoint", db.checkpoint(dir.join("copy")))?;
    }
    if can.ingest {
        is_forked("an ingest", keyspace.ingest([("a", "b")]))?;
    }
    is_forked("a keyspace", db.keyspace("new"))?;
    is_forked("a drop", db.drop_keyspace("other"))?;
    is_forked("a flush", db.flush())?;
    is_forked("a persist", db.persist(Durability::Sync))?;
    is_forked("a compaction", db.compact::<&str>(..))?;
    is_forked("waiting", db.wait_idle())?;
    let stats = db.stats().read_only.unwrap_or_default();
    match stats.contains("fork") {
        true => is_forked("a close", db.clone().close()),
        false => Err(format!("stats: {stats}")),
    }
}

/// A child that dropped its handles closed the store of its parent and freed its lock; the parent
/// died of its next write, into a log that the child had cut.
#[test]
fn a_forked_child_takes_nothing_from_its_parent() {
    let _alone = alone();
    for engine in Engine::ALL {
        for threads in [0, 2] {
            let _context = PanicContext(|| format!("{engine}, {threads} threads"));
            fork_with_an_open_store(*engine, threads);
        }
    }
}

fn fork_with_an_open_store(engine: Engine, threads: usize) {
    let can = engine.capabilities();
    let (dir, other_dir) = (directory(), directory());
    let options = options_of(engine).background_threads(threads);
    let db = options.clone().open(dir.path()).unwrap();
    let other = db.keyspace("other").unwrap();
    let key = |number: u64| format!("{number:06}");
    for number in 0..2000 {
        db.put(key(number), [7; 100]).unwrap();
        other.put(key(number), [8; 100]).unwrap();
    }
    // The threads of the parent change files as they like.
    let fork = |body: &mut dyn FnMut() -> Result<(), String>| {
        let before = (threads == 0).then(|| contents(dir.path()));
        forked::in_child(body).unwrap();
        let after = (threads == 0).then(|| contents(dir.path()));
        for (before, after) in before.iter().flatten().zip(after.iter().flatten()) {
            let at = before
                .1
                .iter()
                .zip(&after.1)
                .position(|(old, new)| old != new);
            assert!(before == after, "{:?} has changed at {at:?}", before.0);
        }
    };
    if can.ingest {
        let keyspace = db.keyspace("ingested").unwrap();
        let mut ingest = Some(keyspace.begin_ingest().unwrap());
        ingest.as_mut().unwrap().put("000000", "a stone").unwrap();
        fork(&mut || {
            let mut ingest = ingest.take().ok_or("nothing")?;
            is_forked("an ingest that had begun", ingest.put("1", "value"))
        });
        let mut ingest = ingest.take().unwrap();
        ingest.put("000001", "a stone").unwrap();
        assert_eq!(ingest.finish().unwrap(), 2);
    }
    // Each stands elsewhere in what it has read ahead.
    let pairs = (0..16).map(|passed| {
        let mut pairs = other.pairs();
        pairs.nth(passed).unwrap().unwrap();
        pairs
    });
    let pairs: Vec<_> = pairs.collect();
    let snapshot = can.snapshots.then(|| db.snapshot());
    // Tables that only the readers hold are removed by their last reader, but not by a child.
    db.compact::<&[u8]>(..).unwrap();
    other.compact::<&[u8]>(..).unwrap();
    let mut held = Some((db, other, snapshot, pairs));
    fork(&mut || {
        let (db, other, snapshot, mut pairs) = held.take().ok_or("nothing")?;
        use_store(&db, dir.path())?;
        is_forked("a put to a keyspace", other.put("key", "value"))?;
        for scan in &mut pairs {
            is_forked("a scan that had begun", scan.next().ok_or("no error")?)?;
            assert!(scan.next().is_none(), "the error comes once");
        }
        drop((pairs, snapshot, other, db));
        match Db::open(dir.path()) {
            Err(error) if error.is_locked() => {}
            opened => return Err(format!("opened beside its parent: {opened:?}")),
        }
        // A fork of one thread may have stores of its own; one of several inherits what sleeping
        // threads are listed in, by the locks of this process, without the threads.
        if threads > 0 {
            return Ok(());
        }
        let own = options_of(engine).background_threads(threads);
        let own = own.open(other_dir.path()).map_err(told)?;
        own.put("key", "value").map_err(told)?;
        own.close().map_err(told)
    });
    let refused = Db::open(dir.path()).unwrap_err().to_string();
    let holder = format!("process {}", std::process::id());
    assert!(refused.contains(&holder), "{refused}");

    let (db, other, snapshot, pairs) = held.take().unwrap();
    for (passed, scan) in (1..).zip(pairs) {
        assert_eq!(scan.filter(Result::is_ok).count(), 2000 - passed);
    }
    for number in 2000..4000 {
        db.put(key(number), [7; 100]).unwrap();
    }
    if let Some(snapshot) = &snapshot {
        let late = snapshot.get(db.default_keyspace(), key(2000));
        assert_eq!(late.unwrap(), None);
    }
    db.flush().unwrap();
    // A child that lives on keeps nothing of what its parent closes.
    let child = sleeping_child();
    drop((snapshot, other));
    db.close().unwrap();
    let report = gabion::check(dir.path()).unwrap();
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    let db = options.open(dir.path()).unwrap();
    assert_eq!(db.default_keyspace().pairs().count(), 4000);
    assert_eq!(db.keyspace("other").unwrap().pairs().count(), 2000);
    let ingested = db.keyspace("ingested").unwrap().pairs().count();
    assert_eq!(ingested, if can.ingest { 2 } else { 0 });
    child.kill();
    if threads == 0 {
        let own = options_of(engine).open(other_dir.path()).unwrap();
        assert_eq!(own.get("key").unwrap().as_deref(), Some(&b"value"[..]));
    }
}

fn sleeping_child() -> ForkedChild {
    let child = forked::start(|| {
        std::thread::sleep(Duration::from_mins(10));
        Ok(())
    });
    child.unwrap()
}

fn kills() -> u64 {
    setting("GABION_UNFINISHED_KILLS", 12)
}

/// Records of the stores that are copied, repaired and removed.
const RECORDS: u64 = 3000;

fn fill(dir: &Path, engine: Engine) {
    let db = options_of(engine).open(dir).unwrap();
    for number in 0..RECORDS {
        db.put(number.to_le_bytes(), [7; 100]).unwrap();
    }
    db.close().unwrap();
}

/// Asserts that what a directory holds is a whole store, if it is taken for one by anybody; says
/// whether it is.
fn assert_whole_or_refused(dir: &Path, records: u64) -> bool {
    let checked = gabion::check(dir);
    let repaired = directory();
    let opened = Options::default()
        .create_if_missing(false)
        .background_threads(0)
        .open(dir);
    let Ok(db) = opened else {
        let error = opened.unwrap_err().to_string();
        assert!(error.len() > 40, "{error} is no sentence");
        // A damaged store is one that a check tells of.
        let is_told = checked.is_err() || checked.is_ok_and(|report| !report.problems.is_empty());
        assert!(is_told, "{error}, and the check is content");
        let repaired = gabion::repair(dir, repaired.path().join("new"));
        let is_told = repaired.map_or(true, |report| !report.problems.is_empty());
        assert!(is_told, "{error}, and the repair is content");
        return false;
    };
    assert!(checked.unwrap().problems.is_empty());
    assert_eq!(db.default_keyspace().pairs().count() as u64, records);
    db.close().unwrap();
    true
}

/// Kills a child that does `work` some time after `began` says that it has begun.
fn kill_within(
    work: impl FnOnce() -> Result<(), String>,
    began: impl Fn() -> bool,
    after: Duration,
) {
    let child = forked::start(work).unwrap();
    let patience = Instant::now() + Duration::from_mins(1);
    while !began() && Instant::now() < patience {
        std::thread::yield_now();
    }
    std::thread::sleep(after);
    child.kill();
}

/// Some time, mostly short.
fn some_time(random: &mut SeededRng) -> Duration {
    let most = [100, 1_000, 10_000, 60_000][random.index(4)];
    Duration::from_micros(random.index(most) as u64)
}

/// What a killed checkpoint had left kept the same command from ever succeeding, and of FlexDB it
/// was opened, and passed a check, with a part of the records. What a killed repair had left of
/// WipDB was taken for a store, too.
#[test]
fn a_killed_checkpoint_or_repair_leaves_nothing_that_is_taken_for_a_store() {
    let _alone = alone();
    let mut random = SeededRng::new(setting("GABION_SEED", 1));
    let with_copies = Engine::ALL
        .iter()
        .filter(|engine| engine.capabilities().checkpoint);
    for engine in with_copies {
        let dir = directory();
        let path = |name: &str| dir.path().join(name);
        let store = path("store");
        fill(&store, *engine);
        let mut parts = 0;
        for (round, is_repair) in (0..kills()).flat_map(|round| [(round, false), (round, true)]) {
            let _context = PanicContext(|| format!("{engine}, round {round}, repair {is_repair}"));
            let (copy, place) = (path("copy"), path("copy.incomplete"));
            let work = || match is_repair {
                true => gabion::repair(&store, &copy).map(drop),
                false => {
                    let db = Options::default().background_threads(0).open(&store)?;
                    db.checkpoint(&copy)?;
                    db.close()
                }
            };
            kill_within(
                || work().map_err(told),
                || place.exists() || copy.exists(),
                some_time(&mut random),
            );
            let is_whole = copy.exists() && assert_whole_or_refused(&copy, RECORDS);
            if place.exists() {
                let entries = std::fs::read_dir(&place).unwrap().count();
                parts += u64::from(entries > 1);
                assert!(!assert_whole_or_refused(&place, RECORDS));
            }
            match is_whole {
                true => assert!(work().is_err_and(|error| error.to_string().contains("exists"))),
                false => {
                    work().unwrap();
                    assert!(assert_whole_or_refused(&copy, RECORDS));
                }
            }
            assert!(!place.exists());
            std::fs::remove_dir_all(&copy).unwrap();
        }
        println!("{engine}: {parts} parts of copies were left and cleared away");
        assert!(parts > 0, "no kill came in time");
    }
}

#[test]
fn a_store_whose_making_or_removal_is_killed_is_none_or_whole() {
    let _alone = alone();
    let mut random = SeededRng::new(setting("GABION_SEED", 1));
    for (engine, round) in Engine::ALL
        .iter()
        .flat_map(|engine| (0..kills()).map(move |round| (*engine, round)))
    {
        let _context = PanicContext(|| format!("{engine}, round {round}"));
        let dir = directory();
        let store = dir.path().join("store");
        let make = || options_of(engine).open(&store);
        kill_within(
            || make().and_then(Db::close).map_err(told),
            || store.exists(),
            some_time(&mut random) / 2,
        );
        assert_whole_or_refused(&store, 0);
        let db = make().unwrap();
        assert_eq!(db.default_keyspace().pairs().count(), 0);
        db.close().unwrap();

        fill(&store, engine);
        let names = || std::fs::read_dir(&store).unwrap().count();
        let all = names();
        kill_within(
            || gabion::destroy(&store).map_err(told),
            || names() < all,
            some_time(&mut random) / 100,
        );
        if names() > 1 {
            assert_whole_or_refused(&store, RECORDS);
            gabion::destroy(&store).unwrap();
        }
        assert_eq!(make().unwrap().default_keyspace().pairs().count(), 0);
    }
}
