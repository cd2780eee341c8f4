//! Measuring a store under standard workloads.
//!
//! [`workloads`] lists the phases as data; [`generators`] choose the records and [`keys`] make
//! their bytes; [`run`] drives the threads; [`measure`] counts what it cost; [`report`] shows it.

mod generators;
mod keys;
mod measure;
mod report;
mod rng;
mod run;
mod workloads;

pub(crate) use generators::Distribution;
pub(crate) use measure::ProcessUse;
pub(crate) use report::{
    BytesWritten, PhaseResult, amplification, counts_note, table_header, table_row,
};
#[cfg(test)]
pub(crate) use rng::Rng;
pub(crate) use run::{Runner, Settings};
pub(crate) use workloads::{WORKLOADS, Workload};
