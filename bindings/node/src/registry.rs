//! Stores that threads of one process share.
//!
//! A directory belongs to one open store. Worker threads each load this package, so those who want
//! to share a store by its path find it here. The first one opens it, the last one closes it.
//!
//! # Invariants
//! - R1. A place is locked while its store is opened or closed, so that who comes then waits.
//! - R2. A place is handed out under the lock of the map only, and leaves the map under that lock
//!   when nobody else has it. So two threads never have two places for one path.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gabion::Db;
use gabion_bindings::{Code, Failure, Result};

/// Names and values of options.
pub type Settings = Vec<(String, String)>;

/// A store that is open, and how many use it.
struct Shared {
    db: Db,
    settings: Settings,
    users: usize,
}

/// Where the store of a path is, if it is open.
type Place = Arc<Mutex<Option<Shared>>>;

static PLACES: Mutex<BTreeMap<PathBuf, Place>> = Mutex::new(BTreeMap::new());

/// A use of a shared store, which ends by [`Use::end`].
pub struct Use {
    path: PathBuf,
    place: Place,
}

/// Locks what stays whole if somebody panics: it is changed at the end, by one step.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Uses the store of a path, and opens it by `open` if nobody has.
///
/// # Errors
/// Those of `open`; [`Code::InvalidOption`] if the store is open with other options.
pub fn share(
    path: &Path,
    settings: &Settings,
    open: impl FnOnce() -> Result<Db>,
) -> Result<(Db, Use)> {
    let place = Arc::clone(lock(&PLACES).entry(path.to_owned()).or_default());
    let using = Use {
        path: path.to_owned(),
        place,
    };
    let db = using.begin(settings, open);
    match db {
        Ok(db) => Ok((db, using)),
        Err(failure) => {
            using.leave();
            Err(failure)
        }
    }
}

impl Use {
    fn begin(&self, settings: &Settings, open: impl FnOnce() -> Result<Db>) -> Result<Db> {
        let mut shared = lock(&self.place);
        match &mut *shared {
            Some(shared) if shared.settings == *settings => {
                shared.users += 1;
                Ok(shared.db.clone())
            }
            Some(_) => Err(Failure::Refused(
                Code::InvalidOption,
                format!(
                    "the store at {} is open in this process with other options; open it with the \
                     same options to share it",
                    self.path.display()
                ),
            )),
            None => {
                let db = open()?;
                *shared = Some(Shared {
                    db: db.clone(),
                    settings: settings.clone(),
                    users: 1,
                });
                Ok(db)
            }
        }
    }

    /// Ends the use; the last one closes the store.
    ///
    /// # Errors
    /// Those of [`Db::close`].
    pub fn end(self) -> Result<()> {
        let closed = {
            let mut shared = lock(&self.place);
            let left = shared.as_mut().map(|shared| {
                shared.users -= 1;
                shared.users
            });
            match left {
                Some(0) => shared.take().map_or(Ok(()), |shared| shared.db.close()),
                _ => Ok(()),
            }
        };
        self.leave();
        Ok(closed?)
    }

    /// Takes the place out of the map if nobody else has it (R2).
    fn leave(self) {
        const MAP_AND_OWN: usize = 2;
        let mut places = lock(&PLACES);
        if Arc::strong_count(&self.place) == MAP_AND_OWN && lock(&self.place).is_none() {
            places.remove(&self.path);
        }
    }
}
