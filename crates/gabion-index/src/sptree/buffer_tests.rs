//! The tree with write buffers, in special situations.

use std::collections::BTreeMap;

use gabion_media::pmem::Pool;
use gabion_media::pmem::explore::{Explorer, HistoryStep, OpOutcome, Run, Subject, SubjectMedium};

use super::buffer::{BUFFER_BYTES, buffered_max};
use super::layout::MOVING_AT;
use super::log::Logs;
use super::readpath::NodeSearch;
use super::steps::{Step, leave_out};
use super::{BUFFERED, Options, SpTree, TINY_BUFFERED};
use crate::registered::Registered;
use crate::spoton::layout::page_bytes;
use crate::suite::crash::{
    History, SmallSubject, SubjectOp, explore, histories, limits, longer_histories,
};
use crate::suite::{self, Keys, SMALL, check, words};
use crate::{Error, Index, OrderedIndex, Seed};

/// A buffer for each leaf.
const ALL: Options = Options {
    buffer_bytes: u64::MAX,
};

fn few(buffers: u64) -> Options {
    Options {
        buffer_bytes: buffers * BUFFER_BYTES,
    }
}

fn pool<const N: usize>(size: u64) -> Pool {
    suite::pool(size, SpTree::<u64, N>::pool_options())
}

fn tree<const N: usize>(size: u64, options: Options) -> SpTree<u64, N> {
    SpTree::create_with(&pool::<N>(size), SMALL, options).expect("a tree")
}

/// The tree as a crash of the process leaves it: what is in buffers is in the logs only.
fn again<const N: usize>(tree: SpTree<u64, N>, options: Options) -> SpTree<u64, N> {
    let pool = tree.pool().clone();
    drop(tree);
    SpTree::open_with(&pool, options).expect("a tree")
}

fn has_buffer(tree: &SpTree<u64, 8>, key: u64) -> bool {
    let seen = NodeSearch::new(tree, &key).node().expect("sound");
    seen.node.buffer().is_some()
}

/// Random writes, each answer compared with a map's; all entries in the end.
fn follow(tree: &SpTree<u64, 8>, twin: &mut BTreeMap<u64, u64>, seed: u64, writes: u64) {
    let random = Seed::new(seed);
    for number in 0..writes {
        let drawn = random.hash_u64(number);
        let key = (drawn % 400) << 48;
        match drawn >> 32 & 7 {
            0..=3 => {
                let before = tree.insert(key, drawn).expect("space");
                assert_eq!(
                    before,
                    twin.insert(key, drawn),
                    "seed {seed}, write {number}"
                );
            }
            4 => {
                let before = tree.update(key, drawn).expect("sound");
                let value = twin.get_mut(&key);
                assert_eq!(
                    before,
                    value.as_deref().copied(),
                    "seed {seed}, write {number}"
                );
                value.into_iter().for_each(|value| *value = drawn);
            }
            5 | 6 => {
                let before = tree.remove(key).expect("sound");
                assert_eq!(before, twin.remove(&key), "seed {seed}, write {number}");
            }
            _ => {
                let found = tree.get(key).expect("sound");
                assert_eq!(
                    found,
                    twin.get(&key).copied(),
                    "seed {seed}, write {number}"
                );
            }
        }
    }
    words::check(tree, twin.len() as u64);
}

fn compare(tree: &SpTree<u64, 8>, twin: &BTreeMap<u64, u64>) {
    for key in (0..400).map(|key| key << 48) {
        assert_eq!(tree.get(key).expect("sound"), twin.get(&key).copied());
    }
    words::check(tree, twin.len() as u64);
    let mut found = Vec::new();
    tree.scan(&0, usize::MAX, &mut found).expect("sound");
    assert!(twin.iter().map(|(key, value)| (*key, *value)).eq(found));
}

/// A tree is opened with another budget again and again: pages of logs come, are filled again, go,
/// and come again with what they held before.
#[test]
fn budgets_may_change_from_opening_to_opening() {
    let mut tree = tree::<8>(8 << 20, ALL);
    let mut twin = BTreeMap::new();
    let budgets = [few(0), ALL, few(3), ALL, few(0), few(40), few(1)];
    for (seed, options) in (0..).zip(budgets.into_iter().cycle().take(42)) {
        follow(&tree, &mut twin, seed, 500);
        tree = again(tree, options);
        if options == few(0) {
            assert_eq!(tree.log_bytes(), 0, "logs without buffers");
        }
        if seed % 2 == 0 {
            compare(&tree, &twin);
        }
    }
}

/// The newer value is in the buffer and the older one in the leaf: a delete takes both.
#[test]
fn a_deleted_key_does_not_come_back_from_the_leaf() {
    let tree = tree::<8>(1 << 20, ALL);
    for key in 0..4 {
        tree.insert(key, 1).expect("space");
    }
    // A scan brings them into the leaf.
    tree.scan(&0, 4, &mut Vec::new()).expect("sound");
    assert_eq!(tree.insert(2, 2).expect("space"), Some(1));
    assert_eq!(tree.get(2).expect("sound"), Some(2));
    assert_eq!(tree.remove(2).expect("sound"), Some(2));
    assert_eq!(tree.get(2).expect("sound"), None);
    words::check(&tree, 3);
    let tree = again(tree, ALL);
    assert_eq!(tree.get(2).expect("sound"), None);
    words::check(&tree, 3);
}

/// Whatever is written, the logs do not grow beyond their limit; and all that is in them is found
/// again, by several threads.
#[test]
fn logs_are_bounded_and_replayed() {
    let tree = tree::<8>(32 << 20, ALL);
    let order = Seed::new(5);
    let keys = 40_000;
    let assert_bounded = |tree: &SpTree<u64, 8>| {
        let records = tree.buffers.used() as usize * buffered_max(8);
        let pages = records.div_ceil(Logs::<8>::RECORDS) + 3;
        let bytes = pages as u64 * page_bytes(8);
        assert!(tree.log_bytes() <= bytes, "{} > {bytes}", tree.log_bytes());
    };
    for number in 0..keys {
        tree.insert(order.hash_u64(number), number).expect("space");
        assert_bounded(&tree);
    }
    // One leaf is written without end, while the records of all others stay.
    for round in 0..100_000 {
        tree.update(order.hash_u64(7), round).expect("sound");
        assert_bounded(&tree);
    }
    for number in 0..keys / 4 {
        tree.remove(order.hash_u64(4 * number)).expect("sound");
    }
    assert_bounded(&tree);
    assert!(
        tree.log_bytes() / page_bytes(8) > 200,
        "pages for two threads"
    );
    let tree = again(tree, ALL);
    for number in 0..keys {
        let value = if number == 7 { 99_999 } else { number };
        let expected = (number % 4 != 0).then_some(value);
        assert_eq!(tree.get(order.hash_u64(number)).expect("sound"), expected);
    }
    words::check(&tree, keys - keys / 4);
}

/// With fewer buffers than leaves, those have one that are written most, also when it is others
/// after a while.
#[test]
fn buffers_go_where_much_is_written() {
    let buffers = 40;
    let tree = tree::<8>(4 << 20, few(buffers));
    let keys = 4000;
    for key in 0..keys {
        tree.insert(key, key).expect("space");
    }
    // A range of leaves for somewhat fewer than all buffers; each ninth write goes anywhere.
    for hot in [0, 2000] {
        for number in 0..20_000_u64 {
            let key = if number % 9 == 0 {
                number.wrapping_mul(0x9e37_79b9_7f4a_7c15) % keys
            } else {
                hot + number % 120
            };
            tree.update(key, number).expect("sound");
        }
        let warm = (hot..hot + 120).filter(|key| has_buffer(&tree, *key));
        let warm = warm.count();
        assert!(warm >= 108, "{warm} of 120 keys are buffered");
    }
    assert!(u64::from(tree.buffers.used()) <= buffers);
    words::check(&tree, keys);
}

#[test]
fn a_full_pool_leaves_the_tree_usable() {
    words::fill_the_pool(&tree::<64>(512 << 10, ALL));
    words::fill_the_pool(&tree::<8>(512 << 10, ALL));
    words::fill_the_pool(&tree::<8>(512 << 10, few(5)));
}

/// Threads write, delete and scan their own keys among those of others, while leaves take buffers
/// from each other and the logs are full.
#[test]
fn threads_share_few_buffers() {
    let tree = tree::<8>(32 << 20, few(12));
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let tree = &tree;
            scope.spawn(move || {
                for round in 0..6 {
                    for number in 0..1500 {
                        let key = number * 3 + thread;
                        assert_eq!(tree.insert(key, round).expect("space"), None);
                        let again = tree.insert(key, round + 1).expect("space");
                        assert_eq!(again, Some(round));
                    }
                    let mut found = Vec::new();
                    tree.scan(&0, 10_000, &mut found).expect("sound");
                    assert!(found.is_sorted_by(|one, two| one.0 < two.0));
                    let own = found.iter().filter(|(key, _)| key % 3 == thread);
                    assert_eq!(own.count(), 1500);
                    for number in 0..1500 {
                        let key = number * 3 + thread;
                        assert_eq!(tree.get(key).expect("sound"), Some(round + 1));
                        if round < 5 || number % 2 == 0 {
                            assert_eq!(tree.remove(key).expect("sound"), Some(round + 1));
                        }
                    }
                }
            });
        }
    });
    words::check(&tree, 3 * 750);
    let tree = again(tree, few(12));
    words::check(&tree, 3 * 750);
}

/// A record that was torn is none, and a chain of pages that leads nowhere is told as damage.
#[test]
fn damaged_logs_are_told() {
    let tree = tree::<8>(1 << 20, ALL);
    for key in 0..3 {
        tree.insert(key, 40 + key).expect("space");
    }
    let (pool, root) = (tree.pool().clone(), tree.root);
    drop(tree);
    let mut start = [0; 8];
    pool.read(root + MOVING_AT, &mut start);
    let page = u64::from_le_bytes(start);
    // The value of the last record, while the others stay.
    pool.write(page + 32 * 3 + 8, &[99]);
    let tree = SpTree::<u64, 8>::open(&pool).expect("a tree");
    let values = [0, 1, 2].map(|key| tree.get(key).expect("sound"));
    assert_eq!(values, [Some(40), Some(41), None]);
    words::check(&tree, 2);
    drop(tree);
    for wrong in [8, 256 * 1000 * 1000, u64::MAX] {
        pool.write(root + MOVING_AT, &u64::to_le_bytes(wrong));
        let opened = SpTree::<u64, 8>::open_with(&pool, ALL);
        assert!(matches!(opened, Err(Error::Damaged { .. })), "{wrong}");
    }
    // A page that names itself as the next one.
    pool.write(root + MOVING_AT, &start);
    pool.write(page, &start);
    let opened = SpTree::<u64, 8>::open_with(&pool, ALL);
    assert!(matches!(opened, Err(Error::Damaged { .. })));
}

/// Writes while the logs are full: each looks at old records and makes leaves that are seldom
/// written take theirs, pages are filled again over what is dead, and deletes stand in the logs
/// behind inserts whose pages go first.
fn reclaims() -> [(&'static str, Vec<SubjectOp>, Vec<SubjectOp>); 2] {
    // In the end each leaf has something in its buffer, whose record is old.
    let inserts = (0..24).map(|key| SubjectOp::Insert(2 * key, key));
    let setup: Vec<SubjectOp> = inserts
        .chain((0..12).map(|key| SubjectOp::Update(4 * key, 70)))
        .chain((0..32).map(|number| SubjectOp::Update(2 * (number % 3), number)))
        .collect();
    let updates = (0..40).map(|number| SubjectOp::Update(2 * (number % 3), 80 + number));
    let turns = (0..12).flat_map(|number| {
        let key = 41 + number % 2 * 4;
        [
            SubjectOp::Insert(key, number),
            SubjectOp::Update(4, number),
            SubjectOp::Remove(key),
        ]
    });
    [
        ("updates amid reclaim", setup.clone(), updates.collect()),
        ("deletes amid reclaim", setup, turns.collect()),
    ]
}

/// As the suite's subject, but what the tree holds is told by lookups: the suite's scans would
/// bring all buffers into the leaves after each operation.
struct Buffered(SmallSubject<u64>);

impl Buffered {
    fn of(registered: &'static Registered) -> Buffered {
        let keys = Keys::words(registered).expect("words");
        Buffered(SmallSubject { keys })
    }
}

impl Subject for Buffered {
    type Op = SubjectOp;
    type Structure = Box<dyn Index<u64>>;
    type Content = BTreeMap<u64, u64>;

    fn bytes(&self) -> u64 {
        self.0.bytes()
    }

    fn create(&self, stage: &SubjectMedium) -> Result<Self::Structure, String> {
        self.0.create(stage)
    }

    fn open(&self, stage: &SubjectMedium) -> Result<Option<Self::Structure>, String> {
        self.0.open(stage)
    }

    fn close(&self, index: Self::Structure) -> Result<(), String> {
        self.0.close(index)
    }

    fn apply(&self, index: &Self::Structure, op: &SubjectOp) -> Result<OpOutcome, String> {
        self.0.apply(index, op)
    }

    fn content(&self, index: &Self::Structure) -> Result<Self::Content, String> {
        let mut content = BTreeMap::new();
        // All keys of the histories, and that of the operations that each image must take.
        for key in (0..160).chain([900]).map(self.0.keys.key) {
            let value = index.get(&key).map_err(|error| error.to_string())?;
            content.extend(value.map(|value| (key, value)));
        }
        check(&**index)?;
        let entries = index.len().map_err(|error| error.to_string())?;
        if entries != content.len() as u64 {
            return Err(format!(
                "{entries} entries, of which these were found: {content:?}"
            ));
        }
        Ok(content)
    }

    fn empty(&self) -> Self::Content {
        BTreeMap::new()
    }

    fn expect(&self, content: &mut Self::Content, op: &SubjectOp) {
        self.0.expect(content, op);
    }

    fn name(&self, op: &SubjectOp) -> &'static str {
        self.0.name(op)
    }

    fn probes(&self) -> Vec<SubjectOp> {
        self.0.probes()
    }
}

/// The suite's histories, those above, and one in which buffers have newer values of what leaves
/// have, which are then deleted.
fn all_histories() -> impl Iterator<Item = History> {
    let reclaims = reclaims().map(|(name, setup, ops)| (name, setup, acts(&ops)));
    let setup = (0..24).map(|key| SubjectOp::Insert(key, key)).collect();
    let older = (0..8).flat_map(|key| [SubjectOp::Update(key, 100), SubjectOp::Remove(key)]);
    let older = acts(&older.collect::<Vec<SubjectOp>>());
    let all = histories().into_iter().chain(longer_histories());
    all.chain(reclaims).chain([("older values", setup, older)])
}

#[test]
fn power_failures_lose_nothing_of_full_buffers() {
    for registered in [&BUFFERED, &TINY_BUFFERED] {
        let subject = Buffered::of(registered);
        let report = explore(&subject, limits(), all_histories());
        println!("{}, full buffers: {report}", registered.name);
    }
}

fn acts(ops: &[SubjectOp]) -> Vec<HistoryStep<SubjectOp>> {
    ops.iter().copied().map(HistoryStep::Op).collect()
}

#[test]
fn histories_of_reclaim_fill_pages_again() {
    for (name, setup, ops) in reclaims() {
        let tree = tree::<8>(1 << 20, ALL);
        let subject = Buffered::of(&TINY_BUFFERED);
        for op in setup.iter().chain(&ops) {
            subject.0.run(&tree, op).expect("space");
        }
        let records = (setup.len() + ops.len()) as u64;
        let needed = records / Logs::<8>::RECORDS as u64 * page_bytes(8);
        assert!(tree.log_bytes() < needed, "{name}: {}", tree.log_bytes());
    }
}

/// What gives away that a step is left out: a run that fails, or an image that is wrong.
fn evidence(step: Step, histories: &[History]) -> Option<String> {
    let subject = Buffered::of(&TINY_BUFFERED);
    let mut explorer = Explorer::new(&subject, limits());
    for (name, setup, ops) in histories {
        let left_out = leave_out(step);
        let is_wrong = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let run = Run::record(&subject, name, setup, ops).map_err(|error| error.to_string())?;
            let report = explorer.explore(&run);
            if report.is_clean() {
                Ok(())
            } else {
                Err(report.to_string())
            }
        }));
        drop(left_out);
        match is_wrong {
            Ok(Ok(())) => {}
            Ok(Err(message)) => return Some(format!("{name}: {message}")),
            Err(_) => return Some(format!("{name}: a panic")),
        }
    }
    None
}

/// Each step of a split, a merge, a delete, a flush, a reclaim and a recovery is there for a
/// reason.
#[test]
fn every_step_is_missed() {
    let all: Vec<History> = all_histories().collect();
    // Words may be mended at any time: who misses a sound border are strings.
    for step in Step::ALL.into_iter().filter(|step| *step != Step::Border) {
        let evidence = evidence(step, &all);
        let evidence = evidence.unwrap_or_else(|| panic!("nobody misses {step:?}"));
        let first = evidence.lines().take(2).collect::<Vec<_>>().join(" ");
        println!("without {step:?}: {first}");
    }
}
