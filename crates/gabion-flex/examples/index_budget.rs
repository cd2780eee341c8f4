//! Measures a FlexSpace whose index fits into memory beside one whose index does not.
//!
//! ```text
//! cargo run --profile measure -p gabion-flex --example index_budget -- DIR [EXTENTS [OPERATIONS]]
//! ```
//!
//! A space is filled with so many extents of 16 bytes, each at a random place; then comes a number
//! of reads at random places, of insertions at random places, of reads close to each other, and the
//! time that an opening takes. This is done without a limit for the index, and with a budget of a
//! tenth of what it takes then. All is kept in `DIR`, which must be on the file system to measure;
//! what is made in it is removed.

use std::error::Error;
use std::hint::black_box;
use std::path::Path;
use std::time::Instant;

use gabion_flex::{FlexSpace, Options};
use gabion_media::seeded::SeededRng;

const EXTENT_BYTES: usize = 16;

/// Bytes that the reads close to each other lie in.
const NEAR_BYTES: u64 = 64 << 10;

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

/// Thousands of operations per second.
fn rate(operations: u64, run: impl FnOnce() -> Outcome) -> Outcome<f64> {
    let start = Instant::now();
    run()?;
    #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
    let operations = operations as f64;
    Ok(operations / 1e3 / start.elapsed().as_secs_f64())
}

fn reads(space: &FlexSpace, operations: u64, within: u64) -> Outcome<f64> {
    let mut random = SeededRng::new(7);
    let mut buffer = [0; EXTENT_BYTES];
    let from = (space.len() - within) / 2;
    rate(operations, || {
        for _ in 0..operations {
            space.read_at(from + random.below(within - 16), &mut buffer)?;
            black_box(&buffer);
        }
        Ok(())
    })
}

/// Inserts extents at borders of others.
fn inserts(space: &FlexSpace, operations: u64, seed: u64) -> Outcome<f64> {
    let mut random = SeededRng::new(seed);
    let mut buffer = [0; EXTENT_BYTES];
    let mut len = space.len();
    rate(operations, || {
        for number in 0..operations {
            buffer[..8].copy_from_slice(&number.to_le_bytes());
            let border = random.below(len / EXTENT_BYTES as u64 + 1);
            space.insert_range(border * EXTENT_BYTES as u64, &buffer)?;
            len += EXTENT_BYTES as u64;
        }
        Ok(())
    })
}

/// Measures with a budget, and returns what the index has taken.
fn measure(path: &Path, extents: u64, operations: u64, budget: Option<u64>) -> Outcome<u64> {
    let options = Options::default().index_bytes(budget);
    let space = FlexSpace::open(path, options.clone())?;
    let filled = inserts(&space, extents, 1)?;
    let near_bytes = NEAR_BYTES.min(space.len());
    let random = reads(&space, operations, space.len())?;
    let near = reads(&space, operations, near_bytes)?;
    let inserted = inserts(&space, operations, 2)?;
    space.checkpoint()?;
    let stats = space.stats();
    match budget {
        None => println!("{} extents, no limit", stats.extents),
        Some(bytes) => println!("{} extents, index in {} KiB", stats.extents, bytes >> 10),
    }
    println!("  thousands per second: fill {filled:.0}  insert {inserted:.0}");
    println!(
        "  reads: random {random:.0}  within {} KiB {near:.0}",
        near_bytes >> 10
    );
    println!(
        "  index: {} KiB at most, {} nodes, {} in memory, {} leaves fetched, {} checkpoints",
        stats.tree_memory_bytes >> 10,
        stats.tree_nodes,
        stats.tree_nodes - stats.tree_nodes_absent,
        stats.tree_leaves_fetched,
        stats.checkpoints
    );
    println!("  write amplification {:.1}", stats.write_amplification());
    drop(space);
    let mut times = Vec::new();
    for _ in 0..5 {
        let start = Instant::now();
        let space = FlexSpace::open(path, options.clone())?;
        times.push(start.elapsed().as_secs_f64() * 1e3);
        drop(space);
    }
    times.sort_by(f64::total_cmp);
    println!("  opening {:.1} ms (median of 5)", times[2]);
    std::fs::remove_dir_all(path)?;
    Ok(stats.tree_memory_bytes)
}

fn main() -> Outcome {
    let mut arguments = std::env::args().skip(1);
    let dir = arguments
        .next()
        .ok_or("name a directory on the file system to measure")?;
    let extents = arguments
        .next()
        .map_or(Ok(1_000_000), |text| text.parse())?;
    let operations = arguments.next().map_or(Ok(300_000), |text| text.parse())?;
    let path = Path::new(&dir).join("space");
    let whole = measure(&path, extents, operations, None)?;
    measure(&path, extents, operations, Some(whole / 10))?;
    Ok(())
}
