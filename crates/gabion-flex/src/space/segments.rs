//! The table of segments: which are in use, how much of each is live, and which may be written
//! next.
//!
//! # Life of a segment
//! free → open (its buffer is being filled) → full → dying (nothing in it is in use any more, but a
//! crash may still need it) → free. What makes a dying segment free is a commit of the log: after
//! it, no recovery leads back to the state that used the segment.

use std::collections::BTreeSet;

use super::geometry::Geometry;
use super::layout::DATA_HEADER_BYTES;
use crate::Extent;

/// Who fills a segment. Data that a collection moves is older than what users write, and is kept
/// apart from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SegmentClass {
    User,
    Moved,
}

impl SegmentClass {
    pub(crate) const ALL: [SegmentClass; 2] = [SegmentClass::User, SegmentClass::Moved];
}

/// What a segment is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SegmentState {
    /// May be written.
    Free,
    /// Is being filled, its data is in a buffer.
    Open(SegmentClass),
    /// Is full, and its footer is written.
    Full,
    /// Was left by a crash in a state in which it cannot be filled on; its table is in the log.
    Left,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment {
    pub(crate) state: SegmentState,
    /// Bytes that extents refer to.
    pub(crate) valid: u32,
    pub(crate) generation: u32,
    /// Bytes that were moved into it, and the sum over them of the generations of the segments in
    /// which users wrote them.
    moved: (u64, u64),
    /// Whether its space was given back to the file system.
    pub(crate) punched: bool,
    /// Whether a collection could not empty it, as it is damaged or its count is wrong; it is not
    /// tried again.
    pub(crate) damaged: bool,
}

impl Segment {
    const NEW: Segment = Segment {
        state: SegmentState::Free,
        valid: 0,
        generation: 0,
        moved: (0, 0),
        punched: true,
        damaged: false,
    };

    /// The generation in which its data was written by users, on average.
    fn written_in(&self) -> u32 {
        let (bytes, sum) = self.moved;
        let mean = sum.checked_div(bytes).and_then(|mean| mean.try_into().ok());
        mean.unwrap_or(self.generation)
    }
}

/// All segments of a space.
#[derive(Debug)]
pub(crate) struct Segments {
    geometry: Geometry,
    all: Vec<Segment>,
    free: BTreeSet<u32>,
    dying: Vec<u32>,
    /// Bytes that extents refer to, over all segments.
    live: u64,
    generation: u32,
    capacity: Option<u32>,
    /// Of 32 parts of a space without a capacity, how many may be garbage.
    garbage_parts: u64,
    /// Segments that a space without a capacity may have whatever is live, see [`Segments::widen`].
    widened: u32,
    /// Segments that the medium has room for, besides those that have theirs, when it was last
    /// looked at. Where it has for few, garbage is collected instead.
    affordable: u32,
    /// Segments that the opening has left, at most: their tables stand in the log.
    left_max: u32,
    /// Moments that are held: as long as there are any, what is dying does not become free.
    pins: u32,
}

/// Segments that are kept for the collection of garbage, at most: the paper's choice.
const RESERVE_MAX: u32 = 64;

/// Of how many segments one is kept free.
const FREE_ONE_IN: u32 = 96;

/// Bytes of segments that are kept free, if the reserve has so many: to move as much takes several
/// times as long as the commit behind it.
const FREE_BYTES: u64 = 2 << 20;

impl Segments {
    pub(crate) fn new(
        geometry: Geometry,
        capacity_bytes: Option<u64>,
        garbage_parts: u32,
    ) -> Segments {
        let most = u64::from(geometry.segments_max());
        let data = |bytes: u64| bytes.saturating_sub(DATA_HEADER_BYTES);
        let segments = |bytes: u64| (data(bytes) / geometry.segment_bytes()).min(most);
        Segments {
            geometry,
            all: Vec::new(),
            free: BTreeSet::new(),
            dying: Vec::new(),
            live: 0,
            generation: 0,
            capacity: capacity_bytes
                .map(|bytes| u32::try_from(segments(bytes)).unwrap_or(u32::MAX)),
            garbage_parts: garbage_parts.into(),
            widened: 0,
            affordable: u32::MAX,
            left_max: 0,
            pins: 0,
        }
    }

    /// Segments whose tables stand in the log although they are not open, at most.
    pub(crate) fn left_max(&self) -> u32 {
        self.left_max
    }

    /// Takes it that free segments have space: an earlier process may not have given it back.
    pub(crate) fn doubt_free(&mut self) {
        for number in &self.free {
            self.all[*number as usize].punched = false;
        }
    }

    pub(crate) fn get_mut(&mut self, segment: u32) -> &mut Segment {
        let index = segment as usize;
        if index >= self.all.len() {
            let first = self.all.len();
            self.all.resize(index + 1, Segment::NEW);
            self.free
                .extend((first..=index).filter_map(|new| u32::try_from(new).ok()));
        }
        &mut self.all[index]
    }

    /// Takes over a segment that a recovery found.
    pub(crate) fn recover(&mut self, segment: u32, state: SegmentState, generation: u32) {
        let known = self.get_mut(segment);
        known.state = state;
        known.generation = generation;
        known.punched = false;
        self.left_max += u32::from(state == SegmentState::Left);
        self.free.remove(&segment);
        self.generation = self.generation.max(generation);
    }

    /// Ends a recovery: segments that nothing refers to are free.
    pub(crate) fn release_unused(&mut self) {
        for (number, segment) in (0..).zip(&mut self.all) {
            if segment.valid == 0
                && matches!(segment.state, SegmentState::Full | SegmentState::Left)
            {
                segment.state = SegmentState::Free;
                self.free.insert(number);
            }
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Segment)> {
        (0..).zip(&self.all)
    }

    /// Segments that the data file has.
    pub(crate) fn count(&self) -> u32 {
        u32::try_from(self.all.len()).unwrap_or(u32::MAX)
    }

    pub(crate) fn free_count(&self) -> u32 {
        u32::try_from(self.free.len()).unwrap_or(u32::MAX)
    }

    /// Whether a commit makes segments free.
    pub(crate) fn has_dying(&self) -> bool {
        !self.dying.is_empty() && !self.is_pinned()
    }

    /// Holds a moment: no segment that is in use now is written over.
    pub(crate) fn pin(&mut self) {
        self.pins += 1;
    }

    /// Lets go of a moment.
    pub(crate) fn unpin(&mut self) {
        self.pins -= 1;
    }

    /// Whether a moment is held.
    pub(crate) fn is_pinned(&self) -> bool {
        self.pins > 0
    }

    pub(crate) fn live(&self) -> u64 {
        self.live
    }

    /// Segments that the data file may have now.
    fn allowed(&self) -> u32 {
        let capacity = self.capacity.unwrap_or(self.geometry.segments_max());
        let needed = self.live.div_ceil(u64::from(self.geometry.room()));
        let with_garbage = needed * 32 / (32 - self.garbage_parts);
        let wanted = u32::try_from(with_garbage).unwrap_or(u32::MAX);
        match self.capacity {
            Some(_) => capacity,
            None => wanted
                .saturating_add(self.reserve() + 4)
                .max(self.widened)
                .min(capacity),
        }
    }

    /// Allows a space without a capacity more segments: where much was removed, a little of each
    /// segment may still be live, and none be free to move that to.
    pub(crate) fn widen(&mut self) {
        self.widened = self.count() + self.reserve() + 1;
    }

    /// As [`Segments::widen`], if no segment can be taken; returns what [`Segments::narrow`] needs.
    pub(crate) fn widen_for_a_while(&mut self) -> u32 {
        let before = self.widened;
        if self.available() == 0 {
            self.widen();
        }
        before
    }

    /// Allows no more segments than before [`Segments::widen_for_a_while`].
    pub(crate) fn narrow(&mut self, before: u32) {
        self.widened = before;
    }

    /// Segments that are kept for the collection of garbage: a sixteenth, from two to
    /// [`RESERVE_MAX`]. No live data takes them, but garbage may.
    pub(crate) fn reserve(&self) -> u32 {
        let all = self.capacity.unwrap_or_else(|| self.count());
        (all / 16).clamp(2, RESERVE_MAX)
    }

    /// Segments of the reserve that stay free of garbage, too. Garbage is collected before there
    /// are fewer: the more of them there are, the more can be moved before a commit, and the
    /// sooner the collection must begin.
    pub(crate) fn kept_free(&self) -> u32 {
        let all = self.capacity.unwrap_or_else(|| self.count());
        let worth_a_commit = FREE_BYTES / self.geometry.segment_bytes();
        let worth_a_commit = u32::try_from(worth_a_commit).unwrap_or(u32::MAX);
        worth_a_commit
            .max(all / FREE_ONE_IN)
            .clamp(2, self.reserve())
    }

    /// The generation in which the data of a segment was written by users, on average.
    pub(crate) fn written_in(&mut self, number: u32) -> u32 {
        self.get_mut(number).written_in()
    }

    /// Bytes were moved to a segment that users wrote in a generation.
    pub(crate) fn note_written(&mut self, number: u32, bytes: u64, generation: u32) {
        let (all, sum) = &mut self.get_mut(number).moved;
        *all += bytes;
        *sum += bytes * u64::from(generation);
    }

    /// How old the data of a segment is: how many segments were begun since users wrote it, and
    /// itself.
    pub(crate) fn age_of(&self, segment: &Segment) -> u32 {
        let later = self.generation.wrapping_sub(segment.written_in());
        later.saturating_add(1)
    }

    /// Segments that can be taken before the space is out of them, or the medium of room.
    pub(crate) fn available(&self) -> u32 {
        let allowed = self.within_limits();
        match allowed <= self.affordable {
            true => allowed,
            false => allowed.min(self.affordable + self.free_count() - self.punched_count()),
        }
    }

    /// As [`Segments::available`], of a medium without an end.
    fn within_limits(&self) -> u32 {
        self.free_count() + self.allowed().saturating_sub(self.count())
    }

    /// The medium has room for so many bytes of segments.
    pub(crate) fn afford(&mut self, bytes: u64) {
        let affordable = bytes / self.geometry.segment_bytes();
        self.affordable = u32::try_from(affordable).unwrap_or(u32::MAX);
    }

    /// Whether it is for the medium alone that users get no segment.
    pub(crate) fn is_medium_full(&self) -> bool {
        self.available() <= 1 && self.within_limits() > 1
    }

    /// Bytes of data that the space may hold: 30 of 32 parts of what neither the reserve nor the
    /// open segments take.
    pub(crate) fn live_max(&self) -> u64 {
        let capacity = self.capacity.unwrap_or(self.geometry.segments_max());
        let usable = capacity.saturating_sub(self.reserve() + 2);
        u64::from(usable) * u64::from(self.geometry.room()) / 32 * 30
    }

    /// Takes a segment for writing; `None` if there is none, within the capacity and the room that
    /// the medium has.
    pub(crate) fn take(&mut self, class: SegmentClass) -> Option<(u32, u32)> {
        let has_room = |number: &&u32| !self.all[**number as usize].punched;
        let first = match self.affordable {
            0 => self.free.iter().find(has_room),
            _ => self.free.first(),
        };
        let number = match first {
            Some(number) => *number,
            None if self.affordable > 0 && self.count() < self.allowed() => self.count(),
            None => return None,
        };
        if self
            .all
            .get(number as usize)
            .is_none_or(|segment| segment.punched)
        {
            self.affordable -= 1;
        }
        self.generation = self.generation.wrapping_add(1);
        let generation = self.generation;
        let segment = self.get_mut(number);
        segment.state = SegmentState::Open(class);
        segment.generation = generation;
        segment.moved = (0, 0);
        segment.valid = 0;
        segment.punched = false;
        segment.damaged = false;
        self.free.remove(&number);
        Some((number, generation))
    }

    /// An open segment is full.
    pub(crate) fn fill(&mut self, number: u32) {
        let segment = self.get_mut(number);
        segment.state = SegmentState::Full;
        if segment.valid == 0 {
            self.dying.push(number);
        }
    }

    /// Extents refer to `len` bytes more of a segment.
    pub(crate) fn add(&mut self, segment: u32, len: u64) {
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        self.live += u64::from(len);
        self.get_mut(segment).valid += len;
    }

    /// An extent, or a part of one, is no longer in use.
    pub(crate) fn release(&mut self, extent: &Extent) {
        if extent.is_hole() {
            return;
        }
        let (number, _) = self.geometry.split(extent.address);
        self.release_bytes(number, extent.len);
    }

    /// So many bytes of a segment are no longer in use.
    pub(crate) fn release_bytes(&mut self, number: u32, len: u64) {
        self.live -= len;
        let segment = self.get_mut(number);
        segment.valid -= u32::try_from(len).unwrap_or(u32::MAX);
        if segment.valid == 0 && matches!(segment.state, SegmentState::Full | SegmentState::Left) {
            self.dying.push(number);
        }
    }

    /// A segment that was begun has come to nothing: no extent has ever referred to it in this use.
    pub(crate) fn abandon(&mut self, number: u32) {
        let segment = self.get_mut(number);
        debug_assert_eq!(segment.valid, 0, "nothing refers to it");
        segment.state = SegmentState::Free;
        self.free.insert(number);
        self.dying.retain(|dying| *dying != number);
    }

    /// A commit is durable: what was dying is free, unless a moment is held. Returns these
    /// segments.
    pub(crate) fn bury(&mut self) -> Vec<u32> {
        if self.is_pinned() {
            return Vec::new();
        }
        let mut dead = std::mem::take(&mut self.dying);
        dead.retain(|number| {
            let segment = &mut self.all[*number as usize];
            let dies = segment.valid == 0
                && matches!(segment.state, SegmentState::Full | SegmentState::Left);
            if dies {
                segment.state = SegmentState::Free;
                self.free.insert(*number);
            }
            dies
        });
        dead
    }

    /// Free segments that keep their space, so that a collection finds it: one for sixteen that are
    /// in use now, whatever was in use before.
    fn kept_unpunched(&self) -> usize {
        let used = self.count() - self.free_count();
        (used / 16).min(RESERVE_MAX) as usize
    }

    /// Free segments whose space may be given back to the file system: all but the first ones.
    pub(crate) fn to_punch(&self) -> Vec<u32> {
        let unpunched = self
            .free
            .iter()
            .filter(|number| !self.all[**number as usize].punched);
        unpunched.skip(self.kept_unpunched()).copied().collect()
    }

    /// Segments whose space is given back.
    pub(crate) fn punched_count(&self) -> u32 {
        let free = self.free.iter();
        let punched = free.filter(|number| self.all[**number as usize].punched);
        u32::try_from(punched.count()).unwrap_or(u32::MAX)
    }

    /// Cuts off the last segments that are free and take no space, and returns how many are left.
    pub(crate) fn cut_free(&mut self) -> u32 {
        let is_cut = |segment: &Segment| segment.state == SegmentState::Free && segment.punched;
        while self.all.pop_if(|segment| is_cut(segment)).is_some() {
            self.free
                .remove(&u32::try_from(self.all.len()).unwrap_or(u32::MAX));
        }
        self.count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::HOLE;

    fn extent(address: u64, len: u64) -> Extent {
        Extent {
            offset: 0,
            len,
            address,
        }
    }

    #[test]
    fn a_segment_is_free_again_only_after_a_commit() {
        let geometry = Geometry::new(4096, 256);
        let mut segments = Segments::new(geometry, Some(8 * 4096), 8);
        let (first, _) = segments.take(SegmentClass::User).unwrap();
        segments.add(first, 100);
        segments.fill(first);
        assert_eq!(segments.bury(), []);
        segments.release(&extent(10, 60));
        segments.release(&extent(HOLE, 5000));
        segments.release(&extent(70, 40));
        assert_eq!((segments.live(), segments.free_count()), (0, 0));
        assert_eq!(segments.bury(), [first]);
        assert_eq!(segments.free_count(), 1);
        let (again, generation) = segments.take(SegmentClass::User).unwrap();
        assert_eq!((again, generation), (first, 2));
    }

    #[test]
    fn a_capacity_is_kept() {
        // The header of the file takes as much as a segment.
        for (capacity, most) in [(8 * 4096, 7), (9 * 4096 - 1, 7), (9 * 4096, 8)] {
            let mut segments = Segments::new(Geometry::new(4096, 256), Some(capacity), 8);
            assert!(segments.live_max() < most * 4096 * 30 / 32);
            let mut taken = 0;
            while segments.take(SegmentClass::User).is_some() {
                taken += 1;
            }
            assert_eq!(taken, most);
        }
    }

    #[test]
    fn a_space_without_a_capacity_grows_with_its_data_and_some_garbage() {
        let geometry = Geometry::new(4096, 256);
        for (parts, least) in [(8, 100), (4, 42), (16, 300)] {
            let mut segments = Segments::new(geometry, None, parts);
            for _ in 0..300 {
                let (segment, _) = segments.take(SegmentClass::User).unwrap();
                segments.add(segment, u64::from(geometry.room()));
                segments.fill(segment);
            }
            let mut garbage = 0;
            while segments.take(SegmentClass::User).is_some() {
                garbage += 1;
            }
            assert!((least..least + 50).contains(&garbage), "{garbage}");
        }
    }
}
