//! Conversions at the C boundary besides handles: bytes, text, and pointers for results.

use std::ffi::{CStr, c_char, c_void};
use std::ptr::{self, NonNull};

use gabion_bindings::{Code, Failure, Result};

/// The longest key, in bytes, as the facade has it.
pub(crate) const KEY_BYTES_MAX: usize = (64 << 10) - 1;

/// The longest value, in bytes, as the facade has it.
pub(crate) const VALUE_BYTES_MAX: usize = 1 << 30;

/// Most keys of one call.
pub(crate) const KEYS_MAX: usize = 1 << 24;

unsafe extern "C" {
    fn malloc(size: usize) -> *mut c_void;
    fn free(memory: *mut c_void);
}

/// The bytes of a key.
///
/// # Safety
/// As [`bytes`].
pub(crate) unsafe fn key<'a>(data: *const u8, len: usize) -> Result<&'a [u8]> {
    // SAFETY: as for this function.
    unsafe { bytes(data, len, "key", KEY_BYTES_MAX) }
}

/// The bytes of a value.
///
/// # Safety
/// As [`bytes`].
pub(crate) unsafe fn value<'a>(data: *const u8, len: usize) -> Result<&'a [u8]> {
    // SAFETY: as for this function.
    unsafe { bytes(data, len, "value", VALUE_BYTES_MAX) }
}

/// As [`key`], where null stands for none.
///
/// # Safety
/// As [`bytes`].
pub(crate) unsafe fn optional_key<'a>(data: *const u8, len: usize) -> Result<Option<&'a [u8]>> {
    match data.is_null() && len == 0 {
        true => Ok(None),
        // SAFETY: as for this function.
        false => unsafe { key(data, len) }.map(Some),
    }
}

/// As [`value`], where null stands for none.
///
/// # Safety
/// As [`bytes`].
pub(crate) unsafe fn optional_value<'a>(data: *const u8, len: usize) -> Result<Option<&'a [u8]>> {
    match data.is_null() && len == 0 {
        true => Ok(None),
        // SAFETY: as for this function.
        false => unsafe { value(data, len) }.map(Some),
    }
}

/// `len` bytes from `data` on; none for null and 0. A length above `max` is an error, and nothing
/// is read.
///
/// # Safety
/// Where the length is within its limit, so many bytes can be read, as long as the call lasts.
unsafe fn bytes<'a>(data: *const u8, len: usize, what: &str, max: usize) -> Result<&'a [u8]> {
    match (data.is_null(), len) {
        (_, len) if len > max => Err(Failure::Refused(
            Code::Limit,
            format!("the {what} has {len} bytes; the limit is {max}"),
        )),
        (true, 0) => Ok(&[]),
        (true, len) => Err(Failure::argument(format!(
            "the {what} is NULL, but has a length of {len}"
        ))),
        // SAFETY: they can be read, by contract.
        (false, len) => Ok(unsafe { std::slice::from_raw_parts(data, len) }),
    }
}

/// `count` things from `data` on.
///
/// # Safety
/// As [`bytes`], of so many things.
unsafe fn list<'a, T>(data: *const T, count: usize, what: &str) -> Result<&'a [T]> {
    if count == 0 {
        return Ok(&[]);
    }
    if count > KEYS_MAX {
        let why = format!("{count} {what} are too many; the limit is {KEYS_MAX}");
        return Err(Failure::Refused(Code::Limit, why));
    }
    if data.is_null() || !data.is_aligned() {
        return Err(Failure::argument(format!("the list of {what} is NULL")));
    }
    // SAFETY: they can be read, by contract, and the pointer is aligned.
    Ok(unsafe { std::slice::from_raw_parts(data, count) })
}

/// A list of keys.
///
/// # Safety
/// As [`list`], of so many keys and lengths, and as [`key`].
pub(crate) unsafe fn keys<'a>(
    keys: *const *const u8,
    lens: *const usize,
    count: usize,
) -> Result<Vec<&'a [u8]>> {
    // SAFETY: as for this function.
    let keys = unsafe { list(keys, count, "keys") }?;
    // SAFETY: as above.
    let lens = unsafe { list(lens, count, "lengths") }?;
    let pairs = keys.iter().zip(lens);
    // SAFETY: as above.
    let keys = pairs.map(|(data, len)| unsafe { key(*data, *len) });
    keys.collect()
}

/// Text that ends with a zero.
///
/// # Safety
/// The pointer is null, or leads to bytes that end with a zero.
pub(crate) unsafe fn text<'a>(data: *const c_char, what: &str) -> Result<&'a str> {
    if data.is_null() {
        return Err(Failure::argument(format!("the {what} is NULL")));
    }
    // SAFETY: as for this function.
    let text = unsafe { CStr::from_ptr(data) };
    text.to_str()
        .map_err(|_| Failure::argument(format!("the {what} is not UTF-8")))
}

/// As [`text`], where null stands for none.
///
/// # Safety
/// As [`text`].
pub(crate) unsafe fn optional_text<'a>(data: *const c_char, what: &str) -> Result<Option<&'a str>> {
    match data.is_null() {
        true => Ok(None),
        // SAFETY: as for this function.
        false => unsafe { text(data, what) }.map(Some),
    }
}

/// A place of the caller's for a result.
pub(crate) struct Out<T>(NonNull<T>);

impl<T> Out<T> {
    /// The place, which has `first` until there is a result.
    ///
    /// # Safety
    /// The pointer is null, or a `T` can be written to it as long as the call lasts.
    pub(crate) unsafe fn new(place: *mut T, first: T, what: &str) -> Result<Out<T>> {
        let place = NonNull::new(place).filter(|place| place.is_aligned());
        let place = place.ok_or_else(|| {
            Failure::argument(format!("the pointer to the {what} is NULL or not aligned"))
        })?;
        let out = Out(place);
        out.set(first);
        Ok(out)
    }

    /// Puts a result there.
    pub(crate) fn set(&self, value: T) {
        // SAFETY: it can be written, which `new` asks for.
        unsafe { self.0.write(value) }
    }
}

impl<T> Out<*mut T> {
    /// A place for a pointer, which is null until there is a result.
    ///
    /// # Safety
    /// As [`Out::new`].
    pub(crate) unsafe fn pointer(place: *mut *mut T, what: &str) -> Result<Out<*mut T>> {
        // SAFETY: as for this function.
        unsafe { Out::new(place, ptr::null_mut(), what) }
    }
}

/// A copy of bytes for the caller, with a zero behind them, who gives it back by `gabion_free`.
pub(crate) fn copy_out(bytes: &[u8]) -> Result<*mut u8> {
    // SAFETY: any size may be asked for.
    let memory = unsafe { malloc(bytes.len() + 1) }.cast::<u8>();
    if memory.is_null() {
        let why = format!("cannot allocate {} bytes", bytes.len());
        return Err(Failure::Refused(Code::Limit, why));
    }
    // SAFETY: so many bytes were asked for, and the new ones are nobody else's.
    unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), memory, bytes.len()) };
    // SAFETY: the last of the bytes that were asked for.
    let end = unsafe { memory.add(bytes.len()) };
    // SAFETY: as above.
    unsafe { end.write(0) };
    Ok(memory)
}

/// Hands text out as a copy; null after a failure.
///
/// # Safety
/// As [`Out::new`].
pub(crate) unsafe fn give_text(
    place: *mut *mut c_char,
    what: &str,
    make: impl FnOnce() -> Result<String>,
) -> Result<()> {
    // SAFETY: as for this function.
    let place = unsafe { Out::pointer(place, what) }?;
    place.set(copy_out(make()?.as_bytes())?.cast());
    Ok(())
}

/// Copies bytes into a place of the caller's.
///
/// # Safety
/// So many bytes can be written from `place` on, as long as the call lasts.
pub(crate) unsafe fn copy_to(place: *mut u8, bytes: &[u8]) {
    // SAFETY: as for this function; what is lent by a store is not the caller's to write to.
    unsafe { ptr::copy(bytes.as_ptr(), place, bytes.len()) }
}

/// Frees what [`copy_out`] gave.
///
/// # Safety
/// The pointer is null, or one that it gave and that was not freed.
pub(crate) unsafe fn give_back(memory: *mut c_void) {
    // SAFETY: as for this function.
    unsafe { free(memory) }
}
