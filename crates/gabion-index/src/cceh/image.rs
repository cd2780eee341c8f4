//! A segment in DRAM, as it is to be written to a new place.

use super::Cceh;
use super::layout::{PAIRS, path};
use crate::extendible::{Segment, SplitHalves};

/// The entries of a segment, by their slots.
#[derive(Clone)]
pub(super) struct SegmentImage {
    slots: Vec<Option<(u64, u64)>>,
}

impl SegmentImage {
    /// Stores a pair as an insert does; whether its key is new, or none if it finds no room.
    pub(super) fn put<const SCOPE: u64, const TWICE: bool>(
        &mut self,
        hash: u64,
        key: u64,
        value: u64,
    ) -> Option<bool> {
        let last = (self.slots.len() / PAIRS) as u64 - 1;
        let path = path(hash, last, SCOPE, TWICE).flat_map(|number| {
            let bucket = usize::try_from(number).unwrap_or(0);
            bucket * PAIRS..(bucket + 1) * PAIRS
        });
        let mut free = None;
        for slot in path {
            match &mut self.slots[slot] {
                Some(entry) if entry.0 == key => {
                    entry.1 = value;
                    return Some(false);
                }
                None => free = free.or(Some(slot)),
                Some(_) => {}
            }
        }
        self.slots[free?] = Some((key, value));
        Some(true)
    }

    /// The bytes of the segment, with a key that is no entry in each free slot.
    pub(super) fn bytes(&self, filler: u64) -> Vec<u8> {
        let pairs = self.slots.iter().map(|entry| entry.unwrap_or((filler, 0)));
        let words = pairs.flat_map(|(key, value)| [key, value]);
        words.flat_map(u64::to_le_bytes).collect()
    }
}

impl<const COPIES: bool, const SCOPE: u64, const TWICE: bool> Cceh<COPIES, SCOPE, TWICE> {
    /// What is in the segment to which `hash` leads, whose lock is held.
    pub(super) fn image(&self, segment: Segment, hash: u64) -> SegmentImage {
        let mut slots = Vec::with_capacity(PAIRS << self.segment_bits);
        self.for_each_pair(segment, |key, value| {
            let is_entry = segment.owns(hash, self.hash(key));
            slots.push(is_entry.then_some((key, value)));
        });
        SegmentImage { slots }
    }

    /// Both halves of an image of the segment to which `hash` leads. Entries keep their slots.
    pub(super) fn halve(&self, image: &SegmentImage, segment: Segment) -> [SegmentImage; 2] {
        [false, true].map(|half| {
            let is_of_half = |(key, _): &(u64, u64)| segment.is_second(self.hash(*key)) == half;
            let slots = image.slots.iter().map(|entry| entry.filter(is_of_half));
            SegmentImage {
                slots: slots.collect(),
            }
        })
    }

    /// The bytes of halves; of the first one, if it is copied.
    pub(super) fn halves_of(
        &self,
        [first, second]: &[SegmentImage; 2],
        hash: u64,
        copies: bool,
    ) -> SplitHalves {
        let filler = self.filler(hash);
        SplitHalves {
            first: copies.then(|| first.bytes(filler)),
            second: second.bytes(filler),
        }
    }
}
