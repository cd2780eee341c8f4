//! Calls in any order, with handles of any kind, from any thread.

mod threads;
mod wrong_order;

use std::ffi::CString;
use std::path::Path;
use std::ptr;

use crate::error::{GabionCode, GabionError, gabion_error_free, gabion_error_message};
use crate::store::{GabionStore, gabion_open};

/// Numbers that are as good as random, and the same for each seed.
struct Numbers(u64);

impl Numbers {
    fn new(seed: u64) -> Numbers {
        Numbers(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).unwrap() % limit
    }
}

/// Makes a call, and holds it to the rule that there is an error object if and only if it failed.
fn told(call: impl FnOnce(*mut *mut GabionError) -> GabionCode) -> GabionCode {
    let mut error = ptr::null_mut();
    let code = call(&raw mut error);
    assert_eq!(code == GabionCode::Ok, error.is_null(), "{code:?}");
    // SAFETY: null or an error object.
    let message = unsafe { gabion_error_message(error) };
    // SAFETY: text, which is there until the error is freed.
    let message = unsafe { std::ffi::CStr::from_ptr(message) };
    assert_eq!(code == GabionCode::Ok, message.is_empty(), "{code:?}");
    assert_ne!(code, GabionCode::Internal, "{message:?}");
    // SAFETY: a variable with null or an error object.
    unsafe { gabion_error_free(&raw mut error) };
    assert!(error.is_null());
    code
}

fn open(path: &Path) -> *mut GabionStore {
    let path = CString::new(path.to_str().unwrap()).unwrap();
    let mut store = ptr::null_mut();
    // SAFETY: text, no options, and places for results.
    let open = |error| unsafe { gabion_open(path.as_ptr(), ptr::null(), &raw mut store, error) };
    assert_eq!(told(open), GabionCode::Ok);
    store
}
