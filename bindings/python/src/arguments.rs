//! Arguments: bytes, options, expiries and durabilities.

use std::ops::Deref;
use std::time::{Duration, UNIX_EPOCH};

use gabion::{Durability, Expiry};
use gabion_bindings::{Failure, options};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDateTime, PyDelta, PyDict, PyFloat, PyMemoryView};

use crate::errors::exception;

/// Bytes that came in: `bytes` where they lie, or a copy of another buffer (P1).
pub(crate) struct Bytes<'py>(Bound<'py, PyBytes>);

impl Deref for Bytes<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl<'a, 'py> FromPyObject<'a, 'py> for Bytes<'py> {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Bytes<'py>> {
        if let Ok(bytes) = object.cast_exact::<PyBytes>() {
            return Ok(Bytes(bytes.to_owned()));
        }
        let view = PyMemoryView::from(&object).map_err(|_| {
            let name = object.get_type().name();
            let name = name.map_or_else(|_| "object".to_owned(), |name| name.to_string());
            PyTypeError::new_err(format!(
                "keys and values are bytes-like objects, not {name}; encode text first"
            ))
        })?;
        let copy = view.call_method0("tobytes")?;
        Ok(Bytes(copy.cast_into::<PyBytes>()?))
    }
}

/// A durability by its word.
pub(crate) fn durability(py: Python<'_>, word: Option<&str>) -> PyResult<Option<Durability>> {
    let durability = word.map(options::durability).transpose();
    durability.map_err(|failure| exception(py, &failure))
}

/// Seconds as a duration.
fn seconds(count: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(count)
        .map_err(|_| PyValueError::new_err(format!("an expiry of {count} seconds is not possible")))
}

/// When something expires: a `timedelta` or a number of seconds from now on, or a `datetime`.
pub(crate) fn expiry(value: &Bound<'_, PyAny>) -> PyResult<Expiry> {
    if value.cast::<PyDelta>().is_ok() {
        let count: f64 = value.call_method0("total_seconds")?.extract()?;
        return Ok(Expiry::After(seconds(count)?));
    }
    if value.cast::<PyDateTime>().is_ok() {
        let count: f64 = value.call_method0("timestamp")?.extract()?;
        // What was before 1970 has expired.
        let at = UNIX_EPOCH.checked_add(seconds(count.max(0.0))?);
        let at = at.ok_or_else(|| PyValueError::new_err("the expiry is too far in the future"))?;
        return Ok(Expiry::At(at));
    }
    match value.extract::<f64>() {
        Ok(count) => Ok(Expiry::After(seconds(count)?)),
        Err(_) => Err(PyTypeError::new_err(
            "an expiry is a timedelta, a number of seconds, or a datetime",
        )),
    }
}

/// The text of an option's value.
fn option_text(name: &str, value: &Bound<'_, PyAny>) -> PyResult<String> {
    if let Ok(text) = value.extract::<String>() {
        return Ok(text);
    }
    if let Ok(switch) = value.cast::<PyBool>() {
        return Ok(switch.is_true().to_string());
    }
    if value.cast::<PyDelta>().is_ok() {
        let count: f64 = value.call_method0("total_seconds")?.extract()?;
        return Ok(format!("{}ms", seconds(count)?.as_millis()));
    }
    if value.cast::<PyFloat>().is_ok() || value.extract::<i64>().is_ok() {
        return Ok(value.str()?.to_string());
    }
    let path = value.call_method0("__fspath__");
    path.and_then(|path| path.extract()).map_err(|_| {
        PyTypeError::new_err(format!(
            "option {name}: the value must be text, a number, a bool, a timedelta or a path"
        ))
    })
}

/// Options that came as keywords; those that are None are left out.
pub(crate) fn pairs(keywords: Option<&Bound<'_, PyDict>>) -> PyResult<Vec<(String, String)>> {
    let mut pairs = Vec::new();
    for (name, value) in keywords.into_iter().flatten() {
        if !value.is_none() {
            let name: String = name.extract()?;
            let text = option_text(&name, &value)?;
            pairs.push((name, text));
        }
    }
    Ok(pairs)
}

/// What a reader of options makes of keywords.
pub(crate) fn read<O>(
    py: Python<'_>,
    keywords: Option<&Bound<'_, PyDict>>,
    read: impl FnOnce(&[(String, String)]) -> Result<O, Failure>,
) -> PyResult<O> {
    read(&pairs(keywords)?).map_err(|failure| exception(py, &failure))
}
