//! Nodes as bytes: saving what changed, and building a tree from what was saved.

use super::inner::Inner;
use super::leaf::Leaf;
use super::node::{ENTRIES_MAX, NONE, Saved};
use super::{FlexTree, HOLE};

/// Bytes of a saved node.
pub(crate) const NODE_BYTES: usize = 1024;

const HEAD_BYTES: usize = NODE_BYTES - ENTRIES_MAX * ENTRY_BYTES;
const ENTRY_BYTES: usize = 16;

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
pub(crate) struct Saving {
    /// Level, number and place of each node that was written.
    nodes: Vec<(usize, u32, NodePlace)>,
    pub(crate) root: NodePlace,
    pub(crate) height: usize,
}

/// What a tree consisted of when it was saved.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outline {
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

impl Saving {
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
    ) -> Result<Saving, E> {
        let mut nodes = Vec::new();
        let root = self.save_node(self.root, self.height, &mut nodes, write)?;
        Ok(Saving {
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
            let Saved { slot, crc, .. } = saved;
            return Ok(NodePlace { slot, crc });
        }
        let bytes = if level == 0 {
            self.leaves[id].encode()
        } else {
            let inner = &self.inners[id];
            let mut places = Vec::with_capacity(inner.count);
            for &child in &inner.children[..inner.count] {
                places.push(self.save_node(child, level - 1, nodes, write)?);
            }
            inner.encode(level, &places)
        };
        let place = write(&bytes)?;
        nodes.push((level, id, place));
        Ok(place)
    }

    fn saved(&self, level: usize, id: u32) -> Saved {
        match level {
            0 => self.leaves[id].saved,
            _ => self.inners[id].saved,
        }
    }

    /// Takes the next `most` nodes of a save for what the tree holds at present, and returns the
    /// slots that it no longer needs for them. The save is in effect; the tree must not change
    /// before all of it was taken.
    pub(crate) fn settle(&mut self, saving: &mut Saving, most: usize) -> Vec<u32> {
        let mut released = std::mem::take(&mut self.dropped);
        let rest = saving.nodes.len().saturating_sub(most);
        for (level, id, NodePlace { slot, crc }) in saving.nodes.drain(rest..) {
            let saved = match level {
                0 => &mut self.leaves[id].saved,
                _ => &mut self.inners[id].saved,
            };
            if saved.slot != NONE {
                released.push(saved.slot);
            }
            *saved = Saved {
                slot,
                crc,
                dirty: false,
            };
        }
        released
    }

    /// Builds a tree from saved nodes; also returns the slots that they take. `read` returns the
    /// bytes of a slot if they have this checksum.
    pub(crate) fn load<E>(
        extent_max: u32,
        outline: &Outline,
        read: &mut impl FnMut(NodePlace) -> Result<NodeBytes, E>,
    ) -> Result<(FlexTree, Vec<u32>), LoadError<E>> {
        let mut tree = FlexTree::new(extent_max);
        tree.leaves.remove(tree.root);
        let height = usize::try_from(outline.height).unwrap_or(usize::MAX);
        if height > super::change::HEIGHT_MAX {
            return Err(LoadError::Malformed(outline.root.slot, "too many levels"));
        }
        let mut loader = Loader {
            tree,
            read,
            last: NONE,
            slots: Vec::new(),
        };
        let (root, span) = loader.node(outline.root, height)?;
        let Loader {
            mut tree, slots, ..
        } = loader;
        tree.root = root;
        tree.height = height;
        tree.len = span;
        if (span, tree.extents) != (outline.len, outline.extents) {
            let what = "the nodes below the root are not those that the header counts";
            return Err(LoadError::Malformed(outline.root.slot, what));
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
    /// The leaf before.
    last: u32,
    slots: Vec<u32>,
}

impl<R> Loader<'_, R> {
    /// Loads a node and all below it, and returns its number and how many bytes it covers.
    fn node<E>(&mut self, place: NodePlace, level: usize) -> Result<(u32, u64), LoadError<E>>
    where
        R: FnMut(NodePlace) -> Result<NodeBytes, E>,
    {
        let malformed = |what| LoadError::Malformed(place.slot, what);
        let bytes = (self.read)(place).map_err(LoadError::Read)?;
        self.slots.push(place.slot);
        let (count, stated) = (word(&bytes, 0) as usize, word(&bytes, 4) as usize);
        if count > ENTRIES_MAX || stated != level {
            return Err(malformed("the node has a wrong level or too many entries"));
        }
        let saved = Saved {
            slot: place.slot,
            crc: place.crc,
            dirty: false,
        };
        if level == 0 {
            return self.leaf(&bytes, count, saved).map_err(malformed);
        }
        if count == 0 {
            return Err(malformed("the node is empty"));
        }
        let mut inner = Inner::EMPTY;
        inner.saved = saved;
        let mut end = 0;
        for at in 0..count {
            let entry = HEAD_BYTES + at * ENTRY_BYTES;
            let child = NodePlace {
                slot: word(&bytes, entry + 8),
                crc: word(&bytes, entry + 12),
            };
            if long(&bytes, entry) != end {
                return Err(malformed(
                    "the shift of a child is not where the one before ends",
                ));
            }
            let (id, span) = self.node(child, level - 1)?;
            inner.insert(at, end, id);
            end += span;
        }
        let id = self.tree.inners.add();
        self.tree.inners[id] = inner;
        Ok((id, end))
    }

    fn leaf(
        &mut self,
        bytes: &NodeBytes,
        count: usize,
        saved: Saved,
    ) -> Result<(u32, u64), &'static str> {
        let mut leaf = Leaf::EMPTY;
        leaf.saved = saved;
        for at in 0..count {
            let entry = HEAD_BYTES + at * ENTRY_BYTES;
            leaf.push_words([long(bytes, entry), long(bytes, entry + 8)]);
            let extent = leaf.entry(at);
            let longest = if extent.is_hole() {
                u32::MAX
            } else {
                self.tree.extent_max
            };
            if extent.len == 0 || extent.len > u64::from(longest) {
                return Err("an extent is empty or too long");
            }
            let begins = if at == 0 { 0 } else { leaf.entry(at - 1).end() };
            if extent.offset != begins {
                return Err("an extent does not begin where the one before ends");
            }
            if !extent.is_hole() && extent.address + extent.len >= HOLE {
                return Err("an extent reaches beyond the last address");
            }
        }
        leaf.prev = self.last;
        let span = leaf.span();
        let id = self.tree.leaves.add();
        self.tree.leaves[id] = leaf;
        if self.last != NONE {
            self.tree.leaves[self.last].next = id;
            if count == 0 {
                return Err("the leaf is empty");
            }
        }
        self.last = id;
        self.tree.extents += count as u64;
        Ok((id, span))
    }
}

impl Leaf {
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
mod tests {
    use std::collections::BTreeMap;
    use std::convert::Infallible;

    use super::*;

    /// A medium: nodes by slot.
    #[derive(Default)]
    struct Slots {
        nodes: BTreeMap<u32, NodeBytes>,
        next: u32,
        writes: usize,
    }

    impl Slots {
        fn save(&mut self, tree: &mut FlexTree) -> Outline {
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
            Outline {
                root: saving.root,
                height: u32::try_from(saving.height).unwrap(),
                len: tree.len(),
                extents: tree.extent_count(),
            }
        }

        fn load(&self, outline: &Outline) -> Result<(FlexTree, Vec<u32>), LoadError<u32>> {
            FlexTree::load(100, outline, &mut |place| {
                let bytes = self.nodes.get(&place.slot).ok_or(place.slot)?;
                assert_eq!(crc32c::crc32c(bytes), place.crc);
                Ok(*bytes)
            })
        }
    }

    #[test]
    fn a_saved_tree_comes_back_and_changes_write_only_their_paths() {
        let mut slots = Slots::default();
        let mut tree = FlexTree::new(100);
        let empty = slots.save(&mut tree);
        assert_eq!(slots.load(&empty).unwrap().0.len(), 0);
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
            let (loaded, mut used) = slots.load(&outline).unwrap();
            loaded.check().unwrap();
            assert!(loaded.iter().eq(tree.iter()));
            used.sort_unstable();
            assert!(
                used.iter().eq(slots.nodes.keys()),
                "other slots are kept than used"
            );
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
                let loaded = FlexTree::load(100, &outline, &mut |place| {
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
