//! Sums over all buckets, updated as buckets change.
//!
//! # Idea
//! Writers slow down by the runs of the fullest level 0 and by the garbage in all tables; the
//! capacity of buckets grows with the bytes of all tables. Each changed bucket
//! (`background/bucket_queue`) subtracts its old share from these sums and adds its new one, so the
//! cost of a job does not depend on the number of buckets.
//!
//! # Invariants
//! - E1: the sums are those of the parts. A bucket's part is taken from its state with the ledger
//!   locked, so the newest state counts if several take it.

use std::collections::{BTreeMap, HashMap};

use super::space::{GarbageWorth, SpaceTotals, SpaceUsage};
use crate::types::Seq;

/// What a bucket adds to the sums.
pub(crate) struct BucketShare {
    /// Runs of level 0, as they would be in one of `sublevels_max`.
    pub(crate) runs: usize,
    /// Bytes of its tables, of shared ones all.
    pub(crate) table_bytes: u64,
    pub(crate) space: SpaceUsage,
    /// Shared tables, with their bytes and the part of these that is in the bucket's range.
    pub(crate) slices: Vec<(u64, u64, u64)>,
    pub(crate) worth: GarbageWorth,
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
pub(crate) struct BucketTotals {
    parts: HashMap<u64, BucketShare>,
    /// How many buckets have so many runs in their level 0, scaled.
    runs: BTreeMap<usize, usize>,
    table_bytes: u64,
    space: SpaceUsage,
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

impl BucketTotals {
    /// Bytes of the tables of all buckets, shared ones counted for each.
    pub(crate) fn table_bytes(&self) -> u64 {
        self.table_bytes
    }

    /// The bucket of that number has this part from now on, or none.
    pub(crate) fn set(&mut self, bucket: u64, part: Option<BucketShare>) {
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

    fn apply(&mut self, part: &BucketShare, adds: bool) {
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
            GarbageWorth::No => {}
            GarbageWorth::Yes => step(&mut self.worth),
            GarbageWorth::Unless(oldest) => {
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
    pub(crate) fn totals(&self, table_bytes: u64, oldest: Option<Seq>) -> SpaceTotals {
        let mut totals = SpaceTotals {
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
    pub(crate) fn runs_max(&self) -> usize {
        self.runs.last_key_value().map_or(0, |(runs, _)| *runs)
    }
}
