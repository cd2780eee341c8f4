//! Reserved space on the disk, so that a space can free space even on a full disk.
//!
//! # Idea
//! Removing bytes frees segments only when it is durable, and that takes room: for data that waits
//! in a buffer, for changed nodes of the tree, for a log that continues the saved tree. On a full
//! disk there would be none, and the space itself may be what fills the disk. So the room for all
//! of that is taken before an edit that adds anything is accepted, as a file without content,
//! `RESERVE`. Who saves and finds the disk full removes the file and goes on in its place.
//!
//! # Who waits for what
//! - An edit that adds is refused where its reserve cannot be had, before anything has changed.
//! - An edit that only removes needs none. It works in memory, and is made durable with what the
//!   edits before it have put aside, and a little that is always there.
//! - Once the file is gone, saving goes on with what it frees: the log before, and the nodes of the
//!   tree before. The file is made again when there is room.
//!
//! # How much
//! The data of the buffer for users, the nodes that changed and those above them, a log as short as
//! can be, and [`SLACK_NODES`] for what removing adds to the tree: a removal within an extent makes
//! two of one. Moved data needs none: its segment is reserved when it is begun.
//!
//! # Limits
//! Somebody else may take the room between the removal of the file and the write that needs it;
//! and file systems that copy what they write, or cannot reserve, promise nothing. A space that is
//! [managed](super::Options::managed) has no reserve: who manages it keeps a log of its own.

use gabion_media::{Disk, RandomFile};

use super::commit::log_bytes_least;
use super::layout::RESERVE_NAME;
use super::segments::SegmentClass;
use super::writer::WriteSession;
use crate::tree::NODE_BYTES;
use crate::{Error, Result};

/// Nodes for what removals add to the tree until it is saved.
const SLACK_NODES: u64 = 16;

/// The file has whole pages, as the file system gives them.
const STEP_BYTES: u64 = 4 << 10;

/// The room that is kept aside.
#[derive(Debug)]
pub(crate) struct SpaceReserve {
    /// Bytes of the file, 0 without one.
    held: u64,
    /// Whether the space keeps one.
    is_kept: bool,
}

/// What a change adds to what must be saved.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ReserveDemand {
    /// Bytes of data of the user.
    pub(crate) bytes: u64,
    /// Nodes of the tree that change or come.
    pub(crate) nodes: u64,
}

impl SpaceReserve {
    /// The reserve that a disk has, if the space keeps one.
    pub(super) fn find(disk: &Disk, is_kept: bool) -> Result<SpaceReserve> {
        let held = match disk.len_of(RESERVE_NAME) {
            Ok(len) if is_kept => len,
            Err(error) if !error.is_not_found() => return Err(error.into()),
            _ => 0,
        };
        Ok(SpaceReserve { held, is_kept })
    }

    /// Gives the room to whoever needs it now; false if there is none.
    pub(super) fn give_up(&mut self, disk: &Disk) -> bool {
        let is_given = self.held > 0 && disk.remove(RESERVE_NAME).is_ok();
        if is_given {
            self.held = 0;
        }
        is_given
    }

    /// Whether the space keeps room aside.
    pub(super) fn is_kept(&self) -> bool {
        self.is_kept
    }

    /// Whether there is none where there should be: the disk was full.
    pub(super) fn is_lost(&self) -> bool {
        self.is_kept && self.held == 0
    }

    /// Takes so much room, or gives back what is beyond it.
    fn resize(&mut self, disk: &Disk, bytes: u64) -> Result<()> {
        if !self.is_kept || bytes == self.held {
            return Ok(());
        }
        let mut file = match self.held {
            0 => match disk.create_random(RESERVE_NAME) {
                Err(gabion_media::Error::AlreadyExists { .. }) => disk.open_random(RESERVE_NAME)?,
                made => made?,
            },
            _ => disk.open_random(RESERVE_NAME)?,
        };
        match set_room(&mut file, self.held, bytes) {
            Ok(()) => self.held = bytes,
            Err(error) => {
                drop(file);
                if self.held == 0 {
                    // An empty file keeps nothing; the first error is the one to tell.
                    let _ = disk.remove(RESERVE_NAME);
                }
                return Err(error.into());
            }
        }
        Ok(())
    }
}

fn set_room(file: &mut RandomFile, held: u64, bytes: u64) -> gabion_media::Result<()> {
    match bytes > held {
        // Where the file system cannot reserve, the length stands for what was meant.
        true => file.reserve(0, bytes).map(drop),
        false => file.cut(bytes),
    }
}

impl WriteSession<'_> {
    /// Sees to it that all can be saved on a full disk after an edit that adds something.
    pub(crate) fn keep_aside(&mut self, added: ReserveDemand) -> Result<()> {
        if !self.writer.reserve.is_kept() {
            return Ok(());
        }
        let needed = self.room_to_save(added);
        if needed <= self.writer.reserve.held {
            return Ok(());
        }
        // A quarter more, so that a space that grows does not ask each time.
        let more = (needed + needed / 4).next_multiple_of(STEP_BYTES);
        let (space, reserve) = (self.space, &mut self.writer.reserve);
        match reserve.resize(&space.disk, more) {
            Err(error) if error.is_no_space() => reserve.resize(&space.disk, needed),
            resized => resized,
        }
    }

    /// Keeps aside what is needed now, no more: after a save. Only a matter of room: what cannot be
    /// had now the next edit asks for.
    pub(super) fn settle_reserve(&mut self) {
        let needed = self.room_to_save(ReserveDemand::default());
        let _ = self.writer.reserve.resize(&self.space.disk, needed);
    }

    /// As [`WriteSession::keep_aside`], for a change that only removes. Where there is no room,
    /// what changed is saved as soon as it is more than the slack, which needs less than to keep
    /// it; the change goes on whatever comes of that.
    pub(super) fn keep_aside_if_possible(&mut self, added: ReserveDemand) -> Result<()> {
        match self.keep_aside(added) {
            Err(error) if error.is_no_space() => {
                let dirty = self.space.shared.share().tree.dirty_count() as u64;
                match dirty > SLACK_NODES / 2 {
                    true => allow_no_space(self.save()),
                    false => Ok(()),
                }
            }
            kept => kept,
        }
    }

    /// Does what must be possible on a full disk; again, in the place of the reserve, if it finds
    /// no room.
    pub(super) fn with_reserve<T>(&mut self, step: impl Fn(&mut Self) -> Result<T>) -> Result<T> {
        match step(self) {
            Err(error) if error.may_try_again() && self.writer.failure_of(&error).is_none() => {
                match self.writer.reserve.give_up(&self.space.disk) {
                    true => step(self),
                    false => Err(error),
                }
            }
            done => done,
        }
    }

    /// What a new segment leaves of the medium: a segment, as the open one is reserved when it is
    /// written; in a space that keeps nothing aside, what is to be written of those that are open,
    /// and what it takes to save the tree. As that is a guess which grows with the next edits,
    /// users leave it twice, so that the collection has room.
    pub(super) fn room_kept_free(&self, class: SegmentClass) -> u64 {
        let segment_bytes = self.space.sums.geometry.segment_bytes();
        if self.writer.reserve.is_kept() {
            return segment_bytes;
        }
        let shared = self.space.shared.share();
        let open = SegmentClass::ALL.map(|class| shared.buffer(class).map(|buffer| buffer.written));
        drop(shared);
        let unwritten = open.iter().flatten();
        let unwritten = unwritten.map(|written| segment_bytes.saturating_sub((*written).into()));
        let to_save = self.room_to_save(ReserveDemand {
            bytes: 0,
            nodes: 2 * SLACK_NODES,
        });
        let times = if class == SegmentClass::User { 2 } else { 1 };
        unwritten.sum::<u64>() + times * to_save
    }

    /// Bytes of the medium that it takes to make all durable, once an edit has added something.
    fn room_to_save(&self, added: ReserveDemand) -> u64 {
        let geometry = self.space.sums.geometry;
        let shared = self.space.shared.share();
        let unwritten = shared.buffer(SegmentClass::User).map_or(0, |buffer| {
            buffer.bytes.len() as u64 - u64::from(buffer.written)
        });
        let tree = &shared.tree;
        let inner = tree.node_count() - tree.present_count() - tree.absent_count();
        let nodes = (tree.dirty_count() + inner) as u64 + added.nodes + SLACK_NODES;
        drop(shared);
        let data = match unwritten + added.bytes {
            0 => 0,
            bytes => (bytes + STEP_BYTES).min(geometry.segment_bytes()),
        };
        let log = log_bytes_least(&self.writer.segments, &geometry);
        let parts = [data, nodes * NODE_BYTES as u64, log];
        parts
            .map(|part| part.next_multiple_of(STEP_BYTES))
            .iter()
            .sum()
    }
}

/// A full disk is no error.
pub(super) fn allow_no_space(result: Result<()>) -> Result<()> {
    result.or_else(|error| match error.is_no_space() {
        true => Ok(()),
        false => Err(error),
    })
}

impl Error {
    /// Whether the medium has no room for what was to be done. The same succeeds once there is
    /// room.
    pub fn is_no_space(&self) -> bool {
        matches!(self, Error::Media(error) if error.is_no_space())
    }

    /// Whether a sync failed: then nobody knows what is on the medium.
    pub(super) fn is_of_sync(&self) -> bool {
        match self {
            Error::Media(gabion_media::Error::Poisoned { .. }) => true,
            Error::Media(gabion_media::Error::Io { operation, .. }) => {
                operation.starts_with("sync")
            }
            _ => false,
        }
    }

    /// Whether there was no room, and the same may be tried again at once with more of it.
    pub(super) fn may_try_again(&self) -> bool {
        self.is_no_space() && !self.is_of_sync()
    }
}
