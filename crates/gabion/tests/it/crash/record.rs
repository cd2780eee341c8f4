//! Running a workload and noting, operation by operation, what has been promised.

use gabion::{Durability, Options};
use gabion_media::{Disk, SimDisk};

use crate::support::{
    KEYSPACES, PanicContext, Step, Subject, Totals, Twin, Workload, assert_twin, log_number,
};

/// What holds from an operation of the disk on.
#[derive(Clone, Copy, Debug)]
struct Mark {
    op: u64,
    /// Writes that were begun.
    begun: usize,
    /// Writes that were acknowledged at all, so that they survive the end of the process.
    acknowledged: usize,
    /// Writes that survive the loss of power.
    durable: usize,
    /// Keyspaces that were made.
    keyspaces: usize,
}

/// A workload that ran, its disk, and its promises.
pub(super) struct Recording {
    pub(super) seed: u64,
    pub(super) options: Options,
    pub(super) sim: SimDisk,
    /// What the store holds after the first `n` writes.
    pub(super) history: Vec<Twin>,
    pub(super) totals: Totals,
    marks: Vec<Mark>,
}

/// What must hold of an image.
#[derive(Clone, Copy, Debug)]
pub(super) struct Promise {
    /// At least the result of so many writes.
    pub(super) least: usize,
    /// At most the result of so many writes.
    pub(super) most: usize,
    /// At least so many keyspaces.
    pub(super) keyspaces: usize,
}

impl Recording {
    /// Runs a workload of a seed.
    pub(super) fn new(seed: u64, workload: &Workload, options: Options) -> Recording {
        Recording::on(SimDisk::recording(), seed, workload, options)
    }

    /// The same on a disk that may lie.
    pub(super) fn on(sim: SimDisk, seed: u64, workload: &Workload, options: Options) -> Recording {
        let _context = PanicContext(|| format!("recording the workload of seed {seed}"));
        let start = Mark {
            op: 0,
            begun: 0,
            acknowledged: 0,
            durable: 0,
            keyspaces: 0,
        };
        let mut recording = Recording {
            seed,
            options,
            sim,
            history: vec![Twin::new(KEYSPACES.len())],
            totals: Totals::default(),
            marks: vec![start],
        };
        recording.run(workload);
        recording
    }

    fn run(&mut self, workload: &Workload) {
        let mut subject = self.open();
        for step in &workload.steps {
            match step {
                Step::Write { operations, sync } => {
                    self.mark(|mark| mark.begun += 1);
                    let level = sync.then_some(Durability::Sync);
                    subject.write(operations, level).expect("the disk is sound");
                    let after = self.history.last().expect("never empty").after(operations);
                    self.history.push(after);
                    let durable = *sync || self.options.durability == Durability::Sync;
                    self.acknowledge(durable);
                }
                Step::Ingest(puts) => {
                    self.mark(|mark| mark.begun += 1);
                    subject.ingest(puts).expect("the disk is sound");
                    let after = self.history.last().expect("never empty").after(puts);
                    self.history.push(after);
                    self.acknowledge(!puts.is_empty());
                }
                Step::Persist => {
                    subject
                        .db
                        .persist(Durability::Sync)
                        .expect("the disk is sound");
                    self.acknowledge(true);
                }
                Step::Flush => {
                    subject.db.flush().expect("the disk is sound");
                    self.acknowledge(true);
                }
                Step::WaitIdle => subject.db.wait_idle().expect("the disk is sound"),
                Step::Compact(keyspace) => subject.keyspaces[*keyspace]
                    .compact::<&[u8]>(..)
                    .expect("the disk is sound"),
                Step::DropKeyspace(keyspace) => {
                    self.mark(|mark| {
                        mark.begun += 1;
                        mark.keyspaces = KEYSPACES.len() - 1;
                    });
                    let dropped = subject.drop_keyspace(*keyspace);
                    dropped.expect("the disk is sound");
                    let after = self.history.last().expect("never empty").without(*keyspace);
                    self.history.push(after);
                    self.acknowledge(true);
                    self.mark(|mark| mark.keyspaces = KEYSPACES.len());
                }
                Step::Reopen => {
                    self.totals.add(&subject.db.stats());
                    subject.db.close().expect("the disk is sound");
                    self.acknowledge(true);
                    subject = self.open();
                }
            }
        }
        self.totals.add(&subject.db.stats());
        self.totals.log_segments += log_number(&self.sim.names());
        assert_twin(&subject.db, self.history.last().expect("never empty"));
        subject.db.close().expect("the disk is sound");
        self.acknowledge(true);
    }

    fn open(&mut self) -> Subject {
        let disk = Disk::simulated(&self.sim);
        let subject = Subject::open(&disk, &self.options).expect("the disk is sound");
        self.mark(|mark| mark.keyspaces = KEYSPACES.len());
        subject
    }

    fn acknowledge(&mut self, durable: bool) {
        self.mark(|mark| {
            mark.acknowledged = mark.begun;
            if durable {
                mark.durable = mark.begun;
            }
        });
    }

    fn mark(&mut self, change: impl FnOnce(&mut Mark)) {
        let mut mark = *self.marks.last().expect("never empty");
        mark.op = self.sim.ops();
        change(&mut mark);
        self.marks.push(mark);
    }

    /// What a power cut right after an operation must leave.
    pub(super) fn after_power_cut(&self, op: u64) -> Promise {
        let (reached, begun) = self.marks_at(op);
        Promise {
            least: reached.durable,
            most: begun,
            keyspaces: reached.keyspaces,
        }
    }

    /// What the end of the process right after an operation must leave.
    pub(super) fn after_kill(&self, op: u64) -> Promise {
        let (reached, begun) = self.marks_at(op);
        Promise {
            least: reached.acknowledged,
            most: begun,
            keyspaces: reached.keyspaces,
        }
    }

    /// The last mark that was reached, and how many writes had begun: a write that was begun when
    /// `n` operations had been done has left a trace after operation `n + 1` at the earliest.
    fn marks_at(&self, op: u64) -> (Mark, usize) {
        let reached = self.marks.partition_point(|mark| mark.op <= op);
        let before = self.marks.partition_point(|mark| mark.op < op);
        let reached = self.marks[reached - 1];
        let begun = before
            .checked_sub(1)
            .map_or(0, |last| self.marks[last].begun);
        (reached, begun.max(reached.acknowledged))
    }
}
