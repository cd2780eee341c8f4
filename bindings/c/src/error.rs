//! Codes and error objects, and the way in and out of every function.

use std::ffi::{CString, c_char};
use std::ptr;

use gabion_bindings::{Code, Failure, Result, guard};

use crate::handle::{free, get, make, opaque};

/// What a function returns: GABION_CODE_OK, or the kind of what went wrong. Numbers stay as they
/// are; newer versions add others.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GabionCode {
    /// All went well.
    Ok = 0,
    /// The medium refused an operation.
    Media = 1,
    /// The store is open elsewhere, in this process or another one.
    Locked = 2,
    /// The medium is full.
    NoSpace = 3,
    /// The process or the system has too many files open.
    TooManyFiles = 4,
    /// Bytes on the medium do not pass their checks.
    Corruption = 5,
    /// The directory holds no store.
    NotAStore = 6,
    /// A newer version of Gabion wrote the store.
    NewerFormat = 7,
    /// The store needs a part that this library was built without.
    MissingFeature = 8,
    /// The store is read-only after an earlier failure, or was opened read-only.
    ReadOnly = 9,
    /// A key, a value, a batch, a name or a transaction is too long.
    Limit = 10,
    /// Pairs that must ascend do not.
    OutOfOrder = 11,
    /// The option is unknown, or its value is invalid.
    InvalidOption = 12,
    /// The store has no keyspace of that name.
    NoSuchKeyspace = 13,
    /// The name is reserved for tools.
    ReservedName = 14,
    /// The keyspace was dropped.
    KeyspaceDropped = 15,
    /// Another write has changed what the transaction read: run it again.
    Conflict = 16,
    /// The transaction was open for too long: run it again.
    TransactionTooOld = 17,
    /// The transaction has no such savepoint.
    NoSuchSavepoint = 18,
    /// The keyspace belongs to another store.
    ForeignKeyspace = 19,
    /// The engine cannot do this.
    Unsupported = 20,
    /// The process is a fork of the one that opened the store.
    Forked = 21,
    /// The store is closed.
    Closed = 22,
    /// The transaction is committed or rolled back.
    Ended = 23,
    /// An argument is invalid: NULL, a handle of another kind, or text that is not UTF-8.
    InvalidArgument = 24,
    /// Another thread is using an object that one thread at a time may use.
    Busy = 25,
    /// A thread of the store failed, or Gabion panicked, which is a bug.
    Internal = 26,
    /// The merge operator of a keyspace failed for a key.
    MergeFailed = 27,
    /// The keyspace has another merge operator than the program gave, or the program gave none.
    OtherMergeOperator = 28,
    /// The directory holds no repository of backups.
    NotARepository = 29,
    /// The repository has no backup of that number.
    NoSuchBackup = 30,
    /// A part of a backup is missing or damaged.
    BackupDamaged = 31,
    /// Who listened to the progress of an operation has ended it.
    Cancelled = 32,
    /// The log has the changes behind a position no more.
    ChangesGone = 33,
    /// Changes were made that the log does not tell.
    ChangesUnlogged = 34,
    /// The store has no consumer of that name.
    NoSuchConsumer = 35,
}

impl From<Code> for GabionCode {
    fn from(code: Code) -> GabionCode {
        match code {
            Code::Media => GabionCode::Media,
            Code::Locked => GabionCode::Locked,
            Code::NoSpace => GabionCode::NoSpace,
            Code::TooManyFiles => GabionCode::TooManyFiles,
            Code::Corruption => GabionCode::Corruption,
            Code::NotAStore => GabionCode::NotAStore,
            Code::NewerFormat => GabionCode::NewerFormat,
            Code::MissingFeature => GabionCode::MissingFeature,
            Code::ReadOnly => GabionCode::ReadOnly,
            Code::Limit => GabionCode::Limit,
            Code::OutOfOrder => GabionCode::OutOfOrder,
            Code::InvalidOption => GabionCode::InvalidOption,
            Code::NoSuchKeyspace => GabionCode::NoSuchKeyspace,
            Code::ReservedName => GabionCode::ReservedName,
            Code::KeyspaceDropped => GabionCode::KeyspaceDropped,
            Code::Conflict => GabionCode::Conflict,
            Code::TransactionTooOld => GabionCode::TransactionTooOld,
            Code::NoSuchSavepoint => GabionCode::NoSuchSavepoint,
            Code::ForeignKeyspace => GabionCode::ForeignKeyspace,
            Code::Unsupported => GabionCode::Unsupported,
            Code::Forked => GabionCode::Forked,
            Code::Closed => GabionCode::Closed,
            Code::Ended => GabionCode::Ended,
            Code::InvalidArgument => GabionCode::InvalidArgument,
            Code::Busy => GabionCode::Busy,
            Code::MergeFailed => GabionCode::MergeFailed,
            Code::OtherMergeOperator => GabionCode::OtherMergeOperator,
            Code::NotARepository => GabionCode::NotARepository,
            Code::NoSuchBackup => GabionCode::NoSuchBackup,
            Code::BackupDamaged => GabionCode::BackupDamaged,
            Code::Cancelled => GabionCode::Cancelled,
            Code::ChangesGone => GabionCode::ChangesGone,
            Code::ChangesUnlogged => GabionCode::ChangesUnlogged,
            Code::NoSuchConsumer => GabionCode::NoSuchConsumer,
            _ => GabionCode::Internal,
        }
    }
}

/// What is behind an error object.
pub struct Told {
    code: GabionCode,
    name: CString,
    message: CString,
    position: CString,
}

/// What went wrong: a code, its name and a sentence. Any number of threads may read it.
pub struct GabionError {
    _private: [u8; 0],
}

opaque!(GabionError: Told, b"gbnerror", "error");

/// Text without zeros, as C takes it.
pub(crate) fn c_text(text: &str) -> CString {
    CString::new(text.replace('\0', "\\0")).unwrap_or_default()
}

/// Runs the body of a function: a panic is caught, a failure becomes a code and, where there is a
/// place for it, an error object.
pub(crate) fn call(error: *mut *mut GabionError, body: impl FnOnce() -> Result<()>) -> GabionCode {
    let result = guard(body);
    let told = result.as_ref().err().map(|failure| Told {
        code: failure.code().into(),
        name: c_text(failure.code().name()),
        message: c_text(&failure.to_string()),
        position: c_text(
            &failure
                .position()
                .map_or_else(String::new, |own| own.to_string()),
        ),
    });
    let code = told.as_ref().map_or(GabionCode::Ok, |told| told.code);
    if !error.is_null() && error.is_aligned() {
        let handle = told.map_or(ptr::null_mut(), make);
        // SAFETY: by contract a place for a pointer.
        unsafe { error.write(handle) };
    }
    code
}

/// As [`call`], of what cannot fail but for what it is given: then `otherwise`.
pub(crate) fn call_or<T>(otherwise: T, body: impl FnOnce() -> Result<T>) -> T {
    guard(body).unwrap_or(otherwise)
}

/// A failure that names an argument.
pub(crate) fn foreign(keyspace: &gabion::Keyspace) -> Failure {
    Failure::Store(gabion::Error::ForeignKeyspace {
        keyspace: keyspace.name().to_owned(),
    })
}

/// The code of an error; GABION_CODE_OK for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_error_code(error: *const GabionError) -> GabionCode {
    // SAFETY: null or a handle, by contract.
    call_or(GabionCode::Ok, || Ok(unsafe { get(error) }?.code))
}

/// The name of the error's code, such as "CONFLICT". Valid until the error is freed. An empty text
/// for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_error_name(error: *const GabionError) -> *const c_char {
    // SAFETY: null or a handle, by contract.
    call_or(c"".as_ptr(), || Ok(unsafe { get(error) }?.name.as_ptr()))
}

/// A sentence that says what went wrong and how to mend it, in UTF-8. Valid until the error is
/// freed. An empty text for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_error_message(error: *const GabionError) -> *const c_char {
    // SAFETY: null or a handle, by contract.
    call_or(c"".as_ptr(), || Ok(unsafe { get(error) }?.message.as_ptr()))
}

/// Where changes are there again, after GABION_CODE_CHANGES_GONE or GABION_CODE_CHANGES_UNLOGGED: a
/// position for gabion_changes_new. Valid until the error is freed. An empty text for other errors.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_error_position(error: *const GabionError) -> *const c_char {
    call_or(c"".as_ptr(), || {
        // SAFETY: null or a handle, by contract.
        Ok(unsafe { get(error) }?.position.as_ptr())
    })
}

/// Frees an error and clears the variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_error_free(error: *mut *mut GabionError) {
    // SAFETY: a variable with null or a handle, by contract.
    unsafe { free(error) }
}
