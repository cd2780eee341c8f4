//! Batches.

use std::ffi::c_char;
use std::ptr;
use std::sync::{Arc, Mutex};

use gabion::{Keyspace, WriteBatch};
use gabion_bindings::{Failure, Result, expiry, range};

use crate::error::{GabionCode, GabionError, call, call_or, foreign};
use crate::handle::{free, get, make, opaque};
use crate::keyspace::{GabionKeyspace, Owned};
use crate::raw;
use crate::store::{GabionStore, Shared, durability};

/// Writes, and the store whose they are.
#[derive(Default)]
pub struct Gathered {
    batch: WriteBatch,
    store: Option<Arc<Shared>>,
}

/// Writes that take effect together. One thread at a time may use it.
pub struct GabionBatch {
    _private: [u8; 0],
}

opaque!(GabionBatch: Mutex<Gathered>, b"gbnbatch", "batch");

impl Gathered {
    /// The batch, for an operation on a keyspace of its store.
    fn on(&mut self, owned: &Owned) -> Result<&mut WriteBatch> {
        if !self.batch.is_empty()
            && let Some(store) = &self.store
            && !Arc::ptr_eq(store, &owned.store)
        {
            return Err(foreign(&owned.keyspace));
        }
        self.store = Some(Arc::clone(&owned.store));
        Ok(&mut self.batch)
    }
}

/// Runs what uses a batch, alone.
///
/// # Safety
/// As [`get`].
unsafe fn with_batch<T>(
    batch: *const GabionBatch,
    body: impl FnOnce(&mut Gathered) -> Result<T>,
) -> Result<T> {
    // SAFETY: null or a handle, by contract.
    let gathered = unsafe { get(batch) }?;
    let mut gathered = gathered.try_lock().map_err(|_| Failure::Busy)?;
    body(&mut gathered)
}

/// Runs what adds an operation.
///
/// # Safety
/// As [`get`].
unsafe fn add(
    batch: *const GabionBatch,
    keyspace: *const GabionKeyspace,
    error: *mut *mut GabionError,
    body: impl FnOnce(&mut WriteBatch, &Keyspace) -> Result<()>,
) -> GabionCode {
    call(error, || {
        // SAFETY: null or a handle, by contract.
        let owned = unsafe { get(keyspace) }?;
        let add = |gathered: &mut Gathered| body(gathered.on(owned)?, &owned.keyspace);
        // SAFETY: as above.
        unsafe { with_batch(batch, add) }
    })
}

/// An empty batch.
#[unsafe(no_mangle)]
pub extern "C" fn gabion_batch_new() -> *mut GabionBatch {
    call_or(ptr::null_mut(), || Ok(make(Mutex::default())))
}

/// Adds a put.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_batch_put(
    batch: *mut GabionBatch,
    keyspace: *const GabionKeyspace,
    key: *const u8,
    key_len: usize,
    value: *const u8,
    value_len: usize,
    error: *mut *mut GabionError,
) -> GabionCode {
    let put = |batch: &mut WriteBatch, keyspace: &Keyspace| {
        // SAFETY: bytes of the caller's, by contract.
        let key = unsafe { raw::key(key, key_len) }?;
        // SAFETY: as above.
        let value = unsafe { raw::value(value, value_len) }?;
        Ok(batch.put(keyspace, key, value)?)
    };
    // SAFETY: as for this function.
    unsafe { add(batch, keyspace, error, put) }
}

/// Adds a put of a value that expires so many milliseconds after this call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_batch_put_expiring(
    batch: *mut GabionBatch,
    keyspace: *const GabionKeyspace,
    key: *const u8,
    key_len: usize,
    value: *const u8,
    value_len: usize,
    after_ms: u64,
    error: *mut *mut GabionError,
) -> GabionCode {
    let put = |batch: &mut WriteBatch, keyspace: &Keyspace| {
        // SAFETY: bytes of the caller's, by contract.
        let key = unsafe { raw::key(key, key_len) }?;
        // SAFETY: as above.
        let value = unsafe { raw::value(value, value_len) }?;
        Ok(batch.put_expiring(keyspace, key, value, expiry(after_ms, false))?)
    };
    // SAFETY: as for this function.
    unsafe { add(batch, keyspace, error, put) }
}

/// Adds a put of a value that expires at a moment, in milliseconds since 1970.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_batch_put_expiring_at(
    batch: *mut GabionBatch,
    keyspace: *const GabionKeyspace,
    key: *const u8,
    key_len: usize,
    value: *const u8,
    value_len: usize,
    unix_ms: u64,
    error: *mut *mut GabionError,
) -> GabionCode {
    let put = |batch: &mut WriteBatch, keyspace: &Keyspace| {
        // SAFETY: bytes of the caller's, by contract.
        let key = unsafe { raw::key(key, key_len) }?;
        // SAFETY: as above.
        let value = unsafe { raw::value(value, value_len) }?;
        Ok(batch.put_expiring(keyspace, key, value, expiry(unix_ms, true))?)
    };
    // SAFETY: as for this function.
    unsafe { add(batch, keyspace, error, put) }
}

/// Adds a merge, as gabion_merge.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_batch_merge(
    batch: *mut GabionBatch,
    keyspace: *const GabionKeyspace,
    key: *const u8,
    key_len: usize,
    operand: *const u8,
    operand_len: usize,
    error: *mut *mut GabionError,
) -> GabionCode {
    let merge = |batch: &mut WriteBatch, keyspace: &Keyspace| {
        // SAFETY: bytes of the caller's, by contract.
        let key = unsafe { raw::key(key, key_len) }?;
        // SAFETY: as above.
        let operand = unsafe { raw::value(operand, operand_len) }?;
        Ok(batch.merge(keyspace, key, operand)?)
    };
    // SAFETY: as for this function.
    unsafe { add(batch, keyspace, error, merge) }
}

/// Adds a delete.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_batch_delete(
    batch: *mut GabionBatch,
    keyspace: *const GabionKeyspace,
    key: *const u8,
    key_len: usize,
    error: *mut *mut GabionError,
) -> GabionCode {
    let delete = |batch: &mut WriteBatch, keyspace: &Keyspace| {
        // SAFETY: bytes of the caller's, by contract.
        let key = unsafe { raw::key(key, key_len) }?;
        Ok(batch.delete(keyspace, key)?)
    };
    // SAFETY: as for this function.
    unsafe { add(batch, keyspace, error, delete) }
}

/// Adds a delete of all keys from lower on and below upper; NULL for no end on that side.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_batch_delete_range(
    batch: *mut GabionBatch,
    keyspace: *const GabionKeyspace,
    lower: *const u8,
    lower_len: usize,
    upper: *const u8,
    upper_len: usize,
    error: *mut *mut GabionError,
) -> GabionCode {
    let delete = |batch: &mut WriteBatch, keyspace: &Keyspace| {
        // SAFETY: bytes of the caller's, by contract.
        let lower = unsafe { raw::optional_key(lower, lower_len) }?;
        // SAFETY: as above.
        let upper = unsafe { raw::optional_key(upper, upper_len) }?;
        Ok(batch.delete_range::<Vec<u8>>(keyspace, range::between(lower, upper))?)
    };
    // SAFETY: as for this function.
    unsafe { add(batch, keyspace, error, delete) }
}

/// How many operations a batch has; 0 for what is no batch.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_batch_count(batch: *const GabionBatch) -> usize {
    call_or(0, || {
        // SAFETY: as for this function.
        unsafe { with_batch(batch, |gathered| Ok(gathered.batch.len())) }
    })
}

/// How many bytes the operations of a batch have; 0 for what is no batch.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_batch_bytes(batch: *const GabionBatch) -> u64 {
    call_or(0, || {
        // SAFETY: as for this function.
        unsafe { with_batch(batch, |gathered| Ok(gathered.batch.bytes())) }
    })
}

/// Removes all operations and keeps the memory for others.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_batch_clear(
    batch: *mut GabionBatch,
    error: *mut *mut GabionError,
) -> GabionCode {
    let clear = |gathered: &mut Gathered| {
        gathered.batch.clear();
        gathered.store = None;
        Ok(())
    };
    // SAFETY: as for this function.
    call(error, || unsafe { with_batch(batch, clear) })
}

/// Writes a batch: all of it or nothing. The batch stays as it is and may be written again, or
/// cleared. The durability is as for gabion_put_with.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_batch_write(
    store: *mut GabionStore,
    batch: *const GabionBatch,
    durability: *const c_char,
    error: *mut *mut GabionError,
) -> GabionCode {
    call(error, || {
        // SAFETY: null or a handle, by contract.
        let store = unsafe { get(store) }?;
        // SAFETY: null or text, by contract.
        let durability = unsafe { self::durability(durability) }?;
        let write = |gathered: &mut Gathered| {
            if let Some(own) = &gathered.store
                && !Arc::ptr_eq(own, store)
            {
                return Err(Failure::argument(
                    "the batch has keyspaces of another store",
                ));
            }
            match durability {
                Some(durability) => store.db.write_with(&gathered.batch, durability)?,
                None => store.db.write(&gathered.batch)?,
            }
            Ok(())
        };
        // SAFETY: as for this function.
        unsafe { with_batch(batch, write) }
    })
}

/// Frees a batch and clears the variable; what was not written is not.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_batch_free(batch: *mut *mut GabionBatch) {
    // SAFETY: a variable with null or a handle, by contract.
    unsafe { free(batch) }
}
