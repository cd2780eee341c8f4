//! Sums over all buckets, kept as buckets change.
//!
//! # Idea
//! Writers are slowed by how many runs the fullest level 0 has and by how much of all tables is
//! garbage; buckets grow with the bytes of all tables. Each bucket that has changed
//! ([`super::agenda`]) takes its old part out of these sums and puts its new one in, so that a job
//! costs what it changed, however many buckets there are.
//!
//! # Invariants
//! - E1: the sums are those of the parts. A bucket's part is taken from its state with the ledger
//!   locked, so the newest state counts if several take it.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::Result;
use crate::engine::wip::Wip;
use crate::engine::wip::bucket::{Bucket, BucketState};
use crate::engine::wip::jobs::split::{run_bytes, slice_bytes};
use crate::engine::wip::policy::space::{Space, Totals, Worth};
use crate::types::Seq;

/// What a bucket adds to the sums.
struct Part {
    /// Runs of level 0, as they would be in one of `sublevels_max`.
    runs: usize,
    /// Bytes of its tables, of shared ones all.
    table_bytes: u64,
    space: Space,
    /// Shared tables, with their bytes and the part of these that is in the bucket's range.
    slices: Vec<(u64, u64, u64)>,
    worth: Worth,
}

/// A table that buckets share.
#[derive(Default)]
struct Shared {
    file_bytes: u64,
    /// What is in the buckets' parts.
    bytes: u64,
    buckets: usize,
}

impl Shared {
    /// Bytes that are in no bucket's part.
    fn orphaned(&self) -> u64 {
        self.file_bytes.saturating_sub(self.bytes)
    }
}

/// The sums.
#[derive(Default)]
pub(in super::super) struct Ledger {
    parts: HashMap<u64, Part>,
    /// How many buckets have so many runs in their level 0, scaled.
    runs: BTreeMap<usize, usize>,
    table_bytes: u64,
    space: Space,
    shared: HashMap<u64, Shared>,
    orphaned: u64,
    /// Buckets with shared tables.
    sharing: usize,
    /// Buckets that are worth a compaction for their garbage; and those that are unless a snapshot
    /// is the oldest one, by the snapshot.
    worth: usize,
    worth_unless: HashMap<Option<Seq>, usize>,
}

/// Adds to a count, or takes from it.
fn count<K: std::hash::Hash + Eq>(counts: &mut HashMap<K, usize>, key: K, adds: bool) {
    let count = counts.entry(key).or_default();
    match adds {
        true => *count += 1,
        false => *count -= 1,
    }
}

impl Ledger {
    /// The bucket of that number has this part from now on, or none.
    fn set(&mut self, bucket: u64, part: Option<Part>) {
        let old = match part {
            Some(part) => {
                self.apply(&part, true);
                self.parts.insert(bucket, part)
            }
            None => self.parts.remove(&bucket),
        };
        if let Some(old) = old {
            self.apply(&old, false);
        }
    }

    fn apply(&mut self, part: &Part, adds: bool) {
        let runs = self.runs.entry(part.runs).or_default();
        match adds {
            true => {
                *runs += 1;
                self.table_bytes += part.table_bytes;
                self.space.add(&part.space);
            }
            false => {
                *runs -= 1;
                self.table_bytes -= part.table_bytes;
                self.space.take(&part.space);
            }
        }
        if *runs == 0 {
            self.runs.remove(&part.runs);
        }
        let step = |of: &mut usize| match adds {
            true => *of += 1,
            false => *of -= 1,
        };
        if part.space.shares {
            step(&mut self.sharing);
        }
        match part.worth {
            Worth::No => {}
            Worth::Yes => step(&mut self.worth),
            Worth::Unless(oldest) => {
                count(&mut self.worth_unless, oldest, adds);
                self.worth_unless.retain(|_, count| *count > 0);
            }
        }
        for (file, file_bytes, bytes) in &part.slices {
            let shared = self.shared.entry(*file).or_default();
            self.orphaned -= shared.orphaned();
            shared.file_bytes = *file_bytes;
            step(&mut shared.buckets);
            match adds {
                true => shared.bytes += bytes,
                false => shared.bytes -= bytes,
            }
            match shared.buckets {
                0 => drop(self.shared.remove(file)),
                _ => self.orphaned += shared.orphaned(),
            }
        }
    }

    /// The space of all tables, whose files have `table_bytes`, when `oldest` is the oldest
    /// snapshot.
    fn totals(&self, table_bytes: u64, oldest: Option<Seq>) -> Totals {
        let mut totals = Totals {
            buckets: self.space,
            table_bytes,
            orphaned: self.orphaned,
            may_shrink: false,
        };
        let all: usize = self.worth_unless.values().sum();
        let held = self.worth_unless.get(&oldest).copied().unwrap_or(0);
        totals.may_shrink =
            self.worth > 0 || all > held || self.sharing > 0 && totals.are_orphans_many();
        totals
    }

    /// The most runs that any bucket has in its level 0.
    fn runs_max(&self) -> usize {
        self.runs.last_key_value().map_or(0, |(runs, _)| *runs)
    }
}

impl Wip {
    /// Brings the sums up to date with the buckets that were touched, and tells writers of the
    /// runs. What of them cannot be measured is touched again.
    pub(in super::super) fn look_at_touched(&self) -> Result<()> {
        let mut result = Ok(());
        let touched = self.agenda.take_touched();
        if touched.is_empty() {
            return result;
        }
        self.count_visits(touched.len());
        let mut ledger = self.ledger.lock();
        for (id, bucket) in touched {
            let present = bucket.as_ref().filter(|bucket| self.has_bucket(bucket));
            let Some(bucket) = present else {
                ledger.set(id, None);
                continue;
            };
            match self.part_of(bucket, &bucket.state.load()) {
                Ok(part) => ledger.set(id, Some(part)),
                Err(error) => {
                    self.agenda.touch(bucket);
                    result = Err(error);
                }
            }
            let has_neighbours = bucket.upper().is_some() || !bucket.lower().is_empty();
            self.agenda.add_unjudged(bucket, has_neighbours);
        }
        self.table_bytes.set(ledger.table_bytes);
        self.throttle.set_runs(ledger.runs_max());
        result
    }

    /// Tells writers of the runs as they are now.
    pub(in super::super) fn tell_runs(&self) {
        // Who compacts a bucket that cannot be measured meets the same error.
        let _ = self.look_at_touched();
        self.throttle.set_runs(self.ledger.lock().runs_max());
    }

    fn part_of(&self, bucket: &Bucket, state: &BucketState) -> Result<Part> {
        let levels = &state.levels;
        let space = self.space_of(bucket, state)?;
        let mut slices = Vec::new();
        let shared = levels.files().filter(|file| {
            space.shares && !bucket.contains(&file.meta.smallest, &file.meta.largest)
        });
        for file in shared {
            let bytes = slice_bytes(bucket, file)?;
            slices.push((file.meta.file, file.meta.file_bytes, bytes));
        }
        let flushed = levels.level(0).iter();
        let flushed: Vec<u64> = flushed
            .map(|run| run_bytes(bucket, run))
            .collect::<Result<_>>()?;
        bucket.sizing.see(space.bytes, &flushed);
        let width = bucket.sizing.width(&self.options);
        Ok(Part {
            runs: width.scaled(0, levels.level(0).len()),
            table_bytes: levels.files().map(|file| file.meta.file_bytes).sum(),
            worth: Wip::worth(bucket, &space, levels),
            space,
            slices,
        })
    }

    /// The space of all tables.
    pub(in super::super) fn space_totals(&self) -> Result<Totals> {
        self.look_at_touched()?;
        let table_bytes = self.versions.lock().file_bytes_and_count().0;
        let oldest = self.snapshots.oldest();
        Ok(self.ledger.lock().totals(table_bytes, oldest))
    }

    /// Whether a bucket is one of a keyspace that is there.
    pub(in super::super) fn has_bucket(&self, bucket: &Bucket) -> bool {
        let keyspaces = self.keyspaces.load();
        let keyspace = keyspaces.live(bucket.keyspace);
        keyspace.is_some_and(|keyspace| keyspace.has(bucket))
    }

    /// Touches a bucket whose tables, jobs or neighbours have changed.
    pub(in super::super) fn touch(&self, bucket: &Arc<Bucket>) {
        self.agenda.touch(bucket);
    }
}
