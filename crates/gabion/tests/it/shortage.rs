//! A store that is short of something for a while: of space on its disk, or of descriptors of its
//! process.
//!
//! Whatever it is doing, it refuses with a sentence, and turns read-only by none of it; what was
//! acknowledged is there, what was refused is not, and all that was refused is done when there is
//! enough again. So it is after a crash at any operation of that time.

use std::fs::File;
use std::ops::Bound;
use std::process::Command;

use gabion::{Durability, Engine, Error, Options, Result};
use gabion_media::{Disk, SimDisk, Tear};

use crate::support::{
    Change, KEYSPACES, Operation, PanicContext, SeededRng, Subject, Twin, assert_sound,
    assert_twin, base_seed, bytes_of, engines_on_disks, small_options,
};

/// What there is too little of.
#[derive(Clone, Copy, Debug)]
enum Shortage {
    /// The disk has so many bytes left.
    Space(u64),
    /// The process may open so many files more.
    Descriptors(u64),
}

impl Shortage {
    fn begin(self, sim: &SimDisk) {
        match self {
            Shortage::Space(bytes) => {
                let names = sim.names();
                let files = names.iter().filter_map(|name| sim.raw(name));
                let used: usize = files.map(|file| file.len()).sum();
                sim.set_capacity(Some(used as u64 + bytes));
            }
            Shortage::Descriptors(files) => sim.set_open_max(Some(sim.open_files() + files)),
        }
    }

    fn end(sim: &SimDisk) {
        sim.set_capacity(None);
        sim.set_open_max(None);
    }

    /// Whether an error says that this was short, and what helps.
    fn is_told_by(self, error: &Error) -> bool {
        let text = error.to_string();
        match self {
            Shortage::Space(_) => error.is_no_space() && text.contains("free space"),
            Shortage::Descriptors(_) => error.is_too_many_files() && text.contains("ulimit -n"),
        }
    }
}

/// A store in a shortage, and what it should hold.
struct Run<'r> {
    shortage: Shortage,
    options: &'r Options,
    sim: SimDisk,
    subject: Subject,
    /// What was acknowledged, from which operation of the disk on.
    history: Vec<(u64, Twin)>,
    /// Keyspaces beside those of the subject that are there.
    extras: Vec<String>,
    refused: u64,
    random: SeededRng,
}

impl<'r> Run<'r> {
    fn new(shortage: Shortage, options: &'r Options, seed: u64) -> Run<'r> {
        let sim = SimDisk::recording();
        let subject = Subject::open(&Disk::simulated(&sim), options).unwrap();
        let history = vec![(sim.ops(), Twin::new(KEYSPACES.len()))];
        let random = SeededRng::new(seed);
        Run {
            shortage,
            options,
            sim,
            subject,
            history,
            extras: Vec::new(),
            refused: 0,
            random,
        }
    }

    fn twin(&self) -> &Twin {
        &self.history.last().expect("it begins with one").1
    }

    /// Whether it went well; if not, for want of what is short.
    fn went_well(&mut self, what: &str, result: Result<()>) -> bool {
        let Err(error) = result else { return true };
        assert!(self.shortage.is_told_by(&error), "{what}: {error}");
        self.refused += 1;
        false
    }

    /// Puts or deletes, one or a batch, a delete of a range or, where the engine can, an ingest.
    fn write(&mut self) {
        let seed = self.random.word();
        let keyspace = self.random.index(KEYSPACES.len());
        let count = [1, 1, 1, 6][self.random.index(4)];
        let mut keys: Vec<u64> = (0..count).map(|_| self.random.below(150)).collect();
        keys.sort_unstable();
        keys.dedup();
        let ingests = self.subject.db.engine() == Engine::Wip && self.random.one_in(9);
        let key_of = |number: u64| format!("{number:05}").into_bytes();
        let operation = |key: &u64| {
            let is_put = ingests || !(seed >> 20 ^ key).is_multiple_of(4);
            let value = bytes_of(seed ^ key, 150 + usize::try_from(seed % 200).unwrap());
            Operation::new(keyspace, key_of(*key), is_put.then_some(value))
        };
        let mut operations: Vec<Operation> = keys.iter().map(operation).collect();
        if !ingests && self.random.one_in(8) {
            let begin = Bound::Included(key_of(keys[0]));
            let end = Bound::Excluded(key_of(keys[0] + 1 + self.random.below(8)));
            operations.push(Operation {
                keyspace,
                change: Change::DeleteRange((begin, end)),
            });
        }
        let result = match ingests {
            true => self.subject.ingest(&operations),
            false => self.subject.write(&operations, None),
        };
        if self.went_well("a write", result) {
            let after = self.twin().after(&operations);
            self.history.push((self.sim.ops(), after));
        }
    }

    /// Another keyspace comes or goes.
    fn change_keyspaces(&mut self, number: u64) {
        let db = self.subject.db.clone();
        if self.random.one_in(2) {
            let name = format!("extra {number}");
            let made = db.keyspace(&name).and_then(|made| made.put("key", "value"));
            // It may be there although the put was refused.
            self.went_well("a keyspace", made);
            self.extras.push(name);
            self.extras
                .retain(|name| db.existing_keyspace(name).is_ok());
        } else if let Some(name) = self.extras.last().cloned() {
            let dropped = db.drop_keyspace(&name);
            if self.went_well("a drop", dropped) {
                self.extras.pop();
            }
        }
        let mut names = db.keyspace_names();
        let mut expected: Vec<&str> = KEYSPACES.to_vec();
        expected.extend(self.extras.iter().map(String::as_str));
        names.sort_unstable();
        expected.sort_unstable();
        assert_eq!(names, expected);
    }

    /// Does a bit of everything.
    fn act(&mut self, number: u64) {
        match self.random.below(24) {
            0 => {
                let flushed = self.subject.db.flush();
                self.went_well("a flush", flushed);
            }
            1 => {
                let keyspace = self.random.index(KEYSPACES.len());
                let compacted = self.subject.keyspaces[keyspace].compact::<&[u8]>(..);
                self.went_well("a compaction", compacted);
            }
            2 => {
                let idle = self.subject.db.wait_idle();
                self.went_well("a wait", idle);
            }
            3 | 4 => self.change_keyspaces(number),
            5 => match assert_sound(&self.subject.db) {
                Ok(found) => assert!(
                    self.twin().equals(&found),
                    "{}",
                    self.twin().difference(&found)
                ),
                Err(error) => drop(self.went_well("a read", Err(error))),
            },
            _ => self.write(),
        }
        assert_eq!(self.subject.db.stats().read_only, None);
    }

    /// There is enough again: all is done that was left. What the background began before may fail
    /// once more.
    fn recover(&mut self) {
        Shortage::end(&self.sim);
        let db = self.subject.db.clone();
        let calls: [(&str, &dyn Fn() -> Result<()>); 3] = [
            ("a flush", &|| db.flush()),
            ("a compaction", &|| db.compact::<&[u8]>(..)),
            ("a wait", &|| db.wait_idle()),
        ];
        for (what, call) in calls {
            let done = (0..1000).any(|_| self.went_well(what, call()));
            assert!(done, "{what} does not go on");
        }
        (0..30).for_each(|_| self.write());
        db.flush().unwrap();
        assert_eq!(db.stats().read_only, None);
        assert_twin(&db, self.twin());
    }

    /// Opens what a crash after some of the operations leaves: it is what was acknowledged then, or
    /// what the next write has made of it.
    fn assert_images(&self, step: usize) -> u64 {
        let begin = self.history[0].0;
        let mut images = 0;
        for (number, op) in (begin..=self.sim.ops()).step_by(step).enumerate() {
            let done = self.history.partition_point(|(at, _)| *at <= op);
            let allowed = &self.history[done - 1..self.history.len().min(done + 1)];
            let style = Tear::ALL[number % Tear::ALL.len()];
            let (cut, killed) = (self.sim.power_cut(op, op, style), self.sim.process_kill(op));
            for (image, what) in [(cut, Some(style)), (killed, None)] {
                let _context =
                    PanicContext(|| format!("{:?}, crash at {op}: {what:?}", self.shortage));
                Shortage::end(&image);
                let subject = Subject::open(&Disk::simulated(&image), self.options).unwrap();
                let found = assert_sound(&subject.db).unwrap();
                let is_allowed = allowed.iter().any(|(_, twin)| twin.equals(&found));
                assert!(is_allowed, "{}", allowed[0].1.difference(&found));
                subject.db.close().unwrap();
                images += 1;
            }
        }
        images
    }
}

/// Lets stores of all engines run into shortages; returns how many calls were refused, and how many
/// images were opened.
fn run_short(shortages: &[Shortage]) {
    let (mut refused, mut images) = (0, 0);
    for engine in engines_on_disks() {
        for (number, shortage) in (0..).zip(shortages) {
            for threads in [0, 2] {
                let seed = base_seed() + number;
                let _context =
                    PanicContext(|| format!("{engine}, {shortage:?}, {threads} threads"));
                let options = small_options()
                    .engine(engine)
                    .durability(Durability::Sync)
                    .background_threads(threads);
                let mut run = Run::new(*shortage, &options, seed);
                (0..40).for_each(|number| run.act(number));
                assert_eq!(run.refused, 0, "there is enough of everything");
                shortage.begin(&run.sim);
                (40..160).for_each(|number| run.act(number));
                refused += run.refused;
                run.recover();
                // With threads, what is done between two writes is not always done before the
                // second one is acknowledged.
                if threads == 0 {
                    images += run.assert_images(97);
                }
                let left = run.sim.process_kill(run.sim.ops());
                let again = Subject::open(&Disk::simulated(&left), &options).unwrap();
                assert_twin(&again.db, run.twin());
                run.subject.db.clone().close().unwrap();
                let again = Subject::open(&Disk::simulated(&run.sim), &options).unwrap();
                assert_twin(&again.db, run.twin());
            }
        }
    }
    println!("shortage: {refused} calls refused, {images} images");
    assert!(refused > 20 * shortages.len() as u64, "{refused}");
    assert!(images > 10 * shortages.len() as u64, "{images}");
}

#[test]
fn a_full_disk_stops_no_store_for_good() {
    let sizes = [0, 1, 24, 60, 150, 400, 1_000, 3_000, 8_000];
    run_short(&sizes.map(Shortage::Space));
}

#[test]
fn too_many_open_files_stop_no_store_for_good() {
    run_short(&[0, 1, 2, 3, 4, 6].map(Shortage::Descriptors));
}

/// Names a directory to the test that plays the process with few descriptors.
const CHILD: &str = "GABION_FEW_DESCRIPTORS";

/// A process that may open few files makes keyspaces until it may open no more; another one has
/// enough.
#[test]
fn a_process_without_descriptors_is_told_so_and_loses_nothing() {
    for engine in engines_on_disks() {
        let dir = tempfile::tempdir().unwrap();
        let status = Command::new("sh")
            .args(["-c", "ulimit -n 40 && exec \"$@\"", "sh"])
            .arg(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "shortage::makes_keyspaces_until_no_file_may_be_opened",
            ])
            .arg("--nocapture")
            .env(CHILD, format!("{engine}:{}", dir.path().display()))
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&status.stdout).into_owned()
            + &String::from_utf8_lossy(&status.stderr);
        assert!(status.status.success(), "{engine}: {said}");
        let count = said.lines().find_map(|line| line.strip_prefix("made "));
        let count: u64 = count.expect(&said).parse().unwrap();
        let db = small_options().engine(engine).open(dir.path()).unwrap();
        assert!(
            db.keyspace_names().len() as u64 > count && count > 3,
            "{said}"
        );
        for number in 0..count {
            let keyspace = db.existing_keyspace(&number.to_string()).unwrap();
            assert_eq!(keyspace.get("key").unwrap().as_deref(), Some(&b"value"[..]));
        }
    }
}

#[test]
fn makes_keyspaces_until_no_file_may_be_opened() {
    // A test of its own does nothing; the one above calls it in a process of its own.
    let Ok(wanted) = std::env::var(CHILD) else {
        return;
    };
    let (engine, dir) = wanted.split_once(':').unwrap();
    let options = small_options().engine(engine.parse().unwrap());
    let db = options.background_threads(2).open(dir).unwrap();
    let held: Vec<File> = (0..9).map(|_| File::open("/dev/null").unwrap()).collect();
    let mut keyspaces = Vec::new();
    let refused = (0..10_000_u64).find_map(|number| {
        let made = db.keyspace(&number.to_string()).and_then(|made| {
            made.put("key", "value")?;
            keyspaces.push(made);
            db.flush()?;
            // A table is opened when it is read.
            keyspaces.iter().try_for_each(|of| of.get("key").map(drop))
        });
        made.err()
    });
    let refused = refused.expect("there are few descriptors");
    assert!(refused.is_too_many_files(), "{refused}");
    assert!(refused.to_string().contains("ulimit -n"), "{refused}");
    assert_eq!(db.stats().read_only, None);
    drop(held);
    // What the background began before may fail once more.
    assert!((0..1000).any(|_| db.flush().is_ok()), "it does not go on");
    for keyspace in &keyspaces {
        keyspace.put_with("key", "value", Durability::Sync).unwrap();
    }
    println!("made {}", keyspaces.len());
    db.close().unwrap();
}
