//! Measures FlexSpace beside plain files on the same file system: the FlexSpace paper's table 2.
//!
//! ```text
//! cargo run --release -p gabion-flex --example flexspace -- DIR [BLOCK_BYTES [BLOCKS [writes]]]
//! ```
//!
//! Three ways to write so many blocks, each ended by a sync whose time counts: random insert (each
//! block at a random block border of what is there), random write (each block of the final range
//! once, in random order), sequential write. Then, unless only `writes` are wanted, all blocks are
//! read once, in order and in random order, with the files' pages dropped from the cache before
//! (cold) and once more (warm). A plain file inserts with fallocate's insert-range where the file
//! system has it; as that takes time linear in the file's extents, only the first blocks are
//! inserted. Random order and content are the same for all. What was removed before is settled with
//! the file system before a time is taken. `DIR` must be a directory on the file system to measure;
//! everything made in it is removed.

use std::error::Error;
use std::fs::File;
use std::hint::black_box;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

use gabion_flex::{FlexSpace, Options};
use gabion_media::seeded::Random;
use rustix::fs::{Advice, FallocateFlags};

/// Blocks that a plain file inserts.
const PLAIN_INSERTS: u64 = 4096;

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pattern {
    RandomInsert,
    RandomWrite,
    Sequential,
}

/// What is measured: so many blocks of so many bytes.
#[derive(Clone, Copy)]
struct Work {
    block: usize,
    blocks: u64,
    reads: bool,
}

impl Work {
    /// Offsets for a pattern, in the order of the writes.
    fn offsets(self, pattern: Pattern) -> Vec<u64> {
        let mut random = Random::new(1);
        let mut numbers: Vec<u64> = (0..self.blocks).collect();
        match pattern {
            Pattern::Sequential => {}
            Pattern::RandomInsert => {
                numbers
                    .iter_mut()
                    .for_each(|number| *number = random.below(*number + 1));
            }
            Pattern::RandomWrite => {
                for at in (1..self.blocks).rev() {
                    let (at, other) = (index(at), index(random.below(at + 1)));
                    numbers.swap(at, other);
                }
            }
        }
        numbers
            .into_iter()
            .map(|number| number * self.block as u64)
            .collect()
    }

    /// The content of the block that is written as number `number`.
    fn content(self, number: usize, buffer: &mut [u8]) {
        buffer[..8].copy_from_slice(&(number as u64).to_le_bytes());
    }

    fn buffer(self) -> Vec<u8> {
        let mut random = Random::new(3);
        (0..self.block)
            .map(|_| random.below(256).to_le_bytes()[0])
            .collect()
    }
}

fn index(number: u64) -> usize {
    usize::try_from(number).expect("a number of blocks")
}

/// MB/s of moving `bytes`.
fn rate(bytes: u64, run: impl FnOnce() -> Outcome) -> Outcome<f64> {
    let start = Instant::now();
    run()?;
    #[expect(clippy::cast_precision_loss, reason = "sizes are far below 2^52")]
    let bytes = bytes as f64;
    Ok(bytes / 1e6 / start.elapsed().as_secs_f64())
}

/// Lets the file system end what it has to do for the files that were removed, whose time is not
/// that of the next ones.
fn settle(dir: &Path) -> Outcome {
    Ok(rustix::fs::syncfs(File::open(dir)?)?)
}

/// Drops a file's pages from the cache.
fn forget(path: &Path) -> Outcome {
    let file = File::open(path)?;
    file.sync_all()?;
    Ok(rustix::fs::fadvise(&file, 0, None, Advice::DontNeed)?)
}

/// Reads all blocks in four ways and prints the rates.
fn reads(
    work: Work,
    files: &[&Path],
    mut read: impl FnMut(bool, &[u64], &mut [u8]) -> Outcome,
) -> Outcome {
    if !work.reads {
        println!("  MB/s");
        return Ok(());
    }
    let mut buffer = vec![0; work.block];
    for (name, pattern) in [
        ("seq", Pattern::Sequential),
        ("random", Pattern::RandomWrite),
    ] {
        let offsets = work.offsets(pattern);
        for path in files {
            forget(path)?;
        }
        for state in ["cold", "warm"] {
            let bytes = work.blocks * work.block as u64;
            let sequential = pattern == Pattern::Sequential;
            let mbs = rate(bytes, || read(sequential, &offsets, &mut buffer))?;
            print!("  {name} {state} {mbs:>7.0}");
        }
    }
    println!("  MB/s");
    Ok(())
}

fn flex(dir: &Path, work: Work, pattern: Pattern) -> Outcome {
    let path = dir.join("space");
    let space = FlexSpace::open(&path, Options::default())?;
    let offsets = work.offsets(pattern);
    let mut buffer = work.buffer();
    let bytes = work.blocks * work.block as u64;
    let written = rate(bytes, || {
        for (number, offset) in offsets.iter().enumerate() {
            work.content(number, &mut buffer);
            match pattern {
                Pattern::RandomInsert => space.insert_range(*offset, &buffer)?,
                _ => space.write_at(*offset, &buffer)?,
            }
        }
        Ok(space.checkpoint()?)
    })?;
    let stats = space.stats();
    print!("  FlexSpace  {pattern:<12?}  write {written:>6.0}");
    print!(
        "  WA {:.3}  extents {:>7}",
        stats.write_amplification(),
        stats.extents
    );
    reads(
        work,
        &[&path.join("DATA")],
        |sequential, offsets, buffer| {
            let mut file = space.file();
            for offset in offsets {
                if sequential {
                    file.read_exact(buffer)?;
                } else if space.read_at(*offset, buffer)? != buffer.len() {
                    return Err("a block is missing".into());
                }
                black_box(&buffer);
            }
            Ok(())
        },
    )?;
    drop(space);
    Ok(std::fs::remove_dir_all(&path)?)
}

fn plain(dir: &Path, work: Work, pattern: Pattern) -> Outcome {
    let path = dir.join("plain");
    let file = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&path)?;
    let mut offsets = work.offsets(pattern);
    let mut buffer = work.buffer();
    if pattern == Pattern::RandomInsert {
        offsets.truncate(index(PLAIN_INSERTS));
    }
    let bytes = offsets.len() as u64 * work.block as u64;
    let written = rate(bytes, || {
        let mut len = 0;
        for (number, offset) in offsets.iter().enumerate() {
            work.content(number, &mut buffer);
            let size = work.block as u64;
            if pattern == Pattern::RandomInsert && *offset < len {
                rustix::fs::fallocate(&file, FallocateFlags::INSERT_RANGE, *offset, size)?;
            }
            file.write_all_at(&buffer, *offset)?;
            len += size;
        }
        Ok(file.sync_data()?)
    });
    print!("  plain file {pattern:<12?}  ");
    match written {
        Ok(written) => print!("write {written:>6.0}"),
        Err(error) => print!("not possible here: {error}"),
    }
    if pattern == Pattern::RandomInsert {
        println!("  MB/s, the first {} blocks", offsets.len());
    } else {
        print!("                            ");
        reads(work, &[&path], |_, offsets, buffer| {
            for offset in offsets {
                file.read_exact_at(buffer, *offset)?;
                black_box(&buffer);
            }
            Ok(())
        })?;
    }
    Ok(std::fs::remove_file(&path)?)
}

fn main() -> Outcome {
    let mut arguments = std::env::args().skip(1);
    let dir = arguments
        .next()
        .ok_or("name a directory on the file system to measure")?;
    let block = arguments.next().map_or(Ok(4096), |text| text.parse())?;
    let blocks = arguments.next().map_or(Ok(1 << 18), |text| text.parse())?;
    let reads = arguments.next().is_none_or(|what| what != "writes");
    let work = Work {
        block,
        blocks,
        reads,
    };
    println!("{blocks} blocks of {block} bytes");
    for pattern in [
        Pattern::RandomInsert,
        Pattern::RandomWrite,
        Pattern::Sequential,
    ] {
        let dir = Path::new(&dir);
        settle(dir)?;
        flex(dir, work, pattern)?;
        settle(dir)?;
        plain(dir, work, pattern)?;
    }
    Ok(())
}
