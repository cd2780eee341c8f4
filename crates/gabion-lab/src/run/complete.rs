//! Completes a fill that its time limit ended, so that the phases after it find the same records in
//! every store.
//!
//! The draws that were left are made again from the fill's own random numbers; they give the
//! records that it would have put. Those that are missing are put in key order, many at a time,
//! which every store does quickly, and nothing of it is measured. A store that was completed has
//! the same records as one whose fill came to its end, but fewer of their old versions.

use super::live::Live;
use super::outcome::Outcome;
use super::{Phase, Runner};
use crate::Error;
use crate::target::Batch;
use crate::workload::generators::part_of;
use crate::workload::{Operation, Rng};

/// Records that are put at once.
const BATCH: usize = 1000;

impl Runner<'_> {
    /// Puts the records that `phase`, a fill that ended early, did not come to. Returns how many
    /// those were; `None` if it was no such fill.
    pub(super) fn complete(
        &self,
        phase: &Phase<'_>,
        outcome: &Outcome,
    ) -> Result<Option<u64>, Error> {
        let workload = phase.workload;
        let is_fill = workload.mix == [(Operation::Put, 100)] && !workload.synced;
        let Some(mut live) = self.live().filter(|_| is_fill && outcome.is_capped) else {
            return Ok(None);
        };
        let mut wanted = Live::new(self.settings.num);
        for (thread, done) in outcome.done_by_thread.iter().enumerate() {
            let (first, end) = part_of(thread as u64, phase.threads as u64, phase.total);
            self.redraw(phase, thread, end - first, |number, _, id| {
                if number >= *done {
                    wanted.put(id);
                }
            });
        }
        self.put_missing(&mut live, &wanted).map(Some)
    }

    /// Puts what is wanted and not there, in key order.
    fn put_missing(&self, live: &mut Live, wanted: &Live) -> Result<u64, Error> {
        let mut session = self.store.session()?;
        let mut rng = Rng::new(self.settings.seed, u64::MAX - 1);
        let mut key = self.keys.buffer(1);
        let mut batch = Batch::default();
        let missing: Vec<_> = wanted.records_missing_in(live).collect();
        for id in &missing {
            self.keys.write(*id, &mut key);
            batch.put(&key, self.values.value(rng.next_u64()));
            live.put(*id);
            if batch.len() == BATCH {
                session.write(&batch)?;
                batch.clear();
            }
        }
        if !batch.is_empty() {
            session.write(&batch)?;
        }
        Ok(missing.len() as u64)
    }
}
