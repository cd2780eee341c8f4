//! Single writes.

use std::ffi::c_char;

use gabion::Keyspace;
use gabion_bindings::{Result, expiry, range};

use crate::error::{GabionCode, GabionError, call};
use crate::handle::get;
use crate::keyspace::GabionKeyspace;
use crate::raw::{self, Out};
use crate::store::durability;

/// Runs a write of a key.
///
/// # Safety
/// As [`get`] and [`raw::key`].
unsafe fn with_key(
    keyspace: *const GabionKeyspace,
    data: *const u8,
    len: usize,
    error: *mut *mut GabionError,
    body: impl FnOnce(&Keyspace, &[u8]) -> Result<()>,
) -> GabionCode {
    call(error, || {
        // SAFETY: null or a handle, by contract.
        let keyspace = unsafe { get(keyspace) }?;
        // SAFETY: bytes of the caller's, by contract.
        let key = unsafe { raw::key(data, len) }?;
        body(&keyspace.keyspace, key)
    })
}

/// Gives a key a value. Any bytes are a key of up to 65,535 bytes, or a value of up to 1 GiB.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_put(
    keyspace: *mut GabionKeyspace,
    key: *const u8,
    key_len: usize,
    value: *const u8,
    value_len: usize,
    error: *mut *mut GabionError,
) -> GabionCode {
    let put = |keyspace: &Keyspace, key: &[u8]| {
        // SAFETY: bytes of the caller's, by contract.
        let value = unsafe { raw::value(value, value_len) }?;
        Ok(keyspace.put(key, value)?)
    };
    // SAFETY: as for this function.
    unsafe { with_key(keyspace, key, key_len, error, put) }
}

/// As gabion_put, at a durability: "sync", "interval:MILLISECONDS" or "buffered"; NULL for the
/// store's. Other writes that have one of their own go by a batch.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_put_with(
    keyspace: *mut GabionKeyspace,
    key: *const u8,
    key_len: usize,
    value: *const u8,
    value_len: usize,
    durability: *const c_char,
    error: *mut *mut GabionError,
) -> GabionCode {
    let put = |keyspace: &Keyspace, key: &[u8]| {
        // SAFETY: bytes of the caller's, by contract.
        let value = unsafe { raw::value(value, value_len) }?;
        // SAFETY: null or text, by contract.
        match unsafe { self::durability(durability) }? {
            Some(durability) => Ok(keyspace.put_with(key, value, durability)?),
            None => Ok(keyspace.put(key, value)?),
        }
    };
    // SAFETY: as for this function.
    unsafe { with_key(keyspace, key, key_len, error, put) }
}

/// Gives a key a value that expires after so many milliseconds.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_put_expiring(
    keyspace: *mut GabionKeyspace,
    key: *const u8,
    key_len: usize,
    value: *const u8,
    value_len: usize,
    after_ms: u64,
    error: *mut *mut GabionError,
) -> GabionCode {
    let put = |keyspace: &Keyspace, key: &[u8]| {
        // SAFETY: bytes of the caller's, by contract.
        let value = unsafe { raw::value(value, value_len) }?;
        Ok(keyspace.put_expiring(key, value, expiry(after_ms, false))?)
    };
    // SAFETY: as for this function.
    unsafe { with_key(keyspace, key, key_len, error, put) }
}

/// Gives a key a value that expires at a moment, in milliseconds since 1970.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_put_expiring_at(
    keyspace: *mut GabionKeyspace,
    key: *const u8,
    key_len: usize,
    value: *const u8,
    value_len: usize,
    unix_ms: u64,
    error: *mut *mut GabionError,
) -> GabionCode {
    let put = |keyspace: &Keyspace, key: &[u8]| {
        // SAFETY: bytes of the caller's, by contract.
        let value = unsafe { raw::value(value, value_len) }?;
        Ok(keyspace.put_expiring(key, value, expiry(unix_ms, true))?)
    };
    // SAFETY: as for this function.
    unsafe { with_key(keyspace, key, key_len, error, put) }
}

/// Lets the value of a key expire after so many milliseconds, whatever it did before. *is_there
/// becomes false, and nothing is done, if the key is not there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_expire(
    keyspace: *mut GabionKeyspace,
    key: *const u8,
    key_len: usize,
    after_ms: u64,
    is_there: *mut bool,
    error: *mut *mut GabionError,
) -> GabionCode {
    let expire = |keyspace: &Keyspace, key: &[u8]| {
        // SAFETY: a place for a bool, by contract.
        let is_there = unsafe { Out::new(is_there, false, "answer") }?;
        is_there.set(keyspace.expire(key, expiry(after_ms, false))?);
        Ok(())
    };
    // SAFETY: as for this function.
    unsafe { with_key(keyspace, key, key_len, error, expire) }
}

/// As gabion_expire, at a moment in milliseconds since 1970.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_expire_at(
    keyspace: *mut GabionKeyspace,
    key: *const u8,
    key_len: usize,
    unix_ms: u64,
    is_there: *mut bool,
    error: *mut *mut GabionError,
) -> GabionCode {
    let expire = |keyspace: &Keyspace, key: &[u8]| {
        // SAFETY: a place for a bool, by contract.
        let is_there = unsafe { Out::new(is_there, false, "answer") }?;
        is_there.set(keyspace.expire(key, expiry(unix_ms, true))?);
        Ok(())
    };
    // SAFETY: as for this function.
    unsafe { with_key(keyspace, key, key_len, error, expire) }
}

/// Lets the value of a key stay for good. *is_changed becomes false if it is not there, or did not
/// expire.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_remove_expiry(
    keyspace: *mut GabionKeyspace,
    key: *const u8,
    key_len: usize,
    is_changed: *mut bool,
    error: *mut *mut GabionError,
) -> GabionCode {
    let persist = |keyspace: &Keyspace, key: &[u8]| {
        // SAFETY: a place for a bool, by contract.
        let is_changed = unsafe { Out::new(is_changed, false, "answer") }?;
        is_changed.set(keyspace.remove_expiry(key)?);
        Ok(())
    };
    // SAFETY: as for this function.
    unsafe { with_key(keyspace, key, key_len, error, persist) }
}

/// Merges an operand into the value of a key, as the operator says that the keyspace was given by
/// its option merge: "add_i64", "add_u64", "max_bytes", "min_bytes", "bit_or", or "append:" with a
/// separator behind it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_merge(
    keyspace: *mut GabionKeyspace,
    key: *const u8,
    key_len: usize,
    operand: *const u8,
    operand_len: usize,
    error: *mut *mut GabionError,
) -> GabionCode {
    let merge = |keyspace: &Keyspace, key: &[u8]| {
        // SAFETY: bytes of the caller's, by contract.
        let operand = unsafe { raw::value(operand, operand_len) }?;
        Ok(keyspace.merge(key, operand)?)
    };
    // SAFETY: as for this function.
    unsafe { with_key(keyspace, key, key_len, error, merge) }
}

/// Removes a key and its value, if it is there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_delete(
    keyspace: *mut GabionKeyspace,
    key: *const u8,
    key_len: usize,
    error: *mut *mut GabionError,
) -> GabionCode {
    let delete = |keyspace: &Keyspace, key: &[u8]| Ok(keyspace.delete(key)?);
    // SAFETY: as for this function.
    unsafe { with_key(keyspace, key, key_len, error, delete) }
}

/// Removes all keys from lower on and below upper, at one moment; NULL for no end on that side.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_delete_range(
    keyspace: *mut GabionKeyspace,
    lower: *const u8,
    lower_len: usize,
    upper: *const u8,
    upper_len: usize,
    error: *mut *mut GabionError,
) -> GabionCode {
    call(error, || {
        // SAFETY: null or a handle, by contract.
        let keyspace = unsafe { get(keyspace) }?;
        // SAFETY: bytes of the caller's, by contract.
        let lower = unsafe { raw::optional_key(lower, lower_len) }?;
        // SAFETY: as above.
        let upper = unsafe { raw::optional_key(upper, upper_len) }?;
        Ok(keyspace
            .keyspace
            .delete_range::<Vec<u8>>(range::between(lower, upper))?)
    })
}

/// Brings the keys from lower on and below upper into the best order that the engine knows, and
/// waits for that; NULL for no end on that side.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_compact(
    keyspace: *mut GabionKeyspace,
    lower: *const u8,
    lower_len: usize,
    upper: *const u8,
    upper_len: usize,
    error: *mut *mut GabionError,
) -> GabionCode {
    call(error, || {
        // SAFETY: null or a handle, by contract.
        let keyspace = unsafe { get(keyspace) }?;
        // SAFETY: bytes of the caller's, by contract.
        let lower = unsafe { raw::optional_key(lower, lower_len) }?;
        // SAFETY: as above.
        let upper = unsafe { raw::optional_key(upper, upper_len) }?;
        Ok(keyspace
            .keyspace
            .compact::<Vec<u8>>(range::between(lower, upper))?)
    })
}

/// Changes the value of a key from expected to value, where NULL stands for no value. *is_changed
/// becomes false, and nothing is done, if the key has another value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_compare_and_swap(
    keyspace: *mut GabionKeyspace,
    key: *const u8,
    key_len: usize,
    expected: *const u8,
    expected_len: usize,
    value: *const u8,
    value_len: usize,
    is_changed: *mut bool,
    error: *mut *mut GabionError,
) -> GabionCode {
    let swap = |keyspace: &Keyspace, key: &[u8]| {
        // SAFETY: a place for a bool, by contract.
        let is_changed = unsafe { Out::new(is_changed, false, "answer") }?;
        // SAFETY: bytes of the caller's, by contract.
        let expected = unsafe { raw::optional_value(expected, expected_len) }?;
        // SAFETY: as above.
        let value = unsafe { raw::optional_value(value, value_len) }?;
        is_changed.set(keyspace.compare_and_swap(key, expected, value)?);
        Ok(())
    };
    // SAFETY: as for this function.
    unsafe { with_key(keyspace, key, key_len, error, swap) }
}
