//! Recovery: finds the table and completes an interrupted movement.

use std::sync::atomic::Ordering;

use super::rebuild::planned_bits;
use super::{NOTE_OFFSET_BITS, Scheme, TwoHash, bytes_of_table};
use crate::bucket::Bucket;
use crate::line::{LINE_BYTES, LineArray};
use crate::{Error, Result};

impl<S: Scheme> TwoHash<S> {
    /// Finds the table, makes that which a new index lacks, and ends a movement.
    pub(super) fn recover(&self) -> Result<()> {
        let word = &self.state().table;
        // ORDER: Relaxed: nobody else has the index yet.
        let table = LineArray(word.load(&self.medium, Ordering::Relaxed));
        if table.0 == 0 {
            self.build(None, planned_bits::<S>(self.facts.capacity))?;
            return Ok(());
        }
        if !self.is_within(table) {
            return Err(Error::damaged(
                "the table of a hash table",
                self.medium.offset_of(word).raw(),
            ));
        }
        let first = S::lines(table.bits());
        let stash = (0..S::stash_lines(table.bits())).rev();
        let is_used = |number: &u64| self.line(table, first + number).entry_count() != 0;
        let used = stash.into_iter().find(|number| is_used(number));
        self.adopt(table, used.map_or(0, |last| last + 1));
        self.log.recover(|at| self.line_of_bytes(table, at))?;
        self.end_movement(table);
        Ok(())
    }

    fn is_within(&self, table: LineArray) -> bool {
        let bits = S::BITS_MIN..=LineArray::BITS_MAX;
        bits.contains(&table.bits())
            && table.offset() != 0
            && table.offset().is_multiple_of(LINE_BYTES)
            && table.offset() + bytes_of_table::<S>(table.bits()) <= self.medium.len()
    }

    /// The line of a table at an offset, if there is one.
    fn line_of_bytes(&self, table: LineArray, at: u64) -> Option<&S::Bucket> {
        let lines = table.offset()..table.offset() + bytes_of_table::<S>(table.bits());
        let is_line = lines.contains(&at) && (at - table.offset()).is_multiple_of(S::Bucket::BYTES);
        is_line.then(|| self.line(table, (at - table.offset()) / S::Bucket::BYTES))
    }

    /// Ends the entry that was being moved if its equal is there.
    fn end_movement(&self, table: LineArray) {
        // ORDER: Relaxed: as above.
        let note = self.state().note.load(&self.medium, Ordering::Relaxed);
        let at = note & ((1 << NOTE_OFFSET_BITS) - 1);
        // The note stays when a movement is over; its table may have gone since.
        let stash = Self::line_at(table, S::lines(table.bits())).raw();
        let slot = (note >> NOTE_OFFSET_BITS) as usize;
        let line = self.line_of_bytes(table, at).filter(|_| at < stash);
        let Some(line) = line.filter(|_| slot < S::Bucket::SLOTS) else {
            return;
        };
        let Some((key, _)) = line.entry(slot) else {
            return;
        };
        let mut spots = S::spots(table.bits(), self.hashes(key));
        let has_equal = spots.any(|spot| {
            let other = self.line(table, spot.line);
            !std::ptr::eq(other, line) && other.find(key).is_some()
        });
        if has_equal {
            line.remove(&self.medium, slot);
        }
    }
}
