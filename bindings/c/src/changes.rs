//! Changes of a store, and the positions between them.

use std::ffi::{CString, c_char};
use std::ptr;
use std::sync::Mutex;
use std::time::Duration;

use gabion::Changes;
use gabion_bindings::{ActionKind, Failure, FlatChange, FlatOperation, Result, options, position};

use crate::error::{GabionCode, GabionError, c_text, call, call_or};
use crate::handle::{free, get, make, opaque};
use crate::options::{GabionOptions, pairs};
use crate::raw::{Out, give_text, optional_text};
use crate::read::GabionSnapshot;
use crate::store::GabionStore;

/// What an operation of a change does.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GabionAction {
    /// There is no such operation.
    None = 0,
    /// The key has the value.
    Put = 1,
    /// The key has no value.
    Delete = 2,
    /// The keys from the key on and below the end have no values.
    DeleteRange = 3,
    /// Operands were merged into the key, whose value the store did not look up.
    Merge = 4,
    /// The keyspace was made.
    KeyspaceCreated = 5,
    /// The keyspace was dropped with all that it held.
    KeyspaceDropped = 6,
    /// Sorted pairs were ingested, from the key to the end, that one included. The log has not got
    /// them: read them from the keyspace.
    Ingested = 7,
}

/// What reads the changes of a store. One thread at a time may use it.
pub struct GabionChanges {
    _private: [u8; 0],
}

/// What was committed together: a write, a batch or a transaction, or what became of a keyspace.
/// Any number of threads may read it.
pub struct GabionChange {
    _private: [u8; 0],
}

/// A reader, for one thread at a time.
pub struct Reading(Mutex<Changes>);

/// A change, and its position as C takes it.
pub struct Read {
    change: FlatChange,
    position: CString,
}

opaque!(GabionChanges: Reading, b"gbnchngs", "reader of changes");
opaque!(GabionChange: Read, b"gbnchnge", "change");

impl Reading {
    pub(crate) fn new(changes: Changes) -> Reading {
        Reading(Mutex::new(changes))
    }
}

/// Where the store is now, behind all changes that readers see, as text, which gabion_free frees. A
/// position names a place of this store's log for good, also in other processes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_position(
    store: *const GabionStore,
    position: *mut *mut c_char,
    error: *mut *mut GabionError,
) -> GabionCode {
    call(error, || {
        // SAFETY: null or a handle, by contract.
        let now = || Ok(unsafe { get(store) }?.db.position()?.to_string());
        // SAFETY: a place for a pointer, by contract.
        unsafe { give_text(position, "position", now) }
    })
}

/// The position behind which all changes are there, as gabion_position.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_oldest_position(
    store: *const GabionStore,
    position: *mut *mut c_char,
    error: *mut *mut GabionError,
) -> GabionCode {
    call(error, || {
        // SAFETY: null or a handle, by contract.
        let oldest = || Ok(unsafe { get(store) }?.db.oldest_position()?.to_string());
        // SAFETY: a place for a pointer, by contract.
        unsafe { give_text(position, "position", oldest) }
    })
}

/// A position, but not in front of what a snapshot has, which was taken after it: who has read the
/// snapshot reads on there, and finds each change once. gabion_free frees the text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_position_after(
    position: *const c_char,
    snapshot: *const GabionSnapshot,
    after: *mut *mut c_char,
    error: *mut *mut GabionError,
) -> GabionCode {
    call(error, || {
        let find = || {
            // SAFETY: null or text, by contract.
            let text = unsafe { optional_text(position, "position") }?;
            // SAFETY: null or a handle, by contract.
            let taken = unsafe { get(snapshot) }?;
            Ok(self::position(text)?.after(&taken.snapshot).to_string())
        };
        // SAFETY: a place for a pointer, by contract.
        unsafe { give_text(after, "position", find) }
    })
}

/// Reads the changes behind a position, each once, in the order in which they took effect; NULL for
/// the beginning of the store. With the option durable_only only those that survive a loss of
/// power. The log has changes as long as it is needed for other things; who must find all of them
/// is a consumer. Writers do nothing for who reads.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_changes_new(
    store: *const GabionStore,
    since: *const c_char,
    options: *const GabionOptions,
    changes: *mut *mut GabionChanges,
    error: *mut *mut GabionError,
) -> GabionCode {
    call(error, || {
        // SAFETY: a place for a pointer, by contract.
        let place = unsafe { Out::pointer(changes, "changes") }?;
        // SAFETY: null or a handle, by contract.
        let store = unsafe { get(store) }?;
        // SAFETY: null or text, by contract.
        let since = position(unsafe { optional_text(since, "position") }?)?;
        // SAFETY: null or a handle, by contract.
        let options = options::changes(&unsafe { pairs(options) }?)?;
        place.set(make(Reading::new(store.db.changes_with(since, &options)?)));
        Ok(())
    })
}

/// Runs a call of a reader, alone.
///
/// # Safety
/// As [`get`].
unsafe fn with_changes<T>(
    changes: *const GabionChanges,
    body: impl FnOnce(&mut Changes) -> Result<T>,
) -> Result<T> {
    // SAFETY: null or a handle, by contract.
    let reading = unsafe { get(changes) }?;
    body(&mut *reading.0.try_lock().map_err(|_| Failure::Busy)?)
}

/// The next change, which is waited for up to timeout_ms milliseconds; *change is NULL if there is
/// none by then. GABION_CODE_CHANGES_GONE and GABION_CODE_CHANGES_UNLOGGED come with a position at
/// which another reader may go on, see gabion_error_position.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_changes_next(
    changes: *mut GabionChanges,
    timeout_ms: u64,
    change: *mut *mut GabionChange,
    error: *mut *mut GabionError,
) -> GabionCode {
    let next = |changes: &mut Changes| {
        // SAFETY: a place for a pointer, by contract.
        let place = unsafe { Out::pointer(change, "change") }?;
        if let Some(change) = changes.next_timeout(Duration::from_millis(timeout_ms))? {
            let change = FlatChange::of(change)?;
            let position = c_text(&change.position);
            place.set(make(Read { change, position }));
        }
        Ok(())
    };
    // SAFETY: as for this function.
    call(error, || unsafe { with_changes(changes, next) })
}

/// The position behind the last change that was read, as gabion_position.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_changes_position(
    changes: *const GabionChanges,
    position: *mut *mut c_char,
    error: *mut *mut GabionError,
) -> GabionCode {
    call(error, || {
        let behind = |changes: &mut Changes| Ok(Changes::position(changes).to_string());
        // SAFETY: as for this function.
        let behind = || unsafe { with_changes(changes, behind) };
        // SAFETY: a place for a pointer, by contract.
        unsafe { give_text(position, "position", behind) }
    })
}

/// Frees a reader and clears the variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_changes_free(changes: *mut *mut GabionChanges) {
    // SAFETY: a variable with null or a handle, by contract.
    unsafe { free(changes) }
}

/// The position behind a change. Valid until the change is freed. NULL for what is no change.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_change_position(change: *const GabionChange) -> *const c_char {
    call_or(ptr::null(), || {
        // SAFETY: null or a handle, by contract.
        Ok(unsafe { get(change) }?.position.as_ptr())
    })
}

/// How many operations a change has; 0 for what is no change.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_change_count(change: *const GabionChange) -> usize {
    // SAFETY: null or a handle, by contract.
    call_or(0, || Ok(unsafe { get(change) }?.change.operations.len()))
}

/// Looks at an operation of a change; `otherwise` where there is none, or nothing of that kind.
///
/// # Safety
/// As [`get`].
unsafe fn look<T: Copy>(
    change: *const GabionChange,
    index: usize,
    otherwise: T,
    read: impl FnOnce(&FlatOperation) -> Option<T>,
) -> T {
    call_or(otherwise, || {
        // SAFETY: null or a handle, by contract.
        let operation = unsafe { get(change) }?.change.operations.get(index);
        Ok(operation.and_then(read).unwrap_or(otherwise))
    })
}

/// Lends bytes of an operation; NULL where there are none.
///
/// # Safety
/// As [`look`] and [`Out::new`].
unsafe fn lend(
    change: *const GabionChange,
    index: usize,
    len: *mut usize,
    find: impl FnOnce(&FlatOperation) -> Option<&[u8]>,
) -> *const u8 {
    call_or(ptr::null(), || {
        // SAFETY: a place for a number, by contract.
        let len = unsafe { Out::new(len, 0, "length") }?;
        let found = |operation: &FlatOperation| {
            find(operation).map(|bytes| {
                len.set(bytes.len());
                bytes.as_ptr()
            })
        };
        // SAFETY: as for this function.
        Ok(unsafe { look(change, index, ptr::null(), found) })
    })
}

/// What an operation of a change does, by its place, counted from 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_change_action(
    change: *const GabionChange,
    index: usize,
) -> GabionAction {
    let action = |operation: &FlatOperation| {
        Some(match operation.action {
            ActionKind::Put => GabionAction::Put,
            ActionKind::Delete => GabionAction::Delete,
            ActionKind::DeleteRange => GabionAction::DeleteRange,
            ActionKind::Merge => GabionAction::Merge,
            ActionKind::KeyspaceCreated => GabionAction::KeyspaceCreated,
            ActionKind::KeyspaceDropped => GabionAction::KeyspaceDropped,
            ActionKind::Ingested => GabionAction::Ingested,
        })
    };
    // SAFETY: as for this function.
    unsafe { look(change, index, GabionAction::None, action) }
}

/// The number of the keyspace of an operation, as gabion_keyspace_id has it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_change_keyspace_id(
    change: *const GabionChange,
    index: usize,
) -> u32 {
    // SAFETY: as for this function.
    unsafe { look(change, index, 0, |own| Some(own.keyspace_id)) }
}

/// The name of that keyspace, which does not end with a zero; *len becomes its length. NULL if it
/// was dropped before the reader came to know it. This and what follows is valid until the change
/// is freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_change_keyspace(
    change: *const GabionChange,
    index: usize,
    len: *mut usize,
) -> *const c_char {
    // SAFETY: as for this function.
    let name = unsafe {
        lend(change, index, len, |own| {
            own.keyspace.as_deref().map(str::as_bytes)
        })
    };
    name.cast()
}

/// The key of an operation, the first key of a range, or the smallest one that was ingested, and in
/// *len its length; NULL for what becomes of a keyspace.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_change_key(
    change: *const GabionChange,
    index: usize,
    len: *mut usize,
) -> *const u8 {
    // SAFETY: as for this function.
    unsafe { lend(change, index, len, |own| own.key.as_deref()) }
}

/// The first key above a range, NULL for the end of all keys; the largest key that was ingested.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_change_end(
    change: *const GabionChange,
    index: usize,
    len: *mut usize,
) -> *const u8 {
    // SAFETY: as for this function.
    unsafe { lend(change, index, len, |own| own.end.as_deref()) }
}

/// The value of a put; of a merge the value that operands are merged into, NULL if there was none,
/// or if gabion_change_base says where it is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_change_value(
    change: *const GabionChange,
    index: usize,
    len: *mut usize,
) -> *const u8 {
    // SAFETY: as for this function.
    unsafe { lend(change, index, len, |own| own.value.as_deref()) }
}

/// When that value expires, in milliseconds since 1970; -1 if it does not.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_change_expires_at(
    change: *const GabionChange,
    index: usize,
) -> i64 {
    let moment = |own: &FlatOperation| i64::try_from(own.expires_ms?).ok();
    // SAFETY: as for this function.
    unsafe { look(change, index, -1, moment) }
}

/// Of a merge whose operands are merged into what the key had before a write, the number of that
/// write, which is the last of the three of a position; 0 if the value is told.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_change_base(change: *const GabionChange, index: usize) -> u64 {
    // SAFETY: as for this function.
    unsafe { look(change, index, 0, |own| own.base) }
}

/// How many pairs were ingested; 0 for other operations.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_change_pairs(change: *const GabionChange, index: usize) -> u64 {
    // SAFETY: as for this function.
    unsafe { look(change, index, 0, |own| Some(own.pairs)) }
}

/// How many operands a merge has; 0 for other operations.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_change_operand_count(
    change: *const GabionChange,
    index: usize,
) -> usize {
    // SAFETY: as for this function.
    unsafe { look(change, index, 0, |own| Some(own.operands.len())) }
}

/// An operand of a merge by its place, the oldest one first, and in *len its length; NULL where
/// there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_change_operand(
    change: *const GabionChange,
    index: usize,
    operand: usize,
    len: *mut usize,
) -> *const u8 {
    // SAFETY: as for this function.
    unsafe {
        lend(change, index, len, |own| {
            own.operands.get(operand).map(|own| &**own)
        })
    }
}

/// Frees a change and clears the variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_change_free(change: *mut *mut GabionChange) {
    // SAFETY: a variable with null or a handle, by contract.
    unsafe { free(change) }
}
