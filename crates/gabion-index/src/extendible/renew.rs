//! A new segment in the place of one.
//!
//! The new segment S' has the depth of the old one, S, and all that this has, so the entries of the
//! directory may name either while they change:
//!
//! | stage | the first entry | all others |
//! |---|---|---|
//! | before | S | S |
//! | 1 | S | S' or S |
//! | 2 | S | S' |
//! | 3 | S' | S' |
//!
//! Stage 2 is durable before the last one. The allocator is told that the first entry refers to S
//! and to S'. So after a crash before stage 3 the space of S' is free, and recovery lets all
//! entries name S again; afterwards that of S is. Nothing is lost in either: whoever adds something
//! to S' has it elsewhere until this is over. Entries that lie in one line need one flush on
//! x86-64, where the stores to a line reach the medium in their order.

use std::ops::Range;

use gabion_media::pmem::POff;

use super::{Directory, Extendible, FirstHalf, Segment};
use crate::Result;
use crate::line::Line;

impl Extendible {
    /// Replaces the segment to which `hash` leads, whose lock is held, by one of these bytes, which
    /// have all that it has.
    ///
    /// # Errors
    /// No space in the pool: nothing has changed.
    pub(crate) fn renew(&self, segment: Segment, hash: u64, image: &[u8]) -> Result<()> {
        debug_assert!(self.first_half == FirstHalf::MayBeCopied, "recovery knows");
        let _growth = self.growth.lock();
        // Some entries name another segment while the allocator may still ask them for the old one.
        self.pool.settle();
        let directory = self.directory();
        let entries = directory.entries_for(hash, segment.depth());
        let hint = directory.entry(entries.start).raw();
        let new = self.reserve_segment(hint)?;
        let old = POff::<Line>::new(segment.offset());
        let retiring = self.pool.retire(old, hint)?;
        let place = new.offset::<Line>().raw();
        self.medium.write_past_cache(place, image);
        // DURABLE: the new segment, and what the allocator noted, before an entry names it.
        self.medium.fence();
        self.lead_to(directory, &entries, Segment::new(place, segment.depth()));
        new.commit::<Line>();
        retiring.commit(&self.pool.enter());
        Ok(())
    }

    /// Lets entries name a segment, the first one last.
    fn lead_to(&self, directory: Directory, entries: &Range<u64>, segment: Segment) {
        for number in entries.start + 1..entries.end {
            self.name(directory, number, segment);
        }
        if !directory.is_one_line(entries) {
            // DURABLE: all entries but the first, before that one tells that they name it.
            self.persist_others(directory, entries);
        }
        self.name(directory, entries.start, segment);
        let first = self.medium.at(directory.entry(entries.start));
        // DURABLE: the new segment is in use, by this.
        self.medium.persist(first);
    }

    /// Lets all entries of a segment name it again that name another one, which was to take its
    /// place; false if they do not look as a crash in between leaves them.
    pub(super) fn take_back(
        &self,
        directory: Directory,
        entries: &Range<u64>,
        segment: Segment,
    ) -> bool {
        let named = entries.clone().map(|number| self.entry(directory, number));
        let others = || named.clone().filter(|named| *named != segment);
        let Some(other) = others().next() else {
            return true;
        };
        let is_renewal = self.first_half == FirstHalf::MayBeCopied
            && other.0.bits() == segment.0.bits()
            && self.is_segment(other)
            && others().all(|named| named == other);
        if is_renewal {
            for number in entries.start + 1..entries.end {
                self.name(directory, number, segment);
            }
            // DURABLE: that no entry names the other segment, whose space is free.
            self.persist_others(directory, entries);
        }
        is_renewal
    }
}
