//! The writer's half of a space: files, segments, and changes that wait for a commit.

use gabion_media::{LogFile, LogSync, Purpose, RandomFile};
use parking_lot::MutexGuard;

use super::Inner;
use super::geometry::Geometry;
use super::layout::DATA_NAME;
use super::log::{FrameCodec, LogRecord, PendingRecords, SumsRecord};
use super::read_state::SegmentBuffer;
use super::reserve::SpaceReserve;
use super::segments::{SegmentClass, Segments};
use super::sums::SumTable;
use super::tree_file::TreeFile;
use crate::{Error, Result};

/// Data that is copied under the lock of the readers at a time, in bytes: some 20 us.
const COPY_BYTES_MAX: usize = 128 << 10;

/// The log in use.
#[derive(Debug)]
pub(crate) struct CurrentLog {
    pub(crate) file: LogFile,
    pub(crate) sync: LogSync,
    pub(crate) frames: FrameCodec,
    /// Up to where it is durable.
    pub(crate) durable: u64,
    /// The end of the records of the segments, with which it began.
    pub(crate) begun: u64,
}

/// What the space did since it was opened.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SpaceTotals {
    pub(crate) user_bytes: u64,
    pub(crate) commits: u64,
    pub(crate) checkpoints: u64,
    pub(crate) collections: u64,
    pub(crate) moved_bytes: u64,
    pub(crate) punched: u64,
}

/// Bytes by segment, of a few segments.
#[derive(Debug, Default)]
pub(crate) struct StagedBytes(Vec<(u32, u64)>);

impl StagedBytes {
    fn add(&mut self, segment: u32, len: u64) {
        match self.0.iter_mut().find(|own| own.0 == segment) {
            Some((_, bytes)) => *bytes += len,
            None => self.0.push((segment, len)),
        }
    }

    fn subtract(&mut self, segment: u32, len: u64) {
        if let Some(at) = self.0.iter().position(|own| own.0 == segment) {
            self.0[at].1 -= len;
            if self.0[at].1 == 0 {
                self.0.swap_remove(at);
            }
        }
    }

    /// Those of a segment.
    pub(crate) fn of(&self, segment: u32) -> u64 {
        let own = self.0.iter().find(|own| own.0 == segment);
        own.map_or(0, |(_, bytes)| *bytes)
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// What only the writer uses, under its lock.
#[derive(Debug)]
pub(crate) struct Writer {
    pub(crate) data: RandomFile,
    pub(crate) tree_file: TreeFile,
    /// `None` until a space that found no room for it when it was opened has saved its tree.
    pub(crate) log: Option<CurrentLog>,
    pub(crate) segments: Segments,
    pub(crate) pending: PendingRecords,
    /// Whether data was written since it was synced.
    pub(crate) data_dirty: bool,
    /// Bytes of the operation under way, by segment, which no extent refers to yet. Those that are
    /// left when its session ends are let go of.
    pub(crate) staged: StagedBytes,
    /// Segments that the operation under way has begun, and that no extent has referred to.
    pub(crate) begun: Vec<u32>,
    pub(crate) reserve: SpaceReserve,
    /// Memory of the last buffer, for the next one.
    pub(crate) spare: Vec<u8>,
    pub(crate) failure: Option<String>,
    pub(crate) totals: SpaceTotals,
    pub(crate) geometry: Geometry,
}

impl Writer {
    /// Extents refer to placed data now.
    pub(crate) fn unstage(&mut self, placed: &PlacedData) {
        let (segment, _) = self.geometry.split(placed.address);
        self.staged.subtract(segment, placed.len);
        self.begun.retain(|begun| *begun != segment);
    }

    /// Why nothing more can be written after an error, if so.
    pub(crate) fn failure_of(&self, error: &Error) -> Option<String> {
        let Error::Media(cause) = error else {
            return None;
        };
        let is_fatal = error.is_of_sync() || self.tree_file.is_uncertain();
        is_fatal.then(|| cause.to_string())
    }
}

/// A range of addresses with data that was just placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlacedData {
    pub(crate) address: u64,
    pub(crate) len: u64,
}

/// A writer at work. What it has placed and no extent refers to when it ends is undone, however it
/// ends: by an error, or by the panic of a closure that was given to the change.
pub(crate) struct WriteSession<'s> {
    pub(crate) space: &'s Inner,
    pub(crate) writer: MutexGuard<'s, Writer>,
}

impl Drop for WriteSession<'_> {
    fn drop(&mut self) {
        self.undo_placing();
    }
}

impl Inner {
    /// Waits for the writer's lock. A space that has failed takes no more writes.
    pub(crate) fn session(&self) -> Result<WriteSession<'_>> {
        let writer = self.writer.lock();
        match &writer.failure {
            None => Ok(WriteSession {
                space: self,
                writer,
            }),
            Some(cause) => Err(Error::ReadOnly {
                path: self.disk.path().to_path_buf(),
                cause: cause.clone(),
            }),
        }
    }

    /// Runs one change. A failed sync or switch of the tree's header ends all writing: nobody knows
    /// what is on the medium.
    pub(crate) fn write<T>(
        &self,
        change: impl FnOnce(&mut WriteSession<'_>) -> Result<T>,
    ) -> Result<T> {
        let mut session = self.session()?;
        // What was read at the opening may not be durable; so nothing is written over what it left
        // before the tree is saved.
        let settled = match session.writer.log.is_some() {
            true => Ok(()),
            false => session.save(),
        };
        let result = settled.and_then(|()| change(&mut session));
        if let Err(error) = &result {
            match session.writer.failure_of(error) {
                Some(cause) => session.writer.failure = Some(cause),
                None => {
                    session.undo_placing();
                    session.settle_reserve();
                }
            }
        }
        result
    }
}

impl WriteSession<'_> {
    /// Puts data into segments. No extent refers to it yet, and if none does when the session ends,
    /// it is let go of.
    pub(crate) fn place(&mut self, class: SegmentClass, data: &[u8]) -> Result<Vec<PlacedData>> {
        self.place_all(class, &[data])
    }

    /// As [`WriteSession::place`], one piece of data behind the other: where they are together.
    pub(crate) fn place_all(
        &mut self,
        class: SegmentClass,
        pieces: &[&[u8]],
    ) -> Result<Vec<PlacedData>> {
        let mut placed: Vec<PlacedData> = Vec::new();
        let geometry = self.space.sums.geometry;
        let room = geometry.room() as usize;
        let mut pieces = pieces.iter().peekable();
        // What is placed of the next piece.
        let mut done = 0;
        loop {
            while pieces.next_if(|data| data.is_empty()).is_some() {}
            if pieces.peek().is_none() {
                return Ok(placed);
            }
            self.open_buffer(class)?;
            let mut shared = self.space.shared.alone();
            let Some(buffer) = shared.buffer_mut(class) else {
                continue;
            };
            let (segment, before) = (buffer.segment, buffer.bytes.len());
            let end = room.min(before + COPY_BYTES_MAX);
            while buffer.bytes.len() < end
                && let Some(data) = pieces.peek()
            {
                let within = buffer.bytes.len();
                let part = (data.len() - done).min(end - within);
                buffer.bytes.extend_from_slice(&data[done..done + part]);
                let address = geometry.address(segment, u32::try_from(within).unwrap_or(u32::MAX));
                let len = part as u64;
                match placed.last_mut() {
                    Some(last) if last.address + last.len == address => last.len += len,
                    _ if len > 0 => placed.push(PlacedData { address, len }),
                    _ => {}
                }
                done += part;
                if done == data.len() {
                    pieces.next();
                    done = 0;
                }
            }
            let copied = (buffer.bytes.len() - before) as u64;
            drop(shared);
            self.writer.segments.add(segment, copied);
            self.writer.staged.add(segment, copied);
        }
    }

    /// Lets go of placed data that no extent refers to. Segments that were begun for it alone are
    /// free at once, as nothing on the medium leads to them, and their space goes back.
    fn undo_placing(&mut self) {
        let writer = &mut *self.writer;
        let begun = std::mem::take(&mut writer.begun);
        if writer.staged.is_empty() && begun.is_empty() {
            return;
        }
        for (segment, bytes) in std::mem::take(&mut writer.staged).0 {
            writer.segments.release_bytes(segment, bytes);
        }
        for segment in begun {
            let mut shared = self.space.shared.alone();
            for class in SegmentClass::ALL {
                let buffer = shared.buffer_mut(class);
                if let Some(own) = buffer.take_if(|buffer| buffer.segment == segment) {
                    self.writer.spare = own.bytes;
                }
            }
            drop(shared);
            self.writer.segments.abandon(segment);
            self.punch(segment);
        }
    }

    /// Sees to it that there is a buffer with room.
    fn open_buffer(&mut self, class: SegmentClass) -> Result<()> {
        let room = self.space.sums.geometry.room() as usize;
        let filled = self
            .space
            .shared
            .share()
            .buffer(class)
            .map(|buffer| buffer.bytes.len());
        match filled {
            Some(filled) if filled < room => return Ok(()),
            Some(_) => self.seal(class)?,
            None => {}
        }
        let (segment, generation) = self.take_segment(class)?;
        self.writer.begun.push(segment);
        if class == SegmentClass::Moved && self.writer.reserve.is_kept() {
            // What extents refer to once it is moved must find its way to the medium.
            let geometry = self.space.sums.geometry;
            let offset = geometry.file_offset(segment, 0);
            self.writer.data.reserve(offset, geometry.segment_bytes())?;
        }
        let mut bytes = std::mem::take(&mut self.writer.spare);
        bytes.clear();
        bytes.reserve_exact(room);
        let mut shared = self.space.shared.alone();
        shared.set_table(segment, generation, None);
        *shared.buffer_mut(class) = Some(SegmentBuffer {
            segment,
            generation,
            bytes,
            sums: Vec::new(),
            written: 0,
        });
        Ok(())
    }

    fn take_segment(&mut self, class: SegmentClass) -> Result<(u32, u32)> {
        if class == SegmentClass::User {
            self.make_room()?;
        }
        self.look_at_room(class);
        // The last segment belongs to the collection, which may be needed to get more.
        if class == SegmentClass::User && self.writer.segments.available() <= 1 {
            return Err(self.full(0));
        }
        let taken = self.writer.segments.take(class);
        taken.ok_or_else(|| self.full(0))
    }

    /// Looks how many segments of a class the medium has room for, beside what it takes to save
    /// all. Where the file system does not tell, all that there may be.
    pub(crate) fn look_at_room(&mut self, class: SegmentClass) {
        let room = self.space.disk.room();
        let free = room.map_or(u64::MAX, |room| room.free_bytes);
        let kept = self.room_kept_free(class);
        self.writer.segments.afford(free.saturating_sub(kept));
    }

    pub(crate) fn full(&self, wanted: u64) -> Error {
        if self.writer.segments.is_medium_full() {
            let full = gabion_media::Error::Io {
                operation: "add a segment to",
                path: self.space.disk.path_of(DATA_NAME),
                offset: None,
                source: std::io::ErrorKind::StorageFull.into(),
            };
            return full.into();
        }
        Error::Full {
            path: self.space.disk.path().to_path_buf(),
            wanted,
            live: self.writer.segments.live(),
            limit: self.writer.segments.live_max(),
        }
    }

    /// Writes the data of a buffer that is not on the medium yet.
    pub(crate) fn write_out(&mut self, class: SegmentClass) -> Result<()> {
        let sums = self.space.sums;
        let block_bytes = sums.geometry.block_bytes();
        let shared = self.space.shared.share();
        let Some(buffer) = shared.buffer(class) else {
            return Ok(());
        };
        let filled = u32::try_from(buffer.bytes.len()).unwrap_or(u32::MAX);
        if filled == buffer.written {
            return Ok(());
        }
        let purpose = match class {
            SegmentClass::User => Purpose::Flush,
            SegmentClass::Moved => Purpose::Gc,
        };
        let offset = sums.geometry.file_offset(buffer.segment, buffer.written);
        let bytes = &buffer.bytes[buffer.written as usize..];
        self.writer.data_dirty = true;
        self.writer.data.write_at(offset, bytes, purpose)?;
        let first = buffer.written / block_bytes;
        let blocks = &buffer.bytes[(first * block_bytes) as usize..];
        let record = SumsRecord {
            segment: buffer.segment,
            state: super::segments::SegmentState::Open(class),
            generation: buffer.generation,
            first,
            written: filled,
            sums: (first..)
                .zip(blocks.chunks(block_bytes as usize))
                .map(|(block, bytes)| sums.block(buffer.segment, buffer.generation, block, bytes))
                .collect(),
        };
        drop(shared);
        if let Some(buffer) = self.space.shared.alone().buffer_mut(class) {
            buffer.sums.truncate(first as usize);
            buffer.sums.extend_from_slice(&record.sums);
            buffer.written = filled;
        }
        self.writer.pending.push(&LogRecord::Sums(record));
        Ok(())
    }

    /// Ends a full segment with its footer, and lets go of its buffer.
    fn seal(&mut self, class: SegmentClass) -> Result<()> {
        self.write_out(class)?;
        let sums = self.space.sums;
        let Some((segment, table)) = self.space.shared.share().buffer(class).map(|buffer| {
            let table = SumTable {
                generation: buffer.generation,
                written: buffer.written,
                sums: buffer.sums.clone(),
            };
            (buffer.segment, table)
        }) else {
            return Ok(());
        };
        let offset = sums.geometry.file_offset(segment, sums.geometry.room());
        let footer = sums.footer(segment, &table);
        self.writer.data_dirty = true;
        self.writer
            .data
            .write_at(offset, &footer, Purpose::Metadata)?;
        // The medium works while the next segment is filled, and a commit waits for less.
        let begin = sums.geometry.file_offset(segment, 0);
        self.writer
            .data
            .begin_sync(begin, sums.geometry.segment_bytes());
        let mut shared = self.space.shared.alone();
        shared.set_table(segment, table.generation, Some(table));
        let buffer = shared.buffer_mut(class).take();
        drop(shared);
        self.writer.spare = buffer.map(|buffer| buffer.bytes).unwrap_or_default();
        self.writer.segments.fill(segment);
        Ok(())
    }
}
