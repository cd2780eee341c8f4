//! Images that a loss of power leaves of stores in a mapped file.
//!
//! # Idea
//! Threads write to a store at mixed levels, keys that are there and keys that are not, values
//! longer than a page, batches over two keyspaces (`record`). Its checkpoints lie on a simulated
//! disk that records its operations. The power is cut after each operation, the file of the pool is
//! gone or torn, and the store is opened (`image`).
//!
//! # The oracle
//! An image holds of each thread's writes a prefix: at least those that were acknowledged before a
//! synced write began that was acknowledged before the cut, of whatever thread, and at most those
//! that were begun. And it holds no write without all those that were acknowledged before it began.
//!
//! # Larger runs
//! `GABION_MAPPED_IMAGES` is how many images each test opens, `GABION_SEED` where it begins.

mod image;
mod record;

use gabion_media::seeded::setting;
use gabion_media::{Fault, FaultKind};

use crate::Engine;
use image::{Counts, Found, explore, explore_drive};
use record::{Recording, Shape};

/// Images of each test unless it is told otherwise.
const IMAGES: u64 = 800;

/// Opens so many images of recordings of a shape, one recording for each seed.
fn explore_all(engine: Engine, shape: Shape) -> Counts {
    let wanted = setting("GABION_MAPPED_IMAGES", IMAGES);
    let first = setting("GABION_SEED", 1);
    let mut counts = Counts::default();
    for seed in first.. {
        let recording = Recording::new(engine, seed, shape, None);
        if let Err(told) = explore(&recording, &mut counts) {
            panic!("{engine}, seed {seed}, {shape:?}: {told}");
        }
        if counts.images >= wanted {
            break;
        }
    }
    println!("mapped crash: {engine}, {shape:?}, from seed {first}, {counts:?}");
    // Coverage is asked for per image, so that it is the same for longer runs.
    assert!(counts.lost_writes > counts.images / 20, "{counts:?}");
    assert!(counts.written_to > counts.images / 40, "{counts:?}");
    counts
}

const ALONE: Shape = Shape {
    threads: 1,
    writes: 60,
    takes_snapshots: false,
    is_full: false,
};

const TOGETHER: Shape = Shape {
    threads: 3,
    writes: 30,
    takes_snapshots: false,
    is_full: false,
};

/// `put` of a value longer than a page at `Buffered`, then a delete of a key that was not there at
/// `Sync`: a loss of power took the value. Only the page of the record's head was noted for the
/// checkpoint, since no more of it had been flushed.
#[test]
fn a_synced_write_to_scmkv_makes_all_before_it_durable() {
    explore_all(Engine::Scmkv, ALONE);
}

#[test]
fn a_synced_write_to_scmkv_makes_what_other_threads_wrote_durable() {
    explore_all(Engine::Scmkv, TOGETHER);
}

#[test]
fn a_synced_write_to_sptree_makes_all_before_it_durable() {
    explore_all(Engine::Sptree, ALONE);
}

#[test]
fn a_synced_write_to_sptree_makes_what_other_threads_wrote_durable() {
    explore_all(Engine::Sptree, TOGETHER);
}

/// Batches of deletes, and deletes of ranges, were refused by a full pool. Each one is there as a
/// whole or not at all, whenever the power fails, and the next one goes.
#[test]
fn deletes_in_a_full_pool_of_scmkv_are_whole() {
    explore_full(Engine::Scmkv);
}

#[test]
fn deletes_in_a_full_pool_of_sptree_are_whole() {
    explore_full(Engine::Sptree);
}

fn explore_full(engine: Engine) {
    let shape = Shape {
        writes: 16,
        is_full: true,
        ..ALONE
    };
    // An image takes as long as twenty of others.
    let wanted = setting("GABION_MAPPED_IMAGES", IMAGES) / 40;
    let mut counts = Counts::default();
    for seed in setting("GABION_SEED", 1).. {
        let recording = Recording::new(engine, seed, shape, None);
        let explored = explore(&recording, &mut counts);
        explored.unwrap_or_else(|told| panic!("{engine}, seed {seed}, full: {told}"));
        if counts.images >= wanted {
            break;
        }
    }
    println!("mapped crash: {engine}, full, {counts:?}");
    assert!(
        counts.lost_writes > 0 && counts.written_to > 0,
        "{counts:?}"
    );
}

/// A disk that only says that it has synced is found out: else the tests above would show nothing.
#[test]
fn a_disk_that_lies_about_syncs_is_found_out() {
    for engine in [Engine::Scmkv, Engine::Sptree] {
        let found_out = (1..=10).any(|seed| {
            let lie = Fault::forever(1, FaultKind::SyncLies);
            let recording = Recording::new(engine, seed, ALONE, Some(lie));
            explore(&recording, &mut Counts::default()).is_err()
        });
        assert!(found_out, "{engine}: no image showed the lie");
    }
}

/// A drive that lost pages while the system ran on left a pool that was trusted, since the boot was
/// the same: of 40 images 39 were told to be damaged, and one had lost a synced write.
#[test]
fn pages_that_a_drive_has_lost_are_noticed() {
    let images = setting("GABION_MAPPED_IMAGES", IMAGES) / 10;
    for engine in [Engine::Scmkv, Engine::Sptree] {
        for found in [Found::Elsewhere, Found::InPlace] {
            let mut counts = Counts::default();
            for seed in setting("GABION_SEED", 1).. {
                let shape = Shape {
                    takes_snapshots: true,
                    ..ALONE
                };
                let recording = Recording::new(engine, seed, shape, None);
                let explored = explore_drive(&recording, found, 20, &mut counts);
                explored.unwrap_or_else(|told| panic!("{engine}, seed {seed}: {told}"));
                if counts.images >= images {
                    break;
                }
            }
            println!("mapped drive: {engine}, {found:?}, {counts:?}");
            // In its place, what is lost shows by pages behind the pool, unless all of them are
            // there by chance: one image in a hundred. Pages are where a hash with a new key in
            // each run puts them, so the bound has room for chance.
            assert!(counts.told <= counts.images / 4, "{counts:?}");
            assert!(counts.silent <= counts.images / 16, "{counts:?}");
        }
    }
}
