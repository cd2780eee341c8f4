//! Measures what the collection of garbage costs when space is short: the FlexSpace paper's
//! figure 12 (f).
//!
//! ```text
//! cargo run --profile measure -p gabion-flex --example gc_cost -- DIR [RECORDS [UPDATES]]
//! ```
//!
//! A space of so many records of 154 bytes (UDB's size) is filled in order; then records are
//! written over in groups of 64, twice as many bytes as the space has unless told otherwise. This
//! is done in a data file of twice the records' size and in one of which they take 85 %, with keys
//! by a Zipfian law (0.99) whose frequent ones lie together, and with the frequent ones scattered,
//! as in the paper's composite law. Space that is short must cost less than 15 % of the updates'
//! speed with the first. All is kept in `DIR`, which must be on the file system to measure; what is
//! made in it is removed.

use std::error::Error;
use std::path::Path;
use std::time::Instant;

use gabion_flex::{Edit, FlexSpace, Options};
use gabion_media::seeded::SeededRng;

const RECORD_BYTES: usize = 154;

/// Records that are written over together, as a merge does it.
const GROUP: u64 = 64;

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

/// Ranks by Zipf's law, the frequent ones first (Gray et al.: Quickly Generating Billion-Record
/// Synthetic Databases, section 3.2).
struct Zipf {
    count: f64,
    theta: f64,
    zeta: f64,
    eta: f64,
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "ranks are far below 2^52"
)]
impl Zipf {
    fn new(count: u64, theta: f64) -> Zipf {
        let term = |rank: u64| (rank as f64).powf(-theta);
        let zeta: f64 = (1..=count).map(term).sum();
        let count = count as f64;
        let eta = (1.0 - (2.0 / count).powf(1.0 - theta)) / (1.0 - (1.0 + term(2)) / zeta);
        Zipf {
            count,
            theta,
            zeta,
            eta,
        }
    }

    fn rank(&self, random: &mut SeededRng) -> u64 {
        let uniform = random.below(1 << 52) as f64 / (1_u64 << 52) as f64;
        let scaled = uniform * self.zeta;
        if scaled < 1.0 {
            return 0;
        }
        if scaled < 1.0 + 0.5_f64.powf(self.theta) {
            return 1;
        }
        let base = self.eta.mul_add(uniform - 1.0, 1.0);
        let rank = self.count * base.powf(1.0 / (1.0 - self.theta));
        (rank as u64).min(self.count as u64 - 1)
    }
}

/// A record's number for a rank, by another law than the order.
fn scattered(rank: u64, records: u64) -> u64 {
    rank.wrapping_mul(0x9e37_79b9_7f4a_7c15) % records
}

/// Thousands of updates per second, and for each byte of them bytes that were moved and bytes that
/// were written.
fn updates(
    dir: &Path,
    (records, count): (u64, u64),
    use_percent: u64,
    is_scattered: bool,
) -> Outcome<(f64, f64, f64)> {
    let path = dir.join("space");
    let bytes = records * RECORD_BYTES as u64;
    // Some thousand segments, as a large store has of larger ones.
    let segment = (bytes / 1024).next_power_of_two().clamp(32 << 10, 4 << 20);
    let options = Options::default()
        .segment_bytes(u32::try_from(segment)?)
        .block_bytes(u32::try_from((segment / 64).min(4 << 10))?)
        .capacity_bytes(Some(bytes * 100 / use_percent));
    let space = FlexSpace::open(&path, options)?;
    let mut record = [7; RECORD_BYTES];
    let chunk = record.repeat(1 << 10);
    let mut left = bytes;
    while left > 0 {
        let part = usize::try_from(left).map_or(chunk.len(), |left| left.min(chunk.len()));
        space.append(&chunk[..part])?;
        left -= part as u64;
    }
    space.checkpoint()?;
    let zipf = Zipf::new(records, 0.99);
    let mut random = SeededRng::new(1);
    let before = space.stats();
    let start = Instant::now();
    let mut done = 0;
    while done < count {
        let ranks = (0..GROUP).map(|_| zipf.rank(&mut random));
        let mut numbers: Vec<u64> = match is_scattered {
            true => ranks.map(|rank| scattered(rank, records)).collect(),
            false => ranks.collect(),
        };
        numbers.sort_unstable();
        numbers.dedup();
        record[..8].copy_from_slice(&done.to_le_bytes());
        let write = |number: &u64| Edit::Write {
            offset: number * RECORD_BYTES as u64,
            data: &record,
        };
        let edits: Vec<Edit<'_>> = numbers.iter().map(write).collect();
        space.apply(&edits)?;
        done += numbers.len() as u64;
    }
    space.sync()?;
    let seconds = start.elapsed().as_secs_f64();
    let after = space.stats();
    drop(space);
    std::fs::remove_dir_all(&path)?;
    let written = after.written.total_bytes() - before.written.total_bytes();
    #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
    let (count, moved, written, user) = (
        done as f64,
        (after.moved_bytes - before.moved_bytes) as f64,
        written as f64,
        (after.user_bytes - before.user_bytes) as f64,
    );
    Ok((count / seconds / 1e3, moved / user, written / user))
}

fn main() -> Outcome {
    let mut arguments = std::env::args().skip(1);
    let dir = arguments.next().ok_or("the directory to measure in")?;
    let mut number = |default| match arguments.next() {
        Some(text) => text.parse(),
        None => Ok(default),
    };
    let records = number(2_000_000)?.max(GROUP);
    let count = number(2 * records)?;
    println!("{records} records of {RECORD_BYTES} bytes, {count} updates");
    for (name, is_scattered) in [("Zipfian", false), ("scattered", true)] {
        let mut speeds = Vec::new();
        for use_percent in [50, 85] {
            let work = (records, count);
            let (speed, moved, written) =
                updates(Path::new(&dir), work, use_percent, is_scattered)?;
            println!(
                "{name:<10} {use_percent} % in use  {speed:>7.0} thousand updates/s  \
                 {written:.2} bytes written per byte, {moved:.2} of them moved"
            );
            speeds.push(speed);
        }
        let cost = 100.0 - speeds[1] / speeds[0] * 100.0;
        println!("{name:<10} space that is short costs {cost:.1} %");
    }
    Ok(())
}
