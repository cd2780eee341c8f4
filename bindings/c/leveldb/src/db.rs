//! Stores: open, read and write, and operations on their directories.

use std::ffi::{c_char, c_int};
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::Arc;

use gabion::{Db, Durability, Snapshot};
use gabion_bindings::{Failure, Result, range};

use crate::batch::LeveldbWritebatch;
use crate::options::{LeveldbOptions, LeveldbReadoptions, LeveldbWriteoptions};
use crate::raw::{self, call, call_or, copy_out, destroy, get, make, text};

/// An open store.
pub struct LeveldbT {
    pub(crate) db: Db,
}

/// A store as it was at one moment.
pub struct LeveldbSnapshot {
    pub(crate) snapshot: Arc<Snapshot>,
}

/// Opens the store in a directory; NULL after an error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_open(
    options: *const LeveldbOptions,
    name: *const c_char,
    errptr: *mut *mut c_char,
) -> *mut LeveldbT {
    let open = || {
        // SAFETY: a handle, by contract.
        let options = unsafe { get(options) }?;
        // SAFETY: text, by contract.
        let name = unsafe { text(name, "name") }?;
        options.check_order()?;
        let db = options.for_open().open(name)?;
        Ok(make(LeveldbT { db }))
    };
    // SAFETY: as for this function.
    unsafe { call(errptr, ptr::null_mut(), open) }
}

/// Closes a store.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_close(db: *mut LeveldbT) {
    call_or((), || {
        // SAFETY: null or a handle, by contract.
        let own = unsafe { get(db.cast_const()) }?;
        Ok(own.db.clone().close()?)
    });
    // SAFETY: as above.
    unsafe { destroy(db) }
}

/// The durability of a write.
///
/// # Safety
/// As [`get`].
unsafe fn durability(
    db: &Db,
    options: *const LeveldbWriteoptions,
    write: impl FnOnce(&Db, Option<Durability>) -> gabion::Result<()>,
) -> Result<()> {
    // SAFETY: null or a handle, by contract.
    let is_sync = unsafe { get(options) }.is_ok_and(|options| options.is_sync);
    Ok(write(db, is_sync.then_some(Durability::Sync))?)
}

/// Gives a key a value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_put(
    db: *mut LeveldbT,
    options: *const LeveldbWriteoptions,
    key: *const c_char,
    keylen: usize,
    val: *const c_char,
    vallen: usize,
    errptr: *mut *mut c_char,
) {
    let put = || {
        // SAFETY: null or a handle, by contract.
        let db = &unsafe { get(db.cast_const()) }?.db;
        // SAFETY: bytes of the caller's, by contract.
        let key = unsafe { raw::key(key, keylen) }?;
        // SAFETY: as above.
        let value = unsafe { raw::value(val, vallen) }?;
        let put = |db: &Db, level| match level {
            Some(level) => db.default_keyspace().put_with(key, value, level),
            None => db.put(key, value),
        };
        // SAFETY: as for this function.
        unsafe { durability(db, options, put) }
    };
    // SAFETY: as for this function.
    unsafe { call(errptr, (), put) }
}

/// Removes a key.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_delete(
    db: *mut LeveldbT,
    options: *const LeveldbWriteoptions,
    key: *const c_char,
    keylen: usize,
    errptr: *mut *mut c_char,
) {
    let delete = || {
        // SAFETY: null or a handle, by contract.
        let db = &unsafe { get(db.cast_const()) }?.db;
        // SAFETY: bytes of the caller's, by contract.
        let key = unsafe { raw::key(key, keylen) }?;
        let delete = |db: &Db, level| match level {
            Some(level) => db.default_keyspace().delete_with(key, level),
            None => db.delete(key),
        };
        // SAFETY: as for this function.
        unsafe { durability(db, options, delete) }
    };
    // SAFETY: as for this function.
    unsafe { call(errptr, (), delete) }
}

/// Writes a batch: all of it or nothing. The batch stays as it is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_write(
    db: *mut LeveldbT,
    options: *const LeveldbWriteoptions,
    batch: *mut LeveldbWritebatch,
    errptr: *mut *mut c_char,
) {
    let write = || {
        // SAFETY: null or a handle, by contract.
        let db = &unsafe { get(db.cast_const()) }?.db;
        // SAFETY: as above.
        let batch = unsafe { get(batch.cast_const()) }?.for_write(db.default_keyspace())?;
        let write = |db: &Db, level| match level {
            Some(level) => db.write_with(&batch, level),
            None => db.write(&batch),
        };
        // SAFETY: as for this function.
        unsafe { durability(db, options, write) }
    };
    // SAFETY: as for this function.
    unsafe { call(errptr, (), write) }
}

/// The value of a key as a copy, and in *vallen its length; NULL if it is not there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_get(
    db: *mut LeveldbT,
    options: *const LeveldbReadoptions,
    key: *const c_char,
    keylen: usize,
    vallen: *mut usize,
    errptr: *mut *mut c_char,
) -> *mut c_char {
    let find = || {
        // SAFETY: null or a handle, by contract.
        let db = &unsafe { get(db.cast_const()) }?.db;
        // SAFETY: bytes of the caller's, by contract.
        let key = unsafe { raw::key(key, keylen) }?;
        // SAFETY: null or a handle, by contract.
        let snapshot = unsafe { get(options) }.map_or(Ok(None), |own| own.snapshot())?;
        let found = match snapshot {
            Some(snapshot) => snapshot.get(db.default_keyspace(), key)?,
            None => db.get(key)?,
        };
        Ok(found.map_or((ptr::null_mut(), 0), |value| {
            (copy_out(&value), value.len())
        }))
    };
    // SAFETY: as for this function.
    let (value, len) = unsafe { call(errptr, (ptr::null_mut(), 0), find) };
    if !vallen.is_null() {
        // SAFETY: a place for a length, by contract.
        unsafe { vallen.write(len) };
    }
    value
}

/// The store as it is now, for leveldb_readoptions_set_snapshot.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_create_snapshot(db: *mut LeveldbT) -> *const LeveldbSnapshot {
    call_or(ptr::null(), || {
        // SAFETY: null or a handle, by contract.
        let db = &unsafe { get(db.cast_const()) }?.db;
        let snapshot = Arc::new(db.snapshot());
        Ok(make(LeveldbSnapshot { snapshot }).cast_const())
    })
}

/// Gives a snapshot up.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_release_snapshot(
    db: *mut LeveldbT,
    snapshot: *const LeveldbSnapshot,
) {
    let _ = db;
    // SAFETY: null or a handle, by contract.
    unsafe { destroy(snapshot.cast_mut()) }
}

/// What a store tells of itself, as text; NULL for a name that is not known. Known are
/// leveldb.stats, which is a JSON object here, leveldb.approximate-memory-usage and
/// leveldb.num-files-at-level with a number behind it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_property_value(
    db: *mut LeveldbT,
    propname: *const c_char,
) -> *mut c_char {
    call_or(ptr::null_mut(), || {
        // SAFETY: null or a handle, by contract.
        let db = &unsafe { get(db.cast_const()) }?.db;
        // SAFETY: text, by contract.
        let name = unsafe { text(propname, "name of the property") }?;
        let stats = || db.stats();
        let told = match name.strip_prefix("leveldb.") {
            Some("stats") => stats().to_json(),
            Some("approximate-memory-usage") => stats().memory.bytes.to_string(),
            Some(name) => {
                let level = name.strip_prefix("num-files-at-level");
                let level = level.and_then(|level| level.parse::<usize>().ok());
                let Some(level) = level else {
                    return Ok(ptr::null_mut());
                };
                let stats = stats();
                let buckets = stats
                    .keyspaces
                    .iter()
                    .flat_map(|keyspace| &keyspace.buckets);
                let files = buckets.map(|bucket| bucket.levels.get(level).map_or(0, Vec::len));
                files.sum::<usize>().to_string()
            }
            None => return Ok(ptr::null_mut()),
        };
        Ok(copy_out(told.as_bytes()))
    })
}

/// The bytes of keys and values in ranges, each from a key on and below another one. Goes through
/// the pairs of each range.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_approximate_sizes(
    db: *mut LeveldbT,
    num_ranges: c_int,
    range_start_key: *const *const c_char,
    range_start_key_len: *const usize,
    range_limit_key: *const *const c_char,
    range_limit_key_len: *const usize,
    sizes: *mut u64,
) {
    call_or((), || {
        // SAFETY: null or a handle, by contract.
        let db = &unsafe { get(db.cast_const()) }?.db;
        for index in 0..usize::try_from(num_ranges).unwrap_or(0) {
            // SAFETY: so many ranges are there, by contract of the caller.
            let bounds = unsafe {
                bounds_at(
                    (range_start_key, range_start_key_len),
                    (range_limit_key, range_limit_key_len),
                    index,
                )
            };
            let size = bounds.and_then(|bounds| size_of(db, bounds)).unwrap_or(0);
            let place = sizes.wrapping_add(index);
            // SAFETY: so many places are there, by contract.
            unsafe { place.write(size) };
        }
        Ok(())
    });
}

type Keys = (*const *const c_char, *const usize);

/// A range of lists of keys.
///
/// # Safety
/// The lists are longer than `index`, and their keys can be read.
unsafe fn bounds_at(start: Keys, limit: Keys, index: usize) -> Result<range::Bounds> {
    let read = |(keys, lens): Keys| {
        // SAFETY: as for this function.
        let data = unsafe { keys.wrapping_add(index).read() };
        // SAFETY: as for this function.
        let len = unsafe { lens.wrapping_add(index).read() };
        // SAFETY: as for this function.
        unsafe { raw::key(data, len) }
    };
    Ok(range::between(Some(read(start)?), Some(read(limit)?)))
}

fn size_of(db: &Db, bounds: range::Bounds) -> Result<u64> {
    let mut size = 0;
    if !range::is_empty(&bounds) {
        let mut cursor = db.default_keyspace().cursor::<Vec<u8>>(bounds);
        while cursor.advance()? {
            size += (cursor.key().len() + cursor.value().len()) as u64;
        }
    }
    Ok(size)
}

/// Brings the keys between two into their best order; NULL for no end on that side.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_compact_range(
    db: *mut LeveldbT,
    start_key: *const c_char,
    start_key_len: usize,
    limit_key: *const c_char,
    limit_key_len: usize,
) {
    call_or((), || {
        // SAFETY: null or a handle, by contract.
        let db = &unsafe { get(db.cast_const()) }?.db;
        // SAFETY: bytes of the caller's, by contract.
        let start = unsafe { raw::end(start_key, start_key_len) }?;
        // SAFETY: as above.
        let limit = unsafe { raw::end(limit_key, limit_key_len) }?;
        Ok(db.compact::<Vec<u8>>(range::between(start, limit))?)
    });
}

/// Removes the store in a directory; where there is no directory, there is nothing to do.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_destroy_db(
    options: *const LeveldbOptions,
    name: *const c_char,
    errptr: *mut *mut c_char,
) {
    let _ = options;
    let destroy = || {
        // SAFETY: text, by contract.
        let name = unsafe { text(name, "name") }?;
        match Path::new(name).exists() {
            true => Ok(gabion::destroy(name)?),
            false => Ok(()),
        }
    };
    // SAFETY: as for this function.
    unsafe { call(errptr, (), destroy) }
}

/// Repairs the store in a directory. A sound one stays as it is; a damaged one stays beside the
/// repaired one, with ".damaged" behind its name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_repair_db(
    options: *const LeveldbOptions,
    name: *const c_char,
    errptr: *mut *mut c_char,
) {
    let _ = options;
    let repair = || {
        // SAFETY: text, by contract.
        let name = unsafe { text(name, "name") }?;
        repair(Path::new(name))
    };
    // SAFETY: as for this function.
    unsafe { call(errptr, (), repair) }
}

fn repair(path: &Path) -> Result<()> {
    if gabion::check(path)?.problems.is_empty() {
        return Ok(());
    }
    let beside = |ending: &str| {
        let mut name = path.as_os_str().to_owned();
        name.push(ending);
        PathBuf::from(name)
    };
    let (damaged, repaired) = (beside(".damaged"), beside(".repaired"));
    if damaged.exists() {
        let why = "is in the way, as an earlier repair left it there; move or remove it";
        return Err(Failure::argument(format!("{} {why}", damaged.display())));
    }
    gabion::repair(path, &repaired)?;
    let rename = |from: &Path, to: &Path| {
        std::fs::rename(from, to).map_err(|why| {
            let (from, to) = (from.display(), to.display());
            Failure::argument(format!("cannot rename {from} to {to}: {why}"))
        })
    };
    rename(path, &damaged)?;
    rename(&repaired, path)
}
