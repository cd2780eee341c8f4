//! What the fuzz targets share: a store in memory, one of whose files the fuzzer writes.
//!
//! A target opens the store with that file, reads all of it, writes to it, and has it do its
//! background work. Whatever the file holds, the store may refuse it or hold nonsense, but it must
//! not panic, hang, or ask for memory beyond what the file could fill. Checksums are out of the
//! way (`gabion_media::crc32c`).

use gabion::{Compression, Db, Durability, Engine, Options, Result, Tuning};
use gabion_media::{Disk, SimDisk};

/// A target: its name, and whose file it is.
pub struct Target {
    /// The name, which is that of the program.
    pub name: &'static str,
    engine: Engine,
    is_file: fn(&str) -> bool,
}

/// All targets.
pub const TARGETS: [Target; 7] = [
    Target::new("log", Engine::Wip, |name| name.ends_with(".log")),
    Target::new("manifest", Engine::Wip, |name| {
        name.starts_with("manifest-")
    }),
    Target::new("table", Engine::Wip, |name| name.ends_with(".tbl")),
    Target::new("flex_tree", Engine::Flex, |name| name.ends_with("TREE")),
    Target::new("flex_log", Engine::Flex, |name| {
        name.contains('-') && name.ends_with(".log")
    }),
    Target::new("flex_data", Engine::Flex, |name| name.ends_with("DATA")),
    Target::new("flex_root", Engine::Flex, |name| name == "FLEXDB"),
];

impl Target {
    const fn new(name: &'static str, engine: Engine, is_file: fn(&str) -> bool) -> Target {
        Target {
            name,
            engine,
            is_file,
        }
    }

    /// The target of a name.
    ///
    /// # Panics
    /// When there is none.
    pub fn named(name: &str) -> &'static Target {
        let found = TARGETS.iter().find(|target| target.name == name);
        found.expect("the programs have the targets' names")
    }

    /// The files of the kind that the fuzzer writes, as sound stores have them.
    pub fn seeds(&self) -> Vec<Vec<u8>> {
        let files = Specimen::new(self).files.into_iter();
        let ours = files.filter(|(name, _)| (self.is_file)(name));
        ours.map(|(_, bytes)| bytes).collect()
    }
}

/// The files of a store.
pub struct Specimen {
    files: Vec<(String, Vec<u8>)>,
    /// Position of the one that the fuzzer writes: the last one of its kind.
    target: usize,
    options: Options,
}

impl Specimen {
    /// A small store with tables, or extents, and records in its log, as the end of the process
    /// leaves it.
    ///
    /// # Panics
    /// When such a store has no file of the target's kind.
    pub fn new(target: &Target) -> Specimen {
        let options = Options::default()
            .engine(target.engine)
            .durability(Durability::Sync)
            .background_threads(0)
            .compression(Compression::Lz4)
            .tuning(
                Tuning::default()
                    .memtable_budget_bytes(4 << 10)
                    .bucket_bytes(2 << 10)
                    .block_bytes(128)
                    .cache_bytes(64 << 10),
            )
            .log_bytes_max(16 << 10)
            .memory_bytes_max(1 << 20);
        let sim = SimDisk::recording();
        let db = fill(&sim, &options).expect("a sound disk takes all");
        let sim = sim.process_kill(sim.ops());
        drop(db);
        let names = sim.names().into_iter();
        let files: Vec<_> = names
            .map(|name| (name.clone(), sim.raw(&name).expect("a name has a file")))
            .collect();
        let of_kind = files
            .iter()
            .rposition(|(name, _)| (target.is_file)(name))
            .unwrap_or_else(|| panic!("no file for {}", target.name));
        Specimen {
            target: of_kind,
            files,
            options,
        }
    }

    /// Opens the store with these bytes in the fuzzer's file, and uses it.
    pub fn strike(&self, bytes: &[u8]) {
        let sim = SimDisk::new();
        for (number, (name, sound)) in self.files.iter().enumerate() {
            let bytes = match number == self.target {
                true => bytes,
                false => sound,
            };
            sim.set_raw(name, bytes.to_vec());
        }
        // An error is as good an end as any other.
        let _ = self.use_all(&Disk::simulated(&sim));
    }

    fn use_all(&self, disk: &Disk) -> Result<()> {
        let db = Db::open_on(disk.clone(), self.options.clone())?;
        for name in db.keyspace_names() {
            let keyspace = db.keyspace(&name)?;
            // Each pair by itself: one that cannot be read does not end the rest.
            let pairs = keyspace.iter().take(10_000).flatten();
            let keys: Vec<_> = pairs.map(|(key, _)| key).collect();
            for key in keys {
                let _ = keyspace.get(&key);
            }
            keyspace.put("key 33", "new")?;
            let _ = keyspace.iter().rev().take(10_000).count();
            keyspace.delete_range("key 40".."key 45")?;
            db.flush()?;
            keyspace.compact::<&[u8]>(..)?;
        }
        db.close()
    }
}

fn fill(sim: &SimDisk, options: &Options) -> Result<Db> {
    let db = Db::open_on(Disk::simulated(sim), options.clone())?;
    let keyspaces = [
        db.keyspace(gabion::DEFAULT_KEYSPACE)?,
        db.keyspace("second")?,
    ];
    for number in 0..70_u64 {
        let keyspace = &keyspaces[usize::from(number.is_multiple_of(3))];
        let key = format!("key {:02}", number * 37 % 41);
        match number % 7 {
            3 => keyspace.delete(key)?,
            5 => keyspace.put(key, format!("{number}").repeat(20))?,
            _ => keyspace.put(key, number.to_le_bytes())?,
        }
        if number % 30 == 29 {
            keyspace.delete_range(format!("key {}", number % 40)..)?;
            db.flush()?;
        }
    }
    Ok(db)
}

/// The program of a target.
#[macro_export]
macro_rules! fuzz {
    ($name:literal) => {
        static SPECIMEN: std::sync::LazyLock<$crate::Specimen> =
            std::sync::LazyLock::new(|| $crate::Specimen::new($crate::Target::named($name)));

        libfuzzer_sys::fuzz_target!(|bytes: &[u8]| SPECIMEN.strike(bytes));
    };
}
