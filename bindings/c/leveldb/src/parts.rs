//! What options point to: comparators, filter policies, caches and environments.

use std::cmp::Ordering;
use std::ffi::{c_char, c_int, c_void};
use std::ptr;

use gabion_bindings::{Code, Failure, Result};

use crate::raw::{call_or, copy_out, destroy, make, text};

type Destructor = Option<unsafe extern "C" fn(state: *mut c_void)>;
type Compare = unsafe extern "C" fn(
    state: *mut c_void,
    a: *const c_char,
    alen: usize,
    b: *const c_char,
    blen: usize,
) -> c_int;
type Name = unsafe extern "C" fn(state: *mut c_void) -> *const c_char;

/// Functions of the program's, with what they work on.
struct Calls {
    state: *mut c_void,
    destructor: Destructor,
    compare: Option<Compare>,
    name: Option<Name>,
}

impl Drop for Calls {
    fn drop(&mut self) {
        if let Some(destructor) = self.destructor {
            // SAFETY: the program's function for the program's state, once.
            unsafe { destructor(self.state) }
        }
    }
}

/// An order of keys of the program's own.
pub struct LeveldbComparator {
    calls: Calls,
}

impl LeveldbComparator {
    /// Compares the order with that of bytes, on keys of all kinds that are likely to show a
    /// difference: short ones, prefixes of others, numbers of 1 to 16 bytes, letters of both cases.
    pub(crate) fn check(&self) -> Result<()> {
        let keys = tried_keys();
        for (index, a) in keys.iter().enumerate() {
            // Each key with itself and with 64 others, spread over all.
            for step in (0..keys.len()).step_by(keys.len() / 64) {
                let b = &keys[(index + step) % keys.len()];
                if self.compare(a, b) != a.cmp(b) {
                    return Err(self.refused(a, b));
                }
            }
        }
        Ok(())
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        let Some(compare) = self.calls.compare else {
            return a.cmp(b);
        };
        let (first, second) = (a.as_ptr().cast(), b.as_ptr().cast());
        // SAFETY: the program's function takes bytes, which are there during the call.
        let order = unsafe { compare(self.calls.state, first, a.len(), second, b.len()) };
        order.cmp(&0)
    }

    fn refused(&self, a: &[u8], b: &[u8]) -> Failure {
        // SAFETY: the program's function for the program's state.
        let name = self
            .calls
            .name
            .map_or(ptr::null(), |name| unsafe { name(self.calls.state) });
        // SAFETY: the text that it returned, or null.
        let name = unsafe { text(name, "name") }.unwrap_or("without a name");
        let (a, b) = (a.escape_ascii(), b.escape_ascii());
        let why = format!(
            "the comparator {name} does not order keys by their bytes, as \"{a}\" and \"{b}\" \
             show, and Gabion has no other order; encode the keys so that the order of their bytes \
             is the order that you want"
        );
        Failure::Refused(Code::Unsupported, why)
    }
}

/// Keys on which orders are tried.
fn tried_keys() -> Vec<Vec<u8>> {
    let mut keys: Vec<Vec<u8>> = vec![Vec::new()];
    let words = [
        "a", "A", "b", "B", "aa", "aB", "Ab", "a\0", "z", "10", "9", "\u{e9}", "-1", "+1",
    ];
    keys.extend(words.iter().map(|word| word.as_bytes().to_vec()));
    let mut number = 0x9E37_79B9_7F4A_7C15_u64;
    for size in (1..=16).cycle().take(192) {
        number ^= number << 13;
        number ^= number >> 7;
        number ^= number << 17;
        let bytes = [number.to_le_bytes(), number.rotate_left(29).to_le_bytes()].concat();
        keys.push(bytes[..size].to_vec());
        // A neighbour that begins so.
        keys.push([&bytes[..size], &[0]].concat());
    }
    keys
}

/// A comparator of functions of the program's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_comparator_create(
    state: *mut c_void,
    destructor: Option<unsafe extern "C" fn(state: *mut c_void)>,
    compare: Option<
        unsafe extern "C" fn(
            state: *mut c_void,
            a: *const c_char,
            alen: usize,
            b: *const c_char,
            blen: usize,
        ) -> c_int,
    >,
    name: Option<unsafe extern "C" fn(state: *mut c_void) -> *const c_char>,
) -> *mut LeveldbComparator {
    call_or(ptr::null_mut(), || {
        Ok(make(LeveldbComparator {
            calls: Calls {
                state,
                destructor,
                compare,
                name,
            },
        }))
    })
}

/// Frees a comparator.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_comparator_destroy(comparator: *mut LeveldbComparator) {
    // SAFETY: null or a handle, by contract.
    unsafe { destroy(comparator) }
}

/// A filter policy.
pub struct LeveldbFilterpolicy {
    /// Of a Bloom filter.
    pub(crate) bits_per_key: Option<u32>,
    /// Of the program's own: kept for its destructor.
    _calls: Option<Calls>,
}

/// A filter policy of functions of the program's. They are not called, as Gabion has its own
/// filters.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_filterpolicy_create(
    state: *mut c_void,
    destructor: Option<unsafe extern "C" fn(state: *mut c_void)>,
    create_filter: Option<
        unsafe extern "C" fn(
            state: *mut c_void,
            key_array: *const *const c_char,
            key_length_array: *const usize,
            num_keys: c_int,
            filter_length: *mut usize,
        ) -> *mut c_char,
    >,
    _key_may_match: Option<
        unsafe extern "C" fn(
            state: *mut c_void,
            key: *const c_char,
            length: usize,
            filter: *const c_char,
            filter_length: usize,
        ) -> u8,
    >,
    name: Option<unsafe extern "C" fn(state: *mut c_void) -> *const c_char>,
) -> *mut LeveldbFilterpolicy {
    let _ = create_filter;
    let calls = Calls {
        state,
        destructor,
        compare: None,
        name,
    };
    call_or(ptr::null_mut(), || {
        Ok(make(LeveldbFilterpolicy {
            bits_per_key: None,
            _calls: Some(calls),
        }))
    })
}

/// Frees a filter policy.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_filterpolicy_destroy(policy: *mut LeveldbFilterpolicy) {
    // SAFETY: null or a handle, by contract.
    unsafe { destroy(policy) }
}

/// Bloom filters with so many bits per key, 32 at most.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_filterpolicy_create_bloom(
    bits_per_key: c_int,
) -> *mut LeveldbFilterpolicy {
    let bits = u32::try_from(bits_per_key).unwrap_or(0).min(32);
    call_or(ptr::null_mut(), || {
        Ok(make(LeveldbFilterpolicy {
            bits_per_key: Some(bits),
            _calls: None,
        }))
    })
}

/// A cache for blocks.
pub struct LeveldbCache {
    pub(crate) capacity: usize,
}

/// A cache of so many bytes. Each store that is opened with it has one of its own.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_cache_create_lru(capacity: usize) -> *mut LeveldbCache {
    call_or(ptr::null_mut(), || Ok(make(LeveldbCache { capacity })))
}

/// Frees a cache.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_cache_destroy(cache: *mut LeveldbCache) {
    // SAFETY: null or a handle, by contract.
    unsafe { destroy(cache) }
}

/// A log for messages, which nobody can make.
pub struct LeveldbLogger {
    _private: [u8; 0],
}

/// The system.
pub struct LeveldbEnv {
    _not_empty: u8,
}

/// The system's own environment.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_create_default_env() -> *mut LeveldbEnv {
    call_or(ptr::null_mut(), || Ok(make(LeveldbEnv { _not_empty: 0 })))
}

/// Frees an environment.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_env_destroy(env: *mut LeveldbEnv) {
    // SAFETY: null or a handle, by contract.
    unsafe { destroy(env) }
}

/// A directory for tests, which is there then: that of the variable TEST_TMPDIR, or one below the
/// system's directory for temporary files.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_env_get_test_directory(env: *mut LeveldbEnv) -> *mut c_char {
    let _ = env;
    call_or(ptr::null_mut(), || {
        let path = std::env::var_os("TEST_TMPDIR").filter(|path| !path.is_empty());
        let path = path.map_or_else(
            || std::env::temp_dir().join("gabion_leveldb_test"),
            Into::into,
        );
        std::fs::create_dir_all(&path).map_err(|why| Failure::argument(why.to_string()))?;
        Ok(copy_out(path.as_os_str().as_encoded_bytes()))
    })
}
