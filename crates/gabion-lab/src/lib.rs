//! The lab: one place where everything is measured, beside the peers.
//!
//! [`target`] says what a thing to be measured must do, [`targets`] has those that need no other
//! library, [`workload`] lists the phases as data. [`run`] drives the threads of a phase on a
//! store, [`measure`] counts what it cost, and [`result`] is the one format in which results are
//! kept. [`plan`] is a run of several targets as data, [`experiment`] carries it out in processes
//! of their own, and [`figure`] has the runs behind a paper's figures, [`structure`] the figures
//! about one structure, which need no run, and [`files`] those about what lies in files.
//! [`equals`] is the comparison of stores that hold the same records.
//! [`reproduce`] lists all figures with what the papers claim, and keeps what came of each.
//! [`summary`] puts results side by side, and [`page`] shows them.
#![forbid(unsafe_code)]

pub mod equals;
pub mod experiment;
pub mod figure;
pub mod files;
pub mod measure;
pub mod page;
pub mod plan;
pub mod reproduce;
pub mod result;
pub mod run;
pub mod structure;
pub mod summary;
pub mod target;
pub mod targets;
pub mod workload;

mod error;

pub use error::Error;
pub use gabion::text;
