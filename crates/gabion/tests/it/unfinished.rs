//! Nothing unfinished is taken for whole, whatever was killed: a store that is made, copied,
//! repaired or removed, with the process killed or the power lost after any operation of the disk.
//! What is there then opens with all that it should hold, or is refused with a sentence, by a check
//! and a repair as well; and what was interrupted can be done again.

use std::fs;
use std::io::Write;
use std::path::Path;

use gabion::{Db, Engine, Error, Options};
use gabion_media::{Disk, SimDisk, Tear};

use crate::support::{
    KEYSPACES, PanicContext, Step, Subject, Twin, Workload, assert_twin, base_seed,
    engines_on_disks, small_options,
};

fn write(path: &Path, content: &str) {
    let mut file = fs::File::create(path).unwrap();
    file.write_all(content.as_bytes()).unwrap();
}

/// A closed store with some history, and its twin.
fn some_store(sim: &SimDisk, options: &Options) -> Twin {
    let subject = Subject::open(&Disk::simulated(sim), options).unwrap();
    let mut twin = Twin::new(KEYSPACES.len());
    for step in Workload::new(base_seed(), 60).steps {
        if let Step::Write { operations, .. } = step {
            subject.write(&operations, None).unwrap();
            twin = twin.after(&operations);
        }
    }
    let Subject { db, keyspaces, .. } = subject;
    drop(keyspaces);
    db.close().unwrap();
    twin
}

/// Calls `test` with what each kill, and each loss of power, after one of the operations leaves.
fn each_image(sim: &SimDisk, from: u64, test: impl Fn(&SimDisk, u64)) {
    for op in from..=sim.ops() {
        let image = |what: &str, image: &SimDisk| {
            let done = sim.describe(op).unwrap_or_default();
            let _context = PanicContext(|| format!("{what} after operation {op} ({done})"));
            test(image, op);
        };
        image("killed", &sim.process_kill(op));
        for style in Tear::ALL {
            let lost = sim.power_cut(op, base_seed() ^ op, style);
            image(&format!("power lost, {style:?},"), &lost);
        }
    }
}

/// The same files once more.
fn copy(sim: &SimDisk) -> Disk {
    Disk::simulated(&sim.process_kill(sim.ops()))
}

/// Asserts that a disk holds the store of a twin, if anybody takes it for a store; says whether it
/// does.
fn assert_whole_or_refused(image: &SimDisk, options: &Options, twin: &Twin) -> bool {
    let opened = Db::open_on(copy(image), options.clone().create_if_missing(false));
    let checked = gabion::check_disk(&copy(image));
    let Ok(db) = opened else {
        let error = opened.unwrap_err().to_string();
        assert!(error.len() > 40, "{error} is no sentence");
        let is_told = checked.is_err() || checked.is_ok_and(|report| !report.problems.is_empty());
        assert!(is_told, "{error}, and the check is content");
        let repaired = gabion::repair_disk(&copy(image), &Disk::simulated(&SimDisk::new()));
        let is_told = repaired.map_or(true, |report| !report.problems.is_empty());
        assert!(is_told, "{error}, and the repair is content");
        return false;
    };
    assert_twin(&db, twin);
    let problems = checked.unwrap().problems;
    assert!(problems.is_empty(), "{problems:?}");
    true
}

#[test]
fn a_store_whose_making_is_interrupted_is_made_by_the_next_opening() {
    for engine in engines_on_disks() {
        let options = small_options().engine(engine);
        let sim = SimDisk::recording();
        let db = Db::open_on(Disk::simulated(&sim), options.clone()).unwrap();
        db.close().unwrap();
        let empty = Twin::new(KEYSPACES.len());
        let _context = PanicContext(|| format!("making a store of {engine}"));
        each_image(&sim, 0, |image, _| {
            let is_there = assert_whole_or_refused(image, &options, &empty);
            let db = Db::open_on(copy(image), options.clone().error_if_exists(true));
            match db {
                Ok(db) => assert_twin(&db, &empty),
                Err(error) => assert!(is_there, "{error}"),
            }
            let disk = copy(image);
            let db = Db::open_on(disk.clone(), options.clone()).unwrap();
            assert_twin(&db, &empty);
            db.put("basket", "stones").unwrap();
            db.close().unwrap();
            let db = Db::open_on(disk, options.clone()).unwrap();
            assert_eq!(db.get("basket").unwrap().as_deref(), Some(&b"stones"[..]));
        });
    }
}

/// What makes a copy of a store on a disk.
type Work<'w> = dyn Fn(&Disk) -> Result<(), Error> + 'w;

/// A checkpoint of FlexDB was a store from its first moment on, and opened with what it had; a
/// repair of WipDB was one before the log was in it.
#[test]
fn a_copy_that_is_interrupted_is_no_store_and_is_made_again() {
    for engine in engines_on_disks() {
        let options = small_options().engine(engine);
        let source = SimDisk::recording();
        let twin = some_store(&source, &options);
        let db = Db::open_on(copy(&source), options.clone()).unwrap();
        let source = || copy(&source);
        let checkpoint = |target: &Disk| db.checkpoint_on(target);
        let repair = |target: &Disk| gabion::repair_disk(&source(), target).map(drop);
        let works: [(&str, &Work<'_>); 2] = [("checkpoint", &checkpoint), ("repair", &repair)];
        for (name, work) in works {
            let _context = PanicContext(|| format!("a {name} of {engine}"));
            let sim = SimDisk::recording();
            work(&Disk::simulated(&sim)).unwrap();
            assert!(assert_whole_or_refused(&sim, &options, &twin));
            let parts = std::cell::Cell::new(0);
            each_image(&sim, 0, |image, op| {
                let is_whole = assert_whole_or_refused(image, &options, &twin);
                // Only the last two operations make it whole: the mark goes, durably.
                assert!(!is_whole || op + 1 >= sim.ops());
                assert!(is_whole || op < sim.ops());
                parts.set(parts.get() + u64::from(!is_whole));
                let again = Disk::simulated(image);
                match work(&again) {
                    Ok(()) => assert!(assert_whole_or_refused(image, &options, &twin)),
                    Err(error) => assert!(is_whole, "{error}"),
                }
            });
            println!("{engine}: {} parts of a {name}", parts.get());
            assert!(parts.get() > 0);
        }
    }
}

#[test]
fn a_store_whose_removal_is_interrupted_is_whole_or_refused() {
    for engine in engines_on_disks() {
        let options = small_options().engine(engine);
        let sim = SimDisk::recording();
        let twin = some_store(&sim, &options);
        let before = sim.ops();
        gabion::destroy_disk(&Disk::simulated(&sim)).unwrap();
        let _context = PanicContext(|| format!("removing a store of {engine}"));
        each_image(&sim, before, |image, _| {
            let is_there = !image.names().iter().all(|name| name == "LOCK");
            assert!(!assert_whole_or_refused(image, &options, &twin) || is_there);
            let disk = copy(image);
            match gabion::destroy_disk(&disk) {
                Ok(()) => {}
                Err(error) => assert!(!is_there, "{error}"),
            }
            let db = Db::open_on(disk, options.clone()).unwrap();
            assert_twin(&db, &Twin::new(KEYSPACES.len()));
        });
    }
}

/// What a killed checkpoint had left kept the same one from ever being made.
#[test]
fn what_a_killed_copy_has_left_in_the_file_system_is_cleared_away() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    for engine in engines_on_disks() {
        let store = path(&format!("{engine}"));
        let db = Options::default().engine(engine).open(&store).unwrap();
        db.put("basket", "stones").unwrap();
        let (copy, place) = (path("copy"), path("copy.incomplete"));
        let assert_made = || {
            db.checkpoint(&copy).unwrap();
            let made = Db::open(&copy).unwrap();
            assert_eq!(made.get("basket").unwrap().as_deref(), Some(&b"stones"[..]));
            drop(made);
            assert!(!place.exists() && !copy.join("INCOMPLETE").exists());
            fs::remove_dir_all(&copy).unwrap();
        };
        // Killed when the directory was made, marked, in part filled; and when it had its name.
        for (left, files) in [
            (&place, &[][..]),
            (&place, &["INCOMPLETE"]),
            (&place, &["INCOMPLETE", "LOCK", "CURRENT", "FLEXDB.tmp"]),
            (&copy, &["INCOMPLETE", "00000000000000ff.tbl", "CURRENT"]),
        ] {
            fs::create_dir(left).unwrap();
            for name in files {
                write(&left.join(name), "a part");
            }
            assert_made();
        }

        // A file that is none of a store is kept, and so is all else.
        for (left, files) in [
            (&place, &["notes"][..]),
            (&place, &["CURRENT"]),
            (&place, &["INCOMPLETE", "LOCK", "notes"]),
            (&copy, &["INCOMPLETE", "CURRENT", "notes"]),
            (&copy, &["CURRENT"]),
            (&copy, &[]),
        ] {
            fs::create_dir(left).unwrap();
            for name in files {
                write(&left.join(name), "somebody's");
            }
            let refused = db.checkpoint(&copy).unwrap_err().to_string();
            assert!(refused.contains("already exists"), "{refused}");
            assert_eq!(fs::read_dir(left).unwrap().count(), files.len(), "{left:?}");
            fs::remove_dir_all(left).unwrap();
            assert!(!place.exists() && !copy.exists());
        }

        // Somebody is at work.
        for left in [&place, &copy] {
            let at_work = Disk::create_system(left).unwrap();
            let mark = at_work.lock_new_file("INCOMPLETE").unwrap();
            write(&left.join("CURRENT"), "a part");
            let refused = db.checkpoint(&copy).unwrap_err();
            assert!(refused.is_locked(), "{refused}");
            assert!(left.join("CURRENT").exists());
            drop(mark);
            assert_made();
        }
    }
}

#[test]
fn who_meets_a_part_of_a_store_says_so_and_leaves_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    for engine in Engine::ALL {
        let store = path(&format!("{engine}"));
        let options = small_options().engine(*engine);
        let db = options.clone().open(&store).unwrap();
        db.put("basket", "stones").unwrap();
        db.close().unwrap();
        write(&store.join("INCOMPLETE"), "");
        let names = || fs::read_dir(&store).unwrap().count();
        let before = names();
        for refused in [
            options.clone().open(&store).err(),
            gabion::check(&store).err(),
            gabion::repair(&store, path("new")).err(),
            gabion::destroy(&store).err(),
        ] {
            let refused = refused.expect("it is a part");
            assert!(matches!(refused, Error::NotAStore { .. }), "{refused}");
            let told = refused.to_string();
            assert!(
                told.contains("INCOMPLETE") && told.contains("again"),
                "{told}"
            );
        }
        assert_eq!(names(), before);
        assert!(!path("new").exists() && !path("new.incomplete").exists());
        fs::remove_file(store.join("INCOMPLETE")).unwrap();
        let db = options.open(&store).unwrap();
        assert_eq!(db.get("basket").unwrap().as_deref(), Some(&b"stones"[..]));
    }
}

/// Two openers had the store, and neither could open it afterwards.
#[test]
fn a_lock_file_that_is_removed_by_hand_lets_nobody_in() {
    for engine in Engine::ALL {
        let dir = tempfile::tempdir().unwrap();
        let options = || small_options().engine(*engine);
        let db = options().open(dir.path()).unwrap();
        db.put("first", "opener").unwrap();
        for _ in 0..2 {
            fs::remove_file(dir.path().join("LOCK")).unwrap();
            let checked = match engine.capabilities().followers {
                false => gabion::check(dir.path()).err(),
                // It is checked beside who writes it.
                true => options().read_only(true).open(dir.path()).err(),
            };
            for refused in [
                options().open(dir.path()).err(),
                checked,
                gabion::destroy(dir.path()).err(),
            ] {
                let refused = refused.expect("the store is open");
                assert!(refused.is_locked(), "{refused}");
                let told = refused.to_string();
                let holder = format!("process {}", std::process::id());
                assert!(told.contains(&holder), "{told}");
            }
            write(&dir.path().join("LOCK"), "1");
        }
        db.put("second", "write").unwrap();
        db.close().unwrap();
        let db = options().open(dir.path()).unwrap();
        assert_eq!(db.default_keyspace().pairs().count(), 2);
    }
}
