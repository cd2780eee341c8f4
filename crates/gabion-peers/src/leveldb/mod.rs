//! LevelDB 1.23, a log-structured merge tree in C++, through Debian's library and its C interface.
//!
//! **Guide**: LevelDB's `doc/index.md` and `options.h`. From them: filters of ten bits per key, a
//! block cache, one open file per 2 MB of data, a write buffer larger than the default of 4 MiB.
//! Index and filter blocks live outside of the block cache, with the open files.
//!
//! **Durability**: the log is written at each write and synced only for synced ones.
//!
//! **Reads** get a copy of the value, made for the caller: the C interface has no other form, and
//! the one in C++ copies as well. Checksums are checked when a block is read from its file, as all
//! stores here do that have some.
//!
//! **Settling** is watched from outside: LevelDB is at rest when no level holds more than it may.
//! Its own counts of bytes are whole megabytes and lack the log, so none are given.

use std::hint::black_box;
use std::thread::sleep;
use std::time::Duration;

use gabion_lab::Error;
use gabion_lab::target::{Batch, Cache, Counters, Session, Steps, Store, StoreOptions, Target};
use serde_json::{Value, json};

use crate::{ABILITIES, LOSES_UNSYNCED, check_existing, peer_error, saturated, write_buffer_bytes};

#[expect(unsafe_code, reason = "calls C")]
mod ffi;

const NAME: &str = "leveldb";

pub(crate) const TARGET: Target = Target {
    name: NAME,
    about: "LevelDB 1.23, a log-structured merge tree in C++",
    abilities: ABILITIES,
    cache: Cache::Own,
    loses: LOSES_UNSYNCED,
    open,
};

/// Bits per key of the filters: one false positive in a hundred.
const FILTER_BITS: i32 = 10;

/// Size of a table, LevelDB's default.
const TABLE_BYTES: u64 = 2 << 20;

/// Open files at least, LevelDB's default.
const OPEN_FILES_MIN: u64 = 1000;

/// Tables of level 0 from which on they are compacted.
const LEVEL_0_TABLES: u64 = 4;

/// Size of level 1 from which on it is compacted; each further level may have ten times as much.
const LEVEL_1_MEGABYTES: u64 = 10;

/// A key beyond those of any workload, so that compacting it alone touches no table.
const LAST_KEY: [u8; 64] = [0xff; 64];

/// Time between two looks at the levels.
const LOOK: Duration = Duration::from_millis(50);

/// So many looks at unchanged levels are taken for rest, whatever the sizes are: LevelDB prints
/// them rounded.
const LOOKS_UNCHANGED: usize = 100;

pub(crate) struct LevelDb {
    db: ffi::Db,
    settings: Value,
}

fn fail(error: impl std::fmt::Display) -> Error {
    peer_error(NAME, error)
}

fn open(asked: &StoreOptions) -> Result<Box<dyn Store>, Error> {
    Ok(Box::new(LevelDb::open(asked)?))
}

impl LevelDb {
    fn open(asked: &StoreOptions) -> Result<LevelDb, Error> {
        check_existing(NAME, asked, "CURRENT")?;
        let tables = asked.records.saturating_mul(asked.record_bytes) / TABLE_BYTES;
        let settings = ffi::Settings {
            existing: asked.existing,
            write_buffer_bytes: saturated(write_buffer_bytes(asked)),
            cache_bytes: saturated(asked.cache_bytes),
            open_files_max: saturated(OPEN_FILES_MIN.saturating_add(tables)),
            filter_bits: FILTER_BITS,
        };
        let db = ffi::Db::open(&asked.dir, &settings).map_err(fail)?;
        let (major, minor) = ffi::version();
        let settings = json!({
            "guide": "LevelDB's doc/index.md and options.h",
            "version": format!("{major}.{minor}"),
            "compression": "none",
            "write_buffer_size": settings.write_buffer_bytes,
            "block_cache_bytes": settings.cache_bytes,
            "filter_bits_per_key": FILTER_BITS,
            "block_size": "4096 (default)",
            "max_file_size": "2 MiB (default)",
            "max_open_files": settings.open_files_max,
            "verify_checksums": true,
            "threads": "one in the background, LevelDB has no choice",
            "put": "log written, not synced",
            "put_synced": "log synced",
        });
        Ok(LevelDb { db, settings })
    }

    /// All records, by LevelDB's own iterator.
    #[cfg(test)]
    pub(crate) fn contents(asked: &StoreOptions) -> crate::tests::Map {
        let store = LevelDb::open(asked).unwrap();
        let mut walk = store.db.entries(&ffi::Read::new(true), b"");
        let mut map = crate::tests::Map::new();
        while let Some((key, value)) = walk.entry() {
            map.insert(key.to_vec(), value.to_vec());
            walk.advance();
        }
        walk.status().unwrap();
        map
    }

    /// The tables and megabytes of each level, as LevelDB prints them.
    fn levels(&self) -> Result<Vec<Level>, Error> {
        let stats = self.db.property(c"leveldb.stats");
        let stats = stats.ok_or_else(|| fail("it has no property leveldb.stats"))?;
        Ok(stats.lines().filter_map(Level::parse).collect())
    }
}

/// What LevelDB says of one level.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Level {
    number: u32,
    tables: u64,
    megabytes: u64,
}

impl Level {
    /// Reads a line of numbers: level, tables, megabytes and three more. Titles give `None`.
    fn parse(line: &str) -> Option<Level> {
        let mut words = line.split_whitespace();
        let level = Level {
            number: words.next()?.parse().ok()?,
            tables: words.next()?.parse().ok()?,
            megabytes: words.next()?.parse().ok()?,
        };
        (words.count() == 3).then_some(level)
    }

    /// Whether LevelDB would compact it.
    fn is_due(&self) -> bool {
        match self.number {
            0 => self.tables >= LEVEL_0_TABLES,
            // The last level has no limit.
            6.. => false,
            number => self.megabytes >= LEVEL_1_MEGABYTES * 10_u64.pow(number - 1),
        }
    }
}

impl Store for LevelDb {
    fn session(&self) -> Result<Box<dyn Session + '_>, Error> {
        Ok(Box::new(LevelDbSession {
            db: &self.db,
            read: ffi::Read::new(true),
            unsynced: ffi::Write::new(false),
            synced: ffi::Write::new(true),
            records: ffi::RecordBatch::new(),
        }))
    }

    fn settle(&self) -> Result<(), Error> {
        self.db.compact(&LAST_KEY, &LAST_KEY);
        let mut before = Vec::new();
        let mut looks_unchanged = 0;
        while looks_unchanged < LOOKS_UNCHANGED {
            let levels = self.levels()?;
            if levels == before {
                looks_unchanged += 1;
                if !levels.iter().any(Level::is_due) {
                    break;
                }
            } else {
                looks_unchanged = 0;
            }
            before = levels;
            sleep(LOOK);
        }
        Ok(())
    }

    fn compact(&self) -> Result<(), Error> {
        self.db.compact(&[], &LAST_KEY);
        self.settle()
    }

    fn counters(&self) -> Result<Counters, Error> {
        Ok(Counters::default())
    }

    fn settings(&self) -> Value {
        self.settings.clone()
    }

    fn close(self: Box<Self>) -> Result<(), Error> {
        // Tables are synced when they are complete; what is in memory only becomes one.
        self.db.compact(&LAST_KEY, &LAST_KEY);
        Ok(())
    }
}

struct LevelDbSession<'a> {
    db: &'a ffi::Db,
    read: ffi::Read,
    unsynced: ffi::Write,
    synced: ffi::Write,
    records: ffi::RecordBatch,
}

impl LevelDbSession<'_> {
    /// Puts the records of a batch together as LevelDB takes them.
    fn collect(&mut self, batch: &Batch) {
        self.records.clear();
        for (key, value) in batch.iter() {
            match value {
                Some(value) => self.records.put(key, value),
                None => self.records.delete(key),
            }
        }
    }
}

impl Session for LevelDbSession<'_> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        self.db.put(&self.unsynced, key, value).map_err(fail)
    }

    fn put_synced(&mut self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        self.db.put(&self.synced, key, value).map_err(fail)
    }

    fn write(&mut self, batch: &Batch) -> Result<(), Error> {
        self.collect(batch);
        let write = self.db.write(&self.unsynced, &mut self.records);
        write.map_err(fail)
    }

    fn write_synced(&mut self, batch: &Batch) -> Result<(), Error> {
        self.collect(batch);
        let write = self.db.write(&self.synced, &mut self.records);
        write.map_err(fail)
    }

    fn delete(&mut self, key: &[u8]) -> Result<(), Error> {
        self.db.delete(&self.unsynced, key).map_err(fail)
    }

    fn get(&mut self, key: &[u8]) -> Result<bool, Error> {
        let value = self.db.get(&self.read, key).map_err(fail)?;
        Ok(value.inspect(|value| _ = black_box(&**value)).is_some())
    }

    fn scan(&mut self, from: &[u8], entries: usize) -> Result<usize, Error> {
        self.steps(from)?(entries)
    }

    fn steps(&mut self, from: &[u8]) -> Result<Steps<'_>, Error> {
        let walk = self.db.entries(&self.read, from);
        Ok(steps_with(walk, ffi::Entries::advance))
    }

    fn steps_back(&mut self, from: &[u8]) -> Result<Steps<'_>, Error> {
        let walk = self.db.entries_back(&self.read, from);
        Ok(steps_with(walk, ffi::Entries::retreat))
    }
}

/// Steps from where the walk is, each by `advance`.
fn steps_with<'a>(mut walk: ffi::Entries<'a>, advance: fn(&mut ffi::Entries<'a>)) -> Steps<'a> {
    let mut is_first = true;
    Box::new(move |entries| {
        let mut count = 0;
        while count < entries {
            // Moves before an entry is read, so that no entry is reached that nobody asked for.
            if !std::mem::take(&mut is_first) {
                advance(&mut walk);
            }
            let Some(entry) = walk.entry() else {
                break;
            };
            black_box(entry);
            count += 1;
        }
        walk.status().map_err(fail)?;
        Ok(count)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_read_from_what_leveldb_prints() {
        let stats = "                               Compactions\n\
                     Level  Files Size(MB) Time(sec) Read(MB) Write(MB)\n\
                     --------------------------------------------------\n  \
                     0        3       37         1        0        99\n  \
                     2       57      112         4      198       155\n";
        let levels: Vec<_> = stats.lines().filter_map(Level::parse).collect();
        let level = |number, tables, megabytes| Level {
            number,
            tables,
            megabytes,
        };
        assert_eq!(levels, [level(0, 3, 37), level(2, 57, 112)]);
        assert_eq!(
            levels.iter().map(Level::is_due).collect::<Vec<_>>(),
            [false, true]
        );
        assert!(level(0, 4, 1).is_due());
        assert!(!level(1, 9, 9).is_due());
        assert!(!level(6, 1, 1 << 40).is_due());
    }
}
