//! Checksums of data: a table per segment, and the reads that they check.

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
pub(crate) struct Sums {
    seed: u32,
    pub(crate) geometry: Geometry,
}

impl Sums {
    pub(crate) fn new(space: u64, geometry: Geometry) -> Sums {
        Sums {
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
        let (sums, _) = bytes
            .get(FOOTER_HEAD_BYTES..)
            .unwrap_or_default()
            .as_chunks::<4>();
        Ok(SumTable {
            generation,
            written: geometry.room(),
            sums: sums.iter().map(|sum| u32::from_le_bytes(*sum)).collect(),
        })
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

pub(crate) fn corruption(file: &ReadFile, offset: u64, what: String) -> Error {
    Error::Corruption {
        file: file.path().to_path_buf(),
        offset,
        what,
    }
}
