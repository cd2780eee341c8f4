//! The phases as data: which operations in which parts, how they choose their records, who runs
//! them and how many there are. The runner knows operations, never phases.

use super::generators::Distribution;

/// One kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Operation {
    /// Writes the record drawn.
    Put,
    /// Reads the record drawn.
    Read,
    /// Reads a key that is absent but inside the range of those present.
    ReadMissing,
    /// Steps through the store in key order; one step is one operation.
    Next,
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
}

impl Operation {
    /// The name in reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Operation::Put => "put",
            Operation::Read => "read",
            Operation::ReadMissing => "read_missing",
            Operation::Next => "next",
            Operation::Seek => "seek",
            Operation::Scan(_) => "scan",
            Operation::Delete => "delete",
            Operation::Insert => "insert",
            Operation::ReadModifyWrite => "read_modify_write",
        }
    }

    /// Whether a phase in which none of these found anything measured nothing.
    pub(crate) fn must_find(self) -> bool {
        match self {
            Operation::Read
            | Operation::Next
            | Operation::Seek
            | Operation::Scan(_)
            | Operation::ReadModifyWrite => true,
            Operation::Put | Operation::ReadMissing | Operation::Delete | Operation::Insert => {
                false
            }
        }
    }
}

/// How many entries a scan takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum ScanLength {
    /// Always as many.
    Fixed(u32),
    /// Uniform from one to this many.
    UpTo(u32),
}

/// Whose thread count a phase uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Workers {
    /// `--writers`: phases that only write.
    Writers,
    /// `--threads`: reads and mixes.
    Threads,
}

/// How many operations a phase has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Count {
    /// The number of records.
    Records,
    /// The number of reads.
    Reads,
    /// A thousandth of the records, at least a thousand: for writes that each wait for the disk.
    Synced,
}

/// One phase.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Workload {
    /// The name on the command line.
    pub(crate) name: &'static str,
    /// One line of help.
    pub(crate) about: &'static str,
    /// Operations with their parts of a hundred.
    pub(crate) mix: &'static [(Operation, u32)],
    /// How records are chosen unless the run says otherwise.
    pub(crate) distribution: Distribution,
    /// Whether the run's own distribution replaces `distribution`.
    pub(crate) distribution_free: bool,
    /// Whose thread count it uses.
    pub(crate) workers: Workers,
    /// How many operations it has.
    pub(crate) count: Count,
    /// Whether every write waits for the disk, whatever the store's durability.
    pub(crate) synced: bool,
    /// Whether one more thread puts records at the run's pace while the others work.
    pub(crate) paced_writer: bool,
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

/// A phase of YCSB.
const YCSB: Workload = Workload {
    distribution: Distribution::Zipfian,
    ..BASE
};

/// All phases, in the order in which help lists them.
pub(crate) static WORKLOADS: &[Workload] = &[
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
        about: "put --num / 1000 records drawn at random, each durable before the next",
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
        name: "mixed",
        about: "get records drawn at random while one more thread puts --write-rate records/s",
        mix: &[(Operation::Read, 100)],
        paced_writer: true,
        ..BASE
    },
];

impl Workload {
    /// The phase of that name.
    pub(crate) fn named(name: &str) -> Option<&'static Workload> {
        WORKLOADS.iter().find(|workload| workload.name == name)
    }

    /// The distribution of a run whose own is `wanted`.
    pub(crate) fn distribution(&self, wanted: Option<Distribution>) -> Distribution {
        match wanted {
            Some(wanted) if self.distribution_free => wanted,
            _ => self.distribution,
        }
    }

    /// How many operations a run over `num` records with `reads` reads has.
    pub(crate) fn operations(&self, num: u64, reads: u64) -> u64 {
        match self.count {
            Count::Records => num,
            Count::Reads => reads,
            Count::Synced => (num / 1000).max(1000).min(num),
        }
    }

    /// Which part of the mix a draw from `0..100` is.
    #[inline]
    pub(crate) fn choose(&self, percentile: u64) -> usize {
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
    fn names_are_unique_and_found() {
        for workload in WORKLOADS {
            let found = Workload::named(workload.name).unwrap();
            assert!(std::ptr::eq(found, workload), "{}", workload.name);
        }
        assert!(Workload::named("fillrandomly").is_none());
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
