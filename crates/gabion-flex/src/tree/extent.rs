//! Extents: ranges of the address space and where their bytes are.

/// Bits of an address.
pub(crate) const ADDRESS_BITS: u32 = 48;

/// The address of a range that has no bytes anywhere, the largest address.
pub const HOLE: u64 = (1 << ADDRESS_BITS) - 1;

/// A range of the address space whose bytes stand one behind the other on the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Where the range begins in the address space, in bytes.
    pub offset: u64,
    /// Bytes in the range.
    pub len: u64,
    /// Where its bytes are on the medium, or [`HOLE`].
    pub address: u64,
}

impl Extent {
    /// Whether the range has no bytes on the medium.
    #[inline]
    pub fn is_hole(&self) -> bool {
        self.address == HOLE
    }

    /// The first offset behind the range.
    #[inline]
    pub fn end(&self) -> u64 {
        self.offset + self.len
    }

    /// The part behind the first `skip` bytes, which is empty if they are all.
    #[inline]
    pub(crate) fn behind(&self, skip: u64) -> Extent {
        Extent {
            offset: self.offset + skip,
            len: self.len - skip,
            address: if self.is_hole() {
                HOLE
            } else {
                self.address + skip
            },
        }
    }

    /// The part that lies in `from..to`, which the range must touch.
    #[inline]
    pub(crate) fn clipped(&self, from: u64, to: u64) -> Extent {
        let end = self.end().min(to);
        let part = self.behind(from.saturating_sub(self.offset));
        Extent {
            len: end - part.offset,
            ..part
        }
    }
}
