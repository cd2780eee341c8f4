//! Histories of several threads that a power failure ends.
//!
//! Threads insert, update, delete and look up a few keys while the index grows, shrinks and is
//! compacted. Without a crash, the answers about each key must be explained by an order of its
//! operations (linearizability); with one, at whatever step of whatever thread, so must what
//! recovery finds: nothing that an operation had answered is lost or undone (durable
//! linearizability). Pauses are drawn from `GABION_CRASH_SEED`; `GABION_CRASH_THREADS` is the
//! number of runs of each history.

use std::collections::BTreeMap;

use gabion_media::pmem::explore::{
    Access, ConcurrentRun, ExploreLimits, Explorer, History, Keyed, Mutant, OpOutcome, Report,
    Subject, SubjectMedium,
};

use super::Keys;
use super::crash::{SmallSubject, SubjectOp, from_env, limits_of};
use crate::{Index, Item};

/// Keys that histories may use, by their numbers.
const KEYS: u64 = 1000;

/// A small index whose content is told by numbers of keys.
pub(crate) struct Numbered<K: Item + ?Sized> {
    small: SmallSubject<K>,
    numbers: BTreeMap<K::Owned, u64>,
}

impl<K: Item + ?Sized> Numbered<K> {
    pub(crate) fn new(keys: Keys<K>) -> Numbered<K> {
        Numbered {
            numbers: (0..KEYS)
                .map(|number| ((keys.key)(number), number))
                .collect(),
            small: SmallSubject { keys },
        }
    }
}

impl<K: Item + ?Sized> Subject for Numbered<K> {
    type Op = SubjectOp;
    type Structure = Box<dyn Index<K>>;
    type Content = BTreeMap<u64, u64>;

    fn bytes(&self) -> u64 {
        self.small.bytes()
    }

    fn create(&self, stage: &SubjectMedium) -> Result<Self::Structure, String> {
        self.small.create(stage)
    }

    fn open(&self, stage: &SubjectMedium) -> Result<Option<Self::Structure>, String> {
        self.small.open(stage)
    }

    fn close(&self, index: Self::Structure) -> Result<(), String> {
        self.small.close(index)
    }

    fn apply(&self, index: &Self::Structure, op: &SubjectOp) -> Result<OpOutcome, String> {
        self.small.apply(index, op)
    }

    fn content(&self, index: &Self::Structure) -> Result<Self::Content, String> {
        let content = self.small.content(index)?.into_iter();
        content
            .map(|(key, value)| match self.numbers.get::<K::Owned>(&key) {
                Some(number) => Ok((*number, value)),
                None => Err(format!("{key:?} is of no history")),
            })
            .collect()
    }

    fn empty(&self) -> Self::Content {
        BTreeMap::new()
    }

    fn expect(&self, content: &mut Self::Content, op: &SubjectOp) {
        match *op {
            SubjectOp::Insert(k, v) => {
                content.insert(k, v);
            }
            SubjectOp::Update(k, v) => {
                content.entry(k).and_modify(|value| *value = v);
            }
            SubjectOp::Remove(k) => {
                content.remove(&k);
            }
            SubjectOp::Get(_) | SubjectOp::Scan(_) | SubjectOp::Compact | SubjectOp::Collect => {}
        }
    }

    fn name(&self, op: &SubjectOp) -> &'static str {
        self.small.name(op)
    }

    fn probes(&self) -> Vec<SubjectOp> {
        self.small.probes()
    }
}

impl<K: Item + ?Sized> Keyed for Numbered<K> {
    fn access(&self, index: &Self::Structure, op: &SubjectOp) -> Result<Access, String> {
        let saw = self
            .small
            .run(&**index, op)
            .map_err(|error| error.to_string())?;
        let (key, left) = match *op {
            SubjectOp::Insert(k, v) => (k, Some(Some(v))),
            SubjectOp::Update(k, v) => (k, saw.map(|_| Some(v))),
            SubjectOp::Remove(k) => (k, Some(None)),
            SubjectOp::Get(k) | SubjectOp::Scan(k) => (k, None),
            // A key that no other operation has.
            SubjectOp::Compact | SubjectOp::Collect => (KEYS, None),
        };
        let saw = (key != KEYS).then_some(saw);
        Ok(Access { key, saw, left })
    }
}

/// A history: its name, its preparation, and what each thread does.
type Threads = (&'static str, Vec<SubjectOp>, Vec<Vec<SubjectOp>>);

/// Changes and lookups of the keys from `first` on, with values that name the thread.
fn traffic(thread: u64, first: u64, keys: u64, count: u64) -> Vec<SubjectOp> {
    let op = |number: u64| {
        let key = first + (number * 5 + thread * 3) % keys;
        let value = 1000 * (thread + 1) + number;
        match (number + thread) % 6 {
            0 | 3 => SubjectOp::Insert(key, value),
            1 => SubjectOp::Get(key),
            2 => SubjectOp::Update(key, value),
            4 => SubjectOp::Remove(key),
            _ => SubjectOp::Scan(first + (number + thread) % keys),
        }
    };
    (0..count).map(op).collect()
}

fn histories() -> Vec<Threads> {
    let inserts = |range: std::ops::Range<u64>| range.map(|k| SubjectOp::Insert(k, 100 + k));
    let gets = |range: std::ops::Range<u64>| range.map(SubjectOp::Get).collect::<Vec<_>>();
    let removes = |range: std::ops::Range<u64>| range.map(SubjectOp::Remove).collect::<Vec<_>>();
    vec![
        (
            "few keys",
            inserts(0..2).collect(),
            vec![
                traffic(0, 0, 3, 12),
                traffic(1, 0, 3, 12),
                traffic(2, 0, 3, 12),
            ],
        ),
        (
            "growth",
            inserts(0..11).collect(),
            vec![
                inserts(11..16).collect(),
                traffic(1, 9, 4, 10),
                gets(10..16),
            ],
        ),
        (
            "compaction",
            inserts(0..40)
                .chain((0..15).map(SubjectOp::Remove))
                .collect(),
            vec![
                vec![
                    SubjectOp::Compact,
                    SubjectOp::Remove(30),
                    SubjectOp::Compact,
                ],
                traffic(1, 28, 4, 10),
                traffic(2, 28, 4, 10),
            ],
        ),
        (
            "shrinking",
            inserts(0..40)
                .chain((0..30).map(SubjectOp::Remove))
                .collect(),
            vec![removes(30..38), traffic(1, 36, 3, 8), gets(34..40)],
        ),
    ]
}

/// Few images of each moment: there are many moments, as the threads fence all the time.
fn few(limits: ExploreLimits) -> ExploreLimits {
    ExploreLimits {
        all: limits.all.min(48),
        sample: limits.sample.min(24),
        nested_all: 4,
        nested_sample: 2,
        ..limits
    }
}

/// Explores each history a number of times, with other pauses each time.
pub(crate) fn survive<K: Item + ?Sized>(keys: Keys<K>) {
    let name = keys.name;
    let subject = Numbered::new(keys);
    let limits = few(limits_of(name));
    let mut total = Report::default();
    for number in 0..from_env("GABION_CRASH_THREADS", 1) {
        for (history, setup, threads) in histories() {
            let seed = limits.seed + number;
            let run = ConcurrentRun::record(&subject, history, &setup, &threads, seed);
            let run = run.unwrap_or_else(|error| panic!("{history}, seed {seed}: {error}"));
            let report = Explorer::new(&subject, limits).explore(&run);
            assert!(report.is_clean(), "{history}, seed {seed}: {report}");
            total.add(report);
        }
    }
    println!("{name}, several threads: {total}");
}

/// A reader that does not make durable what it answers is caught: it is what is left of one when
/// its flushes, or its fence, are left out. `is_readers` knows the file that these are in.
pub(crate) fn catch_readers<K: Item + ?Sized>(keys: Keys<K>, is_readers: fn(&str) -> bool) {
    let updates = (0..8)
        .map(|number| SubjectOp::Update(0, 1000 + number))
        .collect();
    let threads = [
        updates,
        vec![SubjectOp::Get(0); 8],
        vec![SubjectOp::Get(0); 8],
    ];
    let message = "no order of";
    catch_meetings(
        keys,
        &[SubjectOp::Insert(0, 1)],
        &threads,
        is_readers,
        2,
        message,
    );
}

/// A writer that does not make durable the way that it takes past others at work is caught.
pub(crate) fn catch_writers<K: Item + ?Sized>(keys: Keys<K>, is_writers: fn(&str) -> bool) {
    let setup: Vec<SubjectOp> = (0..4).map(|key| SubjectOp::Insert(2 * key, 1)).collect();
    let inserts = |keys: [u64; 3]| keys.map(|key| SubjectOp::Insert(key, 1000 + key)).to_vec();
    let threads = [
        inserts([8, 1, 3]),
        inserts([7, 9, 11]),
        inserts([13, 5, 10]),
    ];
    catch_meetings(keys, &setup, &threads, is_writers, 1, "");
}

/// Leaves out the flushes and fences at places that only threads who meet come to, until `wanted`
/// of them were caught, each with a violation that contains `message`. Whether threads meet there
/// depends on the system, so only runs in which they did are tried.
fn catch_meetings<K: Item + ?Sized>(
    keys: Keys<K>,
    setup: &[SubjectOp],
    threads: &[Vec<SubjectOp>],
    is_place: fn(&str) -> bool,
    wanted: usize,
    message: &str,
) {
    const ATTEMPTS: u64 = 3000;
    let few = limits_of(keys.name);
    let subject = Numbered::new(keys);
    let limits = ExploreLimits {
        all: 32,
        sample: 8,
        depth: 1,
        ..few
    };
    let mut caught = Vec::new();
    for seed in (limits.seed..).take(usize::try_from(ATTEMPTS).unwrap_or(0)) {
        let run = ConcurrentRun::record(&subject, "meetings", setup, threads, seed);
        let run = run.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        let mut events = History::<BTreeMap<u64, u64>>::trace(&run).iter();
        if !events.any(|event| is_place(event.site.file())) {
            continue;
        }
        let mut explorer = Explorer::new(&subject, limits);
        let report = explorer.explore(&run);
        assert!(report.is_clean(), "seed {seed}: {report}");
        for mutant in explorer.places() {
            let is_one = matches!(&mutant, Mutant::Place(place, _) if is_place(place.file()));
            if !is_one || caught.contains(&mutant) {
                continue;
            }
            if let Some(violation) = explorer.try_mutant(mutant.clone(), &[&run]).caught {
                assert!(violation.message.contains(message), "{violation}");
                println!("seed {seed}: without {mutant}: {violation}");
                caught.push(mutant);
            }
        }
        if caught.len() >= wanted {
            return;
        }
    }
    panic!("{ATTEMPTS} runs caught only {caught:?}");
}
