//! The store below the server: its keyspaces, and its state in memory.
//!
//! | keyspace | key | value |
//! |---|---|---|
//! | `keys` | database, user's key | [the record](meta) |
//! | `elements` | database, number of the collection, element | what the type's family keeps |
//! | `expiring` | moment, database, user's key | nothing |
//! | `garbage` | database, number of a collection that is dead | nothing |
//! | `server` | a name | settings of the store: the format, numbers given out, counts |

pub(crate) mod building;
pub(crate) mod elements;
pub(crate) mod hash;
pub(crate) mod keys;
pub(crate) mod list;
pub(crate) mod members;
pub(crate) mod meta;
pub(crate) mod packed;
pub(crate) mod scored;
pub(crate) mod sizes;
pub(crate) mod stream;
pub(crate) mod sweep;
pub(crate) mod work;

use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::time::Duration;

use gabion::{Db, Durability, Keyspace, Options};
use parking_lot::Mutex;

use crate::config::Config;
use crate::fault::Result;
use sizes::DatabaseSizes;

/// What stands under [`FORMAT_KEY`].
const FORMAT: &[u8] = b"1";

const FORMAT_KEY: &str = "format";
const PROBE_KEY: &str = "probe";
const NUMBERS_KEY: &str = "numbers";
/// What the keys of libraries begin with.
const LIBRARY_PREFIX: &[u8] = b"library:";
/// What the keys of users begin with.
const USER_PREFIX: &[u8] = b"user:";
/// Which database of the store each database is.
pub(crate) const SPACES_KEY: &[u8] = b"databases";

/// Numbers that are reserved at a time: as many are lost by a crash.
const NUMBERS_AT_ONCE: u64 = 1 << 16;

/// The store.
#[derive(Debug)]
pub(crate) struct Store {
    /// The store itself.
    pub(crate) db: Db,
    /// Records of keys.
    pub(crate) keys: Keyspace,
    /// Elements of large collections.
    pub(crate) elements: Keyspace,
    /// Keys by the moments at which they expire.
    pub(crate) expiring: Keyspace,
    /// Collections whose elements are to be removed.
    pub(crate) garbage: Keyspace,
    /// Settings.
    settings: Keyspace,
    /// Up to how many bytes a collection is kept in the record of its key.
    pub(crate) packed_bytes_max: usize,
    /// How many keys each database has.
    pub(crate) sizes: DatabaseSizes,
    /// The database, in the store, of each database that clients select.
    spaces: Box<[AtomicU16]>,
    numbers: AtomicU64,
    numbers_end: Mutex<u64>,
}

impl Store {
    /// Opens the store in a directory, with so many databases. A power loss costs a second at most.
    ///
    /// # Errors
    /// As [`Options::open`]; and for a store of another format.
    pub(crate) fn open(config: &Config) -> Result<Store> {
        let db = Options::default()
            .durability(Durability::Interval(Duration::from_secs(1)))
            .memory_bytes_max(config.memory_bytes_max)
            .open(&config.db)?;
        let settings = db.keyspace("server")?;
        match settings.get(FORMAT_KEY)? {
            None => settings.put(FORMAT_KEY, FORMAT)?,
            Some(format) if &*format == FORMAT => {}
            Some(_) => {
                return Err(crate::fault::Fault::line(
                    "ERR the store was written by a newer server: use that one",
                ));
            }
        }
        let numbers = match settings.get(NUMBERS_KEY)?.as_deref() {
            Some(bytes) => bytes
                .first_chunk()
                .map_or(1, |bytes| u64::from_le_bytes(*bytes)),
            None => 1,
        };
        let spaces = read_spaces(&settings, config.databases)?;
        let keys = db.keyspace("keys")?;
        let sizes = DatabaseSizes::open(&keys, &settings, usize::from(config.databases))?;
        Ok(Store {
            elements: db.keyspace("elements")?,
            expiring: db.keyspace("expiring")?,
            garbage: db.keyspace("garbage")?,
            keys,
            packed_bytes_max: config.packed_bytes_max,
            settings,
            sizes,
            spaces,
            numbers: AtomicU64::new(numbers),
            numbers_end: Mutex::new(numbers),
            db,
        })
    }

    /// How many databases clients can select.
    pub(crate) fn databases(&self) -> usize {
        self.spaces.len()
    }

    /// The database of the store behind one that clients select.
    pub(crate) fn space(&self, database: usize) -> u16 {
        // ORDER: Relaxed; it changes under the gate only, which readers hold.
        self.spaces[database].load(Ordering::Relaxed)
    }

    /// The database that clients select, of one of the store.
    pub(crate) fn database_of(&self, space: u16) -> Option<usize> {
        (0..self.databases()).find(|database| self.space(*database) == space)
    }

    /// Exchanges two databases, under the gate.
    pub(crate) fn exchange(&self, one: usize, other: usize) {
        let (first, second) = (self.space(one), self.space(other));
        // ORDER: Relaxed (both), as in `space`.
        self.spaces[one].store(second, Ordering::Relaxed);
        self.spaces[other].store(first, Ordering::Relaxed);
    }

    /// What is stored of which database each database is.
    pub(crate) fn spaces_record(&self) -> Vec<u8> {
        let spaces = (0..self.databases()).map(|index| self.space(index));
        spaces.flat_map(u16::to_le_bytes).collect()
    }

    /// A number that no collection of the store has had.
    ///
    /// # Errors
    /// As [`Keyspace::put`].
    pub(crate) fn next_number(&self) -> Result<u64> {
        // ORDER: Relaxed (all); the number only has to differ, and the end has a lock.
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        let mut end = self.numbers_end.lock();
        if number >= *end {
            let next = number + NUMBERS_AT_ONCE;
            self.settings.put(NUMBERS_KEY, next.to_le_bytes())?;
            *end = next;
        }
        Ok(number)
    }

    /// The names and programs of the libraries of functions.
    ///
    /// # Errors
    /// As [`Keyspace::get`].
    pub(crate) fn libraries(&self) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        self.named(LIBRARY_PREFIX)
    }

    /// The names and rules of users.
    ///
    /// # Errors
    /// As [`Keyspace::get`].
    pub(crate) fn users(&self) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        self.named(USER_PREFIX)
    }

    /// Gives a user rules before clients come.
    ///
    /// # Errors
    /// As [`Keyspace::put`].
    pub(crate) fn put_user(&self, name: &[u8], rules: &[u8]) -> Result<()> {
        Ok(self.settings.put(user_key(name), rules)?)
    }

    /// The settings whose keys begin like that, by what follows.
    fn named(&self, prefix: &[u8]) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let mut found = Vec::new();
        for pair in self.settings.prefix(prefix) {
            let (key, value) = pair?;
            let name = key.get(prefix.len()..).unwrap_or_default();
            found.push((name.to_vec(), value.to_vec()));
        }
        Ok(found)
    }

    /// Finds out whether the store takes writes, by one.
    ///
    /// # Errors
    /// As [`Keyspace::put`].
    pub(crate) fn probe(&self) -> Result<()> {
        Ok(self.settings.put(PROBE_KEY, [])?)
    }

    /// Notes the counts down, and closes the store.
    ///
    /// # Errors
    /// As [`Db::close`].
    pub(crate) fn close(&self) -> Result<()> {
        self.sizes.save(&self.settings)?;
        self.db.clone().close()?;
        Ok(())
    }
}

/// The key of a library of functions.
pub(crate) fn library_key(name: &[u8]) -> Vec<u8> {
    [LIBRARY_PREFIX, name].concat()
}

/// The key of a user.
pub(crate) fn user_key(name: &[u8]) -> Vec<u8> {
    [USER_PREFIX, name].concat()
}

/// Which database of the store each database is, as the last `SWAPDB` has left them.
fn read_spaces(settings: &Keyspace, databases: u16) -> Result<Box<[AtomicU16]>> {
    let stored = settings.get(SPACES_KEY)?;
    let stored: Vec<u16> = stored
        .as_deref()
        .unwrap_or_default()
        .chunks_exact(2)
        .filter_map(|bytes| bytes.first_chunk())
        .map(|bytes| u16::from_le_bytes(*bytes))
        .collect();
    let space = |index: u16| stored.get(usize::from(index)).copied().unwrap_or(index);
    Ok((0..databases)
        .map(|index| AtomicU16::new(space(index)))
        .collect())
}
