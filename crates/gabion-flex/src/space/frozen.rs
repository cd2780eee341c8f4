//! Frozen spaces: the files as of one moment, unchanged while the space takes further writes.
//!
//! # Idea
//! What a saved tree and its log refer to is written over by nobody before a later commit or save
//! lets go of it. So a moment lasts as long as nothing that is let go of is used again: its
//! segments, and the slots of its nodes. What the medium has beyond that are a header and the first
//! part of a log, which are kept in memory.
//!
//! # Cost
//! A save of the tree, unless it was saved just now; and while the moment is held, the space
//! collects no garbage and grows by what is written to it.

use std::sync::Arc;

use gabion_media::ReadFile;

use super::Inner;
use super::geometry::{FOOTER_HEAD_BYTES, Geometry};
use super::layout::{DATA_NAME, DataHeader, TREE_HEADER_BYTES, TREE_NAME, log_name};
use super::segments::SegmentState;
use super::tree_file::slot_offset;
use super::writer::WriteSession;
use crate::Result;
use crate::tree::NODE_BYTES;

/// Nodes of a part of the tree file.
const PART_NODES: u32 = 256;

/// Blocks of a part of a segment that is being filled.
const PART_BLOCKS: u32 = 32;

/// The files of a space at a moment. Together they are a space, which opens as this one did then.
/// The moment is held until this is dropped.
#[derive(Debug)]
pub struct Frozen {
    space: Arc<Inner>,
    /// The number of the space.
    number: u64,
    tree: ReadFile,
    files: Vec<FrozenFile>,
}

/// A file of a [`Frozen`] space.
#[derive(Debug)]
pub struct FrozenFile {
    /// Its name in the space.
    pub name: String,
    /// Its length in bytes.
    pub len: u64,
    /// What is in it, in the order of the offsets; the rest is of no meaning.
    pub parts: Vec<FrozenPart>,
}

/// A part of such a file.
#[derive(Debug)]
pub struct FrozenPart {
    /// Where it begins, in bytes.
    pub offset: u64,
    /// Its length in bytes.
    pub len: u64,
    content: Content,
}

/// Where the bytes of a part are.
#[derive(Debug)]
enum Content {
    Memory(Vec<u8>),
    /// A part of a segment that is still being filled, and the checksums of its blocks.
    Filled {
        sums: Vec<u8>,
    },
    /// A full segment.
    Segment {
        footer: u64,
    },
    /// Nodes of the saved tree with this header.
    Nodes {
        header: Vec<u8>,
    },
}

impl Frozen {
    pub(super) fn new(space: &Arc<Inner>) -> Result<Frozen> {
        space.write(|session| {
            session.save_if_changed()?;
            let (tree, files) = session.files()?;
            session.writer.segments.pin();
            session.writer.tree_file.pin();
            Ok(Frozen {
                space: Arc::clone(space),
                number: session.writer.tree_file.header().space,
                tree,
                files,
            })
        })
    }

    /// The files.
    pub fn files(&self) -> &[FrozenFile] {
        &self.files
    }

    /// Fills a buffer with the bytes of a part from `offset` of its file on.
    pub fn read(&self, part: &FrozenPart, offset: u64, buffer: &mut [u8]) -> Result<()> {
        match &part.content {
            Content::Memory(bytes) => {
                let from = usize::try_from(offset - part.offset).unwrap_or(usize::MAX);
                buffer.copy_from_slice(&bytes[from..from + buffer.len()]);
                Ok(())
            }
            Content::Filled { .. } | Content::Segment { .. } => {
                Ok(self.space.data.read_exact_at(buffer, offset)?)
            }
            Content::Nodes { .. } => Ok(self.tree.read_exact_at(buffer, offset)?),
        }
    }

    /// Bytes by which a part is known, with its file, its offset and its length, without being read
    /// as a whole: the checksums of all its blocks or nodes are among them, or stand under one
    /// that is, and so does the number of the space. `None` for parts without checksums.
    pub fn mark(&self, part: &FrozenPart) -> Result<Option<Vec<u8>>> {
        match &part.content {
            Content::Segment { footer } => {
                let end = part.offset + part.len;
                let mut mark = vec![0; usize::try_from(end - footer).unwrap_or(0)];
                self.read(part, *footer, &mut mark)?;
                mark.extend(self.number.to_le_bytes());
                Ok(Some(mark))
            }
            Content::Filled { sums } => {
                let mut mark = sums.clone();
                mark.extend(self.number.to_le_bytes());
                Ok(Some(mark))
            }
            Content::Nodes { header } => Ok(Some(header.clone())),
            Content::Memory(_) => Ok(None),
        }
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        let mut writer = self.space.writer.lock();
        writer.segments.unpin();
        writer.tree_file.unpin();
    }
}

impl WriteSession<'_> {
    /// Saves the tree if anything has changed since it was saved.
    fn save_if_changed(&mut self) -> Result<()> {
        let writer = &*self.writer;
        let is_saved = |log: &super::writer::CurrentLog| log.file.position() == log.begun;
        let is_unchanged = writer.pending.is_empty()
            && !writer.data_dirty
            && writer.log.as_ref().is_some_and(is_saved)
            && self.is_written_out();
        match is_unchanged {
            true => Ok(()),
            false => self.save(),
        }
    }

    /// Whether no data is in buffers only.
    fn is_written_out(&self) -> bool {
        let shared = self.space.shared.share();
        super::segments::SegmentClass::ALL.iter().all(|class| {
            let buffer = shared.buffer(*class);
            buffer.is_none_or(|own| own.bytes.len() == own.written as usize)
        })
    }

    /// The files of the space, whose tree was just saved.
    fn files(&self) -> Result<(ReadFile, Vec<FrozenFile>)> {
        let writer = &*self.writer;
        let tree = writer.tree_file.reader()?;
        let header = *writer.tree_file.header();
        let encoded = header.encode().to_vec();
        let mut nodes = vec![FrozenPart {
            offset: header.version % 2 * TREE_HEADER_BYTES,
            len: encoded.len() as u64,
            content: Content::Memory(encoded.clone()),
        }];
        let (mut slot, end) = (0, writer.tree_file.used_end());
        while slot < end {
            let count = PART_NODES.min(end - slot);
            nodes.push(FrozenPart {
                offset: slot_offset(slot),
                len: u64::from(count) * NODE_BYTES as u64,
                content: Content::Nodes {
                    header: encoded.clone(),
                },
            });
            slot += count;
        }
        let log = self.log_part()?;
        let files = vec![
            FrozenFile {
                name: DATA_NAME.to_owned(),
                len: writer.data.reader()?.len(),
                parts: self.data_parts(header.space)?,
            },
            FrozenFile {
                name: TREE_NAME.to_owned(),
                len: slot_offset(header.slots),
                parts: nodes,
            },
            FrozenFile {
                name: log_name(header.version),
                len: self.space.disk.len_of(&log_name(header.version))?,
                parts: vec![log],
            },
        ];
        Ok((tree, files))
    }

    /// What the log has so far.
    fn log_part(&self) -> Result<FrozenPart> {
        let writer = &*self.writer;
        let name = log_name(writer.tree_file.header().version);
        let len = writer.log.as_ref().map_or(0, |log| log.durable);
        let mut bytes = vec![0; usize::try_from(len).unwrap_or(0)];
        let file = self.space.disk.open_read(&name)?;
        file.read_exact_at(&mut bytes, 0)?;
        Ok(FrozenPart {
            offset: 0,
            len,
            content: Content::Memory(bytes),
        })
    }

    /// The header of the data file, and the segments that are in use.
    fn data_parts(&self, space: u64) -> Result<Vec<FrozenPart>> {
        let geometry = self.space.sums.geometry;
        let header = DataHeader {
            space,
            segment_bytes: u32::try_from(geometry.segment_bytes()).unwrap_or(u32::MAX),
            block_bytes: geometry.block_bytes(),
        };
        let header = header.encode().to_vec();
        let mut parts = vec![FrozenPart {
            offset: 0,
            len: header.len() as u64,
            content: Content::Memory(header),
        }];
        let footer_bytes = FOOTER_HEAD_BYTES as u64 + u64::from(geometry.blocks()) * 4;
        let shared = self.space.shared.share();
        for (number, segment) in self.writer.segments.iter() {
            let offset = geometry.file_offset(number, 0);
            let footer = geometry.file_offset(number, geometry.room());
            match segment.state {
                SegmentState::Full if segment.valid > 0 => parts.push(FrozenPart {
                    offset,
                    len: footer + footer_bytes - offset,
                    content: Content::Segment { footer },
                }),
                SegmentState::Left if segment.valid > 0 => {
                    let table = shared.table(&self.space.sums, &self.space.data, number)?;
                    let known = (table.written, table.generation, &table.sums[..]);
                    parts.extend(filled_parts(&geometry, number, known));
                }
                SegmentState::Open(class) => {
                    let buffer = shared.buffer(class);
                    let known = buffer.map(|own| (own.written, own.generation, &own.sums[..]));
                    parts.extend(
                        known
                            .into_iter()
                            .flat_map(|known| filled_parts(&geometry, number, known)),
                    );
                }
                SegmentState::Free | SegmentState::Full | SegmentState::Left => {}
            }
        }
        Ok(parts)
    }
}

/// What is on the medium of a segment that is being filled: so many bytes of that use, with these
/// checksums. In small parts, as the first of them stay the same while it is filled on.
fn filled_parts(
    geometry: &Geometry,
    segment: u32,
    (written, generation, sums): (u32, u32, &[u32]),
) -> impl Iterator<Item = FrozenPart> {
    let part_bytes = PART_BLOCKS * geometry.block_bytes();
    let offset = geometry.file_offset(segment, 0);
    let sums = sums.chunks(PART_BLOCKS as usize);
    (0..written)
        .step_by(part_bytes as usize)
        .zip(sums)
        .map(move |(begin, sums)| {
            let words = std::iter::once(&generation).chain(sums);
            FrozenPart {
                offset: offset + u64::from(begin),
                len: part_bytes.min(written - begin).into(),
                content: Content::Filled {
                    sums: words.flat_map(|word| word.to_le_bytes()).collect(),
                },
            }
        })
}
