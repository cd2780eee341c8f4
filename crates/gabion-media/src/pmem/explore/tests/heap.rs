//! A heap of blocks of one line behind a bitmap, as the toys use it.

use super::Words;

pub(super) const MAGIC: u64 = 0x7061_6568;
/// One bit for each block in use.
pub(super) const BITMAP: u64 = 64;
/// Where the structure begins.
pub(super) const ROOT: u64 = 128;
/// A block that is to be freed once its replacement is published.
pub(super) const RETIRED: u64 = 192;
const BLOCKS: u64 = 1024;

/// Blocks of the heap.
pub(super) const COUNT: u32 = 12;

/// The offset of a block; never 0.
pub(super) fn block(number: u32) -> u64 {
    BLOCKS + u64::from(number) * 64
}

/// The bit of a block in the bitmap.
pub(super) fn bit(offset: u64) -> u64 {
    1 << ((offset - BLOCKS) / 64)
}

/// The first of `count` free blocks in a row, if there are so many.
pub(super) fn find(bitmap: u64, count: u32) -> Option<u64> {
    let mask = (1 << count) - 1;
    let is_free = |first: &u32| bitmap & (mask << first) == 0;
    (0..=COUNT - count).find(is_free).map(block)
}

impl Words {
    /// Marks blocks as used, or free, and waits until that is durable.
    #[track_caller]
    pub(super) fn mark(&self, bits: u64, is_used: bool) {
        let bitmap = self.get(BITMAP);
        self.set(
            BITMAP,
            if is_used {
                bitmap | bits
            } else {
                bitmap & !bits
            },
        );
        self.persist(BITMAP);
    }
}
