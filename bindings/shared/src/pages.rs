//! A walk in one direction that is asked for pages of pairs, and may be told where to go on.

use std::ops::RangeBounds;

use gabion::{Db, Keyspace};

use crate::range::Bounds;
use crate::{Reader, Result, Walk};

/// Where the next page begins.
enum Next {
    /// At the first pair of the range.
    First,
    /// At a key, or at the first one after it.
    Key(Vec<u8>),
    /// Behind the pair at which the walk stands.
    Behind,
    /// Nowhere.
    End,
}

/// The pairs of a range, in one direction.
pub struct Pages {
    walk: Walk,
    bounds: Bounds,
    is_reversed: bool,
    next: Next,
}

impl Pages {
    /// The pairs of a keyspace in a range, from its end if `is_reversed`.
    pub fn new(
        db: &Db,
        keyspace: &Keyspace,
        reader: Reader,
        bounds: Bounds,
        is_reversed: bool,
    ) -> Pages {
        Pages {
            walk: Walk::new(db, keyspace, reader, bounds.clone()),
            bounds,
            is_reversed,
            next: Next::First,
        }
    }

    /// Lets the next page begin at a key, or at the first one after it in the direction of these
    /// pages. There is none at a key outside of the range.
    pub fn seek(&mut self, key: &[u8]) {
        let key = key.to_vec();
        self.next = match self.bounds.contains(&key) {
            true => Next::Key(key),
            false => Next::End,
        };
    }

    /// Gives the next pairs to `take`, until it answers false, or up to `count` of them. Whether
    /// the range ended before that.
    ///
    /// # Errors
    /// As [`Walk::first`]; there is no next pair then.
    pub fn page(&mut self, count: u32, mut take: impl FnMut(&[u8], &[u8]) -> bool) -> Result<bool> {
        for _ in 0..count {
            if !self.advance()? {
                return Ok(true);
            }
            self.next = Next::Behind;
            if !take(self.walk.key(), self.walk.value()) {
                break;
            }
        }
        Ok(false)
    }

    fn advance(&mut self) -> Result<bool> {
        // A failed step has no next one.
        match (
            std::mem::replace(&mut self.next, Next::End),
            self.is_reversed,
        ) {
            (Next::First, false) => self.walk.first(),
            (Next::First, true) => self.walk.last(),
            (Next::Key(key), false) => self.walk.seek(&key),
            (Next::Key(key), true) => self.walk.seek_back(&key),
            (Next::Behind, false) => self.walk.forward(),
            (Next::Behind, true) => self.walk.back(),
            (Next::End, _) => Ok(false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::range::between;

    fn keys(pages: &mut Pages, count: u32) -> (Vec<u8>, bool) {
        let mut keys = Vec::new();
        let is_last = pages
            .page(count, |key, value| {
                assert_eq!(key, value);
                keys.extend_from_slice(key);
                true
            })
            .unwrap();
        (keys, is_last)
    }

    #[test]
    fn pages_go_on_where_the_last_one_ended_or_where_they_are_told() {
        let dir = tempfile::tempdir().unwrap();
        let db = Db::open(dir.path()).unwrap();
        let keyspace = db.default_keyspace().clone();
        for number in 0..10 {
            keyspace.put([number], [number]).unwrap();
        }
        let new = |is_reversed| {
            let bounds = between(Some(&[1]), Some(&[9]));
            Pages::new(&db, &keyspace, Reader::now(&db), bounds, is_reversed)
        };
        let mut pages = new(false);
        assert_eq!(keys(&mut pages, 3), (vec![1, 2, 3], false));
        assert_eq!(keys(&mut pages, 2), (vec![4, 5], false));
        pages.seek(&[2]);
        assert_eq!(keys(&mut pages, 1), (vec![2], false));
        pages.seek(&[7]);
        assert_eq!(keys(&mut pages, 9), (vec![7, 8], true));
        assert_eq!(keys(&mut pages, 9), (vec![], true));
        pages.seek(&[9]);
        assert_eq!(keys(&mut pages, 9), (vec![], true));
        let mut pages = new(true);
        assert_eq!(keys(&mut pages, 2), (vec![8, 7], false));
        pages.seek(&[2]);
        assert_eq!(keys(&mut pages, 9), (vec![2, 1], true));
        let mut pages = new(false);
        let mut taken = 0;
        let is_last = pages.page(9, |_, _| {
            taken += 1;
            taken < 3
        });
        assert_eq!((is_last.unwrap(), taken), (false, 3));
        assert_eq!(keys(&mut pages, 1), (vec![4], false));
    }
}
