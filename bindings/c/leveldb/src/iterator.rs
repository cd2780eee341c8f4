//! Iterators.

use std::ffi::c_char;
use std::ptr;

use gabion_bindings::{Failure, Reader, Result, Walk, range};

use crate::db::LeveldbT;
use crate::options::LeveldbReadoptions;
use crate::raw::{self, call_or, destroy, get, get_mut, make, save};

/// The pairs of a store.
pub struct LeveldbIterator {
    walk: Option<Walk>,
    /// What went wrong first.
    failure: Option<Failure>,
}

/// An iterator over all pairs, of a snapshot if the options have one. It stands at none at first.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_create_iterator(
    db: *mut LeveldbT,
    options: *const LeveldbReadoptions,
) -> *mut LeveldbIterator {
    call_or(ptr::null_mut(), || {
        // SAFETY: null or a handle, by contract.
        let db = &unsafe { get(db.cast_const()) }?.db;
        // SAFETY: as above.
        let snapshot = unsafe { get(options) }.map_or(Ok(None), |own| own.snapshot());
        let all = range::between(None, None);
        let walk = |reader| Walk::new(db, db.default_keyspace(), reader, all);
        Ok(make(match snapshot {
            Ok(snapshot) => LeveldbIterator {
                walk: Some(walk(match snapshot {
                    Some(snapshot) => Reader::Snapshot((*snapshot).clone()),
                    None => Reader::now(db),
                })),
                failure: None,
            },
            Err(failure) => LeveldbIterator {
                walk: None,
                failure: Some(failure),
            },
        }))
    })
}

/// Frees an iterator.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_iter_destroy(iter: *mut LeveldbIterator) {
    // SAFETY: null or a handle, by contract.
    unsafe { destroy(iter) }
}

/// Whether the iterator stands at a pair.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_iter_valid(iter: *const LeveldbIterator) -> u8 {
    call_or(0, || {
        // SAFETY: null or a handle, by contract.
        let walk = &unsafe { get(iter) }?.walk;
        Ok(walk.as_ref().is_some_and(Walk::is_at_pair).into())
    })
}

/// Moves an iterator.
///
/// # Safety
/// As [`get_mut`].
unsafe fn go(iter: *mut LeveldbIterator, go: impl FnOnce(&mut Walk) -> Result<bool>) {
    call_or((), || {
        // SAFETY: null or a handle, by contract.
        let own = unsafe { get_mut(iter) }?;
        let moved = own
            .walk
            .as_mut()
            .map(|walk| gabion_bindings::guard(|| go(walk)));
        if let Some(Err(failure)) = moved {
            own.failure.get_or_insert(failure);
        }
        Ok(())
    });
}

/// Goes to the first pair.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_iter_seek_to_first(iter: *mut LeveldbIterator) {
    // SAFETY: as for this function.
    unsafe { go(iter, Walk::first) }
}

/// Goes to the last pair.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_iter_seek_to_last(iter: *mut LeveldbIterator) {
    // SAFETY: as for this function.
    unsafe { go(iter, Walk::last) }
}

/// Goes to the first pair whose key is a key or above it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_iter_seek(
    iter: *mut LeveldbIterator,
    k: *const c_char,
    klen: usize,
) {
    let seek = |walk: &mut Walk| {
        // SAFETY: bytes of the caller's, by contract.
        let key = unsafe { raw::key(k, klen) }?;
        walk.seek(key)
    };
    // SAFETY: as for this function.
    unsafe { go(iter, seek) }
}

/// Goes to the next pair.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_iter_next(iter: *mut LeveldbIterator) {
    // SAFETY: as for this function.
    unsafe { go(iter, Walk::forward) }
}

/// Goes to the pair before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_iter_prev(iter: *mut LeveldbIterator) {
    // SAFETY: as for this function.
    unsafe { go(iter, Walk::back) }
}

/// Lends bytes of the pair.
///
/// # Safety
/// As [`get`], and a length can be written.
unsafe fn lend<'a>(
    iter: *const LeveldbIterator,
    len: *mut usize,
    part: impl FnOnce(&'a Walk) -> &'a [u8],
) -> *const c_char {
    let (data, size) = call_or((ptr::null(), 0), || {
        // SAFETY: null or a handle, by contract.
        let walk = unsafe { get(iter) }?.walk.as_ref();
        let bytes = walk.filter(|walk| walk.is_at_pair()).map(part);
        Ok(bytes.map_or((ptr::null(), 0), |bytes| {
            (bytes.as_ptr().cast(), bytes.len())
        }))
    });
    if !len.is_null() {
        // SAFETY: as for this function.
        unsafe { len.write(size) };
    }
    data
}

/// The key of the pair, valid until the iterator moves; NULL where there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_iter_key(
    iter: *const LeveldbIterator,
    klen: *mut usize,
) -> *const c_char {
    // SAFETY: as for this function.
    unsafe { lend(iter, klen, Walk::key) }
}

/// The value of the pair, as leveldb_iter_key its key.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_iter_value(
    iter: *const LeveldbIterator,
    vlen: *mut usize,
) -> *const c_char {
    // SAFETY: as for this function.
    unsafe { lend(iter, vlen, Walk::value) }
}

/// What went wrong first with the iterator, if anything did.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_iter_get_error(
    iter: *const LeveldbIterator,
    errptr: *mut *mut c_char,
) {
    // SAFETY: null or a handle, by contract.
    let failure = unsafe { get(iter) }
        .ok()
        .and_then(|own| own.failure.as_ref());
    if let Some(failure) = failure {
        // SAFETY: as for this function.
        unsafe { save(errptr, failure) };
    }
}
