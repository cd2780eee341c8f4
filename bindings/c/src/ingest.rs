//! Ingests of sorted pairs.

use std::sync::Mutex;

use gabion_bindings::{Failure, OwnedIngest, Result};

use crate::error::{GabionCode, GabionError, call};
use crate::handle::{free, get, make, opaque};
use crate::keyspace::GabionKeyspace;
use crate::raw::{self, Out};

/// Sorted pairs on their way into a keyspace. One thread at a time may use it.
pub struct GabionIngest {
    _private: [u8; 0],
}

// None once it is finished.
opaque!(GabionIngest: Mutex<Option<OwnedIngest>>, b"gbningst", "ingest");

/// Runs a call of an ingest, alone.
///
/// # Safety
/// As [`get`].
unsafe fn with_ingest<T>(
    ingest: *mut GabionIngest,
    body: impl FnOnce(&mut Option<OwnedIngest>) -> Result<T>,
) -> Result<T> {
    // SAFETY: null or a handle, by contract.
    let ingest = unsafe { get(ingest) }?;
    body(&mut *ingest.try_lock().map_err(|_| Failure::Busy)?)
}

fn finished() -> Failure {
    Failure::argument("the ingest is finished; begin another one")
}

/// Begins to add sorted pairs to a keyspace, for large loads: they are written straight into
/// tables, all of them or none, and each byte once. Nothing of them is there before
/// gabion_ingest_finish. Only the engine "wip" has this.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_ingest_begin(
    keyspace: *mut GabionKeyspace,
    ingest: *mut *mut GabionIngest,
    error: *mut *mut GabionError,
) -> GabionCode {
    call(error, || {
        // SAFETY: a place for a pointer, by contract.
        let place = unsafe { Out::pointer(ingest, "ingest") }?;
        // SAFETY: null or a handle, by contract.
        let owned = unsafe { get(keyspace) }?;
        let begun = OwnedIngest::begin(&owned.keyspace)?;
        place.set(make(Mutex::new(Some(begun))));
        Ok(())
    })
}

/// Adds a pair, whose key must be above the one before: GABION_CODE_OUT_OF_ORDER if it is not. An
/// error ends the ingest.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_ingest_put(
    ingest: *mut GabionIngest,
    key: *const u8,
    key_len: usize,
    value: *const u8,
    value_len: usize,
    error: *mut *mut GabionError,
) -> GabionCode {
    let put = |ingest: &mut Option<OwnedIngest>| {
        // SAFETY: bytes of the caller's, by contract.
        let key = unsafe { raw::key(key, key_len) }?;
        // SAFETY: as above.
        let value = unsafe { raw::value(value, value_len) }?;
        ingest.as_mut().ok_or_else(finished)?.put(key, value)
    };
    // SAFETY: as for this function.
    call(error, || unsafe { with_ingest(ingest, put) })
}

/// Adds all pairs to the keyspace at one moment, durably; *pairs becomes their number. They replace
/// earlier values of their keys. The ingest has ended then, with success or without.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_ingest_finish(
    ingest: *mut GabionIngest,
    pairs: *mut u64,
    error: *mut *mut GabionError,
) -> GabionCode {
    let finish = |ingest: &mut Option<OwnedIngest>| {
        // SAFETY: a place for a number, by contract.
        let pairs = unsafe { Out::new(pairs, 0, "number of pairs") }?;
        pairs.set(ingest.take().ok_or_else(finished)?.finish()?);
        Ok(())
    };
    // SAFETY: as for this function.
    call(error, || unsafe { with_ingest(ingest, finish) })
}

/// Frees an ingest and clears the variable. What was not finished leaves nothing in the store.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_ingest_free(ingest: *mut *mut GabionIngest) {
    // SAFETY: a variable with null or a handle, by contract.
    unsafe { free(ingest) }
}
