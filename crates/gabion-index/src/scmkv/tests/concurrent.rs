//! Several threads: histories that must be linearizable, with and without a failure of the power,
//! and traffic while pages are cleaned and the table doubles.

use std::sync::atomic::{AtomicBool, Ordering};

use gabion_media::pmem::explore::{Access, ConcurrentRun, ExploreLimits, Explorer, Keyed, Report};

use super::super::{Durability, Options, Scmkv};
use super::crash::{Op, Small, Told, puts, strict};
use super::{check, key, number_of, pool, small, value};
use crate::suite::crash::{from_env, limits};

/// A key that no operation of a history has.
const NO_KEY: u64 = 5000;

impl Keyed for Small {
    fn access(&self, store: &Scmkv, op: &Op) -> Result<Access, String> {
        let told = self
            .run(store, op)
            .map_err(|error| error.unwrap_or_default())?;
        let (key, left) = match *op {
            Op::Put(k, v) | Op::PutStrict(k, v) | Op::Copy(k, v) => (k, Some(Some(v))),
            Op::Delete(k) => (k, Some(None)),
            Op::Get(k) => (k, None),
            Op::Collect | Op::Enlarge | Op::Persist => (NO_KEY, None),
        };
        let saw = match told {
            Told::Nothing => None,
            Told::Missing => Some(None),
            Told::Value(value) => Some(value),
        };
        Ok(Access { key, saw, left })
    }
}

/// Changes and lookups of the keys from `first` on, with values that name the thread.
fn traffic(thread: u64, first: u64, keys: u64, count: u64) -> Vec<Op> {
    let op = |number: u64| {
        let key = first + (number * 5 + thread * 3) % keys;
        let value = 1000 * (thread + 1) + number;
        match (number + thread) % 6 {
            0 | 2 | 3 => Op::Put(key, value),
            4 => Op::Delete(key),
            _ => Op::Get(first + (number + thread) % keys),
        }
    };
    (0..count).map(op).collect()
}

/// A history of several threads: its name, its preparation, and what each thread does.
type History = (&'static str, Vec<Op>, Vec<Vec<Op>>);

fn histories() -> [History; 4] {
    let gets = |first| (first..first + 8).map(Op::Get).collect::<Vec<_>>();
    [
        (
            "few keys",
            puts(0..2, 7, 7),
            vec![
                traffic(0, 0, 3, 12),
                traffic(1, 0, 3, 12),
                traffic(2, 0, 3, 12),
            ],
        ),
        (
            "chain growth",
            puts(0..24, 7, 7),
            vec![puts(24..34, 700, 7), traffic(1, 22, 5, 10), gets(24)],
        ),
        (
            "collection",
            [puts(0..16, 6, 7), (0..9).map(Op::Delete).collect()].concat(),
            vec![
                vec![Op::Collect, Op::Collect, Op::Collect],
                traffic(1, 9, 4, 10),
                traffic(2, 9, 4, 10),
            ],
        ),
        (
            "enlarging",
            puts(0..12, 7, 7),
            vec![
                vec![Op::Enlarge],
                traffic(1, 4, 4, 10),
                traffic(2, 4, 4, 10),
            ],
        ),
    ]
}

/// A strict store for several threads.
pub(super) fn subject() -> Small {
    Small {
        bytes: 256 << 10,
        ..strict()
    }
}

/// A run of writers of a table that doubles.
pub(super) fn doubling(subject: &Small, seed: u64) -> ConcurrentRun {
    let [.., (name, setup, threads)] = histories();
    let run = ConcurrentRun::record(subject, name, &setup, &threads, seed);
    run.unwrap_or_else(|error| panic!("{name}, seed {seed}: {error}"))
}

#[test]
fn power_failures_undo_no_answer_of_a_strict_store() {
    let subject = subject();
    let base = limits();
    let limits = ExploreLimits {
        all: base.all.min(16),
        sample: base.sample.min(8),
        nested_all: 2,
        nested_sample: 1,
        ..base
    };
    let histories = histories();
    let mut total = Report::default();
    for number in 0..from_env("GABION_CRASH_THREADS", 1) {
        for (name, setup, threads) in &histories {
            let seed = limits.seed + number;
            let run = ConcurrentRun::record(&subject, name, setup, threads, seed);
            let run = run.unwrap_or_else(|error| panic!("{name}, seed {seed}: {error}"));
            let report = Explorer::new(&subject, limits).explore(&run);
            assert!(report.is_clean(), "{name}, seed {seed}: {report}");
            total.add(report);
        }
    }
    println!("strict, several threads: {total}");
}

/// Writers of their own keys, readers of all: a reader never sees an older value after a newer one,
/// and never half of one, while pages are cleaned and the table doubles under them.
#[test]
fn readers_see_values_in_their_order_while_all_moves() {
    const WRITERS: u64 = 2;
    const KEYS: u64 = 40;
    let rounds = from_env("GABION_HISTORIES", 300);
    for durability in [Durability::Strict, Durability::Relaxed] {
        let options = Options {
            logs: Some(3),
            cleans: true,
            durability,
            ..small()
        };
        let store = Scmkv::create(&pool(1 << 20), &options).expect("space");
        let (is_over, mut is_sound) = (AtomicBool::new(false), Vec::new());
        std::thread::scope(|scope| {
            let readers: Vec<_> = (0..2)
                .map(|_| scope.spawn(|| read_in_order(&store, WRITERS * KEYS, &is_over)))
                .collect();
            let writers: Vec<_> = (0..WRITERS)
                .map(|writer| {
                    let store = &store;
                    scope.spawn(move || write_in_order(store, writer * KEYS, KEYS, rounds))
                })
                .collect();
            for _ in 0..5 {
                // Writers may be faster to take what the cleaner gives back.
                let enlarged = store.enlarge();
                is_sound.push(enlarged.map_or_else(|error| error.is_no_space(), |()| true));
                is_sound.push(store.collect_garbage().is_ok());
            }
            is_sound.extend(writers.into_iter().map(|writer| writer.join().is_ok()));
            // Readers go on until now, whatever became of the writers.
            is_over.store(true, Ordering::Relaxed);
            is_sound.extend(readers.into_iter().map(|reader| reader.join().is_ok()));
        });
        assert!(is_sound.iter().all(|is_sound| *is_sound), "{is_sound:?}");
        check(&store).expect("sound");
        assert!(store.stats().cleaned_pages > 0);
    }
}

/// Puts rising numbers, deletes some keys and puts them again.
fn write_in_order(store: &Scmkv, first: u64, keys: u64, rounds: u64) {
    for round in 1..=rounds {
        for at in first..first + keys {
            if (round + at) % 9 == 0 {
                assert_eq!(store.delete(&key(at)).expect("sound"), round > 1);
            }
            store.put(&key(at), &value(round)).expect("space");
        }
    }
}

fn read_in_order(store: &Scmkv, keys: u64, is_over: &AtomicBool) {
    let mut newest = vec![0; usize::try_from(keys).expect("small")];
    while !is_over.load(Ordering::Relaxed) {
        for (at, newest) in (0..keys).zip(&mut newest) {
            if let Some(bytes) = store.get(&key(at)).expect("sound") {
                let number = number_of(&bytes).expect("a whole value");
                assert!(number >= *newest, "key {at}: {number} after {newest}");
                *newest = number;
            }
        }
        let mut walked = std::collections::BTreeSet::new();
        for entry in store.iter() {
            let (key, _) = entry.expect("sound");
            assert!(walked.insert(key), "a key comes twice");
        }
    }
}
