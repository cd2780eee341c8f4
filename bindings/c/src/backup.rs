//! Backups, and repositories of them. A repository is named by its directory in each call.

use std::ffi::{c_char, c_void};
use std::ops::ControlFlow;

use gabion::{BackupOptions, BackupProgress, BackupRepository};
use gabion_bindings::{Result, json, options};

use crate::error::{GabionCode, GabionError, call};
use crate::handle::get;
use crate::options::{GabionOptions, pairs};
use crate::raw::{give_text, text};
use crate::store::GabionStore;

/// Is told how many bytes of how many are done, again and again, also while nothing moves. Returns
/// whether to go on; if not, the operation ends with GABION_CODE_CANCELLED. It is called by the
/// thread that makes the call, with the context given there, and must return: neither by longjmp
/// nor by an exception.
pub type GabionProgress =
    Option<unsafe extern "C" fn(context: *mut c_void, bytes: u64, bytes_total: u64) -> bool>;

/// A context of the caller's.
struct Context(*mut c_void);

// SAFETY: it stays with the thread that made the call, which the progress is told by.
unsafe impl Send for Context {}

impl Context {
    fn get(&self) -> *mut c_void {
        self.0
    }
}

/// The options of a backup, a restore or a verification.
///
/// # Safety
/// As [`pairs`]; the progress is null, or a function that takes the context.
unsafe fn transfer(
    options: *const GabionOptions,
    progress: GabionProgress,
    context: *mut c_void,
) -> Result<BackupOptions<'static>> {
    // SAFETY: as for this function.
    let options = options::backup(&unsafe { pairs(options) }?)?;
    let context = Context(context);
    Ok(match progress {
        None => options,
        Some(progress) => options.progress(move |done: BackupProgress| {
            // SAFETY: a function that takes the context, by contract.
            match unsafe { progress(context.get(), done.bytes, done.bytes_total) } {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        }),
    })
}

/// The repository in a directory, which must exist.
///
/// # Safety
/// As [`text`].
unsafe fn opened(repository: *const c_char) -> Result<BackupRepository> {
    // SAFETY: as for this function.
    let path = unsafe { text(repository, "path of the repository") }?;
    Ok(BackupRepository::open(path)?)
}

/// Adds the store as it is now to the repository in a directory, which is made if it is missing or
/// empty. What earlier backups have is not copied again. Reads and writes go on meanwhile. Tells as
/// a JSON object what was made, with its number "id"; gabion_free frees it. The option is
/// bytes_per_second_max, the progress may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_backup(
    store: *mut GabionStore,
    repository: *const c_char,
    options: *const GabionOptions,
    progress: GabionProgress,
    context: *mut c_void,
    json: *mut *mut c_char,
    error: *mut *mut GabionError,
) -> GabionCode {
    call(error, || {
        let back_up = || {
            // SAFETY: null or a handle, by contract.
            let store = unsafe { get(store) }?;
            // SAFETY: null or text, by contract.
            let path = unsafe { text(repository, "path of the repository") }?;
            // SAFETY: as for this function.
            let options = unsafe { transfer(options, progress, context) }?;
            let repository = BackupRepository::create_or_open(path)?;
            json::report(&store.db.backup(&repository, options)?)
        };
        // SAFETY: a place for a pointer, by contract.
        unsafe { give_text(json, "JSON text", back_up) }
    })
}

/// The backups of a repository, oldest first, as a JSON object with the lists "backups" and
/// "problems". gabion_free frees it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_backup_list(
    repository: *const c_char,
    json: *mut *mut c_char,
    error: *mut *mut GabionError,
) -> GabionCode {
    call(error, || {
        // SAFETY: as for this function.
        let list = || json::report(&unsafe { opened(repository) }?.list()?);
        // SAFETY: a place for a pointer, by contract.
        unsafe { give_text(json, "JSON text", list) }
    })
}

/// Reads all that the backup of a number needs, or all backups for 0, and tells as a JSON object
/// what is missing or damaged, in its list "problems". gabion_free frees it. The options are as for
/// gabion_backup.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_backup_verify(
    repository: *const c_char,
    id: u64,
    options: *const GabionOptions,
    progress: GabionProgress,
    context: *mut c_void,
    json: *mut *mut c_char,
    error: *mut *mut GabionError,
) -> GabionCode {
    call(error, || {
        let verify = || {
            // SAFETY: as for this function.
            let options = unsafe { transfer(options, progress, context) }?;
            // SAFETY: as above.
            let repository = unsafe { opened(repository) }?;
            json::report(&repository.verify((id > 0).then_some(id), options)?)
        };
        // SAFETY: a place for a pointer, by contract.
        unsafe { give_text(json, "JSON text", verify) }
    })
}

/// Makes a store of the backup of a number in the directory path, which must not exist or be empty.
/// Every byte is checked. The options are as for gabion_backup.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_backup_restore(
    repository: *const c_char,
    id: u64,
    path: *const c_char,
    options: *const GabionOptions,
    progress: GabionProgress,
    context: *mut c_void,
    error: *mut *mut GabionError,
) -> GabionCode {
    call(error, || {
        // SAFETY: null or text, by contract.
        let path = unsafe { text(path, "path of the new store") }?;
        // SAFETY: as for this function.
        let options = unsafe { transfer(options, progress, context) }?;
        // SAFETY: as above.
        let repository = unsafe { opened(repository) }?;
        Ok(repository.restore(id, path, options)?)
    })
}

/// Removes backups, and what only they need; of each store the newest one stays always. The options
/// say which others stay: so many of the newest by newest, those that are not older by
/// younger_than, such as "30d". Tells as a JSON object what is gone; gabion_free frees it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_backup_prune(
    repository: *const c_char,
    options: *const GabionOptions,
    json: *mut *mut c_char,
    error: *mut *mut GabionError,
) -> GabionCode {
    call(error, || {
        let prune = || {
            // SAFETY: null or a handle, by contract.
            let keep = options::keep(&unsafe { pairs(options) }?)?;
            // SAFETY: as for this function.
            let repository = unsafe { opened(repository) }?;
            json::report(&repository.prune(keep)?)
        };
        // SAFETY: a place for a pointer, by contract.
        unsafe { give_text(json, "JSON text", prune) }
    })
}
