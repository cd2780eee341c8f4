//! Options: pairs of name and value as text, parsed where they are used.

use std::ffi::{CString, c_char};
use std::ptr;
use std::sync::{Mutex, OnceLock, PoisonError};

use gabion_bindings::{Result, options};

use crate::error::{GabionCode, GabionError, c_text, call, call_or};
use crate::handle::{free, get, get_optional, make, opaque};
use crate::raw::text;

/// Options of a store, a keyspace or a transaction, by name and value. Any number of threads
/// may use it.
pub struct GabionOptions {
    _private: [u8; 0],
}

opaque!(GabionOptions: Mutex<Vec<(String, String)>>, b"gbnoptns", "options object");

/// The pairs of options; none for null.
///
/// # Safety
/// As [`get`].
pub(crate) unsafe fn pairs(handle: *const GabionOptions) -> Result<Vec<(String, String)>> {
    // SAFETY: as for this function.
    let pairs = unsafe { get_optional(handle) }?;
    let lock = |pairs: &Mutex<Vec<_>>| pairs.lock().unwrap_or_else(PoisonError::into_inner).clone();
    Ok(pairs.map(lock).unwrap_or_default())
}

/// An object without options, for which NULL may stand wherever options are taken.
#[unsafe(no_mangle)]
pub extern "C" fn gabion_options_new() -> *mut GabionOptions {
    call_or(ptr::null_mut(), || Ok(make(Mutex::new(Vec::new()))))
}

/// Sets an option, both name and value as text, such as "memory_bytes_max" to "256MiB". They are
/// read where the options are used: an unknown name, and a value that cannot be read, is an error
/// there that names it. The last value of a name counts.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_options_set(
    options: *mut GabionOptions,
    name: *const c_char,
    value: *const c_char,
    error: *mut *mut GabionError,
) -> GabionCode {
    call(error, || {
        // SAFETY: null or a handle, by contract.
        let pairs = unsafe { get(options) }?;
        // SAFETY: null or text, by contract.
        let name = unsafe { text(name, "name of the option") }?;
        // SAFETY: as above.
        let value = unsafe { text(value, "value of the option") }?;
        let mut pairs = pairs.lock().unwrap_or_else(PoisonError::into_inner);
        pairs.push((name.to_owned(), value.to_owned()));
        Ok(())
    })
}

/// The name of an option that this version has, by its place; NULL behind the last one. Static.
#[unsafe(no_mangle)]
pub extern "C" fn gabion_option_name(index: usize) -> *const c_char {
    static NAMES: OnceLock<Vec<CString>> = OnceLock::new();
    call_or(ptr::null(), || {
        let names = NAMES.get_or_init(|| options::names().into_iter().map(c_text).collect());
        Ok(names.get(index).map_or(ptr::null(), |name| name.as_ptr()))
    })
}

/// Frees options and clears the variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_options_free(options: *mut *mut GabionOptions) {
    // SAFETY: a variable with null or a handle, by contract.
    unsafe { free(options) }
}
