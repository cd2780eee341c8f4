//! Scans: page by page, from both ends. A page is copied before each batch or after it, and nothing
//! is held between two of them, neither a lock nor the pool.

use std::collections::VecDeque;
use std::sync::Arc;

use super::SpStore;
use crate::engine::keyspaces::Named;
use crate::engine::mapped::{Keyspace, end_of, with_key};
use crate::{Result, Slice};

/// Pairs of the first page of an end, and of the largest.
const PAGE_MIN: usize = 4;
const PAGE_MAX: usize = 128;
/// Bytes of a page that is large enough.
const PAGE_BYTES: usize = 64 << 10;

/// Where a page is read to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// From a key on.
    Up,
    /// From what is next below a key.
    Down,
}

/// A key of the pool and the value of it.
type Pair = (Vec<u8>, Vec<u8>);

/// What an end has read and not given yet, in the order in which it gives it.
struct End {
    pairs: VecDeque<Pair>,
    /// Pairs of the next page.
    limit: usize,
}

/// A scan of a range of a keyspace.
pub(crate) struct Scan {
    engine: Arc<SpStore>,
    /// Bytes of the pool's keys before those of the keyspace.
    head_bytes: usize,
    /// What nobody has read yet: the pool's keys from the one on and below the other. What is in
    /// `front` is below, and what is in `back` is not.
    lower: Vec<u8>,
    upper: Vec<u8>,
    front: End,
    back: End,
    current: Option<Pair>,
}

impl End {
    fn new() -> End {
        End {
            pairs: VecDeque::new(),
            limit: PAGE_MIN,
        }
    }

    /// Takes a page, and chooses the size of the next one.
    fn fill(&mut self, page: Vec<Pair>) {
        let bytes: usize = page
            .iter()
            .map(|(key, value)| key.len() + value.len())
            .sum();
        self.limit = if bytes > PAGE_BYTES {
            (self.limit / 2).max(1)
        } else {
            (self.limit * 2).min(PAGE_MAX)
        };
        self.pairs.extend(page);
    }
}

impl Scan {
    /// The keys of a keyspace from one on and below another one, where there is one; none of them,
    /// if there is no range.
    pub(crate) fn new(
        engine: &Arc<SpStore>,
        keyspace: &Keyspace,
        range: Option<(Vec<u8>, Option<Vec<u8>>)>,
    ) -> Scan {
        let keyspace = keyspace.id();
        let (lower, upper) = range.map_or_else(Default::default, |(lower, upper)| {
            let upper = upper.unwrap_or_default();
            let lower = with_key(keyspace, &lower, <[u8]>::to_vec);
            (lower, end_of(keyspace, &upper))
        });
        Scan {
            engine: Arc::clone(engine),
            head_bytes: with_key(keyspace, &[], <[u8]>::len),
            lower,
            upper,
            front: End::new(),
            back: End::new(),
            current: None,
        }
    }

    /// Goes to the next pair; false at the end.
    pub(crate) fn advance(&mut self) -> Result<bool> {
        self.current = None;
        self.current = self.take(Way::Up)?;
        Ok(self.current.is_some())
    }

    /// The next pair from the end.
    pub(crate) fn next_back(&mut self) -> Result<Option<(Slice, Slice)>> {
        let pair = self.take(Way::Down)?;
        Ok(pair.map(|(key, value)| (Slice::new(self.own(&key)), Slice::new(&value))))
    }

    /// The keyspace's key in one of the pool.
    fn own<'k>(&self, key: &'k [u8]) -> &'k [u8] {
        key.get(self.head_bytes..).unwrap_or_default()
    }

    pub(crate) fn key(&self) -> &[u8] {
        let current = self.current.as_ref();
        current.map_or(&[], |(key, _)| self.own(key))
    }

    pub(crate) fn value(&self) -> Slice {
        Slice::new(self.value_bytes())
    }

    pub(crate) fn value_bytes(&self) -> &[u8] {
        self.current.as_ref().map_or(&[], |(_, value)| value)
    }

    /// The next pair from one end; the last ones are what the other end has read. An error ends the
    /// scan.
    fn take(&mut self, way: Way) -> Result<Option<Pair>> {
        let own = match way {
            Way::Up => &self.front,
            Way::Down => &self.back,
        };
        if own.pairs.is_empty() && self.lower < self.upper {
            self.read(way).inspect_err(|_| {
                self.lower.clear();
                self.upper.clear();
                self.front.pairs.clear();
                self.back.pairs.clear();
            })?;
        }
        let (own, other) = match way {
            Way::Up => (&mut self.front, &mut self.back),
            Way::Down => (&mut self.back, &mut self.front),
        };
        let pair = own.pairs.pop_front();
        Ok(pair.or_else(|| other.pairs.pop_back()))
    }

    /// Reads the next page of an end.
    fn read(&mut self, way: Way) -> Result<()> {
        let (key, limit) = match way {
            Way::Up => (&self.lower, self.front.limit),
            Way::Down => (&self.upper, self.back.limit),
        };
        let mut page = self.engine.read(|opened| {
            let mut page = Vec::with_capacity(limit);
            opened.told(opened.store.read_pairs(way, key, limit, &mut page))?;
            Ok(page)
        })?;
        let is_within = |(key, _): &Pair| match way {
            Way::Up => *key < self.upper,
            Way::Down => *key >= self.lower,
        };
        let count = page.iter().take_while(|pair| is_within(pair)).count();
        page.truncate(count);
        let last = page.last().filter(|_| count == limit).map(|(key, _)| key);
        match (way, last) {
            // What is next above the last key.
            (Way::Up, Some(last)) => self.lower = [&last[..], &[0]].concat(),
            (Way::Down, Some(last)) => self.upper.clone_from(last),
            // There is no more.
            (_, None) => self.upper.clone_from(&self.lower),
        }
        match way {
            Way::Up => self.front.fill(page),
            Way::Down => self.back.fill(page),
        }
        Ok(())
    }
}
