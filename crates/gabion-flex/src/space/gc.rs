//! Garbage collection, which moves live data out of little-used segments, and defragmentation.
//!
//! # Progress
//! Extents are cut where a segment ends, so segments are filled to the last byte. Moving the live
//! bytes of a segment that has any garbage therefore wins that garbage, and repeated rounds win all
//! of it. Which segments are emptied, and what that costs at most, is in `victims`.
//!
//! # Parts
//! To find the extents of some segments is to look at all extents, some nanoseconds each. So a
//! round empties many segments; and as few are kept free, since each of them is room that garbage
//! cannot take, it does so in parts, with a commit after each that frees what the next one needs.
//!
//! # Reading
//! Extents are moved in the order of the address space, so that neighbours come to lie side by
//! side; on the medium they lie in any order, and many in one block. So a portion of them is read
//! at a time, in the order of their addresses: each block once, and blocks that lie together with
//! one call.
//!
//! # Durability
//! A part of a round ends with a commit, and only then its segments are free. A crash before leads
//! back to the old addresses, whose segments are untouched.

use super::geometry::MARK;
use super::reserve::ReserveDemand;
use super::segments::SegmentClass;
use super::victims::{SegmentSet, VictimQuery, choose};
use super::writepath::DataPlacement;
use super::writer::{PlacedData, WriteSession};
use crate::{Error, Extent, Result};

/// Extents that are moved under one lock of the readers: some 100 us.
const MOVES_MAX: usize = 64;

/// Of how many segments the data is read at a time, at most: 32 MiB by default.
const PORTION_SEGMENTS: u64 = 8;

/// Of the memory that the index may have, one part in so many is read at a time, at most, or what
/// a segment holds if that is more.
const PORTION_ONE_IN: u64 = 8;

/// Bytes that are read with one call, if they are of several extents.
const RUN_BYTES_MAX: u64 = 256 << 10;

/// Of the reserve, which part a round wins: as much as is needed to make little of looking at all
/// extents, and no more, since a write waits for it.
const WON_ONE_IN: u32 = 3;

/// Neighbours that one extent replaces under one lock of the readers: 50 us by estimate.
const JOINED_MAX: usize = 512;

/// A small round of collection, for who has idle time: see
/// [`FlexSpace::collect_some`](crate::FlexSpace::collect_some).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GcRound {
    /// Segments that are emptied, at most; one at least.
    pub segments: u32,
    /// A segment is emptied only if so many parts of 32 of it or more are garbage. A byte that is
    /// won then costs at most `32 / garbage_parts - 1` bytes that are written.
    pub garbage_parts: u32,
}

impl WriteSession<'_> {
    /// Frees segments until more than those that are kept free are available, or nothing more can
    /// be won.
    pub(crate) fn make_room(&mut self) -> Result<()> {
        loop {
            self.look_at_room(SegmentClass::User);
            if self.writer.segments.available() > self.writer.segments.kept_free() {
                break;
            }
            if self.writer.segments.has_dying() {
                self.commit()?;
            } else if !self.collect()? {
                // Within a capacity, this is as much room as there is.
                self.writer.segments.widen();
                break;
            }
        }
        Ok(())
    }

    /// One round of collection; false if no segment has garbage that can be won.
    ///
    /// As long as a moment is held, nothing can be won.
    pub(crate) fn collect(&mut self) -> Result<bool> {
        if self.writer.segments.is_pinned() {
            return Ok(false);
        }
        let room = self.space.sums.geometry.room();
        let reserve = self.writer.segments.reserve();
        self.look_at_room(SegmentClass::Moved);
        let victims = self.victims(VictimQuery {
            segments: reserve,
            live_max: room - 1,
            garbage: u64::from(reserve.div_ceil(WON_ONE_IN)) * u64::from(room),
            movable: self.movable(),
        });
        Ok(self.empty(&victims)?.is_some())
    }

    /// A small round of collection; returns how many bytes were moved, `None` if no segment is
    /// worth it.
    pub(crate) fn collect_some(&mut self, round: GcRound) -> Result<Option<u64>> {
        if self.writer.segments.is_pinned() {
            return Ok(None);
        }
        let room = self.space.sums.geometry.room();
        // Where much was removed there may be more segments than the data is worth, and none free.
        let before = self.writer.segments.widen_for_a_while();
        self.look_at_room(SegmentClass::Moved);
        let victims = self.victims(VictimQuery {
            segments: round.segments,
            live_max: room - (room / 32 * round.garbage_parts.clamp(1, 32)),
            garbage: u64::MAX,
            movable: self.movable(),
        });
        let moved = self.empty(&victims);
        self.writer.segments.narrow(before);
        moved
    }

    /// The segments that a round empties.
    fn victims(&self, wanted: VictimQuery) -> Vec<u32> {
        let room = self.space.sums.geometry.room();
        let staged = |number| self.writer.staged.of(number);
        choose(&self.writer.segments, room, staged, wanted)
    }

    /// Bytes that can be moved before a commit frees segments.
    fn movable(&self) -> u64 {
        let room = u64::from(self.space.sums.geometry.room());
        let shared = self.space.shared.share();
        let begun = shared.buffer(SegmentClass::Moved);
        let begun = begun.map_or(0, |buffer| room - buffer.bytes.len() as u64);
        begun + u64::from(self.writer.segments.available()) * room
    }

    /// Moves all that is live out of some segments; returns how many bytes, `None` without any
    /// segment.
    fn empty(&mut self, victims: &[u32]) -> Result<Option<u64>> {
        if victims.is_empty() {
            return Ok(None);
        }
        let before = self.writer.totals.moved_bytes;
        let mut extents = self.extents_in(&SegmentSet::new(victims))?;
        let segments = &mut self.writer.segments;
        // Which use of each it is: what a commit or a save has freed may soon be in another one.
        let uses: Vec<(u32, u32)> = victims
            .iter()
            .map(|victim| (*victim, segments.get_mut(*victim).generation))
            .collect();
        let mut rest = &uses[..];
        while !rest.is_empty() {
            let movable = self.movable();
            let mut sum = 0;
            let fits = |(victim, _): &&(u32, u32)| {
                sum += u64::from(self.writer.segments.get_mut(*victim).valid);
                sum <= movable
            };
            let (part, behind) = rest.split_at(rest.iter().take_while(fits).count());
            if part.is_empty() {
                break;
            }
            if behind.is_empty() {
                self.empty_part(part, &extents)?;
            } else {
                let geometry = self.space.sums.geometry;
                let numbers: Vec<u32> = part.iter().map(|(victim, _)| *victim).collect();
                let set = SegmentSet::new(&numbers);
                let is_in = |extent: &mut Extent| set.contains(geometry.split(extent.address).0);
                let own: Vec<Extent> = extents.extract_if(.., is_in).collect();
                self.empty_part(part, &own)?;
            }
            rest = behind;
        }
        self.writer.totals.collections += 1;
        Ok(Some(self.writer.totals.moved_bytes - before))
    }

    /// Moves these extents, which are all of some segments, and frees the segments.
    fn empty_part(&mut self, uses: &[(u32, u32)], extents: &[Extent]) -> Result<()> {
        self.move_extents(extents)?;
        self.commit()?;
        // One in which more counts as live than could be moved would be chosen again for ever.
        for &(victim, generation) in uses {
            let segment = self.writer.segments.get_mut(victim);
            segment.damaged |= segment.generation == generation && segment.valid > 0;
        }
        Ok(())
    }

    /// The extents that refer to some segments and can be moved. What a damaged leaf of the tree
    /// refers to is not known; nor can an extent beside it be moved, since where it is put may
    /// become one with its neighbour.
    fn extents_in(&mut self, victims: &SegmentSet) -> Result<Vec<Extent>> {
        if self.has_room_for_all() {
            // What is fetched for one collection is there for the next.
            match self.admit([0..=u64::MAX]) {
                Err(Error::Corruption { .. }) => {}
                admitted => admitted?,
            }
        }
        let geometry = self.space.sums.geometry;
        let (mut extents, mut damaged) = (Vec::new(), Vec::new());
        let shared = self.space.shared.share();
        let each = |extent: Extent| {
            if !extent.is_hole() && victims.contains(geometry.split(extent.address).0) {
                extents.push(extent);
            }
            true
        };
        let nodes = &self.space.nodes;
        nodes.for_each_but(&shared.tree, 0, u64::MAX, each, |leaf, error| match error {
            Error::Corruption { .. } => {
                damaged.push((leaf.offset, leaf.offset + leaf.len));
                Ok(())
            }
            error => Err(error),
        })?;
        let is_beside = |extent: &Extent| {
            damaged
                .iter()
                .any(|own| own.1 == extent.offset || own.0 == extent.end())
        };
        extents.retain(|extent| !is_beside(extent));
        Ok(extents)
    }

    /// Moves extents, whose data is checked on the way. One that is damaged stays where it is, and
    /// its segment is left alone from now on: reading it goes on to tell the damage. So do those
    /// that were to move together where a leaf that refers to one has gone from memory meanwhile,
    /// and is damaged.
    fn move_extents(&mut self, mut extents: &[Extent]) -> Result<()> {
        let room = u64::from(self.space.sums.geometry.room());
        let budget = self.space.index_bytes().unwrap_or(u64::MAX) / PORTION_ONE_IN;
        let most = budget.clamp(room, PORTION_SEGMENTS * room);
        let mut read = Portion::default();
        while !extents.is_empty() {
            let mut bytes = 0;
            let fits = |extent: &&Extent| {
                bytes += extent.len;
                bytes <= most
            };
            let count = extents.iter().take_while(fits).count().max(1);
            let (portion, rest) = extents.split_at(count);
            self.read_portion(portion, &mut read)?;
            let places = read.places.chunks(MOVES_MAX);
            for (group, places) in portion.chunks(MOVES_MAX).zip(places) {
                self.prepare_nodes();
                self.move_group(group, places, &read.bytes)?;
                self.keep_to_budget()?;
            }
            extents = rest;
        }
        Ok(())
    }

    /// Moves some extents, whose data was read to these places.
    fn move_group(
        &mut self,
        group: &[Extent],
        places: &[Option<usize>],
        bytes: &[u8],
    ) -> Result<()> {
        let data_of = |(extent, from): (&'_ Extent, &Option<usize>)| {
            let from = (*from)?;
            Some((*extent, &bytes[from..from + len_of(extent)]))
        };
        let read = group.iter().zip(places).filter_map(data_of);
        let (extents, data): (Vec<Extent>, Vec<&[u8]>) = read.unzip();
        self.keep_aside(ReserveDemand {
            bytes: 0,
            nodes: 2 * extents.len() as u64,
        })?;
        let placed = self.place_all(SegmentClass::Moved, &data)?;
        let mut places = DataPlacement::new(&placed);
        let mut moves = Vec::with_capacity(2 * extents.len());
        let geometry = self.space.sums.geometry;
        for extent in &extents {
            let placed = places.take(extent.len);
            self.note_moves(&mut moves, extent, placed);
            let writer = &mut *self.writer;
            writer.totals.moved_bytes += extent.len;
            let written = writer.segments.written_in(geometry.split(extent.address).0);
            for piece in placed {
                let (into, _) = geometry.split(piece.address);
                writer.segments.note_written(into, piece.len, written);
            }
        }
        self.remap_if_readable(&moves)
    }

    /// Reads the data of extents. Where some cannot be read together, each is read by itself.
    fn read_portion(&mut self, extents: &[Extent], read: &mut Portion) -> Result<()> {
        let geometry = self.space.sums.geometry;
        let begin = |at: usize| extents[at].address & !MARK;
        let mut order: Vec<usize> = (0..extents.len()).collect();
        order.sort_unstable_by_key(|at| begin(*at));
        read.bytes.clear();
        read.bytes.reserve_exact(extents.iter().map(len_of).sum());
        read.places.clear();
        read.places.resize(extents.len(), None);
        let block_of = |address: u64| address / u64::from(geometry.block_bytes());
        let mut rest = &order[..];
        while let Some(first) = rest.first() {
            let from = begin(*first);
            let mut to = from;
            let goes_on = |at: &&usize| {
                let (next, end) = (begin(**at), begin(**at) + extents[**at].len);
                let is_near = block_of(next) <= block_of(to) + 1
                    && geometry.split(next).0 == geometry.split(from).0
                    && end - from <= RUN_BYTES_MAX;
                if is_near || to == from {
                    to = end;
                    return true;
                }
                false
            };
            let (run, behind) = rest.split_at(rest.iter().take_while(goes_on).count());
            rest = behind;
            let whole = Extent {
                offset: 0,
                len: to - from,
                address: from,
            };
            match self.read_extent(&whole) {
                Ok(bytes) => {
                    for &at in run {
                        let skip = usize::try_from(begin(at) - from).unwrap_or(usize::MAX);
                        read.add(at, &bytes[skip..skip + len_of(&extents[at])]);
                    }
                }
                Err(Error::Corruption { .. }) => {
                    for &at in run {
                        match self.read_extent(&extents[at]) {
                            Ok(bytes) => read.add(at, &bytes),
                            Err(Error::Corruption { .. }) => {
                                let (segment, _) = geometry.split(extents[at].address);
                                self.writer.segments.get_mut(segment).damaged = true;
                            }
                            Err(error) => return Err(error),
                        }
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn remap_if_readable(&mut self, moves: &[(u64, PlacedData)]) -> Result<()> {
        match self.remap(moves) {
            Err(Error::Corruption { .. }) => Ok(()),
            remapped => remapped,
        }
    }

    /// Notes where data is now that begins with `extent`, which keeps its mark. The tree cuts what
    /// is longer than an extent, and would mark each part.
    fn note_moves(
        &self,
        moves: &mut Vec<(u64, PlacedData)>,
        extent: &Extent,
        placed: &[PlacedData],
    ) {
        let extent_max = u64::from(self.space.sums.geometry.extent_max());
        let mark = extent.address & MARK;
        let mut offset = extent.offset;
        for piece in placed {
            let is_first = offset == extent.offset && mark != 0;
            let first = if is_first {
                piece.len.min(extent_max)
            } else {
                0
            };
            let marked = PlacedData {
                address: piece.address | mark,
                len: first,
            };
            let rest = PlacedData {
                address: piece.address + first,
                len: piece.len - first,
            };
            let parts = [(offset, marked), (offset + first, rest)];
            moves.extend(parts.iter().filter(|(_, part)| part.len > 0));
            offset += piece.len;
        }
    }

    /// Writes the data of a range anew where it lies in several extents, so that it is read with
    /// fewer operations and indexed by fewer extents. Holes stay. Nothing else changes.
    pub(crate) fn defrag(&mut self, offset: u64, len: u64) -> Result<()> {
        let end = offset
            .saturating_add(len)
            .min(self.space.shared.share().tree.len());
        let longest = u64::from(self.space.sums.geometry.extent_max());
        let mut at = offset;
        while let Some(data) = self.data_behind(at, end)? {
            at = data;
            // About a segment's data at a time: the room for it is made before. Extents are taken
            // whole, since a cut would mark what lies behind it.
            let part = (end - at).min(self.space.sums.geometry.room().into());
            let from = at.saturating_sub(longest);
            let around = part + (at - from) + longest;
            let mut extents = self.extents(from, around)?;
            extents.retain(|extent| extent.end() > at && extent.offset < at + part);
            for run in extents.split(Extent::is_hole).filter(|run| run.len() > 1) {
                self.defrag_run(run)?;
            }
            at = extents.last().map_or(end, Extent::end).max(at + part);
        }
        Ok(())
    }

    /// The first byte in `from..end` that is in no hole.
    fn data_behind(&self, from: u64, end: u64) -> Result<Option<u64>> {
        let mut data = None;
        let look = |extent: Extent| {
            data = (!extent.is_hole()).then_some(extent.offset);
            data.is_none()
        };
        let shared = self.space.shared.share();
        let len = end.saturating_sub(from);
        self.space.nodes.for_each(&shared.tree, from, len, look)?;
        Ok(data)
    }

    fn defrag_run(&mut self, run: &[Extent]) -> Result<()> {
        let live = self.writer.segments.live();
        let wanted: u64 = run.iter().map(|extent| extent.len).sum();
        if live.saturating_add(wanted) > self.writer.segments.live_max() {
            return Err(self.full(wanted));
        }
        self.make_room()?;
        // Making room may have moved the extents, so they are looked up again.
        let first = run.first().map_or(0, |extent| extent.offset);
        let run = self.extents(first, wanted)?;
        let mut data = Vec::new();
        for extent in &run {
            data.extend(self.read_extent(extent)?);
        }
        let mut moves: Vec<(u64, PlacedData)> = Vec::new();
        self.keep_aside(ReserveDemand {
            bytes: 0,
            nodes: 2 * run.len() as u64,
        })?;
        let placed = self.place(SegmentClass::Moved, &data)?;
        // All of it now: what is moved in several steps is moved as a whole.
        self.admit([first.saturating_sub(1)..=first + wanted])?;
        if let Some(first) = run.first() {
            self.note_moves(&mut moves, first, &placed);
        }
        for part in run.chunks(JOINED_MAX) {
            let (from, to) = (part[0].offset, part[part.len() - 1].end());
            let moves = moves.iter();
            let moves: Vec<_> = moves.filter_map(|own| part_of(own, from, to)).collect();
            self.remap(&moves)?;
        }
        self.writer.totals.moved_bytes += wanted;
        self.keep_to_budget()
    }
}

/// The data of some extents.
#[derive(Default)]
struct Portion {
    bytes: Vec<u8>,
    /// Where that of each extent begins, but for those that are damaged.
    places: Vec<Option<usize>>,
}

impl Portion {
    fn add(&mut self, extent: usize, data: &[u8]) {
        self.places[extent] = Some(self.bytes.len());
        self.bytes.extend_from_slice(data);
    }
}

/// Bytes of an extent, which fit memory.
fn len_of(extent: &Extent) -> usize {
    usize::try_from(extent.len).unwrap_or(usize::MAX)
}

/// The part of a move that lies in `from..to`. Only the first byte of what moves has its mark.
fn part_of(&(offset, placed): &(u64, PlacedData), from: u64, to: u64) -> Option<(u64, PlacedData)> {
    let (begin, end) = (offset.max(from), (offset + placed.len).min(to));
    let address = match begin - offset {
        0 => placed.address,
        skip => (placed.address & !MARK) + skip,
    };
    let len = end.checked_sub(begin).filter(|len| *len > 0)?;
    Some((begin, PlacedData { address, len }))
}
