//! The phases as data: which operations in which parts, how they choose their records, who runs
//! them and how many there are. The runner knows operations, never phases.
//!
//! [`generators`] choose the records, [`keys`] make their bytes, [`sizes`] names the shapes of
//! records that papers and field studies use.

pub(crate) mod generators;
pub(crate) mod keys;
mod rng;
mod sizes;
mod zipf;

pub use generators::Distribution;
pub use rng::Rng;
pub(crate) use rng::{below, mix};
pub use sizes::{SIZES, Size, ValueSizes};

use crate::target::TargetCapabilities;

/// One kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Operation {
    /// Writes the record drawn.
    Put,
    /// Reads the record drawn.
    Read,
    /// Reads a key that is absent but inside the range of those present.
    ReadMissing,
    /// Steps through the store in key order; one step is one operation.
    Next,
    /// The same backwards.
    Previous,
    /// Positions an iterator at the record drawn and takes the first entry.
    Seek,
    /// Reads up to this many entries from the record drawn on.
    Scan(ScanLength),
    /// Deletes the record drawn.
    Delete,
    /// Writes a record that was not there before.
    Insert,
    /// Reads the record drawn, then writes it.
    ReadModifyWrite,
    /// Reads so many records, then writes them, in one transaction.
    Transaction(u32),
    /// Adds one to the counter that the record drawn is.
    Merge,
    /// Merges all that the store can merge.
    Compact,
    /// Opens the store anew after its process was killed.
    Restart,
    /// Does nothing for a while.
    Rest,
    /// Counts all records of the store.
    Count,
}

impl Operation {
    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Operation::Put => "put",
            Operation::Read => "read",
            Operation::ReadMissing => "read_missing",
            Operation::Next => "next",
            Operation::Previous => "previous",
            Operation::Seek => "seek",
            Operation::Scan(_) => "scan",
            Operation::Delete => "delete",
            Operation::Insert => "insert",
            Operation::ReadModifyWrite => "read_modify_write",
            Operation::Transaction(_) => "transaction",
            Operation::Merge => "merge",
            Operation::Compact => "compact",
            Operation::Restart => "restart",
            Operation::Rest => "rest",
            Operation::Count => "count",
        }
    }

    /// Whether it needs a store that keeps its keys in order.
    pub fn is_ordered(self) -> bool {
        match self {
            Operation::Next
            | Operation::Previous
            | Operation::Seek
            | Operation::Scan(_)
            | Operation::Count => true,
            Operation::Put
            | Operation::Read
            | Operation::ReadMissing
            | Operation::Delete
            | Operation::Insert
            | Operation::ReadModifyWrite
            | Operation::Transaction(_)
            | Operation::Merge
            | Operation::Compact
            | Operation::Restart
            | Operation::Rest => false,
        }
    }

    /// Whether more of it is random than the record: a value, or the length of a scan.
    pub fn is_random(self) -> bool {
        match self {
            Operation::Put
            | Operation::Insert
            | Operation::ReadModifyWrite
            | Operation::Transaction(_)
            | Operation::Scan(ScanLength::UpTo(_)) => true,
            Operation::Read
            | Operation::ReadMissing
            | Operation::Next
            | Operation::Previous
            | Operation::Seek
            | Operation::Scan(ScanLength::Fixed(_))
            | Operation::Delete
            | Operation::Merge
            | Operation::Compact
            | Operation::Restart
            | Operation::Rest
            | Operation::Count => false,
        }
    }

    /// Whether it puts or deletes the record drawn.
    pub fn changes_drawn(self) -> bool {
        match self {
            Operation::Put
            | Operation::Delete
            | Operation::ReadModifyWrite
            | Operation::Merge
            | Operation::Transaction(_) => true,
            Operation::Read
            | Operation::ReadMissing
            | Operation::Next
            | Operation::Previous
            | Operation::Seek
            | Operation::Scan(_)
            | Operation::Insert
            | Operation::Compact
            | Operation::Restart
            | Operation::Rest
            | Operation::Count => false,
        }
    }

    /// Whether a phase in which none of these found anything measured nothing.
    pub fn must_find(self) -> bool {
        match self {
            Operation::Read
            | Operation::Next
            | Operation::Previous
            | Operation::Seek
            | Operation::Scan(_)
            | Operation::ReadModifyWrite
            | Operation::Transaction(_)
            | Operation::Count => true,
            Operation::Put
            | Operation::ReadMissing
            | Operation::Delete
            | Operation::Insert
            | Operation::Merge
            | Operation::Compact
            | Operation::Restart
            | Operation::Rest => false,
        }
    }
}

/// How many entries a scan takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ScanLength {
    /// Always as many.
    Fixed(u32),
    /// Uniform from one to this many.
    UpTo(u32),
}

/// Whose thread count a phase uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workers {
    /// `--writers`: phases that only write.
    Writers,
    /// `--threads`: reads and mixes.
    Threads,
}

/// How many operations a phase has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// The number of records.
    Records,
    /// Ten for each record.
    Tenfold,
    /// The number of reads.
    Reads,
    /// A thousandth of the records, at least a thousand: for writes that each wait for the disk.
    Synced,
    /// One.
    Once,
}

/// One phase.
#[derive(Clone, Copy, Debug)]
pub struct Workload {
    /// The name on the command line.
    pub name: &'static str,
    /// One line of help.
    pub about: &'static str,
    /// Operations with their parts of a hundred.
    pub mix: &'static [(Operation, u32)],
    /// How records are chosen unless the run says otherwise.
    pub distribution: Distribution,
    /// Whether the run's own distribution replaces `distribution`.
    pub distribution_free: bool,
    /// Whose thread count it uses.
    pub workers: Workers,
    /// How many operations it has.
    pub count: Count,
    /// Whether every write waits for the disk, whatever the store's durability.
    pub synced: bool,
    /// Whether one more thread puts records at the run's pace while the others work.
    pub paced_writer: bool,
}

/// What phases have in common.
const BASE: Workload = Workload {
    name: "",
    about: "",
    mix: &[],
    distribution: Distribution::Uniform,
    distribution_free: true,
    workers: Workers::Threads,
    count: Count::Reads,
    synced: false,
    paced_writer: false,
};

/// A phase that only writes.
const FILL: Workload = Workload {
    mix: &[(Operation::Put, 100)],
    workers: Workers::Writers,
    count: Count::Records,
    ..BASE
};

/// A phase of the RECIPE mix: new records and lookups, nothing else.
const RECIPE: Workload = BASE;

/// A phase of YCSB.
const YCSB: Workload = Workload {
    distribution: Distribution::Zipfian,
    ..BASE
};

/// All phases, in the order in which help lists them.
pub static WORKLOADS: &[Workload] = &[
    Workload {
        name: "fillseq",
        about: "put every record once, in key order",
        distribution: Distribution::Sequential,
        distribution_free: false,
        ..FILL
    },
    Workload {
        name: "fillrandom",
        about: "put --num records drawn at random",
        ..FILL
    },
    Workload {
        name: "overwrite",
        about: "as fillrandom, on a store that has the records",
        ..FILL
    },
    Workload {
        name: "fillsync",
        about: "put --num / 1000 records, at least 1000, at random, each batch durable at once",
        count: Count::Synced,
        synced: true,
        ..FILL
    },
    Workload {
        name: "deleterandom",
        about: "delete --num records drawn at random",
        mix: &[(Operation::Delete, 100)],
        ..FILL
    },
    Workload {
        name: "merge",
        about: "add one to counters drawn at random, ten times as often as there are records",
        mix: &[(Operation::Merge, 100)],
        count: Count::Tenfold,
        ..FILL
    },
    Workload {
        name: "compact",
        about: "merge all that the store can merge: stores that were filled alike are then alike",
        mix: &[(Operation::Compact, 100)],
        workers: Workers::Writers,
        count: Count::Once,
        distribution_free: false,
        ..BASE
    },
    Workload {
        name: "restart",
        about: "kill the store's process, open the store again, and count the records it has",
        mix: &[(Operation::Restart, 100)],
        count: Count::Once,
        distribution_free: false,
        ..BASE
    },
    Workload {
        name: "rest",
        about: "do nothing for --rest-seconds, so that what comes next finds a store at rest",
        mix: &[(Operation::Rest, 100)],
        workers: Workers::Writers,
        count: Count::Once,
        distribution_free: false,
        ..BASE
    },
    Workload {
        name: "count",
        about: "step over all records once; there must be as many as were put",
        mix: &[(Operation::Count, 100)],
        workers: Workers::Writers,
        count: Count::Once,
        distribution_free: false,
        ..BASE
    },
    Workload {
        name: "readrandom",
        about: "get records drawn at random",
        mix: &[(Operation::Read, 100)],
        ..BASE
    },
    Workload {
        name: "readmissing",
        about: "get keys that are absent but inside the range of those present",
        mix: &[(Operation::ReadMissing, 100)],
        ..BASE
    },
    Workload {
        name: "readseq",
        about: "step through the store in key order",
        mix: &[(Operation::Next, 100)],
        distribution: Distribution::Sequential,
        distribution_free: false,
        ..BASE
    },
    Workload {
        name: "readreverse",
        about: "step through the store against key order",
        mix: &[(Operation::Previous, 100)],
        distribution: Distribution::Sequential,
        distribution_free: false,
        ..BASE
    },
    Workload {
        name: "seekrandom",
        about: "position an iterator at random and take one entry",
        mix: &[(Operation::Seek, 100)],
        ..BASE
    },
    Workload {
        name: "scan50",
        about: "position an iterator at random and take 50 entries",
        mix: &[(Operation::Scan(ScanLength::Fixed(50)), 100)],
        ..BASE
    },
    Workload {
        name: "ycsb-load",
        about: "insert every record once, in random order",
        distribution: Distribution::Shuffled,
        distribution_free: false,
        ..FILL
    },
    Workload {
        name: "ycsb-a",
        about: "50 % read, 50 % update, zipfian",
        mix: &[(Operation::Read, 50), (Operation::Put, 50)],
        ..YCSB
    },
    Workload {
        name: "ycsb-b",
        about: "95 % read, 5 % update, zipfian",
        mix: &[(Operation::Read, 95), (Operation::Put, 5)],
        ..YCSB
    },
    Workload {
        name: "ycsb-c",
        about: "100 % read, zipfian",
        mix: &[(Operation::Read, 100)],
        ..YCSB
    },
    Workload {
        name: "ycsb-d",
        about: "95 % read, 5 % insert, latest",
        mix: &[(Operation::Read, 95), (Operation::Insert, 5)],
        distribution: Distribution::Latest,
        ..YCSB
    },
    Workload {
        name: "ycsb-e",
        about: "95 % scan of 1 to 100 entries, 5 % insert, zipfian",
        mix: &[
            (Operation::Scan(ScanLength::UpTo(100)), 95),
            (Operation::Insert, 5),
        ],
        ..YCSB
    },
    Workload {
        name: "ycsb-f",
        about: "50 % read, 50 % read-modify-write, zipfian",
        mix: &[(Operation::Read, 50), (Operation::ReadModifyWrite, 50)],
        ..YCSB
    },
    Workload {
        name: "ycsb-f-txn",
        about: "as ycsb-f, where each read-modify-write is a transaction",
        mix: &[(Operation::Read, 50), (Operation::Transaction(1), 50)],
        ..YCSB
    },
    Workload {
        name: "bank",
        about: "transactions that each read two records and write both",
        mix: &[(Operation::Transaction(2), 100)],
        ..BASE
    },
    Workload {
        name: "mixed",
        about: "get records drawn at random while one more thread puts --write-rate records/s",
        mix: &[(Operation::Read, 100)],
        paced_writer: true,
        ..BASE
    },
    Workload {
        name: "readwhilewriting",
        about: "the same, by the name that db_bench has for it",
        mix: &[(Operation::Read, 100)],
        paced_writer: true,
        ..BASE
    },
    Workload {
        name: "regions",
        about: "put --num records, a quarter into each of four regions with its own distribution",
        distribution: Distribution::Regions,
        distribution_free: false,
        ..FILL
    },
    Workload {
        name: "reinsert",
        about: "50 % delete, 50 % put, --num in all: records come and go",
        mix: &[(Operation::Delete, 50), (Operation::Put, 50)],
        ..FILL
    },
    Workload {
        name: "recipe-load",
        about: "insert every record once, in random order",
        distribution: Distribution::Shuffled,
        distribution_free: false,
        ..FILL
    },
    Workload {
        name: "recipe-a",
        about: "50 % read, 50 % insert, uniform",
        mix: &[(Operation::Read, 50), (Operation::Insert, 50)],
        ..RECIPE
    },
    Workload {
        name: "recipe-b",
        about: "95 % read, 5 % insert, uniform",
        mix: &[(Operation::Read, 95), (Operation::Insert, 5)],
        ..RECIPE
    },
    Workload {
        name: "recipe-c",
        about: "100 % read, uniform",
        mix: &[(Operation::Read, 100)],
        ..RECIPE
    },
];

/// Phases that are often run together, under one name.
pub static PRESETS: &[(&str, &[&str])] = &[
    (
        "full",
        &[
            "fillrandom",
            "readrandom",
            "readmissing",
            "scan50",
            "readseq",
            "ycsb-a",
            "ycsb-b",
            "ycsb-c",
            "ycsb-d",
            "ycsb-e",
            "ycsb-f",
            "fillsync",
        ],
    ),
    (
        "ycsb",
        &[
            "ycsb-load",
            "ycsb-a",
            "ycsb-b",
            "ycsb-c",
            "ycsb-d",
            "ycsb-e",
            "ycsb-f",
        ],
    ),
];

/// `names` with the phases of a preset in place of its name.
pub fn unfolded(names: &[String]) -> Vec<String> {
    let phases = |name: &String| match PRESETS.iter().find(|(preset, _)| preset == name) {
        Some((_, phases)) => phases.iter().copied().map(str::to_owned).collect(),
        None => vec![name.clone()],
    };
    names.iter().flat_map(phases).collect()
}

impl Workload {
    /// The phase of that name.
    pub fn named(name: &str) -> Option<&'static Workload> {
        WORKLOADS.iter().find(|workload| workload.name == name)
    }

    /// The distribution of a run whose own is `wanted`.
    pub fn distribution(&self, wanted: Option<Distribution>) -> Distribution {
        match wanted {
            Some(wanted) if self.distribution_free => wanted,
            _ => self.distribution,
        }
    }

    /// How many operations a run over `num` records with `reads` reads has.
    pub fn operations(&self, num: u64, reads: u64) -> u64 {
        match self.count {
            Count::Records => num,
            Count::Tenfold => num.saturating_mul(10),
            Count::Reads => reads,
            Count::Once => 1,
            Count::Synced => (num / 1000).max(1000).min(num),
        }
    }

    /// What the phase needs that a target with these abilities cannot do; `None` if it can run.
    pub fn lacks(&self, abilities: &TargetCapabilities) -> Option<&'static str> {
        let ordered = self.mix.iter().any(|(operation, _)| operation.is_ordered());
        if ordered && !abilities.ordered {
            return Some("it keeps no order of keys");
        }
        if self.is_walk_back() && !abilities.backward {
            return Some("it cannot scan in reverse order");
        }
        if self.has_transactions() && !abilities.transactions {
            return Some("it has no transactions");
        }
        if self.has_merges() && !abilities.merges {
            return Some("its records are no counters");
        }
        if self.is_restart() && !abilities.persistent {
            return Some("what it holds is gone with its process");
        }
        if self.is_restart() && !abilities.ordered {
            return Some("it keeps no order of keys, in which what is left would be counted");
        }
        (self.synced && !abilities.synced_writes)
            .then_some("its writes are not on storage when they return")
    }

    /// Whether the phase needs a process of its own, because the one before it is killed.
    pub fn is_restart(&self) -> bool {
        self.mix == [(Operation::Restart, 100)]
    }

    /// Whether the phase waits and does nothing else.
    pub fn is_rest(&self) -> bool {
        self.mix == [(Operation::Rest, 100)]
    }

    /// Whether the phase counts the records and does nothing else.
    pub fn is_count(&self) -> bool {
        self.mix == [(Operation::Count, 100)]
    }

    /// Whether the phase steps through the store, which it then does and nothing else.
    pub fn is_walk(&self) -> bool {
        self.mix
            .iter()
            .any(|(operation, _)| matches!(operation, Operation::Next | Operation::Previous))
    }

    /// Whether it steps backwards.
    pub fn is_walk_back(&self) -> bool {
        self.mix.contains(&(Operation::Previous, 100))
    }

    /// Whether some of its operations are transactions.
    pub fn has_transactions(&self) -> bool {
        self.mix
            .iter()
            .any(|(operation, _)| matches!(operation, Operation::Transaction(_)))
    }

    /// Whether some of its operations are merges.
    pub fn has_merges(&self) -> bool {
        self.mix
            .iter()
            .any(|(operation, _)| *operation == Operation::Merge)
    }

    /// Records that each operation of the phase draws. Where it is more than one, the phase does
    /// nothing else.
    pub fn records_drawn(&self) -> u64 {
        match self.mix {
            [(Operation::Transaction(records), _)] => u64::from(*records),
            _ => 1,
        }
    }

    /// Whether the phase reads keys that no record has, which it then does and nothing else.
    pub fn reads_only_missing(&self) -> bool {
        self.mix
            .iter()
            .any(|(operation, _)| *operation == Operation::ReadMissing)
    }

    /// Which part of the mix a draw from `0..100` is.
    #[inline]
    pub fn choose(&self, percentile: u64) -> usize {
        let mut left = percentile;
        for (at, (_, part)) in self.mix.iter().enumerate() {
            if left < u64::from(*part) {
                return at;
            }
            left -= u64::from(*part);
        }
        unreachable!("the parts of a mix add up to a hundred")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mix_adds_up_to_a_hundred() {
        for workload in WORKLOADS {
            let total: u32 = workload.mix.iter().map(|(_, part)| part).sum();
            assert_eq!(total, 100, "{}", workload.name);
        }
    }

    #[test]
    fn what_draws_otherwise_than_others_stands_alone() {
        for workload in WORKLOADS {
            let is_alone = workload.mix.len() == 1;
            let draws_several = |op: &(Operation, u32)| match op.0 {
                Operation::Transaction(records) => records > 1,
                _ => false,
            };
            let must_be = workload.is_walk()
                || workload.reads_only_missing()
                || workload.mix.iter().any(draws_several);
            assert!(is_alone || !must_be, "{}", workload.name);
        }
    }

    #[test]
    fn a_phase_says_what_a_target_lacks() {
        let hash = TargetCapabilities {
            ordered: false,
            backward: false,
            synced_writes: false,
            persistent: false,
            files: false,
            transactions: false,
            merges: false,
        };
        let lacks = |name| Workload::named(name).unwrap().lacks(&hash);
        assert!(lacks("ycsb-e").unwrap().contains("order"));
        assert!(lacks("fillsync").unwrap().contains("storage"));
        assert!(lacks("bank").unwrap().contains("transactions"));
        assert!(lacks("merge").unwrap().contains("counters"));
        assert!(lacks("restart").unwrap().contains("gone"));
        assert!(lacks("count").unwrap().contains("order"));
        let forward = TargetCapabilities {
            ordered: true,
            ..hash
        };
        let back = Workload::named("readreverse").unwrap();
        assert!(back.lacks(&forward).unwrap().contains("reverse"));
        let ahead = Workload::named("readseq").unwrap();
        assert_eq!(ahead.lacks(&forward), None);
        let kept = TargetCapabilities {
            persistent: true,
            ..hash
        };
        let restart = Workload::named("restart").unwrap();
        assert!(restart.lacks(&kept).unwrap().contains("counted"));
        assert_eq!(lacks("ycsb-a"), None);
    }

    #[test]
    fn names_are_unique_and_found() {
        for workload in WORKLOADS {
            let found = Workload::named(workload.name).unwrap();
            assert!(std::ptr::eq(found, workload), "{}", workload.name);
        }
        assert!(Workload::named("fillrandomly").is_none());
    }

    #[test]
    fn presets_unfold_to_phases() {
        for (preset, phases) in PRESETS {
            assert!(Workload::named(preset).is_none(), "{preset}");
            assert!(phases.iter().all(|phase| Workload::named(phase).is_some()));
        }
        let names = ["ycsb-load", "ycsb", "other"].map(str::to_owned);
        let unfolded = unfolded(&names);
        assert_eq!((unfolded.len(), &*unfolded[1]), (9, "ycsb-load"));
        assert_eq!(unfolded[8], "other");
    }

    #[test]
    fn a_mix_gives_each_operation_its_part() {
        let b = Workload::named("ycsb-b").unwrap();
        let chosen = |p| b.mix[b.choose(p)].0;
        let reads = (0..100).filter(|p| chosen(*p) == Operation::Read).count();
        assert_eq!(reads, 95);
        assert_eq!(chosen(99), Operation::Put);
    }

    #[test]
    fn only_free_phases_take_the_run_s_distribution() {
        let wanted = Some(Distribution::Zipfian);
        let of = |name| Workload::named(name).unwrap().distribution(wanted);
        assert_eq!(of("overwrite"), Distribution::Zipfian);
        assert_eq!(of("fillseq"), Distribution::Sequential);
        assert_eq!(of("ycsb-load"), Distribution::Shuffled);
    }
}
