//! The layout of the files of a space, byte by byte.
//!
//! All numbers are little-endian. Every checksum is CRC-32C and begins with the magic of the file
//! and the number of the space, so that the bytes of one file or space are not valid in another.
//!
//! # Data file, `DATA`
//! | offset | size | meaning |
//! |---|---|---|
//! | 0 | 8 | magic `GABFLEXD` |
//! | 8 | 4 | format version |
//! | 12 | 4 | checksum of bytes 0 to 12 and 16 to 32 |
//! | 16 | 8 | number of the space |
//! | 24 | 4 | bytes of a segment |
//! | 28 | 4 | bytes of a block |
//! | 4096 | .. | segments: blocks of data, then a footer |
//!
//! # Footer of a full segment, behind its last block
//! | offset | size | meaning |
//! |---|---|---|
//! | 0 | 4 | checksum of bytes 4 to the end, and the number of the segment |
//! | 4 | 4 | generation: which use of the segment this is |
//! | 8 | 8 | zero |
//! | 16 | 4 each | checksums of the blocks |
//!
//! The checksum of a block covers its bytes, the number of its segment, its index and the
//! generation.
//!
//! # Tree file, `TREE`
//! Two header slots of 4096 bytes; version `v` of the tree stands in slot `v % 2`.
//! | offset | size | meaning |
//! |---|---|---|
//! | 0 | 8 | magic `GABFLEXT` |
//! | 8 | 4 | format version |
//! | 12 | 4 | checksum of bytes 0 to 12 and 16 to 72 |
//! | 16 | 8 | number of the space |
//! | 24 | 8 | version of the tree |
//! | 32 | 8 | bytes in the address space |
//! | 40 | 8 | extents |
//! | 48 | 4 | slot of the root |
//! | 52 | 4 | checksum of the root |
//! | 56 | 4 | levels of inner nodes |
//! | 60 | 4 | slots that nodes have used so far |
//! | 64 | 4 | bytes of a segment |
//! | 68 | 4 | bytes of a block |
//! | 8192 | 1024 each | slots of nodes |
//!
//! # Node
//! | offset | size | meaning |
//! |---|---|---|
//! | 0 | 4 | count of entries, at most 60 |
//! | 4 | 4 | level, 0 for a leaf |
//! | 8 | 56 | zero |
//! | 64 | 16 each | entries, see below; unused ones zero |
//!
//! | offset in an entry | size | leaf | inner node |
//! |---|---|---|---|
//! | 0 | 8 | partial offset (upper 48 bits), upper 16 bits of the address | shift |
//! | 8 | 4 | lower 32 bits of the address | slot of the child |
//! | 12 | 4 | length | checksum of the child |
//!
//! The checksum of a node covers its bytes and its slot. It stands in the parent, so a node that is
//! older than its parent is not valid.
//!
//! # Log, named by the version of the tree that it continues
//! | offset | size | meaning |
//! |---|---|---|
//! | 0 | 8 | magic `GABFLEXL` |
//! | 8 | 4 | format version |
//! | 12 | 4 | checksum of bytes 0 to 12 and 16 to 40 |
//! | 16 | 8 | number of the space |
//! | 24 | 8 | version of the tree |
//! | 32 | 8 | bytes of the file, which never change: a shorter one was cut |
//! | 40 | .. | frames (`log`), then zeros |

use gabion_media::crc32c;

use crate::tree::NODE_BYTES;

/// The version that this program writes, and the newest that it reads.
pub(crate) const FORMAT: u32 = 1;

pub(crate) const DATA_MAGIC: [u8; 8] = *b"GABFLEXD";
pub(crate) const TREE_MAGIC: [u8; 8] = *b"GABFLEXT";
pub(crate) const LOG_MAGIC: [u8; 8] = *b"GABFLEXL";

/// Where the segments begin.
pub(crate) const DATA_HEADER_BYTES: u64 = 4096;

/// Distance of the header slots of the tree file.
pub(crate) const TREE_HEADER_BYTES: u64 = 4096;

/// Where the nodes begin.
pub(crate) const NODES_OFFSET: u64 = 2 * TREE_HEADER_BYTES;

/// Where the frames of a log begin.
pub(crate) const LOG_HEADER_BYTES: usize = 40;

/// Names of the files.
pub(crate) const DATA_NAME: &str = "DATA";
pub(crate) const TREE_NAME: &str = "TREE";
pub(crate) const LOCK_NAME: &str = "LOCK";
/// A file without content, see `reserve`.
pub(crate) const RESERVE_NAME: &str = "RESERVE";
const LOG_SUFFIX: &str = ".log";

const FORMAT_OFFSET: usize = 8;
const CRC_OFFSET: usize = 12;
const BODY_OFFSET: usize = 16;
const DATA_HEAD_BYTES: usize = 32;
pub(crate) const TREE_HEAD_BYTES: usize = 72;

const _: () = assert!(DATA_MAGIC.len() == FORMAT_OFFSET);
const _: () = assert!(FORMAT_OFFSET + size_of::<u32>() == CRC_OFFSET);
const _: () = assert!(CRC_OFFSET + size_of::<u32>() == BODY_OFFSET);
const _: () = assert!(BODY_OFFSET + 8 + 4 + 4 == DATA_HEAD_BYTES);
const _: () = assert!(BODY_OFFSET + 8 + 8 + 8 == LOG_HEADER_BYTES);
const _: () = assert!(BODY_OFFSET + 4 * 8 + 6 * 4 == TREE_HEAD_BYTES);
const _: () = assert!(NODE_BYTES == 1024 && NODES_OFFSET.is_multiple_of(NODE_BYTES as u64));

/// Name of the log that continues a version of the tree.
pub(crate) fn log_name(version: u64) -> String {
    format!("{version:016x}{LOG_SUFFIX}")
}

/// The version in the name of a log.
pub(crate) fn parse_log_name(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(LOG_SUFFIX)?;
    (digits.len() == 16).then(|| u64::from_str_radix(digits, 16).ok())?
}

/// Whether a file of that name is one of a space; its lock is, too.
pub fn is_file_of_space(name: &str) -> bool {
    [DATA_NAME, TREE_NAME, LOCK_NAME, RESERVE_NAME].contains(&name)
        || parse_log_name(name).is_some()
}

/// Begins a checksum.
pub(crate) fn seed_of(magic: &[u8; 8], space: u64) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(magic), &space.to_le_bytes())
}

/// The header of the data file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DataHeader {
    pub(crate) space: u64,
    pub(crate) segment_bytes: u32,
    pub(crate) block_bytes: u32,
}

/// The header of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogHeader {
    pub(crate) space: u64,
    pub(crate) version: u64,
    pub(crate) capacity: u64,
}

/// A header of the tree file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TreeHeader {
    pub(crate) space: u64,
    pub(crate) version: u64,
    pub(crate) len: u64,
    pub(crate) extents: u64,
    pub(crate) root: u32,
    pub(crate) root_crc: u32,
    pub(crate) height: u32,
    pub(crate) slots: u32,
    pub(crate) segment_bytes: u32,
    pub(crate) block_bytes: u32,
}

/// Why bytes are no valid header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeaderError {
    Invalid,
    Newer(u32),
}

fn begin<const N: usize>(magic: &[u8; 8]) -> [u8; N] {
    let mut bytes = [0; N];
    bytes[..FORMAT_OFFSET].copy_from_slice(magic);
    bytes[FORMAT_OFFSET..CRC_OFFSET].copy_from_slice(&FORMAT.to_le_bytes());
    bytes
}

fn checksum(bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&bytes[..CRC_OFFSET]), &bytes[BODY_OFFSET..])
}

fn end<const N: usize>(mut bytes: [u8; N]) -> [u8; N] {
    let crc = checksum(&bytes);
    bytes[CRC_OFFSET..BODY_OFFSET].copy_from_slice(&crc.to_le_bytes());
    bytes
}

fn check<const N: usize>(bytes: &[u8], magic: &[u8; 8]) -> Result<[u8; N], HeaderError> {
    let bytes: &[u8; N] = bytes.first_chunk().ok_or(HeaderError::Invalid)?;
    if bytes[..FORMAT_OFFSET] != *magic || u32_at(bytes, CRC_OFFSET) != checksum(bytes) {
        return Err(HeaderError::Invalid);
    }
    match u32_at(bytes, FORMAT_OFFSET) {
        FORMAT => Ok(*bytes),
        0 => Err(HeaderError::Invalid),
        newer => Err(HeaderError::Newer(newer)),
    }
}

/// The number at an offset, 0 where the bytes end before.
pub(crate) fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    let field = bytes.get(offset..).and_then(|rest| rest.first_chunk());
    u32::from_le_bytes(field.copied().unwrap_or_default())
}

/// The number at an offset, 0 where the bytes end before.
pub(crate) fn u64_at(bytes: &[u8], offset: usize) -> u64 {
    let field = bytes.get(offset..).and_then(|rest| rest.first_chunk());
    u64::from_le_bytes(field.copied().unwrap_or_default())
}

fn put<const N: usize>(bytes: &mut [u8], offset: usize, number: [u8; N]) {
    bytes[offset..offset + N].copy_from_slice(&number);
}

impl DataHeader {
    pub(crate) fn encode(&self) -> [u8; DATA_HEAD_BYTES] {
        let mut bytes = begin(&DATA_MAGIC);
        put(&mut bytes, 16, self.space.to_le_bytes());
        put(&mut bytes, 24, self.segment_bytes.to_le_bytes());
        put(&mut bytes, 28, self.block_bytes.to_le_bytes());
        end(bytes)
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<DataHeader, HeaderError> {
        let bytes: [u8; DATA_HEAD_BYTES] = check(bytes, &DATA_MAGIC)?;
        Ok(DataHeader {
            space: u64_at(&bytes, 16),
            segment_bytes: u32_at(&bytes, 24),
            block_bytes: u32_at(&bytes, 28),
        })
    }
}

impl LogHeader {
    pub(crate) fn encode(&self) -> [u8; LOG_HEADER_BYTES] {
        let mut bytes = begin(&LOG_MAGIC);
        put(&mut bytes, 16, self.space.to_le_bytes());
        put(&mut bytes, 24, self.version.to_le_bytes());
        put(&mut bytes, 32, self.capacity.to_le_bytes());
        end(bytes)
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<LogHeader, HeaderError> {
        let bytes: [u8; LOG_HEADER_BYTES] = check(bytes, &LOG_MAGIC)?;
        Ok(LogHeader {
            space: u64_at(&bytes, 16),
            version: u64_at(&bytes, 24),
            capacity: u64_at(&bytes, 32),
        })
    }
}

impl TreeHeader {
    pub(crate) fn encode(&self) -> [u8; TREE_HEAD_BYTES] {
        let mut bytes = begin(&TREE_MAGIC);
        put(&mut bytes, 16, self.space.to_le_bytes());
        put(&mut bytes, 24, self.version.to_le_bytes());
        put(&mut bytes, 32, self.len.to_le_bytes());
        put(&mut bytes, 40, self.extents.to_le_bytes());
        put(&mut bytes, 48, self.root.to_le_bytes());
        put(&mut bytes, 52, self.root_crc.to_le_bytes());
        put(&mut bytes, 56, self.height.to_le_bytes());
        put(&mut bytes, 60, self.slots.to_le_bytes());
        put(&mut bytes, 64, self.segment_bytes.to_le_bytes());
        put(&mut bytes, 68, self.block_bytes.to_le_bytes());
        end(bytes)
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<TreeHeader, HeaderError> {
        let bytes: [u8; TREE_HEAD_BYTES] = check(bytes, &TREE_MAGIC)?;
        Ok(TreeHeader {
            space: u64_at(&bytes, 16),
            version: u64_at(&bytes, 24),
            len: u64_at(&bytes, 32),
            extents: u64_at(&bytes, 40),
            root: u32_at(&bytes, 48),
            root_crc: u32_at(&bytes, 52),
            height: u32_at(&bytes, 56),
            slots: u32_at(&bytes, 60),
            segment_bytes: u32_at(&bytes, 64),
            block_bytes: u32_at(&bytes, 68),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree_header() -> TreeHeader {
        TreeHeader {
            space: 0x0102_0304_0506_0708,
            version: 9,
            len: 10,
            extents: 11,
            root: 12,
            root_crc: 13,
            height: 14,
            slots: 15,
            segment_bytes: 1 << 22,
            block_bytes: 1 << 12,
        }
    }

    #[test]
    fn headers_come_back_and_every_flipped_bit_is_seen() {
        let tree = tree_header().encode();
        assert_eq!(TreeHeader::decode(&tree), Ok(tree_header()));
        let data = DataHeader {
            space: 1,
            segment_bytes: 2,
            block_bytes: 3,
        };
        assert_eq!(DataHeader::decode(&data.encode()), Ok(data));
        let log = LogHeader {
            space: 4,
            version: 5,
            capacity: 6,
        };
        assert_eq!(LogHeader::decode(&log.encode()), Ok(log));
        for bit in 0..tree.len() * 8 {
            let mut damaged = tree;
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(TreeHeader::decode(&damaged), Err(HeaderError::Invalid));
        }
        assert_eq!(DataHeader::decode(&tree), Err(HeaderError::Invalid));
        assert_eq!(LogHeader::decode(&[]), Err(HeaderError::Invalid));
    }

    #[test]
    fn fields_stand_where_the_table_says() {
        let bytes = tree_header().encode();
        assert_eq!(&bytes[..12], b"GABFLEXT\x01\0\0\0");
        assert_eq!(&bytes[16..25], &[8, 7, 6, 5, 4, 3, 2, 1, 9]);
        let words: Vec<u32> = (48..72).step_by(4).map(|at| u32_at(&bytes, at)).collect();
        assert_eq!(words, [12, 13, 14, 15, 1 << 22, 1 << 12]);
    }

    #[test]
    fn a_newer_format_is_told() {
        let mut bytes = tree_header().encode();
        bytes[FORMAT_OFFSET] = 2;
        assert_eq!(TreeHeader::decode(&end(bytes)), Err(HeaderError::Newer(2)));
    }

    #[test]
    fn names_of_logs_come_back() {
        assert_eq!(log_name(0x1f), "000000000000001f.log");
        assert_eq!(parse_log_name(&log_name(u64::MAX)), Some(u64::MAX));
        for other in [
            "1f.log",
            "000000000000001f.log.tmp",
            "00000000000000zz.log",
            ".log",
        ] {
            assert_eq!(parse_log_name(other), None);
        }
    }
}
