//! Where the parts of a block are, and how blocks are encoded.
//!
//! # Layout
//! Little-endian. Offsets count from the start of the block.
//!
//! | part | size | contents |
//! |---|---|---|
//! | count | 2 | number of entries `n`, at least 1 |
//! | prefix length | 2 | bytes that all keys of the block share |
//! | mark width | 1 | bytes of an entry's mark, 1 to 8 |
//! | length width | 1 | 0: all suffixes have the same length; 2: each entry says its own |
//! | suffix length | 2 | the length of all suffixes when the length width is 0, else 0 |
//! | base | 8 | smallest sequence number of the block |
//! | tags | n | lowest byte of the hash of each key |
//! | prefix | prefix length | the shared bytes |
//! | offsets | 2 n | where each entry starts, counted from the first entry |
//! | entries | | mark, suffix length (if each has its own), suffix, value; up to the next entry |
//! | trailer | 8 | encoding and checksum, see [`super::layout`]; zeros once it was decompressed |
//!
//! A mark is `(sequence number - base) << 3 | kind` in as many bytes as the largest of the block
//! needs. With 16-byte keys and 100-byte values an entry costs six to seven bytes beyond key and
//! value, and the shared prefix pays for some of them. Entries ascend by key, those of one key
//! descend by sequence number.

use crate::limits::KEY_BYTES_MAX;
use crate::types::{SEQ_MAX, Seq};

/// Length of the header, up to the tags.
pub(super) const HEADER_BYTES: usize = 16;
/// Bytes of an entry in front of the entries: its tag and its offset.
pub(super) const SLOT_BYTES: usize = 1 + OFFSET_BYTES;
/// Bits of a mark that say the kind.
pub(super) const KIND_BITS: u32 = 3;
/// The longest mark of an entry.
pub(super) const MARK_BYTES_MAX: usize = 8;
/// Length width of blocks whose suffixes differ in length.
pub(super) const LEN_WIDTH: usize = 2;
/// Largest size of a block of several entries.
pub(super) const BLOCK_BYTES_MAX: usize = 32 << 10;

const OFFSET_BYTES: usize = 2;

/// Count, prefix length, two widths, suffix length, base.
const _: () = assert!(HEADER_BYTES == 2 + 2 + 1 + 1 + 2 + size_of::<Seq>());
/// An offset says where any entry of the largest block begins, and a length how long a key is.
const _: () = assert!(BLOCK_BYTES_MAX <= 1 << (8 * OFFSET_BYTES));
const _: () = assert!(KEY_BYTES_MAX < 1 << (8 * LEN_WIDTH));
/// A mark has room for any sequence number and kind.
const _: () = assert!((SEQ_MAX << KIND_BITS) >> KIND_BITS == SEQ_MAX && MARK_BYTES_MAX == 8);

/// How the body of a block or section is encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Encoding {
    /// As it is.
    Plain,
    /// By LZ4.
    Lz4,
    /// By Zstandard.
    Zstd,
}

impl Encoding {
    /// The number in the trailer.
    pub(super) fn number(self) -> u32 {
        match self {
            Encoding::Plain => 0,
            Encoding::Lz4 => 1,
            Encoding::Zstd => 2,
        }
    }

    /// The encoding of that number, if there is one.
    pub(super) fn of(number: u32) -> Option<Encoding> {
        let all = [Encoding::Plain, Encoding::Lz4, Encoding::Zstd];
        all.into_iter().find(|one| one.number() == number)
    }
}
