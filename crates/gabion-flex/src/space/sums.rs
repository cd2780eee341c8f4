//! Checksums of data: a table per segment, and checked reads.

use std::cell::RefCell;

use gabion_media::ReadFile;
use gabion_media::crc32c;

use super::geometry::{FOOTER_HEAD_BYTES, Geometry};
use super::layout::{DATA_MAGIC, seed_of, u32_at};
use crate::{Error, Result};

/// The checksums of a segment's blocks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SumTable {
    /// Which use of the segment this is.
    pub(crate) generation: u32,
    /// Bytes of data that the checksums cover; the last block may be a part.
    pub(crate) written: u32,
    pub(crate) sums: Vec<u32>,
}

/// Computes and checks the checksums of one space.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockSums {
    seed: u32,
    pub(crate) geometry: Geometry,
}

impl BlockSums {
    pub(crate) fn new(space: u64, geometry: Geometry) -> BlockSums {
        BlockSums {
            seed: seed_of(&DATA_MAGIC, space),
            geometry,
        }
    }

    /// The checksum of a block, or of the part of it that is written.
    pub(crate) fn block(&self, segment: u32, generation: u32, block: u32, bytes: &[u8]) -> u32 {
        let place = u128::from(segment) | u128::from(block) << 32 | u128::from(generation) << 64;
        let crc = crc32c::crc32c_append(self.seed, &place.to_le_bytes());
        crc32c::crc32c_append(crc, bytes)
    }

    /// The footer of a full segment.
    pub(crate) fn footer(&self, segment: u32, table: &SumTable) -> Vec<u8> {
        let mut bytes = vec![0; FOOTER_HEAD_BYTES];
        bytes[4..8].copy_from_slice(&table.generation.to_le_bytes());
        bytes.extend(table.sums.iter().flat_map(|sum| sum.to_le_bytes()));
        let crc = self.footer_sum(segment, &bytes);
        bytes[..4].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    fn footer_sum(&self, segment: u32, bytes: &[u8]) -> u32 {
        let crc = crc32c::crc32c_append(self.seed, &segment.to_le_bytes());
        crc32c::crc32c_append(crc, bytes.get(4..).unwrap_or_default())
    }

    /// Reads the table of a full segment from its footer.
    pub(crate) fn read_footer(
        &self,
        file: &ReadFile,
        segment: u32,
        generation: u32,
    ) -> Result<SumTable> {
        let geometry = &self.geometry;
        let offset = geometry.file_offset(segment, geometry.room());
        let mut bytes = vec![0; FOOTER_HEAD_BYTES + geometry.blocks() as usize * 4];
        file.read_exact_at(&mut bytes, offset)?;
        let sound = u32_at(&bytes, 0) == self.footer_sum(segment, &bytes)
            && u32_at(&bytes, 4) == generation;
        if !sound {
            let what = format!("the checksums of segment {segment} are damaged");
            return Err(corruption(file, offset, what));
        }
        Ok(self.table_in(&bytes, generation))
    }

    /// The table of a full segment whose footer does not pass its check. A block that passes the
    /// checksum that stands there is sound all the same: the two agree, and nothing else does.
    pub(crate) fn read_damaged_footer(
        &self,
        file: &ReadFile,
        segment: u32,
        generation: u32,
    ) -> Result<SumTable> {
        let geometry = &self.geometry;
        let offset = geometry.file_offset(segment, geometry.room());
        let mut bytes = vec![0; FOOTER_HEAD_BYTES + geometry.blocks() as usize * 4];
        file.read_exact_at(&mut bytes, offset)?;
        Ok(self.table_in(&bytes, generation))
    }

    /// The table that a footer's bytes have.
    fn table_in(&self, footer: &[u8], generation: u32) -> SumTable {
        let sums = footer.get(FOOTER_HEAD_BYTES..).unwrap_or_default();
        SumTable {
            generation,
            written: self.geometry.room(),
            sums: sums
                .as_chunks::<4>()
                .0
                .iter()
                .map(|sum| u32::from_le_bytes(*sum))
                .collect(),
        }
    }

    /// Reads one block, or the part of it that is written, and says whether it passes its check.
    /// Of one that does not, but would with one other byte, that byte is [put right](put_right).
    pub(crate) fn read_block(
        &self,
        file: &ReadFile,
        segment: u32,
        table: &SumTable,
        block: u32,
    ) -> Result<(Vec<u8>, BlockCheck)> {
        let from = block * self.geometry.block_bytes();
        let len = table.written.saturating_sub(from);
        let mut bytes = vec![0; len.min(self.geometry.block_bytes()) as usize];
        file.read_exact_at(&mut bytes, self.geometry.file_offset(segment, from))?;
        let sum = self.block(segment, table.generation, block, &bytes);
        let soundness = match table.sums.get(block as usize) {
            Some(wanted) if *wanted == sum => BlockCheck::Sound,
            Some(wanted) if put_right(&mut bytes, sum ^ wanted) => BlockCheck::PutRight,
            _ => BlockCheck::Damaged,
        };
        Ok((bytes, soundness))
    }

    /// Reads data of a segment and checks every block that it touches.
    pub(crate) fn read(
        &self,
        file: &ReadFile,
        segment: u32,
        table: &SumTable,
        within: u32,
        buffer: &mut [u8],
    ) -> Result<()> {
        thread_local! {
            static BLOCKS: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
        }
        let block_bytes = self.geometry.block_bytes();
        let end = u64::from(within) + buffer.len() as u64;
        let Some(end) = u32::try_from(end).ok().filter(|end| *end <= table.written) else {
            let offset = self.geometry.file_offset(segment, within);
            let what = format!("{} bytes of data were never written there", buffer.len());
            return Err(corruption(file, offset, what));
        };
        let first = within / block_bytes;
        let from = first * block_bytes;
        let to = end.next_multiple_of(block_bytes).min(table.written);
        if (from, to) == (within, end) {
            file.read_exact_at(buffer, self.geometry.file_offset(segment, from))?;
            return self.check(file, segment, table, first, buffer);
        }
        BLOCKS.with_borrow_mut(|blocks| {
            blocks.resize((to - from) as usize, 0);
            file.read_exact_at(blocks, self.geometry.file_offset(segment, from))?;
            self.check(file, segment, table, first, blocks)?;
            let skip = (within - from) as usize;
            buffer.copy_from_slice(&blocks[skip..skip + buffer.len()]);
            Ok(())
        })
    }

    /// Checks bytes that begin with block `first`.
    fn check(
        &self,
        file: &ReadFile,
        segment: u32,
        table: &SumTable,
        first: u32,
        bytes: &[u8],
    ) -> Result<()> {
        let block_bytes = self.geometry.block_bytes();
        for (block, bytes) in (first..).zip(bytes.chunks(block_bytes as usize)) {
            let sum = self.block(segment, table.generation, block, bytes);
            if table.sums.get(block as usize) != Some(&sum) {
                let offset = self.geometry.file_offset(segment, block * block_bytes);
                let what = format!("the checksum of block {block} of segment {segment} is wrong");
                return Err(corruption(file, offset, what));
            }
        }
        Ok(())
    }
}

/// What a checksum says of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlockCheck {
    Sound,
    /// One byte was wrong, by all appearances, and is as it was. That is good evidence, and no
    /// proof: of 4,096 damaged blocks one passes with some byte that was not wrong.
    PutRight,
    Damaged,
}

/// What one byte makes of a checksum, by the byte.
const STEPS: [u32; 256] = {
    let mut steps = [0; 256];
    let (mut at, mut first) = (0, 0_u32);
    while at < 256 {
        let (mut step, mut bit) = (first, 0);
        while bit < 8 {
            step = (step >> 1) ^ (0x82f6_3b78 * (step & 1));
            bit += 1;
        }
        steps[at] = step;
        (at, first) = (at + 1, first + 1);
    }
    steps
};

/// The byte whose step begins with a byte: no two steps begin with the same.
const BY_TOP: [u8; 256] = {
    let mut by_top = [0; 256];
    let (mut at, mut byte) = (0, 0_u8);
    while at < 256 {
        by_top[(STEPS[at] >> 24) as usize] = byte;
        (at, byte) = (at + 1, byte.wrapping_add(1));
    }
    by_top
};

/// Changes the one byte that makes up for the difference of two CRC-32C, if there is exactly one
/// such byte.
///
/// A CRC is linear: what a wrong byte adds to it goes through a step for each byte behind it.
/// Undone from the end on, the steps lead to a number of one byte where the wrong one stands.
fn put_right(bytes: &mut [u8], difference: u32) -> bool {
    let mut found = None;
    let mut left = difference;
    for at in (0..bytes.len()).rev() {
        let step = BY_TOP[(left >> 24) as usize];
        left = (left ^ STEPS[usize::from(step)]) << 8 | u32::from(step);
        if let Ok(wrong) = u8::try_from(left) {
            if found.is_some() {
                return false;
            }
            found = Some((at, wrong));
        }
    }
    match found {
        Some((at, wrong)) => {
            bytes[at] ^= wrong;
            true
        }
        None => false,
    }
}

pub(crate) fn corruption(file: &ReadFile, offset: u64, what: String) -> Error {
    Error::Corruption {
        file: file.path().to_path_buf(),
        offset,
        what,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_wrong_byte_is_put_right_and_several_are_not() {
        let sum = |bytes: &[u8]| crc32c::crc32c_append(0x1234_5678, bytes);
        for len in [1_usize, 2, 3, 4, 5, 100, 4096] {
            let sound: Vec<u8> = (0..len).map(|at: usize| at.to_le_bytes()[0]).collect();
            for at in (0..len).step_by(1 + len / 100) {
                for wrong in [1, 0x80, 0xff] {
                    let mut bytes = sound.clone();
                    bytes[at] ^= wrong;
                    let difference = sum(&bytes) ^ sum(&sound);
                    assert!(put_right(&mut bytes, difference), "byte {at} of {len}");
                    assert_eq!(bytes, sound);
                }
            }
            if len == 4096 {
                let mut bytes = sound.clone();
                bytes[1000..1512].fill(0);
                let difference = sum(&bytes) ^ sum(&sound);
                assert!(!put_right(&mut bytes, difference));
            }
        }
    }
}
