//! Consumers of changes.

use std::ffi::c_char;

use gabion::Consumer;
use gabion_bindings::{json, options, position};

use crate::changes::{GabionChanges, Reading};
use crate::error::{GabionCode, GabionError, call};
use crate::handle::{free, get, make, opaque};
use crate::options::{GabionOptions, pairs};
use crate::raw::{Out, give_text, text};
use crate::store::GabionStore;

/// Someone who follows the changes of a store under a name. Any number of threads may use it.
pub struct GabionConsumer {
    _private: [u8; 0],
}

opaque!(GabionConsumer: Consumer, b"gbnconsm", "consumer");

/// The consumer of a name, made durably where the store is now if there is none. It lasts until
/// gabion_consumer_drop. The store keeps the changes from its position on, up to the option
/// changes_bytes_max.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_consumer_open(
    store: *mut GabionStore,
    name: *const c_char,
    consumer: *mut *mut GabionConsumer,
    error: *mut *mut GabionError,
) -> GabionCode {
    call(error, || {
        // SAFETY: a place for a pointer, by contract.
        let place = unsafe { Out::pointer(consumer, "consumer") }?;
        // SAFETY: null or a handle, by contract.
        let store = unsafe { get(store) }?;
        // SAFETY: null or text, by contract.
        let name = unsafe { text(name, "name of the consumer") }?;
        place.set(make(store.db.consumer(name)?));
        Ok(())
    })
}

/// The position up to which a consumer has acknowledged changes, as text, which gabion_free frees.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_consumer_position(
    consumer: *const GabionConsumer,
    position: *mut *mut c_char,
    error: *mut *mut GabionError,
) -> GabionCode {
    call(error, || {
        // SAFETY: null or a handle, by contract.
        let position_of = || Ok(unsafe { get(consumer) }?.position()?.to_string());
        // SAFETY: a place for a pointer, by contract.
        unsafe { give_text(position, "position", position_of) }
    })
}

/// The changes from a consumer's position on, with the options of gabion_changes_new.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_consumer_changes(
    consumer: *const GabionConsumer,
    options: *const GabionOptions,
    changes: *mut *mut GabionChanges,
    error: *mut *mut GabionError,
) -> GabionCode {
    call(error, || {
        // SAFETY: a place for a pointer, by contract.
        let place = unsafe { Out::pointer(changes, "changes") }?;
        // SAFETY: null or a handle, by contract.
        let consumer = unsafe { get(consumer) }?;
        // SAFETY: as above.
        let options = options::changes(&unsafe { pairs(options) }?)?;
        place.set(make(Reading::new(consumer.changes_with(&options)?)));
        Ok(())
    })
}

/// Takes note, durably, that a consumer needs no change in front of a position any more. It costs
/// syncs, so do so after many changes. What was read and not acknowledged comes again after a
/// crash.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_consumer_acknowledge(
    consumer: *mut GabionConsumer,
    position: *const c_char,
    error: *mut *mut GabionError,
) -> GabionCode {
    call(error, || {
        // SAFETY: null or a handle, by contract.
        let consumer = unsafe { get(consumer) }?;
        // SAFETY: null or text, by contract.
        let text = unsafe { text(position, "position") }?;
        Ok(consumer.acknowledge(self::position(Some(text))?)?)
    })
}

/// Frees the handle of a consumer and clears the variable. The consumer stays.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_consumer_free(consumer: *mut *mut GabionConsumer) {
    // SAFETY: a variable with null or a handle, by contract.
    unsafe { free(consumer) }
}

/// Forgets a consumer, durably, and what was kept for it alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_consumer_drop(
    store: *mut GabionStore,
    name: *const c_char,
    error: *mut *mut GabionError,
) -> GabionCode {
    call(error, || {
        // SAFETY: null or a handle, by contract.
        let store = unsafe { get(store) }?;
        // SAFETY: null or text, by contract.
        let name = unsafe { text(name, "name of the consumer") }?;
        Ok(store.db.drop_consumer(name)?)
    })
}

/// All consumers, in the order of their names, as a JSON list of objects with "name", "position",
/// "bytes" of the log behind that position, and "is_invalidated". gabion_free frees it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_consumers(
    store: *const GabionStore,
    json: *mut *mut c_char,
    error: *mut *mut GabionError,
) -> GabionCode {
    call(error, || {
        // SAFETY: null or a handle, by contract.
        let list = || Ok(json::consumers(&unsafe { get(store) }?.db.consumers()?));
        // SAFETY: a place for a pointer, by contract.
        unsafe { give_text(json, "JSON text", list) }
    })
}
