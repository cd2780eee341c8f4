//! Images that a power failure may leave.
//!
//! Each index runs through short histories that create it, make it grow, change and shrink. The
//! explorer lays out every image, or a sample where there are too many, and asks: does it open, is
//! every operation that had returned there, is the one under way there as a whole or not at all, do
//! the invariants hold, is no block lost, does it take new operations, and does the same hold when
//! the power fails again during recovery? `GABION_CRASH_ALL`, and with it `GABION_CRASH_SAMPLE`
//! and `GABION_CRASH_DEPTH`, make it longer, and so do more `GABION_CRASH_HISTORIES`.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::path::Path;

use gabion_media::pmem::explore::{
    self, ExploreLimits, Explorer, HistoryStep, Mutant, MutantReport, OpOutcome, Report, Run,
    Subject, SubjectMedium,
};
use gabion_media::pmem::{Pool, PoolOptions};
use gabion_media::{Error as MediaError, PoolFault};

use super::{Keys, check, find_by_scan};
use crate::index::{IndexPlan, OrderedIndex};
use crate::{Error, Index, Item, Seed};

/// An operation with the number of a key.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SubjectOp {
    Insert(u64, u64),
    Update(u64, u64),
    Remove(u64),
    Get(u64),
    /// A lookup by a scan, if the index is ordered, else a get.
    Scan(u64),
    Compact,
    /// Gives blocks that nobody reads any more back for use.
    Collect,
}

/// Operations that each image must take.
const PROBES: usize = 4;

/// Keys that are looked up in each image before anything else.
const LOOKED_UP: u64 = 64;

/// What the explorer is given.
pub(crate) struct SmallSubject<K: Item + ?Sized> {
    pub(crate) keys: Keys<K>,
}

impl<K: Item + ?Sized> SmallSubject<K> {
    fn options(&self, stage: &SubjectMedium) -> PoolOptions {
        PoolOptions {
            heaps: 1,
            chunk_bytes: 4096,
            watcher: Some(stage.watcher().clone()),
            ..(self.keys.makers.pool_options)()
        }
    }

    /// The pool on a medium; none if a crash interrupted its creation.
    fn pool(&self, stage: &SubjectMedium) -> Result<Option<Pool>, String> {
        match Pool::open_in(stage.region(), self.options(stage)) {
            Ok(pool) => Ok(Some(pool)),
            Err(MediaError::Pool {
                fault: PoolFault::Incomplete,
                ..
            }) => Ok(None),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Runs an operation, and returns the value that the key had before.
    pub(crate) fn run(&self, index: &dyn Index<K>, op: &SubjectOp) -> crate::Result<Option<u64>> {
        let key = |number| (self.keys.key)(number);
        match *op {
            SubjectOp::Insert(k, v) => index.insert(key(k).borrow(), v),
            SubjectOp::Update(k, v) => index.update(key(k).borrow(), v),
            SubjectOp::Remove(k) => index.remove(key(k).borrow()),
            SubjectOp::Get(k) => index.get(key(k).borrow()),
            SubjectOp::Scan(k) => match index.ordered() {
                Some(ordered) => find_by_scan(ordered, key(k).borrow()),
                None => index.get(key(k).borrow()),
            },
            SubjectOp::Compact => index.compact().map(|()| None),
            SubjectOp::Collect => {
                index.pool().collect();
                Ok(None)
            }
        }
    }
}

impl<K: Item + ?Sized> SmallSubject<K> {
    /// Scans from some keys, there or not, and compares with the content.
    fn scan_all(
        &self,
        index: &dyn OrderedIndex<K>,
        content: &BTreeMap<K::Owned, u64>,
    ) -> Result<(), String> {
        for number in (0..100).step_by(9) {
            let from = (self.keys.key)(number);
            let mut found = Vec::new();
            let scanned = index.scan(from.borrow(), 7, &mut found);
            scanned.map_err(|error| error.to_string())?;
            let expected = content.range::<K::Owned, _>(&from..).take(7);
            if !expected.eq(found.iter().map(|(key, value)| (key, value))) {
                return Err(format!("a scan from {from:?} finds {found:?}"));
            }
        }
        Ok(())
    }
}

impl<K: Item + ?Sized> Subject for SmallSubject<K> {
    type Op = SubjectOp;
    type Structure = Box<dyn Index<K>>;
    type Content = BTreeMap<K::Owned, u64>;

    fn bytes(&self) -> u64 {
        96 << 10
    }

    fn create(&self, stage: &SubjectMedium) -> Result<Self::Structure, String> {
        let pool = match self.pool(stage)? {
            Some(pool) => pool,
            None => Pool::create_in(stage.region(), self.options(stage))
                .map_err(|error| error.to_string())?,
        };
        let plan = IndexPlan {
            capacity: 8,
            seed: Some(7),
        };
        (self.keys.makers.create)(&pool, plan).map_err(|error| error.to_string())
    }

    fn open(&self, stage: &SubjectMedium) -> Result<Option<Self::Structure>, String> {
        let Some(pool) = self.pool(stage)? else {
            return Ok(None);
        };
        match (self.keys.makers.open)(&pool) {
            Ok(index) => Ok(Some(index)),
            Err(Error::NoRoot) => Ok(None),
            Err(error) => Err(error.to_string()),
        }
    }

    fn close(&self, index: Self::Structure) -> Result<(), String> {
        let pool = index.pool().clone();
        drop(index);
        pool.close().map_err(|error| error.to_string())
    }

    fn apply(&self, index: &Self::Structure, op: &SubjectOp) -> Result<OpOutcome, String> {
        match self.run(&**index, op) {
            Ok(_) => Ok(OpOutcome::Done),
            Err(error) if error.is_no_space() => Ok(OpOutcome::Refused),
            Err(error) => Err(error.to_string()),
        }
    }

    fn content(&self, index: &Self::Structure) -> Result<Self::Content, String> {
        // Lookups come first: they must not miss what recovery leaves to others.
        let first: Vec<_> = (0..LOOKED_UP)
            .map(|number| index.get((self.keys.key)(number).borrow()))
            .collect();
        check(&**index)?;
        let mut content = BTreeMap::new();
        let mut visit = |key: &K, value| {
            content.insert(K::rebuild(key.word(), key.bytes()), value);
        };
        index
            .for_each(&mut visit)
            .map_err(|error| error.to_string())?;
        for (key, value) in &content {
            let got = index.get(key.borrow()).map_err(|error| error.to_string())?;
            if got != Some(*value) {
                return Err(format!(
                    "{key:?} is {value} in a visit and {got:?} by a get"
                ));
            }
        }
        for (number, got) in (0..).zip(first) {
            let got = got.map_err(|error| error.to_string())?;
            let key = (self.keys.key)(number);
            let value = content.get::<K::Owned>(&key).copied();
            if got != value {
                return Err(format!("{key:?} is {value:?}, and was {got:?} at first"));
            }
        }
        if let Some(ordered) = index.ordered() {
            self.scan_all(ordered, &content)?;
        }
        Ok(content)
    }

    fn empty(&self) -> Self::Content {
        BTreeMap::new()
    }

    fn expect(&self, content: &mut Self::Content, op: &SubjectOp) {
        let key = |number| (self.keys.key)(number);
        match *op {
            SubjectOp::Insert(k, v) => {
                content.insert(key(k), v);
            }
            SubjectOp::Update(k, v) => {
                if let Some(value) = content.get_mut::<K>(key(k).borrow()) {
                    *value = v;
                }
            }
            SubjectOp::Remove(k) => {
                content.remove::<K>(key(k).borrow());
            }
            SubjectOp::Get(_) | SubjectOp::Scan(_) | SubjectOp::Compact | SubjectOp::Collect => {}
        }
    }

    fn name(&self, op: &SubjectOp) -> &'static str {
        match op {
            SubjectOp::Insert(..) => "insert",
            SubjectOp::Update(..) => "update",
            SubjectOp::Remove(_) => "remove",
            SubjectOp::Get(_) => "get",
            SubjectOp::Scan(_) => "scan",
            SubjectOp::Compact => "compact",
            SubjectOp::Collect => "collect",
        }
    }

    fn probes(&self) -> Vec<SubjectOp> {
        vec![
            SubjectOp::Insert(900, 1),
            SubjectOp::Update(900, 2),
            SubjectOp::Remove(1),
            SubjectOp::Insert(1, 3),
        ]
    }
}

/// A history: its name, its preparation, and what is explored.
pub(crate) type History = (&'static str, Vec<SubjectOp>, Vec<HistoryStep<SubjectOp>>);

/// The histories of every index.
pub(crate) fn histories() -> Vec<History> {
    let inserts = |range: std::ops::Range<u64>| range.map(|k| SubjectOp::Insert(k, 100 + k));
    let acts = |ops: Vec<SubjectOp>| ops.into_iter().map(HistoryStep::Op).collect::<Vec<_>>();
    let mut life = acts(vec![
        SubjectOp::Insert(4, 1),
        SubjectOp::Update(4, 2),
        SubjectOp::Insert(1, 3),
        SubjectOp::Remove(2),
        SubjectOp::Insert(5, 4),
        SubjectOp::Remove(4),
        SubjectOp::Insert(4, 5),
    ]);
    life.push(HistoryStep::Reopen);
    life.extend(acts(vec![
        SubjectOp::Update(4, 6),
        SubjectOp::Remove(1),
        SubjectOp::Compact,
    ]));
    vec![
        ("creation", vec![], acts(inserts(0..2).collect())),
        ("life", inserts(0..4).collect(), life),
        (
            "growth",
            inserts(0..11).collect(),
            acts(inserts(11..16).collect()),
        ),
        (
            "more growth",
            inserts(0..38).collect(),
            acts(inserts(38..44).collect()),
        ),
        (
            "shrinking",
            inserts(0..40)
                .collect::<Vec<_>>()
                .into_iter()
                .chain((0..30).map(SubjectOp::Remove))
                .collect(),
            acts(
                (30..38)
                    .map(SubjectOp::Remove)
                    .chain([SubjectOp::Compact])
                    .collect(),
            ),
        ),
        (
            "garbage",
            inserts(0..60)
                .chain((0..25).map(SubjectOp::Remove))
                .collect(),
            acts(
                [
                    SubjectOp::Compact,
                    SubjectOp::Insert(70, 1),
                    SubjectOp::Remove(40),
                ]
                .to_vec(),
            ),
        ),
    ]
}

/// Longer ones, of which no golden traces are kept. In the first, parts of the structure split
/// again and again: what one split leaves undone may be missed by the next. In the second, blocks
/// are used again, so that what was not written holds what was there before. In the third, each
/// entry that comes takes the place of its neighbour, which goes.
pub(crate) fn longer_histories() -> Vec<History> {
    let inserts = |range: std::ops::Range<u64>| range.map(|k| SubjectOp::Insert(k, 100 + k));
    let removes = |range: std::ops::Range<u64>| range.map(SubjectOp::Remove);
    let collect = [SubjectOp::Compact, SubjectOp::Collect];
    let reuse = inserts(0..52)
        .chain(collect)
        .chain(removes(0..26))
        .chain(collect);
    vec![
        (
            "crowding",
            inserts(0..12).collect(),
            inserts(12..72).map(HistoryStep::Op).collect(),
        ),
        (
            "reuse",
            reuse.collect(),
            inserts(100..128).map(HistoryStep::Op).collect(),
        ),
        (
            "turnover",
            (0..24).map(|k| SubjectOp::Insert(2 * k, 1)).collect(),
            (0..20)
                .flat_map(|k| {
                    [
                        SubjectOp::Insert(2 * k + 1, 2),
                        SubjectOp::Remove(2 * k + 2),
                    ]
                })
                .map(HistoryStep::Op)
                .collect(),
        ),
    ]
}

/// Histories of random operations, of which `seed` makes one.
fn random_history(seed: u64) -> (Vec<SubjectOp>, Vec<HistoryStep<SubjectOp>>) {
    let mut random = (0..).map(|number| Seed::new(seed).hash_u64(number));
    let mut below = move |limit: u64| random.next().map_or(0, |number| number % limit);
    let keys = 4 + below(60);
    let mut op = |value: u64| match below(16) {
        0..=7 => SubjectOp::Insert(below(keys), value),
        8..=9 => SubjectOp::Update(below(keys), value),
        10..=14 => SubjectOp::Remove(below(keys)),
        _ => SubjectOp::Compact,
    };
    let setup = (0..keys * 3 / 2).map(&mut op).collect();
    let acts = (1000..1008)
        .map(|value| HistoryStep::Op(op(value)))
        .collect();
    (setup, acts)
}

/// A number from the environment.
pub(crate) fn from_env(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| {
        text.parse()
            .unwrap_or_else(|_| panic!("{name} is {text:?}, which is not a number"))
    })
}

/// Whether an index keeps locks in lines of the medium that nobody flushes for them. There are as
/// many images as states of all these locks, and recovery makes the same of them.
fn leaves_locks(name: &str) -> bool {
    name.starts_with("p-clht-") && name != crate::pclht::WIDE.name
}

/// Whether an index lies on another one, which has a suite of its own. Its images have all lines of
/// both that are on their way, and take a look at each page of the logs.
fn is_layered(name: &str) -> bool {
    let bases = ["fastfair-b", "p-skiplist-b", "cceh-b"];
    bases.iter().any(|base| name.starts_with(base))
}

/// Whether recovery of an index ends what was half done in its parts, without any block that comes
/// or goes: what of that is lost in a second crash shows only after writes to those parts.
fn ends_moves(name: &str) -> bool {
    name.starts_with("clevel")
}

/// Histories of indexes whose writes hide what others left undone. Of SPTree, the first is of one
/// that is closed and opened before anything else. In the second blocks of one size go, and then
/// others, of another size, whose notes take the place of theirs.
fn telling(name: &str) -> Vec<History> {
    if is_layered(name) && name.ends_with("-tiny") {
        return vec![filled_again()];
    }
    if name.contains("-quad") {
        return vec![updates_of(14), updates_of(20), movement()];
    }
    if name.starts_with("cceh-cow-8") {
        let inserts =
            |keys: std::ops::Range<u64>| keys.map(|key| SubjectOp::Insert(key, 100 + key));
        let acts = inserts(56..132).map(HistoryStep::Op).collect();
        return vec![("more crowding", inserts(0..56).collect(), acts)];
    }
    if !name.starts_with("sptree") {
        return Vec::new();
    }
    let emptiness = vec![
        HistoryStep::Reopen,
        HistoryStep::Op(SubjectOp::Insert(0, 100)),
    ];
    let updates = [63, 1, 1, 1].into_iter().zip(1..);
    let updates = updates.map(|(key, value)| HistoryStep::Op(SubjectOp::Update(key, value)));
    vec![
        ("emptiness", vec![], emptiness),
        (
            "sizes",
            vec![SubjectOp::Insert(63, 0), SubjectOp::Insert(1, 0)],
            updates.collect(),
        ),
    ]
}

/// A history of updates in buckets that are full and in others, of values that no store replaces.
/// Then entries come and go where a record may still name one.
fn updates_of(keys: u64) -> History {
    let updates = (0..keys).map(|key| SubjectOp::Update(key, 200 + key));
    let others = [
        SubjectOp::Remove(keys - 1),
        SubjectOp::Update(0, 300),
        SubjectOp::Remove(0),
        SubjectOp::Insert(50, 301),
        SubjectOp::Update(50, 302),
    ];
    let acts = updates.chain(others).map(HistoryStep::Op).collect();
    let setup = (0..keys)
        .map(|key| SubjectOp::Insert(key, 100 + key))
        .collect();
    ("updates", setup, acts)
}

/// A history of Level hashing with four slots, in which an entry moves to a slot beside the tokens:
/// elsewhere pairs are fenced before their tokens, and with them the note of the movement.
fn movement() -> History {
    let inserts = (0..23).map(|key| SubjectOp::Insert(key, 100 + key));
    let setup = inserts.chain([SubjectOp::Remove(1)]).collect();
    (
        "movement",
        setup,
        vec![HistoryStep::Op(SubjectOp::Insert(31, 1))],
    )
}

/// A history of a layered index with seven records in a page of its logs. Three pages are full, and
/// the floor is raised. The next record is the first in the second page, over the last one of a key
/// that has an older one in the first page: that counts again if the floor was lost.
fn filled_again() -> History {
    let of_page = |first: SubjectOp| {
        let others = (1..7).map(|value| SubjectOp::Insert(1, value));
        std::iter::once(first).chain(others)
    };
    let pages = [
        SubjectOp::Insert(0, 1),
        SubjectOp::Insert(0, 2),
        SubjectOp::Insert(1, 0),
    ];
    let setup = pages.into_iter().flat_map(of_page).collect();
    let acts = [SubjectOp::Compact, SubjectOp::Insert(2, 1)]
        .map(HistoryStep::Op)
        .to_vec();
    ("pages filled again", setup, acts)
}

/// What the environment says, or few images, for a test of some seconds.
pub(crate) fn limits() -> ExploreLimits {
    let few = ExploreLimits {
        all: 128,
        sample: 64,
        nested_all: 16,
        nested_sample: 8,
        ..ExploreLimits::default()
    };
    let is_long = std::env::var_os("GABION_CRASH_ALL").is_some();
    if is_long {
        ExploreLimits::from_env()
    } else {
        few
    }
}

/// As [`limits`], for the index with this name.
pub(crate) fn limits_of(name: &str) -> ExploreLimits {
    let limits = limits();
    let is_long = std::env::var_os("GABION_CRASH_ALL").is_some();
    if is_long || !leaves_locks(name) && !is_layered(name) {
        return limits;
    }
    // Segments that are replaced leave notes of the allocator on their way, which hide others.
    let shift = if name.starts_with("cceh-bo") { 2 } else { 3 };
    ExploreLimits {
        all: limits.all >> shift,
        sample: limits.sample >> shift,
        nested_all: limits.nested_all >> shift,
        nested_sample: limits.nested_sample >> shift,
        ..limits
    }
}

/// Explores all histories of an index, and `GABION_CRASH_HISTORIES` random ones, by default two.
pub(crate) fn survive<K: Item + ?Sized>(keys: Keys<K>) {
    let subject = SmallSubject { keys };
    let mut limits = limits_of(subject.keys.name);
    if std::env::var_os("GABION_CRASH_ALL").is_none() {
        // The search for mutants looks at four times as many of the same histories.
        limits.all /= 4;
        limits.sample /= 4;
        limits.nested_all /= 4;
        limits.nested_sample /= 4;
    }
    if ends_moves(subject.keys.name) {
        limits.nested_probes = PROBES;
    }
    let all = histories().into_iter().chain(longer_histories());
    let report = explore(&subject, limits, all);
    println!("{}: {report}", subject.keys.name);
}

/// Explores histories, and `GABION_CRASH_HISTORIES` random ones, by default two: none may violate
/// anything.
pub(crate) fn explore<S: Subject<Op = SubjectOp>>(
    subject: &S,
    limits: ExploreLimits,
    histories: impl Iterator<Item = History>,
) -> Report {
    let mut explorer = Explorer::new(subject, limits);
    let random = (0..from_env("GABION_CRASH_HISTORIES", 2)).map(|seed| {
        let (setup, acts) = random_history(seed);
        ("random", setup, acts)
    });
    let mut total: Option<Report> = None;
    for (name, setup, acts) in histories.chain(random) {
        let run = Run::record(subject, name, &setup, &acts).expect(name);
        let report = explorer.explore(&run);
        assert!(report.is_clean(), "{name}: {report}");
        match &mut total {
            Some(total) => total.add(report),
            None => total = Some(report),
        }
    }
    total.expect("histories")
}

/// Where the sources are.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// Leaves out each flush and each fence of the index in turn. `known` lists those that no history
/// here misses, each with the reason. One in twenty may leave images that nobody misses, or one.
/// Others leave no image that the whole index does not leave: what flushes their line comes after.
pub(crate) fn catch_mutants<K: Item + ?Sized>(keys: Keys<K>, known: &[(&str, &str)]) {
    let subject = SmallSubject { keys };
    let mut explorer = Explorer::new(&subject, limits_of(subject.keys.name));
    let mut runs = Vec::new();
    let all = histories().into_iter().chain(longer_histories());
    for (name, setup, acts) in all.chain(telling(subject.keys.name)) {
        let run = Run::record(&subject, name, &setup, &acts).expect(name);
        let report = explorer.explore(&run);
        assert!(report.is_clean(), "{name}: {report}");
        runs.push(run);
    }
    let runs: Vec<&dyn explore::History<_>> = runs.iter().map(|run| run as _).collect();
    // The tree of SPTree's backup may be late by design, and has a suite of its own.
    let is_of_backup = |mutant: &Mutant| {
        let is_inner = subject.keys.name.starts_with("sptree");
        let is_tree = |file: &str| file.contains("fastfair") || file.contains("src/art/");
        is_inner && matches!(mutant, Mutant::Place(place, _) if is_tree(place.file()))
    };
    // What a base leaves undone the logs make good, until the floor is raised, with a fence.
    let is_of_base = |file: &str| {
        let is_of_layer = ["src/layered/", "src/spoton/", "src/root.rs"];
        is_layered(subject.keys.name) && !is_of_layer.iter().any(|part| file.contains(part))
    };
    let is_ours = |mutant: &Mutant| match mutant {
        Mutant::Place(place, _) => {
            place.file().contains("gabion-index") && !is_of_base(place.file())
        }
        Mutant::Number(..) => true,
    };
    let ours = explorer.places().into_iter().filter(is_ours);
    let report = MutantReport {
        tried: ours
            .map(|mutant| explorer.try_mutant(mutant, &runs))
            .collect(),
    };
    println!("{}: {report}", subject.keys.name);
    assert!(report.tried.len() >= 4, "there are flushes and fences");
    let compared = report.compare_survivors(Path::new(ROOT), known);
    compared.unwrap_or_else(|error| panic!("{error}"));
    // A form of an index may have flushes only to show what they cost.
    let is_studied = |mutant: &Mutant| {
        let name = mutant.in_source(Path::new(ROOT));
        known.contains(&(name.as_str(), super::STUDIED))
    };
    let is_meant = |mutant: &Mutant| !is_of_backup(mutant) && !is_studied(mutant);
    let survivors = report.tried.iter().filter(|tried| tried.caught.is_none());
    let missed = survivors.filter(|tried| tried.images != 0 && is_meant(&tried.mutant));
    let missed = missed.count();
    assert!(missed <= (report.tried.len() / 20).max(1), "{report}");
}

/// Compares what operations do to the medium with a file that is checked in.
pub(crate) fn compare_golden<K: Item + ?Sized>(keys: Keys<K>, golden: &str) {
    let subject = SmallSubject { keys };
    let mut text = String::new();
    for (name, setup, acts) in histories() {
        let run = Run::record(&subject, name, &setup, &acts).expect(name);
        text.push_str(&format!("# {name}\n{}", run.golden()));
    }
    let text = text.trim_end();
    let golden = golden.trim_end();
    assert!(
        text == golden,
        "the persist traces have changed; if they are meant to, the file becomes:\n{text}\n"
    );
}
