//! Splits of segments, and doublings of the directory.
//!
//! A split of segment S with depth L, of which the directory has n = 2^(G-L) entries, changes them
//! in three stages, each durable before the next. N is the new segment for the second half; the
//! first half stays in S, or goes to S' if splits copy both halves.
//!
//! | stage | the first entry | others of the first half | of the second half | the last entry |
//! |---|---|---|---|---|
//! | before | S, L | S, L | S, L | S, L |
//! | 1 | S, L | S, L | S, L | N, L+1 |
//! | 2 (if n > 2) | S, L | S', L+1 | N, L+1 | N, L+1 |
//! | 3 | S', L+1 | S', L+1 | N, L+1 | N, L+1 |
//!
//! The allocator is told that the last entry refers to N, and the first one to S and S'. After a
//! crash in stage 1 or 2, recovery goes on with S in the place of S'. Entries that lie in one line,
//! up to eight, need one flush for all stages on x86-64, where the stores to a line reach the
//! medium in their order.

use std::sync::atomic::Ordering;

use gabion_media::pmem::{POff, Reserved};

use super::Cceh;
use super::layout::{Bucket, DEPTH_MAX, Directory, SEGMENT_ALIGN, Segment};
use crate::line::LINE_BYTES;
use crate::lock::Stripes;
use crate::{Error, Result};

impl<const COPIES: bool> Cceh<COPIES> {
    /// Splits the segment to which `hash` leads, whose lock is held.
    #[cold]
    pub(super) fn split(&self, segment: Segment, hash: u64) -> Result<()> {
        let depth = segment.depth();
        if depth >= DEPTH_MAX {
            return Err(Error::ShardLimit);
        }
        // The second half has a stripe of its own if there are so many: one behind the first's.
        let second = hash | 1 << (63 - depth);
        let stripe = Stripes::index(second, depth + 1);
        let is_other = stripe != Stripes::index(hash, depth);
        let _held = is_other.then(|| self.stripes.at(stripe).lock());
        let images = self.images(segment, hash);
        let _growth = self.growth.lock();
        // References to segments move, in the directory and with it.
        self.pool.settle();
        if self.directory().bits() == depth {
            self.double()?;
        }
        let directory = self.directory();
        let entries = directory.entries_for(hash, depth);
        let hint = |number| directory.entry(number).raw();
        let (first_hint, last_hint) = (hint(entries.start), hint(entries.end - 1));
        let new = self.reserve_segment(last_hint)?;
        let copy = match COPIES {
            true => Some((
                self.reserve_segment(first_hint)?,
                self.pool
                    .retire::<Bucket>(POff::new(segment.offset()), first_hint)?,
            )),
            false => None,
        };
        let [first_image, second_image] = images;
        let place = new.offset::<Bucket>().raw();
        self.medium.write_past_cache(place, &second_image);
        let halves = match &copy {
            Some((copy, _)) => {
                let place = copy.offset::<Bucket>().raw();
                self.medium.write_past_cache(place, &first_image);
                place
            }
            None => segment.offset(),
        };
        let first = Segment::new(halves, depth + 1);
        let second = Segment::new(place, depth + 1);
        // DURABLE: the new segments, and what the allocator noted, before an entry names them.
        self.medium.fence();
        let last = self.medium.at(directory.entry(entries.end - 1));
        // ORDER: Release pairs with the acquire in `segment`.
        last.store(&self.medium, second.0.0, Ordering::Release);
        if !directory.is_one_line(&entries) {
            // DURABLE: the split, by this: recovery ends what is left of it.
            self.medium.persist(last);
        }
        self.finish_split(directory, entries, first, second);
        new.commit::<Bucket>();
        if let Some((copy, retiring)) = copy {
            copy.commit::<Bucket>();
            retiring.commit(&self.pool.enter());
        }
        Ok(())
    }

    /// The second and the third stage of a split.
    pub(super) fn finish_split(
        &self,
        directory: Directory,
        entries: std::ops::Range<u64>,
        first: Segment,
        second: Segment,
    ) {
        let middle = entries.start + (entries.end - entries.start) / 2;
        for number in entries.start + 1..entries.end {
            let half = if number < middle { first } else { second };
            let entry = self.medium.at(directory.entry(number));
            // ORDER: as in `split`.
            entry.store(&self.medium, half.0.0, Ordering::Release);
        }
        if !directory.is_one_line(&entries) {
            let others = directory.entry(entries.start + 1).raw();
            let bytes = directory.entry(entries.end).raw() - others;
            // DURABLE: all entries but the first, before that one tells that the split is over.
            self.medium.persist_range(others, bytes);
        }
        let entry = self.medium.at(directory.entry(entries.start));
        // DURABLE: the end of the split, and in one line with the others all of it.
        // ORDER: as in `split`.
        entry.store_persist(&self.medium, first.0.0, Ordering::Release);
    }

    /// Reserves a segment to which the word at `hint` will refer.
    pub(super) fn reserve_segment(&self, hint: u64) -> Result<Reserved<'_>> {
        let bytes = LINE_BYTES << self.segment_bits;
        Ok(self.pool.alloc_aligned(bytes, SEGMENT_ALIGN, hint)?)
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

    /// Doubles the directory. `growth` is held.
    fn double(&self) -> Result<()> {
        let old = self.directory();
        let depth = old.bits() + 1;
        let word = self.directory_word();
        let hint = self.medium.offset_of(word).raw();
        let space = self
            .pool
            .alloc_aligned(Directory::bytes(depth), LINE_BYTES, hint)?;
        let retiring = self.pool.retire::<Bucket>(POff::new(old.offset()), hint)?;
        let new = Directory::new(space.offset::<Bucket>().raw(), depth);
        let mut bytes = Vec::new();
        for number in 0..old.len() {
            let entry = self.medium.at(old.entry(number));
            // ORDER: Relaxed: entries change under `growth`.
            let entry = entry.load(&self.medium, Ordering::Relaxed).to_le_bytes();
            bytes.extend_from_slice(&entry);
            bytes.extend_from_slice(&entry);
        }
        self.medium.write_past_cache(new.offset(), &bytes);
        // DURABLE: the directory, and what the allocator noted, before the root names it.
        self.medium.fence();
        // DURABLE: the doubling, by this.
        // ORDER: Relaxed: read by recovery only.
        word.store_persist(&self.medium, new.0.0, Ordering::Relaxed);
        self.adopt(new);
        space.commit::<Bucket>();
        retiring.commit(&self.pool.enter());
        Ok(())
    }

    /// Uses a directory.
    pub(super) fn adopt(&self, directory: Directory) {
        // ORDER: Release pairs with the acquire of `directory`.
        self.directory.store(directory.0.0, Ordering::Release);
    }

    /// Splits all segments of an empty table until they have so many bits.
    pub(super) fn presplit(&self, wanted: u32) -> Result<()> {
        for depth in 1..wanted {
            for number in 0..1_u64 << depth {
                let hash = number << (64 - depth);
                let (segment, _held) = self.lock(hash);
                if segment.depth() == depth {
                    self.split(segment, hash)?;
                }
            }
        }
        Ok(())
    }
}
