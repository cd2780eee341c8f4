//! Splits of segments: what both halves look like.

use super::Cceh;
use crate::Result;
use crate::extendible::Segment;
use crate::line::LINE_BYTES;

impl<const COPIES: bool> Cceh<COPIES> {
    /// Splits the segment to which `hash` leads, whose lock is held.
    #[cold]
    pub(super) fn split(&self, segment: Segment, hash: u64) -> Result<()> {
        let images = || Ok(self.images(segment, hash));
        self.segments.split(segment, hash, images, || Ok(()))
    }

    /// The bytes of a segment without entries for hashes that begin like `hash`.
    pub(super) fn empty_segment(&self, hash: u64) -> Vec<u8> {
        let pairs = (LINE_BYTES << self.segment_bits) / 16;
        let pair = [self.filler(hash).to_le_bytes(), [0; 8]].concat();
        (0..pairs).flat_map(|_| pair.iter().copied()).collect()
    }

    /// The bytes of both halves of a segment. What is no entry of a half is a key that cannot be
    /// one.
    fn images(&self, segment: Segment, hash: u64) -> [Vec<u8>; 2] {
        let filler = self.filler(hash);
        let mut images: [Vec<u8>; 2] = Default::default();
        self.for_each_pair(segment, |key, value| {
            let other = self.seed.hash_u64(key);
            let half = segment
                .owns(hash, other)
                .then(|| usize::from(segment.is_second(other)));
            for (image, number) in images.iter_mut().zip(0..) {
                let key = if half == Some(number) { key } else { filler };
                image.extend_from_slice(&key.to_le_bytes());
                image.extend_from_slice(&value.to_le_bytes());
            }
        });
        images
    }
}
