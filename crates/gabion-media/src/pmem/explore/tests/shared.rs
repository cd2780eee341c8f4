//! A pool used by several threads: crashes between the steps of operations that interleave.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;

use super::super::{
    Access, ConcurrentRun, ExploreLimits, Explorer, Keyed, OpOutcome, Subject, SubjectMedium,
};
use crate::pmem::{PAtomicU64, POff, Pool, PoolOptions, ROOT_HINT};

/// Keys, each with a slot in the root block that refers to a block with the value, and a lock.
const KEYS: u64 = 3;

struct Slots;

/// A pool, and a lock for each key that is held until its operation is durable.
struct Open {
    pool: Pool,
    locks: [Mutex<()>; 3],
}

#[derive(Clone, Debug)]
enum Op {
    Put(u64, u64),
    Delete(u64),
    Read(u64),
}

fn options(stage: &SubjectMedium) -> PoolOptions {
    PoolOptions {
        heaps: 2,
        chunk_bytes: 4096,
        watcher: Some(stage.watcher().clone()),
        ..PoolOptions::default()
    }
}

impl Open {
    fn new(pool: Pool) -> Open {
        Open {
            pool,
            locks: Default::default(),
        }
    }

    fn slot(&self, key: u64) -> &PAtomicU64 {
        self.pool.at(self.pool.root::<PAtomicU64>().element(key))
    }

    // ORDER: Relaxed throughout: a key's lock is held, or there is one thread.
    fn block(&self, key: u64) -> u64 {
        self.slot(key).load(&self.pool, Ordering::Relaxed)
    }

    fn value(&self, key: u64) -> Option<u64> {
        let block = self.block(key);
        let value: &PAtomicU64 = self.pool.at(POff::new(block));
        (block != 0).then(|| value.load(&self.pool, Ordering::Relaxed))
    }

    fn replace(&self, key: u64, value: Option<u64>) -> crate::Result<()> {
        let pool = &self.pool;
        let slot = self.slot(key);
        let hint = pool.offset_of(slot).raw();
        let new = value.map(|_| pool.alloc(32 + key * 16, hint)).transpose()?;
        let old = match self.block(key) {
            0 => None,
            old => Some(pool.retire(POff::<u8>::new(old), hint)?),
        };
        let at = new.as_ref().map_or(0, |new| new.offset::<u8>().raw());
        if let Some(value) = value {
            pool.write(at, &value.to_le_bytes());
            pool.flush_range(at, 8);
        }
        pool.fence();
        slot.store(pool, at, Ordering::Release);
        pool.persist(slot);
        if let Some(new) = new {
            new.commit::<u8>();
        }
        if let Some(old) = old {
            old.commit_now();
        }
        Ok(())
    }
}

impl Subject for Slots {
    type Op = Op;
    type Structure = Open;
    type Content = BTreeMap<u64, u64>;

    fn bytes(&self) -> u64 {
        32 << 10
    }

    fn create(&self, stage: &SubjectMedium) -> Result<Open, String> {
        let pool = Pool::create_in(stage.region(), options(stage));
        let pool = pool.map_err(|error| error.to_string())?;
        let root = pool
            .alloc(KEYS * 8, ROOT_HINT)
            .map_err(|error| error.to_string())?;
        pool.zero(root.offset::<u8>().raw(), KEYS * 8);
        pool.fence();
        pool.set_root(root.offset::<PAtomicU64>());
        root.commit::<u8>();
        Ok(Open::new(pool))
    }

    fn open(&self, stage: &SubjectMedium) -> Result<Option<Open>, String> {
        let pool = Pool::open_in(stage.region(), options(stage));
        let pool = pool.map_err(|error| error.to_string())?;
        Ok(Some(Open::new(pool)))
    }

    fn apply(&self, open: &Open, op: &Op) -> Result<OpOutcome, String> {
        self.access(open, op).map(|_| OpOutcome::Done)
    }

    fn content(&self, open: &Open) -> Result<BTreeMap<u64, u64>, String> {
        let content: BTreeMap<u64, u64> = (0..KEYS)
            .filter_map(|key| Some((key, open.value(key)?)))
            .collect();
        let used = open.pool.stats().used_blocks;
        if used == content.len() as u64 + 1 {
            Ok(content)
        } else {
            Err(format!("{used} blocks are in use for {content:?}"))
        }
    }

    fn empty(&self) -> BTreeMap<u64, u64> {
        BTreeMap::new()
    }

    fn expect(&self, content: &mut BTreeMap<u64, u64>, op: &Op) {
        match *op {
            Op::Put(key, value) => {
                content.insert(key, value);
            }
            Op::Delete(key) => {
                content.remove(&key);
            }
            Op::Read(_) => {}
        }
    }

    fn name(&self, _: &Op) -> &'static str {
        "access"
    }

    fn probes(&self) -> Vec<Op> {
        vec![Op::Put(0, 900), Op::Delete(1), Op::Put(2, 901)]
    }
}

impl Keyed for Slots {
    fn access(&self, open: &Open, op: &Op) -> Result<Access, String> {
        let (key, left) = match *op {
            Op::Put(key, value) => (key, Some(Some(value))),
            Op::Delete(key) => (key, Some(None)),
            Op::Read(key) => (key, None),
        };
        let place = usize::try_from(key).map_err(|error| error.to_string())?;
        let _held = open.locks[place].lock();
        let saw = Some(open.value(key));
        if let Some(value) = left {
            open.replace(key, value)
                .map_err(|error| error.to_string())?;
        }
        Ok(Access { key, saw, left })
    }
}

#[test]
fn threads_that_share_a_pool_lose_nothing_and_leak_nothing() {
    let ops = |thread: u64| -> Vec<Op> {
        let round = |n: u64| {
            let value = 1000 * (thread + 1) + n;
            [
                Op::Put((n + thread) % KEYS, value),
                Op::Read(n % KEYS),
                Op::Delete((n + 1) % KEYS),
            ]
        };
        (0..3).flat_map(round).collect()
    };
    let limits = ExploreLimits {
        all: 512,
        sample: 64,
        ..ExploreLimits::from_env()
    };
    for seed in limits.seed..limits.seed + 3 {
        let threads = [ops(0), ops(1)];
        let run = ConcurrentRun::record(&Slots, "pool", &[Op::Put(0, 1)], &threads, seed);
        let run = run.unwrap();
        let report = Explorer::new(&Slots, limits).explore(&run);
        println!("shared\n{report}");
        assert!(report.is_clean(), "{report}");
        assert!(report.images() > 100, "{report}");
    }
}
