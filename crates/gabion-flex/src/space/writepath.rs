//! The write path: changes of a space, from the call to the point where they take effect.
//!
//! Every change is a group of edits. It is checked as a whole, then its data is placed in segments,
//! which may fail, and then the edits are applied to the tree and to the records that wait for a
//! commit, which cannot fail. Readers see all edits of a group or none, and so does a recovery.

use std::sync::atomic::Ordering;

use super::Inner;
use super::geometry::MARK;
use super::leaves::touched;
use super::log::{LogRecord, PendingRecords};
use super::reserve::{ReserveDemand, allow_no_space};
use super::segments::{SegmentClass, Segments};
use super::writer::{PlacedData, WriteSession};
use crate::{Error, Extent, FlexTree, HOLE, Result};

/// Longest address space. A hole of this length takes 65,536 extents.
pub(super) const LEN_MAX: u64 = 1 << 48;

/// One change of an address space. The edits of a group work one after the other: each one's
/// offsets are those that the edits before it have left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edit<'d> {
    /// Puts bytes before the one at `offset`; what is there or behind it moves.
    Insert {
        /// Where the first byte will be.
        offset: u64,
        /// The bytes.
        data: &'d [u8],
    },
    /// As [`Edit::Insert`], and marks the first byte, so that
    /// [`FlexSpace::next_mark`](crate::FlexSpace::next_mark) finds it. Where an edit cuts such an
    /// insertion in two, its second part is marked, too; so who cuts between units only finds marks
    /// only where units begin. Not every unit keeps a mark: neighbours on the medium share one.
    InsertMarked {
        /// Where the first byte will be.
        offset: u64,
        /// The bytes.
        data: &'d [u8],
    },
    /// Puts a range that reads as zeros, and takes no space, before the byte at `offset`.
    InsertHole {
        /// Where the range will begin.
        offset: u64,
        /// Bytes in the range.
        len: u64,
    },
    /// Removes a range; what is behind it moves to its place.
    Collapse {
        /// Where the range begins.
        offset: u64,
        /// Bytes in the range.
        len: u64,
    },
    /// Writes bytes over what is there. A write that begins or ends behind the end of the space
    /// lengthens it; what lies between is a hole.
    Write {
        /// Where the first byte will be.
        offset: u64,
        /// The bytes.
        data: &'d [u8],
    },
    /// Lets a range read as zeros and take no space; nothing moves.
    Punch {
        /// Where the range begins.
        offset: u64,
        /// Bytes in the range.
        len: u64,
    },
}

impl Edit<'_> {
    fn data(&self) -> &[u8] {
        match self {
            Edit::Insert { data, .. }
            | Edit::InsertMarked { data, .. }
            | Edit::Write { data, .. } => data,
            _ => &[],
        }
    }

    /// Whether the space is not larger after it, on the medium.
    fn only_removes(&self) -> bool {
        matches!(self, Edit::Collapse { .. } | Edit::Punch { .. }) || self.is_empty()
    }

    /// Whether it does nothing.
    fn is_empty(&self) -> bool {
        self.data().is_empty() && self.hole_bytes() == 0
    }

    /// Bytes of the hole that it inserts.
    fn hole_bytes(&self) -> u64 {
        match self {
            Edit::InsertHole { len, .. } => *len,
            _ => 0,
        }
    }

    fn inserts_marked_at(&self, place: u64) -> bool {
        matches!(self, Edit::InsertMarked { offset, .. } if *offset == place)
    }

    /// Where it begins to change a space of `len` bytes, how many bytes go there, how many come.
    pub(super) fn effect(&self, len: u64) -> (u64, u64, u64) {
        match *self {
            Edit::Insert { offset, data } | Edit::InsertMarked { offset, data } => {
                (offset, 0, data.len() as u64)
            }
            Edit::InsertHole { offset, len: more } => (offset, 0, more),
            Edit::Collapse { offset, len: less } => (offset, less, 0),
            Edit::Punch { offset, len: part } => (offset, part, part),
            Edit::Write { offset, data: [] } => (offset.min(len), 0, 0),
            Edit::Write { offset, data } => {
                let (at, end) = (offset.min(len), offset + data.len() as u64);
                (at, end.min(len) - at, end - at)
            }
        }
    }

    /// The length of the space after the edit, if it is possible at the length `len`.
    fn len_after(&self, len: u64) -> Result<u64> {
        let within = |offset: u64, part: u64| match offset.checked_add(part) {
            Some(end) if end <= len => Ok(()),
            _ => Err(Error::OutOfRange {
                offset,
                len: part,
                space_len: len,
            }),
        };
        let longer = |more: u64| match len.checked_add(more) {
            Some(sum) if sum <= LEN_MAX => Ok(sum),
            _ => Err(Error::TooLong {
                len: more,
                space_len: len,
            }),
        };
        match *self {
            Edit::Insert { offset, data } | Edit::InsertMarked { offset, data } => {
                within(offset, 0)?;
                longer(data.len() as u64)
            }
            Edit::InsertHole { offset, len: more } => {
                within(offset, 0)?;
                longer(more)
            }
            Edit::Collapse { offset, len: less } => within(offset, less).map(|()| len - less),
            Edit::Punch { offset, len: part } => within(offset, part).map(|()| len),
            Edit::Write { data: [], .. } => Ok(len),
            Edit::Write { offset, data } => {
                let end = offset.checked_add(data.len() as u64);
                longer(end.unwrap_or(u64::MAX).saturating_sub(len))
            }
        }
    }
}

/// What the edits are applied to.
struct Target<'t> {
    tree: &'t mut FlexTree,
    segments: &'t mut Segments,
    records: &'t mut PendingRecords,
    extent_max: u64,
}

impl Target<'_> {
    fn insert(&mut self, offset: u64, len: u64, address: u64) {
        if len > 0 {
            self.tree.insert(offset, len, address);
            self.records.push(&LogRecord::Insert {
                offset,
                len,
                address,
            });
        }
    }

    /// Inserts pieces one behind the other.
    fn insert_all(&mut self, mut offset: u64, placed: &[PlacedData]) {
        for piece in placed {
            self.insert(offset, piece.len, piece.address);
            offset += piece.len;
        }
    }

    /// Inserts pieces with a mark at the first byte. The tree cuts what is longer than an extent,
    /// and would mark each part.
    fn insert_marked(&mut self, offset: u64, placed: &[PlacedData]) {
        if let Some((first, rest)) = placed.split_first() {
            let len = first.len.min(self.extent_max);
            self.insert(offset, len, first.address | MARK);
            self.insert(offset + len, first.len - len, first.address + len);
            self.insert_all(offset + first.len, rest);
        }
    }

    /// Removes a range and inserts pieces with a mark in its place. The tree does both in one step
    /// as a rule; the records are those of two.
    fn replace_marked(&mut self, offset: u64, removed: u64, placed: &[PlacedData]) {
        let Some((first, rest)) = placed.split_first().filter(|_| removed > 0) else {
            self.collapse(offset, removed);
            return self.insert_marked(offset, placed);
        };
        let len = first.len.min(self.extent_max);
        let address = first.address | MARK;
        let segments = &mut *self.segments;
        self.tree
            .replace(offset, removed, (len, address), |extent| {
                segments.release(&extent);
            });
        self.records.push(&LogRecord::Collapse {
            offset,
            len: removed,
        });
        self.records.push(&LogRecord::Insert {
            offset,
            len,
            address,
        });
        self.insert(offset + len, first.len - len, first.address + len);
        self.insert_all(offset + first.len, rest);
    }

    fn collapse(&mut self, offset: u64, len: u64) {
        if len > 0 {
            let segments = &mut *self.segments;
            self.tree
                .collapse(offset, len, |extent| segments.release(&extent));
            self.records.push(&LogRecord::Collapse { offset, len });
        }
    }

    fn map(&mut self, offset: u64, len: u64, address: u64) {
        if len > 0 {
            let segments = &mut *self.segments;
            self.tree
                .remap(offset, len, address, |extent| segments.release(&extent));
            self.records.push(&LogRecord::Map {
                offset,
                len,
                address,
            });
        }
    }

    /// Applies edits, whose data is at these places.
    fn apply_all(&mut self, edits: &[Edit<'_>], mut places: DataPlacement<'_>) {
        let mut rest = edits.iter().peekable();
        while let Some(edit) = rest.next() {
            if let Edit::Collapse { offset, len } = *edit
                && let Some(next) = rest.next_if(|next| next.inserts_marked_at(offset))
            {
                self.replace_marked(offset, len, places.take(next.data().len() as u64));
            } else {
                self.apply(edit, places.take(edit.data().len() as u64));
            }
        }
    }

    fn apply(&mut self, edit: &Edit<'_>, placed: &[PlacedData]) {
        match *edit {
            Edit::InsertHole { offset, len } => self.insert(offset, len, HOLE),
            Edit::Collapse { offset, len } => self.collapse(offset, len),
            Edit::Punch { offset, len } => self.map(offset, len, HOLE),
            Edit::Insert { offset, .. } => self.insert_all(offset, placed),
            Edit::InsertMarked { offset, .. } => self.insert_marked(offset, placed),
            Edit::Write { offset, data } => {
                let len = self.tree.len();
                if offset > len && !data.is_empty() {
                    self.insert(len, offset - len, HOLE);
                }
                let mut at = offset;
                for piece in placed {
                    let over = piece.len.min(self.tree.len() - at);
                    self.map(at, over, piece.address);
                    self.insert(at + over, piece.len - over, piece.address + over);
                    at += piece.len;
                }
            }
        }
    }
}

/// Where the data of a group is, edit by edit.
pub(super) struct DataPlacement<'p> {
    rest: std::slice::Iter<'p, PlacedData>,
    /// What is left of the place before the rest.
    begun: PlacedData,
    taken: Vec<PlacedData>,
}

impl<'p> DataPlacement<'p> {
    pub(super) fn new(placed: &'p [PlacedData]) -> DataPlacement<'p> {
        DataPlacement {
            rest: placed.iter(),
            begun: PlacedData { address: 0, len: 0 },
            taken: Vec::new(),
        }
    }

    /// The places of the next so many bytes.
    pub(super) fn take(&mut self, mut len: u64) -> &[PlacedData] {
        self.taken.clear();
        while len > 0 {
            if self.begun.len == 0 {
                match self.rest.next() {
                    Some(next) => self.begun = *next,
                    None => break,
                }
            }
            let part = self.begun.len.min(len);
            let address = self.begun.address;
            self.taken.push(PlacedData { address, len: part });
            self.begun.address += part;
            self.begun.len -= part;
            len -= part;
        }
        &self.taken
    }
}

impl Inner {
    /// Applies a group of edits: all of them, or none if this fails.
    pub(crate) fn apply(&self, edits: &[Edit<'_>]) -> Result<()> {
        self.write(|session| session.apply(edits, || ()))
    }

    /// As [`Inner::apply`], with edits that are made when no other change can come between, and a
    /// lock that is taken just before the change.
    pub(crate) fn apply_under<'d, G>(
        &self,
        edits: impl FnOnce() -> Vec<Edit<'d>>,
        lock: impl FnOnce() -> G,
    ) -> Result<G> {
        self.write(|session| {
            // Before the edits are made: a lock that these take holds nobody up for a sync.
            session.tidy_if_due()?;
            session.apply(&edits(), lock)
        })
    }

    /// Appends, and returns where the first byte is.
    pub(crate) fn append(&self, data: &[u8]) -> Result<u64> {
        self.write(|session| {
            let offset = session.space.shared.share().tree.len();
            session.apply(&[Edit::Insert { offset, data }], || ())?;
            Ok(offset)
        })
    }

    /// Cuts the space, or lengthens it with a hole.
    pub(crate) fn set_len(&self, len: u64) -> Result<()> {
        self.write(|session| {
            let now = session.space.shared.share().tree.len();
            let edit = if len < now {
                Edit::Collapse {
                    offset: len,
                    len: now - len,
                }
            } else {
                Edit::InsertHole {
                    offset: now,
                    len: len - now,
                }
            };
            session.apply(&[edit], || ())
        })
    }
}

impl WriteSession<'_> {
    fn apply<G>(&mut self, edits: &[Edit<'_>], lock: impl FnOnce() -> G) -> Result<G> {
        let before = self.space.shared.share().tree.len();
        let mut len = before;
        let mut wanted = 0;
        for edit in edits {
            len = edit.len_after(len)?;
            wanted += edit.data().len() as u64;
        }
        self.prepare(wanted)?;
        self.keep_room_for(edits, wanted)?;
        self.prefetch(edits, before);
        let data: Vec<&[u8]> = edits.iter().map(Edit::data).collect();
        let placed = self.place_all(SegmentClass::User, &data)?;
        if self.may_miss() {
            self.admit(touched(edits, before))?;
        }
        let writer = &mut *self.writer;
        let held = lock();
        let mut shared = self.space.shared.alone();
        let mut target = Target {
            tree: &mut shared.tree,
            segments: &mut writer.segments,
            records: &mut writer.pending,
            extent_max: self.space.sums.geometry.extent_max().into(),
        };
        target.apply_all(edits, DataPlacement::new(&placed));
        // ORDER: Release pairs with the load in `Inner::changes`: who sees the new number and then
        // takes the lock sees the change; the lock itself orders the rest.
        self.space.changes.fetch_add(1, Ordering::Release);
        drop(shared);
        placed.iter().for_each(|placed| writer.unstage(placed));
        writer.totals.user_bytes += wanted;
        Ok(held)
    }

    /// Asks for the memory of the leaves that some edits of a space of `len` bytes change, so that
    /// the change waits for all of them at the same time, and readers less for it.
    fn prefetch(&self, edits: &[Edit<'_>], len: u64) {
        let shared = self.space.shared.share();
        let mut now = len;
        for edit in edits {
            let (at, removed, added) = edit.effect(now);
            // About where it lies before the group: exactly, if those in front of it come first.
            shared.tree.prefetch(at.wrapping_add(len).wrapping_sub(now));
            now = now - removed + added;
        }
    }

    /// Refuses what does not fit, and commits if much waits for it: both before anything changes.
    fn prepare(&mut self, wanted: u64) -> Result<()> {
        let segments = &self.writer.segments;
        if wanted > 0 && segments.live().saturating_add(wanted) > segments.live_max() {
            return Err(self.full(wanted));
        }
        match wanted {
            0 => allow_no_space(self.tidy_if_due()),
            _ => self.tidy_if_due(),
        }
    }

    /// Sees to it that what some edits add can be saved whatever the disk has left then. Those that
    /// only remove are never refused for that.
    fn keep_room_for(&mut self, edits: &[Edit<'_>], wanted: u64) -> Result<()> {
        if !self.writer.reserve.is_kept() {
            return Ok(());
        }
        let extent_max = u64::from(self.space.sums.geometry.extent_max());
        let holes = edits.iter().map(Edit::hole_bytes);
        let extents = wanted / extent_max + holes.sum::<u64>() / u64::from(u32::MAX);
        let added = ReserveDemand {
            bytes: wanted,
            // Two leaves at each place, and those of new extents, of which a split leaves half.
            nodes: 2 * edits.len() as u64 + extents / 30,
        };
        match edits.iter().all(Edit::only_removes) {
            true => self.keep_aside_if_possible(added),
            false => self.keep_aside(added),
        }
    }

    /// Commits if much waits for it, keeps the index within its budget, and has memory for what a
    /// change adds to it.
    fn tidy_if_due(&mut self) -> Result<()> {
        self.prepare_nodes();
        if self.writer.pending.as_bytes().len() >= self.space.options.commit_bytes {
            self.commit()?;
        }
        self.keep_to_budget()
    }

    /// Lets data that stays the same be somewhere else: some ranges of the address space, each now
    /// at placed addresses.
    pub(crate) fn remap(&mut self, moves: &[(u64, PlacedData)]) -> Result<()> {
        let around = |(offset, placed): &(u64, PlacedData)| {
            offset.saturating_sub(1)..=offset.saturating_add(placed.len)
        };
        if self.may_miss() {
            self.admit(moves.iter().map(around))?;
        }
        let shared = self.space.shared.share();
        for (offset, _) in moves {
            shared.tree.prefetch(*offset);
        }
        drop(shared);
        let writer = &mut *self.writer;
        let mut shared = self.space.shared.alone();
        let mut target = Target {
            tree: &mut shared.tree,
            segments: &mut writer.segments,
            records: &mut writer.pending,
            extent_max: self.space.sums.geometry.extent_max().into(),
        };
        for (offset, placed) in moves {
            target.map(*offset, placed.len, placed.address);
        }
        drop(shared);
        moves.iter().for_each(|(_, placed)| writer.unstage(placed));
        Ok(())
    }

    /// Reads an extent as the writer sees it.
    pub(crate) fn read_extent(&self, extent: &Extent) -> Result<Vec<u8>> {
        let len = usize::try_from(extent.len).unwrap_or(usize::MAX);
        let mut bytes = vec![0; len];
        let shared = self.space.shared.share();
        shared.read(&self.space.sums, &self.space.data, extent, &mut bytes)?;
        Ok(bytes)
    }
}
