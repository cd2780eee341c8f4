//! A file of Redis or Valkey into the store of a server.
//!
//! # Idea
//! The file is read from front to back. Its keys go into batches, each of which is one write of the
//! store; a large value takes several, and is in memory for one batch at a time
//! ([`Building`]). No server may have the store open, so nobody else reads or writes it.
//!
//! # Invariants
//! - I1. A key takes the place of whatever the store has under it, and one that has expired takes
//!   it away: as by `RESTORE` with `REPLACE`.
//! - I2. A batch has no key twice, since it does not see its own writes.
//!
//! # Recovery
//! A load that was ended, by a kill too, leaves the keys that it came to; the last one may have a
//! part of its value. To load the file again makes all of them what they are in it.

use std::collections::HashSet;
use std::io::{self, BufReader, Read};
use std::sync::Arc;

use gabion::Durability;

use crate::clients::now_ms;
use crate::commands::functions::prepare;
use crate::config::Config;
use crate::fault::{Fault, Result};
use crate::rdb::{File, Key, Part, Refused};
use crate::script::Scripts;
use crate::store::building::Building;
use crate::store::keys::KEY_BYTES_MAX;
use crate::store::work::{Room, Work, WorkMode};
use crate::store::{Store, library_key};

/// Bytes that are read in one go.
const READ_BYTES: usize = 64 << 10;

/// Bytes after which a batch is written.
const BATCH_BYTES: usize = 1 << 20;

/// What a key and a part of a value are taken to cost besides their bytes.
const RECORD_BYTES: usize = 64;

/// Keys between two looks at how far it is.
const SHOWN_EVERY: u64 = 1024;

/// What a file has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Loaded {
    /// Keys that are in the store, or would be.
    pub keys: u64,
    /// Keys that are not: they have expired, or have nothing.
    pub left_out: u64,
    /// Libraries of functions.
    pub libraries: u64,
    /// Modules whose data were left out, by their names.
    pub modules: Vec<String>,
}

/// Why a file is not loaded, or not to its end.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// It is no file of Redis or Valkey, it is damaged, or it has what the server does not.
    #[error("{what} (at byte {offset})")]
    Refused {
        /// A sentence.
        what: String,
        /// Bytes that were read before.
        offset: u64,
    },
    /// It cannot be read.
    #[error("it cannot be read: {0}")]
    Read(io::Error),
    /// The store does not take it.
    #[error("{0}")]
    Store(String),
}

/// Reads a file of Redis or Valkey to its end, and stores nothing: what it has, or what is wrong
/// with it. `shows` is told now and then how far it is.
///
/// # Errors
/// For a file that [`load_rdb`] would refuse, but for programs of functions, and for what the store
/// itself refuses.
pub fn check_rdb(
    config: &Config,
    input: impl Read,
    shows: &mut dyn FnMut(&Loaded),
) -> Result<Loaded, LoadError> {
    let mut file = open(input)?;
    let read = pass(&mut file, config.databases, None, shows);
    read.map_err(|refused| failed(refused, file.offset()))
}

/// Loads a file of Redis or Valkey (RDB, of Redis' versions 1 to 12 and of Valkey's 80) into the
/// store that a server is given with this configuration. Keys that the store has already are
/// replaced; those that have expired are not there any more. `shows` is told now and then how far
/// it is.
///
/// A batch of about a megabyte is written at this durability, and all of them are synced at the
/// end. What is read element by element takes no more memory than a batch; a value that the file
/// has as one string, as small collections are, is in memory as a whole.
///
/// # Errors
/// When the file is damaged, of another version, or has what the server does not know; then keys
/// before that may be in the store. When the store cannot be opened, or does not take it.
pub fn load_rdb(
    config: &Config,
    durability: Durability,
    input: impl Read,
    shows: &mut dyn FnMut(&Loaded),
) -> Result<Loaded, LoadError> {
    let stored = |fault: Fault| LoadError::Store(fault.sentence());
    // What is no such file makes no store.
    let mut file = open(input)?;
    let store = Arc::new(Store::open(config).map_err(stored)?);
    let mut target = Target::new(&store, durability);
    let read = pass(&mut file, config.databases, Some(&mut target), shows);
    let read = read.and_then(|loaded| {
        target.commit()?;
        Ok(loaded)
    });
    target.work.discard();
    let loaded = read.map_err(|refused| failed(refused, file.offset()));
    // DURABLE: after this all that was loaded survives a power loss.
    let synced = store.db.persist(Durability::Sync).map_err(Fault::from);
    let closed = store.close();
    let loaded = loaded?;
    synced.and(closed).map_err(stored)?;
    Ok(loaded)
}

fn open<R: Read>(input: R) -> Result<File<BufReader<R>>, LoadError> {
    let input = BufReader::with_capacity(READ_BYTES, input);
    File::open(input).map_err(|refused| failed(refused, 0))
}

fn failed(refused: Refused, offset: u64) -> LoadError {
    let what = match refused {
        Refused::Unread(cause) => return LoadError::Read(cause),
        Refused::Fault(fault) => return LoadError::Store(fault.sentence()),
        Refused::Cut => "it ends too soon".to_owned(),
        Refused::Foot => "its checksum is of other bytes, it is damaged".to_owned(),
        Refused::Empty => "a collection has nothing".to_owned(),
        Refused::Broken(what) => what.to_owned(),
        Refused::Unknown(what) => what,
    };
    LoadError::Refused { what, offset }
}

/// Reads a file to its end, into a store if there is one.
fn pass<R: Read>(
    file: &mut File<R>,
    databases: u16,
    mut target: Option<&mut Target>,
    shows: &mut dyn FnMut(&Loaded),
) -> Result<Loaded, Refused> {
    let mut loaded = Loaded::default();
    let now_ms = now_ms();
    while let Some(part) = file.next()? {
        match part {
            Part::Module(name) => {
                if !loaded.modules.contains(&name) {
                    loaded.modules.push(name);
                }
            }
            Part::Library(code) => {
                if let Some(target) = &mut target {
                    target.library(&code)?;
                }
                loaded.libraries += 1;
            }
            Part::Key(key) => {
                let database = check(&key, databases)?;
                let is_expired = key.expires_ms.is_some_and(|moment| moment <= now_ms);
                let is_there = match &mut target {
                    Some(target) => target.key(file, &key, database, is_expired)?,
                    None => has_something(file.value(&key, &mut |_| Ok(())))? && !is_expired,
                };
                match is_there {
                    true => loaded.keys += 1,
                    false => loaded.left_out += 1,
                }
                if (loaded.keys + loaded.left_out).is_multiple_of(SHOWN_EVERY) {
                    shows(&loaded);
                }
            }
        }
    }
    file.expect_end()?;
    Ok(loaded)
}

/// The database of a key that can be stored.
fn check(key: &Key, databases: u16) -> Result<usize, Refused> {
    let length = key.name.len();
    if length > KEY_BYTES_MAX {
        return Err(Refused::Unknown(format!(
            "a key of {length} bytes, and the server takes keys up to {KEY_BYTES_MAX}"
        )));
    }
    let database = usize::try_from(key.database).ok();
    let database = database.filter(|database| *database < usize::from(databases));
    database.ok_or_else(|| {
        Refused::Unknown(format!(
            "a key of database {}, and the server is to have {databases} databases: ask for more \
             with --databases, here and where it is served",
            key.database
        ))
    })
}

/// False for a collection that has nothing, which old versions could write.
fn has_something(read: Result<(), Refused>) -> Result<bool, Refused> {
    match read {
        Ok(()) => Ok(true),
        Err(Refused::Empty) => Ok(false),
        Err(refused) => Err(refused),
    }
}

/// The store that is loaded into.
struct Target {
    store: Arc<Store>,
    scripts: Scripts,
    work: Work,
    durability: Durability,
    /// Keys of the batch, each with its database in the store.
    keys: HashSet<(u16, Vec<u8>)>,
    /// What the batch is taken to have, in bytes.
    bytes: usize,
}

impl Target {
    fn new(store: &Arc<Store>, durability: Durability) -> Target {
        let mut work = Work::new(Arc::clone(store));
        work.begin(WorkMode::Direct, now_ms(), false);
        Target {
            store: Arc::clone(store),
            scripts: Scripts::default(),
            work,
            durability,
            keys: HashSet::new(),
            bytes: 0,
        }
    }

    fn library(&mut self, code: &[u8]) -> Result<(), Refused> {
        let mut engine = self.scripts.engine(&self.store)?;
        let made = prepare(&mut engine, code, true, &Default::default());
        let (name, made) = made.map_err(|fault| {
            let why = fault.sentence();
            Refused::Unknown(format!("a library of functions that does not load: {why}"))
        })?;
        self.work
            .write(Room::Settings, &library_key(&name), Some(code))?;
        engine.libraries.insert(name, made);
        Ok(())
    }

    /// Takes a key and its value; returns whether it is there then.
    fn key<R: Read>(
        &mut self,
        file: &mut File<R>,
        key: &Key,
        database: usize,
        is_expired: bool,
    ) -> Result<bool, Refused> {
        let space = self.store.space(database);
        if self.keys.contains(&(space, key.name.clone())) {
            self.commit()?;
        }
        self.keys.insert((space, key.name.clone()));
        self.bytes += key.name.len() + RECORD_BYTES;
        let mut building = Building::new(space, &key.name, key.kind, key.expires_ms);
        let read = file.value(key, &mut |piece| {
            if is_expired {
                return Ok(());
            }
            building.take(&mut self.work, &piece)?;
            self.bytes += piece.bytes() + RECORD_BYTES;
            if self.bytes >= BATCH_BYTES {
                building.save(&mut self.work)?;
                self.commit()?;
                self.keys.insert((space, key.name.clone()));
            }
            Ok(())
        });
        has_something(read)?;
        building.save(&mut self.work)?;
        if !building.is_saved() {
            self.work.remove(space, &key.name)?;
        }
        if self.bytes >= BATCH_BYTES {
            self.commit()?;
        }
        Ok(building.is_saved())
    }

    /// Writes the batch.
    fn commit(&mut self) -> Result<()> {
        let now_ms = self.work.now_ms;
        self.work.commit(self.durability)?;
        self.work.begin(WorkMode::Direct, now_ms, false);
        self.keys.clear();
        self.bytes = 0;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::dump::value_of;
    use crate::rdb::{Value, write};

    const NEVER: u64 = 1 << 50;

    /// A file of parts that are bytes already, without a checksum.
    fn file(parts: &[&[u8]]) -> Vec<u8> {
        let mut file = b"REDIS0011".to_vec();
        for part in parts {
            file.extend_from_slice(part);
        }
        file.push(255);
        file.extend_from_slice(&[0; 8]);
        file
    }

    /// A key of less than 64 bytes and its value.
    fn key(name: &str, value: &Value) -> Vec<u8> {
        let payload = write(value);
        let (form, value) = payload[..payload.len() - 10].split_first().unwrap();
        let mut part = vec![*form, u8::try_from(name.len()).unwrap()];
        part.extend_from_slice(name.as_bytes());
        part.extend_from_slice(value);
        part
    }

    fn expiring(moment: u64, key: &[u8]) -> Vec<u8> {
        [&[252][..], &moment.to_le_bytes(), key].concat()
    }

    fn string(text: &str) -> Value {
        Value::String(text.as_bytes().to_vec())
    }

    fn numbered(count: u32, name: &str) -> impl Iterator<Item = Vec<u8>> {
        (0..count).map(move |number| format!("{name} {number}").into_bytes())
    }

    /// One of each large type.
    fn large() -> Vec<(&'static str, Value)> {
        let members = || numbered(30_000, "a member of some length");
        let scores = (0..).map(|number: i32| f64::from(number % 1000));
        let moments = (0..).map(|number: u64| number.is_multiple_of(3).then_some(NEVER + number));
        vec![
            ("list", Value::List(members().collect())),
            ("set", Value::Set(members().collect())),
            ("zset", Value::SortedSet(members().zip(scores).collect())),
            (
                "hash",
                Value::Hash(
                    members()
                        .zip(moments)
                        .map(|(field, moment)| (field.clone(), field, moment))
                        .collect(),
                ),
            ),
        ]
    }

    fn config(dir: &tempfile::TempDir) -> Config {
        Config::new(dir.path().join("store"))
    }

    fn load(config: &Config, bytes: &[u8]) -> Result<Loaded, LoadError> {
        load_rdb(config, Durability::Buffered, bytes, &mut |_| ())
    }

    /// What a store has of a key.
    fn stored(store: &Arc<Store>, database: usize, name: &str) -> Option<(Value, Option<u64>)> {
        let mut work = Work::new(Arc::clone(store));
        work.begin(WorkMode::Direct, now_ms(), false);
        let space = store.space(database);
        let meta = work.find(space, name.as_bytes()).unwrap()?;
        let value = value_of(&mut work, space, &meta).unwrap();
        Some((sorted(value), meta.head.expires_ms))
    }

    /// The same value, where the order does not matter in one that does not depend on the form.
    fn sorted(mut value: Value) -> Value {
        match &mut value {
            Value::Set(members) => members.sort(),
            Value::Hash(fields) => fields.sort(),
            Value::SortedSet(members) => crate::store::scored::sort(members),
            Value::String(_) | Value::List(_) | Value::Stream(_) => {}
        }
        value
    }

    #[test]
    fn keys_take_the_place_of_what_is_there() {
        let dir = tempfile::tempdir().unwrap();
        let config = config(&dir);
        let first = file(&[
            &key("stays", &string("1")),
            &key("changes", &large()[3].1),
            &expiring(NEVER, &key("expires", &string("1"))),
            &key("goes", &string("1")),
            &key("empty", &string("1")),
            &key("twice", &string("1")),
            &key("twice", &Value::Set(vec![b"a".to_vec()])),
        ]);
        assert_eq!(load(&config, &first).unwrap().keys, 7);
        let second = file(&[
            &key("changes", &string("2")),
            &key("expires", &string("2")),
            &expiring(1, &key("goes", &string("2"))),
            &key("empty", &Value::List(Vec::new())),
            &[254, 3],
            &expiring(NEVER, &key("stays", &string("other"))),
        ]);
        let loaded = load(&config, &second).unwrap();
        assert_eq!((loaded.keys, loaded.left_out), (3, 2));
        let store = Arc::new(Store::open(&config).unwrap());
        for (database, name, value) in [
            (0, "stays", Some((string("1"), None))),
            (0, "changes", Some((string("2"), None))),
            (0, "expires", Some((string("2"), None))),
            (0, "goes", None),
            (0, "empty", None),
            (0, "twice", Some((Value::Set(vec![b"a".to_vec()]), None))),
            (3, "stays", Some((string("other"), Some(NEVER)))),
        ] {
            assert_eq!(stored(&store, database, name), value, "{name}");
        }
        // The counts are those of the keys, and every key that expires is in the index, alone.
        let size = |database| store.sizes.of(store.space(database));
        assert_eq!((size(0).keys, size(0).expiring), (4, 0));
        assert_eq!((size(3).keys, size(3).expiring), (1, 1));
        assert_eq!(store.expiring.iter().count() - expiring_fields(&store), 1);
        assert_eq!(store.garbage.iter().count(), 1);
        store.close().unwrap();
    }

    fn expiring_fields(store: &Store) -> usize {
        use crate::store::hash::OF_FIELDS;
        use crate::store::keys::split_expiry_key;
        let of_fields = store.expiring.iter().filter(|pair| {
            let (key, _) = pair.as_ref().unwrap();
            split_expiry_key(key).unwrap().1 & OF_FIELDS != 0
        });
        of_fields.count()
    }

    /// Values that take several batches are whole, and so are their counts and moments.
    #[test]
    fn large_values_are_written_in_parts() {
        let dir = tempfile::tempdir().unwrap();
        let config = config(&dir);
        let values = large();
        let parts: Vec<_> = values
            .iter()
            .map(|(name, value)| expiring(NEVER, &key(name, value)))
            .collect();
        let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
        assert_eq!(load(&config, &file(&parts)).unwrap().keys, 4);
        let store = Arc::new(Store::open(&config).unwrap());
        for (name, value) in values {
            let found = stored(&store, 0, name);
            assert!(found == Some((sorted(value), Some(NEVER))), "{name}");
        }
        assert_eq!(store.sizes.of(0).keys, 4);
        assert_eq!(store.garbage.iter().count(), 0);
        store.close().unwrap();
    }

    #[test]
    fn fields_that_have_expired_are_left_out() {
        let dir = tempfile::tempdir().unwrap();
        let config = config(&dir);
        let field = |name: &str, moment| (name.as_bytes().to_vec(), b"v".to_vec(), moment);
        let some = Value::Hash(vec![field("gone", Some(5)), field("there", Some(NEVER))]);
        let none = Value::Hash(vec![field("gone", Some(5))]);
        let loaded = load(&config, &file(&[&key("some", &some), &key("none", &none)]));
        let loaded = loaded.unwrap();
        assert_eq!((loaded.keys, loaded.left_out), (1, 1));
        let store = Arc::new(Store::open(&config).unwrap());
        let there = Value::Hash(vec![field("there", Some(NEVER))]);
        assert_eq!(stored(&store, 0, "some"), Some((there, None)));
        assert_eq!(stored(&store, 0, "none"), None);
        store.close().unwrap();
    }

    #[test]
    fn what_cannot_be_loaded_is_refused_with_its_place() {
        let dir = tempfile::tempdir().unwrap();
        let config = config(&dir);
        let says = |bytes: &[u8], what: &str| {
            for checks in [true, false] {
                let said = match checks {
                    true => check_rdb(&config, bytes, &mut |_| ()),
                    false => load(&config, bytes),
                };
                let said = said.unwrap_err().to_string();
                assert!(said.contains(what), "{said}");
            }
        };
        says(b"a,b\n1,2\n3,4\n", "does not begin as a file of Redis");
        assert!(!config.db.exists(), "a store was made");
        says(&file(&[&[254, 16], &key("k", &string("1"))]), "--databases");
        says(
            &file(&[&[0, 0x80, 0, 1, 0, 0], &[b'k'; 65_536], &[0]]),
            "65525",
        );
        says(
            &file(&[&[7, 1, b'k', 0]]),
            "a value of the module AAAAAAAAA",
        );
        says(
            &file(&[&[0, 1, b'k', 63, b'x']]),
            "it ends too soon (at byte 23)",
        );
        let mut whole = file(&[&key("k", &string("1"))]);
        *whole.last_mut().unwrap() = 1;
        says(&whole, "its checksum is of other bytes");
        let program = b"#!lua name=l\nnothing()\n";
        let length = u8::try_from(program.len()).unwrap();
        let said = load(&config, &file(&[&[245, length], program])).unwrap_err();
        assert!(said.to_string().contains("does not load"), "{said}");
        // A batch that is not whole is not written.
        let store = Arc::new(Store::open(&config).unwrap());
        assert_eq!(store.sizes.of(0).keys, 0);
        store.close().unwrap();
    }

    /// Whatever bytes are others, are missing or too many: the file is read or refused.
    #[test]
    fn no_damage_makes_the_loader_panic() {
        let field = |name: &str, moment| (name.as_bytes().to_vec(), b"v".to_vec(), moment);
        let sound = file(&[
            &[250, 1, b'a', 1, b'b', 251, 9, 1],
            &key("string", &string("a string")),
            &key("list", &Value::List(numbered(9, "e").collect())),
            &expiring(NEVER, &key("set", &Value::Set(numbered(9, "m").collect()))),
            &key("zset", &Value::SortedSet(vec![(b"m".to_vec(), 1.5)])),
            &key(
                "hash",
                &Value::Hash(vec![field("f", Some(NEVER)), field("g", None)]),
            ),
            // In packed forms: an intset, a ziplist, a zipmap, a compressed string.
            b"\x0b\x01i\x0c\x02\0\0\0\x02\0\0\0\xff\xff\x07\0",
            b"\x0e\x01q\x01\x11\0\0\0\0\0\0\0\0\0\0\0\x01a\x03\x01b\xff",
            b"\x09\x01z\x09\x01\x01f\x01\x02v..\xff",
            b"\0\x01c\xc3\x05\x08\x01ab\x80\x01",
            &[247, 0, 2, 1, 5, 1, b'x', 0],
        ]);
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut random = |below: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            usize::try_from(state % below as u64).unwrap()
        };
        let config = Config::new("not opened");
        let whole = check_rdb(&config, &sound[..], &mut |_| ()).unwrap();
        assert_eq!((whole.keys, whole.modules.len()), (9, 1));
        let mut refused = 0;
        for _ in 0..20_000 {
            let mut damaged = sound.clone();
            for _ in 0..=random(4) {
                let at = random(damaged.len());
                let [byte, ..] = random(256).to_le_bytes();
                match random(4) {
                    0 => damaged.insert(at, byte),
                    1 => damaged.truncate(at.max(1)),
                    _ => damaged[at] = byte,
                }
            }
            let read = check_rdb(&config, &damaged[..], &mut |_| ());
            refused += u32::from(read.is_err());
        }
        assert!(refused > 5000, "{refused}");
    }
}
