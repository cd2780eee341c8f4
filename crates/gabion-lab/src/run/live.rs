//! Tracks which records a store holds, so that its size can be compared with theirs.
//!
//! Nothing of it is kept while a phase is measured. Afterwards the phase's requests are drawn once
//! more from its own random numbers, which gives the records that it put and deleted. Of threads
//! that put and delete the same record, the last thread is believed.

use super::outcome::Outcome;
use super::requests::Requests;
use super::{Phase, Runner};
use crate::workload::generators::part_of;
use crate::workload::keys::KeyId;
use crate::workload::{Distribution, Operation};

/// One bit for each record of a fill, and a count of those that workloads inserted besides.
#[derive(Debug)]
pub(super) struct Live {
    bits: Vec<u64>,
    inserted: u64,
    /// Inserted records were deleted: nobody knows how many are left.
    is_lost: bool,
}

impl Live {
    pub(super) fn new(num: u64) -> Live {
        let words = usize::try_from(num.div_ceil(64)).unwrap_or(usize::MAX);
        Live {
            bits: vec![0; words],
            inserted: 0,
            is_lost: false,
        }
    }

    fn word(&mut self, id: KeyId) -> Option<(&mut u64, u64)> {
        let word = self.bits.get_mut(usize::try_from(id.number / 64).ok()?)?;
        Some((word, 1 << (id.number % 64)))
    }

    /// Those of a fill's records that are here and not in `others`, in key order.
    pub(super) fn records_missing_in(&self, others: &Live) -> impl Iterator<Item = KeyId> {
        let words = self.bits.iter().zip(&others.bits).zip(0u64..);
        words.flat_map(|((ours, theirs), word)| {
            let missing = ours & !theirs;
            let bits = (0..64).filter(move |bit| missing >> bit & 1 == 1);
            bits.map(move |bit| KeyId {
                number: word * 64 + bit,
                generation: 0,
            })
        })
    }

    /// The record was put.
    pub(super) fn put(&mut self, id: KeyId) {
        if id.generation > 0 {
            return;
        }
        if let Some((word, bit)) = self.word(id) {
            *word |= bit;
        }
    }

    /// Records that were not there before were put.
    pub(super) fn insert(&mut self, records: u64) {
        self.inserted += records;
    }

    /// The record was deleted.
    fn delete(&mut self, id: KeyId) {
        if id.generation > 0 {
            self.is_lost = true;
            return;
        }
        if let Some((word, bit)) = self.word(id) {
            *word &= !bit;
        }
    }

    /// How many records there are, unless the count was lost.
    pub(super) fn count(&self) -> Option<u64> {
        if self.is_lost {
            return None;
        }
        let old: u64 = self
            .bits
            .iter()
            .map(|word| u64::from(word.count_ones()))
            .sum();
        Some(old + self.inserted)
    }
}

impl Runner<'_> {
    /// Notes which records a phase put and deleted.
    pub(super) fn note_changes(&self, phase: &Phase<'_>, outcome: &Outcome) {
        let Some(mut live) = self.live() else {
            return;
        };
        live.insert(outcome.inserted);
        let changes = |(operation, _): &(Operation, u32)| operation.changes_drawn();
        if phase.workload.mix.iter().any(changes) {
            for (thread, done) in outcome.done_by_thread.iter().enumerate() {
                let drawn = done * phase.workload.records_drawn();
                self.redraw(phase, thread, drawn, |_, operation, id| match operation {
                    Operation::Delete => live.delete(id),
                    operation if operation.changes_drawn() => live.put(id),
                    _ => {}
                });
            }
        }
        let mut paced = self.paced_requests(phase);
        for _ in 0..outcome.paced {
            let at = self.next_of(&mut paced);
            live.put(paced.id(at));
        }
    }

    /// Draws the first `count` requests of one thread of a phase again, and hands on each with its
    /// number and its operation.
    pub(super) fn redraw(
        &self,
        phase: &Phase<'_>,
        thread: usize,
        count: u64,
        mut each: impl FnMut(u64, Operation, KeyId),
    ) {
        let mut requests = self.requests(phase, thread);
        for number in 0..count {
            let at = self.next_of(&mut requests);
            let operation = phase.workload.mix[requests.part(at)].0;
            each(number, operation, requests.id(at));
        }
    }

    fn next_of(&self, requests: &mut Requests<'_>) -> usize {
        if requests.are_spent() {
            requests.draw_records(self.items_settled());
        }
        requests.take()
    }

    /// The requests of one thread of a phase.
    pub(super) fn requests<'r>(&'r self, phase: &Phase<'r>, thread: usize) -> Requests<'r> {
        let (first, end) = part_of(thread as u64, phase.threads as u64, phase.total);
        let place = (thread, phase.threads, end - first);
        Requests::of_thread(self, phase, phase.distribution, place)
    }

    /// The requests of the thread that puts at a pace beside the others of a phase.
    pub(super) fn paced_requests<'r>(&'r self, phase: &Phase<'r>) -> Requests<'r> {
        let place = (phase.threads, phase.threads + 1, u64::MAX);
        Requests::of_thread(self, phase, Distribution::Uniform, place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_count_once_until_they_are_deleted() {
        let mut live = Live::new(130);
        let id = |number| KeyId {
            number,
            generation: 0,
        };
        for number in [0, 63, 64, 129, 129] {
            live.put(id(number));
        }
        live.insert(1);
        assert_eq!(live.count(), Some(5));
        let mut others = Live::new(130);
        others.put(id(63));
        others.put(id(100));
        let numbers: Vec<u64> = live
            .records_missing_in(&others)
            .map(|id| id.number)
            .collect();
        assert_eq!(numbers, [0, 64, 129]);
        live.delete(id(64));
        live.delete(id(65));
        assert_eq!(live.count(), Some(4));
        live.delete(KeyId {
            number: 3,
            generation: 1,
        });
        assert_eq!(live.count(), None);
    }
}
