//! Iterators: they read a page of pairs without the interpreter's lock, and hand its pairs out.
//!
//! A first page has a few pairs, each later one twice as many, up to [`PAGE_PAIRS_MAX`] or
//! [`PAGE_BYTES_MAX`]. Python looks for signals between two pairs, so a scan can be interrupted at
//! any time.

use std::collections::VecDeque;
use std::sync::{Mutex, TryLockError};

use gabion::{Iter, Slice};
use gabion_bindings::{Failure, Walk};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use crate::errors::{exception, no_pickle, run};

const PAGE_PAIRS_FIRST: usize = 8;
const PAGE_PAIRS_MAX: usize = 512;
const PAGE_BYTES_MAX: usize = 256 << 10;

/// Where pairs come from.
pub(crate) enum Source {
    /// A scan.
    Iter(Iter),
    /// All pairs of an engine without order.
    Unordered(gabion::Pairs),
    /// What a transaction sees; whether it has begun.
    Walk(Box<Walk>, bool),
}

/// What an iterator hands out.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Keys,
    Values,
    Items,
}

impl Part {
    /// The part with a name.
    pub(crate) fn named(name: &str) -> Option<Part> {
        match name {
            "keys" => Some(Part::Keys),
            "values" => Some(Part::Values),
            "items" => Some(Part::Items),
            _ => None,
        }
    }
}

struct State {
    source: Source,
    is_reversed: bool,
    page: VecDeque<(Slice, Slice)>,
    page_pairs: usize,
    is_at_end: bool,
    /// What ended it, until it is told.
    failure: Option<Failure>,
}

impl State {
    fn next_pair(&mut self) -> Result<Option<(Slice, Slice)>, Failure> {
        match &mut self.source {
            Source::Iter(iter) if self.is_reversed => Ok(iter.next_back().transpose()?),
            Source::Iter(iter) => Ok(iter.next().transpose()?),
            Source::Unordered(pairs) => Ok(pairs.next().transpose()?),
            Source::Walk(walk, has_begun) => {
                let is_first = !std::mem::replace(has_begun, true);
                let is_there = match (is_first, self.is_reversed) {
                    (true, false) => walk.first(),
                    (true, true) => walk.last(),
                    (false, false) => walk.forward(),
                    (false, true) => walk.back(),
                };
                let pair = |walk: &Walk| (Slice::new(walk.key()), Slice::new(walk.value()));
                Ok(is_there?.then(|| pair(walk)))
            }
        }
    }

    /// Reads the next page. An error is told when the pairs before it have been handed out.
    fn fill(&mut self) -> Result<(), Failure> {
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        let mut bytes = 0;
        while !self.is_at_end && self.page.len() < self.page_pairs && bytes < PAGE_BYTES_MAX {
            match self.next_pair() {
                Ok(Some(pair)) => {
                    bytes += pair.0.len() + pair.1.len();
                    self.page.push_back(pair);
                }
                Ok(None) => self.is_at_end = true,
                Err(failure) => {
                    self.is_at_end = true;
                    if self.page.is_empty() {
                        return Err(failure);
                    }
                    self.failure = Some(failure);
                }
            }
        }
        self.page_pairs = match &self.source {
            // It reads ahead by itself, and what is read of a transaction counts as read.
            Source::Walk(..) => 1,
            _ => (2 * self.page_pairs).min(PAGE_PAIRS_MAX),
        };
        Ok(())
    }
}

/// An iterator over keys, values or both.
#[pyclass(frozen, module = "gabion")]
pub(crate) struct Pairs {
    part: Part,
    state: Mutex<State>,
}

impl Pairs {
    pub(crate) fn new(source: Source, part: Part, is_reversed: bool) -> Pairs {
        let page_pairs = match &source {
            Source::Walk(..) => 1,
            _ => PAGE_PAIRS_FIRST,
        };
        Pairs {
            part,
            state: Mutex::new(State {
                source,
                is_reversed,
                page: VecDeque::new(),
                page_pairs,
                is_at_end: false,
                failure: None,
            }),
        }
    }

    /// Goes through all that is left, and returns how many pairs there were.
    pub(crate) fn count(&self, py: Python<'_>) -> PyResult<usize> {
        let mut count = 0;
        loop {
            let page = run(py, || {
                let mut state = self.state.try_lock().map_err(|_| Failure::Busy)?;
                state.fill()?;
                Ok(state.page.drain(..).count())
            })?;
            match page {
                0 => return Ok(count),
                page => count += page,
            }
            py.check_signals()?;
        }
    }

    /// The next pair; read as part of a page if none is at hand.
    fn next(&self, py: Python<'_>) -> PyResult<Option<(Slice, Slice)>> {
        // P2: an iterator that another thread fills is not waited for.
        let state = |state: &Mutex<State>| match state.try_lock() {
            Ok(mut state) => Ok(state
                .page
                .pop_front()
                .ok_or(state.is_at_end && { state.failure.is_none() })),
            Err(TryLockError::WouldBlock) => Err(Failure::Busy),
            Err(TryLockError::Poisoned(_)) => Err(Failure::Panicked("an iterator failed".into())),
        };
        match state(&self.state).map_err(|failure| exception(py, &failure))? {
            Ok(pair) => return Ok(Some(pair)),
            Err(true) => return Ok(None),
            Err(false) => {}
        }
        run(py, || match self.state.try_lock() {
            Ok(mut state) => {
                state.fill()?;
                Ok(state.page.pop_front())
            }
            Err(_) => Err(Failure::Busy),
        })
    }
}

#[pymethods]
impl Pairs {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let Some((key, value)) = self.next(py)? else {
            return Ok(None);
        };
        Ok(Some(match self.part {
            Part::Keys => PyBytes::new(py, &key).into_any(),
            Part::Values => PyBytes::new(py, &value).into_any(),
            Part::Items => {
                let pair = [PyBytes::new(py, &key), PyBytes::new(py, &value)];
                PyTuple::new(py, pair)?.into_any()
            }
        }))
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(no_pickle("iterator"))
    }
}
