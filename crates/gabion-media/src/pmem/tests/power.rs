//! Pools with checkpoints: what comes back after the system went down.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::*;
use crate::disk::{Disk, Fault, FaultKind, SimDisk};

struct Files {
    _dir: tempfile::TempDir,
    pool: PathBuf,
    checkpoint: PathBuf,
}

impl Files {
    fn new() -> Files {
        let dir = tempfile::tempdir().unwrap();
        let (pool, checkpoint) = (dir.path().join("pool"), dir.path().join("pool.checkpoint"));
        Files {
            _dir: dir,
            pool,
            checkpoint,
        }
    }

    fn options(&self) -> PoolOptions {
        PoolOptions {
            checkpoint: Some(self.checkpoint.clone()),
            ..options()
        }
    }

    fn open(&self) -> Pool {
        Pool::open(&self.pool, self.options()).unwrap()
    }

    /// Another time's bytes in the place of a file's.
    fn put_back(path: &PathBuf, bytes: &[u8]) {
        let file = OpenOptions::new().write(true).open(path).unwrap();
        file.set_len(bytes.len() as u64).unwrap();
        file.write_all_at(bytes, 0).unwrap();
    }

    /// The system went down: some pages of the pool's file are of another time.
    fn lose_power(&self) {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(&self.pool)
            .unwrap();
        let pages = file.metadata().unwrap().len() / 4096;
        for page in (3..pages).step_by(2) {
            file.write_all_at(&[0xdb; 4096], page * 4096).unwrap();
        }
        file.write_all_at(&[0x5a; 16], 136).unwrap();
    }
}

/// The first bytes of the blocks of all words; 0 for none.
fn fills(pool: &Pool) -> Vec<u8> {
    let words = pool.slice(pool.root::<PAtomicU64>(), 8);
    let fill = |word: &PAtomicU64| match word.load(pool, Ordering::Acquire) {
        0 => 0,
        block => {
            let mut bytes = [0; 100];
            pool.read(block, &mut bytes);
            assert!(bytes.iter().all(|byte| *byte == bytes[0]), "{bytes:?}");
            bytes[0]
        }
    };
    words.iter().map(fill).collect()
}

fn change(pool: &Pool, index: u64, fill: u8) {
    let _within = pool.write_guard();
    let word = pool.root::<PAtomicU64>().element(index);
    if pool.at(word).load(pool, Ordering::Acquire) != 0 {
        take(pool, word);
    }
    put(pool, word, 100, fill);
}

fn new_pool(files: &Files) -> Pool {
    let pool = Pool::create(&files.pool, files.options()).unwrap();
    assert_eq!(pool.class(), PoolClass::PowerBySync);
    let within = pool.write_guard();
    new_root(&pool, 8);
    drop(within);
    pool
}

#[test]
fn after_the_loss_of_power_the_last_sync_is_there() {
    let files = Files::new();
    let pool = new_pool(&files);
    change(&pool, 0, 1);
    change(&pool, 1, 2);
    pool.sync().unwrap();
    pool.sync().unwrap();
    change(&pool, 0, 3);
    change(&pool, 2, 4);
    drop(pool);
    // The process ended, and the system did not: nothing is lost.
    let pool = files.open();
    assert_eq!(fills(&pool), [3, 2, 4, 0, 0, 0, 0, 0]);
    drop(pool);
    files.lose_power();
    let pool = files.open();
    assert_eq!(fills(&pool), [1, 2, 0, 0, 0, 0, 0, 0]);
    assert_eq!(pool.stats().used_blocks, 3);
    // It goes on from there, several times.
    for round in 5..15 {
        change(&pool, u64::from(round) % 8, round);
        if round % 2 == 0 {
            pool.sync().unwrap();
        }
    }
    let before = fills(&pool);
    pool.sync().unwrap();
    change(&pool, 0, 99);
    drop(pool);
    files.lose_power();
    assert_eq!(fills(&files.open()), before);
}

#[test]
fn a_sync_after_a_crash_of_the_process_is_whole() {
    let files = Files::new();
    let pool = new_pool(&files);
    change(&pool, 0, 1);
    drop(pool);
    let pool = files.open();
    change(&pool, 1, 2);
    pool.sync().unwrap();
    drop(pool);
    files.lose_power();
    assert_eq!(fills(&files.open())[..2], [1, 2]);
}

#[test]
fn a_closed_pool_is_found_and_goes_on_with_small_checkpoints() {
    let files = Files::new();
    let pool = new_pool(&files);
    change(&pool, 0, 1);
    pool.close().unwrap();
    let pool = files.open();
    assert!(pool.was_closed());
    assert_eq!(fills(&pool)[0], 1);
    let before = pool.stats().checkpoint_bytes;
    change(&pool, 1, 2);
    pool.sync().unwrap();
    let grown = pool.stats().checkpoint_bytes - before;
    assert!(grown > 0 && grown < 20 * 4096, "{grown}");
    drop(pool);
    files.lose_power();
    assert_eq!(fills(&files.open())[..2], [1, 2]);
}

/// The loss of power may leave a file as it was when the pool was closed, though it was opened
/// again and synced since: that sync counted for nothing.
#[test]
fn a_sync_after_a_pool_was_opened_again_is_not_lost_to_its_older_file() {
    let files = Files::new();
    let pool = new_pool(&files);
    change(&pool, 0, 1);
    pool.close().unwrap();
    let mut closed = std::fs::read(&files.pool).unwrap();
    // The system is started again.
    closed[136..152].fill(0x5a);
    let pool = files.open();
    change(&pool, 0, 2);
    pool.sync().unwrap();
    drop(pool);
    Files::put_back(&files.pool, &closed);
    let seen = Pool::inspect(&files.pool, files.options()).unwrap();
    assert_eq!(fills(&seen)[0], 2);
    drop(seen);
    let pool = files.open();
    assert_eq!(fills(&pool)[0], 2);
    change(&pool, 1, 3);
    pool.sync().unwrap();
    drop(pool);
    files.lose_power();
    assert_eq!(fills(&files.open())[..2], [2, 3]);
}

/// Who may not open a pool changed its checkpoint: what was being written to it was cut off.
#[test]
fn a_checkpoint_in_use_stays_as_it_is() {
    let files = Files::new();
    let pool = new_pool(&files);
    change(&pool, 0, 1);
    pool.sync().unwrap();
    let mut unfinished = std::fs::read(&files.checkpoint).unwrap();
    unfinished.extend([7; 5000]);
    Files::put_back(&files.checkpoint, &unfinished);
    let open = |checkpoint: &PathBuf, pool: &PathBuf| {
        let options = PoolOptions {
            checkpoint: Some(checkpoint.clone()),
            ..options()
        };
        Pool::open(pool, options).map(drop)
    };
    let refused = open(&files.checkpoint, &files.pool);
    assert!(matches!(refused, Err(Error::Locked { .. })), "{refused:?}");
    // Nor is that of another pool, whatever it is taken for.
    let other = Files::new();
    new_pool(&other).close().unwrap();
    assert!(open(&files.checkpoint, &other.pool).is_err());
    assert_eq!(std::fs::read(&files.checkpoint).unwrap(), unfinished);
}

/// A checkpoint that could not be read cost the pool's own file, too.
#[test]
fn a_damaged_checkpoint_leaves_the_file_of_the_pool() {
    let files = Files::new();
    let pool = new_pool(&files);
    let within = pool.write_guard();
    put(&pool, pool.root::<PAtomicU64>(), 16 << 10, 9);
    drop(within);
    pool.sync().unwrap();
    change(&pool, 1, 2);
    pool.sync().unwrap();
    drop(pool);
    files.lose_power();
    let torn = std::fs::read(&files.pool).unwrap();
    // A page that the second sync did not write.
    let mut bytes = std::fs::read(&files.checkpoint).unwrap();
    let at = bytes.windows(4096).position(|page| page == [9; 4096]);
    bytes[at.unwrap()] ^= 1;
    Files::put_back(&files.checkpoint, &bytes);
    let damaged = Pool::open(&files.pool, files.options()).map(drop);
    assert!(damaged.is_err());
    assert!(std::fs::read(&files.pool).unwrap() == torn);
}

#[test]
fn a_pool_in_lost_memory_comes_back_from_its_checkpoint() {
    let files = Files::new();
    let pool = new_pool(&files);
    change(&pool, 0, 1);
    pool.sync().unwrap();
    change(&pool, 0, 2);
    drop(pool);
    std::fs::remove_file(&files.pool).unwrap();
    assert_eq!(fills(&files.open())[0], 1);
    // A restoration that was cut short left a file without a header.
    let file = OpenOptions::new().write(true).open(&files.pool).unwrap();
    file.set_len(0).unwrap();
    file.set_len(1 << 19).unwrap();
    assert_eq!(fills(&files.open())[0], 1);
}

#[test]
fn checkpoints_are_named_and_belong_to_their_pool() {
    let files = Files::new();
    new_pool(&files).close().unwrap();
    assert_eq!(refusal(&files.pool, options()), PoolFault::CheckpointNeeded);
    let other = Files::new();
    new_pool(&other).close().unwrap();
    let mixed = PoolOptions {
        checkpoint: Some(other.checkpoint.clone()),
        ..options()
    };
    assert_eq!(refusal(&files.pool, mixed), PoolFault::CheckpointOfAnother);
    assert!(matches!(
        Pool::create(&files.pool.with_extension("new"), files.options()),
        Err(Error::AlreadyExists { .. })
    ));
    let plain = Files::new();
    let pool = Pool::create(&plain.pool, options()).unwrap();
    let unsyncable = pool.sync().unwrap_err().to_string();
    assert!(unsyncable.contains("class process"), "{unsyncable}");
    drop(pool);
    assert_eq!(
        refusal(&plain.pool, plain.options()),
        PoolFault::CheckpointUnknown
    );
}

/// A pool on a full file system could not be closed: its last checkpoint found no space. The file
/// has its space, and is durable by a sync of its own, until the pool is opened again; then there
/// must be a checkpoint first, for the one before is older than what was closed.
#[test]
fn a_pool_without_space_for_a_checkpoint_is_closed_in_its_file() {
    // Whether the last checkpoint before the close is of this opening.
    for was_synced in [false, true] {
        let files = Files::new();
        let sim = SimDisk::new();
        let options = || PoolOptions {
            checkpoint_disk: Some(Disk::simulated(&sim)),
            ..files.options()
        };
        let pool = Pool::create(&files.pool, options()).unwrap();
        let within = pool.write_guard();
        new_root(&pool, 8);
        drop(within);
        change(&pool, 0, 1);
        pool.close().unwrap();
        let pool = Pool::open(&files.pool, options()).unwrap();
        if was_synced {
            change(&pool, 1, 2);
            pool.sync().unwrap();
        }
        change(&pool, 2, 3);
        let expected = fills(&pool);
        sim.set_capacity(Some(0));
        assert!(pool.sync().unwrap_err().is_no_space());
        pool.close().unwrap();

        let closed = std::fs::read(&files.pool).unwrap();
        for _ in 0..2 {
            let refused = Pool::open(&files.pool, options()).unwrap_err();
            assert!(refused.is_no_space(), "{refused}");
            assert!(closed == std::fs::read(&files.pool).unwrap());
            let seen = Pool::inspect(&files.pool, options()).unwrap();
            assert!(seen.was_closed());
            assert_eq!(fills(&seen), expected);
        }
        sim.set_capacity(None);
        let pool = Pool::open(&files.pool, options()).unwrap();
        assert_eq!(fills(&pool), expected);
        change(&pool, 3, 4);
        drop(pool);
        files.lose_power();
        let pool = Pool::open(&files.pool, options()).unwrap();
        assert_eq!(fills(&pool), expected, "{was_synced}");
        change(&pool, 4, 5);
        let expected = fills(&pool);
        pool.close().unwrap();
        assert_eq!(
            fills(&Pool::open(&files.pool, options()).unwrap()),
            expected
        );
    }
}

/// What is no want of space is told, and so is one where the pool's file is not as lasting.
#[test]
fn a_close_that_fails_is_told() {
    let files = Files::new();
    let sim = SimDisk::new();
    let options = PoolOptions {
        checkpoint_disk: Some(Disk::simulated(&sim)),
        ..files.options()
    };
    let pool = Pool::create(&files.pool, options).unwrap();
    sim.inject(Fault::forever(sim.ops() + 1, FaultKind::Eio));
    let within = pool.write_guard();
    new_root(&pool, 8);
    drop(within);
    assert!(pool.close().is_err());
    let disk = Disk::system(files.pool.parent().unwrap()).unwrap();
    let other = std::fs::File::open("/proc/self/status").unwrap();
    assert!(!disk.shares_file_system("pool", &other).unwrap());
    let same = std::fs::File::open(&files.pool).unwrap();
    assert!(disk.shares_file_system("pool", &same).unwrap());
    assert!(disk.shares_file_system("nothing", &same).is_err());
}

/// Each change moves a unit from one word to another; a checkpoint that catches half of one would
/// show another sum.
#[test]
fn a_sync_beside_writers_catches_no_change_half_done() {
    let files = Files::new();
    let pool = new_pool(&files);
    let words = pool.slice(pool.root::<PAtomicU64>(), 8);
    let within = pool.write_guard();
    let far = pool.alloc(8192, 0).unwrap();
    let other: &PAtomicU64 = pool.at(far.offset::<PAtomicU64>());
    words[7].store_persist(&pool, 1000, Ordering::Release);
    other.store_persist(&pool, 1000, Ordering::Release);
    let other = {
        pool.fence();
        far.commit::<PAtomicU64>()
    };
    drop(within);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..3000 {
                    let _within = pool.write_guard();
                    words[7].fetch_add(&pool, 1, Ordering::AcqRel);
                    pool.persist(&words[7]);
                    let cell = pool.at(other);
                    cell.fetch_add(&pool, u64::MAX, Ordering::AcqRel);
                    pool.persist(cell);
                }
            });
        }
        for _ in 0..10 {
            pool.sync().unwrap();
        }
    });
    drop(pool);
    files.lose_power();
    let pool = files.open();
    let sum = pool.slice(pool.root::<PAtomicU64>(), 8)[7]
        .load(&pool, Ordering::Acquire)
        .wrapping_add(pool.at(other).load(&pool, Ordering::Acquire));
    assert_eq!(sum, 2000);
}

/// A sync waits until nobody is within the pool's gate, and who is within may look at statistics.
#[test]
fn statistics_do_not_wait_for_a_sync_that_waits_for_who_asks() {
    let files = Files::new();
    let pool = Pool::create(&files.pool, files.options()).unwrap();
    let syncs = pool.stats().checkpoint_syncs;
    let within = pool.write_guard();
    let syncing = pool.clone();
    let sync = std::thread::spawn(move || syncing.sync());
    // Long enough for the sync to come to the gate; should it not, the test shows nothing.
    std::thread::sleep(Duration::from_millis(50));
    let (tell, hear) = std::sync::mpsc::channel();
    let asking = pool.clone();
    let ask = std::thread::spawn(move || tell.send(asking.stats().checkpoint_syncs));
    let told = hear.recv_timeout(Duration::from_secs(10));
    drop(within);
    sync.join().unwrap().unwrap();
    ask.join().unwrap().unwrap();
    assert_eq!(told, Ok(syncs));
}

/// A sync holds what a close asks for the number of the last checkpoint, and waits for whoever may
/// change the pool. A close that asked from within waited for a sync that waited for it.
#[test]
fn a_close_beside_syncs_comes_to_its_end() {
    for round in 0..40 {
        let files = Files::new();
        let pool = new_pool(&files);
        change(&pool, 0, round + 1);
        pool.sync().unwrap();
        let is_closed = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let other = pool.clone();
            let is_closed = &is_closed;
            scope.spawn(move || {
                // ORDER: Relaxed; the thread only has to end.
                while !is_closed.load(Ordering::Relaxed) {
                    other.sync().unwrap();
                }
            });
            pool.close().unwrap();
            // ORDER: as above.
            is_closed.store(true, Ordering::Relaxed);
        });
        assert_eq!(fills(&files.open())[0], round + 1);
    }
}
