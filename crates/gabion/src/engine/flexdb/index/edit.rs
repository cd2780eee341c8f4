//! Changes of intervals, in two steps.
//!
//! # Idea
//! Some intervals change together with the space. What takes time, changing their forms and making
//! leaves and nodes anew, is done first, when the caller is [ahead](gabion_flex::SharedLock::ahead)
//! of all other changes and readers go on. Then the space changes, and the second step sets lengths
//! and exchanges nodes, for which readers have to wait: microseconds.
//!
//! # Between the two
//! Forms are ahead of the space. That is as good for readers, as after a merge's change: they know
//! what it changes from elsewhere. Lengths, offsets and nodes are as before, and so is the space.
//! The leaf's version is odd, so nobody puts in a form that was read meanwhile. The forms of a leaf
//! that is made anew are in neither: who looks for one reads the space. The second step always
//! follows.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use gabion_flex::{ExclusiveGuard, UpgradableGuard};

use super::leaf::{IndexLeaf, LEAF_MAX, NewLeafEntry, memory_of};
use super::{
    Child, Interval, IntervalIndex, LEAVES_LIMIT, LEAVES_MAX, NewInterval, Node, SeekTarget, Top,
    branches_of, leaves_of,
};

/// An interval, or some neighbours of one leaf, and what becomes of them.
#[derive(Debug)]
pub(in super::super) struct IntervalEdit<'k, F> {
    /// Where the first of them begins.
    pub(in super::super) lower: &'k [u8],
    pub(in super::super) becomes: EditKind<F>,
}

/// What becomes of intervals.
#[derive(Debug)]
pub(in super::super) enum EditKind<F> {
    /// One with another content: a length and at most so many extents. What is there changes the
    /// form.
    Edited((u64, u8), Option<F>),
    /// So many intervals become others, of which the first one begins with the same key. Without
    /// any, the keys go to a neighbour in the leaf, if there is one.
    Others(usize, Vec<NewInterval>),
}

/// What changes no form.
pub(in super::super) type NoEdit = fn(&mut Option<Arc<Interval>>);

impl<'k> IntervalEdit<'k, NoEdit> {
    /// So many intervals become others.
    pub(in super::super) fn others(lower: &'k [u8], count: usize, list: Vec<NewInterval>) -> Self {
        let becomes = EditKind::Others(count, list);
        IntervalEdit { lower, becomes }
    }
}

impl<F> IntervalEdit<'_, F> {
    /// Whether the leaf keeps its intervals.
    fn is_in_place(&self) -> bool {
        match &self.becomes {
            EditKind::Edited(..) => true,
            EditKind::Others(count, list) => (*count, list.len()) == (1, 1),
        }
    }

    fn begins_before(&self, end: Option<&[u8]>) -> bool {
        end.is_none_or(|end| self.lower < end)
    }
}

/// Changes that were prepared.
#[must_use = "forms were changed for it"]
pub(in super::super) struct PreparedEdits {
    contents: Vec<Content>,
    branches: Vec<(usize, Children)>,
}

/// The length and the extents of an interval that stays in its leaf.
struct Content {
    leaf: Arc<IndexLeaf>,
    at: usize,
    content: (u64, u8),
}

/// What becomes of a branch's leaves.
enum Children {
    /// These get longer.
    Same(Vec<(usize, u64)>),
    Others(Arc<Node>, u64),
    /// More than a branch may have.
    Many(Vec<Child>),
}

/// Changes that were made.
#[must_use = "what is gone takes its time, and readers need not wait for that"]
pub(in super::super) struct AppliedEdits {
    /// Whether a branch is to be [cut](IntervalIndex::cut_branch).
    pub(in super::super) is_large: bool,
    _gone: Vec<Arc<Node>>,
}

impl IntervalIndex {
    /// Does all of some changes that readers need not wait for: those of different intervals, in
    /// the order of their keys.
    pub(in super::super) fn prepare<F>(
        &self,
        _ahead: &UpgradableGuard<'_, ()>,
        altered: Vec<IntervalEdit<'_, F>>,
    ) -> PreparedEdits
    where
        F: FnOnce(&mut Option<Arc<Interval>>),
    {
        let top = self.top.load();
        let mut rest = altered.into_iter().peekable();
        let mut ready = PreparedEdits {
            contents: Vec::with_capacity(rest.len()),
            branches: Vec::new(),
        };
        while let Some(first) = rest.peek() {
            let branch = top.keys.find(SeekTarget::At(first.lower));
            let end = (branch + 1 < top.branches.len()).then(|| top.keys.get(branch + 1));
            let node = top.branches[branch].node.load();
            let (mut longer, mut others) = (Vec::new(), Vec::new());
            while let Some(first) = rest.peek().filter(|own| own.begins_before(end)) {
                let at = node.keys.find(SeekTarget::At(first.lower));
                let leaf = &node.leaves[at];
                leaf.begin_change();
                let next = || rest.next_if(|own| own.begins_before(leaf.end()));
                let run: Vec<_> = std::iter::from_fn(next).collect();
                if run.iter().all(IntervalEdit::is_in_place) {
                    longer.push((at, self.edit_in_place(leaf, run, &mut ready.contents)));
                } else {
                    others.push((at, self.leaves_anew(leaf, run)));
                }
            }
            let children = Children::new(&node, longer, others);
            ready.branches.push((branch, children));
        }
        ready
    }

    /// Makes changes that were prepared, as the caller was ahead. The space has changed.
    pub(in super::super) fn make(
        &self,
        _alone: &mut ExclusiveGuard<'_, ()>,
        ready: PreparedEdits,
    ) -> AppliedEdits {
        let mut made = AppliedEdits {
            is_large: false,
            _gone: Vec::new(),
        };
        for Content { leaf, at, content } in &ready.contents {
            leaf.set_content(*at, *content);
        }
        // From the last one on: there may be more branches then.
        for (at, children) in ready.branches.into_iter().rev() {
            let top = self.top.load();
            let branch = &top.branches[at];
            match children {
                Children::Same(longer) => {
                    let node = branch.node.load();
                    for (leaf, delta) in longer {
                        node.lens.add(leaf, delta);
                        top.lens.add(at, delta);
                    }
                }
                Children::Others(node, len) => {
                    made.is_large |= node.leaves.len() > LEAVES_MAX;
                    top.lens.add(at, len.wrapping_sub(top.lens.get(at)));
                    made._gone.push(branch.node.swap(node));
                }
                Children::Many(children) => {
                    let mut branches = top.branches();
                    branches.splice(at..=at, branches_of(children, LEAVES_MAX));
                    self.top.store(Arc::new(Top::new(branches)));
                }
            }
        }
        made
    }

    /// Changes the forms of intervals that stay in their leaf, and notes the rest; returns by how
    /// much the leaf gets longer.
    fn edit_in_place<F>(
        &self,
        leaf: &Arc<IndexLeaf>,
        run: Vec<IntervalEdit<'_, F>>,
        contents: &mut Vec<Content>,
    ) -> u64
    where
        F: FnOnce(&mut Option<Arc<Interval>>),
    {
        let mut longer = 0_u64;
        for IntervalEdit { lower, becomes } in run {
            let at = leaf.keys.find(SeekTarget::At(lower));
            debug_assert_eq!(leaf.lower(at), lower);
            let content = match becomes {
                EditKind::Edited(content, change) => {
                    let change = |form: &mut _| change.into_iter().for_each(|own| own(form));
                    leaf.change_form(at, |form| self.change_counted(form, change));
                    content
                }
                EditKind::Others(_, mut list) => {
                    let Some(new) = list.pop() else { continue };
                    let change = |form: &mut _| *form = new.interval;
                    leaf.change_form(at, |form| self.change_counted(form, change));
                    (new.len, new.extents)
                }
            };
            longer = longer.wrapping_add(content.0.wrapping_sub(leaf.len(at)));
            let leaf = Arc::clone(leaf);
            contents.push(Content { leaf, at, content });
        }
        longer
    }

    /// Changes a form, and the sum of the cache with it.
    fn change_counted(
        &self,
        form: &mut Option<Arc<Interval>>,
        change: impl FnOnce(&mut Option<Arc<Interval>>),
    ) {
        let before = memory_of(form.as_ref());
        change(form);
        // Added first: the sum is never below nothing.
        self.cached.add(memory_of(form.as_ref()));
        self.cached.subtract(before);
    }

    /// The leaves that come in place of one.
    fn leaves_anew<F>(&self, old: &IndexLeaf, mut run: Vec<IntervalEdit<'_, F>>) -> Vec<Child>
    where
        F: FnOnce(&mut Option<Arc<Interval>>),
    {
        let more = run.iter().map(|own| match &own.becomes {
            EditKind::Edited(..) => 0,
            EditKind::Others(_, list) => list.len(),
        });
        let mut items = old.take_items(more.sum());
        let mut last = 0;
        // From the last one on, so that the places of the others stay what they are.
        for IntervalEdit { lower, becomes } in run.iter_mut().rev() {
            let at = old.keys.find(SeekTarget::At(lower));
            debug_assert_eq!(old.lower(at), *lower);
            match becomes {
                EditKind::Edited(content, change) => {
                    let item = &mut items[at];
                    (item.len, item.extents) = *content;
                    let change = |form: &mut _| change.take().into_iter().for_each(|own| own(form));
                    self.change_counted(&mut item.interval, change);
                    item.is_roomy = item.interval.as_ref().is_some_and(|form| form.has_room());
                    last = last.max(at + 1);
                }
                EditKind::Others(count, list) => {
                    last = last.max(at + *count);
                    self.put_items(&mut items, at..at + *count, list);
                }
            }
        }
        let end = old.end();
        if items.is_empty() {
            items.push(NewLeafEntry {
                key: old.lower(0),
                len: 0,
                extents: 0,
                interval: None,
                is_roomy: false,
            });
            self.note_small();
        }
        if items.len() < old.count() && items.len() <= LEAF_MAX / 4 {
            self.note_small();
        }
        // If the first interval is gone, the next one begins where it did.
        items[0].key = old.lower(0);
        // Keys that come in ascending order leave full leaves behind.
        let appends = end.is_none() && last == old.count() && items.len() > LEAF_MAX;
        let behind = appends.then(|| items.split_off(LEAF_MAX - 1));
        let border = behind.as_ref().map_or(end, |behind| Some(behind[0].key));
        let mut leaves = leaves_of(items, border, LEAF_MAX);
        let behind = behind.into_iter();
        leaves.extend(behind.flat_map(|items| leaves_of(items, end, LEAF_MAX)));
        self.count_memory(&leaves, old);
        leaves
    }

    /// Puts intervals in place of some.
    fn put_items<'i>(
        &self,
        items: &mut Vec<NewLeafEntry<'i>>,
        range: Range<usize>,
        list: &'i mut [NewInterval],
    ) {
        let memory = |form: Option<&Arc<Interval>>| memory_of(form);
        let new_bytes: u64 = list.iter().map(|own| memory(own.interval.as_ref())).sum();
        let old = items[range.clone()].iter();
        let old_bytes: u64 = old.map(|own| memory(own.interval.as_ref())).sum();
        self.cached.add(new_bytes);
        self.cached.subtract(old_bytes);
        let item = |new: &'i mut NewInterval| NewLeafEntry {
            key: &new.key,
            len: new.len,
            extents: new.extents,
            interval: new.interval.take(),
            is_roomy: false,
        };
        items.splice(range, list.iter_mut().map(item));
    }

    fn note_small(&self) {
        // ORDER: Relaxed; a hint for `prune`.
        self.has_small.store(true, Ordering::Relaxed);
    }
}

impl Children {
    /// A branch some of whose leaves get longer, and some become others.
    fn new(node: &Node, longer: Vec<(usize, u64)>, others: Vec<(usize, Vec<Child>)>) -> Children {
        if others.is_empty() {
            return Children::Same(longer);
        }
        let mut children = node.children();
        for (at, delta) in longer {
            let len = &mut children[at].1;
            *len = len.wrapping_add(delta);
        }
        for (at, leaves) in others.into_iter().rev() {
            children.splice(at..=at, leaves);
        }
        if children.len() > LEAVES_LIMIT {
            // Only if many cut intervals at the same time, or one has thousands of pairs.
            return Children::Many(children);
        }
        let len = children.iter().map(|(_, len)| len).sum();
        Children::Others(Arc::new(Node::new(children)), len)
    }
}
