//! Stores: open, close, and operations on a whole store.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use gabion::{Db, Durability, Engine};
use gabion_bindings::{Result, SharedTransaction, guard, options};
use napi::Env;
use napi_derive::napi;

use crate::failures::call;
use crate::job::{Answer, Promised, promise};
use crate::registry::{Settings, Use, share};
use crate::snapshot::Snapshot;
use crate::view::View;

/// An open store.
#[napi]
pub struct Store {
    db: Db,
    /// How it is shared with other threads, if it is, until its end.
    using: Mutex<Option<Use>>,
    is_shared: bool,
}

impl Answer for Store {
    type Told<'a> = Store;

    fn tell(self, _env: &Env) -> napi::Result<Store> {
        Ok(self)
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        let using = self.using.get_mut().unwrap_or_else(PoisonError::into_inner);
        // The store itself logs what fails; nobody is there to be told.
        let _ = guard(|| using.take().map_or(Ok(()), Use::end));
    }
}

/// Opens a store with the options of these names and values. If it is shared, all threads of the
/// process that ask so have the same one.
#[napi]
pub fn open(
    path: String,
    names: Vec<String>,
    values: Vec<String>,
    is_shared: bool,
) -> Promised<Store> {
    promise(move || {
        let settings: Settings = names.into_iter().zip(values).collect();
        let path = PathBuf::from(path);
        let (db, using) = match is_shared {
            false => (open_own(&path, &settings)?, None),
            true => {
                let (db, using) = share(&place(&path), &settings, || open_own(&path, &settings))?;
                (db, Some(using))
            }
        };
        Ok(Store {
            db,
            using: Mutex::new(using),
            is_shared,
        })
    })
}

/// A path that is the same for all ways to a directory, whether it is there yet or not.
fn place(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let found = path.ancestors().find_map(|there| {
        let rest = path.strip_prefix(there).ok()?;
        Some(there.canonicalize().ok()?.join(rest))
    });
    // A slash at the end is no other place.
    found.unwrap_or(path).components().collect()
}

fn open_own(path: &Path, settings: &Settings) -> Result<Db> {
    let options = options::store(settings)?;
    check(options.engine)?;
    let db = options.open(path)?;
    // What is there may be of another engine than the one that was asked for.
    match check(db.engine()) {
        Ok(()) => Ok(db),
        Err(failure) => {
            db.close()?;
            Err(failure)
        }
    }
}

/// Refuses engines without what `abstract-level` needs.
fn check(engine: Engine) -> Result<()> {
    let capabilities = engine.capabilities();
    let operation = match (capabilities.ordered, capabilities.snapshots) {
        (true, true) => return Ok(()),
        (true, false) => "snapshots, which abstract-level needs",
        (false, _) => "order, which abstract-level needs",
    };
    let engine = engine.name();
    Err(gabion::Error::Unsupported { engine, operation }.into())
}

#[napi]
impl Store {
    /// Ends the use of the store; the last one closes it.
    #[napi]
    pub fn close(&self) -> Promised<()> {
        let db = self.db.clone();
        let is_shared = self.is_shared;
        let mut using = self.using.lock().unwrap_or_else(PoisonError::into_inner);
        let using = using.take();
        promise(move || match (using, is_shared) {
            (Some(using), _) => using.end(),
            (None, true) => Ok(()),
            (None, false) => Ok(db.close()?),
        })
    }

    /// What reads and writes it.
    #[napi]
    pub fn view(&self) -> View {
        View::new(self.db.clone(), None)
    }

    /// Begins a transaction with the options of these names and values.
    #[napi]
    pub fn begin(&self, env: &Env, names: Vec<String>, values: Vec<String>) -> napi::Result<View> {
        let db = self.db.clone();
        call(env, || {
            let settings: Settings = names.into_iter().zip(values).collect();
            let transaction = SharedTransaction::begin(&db, options::transaction(&settings)?)?;
            Ok(View::new(db, Some(transaction)))
        })
    }

    /// The store as it is now.
    #[napi]
    pub fn snapshot(&self, env: &Env) -> napi::Result<Snapshot> {
        call(env, || Ok(Snapshot::new(self.db.snapshot())))
    }

    /// Makes all that is written survive power loss.
    #[napi]
    pub fn persist(&self) -> Promised<()> {
        let db = self.db.clone();
        promise(move || Ok(db.persist(Durability::Sync)?))
    }

    /// Brings what is in memory to where it stays.
    #[napi]
    pub fn flush(&self) -> Promised<()> {
        let db = self.db.clone();
        promise(move || Ok(db.flush()?))
    }

    /// Writes a copy of the store to a directory that does not exist.
    #[napi]
    pub fn checkpoint(&self, path: String) -> Promised<()> {
        let db = self.db.clone();
        promise(move || Ok(db.checkpoint(path)?))
    }

    /// Counts and sizes, as JSON.
    #[napi]
    pub fn stats(&self) -> Promised<String> {
        let db = self.db.clone();
        promise(move || Ok(db.stats().to_json()))
    }
}

/// Removes the store in a directory.
#[napi]
pub fn destroy(path: String) -> Promised<()> {
    promise(move || Ok(gabion::destroy(path)?))
}

/// The names of all options that a store, a keyspace or a transaction has.
#[napi]
pub fn option_names() -> Vec<&'static str> {
    options::names()
}
