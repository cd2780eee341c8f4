//! A closed store in memory, and copies of it with damage.

use std::collections::BTreeMap;

use gabion::{Compression, Db, Engine, Error, Options, TableReads};
use gabion_media::{Disk, SimDisk};

use crate::support::{
    KEYSPACES, Operation, Pairs, Subject, Twin, assert_sound, bytes_of, small_options,
    small_tuning, tuned,
};

/// The files of a store, and what it holds.
pub(crate) struct Specimen {
    pub(crate) files: BTreeMap<String, Vec<u8>>,
    pub(crate) twin: Twin,
    /// All values that keys ever had, by keyspace.
    pub(crate) written: Vec<(usize, Vec<u8>, Vec<u8>)>,
    pub(crate) options: Options,
}

/// What became of a damaged store.
pub(crate) enum Outcome {
    /// It opened and could be read.
    Read(Vec<Pairs>),
    /// It did not open, or something in it could not be read.
    Refused(Error),
}

impl Specimen {
    /// A store with tables on several levels or spaces of many extents, records in its log and
    /// several keyspaces, the second of which does not compress, and a table that was ingested
    /// where the engine has ingests; closed cleanly, or left as the end of the process leaves it.
    pub(crate) fn new(engine: Engine, closed: bool) -> Specimen {
        let options = small_options()
            .engine(engine)
            .durability(gabion::Durability::Sync)
            .tuning(
                small_tuning()
                    .bucket_bytes(3 << 10)
                    .sublevels_min(4)
                    .sublevels_max(4),
            )
            .compression(Compression::Lz4);
        let options = match engine {
            // Files as small as can be, and a log whose tail moves.
            Engine::Flex => {
                tuned(options, |own| own.memtable_budget_bytes(16 << 10)).log_bytes_max(4 << 10)
            }
            _ => tuned(options, |own| own.memtable_budget_bytes(96 << 10)).log_bytes_max(1 << 20),
        };
        let sim = SimDisk::recording();
        let subject = Subject::open(&Disk::simulated(&sim), &options).unwrap();
        let mut twin = Twin::new(KEYSPACES.len());
        let mut written = Vec::new();
        let mut write = |number: u64| {
            let value = (number % 7 != 3).then(|| {
                let len = if number == 40 {
                    1_500
                } else {
                    10 + number % 50
                };
                let len = usize::try_from(len).unwrap();
                match number.is_multiple_of(3) {
                    true => bytes_of(number, len),
                    false => bytes_of(number, 4).repeat(len.div_ceil(4)).into(),
                }
            });
            let key = format!("key {:03}", number * 37 % 61).into_bytes();
            let keyspace = usize::from(number.is_multiple_of(3));
            if let Some(value) = &value {
                written.push((keyspace, key.clone(), value.to_vec()));
            }
            let operation = Operation::new(keyspace, key, value);
            subject
                .write(std::slice::from_ref(&operation), None)
                .unwrap();
            twin.apply(&operation);
        };
        for round in 0..3 {
            (round * 30..round * 30 + 30).for_each(&mut write);
            subject.db.flush().unwrap();
        }
        (100..112).for_each(&mut write);
        if engine.capabilities().ingest {
            let pairs: Vec<_> = (300..312)
                .map(|number| {
                    let key = format!("key {}", number - 240).into_bytes();
                    (key, bytes_of(number, 30).to_vec())
                })
                .collect();
            subject.keyspaces[2].ingest(pairs.iter().cloned()).unwrap();
            for (key, value) in pairs {
                written.push((2, key.clone(), value.clone()));
                twin.apply(&Operation::new(2, key, Some(value.into())));
            }
        }
        let sim = if closed {
            subject.db.close().unwrap();
            sim
        } else {
            sim.process_kill(sim.ops())
        };
        let names = sim.names();
        let files: BTreeMap<_, _> = names
            .into_iter()
            .map(|name| {
                let bytes = sim.raw(&name).unwrap();
                (name, bytes)
            })
            .collect();
        // The footer of a table is 64 bytes, and begins with a magic number, the version and the
        // features.
        let is_ingested = |(name, bytes): (&String, &Vec<u8>)| {
            name.ends_with(".tbl") && bytes[bytes.len() - 52] & 4 != 0
        };
        assert_eq!(files.iter().any(is_ingested), engine.capabilities().ingest);
        Specimen {
            files,
            twin,
            written,
            options,
        }
    }

    /// A disk with these files, some of them changed; `None` removes one.
    pub(crate) fn with(&self, changes: &[(&str, Option<&[u8]>)]) -> SimDisk {
        let sim = SimDisk::new();
        for (name, bytes) in &self.files {
            match changes.iter().find(|(changed, _)| changed == name) {
                Some((_, None)) => {}
                Some((_, Some(bytes))) => sim.set_raw(name, bytes.to_vec()),
                None => sim.set_raw(name, bytes.clone()),
            }
        }
        sim
    }

    /// Opens a disk and reads everything in it, with tables mapped and through the cache: the
    /// outcome is the same.
    pub(crate) fn open(&self, sim: &SimDisk) -> Outcome {
        let copy = sim.process_kill(sim.ops());
        let mapped = self.read(sim, TableReads::Mapped);
        let cached = self.read(&copy, TableReads::Cached);
        match (mapped, cached) {
            (Ok(mapped), Ok(cached)) => {
                assert!(mapped == cached, "mapped tables and cached ones differ");
                Outcome::Read(mapped)
            }
            (Err(mapped), Err(cached)) => {
                assert_eq!(mapped.to_string(), cached.to_string());
                Outcome::Refused(mapped)
            }
            (mapped, cached) => panic!("mapped: {:?}; cached: {:?}", mapped.err(), cached.err()),
        }
    }

    fn read(&self, sim: &SimDisk, table_reads: TableReads) -> Result<Vec<Pairs>, Error> {
        let options = self.options.clone().table_reads(table_reads);
        assert_sound(&Db::open_on(Disk::simulated(sim), options)?)
    }
}

/// What `check` says of a disk: its problems as sentences that begin with the file.
pub(crate) fn problems(sim: &SimDisk) -> Vec<String> {
    match gabion::check_disk(&Disk::simulated(sim)) {
        Ok(report) => {
            let sentence = |problem: &gabion::Problem| {
                format!(
                    "{}, offset {:?}: {}",
                    problem.file.display(),
                    problem.offset,
                    problem.what
                )
            };
            report.problems.iter().map(sentence).collect()
        }
        Err(error) => vec![error.to_string()],
    }
}
