//! The figures of the TurboHash paper that concern the table's shape and its medium, the paper's
//! numbers beside ours.
//!
//! ```sh
//! cargo run --release -p gabion-index --example turbo_figures -- [FIGURE...] [MILLIONS]
//! ```
//!
//! By default all figures, with 20 million inserts for figure 3.8, where the paper has 100. Figures
//! of the shape do not depend on the machine, those on the medium are those of the model, and
//! figures 3.10 and 3.11 are times of this machine's DRAM.
//!
//! Source: X. Zhao, dissertation, chapter 3.

mod medium;
mod shape;

use gabion_index::turbo::Options;
use gabion_index::{Result, TurboHash};
use gabion_media::pmem::{Pool, PoolOptions};

/// A table from words to words.
type Table = TurboHash<u64, u64>;

/// A figure, with how many millions of inserts it may do.
type Figure = (&'static str, fn(u64) -> Result<()>);

const FIGURES: [Figure; 7] = [
    ("3.1", shape::scopes),
    ("3.2", medium::accesses),
    ("3.4", medium::volumes),
    ("3.8", shape::load_factors),
    ("3.9", shape::probe_distances),
    ("3.10", shape::latencies),
    ("3.11", shape::build_times),
];

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let is_figure = |arg: &String| FIGURES.iter().any(|(name, _)| name == arg);
    let millions = args.iter().find(|arg| !is_figure(arg));
    let millions = millions.and_then(|arg| arg.parse().ok()).unwrap_or(20);
    for (name, run) in FIGURES {
        if args.iter().any(|arg| arg == name) || !args.iter().any(is_figure) {
            println!("Figure {name}");
            run(millions)?;
            println!();
        }
    }
    Ok(())
}

/// A permutation of the words, to make keys of numbers.
fn key_of(number: u64) -> u64 {
    let mut key = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    key ^= key >> 32;
    key = key.wrapping_mul(0xd6e8_feb8_6659_fd93);
    key ^ (key >> 29)
}

/// An empty table in DRAM with space for `entries`.
fn table(entries: u64, options: &Options) -> Result<Table> {
    let pool = Pool::anonymous(PoolOptions {
        size: entries * 100 + (64 << 20),
        chunk_bytes: 1 << 20,
        ..Table::pool_options()
    })?;
    Table::create(&pool, options)
}
