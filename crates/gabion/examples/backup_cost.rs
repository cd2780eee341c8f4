//! What backups of a store cost: the first one, one of the unchanged store, and one after a change
//! of one record in a hundred, in a row or scattered.
//!
//! ```text
//! cargo run --release -p gabion --example backup_cost -- wip 2000 DIR
//! ```
//!
//! Prints, for each, the bytes that the process read and wrote by calls of the system, and seconds.

use std::path::PathBuf;
use std::time::Instant;

use gabion::{BackupOptions, BackupRepository, Db, Options};

const VALUE_BYTES: usize = 1000;

/// Bytes that the process has read and written by calls.
fn moved() -> (u64, u64) {
    let io = std::fs::read_to_string("/proc/self/io").unwrap_or_default();
    let of = |name: &str| {
        let line = io.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|count| count.trim().parse().ok())
            .unwrap_or(0)
    };
    (of("rchar:"), of("wchar:"))
}

/// A value that does not compress.
fn value(number: u64, round: u64) -> Vec<u8> {
    let mut word = number ^ round << 40 ^ 0x9e37_79b9_7f4a_7c15;
    let mut next = || {
        word ^= word << 13;
        word ^= word >> 7;
        word ^= word << 17;
        word.to_le_bytes()
    };
    let words = std::iter::repeat_with(&mut next).take(VALUE_BYTES / 8);
    words.flatten().collect()
}

/// The key of a record: records with neighbouring numbers are neighbours, or far from each other.
fn key(number: u64) -> [u8; 8] {
    number.swap_bytes().to_le_bytes()
}

fn backup(db: &Db, repository: &BackupRepository, name: &str) -> gabion::Result<()> {
    db.flush()?;
    db.wait_idle()?;
    let (began, before) = (Instant::now(), moved());
    let made = db.backup(repository, BackupOptions::default())?;
    let (took, after) = (began.elapsed(), moved());
    println!(
        "{name:24} {:8.1} MB read {:8.1} MB written {:6.2} s  {:8.1} MB, {:.1} MB new",
        mb(after.0 - before.0),
        mb(after.1 - before.1),
        took.as_secs_f64(),
        mb(made.bytes),
        mb(made.bytes_copied),
    );
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "figures with few digits")]
fn mb(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let engine = arguments
        .next()
        .unwrap_or_else(|| "wip".to_owned())
        .parse()?;
    let records = 1000
        * arguments
            .next()
            .map_or(Ok(100), |count| count.parse::<u64>())?;
    let parent = arguments
        .next()
        .map_or_else(std::env::temp_dir, PathBuf::from);
    let dir = tempfile::tempdir_in(parent)?;
    let db = Options::default()
        .engine(engine)
        .open(dir.path().join("store"))?;
    for number in 0..records {
        // In a scattered order, each once.
        let number = number.wrapping_mul(7_919) % records;
        db.put(key(number), value(number, 0))?;
    }
    let repository = BackupRepository::create_or_open(dir.path().join("repository"))?;
    backup(&db, &repository, "first")?;
    backup(&db, &repository, "unchanged")?;
    for number in records / 2..records / 2 + records / 100 {
        db.put(key(number), value(number, 1))?;
    }
    backup(&db, &repository, "1 % in a row changed")?;
    for number in 0..records / 100 {
        let number = number * 100 + number * 31 % 100;
        db.put(key(number), value(number, 2))?;
    }
    backup(&db, &repository, "1 % scattered changed")?;
    let began = Instant::now();
    repository.restore(4, dir.path().join("restored"), BackupOptions::default())?;
    println!("{:24} {:6.2} s", "restore", began.elapsed().as_secs_f64());
    db.close()?;
    Ok(())
}
