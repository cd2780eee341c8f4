//! The limit on what the background writes. The stores' clock stands still unless a test moves it,
//! so nothing here depends on how fast the machine is.

use std::time::Duration;

use gabion::{Clock, Engine, Options};
use gabion_media::{Disk, SimDisk};

use crate::support::{
    KEYSPACES, Operation, Subject, Twin, assert_twin, bytes_of, small_options, small_tuning, tuned,
};

/// Engines with a background that writes.
const ENGINES: [Engine; 2] = [Engine::Wip, Engine::Flex];

/// A store whose background may write next to nothing.
fn crawling(engine: Engine, clock: &Clock, threads: usize) -> Options {
    small_options()
        .engine(engine)
        .tuning(
            small_tuning()
                .memtable_budget_bytes(1 << 20)
                .bucket_bytes(256 << 10)
                .clock(clock.clone())
                .background_bytes_per_second_max(1 << 10),
        )
        .log_bytes_max(64 << 20)
        .background_threads(threads)
}

/// Puts so many bytes in values of 1 KiB.
fn put(subject: &Subject, twin: &mut Twin, bytes: u64) {
    for number in 0..bytes / 1024 {
        let key = format!("{:06}", number * 7919 % 100_003).into_bytes();
        let operation = Operation::new(0, key, Some(bytes_of(number, 1024)));
        subject
            .write(std::slice::from_ref(&operation), None)
            .unwrap();
        twin.apply(&operation);
    }
}

/// No token ever comes, and more is written than memory holds.
#[test]
fn writers_do_not_wait_for_tokens() {
    for (engine, threads) in ENGINES
        .iter()
        .flat_map(|engine| [1, 2, 3].map(|n| (*engine, n)))
    {
        let options = crawling(engine, &Clock::manual(), threads);
        let sim = SimDisk::new();
        let subject = Subject::open(&Disk::simulated(&sim), &options).unwrap();
        let mut twin = Twin::new(KEYSPACES.len());
        put(&subject, &mut twin, 6 << 20);
        assert!(subject.db.stats().flushes > 0);
        assert_twin(&subject.db, &twin);
        subject.db.close().unwrap();
    }
}

/// Jobs that wait for tokens end, and leave nothing behind.
#[test]
fn a_store_is_closed_while_its_jobs_wait() {
    for (engine, threads) in ENGINES
        .iter()
        .flat_map(|engine| [1, 2, 3].map(|n| (*engine, n)))
    {
        let options = crawling(engine, &Clock::manual(), threads);
        let sim = SimDisk::new();
        let disk = Disk::simulated(&sim);
        let subject = Subject::open(&disk, &options).unwrap();
        let mut twin = Twin::new(KEYSPACES.len());
        put(&subject, &mut twin, 700 << 10);
        subject.db.close().unwrap();

        let unlimited = tuned(options, |own| own.background_bytes_per_second_max(0));
        let subject = Subject::open(&disk, &unlimited).unwrap();
        assert_twin(&subject.db, &twin);
        subject.db.wait_idle().unwrap();
        assert_twin(&subject.db, &twin);
        subject.db.close().unwrap();
    }
}

/// While the clock stands still the background writes what the bucket holds and no more, and a
/// flush does not end; with time it does.
#[test]
fn the_background_writes_what_the_rate_allows() {
    ENGINES.into_iter().for_each(write_at_a_rate);
}

fn write_at_a_rate(engine: Engine) {
    const RATE: u64 = 256 << 10;
    // Two jobs may each have written a step and what ends a table without having asked for it.
    const UNASKED: u64 = 256 << 10;
    let clock = Clock::manual();
    // So much room that nothing presses writers.
    let options = tuned(crawling(engine, &clock, 2), |own| {
        own.memtable_budget_bytes(8 << 20)
            .background_bytes_per_second_max(RATE)
    });
    let options = options.space_amplification_max(f64::INFINITY);
    let sim = SimDisk::new();
    let subject = Subject::open(&Disk::simulated(&sim), &options).unwrap();
    let mut twin = Twin::new(KEYSPACES.len());
    put(&subject, &mut twin, 1 << 20);
    let paced = || {
        let written = subject.db.stats().written;
        written.flush + written.compaction + written.split
    };
    let pause = || std::thread::sleep(Duration::from_micros(500));
    let (flushed, stood_still, most) = std::thread::scope(|scope| {
        let waiter = scope.spawn(|| subject.db.flush());
        let mut most = 0;
        for _ in 0..200 {
            most = most.max(paced());
            pause();
        }
        let stood_still = !waiter.is_finished();
        while !waiter.is_finished() {
            clock.advance(Duration::from_secs(1));
            pause();
        }
        (waiter.join().unwrap(), stood_still, most)
    });
    flushed.unwrap();
    assert!(stood_still, "a flush of a megabyte ended without tokens");
    assert!(most <= RATE / 10 + UNASKED, "{most} bytes without tokens");
    assert!(paced() > 1 << 19);
    assert_twin(&subject.db, &twin);
    subject.db.close().unwrap();
}
