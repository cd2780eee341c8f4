//! A tree whose inserts are all out of place, one entry each: whatever the suite does to an index
//! it does to leaves that are replaced.

use std::collections::BTreeMap;
use std::panic::Location;

use gabion_media::pmem::Pool;
use gabion_media::pmem::explore::{
    Barrier, Explorer, HistoryStep, Mutant, OpOutcome, Run, Subject, SubjectMedium,
};

use super::FastFair;
use crate::blink::{Descent, Renewal};
use crate::index::Makers;
use crate::registered::{IndexKind, PersistCounts, ReadProtocol, Registered};
use crate::spoton::search_starts::told;
use crate::suite::Keys;
use crate::suite::crash::{self, SmallSubject, SubjectOp};
use crate::suite::renewed::{OutOfPlace, Renewed};
use crate::{Index, OrderedIndex, Result};

impl OutOfPlace for FastFair<5> {
    fn put(&self, key: u64, value: u64) -> Result<()> {
        self.put_all(&[(key, value)], 1)
    }

    fn order_of(renewed: &Renewed<Self>) -> Option<&dyn OrderedIndex<u64>> {
        Some(renewed)
    }
}

fn create<const IS_CACHED: bool>(pool: &Pool) -> Result<Box<Renewed<FastFair<5>>>> {
    renewed::<IS_CACHED>(FastFair::create(pool))
}

fn renewed<const IS_CACHED: bool>(tree: Result<FastFair<5>>) -> Result<Box<Renewed<FastFair<5>>>> {
    let tree = told::<IS_CACHED, _>(tree, FastFair::cached)?;
    Ok(Box::new(Renewed::with(*tree)))
}

const fn registered<const IS_CACHED: bool>(name: &'static str) -> Registered {
    Registered {
        name,
        title: "",
        kind: IndexKind::Tree,
        reads: ReadProtocol::Optimistic,
        persists: PersistCounts {
            insert: 4,
            update: 1,
            remove: 2,
        },
        source: "",
        words: Makers {
            pool_options: FastFair::<5>::pool_options,
            create: |pool, _| Ok(create::<IS_CACHED>(pool)?),
            open: |pool| Ok(renewed::<IS_CACHED>(FastFair::open(pool))?),
            create_ordered: Some(|pool, _| Ok(create::<IS_CACHED>(pool)?)),
        },
        strings: None,
    }
}

/// The tree.
pub(crate) static TINY_RENEWED: Registered = registered::<false>("fastfair-o-tiny");

/// The same with the ways to its leaves in DRAM.
pub(crate) static TINY_RENEWED_CACHED: Registered = registered::<true>("fastfair-oc-tiny");

/// What is done to a small tree.
#[derive(Clone, Copy, Debug)]
enum Step {
    Whole(SubjectOp),
    /// As the insert of a key and a value that a crash ends after the leaf's parent was led past
    /// it, and before its left neighbour was.
    Half(u64, u64),
}

/// A small tree of which each image, after its recovery, goes on.
struct Again {
    small: SmallSubject<u64>,
    /// With what it goes on.
    probes: Vec<SubjectOp>,
}

impl Again {
    fn new(index: &'static Registered, probes: Vec<SubjectOp>) -> Again {
        let keys = Keys::words(index).expect("words are keys");
        let small = SmallSubject { keys };
        Again { small, probes }
    }
}

impl Subject for Again {
    type Op = Step;
    type Structure = Box<dyn Index<u64>>;
    type Content = BTreeMap<u64, u64>;

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
        step: &Step,
    ) -> std::result::Result<OpOutcome, String> {
        match step {
            Step::Whole(op) => self.small.apply(index, op),
            Step::Half(key, value) => {
                // The handle that is open has the same ways in DRAM afterwards.
                let tree = FastFair::open(index.pool()).map_err(|error| error.to_string())?;
                half_renewed(&tree, (self.small.keys.key)(*key), *value);
                Ok(OpOutcome::Done)
            }
        }
    }

    fn content(&self, index: &Self::Structure) -> std::result::Result<Self::Content, String> {
        self.small.content(index)
    }

    fn empty(&self) -> Self::Content {
        self.small.empty()
    }

    fn expect(&self, content: &mut Self::Content, step: &Step) {
        let op = match *step {
            Step::Whole(op) => op,
            Step::Half(key, value) => SubjectOp::Insert(key, value),
        };
        self.small.expect(content, &op);
    }

    fn name(&self, step: &Step) -> &'static str {
        match step {
            Step::Whole(op) => self.small.name(op),
            Step::Half(..) => "half an insert",
        }
    }

    fn probes(&self) -> Vec<Step> {
        self.probes.iter().copied().map(Step::Whole).collect()
    }
}

/// Entries of the small tree, in some six leaves.
const KEYS: u64 = 16;

/// With what images of crashes go on: each entry's leaf is replaced twice, with the same number of
/// entries, or goes, or whatever was left undone is done. What was given up is used again.
fn probes() -> [Vec<SubjectOp>; 3] {
    let round = |value| (0..KEYS).map(move |key| SubjectOp::Insert(key, value));
    let removes = || (0..KEYS).map(SubjectOp::Remove);
    let replaced = round(1000).chain([SubjectOp::Collect]).chain(round(1001));
    let removed = removes().chain([SubjectOp::Collect]).chain(round(1000));
    let compacted = [SubjectOp::Compact, SubjectOp::Collect]
        .into_iter()
        .chain(round(1000));
    [
        replaced.collect(),
        removed.collect(),
        compacted.chain(removes()).collect(),
    ]
}

/// Stores a value in a new leaf, leads the parent there, and leaves the old one behind its left
/// neighbour.
pub(super) fn half_renewed(tree: &FastFair<5>, key: u64, value: u64) {
    let _within = tree.pool().write_guard();
    let _guard = tree.pool().enter();
    let leaf = |key| tree.descend(0, key).expect("sound").expect("a leaf");
    let low = leaf(key).head.low();
    let lock = tree.locks.lock(leaf(low - 1).at);
    tree.put_all(&[(key, value)], 1).expect("space");
    drop(lock);
    let parent = tree.descend(1, low).expect("sound").expect("a parent");
    let parent = tree.lock(parent, low).expect("the parent of the leaf");
    tree.redirect(&parent, low, leaf(low).at);
}

/// A crash between any two steps by which a leaf is replaced leaves a tree in which it is replaced
/// again, whatever of the steps was not done.
#[test]
fn what_a_crash_leaves_of_a_leaf_is_replaced_again() {
    for index in [&TINY_RENEWED, &TINY_RENEWED_CACHED] {
        for probes in probes() {
            let subject = Again::new(index, probes);
            let report = Explorer::new(&subject, crash::limits()).explore(&run(&subject));
            assert!(report.is_clean(), "{report}");
            println!("{}: {report}", index.name);
        }
    }
}

/// The history of a leaf that is replaced again and again, also where that was not done to its end.
fn run(subject: &Again) -> Run<Again> {
    let setup: Vec<Step> = (0..KEYS)
        .map(|key| Step::Whole(SubjectOp::Insert(key, key)))
        .collect();
    let insert = |key, value| Step::Whole(SubjectOp::Insert(key, value));
    let steps = [
        insert(7, 100),
        insert(7, 101),
        insert(12, 102),
        Step::Half(7, 103),
        insert(7, 104),
        Step::Half(8, 105),
        Step::Half(8, 106),
        Step::Whole(SubjectOp::Remove(8)),
    ];
    Run::record(subject, "again", &setup, &steps.map(HistoryStep::Op)).expect("a history")
}

/// Each fence of a leaf that is replaced is needed: also the one by which its parent says nothing
/// new, because it leads past the leaf already.
#[test]
fn each_fence_of_a_renewal_is_missed() {
    let [replaced, ..] = probes();
    let subject = Again::new(&TINY_RENEWED, replaced);
    let run = run(&subject);
    let mut explorer = Explorer::new(&subject, crash::limits());
    let report = explorer.explore(&run);
    assert!(report.is_clean(), "{report}");
    let is_of_renewal = |mutant: &Mutant| {
        let in_source = |place: &Location<'_>| place.file().ends_with("blink/renewal.rs");
        matches!(mutant, Mutant::Place(place, Barrier::Fence) if in_source(place))
    };
    let fences: Vec<Mutant> = explorer
        .places()
        .into_iter()
        .filter(is_of_renewal)
        .collect();
    assert_eq!(fences.len(), 4, "two alone, and two with a link");
    for fence in fences {
        let tried = explorer.try_mutant(fence, &[&run]);
        let violation = tried.caught.expect("without a fence something is lost");
        println!("without {}: {violation}", tried.mutant);
    }
}
