//! Transactions: reads of one moment and writes that take effect together.

use std::sync::Arc;

use gabion::Slice;
use gabion_bindings::{Reader, SharedTransaction, Walk, range};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use crate::arguments::{Bytes, durability, expiry};
use crate::errors::{no_pickle, run};
use crate::keyspace::{Keyspace, Shared, bounds, missing, part_named, value_or, values};
use crate::pairs::{Pairs, Part, Source};

/// A transaction, as it sees a keyspace: the default one, or that of `of`.
#[pyclass(frozen, module = "gabion")]
pub(crate) struct Transaction {
    store: Arc<Shared>,
    transaction: SharedTransaction,
    keyspace: gabion::Keyspace,
}

impl Transaction {
    pub(crate) fn new(
        store: Arc<Shared>,
        transaction: SharedTransaction,
        keyspace: gabion::Keyspace,
    ) -> Transaction {
        Transaction {
            store,
            transaction,
            keyspace,
        }
    }

    /// Commits it.
    pub(crate) fn commit_now(
        &self,
        py: Python<'_>,
        durability: Option<gabion::Durability>,
    ) -> PyResult<()> {
        run(py, || self.transaction.commit(durability))
    }

    /// Rolls it back, if it is open.
    pub(crate) fn end(&self, py: Python<'_>) {
        py.detach(|| self.transaction.rollback());
    }

    fn find(&self, py: Python<'_>, key: &[u8]) -> PyResult<Option<Slice>> {
        run(py, || {
            self.transaction.read(|own| own.get(&self.keyspace, key))
        })
    }

    fn scan(&self, bounds: range::Bounds, part: Part, is_reversed: bool) -> Pairs {
        let reader = Reader::Transaction(self.transaction.clone());
        let walk = Walk::new(&self.store.db, &self.keyspace, reader, bounds);
        Pairs::new(Source::Walk(Box::new(walk), false), part, is_reversed)
    }
}

#[pymethods]
impl Transaction {
    /// The same transaction on another keyspace.
    fn of(&self, py: Python<'_>, keyspace: &Bound<'_, Keyspace>) -> PyResult<Transaction> {
        Ok(Transaction {
            store: Arc::clone(&self.store),
            transaction: self.transaction.clone(),
            keyspace: keyspace.get().of(py, &self.store)?.clone(),
        })
    }

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
        // Who has ended it within the block meant that.
        match class.is_none() && self.is_open(py) {
            true => self.commit_now(py, None),
            false => {
                self.end(py);
                Ok(())
            }
        }
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(no_pickle("transaction"))
    }

    fn __getitem__<'py>(&self, py: Python<'py>, key: Bytes<'py>) -> PyResult<Bound<'py, PyBytes>> {
        match self.find(py, &key)? {
            Some(value) => Ok(PyBytes::new(py, &value)),
            None => Err(missing(py, &key)),
        }
    }

    fn __setitem__(&self, py: Python<'_>, key: Bytes<'_>, value: Bytes<'_>) -> PyResult<()> {
        let (key, value) = (&*key, &*value);
        run(py, || {
            self.transaction
                .write(|own| own.put(&self.keyspace, key, value))
        })
    }

    fn __delitem__(&self, py: Python<'_>, key: Bytes<'_>) -> PyResult<()> {
        match self.find(py, &key)? {
            Some(_) => self.delete(py, key),
            None => Err(missing(py, &key)),
        }
    }

    fn __contains__(&self, py: Python<'_>, key: Bytes<'_>) -> PyResult<bool> {
        Ok(self.find(py, &key)?.is_some())
    }

    fn __iter__(&self) -> Pairs {
        self.scan(range::between(None, None), Part::Keys, false)
    }

    fn __reversed__(&self) -> Pairs {
        self.scan(range::between(None, None), Part::Keys, true)
    }

    #[pyo3(signature = (key, default=None))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        key: Bytes<'py>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let value = self.find(py, &key)?;
        Ok(value_or(py, value, default))
    }

    #[pyo3(signature = (key, default=None))]
    fn get_for_update<'py>(
        &self,
        py: Python<'py>,
        key: Bytes<'py>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let key = &*key;
        let read = |own: &gabion::Transaction| own.get_for_update(&self.keyspace, key);
        let value = run(py, || self.transaction.read(read))?;
        Ok(value_or(py, value, default))
    }

    fn multi_get<'py>(
        &self,
        py: Python<'py>,
        keys: Vec<Bytes<'py>>,
    ) -> PyResult<Bound<'py, PyList>> {
        let keys: Vec<&[u8]> = keys.iter().map(|key| &**key).collect();
        let read = |own: &gabion::Transaction| own.multi_get(&self.keyspace, &keys);
        let found = run(py, || self.transaction.read(read))?;
        values(py, found)
    }

    #[pyo3(signature = (key, value, *, expires=None))]
    fn put(
        &self,
        py: Python<'_>,
        key: Bytes<'_>,
        value: Bytes<'_>,
        expires: Option<Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let (key, value) = (&*key, &*value);
        let expires = expires.as_ref().map(expiry).transpose()?;
        let put = |own: &mut gabion::Transaction| match expires {
            Some(expiry) => own.put_expiring(&self.keyspace, key, value, expiry),
            None => own.put(&self.keyspace, key, value),
        };
        run(py, || self.transaction.write(put))
    }

    fn merge(&self, py: Python<'_>, key: Bytes<'_>, operand: Bytes<'_>) -> PyResult<()> {
        let (key, operand) = (&*key, &*operand);
        let merge = |own: &mut gabion::Transaction| own.merge(&self.keyspace, key, operand);
        run(py, || self.transaction.write(merge))
    }

    fn delete(&self, py: Python<'_>, key: Bytes<'_>) -> PyResult<()> {
        let key = &*key;
        run(py, || {
            self.transaction
                .write(|own| own.delete(&self.keyspace, key))
        })
    }

    #[pyo3(signature = (lower=None, upper=None))]
    fn delete_range(
        &self,
        py: Python<'_>,
        lower: Option<Bytes<'_>>,
        upper: Option<Bytes<'_>>,
    ) -> PyResult<()> {
        let bounds = bounds(lower.as_ref(), upper.as_ref());
        let delete =
            |own: &mut gabion::Transaction| own.delete_range::<Vec<u8>>(&self.keyspace, bounds);
        run(py, || self.transaction.write(delete))
    }

    #[pyo3(signature = (lower=None, upper=None, *, reverse=false, part="items"))]
    fn range(
        &self,
        lower: Option<Bytes<'_>>,
        upper: Option<Bytes<'_>>,
        reverse: bool,
        part: &str,
    ) -> PyResult<Pairs> {
        let bounds = bounds(lower.as_ref(), upper.as_ref());
        Ok(self.scan(bounds, part_named(part)?, reverse))
    }

    #[pyo3(signature = (prefix, *, reverse=false, part="items"))]
    fn prefix(&self, prefix: Bytes<'_>, reverse: bool, part: &str) -> PyResult<Pairs> {
        Ok(self.scan(range::prefix(&prefix), part_named(part)?, reverse))
    }

    fn savepoint(&self, py: Python<'_>) -> PyResult<u64> {
        run(py, || self.transaction.savepoint())
    }

    fn rollback_to(&self, py: Python<'_>, savepoint: u64) -> PyResult<()> {
        run(py, || self.transaction.rollback_to(savepoint))
    }

    #[pyo3(signature = (*, durability=None))]
    fn commit(&self, py: Python<'_>, durability: Option<&str>) -> PyResult<()> {
        let level = self::durability(py, durability)?;
        self.commit_now(py, level)
    }

    fn rollback(&self, py: Python<'_>) -> PyResult<()> {
        run(py, || match self.transaction.rollback() {
            true => Ok(()),
            false => Err(gabion_bindings::Failure::Ended),
        })
    }

    #[getter]
    fn is_open(&self, py: Python<'_>) -> bool {
        py.detach(|| self.transaction.is_open())
    }
}
