//! The outcome of a figure.

use serde::{Deserialize, Serialize};

use crate::result::PhaseResult;
use crate::rows::Table;

/// The outcome of a figure.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Outcome {
    /// The figure's name.
    pub figure: String,
    /// The part of the paper's size at which it was made.
    pub part: f64,
    /// How long that took.
    pub seconds: f64,
    /// What a figure about one structure shows.
    pub tables: Vec<Table>,
    /// Results of the phases of a figure about stores.
    pub results: Vec<PhaseResult>,
}
