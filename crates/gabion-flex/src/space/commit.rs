//! Durability of changes: commits of the log, and checkpoints of the tree, which shorten the log.
//!
//! # Order of a commit
//! Data is written and synced; then a frame with the records of whole operations is appended to the
//! log and synced. From there on the operations survive, and segments that they left are free.
//!
//! # Order of a checkpoint
//! Data is written and synced; changed nodes are written to free slots and synced; a new log, which
//! begins with the state of the segments, is made and synced, and so is its name; then the header
//! of the tree is switched and synced. From there on everything done so far survives, whether it
//! was in the log or not. The old log is removed. A crash before the switch finds the old header
//! with its log, complete and untouched; a crash after it finds the new one.

use gabion_media::{Disk, LogFile, ReadFile};

use super::Inner;
use super::geometry::Geometry;
use super::layout::{LOG_HEADER_BYTES, LogHeader, log_name};
use super::log::{
    FRAME_HEAD_BYTES, FrameCodec, LogRecord, PendingRecords, RECORD_BYTES, SumsRecord,
};
use super::read_state::ReadState;
use super::segments::{SegmentClass, SegmentState, Segments};
use super::sums::BlockSums;
use super::tree_file::{TreeFile, UnsettledNodes};
use super::writer::{CurrentLog, StagedBytes, WriteSession};
use crate::{FlexTree, Result};

/// Nodes that are taken for saved under one lock of the readers: some 100 us.
const SETTLED_MAX: usize = 512;

/// Room of a log beyond what it begins with, at least.
const LOG_ROOM_MIN: u64 = 4 << 10;

impl Inner {
    /// Ends all changes, and gives back what the last commit has left free.
    pub(super) fn end(&self) {
        if let Ok(mut session) = self.session() {
            // Before it is saved, the medium may need what is free here.
            if session.writer.log.is_some() && self.opened_by == std::process::id() {
                session.punch_free();
            }
            session.writer.failure = Some("it was closed".to_owned());
        }
    }
}

impl WriteSession<'_> {
    /// Makes everything done so far durable, on a full disk in the place of the reserve.
    pub(crate) fn commit(&mut self) -> Result<()> {
        self.with_reserve(WriteSession::try_commit)
    }

    fn try_commit(&mut self) -> Result<()> {
        self.sync_data()?;
        if self.writer.pending.is_empty() {
            return Ok(());
        }
        let writer = &mut *self.writer;
        let payload = writer.pending.as_bytes();
        let size = (FRAME_HEAD_BYTES + payload.len()) as u64;
        let log = writer.log.as_mut();
        let Some(log) = log.filter(|log| size <= log.file.remaining()) else {
            return self.save_tree();
        };
        log.append(payload)?;
        // DURABLE: the data that the frame refers to was synced above.
        log.sync.sync()?;
        log.durable = log.file.position();
        writer.pending.clear();
        writer.totals.commits += 1;
        writer.segments.bury();
        if writer.reserve.is_lost() {
            self.punch_free();
            self.settle_reserve();
        }
        Ok(())
    }

    /// Makes everything done so far durable, the log empty, and gives space back.
    pub(crate) fn checkpoint(&mut self) -> Result<()> {
        self.drop_unused_buffers();
        self.save()?;
        self.give_back();
        Ok(())
    }

    /// Lets go of segments that are being filled with nothing in use, which then need not be
    /// written: they die with the save that follows.
    fn drop_unused_buffers(&mut self) {
        for class in SegmentClass::ALL {
            let mut shared = self.space.shared.alone();
            let segments = &mut self.writer.segments;
            let buffer = shared.buffer_mut(class);
            if let Some(unused) = buffer.take_if(|own| segments.get_mut(own.segment).valid == 0) {
                segments.fill(unused.segment);
                // A read that is under way begins again, and finds it gone.
                shared.forget(unused.segment);
                self.writer.spare = unused.bytes;
            }
        }
    }

    /// As [`WriteSession::checkpoint`], without giving space back.
    pub(super) fn save(&mut self) -> Result<()> {
        self.with_reserve(|session| {
            session.sync_data()?;
            session.save_tree()
        })
    }

    /// Gives back what the space does not need, just after a save: the log must name no segment but
    /// those that are in use, since a recovery wants all of them within the data file.
    pub(super) fn give_back(&mut self) {
        self.punch_free();
        self.writer.tree_file.cut_free();
        let segments = &mut self.writer.segments;
        let before = segments.count();
        let count = segments.cut_free();
        if count < before {
            let mut shared = self.space.shared.alone();
            (count..before).for_each(|segment| shared.forget(segment));
            drop(shared);
            self.cut_data(self.space.sums.geometry.file_offset(count, 0));
        }
        self.settle_reserve();
    }

    /// Cuts the data file behind the last segment. Only a matter of space: what cannot be cut now
    /// the next opening cuts.
    pub(super) fn cut_data(&mut self, end: u64) {
        self.writer.data_dirty |= self.writer.data.cut(end).is_ok();
    }

    fn sync_data(&mut self) -> Result<()> {
        for class in SegmentClass::ALL {
            self.write_out(class)?;
        }
        if self.writer.data_dirty {
            self.writer.data.sync()?;
            self.writer.data_dirty = false;
        }
        Ok(())
    }

    /// The checkpoint proper; all data is synced.
    fn save_tree(&mut self) -> Result<()> {
        let space = self.space;
        let writer = &mut *self.writer;
        let shared = space.shared.share();
        let records = segment_records(
            &writer.segments,
            &writer.staged,
            &shared,
            &space.sums,
            &space.data,
        )?;
        let extents = shared.tree.extent_count();
        let log_bytes = space.options.log_bytes_for(space.index_bytes(), extents);
        let (log, mut written) = save_tree(
            &space.disk,
            &mut writer.tree_file,
            &shared.tree,
            &records,
            log_bytes,
        )?;
        drop(shared);
        while !written.saving.is_settled() {
            let mut shared = space.shared.alone();
            let released = shared.tree.settle(&mut written.saving, SETTLED_MAX);
            drop(shared);
            writer.tree_file.release(released);
        }
        writer.log = Some(log);
        writer.pending.clear();
        writer.totals.checkpoints += 1;
        writer.segments.bury();
        // The old log is of no use any more. If it cannot be removed, the next opening does it.
        let _ = space
            .disk
            .remove(&log_name(writer.tree_file.header().version - 1));
        if writer.reserve.is_lost() {
            self.give_back();
        }
        Ok(())
    }

    /// Gives the space of segments that stay free back to the file system.
    pub(super) fn punch_free(&mut self) {
        for segment in self.writer.segments.to_punch() {
            if !self.punch(segment) {
                return;
            }
        }
    }

    /// Gives the space of a free segment back to the file system. Only a matter of space: what
    /// cannot be given back now, false, is tried again after the next checkpoint.
    pub(super) fn punch(&mut self, segment: u32) -> bool {
        self.space.shared.alone().forget(segment);
        let geometry = self.space.sums.geometry;
        let offset = geometry.file_offset(segment, 0);
        let writer = &mut *self.writer;
        let punched = writer.data.punch(offset, geometry.segment_bytes());
        if !matches!(punched, Ok(true)) {
            return false;
        }
        writer.segments.get_mut(segment).punched = true;
        writer.data_dirty = true;
        writer.totals.punched += 1;
        true
    }
}

/// Saves a tree under the next version, and makes the log that continues it, which begins with
/// these records. From the return on the new version is in effect; if this fails, the old one is.
pub(super) fn save_tree(
    disk: &Disk,
    tree_file: &mut TreeFile,
    tree: &FlexTree,
    records: &PendingRecords,
    log_bytes: u64,
) -> Result<(CurrentLog, UnsettledNodes)> {
    let written = tree_file.write_nodes(tree)?;
    let header = tree_file.next_header(tree, &written.saving);
    let log = CurrentLog::create(disk, header.space, header.version, records, log_bytes);
    // Where there is no room for a log that lasts long, a short one does.
    let log = log.or_else(|error| match error.may_try_again() {
        true => CurrentLog::create(disk, header.space, header.version, records, 0),
        false => Err(error),
    });
    match log.and_then(|log| tree_file.switch(header).map(|()| log)) {
        Ok(log) => Ok((log, written)),
        Err(error) => {
            tree_file.abandon(written);
            Err(error)
        }
    }
}

/// The segments that are in use, as a log begins with them: what extents refer to of each, so that
/// a recovery need not look at all extents, and checksums that stand nowhere else.
pub(super) fn segment_records(
    segments: &Segments,
    staged: &StagedBytes,
    shared: &ReadState,
    sums: &BlockSums,
    data: &ReadFile,
) -> Result<PendingRecords> {
    let mut records = PendingRecords::default();
    for (number, segment) in segments.iter() {
        let generation = segment.generation;
        // One that is dying is free once this log is in effect.
        if matches!(segment.state, SegmentState::Full | SegmentState::Left) && segment.valid == 0 {
            continue;
        }
        if segment.state != SegmentState::Free {
            records.push(&LogRecord::Segment {
                segment: number,
                generation,
                live: u64::from(segment.valid).saturating_sub(staged.of(number)),
            });
        }
        let (written, table) = match segment.state {
            SegmentState::Free | SegmentState::Full => continue,
            SegmentState::Open(class) => match shared.buffer(class) {
                Some(buffer) => (buffer.written, buffer.sums.clone()),
                None => continue,
            },
            SegmentState::Left => {
                let table = shared.table(sums, data, number)?;
                (table.written, table.sums.clone())
            }
        };
        records.push(&LogRecord::Sums(SumsRecord {
            segment: number,
            state: segment.state,
            generation,
            first: 0,
            written,
            sums: table,
        }));
    }
    Ok(records)
}

/// Bytes of the shortest log that can continue a tree now, by estimate and not less.
pub(super) fn log_bytes_least(segments: &Segments, geometry: &Geometry) -> u64 {
    let with_sums = u64::from(segments.left_max()) + SegmentClass::ALL.len() as u64;
    let sums = (u64::from(geometry.blocks()) * 4).next_multiple_of(8) + RECORD_BYTES as u64;
    let records = u64::from(segments.count()) * RECORD_BYTES as u64 + with_sums * sums;
    capacity_of(records, 0)
}

/// Capacity of a log that begins with so many bytes of records.
fn capacity_of(records: u64, log_bytes: u64) -> u64 {
    let needed = (LOG_HEADER_BYTES + FRAME_HEAD_BYTES) as u64 + records;
    log_bytes.max(2 * needed + LOG_ROOM_MIN)
}

impl CurrentLog {
    /// Makes the log that continues a version of the tree. It and its name are durable.
    pub(crate) fn create(
        disk: &Disk,
        space: u64,
        version: u64,
        records: &PendingRecords,
        log_bytes: u64,
    ) -> Result<CurrentLog> {
        let name = log_name(version);
        match disk.remove(&name) {
            Err(error) if !error.is_not_found() => return Err(error.into()),
            _ => {}
        }
        let capacity = capacity_of(records.as_bytes().len() as u64, log_bytes);
        let header = LogHeader {
            space,
            version,
            capacity,
        };
        let header = header.encode();
        let filled = disk
            .create_log(&name, capacity)
            .map_err(Into::into)
            .and_then(|file| {
                CurrentLog::fill(file, &header, FrameCodec::new(space, version), records)
            });
        let log = filled.and_then(|log| disk.sync_dir().map(|()| log).map_err(Into::into));
        log.inspect_err(|_| {
            // The first error is the one to tell; what stays is removed by the next opening.
            let _ = disk.remove(&name);
        })
    }

    fn fill(
        mut file: LogFile,
        header: &[u8],
        frames: FrameCodec,
        records: &PendingRecords,
    ) -> Result<CurrentLog> {
        file.append(&[header])?;
        let mut log = CurrentLog {
            sync: file.sync_handle(),
            durable: header.len() as u64,
            begun: 0,
            file,
            frames,
        };
        if !records.is_empty() {
            log.append(records.as_bytes())?;
        }
        log.sync.sync()?;
        log.durable = log.file.position();
        log.begun = log.durable;
        Ok(log)
    }

    fn append(&mut self, payload: &[u8]) -> Result<()> {
        let head = self
            .frames
            .head(self.file.position(), self.durable, payload);
        Ok(self.file.append(&[&head, payload])?)
    }
}
