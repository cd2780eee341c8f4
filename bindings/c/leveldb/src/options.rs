//! Options of stores, reads and writes.

use std::ffi::c_int;
use std::ptr;
use std::sync::{Arc, Weak};

use gabion::{Compression, Options, Snapshot};
use gabion_bindings::{Code, Failure, Result};

use crate::db::LeveldbSnapshot;
use crate::parts::{
    LeveldbCache, LeveldbComparator, LeveldbEnv, LeveldbFilterpolicy, LeveldbLogger,
};
use crate::raw::{call_or, destroy, get, get_mut, make};

/// Options of a store.
pub struct LeveldbOptions {
    options: Options,
    /// Null for the order of bytes. The program keeps it as long as the options use it.
    comparator: *const LeveldbComparator,
}

impl LeveldbOptions {
    /// Those of Gabion's.
    pub(crate) fn for_open(&self) -> Options {
        self.options.clone()
    }

    /// An error if keys are to be in another order than that of their bytes.
    pub(crate) fn check_order(&self) -> Result<()> {
        // SAFETY: null or a handle that is not freed, by the contract of LevelDB's header.
        match unsafe { get(self.comparator) } {
            Ok(comparator) => comparator.check(),
            Err(_) => Ok(()),
        }
    }
}

/// Options of a read.
pub struct LeveldbReadoptions {
    snapshot: Option<Weak<Snapshot>>,
}

impl LeveldbReadoptions {
    /// The snapshot, if there is one.
    pub(crate) fn snapshot(&self) -> Result<Option<Arc<Snapshot>>> {
        let Some(snapshot) = &self.snapshot else {
            return Ok(None);
        };
        let released = || {
            let why = "the snapshot of the options was released; set another one, or NULL";
            Failure::Refused(Code::InvalidArgument, why.to_owned())
        };
        snapshot.upgrade().map(Some).ok_or_else(released)
    }
}

/// Options of a write.
pub struct LeveldbWriteoptions {
    pub(crate) is_sync: bool,
}

/// Blocks are stored as they are.
#[expect(non_upper_case_globals, reason = "LevelDB's name")]
pub const leveldb_no_compression: c_int = 0;

/// Blocks are compressed: by LZ4, as Gabion has no Snappy.
#[expect(non_upper_case_globals, reason = "LevelDB's name")]
pub const leveldb_snappy_compression: c_int = 1;

/// The options that LevelDB has by default; where it has sizes, Gabion's own.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_options_create() -> *mut LeveldbOptions {
    call_or(ptr::null_mut(), || {
        Ok(make(LeveldbOptions {
            options: Options::default().create_if_missing(false),
            comparator: ptr::null(),
        }))
    })
}

/// Frees options.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_options_destroy(options: *mut LeveldbOptions) {
    // SAFETY: null or a handle, by contract.
    unsafe { destroy(options) }
}

/// Sets something.
///
/// # Safety
/// As [`get_mut`].
unsafe fn set(options: *mut LeveldbOptions, set: impl FnOnce(&mut LeveldbOptions)) {
    call_or((), || {
        // SAFETY: null or a handle, by contract.
        set(unsafe { get_mut(options) }?);
        Ok(())
    });
}

/// The order of keys, which leveldb_open compares with that of bytes; NULL for that of bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_options_set_comparator(
    options: *mut LeveldbOptions,
    comparator: *mut LeveldbComparator,
) {
    // SAFETY: as for this function.
    unsafe { set(options, |own| own.comparator = comparator) }
}

/// Filters: those of a Bloom policy with as many bits per key; Gabion's own for a policy of the
/// program's, and for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_options_set_filter_policy(
    options: *mut LeveldbOptions,
    policy: *mut LeveldbFilterpolicy,
) {
    // SAFETY: null or a handle, by contract.
    let bits = unsafe { get(policy.cast_const()) }
        .ok()
        .and_then(|own| own.bits_per_key);
    let bits = bits.unwrap_or(Options::default().tuning.filter_bits_per_key);
    // SAFETY: as for this function.
    unsafe { set(options, |own| own.options.tuning.filter_bits_per_key = bits) }
}

/// Whether to make a store that is not there. Not by default.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_options_set_create_if_missing(
    options: *mut LeveldbOptions,
    v: u8,
) {
    // SAFETY: as for this function.
    unsafe { set(options, |own| own.options.create_if_missing = v != 0) }
}

/// Whether a store that is there is an error. Not by default.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_options_set_error_if_exists(options: *mut LeveldbOptions, v: u8) {
    // SAFETY: as for this function.
    unsafe { set(options, |own| own.options.error_if_exists = v != 0) }
}

/// Whether blocks are checked each time that they are read, and not only the first time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_options_set_paranoid_checks(options: *mut LeveldbOptions, v: u8) {
    // SAFETY: as for this function.
    unsafe { set(options, |own| own.options.tuning.paranoid_checks = v != 0) }
}

/// Says nothing to Gabion: there is one environment.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_options_set_env(
    options: *mut LeveldbOptions,
    env: *mut LeveldbEnv,
) {
    let _ = (options, env);
}

/// Says nothing to Gabion.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_options_set_info_log(
    options: *mut LeveldbOptions,
    info_log: *mut LeveldbLogger,
) {
    let _ = (options, info_log);
}

/// Memory for what is not in tables yet: twice as much, as LevelDB has two such buffers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_options_set_write_buffer_size(
    options: *mut LeveldbOptions,
    s: usize,
) {
    // What LevelDB makes of a smaller size.
    let bytes = (s as u64).max(64 << 10).saturating_mul(2);
    // SAFETY: as for this function.
    unsafe {
        set(options, |own| {
            own.options.tuning.memtable_budget_bytes = Some(bytes)
        })
    }
}

/// Says nothing to Gabion.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_options_set_max_open_files(
    options: *mut LeveldbOptions,
    n: c_int,
) {
    let _ = (options, n);
}

/// The size of the cache for blocks that are not read in place, those that are compressed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_options_set_cache(
    options: *mut LeveldbOptions,
    cache: *mut LeveldbCache,
) {
    // SAFETY: null or a handle, by contract.
    let bytes = unsafe { get(cache.cast_const()) }
        .ok()
        .map(|own| own.capacity as u64);
    // SAFETY: as for this function.
    unsafe { set(options, |own| own.options.tuning.cache_bytes = bytes) }
}

/// The size of blocks before compression; Gabion's are 64 to 32,768 bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_options_set_block_size(options: *mut LeveldbOptions, s: usize) {
    // SAFETY: as for this function.
    unsafe {
        set(options, |own| {
            own.options.tuning.block_bytes = s.clamp(64, 32 << 10)
        })
    }
}

/// Says nothing to Gabion.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_options_set_block_restart_interval(
    options: *mut LeveldbOptions,
    n: c_int,
) {
    let _ = (options, n);
}

/// Says nothing to Gabion.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_options_set_max_file_size(options: *mut LeveldbOptions, s: usize) {
    let _ = (options, s);
}

/// How blocks are compressed. Not at all by default.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_options_set_compression(options: *mut LeveldbOptions, t: c_int) {
    let compression = match t == leveldb_no_compression {
        true => Compression::None,
        false => Compression::Lz4,
    };
    // SAFETY: as for this function.
    unsafe { set(options, |own| own.options.compression = compression) }
}

/// The options that LevelDB has by default.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_readoptions_create() -> *mut LeveldbReadoptions {
    call_or(ptr::null_mut(), || {
        Ok(make(LeveldbReadoptions { snapshot: None }))
    })
}

/// Frees options.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_readoptions_destroy(options: *mut LeveldbReadoptions) {
    // SAFETY: null or a handle, by contract.
    unsafe { destroy(options) }
}

/// Says nothing to Gabion: blocks are always checked when they are first read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_readoptions_set_verify_checksums(
    options: *mut LeveldbReadoptions,
    v: u8,
) {
    let _ = (options, v);
}

/// Says nothing to Gabion.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_readoptions_set_fill_cache(
    options: *mut LeveldbReadoptions,
    v: u8,
) {
    let _ = (options, v);
}

/// The moment that is read; NULL for now.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_readoptions_set_snapshot(
    options: *mut LeveldbReadoptions,
    snapshot: *const LeveldbSnapshot,
) {
    call_or((), || {
        // SAFETY: null or a handle, by contract.
        let snapshot = unsafe { get(snapshot) }
            .ok()
            .map(|own| Arc::downgrade(&own.snapshot));
        // SAFETY: as above.
        unsafe { get_mut(options) }?.snapshot = snapshot;
        Ok(())
    });
}

/// The options that LevelDB has by default.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_writeoptions_create() -> *mut LeveldbWriteoptions {
    call_or(ptr::null_mut(), || {
        Ok(make(LeveldbWriteoptions { is_sync: false }))
    })
}

/// Frees options.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_writeoptions_destroy(options: *mut LeveldbWriteoptions) {
    // SAFETY: null or a handle, by contract.
    unsafe { destroy(options) }
}

/// Whether a write survives a loss of power when it returns. All others survive the death of the
/// process, and a loss of power but for the last 100 ms.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_writeoptions_set_sync(options: *mut LeveldbWriteoptions, v: u8) {
    call_or((), || {
        // SAFETY: null or a handle, by contract.
        unsafe { get_mut(options) }?.is_sync = v != 0;
        Ok(())
    });
}
