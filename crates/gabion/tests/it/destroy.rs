//! A closed store is removed: all of it, nothing else, and however often it is interrupted.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use gabion::{Db, Engine, Error, destroy, destroy_disk};
use gabion_media::{Disk, Fault, FaultKind, SimDisk, Tear};

use crate::support::{
    KEYSPACES, PanicContext, Place, Step, Subject, Workload, base_seed, engines_on_disks,
    small_mapped, small_options,
};

/// Files beside a store that look as if they were of one.
const FOREIGN: [&str; 7] = [
    "000000ff-notes",
    "1.tbl",
    "CURRENT.bak",
    "MY-DATA",
    "manifest-1",
    "notes.txt",
    "server.log",
];

/// What a crash may leave of each engine.
const LEFT_BEHIND: [(Engine, &str); 7] = [
    (Engine::Wip, "CURRENT.tmp"),
    (Engine::Wip, "00000000000000ff.tbl.tmp"),
    (Engine::Flex, "FLEXDB.tmp"),
    (Engine::Flex, "000000ff-TREE.tmp"),
    (Engine::Flex, "000000ff-LOCK"),
    (Engine::Scmkv, "store.checkpoint.tmp"),
    (Engine::Sptree, "SPTREE.tmp"),
];

fn put_file(disk: &Disk, name: &str) {
    let mut file = disk
        .create_append(name, gabion_media::Purpose::Metadata)
        .unwrap();
    file.append(name.as_bytes()).unwrap();
    file.sync().unwrap();
    disk.sync_dir().unwrap();
}

/// A closed store of several keyspaces, with foreign files beside it.
fn fill(disk: &Disk, engine: Engine) {
    let subject = Subject::open(disk, &small_options().engine(engine)).unwrap();
    for step in Workload::new(base_seed(), 60).within(engine).steps {
        if let Step::Write { operations, .. } = step {
            subject.write(&operations, None).unwrap();
        }
    }
    assert_eq!(subject.db.keyspace_names().len(), KEYSPACES.len());
    let Subject { db, keyspaces, .. } = subject;
    drop(keyspaces);
    db.close().unwrap();
    FOREIGN.iter().for_each(|name| put_file(disk, name));
}

/// The files that are there, but the lock.
fn names(disk: &Disk) -> Vec<String> {
    let mut names = disk.list().unwrap();
    names.retain(|name| name != "LOCK");
    names
}

#[test]
fn a_store_goes_as_a_whole_and_what_is_beside_it_stays() {
    for engine in Engine::ALL {
        let _context = PanicContext(|| engine.to_string());
        let place = Place::of(*engine);
        let disk = place.disk();
        fill(&disk, *engine);
        let left_behind = LEFT_BEHIND.iter().filter(|(of, _)| of == engine);
        left_behind.for_each(|(_, name)| put_file(&disk, name));
        destroy_disk(&disk).unwrap();
        assert_eq!(names(&disk), FOREIGN);
        let gone = destroy_disk(&disk).expect_err("there is no store any more");
        assert!(matches!(gone, Error::NotAStore { .. }), "{gone}");
        FOREIGN.iter().for_each(|name| disk.remove(name).unwrap());
        for next in Engine::ALL
            .iter()
            .filter(|next| !next.capabilities().mapped)
        {
            let db = Db::open_on(disk.clone(), small_options().engine(*next)).unwrap();
            assert_eq!((db.engine(), db.iter().count()), (*next, 0));
            db.close().unwrap();
            destroy_disk(&disk).unwrap();
        }
    }
}

/// One whose name is no UTF-8 stayed behind.
#[test]
fn a_pool_that_lies_elsewhere_goes_too() {
    for name in [&b"there.pool"[..], b"there\xff.pool"] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store");
        let pool = dir.path().join(OsStr::from_bytes(name));
        let options = small_options()
            .engine(Engine::Scmkv)
            .mapped(small_mapped().pool_path(Some(pool.clone())));
        options.open(&path).unwrap().close().unwrap();
        assert!(pool.exists());
        destroy(&path).unwrap();
        assert!(!pool.exists() && path.is_dir());
    }
}

/// The store could not be removed at all.
#[test]
fn a_pool_that_is_gone_with_its_directory_is_not_missed() {
    let dir = tempfile::tempdir().unwrap();
    let (path, there) = (dir.path().join("store"), dir.path().join("there"));
    std::fs::create_dir(&there).unwrap();
    let options = small_options()
        .engine(Engine::Scmkv)
        .mapped(small_mapped().pool_path(Some(there.join("pool"))));
    options.open(&path).unwrap().close().unwrap();
    std::fs::remove_dir_all(&there).unwrap();
    destroy(&path).unwrap();
    assert!(matches!(destroy(&path), Err(Error::NotAStore { .. })));
}

#[test]
fn what_is_no_closed_store_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let refused = |what: &str| {
        let error = destroy(dir.path().join(what)).expect_err(what);
        assert!(matches!(error, Error::NotAStore { .. }), "{error}");
    };
    refused("nothing");
    std::fs::create_dir(dir.path().join("empty")).unwrap();
    refused("empty");
    assert_eq!(dir.path().join("empty").read_dir().unwrap().count(), 0);
    // Other stores have files of the same names.
    let other = Disk::create_system(&dir.path().join("other")).unwrap();
    put_file(&other, "CURRENT");
    put_file(&other, "0000000000000001.log");
    refused("other");
    assert_eq!(names(&other), ["0000000000000001.log", "CURRENT"]);
    for engine in Engine::ALL {
        let path = dir.path().join(engine.name());
        let db = small_options().engine(*engine).open(&path).unwrap();
        db.put("key", "value").unwrap();
        let error = destroy(&path).expect_err("the store is open");
        assert!(error.is_locked(), "{error}");
        assert_eq!(db.get("key").unwrap().as_deref(), Some(&b"value"[..]));
    }
}

/// A root that is not valid could be anybody's.
#[test]
fn a_store_without_a_valid_root_is_left_alone() {
    for engine in engines_on_disks() {
        let sim = SimDisk::new();
        let disk = Disk::simulated(&sim);
        fill(&disk, engine);
        let root = if engine == Engine::Flex {
            "FLEXDB"
        } else {
            "CURRENT"
        };
        let mut bytes = sim.raw(root).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        sim.set_raw(root, bytes);
        let before = sim.names();
        let error = destroy_disk(&disk).expect_err("the root is damaged");
        assert!(matches!(error, Error::Corruption { .. }), "{error}");
        assert_eq!(sim.names(), before);
    }
}

/// After an interruption there is nothing of the store, or its root and so a way to remove it.
fn assert_removable(disk: &Disk) {
    if names(disk) != FOREIGN {
        destroy_disk(disk).unwrap();
        assert_eq!(names(disk), FOREIGN);
    }
}

#[test]
fn an_interrupted_removal_leaves_a_store_that_can_be_removed() {
    let mut images = 0;
    for engine in engines_on_disks() {
        let sim = SimDisk::recording();
        let disk = Disk::simulated(&sim);
        fill(&disk, engine);
        let before = sim.ops();
        destroy_disk(&disk).unwrap();
        for op in before..=sim.ops() {
            let _context =
                PanicContext(|| format!("{engine}, operation {op} of {before} and more"));
            assert_removable(&Disk::simulated(&sim.process_kill(op)));
            for (style, seed) in Tear::ALL.into_iter().zip(base_seed()..) {
                assert_removable(&Disk::simulated(&sim.power_cut(op, op ^ seed, style)));
                images += 1;
            }
        }
        // DURABLE: when it has returned, no loss of power brings anything back.
        let after = sim.power_cut(sim.ops(), 1, Tear::DropAll);
        assert_eq!(names(&Disk::simulated(&after)), FOREIGN, "{engine}");
    }
    println!("destroy: {images} images of power losses");
}

#[test]
fn a_removal_that_fails_may_be_tried_again() {
    for engine in engines_on_disks() {
        let sound = SimDisk::recording();
        fill(&Disk::simulated(&sound), engine);
        let mut failed = 0;
        for at in 1.. {
            let _context = PanicContext(|| format!("{engine}, operation {at}"));
            let sim = sound.process_kill(sound.ops());
            let kind = match at % 2 {
                0 => FaultKind::Eio,
                _ => FaultKind::SyncFails { keep: false },
            };
            sim.inject(Fault::once(at, kind));
            let result = destroy_disk(&Disk::simulated(&sim));
            let struck = sim.waiting_faults() == 0;
            sim.clear_faults();
            failed += u64::from(result.is_err());
            assert_removable(&Disk::simulated(&sim));
            if !struck {
                break;
            }
        }
        assert!(failed > 3, "{engine}: {failed}");
    }
}
