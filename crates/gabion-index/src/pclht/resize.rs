//! Growth: a new table is built while readers use the old one, by all threads that want to write.
//!
//! Both tables are in the order of the first bits of hashes, so a *unit* of the smaller one's
//! buckets becomes a unit of the other's, and units do not touch each other: threads take ranges of
//! units and need no locks. Each thread makes its own part durable by a fence.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use gabion_media::pmem::POff;

use super::ClhtTable;
use super::form::Form;
use super::table::{TABLE_ALIGN, Table, damaged};
use crate::line::{Line, LineArray, LineImage};
use crate::lock::Backoff;
use crate::{Error, Result};

/// Bits by which a table grows: four times its size, the paper's factor.
const GROWTH_BITS: u32 = 2;

/// Units that a thread takes at once.
const UNITS: u64 = 64;

/// A table to be built, and how far it is.
#[derive(Debug)]
pub(super) struct ResizeJob<F> {
    from: Table<F>,
    to: Table<F>,
    /// Number of units.
    count: u64,
    /// The next unit that nobody has taken.
    next: AtomicU64,
    /// Units that are durable.
    done: AtomicU64,
    /// Spares given out.
    spares: AtomicU64,
    /// Whether the spares did not suffice.
    is_short: AtomicBool,
    /// Whether a chain of `from` is damaged.
    is_damaged: AtomicBool,
}

impl<F: Form> ResizeJob<F> {
    fn new(from: Table<F>, to: Table<F>) -> ResizeJob<F> {
        ResizeJob {
            from,
            to,
            count: 1 << from.bits().min(to.bits()),
            next: AtomicU64::new(0),
            done: AtomicU64::new(0),
            spares: AtomicU64::new(0),
            is_short: AtomicBool::new(false),
            is_damaged: AtomicBool::new(false),
        }
    }

    fn take_spare(&self) -> Option<POff<Line>> {
        // ORDER: Relaxed: the number is unique; whether spares sufficed is read after `done`.
        let number = self.spares.fetch_add(1, Ordering::Relaxed);
        if number < self.to.spare_count() {
            return Some(self.to.spare(number));
        }
        self.is_short.store(true, Ordering::Relaxed);
        None
    }
}

/// Chains in the making: the buckets of a unit first, then spares.
#[derive(Default)]
struct Chains {
    lines: Vec<LineImage>,
    /// The last line of each bucket's chain with an entry, or the first.
    tails: Vec<usize>,
    /// Where the spares will be.
    spares: Vec<POff<Line>>,
}

impl Chains {
    fn begin(&mut self, buckets: usize, lines_of_bucket: usize) {
        self.lines.clear();
        self.lines
            .resize(buckets * lines_of_bucket, LineImage::default());
        self.tails.clear();
        self.tails
            .extend((0..buckets).map(|bucket| bucket * lines_of_bucket));
        self.spares.clear();
    }

    /// Adds an entry to the chain of a bucket; if there is no spare for it, the job says so.
    fn add<F: Form>(&mut self, job: &ResizeJob<F>, bucket: u64, (key, value): (u64, u64)) {
        #[expect(clippy::cast_possible_truncation, reason = "an index of `tails`")]
        let bucket = bucket as usize;
        let tail = self.tails[bucket];
        if self.lines[tail].add(key, value) {
            return;
        }
        let mut next = tail + 1;
        if next.is_multiple_of(ClhtTable::<F>::LINES) {
            let Some(spare) = job.take_spare() else {
                return;
            };
            self.lines[tail].link = spare.raw();
            next = self.lines.len();
            self.lines
                .resize(next + ClhtTable::<F>::LINES, LineImage::default());
            self.spares.push(spare);
        }
        self.tails[bucket] = next;
        self.lines[next].add(key, value);
    }
}

impl<F: Form> ClhtTable<F> {
    /// Lines of a bucket, as a length in memory.
    #[expect(clippy::cast_possible_truncation, reason = "1 or 4")]
    pub(super) const LINES: usize = F::LINES as usize;

    /// Builds the table of a new index: all of it zeros.
    pub(super) fn build_first(&self, bits: u32) -> Result<()> {
        let hint = self.facts.behind::<u64>().raw();
        let space = self
            .pool
            .alloc_aligned(Table::<F>::new(0, bits).bytes(), TABLE_ALIGN, hint)?;
        let table = Table::new(space.offset::<Line>().raw(), bits);
        self.medium.zero(table.offset(), table.bytes());
        // DURABLE: the table, before it is named.
        self.medium.fence();
        self.name(table);
        space.commit::<Line>();
        Ok(())
    }

    /// Makes a table, all of which is durable, the one in the root.
    fn name(&self, table: Table<F>) {
        // DURABLE: the table and what the allocator noted, by the fence before; the switch, by
        // this.
        // ORDER: Relaxed: the word is read by recovery only.
        let word = self.table_word();
        word.store_persist(&self.medium, table.word(), Ordering::Relaxed);
    }

    /// Uses the table that the root names.
    pub(super) fn adopt(&self) {
        // ORDER: Relaxed: written under all locks, or before anybody else has the index.
        let word = self.table_word().peek(Ordering::Relaxed);
        // ORDER: Release pairs with the acquire of `table`.
        self.table.store(word, Ordering::Release);
    }

    /// Makes room, unless another thread has done so since `full` was the table.
    #[cold]
    pub(super) fn grow(&self, full: Table<F>) -> Result<()> {
        let _growth = self.growth.lock();
        if self.table() != full {
            return Ok(());
        }
        self.rebuild(full.bits() + GROWTH_BITS)
    }

    /// Builds a table without chains that deletes emptied, and a smaller one if that suits.
    pub(super) fn shrink(&self) -> Result<()> {
        let _within = self.pool.write_guard();
        let _growth = self.growth.lock();
        let entries = self.entries()?;
        self.rebuild(Table::<F>::suitable_bits(entries).min(self.table().bits()))
    }

    /// Builds a table with so many bits, or more if the entries need them. `growth` is held.
    fn rebuild(&self, mut bits: u32) -> Result<()> {
        let hint = self.facts.behind::<u64>().raw();
        let held = self.lock_all();
        let from = self.table();
        loop {
            if bits > LineArray::BITS_MAX {
                return Err(Error::ShardLimit);
            }
            let space =
                self.pool
                    .alloc_aligned(Table::<F>::new(0, bits).bytes(), TABLE_ALIGN, hint)?;
            let to = Table::new(space.offset::<Line>().raw(), bits);
            let retiring = self.pool.retire::<Line>(POff::new(from.offset()), hint)?;
            let Some(spares) = self.fill(from, to)? else {
                bits += 1;
                continue;
            };
            self.name(to);
            self.spares.begin(spares);
            self.adopt();
            space.commit::<Line>();
            retiring.commit(&self.pool.enter());
            held.give_up();
            return Ok(());
        }
    }

    /// Copies all entries to another table, durably, and returns how many spares that took; none if
    /// there are too few.
    fn fill(&self, from: Table<F>, to: Table<F>) -> Result<Option<u64>> {
        let job = Arc::new(ResizeJob::new(from, to));
        self.offer(Some(job.clone()));
        let done = self.work(&job);
        // ORDER: Relaxed: this thread asks itself.
        job.done.fetch_add(done, Ordering::Relaxed);
        let mut backoff = Backoff::default();
        // ORDER: Acquire pairs with the releases of `work` and `help`: what others copied is
        // durable.
        while job.done.load(Ordering::Acquire) < job.count {
            backoff.wait();
        }
        self.offer(None);
        // ORDER: Relaxed: all work is done.
        if job.is_damaged.load(Ordering::Relaxed) {
            return Err(damaged(from.offset()));
        }
        if job.is_short.load(Ordering::Relaxed) {
            return Ok(None);
        }
        // ORDER: as above.
        let spares = job.spares.load(Ordering::Relaxed);
        let given = self.medium.offset_of(to.given(&self.medium)).raw();
        self.medium.write_past_cache(given, &spares.to_le_bytes());
        // DURABLE: the table: what this thread copied, and the spares given out. And what the
        // allocator noted.
        self.medium.fence();
        Ok(Some(spares))
    }

    fn offer(&self, job: Option<Arc<ResizeJob<F>>>) {
        let mut place = self.job.lock();
        // ORDER: Relaxed: a hint; the job itself is behind the lock.
        self.has_job.store(job.is_some(), Ordering::Relaxed);
        *place = job;
    }

    /// Takes part in building a table, if one is being built.
    pub(super) fn help(&self) {
        // ORDER: Relaxed: a hint.
        if self.has_job.load(Ordering::Relaxed) {
            let job = self.job.lock().clone();
            if let Some(job) = job {
                let done = self.work(&job);
                // DURABLE: what this thread copied, before it counts as done.
                self.medium.fence();
                // ORDER: Release pairs with the acquire of `fill`.
                job.done.fetch_add(done, Ordering::Release);
            }
        }
    }

    /// Copies units until all are taken, and returns how many; a fence makes them durable.
    fn work(&self, job: &ResizeJob<F>) -> u64 {
        let (mut chains, mut bytes, mut done) = (Chains::default(), Vec::new(), 0);
        loop {
            // ORDER: Relaxed: each range is taken once.
            let first = job.next.fetch_add(UNITS, Ordering::Relaxed);
            if first >= job.count {
                return done;
            }
            let units = first..(first + UNITS).min(job.count);
            done += units.end - units.start;
            self.copy(job, units, &mut chains, &mut bytes);
        }
    }

    /// Copies some units past the cache.
    fn copy(
        &self,
        job: &ResizeJob<F>,
        units: Range<u64>,
        chains: &mut Chains,
        bytes: &mut Vec<u8>,
    ) {
        let bits = job.from.bits().min(job.to.bits());
        let (old, new) = (job.from.bits() - bits, job.to.bits() - bits);
        let at = job.to.bucket(units.start << new);
        bytes.clear();
        for unit in units {
            chains.begin(1 << new, Self::LINES);
            for number in unit << old..(unit + 1) << old {
                let copied = self.for_each_in(job.from, number, |hash, key, value| {
                    let bucket = job.to.home(hash).wrapping_sub(unit << new);
                    let is_ours = bucket < 1 << new;
                    debug_assert!(is_ours, "an entry lies in its home");
                    if is_ours {
                        chains.add(job, bucket, (key, value));
                    }
                });
                if copied.is_err() {
                    // ORDER: Relaxed: read after `done`.
                    job.is_damaged.store(true, Ordering::Relaxed);
                }
            }
            let (buckets, spares) = chains.lines.split_at(Self::LINES << new);
            buckets.iter().for_each(|line| line.append_to(bytes));
            for (lines, at) in spares.chunks(Self::LINES).zip(&chains.spares) {
                let mut bytes = Vec::with_capacity(size_of_val(lines));
                lines.iter().for_each(|line| line.append_to(&mut bytes));
                self.medium.write_past_cache(at.raw(), &bytes);
            }
        }
        self.medium.write_past_cache(at.raw(), bytes);
    }
}
