//! What a forked child of a process does to the files that its parent has open: nothing.
//!
//! A process of its own, in which one test runs at a time: a child has copies of all that is open.

use std::io::{Read, Write};
use std::path::Path;

use gabion_media::pmem::{POff, Pool, PoolOptions};
use gabion_media::{DirLock, Disk, Error, LockHolder, Owner, Purpose, Result, forked};
use rustix::process::{Pid, Signal, kill_process};

/// Held by the test that runs.
static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());

fn alone() -> std::sync::MutexGuard<'static, ()> {
    ALONE
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Turns what should not be into what a child says of itself.
fn expect(holds: bool, what: impl std::fmt::Debug) -> Result<(), String> {
    match holds {
        true => Ok(()),
        false => Err(format!("{what:?}")),
    }
}

fn holder_of(refused: Result<DirLock>) -> Option<u32> {
    match refused {
        Err(Error::Locked { holder, .. }) => holder.map(|holder: LockHolder| holder.process),
        other => panic!("{other:?} is no refusal"),
    }
}

fn is_forked<T: std::fmt::Debug>(result: Result<T>) -> Result<(), String> {
    expect(matches!(result, Err(Error::Forked { .. })), result)
}

fn own_id() -> Option<u32> {
    Some(std::process::id())
}

#[test]
fn a_child_tells_how_it_went() {
    let _alone = alone();
    assert_eq!(forked::in_child(|| Ok(())), Ok(()));
    let said = forked::in_child(|| Err("it failed".into()));
    assert_eq!(said, Err("it failed.".into()));
    let killed = forked::in_child(|| {
        let _ = kill_process(rustix::process::getpid(), Signal::KILL);
        Ok(())
    });
    assert!(killed.is_err_and(|what| what.contains("said nothing")));
}

#[test]
fn a_forked_child_is_another_process_and_has_things_of_its_own() {
    let _alone = alone();
    let owner = Owner::current();
    assert!(owner.is_here() && owner.is_this_process());
    assert_eq!(Some(owner.process()), own_id());
    forked::in_child(|| {
        let own = Owner::current();
        let told = (owner.is_here(), owner.is_this_process(), own.is_here());
        expect(told == (false, false, true), (owner, own))?;
        // And so have its own children.
        forked::in_child(|| expect(!own.is_here() && !owner.is_here(), own))
    })
    .unwrap();
    assert!(owner.is_here() && owner == Owner::current());
}

/// A child that dropped its copy freed the lock of its parent, and emptied its file.
#[test]
fn a_forked_child_gives_no_lock_up() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let disk = Disk::system(dir.path()).unwrap();
    let mut lock = Some(disk.lock("LOCK").unwrap());
    forked::in_child(|| {
        drop(lock.take());
        is_forked(disk.lock("OTHER"))
    })
    .unwrap();
    let told = std::fs::read_to_string(dir.path().join("LOCK")).unwrap();
    assert_eq!(told, format!("{}\n", std::process::id()));
    let other = Disk::system(dir.path()).unwrap();
    assert_eq!(holder_of(other.lock("LOCK")), own_id());
    forked::in_child(|| {
        let own = Disk::system(dir.path()).and_then(|disk| disk.lock("LOCK"));
        expect(matches!(own, Err(Error::Locked { .. })), own)
    })
    .unwrap();
    // A child that lives on does not keep it.
    let child = sleeping_child().unwrap();
    drop(lock);
    other.lock("LOCK").unwrap();
    child.kill();
}

fn sleeping_child() -> Result<forked::ForkedChild, String> {
    forked::start(|| {
        std::thread::sleep(std::time::Duration::from_mins(10));
        Ok(())
    })
}

/// A second opener made a new lock file and had the store, too; neither could open it afterwards.
#[test]
fn a_lock_file_that_is_removed_or_replaced_by_hand_lets_nobody_in() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("LOCK");
    let disk = Disk::system(dir.path()).unwrap();
    let lock = disk.lock("LOCK").unwrap();
    for left in [None, Some(""), Some("1\n"), Some("4294967295\n")] {
        std::fs::remove_file(&file).unwrap();
        if let Some(content) = left {
            write(&file, content);
        }
        let other = Disk::system(dir.path()).unwrap();
        assert_eq!(holder_of(other.lock("LOCK")), own_id());
        // Who is refused leaves nothing.
        assert_eq!(file.exists(), left.is_some());
        write(&file, "");
    }
    drop(lock);
    disk.lock("LOCK").unwrap();
}

fn write(path: &Path, content: &str) {
    let mut file = std::fs::File::create(path).unwrap();
    file.write_all(content.as_bytes()).unwrap();
}

/// What a dead process left in the lock file was told as the holder.
#[test]
fn nobody_is_named_who_does_not_hold_the_lock() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let (file, path) = (dir.path().join("LOCK"), dir.path());
    // The file alone is locked, as where a file system locks no directories.
    let disk = Disk::system(path).unwrap();
    let lock = disk.part("a-").lock("LOCK").unwrap();
    for content in [
        "1\n",
        "4194304\n",
        "",
        "words",
        "-1",
        "99999999999999999999",
    ] {
        write(&path.join("a-LOCK"), content);
        assert_eq!(holder_of(disk.part("a-").lock("LOCK")), own_id());
    }
    drop(lock);

    // The holder is dead, and a child of it has the copy of the lock that is left.
    let (mut told, mut tells) = std::io::pipe().unwrap();
    let holder = forked::start(move || {
        let lock = Disk::system(path).and_then(|disk| disk.lock("LOCK"));
        let lock = lock.map_err(|error| error.to_string())?;
        let child = sleeping_child()?;
        let named = writeln!(tells, "{}", child.id());
        std::mem::forget(lock);
        named.map_err(|error| error.to_string())
    })
    .unwrap();
    let dead = holder.id();
    holder.wait().unwrap();
    let mut child = String::new();
    let mut byte = [0];
    // Not to its end: the child has a copy of the pipe, too.
    while told.read(&mut byte).unwrap() == 1 && byte != *b"\n" {
        child.push(char::from(byte[0]));
    }
    let named = std::fs::read_to_string(&file).unwrap();
    assert_eq!(named, format!("{dead}\n"));
    let refused = disk.lock("LOCK").unwrap_err().to_string();
    assert!(refused.contains("by another process"), "{refused}");
    let child = Pid::from_raw(child.parse().unwrap()).unwrap();
    kill_process(child, Signal::KILL).unwrap();
    while disk.lock("LOCK").is_err() {
        std::thread::yield_now();
    }
}

fn contents(dir: &Path) -> Vec<(String, Vec<u8>)> {
    let disk = Disk::system(dir).unwrap();
    let names = disk.list().unwrap();
    let read = |name: String| {
        let content = disk.read_all(&name).unwrap();
        (name, content)
    };
    names.into_iter().map(read).collect()
}

/// A child cut, wrote and removed files of its parent, which died at its next store into the
/// mapping of one.
#[test]
fn a_forked_child_changes_no_file_of_its_parent() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let disk = Disk::system(dir.path()).unwrap();
    let mut appender = disk.create_append("appended", Purpose::Flush).unwrap();
    let mut random = disk.create_random("random").unwrap();
    let mut log = Some(disk.create_log("1.log", 1 << 16).unwrap());
    appender.append(b"abc").unwrap();
    random.write_at(0, b"abc", Purpose::Flush).unwrap();
    log.as_mut().unwrap().append(&[b"abc"]).unwrap();
    let before = contents(dir.path());
    forked::in_child(|| {
        let mut log = log.take().ok_or("no log")?;
        is_forked(appender.append(b"x"))?;
        is_forked(appender.cut())?;
        is_forked(appender.sync())?;
        is_forked(random.write_at(1, b"x", Purpose::Flush))?;
        is_forked(random.punch(0, 2))?;
        is_forked(random.sync())?;
        is_forked(log.append(&[b"x"]))?;
        is_forked(log.sync_handle().sync())?;
        is_forked(log.finish())?;
        is_forked(disk.create_append("new", Purpose::Flush))?;
        is_forked(disk.reopen_append("appended", Purpose::Flush))?;
        is_forked(disk.create_log("2.log", 1 << 16))?;
        is_forked(disk.create_random("new"))?;
        is_forked(disk.open_random("random"))?;
        is_forked(disk.replace("appended", b"x", Purpose::Flush))?;
        is_forked(disk.rename("appended", "new"))?;
        is_forked(disk.remove("appended"))?;
        is_forked(disk.truncate("appended", 0))?;
        is_forked(disk.sync_file("appended"))?;
        is_forked(disk.sync_dir())?;
        is_forked(disk.remove_dir())?;
        // By a disk of its own it does what it is told to.
        let own = Disk::system(disk.path()).and_then(|own| own.link_to(&disk, "appended"));
        is_forked(own)
    })
    .unwrap();
    assert_eq!(contents(dir.path()), before);
    let mut log = log.unwrap();
    log.append(&[&[7; 1 << 15]]).unwrap();
    log.sync_handle().sync().unwrap();
    log.finish().unwrap();
}

#[test]
fn a_pool_stays_with_the_process_that_opened_it() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pool");
    let options = || PoolOptions {
        size: 4 << 20,
        checkpoint: Some(dir.path().join("checkpoint")),
        ..PoolOptions::default()
    };
    let mut pool = Some(Pool::create(&path, options()).unwrap());
    let block: POff<u8> = {
        let pool = pool.as_ref().unwrap();
        let _within = pool.write_guard();
        pool.alloc(64, 0).unwrap().commit()
    };
    let before = std::fs::read(&path).unwrap();
    forked::in_child(|| {
        let pool = pool.take().ok_or("no pool")?;
        is_forked(pool.alloc(64, 0))?;
        is_forked(pool.retire(block, 0))?;
        is_forked(pool.sync())?;
        is_forked(pool.clone().close())?;
        drop(pool);
        let own = Pool::open(&path, options());
        expect(matches!(own, Err(Error::Locked { .. })), own)
    })
    .unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), before);
    let child = sleeping_child().unwrap();
    pool.take().unwrap().close().unwrap();
    // Whoever has a copy of its file.
    let pool = Pool::open(&path, options()).unwrap();
    assert!(pool.was_closed());
    child.kill();
}
