//! The real pool under the explorer: creation, opening, allocating, freeing, large blocks, moved
//! references, a full pool, and crashes of all that and of its recovery.
//!
//! `GABION_CRASH_OPS` is the number of operations that are drawn, three times; see
//! [`Limits::from_env`] for the others.

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use super::super::{Act, Explorer, Limits, Mutant, Outcome, Run, Stage, Subject};
use crate::pmem::{
    Claim, Medium, PAtomicU64, POff, Pool, PoolOptions, PoolStats, ROOT_HINT, Reachable, Reserved,
    Retiring,
};
use crate::seeded::Random;

/// Slots of the directory, which is the root block: each a word with the offset of a block.
const SLOTS: u64 = 6;

/// A directory of blocks in a pool.
struct Directory {
    bytes: u64,
    heaps: u32,
    /// Bytes that blocks may use, in use or not: always the same.
    space: OnceLock<u64>,
}

#[derive(Clone, Debug)]
enum Op {
    /// A new block in a slot; the one before it is freed.
    Put { slot: u64, size: u64, value: u64 },
    /// The same, but the old block waits for its readers.
    PutLazily { slot: u64, size: u64, value: u64 },
    /// The slot's block is freed.
    Delete { slot: u64 },
    /// Blocks are reserved and announced as retired, and nothing comes of it.
    GiveUp { size: u64, slot: u64 },
    /// Two blocks are published by one store: the second is referred to by the first.
    PutTwo { slot: u64, size: u64, value: u64 },
    /// The directory moves to a new block, and with it all references.
    Move,
    /// Blocks that wait for readers are freed.
    Collect,
    /// All slots are empty, so all space but the directory's must be free.
    Empty,
}

/// Size as asked for, value, and the value of the block behind it or 0, by slot.
type Content = BTreeMap<u64, (u64, u64, u64)>;

/// Bytes of a chunk.
const CHUNK: u64 = 4096;

/// Bytes of the second of two blocks.
const SECOND: u64 = 48;

/// A hint with this bit is the offset of a slot whose block refers to the one in question.
const BEHIND: u64 = 1 << 60;

/// Whether a block is referred to by a slot, or by the block that a slot refers to.
fn is_reachable(medium: &Medium, claim: Claim) -> bool {
    let refers = |at: u64| {
        let word: Option<&PAtomicU64> = medium.try_at(POff::new(at));
        // ORDER: Relaxed: one thread.
        word.map_or(0, |word| word.load(medium, Ordering::Relaxed))
    };
    if claim.hint & BEHIND == 0 {
        return refers(claim.hint) == claim.block.raw();
    }
    let first = refers(claim.hint & !BEHIND);
    first != 0 && refers(first + 16) == claim.block.raw()
}

impl Directory {
    fn options(&self, stage: &Stage) -> PoolOptions {
        PoolOptions {
            layout: 77,
            heaps: self.heaps,
            chunk_bytes: CHUNK,
            reachable: Reachable::ask_fn(is_reachable),
            watcher: Some(stage.watcher().clone()),
            ..PoolOptions::default()
        }
    }

    fn slot(pool: &Pool, slot: u64) -> &PAtomicU64 {
        pool.at(pool.root::<PAtomicU64>().element(slot))
    }

    fn load(pool: &Pool, slot: u64) -> u64 {
        // ORDER: Relaxed: one thread.
        Directory::slot(pool, slot).load(pool, Ordering::Relaxed)
    }

    /// Fills a block: its size as asked for, its value and the block behind it at its begin, and
    /// the value at its end.
    fn fill(pool: &Pool, at: u64, size: u64, value: u64, next: u64) {
        let words = [size, value, next];
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        pool.write(at, &bytes);
        pool.flush_range(at, 24);
        pool.write(at + size - 8, &value.to_le_bytes());
        pool.flush_range(at + size - 8, 8);
    }

    /// Announces the blocks of a slot as retired.
    fn retire(pool: &Pool, slot: u64) -> crate::Result<Vec<Retiring<'_>>> {
        let hint = pool.offset_of(Directory::slot(pool, slot)).raw();
        let first = Directory::load(pool, slot);
        let mut retired = Vec::new();
        if first != 0 {
            let second: &PAtomicU64 = pool.at(POff::new(first + 16));
            // ORDER: Relaxed: one thread.
            let second = second.load(pool, Ordering::Relaxed);
            retired.push(pool.retire(POff::<u8>::new(first), hint)?);
            if second != 0 {
                retired.push(pool.retire(POff::<u8>::new(second), hint | BEHIND)?);
            }
        }
        Ok(retired)
    }

    fn put(pool: &Pool, op: &Op) -> crate::Result<()> {
        let (slot, size, value) = match *op {
            Op::Put { slot, size, value }
            | Op::PutLazily { slot, size, value }
            | Op::PutTwo { slot, size, value } => (slot, size, value),
            _ => return Ok(()),
        };
        let word = Directory::slot(pool, slot);
        let hint = pool.offset_of(word).raw();
        let new = pool.alloc(size, hint)?;
        let second = match op {
            Op::PutTwo { .. } => Some(pool.alloc(SECOND, hint | BEHIND)?),
            _ => None,
        };
        let old = Directory::retire(pool, slot)?;
        let at = |block: &Reserved<'_>| block.offset::<u8>().raw();
        if let Some(second) = &second {
            Directory::fill(pool, at(second), SECOND, value + 1, 0);
        }
        Directory::fill(pool, at(&new), size, value, second.as_ref().map_or(0, at));
        pool.fence();
        word.store(pool, at(&new), Ordering::Release);
        pool.persist(word);
        new.commit::<u8>();
        if let Some(second) = second {
            second.commit::<u8>();
        }
        for old in old {
            if matches!(op, Op::PutLazily { .. }) {
                old.commit(&pool.enter());
            } else {
                old.commit_now();
            }
        }
        Ok(())
    }

    fn move_root(pool: &Pool) -> crate::Result<()> {
        // The hints of operations before refer to slots that are about to move.
        pool.settle();
        let bytes = SLOTS * 8;
        let new = pool.alloc(bytes, ROOT_HINT)?;
        let old = pool.retire(pool.root::<PAtomicU64>(), ROOT_HINT)?;
        for slot in 0..SLOTS {
            let at = new.offset::<PAtomicU64>().element(slot);
            // ORDER: Relaxed: the fence below, and the root's store, publish it.
            pool.at(at)
                .store(pool, Directory::load(pool, slot), Ordering::Relaxed);
        }
        pool.flush_range(new.offset::<u8>().raw(), bytes);
        pool.fence();
        pool.set_root(new.offset::<PAtomicU64>());
        new.commit::<u8>();
        old.commit_now();
        Ok(())
    }

    fn run(pool: &Pool, op: &Op) -> crate::Result<()> {
        match *op {
            Op::Put { .. } | Op::PutLazily { .. } | Op::PutTwo { .. } => Directory::put(pool, op),
            Op::Delete { slot } => {
                let word = Directory::slot(pool, slot);
                let retired = Directory::retire(pool, slot)?;
                pool.fence();
                word.store(pool, 0, Ordering::Release);
                pool.persist(word);
                for retired in retired {
                    retired.commit_now();
                }
                Ok(())
            }
            Op::GiveUp { size, slot } => {
                let hint = pool.offset_of(Directory::slot(pool, slot)).raw();
                let new = pool.alloc(size, hint)?;
                let second = pool.alloc(size, hint)?;
                let retired = Directory::retire(pool, slot)?;
                drop(new);
                drop(retired);
                drop(second);
                Ok(())
            }
            Op::Move => Directory::move_root(pool),
            Op::Collect => {
                pool.collect();
                Ok(())
            }
            Op::Empty => {
                pool.collect();
                let stats = pool.stats();
                let root = pool.rounded_size(SLOTS * 8);
                assert_eq!(
                    (stats.retired_bytes, stats.used_bytes),
                    (0, root),
                    "{stats:?}"
                );
                assert_eq!(stats.fragmented_bytes + root, CHUNK, "{stats:?}");
                Ok(())
            }
        }
    }
}

fn space(stats: &PoolStats) -> u64 {
    stats.used_bytes + stats.retired_bytes + stats.fragmented_bytes + stats.free_bytes
}

impl Subject for Directory {
    type Op = Op;
    type Structure = Pool;
    type Content = Content;

    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn create(&self, stage: &Stage) -> Result<Pool, String> {
        // What a crash left is wiped, as a file would be made anew.
        let medium = stage.medium();
        medium.zero(0, medium.len());
        medium.fence();
        let pool = Pool::create_in(stage.region(), self.options(stage));
        let pool = pool.map_err(|error| error.to_string())?;
        let root = pool
            .alloc(SLOTS * 8, ROOT_HINT)
            .map_err(|error| error.to_string())?;
        pool.zero(root.offset::<u8>().raw(), SLOTS * 8);
        pool.fence();
        pool.set_root(root.offset::<PAtomicU64>());
        root.commit::<u8>();
        self.space.get_or_init(|| space(&pool.stats()));
        Ok(pool)
    }

    fn open(&self, stage: &Stage) -> Result<Option<Pool>, String> {
        let mut magic = [0; 8];
        stage.medium().read(0, &mut magic);
        if magic == [0; 8] {
            return Ok(None);
        }
        let pool = Pool::open_in(stage.region(), self.options(stage));
        let pool = pool.map_err(|error| error.to_string())?;
        let stats = pool.stats();
        if pool.root::<PAtomicU64>().is_null() {
            if stats.used_blocks != 0 {
                return Err(format!("{} blocks and no root", stats.used_blocks));
            }
            return Ok(None);
        }
        Ok(Some(pool))
    }

    fn close(&self, pool: Pool) -> Result<(), String> {
        pool.close().map_err(|error| error.to_string())
    }

    fn apply(&self, pool: &Pool, op: &Op) -> Result<Outcome, String> {
        match Directory::run(pool, op) {
            Ok(()) => Ok(Outcome::Done),
            Err(crate::Error::PoolFull { .. }) => Ok(Outcome::Refused),
            Err(error) => Err(error.to_string()),
        }
    }

    fn content(&self, pool: &Pool) -> Result<Content, String> {
        let mut content = Content::new();
        let mut blocks = vec![(
            pool.root::<PAtomicU64>().raw(),
            pool.rounded_size(SLOTS * 8),
        )];
        for slot in 0..SLOTS {
            let at = Directory::load(pool, slot);
            if at == 0 {
                continue;
            }
            let word = |at: u64| -> Result<u64, String> {
                let word: Option<&PAtomicU64> = pool.try_at(POff::new(at));
                let word = word.ok_or_else(|| format!("no word at {at:#x}"))?;
                // ORDER: Relaxed: one thread.
                Ok(word.load(pool, Ordering::Relaxed))
            };
            let block = |at: u64| -> Result<(u64, u64, u64), String> {
                let (size, value, next) = (word(at)?, word(at + 8)?, word(at + 16)?);
                if !(24..=pool.len()).contains(&size) {
                    return Err(format!("slot {slot} has a block of {size} bytes"));
                }
                if word(at + size - 8)? != value {
                    return Err(format!("the end of slot {slot} is not that of {value}"));
                }
                Ok((size, value, next))
            };
            let (size, value, next) = block(at)?;
            blocks.push((at, pool.rounded_size(size)));
            let mut behind = 0;
            if next != 0 {
                let (size, value, _) = block(next)?;
                blocks.push((next, pool.rounded_size(size)));
                behind = value;
            }
            content.insert(slot, (size, value, behind));
        }
        let stats = pool.stats();
        let bytes: u64 = blocks.iter().map(|(_, size)| size).sum();
        if (stats.used_blocks, stats.used_bytes) != (blocks.len() as u64, bytes) {
            return Err(format!(
                "{} blocks of {bytes} bytes are reached, {} of {} bytes in use",
                blocks.len(),
                stats.used_blocks,
                stats.used_bytes
            ));
        }
        if self
            .space
            .get()
            .is_some_and(|whole| *whole != space(&stats))
        {
            return Err(format!(
                "space does not add up: {stats:?}, {:?}",
                self.space
            ));
        }
        blocks.sort_unstable();
        if let Some(pair) = blocks
            .windows(2)
            .find(|pair| pair[0].0 + pair[0].1 > pair[1].0)
        {
            return Err(format!("blocks overlap: {pair:?}"));
        }
        Ok(content)
    }

    fn empty(&self) -> Content {
        Content::new()
    }

    fn expect(&self, content: &mut Content, op: &Op) {
        match *op {
            Op::Put { slot, size, value } | Op::PutLazily { slot, size, value } => {
                content.insert(slot, (size, value, 0));
            }
            Op::PutTwo { slot, size, value } => {
                content.insert(slot, (size, value, value + 1));
            }
            Op::Delete { slot } => {
                content.remove(&slot);
            }
            Op::GiveUp { .. } | Op::Move | Op::Collect | Op::Empty => {}
        }
    }

    fn name(&self, op: &Op) -> &'static str {
        match op {
            Op::Put { size, .. } if *size > 2048 => "put-large",
            Op::Put { .. } => "put",
            Op::PutLazily { .. } => "put-lazily",
            Op::Delete { .. } => "delete",
            Op::GiveUp { .. } => "give-up",
            Op::PutTwo { .. } => "put-two",
            Op::Move => "move",
            Op::Collect => "collect",
            Op::Empty => "empty",
        }
    }

    fn probes(&self) -> Vec<Op> {
        let put = |slot, size| Op::Put {
            slot,
            size,
            value: 9000 + size,
        };
        let mut probes = vec![put(0, 48), put(5, 5000), Op::Delete { slot: 0 }, put(1, 48)];
        probes.extend(drain());
        probes.push(put(2, 48));
        probes
    }
}

/// Empties all slots, one after the other.
fn drain() -> impl Iterator<Item = Op> {
    (0..SLOTS)
        .map(|slot| Op::Delete { slot })
        .chain([Op::Empty])
}

fn put(slot: u64, size: u64, value: u64) -> Act<Op> {
    Act::Op(Op::Put { slot, size, value })
}

/// Small and large blocks, new, replaced and freed, at once and later.
fn blocks() -> Vec<Act<Op>> {
    vec![
        put(0, 48, 1),
        put(1, 48, 2),
        put(0, 200, 3),
        Act::Op(Op::Delete { slot: 1 }),
        put(2, 6000, 4),
        put(2, 9000, 5),
        Act::Op(Op::Delete { slot: 2 }),
        Act::Op(Op::PutTwo {
            slot: 3,
            size: 64,
            value: 10,
        }),
        Act::Op(Op::PutTwo {
            slot: 3,
            size: 32,
            value: 20,
        }),
        Act::Op(Op::PutLazily {
            slot: 3,
            size: 104,
            value: 30,
        }),
        Act::Op(Op::PutLazily {
            slot: 0,
            size: 48,
            value: 31,
        }),
        Act::Op(Op::Collect),
        Act::Op(Op::GiveUp { slot: 0, size: 48 }),
        Act::Op(Op::GiveUp {
            slot: 1,
            size: 5000,
        }),
        put(0, 48, 40),
        Act::Reopen,
        put(0, 48, 41),
        Act::Op(Op::Delete { slot: 3 }),
    ]
}

/// References move while intents of operations before are not erased yet.
fn moves() -> Vec<Act<Op>> {
    vec![
        put(0, 48, 1),
        Act::Op(Op::Move),
        put(0, 64, 2),
        put(1, 64, 3),
        Act::Op(Op::Delete { slot: 0 }),
        Act::Op(Op::Move),
        put(4, 304, 4),
        Act::Op(Op::Move),
        Act::Op(Op::Move),
        Act::Reopen,
        Act::Op(Op::Move),
    ]
}

/// Operations that are given up, each followed by ones that use what it had in hand.
fn given_up() -> Vec<Act<Op>> {
    let mut acts = vec![put(0, 48, 1), put(1, 48, 2)];
    for round in 0..4 {
        let give_up = Act::Op(Op::GiveUp {
            slot: round % 2,
            size: 48,
        });
        acts.extend([
            give_up.clone(),
            Act::Op(Op::Move),
            put(2 + round % 2, 48, 10 + round),
            put(4 + round % 2, 48, 20 + round),
            Act::Op(Op::Delete {
                slot: 2 + round % 2,
            }),
            give_up,
            put(4 + round % 2, 48, 30 + round),
            put(2 + round % 2, 48, 40 + round),
        ]);
    }
    acts
}

/// Blocks until there is no space, and on with what is freed.
fn full() -> Vec<Act<Op>> {
    let mut acts: Vec<Act<Op>> = (0..SLOTS)
        .map(|slot| put(slot, 12_000, 100 + slot))
        .collect();
    acts.extend([
        put(5, 56, 200),
        put(5, 3000, 201),
        Act::Op(Op::PutTwo {
            slot: 4,
            size: 12_000,
            value: 202,
        }),
        Act::Op(Op::Delete { slot: 0 }),
        put(0, 2504, 203),
        put(1, 12_000, 204),
    ]);
    acts
}

fn small() -> Directory {
    Directory {
        bytes: 64 << 10,
        heaps: 1,
        space: OnceLock::new(),
    }
}

/// Operations drawn from a seed.
fn drawn(seed: u64, count: usize) -> Vec<Act<Op>> {
    let mut random = Random::new(seed);
    let mut acts = Vec::new();
    for value in (1000..).step_by(2).take(count) {
        let slot = random.word() % SLOTS;
        let size = [32, 48, 48, 104, 304, 2048, 2504, 9000][random.index(8)];
        let act = match random.below(16) {
            0..6 => put(slot, size, value),
            6 | 7 => Act::Op(Op::PutLazily { slot, size, value }),
            8 | 9 => Act::Op(Op::PutTwo { slot, size, value }),
            10 | 11 => Act::Op(Op::Delete { slot }),
            12 => Act::Op(Op::GiveUp { slot, size }),
            13 => Act::Op(Op::Move),
            14 => Act::Op(Op::Collect),
            _ if random.below(4) == 0 => {
                acts.extend(drain().map(Act::Op));
                continue;
            }
            _ => Act::Reopen,
        };
        acts.push(act);
    }
    acts
}

fn assert_pool_is_clean(name: &str, acts: &[Act<Op>]) {
    let subject = small();
    let run = Run::record(&subject, name, &[], acts).unwrap();
    let limits = Limits {
        nested_probes: 1,
        ..Limits::from_env()
    };
    let report = Explorer::new(&subject, limits).explore(&run);
    println!("{name}\n{report}");
    assert!(report.is_clean(), "{report}");
}

#[test]
fn blocks_are_neither_lost_nor_given_out_twice() {
    assert_pool_is_clean("blocks", &blocks());
}

#[test]
fn references_may_move_once_the_pool_is_settled() {
    assert_pool_is_clean("moves", &moves());
}

#[test]
fn what_is_given_up_leaves_nothing_behind() {
    assert_pool_is_clean("given up", &given_up());
}

#[test]
fn a_full_pool_stays_as_it_is() {
    assert_pool_is_clean("full", &full());
}

#[test]
fn drawn_operations_are_clean() {
    let limits = Limits::from_env();
    let count = std::env::var("GABION_CRASH_OPS").map_or(40, |text| text.parse().unwrap());
    for seed in limits.seed..limits.seed + 3 {
        assert_pool_is_clean(&format!("drawn from {seed:#x}"), &drawn(seed, count));
    }
}

/// Whoever allocates must flush the content and fence, and flush the publish and fence. What
/// the pool does besides on its own account is partly there for speed: a state that is flushed by
/// `commit` need not be waited for later.
#[test]
fn every_flush_and_fence_that_the_protocol_asks_for_is_needed() {
    const SOURCE: &str = include_str!("pool.rs");
    const OF_THE_POOL: [&str; 6] = ["commit", "drop(", "collect", "settle", "alloc(", "retire("];
    let subject = small();
    let limits = Limits {
        sample: 128,
        nested_all: 32,
        nested_sample: 8,
        ..Limits::default()
    };
    let mut explorer = Explorer::new(&subject, limits);
    let runs: Vec<_> = [
        ("blocks", blocks()),
        ("moves", moves()),
        ("given up", given_up()),
    ]
    .map(|(name, acts)| Run::record(&subject, name, &[], &acts).unwrap())
    .into();
    for run in &runs {
        let report = explorer.explore(run);
        assert!(report.is_clean(), "{report}");
    }
    let report = explorer.mutants(&runs.iter().collect::<Vec<_>>());
    println!("MUTANTS {report}");
    for survivor in report.survivors() {
        let Mutant::Place(place, _) = survivor else {
            continue;
        };
        let line = SOURCE.lines().nth(place.line() as usize - 1).unwrap_or("");
        let is_here = place.file().ends_with("tests/pool.rs") && !line.contains("medium.");
        let is_the_pools = OF_THE_POOL.iter().any(|word| line.contains(word));
        assert!(!is_here || is_the_pools, "{survivor} survived: {line}");
    }
    assert!(report.caught() * 5 >= report.tried.len() * 2, "{report}");
}
