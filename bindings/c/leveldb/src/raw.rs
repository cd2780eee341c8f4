//! Conversions at the C boundary: handles, bytes, text, and error texts.

use std::ffi::{CStr, c_char, c_void};
use std::ptr;

use gabion_bindings::{Code, Failure, Result, guard};

/// The longest key, in bytes.
const KEY_BYTES_MAX: usize = (64 << 10) - 1;

/// The longest value, in bytes.
const VALUE_BYTES_MAX: usize = 1 << 30;

unsafe extern "C" {
    fn malloc(size: usize) -> *mut c_void;
    fn free(memory: *mut c_void);
}

/// Makes a handle.
pub(crate) fn make<T>(inner: T) -> *mut T {
    Box::into_raw(Box::new(inner))
}

/// What is behind a handle.
///
/// # Safety
/// The pointer is null or a handle.
pub(crate) unsafe fn get<'a, T>(handle: *const T) -> Result<&'a T> {
    // SAFETY: as for this function.
    let inner = unsafe { handle.as_ref() };
    inner.ok_or_else(|| Failure::argument("a handle is NULL"))
}

/// As [`get`], to change it.
///
/// # Safety
/// The pointer is null or a handle that nobody else uses.
pub(crate) unsafe fn get_mut<'a, T>(handle: *mut T) -> Result<&'a mut T> {
    // SAFETY: as for this function.
    let inner = unsafe { handle.as_mut() };
    inner.ok_or_else(|| Failure::argument("a handle is NULL"))
}

/// Frees a handle.
///
/// # Safety
/// The pointer is null, or a handle that nobody uses any more.
pub(crate) unsafe fn destroy<T>(handle: *mut T) {
    if !handle.is_null() {
        // SAFETY: as for this function; `make` made it from a box.
        let inner = unsafe { Box::from_raw(handle) };
        // A panic within a drop must not cross either.
        drop(guard(|| {
            drop(inner);
            Ok(())
        }));
    }
}

/// The bytes of a key.
///
/// # Safety
/// So many bytes can be read, as long as the call lasts.
pub(crate) unsafe fn key<'a>(data: *const c_char, len: usize) -> Result<&'a [u8]> {
    // SAFETY: as for this function.
    unsafe { bytes(data, len, "key", KEY_BYTES_MAX) }
}

/// The bytes of a value.
///
/// # Safety
/// As [`key`].
pub(crate) unsafe fn value<'a>(data: *const c_char, len: usize) -> Result<&'a [u8]> {
    // SAFETY: as for this function.
    unsafe { bytes(data, len, "value", VALUE_BYTES_MAX) }
}

/// The bytes of an end of a range; null for none.
///
/// # Safety
/// As [`key`].
pub(crate) unsafe fn end<'a>(data: *const c_char, len: usize) -> Result<Option<&'a [u8]>> {
    match data.is_null() {
        true => Ok(None),
        // SAFETY: as for this function.
        false => unsafe { key(data, len) }.map(Some),
    }
}

/// # Safety
/// As [`key`].
unsafe fn bytes<'a>(data: *const c_char, len: usize, what: &str, max: usize) -> Result<&'a [u8]> {
    match (data.is_null(), len) {
        (_, len) if len > max => Err(Failure::Refused(
            Code::Limit,
            format!("the {what} has {len} bytes; the limit is {max}"),
        )),
        (_, 0) => Ok(&[]),
        (true, _) => Err(Failure::argument(format!("the {what} is NULL"))),
        // SAFETY: they can be read, by contract.
        (false, len) => Ok(unsafe { std::slice::from_raw_parts(data.cast(), len) }),
    }
}

/// Text that ends with a zero.
///
/// # Safety
/// The pointer is null, or leads to such text.
pub(crate) unsafe fn text<'a>(data: *const c_char, what: &str) -> Result<&'a str> {
    if data.is_null() {
        return Err(Failure::argument(format!("the {what} is NULL")));
    }
    // SAFETY: as for this function.
    let text = unsafe { CStr::from_ptr(data) };
    text.to_str()
        .map_err(|_| Failure::argument(format!("the {what} is not UTF-8")))
}

/// A copy of bytes for the caller, with a zero behind them, or null where there is no memory.
pub(crate) fn copy_out(bytes: &[u8]) -> *mut c_char {
    // SAFETY: any size may be asked for.
    let memory = unsafe { malloc(bytes.len() + 1) }.cast::<u8>();
    if memory.is_null() {
        return ptr::null_mut();
    }
    // SAFETY: so many bytes were asked for, and the new ones are nobody else's.
    unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), memory, bytes.len()) };
    // SAFETY: the last of the bytes that were asked for.
    let end = unsafe { memory.add(bytes.len()) };
    // SAFETY: as above.
    unsafe { end.write(0) };
    memory.cast()
}

/// Frees what [`copy_out`] gave.
///
/// # Safety
/// The pointer is null, or one that it gave and that was not freed.
pub(crate) unsafe fn give_back(memory: *mut c_void) {
    // SAFETY: as for this function.
    unsafe { free(memory) }
}

/// Puts the text of a failure in the place of an earlier one.
///
/// # Safety
/// The pointer is null, or leads to null or to text that [`copy_out`] gave.
pub(crate) unsafe fn save(errptr: *mut *mut c_char, failure: &Failure) {
    if errptr.is_null() {
        return;
    }
    let text = copy_out(failure.to_string().replace('\0', "\\0").as_bytes());
    // SAFETY: as for this function.
    let before = unsafe { errptr.replace(text) };
    // SAFETY: as above.
    unsafe { give_back(before.cast()) };
}

/// Runs the body of a function that has a place for an error.
///
/// # Safety
/// As [`save`].
pub(crate) unsafe fn call<T>(
    errptr: *mut *mut c_char,
    otherwise: T,
    body: impl FnOnce() -> Result<T>,
) -> T {
    guard(body).unwrap_or_else(|failure| {
        // SAFETY: as for this function.
        unsafe { save(errptr, &failure) };
        otherwise
    })
}

/// Runs the body of a function that has no place for an error.
pub(crate) fn call_or<T>(otherwise: T, body: impl FnOnce() -> Result<T>) -> T {
    guard(body).unwrap_or(otherwise)
}
