//! The combined outcome of the threads of a phase.

use std::collections::BTreeMap;

use super::worker::WorkerResult;
use crate::Error;
use crate::measure::Latencies;
use crate::result::{KeyBorders, OperationLatency, TimelinePoint};
use crate::text::counted;
use crate::workload::{Operation, Workload};

/// What all threads of a phase did, and in what time.
pub(super) struct Outcome {
    pub(super) operations: u64,
    pub(super) found: u64,
    /// Transactions that were begun again.
    pub(super) conflicts: u64,
    pub(super) bytes_user: u64,
    pub(super) seconds: f64,
    pub(super) latencies: Latencies,
    pub(super) by_operation: BTreeMap<String, OperationLatency>,
    pub(super) throughput: Vec<TimelinePoint>,
    pub(super) borders: Vec<KeyBorders>,
    /// The phase was ended by its time limit.
    pub(super) is_capped: bool,
    pub(super) is_sampled: bool,
    /// Turns in which the phase was done; one if it was not cut.
    pub(super) turns: u64,
    /// Operations of each thread.
    pub(super) done_by_thread: Vec<u64>,
    /// Records that the paced writer put.
    pub(super) paced: u64,
    /// Records that were not there before and were put.
    pub(super) inserted: u64,
}

/// Fails when the phase did not do what its figures would claim.
pub(super) fn check(workload: &Workload, wanted: u64, outcome: &Outcome) -> Result<(), Error> {
    let name = workload.name;
    if outcome.operations != wanted && !outcome.is_capped {
        return Err(Error::Meaningless(format!(
            "{name} did only {} of {}, so the figures would mean nothing",
            outcome.operations,
            counted(wanted, "operation", "operations")
        )));
    }
    if workload.reads_only_missing() && outcome.found > 0 {
        return Err(Error::Meaningless(format!(
            "{name} found {} never written; the store holds other data",
            counted(outcome.found, "key that is", "keys that are")
        )));
    }
    let reads = workload.mix.iter().any(|(op, _)| op.must_find());
    if reads && outcome.operations > 0 && outcome.found == 0 {
        return Err(Error::Meaningless(format!(
            "{name} found no record at all; run a fill with the same --num and --key-size first"
        )));
    }
    Ok(())
}

impl Outcome {
    pub(super) fn gather(
        workload: &Workload,
        done: &[WorkerResult],
        paced: Option<&WorkerResult>,
        seconds: f64,
    ) -> Outcome {
        let all = || done.iter().chain(paced);
        let mut outcome = Outcome {
            operations: done.iter().map(|done| done.operations).sum(),
            found: done.iter().map(|done| done.found).sum(),
            conflicts: done.iter().map(|done| done.conflicts).sum(),
            bytes_user: all().map(|done| done.bytes_user).sum(),
            seconds,
            latencies: Latencies::new(),
            by_operation: BTreeMap::new(),
            throughput: Vec::new(),
            borders: Vec::new(),
            is_capped: false,
            is_sampled: done.iter().any(|done| done.is_sampled),
            turns: 1,
            done_by_thread: done.iter().map(|done| done.operations).collect(),
            paced: paced.map_or(0, |paced| paced.calls[0]),
            inserted: 0,
        };
        for (at, (operation, _)) in workload.mix.iter().enumerate() {
            let mut latencies = Latencies::new();
            for done in done {
                latencies.merge(&done.latencies[at]);
            }
            outcome.latencies.merge(&latencies);
            let calls = done.iter().map(|done| done.calls[at]).sum();
            outcome.insert(operation.name(), calls, &latencies);
            if *operation == Operation::Insert {
                outcome.inserted = calls;
            }
        }
        if let Some(paced) = paced {
            outcome.insert("paced_put", paced.calls[0], &paced.latencies[0]);
        }
        outcome
    }

    fn insert(&mut self, name: &str, calls: u64, latencies: &Latencies) {
        self.by_operation.insert(
            name.to_owned(),
            OperationLatency {
                calls,
                latency_us: latencies.percentiles(),
            },
        );
    }
}
