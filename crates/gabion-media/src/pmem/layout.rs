//! The layout of a pool, and its header.
//!
//! # Layout of a pool
//! | offset | size | meaning |
//! |---|---|---|
//! | 0 | 4096 | header |
//! | 4096 | heaps * 512 | intents of the allocator (`alloc/intent.rs`), 16 for each heap |
//! | .. | chunks * 8 | a descriptor for each chunk (`alloc/chunk.rs`) |
//! | .. | chunks * chunk size / 64 | two bits for each 16 bytes of each chunk |
//! | .. | chunks * chunk size | the chunks, from a multiple of the chunk size on |
//!
//! Descriptors and states begin at multiples of 4096.
//!
//! # Layout of the header
//! | offset | size | meaning |
//! |---|---|---|
//! | 0 | 8 | magic `GABIONPM`, written last when a pool is created |
//! | 8 | 4 | format version |
//! | 12 | 4 | CRC-32C of the first 128 bytes without these four |
//! | 16 | 8 | byte order mark `0x0102030405060708` |
//! | 24 | 8 | layout id: what kind of structure lies in the pool |
//! | 32 | 16 | UUID of the pool |
//! | 48 | 8 | size of the pool in bytes |
//! | 56 | 4 | number of heaps |
//! | 60 | 4 | chunk size in bytes, a power of two |
//! | 64 | 4 | flags: bit 0 says that the pool has a checkpoint beside it |
//! | 68 | 60 | zero |
//! | 128 | 8 | state: `OPEN` or `CLOSED` and sixteen bits of check |
//! | 136 | 16 | id of the boot of the system in which the pool was opened last |
//! | 152 | 8 | number of chunks whose space is reserved, sealed |
//! | 160 | 8 | process that opened the pool last; only for messages |
//! | 168 | 8 | number of the last checkpoint when the pool was closed, sealed; all bits are set |
//! | | | if there was no space for one |
//! | 176 | 8 | the file in which the pool was opened last, see `page_witness`; 0 if it is closed |
//! | 184 | 8 | zero |
//! | 192 | 8 | root offset, sealed |
//! | 200 | 3896 | zero |
//!
//! All numbers are little-endian. A *sealed* number has 48 bits, and the low sixteen bits of the
//! CRC-32C of its eight bytes above them, so that it changes with one store and a damaged one is
//! found; a sealed zero is eight zero bytes. The words from 128 on change while the pool is open,
//! each by one atomic store. A file of a pool with a checkpoint is 32 KiB longer than the pool
//! (`page_witness`).

use super::atomic::PAtomicU64;
use crate::crc32c;
use crate::media_struct;

/// First bytes of a pool.
pub(super) const MAGIC: [u8; 8] = *b"GABIONPM";

/// The version that this program writes, and the newest that it reads.
pub(super) const VERSION: u32 = 1;

/// Size of the header in bytes.
pub(super) const HEADER_BYTES: u64 = 4096;

/// Size of the part of the header that is never changed.
pub(super) const FIXED_BYTES: usize = 128;

const BYTE_ORDER: u64 = 0x0102_0304_0506_0708;
const FLAG_CHECKPOINTED: u32 = 1;

/// State of a pool that is open, or was not closed.
pub(super) const STATE_OPEN: u64 = 0x4e45_504f;
/// State of a pool that was closed.
pub(super) const STATE_CLOSED: u64 = 0x4445_5334_4c43;

/// What stands for the number of the last checkpoint of a pool that was closed without one.
pub(super) const NO_CHECKPOINT: u64 = (1 << 48) - 1;

/// Smallest and largest chunk size in bytes.
pub(super) const CHUNK_BYTES_MIN: u64 = 4096;
/// The largest one keeps the number of blocks of a chunk within sixteen bits.
pub(super) const CHUNK_BYTES_MAX: u64 = 1 << 20;

/// Most heaps of a pool.
pub(super) const HEAPS_MAX: u32 = 1024;

/// Largest pool in bytes: what a sealed offset can say.
pub(super) const SIZE_MAX: u64 = 1 << 47;

/// The unit of blocks in bytes.
pub(super) const GRANULE: u64 = 16;

/// Size of the intents of one heap in bytes.
pub(super) const RING_BYTES: u64 = 512;

/// The part of the header that changes, from [`FIXED_BYTES`] on.
pub(super) const STATE_OFFSET: u64 = 128;
/// Where the root offset lies.
pub(super) const ROOT_OFFSET: u64 = 192;

media_struct! {
    /// Words of the header that change: how the pool was left.
    pub(super) struct StateLine {
        /// `OPEN` or `CLOSED`, sealed.
        pub(super) state: PAtomicU64,
        /// Boot of the last opening.
        pub(super) boot_id: [PAtomicU64; 2],
        /// Chunks whose space is reserved, sealed.
        pub(super) reserved_chunks: PAtomicU64,
        /// Process of the last opening.
        pub(super) holder: PAtomicU64,
        /// Last checkpoint before the pool was closed, sealed.
        pub(super) checkpoint: PAtomicU64,
        /// File of the last opening.
        pub(super) witness: PAtomicU64,
        /// Zero.
        pub(super) unused: PAtomicU64,
    }
}

const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<StateLine>() == 64);
    assert!(offset_of!(StateLine, boot_id) == 136 - 128);
    assert!(offset_of!(StateLine, reserved_chunks) == 152 - 128);
    assert!(offset_of!(StateLine, holder) == 160 - 128);
    assert!(offset_of!(StateLine, checkpoint) == 168 - 128);
    assert!(offset_of!(StateLine, witness) == 176 - 128);
    assert!(STATE_OFFSET == FIXED_BYTES as u64);
    assert!(STATE_OFFSET + size_of::<StateLine>() as u64 == ROOT_OFFSET);
    assert!(STATE_CLOSED < 1 << 48 && STATE_OPEN < 1 << 48);
};

/// Puts the check above a number of at most 48 bits.
pub(super) fn seal(value: u64) -> u64 {
    debug_assert!(value < 1 << 48, "a sealed number has 48 bits");
    if value == 0 {
        return 0;
    }
    let check = crc32c::crc32c(&value.to_le_bytes()) & 0xffff;
    value | u64::from(check) << 48
}

/// The number in a sealed word, if it is intact.
pub(super) fn unseal(word: u64) -> Option<u64> {
    let value = word & ((1 << 48) - 1);
    (seal(value) == word).then_some(value)
}

/// What the fixed part of a header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PoolHeader {
    pub(super) layout: u64,
    pub(super) uuid: [u8; 16],
    pub(super) size: u64,
    pub(super) heaps: u32,
    pub(super) chunk_bytes: u32,
    pub(super) is_checkpointed: bool,
}

/// What the first bytes of a file are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeaderState {
    /// An intact header.
    Valid(PoolHeader),
    /// No magic: the creation of the pool was interrupted.
    Incomplete,
    /// Something else than a pool.
    Foreign,
    /// A pool of another format version.
    OtherVersion(u32),
    /// A pool of a machine with the other byte order.
    OtherByteOrder,
    /// A damaged header of a pool.
    Damaged,
}

impl PoolHeader {
    /// The bytes on media.
    pub(super) fn encode(&self) -> [u8; FIXED_BYTES] {
        let mut bytes = [0; FIXED_BYTES];
        let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
        put(0, &MAGIC);
        put(8, &VERSION.to_le_bytes());
        put(16, &BYTE_ORDER.to_le_bytes());
        put(24, &self.layout.to_le_bytes());
        put(32, &self.uuid);
        put(48, &self.size.to_le_bytes());
        put(56, &self.heaps.to_le_bytes());
        put(60, &self.chunk_bytes.to_le_bytes());
        let flags = if self.is_checkpointed {
            FLAG_CHECKPOINTED
        } else {
            0
        };
        put(64, &flags.to_le_bytes());
        let crc = checksum(&bytes);
        bytes[12..16].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Where the parts of the pool lie.
    pub(super) fn geometry(&self) -> Option<PoolGeometry> {
        PoolGeometry::new(self.size, self.heaps, u64::from(self.chunk_bytes))
    }
}

/// Checks the first bytes of a pool.
pub(super) fn check_header(bytes: &[u8; FIXED_BYTES]) -> HeaderState {
    let u32_at = |at: usize| {
        let field = bytes.get(at..).and_then(|rest| rest.first_chunk());
        u32::from_le_bytes(field.copied().unwrap_or_default())
    };
    let u64_at = |at: usize| {
        let field = bytes.get(at..).and_then(|rest| rest.first_chunk());
        u64::from_le_bytes(field.copied().unwrap_or_default())
    };
    match bytes.first_chunk() {
        Some(&MAGIC) => {}
        Some(&[0, 0, 0, 0, 0, 0, 0, 0]) => return HeaderState::Incomplete,
        _ => return HeaderState::Foreign,
    }
    if u64_at(16) == BYTE_ORDER.swap_bytes() {
        return HeaderState::OtherByteOrder;
    }
    if u32_at(12) != checksum(bytes) {
        return HeaderState::Damaged;
    }
    if u32_at(8) != VERSION {
        return HeaderState::OtherVersion(u32_at(8));
    }
    let mut uuid = [0; 16];
    uuid.copy_from_slice(&bytes[32..48]);
    let header = PoolHeader {
        layout: u64_at(24),
        uuid,
        size: u64_at(48),
        heaps: u32_at(56),
        chunk_bytes: u32_at(60),
        is_checkpointed: u32_at(64) & FLAG_CHECKPOINTED != 0,
    };
    let is_zero = bytes[68..].iter().all(|byte| *byte == 0);
    if u64_at(16) != BYTE_ORDER
        || u32_at(64) & !FLAG_CHECKPOINTED != 0
        || !is_zero
        || header.geometry().is_none()
    {
        return HeaderState::Damaged;
    }
    HeaderState::Valid(header)
}

fn checksum(bytes: &[u8; FIXED_BYTES]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&bytes[..12]), &bytes[16..])
}

/// Where the parts of a pool lie. All offsets and sizes are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PoolGeometry {
    pub(super) size: u64,
    pub(super) heaps: u32,
    pub(super) chunk_bytes: u64,
    pub(super) rings_at: u64,
    pub(super) descriptors_at: u64,
    pub(super) states_at: u64,
    pub(super) chunks_at: u64,
    pub(super) chunks: u64,
}

impl PoolGeometry {
    /// The parts of a pool of `size` bytes; none if it is too small for a single chunk or one of
    /// the numbers is not allowed.
    pub(super) fn new(size: u64, heaps: u32, chunk_bytes: u64) -> Option<PoolGeometry> {
        let allowed = chunk_bytes.is_power_of_two()
            && (CHUNK_BYTES_MIN..=CHUNK_BYTES_MAX).contains(&chunk_bytes)
            && (1..=HEAPS_MAX).contains(&heaps)
            && size <= SIZE_MAX
            && size.is_multiple_of(4096);
        if !allowed {
            return None;
        }
        let page = |offset: u64| offset.next_multiple_of(4096);
        let descriptors_at = page(HEADER_BYTES + u64::from(heaps) * RING_BYTES);
        let states_of_chunk = chunk_bytes / 64;
        // Each chunk costs itself, its states and its descriptor; rounding costs the rest.
        let mut chunks = size.checked_sub(descriptors_at)? / (chunk_bytes + states_of_chunk + 8);
        loop {
            if chunks == 0 {
                return None;
            }
            let states_at = page(descriptors_at + chunks * 8);
            let chunks_at = (states_at + chunks * states_of_chunk).next_multiple_of(chunk_bytes);
            if chunks_at + chunks * chunk_bytes <= size {
                return Some(PoolGeometry {
                    size,
                    heaps,
                    chunk_bytes,
                    rings_at: HEADER_BYTES,
                    descriptors_at,
                    states_at,
                    chunks_at,
                    chunks,
                });
            }
            chunks -= 1;
        }
    }

    /// Where a chunk begins.
    pub(super) fn chunk_at(&self, chunk: u64) -> u64 {
        self.chunks_at + chunk * self.chunk_bytes
    }

    /// The chunk that holds an offset, if one does.
    pub(super) fn chunk_of(&self, offset: u64) -> Option<u64> {
        let chunk = offset.checked_sub(self.chunks_at)? / self.chunk_bytes;
        (chunk < self.chunks).then_some(chunk)
    }

    /// Where the states of a chunk's blocks begin.
    pub(super) fn states_of(&self, chunk: u64) -> u64 {
        self.states_at + chunk * (self.chunk_bytes / 64)
    }

    /// Where the descriptor of a chunk lies.
    pub(super) fn descriptor_of(&self, chunk: u64) -> u64 {
        self.descriptors_at + chunk * 8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: PoolHeader = PoolHeader {
        layout: 0x0102,
        uuid: *b"0123456789abcdef",
        size: 1 << 20,
        heaps: 2,
        chunk_bytes: 4096,
        is_checkpointed: true,
    };

    /// The rows of a table in this file's head: offset and size, where both are numbers.
    fn rows(title: &str) -> Vec<(u64, u64)> {
        let text = include_str!("layout.rs");
        let table = text.split(title).nth(1).unwrap();
        let lines = table.lines().skip_while(|line| !line.starts_with("//! | "));
        let rows =
            lines.take_while(|line| line.starts_with("//! | ") || line.starts_with("//! |-"));
        let numbers = |line: &str| {
            let mut cells = line.split('|').skip(1).map(|cell| cell.trim().parse());
            Some((cells.next()?.ok()?, cells.next()?.ok()?))
        };
        rows.filter_map(numbers).collect()
    }

    #[test]
    fn the_table_is_what_the_types_say() {
        let rows = rows("# Layout of the header");
        let mut end = 0;
        for (offset, size) in &rows {
            assert_eq!(*offset, end, "no gap and no overlap");
            end = offset + size;
        }
        assert_eq!(end, HEADER_BYTES);
        use std::mem::offset_of;
        let line = |field: usize| STATE_OFFSET + field as u64;
        for offset in [
            line(offset_of!(StateLine, state)),
            line(offset_of!(StateLine, boot_id)),
            line(offset_of!(StateLine, reserved_chunks)),
            line(offset_of!(StateLine, holder)),
            line(offset_of!(StateLine, checkpoint)),
            line(offset_of!(StateLine, witness)),
            line(offset_of!(StateLine, unused)),
            ROOT_OFFSET,
            FIXED_BYTES as u64,
        ] {
            assert!(
                rows.iter().any(|(row, _)| *row == offset),
                "no row for {offset}"
            );
        }
    }

    #[test]
    fn the_header_has_these_bytes() {
        let bytes = HEADER.encode();
        let mut golden = b"GABIONPM\x01\0\0\0".to_vec();
        golden.extend(checksum(&bytes).to_le_bytes());
        golden.extend([8, 7, 6, 5, 4, 3, 2, 1]);
        golden.extend([2, 1, 0, 0, 0, 0, 0, 0]);
        golden.extend(b"0123456789abcdef");
        golden.extend([0, 0, 16, 0, 0, 0, 0, 0]);
        golden.extend([2, 0, 0, 0, 0, 16, 0, 0]);
        golden.extend([1, 0, 0, 0]);
        golden.resize(FIXED_BYTES, 0);
        assert_eq!(bytes, golden[..]);
        assert_eq!(check_header(&bytes), HeaderState::Valid(HEADER));
    }

    #[test]
    fn every_flipped_bit_of_the_header_is_seen() {
        for at in 0..FIXED_BYTES {
            for bit in 0..8 {
                let mut bytes = HEADER.encode();
                bytes[at] ^= 1 << bit;
                let state = check_header(&bytes);
                let seen = matches!(state, HeaderState::Damaged | HeaderState::Foreign);
                assert!(seen, "{at} {bit}: {state:?}");
            }
        }
    }

    #[test]
    fn sealed_numbers_show_their_damage() {
        for value in [0, 1, 4096, (1 << 48) - 1] {
            let word = seal(value);
            assert_eq!(unseal(word), Some(value));
            for bit in 0..64 {
                assert_ne!(unseal(word ^ 1 << bit), Some(value), "{value} {bit}");
            }
        }
        assert_eq!(unseal(seal(77) ^ 1), None);
    }

    #[test]
    fn parts_of_a_pool_do_not_overlap() {
        for chunk_bytes in [4096, 65536, 1 << 20] {
            for size in (1..600)
                .map(|pages| pages * 4096)
                .chain([1 << 30, SIZE_MAX])
            {
                for heaps in [1, 3, 64] {
                    let Some(geometry) = PoolGeometry::new(size, heaps, chunk_bytes) else {
                        assert!(
                            size < 4 * chunk_bytes + 65536,
                            "{size} {heaps} {chunk_bytes}"
                        );
                        continue;
                    };
                    let PoolGeometry { chunks, .. } = geometry;
                    assert!(
                        geometry.rings_at + u64::from(heaps) * RING_BYTES
                            <= geometry.descriptors_at
                    );
                    assert!(geometry.descriptor_of(chunks) <= geometry.states_at);
                    assert!(geometry.states_of(chunks) <= geometry.chunks_at);
                    assert!(geometry.chunk_at(chunks) <= size);
                    assert!(geometry.chunks_at.is_multiple_of(chunk_bytes));
                    assert_eq!(
                        geometry.chunk_of(geometry.chunk_at(chunks) - 1),
                        Some(chunks - 1)
                    );
                    assert_eq!(geometry.chunk_of(geometry.chunk_at(chunks)), None);
                    assert_eq!(geometry.chunk_of(geometry.chunks_at - 1), None);
                }
            }
        }
    }
}
