//! Keyspaces, and lists of values.

use std::ffi::c_char;
use std::ptr;
use std::sync::Arc;

use gabion::{Keyspace, Slice};
use gabion_bindings::{Result, json, options};

use crate::error::{GabionCode, GabionError, call, call_or, foreign};
use crate::handle::{free, get, make, opaque};
use crate::options::{GabionOptions, pairs};
use crate::raw::{Out, give_text, text};
use crate::store::{GabionStore, Shared};

/// A keyspace, and the store that it is of.
pub struct Owned {
    pub(crate) store: Arc<Shared>,
    pub(crate) keyspace: Keyspace,
}

impl Owned {
    /// The keyspace, if it is of a store.
    pub(crate) fn of(&self, store: &Arc<Shared>) -> Result<&Keyspace> {
        match Arc::ptr_eq(&self.store, store) {
            true => Ok(&self.keyspace),
            false => Err(foreign(&self.keyspace)),
        }
    }
}

/// A named part of a store with its own keys. Any number of threads may use it.
pub struct GabionKeyspace {
    _private: [u8; 0],
}

/// A list of values, some of which may be missing. Any number of threads may read it.
pub struct GabionValues {
    _private: [u8; 0],
}

opaque!(GabionKeyspace: Owned, b"gbnkeysp", "keyspace");
opaque!(GabionValues: Vec<Option<Slice>>, b"gbnvalue", "list of values");

/// Makes the handle of a keyspace that `find` finds.
///
/// # Safety
/// As [`get`] and [`Out::new`].
unsafe fn make_handle(
    store: *const GabionStore,
    place: *mut *mut GabionKeyspace,
    find: impl FnOnce(&Shared) -> Result<Keyspace>,
) -> Result<()> {
    // SAFETY: a place for a pointer, by contract.
    let place = unsafe { Out::pointer(place, "keyspace") }?;
    // SAFETY: null or a handle, by contract.
    let store = unsafe { get(store) }?;
    let keyspace = find(store)?;
    place.set(make(Owned {
        store: Arc::clone(store),
        keyspace,
    }));
    Ok(())
}

/// The keyspace that every store has, named "default".
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_keyspace_default(
    store: *const GabionStore,
    keyspace: *mut *mut GabionKeyspace,
    error: *mut *mut GabionError,
) -> GabionCode {
    call(error, || {
        // SAFETY: as for this function.
        unsafe {
            make_handle(store, keyspace, |store| {
                Ok(store.db.default_keyspace().clone())
            })
        }
    })
}

/// The keyspace of a name, made durably if it does not exist. With options it has these from now
/// on; with NULL a new one has the store's, and another one keeps its own.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_keyspace_open(
    store: *const GabionStore,
    name: *const c_char,
    options: *const GabionOptions,
    keyspace: *mut *mut GabionKeyspace,
    error: *mut *mut GabionError,
) -> GabionCode {
    call(error, || {
        let find = |store: &Shared| {
            // SAFETY: null or text, by contract.
            let name = unsafe { text(name, "name of the keyspace") }?;
            if options.is_null() {
                return Ok(store.db.keyspace(name)?);
            }
            // SAFETY: a handle, by contract.
            let options = options::keyspace(&unsafe { pairs(options) }?)?;
            Ok(store.db.keyspace_with(name, &options)?)
        };
        // SAFETY: as for this function.
        unsafe { make_handle(store, keyspace, find) }
    })
}

/// The keyspace of a name, which must exist.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_keyspace_existing(
    store: *const GabionStore,
    name: *const c_char,
    keyspace: *mut *mut GabionKeyspace,
    error: *mut *mut GabionError,
) -> GabionCode {
    call(error, || {
        let find = |store: &Shared| {
            // SAFETY: null or text, by contract.
            let name = unsafe { text(name, "name of the keyspace") }?;
            Ok(store.db.existing_keyspace(name)?)
        };
        // SAFETY: as for this function.
        unsafe { make_handle(store, keyspace, find) }
    })
}

/// A keyspace in which a program notes something about the store, made durably if it does not
/// exist. gabion_keyspace_open does not find it, and gabion_keyspace_names leaves it out; to drop
/// it, put "gabion." in front of the name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_keyspace_hidden(
    store: *const GabionStore,
    name: *const c_char,
    keyspace: *mut *mut GabionKeyspace,
    error: *mut *mut GabionError,
) -> GabionCode {
    call(error, || {
        let find = |store: &Shared| {
            // SAFETY: null or text, by contract.
            let name = unsafe { text(name, "name of the keyspace") }?;
            Ok(store.db.reserved_keyspace(name)?)
        };
        // SAFETY: as for this function.
        unsafe { make_handle(store, keyspace, find) }
    })
}

/// The names of all keyspaces, in the order in which they were made.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_keyspace_names(
    store: *const GabionStore,
    names: *mut *mut GabionValues,
    error: *mut *mut GabionError,
) -> GabionCode {
    call(error, || {
        // SAFETY: a place for a pointer, by contract.
        let names = unsafe { Out::pointer(names, "names") }?;
        // SAFETY: null or a handle, by contract.
        let store = unsafe { get(store) }?;
        let found = store.db.keyspace_names();
        let found = found.iter().map(|name| Some(Slice::new(name.as_bytes())));
        names.set(make(found.collect()));
        Ok(())
    })
}

/// Removes a keyspace with all that it holds, durably. Handles to it are of no use from then on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_keyspace_drop(
    store: *mut GabionStore,
    name: *const c_char,
    error: *mut *mut GabionError,
) -> GabionCode {
    call(error, || {
        // SAFETY: null or a handle, by contract.
        let store = unsafe { get(store) }?;
        // SAFETY: null or text, by contract.
        let name = unsafe { text(name, "name of the keyspace") }?;
        Ok(store.db.drop_keyspace(name)?)
    })
}

/// The name of a keyspace, which does not end with a zero; *len becomes its length. Valid until the
/// handle is freed. NULL for what is no keyspace.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_keyspace_name(
    keyspace: *const GabionKeyspace,
    len: *mut usize,
) -> *const c_char {
    call_or(ptr::null(), || {
        // SAFETY: a place for a number, by contract.
        let len = unsafe { Out::new(len, 0, "length") }?;
        // SAFETY: null or a handle, by contract.
        let name = unsafe { get(keyspace) }?.keyspace.name();
        len.set(name.len());
        Ok(name.as_ptr().cast())
    })
}

/// The number of a keyspace, by which changes name it: no other one of the store has had or will
/// have it. 0 for what is no keyspace.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_keyspace_id(keyspace: *const GabionKeyspace) -> u32 {
    // SAFETY: null or a handle, by contract.
    call_or(0, || Ok(unsafe { get(keyspace) }?.keyspace.id()))
}

/// The options that a keyspace has of its own, as a JSON object of names and texts as
/// gabion_options_set takes them. gabion_free frees it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_keyspace_options(
    keyspace: *const GabionKeyspace,
    json: *mut *mut c_char,
    error: *mut *mut GabionError,
) -> GabionCode {
    call(error, || {
        // SAFETY: null or a handle, by contract.
        let own = || Ok(json::keyspace_options(&unsafe { get(keyspace) }?.keyspace));
        // SAFETY: a place for a pointer, by contract.
        unsafe { give_text(json, "JSON text", own) }
    })
}

/// Frees the handle of a keyspace and clears the variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_keyspace_free(keyspace: *mut *mut GabionKeyspace) {
    // SAFETY: a variable with null or a handle, by contract.
    unsafe { free(keyspace) }
}

/// How many values a list has; 0 for what is no list.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_values_count(values: *const GabionValues) -> usize {
    // SAFETY: null or a handle, by contract.
    call_or(0, || Ok(unsafe { get(values) }?.len()))
}

/// A value of a list by its place, counted from 0; *len becomes its length. NULL where the value is
/// missing, and beyond the end. Valid until the list is freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_values_at(
    values: *const GabionValues,
    index: usize,
    len: *mut usize,
) -> *const u8 {
    call_or(ptr::null(), || {
        // SAFETY: a place for a number, by contract.
        let len = unsafe { Out::new(len, 0, "length") }?;
        // SAFETY: null or a handle, by contract.
        let Some(Some(value)) = unsafe { get(values) }?.get(index) else {
            return Ok(ptr::null());
        };
        len.set(value.len());
        Ok(value.as_ptr())
    })
}

/// Frees a list of values and clears the variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_values_free(values: *mut *mut GabionValues) {
    // SAFETY: a variable with null or a handle, by contract.
    unsafe { free(values) }
}
