//! Handles: what the caller holds are pointers to boxes that begin with a word for their kind.
//!
//! The word is compared at each call, so that null, a handle of another kind and, as far as its
//! memory still says so, one that was freed are errors. It costs one load of a line that the call
//! reads anyway.

use std::ptr;

use gabion_bindings::{Failure, Result};

/// A type of the header.
pub trait Opaque {
    /// What is behind a handle.
    type Inner;
    /// The word for the kind: eight letters.
    const KIND: u64;
    /// What the kind is called in a sentence.
    const NAME: &'static str;
}

/// Says what is behind a type of the header.
macro_rules! opaque {
    ($name:ident: $inner:ty, $kind:literal, $called:literal) => {
        impl $crate::handle::Opaque for $name {
            type Inner = $inner;
            const KIND: u64 = u64::from_le_bytes(*$kind);
            const NAME: &'static str = $called;
        }
    };
}

pub(crate) use opaque;

/// The kind of what was freed.
const FREED: u64 = 0;

#[repr(C)]
struct Boxed<T> {
    kind: u64,
    inner: T,
}

/// Makes a handle.
pub(crate) fn make<H: Opaque>(inner: H::Inner) -> *mut H {
    let kind = H::KIND;
    Box::into_raw(Box::new(Boxed { kind, inner })).cast()
}

/// The box of a handle, if it is one of its kind.
///
/// # Safety
/// The pointer is null, or leads to a word that can be read.
unsafe fn check<H: Opaque>(handle: *const H) -> Result<*const Boxed<H::Inner>> {
    let name = H::NAME;
    let boxed = handle.cast::<Boxed<H::Inner>>();
    if boxed.is_null() {
        return Err(Failure::argument(format!("the {name} is NULL")));
    }
    let kind = match boxed.is_aligned() {
        // SAFETY: it leads to a word, by contract, and is aligned.
        true => unsafe { boxed.cast::<u64>().read() },
        false => FREED,
    };
    match kind == H::KIND {
        true => Ok(boxed),
        false => Err(Failure::argument(format!(
            "the handle is not of kind {name}, or was freed"
        ))),
    }
}

/// What is behind a handle.
///
/// # Safety
/// The pointer is null, or a handle that nobody frees during the call.
pub(crate) unsafe fn get<'h, H: Opaque>(handle: *const H) -> Result<&'h H::Inner> {
    // SAFETY: as for this function.
    let boxed = unsafe { check(handle) }?;
    // SAFETY: its kind says that `make` made it, and it is not freed.
    Ok(unsafe { &(*boxed).inner })
}

/// As [`get`], where null stands for none.
///
/// # Safety
/// As [`get`].
pub(crate) unsafe fn get_optional<'h, H: Opaque>(handle: *const H) -> Result<Option<&'h H::Inner>> {
    match handle.is_null() {
        true => Ok(None),
        // SAFETY: as for this function.
        false => unsafe { get(handle) }.map(Some),
    }
}

/// Frees the handle in a variable and clears the variable. What is no handle stays as it is.
///
/// # Safety
/// The pointer is null, or leads to a variable with null or a handle that nobody else uses.
pub(crate) unsafe fn free<H: Opaque>(variable: *mut *mut H) {
    if variable.is_null() || !variable.is_aligned() {
        return;
    }
    // SAFETY: it leads to a variable, by contract.
    let handle = unsafe { variable.read() };
    // SAFETY: null or a handle, by contract.
    let Ok(boxed) = (unsafe { check(handle.cast_const()) }) else {
        return;
    };
    // SAFETY: as above.
    unsafe { variable.write(ptr::null_mut()) };
    let boxed = boxed.cast_mut();
    // SAFETY: the box is there until the next line. Volatile, since nothing reads it again that the
    // compiler knows of.
    unsafe { boxed.cast::<u64>().write_volatile(FREED) };
    // SAFETY: `make` made it from a box, and nobody else uses it.
    drop(unsafe { Box::from_raw(boxed) });
}
