//! Compressed blocks: how they lie on the medium, and how they come back.
//!
//! # Idea
//! A block is cut at its size in memory and compressed by itself, so that a read needs that block
//! and nothing else. One that does not become smaller by an eighth stays as it is: what it would
//! save is less than what a reader would pay. So what does not compress costs readers nothing.
//!
//! # Layout
//! | part | size | contents |
//! |---|---|---|
//! | plain length | 4 | bytes of the block ([`super::block_layout`]) without its trailer |
//! | payload | | one LZ4 block, or one Zstandard frame |
//! | trailer | 8 | encoding (1: LZ4, 2: Zstandard) and checksum, see [`super::layout`] |
//!
//! The checksum covers what lies on the medium. A block that comes back ends with eight zeros in
//! place of its trailer, because readers load eight bytes at a time.
//!
//! # Invariants
//! - I1: memory is taken for at most [`PLAIN_BYTES_MAX`], whatever a block says of its length, and
//!   for LZ4 for at most 255 times the payload, which is all that it can hold.
//! - I2: a payload that gives more or fewer bytes than the plain length is refused.
#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used))]

#[cfg(feature = "zstd")]
use std::cell::RefCell;
use std::fmt;

use lz4_flex::block::CompressTable;

use super::block_layout::{Encoding, HEADER_BYTES, LEN_WIDTH, MARK_BYTES_MAX, SLOT_BYTES};
use super::layout::{CheckResult, TRAILER_BYTES};
use crate::limits::{KEY_BYTES_MAX, STORED_BYTES_MAX};
use crate::options::Compression;

/// Bytes of the plain length before the payload.
const LENGTH_BYTES: usize = 4;
/// The longest plain block without its trailer: one entry with the longest key and value. Blocks of
/// several entries are shorter.
const PLAIN_BYTES_MAX: u64 = KEY_BYTES_MAX
    + STORED_BYTES_MAX
    + (HEADER_BYTES + SLOT_BYTES + MARK_BYTES_MAX + LEN_WIDTH) as u64;
/// The most bytes that a byte of LZ4 stands for.
const LZ4_RATIO_MAX: u64 = 255;
/// A writer's buffer stays at most this long.
const SCRATCH_BYTES_MAX: usize = 1 << 20;

/// The longest body on the medium that is worth it for a plain one of `len` bytes.
fn worth(len: usize) -> usize {
    len - len.div_ceil(8)
}

/// Compresses blocks, one after the other.
pub(super) struct BlockCompressor {
    method: Method,
    scratch: Vec<u8>,
}

enum Method {
    Plain,
    Lz4(Box<CompressTable>),
    #[cfg(feature = "zstd")]
    Zstd(zstd::bulk::Compressor<'static>),
}

impl BlockCompressor {
    /// Compresses as the options say, which were checked.
    pub(super) fn new(compression: Compression) -> BlockCompressor {
        let method = match compression {
            Compression::None => Method::Plain,
            Compression::Lz4 => Method::Lz4(Box::default()),
            #[cfg(feature = "zstd")]
            Compression::Zstd(level) => {
                let compressor = zstd::bulk::Compressor::new(level);
                Method::Zstd(compressor.expect("the options allow existing levels only"))
            }
            #[cfg(not(feature = "zstd"))]
            Compression::Zstd(_) => unreachable!("the options refuse what is not built in"),
        };
        BlockCompressor {
            method,
            scratch: Vec::new(),
        }
    }

    /// Compresses the body of a block that begins at `start` of `out` and ends with it, if that is
    /// worth it. Says how the body is encoded.
    pub(super) fn pack(&mut self, out: &mut Vec<u8>, start: usize) -> Encoding {
        let plain = out.get(start..).unwrap_or_default();
        let Some(room) = worth(plain.len()).checked_sub(LENGTH_BYTES) else {
            return Encoding::Plain;
        };
        let Ok(length) = u32::try_from(plain.len()) else {
            return Encoding::Plain;
        };
        let (encoding, packed) = match &mut self.method {
            Method::Plain => return Encoding::Plain,
            Method::Lz4(table) => (Encoding::Lz4, pack_lz4(table, plain, &mut self.scratch)),
            #[cfg(feature = "zstd")]
            Method::Zstd(compressor) => {
                self.scratch.clear();
                self.scratch
                    .reserve(zstd::zstd_safe::compress_bound(plain.len()));
                let packed = compressor.compress_to_buffer(plain, &mut self.scratch);
                (Encoding::Zstd, packed.ok())
            }
        };
        let payload = packed.filter(|len| *len <= room);
        let payload = payload.and_then(|len| self.scratch.get(..len));
        let encoding = match payload {
            Some(payload) => {
                out.truncate(start);
                out.extend_from_slice(&length.to_le_bytes());
                out.extend_from_slice(payload);
                encoding
            }
            None => Encoding::Plain,
        };
        if self.scratch.len() > SCRATCH_BYTES_MAX {
            self.scratch = Vec::new();
        }
        encoding
    }
}

impl fmt::Debug for BlockCompressor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.method {
            Method::Plain => "Packer(none)",
            Method::Lz4(_) => "Packer(lz4)",
            #[cfg(feature = "zstd")]
            Method::Zstd(_) => "Packer(zstd)",
        })
    }
}

/// Fills the front of `scratch`; says with how many bytes.
fn pack_lz4(table: &mut CompressTable, plain: &[u8], scratch: &mut Vec<u8>) -> Option<usize> {
    let room = lz4_flex::block::get_maximum_output_size(plain.len());
    if scratch.len() < room {
        scratch.resize(room, 0);
    }
    lz4_flex::block::compress_into_with_table(plain, scratch, table).ok()
}

/// A compressed block whose checksum was found right.
#[derive(Clone, Copy, Debug)]
pub(super) struct CompressedBlock<'a> {
    encoding: Encoding,
    plain_len: usize,
    payload: &'a [u8],
}

impl<'a> CompressedBlock<'a> {
    /// Reads the body of a block on the medium and checks its lengths.
    pub(super) fn read(encoding: Encoding, body: &'a [u8]) -> CheckResult<CompressedBlock<'a>> {
        let (length, payload) = body
            .split_first_chunk::<LENGTH_BYTES>()
            .ok_or("the compressed block is shorter than its length")?;
        let length = u64::from(u32::from_le_bytes(*length));
        let possible = match encoding {
            Encoding::Plain => return Err("the block is not compressed"),
            Encoding::Lz4 => (payload.len() as u64).saturating_mul(LZ4_RATIO_MAX),
            Encoding::Zstd => u64::MAX,
        };
        let plain_len = usize::try_from(length)
            .ok()
            .filter(|len| length <= possible.min(PLAIN_BYTES_MAX) && body.len() <= worth(*len))
            .ok_or("the length of the compressed block is impossible")?;
        Ok(CompressedBlock {
            encoding,
            plain_len,
            payload,
        })
    }

    /// How the block is encoded.
    pub(super) fn encoding(&self) -> Encoding {
        self.encoding
    }

    /// Bytes that [`CompressedBlock::unpack`] fills.
    pub(super) fn block_len(&self) -> usize {
        self.plain_len + TRAILER_BYTES
    }

    /// Makes the block in the first [`CompressedBlock::block_len`] bytes of `block`.
    pub(super) fn unpack(&self, block: &mut [u8]) -> CheckResult<()> {
        let (plain, rest) = block
            .split_at_mut_checked(self.plain_len)
            .ok_or("there is no room for the block")?;
        let filled = match self.encoding {
            Encoding::Plain => None,
            Encoding::Lz4 => lz4_flex::block::decompress_into(self.payload, plain).ok(),
            Encoding::Zstd => unpack_zstd(self.payload, plain),
        };
        if filled != Some(self.plain_len) {
            return Err("the compressed block does not decompress");
        }
        let trailer = rest.get_mut(..TRAILER_BYTES);
        trailer.ok_or("there is no room for the block")?.fill(0);
        Ok(())
    }
}

#[cfg(feature = "zstd")]
fn unpack_zstd(payload: &[u8], plain: &mut [u8]) -> Option<usize> {
    thread_local! {
        static UNPACKER: RefCell<zstd::bulk::Decompressor<'static>> = RefCell::default();
    }
    UNPACKER.with_borrow_mut(|unpacker| unpacker.decompress_to_buffer(payload, plain).ok())
}

#[cfg(not(feature = "zstd"))]
fn unpack_zstd(_payload: &[u8], _plain: &mut [u8]) -> Option<usize> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What the packer makes of a body, if it makes anything of it.
    fn packed(compression: Compression, plain: &[u8]) -> (Encoding, Vec<u8>) {
        let mut out = [b"before", plain].concat();
        let encoding = BlockCompressor::new(compression).pack(&mut out, 6);
        assert_eq!(&out[..6], b"before");
        (encoding, out.split_off(6))
    }

    fn unpacked(encoding: Encoding, body: &[u8]) -> CheckResult<Vec<u8>> {
        let packed = CompressedBlock::read(encoding, body)?;
        let mut block = vec![0xee; packed.block_len()];
        packed.unpack(&mut block)?;
        assert_eq!(block.split_off(packed.plain_len), [0; TRAILER_BYTES]);
        Ok(block)
    }

    /// A body on the medium in the form that every version of the program must read: ten times
    /// "gabion, " by LZ4, one literal run and one match.
    #[test]
    fn golden_bytes_of_lz4_are_read() {
        let payload = [
            &[0x8f][..],          // 8 literals, a match of at least 19
            b"gabion, ",          // the literals
            &[8, 0, 72 - 5 - 19], // 8 bytes back, 67 bytes
            &[0x50],              // 5 literals
            b"ion, ",
        ];
        let body = [&80u32.to_le_bytes()[..], &payload.concat()].concat();
        assert_eq!(unpacked(Encoding::Lz4, &body), Ok(b"gabion, ".repeat(10)));
    }

    /// The same for a frame of Zstandard with a run of one byte and some bytes as they are.
    #[test]
    #[cfg(feature = "zstd")]
    fn golden_bytes_of_zstd_are_read() {
        let frame = [
            &[0x28, 0xb5, 0x2f, 0xfd][..], // magic
            &[0x20, 104],                  // one segment; its content size is one byte
            &[0x22, 3, 0, b'x'],           // 100 << 3 | 2: a run of 100 bytes
            &[4 << 3 | 1, 0, 0],           // the last block: 4 bytes as they are
            b"tail",
        ];
        let body = [&104u32.to_le_bytes()[..], &frame.concat()].concat();
        let plain = [&[b'x'; 100][..], b"tail"].concat();
        assert_eq!(unpacked(Encoding::Zstd, &body), Ok(plain));
    }

    #[test]
    fn what_does_not_shrink_by_an_eighth_stays_plain() {
        for compression in Compression::available() {
            let mut random = 1u64;
            let noise: Vec<u8> = std::iter::repeat_with(|| {
                random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                random.to_le_bytes()[7]
            })
            .take(4096)
            .collect();
            let mut edge = 0;
            for zeros in 0..1400 {
                let plain = [&noise[..], &vec![0; zeros]].concat();
                let (encoding, body) = packed(compression, &plain);
                if encoding == Encoding::Plain {
                    assert_eq!(body, plain);
                    edge = zeros;
                } else {
                    assert!(body.len() * 8 <= plain.len() * 7);
                    assert_eq!(unpacked(encoding, &body), Ok(plain));
                }
            }
            match compression {
                Compression::None => assert_eq!(edge, 1399),
                _ => assert!((4096 / 7..700).contains(&edge), "{edge}"),
            }
        }
        for len in 0..6 {
            let plain = vec![0; len];
            assert_eq!(packed(Compression::Lz4, &plain), (Encoding::Plain, plain));
        }
    }

    #[test]
    fn impossible_lengths_are_refused_before_memory_is_taken() {
        let (encoding, body) = packed(Compression::Lz4, &[7; 4096]);
        for length in [0, 1, 20, 4095, 4097, 1 << 20, u32::MAX] {
            let mut body = body.clone();
            body[..4].copy_from_slice(&length.to_le_bytes());
            assert!(unpacked(encoding, &body).is_err(), "{length}");
        }
        let limit = u32::try_from(PLAIN_BYTES_MAX).unwrap();
        for (encoding, payload_len) in [(Encoding::Lz4, 1 << 24), (Encoding::Zstd, 10)] {
            let body = |length: u32| {
                let mut body = vec![0; 4 + payload_len];
                body[..4].copy_from_slice(&length.to_le_bytes());
                body
            };
            assert!(CompressedBlock::read(encoding, &body(limit)).is_ok());
            assert!(CompressedBlock::read(encoding, &body(limit + 1)).is_err());
        }
        assert!(CompressedBlock::read(Encoding::Lz4, &body).is_ok());
        assert!(CompressedBlock::read(Encoding::Lz4, &[1, 0, 0]).is_err());
        assert!(CompressedBlock::read(Encoding::Plain, &body).is_err());
    }

    proptest! {
        #[test]
        fn what_was_packed_comes_back(
            words in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..9), 1..9),
            order in prop::collection::vec(any::<prop::sample::Index>(), 0..400),
        ) {
            let plain: Vec<u8> =
                order.iter().flat_map(|index| index.get(&words).iter().copied()).collect();
            for compression in Compression::available() {
                let (encoding, body) = packed(compression, &plain);
                if encoding == Encoding::Plain {
                    prop_assert_eq!(&body, &plain);
                } else {
                    prop_assert_eq!(unpacked(encoding, &body), Ok(plain.clone()));
                }
            }
        }

        #[test]
        fn any_bytes_unpack_or_are_refused(
            length in 0u32..3000,
            payload in prop::collection::vec(any::<u8>(), 0..200),
            flip in any::<prop::sample::Index>(),
            with in 1u8..,
        ) {
            let body = [&length.to_le_bytes()[..], &payload].concat();
            for compression in Compression::available() {
                let (encoding, mut packed) = packed(compression, &[3; 2000]);
                if encoding != Encoding::Plain {
                    let _ = unpacked(encoding, &body);
                    let at = flip.index(packed.len());
                    packed[at] ^= with;
                    let _ = unpacked(encoding, &packed);
                }
            }
        }
    }
}
