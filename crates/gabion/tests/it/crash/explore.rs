//! Opening the images that crashes leave, and checking what is in them.

use gabion::{Db, Options, Result};
use gabion_media::{Disk, SimDisk, Tear};

use super::record::{Promise, Recording};
use crate::support::{
    KEYSPACES, Pairs, PanicContext, SeededRng, Twin, assert_sound, bytes_of, read_all,
};

/// How deep power cuts nest: the second one strikes the recovery from a recovery.
const DEPTH: u32 = 2;

/// Power cuts after each operation.
const CUTS_PER_OPERATION: usize = 2;

/// How they tear, the more varied styles more often.
const STYLES: [Tear; 5] = [
    Tear::DropAll,
    Tear::KeepAll,
    Tear::Random512,
    Tear::Random512,
    Tear::Random4096,
];

/// What an image held.
#[derive(Clone, Copy, Debug)]
struct Found {
    /// The result of so many writes.
    writes: usize,
    /// Operations of the disk that opening it took.
    operations: u64,
}

/// What was explored.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) power_cuts: u64,
    pub(super) process_ends: u64,
    /// Power cuts while the store recovered from an earlier one.
    pub(super) during_recovery: u64,
    /// Images that held fewer writes than had been begun.
    pub(super) lost_writes: u64,
    /// Images that were closed and checked byte by byte.
    pub(super) checked: u64,
    /// Images that were written to and opened again.
    pub(super) written_to: u64,
}

impl Counts {
    /// Images that were opened.
    pub(super) fn images(&self) -> u64 {
        self.power_cuts + self.process_ends + self.during_recovery
    }

    pub(super) fn merge(&mut self, other: &Counts) {
        self.power_cuts += other.power_cuts;
        self.process_ends += other.process_ends;
        self.during_recovery += other.during_recovery;
        self.lost_writes += other.lost_writes;
        self.checked += other.checked;
        self.written_to += other.written_to;
    }
}

/// Explores the crashes after every operation of a recording.
pub(super) fn explore(recording: &Recording) -> Counts {
    let mut explorer = Explorer {
        options: &recording.options,
        history: &recording.history,
        random: SeededRng::new(recording.seed),
        counts: Counts::default(),
    };
    for op in 0..=recording.sim.ops() {
        explorer.crash_after(recording, op);
    }
    explorer.counts
}

struct Explorer<'r> {
    options: &'r Options,
    history: &'r [Twin],
    random: SeededRng,
    counts: Counts,
}

impl Explorer<'_> {
    fn crash_after(&mut self, recording: &Recording, op: u64) {
        let (seed, sim) = (recording.seed, &recording.sim);
        for _ in 0..CUTS_PER_OPERATION {
            let style = STYLES[self.random.index(STYLES.len())];
            let cut = self.random.word();
            let _context = PanicContext(|| {
                let what = sim.describe(op).unwrap_or_default();
                let options = &recording.options;
                format!(
                    "seed {seed}, power cut {style:?} {cut:#x} after {op} ({what}), {options:?}"
                )
            });
            let image = sim.power_cut(op, cut, style);
            let promise = recording.after_power_cut(op);
            let found = self.check(&image, promise);
            self.counts.power_cuts += 1;
            self.counts.lost_writes += u64::from(found.writes < promise.most);
            if self.random.one_in(150) {
                self.cut_during_recovery(&image, found, DEPTH);
            }
        }
        if !self.random.one_in(4) {
            return;
        }
        let _context =
            PanicContext(|| format!("seed {seed}, end of the process after operation {op}"));
        let image = sim.process_kill(op);
        let found = self.check(&image, recording.after_kill(op));
        self.counts.process_ends += 1;
        if self.random.one_in(4) {
            self.settle(&sim.process_kill(op), found.writes);
        }
    }

    /// Opens an image and reads it in all ways.
    fn check(&mut self, image: &SimDisk, promise: Promise) -> Found {
        let db = Db::open_on(Disk::simulated(image), self.options.clone());
        let db = db.unwrap_or_else(|error| panic!("{promise:?}: the image does not open: {error}"));
        let operations = image.ops();
        let found = assert_sound(&db).unwrap_or_else(|error| panic!("cannot be read: {error}"));
        let writes = self.writes_in(&found, promise);
        let keyspaces = db.keyspace_names().len();
        assert!(
            keyspaces >= promise.keyspaces,
            "{keyspaces} keyspaces, {promise:?}"
        );
        assert!(keyspaces <= KEYSPACES.len(), "{:?}", db.keyspace_names());
        if self.random.one_in(8) {
            self.write_on(&db, found)
                .expect("a recovered store takes writes");
            drop(db);
            self.counts.written_to += 1;
            assert_clean(image);
        } else if self.random.one_in(8) {
            db.close().expect("a recovered store closes");
            assert_clean(image);
            self.counts.checked += 1;
        }
        Found { writes, operations }
    }

    /// How many writes an image holds.
    fn writes_in(&self, found: &[Pairs], promise: Promise) -> usize {
        let allowed = promise.least..=promise.most;
        if let Some(count) = allowed
            .clone()
            .rev()
            .find(|k| self.history[*k].equals(found))
        {
            return count;
        }
        let other = (0..self.history.len()).find(|k| self.history[*k].equals(found));
        let nearest = allowed.min_by_key(|k| self.history[*k].difference(found).len());
        let nearest = nearest.expect("the range is not empty");
        panic!(
            "{promise:?}: the image holds the result of {other:?} writes; after {nearest}: {}",
            self.history[nearest].difference(found)
        );
    }

    /// Writes to a recovered store, so much that its MemTables are flushed, and reads all again.
    fn write_on(&mut self, db: &Db, mut found: Vec<Pairs>) -> Result<()> {
        let keyspace = db.default_keyspace();
        for number in 0..20_u64 {
            let key = format!("k{:08}", self.random.below(60)).into_bytes();
            let value = bytes_of(number, self.random.index(400));
            keyspace.put(&key, &value)?;
            found[0].insert(key, value);
        }
        // One that is missing comes without anything that one of its name held.
        for name in KEYSPACES {
            crate::support::keyspace(db, name)?;
        }
        assert!(
            assert_sound(db)? == found,
            "writes after a recovery are all there"
        );
        db.clone().close()?;
        Ok(())
    }

    /// Cuts the power at every operation of the recovery that `image` has just been through, and
    /// of that one's recovery, down to `depth`.
    fn cut_during_recovery(&mut self, image: &SimDisk, expected: Found, depth: u32) {
        for op in 0..=expected.operations {
            let style = Tear::ALL[self.random.index(Tear::ALL.len())];
            let cut = self.random.word();
            let _context = PanicContext(|| {
                let what = image.describe(op).unwrap_or_default();
                format!("cut again at depth {depth}: {style:?} {cut:#x} after {op} ({what})")
            });
            let again = image.power_cut(op, cut, style);
            let db = Db::open_on(Disk::simulated(&again), self.options.clone());
            let db = db.unwrap_or_else(|error| panic!("the image does not open: {error}"));
            let found = read_all(&db).unwrap_or_else(|error| panic!("cannot be read: {error}"));
            let before = &self.history[expected.writes];
            assert!(
                before.equals(&found),
                "the first recovery found {} writes, the next one others: {}",
                expected.writes,
                before.difference(&found)
            );
            let operations = again.ops();
            drop(db);
            self.counts.during_recovery += 1;
            if depth > 1 && self.random.one_in(30) {
                let expected = Found {
                    operations,
                    ..expected
                };
                self.cut_during_recovery(&again, expected, depth - 1);
            }
        }
    }

    /// After the end of a process the store was opened, and what it said can be relied on: now the
    /// loss of power takes nothing back.
    fn settle(&mut self, image: &SimDisk, expected: usize) {
        let db = Db::open_on(Disk::simulated(image), self.options.clone()).expect("opens");
        let image = image.power_cut(image.ops(), self.random.word(), Tear::DropAll);
        drop(db);
        let promise = Promise {
            least: expected,
            most: expected,
            keyspaces: 0,
        };
        self.check(&image, promise);
        self.counts.power_cuts += 1;
    }
}

/// A closed store has no problems.
fn assert_clean(image: &SimDisk) {
    let report = gabion::check_disk(&Disk::simulated(image)).expect("a closed store is checked");
    assert!(report.problems.is_empty(), "{:?}", report.problems);
}
