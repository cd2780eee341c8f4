//! LevelDB's C interface (`leveldb/c.h`), as far as the adapter needs it, behind safe types.
//!
//! Who owns what: a [`Db`] owns the store, its options, filter policy and cache, and closes the
//! store before it lets go of the rest. An [`Entries`] borrows its [`Db`], so that it ends first.
//! LevelDB copies what it is given and may be called from several threads at a time; options,
//! batches and iterators belong to one thread.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
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

opaque!(
    RawDb,
    RawOptions,
    RawFilter,
    RawCache,
    RawReadOptions,
    RawWriteOptions,
    RawBatch,
    RawIterator
);

#[link(name = "leveldb")]
unsafe extern "C" {
    fn leveldb_open(o: *const RawOptions, n: *const c_char, e: *mut *mut c_char) -> *mut RawDb;
    fn leveldb_close(db: *mut RawDb);
    fn leveldb_put(
        db: *mut RawDb,
        options: *const RawWriteOptions,
        key: *const c_char,
        key_size: usize,
        value: *const c_char,
        value_size: usize,
        error: *mut *mut c_char,
    );
    fn leveldb_delete(
        db: *mut RawDb,
        options: *const RawWriteOptions,
        key: *const c_char,
        key_size: usize,
        error: *mut *mut c_char,
    );
    fn leveldb_write(
        db: *mut RawDb,
        options: *const RawWriteOptions,
        batch: *mut RawBatch,
        error: *mut *mut c_char,
    );
    fn leveldb_get(
        db: *mut RawDb,
        options: *const RawReadOptions,
        key: *const c_char,
        key_size: usize,
        value_size: *mut usize,
        error: *mut *mut c_char,
    ) -> *mut c_char;
    fn leveldb_property_value(db: *mut RawDb, name: *const c_char) -> *mut c_char;
    fn leveldb_compact_range(
        db: *mut RawDb,
        start: *const c_char,
        start_size: usize,
        limit: *const c_char,
        limit_size: usize,
    );
    fn leveldb_create_iterator(db: *mut RawDb, options: *const RawReadOptions) -> *mut RawIterator;
    fn leveldb_iter_destroy(iterator: *mut RawIterator);
    fn leveldb_iter_valid(iterator: *const RawIterator) -> u8;
    fn leveldb_iter_seek(iterator: *mut RawIterator, key: *const c_char, key_size: usize);
    fn leveldb_iter_seek_to_last(iterator: *mut RawIterator);
    fn leveldb_iter_next(iterator: *mut RawIterator);
    fn leveldb_iter_prev(iterator: *mut RawIterator);
    fn leveldb_iter_key(iterator: *const RawIterator, size: *mut usize) -> *const c_char;
    fn leveldb_iter_value(iterator: *const RawIterator, size: *mut usize) -> *const c_char;
    fn leveldb_iter_get_error(iterator: *const RawIterator, error: *mut *mut c_char);
    fn leveldb_writebatch_create() -> *mut RawBatch;
    fn leveldb_writebatch_destroy(batch: *mut RawBatch);
    fn leveldb_writebatch_clear(batch: *mut RawBatch);
    fn leveldb_writebatch_put(
        batch: *mut RawBatch,
        key: *const c_char,
        key_size: usize,
        value: *const c_char,
        value_size: usize,
    );
    fn leveldb_writebatch_delete(batch: *mut RawBatch, key: *const c_char, key_size: usize);
    fn leveldb_options_create() -> *mut RawOptions;
    fn leveldb_options_destroy(options: *mut RawOptions);
    fn leveldb_options_set_filter_policy(options: *mut RawOptions, filter: *mut RawFilter);
    fn leveldb_options_set_create_if_missing(options: *mut RawOptions, value: u8);
    fn leveldb_options_set_error_if_exists(options: *mut RawOptions, value: u8);
    fn leveldb_options_set_write_buffer_size(options: *mut RawOptions, bytes: usize);
    fn leveldb_options_set_max_open_files(options: *mut RawOptions, files: c_int);
    fn leveldb_options_set_cache(options: *mut RawOptions, cache: *mut RawCache);
    fn leveldb_options_set_compression(options: *mut RawOptions, compression: c_int);
    fn leveldb_filterpolicy_create_bloom(bits_per_key: c_int) -> *mut RawFilter;
    fn leveldb_filterpolicy_destroy(filter: *mut RawFilter);
    fn leveldb_cache_create_lru(capacity: usize) -> *mut RawCache;
    fn leveldb_cache_destroy(cache: *mut RawCache);
    fn leveldb_readoptions_create() -> *mut RawReadOptions;
    fn leveldb_readoptions_destroy(options: *mut RawReadOptions);
    fn leveldb_readoptions_set_verify_checksums(options: *mut RawReadOptions, value: u8);
    fn leveldb_writeoptions_create() -> *mut RawWriteOptions;
    fn leveldb_writeoptions_destroy(options: *mut RawWriteOptions);
    fn leveldb_writeoptions_set_sync(options: *mut RawWriteOptions, value: u8);
    fn leveldb_free(memory: *mut c_void);
    fn leveldb_major_version() -> c_int;
    fn leveldb_minor_version() -> c_int;
}

/// No compression, as `leveldb_options_set_compression` counts.
const NO_COMPRESSION: c_int = 0;

/// How a store is opened.
pub(super) struct Settings {
    /// Whether there must be a store already; else there must be none.
    pub(super) existing: bool,
    pub(super) write_buffer_bytes: usize,
    pub(super) cache_bytes: usize,
    pub(super) open_files_max: i32,
    pub(super) filter_bits: i32,
}

/// An open store.
pub(super) struct Db {
    db: NonNull<RawDb>,
    options: NonNull<RawOptions>,
    filter: NonNull<RawFilter>,
    cache: NonNull<RawCache>,
}

// SAFETY: LevelDB's own documentation allows any thread to use a store ...
unsafe impl Send for Db {}
// SAFETY: ... and several at a time, without a lock of theirs.
unsafe impl Sync for Db {}

impl Db {
    pub(super) fn open(dir: &Path, settings: &Settings) -> Result<Db, String> {
        let name = CString::new(dir.as_os_str().as_encoded_bytes())
            .map_err(|_| "the directory's name contains a zero".to_owned())?;
        // SAFETY: takes nothing; `created` refuses null.
        let options = created(unsafe { leveldb_options_create() });
        // SAFETY: takes a number.
        let filter = created(unsafe { leveldb_filterpolicy_create_bloom(settings.filter_bits) });
        // SAFETY: takes a number.
        let cache = created(unsafe { leveldb_cache_create_lru(settings.cache_bytes) });
        let raw = options.as_ptr();
        // SAFETY: the options are alive, and `Db` keeps the filter longer than the store.
        unsafe { leveldb_options_set_filter_policy(raw, filter.as_ptr()) };
        // SAFETY: the same for the cache.
        unsafe { leveldb_options_set_cache(raw, cache.as_ptr()) };
        // SAFETY: the options are alive; so for all that follow.
        unsafe { leveldb_options_set_create_if_missing(raw, u8::from(!settings.existing)) };
        // SAFETY: as above.
        unsafe { leveldb_options_set_error_if_exists(raw, u8::from(!settings.existing)) };
        // SAFETY: as above.
        unsafe { leveldb_options_set_write_buffer_size(raw, settings.write_buffer_bytes) };
        // SAFETY: as above.
        unsafe { leveldb_options_set_max_open_files(raw, settings.open_files_max) };
        // SAFETY: as above.
        unsafe { leveldb_options_set_compression(raw, NO_COMPRESSION) };
        // SAFETY: options, name and the place for the error live until the call returns.
        let opened = checked(|error| unsafe { leveldb_open(raw, name.as_ptr(), error) });
        match opened {
            Ok(db) => Ok(Db {
                db: created(db),
                options,
                filter,
                cache,
            }),
            Err(error) => {
                destroy(options, filter, cache);
                Err(error)
            }
        }
    }

    pub(super) fn put(&self, how: &Write, key: &[u8], value: &[u8]) -> Result<(), String> {
        // SAFETY: store and options are alive, key and value have the sizes that are said.
        checked(|error| unsafe {
            leveldb_put(
                self.db.as_ptr(),
                how.0.as_ptr(),
                key.as_ptr().cast(),
                key.len(),
                value.as_ptr().cast(),
                value.len(),
                error,
            )
        })
    }

    pub(super) fn delete(&self, how: &Write, key: &[u8]) -> Result<(), String> {
        // SAFETY: store and options are alive, the key has the size that is said.
        checked(|error| unsafe {
            leveldb_delete(
                self.db.as_ptr(),
                how.0.as_ptr(),
                key.as_ptr().cast(),
                key.len(),
                error,
            )
        })
    }

    pub(super) fn write(&self, how: &Write, batch: &mut RecordBatch) -> Result<(), String> {
        // SAFETY: store, options and batch are alive, and nobody else has the batch.
        checked(|error| unsafe {
            leveldb_write(self.db.as_ptr(), how.0.as_ptr(), batch.0.as_ptr(), error)
        })
    }

    pub(super) fn get(&self, how: &Read, key: &[u8]) -> Result<Option<Bytes>, String> {
        let mut size = 0;
        // SAFETY: store and options are alive, the key has the size that is said, and there is
        // room for the value's size.
        let value = checked(|error| unsafe {
            leveldb_get(
                self.db.as_ptr(),
                how.0.as_ptr(),
                key.as_ptr().cast(),
                key.len(),
                &mut size,
                error,
            )
        })?;
        Ok(NonNull::new(value.cast()).map(|start| Bytes { start, size }))
    }

    /// A text about the store, by name; `None` if there is no such text.
    pub(super) fn property(&self, name: &CStr) -> Option<String> {
        // SAFETY: the store is alive, the name ends with a zero.
        let text = unsafe { leveldb_property_value(self.db.as_ptr(), name.as_ptr()) };
        (!text.is_null()).then(|| taken(text))
    }

    /// Writes what is in memory to a table, and compacts the tables of level 0 that have keys from
    /// `start` to `limit`.
    pub(super) fn compact(&self, start: &[u8], limit: &[u8]) {
        // SAFETY: the store is alive, both keys have the sizes that are said.
        unsafe {
            leveldb_compact_range(
                self.db.as_ptr(),
                start.as_ptr().cast(),
                start.len(),
                limit.as_ptr().cast(),
                limit.len(),
            );
        };
    }

    /// The entries from the first key not below `from`.
    pub(super) fn entries<'a>(&'a self, how: &Read, from: &[u8]) -> Entries<'a> {
        // SAFETY: store and options are alive; an iterator keeps a copy of the options.
        let raw = unsafe { leveldb_create_iterator(self.db.as_ptr(), how.0.as_ptr()) };
        let iterator = created(raw);
        // SAFETY: the iterator is alive, the key has the size that is said.
        unsafe { leveldb_iter_seek(iterator.as_ptr(), from.as_ptr().cast(), from.len()) };
        Entries {
            iterator,
            db: std::marker::PhantomData,
        }
    }
}

impl Db {
    /// The entries from the last key not above `from`, to be walked backwards.
    pub(super) fn entries_back<'a>(&'a self, how: &Read, from: &[u8]) -> Entries<'a> {
        let mut entries = self.entries(how, from);
        match entries.entry() {
            Some((key, _)) if key > from => entries.retreat(),
            Some(_) => {}
            // SAFETY: the iterator is alive.
            None => unsafe { leveldb_iter_seek_to_last(entries.iterator.as_ptr()) },
        }
        entries
    }
}

impl Drop for Db {
    fn drop(&mut self) {
        // SAFETY: created by `leveldb_open` and closed only here; nothing borrows it any more.
        unsafe { leveldb_close(self.db.as_ptr()) };
        destroy(self.options, self.filter, self.cache);
    }
}

/// Lets go of what a store was opened with, after the store.
fn destroy(options: NonNull<RawOptions>, filter: NonNull<RawFilter>, cache: NonNull<RawCache>) {
    // SAFETY: created by `Db::open` and destroyed once, when no store uses it.
    unsafe { leveldb_options_destroy(options.as_ptr()) };
    // SAFETY: the same.
    unsafe { leveldb_filterpolicy_destroy(filter.as_ptr()) };
    // SAFETY: the same.
    unsafe { leveldb_cache_destroy(cache.as_ptr()) };
}

/// A value, in memory of LevelDB's.
pub(super) struct Bytes {
    start: NonNull<u8>,
    size: usize,
}

impl std::ops::Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: LevelDB gave `size` bytes from `start` on, and they are ours until `drop`.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.size) }
    }
}

impl Drop for Bytes {
    fn drop(&mut self) {
        // SAFETY: LevelDB allocated it for us, and it is freed only here.
        unsafe { leveldb_free(self.start.as_ptr().cast()) };
    }
}

/// A walk over entries in the order of their keys.
pub(super) struct Entries<'a> {
    iterator: NonNull<RawIterator>,
    db: std::marker::PhantomData<&'a Db>,
}

impl Entries<'_> {
    /// Key and value of the entry that the walk is at; `None` at its end.
    pub(super) fn entry(&self) -> Option<(&[u8], &[u8])> {
        let raw = self.iterator.as_ptr();
        // SAFETY: the iterator is alive.
        if unsafe { leveldb_iter_valid(raw) } == 0 {
            return None;
        }
        let mut key_size = 0;
        // SAFETY: the iterator is at an entry.
        let key = unsafe { leveldb_iter_key(raw, &mut key_size) };
        let mut value_size = 0;
        // SAFETY: the iterator is at an entry.
        let value = unsafe { leveldb_iter_value(raw, &mut value_size) };
        // SAFETY: the key is there until the iterator moves, which needs `&mut self`.
        let key = unsafe { std::slice::from_raw_parts(key.cast(), key_size) };
        // SAFETY: the same for the value.
        let value = unsafe { std::slice::from_raw_parts(value.cast(), value_size) };
        Some((key, value))
    }

    /// Moves to the next entry, if it is at one.
    pub(super) fn advance(&mut self) {
        let raw = self.iterator.as_ptr();
        // SAFETY: the iterator is alive.
        if unsafe { leveldb_iter_valid(raw) } != 0 {
            // SAFETY: the iterator is at an entry.
            unsafe { leveldb_iter_next(raw) };
        }
    }

    /// Moves to the entry before, if it is at one.
    pub(super) fn retreat(&mut self) {
        let raw = self.iterator.as_ptr();
        // SAFETY: the iterator is alive.
        if unsafe { leveldb_iter_valid(raw) } != 0 {
            // SAFETY: the iterator is at an entry.
            unsafe { leveldb_iter_prev(raw) };
        }
    }

    /// Whether the walk met an error.
    pub(super) fn status(&self) -> Result<(), String> {
        // SAFETY: the iterator is alive.
        checked(|error| unsafe { leveldb_iter_get_error(self.iterator.as_ptr(), error) })
    }
}

impl Drop for Entries<'_> {
    fn drop(&mut self) {
        // SAFETY: created by `Db::entries`, destroyed only here, before the store is closed.
        unsafe { leveldb_iter_destroy(self.iterator.as_ptr()) };
    }
}

/// How to read.
pub(super) struct Read(NonNull<RawReadOptions>);

impl Read {
    /// With every block's checksum checked, as far as `verify_checksums`.
    pub(super) fn new(verify_checksums: bool) -> Read {
        // SAFETY: takes nothing.
        let options = created(unsafe { leveldb_readoptions_create() });
        // SAFETY: the options are alive.
        unsafe {
            leveldb_readoptions_set_verify_checksums(options.as_ptr(), u8::from(verify_checksums));
        };
        Read(options)
    }
}

impl Drop for Read {
    fn drop(&mut self) {
        // SAFETY: created by `new` and destroyed only here.
        unsafe { leveldb_readoptions_destroy(self.0.as_ptr()) };
    }
}

/// How to write.
pub(super) struct Write(NonNull<RawWriteOptions>);

impl Write {
    pub(super) fn new(is_synced: bool) -> Write {
        // SAFETY: takes nothing.
        let options = created(unsafe { leveldb_writeoptions_create() });
        // SAFETY: the options are alive.
        unsafe { leveldb_writeoptions_set_sync(options.as_ptr(), u8::from(is_synced)) };
        Write(options)
    }
}

impl Drop for Write {
    fn drop(&mut self) {
        // SAFETY: created by `new` and destroyed only here.
        unsafe { leveldb_writeoptions_destroy(self.0.as_ptr()) };
    }
}

/// Puts and deletes of one write.
pub(super) struct RecordBatch(NonNull<RawBatch>);

impl RecordBatch {
    pub(super) fn new() -> RecordBatch {
        // SAFETY: takes nothing.
        RecordBatch(created(unsafe { leveldb_writebatch_create() }))
    }

    pub(super) fn clear(&mut self) {
        // SAFETY: the batch is alive.
        unsafe { leveldb_writebatch_clear(self.0.as_ptr()) };
    }

    pub(super) fn put(&mut self, key: &[u8], value: &[u8]) {
        // SAFETY: the batch is alive, key and value have the sizes that are said.
        unsafe {
            leveldb_writebatch_put(
                self.0.as_ptr(),
                key.as_ptr().cast(),
                key.len(),
                value.as_ptr().cast(),
                value.len(),
            );
        };
    }

    pub(super) fn delete(&mut self, key: &[u8]) {
        // SAFETY: the batch is alive, the key has the size that is said.
        unsafe { leveldb_writebatch_delete(self.0.as_ptr(), key.as_ptr().cast(), key.len()) };
    }
}

impl Drop for RecordBatch {
    fn drop(&mut self) {
        // SAFETY: created by `new` and destroyed only here.
        unsafe { leveldb_writebatch_destroy(self.0.as_ptr()) };
    }
}

/// Major and minor version of the library.
pub(super) fn version() -> (i32, i32) {
    // SAFETY: takes nothing.
    let major = unsafe { leveldb_major_version() };
    // SAFETY: takes nothing.
    let minor = unsafe { leveldb_minor_version() };
    (major, minor)
}

/// What a constructor of LevelDB's returned; none of them returns null.
fn created<T>(pointer: *mut T) -> NonNull<T> {
    NonNull::new(pointer).expect("LevelDB's constructors do not return null")
}

/// Calls `call` with a place for an error, and gives the error that it left there.
fn checked<T>(call: impl FnOnce(*mut *mut c_char) -> T) -> Result<T, String> {
    let mut error = null_mut();
    let result = call(&mut error);
    if error.is_null() {
        Ok(result)
    } else {
        Err(taken(error))
    }
}

/// A text that LevelDB allocated, which is not null.
fn taken(text: *mut c_char) -> String {
    // SAFETY: LevelDB's texts end with a zero.
    let copy = unsafe { CStr::from_ptr(text) }
        .to_string_lossy()
        .into_owned();
    // SAFETY: LevelDB allocated it for us, and nobody uses it after this.
    unsafe { leveldb_free(text.cast()) };
    copy
}
