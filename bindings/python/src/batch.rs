//! Batches: writes that take effect together.

use std::sync::{Arc, Mutex, MutexGuard};

use gabion::{Durability, WriteBatch};
use gabion_bindings::{Failure, range};
use pyo3::prelude::*;

use crate::arguments::{Bytes, expiry};
use crate::errors::{exception, no_pickle, run};
use crate::keyspace::{Keyspace, Shared};

/// Writes that take effect together, when the `with` block ends well.
#[pyclass(frozen, module = "gabion")]
pub(crate) struct Batch {
    store: Arc<Shared>,
    durability: Option<Durability>,
    batch: Mutex<WriteBatch>,
}

impl Batch {
    pub(crate) fn new(store: Arc<Shared>, durability: Option<Durability>) -> Batch {
        Batch {
            store,
            durability,
            batch: Mutex::new(WriteBatch::new()),
        }
    }

    fn lock(&self, py: Python<'_>) -> PyResult<MutexGuard<'_, WriteBatch>> {
        let locked = self.batch.try_lock();
        locked.map_err(|_| exception(py, &Failure::Busy))
    }

    /// Adds an operation on a keyspace, the default one if there is none.
    fn add(
        &self,
        py: Python<'_>,
        keyspace: Option<&Bound<'_, Keyspace>>,
        add: impl FnOnce(&mut WriteBatch, &gabion::Keyspace) -> gabion::Result<()>,
    ) -> PyResult<()> {
        let keyspace = match keyspace {
            Some(keyspace) => keyspace.get().of(py, &self.store)?,
            None => self.store.db.default_keyspace(),
        };
        let added = add(&mut *self.lock(py)?, keyspace);
        added.map_err(|error| exception(py, &error.into()))
    }
}

#[pymethods]
impl Batch {
    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        class: Option<Bound<'_, PyAny>>,
        _value: Option<Bound<'_, PyAny>>,
        _traceback: Option<Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        match class {
            None => self.write(py),
            Some(_) => self.clear(py),
        }
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(no_pickle("batch"))
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.lock(py)?.len())
    }

    fn __setitem__(&self, py: Python<'_>, key: Bytes<'_>, value: Bytes<'_>) -> PyResult<()> {
        self.add(py, None, |batch, keyspace| {
            batch.put(keyspace, &*key, &*value)
        })
    }

    fn __delitem__(&self, py: Python<'_>, key: Bytes<'_>) -> PyResult<()> {
        self.add(py, None, |batch, keyspace| batch.delete(keyspace, &*key))
    }

    #[pyo3(signature = (key, value, keyspace=None, *, expires=None))]
    fn put(
        &self,
        py: Python<'_>,
        key: Bytes<'_>,
        value: Bytes<'_>,
        keyspace: Option<&Bound<'_, Keyspace>>,
        expires: Option<Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let expires = expires.as_ref().map(expiry).transpose()?;
        self.add(py, keyspace, |batch, keyspace| match expires {
            Some(expiry) => batch.put_expiring(keyspace, &*key, &*value, expiry),
            None => batch.put(keyspace, &*key, &*value),
        })
    }

    #[pyo3(signature = (key, operand, keyspace=None))]
    fn merge(
        &self,
        py: Python<'_>,
        key: Bytes<'_>,
        operand: Bytes<'_>,
        keyspace: Option<&Bound<'_, Keyspace>>,
    ) -> PyResult<()> {
        self.add(py, keyspace, |batch, keyspace| {
            batch.merge(keyspace, &*key, &*operand)
        })
    }

    #[pyo3(signature = (key, keyspace=None))]
    fn delete(
        &self,
        py: Python<'_>,
        key: Bytes<'_>,
        keyspace: Option<&Bound<'_, Keyspace>>,
    ) -> PyResult<()> {
        self.add(py, keyspace, |batch, keyspace| {
            batch.delete(keyspace, &*key)
        })
    }

    #[pyo3(signature = (lower=None, upper=None, keyspace=None))]
    fn delete_range(
        &self,
        py: Python<'_>,
        lower: Option<Bytes<'_>>,
        upper: Option<Bytes<'_>>,
        keyspace: Option<&Bound<'_, Keyspace>>,
    ) -> PyResult<()> {
        let bounds = range::between(lower.as_deref(), upper.as_deref());
        self.add(py, keyspace, |batch, keyspace| {
            batch.delete_range::<Vec<u8>>(keyspace, bounds)
        })
    }

    /// Writes what was added, and forgets it.
    fn write(&self, py: Python<'_>) -> PyResult<()> {
        run(py, || {
            let mut batch = self.batch.try_lock().map_err(|_| Failure::Busy)?;
            match self.durability {
                Some(durability) => self.store.db.write_with(&*batch, durability)?,
                None => self.store.db.write(&*batch)?,
            }
            batch.clear();
            Ok(())
        })
    }

    fn clear(&self, py: Python<'_>) -> PyResult<()> {
        self.lock(py)?.clear();
        Ok(())
    }
}
