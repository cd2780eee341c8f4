//! Creation and recovery of a space.
//!
//! # What a recovery does
//! It takes the newer valid header of the tree, loads the tree, and repeats the operations of the
//! log that continues it, up to the first frame that is not valid. Then it counts what the extents
//! refer to: segments without any are free. Segments that were being filled are filled on. Opening
//! then saves the tree at once, so that the log that was read is never written again; whatever
//! crashes before that has changed nothing. Where there is no space for that, the space can be
//! read, and its tree is saved before its first change.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use gabion_media::{Disk, Purpose};

use super::geometry::{Geometry, MARK};
use super::layout::{
    DATA_HEADER_BYTES, DATA_NAME, DataHeader, FORMAT, HeaderError, LOG_HEADER_BYTES, LogHeader,
    TREE_NAME, TreeHeader, is_file_of_space, log_name,
};
use super::leaves::NodeFile;
use super::log::{FrameCodec, LogRecord, ParsedFrame, PendingRecords, RecordReader, SumsRecord};
use super::options::Options;
use super::segments::{SegmentClass, SegmentState};
use super::sums::{BlockSums, SumTable};
use super::tree_file::TreeFile;
use super::writepath::LEN_MAX;
use super::writer::CurrentLog;
use crate::{Error, Extent, FlexTree, HOLE, Result};

/// Version of the tree that a space is made with.
const FIRST_VERSION: u64 = 1;

/// Suffix of the tree file before the space is complete.
const NEW_TREE_NAME: &str = "TREE.tmp";

/// How far the history of a space had come when all of it was durable: the version of its saved
/// tree, and the end of the log that continues it. A later moment is a greater point.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct DurablePoint {
    /// Version of the tree, 0 for a space that was never there.
    pub tree_version: u64,
    /// Offset in the log of that version.
    pub log_offset: u64,
}

/// What is known of a segment in use.
#[derive(Debug)]
pub(super) struct SegmentFacts {
    pub(super) state: SegmentState,
    pub(super) generation: u32,
    /// The table, unless it stands in the footer.
    pub(super) table: Option<SumTable>,
}

/// The state of a space as its files have it.
#[derive(Debug)]
pub(super) struct RecoveredSpace {
    pub(super) sums: BlockSums,
    pub(super) header: TreeHeader,
    pub(super) tree: FlexTree,
    /// Reads what the tree has not in memory.
    pub(super) nodes: NodeFile,
    /// Slots of the tree file that the saved tree takes.
    pub(super) used: Vec<u32>,
    pub(super) segments: BTreeMap<u32, SegmentFacts>,
    /// Bytes that extents refer to, by segment.
    pub(super) live: BTreeMap<u32, u64>,
    /// Operations that were repeated.
    pub(super) repeated: u64,
    /// Where the history ends that was found.
    pub(super) reached: DurablePoint,
}

/// Whether there is a space, complete or not.
pub(super) fn exists(disk: &Disk) -> Result<bool> {
    if disk.exists(TREE_NAME)? {
        return Ok(true);
    }
    // A creation that was interrupted leaves a data file without data.
    if disk.exists(DATA_NAME)? && disk.len_of(DATA_NAME)? > DATA_HEADER_BYTES {
        return Err(no_tree(disk));
    }
    Ok(false)
}

/// There is no space, or only parts of one.
pub(super) fn no_tree(disk: &Disk) -> Error {
    Error::NotASpace {
        path: disk.path().to_path_buf(),
        why: format!(
            "the directory has no file {}",
            disk.path_of(TREE_NAME).display()
        ),
    }
}

/// Makes sure that a new space comes to nobody's files: others have logs of such names, too, and an
/// opening removes those that do not count any more.
pub(super) fn check_alone(disk: &Disk) -> Result<()> {
    let is_foreign = |name: &String| !is_file_of_space(name) && name != NEW_TREE_NAME;
    match disk.list()?.into_iter().find(is_foreign) {
        None => Ok(()),
        Some(name) => Err(Error::NotASpace {
            path: disk.path().to_path_buf(),
            why: format!(
                "the directory holds something else, {name}; choose a directory for the space alone"
            ),
        }),
    }
}

/// Whether the space was made and never opened since: nothing can be in it, and nobody knows
/// whether the syncs of its creation succeeded. Where a newer header is torn or damaged, an opening
/// had come as far as to write it.
pub(super) fn is_unused(disk: &Disk) -> Result<bool> {
    let (header, invalid) = TreeFile::read_header(disk)?;
    Ok(header.version == FIRST_VERSION && invalid.is_none())
}

/// Removes the files of a space, of which the tree goes first: what is left is none. Others stay.
pub(super) fn remove(disk: &Disk) -> Result<()> {
    let names = disk.list()?;
    let is_own = |name: &&String| is_file_of_space(name) || *name == NEW_TREE_NAME;
    let mut own: Vec<&String> = names.iter().filter(is_own).collect();
    own.sort_by_key(|name| *name != TREE_NAME);
    for name in own {
        disk.remove(name)?;
    }
    Ok(disk.sync_dir()?)
}

/// Makes an empty space with this number, in place of one that is unused. It exists from the
/// renaming of its tree file on.
pub(super) fn create(disk: &Disk, options: &Options, space: u64) -> Result<()> {
    // Logs that are left are replaced or removed when they are in the way.
    for name in [TREE_NAME, DATA_NAME, NEW_TREE_NAME] {
        match disk.remove(name) {
            Err(error) if !error.is_not_found() => return Err(error.into()),
            _ => {}
        }
    }
    let (segment_bytes, block_bytes) = (options.segment_bytes, options.block_bytes);
    let header = DataHeader {
        space,
        segment_bytes,
        block_bytes,
    };
    let mut data = disk.create_random(DATA_NAME)?;
    data.write_at(0, &header.encode(), Purpose::Metadata)?;
    data.sync()?;
    let header = TreeHeader {
        space,
        version: 0,
        len: 0,
        extents: 0,
        root: 0,
        root_crc: 0,
        height: 0,
        slots: 0,
        segment_bytes,
        block_bytes,
    };
    let tree = FlexTree::new(1);
    let mut file = TreeFile::create(disk.create_random(NEW_TREE_NAME)?, header);
    let written = file.write_nodes(&tree)?;
    let header = file.next_header(&tree, &written.saving);
    // As small as can be: the opening that follows puts another one in its place.
    CurrentLog::create(disk, space, header.version, &PendingRecords::default(), 0)?;
    file.switch(header)?;
    drop(file);
    disk.rename(NEW_TREE_NAME, TREE_NAME)?;
    Ok(disk.sync_dir()?)
}

/// Reads the state of a space, which must have come as far as `reached`. Writes nothing.
///
/// Of the leaves of the tree, only those that the log's operations touch are in memory.
pub(super) fn find(disk: &Disk, reached: DurablePoint) -> Result<RecoveredSpace> {
    let sums = read_data_header(disk)?;
    let geometry = sums.0.geometry;
    let (header, invalid) = TreeFile::read_header(disk)?;
    if header.space != sums.1 {
        let tree = disk.path_of(TREE_NAME);
        let what = format!("the file belongs to another space than {}", tree.display());
        return Err(damaged(disk, DATA_NAME, 0, &what));
    }
    if header.version < reached.tree_version {
        let what = format!(
            "the newest header has version {}, but version {} was durable",
            header.version, reached.tree_version
        );
        return Err(damaged(disk, TREE_NAME, 0, &what));
    }
    if let Some(offset) = invalid
        && !disk.exists(&log_name(header.version))?
    {
        // The log of the older header goes only after the newer header is in effect.
        return Err(damaged(
            disk,
            TREE_NAME,
            offset,
            "the newer header is not valid",
        ));
    }
    let nodes = NodeFile::open(disk, header.space, geometry.extent_max())?;
    let (tree, used) = nodes.load(&header)?;
    let mut replay = Replay {
        disk,
        nodes,
        name: log_name(header.version),
        geometry,
        tree,
        segments: BTreeMap::new(),
        live: Live::default(),
        repeated: 0,
    };
    let end = replay.run(&header)?;
    if header.version == reached.tree_version && end < reached.log_offset {
        let what = format!(
            "the log ends here, but it was durable up to offset {}",
            reached.log_offset
        );
        return Err(damaged(disk, &replay.name, end, &what));
    }
    let live = match replay.live.is_unknown {
        false => std::mem::take(&mut replay.live.bytes),
        true => replay.count_live()?,
    };
    let Replay {
        tree,
        nodes,
        segments,
        repeated,
        ..
    } = replay;
    let found = RecoveredSpace {
        live,
        sums: sums.0,
        header,
        tree,
        nodes,
        used,
        segments,
        repeated,
        reached: DurablePoint {
            tree_version: header.version,
            log_offset: end,
        },
    };
    found.check_segments(disk)?;
    found.check_extents(disk)?;
    Ok(found)
}

fn read_data_header(disk: &Disk) -> Result<(BlockSums, u64)> {
    let file = disk.open_read(DATA_NAME)?;
    let mut bytes = [0; 32];
    file.read_exact_at(&mut bytes, 0)?;
    let header = DataHeader::decode(&bytes).map_err(|error| match error {
        HeaderError::Newer(found) => Error::NewerFormat {
            file: disk.path_of(DATA_NAME),
            found,
            supported: FORMAT,
        },
        HeaderError::Invalid => damaged(disk, DATA_NAME, 0, "the header is not valid"),
    })?;
    let options = Options::default()
        .segment_bytes(header.segment_bytes)
        .block_bytes(header.block_bytes);
    options
        .check()
        .map_err(|_| damaged(disk, DATA_NAME, 0, "the sizes in the header are impossible"))?;
    let geometry = Geometry::new(header.segment_bytes, header.block_bytes);
    Ok((BlockSums::new(header.space, geometry), header.space))
}

fn damaged(disk: &Disk, name: &str, offset: u64, what: &str) -> Error {
    Error::Corruption {
        file: disk.path_of(name),
        offset,
        what: what.to_owned(),
    }
}

impl RecoveredSpace {
    /// The segments that the log names lie in the data file. A space takes the lowest number that
    /// is free; so those that a power loss took from the file's end follow it without a gap.
    fn check_segments(&self, disk: &Disk) -> Result<()> {
        let geometry = &self.sums.geometry;
        let end = disk.len_of(DATA_NAME)?;
        let data = end.saturating_sub(DATA_HEADER_BYTES);
        let named = self.segments.keys().chain(self.live.keys());
        let there = data.div_ceil(geometry.segment_bytes()) + self.segments.len() as u64;
        match named.copied().find(|&segment| u64::from(segment) >= there) {
            None => Ok(()),
            Some(segment) => {
                let what = format!("the file ends here, but the log names its segment {segment}");
                Err(damaged(disk, DATA_NAME, end, &what))
            }
        }
    }

    /// Every extent that is in memory must refer to data that was written. Of the others that is
    /// seen when they are read.
    fn check_extents(&self, disk: &Disk) -> Result<()> {
        let mut extents = Vec::new();
        self.tree.for_each_present(|extent| extents.push(extent));
        let mut data = extents.iter().filter(|extent| !extent.is_hole());
        data.try_for_each(|extent| self.check_written(disk, extent))
    }

    /// An extent, which is no hole, must refer to data that was written.
    pub(super) fn check_written(&self, disk: &Disk, extent: &Extent) -> Result<()> {
        let geometry = &self.sums.geometry;
        let (segment, within) = geometry.split(extent.address);
        let written = match self.segments.get(&segment) {
            None => 0,
            Some(known) => known
                .table
                .as_ref()
                .map_or(geometry.room(), |table| table.written),
        };
        if u64::from(within) + extent.len > u64::from(written) {
            let offset = geometry.file_offset(segment, within);
            let what = "the tree refers to data that was never written there";
            return Err(damaged(disk, DATA_NAME, offset, what));
        }
        Ok(())
    }
}

/// What a record touches of the tree: from the byte in front of what it changes to the one behind.
fn touched_by(record: &LogRecord) -> Option<RangeInclusive<u64>> {
    let (offset, len) = match *record {
        LogRecord::Insert { offset, .. } => (offset, 0),
        LogRecord::Collapse { offset, len } | LogRecord::Map { offset, len, .. } => (offset, len),
        LogRecord::Segment { .. } | LogRecord::Sums(_) => return None,
    };
    Some(offset.saturating_sub(1)..=offset.saturating_add(len))
}

/// What extents refer to of each segment, as far as the log tells.
#[derive(Debug, Default)]
struct Live {
    bytes: BTreeMap<u32, u64>,
    /// Whether it tells something that cannot be right: then all extents are counted.
    is_unknown: bool,
}

impl Live {
    fn add(&mut self, geometry: &Geometry, address: u64, len: u64) {
        if address != HOLE {
            let (segment, _) = geometry.split(address);
            *self.bytes.entry(segment).or_default() += len;
        }
    }

    fn release(&mut self, geometry: &Geometry, extent: &Extent) {
        if extent.is_hole() {
            return;
        }
        let bytes = self.bytes.entry(geometry.split(extent.address).0);
        let bytes = bytes.or_default();
        match bytes.checked_sub(extent.len) {
            Some(left) => *bytes = left,
            None => self.is_unknown = true,
        }
    }
}

/// Repeats a log.
struct Replay<'d> {
    disk: &'d Disk,
    nodes: NodeFile,
    name: String,
    geometry: Geometry,
    tree: FlexTree,
    segments: BTreeMap<u32, SegmentFacts>,
    live: Live,
    repeated: u64,
}

impl Replay<'_> {
    /// Counts what all extents refer to.
    fn count_live(&self) -> Result<BTreeMap<u32, u64>> {
        let mut live = Live::default();
        let add = |extent: Extent| {
            live.add(&self.geometry, extent.address, extent.len);
            true
        };
        self.nodes.for_each(&self.tree, 0, u64::MAX, add)?;
        Ok(live.bytes)
    }

    fn has_data(&self) -> Result<bool> {
        let mut has_data = false;
        let look = |extent: Extent| {
            has_data = !extent.is_hole();
            !has_data
        };
        self.nodes.for_each(&self.tree, 0, u64::MAX, look)?;
        Ok(has_data)
    }

    /// Repeats all of it, and returns where it ends.
    fn run(&mut self, header: &TreeHeader) -> Result<u64> {
        let log = match self.disk.read_all(&self.name) {
            Err(error) if error.is_not_found() => {
                return Err(self.damaged(0, "the log that continues the tree is missing"));
            }
            read => read?,
        };
        match LogHeader::decode(&log) {
            Ok(found) if (found.space, found.version) == (header.space, header.version) => {
                if (log.len() as u64) < found.capacity {
                    return Err(self.damaged(log.len() as u64, "the log was truncated here"));
                }
            }
            Ok(_) => return Err(self.damaged(0, "the log belongs to another tree")),
            Err(HeaderError::Newer(found)) => {
                return Err(Error::NewerFormat {
                    file: self.disk.path_of(&self.name),
                    found,
                    supported: FORMAT,
                });
            }
            Err(HeaderError::Invalid) => {
                return Err(self.damaged(0, "the header of the log is not valid"));
            }
        }
        let frames = FrameCodec::new(header.space, header.version);
        let mut offset = LOG_HEADER_BYTES;
        loop {
            match frames.parse(&log, offset) {
                ParsedFrame::Frame { payload, .. } => {
                    self.repeat(payload, offset as u64)?;
                    offset += super::log::FRAME_HEAD_BYTES + payload.len();
                }
                // The first frame was durable before the log came into effect.
                _ if offset == LOG_HEADER_BYTES && self.has_data()? => {
                    return Err(self.damaged(offset as u64, "the first frame is not valid"));
                }
                ParsedFrame::Blank => return Ok(offset as u64),
                ParsedFrame::Invalid => break,
            }
        }
        // What was read wrong once, the medium may have right: then the log must not be cut.
        if self.disk.read_all(&self.name)? != log {
            return Err(self.damaged(offset as u64, "two reads of the log differ"));
        }
        let proof = frames.proof(&log, offset);
        if proof > offset as u64 {
            let what = format!(
                "the bytes are not a valid frame, but the log was durable up to offset {proof}"
            );
            return Err(self.damaged(offset as u64, &what));
        }
        Ok(offset as u64)
    }

    fn damaged(&self, offset: u64, what: &str) -> Error {
        damaged(self.disk, &self.name, offset, what)
    }

    fn repeat(&mut self, payload: &[u8], offset: u64) -> Result<()> {
        for record in RecordReader::new(payload) {
            let record = record.map_err(|what| self.damaged(offset, what))?;
            if let Some(range) = touched_by(&record) {
                self.nodes.admit(&mut self.tree, range)?;
            }
            self.repeat_one(record)
                .map_err(|what| self.damaged(offset, what))?;
            self.repeated += 1;
        }
        Ok(())
    }

    fn repeat_one(&mut self, record: LogRecord) -> Result<(), &'static str> {
        let all = self.tree.len();
        let within = |offset: u64, len: u64| {
            let end = offset
                .checked_add(len)
                .ok_or("a record has a range without an end")?;
            match end <= all && len > 0 {
                true => Ok(()),
                false => Err("a record has a range that does not lie in the space"),
            }
        };
        match record {
            LogRecord::Insert {
                offset,
                len,
                address,
            } => {
                let sum = all
                    .checked_add(len)
                    .ok_or("a record lengthens the space too much")?;
                if offset > all || len == 0 || sum > LEN_MAX {
                    return Err("a record inserts where nothing can be inserted");
                }
                self.check_address(address, len)?;
                // A mark is of the first byte. The tree cuts what is longer than an extent, and
                // would mark each part.
                let is_marked = address != HOLE && address & MARK != 0;
                if is_marked && len > self.geometry.extent_max().into() {
                    return Err("a record marks more than an extent");
                }
                self.live.add(&self.geometry, address, len);
                self.tree.insert(offset, len, address);
            }
            LogRecord::Collapse { offset, len } => {
                within(offset, len)?;
                let (live, geometry) = (&mut self.live, &self.geometry);
                let freed = |extent| live.release(geometry, &extent);
                self.tree.collapse(offset, len, freed);
            }
            LogRecord::Map {
                offset,
                len,
                address,
            } => {
                within(offset, len)?;
                self.check_address(address, len)?;
                self.live.add(&self.geometry, address, len);
                let (live, geometry) = (&mut self.live, &self.geometry);
                let freed = |extent| live.release(geometry, &extent);
                self.tree.remap(offset, len, address, freed);
            }
            LogRecord::Segment {
                segment,
                generation,
                live,
            } => {
                let known = SegmentFacts {
                    state: SegmentState::Full,
                    generation,
                    table: None,
                };
                self.check_segment(segment)?;
                self.segments.insert(segment, known);
                self.live.bytes.insert(segment, live);
            }
            LogRecord::Sums(sums) => self.repeat_sums(sums)?,
        }
        Ok(())
    }

    fn check_segment(&self, segment: u32) -> Result<(), &'static str> {
        match segment < self.geometry.segments_max() {
            true => Ok(()),
            false => Err("a record names a segment beyond the last address"),
        }
    }

    fn check_address(&self, address: u64, len: u64) -> Result<(), &'static str> {
        if address == HOLE {
            return Ok(());
        }
        let (segment, within) = self.geometry.split(address);
        self.check_segment(segment)?;
        match u64::from(within).checked_add(len) {
            Some(end) if end <= u64::from(self.geometry.room()) => Ok(()),
            _ => Err("a record has data that reaches beyond its segment"),
        }
    }

    fn repeat_sums(&mut self, record: SumsRecord) -> Result<(), &'static str> {
        let SumsRecord {
            segment,
            state,
            generation,
            first,
            written,
            sums,
        } = record;
        self.check_segment(segment)?;
        let blocks = self.geometry.blocks_of(written);
        let counted = u64::from(first) + sums.len() as u64 == u64::from(blocks);
        if written > self.geometry.room() || !counted {
            return Err("a record has a wrong number of checksums");
        }
        let known = self
            .segments
            .entry(segment)
            .or_insert_with(|| SegmentFacts {
                state,
                generation,
                table: None,
            });
        let mut table = known
            .table
            .take()
            .filter(|_| known.generation == generation);
        let table = table.get_or_insert_with(SumTable::default);
        if table.sums.len() < first as usize {
            return Err("a record continues checksums that are not there");
        }
        table.sums.truncate(first as usize);
        table.sums.extend(sums);
        table.generation = generation;
        table.written = written;
        *known = SegmentFacts {
            state,
            generation,
            table: Some(std::mem::take(table)),
        };
        if written == self.geometry.room() {
            known.state = SegmentState::Left;
        }
        Ok(())
    }
}

impl RecoveredSpace {
    /// The table and the class of each segment that can be filled on.
    pub(super) fn open_segments(&self) -> Vec<(SegmentClass, u32, SumTable)> {
        let mut open = Vec::new();
        for (number, known) in &self.segments {
            if let (SegmentState::Open(class), Some(table)) = (known.state, &known.table) {
                open.push((class, *number, table.clone()));
            }
        }
        open
    }
}

#[cfg(test)]
mod tests;
