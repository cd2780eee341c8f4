//! The requests of a thread: operations, records and their keys, drawn in blocks.
//!
//! Drawing a block of requests at once costs a fraction of drawing each by itself, since nothing in
//! one depends on the others, and it keeps the lab's own work out of the latencies: a block is
//! drawn before the clock of its first call starts. Drawn again, the requests of a thread are the
//! same: which operations and records they are depends on nothing that happens meanwhile, but for
//! *latest*, where they depend on how many records were inserted.

use super::{Phase, Runner};
use crate::workload::generators::{Generator, part_of};
use crate::workload::keys::{KeyId, KeyShape};
use crate::workload::{Distribution, Rng, Workload, mix};

/// Requests that are drawn at once.
pub(super) const BLOCK: usize = 32;

/// The requests of one thread.
#[derive(Debug)]
pub(super) struct Requests<'r> {
    workload: &'r Workload,
    generator: Generator,
    /// For the operations.
    parts_rng: Rng,
    /// For what is chosen besides record and operation.
    rng: Rng,
    shape: KeyShape,
    /// How many are drawn at once: one where a draw depends on what was written just before.
    block: usize,
    /// The keys are those that no record has.
    are_absent: bool,
    /// The requests have values, or scans of random lengths.
    have_random: bool,
    next: usize,
    /// Parts of the mix.
    parts: [usize; BLOCK],
    ids: [KeyId; BLOCK],
    /// Random numbers that choose values and lengths of scans.
    values: [u64; BLOCK],
    /// Keys of all requests, one after the other.
    keys: Vec<u8>,
}

impl<'r> Requests<'r> {
    /// Requests of `workload` for records that `generator` draws.
    fn new(
        shape: KeyShape,
        workload: &'r Workload,
        distribution: Distribution,
        mut generator: Generator,
    ) -> Requests<'r> {
        let block = match distribution {
            Distribution::Latest => 1,
            _ => BLOCK,
        };
        Requests {
            workload,
            parts_rng: generator.split(),
            rng: generator.split(),
            generator,
            shape,
            block,
            are_absent: workload.reads_only_missing(),
            have_random: workload.paced_writer
                || workload
                    .mix
                    .iter()
                    .any(|(operation, _)| operation.is_random()),
            next: block,
            parts: [0; BLOCK],
            ids: [KeyId::default(); BLOCK],
            values: [0; BLOCK],
            keys: shape.buffer(BLOCK),
        }
    }

    /// Requests of one thread of a phase of `run`: number `thread` of `threads`, which will make
    /// `expected` of them.
    pub(super) fn of_thread(
        run: &Runner<'_>,
        phase: &Phase<'r>,
        distribution: Distribution,
        (thread, threads, expected): (usize, usize, u64),
    ) -> Requests<'r> {
        let settings = &run.settings;
        let (first, _) = part_of(thread as u64, threads as u64, settings.num);
        let generator = Generator::new(
            distribution,
            &run.items,
            first,
            expected,
            settings.seed,
            stream_of(phase.stream, thread),
        );
        Requests::new(run.keys, phase.workload, distribution, generator)
    }

    /// Whether the next request is yet to be drawn.
    #[inline]
    pub(super) fn are_spent(&self) -> bool {
        self.next == self.block
    }

    /// Draws the next block. `items_written` is the number of items that the store holds.
    #[inline]
    pub(super) fn draw(&mut self, items_written: u64) {
        self.draw_records(items_written);
        let ids = &self.ids[..self.block];
        self.shape.write_all(ids, self.are_absent, &mut self.keys);
        if self.have_random {
            for value in &mut self.values[..self.block] {
                *value = self.rng.next_u64();
            }
        }
    }

    /// Draws operations and records of the next block, without keys and values.
    #[inline]
    pub(super) fn draw_records(&mut self, items_written: u64) {
        self.next = 0;
        let ids = &mut self.ids[..self.block];
        self.generator.fill(ids, items_written);
        if self.workload.mix.len() > 1 {
            for part in &mut self.parts[..self.block] {
                *part = self.workload.choose(self.parts_rng.below(100));
            }
        }
    }

    /// The next request, which must have been drawn: a number below [`BLOCK`].
    #[inline]
    pub(super) fn take(&mut self) -> usize {
        self.next += 1;
        self.next - 1
    }

    /// Which part of the mix a request is.
    #[inline]
    pub(super) fn part(&self, at: usize) -> usize {
        self.parts[at]
    }

    /// The record that a request is about.
    #[inline]
    pub(super) fn id(&self, at: usize) -> KeyId {
        self.ids[at]
    }

    /// The key of a request.
    #[inline]
    pub(super) fn key(&self, at: usize) -> &[u8] {
        let bytes = self.shape.bytes();
        &self.keys[at * bytes..][..bytes]
    }

    /// Gives a request another record.
    #[inline]
    pub(super) fn replace(&mut self, at: usize, id: KeyId) {
        let bytes = self.shape.bytes();
        self.ids[at] = id;
        self.shape.write(id, &mut self.keys[at * bytes..][..bytes]);
    }

    /// The random number that chooses a request's value, or the length of its scan.
    #[inline]
    pub(super) fn random(&self, at: usize) -> u64 {
        self.values[at]
    }
}

/// The stream of random numbers of one thread of one phase: two phases do not draw alike.
fn stream_of(phase: &str, thread: usize) -> u64 {
    let name = phase
        .bytes()
        .fold(0u64, |hash, byte| mix(hash ^ u64::from(byte)));
    name.wrapping_add(thread as u64)
}
