//! The read path, from the state of one moment to the bytes.
//!
//! # Idea
//! Under the lock of the readers a read only looks up where its bytes are: that takes microseconds.
//! The medium is read without the lock, since whoever held it would hold up the writer for as long,
//! and with that one all who read later. That is possible because the bytes of a segment never
//! change as long as it is in the same use (I3 of the space): who finds at the end that all
//! segments are in the use in which they were at the beginning has read what it should. Where one
//! is not, the read begins again.
//!
//! # Validity
//! The writer gives a segment another generation in the table that readers see, alone, before it
//! writes to the segment anew or gives its space back. So a reader that finds the generation of
//! before, under the lock, has read before that.

use std::sync::Arc;

use super::Inner;
use super::leaves::FetchedNodes;
use super::read_state::ReadState;
use super::sums::SumTable;
use crate::Result;
use crate::tree::AbsentLeaf;

/// Bytes that are copied from the buffers under one lock at most: some 20 us.
const COPIED_MAX: usize = 128 << 10;

/// How often a read begins again for leaves of the tree that are missing: each time there are more.
const TRIES_MAX: usize = 64;

/// A read that has begun, see [`FlexSpace::begin_read`](crate::FlexSpace::begin_read).
#[derive(Debug)]
#[must_use = "nothing is read before it is finished"]
pub struct PendingRead<'r> {
    space: &'r Inner,
    buffer: &'r mut [u8],
    /// Bytes of the buffer that will be filled.
    len: usize,
    parts: Vec<Part>,
    /// Leaves of the tree that are missing for the rest.
    missing: Vec<AbsentLeaf>,
    fetched: &'r mut FetchedNodes,
}

/// A part of the buffer, and what belongs there.
#[derive(Debug)]
struct Part {
    from: usize,
    len: usize,
    source: Source,
}

#[derive(Debug)]
enum Source {
    Hole,
    Segment(Place),
}

/// Where bytes are, and in which use of the segment.
#[derive(Debug)]
struct Place {
    segment: u32,
    generation: u32,
    within: u32,
    data: Data,
}

#[derive(Debug)]
enum Data {
    /// In the segment's buffer.
    Buffered,
    /// On the medium, with this table if it is in memory.
    Written(Option<Arc<SumTable>>),
}

impl Inner {
    /// Reads from `offset` on, `extents_max` extents at most, and returns how many bytes.
    pub(super) fn read_at(
        &self,
        offset: u64,
        buffer: &mut [u8],
        extents_max: usize,
    ) -> Result<usize> {
        let mut fetched = FetchedNodes::default();
        for _ in 0..TRIES_MAX {
            let reading = PendingRead::begin(self, offset, buffer, extents_max, &mut fetched);
            let is_outdated = reading.missing.is_empty();
            match reading.finish()? {
                Some(len) => return Ok(len),
                None if is_outdated => break,
                None => {}
            }
        }
        // With the writer kept out, this cannot be in vain, too.
        let shared = self.shared.share();
        let len = buffer.len() as u64;
        let extents: Vec<_> = loop {
            let leaves = Some(fetched.leaves());
            let mut pieces = shared.tree.range_with(offset, len, leaves);
            let extents = pieces.by_ref().take(extents_max).collect();
            let Some(from) = pieces.missing_from() else {
                break extents;
            };
            let missing = fetched.missing(
                &shared,
                from..=needed_to(offset, len, extents_max),
                usize::MAX,
            );
            fetched.fetch(&self.nodes, &missing)?;
        };
        let mut done = 0;
        for extent in &extents {
            let rest = &mut buffer[done..];
            let len = usize::try_from(extent.len).map_or(rest.len(), |len| len.min(rest.len()));
            shared.read(&self.sums, &self.data, extent, &mut rest[..len])?;
            done += len;
        }
        Ok(done)
    }
}

/// Up to where leaves are needed for so many extents of a range.
fn needed_to(offset: u64, len: u64, extents_max: usize) -> u64 {
    match extents_max {
        1 => offset,
        _ => offset.saturating_add(len),
    }
}

impl<'r> PendingRead<'r> {
    /// Begins to read from `offset` on, `extents_max` extents at most.
    pub(super) fn begin(
        space: &'r Inner,
        offset: u64,
        buffer: &'r mut [u8],
        extents_max: usize,
        fetched: &'r mut FetchedNodes,
    ) -> PendingRead<'r> {
        let mut parts = Vec::new();
        let (mut len, mut copied) = (0, 0);
        let shared = space.shared.share();
        let range = buffer.len() as u64;
        let leaves = Some(fetched.leaves());
        let mut extents = shared.tree.range_with(offset, range, leaves);
        for extent in extents.by_ref().take(extents_max) {
            let rest = &mut buffer[len..];
            let part = usize::try_from(extent.len).map_or(rest.len(), |len| len.min(rest.len()));
            let source = if extent.is_hole() {
                Source::Hole
            } else {
                let (segment, within) = space.sums.geometry.split(extent.address);
                let bytes = shared.buffered(segment, within, part);
                if let Some(bytes) = bytes.filter(|_| copied + part <= COPIED_MAX) {
                    rest[..part].copy_from_slice(bytes);
                    copied += part;
                    len += part;
                    continue;
                }
                let (generation, table) = shared.known_table(segment);
                Source::Segment(Place {
                    segment,
                    generation,
                    within,
                    data: match bytes {
                        Some(_) => Data::Buffered,
                        None => Data::Written(table),
                    },
                })
            };
            parts.push(Part {
                from: len,
                len: part,
                source,
            });
            len += part;
        }
        let end = needed_to(offset, range, extents_max);
        let missing = extents.missing_from();
        let missing = missing.map_or_else(Vec::new, |from| {
            fetched.missing(&shared, from..=end, usize::MAX)
        });
        drop(shared);
        PendingRead {
            space,
            buffer,
            len,
            parts,
            missing,
            fetched,
        }
    }

    /// Reads the bytes, and returns how many: as many as the buffer or the space has. `None` if the
    /// space was changed meanwhile so that they cannot be read any more, or if the index was not in
    /// memory: then what the buffer has means nothing, and the read must begin again.
    pub fn finish(self) -> Result<Option<usize>> {
        let PendingRead {
            space,
            buffer,
            len,
            parts,
            missing,
            fetched,
        } = self;
        if !missing.is_empty() {
            fetched.fetch(&space.nodes, &missing)?;
            space.offer(fetched);
            return Ok(None);
        }
        if parts.is_empty() {
            return Ok(Some(len));
        }
        let mut read = Ok(());
        for part in &parts {
            let bytes = &mut buffer[part.from..][..part.len];
            match &part.source {
                Source::Hole => bytes.fill(0),
                Source::Segment(place) => read = read.and_then(|()| place.read(space, bytes)),
            }
        }
        let shared = space.shared.share();
        let is_valid = parts.iter().all(|part| match &part.source {
            Source::Hole => true,
            Source::Segment(place) => place.is_valid(&shared),
        });
        drop(shared);
        // An error of what is not valid tells of nothing.
        is_valid.then_some(read.map(|()| len)).transpose()
    }
}

impl Place {
    /// Whether the segment is in the same use as when the read began.
    fn is_valid(&self, shared: &ReadState) -> bool {
        shared.known_table(self.segment).0 == self.generation
    }

    /// Reads what is there; it is of use only if the place is valid afterwards.
    fn read(&self, space: &Inner, bytes: &mut [u8]) -> Result<()> {
        match &self.data {
            Data::Written(table) => self.read_written(space, table.clone(), 0, bytes),
            Data::Buffered => self.read_buffered(space, bytes),
        }
    }

    /// Copies from the buffer, and reads the rest from the medium if that is written meanwhile.
    fn read_buffered(&self, space: &Inner, bytes: &mut [u8]) -> Result<()> {
        let mut done = 0;
        while done < bytes.len() {
            let shared = space.shared.share();
            if !self.is_valid(&shared) {
                return Ok(());
            }
            let part = (bytes.len() - done).min(COPIED_MAX);
            let within = self.within + u32::try_from(done).unwrap_or(u32::MAX);
            match shared.buffered(self.segment, within, part) {
                Some(copied) => bytes[done..done + part].copy_from_slice(copied),
                None => {
                    let (_, table) = shared.known_table(self.segment);
                    drop(shared);
                    return self.read_written(space, table, done, &mut bytes[done..]);
                }
            }
            done += part;
        }
        Ok(())
    }

    /// Reads from the medium, from `skip` bytes behind the place on.
    fn read_written(
        &self,
        space: &Inner,
        table: Option<Arc<SumTable>>,
        skip: usize,
        bytes: &mut [u8],
    ) -> Result<()> {
        let table = match table {
            Some(table) => table,
            None => self.read_table(space)?,
        };
        let within = self.within + u32::try_from(skip).unwrap_or(u32::MAX);
        space
            .sums
            .read(&space.data, self.segment, &table, within, bytes)
    }

    /// Reads the table from the segment's footer, and keeps it for others.
    fn read_table(&self, space: &Inner) -> Result<Arc<SumTable>> {
        let (segment, generation) = (self.segment, self.generation);
        let table = space.sums.read_footer(&space.data, segment, generation)?;
        let table = Arc::new(table);
        space.shared.share().keep_table(segment, &table);
        Ok(table)
    }
}
