//! A record: one version of one key, as it lies in the arena.
//!
//! # Layout
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 8 | key length << 48, address of the next older version of the key (0: none) |
//! | 8 | 8 | sequence number << 8, whether there is a newer version << 7, kind |
//! | 16 | 4 | value length |
//! | 20 | 4 | lower 32 bits of the key's hash |
//! | 24 | key length | key |
//! | 24 + key length | value length | value |
//!
//! A record starts at a multiple of eight. Once it has been published nothing of it changes but the
//! bit which says that there is a newer version.

use std::cmp;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use super::Arena;
use crate::types::{Kind, SEQ_MAX, Seq};
use gabion_media::prefetch_range;

/// Alignment of a record.
pub(super) const RECORD_ALIGN: usize = 8;

/// Bytes in front of the key.
const HEADER_BYTES: usize = size_of::<Header>();

/// Bytes of a record that are asked for ahead where nothing is known of its length, and at most.
pub(in super::super) const PREFETCH_BYTES: usize = 128;
pub(super) const PREFETCH_BYTES_MAX: usize = 256;

const KEY_LEN_SHIFT: u32 = 48;
const ADDRESS_MASK: usize = (1 << KEY_LEN_SHIFT) - 1;

/// Set in the word of sequence number and kind once the key has a newer version.
const SUPERSEDED: u64 = 1 << 7;

const _: () = assert!(
    size_of::<usize>() == 8,
    "tagged pointers need 64-bit addresses"
);
const _: () = assert!(HEADER_BYTES == 24 && align_of::<Header>() == RECORD_ALIGN);

#[repr(C)]
struct Header {
    /// The older version, with the key's length in the upper 16 bits.
    older: *mut u8,
    seq_kind: AtomicU64,
    value_len: u32,
    hash_bits: u32,
}

/// What a record is made of.
#[derive(Clone, Copy)]
pub(in super::super) struct NewRecord<'a> {
    pub(in super::super) key: &'a [u8],
    pub(in super::super) value: &'a [u8],
    pub(in super::super) seq: Seq,
    pub(in super::super) kind: Kind,
    /// Lower 32 bits of the key's hash.
    pub(in super::super) hash_bits: u32,
    /// The version that this one supersedes.
    pub(in super::super) older: Option<ArenaRecord<'a>>,
}

impl NewRecord<'_> {
    /// Bytes that the record takes in the arena.
    ///
    /// # Panics
    /// When the key or the value is longer than the header can say.
    #[inline]
    pub(super) fn footprint(&self) -> usize {
        assert!(
            u16::try_from(self.key.len()).is_ok(),
            "a key is shorter than 64 KiB"
        );
        assert!(
            u32::try_from(self.value.len()).is_ok(),
            "a value is shorter than 4 GiB"
        );
        footprint(self.key.len(), self.value.len())
    }

    /// Writes the record to `at`.
    ///
    /// # Safety
    /// `at` is aligned to [`RECORD_ALIGN`] and good for writes of [`NewRecord::footprint`] bytes,
    /// which nobody reads or writes meanwhile.
    #[inline]
    pub(super) unsafe fn write(&self, at: NonNull<u8>) {
        debug_assert!(self.seq <= SEQ_MAX);
        #[expect(clippy::cast_possible_truncation, reason = "checked by `footprint`")]
        let value_len = self.value.len() as u32;
        let older = self.older.map_or(std::ptr::null_mut(), ArenaRecord::as_ptr);
        let header = Header {
            older: older.map_addr(|address| address | self.key.len() << KEY_LEN_SHIFT),
            seq_kind: AtomicU64::new(self.seq << 8 | self.kind as u64),
            value_len,
            hash_bits: self.hash_bits,
        };
        // SAFETY: `at` is aligned and good for the header, by the contract.
        unsafe { at.cast::<Header>().write(header) };
        // SAFETY: the header is followed by room for the key, by the contract.
        let key = unsafe { at.add(HEADER_BYTES) };
        // SAFETY: there is room for the key, and the arena's memory is not the caller's.
        unsafe {
            key.as_ptr()
                .copy_from_nonoverlapping(self.key.as_ptr(), self.key.len())
        };
        // SAFETY: the key is followed by room for the value, by the contract.
        let value = unsafe { key.add(self.key.len()) };
        // SAFETY: there is room for the value, and the arena's memory is not the caller's.
        unsafe {
            value
                .as_ptr()
                .copy_from_nonoverlapping(self.value.as_ptr(), self.value.len())
        };
    }
}

#[inline]
fn footprint(key_len: usize, value_len: usize) -> usize {
    (HEADER_BYTES + key_len + value_len).next_multiple_of(RECORD_ALIGN)
}

/// A published record of an arena that outlives `'a`.
#[derive(Clone, Copy)]
pub(in super::super) struct ArenaRecord<'a> {
    at: NonNull<u8>,
    arena: PhantomData<&'a Arena>,
}

// SAFETY: a published record is never written again, but for what is atomic, so any thread may
// read it.
unsafe impl Send for ArenaRecord<'_> {}
// SAFETY: as above.
unsafe impl Sync for ArenaRecord<'_> {}

impl<'a> ArenaRecord<'a> {
    /// The record at `at`.
    ///
    /// # Safety
    /// A record was written to `at` in an arena that outlives `'a`, that write happened before this
    /// call, and `at` may be used to read the whole record.
    #[inline]
    pub(in super::super) unsafe fn from_raw(at: NonNull<u8>) -> ArenaRecord<'a> {
        ArenaRecord {
            at,
            arena: PhantomData,
        }
    }

    /// Where the record lies.
    #[inline]
    pub(in super::super) fn as_ptr(self) -> *mut u8 {
        self.at.as_ptr()
    }

    #[inline]
    fn header(self) -> &'a Header {
        // SAFETY: a record starts with its header, is aligned for it, is not written any more, but
        // for what is atomic, and outlives 'a.
        unsafe { self.at.cast::<Header>().as_ref() }
    }

    #[inline]
    fn key_len(self) -> usize {
        self.header().older.addr() >> KEY_LEN_SHIFT
    }

    /// The key.
    #[inline]
    pub(in super::super) fn key(self) -> &'a [u8] {
        // SAFETY: the key lies behind the header, inside the same allocation.
        let start = unsafe { self.at.add(HEADER_BYTES) };
        // SAFETY: `key_len` bytes of key were written there, are not written any more and outlive
        // 'a.
        unsafe { std::slice::from_raw_parts(start.as_ptr(), self.key_len()) }
    }

    /// The value; empty for a tombstone.
    #[inline]
    pub(in super::super) fn value(self) -> &'a [u8] {
        // SAFETY: the value lies behind header and key, inside the same allocation.
        let start = unsafe { self.at.add(HEADER_BYTES + self.key_len()) };
        // SAFETY: `value_len` bytes of value were written there, are not written any more and
        // outlive 'a.
        unsafe { std::slice::from_raw_parts(start.as_ptr(), self.header().value_len as usize) }
    }

    /// The sequence number.
    #[inline]
    pub(in super::super) fn seq(self) -> Seq {
        self.seq_kind() >> 8
    }

    #[inline]
    fn seq_kind(self) -> u64 {
        // ORDER: Relaxed; what is read of it never changes but for `SUPERSEDED`.
        self.header().seq_kind.load(Ordering::Relaxed)
    }

    /// Notes that the key has a newer version. For the writer.
    #[inline]
    pub(in super::super) fn supersede(self) {
        // ORDER: Relaxed; the writer alone changes it, and who asks has its lock behind it.
        let word = self.seq_kind() | SUPERSEDED;
        self.header().seq_kind.store(word, Ordering::Relaxed);
    }

    /// Whether the key has a newer version.
    #[inline]
    pub(in super::super) fn is_superseded(self) -> bool {
        self.seq_kind() & SUPERSEDED != 0
    }

    /// The kind.
    #[inline]
    pub(in super::super) fn kind(self) -> Kind {
        let [number, ..] = (self.seq_kind() & !SUPERSEDED).to_le_bytes();
        Kind::from_u8(number).expect("a record holds the kind that it was made of")
    }

    /// Lower 32 bits of the key's hash.
    #[inline]
    pub(in super::super) fn hash_bits(self) -> u32 {
        self.header().hash_bits
    }

    /// The next older version of the key.
    #[inline]
    pub(in super::super) fn older(self) -> Option<ArenaRecord<'a>> {
        let older = self
            .header()
            .older
            .map_addr(|address| address & ADDRESS_MASK);
        // SAFETY: the older version was published before this one was written, in the same arena.
        NonNull::new(older).map(|at| unsafe { ArenaRecord::from_raw(at) })
    }

    /// Bytes from this record to the one behind it.
    #[inline]
    pub(in super::super) fn footprint(self) -> usize {
        footprint(self.key_len(), self.header().value_len as usize)
    }

    /// Order within tables: by key, then newest first.
    #[inline]
    pub(in super::super) fn order(self, other: ArenaRecord<'_>) -> cmp::Ordering {
        self.key()
            .cmp(other.key())
            .then_with(|| other.seq().cmp(&self.seq()))
    }

    /// Asks for the cache lines of a record that has about so many bytes, as far as they are within
    /// its first [`PREFETCH_BYTES_MAX`].
    #[inline]
    pub(in super::super) fn prefetch(self, bytes: usize) {
        prefetch_range(self.as_ptr(), bytes.clamp(HEADER_BYTES, PREFETCH_BYTES_MAX));
    }
}
