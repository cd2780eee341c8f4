//! The tree file: nodes in slots, and two headers that are written alternately. Nothing that the
//! newest header refers to is ever overwritten.

use std::collections::BTreeSet;

use gabion_media::crc32c;
use gabion_media::{Disk, Purpose, RandomFile, ReadFile};

use super::layout::{
    HeaderError, NODES_OFFSET, TREE_HEAD_BYTES, TREE_HEADER_BYTES, TREE_MAGIC, TREE_NAME,
    TreeHeader, seed_of,
};
use super::sums::corruption;
use crate::tree::{NODE_BYTES, NodeBytes, NodePlace, SaveResult};
use crate::{Error, FlexTree, Result};

/// Nodes that are written with one call at most.
const RUN_NODES: usize = 256;

/// The tree file, and which of its slots are free.
#[derive(Debug)]
pub(crate) struct TreeFile {
    file: RandomFile,
    header: TreeHeader,
    free: BTreeSet<u32>,
    /// Slots that nodes have used so far.
    slots: u32,
    /// Whether a header may be on the medium that is not the one in effect here.
    is_uncertain: bool,
    /// Moments that are held, and the slots that are free when none is.
    pins: u32,
    held: Vec<u32>,
}

/// Nodes that were written and are not yet in effect.
#[derive(Debug)]
pub(crate) struct UnsettledNodes {
    pub(crate) saving: SaveResult,
    slots: Vec<u32>,
}

/// Puts nodes into free slots, and writes neighbours together.
struct Run<'f> {
    file: &'f mut TreeFile,
    taken: Vec<u32>,
    first: u32,
    bytes: Vec<u8>,
}

impl Run<'_> {
    fn put(&mut self, node: &NodeBytes) -> Result<NodePlace> {
        let slot = match self.file.free.pop_first() {
            Some(slot) => slot,
            None => {
                self.file.slots += 1;
                self.file.slots - 1
            }
        };
        self.taken.push(slot);
        let nodes = self.bytes.len() / NODE_BYTES;
        let next = u64::from(self.first) + nodes as u64;
        if nodes == RUN_NODES || next != u64::from(slot) {
            self.write()?;
            self.first = slot;
        }
        self.bytes.extend_from_slice(node);
        let crc = node_sum(self.file.header.space, slot, node);
        Ok(NodePlace { slot, crc })
    }

    fn write(&mut self) -> Result<()> {
        if !self.bytes.is_empty() {
            let offset = slot_offset(self.first);
            self.file
                .file
                .write_at(offset, &self.bytes, Purpose::Checkpoint)?;
            self.bytes.clear();
        }
        Ok(())
    }
}

pub(super) fn slot_offset(slot: u32) -> u64 {
    NODES_OFFSET + u64::from(slot) * NODE_BYTES as u64
}

pub(super) fn node_sum(space: u64, slot: u32, node: &NodeBytes) -> u32 {
    let seed = crc32c::crc32c_append(seed_of(&TREE_MAGIC, space), &slot.to_le_bytes());
    crc32c::crc32c_append(seed, node)
}

impl TreeFile {
    /// Takes a new, empty file that has no name yet by which a space would be found.
    pub(crate) fn create(file: RandomFile, header: TreeHeader) -> TreeFile {
        TreeFile {
            file,
            header,
            free: BTreeSet::new(),
            slots: 0,
            is_uncertain: false,
            pins: 0,
            held: Vec::new(),
        }
    }

    /// The header that is in effect.
    pub(crate) fn header(&self) -> &TreeHeader {
        &self.header
    }

    /// Bytes of the file.
    pub(crate) fn bytes(&self) -> u64 {
        slot_offset(self.slots)
    }

    /// The first slot behind all that are in use.
    pub(crate) fn used_end(&self) -> u32 {
        let mut slots = (0..self.slots).rev();
        let last = slots.find(|slot| !self.free.contains(slot));
        last.map_or(0, |slot| slot + 1)
    }

    /// Reads the header in effect, the newer valid one, and tells where there is one that is not
    /// valid: torn by a crash, or damaged.
    pub(crate) fn read_header(disk: &Disk) -> Result<(TreeHeader, Option<u64>)> {
        let file = disk.open_read(TREE_NAME)?;
        let read = |slot: u64| {
            let mut bytes = [0; TREE_HEAD_BYTES];
            match file.read_exact_at(&mut bytes, slot * TREE_HEADER_BYTES) {
                Err(gabion_media::Error::ShortRead { .. }) => Ok([0; TREE_HEAD_BYTES]),
                read => read.map(|()| bytes),
            }
        };
        let mut newest: Option<TreeHeader> = None;
        let mut invalid = None;
        for slot in 0..2 {
            let bytes = read(slot)?;
            match TreeHeader::decode(&bytes) {
                Ok(header) if header.version % 2 != slot => {}
                Ok(header) => {
                    if newest.is_none_or(|newest| newest.version < header.version) {
                        newest = Some(header);
                    }
                }
                Err(HeaderError::Newer(found)) => {
                    return Err(Error::NewerFormat {
                        file: file.path().to_path_buf(),
                        found,
                        supported: super::layout::FORMAT,
                    });
                }
                // What was read wrong once must not be taken for a header that was never written.
                Err(HeaderError::Invalid) if read(slot)? != bytes => {
                    let what = "two reads of a header of the tree differ".to_owned();
                    return Err(corruption(&file, slot * TREE_HEADER_BYTES, what));
                }
                Err(HeaderError::Invalid) if bytes == [0; TREE_HEAD_BYTES] => {}
                Err(HeaderError::Invalid) => invalid = Some(slot * TREE_HEADER_BYTES),
            }
        }
        let newest = newest.map(|header| (header, invalid));
        newest.ok_or_else(|| corruption(&file, 0, "no header of the tree is valid".to_owned()))
    }

    /// Opens the file to write on, after its tree was loaded from `used` slots.
    pub(crate) fn open(disk: &Disk, header: TreeHeader, used: &[u32]) -> Result<TreeFile> {
        let mut free: BTreeSet<u32> = (0..header.slots).collect();
        for slot in used {
            free.remove(slot);
        }
        Ok(TreeFile {
            file: disk.open_random(TREE_NAME)?,
            header,
            free,
            slots: header.slots,
            is_uncertain: false,
            pins: 0,
            held: Vec::new(),
        })
    }

    /// The file for reading.
    pub(crate) fn reader(&self) -> Result<ReadFile> {
        Ok(self.file.reader()?)
    }

    /// Writes the changed nodes of a tree and syncs them. Nothing is in effect yet. If this fails,
    /// all is as before.
    pub(crate) fn write_nodes(&mut self, tree: &FlexTree) -> Result<UnsettledNodes> {
        let mut run = Run {
            file: self,
            taken: Vec::new(),
            first: 0,
            bytes: Vec::new(),
        };
        let saved = tree.save(&mut |node| run.put(node));
        let saved = saved.and_then(|saving| run.write().map(|()| saving));
        let slots = run.taken;
        match saved.and_then(|saving| self.file.sync().map(|()| saving).map_err(Error::from)) {
            Ok(saving) => Ok(UnsettledNodes { saving, slots }),
            Err(error) => {
                self.free.extend(slots);
                Err(error)
            }
        }
    }

    /// Lets go of nodes that will not come into effect.
    pub(crate) fn abandon(&mut self, written: UnsettledNodes) {
        self.free.extend(written.slots);
    }

    /// The header that would bring written nodes into effect.
    pub(crate) fn next_header(&self, tree: &FlexTree, saving: &SaveResult) -> TreeHeader {
        TreeHeader {
            version: self.header.version + 1,
            len: tree.len(),
            extents: tree.extent_count(),
            root: saving.root.slot,
            root_crc: saving.root.crc,
            height: u32::try_from(saving.height).unwrap_or(u32::MAX),
            slots: self.slots,
            ..self.header
        }
    }

    /// Whether a switch failed: then a recovery may find either header. Both lead to all that was
    /// done before the switch, but only as long as nothing is done after it.
    pub(crate) fn is_uncertain(&self) -> bool {
        self.is_uncertain
    }

    /// Writes a header and syncs it: from its return on it is in effect.
    pub(crate) fn switch(&mut self, header: TreeHeader) -> Result<()> {
        self.is_uncertain = true;
        let offset = header.version % 2 * TREE_HEADER_BYTES;
        let bytes = header.encode();
        match self.file.write_at(offset, &bytes, Purpose::Metadata) {
            Err(error) if error.is_no_space() => {
                // A first part may be all of it, by what stood there. Else it is not valid, and
                // stands in the place of one that nobody needs.
                let mut found = [0; TREE_HEAD_BYTES];
                let file = self.file.reader()?;
                match file.read_exact_at(&mut found, offset) {
                    Err(gabion_media::Error::ShortRead { .. }) => {}
                    read => read?,
                }
                if found != bytes {
                    self.is_uncertain = false;
                    return Err(error.into());
                }
            }
            written => written?,
        }
        // DURABLE: the nodes that the header leads to were synced by `write_nodes`, the log that
        // continues it before this call.
        self.file.sync()?;
        self.is_uncertain = false;
        self.header = header;
        Ok(())
    }

    /// Cuts off free slots at the end of the file, if they are more than all that are in use, just
    /// after a save: the header before leads nowhere any more. Only a matter of space.
    pub(crate) fn cut_free(&mut self) {
        let used = self.slots - u32::try_from(self.free.len()).unwrap_or(u32::MAX);
        let mut end = self.slots;
        while end > 0 && self.free.contains(&(end - 1)) {
            end -= 1;
        }
        if self.slots - end > used && self.file.cut(slot_offset(end)).is_ok() {
            self.free.split_off(&end);
            self.slots = end;
        }
    }

    /// The slots of the version before are free, now that a newer one is in effect, unless a moment
    /// is held.
    pub(crate) fn release(&mut self, slots: Vec<u32>) {
        match self.pins {
            0 => self.free.extend(slots),
            _ => self.held.extend(slots),
        }
    }

    /// Holds a moment: no slot that is in use now is written over.
    pub(crate) fn pin(&mut self) {
        self.pins += 1;
    }

    /// Lets go of a moment.
    pub(crate) fn unpin(&mut self) {
        self.pins -= 1;
        if self.pins == 0 {
            self.free.extend(self.held.drain(..));
        }
    }
}
