//! Bad input: a sentence each, and nothing is lost.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use gabion::{
    BackupOptions, BackupRepository, Db, Engine, Error, MappedOptions, Options, RetentionPolicy,
};
use gabion_media::{Disk, SimDisk};

use super::{assert_restores, assert_whole, backup, engines, repository, some_store, write_all};
use crate::support::{Workload, base_seed, small_options};

fn write(path: &Path, content: &[u8]) {
    std::io::Write::write_all(&mut fs::File::create(path).unwrap(), content).unwrap();
}

/// The error of what must fail, as a sentence that has these words.
fn told<T>(result: Result<T, Error>, words: &[&str]) -> Error {
    let Err(error) = result else {
        panic!("it was not refused");
    };
    let sentence = error.to_string();
    for word in words {
        assert!(sentence.contains(word), "{sentence:?} lacks {word:?}");
    }
    error
}

#[test]
fn directories_that_are_no_repositories_are_refused_and_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let db = Db::open(path("store")).unwrap();
    fs::create_dir(path("letters")).unwrap();
    write(&path("letters").join("letter"), b"dear");
    fs::create_dir(path("empty")).unwrap();
    fs::create_dir_all(path("drawer").join("letters")).unwrap();
    fs::create_dir_all(path("new drive").join("lost+found")).unwrap();
    for (place, word) in [
        ("store", ".log"),
        ("letters", "letter"),
        ("drawer", "letters"),
    ] {
        let before = fs::read_dir(path(place)).unwrap().count();
        for opened in [
            BackupRepository::create_or_open(path(place)),
            BackupRepository::open(path(place)),
        ] {
            let error = told(opened, &["not a backup repository", "BACKUPS", word]);
            assert!(matches!(error, Error::NotARepository { .. }));
        }
        assert_eq!(fs::read_dir(path(place)).unwrap().count(), before);
    }
    told(BackupRepository::open(path("empty")), &["it is empty"]);
    BackupRepository::create_or_open(path("new drive")).unwrap();
    told(BackupRepository::open(path("none")), &["does not exist"]);
    assert!(!path("none").exists());
    write(&path("a file"), b"dear");
    told(
        BackupRepository::create_or_open(path("a file")),
        &["a file"],
    );

    let repository = BackupRepository::create_or_open(path("deep/new")).unwrap();
    db.backup(&repository, BackupOptions::default()).unwrap();
    for (damage, words) in [
        (8, &["format version 2", "newer version of Gabion"][..]),
        (0, &["magic"]),
        (13, &["checksum"]),
    ] {
        let root = path("deep/new").join("BACKUPS");
        let good = fs::read(&root).unwrap();
        let mut bad = good.clone();
        bad[damage] ^= if damage == 8 { 3 } else { 1 };
        if damage == 8 {
            let crc = crc_of(&bad);
            bad[12..16].copy_from_slice(&crc);
        }
        write(&root, &bad);
        told(BackupRepository::open(path("deep/new")), words);
        told(BackupRepository::create_or_open(path("deep/new")), words);
        write(&root, &good);
    }
    assert_whole(&BackupRepository::open(path("deep/new")).unwrap());
}

/// The checksum of a root file without its own four bytes.
fn crc_of(bytes: &[u8]) -> [u8; 4] {
    let head = gabion_media::crc32c::crc32c(&bytes[..12]);
    gabion_media::crc32c::crc32c_append(head, &bytes[16..]).to_le_bytes()
}

#[test]
fn a_repository_in_use_is_told_with_its_holder() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let db = Db::open(path("store")).unwrap();
    db.put("basket", "stones").unwrap();
    let repository = BackupRepository::create_or_open(path("backups")).unwrap();
    db.backup(&repository, BackupOptions::default()).unwrap();

    let other = Disk::system(&path("backups")).unwrap();
    let held = other.lock("LOCK").unwrap();
    let restore = || repository.restore(1, path("restored"), BackupOptions::default());
    let verify = || repository.verify(None, BackupOptions::default()).map(drop);
    let create = || db.backup(&repository, BackupOptions::default()).map(drop);
    let prune = || repository.prune(RetentionPolicy::newest(1)).map(drop);
    for refused in [create(), prune(), restore(), verify()] {
        assert!(told(refused, &["locked", "process"]).is_locked());
    }
    assert_eq!(repository.list().unwrap().backups.len(), 1);
    drop(held);
    // Readers do not keep each other out.
    let held = other.lock_shared("LOCK").unwrap();
    for refused in [create(), prune()] {
        assert!(told(refused, &["locked"]).is_locked());
    }
    restore().unwrap();
    verify().unwrap();
    drop(held);
    create().unwrap();
    assert_whole(&repository);
}

#[test]
fn objects_that_are_missing_cut_or_flipped_are_found_and_made_again() {
    for engine in engines() {
        let options = small_options().engine(engine);
        let (sim, to) = (SimDisk::new(), SimDisk::new());
        let (subject, twin) = some_store(&sim, &options);
        backup(&subject.db, &to);
        // Another backup with the same tables or segments, and with another list of keyspaces.
        subject.db.keyspace("fourth").unwrap();
        backup(&subject.db, &to);
        let repository = repository(&to);
        let disk = Disk::simulated(&to);
        let objects = to
            .names()
            .into_iter()
            .filter(|name| name.ends_with(".object"));
        let (mut first_needs, mut both_need, mut made_good) = (0, 0, 0);
        for name in objects.collect::<Vec<_>>() {
            let good = to.raw(&name).unwrap();
            let mut flipped = good.clone();
            flipped[good.len() / 2] ^= 0x10;
            let damages = [
                (None, "missing"),
                (Some(good[..good.len() - 1].to_vec()), "instead of"),
                (Some(flipped), "checksum"),
            ];
            for (damage, word) in damages {
                let is_flipped = word == "checksum";
                match damage {
                    Some(bytes) => to.set_raw(&name, bytes),
                    None => disk.remove(&name).unwrap(),
                }
                let report = repository.verify(None, BackupOptions::default()).unwrap();
                let [problem] = &report.problems[..] else {
                    panic!("{:?}", report.problems);
                };
                assert!(problem.file.ends_with(&name));
                assert!(problem.what.contains(word), "{}", problem.what);
                let needed = |id: u64| {
                    let own = repository.verify(Some(id), BackupOptions::default());
                    !own.unwrap().problems.is_empty()
                };
                first_needs += u64::from(needed(1));
                both_need += u64::from(needed(1) && needed(2));
                for id in [1, 2] {
                    if !needed(id) {
                        assert_restores(&repository, id, &options, &twin);
                        continue;
                    }
                    let sim = SimDisk::new();
                    let target = Disk::simulated(&sim);
                    let refused = repository.restore_on(id, &target, BackupOptions::default());
                    let error = told(refused, &[&name, word, "verify"]);
                    assert!(matches!(error, Error::BackupDamaged { .. }));
                    assert!(sim.names().is_empty());
                }
                // A later backup makes good what the store still has.
                if needed(2) && !is_flipped {
                    let later = backup(&subject.db, &to);
                    if !needed(2) {
                        made_good += 1;
                        assert_restores(&repository, 2, &options, &twin);
                    }
                    disk.remove(&format!("{:016x}.backup", later.id)).unwrap();
                }
                to.set_raw(&name, good.clone());
            }
        }
        assert!(
            first_needs > both_need && both_need > 0,
            "{first_needs}, {both_need}"
        );
        assert!(made_good > 0);
        assert_whole(&repository);
    }
}

#[test]
fn a_description_that_is_damaged_keeps_all_objects() {
    let options = small_options();
    let (sim, to) = (SimDisk::new(), SimDisk::new());
    let (subject, mut twin) = some_store(&sim, &options);
    let first = twin.clone();
    backup(&subject.db, &to);
    write_all(&subject, &mut twin, &Workload::new(base_seed() + 7, 60));
    subject.db.compact::<&[u8]>(..).unwrap();
    backup(&subject.db, &to);
    let name = format!("{:016x}.backup", 1);
    let good = to.raw(&name).unwrap();
    let mut newer = good.clone();
    newer[8] = 2;
    let crc = crc_of(&newer);
    newer[12..16].copy_from_slice(&crc);
    let mut flipped = good.clone();
    flipped[40] ^= 1;
    for (bad, word) in [
        (newer, "newer version of Gabion"),
        (flipped, "checksum"),
        (Vec::new(), "end"),
    ] {
        to.set_raw(&name, bad);
        let repository = repository(&to);
        let list = repository.list().unwrap();
        let ids: Vec<u64> = list.backups.iter().map(|own| own.id).collect();
        assert!(ids.contains(&2) && !ids.contains(&1), "{ids:?}");
        assert!(list.problems[0].file.ends_with(&name));
        assert!(list.problems[0].what.contains(word), "{:?}", list.problems);
        let report = repository.verify(None, BackupOptions::default()).unwrap();
        assert_eq!(
            (report.problems.len(), report.backups),
            (1, ids.len() as u64)
        );
        let target = Disk::simulated(&SimDisk::new());
        told(
            repository.restore_on(1, &target, BackupOptions::default()),
            &[word],
        );
        assert!(target.list().unwrap().is_empty());
        told(repository.prune(RetentionPolicy::newest(1)), &[word]);
        // A backup is made all the same, and takes nothing away.
        let third = backup(&subject.db, &to);
        assert_restores(&repository, 2, &options, &twin);
        assert_restores(&repository, third.id, &options, &twin);
        to.set_raw(&name, good.clone());
        assert_restores(&repository, 1, &options, &first);
    }
    // Whoever gives it up removes its file.
    Disk::simulated(&to).remove(&name).unwrap();
    let report = repository(&to).prune(RetentionPolicy::newest(9)).unwrap();
    assert!(
        report.removed.is_empty() && report.objects > 0,
        "{report:?}"
    );
    assert_whole(&repository(&to));
}

#[test]
fn a_restore_writes_into_no_directory_with_something_in_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    for engine in engines() {
        let store = path(&format!("store {engine}"));
        let db = Options::default().engine(engine).open(&store).unwrap();
        db.put("basket", "stones").unwrap();
        let to = path(&format!("backups of {engine}"));
        let repository = BackupRepository::create_or_open(&to).unwrap();
        let made = db.backup(&repository, BackupOptions::default()).unwrap();
        assert_eq!(made.store, store.to_str().unwrap());
        assert_eq!(made.engine, engine.name());
        let restore = |to: &Path| repository.restore(1, to, BackupOptions::default());
        for place in [&store, &to] {
            let before = fs::read_dir(place).unwrap().count();
            told(restore(place), &["already exists"]);
            assert_eq!(fs::read_dir(place).unwrap().count(), before);
        }
        db.put("basket", "sand").unwrap();
        db.close().unwrap();
        told(restore(&store), &["already exists"]);

        // New, in a new place; and one that is there and empty, such as a mount point.
        let empty = path(&format!("empty {engine}"));
        fs::create_dir(&empty).unwrap();
        for place in [&path(&format!("deep/{engine}")), &empty] {
            restore(place).unwrap();
            let db = Db::open(place).unwrap();
            assert_eq!(db.engine(), engine);
            assert_eq!(db.get("basket").unwrap().as_deref(), Some(&b"stones"[..]));
            db.close().unwrap();
            told(restore(place), &["already exists"]);
        }
        told(
            repository.restore(7, path("seventh"), BackupOptions::default()),
            &["no backup 7", "choose from: 1"],
        );
        assert!(!path("seventh").exists() && !path("seventh.incomplete").exists());
    }
}

#[test]
fn a_repository_without_permission_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let db = Db::open(path("store")).unwrap();
    db.put("basket", "stones").unwrap();
    let repository = BackupRepository::create_or_open(path("backups")).unwrap();
    db.backup(&repository, BackupOptions::default()).unwrap();
    let allow = |mode| {
        fs::set_permissions(path("backups"), fs::Permissions::from_mode(mode)).unwrap();
    };
    allow(0o500);
    // Root may do all.
    let is_root = fs::File::create(path("backups").join("probe")).is_ok();
    if !is_root {
        told(
            db.backup(&repository, BackupOptions::default()),
            &["ermission", "backups"],
        );
        let reader = BackupRepository::open(path("backups")).unwrap();
        assert_whole(&reader);
        reader
            .restore(1, path("restored"), BackupOptions::default())
            .unwrap();
    }
    allow(0o700);
}

#[test]
fn engines_without_backups_and_closed_stores_say_so() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let repository = BackupRepository::create_or_open(path("backups")).unwrap();
    for engine in Engine::ALL.iter().filter(|own| !own.capabilities().backup) {
        let pool = MappedOptions::default()
            .pool_bytes(64 << 20)
            .expected_records(64);
        let options = Options::default().engine(*engine).mapped(pool);
        let db = options.open(path(engine.name())).unwrap();
        let refused = db.backup(&repository, BackupOptions::default());
        let error = told(refused, &[engine.name(), "backups"]);
        assert!(matches!(error, Error::Unsupported { .. }));
    }
    let db = Db::open(path("store")).unwrap();
    db.put("basket", "stones").unwrap();
    db.clone().close().unwrap();
    let closed = db.backup(&repository, BackupOptions::default());
    assert!(matches!(closed, Err(Error::Closed)), "{closed:?}");
    let options = Options::default().read_only(true);
    let db = options.open(path("store")).unwrap();
    let refused = db.backup(&repository, BackupOptions::default());
    told(refused, &["opened read-only"]);
    assert!(repository.list().unwrap().backups.is_empty());
    let left = fs::read_dir(path("backups")).unwrap();
    assert_eq!(left.count(), 2, "the root and the lock");
}
