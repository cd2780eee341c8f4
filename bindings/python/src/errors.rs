//! Exceptions: classes of the package, chosen by the code of a failure.

use gabion_bindings::{Code, Failure, guard};
use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyModule;

/// The class for a code.
fn class(code: Code) -> &'static str {
    match code {
        Code::Locked => "LockedError",
        Code::NoSpace => "NoSpaceError",
        Code::TooManyFiles => "TooManyFilesError",
        Code::Corruption => "CorruptionError",
        Code::NotAStore => "NotAStoreError",
        Code::NewerFormat => "NewerFormatError",
        Code::MissingFeature => "MissingFeatureError",
        Code::ReadOnly => "ReadOnlyError",
        Code::Limit => "LimitError",
        Code::InvalidOption => "OptionError",
        Code::NoSuchKeyspace => "NoSuchKeyspaceError",
        Code::ReservedName => "ReservedNameError",
        Code::KeyspaceDropped => "KeyspaceDroppedError",
        Code::Conflict => "ConflictError",
        Code::TransactionTooOld => "TransactionTooOldError",
        Code::NoSuchSavepoint => "NoSuchSavepointError",
        Code::ForeignKeyspace => "ForeignKeyspaceError",
        Code::Unsupported => "UnsupportedError",
        Code::Forked => "ForkedError",
        Code::Closed => "ClosedError",
        Code::Ended => "EndedError",
        Code::InvalidArgument | Code::OutOfOrder => "ArgumentError",
        Code::Busy => "BusyError",
        Code::Internal => "InternalError",
        Code::MergeFailed => "MergeFailedError",
        Code::OtherMergeOperator => "OtherMergeOperatorError",
        _ => "MediaError",
    }
}

static CLASSES: PyOnceLock<Py<PyModule>> = PyOnceLock::new();

/// The exception for a failure, with its sentence.
pub(crate) fn exception(py: Python<'_>, failure: &Failure) -> PyErr {
    let import = || Ok::<_, PyErr>(py.import("gabion._errors")?.unbind());
    let made = CLASSES
        .get_or_try_init(py, import)
        .and_then(|classes| classes.bind(py).getattr(class(failure.code())))
        .and_then(|class| class.call1((failure.to_string(),)));
    match made {
        Ok(value) => PyErr::from_value(value),
        Err(_) => PyRuntimeError::new_err(failure.to_string()),
    }
}

/// Runs what may wait, without the interpreter's lock.
pub(crate) fn run<T: Send>(
    py: Python<'_>,
    body: impl FnOnce() -> Result<T, Failure> + Send,
) -> PyResult<T> {
    let result = py.detach(|| guard(body));
    result.map_err(|failure| exception(py, &failure))
}

/// As [`run`], of what only the facade can refuse.
pub(crate) fn call<T: Send>(
    py: Python<'_>,
    body: impl FnOnce() -> gabion::Result<T> + Send,
) -> PyResult<T> {
    run(py, || Ok(body()?))
}

/// Why something cannot be pickled.
pub(crate) fn no_pickle(what: &str) -> PyErr {
    PyTypeError::new_err(format!(
        "a {what} of Gabion cannot be pickled or copied, as it belongs to an open store of this \
         process; send the path, and open the store where it is needed, in one process at a time"
    ))
}
