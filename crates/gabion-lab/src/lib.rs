//! The lab: one place where everything is measured, beside the peers.
//!
//! [`target`] says what a thing to be measured must do, [`targets`] has those that need no other
//! library, [`workload`] lists the phases as data. [`run`] drives the threads of a phase on a
//! store, [`measure`] counts what it cost, and [`result`] is the one format in which results are
//! kept. [`plan`] is a run of several targets as data, and [`experiment`] carries it out in
//! processes of their own. [`figure`] lists the figures of the papers with what they claim: those
//! about stores are the runs of [`stores`], those about one structure are made by [`structure`],
//! and all of their numbers are [`rows`]. [`reproduce`] keeps what came of each. [`equals`] is the
//! comparison of stores that hold the same records. [`summary`] puts results side by side, and
//! [`page`] shows them.
#![forbid(unsafe_code)]

pub mod equals;
pub mod experiment;
pub mod figure;
pub mod measure;
pub mod page;
pub mod plan;
pub mod reproduce;
pub mod result;
pub mod rows;
pub mod run;
pub mod scale;
pub mod stores;
pub mod structure;
pub mod summary;
pub mod target;
pub mod targets;
pub mod workload;

mod error;

pub use error::Error;
pub use gabion::text;
