//! Stores: open, close, check, copy, and statistics.

use std::ffi::{CString, c_char};
use std::ptr;
use std::sync::{Arc, OnceLock};

use gabion::{Db, Durability, Engine};
use gabion_bindings::{Result, json, options};

use crate::error::{GabionCode, GabionError, c_text, call, call_or};
use crate::handle::{free, get, make, opaque};
use crate::options::{GabionOptions, pairs};
use crate::raw::{Out, give_text, optional_text, text};

/// An open store, in the hands of all handles that were made from it.
pub struct Shared {
    pub(crate) db: Db,
}

/// An open store. Any number of threads may use it.
pub struct GabionStore {
    _private: [u8; 0],
}

opaque!(GabionStore: Arc<Shared>, b"gbnstore", "store");

/// A durability by its word, if there is one.
///
/// # Safety
/// As [`text`].
pub(crate) unsafe fn durability(word: *const c_char) -> Result<Option<Durability>> {
    // SAFETY: as for this function.
    let word = unsafe { optional_text(word, "durability") }?;
    word.map(options::durability).transpose()
}

/// Opens the store in the directory path, and makes it if the directory is missing or empty. What
/// a crash left is recovered first. *store is NULL after an error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_open(
    path: *const c_char,
    options: *const GabionOptions,
    store: *mut *mut GabionStore,
    error: *mut *mut GabionError,
) -> GabionCode {
    call(error, || {
        // SAFETY: a place for a pointer, by contract.
        let store = unsafe { Out::pointer(store, "store") }?;
        // SAFETY: null or text, by contract.
        let path = unsafe { text(path, "path") }?;
        // SAFETY: null or a handle, by contract.
        let options = options::store(&unsafe { pairs(options) }?)?;
        let db = options.open(path)?;
        store.set(make(Arc::new(Shared { db })));
        Ok(())
    })
}

/// Syncs and closes the store, whatever else was made from it, and tells what failed: from now on
/// reads and writes by any handle are GABION_CODE_CLOSED, but that an iterator may go on with what
/// it has in memory. Waits for writes that are under way. The handle stays until it is freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_close(
    store: *mut GabionStore,
    error: *mut *mut GabionError,
) -> GabionCode {
    call(error, || {
        // SAFETY: null or a handle, by contract.
        let shared = unsafe { get(store) }?;
        Ok(shared.db.clone().close()?)
    })
}

/// Frees the handle of a store and clears the variable. Where the store was not closed, it is
/// closed with the last handle that was made from it, and what fails then is not told.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_store_free(store: *mut *mut GabionStore) {
    // SAFETY: a variable with null or a handle, by contract.
    unsafe { free(store) }
}

/// Runs what only needs the open store.
///
/// # Safety
/// As [`get`].
unsafe fn with_db(
    store: *const GabionStore,
    error: *mut *mut GabionError,
    body: impl FnOnce(&Db) -> Result<()>,
) -> GabionCode {
    call(error, || {
        // SAFETY: null or a handle, by contract.
        let shared = unsafe { get(store) }?;
        body(&shared.db)
    })
}

/// Brings what is in memory to where it stays, and waits for that. Not needed for durability; it
/// shortens the next open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_flush(
    store: *mut GabionStore,
    error: *mut *mut GabionError,
) -> GabionCode {
    // SAFETY: as for this function.
    unsafe { with_db(store, error, |db| Ok(db.flush()?)) }
}

/// Brings everything written so far to a durability: "sync", after which it survives a loss of
/// power, "interval:MILLISECONDS" or "buffered".
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_persist(
    store: *mut GabionStore,
    durability: *const c_char,
    error: *mut *mut GabionError,
) -> GabionCode {
    let body = |db: &Db| {
        // SAFETY: null or text, by contract.
        let word = unsafe { text(durability, "durability") }?;
        Ok(db.persist(options::durability(word)?)?)
    };
    // SAFETY: as for this function.
    unsafe { with_db(store, error, body) }
}

/// Waits until no background work is due.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_wait_idle(
    store: *mut GabionStore,
    error: *mut *mut GabionError,
) -> GabionCode {
    // SAFETY: as for this function.
    unsafe { with_db(store, error, |db| Ok(db.wait_idle()?)) }
}

/// Writes the store as it is now to the directory path, which must not exist, as a store of its
/// own. Reads and writes go on meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_checkpoint(
    store: *mut GabionStore,
    path: *const c_char,
    error: *mut *mut GabionError,
) -> GabionCode {
    let body = |db: &Db| {
        // SAFETY: null or text, by contract.
        let path = unsafe { text(path, "path") }?;
        Ok(db.checkpoint(path)?)
    };
    // SAFETY: as for this function.
    unsafe { with_db(store, error, body) }
}

/// Counts and sizes of the store as a JSON object, which gabion_free frees. A look at each table,
/// so not for every request.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_stats(
    store: *mut GabionStore,
    json: *mut *mut c_char,
    error: *mut *mut GabionError,
) -> GabionCode {
    let body = |db: &Db| {
        let stats = || Ok(db.stats().to_json());
        // SAFETY: a place for a pointer, by contract.
        unsafe { give_text(json, "JSON text", stats) }
    };
    // SAFETY: as for this function.
    unsafe { with_db(store, error, body) }
}

/// The name of the engine that made the store, such as "wip". Static. NULL for what is no store.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_engine(store: *const GabionStore) -> *const c_char {
    static NAMES: OnceLock<Vec<CString>> = OnceLock::new();
    call_or(ptr::null(), || {
        // SAFETY: null or a handle, by contract.
        let engine = unsafe { get(store) }?.db.engine();
        let names = Engine::ALL.iter().map(|own| c_text(own.name()));
        let names = NAMES.get_or_init(|| names.collect());
        let at = Engine::ALL.iter().position(|own| *own == engine);
        let name = at.and_then(|at| names.get(at));
        Ok(name.map_or(ptr::null(), |name| name.as_ptr()))
    })
}

/// What the engine of the store can do, as a JSON object with a bool for each ability, such as
/// "snapshots", and with the lengths of the longest key and value. gabion_free frees it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_capabilities(
    store: *const GabionStore,
    json: *mut *mut c_char,
    error: *mut *mut GabionError,
) -> GabionCode {
    let body = |db: &Db| {
        let capabilities = || Ok(json::capabilities(db.engine()));
        // SAFETY: a place for a pointer, by contract.
        unsafe { give_text(json, "JSON text", capabilities) }
    };
    // SAFETY: as for this function.
    unsafe { with_db(store, error, body) }
}

/// Reads what another process has written since, where the store was opened with the option
/// follower; whether there was anything, *is_new tells. All of it becomes visible at one moment,
/// and snapshots and iterators go on with what they see. Call it again and again, with a sleep
/// where nothing was new.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_catch_up(
    store: *mut GabionStore,
    is_new: *mut bool,
    error: *mut *mut GabionError,
) -> GabionCode {
    let body = |db: &Db| {
        // SAFETY: a place for a bool, by contract.
        let is_new = unsafe { Out::new(is_new, false, "answer") }?;
        is_new.set(db.catch_up()?);
        Ok(())
    };
    // SAFETY: as for this function.
    unsafe { with_db(store, error, body) }
}

/// Reads every byte of the store in a directory and tells as a JSON object what was read and what
/// of it is damaged, in its list "problems". gabion_free frees the text. A store whose engine has
/// followers may be open meanwhile, others must not.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_check(
    path: *const c_char,
    json: *mut *mut c_char,
    error: *mut *mut GabionError,
) -> GabionCode {
    call(error, || {
        let check = || {
            // SAFETY: null or text, by contract.
            let path = unsafe { text(path, "path") }?;
            json::report(&gabion::check(path)?)
        };
        // SAFETY: a place for a pointer, by contract.
        unsafe { give_text(json, "JSON text", check) }
    })
}

/// Writes what can be read of the damaged store in the directory from, which must not be open, to a
/// new store in the directory to, which must not exist. Tells as a JSON object what was read and
/// what is lost, in its list "lost". gabion_free frees the text. The damaged store stays as it is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_repair(
    from: *const c_char,
    to: *const c_char,
    json: *mut *mut c_char,
    error: *mut *mut GabionError,
) -> GabionCode {
    call(error, || {
        let repair = || {
            // SAFETY: null or text, by contract.
            let from = unsafe { text(from, "path of the damaged store") }?;
            // SAFETY: as above.
            let to = unsafe { text(to, "path of the new store") }?;
            json::report(&gabion::repair(from, to)?)
        };
        // SAFETY: a place for a pointer, by contract.
        unsafe { give_text(json, "JSON text", repair) }
    })
}

/// Removes the store in a directory, which must not be open, with all that it holds.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_destroy(
    path: *const c_char,
    error: *mut *mut GabionError,
) -> GabionCode {
    call(error, || {
        // SAFETY: null or text, by contract.
        let path = unsafe { text(path, "path") }?;
        Ok(gabion::destroy(path)?)
    })
}
