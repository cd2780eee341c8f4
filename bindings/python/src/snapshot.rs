//! Snapshots: a keyspace as it was at one moment, which is a mapping.

use std::sync::{Arc, PoisonError, RwLock};

use gabion_bindings::{Code, Failure, range};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};

use crate::arguments::Bytes;
use crate::errors::{no_pickle, run};
use crate::keyspace::{
    Keyspace, Shared, bounds, equals, held, missing, part_named, value_or, values, view,
};
use crate::pairs::{Pairs, Part, Source};

/// A keyspace as it was at one moment.
#[pyclass(frozen, mapping, module = "gabion")]
pub(crate) struct Snapshot {
    store: Arc<Shared>,
    /// None once it was given up.
    snapshot: RwLock<Option<gabion::Snapshot>>,
    keyspace: gabion::Keyspace,
}

impl Snapshot {
    pub(crate) fn new(
        store: Arc<Shared>,
        snapshot: gabion::Snapshot,
        keyspace: gabion::Keyspace,
    ) -> Snapshot {
        Snapshot {
            store,
            snapshot: RwLock::new(Some(snapshot)),
            keyspace,
        }
    }

    /// Reads with the snapshot, if it was not given up.
    fn read<T: Send>(
        &self,
        py: Python<'_>,
        read: impl FnOnce(&gabion::Snapshot) -> gabion::Result<T> + Send,
    ) -> PyResult<T> {
        run(py, || {
            let snapshot = self.snapshot.read().unwrap_or_else(PoisonError::into_inner);
            let snapshot = snapshot.as_ref().ok_or_else(|| {
                let why = "the snapshot was closed at the end of the with block; take another";
                Failure::Refused(Code::Closed, why.to_owned())
            })?;
            Ok(read(snapshot)?)
        })
    }

    fn scan(
        &self,
        py: Python<'_>,
        bounds: range::Bounds,
        part: Part,
        is_reversed: bool,
    ) -> PyResult<Pairs> {
        let bounds = held(bounds);
        let range =
            |snapshot: &gabion::Snapshot| Ok(snapshot.range::<Vec<u8>>(&self.keyspace, bounds));
        let iter = self.read(py, range)?;
        Ok(Pairs::new(Source::Iter(iter), part, is_reversed))
    }
}

#[pymethods]
impl Snapshot {
    /// The same moment of another keyspace.
    fn of(&self, py: Python<'_>, keyspace: &Bound<'_, Keyspace>) -> PyResult<Snapshot> {
        let keyspace = keyspace.get().of(py, &self.store)?.clone();
        let snapshot = self.read(py, |snapshot| Ok(snapshot.clone()))?;
        Ok(Snapshot::new(Arc::clone(&self.store), snapshot, keyspace))
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) {
        self.close(py);
    }

    /// Gives the snapshot up, so that the store need not keep what it sees. Iterators go on.
    fn close(&self, py: Python<'_>) {
        py.detach(|| {
            let mut snapshot = self
                .snapshot
                .write()
                .unwrap_or_else(PoisonError::into_inner);
            snapshot.take();
        });
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(no_pickle("snapshot"))
    }

    fn __getitem__<'py>(&self, py: Python<'py>, key: Bytes<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = &*key;
        match self.read(py, |snapshot| snapshot.get(&self.keyspace, bytes))? {
            Some(value) => Ok(PyBytes::new(py, &value)),
            None => Err(missing(py, &key)),
        }
    }

    fn __contains__(&self, py: Python<'_>, key: Bytes<'_>) -> PyResult<bool> {
        let key = &*key;
        self.read(py, |snapshot| snapshot.contains(&self.keyspace, key))
    }

    fn __iter__(&self, py: Python<'_>) -> PyResult<Pairs> {
        self.scan(py, range::between(None, None), Part::Keys, false)
    }

    fn __reversed__(&self, py: Python<'_>) -> PyResult<Pairs> {
        self.scan(py, range::between(None, None), Part::Keys, true)
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        let bounds = range::between(None, None);
        self.scan(py, bounds, Part::Keys, false)?.count(py)
    }

    /// What the views go through.
    #[pyo3(signature = (part, reverse=false))]
    fn _scan(&self, py: Python<'_>, part: &str, reverse: bool) -> PyResult<Pairs> {
        let bounds = range::between(None, None);
        self.scan(py, bounds, part_named(part)?, reverse)
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

    #[pyo3(signature = (key, default=None))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        key: Bytes<'py>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let key = &*key;
        let value = self.read(py, |snapshot| snapshot.get(&self.keyspace, key))?;
        Ok(value_or(py, value, default))
    }

    fn multi_get<'py>(
        &self,
        py: Python<'py>,
        keys: Vec<Bytes<'py>>,
    ) -> PyResult<Bound<'py, PyList>> {
        let keys: Vec<&[u8]> = keys.iter().map(|key| &**key).collect();
        let found = self.read(py, |snapshot| snapshot.multi_get(&self.keyspace, &keys))?;
        values(py, found)
    }

    #[pyo3(signature = (lower=None, upper=None, *, reverse=false, part="items"))]
    fn range(
        &self,
        py: Python<'_>,
        lower: Option<Bytes<'_>>,
        upper: Option<Bytes<'_>>,
        reverse: bool,
        part: &str,
    ) -> PyResult<Pairs> {
        let bounds = bounds(lower.as_ref(), upper.as_ref());
        self.scan(py, bounds, part_named(part)?, reverse)
    }

    #[pyo3(signature = (prefix, *, reverse=false, part="items"))]
    fn prefix(
        &self,
        py: Python<'_>,
        prefix: Bytes<'_>,
        reverse: bool,
        part: &str,
    ) -> PyResult<Pairs> {
        self.scan(py, range::prefix(&prefix), part_named(part)?, reverse)
    }
}
