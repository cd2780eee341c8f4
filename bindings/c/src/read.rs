//! Gets: of a store as it is, and of snapshots.

use std::ptr;
use std::sync::Arc;

use gabion::{Keyspace, Slice, Snapshot};
use gabion_bindings::{Failure, Result, unix_millis};

use crate::error::{GabionCode, GabionError, call, call_or, foreign};
use crate::handle::{free, get, get_optional, make, opaque};
use crate::keyspace::{GabionKeyspace, GabionValues};
use crate::raw::{self, Out, copy_out, copy_to, key};
use crate::store::{GabionStore, Shared};

/// A snapshot, and the store that it is of.
pub struct Taken {
    pub(crate) store: Arc<Shared>,
    pub(crate) snapshot: Snapshot,
}

/// A value that is lent, without a copy. Any number of threads may read it.
pub struct GabionPinned {
    _private: [u8; 0],
}

/// A view of all keyspaces as they were at one moment. Any number of threads may use it.
pub struct GabionSnapshot {
    _private: [u8; 0],
}

opaque!(GabionPinned: Slice, b"gbnpinnd", "pinned value");
opaque!(GabionSnapshot: Taken, b"gbnsnaps", "snapshot");

/// Hands a value out as a copy; null for none.
///
/// # Safety
/// As [`Out::new`].
pub(crate) unsafe fn give_copy(
    value: *mut *mut u8,
    value_len: *mut usize,
    find: impl FnOnce() -> Result<Option<Slice>>,
) -> Result<()> {
    // SAFETY: a place for a pointer, by contract.
    let value = unsafe { Out::pointer(value, "value") }?;
    // SAFETY: a place for a number, by contract.
    let value_len = unsafe { Out::new(value_len, 0, "length of the value") }?;
    if let Some(found) = find()? {
        value.set(copy_out(&found)?);
        value_len.set(found.len());
    }
    Ok(())
}

/// Hands a value out as a handle; null for none.
///
/// # Safety
/// As [`Out::new`].
unsafe fn give_pinned(
    pinned: *mut *mut GabionPinned,
    find: impl FnOnce() -> Result<Option<Slice>>,
) -> Result<()> {
    // SAFETY: a place for a pointer, by contract.
    let pinned = unsafe { Out::pointer(pinned, "value") }?;
    if let Some(found) = find()? {
        pinned.set(make(found));
    }
    Ok(())
}

/// Finds a value in a keyspace.
///
/// # Safety
/// As [`get`] and [`key`].
unsafe fn find_now(
    keyspace: *const GabionKeyspace,
    data: *const u8,
    len: usize,
) -> Result<Option<Slice>> {
    // SAFETY: null or a handle, by contract.
    let keyspace = unsafe { get(keyspace) }?;
    // SAFETY: bytes of the caller's, by contract.
    let key = unsafe { key(data, len) }?;
    Ok(keyspace.keyspace.get(key)?)
}

/// Reads a key by a snapshot.
///
/// # Safety
/// As [`get`] and [`key`].
unsafe fn read_then<T>(
    snapshot: *const GabionSnapshot,
    keyspace: *const GabionKeyspace,
    data: *const u8,
    len: usize,
    read: impl FnOnce(&Snapshot, &Keyspace, &[u8]) -> gabion::Result<T>,
) -> Result<T> {
    // SAFETY: null or a handle, by contract.
    let taken = unsafe { get(snapshot) }?;
    // SAFETY: as above.
    let keyspace = unsafe { get(keyspace) }?.of(&taken.store)?;
    // SAFETY: bytes of the caller's, by contract.
    let key = unsafe { key(data, len) }?;
    Ok(read(&taken.snapshot, keyspace, key)?)
}

/// Finds a value in a snapshot.
///
/// # Safety
/// As [`get`] and [`key`].
unsafe fn find_then(
    snapshot: *const GabionSnapshot,
    keyspace: *const GabionKeyspace,
    data: *const u8,
    len: usize,
) -> Result<Option<Slice>> {
    let find = |snapshot: &Snapshot, keyspace: &Keyspace, key: &[u8]| snapshot.get(keyspace, key);
    // SAFETY: as for this function.
    unsafe { read_then(snapshot, keyspace, data, len, find) }
}

/// The value of a key as a copy, with a zero behind it, which gabion_free frees; *value is NULL if
/// the key is not there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_get(
    keyspace: *const GabionKeyspace,
    key: *const u8,
    key_len: usize,
    value: *mut *mut u8,
    value_len: *mut usize,
    error: *mut *mut GabionError,
) -> GabionCode {
    call(error, || {
        let find = || {
            // SAFETY: as for this function.
            unsafe { find_now(keyspace, key, key_len) }
        };
        // SAFETY: as for this function.
        unsafe { give_copy(value, value_len, find) }
    })
}

/// As gabion_get, into a buffer of the caller's. *value_len becomes the length of the value, and
/// SIZE_MAX if the key is not there. A value that is longer than capacity is not copied.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_get_into(
    keyspace: *const GabionKeyspace,
    key: *const u8,
    key_len: usize,
    buffer: *mut u8,
    capacity: usize,
    value_len: *mut usize,
    error: *mut *mut GabionError,
) -> GabionCode {
    call(error, || {
        // SAFETY: a place for a number, by contract.
        let value_len = unsafe { Out::new(value_len, usize::MAX, "length of the value") }?;
        if buffer.is_null() && capacity > 0 {
            return Err(Failure::argument(
                "the buffer is NULL, but the capacity is not 0",
            ));
        }
        // SAFETY: as for this function.
        let found = unsafe { find_now(keyspace, key, key_len) }?;
        if let Some(found) = found {
            value_len.set(found.len());
            if found.len() <= capacity && !found.is_empty() {
                // SAFETY: the buffer takes as much as its capacity, by contract.
                unsafe { copy_to(buffer, &found) };
            }
        }
        Ok(())
    })
}

/// As gabion_get, without a copy: the value is lent, and with it the piece of memory that it lies
/// in. *pinned is NULL if the key is not there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_get_pinned(
    keyspace: *const GabionKeyspace,
    key: *const u8,
    key_len: usize,
    pinned: *mut *mut GabionPinned,
    error: *mut *mut GabionError,
) -> GabionCode {
    call(error, || {
        let find = || {
            // SAFETY: as for this function.
            unsafe { find_now(keyspace, key, key_len) }
        };
        // SAFETY: as for this function.
        unsafe { give_pinned(pinned, find) }
    })
}

/// The bytes of a value that is lent, and in *len how many they are. Valid until it is freed. NULL
/// for what is no such value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_pinned_data(
    pinned: *const GabionPinned,
    len: *mut usize,
) -> *const u8 {
    call_or(ptr::null(), || {
        // SAFETY: a place for a number, by contract.
        let len = unsafe { Out::new(len, 0, "length") }?;
        // SAFETY: null or a handle, by contract.
        let value = unsafe { get(pinned) }?;
        len.set(value.len());
        Ok(value.as_ptr())
    })
}

/// Gives a value back that was lent, and clears the variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_pinned_free(pinned: *mut *mut GabionPinned) {
    // SAFETY: a variable with null or a handle, by contract.
    unsafe { free(pinned) }
}

/// Whether a key is there. Costs as much as gabion_get_pinned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_contains(
    keyspace: *const GabionKeyspace,
    key: *const u8,
    key_len: usize,
    is_there: *mut bool,
    error: *mut *mut GabionError,
) -> GabionCode {
    call(error, || {
        // SAFETY: a place for a bool, by contract.
        let is_there = unsafe { Out::new(is_there, false, "answer") }?;
        // SAFETY: as for this function.
        let found = unsafe { find_now(keyspace, key, key_len) }?;
        is_there.set(found.is_some());
        Ok(())
    })
}

/// When the value of a key expires, in milliseconds since 1970; -1 for a key that is not there, and
/// for a value that does not expire.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_expires_at(
    keyspace: *const GabionKeyspace,
    key: *const u8,
    key_len: usize,
    unix_ms: *mut i64,
    error: *mut *mut GabionError,
) -> GabionCode {
    call(error, || {
        // SAFETY: a place for a number, by contract.
        let unix_ms = unsafe { Out::new(unix_ms, -1, "moment") }?;
        // SAFETY: null or a handle, by contract.
        let keyspace = unsafe { get(keyspace) }?;
        // SAFETY: bytes of the caller's, by contract.
        let key = unsafe { raw::key(key, key_len) }?;
        unix_ms.set(unix_millis(keyspace.keyspace.expires_at(key)?));
        Ok(())
    })
}

/// The values of count keys at one moment, in the order of the keys: now, or that of a snapshot.
/// Cheaper than as many gets, which wait one after the other.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_multi_get(
    keyspace: *const GabionKeyspace,
    snapshot: *const GabionSnapshot,
    keys: *const *const u8,
    key_lens: *const usize,
    count: usize,
    values: *mut *mut GabionValues,
    error: *mut *mut GabionError,
) -> GabionCode {
    call(error, || {
        // SAFETY: a place for a pointer, by contract.
        let values = unsafe { Out::pointer(values, "values") }?;
        // SAFETY: null or a handle, by contract.
        let owned = unsafe { get(keyspace) }?;
        // SAFETY: null or a handle, by contract.
        let taken = unsafe { get_optional(snapshot) }?;
        // SAFETY: lists of the caller's, by contract.
        let keys = unsafe { raw::keys(keys, key_lens, count) }?;
        let found = match taken {
            Some(taken) => taken.snapshot.multi_get(owned.of(&taken.store)?, &keys)?,
            None => owned.keyspace.multi_get(&keys)?,
        };
        values.set(make(found));
        Ok(())
    })
}

/// A view of all keyspaces as they are now. Copies nothing and does not wait. As long as it lives,
/// the store keeps the versions that it sees.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_snapshot_new(
    store: *const GabionStore,
    snapshot: *mut *mut GabionSnapshot,
    error: *mut *mut GabionError,
) -> GabionCode {
    call(error, || {
        // SAFETY: a place for a pointer, by contract.
        let place = unsafe { Out::pointer(snapshot, "snapshot") }?;
        // SAFETY: null or a handle, by contract.
        let store = unsafe { get(store) }?;
        let engine = store.db.engine();
        if !engine.capabilities().snapshots {
            return Err(Failure::Store(gabion::Error::Unsupported {
                engine: engine.name(),
                operation: "snapshots",
            }));
        }
        place.set(make(Taken {
            snapshot: store.db.snapshot(),
            store: Arc::clone(store),
        }));
        Ok(())
    })
}

/// As gabion_get, of the moment of a snapshot.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_snapshot_get(
    snapshot: *const GabionSnapshot,
    keyspace: *const GabionKeyspace,
    key: *const u8,
    key_len: usize,
    value: *mut *mut u8,
    value_len: *mut usize,
    error: *mut *mut GabionError,
) -> GabionCode {
    call(error, || {
        let find = || {
            // SAFETY: as for this function.
            unsafe { find_then(snapshot, keyspace, key, key_len) }
        };
        // SAFETY: as for this function.
        unsafe { give_copy(value, value_len, find) }
    })
}

/// As gabion_get_pinned, of the moment of a snapshot.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_snapshot_get_pinned(
    snapshot: *const GabionSnapshot,
    keyspace: *const GabionKeyspace,
    key: *const u8,
    key_len: usize,
    pinned: *mut *mut GabionPinned,
    error: *mut *mut GabionError,
) -> GabionCode {
    call(error, || {
        let find = || {
            // SAFETY: as for this function.
            unsafe { find_then(snapshot, keyspace, key, key_len) }
        };
        // SAFETY: as for this function.
        unsafe { give_pinned(pinned, find) }
    })
}

/// As gabion_contains, of the moment of a snapshot.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_snapshot_contains(
    snapshot: *const GabionSnapshot,
    keyspace: *const GabionKeyspace,
    key: *const u8,
    key_len: usize,
    is_there: *mut bool,
    error: *mut *mut GabionError,
) -> GabionCode {
    call(error, || {
        // SAFETY: a place for a bool, by contract.
        let is_there = unsafe { Out::new(is_there, false, "answer") }?;
        // SAFETY: as for this function.
        let found = unsafe { find_then(snapshot, keyspace, key, key_len) }?;
        is_there.set(found.is_some());
        Ok(())
    })
}

/// As gabion_expires_at, of the moment of a snapshot.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_snapshot_expires_at(
    snapshot: *const GabionSnapshot,
    keyspace: *const GabionKeyspace,
    key: *const u8,
    key_len: usize,
    unix_ms: *mut i64,
    error: *mut *mut GabionError,
) -> GabionCode {
    call(error, || {
        // SAFETY: a place for a number, by contract.
        let unix_ms = unsafe { Out::new(unix_ms, -1, "moment") }?;
        let read = |snapshot: &Snapshot, keyspace: &Keyspace, key: &[u8]| {
            snapshot.expires_at(keyspace, key)
        };
        // SAFETY: as for this function.
        let at = unsafe { read_then(snapshot, keyspace, key, key_len, read) }?;
        unix_ms.set(unix_millis(at));
        Ok(())
    })
}

/// Frees a snapshot and clears the variable. Iterators over it go on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_snapshot_free(snapshot: *mut *mut GabionSnapshot) {
    // SAFETY: a variable with null or a handle, by contract.
    unsafe { free(snapshot) }
}

/// An error unless a snapshot is of a store.
pub(crate) fn check_snapshot(taken: &Taken, keyspace: &crate::keyspace::Owned) -> Result<()> {
    match Arc::ptr_eq(&taken.store, &keyspace.store) {
        true => Ok(()),
        false => Err(foreign(&keyspace.keyspace)),
    }
}
