//! Keyspaces, which are mutable mappings of bytes to bytes.

use std::sync::Arc;
use std::time::UNIX_EPOCH;

use gabion::{Db, Slice};
use gabion_bindings::range;
use pyo3::exceptions::{PyKeyError, PyTypeError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyDateTime, PyDict, PyList, PyTuple};

use crate::arguments::{Bytes, durability, expiry};
use crate::errors::{call, exception, no_pickle};
use crate::pairs::{Pairs, Part, Source};

/// An open store, in the hands of all objects that were made from it.
pub(crate) struct Shared {
    pub(crate) db: Db,
}

/// A named part of a store with its own keys: a mutable mapping of bytes to bytes.
#[pyclass(frozen, subclass, mapping, module = "gabion")]
pub(crate) struct Keyspace {
    pub(crate) store: Arc<Shared>,
    pub(crate) inner: gabion::Keyspace,
}

impl Keyspace {
    /// The keyspace, if it is of a store.
    pub(crate) fn of(&self, py: Python<'_>, store: &Arc<Shared>) -> PyResult<&gabion::Keyspace> {
        if Arc::ptr_eq(&self.store, store) {
            return Ok(&self.inner);
        }
        let keyspace = self.inner.name().to_owned();
        let error = gabion::Error::ForeignKeyspace { keyspace };
        Err(exception(py, &error.into()))
    }

    /// The pairs of a range, or of all.
    fn scan(&self, bounds: Option<range::Bounds>, part: Part, is_reversed: bool) -> Pairs {
        let is_ordered = self.store.db.engine().capabilities().ordered;
        let source = match bounds {
            None if !is_ordered && !is_reversed => Source::Unordered(self.inner.pairs()),
            None => Source::Iter(self.inner.iter()),
            Some(bounds) => Source::Iter(self.inner.range::<Vec<u8>>(held(bounds))),
        };
        Pairs::new(source, part, is_reversed)
    }

    /// Removes a key and returns its value.
    fn take(&self, py: Python<'_>, key: &[u8]) -> PyResult<Option<Slice>> {
        call(py, || self.inner.update(key, |_| None::<[u8; 0]>))
    }
}

/// Bounds that a scan takes: none that are turned around.
pub(crate) fn held(bounds: range::Bounds) -> range::Bounds {
    match range::is_empty(&bounds) {
        true => range::between(Some(&[]), Some(&[])),
        false => bounds,
    }
}

/// The error of a key that is not there.
pub(crate) fn missing(py: Python<'_>, key: &[u8]) -> PyErr {
    PyKeyError::new_err(PyBytes::new(py, key).unbind())
}

/// A view of the package's, over a mapping.
pub(crate) fn view<'py>(
    py: Python<'py>,
    name: &str,
    mapping: &Bound<'py, impl pyo3::PyClass>,
) -> PyResult<Bound<'py, PyAny>> {
    static VIEWS: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    let import = || Ok::<_, PyErr>(py.import("gabion._views")?.unbind());
    let views = VIEWS.get_or_try_init(py, import)?.bind(py);
    views.getattr(name)?.call1((mapping,))
}

/// Whether two mappings hold the same.
pub(crate) fn equals<'py>(
    own: &Bound<'py, impl pyo3::PyClass>,
    other: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let (py, own) = (own.py(), own.as_any());
    if own.is(other) {
        return Ok(true.into_pyobject(py)?.to_owned().into_any());
    }
    let mappings = py.import("collections.abc")?.getattr("Mapping")?;
    if !other.is_instance(&mappings)? {
        return Ok(py.NotImplemented().into_bound(py));
    }
    let dict = py.get_type::<PyDict>();
    let held = dict.call1((own.call_method0("items")?,))?;
    let others = dict.call1((other.call_method0("items")?,))?;
    held.rich_compare(others, pyo3::basic::CompareOp::Eq)
}

/// A value, or what stands for none.
pub(crate) fn value_or<'py>(
    py: Python<'py>,
    value: Option<Slice>,
    default: Option<Bound<'py, PyAny>>,
) -> Bound<'py, PyAny> {
    match (value, default) {
        (Some(value), _) => PyBytes::new(py, &value).into_any(),
        (None, Some(default)) => default,
        (None, None) => py.None().into_bound(py),
    }
}

/// Values, with None for those that are missing.
pub(crate) fn values(py: Python<'_>, found: Vec<Option<Slice>>) -> PyResult<Bound<'_, PyList>> {
    let value = |value: Option<Slice>| value.map(|value| PyBytes::new(py, &value));
    PyList::new(py, found.into_iter().map(value))
}

#[pymethods]
impl Keyspace {
    #[getter]
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn __getitem__<'py>(&self, py: Python<'py>, key: Bytes<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = &*key;
        match call(py, || self.inner.get(bytes))? {
            Some(value) => Ok(PyBytes::new(py, &value)),
            None => Err(missing(py, &key)),
        }
    }

    fn __setitem__(&self, py: Python<'_>, key: Bytes<'_>, value: Bytes<'_>) -> PyResult<()> {
        let (key, value) = (&*key, &*value);
        call(py, || self.inner.put(key, value))
    }

    fn __delitem__(&self, py: Python<'_>, key: Bytes<'_>) -> PyResult<()> {
        match self.take(py, &key)? {
            Some(_) => Ok(()),
            None => Err(missing(py, &key)),
        }
    }

    fn __contains__(&self, py: Python<'_>, key: Bytes<'_>) -> PyResult<bool> {
        let key = &*key;
        call(py, || self.inner.contains(key))
    }

    /// How many keys there are. Goes through all of them.
    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        const PAGE: usize = 4096;
        let mut pairs = match self.store.db.engine().capabilities().ordered {
            true => Counted::Cursor(self.inner.cursor::<&[u8]>(..)),
            false => Counted::Pairs(self.inner.pairs()),
        };
        let mut count = 0;
        loop {
            let page = call(py, || pairs.count(PAGE))?;
            count += page;
            if page < PAGE {
                return Ok(count);
            }
            py.check_signals()?;
        }
    }

    fn __bool__(&self, py: Python<'_>) -> PyResult<bool> {
        let first = call(py, || self.inner.pairs().next().transpose())?;
        Ok(first.is_some())
    }

    fn __iter__(&self) -> Pairs {
        self.scan(None, Part::Keys, false)
    }

    fn __reversed__(&self) -> Pairs {
        self.scan(None, Part::Keys, true)
    }

    fn __repr__(&self) -> String {
        let path = self.store.db.path();
        format!(
            "<gabion.Keyspace {:?} of {}>",
            self.inner.name(),
            path.display()
        )
    }

    fn __eq__<'py>(
        slf: &Bound<'py, Self>,
        other: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        equals(slf, other)
    }

    #[classattr]
    fn __hash__(py: Python<'_>) -> Py<PyAny> {
        py.None()
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(no_pickle("keyspace"))
    }

    #[pyo3(signature = (key, default=None))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        key: Bytes<'py>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let key = &*key;
        let value = call(py, || self.inner.get(key))?;
        Ok(value_or(py, value, default))
    }

    #[pyo3(signature = (keys))]
    fn multi_get<'py>(
        &self,
        py: Python<'py>,
        keys: Vec<Bytes<'py>>,
    ) -> PyResult<Bound<'py, PyList>> {
        let keys: Vec<&[u8]> = keys.iter().map(|key| &**key).collect();
        let found = call(py, || self.inner.multi_get(&keys))?;
        values(py, found)
    }

    #[pyo3(signature = (key, value, *, expires=None, durability=None))]
    fn put(
        &self,
        py: Python<'_>,
        key: Bytes<'_>,
        value: Bytes<'_>,
        expires: Option<Bound<'_, PyAny>>,
        durability: Option<&str>,
    ) -> PyResult<()> {
        let (key, value) = (&*key, &*value);
        let level = self::durability(py, durability)?;
        let expires = expires.as_ref().map(expiry).transpose()?;
        call(py, || match (expires, level) {
            (None, None) => self.inner.put(key, value),
            (None, Some(level)) => self.inner.put_with(key, value, level),
            (Some(expiry), None) => self.inner.put_expiring(key, value, expiry),
            (Some(expiry), Some(level)) => self.inner.put_expiring_with(key, value, expiry, level),
        })
    }

    /// Merges an operand into the value of a key, as the operator of the keyspace says.
    #[pyo3(signature = (key, operand, *, durability=None))]
    fn merge(
        &self,
        py: Python<'_>,
        key: Bytes<'_>,
        operand: Bytes<'_>,
        durability: Option<&str>,
    ) -> PyResult<()> {
        let (key, operand) = (&*key, &*operand);
        let level = self::durability(py, durability)?;
        call(py, || match level {
            Some(level) => self.inner.merge_with(key, operand, level),
            None => self.inner.merge(key, operand),
        })
    }

    #[pyo3(signature = (key, *, durability=None))]
    fn delete(&self, py: Python<'_>, key: Bytes<'_>, durability: Option<&str>) -> PyResult<()> {
        let key = &*key;
        let level = self::durability(py, durability)?;
        call(py, || match level {
            Some(level) => self.inner.delete_with(key, level),
            None => self.inner.delete(key),
        })
    }

    #[pyo3(signature = (lower=None, upper=None))]
    fn delete_range(
        &self,
        py: Python<'_>,
        lower: Option<Bytes<'_>>,
        upper: Option<Bytes<'_>>,
    ) -> PyResult<()> {
        let bounds = range::between(lower.as_deref(), upper.as_deref());
        call(py, || self.inner.delete_range::<Vec<u8>>(bounds))
    }

    #[pyo3(signature = (lower=None, upper=None))]
    fn compact(
        &self,
        py: Python<'_>,
        lower: Option<Bytes<'_>>,
        upper: Option<Bytes<'_>>,
    ) -> PyResult<()> {
        let bounds = range::between(lower.as_deref(), upper.as_deref());
        call(py, || self.inner.compact::<Vec<u8>>(bounds))
    }

    fn compare_and_swap(
        &self,
        py: Python<'_>,
        key: Bytes<'_>,
        expected: Option<Bytes<'_>>,
        value: Option<Bytes<'_>>,
    ) -> PyResult<bool> {
        let key = &*key;
        let (expected, value) = (expected.as_deref(), value.as_deref());
        call(py, || self.inner.compare_and_swap(key, expected, value))
    }

    /// When the value of a key expires, in UTC; None if it does not, or is not there.
    fn expires_at<'py>(
        &self,
        py: Python<'py>,
        key: Bytes<'py>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let bytes = &*key;
        let Some(at) = call(py, || self.inner.expires_at(bytes))? else {
            return Ok(None);
        };
        let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
        let datetime = py.import("datetime")?;
        let utc = datetime.getattr("timezone")?.getattr("utc")?;
        let class = py.get_type::<PyDateTime>();
        class
            .call_method1("fromtimestamp", (since.as_secs_f64(), utc))
            .map(Some)
    }

    fn expire(
        &self,
        py: Python<'_>,
        key: Bytes<'_>,
        expires: Option<Bound<'_, PyAny>>,
    ) -> PyResult<bool> {
        let key = &*key;
        match expires.as_ref().map(expiry).transpose()? {
            Some(expiry) => call(py, || self.inner.expire(key, expiry)),
            None => call(py, || self.inner.remove_expiry(key)),
        }
    }

    #[pyo3(signature = (lower=None, upper=None, *, reverse=false, part="items"))]
    fn range(
        &self,
        lower: Option<Bytes<'_>>,
        upper: Option<Bytes<'_>>,
        reverse: bool,
        part: &str,
    ) -> PyResult<Pairs> {
        let bounds = range::between(lower.as_deref(), upper.as_deref());
        Ok(self.scan(Some(bounds), part_named(part)?, reverse))
    }

    #[pyo3(signature = (prefix, *, reverse=false, part="items"))]
    fn prefix(&self, prefix: Bytes<'_>, reverse: bool, part: &str) -> PyResult<Pairs> {
        let bounds = range::prefix(&prefix);
        Ok(self.scan(Some(bounds), part_named(part)?, reverse))
    }

    /// All pairs, or a part of each, in order where there is one: what the views go through.
    #[pyo3(signature = (part, reverse=false))]
    fn _scan(&self, part: &str, reverse: bool) -> PyResult<Pairs> {
        Ok(self.scan(None, part_named(part)?, reverse))
    }

    fn keys<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        view(slf.py(), "Keys", slf)
    }

    fn values<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        view(slf.py(), "Values", slf)
    }

    fn items<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        view(slf.py(), "Items", slf)
    }

    #[pyo3(signature = (key, *default))]
    fn pop<'py>(
        &self,
        py: Python<'py>,
        key: Bytes<'py>,
        default: &Bound<'py, PyTuple>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if default.len() > 1 {
            let why = format!(
                "pop expected at most 2 arguments, got {}",
                1 + default.len()
            );
            return Err(PyTypeError::new_err(why));
        }
        match (self.take(py, &key)?, default.get_item(0)) {
            (Some(value), _) => Ok(PyBytes::new(py, &value).into_any()),
            (None, Ok(default)) => Ok(default),
            (None, Err(_)) => Err(missing(py, &key)),
        }
    }

    /// Removes a pair, the last one in order, and returns it.
    fn popitem<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)> {
        let is_ordered = self.store.db.engine().capabilities().ordered;
        let taken = call(py, || {
            loop {
                let pair = match is_ordered {
                    true => self.inner.iter().next_back(),
                    false => self.inner.pairs().next(),
                };
                let Some((key, _)) = pair.transpose()? else {
                    return Ok(None);
                };
                // Somebody else may have been faster.
                if let Some(value) = self.inner.update(&key, |_| None::<[u8; 0]>)? {
                    return Ok(Some((key, value)));
                }
            }
        })?;
        match taken {
            Some((key, value)) => Ok((PyBytes::new(py, &key), PyBytes::new(py, &value))),
            None => Err(PyKeyError::new_err("the keyspace is empty")),
        }
    }

    fn setdefault<'py>(
        &self,
        py: Python<'py>,
        key: Bytes<'py>,
        default: Bytes<'py>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let (bytes, new) = (&*key, &*default);
        loop {
            // Most keys are there, or are not fought for.
            if let Some(value) = call(py, || self.inner.get(bytes))? {
                return Ok(PyBytes::new(py, &value));
            }
            if call(py, || self.inner.compare_and_swap(bytes, None, Some(new)))? {
                return Ok(PyBytes::new(py, new));
            }
        }
    }

    /// Puts all pairs of a mapping, or of an iterable of pairs.
    #[pyo3(signature = (other=None, /))]
    fn update<'py>(slf: &Bound<'py, Self>, other: Option<Bound<'py, PyAny>>) -> PyResult<()> {
        let Some(other) = other else {
            return Ok(());
        };
        if let Ok(keys) = other.getattr("keys") {
            for key in keys.call0()?.try_iter()? {
                let key = key?;
                let value = other.get_item(&key)?;
                slf.set_item(key, value)?;
            }
            return Ok(());
        }
        for pair in other.try_iter()? {
            let (key, value): (Bound<'_, PyAny>, Bound<'_, PyAny>) = pair?.extract()?;
            slf.set_item(key, value)?;
        }
        Ok(())
    }

    fn clear(&self, py: Python<'_>) -> PyResult<()> {
        let is_ordered = self.store.db.engine().capabilities().ordered;
        call(py, || {
            if is_ordered {
                return self.inner.delete_range::<&[u8]>(..);
            }
            for pair in self.inner.pairs() {
                self.inner.delete(pair?.0)?;
            }
            Ok(())
        })
    }
}

/// What an iterator hands out, by its name.
pub(crate) fn part_named(name: &str) -> PyResult<Part> {
    Part::named(name).ok_or_else(|| {
        PyTypeError::new_err(format!(
            "{name:?} is not one of \"keys\", \"values\", \"items\""
        ))
    })
}

/// The bounds of a range, whose ends may be missing.
pub(crate) fn bounds(lower: Option<&Bytes<'_>>, upper: Option<&Bytes<'_>>) -> range::Bounds {
    range::between(lower.map(|key| &**key), upper.map(|key| &**key))
}

/// What is counted.
enum Counted {
    Cursor(gabion::Cursor),
    Pairs(gabion::Pairs),
}

impl Counted {
    /// Goes on by up to `most` pairs, and returns by how many.
    fn count(&mut self, most: usize) -> gabion::Result<usize> {
        for count in 0..most {
            let is_there = match self {
                Counted::Cursor(cursor) => cursor.advance()?,
                Counted::Pairs(pairs) => pairs.next().transpose()?.is_some(),
            };
            if !is_there {
                return Ok(count);
            }
        }
        Ok(most)
    }
}
