//! Images that a failure of the power may leave of a strict store: nothing that has returned is
//! lost, nothing is there by halves, no page is lost, and the store goes on.
//!
//! `GABION_CRASH_ALL`, and with it `GABION_CRASH_SAMPLE` and `GABION_CRASH_DEPTH`, make the tests
//! longer, and so do more `GABION_CRASH_HISTORIES`.

use std::collections::BTreeMap;
use std::ops::Range;

use gabion_media::pmem::explore::{
    ExploreLimits, Explorer, HistoryStep, OpOutcome, Report, Run, Subject, SubjectMedium,
};
use gabion_media::pmem::{Pool, PoolOptions};
use gabion_media::{Error as MediaError, PoolFault};

use super::super::{Durability, Options, Scmkv};
use super::{check, content, key, number_of, small, value};
use crate::suite::crash::{from_env, limits};
use crate::{Error, Seed};

/// An operation with the numbers of a key and of a value.
#[derive(Clone, Copy, Debug)]
pub(super) enum Op {
    Put(u64, u64),
    /// A put that is strict even in a relaxed store.
    PutStrict(u64, u64),
    /// A put into what is kept for copies.
    Copy(u64, u64),
    Delete(u64),
    Get(u64),
    Collect,
    Enlarge,
    Persist,
}

/// What the explorer is given.
pub(super) struct Small {
    pub(super) durability: Durability,
    pub(super) bytes: u64,
    pub(super) keeps_for_copies: bool,
}

/// What an operation told of the value before: whether there was none.
#[derive(Clone, Copy, Debug)]
pub(super) enum Told {
    Nothing,
    Missing,
    Value(Option<u64>),
}

impl Small {
    fn pool_options(&self, stage: &SubjectMedium) -> PoolOptions {
        PoolOptions {
            heaps: 1,
            chunk_bytes: 4096,
            watcher: Some(stage.watcher().clone()),
            ..Scmkv::pool_options()
        }
    }

    pub(super) fn options(&self) -> Options {
        Options {
            durability: self.durability,
            keeps_for_copies: self.keeps_for_copies,
            ..small()
        }
    }

    /// The pool on a medium; none if a crash interrupted its creation.
    fn pool(&self, stage: &SubjectMedium) -> Result<Option<Pool>, String> {
        match Pool::open_in(stage.region(), self.pool_options(stage)) {
            Ok(pool) => Ok(Some(pool)),
            Err(MediaError::Pool {
                fault: PoolFault::Incomplete,
                ..
            }) => Ok(None),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Runs an operation. `Err(None)` is for want of space.
    pub(super) fn run(&self, store: &Scmkv, op: &Op) -> Result<Told, Option<String>> {
        let missing = |is_missing: bool| {
            if is_missing {
                Told::Missing
            } else {
                Told::Nothing
            }
        };
        let told = match *op {
            Op::Put(k, v) => store.put(&key(k), &value(v)).map(missing),
            Op::PutStrict(k, v) => store
                .put_with(&key(k), &value(v), Durability::Strict)
                .map(missing),
            Op::Copy(k, v) => {
                let stored = store.put_copy(&key(k), &value(v));
                stored.map(|()| Told::Nothing)
            }
            Op::Delete(k) => store.delete(&key(k)).map(|was_there| missing(!was_there)),
            Op::Get(k) => store.get(&key(k)).map(|found| {
                let number = |bytes: Vec<u8>| number_of(&bytes).unwrap_or(u64::MAX);
                Told::Value(found.map(number))
            }),
            Op::Collect => store.collect_garbage().map(|_| Told::Nothing),
            Op::Enlarge => store.enlarge().map(|()| Told::Nothing),
            Op::Persist => store.persist().map(|()| Told::Nothing),
        };
        // There is always space for copies.
        let may_be_short = !matches!(op, Op::Copy(..));
        told.map_err(|error| (!may_be_short || !error.is_no_space()).then(|| error.to_string()))
    }
}

impl Subject for Small {
    type Op = Op;
    type Structure = Scmkv;
    type Content = BTreeMap<u64, u64>;

    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn create(&self, stage: &SubjectMedium) -> Result<Scmkv, String> {
        let pool = match self.pool(stage)? {
            Some(pool) => pool,
            None => Pool::create_in(stage.region(), self.pool_options(stage))
                .map_err(|error| error.to_string())?,
        };
        Scmkv::create(&pool, &self.options()).map_err(|error| error.to_string())
    }

    fn open(&self, stage: &SubjectMedium) -> Result<Option<Scmkv>, String> {
        let Some(pool) = self.pool(stage)? else {
            return Ok(None);
        };
        match Scmkv::open(&pool, &self.options()) {
            Ok(store) => Ok(Some(store)),
            Err(Error::NoRoot) => Ok(None),
            Err(error) => Err(error.to_string()),
        }
    }

    fn close(&self, store: Scmkv) -> Result<(), String> {
        let pool = store.pool().clone();
        store.close().map_err(|error| error.to_string())?;
        pool.close().map_err(|error| error.to_string())
    }

    fn apply(&self, store: &Scmkv, op: &Op) -> Result<OpOutcome, String> {
        match self.run(store, op) {
            Ok(_) => Ok(OpOutcome::Done),
            Err(None) => Ok(OpOutcome::Refused),
            Err(Some(error)) => Err(error),
        }
    }

    fn content(&self, store: &Scmkv) -> Result<BTreeMap<u64, u64>, String> {
        check(store)?;
        content(store)
    }

    fn empty(&self) -> BTreeMap<u64, u64> {
        BTreeMap::new()
    }

    fn expect(&self, content: &mut BTreeMap<u64, u64>, op: &Op) {
        match *op {
            Op::Put(k, v) | Op::PutStrict(k, v) | Op::Copy(k, v) => {
                content.insert(k, v);
            }
            Op::Delete(k) => {
                content.remove(&k);
            }
            Op::Get(_) | Op::Collect | Op::Enlarge | Op::Persist => {}
        }
    }

    fn name(&self, op: &Op) -> &'static str {
        match op {
            Op::Put(..) => "put",
            Op::PutStrict(..) => "strict put",
            Op::Copy(..) => "copy",
            Op::Delete(_) => "delete",
            Op::Get(_) => "get",
            Op::Collect => "collect",
            Op::Enlarge => "enlarge",
            Op::Persist => "persist",
        }
    }

    fn probes(&self) -> Vec<Op> {
        if self.keeps_for_copies {
            // Those that may have been left, and others.
            let ops = [300, 301, 300, 301].map(|k| [Op::Delete(k), Op::Copy(k, 6), Op::Delete(k)]);
            return [&[Op::Delete(300), Op::Delete(301)], ops.as_flattened()].concat();
        }
        vec![
            Op::Put(900, 8),
            Op::Put(900, 15),
            Op::Delete(1),
            Op::Put(1, 22),
            Op::Collect,
        ]
    }

    fn reports_loads(&self) -> bool {
        true
    }
}

/// A history: its name, its preparation, and what is explored.
pub(super) type History = (&'static str, Vec<Op>, Vec<HistoryStep<Op>>);

pub(super) fn acts(ops: impl IntoIterator<Item = Op>) -> Vec<HistoryStep<Op>> {
    ops.into_iter().map(HistoryStep::Op).collect()
}

pub(super) fn puts(keys: Range<u64>, first: u64, step: u64) -> Vec<Op> {
    let put = |(at, k): (u64, u64)| Op::Put(k, first + at * step);
    (0..).zip(keys).map(put).collect()
}

/// Histories that a store of any durability goes through.
pub(super) fn histories() -> Vec<History> {
    let mut life = acts([
        Op::Put(4, 100),
        Op::Put(1, 101),
        Op::Delete(2),
        Op::Put(2, 102),
        Op::Put(4, 103),
        Op::Delete(4),
        Op::Delete(77),
    ]);
    life.push(HistoryStep::Reopen);
    life.extend(acts([Op::Put(1, 104), Op::Persist, Op::Put(2, 105)]));
    life.push(HistoryStep::Restart);
    life.extend(acts([Op::Put(5, 106), Op::Delete(1), Op::Put(5, 107)]));
    // Values of number 6 modulo 7 take the most space: seven of them fill a page.
    let large = |keys| puts(keys, 6, 7);
    vec![
        ("creation", vec![], acts([Op::Put(1, 1), Op::Put(2, 2)])),
        ("life", puts(0..4, 1, 7), life),
        (
            "chain growth",
            puts(0..24, 7, 7),
            acts(puts(24..34, 700, 7)),
        ),
        (
            "chain shrinking",
            puts(0..10, 7, 7),
            acts((0..10).map(Op::Delete)),
        ),
        (
            "page turnover",
            large(0..5),
            acts([
                Op::Put(0, 76),
                Op::Put(5, 83),
                Op::Put(6, 90),
                Op::Put(1, 97),
                Op::Put(7, 104),
                Op::Delete(6),
                Op::Put(6, 111),
            ]),
        ),
        (
            "collection",
            [large(0..16), (0..9).map(Op::Delete).collect()].concat(),
            acts([
                Op::Collect,
                Op::Put(20, 300),
                Op::Collect,
                Op::Put(10, 301),
                Op::Collect,
                Op::Delete(11),
            ]),
        ),
        (
            "collection of chains",
            [
                puts(0..60, 7, 7),
                (8..60).map(Op::Delete).collect(),
                puts(70..150, 7, 7),
            ]
            .concat(),
            acts([Op::Collect, Op::Collect, Op::Collect, Op::Collect]),
        ),
        (
            "enlarging",
            puts(0..12, 7, 7),
            acts([
                Op::Enlarge,
                Op::Put(12, 800),
                Op::Delete(3),
                Op::Put(1, 801),
            ]),
        ),
        (
            "collection of what was replaced",
            [large(0..14), vec![Op::Persist]].concat(),
            // Of such a value some lines are not that of the head, nor that of the next one.
            acts((0..7).map(|k| Op::Put(k, 7 * (k + 50) + 1)).chain([
                Op::Collect,
                Op::Put(9, 701),
                Op::Collect,
                Op::Put(20, 708),
            ])),
        ),
        ("shutdown", puts(0..9, 7, 7), shutdown()),
        ("log of two threads", puts(0..3, 7, 7), two_threads()),
        (
            "turnover without end",
            large(0..12),
            acts(
                (0..40)
                    .map(|at| Op::Put(at % 13, 6 + 7 * (at + 30)))
                    .chain([Op::Collect, Op::Enlarge, Op::Delete(3), Op::Put(3, 1000)]),
            ),
        ),
    ]
}

/// Openings after a close and after the end of a process, in turns, with writes in between.
fn shutdown() -> Vec<HistoryStep<Op>> {
    let mut all = Vec::new();
    for (round, end) in (0..).zip([
        HistoryStep::Reopen,
        HistoryStep::Restart,
        HistoryStep::Reopen,
        HistoryStep::Reopen,
    ]) {
        let value = 300 + 10 * round;
        all.extend(acts([
            Op::Put(2, value),
            Op::Put(20 + round, value + 1),
            Op::Delete(round),
        ]));
        all.push(HistoryStep::Op(Op::Put(8, value + 2)));
        all.push(end);
    }
    all.push(HistoryStep::Op(Op::Put(8, 400)));
    all
}

/// Threads that share a log: what one left without a fence the next one may not rely on.
fn two_threads() -> Vec<HistoryStep<Op>> {
    let here = HistoryStep::Op;
    let there = HistoryStep::Elsewhere;
    vec![
        here(Op::Put(1, 500)),
        there(Op::Put(2, 501)),
        here(Op::Put(1, 502)),
        there(Op::Persist),
        here(Op::Put(9, 503)),
        there(Op::Delete(2)),
        here(Op::Put(2, 504)),
        there(Op::PutStrict(1, 505)),
        here(Op::Put(1, 506)),
        there(Op::Collect),
        there(Op::Put(3, 507)),
        there(Op::Put(3, 508)),
        here(Op::Persist),
    ]
}

/// A store without space: puts clean, and are refused in the end.
pub(super) fn shortage() -> History {
    let large = |keys| puts(keys, 6, 7);
    (
        "shortage",
        [large(0..90), puts(0..40, 706, 7)].concat(),
        acts([
            Op::Put(0, 1007),
            Op::Put(1, 1014),
            Op::Delete(2),
            Op::Put(200, 1021),
            Op::Put(3, 1028),
        ]),
    )
}

/// A full store that keeps pages for copies: each one is put, and deleted after some other deletes,
/// of which next to nothing comes back. So pages are cleaned for it in the end.
pub(super) fn copies() -> History {
    let large = |keys| puts(keys, 6, 7);
    let round = |at: u64| {
        [
            Op::Copy(300 + at % 2, 6 + 7 * (at + 200)),
            Op::Delete(5 * at),
            Op::Delete(300 + at % 2),
        ]
    };
    (
        "copies",
        [large(0..90), puts(0..40, 706, 7)].concat(),
        acts((0..5).flat_map(round)),
    )
}

/// Histories of random operations, of which `seed` makes one.
pub(super) fn random_history(seed: u64) -> History {
    let mut random = (0..).map(|number| Seed::new(seed).hash_u64(number));
    let mut below = move |limit: u64| random.next().map_or(0, |number| number % limit);
    let keys = 4 + below(60);
    let mut op = |number: u64| match below(25) {
        0..=13 => Op::Put(below(keys), number),
        14..=18 => Op::Delete(below(keys)),
        19 => Op::PutStrict(below(keys), number),
        20 => Op::Persist,
        21..=22 => Op::Collect,
        23 => Op::Enlarge,
        _ => Op::Get(below(keys)),
    };
    let setup = (1..keys * 2).map(&mut op).collect();
    let act = |number: u64| match number % 3 {
        0 => HistoryStep::Elsewhere(op(number)),
        _ => HistoryStep::Op(op(number)),
    };
    ("random", setup, (1000..1012).map(act).collect())
}

/// The limits of the tests of indexes, or fewer images: each one is a whole store that is read,
/// checked and cleaned.
pub(super) fn few() -> ExploreLimits {
    let few = ExploreLimits {
        all: 12,
        sample: 6,
        nested_all: 2,
        nested_sample: 1,
        ..limits()
    };
    let is_long = std::env::var_os("GABION_CRASH_ALL").is_some();
    if is_long { limits() } else { few }
}

pub(super) fn strict() -> Small {
    Small {
        durability: Durability::Strict,
        bytes: 160 << 10,
        keeps_for_copies: false,
    }
}

#[test]
fn power_failures_lose_nothing_of_a_strict_store() {
    let subject = strict();
    let mut explorer = Explorer::new(&subject, few());
    let mut total = Report::default();
    let random = (0..from_env("GABION_CRASH_HISTORIES", 2)).map(random_history);
    let all = histories().into_iter().chain([shortage()]).chain(random);
    for (name, setup, acts) in all {
        let run = Run::record(&subject, name, &setup, &acts).expect(name);
        let report = explorer.explore(&run);
        assert!(report.is_clean(), "{name}: {report}");
        total.add(report);
    }
    println!("strict: {total}");
}

/// Each image has space for the next copies, too.
#[test]
fn power_failures_lose_nothing_of_copies_in_a_full_store() {
    let subject = Small {
        keeps_for_copies: true,
        ..strict()
    };
    let (name, setup, acts) = copies();
    let run = Run::record(&subject, name, &setup, &acts).expect(name);
    let report = Explorer::new(&subject, few()).explore(&run);
    assert!(report.is_clean(), "{name}: {report}");
    println!("copies: {report}");
}
