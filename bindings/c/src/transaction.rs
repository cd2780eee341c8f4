//! Transactions.

use std::ffi::c_char;
use std::sync::{Arc, Mutex};

use gabion::Keyspace;
use gabion_bindings::{
    Reader, Result, SharedTransaction, Walk, expiry, options, range, unix_millis,
};

use crate::error::{GabionCode, GabionError, call};
use crate::handle::{free, get, make, opaque};
use crate::iterator::GabionIterator;
use crate::keyspace::{GabionKeyspace, GabionValues};
use crate::options::{GabionOptions, pairs};
use crate::raw::{self, Out};
use crate::read::give_copy;
use crate::store::{GabionStore, Shared, durability};

/// A transaction, and the store that it is of.
pub struct Begun {
    store: Arc<Shared>,
    transaction: SharedTransaction,
}

impl Drop for Begun {
    fn drop(&mut self) {
        // For iterators that are still there.
        self.transaction.rollback();
    }
}

/// Reads of one moment and writes that take effect together. Calls of several threads wait for
/// each other.
pub struct GabionTransaction {
    _private: [u8; 0],
}

opaque!(GabionTransaction: Begun, b"gbntrans", "transaction");

/// Runs a call of a transaction on a keyspace.
///
/// # Safety
/// As [`get`].
unsafe fn on<T>(
    transaction: *const GabionTransaction,
    keyspace: *const GabionKeyspace,
    body: impl FnOnce(&Begun, &Keyspace) -> Result<T>,
) -> Result<T> {
    // SAFETY: null or a handle, by contract.
    let begun = unsafe { get(transaction) }?;
    // SAFETY: as above.
    let owned = unsafe { get(keyspace) }?;
    body(begun, owned.of(&begun.store)?)
}

/// Begins a transaction, with the options isolation ("serializable" or "snapshot") and bytes_max,
/// or NULL. It should be short, as it keeps old versions like a snapshot.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_transaction_begin(
    store: *mut GabionStore,
    options: *const GabionOptions,
    transaction: *mut *mut GabionTransaction,
    error: *mut *mut GabionError,
) -> GabionCode {
    call(error, || {
        // SAFETY: a place for a pointer, by contract.
        let place = unsafe { Out::pointer(transaction, "transaction") }?;
        // SAFETY: null or a handle, by contract.
        let store = unsafe { get(store) }?;
        // SAFETY: as above.
        let options = options::transaction(&unsafe { pairs(options) }?)?;
        place.set(make(Begun {
            transaction: SharedTransaction::begin(&store.db, options)?,
            store: Arc::clone(store),
        }));
        Ok(())
    })
}

/// The value of a key, the transaction's own or that of its beginning, as gabion_get.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_transaction_get(
    transaction: *mut GabionTransaction,
    keyspace: *const GabionKeyspace,
    key: *const u8,
    key_len: usize,
    value: *mut *mut u8,
    value_len: *mut usize,
    error: *mut *mut GabionError,
) -> GabionCode {
    let find = |begun: &Begun, keyspace: &Keyspace| {
        // SAFETY: bytes of the caller's, by contract.
        let key = unsafe { raw::key(key, key_len) }?;
        begun.transaction.read(|own| own.get(keyspace, key))
    };
    call(error, || {
        let find = || {
            // SAFETY: as for this function.
            unsafe { on(transaction, keyspace, find) }
        };
        // SAFETY: as for this function.
        unsafe { give_copy(value, value_len, find) }
    })
}

/// As gabion_transaction_get, of a key that the commit depends on, whatever the isolation.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_transaction_get_for_update(
    transaction: *mut GabionTransaction,
    keyspace: *const GabionKeyspace,
    key: *const u8,
    key_len: usize,
    value: *mut *mut u8,
    value_len: *mut usize,
    error: *mut *mut GabionError,
) -> GabionCode {
    let find = |begun: &Begun, keyspace: &Keyspace| {
        // SAFETY: bytes of the caller's, by contract.
        let key = unsafe { raw::key(key, key_len) }?;
        begun
            .transaction
            .read(|own| own.get_for_update(keyspace, key))
    };
    call(error, || {
        let find = || {
            // SAFETY: as for this function.
            unsafe { on(transaction, keyspace, find) }
        };
        // SAFETY: as for this function.
        unsafe { give_copy(value, value_len, find) }
    })
}

/// Whether a key is there, for the transaction.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_transaction_contains(
    transaction: *mut GabionTransaction,
    keyspace: *const GabionKeyspace,
    key: *const u8,
    key_len: usize,
    is_there: *mut bool,
    error: *mut *mut GabionError,
) -> GabionCode {
    let look = |begun: &Begun, keyspace: &Keyspace| {
        // SAFETY: a place for a bool, by contract.
        let is_there = unsafe { Out::new(is_there, false, "answer") }?;
        // SAFETY: bytes of the caller's, by contract.
        let key = unsafe { raw::key(key, key_len) }?;
        is_there.set(begun.transaction.read(|own| own.contains(keyspace, key))?);
        Ok(())
    };
    // SAFETY: as for this function.
    call(error, || unsafe { on(transaction, keyspace, look) })
}

/// As gabion_expires_at, for the transaction.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_transaction_expires_at(
    transaction: *mut GabionTransaction,
    keyspace: *const GabionKeyspace,
    key: *const u8,
    key_len: usize,
    unix_ms: *mut i64,
    error: *mut *mut GabionError,
) -> GabionCode {
    let look = |begun: &Begun, keyspace: &Keyspace| {
        // SAFETY: a place for a number, by contract.
        let unix_ms = unsafe { Out::new(unix_ms, -1, "moment") }?;
        // SAFETY: bytes of the caller's, by contract.
        let key = unsafe { raw::key(key, key_len) }?;
        let at = begun
            .transaction
            .read(|own| own.expires_at(keyspace, key))?;
        unix_ms.set(unix_millis(at));
        Ok(())
    };
    // SAFETY: as for this function.
    call(error, || unsafe { on(transaction, keyspace, look) })
}

/// The values of count keys, for the transaction, in the order of the keys.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_transaction_multi_get(
    transaction: *mut GabionTransaction,
    keyspace: *const GabionKeyspace,
    keys: *const *const u8,
    key_lens: *const usize,
    count: usize,
    values: *mut *mut GabionValues,
    error: *mut *mut GabionError,
) -> GabionCode {
    let find = |begun: &Begun, keyspace: &Keyspace| {
        // SAFETY: a place for a pointer, by contract.
        let values = unsafe { Out::pointer(values, "values") }?;
        // SAFETY: lists of the caller's, by contract.
        let keys = unsafe { raw::keys(keys, key_lens, count) }?;
        let found = begun
            .transaction
            .read(|own| own.multi_get(keyspace, &keys))?;
        values.set(make(found));
        Ok(())
    };
    // SAFETY: as for this function.
    call(error, || unsafe { on(transaction, keyspace, find) })
}

/// Gives a key a value, once the transaction is committed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_transaction_put(
    transaction: *mut GabionTransaction,
    keyspace: *const GabionKeyspace,
    key: *const u8,
    key_len: usize,
    value: *const u8,
    value_len: usize,
    error: *mut *mut GabionError,
) -> GabionCode {
    let put = |begun: &Begun, keyspace: &Keyspace| {
        // SAFETY: bytes of the caller's, by contract.
        let key = unsafe { raw::key(key, key_len) }?;
        // SAFETY: as above.
        let value = unsafe { raw::value(value, value_len) }?;
        begun.transaction.write(|own| own.put(keyspace, key, value))
    };
    // SAFETY: as for this function.
    call(error, || unsafe { on(transaction, keyspace, put) })
}

/// As gabion_transaction_put, of a value that expires so many milliseconds after this call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_transaction_put_expiring(
    transaction: *mut GabionTransaction,
    keyspace: *const GabionKeyspace,
    key: *const u8,
    key_len: usize,
    value: *const u8,
    value_len: usize,
    after_ms: u64,
    error: *mut *mut GabionError,
) -> GabionCode {
    let put = |begun: &Begun, keyspace: &Keyspace| {
        // SAFETY: bytes of the caller's, by contract.
        let key = unsafe { raw::key(key, key_len) }?;
        // SAFETY: as above.
        let value = unsafe { raw::value(value, value_len) }?;
        let expiry = expiry(after_ms, false);
        let put = |own: &mut gabion::Transaction| own.put_expiring(keyspace, key, value, expiry);
        begun.transaction.write(put)
    };
    // SAFETY: as for this function.
    call(error, || unsafe { on(transaction, keyspace, put) })
}

/// As gabion_transaction_put, of a value that expires at a moment, in milliseconds since 1970.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_transaction_put_expiring_at(
    transaction: *mut GabionTransaction,
    keyspace: *const GabionKeyspace,
    key: *const u8,
    key_len: usize,
    value: *const u8,
    value_len: usize,
    unix_ms: u64,
    error: *mut *mut GabionError,
) -> GabionCode {
    let put = |begun: &Begun, keyspace: &Keyspace| {
        // SAFETY: bytes of the caller's, by contract.
        let key = unsafe { raw::key(key, key_len) }?;
        // SAFETY: as above.
        let value = unsafe { raw::value(value, value_len) }?;
        let expiry = expiry(unix_ms, true);
        let put = |own: &mut gabion::Transaction| own.put_expiring(keyspace, key, value, expiry);
        begun.transaction.write(put)
    };
    // SAFETY: as for this function.
    call(error, || unsafe { on(transaction, keyspace, put) })
}

/// Merges an operand into the value of a key, as gabion_merge, once the transaction is committed.
/// Others who merge into the key are no conflict.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_transaction_merge(
    transaction: *mut GabionTransaction,
    keyspace: *const GabionKeyspace,
    key: *const u8,
    key_len: usize,
    operand: *const u8,
    operand_len: usize,
    error: *mut *mut GabionError,
) -> GabionCode {
    let merge = |begun: &Begun, keyspace: &Keyspace| {
        // SAFETY: bytes of the caller's, by contract.
        let key = unsafe { raw::key(key, key_len) }?;
        // SAFETY: as above.
        let operand = unsafe { raw::value(operand, operand_len) }?;
        let merge = |own: &mut gabion::Transaction| own.merge(keyspace, key, operand);
        begun.transaction.write(merge)
    };
    // SAFETY: as for this function.
    call(error, || unsafe { on(transaction, keyspace, merge) })
}

/// Removes a key, once the transaction is committed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_transaction_delete(
    transaction: *mut GabionTransaction,
    keyspace: *const GabionKeyspace,
    key: *const u8,
    key_len: usize,
    error: *mut *mut GabionError,
) -> GabionCode {
    let delete = |begun: &Begun, keyspace: &Keyspace| {
        // SAFETY: bytes of the caller's, by contract.
        let key = unsafe { raw::key(key, key_len) }?;
        begun.transaction.write(|own| own.delete(keyspace, key))
    };
    // SAFETY: as for this function.
    call(error, || unsafe { on(transaction, keyspace, delete) })
}

/// Removes all keys from lower on and below upper, once the transaction is committed; NULL for no
/// end on that side.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_transaction_delete_range(
    transaction: *mut GabionTransaction,
    keyspace: *const GabionKeyspace,
    lower: *const u8,
    lower_len: usize,
    upper: *const u8,
    upper_len: usize,
    error: *mut *mut GabionError,
) -> GabionCode {
    let delete = |begun: &Begun, keyspace: &Keyspace| {
        // SAFETY: bytes of the caller's, by contract.
        let lower = unsafe { raw::optional_key(lower, lower_len) }?;
        // SAFETY: as above.
        let upper = unsafe { raw::optional_key(upper, upper_len) }?;
        let bounds = range::between(lower, upper);
        begun
            .transaction
            .write(|own| own.delete_range::<Vec<u8>>(keyspace, bounds))
    };
    // SAFETY: as for this function.
    call(error, || unsafe { on(transaction, keyspace, delete) })
}

/// An iterator as gabion_iterator_new makes it, over what the transaction sees, its own writes
/// included. What it passes counts as read, and up to 64 pairs ahead of that. When the transaction
/// has ended, its moves are GABION_CODE_ENDED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_transaction_iterator(
    transaction: *mut GabionTransaction,
    keyspace: *const GabionKeyspace,
    lower: *const u8,
    lower_len: usize,
    upper: *const u8,
    upper_len: usize,
    iterator: *mut *mut GabionIterator,
    error: *mut *mut GabionError,
) -> GabionCode {
    let iterate = |begun: &Begun, keyspace: &Keyspace| {
        // SAFETY: a place for a pointer, by contract.
        let place = unsafe { Out::pointer(iterator, "iterator") }?;
        // SAFETY: bytes of the caller's, by contract.
        let lower = unsafe { raw::optional_key(lower, lower_len) }?;
        // SAFETY: as above.
        let upper = unsafe { raw::optional_key(upper, upper_len) }?;
        let reader = Reader::Transaction(begun.transaction.clone());
        let bounds = range::between(lower, upper);
        let walk = Walk::new(&begun.store.db, keyspace, reader, bounds);
        place.set(make(Mutex::new(walk)));
        Ok(())
    };
    // SAFETY: as for this function.
    call(error, || unsafe { on(transaction, keyspace, iterate) })
}

/// Marks this moment of a transaction; *savepoint becomes its number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_transaction_savepoint(
    transaction: *mut GabionTransaction,
    savepoint: *mut u64,
    error: *mut *mut GabionError,
) -> GabionCode {
    call(error, || {
        // SAFETY: a place for a number, by contract.
        let savepoint = unsafe { Out::new(savepoint, 0, "savepoint") }?;
        // SAFETY: null or a handle, by contract.
        savepoint.set(unsafe { get(transaction) }?.transaction.savepoint()?);
        Ok(())
    })
}

/// Takes back what a transaction wrote since a savepoint. The savepoint stays, later ones are gone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_transaction_rollback_to(
    transaction: *mut GabionTransaction,
    savepoint: u64,
    error: *mut *mut GabionError,
) -> GabionCode {
    call(error, || {
        // SAFETY: null or a handle, by contract.
        unsafe { get(transaction) }?
            .transaction
            .rollback_to(savepoint)
    })
}

/// Commits a transaction, which has ended then, with success or without. GABION_CODE_CONFLICT says
/// that nothing was written, and that it is to be run again from its beginning. The durability is
/// as for gabion_put_with.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_transaction_commit(
    transaction: *mut GabionTransaction,
    durability: *const c_char,
    error: *mut *mut GabionError,
) -> GabionCode {
    call(error, || {
        // SAFETY: null or a handle, by contract.
        let begun = unsafe { get(transaction) }?;
        // SAFETY: null or text, by contract.
        let durability = unsafe { self::durability(durability) }?;
        begun.transaction.commit(durability)
    })
}

/// Ends a transaction without an effect. GABION_CODE_ENDED if it had ended before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_transaction_rollback(
    transaction: *mut GabionTransaction,
    error: *mut *mut GabionError,
) -> GabionCode {
    call(error, || {
        // SAFETY: null or a handle, by contract.
        match unsafe { get(transaction) }?.transaction.rollback() {
            true => Ok(()),
            false => Err(gabion_bindings::Failure::Ended),
        }
    })
}

/// Frees a transaction and clears the variable; what was not committed is rolled back.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_transaction_free(transaction: *mut *mut GabionTransaction) {
    // SAFETY: a variable with null or a handle, by contract.
    unsafe { free(transaction) }
}
