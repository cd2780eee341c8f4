//! How a store divides its keys while the distribution of new keys changes: the paper's figure 2.7.
//!
//! Asked after each quarter of the phase, since each quarter has a region of its own.

use std::cell::RefCell;

use super::{Phase, Runner};
use crate::Error;
use crate::result::KeyBorders;
use crate::workload::Distribution;

const QUARTERS: u64 = 4;

/// What a phase has shown so far.
pub(super) struct Seen<'r> {
    runner: &'r Runner<'r>,
    total: u64,
    /// `None` in phases that do not change their keys.
    borders: Option<RefCell<Vec<KeyBorders>>>,
}

impl<'r> Seen<'r> {
    pub(super) fn of(runner: &'r Runner<'r>, phase: &Phase<'_>) -> Seen<'r> {
        let changes = phase.distribution == Distribution::Regions;
        Seen {
            runner,
            total: phase.total,
            borders: changes.then(RefCell::default),
        }
    }

    /// The phase has done so many operations.
    pub(super) fn look(&self, operations: u64) -> Result<(), Error> {
        let Some(borders) = &self.borders else {
            return Ok(());
        };
        let due = (borders.borrow().len() as u64 + 1) * self.total / QUARTERS;
        if operations < due {
            return Ok(());
        }
        let settings = &self.runner.settings;
        if let Some(keys) = self.runner.store.borders()? {
            let shape = &self.runner.keys;
            let place =
                |key: &Vec<u8>| shape.records_below(key, settings.num) as f64 / settings.num as f64;
            borders.borrow_mut().push(KeyBorders {
                operations,
                places: keys.iter().map(place).collect(),
            });
        }
        Ok(())
    }

    /// What was seen, in a phase that has ended after so many operations.
    pub(super) fn all(self, operations: u64) -> Result<Vec<KeyBorders>, Error> {
        self.look(operations)?;
        Ok(self.borders.map(RefCell::into_inner).unwrap_or_default())
    }
}
