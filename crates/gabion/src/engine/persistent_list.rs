//! A persistent sorted list: a change copies a small part, and copies share the rest.
//!
//! # Idea
//! A list that readers take without a lock is copied for each change, which makes `n` changes of a
//! growing list quadratic. Here the elements stand in parts of up to [`PART_MAX`], and copies of a
//! list share the parts. A change copies the list of parts and one part: some hundred references
//! for a hundred thousand elements.
//!
//! # Invariants
//! - O1: the parts, one behind the other, ascend in the order that all callers of a list use. No
//!   part is empty.

use std::cmp::Ordering;
use std::sync::Arc;

/// The most elements of a part.
const PART_MAX: usize = 256;

/// The list. Copies share what they have in common.
pub(crate) struct PersistentList<T> {
    parts: Vec<Arc<Vec<Arc<T>>>>,
    len: usize,
}

impl<T> Default for PersistentList<T> {
    fn default() -> PersistentList<T> {
        PersistentList {
            parts: Vec::new(),
            len: 0,
        }
    }
}

impl<T> Clone for PersistentList<T> {
    fn clone(&self) -> PersistentList<T> {
        PersistentList {
            parts: self.parts.clone(),
            len: self.len,
        }
    }
}

impl<T> PersistentList<T> {
    /// A list of elements that ascend.
    pub(crate) fn new(elements: Vec<Arc<T>>) -> PersistentList<T> {
        PersistentList {
            len: elements.len(),
            parts: elements
                .chunks(PART_MAX)
                .map(|part| Arc::new(part.to_vec()))
                .collect(),
        }
    }

    /// Number of elements.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The elements in their order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<T>> {
        self.parts.iter().flat_map(|part| part.iter())
    }

    /// The last element.
    pub(crate) fn last(&self) -> Option<&Arc<T>> {
        self.parts.last().and_then(|part| part.last())
    }

    /// The part that an element is in or would come into, where `compare` says how others compare
    /// with it: the last one that does not begin above it, or the first.
    #[inline]
    fn part(&self, compare: impl Fn(&T) -> Ordering) -> usize {
        let begins_above = |part: &Arc<Vec<Arc<T>>>| match part.first() {
            Some(first) => compare(first) == Ordering::Greater,
            None => false,
        };
        match self.parts.len() {
            0 | 1 => 0,
            _ => self
                .parts
                .partition_point(|part| !begins_above(part))
                .saturating_sub(1),
        }
    }

    /// The element that compares as equal.
    #[inline]
    pub(crate) fn find(&self, compare: impl Fn(&T) -> Ordering) -> Option<&Arc<T>> {
        let part = self.parts.get(self.part(&compare))?;
        let at = part.binary_search_by(|other| compare(other)).ok()?;
        part.get(at)
    }

    /// The element of a number, in a list in the order of numbers. Where no number is missing in
    /// front of it in its part, it is found without a search.
    #[inline]
    pub(crate) fn find_number(&self, number: u32, of: impl Fn(&T) -> u32) -> Option<&Arc<T>> {
        let part = self.parts.get(self.part(|other| of(other).cmp(&number)))?;
        let first = of(part.first()?);
        let guessed = part.get(number.checked_sub(first)? as usize);
        match guessed {
            Some(element) if of(element) == number => guessed,
            _ => {
                let at = part.binary_search_by_key(&number, |other| of(other)).ok()?;
                part.get(at)
            }
        }
    }

    /// Adds an element, if there is none that compares as equal.
    pub(crate) fn insert(&mut self, element: Arc<T>, compare: impl Fn(&T) -> Ordering) {
        let at_part = self.part(&compare);
        let Some(part) = self.parts.get_mut(at_part) else {
            self.parts.push(Arc::new(vec![element]));
            self.len = 1;
            return;
        };
        let Err(at) = part.binary_search_by(|other| compare(other)) else {
            return;
        };
        self.len += 1;
        if part.len() < PART_MAX {
            Arc::make_mut(part).insert(at, element);
            return;
        }
        // What comes at the end of a full part begins the next one: ascending elements fill parts.
        let mut above = part[at.max(PART_MAX / 2)..].to_vec();
        let mut below = part[..at.max(PART_MAX / 2)].to_vec();
        match at.checked_sub(below.len()) {
            Some(at) => above.insert(at, element),
            None => below.insert(at, element),
        }
        *part = Arc::new(below);
        self.parts.insert(at_part + 1, Arc::new(above));
    }

    /// Removes the element that compares as equal, if there is one.
    pub(crate) fn remove(&mut self, compare: impl Fn(&T) -> Ordering) {
        let at_part = self.part(&compare);
        let Some(part) = self.parts.get_mut(at_part) else {
            return;
        };
        let Ok(at) = part.binary_search_by(|other| compare(other)) else {
            return;
        };
        self.len -= 1;
        let part = Arc::make_mut(part);
        part.remove(at);
        if part.is_empty() {
            self.parts.remove(at_part);
            return;
        }
        // Small neighbours become one, so that there are not many small parts.
        let left = part.len();
        let Some(next) = self.parts.get(at_part + 1) else {
            return;
        };
        if left + next.len() <= PART_MAX / 2 {
            let next = self.parts.remove(at_part + 1);
            Arc::make_mut(&mut self.parts[at_part]).extend(next.iter().cloned());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use gabion_media::seeded::SeededRng;

    use super::*;

    fn numbers(list: &PersistentList<u32>) -> Vec<u32> {
        list.iter().map(|number| **number).collect()
    }

    #[test]
    fn holds_what_a_sorted_map_holds() {
        let mut random = SeededRng::new(7);
        for range in [40, 700, 5000] {
            let (mut list, mut twin) = (PersistentList::default(), BTreeMap::new());
            let mut before = (list.clone(), Vec::new());
            for step in 0..6 * range {
                let number = u32::try_from(random.below(range)).unwrap();
                let is_growing = (step / range) % 2 == 0;
                if random.below(4) == 0 || is_growing {
                    list.insert(Arc::new(number), |other| other.cmp(&number));
                    twin.insert(number, ());
                } else {
                    list.remove(|other| other.cmp(&number));
                    twin.remove(&number);
                }
                let probe = u32::try_from(random.below(range)).unwrap();
                let expected = twin.contains_key(&probe).then_some(probe);
                let found = list.find(|other| other.cmp(&probe)).map(|found| **found);
                assert_eq!(found, expected);
                let found = list.find_number(probe, |other| *other).map(|found| **found);
                assert_eq!(found, expected);
                assert_eq!(list.len(), twin.len());
                assert_eq!(list.last().map(|last| **last), twin.keys().last().copied());
                if step % range == range / 2 {
                    assert_eq!(numbers(&before.0), before.1, "a copy stays as it was");
                    before = (list.clone(), numbers(&list));
                    assert!(twin.keys().copied().eq(numbers(&list)));
                }
            }
        }
    }

    /// Each change of a list of `n` elements copied all of them.
    #[test]
    fn a_change_copies_a_small_part() {
        let most = |count: u32| {
            let mut list = PersistentList::default();
            let mut most = 0;
            let mut change =
                |list: &mut PersistentList<u32>, change: &dyn Fn(&mut PersistentList<u32>)| {
                    let before = list.clone();
                    change(list);
                    let is_shared = |part: &&Arc<Vec<Arc<u32>>>| {
                        before.parts.iter().any(|other| Arc::ptr_eq(other, part))
                    };
                    let copied = list.parts.iter().filter(|part| !is_shared(part));
                    most =
                        most.max(copied.map(|part| part.len()).sum::<usize>() + list.parts.len());
                };
            for number in 0..count {
                let add = |list: &mut PersistentList<u32>| {
                    list.insert(Arc::new(number), |other| other.cmp(&number));
                };
                change(&mut list, &add);
            }
            for number in (0..count).filter(|number| number % 3 > 0) {
                change(&mut list, &|list| list.remove(|other| other.cmp(&number)));
            }
            most
        };
        assert!(most(8_000) <= PART_MAX + 1 + 32);
    }
}
