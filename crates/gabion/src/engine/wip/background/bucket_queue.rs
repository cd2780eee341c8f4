//! The buckets to inspect: those that have changed, and now and then all.
//!
//! # Idea
//! What is due in a bucket (`policy::compaction_picker`) follows from what it holds, which changes
//! with a job or an ingest, and from what changes with time: its reads, the age of its garbage,
//! what snapshots hold, whether the store has leisure. To look at all buckets after each job makes
//! the work of a store with very many of them quadratic. So whoever changes a bucket *touches* it.
//! A step of the background inspects the buckets touched since the last step; the jobs that it
//! finds wait in a heap, the most pressing first. All buckets are looked at when so many steps have
//! passed that this costs each of them a look at [`BUCKETS_PER_STEP`], when a while has passed,
//! when the store comes to have leisure, when a flush waits for space and nothing is known to be
//! due, and when somebody waits until nothing is due.
//!
//! With few buckets, each step inspects all of them.
//!
//! # Invariants
//! - Q1: a bucket is touched after the change, and taken off the list before it is looked at: each
//!   change is followed by a look that sees it.
//! - Q2: what waits in the heap is a guess of an earlier moment: who takes it looks again.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::engine::wip::bucket::Bucket;
use crate::engine::wip::policy::job_score::{JobPriority, JobScore, ScoreTotals};

/// A look at so many buckets costs less than a flush.
pub(in super::super) const BUCKETS_PER_STEP: usize = 64;

/// All buckets are looked at that often in a store with threads, and never for more than one part
/// in so many of the time.
const LOOK_EVERY: Duration = Duration::from_millis(500);
const LOOK_PARTS: u32 = 50;

/// What is to be looked at.
#[derive(Default)]
pub(in super::super) struct BucketQueue(Mutex<Lists>);

#[derive(Default)]
struct Lists {
    /// Buckets that have changed since their sums were taken, with their numbers.
    touched: Vec<(u64, Weak<Bucket>)>,
    /// Buckets that have changed since it was looked for what is due in them.
    unjudged: Vec<Weak<Bucket>>,
    /// Buckets that have changed since it was looked whether they have small neighbours.
    joinable: BTreeMap<u64, Weak<Bucket>>,
    /// What is due.
    waiting: BinaryHeap<Waiting>,
    /// What the priorities of those that wait are relative to.
    sums: ScoreTotals,
    /// Numbers the claims, so that the first of equal ones comes first.
    claims: u64,
    /// The last look at all buckets.
    last: Option<Look>,
    /// Steps since then.
    steps: usize,
}

/// A look at all buckets.
#[derive(Clone, Copy)]
struct Look {
    leisure: bool,
    ended: Instant,
    took: Duration,
}

/// A bucket in which something is due.
struct Waiting {
    urgency: JobPriority,
    priority: f64,
    number: u64,
    bucket: Weak<Bucket>,
}

impl Ord for Waiting {
    fn cmp(&self, other: &Waiting) -> Ordering {
        self.urgency
            .cmp(&other.urgency)
            .then(self.priority.total_cmp(&other.priority))
            .then(other.number.cmp(&self.number))
    }
}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Waiting) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Waiting) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Waiting {}

impl BucketQueue {
    /// A bucket has changed, or is there no more (Q1).
    pub(in super::super) fn touch(&self, bucket: &Arc<Bucket>) {
        if bucket.set_touched() {
            let touched = (bucket.id, Arc::downgrade(bucket));
            self.0.lock().touched.push(touched);
        }
    }

    /// Takes the buckets that have changed, with their numbers; those that are left are there.
    pub(in super::super) fn take_touched(&self) -> Vec<(u64, Option<Arc<Bucket>>)> {
        let touched = std::mem::take(&mut self.0.lock().touched);
        let take = |(id, bucket): (u64, Weak<Bucket>)| {
            let bucket = bucket.upgrade();
            if let Some(bucket) = &bucket {
                bucket.clear_touched();
            }
            (id, bucket)
        };
        touched.into_iter().map(take).collect()
    }

    /// It is to be looked for what is due in a bucket, and for its neighbours.
    pub(in super::super) fn add_unjudged(&self, bucket: &Arc<Bucket>, has_neighbours: bool) {
        let mut lists = self.0.lock();
        lists.unjudged.push(Arc::downgrade(bucket));
        if has_neighbours {
            lists.joinable.insert(bucket.id, Arc::downgrade(bucket));
        }
    }

    /// It is to be looked for a bucket's neighbours.
    pub(in super::super) fn add_joinable(&self, bucket: &Arc<Bucket>) {
        let mut lists = self.0.lock();
        lists.joinable.insert(bucket.id, Arc::downgrade(bucket));
    }

    /// Takes the buckets in which it is to be looked for what is due.
    pub(in super::super) fn take_unscored(&self) -> Vec<Arc<Bucket>> {
        let unjudged = std::mem::take(&mut self.0.lock().unjudged);
        unjudged.iter().filter_map(Weak::upgrade).collect()
    }

    /// Takes a bucket that may have small neighbours.
    pub(in super::super) fn take_joinable(&self) -> Option<Arc<Bucket>> {
        let mut lists = self.0.lock();
        while let Some((_, bucket)) = lists.joinable.pop_first() {
            if let Some(bucket) = bucket.upgrade() {
                return Some(bucket);
            }
        }
        None
    }

    /// Counts a step; whether all `buckets` are to be looked at in it. Times count if `timed`.
    pub(in super::super) fn begin_step(&self, buckets: usize, leisure: bool, timed: bool) -> bool {
        let mut lists = self.0.lock();
        lists.steps += 1;
        let Some(last) = lists.last else {
            return true;
        };
        lists.steps * BUCKETS_PER_STEP >= buckets
            || leisure && !last.leisure
            || timed && last.ended.elapsed() >= LOOK_EVERY.max(last.took * LOOK_PARTS)
    }

    /// All buckets were looked at, from `began` on: these are due. What was taken for due before is
    /// forgotten.
    pub(in super::super) fn set_due(
        &self,
        due: Vec<(JobScore, Arc<Bucket>)>,
        read_weight: u32,
        (leisure, began): (bool, Instant),
    ) {
        let mut lists = self.0.lock();
        lists.waiting.clear();
        lists.sums = ScoreTotals::default();
        for (claim, _) in &due {
            lists.sums.add(claim);
        }
        for (claim, bucket) in due {
            lists.wait(&claim, &bucket, read_weight);
        }
        let ended = Instant::now();
        lists.last = Some(Look {
            leisure,
            ended,
            took: ended - began,
        });
        lists.steps = 0;
    }

    /// Something is due in a bucket.
    pub(in super::super) fn add_due(
        &self,
        claim: &JobScore,
        bucket: &Arc<Bucket>,
        read_weight: u32,
    ) {
        let mut lists = self.0.lock();
        lists.sums.add(claim);
        lists.wait(claim, bucket, read_weight);
    }

    /// Takes the bucket in which something is most pressing.
    pub(in super::super) fn take_due(&self) -> Option<Arc<Bucket>> {
        let mut lists = self.0.lock();
        while let Some(first) = lists.waiting.pop() {
            if let Some(bucket) = first.bucket.upgrade() {
                return Some(bucket);
            }
        }
        None
    }

    /// The bucket that [`BucketQueue::take_due`] would take.
    pub(in super::super) fn first_due(&self) -> Option<Arc<Bucket>> {
        let lists = self.0.lock();
        lists
            .waiting
            .peek()
            .and_then(|first| first.bucket.upgrade())
    }

    /// Whether nothing is known to be due, and nothing is left to be looked at.
    pub(in super::super) fn is_empty(&self) -> bool {
        let lists = self.0.lock();
        lists.waiting.is_empty() && lists.unjudged.is_empty() && lists.joinable.is_empty()
    }
}

impl Lists {
    fn wait(&mut self, claim: &JobScore, bucket: &Arc<Bucket>, read_weight: u32) {
        self.claims += 1;
        self.waiting.push(Waiting {
            urgency: claim.urgency,
            priority: self.sums.priority(claim, read_weight),
            number: self.claims,
            bucket: Arc::downgrade(bucket),
        });
    }
}
