//! Histories on several threads.

use std::collections::BTreeMap;
use std::sync::Barrier;
use std::sync::atomic::Ordering;

use super::super::{
    Access, ConcurrentRun, ExploreLimits, Explorer, Keyed, OpOutcome, Report, Subject,
    SubjectMedium,
};
use super::Words;

/// Registers, each in its own line, that are written and read by any thread.
struct Registers {
    /// Whether a read makes durable what it returns.
    reads_persist: bool,
    /// Makes a write wait, once it can be seen and before it is durable, for a read.
    meet: Option<Barrier>,
}

#[derive(Clone, Debug)]
enum Op {
    Write(u64, u64),
    Read(u64),
    Add(u64, u64),
    /// Reads a key that nobody writes, and meets.
    Meet,
}

const KEYS: u64 = 4;

fn at(key: u64) -> u64 {
    key * 64
}

impl Subject for Registers {
    type Op = Op;
    type Structure = Words;
    type Content = BTreeMap<u64, u64>;

    fn bytes(&self) -> u64 {
        4096
    }

    fn create(&self, stage: &SubjectMedium) -> Result<Words, String> {
        Ok(Words(stage.medium()))
    }

    fn open(&self, stage: &SubjectMedium) -> Result<Option<Words>, String> {
        Ok(Some(Words(stage.medium())))
    }

    fn apply(&self, words: &Words, op: &Op) -> Result<OpOutcome, String> {
        self.access(words, op).map(|_| OpOutcome::Done)
    }

    fn content(&self, words: &Words) -> Result<BTreeMap<u64, u64>, String> {
        let pairs = (0..KEYS).map(|key| (key, words.get(at(key))));
        Ok(pairs.filter(|(_, value)| *value != 0).collect())
    }

    fn empty(&self) -> BTreeMap<u64, u64> {
        BTreeMap::new()
    }

    fn expect(&self, content: &mut BTreeMap<u64, u64>, op: &Op) {
        match *op {
            Op::Write(key, value) => {
                content.insert(key, value);
            }
            Op::Add(key, value) => *content.entry(key).or_default() += value,
            Op::Read(_) | Op::Meet => {}
        }
    }

    fn name(&self, _: &Op) -> &'static str {
        "access"
    }

    fn reports_loads(&self) -> bool {
        true
    }
}

impl Keyed for Registers {
    fn access(&self, words: &Words, op: &Op) -> Result<Access, String> {
        let some = |value: u64| (value != 0).then_some(value);
        let meet = || self.meet.as_ref().map(Barrier::wait);
        Ok(match *op {
            Op::Write(key, value) => {
                words.set(at(key), value);
                meet();
                meet();
                words.persist(at(key));
                Access {
                    key,
                    saw: None,
                    left: Some(Some(value)),
                }
            }
            Op::Read(key) => {
                meet();
                let value = words.get(at(key));
                if self.reads_persist {
                    words.persist(at(key));
                }
                Access {
                    key,
                    saw: Some(some(value)),
                    left: None,
                }
            }
            Op::Meet => {
                meet();
                Access {
                    key: KEYS,
                    saw: None,
                    left: None,
                }
            }
            Op::Add(key, value) => {
                let word = words.word(at(key));
                // ORDER: Relaxed: the key has no other words.
                let before = word.fetch_add(&words.0, value, Ordering::Relaxed);
                words.persist(at(key));
                Access {
                    key,
                    saw: Some(some(before)),
                    left: Some(Some(before + value)),
                }
            }
        })
    }
}

fn explore(subject: &Registers, setup: &[Op], threads: &[Vec<Op>], seed: u64) -> Report {
    let run = ConcurrentRun::record(subject, "threads", setup, threads, seed).unwrap();
    let report = Explorer::new(subject, ExploreLimits::default()).explore(&run);
    println!("{report}");
    report
}

#[test]
fn correct_registers_are_clean_however_the_threads_interleave() {
    let registers = Registers {
        reads_persist: true,
        meet: None,
    };
    let threads: Vec<Vec<Op>> = (0..3)
        .map(|thread| {
            let round = |n: u64| {
                let value = 100 * (thread + 1) + n;
                [
                    Op::Write(n % 2, value),
                    Op::Add(2, value),
                    Op::Read((n + 1) % 2),
                ]
            };
            (0..4).flat_map(round).collect()
        })
        .collect();
    for seed in 0..10 {
        let setup = [Op::Write(0, 1), Op::Write(3, 2)];
        let report = explore(&registers, &setup, &threads, seed);
        assert!(report.is_clean(), "{report}");
        assert!(report.images() > 20, "{report}");
    }
}

/// P-CLHT, P-ART, P-HOT and P-BwTree: a lock-free read returns what is not durable yet.
#[test]
fn a_read_that_returns_what_a_crash_can_undo_is_caught() {
    // The read takes place between the two meetings of the write, and returns before the second.
    let threads = [vec![Op::Write(1, 5)], vec![Op::Read(1), Op::Meet]];
    for reads_persist in [false, true] {
        let registers = Registers {
            reads_persist,
            meet: Some(Barrier::new(2)),
        };
        let report = explore(&registers, &[], &threads, 0);
        assert_eq!(report.is_clean(), reads_persist, "{report}");
        if !reads_persist {
            let message = &report.violations[0].message;
            assert!(
                message.contains("no order of the operations on key 1"),
                "{message}"
            );
        }
    }
}
