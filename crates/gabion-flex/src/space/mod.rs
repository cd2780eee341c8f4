//! FlexSpace: a persistent address space in which bytes are inserted and removed anywhere.
//!
//! # Idea
//! Data is written once, into segments of a log-structured file. A FlexTree maps the address space
//! to it. Inserting or removing bytes changes the tree only, so it costs the same at the front of a
//! space of many gigabytes as at its end. Changes of the tree are logged as operations, and the
//! tree itself is saved now and then, node by node, without writing over what was saved before.
//!
//! # Files
//! `DATA` has the segments, `TREE` the saved nodes and two headers, a file named by the tree's
//! version the log since then (`layout`, `log`); `LOCK` keeps a second opener out, `RESERVE` keeps
//! room aside.
//!
//! # Rooms
//! | file | journey |
//! |---|---|
//! | `writepath`, `writer` | an edit: checked, placed in segments, applied |
//! | `readpath`, `read_state`, `sums` | a read: tree, buffer or checked blocks |
//! | `commit`, `tree_file` | what was done becomes durable |
//! | `reserve` | room for that on a full disk |
//! | `gc`, `victims`, `segments` | space is won back |
//! | `frozen` | a moment stays as it is |
//! | `leaves` | leaves of the tree come and go |
//! | `recovery`, `check` | what is there after a crash, and whether it is sound |
//! | `handle` | the space as a file of the standard library |
//!
//! # Invariants
//! - I1. An extent refers to data of one segment that is not free. What the durable tree and log
//!   refer to is durable and unchanged: a segment is written again only after a commit that no
//!   longer refers to it.
//! - I2. A frame of the log holds whole groups of edits, and follows the sync of their data.
//! - I3. The bytes of a segment are written once. The block that a commit cuts in two is completed
//!   later without changing its first part, so a torn write of it leaves that part as it was.
//! - I4. Every byte read from a medium is under a checksum that is bound to its place.
//!
//! # Linearization point
//! A group of edits takes effect when the writer lets go of the lock of `read_state` after applying
//! it. A read sees the space at one moment between its call and its return.
//!
//! # Durability point
//! The return of [`FlexSpace::sync`]. A crash leaves the result of a prefix of the groups that
//! holds at least what was synced. What was not synced lives in buffers of the process: its end is
//! a crash too.
//!
//! # What waits for what
//! Reads run at the same time and wait for no other lock than `read_state`, for as long as they
//! look up where their bytes are; writers run one at a time. A read waits for no other read's
//! medium, and for none of the writer's. The writer keeps reads out, for one of these at a time,
//! while
//!
//! | it | bounded by | estimated |
//! |---|---|---|
//! | changes the tree by a group of edits | the edits, and the leaves that go | 1 us each |
//! | copies data into a buffer | 128 KiB | 20 us |
//! | takes over the addresses of moved data | 64 extents | 100 us |
//! | takes a saved tree over | 512 nodes | 100 us |
//! | takes leaves of the tree in, lets others go or moves them | 32 and 512, or 128 moved | 70 us |
//! | takes a segment up, seals it, notes its checksums | its table | 5 us |
//!
//! and lets the reads in that wait before the next of these. [`FlexSpace::reader_waits`] has the
//! times. An edit does the work of a commit, a checkpoint or a collection when one is due. A read
//! whose segments were used again before it had read them, and only that one, is done a second
//! time with the writer kept out.
//!
//! # Deviations from the paper
//! Checksums on everything; atomic groups; extents are cut where a segment ends instead of leaving
//! its end unused; a relocation is logged as a mapping of its offset; moved data has segments of
//! its own; a new log is made for each version of the tree, instead of writing the old one again.
//!
//! Source: Chen, Zhong, Wu: Efficient Data Management with a Flexible Address Space, section 4.

mod check;
mod commit;
mod frozen;
mod gc;
mod geometry;
mod handle;
mod layout;
mod leaves;
mod log;
mod open;
mod options;
mod read_state;
mod readpath;
mod recovery;
mod reserve;
mod segments;
mod stats;
mod sums;
mod tree_file;
mod victims;
mod writepath;
mod writer;

pub use self::check::{CheckReport, CheckedPiece, PieceContent, Problem};
pub use self::frozen::{Frozen, FrozenFile, FrozenPart};
pub use self::gc::GcRound;
pub use self::handle::SpaceFile;
pub use self::layout::is_file_of_space;
pub use self::leaves::FetchedNodes;
pub use self::options::{
    DEFAULT_BLOCK_BYTES, DEFAULT_COMMIT_BYTES, DEFAULT_GARBAGE_PARTS, DEFAULT_LOG_BYTES,
    DEFAULT_SEGMENT_BYTES, Options,
};
pub use self::readpath::PendingRead;
pub use self::recovery::DurablePoint;
pub use self::stats::SpaceStats;
pub use self::writepath::Edit;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use gabion_media::{DirLock, Disk, ReadFile};
use parking_lot::Mutex;

use self::geometry::MARK;
use self::layout::LOCK_NAME;
use self::leaves::NodeFile;
use self::read_state::ReadState;
use self::sums::BlockSums;
use self::writer::Writer;
use crate::{Extent, ReaderWaits, Result, SharedLock};

/// Whether there is a space in a directory.
pub fn exists(path: impl AsRef<Path>) -> Result<bool> {
    match Disk::system(path.as_ref()) {
        Err(error) if error.is_not_found() => Ok(false),
        disk => recovery::exists(&disk?),
    }
}

/// Removes the space in a directory, which no one may have open, or what there is of one. Other
/// files of the directory stay, and so does the directory.
pub fn remove(path: impl AsRef<Path>) -> Result<()> {
    let disk = Disk::system(path.as_ref())?;
    let _lock = disk.lock(LOCK_NAME)?;
    recovery::remove(&disk)
}

/// Verifies every byte of the space in a directory; no one may have it open. Damage is part of the
/// report; an error means that the check could not be done. Writes nothing.
pub fn check(path: impl AsRef<Path>) -> Result<CheckReport> {
    check_disk(&Disk::system(path.as_ref())?)
}

/// Verifies the space in a directory, as [`check`](fn@check) does, which is known to have reached a
/// moment: one that ends before it is damaged.
pub fn check_reached(path: impl AsRef<Path>, reached: DurablePoint) -> Result<CheckReport> {
    check_content(&Disk::system(path.as_ref())?, reached, |_| {})
}

/// Verifies the space of a disk, as [`check`](fn@check) does.
pub fn check_disk(disk: &Disk) -> Result<CheckReport> {
    let _lock = disk.lock_shared(layout::LOCK_NAME)?;
    check_content(disk, DurablePoint::default(), |_| {})
}

/// Verifies the space of a disk, which is known to have reached a moment, and calls `visit` with
/// its whole content, piece by piece and in order, if the space is sound enough to have one. The
/// caller sees to it that nobody has the space open.
pub fn check_content(
    disk: &Disk,
    reached: DurablePoint,
    visit: impl FnMut(&CheckedPiece<'_>),
) -> Result<CheckReport> {
    check::check(disk, reached, visit)
}

/// A persistent address space. Clones are the same space, and may be used by several threads.
///
/// Changes are in memory until [`FlexSpace::sync`]: a space that is dropped, or whose process ends,
/// is as it was after the last sync, or after some later change.
#[derive(Clone, Debug)]
pub struct FlexSpace(Arc<Inner>);

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) disk: Disk,
    pub(crate) options: Options,
    pub(crate) sums: BlockSums,
    pub(crate) data: ReadFile,
    pub(crate) nodes: NodeFile,
    /// Held alone by the holder of `writer`, and by reads that put leaves of the tree in, which
    /// changes nothing else.
    pub(crate) shared: SharedLock<ReadState>,
    pub(crate) writer: Mutex<Writer>,
    /// The budget of the index in bytes.
    index_bytes: AtomicU64,
    /// Counts the changes of the address space.
    pub(crate) changes: AtomicU64,
    /// Operations that the opening repeated.
    pub(crate) repeated: u64,
    /// The process that opened it. A fork of that must not change what the medium has.
    pub(crate) opened_by: u32,
    lock: Mutex<Option<DirLock>>,
}

impl FlexSpace {
    /// Opens the space in a directory. Where there is none, one is made unless the options say
    /// otherwise, or there are other files: a space has a directory of its own.
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<FlexSpace> {
        let path = path.as_ref();
        let disk = if options.create && !options.read_only {
            Disk::create_system(path)?
        } else {
            Disk::system(path)?
        };
        FlexSpace::open_on(disk, options)
    }

    /// Opens the space of a disk, as [`FlexSpace::open`] does.
    pub fn open_on(disk: Disk, options: Options) -> Result<FlexSpace> {
        let (disk, options) = match options.read_only {
            true => (disk.read_only(), options.create(false)),
            false => (disk, options),
        };
        Ok(FlexSpace(Arc::new(Inner::open(disk, options)?)))
    }

    /// Bytes in the address space, holes included.
    #[expect(
        clippy::len_without_is_empty,
        reason = "an empty space is nothing special"
    )]
    pub fn len(&self) -> u64 {
        self.0.shared.share().tree.len()
    }

    /// Reads from `offset` on, as many bytes as the buffer or the space has, and returns how many.
    pub fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        self.0.read_at(offset, buffer, usize::MAX)
    }

    /// Reads from `offset` on to the end of the extent there, the buffer or the space, whichever
    /// comes first, and returns how many bytes: one lookup and one read of the medium at most.
    pub fn read_extent(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        self.0.read_at(offset, buffer, 1)
    }

    /// As [`FlexSpace::read_at`], in two steps: what is read is the space as it is now, and the
    /// medium is read when the [`PendingRead`] is finished. So who holds a lock that keeps changes
    /// out, to know where things lie, holds it for this call only. Linear in the extents of the
    /// range.
    ///
    /// What the index has of the range may not be in memory. Then the reading fetches that when it
    /// is finished, and is in vain; with what it `fetched`, the next one is not.
    pub fn begin_read<'r>(
        &'r self,
        offset: u64,
        buffer: &'r mut [u8],
        fetched: &'r mut FetchedNodes,
    ) -> PendingRead<'r> {
        PendingRead::begin(&self.0, offset, buffer, usize::MAX, fetched)
    }

    /// The extents of a range, the first and the last one cut to it.
    pub fn extents(&self, offset: u64, len: u64) -> Result<Vec<Extent>> {
        let plain = |extent: Extent| Extent {
            address: if extent.is_hole() {
                extent.address
            } else {
                extent.address & !MARK
            },
            ..extent
        };
        let end = offset.saturating_add(len);
        self.0.walk(
            (offset, len),
            |_| end,
            |extents: &mut Vec<_>, extent| {
                extents.push(plain(extent));
                true
            },
        )
    }

    /// Extents of a range, the first and the last one cut to it. Linear in their number.
    pub fn extent_count(&self, offset: u64, len: u64) -> Result<usize> {
        let end = offset.saturating_add(len);
        self.0.walk(
            (offset, len),
            |_| end,
            |count, _| {
                *count += 1;
                true
            },
        )
    }

    /// Brings what the index has of a range into memory, 4 MiB of it at most, so that who then
    /// reads or changes it need not wait for that, as long as the [budget](Options::index_bytes)
    /// has room for it. What cannot be read is no error: whoever needs it is told.
    pub fn prepare(&self, offset: u64, len: u64) -> Result<()> {
        self.0.prepare(offset, len)
    }

    /// The first marked byte at or behind `offset`, see [`Edit::InsertMarked`]. Linear in the
    /// extents on the way to it.
    pub fn next_mark(&self, offset: u64) -> Result<Option<u64>> {
        // An extent that the range cuts does not begin there.
        let from = offset.saturating_sub(1);
        let is_marked = |extent: &Extent| {
            extent.offset >= offset && !extent.is_hole() && extent.address & MARK != 0
        };
        // Twice as far each time, however far the mark is.
        let to = |at| at + (at - from);
        self.0.walk((from, u64::MAX), to, |mark, extent| {
            *mark = is_marked(&extent).then_some(extent.offset);
            mark.is_none()
        })
    }

    /// Inserts bytes before the one at `offset`: what is there or behind it moves. Costs the
    /// writing of the bytes and a change of the tree, wherever it is.
    pub fn insert_range(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.apply(&[Edit::Insert { offset, data }])
    }

    /// Inserts a range that reads as zeros and takes no space.
    pub fn insert_hole(&self, offset: u64, len: u64) -> Result<()> {
        self.apply(&[Edit::InsertHole { offset, len }])
    }

    /// Removes a range: what is behind it moves to its place.
    pub fn collapse_range(&self, offset: u64, len: u64) -> Result<()> {
        self.apply(&[Edit::Collapse { offset, len }])
    }

    /// Writes bytes over what is there, and lengthens the space where they reach behind its end.
    ///
    /// The old bytes are given up only after the new ones are placed, so in a space with a capacity
    /// there must be room for both.
    pub fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.apply(&[Edit::Write { offset, data }])
    }

    /// Puts bytes in place of a range of any other length, in one step.
    pub fn replace_range(&self, offset: u64, len: u64, data: &[u8]) -> Result<()> {
        self.apply(&[
            Edit::Collapse { offset, len },
            Edit::Insert { offset, data },
        ])
    }

    /// Appends bytes, and returns the offset of the first.
    pub fn append(&self, data: &[u8]) -> Result<u64> {
        self.0.append(data)
    }

    /// Cuts the space, or lengthens it with a hole, to `len` bytes.
    pub fn set_len(&self, len: u64) -> Result<()> {
        self.0.set_len(len)
    }

    /// Applies a group of edits, one after the other. Readers, and a recovery after a crash, find
    /// all of them or none; so does the caller when this fails.
    pub fn apply(&self, edits: &[Edit<'_>]) -> Result<()> {
        self.0.apply(edits)
    }

    /// As [`FlexSpace::apply`], for who has an index of what lies where in the space, which must
    /// change with it. `edits` is called when no other change can come between, and may say where
    /// things lie by now; without any edit, nothing changes. When all that waits or writes is done,
    /// and only the change itself is left, which takes microseconds, `lock` is called, and what it
    /// returned is returned. So a lock that keeps readers of the index out until this has changed
    /// with the space holds them up no longer than that. Where one of them panics, nothing has
    /// changed.
    pub fn apply_under<'d, G>(
        &self,
        edits: impl FnOnce() -> Vec<Edit<'d>>,
        lock: impl FnOnce() -> G,
    ) -> Result<G> {
        self.0.apply_under(edits, lock)
    }

    /// Makes everything done so far durable.
    pub fn sync(&self) -> Result<()> {
        self.0.write(|session| session.commit())
    }

    /// How far the space has come durably: a later opening can be asked to find it no earlier, see
    /// [`Options::reached`].
    pub fn durable_point(&self) -> DurablePoint {
        let writer = self.0.writer.lock();
        let (header, log) = (writer.tree_file.header(), writer.log.as_ref());
        let known = DurablePoint {
            tree_version: header.version,
            log_offset: log.map_or(0, |log| log.durable),
        };
        known.max(self.0.options.reached)
    }

    /// Makes everything done so far durable, saves the tree, empties the log, and gives the space
    /// of free segments back to the file system. Opening the space is quick after it.
    pub fn checkpoint(&self) -> Result<()> {
        self.0.write(|session| session.checkpoint())
    }

    /// Makes everything done so far durable, and holds the files as they are then, to be copied:
    /// together they are a space of their own. See [`Frozen`].
    pub fn freeze(&self) -> Result<Frozen> {
        Frozen::new(&self.0)
    }

    /// Writes the data of a range anew where it lies in many extents, so that it is read faster.
    pub fn defrag(&self, offset: u64, len: u64) -> Result<()> {
        self.0.write(|session| session.defrag(offset, len))
    }

    /// Collects the segments with the most garbage; false if there is nothing to win. A space does
    /// this by itself when it must, before a write that needs the room; who has idle time can do it
    /// earlier.
    pub fn collect_garbage(&self) -> Result<bool> {
        self.0.write(|session| session.collect())
    }

    /// Empties some segments of which much is garbage, so that the space has room again, and makes
    /// everything done so far durable; returns how many bytes it moved, `None` if no segment is
    /// worth it. Reads go on, other changes wait.
    pub fn collect_some(&self, round: GcRound) -> Result<Option<u64>> {
        self.0.write(|session| session.collect_some(round))
    }

    /// Bytes of data that can be written, at least, before the space must collect garbage for them,
    /// as far as the medium has the room: by one append, or by insertions and writes anywhere. What
    /// an edit frees counts from the next commit on, when its segments are free; so a write over
    /// other bytes needs room as an insertion does. Holes need none.
    pub fn room(&self) -> u64 {
        self.0.room()
    }

    /// The files that the space has now in its directory, without a lock. Others of their kind were
    /// left behind by a crash, or by a checkpoint that could not remove them; who
    /// [manages](Options::managed) the space removes them.
    pub fn file_names(&self) -> [String; 3] {
        open::file_names(self.0.writer.lock().tree_file.header().version)
    }

    /// Ends all changes and lets others open the space, whatever still refers to it. What was not
    /// synced is lost, as when the space is dropped. The space of free segments goes back to the
    /// file system. Reads are of no use any more once somebody else has opened the space.
    pub fn close(&self) {
        self.0.end();
        self.0.lock.lock().take();
    }

    /// Bytes that the index has in memory now.
    pub fn index_bytes(&self) -> u64 {
        self.0.shared.share().tree.present_bytes() as u64
    }

    /// Changes the [budget](Options::index_bytes) of the index, and lets go of what is beyond it.
    pub fn set_index_bytes(&self, bytes: Option<u64>) {
        self.0.set_index_bytes(bytes);
    }

    /// Memory in bytes, as [`SpaceStats::memory_bytes`]; waits for the writer.
    pub fn memory_bytes(&self) -> u64 {
        self.0.memory_bytes()
    }

    /// For how long reads could be kept out by changes so far, if the space was opened to
    /// [measure](Options::measure_waits) that.
    pub fn reader_waits(&self) -> ReaderWaits {
        self.0.shared.waits()
    }

    /// What the space holds and did.
    pub fn stats(&self) -> SpaceStats {
        self.0.stats()
    }

    /// The space as a file, with a position of its own.
    pub fn file(&self) -> SpaceFile {
        SpaceFile::new(self.clone())
    }

    /// A number that is another one after each change of the address space.
    pub(crate) fn changes(&self) -> u64 {
        // ORDER: Acquire pairs with the increment in `Session::apply`.
        self.0.changes.load(Ordering::Acquire)
    }
}
