//! Verifying every byte of a space.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::PathBuf;

use gabion_media::{Disk, ReadFile};

use super::geometry::MARK;
use super::layout::DATA_NAME;
use super::recovery::{self, DurablePoint, RecoveredSpace, SegmentFacts};
use super::sums::{BlockCheck, BlockSums, SumTable};
use crate::tree::AbsentLeaf;
use crate::{Error, Extent, Result};

/// What a check found.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct CheckReport {
    /// Bytes in the address space.
    pub len: u64,
    /// Extents of the tree.
    pub extents: u64,
    /// Operations in the log.
    pub log_operations: u64,
    /// Segments in use.
    pub segments: u64,
    /// Bytes of data that were read.
    pub data_bytes: u64,
    /// Where the history of the space ends by its files: 0 if it could not be found. A check that
    /// is given a [later moment](DurablePoint) tells what is missing.
    pub reached: DurablePoint,
    /// Whether the content was handed out, damaged or not: else nothing says what there is.
    pub has_content: bool,
    /// What does not hold.
    pub problems: Vec<Problem>,
}

/// A damaged part of a space.
#[derive(Debug)]
#[non_exhaustive]
pub struct Problem {
    /// The file.
    pub file: PathBuf,
    /// Where in it, in bytes.
    pub offset: u64,
    /// What does not hold.
    pub what: String,
}

/// A part of a space's content, as a check reads it.
#[derive(Debug)]
#[non_exhaustive]
pub struct CheckedPiece<'p> {
    /// Where it begins in the address space.
    pub offset: u64,
    /// Its bytes.
    pub len: u64,
    /// Whether its first byte is marked, see [`Edit::InsertMarked`](crate::Edit::InsertMarked).
    pub is_marked: bool,
    /// What is there.
    pub content: PieceContent<'p>,
}

impl<'p> CheckedPiece<'p> {
    /// The piece at an offset, with its length and whether it is marked.
    pub fn new(
        offset: u64,
        (len, is_marked): (u64, bool),
        content: PieceContent<'p>,
    ) -> CheckedPiece<'p> {
        CheckedPiece {
            offset,
            len,
            is_marked,
            content,
        }
    }
}

/// What a check finds in a part of a space.
#[derive(Debug)]
#[non_exhaustive]
pub enum PieceContent<'p> {
    /// These bytes.
    Data(&'p [u8]),
    /// Zeros that take no space.
    Hole,
    /// Bytes that do not pass their checks; the report says so.
    Damaged {
        /// They as they stand there, if they can be read: nothing says that they are right.
        bytes: &'p [u8],
        /// With another byte in each of their blocks, which `bytes` have, these would pass the
        /// checks: likely what was written.
        is_put_right: bool,
    },
}

/// A part of the address space, as the tree has it.
#[derive(Debug)]
enum Part {
    Known(Extent),
    /// The leaf cannot be read that says what is in this range.
    Unknown(Range<u64>),
}

/// Verifies the space of a disk, which has come as far as `reached`, and hands its content out.
/// Damage is part of the report; an error means that the check could not be done.
pub(super) fn check(
    disk: &Disk,
    reached: DurablePoint,
    visit: impl FnMut(&CheckedPiece<'_>),
) -> Result<CheckReport> {
    if !recovery::exists(disk)? {
        return Err(recovery::no_tree(disk));
    }
    let mut report = CheckReport::default();
    match recovery::find(disk, reached) {
        Ok(found) => report.check_found(disk, found, visit)?,
        Err(error) => report.add(error)?,
    }
    Ok(report)
}

/// The extents among the parts of a space that refer to data.
fn data_of(parts: &[Part]) -> impl Iterator<Item = &Extent> {
    parts.iter().filter_map(|part| match part {
        Part::Known(extent) => Some(extent).filter(|extent| !extent.is_hole()),
        Part::Unknown(_) => None,
    })
}

/// Where two extents refer to the same byte, in the order of the addresses.
fn overlaps(parts: &[Part]) -> Vec<u64> {
    let mut ranges: Vec<(u64, u64)> = data_of(parts)
        .map(|extent| (extent.address & !MARK, extent.len))
        .collect();
    ranges.sort_unstable();
    let pairs = ranges.windows(2);
    pairs
        .filter(|pair| pair[0].0 + pair[0].1 > pair[1].0)
        .map(|pair| pair[1].0)
        .collect()
}

impl CheckReport {
    fn check_found(
        &mut self,
        disk: &Disk,
        found: RecoveredSpace,
        visit: impl FnMut(&CheckedPiece<'_>),
    ) -> Result<()> {
        self.len = found.tree.len();
        self.extents = found.tree.extent_count();
        self.log_operations = found.repeated;
        self.reached = found.reached;
        let file = disk.open_read(DATA_NAME)?;
        let parts = self.read_parts(&found)?;
        for extent in data_of(&parts) {
            if let Err(error) = found.check_written(disk, extent) {
                self.add(error)?;
            }
        }
        let RecoveredSpace {
            sums,
            segments,
            live,
            ..
        } = found;
        // What a damaged leaf refers to is in use as well.
        if parts.iter().all(|part| matches!(part, Part::Known(_))) {
            self.check_live(&file, &sums, &parts, &live);
        }
        for address in overlaps(&parts) {
            let (segment, within) = sums.geometry.split(address);
            self.problems.push(Problem {
                file: file.path().to_path_buf(),
                offset: sums.geometry.file_offset(segment, within),
                what: "two extents of the tree refer to the same data".to_owned(),
            });
        }
        // The log still names segments that are free by now, and may have been written again.
        let used: BTreeSet<u32> = data_of(&parts)
            .map(|extent| sums.geometry.split(extent.address).0)
            .collect();
        let mut tables = BTreeMap::new();
        for (number, known) in segments {
            if used.contains(&number) {
                self.segments += 1;
                match self.check_segment(&sums, &file, number, known) {
                    Ok(table) => drop(tables.insert(number, table)),
                    Err(error) => self.add(error)?,
                }
            }
        }
        hand_out(&parts, &sums, &tables, &file, visit)?;
        self.has_content = true;
        Ok(())
    }

    /// All parts of the space in order. A leaf of the tree that cannot be read costs what it says,
    /// and no more.
    fn read_parts(&mut self, found: &RecoveredSpace) -> Result<Vec<Part>> {
        let parts = RefCell::new(Vec::new());
        let mut extents = 0;
        let known = |extent| {
            extents += 1;
            parts.borrow_mut().push(Part::Known(extent));
            true
        };
        let mut is_whole = true;
        let unknown = |absent: &AbsentLeaf, error| {
            is_whole = false;
            let range = absent.offset..absent.offset + absent.len;
            parts.borrow_mut().push(Part::Unknown(range));
            self.add(error)
        };
        let tree = &found.tree;
        found
            .nodes
            .for_each_but(tree, 0, u64::MAX, known, unknown)?;
        if is_whole && extents != tree.extent_count() {
            self.add(found.nodes.miscounted(&found.header))?;
        }
        Ok(parts.into_inner())
    }

    /// What the log says that is in use of each segment must be what the extents refer to.
    fn check_live(
        &mut self,
        file: &ReadFile,
        sums: &BlockSums,
        parts: &[Part],
        live: &BTreeMap<u32, u64>,
    ) {
        let mut counted = BTreeMap::<u32, u64>::new();
        for extent in data_of(parts) {
            let (segment, _) = sums.geometry.split(extent.address);
            *counted.entry(segment).or_default() += extent.len;
        }
        let told = live.iter().filter(|(_, bytes)| **bytes > 0);
        if told.clone().eq(counted.iter()) {
            return;
        }
        let other = told
            .clone()
            .find(|(segment, bytes)| counted.get(segment) != Some(bytes));
        let missing = counted
            .keys()
            .find(|segment| live.get(segment).is_none_or(|bytes| *bytes == 0));
        let segment = other.map(|(segment, _)| segment).or(missing);
        let segment = segment.copied().unwrap_or_default();
        self.problems.push(Problem {
            file: file.path().to_path_buf(),
            offset: sums.geometry.file_offset(segment, 0),
            what: format!(
                "{} bytes of segment {segment} are in use, not {} as the log says",
                counted.get(&segment).copied().unwrap_or_default(),
                live.get(&segment).copied().unwrap_or_default()
            ),
        });
    }

    /// Reads a segment, and returns its checksums.
    fn check_segment(
        &mut self,
        sums: &BlockSums,
        file: &ReadFile,
        number: u32,
        known: SegmentFacts,
    ) -> Result<SumTable> {
        let table = match known.table {
            Some(table) => table,
            None => match sums.read_footer(file, number, known.generation) {
                Err(error @ Error::Corruption { .. }) => {
                    self.add(error)?;
                    sums.read_damaged_footer(file, number, known.generation)?
                }
                read => read?,
            },
        };
        let block_bytes = sums.geometry.block_bytes();
        let mut block = vec![0; block_bytes as usize];
        for from in (0..table.written).step_by(block_bytes as usize) {
            let len = (table.written - from).min(block_bytes) as usize;
            self.data_bytes += len as u64;
            if let Err(error) = sums.read(file, number, &table, from, &mut block[..len]) {
                self.add(error)?;
            }
        }
        Ok(table)
    }

    /// Takes damage into the report; other errors end the check.
    fn add(&mut self, error: Error) -> Result<()> {
        let text = error.to_string();
        let problem = match error {
            Error::Corruption { file, offset, what } => Problem { file, offset, what },
            Error::Media(gabion_media::Error::ShortRead { path, offset, .. }) => Problem {
                file: path,
                offset,
                what: text,
            },
            other => return Err(other),
        };
        self.problems.push(problem);
        Ok(())
    }
}

/// Calls `visit` with each part of the space and what is there. Damage was told before.
fn hand_out(
    parts: &[Part],
    sums: &BlockSums,
    tables: &BTreeMap<u32, SumTable>,
    file: &ReadFile,
    mut visit: impl FnMut(&CheckedPiece<'_>),
) -> Result<()> {
    let mut bytes = Vec::new();
    for part in parts {
        let extent = match part {
            Part::Known(extent) => extent,
            Part::Unknown(range) => {
                visit(&CheckedPiece {
                    offset: range.start,
                    len: range.end - range.start,
                    is_marked: false,
                    content: UNREADABLE,
                });
                continue;
            }
        };
        let (segment, within) = sums.geometry.split(extent.address);
        let whole = |content| CheckedPiece {
            offset: extent.offset,
            len: extent.len,
            is_marked: !extent.is_hole() && extent.address & MARK != 0,
            content,
        };
        if extent.is_hole() {
            visit(&whole(PieceContent::Hole));
        } else if let Some(table) = tables.get(&segment) {
            // An extent is shorter than its segment.
            bytes.resize(usize::try_from(extent.len).unwrap_or_default(), 0);
            match sums.read(file, segment, table, within, &mut bytes) {
                Ok(()) => visit(&whole(PieceContent::Data(&bytes))),
                Err(error) if is_damage(&error) => {
                    by_blocks(
                        &whole(UNREADABLE),
                        (segment, within),
                        sums,
                        table,
                        file,
                        &mut visit,
                    )?;
                }
                Err(error) => return Err(error),
            }
        } else {
            visit(&whole(UNREADABLE));
        }
    }
    Ok(())
}

const UNREADABLE: PieceContent<'static> = PieceContent::Damaged {
    bytes: &[],
    is_put_right: false,
};

/// Whether a part of a file is not there, or not as it was written.
fn is_damage(error: &Error) -> bool {
    let is_short = |error: &_| matches!(error, gabion_media::Error::ShortRead { .. });
    match error {
        Error::Corruption { .. } => true,
        Error::Media(error) => is_short(error),
        _ => false,
    }
}

/// Hands out an extent in which a block is damaged, block by block.
fn by_blocks(
    extent: &CheckedPiece<'_>,
    (segment, within): (u32, u32),
    sums: &BlockSums,
    table: &SumTable,
    file: &ReadFile,
    visit: &mut impl FnMut(&CheckedPiece<'_>),
) -> Result<()> {
    let block_bytes = u64::from(sums.geometry.block_bytes());
    let (begin, end) = (u64::from(within), u64::from(within) + extent.len);
    let mut at = begin;
    while at < end {
        let block = at / block_bytes;
        let to = end.min((block + 1) * block_bytes);
        // Blocks of a segment are counted with 32 bits.
        let number = u32::try_from(block).unwrap_or(u32::MAX);
        let read = match sums.read_block(file, segment, table, number) {
            Err(error) if is_damage(&error) => (Vec::new(), BlockCheck::Damaged),
            read => read?,
        };
        let skipped = at - block * block_bytes;
        let range = usize::try_from(skipped).unwrap_or(usize::MAX)
            ..usize::try_from(to - block * block_bytes).unwrap_or(usize::MAX);
        let bytes = read.0.get(range).unwrap_or_default();
        visit(&CheckedPiece {
            offset: extent.offset + (at - begin),
            len: to - at,
            is_marked: extent.is_marked && at == begin,
            content: match read.1 {
                BlockCheck::Sound if !bytes.is_empty() => PieceContent::Data(bytes),
                soundness => PieceContent::Damaged {
                    bytes,
                    is_put_right: soundness == BlockCheck::PutRight,
                },
            },
        });
        at = to;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FlexTree;

    fn overlaps(tree: &FlexTree) -> Vec<u64> {
        let parts: Vec<Part> = tree.iter().map(Part::Known).collect();
        super::overlaps(&parts)
    }

    #[test]
    fn data_that_two_extents_refer_to_is_found() {
        let mut tree = FlexTree::new(1 << 10);
        tree.append(100, 0);
        tree.insert(50, 10, 500 | MARK);
        tree.insert(100, 20, 100);
        assert_eq!(overlaps(&tree), Vec::<u64>::new());
        tree.insert(0, 5, 505);
        tree.insert(0, 5, 99);
        assert_eq!(overlaps(&tree), [99, 100, 505]);
    }
}
