//! Checks that there is room for several blocks before the first one is reserved.
//!
//! What is made of several blocks, step by step, each of which is durable, cannot be taken back as
//! a whole when there is no space for the last one. So it asks for the room of all of them first.
//! The answer is that of a search in copies of the lists: nothing is written, but that chunks get
//! space in a file that has none for them yet.

use super::super::layout::PoolGeometry;
use super::central::CentralHeap;
use super::classes::SizeClasses;
use super::{AllocError, Allocator};

/// Blocks of one size, see [`Pool::expect_room`](super::super::Pool::expect_room).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoomRequest {
    /// Bytes of each of them.
    pub bytes: u64,
    /// What its offset is a multiple of: a power of two up to the chunk size.
    pub align: u64,
    /// How many.
    pub count: u64,
}

impl Allocator {
    /// Sees to it that there is room for all of some blocks, as long as nobody else reserves any.
    pub(in super::super) fn expect_room(&self, parts: &[RoomRequest]) -> Result<(), AllocError> {
        let find_end = || {
            let central = self.central.lock();
            central.end_of(&self.geometry, &self.classes, parts)
        };
        let end = match find_end() {
            Some(end) => end,
            None => {
                self.reclaim();
                find_end().ok_or(AllocError::Full)?
            }
        };
        let mut central = self.central.lock();
        match end.checked_sub(central.reserved) {
            Some(missing) if missing > 0 => self.reserve_chunks(&mut central, missing),
            _ => Ok(()),
        }
    }
}

impl CentralHeap {
    /// The end of the last chunk that some blocks take, one after the other; none if there is no
    /// room for all of them. Free blocks of slabs that were not read and of caches do not count.
    fn end_of(
        &self,
        geometry: &PoolGeometry,
        classes: &SizeClasses,
        parts: &[RoomRequest],
    ) -> Option<u64> {
        let mut extents = self.extents.clone();
        if geometry.chunks > self.reserved {
            extents.give(self.reserved, geometry.chunks - self.reserved);
        }
        let mut free = self.free_by_class();
        let mut end = 0;
        for part in parts {
            if part.bytes > geometry.size || part.align > geometry.chunk_bytes {
                return None;
            }
            let class = classes.class_for(part.bytes, part.align);
            let (runs, length) = match class {
                None => (part.count, part.bytes.div_ceil(geometry.chunk_bytes)),
                Some(class) => {
                    let of_chunk = geometry.chunk_bytes / classes.size(class);
                    let missing = part.count.saturating_sub(free[class]);
                    let slabs = missing.div_ceil(of_chunk);
                    if slabs > extents.free() {
                        return None;
                    }
                    free[class] = free[class] + slabs * of_chunk - part.count;
                    (slabs, 1)
                }
            };
            if runs.checked_mul(length)? > extents.free() {
                return None;
            }
            for _ in 0..runs {
                end = end.max(extents.take(length)? + length);
            }
        }
        Some(end)
    }
}
