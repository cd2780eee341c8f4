//! A hash table in an ordinary file that survives `kill -9` and serves at once after a restart.
//!
//! ```sh
//! cargo run --profile measure --example warm_restart -- [ITEMS] [DIRECTORY]
//! ```
//!
//! The program starts itself again to fill a table, kills that process in the middle without any
//! warning, opens the table, and checks that every item whose insert had returned is there. Then it
//! fills the rest. By default there are ten million items, in a temporary directory.
//!
//! The process that is killed can be started alone, `warm_restart fill FILE ITEMS [ROUND]`: round
//! after round it gives every item a new value, and odd rounds delete every third item.

use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use gabion::pm::{Pool, PoolOptions, TurboHash, TurboOptions};

type Table = TurboHash<u64, u64>;
type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let first = args.next();
    if first.as_deref() == Some("fill") {
        let file = args.next().ok_or("no file")?;
        let items = args.next().ok_or("no number of items")?.parse()?;
        let round = args.next().map_or(Ok(0), |round| round.parse())?;
        return fill(Path::new(&file), items, round);
    }
    let items: u64 = first.map_or(Ok(10_000_000), |items| items.parse())?;
    match args.next() {
        Some(directory) => show(Path::new(&directory), items),
        None => show(tempfile::tempdir()?.path(), items),
    }
}

/// The value that a round gives an item, if it does not delete it. Any function of both will do.
fn value_of(item: u64, round: u64) -> Option<u64> {
    let is_deleted = round % 2 == 1 && item.is_multiple_of(3);
    (!is_deleted).then(|| item.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ round)
}

/// Opens the table in a file, or makes it.
fn table(file: &Path, items: u64) -> Result<(Pool, Table)> {
    let options = PoolOptions {
        // Buckets take about 32 bytes for each item, and growing some more for a while.
        size: items * 64 + (64 << 20),
        chunk_bytes: 1 << 20,
        ..Table::pool_options()
    };
    let options_of_table = TurboOptions {
        capacity: items,
        ..TurboOptions::default()
    };
    if file.exists() {
        let pool = Pool::open(file, options)?;
        let table = Table::open(&pool, &options_of_table)?;
        return Ok((pool, table));
    }
    let pool = Pool::create(file, options)?;
    let table = Table::create(&pool, &options_of_table)?;
    Ok((pool, table))
}

/// Does all items of a round in their order, and tells after every 1000 how many are done.
fn fill(file: &Path, items: u64, round: u64) -> Result<()> {
    let (pool, table) = table(file, items)?;
    let mut out = std::io::stdout().lock();
    for item in 0..items {
        match value_of(item, round) {
            Some(value) => {
                table.put(&item, &value)?;
            }
            None => {
                table.remove(&item)?;
            }
        }
        if (item + 1) % 1000 == 0 {
            writeln!(out, "{}", item + 1)?;
        }
    }
    drop(table);
    pool.close()?;
    Ok(())
}

fn show(directory: &Path, items: u64) -> Result<()> {
    let file = directory.join("items.gabion");
    let program = std::env::current_exe()?;
    let mut child = Command::new(program)
        .arg("fill")
        .arg(&file)
        .arg(items.to_string())
        .stdout(Stdio::piped())
        .spawn()?;
    let out = child.stdout.take().ok_or("no output")?;
    let mut told = 0;
    for line in BufReader::new(out).lines() {
        told = line?.parse()?;
        if told >= items / 2 {
            // SIGKILL: nothing of the other process runs any more.
            child.kill()?;
        }
    }
    child.wait()?;
    println!("killed after it had told of {told} of {items} inserts");

    let start = Instant::now();
    let (pool, table) = table(&file, items)?;
    let opened = start.elapsed();
    let first = table.get(&(told / 2))?;
    let answered = start.elapsed();
    println!("opened in {opened:?}, first read answered after {answered:?}: {first:?}");

    let kept = verify(&table, told, items)?;
    println!("all {told} items are there, and {} more", kept - told);
    for item in kept..items {
        if let Some(value) = value_of(item, 0) {
            table.put(&item, &value)?;
        }
    }
    verify(&table, items, items)?;
    table.check()?;
    println!("filled up: {} items, {:?}", table.len(), table.stats());
    drop(table);
    pool.close()?;
    Ok(())
}

/// Checks that the first `told` items are there, and that what is there besides comes next without
/// a gap. Returns how many there are.
fn verify(table: &Table, told: u64, items: u64) -> Result<u64> {
    let mut kept = 0;
    for item in 0..items {
        match table.get(&item)? {
            found @ Some(_) if found == value_of(item, 0) && kept == item => kept += 1,
            None if item >= told => {}
            found => return Err(format!("item {item} is {found:?}").into()),
        }
    }
    Ok(kept)
}
