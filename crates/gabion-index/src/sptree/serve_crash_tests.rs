//! What a crash leaves while a tree is being recovered and served.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use gabion_media::pmem::explore::{Explorer, HistoryStep, OpOutcome, Run, Subject, SubjectMedium};
use gabion_media::pmem::trace::{TraceEvent, Watcher};
use gabion_media::pmem::{Pool, PoolOptions, Region};

use super::item::{ItemRef, bound_key, key_of};
use super::layout::{MOVING_AT, RootState};
use super::leaf::Leaf;
use super::log::Logs;
use super::serve_tests::raw;
use super::steps::{Step, leave_out};
use super::{SpTree, TINY, TINY_BUFFERED, TreeKey};
use crate::suite::crash::{History, SmallSubject, SubjectOp, limits};
use crate::suite::{Keys, SMALL};
use crate::{Index, Seed};

/// Operations on a tree of several runs from its opening on, each of which comes to runs that are
/// there and to runs that are not: splits and merges beside a border, newer values in the logs.
fn histories() -> Vec<History> {
    let inserts = |range: std::ops::Range<u64>| range.map(|key| SubjectOp::Insert(2 * key, key));
    let setup: Vec<SubjectOp> = inserts(0..28)
        .chain((0..8).map(|key| SubjectOp::Update(6 * key, 70 + key)))
        .chain([SubjectOp::Remove(30)])
        .collect();
    let acts = |ops: &[SubjectOp]| {
        let ops = ops.iter().copied().map(HistoryStep::Op);
        std::iter::once(HistoryStep::Reopen)
            .chain(ops)
            .collect::<Vec<_>>()
    };
    let splits = [
        SubjectOp::Insert(41, 1),
        SubjectOp::Get(12),
        SubjectOp::Insert(43, 2),
        SubjectOp::Update(18, 3),
        SubjectOp::Insert(45, 4),
    ];
    let merges = [
        SubjectOp::Remove(52),
        SubjectOp::Remove(50),
        SubjectOp::Remove(48),
        SubjectOp::Get(4),
        SubjectOp::Remove(46),
    ];
    let mut left = acts(&[
        SubjectOp::Update(36, 90),
        SubjectOp::Remove(18),
        SubjectOp::Insert(37, 1),
    ]);
    left.push(HistoryStep::Reopen);
    left.extend([
        HistoryStep::Op(SubjectOp::Update(36, 91)),
        HistoryStep::Op(SubjectOp::Scan(6)),
    ]);
    vec![
        ("splits while it is recovered", setup.clone(), acts(&splits)),
        ("merges while it is recovered", setup.clone(), acts(&merges)),
        ("left before it is recovered", setup, left),
    ]
}

#[test]
fn histories_come_to_runs_that_are_not_there() {
    for (name, setup, _) in histories() {
        let subject = SmallSubject {
            keys: Keys::words(&TINY).expect("words"),
        };
        let region = Region::new(96 << 10);
        let options = || PoolOptions {
            heaps: 1,
            chunk_bytes: 4096,
            watcher: Some(Arc::new(Blind)),
            ..SpTree::<u64, 8>::pool_options()
        };
        let pool = Pool::create_in(&region, options()).expect("a pool in memory");
        let tree = SpTree::<u64, 8>::create(&pool, SMALL).expect("a tree");
        for op in &setup {
            subject.run(&tree, op).expect("space");
        }
        drop(tree);
        let tree = SpTree::<u64, 8>::open(&pool).expect("a tree");
        assert!(raw(&tree) > 2, "{name}: {} runs", raw(&tree));
    }
}

/// Somebody who watches and sees nothing.
struct Blind;

impl Watcher for Blind {
    fn event(&self, _: TraceEvent<'_>) {}
}

/// As the suite's subject, but what a tree holds while a history is recorded is read from the
/// medium past the tree: the suite's lookups would recover all of it after the first operation.
struct Serving<K: TreeKey + ?Sized> {
    small: SmallSubject<K>,
    is_recorded: AtomicBool,
}

impl<K: TreeKey + ?Sized> Serving<K> {
    fn of(keys: Option<Keys<K>>) -> Serving<K> {
        Serving {
            small: SmallSubject {
                keys: keys.expect("keys of this kind"),
            },
            is_recorded: AtomicBool::new(false),
        }
    }

    fn record(&self, history: &History) -> std::result::Result<Run<Self>, String> {
        let (name, setup, acts) = history;
        self.is_recorded.store(true, Ordering::Relaxed);
        let run = Run::record(self, name, setup, acts);
        self.is_recorded.store(false, Ordering::Relaxed);
        run.map_err(|error| error.to_string())
    }
}

// ORDER: Relaxed throughout: one thread is at work.
impl<K: TreeKey + ?Sized> Subject for Serving<K> {
    type Op = SubjectOp;
    type Structure = Box<dyn Index<K>>;
    type Content = BTreeMap<K::Owned, u64>;

    fn bytes(&self) -> u64 {
        self.small.bytes()
    }

    fn create(&self, stage: &SubjectMedium) -> std::result::Result<Self::Structure, String> {
        self.small.create(stage)
    }

    fn open(&self, stage: &SubjectMedium) -> std::result::Result<Option<Self::Structure>, String> {
        self.small.open(stage)
    }

    fn close(&self, index: Self::Structure) -> std::result::Result<(), String> {
        self.small.close(index)
    }

    fn apply(
        &self,
        index: &Self::Structure,
        op: &SubjectOp,
    ) -> std::result::Result<OpOutcome, String> {
        self.small.apply(index, op)
    }

    fn content(&self, index: &Self::Structure) -> std::result::Result<Self::Content, String> {
        if self.is_recorded.load(Ordering::Relaxed) {
            on_medium::<K>(index.pool()).ok_or_else(|| "a chain that breaks off".to_owned())
        } else {
            self.small.content(index)
        }
    }

    fn empty(&self) -> Self::Content {
        BTreeMap::new()
    }

    fn expect(&self, content: &mut Self::Content, op: &SubjectOp) {
        self.small.expect(content, op);
    }

    fn name(&self, op: &SubjectOp) -> &'static str {
        self.small.name(op)
    }

    fn probes(&self) -> Vec<SubjectOp> {
        self.small.probes()
    }
}

/// What the leaves of a tree hold below the lkeys of the next ones, and the logs besides.
fn on_medium<K: TreeKey + ?Sized>(pool: &Pool) -> Option<BTreeMap<K::Owned, u64>> {
    let root = pool.root::<RootState>().raw();
    let mut all = BTreeMap::new();
    let mut floors = BTreeMap::new();
    let mut leaf = Leaf::<8>::new(pool, root + SpTree::<K, 8>::FIRST_LEAF_AT)?;
    loop {
        let next = Leaf::<8>::new(pool, leaf.next()).filter(|_| leaf.next() != 0);
        let end = next.map(|next| bound_key::<K>(pool, next.lkey()).expect("a bound"));
        for (_, word, value) in leaf.entries() {
            let key = key_of::<K>(pool, [word, value]).ok()?;
            let item = |at| ItemRef::new(pool, at).and_then(|item| item.word());
            let value = if K::IS_WORD { value } else { item(value).ok()? };
            if end.as_ref().is_none_or(|end| key < *end) {
                all.insert(key, value);
            }
        }
        floors.insert(bound_key::<K>(pool, leaf.lkey()).ok()?, leaf.merged());
        match next {
            Some(next) => leaf = next,
            None => break,
        }
    }
    let seed = crate::root::read(pool, root, K::MAGIC).ok()?[1];
    let logs = Logs::<8>::open(pool, root + MOVING_AT, Seed::new(seed));
    let mut records = Vec::new();
    for page in logs.chain().ok()? {
        records.extend(logs.records(page));
    }
    records.sort_unstable_by_key(|record| record.number);
    for record in records {
        let key = K::rebuild(record.key, &[]);
        let floor = floors.range::<K::Owned, _>(..=&key).next_back()?.1;
        match record.value {
            _ if record.number <= *floor => {}
            Some(value) => drop(all.insert(key, value)),
            None => drop(all.remove::<K::Owned>(&key)),
        }
    }
    Some(all)
}

fn survive<K: TreeKey + ?Sized>(keys: Option<Keys<K>>) {
    let subject = Serving::of(keys);
    let mut explorer = Explorer::new(&subject, limits());
    for history in histories() {
        let run = subject.record(&history).expect("a history");
        let report = explorer.explore(&run);
        assert!(report.is_clean(), "{}: {report}", history.0);
        println!("{}: {report}", history.0);
    }
}

#[test]
fn power_failures_lose_nothing_while_it_is_recovered() {
    survive(Keys::words(&TINY));
    survive(Keys::words(&TINY_BUFFERED));
    survive(Keys::families(&TINY));
}

/// What gives away that a step is left out while a tree is recovered.
#[test]
fn steps_are_missed_while_it_is_recovered() {
    let subject = Serving::of(Keys::words(&TINY_BUFFERED));
    for step in [
        Step::Run,
        Step::Replay,
        Step::LastOfKey,
        Step::Merged,
        Step::Hkey,
    ] {
        let mut explorer = Explorer::new(&subject, limits());
        let is_missed = histories().iter().any(|history| {
            let left_out = leave_out(step);
            let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                let run = subject.record(history);
                run.is_ok_and(|run| explorer.explore(&run).is_clean())
            }));
            drop(left_out);
            subject.is_recorded.store(false, Ordering::Relaxed);
            !matches!(found, Ok(true))
        });
        assert!(is_missed, "nobody misses {step:?}");
    }
}
