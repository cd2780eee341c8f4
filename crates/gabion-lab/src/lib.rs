//! The lab: one place where everything is measured, beside the peers.
//!
//! [`target`] says what a thing to be measured must do, [`measure`] counts what it cost, and
//! [`result`] is the one format in which results are kept. [`summary`] puts them side by side, and
//! [`page`] shows them.

pub mod measure;
pub mod page;
pub mod result;
pub mod summary;
pub mod target;

mod error;

pub use error::Error;
