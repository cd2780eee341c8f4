//! State that readers and the writer share: the tree, data that is not written yet, and the tables
//! of checksums.

use std::sync::{Arc, OnceLock};

use gabion_media::ReadFile;

use super::segments::SegmentClass;
use super::sums::{BlockSums, SumTable};
use crate::{Extent, FlexTree, Result};

/// A segment that is being filled.
#[derive(Debug)]
pub(crate) struct SegmentBuffer {
    pub(crate) segment: u32,
    pub(crate) generation: u32,
    /// All data of the segment so far.
    pub(crate) bytes: Vec<u8>,
    /// Checksums of the blocks that were written to the medium.
    pub(crate) sums: Vec<u32>,
    /// Bytes that were written to the medium.
    pub(crate) written: u32,
}

/// The state that every read looks at, behind a [`Gate`](crate::SharedLock). Readers hold it while
/// they look up what they need, the writer holds it alone while it changes memory, and never while
/// it waits for a medium. Who holds it with others waits for one only where going without the lock
/// was in vain too often (see [`readpath`](super::readpath)), or to read as the writer.
#[derive(Debug)]
pub(crate) struct ReadState {
    pub(crate) tree: FlexTree,
    buffers: [Option<SegmentBuffer>; 2],
    /// By segment; a table that is not there stands in the segment's footer.
    tables: Vec<Slot>,
}

#[derive(Debug, Default)]
struct Slot {
    generation: u32,
    table: OnceLock<Arc<SumTable>>,
}

impl ReadState {
    pub(crate) fn new(tree: FlexTree) -> ReadState {
        ReadState {
            tree,
            buffers: [None, None],
            tables: Vec::new(),
        }
    }

    /// Memory in bytes: the tree, buffers as far as they are filled, and tables of checksums.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let sums = |sums: &[u32]| size_of_val(sums);
        let buffers = self.buffers.iter().flatten();
        let buffers: usize = buffers
            .map(|open| open.bytes.len() + sums(&open.sums))
            .sum();
        let tables = self.tables.iter().filter_map(|slot| slot.table.get());
        let tables: usize = tables.map(|table| sums(&table.sums)).sum();
        let slots = self.tables.len() * size_of::<Slot>();
        (self.tree.memory_bytes() + buffers + tables + slots) as u64
    }

    pub(crate) fn buffer(&self, class: SegmentClass) -> Option<&SegmentBuffer> {
        self.buffers[class as usize].as_ref()
    }

    pub(crate) fn buffer_mut(&mut self, class: SegmentClass) -> &mut Option<SegmentBuffer> {
        &mut self.buffers[class as usize]
    }

    /// Says that a segment is in its use `generation`, and gives its table unless that stands in
    /// the footer.
    pub(crate) fn set_table(&mut self, segment: u32, generation: u32, table: Option<SumTable>) {
        let index = segment as usize;
        if index >= self.tables.len() {
            self.tables.resize_with(index + 1, Slot::default);
        }
        self.tables[index] = Slot {
            generation,
            table: table.map_or_else(OnceLock::new, |table| OnceLock::from(Arc::new(table))),
        };
    }

    /// Says that a free segment will not have what it had.
    pub(crate) fn forget(&mut self, segment: u32) {
        if let Some(slot) = self.tables.get_mut(segment as usize) {
            *slot = Slot::default();
        }
    }

    /// Bytes of a segment that are in its buffer.
    pub(crate) fn buffered(&self, segment: u32, within: u32, len: usize) -> Option<&[u8]> {
        let open = self.buffers.iter().flatten();
        let mut open = open.filter(|open| open.segment == segment);
        let from = within as usize;
        open.next()?.bytes.get(from..from + len)
    }

    /// The use in which a segment is, and its table if that is in memory. A segment that is free
    /// or was never used is in use 0, which no other is.
    pub(crate) fn known_table(&self, segment: u32) -> (u32, Option<Arc<SumTable>>) {
        self.tables.get(segment as usize).map_or((0, None), |slot| {
            (slot.generation, slot.table.get().cloned())
        })
    }

    /// Keeps a table that was read from a footer, unless the segment is in another use by now.
    pub(crate) fn keep_table(&self, segment: u32, table: &Arc<SumTable>) {
        if let Some(slot) = self.tables.get(segment as usize)
            && slot.generation == table.generation
        {
            slot.table.get_or_init(|| Arc::clone(table));
        }
    }

    /// The table of a segment that is not open, read from its footer if need be.
    pub(crate) fn table(
        &self,
        sums: &BlockSums,
        file: &ReadFile,
        segment: u32,
    ) -> Result<Arc<SumTable>> {
        let Some(slot) = self.tables.get(segment as usize) else {
            let offset = sums.geometry.file_offset(segment, 0);
            let what = "an extent refers to a segment that is not in use".to_owned();
            return Err(super::sums::corruption(file, offset, what));
        };
        if let Some(table) = slot.table.get() {
            return Ok(Arc::clone(table));
        }
        let table = Arc::new(sums.read_footer(file, segment, slot.generation)?);
        Ok(Arc::clone(slot.table.get_or_init(|| table)))
    }

    /// Reads the bytes of one extent, or of the first part of it.
    pub(crate) fn read(
        &self,
        sums: &BlockSums,
        file: &ReadFile,
        extent: &Extent,
        buffer: &mut [u8],
    ) -> Result<()> {
        if extent.is_hole() {
            buffer.fill(0);
            return Ok(());
        }
        let (segment, within) = sums.geometry.split(extent.address);
        for open in self.buffers.iter().flatten() {
            if open.segment == segment {
                let from = within as usize;
                let bytes = open.bytes.get(from..from + buffer.len());
                let Some(bytes) = bytes else {
                    let offset = sums.geometry.file_offset(segment, within);
                    let what = "an extent refers to data that was never written".to_owned();
                    return Err(super::sums::corruption(file, offset, what));
                };
                buffer.copy_from_slice(bytes);
                return Ok(());
            }
        }
        let table = self.table(sums, file, segment)?;
        sums.read(file, segment, &table, within, buffer)
    }
}
