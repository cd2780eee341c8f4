//! The keyspaces in the root file, with their encoded bytes.
//!
//! # Idea
//! Each change of the keyspaces writes the file anew, and there may be thousands of them. So they
//! stand in *parts* of neighbours, and a part has its bytes. A change makes one part anew, in a
//! copy of the list that shares the others; to write the file is to put the bytes of all parts one
//! behind the other.
//!
//! # Invariants
//! - P1: the parts, one behind the other, ascend by the numbers of keyspaces. No part is empty.

use std::sync::Arc;

use gabion_flex::DurablePoint;

use super::layout::RootKeyspace;
use crate::KeyspaceOptions;
use crate::engine::keyspaces::position;
use crate::log::codec::put_varint;

/// The most keyspaces of a part.
const PART_MAX: usize = 128;

/// The keyspaces. Copies share what they have in common.
#[derive(Clone, Debug, Default)]
pub(super) struct RootKeyspaces {
    parts: Vec<Arc<Part>>,
    len: usize,
}

#[derive(Debug)]
struct Part {
    keyspaces: Vec<RootKeyspace>,
    bytes: Vec<u8>,
}

impl Part {
    fn new(keyspaces: Vec<RootKeyspace>) -> Arc<Part> {
        let mut bytes = Vec::new();
        keyspaces.iter().for_each(|known| known.encode(&mut bytes));
        #[cfg(test)]
        ENCODED.set(ENCODED.get() + keyspaces.len());
        Arc::new(Part { keyspaces, bytes })
    }
}

impl PartialEq for RootKeyspaces {
    fn eq(&self, other: &RootKeyspaces) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for RootKeyspaces {}

impl RootKeyspaces {
    /// These keyspaces, whose numbers ascend.
    pub(super) fn new(keyspaces: &[RootKeyspace]) -> RootKeyspaces {
        let parts = keyspaces.chunks(PART_MAX);
        RootKeyspaces {
            parts: parts.map(|part| Part::new(part.to_vec())).collect(),
            len: keyspaces.len(),
        }
    }

    /// Number of keyspaces.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The keyspaces in the order of their numbers.
    pub(super) fn iter(&self) -> impl Iterator<Item = &RootKeyspace> {
        self.parts.iter().flat_map(|part| &part.keyspaces)
    }

    /// The part that a keyspace of that number is in, if there is one.
    fn part(&self, id: u32) -> Option<usize> {
        let begins_above = |part: &Arc<Part>| match part.keyspaces.first() {
            Some(first) => first.id > id,
            None => false,
        };
        let behind = self.parts.partition_point(|part| !begins_above(part));
        behind.checked_sub(1)
    }

    /// The keyspace of a number.
    pub(super) fn find(&self, id: u32) -> Option<&RootKeyspace> {
        let part = self.parts.get(self.part(id)?)?;
        let at = position(&part.keyspaces, id, |known| known.id).ok()?;
        part.keyspaces.get(at)
    }

    /// Adds a keyspace, whose number is above all others.
    pub(super) fn push(&mut self, known: RootKeyspace) {
        self.len += 1;
        match self.parts.last_mut() {
            Some(last) if last.keyspaces.len() < PART_MAX => {
                let mut keyspaces = last.keyspaces.clone();
                keyspaces.push(known);
                *last = Part::new(keyspaces);
            }
            _ => self.parts.push(Part::new(vec![known])),
        }
    }

    /// Removes the keyspace of a number, if there is one.
    pub(super) fn remove(&mut self, id: u32) {
        let Some(at) = self.part(id) else {
            return;
        };
        let mut keyspaces = self.parts[at].keyspaces.clone();
        let before = keyspaces.len();
        keyspaces.retain(|known| known.id != id);
        self.len -= before - keyspaces.len();
        match keyspaces.len() {
            0 => drop(self.parts.remove(at)),
            after if after < before => self.parts[at] = Part::new(keyspaces),
            _ => {}
        }
    }

    /// Notes how far spaces have come, and whether anything in them expires; `reached` says it of
    /// those that there are.
    pub(super) fn set_reached(&mut self, reached: impl Fn(u32) -> Option<(DurablePoint, bool)>) {
        for part in &mut self.parts {
            let before = |known: &RootKeyspace| (known.reached, known.expires);
            let now: Vec<_> = part
                .keyspaces
                .iter()
                .map(|known| reached(known.id).unwrap_or_else(|| before(known)))
                .collect();
            if !part.keyspaces.iter().map(before).eq(now.iter().copied()) {
                let mut keyspaces = part.keyspaces.clone();
                for (known, now) in keyspaces.iter_mut().zip(now) {
                    (known.reached, known.expires) = now;
                }
                *part = Part::new(keyspaces);
            }
        }
    }

    /// The keyspace of a number has these options from now on.
    pub(super) fn set_options(&mut self, id: u32, options: &KeyspaceOptions) {
        let Some(part) = self.part(id).and_then(|at| self.parts.get_mut(at)) else {
            return;
        };
        let mut keyspaces = part.keyspaces.clone();
        for known in keyspaces.iter_mut().filter(|known| known.id == id) {
            known.options = options.clone();
        }
        *part = Part::new(keyspaces);
    }

    /// Appends what the file says: the count, and all keyspaces.
    pub(super) fn encode(&self, bytes: &mut Vec<u8>) {
        let list: usize = self.parts.iter().map(|part| part.bytes.len()).sum();
        bytes.reserve(list + size_of::<u64>());
        put_varint(bytes, self.len as u64);
        for part in &self.parts {
            bytes.extend_from_slice(&part.bytes);
        }
    }
}

#[cfg(test)]
thread_local! {
    /// Keyspaces whose bytes this thread has made.
    static ENCODED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use gabion_media::seeded::SeededRng;

    use super::*;

    fn known(id: u32, log_offset: u64) -> RootKeyspace {
        RootKeyspace {
            id,
            name: format!("keyspace {id}"),
            reached: DurablePoint {
                tree_version: 1,
                log_offset,
            },
            expires: false,
            options: KeyspaceOptions::default(),
        }
    }

    fn bytes(listed: &RootKeyspaces) -> Vec<u8> {
        let mut bytes = Vec::new();
        listed.encode(&mut bytes);
        bytes
    }

    #[test]
    fn holds_what_a_sorted_map_holds() {
        let mut random = SeededRng::new(11);
        let (mut listed, mut twin) = (RootKeyspaces::default(), BTreeMap::new());
        let mut next = 0;
        for step in 0..3_000 {
            let before = (listed.clone(), bytes(&listed));
            match random.below(10) {
                0..6 => {
                    next += 1 + u32::try_from(random.below(2)).unwrap();
                    listed.push(known(next, 0));
                    twin.insert(next, known(next, 0));
                }
                9 if step % 10 == 0 => {
                    let reached = |id: u32| {
                        let now = (known(id, step).reached, step % 20 == 0);
                        id.is_multiple_of(300).then_some(now)
                    };
                    listed.set_reached(reached);
                    for (id, known) in &mut twin {
                        let before = (known.reached, known.expires);
                        (known.reached, known.expires) = reached(*id).unwrap_or(before);
                    }
                }
                _ => {
                    let id = u32::try_from(random.below(u64::from(next) + 2)).unwrap();
                    listed.remove(id);
                    twin.remove(&id);
                }
            }
            assert_eq!(bytes(&before.0), before.1, "a copy stays as it was");
            let probe = u32::try_from(random.below(u64::from(next) + 2)).unwrap();
            assert_eq!(listed.find(probe), twin.get(&probe));
            assert_eq!(listed.len(), twin.len());
            if step % 50 == 0 {
                assert!(listed.iter().eq(twin.values()));
                let anew = RootKeyspaces::new(&twin.values().cloned().collect::<Vec<_>>());
                assert_eq!((&anew, bytes(&anew)), (&listed, bytes(&listed)));
            }
        }
    }

    /// Each new keyspace, and each that was dropped, copied the names of all others and made their
    /// bytes anew.
    #[test]
    fn a_change_makes_the_bytes_of_few_keyspaces() {
        let mut listed = RootKeyspaces::default();
        let before = ENCODED.get();
        let count = 10_000;
        for id in 0..count {
            let mut next = listed.clone();
            next.push(known(id, 0));
            listed = next;
        }
        for id in (0..count).step_by(2) {
            let mut next = listed.clone();
            next.remove(id);
            listed = next;
        }
        assert_eq!(listed.len(), count as usize / 2);
        let encoded = ENCODED.get() - before;
        assert!(
            encoded <= 2 * count as usize * PART_MAX,
            "{encoded} encoded"
        );
    }
}
