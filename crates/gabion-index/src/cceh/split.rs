//! Splits of segments: what both halves look like.

use super::Cceh;
use crate::Result;
use crate::extendible::Segment;
use crate::line::LINE_BYTES;

impl<const COPIES: bool, const SCOPE: u64, const TWICE: bool> Cceh<COPIES, SCOPE, TWICE> {
    /// Splits the segment to which `hash` leads, whose lock is held.
    #[cold]
    pub(super) fn split(&self, segment: Segment, hash: u64) -> Result<()> {
        let images = || {
            let halves = self.halve(&self.image(segment, hash), segment);
            Ok(self.halves_of(&halves, hash, COPIES))
        };
        self.segments.split(segment, hash, images, || Ok(()))
    }

    /// The bytes of a segment without entries for hashes that begin like `hash`.
    pub(super) fn empty_segment(&self, hash: u64) -> Vec<u8> {
        let pairs = (LINE_BYTES << self.segment_bits) / 16;
        let pair = [self.filler(hash).to_le_bytes(), [0; 8]].concat();
        (0..pairs).flat_map(|_| pair.iter().copied()).collect()
    }
}
