//! The memory budget for leaves of the tree: how leaves are evicted and loaded.
//!
//! # Idea
//! Random small insertions make about one extent each, so the tree may outgrow the memory that is
//! there for it. Within the [budget](super::Options::index_bytes) leaves come from the tree file
//! when they are needed, and go when they were not read lately. Opening reads no leaf but those
//! that the log's operations change.
//!
//! # Who waits for the tree file
//! - A read looks for its extents under the lock of the readers. Where a leaf is missing it ends
//!   there, lets go of the lock, fetches that leaf and those missing behind it, and begins again:
//!   with the leaves that it has [fetched](FetchedNodes), whoever takes them out of the tree
//!   meanwhile. So each time it comes further, and nobody else waits for it.
//! - A change knows from its edits which leaves it will touch, fetches them before it takes the
//!   lock, and finds them there.
//! - A collection looks at all extents. Where there is room for all leaves, they come into memory;
//!   otherwise it uses each leaf that it fetches once, and the tree keeps the leaves that it has.
//!
//! # Who changes what is in memory
//! Leaves go by the holder of the writer's lock only, who can rely on one to stay until it takes it
//! out itself. A read that fetched leaves puts them into the tree: with that lock if nobody holds
//! it, and lets others go; or else without, if nobody is at the tree just then, as many as the hand
//! lets go of in one step. So a writer that never rests keeps no reader's leaves out.
//!
//! # How well the budget is kept
//! Dirty leaves stay until they are saved. When they are more than three quarters of the budget,
//! and more than [`DIRTY_MIN`], the next change saves the tree first; when leaves are more than the
//! budget, it lets go of those that the hand finds within its [reach](REACH). So leaves pass the
//! budget by what one group of edits, one portion of a collection or one read touches, and by what
//! is fetched while the hand goes round twice; it has a step for each leaf in memory, a few more
//! for one that it moves, and one for each parent without any. Inner nodes are part of the budget;
//! where they leave less than a quarter of it, leaves have that quarter.
//!
//! # Validity
//! What is fetched without a lock may be of a slot that has been written again. Then its checksum
//! is wrong, or it was right because the content is the same. An error is told only if the tree
//! refers to the place still: as long as it does, nothing is written there (A1 of `absent`).

use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering};

use gabion_media::{Disk, ReadFile};

use super::Inner;
use super::layout::{TREE_NAME, TreeHeader};
use super::read_state::ReadState;
use super::sums::corruption;
use super::tree_file::{node_sum, slot_offset};
use super::writepath::Edit;
use super::writer::WriteSession;
use crate::tree::{
    AbsentLeaf, Leaf, LoadError, MISCOUNTED, MOVE_STEPS, NODE_BYTES, NodeBytes, NodePlace,
    SavedLeaves, SavedOutline,
};
use crate::{Error, Extent, FlexTree, Result};

/// Leaves that are fetched in one go at first: a read that has more to fetch looks again after
/// these, and each time fetches as many as it has.
const FETCHED_FIRST: usize = 256;

/// Leaves that are taken in under one lock of the readers: some 20 us.
const ADMITTED_MAX: usize = 32;

/// Steps of the hand under one lock of the readers, one for each leaf in memory that it passes:
/// 50 us by estimate.
const REACH: usize = 512;

/// Dirty leaves that are worth a checkpoint at least, whatever the budget: 8 KiB.
const DIRTY_MIN: usize = 8;

/// How often a walk over extents lets go of the lock to fetch leaves, before it holds it meanwhile.
const TRIES_MAX: usize = 8;

/// Leaves that a look at a long range holds at most, and one more: 4 MiB. Where it has more to
/// fetch it goes from leaf to leaf.
const HELD_MAX: usize = 4096;

/// The budget that is none.
pub(super) const UNLIMITED: u64 = u64::MAX;

/// Reads nodes from the tree file.
#[derive(Debug)]
pub(crate) struct NodeFile {
    file: ReadFile,
    space: u64,
    extent_max: u32,
    /// Leaves that were read for a tree that had them not in memory.
    fetched: AtomicU64,
}

/// What a read has fetched of the index of a space, for when it begins again: see
/// [`FlexSpace::begin_read`](crate::FlexSpace::begin_read).
#[derive(Debug, Default)]
pub struct FetchedNodes {
    leaves: SavedLeaves,
    /// Those that were not offered to the tree yet.
    new: Vec<AbsentLeaf>,
    /// A place that could not be read, and why. That is an error if the tree refers to it after
    /// that.
    failed: Option<(NodePlace, Error)>,
}

impl NodeFile {
    pub(super) fn open(disk: &Disk, space: u64, extent_max: u32) -> Result<NodeFile> {
        let file = disk.open_read(TREE_NAME)?;
        Ok(NodeFile::new(file, space, extent_max))
    }

    pub(super) fn new(file: ReadFile, space: u64, extent_max: u32) -> NodeFile {
        NodeFile {
            file,
            space,
            extent_max,
            fetched: AtomicU64::new(0),
        }
    }

    /// Leaves that were read since the file was opened.
    pub(super) fn fetched(&self) -> u64 {
        // ORDER: Relaxed, a figure.
        self.fetched.load(Ordering::Relaxed)
    }

    /// Loads the tree of a header, without its leaves; also returns the slots that it takes.
    pub(super) fn load(&self, header: &TreeHeader) -> Result<(FlexTree, Vec<u32>)> {
        let outline = SavedOutline {
            root: NodePlace {
                slot: header.root,
                crc: header.root_crc,
            },
            height: header.height,
            len: header.len,
            extents: header.extents,
        };
        let loaded = FlexTree::load(self.extent_max, &outline, &mut |place| self.node(place));
        loaded.map_err(|error| match error {
            LoadError::Read(error) => error,
            LoadError::Malformed(slot, what) => self.malformed(slot, what),
        })
    }

    /// The tree of a header has another number of extents than that says.
    pub(super) fn miscounted(&self, header: &TreeHeader) -> Error {
        self.malformed(header.root, MISCOUNTED)
    }

    fn malformed(&self, slot: u32, what: &str) -> Error {
        corruption(&self.file, slot_offset(slot), what.to_owned())
    }

    fn node(&self, place: NodePlace) -> Result<NodeBytes> {
        let mut bytes = [0; NODE_BYTES];
        self.file
            .read_exact_at(&mut bytes, slot_offset(place.slot))?;
        if node_sum(self.space, place.slot, &bytes) != place.crc {
            let what = "the checksum of a node of the tree is wrong";
            return Err(self.malformed(place.slot, what));
        }
        Ok(bytes)
    }

    fn leaf(&self, absent: &AbsentLeaf) -> Result<Leaf> {
        let AbsentLeaf { len, place, .. } = *absent;
        // ORDER: Relaxed, a figure.
        self.fetched.fetch_add(1, Ordering::Relaxed);
        let leaf = Leaf::decode(&self.node(place)?, place, len, self.extent_max);
        leaf.map_err(|what| self.malformed(place.slot, what))
    }

    /// Calls `each` with the extents of a range of a tree, in order and cut to the range, as long
    /// as it returns true. The tree keeps the leaves that it has.
    pub(super) fn for_each(
        &self,
        tree: &FlexTree,
        offset: u64,
        len: u64,
        each: impl FnMut(Extent) -> bool,
    ) -> Result<()> {
        self.for_each_but(tree, offset, len, each, |_, error| Err(error))
    }

    /// As [`NodeFile::for_each`], but for the extents of leaves that cannot be read and for which
    /// `unreadable` returns no error.
    pub(super) fn for_each_but(
        &self,
        tree: &FlexTree,
        offset: u64,
        len: u64,
        mut each: impl FnMut(Extent) -> bool,
        mut unreadable: impl FnMut(&AbsentLeaf, Error) -> Result<()>,
    ) -> Result<()> {
        let end = offset.saturating_add(len).min(tree.len());
        let mut from = offset;
        while from < end {
            let mut pieces = tree.range_with(from, end - from, None);
            if !pieces.walk(&mut each) {
                return Ok(());
            }
            let Some(at) = pieces.missing_from() else {
                return Ok(());
            };
            from = end;
            for absent in tree.absent_in(at, at, 1, |_| false) {
                from = absent.offset + absent.len;
                let leaf = match self.leaf(&absent) {
                    Ok(leaf) => leaf,
                    Err(error) => {
                        unreadable(&absent, error)?;
                        continue;
                    }
                };
                let mut leaves = SavedLeaves::default();
                leaves.insert(absent.place, leaf);
                let part = from.min(end) - at;
                if !tree.range_with(at, part, Some(&leaves)).all(&mut each) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Takes into a tree what it has not in memory of a range, up to the byte at its end.
    pub(super) fn admit(&self, tree: &mut FlexTree, range: RangeInclusive<u64>) -> Result<()> {
        for absent in tree.absent_in(*range.start(), *range.end(), usize::MAX, |_| false) {
            let leaf = self.leaf(&absent)?;
            tree.admit(&absent, &leaf);
        }
        Ok(())
    }
}

impl FetchedNodes {
    pub(super) fn leaves(&self) -> &SavedLeaves {
        &self.leaves
    }

    /// The next leaves that are missing for a look at a range, which holds `held_max` at most, and
    /// fewer by now.
    pub(super) fn missing(
        &self,
        shared: &ReadState,
        range: RangeInclusive<u64>,
        held_max: usize,
    ) -> Vec<AbsentLeaf> {
        let has = |place| self.leaves.get(place).is_some();
        let (from, to) = range.into_inner();
        let held = self.leaves.len();
        let most = held.max(FETCHED_FIRST).min(held_max - held);
        shared.tree.absent_in(from, to, most, has)
    }

    /// Fetches leaves. One that cannot be read is an error when it is missing again.
    pub(super) fn fetch(&mut self, nodes: &NodeFile, missing: &[AbsentLeaf]) -> Result<()> {
        for absent in missing {
            let failed = &mut self.failed;
            if let Some((_, error)) = failed.take_if(|(place, _)| *place == absent.place) {
                return Err(error);
            }
            match nodes.leaf(absent) {
                Ok(leaf) => {
                    self.leaves.insert(absent.place, leaf);
                    self.new.push(*absent);
                }
                Err(error) => {
                    self.failed = Some((absent.place, error));
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}

/// The ranges of the address space that a group of edits touches, which is `len` bytes long, from
/// the byte in front of what an edit changes to the one behind it, as they lie before the group.
pub(super) fn touched(edits: &[Edit<'_>], len: u64) -> Vec<RangeInclusive<u64>> {
    // Where so many bytes came in place of so many others.
    let mut steps: Vec<(u64, u64, u64)> = Vec::new();
    let mut len = len;
    let mut ranges = Vec::new();
    for edit in edits {
        let (at, removed, added) = edit.effect(len);
        let (mut from, mut to) = (at, at + removed);
        for &(at, removed, added) in steps.iter().rev() {
            let before = |place: u64| match place {
                _ if place < at => (place, place),
                _ if place > at + added => (place - added + removed, place - added + removed),
                _ => (at, at + removed),
            };
            (from, to) = (before(from).0, before(to).1);
        }
        ranges.push(from.saturating_sub(1)..=to);
        steps.push((at, removed, added));
        len = len - removed + added;
    }
    ranges
}

impl Inner {
    /// Leaves that may be in memory.
    fn leaves_max(&self, tree: &FlexTree) -> usize {
        match self.index_bytes() {
            None => usize::MAX,
            Some(budget) => {
                let inner = tree.inner_bytes() as u64;
                let left = budget.saturating_sub(inner).max(budget / 4);
                usize::try_from(left / NODE_BYTES as u64).map_or(usize::MAX, |most| most.max(1))
            }
        }
    }

    /// Calls `each` with the extents of a range as they are at one moment, in order and cut to the
    /// range, as long as it returns true: from the first one on and with another result each time
    /// that leaves are missing. `to` says up to where they are wanted if one is missing.
    ///
    /// Where the range has more leaves than are [held](HELD_MAX), changes wait meanwhile. They wait
    /// for the writer's lock, where they hold no reader up, unless somebody has it: a change that
    /// is under way may wait for the caller, or be the caller's own. Then the lock of the readers,
    /// which keeps the tree as it is, must do.
    pub(super) fn walk<T: Default>(
        &self,
        (offset, len): (u64, u64),
        to: impl Fn(u64) -> u64,
        mut each: impl FnMut(&mut T, Extent) -> bool,
    ) -> Result<T> {
        let mut look = |shared: &ReadState, fetched: &FetchedNodes| {
            let mut found = T::default();
            let mut pieces = shared.tree.range_with(offset, len, Some(fetched.leaves()));
            let _ = pieces.by_ref().all(|extent| each(&mut found, extent));
            pieces.missing_from().map_or(Ok(found), Err)
        };
        let mut fetched = FetchedNodes::default();
        for _ in 0..TRIES_MAX {
            let shared = self.shared.share();
            let missing = match look(&shared, &fetched) {
                Ok(found) => return Ok(found),
                Err(_) if fetched.leaves.len() > HELD_MAX => break,
                Err(at) => fetched.missing(&shared, at..=to(at), HELD_MAX + 1),
            };
            drop(shared);
            fetched.fetch(&self.nodes, &missing)?;
            self.offer(&mut fetched);
        }
        // With the lock held, what is fetched cannot be in vain.
        let shared = self.shared.share();
        while fetched.leaves.len() <= HELD_MAX {
            match look(&shared, &fetched) {
                Ok(found) => return Ok(found),
                Err(at) => {
                    let missing = fetched.missing(&shared, at..=to(at), HELD_MAX + 1);
                    fetched.fetch(&self.nodes, &missing)?;
                }
            }
        }
        drop(shared);
        drop(fetched);
        let _writer = self.writer.try_lock();
        let mut found = T::default();
        let shared = self.shared.share();
        let each = |extent| each(&mut found, extent);
        self.nodes.for_each(&shared.tree, offset, len, each)?;
        Ok(found)
    }

    /// Brings the leaves of a range into memory, the first [`HELD_MAX`] of them, if that can be
    /// done at once. One that cannot be read stays where it is: who needs it is told.
    pub(super) fn prepare(&self, offset: u64, len: u64) -> Result<()> {
        let end = offset.saturating_add(len);
        let shared = self.shared.share();
        let missing = shared.tree.absent_in(offset, end, HELD_MAX, |_| false);
        drop(shared);
        let mut fetched = FetchedNodes::default();
        fetched.fetch(&self.nodes, &missing)?;
        self.offer(&mut fetched);
        Ok(())
    }

    /// Puts leaves that a read has fetched into the tree, if that can be done at once.
    pub(super) fn offer(&self, fetched: &mut FetchedNodes) {
        let mut offered = 0;
        for part in fetched.new.chunks(ADMITTED_MAX) {
            let writer = self.writer.try_lock();
            // A writer at work may hold it with others for as long as it reads or saves.
            let shared = match &writer {
                Some(_) => Some(self.shared.alone()),
                None => self.shared.try_alone(),
            };
            let Some(mut shared) = shared else {
                break;
            };
            let most = self.leaves_max(&shared.tree);
            if writer.is_none() && shared.tree.present_count() >= most.saturating_add(REACH) {
                break;
            }
            for absent in part {
                if let Some(leaf) = fetched.leaves.get(absent.place) {
                    shared.tree.admit(absent, leaf);
                }
            }
            let gone = writer.is_some().then(|| shared.tree.evict(most, REACH));
            drop(shared);
            drop(gone);
            offered += part.len();
        }
        fetched.new.drain(..offered);
    }

    /// The budget of the index, if it has one.
    pub(super) fn index_bytes(&self) -> Option<u64> {
        // ORDER: Relaxed; the number stands for itself.
        let bytes = self.index_bytes.load(Ordering::Relaxed);
        (bytes != UNLIMITED).then_some(bytes)
    }

    /// Gives the index another budget.
    pub(super) fn set_index_bytes(&self, bytes: Option<u64>) {
        let _writer = self.writer.lock();
        // ORDER: Relaxed; the number stands for itself.
        self.index_bytes
            .store(bytes.unwrap_or(UNLIMITED), Ordering::Relaxed);
        self.shared.alone().tree.mark_use(bytes.is_some());
        let nodes = self.shared.share().tree.node_count();
        // Twice round, inner nodes included: the first time may only find that all were read. And
        // half of them may move.
        for _ in 0..=(2 * nodes + MOVE_STEPS * nodes / 2) / REACH {
            let mut shared = self.shared.alone();
            let most = self.leaves_max(&shared.tree);
            if !shared.tree.is_beyond(most) {
                return;
            }
            let gone = shared.tree.evict(most, REACH);
            drop(shared);
            drop(gone);
        }
    }
}

impl WriteSession<'_> {
    /// Whether all leaves fit into memory.
    pub(super) fn has_room_for_all(&self) -> bool {
        let shared = self.space.shared.share();
        let tree = &shared.tree;
        tree.present_count() + tree.absent_count() <= self.space.leaves_max(tree)
    }

    /// Whether there are leaves that are not in memory.
    pub(super) fn may_miss(&self) -> bool {
        self.space.shared.share().tree.absent_count() > 0
    }

    /// Sees to it that the leaves are in memory which a change of these ranges touches.
    pub(super) fn admit(
        &mut self,
        ranges: impl IntoIterator<Item = RangeInclusive<u64>>,
    ) -> Result<()> {
        let space = self.space;
        for range in ranges {
            let mut from = *range.start();
            while from <= *range.end() {
                let shared = space.shared.share();
                let tree = &shared.tree;
                let missing = tree.absent_in(from, *range.end(), ADMITTED_MAX, |_| false);
                drop(shared);
                let Some(last) = missing.last() else {
                    break;
                };
                from = last.offset + last.len;
                let leaves = missing.iter().map(|absent| space.nodes.leaf(absent));
                let leaves: Vec<Leaf> = leaves.collect::<Result<_>>()?;
                let mut shared = space.shared.alone();
                for (absent, leaf) in missing.iter().zip(&leaves) {
                    shared.tree.admit(absent, leaf);
                }
            }
        }
        Ok(())
    }

    /// Has the system give memory for the nodes that a change may add, while readers go on.
    pub(super) fn prepare_nodes(&self) {
        let ahead = self.space.shared.share().tree.ahead();
        if let Some(ahead) = ahead {
            self.space.shared.alone().tree.take_ahead(ahead);
        }
    }

    /// Keeps the index within its budget: saves it if much of it is dirty, and lets go of leaves
    /// that nobody has read lately.
    pub(super) fn keep_to_budget(&mut self) -> Result<()> {
        if self.space.index_bytes().is_none() {
            return Ok(());
        }
        let shared = self.space.shared.share();
        let most = self.space.leaves_max(&shared.tree);
        let (dirty, is_beyond) = (shared.tree.dirty_count(), shared.tree.is_beyond(most));
        drop(shared);
        if dirty > DIRTY_MIN.max(most - most / 4) {
            self.save()?;
        }
        if is_beyond {
            let gone = self.space.shared.alone().tree.evict(most, REACH);
            drop(gone);
        }
        Ok(())
    }

    /// The extents of a range, the first and the last one cut to it.
    pub(super) fn extents(&self, offset: u64, len: u64) -> Result<Vec<Extent>> {
        let mut extents = Vec::new();
        let shared = self.space.shared.share();
        self.space
            .nodes
            .for_each(&shared.tree, offset, len, |extent| {
                extents.push(extent);
                true
            })?;
        Ok(extents)
    }
}

#[cfg(test)]
mod tests {
    use gabion_media::SimDisk;

    use super::*;
    use crate::{FlexSpace, Options};

    /// Readers waited for 2 to 4 ms where a change made the tree's first leaf on a large page: the
    /// system cleared that page while they were kept out.
    #[test]
    fn changes_find_memory_for_the_leaves_that_they_add() {
        let disk = Disk::simulated(&SimDisk::new());
        let space = FlexSpace::open_on(disk, Options::default()).unwrap();
        // Each record comes in front of the one before, so each is an extent of its own.
        let edits = [Edit::Insert {
            offset: 0,
            data: b"granite",
        }; 64];
        let mut looked_at = 0;
        for _ in 0..1_000 {
            space.apply(&edits).unwrap();
            let shared = space.0.shared.share();
            if shared.tree.present_count() > 1_100 {
                assert!(shared.tree.is_ahead());
                looked_at += 1;
            }
        }
        assert!(looked_at > 100, "{looked_at}");
    }
}
