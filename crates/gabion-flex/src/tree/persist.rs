//! Encoding of nodes: saves changed nodes, and builds a tree from saved ones.

use super::inner::Inner;
use super::leaf::Leaf;
use super::node::{ENTRIES_MAX, NONE, SavedAt, is_absent};
use super::{FlexTree, HOLE};

/// Bytes of a saved node.
pub(crate) const NODE_BYTES: usize = 1024;

const HEAD_BYTES: usize = NODE_BYTES - ENTRIES_MAX * ENTRY_BYTES;
const ENTRY_BYTES: usize = 16;

/// What is wrong with a tree whose leaves have more extents or less than were counted.
pub(crate) const MISCOUNTED: &str = "the nodes below the root are not those that the header counts";

/// A node as bytes.
pub(crate) type NodeBytes = [u8; NODE_BYTES];

/// Where a saved node stands, and its checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NodePlace {
    pub(crate) slot: u32,
    pub(crate) crc: u32,
}

/// What a save wrote. The tree itself knows of it once [`FlexTree::settle`] was told that the save
/// is in effect.
#[derive(Debug)]
pub(crate) struct SaveResult {
    /// Level, number and place of each node that was written.
    nodes: Vec<(usize, u32, NodePlace)>,
    pub(crate) root: NodePlace,
    pub(crate) height: usize,
}

/// What a tree consisted of when it was saved.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SavedOutline {
    pub(crate) root: NodePlace,
    pub(crate) height: u32,
    pub(crate) len: u64,
    pub(crate) extents: u64,
}

/// Why a tree cannot be loaded.
#[derive(Debug)]
pub(crate) enum LoadError<E> {
    /// A node cannot be read.
    Read(E),
    /// The node in this slot does not hold what it must.
    Malformed(u32, &'static str),
}

impl SaveResult {
    /// Whether the tree knows of all that was saved.
    pub(crate) fn is_settled(&self) -> bool {
        self.nodes.is_empty()
    }
}

impl FlexTree {
    /// Writes all nodes that changed since they were saved, each after those below it. `write`
    /// chooses a place where no saved node stands.
    pub(crate) fn save<E>(
        &self,
        write: &mut impl FnMut(&NodeBytes) -> Result<NodePlace, E>,
    ) -> Result<SaveResult, E> {
        let mut nodes = Vec::new();
        let root = self.save_node(self.root, self.height, &mut nodes, write)?;
        Ok(SaveResult {
            nodes,
            root,
            height: self.height,
        })
    }

    fn save_node<E>(
        &self,
        id: u32,
        level: usize,
        nodes: &mut Vec<(usize, u32, NodePlace)>,
        write: &mut impl FnMut(&NodeBytes) -> Result<NodePlace, E>,
    ) -> Result<NodePlace, E> {
        let saved = self.saved(level, id);
        if !saved.dirty {
            let SavedAt { slot, crc, .. } = saved;
            return Ok(NodePlace { slot, crc });
        }
        let bytes = if level == 0 {
            self.leaves[id].encode()
        } else {
            let inner = &self.inners[id];
            let mut places = Vec::with_capacity(inner.count);
            for (at, &child) in inner.children[..inner.count].iter().enumerate() {
                // What is absent stays where it is.
                places.push(match inner.place_of(at) {
                    Some(place) => place,
                    None => self.save_node(child, level - 1, nodes, write)?,
                });
            }
            inner.encode(level, &places)
        };
        let place = write(&bytes)?;
        nodes.push((level, id, place));
        Ok(place)
    }

    fn saved(&self, level: usize, id: u32) -> SavedAt {
        match level {
            0 => self.leaves[id].saved,
            _ => self.inners[id].saved,
        }
    }

    /// Takes the next `most` nodes of a save for what the tree holds at present, and returns the
    /// slots that it no longer needs for them. The save is in effect; the tree must not change
    /// before all of it was taken.
    pub(crate) fn settle(&mut self, saving: &mut SaveResult, most: usize) -> Vec<u32> {
        let mut released = std::mem::take(&mut self.dropped);
        let rest = saving.nodes.len().saturating_sub(most);
        for (level, id, NodePlace { slot, crc }) in saving.nodes.drain(rest..) {
            self.dirty -= usize::from(level == 0);
            let saved = match level {
                0 => &mut self.leaves[id].saved,
                _ => &mut self.inners[id].saved,
            };
            if saved.slot != NONE {
                released.push(saved.slot);
            }
            *saved = SavedAt {
                slot,
                crc,
                dirty: false,
            };
        }
        released
    }

    /// Builds a tree from saved nodes; also returns the slots that they take. `read` returns the
    /// bytes of a slot if they have this checksum. No leaf is read and in memory, but a root.
    pub(crate) fn load<E>(
        extent_max: u32,
        outline: &SavedOutline,
        read: &mut impl FnMut(NodePlace) -> Result<NodeBytes, E>,
    ) -> Result<(FlexTree, Vec<u32>), LoadError<E>> {
        let mut tree = FlexTree::new(extent_max);
        tree.leaves.remove(tree.root);
        tree.dirty = 0;
        let height = usize::try_from(outline.height).unwrap_or(usize::MAX);
        if height > super::change::HEIGHT_MAX {
            return Err(LoadError::Malformed(outline.root.slot, "too many levels"));
        }
        let mut loader = Loader {
            tree,
            read,
            slots: Vec::new(),
        };
        let root = loader.node(outline.root, height, outline.len)?;
        let Loader {
            mut tree, slots, ..
        } = loader;
        tree.root = root;
        tree.height = height;
        tree.len = outline.len;
        if tree.absent > 0 {
            tree.extents = outline.extents;
        }
        if tree.extents != outline.extents {
            return Err(LoadError::Malformed(outline.root.slot, MISCOUNTED));
        }
        if height > 0 && tree.inners[root].count < 2 {
            return Err(LoadError::Malformed(
                outline.root.slot,
                "the root has one child",
            ));
        }
        Ok((tree, slots))
    }
}

struct Loader<'r, R> {
    tree: FlexTree,
    read: &'r mut R,
    slots: Vec<u32>,
}

impl<R> Loader<'_, R> {
    /// Loads a node, which covers `len` bytes, and all below it, and returns its number.
    fn node<E>(&mut self, place: NodePlace, level: usize, len: u64) -> Result<u32, LoadError<E>>
    where
        R: FnMut(NodePlace) -> Result<NodeBytes, E>,
    {
        let malformed = |what| LoadError::Malformed(place.slot, what);
        let bytes = (self.read)(place).map_err(LoadError::Read)?;
        self.slots.push(place.slot);
        if level == 0 {
            let leaf = Leaf::decode(&bytes, place, len, self.tree.extent_max);
            let leaf = leaf.map_err(malformed)?;
            let id = self.tree.leaves.add();
            self.tree.extents += leaf.count() as u64;
            self.tree.leaves[id] = leaf;
            return Ok(id);
        }
        let count = count_at(&bytes, level).map_err(malformed)?;
        if count == 0 {
            return Err(malformed("the node is empty"));
        }
        let mut inner = Inner::empty();
        inner.saved = place.saved();
        let shift_at = |at: usize| match at < count {
            true => long(&bytes, HEAD_BYTES + at * ENTRY_BYTES),
            false => len,
        };
        for at in 0..count {
            let entry = HEAD_BYTES + at * ENTRY_BYTES;
            let child = NodePlace {
                slot: word(&bytes, entry + 8),
                crc: word(&bytes, entry + 12),
            };
            let (begin, end) = (shift_at(at), shift_at(at + 1));
            if begin >= end || (at == 0 && begin != 0) {
                return Err(malformed("the shifts of the children are not ascending"));
            }
            if level == 1 && !is_absent(child.slot) {
                inner.insert(at, begin, NONE);
                inner.put_away(at, child);
                self.tree.absent += 1;
                self.slots.push(child.slot);
            } else {
                let id = self.node(child, level - 1, end - begin)?;
                inner.insert(at, begin, id);
            }
        }
        let id = self.tree.inners.add();
        self.tree.inners[id] = inner;
        Ok(id)
    }
}

impl NodePlace {
    /// What a node says that was read from here.
    fn saved(self) -> SavedAt {
        SavedAt {
            slot: self.slot,
            crc: self.crc,
            dirty: false,
        }
    }
}

/// The number of entries of a node that must be on this level.
fn count_at(bytes: &NodeBytes, level: usize) -> Result<usize, &'static str> {
    let (count, stated) = (word(bytes, 0) as usize, word(bytes, 4) as usize);
    match count <= ENTRIES_MAX && stated == level {
        true => Ok(count),
        false => Err("the node has a wrong level or too many entries"),
    }
}

impl Leaf {
    /// The leaf of these bytes, which covers `len` bytes.
    pub(crate) fn decode(
        bytes: &NodeBytes,
        place: NodePlace,
        len: u64,
        extent_max: u32,
    ) -> Result<Leaf, &'static str> {
        let count = count_at(bytes, 0)?;
        let mut leaf = Leaf::EMPTY;
        leaf.saved = place.saved();
        let mut end = 0;
        for at in 0..count {
            let entry = HEAD_BYTES + at * ENTRY_BYTES;
            leaf.push_words([long(bytes, entry), long(bytes, entry + 8)]);
            let extent = leaf.entry(at);
            let longest = if extent.is_hole() {
                u32::MAX
            } else {
                extent_max
            };
            if extent.len == 0 || extent.len > u64::from(longest) {
                return Err("an extent is empty or too long");
            }
            if extent.offset != end {
                return Err("an extent does not begin where the one before ends");
            }
            if !extent.is_hole() && extent.address + extent.len >= HOLE {
                return Err("an extent reaches beyond the last address");
            }
            end = extent.end();
        }
        match end == len {
            true => Ok(leaf),
            false => Err("the leaf does not end where the next one begins"),
        }
    }

    fn encode(&self) -> NodeBytes {
        let mut bytes = head(self.count(), 0);
        for at in 0..self.count() {
            let [first, second] = self.words(at);
            let entry = HEAD_BYTES + at * ENTRY_BYTES;
            bytes[entry..entry + 8].copy_from_slice(&first.to_le_bytes());
            bytes[entry + 8..entry + 16].copy_from_slice(&second.to_le_bytes());
        }
        bytes
    }
}

impl Inner {
    fn encode(&self, level: usize, children: &[NodePlace]) -> NodeBytes {
        let mut bytes = head(self.count, level);
        for (at, place) in children.iter().enumerate() {
            let entry = HEAD_BYTES + at * ENTRY_BYTES;
            bytes[entry..entry + 8].copy_from_slice(&self.shifts[at].to_le_bytes());
            bytes[entry + 8..entry + 12].copy_from_slice(&place.slot.to_le_bytes());
            bytes[entry + 12..entry + 16].copy_from_slice(&place.crc.to_le_bytes());
        }
        bytes
    }
}

/// The first bytes of a node; the rest is zero.
fn head(count: usize, level: usize) -> NodeBytes {
    let mut bytes = [0; NODE_BYTES];
    let small = |number| u32::try_from(number).expect("counts and levels are small");
    bytes[..4].copy_from_slice(&small(count).to_le_bytes());
    bytes[4..8].copy_from_slice(&small(level).to_le_bytes());
    bytes
}

fn word(bytes: &NodeBytes, at: usize) -> u32 {
    bytes[at..]
        .first_chunk()
        .map_or(0, |field| u32::from_le_bytes(*field))
}

fn long(bytes: &NodeBytes, at: usize) -> u64 {
    bytes[at..]
        .first_chunk()
        .map_or(0, |field| u64::from_le_bytes(*field))
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::BTreeMap;
    use std::convert::Infallible;

    use gabion_media::crc32c;

    use super::*;

    /// A medium: nodes by slot.
    #[derive(Default)]
    pub(in crate::tree) struct Slots {
        pub(in crate::tree) nodes: BTreeMap<u32, NodeBytes>,
        next: u32,
        writes: usize,
    }

    impl Slots {
        pub(in crate::tree) fn save(&mut self, tree: &mut FlexTree) -> SavedOutline {
            let saving = tree.save(&mut |bytes| {
                self.next += 1;
                self.writes += 1;
                self.nodes.insert(self.next, *bytes);
                let crc = crc32c::crc32c(bytes);
                Ok::<_, Infallible>(NodePlace {
                    slot: self.next,
                    crc,
                })
            });
            let Ok(mut saving) = saving;
            while !saving.is_settled() {
                for slot in tree.settle(&mut saving, 3) {
                    assert!(
                        self.nodes.remove(&slot).is_some(),
                        "slot {slot} is released twice"
                    );
                }
            }
            SavedOutline {
                root: saving.root,
                height: u32::try_from(saving.height).unwrap(),
                len: tree.len(),
                extents: tree.extent_count(),
            }
        }

        /// Loads a tree with all its leaves, by what `read` makes of their places.
        fn load(
            outline: &SavedOutline,
            read: &mut impl FnMut(NodePlace) -> Result<NodeBytes, u32>,
        ) -> Result<(FlexTree, Vec<u32>), LoadError<u32>> {
            let (mut tree, slots) = FlexTree::load(100, outline, read)?;
            for absent in tree.absent_in(0, u64::MAX, usize::MAX, |_| false) {
                let bytes = read(absent.place).map_err(LoadError::Read)?;
                let leaf = Leaf::decode(&bytes, absent.place, absent.len, 100);
                let malformed = |what| LoadError::Malformed(absent.place.slot, what);
                assert!(tree.admit(&absent, &leaf.map_err(malformed)?));
            }
            match tree.iter().count() as u64 == outline.extents {
                true => Ok((tree, slots)),
                false => Err(LoadError::Malformed(outline.root.slot, MISCOUNTED)),
            }
        }

        fn read(&self, place: NodePlace) -> Result<NodeBytes, u32> {
            let bytes = self.nodes.get(&place.slot).ok_or(place.slot)?;
            assert_eq!(crc32c::crc32c(bytes), place.crc);
            Ok(*bytes)
        }

        /// Loads a tree without its leaves.
        pub(in crate::tree) fn load_some(
            &self,
            extent_max: u32,
            outline: &SavedOutline,
        ) -> Result<(FlexTree, Vec<u32>), LoadError<u32>> {
            FlexTree::load(extent_max, outline, &mut |place| self.read(place))
        }
    }

    #[test]
    fn a_saved_tree_comes_back_and_changes_write_only_their_paths() {
        let mut slots = Slots::default();
        let mut tree = FlexTree::new(100);
        let empty = slots.save(&mut tree);
        assert_eq!(
            Slots::load(&empty, &mut |place| slots.read(place))
                .unwrap()
                .0
                .len(),
            0
        );
        for round in 0..40_u64 {
            for number in 0..2000 {
                let place = (round * 2000 + number) * 7919 % (tree.len() + 1);
                if number % 5 == 0 && round > 30 {
                    let len = (number * 20).min(tree.len() - place);
                    tree.collapse(place, len, drop);
                } else {
                    tree.insert(place, 1 + number % 50, number * 1000);
                }
            }
            let outline = slots.save(&mut tree);
            let (loaded, mut used) = Slots::load(&outline, &mut |place| slots.read(place)).unwrap();
            loaded.check().unwrap();
            assert!(loaded.iter().eq(tree.iter()));
            used.sort_unstable();
            assert!(
                used.iter().eq(slots.nodes.keys()),
                "other slots are kept than used"
            );
            let (lazy, mut used) = slots.load_some(100, &outline).unwrap();
            lazy.check().unwrap();
            used.sort_unstable();
            assert!(used.iter().eq(slots.nodes.keys()), "without the leaves");
            assert_eq!(lazy.node_count(), loaded.node_count());
        }
        let before = slots.writes;
        tree.insert(tree.len() / 2, 1, 12345);
        slots.save(&mut tree);
        assert_eq!(slots.writes - before, tree.height + 1);
        slots.save(&mut tree);
        assert_eq!(slots.writes - before, tree.height + 1);
    }

    #[test]
    fn a_changed_byte_is_refused_or_leads_to_a_sound_tree() {
        let mut slots = Slots::default();
        let mut tree = FlexTree::new(100);
        for number in 0..500 {
            tree.append(10, number * 100);
        }
        let outline = slots.save(&mut tree);
        let mut refused = 0;
        for slot in slots.nodes.keys().copied().collect::<Vec<_>>() {
            for at in 0..NODE_BYTES {
                let good = slots.nodes[&slot];
                slots.nodes.get_mut(&slot).unwrap()[at] ^= 0x41;
                let loaded = Slots::load(&outline, &mut |place| {
                    slots.nodes.get(&place.slot).copied().ok_or(place.slot)
                });
                match loaded {
                    Ok((tree, _)) => tree.check().unwrap(),
                    Err(_) => refused += 1,
                }
                slots.nodes.insert(slot, good);
            }
        }
        assert!(refused > 2000, "{refused}");
    }
}
