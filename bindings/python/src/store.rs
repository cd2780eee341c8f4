//! Stores, and operations on the directories of closed stores.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use gabion_bindings::{SharedTransaction, options};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::arguments::{durability, read};
use crate::batch::Batch;
use crate::errors::{call, no_pickle, run};
use crate::keyspace::{Keyspace, Shared};
use crate::snapshot::Snapshot;
use crate::transaction::Transaction;

/// An open store, and as a mapping its keyspace "default".
#[pyclass(frozen, extends = Keyspace, mapping, module = "gabion")]
pub(crate) struct Store {
    shared: Arc<Shared>,
}

/// Opens the store in a directory, and makes it if the directory is missing or empty.
#[pyfunction]
#[pyo3(signature = (path, **options))]
pub(crate) fn open<'py>(
    py: Python<'py>,
    path: PathBuf,
    options: Option<Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, Store>> {
    let options = read(py, options.as_ref(), options::store)?;
    let db = call(py, || options.open(path))?;
    let inner = db.default_keyspace().clone();
    let shared = Arc::new(Shared { db });
    let keyspace = Keyspace {
        store: Arc::clone(&shared),
        inner,
    };
    Bound::new(
        py,
        PyClassInitializer::from(keyspace).add_subclass(Store { shared }),
    )
}

/// Reads every byte of the store in a directory and returns what is damaged.
#[pyfunction]
pub(crate) fn check<'py>(py: Python<'py>, path: PathBuf) -> PyResult<Bound<'py, PyDict>> {
    let report = call(py, || gabion::check(path))?;
    let found = PyDict::new(py);
    found.set_item("tables", report.tables)?;
    found.set_item("entries", report.entries)?;
    found.set_item("table_bytes", report.table_bytes)?;
    found.set_item("log_segments", report.log_segments)?;
    found.set_item("log_operations", report.log_operations)?;
    let problems = report.problems.iter();
    let sentence = |problem: &gabion::Problem| match problem.offset {
        Some(offset) => format!(
            "{}, offset {offset}: {}",
            problem.file.display(),
            problem.what
        ),
        None => format!("{}: {}", problem.file.display(), problem.what),
    };
    found.set_item("problems", problems.map(sentence).collect::<Vec<_>>())?;
    Ok(found)
}

/// Removes the store in a directory.
#[pyfunction]
pub(crate) fn destroy(py: Python<'_>, path: PathBuf) -> PyResult<()> {
    call(py, || gabion::destroy(path))
}

impl Store {
    fn made(&self, inner: gabion::Keyspace) -> Keyspace {
        Keyspace {
            store: Arc::clone(&self.shared),
            inner,
        }
    }

    fn begin(&self, py: Python<'_>, options: Option<&Bound<'_, PyDict>>) -> PyResult<Transaction> {
        let options = read(py, options, options::transaction)?;
        let begin = || SharedTransaction::begin(&self.shared.db, options);
        let transaction = run(py, begin)?;
        let keyspace = self.shared.db.default_keyspace().clone();
        Ok(Transaction::new(
            Arc::clone(&self.shared),
            transaction,
            keyspace,
        ))
    }
}

#[pymethods]
impl Store {
    #[getter]
    fn path(&self) -> PathBuf {
        self.shared.db.path().to_owned()
    }

    #[getter]
    fn engine(&self) -> &'static str {
        self.shared.db.engine().name()
    }

    fn __repr__(&self) -> String {
        let db = &self.shared.db;
        format!(
            "<gabion.Store at {}, engine {}>",
            db.path().display(),
            db.engine()
        )
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(no_pickle("store"))
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.close(py)
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        match call(py, || self.shared.db.clone().close()) {
            // To close twice does no harm.
            Err(error) if error.get_type(py).name()? == "ClosedError" => Ok(()),
            closed => closed,
        }
    }

    #[pyo3(signature = (name, **options))]
    fn keyspace(
        &self,
        py: Python<'_>,
        name: &str,
        options: Option<Bound<'_, PyDict>>,
    ) -> PyResult<Keyspace> {
        let db = &self.shared.db;
        let inner = match options {
            Some(options) => {
                let options = read(py, Some(&options), options::keyspace)?;
                call(py, || db.keyspace_with(name, &options))?
            }
            None => call(py, || db.keyspace(name))?,
        };
        Ok(self.made(inner))
    }

    fn existing_keyspace(&self, py: Python<'_>, name: &str) -> PyResult<Keyspace> {
        let inner = call(py, || self.shared.db.existing_keyspace(name))?;
        Ok(self.made(inner))
    }

    fn keyspace_names(&self) -> Vec<String> {
        self.shared.db.keyspace_names()
    }

    fn drop_keyspace(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        call(py, || self.shared.db.drop_keyspace(name))
    }

    fn snapshot(&self, py: Python<'_>) -> PyResult<Snapshot> {
        let db = &self.shared.db;
        let engine = db.engine();
        call(py, || match engine.capabilities().snapshots {
            true => Ok(()),
            false => Err(gabion::Error::Unsupported {
                engine: engine.name(),
                operation: "snapshots",
            }),
        })?;
        let keyspace = db.default_keyspace().clone();
        let snapshot = py.detach(|| db.snapshot());
        Ok(Snapshot::new(Arc::clone(&self.shared), snapshot, keyspace))
    }

    #[pyo3(signature = (*, durability=None))]
    fn batch(&self, py: Python<'_>, durability: Option<&str>) -> PyResult<Batch> {
        let level = self::durability(py, durability)?;
        Ok(Batch::new(Arc::clone(&self.shared), level))
    }

    #[pyo3(signature = (**options))]
    fn transaction(
        &self,
        py: Python<'_>,
        options: Option<Bound<'_, PyDict>>,
    ) -> PyResult<Transaction> {
        self.begin(py, options.as_ref())
    }

    /// Runs `body` with a transaction and commits it, again and again until nobody is in the way.
    #[pyo3(signature = (body, *, attempts=100, **options))]
    fn transact<'py>(
        &self,
        py: Python<'py>,
        body: Bound<'py, PyAny>,
        attempts: u32,
        options: Option<Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        /// Pauses double from 20 µs on, up to 20 ms.
        const DOUBLINGS_MAX: u32 = 10;
        let mut attempt = 1;
        loop {
            let transaction = Bound::new(py, self.begin(py, options.as_ref())?)?;
            let committed = match body.call1((&transaction,)) {
                Ok(result) => transaction.get().commit_now(py, None).map(|()| result),
                Err(error) => {
                    transaction.get().end(py);
                    Err(error)
                }
            };
            match committed {
                Err(error) if attempt < attempts && is_retry(py, &error)? => {
                    py.check_signals()?;
                    let doublings = attempt.min(DOUBLINGS_MAX);
                    let longest = Duration::from_micros(20 << doublings);
                    let random: f64 = py.import("random")?.call_method0("random")?.extract()?;
                    py.detach(|| std::thread::sleep(longest.mul_f64(random)));
                }
                result => return result,
            }
            attempt += 1;
        }
    }

    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        call(py, || self.shared.db.flush())
    }

    #[pyo3(signature = (durability="sync"))]
    fn persist(&self, py: Python<'_>, durability: &str) -> PyResult<()> {
        let level = self::durability(py, Some(durability))?.unwrap_or_default();
        call(py, || self.shared.db.persist(level))
    }

    fn wait_idle(&self, py: Python<'_>) -> PyResult<()> {
        call(py, || self.shared.db.wait_idle())
    }

    fn checkpoint(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        call(py, || self.shared.db.checkpoint(path))
    }

    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let json = py.detach(|| self.shared.db.stats().to_json());
        py.import("json")?.call_method1("loads", (json,))
    }
}

/// Whether a transaction is to be run again after an exception.
fn is_retry(py: Python<'_>, error: &PyErr) -> PyResult<bool> {
    let retries = py.import("gabion._errors")?.getattr("RetryError")?;
    Ok(error.is_instance(py, &retries))
}
