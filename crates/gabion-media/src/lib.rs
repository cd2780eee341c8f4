//! Everything in Gabion that touches a storage medium.

mod error;

pub use error::{Error, Result};
