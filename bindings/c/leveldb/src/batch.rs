//! Batches: lists of puts and deletes, which belong to no store until they are written.

use std::ffi::{c_char, c_void};
use std::ptr;

use gabion::{Keyspace, WriteBatch};
use gabion_bindings::Result;

use crate::raw::{self, call_or, destroy, get, get_mut, make};

/// Writes that take effect together.
pub struct LeveldbWritebatch {
    operations: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

impl LeveldbWritebatch {
    /// The batch for a keyspace.
    pub(crate) fn for_write(&self, keyspace: &Keyspace) -> Result<WriteBatch> {
        let mut batch = WriteBatch::new();
        for (key, value) in &self.operations {
            match value {
                Some(value) => batch.put(keyspace, key, value)?,
                None => batch.delete(keyspace, key)?,
            }
        }
        Ok(batch)
    }
}

/// An empty batch.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_writebatch_create() -> *mut LeveldbWritebatch {
    let operations = Vec::new();
    call_or(ptr::null_mut(), || {
        Ok(make(LeveldbWritebatch { operations }))
    })
}

/// Frees a batch.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_writebatch_destroy(batch: *mut LeveldbWritebatch) {
    // SAFETY: null or a handle, by contract.
    unsafe { destroy(batch) }
}

/// Removes all operations.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_writebatch_clear(batch: *mut LeveldbWritebatch) {
    call_or((), || {
        // SAFETY: null or a handle, by contract.
        unsafe { get_mut(batch) }?.operations.clear();
        Ok(())
    });
}

/// Adds a put. What is too long is left out, as there is no place for an error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_writebatch_put(
    batch: *mut LeveldbWritebatch,
    key: *const c_char,
    klen: usize,
    val: *const c_char,
    vlen: usize,
) {
    call_or((), || {
        // SAFETY: null or a handle, by contract.
        let batch = unsafe { get_mut(batch) }?;
        // SAFETY: bytes of the caller's, by contract.
        let key = unsafe { raw::key(key, klen) }?.to_vec();
        // SAFETY: as above.
        let value = unsafe { raw::value(val, vlen) }?.to_vec();
        batch.operations.push((key, Some(value)));
        Ok(())
    });
}

/// Adds a delete.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_writebatch_delete(
    batch: *mut LeveldbWritebatch,
    key: *const c_char,
    klen: usize,
) {
    call_or((), || {
        // SAFETY: null or a handle, by contract.
        let batch = unsafe { get_mut(batch) }?;
        // SAFETY: bytes of the caller's, by contract.
        let key = unsafe { raw::key(key, klen) }?.to_vec();
        batch.operations.push((key, None));
        Ok(())
    });
}

/// Calls back for each operation of a batch, in their order.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_writebatch_iterate(
    batch: *const LeveldbWritebatch,
    state: *mut c_void,
    put: Option<
        unsafe extern "C" fn(
            state: *mut c_void,
            k: *const c_char,
            klen: usize,
            v: *const c_char,
            vlen: usize,
        ),
    >,
    deleted: Option<unsafe extern "C" fn(state: *mut c_void, k: *const c_char, klen: usize)>,
) {
    call_or((), || {
        // SAFETY: null or a handle, by contract.
        for (key, value) in &unsafe { get(batch) }?.operations {
            let (data, len) = (key.as_ptr().cast(), key.len());
            match (value, put, deleted) {
                (Some(value), Some(put), _) => {
                    // SAFETY: the caller's function takes bytes, which are there during the call.
                    unsafe { put(state, data, len, value.as_ptr().cast(), value.len()) }
                }
                // SAFETY: as above.
                (None, _, Some(deleted)) => unsafe { deleted(state, data, len) },
                _ => {}
            }
        }
        Ok(())
    });
}

/// Adds the operations of another batch.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_writebatch_append(
    destination: *mut LeveldbWritebatch,
    source: *const LeveldbWritebatch,
) {
    call_or((), || {
        // SAFETY: null or a handle, by contract.
        let operations = unsafe { get(source) }?.operations.clone();
        // SAFETY: as above.
        unsafe { get_mut(destination) }?
            .operations
            .extend(operations);
        Ok(())
    });
}
