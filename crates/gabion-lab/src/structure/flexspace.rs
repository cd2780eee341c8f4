//! FlexSpace beside plain files on the same file system.
//!
//! Three ways to write blocks, each ended by a sync whose time counts: random insert (each block at
//! a random block border of what is there), random write (each block of the final range once, in
//! random order), sequential write. Then all blocks are read once, in order and in random order,
//! with the files' pages dropped from the cache before (cold) and once more (warm). A plain file
//! inserts with fallocate's insert-range where the file system has it; as that takes time linear in
//! the file's extents, only the first blocks are inserted. Random order and content are the same
//! for all. What was removed before is settled with the file system before a time is taken.
//!
//! Source: the FlexSpace paper, section 6.2, table 2.

use std::fs::{self, File};
use std::hint::black_box;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

use gabion_flex::{FlexSpace, Options};
use gabion_media::seeded::SeededRng;
use rustix::fs::{Advice, FallocateFlags};

use crate::Error;
use crate::rows::{Table, column};
use crate::scale::Scale;

/// Blocks of the paper's spaces.
const BLOCKS: u64 = 1 << 18;
/// Blocks that a plain file inserts, at most.
const PLAIN_INSERTS: usize = 4096;

/// Sizes of blocks, in KiB.
const BLOCK_KIB: [usize; 2] = [4, 64];

type Outcome<T = ()> = Result<T, Error>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pattern {
    RandomInsert,
    RandomWrite,
    SequentialWrite,
}

const PATTERNS: [Pattern; 3] = [
    Pattern::RandomInsert,
    Pattern::RandomWrite,
    Pattern::SequentialWrite,
];

impl Pattern {
    fn name(self) -> &'static str {
        match self {
            Pattern::RandomInsert => "random insert",
            Pattern::RandomWrite => "random write",
            Pattern::SequentialWrite => "sequential write",
        }
    }
}

/// What is measured: so many blocks of so many bytes.
#[derive(Clone, Copy)]
struct Work {
    block: usize,
    blocks: u64,
}

impl Work {
    fn bytes(self) -> u64 {
        self.blocks * self.block as u64
    }

    /// Offsets for a pattern, in the order of the writes.
    fn offsets(self, pattern: Pattern) -> Vec<u64> {
        let mut random = SeededRng::new(1);
        let mut numbers: Vec<u64> = (0..self.blocks).collect();
        match pattern {
            Pattern::SequentialWrite => {}
            Pattern::RandomInsert => {
                for number in &mut numbers {
                    *number = random.below(*number + 1);
                }
            }
            Pattern::RandomWrite => {
                for at in (1..numbers.len()).rev() {
                    let other = random.below(at as u64 + 1);
                    numbers.swap(at, usize::try_from(other).unwrap_or(at));
                }
            }
        }
        let block = self.block as u64;
        numbers.into_iter().map(|number| number * block).collect()
    }

    /// A block of random bytes.
    fn buffer(self) -> Vec<u8> {
        let mut random = SeededRng::new(3);
        let byte = |_| random.below(256).to_le_bytes()[0];
        (0..self.block).map(byte).collect()
    }
}

/// Makes `buffer` the content of the block that is written as number `number`.
fn mark(number: usize, buffer: &mut [u8]) {
    buffer[..8].copy_from_slice(&(number as u64).to_le_bytes());
}

/// Table 2: rates in MB/s, bytes written per byte, and extents. The files lie in a directory of
/// their own below `dir`, which is made if it is not there, and go in the end, however that comes.
pub(crate) fn operations(scale: Scale, dir: &Path) -> Outcome<Vec<Table>> {
    let own = dir.join(format!("flexspace-{}", std::process::id()));
    fs::create_dir_all(&own).map_err(|source| Error::file("make", &own, source))?;
    let shown = in_dir(scale, &own);
    let removed = fs::remove_dir_all(&own);
    let shown = shown?;
    removed.map_err(|source| Error::file("remove", &own, source))?;
    Ok(vec![shown])
}

fn in_dir(scale: Scale, dir: &Path) -> Outcome<Table> {
    let blocks = scale.of(BLOCKS, 64);
    let columns = [
        column("write", "MB/s", 0),
        column("written", "for each byte", 3),
        column("extents", "", 0),
        column("seq cold", "MB/s", 0),
        column("seq warm", "MB/s", 0),
        column("rand cold", "MB/s", 0),
        column("rand warm", "MB/s", 0),
    ];
    let axes = &["blocks of", "system", "pattern"];
    let mut table = Table::new(format!("{blocks} blocks"), axes, columns).headings(1);
    for kib in BLOCK_KIB {
        let work = Work {
            block: kib << 10,
            blocks,
        };
        for pattern in PATTERNS {
            for (system, measure) in [("FlexSpace", flex as Measure), ("plain file", plain)] {
                settle(dir)?;
                let Measured {
                    written,
                    amplification,
                    extents,
                    reads,
                    note,
                } = measure(dir, work, pattern)?;
                let values = [written, amplification, extents];
                let values = values.into_iter().chain(reads);
                table.row_with(
                    &[&format!("{kib} KiB"), system, pattern.name()],
                    values,
                    note,
                );
            }
        }
    }
    Ok(table.note(
        "paper, FlexSpace and ext4 with 4 KiB: inserts 620 and 3.4 MB/s, random writes 610 and \
         500, sequential ones 620 and 600; FlexSpace writes 1.03 bytes for each, 1.02 with 64 KiB",
    ))
}

/// How a system is measured below a directory.
type Measure = fn(&Path, Work, Pattern) -> Outcome<Measured>;

/// What came of a pattern; what a system does not have, or was not asked for, is not there.
#[derive(Default)]
struct Measured {
    written: Option<f64>,
    amplification: Option<f64>,
    extents: Option<f64>,
    reads: [Option<f64>; 4],
    note: String,
}

/// MB/s of moving `bytes`.
fn rate(bytes: u64, run: impl FnOnce() -> Outcome) -> Outcome<f64> {
    let start = Instant::now();
    run()?;
    Ok(bytes as f64 / 1e6 / start.elapsed().as_secs_f64())
}

/// Lets the file system end what it has to do for the files that were removed, whose time is not
/// that of the next ones.
fn settle(dir: &Path) -> Outcome {
    let settled = || Ok(rustix::fs::syncfs(File::open(dir)?)?);
    settled().map_err(|source| Error::file("sync the file system of", dir, source))
}

/// Drops a file's pages from the cache.
fn forget(path: &Path) -> Outcome {
    let dropped = || {
        let file = File::open(path)?;
        file.sync_all()?;
        rustix::fs::fadvise(&file, 0, None, Advice::DontNeed)?;
        Ok(())
    };
    dropped().map_err(|source| Error::file("drop the cached pages of", path, source))
}

/// Reads all blocks in four ways; the rates.
fn reads(
    work: Work,
    file: &Path,
    mut read: impl FnMut(bool, &[u64], &mut [u8]) -> Outcome,
) -> Outcome<[Option<f64>; 4]> {
    let mut buffer = vec![0; work.block];
    let mut rates = Vec::new();
    for pattern in [Pattern::SequentialWrite, Pattern::RandomWrite] {
        let offsets = work.offsets(pattern);
        let is_sequential = pattern == Pattern::SequentialWrite;
        forget(file)?;
        for _ in ["cold", "warm"] {
            rates.push(rate(work.bytes(), || {
                read(is_sequential, &offsets, &mut buffer)
            })?);
        }
    }
    let mut rates = rates.into_iter();
    Ok([(); 4].map(|()| rates.next()))
}

fn flex(dir: &Path, work: Work, pattern: Pattern) -> Outcome<Measured> {
    let path = dir.join("space");
    let space = FlexSpace::open(&path, Options::default())?;
    let mut buffer = work.buffer();
    let offsets = work.offsets(pattern);
    let written = rate(work.bytes(), || {
        for (number, offset) in offsets.iter().enumerate() {
            mark(number, &mut buffer);
            match pattern {
                Pattern::RandomInsert => space.insert_range(*offset, &buffer)?,
                _ => space.write_at(*offset, &buffer)?,
            }
        }
        Ok(space.checkpoint()?)
    })?;
    let stats = space.stats();
    let data = path.join("DATA");
    let reads = reads(work, &data, |is_sequential, offsets, buffer| {
        let mut file = space.file();
        for offset in offsets {
            if is_sequential {
                let read = file.read_exact(buffer);
                read.map_err(|source| Error::file("read", &path, source))?;
            } else if space.read_at(*offset, buffer)? != buffer.len() {
                let why = format!("a block of {} is missing", path.display());
                return Err(Error::Meaningless(why));
            }
            black_box(&buffer);
        }
        Ok(())
    })?;
    drop(space);
    fs::remove_dir_all(&path).map_err(|source| Error::file("remove", &path, source))?;
    Ok(Measured {
        written: Some(written),
        amplification: Some(stats.write_amplification()),
        extents: Some(stats.extents as f64),
        reads,
        note: String::new(),
    })
}

fn plain(dir: &Path, work: Work, pattern: Pattern) -> Outcome<Measured> {
    let path = dir.join("plain");
    let failed = |action| {
        let path = path.clone();
        move |source| Error::file(action, &path, source)
    };
    let file = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&path)
        .map_err(failed("make"))?;
    let mut measured = Measured::default();
    if pattern == Pattern::RandomInsert {
        match inserts(&file, work) {
            Ok((rate, blocks)) => {
                measured.written = Some(rate);
                measured.note = format!("the first {blocks} blocks");
            }
            Err(error) => {
                let kind = error.kind();
                measured.note = format!("this file system inserts no ranges into files: {kind}");
            }
        }
    } else {
        let mut buffer = work.buffer();
        let offsets = work.offsets(pattern);
        let written = rate(work.bytes(), || {
            for (number, offset) in offsets.iter().enumerate() {
                mark(number, &mut buffer);
                file.write_all_at(&buffer, *offset)
                    .map_err(failed("write to"))?;
            }
            file.sync_data().map_err(failed("sync"))
        })?;
        measured.written = Some(written);
        measured.reads = reads(work, &path, |_, offsets, buffer| {
            for offset in offsets {
                file.read_exact_at(buffer, *offset)
                    .map_err(failed("read"))?;
                black_box(&buffer);
            }
            Ok(())
        })?;
    }
    fs::remove_file(&path).map_err(failed("remove"))?;
    Ok(measured)
}

/// MB/s at which a plain file inserts its first blocks, and how many those are.
fn inserts(file: &File, work: Work) -> io::Result<(f64, usize)> {
    let mut offsets = work.offsets(Pattern::RandomInsert);
    offsets.truncate(PLAIN_INSERTS);
    let mut buffer = work.buffer();
    let size = work.block as u64;
    let start = Instant::now();
    let mut len = 0;
    for (number, offset) in offsets.iter().enumerate() {
        mark(number, &mut buffer);
        if *offset < len {
            rustix::fs::fallocate(file, FallocateFlags::INSERT_RANGE, *offset, size)?;
        }
        file.write_all_at(&buffer, *offset)?;
        len += size;
    }
    file.sync_data()?;
    let rate = len as f64 / 1e6 / start.elapsed().as_secs_f64();
    Ok((rate, offsets.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::Row;

    /// Inserts meet all of what is there, and writes meet each block once.
    #[test]
    fn patterns_are_what_they_are_called() {
        let work = Work {
            block: 16,
            blocks: 500,
        };
        let offsets = work.offsets(Pattern::RandomInsert);
        let is_border =
            |(number, offset): (usize, &u64)| offset % 16 == 0 && *offset <= number as u64 * 16;
        assert!(offsets.iter().enumerate().all(is_border));
        let ordered: Vec<u64> = (0..500).map(|number| number * 16).collect();
        assert_eq!(work.offsets(Pattern::SequentialWrite), ordered);
        let mut offsets = work.offsets(Pattern::RandomWrite);
        assert_ne!(offsets, ordered);
        offsets.sort_unstable();
        assert_eq!(offsets, ordered);
    }

    /// Each pattern has a row of both, a space writes what it is given, and little more.
    #[test]
    fn all_patterns_have_their_rows() {
        let dir = tempfile::tempdir().unwrap();
        let below = dir.path().join("below");
        let tables = operations(Scale(0.000_1), &below).unwrap();
        for pattern in PATTERNS {
            let rows = |system| {
                let is_meant = move |row: &&Row| row.at[1] == system && row.at[2] == pattern.name();
                tables[0].rows.iter().filter(is_meant)
            };
            assert_eq!(rows("plain file").count(), 2, "{pattern:?} {tables:#?}");
            assert_eq!(rows("FlexSpace").count(), 2, "{pattern:?} {tables:#?}");
            for row in rows("FlexSpace") {
                let numbers: Vec<f64> = row.values.iter().copied().flatten().collect();
                assert_eq!(numbers.len(), 7, "{row:?}");
                assert!(numbers[1] >= 1.0 && numbers[1] < 2.0, "{row:?}");
                // Inserts cut what is there into pieces; what was written in order is one.
                let is_cut = pattern != Pattern::SequentialWrite;
                assert_eq!(numbers[2] >= 48.0, is_cut, "{row:?}");
            }
        }
        assert_eq!(fs::read_dir(&below).unwrap().count(), 0);
    }

    #[test]
    fn a_directory_that_cannot_be_is_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let refused = operations(Scale(0.000_1), file.path());
        let sentence = refused.unwrap_err().to_string();
        assert!(sentence.contains("cannot make"), "{sentence}");
    }
}
