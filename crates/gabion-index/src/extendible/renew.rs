//! A new segment in the place of one.
//!
//! The new segment S' has the depth of the old one, S, and all that this has, so the entries of the
//! directory may name either while they change. The first entry decides: the allocator is told that
//! it refers to S and to S', so after a crash the space of one of them is free, and recovery lets
//! all entries name the other one. Nothing is lost if that is S: who adds something to S' has it
//! elsewhere until this is over. So all entries take one persist, in whatever order they become
//! durable, and there are never more than two segments that they name.

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

    /// Lets entries name a segment, durably.
    fn lead_to(&self, directory: Directory, entries: &Range<u64>, segment: Segment) {
        for number in entries.clone() {
            self.name(directory, number, segment);
        }
        let first = directory.entry(entries.start).raw();
        let bytes = directory.entry(entries.end).raw() - first;
        // DURABLE: that the segment is in use and the other one is not, by this.
        self.medium.persist_range(first, bytes);
    }

    /// Lets all entries of a segment, which the first one names, name it that name another one, its
    /// successor or its predecessor; false if they do not look as a crash in between leaves them.
    pub(super) fn follow_first(
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
            self.lead_to(directory, entries, segment);
        }
        is_renewal
    }
}
