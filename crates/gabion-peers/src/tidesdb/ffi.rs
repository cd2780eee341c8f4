//! TidesDB's C interface (`tidesdb/db.h`, release 9.3.14), as far as the adapter needs it, behind
//! safe types.
//!
//! Who owns what: a [`Db`] owns the store and its one column family, which lives as long as it. A
//! [`Transaction`] borrows its [`Db`], and [`Entries`] have a transaction of their own, so that
//! each ends before what it needs. TidesDB copies what it is given; a store may be used by several
//! threads at a time, a transaction by one.
//!
//! The configurations and the statistics are structures of C, whose fields a release may move: the
//! build script links this release alone, and a test compares the defaults with what `db.h` says.

use std::ffi::{CStr, CString, c_char, c_double, c_float, c_int, c_void};
use std::path::Path;
use std::ptr::{NonNull, null_mut};

/// A type of which C gives out pointers only.
macro_rules! opaque {
    ($($name:ident),*) => {$(
        #[repr(C)]
        struct $name {
            _opaque: [u8; 0],
        }
    )*};
}

opaque!(RawDb, RawFamily, RawTransaction, RawIterator);

/// `tidesdb_column_family_config_t`.
#[repr(C)]
struct RawFamilyConfig {
    name: [c_char; 128],
    write_buffer_size: usize,
    level_size_ratio: usize,
    min_levels: c_int,
    dividing_level_offset: c_int,
    klog_value_threshold: usize,
    compression_algorithm: c_int,
    enable_bloom_filter: c_int,
    bloom_fpr: c_double,
    enable_block_indexes: c_int,
    index_sample_ratio: c_int,
    block_index_prefix_len: c_int,
    sync_mode: c_int,
    sync_interval_us: u64,
    comparator_name: [c_char; 64],
    comparator_ctx_str: [c_char; 256],
    comparator_fn_cached: *mut c_void,
    comparator_ctx_cached: *mut c_void,
    skip_list_max_level: c_int,
    skip_list_probability: c_float,
    default_isolation_level: c_int,
    min_disk_space: u64,
    l1_file_count_trigger: c_int,
    l0_queue_stall_threshold: c_int,
    tombstone_density_trigger: c_double,
    tombstone_density_min_entries: u64,
    use_btree: c_int,
    commit_hook_fn: *mut c_void,
    commit_hook_ctx: *mut c_void,
    object_target_file_size: usize,
    object_lazy_compaction: c_int,
    object_prefetch_compaction: c_int,
}

/// `tidesdb_config_t`.
#[repr(C)]
struct RawConfig {
    db_path: *mut c_char,
    num_flush_threads: c_int,
    num_compaction_threads: c_int,
    log_level: c_int,
    block_cache_size: usize,
    max_open_sstables: usize,
    log_to_file: c_int,
    log_truncation_at: usize,
    max_memory_usage: usize,
    unified_memtable: c_int,
    unified_memtable_write_buffer_size: usize,
    unified_memtable_skip_list_max_level: c_int,
    unified_memtable_skip_list_probability: c_float,
    unified_memtable_sync_mode: c_int,
    unified_memtable_sync_interval_us: u64,
    object_store: *mut c_void,
    object_store_config: *mut c_void,
    max_concurrent_flushes: c_int,
    finish_compactions_on_close: c_int,
}

/// `tidesdb_db_stats_t`. Of its fields only those at its end are read here.
#[repr(C)]
struct RawStats {
    num_column_families: c_int,
    total_memory: u64,
    available_memory: u64,
    resolved_memory_limit: usize,
    memory_pressure_level: c_int,
    flush_pending_count: c_int,
    total_memtable_bytes: i64,
    total_immutable_count: c_int,
    total_sstable_count: c_int,
    total_data_size_bytes: u64,
    num_open_sstables: c_int,
    global_seq: u64,
    txn_memory_bytes: i64,
    compaction_queue_size: usize,
    flush_queue_size: usize,
    unified_memtable_enabled: c_int,
    unified_memtable_bytes: i64,
    unified_immutable_count: c_int,
    unified_is_flushing: c_int,
    unified_next_cf_index: u32,
    unified_wal_generation: u64,
    object_store_enabled: c_int,
    object_store_connector: *const c_char,
    local_cache_bytes_used: usize,
    local_cache_bytes_max: usize,
    local_cache_num_files: c_int,
    last_uploaded_generation: u64,
    upload_queue_depth: usize,
    total_uploads: u64,
    total_upload_failures: u64,
    replica_mode: c_int,
    primary_epoch: u64,
    seen_epoch: u64,
    uwal_bytes_written: u64,
    wal_bytes_written: u64,
    flush_bytes_written: u64,
    compaction_bytes_written: u64,
    compaction_bytes_read: u64,
    user_bytes_written: u64,
    flush_count: u64,
    compaction_count: u64,
}

#[link(name = "tidesdb", kind = "static")]
#[link(name = "m")]
unsafe extern "C" {
    fn tidesdb_default_column_family_config() -> RawFamilyConfig;
    fn tidesdb_default_config() -> RawConfig;
    fn tidesdb_open(config: *const RawConfig, db: *mut *mut RawDb) -> c_int;
    fn tidesdb_close(db: *mut RawDb) -> c_int;
    fn tidesdb_create_column_family(
        db: *mut RawDb,
        name: *const c_char,
        config: *const RawFamilyConfig,
    ) -> c_int;
    fn tidesdb_get_column_family(db: *mut RawDb, name: *const c_char) -> *mut RawFamily;
    fn tidesdb_txn_begin(db: *mut RawDb, txn: *mut *mut RawTransaction) -> c_int;
    fn tidesdb_txn_put(
        txn: *mut RawTransaction,
        family: *mut RawFamily,
        key: *const u8,
        key_size: usize,
        value: *const u8,
        value_size: usize,
        ttl: i64,
    ) -> c_int;
    fn tidesdb_txn_delete(
        txn: *mut RawTransaction,
        family: *mut RawFamily,
        key: *const u8,
        key_size: usize,
    ) -> c_int;
    fn tidesdb_txn_get_notrack(
        txn: *mut RawTransaction,
        family: *mut RawFamily,
        key: *const u8,
        key_size: usize,
        value: *mut *mut u8,
        value_size: *mut usize,
    ) -> c_int;
    fn tidesdb_txn_commit(txn: *mut RawTransaction) -> c_int;
    fn tidesdb_txn_rollback(txn: *mut RawTransaction) -> c_int;
    fn tidesdb_txn_reset(txn: *mut RawTransaction, isolation: c_int) -> c_int;
    fn tidesdb_txn_free(txn: *mut RawTransaction);
    fn tidesdb_iter_new(
        txn: *mut RawTransaction,
        family: *mut RawFamily,
        iterator: *mut *mut RawIterator,
    ) -> c_int;
    fn tidesdb_iter_seek(iterator: *mut RawIterator, key: *const u8, key_size: usize) -> c_int;
    fn tidesdb_iter_seek_to_first(iterator: *mut RawIterator) -> c_int;
    fn tidesdb_iter_next(iterator: *mut RawIterator) -> c_int;
    fn tidesdb_iter_valid(iterator: *mut RawIterator) -> c_int;
    fn tidesdb_iter_key_value(
        iterator: *mut RawIterator,
        key: *mut *mut u8,
        key_size: *mut usize,
        value: *mut *mut u8,
        value_size: *mut usize,
    ) -> c_int;
    fn tidesdb_iter_free(iterator: *mut RawIterator);
    fn tidesdb_compact(family: *mut RawFamily) -> c_int;
    fn tidesdb_flush_memtable(family: *mut RawFamily) -> c_int;
    fn tidesdb_is_flushing(family: *mut RawFamily) -> c_int;
    fn tidesdb_is_compacting(family: *mut RawFamily) -> c_int;
    fn tidesdb_sync_wal(family: *mut RawFamily) -> c_int;
    fn tidesdb_get_db_stats(db: *mut RawDb, stats: *mut RawStats) -> c_int;
    fn tidesdb_free(memory: *mut c_void);
}

/// No compression, as `compression_algorithm` counts.
const NO_COMPRESSION: c_int = 0;

/// The log is written and not synced, as `tidesdb_sync_mode_t` counts.
const NO_SYNC: c_int = 0;

/// Errors alone are told on standard error, as `tidesdb_log_level_t` counts.
const LOG_ERRORS: c_int = 3;

/// A transaction reads what was committed before each read: the default, as
/// `tidesdb_isolation_level_t` counts.
const READ_COMMITTED: c_int = 1;

/// The code for a key that is not there, and for the end of a walk.
const NOT_FOUND: c_int = -3;

/// The one column family.
const FAMILY: &CStr = c"records";

/// How a store is opened.
pub(super) struct Settings {
    pub(super) write_buffer_bytes: usize,
    pub(super) cache_bytes: usize,
    pub(super) flush_threads: c_int,
    pub(super) compaction_threads: c_int,
}

/// Bytes that a store has written since it was opened.
pub(super) struct Written {
    pub(super) log: u64,
    pub(super) flush: u64,
    pub(super) compaction: u64,
}

/// An open store.
pub(super) struct Db {
    db: NonNull<RawDb>,
    family: NonNull<RawFamily>,
}

// SAFETY: TidesDB's own documentation allows any thread to use a store ...
unsafe impl Send for Db {}
// SAFETY: ... and several at a time, without a lock of theirs.
unsafe impl Sync for Db {}

impl Db {
    /// Opens the store in a directory, and makes it where there is none.
    pub(super) fn open(dir: &Path, settings: &Settings) -> Result<Db, String> {
        let path = CString::new(dir.as_os_str().as_encoded_bytes())
            .map_err(|_| "the directory's name contains a zero".to_owned())?;
        // SAFETY: takes nothing.
        let mut config = unsafe { tidesdb_default_config() };
        config.db_path = path.as_ptr().cast_mut();
        config.num_flush_threads = settings.flush_threads;
        config.num_compaction_threads = settings.compaction_threads;
        config.log_level = LOG_ERRORS;
        config.block_cache_size = settings.cache_bytes;
        let mut db = null_mut();
        // SAFETY: configuration and path live until the call returns, which copies them.
        checked(unsafe { tidesdb_open(&config, &mut db) })?;
        let db = NonNull::new(db).ok_or("a store that was opened is null")?;
        let family = Db::family(db, settings);
        match family {
            Ok(family) => Ok(Db { db, family }),
            Err(error) => {
                // SAFETY: nothing else has the store. What closing it says is no worse.
                let _ = unsafe { tidesdb_close(db.as_ptr()) };
                Err(error)
            }
        }
    }

    /// The column family, made if it is not there.
    fn family(db: NonNull<RawDb>, settings: &Settings) -> Result<NonNull<RawFamily>, String> {
        // SAFETY: the store is open, the name ends with a zero.
        let family = unsafe { tidesdb_get_column_family(db.as_ptr(), FAMILY.as_ptr()) };
        if let Some(family) = NonNull::new(family) {
            return Ok(family);
        }
        // SAFETY: takes nothing.
        let mut config = unsafe { tidesdb_default_column_family_config() };
        config.write_buffer_size = settings.write_buffer_bytes;
        config.compression_algorithm = NO_COMPRESSION;
        config.sync_mode = NO_SYNC;
        // SAFETY: the store is open, name and configuration live until the call returns.
        checked(unsafe { tidesdb_create_column_family(db.as_ptr(), FAMILY.as_ptr(), &config) })?;
        // SAFETY: as before.
        let family = unsafe { tidesdb_get_column_family(db.as_ptr(), FAMILY.as_ptr()) };
        NonNull::new(family).ok_or_else(|| "a column family that was made is not there".to_owned())
    }

    pub(super) fn begin(&self) -> Result<Transaction<'_>, String> {
        let mut txn = null_mut();
        // SAFETY: the store is open.
        checked(unsafe { tidesdb_txn_begin(self.db.as_ptr(), &mut txn) })?;
        let txn = NonNull::new(txn).ok_or("a transaction that began is null")?;
        Ok(Transaction { txn, db: self })
    }

    /// The entries from the first key not below `from`, as they are committed now.
    pub(super) fn entries(&self, from: &[u8]) -> Result<Entries<'_>, String> {
        let entries = self.walk()?;
        let raw = entries.iterator.as_ptr();
        let code = match from {
            // SAFETY: the iterator is alive.
            [] => unsafe { tidesdb_iter_seek_to_first(raw) },
            // SAFETY: the iterator is alive, the key has the size that is said.
            _ => unsafe { tidesdb_iter_seek(raw, from.as_ptr(), from.len()) },
        };
        reached(code).map(|()| entries)
    }

    fn walk(&self) -> Result<Entries<'_>, String> {
        let txn = self.begin()?;
        let mut raw = null_mut();
        // SAFETY: transaction and family are alive.
        checked(unsafe { tidesdb_iter_new(txn.txn.as_ptr(), self.family.as_ptr(), &mut raw) })?;
        let iterator = NonNull::new(raw).ok_or("an iterator that was made is null")?;
        Ok(Entries { iterator, txn })
    }

    /// Syncs the log that is written now.
    pub(super) fn sync_log(&self) -> Result<(), String> {
        // SAFETY: the store is open, and with it the family.
        checked(unsafe { tidesdb_sync_wal(self.family.as_ptr()) })
    }

    /// Begins to write what is in memory to a table.
    pub(super) fn flush(&self) -> Result<(), String> {
        // SAFETY: as above.
        checked(unsafe { tidesdb_flush_memtable(self.family.as_ptr()) })
    }

    /// Merges all tables, and returns when that is done.
    pub(super) fn compact(&self) -> Result<(), String> {
        // SAFETY: as above.
        checked(unsafe { tidesdb_compact(self.family.as_ptr()) })
    }

    pub(super) fn is_flushing(&self) -> bool {
        // SAFETY: as above.
        unsafe { tidesdb_is_flushing(self.family.as_ptr()) != 0 }
    }

    pub(super) fn is_compacting(&self) -> bool {
        // SAFETY: as above.
        unsafe { tidesdb_is_compacting(self.family.as_ptr()) != 0 }
    }

    pub(super) fn written(&self) -> Result<Written, String> {
        let mut stats = std::mem::MaybeUninit::<RawStats>::zeroed();
        // SAFETY: the store is open, and there is room for its figures.
        checked(unsafe { tidesdb_get_db_stats(self.db.as_ptr(), stats.as_mut_ptr()) })?;
        // SAFETY: zeros are figures and null pointers, and the call has put others in their place.
        let stats = unsafe { stats.assume_init() };
        Ok(Written {
            log: stats.wal_bytes_written + stats.uwal_bytes_written,
            flush: stats.flush_bytes_written,
            compaction: stats.compaction_bytes_written,
        })
    }

    /// Closes the store; everything that was committed is in tables then.
    pub(super) fn close(self) -> Result<(), String> {
        let db = std::mem::ManuallyDrop::new(self);
        // SAFETY: opened by `Db::open` and closed once; nothing borrows it any more.
        checked(unsafe { tidesdb_close(db.db.as_ptr()) })
    }
}

impl Drop for Db {
    fn drop(&mut self) {
        // SAFETY: as in `close`. Nobody is there to be told of an error.
        let _ = unsafe { tidesdb_close(self.db.as_ptr()) };
    }
}

/// A transaction, to be used again after each commit.
pub(super) struct Transaction<'a> {
    txn: NonNull<RawTransaction>,
    db: &'a Db,
}

impl Transaction<'_> {
    pub(super) fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), String> {
        // SAFETY: transaction and family are alive, key and value have the sizes that are said.
        checked(unsafe {
            tidesdb_txn_put(
                self.txn.as_ptr(),
                self.db.family.as_ptr(),
                key.as_ptr(),
                key.len(),
                value.as_ptr(),
                value.len(),
                -1, // it lives for ever
            )
        })
    }

    pub(super) fn delete(&mut self, key: &[u8]) -> Result<(), String> {
        // SAFETY: transaction and family are alive, the key has the size that is said.
        checked(unsafe {
            tidesdb_txn_delete(
                self.txn.as_ptr(),
                self.db.family.as_ptr(),
                key.as_ptr(),
                key.len(),
            )
        })
    }

    /// Commits what was put and deleted if `done` is no error, and forgets it otherwise. Then the
    /// transaction is as new.
    pub(super) fn end(&mut self, done: Result<(), String>) -> Result<(), String> {
        let done = done.and_then(|()| {
            // SAFETY: the transaction is alive.
            checked(unsafe { tidesdb_txn_commit(self.txn.as_ptr()) })
        });
        if done.is_err() {
            // SAFETY: the transaction is alive. The first error is the one to tell.
            let _ = unsafe { tidesdb_txn_rollback(self.txn.as_ptr()) };
        }
        // SAFETY: the transaction is alive, and was committed or rolled back.
        done.and(checked(unsafe {
            tidesdb_txn_reset(self.txn.as_ptr(), READ_COMMITTED)
        }))
    }

    pub(super) fn get(&self, key: &[u8]) -> Result<Option<Bytes>, String> {
        let (mut value, mut size) = (null_mut(), 0);
        // SAFETY: transaction and family are alive, the key has the size that is said, and there
        // is room for the value's place and size.
        let code = unsafe {
            tidesdb_txn_get_notrack(
                self.txn.as_ptr(),
                self.db.family.as_ptr(),
                key.as_ptr(),
                key.len(),
                &mut value,
                &mut size,
            )
        };
        match code {
            NOT_FOUND => Ok(None),
            code => checked(code).map(|()| {
                Some(Bytes {
                    start: value,
                    size: if value.is_null() { 0 } else { size },
                })
            }),
        }
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        // SAFETY: begun by `Db::begin`, freed only here, before the store is closed.
        unsafe { tidesdb_txn_free(self.txn.as_ptr()) };
    }
}

/// A value, in memory of TidesDB's.
pub(super) struct Bytes {
    /// Null if it is empty.
    start: *mut u8,
    size: usize,
}

impl std::ops::Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: a value of no bytes, or TidesDB gave `size` bytes, which are ours until `drop`.
        unsafe { slice(self.start, self.size) }
    }
}

impl Drop for Bytes {
    fn drop(&mut self) {
        // SAFETY: TidesDB allocated it for us, or it is null; it is freed only here.
        unsafe { tidesdb_free(self.start.cast()) };
    }
}

/// A walk over entries in the order of their keys.
pub(super) struct Entries<'a> {
    iterator: NonNull<RawIterator>,
    /// What the iterator reads in; freed after it.
    #[expect(dead_code, reason = "keeps the transaction as long as the iterator")]
    txn: Transaction<'a>,
}

impl Entries<'_> {
    /// Key and value of the entry that the walk is at; `None` at its end.
    pub(super) fn entry(&self) -> Result<Option<(&[u8], &[u8])>, String> {
        let raw = self.iterator.as_ptr();
        // SAFETY: the iterator is alive.
        if unsafe { tidesdb_iter_valid(raw) } == 0 {
            return Ok(None);
        }
        let (mut key, mut key_size) = (null_mut(), 0);
        let (mut value, mut value_size) = (null_mut(), 0);
        // SAFETY: the iterator is at an entry, and there is room for places and sizes.
        checked(unsafe {
            tidesdb_iter_key_value(raw, &mut key, &mut key_size, &mut value, &mut value_size)
        })?;
        // SAFETY: the key is there until the iterator moves, which needs `&mut self`.
        let key = unsafe { slice(key, key_size) };
        // SAFETY: the same for the value.
        let value = unsafe { slice(value, value_size) };
        Ok(Some((key, value)))
    }

    /// Moves to the next entry; the walk must be at one.
    pub(super) fn advance(&mut self) -> Result<(), String> {
        // SAFETY: the iterator is alive.
        reached(unsafe { tidesdb_iter_next(self.iterator.as_ptr()) })
    }
}

impl Drop for Entries<'_> {
    fn drop(&mut self) {
        // SAFETY: made by `Transaction::walk`, freed only here, before its transaction.
        unsafe { tidesdb_iter_free(self.iterator.as_ptr()) };
    }
}

/// `size` bytes from `start` on; none if that is null.
///
/// # Safety
/// They must be there, unchanged, as long as the slice is.
unsafe fn slice<'a>(start: *const u8, size: usize) -> &'a [u8] {
    if start.is_null() {
        return &[];
    }
    // SAFETY: what the caller promises.
    unsafe { std::slice::from_raw_parts(start, size) }
}

/// What a move of an iterator returned: its end is no error.
fn reached(code: c_int) -> Result<(), String> {
    match code {
        NOT_FOUND => Ok(()),
        code => checked(code),
    }
}

/// What a call returned, in words.
fn checked(code: c_int) -> Result<(), String> {
    let why = match code {
        0 => return Ok(()),
        -1 => "no memory",
        -2 => "invalid arguments",
        -3 => "not found",
        -4 => "an error of a file",
        -5 => "a damaged store",
        -6 => "it exists already",
        -7 => "a conflict of transactions",
        -8 => "too large",
        -9 => "above its limit of memory",
        -10 => "no valid store",
        -12 => "somebody has it locked",
        -13 => "read-only",
        -14 => "busy",
        _ => "an error that it does not name",
    };
    Err(format!("{why} (code {code})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The last fields of a structure are where they should be only if all before them are.
    #[test]
    fn structures_are_those_of_the_library() {
        // SAFETY: takes nothing.
        let family = unsafe { tidesdb_default_column_family_config() };
        assert_eq!(family.write_buffer_size, 64 << 20);
        assert_eq!((family.level_size_ratio, family.min_levels), (10, 1));
        assert_eq!(family.klog_value_threshold, 512);
        assert_eq!(family.sync_interval_us, 128_000);
        assert!(family.skip_list_probability > 0.0 && family.skip_list_probability < 1.0);
        assert_eq!(family.default_isolation_level, READ_COMMITTED);
        assert_eq!(family.min_disk_space, 100 << 20);
        assert_eq!(family.tombstone_density_min_entries, 1024);
        assert!(family.commit_hook_fn.is_null() && family.commit_hook_ctx.is_null());
        assert_eq!(family.object_target_file_size, 0);
        let object = (
            family.object_lazy_compaction,
            family.object_prefetch_compaction,
        );
        assert_eq!(object, (0, 1));
        // SAFETY: takes nothing.
        let config = unsafe { tidesdb_default_config() };
        // SAFETY: the default is a text that the library has.
        let path = unsafe { CStr::from_ptr(config.db_path) };
        assert_eq!(path, c"./tidesdb");
        assert_eq!(config.block_cache_size, 64 << 20);
        assert_eq!(config.log_truncation_at, 24 << 20);
        assert!(config.object_store.is_null() && config.object_store_config.is_null());
    }

    #[test]
    fn codes_have_words() {
        assert_eq!(checked(0), Ok(()));
        assert_eq!(reached(NOT_FOUND), Ok(()));
        let words = checked(-5).unwrap_err();
        assert_eq!(words, "a damaged store (code -5)");
        assert!(checked(-77).unwrap_err().contains("-77"));
    }
}
