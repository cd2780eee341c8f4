//! Completes a fill that its time limit ended, so that the phases after it find the same records in
//! every store.
//!
//! The draws that were left are made again from the fill's own random numbers; they give the
//! records that it would have put. Those that are missing are put in key order, many at a time,
//! which every store does quickly, and nothing of it is measured. A store that was completed has
//! the same records as one whose fill came to its end, but fewer of their old versions.

use super::live::Live;
use super::requests::Requests;
use super::{Outcome, Runner};
use crate::Error;
use crate::target::Batch;
use crate::workload::generators::part_of;
use crate::workload::{Operation, Rng, Workload};

/// Records that are put at once.
const BATCH: usize = 1000;

impl Runner<'_> {
    /// Puts the records that `workload`, a fill that ended early, did not come to. Returns how many
    /// those were; `None` if it was no such fill.
    pub(super) fn complete(
        &self,
        workload: &Workload,
        outcome: &Outcome,
    ) -> Result<Option<u64>, Error> {
        let is_fill = workload.mix == [(Operation::Put, 100)] && !workload.synced;
        let Some(live) = self.live.as_ref().filter(|_| is_fill && outcome.is_capped) else {
            return Ok(None);
        };
        let wanted = Live::new(self.settings.num);
        let total = workload.operations(self.settings.num, self.settings.reads);
        let threads = outcome.done_by_thread.len();
        for (thread, done) in outcome.done_by_thread.iter().enumerate() {
            let (first, end) = part_of(thread as u64, threads as u64, total);
            let mut requests = Requests::of_thread(
                self,
                workload,
                workload.distribution(self.settings.distribution),
                workload.name,
                (thread, threads, end - first),
            );
            for draw in 0..end - first {
                if requests.are_spent() {
                    requests.draw(self.settings.num);
                }
                let at = requests.take();
                if draw >= *done {
                    wanted.put(requests.id(at));
                }
            }
        }
        self.put_missing(live, &wanted).map(Some)
    }

    /// Puts what is wanted and not there, in key order.
    fn put_missing(&self, live: &Live, wanted: &Live) -> Result<u64, Error> {
        let mut session = self.store.session()?;
        let mut rng = Rng::new(self.settings.seed, u64::MAX - 1);
        let mut key = self.keys.buffer(1);
        let mut batch = Batch::default();
        let mut count = 0;
        for id in wanted.records().filter(|id| !live.has(*id)) {
            self.keys.write(id, &mut key);
            batch.put(&key, self.values.draw(&mut rng));
            live.put(id);
            count += 1;
            if batch.len() == BATCH {
                session.write(&batch)?;
                batch.clear();
            }
        }
        if !batch.is_empty() {
            session.write(&batch)?;
        }
        Ok(count)
    }
}
