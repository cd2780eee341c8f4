//! The sparse index: which interval holds a key, where it lies in the space, and its decoded form.
//!
//! # Idea (paper, section 5.1)
//! The paper's index is a B+-tree over the intervals, by their smallest keys, in which offsets are
//! sums along the path, so that a change of an interval's length moves all behind it. Here the tree
//! has three levels: leaves, branches of up to 64 leaves, and a top of any number of branches. What
//! lies in front of an interval is a sum over the lengths beside its path.
//!
//! # Readers wait for no change of the index
//! Which intervals there are changes by another leaf in a new copy of its branch's node, and seldom
//! by a new top; a reader goes from the top down with what it finds. Lengths and offsets are of use
//! only to those who read the space or change it; they hold the lock, the latter alone. So who
//! finds a cached form takes no lock but the form's own (`leaf`), and may find it just before or
//! just after a change, which is as good: what a merge changes is known to readers from elsewhere
//! until it has ended.
//!
//! # How long the lock is held alone
//! For the lengths of some intervals of a leaf and the exchange of a node; all else of their change
//! is done ahead, while readers go on (`edit`). A branch that became too large is cut afterwards,
//! and branches that became small are joined some at a time: another top, which takes time in
//! proportion to the branches, is made before the lock is taken, and under it gets only its
//! lengths. So each takes an estimated 100 us, and 1 ns more for each branch, which is for some
//! 10,000 pairs.
//!
//! # Invariants
//! - I1. The first interval begins with the empty key and is always there; intervals follow each
//!   other without gaps, in keys as in offsets.
//! - I2. A leaf ends where the next one begins. A branch begins where its first leaf does, and has
//!   one leaf at least. Where a
//!   leaf begins, one goes on to begin until `prune`: so committers can share the index by leaves.
//!   That joins small neighbours.
//! - I3. The lengths of nodes and of the top are the sums of those below, whenever nobody holds the
//!   lock alone.
//! - I4. The sum of the cache is that of the forms in the leaves that the index has.

mod edit;
mod keys;
mod leaf;
mod prefix_sums;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use arc_swap::ArcSwap;
use gabion_flex::{ExclusiveGuard, ReaderWaits, SharedLock, UpgradableGuard};
use parking_lot::RwLockReadGuard;

use self::keys::SortedKeys;
use self::leaf::{LEAF_MAX, NewLeafEntry};
use self::prefix_sums::PrefixSums;
use super::cached_bytes::CachedBytes;
use super::interval::Interval;

pub(super) use self::edit::{EditKind, IntervalEdit};
pub(super) use self::keys::SeekTarget;
pub(super) use self::leaf::{EXTENTS_UNKNOWN, IndexLeaf};

/// Most leaves of a branch, but for the moment until it is cut.
const LEAVES_MAX: usize = 64;

/// Most leaves of a branch whatever else happens.
const LEAVES_LIMIT: usize = 2 * LEAVES_MAX;

/// Leaves that are removed or joined under one lock, at most: 50 us by estimate.
const TIDIED_MAX: usize = 16;

/// Branches that are joined under one lock, at most: 100 us by estimate.
const BRANCHES_JOINED_MAX: usize = 16;

/// Whether a node of so many children and its neighbour become one: the smaller one is a quarter
/// full or less, and both together leave a quarter for what comes.
fn is_joined(one: usize, other: usize, most: usize) -> bool {
    one.min(other) <= most / 4 && one + other <= most * 3 / 4
}

/// What the hand of the cache takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EvictionStep {
    /// Forms in pages that are drained, which move to others if they were read lately.
    Pages,
    /// The room of forms for pairs to come.
    Room,
    /// Forms that nobody read lately.
    Forms,
}

/// An interval that was found.
#[derive(Clone, Debug)]
pub(super) struct IntervalRef {
    pub(super) leaf: Arc<IndexLeaf>,
    pub(super) at: usize,
}

impl IntervalRef {
    /// The smallest key that belongs to it.
    pub(super) fn lower(&self) -> &[u8] {
        self.leaf.lower(self.at)
    }

    /// The first key that belongs to the next one.
    pub(super) fn upper(&self) -> Option<&[u8]> {
        self.leaf.upper(self.at)
    }

    /// Bytes in the space.
    pub(super) fn len(&self) -> u64 {
        self.leaf.len(self.at)
    }

    /// The interval of a key that is not below this one, if the leaf has it.
    pub(super) fn in_leaf(&self, key: &[u8]) -> Option<IntervalRef> {
        let has = self.leaf.end().is_none_or(|end| key < end);
        let leaf = Arc::clone(&self.leaf);
        has.then(|| IntervalRef {
            at: leaf.keys.find(SeekTarget::At(key)),
            leaf,
        })
    }

    /// The next interval, if it stands beside this one.
    pub(super) fn next(&self) -> Option<IntervalRef> {
        let at = self.at + 1;
        let leaf = Arc::clone(&self.leaf);
        (at < self.leaf.count()).then_some(IntervalRef { leaf, at })
    }
}

/// An interval that is going to be in the index.
#[derive(Debug)]
pub(super) struct NewInterval {
    pub(super) key: Vec<u8>,
    pub(super) len: u64,
    /// In how many extents it lies at most, about.
    pub(super) extents: u8,
    pub(super) interval: Option<Arc<Interval>>,
}

impl NewInterval {
    /// The first interval of all, without a pair.
    pub(super) fn first() -> NewInterval {
        NewInterval {
            key: Vec::new(),
            len: 0,
            extents: EXTENTS_UNKNOWN,
            interval: None,
        }
    }
}

#[derive(Debug)]
struct Top {
    keys: SortedKeys<Vec<u64>>,
    branches: Vec<Arc<Branch>>,
    lens: PrefixSums,
}

/// Begins with the same key as long as it lives, and ends with the same.
#[derive(Debug)]
struct Branch {
    node: ArcSwap<Node>,
}

#[derive(Debug)]
struct Node {
    keys: SortedKeys<Vec<u64>>,
    leaves: Vec<Arc<IndexLeaf>>,
    lens: PrefixSums,
}

/// A leaf and the bytes of its intervals in the space.
type Child = (Arc<IndexLeaf>, u64);

/// The way to an interval.
struct Path<'p> {
    top: &'p Top,
    branch: usize,
    node: &'p Node,
    leaf: usize,
    at: usize,
}

impl<'p> Path<'p> {
    fn leaf(&self) -> &'p Arc<IndexLeaf> {
        &self.node.leaves[self.leaf]
    }
}

/// All intervals.
#[derive(Debug)]
pub(super) struct IntervalIndex {
    top: ArcSwap<Top>,
    /// Held by those who read the space where the index says, and alone by those who change both.
    lock: SharedLock<()>,
    /// Memory of leaves.
    memory: AtomicUsize,
    /// Whether there may be leaves without a pair, or with few intervals.
    has_small: AtomicBool,
    cached: CachedBytes,
}

impl Node {
    fn new(children: Vec<Child>) -> Node {
        Node {
            keys: SortedKeys::new(
                children.iter().map(|(leaf, _)| leaf.lower(0)),
                children.last().and_then(|(leaf, _)| leaf.end()),
            ),
            lens: PrefixSums::new(children.iter().map(|(_, len)| *len)),
            leaves: children.into_iter().map(|(leaf, _)| leaf).collect(),
        }
    }

    /// Whether there may be leaves to remove or to join.
    fn is_sparse(&self) -> bool {
        let few = |leaf: &Arc<IndexLeaf>| leaf.count() <= LEAF_MAX / 4;
        self.leaves.iter().any(few)
    }

    fn children(&self) -> Vec<Child> {
        let lens = (0..self.leaves.len()).map(|at| self.lens.get(at));
        self.leaves.iter().cloned().zip(lens).collect()
    }
}

impl Top {
    /// The top over branches with their nodes.
    fn new(branches: Vec<(Arc<Branch>, u64)>) -> Top {
        let nodes: Vec<_> = branches.iter().map(|(own, _)| own.node.load()).collect();
        Top {
            keys: SortedKeys::new(nodes.iter().map(|node| node.leaves[0].lower(0)), None),
            lens: PrefixSums::new(branches.iter().map(|(_, len)| *len)),
            branches: branches.into_iter().map(|(branch, _)| branch).collect(),
        }
    }

    fn branches(&self) -> Vec<(Arc<Branch>, u64)> {
        let lens = (0..self.branches.len()).map(|at| self.lens.get(at));
        self.branches.iter().cloned().zip(lens).collect()
    }
}

/// Another top, for which all was made that can be made before the lock is taken.
struct Draft<'t> {
    top: &'t Top,
    keys: SortedKeys<Vec<u64>>,
    branches: Vec<Arc<Branch>>,
}

impl<'t> Draft<'t> {
    fn new(top: &'t Top, keys: SortedKeys<Vec<u64>>) -> Draft<'t> {
        Draft {
            branches: top.branches.clone(),
            top,
            keys,
        }
    }

    /// The top in which other branches, with these children, stand in place of some ranges, which
    /// are ascending. The lengths are those of now.
    fn finish(mut self, changes: Vec<(Range<usize>, Vec<Vec<Child>>)>) -> Arc<Top> {
        let lens = 0..self.branches.len();
        let mut lens: Vec<u64> = lens.map(|at| self.top.lens.get(at)).collect();
        for (range, children) in changes.into_iter().rev() {
            let new = children.into_iter().map(branch_of);
            let (branches, new_lens): (Vec<_>, Vec<_>) = new.unzip();
            self.branches.splice(range.clone(), branches);
            lens.splice(range, new_lens);
        }
        debug_assert_eq!(self.keys.len(), self.branches.len());
        Arc::new(Top {
            keys: self.keys,
            lens: PrefixSums::new(lens.into_iter()),
            branches: self.branches,
        })
    }
}

/// Whether a leaf has no pair.
fn is_empty(leaf: &IndexLeaf) -> bool {
    leaf.count() == 1 && leaf.len(0) == 0
}

/// Ranges of branches, two or more in each, that are to be joined: some, not always all.
fn small_branches(top: &Top) -> Vec<Range<usize>> {
    let mut groups: Vec<Range<usize>> = Vec::new();
    let (mut begin, mut joins) = (0, 0);
    let mut sum = 0;
    for (at, branch) in top.branches.iter().enumerate() {
        let node = branch.node.load();
        // One that has no pair goes to any neighbour.
        let size = match &node.leaves[..] {
            [only] if is_empty(only) => 0,
            leaves => leaves.len(),
        };
        if at > begin && (size == 0 || sum == 0 || is_joined(sum, size, LEAVES_MAX)) {
            sum += size;
            joins += 1;
            match groups.last_mut() {
                Some(last) if last.start == begin => last.end = at + 1,
                _ => groups.push(begin..at + 1),
            }
            if joins == BRANCHES_JOINED_MAX {
                break;
            }
        } else {
            (begin, sum) = (at, size);
        }
    }
    groups
}

/// Cuts a list into parts of about the same size, of at most `max` each.
fn in_parts<T>(mut list: Vec<T>, max: usize) -> Vec<Vec<T>> {
    let parts = list.len().div_ceil(max).max(1);
    let mut cut = Vec::with_capacity(parts);
    for part in (1..parts).rev() {
        cut.push(list.split_off(list.len() * part / (part + 1)));
    }
    cut.push(list);
    cut.reverse();
    cut
}

/// Branches of these leaves.
fn branches_of(children: Vec<Child>, most: usize) -> Vec<(Arc<Branch>, u64)> {
    let parts = in_parts(children, most).into_iter();
    parts.map(branch_of).collect()
}

/// The branch of these leaves, and their bytes.
fn branch_of(children: Vec<Child>) -> (Arc<Branch>, u64) {
    let len = children.iter().map(|(_, len)| len).sum();
    let node = ArcSwap::from_pointee(Node::new(children));
    (Arc::new(Branch { node }), len)
}

/// Leaves of these intervals, up to `upper`.
fn leaves_of(items: Vec<NewLeafEntry<'_>>, upper: Option<&[u8]>, most: usize) -> Vec<Child> {
    let parts = in_parts(items, most);
    let begins = parts[1..].iter().map(|part| Some(part[0].key));
    let ends: Vec<Option<&[u8]>> = begins.chain([upper]).collect();
    let leaf = |(part, end): (Vec<NewLeafEntry<'_>>, Option<&[u8]>)| {
        let len = part.iter().map(|item| item.len).sum();
        (Arc::new(IndexLeaf::new(part, end)), len)
    };
    parts.into_iter().zip(ends).map(leaf).collect()
}

impl IntervalIndex {
    /// The index of these intervals, the first of which begins with the empty key.
    pub(super) fn new(intervals: &[NewInterval], cached: CachedBytes) -> IntervalIndex {
        let items = intervals.iter().map(|new| NewLeafEntry {
            key: &new.key,
            len: new.len,
            extents: new.extents,
            interval: None,
            is_roomy: false,
        });
        // Three quarters full, so that the first changes do not cut all nodes.
        let leaves = leaves_of(items.collect(), None, LEAF_MAX * 3 / 4);
        let memory: usize = leaves.iter().map(|(leaf, _)| leaf.memory_bytes()).sum();
        IntervalIndex {
            top: ArcSwap::from_pointee(Top::new(branches_of(leaves, LEAVES_MAX * 3 / 4))),
            lock: SharedLock::new((), true),
            memory: AtomicUsize::new(memory),
            has_small: AtomicBool::new(false),
            cached,
        }
    }

    /// Memory of the index in bytes, roughly.
    pub(super) fn memory_bytes(&self) -> u64 {
        // ORDER: Relaxed, a figure.
        self.memory.load(Ordering::Relaxed) as u64
    }

    /// Keeps those out who change the space.
    pub(super) fn share(&self) -> RwLockReadGuard<'_, ()> {
        self.lock.share()
    }

    /// Keeps those out who read the space or change it.
    pub(super) fn alone(&self) -> ExclusiveGuard<'_, ()> {
        self.lock.alone()
    }

    /// Keeps those out who change the space, and who look ahead to do so.
    pub(super) fn ahead(&self) -> UpgradableGuard<'_, ()> {
        self.lock.ahead()
    }

    /// For how long those could be kept out who read the space.
    pub(super) fn reader_waits(&self) -> ReaderWaits {
        self.lock.waits()
    }

    #[inline]
    fn with_path<T>(&self, seek: SeekTarget<'_>, visit: impl FnOnce(&Path<'_>) -> T) -> T {
        let top = self.top.load();
        let branch = top.keys.find(seek);
        let node = top.branches[branch].node.load();
        let leaf = node.keys.find(seek);
        node.leaves[leaf].prefetch();
        let at = node.leaves[leaf].keys.find(seek);
        visit(&Path {
            top: &top,
            branch,
            node: &node,
            leaf,
            at,
        })
    }

    /// Calls `read` with the cached form of a key's interval, if there is one.
    #[inline]
    pub(super) fn with_cached<T>(
        &self,
        key: &[u8],
        read: impl FnOnce(&Interval) -> T,
    ) -> Option<T> {
        self.with_path(SeekTarget::At(key), |path| {
            path.leaf().with(path.at, |own| read(own))
        })
    }

    /// Finds an interval.
    pub(super) fn find(&self, seek: SeekTarget<'_>) -> IntervalRef {
        self.with_path(seek, |path| IntervalRef {
            leaf: Arc::clone(path.leaf()),
            at: path.at,
        })
    }

    /// Finds an interval, and where it begins in the space. This is so as long as the caller holds
    /// the lock.
    pub(super) fn locate(&self, seek: SeekTarget<'_>) -> (IntervalRef, u64) {
        self.with_path(seek, |path| {
            let offset = path.top.lens.before(path.branch)
                + path.node.lens.before(path.leaf)
                + path.leaf().len_before(path.at);
            let leaf = Arc::clone(path.leaf());
            (IntervalRef { leaf, at: path.at }, offset)
        })
    }

    /// Whether the leaf of a place is in the index and of this version. This is so as long as the
    /// caller holds the lock.
    pub(super) fn is_as_it_was(&self, place: &IntervalRef, version: u32) -> bool {
        place.leaf.version() == version
            && self.with_path(SeekTarget::At(place.lower()), |path| {
                Arc::ptr_eq(path.leaf(), &place.leaf)
            })
    }

    /// Puts the form of an interval, which was read when its leaf was of this version, into its
    /// place, if it is still that of the interval.
    pub(super) fn fill(&self, place: &IntervalRef, version: u32, interval: &Arc<Interval>) {
        let _share = self.share();
        if self.is_as_it_was(place, version) {
            let bytes = interval.memory_bytes();
            // Added first: the sum is never below nothing.
            self.cached.add(bytes);
            if !place.leaf.fill(place.at, version, interval) {
                self.cached.subtract(bytes);
            }
        }
    }

    /// Empties pages of forms, or takes the room of forms, or forms that nobody read lately, of the
    /// leaf that `key` belongs to; returns where the next leaf begins. Adds to `looks` at how many
    /// forms it has looked that it does not take.
    pub(super) fn sweep(
        &self,
        key: &[u8],
        taken: EvictionStep,
        looks: &mut usize,
    ) -> Option<Vec<u8>> {
        let _share = self.share();
        self.with_path(SeekTarget::At(key), |path| {
            let slabs = self.cached.slabs();
            match taken {
                EvictionStep::Pages => {
                    let (bytes, seen) = path.leaf().sweep_drained(slabs);
                    self.cached.subtract(bytes);
                    *looks += seen;
                }
                EvictionStep::Room => self.cached.subtract(path.leaf().sweep_room(slabs)),
                EvictionStep::Forms => self.cached.subtract(path.leaf().sweep()),
            }
            path.leaf().end().map(<[u8]>::to_vec)
        })
    }

    /// Where the leaves begin that cut the index into so many parts, of about the same size: less
    /// than there are parts.
    pub(super) fn borders(&self, parts: usize) -> Vec<Vec<u8>> {
        let top = self.top.load();
        let nodes: Vec<_> = top
            .branches
            .iter()
            .map(|own| own.node.load_full())
            .collect();
        let leaves: Vec<&Arc<IndexLeaf>> = nodes.iter().flat_map(|node| &node.leaves).collect();
        let mut borders: Vec<usize> = (1..parts).map(|at| leaves.len() * at / parts).collect();
        borders.dedup();
        borders.retain(|at| *at > 0);
        let lower = |at: usize| leaves[at].lower(0).to_vec();
        borders.into_iter().map(lower).collect()
    }

    /// Removes leaves that have no pair and joins small neighbours, some at a time. Nobody changes
    /// the space meanwhile, but readers may cut intervals.
    pub(super) fn prune(&self) {
        // ORDER: Relaxed; who changes the index calls it, too.
        if !self.has_small.swap(false, Ordering::Relaxed) {
            return;
        }
        self.prune_branches();
        let mut joined = false;
        while self.join_branches() {
            joined = true;
        }
        if joined {
            self.prune_branches();
        }
    }

    fn prune_branches(&self) {
        let mut at = Some(Vec::new());
        while let Some(key) = at {
            at = self.prune_branch(&key);
        }
    }

    /// Removes and joins some leaves of the branch of a key; returns the key to go on with.
    fn prune_branch(&self, key: &[u8]) -> Option<Vec<u8>> {
        let top = self.top.load_full();
        let branch = top.keys.find(SeekTarget::At(key));
        let end = (branch + 1 < top.branches.len()).then(|| top.keys.get(branch + 1).to_vec());
        if !top.branches[branch].node.load().is_sparse() {
            return end;
        }
        let _alone = self.alone();
        let top = self.top.load();
        let branch = top.keys.find(SeekTarget::At(key));
        let mut children = top.branches[branch].node.load().children();
        let before = children.len();
        self.remove_empty(&mut children);
        self.join_leaves(&mut children, before.saturating_sub(TIDIED_MAX));
        if children.len() == before {
            return end;
        }
        let more = children.len() + TIDIED_MAX <= before;
        self.put_children(&top, branch, children);
        if more { Some(key.to_vec()) } else { end }
    }

    /// Removes some leaves that have no pair, but not the last one.
    fn remove_empty(&self, children: &mut Vec<Child>) {
        let least = children.len().saturating_sub(TIDIED_MAX).max(1);
        for at in (0..children.len()).rev() {
            if children.len() == least {
                return;
            }
            if is_empty(&children[at].0) {
                // It may have taken over the keys of others.
                let (leaf, _) = children.remove(at);
                self.count_memory(&[], &leaf);
                self.hand_over(children, at, &leaf);
            }
        }
    }

    /// Joins small leaves of a branch as long as there are more than so many.
    fn join_leaves(&self, children: &mut Vec<Child>, least: usize) {
        let mut at = 1;
        while at < children.len() && children.len() > least {
            let (left, left_len) = &children[at - 1];
            let (right, right_len) = &children[at];
            if !is_joined(left.count(), right.count(), LEAF_MAX) {
                at += 1;
                continue;
            }
            let items = left.take_items(0).into_iter().chain(right.take_items(0));
            let leaf = IndexLeaf::new(items.collect(), right.end());
            let joined = (Arc::new(leaf), left_len + right_len);
            self.count_memory(std::slice::from_ref(&joined), left);
            self.count_memory(&[], right);
            children.splice(at - 1..=at, [joined]);
        }
    }

    /// Cuts the branch of a key in two if it is too large. The caller does not hold the lock.
    pub(super) fn cut_branch(&self, key: &[u8]) {
        loop {
            let top = self.top.load_full();
            let branch = top.keys.find(SeekTarget::At(key));
            let node = top.branches[branch].node.load_full();
            if node.leaves.len() <= LEAVES_MAX {
                return;
            }
            let border = node.leaves[node.leaves.len() / 2].lower(0);
            let (front, back) = (0..=branch, branch + 1..top.branches.len());
            let key_of = |at: usize| top.keys.get(at);
            let keys = front.map(key_of).chain([border]).chain(back.map(key_of));
            let draft = Draft::new(&top, SortedKeys::new(keys, None));
            let cut = |children: &mut Vec<Child>| {
                let at = children.partition_point(|(leaf, _)| leaf.lower(0) < border);
                let right = children.split_off(at);
                let is_border = right
                    .first()
                    .is_some_and(|(leaf, _)| leaf.lower(0) == border);
                (is_border && !children.is_empty()).then_some(right)
            };
            let _alone = self.alone();
            if !Arc::ptr_eq(&self.top.load(), &top) {
                continue;
            }
            let mut children = top.branches[branch].node.load().children();
            if let Some(right) = cut(&mut children) {
                self.top
                    .store(draft.finish(vec![(branch..branch + 1, vec![children, right])]));
                return;
            }
        }
    }

    /// Joins some small branches; says whether there were any.
    fn join_branches(&self) -> bool {
        loop {
            let top = self.top.load_full();
            let groups = small_branches(&top);
            if groups.is_empty() {
                return false;
            }
            let begins = |at: &usize| !groups.iter().any(|own| own.start < *at && *at < own.end);
            let left: Vec<usize> = (0..top.branches.len()).filter(begins).collect();
            let keys = left.iter().map(|at| top.keys.get(*at));
            let draft = Draft::new(&top, SortedKeys::new(keys, None));
            let _alone = self.alone();
            if !Arc::ptr_eq(&self.top.load(), &top) {
                continue;
            }
            let joined = |group: Range<usize>| {
                let nodes = top.branches[group.clone()].iter();
                let children = nodes.flat_map(|own| own.node.load().children());
                let mut children: Vec<Child> = children.collect();
                self.remove_empty(&mut children);
                (group, vec![children])
            };
            self.top
                .store(draft.finish(groups.into_iter().map(joined).collect()));
            return true;
        }
    }

    /// Lets a neighbour of the leaf that was removed from a place take its keys over, if there is
    /// one.
    fn hand_over(&self, children: &mut [Child], at: usize, gone: &IndexLeaf) {
        let (neighbour, is_next) = match at < children.len() {
            true => (&mut children[at], true),
            false => match children.last_mut() {
                Some(last) => (last, false),
                None => return,
            },
        };
        let old = Arc::clone(&neighbour.0);
        let mut items = old.take_items(0);
        let end = if is_next {
            items[0].key = gone.lower(0);
            old.end()
        } else {
            gone.end()
        };
        neighbour.0 = Arc::new(IndexLeaf::new(items, end));
        self.count_memory(std::slice::from_ref(neighbour), &old);
    }

    /// Gives a branch other leaves, at least one; says whether it is too large now.
    fn put_children(&self, top: &Top, branch: usize, children: Vec<Child>) -> bool {
        let count = children.len();
        if count <= LEAVES_LIMIT {
            let len: u64 = children.iter().map(|(_, len)| len).sum();
            top.lens.add(branch, len.wrapping_sub(top.lens.get(branch)));
            top.branches[branch]
                .node
                .store(Arc::new(Node::new(children)));
            return count > LEAVES_MAX;
        }
        // Only if many cut intervals at the same time, or one has thousands of pairs.
        let mut branches = top.branches();
        branches.splice(branch..=branch, branches_of(children, LEAVES_MAX));
        self.top.store(Arc::new(Top::new(branches)));
        false
    }

    fn count_memory(&self, new: &[Child], old: &IndexLeaf) {
        let added: usize = new.iter().map(|(leaf, _)| leaf.memory_bytes()).sum();
        // ORDER: Relaxed (both), figures.
        self.memory.fetch_add(added, Ordering::Relaxed);
        self.memory.fetch_sub(old.memory_bytes(), Ordering::Relaxed);
    }
}

impl Drop for IntervalIndex {
    /// The forms go with the index, and nobody puts one in any more (I4).
    fn drop(&mut self) {
        let top = self.top.load();
        for branch in &top.branches {
            let node = branch.node.load();
            let forms: u64 = node.leaves.iter().map(|leaf| leaf.form_bytes()).sum();
            self.cached.subtract(forms);
        }
    }
}

#[cfg(test)]
mod tests;
