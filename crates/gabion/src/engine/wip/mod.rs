//! WipDB: the write-in-place engine, the default ordered engine for SSDs.
//!
//! # Idea (paper, chapter 2)
//! The key range is cut into buckets of about equal size, each a miniature log-structured merge
//! tree. A write goes straight into the MemTable of its bucket and never leaves the bucket but by a
//! split. Because a bucket is small, its levels are tiered (a compaction merges all runs of a level
//! into one new run of the next and rewrites nothing there), so that an entry is written at most
//! once per level and once per split: amplification is bounded by `Lmax + N / (N - 1)` whatever
//! the size of the store.
//!
//! # Rooms
//! | room | journey |
//! |---|---|
//! | `writepath` | a write: leader, log, MemTable, publication; how a MemTable comes to be frozen |
//! | `readpath` | a get, several at once, a range scan |
//! | `policy` | what comes next, by facts alone: jobs, stalls, garbage, leisure |
//! | `background` | the threads: they gather facts, ask the policy, have its jobs done |
//! | `jobs` | what changes tables, buckets and the log's tail: flush, compaction, split, ... |
//! | `bucket`, `table`, `manifest` | what all of this is made of |
//! | `recovery` | open: manifest, log replay, orphans |
//! | `follow` | a store that another process writes, read as it goes on |
//! | `repair` | what can be read of a damaged store becomes another store |
//! | `checkpoint` | the store of a moment as another store |
//! | `steps` | what is WipDB's own in the journeys of `engine/ssd` |
//! | `stats`, `verify` | what there is, and whether it is sound |
//!
//! What other engines use as well, such as MemTables and range deletes, is in [`crate::engine`].
//!
//! # Invariants
//! - I1: at every instant the manifest names exactly one set of table files and log segments that
//!   together hold everything acknowledged.
//! - I2: a table enters the manifest only when the log is durable up to the table's newest entry;
//!   so what a power loss leaves is a prefix of the writes.
//! - I3: locks are taken in the order manifest, leader, install; each may be skipped.
//!
//! # Linearization and durability points
//! A write takes effect when [`Wip::publish`] stores its sequence number. It is durable against
//! process death when its frame is in the log's mapping, and against power loss when a sync of the
//! log that began later has returned.
//!
//! | paper's term | here |
//! |---|---|
//! | sublevel | [`bucket::Run`] |
//! | LevelTable | `table`, [`file::TableFile`] |
//! | minor compaction | flush |
//! | splitter | pivot, cut key |

mod background;
mod bucket;
mod checkpoint;
mod follow;
mod jobs;
mod manifest;
mod policy;
mod readpath;
mod recovery;
mod repair;
mod stats;
mod steps;
mod table;
mod verify;
mod writepath;

use std::collections::VecDeque;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use arc_swap::{ArcSwap, Guard};
use parking_lot::{Mutex, MutexGuard, RwLock};

use super::counters::{Counter, Tally};
use super::keyspaces::{DropSeq, DroppableKeyspace, KeyspaceId};
use super::live_options::LiveKeyspaceOptions;
use super::memtable::{ChunkPool, MemTable, OrderPolicy};
use super::range_deletes::RangeDeletes;
use super::ssd::{FeedSource, Shell, SsdEngine};
use super::write;
use crate::cache::BlockCache;
use crate::expiry::ReadPoint;
use crate::log::KeyspaceEvent;
use crate::types::Seq;
use crate::{KeyspaceOptions, Result};

use background::bucket_queue::BucketQueue;
use bucket::file::TableFile;
use bucket::{Bucket, BucketState, Router};
use follow::state::Following;
use jobs::prewarm::PrewarmQueue;
use manifest::{Manifest, VersionEdit};
use policy::bucket_totals::BucketTotals;
use policy::idle_detector::IdleDetector;
use policy::space::SpaceTotals;
use policy::write_controller::WriteController;
use readpath::residency::PageResidency;
use writepath::dirty_buckets::DirtyBuckets;
use writepath::grouped::BatchTargets;
use writepath::{PublishOrder, WipWriteHalf};

pub(super) use checkpoint::log_place;
pub(crate) use jobs::ingest::WipIngest;
pub(super) use manifest::check_root;
pub(crate) use readpath::scan::WipScan;
pub(super) use repair::repair;
pub(super) use verify::check_disk;

/// One write, as its writer hands it in.
pub(crate) type Write<'w> = write::Write<'w, WipKeyspace>;

/// A keyspace: a name, and a router over its buckets.
pub(crate) struct WipKeyspace {
    /// The number by which the log and the manifest know the keyspace.
    pub(crate) id: u32,
    /// The name that users give it.
    pub(crate) name: String,
    router: ArcSwap<Router>,
    /// Routers of earlier numbers that somebody reads at, ascending: of a follower only.
    past: ArcSwap<Vec<Past>>,
    own: LiveKeyspaceOptions,
    pub(crate) dropped: DropSeq,
}

/// A router that another one has taken the place of.
#[derive(Clone)]
struct Past {
    router: Arc<Router>,
    /// The first number for which it is too old.
    until: Seq,
}

impl KeyspaceId for WipKeyspace {
    fn id(&self) -> u32 {
        self.id
    }

    fn name(&self) -> &str {
        &self.name
    }
}

impl DroppableKeyspace for WipKeyspace {
    fn dropped(&self) -> &DropSeq {
        &self.dropped
    }

    fn own_options(&self) -> &LiveKeyspaceOptions {
        &self.own
    }
}

impl WipKeyspace {
    /// A keyspace with these buckets.
    fn new(id: u32, name: &str, router: Router, own: LiveKeyspaceOptions) -> WipKeyspace {
        WipKeyspace {
            id,
            name: name.to_owned(),
            router: ArcSwap::from_pointee(router),
            past: ArcSwap::default(),
            own,
            dropped: DropSeq::default(),
        }
    }

    /// The router for who is registered to read at a number.
    #[inline]
    fn router_at(&self, seq: Seq) -> Guard<Arc<Router>> {
        let router = self.router.load();
        match router.since() <= seq {
            true => router,
            false => self.past_router(seq),
        }
    }

    #[cold]
    fn past_router(&self, seq: Seq) -> Guard<Arc<Router>> {
        let past = self.past.load();
        let at = past.partition_point(|past| past.until <= seq);
        let found = past.get(at).filter(|past| past.router.since() <= seq);
        match found {
            Some(found) => Guard::from_inner(Arc::clone(&found.router)),
            // They stay as long as somebody is registered, which nobody is in a forked child.
            None => {
                debug_assert_eq!(seq, 0, "a router for number {seq} is gone");
                self.router.load()
            }
        }
    }

    /// Whether the bucket is one of the keyspace's; one that was split is not any more.
    fn has(&self, bucket: &Bucket) -> bool {
        self.router.load().route(bucket.lower()).id == bucket.id
    }

    /// Puts buckets of the same keys into the place of `old`, which are neighbours: what a split or
    /// a join ends with, with the install lock held.
    ///
    /// Readers that hold the old router compare states: `old` get states of their own, the last
    /// ones, so they notice, and route again.
    fn exchange(&self, old: &[Arc<Bucket>], new: impl IntoIterator<Item = Arc<Bucket>>) {
        let router = self.router.load_full();
        let first = old
            .first()
            .map_or(0, |bucket| router.position(bucket.lower()));
        debug_assert!(
            router.buckets()[first..]
                .iter()
                .map(|bucket| bucket.id)
                .take(old.len())
                .eq(old.iter().map(|bucket| bucket.id)),
            "neighbours of the keyspace"
        );
        let mut buckets = router.buckets().to_vec();
        buckets.splice(first..first + old.len(), new);
        self.router.store(Arc::new(Router::new(buckets)));
        for bucket in old {
            let state = BucketState::clone(&bucket.state.load());
            bucket.state.store(Arc::new(state));
        }
    }
}

/// The engine. Background threads share it with the facade.
pub(crate) struct Wip {
    shell: Shell<WipKeyspace>,
    cache: Arc<BlockCache>,
    pool: Arc<ChunkPool>,
    /// The log segment that was current when `visible` was last stored: what is in the log but not
    /// yet in a MemTable is in no older segment.
    published_segment: AtomicU64,

    /// The log's write half, shared by writers that go side by side.
    leader: RwLock<WipWriteHalf>,
    /// Where they wait for their turn.
    turns: PublishOrder,

    /// The manifest.
    versions: Mutex<VersionSet>,
    /// Guards every change of a bucket's state and of a router.
    install: Mutex<InstallState>,

    idleness: Mutex<IdleDetector>,
    throttle: WriteController,
    /// The space of the tables when it was last looked at.
    totals: Mutex<SpaceTotals>,
    residency: PageResidency,
    /// Tables to be made ready for readers.
    fresh: PrewarmQueue,
    /// Which buckets are to be looked at.
    agenda: BucketQueue,
    /// Sums over all buckets.
    ledger: Mutex<BucketTotals>,
    /// Which buckets hold writes in memory.
    written: DirtyBuckets,
    /// Number of buckets of all keyspaces.
    bucket_count: AtomicUsize,
    /// Reads that asked the tables of buckets, in gets.
    table_reads: Tally,
    /// Buckets that the background, flushes and whoever freezes have looked at.
    #[cfg(test)]
    visits: AtomicUsize,
    /// Bytes of all tables when they were last counted, shared ones counted for each bucket.
    table_bytes: Counter,
    /// What a follower knows of the store that it follows.
    following: Option<Mutex<Following>>,
}

impl Deref for Wip {
    type Target = Shell<WipKeyspace>;

    fn deref(&self) -> &Shell<WipKeyspace> {
        &self.shell
    }
}

/// The manifest, and the numbers that were given out; changes with the store's structure.
struct VersionSet {
    manifest: Manifest,
    next_file: u64,
    next_bucket: u64,
}

/// What the install lock guards besides the buckets' states.
#[derive(Default)]
struct InstallState {
    /// MemTables that wait for their flush, oldest first.
    frozen: VecDeque<ImmutableMemTable>,
    /// Memory for the inserts of a batch; empty between them.
    met: BatchTargets,
}

impl InstallState {
    /// A MemTable waits for its flush no more. It is among the oldest, unless others overtook it.
    fn remove_frozen(&mut self, table: &Arc<MemTable>) {
        let is_it = |frozen: &ImmutableMemTable| Arc::ptr_eq(&frozen.table, table);
        if let Some(at) = self.frozen.iter().position(is_it) {
            self.frozen.remove(at);
        }
    }
}

/// A MemTable that takes no more writes. After a split several buckets hold the same one.
struct ImmutableMemTable {
    table: Arc<MemTable>,
    keyspace: Arc<WipKeyspace>,
    lower: Box<[u8]>,
    upper: Option<Box<[u8]>>,
    /// When its first entry was written.
    born: u64,
    /// A thread is writing the table.
    flushing: bool,
}

impl Wip {
    /// As [`Wip::keyspace_with`], with no options of its own.
    #[cfg(test)]
    pub(crate) fn create_keyspace(&self, name: &str) -> Result<Arc<WipKeyspace>> {
        self.keyspace_with(name, None)
    }

    /// The keyspace of that name, made durably if it does not exist; with these options from now
    /// on, if they are given.
    pub(crate) fn keyspace_with(
        &self,
        name: &str,
        options: Option<&KeyspaceOptions>,
    ) -> Result<Arc<WipKeyspace>> {
        if let Some(keyspace) = self.keyspaces.find(name)
            && keyspace.own.is_as_wanted(name, options)?
        {
            return Ok(keyspace);
        }
        self.check_writable()?;
        let mut versions = self.versions.lock();
        if let Some(keyspace) = self.keyspaces.find(name) {
            if let Some(options) = options {
                let wanted = options.in_place_of(name, &keyspace.own.get())?;
                if wanted.encode() != keyspace.own.get().encode() {
                    let (id, options) = (keyspace.id, wanted.clone());
                    self.apply(&mut versions, &[VersionEdit::SetOptions { id, options }])?;
                    let leader = &mut *self.leader.write();
                    let (last, options) = (leader.next_seq() - 1, &wanted.encode());
                    self.tell(leader, last, id, KeyspaceEvent::Options { options });
                }
                keyspace.own.set(wanted);
            }
            return Ok(keyspace);
        }
        let id = versions.manifest.state().next_keyspace;
        let bucket = versions.take_bucket_id();
        let options = options.cloned().unwrap_or_default();
        let mut edits = vec![
            VersionEdit::AddKeyspace {
                id,
                name: name.to_owned(),
            },
            VersionEdit::AddBucket {
                id: bucket,
                keyspace: id,
                lower: Vec::new(),
                flushed_seq: 0,
            },
        ];
        if !options.is_empty() {
            let options = options.clone();
            edits.push(VersionEdit::SetOptions { id, options });
        }
        self.apply(&mut versions, &edits)?;
        let bucket = Bucket::new((id, bucket), &[], None, self.empty_state());
        let router = Router::new(vec![Arc::new(bucket)]);
        let encoded = options.encode();
        let own = LiveKeyspaceOptions::new(options, false);
        let keyspace = Arc::new(WipKeyspace::new(id, name, router, own));
        // ORDER: Relaxed; a figure that orders nothing.
        self.bucket_count.fetch_add(1, Ordering::Relaxed);
        self.keyspaces.add(&keyspace);
        let leader = &mut *self.leader.write();
        let last = leader.next_seq() - 1;
        self.tell(leader, last, id, KeyspaceEvent::Made { name });
        if !encoded.is_empty() {
            let options = &encoded;
            self.tell(leader, last, id, KeyspaceEvent::Options { options });
        }
        Ok(keyspace)
    }

    /// What the manifest keeps of the moment by which readers go, where anything expires.
    fn moment_edit(&self, expires: bool) -> Option<VersionEdit> {
        expires.then(|| VersionEdit::Moment {
            moment: self.moments.now(),
        })
    }

    /// Ends a registration.
    pub(crate) fn end_snapshot(&self, point: ReadPoint) {
        self.snapshots.release(point);
        self.forget_dropped();
    }

    /// Counts a read that asks all runs of a bucket. Exactly where the store is deterministic.
    #[inline]
    fn count_read(&self, bucket: &Bucket) {
        let counted = bucket.reads.count(self.options.background_threads == 0);
        if counted > 0 {
            self.table_reads.add(counted);
        }
    }

    /// As [`Wip::count_read`], for a scan that enters a bucket.
    #[inline]
    fn count_scan(&self, bucket: &Bucket) {
        let exactly = self.options.background_threads == 0;
        let counted = bucket.reads.count_scan(exactly);
        if counted > 0 {
            self.table_reads.add(counted);
        }
    }

    /// Makes everything up to `seq` visible. This is where writes take effect.
    fn publish(&self, seq: Seq, segment: u64) {
        // ORDER: Release pairs with the Acquire in `reclaim::log_tail`.
        self.published_segment.store(segment, Ordering::Release);
        self.shell.publish(seq);
    }

    /// Writes edits to the manifest, all or none.
    ///
    /// DURABLE: when it returns, the store's structure is the new one even after power loss. Where
    /// there is no space for the edits it is the old one, and the store goes on. Any other failure
    /// leaves unknown which of the two is on the medium, so the store turns read-only.
    fn apply(&self, versions: &mut VersionSet, edits: &[VersionEdit]) -> Result<()> {
        self.health.check_writable()?;
        let applied = versions.manifest.apply(edits);
        applied.map_err(|error| match versions.manifest.is_usable() {
            true => error,
            false => self.fail(error),
        })
    }

    fn empty_state(&self) -> BucketState {
        let keep = OrderPolicy::of(&self.options);
        BucketState {
            active: Arc::new(MemTable::with_order(&self.pool, 0, keep, 0)),
            frozen: Vec::new(),
            levels: Arc::default(),
            deletes: RangeDeletes::default(),
        }
    }

    /// Puts buckets of the same keys into the place of `old`, as [`WipKeyspace::exchange`] does.
    /// What the old ones hold in memory is not theirs any more.
    fn exchange(&self, keyspace: &WipKeyspace, old: &[Arc<Bucket>], new: Vec<Arc<Bucket>>) {
        // ORDER: Relaxed (both); a figure that orders nothing.
        self.bucket_count.fetch_add(new.len(), Ordering::Relaxed);
        self.bucket_count.fetch_sub(old.len(), Ordering::Relaxed);
        keyspace.exchange(old, new.iter().cloned());
        old.iter().chain(&new).for_each(|bucket| self.touch(bucket));
    }

    /// There are so many buckets.
    fn set_bucket_count(&self, buckets: usize) {
        // ORDER: Relaxed; a figure that orders nothing.
        self.bucket_count.store(buckets, Ordering::Relaxed);
    }

    /// Number of buckets of all keyspaces.
    fn bucket_count(&self) -> usize {
        // ORDER: Relaxed; a figure that orders nothing.
        self.bucket_count.load(Ordering::Relaxed)
    }

    /// So many buckets are looked at.
    #[inline]
    fn count_visits(&self, _buckets: usize) {
        // ORDER: Relaxed; a figure that orders nothing.
        #[cfg(test)]
        self.visits.fetch_add(_buckets, Ordering::Relaxed);
    }

    /// All buckets of all keyspaces.
    fn buckets(&self) -> Vec<(Arc<WipKeyspace>, Arc<Bucket>)> {
        let keyspaces = self.keyspaces.load();
        let mut buckets = Vec::new();
        for keyspace in keyspaces.iter() {
            let router = keyspace.router.load();
            let pairs = router
                .buckets()
                .iter()
                .map(|b| (Arc::clone(keyspace), Arc::clone(b)));
            buckets.extend(pairs);
        }
        self.count_visits(buckets.len());
        buckets
    }

    fn lock_install(&self) -> MutexGuard<'_, InstallState> {
        self.install.lock()
    }
}

impl VersionSet {
    fn take_file_number(&mut self) -> u64 {
        self.next_file += 1;
        self.next_file - 1
    }

    fn take_bucket_id(&mut self) -> u64 {
        self.next_bucket += 1;
        self.next_bucket - 1
    }

    /// What the manifest must know so that file numbers are never used twice.
    fn next_file_edit(&self) -> VersionEdit {
        VersionEdit::NextFile {
            number: self.next_file,
        }
    }

    /// What the manifest must know so that bucket numbers are never used twice.
    fn next_bucket_edit(&self) -> VersionEdit {
        VersionEdit::NextBucket {
            id: self.next_bucket,
        }
    }

    /// All writes to a bucket up to this number are in tables.
    fn flushed_seq(&self, bucket: u64) -> Seq {
        self.manifest
            .state()
            .buckets
            .get(&bucket)
            .map_or(0, |bucket| bucket.flushed_seq)
    }

    /// Bytes and number of the table files.
    fn file_bytes_and_count(&self) -> (u64, u64) {
        let state = self.manifest.state();
        (state.file_bytes(), state.files.len() as u64)
    }

    /// Whether a bucket is the only one that refers to a file.
    fn is_last_reference(&self, file: u64) -> bool {
        self.manifest
            .state()
            .files
            .get(&file)
            .is_some_and(|file| file.refs == 1)
    }
}

/// Retires the files that the manifest names no more.
fn retire_all<'f>(files: impl IntoIterator<Item = &'f Arc<TableFile>>) {
    for file in files {
        file.retire();
    }
}
