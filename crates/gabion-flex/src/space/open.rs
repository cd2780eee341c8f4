//! Opening a space.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::AtomicU64;

use gabion_media::{Disk, Purpose, RandomFile, ReadFile};
use parking_lot::Mutex;

use super::layout::{DATA_NAME, LOCK_NAME, TREE_NAME, log_name, parse_log_name};
use super::leaves::NodeFile;
use super::log::PendingRecords;
use super::read_state::{ReadState, SegmentBuffer};
use super::recovery::{self, DurablePoint, RecoveredSpace};
use super::reserve::SpaceReserve;
use super::segments::{SegmentClass, SegmentState, Segments};
use super::sums::SumTable;
use super::tree_file::TreeFile;
use super::writer::{SpaceTotals, StagedBytes, WriteSession, Writer};
use super::{Inner, Options};
use crate::{Error, Result, SharedLock};

impl Inner {
    pub(super) fn open(disk: Disk, options: Options) -> Result<Inner> {
        options.check()?;
        if !recovery::exists(&disk)? {
            if !options.create {
                return Err(recovery::no_tree(&disk));
            }
            if !options.managed {
                recovery::check_alone(&disk)?;
            }
        }
        let lock = match options.managed {
            true => None,
            false if disk.is_read_only() => Some(disk.lock_shared(LOCK_NAME)?),
            false => Some(disk.lock(LOCK_NAME)?),
        };
        let is_new =
            !disk.is_read_only() && (!recovery::exists(&disk)? || recovery::is_unused(&disk)?);
        if is_new && options.reached == DurablePoint::default() {
            recovery::create(&disk, &options, RandomState::new().hash_one(disk.path()))?;
        }
        let mut found = recovery::find(&disk, options.reached)?;
        options.check_capacity(&found.sums.geometry)?;
        let (sums, repeated) = (found.sums, found.repeated);
        let mut data_file = disk.open_random(DATA_NAME)?;
        let data = data_file.reader()?;
        end_full_segments(&mut found, &mut data_file)?;
        // What an earlier process wrote may be in the system's memory only; the tree that is saved
        // below refers to it.
        data_file.sync()?;
        let mut tree_file = TreeFile::open(&disk, found.header, &found.used)?;
        let mut segments =
            Segments::new(sums.geometry, options.capacity_bytes, options.garbage_parts);
        let nodes = NodeFile::new(
            tree_file.reader()?,
            tree_file.header().space,
            sums.geometry.extent_max(),
        );
        let mut shared = settle(&data, found, &mut segments)?;

        let staged = StagedBytes::default();
        let records = super::commit::segment_records(&segments, &staged, &shared, &sums, &data)?;
        let extents = shared.tree.extent_count();
        let log_bytes = options.log_bytes_for(options.index_bytes, extents);
        let mut reserve = SpaceReserve::find(&disk, !options.managed)?;
        let mut save =
            || super::commit::save_tree(&disk, &mut tree_file, &shared.tree, &records, log_bytes);
        let saved = save().or_else(|error| match error.may_try_again() {
            true if reserve.give_up(&disk) => save(),
            _ => Err(error),
        });
        let log = match saved {
            Ok((log, mut written)) => {
                let released = shared.tree.settle(&mut written.saving, usize::MAX);
                tree_file.release(released);
                let version = tree_file.header().version;
                match options.managed {
                    // What is left by others, or if this fails, whoever manages the space removes.
                    true => drop(disk.remove(&log_name(version - 1))),
                    false => clean(&disk, version)?,
                }
                Some(log)
            }
            // What it holds can be read, and its tree is saved before the first change.
            Err(Error::Media(error))
                if error.is_no_space() && !is_new && !tree_file.is_uncertain() =>
            {
                // DURABLE: what was found, so that nobody reads what a power loss can undo.
                for name in file_names(tree_file.header().version) {
                    disk.sync_file(&name)?;
                }
                disk.sync_dir()?;
                None
            }
            Err(error) => return Err(error),
        };
        let measures = options.measure_waits;
        let writer = Writer {
            data: data_file,
            tree_file,
            log,
            segments,
            pending: PendingRecords::default(),
            data_dirty: false,
            staged,
            begun: Vec::new(),
            reserve,
            spare: Vec::new(),
            failure: None,
            totals: SpaceTotals::default(),
            geometry: sums.geometry,
        };
        let index_bytes = options.index_bytes;
        let space = Inner {
            disk,
            options,
            sums,
            data,
            nodes,
            shared: SharedLock::new(shared, measures),
            writer: Mutex::new(writer),
            changes: AtomicU64::new(0),
            repeated,
            opened_by: std::process::id(),
            lock: Mutex::new(lock),
            index_bytes: AtomicU64::new(0),
        };
        space.set_index_bytes(index_bytes);
        space.give_back_unused()?;
        Ok(space)
    }

    /// Gives back what an earlier process has left of the data file, if the tree is saved: nothing
    /// leads to it any more.
    fn give_back_unused(&self) -> Result<()> {
        let mut session = WriteSession {
            space: self,
            writer: self.writer.lock(),
        };
        if session.writer.log.is_some() {
            session.writer.segments.doubt_free();
            session.give_back();
            let count = session.writer.segments.count();
            let end = self.sums.geometry.file_offset(count, 0);
            if self.disk.len_of(DATA_NAME)? > end {
                session.cut_data(end);
            }
        }
        Ok(())
    }
}

/// Gives the segments that are full by the log their footers, which may not have been written, if
/// anything in them is in use. Where there is no space for one, the table of its segment stays in
/// the log.
fn end_full_segments(found: &mut RecoveredSpace, data: &mut RandomFile) -> Result<()> {
    let sums = found.sums;
    let room = sums.geometry.room();
    let is_used = |number| found.live.get(number).is_some_and(|live| *live > 0);
    let full = found.segments.iter_mut();
    for (number, known) in full.filter(|(number, _)| is_used(number)) {
        if let Some(table) = known.table.take_if(|table| table.written == room) {
            let offset = sums.geometry.file_offset(*number, room);
            match data.write_at(offset, &sums.footer(*number, &table), Purpose::Metadata) {
                Ok(()) => known.state = SegmentState::Full,
                Err(error) if error.is_no_space() => known.table = Some(table),
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(())
}

/// Puts what was found into memory: what each segment is, what is in use of it, and the buffers of
/// those that can be filled on.
fn settle(data: &ReadFile, found: RecoveredSpace, segments: &mut Segments) -> Result<ReadState> {
    let sums = found.sums;
    let open = found.open_segments();
    let mut shared = ReadState::new(found.tree);
    for (number, known) in found.segments {
        let state = match known.state {
            SegmentState::Full => SegmentState::Full,
            _ => SegmentState::Left,
        };
        segments.recover(number, state, known.generation);
        shared.set_table(number, known.generation, known.table);
    }
    for (segment, live) in found.live {
        segments.add(segment, live);
    }
    for (class, number, table) in open {
        if shared.buffer(class).is_some() {
            continue;
        }
        let mut bytes = Vec::with_capacity(sums.geometry.room() as usize);
        bytes.resize(table.written as usize, 0);
        match sums.read(data, number, &table, 0, &mut bytes) {
            Ok(()) => {}
            // What is damaged is found when it is read; only this segment is not filled on.
            Err(Error::Corruption { .. } | Error::Media(gabion_media::Error::ShortRead { .. })) => {
                continue;
            }
            Err(error) => return Err(error),
        }
        resume(&mut shared, segments, class, number, table, bytes);
    }
    segments.release_unused();
    Ok(shared)
}

fn resume(
    shared: &mut ReadState,
    segments: &mut Segments,
    class: SegmentClass,
    segment: u32,
    table: SumTable,
    bytes: Vec<u8>,
) {
    segments.get_mut(segment).state = SegmentState::Open(class);
    *shared.buffer_mut(class) = Some(SegmentBuffer {
        segment,
        generation: table.generation,
        bytes,
        sums: table.sums,
        written: table.written,
    });
}

/// The files of a space whose tree has this version.
pub(super) fn file_names(version: u64) -> [String; 3] {
    [
        DATA_NAME.to_owned(),
        TREE_NAME.to_owned(),
        log_name(version),
    ]
}

/// Removes the logs of other versions.
fn clean(disk: &Disk, version: u64) -> Result<()> {
    for name in disk.list()? {
        if parse_log_name(&name).is_some() && name != log_name(version) {
            disk.remove(&name)?;
        }
    }
    Ok(())
}
