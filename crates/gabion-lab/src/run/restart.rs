//! The cost of a restart: opens a store that a killed process left.
//!
//! The opening alone is timed. Then all records are counted, unmeasured, and must be as many as the
//! phases before had left.

use std::time::Duration;

use super::count::count;
use super::outcome::Outcome;
use super::worker::WorkerResult;
use super::{Marks, Runner};
use crate::Error;
use crate::measure::{Latencies, ProcessUse};
use crate::result::PhaseResult;
use crate::target::Counters;
use crate::text::counted;
use crate::workload::Workload;

impl Runner<'_> {
    /// The result of the phase `workload`, which restarts the store: it took `opened` to open it in
    /// a process that was as `before`. The process before it left so many records, and so many
    /// bytes in its log, where that is known.
    ///
    /// # Errors
    /// [`Error::Meaningless`] if the store does not hold these records, or what the store says.
    pub fn restarted(
        &self,
        workload: &Workload,
        opened: Duration,
        before: &ProcessUse,
        (records, log_bytes): (Option<u64>, Option<u64>),
    ) -> Result<PhaseResult, Error> {
        let before = Marks {
            counters: Counters::default(),
            process: *before,
            drive_bytes: None,
        };
        let after = self.marks()?;
        let found = count(&mut *self.store.session()?, None)?;
        if let Some(records) = records.filter(|records| *records != found) {
            return Err(Error::Meaningless(format!(
                "the store had {} before the restart and has {found} after it",
                counted(records, "record", "records")
            )));
        }
        let mut latencies = Latencies::new();
        latencies.record(opened);
        let done = WorkerResult {
            operations: 1,
            found,
            conflicts: 0,
            bytes_user: 0,
            calls: vec![1],
            latencies: vec![latencies],
            is_sampled: false,
        };
        let mut outcome = Outcome::gather(workload, &[done], None, opened.as_secs_f64());
        outcome.throughput = Vec::new();
        let mut result = self.result(workload, &outcome, 0.0, (&before, &after))?;
        result.records_live = Some(found);
        result.restart_log_bytes = log_bytes;
        Ok(result)
    }
}
