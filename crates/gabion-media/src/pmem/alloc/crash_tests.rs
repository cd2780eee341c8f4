//! The allocator under the crash explorer: at no moment of any operation does a loss of power lose
//! a block or leave one with two owners, and recovery may be cut short too.
//!
//! The structure is the simplest that has all cases: words that refer to blocks. The blocks differ
//! in size and content, so that a block with two owners is seen.

use std::sync::atomic::Ordering;

use super::super::explore::{
    ExploreLimits, Explorer, HistoryStep, OpOutcome, Run, Subject, SubjectMedium,
};
use super::super::{PAtomicU64, POff, Pool, PoolOptions, ROOT_HINT, Reserved};
use crate::{Error, PoolFault};

const SLOTS: usize = 5;

/// Words that refer to blocks, in one block that is the pool's root.
struct Boxes {
    /// Whether operations are settled before their references move.
    settles: bool,
    /// Bytes for which the pool keeps a run back.
    keeps_run: u64,
}

#[derive(Clone, Debug)]
enum Op {
    /// A new block for an empty word, or in the place of the word's block.
    Put { slot: usize, size: u64, fill: u8 },
    /// As that, in the run that is kept back.
    PutKept { slot: usize, size: u64, fill: u8 },
    /// Frees the block of a word, if it has one, once its readers are gone.
    Take(usize),
    /// Frees the block of a word, if it has one, at once.
    TakeNow(usize),
    /// Moves a reference to an empty word.
    Move(usize, usize),
    /// Reserves a block and gives it up.
    GiveUp(u64),
    /// Announces that a block will go, and keeps it.
    Keep(usize),
    /// Fills an empty word on another thread, which frees first what can be freed, while this one
    /// has reserved blocks that it gives up afterwards.
    PutMeanwhile { slot: usize, size: u64, fill: u8 },
    /// Frees what can be freed.
    Collect,
}

const SOUND: Boxes = Boxes {
    settles: true,
    keeps_run: 0,
};

type Content = Vec<Option<(u64, u8)>>;

fn words(pool: &Pool) -> &[PAtomicU64] {
    pool.slice(pool.root::<PAtomicU64>(), SLOTS)
}

fn make_root(pool: &Pool) -> Result<(), String> {
    let size = SLOTS as u64 * 8;
    let root = pool
        .alloc(size, ROOT_HINT)
        .map_err(|error| error.to_string())?;
    pool.zero(root.offset::<u8>().raw(), size);
    pool.fence();
    pool.set_root(root.offset::<PAtomicU64>());
    root.commit::<PAtomicU64>();
    Ok(())
}

impl Boxes {
    fn options(&self, stage: &SubjectMedium) -> PoolOptions {
        PoolOptions {
            heaps: 1,
            chunk_bytes: 4096,
            keeps_run: self.keeps_run,
            watcher: Some(stage.watcher().clone()),
            ..PoolOptions::default()
        }
    }

    /// The words change by this alone, so a crash sees one of the two values.
    fn publish(pool: &Pool, slot: usize, block: u64) {
        words(pool)[slot].store_persist(pool, block, Ordering::Release);
    }

    fn put(pool: &Pool, slot: usize, size: u64, fill: u8) -> Result<(), Error> {
        let hint = pool.offset_of(&words(pool)[slot]).raw();
        Boxes::put_into(pool.alloc(size, hint)?, pool, slot, (size, fill))
    }

    fn put_into(
        new: Reserved<'_>,
        pool: &Pool,
        slot: usize,
        (size, fill): (u64, u8),
    ) -> Result<(), Error> {
        let word = &words(pool)[slot];
        let hint = pool.offset_of(word).raw();
        let before = word.load(pool, Ordering::Acquire);
        let old = match before {
            0 => None,
            before => Some(pool.retire(POff::<u8>::new(before), hint)?),
        };
        let at = new.offset::<u8>().raw();
        pool.write(at, &(size << 8 | u64::from(fill)).to_le_bytes());
        pool.flush_range(at, 8);
        let rest: Vec<u8> = vec![fill; usize::try_from(size).unwrap_or(8) - 8];
        pool.write_past_cache(at + 8, &rest);
        pool.fence();
        Boxes::publish(pool, slot, at);
        new.commit::<u8>();
        if let Some(old) = old {
            old.commit(&pool.enter());
        }
        Ok(())
    }

    fn put_meanwhile(pool: &Pool, slot: usize, size: u64, fill: u8) -> Result<(), Error> {
        let hint = pool.offset_of(&words(pool)[0]).raw();
        let reserved: Result<Vec<_>, Error> = (0..4).map(|_| pool.alloc(40, hint)).collect();
        let reserved = reserved?;
        let put = || {
            pool.collect();
            Boxes::put(pool, slot, size, fill)
        };
        let done = std::thread::scope(|scope| scope.spawn(put).join());
        drop(reserved);
        done.unwrap()
    }

    fn take(pool: &Pool, slot: usize, is_now: bool) -> Result<(), Error> {
        let word = &words(pool)[slot];
        let block = POff::<u8>::new(word.load(pool, Ordering::Acquire));
        if block.is_null() {
            return Ok(());
        }
        let old = pool.retire(block, pool.offset_of(word).raw())?;
        pool.fence();
        Boxes::publish(pool, slot, 0);
        if is_now {
            old.commit_now();
        } else {
            old.commit(&pool.enter());
        }
        Ok(())
    }
}

impl Subject for Boxes {
    type Op = Op;
    type Structure = Pool;
    type Content = Content;

    fn bytes(&self) -> u64 {
        56 << 10
    }

    fn create(&self, stage: &SubjectMedium) -> Result<Pool, String> {
        let pool = match Pool::open_in(stage.region(), self.options(stage)) {
            Err(Error::Pool {
                fault: PoolFault::Incomplete,
                ..
            }) => Pool::create_in(stage.region(), self.options(stage)),
            opened => opened,
        };
        let pool = pool.map_err(|error| error.to_string())?;
        if pool.root::<PAtomicU64>().is_null() {
            make_root(&pool)?;
        }
        Ok(pool)
    }

    fn open(&self, stage: &SubjectMedium) -> Result<Option<Pool>, String> {
        match Pool::open_in(stage.region(), self.options(stage)) {
            Ok(pool) if pool.root::<PAtomicU64>().is_null() => Ok(None),
            Ok(pool) => Ok(Some(pool)),
            Err(Error::Pool {
                fault: PoolFault::Incomplete,
                ..
            }) => Ok(None),
            Err(error) => Err(error.to_string()),
        }
    }

    fn close(&self, pool: Pool) -> Result<(), String> {
        pool.close().map_err(|error| error.to_string())
    }

    fn apply(&self, pool: &Pool, op: &Op) -> Result<OpOutcome, String> {
        let done = match *op {
            Op::Put { slot, size, fill } => Boxes::put(pool, slot, size, fill),
            Op::PutKept { slot, size, fill } => {
                let hint = pool.offset_of(&words(pool)[slot]).raw();
                let new = pool.alloc_kept(size, hint);
                let new = new.map_err(|error| format!("nothing is kept back: {error}"))?;
                Boxes::put_into(new, pool, slot, (size, fill))
            }
            Op::Take(slot) => Boxes::take(pool, slot, false),
            Op::TakeNow(slot) => Boxes::take(pool, slot, true),
            Op::Move(from, to) => {
                if self.settles {
                    pool.settle();
                }
                // Both words lie in one line, whose stores arrive in their order: for a moment both
                // refer to the block.
                let block = words(pool)[from].load(pool, Ordering::Acquire);
                words(pool)[to].store(pool, block, Ordering::Release);
                words(pool)[from].store(pool, 0, Ordering::Release);
                pool.persist(words(pool));
                Ok(())
            }
            Op::GiveUp(size) => pool
                .alloc(size, pool.offset_of(&words(pool)[0]).raw())
                .map(drop),
            Op::Keep(slot) => {
                let word = &words(pool)[slot];
                let block = POff::<u8>::new(word.load(pool, Ordering::Acquire));
                pool.retire(block, pool.offset_of(word).raw()).map(drop)
            }
            Op::PutMeanwhile { slot, size, fill } => Boxes::put_meanwhile(pool, slot, size, fill),
            Op::Collect => {
                pool.collect();
                Ok(())
            }
        };
        match done {
            Ok(()) => Ok(OpOutcome::Done),
            Err(Error::PoolFull { .. }) => Ok(OpOutcome::Refused),
            Err(error) => Err(error.to_string()),
        }
    }

    fn content(&self, pool: &Pool) -> Result<Content, String> {
        let mut content = Content::new();
        let mut blocks = Vec::new();
        for word in words(pool) {
            let at = word.load(pool, Ordering::Acquire);
            // A move that was cut short left both words; the twin counts the block once.
            if at == 0 || blocks.contains(&at) {
                content.push(None);
                continue;
            }
            blocks.push(at);
            let head: &PAtomicU64 = pool.try_at(POff::new(at)).ok_or("a wild reference")?;
            let head = head.load(pool, Ordering::Relaxed);
            let (size, fill) = (head >> 8, head.to_le_bytes()[0]);
            let rest = usize::try_from(size)
                .ok()
                .filter(|size| (8..=20_000).contains(size));
            let rest = rest.ok_or_else(|| format!("a block of {size} bytes"))? - 8;
            if !pool.equals(at + 8, &vec![fill; rest]) {
                return Err(format!("the block of {size} bytes at {at:#x} is damaged"));
            }
            content.push(Some((size, fill)));
        }
        let used = pool.stats().used_blocks;
        if used != 1 + blocks.len() as u64 {
            return Err(format!(
                "{used} blocks in use, {} and the root reachable",
                blocks.len()
            ));
        }
        Ok(content)
    }

    fn empty(&self) -> Content {
        vec![None; SLOTS]
    }

    fn expect(&self, content: &mut Content, op: &Op) {
        match *op {
            Op::Put { slot, size, fill }
            | Op::PutKept { slot, size, fill }
            | Op::PutMeanwhile { slot, size, fill } => {
                content[slot] = Some((size, fill));
            }
            Op::Take(slot) | Op::TakeNow(slot) => content[slot] = None,
            Op::Move(from, to) => content.swap(from, to),
            Op::GiveUp(_) | Op::Keep(_) | Op::Collect => {}
        }
    }

    fn name(&self, op: &Op) -> &'static str {
        match op {
            Op::Put { .. } => "put",
            Op::PutKept { .. } => "put kept",
            Op::Take(_) => "take",
            Op::TakeNow(_) => "take now",
            Op::Move(..) => "move",
            Op::GiveUp(_) => "give up",
            Op::Keep(_) => "keep",
            Op::PutMeanwhile { .. } => "put meanwhile",
            Op::Collect => "collect",
        }
    }

    /// New blocks of the same sizes: one that was free and is in use would be overwritten.
    fn probes(&self) -> Vec<Op> {
        if self.keeps_run > 0 {
            let (slot, size, fill) = (0, self.keeps_run, 0xf4);
            let put = Op::PutKept { slot, size, fill };
            // One that may be there goes first.
            return vec![Op::TakeNow(0), put.clone(), Op::TakeNow(0), put];
        }
        vec![
            Op::Put {
                slot: 4,
                size: 40,
                fill: 0xf1,
            },
            Op::Put {
                slot: 3,
                size: 5000,
                fill: 0xf2,
            },
            Op::Put {
                slot: 4,
                size: 48,
                fill: 0xf3,
            },
            Op::TakeNow(3),
        ]
    }
}

fn put(slot: usize, size: u64, fill: u8) -> HistoryStep<Op> {
    HistoryStep::Op(Op::Put { slot, size, fill })
}

/// Small blocks and whole chunks come, are replaced, and go in each way.
fn small_and_large() -> Vec<HistoryStep<Op>> {
    vec![
        put(0, 40, 1),
        put(1, 5000, 2),
        put(0, 40, 3),
        put(1, 5000, 4),
        HistoryStep::Op(Op::Take(0)),
        HistoryStep::Op(Op::Collect),
        put(2, 40, 5),
        put(3, 48, 6),
        HistoryStep::Op(Op::TakeNow(1)),
        put(0, 9000, 7),
        HistoryStep::Op(Op::TakeNow(0)),
        HistoryStep::Reopen,
        put(0, 40, 8),
    ]
}

/// References move, and operations are given up, between others.
fn moved_and_given_up() -> Vec<HistoryStep<Op>> {
    vec![
        put(0, 40, 1),
        put(1, 40, 2),
        HistoryStep::Op(Op::Move(0, 2)),
        put(0, 40, 9),
        HistoryStep::Op(Op::Keep(0)),
        HistoryStep::Op(Op::GiveUp(40)),
        HistoryStep::Op(Op::TakeNow(1)),
        put(1, 40, 3),
        HistoryStep::Op(Op::Keep(1)),
        HistoryStep::Op(Op::Take(1)),
        HistoryStep::Op(Op::Collect),
        put(2, 40, 4),
        HistoryStep::Op(Op::Take(2)),
    ]
}

#[test]
fn no_crash_loses_or_doubles_a_block() {
    let mut explorer = Explorer::new(&SOUND, ExploreLimits::from_env());
    let mut report =
        explorer.explore(&Run::record(&SOUND, "blocks", &[], &small_and_large()).unwrap());
    report
        .add(explorer.explore(&Run::record(&SOUND, "moves", &[], &moved_and_given_up()).unwrap()));
    println!("{report}");
    assert!(report.is_clean(), "{report}");
    assert!(report.images() > 1000, "{report}");
}

fn put_kept(slot: usize, size: u64, fill: u8) -> HistoryStep<Op> {
    HistoryStep::Op(Op::PutKept { slot, size, fill })
}

/// Blocks of a run that is kept back come and go in a full pool. Wherever the power fails, there is
/// one again once the block is freed that may have been left there.
#[test]
fn no_crash_loses_the_run_that_is_kept_back() {
    let boxes = Boxes {
        keeps_run: 12_000,
        ..SOUND
    };
    let setup = [(1, 20_000), (2, 9000), (4, 5000)];
    let setup = setup.map(|(slot, size)| Op::Put {
        slot,
        size,
        fill: 9,
    });
    let acts = [
        put_kept(0, 5000, 1),
        HistoryStep::Op(Op::Take(0)),
        put_kept(0, 12_000, 2),
        put(3, 5000, 3),
        HistoryStep::Reopen,
        HistoryStep::Op(Op::TakeNow(0)),
        put_kept(0, 9000, 4),
        HistoryStep::Op(Op::TakeNow(2)),
        put(3, 9000, 5),
        HistoryStep::Restart,
        HistoryStep::Op(Op::Take(0)),
        put_kept(0, 4000, 6),
        HistoryStep::Op(Op::TakeNow(0)),
    ];
    let run = Run::record(&boxes, "kept", &setup, &acts).unwrap();
    let report = Explorer::new(&boxes, ExploreLimits::from_env()).explore(&run);
    println!("{report}");
    assert!(report.is_clean(), "{report}");
    assert!(report.images() > 500, "{report}");
}

/// What was done on one thread, before references move on another.
fn moved_elsewhere() -> Vec<HistoryStep<Op>> {
    vec![
        put(0, 40, 1),
        HistoryStep::Elsewhere(Op::Move(0, 2)),
        HistoryStep::Op(Op::Keep(2)),
        HistoryStep::Elsewhere(Op::Move(2, 1)),
    ]
}

/// The intent of a block's retirement gives its slot to another thread's, which has flushed its own
/// and not fenced yet when the block is free and comes again elsewhere.
fn overwritten_intent() -> Vec<HistoryStep<Op>> {
    vec![
        put(0, 5000, 1),
        HistoryStep::Elsewhere(Op::Put {
            slot: 2,
            size: 48,
            fill: 2,
        }),
        HistoryStep::Elsewhere(Op::Put {
            slot: 3,
            size: 48,
            fill: 3,
        }),
        HistoryStep::Elsewhere(Op::Take(0)),
        HistoryStep::Op(Op::Move(2, 0)),
        HistoryStep::Op(Op::PutMeanwhile {
            slot: 1,
            size: 5000,
            fill: 3,
        }),
    ]
}

#[test]
fn an_intent_that_is_being_overwritten_is_gone_before_its_block_comes_again() {
    let run = Run::record(&SOUND, "overwritten", &[], &overwritten_intent()).unwrap();
    let report = Explorer::new(&SOUND, ExploreLimits::default()).explore(&run);
    assert!(report.is_clean(), "{report}");
}

/// CCEH: entries move while splits and inserts are half done. That is what settling is for.
#[test]
fn references_that_move_unsettled_are_lost() {
    for settles in [true, false] {
        let boxes = Boxes { settles, ..SOUND };
        let run = Run::record(&boxes, "moved", &[], &moved_elsewhere()).unwrap();
        let report = Explorer::new(&boxes, ExploreLimits::default()).explore(&run);
        assert_eq!(report.is_clean(), settles, "{report}");
    }
}

/// Whoever settles operations of another thread flushes and fences what that thread left; and what
/// is given up is gone before its reference moves.
#[test]
fn what_settling_and_giving_up_flush_is_needed() {
    let run = Run::record(&SOUND, "moved", &[], &moved_elsewhere()).unwrap();
    let mut explorer = Explorer::new(&SOUND, ExploreLimits::default());
    assert!(explorer.explore(&run).is_clean());
    let report = explorer.mutants(&[&run]);
    let root = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    for name in [
        "flush in apply of pmem/alloc/crash_tests.rs: pool.settle();",
        "fence in apply of pmem/alloc/crash_tests.rs: pool.settle();",
        "flush in drop of pmem/pool/block.rs: self.pool.shared.allocator.cancel(&self.ticket);",
        "fence in drop of pmem/pool/block.rs: self.pool.shared.allocator.cancel(&self.ticket);",
    ] {
        let mut tried = report.tried.iter();
        let tried = tried.find(|tried| tried.mutant.in_source(root) == name);
        let is_caught = tried.is_some_and(|tried| tried.caught.is_some());
        assert!(is_caught, "{name}: {report}");
    }
}
