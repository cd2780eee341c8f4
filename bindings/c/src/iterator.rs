//! Iterators.

use std::ptr;
use std::sync::Mutex;

use gabion_bindings::{Failure, Reader, Result, Walk, range};

use crate::error::{GabionCode, GabionError, call, call_or};
use crate::handle::{free, get, get_optional, make, opaque};
use crate::keyspace::GabionKeyspace;
use crate::raw::{self, Out};
use crate::read::{GabionSnapshot, check_snapshot};

/// The pairs of a keyspace, forward and backward. One thread at a time may use it.
pub struct GabionIterator {
    _private: [u8; 0],
}

opaque!(GabionIterator: Mutex<Walk>, b"gbniterr", "iterator");

/// Runs a move of an iterator, alone.
///
/// # Safety
/// As [`get`].
unsafe fn go(
    iterator: *mut GabionIterator,
    error: *mut *mut GabionError,
    body: impl FnOnce(&mut Walk) -> Result<bool>,
) -> GabionCode {
    call(error, || {
        // SAFETY: null or a handle, by contract.
        let walk = unsafe { get(iterator) }?;
        body(&mut *walk.try_lock().map_err(|_| Failure::Busy)?)?;
        Ok(())
    })
}

/// Reads where an iterator stands.
///
/// # Safety
/// As [`get`].
unsafe fn look<T>(
    iterator: *const GabionIterator,
    otherwise: T,
    body: impl FnOnce(&Walk) -> Result<T>,
) -> T {
    call_or(otherwise, || {
        // SAFETY: null or a handle, by contract.
        let walk = unsafe { get(iterator) }?;
        body(&*walk.try_lock().map_err(|_| Failure::Busy)?)
    })
}

/// An iterator over the keys from lower on and below upper, with NULL for no end on that side: of
/// the moment of a snapshot, or of now for NULL. It stands at no pair before it is told where to
/// go. It keeps what it needs of the store, also when other handles are freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_iterator_new(
    keyspace: *const GabionKeyspace,
    snapshot: *const GabionSnapshot,
    lower: *const u8,
    lower_len: usize,
    upper: *const u8,
    upper_len: usize,
    iterator: *mut *mut GabionIterator,
    error: *mut *mut GabionError,
) -> GabionCode {
    call(error, || {
        // SAFETY: a place for a pointer, by contract.
        let place = unsafe { Out::pointer(iterator, "iterator") }?;
        // SAFETY: null or a handle, by contract.
        let owned = unsafe { get(keyspace) }?;
        // SAFETY: as above.
        let taken = unsafe { get_optional(snapshot) }?;
        // SAFETY: bytes of the caller's, by contract.
        let lower = unsafe { raw::optional_key(lower, lower_len) }?;
        // SAFETY: as above.
        let upper = unsafe { raw::optional_key(upper, upper_len) }?;
        let reader = match taken {
            Some(taken) => {
                check_snapshot(taken, owned)?;
                Reader::Snapshot(taken.snapshot.clone())
            }
            None => Reader::now(&owned.store.db),
        };
        let bounds = range::between(lower, upper);
        let walk = Walk::new(&owned.store.db, &owned.keyspace, reader, bounds);
        place.set(make(Mutex::new(walk)));
        Ok(())
    })
}

/// Goes to the first pair. Whether there is one, gabion_iterator_valid tells: so it is with all
/// moves. Of an engine without order, this and gabion_iterator_next go through all pairs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_iterator_first(
    iterator: *mut GabionIterator,
    error: *mut *mut GabionError,
) -> GabionCode {
    // SAFETY: as for this function.
    unsafe { go(iterator, error, Walk::first) }
}

/// Goes to the last pair.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_iterator_last(
    iterator: *mut GabionIterator,
    error: *mut *mut GabionError,
) -> GabionCode {
    // SAFETY: as for this function.
    unsafe { go(iterator, error, Walk::last) }
}

/// Goes to the first pair whose key is key or above it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_iterator_seek(
    iterator: *mut GabionIterator,
    key: *const u8,
    key_len: usize,
    error: *mut *mut GabionError,
) -> GabionCode {
    let seek = |walk: &mut Walk| {
        // SAFETY: bytes of the caller's, by contract.
        let key = unsafe { raw::key(key, key_len) }?;
        walk.seek(key)
    };
    // SAFETY: as for this function.
    unsafe { go(iterator, error, seek) }
}

/// Goes to the last pair whose key is key or below it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_iterator_seek_back(
    iterator: *mut GabionIterator,
    key: *const u8,
    key_len: usize,
    error: *mut *mut GabionError,
) -> GabionCode {
    let seek = |walk: &mut Walk| {
        // SAFETY: bytes of the caller's, by contract.
        let key = unsafe { raw::key(key, key_len) }?;
        walk.seek_back(key)
    };
    // SAFETY: as for this function.
    unsafe { go(iterator, error, seek) }
}

/// Goes to the next pair. Where the iterator stands at none, it stays there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_iterator_next(
    iterator: *mut GabionIterator,
    error: *mut *mut GabionError,
) -> GabionCode {
    // SAFETY: as for this function.
    unsafe { go(iterator, error, Walk::forward) }
}

/// Goes to the pair before. Where the iterator stands at none, it stays there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_iterator_prev(
    iterator: *mut GabionIterator,
    error: *mut *mut GabionError,
) -> GabionCode {
    // SAFETY: as for this function.
    unsafe { go(iterator, error, Walk::back) }
}

/// Whether the iterator stands at a pair; false for what is no iterator.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_iterator_valid(iterator: *const GabionIterator) -> bool {
    // SAFETY: as for this function.
    unsafe { look(iterator, false, |walk| Ok(walk.is_at_pair())) }
}

/// The key of the pair, and in *len its length; NULL where there is none. Valid until the iterator
/// moves or is freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_iterator_key(
    iterator: *const GabionIterator,
    len: *mut usize,
) -> *const u8 {
    // SAFETY: as for this function.
    unsafe { look(iterator, ptr::null(), |walk| lend(walk, walk.key(), len)) }
}

/// The value of the pair, as gabion_iterator_key its key.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_iterator_value(
    iterator: *const GabionIterator,
    len: *mut usize,
) -> *const u8 {
    // SAFETY: as for this function.
    unsafe { look(iterator, ptr::null(), |walk| lend(walk, walk.value(), len)) }
}

/// Lends bytes of the pair.
fn lend(walk: &Walk, bytes: &[u8], len: *mut usize) -> Result<*const u8> {
    // SAFETY: a place for a number, by contract of both callers.
    let len = unsafe { Out::new(len, 0, "length") }?;
    if !walk.is_at_pair() {
        return Ok(ptr::null());
    }
    len.set(bytes.len());
    Ok(bytes.as_ptr())
}

/// Frees an iterator and clears the variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_iterator_free(iterator: *mut *mut GabionIterator) {
    // SAFETY: a variable with null or a handle, by contract.
    unsafe { free(iterator) }
}
