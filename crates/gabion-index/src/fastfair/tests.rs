//! The tree in special situations, and the bugs that were published of others.

use std::collections::BTreeMap;
use std::sync::Arc;

use gabion_media::pmem::trace::{LINE, TraceEvent, TraceStep};
use gabion_media::pmem::{BlockClaim, POff, Pool, PoolOptions};

use super::layout::Header;
use super::node::Node;
use super::renewed::half_renewed;
use super::{FastFair, REGISTERED, TINY, is_referenced};
use crate::blink::{Checks, Descent, Node as _, NodeRemoval, NodeSplit, Renewal, Tree, is_spent};
use crate::suite::director::{Director, StepSite, flush, store};
use crate::suite::{self, Keys, fresh, interleaved, while_flipped, words};
use crate::{Error, OrderedIndex, Seed};

fn tree<const N: usize>(size: u64) -> FastFair<N> {
    FastFair::create(&suite::pool(size, FastFair::<N>::pool_options())).expect("a tree")
}

/// No block of the pool is lost, and all invariants hold.
fn check<const N: usize>(tree: &FastFair<N>) -> u64 {
    let checked = tree.check().expect("sound");
    assert_eq!(checked.entries, tree.len().expect("sound"));
    assert_eq!(checked.blocks, tree.pool().stats().used_blocks);
    checked.blocks
}

/// The published code tells a live slot by a value that differs from its neighbour's, and a free
/// one by the value 0: equal values of neighbours, and zeros, are lost there.
#[test]
fn equal_values_and_zeros_are_kept() {
    let tree: FastFair = tree(4 << 20);
    for key in 0..500 {
        assert_eq!(tree.insert(key * 7 % 500, 0).expect("space"), None);
    }
    for key in 0..500 {
        assert_eq!(tree.get(key).expect("sound"), Some(0));
        assert_eq!(tree.update(key, 5).expect("sound"), Some(0));
    }
    for key in (0..500).step_by(2) {
        assert_eq!(tree.remove(key).expect("sound"), Some(5));
    }
    for key in 0..500 {
        let value = tree.get(key).expect("sound");
        assert_eq!(value, (key % 2 == 1).then_some(5));
    }
    check(&tree);
}

/// The key that marks free slots is a key like any other.
#[test]
fn the_greatest_key_is_a_key() {
    let tree: FastFair = tree(1 << 20);
    let scan = |from| {
        let mut found = Vec::new();
        tree.scan(&from, 10, &mut found).expect("sound");
        found
    };
    assert_eq!(tree.update(u64::MAX, 1).expect("sound"), None);
    assert_eq!(tree.get(u64::MAX).expect("sound"), None);
    assert_eq!(tree.insert(u64::MAX, 2).expect("space"), None);
    assert_eq!(tree.insert(u64::MAX - 1, 3).expect("space"), None);
    assert_eq!(tree.update(u64::MAX, 4).expect("sound"), Some(2));
    assert_eq!(scan(0), [(u64::MAX - 1, 3), (u64::MAX, 4)]);
    assert_eq!(scan(u64::MAX), [(u64::MAX, 4)]);
    let pool = tree.pool().clone();
    let again: FastFair = FastFair::open(&pool).expect("a tree");
    assert_eq!(again.remove(u64::MAX).expect("sound"), Some(4));
    assert_eq!(again.remove(u64::MAX).expect("sound"), None);
    assert_eq!(scan(0), [(u64::MAX - 1, 3)]);
    check(&again);
}

/// Nodes whose entries were deleted take no space for long, in whatever order keys come and go.
#[test]
fn a_queue_does_not_grow() {
    let tree: FastFair<5> = tree(4 << 20);
    let (most, left) = words::queue(&tree);
    assert!(most < 200, "{most} nodes for 100 keys");
    assert!(left < 40, "{left} nodes for no key");
}

/// When the pool is full, inserts fail, and everything else goes on.
#[test]
fn a_full_pool_leaves_the_tree_usable() {
    let tree: FastFair<5> = tree(320 << 10);
    let mut kept = 0;
    let failed = loop {
        match tree.insert(kept, kept) {
            Ok(_) => kept += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(failed, Error::Media(_)), "{failed}");
    assert!(kept > 100);
    check(&tree);
    for key in 0..kept {
        assert_eq!(tree.get(key).expect("sound"), Some(key));
    }
    assert_eq!(tree.get(kept).expect("sound"), None);
    for key in 0..kept / 2 {
        assert_eq!(tree.remove(key).expect("sound"), Some(key));
    }
    tree.pool().collect();
    assert_eq!(tree.insert(kept, 1).expect("space"), None);
    check(&tree);
}

#[test]
fn what_is_no_tree_of_this_kind_is_refused() {
    let pool = Pool::anonymous(PoolOptions {
        size: 1 << 20,
        ..FastFair::<29>::pool_options()
    })
    .expect("a pool in memory");
    assert!(matches!(FastFair::<29>::open(&pool), Err(Error::NoRoot)));
    drop(FastFair::<29>::create(&pool).expect("a tree"));
    let again = FastFair::<29>::create(&pool);
    assert!(matches!(again, Err(Error::RootTaken)));
    assert!(matches!(FastFair::<13>::open(&pool), Err(Error::OtherKind)));
    let root = pool.root::<Header>().raw();
    for bit in 0..8 * 32 {
        let (at, mask) = (root + bit / 8, 1 << (bit % 8));
        // The top may lead elsewhere in the pool; what is there is no tree.
        let open = || FastFair::<29>::open(&pool).and_then(|tree| tree.check());
        let checked = while_flipped(&pool, at, mask, open);
        assert!(checked.is_err(), "bit {bit}");
    }
    FastFair::<29>::open(&pool).expect("a tree");
}

/// Threads that insert, delete and scan all at once, in trees of many levels.
#[test]
fn threads_agree() {
    words::threads_agree(&tree::<5>(32 << 20));
}

/// The same where all of them begin at leaves.
#[test]
fn threads_agree_with_ways_in_dram() {
    words::threads_agree(&tree::<5>(32 << 20).cached().expect("memory"));
}

/// Leaves, and those that the ways in DRAM lead to.
fn leaves(tree: &FastFair<5>) -> (u64, u64) {
    let mut leaves = 0;
    let counted = tree.check_levels(&mut |node| {
        leaves += u64::from(node.head.level() == 0);
        Ok(())
    });
    counted.expect("sound");
    let paths = tree.paths.as_ref().expect("ways in DRAM");
    (leaves, paths.check(|_, _| true).expect("sound"))
}

/// The ways in DRAM lead to all leaves, whether they came and went by and by or are found.
#[test]
fn ways_in_dram_lead_to_all_leaves() {
    let tree = tree::<5>(4 << 20).cached().expect("memory");
    assert_eq!(leaves(&tree), (1, 1));
    for key in 0..2000_u64 {
        tree.insert(key * 7 % 2000, key).expect("space");
    }
    check(&tree);
    let (many, known) = leaves(&tree);
    assert!(many > 400 && known == many, "{known} of {many}");
    assert!(tree.dram_bytes() > 8 * many);
    let found = FastFair::open(tree.pool()).expect("a tree");
    assert_eq!(leaves(&found.cached().expect("memory")), (many, many));
    for key in 100..2000 {
        assert!(tree.remove(key).expect("sound").is_some());
    }
    tree.compact().expect("sound");
    tree.pool().collect();
    check(&tree);
    let (few, known) = leaves(&tree);
    assert!(few * 4 < many && known == few, "{known} of {few}");
    for key in 0..2000 {
        assert_eq!(tree.get(key).expect("sound").is_some(), key < 100);
    }
}

/// A link of a leaf that leads back: searches went round for ever.
#[test]
fn links_in_a_ring_are_told() {
    let tree = tens(&pool());
    let leaf = node(&tree, 0, 1000);
    let low = leaf.head.low();
    let mut state = [0; 8];
    tree.medium.read(leaf.at, &mut state);
    let version = u64::from_le_bytes(state) >> 16;
    let link = leaf.at + 8 + 16 * (version % 2);
    let mut sound = [0; 16];
    tree.medium.read(link, &mut sound);
    for to in [leaf.at, node(&tree, 0, low - 1).at] {
        let words = [to, low + 1].map(u64::to_le_bytes);
        tree.medium.write(link, words.as_flattened());
        let told = [tree.get(low + 1), tree.insert(low + 1, 1)];
        let is_told = |said| matches!(said, Err(Error::Damaged { .. }));
        assert!(told.into_iter().all(is_told));
    }
    tree.medium.write(link, &sound);
    check(&tree);
}

/// An inner node that only its left neighbour knows, and whose level is wrong, was taken for a
/// leaf.
#[test]
fn a_neighbour_of_another_level_is_told() {
    let tree = tens(&pool());
    let low = last_of(&tree, 2);
    let mut parent = tree.lock(node(&tree, 2, low), low).expect("in use");
    tree.remove_entry(&mut parent, low);
    drop(parent);
    let at = node(&tree, 1, low).at;
    let told = while_flipped(&tree.medium, at, 1, || [tree.get(low), tree.insert(low, 1)]);
    let is_told = |said| matches!(said, Err(Error::Damaged { .. }));
    assert!(told.into_iter().all(is_told));
    assert_eq!(tree.get(low).expect("sound"), Some(low / 10));
    check(&tree);
}

/// Leaves that handed their range over.
fn spent(tree: &FastFair<5>) -> u64 {
    let mut spent = 0;
    let counted = tree.check_levels(&mut |node| {
        spent += u64::from(is_spent(node));
        Ok(())
    });
    counted.expect("sound");
    spent
}

/// Batches of random entries, as single inserts would store them.
fn insert_batches(tree: &FastFair<5>, seed: u64) {
    let random = Seed::new(seed);
    let mut twin = BTreeMap::new();
    for batch in 0..400 {
        let drawn = |number| random.hash_u64(batch << 8 | number);
        let first = drawn(0) % 4000;
        let entries = (1..=drawn(1) % 6 + 1).map(|number| (first + drawn(number) % 40, batch));
        let entries: BTreeMap<u64, u64> = entries.collect();
        twin.extend(&entries);
        let entries: Vec<(u64, u64)> = entries.into_iter().collect();
        tree.insert_all(&entries).expect("space");
        if batch % 3 == 0 {
            let key = drawn(2) % 4000;
            assert_eq!(tree.remove(key).expect("sound"), twin.remove(&key));
        }
    }
    tree.pool().collect();
    check(tree);
    let mut found = Vec::new();
    tree.scan(&0, usize::MAX, &mut found).expect("sound");
    assert!(twin.into_iter().eq(found), "seed {seed}");
    assert_eq!(spent(tree), 0);
}

#[test]
fn batches_replace_leaves() {
    for seed in 0..4 {
        insert_batches(&tree::<5>(4 << 20), seed);
        insert_batches(&tree::<5>(4 << 20).cached().expect("memory"), seed);
    }
}

/// A tree with the keys 0, 10 to 1990, two to a leaf.
fn tens(pool: &Pool) -> FastFair<5> {
    let tree = FastFair::create(pool).expect("a tree");
    for key in 0..200 {
        tree.insert(10 * key, key).expect("space");
    }
    tree.compact().expect("sound");
    tree
}

fn pool() -> Pool {
    suite::pool(4 << 20, FastFair::<5>::pool_options())
}

/// The node of a level that a key belongs to.
fn node(tree: &FastFair<5>, level: u64, key: u64) -> Node<'_, 5> {
    tree.descend(level, key).expect("sound").expect("a node")
}

/// The key of the last entry of a node on a level that has others.
fn last_of(tree: &FastFair<5>, level: u64) -> u64 {
    let node = node(tree, level, 1000);
    let entries = node.entries(node.head.range());
    assert!(entries.len() > 1);
    entries[entries.len() - 1].0
}

/// Stores entries in the leaf of a low while somebody has the lock of its left neighbour.
fn insert_beside(tree: &FastFair<5>, low: u64, entries: &[(u64, u64)]) {
    let lock = tree.locks.lock(node(tree, 0, low - 1).at);
    tree.insert_all(entries).expect("space");
    drop(lock);
}

/// Somebody has the lock of the left neighbour of a leaf that is replaced: it stays, without a
/// range, until a writer or `compact` comes along it, and an opening finds it, too.
#[test]
fn a_leaf_without_a_range_is_passed_by_later() {
    for is_compacted in [false, true] {
        let tree = tens(&pool());
        let guard = tree.pool().enter();
        let low = node(&tree, 0, 1000).head.low();
        insert_beside(&tree, low, &[(low + 1, 1), (low + 2, 2)]);
        drop(guard);
        assert_eq!(spent(&tree), 1);
        check(&tree);
        assert_eq!(tree.get(low + 2).expect("sound"), Some(2));
        let found: FastFair<5> = FastFair::open(tree.pool()).expect("a tree");
        assert_eq!(found.get(low).expect("sound"), Some(low / 10));
        if is_compacted {
            found.compact().expect("sound");
        } else {
            found.insert(low, 7).expect("space");
        }
        assert_eq!(spent(&found), 0);
        found.pool().collect();
        check(&found);
    }
}

/// Recovery is asked about leaves without a range, and about the one that took it. The parent may
/// know that one already. The next batch for it goes past all of them.
#[test]
fn recovery_keeps_leaves_without_a_range() {
    let tree = tens(&pool());
    let guard = tree.pool().enter();
    let old = node(&tree, 0, 1000);
    let low = old.head.low();
    let left = node(&tree, 0, low - 1);
    insert_beside(&tree, low, &[(low + 1, 1), (low + 2, 2)]);
    let new = node(&tree, 0, low);
    assert_ne!(old.at, new.at);
    let is_kept = |at: u64| {
        let claim = BlockClaim {
            block: POff::new(at),
            size: 128,
            hint: 0,
        };
        is_referenced::<5>(&tree.medium, tree.header.raw(), claim)
    };
    assert!(is_kept(old.at) && is_kept(new.at) && is_kept(left.at));
    // Its parent was led past it, and a crash came before its left neighbour was.
    let redirect = |to: u64| {
        let parent = tree.lock(node(&tree, 1, low), low).expect("a parent");
        tree.redirect(&parent, low, to);
    };
    redirect(new.at);
    assert!(is_kept(old.at) && is_kept(new.at));
    insert_beside(&tree, low, &[(low + 1, 3), (low + 2, 4)]);
    assert_eq!(spent(&tree), 2);
    assert!(is_kept(old.at) && is_kept(new.at));
    tree.insert_all(&[(low + 1, 5), (low + 3, 6)])
        .expect("space");
    assert_eq!(spent(&tree), 0);
    assert!(!is_kept(old.at) && !is_kept(new.at));
    for (key, value) in [(low, low / 10), (low + 1, 5), (low + 2, 4), (low + 3, 6)] {
        assert_eq!(tree.get(key).expect("sound"), Some(value));
    }
    drop(guard);
    tree.pool().collect();
    check(&tree);
    // A parent that leads to what was given up would be damage.
    let newest = node(&tree, 0, low).at;
    redirect(old.at);
    assert!(tree.check().is_err());
    redirect(newest);
    check(&tree);
}

/// A delete took the leaf without a range out that it found before a leaf, and then left the leaf
/// where it was, though that was empty.
#[test]
fn an_empty_leaf_behind_one_without_a_range_is_given_up() {
    let tree = tens(&pool());
    let low = last_of(&tree, 1);
    half_renewed(&tree, low, 1);
    assert_eq!(spent(&tree), 1);
    let leaf = node(&tree, 0, low);
    for (key, value) in leaf.entries(leaf.head.range()) {
        assert_eq!(tree.remove(key).expect("sound"), Some(value));
    }
    assert_eq!(spent(&tree), 0);
    assert!(node(&tree, 0, low).head.low() < low, "it is still there");
    tree.pool().collect();
    check(&tree);
}

/// A batch whose way led to the right above the leaves did not tell the parent there, as an insert
/// does.
#[test]
fn a_batch_tells_the_parent_of_an_inner_node() {
    let tree = tens(&pool());
    let guard = tree.pool().enter();
    let low = last_of(&tree, 2);
    let mut parent = tree.lock(node(&tree, 2, low), low).expect("in use");
    tree.remove_entry(&mut parent, low);
    drop(parent);
    let is_known = || {
        let entry = node(&tree, 2, low).entry_upto(low);
        entry.is_some_and(|(key, _)| key == low)
    };
    assert!(!is_known());
    tree.insert_all(&[(low + 1, 1), (low + 2, 2)])
        .expect("space");
    assert!(is_known());
    drop(guard);
    tree.pool().collect();
    check(&tree);
}

/// As [`tens`], of which a director stops threads.
fn directed() -> (Arc<Director>, FastFair<5>) {
    let (director, pool) = fresh::directed_pool(256 << 10, FastFair::<5>::pool_options());
    (director, tens(&pool))
}

/// Something that is done to the leaf of a low.
type Act = fn(&FastFair<5>, u64);

/// Replaces a leaf, which stays without a range.
fn spend(tree: &FastFair<5>, low: u64) {
    insert_beside(tree, low, &[(low + 1, 1), (low + 2, 2)]);
    assert_eq!(spent(tree), 1);
}

/// As [`spend`], and the parent knows neither leaf, as when the inner node that did was given up.
fn spend_unknown(tree: &FastFair<5>, low: u64) {
    spend(tree, low);
    let mut parent = tree.lock(node(tree, 1, low), low).expect("in use");
    tree.remove_entry(&mut parent, low);
}

fn pass_by(tree: &FastFair<5>, low: u64) {
    tree.bypass(low, &tree.pool().enter()).expect("sound");
}

/// Deletes all entries of a leaf, which stays.
fn empty(tree: &FastFair<5>, low: u64) {
    let guard = tree.pool().enter();
    let lock = tree.locks.lock(node(tree, 0, low - 1).at);
    let leaf = node(tree, 0, low);
    for (key, value) in leaf.entries(leaf.head.range()) {
        assert_eq!(tree.remove(key).expect("sound"), Some(value));
    }
    drop(lock);
    assert_eq!(node(tree, 0, low).at, leaf.at);
    drop(guard);
}

fn give_up(tree: &FastFair<5>, low: u64) {
    tree.give_up(0, low, &tree.pool().enter()).expect("sound");
}

/// Somebody splits the left neighbour of a leaf, or its parent, and has not made the link to the
/// new node durable: whoever comes over it and takes the leaf out does that first. Otherwise a
/// crash left the link from before, over which the leaf was still in use, which had been given
/// back.
fn take_out_beside_a_split(level: u64, prepare: Act, take_out: Act) {
    let (director, tree) = directed();
    // Three leaves below the parent: it is not the first one of a half that is taken out.
    for key in 1001..1005 {
        tree.insert(key, 0).expect("space");
    }
    let low = last_of(&tree, 1);
    prepare(&tree, low);
    let key = if level == 0 { low - 1 } else { low };
    let at = node(&tree, level, key).at;
    std::thread::scope(|scope| {
        let split = || {
            let _within = tree.pool().write_guard();
            let _guard = tree.pool().enter();
            let full = tree.lock(node(&tree, level, key), key).expect("in use");
            tree.split(full).expect("space");
        };
        let behind_link = (store as StepSite, at..at + 8);
        let splitter = director.start(scope, "splitter", behind_link, split);
        let left = node(&tree, 0, low - 1).at;
        director.trace.lock().clear();
        take_out(&tree, low);
        let trace = std::mem::take(&mut *director.trace.lock());
        director.finish("splitter");
        splitter.join().expect("no panic");
        let is_at = |offset: Option<u64>, node: u64| {
            offset.is_some_and(|offset| offset / LINE == node / LINE)
        };
        let is_link = |event: &TraceEvent<'_>| is_at(store(event.step), left);
        assert!(trace.iter().any(|event| is_link(&event)), "it is taken out");
        let before = trace.iter().take_while(|event| !is_link(event));
        let mut settled = before.skip_while(|event| !is_at(flush(event.step), at));
        let is_durable = settled.any(|event| event.step == TraceStep::Fence);
        assert!(is_durable, "level {level}: the link may be lost");
    });
    assert_eq!(spent(&tree), 0);
    tree.pool().collect();
    check(&tree);
}

#[test]
fn no_leaf_is_passed_by_over_a_link_that_is_not_durable() {
    (0..2).for_each(|level| take_out_beside_a_split(level, spend, pass_by));
}

#[test]
fn no_leaf_is_given_up_over_a_link_that_is_not_durable() {
    (0..2).for_each(|level| take_out_beside_a_split(level, empty, give_up));
}

/// When the allocator hears that a leaf is to be free, no way in DRAM leads there any more: it
/// waits for those who entered the pool before, and not for one who enters it then.
#[test]
fn a_way_in_dram_is_forgotten_before_its_leaf_is_given_back() {
    let acts: [(Act, Act); 3] = [(empty, give_up), (spend, pass_by), (spend_unknown, pass_by)];
    for (prepare, take_out) in acts {
        let (director, tree) = directed();
        let tree = tree.cached().expect("memory");
        let low = last_of(&tree, 1);
        let leaf = node(&tree, 0, low).at;
        let way = || tree.paths.as_ref().and_then(|paths| paths.find(&low));
        assert_eq!(way(), Some(leaf));
        prepare(&tree, low);
        assert_eq!(way(), Some(leaf), "it is there yet");
        std::thread::scope(|scope| {
            let behind_mark = (store as StepSite, leaf..leaf + 8);
            let taker = director.start(scope, "taker", behind_mark, || take_out(&tree, low));
            // What it stores next is the allocator's.
            assert!(director.advance("taker", store, 0..u64::MAX));
            let found = way();
            director.finish("taker");
            taker.join().expect("no panic");
            assert_ne!(found, Some(leaf), "a search may begin there");
        });
        tree.compact().expect("sound");
        tree.pool().collect();
        check(&tree);
    }
}

/// A leaf was replaced by two, and the second one, emptied at once, was to be given up under the
/// lock of the first: but the allocator did not know yet that it is in use, and said so.
#[test]
fn what_has_just_come_can_go() {
    let (director, tree) = directed();
    let leaf = node(&tree, 0, 1000);
    let low = leaf.head.low();
    // With the two that are there they are too many for one leaf: the last three go to another.
    let batch: Vec<(u64, u64)> = (1..6).map(|behind| (low + behind, behind)).collect();
    let come = || tree.insert_all(&batch).expect("space");
    let went = fresh::go_at_once(&director, leaf.at, come, || {
        for key in [low + 4, low + 5, low + 10] {
            assert!(tree.remove(key).expect("sound").is_some());
        }
        tree.compact()
    });
    went.expect("an empty leaf is no harm");
    tree.compact().expect("sound");
    tree.pool().collect();
    check(&tree);
}

/// The published reader answers with what it sees. Here it first makes that durable if a writer may
/// be between store and flush; without that, an answer is lost in a crash.
#[test]
fn a_reader_that_answers_before_the_answer_is_durable_is_caught() {
    let keys = Keys::words(&REGISTERED).expect("words are keys");
    interleaved::catch_readers(keys, |file| file.ends_with("fastfair/readpath.rs"));
}

/// The published writer inserts over a link to a new node that is not durable yet, and the entry is
/// lost with the link.
#[test]
fn a_writer_that_trusts_a_link_is_caught() {
    let keys = Keys::words(&TINY).expect("words are keys");
    interleaved::catch_writers(keys, |file| file.ends_with("blink/descent.rs"));
}
