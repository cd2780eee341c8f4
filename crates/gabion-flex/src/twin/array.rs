//! Extents in one array, sorted by offset.

use crate::{Extent, HOLE};

/// An array of extents. Every change moves or rewrites all entries behind it.
#[derive(Clone, Debug)]
pub struct SortedArray {
    extents: Vec<Extent>,
    extent_max: u32,
}

impl SortedArray {
    /// An empty address space whose extents have at most `extent_max` bytes, holes up to 2^32 - 1.
    pub fn new(extent_max: u32) -> SortedArray {
        SortedArray {
            extents: Vec::new(),
            extent_max,
        }
    }

    /// Bytes in the address space.
    pub fn len(&self) -> u64 {
        self.extents.last().map_or(0, Extent::end)
    }

    /// Whether the address space has no byte.
    pub fn is_empty(&self) -> bool {
        self.extents.is_empty()
    }

    /// All extents in order.
    pub fn extents(&self) -> &[Extent] {
        &self.extents
    }

    /// The extent that covers an offset.
    pub fn lookup(&self, offset: u64) -> Option<Extent> {
        let at = self
            .extents
            .partition_point(|extent| extent.end() <= offset);
        self.extents.get(at).copied()
    }

    /// The extents of a range, the first and the last one cut to it.
    pub fn range(&self, offset: u64, len: u64) -> impl Iterator<Item = Extent> + '_ {
        let end = offset.saturating_add(len);
        let at = self
            .extents
            .partition_point(|extent| extent.end() <= offset);
        let touched = self.extents[at..]
            .iter()
            .take_while(move |extent| extent.offset < end);
        // An empty range may lie in an extent and has nothing of it.
        let parts = touched.map(move |extent| extent.clipped(offset, end));
        parts.filter(|part| part.len > 0)
    }

    /// Inserts `len` bytes at `address` before `offset`.
    pub fn insert(&mut self, offset: u64, len: u64, address: u64) {
        let longest = if address == HOLE {
            u32::MAX
        } else {
            self.extent_max
        };
        let mut done = 0;
        while done < len {
            let part = (len - done).min(u64::from(longest));
            let address = if address == HOLE {
                HOLE
            } else {
                address + done
            };
            self.insert_one(offset + done, part, address);
            done += part;
        }
    }

    fn insert_one(&mut self, offset: u64, len: u64, address: u64) {
        let at = self.cut(offset);
        for extent in &mut self.extents[at..] {
            extent.offset += len;
        }
        self.extents.insert(
            at,
            Extent {
                offset,
                len,
                address,
            },
        );
    }

    /// Removes `len` bytes and tells what goes.
    pub fn collapse(&mut self, offset: u64, len: u64, mut freed: impl FnMut(Extent)) {
        let (from, to) = (self.cut(offset), self.cut(offset + len));
        let gone: Vec<Extent> = self.extents.drain(from..to).collect();
        for extent in &mut self.extents[from..] {
            extent.offset -= len;
        }
        gone.into_iter().for_each(&mut freed);
    }

    /// Lets `len` bytes be at `address`, and tells where they were.
    pub fn remap(&mut self, offset: u64, len: u64, address: u64, freed: impl FnMut(Extent)) {
        self.collapse(offset, len, freed);
        self.insert(offset, len, address);
    }

    /// Lets an extent begin at `offset`, and returns its index.
    fn cut(&mut self, offset: u64) -> usize {
        let at = self
            .extents
            .partition_point(|extent| extent.end() <= offset);
        match self.extents.get(at).copied() {
            Some(extent) if extent.offset < offset => {
                let head = offset - extent.offset;
                self.extents[at].len = head;
                self.extents.insert(at + 1, extent.behind(head));
                at + 1
            }
            _ => at,
        }
    }
}
