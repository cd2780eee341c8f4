//! What a write survives at `Interval`: the time that it names, whatever the store's own durability
//! is, and whoever syncs. The clock is moved by hand, and power is cut on a simulated disk.

use std::time::Duration;

use gabion::{Clock, Durability, Engine, Options, WriteBatch};
use gabion_media::{Disk, SimDisk, Tear};

use crate::support::{Subject, engines_on_disks, small_options, small_tuning};

const INTERVAL: Duration = Duration::from_millis(50);
const LEVEL: Durability = Durability::Interval(INTERVAL);

/// A store, with its clock and its disk.
struct Store {
    sim: SimDisk,
    clock: Clock,
    options: Options,
    subject: Subject,
}

impl Store {
    fn new(engine: Engine, threads: usize, durability: Durability) -> Store {
        let (sim, clock) = (SimDisk::recording(), Clock::manual());
        let options = small_options()
            .engine(engine)
            // Nothing is flushed, which would sync the log as well.
            .tuning(
                small_tuning()
                    .memtable_budget_bytes(64 << 20)
                    .clock(clock.clone()),
            )
            .log_bytes_max(64 << 20)
            .background_threads(threads)
            .durability(durability);
        let subject = Subject::open(&Disk::simulated(&sim), &options).unwrap();
        Store {
            sim,
            clock,
            options,
            subject,
        }
    }

    /// Which of these keys a cut of the power leaves, of the default keyspace.
    fn left_of(&self, keys: &[&str]) -> Vec<bool> {
        let cut = self.sim.power_cut(self.sim.ops(), 7, Tear::DropAll);
        let options = self.options.clone().background_threads(0);
        let left = Subject::open(&Disk::simulated(&cut), &options).unwrap();
        let is_left = |key: &&str| left.db.get(key).unwrap().is_some();
        keys.iter().map(is_left).collect()
    }

    /// Waits for what a thread does.
    fn await_left(&self, keys: &[&str]) {
        while self.left_of(keys).contains(&false) {
            std::thread::yield_now();
        }
    }
}

/// A store without threads synced nothing before it was closed: a put that was 3 seconds old at an
/// interval of 50 ms was gone.
#[test]
fn without_threads_the_thread_that_writes_syncs() {
    for engine in engines_on_disks() {
        let store = Store::new(engine, 0, LEVEL);
        let put = |key: &str| store.subject.db.put(key, "value").unwrap();
        put("a");
        store.clock.advance(INTERVAL / 2);
        put("b");
        assert_eq!(store.left_of(&["a", "b"]), [false, false], "{engine}");
        store.clock.advance(INTERVAL / 2);
        put("c");
        assert_eq!(store.left_of(&["a", "b", "c"]), [true; 3], "{engine}");
        // The interval begins anew with the next write.
        store.clock.advance(INTERVAL * 9 / 10);
        put("d");
        store.clock.advance(INTERVAL * 9 / 10);
        put("e");
        assert_eq!(store.left_of(&["c", "d", "e"]), [true, false, false]);
        store.clock.advance(INTERVAL / 10);
        put("f");
        assert_eq!(store.left_of(&["d", "e", "f"]), [true; 3], "{engine}");
        // Nobody writes any more: a close syncs.
        store.clock.advance(INTERVAL / 10);
        put("g");
        assert_eq!(store.left_of(&["g"]), [false], "{engine}");
        store.subject.db.clone().close().unwrap();
        assert_eq!(store.left_of(&["g"]), [true], "{engine}");
    }
}

#[test]
fn with_threads_one_of_them_syncs() {
    for engine in engines_on_disks() {
        let store = Store::new(engine, 2, LEVEL);
        for round in 0..5 {
            let key = format!("key {round}");
            store.subject.db.put(&key, "value").unwrap();
            assert_eq!(store.left_of(&[&key]), [false], "{engine}");
            store.clock.advance(INTERVAL);
            store.await_left(&[&key]);
        }
        store.subject.db.close().unwrap();
    }
}

/// A write at `Interval` was no more than `Buffered` where the store was that.
#[test]
fn the_level_of_a_write_holds_whatever_the_stores_is() {
    let unlimited = Durability::Interval(Duration::MAX);
    for engine in engines_on_disks() {
        for (threads, own) in [0, 2]
            .into_iter()
            .flat_map(|threads| [Durability::Buffered, unlimited].map(|own| (threads, own)))
        {
            let store = Store::new(engine, threads, own);
            let keyspace = store.subject.db.default_keyspace();
            for number in 0..4 {
                let (plain, asked) = (format!("plain {number}"), format!("asked {number}"));
                store.subject.db.put(&plain, "value").unwrap();
                store.clock.advance(10 * INTERVAL);
                store.subject.db.put(&plain, "value").unwrap();
                assert_eq!(store.left_of(&[&plain]), [false], "{engine}, {threads}");
                match number {
                    0 => keyspace.put_with(&asked, "value", LEVEL).unwrap(),
                    1 => {
                        keyspace.put(&asked, "value").unwrap();
                        keyspace.delete_with("absent", LEVEL).unwrap();
                    }
                    2 => {
                        keyspace.put(&asked, "value").unwrap();
                        keyspace.delete_range_with("x".."y", LEVEL).unwrap();
                    }
                    _ => {
                        let mut batch = WriteBatch::new();
                        batch.put(keyspace, &asked, "value").unwrap();
                        store.subject.db.write_with(batch, LEVEL).unwrap();
                    }
                }
                assert_eq!(store.left_of(&[&asked]), [false], "{engine}, {threads}");
                store.clock.advance(INTERVAL);
                if threads == 0 {
                    store.subject.db.put("another", "value").unwrap();
                }
                // What came before is durable with it.
                store.await_left(&[&plain, &asked]);
            }
            store.subject.db.close().unwrap();
        }
    }
}

/// What a write did not ask for does not come: no sync for it is on the disk, however long it is.
#[test]
fn a_buffered_write_is_not_synced_at_intervals() {
    for engine in engines_on_disks() {
        for threads in [0, 2] {
            let store = Store::new(engine, threads, LEVEL);
            let keyspace = store.subject.db.default_keyspace();
            let put = |key: &str| {
                keyspace
                    .put_with(key, "value", Durability::Buffered)
                    .unwrap()
            };
            for round in 0..50 {
                put(&format!("key {round}"));
                store.clock.advance(INTERVAL);
            }
            assert_eq!(store.left_of(&["key 0", "key 49"]), [false; 2], "{engine}");
            keyspace
                .put_with("last", "value", Durability::Sync)
                .unwrap();
            assert_eq!(store.left_of(&["key 0", "last"]), [true; 2], "{engine}");
            store.subject.db.close().unwrap();
        }
    }
}

/// A sync that fails makes the store read-only, and nobody tries again and again.
#[test]
fn a_sync_at_its_interval_that_fails_is_told() {
    use gabion_media::{Fault, FaultKind};
    for engine in engines_on_disks() {
        for threads in [0, 2] {
            let store = Store::new(engine, threads, LEVEL);
            store.subject.db.put("a", "value").unwrap();
            let fault = Fault::once(store.sim.ops(), FaultKind::SyncFails { keep: false });
            store.sim.inject(fault);
            store.clock.advance(INTERVAL);
            while store.subject.db.put("b", "value").is_ok() {
                std::thread::yield_now();
            }
            let error = store.subject.db.put("c", "value").unwrap_err();
            assert!(matches!(error, gabion::Error::ReadOnly { .. }), "{error}");
            assert!(store.subject.db.close().is_err(), "{engine}, {threads}");
        }
    }
}
