//! Workloads from a seed, for crashes and faults.

use std::ops::Bound;

use gabion::Engine;

use super::{Change, KEYSPACES, Operation, SeededRng, bytes_of};

/// One step of a workload.
#[derive(Clone)]
pub(crate) enum Step {
    /// A write of one operation, or a batch; at `Sync`, or at the store's durability.
    Write {
        operations: Vec<Operation>,
        sync: bool,
    },
    /// Puts of one keyspace, ascending, as an ingest.
    Ingest(Vec<Operation>),
    /// `persist(Sync)`.
    Persist,
    /// All MemTables to tables.
    Flush,
    /// Background work until none is due.
    WaitIdle,
    /// A full compaction of one keyspace.
    Compact(usize),
    /// A drop of a keyspace, of which another one is made at once.
    DropKeyspace(usize),
    /// A clean close and a new open.
    Reopen,
}

/// Steps made from a seed.
#[derive(Clone)]
pub(crate) struct Workload {
    pub(crate) steps: Vec<Step>,
}

impl Workload {
    /// About `writes` writes and a few other steps between them.
    pub(crate) fn new(seed: u64, writes: usize) -> Workload {
        let mut random = SeededRng::new(seed);
        let keys = 4 + random.below(60);
        let sync_one_in = [2, 8, 1 << 40][random.index(3)];
        let mut steps = Vec::new();
        for _ in 0..writes {
            let count = if random.one_in(4) {
                1 + random.below(12)
            } else {
                1
            };
            let operations = (0..count).map(|_| operation(&mut random, keys)).collect();
            steps.push(Step::Write {
                operations,
                sync: random.one_in(sync_one_in),
            });
            match random.below(60) {
                0 => steps.push(Step::Persist),
                1 => steps.push(Step::Flush),
                2 => steps.push(Step::WaitIdle),
                3 => steps.push(Step::Reopen),
                4 => steps.push(Step::Compact(random.index(KEYSPACES.len()))),
                _ => {}
            }
        }
        Workload { steps }
    }

    /// As [`Workload::new`], of keys that ascend and are mostly flushed as soon as they are
    /// written: small tables that do not overlap, with a large one here and there.
    pub(crate) fn appending(seed: u64, writes: usize) -> Workload {
        let mut random = SeededRng::new(seed);
        let sync_one_in = [2, 8, 1 << 40][random.index(3)];
        let flush_one_in = 1 + random.below(2);
        let mut steps = Vec::new();
        let mut next = 0;
        for _ in 0..writes {
            let keyspace = random.index(2);
            let count = 1 + random.below(3);
            let mut operations: Vec<_> = (next..next + count)
                .map(|number| appended(&mut random, keyspace, number))
                .collect();
            next += count;
            if random.one_in(8) {
                let key = appended_key(random.below(next));
                operations.push(Operation::new(keyspace, key, None));
            } else if random.one_in(16) {
                operations.push(operation(&mut random, 60));
            }
            steps.push(Step::Write {
                operations,
                sync: random.one_in(sync_one_in),
            });
            if random.one_in(flush_one_in) {
                steps.push(Step::Flush);
            }
            match random.below(60) {
                0 => steps.push(Step::Persist),
                1 | 2 => steps.push(Step::WaitIdle),
                3 => steps.push(Step::Reopen),
                4 => steps.push(Step::Compact(keyspace)),
                _ => {}
            }
        }
        Workload { steps }
    }

    /// As [`Workload::new`], with an ingest after one in five writes: of few keys or of many, often
    /// the same that were written before.
    pub(crate) fn ingesting(seed: u64, writes: usize) -> Workload {
        let mut random = SeededRng::new(seed ^ 0x1_9e57);
        let mut workload = Workload::new(seed, writes);
        let mut steps = Vec::new();
        for step in workload.steps {
            let is_write = matches!(step, Step::Write { .. });
            steps.push(step);
            if is_write && random.one_in(5) {
                steps.push(Step::Ingest(ingested(&mut random)));
            }
        }
        workload.steps = steps;
        workload
    }

    /// As [`Workload::new`], with a drop of a keyspace after one in six writes.
    pub(crate) fn dropping(seed: u64, writes: usize) -> Workload {
        let mut random = SeededRng::new(seed ^ 0xd_209);
        let mut workload = Workload::new(seed, writes);
        let mut steps = Vec::new();
        for step in workload.steps {
            let is_write = matches!(step, Step::Write { .. });
            steps.push(step);
            if is_write && random.one_in(6) {
                // The first is the default one, which stays.
                steps.push(Step::DropKeyspace(1 + random.index(KEYSPACES.len() - 1)));
            }
        }
        workload.steps = steps;
        workload
    }

    /// Without what an engine cannot do.
    pub(crate) fn within(mut self, engine: Engine) -> Workload {
        if engine.capabilities().ordered {
            return self;
        }
        for step in &mut self.steps {
            if let Step::Write { operations, .. } = step {
                let is_range = |change: &Change| matches!(change, Change::DeleteRange(_));
                operations.retain(|operation| !is_range(&operation.change));
            }
        }
        self
    }
}

fn appended_key(number: u64) -> Vec<u8> {
    format!("m{number:08}").into_bytes()
}

/// A put of a key above all that were put before.
fn appended(random: &mut SeededRng, keyspace: usize, number: u64) -> Operation {
    let len = match random.below(12) {
        0 | 1 => 4_000 + random.index(9_000),
        _ => random.index(150),
    };
    let value = bytes_of(random.word(), len);
    Operation::new(keyspace, appended_key(number), Some(value))
}

/// Puts of one keyspace whose keys ascend.
fn ingested(random: &mut SeededRng) -> Vec<Operation> {
    let keyspace = random.index(KEYSPACES.len());
    let count = [0, 1, 3, 12, 60][random.index(5)];
    let len_max = [20, 200, 1_500][random.index(3)];
    let mut puts = std::collections::BTreeMap::new();
    for _ in 0..count {
        let put = operation(random, 60);
        if let Change::Put(key, _) = put.change {
            puts.insert(key, bytes_of(random.word(), random.index(len_max)));
        }
    }
    let puts = puts.into_iter();
    puts.map(|(key, value)| Operation::new(keyspace, key, Some(value)))
        .collect()
}

fn operation(random: &mut SeededRng, keys: u64) -> Operation {
    let number = random.below(keys);
    let key = match number % 5 {
        0 => format!("{number}").into_bytes(),
        1 => format!("a common prefix/{number:04}").into_bytes(),
        2 if number == 2 => Vec::new(),
        2 => [&[0xff, 0xff][..], &number.to_le_bytes()].concat(),
        3 => vec![u8::try_from(number % 251).expect("below 251"); 40],
        _ => format!("k{number:08}").into_bytes(),
    };
    let keyspace = random.index(KEYSPACES.len() + 2).saturating_sub(2);
    if random.one_in(30) {
        let upper = [key.clone(), vec![0x40]].concat();
        let whole = (Bound::Unbounded, Bound::Unbounded);
        let range = match random.below(4) {
            0 => (Bound::Excluded(key), Bound::Unbounded),
            1 => (Bound::Unbounded, Bound::Included(key)),
            2 => (Bound::Included(key), Bound::Excluded(upper)),
            _ if random.one_in(3) => whole,
            _ => (
                Bound::Included(b"a".to_vec()),
                Bound::Excluded(b"l".to_vec()),
            ),
        };
        return Operation {
            keyspace,
            change: Change::DeleteRange(range),
        };
    }
    let value = match random.below(40) {
        0..=6 => None,
        7 => Some(0),
        8 => Some(3_000 + random.index(20_000)),
        9..=14 => Some(random.index(2_000)),
        _ => Some(random.index(150)),
    };
    let value = value.map(|len| bytes_of(random.word(), len));
    Operation::new(keyspace, key, value)
}
