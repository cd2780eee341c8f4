//! A drive that loses data while the system runs on: the boot is the same, and pages of the pool's
//! file are of another time.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::super::page_witness::ATTACHMENT;
use super::*;
use crate::seeded::{SeededRng, setting};

const PAGE: usize = 4096;

struct Files {
    dir: tempfile::TempDir,
}

impl Files {
    fn new() -> Files {
        let dir = tempfile::tempdir().unwrap();
        Files { dir }
    }

    fn pool(&self) -> PathBuf {
        self.dir.path().join("pool")
    }

    fn options(&self) -> PoolOptions {
        PoolOptions {
            checkpoint: Some(self.dir.path().join("pool.checkpoint")),
            ..options()
        }
    }

    fn create(&self) -> Pool {
        let pool = Pool::create(&self.pool(), self.options()).unwrap();
        let within = pool.write_guard();
        new_root(&pool, WORDS as u64);
        drop(within);
        pool
    }

    fn open(&self) -> crate::Result<Pool> {
        Pool::open(&self.pool(), self.options())
    }

    /// The files as they are, somewhere else.
    fn copy(&self) -> Files {
        let copy = Files::new();
        for name in ["pool", "pool.checkpoint"] {
            std::fs::copy(self.dir.path().join(name), copy.dir.path().join(name)).unwrap();
        }
        copy
    }
}

/// Words of the root, each a page away from the next one.
const WORDS: usize = 24 * PAGE / 8;

fn word(pool: &Pool, index: usize) -> &PAtomicU64 {
    &pool.slice(pool.root::<PAtomicU64>(), WORDS)[index * PAGE / 8]
}

fn set(pool: &Pool, index: usize, value: u64) {
    let _within = pool.write_guard();
    word(pool, index).store_persist(pool, value, Ordering::Release);
}

fn values(pool: &Pool) -> Vec<u64> {
    let value = |index| word(pool, index).load(pool, Ordering::Acquire);
    (0..24).map(value).collect()
}

/// Only the boot told whether power was lost. A drive that was pulled and put in again left a mix
/// of pages of two times, which was taken for the pool.
#[test]
fn a_drive_that_was_attached_again_is_not_trusted() {
    ATTACHMENT.set(Some(7));
    let files = Files::new();
    let pool = files.create();
    set(&pool, 0, 1);
    pool.sync().unwrap();
    set(&pool, 1, 2);
    drop(pool);
    let pool = files.open().unwrap();
    assert_eq!(values(&pool)[..2], [1, 2], "its process has ended, no more");
    set(&pool, 2, 3);
    drop(pool);
    ATTACHMENT.set(Some(8));
    let seen = Pool::inspect(&files.pool(), files.options()).unwrap();
    assert_eq!(values(&seen)[..3], [1, 0, 0]);
    drop(seen);
    let pool = files.open().unwrap();
    assert_eq!(values(&pool)[..3], [1, 0, 0]);
    set(&pool, 3, 4);
    pool.close().unwrap();
    // A pool that was closed is whole on any drive.
    ATTACHMENT.set(Some(9));
    assert_eq!(values(&files.open().unwrap())[..4], [1, 0, 0, 4]);
    ATTACHMENT.set(None);
}

/// A pool without a checkpoint is refused then, as after a loss of power.
#[test]
fn a_pool_without_a_checkpoint_on_another_drive_is_refused() {
    ATTACHMENT.set(Some(7));
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pool");
    drop(Pool::create(&path, options()).unwrap());
    drop(Pool::open(&path, options()).unwrap());
    ATTACHMENT.set(Some(8));
    let refused = Pool::open(&path, options()).map(drop);
    let Err(Error::Pool { fault, .. }) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(fault, PoolFault::Torn);
    ATTACHMENT.set(None);
}

/// A snapshot of a drive, or a copy, holds of an open pool what had been written by then.
#[test]
fn a_copy_of_an_open_pool_is_not_trusted_unless_somebody_vouches_for_it() {
    let files = Files::new();
    let pool = files.create();
    set(&pool, 0, 1);
    pool.sync().unwrap();
    set(&pool, 1, 2);
    let (copy, other) = (files.copy(), files.copy());
    drop(pool);
    assert_eq!(values(&copy.open().unwrap())[..2], [1, 0]);
    Pool::adopt(&other.pool()).unwrap();
    assert_eq!(values(&other.open().unwrap())[..2], [1, 2]);
    assert_eq!(values(&files.open().unwrap())[..2], [1, 2]);
}

/// The pages of a file, each as it was at some moments.
#[derive(Default)]
struct Pages(Vec<Vec<[u8; PAGE]>>);

impl Pages {
    fn of(path: &Path) -> Vec<[u8; PAGE]> {
        let bytes = std::fs::read(path).unwrap();
        let page = |chunk: &[u8]| <[u8; PAGE]>::try_from(chunk).unwrap();
        bytes.chunks_exact(PAGE).map(page).collect()
    }

    /// The system writes the pages of the file as they are now, from the first one on; a drive
    /// keeps those that `keeps` says.
    fn write(&mut self, now: &[[u8; PAGE]], keeps: impl Fn(usize) -> bool) {
        let mut next = self.0.last().cloned().unwrap_or_default();
        next.resize(now.len(), [0; PAGE]);
        for (at, page) in now.iter().enumerate().filter(|(at, _)| keeps(*at)) {
            next[at] = *page;
        }
        self.0.push(next);
    }

    fn put_back(&self, path: &Path) {
        let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
        let pages = self.0.last().unwrap();
        file.write_all_at(pages.as_flattened(), 0).unwrap();
    }
}

/// What a drive kept of the last time that the system wrote the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kept {
    /// All up to some page: the system had come so far.
    UpTo,
    /// Any half.
    Half,
}

/// The file system is taken away and mounted again, on the same drive and in the same place: boot,
/// device and inode are the same, and any pages of the file are old. What was synced is there.
#[test]
fn pages_that_are_lost_in_place_are_noticed_by_those_behind_the_pool() {
    let images = setting("GABION_DRIVE_IMAGES", 150);
    let (mut noticed, mut silent) = (0, 0);
    for seed in 0..images {
        let mut random = SeededRng::new(seed);
        let kept = [Kept::UpTo, Kept::Half][random.index(2)];
        let files = Files::new();
        let pool = files.create();
        let mut drive = Pages::default();
        let mut synced = vec![0; 24];
        for value in 1..60 {
            set(&pool, random.index(24), value);
            if random.one_in(8) {
                pool.sync().unwrap();
                synced = values(&pool);
            }
            if random.one_in(16) {
                drive.write(&Pages::of(&files.pool()), |_| true);
            }
        }
        let now = Pages::of(&files.pool());
        let end = random.index(now.len());
        let halves = random.word();
        drive.write(&now, |at| match kept {
            Kept::UpTo => at < end,
            Kept::Half => SeededRng::new(halves ^ at as u64).one_in(2),
        });
        drop(pool);
        drive.put_back(&files.pool());
        match files.open() {
            Ok(pool) if values(&pool) == synced => noticed += 1,
            // What was written after the last sync may be there, and may be in part.
            Ok(pool) => {
                let is_old = |(now, synced): (&u64, &u64)| now < synced;
                let has_lost = values(&pool).iter().zip(&synced).any(is_old);
                assert!(!has_lost || kept == Kept::Half, "seed {seed}");
                silent += u64::from(has_lost);
            }
            Err(error) => panic!("seed {seed}: {error}"),
        }
    }
    println!("drive: {images} images, {noticed} noticed, {silent} lost what was synced");
    assert!(noticed > images / 2, "{noticed} of {images}");
    assert!(silent <= images / 50, "{silent} of {images}");
}
