//! One run of a workload on a disk that may fail.

use gabion::{Durability, Error, Options, Result};
use gabion_media::{Disk, SimDisk, Tear};

use crate::support::{
    KEYSPACES, Operation, Pairs, Step, Subject, Twin, Workload, assert_sound, assert_twin,
};

/// What the runs met.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) workloads: u64,
    /// Runs with a fault.
    pub(super) faults: u64,
    /// Calls that were refused.
    pub(super) refused: u64,
    /// Runs in which a write was acknowledged after another was refused.
    pub(super) went_on: u64,
    /// Runs that ended read-only.
    pub(super) read_only: u64,
    /// Runs whose store could not be opened before the fault was gone.
    pub(super) unopened: u64,
    /// Runs after which a refused write was found again: a sync had failed, the log had it.
    pub(super) revived: u64,
    /// Small tables that became one with their neighbours.
    pub(super) coalesced_tables: u64,
}

impl Counts {
    pub(super) fn merge(&mut self, other: &Counts) {
        self.workloads += other.workloads;
        self.faults += other.faults;
        self.refused += other.refused;
        self.went_on += other.went_on;
        self.read_only += other.read_only;
        self.unopened += other.unopened;
        self.revived += other.revived;
        self.coalesced_tables += other.coalesced_tables;
    }
}

/// A workload that is being run, and what it may rely on.
pub(super) struct Run<'r> {
    sim: &'r SimDisk,
    options: &'r Options,
    subject: Option<Subject>,
    /// What was acknowledged.
    twin: Twin,
    /// What may be found in place of `twin` after a crash: a refused write may be in the log.
    maybe: Option<Twin>,
    /// The states since the last one that survives the loss of power, that one first.
    undurable: Vec<Twin>,
    refused: bool,
    went_on: bool,
}

impl<'r> Run<'r> {
    pub(super) fn new(sim: &'r SimDisk, options: &'r Options) -> Run<'r> {
        let twin = Twin::new(KEYSPACES.len());
        Run {
            sim,
            options,
            subject: None,
            undurable: vec![twin.clone()],
            twin,
            maybe: None,
            refused: false,
            went_on: false,
        }
    }

    /// Runs all steps; a store that does not open, or turns read-only, is opened again.
    pub(super) fn play(&mut self, workload: &Workload, counts: &mut Counts) {
        self.open(counts);
        for (number, step) in workload.steps.iter().enumerate() {
            self.leave_if_read_only(number, counts);
            let Some(subject) = self.subject.clone() else {
                self.open(counts);
                continue;
            };
            match step {
                Step::Write { operations, sync } => self.write(&subject, operations, *sync, counts),
                Step::Ingest(puts) => self.ingest(&subject, puts, counts),
                Step::Persist => {
                    let result = subject.db.persist(Durability::Sync);
                    self.after(&subject, result, true, counts);
                }
                Step::Flush => {
                    let result = subject.db.flush();
                    self.after(&subject, result, true, counts);
                }
                Step::WaitIdle => {
                    let result = subject.db.wait_idle();
                    self.after(&subject, result, false, counts);
                }
                Step::Compact(keyspace) => {
                    let result = subject.keyspaces[*keyspace].compact::<&[u8]>(..);
                    self.after(&subject, result, false, counts);
                }
                Step::DropKeyspace(keyspace) => self.drop_keyspace(&subject, *keyspace, counts),
                Step::Reopen => {
                    counts.coalesced_tables += subject.db.stats().coalesced_tables;
                    let result = subject.db.clone().close();
                    drop(subject);
                    self.subject = None;
                    match result {
                        Ok(()) => self.durable(),
                        Err(error) => self.refuse(&error, counts),
                    }
                    self.open(counts);
                }
            }
        }
        if let Some(subject) = &self.subject {
            counts.coalesced_tables += subject.db.stats().coalesced_tables;
        }
    }

    /// Closes a store that has turned read-only, after some more refusals; the next step opens it.
    fn leave_if_read_only(&mut self, step: usize, counts: &mut Counts) {
        let Some(subject) = &self.subject else { return };
        if step.is_multiple_of(4) && subject.db.stats().read_only.is_some() {
            let error = subject
                .db
                .clone()
                .close()
                .expect_err("a read-only store says so");
            self.subject = None;
            self.refuse(&error, counts);
        }
    }

    fn open(&mut self, counts: &mut Counts) {
        match Subject::open(&Disk::simulated(self.sim), self.options) {
            Ok(subject) => {
                self.recognize(&subject, counts);
                self.subject = Some(subject);
            }
            Err(error) => self.refuse(&error, counts),
        }
    }

    /// Finds out whether a refused write is there after all; from now on that is settled.
    fn recognize(&mut self, subject: &Subject, counts: &mut Counts) {
        let Ok(found) = read_without_panic(subject) else {
            return;
        };
        if let Some(maybe) = self.maybe.take()
            && maybe.equals(&found)
            && maybe != self.twin
        {
            counts.revived += 1;
            self.twin = maybe;
            self.undurable.push(self.twin.clone());
        }
        assert!(
            self.twin.equals(&found),
            "after open: {}",
            self.twin.difference(&found)
        );
        // What an open has found is on the medium, whatever it took to get it there.
        self.durable();
    }

    fn write(
        &mut self,
        subject: &Subject,
        operations: &[Operation],
        sync: bool,
        counts: &mut Counts,
    ) {
        let result = subject.write(operations, sync.then_some(Durability::Sync));
        let is_durable = sync || self.options.durability == Durability::Sync;
        self.after_write(subject, operations, (result, is_durable), counts);
    }

    fn ingest(&mut self, subject: &Subject, puts: &[Operation], counts: &mut Counts) {
        let result = subject.ingest(puts);
        self.after_write(subject, puts, (result, !puts.is_empty()), counts);
    }

    /// Drops a keyspace, and makes another one of its name if that goes well.
    fn drop_keyspace(&mut self, subject: &Subject, keyspace: usize, counts: &mut Counts) {
        let dropped = subject.db.drop_keyspace(KEYSPACES[keyspace]);
        let after = self.twin.without(keyspace);
        match dropped {
            // After the last drop no other one was made; nothing was done.
            Err(Error::NoSuchKeyspace { .. }) => {
                assert!(after == self.twin, "what was dropped is empty");
                self.refused = true;
            }
            Ok(()) => {
                self.twin = after;
                self.durable();
                let is_writable = subject.db.stats().read_only.is_none();
                match subject.keyspaces[keyspace].put("a", "value") {
                    Err(Error::KeyspaceDropped) => {}
                    Err(error) if !is_writable => self.refuse(&error, counts),
                    put => panic!("a put after a drop: {put:?}"),
                }
            }
            Err(error) => {
                self.refuse(&error, counts);
                if subject.db.stats().read_only.is_some() && self.maybe.is_none() {
                    self.maybe = Some(after);
                }
                self.assert_reads(subject);
            }
        }
        match (
            crate::support::keyspace(&subject.db, KEYSPACES[keyspace]),
            &mut self.subject,
        ) {
            (Ok(another), Some(subject)) => subject.keyspaces[keyspace] = another,
            (Ok(_), None) => {}
            (Err(error), _) => self.refuse(&error, counts),
        }
    }

    /// Notes how a write went, and whether it is durable if it went well.
    fn after_write(
        &mut self,
        subject: &Subject,
        operations: &[Operation],
        (result, is_durable): (Result<()>, bool),
        counts: &mut Counts,
    ) {
        let after = self.twin.after(operations);
        match result {
            Ok(()) => {
                self.went_on |= self.refused;
                self.twin = after;
                self.undurable.push(self.twin.clone());
                if is_durable {
                    self.durable();
                }
            }
            Err(error) => {
                self.refuse(&error, counts);
                // The write that met the failure may be in the log; later ones were not tried.
                if subject.db.stats().read_only.is_some() && self.maybe.is_none() {
                    self.maybe = Some(after);
                }
                self.assert_reads(subject);
            }
        }
    }

    fn after(&mut self, subject: &Subject, result: Result<()>, durable: bool, counts: &mut Counts) {
        match result {
            Ok(()) if durable => self.durable(),
            Ok(()) => {}
            Err(error) => {
                self.refuse(&error, counts);
                self.assert_reads(subject);
            }
        }
    }

    fn durable(&mut self) {
        self.undurable = vec![self.twin.clone()];
    }

    fn refuse(&mut self, error: &Error, counts: &mut Counts) {
        counts.refused += 1;
        self.refused = true;
        assert_sentence(error);
    }

    /// Reads go on after a failure and show exactly what was acknowledged.
    fn assert_reads(&self, subject: &Subject) {
        if let Ok(found) = read_without_panic(subject) {
            assert!(
                self.twin.equals(&found),
                "after a failure: {}",
                self.twin.difference(&found)
            );
        }
    }

    /// Opens what is left without the fault: after the end of the process, after the loss of
    /// power, and in the same process.
    pub(super) fn finish(mut self, counts: &mut Counts) {
        self.sim.clear_faults();
        if let Some(subject) = &self.subject {
            let read_only = subject.db.stats().read_only.is_some();
            counts.read_only += u64::from(read_only);
            self.assert_reads(subject);
        } else {
            counts.unopened += 1;
        }
        counts.went_on += u64::from(self.went_on);
        let operations = self.sim.ops();
        let killed = self.sim.process_kill(operations);
        let found = self.find(&killed, std::slice::from_ref(&self.twin));
        found.unwrap_or_else(|what| panic!("after the end of the process: {what}"));
        for style in [Tear::DropAll, Tear::Random512] {
            let cut = self.sim.power_cut(operations, operations, style);
            let found = self.find(&cut, &self.undurable);
            found.unwrap_or_else(|what| panic!("after the loss of power, {style:?}: {what}"));
        }
        self.subject = None;
        let again = Subject::open(&Disk::simulated(self.sim), self.options);
        let again = again.unwrap_or_else(|error| panic!("does not open again: {error}"));
        self.recognize(&again, counts);
        let more = Operation::new(0, b"more".to_vec(), Some([1; 99].into()));
        again
            .write(std::slice::from_ref(&more), None)
            .expect("writes go on after an open");
        assert_twin(&again.db, &self.twin.after(&[more]));
    }

    /// Whether an image holds one of the allowed states.
    fn find(&self, image: &SimDisk, allowed: &[Twin]) -> Result<(), String> {
        let subject = Subject::open(&Disk::simulated(image), self.options)
            .map_err(|error| format!("does not open: {error}"))?;
        let found =
            assert_sound(&subject.db).map_err(|error| format!("cannot be read: {error}"))?;
        let allowed: Vec<&Twin> = allowed.iter().chain(&self.maybe).collect();
        match allowed.iter().any(|twin| twin.equals(&found)) {
            true => Ok(()),
            false => Err(format!(
                "none of {} states: {}",
                allowed.len(),
                allowed[0].difference(&found)
            )),
        }
    }
}

fn read_without_panic(subject: &Subject) -> Result<Vec<Pairs>> {
    let found = assert_sound(&subject.db);
    if let Err(error) = &found {
        assert_sentence(error);
    }
    found
}

/// An error that a person can act on: it says what happened to what.
pub(super) fn assert_sentence(error: &Error) {
    let text = error.to_string();
    let words = text.split_whitespace().count();
    assert!(words >= 5, "no sentence: {text:?}");
    let names_a_file = text.contains("/simulated") || text.contains("the store");
    assert!(names_a_file, "names neither a file nor the store: {text:?}");
}
