//! Maintenance between merges: collects garbage before a merge must wait for it, and frees what an
//! idle store does not need.
//!
//! # Ahead of need
//! A space that has run out of segments collects garbage while the edit that needs one waits, and
//! so does the whole merge. Between merges the merging thread collects earlier, in rounds of some
//! segments: as soon as the space can take less than a fraction of its live bytes.
//!
//! Before that goes what has expired (`expiry_sweep`).
//!
//! # Memory
//! If spaces were read since the last merge, it redistributes the store's memory, as a merge does:
//! without writes there is no merge.
//!
//! # At rest
//! When the store is idle:
//! 1. What the log holds is merged if it is more than a segment, or mostly deletes: these give room
//!    back only when they are merged. Spare files of the log go.
//! 2. Segments of which an eighth or more is garbage are emptied. So what a store at rest takes
//!    is at most 8/7 of what is live, and the reserve of its spaces.
//! 3. Trees are saved, and free segments given back to the file system.
//!
//! Where the medium is nearly full, all but the spare files of the log goes this way in any case:
//! the log and the other spaces need what a space keeps free for itself. At rest the whole log is
//! merged then.
//!
//! # Invariant
//! - R1. A store at rest comes to an end: what was moved has no garbage, and the log that is left
//!   is short. So each byte is moved once at most, however long nobody writes.

use gabion_flex::GcRound;

use super::Flex;
use super::partition::Partition;
use crate::Result;
use crate::engine::ssd::rate_limiter::IoPriority;
use crate::log::LogOptions;

/// Garbage is collected ahead while less than one in so many of the live bytes can be written.
const AHEAD_ONE_IN: u64 = 16;

/// A merge that begins meanwhile waits for a round, so it is small.
const ROUND: GcRound = GcRound {
    segments: 8,
    garbage_parts: 4,
};

impl Flex {
    /// Does one thing that is due beside merges; false when nothing is.
    pub(super) fn tidy(&self) -> Result<bool> {
        let moved = {
            let _lock = self.merge_lock.lock();
            if !self.has_directory() {
                return Ok(false);
            }
            self.forget_dropped();
            let keyspaces = self.keyspaces.load();
            if keyspaces.iter().any(|own| own.partition.is_used()) {
                self.fit_memory();
            }
            let (at_rest, is_short) = (self.is_idle(), self.syncer.is_room_short());
            let rests = at_rest || is_short;
            let deletes_much = || self.view.load().active().deletes_much();
            let log_bytes_max = match at_rest && (is_short || deletes_much()) {
                true => 0,
                false => self.segment_bytes_max(),
            };
            if rests && self.shorten_log(log_bytes_max) {
                return Ok(true);
            }
            let swept = self.sweep_some()?;
            match swept.map_or_else(|| self.collect(rests), |written| Ok(Some(written)))? {
                Some(moved) => moved,
                None => return Ok(rests && self.give_back(is_short)?),
            }
        };
        // Who waits here is the thread that merges: as urgent as a merge.
        self.pay(IoPriority::Flush, moved);
        Ok(true)
    }

    /// Whether nobody has written for long, or somebody waits for the store to be idle.
    fn is_idle(&self) -> bool {
        let (visible, now) = (self.visible(), self.options.tuning.clock.now());
        let mut idle = self.idleness.lock();
        let decided = idle.decided(&self.options);
        decided.unwrap_or_else(|| idle.is_quiet(visible, now))
    }

    /// Lets a log of more than `bytes_max` bytes be merged; false if it is shorter, or only what
    /// waits to be merged makes it so long.
    fn shorten_log(&self, bytes_max: u64) -> bool {
        self.syncer.live_bytes() > bytes_max && self.freeze(&self.writer.lock())
    }

    fn segment_bytes_max(&self) -> u64 {
        LogOptions::within(self.options.log_bytes_max).segment_bytes_max
    }

    /// A round of collection in one of the spaces; returns the bytes that were moved.
    fn collect(&self, rests: bool) -> Result<Option<u64>> {
        if !rests && self.options.background_threads == 0 {
            return Ok(None);
        }
        for keyspace in self.keyspaces.load().iter() {
            let partition = &keyspace.partition;
            // A space that did not change since it was saved cannot have become short.
            let is_due = || !partition.is_saved() && self.is_short_of_room(partition);
            if (rests || is_due())
                && let Some(moved) = partition.collect(ROUND)?
            {
                return Ok(Some(moved));
            }
        }
        Ok(None)
    }

    fn is_short_of_room(&self, partition: &Partition) -> bool {
        let live = partition.space().len();
        partition.space().room() < (live / AHEAD_ONE_IN).min(self.active_bytes_max())
    }

    /// Saves the trees of spaces whose garbage was collected, or that have changed where the medium
    /// is short of room, and removes spare files of the log; false when there are none.
    fn give_back(&self, is_short: bool) -> Result<bool> {
        for keyspace in self.keyspaces.load().iter() {
            let partition = &keyspace.partition;
            if partition.was_collected() || is_short && !partition.is_saved() {
                partition.checkpoint()?;
                return Ok(true);
            }
        }
        // A medium that is short of room may be written to now: its next file is needed.
        if !is_short && self.syncer.may_rest() {
            self.syncer.rest()?;
        }
        Ok(false)
    }
}
