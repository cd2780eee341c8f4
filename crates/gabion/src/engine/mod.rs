//! The engines behind the facade.

pub(crate) mod wip;

pub use wip::{CheckReport, Problem, check, check_disk};
