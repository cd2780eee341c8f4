//! Scans: page by page, from both ends. A page is copied before each batch or after it, and nothing
//! is held between two of them, neither a lock nor the pool.

use std::collections::VecDeque;
use std::sync::Arc;

use gabion_index::sptree::ScanLimit;

use super::SpStore;
use crate::engine::keyspaces::KeyspaceId;
use crate::engine::mapped::{MappedKeyspace, end_of, with_key};
use crate::engine::open_store::OpenStore;
use crate::{Result, Slice};

/// Pairs of the first page of an end, and of the largest.
const PAGE_MIN: usize = 4;
const PAGE_MAX: usize = 128;
/// Bytes with which a page ends, whatever the number of its pairs. So a step copies no more than
/// these and the pair that reaches them.
const PAGE_BYTES: usize = 64 << 10;

/// Where a page is read to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ScanDirection {
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
pub(crate) struct TreeScan {
    /// Bytes of the pool's keys before those of the keyspace.
    head_bytes: usize,
    /// What nobody has read yet: the pool's keys from the one on and below the other. What is in
    /// `front` is below, and what is in `back` is not.
    lower: Vec<u8>,
    upper: Vec<u8>,
    front: End,
    back: End,
    current: Option<Pair>,
    store: Arc<dyn OpenStore<SpStore>>,
}

impl End {
    fn new() -> End {
        End {
            pairs: VecDeque::new(),
            limit: PAGE_MIN,
        }
    }

    /// Takes a page. The next one is larger.
    fn fill(&mut self, page: Vec<Pair>) {
        self.limit = (self.limit * 2).min(PAGE_MAX);
        self.pairs.extend(page);
    }
}

impl TreeScan {
    /// The keys of a keyspace from one on and below another one, where there is one; none of them,
    /// if there is no range.
    pub(crate) fn new(
        store: Arc<dyn OpenStore<SpStore>>,
        keyspace: &MappedKeyspace,
        range: Option<(Vec<u8>, Option<Vec<u8>>)>,
    ) -> TreeScan {
        let keyspace = keyspace.id();
        let (lower, upper) = range.map_or_else(Default::default, |(lower, upper)| {
            let upper = upper.unwrap_or_default();
            let lower = with_key(keyspace, &lower, <[u8]>::to_vec);
            (lower, end_of(keyspace, &upper))
        });
        TreeScan {
            head_bytes: with_key(keyspace, &[], <[u8]>::len),
            lower,
            upper,
            front: End::new(),
            back: End::new(),
            current: None,
            store,
        }
    }

    /// Goes to the next pair; false at the end.
    pub(crate) fn advance(&mut self) -> Result<bool> {
        self.current = None;
        self.current = self.take(ScanDirection::Up)?;
        Ok(self.current.is_some())
    }

    /// The next pair from the end.
    pub(crate) fn next_back(&mut self) -> Result<Option<(Slice, Slice)>> {
        let pair = self.take(ScanDirection::Down)?;
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
    fn take(&mut self, way: ScanDirection) -> Result<Option<Pair>> {
        let own = match way {
            ScanDirection::Up => &self.front,
            ScanDirection::Down => &self.back,
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
            ScanDirection::Up => (&mut self.front, &mut self.back),
            ScanDirection::Down => (&mut self.back, &mut self.front),
        };
        let pair = own.pairs.pop_front();
        Ok(pair.or_else(|| other.pairs.pop_back()))
    }

    /// Reads the next page of an end.
    fn read(&mut self, way: ScanDirection) -> Result<()> {
        let (key, pairs) = match way {
            ScanDirection::Up => (&self.lower, self.front.limit),
            ScanDirection::Down => (&self.upper, self.back.limit),
        };
        let limit = ScanLimit {
            pairs,
            bytes: PAGE_BYTES,
        };
        let (mut page, may_be_more) = self.store.engine().read(|opened| {
            let mut page = Vec::with_capacity(pairs);
            let read = opened.store.read_pairs(way, key, limit, &mut page);
            Ok((page, opened.told(read)?))
        })?;
        let is_within = |(key, _): &Pair| match way {
            ScanDirection::Up => *key < self.upper,
            ScanDirection::Down => *key >= self.lower,
        };
        let count = page.iter().take_while(|pair| is_within(pair)).count();
        let may_be_more = may_be_more && count == page.len();
        page.truncate(count);
        let last = page.last().filter(|_| may_be_more).map(|(key, _)| key);
        match (way, last) {
            // What is next above the last key.
            (ScanDirection::Up, Some(last)) => self.lower = [&last[..], &[0]].concat(),
            (ScanDirection::Down, Some(last)) => self.upper.clone_from(last),
            // There is no more.
            (_, None) => self.upper.clone_from(&self.lower),
        }
        match way {
            ScanDirection::Up => self.front.fill(page),
            ScanDirection::Down => self.back.fill(page),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use gabion_media::Disk;

    use super::*;
    use crate::MappedOptions;
    use crate::engine::write::Write;
    use crate::types::Kind;
    use crate::{Durability, Engine, Options};

    impl OpenStore<SpStore> for SpStore {
        fn engine(&self) -> &SpStore {
            self
        }
    }

    /// Pages of many small pairs were followed by one of as many large ones: a step of a scan
    /// copied all of them, which may be gigabytes.
    #[test]
    fn a_page_ends_where_it_has_bytes_enough() {
        const SMALL: u64 = 200;
        const LARGE: u64 = 30;
        const LARGE_BYTES: usize = 1 << 20;
        let dir = tempfile::tempdir().expect("a directory");
        let options = Options::default()
            .engine(Engine::Sptree)
            .durability(Durability::Buffered)
            .mapped(
                MappedOptions::default()
                    .pool_bytes(64 << 20)
                    .checkpoints(false),
            )
            .background_threads(0);
        let disk = Disk::create_system(dir.path()).expect("a directory");
        let store = SpStore::open(disk, options).expect("it opens");
        let keyspace = store.create_keyspace("some").expect("space");
        let put = |key: String, bytes: usize| {
            let write = Write::Single {
                keyspace: &*keyspace,
                kind: Kind::Put,
                key: key.as_bytes(),
                value: &vec![7; bytes],
            };
            store.write(write, 1, false).expect("space");
        };
        for number in 0..SMALL {
            put(format!("a {number:05}"), 10);
            put(format!("c {number:05}"), 10);
        }
        for number in 0..LARGE {
            put(format!("b {number:05}"), LARGE_BYTES);
        }
        for way in [ScanDirection::Up, ScanDirection::Down] {
            let mut scan = TreeScan::new(
                Arc::<SpStore>::clone(&store),
                &keyspace,
                Some((Vec::new(), None)),
            );
            let (mut count, mut most) = (0, 0);
            while let Some((_, value)) = scan.take(way).expect("sound") {
                let ends = [&scan.front, &scan.back];
                let pairs = ends.iter().flat_map(|end| &end.pairs);
                let held: usize = pairs.map(|(key, value)| key.len() + value.len()).sum();
                most = most.max(held + value.len());
                count += 1;
            }
            assert_eq!(count, 2 * SMALL + LARGE);
            assert!(most < PAGE_BYTES + 2 * LARGE_BYTES, "{way:?}: {most}");
        }
        store.close().expect("it closes");
    }
}
